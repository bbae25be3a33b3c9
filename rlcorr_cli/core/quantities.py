"""Every quantity rlcorr adds up, summed per sequence first: one row of numbers per sequence.

Grouping, resampling and selection then work on that small table.  A Columns maps names to f64[B] arrays on the host:
sums (added over sequences), mins and maxs, and logs (log of a sum of exponentials, one value per sequence).
`metrics/` turns the totals into metrics; the names here are what it reads.

Deviations are taken about the value of equal policies (1 for ratios, 0 for log-ratios), so that a spread of 1e-6 around
1 keeps its digits; plain sums and squares are kept beside them where weights of 1e-9 must keep theirs.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlcorr_cli.core.correct import MAX_WEIGHT, Corrected, Rejected, Weighted, inside
from rlcorr_cli.core.elementwise import exp, expm1, log1p
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.core.units import Ends, Spread, Units, as_decided, outside_of
from rlcorr_cli.metrics.settings import CHI2_LIMIT, RETENTION_BANDS, DiagnosticSettings
from rlcorr_cli.plans.plan import Bounds
from rlcorr_cli.plans.statistics import STATISTICS
from rlcorr_cli.totals.histogram import Floats

Table = dict[str, Floats]


@dataclass(frozen=True)
class Columns:
    """Named f64[B] arrays of one set of sequences, by how they combine."""

    sums: Table = field(default_factory=dict)
    mins: Table = field(default_factory=dict)
    maxs: Table = field(default_factory=dict)
    logs: Table = field(default_factory=dict)

    def __or__(self, other: "Columns") -> "Columns":
        """Both sets of columns side by side."""
        return Columns.beside(self, other)

    @classmethod
    def beside(cls, *sets: "Columns") -> "Columns":
        """All of some sets of columns; a name that two of them have is a mistake of the caller's."""
        tables: list[Table] = []
        for of_kind in zip(*(columns.tables for columns in sets), strict=True):
            tables.append({name: values for table in of_kind for name, values in table.items()})
            if len(tables[-1]) < sum(map(len, of_kind)):
                names = [name for table in of_kind for name in table]
                repeated = sorted({name for name in names if names.count(name) > 1})
                raise ValueError(f"two columns are named {', '.join(repeated)}")
        return cls(*tables)

    @property
    def tables(self) -> tuple[Table, Table, Table, Table]:
        """sums, mins, maxs, logs."""
        return self.sums, self.mins, self.maxs, self.logs

    def prefixed(self, prefix: str) -> "Columns":
        """The same columns with a prefix before every name."""
        if not prefix:
            return self
        return Columns(*({prefix + name: values for name, values in table.items()} for table in self.tables))


def diagnostics(tokens: Tokens, settings: DiagnosticSettings) -> Columns:
    """What the off-policy diagnostics need, over whatever tokens are given (all of them, or those kept)."""
    shares = _shares(tokens, settings.extreme_ratio)
    return Columns.beside(_sequences(tokens), _divergences(tokens), _probabilities(tokens), shares)


def corrections(tokens: Tokens, corrected: Corrected) -> Columns:
    """Weight and rejection families of a plan, and what the rejections take together."""
    columns = Columns()
    if corrected.weighted:
        weighted = corrected.weighted
        bounds, units = weighted.weighting.bounds, Units(tokens.ragged, weighted.weighting.scope == "token")
        spread = _spread(tokens, units, weighted.raw, 1.0)
        ends = reciprocal(bounds)
        keep = None if weighted.gate_mask is None else ~weighted.gate_mask | inside(weighted.raw, *ends)
        raw = _family(units, weighted.raw, ends, centre=1.0, spread=spread, keep=keep)
        columns |= (raw | _log_extremes(tokens, units, weighted.log_raw)).prefixed("weight.")
        outside = raw.sums["tok_high"] + (0 if bounds.low is None else raw.sums["tok_low"])
        columns |= _applied(units, weighted, spread, outside).prefixed("applied.")
        if corrected.keep is not None:
            columns |= _kept_weights(units, weighted.applied, corrected.keep).prefixed("applied.")
    for rejected in corrected.rejected:
        columns |= _rejection(tokens, rejected).prefixed(f"rs.{rejected.rejection.name}.")
    if corrected.keep is not None:
        columns |= _losses(tokens.ragged, ~corrected.keep).prefixed("rs.")
    return columns


def distances(corrected: Corrected, units: Literal["all", "sequences"] = "all") -> dict[str, Tensor]:
    """How far each unit lies from where a rejection keeps everything, [V] or [B] by name, where that decides.

    |log| of a ratio, before any limit; else the statistic itself.  units: of all rejections, or of those of sequences.
    """
    return {
        f"rs.{rejected.rejection.name}.distance": rejected.value
        if rejected.log_value is None
        else rejected.log_value.abs()
        for rejected in corrected.rejected
        if rejected.rejection.by_distance and (units == "all" or rejected.rejection.scope != "token")
    }


def drift(tokens: Tokens, ppo_clip: float) -> Columns:
    """Old -> current policy, c = current - old: e^c, old - current, and tokens outside PPO's clip range."""
    if tokens.current_change is None or tokens.current_logp is None:
        return Columns()
    ragged, change = tokens.ragged, tokens.current_change
    ratio = torch.exp(change)
    low, high = ragged.counts(ratio, (1 - ppo_clip,), (1 + ppo_clip,))
    return Columns(
        sums={
            "drift.ratio": to_numpy(ragged.sum(ratio)),
            "drift.kl": -to_numpy(ragged.sum(change)),
            "drift.high": high,
            "drift.low": low,
        },
        maxs={"drift.ratio": to_numpy(ragged.max(ratio))},
    )


def reciprocal(bounds: Bounds) -> Ends:
    """A weight's bounds with a missing low read as 1 / high, as peers do for their low fractions.

    No Bounds: of a high below 1 the reciprocal lies above it.
    """
    if bounds.low is None and bounds.high is not None:
        return 1 / bounds.high, bounds.high
    return bounds.low, bounds.high


def _divergences(tokens: Tokens) -> Columns:
    """Sums of the per-token divergences.

    With E = e^l - 1: k3 = E - l; k3_reverse = l - E/rho (expm1(-l) = -E/rho); and because e^a/M + e^b/M = 2 the
    Jensen-Shannon estimate is log cosh(l/2) = log1p(E^2 / (4 rho)) / 2, one log1p and no cancellation.
    """
    ragged, log_ratio, e, rho = tokens.ragged, tokens.log_ratio, tokens.rho_minus_1, tokens.rho
    inverse = rho.reciprocal() if tokens.far is None else exp(-log_ratio)
    mult_error = ragged.sum_of(torch.maximum, rho, inverse)
    # In the inverse's own room: what a batch holds at once decides how large it may be.
    e_over_rho = inverse.mul_(e) if tokens.far is None else -expm1(-log_ratio)
    total, total_e = to_numpy(tokens.log_ratio_sum), to_numpy(tokens.rho_minus_1_sum)
    sums = {
        "log_ratio": total,
        "log_ratio_sq": ragged.sum_of(torch.square, log_ratio),
        "abs_log_ratio": ragged.sum_of(torch.abs, log_ratio),
        "rho_minus_1": total_e,
        "k3": total_e - total,
        "k3_reverse": total - to_numpy(ragged.sum(e_over_rho)),
        "js": ragged.sum_of(_twice_js, log_ratio, e, e_over_rho, tokens.far) / 2,
        "mult_error": mult_error,
        "tv": 0 - ragged.sum_of(torch.clamp_max, e, 0.0),
        "chi2": _chi2(tokens),
    }
    if tokens.max_abs <= 340:
        logs = {"rho": np.log(to_numpy(tokens.rho_sum)), "rho_sq": np.log(tokens.rho_square_sum)}
    else:
        logs = {"rho": to_numpy(ragged.log_sum_exp(log_ratio)), "rho_sq": to_numpy(ragged.log_sum_exp(2 * log_ratio))}
    mins, maxs = {"log_ratio": to_numpy(tokens.log_ratio_min)}, {"log_ratio": to_numpy(tokens.log_ratio_max)}
    return Columns(sums, mins, maxs, logs)


def _twice_js(log_ratio: Tensor, e: Tensor, e_over_rho: Tensor, far: Tensor | None, *, out: Tensor) -> None:
    """2 log cosh(l/2) of each token."""
    torch.mul(e, e_over_rho, out=out).mul_(0.25)
    log1p(out, out=out)
    if far is not None:
        # Where E^2 / (4 rho) is beyond float64: |l| - 2 log 2 + 2 log(1 + e^-|l|), the last 0 there.
        torch.where(far, log_ratio.abs() - 2 * math.log(2), out, out=out)


def _chi2(tokens: Tokens) -> Floats:
    """Sum of rho^2 - 1 = E (E + 2), with l limited; [B]."""
    e = tokens.limited_rho_minus_1(CHI2_LIMIT)
    if e is tokens.rho_minus_1:
        return tokens.rho_deviation + 2 * to_numpy(tokens.rho_minus_1_sum)
    return to_numpy(tokens.ragged.sum(e * (e + 2)))


def _probabilities(tokens: Tokens) -> Columns:
    """First and second moments of p = e^b, q = e^a and of the gap q - p, for their mean gap and correlation."""
    ragged, p = tokens.ragged, tokens.rollout_prob()
    q = tokens.train_prob_of(p)
    sums = {
        "rollout_prob": to_numpy(ragged.sum(p)),
        "train_prob": to_numpy(ragged.sum(q)),
        "rollout_prob_sq": ragged.sum_of(torch.square, p),
        "train_prob_sq": ragged.sum_of(torch.square, q),
        "prob_product": ragged.sum_of(torch.mul, p, q),
    }
    del q
    gap = tokens.prob_gap_of(p)
    sums["prob_gap_sq"] = ragged.sum_of(torch.square, gap)
    sums["abs_prob_gap"], largest = ragged.sum_and_max_of(torch.abs, gap)
    return Columns(sums=sums, maxs={"abs_prob_gap": largest})


def _shares(tokens: Tokens, extreme_ratio: float) -> Columns:
    """Counts of tokens with an extreme ratio, and inside each retention band."""
    extreme = math.log(extreme_ratio)
    bands = [(math.log(low), math.log(high)) for low, high in RETENTION_BANDS]
    n_extreme, *n_outside_bands = tokens.ragged.outside(tokens.log_ratio, [(-extreme, extreme), *bands])
    sums = {"extreme": n_extreme}
    for (low, high), n_outside in zip(RETENTION_BANDS, n_outside_bands, strict=True):
        sums[f"retained_{low}_{high}"] = tokens.ragged.sizes - n_outside
    return Columns(sums=sums)


def _sequences(tokens: Tokens) -> Columns:
    """Per-sequence quantities: perplexities, their differences d = -g, chi2 of the product, retention of e^g."""
    n, total = tokens.ragged.sizes, to_numpy(tokens.log_ratio_sum)
    rollout = to_numpy(tokens.ragged.sum(tokens.rollout_logp)) / n
    g = total / n
    train = rollout + g
    with np.errstate(over="ignore"):  # a perplexity beyond float64 is inf, and its metric then null
        perplexities = {"training_ppl": np.exp(-train), "rollout_ppl": np.exp(-rollout), "ppl_ratio": np.exp(-g)}
    sums = {
        "sequences": np.ones_like(n),
        "tokens": n,
        **perplexities,
        "training_log_ppl": -train,
        "rollout_log_ppl": -rollout,
        "log_ppl_diff": -g,
        "log_ppl_abs_diff": np.abs(g),
        "chi2_seq": np.expm1(2 * total.clip(-CHI2_LIMIT, CHI2_LIMIT)),
        "seq_tv": -np.expm1(np.minimum(total, 0.0)),
    }
    for low, high in RETENTION_BANDS:
        sums[f"retained_geo_{low}_{high}"] = ((g >= math.log(low)) & (g <= math.log(high))).astype(np.float64)
    ends = {"log_ppl_diff": -g}
    return Columns(sums, ends, ends, logs={"sequence_ratio": total, "sequence_ratio_sq": 2 * total})


def sequence_averages(columns: Columns) -> Columns:
    """Averages over tokens and then over sequences, which slime logs: k3 and rho^2 - 1."""
    n = columns.sums["tokens"]
    return Columns(sums={"seq.k3": columns.sums["k3"] / n, "seq.chi2": columns.sums["chi2"] / n})


def _spread(tokens: Tokens, units: Units, x: Tensor, centre: float) -> Spread:
    """Of x, whose numbers are known where it is rho, and taken about 1."""
    if x is not tokens.rho:
        return units.spread(x, centre)
    assert centre == 1
    return Spread(
        sum=to_numpy(tokens.rho_sum),
        deviation=tokens.rho_deviation,
        square=tokens.rho_square_sum,
        low=tokens.rho_min,
        high=tokens.rho_max,
    )


def _family(units: Units, x: Tensor, ends: Ends, *, centre: float, spread: Spread, keep: Tensor | None) -> Columns:
    """Moments, extremes and out-of-bounds counts of a statistic x over its units; ends: low, high.

    tok: sum over tokens (a sequence's value counts once per token); trim: of x clamped into the bounds (verl's
    spread); seq: over sequences, of the sequence's token mean; *_dev: of (x - centre)^2; *_sq: of x^2.  high, low:
    units outside, tok_*: their tokens, *_share: the share of a sequence's tokens, added over sequences.
    spread: of x.  keep: bool over units, which of them are inside; None where x itself tells.
    """
    lengths = units.ragged.sizes
    trimmed, (low, high) = _bounded(units, x, ends, centre=centre, spread=spread, keep=keep)
    tok_high, tok_low = high * units.tokens, low * units.tokens
    mean = spread.sum / lengths
    seq_low, seq_high = outside_of(mean, ends)
    sums = {
        "tok": spread.sum,
        "tok_dev": spread.deviation,
        "tok_sq": spread.square,
        "trim": trimmed.sum,
        "trim_dev": trimmed.deviation,
        "trim_sq": trimmed.square,
        "high": high,
        "low": low,
        "tok_high": tok_high,
        "tok_low": tok_low,
        "high_share": tok_high / lengths,
        "low_share": tok_low / lengths,
        "seq": mean,
        "seq_dev": (mean - centre) ** 2,
        "seq_sq": mean**2,
        "seq_high": seq_high,
        "seq_low": seq_low,
    }
    return Columns(sums, {"unit": spread.low, "seq": mean}, {"unit": spread.high, "seq": mean})


def _bounded(
    units: Units, x: Tensor, ends: Ends, *, centre: float, spread: Spread, keep: Tensor | None
) -> tuple[Spread, tuple[Floats, Floats]]:
    """The spread of x clamped into its bounds, and units outside them; only sequences with any are looked at again."""
    low, high = np.zeros((2, units.ragged.n_sequences))
    beyond = spread.beyond(ends)
    if keep is not None and ends != (None, None):
        beyond |= units.any_of(~keep)
    if not beyond.any():
        return spread, (low, high)
    some, at = units.some(beyond)
    values = x[at]
    trimmed = some.spread(values.clamp(*ends), centre)
    low[beyond], high[beyond] = some.outside(values if keep is None else as_decided(keep[at], values, ends), ends)
    return spread.with_some(beyond, trimmed), (low, high)


def _applied(units: Units, weighted: Weighted, raw: Spread, outside: Floats) -> Columns:
    """Applied weights before any batch mean: moments and means beyond the bounds as in a family, per-sequence extremes
    (slime's), and tokens outside the bounds ([B])."""
    spread = _spread_of_applied(units, weighted, raw)
    # A mean lies between its extremes; rounding must not carry that of clamped weights beyond the bound.
    mean = (spread.sum / units.ragged.sizes).clip(spread.low, spread.high)
    seq_low, seq_high = outside_of(mean, reciprocal(weighted.weighting.bounds))
    sums = {
        "tok": spread.sum,
        "tok_dev": spread.deviation,
        "tok_sq": spread.square,
        "seq": mean,
        "seq_dev": (mean - 1) ** 2,
        "seq_sq": mean**2,
        "seq_high": seq_high,
        "seq_low": seq_low,
        "outside": outside,
        "row_low": spread.low,
        "row_high": spread.high,
    }
    return Columns(sums, {"unit": spread.low, "seq": mean}, {"unit": spread.high, "seq": mean})


def _kept_weights(units: Units, applied: Tensor, keep: Tensor) -> Columns:
    """Applied weights of units that rejections have gone over, and their squares; keep: bool [V].

    A sequence's weight counts by the share of its tokens that is kept.
    """
    ragged, kept = units.ragged, keep.double()
    if units.token_scope:
        weights = applied * kept
        return Columns(sums={"kept": to_numpy(ragged.sum(weights)), "kept_sq": ragged.sum_of(torch.square, weights)})
    weights = to_numpy(applied) * to_numpy(ragged.sum(kept)) / ragged.sizes
    return Columns(sums={"kept": weights, "kept_sq": weights**2})


def _spread_of_applied(units: Units, weighted: Weighted, raw: Spread) -> Spread:
    """That of the raw weights but in sequences that the bounds change."""
    bounds = weighted.weighting.bounds
    changed = raw.beyond((bounds.low, MAX_WEIGHT if bounds.high is None else min(bounds.high, MAX_WEIGHT)))
    if not changed.any():
        return raw
    some, at = units.some(changed)
    return raw.with_some(changed, some.spread(weighted.applied[at], 1.0))


def _rejection(tokens: Tokens, rejected: Rejected) -> Columns:
    """One rejection's family, what it alone would take, and for ratios the unlimited extremes."""
    rejection = rejected.rejection
    units = Units(tokens.ragged, rejection.scope == "token")
    ends = rejection.bounds.low, rejection.bounds.high
    centre = STATISTICS[rejection.statistic].where_equal
    spread = _spread(tokens, units, rejected.value, centre)
    columns = _family(units, rejected.value, ends, centre=centre, spread=spread, keep=rejected.keep)
    columns |= _losses(tokens.ragged, ~units.broadcast(rejected.keep))
    if rejected.log_value is not None:
        columns |= _log_extremes(tokens, units, rejected.log_value)
    if rejection.is_veto:
        assert rejection.bounds.low is not None
        (below,) = tokens.ragged.counts(tokens.log_ratio, (math.log(rejection.bounds.low),), ())
        columns |= Columns(sums={"catastrophic": below, "catastrophic_share": below / tokens.ragged.sizes})
    return columns


def _losses(ragged: Ragged, lost: Tensor) -> Columns:
    """Tokens lost, sequences that lose any, sequences that lose all; lost: bool [V]."""
    n_lost = to_numpy(ragged.sum(lost.double()))
    sums = {
        "masked": n_lost,
        "seq_masked": (n_lost > 0).astype(np.float64),
        "seq_dropped": (n_lost == ragged.sizes).astype(np.float64),
    }
    return Columns(sums=sums)


def _log_extremes(tokens: Tokens, units: Units, log_value: Tensor) -> Columns:
    """Extremes of the reduced log-ratio before any limit, over units."""
    low = high = log_value
    if log_value is tokens.log_ratio:
        low, high = tokens.log_ratio_min, tokens.log_ratio_max
    elif units.token_scope:
        low, high = units.ragged.min(log_value), units.ragged.max(log_value)
    return Columns(mins={"log": to_numpy(low)}, maxs={"log": to_numpy(high)})
