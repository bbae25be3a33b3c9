"""Plain numbers that add: what is left of a batch once it has been observed.

A Summary is one group's totals under one Layout.  `+` is associative and commutative, `Summary.empty(layout)` is its
identity, neither operand changes, and `observe(a ++ b) == observe(a) + observe(b)`; so threads, shards, files and
machines are one case.  Sums are float64; integers in them are exact up to 2^53.

Six kinds of total: sums, mins, maxs, logs (log of a sum of exponentials, kept as peak and
rest so that a sequence log-ratio of +-5000 neither overflows nor vanishes), histograms and tails (the largest
log-weights).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlcorr_cli.totals.exact import floats_from_list, floats_to_list
from rlcorr_cli.totals.histogram import Floats, Histogram
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail

GroupKey = tuple[Any, ...]
"""One group's values, in the order of the columns asked for: (3,), ("math", 3), ()."""


@dataclass(frozen=True)
class Layout:
    """The names of a Summary's numbers, in order.  Only summaries of one layout add; that their numbers mean the same
    is for the Provenance to say."""

    sums: tuple[str, ...]
    mins: tuple[str, ...]
    maxs: tuple[str, ...]
    logs: tuple[str, ...]
    histograms: tuple[str, ...]
    tails: tuple[str, ...] = ()

    @cached_property
    def places(self) -> Mapping[str, Mapping[str, int]]:
        """Kind -> name -> its place."""
        kinds = {
            "sums": self.sums,
            "mins": self.mins,
            "maxs": self.maxs,
            "peaks": self.logs,
            "rests": self.logs,
        }
        return {kind: {name: place for place, name in enumerate(names)} for kind, names in kinds.items()}


@dataclass(frozen=True, eq=False)
class Summary:
    """One group's totals; see the module.  sums f64[K], mins, maxs, log_peaks and log_rests f64 by layout.

    A log's value is peak + log(rest); an empty one has peak -inf and rest 0.
    """

    layout: Layout
    sums: Floats
    mins: Floats
    maxs: Floats
    log_peaks: Floats
    log_rests: Floats
    histograms: tuple[Histogram, ...]
    tails: tuple[Tail, ...] = ()

    @classmethod
    def empty(cls, layout: Layout) -> "Summary":
        """Nothing observed: the identity of +."""
        n_logs = len(layout.logs)
        return cls(
            layout,
            np.zeros(len(layout.sums)),
            np.full(len(layout.mins), np.inf),
            np.full(len(layout.maxs), -np.inf),
            np.full(n_logs, -np.inf),
            np.zeros(n_logs),
            tuple(Histogram.empty() for _ in layout.histograms),
            tuple(Tail.empty(GROUP_SIZE) for _ in layout.tails),
        )

    def __add__(self, other: "Summary") -> "Summary":
        if self.layout != other.layout:
            raise ValueError("summaries of different layouts do not add")
        peaks, rests = add_logs(self.log_peaks, self.log_rests, other.log_peaks, other.log_rests)
        return Summary(
            self.layout,
            self.sums + other.sums,
            np.minimum(self.mins, other.mins),
            np.maximum(self.maxs, other.maxs),
            peaks,
            rests,
            tuple(a + b for a, b in zip(self.histograms, other.histograms, strict=True)),
            tuple(a + b for a, b in zip(self.tails, other.tails, strict=True)),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly (an absent minimum is "inf")."""
        layout = self.layout
        logs = zip(floats_to_list(self.log_peaks), floats_to_list(self.log_rests), strict=True)
        return {
            "sums": dict(zip(layout.sums, floats_to_list(self.sums), strict=True)),
            "mins": dict(zip(layout.mins, floats_to_list(self.mins), strict=True)),
            "maxs": dict(zip(layout.maxs, floats_to_list(self.maxs), strict=True)),
            "logs": dict(zip(layout.logs, map(list, logs), strict=True)),
            "histograms": {n: h.to_dict() for n, h in zip(layout.histograms, self.histograms, strict=True)},
            "tails": {n: tail.to_dict() for n, tail in zip(layout.tails, self.tails, strict=True)},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Summary":
        """What `to_dict` wrote."""
        layout = Layout(*(tuple(data[kind]) for kind in ("sums", "mins", "maxs", "logs", "histograms", "tails")))
        return cls(
            layout,
            floats_from_list(list(data["sums"].values())),
            floats_from_list(list(data["mins"].values())),
            floats_from_list(list(data["maxs"].values())),
            floats_from_list([peak for peak, _ in data["logs"].values()]),
            floats_from_list([rest for _, rest in data["logs"].values()]),
            tuple(Histogram.from_dict(histogram) for histogram in data["histograms"].values()),
            tuple(Tail.from_dict(tail) for tail in data["tails"].values()),
        )


@dataclass(frozen=True, eq=False)
class Replicates:
    """The same totals under R Poisson resamplings of the sequences: sums f64[K, R], logs [L, R] over shared peaks [L].

    Only what is a sum can be resampled in one pass, so there are no mins, maxs or histograms here.
    """

    names: tuple[str, ...]
    sums: Floats
    logs: tuple[str, ...]
    log_peaks: Floats
    log_rests: Floats

    def __add__(self, other: "Replicates") -> "Replicates":
        if (self.names, self.logs) != (other.names, other.logs):
            raise ValueError("replicates of different totals do not add")
        peaks, rests = add_logs(self.log_peaks[:, None], self.log_rests, other.log_peaks[:, None], other.log_rests)
        return Replicates(self.names, self.sums + other.sums, self.logs, peaks[:, 0], rests)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly."""
        return {
            "sums": dict(zip(self.names, floats_to_list(self.sums), strict=True)),
            "log_peaks": dict(zip(self.logs, floats_to_list(self.log_peaks), strict=True)),
            "log_rests": dict(zip(self.logs, floats_to_list(self.log_rests), strict=True)),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Replicates":
        """What `to_dict` wrote."""
        sums, peaks, rests = (
            floats_from_list(list(data[name].values())) for name in ("sums", "log_peaks", "log_rests")
        )
        return cls(tuple(data["sums"]), sums, tuple(data["log_peaks"]), peaks, rests)


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
