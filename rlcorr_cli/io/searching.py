"""From a directory or a glob to the files of a dump, and to a sentence on those that are not read."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem
from rlcorr_cli.io.formats import SUFFIXES, is_searched
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.refused import Refused, without_log_probs

SEARCHED = "*" + ", *".join(SUFFIXES)
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
DESCRIPTIONS = ("state.json", "dataset_info.json", "dataset_dict.json")
SHOWN = 6
"""Suffixes that a note names."""
LOOKED_AT = 16
"""How many files of a folder without a dump are looked at for what they are."""


@dataclass(frozen=True)
class Hits:
    """Files to read, sorted, each once, and those beside them that are not read."""

    paths: list[str]
    unread: tuple[str, ...] = ()


def within(directory: str) -> Hits:
    """A directory's files with a dump's suffix."""
    files = _without_housekeeping(sorted(filesystem(directory).below(directory)))
    paths = _each_once(directory, [path for path in files if is_searched(path)])
    others = [path for path in files if not is_searched(path)]
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
    chosen = {path for path in named | below if is_searched(path)} or named
    if not chosen and below:
        hint = f"Directories are searched for {SEARCHED}; name other files one by one."
        raise no_dump(f"{pattern} matches no dump", sorted(below), hint)
    if not chosen:
        raise DataError(
            f"{pattern} matches no file.", "** also searches below; quote a glob to keep it from the shell."
        )
    return Hits(_each_once(pattern, chosen), tuple(sorted((named | below) - chosen)))


def no_dump(what: str, others: Sequence[str], hint: str) -> DataError:
    """The error of a place without a dump, with what one of its other files is, if any is known."""
    if not others:
        return DataError(f"{what}.", hint)
    what = f"{what}, but {listed(others)}"
    # Descriptions lie beside what they describe.
    first = sorted(others, key=lambda path: path.lower().endswith(".json"))[:LOOKED_AT]
    path, kind = next(((path, kind) for path, kind in zip(first, map(_known, first), strict=True) if kind), ("", None))
    if kind is None:
        return DataError(f"{what}.", hint)
    return DataError(f"{what}; {os.path.basename(path)} is {kind.what}.", kind.hint)


def _known(path: str) -> Refused | None:
    """What a file without log-probs is; None of one that cannot be read, too: nobody asked for it by its name."""
    files = filesystem(path)
    if not files.remote and not files.is_file(path):  # a FIFO would be waited for
        return None
    try:
        return without_log_probs(FileStart(path))
    except (OSError, DataError):
        return None


def _without_housekeeping(files: Sequence[str]) -> list[str]:
    """Without what Hugging Face datasets keeps beside a dataset's files: its descriptions, and results of `map`."""
    datasets = {os.path.dirname(path) for path in files if os.path.basename(path) == "state.json"}
    return [
        path
        for path in files
        if os.path.dirname(path) not in datasets
        or not (os.path.basename(path) in DESCRIPTIONS or os.path.basename(path).startswith("cache-"))
    ]


def _each_once(place: str, paths: Iterable[str]) -> list[str]:
    """In the order of their numbers, without second names of files that are there, too."""
    return sorted(filesystem(place).each_once(paths), key=in_number_order)


def in_number_order(path: str) -> tuple[tuple[int, str], ...]:
    """A key by which step_2 comes before step_10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path) if part)


def not_read(place: str, others: Iterable[str]) -> tuple[str, ...]:
    """A note on files of a place that are not read; none without such files."""
    others = list(others)
    verb = "is" if len(others) == 1 else "are"
    return (f"{listed(others)} in {place} {verb} not read.",) if others else ()


def listed(paths: Iterable[str]) -> str:
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
