"""Arrow's values as plain ones, of whatever type a column is: for keys and ids, for JSON, and for people to read.

`plain_values` is the one function; `group_values` and `texts` say what it gave as a group's key and as an id, and
`row_keys` hashes these, by which `SeenIds` knows rows that came before.  Python's own dates end in the year 9999, know
no nanoseconds and need the zone's name known, so a date or time is text from the start, and the same text whatever
stands beside it.
"""

import json
import math
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.types as is_
from numpy.typing import NDArray

from rlcorr_cli.reading.arrow_values import as_arrow, as_numpy, call, cast, flattened, holds_token_ids, is_list
from rlcorr_cli.reading.checks import Lists
from rlcorr_cli.totals.row_keys import Keys, joined, keys_of

BytesText = Callable[[bytes], str]
Key = bool | int | float | str | None
Coded = tuple[NDArray[np.int64], tuple[Key, ...]]
"""A column of keys: the code of each row, and the keys that codes stand for."""

SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass
class Losses:
    """What a form of output could not hold as it was, counted: numbers that became null, texts with escaped bytes."""

    numbers: int = 0
    texts: int = 0

    def no_number(self, _: str) -> None:
        """Counts NaN or an infinity, and stands for it."""
        self.numbers += 1

    def escaped(self, value: bytes) -> str:
        """Counts a text that is not UTF-8, and stands for it."""
        self.texts += 1
        return escaped(value)


def base64(value: bytes) -> str:
    """Bytes as JSON lines have them: any can be had back."""
    return b64encode(value).decode()


def escaped(value: bytes) -> str:
    r"""Bytes as text, as most of them were written for; what is no UTF-8 stands as \xff."""
    return value.decode("utf-8", "backslashreplace")


def plain_values(column: pa.Array, of_bytes: BytesText = escaped, losses: Losses | None = None) -> list[Any]:
    """Each value as JSON has it: null, boolean, number, text, or lists and objects of them; NaN and inf stay floats.

    Text that is not UTF-8 is `escaped`, a decimal is text, a duration a number of seconds (text in nanoseconds), a map
    a list of pairs.  of_bytes: what becomes of binary values.  losses: where to count texts that are not UTF-8.
    """
    type = column.type
    if isinstance(type, pa.BaseExtensionType):
        if type.extension_name == "arrow.uuid":
            return [None if value is None else str(UUID(bytes=value)) for value in column.storage.to_pylist()]
        is_flag = type.extension_name == "arrow.bool8"
        return plain_values(cast(column.storage, pa.bool_()) if is_flag else column.storage, of_bytes, losses)
    if is_.is_dictionary(type):
        words = [*plain_values(column.dictionary, of_bytes, losses), None]
        return [words[i] for i in as_numpy(cast(column.indices, pa.int64()), null=len(words) - 1).tolist()]
    if is_.is_run_end_encoded(type):
        return plain_values(call("run_end_decode", column), of_bytes, losses)
    for fits, nested in NESTED:
        if fits(type):
            return nested(column, of_bytes, losses)
    if _is_text_type(type):
        return _plain_strings(column, losses or Losses())
    convert = next((convert for fits, convert in LEAVES if fits(type)), None)
    if convert is not None:
        return convert(column)
    if _is_binary(type):
        return [None if value is None else of_bytes(value) for value in column.to_pylist()]
    return column.to_pylist()


def group_values(column: pa.Array) -> list[Key]:
    """Values as groups have them: booleans, numbers and text; NaN is the text 'NaN', because two NaNs are not equal, a
    decimal without decimals an integer."""
    values = plain_values(column)
    if is_.is_decimal(column.type) and column.type.scale <= 0:
        return [None if value is None else int(Decimal(value)) for value in values]
    return ["NaN" if isinstance(value, float) and np.isnan(value) else value for value in values]


def texts(column: pa.Array) -> pa.Array:
    """Values as ids are written and compared, large strings; lists and objects are the text of their JSON."""
    type = column.type
    if is_.is_dictionary(type):
        return texts(call("take", column.dictionary, column.indices))
    if is_.is_boolean(type) or is_.is_integer(type) or is_.is_floating(type):
        return cast(column, pa.large_string())
    if _is_text_type(type) or _is_binary(type):
        with suppress(pa.ArrowInvalid):  # not UTF-8
            text = cast(column, pa.large_string())
            text.validate(full=True)
            return text
    values = (value if value is None or isinstance(value, str) else json.dumps(value) for value in plain_values(column))
    return pa.array(values, pa.large_string())


def values_used(column: pa.DictionaryArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """The values of a dictionary that its rows have, null where they have none, and the place of each row's."""
    places, of_rows = np.unique(as_numpy(cast(column.indices, pa.int64()), null=-1), return_inverse=True)
    return call("take", column.dictionary, as_arrow(places, places >= 0)), of_rows


def coded(column: pa.Array) -> Coded:
    """A column of keys as codes into its distinct ones, None among them."""
    if is_.is_dictionary(column.type):
        used, of_rows = values_used(column)
        codes, values = coded(used)
        return codes[of_rows], values
    try:
        encoded = call("dictionary_encode", column)
    except pa.ArrowNotImplementedError:  # a view, an extension, runs
        values, codes = group_values(column), np.arange(len(column))
    else:
        values, codes = group_values(encoded.dictionary), as_numpy(encoded.indices, null=len(encoded.dictionary))
    place = {value: i for i, value in enumerate(dict.fromkeys([*values, None]))}
    return np.array([place[value] for value in [*values, None]])[codes], tuple(place)


def coded_lags(steps: Coded, versions: Coded) -> Coded:
    """Each row's step less the version of its weights, as codes into the distinct lags, whole ones as int; None of a
    row where either is no number."""
    of_steps, of_versions = (
        np.array([math.nan if value is None or isinstance(value, str) else float(value) for value in values])[codes]
        for codes, values in (steps, versions)
    )
    distinct, codes = np.unique(of_steps - of_versions, return_inverse=True)
    values = (None if not math.isfinite(lag) else int(lag) if lag.is_integer() else lag for lag in distinct.tolist())
    return codes.astype(np.int64), tuple(values)


def _is_text_type(type: pa.DataType) -> bool:
    return is_.is_string(type) or is_.is_large_string(type) or is_.is_string_view(type)


def _is_binary(type: pa.DataType) -> bool:
    tests = (is_.is_binary, is_.is_large_binary, is_.is_fixed_size_binary, is_.is_binary_view)
    return any(test(type) for test in tests)


def _plain_lists(column: pa.Array, of_bytes: BytesText, losses: Losses | None) -> list[list[Any] | None]:
    flat, ends = flattened(column)
    items = plain_values(flat, of_bytes, losses)
    return _where_known(column, (items[a:b] for a, b in pairwise(ends.tolist())))


def _plain_maps(column: pa.Array, of_bytes: BytesText, losses: Losses | None) -> list[list[Any] | None]:
    """Lists of pairs: a key need not be text, and may come twice."""
    type = column.type
    entry = pa.struct([pa.field("key", type.key_type, nullable=False), pa.field("value", type.item_type)])
    maps = _plain_lists(cast(column, pa.list_(entry)), of_bytes, losses)
    return [None if pairs is None else [list(pair.values()) for pair in pairs] for pairs in maps]


def _plain_objects(column: pa.Array, of_bytes: BytesText, losses: Losses | None) -> list[Any]:
    """Objects; lists of pairs where two fields have one name, because an object would lose one of them."""
    names = column.type.names
    values = [plain_values(child, of_bytes, losses) for child in column.flatten()]
    rows = zip(*values, strict=True) if values else iter([()] * len(column))
    pairs = (list(zip(names, row, strict=True)) for row in rows)
    return _where_known(column, pairs if len(set(names)) < len(names) else map(dict, pairs))


def _where_known(column: pa.Array, values: Iterable[Any]) -> list[Any]:
    """The values, and None where the column is null."""
    known = as_numpy(call("is_valid", column)).tolist()
    return [value if k else None for k, value in zip(known, values, strict=True)]


def _plain_numbers(column: pa.Array) -> list[Any]:
    return column.to_pylist() if column.null_count else as_numpy(column).tolist()


def _plain_strings(column: pa.Array, losses: Losses) -> list[str | None]:
    column = cast(column, pa.large_string())
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        strings: list[str | None] = []
        for value in cast(column, pa.large_binary()).to_pylist():
            try:
                strings.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                strings.append(losses.escaped(value))
        return strings


def _moments(column: pa.Array) -> list[str | None]:
    """ISO text with the offset of the column's time zone; in UTC where no system knows the zone."""
    if column.type.unit == "ns":
        try:
            moments = cast(column, pa.large_string()).to_pylist()
        except pa.ArrowInvalid:
            moments = cast(cast(column, pa.timestamp("ns", "UTC")), pa.large_string()).to_pylist()
        return [None if moment is None else moment.replace(".000000000", "") for moment in moments]
    return [_moment(value) if value.is_valid else None for value in column]


def _moment(value: pa.TimestampScalar) -> str:
    try:
        return value.as_py().isoformat()
    except (OverflowError, pa.ArrowInvalid):  # beyond Python's years; a time zone that is not known
        text = str(np.datetime64(value.value, value.type.unit))
        return text if value.type.tz is None else f"{text}Z"


def _counted(column: pa.Array, of_count: Callable[[int], Any]) -> list[Any]:
    """What is made of the whole numbers that dates and times are held as."""
    counts = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()
    return [None if n is None else of_count(n) for n in counts]


def _date(n: int, type: pa.DataType) -> str:
    return str(np.datetime64(n if is_.is_date32(type) else n // 86_400_000, "D"))


def _time(n: int, type: pa.DataType) -> str:
    """A time of a day, with hours beyond 23 where there are any."""
    seconds, parts = divmod(n, SECONDS[type.unit])
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{parts * 10**9 // SECONDS[type.unit]:09}".rstrip("0") if parts else text


def _duration(n: int, type: pa.DataType) -> float | str:
    """Seconds; as text in nanoseconds, of which a float holds but 104 days."""
    return f"{Decimal(n).scaleb(-9):f}" if type.unit == "ns" else n / SECONDS[type.unit]


LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    *((fits, _plain_numbers) for fits in (is_.is_boolean, is_.is_integer, is_.is_floating)),
    (is_.is_decimal, lambda column: cast(column, pa.large_string()).to_pylist()),
    (is_.is_date, lambda column: _counted(column, lambda n: _date(n, column.type))),
    (is_.is_timestamp, _moments),
    (is_.is_time, lambda column: _counted(column, lambda n: _time(n, column.type))),
    (is_.is_duration, lambda column: _counted(column, lambda n: _duration(n, column.type))),
)
"""Types of single values, and how those become plain."""

NESTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, BytesText, Losses | None], list[Any]]], ...] = (
    (is_list, _plain_lists),
    (is_.is_map, _plain_maps),
    (is_.is_struct, _plain_objects),
)


SPLIT = "split"
"""The column that says whether a row is of training or of validation, whose ids begin anew in some frameworks."""
BRANCH = "branch"
"""The column that tells which of the paths through a tree of messages a row is, where a tree is one sample."""
DRAW = "rlcorr_draw"
"""The column in which `filter --resample` numbers a row's copies, so that they are told apart."""


def row_keys(columns: Sequence[pa.Array]) -> Keys:
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
        return row_keys([column])
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

    def repeated(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of these keys came before, here or earlier; then they are known, too."""
        with self._lock:
            unique, first = np.unique(keys, return_index=True)
            again = np.ones(len(keys), np.bool_)
            again[first] = False
            for run in self._runs:
                at = np.minimum(np.searchsorted(run, keys), len(run) - 1)
                again |= run[at] == keys
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
