"""tinker-cookbook's capture: what its sampling client was answered, in the forms that its sinks and its store write.

A wire row is a sampled sequence: capture.sqlite has them in a table with lists as JSON text; the store gives them as
JSON lines, as Arrow, or as Parquet.  The JSON-lines sink writes requests instead, capture/sample.jsonl, with the
sequences in `samples` and what a row has of its own under `scope`.  A request that failed has no sequence.

Log-probs and tokens are of the response, the prompt lies apart, and every token counts.  Groups are numbered anew in
each iteration.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, naming
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.arrow_files import arrow_file, batches, parquet_file
from rlcorr_cli.layouts.json_rows import made_of_rows
from rlcorr_cli.layouts.layout import OpenedDump, Sample, each_alone
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import HINT, aligned, floats, inner, integers, objects, other, rows_of_lists, text, whole
from rlcorr_cli.places import scheme

WAL_PLACES = slice(18, 20)
"""Where the file says whether changes are written ahead; what lies in memory has no place for them."""
LONGEST_TEXT = 128 << 20
LISTS = {"logprobs": "rollout_log_probs", "sampled_tokens": "token_ids", "prompt_tokens": "prompt_token_ids"}
WHOLES = ("run_attempt", "traj_idx", "sample_idx")
TEXTS = ("run_id", "split", "purpose", "policy_version")
COLUMNS = (
    *("rollout_log_probs", "response_mask", "token_ids", "step", "group_id", "sample_id", "policy_version", "split"),
    *("run_id", "run_attempt", "purpose", "traj_idx", "sample_idx", "finish_reason", "prompt_length"),
    "prompt_token_ids",
)
TYPES = {
    **dict.fromkeys((*WHOLES, "prompt_length"), pa.int64()),
    **dict.fromkeys((*TEXTS, "finish_reason"), pa.string()),
    "prompt_token_ids": pa.list_(pa.int64()),
}
NOTES = (
    "A row is a sampled sequence; group_id is the iteration and the group in it.",
    "Requests without logprobs, as of evaluations, give rows without rollout_log_probs; those that failed give none.",
)
MISSING_POLICY = (
    "tinker's capture has the sampler's log-probs only. Score the same tokens with the trained policy, and pair the "
    "two: ⟦convert(DUMP)⟧ ⟦join SCORED⟧ ⟦on sample_id⟧ ⟦output dump.parquet⟧. Or save what forward_backward returns: "
    "`rlcorr help dumps` has the lines."
)
KINDS = (".sqlite", "wire", ".arrow", ".parquet", "sample")
"""Forms of the same rows, the first of which is read where a dump has several."""


def one_form(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Each alone; where there are several forms, the files of the first."""
    kinds = {path: _form(path) for path in paths}
    first = next(kind for kind in KINDS if kind in kinds.values())
    return each_alone([path for path in paths if kinds[path] == first])


def _form(path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix != ".jsonl":
        return suffix if suffix in KINDS else ".sqlite"
    return "sample" if FileStart(path).row.get("kind") == "sample" else "wire"


def open_capture(paths: Sequence[str]) -> OpenedDump:
    """One file of sequences."""
    (path,) = paths
    read = {"sample": _of_requests, "wire": _of_lines, ".sqlite": _of_database}.get(_form(path), _of_columns)
    return OpenedDump(
        columns=COLUMNS, samples=lambda: read(path), notes=NOTES, types=TYPES, missing_policy_hint=MISSING_POLICY
    )


def _of_requests(path: str) -> Iterator[Sample]:
    def rows(request: dict[str, Any], number: int) -> Iterator[Sample]:
        scope = inner(request, "scope")
        about = {**scope, **request, "policy_version": request.get("model_path")}
        for place, sample in enumerate(objects(request, "samples")):
            row = {**about, "sampled_tokens": sample.get("tokens"), "logprobs": sample.get("logprobs")}
            yield _wire_row({**row, "sample_idx": place, "metadata": sample})

    return made_of_rows(path, rows)


def _of_lines(path: str) -> Iterator[Sample]:
    return made_of_rows(path, lambda row, number: [_wire_row(row)])


def _of_database(path: str) -> Iterator[Sample]:
    with _database(path) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        kinds = database.execute("SELECT type FROM sqlite_master WHERE name = 'wire_rows'").fetchall()
        if kinds != [("table",)]:
            raise DataError("it has no table wire_rows.", HINT)
        rows = database.execute(f"SELECT {', '.join(NAMES)} FROM wire_rows ORDER BY cursor")
        for number, values in enumerate(rows):
            row = dict(zip(NAMES, values, strict=True))
            with naming(f"row {number} of wire_rows"):
                yield _wire_row({**row, **{name: _decoded_json(row, name) for name in LISTS}})


NAMES = (
    *("run_id", "run_attempt", "split", "iteration", "group_idx", "traj_idx", "purpose", "sampling_session_id"),
    *("seq_id", "sample_idx", "policy_version", "metadata", *LISTS),
)
"""What is read of a wire row."""


@contextmanager
def _database(path: str) -> Generator[sqlite3.Connection]:
    """The file, which nothing is written to or beside; one of a store is in memory as a whole."""
    try:
        if scheme(path):
            with filesystem(path).open(path) as file:
                content = bytearray(file.read())
            content[WAL_PLACES] = b"\1\1"
            database = sqlite3.connect(":memory:", check_same_thread=False)
            database.deserialize(bytes(content))
        else:
            is_written_to = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
            how = "mode=ro" if is_written_to else "mode=ro&immutable=1"
            quoted = os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            database = sqlite3.connect(f"file:{quoted}?{how}", uri=True, check_same_thread=False)
        with closing(database):
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
            yield database
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its own messages may quote bytes that are no text
        raise DataError(f"it cannot be read as an SQLite database: {error}.", HINT) from error


def _of_columns(path: str) -> Iterator[Sample]:
    for batch in _batches(path):
        others = batch.select([name for name in batch.schema.names if name not in LISTS])
        for row, lists in zip(others.to_pylist(), rows_of_lists(batch, LISTS), strict=True):
            yield _wire_row({**row, **lists})


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    """With those of NAMES that the file has, the lists at least."""
    if path.lower().endswith(".parquet"):
        with parquet_file(path) as file:
            for batch in file.iter_batches(64, columns=_names_there(file.schema_arrow.names), use_threads=False):
                batch.validate(full=True)  # a text need not be UTF-8
                yield batch
        return
    with arrow_file(path) as reader:
        names = _names_there(reader.schema.names)
        yield from (batch.select(names) for batch in batches(reader))


def _names_there(columns: Sequence[str]) -> list[str]:
    lacking = next((name for name in LISTS if name not in columns), None)
    if lacking is not None:
        raise DataError(f"it has no column {lacking}, which wire_rows have.", HINT)
    return [name for name in NAMES if name in columns]


def _wire_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A wire row, its lists as lists or arrays."""
    metadata = _decoded_json(row, "metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise other("metadata", "an object")
    tokens, prompt = (_wire_array(row, name, integers) for name in ("sampled_tokens", "prompt_tokens"))
    log_probs = None if row.get("logprobs") is None else _wire_array(row, "logprobs", floats)
    if log_probs is not None:
        aligned(sampled_tokens=tokens, logprobs=log_probs)
    step, group = whole(row, "iteration"), whole(row, "group_idx")
    sample = tuple(text(row, name) for name in ("sampling_session_id", "seq_id", "sample_idx"))
    return {
        "rollout_log_probs": log_probs,
        "response_mask": None if log_probs is None else np.ones(len(tokens), np.int8),
        "token_ids": tokens,
        "step": step,
        "group_id": None if step is None or group is None else f"{step}/{group}",
        "sample_id": None if None in sample else "/".join(map(str, sample)),
        "finish_reason": text(metadata or {}, "stop_reason"),
        "prompt_length": len(prompt),
        "prompt_token_ids": prompt,
        **{name: whole(row, name) for name in WHOLES},
        **{name: text(row, name) for name in TEXTS},
    }


def _wire_array(row: Mapping[str, Any], name: str, read: Callable[[Mapping[str, Any], str], Any]) -> Any:
    """A list as an array, which one out of a table of Arrow's is already."""
    return row[name] if isinstance(row.get(name), np.ndarray) else read(row, name)


def _decoded_json(row: Mapping[str, Any], name: str) -> Any:
    """What is JSON text in a database or a column, and has been decoded in a line."""
    value = row.get(name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise other(name, "JSON") from error
