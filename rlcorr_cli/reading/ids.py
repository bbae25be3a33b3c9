"""Which rows of a dump have been seen before, by their sample_id."""

import threading
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.reading.arrow_values import as_numpy, call, holds_token_ids
from rlcorr_cli.reading.checks import Lists
from rlcorr_cli.reading.values import texts, values_used
from rlcorr_cli.totals.row_keys import Keys, joined, keys_of

SPLIT = "split"
"""The column that says whether a row is of training or of validation, whose ids begin anew in some frameworks."""
BRANCH = "branch"
"""The column that tells which of the paths through a tree of messages a row is, where a tree is one sample."""
DRAW = "rlcorr_draw"
"""The column in which `filter --resample` numbers a row's copies, so that they are told apart."""


def keys(columns: Sequence[pa.Array]) -> Keys:
    """64-bit hashes of the rows' values as text, the id first; 0 of a row without an id, and of no other."""
    hashes = reduce(joined, map(_text_keys, columns))
    known = as_numpy(call("is_valid", columns[0]))
    return np.where(known, np.maximum(hashes, np.uint64(1)), np.uint64(0))


def _text_keys(column: pa.Array) -> Keys:
    if isinstance(column, pa.DictionaryArray):
        used, of_rows = values_used(column)
        return _text_keys(used)[of_rows]
    text = texts(column)
    _, places, data = text.buffers()  # a null's text is none
    offsets = np.frombuffer(places, np.int64)[text.offset : text.offset + len(text) + 1]
    return keys_of(np.frombuffer(b"" if data is None else data, np.uint8), offsets)


def cluster_keys(column: pa.Array) -> Keys:
    """The same of a column of clusters; lists of numbers, such as a prompt's token ids, by their numbers."""
    if not holds_token_ids(column.type):
        return keys([column])
    lists = Lists.of("clusters", column)
    hashes = keys_of(lists.values.astype(np.float64).view(np.uint32), 2 * lists.offsets)
    return np.where(as_numpy(column.is_valid()), np.maximum(hashes, np.uint64(1)), np.uint64(0))


class SeenIds:
    """The keys seen so far, 8 bytes each: sorted runs whose lengths fall by half, so that adding stays cheap.

    May be shared by threads, and sent to another process as a copy.  Two different ids in 10^8 have one
    key with a chance of 0.03%.
    """

    def __init__(self) -> None:
        self._runs: list[Keys] = []
        self._lock = threading.Lock()

    def __getstate__(self) -> list[Keys]:
        return self._runs

    def __setstate__(self, runs: list[Keys]) -> None:
        self._runs, self._lock = runs, threading.Lock()

    @property
    def keys(self) -> Keys:
        """All of them, sorted."""
        return np.sort(np.concatenate(self._runs)) if self._runs else np.zeros(0, np.uint64)

    def repeated(self, some: Keys) -> NDArray[np.bool_]:
        """Which of these keys came before, here or earlier; then they are known, too."""
        with self._lock:
            unique, first = np.unique(some, return_index=True)
            again = np.ones(len(some), np.bool_)
            again[first] = False
            for run in self._runs:
                at = np.minimum(np.searchsorted(run, some), len(run) - 1)
                again |= run[at] == some
            if len(unique):
                # As in a binary counter: a run takes up the shorter ones before it, so each key is merged about log2 n
                # times, and a look-up searches about log2 n runs.
                while self._runs and len(self._runs[-1]) < 2 * len(unique):
                    unique = _merged(self._runs.pop(), unique)
                self._runs.append(unique)
        return again


def _merged(a: Keys, b: Keys) -> Keys:
    """Two sorted runs as one, each key once.  No np.union1d: its first call loads np.ma under the interpreter lock."""
    keys = np.sort(np.concatenate([a, b]), kind="stable")
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
