"""Which rows of a dump have been seen before, by their sample_id."""

import threading
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.io.as_numpy import as_numpy

Keys = NDArray[np.uint64]
DRAW = "rlcorr_draw"
"""The column in which `filter --resample` numbers a row's copies, so that they are told apart."""


def keys(columns: Sequence[pa.Array]) -> tuple[Keys, NDArray[np.bool_]]:
    """64-bit hashes of the rows' values, the id first, and which rows have an id at all."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    hashes = np.array([_hash(row) for row in rows], np.uint64)
    return hashes, as_numpy(columns[0].is_valid())


def _hash(row: tuple[Any, ...]) -> int:
    return int.from_bytes(blake2b("\x1f".join(map(str, row)).encode("utf-8", "replace"), digest_size=8).digest())


class Seen:
    """The keys met so far, 8 bytes each: sorted runs whose lengths fall by half, so that adding stays cheap.

    May be shared by threads.  Two different ids in 10^8 have one key with a chance of 0.03 %.
    """

    def __init__(self) -> None:
        self._runs: list[Keys] = []
        self._lock = threading.Lock()

    def repeated(self, some: Keys) -> NDArray[np.bool_]:
        """Which of these keys came before, here or earlier; then they are known, too."""
        with self._lock:
            unique, first = np.unique(some, return_index=True)
            again = np.ones(len(some), np.bool_)
            again[first] = False
            for run in self._runs:
                at = np.minimum(np.searchsorted(run, some), len(run) - 1)
                again |= run[at] == some
            self._add(unique)
        return again

    def _add(self, unique: Keys) -> None:
        if not len(unique):
            return
        while self._runs and len(self._runs[-1]) < 2 * len(unique):
            unique = np.union1d(self._runs.pop(), unique)
        self._runs.append(unique)
