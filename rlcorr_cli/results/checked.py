"""What `check` judges (`Measurements`: the numbers of a report), and what came of it (`Checked`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os.path import basename
from typing import Annotated, Literal

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.records import HIDDEN, Form, Key, Output, computed
from rlcorr_cli.results.groups import Inputs
from rlcorr_cli.results.impossible import Impossible
from rlcorr_cli.results.judge import Finding, Section
from rlcorr_cli.results.policy import FailOn
from rlcorr_cli.results.remedies import Situation
from rlcorr_cli.results.report import Report


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something wrong with the data: its name, the sentence that shows it, and what to do; empty where that says it."""

    name: str
    evidence: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The numbers of a dump, just measured or saved.

    sections: the whole dump, then its groups.  situation: what remedies depend
    on.  faults: what is wrong with the data, whatever their numbers are.  cause: why the policies differ, where
    that is a fault to be fixed.  notes: on what of the dump was not read.
    """

    inputs: tuple[Input, ...]
    sections: tuple[Section, ...]
    situation: Situation
    faults: tuple[Fault, ...] = ()
    cause: Fault | None = None
    notes: tuple[str, ...] = ()


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
        return f"<Checked: {self.status}, {counts}>"


def measurements_of(report: Report) -> Measurements:
    """A report's numbers; under a profile the peer's names stand beside the canonical ones."""
    return Measurements(
        inputs=report.inputs,
        sections=tuple(
            Section(group.plain_key, {**group.metrics, **group.values, **group.objective})
            for group in (report.whole, *report.groups)
        ),
        situation=report.situation,
        faults=faults(report.anomalies, report.impossible),
        cause=_cause(report.cause),
        notes=report.search_notes,
    )


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


def doubts(faults: Iterable[Fault]) -> tuple[str, ...]:
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
