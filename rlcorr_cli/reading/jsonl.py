"""JSON lines: byte ranges are the shards, pyarrow parses them, Python only what pyarrow refuses."""

import re
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import STDIN, Place, shown
from rlcorr_cli.reading.arrow_values import holds_token_ids
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import Rows
from rlcorr_cli.reading.columns import ALIASES, Roles, read_for
from rlcorr_cli.reading.container import Index, NeededColumns, Reader
from rlcorr_cli.reading.find import Source
from rlcorr_cli.reading.formats import by_magic, container
from rlcorr_cli.reading.lines import inferred, numbered, parsed, row_of
from rlcorr_cli.reading.row_places import Places, resolved
from rlcorr_cli.reading.streams import Block, Stdin, blocks, head, is_compressed
from rlcorr_cli.reading.whole_rows import JsonRows

RANGE_BYTES = 16 << 20
LOOKED_AT = 200
"""Rows from which columns and types are taken.  A mask that first appears later is an error, not overlooked."""
MASK_KEY = re.compile(b'"(%s)"' % "|".join(("response_mask", *ALIASES["response_mask"])).encode())
ESCAPED_KEY = re.compile(rb'"[^"\\]*\\u(?:[^"\\]|\\.)*"\s*:')
"""A key that may be one of those all the same: `response\\u005fmask`."""


def index(source: Source, needed: NeededColumns, stdin: Stdin | None = None) -> Index:
    """Columns and types from the first rows: numbers in lists are doubles, an empty list is one of doubles."""
    path = source.path
    start = stdin.head if path == STDIN and stdin else head(path)
    lines = list(islice(numbered(start, 0), LOOKED_AT))
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


def parts(
    source: Source, index: Index, roles: Roles, range_bytes: int = RANGE_BYTES
) -> list[tuple[tuple[int, int] | None, int]]:
    """Byte ranges of a plain file; a compressed file or standard input is one part."""
    if index.in_one:
        return [(None, source.n_bytes)]
    starts = range(0, source.n_bytes, range_bytes)
    ends = [*starts[1:], source.n_bytes]
    return [((start, end), end - start) for start, end in zip(starts, ends, strict=True)]


def read(
    shard: Shard,
    roles: Roles,
    stdin: Stdin | None = None,
    batch_tokens: int = 0,
    *,
    whole: bool = False,
) -> Iterator[Rows]:
    """The part's rows, a block at a time; keys a row lacks are null.  whole: with their lines."""
    declared = _declared(shard.schema, roles)
    for block in blocks(shard.path, shard.part, stdin):
        if not block.data or block.data.isspace():
            continue
        if roles.mask is None:
            _refuse_late_mask(block, shard.path)
        yield _rows(block, declared, roles, shard.path, whole=whole)


def peek(shard: Shard, roles: Roles, stdin: Stdin | None = None) -> Rows:
    """The first rows, about HEAD_BYTES of them; standard input stays unread."""
    start = stdin.head if shard.path == STDIN and stdin else head(shard.path)
    return _rows(Block(start), _declared(shard.schema, roles), roles, shard.path, whole=False)


def _rows(block: Block, declared: pa.Schema, roles: Roles, path: str, *, whole: bool) -> Rows:
    """A block that is not blank."""
    lines = [line for _, line in numbered(block.data, 0)] if whole else None
    numbers = np.fromiter((number for number, _ in numbered(block.data, block.lines_before)), np.int64)
    by_text = roles.cluster is not None and not holds_token_ids(declared.field(roles.cluster).type)
    # What rows are grouped by, or a gap is looked for in, keeps its own type in every block.
    grouped, levels = (roles.batch, *read_for(roles.group_keys)), [column for _, column in roles.levels]
    ids = [name for name in roles.ids if name not in (*grouped, *levels)]
    if roles.cluster is not None and by_text and roles.cluster not in (*grouped, *ids):
        ids.append(roles.cluster)
    # Arrow would read of an id that is a list or an object what the first rows had of it.
    nested = any(pa.types.is_nested(declared.field(name).type) for name in ids)
    table, unread = None if nested else _fast(block.data, declared, len(numbers)), {}
    if table is None:
        table, unread = parsed(
            lines or (line for _, line in numbered(block.data, 0)),
            declared,
            path,
            ids=ids,
            mask=roles.mask,
            lenient=None if roles.cluster in ids else roles.cluster,
        )
    (batch,) = table.combine_chunks().to_batches()
    places = Places(path, "line", numbers, block.start)
    return Rows(data=batch, places=places, original=None if lines is None else JsonRows(lines), unread=unread)


def _declared(schema: pa.Schema, roles: Roles) -> pa.Schema:
    """Types by role, so that a reward of 0 and 1 in the first rows may be 0.5 later.

    A mask is float64, in which nothing but 0 and 1 looks like them, or boolean if it starts so.
    """

    def declared(field: pa.Field) -> pa.DataType:
        if field.name in roles.log_probs:
            return pa.list_(pa.float64())
        if field.name == roles.mask:
            return field.type if pa.types.is_boolean(field.type.value_type) else pa.list_(pa.float64())
        if field.name == roles.reward and not pa.types.is_boolean(field.type):
            return pa.float64()
        return field.type

    return pa.schema([pa.field(field.name, declared(field)) for field in schema])


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
    # Only a key that is spelled with escapes needs its line parsed to be known.
    spelled = ESCAPED_KEY if b"\\u" in block.data and ESCAPED_KEY.search(block.data) else None
    if not spelled and not MASK_KEY.search(block.data):
        return
    masks = {"response_mask", *ALIASES["response_mask"]}
    for number, line in numbered(block.data, block.lines_before):
        names = masks if MASK_KEY.search(line) or (spelled and spelled.search(line)) else set[str]()
        row = row_of(line) if names else ""
        late = sorted(names & row.keys()) if isinstance(row, dict) else []
        if late:
            place = resolved(Place(path, "line", number, block.start))
            raise DataError(
                f"{place.text} has {late[0]}, which the first {LOOKED_AT} rows lack.",
                "Put the mask in every row, the first ones too; 1 is a token that counts.",
            )


READER = Reader(index, parts, read, peek)
