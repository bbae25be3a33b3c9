"""`analyze`, `diagnose` and `inspect`: how far apart the two policies of a dump are, why, and in which rows."""

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rlcorr_cli.commands import answers, arguments, completion
from rlcorr_cli.commands.choose import HowCorrected, PlanOptions, asks_for_plan, chosen_plan, objective_under
from rlcorr_cli.commands.declared import Act, Opt, PythonOnly, several, takes
from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.files.outputs import Outputs as Staging
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.diagnostics import DiagnosticSettings
from rlcorr_cli.plans.objective import DEFAULT_CLIPS
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.causes.features import Yardstick
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.reading.token_text import TokenizerProcess
    from rlcorr_cli.results.diagnosed import DiagnosedDump
    from rlcorr_cli.results.inspected import Inspected, TokenRows
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.runs.reading import OpenDump
    from rlcorr_cli.runs.token_rows import Choice
    from rlcorr_cli.totals.row_sample import RowSample

TokenizerName = Annotated[
    str | Path | None,
    Opt(
        help="A tokenizer.json, a folder that holds one, or a name on the Hugging Face Hub: the text of token ids.",
        panel=arguments.LOOKING,
        metavar="FILE",
    ),
]
WITH_ROWS = (".html", ".md")
"""Forms of a report that end with its worst rows."""
N_WORST = 5
LARGEST_READ_AGAIN = 4 << 30
"""Rows that the page of a report ends with; of a dump of more bytes they are not sought, which is one more reading."""
LOOKED_AT = "step, policy_version, worker, data_source, finish_reason, cached_tokens, spec_accept_rate"


@frozen(kw_only=True, eq=False)
class AnalyzeOptions(HowCorrected):
    """What `analyze` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    group_by: arguments.GroupBy = ()
    cluster_by: arguments.ClusterBy = None
    extreme_ratio: Annotated[
        float,
        Opt(
            help="A token is extreme if its ratio is above this, or below its inverse.",
            panel=arguments.PLAN,
            rare=True,
            setting="extreme_ratio",
        ),
    ] = DiagnosticSettings.extreme_ratio
    seed: arguments.Seed = 0
    allow_overlap: answers.AllowOverlap = False
    pool: arguments.Pool = False
    pictures: Annotated[
        bool,
        PythonOnly(
            "Count also what `plot` and `to_html` draw and `trends` are told from; it takes a third longer. Some files "
            "of `output` have it counted."
        ),
    ] = False
    totals: Annotated[bool, PythonOnly("Keep what it was made of, which `save` writes as .rlcorr.")] = False
    tokenizer: TokenizerName = None
    clean_dump: arguments.RareCleanDump = None
    throughput: Annotated[
        str | Path | None,
        Opt(
            help="Tokens a second of training at each lag, in a file with the heading lag,tokens_per_second: which lag "
            "gives the most effective ones.",
            panel=arguments.LOOKING,
            metavar="FILE",
            rare=True,
        ),
    ] = None
    all: Annotated[
        bool,
        Opt(help="Print everything: remedies, all numbers, quantiles, a row for each step.", panel=arguments.LOOKING),
    ] = False
    output: arguments.Outputs = ()
    overwrite: arguments.Overwrite = False


@takes(AnalyzeOptions)
def analyze(options: AnalyzeOptions) -> "Report":
    """Diagnose a dump, and show what a correction would do.

    The report's `whole` and `groups` hold counts and metrics by name, `intervals` 95% intervals; `health`, `verdict`,
    `course` and `trends` are its conclusions, `suggestions` looser bounds for rejections that take too much.  Files of
    its own totals (.rlcorr) stand in the place of a dump, and are added: the report is that of one run over all rows.
    """
    from rlcorr_cli.results.build import report_of
    from rlcorr_cli.results.lags import read_throughput
    from rlcorr_cli.results.saved_runs import RunTotals
    from rlcorr_cli.runs.analyze import analysis_totals, plan_columns

    chosen = chosen_plan(options)
    wanted = objective_under(chosen, options)
    files = answers.report_files(options.output, n_group_columns=len(arguments.names("group_by", options.group_by)))
    clips = DEFAULT_CLIPS["ppo"]
    if wanted is not None and wanted.name == "ppo":
        clips = (wanted.clip_low, wanted.clip_high)
    text_of: TokenizerProcess | None = None
    rates = None if options.throughput is None else read_throughput(str(options.throughput))

    def measured(read: "OpenDump") -> RunTotals:
        nonlocal text_of
        text_of = None if options.tokenizer is None else _tokenizer(options.tokenizer)
        return analysis_totals(
            read,
            chosen,
            settings=DiagnosticSettings(options.extreme_ratio, *clips),
            seed=options.seed,
            pictures=options.pictures or any(path.suffix.lower() in forms.PICTURED for path in files),
            follows_steps=not options.pool,
            objective=wanted,
        )

    def conflicts(run: RunTotals) -> dict[str, tuple[Any, Any]]:
        # Of totals it is known only now how they are grouped.
        answers.report_files(options.output, n_group_columns=len(run.provenance.asked_groups))
        return {
            "⟦profile⟧": (chosen.profile and chosen.profile.name, run.profile),
            "The plan": (answers.other_plan(chosen.plan, run.plan) if asks_for_plan(options) else None, run.plan.name),
            "⟦objective⟧": (wanted and wanted.name, run.provenance.settings.get("objective.name")),
        }

    def answer(run: RunTotals, read: "OpenDump | None", clean: "Yardstick | None") -> "Report":
        run = run.pooled if read is None and options.pool else run
        classes = _classes(run.measured.sample, options.tokenizer)
        report = replace(report_of(run, clean=clean, classes=classes), totals=run, everything=options.all)
        if rates is not None:
            if report.lags is None:
                raise UsageError("⟦throughput⟧ is by lag, and no rows here are of two.", "Leave it out.")
            report = replace(report, lags=report.lags.with_rates(rates))
        if read is None or not any(path.suffix.lower() in WITH_ROWS for path in files):
            return report
        return replace(report, worst_rows=_worst_rows(read, chosen, text_of))

    return answers.answered(
        options,
        RunTotals,
        columns=lambda reading: plan_columns(reading, chosen, wanted, clusters=True),
        measured=measured,
        answer=answer,
        conflicts=conflicts,
        files=files,
        destinations=forms.destinations,
        saved=options.totals,
    )


def _worst_rows(read: "OpenDump", chosen: "ChosenPlan", tokenizer: "TokenizerProcess | None") -> "TokenRows | None":
    """The rows that the page of a report ends with; None of a dump that would take long to read again, or cannot be."""
    from rlcorr_cli.runs.token_rows import Choice, token_rows

    if read.dump.is_piped or sum(source.n_bytes for source in read.dump.sources) > LARGEST_READ_AGAIN:
        return None
    bad_rows = replace(read.dump.request.bad_rows, action="skip", quarantine=None, max_fraction=1.0)
    dump = read.dump.with_request(group_by=(), bad_rows=bad_rows)
    return token_rows(dump, chosen, read.computing, Choice(n_worst=N_WORST), tokenizer=tokenizer)


@frozen(kw_only=True, eq=False)
class DiagnoseOptions(arguments.How):
    """What `diagnose` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    group_by: arguments.GroupBy = ()
    by: Annotated[
        arguments.Names,
        Opt(
            help=f"Also compare the values of this column, beside {LOOKED_AT} and the length. Repeatable.",
            panel=arguments.READING,
            metavar="COLUMN",
            offers=completion.columns,
            setting="levels",
        ),
    ] = ()
    fail_on: Annotated[
        arguments.Names,
        Opt(
            help="Exit with status 1 if this is the cause found in the dump or a group; cause: any cause but noise. "
            "`rlcorr help diagnose` lists them.",
            python="The result's `failing` is that cause.",
            panel=arguments.RULES,
            metavar="CAUSE,...",
            offers=completion.causes,
        ),
    ] = ()
    clean_dump: arguments.CleanDump = None
    tokenizer: TokenizerName = None
    allow_overlap: answers.AllowOverlap = False
    output: arguments.TotalledOutputs = ()
    overwrite: arguments.Overwrite = False


@takes(DiagnoseOptions)
def diagnose(options: DiagnoseOptions) -> "DiagnosedDump":
    """Find the cause of a gap: its size, its evidence, and what to do.

    The result's `verdict` is the name of the likely cause, or says that there is none; `causes` are all that hold, each
    with its share of the gap, parameters, evidence and advice; `whole` and `groups`, which are diagnosed one by one,
    hold the numbers behind them.  The dump is read once.  Files of its own totals (.rlcorr) stand in the place of a
    dump, and are added.
    """
    from rlcorr_cli.results.diagnosed import DiagnosisRun, diagnosis_of
    from rlcorr_cli.runs.diagnose import DIAGNOSIS_COLUMNS, diagnosis_totals

    if options.batch_by is not None:
        raise UsageError("⟦batch_by⟧ has no effect here: diagnose does not use batches.", "Leave it out.")
    by, failing = arguments.names("by", options.by), arguments.causes_named(options.fail_on)
    return answers.answered(
        options,
        DiagnosisRun,
        columns=lambda _: replace(DIAGNOSIS_COLUMNS, by=by),
        measured=diagnosis_totals,
        answer=lambda run, _, clean: replace(
            diagnosis_of(run, clean, _classes(run.sample, options.tokenizer)), fail_on=failing
        ),
    )


def _classes(sample: "RowSample | None", tokenizer: str | Path | None) -> dict[int, str]:
    """The class of each token id of a sample, where a tokenizer tells their text."""
    if sample is None or tokenizer is None:
        return {}
    from rlcorr_cli.causes.token_classes import classes_of

    read = _tokenizer(tokenizer)
    return classes_of(sample, lambda ids: [piece.shown for piece in read.pieces(ids)])


MOST_SHOWN = 1000
"""Rows that are shown token by token, at most."""


@frozen(kw_only=True, eq=False)
class InspectOptions(PlanOptions, arguments.HowRead):
    """What `inspect` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    row: Annotated[
        str | int | Sequence[str | int],
        Opt(
            help="Show a sequence token by token: its sample_id, or its number as errors give it. Repeatable.",
            panel=arguments.LOOKING,
            metavar="ID",
            should="be a sample_id or a number, or a list of them",
        ),
    ] = ()
    worst: Annotated[
        int,
        Opt(
            help="Show so the N sequences with the largest gaps of one token.",
            panel=arguments.LOOKING,
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
            panel=arguments.LOOKING,
            metavar="SQL",
            such_as="'step = 4'",
        ),
    ] = None
    repro: Annotated[
        str | Path | None,
        Act(
            help="Write for an engine's authors: the fewest rows that show the gap, requests for vLLM and SGLang that "
            "score them again, a script that sends these, an issue's text. Needs token ids of prompts and responses.",
            panel=arguments.LOOKING,
            metavar="DIR",
        ),
    ] = None
    text: Annotated[
        bool, Act(help="With --repro: write also the text of these rows, not their ids alone.", panel=arguments.LOOKING)
    ] = False
    tokenizer: TokenizerName = None
    output: arguments.SheetOutputs = ()
    overwrite: arguments.Overwrite = False


@takes(InspectOptions)
def inspect(options: InspectOptions) -> "Inspected | TokenRows":
    """Show how a dump is read, what is wrong with it, and where.

    Bad rows are counted, and never end it.  Of the rows that are named or chosen it shows every token, its text, and
    what a plan says about it.  For an engine's authors it writes the fewest that show the gap.
    """
    from rlcorr_cli.runs import inspect as inspection
    from rlcorr_cli.show.forms import repro as folder

    files = answers.sheet_files(options.output)
    rows = tuple(str(name) for name in several(options.row))
    choice = _rows_to_show(rows, options.worst, options.where)
    path = None if options.repro is None else answers.written("⟦repro⟧", options.repro)
    if path is not None and (rows or options.worst):
        raise UsageError("⟦repro⟧ chooses the rows itself.", "Leave ⟦row⟧ and ⟦worst⟧ out; ⟦where⟧ narrows the choice.")
    if options.text and path is None:
        raise UsageError("⟦text True⟧ is for rows that are written, and none are.", "Add ⟦repro DIR⟧.")
    if choice is None and path is None and options.tokenizer is not None:
        raise UsageError("⟦tokenizer⟧ is for the text of rows, and none are asked for.", "Add ⟦worst 5⟧.")
    chosen = chosen_plan(options)
    reading = inspection.ignoring_bad_rows(answers.with_found(arguments.request(options.dumps, options)))
    folders = [] if path is None else [folder.destination(path)]
    places = (*forms.sheet_destinations(files, options.overwrite), *folders)
    notes = answers.check_touched((*places, *answers.quarantines(reading)), reading.files, options)
    with Staging() as staging, arguments.computing(options) as compute:
        read = None if options.tokenizer is None else _tokenizer(options.tokenizer)
        if path is not None:
            from rlcorr_cli.runs.repro import repro_rows

            found = repro_rows(reading, chosen, compute, where=options.where or "", tokenizer=read)
            folder.write(found, path, staging, with_text=options.text)
            sends = f"`python {path}/send.py vllm_decode --url URL` asks an engine again; {path}/issue.md says more."
            found = replace(found, about=(*found.about, sends))
        elif choice is not None:
            from rlcorr_cli.runs.analyze import opened
            from rlcorr_cli.runs.token_rows import token_rows

            found = token_rows(opened(reading, chosen), chosen, compute, choice, tokenizer=read)
        else:
            found = inspection.inspect(reading, chosen, compute)
        return answers.finished(found, notes, files, staging)


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
