"""`compare_dumps`: several dumps held against each other under one plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlcorr_cli.api.arguments import (
    Files,
    Paths,
    computing,
    paths,
    refuse_outside,
    refuse_stdin_twice,
    request,
    several,
)
from rlcorr_cli.api.choosing import PlanLike, choose_plan
from rlcorr_cli.api.comparing import default_plans
from rlcorr_cli.api.touched import check_touched, sheet_files
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import MOST_SEED, EngineName
from rlcorr_cli.results.side_by_side import SideBySide
from rlcorr_cli.show.forms import sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.runs.analyze import Watch


@speaks_of_arguments
def compare_dumps(
    dumps: Sequence[Paths],
    plan: PlanLike | None = None,
    *,
    cluster_by: str | None = None,
    seed: int = 0,
    output: Files = (),
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    watch: "Watch | None" = None,
) -> SideBySide:
    """Hold several dumps against each other: how far apart each is, what one plan leaves of it, and which to take.

    dumps: at least two, each as of `compare`.  plan: the plan whose columns stand beside each other; None for none.
    Which plan to take on each is chosen among those that `compare` takes by itself, and this one.  The rest as of
    `compare`; what is read of each dump is named alike, and `limit` is of each.
    """
    from rlcorr_cli.runs import side_by_side as comparing

    refuse_outside(0, MOST_SEED, seed=seed)
    listed = _several(dumps, bad_rows)
    chosen = None if plan is None else choose_plan(plan)
    outputs = sheet_files(output)
    requests = [
        request(
            dump,
            cluster_by=cluster_by,
            format=format,
            columns=columns,
            batch_by=batch_by,
            limit=limit,
            bad_rows=bad_rows,
        )
        for dump in listed
    ]
    places = [place for path in outputs for place in sheet_destinations(path)]
    notes = check_touched(places, [path for reading in requests for path in reading.paths], plan=plan)
    with (
        Outputs() as staging,
        computing(
            device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
        ) as compute,
    ):
        sides = comparing.compare_dumps(
            requests,
            chosen,
            default_plans(),
            computing=compute,
            seed=seed,
            watch=watch,
        )
        sides = replace(sides, notes=sides.notes + notes)
        for path in outputs:
            from rlcorr_cli.show.forms import sheet
            from rlcorr_cli.show.forms import side_by_side as forms

            sheet.write(forms.sheet(sides), path, staging)
        staging.publish()
    return sides


def _several(dumps: Any, bad_rows: BadRowPolicy | None) -> list[Any]:
    """The dumps, if there are two or more that can be read one after the other."""
    listed = several(dumps)
    if len(listed) < 2:
        raise UsageError("One dump has nothing to stand beside.", "Name another, or compare plans on it.")
    refuse_stdin_twice(*map(paths, listed))
    if bad_rows is not None and bad_rows.quarantine is not None:
        raise UsageError("--quarantine takes the rows of one dump.", "Use --on-bad-row skip.")
    return listed
