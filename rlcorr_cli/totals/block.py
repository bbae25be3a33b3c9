"""Numbers of one kind that add: of the diagnostics of a mode, or of what one plan does.

Six kinds of total: sums, mins, maxs, logs (log of a sum of exponentials, kept as peak and
rest so that a sequence log-ratio of +-5000 neither overflows nor vanishes), histograms and tails (the largest
log-weights).  Sums are float64; integers in them are exact up to 2^53.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.exact import check_counts, floats_from_list, floats_to_list
from rlcorr_cli.totals.histogram import Floats, Histogram, Histograms
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail, Tails

COUNTED = ("tokens", "sequences")
"""Sums that are whole numbers, which reports say as such."""


def diagnostics_block(mode: Mode) -> str:
    """The name of the block that holds a mode's diagnostics."""
    return f"diagnostics.{mode}"


def plan_block(plan: Plan) -> str:
    """The name of the block that holds what a plan does; plans that differ in name alone share it."""
    return f"plan.{plan.id}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The names of a Block's numbers, in order.  Only blocks of one layout add; that their numbers mean the same
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
            "histograms": self.histograms,
            "tails": self.tails,
        }
        return {kind: {name: place for place, name in enumerate(names)} for kind, names in kinds.items()}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Block:
    """Totals of one kind; see the module.  sums f64[K], mins, maxs, log_peaks and log_rests f64 by layout.

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

    def __post_init__(self) -> None:
        layout = self.layout
        n_sums, n_mins, n_maxs, n_logs = map(len, (layout.sums, layout.mins, layout.maxs, layout.logs))
        columns = self.sums, self.mins, self.maxs, self.log_peaks, self.log_rests
        n_others = len(self.histograms), len(self.tails)
        if tuple(column.shape for column in columns) != (
            (n_sums,),
            (n_mins,),
            (n_maxs,),
            (n_logs,),
            (n_logs,),
        ) or n_others != (len(layout.histograms), len(layout.tails)):
            raise ValueError("a block needs a number for each name of its layout")

    def check_unpacked(self) -> None:
        """A ValueError of a negative sum of exponentials, and of tails that are not those of a group."""
        if np.any(self.log_rests < 0) or any(tail.size != GROUP_SIZE for tail in self.tails):
            raise ValueError("a block has a sum below 0 where there can be none, or a tail of another size")
        places = self.layout.places["sums"]
        check_counts(self.sums[[places[name] for name in COUNTED if name in places]])

    @classmethod
    def empty(cls, layout: Layout) -> "Block":
        """Nothing observed: the identity of +."""
        n_logs = len(layout.logs)
        return cls(
            layout=layout,
            sums=np.zeros(len(layout.sums)),
            mins=np.full(len(layout.mins), np.inf),
            maxs=np.full(len(layout.maxs), -np.inf),
            log_peaks=np.full(n_logs, -np.inf),
            log_rests=np.zeros(n_logs),
            histograms=tuple(Histogram.empty() for _ in layout.histograms),
            tails=tuple(Tail.empty(GROUP_SIZE) for _ in layout.tails),
        )

    @np.errstate(over="ignore", invalid="ignore")  # beyond float64 a sum is inf, and its metric null
    def __add__(self, other: "Block") -> "Block":
        if self.layout != other.layout:
            raise ValueError("blocks of different layouts do not add")
        peaks, rests = add_logs(self.log_peaks, self.log_rests, other.log_peaks, other.log_rests)
        return Block(
            layout=self.layout,
            sums=self.sums + other.sums,
            mins=np.minimum(self.mins, other.mins),
            maxs=np.maximum(self.maxs, other.maxs),
            log_peaks=peaks,
            log_rests=rests,
            histograms=tuple(a + b for a, b in zip(self.histograms, other.histograms, strict=True)),
            tails=tuple(a + b for a, b in zip(self.tails, other.tails, strict=True)),
        )

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def total(cls, blocks: Sequence["Block"]) -> "Block":
        """The sum of at least one block, at once: pair by pair, a histogram would be sorted again for each."""
        layout = blocks[0].layout
        if any(block.layout != layout for block in blocks):
            raise ValueError("blocks of different layouts do not add")
        peaks = _stacked([block.log_peaks for block in blocks])
        peak = peaks.max(axis=0)
        shift = np.where(np.isfinite(peak), peak, 0.0)
        rests = _stacked([block.log_rests for block in blocks]) * np.exp(peaks - shift)
        return cls(
            layout=layout,
            sums=_stacked([block.sums for block in blocks]).sum(axis=0),
            mins=_stacked([block.mins for block in blocks]).min(axis=0),
            maxs=_stacked([block.maxs for block in blocks]).max(axis=0),
            log_peaks=peak,
            log_rests=rests.sum(axis=0),
            histograms=tuple(map(Histogram.total, zip(*(block.histograms for block in blocks), strict=True))),
            tails=tuple(map(Tail.total, zip(*(block.tails for block in blocks), strict=True))),
        )

    def sharing(self, whole: "Block", prefix: str) -> "Block":
        """The same, with the histograms and tails of `whole` for those of the prefix where all its tokens are there.

        They are equal then, and the most of what many small groups take, so that one of them is held.
        """
        n_tokens = self.layout.places["sums"].get(f"{prefix}tokens")
        if n_tokens is None or self.sums[n_tokens] != whole.sum("tokens"):
            return self
        places = whole.layout.places
        names = self.layout.histograms, self.layout.tails
        histograms, tails = (
            tuple(
                theirs[places[kind][name.removeprefix(prefix)]] if name.startswith(prefix) else mine
                for name, mine in zip(of_kind, own, strict=True)
            )
            for kind, of_kind, own, theirs in (
                ("histograms", names[0], self.histograms, whole.histograms),
                ("tails", names[1], self.tails, whole.tails),
            )
        )
        return replace(self, histograms=histograms, tails=tails)

    def sum(self, name: str) -> float:
        """A sum by name."""
        return float(self.sums[self.layout.places["sums"][name]])

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
    def from_dict(cls, data: Mapping[str, Any]) -> "Block":
        """What `to_dict` wrote."""
        kinds = ("sums", "mins", "maxs", "logs", "histograms", "tails")
        layout = Layout(**{kind: tuple(data[kind]) for kind in kinds})
        return cls(
            layout=layout,
            sums=floats_from_list(list(data["sums"].values())),
            mins=floats_from_list(list(data["mins"].values())),
            maxs=floats_from_list(list(data["maxs"].values())),
            log_peaks=floats_from_list([peak for peak, _ in data["logs"].values()]),
            log_rests=floats_from_list([rest for _, rest in data["logs"].values()]),
            histograms=tuple(Histogram.from_dict(histogram) for histogram in data["histograms"].values()),
            tails=tuple(Tail.from_dict(tail) for tail in data["tails"].values()),
        )


@dataclass(frozen=True, kw_only=True)
class BlockColumns:
    """The blocks of G groups by name: sums f64[K, G], mins, maxs, log_peaks and log_rests likewise."""

    layout: Layout
    sums: Floats
    mins: Floats
    maxs: Floats
    log_peaks: Floats
    log_rests: Floats
    histograms: tuple[Histograms, ...]
    tails: tuple[Tails, ...]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> "BlockColumns":
        """Of at least one block, all of one layout."""
        return cls(
            layout=blocks[0].layout,
            sums=np.stack([block.sums for block in blocks], axis=1),
            mins=np.stack([block.mins for block in blocks], axis=1),
            maxs=np.stack([block.maxs for block in blocks], axis=1),
            log_peaks=np.stack([block.log_peaks for block in blocks], axis=1),
            log_rests=np.stack([block.log_rests for block in blocks], axis=1),
            histograms=tuple(map(Histograms, zip(*(block.histograms for block in blocks), strict=True))),
            tails=tuple(map(Tails, zip(*(block.tails for block in blocks), strict=True))),
        )


def _stacked(rows: Sequence[Floats]) -> Floats:
    """Rows of one length as a table [G, K]; np.stack, which looks at each by itself, takes three times as long."""
    return np.concatenate(rows).reshape(len(rows), -1 if rows[0].size else 0)


def add_logs(peak_a: Floats, rest_a: Floats, peak_b: Floats, rest_b: Floats) -> tuple[Floats, Floats]:
    """Add two (peak, rest) pairs elementwise: e^peak * rest each.  Returns the sum in the same form."""
    peak = np.maximum(peak_a, peak_b)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    return peak, rest_a * np.exp(peak_a - shift) + rest_b * np.exp(peak_b - shift)
