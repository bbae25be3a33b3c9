"""Some rows of a sample as the gap's statistics see them; causes/gap_sums.py sums them into GapTotals.

TokenPlaces: where a valid token stands in its row.  TokenGaps: what follows from its two log-probs; the letters a, b,
e, x, u, v, d are defined in causes/gap.py.  GapRows: both, with each row's key, prompt and advantage.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes import gap
from rlcorr_cli.causes.gap import BODY, GROUPS, N_SURPRISE, PARTS
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.arrays import EXP_LIMIT
from rlcorr_cli.totals.exact import Floats
from rlcorr_cli.totals.lists import offsets_of
from rlcorr_cli.totals.row_sample import RowSample

Index = NDArray[np.int64]
Flags = NDArray[np.bool_]
EARLY, AFTER_GAP = 3, 3
"""How many tokens after a row's first are "early", and how many after one of part "gap" are "after_gap"."""


@frozen
class TokenPlaces:
    """Of the valid tokens, i64[V] each.

    part: index into PARTS, never "odd", which is of whole rows.  index: tokens since the row's first valid one, masked
    ones included.  turn: how many masked stretches lie between the two.
    """

    part: Index
    index: Index
    turn: Index


def token_places(valid: Flags | None, n_valid: Index) -> TokenPlaces:
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
    surprise: Index
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

    def spread_bin(self) -> Index:
        """The bin of d."""
        steps = np.log(np.abs(self.d) / gap.SPREAD_LEAST) / math.log(gap.SPREAD_FACTOR)
        steps = np.clip(np.floor(steps), -1, gap.SPREAD_STEPS - 1) + 1
        return gap.SPREAD_STEPS + np.copysign(steps, self.d).astype(np.int64)

    def certain_bin(self) -> Index:
        """The bin of ln(-a), with N_CERTAIN added where b < 0."""
        steps = np.floor((np.log(-np.minimum(self.a, 0.0)) - gap.CERTAIN_LEAST) / gap.CERTAIN_STEP)
        return (self.b < 0) * gap.N_CERTAIN + np.clip(steps + 1, 0, gap.N_CERTAIN - 1).astype(np.int64)


def logit(logp: Floats) -> Floats:
    """log(p / (1 - p)), from log-probs clipped to gap.LOGP_RANGE."""
    return _log_odds(logp, -np.expm1(logp))


def _log_odds(logp: Floats, miss: Floats) -> Floats:
    """The same.  miss: 1 - p."""
    return np.clip(logp, *gap.LOGP_RANGE) - np.log(np.clip(miss, LEAST_MISS, MOST_MISS))


def sums_at(at: Index, n: int, columns: Iterable[NDArray[Any]]) -> Floats:
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

    lengths: Index
    stored: tuple[NDArray[np.floating], NDArray[np.floating]]
    values: TokenGaps
    places: TokenPlaces
    keys: NDArray[np.uint64]
    prompts: Index
    advantages: Floats
    levels: Mapping[str, tuple[Index, tuple[object, ...]]]
    token_ids: Index | None
    again: Flags | None
    row: Index
    in_body: Flags
    apart: Index
    cell: Index
    group: Index

    @classmethod
    def of(cls, sample: RowSample, first: int, last: int) -> "GapRows":
        """Rows `first` to `last - 1` of a sample."""
        rows, lengths, n_tokens = slice(first, last), sample.n_valid[first:last], sample.n_tokens[first:last]
        start, of_all = int(sample.n_valid[:first].sum()), int(sample.n_tokens[:first].sum())
        tokens, every = slice(start, start + int(lengths.sum())), slice(of_all, of_all + int(n_tokens.sum()))
        rollout, train, scored = sample.rollout[tokens], sample.train[tokens], sample.scored[tokens]
        ids = sample.ids[rows] if sample.ids.any() else None
        offsets = offsets_of(lengths)
        keys = bootstrap.row_keys(scored.astype(np.float32, copy=False), offsets, ids)
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
