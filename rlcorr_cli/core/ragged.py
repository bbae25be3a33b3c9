"""Flat values and offsets: reduce per sequence, spread back.  No padding anywhere.

A Ragged describes B sequences of at least one token each (empty rows are counted and left out before).  What a plan
needs again stays on the device; what is only added up comes back as NumPy rows of one number per sequence, and all
arithmetic on those is NumPy's: a torch call costs microseconds and hands over the interpreter lock, whatever its size.

On a CPU the reductions run in NumPy on the tensor's own memory: `np.add.reduceat` was 3-6 times faster here than
`torch.segment_reduce` (0.3 against 1-2 ns a value); on other devices `segment_reduce` is used.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcorr_cli.totals.histogram import Floats

_ROOM = threading.local()


def to_numpy(values: Tensor) -> Floats:
    """As a NumPy array; on a CPU the same memory."""
    return values.cpu().numpy()


def stretches(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of each stretch, one after another."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())


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
    def sizes(self) -> Floats:
        """n, tokens per sequence: f64[B] on the host."""
        return np.diff(self.offsets).astype(np.float64)

    @cached_property
    def lengths(self) -> Tensor:
        """The same on the device."""
        return torch.from_numpy(self.sizes).to(self.device)

    @cached_property
    def on_cpu(self) -> bool:
        """Whether tensors are NumPy's to read."""
        return self.device.type == "cpu"

    @cached_property
    def _device_offsets(self) -> Tensor:
        return torch.from_numpy(self.offsets).to(self.device)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return self.offsets[:-1]

    @cached_property
    def _count_type(self) -> type[np.signedinteger[Any]]:
        return np.int16 if self.sizes.max() < 1 << 15 else np.int64

    @cached_property
    def _each(self) -> Tensor:
        """Room for one quantity of every token, which `rows` gives out again."""
        return self.rows(1)[0]

    @cached_property
    def _counts(self) -> Tensor:
        return torch.from_numpy(np.diff(self.offsets)).to(self.device)

    def sum(self, values: Tensor) -> Tensor:
        """[V] -> [B]; float64 in, float64 out."""
        return self._reduce(values, np.add, "sum")

    def mean(self, values: Tensor) -> Floats:
        """Mean per sequence, which of finite values is finite: [V] -> [B] on the host."""
        means = to_numpy(self.sum(values)) / self.sizes
        if np.isfinite(means).all():
            return means
        return to_numpy(self.sum(values / self.broadcast(self.lengths)))  # whose sums are beyond float64 no more

    def min(self, values: Tensor) -> Tensor:
        """Minimum per sequence: [V] -> [B]."""
        return self._reduce(values, np.minimum, "min")

    def max(self, values: Tensor) -> Tensor:
        """Maximum per sequence: [V] -> [B]."""
        return self._reduce(values, np.maximum, "max")

    def rows(self, n_rows: int) -> Tensor:
        """Room for some quantities of every token, to be filled with `out=` and added up at once: f64[n_rows, V].

        On a CPU it is the thread's one room, which the next call gives out again: chunks this large, allocated anew
        between small ones, made the heap grow with the length of the dump.
        """
        shape = n_rows, int(self.offsets[-1])
        if not self.on_cpu:
            return torch.empty(shape, dtype=torch.float64, device=self.device)
        room = getattr(_ROOM, "flat", None)
        if room is None or len(room) < n_rows * shape[1]:
            room = _ROOM.flat = torch.empty(n_rows * shape[1], dtype=torch.float64)
        return room[: n_rows * shape[1]].view(shape)

    def sum_of(self, operation: Callable[..., object], *operands: object) -> Floats:
        """Sums per sequence of what an operation with `out=` makes of every token: [B] on the host.

        What it makes is added up at once, while it is still in a CPU's cache.
        """
        operation(*operands, out=self._each)
        return to_numpy(self.sum(self._each))

    def sum_and_max_of(self, operation: Callable[..., object], *operands: object) -> tuple[Floats, Floats]:
        """The same sums, and the largest of each sequence."""
        total = self.sum_of(operation, *operands)
        return total, to_numpy(self.max(self._each))

    def totals(self, rows: Tensor) -> Floats:
        """Sums per sequence: [K, V] -> [K, B] on the host."""
        if self.on_cpu:
            # Row by row, because over two axes NumPy holds the interpreter lock.
            return np.stack([np.add.reduceat(row, self._starts) for row in rows.numpy()])
        return to_numpy(torch.stack([self.sum(row) for row in rows]))

    def counts(self, values: Tensor, below: Sequence[float], above: Sequence[float]) -> Floats:
        """How many of a sequence's values lie below or above each bound: [V] -> [K, B] on the host, below first."""
        if not self.on_cpu:
            tests = [values < bound for bound in below] + [values > bound for bound in above]
            return self.totals(torch.stack(tests).double())
        flat, outside = values.numpy(), np.empty(len(values), np.bool_)
        tests = [(np.less, bound) for bound in below] + [(np.greater, bound) for bound in above]
        counted = np.empty((len(tests), self.n_sequences))
        for row, (test, bound) in zip(counted, tests, strict=True):
            test(flat, bound, out=outside)
            row[:] = self._counted(outside)
        return counted

    def outside(self, values: Tensor, bounds: Sequence[tuple[float, float]]) -> Floats:
        """How many of a sequence's values lie outside each pair of bounds: [V] -> [K, B] on the host."""
        if not self.on_cpu:
            return self.totals(torch.stack([(values < low) | (values > high) for low, high in bounds]).double())
        flat, below, above = values.numpy(), *np.empty((2, len(values)), np.bool_)
        counted = np.empty((len(bounds), self.n_sequences))
        for row, (low, high) in zip(counted, bounds, strict=True):
            np.logical_or(np.less(flat, low, out=below), np.greater(flat, high, out=above), out=below)
            row[:] = self._counted(below)
        return counted

    def _counted(self, flags: NDArray[np.bool_]) -> NDArray[np.signedinteger[Any]]:
        """How many of a sequence's tokens are flagged: one byte a token, added as int16 where none is so long that it
        would overflow."""
        return np.add.reduceat(flags.view(np.int8), self._starts, dtype=self._count_type)

    def broadcast(self, rows: Tensor) -> Tensor:
        """One value per sequence to each of its tokens: [B] -> [V]."""
        return torch.repeat_interleave(rows, self._counts, output_size=int(self.offsets[-1]))

    def positions(self) -> Tensor:
        """0, 1, 2, ... in each sequence, float64 [V]."""
        place = np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        return torch.from_numpy(place.astype(np.float64)).to(self.device)

    def log_sum_exp(self, values: Tensor) -> Tensor:
        """log of the sum of e^values per sequence, without overflow: [V] -> [B]."""
        peak = self.max(values)
        return peak + torch.log(self.sum(torch.exp(values - self.broadcast(peak))))

    def keep(self, mask: Tensor) -> "tuple[Ragged, NDArray[np.bool_]]":
        """The sequences left when only tokens with mask (bool [V]) stay.

        Returns their Ragged and which of the B sequences still have a token.
        """
        counts = to_numpy(self.sum(mask.double())).astype(np.int64)
        left = counts > 0
        return Ragged(np.concatenate([[0], np.cumsum(counts[left])]), self.device), left

    def some(self, sequences: NDArray[np.bool_]) -> "tuple[Ragged, Tensor]":
        """Some of the sequences, bool [B], and which tokens are theirs."""
        lengths = np.diff(self.offsets)[sequences]
        tokens = stretches(self._starts[sequences], lengths)
        return Ragged(np.concatenate([[0], np.cumsum(lengths)]), self.device), torch.from_numpy(tokens).to(self.device)

    def _reduce(self, values: Tensor, ufunc: np.ufunc, how: str) -> Tensor:
        if self.on_cpu:
            with np.errstate(over="ignore", invalid="ignore"):  # infinite beyond every float, and silent as torch is
                return torch.from_numpy(ufunc.reduceat(values.numpy(), self._starts))
        return torch.segment_reduce(values, how, offsets=self._device_offsets, unsafe=True)
