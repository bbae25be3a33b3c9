"""Where the tensors live, and how a worker thread uses it.

On a GPU every worker thread has a stream of its own, so that one thread's batch is copied over while another's is
computed.  On a CPU torch runs one thread per worker: work is split over shards, not inside an operation.
"""

import ctypes
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache

import torch

from rlcorr_cli.errors import UsageError

DEFAULT_BATCH_TOKENS = {"cpu": 3 << 18, "cuda": 1 << 22}
"""Tokens a batch holds: enough to hide per-call costs (some 5 ms of Python a batch, under the interpreter lock), few
enough for memory: another quarter of a million take some 45 MB a worker thread."""

COMPARING_TOKENS = {**DEFAULT_BATCH_TOKENS, "cpu": 1 << 18}
"""The same where each of many plans keeps values of every token: to compare plans for 20,000 and for 200,000 sequences
takes 648 and 679 MB, and 1,037 and 1,182 in portions of the default, a tenth faster; in half as large ones 527 and 553,
but a fifth more time."""

DIAGNOSING_TOKENS = {**DEFAULT_BATCH_TOKENS, "cpu": 1 << 17}
"""The same for a diagnosis, which holds some seventy values of every token: in portions of the default it takes 1,052
and 1,224 MB."""

OutOfMemory = torch.OutOfMemoryError
"""What a GPU raises that is full."""
_LOCAL = threading.local()


def resolve(name: str) -> torch.device:
    """'auto' (a GPU if there is one), 'cpu', 'cuda', 'cuda:1' -> device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "mps":
        raise UsageError("Apple's MPS has no float64, which every sum here needs.", "Use --device cpu.")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise UsageError(f"Unknown device '{name}'.", "Use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        n_devices = torch.cuda.device_count()
        raise UsageError(
            f"There is no device '{name}': torch sees {n_devices} CUDA devices.", "Use --device auto or cpu."
        )
    return device


def gpus(name: str) -> int:
    """How many CUDA devices share the work of 'auto' or 'cuda'; 0 where a CPU does it, or one that is named."""
    return torch.cuda.device_count() if name in ("auto", "cuda") else 0


def visible_gpus(n: int) -> list[str]:
    """What CUDA_VISIBLE_DEVICES is to hold for each of n GPUs to be seen alone."""
    named = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    return named[:n] if named else [str(gpu) for gpu in range(n)]


@lru_cache(maxsize=2)
def _tune_allocation(sparing: bool) -> None:
    """Tell glibc, in one arena, what to do with what tensors free; elsewhere, nothing.

    Kept, since temporaries of a few MB come and go by the hundred, and giving each back to the system and faulting it
    in again took a tenth of the time.  Sparing: given back, since rows on their way to a file outlive the temporaries
    around them, and the heap then grew along the dump by what lay scattered between: a dump ten times as long took 1.13
    times the memory, and takes 1.06 times as much now.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    trim_threshold, mmap_threshold, arena_max = -1, -3, -8
    mallopt(trim_threshold, 1 << 20 if sparing else 1 << 30)
    mallopt(mmap_threshold, 1 << 18 if sparing else 1 << 25)
    mallopt(arena_max, 1)


def free() -> None:
    """Give memory of the GPU back that nothing holds any more."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def trim() -> None:
    """Give freed memory back to the system after all, once in a while: a long run that counts pictures would otherwise
    grow by what lies scattered between its larger pieces.  Elsewhere than on glibc, nothing."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return


@contextmanager
def worker(device: torch.device, sparing: bool = False) -> Generator[None]:
    """What one worker thread runs its shard in.  sparing: freed memory goes back to the system."""
    if device.type == "cpu":
        torch.set_num_threads(1)
        _tune_allocation(sparing)
        yield
        return
    if not hasattr(_LOCAL, "stream"):
        _LOCAL.stream = torch.cuda.Stream(device)
    with torch.cuda.device(device), torch.cuda.stream(_LOCAL.stream):
        yield
