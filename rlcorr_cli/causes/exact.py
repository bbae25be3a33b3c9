"""What a column of log-probs shows by itself, bit for bit, before any statistics: values that no policy gives.

Each fact is sought in every policy's column of the sample of rows, against another policy's, and holds whatever its
size.  What clean dumps have is left alone: ties on coarse grids, rows that begin alike, copies of rows, small
vocabularies whose contexts come again, loops of sure tokens, and 0.0 where probability 1 rounds to it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from math import exp, floor, log, log2

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.anomalies import FACTORS, SCALED_WITHIN, UNSURE, correlation
from rlcorr_cli.causes.diagnosis import AnomalyFinding, Fact
from rlcorr_cli.causes.table import ANOMALIES
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.row_places import resolved
from rlcorr_cli.totals.lists import offsets_of
from rlcorr_cli.totals.row_sample import RowSample

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Found = tuple[Flags, str] | None
"""The tokens that show a fact, bool[V], and the clause that says it; None where it does not hold."""
Test = tuple[str, Callable[["Column"], Found]]

COPIES = "copies"
"""The fact that rows are copies of others."""
MOST_TOKENS = 1 << 15
"""Facts of whole rows are sought in so many tokens of the sample; floors and zeros in all."""
HIGHEST_FLOOR = -1.0
NEIGHBOURS, DISTINCT = 64, 0.8
"""Where fewer than DISTINCT of so many values above the floor differ, ties are natural."""
APART, WIDE, WIDER, STEPS = 1.0, 2.0, 20.0, 16
"""Nats from the floor to the next value: of SOME tokens, where ties are natural (and STEPS of bf16), and of A_FEW."""
A_FEW, SOME, MANY = 3, 5, 16
"""Tokens on the floor: MANY where the next value is near."""
IMPOSSIBLE = -20.0
"""550,000 tokens and 150,000 ids give 170 of them so small a log-prob at most, and no two the same."""
MIN_ZEROS, RULED_OUT = 4, -2.0
SURE, MIN_SURE, LEFT_NONZERO = -0.01, 10, 0.05
AGREEING, MIN_AGREEING = 0.75, 16
"""Zeros that no truncation makes: below RULED_OUT in the other column, while sure tokens are left other than 0, in rows
whose other tokens agree (rows that do not belong together have zeros anywhere)."""
LONG, MIN_ROWS, EVERY_ROW = 8, 2, 8
"""Tokens of a row that is judged; rows that show it, and where the other column shows it, too, all of so many."""
MANY_ROWS = 4
"""Rows that begin alike, half of all together: fewer were joined wrongly, which `mispaired_rows` names."""
DIFFERENT = 0.25
"""The mean difference, in nats, that two policies of the same tokens do not have."""
REPEATS, CHANCE = 0.2, 4.0
"""The share of values that equal the one before, and how many times that of any two values, or of the other column."""
FEWEST, MIN_VALUES, NEARLY_ALL = 16, 500, 0.98
UNLIKE, EXPLAINED, LEFT = 0.98, 0.95, 0.1
"""Where columns correlate less than UNLIKE in place, neighbours explain EXPLAINED of the variance, and leave LEFT of
what the best single token leaves."""
EXACT, LEAST_SPREAD = 1e-4, 1e-3
"""The distance from a line, in deviations; nats."""
FARTHEST_RANK = -log(1000)
IN_LINE, SCALED = 0.02, 4
"""1 - r² around 0 within a row; the least factor, which no temperature gives."""


@frozen(kw_only=True)
class Column:
    """One policy's log-probs of the valid tokens of a sample's rows, f64[V], and another policy's, by their names."""

    sample: RowSample
    name: str
    values: Floats
    other_name: str
    other: Floats

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Of rows, none of them empty."""
        return offsets_of(self.sample.n_valid)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each token."""
        return np.repeat(np.arange(self.sample.n_rows), self.sample.n_valid)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The place of each token in its row."""
        return np.arange(len(self.values)) - self.offsets[self.rows]

    @cached_property
    def ids(self) -> NDArray[np.int64] | None:
        """The id of each token."""
        ids, valid = self.sample.token_ids, self.sample.valid
        return ids if ids is None or valid is None else ids[valid]

    def count(self, hit: Flags) -> NDArray[np.int64]:
        """How many tokens of each row are hit."""
        return np.add.reduceat(hit, self.offsets[:-1], dtype=np.int64)

    def of_rows(self, hit: Flags, words: str) -> Found:
        """That rows show something; None of fewer than MIN_ROWS."""
        in_rows = f"{self.name} {words} in {int(hit.sum()):,} of {len(hit):,} rows"
        return (hit[self.rows], in_rows) if hit.sum() >= MIN_ROWS else None


def floor_value(c: Column) -> Found:
    """The smallest values are one, bit for bit, after different contexts.

    A token of probability p is drawn N p times of N, so an atom of more tokens is none of a small vocabulary.
    """
    low = float(c.values.min())
    hit = c.values == low
    n = int(hit.sum())
    if low > HIGHEST_FLOOR or not A_FEW <= n < len(hit):
        return None
    rest = c.values[~hit]
    above, at = float(rest.min()), np.flatnonzero(hit)
    before = np.where(c.places[at] > 0, c.values[at - 1], 0.0)
    contexts = np.unique(np.stack([c.places[at], before, c.sample.prompts[c.rows[at]]]), axis=1).shape[1]
    near = np.partition(rest, min(NEIGHBOURS, len(rest)) - 1)[:NEIGHBOURS]
    if len(np.unique(near)) < DISTINCT * len(near):
        drawn = len(c.values) * exp(max(low, float(c.other[hit].max())))
        apart = above - low >= max(WIDE, STEPS * 2.0 ** (floor(log2(-low)) - 7))
        fewest = SOME if low <= IMPOSSIBLE else SOME + 4 * drawn
    else:
        apart, fewest = True, A_FEW if above - low >= WIDER else SOME if above - low >= APART else MANY
    if not apart or n < fewest or contexts < min(n, SOME):
        return None
    return hit, f"the smallest values of {c.name} are all exactly {low:.10g} (the next one is {above:.4g})"


def unscored_zeros(c: Column) -> Found:
    """0.0 at all levels of the other column.  A last token's has a cause of its own."""
    zero = c.values == 0
    if not zero.any():
        return None
    sure = c.other > SURE
    wrong = zero & (c.other < RULED_OUT)
    wrong[c.offsets[1:] - 1] = False
    if wrong.sum() < MIN_ZEROS or (sure.sum() >= MIN_SURE and (~zero & sure).sum() < LEFT_NONZERO * sure.sum()):
        return None
    scored = ~zero & (c.count(wrong) > 0)[c.rows]
    if scored.sum() >= MIN_AGREEING and correlation(c.values[scored], c.other[scored]) < AGREEING:
        return None
    words = f"{c.name} holds no value (0.0) on {percent(float(zero.mean()))} of the tokens, at all levels of"
    return zero, f"{words} {c.other_name}: tokens the engine did not score, such as accepted drafts"


def cycles(c: Column) -> Found:
    """Rows that repeat their first value, or their first few."""
    of_column, of_both, longer = (np.zeros(c.sample.n_rows, np.bool_) for _ in range(3))
    for row in np.flatnonzero(
        (c.sample.n_valid >= LONG) & (2 * c.count(c.values < UNSURE) >= c.sample.n_valid)
    ).tolist():
        here = slice(c.offsets[row], c.offsets[row + 1])
        x, y = c.values[here], c.other[here]
        periods = (np.flatnonzero(x[1 : len(x) // 2 + 1] == x[0])[:4] + 1).tolist()
        if period := next((by for by in periods if (x[by:] == x[:-by]).all()), 0):
            of_both[row], longer[row] = True, period > 1
            of_column[row] = (y[period:] != y[:-period]).any() and np.abs(x - y).mean() > DIFFERENT
    hit = of_both if of_both.all() and len(of_both) >= EVERY_ROW else of_column
    hit = hit & ~(longer & (longer.sum() <= MIN_ROWS))  # rows that were joined wrongly may be filled up so
    return c.of_rows(
        hit, "has the same values again and again" if (longer & hit).any() else "has one value on all tokens"
    )


def same_lists(c: Column) -> Found:
    """Rows that begin as rows of other tokens do."""
    rows = np.flatnonzero(c.sample.n_valid >= LONG)
    at = c.offsets[rows][:, None] + np.arange(LONG)
    rows, at = (of[(c.values[at] < UNSURE).sum(axis=1) >= LONG / 2] for of in (rows, at))
    _, first, group, n = np.unique(c.values[at], axis=0, return_index=True, return_inverse=True, return_counts=True)
    others, many = at[first[group.ravel()]], n[group.ravel()] >= MANY_ROWS
    differ = many & (np.abs(c.other[at] - c.other[others]).mean(axis=1) > DIFFERENT)
    if 2 * many.sum() < c.sample.n_rows:
        return None
    if c.ids is not None:
        differ &= (c.ids[at] != c.ids[others]).any(axis=1)
    return c.of_rows(np.isin(np.arange(c.sample.n_rows), rows[differ]), "has the values of another row")


def held_values(c: Column) -> Found:
    """Values that stay for several tokens, or lie on the line between those around them."""

    def follow(x: Floats) -> Flags:
        stays, line = np.diff(x, prepend=np.nan) == 0, np.zeros(len(x), np.bool_)
        line[1:-1] = np.abs(x[2:] - 2 * x[1:-1] + x[:-2]) <= 1e-6 * np.abs(x[1:-1])
        return (stays | (line & ~stays)) & (c.places > 0) & (x < UNSURE)

    unsure, hit = c.values[c.values < UNSURE], follow(c.values)
    if len(unsure) < NEIGHBOURS or hit.sum() < REPEATS * len(unsure) or hit.sum() < CHANCE * follow(c.other).sum():
        return None
    by_chance = np.square(np.unique(unsure, return_counts=True)[1] / len(unsure)).sum()
    if hit.sum() < CHANCE * by_chance * len(unsure):
        return None
    return hit, f"{c.name} repeats the value before or lies between its neighbours"


def few_values(c: Column) -> Found:
    """A few values, which are not those of a few contexts, or one for each token id."""
    n = len(np.unique(c.values[:MIN_VALUES]))
    if len(c.values) >= MIN_VALUES and n <= FEWEST and np.abs(c.values - c.other).mean() > DIFFERENT:
        n = len(np.unique(c.values))
        if n <= FEWEST and len(np.unique(c.other)) >= 10 * n:
            return np.ones(len(c.values), np.bool_), f"{c.name} has only {n} different values"
    if c.ids is None:
        return None
    order = np.lexsort((c.ids,))
    again = np.append(False, c.ids[order][1:] == c.ids[order][:-1]) & (c.values[order] < UNSURE)
    one, other = order[np.flatnonzero(again)], order[np.flatnonzero(again) - 1]
    if len(one) < NEIGHBOURS or (c.values[one] == c.values[other]).mean() < NEARLY_ALL:
        return None
    differ = np.abs(c.other[one] - c.other[other]).mean() > DIFFERENT
    return (np.isin(np.arange(len(c.values)), one), f"{c.name} has one value for each token id") if differ else None


def running_total(c: Column) -> Found:
    """Values, or values times their number, that only fall (from the end: only rise) inside rows."""
    changes = np.diff(c.values, prepend=0.0) != 0
    for x, kind in (
        (c.values, "total"),
        (c.values * (c.places + 1), "mean"),
        (c.values * (c.sample.n_valid[c.rows] - c.places), "mean"),
    ):
        step = np.diff(x, prepend=0.0) * (c.places > 0)
        step[np.abs(step) <= 1e-6 * np.abs(x)] = 0
        for steps, way in ((step, "falls"), (-step, "rises")):
            hit = (c.count(steps > 0) == 0) & (c.count((steps < 0) & changes) >= (LONG if x is c.values else MANY))
            if found := c.of_rows(hit, f"only {way} from token to token, as a running {kind} does,"):
                return found
    return None


def of_neighbours(c: Column) -> Found:
    """A linear function of the other column at several tokens, and of the value before: a smoothed column, differences.

    x_t = sum_k w_k y_(t+k) + w x_(t-1) + w_0, k = -2 .. 2, by least squares.
    """
    at = np.flatnonzero((c.places >= 2) & (c.places < c.sample.n_valid[c.rows] - 2))
    if len(at) < MIN_VALUES or not 0 < correlation(c.values, c.other) < UNLIKE:
        return None
    x = c.values[at] - c.values[at].mean()
    terms = np.stack([*(c.other[at + k] for k in range(-2, 3)), c.values[at - 1]])
    terms -= terms.mean(axis=1, keepdims=True)
    products, squares = terms @ x, float(x @ x)
    fit = np.linalg.lstsq(terms @ terms.T, products)[0]
    left = squares - float(fit @ products)
    best = float((products**2 / np.maximum((terms * terms).sum(axis=1), 1e-12)).max())
    if left > min((1 - EXPLAINED) * squares, LEFT * (squares - best)):
        return None
    words = f"{c.name} follows from {c.other_name} at several tokens, which explain {percent(1 - left / squares)} of it"
    return np.ones(len(c.values), np.bool_), words


def of_other(c: Column) -> Found:
    """The other column by a line that no engine's noise leaves, or ranks in its place."""
    x, y = c.values, c.other
    if len(x) < NEIGHBOURS or min(x.std(), y.std()) < LEAST_SPREAD:
        return None
    slope = float(np.cov(x, y)[0, 1] / y.var(ddof=1))
    shift = float(x.mean() - slope * y.mean())
    is_known = abs(shift) < EXACT and any(abs(slope / factor - 1) <= SCALED_WITHIN for factor in (1.0, *FACTORS))
    if not is_known and np.abs(x - slope * y - shift).max() < EXACT * x.std():
        line = f"{slope:.4g} * {c.other_name}{f' {shift:+.4g}' if abs(shift) > EXACT else ''}"
        return np.ones(len(x), np.bool_), f"{c.name} is exactly {line}"
    xx, xy, yy = (np.add.reduceat(product, c.offsets[:-1]) for product in (x * x, x * y, y * y))
    scaled = (xx * yy - xy**2 < IN_LINE * xx * yy) & (np.abs(xy) < yy / SCALED) & (c.sample.n_valid >= LONG)
    if 2 * scaled.sum() > c.sample.n_rows:
        return c.of_rows(scaled, f"is {c.other_name} times one factor of the row, as divided by its length,")
    unsure = (x < UNSURE) & (x > FARTHEST_RANK)
    for number in (np.exp(-x * unsure), x):
        whole = unsure & (np.abs(number - np.round(number)) < EXACT)
        if whole.sum() >= max(NEIGHBOURS, NEARLY_ALL * unsure.sum()) and np.abs(x - y).mean() > DIFFERENT:
            return whole, f"{c.name} holds whole numbers or their logarithms, as ranks are"
    return None


OF_TOKENS: tuple[Test, ...] = (("floor_value", floor_value), ("unscored_zeros", unscored_zeros))
OF_ROWS: tuple[Test, ...] = (
    ("derived_values", running_total),
    ("repeated_values", cycles),
    ("repeated_values", few_values),
    ("repeated_values", same_lists),
    ("repeated_values", held_values),
    ("derived_values", of_neighbours),
    ("derived_values", of_other),
)
"""Each with its name in ANOMALIES.  Of those of rows the first that holds is told: it makes others hold."""


def exact_facts(sample: RowSample) -> tuple[AnomalyFinding, ...]:
    """What the columns of a sample of rows show; one finding for each fact, of the first column that shows it."""
    n_begun = max(1, int(np.searchsorted(offsets_of(sample.n_valid), MOST_TOKENS, side="right")) - 1)
    every = list(_columns(sample))
    begun = every if n_begun >= sample.n_rows else list(_columns(sample.rows(np.arange(n_begun))))
    of_rows = ((name, c, found) for name, test in OF_ROWS for c in begun if (found := test(c)))
    first = [next(((name, c, found) for c in every if (found := test(c))), None) for name, test in OF_TOKENS]
    return tuple(_finding(*each) for each in (*first, next(of_rows, None)) if each is not None)


def copied_rows(sample: RowSample) -> Iterator[Fact]:
    """How many rows without ids are copies of others."""
    if sample.ids.any():
        return
    rows: Counter[tuple[bytes, ...]] = Counter()
    again = np.flatnonzero((sample.keys[1:] == sample.keys[:-1]) & (sample.n_valid[1:] >= LONG))
    for row in np.union1d(again, again + 1).tolist():
        one = sample.rows(np.array([row]))
        ids = b"" if one.token_ids is None else one.token_ids.tobytes()
        rows[one.rollout.tobytes(), one.train.tobytes(), ids] += 1
    if n := rows.total() - len(rows):
        words = "are copies of others: their tokens and both columns are equal to the last bit"
        yield Fact(COPIES, f"{n:,} of {sample.n_rows:,} rows {words}.")


def _columns(sample: RowSample) -> Iterator[Column]:
    """Every policy's column, beside the one that it is compared with."""
    rollout, train, _ = sample.columns
    if sample.n_rows:
        x, y = (values.astype(np.float64) for values in (sample.scored, sample.train))
        of_both = Column(sample=sample, name=rollout, values=x, other_name=train, other=y)
        yield of_both
        yield replace(of_both, name=train, values=y, other_name=rollout, other=x)
    if sample.third is not None and sample.n_rows:
        known = np.flatnonzero(np.minimum.reduceat(np.isfinite(sample.third), offsets_of(sample.n_valid)[:-1]))
        (name,), of_rows = (leg for leg in sample.legs if leg not in (rollout, train)), sample.rows(known)
        if len(known) and of_rows.third is not None:
            x, y = (values.astype(np.float64) for values in (of_rows.third, of_rows.train))
            yield Column(sample=of_rows, name=name, values=x, other_name=train, other=y)


def _finding(name: str, column: Column, found: tuple[Flags, str]) -> AnomalyFinding:
    """With how many tokens show it, and the first row and token."""
    hit, words = found
    sample, rows = column.sample, np.unique(column.rows[hit])
    row = int(rows[np.lexsort((sample.numbers[rows], sample.starts[rows], sample.files[rows]))[0]])
    place = int(hit[column.offsets[row] :].argmax())
    start = int(sample.n_tokens[:row].sum())
    if sample.valid is not None:
        place = int(np.flatnonzero(sample.valid[start : start + int(sample.n_tokens[row])])[place])
    at = resolved(sample.place(row))
    evidence = f"{words}: {int(hit.sum()):,} of {len(hit):,} tokens, first in {at.unit} {at.number}, token {place}"
    advice = next(row.advice for row in ANOMALIES if row.name == name)
    return AnomalyFinding(
        name=name, path=at.path, evidence=evidence, fix=advice, n_files=len(np.unique(sample.files[rows]))
    )
