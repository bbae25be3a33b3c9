"""Numbers: totals as formulas read them, by name, over all tokens or over what a plan keeps.

The same formula reads those of one group (floats), of all groups at once (f64[G]) and of replicates (f64[R]).
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.replicates import Replicates
from rlcorr_cli.totals.totals import Merge, Totals


def diagnostics_block(mode: Mode) -> str:
    """The block of a mode's diagnostics."""
    return f"diagnostics.{mode}"


def plan_block(plan: Plan) -> str:
    """The block of what a plan does; plans that differ in name alone share it."""
    return f"plan.{plan.id}"


class UnknownTotalError(KeyError):
    """Totals without a number that a formula asks for: those of another release."""


class Numbers:
    """Totals by name, of the blocks that are looked through, under a prefix ("" all tokens, "kept." what is left).

    A name is that of a total of one of the blocks, or of a count of rows.  `tokens` and `sequences` count valid tokens
    and non-empty sequences.
    """

    def __init__(self, source: Totals | Replicates, blocks: Sequence[str], at: int | None = None) -> None:
        """at: the place of the one group whose numbers are read; None for all at once."""
        self.prefix = ""
        self._source, self._blocks, self._at = source, (*(f"{block}." for block in blocks), ""), at
        self._known: dict[tuple[str, str], Any] = {}  # each serves many metrics

    @classmethod
    def of_plan(cls, totals: Totals, plan: Plan, at: int | None = None) -> "Numbers":
        """What a plan's formulas read: what it does, and the diagnostics of its mode."""
        return cls(totals, (plan_block(plan), diagnostics_block(plan.mode)), at)

    @classmethod
    def of_mode(cls, totals: Totals, mode: Mode, at: int | None = None) -> "Numbers":
        """The diagnostics of a mode alone."""
        return cls(totals, (diagnostics_block(mode),), at)

    @classmethod
    def of_replicates(cls, replicates: Replicates) -> "Numbers":
        """Of every replicate at once."""
        return cls(replicates, ())

    def under(self, prefix: str) -> "Numbers":
        """The same totals read under another prefix."""
        other = copy(self)
        other.prefix = prefix
        return other

    def has(self, name: str) -> bool:
        """Whether there is this sum."""
        return any(block + self.prefix + name in self._source.tables["sum"].places for block in self._blocks)

    def sum(self, name: str) -> Any:
        """A sum."""
        return self._number("sum", name)

    @property
    def tokens(self) -> Any:
        """N, valid tokens."""
        return self.sum("tokens")

    @property
    def sequences(self) -> Any:
        """B, sequences with at least one valid token."""
        return self.sum("sequences")

    def per_token(self, name: str) -> Any:
        """tok x = sum over valid tokens / N."""
        return self.sum(name) / self.tokens

    def per_sequence(self, name: str) -> Any:
        """seq x = sum over non-empty sequences / B."""
        return self.sum(name) / self.sequences

    def log(self, name: str) -> Any:
        """log of a sum of exponentials (-inf of no values)."""
        return self._number("log_sum_exp", name)

    def min(self, name: str) -> Any:
        """A minimum (inf of no values)."""
        return self._number("min", name)

    def max(self, name: str) -> Any:
        """A maximum (-inf of no values)."""
        return self._number("max", name)

    def histogram(self, name: str) -> Any:
        """A histogram; Histograms of all groups."""
        assert isinstance(self._source, Totals)
        return self._of_groups(self._source.histograms, self._source.histogram, name)

    def tail(self, name: str) -> Any:
        """An upper tail; Tails of all groups."""
        assert isinstance(self._source, Totals)
        return self._of_groups(self._source.tails, self._source.tail, name)

    def _of_groups(self, names: Any, read: Callable[[str, int | None], Any], name: str) -> Any:
        key = read.__name__, self._full_name(names, name)
        if key not in self._known:
            self._known[key] = read(key[1], self._at)
        return self._known[key]

    def _number(self, merge: Merge, name: str) -> Any:
        table = self._source.tables[merge]
        place = table.places[self._full_name(table.places, name)]
        return table.values[place] if self._at is None else table.values.item(place, self._at)

    def _full_name(self, names: Any, name: str) -> str:
        for block in self._blocks:
            if (full := block + self.prefix + name) in names:
                return full
        raise UnknownTotalError(self.prefix + name)
