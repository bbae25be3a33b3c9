"""`inspect` and `inspect_row`: what a dump is, how it is read, where it is worst, and one row token by token."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from rlcorr_cli.commands.arguments import LOOKING, Dumps, HowRead, PlanMode, computing, one_of, refuse_outside, request
from rlcorr_cli.commands.choose import PlanOfOurs, choose_plan
from rlcorr_cli.commands.declared import Opt
from rlcorr_cli.commands.outputs import check_touched, quarantines
from rlcorr_cli.errors import DataError, RlcorrError, UsageError
from rlcorr_cli.reading.request import MOST_ROWS

if TYPE_CHECKING:
    from rlcorr_cli.results.inspected import Inspected, OneRow

Measure = Literal["k3", "abs_log_ratio", "seq_log_ratio"]
ROW = Opt(
    help="Show one sequence token by token: its sample_id, or its number as errors give it.",
    panel=LOOKING,
    typed=str | None,
    metavar="ID",
)
WORST = Opt(help="Name the N worst sequences and tokens.", panel=LOOKING, metavar="N", least=0, most=MOST_ROWS)
BY = Opt(help="The measure of the worst: k3 unless named.", panel=LOOKING, typed=Measure | None)


def inspect(
    dumps: Dumps,
    plan: PlanOfOurs = None,
    *,
    worst: Annotated[int, WORST] = 0,
    by: Annotated[str, BY] = "k3",
    mode: PlanMode = None,
    **how: Unpack[HowRead],
) -> "Inspected":
    """See how a dump is read, what is wrong with it, and where.

    Bad rows are counted, and never end it.
    """
    from rlcorr_cli.measure.worst import MEASURES
    from rlcorr_cli.runs import inspect as inspection

    refuse_outside(0, MOST_ROWS, worst=worst)
    one_of("--by", by, tuple(MEASURES))
    chosen = choose_plan(plan, mode=mode)
    reading = request(dumps, how)
    notes = check_touched(quarantines(reading), reading.paths, plan=chosen)
    with computing(how) as compute:
        inspected = inspection.inspect(reading, chosen, compute, n_worst=worst, by=by)
    return replace(inspected, notes=inspected.notes + notes)


def inspect_row(
    dumps: Dumps,
    row: Annotated[str | int, ROW],
    plan: PlanOfOurs = None,
    *,
    mode: PlanMode = None,
    **how: Unpack[HowRead],
) -> "OneRow":
    """One sequence token by token, and what a plan says about it."""
    from rlcorr_cli.runs import inspect as inspection

    chosen = choose_plan(plan, mode=mode)
    reading = request(dumps, how)
    with computing(how) as compute:
        return inspection.one_row(reading, chosen, compute, str(row))


def typed_inspect(
    dumps: Dumps,
    plan: PlanOfOurs = None,
    *,
    row: Annotated[str | None, ROW] = None,
    worst: Annotated[int, WORST] = 0,
    by: Annotated[Measure | None, BY] = None,
    json: bool,
    **how: Unpack[HowRead],
) -> "Inspected | OneRow":
    """See how a dump is read, what is wrong with it, and where.

    The command: of the dump, or of one row of it.  Where the dump cannot be read, its columns are printed before the
    error; programs get the error alone.
    """
    if row is not None and worst:
        raise UsageError("--row shows one row, --worst names several.", "Use one of the two.")
    if by is not None and not worst:
        raise UsageError("--by is the measure of the worst, and none are asked for.", "Add --worst 5.")
    if row is not None:
        return inspect_row(dumps, row, plan, **how)
    try:
        return inspect(dumps, plan, worst=worst, by=by or "k3", **how)
    except DataError:
        if not json:
            from rlcorr_cli.reading.dump import schema_of
            from rlcorr_cli.show.terminal.inspected import print_schema

            paths: Any = dumps
            try:
                print_schema(schema_of(paths, how.get("format", "auto")))
            except RlcorrError:
                pass  # the columns cannot be read either: the error that follows says why
        raise
