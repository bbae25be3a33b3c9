"""Files of frameworks as a container: the layout reads them, and its samples become canonical rows.

A unit is one or more files that are read together, and one shard: an engine's threads take units.  The last opened
units are kept, because a pickle is whole in memory once it is open, and index, peek and read follow each other.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from threading import Lock
from typing import Any

from rlcorr_cli.errors import DataError, NoTrainedPolicy
from rlcorr_cli.files.disk import unreadable
from rlcorr_cli.layouts.canonical import portions, record_batch, schema
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.table import layout
from rlcorr_cli.places import shown, utf8
from rlcorr_cli.reading.batch import Shard, Stamp, Unit
from rlcorr_cli.reading.batches import Rows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import Index, NeededColumns, Piece, Reader
from rlcorr_cli.reading.find import Source

PEEKED_ROWS = 64
PORTION_TOKENS = 1 << 18
KEPT_OPEN = 2
"""Units that are kept, whatever their size."""
KEPT_BYTES = 1 << 27
"""Of the files of kept units, where there are more; their values take four times that at most."""

Stamps = tuple[tuple[str, Stamp | None], ...]
"""The files of a unit, and which state of each was found."""


def index(source: Source, needed: NeededColumns) -> Index:
    """The canonical columns that the unit holds."""
    with _named(source):
        opened = _opened(source)
    columns = schema(opened.columns, opened.types)
    try:
        needed(columns)
    except DataError as error:
        if not opened.missing_policy_hint or not {"old_log_probs", "current_log_probs"}.isdisjoint(columns.names):
            raise
        if next(opened.samples(), None) is None:
            raise NoTrainedPolicy(f"{shown(source.path)}: no row can be used.", " ".join(opened.notes)) from error
        message = f"{shown(source.path)} holds no log-probs of a trained policy."
        raise NoTrainedPolicy(message, opened.missing_policy_hint) from error
    return Index(schema=columns, in_one=True, made=True, losses=opened.losses, notes=opened.notes)


def parts(source: Source, index: Index, roles: Roles) -> Sequence[Piece]:
    """The unit in one."""
    return [(None, source.n_bytes)]


def read(shard: Shard, roles: Roles, batch_tokens: int = 0, *, whole: bool = False) -> Iterator[Rows]:
    """The unit's rows; whole: with every canonical column."""
    with _named(shard):
        opened = _opened(shard)
        first = 0
        for samples in portions(opened.samples(), batch_tokens or PORTION_TOKENS):
            # Runs of samples of one file: an error about a row names its file.
            for _, run in groupby(_numbered(samples, shard.path, first), key=itemgetter("source_file")):
                yield _canonical_rows(shard, list(run), whole)
            first += len(samples)


def peek(shard: Shard, roles: Roles) -> Rows | None:
    """The first rows."""
    with _named(shard):
        opened = _opened(shard)
        return _canonical_rows(shard, _numbered(islice(opened.samples(), PEEKED_ROWS), shard.path, 0), False)


def _numbered(samples: Iterable[Sample], path: str, first: int) -> list[dict[str, Any]]:
    """Samples with the file and row that each comes from, where the layout does not say so itself."""
    return [{"source_file": path, "source_row": first + i, **sample} for i, sample in enumerate(samples)]


def _canonical_rows(shard: Shard, samples: list[dict[str, Any]], whole: bool) -> Rows:
    named = [{**sample, "source_file": utf8(sample["source_file"])} for sample in samples]
    batch = record_batch(named, shard.whole_schema if whole else shard.schema)
    path = samples[0]["source_file"] if samples else shard.path
    return Rows.of(batch, path, [sample["source_row"] for sample in samples], shard.schema.names, whole=whole)


class OpenUnits:
    """The last opened units with the bytes of their files, by their files and which state of each was found: a file
    that was written again is read again."""

    def __init__(self) -> None:
        self._units: OrderedDict[tuple[str, Stamps], tuple[OpenedDump, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[str, Stamps]) -> OpenedDump | None:
        """The unit, if it is kept."""
        with self._lock:
            if key not in self._units:
                return None
            self._units.move_to_end(key)
            return self._units[key][0]

    def keep(self, key: tuple[str, Stamps], opened: OpenedDump, n_bytes: int) -> None:
        """Keep it, and let go of those that were asked for longest ago, where all are too large."""
        with self._lock:
            self._units.pop(key, None)
            self._units[key] = opened, n_bytes
            while len(self._units) > KEPT_OPEN and sum(n for _, n in self._units.values()) > KEPT_BYTES:
                self._units.popitem(last=False)


_OPEN = OpenUnits()


def _opened(unit: Unit) -> OpenedDump:
    """A unit, opened; threads that ask for the same at once may open it twice."""
    opened = _OPEN.get((unit.format, unit.files))
    if opened is None:
        opened = layout(unit.format).open([path for path, _ in unit.files])
        _OPEN.keep((unit.format, unit.files), opened, unit.n_bytes)
    return opened


@contextmanager
def _named(unit: Unit) -> Generator[None]:
    """Let an error about a file's contents say which file it is: the first of its unit, where it does not say so."""
    path = shown(unit.path)
    try:
        yield
    except OSError as error:  # while a file of the disk is read line by line
        raise unreadable(path, error) from error
    except DataError as error:
        if error.what.startswith(tuple(shown(path) for path, _ in unit.files)):
            raise
        raise type(error)(f"{path}: {error.what}", error.do) from error


READER = Reader(index, parts, read, peek)
