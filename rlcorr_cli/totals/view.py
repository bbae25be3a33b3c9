"""Totals as formulas read them: by name, over all tokens or over what a plan keeps, once or for every replicate."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.block import BlockColumns, diagnostics_block, plan_block
from rlcorr_cli.totals.rollouts import ROLLOUTS
from rlcorr_cli.totals.summary import COUNTS, Replicates, Summary


def _read_by(summary: Summary, plan: Plan) -> tuple[str, ...]:
    """The blocks that a plan's formulas read."""
    rollouts = (ROLLOUTS,) if ROLLOUTS in summary.blocks else ()
    return (plan_block(plan), diagnostics_block(plan.mode), *rollouts)


class UnknownTotalError(KeyError):
    """Totals without a number that a formula asks for: those of another release."""


class TotalsView:
    """A Summary as one plan's formulas read it: totals by name, under a prefix ("" all tokens, "kept." what is left).

    A name is that of a count, or of a total of the plan's block or of its mode's diagnostics.
    `tokens` and `sequences` count valid tokens and non-empty sequences.
    """

    def __init__(self, summary: Summary, plan: Plan, prefix: str = "") -> None:
        self.plan = plan
        self.prefix = prefix
        self._blocks: tuple[Any, ...] = tuple(summary.blocks[name] for name in _read_by(summary, plan))
        self._sums: dict[str, Any] = dict(summary.counts)
        for block in self._blocks:
            self._sums |= zip(block.layout.sums, block.sums.tolist(), strict=True)

    def under(self, prefix: str) -> "TotalsView":
        """The same totals read under another prefix."""
        other = copy(self)
        other.prefix = prefix
        return other

    def has(self, name: str) -> bool:
        """Whether the layout holds this sum."""
        return self.prefix + name in self._sums

    def sum(self, name: str) -> Any:
        """A sum; in the replicates' reading an f64[R]."""
        try:
            return self._sums[self.prefix + name]
        except KeyError as error:
            raise UnknownTotalError(self.prefix + name) from error

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
        """log of a sum of exponentials."""
        block, i = self._place("peaks", name)
        rest = float(block.log_rests[i])
        return float(block.log_peaks[i]) + math.log(rest) if rest else -math.inf

    def min(self, name: str) -> Any:
        """A minimum (inf of no values)."""
        block, i = self._place("mins", name)
        return float(block.mins[i])

    def max(self, name: str) -> Any:
        """A maximum (-inf of no values)."""
        block, i = self._place("maxs", name)
        return float(block.maxs[i])

    def histogram(self, name: str) -> Any:
        """A histogram by name."""
        block, i = self._place("histograms", name)
        return block.histograms[i]

    def tail(self, name: str) -> Any:
        """An upper tail by name."""
        block, i = self._place("tails", name)
        return block.tails[i]

    def _place(self, kind: str, name: str) -> tuple[Any, int]:
        for block in self._blocks:
            i = block.layout.places[kind].get(self.prefix + name)
            if i is not None:
                return block, i
        raise UnknownTotalError(self.prefix + name)


class DiagnosticsView(TotalsView):
    """A mode's diagnostics alone, of totals that hold no metrics of plans."""

    def __init__(self, summary: Summary, mode: Mode) -> None:
        self.prefix = ""
        block = summary.blocks[diagnostics_block(mode)]
        self._blocks = (block,)
        self._sums = dict(summary.counts) | dict(zip(block.layout.sums, block.sums.tolist(), strict=True))


class GroupTotals(TotalsView):
    """Totals of many groups as formulas read them: every total is an f64[G], or Histograms or Tails of G groups."""

    def __init__(self, summaries: Sequence[Summary], plan: Plan) -> None:
        self.plan = plan
        self._read(summaries, _read_by(summaries[0], plan))

    def _read(self, summaries: Sequence[Summary], names: Sequence[str]) -> None:
        self.prefix = ""
        self._blocks = tuple(BlockColumns.of([summary.blocks[name] for summary in summaries]) for name in names)
        self._sums = {name: np.array([summary.counts[name] for summary in summaries]) for name in COUNTS}
        for block in self._blocks:
            self._sums |= zip(block.layout.sums, block.sums, strict=True)

    def log(self, name: str) -> Any:
        """log of a sum of exponentials, f64[G]."""
        block, i = self._place("peaks", name)
        with np.errstate(divide="ignore"):
            return block.log_peaks[i] + np.log(block.log_rests[i])

    def min(self, name: str) -> Any:
        """Minima (inf of no values), f64[G]."""
        block, i = self._place("mins", name)
        return block.mins[i]

    def max(self, name: str) -> Any:
        """Maxima (-inf of no values), f64[G]."""
        block, i = self._place("maxs", name)
        return block.maxs[i]


class GroupDiagnostics(GroupTotals):
    """A mode's diagnostics alone, of the totals of many groups that hold no metrics of plans."""

    def __init__(self, summaries: Sequence[Summary], mode: Mode) -> None:
        self._read(summaries, (diagnostics_block(mode),))


class ResampledTotals(TotalsView):
    """Replicates of one mode's diagnostics as formulas read them: every total is an f64[R]."""

    def __init__(self, replicates: Replicates) -> None:
        self.replicates = replicates
        self.prefix = ""
        self._sums = dict(zip(replicates.names, replicates.sums, strict=True))

    def log(self, name: str) -> Any:
        """log of a sum of exponentials, f64[R]."""
        if name not in self.replicates.logs:
            raise UnknownTotalError(name)
        i = self.replicates.logs.index(name)
        with np.errstate(divide="ignore"):
            return self.replicates.log_peaks[i] + np.log(self.replicates.log_rests[i])
