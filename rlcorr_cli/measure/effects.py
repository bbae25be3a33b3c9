"""What a plan does to each sequence: its weights' and rejections' families of numbers, f64[B] by name.

A statistic has one value for every token ([V]) or for every sequence ([B], NumPy's); both are called its units.  A
family holds its moments, its extremes, and how much of it lies outside the bounds, taken over each sequence's tokens: a
sequence's own value counts once for each of its tokens.
"""

import math
from dataclasses import fields
from typing import Literal

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array, Segments, namespace, product
from rlcorr_cli.measure.correct import MAX_WEIGHT, Corrected, Rejected, Weighted, inside
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.measure.tokens import Tokens, exp_as_rho
from rlcorr_cli.plans.plan import STATISTICS, Bounds
from rlcorr_cli.totals.flat import Flags, Floats

Ends = tuple[float | None, float | None]
"""A statistic's bounds, low and high; None for none."""


@frozen(kw_only=True)
class Moments:
    """Of a statistic x over each sequence's tokens, [B]: sums of x, (x - centre)^2 and x^2, the least and largest x."""

    sum: Floats
    deviation: Floats
    square: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, rows: Segments, x: Array, centre: float, *, per_token: bool) -> "Moments":
        """Of x over the tokens of some rows; a sequence's own value counts once per token."""
        if not per_token:
            n = rows.sizes
            return cls(sum=x * n, deviation=(x - centre) ** 2 * n, square=x**2 * n, low=x, high=x)
        square = rows.sum(x * x)
        deviation = square if centre == 0 else rows.sum((x - centre) * (x - centre))
        return cls(sum=rows.sum(x), deviation=deviation, square=square, low=rows.min(x), high=rows.max(x))

    def out_of_bounds(self, ends: Ends) -> Flags:
        """Sequences with anything below or above its bounds."""
        return (_below(self.low, ends[0]) + _above(self.high, ends[1])) > 0

    def with_some(self, sequences: Flags, others: "Moments") -> "Moments":
        """The same but for some sequences, whose numbers are in `others` one after another."""
        if sequences.all():
            return others
        columns = {field.name: getattr(self, field.name).copy() for field in fields(self)}
        for name, column in columns.items():
            column[sequences] = getattr(others, name)
        return Moments(**columns)


def corrections(tokens: Tokens, corrected: Corrected) -> Columns:
    """Weight and rejection families of a plan, and what the rejections take together."""
    columns = Columns()
    if corrected.weighted:
        columns |= _weights(tokens, corrected.weighted, corrected.keep)
    for rejected in corrected.rejected:
        columns |= _rejection(tokens, rejected).prefixed(f"rs.{rejected.rejection.name}.")
    if corrected.keep is not None:
        columns |= _losses(tokens.rows, tokens.rows.count(~corrected.keep)).prefixed("rs.")
    return columns


def distances(corrected: Corrected, units: Literal["all", "sequences"] = "all") -> dict[str, Array]:
    """How far each unit lies from where a rejection keeps everything, [V] or [B] by name, where that decides.

    |log| of a ratio, before any limit; else the statistic itself.  units: of all rejections, or of those of sequences.
    """
    values: dict[str, Array] = {}
    for rejected in corrected.rejected:
        rejection, log_value = rejected.rejection, rejected.log_value
        if rejection.by_distance and (units == "all" or rejection.scope != "token"):
            values[f"rs.{rejection.name}.distance"] = rejected.value if log_value is None else abs(log_value)
    return values


def reciprocal(bounds: Bounds) -> Ends:
    """A weight's bounds with a missing low read as 1 / high, as peers do for their low fractions.

    No Bounds: of a high below 1 the reciprocal lies above it.
    """
    if bounds.low is None and bounds.high is not None:
        return 1 / bounds.high, bounds.high
    return bounds.low, bounds.high


def _weights(tokens: Tokens, weighted: Weighted, keep: Array | None) -> Columns:
    """The families of raw and of applied weights.  keep: bool[V], what all rejections leave."""
    rows, bounds, per_token = tokens.rows, weighted.weighting.bounds, weighted.weighting.scope == "token"
    moments, ends = _moments(tokens, weighted.raw, 1.0, per_token=per_token), reciprocal(bounds)
    inside_ends = None if weighted.gate_mask is None else ~weighted.gate_mask | inside(weighted.raw, *ends)
    raw = _family(rows, weighted.raw, ends, centre=1.0, moments=moments, keep=inside_ends, per_token=per_token)
    raw |= _log_extremes(tokens, weighted.log_raw, per_token=per_token)
    outside = raw.sums["tok_high"] + (0 if bounds.low is None else raw.sums["tok_low"])

    # Those of the raw weights but in sequences that the bounds change.
    changed = moments.out_of_bounds((bounds.low, MAX_WEIGHT if bounds.high is None else min(bounds.high, MAX_WEIGHT)))
    if changed.any():
        some, values = _of_sequences(rows, weighted.applied, changed, per_token=per_token)
        moments = moments.with_some(changed, Moments.of(some, values, 1.0, per_token=per_token))
    # A mean lies between its extremes; rounding must not carry that of clamped weights beyond the bound.
    mean = (moments.sum / rows.sizes).clip(moments.low, moments.high)
    sums = {
        "tok": moments.sum,
        "tok_dev": moments.deviation,
        "tok_sq": moments.square,
        "seq": mean,
        "seq_dev": (mean - 1) ** 2,
        "seq_sq": mean**2,
        "seq_high": _above(mean, ends[1]),
        "seq_low": _below(mean, ends[0]),
        "outside": outside,
        "row_low": moments.low,
        "row_high": moments.high,
    }
    if keep is not None:
        # A sequence's weight counts by the share of its tokens that is kept.
        if per_token:
            kept = tokens.xp.where(keep, weighted.applied, 0.0)
            sums |= {"kept": rows.sum(kept), "kept_sq": rows.sum(kept * kept)}
        else:
            kept = product(weighted.applied, rows.count(keep) / rows.sizes)
            sums |= {"kept": kept, "kept_sq": kept**2}
    applied = Columns(sums, {"unit": moments.low, "seq": mean}, {"unit": moments.high, "seq": mean})
    return raw.prefixed("weight.") | applied.prefixed("applied.")


def _rejection(tokens: Tokens, rejected: Rejected) -> Columns:
    """One rejection's family, what it alone would take, and for ratios the unlimited extremes."""
    rejection, rows = rejected.rejection, tokens.rows
    per_token, ends = rejection.scope == "token", (rejection.bounds.low, rejection.bounds.high)
    centre = STATISTICS[rejection.statistic].where_equal
    columns = _family(
        rows,
        rejected.value,
        ends,
        centre=centre,
        moments=_moments(tokens, rejected.value, centre, per_token=per_token),
        keep=rejected.keep,
        per_token=per_token,
    )
    of_tokens = per_token or rejection.gates_tokens
    n_lost = rows.count(~rejected.on_tokens(rows)) if of_tokens else np.where(rejected.keep, 0.0, rows.sizes)
    columns |= _losses(rows, n_lost)
    if rejected.log_value is not None:
        columns |= _log_extremes(tokens, rejected.log_value, per_token=per_token)
    if rejection.is_veto:
        assert rejection.bounds.low is not None
        below = rows.count(tokens.log_ratio < math.log(rejection.bounds.low))
        columns |= Columns(sums={"catastrophic": below, "catastrophic_share": below / rows.sizes})
    return columns


def _family(
    rows: Segments, x: Array, ends: Ends, *, centre: float, moments: Moments, keep: Array | None, per_token: bool
) -> Columns:
    """Moments, extremes and out-of-bounds counts of a statistic x over its units; ends: low, high.

    tok: sum over tokens (a sequence's value counts once per token); trim: of x clamped into the bounds (verl's
    spread); seq: over sequences, of the sequence's token mean; *_dev: of (x - centre)^2; *_sq: of x^2.  high, low:
    units outside, tok_*: their tokens, *_share: the share of a sequence's tokens, added over sequences.
    moments: of x.  keep: bool over units, which of them are inside; None where x itself tells.
    """
    trimmed, low, high = moments, *np.zeros((2, rows.n_rows))
    beyond = moments.out_of_bounds(ends)
    if keep is not None and ends != (None, None):
        beyond |= (rows.count(~keep) > 0) if per_token else ~keep
    if beyond.any():
        # Only sequences with anything outside are looked at again.
        some, values = _of_sequences(rows, x, beyond, per_token=per_token)
        clamped = Moments.of(some, namespace(values).clip(values, *ends), centre, per_token=per_token)
        trimmed = moments.with_some(beyond, clamped)
        if keep is not None:
            values = _as_decided(_of_sequences(rows, keep, beyond, per_token=per_token)[1], values, ends)
        if ends[0] is not None:
            low[beyond] = some.count(values < ends[0]) if per_token else values < ends[0]
        if ends[1] is not None:
            high[beyond] = some.count(values > ends[1]) if per_token else values > ends[1]
    tokens_of_unit = 1.0 if per_token else rows.sizes
    tok_high, tok_low, mean = high * tokens_of_unit, low * tokens_of_unit, moments.sum / rows.sizes
    sums = {
        "tok": moments.sum,
        "tok_dev": moments.deviation,
        "tok_sq": moments.square,
        "trim": trimmed.sum,
        "trim_dev": trimmed.deviation,
        "trim_sq": trimmed.square,
        "high": high,
        "low": low,
        "tok_high": tok_high,
        "tok_low": tok_low,
        "high_share": tok_high / rows.sizes,
        "low_share": tok_low / rows.sizes,
        "seq": mean,
        "seq_dev": (mean - centre) ** 2,
        "seq_sq": mean**2,
        "seq_high": _above(mean, ends[1]),
        "seq_low": _below(mean, ends[0]),
    }
    return Columns(sums, {"unit": moments.low, "seq": mean}, {"unit": moments.high, "seq": mean})


def _moments(tokens: Tokens, x: Array, centre: float, *, per_token: bool) -> Moments:
    """Of x; where it is rho, whose numbers are known, taken about 1."""
    if x is not tokens.rho:
        return Moments.of(tokens.rows, x, centre, per_token=per_token)
    assert centre == 1
    return Moments(
        sum=tokens.rho_sum,
        deviation=tokens.rho_deviation,
        square=tokens.rho_square_sum,
        low=exp_as_rho(tokens.log_ratio_min),
        high=exp_as_rho(tokens.log_ratio_max),
    )


def _of_sequences(rows: Segments, x: Array, sequences: Flags, *, per_token: bool) -> tuple[Segments, Array]:
    """Some sequences, and their units' values."""
    if sequences.all():
        return rows, x
    some, tokens = rows.select_rows(sequences)
    return some, x[tokens] if per_token else x[sequences]


def _losses(rows: Segments, n_lost: Floats) -> Columns:
    """Tokens lost, sequences that lose any, sequences that lose all; n_lost: of each sequence."""
    sums = {
        "masked": n_lost,
        "seq_masked": (n_lost > 0).astype(np.float64),
        "seq_dropped": (n_lost == rows.sizes).astype(np.float64),
    }
    return Columns(sums=sums)


def _log_extremes(tokens: Tokens, log_value: Array, *, per_token: bool) -> Columns:
    """Extremes of the reduced log-ratio before any limit, over units."""
    if log_value is tokens.log_ratio:
        low, high = tokens.log_ratio_min, tokens.log_ratio_max
    elif per_token:
        low, high = tokens.rows.min(log_value), tokens.rows.max(log_value)
    else:
        low = high = log_value
    return Columns(mins={"log": low}, maxs={"log": high})


def _below(values: Floats, low: float | None) -> Floats:
    """1 where a sequence's value lies below its bound, 0 elsewhere and without a bound."""
    return np.zeros_like(values) if low is None else (values < low).astype(np.float64)


def _above(values: Floats, high: float | None) -> Floats:
    """1 where a sequence's value lies above its bound, 0 elsewhere and without a bound."""
    return np.zeros_like(values) if high is None else (values > high).astype(np.float64)


def _as_decided(keep: Array, x: Array, ends: Ends) -> Array:
    """A value inside the bounds where x is kept, and one beyond the nearer bound elsewhere.

    A ratio is judged by its log, and within rounding of a bound its e^l need not lie on the same side.
    """
    xp, (low, high) = namespace(x), ends
    middle = math.inf if high is None else -math.inf if low is None else (low + high) / 2
    inside_value = high if high is not None else low
    assert inside_value is not None
    beyond = xp.where(x < middle, xp.full_like(x, -math.inf), xp.full_like(x, math.inf))
    return xp.where(keep, inside_value, beyond)
