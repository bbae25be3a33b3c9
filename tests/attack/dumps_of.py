"""Small dumps with one odd column, in every container: `dump(container suffix, role, ...)` as bytes, and ROLES."""

import gzip
import io
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from values import KINDS, TOKENS, TYPES, N

from rlcorr_cli.api import analyze, save
from rlcorr_cli.reading.columns import ALIASES
from rlcorr_cli.reading.formats import CONTAINERS

POLICIES = {"rollout_log_probs": [-0.5, -1.0, -0.25], "old_log_probs": [-0.5, -1.1, -0.2]}
DRIFT = {"rollout_log_probs": 0.02, "old_log_probs": 0.1}
"""How much lower each row lies than the one before: the last rows are those that a rejection takes."""
PER_TOKEN = (*POLICIES, "current_log_probs", "response_mask", "advantages")
"""Canonical columns of one value per token."""
ROLES = {name: name for name in ALIASES} | {"group key": "key", "passenger": "note"}
"""What a column is for -> its name."""


class Unholdable(Exception):
    """A container has no place for a type."""


def columns(role: str, values: pa.Array) -> dict[str, pa.Array]:
    """A dump's columns, one of them holding these values."""
    made = {"number": pa.array(range(N))}
    made |= {
        name: pa.array([[logp - i * DRIFT[name] for logp in tokens] for i in range(N)])
        for name, tokens in POLICIES.items()
    }
    made |= {"response_mask": pa.array([[1, 1, i % 2] for i in range(N)], pa.list_(pa.int8()))}
    made |= {f"{of}_token_ids": pa.array([[i, 7, 8] for i in range(N)]) for of in ("prompt", "response")}
    made |= {"reward": pa.array([i / 4 for i in range(N)]), "step": pa.array([i // 3 for i in range(N)])}
    return made | {"current_log_probs": made["old_log_probs"], ROLES[role]: values}


@lru_cache(400)
def of_type(suffix: str, role: str, type: str, held: str) -> bytes:
    """A dump with a column of an Arrow type; held: "" for one value a row, else what of LISTS holds the values."""
    return WRITERS[suffix](pa.table(columns(role, _held(held, TYPES[type]()))))


def _held(held: str, values: pa.Array) -> pa.Array:
    """Lists of the values, TOKENS in each; the values where nothing holds them."""
    if not held:
        return values
    try:
        flat = pa.concat_arrays([values] * TOKENS)
    except pa.ArrowException as error:
        raise Unholdable(str(error)) from error
    if held == "fixed_size_list":
        return pa.FixedSizeListArray.from_arrays(flat, TOKENS)
    starts = [TOKENS * i for i in range(N + 1)]
    large = pa.int64() if held.startswith("large") else pa.int32()
    array = {"list": pa.ListArray, "large_list": pa.LargeListArray}.get(held)
    if array is not None:
        return array.from_arrays(pa.array(starts, large), flat)
    view = pa.ListViewArray if held == "list_view" else pa.LargeListViewArray
    return view.from_arrays(pa.array(starts[:-1], large), pa.array([TOKENS] * N, large), flat)


@lru_cache(None)
def holdable(suffix: str, type: str, held: str) -> bool:
    """Whether the container has a place for such a column, by itself."""
    try:
        WRITERS[suffix](pa.table({"column": _held(held, TYPES[type]())}))
    except Unholdable:
        return False
    return True


def with_column(suffix: str, role: str, values: pa.Array) -> bytes:
    """A dump with a column of these values."""
    return WRITERS[suffix](pa.table(columns(role, values)))


@lru_cache(400)
def of_kind(suffix: str, role: str, kind: str, held: str) -> bytes:
    """A dump of JSON lines whose column is of a kind; held: where: in all rows, the first, the last, or a list."""
    table = pa.table(columns(role, pa.nulls(N)))
    rows = []
    for i, row in enumerate(table.to_pylist()):
        del row[ROLES[role]]
        texts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in row.items()]
        value = {"in a list": f"[{KINDS[kind]}, -1.0, -0.5]", "plain": '"plain"'}.get(held, KINDS[kind])
        if (held == "in the last row" and i < N - 1) or (held == "in the first row" and i):
            value = PLAIN.get(role, '"plain"')
        rows.append(f"{{{', '.join([*texts, f'{json.dumps(ROLES[role])}: {value}'])}}}\n")
    return COMPRESSED[suffix]("".join(rows).encode())


PLAIN = dict.fromkeys(PER_TOKEN, "[-0.5, -1.0, -0.25]") | {"response_mask": "[1, 1, 0]", "step": "1", "reward": "0.5"}


def sample(suffix: str = ".parquet") -> bytes:
    """A dump with nothing odd."""
    return of_type(suffix, "passenger", "string", "")


def log() -> bytes:
    """What a run has logged of its gap."""
    return b"".join(b'{"step": %d, "k3_kl": %f}\n' % (step, 0.001 * step) for step in range(1, 9))


@lru_cache(1)
def part() -> bytes:
    """The saved totals of a dump."""
    with TemporaryDirectory() as folder:
        dump, saved = Path(folder) / "dump.parquet", Path(folder) / "part.rlcorr"
        dump.write_bytes(sample())
        save(analyze(dump, group_by="step", pictures=True, totals=True, workers=1), saved)
        return saved.read_bytes()


@lru_cache(None)
def bad(suffix: str = ".parquet") -> bytes:
    """A dump with a bad row: one log-prob of it is not finite."""
    lists = [[float("nan"), -1.0, -0.5]] + [[-0.5, -1.0, -0.5]] * (N - 1)
    return with_column(suffix, "rollout_log_probs", pa.array(lists))


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    try:
        pq.write_table(table, file, row_group_size=N // 2)
        pq.read_table(io.BytesIO(file.getvalue()), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise Unholdable(str(error)) from error
    return file.getvalue()


def _lines(table: pa.Table) -> bytes:
    try:
        return b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise Unholdable(str(error)) from error


def _ipc(table: pa.Table, new: Callable[..., pa.ipc.RecordBatchStreamWriter]) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    ".jsonl": bytes,
    ".ndjson": bytes,
    ".jsonl.gz": gzip.compress,
    ".jsonl.zst": _zst,
}
"""Suffix of JSON lines -> how the text is packed."""
WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    **dict.fromkeys((".parquet", ".pq", ".parq"), _parquet),
    **{suffix: lambda table, pack=pack: pack(_lines(table)) for suffix, pack in COMPRESSED.items()},
    **dict.fromkeys((".arrow", ".feather"), lambda table: _ipc(table, pa.ipc.new_file)),
    ".ipc": lambda table: _ipc(table, pa.ipc.new_stream),
}
"""Suffix of a dump -> how a table is written so; a new suffix of CONTAINERS has its writer here."""
SUFFIXES = tuple(suffix for container in CONTAINERS for suffix in container.suffixes)
