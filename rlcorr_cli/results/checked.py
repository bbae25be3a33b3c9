"""What `check` judges (`Measurements`: the numbers of a report), and what came of it (`Checked`).

Beside its rules it may fail on flags of `compare` and on the causes that `diagnose` names, as findings like any
other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os.path import basename
from typing import Annotated, Any, Literal

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, Impossible
from rlcorr_cli.causes.table import CAUSES, NOISE
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.records.fields import HIDDEN, Form, Key, Scalar, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.course import is_judged, small_steps
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup
from rlcorr_cli.results.groups import Inputs, of_inputs
from rlcorr_cli.results.policy import FailOn
from rlcorr_cli.results.recommend import ERRORS, FAR_TOKEN_TV, FEW_TOKENS_TV, MOVED, USABLE_TOKEN_ESS, flags_of
from rlcorr_cli.results.report import Group, Report, plain_key
from rlcorr_cli.results.rules import Finding, RemedyContext, Section, Status
from rlcorr_cli.results.verdict import Level


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something wrong with the data: its name, the sentence that shows it, and what to do; empty where that says it."""

    name: str
    evidence: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The numbers of a dump, just measured or saved.

    sections: the whole dump, then its groups, then the steps that are large enough to be judged.  situation: what
    remedies depend on.  faults: what is wrong with the data, whatever their numbers are.  cause: why the policies
    differ, where that is a fault to be fixed.  column: of the steps.  last_step: the last of them, and its level; None
    where it is too small.  notes: on what of the dump was not read, or not judged.
    """

    inputs: tuple[Input, ...]
    sections: tuple[Section, ...]
    situation: RemedyContext
    faults: tuple[Fault, ...] = ()
    cause: Fault | None = None
    column: str = ""
    last_step: tuple[Any, Level] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LastStep(Record):
    """The last step: how far apart its policies are, and the metrics whose rules it fails, and warns of."""

    step: Scalar
    level: Level
    failed: tuple[str, ...]
    warned: tuple[str, ...]


CheckCounts = Annotated[Mapping[str, int], Form(keys=("rules", "failed", "warned", "passed"))]


@dataclass(frozen=True, kw_only=True)
class Checked(Output):
    """Measurements held to n_rules rules.

    notes: on what was not read, then faults unless they fail, then what no rule judged.  unjudged: the flags under
    which those faults would fail.  command: which held them.
    """

    measurements: Annotated[Measurements, HIDDEN]
    n_rules: Annotated[int, HIDDEN]
    findings: tuple[Finding, ...]
    notes: Annotated[
        tuple[str, ...], Key(about="What no rule judges: suspicions, and groups that a baseline does not have.")
    ] = ()
    unjudged: Annotated[tuple[FailOn, ...], HIDDEN] = ()
    command: Annotated[str, HIDDEN] = "check"

    @property
    @computed(after="rlcorr")
    def inputs(self) -> Inputs:
        """What was checked."""
        return self.measurements.inputs

    @property
    @computed(after="inputs")
    def status(self) -> Literal["passed", "failed"]:
        """The exit status in a word."""
        return "passed" if self.passed else "failed"

    @property
    @computed(
        "The verdict on the last step alone; left out where there are no steps, or it is too small.",
        after="counts",
        omit=True,
    )
    def last_step(self) -> LastStep | None:
        """What the findings say of the last step."""
        measurements = self.measurements
        if measurements.last_step is None:
            return None
        step, level = measurements.last_step
        of_step = [finding for finding in self.findings if finding.key == {measurements.column: step}]
        failed, warned = (
            tuple(dict.fromkeys(finding.metric for finding in of_step if finding.status == status))
            for status in ("fail", "warn")
        )
        return LastStep(step=step, level=level, failed=failed, warned=warned)

    @property
    def passed(self) -> bool:
        """Whether no rule that fails is broken."""
        return not self.counts["failed"]

    @property
    @computed("The rules, and how many findings failed, warned and passed.", after="status")
    def counts(self) -> CheckCounts:
        """The number of rules, and how many findings failed, warned and passed."""
        statuses = [finding.status for finding in self.findings]
        failed, warned, passed = (statuses.count(status) for status in ("fail", "warn", "ok"))
        return {"rules": self.n_rules, "failed": failed, "warned": warned, "passed": passed}

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self.counts.items())
        return f"<Checked of {of_inputs(self.inputs)}: {self.status}, {counts}>"


def measurements_of(report: Report) -> Measurements:
    """A report's numbers; under a profile the peer's names stand beside the canonical ones."""
    steps = report.by_step
    judged = [step for step in steps if is_judged(step)]
    groups = () if report.follows_steps and report.groups is steps else report.groups
    followed = judged if groups is not steps else []
    last: tuple[Any, Level] | None = None
    if steps and is_judged(steps[-1]):
        (step,) = steps[-1].plain_key.values()
        last = step, report.verdict_on(steps[-1]).level
    small = len(steps) - len(judged)
    return Measurements(
        inputs=report.inputs,
        sections=(
            *(_section(group) for group in (report.whole, *groups)),
            *(_section(step, is_followed=True) for step in followed),
        ),
        situation=report.situation,
        column=next(iter(steps[0].key)) if steps else "",
        last_step=last,
        faults=faults(report.anomalies, report.impossible),
        cause=_cause(report.cause),
        notes=(*report.search_notes, *([small_steps(small, len(steps))] if small and groups is not steps else [])),
    )


def _section(group: Group, *, is_followed: bool = False) -> Section:
    return Section(group.plain_key, {**group.metrics, **group.values, **group.objective}, is_followed)


def faults(anomalies: Iterable[AnomalyFinding], impossible: Impossible | None) -> tuple[Fault, ...]:
    """A fault for a value that cannot be and for each anomaly: numbers that pass may yet mean nothing."""
    of_values: tuple[Fault, ...] = ()
    if impossible is not None:
        low, high = impossible.interval
        value = f"{impossible.metric} {impossible.value:.3f} ({low:.3f} .. {high:.3f})"
        of_values = (Fault(name=impossible.metric, evidence=f"{value} cannot be: {impossible.proves}."),)
    return of_values + tuple(
        Fault(
            name=anomaly.name,
            evidence=f"{anomaly.name} in {basename(anomaly.path)}: {anomaly.evidence.rstrip('.')}.",
            fix=anomaly.fix,
        )
        for anomaly in anomalies
    )


def _cause(cause: CauseFinding | None) -> Fault | None:
    """Its headline and advice, where it is to be fixed; of staleness, say, rules tell how far it went."""
    if cause is None or not CAUSES[cause.cause].is_fault:
        return None
    return Fault(name=cause.cause, evidence=f"{cause.cause}: {cause.headline}.", fix=cause.advice)


def unjudged_warnings(faults: Iterable[Fault]) -> tuple[str, ...]:
    """A note for each fault that no rule judges."""
    return tuple(f"? {fault.evidence} {fault.fix}".rstrip() for fault in faults)


def failures(faults: Iterable[Fault]) -> tuple[Finding, ...]:
    """The faults as findings that fail."""
    return tuple(
        Finding(
            key={},
            metric=fault.name,
            value=None,
            rule="absent",
            severity="fail",
            status="fail",
            fix=fault.fix or None,
            message=fault.evidence,
        )
        for fault in faults
    )


_APART = ("token_ess", "token_tv")
_FLAG_NEEDS: Mapping[FailOn, tuple[str, ...]] = {
    "moved": ("advantage_shift", "advantage_shift_se"),
    "far": _APART,
    "outliers": _APART,
}
"""Flag -> what it is told by; without a number for the last, nobody can tell it."""
_FLAG_HINTS: Mapping[FailOn, str] = {
    "moved": "It takes the dump's advantages (--map advantages=COLUMN): name the dump itself, or a report of one that "
    "has them.",
}
_FLAG_MEANINGS = {
    "moved": f"the policies earn differently, which is staleness (advantage_shift beyond {MOVED:g} and {ERRORS:g} "
    "standard errors)",
    "far": f"too far apart for any correction to be safe (token_ess below {USABLE_TOKEN_ESS:g}, or token_tv above "
    f"{FAR_TOKEN_TV:g})",
    "outliers": f"a few tokens carry the gap (token_ess below {USABLE_TOKEN_ESS:g} at a token_tv below "
    f"{FEW_TOKENS_TV:g})",
}
_FLAG_FIXES = {
    "moved": "Sync the weights to the rollout engine more often; `rlcorr diagnose DUMP` shows the evidence.",
    "far": "Find the cause of the gap first; `rlcorr compare DUMP` shows what each correction would leave.",
    "outliers": "Zero or drop these tokens; `rlcorr inspect DUMP --worst 5` shows them.",
}


def flag_findings(flag: FailOn, sections: Iterable[Section]) -> list[Finding]:
    """A finding for each section, which fails where the flag holds; of steps that nobody asked for where they have the
    data."""
    needed = _FLAG_NEEDS[flag]
    return [
        _finding(flag, section)
        for section in sections
        if not section.is_followed or all(section.values.get(name) is not None for name in needed)
    ]


def cause_findings(dump: DiagnosedDump) -> list[Finding]:
    """A finding for the dump and each group, which fails where a cause other than noise is named."""
    return [_cause_finding(dump, group) for group in (dump.whole, *dump.groups)]


def _cause_finding(dump: DiagnosedDump, group: DiagnosedGroup) -> Finding:
    diagnosis, key = group.diagnosis, plain_key(group.key)
    voiding = dump.voiding if group is dump.whole else None
    if voiding is not None:
        return _of_cause(key, "fail", f"{voiding.name}: {voiding.evidence.rstrip('.')}.", voiding.fix)
    cause = diagnosis.cause
    if cause is None:
        return _of_cause(key, "ok", f"cause is absent: {diagnosis.conclusion}")
    bound = "at least" if cause.bound == "at_least" else "at most"
    what = f"{cause.headline}, {bound} {100 * cause.share:.0f} % of the gap."
    if cause.cause == NOISE:
        return _of_cause(key, "ok", f"cause is absent: {what}")
    return _of_cause(key, "fail", f"{cause.cause}: {what}", cause.advice)


def _of_cause(key: Mapping[str, Any], status: Status, message: str, fix: str | None = None) -> Finding:
    return _absent("cause", key, status, message=message, fix=fix)


def _absent(name: str, key: Mapping[str, Any], status: Status, *, message: str, fix: str | None) -> Finding:
    """That something is absent, or not."""
    return Finding(
        key=key,
        metric=name,
        value=None,
        rule="absent",
        severity="fail",
        status=status,
        fix=fix,
        message=message,
    )


def _finding(flag: FailOn, section: Section) -> Finding:
    needs = _FLAG_NEEDS[flag]
    lacking = [name for name in needs if name not in section.values]
    if lacking:
        raise DataError(
            f"--fail-on {flag} looks at {lacking[0]}, which the report does not have.",
            _FLAG_HINTS.get(flag, "Measure the dump again: name the dump itself, or a report of this release."),
        )
    values = {name: section.values[name] for name in needs}
    if values[needs[-1]] is None:  # as of a rule, what nobody can judge does not pass
        return _of(flag, section, "fail", f"{flag} has no data.")
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in values.items())
    # The other flags are of other numbers.
    if flag in flags_of(values):
        return _of(flag, section, "fail", f"{flag}: {_FLAG_MEANINGS[flag]}: {numbers}.")
    return _of(flag, section, "ok", f"{flag} is absent: {numbers}.")


def _of(flag: FailOn, section: Section, status: Status, message: str) -> Finding:
    return _absent(flag, section.key, status, message=message, fix=_FLAG_FIXES[flag])


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
