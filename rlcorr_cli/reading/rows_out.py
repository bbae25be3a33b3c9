"""Rows that are written: what `filter` adds to each, and the forms that a file of rows may have.

A portion of rows comes as it was read, with what was decided about it (`corrected`).  Every column comes through as it
was, in order; only the mask column changes (it is added where there was none).  The columns of ADDED follow, and COEF
among them where there is an objective.  Rows set aside are untouched, with the reason beside them (`quarantined`).  A
Writer turns either into the bytes of a file; a form is one Writer and its row in `writer`.
"""

import gzip
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.arrow_values import as_arrow, as_lists, as_texts
from rlcorr_cli.reading.batch import Decision
from rlcorr_cli.reading.batches import BadRows, CheckedRows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.schema import conformed, different
from rlcorr_cli.reading.values import DRAW, Losses
from rlcorr_cli.reading.whole_rows import LINES, OriginalRows

MASK = "response_mask"
WEIGHTS, ROW_WEIGHT, BEFORE, KEPT, REJECTED_BY = ADDED = (
    "rollout_is_weights",
    "rollout_is_seq_weight",
    "response_mask_before",
    "rlcorr_kept",
    "rlcorr_rejected_by",
)

COPIED_TOKENS, MOST_COPIES = 1 << 20, 1 << 14
"""Tokens and rows of one piece of drawn rows."""
COEF = "rlcorr_coef"
REFUSED = (*ADDED, COEF, DRAW)
"""Columns that are added, so must not be there."""


def check_added(available: Sequence[str]) -> None:
    """Refuse a dump that already has one of the columns that would be added."""
    taken = [name for name in REFUSED if name in available]
    if taken:
        raise DataError(
            f"The dump already has {' and '.join(taken)}, which filter adds.",
            "Filter the dump it was made from, or rename these columns first.",
        )


def corrected(rows: CheckedRows, decision: Decision, roles: Roles, *, weights: bool = True) -> OriginalRows:
    """All of the rows.  weights: whether to write them, which rows that are drawn by their weights go without."""
    assert rows.original is not None
    keep = _over_all(decision.keep, rows, np.bool_)
    added: dict[str, pa.Array] = {}
    if weights and decision.weights is not None:
        added[WEIGHTS] = as_lists(pa.list_(pa.float32()), rows.offsets, _over_all(decision.weights, rows, np.float32))
    if weights:
        added[ROW_WEIGHT] = as_arrow(decision.row_weights)
    if decision.coefs is not None:
        with np.errstate(over="ignore"):  # beyond float32 it is infinite, and looks so
            coefs = _over_all(decision.coefs, rows, np.float32)
        added[COEF] = as_lists(pa.list_(pa.float32()), rows.offsets, coefs)
    kept = decision.kept_fraction
    verdicts = {KEPT: as_arrow(kept, ~np.isnan(kept)), REJECTED_BY: _rejected_by(decision)}
    if roles.mask is not None:
        masked = rows.original.with_columns(added).masked(roles.mask, keep, rows.offsets, before=BEFORE)
        return masked.with_columns(verdicts)
    after, before = (as_lists(pa.list_(pa.int8()), rows.offsets, flags) for flags in (keep, np.ones_like(keep)))
    return rows.original.with_columns({MASK: after, **added, BEFORE: before, **verdicts})


def drawn(
    rows: OriginalRows, times: NDArray[np.int64], longest: int, *, number: int = 0, n_rounds: int = 1
) -> Iterator[OriginalRows]:
    """The copies of one round, numbered in DRAW, of rows that were drawn so often: an equal share of each row's copies.

    Copies of a row stand apart: the first one of each row, then the second one of each, and so on.  In pieces, because
    rows can be drawn any number of times.  longest: tokens of the longest row.
    """
    done, end = (-(times * upto // -n_rounds) for upto in (number, number + 1))
    n_copies = end - done
    at_once = max(1, COPIED_TOKENS // max(longest, COPIED_TOKENS // MOST_COPIES))
    level = 0
    while len(left := np.flatnonzero(n_copies > level)):
        n_levels = max(1, at_once // len(left))
        n = np.minimum(n_copies[left] - level, n_levels)
        levels = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        order = np.argsort(levels, kind="stable")
        sources, levels = np.repeat(left, n)[order], level + levels[order]
        for start in range(0, len(sources), at_once):
            at = sources[start : start + at_once]
            numbers = (done[at] + levels[start : start + at_once]).astype(np.int32)
            yield rows.take(at).with_columns({DRAW: as_arrow(numbers)})
        level += n_levels


def _over_all(values: NDArray[Any], rows: CheckedRows, dtype: Any) -> NDArray[Any]:
    """Values of valid tokens at their places among all tokens, 0 elsewhere."""
    if rows.valid is None:
        return values.astype(dtype)
    flat = np.zeros(len(rows.valid), dtype)
    flat[rows.valid] = values
    return flat


def _rejected_by(decision: Decision) -> pa.Array:
    """Names of the rejections that took each row, or tokens of it."""
    names: list[list[str]] = [[] for _ in decision.n_kept]
    for name, rows in decision.rejected.items():
        for i in np.flatnonzero(rows).tolist():
            names[i].append(name)
    ends = np.cumsum([0, *map(len, names)], dtype=np.int32)
    return pa.ListArray.from_arrays(as_arrow(ends), as_texts(list(chain.from_iterable(names))))


GROUP_BYTES = 16 << 20
"""A row group holds about this much before compression: a training reader loads one at a time."""
HELD = 8
"""Tables held before they are copied into one: rows picked out of a large table may keep room for all of it."""
MARK = "rlcorr"
"""The key of a file's metadata by which it tells who wrote it; of a Parquet file, how, too."""


class _Table(ABC):
    """Rows that all have the same columns, in groups of about GROUP_BYTES: what writes them is a subclass's.

    columns, first: as of `writer`.
    """

    def __init__(self, file: BinaryIO, columns: pa.Schema | None, first: pa.Schema | None) -> None:
        self._file = file
        self._columns = columns
        self._fixed = first
        self._writer: Any = None
        self._held: list[pa.Table] = []

    @abstractmethod
    def _begun(self, schema: pa.Schema) -> Any:
        """What writes tables of these columns into the file."""

    def write(self, rows: OriginalRows) -> None:
        """Some more rows."""
        table = rows.as_table(self._fixed)
        if self._columns is not None:
            table = conformed(table, self._columns)
        if self._fixed is not None and table.schema != self._fixed:
            raise different(table.schema, self._fixed)
        if self._writer is None:
            self._writer = self._begun(table.schema)
            self._fixed = table.schema
        self._held.append(table)
        if len(self._held) == HELD:
            self._held = [pa.concat_tables(self._held).combine_chunks()]
        if sum(held.nbytes for held in self._held) >= GROUP_BYTES:
            self._flush()

    def close(self, metadata: str) -> None:
        """The last bytes.  metadata: a JSON document about the whole output, for formats that have a place for it."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Write no more."""
        self._writer = None

    def _flush(self) -> None:
        if self._held:
            table = pa.concat_tables(self._held)
            self._held = []
            n_groups = max(1, round(table.nbytes / GROUP_BYTES))
            self._writer.write_table(
                table, max(1, -(-table.num_rows // n_groups))
            )  # rows of each group, or record batch


class _Parquet(_Table):
    """zstd, the source's schema metadata and one more key, `rlcorr`.

    Lists of floats are kept as streams of their bytes, where log-probs take a seventh less room and are written and
    read faster than by a dictionary, which soon overflows; flags of a byte plainly; and no list has statistics, by
    which nobody looks for rows.
    """

    def _begun(self, schema: pa.Schema) -> pq.ParquetWriter:
        try:
            encodings = _encodings(schema)
        except pa.ArrowNotImplementedError as error:  # an object without keys, for one
            raise DataError(f"Parquet cannot hold these rows: {error}.", LINES) from error
        return pq.ParquetWriter(self._file, schema, compression="zstd", **encodings)

    def close(self, metadata: str) -> None:
        if metadata:
            self._writer.add_key_value_metadata({MARK: metadata})
        super().close(metadata)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # else it would close itself, into a file that is gone


@lru_cache(1)  # parts of one output have the same, and a footer whose schema was asked for is never freed
def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """How a writer is to write the columns of a Parquet file of this schema, by their paths there."""
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, schema).close()
    footer, floats = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema, ("FLOAT", "DOUBLE")
    columns = [footer.column(i) for i in range(len(footer))]
    single = {each.path for each in columns if not each.max_repetition_level}
    others = {each.path for each in columns if each.physical_type not in floats and each.converted_type != "INT_8"}
    split = {each.path for each in columns if each.physical_type in floats} - single - others
    return {"use_dictionary": [*single | others], "use_byte_stream_split": [*split], "write_statistics": [*single]}


class _Arrow(_Table):
    """A stream of Arrow IPC, as Hugging Face datasets are kept, marked by `rlcorr` in its schema's metadata; it has no
    place for what is known at its end."""

    def _begun(self, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        marked = schema.with_metadata({**(schema.metadata or {}), MARK: ""})
        return pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), marked)


class _Lines:
    """One JSON object per line; a number that JSON has not is null where losses count it."""

    def __init__(self, file: BinaryIO, suffix: str, losses: Losses | None) -> None:
        self._losses = losses
        if suffix == ".jsonl.gz":
            # Without a name of its own it would name the temporary file.
            self._file: Any = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        elif suffix == ".jsonl.zst":
            self._file = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
        else:
            self._file = file
        self._own = self._file is not file

    def write(self, rows: OriginalRows) -> None:
        for row in rows.as_objects(self._losses):
            self._file.write(_json_line(row, self._losses))

    def close(self, metadata: str) -> None:
        if self._own:
            self._file.close()

    def abandon(self) -> None:
        if self._own:
            with suppress(OSError, ValueError):
                self._file.close()


Writer = _Table | _Lines
"""One file being written."""


def writer(
    suffix: str, file: BinaryIO, losses: Losses | None, columns: pa.Schema | None, *, first: pa.Schema | None = None
) -> Writer:
    """The Writer of a suffix, which closes nothing but what it opens itself.  losses: where it counts
    them; None where a number is to stay what it was.  columns: as of `Dump.table_columns`.  first: columns that rows of
    another file fix for these."""
    table = {".parquet": _Parquet, ".arrow": _Arrow}.get(suffix)
    return _Lines(file, suffix, losses) if table is None else table(file, columns, first)


def columns_of(rows: OriginalRows, columns: pa.Schema | None) -> pa.Schema:
    """The columns that these rows fix for all others.  columns: as of `Dump.table_columns`."""
    table = rows.as_table(None)
    return (table if columns is None else conformed(table, columns)).schema


def _json_line(row: dict[str, Any], losses: Losses | None) -> bytes:
    text = json.dumps(row, ensure_ascii=False)
    if losses is not None and ("NaN" in text or "Infinity" in text):  # as numbers, or in some text
        text = json.dumps(json.loads(text, parse_constant=losses.no_number), ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape and UTF-8 cannot hold
        return f"{json.dumps(json.loads(text))}\n".encode()


REASON = "rlcorr_problem"


def quarantined(aside: BadRows) -> OriginalRows:
    """The rows with a column REASON, which may have been set aside before and then have one."""
    assert aside.original is not None
    return aside.original.with_columns({REASON: as_texts(aside.reasons)})
