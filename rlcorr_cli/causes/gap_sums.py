"""A sample of rows -> GapTotals: the statistics that tell why two policies differ.

A row is cut into `Stretches`, in which all tokens stand in one part, one turn and one bin of their place.  What depends
on where tokens stand is summed over each stretch, whose tokens lie side by side, and folded from there: by row, part,
turn, place and level, so that a column of levels costs a row's work and not a token's.  What depends on surprise is
summed once into cells: kind of token, the jackknife's group of its row, whether v lies within 1 of 0, above or below,
and bin of u.  Both are folded to what GapTotals holds.

TokenGaps: what follows from the two log-probs of tokens; the letters a, b, e, x, u, v, d are defined in causes/gap.py.
GapRows: tokens and stretches of some rows, with each row's key, prompt and advantage.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes import gap
from rlcorr_cli.causes.gap import BODY, GROUPS, KINDS, N_SURPRISE, ODD, PARTS, TOKEN_SUMS, GapTotals, Levels, Vocabulary
from rlcorr_cli.causes.numbers import once
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.arrays import EXP_LIMIT, Segments, concatenated
from rlcorr_cli.totals.flat import Flags, Floats, Ints, first_of_each, offsets_of, ranges, starts_of
from rlcorr_cli.totals.row_sample import RowSample

EARLY, AFTER_GAP = 3, 3
"""How many tokens after a row's first are "early", and how many after one of part "gap" are "after_gap"."""


@frozen(kw_only=True)
class Stretches:
    """Valid tokens that stand side by side in one row, part, turn and bin of the place: i64[S] each, none empty.

    start: the first token of each, among the valid ones; n: how many there are.  part: index into PARTS, never "odd",
    which is of whole rows.  turn: how many masked stretches lie before it, after the row's first valid token.  index:
    the bin (INDEX_EDGES) of its tokens' place, counted from the row's first valid token, masked ones included.
    unit: its turn among those of all rows; inner: bool[S], whether it stood in the body of a row of this turn alone.
    """

    start: Ints
    n: Ints
    row: Ints
    part: Ints
    turn: Ints
    index: Ints
    unit: Ints
    inner: Flags


def stretches_of(valid: Flags | None, n_valid: Ints, n_tokens: Ints) -> Stretches:
    """Of all valid tokens of rows that have one each.  valid: of all tokens, None where all are; n_valid, n_tokens: of
    each row."""
    firsts, start, n, turn_row = starts_of(n_valid), starts_of(n_valid), n_valid, np.arange(len(n_valid))
    turn = place = np.zeros_like(n_valid)
    if valid is not None:
        of_all = starts_of(n_tokens)
        begins = valid & ~np.concatenate([[False], valid[:-1]])
        begins[of_all] = valid[of_all]
        at = np.flatnonzero(begins)
        n = np.add.reduceat(valid, at, dtype=np.int64)
        start = starts_of(n)
        first_turn = np.searchsorted(start, firsts)
        turn_row = np.searchsorted(firsts, start, side="right") - 1
        turn, place = np.arange(len(at)) - first_turn[turn_row], at - at[first_turn[turn_row]]
    # A stretch ends with the first token of a turn, with the three after it, before its last one, and where the next
    # bin of the place begins.
    low, high = (np.searchsorted(gap.INDEX_EDGES, each) for each in (place + 1, place + n))
    edges = np.repeat(start - place, high - low) + np.array(gap.INDEX_EDGES)[ranges(low, high - low)]
    ends, lasts = firsts + n_valid, start + n - 1
    later = np.concatenate([start + 1, start + 1 + AFTER_GAP])
    later = later[later < np.tile(ends[turn_row], 2)]
    begins = np.zeros(int(ends[-1]), np.int8)
    for at in (later, edges, lasts, start):
        begins[at] = 1 + (at is start)
    cuts = np.flatnonzero(begins)
    unit = np.cumsum(begins[cuts] == 2) - 1
    row, turn, since = turn_row[unit], turn[unit], cuts - start[unit]
    in_row = cuts - firsts[row]
    # Later assignments win.
    part = np.full(len(cuts), BODY)
    part[in_row <= EARLY] = PARTS.index("early")
    part[(turn > 0) & (since <= AFTER_GAP)] = PARTS.index("after_gap")
    part[(turn > 0) & (since == 0)] = PARTS.index("gap")
    part[cuts == ends[row] - 1] = PARTS.index("last")
    part[in_row == 0] = PARTS.index("first")
    return Stretches(
        start=cuts,
        n=np.diff(cuts, append=int(n_valid.sum())),
        row=row,
        part=part,
        turn=turn,
        index=np.searchsorted(gap.INDEX_EDGES, place[unit] + since, side="right") - 1,
        unit=unit,
        inner=(since > EARLY) & (cuts != lasts[unit]),
    )


RATIO_LIMIT = 20.0
"""Largest |l| in a mean of ratios, which no single token may dominate."""
LEAST_E = 1e-5
"""The least e that l is divided by."""
GRADED_E = 1e-4
"""From this e on, r is trusted and counted."""


STEPS = 4
"""Steps of a unit of u, of which each edge of a bin is a whole number."""
_STEPS = np.concatenate([np.arange(64 * STEPS), np.arange(-64 * STEPS, 0)])
SURPRISE_BINS = (np.searchsorted(gap.SURPRISE_EDGES, _STEPS / STEPS, side="right") - 1).astype(np.int16)
"""The bin of each step of u, which lies within LOGP_RANGE; steps below 0 count from the end, as NumPy takes them."""
SURPRISE_BINS[SURPRISE_BINS < 0] = gap.BELOW
SURPRISE_BINS[int(gap.FARTHEST * STEPS) <= _STEPS] = gap.ABOVE
LEAST_MISS, MOST_MISS = (-math.expm1(logp) for logp in reversed(gap.LOGP_RANGE))
"""1 - p at the ends of the range that log-probs are held to for log-odds."""


@frozen(kw_only=True)
class TokenGaps:
    """Of each token, [V], f64 but for flags and bins: the letters of causes/gap.py.

    b, a: the log-probs.  v: logit q.  d: v - u.  inside: b < 0, and both |u| and |v| small enough.  surprise: the bin
    of u by gap.SURPRISE_EDGES; higher bins are surer tokens, CERTAIN those with b >= 0.  columns: what is summed, by
    name: for TOKEN_SUMS, OF_STRETCHES and SampleGaps.
    """

    b: Floats
    a: Floats
    v: Floats
    d: Floats
    inside: Flags
    surprise: NDArray[np.int16]
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, b: Floats, a: Floats) -> "TokenGaps":
        """Of the two log-probs of each token, f64[V]."""
        log_ratio = a - b
        size = np.abs(log_ratio)
        far = np.flatnonzero(size > RATIO_LIMIT)
        held = np.clip(log_ratio, -EXP_LIMIT, EXP_LIMIT) if len(far) else log_ratio
        rho_minus_1 = np.expm1(held)
        # 1 - p and 1 - q, with q = p e^l, which spares an exponential: 1 - p - p (e^l - 1).
        miss = -np.expm1(b)
        other = miss - (1 - miss) * rho_minus_1
        other[far] = -np.expm1(a[far])
        e = np.maximum(miss, other)  # 1 - min(p, q)
        graded = e > GRADED_E
        # ln|r| with r = l / max(e, LEAST_E)
        x = np.clip(np.log(size / np.maximum(e, LEAST_E)), *gap.X_RANGE)
        u, v = _log_odds(b, miss), _log_odds(a, other)
        d = v - u
        certain = b >= 0
        inside = ~certain & (np.abs(u) < gap.FARTHEST) & (np.abs(v) < gap.FARTHEST)
        # All edges are multiples of a step: a look into a table costs a third of a search.
        surprise = SURPRISE_BINS.take(np.floor(u * STEPS).astype(np.int64), mode="wrap")
        surprise[certain] = gap.CERTAIN
        # Means of ratios are of l within RATIO_LIMIT; of e^-l - 1, 1 - 1 / rho keeps the digits down to e^-5.
        ratio, inverse = rho_minus_1, -rho_minus_1 / (1 + rho_minus_1)
        small = np.flatnonzero(log_ratio < -5)
        inverse[small] = np.expm1(-log_ratio[small])
        if len(far):
            held_ratio = np.clip(log_ratio, -RATIO_LIMIT, RATIO_LIMIT)
            ratio, inverse = np.expm1(held_ratio), np.expm1(-held_ratio)
        inside_u, inside_d = u * inside, d * inside
        u2, ud, d2 = inside_u * inside_u, inside_u * inside_d, inside_d * inside_d
        k3 = rho_minus_1 - held  # e^l - 1 - l, Schulman's estimate of KL(rollout || train)
        columns = {"l": log_ratio, "l2": log_ratio * log_ratio, "k3": k3, "e2": e * e}
        columns |= {"u": inside_u, "d": inside_d, "u2": u2, "ud": ud, "d2": d2}
        # Sums of what x has above its least value tell rows that are equal to that apart from no other.
        columns |= {"n_graded": graded, "x_above": (x - gap.X_RANGE[0]) * graded, "x2": x * x * graded}
        columns |= {"n_far": size > LN_2, "n_certain": certain, "n_positive": log_ratio > 0, "n_differing": size > 0}
        columns |= {"rho_minus_1": rho_minus_1, "held_rho_minus_1": ratio, "held_inverse_minus_1": inverse}
        return cls(b=b, a=a, v=v, d=d, inside=inside, surprise=surprise, columns=columns)

    def spread_bin(self) -> Ints:
        """The bin of d."""
        steps = np.log(np.abs(self.d) / gap.SPREAD_LEAST) / math.log(gap.SPREAD_FACTOR)
        steps = np.clip(np.floor(steps), -1, gap.SPREAD_STEPS - 1) + 1
        return gap.SPREAD_STEPS + np.copysign(steps, self.d).astype(np.int64)

    def certain_bin(self) -> Ints:
        """The bin of ln(-a), with N_CERTAIN added where b < 0."""
        steps = np.floor((np.log(-np.minimum(self.a, 0.0)) - gap.CERTAIN_LEAST) / gap.CERTAIN_STEP)
        return (self.b < 0) * gap.N_CERTAIN + np.clip(steps + 1, 0, gap.N_CERTAIN - 1).astype(np.int64)


def logit(logp: Floats) -> Floats:
    """log(p / (1 - p)), from log-probs clipped to gap.LOGP_RANGE."""
    return _log_odds(logp, -np.expm1(logp))


def _log_odds(logp: Floats, miss: Floats) -> Floats:
    """The same.  miss: 1 - p."""
    return np.clip(logp, *gap.LOGP_RANGE) - np.log(np.clip(miss, LEAST_MISS, MOST_MISS))


def sums_at(at: NDArray[np.signedinteger], n: int, columns: Iterable[NDArray[Any]]) -> Floats:
    """Sums of columns [V] at each of 0 .. n - 1: f64[n, K]."""
    # Without a value NumPy counts in integers, weights or not.
    return np.stack([np.bincount(at, column, n) for column in columns], axis=-1).astype(np.float64, copy=False)


@frozen(kw_only=True)
class GapRows:
    """R rows, none empty, with their tokens.

    lengths: valid tokens of each, i64[R].  values: of the tokens; an unscored one has training's log-prob on both
    sides.  keys: u64[R].  prompts: i64[R], a bucket (of FIRST_BUCKETS) of the prompt's hash, or of the row's key where
    it is unknown.  advantages: f64[R], rewards where there are none, NaN without either.  levels: of each column, the
    code of each row, i64[R], and what codes stand for.  token_ids: i64[V].  again: bool[V], whether the id came before
    in its row.  Both are None without ids.  group: the jackknife's group of each row, i64[R].
    """

    lengths: Ints
    values: TokenGaps
    stretches: Stretches
    keys: NDArray[np.uint64]
    prompts: Ints
    advantages: Floats
    levels: Mapping[str, tuple[Ints, tuple[object, ...]]]
    token_ids: Ints | None
    again: Flags | None
    group: Ints

    @classmethod
    def of(cls, sample: RowSample, first: int, last: int) -> "GapRows":
        """Rows `first` to `last - 1` of a sample."""
        rows, lengths, n_tokens = slice(first, last), sample.n_valid[first:last], sample.n_tokens[first:last]
        start, of_all = int(sample.n_valid[:first].sum()), int(sample.n_tokens[:first].sum())
        tokens, every = slice(start, start + int(lengths.sum())), slice(of_all, of_all + int(n_tokens.sum()))
        scored, train = sample.scored[tokens], sample.train[tokens]
        ids = sample.ids[rows] if sample.ids.any() else None
        keys = bootstrap.row_keys(scored, Segments(offsets_of(lengths)), ids)
        prompts = np.where(sample.prompts[rows] == 0, keys, sample.prompts[rows])
        valid = None if sample.valid is None else sample.valid[every]
        token_ids = again = None
        if sample.token_ids is not None:
            token_ids, of_valid = sample.token_ids[every], slice(None) if valid is None else valid
            again = came_before(token_ids, offsets_of(n_tokens))[of_valid]
            token_ids = token_ids[of_valid]
        return cls(
            lengths=lengths,
            values=TokenGaps.of(scored.astype(np.float64), train.astype(np.float64)),
            stretches=stretches_of(valid, lengths, n_tokens),
            keys=keys,
            prompts=(prompts % np.uint64(gap.FIRST_BUCKETS)).astype(np.int64),
            advantages=sample.advantages[rows],
            levels={name: (column.codes[rows], column.values) for name, column in sample.levels.items()},
            token_ids=token_ids,
            again=again,
            group=(keys % np.uint64(GROUPS)).astype(np.int64),
        )

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.lengths)


def came_before(ids: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each token's id stands earlier in its row.  ids: [T], offsets: i64[B+1].  Returns bool[T]."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((ids, rows))  # stable: equal ids of a row stay in their order
    ordered = ids[order], rows[order]
    same = np.logical_and(*(values[1:] == values[:-1] for values in ordered))
    again = np.zeros(len(ids), np.bool_)
    again[order[1:]] = same
    return again


MOST_ROWS, TOKENS_AT_ONCE, FEWEST_AT_ONCE = 1 << 14, 1 << 16, 1 << 14
"""Rows whose bins of u are counted at once, and tokens of whole rows: few enough for a processor's cache.  Of a small
sample fewer are taken at once, because to get new memory takes longer than all that is done with it."""
LARGEST_ADVANTAGE = 1e140
"""A larger one is taken for none: float64 does not hold the sum of many squares of such."""
LN_2 = math.log(2)


@frozen(kw_only=True)
class RowGaps:
    """What is known of each of B rows, or turns, f64[B].

    odd: the sum of l^2 of odd rows, far: y of the others; NaN of rows that are none.  l2, e2: sums of l^2 and of e^2,
    NaN of odd rows; rms: ln sqrt(sum l^2 / sum e^2) of body tokens, NaN of odd rows and of those that do not differ.
    """

    odd: Floats
    far: Floats
    l2: Floats
    e2: Floats
    rms: Floats


@frozen(kw_only=True)
class SampleGaps(RowGaps):
    """The same of the rows of a sample, with keys as of GapRows, u64[B], and ratios: sums of e^l - 1 and of its square,
    f64[2, B]; what is known of their turns, each taken for a row; GapTotals of all rows."""

    keys: NDArray[np.uint64]
    ratios: Floats
    turns: RowGaps
    totals: GapTotals


@once
@np.errstate(all="ignore")
def gap_totals(sample: RowSample) -> SampleGaps:
    """The statistics of a sample, and of its rows in their order."""
    totals, cells = GapTotals(), np.zeros((len(TOKEN_SUMS), *CELLS))
    none = RowGaps(**{name: np.zeros(0) for name in RowGaps.__annotations__})
    keys, ratios, rows, turns = [np.zeros(0, np.uint64)], [np.zeros((2, 0))], [none], [none]
    n, ends, has_certain = sample.n_valid_tokens, np.cumsum(sample.n_valid), bool((sample.scored >= 0).any())
    cuts = np.searchsorted(ends, np.arange(0, n, min(TOKENS_AT_ONCE, max(FEWEST_AT_ONCE, n // 8))))
    for first, last in pairwise(sorted({*cuts.tolist(), *range(0, sample.n_rows, MOST_ROWS), sample.n_rows})):
        sums = _Sums.of(GapRows.of(sample, first, last))
        totals += sums.totals(has_certain=has_certain)
        cells += sums.cells()
        keys.append(sums.rows.keys)
        rho_minus_1 = sums.rows.values.columns["rho_minus_1"]
        ratios.append(np.add.reduceat([rho_minus_1, rho_minus_1**2], starts_of(sums.rows.lengths), axis=1))
        rows.append(sums.of_rows.gaps)
        turns.append(sums.of_turns.gaps)
    return SampleGaps(
        keys=np.concatenate(keys),
        ratios=np.concatenate(ratios, axis=1),
        turns=concatenated(turns),
        totals=replace(totals, **_of_cells(cells)),
        **vars(concatenated(rows)),
    )


REPEAT_LIMIT, ID_LIMIT = 5.0, 2.0
"""What |d| is held to in Vocabulary, so that no single token rules a sum."""
ODD_TOKENS, ODD_CORRELATION, ODD_DEVIATION, ODD_SIZE, ODD_LEAST = 16, 0.5, 0.2, -1.5, -8.0
"""A row is odd if, over at least ODD_TOKENS body tokens, its two log-probs (clipped below at ODD_LEAST) correlate below
ODD_CORRELATION, both have a deviation above ODD_DEVIATION, and the mean x exceeds ODD_SIZE."""
OF_STRETCHES = ("l2", "k3", "e2", "n_graded", "x_above", "x2", "n_far", "n_certain", "n_positive", "n_differing")
OF_STRETCHES += gap.MOMENTS
"""What is summed by stretch, of TokenGaps.columns."""
OF_TURNS = ("n", "l2", "e2", "n_graded", "x_above")
CELLS = len(KINDS), GROUPS, 3, N_SURPRISE
"""Kinds of tokens, groups, zones of v (within 1 of 0, above, below) and bins of u."""


@frozen(kw_only=True)
class _RowSums:
    """Sums over R rows, or turns: whole, and body: over the body of each, odd or not, by name, f64[R].

    odd: rows whose columns do not belong to each other, bool[R].  far_size: y of each row, NaN of odd ones and of those
    without a graded token.
    """

    whole: Mapping[str, Floats]
    body: Mapping[str, Floats]
    odd: Flags
    far_size: Floats

    @classmethod
    def of(cls, rows: GapRows, stretches: Mapping[str, Floats], row: Ints, in_body: Flags) -> "_RowSums":
        """Of sums over stretches, the row of each, and whether it is in its body."""
        firsts, table = first_of_each(row), np.array([*stretches.values()])
        whole, body = (
            dict(zip(stretches, np.add.reduceat(of, firsts, axis=1), strict=True)) for of in (table, table * in_body)
        )
        n, graded = body["n"], whole["n_graded"]
        odd = (n >= ODD_TOKENS) & (gap.X_RANGE[0] + body["x_above"] / body["n_graded"] > ODD_SIZE)
        if odd.any():
            at = np.repeat(np.where(in_body & odd[row], row, len(n)), rows.stretches.n)
            tokens = np.flatnonzero(at < len(n))
            a, b = (np.maximum(column[tokens], ODD_LEAST) for column in (rows.values.a, rows.values.b))
            sums = sums_at(at[tokens], len(n), (a, b, a * a, b * b, a * b))
            mean_a, mean_b, aa, bb, ab = (column / n for column in sums.T)
            spread_a, spread_b = (np.sqrt(np.maximum(s - m * m, 0)) for s, m in ((aa, mean_a), (bb, mean_b)))
            correlation = (ab - mean_a * mean_b) / (spread_a * spread_b)
            odd &= (correlation < ODD_CORRELATION) & (np.minimum(spread_a, spread_b) > ODD_DEVIATION)
        far_size = np.where(odd | (graded == 0), math.nan, gap.X_RANGE[0] + whole["x_above"] / graded)
        return cls(whole=whole, body=body, odd=odd, far_size=far_size)

    @property
    def gaps(self) -> RowGaps:
        """What is known of each row."""
        rms = 0.5 * np.log(self.body["l2"] / self.body["e2"])
        return RowGaps(
            odd=np.where(self.odd, self.whole["l2"], math.nan),
            far=self.far_size,
            l2=np.where(self.odd, math.nan, self.whole["l2"]),
            e2=np.where(self.odd, math.nan, self.whole["e2"]),
            rms=np.where(self.odd | ~np.isfinite(rms), math.nan, rms),
        )


@frozen(kw_only=True)
class _Sums:
    """What is made of R rows with S stretches.

    of_stretches: tokens and OF_STRETCHES by name, over each stretch, f64[S]; of_rows, of_turns: over each row and turn.
    part: of each stretch, ODD in odd rows, i64[S].
    """

    rows: GapRows
    of_stretches: Mapping[str, Floats]
    of_rows: _RowSums
    of_turns: _RowSums
    part: Ints

    @classmethod
    def of(cls, rows: GapRows) -> "_Sums":
        """Of these rows."""
        at, columns = rows.stretches, [rows.values.columns[name] for name in OF_STRETCHES]
        added = (
            np.add.reduceat(column, at.start, dtype=np.int64 if column.dtype == np.bool_ else None)
            for column in columns
        )
        sums = dict(zip(("n", *OF_STRETCHES), np.array([at.n, *added], np.float64), strict=True))
        of_rows = of_turns = _RowSums.of(rows, sums, at.row, at.part == BODY)
        if at.turn.any():
            of_turns = _RowSums.of(rows, {name: sums[name] for name in OF_TURNS}, at.unit, at.inner)
        part = np.where(of_rows.odd[at.row], ODD, at.part)
        return cls(rows=rows, of_stretches=sums, of_rows=of_rows, of_turns=of_turns, part=part)

    def totals(self, *, has_certain: bool) -> GapTotals:
        """Of all rows, without what _of_cells makes.  has_certain: as of _of_tokens."""
        return GapTotals(
            **self._by_place(),
            **self._of_tokens(has_certain=has_certain),
            **self._of_rows(),
            n_rows=self.rows.n_rows,
            n_odd=int(self.of_rows.odd.sum()),
            vocabulary=self._vocabulary(),
        )

    def _by_place(self) -> dict[str, Any]:
        """What is folded from stretches, of GapTotals: by part, by place, by turn, and by level."""
        at, n, n_fields = self.rows.stretches, len(gap.INDEX_EDGES), len(gap.FIELDS)
        sums = {**self.of_stretches}
        sums["x"] = sums["x_above"] + gap.X_RANGE[0] * sums["n_graded"]
        of_places, of_gaps = ([sums[name] for name in names] for names in (gap.PLACE_SUMS, gap.GAP_SUMS))
        turn = np.minimum(at.turn, gap.TURNS - 1)
        turns = sums_at(turn * GROUPS + self.rows.group[at.row], gap.TURNS * GROUPS, of_gaps)
        surprise = self._surprise_counts(at.row, self.rows.n_rows)
        fields = np.where(self.of_rows.odd, 0, 1) * GROUPS + self.rows.group
        ratios = (np.where(self.of_rows.odd, self.of_rows.whole[name], self.of_rows.body[name]) for name in gap.MOMENTS)
        return {
            "places": sums_at(self.part, len(PARTS), of_places),
            "indexes": sums_at(np.where(self.part == BODY, at.index, n), n + 1, of_places)[:n],
            "moments": sums_at(fields, n_fields * GROUPS, ratios).reshape(n_fields, GROUPS, -1),
            "turns": turns.reshape(gap.TURNS, GROUPS, -1),
            "turns_surprise": self._surprise_counts(turn, gap.TURNS),
            "columns": self._columns(surprise),
        }

    def _surprise_counts(self, of_stretches: Ints, n: int) -> Floats:
        """How many tokens have each bin of u, by a number below n of their stretch: f64[n, N_SURPRISE]."""
        at = np.repeat(of_stretches * N_SURPRISE, self.rows.stretches.n) + self.rows.values.surprise
        return _counts_at(at, n * N_SURPRISE).reshape(n, N_SURPRISE)

    def cells(self) -> Floats:
        """TOKEN_SUMS of each cell: f64[K, *CELLS]."""
        at, values, n = self.rows.stretches, self.rows.values, math.prod(CELLS)
        kind = np.array([KINDS.index(part if part in KINDS else "apart") for part in PARTS])[self.part]
        zone = np.int16(N_SURPRISE)
        cell = np.repeat(((kind * GROUPS + self.rows.group[at.row]) * 3 * zone).astype(np.int16), at.n)
        cell = cell + values.surprise + (values.v > 1) * zone + (values.v < -1) * (2 * zone)
        outside, inside = np.bincount(2 * cell + values.inside, minlength=2 * n).reshape(n, 2).T
        cell = cell.astype(np.int64)
        sums = [np.bincount(cell, values.columns[name], n) for name in TOKEN_SUMS[2:]]
        return np.array([outside + inside, inside, *sums], np.float64).reshape(-1, *CELLS)

    def _of_tokens(self, *, has_certain: bool) -> dict[str, Any]:
        """What single tokens are counted by, of GapTotals: d, how sure they are, and those of few rows.  has_certain:
        whether any of all rows has a token of b = 0, which the others are held against."""
        at, values, rows, n = self.rows.stretches, self.rows.values, self.rows, N_SURPRISE * gap.N_SPREAD
        # Those outside, and those apart from body and odd rows, are counted last.
        last = len(gap.FIELDS) * n
        field = np.where(self.part == BODY, n, np.where(self.part == ODD, 0, last))
        spread = np.repeat(field, at.n) + values.surprise * np.int32(gap.N_SPREAD) + values.spread_bin()
        spread[np.flatnonzero(~values.inside)] = last
        in_odd = np.repeat(self.part == ODD, at.n)
        of_certain: dict[str, Any] = {}
        if has_certain:
            counts = _counts_at(values.certain_bin()[~in_odd], 2 * gap.N_CERTAIN)
            of_certain["certain"] = counts.reshape(2, gap.N_CERTAIN)
            of_certain["largest_unsure"] = float(values.b[(values.b < 0) & ~in_odd].max(initial=-math.inf))
        log_ratio = values.columns["l"][in_odd]
        ratios = np.exp(np.minimum([log_ratio, -log_ratio], gap.HELD_RATIO))
        first = starts_of(rows.lengths)[~self.of_rows.odd]
        far = values.columns["n_far"][first]
        return {
            "spread": _counts_at(spread, last + n)[:last].reshape(-1, N_SURPRISE, gap.N_SPREAD),
            **of_certain,
            "odd": np.array([len(log_ratio), *np.stack([ratios, ratios**2], axis=1).sum(axis=-1).flat]),
            "firsts": sums_at(rows.prompts[~self.of_rows.odd], gap.FIRST_BUCKETS, (np.ones(len(first)), far)),
        }

    def _of_rows(self) -> dict[str, Any]:
        """ROW_SUMS of rows whose body differs somewhere, and SIZE_SUMS of rows by y, of GapTotals."""
        positive, differing = self.of_rows.body["n_positive"], self.of_rows.body["n_differing"]
        leaning = ~self.of_rows.odd & (differing > 0)
        p, v, a = positive[leaning], differing[leaning], self.rows.advantages[leaning]
        known = np.abs(a) <= LARGEST_ADVANTAGE
        s, t, a = (p / np.sqrt(v))[known], np.sqrt(v)[known], a[known]
        pairs = ((a, a), (s, s), (t, t), (s, t), (a, s), (a, t))
        aa, ss, tt, st, as_, at = (float((x * y).sum()) for x, y in pairs)
        of_rows = [len(p), p.sum(), v.sum(), (p * p / v).sum()]
        of_advantages = [len(a), a.sum(), aa, s.sum(), t.sum(), ss, tt, st, as_, at]

        size, known = self.of_rows.far_size, np.isfinite(self.of_rows.far_size)
        bins = np.clip((size[known] - gap.SIZE_LEAST) / gap.SIZE_STEP, 0, gap.N_SIZES - 1).astype(np.int64)
        columns = [np.ones(self.rows.n_rows), *(self.of_rows.whole[name] for name in ("n", "l2", "e2"))]
        sizes = sums_at(bins, gap.N_SIZES, [column[known] for column in columns])
        return {"rows": np.array([*of_rows, *of_advantages]), "sizes": sizes}

    def _columns(self, surprise: Floats) -> dict[str, Levels]:
        """By level of each column, and by octave of the length.  surprise: counts of each row's tokens by bin of u."""
        lengths = np.floor(np.log2(self.rows.lengths)).astype(np.int64)
        by_column = {**self.rows.levels, "length": (lengths, range(64))}
        size, known = self.of_rows.far_size, np.isfinite(self.of_rows.far_size)
        l2, e2 = (np.where(self.of_rows.odd, 0.0, self.of_rows.whole[name]) for name in ("l2", "e2"))
        of_rows = [known, *(np.where(known, of, 0.0) for of in (size, size * size)), l2, e2]
        of_gaps = [self.of_rows.whole[name] for name in gap.GAP_SUMS]
        columns: dict[str, Levels] = {}
        for name, (codes, keys) in by_column.items():
            # Of these rows' levels alone.
            used, level = np.unique(codes, return_inverse=True)
            n = len(used)
            if n > gap.MOST_LEVELS:
                columns[name] = Levels.none(too_many=True)
                continue
            by_group = sums_at(level * GROUPS + self.rows.group, n * GROUPS, of_gaps)
            at = (level[:, None] * N_SURPRISE + np.arange(N_SURPRISE)).ravel()
            by_bin = sums_at(at, n * N_SURPRISE, [surprise.ravel()])
            columns[name] = Levels(
                keys=tuple(keys[code] for code in used.tolist()),
                rows=sums_at(level, n, of_rows),
                gap=by_group.reshape(n, GROUPS, -1),
                surprise=by_bin.reshape(n, N_SURPRISE),
            )
        return columns

    def _vocabulary(self) -> Vocabulary | None:
        """Of inside body tokens that have an id."""
        rows, values, ids, again = self.rows, self.rows.values, self.rows.token_ids, self.rows.again
        if ids is None or again is None:
            return None
        at = rows.stretches
        tokens = np.flatnonzero(np.repeat(self.part == BODY, at.n) & values.inside & (ids >= 0))
        n, d = np.ones(len(tokens)), values.d[tokens]
        held = d.clip(-REPEAT_LIMIT, REPEAT_LIMIT)
        cell = values.surprise[tokens] * 2 + again[tokens]
        repeats = sums_at(cell, N_SURPRISE * 2, (n, held, held**2))
        held = d.clip(-ID_LIMIT, ID_LIMIT)
        prompts = np.repeat((rows.prompts % gap.PROMPT_BUCKETS)[at.row], at.n)[tokens]
        cell = prompts * gap.ID_BUCKETS + ids[tokens] % gap.ID_BUCKETS
        by_id = sums_at(cell, gap.PROMPT_BUCKETS * gap.ID_BUCKETS, (n, held))
        return Vocabulary(
            repeats=repeats.reshape(N_SURPRISE, 2, -1),
            by_id=by_id.reshape(gap.PROMPT_BUCKETS, gap.ID_BUCKETS, -1),
            spread=np.array([len(held), held.sum(), (held**2).sum()]),
        )


def _of_cells(cells: Floats) -> dict[str, Any]:
    """What is summed by bin of u and group of the jackknife, of GapTotals.  cells: TOKEN_SUMS, f64[K, *CELLS]."""
    n_fields, of = len(gap.FIELDS), {name: i for i, name in enumerate(TOKEN_SUMS)}
    by_bin = cells[..., 0, :] + cells[..., 1, :] + cells[..., 2, :]
    linear = [of[name] for name in ("n_inside", "u", "d", "u2", "d2", "ud")]
    lower, upper = np.array(gap.SURPRISE_EDGES[:-1]), np.array(gap.SURPRISE_EDGES[1:])
    high, low = np.flatnonzero(lower >= 1), np.flatnonzero(upper <= -1)
    on_u, (n, u, d, u2, d2, ud) = by_bin[linear, :n_fields], cells[linear, :n_fields].sum(axis=4)
    on_v = np.stack([n, u + d, d, u2 + 2 * ud + d2, d2, ud + d2])  # v = u + d
    lines = [on_u.sum(axis=3), on_u[..., high].sum(axis=3), on_u[..., low].sum(axis=3)]
    lines += [on_v.sum(axis=3), on_v[..., 1], on_v[..., 2]]
    return {
        "tokens": np.moveaxis(by_bin.sum(axis=2), 0, -1),
        "surprise_gap": by_bin[[of[name] for name in gap.GAP_SUMS]].sum(axis=1).T,
        "curves": np.moveaxis(by_bin[[of[name] for name in ("n", "l", "l2")], :n_fields], 0, -1),
        "lines": np.moveaxis(np.stack(lines), (0, 1), (2, 3)),
    }


def _counts_at(at: Ints, n: int) -> Floats:
    """How many at each of 0 .. n - 1: f64[n]."""
    return np.bincount(at, minlength=n).astype(np.float64)
