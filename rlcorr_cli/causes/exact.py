"""What a column of log-probs shows by itself: values that no policy gives, bit for bit, and means that none has.

Each fact of FACTS is sought in every policy's column of the sample of rows, whatever its size.  In a clean dump values
that tie in one column lie close together in the other: ties of coarse grids, of copied rows, of small vocabularies
whose contexts come again, of loops, and of probability 1 that rounds to 0.0.  Where the other column differs on values
that tie by more than DIFFERENT nats in the mean, they are no policy's.  Facts of rows are sought in the first rows of
the sample, which makes them cheap, and floors and zeros in all.

And a mean ratio that cannot be, which voids every other number of a dump.  Under the policy that drew the tokens the
mean of rho = e^l is 1, whatever the other policy; and so the mean of rho^2 is at least 1, a chi-square at least 0.  A
sample's mean differs by its sampling error only, unless a few unseen tokens carry the rest of it.  So nothing is
concluded from a mean alone: below 1, the mean of rho^2 must be below 1, too, as it never is where large ratios are
about; above 1, the tail of the ratios must be one whose mean can be trusted.

That the mean is 1 holds within every prompt, so what is independent here are rollouts, not prompts: the errors come
from buckets of rollouts, and a rollout that stands several times is in one bucket.
"""

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.anomalies import FACTORS, UNSURE, correlation
from rlcorr_cli.causes.diagnosis import AnomalyFinding, Certainty, Fact, Impossible
from rlcorr_cli.causes.gap_sums import gap_totals
from rlcorr_cli.causes.numbers import first_step
from rlcorr_cli.causes.of_tokens import COPIES
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.row_sampling import rollout_keys
from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.reading.batches import resolved
from rlcorr_cli.totals.flat import Flags, Floats, Ints, first_of_each, offsets_of, starts_of, unique_values
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.row_sample import RowSample
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail

LogProbs = NDArray[Any]

FLOOR, ZEROS = "floor_value", "unscored_zeros"
MOST_FOR_ROW_FACTS = 1 << 15
"""Tokens of the sample in whose rows facts of rows are sought."""
DIFFERENT = 0.25
"""Nats; two policies that score the same tokens differ by less in the mean."""
AGREE, STEPS_OFF = 0.75, 4
"""A column that goes so with the other where it ties is on a grid, and may be off by so many of its first steps."""
LONG, ENOUGH, MANY = 8, 64, 16
"""Tokens that make a row or a stretch worth judging, and a column; and of which a fact of rows must hold in all."""


def distinct(values: LogProbs) -> LogProbs:
    """Each once, in order; `np.unique` imports more for it than the look for all facts takes."""
    ordered = np.sort(values)
    return ordered[first_of_each(ordered)]


@frozen(kw_only=True)
class Column:
    """One policy's log-probs x of the valid tokens of R rows, as stored, [V], and another policy's y, by their names.

    n: how many each row has, i64[R].
    """

    sample: RowSample
    name: str
    x: LogProbs
    other: str
    y: LogProbs
    n: Ints

    @cached_property
    def at(self) -> Ints:
        """The place of each token among all, i64[V]."""
        return np.arange(len(self.x))

    @cached_property
    def rows(self) -> Ints:
        """The row of each token, i64[V]."""
        return np.repeat(np.arange(len(self.n)), self.n)

    @cached_property
    def places(self) -> Ints:
        """The place of each token in its row."""
        return self.at - starts_of(self.n)[self.rows]

    @property
    def ids(self) -> Ints:
        """The id of each token; its place among all where ids are not known."""
        ids, valid = self.sample.token_ids, self.sample.valid
        return self.at if ids is None else ids if valid is None else ids[valid]

    @property
    def before(self) -> Ints:
        """The token before each in its row, or itself."""
        return self.at - (self.places > 0)

    @property
    def after(self) -> Ints:
        """The token after each in its row, or itself."""
        return self.at + (self.places < self.n[self.rows] - 1)

    @cached_property
    def precision(self) -> Floats:
        """How much rounding may change each value, by the least distance and the least ratio of two of them."""
        values = distinct(self.x[self.x < UNSURE])
        ratio = np.min(-np.diff(values) / values[1:], initial=2**-7) + 1e-6
        return np.diff(values).min(initial=1e-3) + ratio * np.abs(self.x)

    @property
    def line(self) -> tuple[float, float]:
        """Slope and shift of the line through x by y."""
        slope = float(np.cov(self.x, self.y, ddof=0)[0, 1] / max(self.y.var(), 1e-12))
        return slope, float(self.x.mean() - slope * self.y.mean())

    def sums(self, of_tokens: Flags | NDArray[Any]) -> NDArray[Any]:
        """The sum over each row."""
        return np.add.reduceat(of_tokens, starts_of(self.n), dtype=np.float64)

    def differ(self, hit: Flags) -> Flags:
        """Of each token, whether its row is hit (bool[R]) and the columns differ there by DIFFERENT nats a token."""
        return (hit & (self.sums(np.abs(self.x - self.y)) > DIFFERENT * self.n))[self.rows]


def floor(c: Column) -> Flags:
    """The smallest values are one, bit for bit, after different contexts.

    It takes 3 tokens if the value lies 20 nats below the next one, 5 if 1 nat, else 16, and never one above -1.  Where
    under 80% of the 64 values above it are distinct, it takes at least 5, and 4 V p more, for a token of probability p
    is drawn V p times by chance; and other contexts give it other values of y.
    """
    low = c.x.min()
    n = np.count_nonzero(hit := c.x == low)
    if low > -1 or not 3 <= n < len(hit):
        return hit & False
    rest, y = np.sort(c.x[~hit]), c.y[hit]
    gap, near = rest[0] - low, rest[:ENOUGH]
    ties = len(distinct(near)) < 0.8 * len(near)
    fewest = (3 if gap >= 20 and not ties else 5 if gap >= 1 else MANY) + ties * int(4 * len(hit) * exp(low))
    apart = not ties or gap >= 20 or np.abs(y - np.median(y)).mean() > DIFFERENT
    contexts = np.unique(np.stack([np.where(c.places > 0, c.x[c.before], 0)[hit], y // DIFFERENT]), axis=1).shape[1]
    return hit & (n >= fewest and contexts >= min(n, 5) and apart)


def zeros(c: Column) -> Flags:
    """0.0 that no truncation makes, on 4 tokens of which the other column is very surprised, or 8 in a row.

    Scattered ones: sure tokens are left other than 0, and the other tokens of these rows agree (rows that do not belong
    together have zeros anywhere).  A last token's has a cause of its own.  In stretches: the other column is unsure of
    half of the tokens, and surprised by an eighth; none where a tenth of all values are 0 outside of them though the
    other column is not as sure (y < -.001), as a cut leaves them, whose stretches staleness contradicts.
    """
    zero = c.x == 0
    if not (c.y[zero] < -1).any():
        return zero & False
    y = c.y + STEPS_OFF * first_step(c.x)
    wrong = zero & (y < -2) & (c.after != c.at)
    sure, left = c.y > -0.01, ~zero & (c.sums(wrong) > 0)[c.rows]
    truncated = sure.sum() >= 10 and (~zero & sure).sum() < 0.05 * sure.sum()
    if wrong.sum() > 3 and not truncated and (left.sum() < MANY or correlation(c.x[left], c.y[left]) >= 0.75):
        return zero
    stretch = np.cumsum(~zero | (c.places == 0))
    n, unsure, surprised = (np.bincount(stretch, zero & of) for of in (zero, y < UNSURE, y < -1))
    hit = zero & ((n >= LONG) & (2 * unsure >= n) & (8 * surprised >= n))[stretch]
    return hit & ((zero & ~hit & (y < -0.001)).sum() < 0.1 * len(zero))


def running(c: Column) -> Flags:
    """Rows in which values, or values times their number, never rise from token to token (from the end: never fall),
    by steps that go with the other column's log-probs."""
    hit, last, heads = np.zeros(len(c.n), np.bool_), c.y[c.before], np.flatnonzero(c.places < MANY)
    # A running mean times its number is a total.
    for factor, y in ((1, c.y), (-1, last), (c.places + 1, c.y), (c.places - c.n[c.rows], last)):
        for at in (heads, c.at):  # nearly every row rises at its head already
            by = factor if isinstance(factor, int) else factor[at]
            steps, rounding = np.diff(c.x[at] * by, prepend=0) * (c.places[at] > 0), c.precision[at] * np.abs(by)
            never_rises = (np.bincount(c.rows[at], steps > rounding, len(c.n)) == 0) & (c.n > LONG)
            if not never_rises.any():
                break
        else:
            falls = c.sums((steps < -rounding) & (c.x != c.x[c.before]))
            of_rows = never_rises & (falls >= (LONG if isinstance(factor, int) else MANY))
            at = of_rows[c.rows] & (c.places > 0)
            hit |= of_rows & (correlation(steps[at], y[at]) >= AGREE)
    return c.differ(hit)


def again_and_again(c: Column) -> Flags:
    """Rows that repeat a short beginning.  Where every row does so, each with another value, the columns need not
    differ: both may have been made that way.

    The period is the least distance of a row's smallest values.  One or two rows that were joined wrongly may be filled
    up with a long one.
    """
    lowest = np.flatnonzero(c.x == np.minimum.reduceat(c.x, c.at[c.places == 0])[c.rows])
    same, period = np.diff(c.rows[lowest]) == 0, c.n.copy()
    np.minimum.at(period, c.rows[lowest[1:][same]], np.diff(lowest)[same])
    source = np.where(c.places < period[c.rows], c.at, c.at - period[c.rows])
    unsure = 2 * c.sums(c.x < UNSURE) >= c.n
    hit = unsure & (c.n >= np.maximum(LONG, 2 * period)) & (c.sums(c.x == c.x[source]) == c.n)
    hit &= (period <= LONG) | ((hit & (period > LONG)).sum() > 2)
    of_both = len(hit) >= LONG and hit.all() and 2 * len(unique_values(c.x[c.places == 0])) > len(hit)
    return hit[c.rows] if of_both else c.differ(hit)


def tied(c: Column, one: Ints, two: Ints, least: float) -> Flags:
    """Tokens whose value is the mean of those of tokens `one` and `two` (the same twice: equal to it), while the other
    column's is not; none unless that holds for `least` of the unsure tokens, and four times as often as any two values
    tie.  A token paired with itself does not count, nor the smallest value, which `floor` judges."""
    known = (one != c.at) & (two != c.at) & (c.x < UNSURE) & (c.x > c.x.min())
    same = known & (np.abs(c.x - (c.x[one] + c.x[two]) / 2) <= c.precision)
    n, n_same = int(known.sum()), int(same.sum())
    if n < ENOUGH or n_same < least * n:
        return same & False
    by_chance = (np.unique(c.x[known], return_counts=True)[1] ** 2).sum() / n  # much where a policy knows few contexts
    enough = n_same >= 4 * by_chance and correlation(c.x[same], c.y[same]) < AGREE
    return same & (enough and np.abs(c.y - (c.y[one] + c.y[two]) / 2)[same].mean() > DIFFERENT)


def by_id(c: Column) -> Flags:
    """One value for each token id."""
    if c.sample.token_ids is None:
        return np.zeros(len(c.x), np.bool_)
    _, first, of_token = np.unique(c.ids, return_index=True, return_inverse=True)
    return tied(c, first[of_token], first[of_token], 0.98)


def of_other_rows(c: Column) -> Flags:
    """Values that another row has at the same place, for another token id.

    Of two equal rows only the second is matched, so 0.4 of the tokens stands for nearly all rows in pairs; fewer come
    from rows that were joined wrongly.
    """
    unsure = c.x[c.x < UNSURE]
    if len(distinct(unsure)) > 0.9 * len(unsure):
        return np.zeros(len(c.x), np.bool_)
    order, twin = np.lexsort((c.x, c.places)), c.at.copy()
    other = (c.places[order[1:]] == c.places[order[:-1]]) & (c.ids[order[1:]] != c.ids[order[:-1]])
    twin[order[1:][other]] = order[:-1][other]
    return tied(c, twin, twin, 0.4)


def few(c: Column) -> Flags:
    """At most 16 values on 500 tokens or more, where the other column has ten times as many."""
    is_so = len(c.x) >= 500 and len(distinct(c.x[:500])) <= 16 and np.abs(c.x - c.y).mean() > DIFFERENT
    return np.full(len(c.x), is_so and (n := len(distinct(c.x))) <= 16 and 10 * n <= len(distinct(c.y)))


def ranks(c: Column) -> Flags:
    """Whole numbers, or logarithms of whole numbers, on 98% of the unsure tokens above -log(1000)."""
    below = np.maximum(c.x, -log(1000))
    unsure = (c.x < UNSURE) & (below == c.x)
    whole = max((unsure & (np.abs(of - np.round(of)) < 0.01) for of in (c.x, np.exp(-below))), key=np.sum)
    return whole & (whole.sum() >= max(ENOUGH, 0.98 * unsure.sum()) and np.abs(c.x - c.y).mean() > DIFFERENT)


def on_a_line(c: Column) -> Flags:
    """The other column times a factor, plus a constant, to the column's own precision; other bases have a cause."""
    slope, shift = c.line
    is_exact = (np.abs(c.x - slope * c.y - shift) <= c.precision).all() and len(distinct(c.x)) >= ENOUGH
    is_exact = is_exact and min(c.x.std(), c.y.std()) > max(1e-3, 50 * c.precision.mean())
    is_known = is_exact and any((np.abs(c.x - by * c.y) <= 2 * c.precision).all() for by in (1, *FACTORS))
    return np.full(len(c.x), is_exact and not is_known)


def of_neighbours(c: Column) -> Flags:
    """A linear function of the other column at several tokens, and of the value before: a smoothed column, differences.

    x_t = sum_k w_k y_(t+k) + w x_(t-1) + w_0, k = -2 .. 2, by least squares beside each row's mean, explains 95% of the
    variance within rows, and leaves a tenth of what the best single token leaves; in place the columns correlate less
    than 0.98.
    """
    at = np.flatnonzero((c.places >= 2) & (c.places < c.n[c.rows] - 2))
    if len(at) < 500 or not 0 < correlation(c.x, c.y) < 0.98:
        return np.zeros(len(c.x), np.bool_)
    rows, n = c.rows[at], np.maximum(np.bincount(c.rows[at]), 1)
    columns = np.stack([c.x[at], *(c.y[at + k] for k in range(-2, 3)), c.x[at - 1]])
    x, *terms = (column - (np.bincount(rows, column) / n)[rows] for column in columns)
    terms = np.stack(terms)
    products, squares = terms @ x, x @ x
    left = squares - np.linalg.lstsq(terms @ terms.T, products)[0] @ products
    best = (products**2 / np.maximum((terms * terms).sum(axis=1), 1e-12)).max()
    return np.full(len(c.x), left <= min(0.05 * squares, 0.1 * (squares - best)))


def by_length(c: Column) -> Flags:
    """Most rows are the other column times a factor of their own below 1/4, which no temperature gives, nearly."""
    xx, xy, yy = (c.sums(product) for product in (c.x * c.x, c.x * c.y, c.y * c.y))
    hit = (xx * yy - xy**2 < 0.02 * xx * yy) & (4 * np.abs(xy) < yy) & (c.sums(c.y < UNSURE) >= LONG)
    return c.differ(hit & (2 * hit.sum() > len(hit)))


ExactFact = tuple[str, Certainty, Callable[[Column], Flags], str]
FACTS: tuple[ExactFact, ...] = (
    ("repeated_values", "proven", again_and_again, "{x} has one value, or a few, again and again"),
    ("derived_values", "proven", running, "{x} is a running total or a running mean"),
    ("repeated_values", "proven", by_id, "{x} has one value for each token id"),
    ("derived_values", "proven", ranks, "{x} holds whole numbers or their logarithms, as ranks are"),
    ("repeated_values", "proven", few, "{x} has only a few different values"),
    ("repeated_values", "proven", of_other_rows, "{x} has the values of another row"),
    ("repeated_values", "proven", lambda c: tied(c, c.before, c.before, 0.2), "{x} repeats the value before"),
    ("repeated_values", "proven", lambda c: tied(c, c.before, c.after, 0.2), "{x} lies between its neighbours"),
    ("derived_values", "proven", on_a_line, "{x} is exactly {line}"),
    (FLOOR, "proven", floor, "the smallest values of {x} are all exactly {low:.10g} (the next one is {above:.4g})"),
    (ZEROS, "proven", zeros, "{x} holds no value (0.0) on {share} of the tokens, also where {y} is low"),
    ("derived_values", "likely", of_neighbours, "{x} follows from {y} at several tokens, as a smoothed column does"),
    ("derived_values", "likely", by_length, "{x} is nearly {y} times one factor of the row, as divided by its length"),
)


def exact_facts(sample: RowSample) -> tuple[AnomalyFinding, ...]:
    """What the columns of a sample of rows show: each name once, of the first column that shows it.

    Only the first fact of whole rows is told, because it makes others hold.  The column that shows it is not searched
    for floors and zeros, and a floor or zeros that were found end the search for facts of rows.
    """
    n_begun = max(1, int(np.searchsorted(offsets_of(sample.n_valid), MOST_FOR_ROW_FACTS, side="right")) - 1)
    every, begun = list(_columns(sample)), list(_columns(sample.rows(np.arange(sample.n_rows)[:n_begun])))
    found: dict[str, AnomalyFinding] = {}
    for fact in FACTS:
        name, _, test, _ = fact
        of_tokens = name in (FLOOR, ZEROS)
        for c in every if of_tokens else () if found else begun:
            if name not in found and np.count_nonzero(hit := test(c)) >= (3 if of_tokens else MANY):
                found[name] = _finding(c, hit, fact)
                every = every if of_tokens else [other for other in every if other.name != c.name]
    return tuple(found.values())


def copied_rows(sample: RowSample) -> Iterator[Fact]:
    """How many rows without ids are copies of others."""
    again = np.flatnonzero((sample.keys[1:] == sample.keys[:-1]) & (sample.n_valid[1:] >= LONG) & (sample.ids[1:] == 0))
    arrays = ((sample.rollout, sample.n_valid), (sample.train, sample.n_valid), (sample.token_ids, sample.n_tokens))
    lists = [(values, offsets_of(n)) for values, n in arrays if values is not None]
    rows = [
        tuple(x[at[i] : at[i + 1]].tobytes() for x, at in lists)
        for i in unique_values(np.concatenate([again, again + 1])).tolist()
    ]
    if n := len(rows) - len(set(rows)):
        words = "are copies of others: their tokens and both columns are equal to the last bit"
        yield Fact(COPIES, f"{n:,} of {sample.n_rows:,} rows {words}.")


def _columns(sample: RowSample) -> Iterator[Column]:
    """Every policy's column, in the rows that have it, beside the one that it is compared with."""
    (rollout, train, _), x, y = sample.columns, sample.scored, sample.train
    policies = [(sample, rollout, x, train, y), (sample, train, y, rollout, x)]
    if sample.third is not None and len(x):
        known = np.logical_and.reduceat(np.isfinite(sample.third), starts_of(sample.n_valid))
        part, (name,) = sample.rows(np.flatnonzero(known)), {*sample.legs} - {rollout, train}
        policies += [] if part.third is None else [(part, name, part.third, train, part.train)]
    for part, name, x, other, y in policies:
        if len(x):
            yield Column(sample=part, name=name, x=x, other=other, y=y, n=part.n_valid)


def _finding(c: Column, hit: Flags, fact: ExactFact) -> AnomalyFinding:
    """With how many tokens show it, and the first row and token."""
    sample, rows, (name, certainty, _, words) = c.sample, unique_values(c.rows[hit]), fact
    row = rows[np.lexsort((sample.numbers[rows], sample.starts[rows], sample.files[rows]))[0]]
    token = int((hit & (c.rows == row)).argmax())
    if sample.valid is not None:
        token = int(np.flatnonzero(sample.valid)[token])
    at, slope, shift = resolved(sample.place(int(row))), *(round(of_line, 4) for of_line in c.line)
    line = f"{slope:.4g} * {c.other} {'-+'[shift > 0]} {abs(shift):.4g}".removeprefix("1 * ").removesuffix(" - 0")
    low, above = c.x.min(), c.x[c.x > c.x.min()].min(initial=0)
    shown = words.format(x=c.name, y=c.other, line=line, low=low, above=above, share=percent(hit.mean()))
    n = f"{int(hit.sum()):,} of {len(hit):,} tokens in {len(rows):,} of {sample.n_rows:,} rows"
    first = f"first in {at.unit} {at.number}, token {token - starts_of(sample.n_tokens)[row]}"
    return AnomalyFinding(
        name=name,
        path=at.path,
        evidence=f"{shown}: {n}, {first}",
        fix=ALL_CAUSES[name].advice,
        n_files=len(unique_values(sample.files[rows])),
        certainty=certainty,
    )


RATIO_MEAN = "ratio_mean"
STANDARD_ERRORS = 5.0
"""How many standard errors a mean must lie away.  Dumps without such a fault reach 3.6, with one 5 to 31."""
LEAST_EXCESS = 0.001
"""What the storage of log-probs may move a mean by."""
FEWEST_SEQUENCES = 20
"""Distinct sequences that it takes to know a standard error."""
ROUNDING_OF_ERROR = 1e-12
"""A standard error below this share of its mean is rounding."""
BUCKETS = 256
TOO_LOW = (
    "Training gives probability to tokens that the rollout column rules out. The rollout column holds log-probs after "
    "top-p, top-k or min-p, or training's softmax runs over more tokens than rollout can draw."
)
TOO_HIGH = (
    "The rollout column is not the distribution that the tokens were drawn from: it is the wrong column, swapped, "
    "scaled after the softmax, or of tokens that were stored only in part."
)


@frozen
class Mean:
    """A mean over rollouts with its 95% interval."""

    value: float
    low: float
    high: float

    def errors_above(self, true: float) -> float:
        """Distance in standard errors, of which a 95% interval is 3.92 wide.

        0 where the error is 0 but for rounding, as of ratios that are all the same.
        """
        error = (self.high - self.low) / 3.92
        return (self.value - true) / error if error > ROUNDING_OF_ERROR * max(abs(self.value), abs(true)) else 0.0


@np.errstate(all="ignore")
def impossible_ratio(sample: RowSample) -> Impossible | None:
    """The mean ratio of a sample, where it proves that a column is not what it is taken for."""
    lengths, rows = sample.n_valid, gap_totals(sample)
    # A grid rounds sure tokens to one side, to 0.
    rounding = math.expm1(first_step(sample.rollout) + first_step(sample.train))
    if not len(lengths) or abs(rows.ratios[0].sum() / lengths.sum()) < max(LEAST_EXCESS, rounding):
        return None
    if DistinctKeys.of(rows.keys, FEWEST_SEQUENCES).exact:
        return None
    # A rollout of few tokens is known by what tells rows apart.
    rollouts = np.where(lengths < bootstrap.TELLING_TOKENS, rows.keys, rollout_keys(sample.rollout, lengths))
    buckets = (rollouts % np.uint64(BUCKETS)).astype(np.int64)
    # rho^2 - 1 = (rho - 1)^2 + 2 (rho - 1)
    of_rows = (lengths, rows.ratios[0], rows.ratios[1] + 2 * rows.ratios[0])
    n, by_bucket, squares = (np.bincount(buckets, each, BUCKETS).astype(np.float64) for each in of_rows)
    mean = _mean(n, by_bucket, 1.0)
    shape = limit = None
    if mean is not None and mean.value > 1:
        tail = Tail.of([sample.train - sample.scored.astype(np.float64)], WHOLE_SIZE)
        shape, limit = tail.pareto_k, tail.limit
    return proof(mean, _mean(n, squares, 0.0), shape=shape, limit=limit)


def proof(mean: Mean | None, square: Mean | None, *, shape: float | None, limit: float | None) -> Impossible | None:
    """What the mean of rho and that of rho^2 - 1 prove; None of what float64 does not hold.

    shape, limit: of the tail of rho, and the largest at which its mean can be trusted.
    """
    if mean is None or abs(mean.value - 1) < LEAST_EXCESS:
        return None
    away, interval = mean.errors_above(1.0), (mean.low, mean.high)
    if away < -STANDARD_ERRORS and square is not None and square.errors_above(0.0) < -STANDARD_ERRORS:
        return Impossible(RATIO_MEAN, mean.value, interval, TOO_LOW)
    if away > STANDARD_ERRORS and shape is not None and limit is not None and shape <= limit:
        return Impossible(RATIO_MEAN, mean.value, interval, TOO_HIGH)
    return None


def _mean(n: Floats, x: Floats, base: float) -> Mean | None:
    """base + sum x / sum n, with its interval of Student's t; None where float64 does not hold the squares.

    The standard error of a ratio of sums over m buckets that hold a token:
    sqrt(m / (m - 1) sum (x_g - mean n_g)^2) / sum n.
    """
    x, n = x[n > 0], n[n > 0]
    if len(n) < 2:
        return None
    mean = float(x.sum() / n.sum())
    reach = t_quantile(0.975, len(n)) * math.sqrt(float(((x - mean * n) ** 2).sum())) / float(n.sum())
    return Mean(base + mean, base + mean - reach, base + mean + reach) if math.isfinite(reach) else None
