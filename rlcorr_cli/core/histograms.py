"""Values to bucket counts, on whatever device they are."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcorr_cli.totals.histogram import Histogram


def histogram(values: Tensor) -> Histogram:
    """Counts of some values."""
    return Histogram.of_counts(bincount(buckets(values), 1 << 16))


def buckets(values: Tensor) -> Tensor:
    """The top 16 bits of each value as float32, i32; the bins of FLOAT_BITS."""
    return (values.float().view(torch.int32) >> 16) & 0xFFFF


def bincount(at: Tensor, n: int) -> NDArray[np.int64]:
    """How many of each of 0 .. n - 1.  torch's, because NumPy's looks for the largest under the interpreter lock."""
    return torch.bincount(at, minlength=n).cpu().numpy()
