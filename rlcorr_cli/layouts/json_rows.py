"""The objects of JSON lines one by one, as Python has them: for layouts, whose rows are of no one schema."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rlcorr_cli.errors import DataError
from rlcorr_cli.storage import filesystem

CUT = "Wait until it is written, or copy it again."
Made = TypeVar("Made")


def read_rows(path: str) -> Iterator[dict[str, Any]]:
    """Every line's object; blank lines are passed over.  A line that is none is a DataError that names it."""
    return (row for _, row in _numbered(path))


def made_of_rows(path: str, make: Callable[[dict[str, Any]], Iterable[Made]]) -> Iterator[Made]:
    """What `make` makes of each line's object, in order; its DataErrors say which line it was."""
    for number, row in _numbered(path):
        try:
            yield from make(row)
        except DataError as error:
            raise DataError(f"line {number}: {error.message}", error.hint) from error


def has_key(path: str, key: str, value: bytes = b"") -> bool:
    """Whether a JSON object of the file has that key, with a value that begins so, a pattern, in the same line.

    Found without parsing: no text in JSON holds these bytes, because its quotes are escaped.
    """
    pattern = re.compile(rb'"%s":\s?%s' % (key.encode(), value))
    with filesystem(path).open(path) as file:
        return any(pattern.search(line) for line in file)


def _numbered(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with filesystem(path).open(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"line {number} is not JSON: is the file still being written?", CUT) from error
            if not isinstance(row, dict):
                raise DataError(f"line {number} is not an object.", CUT)
            yield number, row
