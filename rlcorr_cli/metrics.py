"""METRICS: totals -> the numbers people know, by the names verl and others log.

Each diagnostic is one row: name, formula, ideal value and how to read it from a summary's totals (`core/columns.py`
makes them).  Formulas are Python on `Numbers`, so the same row serves a whole dump, a group, what a plan keeps, and,
for intervals, all bootstrap replicates at once.  Notation as in `plan.py`: tok x is a mean over valid tokens, seq x
over non-empty sequences, nats throughout.

A metric of no data is None; so is one that overflows float64.  Peers' own names and quirks live in `profiles/`.
NumPy is imported where formulas run, so that `explain` and `--help` can read the tables without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcorr_cli.moments import Moments, Value, Values, finite, variance
from rlcorr_cli.plan import Bounds, Plan, Rejection
from rlcorr_cli.thresholds import RETENTION_BANDS

if TYPE_CHECKING:
    from rlcorr_cli.summary import Numbers, Replicates


@dataclass(frozen=True)
class Metric:
    """One diagnostic.  ideal: its value when the policies are equal (None: no such value, or "equal" pairs).

    resampled: whether the bootstrap gives it an interval (it is made of sums alone).
    """

    name: str
    formula: str
    ideal: float | None
    value: Callable[["Numbers"], Any]
    resampled: bool = True


def _pearson(n: "Numbers") -> Any:
    """Correlation of q = e^a with p = e^b, from the moments of p and of the gap q - p."""
    import numpy as np

    p, gap = n.per_token("prob"), n.per_token("prob_gap")
    var_p = n.per_token("prob_sq") - p * p
    var_gap = n.per_token("prob_gap_sq") - gap * gap
    cov_gap = n.per_token("prob_x_gap") - p * gap
    var_q = var_p + 2 * cov_gap + var_gap
    scale = var_p * var_q
    # A variance this far below the square it came from is rounding: the column is constant.
    constant = (var_p <= 1e-14 * n.per_token("prob_sq")) | (var_q <= 1e-14 * n.per_token("prob_sq"))
    return np.where(constant, np.nan, (var_p + cov_gap) / np.sqrt(np.where(constant, 1.0, scale)))


def _std(n: "Numbers", first: str, second: str) -> Any:
    """Population standard deviation over tokens from a sum and a sum of squares."""
    return variance(n.per_token(first), n.per_token(second)) ** 0.5


def _ess(log_sum: Any, log_sum_sq: Any, count: Any) -> Any:
    """(sum w)^2 / (count sum w^2), from logs."""
    import numpy as np

    return np.exp(2 * log_sum - log_sum_sq) / count


def _quantile(q: float) -> Callable[["Numbers"], Any]:
    def value(n: "Numbers") -> float | None:
        found = n.histogram("log_ratio").quantile(q)
        # A bucket's middle may lie outside the data at either end; the extremes are known exactly.
        return None if found is None else min(max(found, n.low("log_ratio")), n.high("log_ratio"))

    return value


def _largest_gap(n: "Numbers") -> float:
    return max(-n.low("log_ratio"), n.high("log_ratio"))


def _share(column: str, of_tokens: bool) -> Callable[["Numbers"], Any]:
    return lambda n: n.per_token(column) if of_tokens else n.per_sequence(column)


def _retention() -> tuple[Metric, ...]:
    rows: list[Metric] = []
    for low, high in RETENTION_BANDS:
        for unit, total, formula in (
            ("token", "", "share of tokens with rho"),
            ("geo", "geo_", "share of sequences with e^g"),
        ):
            name, column = f"retention_{unit}_{low}_{high}", f"retained_{total}{low}_{high}"
            rows.append(Metric(name, f"{formula} in [{low}, {high}]", 1.0, _share(column, unit == "token")))
    return tuple(rows)


QUANTILES = {"p01": 0.001, "p1": 0.01, "p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}

METRICS: tuple[Metric, ...] = (
    Metric("kl", "tok (b - a); k1 estimate of KL(rollout || training)", 0.0, lambda n: -n.per_token("log_ratio")),
    Metric("k2_kl", "tok l^2 / 2", 0.0, lambda n: n.per_token("log_ratio_sq") / 2),
    Metric("k3_kl", "tok (e^l - 1 - l)", 0.0, lambda n: n.per_token("k3")),
    Metric("k3_kl_reverse", "tok (e^-l - 1 + l)", 0.0, lambda n: n.per_token("k3_reverse")),
    Metric("js_divergence", "tok log cosh(l / 2), NeMo-RL's estimate simplified", 0.0, lambda n: n.per_token("js")),
    Metric("training_ppl", "seq exp(-mean a)", None, lambda n: n.per_sequence("training_ppl")),
    Metric("rollout_ppl", "seq exp(-mean b)", None, lambda n: n.per_sequence("rollout_ppl")),
    Metric("training_log_ppl", "seq (-mean a)", None, lambda n: n.per_sequence("training_log_ppl")),
    Metric("rollout_log_ppl", "seq (-mean b)", None, lambda n: n.per_sequence("rollout_log_ppl")),
    Metric("log_ppl_diff", "seq d, d = mean b - mean a", 0.0, lambda n: n.per_sequence("log_ppl_diff")),
    Metric("log_ppl_abs_diff", "seq |d|", 0.0, lambda n: n.per_sequence("log_ppl_abs_diff")),
    Metric("log_ppl_diff_max", "max d", 0.0, lambda n: n.high("log_ppl_diff"), resampled=False),
    Metric("log_ppl_diff_min", "min d", 0.0, lambda n: n.low("log_ppl_diff"), resampled=False),
    Metric("ppl_ratio", "seq e^d", 1.0, lambda n: n.per_sequence("ppl_ratio")),
    Metric("chi2_token", "tok rho^2 - 1, l limited to +-20", 0.0, lambda n: n.per_token("chi2")),
    Metric("chi2_seq", "seq exp(2 S) - 1, S limited to +-20", 0.0, lambda n: n.per_sequence("chi2_seq")),
    Metric("log_ratio_mean", "tok l", 0.0, lambda n: n.per_token("log_ratio")),
    Metric("log_ratio_std", "population std of l over tokens", 0.0, lambda n: _std(n, "log_ratio", "log_ratio_sq")),
    Metric("logprob_abs_diff_mean", "tok |l|", 0.0, lambda n: n.per_token("abs_log_ratio")),
    Metric("logprob_abs_diff_std", "std of |l|", 0.0, lambda n: _std(n, "abs_log_ratio", "log_ratio_sq")),
    Metric("logprob_abs_diff_max", "max |l|", 0.0, _largest_gap, resampled=False),
    Metric("prob_abs_diff_mean", "tok |e^a - e^b|", 0.0, lambda n: n.per_token("abs_prob_gap")),
    Metric("prob_abs_diff_std", "std of |e^a - e^b|", 0.0, lambda n: _std(n, "abs_prob_gap", "prob_gap_sq")),
    Metric("prob_abs_diff_max", "max |e^a - e^b|", 0.0, lambda n: n.high("abs_prob_gap"), resampled=False),
    Metric("prob_pearson", "Pearson correlation of e^a with e^b over tokens", 1.0, _pearson),
    Metric("token_mult_prob_error", "tok e^|l|", 1.0, lambda n: n.per_token("mult_error")),
    Metric(
        "seq_ess",
        "(sum e^S)^2 / (B sum e^2S): the share of sequences raw sequence IS would leave",
        1.0,
        lambda n: _ess(n.log("sequence_ratio"), n.log("sequence_ratio_sq"), n.sequences),
    ),
    Metric("token_ess", "(sum rho)^2 / (N sum rho^2)", 1.0, lambda n: _ess(n.log("rho"), n.log("rho_sq"), n.tokens)),
    *(
        Metric(f"log_ratio_{name}", f"{q:.1%} quantile of l over tokens", 0.0, _quantile(q), resampled=False)
        for name, q in QUANTILES.items()
    ),
    Metric(
        "extreme_token_fraction",
        "share of tokens with |l| > log of --extreme-ratio (2)",
        0.0,
        lambda n: n.per_token("extreme"),
    ),
    *_retention(),
    Metric("length_mean", "valid tokens per non-empty sequence", None, lambda n: n.tokens / n.sequences),
    Metric(
        "reward_mean",
        "mean reward of non-empty sequences that have one",
        None,
        lambda n: n.sum("reward") / n.sum("rewarded"),
    ),
)
"""Section 1, in the order reports show them."""

DRIFT: tuple[Metric, ...] = (
    Metric("ois_mean", "tok e^(current - old)", 1.0, lambda n: n.per_token("drift.ratio"), resampled=False),
    Metric("ois_max", "max e^(current - old)", 1.0, lambda n: n.high("drift.ratio"), resampled=False),
    Metric("ppo_kl", "tok (old - current)", 0.0, lambda n: n.per_token("drift.kl"), resampled=False),
    Metric(
        "ppo_clip_fraction_high",
        "share with e^(current - old) > 1 + eps",
        0.0,
        lambda n: n.per_token("drift.high"),
        resampled=False,
    ),
    Metric(
        "ppo_clip_fraction_low",
        "share with e^(current - old) < 1 - eps",
        0.0,
        lambda n: n.per_token("drift.low"),
        resampled=False,
    ),
)
"""Old -> current policy, when the dump has both."""


def canonical(numbers: "Numbers", plan: Plan) -> Values:
    """Every metric of a plan's summary under rlcorr's own names."""
    values = diagnostics(numbers)
    if numbers.has("drift.ratio"):
        values |= {metric.name: evaluate(metric, numbers) for metric in DRIFT}
    values |= weight_metrics(numbers, plan)
    values |= rejection_metrics(numbers, plan)
    return values


def diagnostics(numbers: "Numbers") -> Values:
    """Section 1 over one set of tokens."""
    return {metric.name: evaluate(metric, numbers) for metric in METRICS}


def evaluate(metric: Metric, numbers: "Numbers") -> Value:
    """A metric's value, or None where there is nothing to take it of."""
    return finite(lambda: metric.value(numbers)) if numbers.tokens else None


def intervals(replicates: "Replicates | None") -> dict[str, tuple[float, float]]:
    """95 % bootstrap intervals of the diagnostics made of sums, by name."""
    if replicates is None:
        return {}
    import numpy as np

    from rlcorr_cli.summary import ResampledNumbers

    numbers = ResampledNumbers(replicates)
    found: dict[str, tuple[float, float]] = {}
    with np.errstate(all="ignore"):
        for metric in (m for m in METRICS if m.resampled):
            draws = np.asarray(metric.value(numbers), dtype=np.float64)
            draws = draws[np.isfinite(draws)]
            if len(draws) > 1:
                low, high = np.quantile(draws, (0.025, 0.975))
                found[metric.name] = (float(low), float(high))
    return found


@dataclass(frozen=True)
class Weights:
    """What weight formulas read.  raw: before bounds; bounded: after; applied: also divided by the batch mean, where
    the plan says so."""

    raw: Moments
    bounded: Moments
    applied: Moments
    bounds: Bounds


@dataclass(frozen=True)
class WeightMetric:
    """One rollout_is_* metric: its formula in words and how to read it."""

    name: str
    formula: str
    value: Callable[[Weights], Value]


WEIGHTS: tuple[WeightMetric, ...] = (
    WeightMetric("mean", "tok w of raw weights", lambda w: w.raw.mean()),
    WeightMetric("std", "population std over tokens of raw weights", lambda w: w.raw.std()),
    WeightMetric("min", "smallest raw weight", lambda w: w.raw.low()),
    WeightMetric("max", "largest raw weight", lambda w: w.raw.high()),
    WeightMetric(
        "ratio_fraction_high",
        "share of units (tokens, or sequences) with raw w above the high bound",
        lambda w: w.raw.fraction("high", w.bounds.high is not None),
    ),
    WeightMetric(
        "ratio_fraction_low",
        "share of units with raw w below the low bound, 1 / high where there is none",
        lambda w: w.raw.fraction("low", w.bounds != Bounds()),
    ),
    WeightMetric("eff_sample_size", "(sum w)^2 / (n sum w^2) of applied weights over units", lambda w: w.applied.ess()),
    WeightMetric("seq_mean", "seq m, m = a sequence's token mean of raw w", lambda w: w.raw.seq_mean()),
    WeightMetric("seq_std", "sample std of m over sequences", lambda w: w.raw.seq_std()),
    WeightMetric("seq_min", "smallest m", lambda w: w.raw.low("seq")),
    WeightMetric("seq_max", "largest m", lambda w: w.raw.high("seq")),
    WeightMetric("seq_max_deviation", "largest |m - 1|", lambda w: w.raw.seq_max_deviation()),
    WeightMetric(
        "seq_fraction_high",
        "share of sequences with m above the high bound",
        lambda w: w.raw.seq_fraction("high", w.bounds.high is not None),
    ),
    WeightMetric(
        "seq_fraction_low",
        "share of sequences with m below the low bound, 1 / high where there is none",
        lambda w: w.raw.seq_fraction("low", w.bounds != Bounds()),
    ),
    WeightMetric("applied_mean", "tok w of weights after bounds and batch mean", lambda w: w.applied.mean()),
    WeightMetric("applied_std", "population std over tokens of those", lambda w: w.applied.std()),
    WeightMetric("applied_max", "largest of those", lambda w: w.applied.high()),
)
"""Section 2: rollout_is_*."""

OOB = WeightMetric("oob_ratio", "share of tokens whose weight was zeroed", lambda w: w.bounded.per_token("outside"))
FACTOR = WeightMetric(
    "batch_norm_factor",
    "what weights were divided by: the mean weight of the batch; none over batches with different ones",
    lambda w: w.applied.only("factor"),
)


def weight_metrics(numbers: "Numbers", plan: Plan) -> Values:
    """rollout_is_*: raw weights before bounds, applied ones after (divided by the batch mean if the plan says so)."""
    if plan.weighting is None:
        return {}
    token_scope, normed = plan.weighting.scope == "token", plan.weighting.normalize == "batch"
    raw, bounded = Moments(numbers, "weight.", token_scope, 1.0), Moments(numbers, "applied.", token_scope, 1.0)
    applied = Moments(numbers, "normed.", token_scope, 1.0) if normed else bounded
    read = Weights(raw, bounded, applied, plan.weighting.bounds)
    rows = [*WEIGHTS, *((OOB,) if plan.weighting.outside == "zero" else ()), *((FACTOR,) if normed else ())]
    return {f"rollout_is_{row.name}": row.value(read) for row in rows}


REJECTIONS: dict[str, str] = {
    "rollout_rs_masked_fraction": "valid tokens lost to all rejections together",
    "rollout_rs_seq_masked_fraction": "sequences that lose any token",
    "rollout_rs_seq_dropped_fraction": "sequences with no token left",
    "rollout_is_veto_fraction": "sequences that the veto rejects",
    "rollout_is_catastrophic_token_fraction": "tokens with l below log of the veto's bound, unlimited",
    "kept_tokens": "valid tokens left",
    "kept_sequences": "sequences with a token left",
}
"""Section 3 over all rejections together; each has rollout_rs_{name}_* of its own, see `_one_rejection`."""


def rejection_metrics(numbers: "Numbers", plan: Plan) -> Values:
    """rollout_rs_* of each rejection and of all together, the veto's two shares, and what is kept."""
    if not plan.rejections:
        return {}
    values: Values = {}
    for rejection in plan.rejections:
        values |= _one_rejection(numbers, rejection)
    lost = Moments(numbers, "rs.", True, 0.0)
    values["rollout_rs_masked_fraction"] = lost.per_token("masked")
    values["rollout_rs_seq_masked_fraction"] = lost.per_sequence("seq_masked")
    values["rollout_rs_seq_dropped_fraction"] = lost.per_sequence("seq_dropped")
    for rejection in (r for r in plan.rejections if r.is_veto):
        veto = Moments(numbers, f"rs.{rejection.name}.", False, 1.0)
        values.setdefault("rollout_is_veto_fraction", veto.per_sequence("seq_masked"))
        values.setdefault("rollout_is_catastrophic_token_fraction", veto.per_token("catastrophic"))
    kept = numbers.under("kept.")
    values["kept_tokens"], values["kept_sequences"] = kept.tokens, kept.sequences
    return values | {f"kept_{name}": value for name, value in diagnostics(kept).items()}


def _one_rejection(numbers: "Numbers", rejection: Rejection) -> Values:
    ratio = rejection.statistic == "ratio"
    family = Moments(numbers, f"rs.{rejection.name}.", rejection.scope == "token", 1.0 if ratio else 0.0)
    prefix = f"rollout_rs_{rejection.name}"
    return {
        f"{prefix}_mean": family.unit_mean(),
        f"{prefix}_std": family.unit_std(),
        f"{prefix}_min": family.low(),
        f"{prefix}_max": family.high(),
        f"{prefix}_fraction_high": family.fraction("high", rejection.bounds.high is not None),
        f"{prefix}_fraction_low": family.fraction("low", rejection.bounds.low is not None),
        f"{prefix}_masked_fraction": family.per_token("masked"),
        f"{prefix}_seq_masked_fraction": family.per_sequence("seq_masked"),
    }
