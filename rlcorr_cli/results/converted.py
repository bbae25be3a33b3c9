"""What `convert` did."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rlcorr_cli.records import Key, Output
from rlcorr_cli.results.groups import Inputs


@dataclass(frozen=True, kw_only=True)
class Converted(Output):
    """Rows in canonical columns.

    columns: of the output, name -> type.  unmatched: rows of the dump and of the joined one without a partner in the
    other; null where none was joined.
    """

    inputs: Inputs
    path: Annotated[Path, Key(name="output")]
    columns: dict[str, str]
    rows: int
    n_bytes: Annotated[int, Key(name="bytes")]
    unmatched: tuple[int, int] | None = None
    notes: tuple[str, ...]
