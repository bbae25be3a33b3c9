"""A dump: the files of one run, opened, their columns settled, and the work cut into shards.

A ShardReader reads any of them as checked batches, whatever container its rows are in.
"""

import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, NoRolloutColumn, NoTrainedColumn
from rlcorr_cli.files import filesystem
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts import nested
from rlcorr_cli.layouts.table import TRAINED_LATER
from rlcorr_cli.places import STDIN
from rlcorr_cli.reading.arrow_values import as_numpy, example
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.batch import InMemory, Input, Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows, Rows, checked_batches
from rlcorr_cli.reading.columns import Roles, candidates, check_names
from rlcorr_cli.reading.container import FILE, Index, named_by_files, reader
from rlcorr_cli.reading.find import Source, answers, blaming_changes, check_unchanged, find, find_noting
from rlcorr_cli.reading.formats import container
from rlcorr_cli.reading.names import NO_CLUSTERS, OF_ROWS, PROMPTS, ROLLOUTS, STEPS
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.schema import joined_schema, needed_columns, resolve_schema
from rlcorr_cli.reading.streams import Stdin
from rlcorr_cli.reading.values import SeenIds

USES = {"token_ids": "token ids", "versions": "versions of tokens", "kept_sets": "kept sets"}
"""What columns of each token are used for, as `inspect` says it."""


@dataclass
class ReadState:
    """What one reading of a whole dump knows from shard to shard.

    rows_left: how many rows may still be taken, None for no limit.  seen: ids seen so far, None if ids are not checked.
    """

    rows_left: int | None = None
    seen: SeenIds | None = None

    def cut(self, rows: Rows) -> Rows:
        """As many of these rows as may still be taken; counts them off."""
        if self.rows_left is None:
            return rows
        n = min(self.rows_left, rows.data.num_rows)
        self.rows_left -= n
        return rows.part(0, n)


@frozen(kw_only=True)
class ShardReader:
    """How to read any shard of a dump.

    It can be pickled to workers, and does not grow with the number of files: what is one file's own is in its shards.
    limit: most rows of the whole dump; whether a row is taken then depends on how many were before.
    """

    roles: Roles
    bad_rows: BadRowPolicy
    limit: int | None = None

    @property
    def leaves_out_repeated(self) -> bool:
        """Whether a row whose id came before is left out, rather than ending the run."""
        return bool(self.roles.ids) and not self.bad_rows.stops

    def state(self) -> ReadState:
        """The state before the first row of a dump is read."""
        return ReadState(self.limit, SeenIds() if self.roles.ids else None)

    def rows(self, shard: Shard, batch_tokens: int, *, whole: bool = False) -> Iterator[Rows]:
        """The shard's rows unchecked, about batch_tokens tokens at a time, whatever the limit.

        whole: with all columns, or their lines.
        """
        with self._unchanged(shard):
            yield from self._unchecked_rows(shard, batch_tokens, whole)

    def _unchecked_rows(self, shard: Shard, batch_tokens: int, whole: bool) -> Iterator[Rows]:
        read = reader(shard.format).read
        roles = self.roles.without(shard.partition.names)
        for rows in read(shard, roles, batch_tokens, whole=whole):
            yield shard.partition.given_to(rows, self.roles.needed)

    def checked(
        self, shard: Shard, batch_tokens: int, state: ReadState | None = None, *, whole: bool = False
    ) -> Iterator[CheckedRows | BadRows]:
        """The shard's rows in order, checked, in batches of at most batch_tokens tokens, masked ones included, and of
        at most BATCH_ROWS rows.

        A longer row is a batch of its own.  A batch's arrays may be read-only views of what was read.  whole: with all
        columns, or the rows' lines.  Shards may be read at once from several threads, in any order, unless what is
        taken depends on those before.
        """
        state = state or self.state()
        if state.rows_left == 0:
            return
        with self._unchanged(shard):
            for rows in self._unchecked_rows(shard, batch_tokens, whole or self.bad_rows.keeps):
                read = _trained(rows, self.roles) if shard.format in TRAINED_LATER else rows
                yield from checked_batches(
                    state.cut(read), self.roles, batch_tokens, bad_rows=self.bad_rows, seen=state.seen
                )
                if state.rows_left == 0:
                    break

    @contextmanager
    def _unchanged(self, shard: Shard) -> Generator[None]:
        """Raise a DataError if the files changed since they were found: looked at before (on a disk) and after."""
        if not filesystem(shard.path).remote:  # each look costs a request there, and the one at the end tells as much
            check_unchanged(shard.files, shard.format)
        with blaming_changes(shard.files, shard.format):
            yield
        check_unchanged(shard.files, shard.format)


def _trained(rows: Rows, roles: Roles) -> Rows:
    """Without rows that have no log-probs of a trained policy: their sequences are not trained on, or not yet."""
    if roles.trained is None:
        return rows
    known = as_numpy(rows.data.column(roles.trained).is_valid())
    return rows if known.all() else rows.take(np.flatnonzero(known))


@frozen(kw_only=True)
class Dump:
    """What `reader` is made of, and what a report says about its inputs.

    columns: canonical (or key as asked for) -> column actually read, policies first, keys last.
    notes: what was chosen for the user, in sentences, search_notes among them: on files that are not read.
    available: columns that every file has.
    indexes: path -> what its one opening told.  step: that of steps, where all files have one.
    """

    request: ReadRequest
    plan_columns: PlanColumns
    sources: tuple[Source, ...]
    columns: dict[str, str]
    roles: Roles
    shards: tuple[Shard, ...]
    notes: tuple[str, ...]
    available: tuple[str, ...]
    indexes: Mapping[str, Index]
    search_notes: tuple[str, ...] = ()
    step: str | None = None

    def with_request(self, **changes: Any) -> "Dump":
        """The same files by other keys of the request: grouped (`group_by`), known to the bootstrap (`drawn_by`, of
        `marks`) or drawn together (`cluster_by`) by other columns.  Nothing is opened again to settle these."""
        request = replace(self.request, **changes)
        if request == self.request:
            return self
        return _settled(request, self.plan_columns, self.sources, self.indexes, search_notes=self.search_notes)

    @property
    def reader(self) -> ShardReader:
        """What a worker needs to read any shard."""
        return ShardReader(roles=self.roles, bad_rows=self.request.bad_rows, limit=self.request.limit)

    @property
    def cluster(self) -> str:
        """What a bootstrap draws together: a column's name, or else ROLLOUTS or NO_CLUSTERS."""
        return self.roles.cluster or (NO_CLUSTERS if self.roles.draws_rows else ROLLOUTS)

    @property
    def has_advantages(self) -> bool:
        """Whether advantages are read, of tokens or as means of rows."""
        return self.roles.advantages is not None or self.roles.row_advantage is not None

    @property
    def is_here(self) -> bool:
        """Whether some of it can be read in this process alone: it is piped in, or a table in memory."""
        return self.is_piped or any(isinstance(source.path, InMemory) for source in self.sources)

    @property
    def is_piped(self) -> bool:
        """Whether standard input is among the sources; then it can be read once."""
        return any(isinstance(source.path, Stdin) for source in self.sources)

    def inputs(self, rows: Mapping[str, int]) -> list[Input]:
        """The sources as a report tells of them.  rows: by path, none where it is not there."""
        return [
            Input(
                path=source.path,
                format=source.format,
                rows=rows.get(source.path, 0),
                n_bytes=source.n_bytes,
                columns=self.columns,
                modified=source.modified,
            )
            for source in self.sources
        ]

    @property
    def n_bytes(self) -> int:
        """What all shards have to be read of, in bytes."""
        return sum(shard.n_bytes for shard in self.shards)

    @property
    def all_columns(self) -> dict[str, pa.Schema]:
        """Path -> all its columns, those that its folders name after its own."""
        return {path: index.all_columns for path, index in self.indexes.items()}

    @cached_property
    def table_columns(self) -> pa.Schema | None:
        """How one Parquet file is to hold the columns of files whose footers tell; None where these are all the same, a
        DataError where it cannot."""
        paths = [source.path for source in self.sources if container(source.format).fixed_columns]
        return joined_schema({path: self.indexes[path].all_columns for path in paths}) if paths else None

    @property
    def of_rows(self) -> dict[str, str]:
        """Canonical -> column of what was named beside the log-probs: token ids and prompts."""
        return {name: column for name, column in self.request.columns.items() if name in OF_ROWS}

    @property
    def marks(self) -> dict[str, str]:
        """Canonical -> column of what tells rows and files apart, whether or not rows are grouped by it."""
        columns = {"sample_id": next(iter(self.roles.ids), None), "step": self.step}
        return {name: column for name, column in columns.items() if column is not None}

    @property
    def uses(self) -> dict[str, str]:
        """Column -> what it is used for beside its name, of those that are looked at for causes and intervals."""
        roles, others = self.roles, {**self.columns, **self.marks}.values()
        uses = {roles.of_tokens[name]: use for name, use in USES.items() if name in roles.of_tokens}
        by_name = {"policy_version": "policy version, for lag", "lag": "lag"}
        uses |= {column: by_name.get(name, "compared") for name, column in roles.levels}
        prompts = [column for column in (roles.cluster, *uses) if column in PROMPTS]
        uses |= dict.fromkeys(prompts[:1], "prompt")
        return {column: use for column, use in uses.items() if column not in others}

    def has(self, name: str) -> bool:
        """Whether `name`, canonical or a column's own, stands for one column that every file has."""
        return len(candidates(name, self.available, self.request.columns)) == 1


def schema_of(paths: Sequence[str], format: str = "auto") -> dict[str, str]:
    """Column -> type of the first file, whatever its columns are; not of standard input."""
    first = find(paths, format)[0]
    if first.path == STDIN:
        return {}
    index = reader(first.format).index(first, lambda *_: [])
    return {field.name: str(field.type) for field in index.schema}


def open_dump(request: ReadRequest, plan_columns: PlanColumns | None = None) -> Dump:
    """Find the files, where the request has none yet, settle the columns, cut the work; reads footers and first rows
    only.

    A dump without rows opens, and has no shards or shards that yield nothing.
    """
    check_names(request.columns)
    sources, search_notes = request.found or find_noting(request.paths, request.format)
    if any(source.path == STDIN for source in sources):
        if sys.stdin is None:  # closed by the caller: `<&-`
            raise DataError("Standard input is closed.", "Pipe JSON lines to rlcorr, or name a file.")
        stdin = Stdin(sys.stdin.buffer)
        sources = tuple(replace(source, path=stdin) if source.path == STDIN else source for source in sources)
    plan_columns = plan_columns or PlanColumns()
    paths = [source.path for source in sources]
    folders = named_by_files(paths, file=FILE in request.group_by, step="step" not in request.columns)

    def indexed(source: Source) -> tuple[str, Index]:
        named = folders[source.path]

        def needed(schema: pa.Schema, rows: Sequence[Mapping[str, Any]] = ()) -> list[str]:
            every = named.beside(schema).added_to(schema)
            try:
                columns = needed_columns(source.path, every, request, plan_columns, alone=len(sources) == 1)
            except (NoRolloutColumn, NoTrainedColumn) as error:
                name = nested.ROLLOUT if isinstance(error, NoRolloutColumn) else nested.OLD
                examples = rows or [{field.name: example(field.type) for field in schema}]
                raise type(error)(error.what, nested.hint(examples, name, of_json=bool(rows)) or error.do) from error
            return [name for name in columns if name in schema.names]

        with blaming_changes(source.files, source.format):
            index = reader(source.format).index(source, needed)
        return source.path, replace(index, partition=named.beside(index.schema))

    indexes = dict(answers(indexed, sources, path=sources[0].path))
    if not all(index.partition.numbered for index in indexes.values()):  # some have a step themselves
        indexes = {path: replace(each, partition=each.partition.unnumbered()) for path, each in indexes.items()}
    if all(index.made for index in indexes.values()):
        indexes = _with_all_columns(indexes)
    return _settled(request, plan_columns, sources, indexes, search_notes=search_notes)


def _with_all_columns(indexes: dict[str, Index]) -> dict[str, Index]:
    """Files whose rows are made for reading have the columns of all of them: null where one holds nothing of it, unless
    its folders do."""
    from rlcorr_cli.layouts.canonical import schema  # frameworks' own files alone need it

    types = {field.name: field.type for index in indexes.values() for field in index.schema}

    def columns(index: Index) -> pa.Schema:
        named = index.partition.fields()
        return schema([name for name in types if name not in {field.name for field in named}], types)

    return {path: replace(index, schema=columns(index)) for path, index in indexes.items()}


def _settled(
    request: ReadRequest,
    plan_columns: PlanColumns,
    sources: tuple[Source, ...],
    indexes: Mapping[str, Index],
    *,
    search_notes: tuple[str, ...],
) -> Dump:
    """The dump of files that were indexed.  search_notes: on files that were not."""
    schemas = {path: index.all_columns for path, index in indexes.items()}
    resolved = resolve_schema(schemas, request, plan_columns)
    first, *others = (schema.names for schema in schemas.values())
    # What files' layouts say of them, each sentence once, with the first file that it is about.
    about: dict[str, list[str]] = {}
    for path, index in indexes.items():
        for note in (*index.losses, *index.notes):
            about.setdefault(note, []).append(path)
    notes = list(search_notes)
    for note, paths in about.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        notes.append(f"{os.path.basename(paths[0])}{more}: {note}")
    notes += resolved.notes
    steps = {dict(index.partition.values)[STEPS[0]] for index in indexes.values() if index.partition.numbered}
    if len(steps) > 1:
        notes.append("No column step: the number in each file's name is taken as the step.")
    if request.limit is not None:
        rows = "row is" if request.limit == 1 else f"{request.limit:,} rows are"
        notes.append(f"Only the first {rows} read.")
    return Dump(
        request=request,
        plan_columns=plan_columns,
        sources=sources,
        columns=resolved.columns,
        roles=resolved.roles,
        shards=_shards(sources, indexes, resolved.roles),
        notes=tuple(notes),
        search_notes=search_notes,
        available=tuple(name for name in first if all(name in names for names in others)),
        indexes=indexes,
        step=resolved.step,
    )


def _shards(sources: Sequence[Source], indexes: Mapping[str, Index], roles: Roles) -> tuple[Shard, ...]:
    """All parts of all files."""
    shards: list[Shard] = []
    for source in sources:
        index = indexes[source.path]
        inner = roles.without(index.partition.names)
        schema = pa.schema([index.schema.field(name) for name in inner.needed])
        for part, n_bytes in reader(source.format).parts(source, index, inner):
            shard = Shard(
                index=len(shards),
                path=source.path,
                format=source.format,
                part=part,
                n_bytes=n_bytes,
                stamp=source.stamp,
                companions=source.companions,
                partition=index.partition,
                schema=schema,
                whole_schema=index.schema if index.made else None,
            )
            shards.append(shard)
    return tuple(shards)
