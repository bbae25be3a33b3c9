"""METRICS: totals -> the off-policy diagnostics people know, by the names verl and others log.

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

from rlcorr_cli.metrics.settings import RETENTION_BANDS
from rlcorr_cli.totals.families import Value, Values, finite, variance

if TYPE_CHECKING:
    from rlcorr_cli.totals.summary import Replicates
    from rlcorr_cli.totals.view import Numbers


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
    unit: str = "nats"


def _pearson(n: "Numbers") -> Any:
    """Correlation of q = e^a with p = e^b; nothing where a column is constant (to rounding)."""
    import numpy as np

    p, q = n.per_token("rollout_prob"), n.per_token("train_prob")
    var_p = variance(p, n.per_token("rollout_prob_sq"))
    var_q = variance(q, n.per_token("train_prob_sq"))
    constant = (var_p == 0) | (var_q == 0)
    scale = np.sqrt(np.where(constant, 1.0, var_p)) * np.sqrt(np.where(constant, 1.0, var_q))
    return np.where(constant, np.nan, (n.per_token("prob_product") - p * q) / scale)


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
            rows.append(
                Metric(name, f"{formula} in [{low}, {high}]", 1.0, _share(column, unit == "token"), unit="share")
            )
    return tuple(rows)


def _pareto() -> tuple[Metric, ...]:
    rows: list[Metric] = []
    for name, tail, weight, count in (("token", "token", "rho", "N"), ("seq", "sequence", "e^S", "B")):
        shape = f"Pareto shape of the upper tail of {weight} (PSIS); above its limit no mean of them can be trusted"
        limit = f"largest pareto_k_{name} to trust at this size: min(1 - 1 / log10 {count}, 0.7)"
        rows += [
            Metric(f"pareto_k_{name}", shape, None, _pareto_k(tail), resampled=False, unit="none"),
            Metric(f"pareto_k_{name}_limit", limit, None, _pareto_limit(tail), resampled=False, unit="none"),
        ]
    return tuple(rows)


def _pareto_k(tail: str) -> Callable[["Numbers"], Any]:
    return lambda n: n.tail(tail).pareto_k


def _pareto_limit(tail: str) -> Callable[["Numbers"], Any]:
    return lambda n: n.tail(tail).limit


QUANTILES = {"p01": 0.001, "p1": 0.01, "p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}

METRICS: tuple[Metric, ...] = (
    Metric("kl", "tok (b - a); k1 estimate of KL(rollout || training)", 0.0, lambda n: -n.per_token("log_ratio")),
    Metric("k2_kl", "tok l^2 / 2", 0.0, lambda n: n.per_token("log_ratio_sq") / 2),
    Metric("k3_kl", "tok (e^l - 1 - l)", 0.0, lambda n: n.per_token("k3")),
    Metric("k3_kl_reverse", "tok (e^-l - 1 + l)", 0.0, lambda n: n.per_token("k3_reverse")),
    Metric("js_divergence", "tok log cosh(l / 2), NeMo-RL's estimate simplified", 0.0, lambda n: n.per_token("js")),
    Metric("training_ppl", "seq exp(-mean a)", None, lambda n: n.per_sequence("training_ppl"), unit="perplexity"),
    Metric("rollout_ppl", "seq exp(-mean b)", None, lambda n: n.per_sequence("rollout_ppl"), unit="perplexity"),
    Metric("training_log_ppl", "seq (-mean a)", None, lambda n: n.per_sequence("training_log_ppl")),
    Metric("rollout_log_ppl", "seq (-mean b)", None, lambda n: n.per_sequence("rollout_log_ppl")),
    Metric("log_ppl_diff", "seq d, d = mean b - mean a", 0.0, lambda n: n.per_sequence("log_ppl_diff")),
    Metric("log_ppl_abs_diff", "seq |d|", 0.0, lambda n: n.per_sequence("log_ppl_abs_diff")),
    Metric("log_ppl_diff_max", "max d", 0.0, lambda n: n.high("log_ppl_diff"), resampled=False),
    Metric("log_ppl_diff_min", "min d", 0.0, lambda n: n.low("log_ppl_diff"), resampled=False),
    Metric("ppl_ratio", "seq e^d", 1.0, lambda n: n.per_sequence("ppl_ratio"), unit="ratio"),
    Metric("chi2_token", "tok rho^2 - 1, l limited to +-20", 0.0, lambda n: n.per_token("chi2"), unit="none"),
    Metric("chi2_seq", "seq exp(2 S) - 1, S limited to +-20", 0.0, lambda n: n.per_sequence("chi2_seq"), unit="none"),
    Metric("ratio_mean", "tok rho", 1.0, lambda n: 1 + n.per_token("rho_minus_1"), unit="ratio"),
    Metric("token_tv", "tok max(0, 1 - rho)", 0.0, lambda n: n.per_token("tv"), unit="share"),
    Metric("seq_tv", "seq max(0, 1 - e^S)", 0.0, lambda n: n.per_sequence("seq_tv"), unit="share"),
    Metric("log_ratio_mean", "tok l", 0.0, lambda n: n.per_token("log_ratio")),
    Metric("log_ratio_std", "population std of l over tokens", 0.0, lambda n: _std(n, "log_ratio", "log_ratio_sq")),
    Metric("logprob_abs_diff_mean", "tok |l|", 0.0, lambda n: n.per_token("abs_log_ratio")),
    Metric("logprob_abs_diff_std", "std of |l|", 0.0, lambda n: _std(n, "abs_log_ratio", "log_ratio_sq")),
    Metric("logprob_abs_diff_max", "max |l|", 0.0, _largest_gap, resampled=False),
    Metric("prob_abs_diff_mean", "tok |e^a - e^b|", 0.0, lambda n: n.per_token("abs_prob_gap"), unit="probability"),
    Metric(
        "prob_abs_diff_std",
        "std of |e^a - e^b|",
        0.0,
        lambda n: _std(n, "abs_prob_gap", "prob_gap_sq"),
        unit="probability",
    ),
    Metric(
        "prob_abs_diff_max",
        "max |e^a - e^b|",
        0.0,
        lambda n: n.high("abs_prob_gap"),
        resampled=False,
        unit="probability",
    ),
    Metric("prob_pearson", "Pearson correlation of e^a with e^b over tokens", 1.0, _pearson, unit="none"),
    Metric("token_mult_prob_error", "tok e^|l|", 1.0, lambda n: n.per_token("mult_error"), unit="ratio"),
    Metric(
        "seq_ess",
        "(sum e^S)^2 / (B sum e^2S): the share of sequences raw sequence IS would leave",
        1.0,
        lambda n: _ess(n.log("sequence_ratio"), n.log("sequence_ratio_sq"), n.sequences),
        unit="share",
    ),
    Metric(
        "token_ess",
        "(sum rho)^2 / (N sum rho^2)",
        1.0,
        lambda n: _ess(n.log("rho"), n.log("rho_sq"), n.tokens),
        unit="share",
    ),
    *_pareto(),
    *(
        Metric(f"log_ratio_{name}", f"{100 * q:g} % quantile of l over tokens", 0.0, _quantile(q), resampled=False)
        for name, q in QUANTILES.items()
    ),
    Metric(
        "extreme_token_fraction",
        "share of tokens with |l| > log of --extreme-ratio (2)",
        0.0,
        lambda n: n.per_token("extreme"),
        unit="share",
    ),
    *_retention(),
    Metric("length_mean", "valid tokens per non-empty sequence", None, lambda n: n.tokens / n.sequences, unit="tokens"),
    Metric(
        "reward_mean",
        "mean reward of non-empty sequences that have one",
        None,
        lambda n: n.sum("reward") / n.sum("rewarded"),
        unit="the reward's own",
    ),
)
"""Section 1, in the order reports show them."""

DRIFT: tuple[Metric, ...] = (
    Metric(
        "ois_mean", "tok e^(current - old)", 1.0, lambda n: n.per_token("drift.ratio"), resampled=False, unit="ratio"
    ),
    Metric("ois_max", "max e^(current - old)", 1.0, lambda n: n.high("drift.ratio"), resampled=False, unit="ratio"),
    Metric("ppo_kl", "tok (old - current)", 0.0, lambda n: n.per_token("drift.kl"), resampled=False),
    Metric(
        "ppo_clip_fraction_high",
        "share with e^(current - old) > 1 + eps",
        0.0,
        lambda n: n.per_token("drift.high"),
        resampled=False,
        unit="share",
    ),
    Metric(
        "ppo_clip_fraction_low",
        "share with e^(current - old) < 1 - eps",
        0.0,
        lambda n: n.per_token("drift.low"),
        resampled=False,
        unit="share",
    ),
)
"""Old -> current policy, when the dump has both."""


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

    from rlcorr_cli.totals.view import ResampledNumbers

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
