"""A look for the cause of the gap beside other work on a dump: on a sample of its rows, so that it costs little."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlcorr_cli.measure.chosen_rows import ChosenRows, chosen, pooled, sampled_rows
from rlcorr_cli.measure.gap import gap_totals
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.token_context import token_context
from rlcorr_cli.runs.reading import ShardReading
from rlcorr_cli.totals.gap import GapTotals

GAP_BYTES = 2 << 20
"""About a quarter of a million tokens in Parquet, many times what telling a cause takes."""


def gap_share(dump: Dump) -> int:
    """One of how many rows is looked at: a power of 4, for about GAP_BYTES of them."""
    return 4 ** max(0, round(math.log(max(dump.n_bytes, 1) / GAP_BYTES, 4)))


@dataclass(frozen=True)
class SampledGap:
    """How a shard's rows are sampled.  share: one of how many, 0 for none."""

    reading: ShardReading
    share: int
    mode: Mode = "decoupled"

    def rows(self, rows: CheckedRows) -> Iterator[ChosenRows]:
        """Those that are looked at, if any."""
        sampled = sampled_rows(rows.batch, self.share) if self.share else ()
        if len(sampled):
            yield chosen(rows.batch, token_context(rows, self.reading.reader.roles), np.asarray(sampled))

    def totals(self, sampled: Sequence[ChosenRows]) -> GapTotals | None:
        """What they add up to; at once, because small portions cost as much as large ones."""
        if not sampled:
            return None
        batch, around = pooled(sampled)
        return gap_totals(batch, around, np.arange(batch.n_rows), device=self.reading.device, mode=self.mode).totals
