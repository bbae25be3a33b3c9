"""Values of every type that a dump may hold: TYPES of Arrow, KINDS of JSON; and LISTS, the ways to hold several.

Each has six values, some of them what is rare: the ends of a range, what Python has no word for, text that no terminal
should see.  A test holds that TYPES has all types of Arrow, so that a new one is tried by itself.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

N = 6
"""Rows of a dump."""
UNKNOWN_ZONE = "Mars/Olympus_Mons"
WILD = ("", "\x1b[31mred\x1b]8;;http://x\x07", "::error::x\n::add-mask::y", "##[error]z", "=1+1<b>|`$(id)`", "é\u202e𝄞")
"""Text that a terminal, a runner, a page or a table might obey."""
LATIN = (b"caf\xe9", b"\xff\xfe", b"ok", b"\xc3", b"", b"\xed\xa0\x80")
"""Bytes that are no UTF-8, but for two."""


def _typed(type: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([values[i % len(values)] for i in range(N)], type)


def _ints(type: pa.DataType) -> pa.Array:
    signed = pa.types.is_signed_integer(type)
    top = (1 << (type.bit_width - signed)) - 1
    return _typed(type, [0, 1, top, -top - 1 if signed else top - 1, 2, 3])


def _floats(type: pa.DataType, *more: float) -> pa.Array:
    return _typed(type, [0.0, 1.0, float("nan"), float("inf"), -0.0, *more])


def _bits(type: pa.DataType, storage: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Values of a type that Python may have no word for, by how they are stored."""
    return _typed(storage, values).view(type)


def _times(type: pa.DataType) -> pa.Array:
    """The ends of the range, far outside of Python's, and around its beginning."""
    storage, most = (pa.int64(), 2**63 - 1) if type.bit_width == 64 else (pa.int32(), 2**31 - 1)
    if getattr(type, "unit", "") == "s" and type.bit_width == 64:
        most = 2**53  # Parquet has milliseconds
    return _bits(type, storage, [0, 1_700_000_000, most, -most, -1, 86_399])


def _latin(type: pa.DataType) -> pa.Array:
    """Text whose bytes are no UTF-8, which Arrow does not look at."""
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}[type]
    return _typed(binary, LATIN).view(type)


def _coded(index: pa.DataType, values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_typed(index, [0, 1, 2, 0, None, 1]), values)


def _extended(type: pa.DataType, storage: Sequence[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(type, _typed(type.storage_type, storage))


IDS = [i.to_bytes(16, "big") for i in range(N)]
UNITS = ("s", "ms", "us", "ns")
TEXTS = (pa.string(), pa.large_string(), pa.string_view())
BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())
INTS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
DECIMALS = (pa.decimal32(8, 2), pa.decimal64(16, 3), pa.decimal128(38, 10), pa.decimal256(70, -5), pa.decimal128(20, 0))
AMOUNTS = (Decimal(10) ** 5, Decimal(0), -(Decimal(10) ** 5))
ZONES = {"": None, " UTC": "UTC", " Berlin": "Europe/Berlin", " +25:99": "+25:99", " unknown zone": UNKNOWN_ZONE}

MEMBERS, UNITED = pa.array([0, 1] * 3, pa.int8()), (pa.array(range(N)), pa.array(list("abcdef")))

TYPES: dict[str, Callable[[], pa.Array]] = {
    "null": lambda: pa.nulls(N),
    "bool": lambda: _typed(pa.bool_(), [True, False, None]),
    "bool8": lambda: _extended(pa.bool8(), [0, 1, 1]),
    **{str(type): lambda type=type: _ints(type) for type in INTS},
    "constant int64": lambda: _typed(pa.int64(), [7]),
    "constant mask": lambda: _typed(pa.int8(), [1]),
    "int64 and null": lambda: _typed(pa.int64(), [1, None, 2**53 + 1]),
    "halffloat": lambda: _bits(pa.float16(), pa.uint16(), [0, 0x3C00, 0x7E00, 0x7C00, 0x8000, 0x7BFF]),
    "float": lambda: _floats(pa.float32(), 3e38),
    "double": lambda: _floats(pa.float64(), 1.7e308),
    "finite double": lambda: _typed(pa.float64(), [0.5, -1.25, 3.0]),
    "huge double": lambda: _typed(pa.float64(), [1e308, -1e308]),
    **{str(type): lambda type=type: _typed(type, AMOUNTS) for type in DECIMALS},
    **{str(type): lambda type=type: _typed(type, ["a", "b", None]) for type in TEXTS},
    **{f"wild {type}": lambda type=type: _typed(type, WILD) for type in TEXTS},
    **{f"{type} not UTF-8": lambda type=type: _latin(type) for type in TEXTS},
    "long text": lambda: _typed(pa.string(), ["x" * 100_000, "y" * 300]),
    "dictionary": lambda: _coded(pa.int32(), pa.array(["a", "b", "c"])),
    "dictionary of large text": lambda: _coded(pa.int8(), pa.array(["a", None, "c"], pa.large_string())),
    "dictionary of int64": lambda: _coded(pa.uint16(), pa.array([2**60, 0, -1])),
    "dictionary not UTF-8": lambda: _coded(pa.int32(), pa.array(LATIN[:3]).view(pa.string())),
    "dictionary of times": lambda: _coded(pa.int32(), pa.array([0, 1, 2], pa.timestamp("ns"))),
    **{str(type): lambda type=type: _typed(type, [b"a", b"\x00\xff", None, b""]) for type in BINARIES},
    "fixed_size_binary": lambda: _typed(pa.binary(16), IDS),
    "uuid": lambda: _extended(pa.uuid(), IDS),
    "json": lambda: _extended(pa.json_(), ['{"a": 1}', "[", None]),
    "opaque": lambda: _extended(pa.opaque(pa.int64(), "mine", "me"), [1, 2]),
    "tensor": lambda: _extended(pa.fixed_shape_tensor(pa.float32(), [2]), [[0.5, 1.0]]),
    **{str(type): lambda type=type: _times(type) for type in (pa.date32(), pa.date64())},
    "plain date": lambda: _bits(pa.date32(), pa.int32(), [19_000, 19_001]),
    **{f"time {unit}": lambda unit=unit: _times(pa.time32(unit)) for unit in UNITS[:2]},
    **{f"time {unit}": lambda unit=unit: _times(pa.time64(unit)) for unit in UNITS[2:]},
    **{
        f"timestamp {unit}{word}": lambda unit=unit, zone=zone: _times(pa.timestamp(unit, zone))
        for unit in UNITS
        for word, zone in ZONES.items()
    },
    **{
        f"plain timestamp {unit}": lambda unit=unit, n=n: _bits(pa.timestamp(unit), pa.int64(), [1_700_000_000 * n, 0])
        for unit, n in zip(UNITS, (1, 10**3, 10**6, 10**9), strict=True)
    },
    **{f"duration {unit}": lambda unit=unit: _times(pa.duration(unit)) for unit in UNITS},
    "interval": lambda: _typed(pa.month_day_nano_interval(), [pa.scalar((1, 2, 3), pa.month_day_nano_interval())]),
    "list": lambda: _typed(pa.list_(pa.int64()), [[1, 2], [], None]),
    "list of wild text": lambda: _typed(pa.list_(pa.string()), [list(WILD)]),
    "large_list": lambda: _typed(pa.large_list(pa.string()), [["a"], None, ["b", None]]),
    "list_view": lambda: _typed(pa.list_view(pa.int64()), [[1], [], None]),
    "large_list_view": lambda: _typed(pa.large_list_view(pa.float32()), [[0.5], []]),
    "fixed_size_list": lambda: _typed(pa.list_(pa.int32(), 2), [[1, 2], None]),
    "list of lists": lambda: _typed(pa.list_(pa.list_(pa.timestamp("ns"))), [[[0]], []]),
    "struct": lambda: _typed(pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": 1, "b": "x"}, None, {"a": None}]),
    "struct of times": lambda: _typed(pa.struct({"t": pa.timestamp("ns"), "d": pa.duration("s")}), [{"t": 0, "d": 1}]),
    "empty struct": lambda: _typed(pa.struct([]), [{}]),
    "struct of bytes": lambda: _typed(pa.struct({"b": pa.binary(), "n": pa.decimal128(5)}), [{"b": b"\xff"}]),
    "map": lambda: _typed(pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None]),
    "run_end_encoded": lambda: pa.RunEndEncodedArray.from_arrays([2, N], ["a", "b"]),
    "dense_union": lambda: pa.UnionArray.from_dense(MEMBERS, pa.array([0, 0, 1, 1, 2, 2], pa.int32()), list(UNITED)),
    "sparse_union": lambda: pa.UnionArray.from_sparse(MEMBERS, list(UNITED)),
}  # fmt: skip
"""Name -> six values of the type."""

UNMADE = {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME}
"""Types of Arrow that pyarrow cannot make."""

LISTS = ("list", "large_list", "list_view", "large_list_view", "fixed_size_list")
"""Ways to hold the values of a row's tokens."""
TOKENS = 3
"""Of each row."""

KINDS: dict[str, str] = {
    "null": "null",
    "true": "true",
    "zero": "0",
    "one": "1",
    "minus one": "-1",
    "minus zero": "-0.0",
    "half": "-0.5",
    "nearly one": "0.99999999",
    "tiny": "1e-50",
    "tinier": "1e-400",
    "huge": "1e308",
    "infinite": "1e400",
    "2^53+1": "9007199254740993",
    "2^63": "9223372036854775808",
    "2^64": "18446744073709551616",
    "many digits": "1" * 400,
    "too many digits": "1" * 5_000,
    "bare NaN": "NaN",
    "bare Infinity": "-Infinity",
    "text": '"a"',
    "number as text": '"1"',
    "NaN as text": '"NaN"',
    "empty text": '""',
    "long text": '"' + "x" * 100_000 + '"',
    "escape": r'"\u001b[31m\u0000\u0085"',
    "half a pair": r'"\ud800"',
    "GitHub": r'"::error::x\n##[error]y"',
    "spelled": r'"\u0061"',
    "date": '"2026-01-01T00:00:00Z"',
    "empty list": "[]",
    "list": "[1, 2]",
    "mixed list": '[1, "a", null, [true]]',
    "empty object": "{}",
    "object": '{"a": 1, "b": {"c": [null]}}',
    "duplicate keys": '{"a": 1, "a": 2}',
    "deep list": "[" * 90 + "]" * 90,
    "deeper list": "[" * 2_000 + "]" * 2_000,
    "deep object": '{"a":' * 60 + "1" + "}" * 60,
}
"""Name -> how JSON writes it."""
