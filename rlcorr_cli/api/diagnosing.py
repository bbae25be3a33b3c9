"""`diagnose`: why the two policies of a dump differ."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rlcorr_cli.api.arguments import Files, Names, Paths, computing, names, request
from rlcorr_cli.api.touched import check_touched, quarantines, sheet_files
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import EngineName
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.runs.analyze import Watch


@speaks_of_arguments
def diagnose(
    dumps: Paths,
    *,
    group_by: Names = (),
    by: Names = (),
    output: Files = (),
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
) -> DiagnosedDump:
    """Name the cause of the gap between a dump's two policies, in one reading.

    group_by: columns whose groups are diagnosed one by one, beside the whole.  by: columns whose levels are looked at,
    beside those that are always (step, policy_version, worker, data_source, finish_reason, the length).  output: files
    that the diagnosis is written to, in the forms of `compare`.  The rest as of `analyze`.
    The result's `verdict` is the name of the likely cause, or says that there is none; `causes` are all that hold, each
    with its share of the gap, parameters, evidence and advice; `whole` and `groups` hold the numbers behind them.
    """
    from rlcorr_cli.runs import diagnose as diagnosing

    looked_at = tuple(name for name in names("by", by) if name)
    reading = request(dumps, group_by=group_by, format=format, columns=columns, limit=limit, bad_rows=bad_rows)
    outputs = sheet_files(output)
    places = [place for path in outputs for place in forms.sheet_destinations(path)]
    notes = check_touched((*places, *quarantines(bad_rows)), reading.paths)
    with (
        Outputs() as staging,
        computing(
            device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
        ) as compute,
    ):
        diagnosed = diagnosing.diagnose(reading, by=looked_at, computing=compute, watch=watch, staging=staging)
        diagnosed = replace(diagnosed, notes=diagnosed.notes + notes)
        for path in outputs:
            forms.write(diagnosed, path, staging)
        staging.publish()
    return diagnosed
