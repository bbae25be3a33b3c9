"""Small inputs to start from, valid and broken, as bytes; always the same ones."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
NATIVE = Path(__file__).parent.parent / "golden" / "native"
LONGEST = 20_000
"""Bytes of an input."""

ROWS: list[Row] = [
    {"rollout_log_probs": [-0.5, -1.25], "old_log_probs": [-0.5, -1.0], "response_mask": [1, 0], "reward": 1.0},
    {"rollout_log_probs": [-2.0], "old_log_probs": [-1.5], "response_mask": [1], "reward": None},
    {"rollout_log_probs": [], "old_log_probs": [], "response_mask": [], "reward": 0.5},
    {"rollout_log_probs": [-0.1] * 9, "old_log_probs": [-0.1] * 9, "response_mask": [1] * 9, "reward": 0.0},
]


def lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def packed(data: bytes, codec: str) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec) as packing:
        packing.write(data)
    return out.getvalue().to_pybytes()


def _jsonl() -> Iterator[tuple[str, bytes]]:
    plain = lines(ROWS)
    yield "plain", plain
    yield "bom", b"\xef\xbb\xbf" + plain
    yield "crlf", plain.replace(b"\n", b"\r\n") + b"\n \n"
    yield "no line end", plain[:-1]
    yield "cut", plain[:-15]
    yield "mixed numbers", lines([{**ROWS[0], "reward": 1}, {**ROWS[1], "reward": True}, {**ROWS[2], "reward": 1e300}])
    yield "boolean mask", lines([{**ROWS[1], "response_mask": [True]}, {**ROWS[1], "response_mask": [1]}])
    yield "other names", lines([{"sampling_logprobs": [-1], "prev_logprobs": [-1], "step": "a", "sample_id": 3}] * 2)
    yield "nulls", b'{"rollout_log_probs":null,"old_log_probs":[null]}\n' + plain
    yield "null line", plain + b"null\n"
    yield "huge", b'{"rollout_log_probs":[-1e999,-12345678901234567890],"old_log_probs":[NaN,-Infinity]}\n'
    yield "escapes", b'{"rollout_log_probs":[-1],"old_log_probs":[-1],"step":"\\ud800\\u0000\\"\xc3\xa9"}\n'
    yield "not UTF-8", b'{"rollout_log_probs":[-1],"old_log_probs":[-1],"step":"\xff"}\n'
    yield "late mask", lines([{"rollout_log_probs": [-1.0], "old_log_probs": [-1.0]}, ROWS[0]])
    yield "nested", b'{"rollout_log_probs":[-1],"old_log_probs":[-1],"more":' + b"[" * 90 + b"]" * 90 + b"}\n"
    yield "twice", b'{"rollout_log_probs":[-1],"old_log_probs":[-1],"old_log_probs":[-2]}\n'


def _compressed() -> Iterator[tuple[str, bytes]]:
    plain = lines(ROWS)
    for codec in ("gzip", "zstd"):
        whole = packed(plain, codec)
        yield codec, whole
        yield f"{codec} cut", whole[:-9]
        yield f"{codec} twice", whole + packed(plain, codec)
        yield f"{codec} and more", whole + b"more"
        yield f"{codec} of nothing", packed(b"", codec)
        yield f"{codec} of itself", packed(whole, codec)


def table(rows: list[Row] = ROWS, kind: Callable[[pa.DataType], pa.DataType] = pa.list_) -> pa.Table:
    columns = {
        "rollout_log_probs": kind(pa.float32()),
        "old_log_probs": kind(pa.float64()),
        "response_mask": kind(pa.int8()),
        "reward": pa.float64(),
    }
    return pa.table({name: pa.array([row[name] for row in rows], type) for name, type in columns.items()})


def parquet(data: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(data, out, **options)
    return out.getvalue()


WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "dictionary": {"compression": "none"},
    "snappy": {"compression": "snappy"},
    "gzip": {"compression": "gzip", "use_dictionary": False},
    "zstd": {"compression": "zstd"},
    "lz4": {"compression": "lz4", "use_dictionary": False},
    "brotli": {"compression": "brotli"},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "checksums": {"write_page_checksum": True},
    "byte streams": {
        "use_dictionary": False,
        "compression": "none",
        "column_encoding": {"rollout_log_probs.list.element": "BYTE_STREAM_SPLIT"},
    },
    "deltas": {
        "use_dictionary": False,
        "compression": "none",
        "column_encoding": {"response_mask.list.element": "DELTA_BINARY_PACKED"},
    },
    "no Arrow schema": {"store_schema": False, "compression": "none"},
    "row groups": {"row_group_size": 1},
    "page index": {"write_page_index": True},
}


def _parquet() -> Iterator[tuple[str, bytes]]:
    for name, options in WRITTEN.items():
        yield name, parquet(table(), **options)
    yield "large lists", parquet(table(kind=pa.large_list))
    yield "fixed lists", parquet(table([ROWS[0], ROWS[0]], kind=lambda item: pa.list_(item, 2)))
    texts = pa.array(["a", None, "é", "a" * 40])
    strings = table().append_column("step", texts).append_column("data_source", texts.dictionary_encode())
    yield "strings", parquet(strings, compression="none")
    yield "nested", parquet(table().append_column("extra", pa.array([[{"a": [1, None]}], None, [], [None]])))
    halves = {
        name: pa.array([[-1.0], [-0.5]], pa.list_(pa.float16())) for name in ("rollout_log_probs", "old_log_probs")
    }
    yield "halves", parquet(pa.table({**halves, "response_mask": [[True], [False]]}))
    yield "null lists", parquet(table([{**ROWS[0], "old_log_probs": None}, {**ROWS[1], "rollout_log_probs": [None]}]))
    yield "no rows", parquet(table([]))
    whole = parquet(table())
    yield "cut", whole[:-9]
    yield "lines", lines(ROWS)


def ipc(data: pa.Table, stream: bool = False, rows: int = 2, **options: Any) -> bytes:
    """A file or a stream of record batches of so many rows."""
    out = pa.BufferOutputStream()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(out, data.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(data, max_chunksize=rows)
    return out.getvalue().to_pybytes()


def _arrow() -> Iterator[tuple[str, bytes]]:
    texts = pa.array(["a", None, "é", "a" * 40])
    strings = table().append_column("step", texts).append_column("data_source", texts.dictionary_encode())
    nested = table().append_column("extra", pa.array([[{"a": [1, None]}], None, [], [None]]))
    for form, stream in (("file", False), ("stream", True)):
        whole = ipc(table(), stream)
        yield form, whole
        yield f"{form} cut", whole[:-90]
        yield f"{form} of one batch", ipc(table(), stream, rows=9)
        yield f"{form} of strings", ipc(strings, stream)
        yield f"{form} nested", ipc(nested, stream)
        yield f"{form} of large lists", ipc(table(kind=pa.large_list), stream)
        yield f"{form} of lists of two", ipc(table([ROWS[0], ROWS[0]], kind=lambda item: pa.list_(item, 2)), stream)
        yield f"{form} of views", ipc(table(kind=pa.list_view), stream)
        yield f"{form} in lz4", ipc(table(), stream, compression="lz4")
        yield f"{form} in zstd", ipc(strings, stream, compression="zstd")
        yield f"{form} of an older release", ipc(table(), stream, use_legacy_format=True)
        yield f"{form} of version 4", ipc(table(), stream, metadata_version=pa.ipc.MetadataVersion.V4)
        yield f"{form} without rows", ipc(table([]), stream)
    yield "Feather of the first version", b"FEA1" + bytes(40)
    yield "lines", lines(ROWS)


def _native(*patterns: str) -> Iterator[tuple[str, bytes]]:
    """Files by the frameworks' own writers, as long as an input may be, whole and cut."""
    for pattern in patterns:
        for path in sorted(NATIVE.glob(pattern)):
            data = path.read_bytes()
            if len(data) <= LONGEST:
                yield f"{path.parent.name}-{path.name}", data
                yield f"{path.parent.name}-{path.name} cut", data[: len(data) * 2 // 3]


def episodes() -> bytes:
    """A stream of prime-rl's monitor: a failed episode, one turn, a fork, two roots."""
    turn = {"token_ids": [5, 6], "mask": [False, True], "logprobs": [-0.5]}
    trees = (
        [{"token_ids": [1, 2, 3], "mask": [False] * 3, "logprobs": []}, {"parent": 0, **turn}],
        [turn, {"parent": 0, **turn}, {"parent": 0, **turn}],
        [turn, turn, {"token_ids": [], "mask": []}],
        [{"token_ids": list(range(9)), "mask": [True] * 9, "logprobs": [-1.0] * 9}],
    )
    about = {"env": {"name": "a"}, "group": {"id": "g"}, "run": {"work": {"type": "train", "policy": {"start": -1}}}}
    rewards = {"a": {"score": 1.0, "weight": 0.5}}
    traces = [[], *([{"id": f"t{i}", "nodes": nodes, "rewards": rewards}] for i, nodes in enumerate(trees))]
    return lines([{"id": f"e{i}", **about, "traces": inside} for i, inside in enumerate(traces)])


def _monitor() -> Iterator[tuple[str, bytes]]:
    plain = episodes()
    yield "plain", plain
    yield "cut", plain[:-40]
    yield "no number", plain.replace(b"-0.5", b"NaN")
    yield "of text", plain.replace(b"-0.5", b'"-0.5"')
    yield "no lines", b'{"id": ' + b"[" * 900 + b"\n" + plain
    yield "a parent after it", plain.replace(b'"parent": 0', b'"parent": 7')
    yield "too few", plain.replace(b"[-0.5]", b"[-0.5, -0.5]")


def _sealed() -> Iterator[tuple[str, bytes]]:
    whole, half = episodes(), len(episodes()) // 2
    frames = packed(whole[:half], "zstd") + packed(whole[half:], "zstd")
    yield "frames", frames
    yield "a table after them", frames + b"\x5e\x2a\x4d\x18\x04\0\0\0ende"
    yield "cut", frames[: len(frames) * 2 // 3]
    yield "and more", frames + b"more"


def _sqlite() -> Iterator[tuple[str, bytes]]:
    """A capture of tinker-cookbook's in small pages."""
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA page_size = 512")
    texts = ("run_id", "split", "purpose", "sampling_session_id", "policy_version", "metadata")
    lists = ("prompt_tokens", "sampled_tokens", "logprobs")
    wholes = ("run_attempt", "iteration", "group_idx", "traj_idx", "seq_id", "sample_idx")
    database.execute(f"CREATE TABLE wire_rows (cursor INTEGER PRIMARY KEY, {', '.join((*wholes, *texts, *lists))})")
    values: list[Any] = [*(0 for _ in wholes), "a", None, "b", "s", "v", '{"stop_reason": "stop"}']
    for i in range(3):
        row = [i, *values[:5], i, *values[6:], "[1, 2]", "[5, 6, 7, 8]", "[-0.5, -0.5, -1.0, -0.25]"]
        database.execute(f"INSERT INTO wire_rows VALUES ({', '.join('?' * len(row))})", row)
    database.commit()
    whole = database.serialize()
    database.close()
    yield "whole", whole
    yield "cut", whole[: len(whole) * 2 // 3]
    yield "other lists", whole.replace(b"[-0.5, -0.5,", b"[-0.5, -0.5]")
    yield "no table", whole.replace(b"TABLE wire_rows", b"TABLE wire_rowz")


def _totals() -> Iterator[tuple[str, bytes]]:
    """Packed totals, small ones: without the sums under resamplings."""
    from rlcorr_cli.api import analyze
    from rlcorr_cli.totals.packed import pack

    for name, how in {"whole": {}, "by reward": {"group_by": "reward"}}.items():
        totals = analyze(table(), preset="token_is", totals=True, **how).totals
        assert totals is not None
        run = totals.unplaced()
        whole = pack(replace(run, measured=replace(run.measured, replicates={}, group_replicates={})))
        yield name, whole
        yield f"{name}, cut", whole[:-9]
        yield f"{name}, and more", whole + b"more"
        yield f"{name}, another array", whole.replace(b"<f8", b"<i8")
        yield f"{name}, an array of objects", whole.replace(b"<f8", b"|O8")


SEEDS: dict[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "jsonl": _jsonl,
    "compressed": _compressed,
    "parquet": _parquet,
    "arrow": _arrow,
    "pickle": partial(_native, "skyrl/**/*.pkl", "roll/**/*.pkl"),
    "torch": partial(_native, "slime/**/*.pt", "miles/**/*.pt"),
    "msgpack": partial(_native, "prime-rl/**/rank_*.bin"),
    "monitor": _monitor,
    "sealed": _sealed,
    "sqlite": _sqlite,
    "totals": _totals,
}
"""Harness -> its inputs by name."""

TOKENS = (
    *("rollout_log_probs", "old_log_probs", "current_log_probs", "response_mask", "loss_mask", "reward", "step"),
    *("sample_id", "policy_version", "advantages", "null", "true", "false", "NaN", "Infinity", "-Infinity", "1e999"),
    *("-1e-320", "-0.0", "18446744073709551616", "-9223372036854775809", "\\ud800", "\\u0000", "\ufeff", "\u2028"),
    *('{"', '":', '",', "[]", "{}", "[[", "]]", "[{", "}]", "\r\n", "\n\n", "\x00", "[-1]", "[1]", '":[', "}\n{"),
)
"""What JSON lines of a dump are made of."""
