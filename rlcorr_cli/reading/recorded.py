"""What a trainer holds at one step, as a file of rows that is small and tells by itself what it is.

`snapshot` copies what is known by name out of the trainer's hands.  `rows_of` makes rows of it, later and elsewhere: it
is read as a batch in memory is for `analyze`, its columns get canonical names, and each row's lists run from the first
to the last token that counts, floats in 32 bits.  Of a prompt stay a hash of its ids, or of its text where there are no
ids, `prompt_id`, and its length in ids.  The file is Parquet, and says which step it holds, of which rank and of how
many (`mark_of`).
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.canonical import TYPES
from rlcorr_cli.layouts.layout import Held
from rlcorr_cli.layouts.memory import HostMemory, held
from rlcorr_cli.layouts.table import batch_layout
from rlcorr_cli.reading import arrow_values as types
from rlcorr_cli.reading.arrow_values import as_arrow, as_numpy, as_texts, cast, flattened, take
from rlcorr_cli.reading.columns import candidates, resolve
from rlcorr_cli.reading.names import ALIASES, LEVELS, OF_ROWS, PADDING, PROMPT_TEXTS, TOKENS
from rlcorr_cli.reading.request import PlanColumns
from rlcorr_cli.reading.rows_out import writer
from rlcorr_cli.reading.schema import KNOWN
from rlcorr_cli.reading.tables import as_columns, in_memory
from rlcorr_cli.reading.whole_rows import ArrowRows

RENAMED = [name for name in ALIASES if name not in (*OF_ROWS, "sample_id")]
"""Columns that get their canonical names; those of others may be of another kind."""
TEXTS = {*PROMPT_TEXTS, *TOKENS, "response", "response_text", "completion", "text", "output"}
"""Columns that are written where they hold numbers, and as text only where that is wanted."""
WHOLE = ("tokens", "token_ids")
"""Columns of ids that may begin with the prompt's."""
MARK = b"rlcorr_recorder"
"""The key of a file's metadata that tells what it holds."""


@frozen
class RecordedStep:
    """Which step a file holds, of which rank, and of how many ranks; world: 0 where nobody knows."""

    step: int
    rank: int
    world: int


def snapshot(batch: Any, host: HostMemory, step: int) -> Sequence[Held]:
    """Copies of what may be recorded of a batch, or of each of its micro batches; a DataError of one of no kind that is
    known."""
    parts = held(batch)
    if parts is None:
        message = f"A batch is a mapping of tensors or an object that holds some, not of type {type(batch).__name__}."
        raise DataError(message, "Give what the trainer computes its loss of.")
    for part in [part for part in parts if batch_layout(part) is None]:
        as_columns(batch, part)  # raises for what is no batch
        _check_both_policies([name for name, values in part.values.items() if values is not None])
    return [_copied(part, host, number, step) for number, part in enumerate(parts)]


def _copied(part: Held, host: HostMemory, number: int, step: int) -> Held:
    """number: of the micro batch, by which its copies have memory of their own."""
    framework, layout = batch_layout(part) or ("", None)
    names = {*KNOWN, *TEXTS} if layout is None else {*layout.names()}
    taken = {name: value for name, value in part.values.items() if name in names and value is not None}
    copies = {name: host.copied(f"{number} {name}", value) for name, value in taken.items()}
    return Held(values=copies, facts=part.facts, step=step, framework=framework)


def _check_both_policies(names: Sequence[str]) -> None:
    """A DataError where two policies are not among columns of these names."""
    try:
        resolve(names, {}, PlanColumns())
    except DataError as error:
        lacking = "old_log_probs" if len(candidates("rollout_log_probs", names, {})) == 1 else "rollout_log_probs"
        hint = f'Give a mapping of what it holds, and "{lacking}" beside it.'
        raise DataError(error.what, hint) from error


def rows_of(taken: Sequence[Held], *, share: float = 1.0, text: bool = False, worker: int | None = None) -> pa.Table:
    """The rows of a snapshot.  share: of prompts, by their hash: all rows of a prompt are taken, or none.  text: with
    texts.  worker: of rows that do not say theirs."""
    batch = in_memory(taken)
    assert batch is not None, "a snapshot was known by its keys"
    table, names = batch.table, batch.table.column_names
    _check_both_policies(names)
    canonical = {found[0]: name for name in RENAMED if len(found := candidates(name, names, {})) == 1}
    table = table.rename_columns([canonical.get(name, name) for name in names])
    table = _with_prompts(table, _response(table), () if taken[0].framework else WHOLE)
    if share < 1 and table.num_rows:
        table = take(table, np.flatnonzero(_chosen(table, share)))
    more = {"step": as_arrow(np.full(table.num_rows, taken[0].step, np.int64))}
    if worker is not None and set(names).isdisjoint(LEVELS["worker"]):
        more["worker"] = as_arrow(np.full(table.num_rows, worker, np.int64))
    response, table = _response(table), _with(table, more)
    written = {
        name: _recorded_column(name, table[name].combine_chunks(), response, text) for name in table.column_names
    }
    return pa.table({name: column for name, column in written.items() if column is not None})


def write(rows: pa.Table, file: BinaryIO, mark: RecordedStep) -> None:
    """The rows as Parquet, which says what it holds."""
    out = writer(".parquet", file, losses=None, columns=None)
    out.write(ArrowRows(rows.replace_schema_metadata({MARK: json.dumps(vars(mark))})))
    out.close(metadata="")


def mark_of(path: str) -> RecordedStep | None:
    """What a file of the disk holds, as it says itself; None of a file that nobody recorded."""
    with suppress(OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return RecordedStep(**json.loads((pq.read_metadata(path).metadata or {})[MARK]))
    return None


def has_all_ranks(path: str) -> bool | None:
    """Whether beside a recorded file those of all ranks of its step are there; None of a file that nobody recorded.
    Where nobody knows how many there are, no other is waited for."""
    mark = mark_of(path) if ".rank" in os.path.basename(path) else None
    if mark is None:
        return None
    before, _, after = path.rpartition(f".rank{mark.rank}.")
    return all(os.path.exists(f"{before}.rank{rank}.{after}") for rank in range(mark.world))


def _with(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """The table with these columns, in the place of those of the same names."""
    others = {name: table[name] for name in table.column_names}
    return pa.table({**others, **columns})


@frozen
class _Response:
    """Where each row's response is among the values of all rows.

    offsets: i64[B+1], where each row's list begins, and the end of the last one.  first: i64[B], its first token that
    counts.  end: i64[B], behind its last one; first where there is none.
    """

    offsets: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]


def _response(table: pa.Table) -> _Response:
    """Of the mask; without one no list is found to be as long."""
    if "response_mask" not in table.column_names:
        return _Response(*[np.empty(0, np.int64)] * 3)
    flags, offsets = flattened(table["response_mask"].combine_chunks())
    valid = np.append(np.flatnonzero(as_numpy(flags, null=0)), len(flags))
    place, behind = np.searchsorted(valid, offsets[:-1]), np.searchsorted(valid[:-1], offsets[1:])
    first = np.where(place == behind, offsets[:-1], valid[place])
    return _Response(offsets, first, np.where(place == behind, first, valid[behind - 1] + 1))


def _with_prompts(table: pa.Table, response: _Response, whole: Sequence[str]) -> pa.Table:
    """The table with a hash of each row's prompt, and the length of its ids, in their place; without ids that of its
    text.  whole: columns of the ids of prompt and response."""
    numbers = {field.name: table[field.name] for field in table.schema if types.holds_mask(field.type)}
    named = [name for name in (*PROMPT_TEXTS, *PADDING, *whole) if name in numbers]
    prompts = _prompt_ids({name: flattened(numbers[name].combine_chunks()) for name in named}, response)
    table = table.drop_columns([name for name in named if name not in whole])
    texts = next((table[name] for name in PROMPT_TEXTS if name in table.column_names), None)
    more = {"prompt_length": as_arrow(np.array([len(ids) // 8 for ids in prompts], np.int32))} if prompts else {}
    if not prompts and texts is not None and texts.null_count < len(texts):
        prompts = [json.dumps(text, sort_keys=True, default=str).encode() for text in texts.to_pylist()]
    hashes = {"prompt_id": as_texts([f"{_hash(prompt):016x}" for prompt in prompts])} if prompts else {}
    return _with(table, {**hashes, **more})


def _prompt_ids(lists: Mapping[str, tuple[pa.Array, NDArray[np.int64]]], response: _Response) -> list[bytes]:
    """The ids of each row's prompt in 64 bits, without padding: its own, or those before the response.  None of it all
    where no row has any."""
    masks = [(as_numpy(lists[name][0], null=0) != 0, lists[name][1]) for name in PADDING if name in lists]
    for name, (values, offsets) in lists.items():
        if name in PADDING or (name in WHOLE and not np.array_equal(offsets, response.offsets)):
            continue
        ids, lengths = as_numpy(values, null=0).astype("<i8"), np.diff(offsets)
        # A mask is as long as the prompts, or as they and the response.
        behind = (np.zeros_like(lengths), np.diff(response.offsets))
        fitting = [mask for more in behind for mask in masks if np.array_equal(np.diff(mask[1]) - lengths, more)]
        keep, places = fitting[0] if fitting else (np.ones(len(ids), np.bool_), offsets)
        ends = response.first if name in WHOLE else offsets[1:]
        spans = zip(offsets[:-1].tolist(), ends.tolist(), places[:-1].tolist(), strict=True)
        prompts = [ids[start:end][keep[place : place + end - start]].tobytes() for start, end, place in spans]
        if any(prompts):
            return prompts
    return []


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def _chosen(table: pa.Table, share: float) -> list[bool]:
    """Which rows are of a share of the prompts: by the prompt of a group's first row, or by the group's name."""
    names = [name for name in LEVELS["group_id"] if name in table.column_names]
    if not names:
        message = "The batch tells neither groups nor prompts, of which a share is to be taken."
        raise DataError(message, "Record all rows, with share=1, or add group_id to the batch.")
    groups = table[names[0]].to_pylist()
    prompts = table["prompt_id" if "prompt_id" in names else names[0]].to_pylist()
    first = dict(zip(groups[::-1], prompts[::-1], strict=True))  # what is put in last stays
    return [_hash(str(first[group]).encode()) < share * 2**64 for group in groups]


def _recorded_column(name: str, array: pa.Array, response: _Response, text: bool) -> pa.Array | None:
    """A column as it is written; None of one that is not.  One of nulls gets the type that it has in other steps, so
    that the files have one schema."""
    if pa.types.is_null(array.type):
        return cast(array, TYPES[name]) if name in TYPES else None
    is_list = types.is_list(array.type)
    if name in TEXTS and not text and not types.holds_reward(array.type.value_type if is_list else array.type):
        return None
    if not is_list:
        return array
    values, offsets = flattened(array)
    return _cut(_narrowed(name, values), offsets, response)


def _narrowed(name: str, values: pa.Array) -> pa.Array:
    """Floats in 32 bits, a mask in 8; other values as they are."""
    if name == "response_mask":
        with suppress(pa.ArrowInvalid):  # what is not 0 and 1 is told where it is read
            return cast(values, pa.int8())
    elif pa.types.is_floating(values.type):
        return cast(values, pa.float32(), lossy=True)
    return values


def _cut(values: pa.Array, offsets: NDArray[np.int64], response: _Response) -> pa.Array:
    """Lists without what is before and behind the response, where they are as long as the mask."""
    if np.array_equal(offsets, response.offsets):
        first, lengths = as_arrow(response.first), as_arrow(response.end - response.first)
        values, offsets = flattened(pa.LargeListViewArray.from_arrays(first, lengths, values))
    return pa.ListArray.from_arrays(as_arrow(offsets.astype(np.int32)), values)
