"""Flat values and offsets: reduce per sequence, spread back.  No padding anywhere.

A Ragged describes B sequences of at least one token each (empty rows are counted and left out before).  On a CPU
the reductions run in NumPy on the tensor's own memory: `np.add.reduceat` was 3-6 times faster here than
`torch.segment_reduce` (0.3 against 1-2 ns a value); on other devices `segment_reduce` is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """offsets: i64[B+1] on the host, strictly increasing from 0 to V."""

    offsets: NDArray[np.int64]
    device: torch.device

    @property
    def n_sequences(self) -> int:
        """B."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """n, tokens per sequence: f64[B]."""
        return torch.from_numpy(np.diff(self.offsets).astype(np.float64)).to(self.device)

    @cached_property
    def _device_offsets(self) -> Tensor:
        return torch.from_numpy(self.offsets).to(self.device)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return self.offsets[:-1]

    @cached_property
    def _count_type(self) -> type[np.signedinteger[Any]]:
        return np.int16 if np.diff(self.offsets).max() < 1 << 15 else np.int64

    @cached_property
    def _counts(self) -> Tensor:
        return torch.from_numpy(np.diff(self.offsets)).to(self.device)

    def sum(self, values: Tensor) -> Tensor:
        """[V] -> [B]; float64 in, float64 out."""
        return self._reduce(values, np.add, "sum")

    def low(self, values: Tensor) -> Tensor:
        """Minimum per sequence: [V] -> [B]."""
        return self._reduce(values, np.minimum, "min")

    def high(self, values: Tensor) -> Tensor:
        """Maximum per sequence: [V] -> [B]."""
        return self._reduce(values, np.maximum, "max")

    def above(self, values: Tensor, bound: float | None) -> Tensor:
        """How many of a sequence's values exceed a bound: [V] -> f64[B]; 0 without a bound."""
        return self._count(np.greater, torch.gt, values, bound)

    def below(self, values: Tensor, bound: float | None) -> Tensor:
        """How many lie under it, likewise."""
        return self._count(np.less, torch.lt, values, bound)

    def spread(self, rows: Tensor) -> Tensor:
        """One value per sequence to each of its tokens: [B] -> [V]."""
        return torch.repeat_interleave(rows, self._counts, output_size=int(self.offsets[-1]))

    def log_sum_exp(self, values: Tensor) -> Tensor:
        """log of the sum of e^values per sequence, without overflow: [V] -> [B]."""
        peak = self.high(values)
        return peak + torch.log(self.sum(torch.exp(values - self.spread(peak))))

    def keep(self, mask: Tensor) -> "tuple[Ragged, NDArray[np.bool_]]":
        """The sequences left when only tokens with mask (bool [V]) stay.

        Returns their Ragged and which of the B sequences still have a token.
        """
        counts = self.sum(mask.double()).cpu().numpy().astype(np.int64)
        left = counts > 0
        return Ragged(np.concatenate([[0], np.cumsum(counts[left])]), self.device), left

    def _count(self, ufunc: np.ufunc, operator: Callable[..., Tensor], values: Tensor, bound: float | None) -> Tensor:
        if bound is None:
            return torch.zeros_like(self.lengths)
        if self.device.type != "cpu":
            return self.sum(operator(values, bound).double())
        # Half the time of a float64 sum: one byte a token, added as int16 where no sequence is long enough to overflow.
        outside = ufunc(values.numpy(), bound).view(np.int8)
        return torch.from_numpy(np.add.reduceat(outside, self._starts, dtype=self._count_type).astype(np.float64))

    def _reduce(self, values: Tensor, ufunc: np.ufunc, how: str) -> Tensor:
        if self.device.type == "cpu":
            return torch.from_numpy(ufunc.reduceat(values.numpy(), self._starts))
        return torch.segment_reduce(values, how, offsets=self._device_offsets, unsafe=True)
