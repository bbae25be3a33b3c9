"""Rows of a batch with what stands around them, as the statistics of a gap look at them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, Surroundings
from rlcorr_cli.core import bootstrap
from rlcorr_cli.core.arrays import Array, Device, as_floats
from rlcorr_cli.core.chosen_rows import chosen
from rlcorr_cli.core.token_gaps import TokenGaps
from rlcorr_cli.core.token_parts import TokenPlaces, token_places
from rlcorr_cli.core.tokens import Tokens, scored_rollout, trained_policies
from rlcorr_cli.core.vocabulary import came_before
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.totals import gap
from rlcorr_cli.totals.gap import BODY, GROUPS, N_SURPRISE, ODD
from rlcorr_cli.totals.histogram import Floats

ODD_TOKENS, ODD_CORRELATION, ODD_DEVIATION, ODD_SIZE, ODD_LEAST = 16, 0.5, 0.2, -1.5, -8.0
"""A row's columns do not belong to each other where, over this many body tokens, those above the least correlate less,
both spread more, and the typical ln|r| is above the size."""
Index = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class GapRows:
    """R rows, none empty, and what stands around them.

    stored: the two columns as the dump has them, [V].  keys: u64[R].  advantages: f64[R], NaN of none.  token_ids:
    i64[V], as of Surroundings, and again: bool[V], whether each came before in its row; None without.
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
    def of(cls, batch: Batch, around: Surroundings, rows: Index, *, device: Device, mode: Mode) -> "GapRows":
        """Some rows of a batch."""
        if len(rows) < batch.n_rows:
            batch, around = chosen(batch, around, rows)
        tokens = Tokens.of(batch, device, mode)
        keys = bootstrap.row_keys(scored_rollout(batch, mode), tokens.rows.offsets, batch.row_keys)
        prompts = keys if around.prompts is None else np.where(around.prompts == 0, keys, around.prompts)
        trained, _ = trained_policies(batch, mode)
        token_ids = again = None
        if around.token_ids is not None:
            valid = slice(None) if around.valid is None else around.valid
            token_ids, again = around.token_ids[valid], came_before(around.token_ids, around.offsets)[valid]
        return cls(
            tokens=tokens,
            stored=(batch.rollout_logp, trained),
            places=token_places(around),
            keys=keys,
            prompts=(prompts % np.uint64(gap.PROMPT_BUCKETS)).astype(np.int64),
            advantages=_advantages(batch, around),
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
        """Tokens of bodies and of odd rows."""
        return self.in_body | self.odd_tokens

    @cached_property
    def special(self) -> Array:
        """The tokens that are not in the table."""
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


def _advantages(batch: Batch, around: Surroundings) -> Floats:
    """Of each row: its advantage, else its reward; NaN of none."""
    if around.advantages is not None:
        return around.advantages
    return np.full(batch.n_rows, math.nan) if batch.reward is None else batch.reward
