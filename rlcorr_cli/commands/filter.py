"""What writes rows: `filter` and `correct` by a plan, `convert` in canonical columns."""

from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rlcorr_cli.commands import arguments, choose
from rlcorr_cli.commands.answers import check_touched, with_found, written
from rlcorr_cli.commands.declared import Act, Opt, PythonOnly, takes
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.reading.bad_rows import GO_ON
from rlcorr_cli.reading.formats import WRITTEN
from rlcorr_cli.reading.request import MOST_ROWS, MOST_SEED, NO_BATCH

if TYPE_CHECKING:
    from rlcorr_cli.reading.tables import Table
    from rlcorr_cli.results.written import Converted, Filtered

Coef = Literal["raw", "normalized"] | None
DATASET = Act(
    help=f"The corrected dataset: {', '.join(WRITTEN)}, a directory of parts, or a directory .hf (load_from_disk).",
    panel=arguments.OUTPUT,
    flags=("--output", "-o"),
    metavar="PATH",
)
RowsPerFile = Annotated[
    int,
    Opt(
        help="Rows per file, where the output is a directory.",
        panel=arguments.OUTPUT,
        metavar="N",
        least=1,
        most=MOST_ROWS,
        rare=True,
    ),
]


@frozen(kw_only=True, eq=False)
class FilterOptions(choose.HowCorrected):
    """What `filter` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    output: Annotated[str | Path | None, DATASET] = field(default=None, kw_only=False)
    dry_run: Annotated[bool, Opt(help="Write nothing; show what would be kept.", panel=arguments.OUTPUT)] = False
    rejected: Annotated[
        Literal["drop", "keep"],
        Opt(
            help="What to do with rows that lose every token: drop them, or keep them with a mask of zeros.",
            panel=arguments.OUTPUT,
        ),
    ] = "drop"
    rejected_output: Annotated[
        str | Path | None, Act(help="Also write the dropped rows here.", panel=arguments.OUTPUT, metavar="PATH")
    ] = None
    rows_per_file: RowsPerFile = 100_000
    resample: Annotated[
        int | None,
        Opt(
            help="Draw N rows in proportion to their weights, instead of writing weights.",
            panel=arguments.OUTPUT,
            metavar="N",
            least=1,
            most=MOST_ROWS,
        ),
    ] = None
    seed: Annotated[
        int, Opt(help="Seed of --resample.", panel=arguments.OUTPUT, metavar="N", least=0, most=MOST_SEED, rare=True)
    ] = 0
    coef: Annotated[
        Coef,
        Opt(
            help="Write each token's coefficient in the objective's gradient (rlcorr_coef); normalized: divided by its "
            "batch's tokens.",
            panel=arguments.OBJECTIVE,
        ),
    ] = None
    overwrite: arguments.Overwrite = False
    force: Annotated[bool, Act(help="Write the dataset although the dump has a fault.", panel=arguments.OUTPUT)] = False


@takes(FilterOptions)
def filter(options: FilterOptions) -> "Filtered":
    """Write the corrected dataset: weights and masks, rejected rows dropped.

    With --coef, an objective's coefficient of every token is written, too.  Of a dump with a fault (columns that are
    shifted, rows that are mispaired) nothing is written: a FaultError says what to mend.
    """
    from rlcorr_cli.results.written import Target
    from rlcorr_cli.runs import filter as filtering

    if options.output is None and not options.dry_run:
        raise UsageError("No output is named.", "Use ⟦output PATH⟧, or ⟦dry_run True⟧ to see what would be kept.")
    chosen = choose.chosen_plan(options)
    wanted = _coefficients_of(chosen, options, options.coef)
    if wanted is None:
        _refuse_idle(chosen)
    target = Target(
        path=None if options.output is None or options.dry_run else written("⟦output⟧", options.output),
        keep_rejected=options.rejected == "keep",
        rejected=None
        if options.rejected_output is None or options.dry_run
        else written("⟦rejected_output⟧", options.rejected_output),
        overwrite=options.overwrite,
        rows_per_file=options.rows_per_file,
        resample=options.resample,
        seed=options.seed,
        objective=wanted,
        divides_coefs=options.coef == "normalized",
        force=options.force,
    )
    reading = with_found(arguments.request(options.dumps, options))
    notes = check_touched(filtering.destinations(reading, target), reading.files, options)
    with arguments.computing(options) as compute:
        filtered = filtering.filter_dump(reading, chosen, target, computing=compute, watch=options.watch)
    return replace(filtered, report=replace(filtered.report, notes=notes + filtered.report.notes))


def _coefficients_of(plan: ChosenPlan, options: choose.HowCorrected, coef: Coef) -> Objective | None:
    """The objective whose coefficients are written; None where none are."""
    if coef is not None:
        return choose.objective_under(plan, options) or choose.choose_objective(plan=plan)
    if choose.asks_for_objective(options):
        raise UsageError("Without ⟦coef⟧ an objective changes nothing in the output.", "Add ⟦coef raw⟧.")
    return choose.objective_under(plan, options)


@frozen(kw_only=True, eq=False)
class CorrectOptions(choose.ProfiledPlanOptions):
    """What `correct` takes."""

    table: Annotated[
        arguments.Paths,
        PythonOnly(
            "Anything with `__arrow_c_stream__` (pyarrow, polars, pandas, duckdb), a Dataset of Hugging Face, a list "
            "of rows, or a mapping of padded tensors or arrays [B, T]."
        ),
    ] = field(kw_only=False)
    map: arguments.Map = None
    batch_by: arguments.BatchBy = None
    nonfinite: arguments.Nonfinite = arguments.Read.nonfinite
    above_zero: arguments.AboveZero = arguments.Read.above_zero
    device: arguments.Device = arguments.Computed.device
    batch_tokens: arguments.BatchTokens = None


@takes(CorrectOptions)
def correct(options: CorrectOptions) -> "Table":
    """The corrected rows of one table, as `filter` would write them with every rejected row kept.

    A plan that looks at whole training batches (normalize, budgets) takes the table as one, unless `batch_by` names a
    column.  No bad row can be left out.  A function of its arguments alone, for `map_batches` and training loops; one
    thread computes.
    """
    from rlcorr_cli.runs.filter import correct as corrected

    chosen = choose.chosen_plan(options)
    _refuse_idle(chosen)
    read = arguments.Read(
        map=options.map,
        batch_by=options.batch_by or NO_BATCH,
        nonfinite=options.nonfinite,
        above_zero=options.above_zero,
    )
    reading = arguments.request(options.table, read)
    how = arguments.Computed(device=options.device, batch_tokens=options.batch_tokens, engine="threads", workers=1)
    try:
        with arguments.computing(how) as compute:
            return corrected(reading, chosen, compute)
    except DataError as error:
        raise type(error)(error.what, error.do.replace(f" {GO_ON}.", "")) from None


def _refuse_idle(chosen: ChosenPlan) -> None:
    """Refuse a plan by which nothing would be corrected."""
    if chosen.plan.weighting is None and not chosen.plan.rules:
        hint = " ".join((*chosen.notes, "Name one, such as ⟦preset geo_rs⟧."))
        raise UsageError(f"The plan {chosen.plan.name} corrects nothing.", hint)


@frozen(kw_only=True, eq=False)
class ConvertOptions:
    """What `convert` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    output: Annotated[str | Path | None, DATASET] = field(default=None, kw_only=False)
    join: Annotated[
        str | Path | None,
        Opt(
            help="Another engine's log-probs of the same tokens: they become old_log_probs, or beside a trained policy "
            "rescored_log_probs.",
            panel=arguments.JOINING,
            metavar="DUMP",
        ),
    ] = None
    on: Annotated[
        arguments.Names,
        Opt(
            help="Columns that match the rows of the two files.", panel=arguments.JOINING, typed=str, metavar="A,B,..."
        ),
    ] = "sample_id"
    format: arguments.FormatName = arguments.Read.format
    map: arguments.Map = None
    limit: arguments.Limit = None
    rows_per_file: RowsPerFile = 100_000
    overwrite: arguments.Overwrite = False
    watch: arguments.Watching = None


@takes(ConvertOptions)
def convert(options: ConvertOptions) -> "Converted":
    """Convert a framework's files to the standard columns.

    Every row comes through, unchecked, in the order of the files named, with `source_file` and `source_row`; rows
    without a partner are counted.
    """
    from rlcorr_cli.runs import filter as filtering

    if options.output is None:
        raise UsageError("No output is named.", "Use ⟦output PATH⟧: a .parquet or .jsonl file, or a directory.")
    path = written("⟦output⟧", options.output)
    reading = arguments.request(
        options.dumps, arguments.Read(format=options.format, map=options.map, limit=options.limit)
    )
    other = None if options.join is None else arguments.request(str(options.join), arguments.Read(map=options.map))
    arguments.refuse_stdin_twice(reading.paths, () if other is None else other.paths)
    reading, other = with_found(reading), None if other is None else with_found(other)
    read = (*reading.files, *(() if other is None else other.files))
    notes = check_touched([filtering.converted_to(path, options.overwrite)], read)
    converted = filtering.convert(
        reading,
        path,
        join=other,
        on=arguments.names(
            "on", [name.strip() for name in options.on.split(",")] if isinstance(options.on, str) else options.on
        ),
        overwrite=options.overwrite,
        rows_per_file=options.rows_per_file,
        watch=options.watch,
    )
    return replace(converted, notes=(*notes, *converted.notes))
