"""Every quantity rlcorr adds up, summed per sequence first: one row of numbers per sequence.

Grouping, resampling and selection then work on that small table.  A Columns maps names to f64[B] arrays on the host:
sums (added over sequences), mins and maxs, and logs (log of a sum of exponentials, one value per sequence).
`metrics/` turns the totals into metrics; the names here are what it reads.

Deviations are taken about a centre (1 for ratios, 0 for log-ratios), so that a spread of 1e-6 around 1 keeps its
digits; plain sums and squares are kept beside them where weights of 1e-9 must keep theirs.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlcorr_cli.core.correct import Corrected, Rejected
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.metrics.settings import CHI2_LIMIT, RETENTION_BANDS, DiagnosticSettings
from rlcorr_cli.plans.plan import Bounds
from rlcorr_cli.totals.histogram import Floats

Table = dict[str, Floats]
Ends = tuple[float | None, float | None]
Moments = tuple[Floats, Floats, Floats]
"""Sums of x, (x - centre)^2 and x^2 over each sequence's tokens."""


@dataclass(frozen=True)
class Columns:
    """Named f64[B] arrays of one set of sequences, by how they combine."""

    sums: Table = field(default_factory=dict)
    mins: Table = field(default_factory=dict)
    maxs: Table = field(default_factory=dict)
    logs: Table = field(default_factory=dict)

    def __or__(self, other: "Columns") -> "Columns":
        """Both sets of columns side by side; a name that both have is a mistake of the caller's."""
        pairs = tuple(zip(self.tables, other.tables, strict=True))
        repeated = sorted(name for mine, others in pairs for name in mine.keys() & others.keys())
        if repeated:
            raise ValueError(f"two columns are named {', '.join(repeated)}")
        return Columns(*(mine | others for mine, others in pairs))

    @property
    def tables(self) -> tuple[Table, Table, Table, Table]:
        """sums, mins, maxs, logs."""
        return self.sums, self.mins, self.maxs, self.logs

    def prefixed(self, prefix: str) -> "Columns":
        """The same columns with a prefix before every name."""
        return Columns(*({prefix + name: values for name, values in table.items()} for table in self.tables))


@dataclass(frozen=True)
class Units:
    """What a statistic has one value for: every token ([V]), or every sequence ([B]).  Results are [B], on the host."""

    ragged: Ragged
    token_scope: bool

    @property
    def tokens(self) -> Floats | float:
        """How many tokens a unit stands for, as far as its counts do not say so already."""
        return 1.0 if self.token_scope else self.ragged.sizes

    def moments(self, x: Tensor, centre: float) -> Moments:
        """Sums over a sequence's tokens; a sequence's own value counts once per token."""
        if not self.token_scope:
            values, n = to_numpy(x), self.ragged.sizes
            return values * n, (values - centre) ** 2 * n, values**2 * n
        rows = self.ragged.rows(1 if centre == 0 else 2)
        torch.square(x, out=rows[-1])
        if centre != 0:
            torch.sub(x, centre, out=rows[0]).square_()
        sums = self.ragged.totals(rows)
        return to_numpy(self.ragged.sum(x)), sums[0], sums[-1]

    def outside(self, x: Tensor, ends: Ends) -> tuple[Floats, Floats]:
        """Units below and above their bounds; none where there is no bound."""
        if not self.token_scope:
            return _outside(to_numpy(x), ends)
        low, high = ends
        counts = self.ragged.counts(x, () if low is None else (low,), () if high is None else (high,))
        none = np.zeros(self.ragged.n_sequences)
        return none if low is None else counts[0], none if high is None else counts[-1]

    def min(self, x: Tensor) -> Floats:
        """Each sequence's smallest value."""
        return to_numpy(self.ragged.min(x) if self.token_scope else x)

    def max(self, x: Tensor) -> Floats:
        """Each sequence's largest value."""
        return to_numpy(self.ragged.max(x) if self.token_scope else x)

    def broadcast(self, x: Tensor) -> Tensor:
        """A value for every token."""
        return x if self.token_scope else self.ragged.broadcast(x)


def diagnostics(tokens: Tokens, settings: DiagnosticSettings) -> Columns:
    """What the off-policy diagnostics need, over whatever tokens are given (all of them, or those kept)."""
    shares = _shares(tokens, settings.extreme_ratio)
    return _sequences(tokens) | _divergences(tokens) | _probabilities(tokens) | shares


def corrections(tokens: Tokens, corrected: Corrected) -> Columns:
    """Weight and rejection families of a plan, and what the rejections take together."""
    columns = Columns()
    if corrected.weighted:
        weighted = corrected.weighted
        bounds, units = weighted.weighting.bounds, Units(tokens.ragged, weighted.weighting.scope == "token")
        known = None
        if weighted.raw is tokens.rho:
            known = to_numpy(tokens.rho_sum), to_numpy(tokens.rho_deviation), to_numpy(tokens.rho_square_sum)
        raw = _family(units, weighted.raw, reciprocal(bounds), 1.0, known, weighted.gate_mask)
        columns |= (raw | _log_extremes(units, weighted.log_raw)).prefixed("weight.")
        outside = raw.sums["tok_high"] + (0 if bounds.low is None else raw.sums["tok_low"])
        columns |= _applied(units, weighted.applied, outside).prefixed("applied.")
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
    inverse = rho.reciprocal() if tokens.far is None else torch.exp(-log_ratio)
    e_over_rho = e * inverse if tokens.far is None else -torch.expm1(-log_ratio)
    rows = ragged.rows(5)
    torch.square(log_ratio, out=rows[0])
    torch.abs(log_ratio, out=rows[1])
    torch.mul(e, e_over_rho, out=rows[2]).mul_(0.25).log1p_()
    if tokens.far is not None:
        # Where E^2 / (4 rho) is beyond float64: 2 log cosh(l/2) = |l| - 2 log 2 + 2 log(1 + e^-|l|), the last 0 there.
        torch.where(tokens.far, rows[1] - 2 * math.log(2), rows[2], out=rows[2])
    torch.maximum(rho, inverse, out=rows[3])
    torch.clamp(1 - rho, min=0.0, out=rows[4])
    square, size, js, mult_error, tv = ragged.totals(rows)
    total, total_e = to_numpy(tokens.log_ratio_sum), to_numpy(tokens.rho_minus_1_sum)
    sums = {
        "log_ratio": total,
        "log_ratio_sq": square,
        "abs_log_ratio": size,
        "rho_minus_1": total_e,
        "k3": total_e - total,
        "k3_reverse": total - to_numpy(ragged.sum(e_over_rho)),
        "js": js / 2,
        "mult_error": mult_error,
        "tv": tv,
        "chi2": _chi2(tokens),
    }
    if tokens.max_abs <= 340:
        logs = {"rho": np.log(to_numpy(tokens.rho_sum)), "rho_sq": np.log(to_numpy(tokens.rho_square_sum))}
    else:
        logs = {"rho": to_numpy(ragged.log_sum_exp(log_ratio)), "rho_sq": to_numpy(ragged.log_sum_exp(2 * log_ratio))}
    mins, maxs = {"log_ratio": to_numpy(tokens.log_ratio_min)}, {"log_ratio": to_numpy(tokens.log_ratio_max)}
    return Columns(sums, mins, maxs, logs)


def _chi2(tokens: Tokens) -> Floats:
    """Sum of rho^2 - 1 = E (E + 2), with l limited; [B]."""
    e = tokens.limited_rho_minus_1(CHI2_LIMIT)
    if e is tokens.rho_minus_1:
        return to_numpy(tokens.rho_deviation) + 2 * to_numpy(tokens.rho_minus_1_sum)
    return to_numpy(tokens.ragged.sum(e * (e + 2)))


def _probabilities(tokens: Tokens) -> Columns:
    """First and second moments of p = e^b, q = e^a and of the gap q - p, for their mean gap and correlation."""
    ragged, p, gap = tokens.ragged, tokens.rollout_prob, tokens.prob_gap
    rows = ragged.rows(6)
    rows[0].copy_(tokens.train_prob)
    torch.square(rows[0], out=rows[1])
    torch.mul(p, rows[0], out=rows[2])
    torch.square(p, out=rows[3])
    torch.abs(gap, out=rows[4])
    torch.square(gap, out=rows[5])
    q, q_sq, product, p_sq, size, gap_sq = ragged.totals(rows)
    sums = {
        "rollout_prob": to_numpy(ragged.sum(p)),
        "train_prob": q,
        "rollout_prob_sq": p_sq,
        "train_prob_sq": q_sq,
        "prob_product": product,
        "abs_prob_gap": size,
        "prob_gap_sq": gap_sq,
    }
    return Columns(sums=sums, maxs={"abs_prob_gap": to_numpy(ragged.max(rows[4]))})


def _shares(tokens: Tokens, extreme_ratio: float) -> Columns:
    """Counts of tokens with an extreme ratio, and inside each retention band."""
    extreme, n_bands = math.log(extreme_ratio), len(RETENTION_BANDS)
    lows, highs = zip(*((math.log(low), math.log(high)) for low, high in RETENTION_BANDS), strict=True)
    counts = tokens.ragged.counts(tokens.log_ratio, (-extreme, *lows), (extreme, *highs))
    outside = counts[: n_bands + 1] + counts[n_bands + 1 :]
    sums = {"extreme": outside[0]}
    for (low, high), n_outside in zip(RETENTION_BANDS, outside[1:], strict=True):
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


def _family(
    units: Units,
    x: Tensor,
    ends: Ends,
    centre: float,
    known: Moments | None = None,
    gate_mask: Tensor | None = None,
) -> Columns:
    """Moments, extremes and out-of-bounds counts of a statistic x over its units; ends: low, high.

    tok: sum over tokens (a sequence's value counts once per token); trim: of x clamped into the bounds (verl's
    spread); seq: over sequences, of the sequence's token mean; *_dev: of (x - centre)^2; *_sq: of x^2.  high, low:
    units outside, tok_*: their tokens, *_share: the share of a sequence's tokens, added over sequences.
    known: tok, tok_dev and tok_sq, where they have been taken before.  gate_mask: bool over units, where any can be
    outside at all.
    """
    lengths = units.ragged.sizes
    tok, dev, square = known or units.moments(x, centre)
    trimmed = (tok, dev, square) if ends == (None, None) else units.moments(x.clamp(*ends), centre)
    low, high = units.outside(x if gate_mask is None else _inside_elsewhere(gate_mask, x, ends), ends)
    tok_high, tok_low = high * units.tokens, low * units.tokens
    mean = tok / lengths
    seq_low, seq_high = _outside(mean, ends)
    sums = {
        "tok": tok,
        "tok_dev": dev,
        "tok_sq": square,
        "trim": trimmed[0],
        "trim_dev": trimmed[1],
        "trim_sq": trimmed[2],
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
    return Columns(sums, {"unit": units.min(x), "seq": mean}, {"unit": units.max(x), "seq": mean})


def _inside_elsewhere(gate_mask: Tensor, x: Tensor, ends: Ends) -> Tensor:
    """x where a gate is open, and a value inside the bounds elsewhere."""
    low, high = ends
    inside = high if high is not None else low if low is not None else 1.0
    return torch.where(gate_mask, x, torch.full_like(x, inside))


def _applied(units: Units, x: Tensor, outside: Floats) -> Columns:
    """Applied weights before any batch mean: moments as in a family, per-sequence extremes (slime's), and tokens
    outside the bounds ([B])."""
    low, high = units.min(x), units.max(x)
    tok, dev, square = units.moments(x, 1.0)
    mean = tok / units.ragged.sizes
    sums = {
        "tok": tok,
        "tok_dev": dev,
        "tok_sq": square,
        "seq": mean,
        "seq_dev": (mean - 1) ** 2,
        "seq_sq": mean**2,
        "outside": outside,
        "row_low": low,
        "row_high": high,
    }
    return Columns(sums, {"unit": low, "seq": mean}, {"unit": high, "seq": mean})


def _rejection(tokens: Tokens, rejected: Rejected) -> Columns:
    """One rejection's family, what it alone would take, and for ratios the unlimited extremes."""
    rejection = rejected.rejection
    units = Units(tokens.ragged, rejection.scope == "token")
    ends = rejection.bounds.low, rejection.bounds.high
    columns = _family(
        units, rejected.value, ends, 0.0 if rejected.log_value is None else 1.0, gate_mask=rejected.gate_mask
    )
    columns |= _losses(tokens.ragged, ~units.broadcast(rejected.keep))
    if rejected.log_value is not None:
        columns |= _log_extremes(units, rejected.log_value)
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


def _log_extremes(units: Units, log_value: Tensor) -> Columns:
    """Extremes of the reduced log-ratio before any limit, over units."""
    return Columns(mins={"log": units.min(log_value)}, maxs={"log": units.max(log_value)})


def _outside(values: Floats, ends: Ends) -> tuple[Floats, Floats]:
    """1 where a value lies below, and where above, its bounds; 0 elsewhere and without a bound."""
    low, high = ends
    below = np.zeros_like(values) if low is None else (values < low).astype(np.float64)
    return below, np.zeros_like(values) if high is None else (values > high).astype(np.float64)
