"""By what rows are called the worst: a number for each, larger for worse, on which a list over a whole dump is made."""

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.measure.arrays import Device, host
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.flat import Floats


def largest_gaps(batch: Batch, device: Device, mode: Mode) -> Floats:
    """The largest |log-ratio| of a token in each row of a batch, f64[B]; NaN of a row without a valid token."""
    values, filled = np.full(batch.n_rows, np.nan), batch.filled
    if batch.n_tokens:
        gaps = np.abs(host(Tokens.of(batch, device, mode).log_ratio))
        values[filled] = np.maximum.reduceat(gaps, batch.offsets[:-1][filled])
    return values


def largest(values: Floats, n: int) -> NDArray[np.int64]:
    """Indices of the n largest that are numbers, largest first, the earlier one first among equals."""
    known = np.flatnonzero(~np.isnan(values))
    if n < len(known):
        bound = np.partition(values[known], len(known) - n)[len(known) - n]
        known = known[values[known] >= bound]
    return known[np.argsort(-values[known], kind="stable")][:n]
