"""`check`: a dump, or its report, held to rules and to a baseline; for CI."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rlcorr_cli.commands import answers, arguments, completion
from rlcorr_cli.commands.choose import HowCorrected, PlanOptions, asks_for_plan, chosen_plan, objective_under
from rlcorr_cli.commands.declared import TEXT, Act, Opt, PythonOnly, changed, kind_of, several, takes
from rlcorr_cli.errors import DataError, UsageError, not_one_of
from rlcorr_cli.files import filesystem, located, output_path
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.framework_names import CANONICAL
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.show.forms import PAGES, sheet_destinations, write

if TYPE_CHECKING:
    from rlcorr_cli.commands.arguments import Paths
    from rlcorr_cli.results.checked import Checked, Measurements
    from rlcorr_cli.results.policy import Baseline
    from rlcorr_cli.results.report import Report

NAME_DUMP = "Name the dump itself."
WHAT = "A dump, a report.json, or a log of metrics."
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable that names the file to which a step's summary is appended."""

Bounds = Mapping[str, float] | Sequence[str] | None
Amounts = Mapping[str, float | str] | Sequence[str] | None
"""Metric -> amount, or texts such as 'k3_kl=0.01'."""


def step_summary() -> str | None:
    """The file that GitHub names for a step's summary."""
    return os.environ.get(SUMMARY) or None


def limit_option(help: str, metavar: str) -> Opt:
    """An option that sets limits on metrics."""
    return Opt(
        help=f"{help} Repeatable.",
        python="Or a mapping: {'k3_kl': 0.01}.",
        panel=arguments.RULES,
        metavar=metavar,
        should="map metrics to amounts",
        such_as="k3_kl=0.01",
        offers=completion.limited_metrics,
    )


RulesPath = Annotated[
    str | Path | None,
    Opt(help="Rules in TOML, YAML or JSON: see `rlcorr help ci`.", panel=arguments.RULES, metavar="FILE"),
]
AtMost = Annotated[Bounds, limit_option("Fail above this: k3_kl=0.01.", "METRIC=N")]
AtLeast = Annotated[Bounds, limit_option("Fail below this: token_ess=0.9.", "METRIC=N")]
Accept = Annotated[
    arguments.Names,
    Opt(
        help="Let these causes pass: top_p,grid. Repeatable.",
        panel=arguments.RULES,
        metavar="CAUSE,...",
        offers=completion.causes,
    ),
]


@frozen(kw_only=True, eq=False)
class CheckOptions(HowCorrected):
    """What `check` takes."""

    source: Annotated["Report | Paths", replace(arguments.DUMPS_OR_REPORT, help=WHAT)] = field(kw_only=False)
    rules: RulesPath = None
    max: AtMost = None
    min: AtLeast = None
    baseline: Annotated[
        "Report | str | Path | None",
        Opt(
            help="Saved report to compare with (`rlcorr help ci`).", panel=arguments.RULES, typed=TEXT, metavar="REPORT"
        ),
    ] = None
    update_baseline: Annotated[
        bool, Act(help="Write the baseline from this run if it passes.", panel=arguments.RULES)
    ] = False
    max_increase: Annotated[Amounts, limit_option("Fail if it rose by more: k3_kl=50%.", "METRIC=N[%]")] = None
    max_decrease: Annotated[Amounts, limit_option("Fail if it fell by more: token_ess=1%.", "METRIC=N[%]")] = None
    fail_on: Annotated[
        arguments.Names,
        Opt(
            help="Also fail on a cause (`rlcorr help diagnose`; cause: any but noise), or on moved, far or outliers "
            "(`rlcorr help choosing`). Repeatable.",
            panel=arguments.RULES,
            metavar="NAME,...",
            offers=completion.failures,
        ),
    ] = ()
    accept: Accept = ()
    expect: Annotated[
        Literal["equal"] | None, Opt(help="Fail unless both columns are bit-equal.", panel=arguments.RULES)
    ] = None
    strict: Annotated[bool, Opt(help="Treat warnings as failures.", panel=arguments.RULES)] = False
    group_by: arguments.GroupBy = ()
    cluster_by: arguments.ClusterBy = None
    pool: arguments.Pool = False
    clean_dump: arguments.RareCleanDump = None
    junit: arguments.Junit = None
    output: arguments.PageOutputs = ()
    overwrite: arguments.Overwrite = False
    summary: Annotated[
        str | Path | None, PythonOnly("A file to which a summary in Markdown is appended.", otherwise=step_summary)
    ] = None


@takes(CheckOptions)
def check(options: CheckOptions) -> "Checked":
    """Check a dump, a saved report or a log against limits; exits 1 on failure.

    The default rules, and one's own.  `source` may be a Report, too.  Amounts are mappings of metrics to numbers, or to
    percentages as in '20%'; an objective's numbers are named as in "objective/ppo/loss".
    """
    from rlcorr_cli.results.checked import BaselineUpdate, check as judged, measurements_of
    from rlcorr_cli.results.policy import FLAGS, policy, read_rules, refuse_impossible
    from rlcorr_cli.results.rules import RULES as DEFAULTS

    files = answers.sheet_files(options.output, PAGES)
    report_file = () if options.junit is None else (answers.junit_file(options.junit),)
    places = (*sheet_destinations(files, options.overwrite), *report_file)
    appended = (
        () if options.summary is None else (Destination(path=Path(options.summary), option=SUMMARY, overwrite=True),)
    )
    log = log_of(options)
    of_log = None if log is None else (None, ReadRequest(paths=()), tuple(each.path for each in log.inputs))
    report, reading, inputs = of_log or source_of(options)
    updated = _updated(options.baseline) if options.update_baseline else None
    read = options if updated is None else replace(options, baseline=None)
    notes = answers.check_touched((*filter(None, (updated,)), *places, *answers.quarantines(reading)), inputs, read)
    notes = tuple(dict.fromkeys((*notes, *answers.check_touched(appended, inputs, options))))
    is_first = updated is not None and not _is_there(updated.path)
    chosen = chosen_plan(options if report is None else PlanOptions())
    wanted = objective_under(chosen, options)
    failing = arguments.causes_named(options.fail_on, also=FLAGS)
    asked = policy(
        defaults=DEFAULTS if report is None else report.rules,
        file=None if options.rules is None else read_rules(str(options.rules)),
        at_most=(*bounds_texts(options.max), *(() if options.expect is None else EXPECTED[options.expect][0])),
        at_least=bounds_texts(options.min),
        max_increase=bounds_texts(options.max_increase),
        max_decrease=bounds_texts(options.max_decrease),
        baseline=_baseline(options.baseline, is_first=is_first),
        fail_on=failing,
        strict=options.strict,
        accept=(*accepted(options.accept), *(() if options.expect is None else EXPECTED[options.expect][1])),
        own_names=chosen.profile is None if report is None else report.profile == CANONICAL,
    )
    if log is not None and (
        over := [named.origin for named in asked.rules if named.rule.over == "total" and named.origin]
    ):
        raise UsageError(f"{over[0]} is over the whole, and a log of metrics has steps alone.", 'Say over = "groups".')
    with Outputs() as staging:
        if report is not None:
            refuse_beside_report(reading, options)
            if wanted is not None:
                raise UsageError("⟦objective⟧ needs the dump: a saved report has the one it was made with.", NAME_DUMP)
            if options.clean_dump is not None:
                raise UsageError("⟦clean_dump⟧ needs the dump: a saved report has its cause already.", NAME_DUMP)
        elif log is None:
            # Here, because a saved report needs none of it.
            from rlcorr_cli.results.build import report_of
            from rlcorr_cli.runs.analyze import analysis_totals, opened
            from rlcorr_cli.runs.reading import OpenDump

            if chosen.profile is None:  # a peer's names are known once its function has run
                of_objective = None if wanted is None else wanted.name
                refuse_impossible(
                    asked, chosen.plan, grouped=bool(options.group_by) or not options.pool, objective=of_objective
                )
            with arguments.computing(options) as compute:
                clean, has_baseline = answers.yardstick(options), asked.baseline is not None
                dump = opened(reading, chosen, wanted, clusters=True)
                run = analysis_totals(
                    OpenDump(dump=dump, computing=compute, watch=options.watch, staging=staging),
                    chosen,
                    group_intervals=has_baseline,
                    follows_steps=not options.pool,
                    objective=wanted,
                )
                report = report_of(run, group_intervals=has_baseline, clean=clean)
        measured = log if report is None else measurements_of(report)
        assert measured is not None
        checked = judged(measured, asked)
        checked = replace(checked, notes=notes + checked.notes)
        if updated is not None:
            update = BaselineUpdate(path=str(updated.path), is_first=is_first, written=checked.passed)
            checked = replace(checked, baseline=update)
            if checked.passed:
                write(report, updated.path, staging)
        for place in report_file:
            from rlcorr_cli.show.check import junit

            staging.write(place, junit(checked))
        for path in files:
            write(checked, path, staging)
        staging.publish()
    if options.summary is not None:
        from rlcorr_cli.show.check import append_summary

        append_summary(checked, str(options.summary))
    return checked


EXPECTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"equal": (("bit_mismatch=0",), ("bypass_copy",))}
"""What --expect means: limits as --max has them, and causes as --accept has them."""


def accepted(accept: arguments.Names) -> tuple[str, ...]:
    """The names of faults and causes, which may stand in one text with commas between."""
    from rlcorr_cli.causes.table import ALL_CAUSES

    known = (*ALL_CAUSES, "ratio_mean")
    listed = tuple(
        name.strip() for text in arguments.names("accept", accept) for name in text.split(",") if name.strip()
    )
    for name in listed:
        if name not in known:
            raise not_one_of("⟦accept⟧", name, known)
    return listed


OF_LOGS = ("source", "rules", "max", "min", "strict", "junit", "output", "overwrite", "summary")
"""Options that a log of metrics in the place of a dump takes."""


def log_of(options: CheckOptions) -> "Measurements | None":
    """The steps of a log that stands in the place of a dump; None of a dump and of a report."""
    from rlcorr_cli.reading.scalars import files_of, is_log, read, settled
    from rlcorr_cli.results.report import Report

    paths = () if isinstance(options.source, Report) else arguments.paths(options.source)
    if not paths or not is_log(paths):
        return None
    refuse_of_logs(paths[0], (name for name in changed(options, CheckOptions) if name not in OF_LOGS))
    from rlcorr_cli.results.scalars import measurements_of_log

    return measurements_of_log(settled([read(path) for path in files_of(paths)]))


def refuse_of_logs(path: str, names: Iterable[str]) -> None:
    """Refuse options that take a dump, where a log of metrics is named."""
    for name in names:
        raise UsageError(f"⟦{name}⟧ takes a dump, and {path} is a log of metrics.", "Leave it out.")


def source_of(options: Any) -> "tuple[Report | None, ReadRequest, tuple[str, ...]]":
    """The report that stands in the place of a dump, in memory or a file, None for a dump; how a dump is read; and the
    files that are read."""
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.results.saved import is_report, read_report

    if isinstance(options.source, Report):
        return options.source, arguments.request("", options), ()
    reading = arguments.request(options.source, options)
    if is_report(reading.paths):
        return read_report(reading.paths[0]), reading, reading.files
    reading = answers.with_found(reading)
    return None, reading, reading.files


def refuse_beside_report(reading: ReadRequest, options: PlanOptions) -> None:
    """Refuse what cannot be asked of a report in the place of a dump: it has its plan and its groups already."""
    if reading != ReadRequest(paths=reading.paths) or asks_for_plan(options):
        raise UsageError("A saved report cannot be read under another plan or grouping.", NAME_DUMP)


def _updated(baseline: Any) -> Destination:
    """Where the new baseline goes."""
    if not isinstance(baseline, str | Path):
        what = "no baseline is named" if baseline is None else f"the baseline is {kind_of(baseline)}, not a file"
        raise UsageError(f"⟦update_baseline True⟧ writes a file, and {what}.", "Add ⟦baseline base.json⟧.")
    path = answers.written("⟦baseline⟧", baseline)
    if path.suffix.lower() != ".json":
        raise UsageError(f"{path}: a baseline is written as .json.", "Name it base.json or the like.")
    return Destination(path=path, option="⟦baseline⟧", overwrite=True)


def _is_there(path: Path) -> bool:
    place = located(str(path))
    return filesystem(place).is_file(place)


def _baseline(source: Any, *, is_first: bool) -> "Baseline | None":
    """The numbers to compare with; none of a baseline that is to be written for the first time."""
    from rlcorr_cli.results.checked import measurements_of
    from rlcorr_cli.results.policy import Baseline
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.results.saved import read_report

    if source is None:
        return None
    if not isinstance(source, Report | str | Path):
        raise UsageError(f"baseline should be a Report or a report.json, not {kind_of(source)}.", "Save one first.")
    name = "the baseline" if isinstance(source, Report) else str(source)
    if is_first:
        return Baseline(name=name, sections=())
    try:
        report = source if isinstance(source, Report) else read_report(name)
    except DataError as error:
        if _is_there(output_path("⟦baseline⟧", name)):
            raise
        raise DataError(error.what, "Add ⟦update_baseline True⟧ to write it from this run.") from None
    return Baseline(name=name, sections=measurements_of(report).sections)


def bounds_texts(amounts: Any) -> list[str]:
    """Each as 'k3_kl=0.01', which is how rules are read."""
    if isinstance(amounts, Mapping):
        return [f"{metric}={amount}" for metric, amount in amounts.items()]
    return several(() if amounts is None else amounts)
