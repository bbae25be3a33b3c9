"""`diff`: two dumps, or their saved totals, compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from rlcorr_cli.api.arguments import (
    Files,
    Names,
    Paths,
    computing,
    names,
    one_of,
    paths,
    refuse_outside,
    refuse_stdin_twice,
    request,
)
from rlcorr_cli.api.judging import junit_file
from rlcorr_cli.api.touched import check_touched, sheet_files
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import RlcorrError, UsageError, shortened
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import MOST_SEED, EngineName
from rlcorr_cli.results.diffed import Diff, checked
from rlcorr_cli.show.forms import sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.runs.analyze import Watch

DiffFailOn = Literal["moved"]


@speaks_of_arguments
def diff(
    a: Paths,
    b: Paths,
    *,
    by: str | None = None,
    everything: bool = False,
    min_effect: float = 0.1,
    seed: int = 0,
    mode: Mode | None = None,
    group_by: Names = (),
    cluster_by: str | None = None,
    output: Files = (),
    junit: str | Path | None = None,
    fail_on: Names = (),
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    watch: "Watch | None" = None,
) -> Diff:
    """Compare two dumps: what moved, by how much, and which policy's log-probs did.

    a, b: dumps as for `analyze`, or files of saved totals, a .rlcorr each.  by: the column that tells rows apart; None
    for sample_id (and step, where both have it), or else what rollout says of a row.  everything: show the metrics
    beyond the family, too, which are not tested.  min_effect: the smallest change that counts as moved, a share.
    fail_on: "moved", for a failure in `junit` for each metric that moved.  output: files, in the forms of `compare`.
    The rest as of `analyze`.
    """
    from rlcorr_cli.runs.diff import DiffSettings
    from rlcorr_cli.runs.diff import diff as run

    refuse_outside(0, MOST_SEED, seed=seed)
    # Callers from Python may pass anything.
    if not isinstance(min_effect, int | float) or not 0 <= min_effect < 1000:
        raise UsageError(f"--min-effect must be a share such as 0.1, got {shortened(min_effect)}.", "Leave it out.")
    for value in names("fail_on", fail_on):
        one_of("--fail-on", value, get_args(DiffFailOn))
    refuse_stdin_twice(paths(a), paths(b))
    files, junit_place = sheet_files(output), () if junit is None else (junit_file(junit),)
    asked = [
        request(
            dump,
            group_by=group_by,
            cluster_by=cluster_by,
            format=format,
            columns=_columns(columns, by),
            limit=limit,
            bad_rows=bad_rows,
        )
        for dump in (a, b)
    ]
    places = [place for path in files for place in sheet_destinations(path)]
    notes = check_touched((*places, *junit_place), [*paths(a), *paths(b)])
    with (
        Outputs() as staging,
        computing(
            device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
        ) as compute,
    ):
        settings = DiffSettings(seed=seed, min_effect=float(min_effect), everything=everything)
        try:
            difference = run(asked[0], asked[1], settings, computing=compute, mode=mode, watch=watch)
        except RlcorrError as error:
            if by is None:
                raise
            raise type(error)(_of_by(error.message, by), _of_by(error.hint, by)) from error
        difference = replace(difference, notes=difference.notes + notes)
        if files:
            _write(difference, files, staging)
        for place in junit_place:
            from rlcorr_cli.show.check import junit as document

            staging.write(place, document(checked(difference, fails=bool(fail_on))))
        staging.publish()
    return difference


def _of_by(text: str, by: str) -> str:
    """A message of the reading, which names another option for the rows' own column than this command does."""
    return text.replace(f"--map sample_id={by}", f"--by {by}").replace("--map sample_id=COLUMN", "--by COLUMN")


def _columns(columns: Any, by: str | None) -> Any:
    """Columns with that of `by` as the rows' own."""
    if by is None:
        return columns
    if columns and "sample_id" in columns:
        raise UsageError("--by and --map sample_id both name the rows' own column.", "Use one of the two.")
    return {**(columns or {}), "sample_id": by}


def _write(difference: Diff, files: Sequence[Path], staging: Outputs) -> None:
    """Stage the comparison's files."""
    from rlcorr_cli.show.forms import diffed, sheet

    of_diff = diffed.sheet(difference)
    for path in files:
        sheet.write(of_diff, path, staging)
