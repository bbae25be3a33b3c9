"""Course: how a dump's metrics go from step to step, and which steps break a rule.

Steps are groups like any other, in their order.  Of each main metric a Course has the first, the last and the worst
step; of each rule the steps that break it; and of k3_kl whether it rises or falls by more than chance
(causes/steps.py), by how much, and how fast it doubles where it does so steadily.  `course` is asked by every report
that has steps, and the sentence on it stands in `show/words.py`.

Few sequences tell little.  So a step is held to rules only where it has FEWEST_TOKENS and FEWEST_CLUSTERS; of smaller
steps, neighbours are held to them together (`neighbours`), as one range that is `steps 980 to 983`.  And metrics that
rest on less than FEWEST_EFFECTIVE sequences or tokens have no value in a course (`reliable`): chi2_seq of a few
rows is as likely negative as not.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import correlation, linear_regression, median
from typing import Annotated, Any

from rlcorr_cli.causes.steps import RISES, Levels, Shift, shift
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import DEFINITIONS, shown_at
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.records.fields import HIDDEN, Key, Number, Scalar, as_json
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.forecast import Forecast, forecast
from rlcorr_cli.results.groups import Group, key_as_json
from rlcorr_cli.results.rules import BROKEN, Rule, Severity, upper_limit
from rlcorr_cli.results.verdict import ROUNDING_K3
from rlcorr_cli.totals.measured import MOST_STEPS
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.view import Value

POOLED = (
    f"There are over {MOST_STEPS:,} steps: all are taken together. Name some of the files at a time, or group by step."
)
"""The note of a report whose steps are too many to be told apart."""
FEWEST_TOKENS = 1_000
"""With fewer tokens a step is not held to rules; nor with fewer clusters than an interval takes."""
LEAST_K3 = ROUNDING_K3 / RISES
"""No smaller k3_kl is told from it: below ROUNDING_K3 nothing rises."""
FEWEST_DOUBLED = 5
"""Steps that it takes to tell how fast something doubles."""
FIT = 0.9
"""The share of the variance of log k3_kl that a line over the steps must explain for the rise to be called steady."""
BEND = 2.0
"""How many times steeper one half of the steps may be than the other."""
RESTS_ON = {
    "chi2_token": ("token_ess", "tokens"),
    "chi2_seq": ("seq_ess", "sequences"),
    "seq_ess": ("seq_ess", "sequences"),
}
"""Metric that a few large ratios decide -> the share of its sample that is effective, and what is counted of it."""
BREAKS_AT_END = "{step} limits that make `rlcorr check` fail: {act} before you continue training."
"""What is said before a verdict or a plan that would do for all steps together; step: 'Step 59, the last, breaks'."""
FEWEST_EFFECTIVE = 10
"""Of fewer effective tokens or sequences such a metric is blank: it is too low, and falls as the policies part."""


@frozen
class AtStep(Record):
    """The value of a metric at a step."""

    step: Scalar
    value: float


@frozen(kw_only=True)
class MetricCourse(Record):
    """A metric at the first and the last step that have a value, and at the worst.

    blank: how many steps have no value that means anything.
    """

    metric: str
    first: AtStep
    worst: AtStep
    last: AtStep
    blank: int


@frozen(kw_only=True)
class BrokenRule(Record):
    """A rule, the groups that break it, and the worst of these.  of: how many groups are held to it.  Steps that are
    judged together are among the groups each by itself; the worst of them has the key of their range."""

    metric: str
    rule: str
    status: Severity
    groups: Annotated[tuple[Mapping[str, Scalar], ...], Key(about="The keys of the groups, in order.")]
    of: int
    lowest: float
    highest: float
    worst: Annotated[Mapping[str, Scalar], Key(about="The key of the group with the worst value.")]
    worst_value: float
    remedy: str


@frozen(kw_only=True)
class Rise(Record):
    """A metric, k3_kl of a dump, at the first step and at the last, where it rises or falls by more than chance.

    flat: the last step before that, with the median until there; null where it rises or falls from the start.  since:
    the step after it, else that from which it stays above twice the first value, or the first of a fall.  level: of
    a jump the median from there on; null where it goes on.  factor: how many times as large the last value or that
    level is as what was before it, below 1 of a fall.  doubling: steps in which it doubles, where it rises steadily.
    forecast: when it passes its limit, where that can be said.
    """

    first: AtStep
    last: AtStep
    flat: AtStep | None = None
    since: Scalar
    level: Number = None
    factor: float
    doubling: Number
    forecast: Annotated[Forecast | None, Key(omit=True)] = None


@frozen(kw_only=True)
class Course(Record):
    """The metrics along the steps.  judged: how many steps are held to rules, by themselves or with neighbours.  small:
    what becomes of the steps that are too small to be judged by themselves, in sentences."""

    column: str
    steps: int
    judged: int
    metrics: tuple[MetricCourse, ...]
    broken: tuple[BrokenRule, ...]
    rise: Rise | None
    fall: Annotated[Rise | None, Key(omit=True)] = None
    small: Annotated[tuple[str, ...], HIDDEN] = ()

    @property
    def broken_metrics(self) -> tuple[str, ...]:
        """The metrics whose rule a judged step breaks."""
        return tuple(rule.metric for rule in self.broken)

    @property
    def failing_end(self) -> Scalar:
        """The last step, where it breaks a rule that fails; else None."""
        last = next((metric.last.step for metric in self.metrics if metric.metric == GAP), None)
        failing = (key for each in self.broken if each.status == "fail" for key in each.groups)
        return last if any(last in key.values() for key in failing) else None


def is_known(group: Group, metric: str) -> bool:
    """Whether a group has a value of a metric that means something."""
    if group.values.get(metric) is None:
        return False
    if metric not in RESTS_ON:
        return True
    name, unit = RESTS_ON[metric]
    return (group.values.get(name) or 0.0) * group.counts[unit] >= FEWEST_EFFECTIVE


def reliable(metric: str, group: Group) -> Value:
    """The metric of a group; None where it rests on too little to mean anything.

    A seq_ess of few effective sequences stays: it is rough, but says itself that they are few.
    """
    return group.values[metric] if metric == "seq_ess" or is_known(group, metric) else None


def is_judged(group: Group) -> bool:
    """Whether a step is large enough to be held to rules."""
    return _is_enough(*_size_of(group))


def _size_of(group: Group) -> tuple[int, int]:
    """Its tokens and its clusters; its sequences where no clusters are counted."""
    return group.counts["tokens"], group.counts["sequences"] if group.clusters is None else group.clusters


def _is_enough(n_tokens: int, n_clusters: int) -> bool:
    return n_tokens >= FEWEST_TOKENS and n_clusters >= FEWEST_CLUSTERS


def neighbours(steps: Sequence[Group], clusters: Sequence[DistinctKeys | None]) -> list[range]:
    """Places of small steps that are next to each other and large enough together.

    Each range is as short as it can be; what is left over at the end of small steps belongs to the range before it.
    clusters: of each step; None where its sequences are counted instead.
    """
    found: list[range] = []
    for is_large, run in groupby(range(len(steps)), key=lambda place: is_judged(steps[place])):
        if is_large:
            continue
        ranges, tokens, keys, n_sequences = list[range](), 0, None, 0
        places = list(run)
        start = places[0]
        for place in places:
            counts, of_step = steps[place].counts, clusters[place]
            tokens, n_sequences = tokens + counts["tokens"], n_sequences + counts["sequences"]
            keys = of_step if keys is None or of_step is None else keys + of_step
            if _is_enough(tokens, n_sequences if keys is None else keys.n):
                ranges.append(range(start, place + 1))
                start, tokens, keys, n_sequences = place + 1, 0, None, 0
        if ranges:
            ranges[-1] = range(ranges[-1].start, places[-1] + 1)
        found += ranges
    return found


def judged_steps(steps: Sequence[Group], ranges: Iterable[Group]) -> tuple[Group, ...]:
    """The steps that are large enough to be held to rules, and the ranges of small ones, in order."""
    place_of = {as_json(*step.key.values()): place for place, step in enumerate(steps)}
    judged = {place: step for place, step in enumerate(steps) if is_judged(step)}
    judged |= {place_of[as_json(some.of_steps[0])]: some for some in ranges}
    return tuple(judged[place] for place in sorted(judged))


def _small(steps: Sequence[Group], judged: Sequence[Group], unit: str) -> Iterator[str]:
    """How many steps have too few tokens or clusters to be judged by themselves, and what becomes of them."""
    column, of = next(iter(steps[0].key)), len(steps)
    left = {as_json(step.key[column]): step for step in steps}
    together = [left.pop(step) for group in judged for step in group.of_steps]
    for group in judged:
        left.pop(as_json(next(iter(group.key.values()))), None)
    for some, becomes in (
        (together, "rules judge neighbours together, until they have as many"),
        (list(left.values()), "no rule judges {them}"),
    ):
        if some:
            n = len(some)
            every = f"Both {column}s" if of == 2 else f"All {of:,} {column}s"
            which = every if n == of else f"{n:,} of {of:,} {column}s"
            verb, them = ("has", "it") if n == 1 < of else ("have", "them")
            yield f"{which} {verb} fewer than {_lacking(some, unit)}: {becomes.format(them=them)}."


def _lacking(steps: Iterable[Group], unit: str) -> str:
    """What some steps have too few of: '1,000 tokens', '5 prompts', or both."""
    sizes = [_size_of(step) for step in steps]
    fewest = [
        f"{FEWEST_TOKENS:,} tokens" if any(n_tokens < FEWEST_TOKENS for n_tokens, _ in sizes) else "",
        f"{FEWEST_CLUSTERS} {unit}s" if any(n_clusters < FEWEST_CLUSTERS for _, n_clusters in sizes) else "",
    ]
    return " or ".join(filter(None, fewest))


def _keys(group: Group) -> list[dict[str, Any]]:
    """Its key, or those of the steps that are judged together."""
    name = next(iter(group.key), "")
    return [{name: as_json(step)} for step in group.of_steps] or [key_as_json(group.key)]


def broken_rules(groups: Iterable[Group], rules: Iterable[Rule]) -> tuple[BrokenRule, ...]:
    """Each rule of fixed ends that groups break, with them; in the order of the rules, those that fail first."""
    groups = list(groups)
    broken: list[BrokenRule] = []
    for rule in rules:
        if rule.over == "total" or rule.limit:
            continue
        of_groups = [(group, value) for group in groups if (value := group.values.get(rule.metric)) is not None]
        outside = [(group, value) for group, value in of_groups if not rule.holds(value)]
        if not outside:
            continue
        worst, value = max(outside, key=lambda item: rule.excess(item[1]))
        values = [value for _, value in outside]
        broken.append(
            BrokenRule(
                metric=rule.metric,
                rule=str(rule),
                status=rule.severity,
                groups=tuple(key for group, _ in outside for key in _keys(group)),
                of=len(of_groups),
                lowest=min(values),
                highest=max(values),
                worst=key_as_json(worst.key),
                worst_value=value,
                remedy=rule.remedy,
            )
        )
    return tuple(sorted(broken, key=lambda each: BROKEN.index(each.status)))


def course(
    steps: Sequence[Group],
    judged: Sequence[Group],
    rules: Iterable[Rule],
    known: Mapping[str, Value],
    *,
    unit: str = "sequence",
) -> Course | None:
    """The course of two steps or more, in order; None of fewer.  judged: the steps and ranges of steps that are held to
    rules.  known: the metrics of the whole dump.  unit: what a cluster is."""
    if len(steps) < 2:
        return None
    column = next(iter(steps[0].key))
    shifted = _shifted_gap([as_json(step.key[column]) for step in steps], steps, rules := list(rules))
    metrics = (_metric_course(metric, steps, column) for metric in shown_at("course") if known.get(metric) is not None)
    return Course(
        column=column,
        steps=len(steps),
        judged=sum(len(step.of_steps) or 1 for step in judged),
        metrics=tuple(metric for metric in metrics if metric is not None),
        broken=broken_rules(judged, rules),
        rise=shifted if shifted is not None and shifted.factor > 1 else None,
        fall=shifted if shifted is not None and shifted.factor < 1 else None,
        small=tuple(_small(steps, judged, unit)),
    )


def _metric_course(metric: str, steps: Sequence[Group], column: str) -> MetricCourse | None:
    values = ((as_json(step.key[column]), reliable(metric, step)) for step in steps)
    return course_of(metric, {step: value for step, value in values if value is not None}, len(steps))


def course_of(metric: str, values: Mapping[Any, float], of: int) -> MetricCourse | None:
    """The course of a metric of these values by step; None of none.  of: how many steps there are."""
    if not values:
        return None
    points = [AtStep(step, value) for step, value in values.items()]
    definition = DEFINITIONS.get(metric)
    worst = max(points, key=lambda point: abs(point.value) if definition is None else definition.badness(point.value))
    return MetricCourse(metric=metric, first=points[0], worst=worst, last=points[-1], blank=of - len(points))


def shift_of(places: Sequence[float], k3: Sequence[float], levels: Levels, *, n_steps: int = 0) -> Shift | None:
    """The shift of k3_kl along steps, but of rounding.  n_steps: as of `shift`."""
    found = shift(places, [max(value, LEAST_K3) for value in k3], levels, n_steps=n_steps)
    return None if found is None or max(found.before, found.after) <= ROUNDING_K3 else found


def _shifted_gap(places: Sequence[Any], steps: Sequence[Group], rules: Iterable[Rule]) -> Rise | None:
    """How k3_kl goes along steps; None where one has none."""
    values = [value for step in steps if (value := step.values.get(GAP)) is not None]
    levels, limit = [step.level for step in steps], upper_limit(GAP, rules)
    return None if len(values) < len(places) else shifted(places, values, levels, limit=limit)


def shifted(
    places: Sequence[Any], values: Sequence[float], levels: Levels = (), *, limit: float | None = None
) -> Rise | None:
    """How a metric that is never below 0 rises or falls by more than chance, along steps that are numbers; None of
    fewer than three.  limit: that it should not pass, if there is one."""
    if len(places) < 3 or not values[0] > 0 or min(values) < 0:
        return None
    if not all(isinstance(place, int | float) and not isinstance(place, bool) for place in places):
        return None
    found = shift_of(places, values, levels)
    if found is None:
        return None
    is_jump, since = found.shape == "jump", found.since
    rises, start, flat = found.after > found.before, max(0, since - 1), None
    if since:
        flat = AtStep(places[start], median(values[:since]))
    else:  # it grows from the start
        least = next((n for n in range(len(values)) if min(values[n:]) > RISES * values[0]), len(values) - 1)
        since = least if rises else 0
    level = median(values[since:]) if is_jump else values[-1]
    return Rise(
        first=AtStep(places[0], values[0]),
        last=AtStep(places[-1], values[-1]),
        flat=flat,
        since=places[since],
        level=level if is_jump else None,
        factor=level / ((values[0] if flat is None else flat.value) or LEAST_K3),
        doubling=_doubling(places[start:], values[start:]) if rises and not is_jump else None,
        forecast=forecast(places[start:], values[start:], limit) if rises and not is_jump and limit else None,
    )


def _doubling(places: Sequence[float], values: Sequence[float]) -> float | None:
    """Steps in which the values double; None where no line fits their logarithms, or one half is far steeper than the
    other, as of a rise by equal amounts."""
    if len(values) < FEWEST_DOUBLED or min(values) <= 0:
        return None
    logs = [math.log2(value) for value in values]
    half = len(values) // 2
    early, late = (linear_regression(places[at], logs[at]).slope for at in (slice(half + 1), slice(half, None)))
    is_steady = correlation(places, logs) ** 2 >= FIT and 0 < max(early, late) <= BEND * min(early, late)
    return 1 / linear_regression(places, logs).slope if is_steady else None
