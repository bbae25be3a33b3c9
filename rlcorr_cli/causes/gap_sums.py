"""A sample of rows -> GapTotals: the statistics that tell why two policies differ.

One table of sums, by row and bin of u, is made of the tokens; what is kept by level, by the jackknife's group and
over all comes from folding its rows, so that a column of levels costs a row's work and not a token's.  Tokens that
stand in special parts are few, and added up apart.

TokenPlaces: where a valid token stands in its row.  TokenGaps: what follows from its two log-probs; the letters a, b,
e, x, u, v, d are defined in causes/gap.py.  GapRows: both, with each row's key, prompt and advantage.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes import gap
from rlcorr_cli.causes.gap import BODY, GROUPS, N_SURPRISE, ODD, PARTS, TOKEN_SUMS, GapTotals, Levels, Vocabulary
from rlcorr_cli.causes.numbers import once
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.arrays import EXP_LIMIT, Segments
from rlcorr_cli.totals.flat import Flags, Floats, Ints, first_of_each, offsets_of, starts_of
from rlcorr_cli.totals.row_sample import RowSample

EARLY, AFTER_GAP = 3, 3
"""How many tokens after a row's first are "early", and how many after one of part "gap" are "after_gap"."""


@frozen
class TokenPlaces:
    """Of the valid tokens, i64[V] each.

    part: index into PARTS, never "odd", which is of whole rows.  index: tokens since the row's first valid one, masked
    ones included.  turn: how many masked stretches lie between the two.
    """

    part: Ints
    index: Ints
    turn: Ints


def token_places(valid: Flags | None, n_valid: Ints) -> TokenPlaces:
    """Of all valid tokens of rows that have one each.  valid: of all tokens, None where all are; n_valid: of each
    row."""
    n, lengths = int(n_valid.sum()), n_valid
    at = np.arange(n) if valid is None else np.flatnonzero(valid)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    firsts = np.repeat(starts, lengths)  # of each token's row, among the valid ones
    place = np.arange(n) - firsts
    starts_after_mask = np.zeros(n, np.bool_)
    if valid is not None:
        starts_after_mask[1:] = np.diff(at) > 1
        starts_after_mask[starts] = False
    # Later assignments win: early, after_gap, gap, last, first.
    part = np.full(n, PARTS.index("body"))
    part[(place >= 1) & (place <= EARLY)] = PARTS.index("early")
    after_mask = np.flatnonzero(starts_after_mask)
    for later in range(1, AFTER_GAP + 1):
        tokens = after_mask[after_mask + later < n] + later
        part[tokens[place[tokens] >= later]] = PARTS.index("after_gap")
    part[after_mask] = PARTS.index("gap")
    part[ends - 1] = PARTS.index("last")
    part[starts] = PARTS.index("first")
    if not len(after_mask):
        return TokenPlaces(part, at - at[firsts], np.zeros(n, np.int64))
    gaps = np.cumsum(starts_after_mask)
    return TokenPlaces(part, at - at[firsts], gaps - gaps[firsts])


RATIO_LIMIT = 20.0
"""Largest |l| in a mean of ratios, which no single token may dominate."""
LEAST_E = 1e-5
"""The least e that l is divided by."""
GRADED_E = 1e-4
"""From this e on, r is trusted and counted."""


STEPS = 4
"""Steps of a unit of u, of which each edge of a bin is a whole number."""
N_STEPS = int(gap.FARTHEST * STEPS)
SURPRISE_BINS = np.concatenate(
    [
        [gap.BELOW],
        np.searchsorted(gap.SURPRISE_EDGES, np.arange(-N_STEPS, N_STEPS) / STEPS, side="right") - 1,
        [gap.ABOVE],
    ]
)
"""The bin of each step from -N_STEPS to N_STEPS, with one below and one above."""
LEAST_MISS, MOST_MISS = (-math.expm1(logp) for logp in reversed(gap.LOGP_RANGE))
"""1 - p at the ends of the range that log-probs are held to for log-odds."""


@frozen(kw_only=True)
class TokenGaps:
    """Of each token, [V], f64 but for flags and bins: the letters of causes/gap.py.

    b, a: the log-probs.  log_ratio: l = a - b.  rho_minus_1: e^l - 1, of l within EXP_LIMIT.  v: logit q.  d: v - u.
    inside: b < 0, and both |u| and |v| small enough.  surprise: the bin of u by gap.SURPRISE_EDGES; higher bins are
    surer tokens, CERTAIN those with b >= 0.  columns: what TOKEN_SUMS add up, by name.
    """

    b: Floats
    a: Floats
    log_ratio: Floats
    rho_minus_1: Floats
    v: Floats
    d: Floats
    inside: Flags
    surprise: Ints
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, b: Floats, a: Floats) -> "TokenGaps":
        """Of the two log-probs of each token, f64[V]."""
        log_ratio = a - b
        held = np.clip(log_ratio, -EXP_LIMIT, EXP_LIMIT)
        rho_minus_1 = np.expm1(held)
        k3 = rho_minus_1 - held  # e^l - 1 - l, Schulman's estimate of KL(rollout || train)
        far = np.flatnonzero(np.abs(log_ratio) > RATIO_LIMIT)
        # 1 - p and 1 - q, with q = p e^l, which spares an exponential: 1 - p - p (e^l - 1).
        miss = -np.expm1(b)
        other = miss - (1 - miss) * rho_minus_1
        other[far] = -np.expm1(a[far])
        e = np.maximum(miss, other)  # 1 - min(p, q)
        graded = e > GRADED_E
        # ln|r| with r = l / max(e, LEAST_E)
        x = np.clip(np.log(np.abs(log_ratio) / np.maximum(e, LEAST_E)), *gap.X_RANGE)
        u, v = _log_odds(b, miss), _log_odds(a, other)
        d = v - u
        inside = (b < 0) & (np.abs(u) < gap.FARTHEST) & (np.abs(v) < gap.FARTHEST)
        # All edges are multiples of a step: a look into a table costs a third of a search.
        steps = np.clip(np.floor(u * STEPS), -N_STEPS - 1, N_STEPS)
        surprise = np.where(b >= 0, gap.CERTAIN, SURPRISE_BINS[steps.astype(np.int64) + N_STEPS + 1])
        # Means of ratios are of l within RATIO_LIMIT; of e^-l - 1, 1 - 1 / rho keeps the digits down to e^-5.
        ratio, inverse = rho_minus_1, -rho_minus_1 / (1 + rho_minus_1)
        small = np.flatnonzero(log_ratio < -5)
        inverse[small] = np.expm1(-log_ratio[small])
        if len(far):
            held = np.clip(log_ratio, -RATIO_LIMIT, RATIO_LIMIT)
            ratio, inverse = np.expm1(held), np.expm1(-held)
        inside_u, inside_d, graded_x = u * inside, d * inside, x * graded
        columns = (
            *(np.ones(len(b)), log_ratio, log_ratio * log_ratio, k3),
            *(ratio, inverse, e * e, log_ratio > 0, log_ratio != 0),
            *(inside, inside_u, inside_d, inside_u * inside_u, inside_u * inside_d, inside_d * inside_d),
            *(graded, graded_x, graded_x * graded_x),
        )
        return cls(
            b=b,
            a=a,
            log_ratio=log_ratio,
            rho_minus_1=rho_minus_1,
            v=v,
            d=d,
            inside=inside,
            surprise=surprise,
            columns=dict(zip(gap.TOKEN_SUMS, columns, strict=True)),
        )

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


def sums_at(at: Ints, n: int, columns: Iterable[NDArray[Any]]) -> Floats:
    """Sums of columns [V] at each of 0 .. n - 1: f64[n, K]."""
    # Without a value NumPy counts in integers, weights or not.
    return np.stack([np.bincount(at, column, n) for column in columns], axis=-1).astype(np.float64, copy=False)


@frozen(kw_only=True)
class GapRows:
    """R rows, none empty, with their tokens.

    lengths: valid tokens of each, i64[R].  stored: the two columns as the dump has them, [V].  values: of the tokens;
    an unscored one has training's log-prob on both sides.  keys: u64[R].  prompts: i64[R], a bucket (of FIRST_BUCKETS)
    of the prompt's hash, or of the row's key where it is unknown.  advantages: f64[R], rewards where there are none,
    NaN without either.  levels: of each column, the code of each row, i64[R], and what codes stand for.  token_ids:
    i64[V].  again: bool[V], whether the id came before in its row.  Both are None without ids.

    row: of each token, i64[V].  in_body: tokens that stand in their row's body, whether or not the row is odd, bool[V];
    apart: those that do not, as indices.  cell: row and bin of u of every token, i64[V].  group: the jackknife's group
    of each row, i64[R].
    """

    lengths: Ints
    stored: tuple[NDArray[np.floating], NDArray[np.floating]]
    values: TokenGaps
    places: TokenPlaces
    keys: NDArray[np.uint64]
    prompts: Ints
    advantages: Floats
    levels: Mapping[str, tuple[Ints, tuple[object, ...]]]
    token_ids: Ints | None
    again: Flags | None
    row: Ints
    in_body: Flags
    apart: Ints
    cell: Ints
    group: Ints

    @classmethod
    def of(cls, sample: RowSample, first: int, last: int) -> "GapRows":
        """Rows `first` to `last - 1` of a sample."""
        rows, lengths, n_tokens = slice(first, last), sample.n_valid[first:last], sample.n_tokens[first:last]
        start, of_all = int(sample.n_valid[:first].sum()), int(sample.n_tokens[:first].sum())
        tokens, every = slice(start, start + int(lengths.sum())), slice(of_all, of_all + int(n_tokens.sum()))
        rollout, train, scored = sample.rollout[tokens], sample.train[tokens], sample.scored[tokens]
        ids = sample.ids[rows] if sample.ids.any() else None
        offsets = offsets_of(lengths)
        keys = bootstrap.row_keys(scored, Segments(offsets), ids)
        prompts = np.where(sample.prompts[rows] == 0, keys, sample.prompts[rows])
        valid = None if sample.valid is None else sample.valid[every]
        token_ids = again = None
        if sample.token_ids is not None:
            token_ids, of_valid = sample.token_ids[every], slice(None) if valid is None else valid
            again = came_before(token_ids, offsets_of(n_tokens))[of_valid]
            token_ids = token_ids[of_valid]
        values = TokenGaps.of(scored.astype(np.float64), train.astype(np.float64))
        places, row = token_places(valid, lengths), np.repeat(np.arange(len(lengths)), lengths)
        in_body = places.part == BODY
        return cls(
            lengths=lengths,
            stored=(rollout, train),
            values=values,
            places=places,
            keys=keys,
            prompts=(prompts % np.uint64(gap.FIRST_BUCKETS)).astype(np.int64),
            advantages=sample.advantages[rows],
            levels={name: (column.codes[rows], column.values) for name, column in sample.levels.items()},
            token_ids=token_ids,
            again=again,
            row=row,
            in_body=in_body,
            apart=np.flatnonzero(~in_body),
            cell=row * N_SURPRISE + values.surprise,
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


MOST_ROWS, TOKENS_AT_ONCE = 4096, 1 << 16
"""Rows whose table is made at once, 15 MB, and tokens of whole rows: few enough for a processor's cache."""
LARGEST_ADVANTAGE = 1e140
"""A larger one is taken for none: float64 does not hold the sum of many squares of such."""
LN_2 = math.log(2)


@frozen(kw_only=True)
class RowGaps:
    """GapTotals of B rows, and what is known of each row, f64[B] but for its key.

    keys: as of GapRows, u64[B].  odd: the sum of l^2 of odd rows, far: y of the others; NaN of rows that are none.
    rho_minus_1, square: sums of e^l - 1 and of (e^l - 1)^2.  l2, e2: sums of l^2 and of e^2,
    NaN of odd rows; rms: ln sqrt(sum l^2 / sum e^2) of body tokens, NaN of odd rows and of those that do not differ.
    """

    totals: GapTotals
    keys: NDArray[np.uint64]
    odd: Floats
    far: Floats
    rho_minus_1: Floats
    square: Floats
    l2: Floats
    e2: Floats
    rms: Floats


@once
@np.errstate(all="ignore")
def gap_totals(sample: RowSample) -> RowGaps:
    """The statistics of a sample's rows, in their order."""
    totals, n_rows = GapTotals(), sample.n_rows
    names = [field.name for field in fields(RowGaps) if field.name != "totals"]
    of_rows: dict[str, list[NDArray[Any]]] = {
        name: [np.zeros(0, np.uint64 if name == "keys" else float)] for name in names
    }
    ends = np.cumsum(sample.n_valid)
    cuts = np.searchsorted(ends, np.arange(0, sample.n_valid_tokens, TOKENS_AT_ONCE))
    for first, last in pairwise(sorted({*cuts.tolist(), *range(0, n_rows, MOST_ROWS), n_rows})):
        rows = GapRows.of(sample, first, last)
        sums = _Sums.of(rows)
        totals += sums.totals()
        odd_gap = np.where(sums.odd, sums.every[:, :, gap.GAP_SUMS.index("l2")].sum(axis=1), math.nan)
        starts, rho_minus_1 = starts_of(rows.lengths), rows.values.rho_minus_1
        squares = np.add.reduceat(rho_minus_1 * rho_minus_1, starts)
        (l2, e2), (body_l2, body_e2) = (
            np.where(sums.odd, math.nan, of[:, :, [TOKEN_SUMS.index("l2"), TOKEN_SUMS.index("e2")]].sum(axis=1).T)
            for of in (sums.whole, sums.body)
        )
        rms = 0.5 * np.log(body_l2 / body_e2)
        rms = np.where(np.isfinite(rms), rms, math.nan)
        columns = rows.keys, odd_gap, sums.far_size, np.add.reduceat(rho_minus_1, starts), squares, l2, e2, rms
        for column, values in zip(of_rows.values(), columns, strict=True):
            column.append(values)
    return RowGaps(totals=totals, **{name: np.concatenate(column) for name, column in of_rows.items()})


REPEAT_LIMIT, ID_LIMIT = 5.0, 2.0
"""What |d| is held to in Vocabulary, so that no single token rules a sum."""
ODD_TOKENS, ODD_CORRELATION, ODD_DEVIATION, ODD_SIZE, ODD_LEAST = 16, 0.5, 0.2, -1.5, -8.0
"""A row is odd if, over at least ODD_TOKENS body tokens, its two log-probs (clipped below at ODD_LEAST) correlate below
ODD_CORRELATION, both have a deviation above ODD_DEVIATION, and the mean x exceeds ODD_SIZE."""


def _odd_rows(rows: GapRows, body: Floats) -> NDArray[np.bool_]:
    """Rows whose columns do not belong to each other, [R].  body: TOKEN_SUMS of body tokens."""
    n, n_graded, x = (body[:, :, TOKEN_SUMS.index(name)].sum(axis=1) for name in ("n", "n_graded", "x"))
    far = (n >= ODD_TOKENS) & (x / n_graded > ODD_SIZE)
    if not far.any():
        return far
    tokens = np.flatnonzero(far[rows.row] & rows.in_body)
    a, b = (np.maximum(column[tokens], ODD_LEAST) for column in (rows.values.a, rows.values.b))
    sums = sums_at(rows.row[tokens], rows.n_rows, (a, b, a * a, b * b, a * b))
    mean_a, mean_b, aa, bb, ab = (column / n for column in sums.T)
    spread_a, spread_b = (np.sqrt(np.maximum(s - m * m, 0)) for s, m in ((aa, mean_a), (bb, mean_b)))
    correlation = (ab - mean_a * mean_b) / (spread_a * spread_b)
    return far & (correlation < ODD_CORRELATION) & (np.minimum(spread_a, spread_b) > ODD_DEVIATION)


@frozen(kw_only=True)
class _Sums:
    """What is made of some rows.

    odd: rows whose columns do not belong to each other, bool[R].  body: TOKEN_SUMS of body tokens, of odd rows too;
    whole: of all tokens; table: of body tokens, and of all tokens of odd rows; f64[R, N_SURPRISE, K].  every: GAP_SUMS
    of all tokens, f64[R, N_SURPRISE, 3].  far_size: y of each row, NaN of odd ones and of those without a graded token.

    Of tokens: apart, what TOKEN_SUMS add up, of those that are not in their row's body; in_odd, those of odd rows;
    part, i64[V], the part of each; inside, those inside that are in the table.
    """

    rows: GapRows
    odd: NDArray[np.bool_]
    body: Floats
    whole: Floats
    table: Floats
    every: Floats
    far_size: Floats
    apart: list[NDArray[Any]]
    in_odd: NDArray[np.bool_]
    part: Ints
    inside: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: GapRows) -> "_Sums":
        """Of these rows."""
        n, columns = rows.n_rows * N_SURPRISE, rows.values.columns.values()
        apart = [column[rows.apart] for column in columns]
        body = sums_at(np.where(rows.in_body, rows.cell, n), n + 1, columns)[:-1].reshape(rows.n_rows, N_SURPRISE, -1)
        whole = body + sums_at(rows.cell[rows.apart], n, apart).reshape(body.shape)
        odd = _odd_rows(rows, body)
        in_odd = odd[rows.row]
        graded, x = (whole[:, :, TOKEN_SUMS.index(name)].sum(axis=1) for name in ("n_graded", "x"))
        return cls(
            rows=rows,
            odd=odd,
            body=body,
            whole=whole,
            table=np.where(odd[:, None, None], whole, body) if odd.any() else body,
            every=whole[:, :, [TOKEN_SUMS.index(name) for name in gap.GAP_SUMS]],
            far_size=np.where(odd | (graded == 0), math.nan, x / graded),
            apart=apart,
            in_odd=in_odd,
            part=np.where(in_odd, ODD, rows.places.part) if odd.any() else rows.places.part,
            inside=(rows.in_body | in_odd) & rows.values.inside,
        )

    def totals(self) -> GapTotals:
        """Of all rows."""
        moments, curves, lines = self._jackknifed()
        turns, turns_surprise = self._turns()
        leaning, sizes = self._of_rows()
        return GapTotals(
            **self._of_tokens(),
            n_rows=self.rows.n_rows,
            n_odd=int(self.odd.sum()),
            turns=turns,
            turns_surprise=turns_surprise,
            surprise_gap=_folded(self.every, self.rows.group, GROUPS).swapaxes(0, 1),
            grids=np.stack([grid_sums(column) for column in self.rows.stored]),
            rows=leaning,
            sizes=sizes,
            columns=self._columns(),
            vocabulary=self._vocabulary(),
            moments=moments,
            curves=curves,
            lines=lines,
        )

    def _of_tokens(self) -> dict[str, Any]:
        """What single tokens are added up by, of GapTotals: their part and place, d, and how sure they are."""
        rows, values, part = self.rows, self.rows.values, self.part
        at = (part[rows.apart] * N_SURPRISE) + values.surprise[rows.apart]
        tokens = sums_at(at, len(PARTS) * N_SURPRISE, self.apart).reshape(len(PARTS), N_SURPRISE, -1)
        tokens[ODD] = self.whole[self.odd].sum(axis=0)
        tokens[BODY] = self.body[~self.odd].sum(axis=0)

        far = np.abs(values.log_ratio) > LN_2
        of_parts = tokens.sum(axis=1)[:, [TOKEN_SUMS.index(name) for name in gap.PLACE_SUMS[:-1]]]
        n = len(gap.INDEX_EDGES)
        bins = np.searchsorted(gap.INDEX_EDGES, np.arange(rows.places.index.max(initial=0) + 1), side="right") - 1
        at = np.where(part == BODY, bins[rows.places.index], n)
        of_index = sums_at(at, n + 1, [*(values.columns[name] for name in gap.PLACE_SUMS[:-1]), far])[:n]

        even = ~self.in_odd
        at = ((even * N_SURPRISE + values.surprise) * gap.N_SPREAD + values.spread_bin())[self.inside]
        shape = len(gap.FIELDS), N_SURPRISE, gap.N_SPREAD
        unsure = values.b[(values.b < 0) & even]
        log_ratio = values.log_ratio[self.in_odd]
        ratios = np.exp(np.minimum([log_ratio, -log_ratio], gap.HELD_RATIO))

        first = np.flatnonzero(part == PARTS.index("first"))
        prompts = rows.prompts[rows.row[first]]
        return {
            "tokens": tokens,
            "places": np.column_stack([of_parts, _counts_at(part[far], len(PARTS))]),
            "indexes": of_index,
            "spread": _counts_at(at, math.prod(shape)).reshape(shape),
            "certain": _counts_at(values.certain_bin()[even], 2 * gap.N_CERTAIN).reshape(2, gap.N_CERTAIN),
            "largest_unsure": float(unsure.max()) if len(unsure) else -math.inf,
            "odd": np.array([len(log_ratio), *np.stack([ratios, ratios**2], axis=1).sum(axis=-1).flat]),
            "firsts": sums_at(prompts, gap.FIRST_BUCKETS, (np.ones(len(first)), far[first])),
        }

    def _turns(self) -> tuple[Floats, Floats]:
        shape = gap.TURNS, GROUPS, len(gap.GAP_SUMS)
        if not self.rows.places.turn.any():
            turns, surprise = np.zeros(shape), np.zeros((gap.TURNS, N_SURPRISE))
            turns[0] = _folded(self.every.sum(axis=1), self.rows.group, GROUPS)
            surprise[0] = self.every[:, :, 0].sum(axis=0)
            return turns, surprise
        turn, values = np.minimum(self.rows.places.turn, gap.TURNS - 1), self.rows.values
        at = turn * GROUPS + self.rows.group[self.rows.row]
        by_group = sums_at(at, gap.TURNS * GROUPS, [values.columns[name] for name in gap.GAP_SUMS])
        surprise = _counts_at(turn * N_SURPRISE + values.surprise, gap.TURNS * N_SURPRISE)
        return by_group.reshape(shape), surprise.reshape(gap.TURNS, N_SURPRISE)

    def _of_rows(self) -> tuple[Floats, Floats]:
        """ROW_SUMS of rows whose body differs somewhere, and SIZE_SUMS of rows by y."""
        sums = self.table.sum(axis=1)
        positive, differing = (sums[:, TOKEN_SUMS.index(name)] for name in ("n_positive", "n_differing"))
        leaning = ~self.odd & (differing > 0)
        p, v, a = positive[leaning], differing[leaning], self.rows.advantages[leaning]
        known = np.abs(a) <= LARGEST_ADVANTAGE
        s, t, a = (p / np.sqrt(v))[known], np.sqrt(v)[known], a[known]
        pairs = ((a, a), (s, s), (t, t), (s, t), (a, s), (a, t))
        aa, ss, tt, st, as_, at = (float((x * y).sum()) for x, y in pairs)
        of_rows = [len(p), p.sum(), v.sum(), (p * p / v).sum()]
        of_advantages = [len(a), a.sum(), aa, s.sum(), t.sum(), ss, tt, st, as_, at]

        known = np.isfinite(self.far_size)
        bins = np.clip((self.far_size[known] - gap.SIZE_LEAST) / gap.SIZE_STEP, 0, gap.N_SIZES - 1).astype(np.int64)
        sums = self.whole.sum(axis=1)
        columns = [np.ones(self.rows.n_rows), *(sums[:, TOKEN_SUMS.index(name)] for name in ("n", "l2", "e2"))]
        sizes = np.column_stack([np.bincount(bins, column[known], gap.N_SIZES) for column in columns])
        return np.array([*of_rows, *of_advantages]), sizes.astype(np.float64)

    def _columns(self) -> dict[str, Levels]:
        lengths = np.floor(np.log2(self.rows.lengths)).astype(np.int64)
        used, codes = np.unique(lengths, return_inverse=True)
        by_column = {**self.rows.levels, "length": (codes.astype(np.int64), tuple(used.tolist()))}
        size, odd = self.far_size, self.odd
        known = np.isfinite(size)
        of_rows, of_known = (
            self.every.sum(axis=1),
            [column[known] for column in (np.ones(len(size)), size, size * size)],
        )
        columns: dict[str, Levels] = {}
        for name, (codes, keys) in by_column.items():
            # Of these rows' levels alone.
            used, level = np.unique(codes, return_inverse=True)
            n = len(used)
            if n > gap.MOST_LEVELS:
                columns[name] = Levels.none(too_many=True)
                continue
            by_group = _folded(of_rows, level * GROUPS + self.rows.group, n * GROUPS)
            columns[name] = Levels(
                keys=tuple(keys[code] for code in used.tolist()),
                rows=np.column_stack([np.bincount(level[known], sums, n) for sums in of_known]).astype(np.float64),
                tokens=_folded(self.whole[~odd], level[~odd], n),
                gap=by_group.reshape(n, GROUPS, -1),
                surprise=_folded(self.every[:, :, 0], level, n),
            )
        return columns

    def _vocabulary(self) -> Vocabulary | None:
        """Of inside body tokens that have an id."""
        rows, values, ids, again = self.rows, self.rows.values, self.rows.token_ids, self.rows.again
        if ids is None or again is None:
            return None
        tokens = np.flatnonzero((self.part == BODY) & values.inside & (ids >= 0))
        n, d = np.ones(len(tokens)), values.d[tokens]
        held = d.clip(-REPEAT_LIMIT, REPEAT_LIMIT)
        at = values.surprise[tokens] * 2 + again[tokens]
        repeats = sums_at(at, N_SURPRISE * 2, (n, held, held**2))
        held = d.clip(-ID_LIMIT, ID_LIMIT)
        prompts = rows.prompts[rows.row[tokens]] % gap.PROMPT_BUCKETS
        at = prompts * gap.ID_BUCKETS + ids[tokens] % gap.ID_BUCKETS
        by_id = sums_at(at, gap.PROMPT_BUCKETS * gap.ID_BUCKETS, (n, held))
        return Vocabulary(
            repeats=repeats.reshape(N_SURPRISE, 2, -1),
            by_id=by_id.reshape(gap.PROMPT_BUCKETS, gap.ID_BUCKETS, -1),
            spread=np.array([len(held), held.sum(), (held**2).sum()]),
        )

    def _jackknifed(self) -> tuple[Floats, Floats, Floats]:
        """moments, curves, lines of GapTotals."""
        field = np.where(self.odd, 0, 1) * GROUPS + self.rows.group
        n = len(gap.FIELDS) * GROUPS
        by_group = dict(zip(TOKEN_SUMS, np.moveaxis(_folded(self.table, field, n), -1, 0), strict=True))
        moments = np.stack([by_group[name].sum(axis=1) for name in ("rho_minus_1", "inverse_minus_1")], axis=-1)
        curves = np.stack([by_group[name] for name in ("n", "l", "l2")], axis=-1)
        on_u = np.stack([by_group[name] for name in ("n_inside", "u", "d", "u2", "d2", "ud")], axis=-1)
        lower, upper = np.array(gap.SURPRISE_EDGES[:-1]), np.array(gap.SURPRISE_EDGES[1:])
        high, low = np.flatnonzero(lower >= 1), np.flatnonzero(upper <= -1)
        lines = np.stack([on_u.sum(axis=1), on_u[:, high].sum(axis=1), on_u[:, low].sum(axis=1)], axis=1)
        # On v the bins are no use: all tokens are in its line, those above 1 in another, those below -1 in a third.
        values = self.rows.values
        v, d, dd = values.v, values.d, values.columns["d2"]
        zone = np.where(self.inside, (v > 1) + 2 * (v < -1), 3)
        sums = sums_at(field[self.rows.row] * 4 + zone, 4 * n, (np.ones(len(v)), v, d, v * v, dd, v * d))
        between, above, below, _ = sums.reshape(n, 4, -1).swapaxes(0, 1)
        lines = np.concatenate([lines, np.stack([between + above + below, above, below], axis=1)], axis=1)
        shape = len(gap.FIELDS), GROUPS
        return (
            moments.reshape(*shape, 2),
            curves.reshape(*shape, N_SURPRISE, 3),
            lines.reshape(*shape, *lines.shape[1:]),
        )


def _counts_at(at: Ints, n: int) -> Floats:
    """How many at each of 0 .. n - 1: f64[n]."""
    return np.bincount(at, minlength=n).astype(np.float64)


def _folded(rows: Floats, at: Ints, n: int) -> Floats:
    """Sums of rows [R, ...] at each of 0 .. n - 1: f64[n, ...]."""
    folded = np.zeros((n, *rows.shape[1:]))
    if not len(rows):
        return folded
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    starts = first_of_each(ordered)
    folded[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return folded


BF16_BITS, FP16_BITS = 7, 10
"""Bits of the mantissa."""


def grid_sums(values: NDArray[Any]) -> Floats:
    """GRID_SUMS of a column's values: f64[K].  values: float32 or float64 [V], nats."""
    values = values[values != 0]
    narrow = values.astype(np.float32, copy=False)
    bits = narrow.view(np.uint32)
    # A float64 between two float32s is on no coarser grid.
    as_stored = True if values.dtype == np.float32 else narrow == values
    bf16 = ((bits & 0xFFFF) == 0) & as_stored
    of_10_bits = narrow[((bits & 0x1FFF) == 0) & as_stored]  # which is what float16 has; its range is narrower, too
    with np.errstate(over="ignore"):
        fp16 = of_10_bits.astype(np.float16) == of_10_bits
    # A step between neighbours is 2^(exponent - bits of the mantissa).
    n_by_exponent = np.bincount(bits >> 23 & 0xFF, minlength=256)
    squares = float((n_by_exponent * 4.0 ** (np.arange(256) - 127)).sum())
    steps = [squares / 4.0**mantissa / 12 for mantissa in (BF16_BITS, FP16_BITS)]
    # Values within a rounding of their type of a decimal of 4 places, and those of them that have 3, and 2.
    scaled = np.abs(values, dtype=np.float64)
    scaled *= 1e4
    rounding = np.finfo(values.dtype).eps
    scaled = scaled[np.abs(scaled - np.rint(scaled)) <= scaled * rounding]
    coarser = [scaled]
    for _ in range(2):
        tenths = coarser[0] / 10
        coarser.insert(0, tenths[np.abs(tenths - np.rint(tenths)) <= tenths * rounding])
    decimals = [len(on_grid) for on_grid in coarser]
    return np.array([len(values), bf16.sum(), fp16.sum(), *decimals, *steps], np.float64)
