"""What `convert` did."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.reading.batch import Input


@dataclass(frozen=True, kw_only=True)
class Converted:
    """Rows in canonical columns.

    columns: of the output, name -> type.  unmatched: rows of the dump and of the joined one without a partner in the
    other; None where none was joined.
    """

    path: Path
    inputs: tuple[Input, ...]
    columns: dict[str, str]
    rows: int
    n_bytes: int
    notes: tuple[str, ...]
    unmatched: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rlcorr": {"version": __version__, "schema": 1},
            "inputs": [source.to_dict() for source in self.inputs],
            "output": str(self.path),
            "columns": self.columns,
            "rows": self.rows,
            "bytes": self.n_bytes,
            "unmatched": None if self.unmatched is None else list(self.unmatched),
            "notes": list(self.notes),
        }
