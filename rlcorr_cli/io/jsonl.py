"""JSON lines: byte ranges are the shards, pyarrow parses them, Python only what pyarrow refuses."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.json as pj

from rlcorr_cli.batch import Shard
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.batches import Rows
from rlcorr_cli.io.columns import ALIASES, Roles
from rlcorr_cli.io.lines import inferred, numbered, parsed, row_of
from rlcorr_cli.io.sources import STDIN, Source, shown
from rlcorr_cli.io.streams import Block, Stdin, blocks, head, is_compressed

RANGE_BYTES = 16 << 20
LOOKED_AT = 200
"""Rows from which columns and types are taken.  A mask that first appears later is an error, not overlooked."""
MASK_KEY = re.compile(b'"(%s)"' % "|".join(("response_mask", *ALIASES["response_mask"])).encode())


def schema(path: str, stdin: Stdin | None = None) -> pa.Schema:
    """Columns and types from the first rows: numbers in lists are doubles, an empty list is one of doubles."""
    start = stdin.head if path == STDIN and stdin else head(path)
    rows = [row_of(line, path, number) for number, line in islice(numbered(start, 0), LOOKED_AT)]
    if not rows:
        raise DataError(f"{shown(path)} has no rows in its first lines.", "JSON lines hold one object per line.")
    return inferred(rows)


def parts(source: Source, roles: Roles, range_bytes: int = RANGE_BYTES) -> list[tuple[tuple[int, int] | None, int]]:
    """Byte ranges of a plain file; a compressed file or standard input is one part."""
    if source.path == STDIN or is_compressed(source.path):
        return [(None, source.n_bytes)]
    starts = range(0, source.n_bytes, range_bytes)
    ends = [*starts[1:], source.n_bytes]
    return [((start, end), end - start) for start, end in zip(starts, ends, strict=True)]


def read(
    shard: Shard,
    roles: Roles,
    schema: pa.Schema,
    stdin: Stdin | None = None,
    batch_tokens: int = 0,
    whole: bool = False,
) -> Iterator[Rows]:
    """The part's rows, a block at a time; keys a row lacks are null.  whole: with their lines."""
    declared = _declared(schema, roles)
    for block in blocks(shard.path, shard.part, stdin):
        if roles.mask is None:
            _refuse_late_mask(block, shard.path)
        table = _fast(block.data, declared)
        if table is None:
            table = parsed(numbered(block.data, block.lines_before()), declared, shard.path)
        for batch in table.combine_chunks().to_batches():
            yield Rows(batch, partial(_where, shard.path, block), partial(_lines, block) if whole else None)


def _declared(schema: pa.Schema, roles: Roles) -> pa.Schema:
    """Types by role, so that a reward of 0 and 1 in the first rows may be 0.5 later.

    A mask is float32, or boolean if it starts so; float64 lists are log-probs, in which a boolean is an error.
    """

    def declared(field: pa.Field) -> pa.DataType:
        if field.name in roles.log_probs:
            return pa.list_(pa.float64())
        if field.name == roles.mask:
            return field.type if pa.types.is_boolean(field.type.value_type) else pa.list_(pa.float32())
        if field.name == roles.reward and not pa.types.is_boolean(field.type):
            return pa.float64()
        return field.type

    return pa.schema([pa.field(field.name, declared(field)) for field in schema])


def _fast(data: bytes, schema: pa.Schema) -> pa.Table | None:
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
    return table if table.num_rows == sum(1 for _ in numbered(data, 0)) else None


def _refuse_late_mask(block: Block, path: str) -> None:
    """Rows were taken as unmasked because the first ones have no mask: a later one that has must not be."""
    if not MASK_KEY.search(block.data):
        return
    for number, line in numbered(block.data, block.lines_before()):
        names = {match.decode() for match in MASK_KEY.findall(line)}
        late = sorted(names & row_of(line, path, number).keys()) if names else []
        if late:
            raise DataError(
                f"{shown(path)}, line {number} has {late[0]}, which the first {LOOKED_AT} rows lack.",
                "Put the mask in every row, the first ones too; 1 is a token that counts.",
            )


def _lines(block: Block) -> list[bytes]:
    return [line for _, line in numbered(block.data, 0)]


def _where(path: str, block: Block, row: int) -> str:
    """Counts lines of the file, blank ones too, from 1."""
    lines = numbered(block.data, block.lines_before())
    return f"{shown(path)}, line {next(islice(lines, row, None))[0]}"
