"""The metrics and counts of many groups in arrays, and one group's as a mapping: a dict of each takes ten times as much
room."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rlcorr_cli.frozen import frozen

if TYPE_CHECKING:
    from rlcorr_cli.totals.exact import Floats
    from rlcorr_cli.totals.families import Value

T = TypeVar("T")


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


class GroupRow(Mapping[str, T]):
    """What one group of many has, by name; a plain class, because it is made for each.  columns: by name."""

    __slots__ = ("columns", "group")

    def __init__(self, columns: Mapping[str, Any], group: int) -> None:
        self.columns, self.group = columns, group

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class MetricRow(GroupRow["Value"]):
    """The metrics of one group of a table."""

    __slots__ = ("numbers",)

    def __init__(self, table: MetricTable, group: int) -> None:
        super().__init__(table.places, group)
        self.numbers = table.numbers

    def __getitem__(self, metric: str) -> "Value":
        value = float(self.numbers[self.group, self.columns[metric]])
        return None if value != value else value  # NaN alone differs from itself

    def items(self) -> "ItemsView[str, Value]":
        """As of a dict, which is made of the whole row at once."""
        row = self.numbers[self.group].tolist()
        return {name: None if value != value else value for name, value in zip(self.columns, row, strict=True)}.items()


class CountRow(GroupRow[int]):
    """The counts of one of many groups.  columns: name -> whole numbers, [G]."""

    __slots__ = ()

    def __getitem__(self, name: str) -> int:
        return int(self.columns[name][self.group])
