"""The metrics and counts of many groups in arrays, and one group's as a mapping: a dict of each takes ten times as much
room."""

from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.families import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlcorr_cli.totals.exact import Floats


@frozen(eq=False)
class MetricTable:
    """places: metric -> its column.  numbers: f64[G, M]; NaN where a group has no value."""

    places: Mapping[str, int]
    numbers: "Floats"

    @classmethod
    def of(cls, columns: Mapping[str, Any], n_groups: int) -> "MetricTable":
        """columns: metric -> f64[G], or None where no group has a value."""
        import numpy as np

        numbers = np.full((n_groups, len(columns)), np.nan)
        for place, column in enumerate(columns.values()):
            if column is not None:
                numbers[:, place] = column
        return cls({name: place for place, name in enumerate(columns)}, numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, group: int) -> "MetricRow":
        return MetricRow(self, group)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class MetricRow(Mapping[str, Value]):
    """The metrics of one group of a table."""

    table: MetricTable
    group: int

    def __getitem__(self, metric: str) -> Value:
        value = float(self.table.numbers[self.group, self.table.places[metric]])
        return None if value != value else value  # NaN alone differs from itself

    def items(self) -> ItemsView[str, Value]:
        """As of a dict, which is made of the whole row at once."""
        row = self.table.numbers[self.group].tolist()
        return {
            name: None if value != value else value for name, value in zip(self.table.places, row, strict=True)
        }.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.places)

    def __len__(self) -> int:
        return len(self.table.places)

    def __repr__(self) -> str:
        return repr(dict(self.items()))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class CountRow(Mapping[str, int]):
    """The counts of one of many groups.  counts: name -> whole numbers, [G]."""

    counts: "Mapping[str, NDArray[Any]]"
    group: int

    def __getitem__(self, name: str) -> int:
        return int(self.counts[name][self.group])

    def __iter__(self) -> Iterator[str]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        return repr(dict(self.items()))
