"""Three rows of every type that a column of Parquet may hold, and some that only Arrow has."""

from decimal import Decimal
from uuid import UUID

import pyarrow as pa

TEXTS = pa.string(), pa.large_string(), pa.string_view()
BYTES = pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)
INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
DECIMALS = pa.decimal32(7, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal256(50, 2)
LISTS = pa.list_, pa.large_list, pa.list_view, pa.large_list_view
FAR = {"s": 2**50, "ms": 2**62, "us": 2**62, "ns": 2**62}
"""Counts of each unit that are beyond the year 9999, but in nanoseconds, which end in 2262."""


def _not_utf8() -> pa.Array:
    _, offsets, data = pa.array([b"a\xff", b"b", b"\xfe"]).buffers()
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, data])


def _times() -> dict[str, pa.Array]:
    days, seconds = pa.array([0, 20_000, 3_000_000], pa.int32()), pa.array([0, 1, 90_000], pa.int32())
    arrays = {
        "date32": days.view(pa.date32()),
        "date64": pa.array([0, 86_400_000, 86_400_000 * 10**7], pa.int64()).view(pa.date64()),
        "date before the year 1": pa.array([0, 1, -2_000_000], pa.int32()).view(pa.date32()),
        "time32[s]": seconds.view(pa.time32("s")),
        "time32[ms]": seconds.view(pa.time32("ms")),
        "time64[us]": seconds.cast(pa.int64()).view(pa.time64("us")),
        "time64[ns]": seconds.cast(pa.int64()).view(pa.time64("ns")),
    }
    for unit, far in FAR.items():
        counts = pa.array([0, 1, far], pa.int64())
        arrays[f"duration[{unit}]"] = counts.view(pa.duration(unit))
        for zone in (None, "UTC", "Mars/Olympus"):
            arrays[f"timestamp[{unit}] in {zone}"] = counts.view(pa.timestamp(unit, zone))
    return arrays


def _nested() -> dict[str, pa.Array]:
    arrays = {str(of(pa.int64())): pa.array([[1, 0], None, [1]], of(pa.int64())) for of in LISTS}
    return arrays | {
        "list of UUID": pa.ListArray.from_arrays(pa.array([0, 1, 1, 1], pa.int32()), _uuids().slice(0, 1)),
        "list of string_view": pa.array([["a"], None, []], pa.list_(pa.string_view())),
        "list of not UTF-8": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), _not_utf8()),
        "fixed_size_list": pa.array([[1, 0], None, [1, 1]], pa.list_(pa.int64(), 2)),
        "struct": pa.array([{"a": 1.5, "b": b"x"}, None, {"a": None, "b": b"\xff"}]),
        "struct of one name twice": pa.StructArray.from_arrays([pa.array([1, 2, 3])] * 2, ["a", "a"]),
        "struct of string_view": pa.array([{"a": "x"}, None, {"a": "y"}], pa.struct({"a": pa.string_view()})),
        "map": pa.array([[(5, "a")], None, []], pa.map_(pa.int64(), pa.string())),
    }


def _uuids() -> pa.Array:
    return pa.array([UUID(int=1).bytes, UUID(int=2).bytes, UUID(int=2**100).bytes], pa.uuid())


IN_PARQUET: dict[str, pa.Array] = {
    **{str(type): pa.array(["a", "b", None], type) for type in TEXTS},
    "not UTF-8": _not_utf8(),
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "dictionary of not UTF-8": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), _not_utf8()),
    "dictionary of float": pa.array([0.5, None, 1.0]).dictionary_encode(),
    **{str(type): pa.array([b"abc", None, b"\xff\x00a"], type) for type in BYTES},
    "bool": pa.array([True, None, False]),
    **{str(type): pa.array([1, None, 3], type) for type in INTEGERS},
    "uint64 beyond int64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    **{str(type): pa.array([0.5, None, 2.0]).cast(type) for type in (pa.float16(), pa.float32(), pa.float64())},
    "float of NaN and inf": pa.array([float("nan"), float("inf"), 1.0]),
    **{str(type): pa.array([Decimal("1.50"), None, Decimal("-3.00")], type) for type in DECIMALS},
    **_times(),
    "UUID": _uuids(),
    "JSON": pa.array(['{"a": 1}', "2", None], pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, None, 1], pa.int8())),
    **_nested(),
    "null": pa.nulls(3),
}
"""What a file may hold."""

IN_ARROW: dict[str, pa.Array] = {
    "month_day_nano": pa.array([pa.MonthDayNano([1, 2, 3])] * 3),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"])),
    "struct of nothing": pa.array([{}] * 3, pa.struct([])),
}

EVERY_TYPE = IN_PARQUET | IN_ARROW
