"""What a plan decides about each row and each of its tokens, as plain arrays: what `filter` writes down."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch
from rlcorr_cli.core.correct import Corrected, Rejected
from rlcorr_cli.core.histograms import histogram
from rlcorr_cli.core.observe import Observed
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.plans.plan import Budget, Rejection
from rlcorr_cli.totals.histogram import Floats, Histogram

Flags = NDArray[np.bool_]
T = TypeVar("T", np.float64, np.bool_)
MAX_WEIGHT = float(np.finfo(np.float32).max)
"""The largest weight that can be written down, 3.4e38: filtered datasets hold float32."""


@dataclass(frozen=True)
class Verdict:
    """A batch of B rows (empty ones too) and V valid tokens.

    weights: f64[V], applied but not yet divided by a batch mean; None without a weighting.  keep: bool[V].
    n_valid, n_kept: f64[B].  row_weights: f64[B], mean weight of the tokens kept (1 each without a weighting), 0 of
    none.  rejected: rejection -> bool[B], rows it takes whole or takes tokens of.  distances: rejection -> counts of
    how far its units lie from where it keeps everything: |log| of a ratio, else the statistic.
    """

    weights: Floats | None
    keep: Flags
    n_valid: Floats
    n_kept: Floats
    row_weights: Floats
    rejected: Mapping[str, Flags]
    distances: Mapping[str, Histogram]


def verdict(batch: Batch, observed: Observed, weighted: bool) -> Verdict:
    """Decisions of one observed batch, on the host.  weighted: whether the plan weights, token or none in the batch."""
    n_valid = np.diff(batch.offsets).astype(np.float64)
    if observed.tokens is None or observed.corrected is None:
        none = np.zeros(batch.n_rows)
        weights = np.zeros(0) if weighted else None
        return Verdict(weights, np.zeros(0, np.bool_), n_valid, none, none, {}, {})
    tokens, corrected = observed.tokens, observed.corrected
    ragged, filled = tokens.ragged, n_valid > 0
    applied = [rejected for rejected in corrected.rejected if rejected.rejection.applied]
    weights = _weights(tokens, corrected)
    keep = np.ones(batch.n_tokens, np.bool_) if corrected.keep is None else corrected.keep.cpu().numpy()
    n_kept = _sums(ragged, keep.astype(np.float64))
    with np.errstate(over="ignore"):
        weight = n_kept if weights is None else _sums(ragged, np.where(keep, weights, 0.0))
    return Verdict(
        weights,
        keep,
        n_valid,
        _at_rows(n_kept, filled),
        _at_rows(weight / np.maximum(n_kept, 1), filled),
        {rejected.rejection.name: _at_rows(_takes(ragged, rejected), filled) for rejected in applied},
        {rejected.rejection.name: _distances(rejected) for rejected in applied},
    )


def storable(weights: Floats) -> tuple[Floats, int]:
    """Weights no larger than MAX_WEIGHT, and how many were."""
    n_larger = int((weights > MAX_WEIGHT).sum())
    return (np.minimum(weights, MAX_WEIGHT), n_larger) if n_larger else (weights, 0)


def opinions(observed: Observed) -> list[tuple[Rejection | Budget, Floats, Flags]]:
    """Each rule of a plan on an observed batch: its statistic over its units, and what it keeps, bool[V]."""
    if observed.tokens is None or observed.corrected is None:
        return []
    ragged = observed.tokens.ragged
    return [
        (rule, to_numpy(one.value), (one.keep if rule.scope == "token" else ragged.broadcast(one.keep)).cpu().numpy())
        for one in observed.corrected.rejected
        for rule in (one.rejection,)
    ]


def _weights(tokens: Tokens, corrected: Corrected) -> Floats | None:
    if corrected.weighted is None:
        return None
    one = corrected.weighted
    return to_numpy(one.applied if one.weighting.scope == "token" else tokens.ragged.broadcast(one.applied))


def _takes(ragged: Ragged, one: Rejected) -> Flags:
    """Which sequences lose anything to one rejection."""
    lost = ~one.keep.cpu().numpy()
    return np.logical_or.reduceat(lost, ragged.offsets[:-1]) if one.rejection.scope == "token" else lost


def _distances(one: Rejected) -> Histogram:
    return histogram(one.value if one.log_value is None else one.log_value.abs())


def _sums(ragged: Ragged, values: Floats) -> Floats:
    return np.add.reduceat(values, ragged.offsets[:-1])


def _at_rows(values: NDArray[T], filled: Flags) -> NDArray[T]:
    """Values of the non-empty rows at their places among all rows."""
    rows = np.zeros(len(filled), values.dtype)
    rows[filled] = values
    return rows
