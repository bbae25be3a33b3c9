"""A batch -> one Summary per group, and the batch's bootstrap replicates.

observe(a ++ b) == observe(a) + observe(b), to rounding.  Adding a quantity means adding it in `columns.py` and
reading it in `metrics.py`; nothing here knows a name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, Decision, GroupKey
from rlcorr_cli.core import bootstrap
from rlcorr_cli.core.binning import draw
from rlcorr_cli.core.correct import Corrected, correct
from rlcorr_cli.core.decisions import correct_batch, decide, nothing_decided
from rlcorr_cli.core.histograms import buckets, histogram
from rlcorr_cli.core.quantities import Columns, Table, corrections, diagnostics, drift, sequence_averages
from rlcorr_cli.core.ragged import Ragged
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.metrics.settings import Thresholds
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.binned import Pictures
from rlcorr_cli.totals.histogram import Floats, Histogram
from rlcorr_cli.totals.summary import Layout, Replicates, Summary

Cuts = Mapping[str, Mapping[GroupKey, float]]
"""Budget -> leaf -> the largest value of its statistic that stays."""


@dataclass(frozen=True)
class Observation:
    """What to measure.  seed: of the bootstrap; None for no intervals.  pictures: whether to count for those, too."""

    plan: Plan
    thresholds: Thresholds = field(default_factory=Thresholds)
    has_current: bool = False
    seed: int | None = 0
    pictures: bool = False


@dataclass(frozen=True)
class Observed:
    """A batch's summaries by group key, its replicates (None without a seed or without a token), its pictures and what
    was decided about its rows, where those are asked for."""

    groups: dict[GroupKey, Summary]
    replicates: Replicates | None
    pictures: Pictures | None = None
    decision: Decision | None = None


@dataclass(frozen=True)
class Part:
    """Columns of some sequences with the group of each (i64[B]), and values to count, under one prefix."""

    columns: Columns
    leaf: NDArray[np.int64]
    tokens: Tokens
    prefix: str


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
    tokens = Tokens.of(batch, device)
    rewards = None if batch.reward is None else batch.reward[filled]
    corrected = correct_batch(batch, tokens, observation.plan, cuts or {})
    parts, base = _parts(tokens, corrected, observation, leaf[filled], rewards)
    replicates = None if observation.seed is None else bootstrap.resample(tokens, base, observation.seed)
    pictures = draw(tokens, corrected) if observation.pictures else None
    decision = decide(batch, tokens, corrected) if decides else None
    return Observed(_summaries(layout, batch.keys, counts, parts), replicates, pictures, decision)


@lru_cache(maxsize=64)
def layout_of(observation: Observation) -> Layout:
    """The names an observation yields: those of observing one token."""
    zero = torch.zeros(1, dtype=torch.float64)
    ragged = Ragged(np.array([0, 1]), torch.device("cpu"))
    plan = observation.plan
    tokens = Tokens(ragged, zero, zero, zero if observation.has_current else None, zero, zero)
    corrected = correct(tokens, plan, {budget.name: np.zeros(1) for budget in plan.budgets})
    parts, _ = _parts(tokens, corrected, observation, np.zeros(1, np.int64), None)
    if len(parts) == 1 and plan.rules:
        parts.append(Part(parts[0].columns, parts[0].leaf, tokens, "kept."))
    tables = [part.columns.under(part.prefix) for part in parts]
    return Layout(
        sums=("rows", "empty", "masked_tokens", *(name for t in tables for name in t.sums)),
        lows=tuple(name for t in tables for name in t.lows),
        highs=tuple(name for t in tables for name in t.highs),
        logs=tuple(name for t in tables for name in t.logs),
        histograms=tuple(f"{part.prefix}log_ratio" for part in parts),
    )


def _parts(
    tokens: Tokens, corrected: Corrected, observation: Observation, leaf: NDArray[np.int64], rewards: Floats | None
) -> tuple[list[Part], Columns]:
    """All tokens, and what the plan keeps; and the diagnostics of all tokens alone, for resampling."""
    base = _diagnostics(tokens, observation.thresholds, rewards)
    extra = drift(tokens, observation.thresholds.ppo_clip) + corrections(tokens, corrected)
    parts = [Part(base + extra, leaf, tokens, "")]
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
    given = np.full(tokens.ragged.n_sequences, np.nan) if rewards is None else rewards
    unknown = np.isnan(given)
    reward = Columns(sums={"reward": np.where(unknown, 0.0, given), "rewarded": (~unknown).astype(np.float64)})
    return columns + sequence_averages(columns) + reward


def _counts(batch: Batch, leaf: NDArray[np.int64], lengths: NDArray[np.int64], n_groups: int) -> Floats:
    """Rows, empty rows and masked tokens per group: f64[3, G]."""
    weights = np.ones(len(leaf)), (lengths == 0).astype(np.float64), batch.n_masked.astype(np.float64)
    return np.stack([np.bincount(leaf, one, minlength=n_groups).astype(np.float64) for one in weights])


def _summaries(
    layout: Layout, keys: tuple[GroupKey, ...], counts: Floats, parts: list[Part]
) -> dict[GroupKey, Summary]:
    """Fold the parts' rows into one Summary per group."""
    sums, lows = np.zeros((len(keys), len(layout.sums))), np.full((len(keys), len(layout.lows)), np.inf)
    highs = np.full((len(keys), len(layout.highs)), -np.inf)
    peaks, rests = np.full((len(keys), len(layout.logs)), -np.inf), np.zeros((len(keys), len(layout.logs)))
    histograms = [[Histogram.empty() for _ in layout.histograms] for _ in keys]
    sums[:, :3] = counts.T
    sum_at, low_at, high_at, log_at = 3, 0, 0, 0
    for i, part in enumerate(parts):
        fold = _Fold(part.leaf)
        columns, at = part.columns, fold.groups
        sums[at, sum_at : (sum_at := sum_at + len(columns.sums))] = fold(np.add, columns.sums)
        lows[at, low_at : (low_at := low_at + len(columns.lows))] = fold(np.minimum, columns.lows)
        highs[at, high_at : (high_at := high_at + len(columns.highs))] = fold(np.maximum, columns.highs)
        into = slice(log_at, log_at := log_at + len(columns.logs))
        peaks[at, into], rests[at, into] = fold.logs(columns.logs)
        for group, counted in zip(at, fold.histograms(part.tokens), strict=True):
            histograms[group][i] = counted
    return {
        key: Summary(layout, sums[g], lows[g], highs[g], peaks[g], rests[g], tuple(histograms[g]))
        for g, key in enumerate(keys)
    }


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
        found = buckets(tokens.log_ratio)
        place = torch.from_numpy(np.searchsorted(self.groups, self.leaf)).to(found.device)
        keyed, counts = torch.unique((tokens.ragged.spread(place) << 16) + found.long(), return_counts=True)
        places, counted = keyed.cpu().numpy(), counts.cpu().numpy()
        cuts = np.searchsorted(places, np.arange(len(self.groups) + 1) << 16)
        return [Histogram((places[a:b] & 0xFFFF).astype(np.uint16), counted[a:b]) for a, b in pairwise(cuts.tolist())]

    def _rows(self, table: Table) -> Floats:
        rows = np.stack(tuple(table.values()))
        return rows if self.order is None else rows[:, self.order]
