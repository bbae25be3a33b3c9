"""Documents that stand beside a dump: plan files, rules files, frameworks' configs, saved reports.

All are read here, from a disk or a store, because the same can be wrong with each: it is a pipe that never ends, it is
larger than it can usefully be, it says a thing twice.  A reason is raised as a UsageError without the file's name,
which callers add.

Limits are of what a document comes to, aliases and merges of YAML expanded, so that nothing that is later done with one
(validating it, showing a part of it) takes long.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from typing import Any

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.places import Uri
from rlcorr_cli.plans.limits import (
    LARGEST_INTEGER,
    MOST_BYTES,
    MOST_DEPTH,
    MOST_VALUES,
    Document,
    not_valid,
    too_deep,
    too_large,
    too_many,
    twice,
)

MOST_DOTS = 100
"""Of a line of TOML: the time that tomllib takes grows with the square of a dotted key's length."""

SUFFIXES = (".toml", ".yaml", ".yml", ".json")


def read_bytes(path: str, most_bytes: int = MOST_BYTES) -> bytes:
    """What a regular file holds.  path: of the disk, or a URI as it is typed."""
    if "\0" in path:
        raise UsageError("its name holds a NUL.", "Name a file that can be read.")
    place = located(path)
    try:
        content = _read_object(place, most_bytes + 1) if isinstance(place, Uri) else _read(place, most_bytes + 1)
    except OSError as error:
        raise UsageError(f"{error.strerror or error}.", "Name a file that can be read.") from None
    except DataError as error:  # of a store, which begins with the file's name
        raise UsageError(error.message.removeprefix(f"{place}: "), error.hint) from None
    if len(content) > most_bytes:
        raise UsageError(f"it is larger than {most_bytes:,} bytes.", "Name a smaller one.")
    return content


def read_text(path: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a regular file."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start:,} is not UTF-8.", "Save it as UTF-8.") from None


def _read_object(uri: Uri, n_bytes: int) -> bytes:
    """The first bytes of an object of a store."""
    files = filesystem(uri)
    with files.open(uri) as file:
        return file.read(min(n_bytes, files.status(uri).n_bytes))


def _read(path: str, n_bytes: int) -> bytes:
    """The first bytes of a regular file."""
    # Opening a pipe would wait for someone to write to it, were it not for O_NONBLOCK.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("it is not a regular file.", "Write it to a file, and name that.")
        with open(descriptor, "rb", closefd=False) as file:
            # What is asked for is allocated, be there that much or not; files of /proc say that they have no bytes.
            return file.read(min(n_bytes, max(status.st_size, MOST_BYTES) + 1))
    finally:
        os.close(descriptor)


def parse(text: str, suffix: str) -> Document:
    """What a text in TOML, YAML or JSON holds, as plain values within the limits."""
    try:
        if suffix == ".toml":
            document = Document(_toml(text))
        elif suffix == ".json":
            document = Document(parse_json(text))
        else:
            # Here, not above: presets and explain read no YAML, and it takes time to load.
            from rlcorr_cli.plans.yaml_files import parse_yaml

            document = parse_yaml(text)
    except RecursionError:
        raise too_deep() from None
    _check_size(document.data)
    return document


def parse_json(text: str, **more: Any) -> Any:
    """What a text in JSON holds.  more: arguments of `json.loads`."""
    try:
        return json.loads(text, object_pairs_hook=_once_each, **more)
    except UsageError:
        raise
    except ValueError as error:  # JSONDecodeError, or an integer of too many digits
        raise not_valid("JSON", error) from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each of whose keys comes once."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        raise twice(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return mapping


def _toml(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS:
            raise UsageError(f"line {number} has more than {MOST_DOTS} dots.", "Write a dotted key as tables.")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer of too many digits
        if again := re.match(r"Cannot overwrite a value \(at (?:line (\d+)|end of document)", str(error)):
            lines = text.rstrip().splitlines()
            number = int(again[1] or len(lines))
            key, equals, _ = lines[number - 1].partition("=")
            if equals:
                raise twice(key.strip(), number) from None
        raise not_valid("TOML", error) from None


def _check_size(data: Any) -> None:
    """Refuse values that are more, deeper or larger than the limits."""
    for n_values, (depth, value) in enumerate(_walk(data), 1):
        if n_values > MOST_VALUES:
            raise too_many()
        if depth > MOST_DEPTH:
            raise too_deep()
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise too_large()


def _walk(data: Any) -> Iterator[tuple[int, Any]]:
    """Every key and value with its depth, without recursion."""
    waiting: list[tuple[int, Any]] = [(1, data)]
    while waiting:
        depth, value = waiting.pop()
        yield depth, value
        if isinstance(value, dict):
            waiting += [(depth + 1, part) for pair in value.items() for part in pair]
        elif isinstance(value, (list, tuple, set)):
            waiting += [(depth + 1, part) for part in value]
