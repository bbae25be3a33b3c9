"""A batch -> one Summary per group, and the batch's bootstrap replicates.

observe(a ++ b) == observe(a) + observe(b), to rounding.  Adding a quantity means adding it in `quantities.py`
and reading it in `metrics/`; nothing here knows a name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, Decision
from rlcorr_cli.core import bootstrap
from rlcorr_cli.core.binning import draw
from rlcorr_cli.core.correct import Corrected, correct
from rlcorr_cli.core.decisions import correct_batch, decide, nothing_decided
from rlcorr_cli.core.histograms import buckets, histogram
from rlcorr_cli.core.quantities import Columns, Table, corrections, diagnostics, drift, sequence_averages
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.metrics.settings import Thresholds
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.binned import Pictures
from rlcorr_cli.totals.histogram import Floats, Histogram
from rlcorr_cli.totals.row_keys import RowSketch
from rlcorr_cli.totals.summary import GroupKey, Layout, Replicates, Summary
from rlcorr_cli.totals.tail import GROUP_SIZE, WHOLE_SIZE, Tail
from rlcorr_cli.totals.whole import Whole

COUNTS = ("rows", "empty", "masked_tokens")
"""Sums of all rows, empty ones too."""
TAILS = ("token", "sequence")
"""Weights whose upper tail is kept: rho and e^S."""
Cuts = Mapping[str, Mapping[GroupKey, float]]
"""Budget -> leaf -> the largest value of its statistic that stays."""


@dataclass(frozen=True)
class Observation:
    """What to measure.  has_current: whether the dump has the policy after updates.  seed: of the bootstrap; None for
    no intervals.  pictures: whether to count for those, too."""

    plan: Plan
    thresholds: Thresholds = field(default_factory=Thresholds)
    has_current: bool = False
    seed: int | None = 0
    pictures: bool = False

    @property
    def has_drift(self) -> bool:
        """Whether there is a third policy to look at: bypass mode compares current with rollout, and that is all."""
        return self.has_current and self.plan.mode == "decoupled"


@dataclass(frozen=True)
class Observed:
    """A batch's summaries by group key, its replicates (None without a seed or without a token), its pictures and what
    was decided about its rows, where those are asked for, and what is kept of it as a whole (None without a token)."""

    groups: dict[GroupKey, Summary]
    replicates: Replicates | None
    pictures: Pictures | None = None
    decision: Decision | None = None
    whole: Whole | None = None


@dataclass(frozen=True)
class Part:
    """Columns of some sequences with the group of each (i64[B]), and values to count, under one prefix."""

    columns: Columns
    leaf: NDArray[np.int64]
    tokens: Tokens
    prefix: str

    @cached_property
    def log_weights(self) -> dict[str, Floats]:
        """Name -> log-weights whose largest are kept: of tokens [V], of sequences [B]."""
        return {"token": to_numpy(self.tokens.log_ratio), "sequence": to_numpy(self.tokens.log_ratio_sum)}

    @cached_property
    def tails(self) -> dict[str, Tail]:
        """The largest of all these sequences', whatever their groups."""
        return {name: Tail.of(values, WHOLE_SIZE) for name, values in self.log_weights.items()}


def observe(
    batch: Batch, observation: Observation, device: torch.device, cuts: Cuts | None = None, *, decides: bool = False
) -> Observed:
    """Everything the metrics need of one batch.  cuts: of the plan's budgets, where it has any.  decides: with what the
    plan decides about each row and token."""
    layout = layout_of(observation)
    lengths = np.diff(batch.offsets)
    filled = lengths > 0
    leaf = batch.leaf.astype(np.int64)
    counts = _counts(batch, leaf, lengths, len(batch.keys))
    if not filled.any():
        decision = nothing_decided(batch, observation.plan) if decides else None
        return Observed(_summaries(layout, batch.keys, counts, []), None, decision=decision)
    tokens = Tokens.of(batch, device, observation.plan.mode)
    rewards = None if batch.reward is None else batch.reward[filled]
    corrected = correct_batch(batch, tokens, observation.plan, cuts or {})
    # Beyond float64 a sum is inf, and its metric null.
    with np.errstate(over="ignore", invalid="ignore"):
        parts, base = _parts(tokens, corrected, observation, leaf[filled], rewards)
        groups = _summaries(layout, batch.keys, counts, parts)
        replicates = rows = None
        if observation.seed is not None:
            keys = bootstrap.row_keys(tokens, None if batch.row_keys is None else batch.row_keys[filled])
            replicates, rows = bootstrap.resample(keys, base, observation.seed), RowSketch.of(keys)
    tails = {part.prefix + name: tail for part in parts for name, tail in part.tails.items()}
    pictures = draw(tokens, corrected) if observation.pictures else None
    decision = decide(batch, tokens, corrected) if decides else None
    return Observed(groups, replicates, pictures, decision, Whole(tails, rows))


@lru_cache(maxsize=64)
def layout_of(observation: Observation) -> Layout:
    """The names an observation yields: those of observing one token."""
    zero = torch.zeros(1, dtype=torch.float64)
    ragged = Ragged(np.array([0, 1]), torch.device("cpu"))
    plan = observation.plan
    tokens = Tokens(ragged, zero, zero, zero if observation.has_drift else None, zero, zero)
    corrected = correct(tokens, plan, {budget.name: np.zeros(1) for budget in plan.budgets})
    parts, base = _parts(tokens, corrected, observation, np.zeros(1, np.int64), None)
    if len(parts) == 1 and plan.rules:
        # The plan rejects even l = 0, so that nothing is kept of this one token.
        parts.append(Part(base, parts[0].leaf, tokens, "kept."))
    tables = [part.columns.under(part.prefix) for part in parts]
    return Layout(
        sums=(*COUNTS, *(name for t in tables for name in t.sums)),
        mins=tuple(name for t in tables for name in t.mins),
        maxs=tuple(name for t in tables for name in t.maxs),
        logs=tuple(name for t in tables for name in t.logs),
        histograms=tuple(f"{part.prefix}log_ratio" for part in parts),
        tails=tuple(part.prefix + name for part in parts for name in TAILS),
    )


def _parts(
    tokens: Tokens, corrected: Corrected, observation: Observation, leaf: NDArray[np.int64], rewards: Floats | None
) -> tuple[list[Part], Columns]:
    """All tokens, and what the plan keeps; and the diagnostics of all tokens alone, for resampling."""
    base = _diagnostics(tokens, observation.thresholds, rewards)
    extra = drift(tokens, observation.thresholds.ppo_clip) | corrections(tokens, corrected)
    parts = [Part(base | extra, leaf, tokens, "")]
    if corrected.keep is not None:
        parts += _kept(tokens, corrected, observation.thresholds, leaf, rewards)
    return parts, base


def _kept(
    tokens: Tokens, corrected: Corrected, thresholds: Thresholds, leaf: NDArray[np.int64], rewards: Floats | None
) -> list[Part]:
    assert corrected.keep is not None
    kept, left = tokens.keep(corrected.keep)
    if not left.any():
        return []
    columns = _diagnostics(kept, thresholds, None if rewards is None else rewards[left])
    return [Part(columns, leaf[left], kept, "kept.")]


def _diagnostics(tokens: Tokens, thresholds: Thresholds, rewards: Floats | None) -> Columns:
    columns = diagnostics(tokens, thresholds)
    reward = np.full(tokens.ragged.n_sequences, np.nan) if rewards is None else rewards
    unknown = np.isnan(reward)
    rewarded = Columns(sums={"reward": np.where(unknown, 0.0, reward), "rewarded": (~unknown).astype(np.float64)})
    return columns | sequence_averages(columns) | rewarded


def _counts(batch: Batch, leaf: NDArray[np.int64], lengths: NDArray[np.int64], n_groups: int) -> Floats:
    """Rows, empty rows and masked tokens per group: f64[3, G]."""
    weights = np.ones(len(leaf)), (lengths == 0).astype(np.float64), batch.n_masked.astype(np.float64)
    return np.stack([np.bincount(leaf, one, minlength=n_groups).astype(np.float64) for one in weights])


def _summaries(
    layout: Layout, keys: tuple[GroupKey, ...], counts: Floats, parts: list[Part]
) -> dict[GroupKey, Summary]:
    """Fold the parts' rows into one Summary per group, each number at its name's place."""
    tables = _Tables.empty(layout, len(keys))
    tables.fill("sums", np.arange(len(keys)), COUNTS, counts.T)
    for part in parts:
        fold = _Fold(part.leaf)
        columns, groups = part.columns.under(part.prefix), fold.groups
        tables.fill("sums", groups, columns.sums, fold(np.add, columns.sums))
        tables.fill("mins", groups, columns.mins, fold(np.minimum, columns.mins))
        tables.fill("maxs", groups, columns.maxs, fold(np.maximum, columns.maxs))
        peaks, rests = fold.logs(columns.logs)
        tables.fill("peaks", groups, columns.logs, peaks)
        tables.fill("rests", groups, columns.logs, rests)
        counted = fold.histograms(part.tokens)
        tables.histograms[f"{part.prefix}log_ratio"] |= dict(zip(groups.tolist(), counted, strict=True))
        for name, tail in part.tails.items():
            tails = [tail.cut(GROUP_SIZE)] if len(groups) == 1 else fold.tails(part.log_weights[name], part.tokens)
            tables.tails[part.prefix + name] |= dict(zip(groups.tolist(), tails, strict=True))
    return {key: tables.summary(group) for group, key in enumerate(keys)}


_KINDS = ("sums", "mins", "maxs", "peaks", "rests")


@dataclass(frozen=True)
class _Tables:
    """The numbers of G groups by kind, f64[G, K] in the layout's order; histograms and tails by name and group."""

    layout: Layout
    numbers: dict[str, Floats]
    histograms: dict[str, dict[int, Histogram]]
    tails: dict[str, dict[int, Tail]]

    @classmethod
    def empty(cls, layout: Layout, n_groups: int) -> "_Tables":
        """No numbers yet."""
        shapes = {
            "sums": (layout.sums, 0.0),
            "mins": (layout.mins, np.inf),
            "maxs": (layout.maxs, -np.inf),
            "peaks": (layout.logs, -np.inf),
            "rests": (layout.logs, 0.0),
        }
        numbers = {kind: np.full((n_groups, len(names)), nothing) for kind, (names, nothing) in shapes.items()}
        return cls(layout, numbers, {name: {} for name in layout.histograms}, {name: {} for name in layout.tails})

    def fill(self, kind: str, groups: NDArray[np.int64], names: Iterable[str], values: Floats) -> None:
        """Put values [groups, names] where they belong."""
        places = self.layout.places[kind]
        self.numbers[kind][groups[:, None], [places[name] for name in names]] = values

    def summary(self, group: int) -> Summary:
        """One group's numbers."""
        sums, mins, maxs, peaks, rests = (self.numbers[kind][group] for kind in _KINDS)
        return Summary(
            self.layout,
            sums,
            mins,
            maxs,
            peaks,
            rests,
            tuple(by_group.get(group, Histogram.empty()) for by_group in self.histograms.values()),
            tuple(by_group.get(group, Tail.empty(GROUP_SIZE)) for by_group in self.tails.values()),
        )


class _Fold:
    """Rows by group: reduces tables [B] to [G, K] with one sort (none when all rows are of one group)."""

    def __init__(self, leaf: NDArray[np.int64]) -> None:
        self.leaf = leaf
        self.order = None if (leaf == leaf[0]).all() else np.argsort(leaf, kind="stable")
        ordered = leaf if self.order is None else leaf[self.order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self.groups = ordered[self.starts]

    def __call__(self, ufunc: np.ufunc, table: Table) -> Floats:
        return ufunc.reduceat(self._rows(table), self.starts, axis=1).T

    def logs(self, table: Table) -> tuple[Floats, Floats]:
        """(peak, rest) of each group."""
        rows = self._rows(table)
        peaks = np.maximum.reduceat(rows, self.starts, axis=1)
        sizes = np.diff(np.append(self.starts, rows.shape[1]))
        rests = np.add.reduceat(np.exp(rows - np.repeat(peaks, sizes, axis=1)), self.starts, axis=1)
        return peaks.T, rests.T

    def histograms(self, tokens: Tokens) -> list[Histogram]:
        """The log-ratio histogram of each group."""
        if self.order is None:
            return [histogram(tokens.log_ratio)]
        bucket = buckets(tokens.log_ratio)
        place = torch.from_numpy(np.searchsorted(self.groups, self.leaf)).to(bucket.device)
        keyed, counts = torch.unique((tokens.ragged.broadcast(place) << 16) + bucket.long(), return_counts=True)
        places, counted = keyed.cpu().numpy(), counts.cpu().numpy()
        cuts = np.searchsorted(places, np.arange(len(self.groups) + 1) << 16)
        return [Histogram((places[a:b] & 0xFFFF).astype(np.uint16), counted[a:b]) for a, b in pairwise(cuts.tolist())]

    def tails(self, log_weights: Floats, tokens: Tokens) -> list[Tail]:
        """The upper tail of each group; log_weights: of tokens or of sequences, f64[V or B]."""
        leaf = self.leaf if len(log_weights) == len(self.leaf) else np.repeat(self.leaf, np.diff(tokens.ragged.offsets))
        order = np.argsort(leaf, kind="stable")
        ends = np.searchsorted(leaf[order], self.groups, side="right")
        return [Tail.of(log_weights[at], GROUP_SIZE) for at in np.split(order, ends[:-1])]

    def _rows(self, table: Table) -> Floats:
        rows = np.stack(tuple(table.values()))
        return rows if self.order is None else rows[:, self.order]
