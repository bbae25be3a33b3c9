"""What a trainer holds at one step, as a file of rows that is small and tells by itself what it is.

`snapshot` copies what is known by name out of the trainer's hands.  `rows_of` makes rows of it, later and elsewhere: it
is read as a batch in memory is for `analyze`, its columns get canonical names, and each row's lists run from the first
to the last token that counts, floats in 32 bits.  Of a prompt stay a hash of its ids, `prompt_id`, and its length.  The
file is Parquet, and says which step it holds, of which rank and of how many (`mark_of`).
"""

import hashlib
import json
import os
from collections.abc import Sequence
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
MARK = b"rlcorr_recorder"
"""The key of a file's metadata that tells what it holds."""


@frozen
class RecordedStep:
    """Which step a file holds, of which rank, and of how many ranks; world: 0 where nobody knows."""

    step: int
    rank: int
    world: int


def snapshot(batch: Any, host: HostMemory, step: int) -> Held:
    """Copies of what may be recorded of a batch; a DataError of a batch of no kind that is known."""
    given = held(batch)
    if given is None:
        message = f"A batch is a mapping of tensors or an object that holds some, not of type {type(batch).__name__}."
        raise DataError(message, "Give what the trainer computes its loss of.")
    framework, layout = batch_layout(given) or ("", None)
    if layout is None:
        as_columns(batch, given)
        _refuse_others([name for name, values in given.values.items() if values is not None])
    names = {*KNOWN, *TEXTS} if layout is None else {*layout.names()}
    taken = {name: value for name, value in given.values.items() if name in names and value is not None}
    copies = {name: host.copied(name, value) for name, value in taken.items()}
    return Held(values=copies, facts=given.facts, step=step, framework=framework)


def _refuse_others(names: Sequence[str]) -> None:
    """A DataError where two policies are not among columns of these names."""
    try:
        resolve(names, {}, PlanColumns())
    except DataError as error:
        hint = 'Give it by that name: recorder.write({**batch, "old_log_probs": old}, step=step).'
        raise DataError(error.what, hint) from error


def rows_of(taken: Held, *, share: float = 1.0, text: bool = False, worker: int | None = None) -> pa.Table:
    """The rows of a snapshot.  share: of prompts, by their hash: all rows of a prompt are taken, or none.  text: with
    texts.  worker: of rows that do not say theirs."""
    name = in_memory(taken)
    assert name is not None, "a snapshot was known by its keys"
    table, names = name.table, name.table.column_names
    _refuse_others(names)
    theirs = {found[0]: name for name in RENAMED if len(found := candidates(name, names, {})) == 1}
    table = table.rename_columns([theirs.get(name, name) for name in names])
    table = _with_prompts(table, _response(table))
    if share < 1 and table.num_rows:
        table = take(table, np.flatnonzero(_chosen(table, share)))
    more = {"step": as_arrow(np.full(table.num_rows, taken.step, np.int64))}
    if worker is not None and set(names).isdisjoint(LEVELS["worker"]):
        more["worker"] = as_arrow(np.full(table.num_rows, worker, np.int64))
    response, table = _response(table), _with(table, more)
    arrays = {name: _narrowed(name, table[name].combine_chunks(), response, text) for name in table.column_names}
    return pa.table({name: array for name, array in arrays.items() if array is not None})


def write(rows: pa.Table, file: BinaryIO, mark: RecordedStep) -> None:
    """The rows as Parquet, which says what it holds."""
    out = writer(".parquet", file, None, None)
    out.write(ArrowRows(rows.replace_schema_metadata({MARK: json.dumps(vars(mark))})))
    out.close("")


def mark_of(path: str) -> RecordedStep | None:
    """What a file of the disk holds, as it says itself; None of a file that nobody recorded."""
    with suppress(OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return RecordedStep(**json.loads((pq.read_metadata(path).metadata or {})[MARK]))
    return None


def has_all_ranks(path: str) -> bool | None:
    """Whether beside a recorded file those of all ranks of its step are there; None of a file that nobody recorded."""
    mark = mark_of(path) if ".rank" in os.path.basename(path) else None
    if mark is None:
        return None
    before, _, after = path.rpartition(f".rank{mark.rank}.")
    return all(os.path.exists(f"{before}.rank{rank}.{after}") for rank in range(mark.world))


def _with(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """The table with these columns, in the place of those of the same names."""
    others = {name: table[name] for name in table.column_names}
    return pa.table({**others, **columns})


_Response = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Where each row's list begins and the last one ends, among the values of all; and of each where its first token that
counts is, and what is behind its last one."""


def _response(table: pa.Table) -> _Response | None:
    """Of the mask; None without one."""
    if "response_mask" not in table.column_names:
        return None
    flags, offsets = flattened(table["response_mask"].combine_chunks())
    valid = np.append(np.flatnonzero(as_numpy(flags, null=0)), len(flags))
    place, end = np.searchsorted(valid, offsets[:-1]), np.searchsorted(valid[:-1], offsets[1:])
    first = np.where(place == end, offsets[:-1], valid[place])
    return offsets, first, np.where(place == end, first, valid[end - 1] + 1)


def _with_prompts(table: pa.Table, response: _Response | None) -> pa.Table:
    """The table with a hash and the length of each row's prompt, of its own ids or of those before the response, in
    the place of its ids."""
    numbers = [field.name for field in table.schema if types.holds_mask(field.type)]
    lists = {
        name: flattened(table[name].combine_chunks()) for name in (*PROMPT_TEXTS, *PADDING, *TOKENS) if name in numbers
    }
    without = table.drop_columns([name for name in lists if name not in TOKENS])
    masks = [as_numpy(lists.pop(name)[0], null=0) != 0 for name in PADDING if name in lists]
    for name, (values, offsets) in lists.items():
        ends = offsets[1:]
        if name in TOKENS and (response is None or not np.array_equal(offsets, response[0])):
            continue
        if name in TOKENS and response is not None:
            ends = response[1]
        ids = as_numpy(values, null=0).astype("<i8")
        valid = next((mask for mask in masks if len(mask) == len(ids)), np.ones(len(ids), np.bool_))
        spans = zip(offsets[:-1].tolist(), ends.tolist(), strict=True)
        prompts = [ids[start:end][valid[start:end]].tobytes() for start, end in spans]
        if any(prompts):
            hashes = as_texts([_digest(prompt).hex() for prompt in prompts])
            lengths = np.array([len(prompt) // ids.itemsize for prompt in prompts], np.int32)
            return _with(without, {"prompt_id": hashes, "prompt_length": as_arrow(lengths)})
    return without


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()


def _chosen(table: pa.Table, share: float) -> list[bool]:
    """Which rows are of a share of the prompts: by the prompt of a group's first row, or by the group's name."""
    names = [name for name in (*LEVELS["group_id"], "prompt_id") if name in table.column_names]
    if not names:
        message = "The batch tells neither groups nor prompts, of which a share is to be taken."
        raise DataError(message, "Record all rows, with share=1, or add group_id to the batch.")
    groups, prompts = table[names[0]].to_pylist(), table[names[-1]].to_pylist()
    first: dict[Any, str] = {}
    for group, prompt in zip(groups, prompts, strict=True):
        first.setdefault(group, str(prompt))
    return [int.from_bytes(_digest(first[group].encode()), "big") < share * 2**64 for group in groups]


def _narrowed(name: str, array: pa.Array, response: _Response | None, text: bool) -> pa.Array | None:
    """A column without padding, floats in lists in 32 bits, and nulls in the column's own type; None of one that is not
    written."""
    if pa.types.is_null(array.type):
        return cast(array, TYPES[name]) if name in TYPES else None
    is_list = types.is_list(array.type)
    if name in TEXTS and not text and not types.holds_reward(array.type.value_type if is_list else array.type):
        return None
    if not is_list:
        return array
    values, offsets = flattened(array)
    if name == "response_mask":
        with suppress(pa.ArrowInvalid):  # what is not 0 and 1 is told where it is read
            values = cast(values, pa.int8())
    elif pa.types.is_floating(values.type):
        values = cast(values, pa.float32(), lossy=True)
    if response is not None and np.array_equal(offsets, response[0]):
        first, lengths = as_arrow(response[1]), as_arrow(response[2] - response[1])
        values, offsets = flattened(pa.LargeListViewArray.from_arrays(first, lengths, values))
    return pa.ListArray.from_arrays(as_arrow(offsets.astype(np.int32)), values)
