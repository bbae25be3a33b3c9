"""What `check` judges (`Measurements`: the numbers of a report), and what came of it (`Checked`).

What the dump's story tells is a finding like those of rules: a fault fails, other causes warn.  Beside that a check
may fail on flags of `compare`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from rlcorr_cli.causes.table import ANY_CAUSE
from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.records.fields import HIDDEN, Form, Key, Scalar, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.course import POOLED
from rlcorr_cli.results.groups import UNLISTED, Group, Inputs, of_inputs
from rlcorr_cli.results.policy import FLAGS, FailOn, Policy, apply
from rlcorr_cli.results.recommend import ERRORS, FAR_TOKEN_TV, FEW_TOKENS_TV, MOVED, USABLE_TOKEN_ESS, flags_of
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import Finding, RemedyContext, Section, Severity, Status, with_remedies, worst_first
from rlcorr_cli.results.story import Story
from rlcorr_cli.results.verdict import Level


@frozen(kw_only=True)
class Measurements:
    """The numbers of a dump, just measured or saved.

    sections: the whole dump, then its groups, then the steps that are held to rules, and ranges of them that are so
    together.  situation: what remedies depend on.  story: what is wrong with the data, whatever their numbers
    are.  column: of the steps.  ranges: the steps of each range, by its name.  last_step: the last of them, or the last
    range, and its level; None where it is too small.  others_names: names of numbers that no default rule is on, even
    if it names them so.  notes: on what of the dump was not read, or not judged.
    """

    inputs: tuple[Input, ...]
    sections: tuple[Section, ...]
    situation: RemedyContext
    story: Story = field(default_factory=Story)
    column: str = ""
    ranges: Mapping[Any, tuple[Scalar, ...]] = field(default_factory=dict[Any, tuple[Scalar, ...]])
    last_step: tuple[Any, Level] | None = None
    others_names: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


@frozen(kw_only=True)
class LastStep(Record):
    """The last step, or range of steps: how far apart its policies are, and the metrics whose rules it fails, and warns
    of."""

    step: Scalar
    level: Level
    failed: tuple[str, ...]
    warned: tuple[str, ...]


@frozen(kw_only=True)
class BaselineUpdate(Record):
    """What --update-baseline did: path: of the baseline; is_first: whether there was none before; written: whether
    there is one of this reading now, which there is where the check passed."""

    path: str
    is_first: bool
    written: bool


ABSENT = "absent"
"""The rule on a fault, or on a flag, in a word."""
ACCEPTED = "Accepted"
"""How the message of a fault begins that passes because it is accepted."""
CheckCounts = Annotated[Mapping[str, int], Form(name="check_counts", keys=("rules", "failed", "warned", "passed"))]


@frozen(kw_only=True)
class Checked(Output):
    """Measurements held to n_rules rules.

    not_judged: metrics with a rule, and with too few tail values to be held to it.
    notes: on what was not read, then what no rule judged.  baseline: what became of it, where it was to be updated.
    command: which held them.
    """

    OUTPUT = "check"
    measurements: Annotated[Measurements, HIDDEN]
    n_rules: Annotated[int, HIDDEN]
    findings: tuple[Finding, ...]
    not_judged: Annotated[
        tuple[str, ...], Key(about="Metrics whose rule needs more tail values than there are.", omit=True)
    ] = ()
    notes: Annotated[
        tuple[str, ...], Key(about="What no rule judges: suspicions, and groups that a baseline does not have.")
    ] = ()
    baseline: Annotated[BaselineUpdate | None, Key(about="With --update-baseline.", omit=True)] = None
    command: Annotated[str, HIDDEN] = "check"

    @property
    @computed(after="rlcorr")
    def inputs(self) -> Inputs:
        """What was checked."""
        return self.measurements.inputs

    @property
    @computed(after="story")
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
    @computed(after="inputs")
    def story(self) -> Story:
        """What is to be told of the dump first."""
        return self.measurements.story

    @property
    def accepted(self) -> tuple[str, ...]:
        """The faults and causes that were accepted."""
        return tuple(finding.metric for finding in self.findings if finding.message.startswith(f"{ACCEPTED}: "))

    @property
    @computed("The rules, and how many findings failed, warned and passed.", after="status")
    def counts(self) -> CheckCounts:
        """The number of rules, and how many findings failed, warned and passed."""
        statuses = [finding.status for finding in self.findings]
        failed, warned, passed = (statuses.count(status) for status in ("fail", "warn", "ok"))
        return {"rules": self.n_rules, "failed": failed, "warned": warned, "passed": passed}

    @property
    def broken(self) -> Mapping[tuple[str, str], Status]:
        """Each rule that is broken, as metric and range, with the worst that it does, wherever it is broken."""
        broken = [finding for finding in worst_first(self.findings) if finding.rule != ABSENT]
        return {(each.metric, each.rule): each.status for each in reversed(broken)}

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self.counts.items())
        return f"<Checked of {of_inputs(self.inputs)}: {self.status}, {counts}>"


def measurements_of(report: Report) -> Measurements:
    """A report's numbers; under a profile the peer's names stand beside the canonical ones."""
    steps = report.by_step
    judged = report.judged_steps
    groups = () if report.groups is steps else report.groups
    last = report.last_step
    ranges = {step: group.of_steps for group in report.ranges for step in group.key.values()}
    return Measurements(
        inputs=report.inputs,
        sections=(
            _section(replace(report.whole, intervals=report.intervals)),
            *(_section(group) for group in groups),
            *(_section(step, is_followed=report.follows_steps) for step in judged),
        ),
        situation=report.situation,
        column=next(iter(steps[0].key)) if steps else "",
        ranges=ranges,
        last_step=None if last is None else (last.step, last.verdict.level),
        story=report.story,
        notes=(
            *report.search_notes,
            *(note for note in report.notes if note in (POOLED, UNLISTED)),
            *(() if report.course is None else report.course.small),
        ),
    )


def check(measurements: Measurements, policy: Policy) -> Checked:
    """The dump's story, then every rule and limit of a policy on the measurements that it looks at."""
    rules = tuple(of for of in policy.rules if of.origin or of.rule.metric not in measurements.others_names)
    judged = apply(replace(policy, rules=rules), measurements.sections)
    findings = with_remedies(judged.findings, measurements.situation)
    if policy.strict:
        findings = tuple(replace(f, status="fail") if f.status == "warn" else f for f in findings)
    flags: list[FailOn] = [flag for flag in FLAGS if flag in policy.fail_on]
    of_flags = tuple(finding for flag in flags for finding in _flag_findings(flag, measurements.sections))
    return Checked(
        measurements=measurements,
        n_rules=judged.n_rules + len(flags),
        findings=(*_story_findings(measurements.story, policy), *of_flags, *findings),
        not_judged=judged.not_judged,
        notes=(*measurements.notes, *judged.notes),
    )


def _section(group: Group, *, is_followed: bool = False) -> Section:
    values = {**group.metrics, **group.values, **group.objective}
    return Section(group.plain_key, values, is_followed, group.intervals)


def _story_findings(story: Story, policy: Policy) -> tuple[Finding, ...]:
    """What a dump's story does to a gate: a fault fails, a warning warns (or fails, where causes are to), and what is
    accepted passes and says so.  Nothing of a story that tells of nothing."""
    found = [(fault.name, fault.what, fault.do, True) for fault in story.faults]
    if story.effect == "warning":
        fails = not policy.fail_on.isdisjoint((ANY_CAUSE, story.first))
        found.append((story.first, story.headline, next(iter(story.do), ""), fails))
    return tuple(_of_story(name, what, do, policy, fails=fails) for name, what, do, fails in found)


def _of_story(name: str, what: str, do: str, policy: Policy, *, fails: bool) -> Finding:
    if name in policy.accept:
        return _absent(name, {}, "ok", message=f"{ACCEPTED}: {what}", fix=None)
    status: Severity = "fail" if fails or policy.strict else "warn"
    return replace(_absent(name, {}, status, message=what, fix=do or None), severity=status)


_APART = ("token_ess", "token_tv")
_FLAG_NEEDS: Mapping[FailOn, tuple[str, ...]] = {
    "moved": ("advantage_shift", "advantage_shift_se"),
    "far": _APART,
    "outliers": _APART,
}
"""Flag -> what it is told by; without a number for the last, nobody can tell it."""
_FLAG_HINTS: Mapping[FailOn, str] = {
    "moved": "It needs the dump's advantages (⟦map advantages=COLUMN⟧): name the dump itself, or a report of one that "
    "has them."
}
_FLAG_MEANINGS = {
    "moved": f"the policies earn different rewards, which is staleness (advantage_shift beyond {MOVED:g} and "
    f"{ERRORS:g} standard errors)",
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


def _flag_findings(flag: FailOn, sections: Iterable[Section]) -> list[Finding]:
    """A finding for each section, which fails where the flag holds; of steps that nobody asked for where they have the
    data."""
    needed = _FLAG_NEEDS[flag]
    return [
        _finding(flag, section)
        for section in sections
        if not section.is_followed or all(section.values.get(name) is not None for name in needed)
    ]


def _absent(name: str, key: Mapping[str, Any], status: Status, *, message: str, fix: str | None) -> Finding:
    """That something is absent, or not."""
    return Finding(
        key=key, metric=name, value=None, rule=ABSENT, severity="fail", status=status, fix=fix, message=message
    )


def _finding(flag: FailOn, section: Section) -> Finding:
    needs = _FLAG_NEEDS[flag]
    lacking = [name for name in needs if name not in section.values]
    if lacking:
        raise DataError(
            f"⟦fail_on {flag}⟧ looks at {lacking[0]}, which the report does not have.",
            _FLAG_HINTS.get(flag, "Measure the dump again: name the dump itself, or a report of this release."),
        )
    values = {name: section.values[name] for name in needs}
    numbers = ", ".join(f"{name} {'none' if value is None else f'{value:.3g}'}" for name, value in values.items())
    status: Status = "fail"
    if values[needs[-1]] is None:  # as of a rule, what nobody can judge does not pass
        message = f"{flag} has no data."
    elif flag in flags_of(values):  # the other flags are of other numbers
        message = f"{flag}: {_FLAG_MEANINGS[flag]}: {numbers}."
    else:
        status, message = "ok", f"{flag} is absent: {numbers}."
    return _absent(flag, section.key, status, message=message, fix=_FLAG_FIXES[flag])
