"""A Report: everything `analyze` measured, as plain values; text, JSON and other forms render it.

Its conclusions (`health`, `verdict`, `course`, `trends`) are computed from its numbers when they are asked for, by the
rules it carries: another set of rules, through `dataclasses.replace`, changes all of them.
"""

import math
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, Self

from rlcorr_cli.causes.diagnosis import CauseFinding, Impossible
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Bounds, Plan
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.reading.names import STEPS
from rlcorr_cli.records.fields import HIDDEN, Form, Key, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.course import BrokenRule, Course, broken_rules, course, judged_steps
from rlcorr_cli.results.groups import (
    Clusters,
    Counts,
    Group,
    Inputs,
    Intervals,
    Metrics,
    Suspicions,
    amount_words,
    of_inputs,
)
from rlcorr_cli.results.lags import LagLimit, Lags
from rlcorr_cli.results.objective import ObjectiveReport
from rlcorr_cli.results.rules import (
    BROKEN,
    RULES,
    Finding,
    Health,
    RemedyContext,
    Rule,
    Section,
    Status,
    judge,
    with_remedies,
    worst_first,
)
from rlcorr_cli.results.story import DataFault, Story
from rlcorr_cli.results.suggest import GeometricBounds, SuggestedBounds
from rlcorr_cli.results.verdict import StepVerdict, Verdict, refuses_sequences, verdict
from rlcorr_cli.totals.bins import (
    HISTOGRAM_RELATIVE_ERROR,
    BinnedTotals,
    Histogram,
    histogram_from_list,
    histogram_to_list,
)

if TYPE_CHECKING:
    import polars

    from rlcorr_cli.results.inspected import TokenRows
    from rlcorr_cli.results.saved_runs import RunTotals
    from rlcorr_cli.results.trends import Trends

_WITHIN = f"{100 * HISTOGRAM_RELATIVE_ERROR:.1f}%"
QUANTILE_NOTE = f"Quantiles of the log-ratio come from a histogram: within {_WITHIN} of their own size."


def _trends() -> Any:
    from rlcorr_cli.results.trends import Trends

    return Trends | None


Buckets = tuple[tuple[int, ...], tuple[int, ...]]
"""Places and counts of a histogram."""


@frozen(kw_only=True)
class Pictures(Record):
    """Counts in bins, for `rlcorr plot report.json`.  values: the canonical metrics beside a profile's."""

    counts: Mapping[str, Mapping[str, tuple[int, ...]]]
    spread: Mapping[str, tuple[tuple[float, ...], ...]]
    histograms: Mapping[str, Buckets]
    log_ratios: Buckets
    values: Annotated[tuple[Metrics, ...], Key(omit=True), Form(least=1)] = ()


@frozen(kw_only=True)
class Report(Output):
    """What `analyze` measured: the whole dump first, then its groups.

    Rules are applied to canonical values whatever the profile.  problems: class -> how many rows were left out for
    it (`rows`), and where the `first` is.  suspicions: of whole files, from their first rows.  impossible: a value
    that proves a column wrong.  suggestions: looser bounds for each rejection that takes too much.  geometric:
    bounds that geometric rejection would take to keep nine sequences in ten.  objective: its losses and
    coefficients, where one was asked for.  cause: the likely cause of the gap, told from a sample of the rows; null
    where none is named.  clusters: what intervals were drawn of; null where nothing was.  story: what is to be told
    of the dump first.  follows_steps: whether the groups are steps, or there are steps beside them, without having
    been asked for.  steps: the steps, where the groups are of other columns.  lags: where rows are of several.
    ranges: small steps that are held to rules together with their neighbours.
    """

    OUTPUT = "report"
    inputs: Inputs
    plan: Plan
    profile: str
    story: Story = field(default_factory=Story)
    cause: CauseFinding | None = None
    clusters: Clusters | None
    intervals: Intervals
    groups: tuple[Group, ...]
    follows_steps: Annotated[bool, Key(omit=True)] = False
    steps: Annotated[tuple[Group, ...], Key(omit=True)] = ()
    ranges: Annotated[tuple[Group, ...], Key(omit=True)] = ()
    problems: Problems
    anomalies: Suspicions
    impossible: Impossible | None = None
    suggestions: tuple[SuggestedBounds, ...] = ()
    geometric: GeometricBounds | None = None
    notes: tuple[str, ...]
    objective: ObjectiveReport | None = None
    lags: Annotated[Lags | None, Key(omit=True)] = None

    whole: Annotated[Group, HIDDEN]
    log_ratios: Annotated[Histogram, HIDDEN]
    pictures: Annotated[BinnedTotals | None, HIDDEN] = None
    """Binned totals, where they were counted."""
    rules: Annotated[tuple[Rule, ...], HIDDEN] = RULES
    search_notes: Annotated[tuple[str, ...], HIDDEN] = ()
    """Those of the notes that say what of the dump is not read."""
    totals: Annotated["RunTotals | None", HIDDEN] = None
    """What it was made of, where that was kept."""
    everything: Annotated[bool, HIDDEN] = False
    """Whether its text on a terminal has all numbers and remedies, not only what a person acts on."""
    worst_rows: Annotated["TokenRows | None", HIDDEN] = None
    """Its worst rows token by token, where they were sought."""
    seconds: Annotated[float, HIDDEN] = 0.0

    @property
    @computed(after="course")
    def counts(self) -> Counts:
        """Of the whole dump."""
        return self.whole.counts

    @property
    @computed(after="clusters")
    def metrics(self) -> Metrics:
        """Of the whole dump."""
        return self.whole.metrics

    @property
    @computed("The default rules, or those of a file, on the whole dump.", name="health", after="groups")
    def judged(self) -> tuple[Health, ...]:
        """The findings of the rules as JSON has them."""
        return tuple(finding.health for finding in self.health)

    @cached_property
    def health(self) -> tuple[Finding, ...]:
        """The findings of the rules on the whole dump."""
        return with_remedies(self.findings(self.whole), self.situation)

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """Names of what was found in the data that voids the numbers: anomalies of files, a value that cannot be."""
        found_in_files = tuple(anomaly.name for anomaly in self.anomalies if anomaly.voids)
        cause = None if self.cause is None or self.cause.is_minor else self.cause
        if self.impossible is None or (cause is not None and self.impossible.follows_from(cause.cause)):
            return found_in_files
        return (*found_in_files, self.impossible.metric)

    @property
    def other_faults(self) -> tuple[DataFault, ...]:
        """The story's faults beside the likely cause: more of them, or one that makes little of the gap, but a mean
        ratio that cannot be."""
        likely = None if self.cause is None else self.cause.cause
        return tuple(fault for fault in self.story.faults if fault.name in CAUSES and fault.name != likely)

    @property
    def faults(self) -> tuple[str, ...]:
        """The causes, and the fault that explains the gap: to be fixed before bounds and weights are chosen."""
        is_fault = self.cause is not None and CAUSES[self.cause.cause].is_fault
        return (*self.causes, *([self.cause.cause] if self.cause is not None and is_fault else []))

    @property
    def advised_bounds(self) -> tuple[SuggestedBounds, ...]:
        """The suggestions as advice: like default remedies left out where a cause is known that voids the numbers, and
        where the policies are farther apart than a correction can repair."""
        return () if self.faults or self.verdict.level == "far" else self.suggestions

    @cached_property
    def situation(self) -> RemedyContext:
        """What remedies depend on."""
        rejects_already = any((r.statistic, r.scope) == ("ratio", "seq_mean") for r in self.plan.rejections)
        plain = RemedyContext(
            plan=self.plan,
            causes=self.faults,
            told=self.story.to_fix,
            is_far=self.verdict.level == "far",
            sequence=self.verdict.usable.sequence,
        )
        # A framework's own config has no --rs, and a plan that rejects so already has its own suggested bounds.
        if self.geometric is None or rejects_already or self.profile != "canonical":
            return plain
        bounds = Bounds(low=self.geometric.low, high=self.geometric.high)
        return replace(
            plain, geometric=bounds, geometric_kept=self.geometric.kept_fraction, is_exact=self.geometric.exact
        )

    def findings(self, group: Group) -> tuple[Finding, ...]:
        """The findings of the rules on the whole dump or on one group."""
        return judge([Section(group.plain_key, group.values)], self.rules)

    @cached_property
    @computed("Null without steps, and where the last is too small to be judged.", after="profile")
    def last_step(self) -> StepVerdict | None:
        """The verdict on the last step alone, which the next one will be like."""
        judged, steps = self.judged_steps, self.by_step
        if not steps or not judged or judged[-1].steps[-1] != steps[-1].steps[-1]:
            return None
        (step,) = judged[-1].plain_key.values()

        def refuses(step: Group) -> bool:
            return any(finding.broken and refuses_sequences(finding.metric) for finding in self.findings(step))

        breaking = [*takewhile(refuses, reversed(judged))]
        since = breaking[-1].steps[0] if breaking else None
        return StepVerdict(step=step, since=since, verdict=self.verdict_on(judged[-1]))

    @cached_property
    @computed(after="last_step")
    def verdict(self) -> Verdict:
        """How close the policies are over the whole dump, and which weights that leaves usable in each of its steps."""
        return verdict(
            self.whole.counts,
            self.whole.values,
            health=self.findings(self.whole),
            plan=self.plan,
            causes=self.causes,
            clusters=self.clusters,
            broken_in_steps=() if self._course is None else self._course.broken_metrics,
        )

    def verdict_on(self, group: Group) -> Verdict:
        """The verdict on one group alone."""
        findings = self.findings(group)
        return verdict(
            group.counts,
            group.values,
            health=findings,
            plan=self.plan,
            causes=self.causes,
            broken_in_steps=[finding.metric for finding in findings if finding.broken],
        )

    @property
    def by_step(self) -> tuple[Group, ...]:
        """The steps, in order: two or more, or none."""
        if self.steps:
            return self.steps
        is_step = len(self.groups) > 1 and len(self.groups[0].key) == 1 and next(iter(self.groups[0].key)) in STEPS
        return self.groups if is_step else ()

    @cached_property
    def judged_steps(self) -> tuple[Group, ...]:
        """The steps that are large enough to be held to rules, and the ranges of small ones, in order; every step where
        it was asked for as a group."""
        if self.groups is self.by_step and not self.follows_steps:
            return self.by_step
        return judged_steps(self.by_step, self.ranges)

    @cached_property
    def _judged_for(self) -> Mapping[Any, Group]:
        """Step -> what is held to rules for it: the step itself, or the range of small steps that it is in."""
        return {step: judged for judged in self.judged_steps for step in judged.steps}

    def findings_on(self, group: Group) -> tuple[Finding, ...]:
        """What rules find on a group; on a small step those of the range that it is judged in, none without one."""
        if not self.by_step or len(group.key) != 1 or next(iter(group.key)) not in STEPS:
            return self.findings(group)
        judged = self._judged_for.get(*group.plain_key.values())
        return () if judged is None else self.findings(judged)

    @cached_property
    @computed(after="cause")
    def course(self) -> Course | None:
        """How the metrics go from step to step; null without two steps."""
        found = self._course
        return None if found is None else replace(found, broken=self._with_remedies(found.broken))

    @cached_property
    def _course(self) -> Course | None:
        """The same before the situation is known, on which remedies depend."""
        unit = "sequence" if self.clusters is None else self.clusters.unit
        return course(self.by_step, self.judged_steps, self.rules, known=self.whole.values, unit=unit)

    def _with_remedies(self, broken: tuple[BrokenRule, ...]) -> tuple[BrokenRule, ...]:
        remedies = [self.situation.remedy(each.metric, each.remedy) or "" for each in broken]
        return tuple(replace(each, remedy=remedy) for each, remedy in zip(broken, remedies, strict=True))

    @cached_property
    @computed(after="lags", omit=True)
    def lag_limit(self) -> LagLimit | None:
        """Up to which lag the rules hold; null where that cannot be told."""
        return None if self.lags is None else self.lags.limit(self.rules)

    @cached_property
    def broken_in_groups(self) -> tuple[BrokenRule, ...]:
        """The rules that groups break, each with the groups that break it, those that fail first."""
        of_steps = () if self.course is None else self.course.broken
        of_groups = () if self.by_step is self.groups else self._with_remedies(broken_rules(self.groups, self.rules))
        return tuple(sorted((*of_steps, *of_groups), key=lambda broken: BROKEN.index(broken.status)))

    @cached_property
    def broken(self) -> Mapping[str, Status]:
        """The metrics whose rules are broken, by the whole dump or by groups, each with what its rule does to a gate;
        a rule is counted once, wherever it is broken."""
        return {each.metric: each.status for each in (*worst_first(self.health), *self.broken_in_groups)}

    @cached_property
    @computed(
        "Null where pictures were not counted, which takes a third longer: `analyze --json` counts them for `-o`, "
        "Python's `analyze` for `pictures`.",
        after="health",
        type=_trends,
    )
    def trends(self) -> "Trends | None":
        """What the binned totals show; None where they were not counted, which takes a third longer."""
        if self.pictures is None:
            return None
        from rlcorr_cli.results.trends import trends

        return trends(self.pictures, normalizes=self.plan.normalizes)

    def __repr__(self) -> str:
        last = "" if self.last_step is None else f"step {self.last_step.step} {self.last_step.verdict.level}, all "
        words = f"{amount_words(self.whole.counts)}, plan {self.plan.name}, {last}{self.verdict.level}"
        return f"<Report of {of_inputs(self.inputs)}: {words}>"

    def to_polars(self) -> "polars.DataFrame":
        """A row per group (the whole dump, without groups): its key, its counts, its metrics."""
        import polars

        groups = self.groups or (self.whole,)
        of_floats = {name for group in groups for name, value in group.key.items() if isinstance(value, float)}
        numbers = [{name: math.nan for name in of_floats if group.key[name] == "NaN"} for group in groups]
        rows = [{**g.key, **nan, **g.counts, **g.all_metrics} for g, nan in zip(groups, numbers, strict=True)]
        return polars.DataFrame(rows, infer_schema_length=None)

    @property
    @computed(name="pictures", after="objective", omit=True)
    def pictured(self) -> Pictures | None:
        """What `plot` needs beside the rest, where it was counted; under a profile the canonical values, too."""
        if self.pictures is None:
            return None
        groups = () if self.profile == "canonical" else (self.whole, *self.groups, *self.steps, *self.ranges)
        buckets, counts = histogram_to_list(self.log_ratios)
        values = tuple(group.values for group in groups)
        return Pictures(**self.pictures.to_dict(), log_ratios=(tuple(buckets), tuple(counts)), values=values)

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """The report of what JSON has.  Its findings, verdict and trends are those of this release's rules on its
        numbers; under a profile the canonical values are empty where it was saved without binned totals."""
        objective, pictured = values.get("objective"), values.pop("pictured", None)
        named = {} if objective is None else objective.named_metrics
        whole = Group(key={}, counts=values.pop("counts"), values=values.pop("metrics"), objective=named)
        n_groups = len(values["groups"])
        n_steps = len(values.get("steps", ()))
        groups = [whole, *values.pop("groups"), *values.pop("steps", ()), *values.pop("ranges", ())]
        if named:
            groups = [replace(group, objective=group.objective or dict.fromkeys(named)) for group in groups]
        canonical = () if pictured is None else pictured.values
        if len(canonical) not in (0, len(groups)):
            raise ValueError(f"pictures.values: {len(canonical)} tables of {len(groups)}")
        if values["profile"] != "canonical":
            tables = canonical or ({},) * len(groups)
            groups = [replace(g, values=t, peer_metrics=g.values) for g, t in zip(groups, tables, strict=True)]
        whole = groups[0]
        for group in groups:
            if set(group.metrics) != set(whole.metrics) or set(group.values) != set(whole.values):
                raise ValueError(f"the group {dict(group.key)} has other metrics than the whole dump")
            if set(group.objective) != set(whole.objective):
                raise ValueError(f"the group {dict(group.key)} has other numbers of an objective than the whole dump")
        return super().of_keys(
            {
                **values,
                "whole": whole,
                "groups": tuple(groups[1 : 1 + n_groups]),
                "steps": tuple(groups[1 + n_groups : 1 + n_groups + n_steps]),
                "ranges": tuple(groups[1 + n_groups + n_steps :]),
                "log_ratios": Histogram.empty() if pictured is None else histogram_from_list(pictured.log_ratios),
                "pictures": None if pictured is None else BinnedTotals.from_dict(vars(pictured)),
            }
        )
