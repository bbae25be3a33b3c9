"""What `inspect` does around the inspection: its forms, and what it still tells of a dump that cannot be read."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rlcorr_cli.core.worst import MEASURES as _MEASURES
from rlcorr_cli.errors import DataError, RlcorrError
from rlcorr_cli.io.dump import schema_of
from rlcorr_cli.present.stdout import emit
from rlcorr_cli.present.terminal.inspected import print_inspected, print_row, print_schema
from rlcorr_cli.report.build import refuse_empty
from rlcorr_cli.report.inspected import Inspected, OneRow

MEASURES = tuple(_MEASURES)


@contextmanager
def telling(dumps: Sequence[str], format: str, as_json: bool) -> Generator[None]:
    """Where the dump cannot be read, its columns first, then the error; programs get the error alone."""
    try:
        yield
    except DataError:
        if not as_json:
            try:
                print_schema(schema_of(dumps, format))
            except RlcorrError:
                pass  # not even those: the error that follows says why
        raise


def show(found: Inspected, as_json: bool) -> None:
    """Print what was seen, then refuse a dump without a valid token: there is nothing to compare in it."""
    if as_json:
        emit(json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n")
    else:
        print_inspected(found)
    refuse_empty(found.counts, found.inputs)


def show_row(row: OneRow, as_json: bool) -> None:
    """On stdout."""
    if as_json:
        emit(json.dumps(row.to_dict(), indent=2, allow_nan=False) + "\n")
    else:
        print_row(row)
