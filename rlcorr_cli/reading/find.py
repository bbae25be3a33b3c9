"""From what a person typed to the files that are read, each with its format and size.

A name is a file, a directory, a glob, `-` or a table in memory (`find_noting`).  Directories and globs are expanded in
the order of the numbers in their names; each file's format is told by its name, then by its first bytes; files that a
framework's layout reads together become one source.  What is passed over is told in a note, or in an error that says
what such a file is.  Files of a store are asked for several at a time (`answers`), because a request is nearly all
waiting.
"""

import glob
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from rlcorr_cli.errors import DataError, UsageError, shortened
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.disk import HALF_WRITTEN, changed, unreadable
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.refused import Refused, without_log_probs
from rlcorr_cli.layouts.table import (
    ADDED_TO,
    NAMES as LAYOUT_NAMES,
    SUFFIXES as LAYOUT_SUFFIXES,
    TRAINED,
    layout,
    recognised,
)
from rlcorr_cli.places import STDIN, Stamp
from rlcorr_cli.reading import formats
from rlcorr_cli.reading.batch import InMemory, Unit

SEARCHED = "*" + ", *".join(formats.SUFFIXES)
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
DESCRIBED = "state.json"
"""By which a dataset of Hugging Face datasets is known."""
DESCRIPTIONS = (DESCRIBED, "dataset_info.json", "dataset_dict.json")
SHOWN = 6
"""Suffixes that a note names."""
LOOKED_AT = 16
"""How many files of a folder without a dump are looked at for what they are."""


@frozen
class Hits:
    """Files to read, sorted, each once, and those beside them that are not read."""

    paths: list[str]
    unread: tuple[str, ...] = ()


def within(directory: str) -> Hits:
    """A directory's files with a dump's suffix."""
    files = without_housekeeping(sorted(filesystem(directory).below(directory)))
    paths = _each_once(directory, [path for path in files if formats.is_searched(path)])
    others = [path for path in files if not formats.is_searched(path)]
    if not paths:
        raise no_dump(
            f"{directory} holds no dump",
            others,
            f"A directory is searched for {SEARCHED}; name other files one by one.",
        )
    return Hits(paths, tuple(others))


def matching(pattern: str) -> Hits:
    """Files by the glob, and those of the directories that it hits; files without a dump's suffix only where no match
    has one (`part-*`)."""
    named, below = filesystem(pattern).matches(pattern)
    chosen = {path for path in named | below if formats.is_searched(path)} or named
    if not chosen and below:
        hint = f"Directories are searched for {SEARCHED}; name other files one by one."
        raise no_dump(f"{pattern} matches no dump", sorted(below), hint)
    if not chosen:
        raise DataError(
            f"{pattern} matches no file.", "** also searches below; quote a glob to keep it from the shell."
        )
    return Hits(_each_once(pattern, chosen), tuple(sorted((named | below) - chosen)))


def no_dump(message: str, others: Sequence[str], hint: str) -> DataError:
    """The error of a place without a dump, with what one of its other files is, if any is known."""
    if not others:
        return DataError(f"{message}.", hint)
    message = f"{message}, but {counted_by_suffix(others)}"
    # Descriptions lie beside what they describe.
    first = sorted(others, key=lambda path: path.lower().endswith(".json"))[:LOOKED_AT]
    path, kind = next(
        ((path, kind) for path, kind in zip(first, map(_refused_kind, first), strict=True) if kind), ("", None)
    )
    if kind is None:
        return DataError(f"{message}.", hint)
    return DataError(f"{message}; {os.path.basename(path)} is {kind.what}.", kind.hint)


def _refused_kind(path: str) -> Refused | None:
    """What a file without log-probs is; None of one that cannot be read, too: nobody asked for it by its name."""
    files = filesystem(path)
    if not files.remote and not files.is_file(path):  # a FIFO would be waited for
        return None
    try:
        return without_log_probs(FileStart(path))
    except (OSError, DataError):
        return None


def without_housekeeping(files: Sequence[str]) -> list[str]:
    """Without what Hugging Face datasets keeps beside a dataset's files: its descriptions, and results of `map`."""
    datasets = {os.path.dirname(path) for path in files if os.path.basename(path) == DESCRIBED}
    return [
        path for path in files if os.path.dirname(path) not in datasets or not is_housekeeping(os.path.basename(path))
    ]


def is_housekeeping(name: str) -> bool:
    """Whether a file that lies beside a DESCRIBED is one that Hugging Face datasets keeps there."""
    return name in DESCRIPTIONS or name.startswith("cache-")


def _each_once(place: str, paths: Iterable[str]) -> list[str]:
    """In the order of their numbers, without second names of files that are there, too."""
    return sorted(filesystem(place).each_once(paths), key=in_number_order)


def in_number_order(path: str) -> tuple[tuple[int, str], ...]:
    """A key by which step_2 comes before step_10."""
    parts = enumerate(re.split(r"(\d+)", path))
    return tuple((int(part), "") if i % 2 else (-1, part) for i, part in parts if part)


def counted_by_suffix(paths: Iterable[str]) -> str:
    """Files in a few words: '3 files (2 .json, 1 .txt)'."""
    counts = Counter(map(_suffix, paths))
    kinds = [f"{n:,} {suffix}" for suffix, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    more = ", …" if len(kinds) > SHOWN else ""
    n = counts.total()
    return f"{n:,} file{'' if n == 1 else 's'} ({', '.join(kinds[:SHOWN])}{more})"


def _suffix(path: str) -> str:
    suffixes = Path(path).suffixes
    if not suffixes:
        return "without a suffix"
    return "".join(suffixes[-2:] if suffixes[-1].lower() in COMPRESSED else suffixes[-1:])


CONTAINER_SUFFIXES = tuple(suffix for row in formats.CONTAINERS for suffix in row.suffixes)


@frozen(kw_only=True)
class Source(Unit):
    """One input; path is '-' and n_bytes 0 for standard input.

    sign: by which a framework's file was recognised.  modified: when the newest of its files was last changed, None
    where nobody knows.
    """

    sign: str = ""
    modified: str | None = None


def check_unchanged(files: Iterable[tuple[str, Stamp | None]], format: str = "") -> None:
    """A DataError if a file is not what was found: rows would be lost, or be others, and nobody would know.

    format: of the files; where a layout says that they are only added to, a longer one still holds what was found.
    """
    for path, stamp in files:
        if stamp is not None and (now := filesystem(path).stamp(path)) != stamp:
            if format in ADDED_TO and _is_longer(now, stamp):
                continue
            raise changed(path)


def _is_longer(now: Stamp, before: Stamp) -> bool:
    """Whether a file of the disk is the same one, with more at its end.  An object of a store is never added to."""
    (*place, size, _), (*place_before, size_before, _) = now, before
    return isinstance(size, int) and isinstance(size_before, int) and place == place_before and size >= size_before


@contextmanager
def blaming_changes(files: Iterable[tuple[str, Stamp | None]], format: str = "") -> Generator[None]:
    """Whatever goes wrong is a DataError that names the file that was changed meanwhile, if one was: what is cut short,
    or half written again, seems to be damaged in any way."""
    try:
        yield
    except Exception:
        check_unchanged(files, format)
        raise


class Found(NamedTuple):
    """What some names stand for, and notes on files that are not read."""

    sources: tuple[Source, ...]
    notes: tuple[str, ...]


def find(paths: Sequence[str], format: str = "auto") -> list[Source]:
    """As `find_noting`, without the notes."""
    return list(find_noting(paths, format).sources)


def find_noting(paths: Sequence[str], format: str = "auto") -> Found:
    """Files in the order named, and notes on files that are not read; directories and globs expand in sorted order.

    format: 'auto' goes by suffix, then by the first bytes; a container's name holds for every file.
    A file reached twice through different arguments would be counted twice, so that is a UsageError.
    """
    if format not in ("auto", *formats.NAMES):
        raise UsageError(f"Unknown format '{format}'.", f"Try one of: auto, {', '.join(formats.NAMES)}.")
    if not paths:
        raise UsageError(
            "No dump is named.", f"Name a file, a directory, a glob, or - for {formats.STREAMED.title} on stdin."
        )
    read: dict[str, Source] = {}
    notes: list[str] = []
    for typed in paths:
        hits = _expanded(typed)
        passed_over: list[str] = []

        def look(path: str, typed: str = typed) -> tuple[str, str, Source | None]:
            is_file = path != STDIN and not isinstance(path, InMemory)
            same = filesystem(path).identity(path) if is_file else path  # for all names of one file
            if same in read:
                raise UsageError(f"{path} is named twice.", "Name each file once; a directory includes its files.")
            return path, same, _source(path, format, chosen=path != typed)

        for path, same, source in answers(look, hits.paths, path=hits.paths[0]):
            if source is None:
                passed_over.append(path)
            else:
                read[same] = source
        if len(passed_over) == len(hits.paths):
            hint = "`rlcorr inspect FILE` says what one is."
            if format != "auto":
                raise DataError(
                    f"{typed} holds no dump of format {format}, but {counted_by_suffix(passed_over)}.", hint
                )
            raise no_dump(f"{typed} holds no dump", passed_over, hint)
        if unread := [*hits.unread, *passed_over]:
            notes.append(f"{counted_by_suffix(unread)} in {typed} {'is' if len(unread) == 1 else 'are'} not read.")
    united = units(list(read.values()))
    return Found(tuple(united), (*_of_layouts(read.values(), united), *notes))


def complete_sources(
    paths: Iterable[str], format: str, named: Collection[str], beside: Collection[str] = ()
) -> tuple[list[Source], dict[str, DataError]]:
    """The dumps among files of a search, those that a layout reads together as one, and what is wrong with others;
    files that are no dumps are in neither.  named: paths that a user wrote, of which none is passed over.  beside:
    files that were looked at before, with which a framework's may be read together, or beside which it is left out."""
    read: list[Source] = []
    wrong: dict[str, DataError] = {}
    for path in paths:
        try:
            source = _source(path, format, chosen=path not in named)
        except DataError as error:
            wrong[path] = error
            continue
        if source is not None:
            read.append(source)
    if any(source.format in LAYOUT_NAMES for source in read):
        for path in beside:
            with suppress(DataError):  # it was taken away, or is written again
                source = _source(path, format, chosen=True)
                if source is not None:
                    read.append(source)
    return units(sorted(read, key=lambda source: in_number_order(source.path))), wrong


def units(sources: Sequence[Source]) -> list[Source]:
    """The sources, those that a layout reads together as one, in the place of the first, without those that another
    layout covers.

    Frameworks' files of two kinds are refused together: they may hold the same sequences.
    """
    layouts = {source.format for source in sources if source.format in LAYOUT_NAMES}
    covered = {name for each in layouts for name in layout(each).covers}
    sources = [source for source in sources if source.format not in covered]
    names = list(dict.fromkeys(source.format for source in sources if source.format in LAYOUT_NAMES))
    if len(names) > 1 or (names and any(source.format not in LAYOUT_NAMES for source in sources)):
        raise _several_kinds(sources)
    if not names:
        return list(sources)
    kind = layout(names[0])
    beside = (_source(path, kind.name, chosen=True) for path in kind.beside([source.path for source in sources]))
    by_path = {source.path: source for source in (*sources, *filter(None, beside))}
    return [_united([by_path[path] for path in unit]) for unit in kind.files_of_a_step(list(by_path))]


def _several_kinds(sources: Sequence[Source]) -> DataError:
    """The error that names each kind, and which to ask for: those that a trained policy is written to, if any is."""
    first = {source.format: source.path for source in reversed(sources)}
    kinds = list(dict.fromkeys(source.format for source in sources))
    compared = [name for name in kinds if name in TRAINED] or kinds
    alone = [name for name in kinds if name in LAYOUT_NAMES and name not in compared]
    verb = "holds" if len(alone) == 1 else "hold"
    rest = f"; {' and '.join(alone)} {verb} the rollout policy alone, as a rule" if alone else ""
    return DataError(
        f"These are dumps of several kinds: {', '.join(f'{name} ({first[name]})' for name in kinds)}.",
        f"They may hold the same sequences; read one kind with {' or '.join(f'⟦format {n}⟧' for n in compared)}{rest}.",
    )


def _united(files: Sequence[Source]) -> Source:
    first, *others = files
    companions = tuple((source.path, source.stamp) for source in others)
    n_bytes = sum(source.n_bytes for source in files)
    modified = max((source.modified for source in files if source.modified is not None), default=None)
    return replace(first, n_bytes=n_bytes, companions=companions, modified=modified)


def _of_layouts(sources: Collection[Source], united: Sequence[Source]) -> Iterator[str]:
    """What was recognised, by what sign, in a sentence for each kind of file; and what files a layout leaves out beside
    others, and why."""
    alike: dict[tuple[str, str], list[str]] = {}
    read = {unit.format for unit in united}
    for source in sources:
        if source.format in LAYOUT_NAMES and source.format in read:
            alike.setdefault((source.format, source.sign or "--format"), []).append(source.path)
    for (name, sign), paths in alike.items():
        others = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        yield f"{os.path.basename(paths[0])}{others}: read as {name}, {layout(name).title} ({sign})."
    kept = {path for unit in united for path, _ in unit.files}
    left_out: dict[str, list[str]] = {}
    for source in sources:
        if source.path not in kept:
            left_out.setdefault(source.format, []).append(os.path.basename(source.path))
    for name, (first, *more) in left_out.items():
        subject = f"{first} and {len(more):,} more are" if more else f"{first} is"
        yield f"{subject} left out: {layout(name).left_out}"


def files(paths: Sequence[str]) -> Iterator[str]:
    """The files that a dump's names stand for, unopened."""
    for typed in paths:
        yield from _expanded(typed).paths


def _expanded(typed: str) -> Hits:
    if isinstance(typed, InMemory):
        return Hits([typed])
    if "\0" in typed:
        raise UsageError(f"{shortened(typed)} is not a path: it holds a NUL.", "Name a file, a directory or a glob.")
    if not typed:
        raise UsageError("The name of the dump is empty: is a variable unset?", "Name a file, a directory or a glob.")
    if typed == STDIN:
        return Hits([typed])
    path = located(typed)
    files = filesystem(path)
    if files.is_directory(path):
        return within(path)
    if glob.has_magic(path) and not files.is_there(path):
        return matching(path)
    return Hits([path])


def _source(path: str, format: str, *, chosen: bool) -> Source | None:
    """One file; None of one that was chosen by a search and is no dump, or not of the format that is asked for."""
    if isinstance(path, InMemory):
        return Source(path=path, format=formats.MEMORY.name, n_bytes=path.table.nbytes)
    if path == STDIN:
        if format not in ("auto", formats.STREAMED.name):
            message = f"Standard input is read as {formats.STREAMED.title}, not as {formats.container(format).title}."
            raise UsageError(message, "Save it to a file first.")
        return Source(path=STDIN, format=formats.STREAMED.name, n_bytes=0)
    status = filesystem(path).status(path)
    files = ((path, status.stamp),)
    with blaming_changes(files):
        known = _format_and_sign(path, format, chosen=chosen)
    if known is not None:
        return Source(
            path=path,
            format=known[0],
            n_bytes=status.n_bytes,
            stamp=status.stamp,
            sign=known[1],
            modified=status.modified,
        )
    if not filesystem(path).remote:  # where a file is half written for a moment, and looks like none
        check_unchanged(files)
    return None


def _format_and_sign(path: str, format: str, *, chosen: bool) -> tuple[str, str] | None:
    """What a file of a disk or store is, by its name and its first bytes, and the sign of a framework's."""
    start = FileStart(path)
    try:
        kind = recognised(start) if format not in {row.name for row in formats.CONTAINERS} else None
        refused = without_log_probs(start) if format == "auto" and kind is None else None
        if not start.first_bytes and kind is None and refused is None:
            raise DataError(f"{path} is empty (0 bytes).", "Delete it, or write it again: it may be half-written.")
    except OSError as error:
        raise filesystem(path).explained(path, error) or unreadable(path, error) from error
    name, sign = kind or (None, "")
    if format != "auto":
        return None if chosen and format in LAYOUT_NAMES and name != format else (format, sign)
    if name is None and not path.lower().endswith(CONTAINER_SUFFIXES):
        _check_whole(path, start.first_bytes)
    if refused is not None and chosen:
        return None
    if refused is not None:
        raise DataError(f"{path} is {refused.what}.", refused.hint)
    name = name or formats.by_suffix(path)
    if name is None and not (chosen and path.lower().endswith(LAYOUT_SUFFIXES)):
        name = formats.by_magic(start.first_bytes)
    if name is not None:
        return name, sign
    if chosen and not path.lower().endswith(CONTAINER_SUFFIXES):
        return None
    titles = " nor ".join(row.title for row in formats.CONTAINERS)
    raise DataError(
        f"{path} is neither {titles}, nor a framework's own dump.",
        "`rlcorr help dumps` lists what is read, and has the lines that write a dump.",
    )


def _check_whole(path: str, start: bytes) -> None:
    """A DataError of a file of torch that has no end yet: nobody could tell whose it is."""
    from rlcorr_cli.layouts.torch_files import is_torch, pickle_of

    try:
        if is_torch(memoryview(start)):
            pickle_of(path)
    except DataError as error:
        if error.do == HALF_WRITTEN:
            raise DataError(f"{path}: {error.what}", HALF_WRITTEN) from error


A = TypeVar("A")
R = TypeVar("R")
AT_ONCE = 16
"""Files that are asked for at a time: a request takes some 20 to 100 ms, nearly all of it waiting."""


def answers(ask: Callable[[A], R], items: Sequence[A], *, path: str) -> Iterator[R]:
    """What `ask` gives of each file, in order; where they lie in a store, as does the one of this path, up to AT_ONCE
    of them are asked while the first is waited for.

    What an earlier item raises comes before what a later one does, as without threads.
    """
    if len(items) == 1 or not filesystem(path).remote:
        yield from map(ask, items)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rlcorr-open")
    try:
        for item in items:
            waiting.append(pool.submit(ask, item))
            if len(waiting) >= AT_ONCE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
