"""A dump: the files of one run, opened, their columns settled, and the work cut into shards."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from rlcorr_cli.batch import Input, Shard
from rlcorr_cli.io.batches import Care
from rlcorr_cli.io.columns import Roles, candidates, check_names
from rlcorr_cli.io.containers.streams import Stdin
from rlcorr_cli.io.readers import READERS
from rlcorr_cli.io.schema import Request, agree
from rlcorr_cli.io.sources import STDIN, Source, find

__all__ = ["Dump", "Request", "open_dump"]


@dataclass(frozen=True)
class Dump:
    """What `readers.read` needs, and what a report says about its inputs.

    columns: canonical (or key as asked for) -> column actually read, policies first, keys last.
    notes: what was chosen for the user, in sentences.  available: columns that every file has.
    all_columns: path -> its whole schema.  schemas: path -> the needed columns.  step: the column of steps, where all
    files have one.  limit: how many rows to read, from the first.
    stdin: where '-' is among the sources; then the dump can be read once.  care: what is done about bad rows.
    """

    sources: tuple[Source, ...]
    columns: dict[str, str]
    roles: Roles
    shards: tuple[Shard, ...]
    notes: tuple[str, ...]
    available: tuple[str, ...]
    overrides: Mapping[str, str]
    all_columns: Mapping[str, pa.Schema]
    schemas: Mapping[str, pa.Schema]
    step: str | None = None
    stdin: Stdin | None = None
    limit: int | None = None
    care: Care = field(default_factory=Care)

    def source(self, path: str) -> Source:
        """One of the sources."""
        return self._sources[path]

    def inputs(self, rows: Mapping[str, int]) -> list[Input]:
        """The sources as a report tells of them.  rows: by path, none where it is not there."""
        return [Input(one.path, one.format, rows.get(one.path, 0), one.n_bytes, self.columns) for one in self.sources]

    @property
    def marks(self) -> dict[str, str]:
        """Canonical -> column of what tells rows and files apart, whether or not rows are grouped by it."""
        found = {"sample_id": next(iter(self.roles.ids), None), "step": self.step}
        return {name: column for name, column in found.items() if column is not None}

    @cached_property
    def _sources(self) -> dict[str, Source]:
        return {source.path: source for source in self.sources}

    def has(self, name: str) -> bool:
        """Whether `name`, canonical or a column's own, stands for one column that every file has."""
        return len(candidates(name, self.available, self.overrides)) == 1


def schema_of(paths: Sequence[str], format: str = "auto") -> dict[str, str]:
    """Column -> type of the first file, whatever its columns are; not of standard input."""
    first = find(paths, format)[0]
    if first.path == STDIN:
        return {}
    return {field.name: str(field.type) for field in READERS[first.format].schema(first.path, None)}


def open_dump(paths: Sequence[str], request: Request | None = None) -> Dump:
    """Find the files, settle the columns, cut the work; reads footers and first rows only.

    A dump without rows opens, and has no shards or shards that yield nothing.
    """
    request = request or Request()
    check_names(request.columns)
    sources = find(paths, request.format)
    stdin = Stdin(sys.stdin.buffer) if any(source.path == STDIN for source in sources) else None
    schemas = {source.path: READERS[source.format].schema(source.path, stdin) for source in sources}
    agreed = agree(schemas, request)
    needed = {path: pa.schema([schema.field(n) for n in agreed.roles.needed]) for path, schema in schemas.items()}
    first, *others = (schema.names for schema in schemas.values())
    return Dump(
        sources=tuple(sources),
        columns=agreed.columns,
        roles=agreed.roles,
        shards=_shards(sources, agreed.roles),
        notes=agreed.notes + (() if request.limit is None else (f"Only the first {request.limit:,} rows are read.",)),
        available=tuple(name for name in first if all(name in names for names in others)),
        overrides=request.columns,
        all_columns=schemas,
        schemas=needed,
        step=agreed.step,
        stdin=stdin,
        limit=request.limit,
        care=request.care,
    )


def _shards(sources: Sequence[Source], roles: Roles) -> tuple[Shard, ...]:
    pieces = [(source, *piece) for source in sources for piece in READERS[source.format].parts(source, roles)]
    return tuple(
        Shard(index, source.path, source.format, part, n_bytes) for index, (source, part, n_bytes) in enumerate(pieces)
    )
