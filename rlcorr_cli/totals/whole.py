"""What is kept of a dump as a whole only, beside its groups' totals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.totals.row_keys import RowSketch
from rlcorr_cli.totals.tail import Tail


def whole_tail(block: str, name: str) -> str:
    """The name of the tail that a Summary has in one of its blocks."""
    return f"{block}.{name}"


@dataclass(frozen=True)
class Whole:
    """tails: by `whole_tail`, longer than those of a group.  rows: None where nothing is resampled."""

    tails: Mapping[str, Tail]
    rows: RowSketch | None = None

    def __add__(self, other: "Whole") -> "Whole":
        # A batch of which a plan keeps nothing has no tail of what is kept.
        names = dict.fromkeys((*self.tails, *other.tails))
        tails = {name: _sum(self.tails.get(name), other.tails.get(name)) for name in names}
        rows = self.rows + other.rows if self.rows and other.rows else self.rows or other.rows
        return Whole(tails, rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly."""
        return {
            "tails": {name: tail.to_dict() for name, tail in self.tails.items()},
            "rows": None if self.rows is None else self.rows.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Whole":
        """What `to_dict` wrote."""
        rows = data["rows"]
        return cls(
            {name: Tail.from_dict(tail) for name, tail in data["tails"].items()},
            None if rows is None else RowSketch.from_dict(rows),
        )


def _sum(a: Tail | None, b: Tail | None) -> Tail:
    if a is not None and b is not None:
        return a + b
    kept = a or b
    assert kept is not None
    return kept
