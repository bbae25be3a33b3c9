"""`check`: a dump, or its report, held to rules and to a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rlcorr_cli.api.arguments import Names, Paths, computing, kind_of, names, paths, request
from rlcorr_cli.api.choosing import ObjectiveLike, PlanLike, choose_plan, objective_under
from rlcorr_cli.api.touched import check_touched, quarantines, written
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import UsageError, not_one_of
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import CANONICAL
from rlcorr_cli.places import STDIN
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import EngineName, ReadRequest
from rlcorr_cli.results.checked import Checked, measurements_of
from rlcorr_cli.results.policy import Baseline, FailOn, Policy, policy, refuse_impossible
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rule_defaults import RULES
from rlcorr_cli.results.rule_files import read_rules
from rlcorr_cli.results.saved import is_report, read_report

if TYPE_CHECKING:
    from rlcorr_cli.results.diagnosed import DiagnosedDump
    from rlcorr_cli.runs.analyze import Watch
    from rlcorr_cli.runs.scan import Computing

NAME_DUMP = "Name the dump itself."

Amounts = Mapping[str, float | str] | Sequence[str]
"""Metric -> amount, or texts such as 'kl=0.1'."""


@speaks_of_arguments
def check(
    source: Report | Paths,
    plan: PlanLike | None = None,
    *,
    rules: str | Path | None = None,
    at_most: Mapping[str, float] | Sequence[str] | None = None,
    at_least: Mapping[str, float] | Sequence[str] | None = None,
    baseline: Report | str | Path | None = None,
    max_increase: Amounts | None = None,
    max_decrease: Amounts | None = None,
    junit: str | Path | None = None,
    fail_on: Names = (),
    strict: bool = False,
    profile: str = CANONICAL,
    mode: Mode | None = None,
    group_by: Names = (),
    cluster_by: str | None = None,
    objective: ObjectiveLike | None = None,
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
) -> Checked:
    """Hold a report, a saved one or a dump to the default rules and one's own, and to a baseline.

    source: a Report, one report.json, or a dump, which is measured as by `analyze`.  rules: a rules file.
    at_most, at_least: metric -> bound.  max_increase, max_decrease: metric -> an amount, or a percentage as in '20%',
    that it may be above or below the baseline.  fail_on: "anomaly", for what is wrong with whole files; "moved",
    "far" and "outliers", for gaps that `compare` flags so; "cause", for any that `diagnose` names but noise.  strict:
    warnings and anomalies fail, too.  junit: a file for JUnit XML.  objective: as of `analyze`, whose numbers rules
    name as in "objective/ppo/loss".  The rest as of `analyze`.
    """
    from rlcorr_cli.runs.check import check as run
    from rlcorr_cli.show import check as shown

    places = () if junit is None else (junit_file(junit),)
    notes = check_touched(
        (*places, *quarantines(bad_rows)),
        () if isinstance(source, Report) else paths(source),
        plan=plan,
        rules=rules,
        baseline=baseline,
    )
    report = saved(source)
    chosen = choose_plan(plan if report is None else None, profile=profile, mode=mode)
    wanted = objective_under(chosen, objective)
    asked = policy(
        defaults=RULES if report is None else report.rules,
        file=None if rules is None else read_rules(str(rules)),
        at_most=_texts("at_most", at_most),
        at_least=_texts("at_least", at_least),
        max_increase=_texts("max_increase", max_increase),
        max_decrease=_texts("max_decrease", max_decrease),
        baseline=_baseline(baseline, limited=bool(max_increase or max_decrease)),
        fail_on=_fail_on(fail_on),
        strict=strict,
        own_names=chosen.profile is None if report is None else report.profile == CANONICAL,
    )
    reading = request(
        "" if isinstance(source, Report) else source,
        group_by=group_by,
        cluster_by=cluster_by,
        format=format,
        columns=columns,
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows,
    )
    _refuse_cause(asked, report, reading)
    diagnosed = None
    with Outputs() as staging:
        if report is not None:
            refuse_beside_report(reading, plan, profile=profile, mode=mode)
            if wanted is not None:
                raise UsageError("--objective needs the dump: a saved report has the one it was made with.", NAME_DUMP)
        else:
            from rlcorr_cli.runs.analyze import analyze  # here, because a saved report needs no torch

            if chosen.profile is None:  # a peer's names are known once its function has run
                of_objective = None if wanted is None else wanted.name
                refuse_impossible(asked, chosen.plan, grouped=bool(group_by), objective=of_objective)
            with computing(
                device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
            ) as compute:
                report = analyze(reading, chosen, computing=compute, watch=watch, staging=staging, objective=wanted)
                if "cause" in asked.fail_on:
                    diagnosed = _diagnosed(reading, compute, watch)
        checked = run(measurements_of(report), asked, diagnosed)
        checked = replace(checked, notes=checked.notes + notes)
        for place in places:
            staging.write(place, shown.junit(checked))
        staging.publish()
    return checked


def _refuse_cause(asked: Policy, report: Report | None, reading: ReadRequest) -> None:
    """Refuse to look for a cause in what holds none, or can be read only once."""
    if "cause" not in asked.fail_on:
        return
    if report is not None:
        raise UsageError(
            "--fail-on cause needs the dump: a report does not hold what causes are found from.", NAME_DUMP
        )
    if STDIN in reading.paths:
        raise UsageError(
            "--fail-on cause reads the dump twice, and standard input can be read only once.",
            "Save it to a file first.",
        )


def _diagnosed(reading: ReadRequest, computing: "Computing", watch: "Watch | None") -> "DiagnosedDump":
    """The cause of the gap, in another reading, whose bad rows the first has written apart."""
    from rlcorr_cli.runs.diagnose import diagnose

    again = replace(reading, batch_by=None, bad_rows=replace(reading.bad_rows, quarantine=None))
    return diagnose(again, computing=computing, watch=watch)


def junit_file(path: str | Path) -> Destination:
    """Where JUnit XML goes."""
    return Destination(path=written("--junit", path), option="--junit", overwrite=True)


def _fail_on(values: Names) -> tuple[FailOn, ...]:
    listed = names("fail_on", values)
    for value in listed:
        if value not in get_args(FailOn):
            raise not_one_of("--fail-on", value, get_args(FailOn))
    known: tuple[FailOn, ...] = get_args(FailOn)
    return tuple(value for value in known if value in listed)


def saved(source: Report | Paths) -> Report | None:
    """The report that stands in the place of a dump: in memory, or a file; None for a dump."""
    if isinstance(source, Report):
        return source
    named = paths(source)
    return read_report(named[0]) if is_report(named) else None


def refuse_beside_report(
    reading: ReadRequest, plan: PlanLike | None, *, profile: str = CANONICAL, mode: str | None = None
) -> None:
    """Refuse what cannot be asked of a report in the place of a dump: it has its plan and its groups already."""
    is_default = reading == ReadRequest(paths=reading.paths) and plan is None and mode is None and profile == CANONICAL
    if not is_default:
        raise UsageError("A saved report cannot be read under another plan or grouping.", NAME_DUMP)


def _baseline(source: Any, *, limited: bool) -> Baseline | None:
    """The numbers to compare with; not read without a limit on them, which `policy` refuses."""
    if source is None:
        return None
    if not isinstance(source, Report | str | Path):
        raise UsageError(f"baseline should be a Report or a report.json, not {kind_of(source)}.", "Save one first.")
    name = "the baseline" if isinstance(source, Report) else str(source)
    if not limited:
        return Baseline(name=name, sections=())
    report = source if isinstance(source, Report) else read_report(name)
    return Baseline(name=name, sections=measurements_of(report).sections)


def _texts(argument: str, amounts: Any) -> list[str]:
    """Each as 'kl=0.1', which is how rules are read."""
    if isinstance(amounts, Mapping):
        return [f"{metric}={amount}" for metric, amount in amounts.items()]
    if amounts is not None and not isinstance(amounts, (list, tuple)):
        raise UsageError(
            f"{argument} should map metrics to amounts, and is {kind_of(amounts)}.", f'Write {argument}={{"kl": 0.1}}.'
        )
    return [str(amount) for amount in amounts or ()]
