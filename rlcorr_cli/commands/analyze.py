"""`analyze`, `diagnose` and `inspect`: how far apart the two policies of a dump are, why, and in which rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.arguments import (
    LOOKING,
    PLAN,
    READING,
    RULES,
    TEXT,
    TEXTS,
    CleanDump,
    ClusterBy,
    Dumps,
    GroupBy,
    How,
    HowRead,
    Names,
    Outputs,
    Overwrite,
    Pool,
    RareCleanDump,
    Seed,
    SheetOutputs,
    TotalledOutputs,
    causes_named,
    computing,
    names,
    request,
    several,
)
from rlcorr_cli.commands.choose import (
    HowCorrected,
    PlanOptions,
    asks_for_plan,
    chosen_plan,
    objective_under,
)
from rlcorr_cli.commands.declared import Opt, PythonOnly, takes
from rlcorr_cli.commands.outputs import check_touched, finished, keep_totals, quarantines, report_files, sheet_files
from rlcorr_cli.commands.saved import (
    AllowOverlap,
    added,
    other_plan,
    refuse_conflicting,
    result_of,
    saved_parts,
    yardstick,
)
from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.files.outputs import Outputs as Staging
from rlcorr_cli.places import STDIN
from rlcorr_cli.plans.objective import DEFAULT_CLIPS
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.reading.token_text import TokenizerProcess
    from rlcorr_cli.results.diagnosed import DiagnosedDump
    from rlcorr_cli.results.inspected import Inspected, TokenRows
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.runs.token_rows import Choice

TokenizerName = Annotated[
    str | Path | None,
    Opt(
        help="A tokenizer.json, a folder that holds one, or a name on the Hugging Face Hub: the text of token ids.",
        panel=LOOKING,
        typed=TEXT,
        metavar="FILE",
    ),
]
WITH_ROWS = (".html", ".md")
"""Forms of a report that end with its worst rows."""
N_WORST = 5
LARGEST_READ_AGAIN = 4 << 30
"""Rows that the page of a report ends with; of a dump of more bytes they are not sought, which is one more reading."""
LOOKED_AT = "step, policy_version, worker, data_source, finish_reason, cached_tokens, spec_accept_rate"


@dataclass(frozen=True, kw_only=True, eq=False)
class AnalyzeOptions(HowCorrected):
    """What `analyze` takes."""

    dumps: Dumps = field(kw_only=False)
    group_by: GroupBy = ()
    cluster_by: ClusterBy = None
    extreme_ratio: Annotated[
        float, Opt(help="A token is extreme if its ratio is above this, or below its inverse.", panel=PLAN, rare=True)
    ] = 2.0
    seed: Seed = 0
    allow_overlap: AllowOverlap = False
    pool: Pool = False
    pictures: Annotated[
        bool,
        PythonOnly(
            "Count also what `plot` and `to_html` draw and `trends` are told from; it takes a third longer. Some files "
            "of `output` have it counted."
        ),
    ] = False
    totals: Annotated[bool, PythonOnly("Keep what it was made of, which `save` writes as .rlcorr.")] = False
    tokenizer: TokenizerName = None
    clean_dump: RareCleanDump = None
    output: Outputs = ()
    overwrite: Overwrite = False


@takes(AnalyzeOptions)
def analyze(options: AnalyzeOptions) -> "Report":
    """Diagnose a dump, and show what a correction would do.

    The report's `whole` and `groups` hold counts and metrics by name, `intervals` 95% intervals; `health`, `verdict`,
    `course` and `trends` are its conclusions, `suggestions` looser bounds for rejections that take too much.  Files of
    its own totals (.rlcorr) stand in the place of a dump, and are added: the report is that of one run over all rows.
    """
    chosen = chosen_plan(options)
    wanted = objective_under(chosen, options)
    groups, ratio = names("group_by", options.group_by), options.extreme_ratio
    parts = saved_parts(options.dumps, allow_overlap=options.allow_overlap)
    outputs = report_files(options.output, n_group_columns=len(groups) or bool(parts))
    places = forms.destinations(outputs, options.overwrite)
    if parts:
        from rlcorr_cli.results.run_totals import RunTotals
        from rlcorr_cli.results.saved_totals import report_in

        notes = check_touched(places, parts, plan=chosen, clean_dump=options.clean_dump)
        first, run = added(parts, RunTotals, options, group_by=groups, allow_overlap=options.allow_overlap)
        run = run.pooled if options.pool else run
        held = run.provenance.settings
        refuse_conflicting(
            first,
            {
                "⟦profile⟧": (chosen.profile and chosen.profile.name, run.profile),
                "The plan": (other_plan(chosen.plan, run.plan) if asks_for_plan(options) else None, run.plan.name),
                "⟦cluster_by⟧": (options.cluster_by, held["cluster_by"]),
                "⟦extreme_ratio⟧": (ratio if ratio != AnalyzeOptions.extreme_ratio else None, held["extreme_ratio"]),
                "⟦seed⟧": (options.seed or None, run.provenance.seed),
                "⟦objective⟧": (wanted and wanted.name, held.get("objective.name")),
            },
        )
        report_files(
            options.output, n_group_columns=len(run.provenance.asked_groups)
        )  # only now it is known how they are grouped
        with Staging() as staging:
            return finished(report_in(first, run, yardstick(options.clean_dump, options)), notes, outputs, staging)
    reading = request(options.dumps, options, group_by=groups, cluster_by=options.cluster_by)
    notes = check_touched(
        (*places, *quarantines(reading)),
        reading.paths,
        plan=chosen,
        tokenizer=options.tokenizer,
        clean_dump=options.clean_dump,
    )
    text_of = None if options.tokenizer is None else _tokenizer(options.tokenizer)
    from rlcorr_cli.metrics.settings import DiagnosticSettings
    from rlcorr_cli.runs import analyze as analysis

    clips = DEFAULT_CLIPS["ppo"]
    if wanted is not None and wanted.name == "ppo":
        clips = (wanted.clip_low, wanted.clip_high)
    with Staging() as staging, computing(options) as compute:
        report = analysis.analyze(
            reading,
            chosen,
            settings=DiagnosticSettings(ratio, *clips),
            computing=compute,
            seed=options.seed,
            watch=options.watch,
            pictures=options.pictures or any(path.suffix.lower() in forms.PICTURED for path in outputs),
            follows_steps=not options.pool,
            totals=options.totals or keep_totals(outputs),
            staging=staging,
            objective=wanted,
            clean=yardstick(options.clean_dump, options),
        )
        is_small = sum(file.n_bytes for file in report.inputs) <= LARGEST_READ_AGAIN
        if is_small and STDIN not in reading.paths and any(path.suffix.lower() in WITH_ROWS for path in outputs):
            from rlcorr_cli.runs.token_rows import Choice, token_rows

            bad_rows = replace(reading.bad_rows, action="skip", quarantine=None, max_fraction=None)
            once_more, choice = replace(reading, group_by=(), bad_rows=bad_rows), Choice(n_worst=N_WORST)
            worst = token_rows(once_more, chosen, compute, choice, tokenizer=text_of)
            report = replace(report, worst_rows=worst)
        return finished(report, notes, outputs, staging)


@dataclass(frozen=True, kw_only=True, eq=False)
class DiagnoseOptions(How):
    """What `diagnose` takes."""

    dumps: Dumps = field(kw_only=False)
    group_by: GroupBy = ()
    by: Annotated[
        Names,
        Opt(
            help=f"Also compare the values of this column, beside {LOOKED_AT} and the length. Repeatable.",
            panel=READING,
            typed=TEXTS,
            metavar="COLUMN",
            offers=completion.columns,
        ),
    ] = ()
    fail_on: Annotated[
        Names,
        Opt(
            help="Exit with status 1 if this is the cause found in the dump or a group; cause: any cause but noise. "
            "`rlcorr help diagnose` lists them.",
            python="The result's `failing` is that cause.",
            panel=RULES,
            typed=TEXTS,
            metavar="CAUSE,...",
            offers=completion.causes,
        ),
    ] = ()
    clean_dump: CleanDump = None
    allow_overlap: AllowOverlap = False
    output: TotalledOutputs = ()
    overwrite: Overwrite = False


@takes(DiagnoseOptions)
def diagnose(options: DiagnoseOptions) -> "DiagnosedDump":
    """Find the cause of a gap: its size, its evidence, and what to do.

    The result's `verdict` is the name of the likely cause, or says that there is none; `causes` are all that hold, each
    with its share of the gap, parameters, evidence and advice; `whole` and `groups`, which are diagnosed one by one,
    hold the numbers behind them.  The dump is read once.  Files of its own totals (.rlcorr) stand in the place of a
    dump, and are added.
    """
    from rlcorr_cli.runs import diagnose as diagnosing

    if options.batch_by is not None:
        raise UsageError("⟦batch_by⟧ has no effect here: diagnose does not use batches.", "Leave it out.")
    looked_at: Sequence[str] = [name for name in names("by", options.by) if name]
    failing = causes_named(options.fail_on)
    outputs = sheet_files(options.output, forms.TOTALLED_SHEETS)
    places = forms.sheet_destinations(outputs, options.overwrite)
    if parts := saved_parts(options.dumps, allow_overlap=options.allow_overlap):
        from rlcorr_cli.results.diagnosed import DiagnosisRun, diagnosis_of

        notes = check_touched(places, parts, clean_dump=options.clean_dump)
        first, run = added(parts, DiagnosisRun, options, group_by=options.group_by, allow_overlap=options.allow_overlap)
        refuse_conflicting(first, {"⟦by⟧": (", ".join(looked_at) or None, run.of.settings["levels"])})
        with Staging() as staging:
            of_sum = result_of(first, run, partial(diagnosis_of, clean=yardstick(options.clean_dump, options)))
            of_sum = replace(of_sum, totals=run, fail_on=failing)
            return finished(of_sum, notes, outputs, staging)
    reading = request(options.dumps, options, group_by=options.group_by)
    notes = check_touched((*places, *quarantines(reading)), reading.paths, clean_dump=options.clean_dump)
    with Staging() as staging, computing(options) as compute:
        diagnosed = diagnosing.diagnose(
            reading,
            by=tuple(looked_at),
            computing=compute,
            watch=options.watch,
            staging=staging,
            totals=keep_totals(outputs),
            clean=yardstick(options.clean_dump, options),
        )
        return finished(replace(diagnosed, fail_on=failing), notes, outputs, staging)


MOST_SHOWN = 1000
"""Rows that are shown token by token, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InspectOptions(PlanOptions, HowRead):
    """What `inspect` takes."""

    dumps: Dumps = field(kw_only=False)
    row: Annotated[
        str | int | Sequence[str | int],
        Opt(
            help="Show a sequence token by token: its sample_id, or its number as errors give it. Repeatable.",
            panel=LOOKING,
            typed=TEXTS,
            metavar="ID",
            should="be a sample_id or a number, or a list of them",
        ),
    ] = ()
    worst: Annotated[
        int,
        Opt(
            help="Show so the N sequences with the largest gaps of one token.",
            panel=LOOKING,
            metavar="N",
            least=0,
            most=MOST_SHOWN,
        ),
    ] = 0
    where: Annotated[
        str | None,
        Opt(
            help="Show, or choose from, the sequences for which this SQL expression over columns holds: "
            "\"step = 4 and worker = 'w3'\".",
            panel=LOOKING,
            metavar="SQL",
            such_as="'step = 4'",
        ),
    ] = None
    tokenizer: TokenizerName = None
    output: SheetOutputs = ()
    overwrite: Overwrite = False


@takes(InspectOptions)
def inspect(options: InspectOptions) -> "Inspected | TokenRows":
    """Show how a dump is read, what is wrong with it, and where.

    Bad rows are counted, and never end it.  Of the rows that are named or chosen it shows every token, its text, and
    what a plan says about it.
    """
    from rlcorr_cli.runs import inspect as inspection

    files = sheet_files(options.output)
    rows = tuple(str(name) for name in several(options.row))
    choice = _rows_to_show(rows, options.worst, options.where)
    if choice is None and options.tokenizer is not None:
        raise UsageError("⟦tokenizer⟧ is for the text of rows, and none are asked for.", "Add ⟦worst 5⟧.")
    chosen = chosen_plan(options)
    reading = request(options.dumps, options)
    places = forms.sheet_destinations(files, options.overwrite)
    notes = check_touched((*places, *quarantines(reading)), reading.paths, plan=chosen, tokenizer=options.tokenizer)
    with Staging() as staging, computing(options) as compute:
        if choice is None:
            return finished(inspection.inspect(reading, chosen, compute), notes, files, staging)
        from rlcorr_cli.runs.token_rows import token_rows

        read = None if options.tokenizer is None else _tokenizer(options.tokenizer)
        found = token_rows(reading, chosen, compute, choice, tokenizer=read)
        return finished(found, notes, files, staging)


def _tokenizer(source: str | Path) -> "TokenizerProcess":
    """The tokenizer of that name."""
    from rlcorr_cli.reading.token_text import TokenizerProcess

    if not str(source) or "\0" in str(source):
        raise UsageError(f"⟦tokenizer⟧ should name a file, not {shortened(source)}.", "Name a tokenizer.json.")
    return TokenizerProcess(str(source))


def _rows_to_show(rows: tuple[str, ...], worst: int, where: str | None) -> "Choice | None":
    """Which rows are asked for; None where none are."""
    if rows and (worst or where):
        raise UsageError("⟦row⟧ names rows, and ⟦worst⟧ and ⟦where⟧ choose them.", "Use one of the two.")
    if not (rows or worst or where):
        return None
    if len(rows) > MOST_SHOWN:
        raise UsageError(f"⟦row⟧ names {len(rows):,} rows, and {MOST_SHOWN:,} are shown at most.", "Use ⟦where⟧.")
    from rlcorr_cli.runs.token_rows import Choice

    return Choice(names=rows, n_worst=worst, where=where or "")
