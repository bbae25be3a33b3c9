"""A batch and its surroundings -> GapTotals: the statistics that tell why two policies differ.

One table of sums, by row and bin of u, is made of a batch's tokens; what is kept by level, by the jackknife's group and
over all comes from folding its rows, so that a column of levels costs a row's work and not a token's.  Tokens that
stand in special parts are few, and added up apart.
"""

import math
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array, Device, as_floats, bin_counts, host
from rlcorr_cli.measure.gap_rows import GapRows, TokenGaps, sums_at
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.batch import Batch, TokenContext
from rlcorr_cli.totals import gap
from rlcorr_cli.totals.gap import (
    BODY,
    GROUPS,
    ID_BUCKETS,
    N_SURPRISE,
    ODD,
    PARTS,
    PROMPT_BUCKETS,
    TOKEN_SUMS,
    GapTotals,
    Levels,
    Vocabulary,
)
from rlcorr_cli.totals.histogram import Floats

MOST_ROWS, TOKENS_AT_ONCE = 4096, 1 << 16
"""Rows whose table is made at once, 15 MB, and tokens of whole rows: few enough for a processor's cache."""
LARGEST_ADVANTAGE = 1e140
"""A larger one is taken for none: float64 does not hold the sum of many squares of such."""
LN_2 = math.log(2)
Index = NDArray[np.int64]


@frozen
class RowGaps:
    """GapTotals of B rows without the lists of worst ones, and what these are made of: f64[B], NaN of rows that do not
    belong in the list.  odd: the sum of l^2 of odd rows.  far: y of the others."""

    totals: GapTotals
    odd: Floats
    far: Floats


@np.errstate(all="ignore")
def gap_totals(batch: Batch, around: TokenContext, rows: Index, *, device: Device, mode: Mode = "decoupled") -> RowGaps:
    """The statistics of some rows of a batch, in the order of these rows; those without a valid token are none.

    mode: which trained policy is compared with the rollout's.
    """
    totals = GapTotals()
    odd, far = np.full(len(rows), math.nan), np.full(len(rows), math.nan)
    filled = np.flatnonzero(batch.filled[rows])
    ends = np.cumsum(batch.lengths[rows][filled])
    cuts = np.searchsorted(ends, np.arange(0, int(ends[-1]) if len(ends) else 0, TOKENS_AT_ONCE))
    for first, last in pairwise(sorted({*cuts.tolist(), *range(0, len(filled), MOST_ROWS), len(filled)})):
        portion = filled[first:last]
        of_portion = _Sums(GapRows.of(batch, around, rows[portion], device=device, mode=mode))
        totals += of_portion.totals
        odd[portion], far[portion] = of_portion.odd_gap, of_portion.far_size
    return RowGaps(totals, odd, far)


@frozen
class _Sums:
    """What is made of some rows."""

    rows: GapRows

    @cached_property
    def _table(self) -> Floats:
        """TOKEN_SUMS of body tokens, and of all tokens of odd rows: f64[R, N_SURPRISE, K]."""
        n = self.rows.n_rows * N_SURPRISE
        at = self.rows.tokens.xp.where(self.rows.in_table, self.rows.cell, n)
        return self.rows.values.sums(at, n + 1)[:-1].reshape(self.rows.n_rows, N_SURPRISE, -1)

    @cached_property
    def _special(self) -> TokenGaps:
        """The tokens that are not in the table."""
        return self.rows.values.chosen(self.rows.special)

    @cached_property
    def _whole(self) -> Floats:
        """TOKEN_SUMS of all tokens: f64[R, N_SURPRISE, K]."""
        sums = self._special.sums(self.rows.cell[self.rows.special], self.rows.n_rows * N_SURPRISE)
        return self._table + sums.reshape(self._table.shape)

    def _of_whole(self, name: str) -> Floats:
        """One of the sums of all tokens, over each row: f64[R]."""
        return self._whole[:, :, TOKEN_SUMS.index(name)].sum(axis=1)

    @cached_property
    def _every(self) -> Floats:
        """GAP_SUMS of all tokens: f64[R, N_SURPRISE, 3]."""
        return self._whole[:, :, [TOKEN_SUMS.index(name) for name in gap.GAP_SUMS]]

    @cached_property
    def far_size(self) -> Floats:
        """y of each row, NaN of odd ones and of those without a graded token."""
        graded = self._of_whole("n_graded")
        with np.errstate(invalid="ignore", divide="ignore"):
            size = self._of_whole("x") / graded
        return np.where(self.rows.odd | (graded == 0), math.nan, size)

    @cached_property
    def odd_gap(self) -> Floats:
        """The sum of l^2 of odd rows, NaN of others."""
        return np.where(self.rows.odd, self._every[:, :, 1].sum(axis=1), math.nan)

    @cached_property
    def totals(self) -> GapTotals:
        """All but the lists of rows."""
        moments, curves, lines = self._jackknifed()
        turns, turns_surprise = self._turns()
        leaning, sizes = self._of_rows()
        return GapTotals(
            **self._of_tokens(),
            n_rows=self.rows.n_rows,
            n_odd=int(self.rows.odd.sum()),
            turns=turns,
            turns_surprise=turns_surprise,
            surprise_gap=_folded(self._every, self.rows.group, GROUPS).swapaxes(0, 1),
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
        rows, values, xp = self.rows, self.rows.values, self.rows.tokens.xp
        tokens = np.zeros((len(PARTS), N_SURPRISE, len(TOKEN_SUMS)))
        at = rows.part[rows.special] * N_SURPRISE + self._special.surprise
        tokens += self._special.sums(at, len(PARTS) * N_SURPRISE).reshape(tokens.shape)
        tokens[ODD] += self._table[rows.odd].sum(axis=0)
        tokens[BODY] += self._table[~rows.odd].sum(axis=0)

        far = abs(values.log_ratio) > LN_2
        of_parts = tokens.sum(axis=1)[:, [TOKEN_SUMS.index(name) for name in gap.PLACE_SUMS[:-1]]]
        n = len(gap.INDEX_EDGES)
        index = rows.places.index
        bins = np.searchsorted(gap.INDEX_EDGES, np.arange(index.max(initial=0) + 1), side="right") - 1
        at = xp.where(rows.part == BODY, rows.on_device(bins[index]), n)
        of_index = sums_at(at, n + 1, (*values.gap_columns, *values.size_columns))
        indexes = np.column_stack([of_index, _counts_at(at[far], n + 1)])[:n]

        at = xp.astype(~rows.odd_tokens, xp.int64) * N_SURPRISE + values.surprise
        at = (at * gap.N_SPREAD + values.spread_bin())[rows.in_table & values.inside]
        shape = len(gap.FIELDS), N_SURPRISE, gap.N_SPREAD
        certain = _counts_at(values.certain_bin()[~rows.odd_tokens], 2 * gap.N_CERTAIN)
        unsure = values.b[(values.b < 0) & ~rows.odd_tokens]
        return {
            "tokens": tokens,
            "places": np.column_stack([of_parts, _counts_at(rows.part[far], len(PARTS))]),
            "indexes": indexes,
            "spread": _counts_at(at, math.prod(shape)).reshape(shape),
            "certain": certain.reshape(2, gap.N_CERTAIN),
            "largest_unsure": float(unsure.max()) if len(unsure) else -math.inf,
            "firsts": self._firsts(host(far)),
        }

    def _firsts(self, far: NDArray[np.bool_]) -> Floats:
        """First tokens by prompt, and those that are far off."""
        first = np.flatnonzero(host(self.rows.part) == PARTS.index("first"))
        prompts = self.rows.prompts[host(self.rows.row)[first]]
        columns = (np.ones(len(first)), far[first])
        return np.column_stack([np.bincount(prompts, column, gap.FIRST_BUCKETS) for column in columns]).astype(
            np.float64
        )

    def _turns(self) -> tuple[Floats, Floats]:
        shape = gap.TURNS, GROUPS, len(gap.GAP_SUMS)
        if not self.rows.places.turn.any():
            turns, surprise = np.zeros(shape), np.zeros((gap.TURNS, N_SURPRISE))
            turns[0] = _folded(self._every.sum(axis=1), self.rows.group, GROUPS)
            surprise[0] = self._every[:, :, 0].sum(axis=0)
            return turns, surprise
        turn = self.rows.on_device(np.minimum(self.rows.places.turn, gap.TURNS - 1))
        values = self.rows.values
        at = turn * GROUPS + self.rows.on_device(self.rows.group)[self.rows.row]
        by_group = sums_at(at, gap.TURNS * GROUPS, values.gap_columns)
        surprise = _counts_at(turn * N_SURPRISE + values.surprise, gap.TURNS * N_SURPRISE)
        return by_group.reshape(shape), surprise.reshape(gap.TURNS, N_SURPRISE)

    def _of_rows(self) -> tuple[Floats, Floats]:
        """ROW_SUMS of rows whose body differs somewhere, and SIZE_SUMS of rows by y."""
        sums = self._table.sum(axis=1)
        positive, differing = (sums[:, TOKEN_SUMS.index(name)] for name in ("n_positive", "n_differing"))
        leaning = ~self.rows.odd & (differing > 0)
        p, v, a = positive[leaning], differing[leaning], self.rows.advantages[leaning]
        known = np.abs(a) <= LARGEST_ADVANTAGE
        s, t, a = (p / np.sqrt(v))[known], np.sqrt(v)[known], a[known]
        pairs = ((a, a), (s, s), (t, t), (s, t), (a, s), (a, t))
        aa, ss, tt, st, as_, at = (float((x * y).sum()) for x, y in pairs)
        of_rows = [len(p), p.sum(), v.sum(), (p * p / v).sum()]
        of_advantages = [len(a), a.sum(), aa, s.sum(), t.sum(), ss, tt, st, as_, at]

        known = np.isfinite(self.far_size)
        bins = np.clip((self.far_size[known] - gap.SIZE_LEAST) / gap.SIZE_STEP, 0, gap.N_SIZES - 1).astype(np.int64)
        columns = [np.ones(self.rows.n_rows), *(self._of_whole(name) for name in ("n", "l2", "e2"))]
        sizes = np.column_stack([np.bincount(bins, column[known], gap.N_SIZES) for column in columns])
        return np.array([*of_rows, *of_advantages]), sizes.astype(np.float64)

    def _columns(self) -> dict[str, Levels]:
        lengths = np.floor(np.log2(self.rows.tokens.rows.sizes)).astype(np.int64)
        used, codes = np.unique(lengths, return_inverse=True)
        by_column = {**self.rows.levels, "length": (codes.astype(np.int64), tuple(used.tolist()))}
        size, odd = self.far_size, self.rows.odd
        known = np.isfinite(size)
        of_rows, of_known = (
            self._every.sum(axis=1),
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
                tokens=_folded(self._whole[~odd], level[~odd], n),
                gap=by_group.reshape(n, GROUPS, -1),
                surprise=_folded(self._every[:, :, 0], level, n),
            )
        return columns

    def _vocabulary(self) -> Vocabulary | None:
        if self.rows.token_ids is None or self.rows.again is None:
            return None
        counted = host((self.rows.part == BODY) & self.rows.values.inside) & (self.rows.token_ids >= 0)
        tokens = np.flatnonzero(counted)
        surprise, row = (host(column)[tokens] for column in (self.rows.values.surprise, self.rows.row))
        d = host(self.rows.values.d)[tokens]
        return vocabulary(
            self.rows.token_ids[tokens],
            again=self.rows.again[tokens],
            surprise=surprise,
            prompts=self.rows.prompts[row] % PROMPT_BUCKETS,
            d=d,
        )

    def _jackknifed(self) -> tuple[Floats, Floats, Floats]:
        """moments, curves, lines of GapTotals."""
        field = np.where(self.rows.odd, 0, 1) * GROUPS + self.rows.group
        n = len(gap.FIELDS) * GROUPS
        by_group = dict(zip(TOKEN_SUMS, np.moveaxis(_folded(self._table, field, n), -1, 0), strict=True))
        moments = np.stack([by_group[name].sum(axis=1) for name in ("rho_minus_1", "inverse_minus_1")], axis=-1)
        curves = np.stack([by_group[name] for name in ("n", "l", "l2")], axis=-1)
        on_u = np.stack([by_group[name] for name in ("n_inside", "u", "d", "u2", "d2", "ud")], axis=-1)
        lower, upper = np.array(gap.SURPRISE_EDGES[:-1]), np.array(gap.SURPRISE_EDGES[1:])
        high, low = np.flatnonzero(lower >= 1), np.flatnonzero(upper <= -1)
        lines = np.stack([on_u.sum(axis=1), on_u[:, high].sum(axis=1), on_u[:, low].sum(axis=1)], axis=1)
        # On v the bins are no use: all tokens, those above 1 and those below -1.
        v, d = self.rows.values.v, self.rows.values.d
        counted = self.rows.in_table & self.rows.values.inside
        total = self.rows.tokens.rows.sum
        by_row: list[Floats] = []
        for among in (counted, counted & (v > 1), counted & (v < -1)):
            among = as_floats(among)
            on, off = v * among, d * among
            by_row.append(np.stack([total(each) for each in (among, on, off, on * v, off * d, on * d)], axis=-1))
        lines = np.concatenate([lines, _folded(np.stack(by_row, axis=1), field, n)], axis=1)
        shape = len(gap.FIELDS), GROUPS
        return (
            moments.reshape(*shape, 2),
            curves.reshape(*shape, N_SURPRISE, 3),
            lines.reshape(*shape, *lines.shape[1:]),
        )


def _counts_at(at: Array, n: int) -> Floats:
    """How many at each of 0 .. n - 1: f64[n]."""
    return bin_counts(at, n).astype(np.float64)


def _folded(rows: Floats, at: Index, n: int) -> Floats:
    """Sums of rows [R, ...] at each of 0 .. n - 1: f64[n, ...]."""
    folded = np.zeros((n, *rows.shape[1:]))
    if not len(rows):
        return folded
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    folded[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return folded


REPEAT_LIMIT, ID_LIMIT = 5.0, 2.0
"""What |d| is held to, so that no single token rules a sum."""


def vocabulary(
    ids: NDArray[np.int64],
    *,
    again: NDArray[np.bool_],
    surprise: NDArray[np.int64],
    prompts: NDArray[np.int64],
    d: Floats,
) -> Vocabulary:
    """Of inside body tokens that have an id, each [V]: whether it came before in its row, its bin of u, its prompt's
    bucket and d, the difference in log-odds."""
    held = d.clip(-REPEAT_LIMIT, REPEAT_LIMIT)
    repeats = _sums(surprise * 2 + again, N_SURPRISE * 2, (np.ones(len(d)), held, held**2))
    held = d.clip(-ID_LIMIT, ID_LIMIT)
    by_id = _sums(prompts * ID_BUCKETS + ids % ID_BUCKETS, PROMPT_BUCKETS * ID_BUCKETS, (np.ones(len(d)), held))
    return Vocabulary(
        repeats=repeats.reshape(N_SURPRISE, 2, -1),
        by_id=by_id.reshape(PROMPT_BUCKETS, ID_BUCKETS, -1),
        spread=np.array([len(held), held.sum(), (held**2).sum()]),
    )


def _sums(at: NDArray[np.int64], n: int, columns: tuple[Floats, ...]) -> Floats:
    return np.stack([np.bincount(at, column, n) for column in columns], axis=-1).astype(np.float64)


BF16_BITS, FP16_BITS = 7, 10
"""Bits of the mantissa."""


def grid_sums(values: NDArray[Any]) -> Floats:
    """GRID_SUMS of a column's values: f64[K].  values: float32 or float64 [V], nats."""
    values = values[values != 0]
    narrow = values.astype(np.float32)
    bits = narrow.view(np.uint32)
    as_stored = narrow == values  # a float64 between two float32s is on no coarser grid
    bf16 = as_stored & ((bits & 0xFFFF) == 0)
    of_10_bits = narrow[as_stored & ((bits & 0x1FFF) == 0)]  # which is what float16 has; its range is narrower, too
    with np.errstate(over="ignore"):
        fp16 = of_10_bits.astype(np.float16) == of_10_bits
    # A step between neighbours is 2^(exponent - bits of the mantissa).
    n_by_exponent = np.bincount(bits >> 23 & 0xFF, minlength=256)
    squares = float((n_by_exponent * 4.0 ** (np.arange(256) - 127)).sum())
    steps = [squares / 4.0**mantissa / 12 for mantissa in (BF16_BITS, FP16_BITS)]
    # Values within a rounding of their type of a decimal of 4 places, and those of them that have 3.
    scaled = np.abs(values.astype(np.float64)) * 1e4
    rounding = np.finfo(values.dtype).eps
    scaled = scaled[np.abs(scaled - np.round(scaled)) <= scaled * rounding]
    tenths = scaled / 10
    decimals = int((np.abs(tenths - np.round(tenths)) <= tenths * rounding).sum()), len(scaled)
    return np.array([len(values), bf16.sum(), fp16.sum(), *decimals, *steps], np.float64)
