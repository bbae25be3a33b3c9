"""Every quantity rlcorr adds up, summed per sequence first: one row of numbers per sequence.

Grouping, resampling and selection then work on that small table.  A Columns maps names to f64[B] tensors:
sums (added over sequences), lows and highs, and logs (log of a sum of exponentials, one value per sequence).
`metrics.py` turns the totals into metrics; the names here are what it reads.

Deviations are taken about a centre (1 for ratios, 0 for log-ratios), so that a spread of 1e-6 around 1 keeps its
digits; plain sums and squares are kept beside them where weights of 1e-9 must keep theirs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlcorr_cli.core.correct import Corrected, Rejected, Tokens
from rlcorr_cli.core.ragged import Ragged
from rlcorr_cli.plan import Bounds
from rlcorr_cli.thresholds import CHI2_LIMIT, RETENTION_BANDS, Thresholds

Table = dict[str, Tensor]
Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class Columns:
    """Named f64[B] tensors of one set of sequences, by how they combine."""

    sums: Table = field(default_factory=dict)
    lows: Table = field(default_factory=dict)
    highs: Table = field(default_factory=dict)
    logs: Table = field(default_factory=dict)

    def __add__(self, other: "Columns") -> "Columns":
        """Both sets of columns side by side."""
        return Columns(self.sums | other.sums, self.lows | other.lows, self.highs | other.highs, self.logs | other.logs)

    def under(self, prefix: str) -> "Columns":
        """The same columns with a prefix before every name."""
        tables = (self.sums, self.lows, self.highs, self.logs)
        return Columns(*({prefix + name: values for name, values in table.items()} for table in tables))


@dataclass(frozen=True)
class Units:
    """What a statistic has one value for: every token ([V]), or every sequence ([B]).  Results are [B]."""

    ragged: Ragged
    token_scope: bool

    @property
    def tokens(self) -> Tensor:
        """How many tokens a unit stands for, as far as its counts do not say so already."""
        return torch.ones_like(self.ragged.lengths) if self.token_scope else self.ragged.lengths

    def over_tokens(self, x: Tensor) -> Tensor:
        """Sum over a sequence's tokens."""
        return self.ragged.sum(x) if self.token_scope else x * self.ragged.lengths

    def above(self, x: Tensor, bound: float | None) -> Tensor:
        """Units above a bound."""
        return self.ragged.above(x, bound) if self.token_scope else _beyond(torch.gt, x, bound)

    def below(self, x: Tensor, bound: float | None) -> Tensor:
        """Units below a bound."""
        return self.ragged.below(x, bound) if self.token_scope else _beyond(torch.lt, x, bound)

    def low(self, x: Tensor) -> Tensor:
        """Each sequence's smallest value."""
        return self.ragged.low(x) if self.token_scope else x

    def high(self, x: Tensor) -> Tensor:
        """Each sequence's largest value."""
        return self.ragged.high(x) if self.token_scope else x

    def spread(self, x: Tensor) -> Tensor:
        """A value for every token."""
        return x if self.token_scope else self.ragged.spread(x)


def diagnostics(tokens: Tokens, thresholds: Thresholds) -> Columns:
    """What the off-policy diagnostics need, over whatever tokens are given (all of them, or those kept)."""
    tables = _divergences(tokens), _probabilities(tokens), _shares(tokens, thresholds.extreme_ratio)
    return sum(tables, start=_sequences(tokens))


def corrections(tokens: Tokens, corrected: Corrected) -> Columns:
    """Weight and rejection families of a plan, and what the rejections take together."""
    columns = Columns()
    if corrected.weighted:
        one = corrected.weighted
        bounds, units = one.weighting.bounds, Units(tokens.ragged, one.weighting.scope == "token")
        raw = _family(units, one.raw, reciprocal(bounds), centre=1.0)
        columns += (raw + _log_extremes(units, one.log_raw)).under("weight.")
        outside = raw.sums["tok_high"] + (0 if bounds.low is None else raw.sums["tok_low"])
        columns += _applied(units, one.applied, outside).under("applied.")
    for rejected in corrected.rejected:
        columns += _rejection(tokens, rejected).under(f"rs.{rejected.rejection.name}.")
    if corrected.keep is not None:
        columns += _losses(tokens.ragged, ~corrected.keep).under("rs.")
    return columns


def drift(tokens: Tokens, ppo_clip: float) -> Columns:
    """Old -> current policy, c = current - old: e^c, old - current, and tokens outside PPO's clip range."""
    if tokens.current_logp is None:
        return Columns()
    change = tokens.current_logp - tokens.train_logp
    ratio = torch.exp(change)
    total = tokens.ragged.sum
    return Columns(
        sums={
            "drift.ratio": total(ratio),
            "drift.kl": -total(change),
            "drift.high": tokens.ragged.above(ratio, 1 + ppo_clip),
            "drift.low": tokens.ragged.below(ratio, 1 - ppo_clip),
        },
        highs={"drift.ratio": tokens.ragged.high(ratio)},
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
    total, log_ratio, e = tokens.ragged.sum, tokens.log_ratio, tokens.rho_minus_1
    rho = tokens.rho
    inverse = rho.reciprocal()
    e_over_rho = e * inverse
    sums = {
        "log_ratio": tokens.log_ratio_sum,
        "log_ratio_sq": total(log_ratio.square()),
        "abs_log_ratio": total(log_ratio.abs()),
        "k3": total(e - log_ratio),
        "k3_reverse": total(log_ratio - e_over_rho),
        "js": total(torch.log1p(e * e_over_rho / 4)) / 2,
        "mult_error": total(torch.maximum(rho, inverse)),
        "chi2": _chi2(tokens),
    }
    if tokens.reach <= 340:
        logs = {"rho": tokens.rho_sum.log(), "rho_sq": total(rho.square()).log()}
    else:
        logs = {"rho": tokens.ragged.log_sum_exp(log_ratio), "rho_sq": tokens.ragged.log_sum_exp(2 * log_ratio)}
    return Columns(
        sums=sums,
        lows={"log_ratio": tokens.log_ratio_low},
        highs={"log_ratio": tokens.log_ratio_high},
        logs=logs,
    )


def _chi2(tokens: Tokens) -> Tensor:
    """Sum of rho^2 - 1 = E (E + 2), with l limited; [B]."""
    e = tokens.limited_rho_minus_1(CHI2_LIMIT)
    if e is tokens.rho_minus_1:
        return tokens.rho_deviation + 2 * tokens.ragged.sum(e)
    return tokens.ragged.sum(e * (e + 2))


def _probabilities(tokens: Tokens) -> Columns:
    """First and second moments of p = e^b, q = e^a and of the gap q - p, for their mean gap and correlation."""
    total, p, gap = tokens.ragged.sum, tokens.rollout_prob, tokens.prob_gap
    q, size = p * tokens.rho, gap.abs()
    sums = {
        "rollout_prob": total(p),
        "train_prob": total(q),
        "rollout_prob_sq": total(p.square()),
        "train_prob_sq": total(q.square()),
        "prob_product": total(p * q),
        "abs_prob_gap": total(size),
        "prob_gap_sq": total(gap.square()),
    }
    return Columns(sums=sums, highs={"abs_prob_gap": tokens.ragged.high(size)})


def _shares(tokens: Tokens, extreme_ratio: float) -> Columns:
    """Counts of tokens with an extreme ratio, and inside each retention band."""
    ragged, log_ratio, extreme = tokens.ragged, tokens.log_ratio, math.log(extreme_ratio)
    sums = {"extreme": ragged.above(log_ratio, extreme) + ragged.below(log_ratio, -extreme)}
    for low, high in RETENTION_BANDS:
        outside = ragged.above(log_ratio, math.log(high)) + ragged.below(log_ratio, math.log(low))
        sums[f"retained_{low}_{high}"] = ragged.lengths - outside
    return Columns(sums=sums)


def _sequences(tokens: Tokens) -> Columns:
    """Per-sequence quantities: perplexities, their differences d = -g, chi2 of the product, retention of e^g."""
    n = tokens.ragged.lengths
    train = tokens.ragged.sum(tokens.train_logp) / n
    g = tokens.log_ratio_sum / n
    rollout = train - g
    s = tokens.log_ratio_sum.clamp(-CHI2_LIMIT, CHI2_LIMIT)
    sums = {
        "sequences": torch.ones_like(n),
        "tokens": n,
        "training_ppl": torch.exp(-train),
        "rollout_ppl": torch.exp(-rollout),
        "training_log_ppl": -train,
        "rollout_log_ppl": -rollout,
        "log_ppl_diff": -g,
        "log_ppl_abs_diff": g.abs(),
        "ppl_ratio": torch.exp(-g),
        "chi2_seq": torch.expm1(2 * s),
    }
    for low, high in RETENTION_BANDS:
        sums[f"retained_geo_{low}_{high}"] = ((g >= math.log(low)) & (g <= math.log(high))).double()
    return Columns(
        sums=sums,
        lows={"log_ppl_diff": -g},
        highs={"log_ppl_diff": -g},
        logs={"sequence_ratio": tokens.log_ratio_sum, "sequence_ratio_sq": 2 * tokens.log_ratio_sum},
    )


def sequence_averages(columns: Columns) -> Columns:
    """Averages over tokens and then over sequences, which slime logs: k3 and rho^2 - 1."""
    n = columns.sums["tokens"]
    return Columns(sums={"seq.k3": columns.sums["k3"] / n, "seq.chi2": columns.sums["chi2"] / n})


def _family(units: Units, x: Tensor, ends: Ends, centre: float) -> Columns:
    """Moments, extremes and out-of-bounds counts of a statistic x over its units; ends: low, high.

    tok: sum over tokens (a sequence's value counts once per token); trim: of x clamped into the bounds (verl's
    spread); seq: over sequences, of the sequence's token mean; *_dev: of (x - centre)^2; *_sq: of x^2.  high, low:
    units outside, tok_*: their tokens, *_share: the share of a sequence's tokens, added over sequences.
    """
    lengths = units.ragged.lengths
    trim = x if ends == (None, None) else x.clamp(*ends)
    low, high = units.below(x, ends[0]), units.above(x, ends[1])
    tok_high, tok_low = high * units.tokens, low * units.tokens
    tok = units.over_tokens(x)
    mean = tok / lengths
    sums = {
        "tok": tok,
        "tok_dev": units.over_tokens((x - centre).square()),
        "trim": units.over_tokens(trim),
        "trim_dev": units.over_tokens((trim - centre).square()),
        "trim_sq": units.over_tokens(trim.square()),
        "high": high,
        "low": low,
        "tok_high": tok_high,
        "tok_low": tok_low,
        "high_share": tok_high / lengths,
        "low_share": tok_low / lengths,
        "seq": mean,
        "seq_dev": (mean - centre).square(),
        "seq_high": _beyond(torch.gt, mean, ends[1]),
        "seq_low": _beyond(torch.lt, mean, ends[0]),
    }
    return Columns(sums, {"unit": units.low(x), "seq": mean}, {"unit": units.high(x), "seq": mean})


def _applied(units: Units, x: Tensor, outside: Tensor) -> Columns:
    """Applied weights before any batch mean: moments as in a family, per-sequence extremes (slime's), and tokens
    outside the bounds ([B])."""
    tok = units.over_tokens(x)
    mean = tok / units.ragged.lengths
    low, high = units.low(x), units.high(x)
    sums = {
        "tok": tok,
        "tok_dev": units.over_tokens((x - 1).square()),
        "tok_sq": units.over_tokens(x.square()),
        "seq": mean,
        "seq_dev": (mean - 1).square(),
        "seq_sq": mean.square(),
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
    columns = _family(units, rejected.value, ends, 0.0 if rejected.log_value is None else 1.0)
    columns += _losses(tokens.ragged, ~units.spread(rejected.keep))
    if rejected.log_value is not None:
        columns += _log_extremes(units, rejected.log_value)
    if rejection.is_veto:
        assert rejection.bounds.low is not None
        below = tokens.ragged.below(tokens.log_ratio, math.log(rejection.bounds.low))
        columns += Columns(sums={"catastrophic": below, "catastrophic_share": below / tokens.ragged.lengths})
    return columns


def _losses(ragged: Ragged, lost: Tensor) -> Columns:
    """Tokens lost, sequences that lose any, sequences that lose all; lost: bool [V]."""
    n_lost = ragged.sum(lost.double())
    sums = {
        "masked": n_lost,
        "seq_masked": (n_lost > 0).double(),
        "seq_dropped": (n_lost == ragged.lengths).double(),
    }
    return Columns(sums=sums)


def _log_extremes(units: Units, log_value: Tensor) -> Columns:
    """Extremes of the reduced log-ratio before any limit, over units."""
    return Columns(lows={"log": units.low(log_value)}, highs={"log": units.high(log_value)})


def _beyond(operator: Callable[..., Tensor], values: Tensor, bound: float | None) -> Tensor:
    """1 where a comparison with a bound holds, 0 elsewhere and without a bound; f64."""
    return torch.zeros_like(values) if bound is None else operator(values, bound).double()
