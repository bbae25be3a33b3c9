"""The objects of JSON lines one by one, as Python has them: for layouts, whose rows are of no one schema."""

import json
from collections.abc import Iterator
from typing import Any

from rlcorr_cli.errors import DataError


def read_rows(path: str) -> Iterator[dict[str, Any]]:
    """Every line's object; blank lines are passed over.  A line that is none is a DataError that names it."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"line {number} is no JSON: is the file still being written?", CUT) from error
            if not isinstance(row, dict):
                raise DataError(f"line {number} is no object.", CUT)
            yield row


CUT = "Wait until it is written, or copy it again."
