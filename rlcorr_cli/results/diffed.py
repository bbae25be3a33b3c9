"""What differs between dumps (`Diff`): the changes of metrics from the first, tested on paired replicates, as values.

All were resampled by draws that depend on the seed and on the cluster alone, so that one which two hold has the same
weight in either, and the difference of the two's replicates is a paired bootstrap.  Rows of one alone add noise of
their own.  A metric that is positive in both, and in all replicates, changes by a factor (its log is tested), any other
by a difference.  t = change / standard deviation of the replicates' changes, of Student's distribution with the
clusters of the smaller dump less one as its degrees of freedom; Holm over the family, in all groups of all dumps.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import shown_at
from rlcorr_cli.metrics.diagnostics import diagnostic_draws
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS, t_probability, t_quantile
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.fields import HIDDEN, Form, Key, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.bits import Bits
from rlcorr_cli.results.checked import Checked, Measurements
from rlcorr_cli.results.groups import Clusters, Counts, GroupKey, Inputs, of_inputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import Finding, RemedyContext, Section, Severity
from rlcorr_cli.results.story import Story
from rlcorr_cli.results.usable import Usable
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.measured import WholeDump
from rlcorr_cli.totals.row_keys import in_both
from rlcorr_cli.totals.totals import Replicates

FAMILY = shown_at("diff")
"""What is tested: six ways of being apart that a change of engine moves."""
LEVEL = 0.05
"""Of the family: how often it may find a change where there is none."""
ROUNDING = 1e-9
"""Where k3_kl is below this in both, the two policies are equal but for rounding, which is not compared."""
LARGEST_FACTOR = 1000.0
"""By which a sentence says that a metric has changed."""
Scale = Literal["ratio", "difference"]


@frozen(kw_only=True)
class Change(Record):
    """One metric in A and in B.

    change: B / A on the scale of ratios, else B - A; low, high: its 95% interval; None where there are no replicates,
    or nothing is tested.  p: of one test; p_holm: of the family.  moved: p_holm below LEVEL, and not less than is asked
    for.  spread: of the replicates' changes, in logs for a factor; n_clusters: of the side that has fewer.  smallest:
    what would have been seen, whatever the family's other metrics do: a factor above 1, or a size.
    """

    a: float | None
    b: float | None
    scale: Scale = "difference"
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    moved: bool = False
    smallest: float | None = None
    spread: Annotated[float | None, HIDDEN] = None
    n_clusters: Annotated[int, HIDDEN] = 0

    @property
    def size(self) -> float:
        """How far the change is from none: |log| of a factor; of a difference, relative to the larger value."""
        if self.change is None:
            return 0.0
        if self.scale == "ratio":
            return abs(math.log(self.change))
        return abs(self.change) / max(abs(self.a or 0.0), abs(self.b or 0.0), 1e-300)

    @property
    def is_vast(self) -> bool:
        """Whether it is a factor so large that both values say more."""
        return self.scale == "ratio" and self.size > math.log(LARGEST_FACTOR)


Changes = Annotated[Mapping[str, Change], Form(name="changes", about="Metric to its change.")]


@frozen(kw_only=True)
class Pairs(Record):
    """Rows that both hold, and those of one alone; counted, or (exact false) estimated from a sample of keys.

    other_text: of those in both, how many have another length: the same prompt, another text.
    """

    both: int
    only_a: int
    only_b: int
    other_text: int
    exact: bool
    by: Annotated[tuple[str, ...], HIDDEN] = ()
    """The columns that tell rows apart; none where their rollout log-probs do."""
    clusters: Annotated[int | None, HIDDEN] = None
    """How many of what is drawn together, such as prompts, both hold; None where these are rows, or too many to be
    kept."""


@frozen(kw_only=True)
class DiffSection(Record):
    """The changes of the whole dump (its key is empty) or of one group; not_tested: of metrics beyond the family."""

    key: GroupKey
    metrics: Changes
    not_tested: Changes


@frozen(kw_only=True)
class DiffSide(Record):
    """One of the dumps that are compared.  Of one policy alone, as engines answer, nothing but inputs and counts."""

    inputs: Inputs
    counts: Counts
    clusters: Clusters | None = None
    usable: Usable | None = None
    story: Story | None = None
    report: Annotated[Report | None, HIDDEN] = None

    @classmethod
    def of(cls, report: Report) -> "DiffSide":
        """What is told of a report."""
        return cls(
            inputs=report.inputs,
            counts=report.whole.counts,
            clusters=report.clusters,
            usable=report.verdict.usable,
            story=report.story,
            report=report,
        )


@frozen(kw_only=True)
class Pair(Record):
    """A dump that is compared with A, and what changed from there; not_tested: with --all, of every other metric.

    bits: of rows that both hold; None where there are none, of saved totals, and of standard input, which was read
    already.
    """

    b: DiffSide
    pairs: Pairs | None
    bits: Bits | None
    metrics: Changes
    not_tested: Changes
    groups: tuple[DiffSection, ...]


@frozen(kw_only=True)
class OtherDiff(Record):
    """A compared with a dump that was named after b."""

    name: str
    pair: Annotated[Pair, Key(inline=True)]
    notes: tuple[str, ...]


@frozen(kw_only=True)
class Diff(Output):
    """A dump (a, called A) compared with another (b), row by row and by metrics.

    name: what b is called, a letter.  sections: the whole, then groups that both have; none where a dump has but one
    policy.  min_effect: the smallest change that counts as moved, a share.  others: A compared with the dumps that were
    named after b, each a Diff of its own.
    """

    OUTPUT = "diff"
    a: DiffSide
    min_effect: float
    notes: tuple[str, ...] = ()

    pairs: Annotated[Pairs | None, HIDDEN]
    bits: Annotated[Bits | None, HIDDEN] = None
    b: Annotated[DiffSide, HIDDEN]
    name: Annotated[str, HIDDEN] = "B"
    sections: Annotated[tuple[DiffSection, ...], HIDDEN] = ()
    others: Annotated[tuple["Diff", ...], HIDDEN] = ()

    @property
    def comparisons(self) -> tuple["Diff", ...]:
        """A compared with each of the other dumps, in the order they were named."""
        return self, *self.others

    @property
    def dumps(self) -> dict[str, DiffSide]:
        """Every dump by its letter, A first."""
        return {"A": self.a, **{each.name: each.b for each in self.comparisons}}

    @property
    def stories(self) -> list[str]:
        """What is to be told first of each dump that something is wrong with: 'B: stale_policy: ...'."""
        stories = ((name, side.story) for name, side in self.dumps.items())
        return [f"{name}: {of.first}: {of.headline}" for name, of in stories if of is not None and of.effect != "none"]

    @property
    def any_moved(self) -> bool:
        """Whether a metric moved in any of the dumps."""
        return any(each.moved for each in self.comparisons)

    @property
    def whole(self) -> DiffSection:
        """The whole dump's changes; none where a dump has but one policy."""
        return self.sections[0] if self.sections else DiffSection(key={}, metrics={}, not_tested={})

    @property
    def moved(self) -> list[tuple[Mapping[str, Any], str, Change]]:
        """Section, name and change of all that moved from A to b, the largest change of each section first."""
        return [
            (section.key, name, change)
            for section in self.sections
            for name, change in ordered(section.metrics)
            if change.moved
        ]

    @property
    def is_too_few(self) -> bool:
        """Whether a side has too few clusters for any test."""
        return any(side.clusters is None or side.clusters.too_few for side in (self.a, self.b))

    @property
    def is_rounding(self) -> bool:
        """Whether both are too close for anything to be compared."""
        change = self.whole.metrics.get(GAP)
        return change is not None and _is_rounding(change.a, change.b)

    def __repr__(self) -> str:
        moved = {name: None for each in self.comparisons for key, name, _ in each.moved if not key}
        dumps = " and ".join(of_inputs(report.inputs) for report in self.dumps.values())
        return f"<Diff of {dumps}: {', '.join(moved) or 'nothing'} moved>"

    @property
    @computed(after="a", inline=True)
    def pair(self) -> Pair:
        """b, and what changed from A to it."""
        return Pair(
            b=self.b,
            pairs=self.pairs,
            bits=self.bits,
            metrics=self.whole.metrics,
            not_tested=self.whole.not_tested,
            groups=self.sections[1:],
        )

    @property
    @computed(name="others", after="notes")
    def other_pairs(self) -> tuple[OtherDiff, ...]:
        """A compared with the further dumps, as JSON has it."""
        return tuple(OtherDiff(name=each.name, pair=each.pair, notes=each.notes) for each in self.others)


def ordered(changes: Mapping[str, Change]) -> list[tuple[str, Change]]:
    """What moved first, the largest change first; then the rest in their own order."""
    return sorted(changes.items(), key=lambda item: (not item[1].moved, -item[1].size if item[1].moved else 0))


@frozen
class BootstrapMetrics:
    """One section of a dump: its metrics, and what they are in every replicate (None: nothing was resampled)."""

    values: Mapping[str, float | None]
    replicates: Replicates | None

    @property
    def n_clusters(self) -> int:
        """How many clusters were resampled."""
        return 0 if self.replicates is None else self.replicates.clusters.n

    @property
    def draws(self) -> Mapping[str, Floats]:
        """Metrics in every replicate."""
        return {} if self.replicates is None else diagnostic_draws(self.replicates)


def sections(
    dumps: Iterable[Iterable[tuple[Mapping[str, Any], BootstrapMetrics, BootstrapMetrics]]],
    *,
    min_effect: float,
    everything: bool,
) -> list[tuple[DiffSection, ...]]:
    """The changes of each section of each dump, those of the family tested together.

    dumps: for each dump but the first its sections, as they are drawn in the first and in this one.  everything: with
    metrics beyond the family.
    """
    measured = [[_section(key, a, b, everything=everything) for key, a, b in of_dump] for of_dump in dumps]
    tested = {
        (dump, section, name): change.p
        for dump, of_dump in enumerate(measured)
        for section, of_section in enumerate(of_dump)
        for name, change in of_section.metrics.items()
        if change.p is not None
    }
    adjusted = holm(tested)
    return [
        tuple(
            replace(
                of_section,
                metrics={
                    name: _judged(change, adjusted.get((dump, section, name)), min_effect, len(tested))
                    for name, change in of_section.metrics.items()
                },
            )
            for section, of_section in enumerate(of_dump)
        )
        for dump, of_dump in enumerate(measured)
    ]


def _section(key: Mapping[str, Any], a: BootstrapMetrics, b: BootstrapMetrics, *, everything: bool) -> DiffSection:
    n_clusters = min(a.n_clusters, b.n_clusters)
    draws_a, draws_b = ({}, {}) if n_clusters < FEWEST_CLUSTERS else (a.draws, b.draws)
    rest = [name for name in a.values if name in b.values and name not in FAMILY] if everything else []
    rounding = _is_rounding(a.values.get(GAP), b.values.get(GAP))

    def changes(names: Sequence[str]) -> dict[str, Change]:
        return {
            name: _change(
                a.values.get(name),
                b.values.get(name),
                draws_a=draws_a.get(name),
                draws_b=draws_b.get(name),
                rounding=rounding,
                n_clusters=n_clusters,
            )
            for name in names
        }

    not_tested = {name: replace(change, p=None) for name, change in changes(rest).items()}
    return DiffSection(key=key, metrics=changes(FAMILY), not_tested=not_tested)


def _is_rounding(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and a < ROUNDING and b < ROUNDING


def _change(
    a: float | None, b: float | None, *, draws_a: Floats | None, draws_b: Floats | None, rounding: bool, n_clusters: int
) -> Change:
    """A metric's change with its interval and the p of one test; without them where that cannot be had."""
    if a is None or b is None or draws_a is None or draws_b is None or rounding or (a == 0 and b == 0):
        return Change(a=a, b=b)
    known = np.isfinite(draws_a) & np.isfinite(draws_b)
    draws_a, draws_b = draws_a[known], draws_b[known]
    if len(draws_a) < 2:
        return Change(a=a, b=b)
    is_ratio = min(a, b) > 0 and bool((draws_a > 0).all() and (draws_b > 0).all())
    changes = np.log(draws_b) - np.log(draws_a) if is_ratio else draws_b - draws_a
    with np.errstate(over="ignore", invalid="ignore"):
        change, spread = (math.log(b) - math.log(a) if is_ratio else b - a), float(changes.std(ddof=1))
    half_width = t_quantile(1 - LEVEL / 2, n_clusters) * spread
    ends = change, change - half_width, change + half_width
    if not all(map(math.isfinite, ends)):
        return Change(a=a, b=b)  # float64 does not hold the squares
    shown = tuple(map(_factor, ends)) if is_ratio else ends
    # A metric is the same in every replicate where it is the same in every row: then any change is one.
    p = t_probability(abs(change) / spread, n_clusters) if spread > 0 else float(change == 0)
    return Change(
        a=a,
        b=b,
        scale="ratio" if is_ratio else "difference",
        change=shown[0],
        low=shown[1],
        high=shown[2],
        p=p,
        spread=spread,
        n_clusters=n_clusters,
    )


def _factor(log_factor: float) -> float:
    return math.exp(min(max(log_factor, -700.0), 700.0))


def _judged(change: Change, p_holm: float | None, min_effect: float, n_tests: int) -> Change:
    if p_holm is None or change.spread is None:
        return change
    is_ratio = change.scale == "ratio"
    # Holm's first step is the strictest: what passes that is seen.
    beyond = t_quantile(1 - LEVEL / (2 * n_tests), change.n_clusters) * change.spread
    return replace(
        change,
        p_holm=p_holm,
        moved=p_holm < LEVEL and change.size >= (math.log1p(min_effect) if is_ratio else min_effect),
        smallest=_factor(beyond) if is_ratio else beyond,
    )


def holm(p_values: Mapping[Any, float | None]) -> dict[Any, float]:
    """Holm's step-down adjustment: the probabilities for which the family's level holds."""
    ascending = sorted((p, name) for name, p in p_values.items() if p is not None)
    adjusted: dict[Any, float] = {}
    largest = 0.0
    for place, (p, name) in enumerate(ascending):
        largest = max(largest, min(1.0, p * (len(ascending) - place)))
        adjusted[name] = largest
    return adjusted


def pairs_of(a: WholeDump | None, b: WholeDump | None) -> Pairs | None:
    """Which rows two dumps share; None where a part of them was not resampled."""
    if a is None or b is None or a.rows is None or b.rows is None:
        return None
    both, exact = in_both(a.rows, b.rows)
    same_text, _ = in_both(a.texts, b.texts) if a.texts and b.texts else (both, exact)
    return Pairs(
        both=both,
        only_a=max(a.rows.n_rows - both, 0),
        only_b=max(b.rows.n_rows - both, 0),
        other_text=max(both - same_text, 0),
        exact=exact,
    )


def shared_clusters(a: Replicates | None, b: Replicates | None) -> int | None:
    """How many clusters two dumps both hold; None where not all of them are kept."""
    if a is None or b is None or not (a.clusters.exact and b.clusters.exact):
        return None
    return len(np.intersect1d(a.clusters.keys, b.clusters.keys))


def checked(diff: Diff, *, fails: bool) -> Checked:
    """The comparison as a check has its findings, for CI: each metric of the family must not have moved.

    fails: whether one that moved fails; else it warns.  Of several dumps, a section's key names the dump, too.
    """
    severity: Severity = "fail" if fails else "warn"
    of_sections = [
        ({"dump": each.name, **section.key} if diff.others else section.key, each.name, section.metrics)
        for each in diff.comparisons
        for section in each.sections
    ]
    findings = tuple(
        _finding(key, name, change, severity=severity, dump=dump)
        for key, dump, changes in of_sections
        for name, change in changes.items()
        if change.p_holm is not None
    )
    return Checked(
        command="diff",
        measurements=Measurements(
            inputs=tuple(source for side in diff.dumps.values() for source in side.inputs),
            sections=tuple(Section(key, {}) for key, _, _ in of_sections),
            situation=RemedyContext(plan=Plan("disabled")) if diff.b.report is None else diff.b.report.situation,
        ),
        n_rules=len(FAMILY),
        findings=findings,
        notes=(*diff.stories, *(note for each in diff.comparisons for note in each.notes)),
    )


def _finding(key: Mapping[str, Any], name: str, change: Change, *, severity: Severity, dump: str) -> Finding:
    by = f", {change.change:.3g} times as large" if change.scale == "ratio" else f", {change.change:+.3g}"
    by = "" if change.is_vast else by
    says = f"{name} is {change.a:.3g} in A and {change.b:.3g} in {dump}{by} (Holm p {change.p_holm:.2g})."
    return Finding(
        key=key,
        metric=name,
        value=change.b,
        rule="unmoved",
        severity=severity,
        status=severity if change.moved else "ok",
        fix=None,
        message=says,
    )
