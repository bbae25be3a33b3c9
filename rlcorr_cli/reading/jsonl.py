"""JSON lines: byte ranges are the shards, msgspec parses them, pyarrow what msgspec refuses, Python the rest.

msgspec is asked for the columns in their types, which takes a third of pyarrow's time.  It refuses what no standard of
JSON has (NaN), and what these types have not (nulls in lists).  The first rows, and blocks that pyarrow refuses, too,
are read one line at a time with the standard library: either a line is read (mixed booleans and numbers, keys of mixed
numeric type) or its row says what is wrong with it.
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from itertools import islice
from operator import attrgetter, iconcat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from msgspec import UNSET, Raw, UnsetType
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import STDIN, Place, shown
from rlcorr_cli.reading.arrow_values import as_lists, holds_token_ids
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import Places, Rows, resolved
from rlcorr_cli.reading.columns import ALIASES, Roles, read_for
from rlcorr_cli.reading.container import Index, NeededColumns, Piece, Reader, runs
from rlcorr_cli.reading.find import Source
from rlcorr_cli.reading.formats import by_magic, container
from rlcorr_cli.reading.names import KEPT_SETS
from rlcorr_cli.reading.streams import Block, blocks, head, is_compressed
from rlcorr_cli.reading.whole_rows import JsonRows, json_kind, row_of
from rlcorr_cli.totals.flat import offsets_of

RANGE_BYTES = 16 << 20
FLOATS, FLAGS = pa.list_(pa.float64()), pa.list_(pa.bool_())
LOOKED_AT = 200
"""Rows from which columns and types are taken.  A mask that first appears later is an error, not overlooked."""
MASKS = ("response_mask", *ALIASES["response_mask"])
MASK_KEY = re.compile(b'"(%s)"' % "|".join(MASKS).encode())
ESCAPED_KEY = re.compile(rb'\\.[^"\\]*"\s*:', re.DOTALL)
"""The last escape in a key, which may be a mask's all the same: `response\\u005fmask`."""


def index(source: Source, needed: NeededColumns) -> Index:
    """Columns and types from the first rows: numbers in lists are doubles, an empty list is one of doubles."""
    path = source.path
    lines = list(islice(head(path).numbered.items(), LOOKED_AT))
    rows = [row for _, line in lines if isinstance(row := row_of(line), dict)]
    if rows:
        schema = inferred(rows)
        needed(schema, rows)
        return Index(schema=schema, in_one=path == STDIN or is_compressed(path))
    if not lines:
        raise DataError(f"{shown(path)} has no rows in its first lines.", "JSON lines hold one object per line.")
    number, line = lines[0]
    format = by_magic(line)
    if path == STDIN and format not in (None, "jsonl"):
        message = f"{shown(path)} holds {container(format).title}: only JSON lines are read from it."
        raise DataError(message, "Pipe JSON lines to rlcorr, or name the file.")
    hint = "`jq -c '.[]' FILE > dump.jsonl` makes a line of each object." if line.lstrip()[:1] == b"[" else ""
    raise DataError(f"{shown(path)}, line {number} {row_of(line)}.", hint or "Is this a file of JSON lines?")


def parts(source: Source, index: Index, roles: Roles, range_bytes: int = RANGE_BYTES) -> Sequence[Piece]:
    """Byte ranges of a plain file; a compressed file or standard input is one part."""
    if index.in_one:
        return [(None, source.n_bytes)]
    return runs(source.n_bytes, range_bytes, source.n_bytes)


def read(shard: Shard, roles: Roles, batch_tokens: int = 0, *, whole: bool = False) -> Iterator[Rows]:
    """The part's rows, a block at a time; keys a row lacks are null.  whole: with their lines."""
    declared = _declared(shard.schema, roles)
    for block in blocks(shard.path, shard.part):
        if block.numbered:
            yield _rows_of_block(block, declared, roles, shard.path, whole=whole)


def peek(shard: Shard, roles: Roles) -> Rows:
    """The first rows, about HEAD_BYTES of them; standard input stays unread."""
    declared = _declared(shard.schema, roles)
    return _rows_of_block(head(shard.path), declared, roles, shard.path, whole=False, peeked=True)


def _rows_of_block(
    block: Block, declared: pa.Schema, roles: Roles, path: str, *, whole: bool, peeked: bool = False
) -> Rows:
    """The rows of a block that is not blank, by the first parser that takes all: msgspec, pyarrow, Python's own.

    peeked: whether a late mask is left to who reads all.
    """
    lines = list(block.numbered.values())
    by_text = roles.cluster is not None and not holds_token_ids(declared.field(roles.cluster).type)
    # What rows are grouped by, or a gap is looked for in, keeps its own type in every block.
    grouped, levels = (roles.batch, *read_for(roles.group_keys)), [column for _, column in roles.levels]
    ids = [name for name in roles.ids if name not in (*grouped, *levels)]
    if roles.cluster is not None and by_text and roles.cluster not in (*grouped, *ids):
        ids.append(roles.cluster)
    # Of an id that is a list or an object pyarrow would keep the fields alone that the first rows had.
    nested = any(pa.types.is_nested(declared.field(name).type) for name in ids)
    table, unread = None if nested else _typed(lines, declared, roles.mask), {}
    if table is None:
        if roles.mask is None and not peeked:
            _refuse_late_mask(block, path)
        table = None if nested else _fast(b"".join(lines), declared, len(lines))
    if table is None:
        lenient = None if roles.cluster in ids else roles.cluster
        table, unread = parsed(lines, declared, path, ids=ids, mask=roles.mask, lenient=lenient)
    (batch,) = table.combine_chunks().to_batches()
    places = Places(path, "line", np.fromiter(block.numbered, np.int64), block.start)
    original = JsonRows([line.removesuffix(b"\n") for line in lines]) if whole else None
    return Rows(data=batch, places=places, original=original, unread=unread)


def _declared(schema: pa.Schema, roles: Roles) -> pa.Schema:
    """Types by role, so that a reward of 0 and 1 in the first rows may be 0.5 later.

    A mask is float64, in which nothing but 0 and 1 looks like them, or boolean if it starts so.
    """

    def declared(field: pa.Field) -> pa.DataType:
        if field.name in roles.log_probs or (field.name == roles.mask and field.type != FLAGS):
            return FLOATS
        return pa.float64() if field.name == roles.reward and not pa.types.is_boolean(field.type) else field.type

    return pa.schema([pa.field(field.name, declared(field)) for field in schema])


MANY_LINES, SHORT_LINE_BYTES = 1 << 10, 1 << 11
"""pyarrow reads more lines than the first sooner, where they are shorter than the second on average."""
GROUP_BYTES = 1 << 18
"""Of lines that are objects of Python at once: more would leave the processor's cache before they are arrays."""
MINUS_ZERO = re.compile(rb"-0[^.\deE]")


ITEMS = {FLOATS: list[int | float], FLAGS: list[bool]}


def _typed(lines: Sequence[bytes], schema: pa.Schema, mask: str | None) -> pa.Table | None:
    """Lists of numbers by msgspec, and by pyarrow what it leaves of the lines.

    None where pyarrow is to read all: where msgspec or pyarrow refuses a line, where a list is null or has nulls, where
    pyarrow might read a line otherwise, and of more than MANY_LINES that are short.

    msgspec takes the last value of a key that comes twice.  So the keys that are found without parsing must be as many
    as the values, and none may be spelled with escapes.  Without a mask, the names of one count as keys, too.
    """
    lists = {f"c{i}": field for i, field in enumerate(schema) if field.type == FLOATS or field.name == mask}
    others = {f"c{i}": field for i, field in enumerate(schema) if f"c{i}" not in lists}
    fields: list[Any] = [(key, ITEMS[field.type]) for key, field in lists.items()]
    fields += [(key, Raw | UnsetType, UNSET) for key in others]
    renamed = {key: field.name for key, field in (lists | others).items()}
    alternatives = b"|".join(re.escape(name.encode()) for name in (*schema.names, *(() if mask else MASKS)))
    find_keys = re.compile(rb'"(?:%s)"\s*:' % alternatives).findall
    arrays, lengths = {key: list[NDArray[Any]]() for key in lists}, {key: list[int]() for key in lists}
    n_surplus_keys, rest, encode = 0, list[bytes](), msgspec.json.Encoder().encode_lines
    mean_bytes = 1 + sum(map(len, lines)) // len(lines)
    if len(lines) > MANY_LINES and mean_bytes < SHORT_LINE_BYTES:
        return None
    step = 1 + GROUP_BYTES // mean_bytes
    try:
        decode = msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=renamed, gc=False)).decode
        for first in range(0, len(lines), step):
            group = lines[first : first + step]
            rows = [decode(line) for line in group]
            if any(map(_may_escape_a_key, group)):
                return None
            n_surplus_keys += sum(map(len, map(find_keys, group))) - len(rows) * len(renamed)
            for key, field in lists.items():
                of_rows = [*map(attrgetter(key), rows)]
                lengths[key] += map(len, of_rows)
                arrays[key].append(_numbers(reduce(iconcat, of_rows, []), group, field.name == mask))
                for row in rows:
                    setattr(row, key, UNSET)  # which is not written
            n_surplus_keys += sum([*map(attrgetter(key), rows)].count(UNSET) for key in others)
            rest.append(encode(rows))
    except (msgspec.DecodeError, ValueError, OverflowError, struct.error, RecursionError):
        return None
    table = None if n_surplus_keys else _fast(b"".join(rest), pa.schema(others.values()), len(lines))
    if table is None:
        return None
    for key, field in lists.items():
        flat = np.concatenate(arrays[key])
        column = as_lists(pa.list_(pa.from_numpy_dtype(flat.dtype)), offsets_of(np.array(lengths[key])), flat)
        table = table.add_column(int(key[1:]), field.name, column)
    return table


def _numbers(values: list[Any], lines: Sequence[bytes], is_mask: bool) -> NDArray[Any]:
    """As float64; a mask of booleans or of whole numbers from 0 to 255 as uint8.  A ValueError where the lines may hold
    -0 in place of a log-prob, of which msgspec makes the whole number 0."""
    with suppress(TypeError, ValueError):
        if is_mask:
            return np.frombuffer(bytes(values), np.uint8)
    numbers = np.frombuffer(struct.pack(f"{len(values)}d", *values))
    zeros = map(values.__getitem__, np.flatnonzero(numbers == 0).tolist())
    if not is_mask and int in set(map(type, zeros)) and any(map(MINUS_ZERO.search, lines)):
        raise ValueError("-0")
    return numbers


def _fast(data: bytes, schema: pa.Schema, n_lines: int) -> pa.Table | None:
    """pyarrow's reading of whole lines; None if it refuses them or finds other rows than there are lines."""
    if not re.match(rb"\s*\{", data):
        return None  # a first line of `null` crashes pyarrow's parser (apache/arrow#47409)
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        for field in schema:
            if pa.types.is_string(field.type):
                table.column(field.name).validate(full=True)  # else invalid UTF-8 shows up much later
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == n_lines else None


def _refuse_late_mask(block: Block, path: str) -> None:
    """Rows were taken as unmasked because the first ones have no mask: a later one that has must not be."""
    for number, line in block.numbered.items():
        # Only a key that is spelled with escapes needs its line parsed to be known.
        row = row_of(line) if MASK_KEY.search(line) or _may_escape_a_key(line) else ""
        late = sorted(set(MASKS) & row.keys()) if isinstance(row, dict) else []
        if late:
            place = resolved(Place(path, "line", number, block.start))
            raise DataError(
                f"{place.text} has {late[0]}, which the first {LOOKED_AT} rows lack.",
                "Put the mask in every row, the first ones too; 1 is a token that counts.",
            )


def _may_escape_a_key(line: bytes) -> bool:
    """Whether a line may have a key with escapes in it."""
    return b"\\" in line and ESCAPED_KEY.search(line) is not None


LARGEST_INTEGER = 2**1023
"""Larger whole numbers are refused: they come near the end of float64."""
DEEPEST = 20
"""Lists within lists whose type is told; deeper ones are no column that is read."""
NOT_FINITE = ("NaN", "nan", "Infinity", "-Infinity", "inf", "-inf")
"""Text in a list of numbers that stands for one that is not finite: ART and others write it so."""


def inferred(rows: Iterable[dict[str, Any]]) -> pa.Schema:
    """Every key seen, typed by its first value that says something: not null, not []."""
    types: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            if not _is_utf8(name):
                continue  # no column can be called so; the key stays in its line
            if types.get(name, pa.null()) in (pa.null(), pa.list_(pa.null())):
                type = _type_of(value)
                if name in KEPT_SETS and isinstance(value, dict):  # an object whose fields are read
                    type = pa.struct([(key, _type_of(part)) for key, part in value.items() if _is_utf8(key)])
                types[name] = types.get(name, type) if type == pa.null() else type
    empty = pa.list_(pa.null())
    return pa.schema([(name, pa.list_(pa.float64()) if type == empty else type) for name, type in types.items()])


def parsed(
    lines: Iterable[bytes],
    schema: pa.Schema,
    path: str,
    *,
    ids: Sequence[str] = (),
    mask: str | None = None,
    lenient: str | None = None,
) -> tuple[pa.Table, dict[int, str]]:
    """The schema's columns of all lines, and what is wrong with those that cannot be read: their rows are null.

    A mask, whose lists may hold booleans, becomes float64, a key column of mixed numbers too, an id text.  lenient: the
    column of which a value that does not fit is null, and nothing is wrong with its line.
    """
    rows, unread = list[dict[str, Any]](), dict[int, str]()

    def fitted(row: dict[str, Any]) -> dict[str, Any] | str:
        """A row's values as `_column_of` takes them, or what is wrong."""
        values: dict[str, Any] = {}
        for field in schema:
            try:
                value = row.get(field.name)
                if field.name in ids and value is not None:
                    values[field.name] = _whole_text(value if isinstance(value, str) else json.dumps(value))
                else:
                    values[field.name] = _fitting_value(value, field.type, field.name == mask)
            except _UnfitError as error:
                if field.name != lenient:
                    return f"has {error} in {field.name}, which holds {field.type}"
        return values

    for i, line in enumerate(lines):
        row = row_of(line)
        row = fitted(row) if isinstance(row, dict) else row
        if isinstance(row, str):
            unread[i] = row
        rows.append({} if isinstance(row, str) else row)
    types = {field.name: pa.string() if field.name in ids else field.type for field in schema}
    columns = {name: _column_of([row.get(name) for row in rows], type, name, path) for name, type in types.items()}
    return pa.table(columns), unread


def _whole_text(value: str) -> str:
    if not _is_utf8(value):
        raise _UnfitError("half a surrogate pair, which is not text,")
    return value


def _is_utf8(value: str) -> bool:
    """Whether UTF-8 can hold it: JSON can escape half a surrogate pair."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


class _UnfitError(Exception):
    """A value of a kind that its column cannot hold; the text is the kind."""


def _fitting_value(value: Any, type: pa.DataType, is_mask: bool) -> Any:
    """The value as `_column_of` takes it.  Only a mask may hold booleans in its lists."""
    if value is None:
        return None
    if pa.types.is_list(type):
        if not isinstance(value, list):
            raise _UnfitError(json_kind(value))
        if pa.types.is_list(type.value_type):
            return [_fitting_value(item, type.value_type, is_mask) for item in value]
        return [_fitting_number(item, booleans=is_mask) for item in value]
    if pa.types.is_struct(type) and type.num_fields:
        if not isinstance(value, dict):
            raise _UnfitError(json_kind(value))
        return {field.name: _fitting_value(value.get(field.name), field.type, is_mask) for field in type}
    if isinstance(value, str) and (pa.types.is_string(type) or pa.types.is_null(type)):
        return _whole_text(value)
    if pa.types.is_string(type):
        raise _UnfitError(json_kind(value))
    number = _fitting_number(value, booleans=True)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise _UnfitError("an integer beyond 64 bits")
    return number


def _fitting_number(value: Any, booleans: bool) -> Any:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise _UnfitError("an integer that no float holds")
    if value is None or (isinstance(value, int | float) and (booleans or not isinstance(value, bool))):
        return value
    raise _UnfitError(json_kind(value))


def _column_of(values: list[Any], type: pa.DataType, name: str, path: str) -> pa.Array:
    if pa.types.is_nested(type):
        is_flat = pa.types.is_list(type) and not pa.types.is_nested(type.value_type)
        return pa.array([_with_floats(value) for value in values], FLOATS if is_flat else type)
    kinds = {value.__class__ for value in values if value is not None}
    if str in kinds and len(kinds) > 1:
        raise DataError(
            f"{shown(path)}: {name} mixes strings and numbers.", "Write one kind, or group by another column."
        )
    if len(kinds) > 1 or pa.types.is_floating(type):
        return pa.array([_with_floats(value) for value in values], pa.float64())
    return pa.array(values)


def _with_floats(value: Any) -> Any:
    """A value of any depth with floats for its numbers."""
    match value:
        case list():
            return [_with_floats(item) for item in value]
        case dict():
            return {name: _with_floats(item) for name, item in value.items()}
        case int():
            return float(value)
        case _:
            return value


def _type_of(value: Any, depth: int = 0) -> pa.DataType:
    """As pyarrow would say it, but all numbers in lists are doubles and an object is one without fields."""
    if depth > DEEPEST:
        return pa.null()
    if value is None or isinstance(value, dict):
        return pa.null() if value is None else pa.struct([])
    if isinstance(value, list):
        told = [item for item in value if item is not None]
        inner = _type_of(next((item for item in told if item not in NOT_FINITE), 0.0 if told else None), depth + 1)
        return pa.list_(pa.float64() if inner == pa.int64() else inner)
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}[value.__class__]


READER = Reader(index, parts, read, peek)
