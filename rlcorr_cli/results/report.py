"""A Report: everything `analyze` measured, as plain values; text, JSON and other forms render it.

Its conclusions (`health`, `verdict`, `onset`, `trends`) are computed from its numbers when they are asked for, by the
rules it carries: another set of rules, through `dataclasses.replace`, changes all of them.  `to_dict` is the stable
JSON form; `schema` changes when a key changes meaning.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlcorr_cli import __version__
from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.errors import plural
from rlcorr_cli.plans.plan import Bounds, Plan
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.results.clusters import Clusters
from rlcorr_cli.results.impossible import Impossible
from rlcorr_cli.results.judge import Finding, Section, judge
from rlcorr_cli.results.objective import ObjectiveReport
from rlcorr_cli.results.remedies import Situation, advised
from rlcorr_cli.results.rule import Rule
from rlcorr_cli.results.rule_defaults import RULES
from rlcorr_cli.results.suggest import GeometricBounds, SuggestedBounds
from rlcorr_cli.results.verdict import Onset, Verdict, onset, verdict
from rlcorr_cli.totals.binned import BinnedTotals, histogram_to_list
from rlcorr_cli.totals.families import Value
from rlcorr_cli.totals.histogram import HISTOGRAM_RELATIVE_ERROR, Histogram

if TYPE_CHECKING:
    import polars

    from rlcorr_cli.results.run_totals import RunTotals
    from rlcorr_cli.results.trends import Trends

SCHEMA = 1
_WITHIN = f"{100 * HISTOGRAM_RELATIVE_ERROR:.1f} %"
QUANTILE_NOTE = f"Quantiles of the log-ratio come from a histogram: within {_WITHIN} of their own size."


def plain_key(key: Mapping[str, Any]) -> dict[str, Any]:
    """A group's key as JSON has it: infinities as text."""
    return {name: _json(value) for name, value in key.items()}


@dataclass(frozen=True)
class GroupCurves:
    """What curves of one group are drawn from: its log-ratios, and its bins by surprise, position and length."""

    log_ratios: Histogram
    bins: BinnedTotals


_NONE: Mapping[str, Any] = {}
"""What most of 100,000 groups have none of, once for all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One group of rows, or the whole dump with an empty key.

    key: column -> value, of which NaN is the text 'NaN'.  values: canonical metrics by name.  peer_metrics: the
    profile's, None without a profile.  objective: an objective's numbers by full name, none without one.  intervals:
    95 %, by metric, where the group was resampled: with pictures, of up to 200 groups.  curves: what those of the group
    alone are drawn from, if asked for.
    """

    key: Mapping[str, Any]
    counts: Mapping[str, int]
    values: Mapping[str, Value]
    peer_metrics: Mapping[str, Value] | None = None
    objective: Mapping[str, Value] = field(default_factory=lambda: _NONE)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=lambda: _NONE, repr=False)
    curves: "GroupCurves | None" = field(default=None, repr=False)

    @property
    def metrics(self) -> Mapping[str, Value]:
        """The metrics under the names of the report's profile."""
        return self.values if self.peer_metrics is None else self.peer_metrics

    @property
    def all_metrics(self) -> dict[str, Value]:
        """With the objective's numbers."""
        return {**self.metrics, **self.objective}

    @property
    def plain_key(self) -> dict[str, Any]:
        """The key as JSON has it."""
        return plain_key(self.key)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of a group."""
        objective = {"objective": dict(self.objective)} if self.objective else {}
        intervals = {"intervals": {name: list(ends) for name, ends in self.intervals.items()}} if self.intervals else {}
        metrics = dict(self.metrics.items())
        return {"key": self.plain_key, "counts": dict(self.counts), "metrics": metrics, **intervals, **objective}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole dump first, then its groups; rules are applied to canonical values whatever the profile.

    problems: class -> how many rows were left out for it (`rows`), and where the `first` is.
    anomalies: of whole files, from their first rows.  impossible: a value that proves a column wrong.
    suggestions: looser bounds for each rejection that takes too much.  geometric: bounds
    that geometric rejection would take to keep nine sequences in ten.  pictures: binned totals, where they were
    counted.  search_notes: those of the notes that say what of the dump is not read.  totals: what it was made of,
    where that was kept.  objective: its losses and coefficients, where one was asked for.  cause: the likely cause
    of the gap, told from a sample of the rows; None where none is named.  clusters: what intervals were drawn of;
    None where nothing was.
    """

    inputs: tuple[Input, ...]
    plan: Plan
    profile: str
    whole: Group
    intervals: Mapping[str, tuple[float, float]]
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    log_ratios: Histogram
    problems: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    anomalies: tuple[AnomalyFinding, ...] = ()
    seconds: float = 0.0
    pictures: BinnedTotals | None = None
    impossible: Impossible | None = None
    suggestions: tuple[SuggestedBounds, ...] = ()
    geometric: GeometricBounds | None = None
    rules: tuple[Rule, ...] = RULES
    search_notes: tuple[str, ...] = ()
    totals: "RunTotals | None" = None
    objective: ObjectiveReport | None = None
    cause: CauseFinding | None = None
    clusters: Clusters | None = None

    @cached_property
    def health(self) -> tuple[Finding, ...]:
        """The findings of the rules on the whole dump."""
        return advised(self.findings(self.whole), self.situation)

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """Names of what was found in the data that voids the numbers: anomalies of files, a value that cannot be."""
        found_in_files = tuple(anomaly.name for anomaly in self.anomalies if anomaly.voids)
        return found_in_files + (() if self.impossible is None else (self.impossible.metric,))

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
    def situation(self) -> Situation:
        """What remedies depend on."""
        rejects_already = any((r.statistic, r.scope) == ("ratio", "seq_mean") for r in self.plan.rejections)
        # A framework's own config has no --rs, and a plan that rejects so already has its own suggested bounds.
        if self.geometric is None or rejects_already or self.profile != "canonical":
            return Situation(plan=self.plan, causes=self.faults, is_far=self.verdict.level == "far")
        bounds = Bounds(low=self.geometric.low, high=self.geometric.high)
        return Situation(
            plan=self.plan,
            causes=self.faults,
            geometric=bounds,
            geometric_kept=self.geometric.kept_fraction,
            is_exact=self.geometric.exact,
            is_far=self.verdict.level == "far",
        )

    def findings(self, group: Group) -> tuple[Finding, ...]:
        """The findings of the rules on the whole dump or on one group."""
        return judge([Section(group.plain_key, group.values)], self.rules)

    @cached_property
    def verdict(self) -> Verdict:
        """How close the policies are, and which weights that leaves usable."""
        return verdict(
            self.whole.counts,
            self.whole.values,
            health=self.findings(self.whole),
            plan=self.plan,
            causes=self.causes,
            clusters=self.clusters,
        )

    @cached_property
    def onset(self) -> Onset | None:
        """Where along the groups a drift begins."""
        return onset([group.key for group in self.groups], [group.values.get("k3_kl") for group in self.groups])

    @cached_property
    def trends(self) -> "Trends | None":
        """What the binned totals show; None where they were not counted, which takes a third longer."""
        if self.pictures is None:
            return None
        from rlcorr_cli.results.trends import trends

        return trends(self.pictures, normalizes=self.plan.normalizes)

    def __repr__(self) -> str:
        paths = self.inputs[0].path if len(self.inputs) == 1 else f"{len(self.inputs)} files"
        counts = self.whole.counts
        numbers = f"{plural(counts['sequences'], 'sequence')}, {plural(counts['tokens'], 'token')}"
        return f"<Report of {paths!r}: {numbers}, plan {self.plan.name}, {self.verdict.level}>"

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        from rlcorr_cli.results import html

        return html.table(
            title=repr(self)[1:-1],
            metrics={name: self.whole.values.get(name) for name in html.KEY_METRICS},
            findings=[finding for finding in self.health if finding.broken],
        )

    def to_polars(self) -> "polars.DataFrame":
        """A row per group (the whole dump, without groups): its key, its counts, its metrics."""
        import polars

        groups = self.groups or (self.whole,)
        of_floats = {name for group in groups for name, value in group.key.items() if isinstance(value, float)}
        numbers = [{name: math.nan for name in of_floats if group.key[name] == "NaN"} for group in groups]
        rows = [{**g.key, **nan, **g.counts, **g.all_metrics} for g, nan in zip(groups, numbers, strict=True)]
        return polars.DataFrame(rows, infer_schema_length=None)

    def to_dict(self, *, groups: bool = True) -> dict[str, Any]:
        """The JSON report.  groups: whether it holds them; they may be many, and each has its own `to_dict`."""
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "inputs": [source.to_dict() for source in self.inputs],
            "plan": self.plan.to_dict(),
            "profile": self.profile,
            "verdict": self.verdict.to_dict(),
            "cause": None if self.cause is None else self.cause.to_dict(),
            "onset": None if self.onset is None else self.onset.to_dict(),
            "counts": dict(self.whole.counts),
            "clusters": None if self.clusters is None else self.clusters.to_dict(),
            "metrics": dict(self.whole.metrics),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "groups": [group.to_dict() for group in self.groups] if groups else [],
            "health": [finding.to_health() for finding in self.health],
            "trends": None if self.trends is None else self.trends.to_dict(),
            "problems": {name: dict(problem) for name, problem in self.problems.items()},
            "suspicions": [anomaly.to_dict() for anomaly in self.anomalies],
            "impossible": self.impossible and {**asdict(self.impossible), "interval": list(self.impossible.interval)},
            "suggestions": [bounds.to_dict() for bounds in self.suggestions],
            "geometric": None if self.geometric is None else self.geometric.to_dict(),
            "notes": list(self.notes),
            "objective": None if self.objective is None else self.objective.to_dict(),
            **self._pictures(),
        }

    def _pictures(self) -> dict[str, Any]:
        """What `plot` needs beside the rest, where it was counted; under a profile the canonical values, too."""
        if self.pictures is None:
            return {}
        values = {} if self.profile == "canonical" else {"values": [dict(g.values) for g in (self.whole, *self.groups)]}
        return {"pictures": {**self.pictures.to_dict(), "log_ratios": histogram_to_list(self.log_ratios), **values}}


def _json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
