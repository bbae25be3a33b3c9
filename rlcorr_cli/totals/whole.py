"""What is kept of a dump as a whole only, beside its groups' totals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rlcorr_cli.totals.row_keys import RowSketch
from rlcorr_cli.totals.tail import Tail

A = TypeVar("A", Tail, RowSketch)


def whole_tail(block: str, name: str) -> str:
    """The name of the tail that a Summary has in one of its blocks."""
    return f"{block}.{name}"


@dataclass(frozen=True)
class Whole:
    """tails: by `whole_tail`, longer than those of a group.

    rows: by the keys that the bootstrap knows them by; texts: by their lengths, too; contents: by what they hold, too.
    None where nothing is resampled.
    """

    tails: Mapping[str, Tail]
    rows: RowSketch | None = None
    contents: RowSketch | None = None
    texts: RowSketch | None = None

    def __add__(self, other: "Whole") -> "Whole":
        # A batch of which a plan keeps nothing has no tail of what is kept.
        names = dict.fromkeys((*self.tails, *other.tails))
        tails = {name: tail for name in names if (tail := _sum(self.tails.get(name), other.tails.get(name)))}
        rows, contents = _sum(self.rows, other.rows), _sum(self.contents, other.contents)
        return Whole(tails, rows, contents, _sum(self.texts, other.texts))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly."""
        return {
            "tails": {name: tail.to_dict() for name, tail in self.tails.items()},
            **{name: rows and rows.to_dict() for name, rows in self._sketches.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Whole":
        """What `to_dict` wrote."""
        sketches = (data[name] and RowSketch.from_dict(data[name]) for name in ("rows", "contents", "texts"))
        return cls({name: Tail.from_dict(tail) for name, tail in data["tails"].items()}, *sketches)

    @property
    def _sketches(self) -> dict[str, RowSketch | None]:
        return {"rows": self.rows, "contents": self.contents, "texts": self.texts}


def _sum(a: A | None, b: A | None) -> A | None:
    return a + b if a is not None and b is not None else a if a is not None else b
