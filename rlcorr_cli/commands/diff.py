"""`diff`: a dump, or its saved totals, compared with one or more others."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, get_args

from rlcorr_cli.commands.arguments import (
    COMPARING,
    READING,
    TEXTS,
    ClusterBy,
    Columns,
    Computed,
    FormatName,
    GroupBy,
    Junit,
    Limit,
    ModeName,
    Names,
    Paths,
    Read,
    Seed,
    SheetOutputs,
    Watching,
    computing,
    names,
    one_of,
    paths,
    refuse_outside,
    refuse_stdin_twice,
    request,
)
from rlcorr_cli.commands.declared import Opt, Via
from rlcorr_cli.commands.outputs import check_touched, finished, junit_file, sheet_files
from rlcorr_cli.errors import RlcorrError, UsageError, shortened
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import MOST_SEED
from rlcorr_cli.show.forms import sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.results.diffed import Diff

DiffFailOn = Literal["moved"]


def bad_rows_left_out(
    action: Annotated[
        Literal["error", "skip"],
        Opt(help="Stop at the first, or leave them out.", panel=READING, flags=("--on-bad-row",)),
    ] = "error",
) -> BadRowPolicy:
    """What to do about bad rows of several dumps."""
    return BadRowPolicy(action)


def diff(
    *dumps: Annotated[
        Paths,
        Opt(
            help="Dumps, each as for analyze, or one part.rlcorr; each is compared with A.",
            typed=list[str],
            metavar="A B...",
        ),
    ],
    by: Annotated[
        str | None,
        Opt(
            help="What tells rows apart: default sample_id, with step where both have it.",
            panel=COMPARING,
            metavar="COLUMN",
        ),
    ] = None,
    everything: Annotated[
        bool, Opt(help="Show the other metrics, too, untested.", panel=COMPARING, flags=("--all",))
    ] = False,
    min_effect: Annotated[
        float, Opt(help="The smallest change that counts as moved.", panel=COMPARING, metavar="SHARE", least=0)
    ] = 0.1,
    seed: Seed = 0,
    fail_on: Annotated[
        Names, Opt(help="moved: exit with status 1 if a metric moved.", panel=COMPARING, typed=TEXTS, metavar="NAME")
    ] = (),
    mode: ModeName = None,
    group_by: GroupBy = (),
    cluster_by: ClusterBy = None,
    format: FormatName = "auto",
    columns: Columns = None,
    limit: Limit = None,
    bad_rows: Annotated[
        BadRowPolicy | None,
        Via(
            make=bad_rows_left_out,
            help="What to do about bad rows; the default stops at the first.",
            record="BadRowPolicy",
        ),
    ] = None,
    junit: Junit = None,
    output: SheetOutputs = (),
    watch: Watching = None,
    **how: Unpack[Computed],
) -> "Diff":
    """Compare dumps: what moved, by how much, and which side.

    Two or more, each compared with the first; a file of saved totals, a .rlcorr, stands for its dump.  Where nothing
    tells rows apart, what rollout says of a row does.  `fail_on` makes a failure in `junit` of each metric that moved.
    """
    from rlcorr_cli.results.diffed import checked
    from rlcorr_cli.runs.diff import DiffSettings
    from rlcorr_cli.runs.diff import diff as run

    refuse_outside(0, MOST_SEED, seed=seed)
    # Callers from Python may pass anything.
    if not isinstance(min_effect, int | float) or not 0 <= min_effect < 1000:
        raise UsageError(f"--min-effect must be a share such as 0.1, got {shortened(min_effect)}.", "Leave it out.")
    for value in names("fail_on", fail_on):
        one_of("--fail-on", value, get_args(DiffFailOn))
    if len(dumps) < 2:
        raise UsageError("One dump has nothing to be compared with.", "Name another.")
    refuse_stdin_twice(*map(paths, dumps))
    files, report_file = sheet_files(output), () if junit is None else (junit_file(junit),)
    read: Read = {"format": format, "columns": _columns(columns, by), "limit": limit, "bad_rows": bad_rows}
    asked = [request(dump, read, group_by=group_by, cluster_by=cluster_by) for dump in dumps]
    places = [place for path in files for place in sheet_destinations(path)]
    notes = check_touched((*places, *report_file), [path for reading in asked for path in reading.paths])
    with Outputs() as staging, computing(how) as compute:
        settings = DiffSettings(seed=seed, min_effect=float(min_effect), everything=everything)
        try:
            difference = run(asked, settings, computing=compute, mode=mode, watch=watch)
        except RlcorrError as error:
            if by is None:
                raise
            raise type(error)(_of_by(error.message, by), _of_by(error.hint, by)) from error
        for place in report_file:
            from rlcorr_cli.show.ci.junit import document

            staging.write(place, document(checked(difference, fails=bool(fail_on))))
        return finished(difference, notes, files, staging)


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
