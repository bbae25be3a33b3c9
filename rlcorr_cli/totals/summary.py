"""Plain numbers that add: what is left of a batch once it has been observed.

A Summary is one group's totals under one Layout.  `+` is associative and commutative, `Summary.empty(layout)` is its
identity, neither operand changes, and `observe(a ++ b) == observe(a) + observe(b)`; so threads, shards, files and
machines are one case.  Sums are float64; integers in them are exact up to 2^53.

Five kinds of total: sums, lows (minimum), highs (maximum), logs (log of a sum of exponentials, kept as peak and
rest so that a sequence log-ratio of +-5000 neither overflows nor vanishes) and histograms.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HISTOGRAM_RELATIVE_ERROR = 2.0**-8
"""Half a bucket, relative to its nearer edge: what a quantile may be off by (its error bound in reports)."""


@dataclass(frozen=True)
class Layout:
    """The names of a Summary's numbers, in order.  Only summaries of one layout add."""

    sums: tuple[str, ...]
    lows: tuple[str, ...]
    highs: tuple[str, ...]
    logs: tuple[str, ...]
    histograms: tuple[str, ...]


def bucket_of(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The top 16 bits of each value as float32; of values >= 0 these are in the values' own order."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).view(np.uint16)[1::2]


def gathered(buckets: NDArray[np.uint16], *columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Distinct buckets in ascending order, and each column added up over equal ones; at least one bucket."""
    order = np.argsort(buckets, kind="stable")  # a radix sort on 16 bits
    ordered = buckets[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return ordered[starts], *(np.add.reduceat(column[order], starts) for column in columns)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts per float32 prefix: a bucket is the top 16 bits (sign, exponent, 7 mantissa bits).

    buckets: u16[K] ascending and distinct; counts: i64[K] > 0.  Adding is integer addition, so it is exact in any
    order or partition.
    """

    buckets: NDArray[np.uint16]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls) -> "Histogram":
        """No values: the identity of +."""
        return cls(np.empty(0, np.uint16), np.empty(0, np.int64))

    @classmethod
    def of_counts(cls, dense: NDArray[np.int64]) -> "Histogram":
        """From i64[65536] counts by bucket."""
        buckets = np.flatnonzero(dense)
        return cls(buckets.astype(np.uint16), dense[buckets])

    def __add__(self, other: "Histogram") -> "Histogram":
        if not len(self.buckets) or not len(other.buckets):
            return self if len(self.buckets) else other
        buckets, counts = gathered(
            np.concatenate([self.buckets, other.buckets]), np.concatenate([self.counts, other.counts])
        )
        return Histogram(buckets, counts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Histogram)
            and np.array_equal(self.buckets, other.buckets)
            and np.array_equal(self.counts, other.counts)
        )

    @cached_property
    def by_value(self) -> tuple[Floats, NDArray[np.int64]]:
        """Bucket midpoints in ascending order, and their counts."""
        bits = self.buckets.astype(np.uint32) << 16
        edge = bits.view(np.float32).astype(np.float64)
        outer = (bits + np.uint32(1 << 16)).view(np.float32).astype(np.float64)
        middle = np.where(np.abs(edge) < 1e-37, 0.0, (edge + outer) / 2)
        order = np.argsort(middle, kind="stable")
        return middle[order], self.counts[order]

    def quantile(self, q: float) -> float | None:
        """The value at rank ceil(q * n), to HISTOGRAM_RELATIVE_ERROR; None of no values."""
        total = int(self.counts.sum())
        if total == 0:
            return None
        values, counts = self.by_value
        rank = max(1, math.ceil(q * total))
        return float(values[np.searchsorted(np.cumsum(counts), rank)])


@dataclass(frozen=True, eq=False)
class Summary:
    """One group's totals; see the module.  sums f64[K], lows, highs, log_peaks and log_rests f64 by layout.

    A log's value is peak + log(rest); an empty one has peak -inf and rest 0.
    """

    layout: Layout
    sums: Floats
    lows: Floats
    highs: Floats
    log_peaks: Floats
    log_rests: Floats
    histograms: tuple[Histogram, ...]

    @classmethod
    def empty(cls, layout: Layout) -> "Summary":
        """Nothing observed: the identity of +."""
        n_logs = len(layout.logs)
        return cls(
            layout,
            np.zeros(len(layout.sums)),
            np.full(len(layout.lows), np.inf),
            np.full(len(layout.highs), -np.inf),
            np.full(n_logs, -np.inf),
            np.zeros(n_logs),
            tuple(Histogram.empty() for _ in layout.histograms),
        )

    def __add__(self, other: "Summary") -> "Summary":
        if self.layout != other.layout:
            raise ValueError("summaries of different plans do not add")
        peaks, rests = add_logs(self.log_peaks, self.log_rests, other.log_peaks, other.log_rests)
        return Summary(
            self.layout,
            self.sums + other.sums,
            np.minimum(self.lows, other.lows),
            np.maximum(self.highs, other.highs),
            peaks,
            rests,
            tuple(a + b for a, b in zip(self.histograms, other.histograms, strict=True)),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly (an absent low or high is null)."""
        layout = self.layout
        return {
            "sums": dict(zip(layout.sums, self.sums.tolist(), strict=True)),
            "lows": {k: v if math.isfinite(v) else None for k, v in zip(layout.lows, self.lows.tolist(), strict=True)},
            "highs": {
                k: v if math.isfinite(v) else None for k, v in zip(layout.highs, self.highs.tolist(), strict=True)
            },
            "logs": {
                name: [peak if rest else None, rest]
                for name, peak, rest in zip(layout.logs, self.log_peaks.tolist(), self.log_rests.tolist(), strict=True)
            },
            "histograms": {
                name: [h.buckets.tolist(), h.counts.tolist()]
                for name, h in zip(layout.histograms, self.histograms, strict=True)
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Summary":
        """What `to_dict` wrote."""
        layout = Layout(*(tuple(data[kind]) for kind in ("sums", "lows", "highs", "logs", "histograms")))
        logs = list(data["logs"].values())
        return cls(
            layout,
            np.array(list(data["sums"].values()), np.float64),
            np.array([np.inf if v is None else v for v in data["lows"].values()], np.float64),
            np.array([-np.inf if v is None else v for v in data["highs"].values()], np.float64),
            np.array([-np.inf if peak is None else peak for peak, _ in logs], np.float64),
            np.array([rest for _, rest in logs], np.float64),
            tuple(
                Histogram(np.array(buckets, np.uint16), np.array(counts, np.int64))
                for buckets, counts in data["histograms"].values()
            ),
        )


@dataclass(frozen=True, eq=False)
class Replicates:
    """The same totals under R Poisson resamplings of the sequences: sums f64[K, R], logs [L, R] over shared peaks [L].

    Only what is a sum can be resampled in one pass, so there are no lows, highs or histograms here.
    """

    names: tuple[str, ...]
    sums: Floats
    logs: tuple[str, ...]
    log_peaks: Floats
    log_rests: Floats

    def __add__(self, other: "Replicates") -> "Replicates":
        if (self.names, self.logs) != (other.names, other.logs):
            raise ValueError("replicates of different plans do not add")
        peaks, rests = add_logs(self.log_peaks[:, None], self.log_rests, other.log_peaks[:, None], other.log_rests)
        return Replicates(self.names, self.sums + other.sums, self.logs, peaks[:, 0], rests)


def add_logs(peak_a: Floats, rest_a: Floats, peak_b: Floats, rest_b: Floats) -> tuple[Floats, Floats]:
    """Add two (peak, rest) pairs elementwise: e^peak * rest each.  Returns the sum in the same form."""
    peak = np.maximum(peak_a, peak_b)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    return peak, rest_a * np.exp(peak_a - shift) + rest_b * np.exp(peak_b - shift)


def total(summaries: Iterable[Summary], layout: Layout) -> Summary:
    """The sum of any number of summaries, none included."""
    result = Summary.empty(layout)
    for summary in summaries:
        result = result + summary
    return result


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
        return float(self.summary.lows[self.summary.layout.lows.index(self.prefix + name)])

    def high(self, name: str) -> float:
        """A maximum (-inf of no values)."""
        return float(self.summary.highs[self.summary.layout.highs.index(self.prefix + name)])

    def histogram(self, name: str) -> Histogram:
        """A histogram by name."""
        return self.summary.histograms[self.summary.layout.histograms.index(self.prefix + name)]


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
