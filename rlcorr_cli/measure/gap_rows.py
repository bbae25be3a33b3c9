"""The rows of a batch as the gap's statistics see them; measure/gap.py sums them into GapTotals.

TokenPlaces: where a valid token stands in its row.  TokenGaps: what follows from its two log-probs; the letters a, b,
e, x, u, v, d are defined in totals/gap.py.  GapRows: both, with each row's key, prompt and advantage.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.arrays import EXP_LIMIT, Array, Device, as_floats, bin_sums, namespace
from rlcorr_cli.measure.chosen_rows import chosen
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.measure.tokens import Tokens, scored_rollout, trained_policies
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.batch import Batch, TokenContext
from rlcorr_cli.totals import gap
from rlcorr_cli.totals.gap import BODY, GROUPS, N_SURPRISE, ODD, PARTS
from rlcorr_cli.totals.histogram import Floats

Index = NDArray[np.int64]
EARLY, AFTER_GAP = 3, 3
"""How many tokens after a row's first are "early", and how many after one of part "gap" are "after_gap"."""


@frozen
class TokenPlaces:
    """Of the valid tokens, i64[V] each.

    part: index into PARTS, never "odd" (GapRows.part adds that).  index: tokens since the row's first valid one, masked
    ones included.  turn: how many masked stretches lie between the two.
    """

    part: Index
    index: Index
    turn: Index


def token_places(around: TokenContext) -> TokenPlaces:
    """Of all valid tokens of a batch."""
    n = int(around.offsets[-1])
    at = np.arange(n) if around.valid is None else np.flatnonzero(around.valid)
    ends = np.searchsorted(at, around.offsets)
    lengths = np.diff(ends)
    firsts = np.repeat(ends[:-1], lengths)  # of each token's row, among the valid ones
    starts_after_mask = np.zeros(len(at), np.bool_)
    starts_after_mask[1:] = np.diff(at) > 1
    place = np.arange(len(at)) - firsts
    starts_after_mask &= place > 0
    gaps = np.cumsum(starts_after_mask)
    # Later assignments win: early, after_gap, gap, last, first.
    part = np.full(len(at), PARTS.index("body"))
    part[(place >= 1) & (place <= EARLY)] = PARTS.index("early")
    for later in range(1, AFTER_GAP + 1):
        part[later:][starts_after_mask[:-later] & (place[later:] >= later)] = PARTS.index("after_gap")
    part[starts_after_mask] = PARTS.index("gap")
    filled = lengths > 0
    part[ends[1:][filled] - 1] = PARTS.index("last")
    part[ends[:-1][filled]] = PARTS.index("first")
    return TokenPlaces(part, at - at[firsts] if len(at) else at, gaps - gaps[firsts] if len(at) else at)


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


@frozen
class TokenGaps:
    """Of each token, [V] on the device: see the names in totals/gap."""

    log_ratio: Array
    b: Array

    @property
    def xp(self) -> Any:
        """The namespace of these."""
        return namespace(self.b)

    @cached_property
    def a(self) -> Array:
        """log p_train."""
        return self.b + self.log_ratio

    @cached_property
    def k3(self) -> Array:
        """Schulman's estimate of KL(rollout || train)."""
        return k3(self.xp.clip(self.log_ratio, -EXP_LIMIT, EXP_LIMIT))

    @cached_property
    def e(self) -> Array:
        """1 - min(p, q)."""
        return -self.xp.expm1(self.xp.minimum(self.a, self.b))

    @cached_property
    def x(self) -> Array:
        """ln|r| with r = l / max(e, LEAST_E), clipped to gap.X_RANGE."""
        r = abs(self.log_ratio / self.xp.clip(self.e, LEAST_E, None))
        return self.xp.clip(self.xp.log(r), *gap.X_RANGE)

    @cached_property
    def u(self) -> Array:
        """logit p."""
        return logit(self.b)

    @cached_property
    def v(self) -> Array:
        """logit q."""
        return logit(self.a)

    @cached_property
    def d(self) -> Array:
        """v - u."""
        return self.v - self.u

    @cached_property
    def inside(self) -> Array:
        """Whether b < 0 and both |u| and |v| are small enough."""
        return (self.b < 0) & (abs(self.u) < gap.FARTHEST) & (abs(self.v) < gap.FARTHEST)

    @cached_property
    def graded(self) -> Array:
        """Whether e is large enough for r."""
        return self.e > GRADED_E

    @cached_property
    def surprise(self) -> Array:
        """The bin of u by gap.SURPRISE_EDGES; higher bins are surer tokens, CERTAIN those with b >= 0."""
        xp, u = self.xp, self.u
        device = {} if xp is np else {"device": u.device}
        # All edges are multiples of a step: a look into a table costs a third of a search.
        steps = xp.clip(xp.floor(u * STEPS), -N_STEPS - 1, N_STEPS)
        bins = xp.asarray(SURPRISE_BINS, **device)[xp.astype(steps, xp.int64) + N_STEPS + 1]
        return xp.where(self.b >= 0, gap.CERTAIN, bins)

    @cached_property
    def gap_columns(self) -> tuple[Array, Array, Array]:
        """What GAP_SUMS add up."""
        return self.xp.ones_like(self.log_ratio), self.log_ratio * self.log_ratio, self.k3

    @cached_property
    def size_columns(self) -> tuple[Array, Array, Array]:
        """Whether x counts, x where it does, and its square."""
        graded = as_floats(self.graded)
        x = self.x * graded
        return graded, x, x * x

    def sums(self, at: Array, n: int) -> Floats:
        """TOKEN_SUMS of the tokens at each of 0 .. n - 1: f64[n, K]."""
        inside = as_floats(self.inside)
        held, expm1 = self.xp.clip(self.log_ratio, -RATIO_LIMIT, RATIO_LIMIT), self.xp.expm1
        u, d = self.u * inside, self.d * inside
        every, squares, k3 = self.gap_columns
        columns = (
            *(every, self.log_ratio, squares, k3, expm1(held), expm1(-held), self.e * self.e),
            *(as_floats(self.log_ratio > 0), as_floats(self.log_ratio != 0)),
            *(inside, u, d, u * u, u * d, d * d),
            *self.size_columns,
        )
        return sums_at(at, n, columns)

    def chosen(self, tokens: Array) -> "TokenGaps":
        """The same for some tokens, cut from the values of all, which are computed here if they were not yet."""
        part = TokenGaps(self.log_ratio[tokens], self.b[tokens])
        for name in ("a", "k3", "e", "x", "u", "v", "d", "inside", "graded", "surprise"):
            part.__dict__[name] = getattr(self, name)[tokens]
        return part

    def spread_bin(self) -> Array:
        """The bin of d."""
        xp = self.xp
        steps = xp.log(abs(self.d) / gap.SPREAD_LEAST) / math.log(gap.SPREAD_FACTOR)
        steps = xp.astype(xp.clip(xp.floor(steps), -1, gap.SPREAD_STEPS - 1) + 1, xp.int64)
        return gap.SPREAD_STEPS + xp.where(self.d < 0, -steps, steps)

    def certain_bin(self) -> Array:
        """The bin of ln(-a), with N_CERTAIN added where b < 0."""
        xp = self.xp
        steps = xp.floor((xp.log(-xp.clip(self.a, None, 0.0)) - gap.CERTAIN_LEAST) / gap.CERTAIN_STEP)
        bins = xp.astype(xp.clip(steps + 1, 0, gap.N_CERTAIN - 1), xp.int64)
        return xp.astype(self.b < 0, xp.int64) * gap.N_CERTAIN + bins


def logit(logp: Array) -> Array:
    """log(p / (1 - p)), from log-probs clipped to gap.LOGP_RANGE."""
    xp = namespace(logp)
    held = xp.clip(logp, *gap.LOGP_RANGE)
    return held - xp.log(-xp.expm1(held))


def sums_at(at: Array, n: int, columns: Sequence[Array]) -> Floats:
    """Sums of columns [V] at each of 0 .. n - 1: f64[n, K] on the host."""
    return np.stack([bin_sums(at, n, column) for column in columns], axis=-1)


ODD_TOKENS, ODD_CORRELATION, ODD_DEVIATION, ODD_SIZE, ODD_LEAST = 16, 0.5, 0.2, -1.5, -8.0
"""A row is odd if, over at least ODD_TOKENS body tokens, its two log-probs (clipped below at ODD_LEAST) correlate below
ODD_CORRELATION, both have a deviation above ODD_DEVIATION, and the mean x exceeds ODD_SIZE."""


@frozen(kw_only=True)
class GapRows:
    """R rows, none empty, with their tokens.

    stored: the two columns as the dump has them, [V].  keys: u64[R].  prompts: i64[R], a bucket (of FIRST_BUCKETS) of
    the prompt's hash, or of the row's key where it is unknown.  advantages: f64[R], rewards where there are none, NaN
    without either.  levels: as in TokenContext.  token_ids: i64[V].  again: bool[V], whether the id came before in its
    row.  Both are None without ids.
    """

    tokens: Tokens
    stored: tuple[NDArray[np.floating], NDArray[np.floating]]
    places: TokenPlaces
    keys: NDArray[np.uint64]
    prompts: Index
    advantages: Floats
    levels: Mapping[str, tuple[Index, tuple[object, ...]]]
    token_ids: Index | None
    again: NDArray[np.bool_] | None

    @classmethod
    def of(cls, batch: Batch, around: TokenContext, rows: Index, *, device: Device, mode: Mode) -> "GapRows":
        """Some rows of a batch."""
        if len(rows) < batch.n_rows:
            batch, around = chosen(batch, around, rows)
        tokens = Tokens.of(batch, device, mode)
        keys = bootstrap.row_keys(scored_rollout(batch, mode), tokens.rows.offsets, batch.row_keys)
        prompts = keys if around.prompts is None else np.where(around.prompts == 0, keys, around.prompts)
        trained, _ = trained_policies(batch, mode)
        advantages = batch.reward if around.advantages is None else around.advantages
        token_ids = again = None
        if around.token_ids is not None:
            valid = slice(None) if around.valid is None else around.valid
            token_ids, again = around.token_ids[valid], came_before(around.token_ids, around.offsets)[valid]
        return cls(
            tokens=tokens,
            stored=(batch.rollout_logp, trained),
            places=token_places(around),
            keys=keys,
            prompts=(prompts % np.uint64(gap.FIRST_BUCKETS)).astype(np.int64),
            advantages=np.full(batch.n_rows, math.nan) if advantages is None else advantages,
            levels=around.levels,
            token_ids=token_ids,
            again=again,
        )

    @cached_property
    def values(self) -> TokenGaps:
        """See TokenGaps."""
        return TokenGaps(self.tokens.log_ratio, self.tokens.rollout_logp)

    @cached_property
    def n_rows(self) -> int:
        """R."""
        return self.tokens.rows.n_rows

    @cached_property
    def row(self) -> Array:
        """The row of each token."""
        return self.tokens.rows.spread(np.arange(self.n_rows))

    @cached_property
    def in_body(self) -> Array:
        """Tokens that stand in their row's body, whether or not the row is odd."""
        return self.on_device(self.places.part == BODY)

    @cached_property
    def odd(self) -> NDArray[np.bool_]:
        """Rows whose columns do not belong to each other, [R]."""
        body, values, total = as_floats(self.in_body), self.values, self.tokens.rows.sum
        a, b = (self.tokens.xp.clip(column, ODD_LEAST, None) * body for column in (values.a, values.b))
        n = total(body)
        sums = (total(column) for column in (a, b, a * a, b * b, a * b))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_a, mean_b, aa, bb, ab = (column / n for column in sums)
            deviations = (np.sqrt(np.maximum(s - m * m, 0)) for s, m in ((aa, mean_a), (bb, mean_b)))
            spread_a, spread_b = deviations
            correlation = (ab - mean_a * mean_b) / (spread_a * spread_b)
            graded = as_floats(values.graded) * body
            size = total(values.x * graded) / total(graded)
            spread = np.minimum(spread_a, spread_b)
            far = (correlation < ODD_CORRELATION) & (spread > ODD_DEVIATION) & (size > ODD_SIZE)
            return (n >= ODD_TOKENS) & far

    @cached_property
    def odd_tokens(self) -> Array:
        """Tokens of odd rows."""
        return self.on_device(self.odd)[self.row]

    @cached_property
    def in_table(self) -> Array:
        """Tokens that are summed in gap.py's table: bodies, and all of odd rows."""
        return self.in_body | self.odd_tokens

    @cached_property
    def special(self) -> Array:
        """The tokens that are not summed there."""
        return self.tokens.xp.nonzero(~self.in_table)[0]

    @cached_property
    def cell(self) -> Array:
        """Row and bin of u of every token."""
        return self.row * N_SURPRISE + self.values.surprise

    @cached_property
    def group(self) -> Index:
        """The jackknife's group of each row."""
        return (self.keys % np.uint64(GROUPS)).astype(np.int64)

    @cached_property
    def part(self) -> Array:
        """The part of each token."""
        return self.tokens.xp.where(self.odd_tokens, ODD, self.on_device(self.places.part))

    def on_device(self, values: NDArray[np.generic]) -> Array:
        """The same values there."""
        return self.tokens.rows.device.put(values)


def came_before(ids: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each token's id stands earlier in its row.  ids: [T], offsets: i64[B+1].  Returns bool[T]."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((ids, rows))  # stable: equal ids of a row stay in their order
    ordered = ids[order], rows[order]
    same = np.logical_and(*(values[1:] == values[:-1] for values in ordered))
    again = np.zeros(len(ids), np.bool_)
    again[order[1:]] = same
    return again
