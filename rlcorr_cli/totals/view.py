"""Totals as formulas read them: by name, over all tokens or over what a plan keeps, once or for every replicate."""

import math
from typing import Any

import numpy as np

from rlcorr_cli.totals.histogram import Histogram
from rlcorr_cli.totals.summary import Replicates, Summary
from rlcorr_cli.totals.tail import Tail


class Numbers:
    """A Summary as formulas read it: totals by name, under a prefix ("" all tokens, "kept." what is left).

    `tokens` and `sequences` count valid tokens and non-empty sequences.
    """

    def __init__(self, summary: Summary, prefix: str = "") -> None:
        self.summary = summary
        self.prefix = prefix
        self._sums = dict(zip(summary.layout.sums, summary.sums.tolist(), strict=True))

    def under(self, prefix: str) -> "Numbers":
        """The same totals read under another prefix."""
        return Numbers(self.summary, prefix)

    def has(self, name: str) -> bool:
        """Whether the layout holds this sum."""
        return self.prefix + name in self._sums

    def sum(self, name: str) -> Any:
        """A sum; in the replicates' reading an f64[R]."""
        return self._sums[self.prefix + name]

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
        i = self.summary.layout.logs.index(self.prefix + name)
        rest = float(self.summary.log_rests[i])
        return float(self.summary.log_peaks[i]) + math.log(rest) if rest else -math.inf

    def low(self, name: str) -> float:
        """A minimum (inf of no values)."""
        return float(self.summary.mins[self.summary.layout.mins.index(self.prefix + name)])

    def high(self, name: str) -> float:
        """A maximum (-inf of no values)."""
        return float(self.summary.maxs[self.summary.layout.maxs.index(self.prefix + name)])

    def histogram(self, name: str) -> Histogram:
        """A histogram by name."""
        return self.summary.histograms[self.summary.layout.histograms.index(self.prefix + name)]

    def tail(self, name: str) -> Tail:
        """An upper tail by name."""
        return self.summary.tails[self.summary.layout.tails.index(self.prefix + name)]


class ResampledNumbers(Numbers):
    """Replicates as formulas read them: every total is an f64[R]."""

    def __init__(self, replicates: Replicates) -> None:
        self.replicates = replicates
        self.prefix = ""
        self._sums = dict(zip(replicates.names, replicates.sums, strict=True))

    def log(self, name: str) -> Any:
        """log of a sum of exponentials, f64[R]."""
        i = self.replicates.logs.index(name)
        with np.errstate(divide="ignore"):
            return self.replicates.log_peaks[i] + np.log(self.replicates.log_rests[i])
