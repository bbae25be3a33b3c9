"""Dumps side by side: what `compare` says of each under one plan, and what tells them apart; as values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.results.compared import SCHEMA, Comparison
from rlcorr_cli.results.recommend import PlanValues
from rlcorr_cli.totals.families import Value

APART = (
    "k3_kl",
    "logprob_abs_diff_mean",
    "prob_abs_diff_mean",
    "extreme_token_fraction",
    "token_tv",
    "seq_tv",
)
"""Metrics of being apart that are never negative, so that dumps differ in them by a factor."""
METRICS = ("kl", *APART, "token_ess", "seq_ess", "advantage_shift")
"""What is shown of each dump."""
ROUNDING = 1e-9
"""Below this k3_kl policies are equal but for rounding, and no factor between such dumps says anything."""


@dataclass(frozen=True, kw_only=True)
class DumpColumn:
    """One dump: its letter, what `compare` says of it, and what the one plan leaves of it (None without a plan)."""

    name: str
    comparison: Comparison
    plan: PlanValues | None

    @property
    def metrics(self) -> Mapping[str, Value]:
        """Its diagnostics."""
        return self.comparison.whole.metrics

    @property
    def path(self) -> str:
        """The first of its files."""
        return self.comparison.inputs[0].path

    @property
    def is_tellable(self) -> bool:
        """Whether it has clusters enough: a bootstrap of few does not know how far a metric may be off."""
        return self.comparison.clusters is not None and not self.comparison.clusters.too_few

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        of_dump = self.comparison.to_dict()
        measured = ("inputs", "counts", "clusters", "metrics", "intervals")
        concluded = ("recommendation", "suspicions", "problems", "notes")
        plan = None if self.plan is None else self.plan.to_dict()
        return {"name": self.name, "plan": plan, **{name: of_dump[name] for name in (*measured, *concluded)}}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A metric, the dumps (by letter) in which it is least and most, and how many times the least the most is."""

    metric: str
    least: str
    most: str
    factor: float


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Dumps in the order they were named, a column each.  plan: the one that they are held against each other under.

    largest: the metric that tells two of them apart by the largest factor; None where the 95 % intervals of every
    metric overlap, all are equal but for rounding, or fewer than two have sequences enough to tell.
    """

    dumps: tuple[DumpColumn, ...]
    plan: Plan | None
    largest: Difference | None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def too_few(self) -> tuple[DumpColumn, ...]:
        """Dumps of too few sequences to be told apart from others."""
        return tuple(dump for dump in self.dumps if not dump.is_tellable)

    @property
    def is_rounding(self) -> bool:
        """Whether the policies of every dump are equal but for rounding."""
        return _is_rounding(self.dumps)

    def of(self, name: str) -> DumpColumn:
        """The dump of a letter."""
        return next(dump for dump in self.dumps if dump.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "plan": None if self.plan is None else {"name": self.plan.name, **self.plan.to_dict()},
            "largest": None if self.largest is None else asdict(self.largest),
            "dumps": [dump.to_dict() for dump in self.dumps],
            "notes": list(self.notes),
        }


def side_by_side(comparisons: Sequence[Comparison], plan: Plan | None) -> SideBySide:
    """Comparisons of as many dumps, each of which holds the plan, if there is one."""
    dumps = tuple(
        DumpColumn(name=letter(place), comparison=comparison, plan=_values(comparison, plan))
        for place, comparison in enumerate(comparisons)
    )
    return SideBySide(dumps=dumps, plan=plan, largest=_largest(dumps), notes=_unlike(dumps))


def letter(place: int) -> str:
    """A .. Z, AA, AB and so on."""
    above, last = divmod(place, 26)
    return (letter(above - 1) if above else "") + chr(ord("A") + last)


def _values(comparison: Comparison, plan: Plan | None) -> PlanValues | None:
    return None if plan is None else next(each for each in comparison.whole.plans if each.plan.id == plan.id)


def _largest(dumps: Sequence[DumpColumn]) -> Difference | None:
    differences = [difference for metric in APART if (difference := _difference(dumps, metric)) is not None]
    return max(differences, key=lambda difference: difference.factor, default=None)


def _difference(dumps: Sequence[DumpColumn], metric: str) -> Difference | None:
    """Between the dumps in which a metric is least and most; None where it is 0, or their intervals overlap."""
    known = [(value, dump) for dump in dumps if dump.is_tellable and (value := dump.metrics.get(metric)) is not None]
    (low, least), (high, most) = (pick(known, key=lambda pair: pair[0], default=(0.0, None)) for pick in (min, max))
    if least is None or most is None or low <= 0 or _is_rounding(dumps):
        return None
    below, above = least.comparison.intervals.get(metric), most.comparison.intervals.get(metric)
    if below is None or above is None or below[1] >= above[0]:
        return None
    return Difference(metric=metric, least=least.name, most=most.name, factor=high / low)


def _is_rounding(dumps: Sequence[DumpColumn]) -> bool:
    return max((dump.metrics["k3_kl"] or 0) for dump in dumps) < ROUNDING


def _unlike(dumps: Sequence[DumpColumn]) -> tuple[str, ...]:
    """A note where the two policies are read from other columns: they may be others."""
    of_dumps = {
        dump.name: " against ".join(reversed(list(dump.comparison.inputs[0].columns.values())[:2])) for dump in dumps
    }
    if len(set(of_dumps.values())) == 1:
        return ()
    return (f"Not the same columns: {', '.join(f'{pair} in {name}' for name, pair in of_dumps.items())}.",)
