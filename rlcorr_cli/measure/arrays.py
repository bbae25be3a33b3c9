"""The array libraries that the arithmetic runs on, and the few operations that they do not share.

Formulas are written once, against a namespace of the array API: NumPy itself on a CPU, `array_api_compat.torch` on a
GPU, and on a CPU where `--device torch` asks for it.  This is the only module that knows torch, and it imports it when
a device of torch's is asked for: a run on a CPU never does.

What a batch goes through: its columns are put on a `Device` (`put`), rows of them are described by `Segments`
(a row's values stand one after another, no padding anywhere), formulas make one value for every token there, and a
reduction (`sum`, `min`, `max`, `count`, `log_sum_exp`) brings one number for every row back to the host, where it is
NumPy's.  `spread` goes the other way: a row's number to each of its tokens.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import UsageError, require_address_space
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import Histogram
from rlcorr_cli.totals.flat import Flags, Floats, Ints, offsets_of, ranges
from rlcorr_cli.totals.row_keys import Keys, factors, keys_of_floats, of_sums

Array = Any
"""Values of every token or of every row: an NDArray, or a tensor of torch's."""

EXP_LIMIT = 700.0
"""e^+-700 is the last that float64 holds with room for a product; larger log-ratios are exponentiated as +-700."""
BLOCK_TOKENS = 1 << 17
"""Tokens of whole rows that a CPU computes at once: few enough for their values (1 MiB a quantity) to stay near in its
caches, enough for the calls of a block, 0.3 ms, not to count."""
DEFAULT_BATCH_TOKENS = {"cpu": 7 << 16, "torch": 3 << 18, "cuda": 1 << 22}
"""Tokens a batch holds, by the type of device: enough to hide what is done once a batch, few enough for memory."""


TORCH_BYTES = 900_000_000
"""Of address space, which torch and what is loaded with it take; measured with torch 2.13 for CPUs."""
_LOCAL = threading.local()


@frozen
class Device:
    """Where arrays live: in NumPy's memory ("cpu"), or on a device of torch's ("cuda", "cuda:1"; "torch": its CPU)."""

    name: str

    @property
    def type(self) -> str:
        """'cpu', 'torch' or 'cuda'."""
        return self.name.partition(":")[0]

    @property
    def xp(self) -> Any:
        """The namespace that computes there."""
        return np if self.name == "cpu" else _torch_namespace()

    @property
    def in_library(self) -> Any:
        """What the library calls it."""
        return None if self.name == "cpu" else self.xp.device("cpu" if self.name == "torch" else self.name)

    def put(self, values: NDArray[Any]) -> Array:
        """The same values there, in their own type; on a CPU the same memory."""
        if self.name == "cpu":
            return values
        import torch

        if self.type == "torch":
            return torch.asarray(values.copy() if not values.flags.writeable else values)
        pinned = torch.empty(values.shape, dtype=torch.asarray(np.empty(0, values.dtype)).dtype, pin_memory=True)
        np.copyto(pinned.numpy(), values)
        return pinned.to(self.in_library, non_blocking=True)

    def floats(self, values: NDArray[Any]) -> Array:
        """The same values as float64 there.  They travel in their own width, and are widened there."""
        return values.astype(np.float64) if self.name == "cpu" else self.put(values).double()


CPU = Device("cpu")


def namespace(values: Array) -> Any:
    """The namespace that computes on these values."""
    return np if isinstance(values, (np.ndarray, np.generic)) else _torch_namespace()


def host(values: Array) -> NDArray[Any]:
    """As a NumPy array; on a CPU the same memory."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def product(values: Array, factors: Array) -> Array:
    """values times factors; 0 where either is, be the other beyond float64."""
    products = values * factors
    if math.isfinite(products.sum()):
        return products
    return namespace(values).where((values == 0) | (factors == 0), 0.0, products)


def as_floats(values: Array) -> Array:
    """Flags, whole numbers or narrower floats as float64."""
    xp = namespace(values)
    return xp.astype(values, xp.float64)


def bin_counts(at: Array, n: int) -> Ints:
    """How many of each of 0 .. n - 1, i64[n] on the host.  at: whole numbers."""
    if isinstance(at, np.ndarray):
        return np.bincount(at, minlength=n)
    return at.bincount(minlength=n).cpu().numpy()


def bin_sums(at: Array, n: int, values: Array) -> Floats:
    """Sums of values at each of 0 .. n - 1, f64[n] on the host."""
    if isinstance(at, np.ndarray):
        # Without a value NumPy counts in integers, weights or not.
        return np.bincount(at, values, n).astype(np.float64, copy=False)
    return at.bincount(values, n).double().cpu().numpy()


def histogram(pieces: Sequence[Array]) -> Histogram:
    """Of all values of some arrays; from a GPU come the counts of its bins."""
    if isinstance(pieces[0], np.ndarray):
        return Histogram.counting(pieces)
    (values,) = pieces
    xp = namespace(values)
    return Histogram.of_counts(bin_counts((values.float().view(xp.int32) >> 16) & 0xFFFF, 1 << 16))


T = TypeVar("T")


def concatenated(parts: Sequence[T]) -> T:
    """Values of several sets of rows as those of all, one after another: arrays, mappings and dataclasses of such;
    tuples of arrays stay in pieces.

    Any other value is the first part's.
    """
    first: Any = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)  # pyrefly: ignore[no-matching-overload]
    if isinstance(first, tuple):
        return tuple(chain.from_iterable(parts))  # pyrefly: ignore
    if isinstance(first, Mapping):
        return {name: concatenated([part[name] for part in parts]) for name in first}  # pyrefly: ignore
    if is_dataclass(first):
        return replace(
            first, **{f.name: concatenated([getattr(part, f.name) for part in parts]) for f in fields(first)}
        )
    return first


_UFUNCS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@frozen
class Segments:
    """B rows of V values that stand one after another: offsets i64[B+1] on the host, strictly increasing from 0 to V.

    No row is empty: `np.add.reduceat` gives an empty row the next one's value.  What is reduced comes to the host.
    """

    offsets: Ints
    device: Device = CPU

    @property
    def n_rows(self) -> int:
        """B."""
        return len(self.offsets) - 1

    @property
    def n_values(self) -> int:
        """V."""
        return int(self.offsets[-1])

    @cached_property
    def lengths(self) -> Ints:
        """Values of each row, i64[B]."""
        return np.diff(self.offsets)

    @cached_property
    def sizes(self) -> Floats:
        """The same as f64[B]."""
        return self.lengths.astype(np.float64)

    def sum(self, values: Array) -> Floats:
        """Sums of each row's values, f64[V] -> f64[B]; beyond float64 infinite."""
        return self._reduced(values, "sum")

    def min(self, values: Array) -> Floats:
        """The least of each row, f64[V] -> f64[B]."""
        return self._reduced(values, "min")

    def max(self, values: Array) -> Floats:
        """The largest of each row, f64[V] -> f64[B]."""
        return self._reduced(values, "max")

    def count(self, flags: Array) -> Floats:
        """How many of each row's values are flagged, of booleans alone: bool[V] -> f64[B]."""
        if not isinstance(flags, np.ndarray):
            return self._reduced(flags.double(), "sum")
        # One byte a value, added as int16 where no row is so long that it would overflow.
        width = np.int16 if self.lengths.max(initial=0) < 1 << 15 else np.int64
        return np.add.reduceat(flags.view(np.int8), self.offsets[:-1], dtype=width).astype(np.float64)

    def mean(self, values: Array) -> Floats:
        """The mean of each row, which of finite values is finite: f64[V] -> f64[B]."""
        with np.errstate(over="ignore", invalid="ignore"):
            means = self.sum(values) / self.sizes
            if np.isfinite(means).all():
                return means
            return self.sum(values / self.spread(self.sizes))  # whose sums are beyond float64 no more

    def log_sum_exp(self, values: Array) -> Floats:
        """log of the sum of e^values of each row, without overflow: f64[V] -> f64[B]."""
        peaks = self.max(values)
        return peaks + np.log(self.sum(namespace(values).exp(values - self.spread(peaks))))

    def spread(self, rows: NDArray[Any]) -> Array:
        """A row's number to each of its values: [B] on the host -> [V]."""
        return self.device.xp.repeat(self.device.put(rows), self._device_lengths)

    def keys(self, values: Array) -> Keys:
        """One 64-bit key of each row's values, as float32 has them (totals/row_keys.py): u64[B]."""
        if isinstance(values, np.ndarray):
            return keys_of_floats(values, self.offsets)
        xp = self.device.xp
        bits = xp.astype((xp.astype(values, xp.float32) + 0).view(xp.int32), xp.int64) & 0xFFFFFFFF
        places = xp.arange(self.n_values, device=self.device.in_library) - self.spread(self.offsets[:-1])
        terms = (bits + 1) * self.device.put(factors(self.lengths).view(np.int64))[places]
        ends = host(terms.cumsum(0)[self._device_offsets[1:] - 1])  # modulo 2^64, as sums of whole numbers are
        return of_sums(np.diff(ends, prepend=0).view(np.uint64), self.lengths)

    def keep(self, mask: Array) -> "tuple[Segments, Flags]":
        """The rows that are left when only values with mask (bool[V]) stay, and which of the B these are."""
        counts = self.count(mask).astype(np.int64)
        left = counts > 0
        return Segments(offsets_of(counts[left]), self.device), left

    def select_rows(self, rows: Flags) -> "tuple[Segments, Array]":
        """Some of the rows, bool[B], and which values are theirs."""
        lengths = self.lengths[rows]
        values = ranges(self.offsets[:-1][rows], lengths)
        return Segments(offsets_of(lengths), self.device), self.device.put(values)

    @cached_property
    def _device_lengths(self) -> Array:
        return self.device.put(self.lengths)

    @cached_property
    def _device_offsets(self) -> Array:
        return self.device.put(self.offsets)

    def _reduced(self, values: Array, how: str) -> Floats:
        if isinstance(values, np.ndarray):
            return _UFUNCS[how].reduceat(values, self.offsets[:-1])
        import torch

        return torch.segment_reduce(values, how, offsets=self._device_offsets, unsafe=True).cpu().numpy()


def row_blocks(offsets: Ints, device: Device, block_tokens: int = BLOCK_TOKENS) -> Iterator[tuple[int, int]]:
    """The rows that are computed at once, first and past the last: on a CPU whole rows of some `block_tokens` values,
    elsewhere all.  offsets: i64[B+1]."""
    n_rows, n_values = len(offsets) - 1, int(offsets[-1])
    if device.name != "cpu" or n_values <= block_tokens:
        yield 0, n_rows
        return
    ends = np.searchsorted(offsets, np.arange(block_tokens, n_values, block_tokens), side="left")
    yield from pairwise(sorted({0, *ends.tolist(), n_rows}))


def resolve(name: str) -> Device:
    """'auto', 'cpu', 'torch', 'cuda', 'cuda:1' -> device; a UsageError of any other.

    'auto' is the CPU, until it is measured from how many tokens on a GPU is faster.
    """
    if name == "mps":
        raise UsageError("Apple's MPS has no float64, which every sum here needs.", "Use ⟦device cpu⟧.")
    if name in ("auto", "cpu"):
        return CPU
    if name == "torch":
        _torch()
        return Device(name)
    kind, colon, number = name.partition(":")
    if kind != "cuda" or (colon and not number.isdecimal()):
        raise UsageError(f"Unknown device '{name}'.", "Use auto, cpu, torch, cuda or cuda:N.")
    n_devices = _torch().cuda.device_count()
    if int(number or 0) >= n_devices:
        raise UsageError(f"There is no device '{name}': torch sees {n_devices} CUDA devices.", "Use ⟦device cpu⟧.")
    return Device(name)


def gpus(name: str) -> int:
    """How many CUDA devices share the work of 'cuda'; 0 where a CPU does it, or one that is named."""
    return _torch().cuda.device_count() if name == "cuda" else 0


def visible_gpus(n: int) -> list[str]:
    """A value of CUDA_VISIBLE_DEVICES for each of n GPUs, which shows that one alone."""
    named = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    return named[:n] if named else [str(gpu) for gpu in range(n)]


def out_of_memory() -> tuple[type[BaseException], ...]:
    """What a GPU raises that is full; nothing where torch is not loaded."""
    torch = sys.modules.get("torch")
    return () if torch is None else (torch.OutOfMemoryError,)


def free() -> None:
    """Give memory of the GPU back that nothing holds any more."""
    if "torch" in sys.modules and _torch().cuda.is_initialized():
        _torch().cuda.empty_cache()


KEPT_BYTES = 1 << 24
"""What glibc keeps at the end of its heaps, and the least that it takes from the system by itself."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for what comes next: the first touch of a page of new memory takes as long as
    several passes over it.  Elsewhere, nothing.  For a whole process, so for commands to call and not for a library."""
    with suppress(OSError, AttributeError, TypeError):
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, KEPT_BYTES)


def trim() -> None:
    """Give freed memory back to the system, which glibc keeps between what is still held; elsewhere, nothing."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def worker(device: Device) -> Generator[None]:
    """What one worker thread runs its shard in.

    Work is split over shards, not inside an operation, so torch runs one thread on a CPU.  On a GPU every worker thread
    has a stream of its own, so that one thread's batch is copied over while another's is computed.
    """
    with nullcontext() if device.name == "cpu" else _on_torch(device), np.errstate(all="ignore"):
        yield


@contextmanager
def _on_torch(device: Device) -> Generator[None]:
    torch = _torch()
    if device.type == "torch":
        torch.set_num_threads(1)
        yield
        return
    if not hasattr(_LOCAL, "stream"):
        _LOCAL.stream = torch.cuda.Stream(device.in_library)
    with torch.cuda.device(device.in_library), torch.cuda.stream(_LOCAL.stream):
        yield


def _torch() -> Any:
    if "torch" not in sys.modules:
        require_address_space(TORCH_BYTES)
    try:
        import torch
    except ModuleNotFoundError as error:
        instead = "pip install torch, or use ⟦device cpu⟧."
        raise UsageError("The devices 'cuda' and 'torch' need PyTorch, which is not installed.", instead) from error
    return torch


def _torch_namespace() -> Any:
    _torch()
    import array_api_compat.torch

    return array_api_compat.torch
