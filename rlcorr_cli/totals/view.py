"""Numbers: totals as formulas read them, by name, over all tokens or over what a plan keeps.

The same formula reads those of one group (floats), of all groups at once (f64[G]) and of replicates (f64[R]).

StatisticFamily: one statistic's family of them, read as mean, spread, extremes and shares.  Families are made in
`measure/effects.py` for raw and applied weights and for each rejection; metrics and peers' profiles read them here.

Batch normalisation is a scale on totals.  Dividing every applied weight of a training batch by the batch's mean f only
rescales its moments, so one pass is enough: groups are kept per (batch, *group), f comes from the batch's groups
together, and each group gets columns `normed.*` beside `applied.*`.  Never a mean over a reader chunk.  Frameworks
differ in how f is taken (BatchMean).  Metrics and the weights that `filter` writes both divide by `factors`, so the two
cannot disagree.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Bounds, Mode, Plan
from rlcorr_cli.totals.earlier_readings import EMPTY, ROLLOUT
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.totals import Merge, Replicates, Totals


def diagnostics_block(mode: Mode) -> str:
    """The block of a mode's diagnostics."""
    return f"diagnostics.{mode}"


def plan_block(plan: Plan) -> str:
    """The block of what a plan does; plans that differ in name alone share it."""
    return f"plan.{plan.id}"


class UnknownTotalError(KeyError):
    """Totals without a number that a formula asks for: those of another release."""


class Numbers:
    """Totals by name, of the blocks that are looked through, under a prefix ("" all tokens, "kept." what is left).

    A name is that of a total of one of the blocks, or of a count of rows.  `tokens` and `sequences` count valid tokens
    and non-empty sequences.
    """

    def __init__(self, source: Totals | Replicates, blocks: Sequence[str], at: int | None = None) -> None:
        """at: the place of the one group whose numbers are read; None for all at once."""
        self.prefix = ""
        self._source, self._blocks, self._at = source, (*(f"{block}." for block in blocks), ""), at
        self._known: dict[tuple[str, str], Any] = {}  # each serves many metrics

    @classmethod
    def of_plan(cls, totals: Totals, plan: Plan, at: int | None = None) -> "Numbers":
        """What a plan's formulas read: what it does, and the diagnostics of its mode."""
        return cls(totals, (plan_block(plan), diagnostics_block(plan.mode)), at)

    @classmethod
    def of_mode(cls, totals: Totals, mode: Mode, at: int | None = None) -> "Numbers":
        """The diagnostics of a mode alone."""
        return cls(totals, (diagnostics_block(mode),), at)

    @classmethod
    def of_replicates(cls, replicates: Replicates) -> "Numbers":
        """Of every replicate at once."""
        return cls(replicates, ())

    def under(self, prefix: str) -> "Numbers":
        """The same totals read under another prefix."""
        other = copy(self)
        other.prefix = prefix
        return other

    def has(self, name: str) -> bool:
        """Whether there is this sum."""
        return any(block + self.prefix + name in self._source.tables["sum"].places for block in self._blocks)

    def sum(self, name: str) -> Any:
        """A sum."""
        return self._number("sum", name)

    @property
    def tokens(self) -> Any:
        """N, valid tokens."""
        return self.sum("tokens")

    @property
    def sequences(self) -> Any:
        """B, sequences with at least one valid token."""
        return self.sum("sequences")

    def per_token(self, name: str) -> Any:
        """tok x = sum over valid tokens / N."""
        return self.sum(name) / self.tokens

    def per_sequence(self, name: str) -> Any:
        """seq x = sum over non-empty sequences / B."""
        return self.sum(name) / self.sequences

    def log(self, name: str) -> Any:
        """log of a sum of exponentials (-inf of no values)."""
        return self._number("log_sum_exp", name)

    def min(self, name: str) -> Any:
        """A minimum (inf of no values)."""
        return self._number("min", name)

    def max(self, name: str) -> Any:
        """A maximum (-inf of no values)."""
        return self._number("max", name)

    def histogram(self, name: str) -> Any:
        """A histogram; Histograms of all groups."""
        assert isinstance(self._source, Totals)
        return self._of_groups(self._source.histograms, self._source.histogram, name)

    def tail(self, name: str) -> Any:
        """An upper tail; Tails of all groups."""
        assert isinstance(self._source, Totals)
        return self._of_groups(self._source.tails, self._source.tail, name)

    def _of_groups(self, names: Any, read: Callable[[str, int | None], Any], name: str) -> Any:
        key = read.__name__, self._full_name(names, name)
        if key not in self._known:
            self._known[key] = read(key[1], self._at)
        return self._known[key]

    def _number(self, merge: Merge, name: str) -> Any:
        table = self._source.tables[merge]
        place = table.places[self._full_name(table.places, name)]
        return table.values[place] if self._at is None else table.values.item(place, self._at)

    def _full_name(self, names: Any, name: str) -> str:
        for block in self._blocks:
            if (full := block + self.prefix + name) in names:
                return full
        raise UnknownTotalError(self.prefix + name)


Value = float | None
Values = dict[str, Value]


@frozen(kw_only=True)
class StatisticFamily:
    """One statistic's family of totals, read under its prefix: mean, spread, extremes and shares.

    Units are tokens at token scope and non-empty sequences otherwise; `seq_*` is of each sequence's token mean.
    bounds: what a plan holds the units to.  Every result is None where there is nothing to take it of; of totals of
    many groups at once it is an f64[G], NaN there.  A spread below 1e-6 of the distances from the centre or from 0 (the
    smaller root mean square) is 0: two sums do not tell it from rounding.
    """

    numbers: Numbers
    prefix: str
    token_scope: bool
    centre: float
    bounds: Bounds

    def per_token(self, name: str) -> Value:
        """A total over N."""
        return finite(lambda: self.numbers.per_token(self.prefix + name))

    def per_sequence(self, name: str) -> Value:
        """A total over B."""
        return finite(lambda: self.numbers.per_sequence(self.prefix + name))

    def mean(self, moment: str = "tok") -> Value:
        """Mean over tokens; a sequence's value counts once for each of its tokens."""
        return self.per_token(moment)

    def std(self, moment: str = "tok") -> Value:
        """Population standard deviation over tokens ("trim": of the clamped statistic)."""
        return finite(lambda: self._variance(moment, self.numbers.tokens) ** 0.5)

    def token_ess(self, moment: str = "tok") -> Value:
        """(sum w)^2 / (N sum w^2) over tokens."""
        return self._ess(moment, self.numbers.tokens)

    def ess(self) -> Value:
        """(sum w)^2 / (n sum w^2) over the units."""
        return self._ess(self._unit, self._n_units)

    def kept_ess(self) -> Value:
        """The same once rejected units weigh 0."""
        return self._ess("kept", self._n_units)

    def unit_mean(self) -> Value:
        """Mean over units."""
        return finite(lambda: self.numbers.sum(self.prefix + self._unit) / self._n_units)

    def unit_std(self) -> Value:
        """Population standard deviation over units."""
        return finite(lambda: self._variance(self._unit, self._n_units) ** 0.5)

    def seq_mean(self) -> Value:
        """Mean over sequences of the sequence's token mean."""
        return self.per_sequence("seq")

    def seq_std(self) -> Value:
        """Sample standard deviation (n - 1) of the sequences' token means."""
        n = self.numbers.sequences
        return finite(lambda: (self._variance("seq", n) * n / (n - 1)) ** 0.5)

    def seq_max_deviation(self) -> Value:
        """Largest distance of a sequence's token mean from the centre."""
        low, high = (end(f"{self.prefix}seq") for end in (self.numbers.min, self.numbers.max))
        return finite(lambda: np.maximum(self.centre - low, high - self.centre))

    def fraction(self, end: str) -> Value:
        """Share of units beyond a bound."""
        return finite(lambda: self.numbers.sum(self.prefix + end) / self._n_units)

    def seq_fraction(self, end: str) -> Value:
        """Share of sequences whose token mean lies beyond a bound."""
        return self.per_sequence(f"seq_{end}")

    def min(self, name: str = "unit") -> Value:
        """Minimum over units ("seq": of the token means; "log": of the unlimited log ratio)."""
        return finite(lambda: self.numbers.min(self.prefix + name))

    def max(self, name: str = "unit") -> Value:
        """Maximum, likewise."""
        return finite(lambda: self.numbers.max(self.prefix + name))

    def only(self, name: str) -> Value:
        """The one value that a minimum and a maximum agree on, to rounding; None where they differ."""
        low, high = (end(self.prefix + name) for end in (self.numbers.min, self.numbers.max))
        return finite(lambda: np.where(np.isclose(low, high, rtol=1e-9, atol=0.0), low, np.nan))

    @property
    def _unit(self) -> str:
        return "tok" if self.token_scope else "seq"

    @property
    def _n_units(self) -> Any:
        return self.numbers.tokens if self.token_scope else self.numbers.sequences

    def _variance(self, moment: str, n: Any) -> Any:
        """From the sum of squares about the centre or about 0, whichever is smaller: it keeps more digits."""
        mean = self.numbers.sum(self.prefix + moment) / n
        about_centre, about_0 = (self.numbers.sum(f"{self.prefix}{moment}_{of}") / n for of in ("dev", "sq"))
        nearest_0 = about_0 < about_centre
        return variance(np.where(nearest_0, mean, mean - self.centre), np.where(nearest_0, about_0, about_centre))

    def _ess(self, moment: str, n: Any) -> Value:
        total, squares = self.numbers.sum(self.prefix + moment), self.numbers.sum(f"{self.prefix}{moment}_sq")
        return finite(lambda: total * total / (n * squares))


@frozen
class Weights:
    """A plan's weights.  raw: before bounds; bounded: after; applied: also divided by the batch mean, where the plan
    says so."""

    raw: StatisticFamily
    bounded: StatisticFamily
    applied: StatisticFamily

    @classmethod
    def of(cls, numbers: Numbers, plan: Plan) -> "Weights":
        """Of a plan that has a weighting."""
        assert plan.weighting is not None
        token_scope, bounds = plan.weighting.scope == "token", plan.weighting.bounds
        raw, bounded, normed = (
            family_of(numbers, stage, token_scope, 1.0, bounds=bounds) for stage in ("weight.", "applied.", "normed.")
        )
        return cls(raw, bounded, normed if plan.normalizes else bounded)


def family_of(
    numbers: Numbers, prefix: str, token_scope: bool, centre: float, *, bounds: Bounds | None = None
) -> StatisticFamily:
    """One statistic's family of totals; see StatisticFamily."""
    return StatisticFamily(
        numbers=numbers, prefix=prefix, token_scope=token_scope, centre=centre, bounds=bounds or Bounds()
    )


def variance(mean: Any, mean_square: Any) -> Any:
    """mean_square - mean^2; 0 where what is left is only rounding of the two, NaN where float64 cannot hold them."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference = mean_square - mean * mean
        held = np.where(difference > 1e-12 * mean_square, difference, 0.0)
        return np.where(np.isfinite(mean_square), held, np.nan)


def finite(compute: Callable[[], Any]) -> Any:
    """A number, or None for no data (a division by zero) and for what float64 cannot hold.

    Of many groups' numbers, an f64[G], with NaN for None.
    """
    try:
        with np.errstate(all="ignore"):
            value = compute()
        if isinstance(value, np.ndarray) and value.ndim:
            return np.where(np.isfinite(value), value, np.nan)
        value = float(value)
    except (ZeroDivisionError, OverflowError, TypeError):
        return None
    return value if math.isfinite(value) else None


_UNITS = {"tok": ("tokens", "unit"), "seq": ("sequences", "seq")}
"""Moment -> what it counts, and whose extremes are its own."""
_SUMS = ("tok", "tok_dev", "tok_sq", "seq", "seq_dev", "seq_sq")


@frozen
class BatchMean:
    """How a batch's mean weight is taken, and when it divides.

    Token weights: the mean over valid tokens.  Others: over sequences, each with the mean of its tokens' weights;
    counts_empty: a sequence without a valid token counts as weight 0, else it does not count.  A mean of at most
    `smallest` divides by 1 instead: the canonical rule leaves only a mean of 0 (every weight zeroed) alone and divides
    by any other, however small; verl and slime leave weights alone up to a mean of 1e-8.
    """

    counts_empty: bool = False
    smallest: float = 0.0

    def factor(self, numbers: Numbers, token_scope: bool) -> Any:
        """What the weights of a batch are divided by: a number, or f64[G] of many batches."""
        mean = family_of(numbers, "applied.", token_scope, 1.0).unit_mean()
        if mean is None:
            return 1.0
        if self.counts_empty and not token_scope:
            with np.errstate(invalid="ignore"):
                mean = mean * numbers.sequences / (numbers.sequences + numbers.sum("empty"))
        return np.where(mean > self.smallest, mean, 1.0)[()]


CANONICAL = BatchMean()


def factors(totals: Totals, plan: Plan, batch_mean: BatchMean = CANONICAL) -> Floats:
    """What each group's weights are divided by, f64[G]: the factor of its batch."""
    assert plan.weighting is not None
    of_batches = totals.numbers.regrouped(lambda key: key[:1])
    of_batch = batch_mean.factor(Numbers.of_plan(of_batches, plan), plan.weighting.scope == "token")
    places = {batch: place for place, (batch,) in enumerate(of_batches.keys)}
    return np.broadcast_to(of_batch, len(of_batches))[[places[batch] for batch, *_ in totals.keys]]


def normalize(totals: Totals, plan: Plan, factors: Floats) -> Totals:
    """The same with `normed.*` beside the plan's `applied.*`, each group's divided by its own factor, f64[G]."""
    numbers, over_rollouts = Numbers.of_plan(totals, plan), f"{ROLLOUT}.{EMPTY}" in totals.tables["sum"].places
    with np.errstate(invalid="ignore", over="ignore"):
        sums = dict(zip(_SUMS, _scaled_moments(numbers, factors), strict=True))
        sums |= {name: numbers.sum(f"applied.{name}") / factors for name in ("row_low", "row_high")}
        sums = {f"normed.{name}": values for name, values in sums.items()}
        if over_rollouts:
            of_rollouts = numbers.under(f"{ROLLOUT}.")
            names = ("seq", "row_low", "row_high")
            sums |= {f"{ROLLOUT}.normed.{name}": of_rollouts.sum(f"applied.{name}") / factors for name in names}
        ends = {
            end: {f"normed.{name}": read(f"applied.{name}") / factors for name in ("unit", "seq")}
            for end, read in (("min", numbers.min), ("max", numbers.max))
        }
    there = numbers.tokens > 0
    ends["min"]["normed.factor"], ends["max"]["normed.factor"] = (
        np.where(there, factors, nothing) for nothing in (np.inf, -np.inf)
    )
    columns: dict[Merge, dict[str, Floats]] = {"sum": sums, "min": ends["min"], "max": ends["max"]}
    normed = Totals.of_rows(totals.keys, np.arange(len(totals)), columns)
    return totals | normed.named(plan_block(plan))


def _scaled_moments(numbers: Numbers, factors: Floats) -> Iterator[Floats]:
    """Sum, squares about 1 and squares of the scaled weights, over tokens and over sequences."""
    for moment, (counted, unit) in _UNITS.items():
        names = counted, f"applied.{moment}", f"applied.{moment}_dev", f"applied.{moment}_sq"
        n, total_x, dev, squares = map(numbers.sum, names)
        lowest, highest = numbers.min(f"applied.{unit}"), numbers.max(f"applied.{unit}")
        # sum (x/f - 1)^2: from the moments about 1 where x and f are near it, else from the plain ones, because
        # either keeps digits only on its own side; of equal weights neither is needed.
        shift = factors - 1
        about_1 = (dev - 2 * shift * (total_x - n) + shift * shift * n) / factors**2
        about_0 = squares / factors**2 - 2 * total_x / factors + n
        of_equal = n * (lowest / factors - 1) ** 2
        scaled_dev = np.where(lowest == highest, of_equal, np.where(np.abs(shift) < 0.5, about_1, about_0))
        yield from (total_x / factors, scaled_dev, squares / factors**2)
