"""A second, independent implementation of every metric, as slow plain-Python loops over lists of floats.

Written from the formulas alone, those that `rlcorr help metrics` and `rlcorr help corrections` state; it shares no code
with the tool, so a test that compares the two compares two readings of them.

Notation: a = train, b = rollout, l = a - b, S = sum of l over a sequence's valid tokens, g = S / n; N valid tokens,
B non-empty sequences, tok = mean over valid tokens, seq = mean over non-empty sequences. "No data" is None. Values too
large for a float are inf. Where a formula as written would cancel (e^x - 1 - x, e^a - e^b, mean(rho^2) - 1 near 0), an
algebraically equal stable form is used.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

Value = float | None
Plan = dict  # {"weighting": None | dict, "rejections": [dict], "log_ratio_limit": float | None}

CHI2_LIMIT = 20.0
PPO_EPSILON = 0.2
QUANTILES = {"p01": 1, "p1": 10, "p5": 50, "p50": 500, "p95": 950, "p99": 990, "p999": 999}  # in thousandths
BANDS = (("0.999", "1.002"), ("0.99", "1.01"), ("0.95", "1.05"))


@dataclass
class Row:
    """One sequence as given: log-probs per token, the response mask, and what else the metrics look at."""

    train: list[float]
    rollout: list[float]
    mask: list[int]
    current: list[float] | None = None
    reward: float | None = None
    batch: object = None
    advantages: list[float] = field(default_factory=list)


@dataclass
class Seq:
    """The valid tokens of one row under some mask (positions `at` in the row); empty when the mask has none."""

    row: Row
    at: list[int]

    @property
    def a(self) -> list[float]:
        return [self.row.train[t] for t in self.at]

    @property
    def b(self) -> list[float]:
        return [self.row.rollout[t] for t in self.at]

    @property
    def logs(self) -> list[float]:
        """l = a - b of every valid token."""
        return [self.row.train[t] - self.row.rollout[t] for t in self.at]

    @property
    def total(self) -> float:
        """S = sum of l."""
        return math.fsum(self.logs)

    @property
    def average(self) -> float:
        """g = S / n."""
        return _of(mean(self.logs))

    @property
    def drift(self) -> list[float]:
        """theta - old of every valid token."""
        assert self.row.current is not None
        return [self.row.current[t] - self.row.train[t] for t in self.at]


# ---------------------------------------------------------------- numbers


def exp(x: float) -> float:
    """e^x, inf where a float cannot hold it."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def expm1(x: float) -> float:
    """e^x - 1, inf where a float cannot hold it."""
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf


def log(x: float) -> float:
    """log x, -inf at and below 0 (a bound there is never reached by a ratio)."""
    return math.log(x) if x > 0 else -math.inf


def k3(x: float) -> float:
    """e^x - 1 - x >= 0; near 0 by its series x^2/2! + x^3/3! + ..., where the subtraction would cancel."""
    if abs(x) > 0.1:
        return expm1(x) - x
    return math.fsum(x**k / math.factorial(k) for k in range(2, 16))


def limited(x: float, limit: float | None) -> float:
    """x clamped to [-limit, limit]; None is no limit."""
    return x if limit is None else max(-limit, min(limit, x))


def _of(x: Value) -> float:
    """A value that must be there."""
    assert x is not None
    return x


def mean(xs: Sequence[float]) -> Value:
    """sum x / n; None without data; exact where all values are equal."""
    if not xs:
        return None
    if min(xs) == max(xs):
        return xs[0]
    if math.inf in xs:
        return math.inf
    try:
        return math.fsum(xs) / len(xs)
    except OverflowError:
        return math.fsum(x / len(xs) for x in xs)


def _scaled_deviations(xs: Sequence[float]) -> tuple[float, list[float]]:
    """(m, [(x - mean x) / m]), m the largest deviation: squares neither overflow nor vanish; m = 0 if all are equal."""
    if min(xs) == max(xs):
        return 0.0, [0.0] * len(xs)
    centre = _of(mean(xs))
    largest = max(abs(x - centre) for x in xs)
    return largest, [(x - centre) / largest for x in xs]


def std(xs: Sequence[float], sample: bool = False) -> Value:
    """sqrt(sum (x - mean)^2 / n), over n - 1 for a sample; None without data (a sample needs two values)."""
    if len(xs) < (2 if sample else 1):
        return None
    if math.inf in xs:
        return math.inf
    largest, deviations = _scaled_deviations(xs)
    return largest * math.sqrt(math.fsum(d * d for d in deviations) / (len(xs) - sample))


def top(xs: Sequence[float]) -> Value:
    """Largest value, None without data."""
    return max(xs) if xs else None


def bottom(xs: Sequence[float]) -> Value:
    """Smallest value, None without data."""
    return min(xs) if xs else None


def share(flags: Iterable[bool]) -> Value:
    """Count of true over count of all, None without data."""
    flags = list(flags)
    return sum(1 for f in flags if f) / len(flags) if flags else None


def ess(weights: Sequence[float]) -> Value:
    """(sum w)^2 / (n sum w^2); None without data, when all weights are 0, and when one is inf."""
    largest = max(weights, default=0.0)
    if largest == 0.0 or largest == math.inf:
        return None
    scaled = [w / largest for w in weights]
    return math.fsum(scaled) ** 2 / (len(scaled) * math.fsum(w * w for w in scaled))


def log_ess(logs: Sequence[float]) -> Value:
    """ess of e^x, computed relative to the largest x."""
    return ess([exp(x - max(logs)) for x in logs]) if logs else None


def pearson(xs: Sequence[float], ys: Sequence[float]) -> Value:
    """cov(x, y) / (std x std y); None without data or when a variance is 0."""
    if not xs or min(xs) == max(xs) or min(ys) == max(ys):
        return None
    dx, dy = _scaled_deviations(xs)[1], _scaled_deviations(ys)[1]
    cov = math.fsum(x * y for x, y in zip(dx, dy, strict=True))
    return cov / math.sqrt(math.fsum(x * x for x in dx) * math.fsum(y * y for y in dy))


def quantile(xs: Sequence[float], thousandths: int) -> Value:
    """Sorted value at index ceil(q N) - 1, at least 0, in whole numbers; None without data."""
    if not xs:
        return None
    rank = (thousandths * len(xs) + 999) // 1000
    return sorted(xs)[max(rank - 1, 0)]


def flat(lists: Iterable[Sequence[float]]) -> list[float]:
    """All values of all lists in order."""
    return [x for xs in lists for x in xs]


# ---------------------------------------------------------------- diagnostics


def view(rows: Sequence[Row], masks: Sequence[Sequence[int]]) -> list[Seq]:
    """Every row, empty ones too, with the tokens that the mask keeps."""
    return [Seq(row, [t for t, m in enumerate(mask) if m]) for row, mask in zip(rows, masks, strict=True)]


def prob_gap(a: float, b: float) -> float:
    """e^a - e^b, without cancelling where a is near b."""
    return -exp(a) * expm1(b - a) if a > b else exp(b) * expm1(a - b)


def minus_middle(x: float, y: float) -> float:
    """x - M, M = log((e^x + e^y) / 2), which is -log((1 + e^(y - x)) / 2)."""
    gap = y - x
    if gap > 30.0:
        return math.log(2.0) - gap - math.log1p(math.exp(-gap))
    return -math.log1p(math.expm1(gap) / 2.0)


def js(a: float, b: float) -> float:
    """(k3(a, M) + k3(b, M)) / 2 with k3(x, M) = e^(x - M) - (x - M) - 1."""
    return 0.5 * (k3(minus_middle(a, b)) + k3(minus_middle(b, a)))


def divergences(seqs: list[Seq]) -> dict[str, Value]:
    """The KL family, Jensen-Shannon and chi squared."""
    logs = flat(s.logs for s in seqs)
    sums = [s.total for s in seqs]
    pairs = [ab for s in seqs for ab in zip(s.a, s.b, strict=True)]
    return {
        "kl": mean([-x for x in logs]),
        "k2_kl": mean([0.5 * x * x for x in logs]),
        "k3_kl": mean([k3(x) for x in logs]),
        "k3_kl_reverse": mean([k3(-x) for x in logs]),
        "js_divergence": mean([js(a, b) for a, b in pairs]),
        # mean(e^2x) - 1 = mean(e^2x - 1)
        "chi2_token": mean([expm1(2.0 * limited(x, CHI2_LIMIT)) for x in logs]),
        "chi2_seq": mean([expm1(2.0 * limited(x, CHI2_LIMIT)) for x in sums]),
    }


def perplexities(seqs: list[Seq]) -> dict[str, Value]:
    """Per-sequence perplexities and their differences d = mean b - mean a = -g."""
    out: dict[str, Value] = {}
    for who, values in (("training", [s.a for s in seqs]), ("rollout", [s.b for s in seqs])):
        surprise = [-_of(mean(v)) for v in values]
        out[f"{who}_ppl"] = mean([exp(x) for x in surprise])
        out[f"{who}_log_ppl"] = mean(surprise)
    d = [-s.average for s in seqs]
    out["log_ppl_diff"] = mean(d)
    out["log_ppl_diff_max"] = top(d)
    out["log_ppl_diff_min"] = bottom(d)
    out["log_ppl_abs_diff"] = mean([abs(x) for x in d])
    out["ppl_ratio"] = mean([exp(x) for x in d])
    return out


def distances(seqs: list[Seq]) -> dict[str, Value]:
    """abs l, abs(e^a - e^b), correlation of the probabilities, tok e^(abs l), ESS of raw token and sequence ratios."""
    logs = flat(s.logs for s in seqs)
    a, b = flat(s.a for s in seqs), flat(s.b for s in seqs)
    out: dict[str, Value] = {}
    gaps = {
        "logprob_abs_diff": [abs(x) for x in logs],
        "prob_abs_diff": [abs(prob_gap(x, y)) for x, y in zip(a, b, strict=True)],
    }
    for name, values in gaps.items():
        out |= {f"{name}_mean": mean(values), f"{name}_std": std(values), f"{name}_max": top(values)}
    out["bit_mismatch"] = mean([float(struct.pack("f", x) != struct.pack("f", y)) for x, y in zip(a, b, strict=True)])
    out["prob_pearson"] = pearson([exp(x) for x in a], [exp(x) for x in b])
    out["ratio_mean"] = mean([exp(x) for x in logs])
    out["token_tv"] = mean([-expm1(min(x, 0.0)) for x in logs])
    out["seq_tv"] = mean([-expm1(min(s.total, 0.0)) for s in seqs])
    out["token_mult_prob_error"] = mean([exp(abs(x)) for x in logs])
    out["seq_ess"] = log_ess([s.total for s in seqs])
    out["token_ess"] = log_ess(logs)
    return out


def distribution(seqs: list[Seq]) -> dict[str, Value]:
    """Mean, std and quantiles of l, share of extreme tokens, shares inside the bands."""
    logs = flat(s.logs for s in seqs)
    out: dict[str, Value] = {"log_ratio_mean": mean(logs), "log_ratio_std": std(logs)}
    for name, q in QUANTILES.items():
        out[f"log_ratio_{name}"] = quantile(logs, q)
    out["extreme_token_fraction"] = share(abs(x) > math.log(2.0) for x in logs)
    for low, high in BANDS:
        lo, hi = math.log(float(low)), math.log(float(high))
        out[f"retention_token_{low}_{high}"] = share(lo <= x <= hi for x in logs)
        out[f"retention_geo_{low}_{high}"] = share(lo <= s.average <= hi for s in seqs)
    return out


def pareto(name: str, logs: Sequence[float]) -> dict[str, Value]:
    """Pareto shape of the upper tail of e^x (Vehtari et al. 2024; fit of Zhang and Stephens 2009), its standard error,
    and its limit where it is judged."""
    n = len(logs)
    length = math.floor(3 * math.sqrt(n)) if n > 225 else n // 5
    limit = min(1 - 1 / math.log10(n), 0.7) if length >= 20 else None
    shape = _shape(sorted(logs), length)
    error = None if shape is None else (1 + shape) / math.sqrt(length)
    return {f"pareto_k_{name}": shape, f"pareto_k_{name}_se": error, f"pareto_k_{name}_limit": limit}


def _shape(ordered: Sequence[float], length: int) -> Value:
    """k of the `length` largest, ordered ascending; None of under five, of equal ones, of a quarter at the cutoff."""
    if length < 5 or ordered[-length] == ordered[-1]:
        return None
    cutoff = exp(ordered[-length - 1] - ordered[-1])
    tail = [exp(x - ordered[-1]) - cutoff for x in ordered[-length:]]
    quartile = tail[int(length / 4 + 0.5) - 1]
    if quartile <= 0.0:
        return None
    n_grid = 30 + int(math.sqrt(length))
    grid = [1 / tail[-1] + (1 - math.sqrt(n_grid / (j - 0.5))) / (3 * quartile) for j in range(1, n_grid + 1)]
    shapes = [_of(mean([math.log1p(-b * x) for x in tail])) for b in grid]
    fits = [length * (math.log(-b / k) - k - 1) for b, k in zip(grid, shapes, strict=True)]
    weights = [exp(fit - max(fits)) for fit in fits]
    weights = [w if w >= 10 * 2.0**-52 * math.fsum(weights) else 0.0 for w in weights]
    b = math.fsum(b * w for b, w in zip(grid, weights, strict=True)) / math.fsum(weights)
    return (length * _of(mean([math.log1p(-b * x) for x in tail])) + 5) / (length + 10)


def diagnostics(rows: Sequence[Row], masks: Sequence[Sequence[int]]) -> dict[str, Value]:
    """The diagnostics over the tokens that the masks keep, with length_mean and reward_mean."""
    seqs = [s for s in view(rows, masks) if s.at]
    return dict(_diagnostics(tuple((tuple(s.a), tuple(s.b), s.row.reward) for s in seqs)))


@lru_cache(64)
def _diagnostics(kept: tuple[tuple[tuple[float, ...], tuple[float, ...], Value], ...]) -> dict[str, Value]:
    """Of train, rollout and reward of each sequence: one dump is looked at under many plans, which keep the same."""
    seqs = [Seq(Row(list(a), list(b), [1] * len(a), reward=reward), list(range(len(a)))) for a, b, reward in kept]
    out = pareto("token", flat(s.logs for s in seqs)) | pareto("seq", [s.total for s in seqs])
    out |= divergences(seqs) | perplexities(seqs) | distances(seqs) | distribution(seqs)
    out["length_mean"] = mean([float(len(s.at)) for s in seqs])
    out["reward_mean"] = mean([s.row.reward for s in seqs if s.row.reward is not None])
    return out


def policy_drift(rows: Sequence[Row]) -> dict[str, Value]:
    """Section 1b, old -> current: r = e^(theta - old); absent unless every row has the current policy."""
    if not rows or any(row.current is None for row in rows):
        return {}
    drift = flat(s.drift for s in view(rows, [row.mask for row in rows]))
    ratios = [exp(x) for x in drift]
    return {
        "ois_mean": mean(ratios),
        "ois_max": top(ratios),
        "ppo_kl": mean([-x for x in drift]),
        "ppo_clip_fraction_high": share(r > 1.0 + PPO_EPSILON for r in ratios),
        "ppo_clip_fraction_low": share(r < 1.0 - PPO_EPSILON for r in ratios),
    }


# ---------------------------------------------------------------- section 2


def raw_logs(seq: Seq, scope: str, limit: float | None) -> list[float]:
    """Limited log weight of each valid token: lim(l), lim(S) or lim(g)."""
    if scope == "token":
        return [limited(x, limit) for x in seq.logs]
    if not seq.at:
        return []
    reduced = {"sequence": seq.total, "geometric": seq.average}[scope]
    return [limited(reduced, limit)] * len(seq.at)


def is_outside(log_weight: float, weighting: dict) -> bool:
    """Whether e^x lies outside the plan's own bounds, compared as logs."""
    low, high = weighting.get("low"), weighting.get("high")
    return (low is not None and log_weight < log(low)) or (high is not None and log_weight > log(high))


def bounded(log_weight: float, weighting: dict) -> float:
    """e^x after clamping to the bounds, or 0 outside them."""
    if not is_outside(log_weight, weighting):
        return exp(log_weight)
    if weighting["outside"] == "zero":
        return 0.0
    low, high = weighting.get("low"), weighting.get("high")
    return low if low is not None and log_weight < log(low) else _of(high)


def units(per_token: Sequence[Sequence[float]], scope: str) -> list[float]:
    """The weighting's units: every token at token scope, else one value for each non-empty sequence."""
    return flat(per_token) if scope == "token" else [xs[0] for xs in per_token if xs]


def divisors(rows: Sequence[Row], weights: list[list[float]], weighting: dict) -> list[float]:
    """What each row's weights are divided by: its batch's mean over units (1 for a mean of 0); 1 if not normalised."""
    if weighting.get("normalize", "none") != "batch":
        return [1.0] * len(rows)
    out = []
    for row in rows:
        members = [w for other, w in zip(rows, weights, strict=True) if other.batch == row.batch]
        out.append(mean(units(members, weighting["scope"])) or 1.0)
    return out


@dataclass
class Weights:
    """Weights of the valid tokens, one list a row: log of the raw ones, bounded ones, applied ones; by: the divisor."""

    log_raw: list[list[float]]
    bounded: list[list[float]]
    applied: list[list[float]]
    by: list[float]
    acts: list[list[bool]]


def looked_at(rows: Sequence[Row], record: dict) -> list[Row]:
    """The rows with a record's two policies: training and rollout, current and old (drift) or rollout (total); each
    token's l limited where the plan says so of all tokens."""
    pairs = list(rows)
    if record.get("of", "mismatch") != "mismatch":
        base = {"drift": lambda row: row.train, "total": lambda row: row.rollout}[record["of"]]
        pairs = [replace(row, train=row.current, rollout=base(row)) for row in rows]
    limit = record["log_ratio_limit"]
    if record["limit_on"] != "first" or limit is None:
        return pairs
    return [
        replace(
            row,
            train=[
                a if abs(a - b) <= limit else b + limited(a - b, limit)
                for a, b in zip(row.train, row.rollout, strict=True)
            ],
        )
        for row in pairs
    ]


def of_plan(record: dict, plan: Plan) -> dict:
    """A plan's record, which knows the plan's limit and what is limited: each token before all else ("first"), each
    before it is reduced ("token"), or what it is reduced to."""
    return {
        **record,
        "limit_on": plan.get("limit_on", "reduced"),
        "log_ratio_limit": plan.get("log_ratio_limit", 20.0),
    }


def weighting_of(plan: Plan) -> dict | None:
    """A plan's weighting; None without one."""
    weighting = plan.get("weighting")
    return of_plan(weighting, plan) if weighting else None


OPENS: dict[str, Callable[[float], bool]] = {
    "positive": lambda a: a > 0,
    "negative": lambda a: a < 0,
    "nonpositive": lambda a: a <= 0,
    "nonnegative": lambda a: a >= 0,
}


def opens(seq: Seq, record: dict, token_scope: bool) -> list[bool]:
    """Whether a record acts on each valid token: by its own advantage, or by the mean over the sequence's.  Onward:
    where the advantage moves the two policies further apart."""
    gate = record.get("gate", "any")
    if gate == "any" or not seq.at:
        return [True] * len(seq.at)
    own = [seq.row.advantages[t] for t in seq.at]
    if gate == "onward":
        return [(x > 0 and a > 0) or (x < 0 and a < 0) for x, a in zip(seq.logs, own, strict=True)]
    by_token = token_scope or record.get("gate_on") == "token"
    return [OPENS[gate](a) for a in (own if by_token else [_of(mean(own))] * len(own))]


def compute_weights(rows: Sequence[Row], weighting: dict, limit: float | None) -> Weights:
    """Reduce by scope -> limit -> exp -> clamp or zero -> divide by the batch mean; 1 where a gate is shut."""
    seqs = view(looked_at(rows, weighting), [r.mask for r in rows])
    acts = [opens(s, weighting, weighting["scope"] == "token") for s in seqs]
    reduced = [raw_logs(s, weighting["scope"], limit) for s in seqs]
    log_raw = [[x if a else 0.0 for x, a in zip(xs, by, strict=True)] for xs, by in zip(reduced, acts, strict=True)]
    inside = [
        [bounded(x, weighting) if a else 1.0 for x, a in zip(xs, by, strict=True)]
        for xs, by in zip(log_raw, acts, strict=True)
    ]
    by = divisors(rows, inside, weighting)
    # A weight that overflowed stays inf, also when the mean that it is divided by overflowed with it.
    applied = [[w / d if w < math.inf else w for w in ws] for ws, d in zip(inside, by, strict=True)]
    return Weights(log_raw, inside, applied, by, acts)


def report_bounds(weighting: dict) -> tuple[Value, Value]:
    """(low, high) of the fraction metrics: low is 1 / high when the plan has none."""
    low, high = weighting.get("low"), weighting.get("high")
    if low is None and high is not None:
        low = 1.0 / high if high > 0 else math.inf
    return low, high


def fractions(
    xs: Sequence[float],
    low: Value,
    high: Value,
    key: Callable[[float], float],
    acts: Sequence[bool] | None = None,
) -> tuple[Value, Value]:
    """(share of x > key(high), share of x < key(low)); None where the bound is absent or there is no data.

    acts: where a gate is shut nothing is outside.
    """
    on = [True] * len(xs) if acts is None else acts
    above = None if high is None else share(act and x > key(high) for x, act in zip(xs, on, strict=True))
    below = None if low is None else share(act and x < key(low) for x, act in zip(xs, on, strict=True))
    return above, below


def sequence_weight_metrics(raw: list[list[float]], low: Value, high: Value) -> dict[str, Value]:
    """rollout_is_seq_*: of m_i, the mean raw weight over sequence i's valid tokens."""
    means = [_of(mean(ws)) for ws in raw if ws]
    above, below = fractions(means, low, high, float)
    return {
        "rollout_is_seq_mean": mean(means),
        "rollout_is_seq_std": std(means, sample=True),
        "rollout_is_seq_min": bottom(means),
        "rollout_is_seq_max": top(means),
        "rollout_is_seq_max_deviation": top([abs(m - 1.0) for m in means]),
        "rollout_is_seq_fraction_high": above,
        "rollout_is_seq_fraction_low": below,
    }


def applied_weight_metrics(weights: Weights, weighting: dict) -> dict[str, Value]:
    """Mean, std, extremes over tokens, mean over sequences, ESS over units of the applied weights; share zeroed; mean
    before the division."""
    scope, tokens = weighting["scope"], flat(weights.applied)
    out = {
        "rollout_is_applied_mean": mean(tokens),
        "rollout_is_applied_std": std(tokens),
        "rollout_is_applied_min": bottom(tokens),
        "rollout_is_applied_max": top(tokens),
        "rollout_is_applied_seq_mean": mean([_of(mean(ws)) for ws in weights.applied if ws]),
        "rollout_is_eff_sample_size": ess(units(weights.applied, scope)),
    }
    if weighting["outside"] == "zero":
        pairs = zip(flat(weights.log_raw), flat(weights.acts), strict=True)
        out["rollout_is_oob_ratio"] = share(act and is_outside(x, weighting) for x, act in pairs)
    if weighting.get("normalize", "none") == "batch":
        # Per batch: one number only where every batch with a valid token was divided by the same one, to rounding.
        by = [divisor for divisor, ws in zip(weights.by, weights.applied, strict=True) if ws]
        out["rollout_is_batch_norm_factor"] = by[0] if by and max(by) <= min(by) * (1 + 1e-9) else None
    return out


def weight_metrics(rows: Sequence[Row], plan: Plan) -> dict[str, Value]:
    """Section 2; absent without a weighting."""
    weighting = weighting_of(plan)
    if not weighting:
        return {}
    weights = compute_weights(rows, weighting, plan.get("log_ratio_limit", 20.0))
    raw = [[exp(x) for x in xs] for xs in weights.log_raw]
    tokens = flat(raw)
    low, high = report_bounds(weighting)
    scope = weighting["scope"]
    above, below = fractions(units(weights.log_raw, scope), low, high, log, units(weights.acts, scope))
    out = {
        "rollout_is_mean": mean(tokens),
        "rollout_is_std": std(tokens),
        "rollout_is_min": bottom(tokens),
        "rollout_is_max": top(tokens),
        "rollout_is_ratio_fraction_high": above,
        "rollout_is_ratio_fraction_low": below,
    }
    return out | sequence_weight_metrics(raw, low, high) | applied_weight_metrics(weights, weighting)


# ---------------------------------------------------------------- section 3

# Statistics of one token, of its (limited) log-ratio.
OF_LOG_RATIO: dict[str, Callable[[float], float]] = {
    "k2": lambda x: 0.5 * x * x,
    "k3": k3,
    "k3_reverse": lambda x: k3(-x),
    "abs_log_ratio": abs,
    "exp_abs_log_ratio": lambda x: exp(abs(x)),
    "log_ratio_squared": lambda x: x * x,
    "ratio_gap": lambda x: abs(expm1(x)),
}


@cache  # of some thousand tokens, which each plan of each library asks for again
def binary_kl(log_p: float, log_q: float, clamp: float, added: float) -> float:
    """KL(p || q) of two outcomes, the token and any other, in 50 digits: p ln(p/q) + (1-p) ln((1-p+c) / (1-q+c))."""
    with decimal.localcontext(prec=50):
        p, q = (decimal.Decimal(min(x, 0.0)).exp() for x in (log_p, log_q))
        if clamp:
            # Frameworks take probabilities, and clamp them, in float32, which makes 1 - 1.013e-6 of 1 - 1e-6.
            low, high, p, q = (decimal.Decimal(float32(float(x))) for x in (clamp, 1 - clamp, p, q))
            p, q = (min(max(x, low), high) for x in (p, q))
        c = decimal.Decimal(added)
        return float(p * (p.ln() - q.ln()) + (1 - p) * ((1 - p + c).ln() - (1 - q + c).ln()))


def kpop(a: float, b: float) -> float:
    return max(binary_kl(a, b, 1e-6, 0.0), binary_kl(b, a, 1e-6, 0.0))


def float32(x: float) -> float:
    return struct.unpack("f", struct.pack("f", x))[0]


def rounds_to_1(x: float) -> bool:
    return float32(exp(x)) >= 1.0


# Statistics of both log-probs of a token.
OF_LOG_PROBS: dict[str, Callable[[float, float], float]] = {
    "prob_gap": prob_gap,
    "abs_prob_gap": lambda a, b: abs(prob_gap(a, b)),
    "binary_kl": kpop,
    "binary_kl_forward": lambda a, b: binary_kl(b, a, 1e-6, 0.0),
    "binary_kl_signed": lambda a, b: (1.0 if a >= b else -1.0) * binary_kl(b, a, 0.0, 1e-8),
    "binary_kl_float32": lambda a, b: math.inf if rounds_to_1(a) or rounds_to_1(b) else kpop(a, b),
}
LINEAR = {"ratio": 1.0, "log_ratio": 1.0, "k1": -1.0}  # sign of l; ratio stays a log until it is reported


def linear_statistic(seq: Seq, sign: float, scope: str, limit: float | None) -> list[float]:
    """sign * l: limited at token scope and after reducing to S or g; the extremes are of unlimited tokens."""
    if scope == "token":
        return [sign * limited(x, limit) for x in seq.logs]
    if scope in ("seq_sum", "seq_mean"):
        return [sign * limited(seq.total if scope == "seq_sum" else seq.average, limit)]
    return [{"seq_min": min, "seq_max": max}[scope](sign * x for x in seq.logs)]


def other_statistic(seq: Seq, statistic: str, scope: str, limit: float | None) -> list[float]:
    """A per-token value of lim(l), or of a and b, then its sum, mean, min or max over the sequence."""
    if statistic in OF_LOG_PROBS:
        values = [OF_LOG_PROBS[statistic](a, b) for a, b in zip(seq.a, seq.b, strict=True)]
    else:
        values = [OF_LOG_RATIO[statistic](limited(x, limit)) for x in seq.logs]
    if scope == "token":
        return values
    reduce = {"seq_sum": math.fsum, "seq_mean": mean, "seq_min": min, "seq_max": max}[scope]
    return [_of(reduce(values))]


def statistic_units(seq: Seq, rejection: dict, limit: float | None) -> list[float]:
    """The statistic of a sequence's units (its tokens, or itself; none when empty). For `ratio` the log of it."""
    if not seq.at:
        return []
    statistic, scope = rejection["statistic"], rejection["scope"]
    if statistic in LINEAR and rejection.get("limit_on") == "token" and scope in ("seq_sum", "seq_mean"):
        total = sum(limited(x, limit) for x in seq.logs)
        return [LINEAR[statistic] * (total if scope == "seq_sum" else total / len(seq.at))]
    if statistic in LINEAR:
        return linear_statistic(seq, LINEAR[statistic], scope, limit)
    return other_statistic(seq, statistic, scope, limit)


def bound_key(rejection: dict) -> Callable[[float], float]:
    """How a bound is brought to the statistic's own space: log for ratio."""
    return log if rejection["statistic"] == "ratio" else float


def keeps(x: float, rejection: dict) -> bool:
    """low <= x <= high, an absent end open."""
    key, low, high = bound_key(rejection), rejection.get("low"), rejection.get("high")
    return (low is None or key(low) <= x) and (high is None or x <= key(high))


def rejection_mask(seq: Seq, rejection: dict, limit: float | None) -> list[int]:
    """The row's mask after this rejection alone."""
    verdicts = [keeps(x, rejection) for x in statistic_units(seq, rejection, limit)]
    if rejection["scope"] != "token":
        verdicts = verdicts * len(seq.at)
    acts = opens(seq, rejection, rejection["scope"] == "token")
    verdicts = [keep or not act for keep, act in zip(verdicts, acts, strict=True)]
    mask = [0] * len(seq.row.mask)
    for t, kept in zip(seq.at, verdicts, strict=True):
        mask[t] = int(kept)
    return mask


def rejections_of(plan: Plan) -> list[dict]:
    """A plan's rejections."""
    return [of_plan(one, plan) for one in plan.get("rejections") or []]


def kept_masks(rows: Sequence[Row], plan: Plan) -> list[list[int]]:
    """The original masks ANDed with every rejection's, each computed on the original mask."""
    masks = [[int(bool(m)) for m in row.mask] for row in rows]
    for rejection in rejections_of(plan):
        for i, seq in enumerate(view(looked_at(rows, rejection), [row.mask for row in rows])):
            verdict = rejection_mask(seq, rejection, plan.get("log_ratio_limit", 20.0))
            masks[i] = [m * v for m, v in zip(masks[i], verdict, strict=True)]
    for budget in budgets_of(plan):
        for batch in {row.batch for row in rows}:
            spend(rows, batch, budget, plan.get("log_ratio_limit", 20.0), masks)
    return masks


def budgets_of(plan: Plan) -> list[dict]:
    """A plan's budgets as rejections without bounds."""
    return [of_plan({**one, "scope": "token"}, plan) for one in plan.get("budgets") or []]


def spend(rows: Sequence[Row], batch: object, budget: dict, limit: float | None, masks: list[list[int]]) -> None:
    """Drop a batch's largest values until the mean of the rest is below the budget; the smallest always stay."""
    mine = [row if row.batch == batch else replace(row, mask=[0] * len(row.mask)) for row in rows]
    seqs = view(looked_at(mine, budget), [row.mask for row in mine])
    values = [statistic_units(s, budget, limit) for s in seqs]
    stay = sorted(flat(values))
    while stay and not math.fsum(stay) / len(stay) < budget["mean_below"] and stay[0] < stay[-1]:
        stay = [x for x in stay if x < stay[-1]]
    for i, seq in enumerate(seqs):
        for t, x in zip(seq.at, values[i], strict=True):
            masks[i][t] *= int(x <= stay[-1])


def statistic_metrics(seqs: list[Seq], rejection: dict, limit: float | None) -> dict[str, Value]:
    """rollout_rs_{name}_*: over the rejection's units."""
    keyed = flat(statistic_units(s, rejection, limit) for s in seqs)
    xs = [exp(x) for x in keyed] if rejection["statistic"] == "ratio" else keyed
    token_scope = rejection["scope"] == "token"
    acts = [opens(s, rejection, token_scope) for s in seqs]
    on = flat(by if token_scope else [any(by)] * bool(by) for by in acts)
    above, below = fractions(keyed, rejection.get("low"), rejection.get("high"), bound_key(rejection), on)
    values = {"mean": mean(xs), "std": std(xs), "min": bottom(xs), "max": top(xs)}
    values |= {"fraction_high": above, "fraction_low": below}
    return {f"rollout_rs_{rejection['name']}_{key}": value for key, value in values.items()}


def is_veto(rejection: dict) -> bool:
    """ratio, seq_min, with a low bound, of training over rollout and whatever the advantage."""
    if rejection.get("of", "mismatch") != "mismatch" or rejection.get("gate", "any") != "any":
        return False
    return (rejection["statistic"], rejection["scope"]) == ("ratio", "seq_min") and rejection.get("low") is not None


def veto_metrics(seqs: list[Seq], rejections: list[dict], limit: float | None) -> dict[str, Value]:
    """Share of sequences that the first veto rejects; share of tokens with l < log low."""
    veto = next((r for r in rejections if is_veto(r)), None)
    if veto is None:
        return {}
    verdicts = flat(statistic_units(s, veto, limit) for s in seqs)
    return {
        "rollout_is_veto_fraction": share(not keeps(x, veto) for x in verdicts),
        "rollout_is_catastrophic_token_fraction": share(x < log(veto["low"]) for s in seqs for x in s.logs),
    }


def loss_metrics(rows: Sequence[Row], kept: list[list[int]]) -> dict[str, Value]:
    """Tokens and sequences lost to all rejections together."""
    pairs = [(len(s.at), sum(m)) for s, m in zip(view(rows, [r.mask for r in rows]), kept, strict=True) if s.at]
    tokens = sum(before for before, _ in pairs)
    return {
        "rollout_rs_masked_fraction": sum(n - k for n, k in pairs) / tokens if tokens else None,
        "rollout_rs_seq_masked_fraction": share(k < n for n, k in pairs),
        "rollout_rs_seq_dropped_fraction": share(k == 0 for _, k in pairs),
        "kept_tokens": float(sum(k for _, k in pairs)),
        "kept_sequences": float(sum(1 for _, k in pairs if k)),
    }


def rejection_metrics(rows: Sequence[Row], plan: Plan) -> dict[str, Value]:
    """Section 3; absent without rejections."""
    rejections, limit = rejections_of(plan), plan.get("log_ratio_limit", 20.0)
    if not rejections and not plan.get("budgets"):
        return {}
    seqs = view(rows, [row.mask for row in rows])
    out: dict[str, Value] = {}
    for rejection in (*rejections, *budgets_of(plan)):
        out |= statistic_metrics(view(looked_at(rows, rejection), [row.mask for row in rows]), rejection, limit)
    kept = kept_masks(rows, plan)
    out |= loss_metrics(rows, kept) | veto_metrics([s for s in seqs if s.at], rejections, limit)
    return out | {f"kept_{name}": value for name, value in diagnostics(rows, kept).items()}


def kept_weight_metrics(rows: Sequence[Row], plan: Plan) -> dict[str, Value]:
    """ESS over units of applied weights where what is rejected weighs 0; a sequence counts by its kept share.

    Absent without weights or without rejections, and where weights are divided by batch means.
    """
    weighting = weighting_of(plan)
    rejects = plan.get("rejections") or plan.get("budgets")
    if not weighting or not rejects or weighting.get("normalize", "none") == "batch":
        return {}
    applied = compute_weights(rows, weighting, plan.get("log_ratio_limit", 20.0)).applied
    left: list[float] = []
    seqs = view(rows, [row.mask for row in rows])
    for seq, ws, mask in zip(seqs, applied, kept_masks(rows, plan), strict=True):
        kept = [w * mask[t] for t, w in zip(seq.at, ws, strict=True)]
        left += kept if weighting["scope"] == "token" or not kept else [math.fsum(kept) / len(kept)]
    return {"rollout_is_kept_eff_sample_size": ess(left)}


# ---------------------------------------------------------------- interface


def metrics(rows: list[Row], plan: Plan) -> dict[str, float | None]:
    """Every metric that applies to the plan, by its canonical name."""
    # In bypass mode training is the current policy and rollout the old one: there is no third to drift to.
    drift = {} if plan.get("mode") == "bypass" else policy_drift(rows)
    out = diagnostics(rows, [row.mask for row in rows]) | drift
    return out | weight_metrics(rows, plan) | kept_weight_metrics(rows, plan) | rejection_metrics(rows, plan)


def weights_and_mask(rows: list[Row], plan: Plan) -> tuple[list[list[float]] | None, list[list[int]]]:
    """(applied weight of every token, 0 on masked ones; None without a weighting; the modified masks)."""
    masks, weighting = kept_masks(rows, plan), weighting_of(plan)
    if not weighting:
        return None, masks
    applied = compute_weights(rows, weighting, plan.get("log_ratio_limit", 20.0)).applied
    full = [[0.0] * len(row.mask) for row in rows]
    for out, seq, ws in zip(full, view(rows, [row.mask for row in rows]), applied, strict=True):
        for t, w in zip(seq.at, ws, strict=True):
            out[t] = w
    return full, masks


# ---------------------------------------------------------------- plans beside each other


def comparison(rows: list[Row], plan: Plan, has_advantages: bool = True) -> dict[str, Value]:
    """The columns of `compare`, from shared/spec/decide.md section 1.

    f = applied weight * kept, q = (1 - e^a)^2; A_i and f_i are means over a sequence's valid tokens.
    """
    if (plan["mode"], plan["loss"]) == ("bypass", "ppo_clip"):
        bounds = {"low": None, "high": None, "outside": "clamp", "normalize": "none"}
        plan = {**plan, "weighting": {"scope": "token", **bounds, "of": "mismatch", "gate": "any"}}
    weights, masks = weights_and_mask(rows, plan)
    seqs = view(rows, [row.mask for row in rows])
    held: list[tuple[Seq, list[float], list[float], list[int]]] = []
    for i, seq in enumerate(seqs):
        if not seq.at:
            continue
        kept = [masks[i][t] for t in seq.at]
        ws = [1.0] * len(kept) if weights is None else [weights[i][t] for t in seq.at]
        f = [w if k else 0.0 for w, k in zip(ws, kept, strict=True)]
        advantages = [seq.row.advantages[t] if has_advantages else 1.0 for t in seq.at]
        held.append((seq, f, advantages, kept))
    n_tokens, n_sequences = sum(len(f) for _, f, _, _ in held), len(held)
    left = [log_ratio for seq, f, _, _ in held for log_ratio, x in zip(seq.logs, f, strict=True) if x > 0]
    sizes = [len(f) for _, f, _, _ in held]
    f_i = [math.fsum(f) / len(f) for _, f, _, _ in held]
    a_i = [math.fsum(advantages) / len(advantages) for _, _, advantages, _ in held]
    score = [
        (adv**2 * expm1(a) ** 2, x)
        for seq, f, advantages, _ in held
        for a, adv, x in zip(seq.a, advantages, f, strict=True)
    ]
    none = math.fsum(q for q, _ in score)
    once, twice = math.fsum(q * x for q, x in score), math.fsum(q * x * x for q, x in score)
    info = None if none == 0 else 0.0 if twice == 0 else once**2 / (none * twice)
    weighting = plan["weighting"]
    corrects = (
        weighting is not None
        and weighting["gate"] == "any"
        and weighting["scope"] in ("token", "sequence")
        and (weighting["of"] != "drift" or plan["mode"] == "bypass")
    )
    seq_tv = _of(mean([max(0.0, -expm1(seq.total)) for seq, *_ in held]))
    masses = sorted(math.fsum(abs(adv * x) for adv, x in zip(advs, f, strict=True)) for _, f, advs, _ in held)
    raw = (
        None
        if weights is None
        else units([[weights[i][t] for t in s.at] for i, s in enumerate(seqs) if s.at], weighting["scope"])
    )
    shift, error = _shift(f_i, a_i, [seq.total for seq, *_ in held])
    total = math.fsum(f_i)
    return {
        "kept": len(left) / n_tokens,
        "kept_sequence_fraction": sum(any(x > 0 for x in f) for _, f, _, _ in held) / n_sequences,
        "info": info,
        "worth": None if info is None else info * (1 if corrects else 1 - seq_tv),
        "shift": shift,
        "shift_se": error,
        "length": math.fsum(x * n for x, n in zip(f_i, sizes, strict=True)) / total / (n_tokens / n_sequences)
        if total
        else None,
        "k3_left": mean([k3(log_ratio) for log_ratio in left]),
        "ess": None if raw is None else ess(raw),
        "top_1pct": math.fsum(masses[-math.ceil(n_sequences / 100) :]) / math.fsum(masses) if any(masses) else None,
    }


def _shift(f: list[float], advantages: list[float], totals: list[float]) -> tuple[Value, Value]:
    """(A_f - A_IS) / sd A and its standard error; None of equal advantages, of nothing kept, and where e^S rests on
    fewer than 10 effective sequences."""
    n = len(f)
    centre = _of(mean(advantages))
    variance = math.fsum((a - centre) ** 2 for a in advantages) / n
    peak = max(totals)
    w = [math.exp(s - peak) for s in totals]
    if variance <= 1e-12 * math.fsum(a * a for a in advantages) / n or sum(f) == 0:
        return None, None
    if math.fsum(w) ** 2 / math.fsum(x * x for x in w) < 10:
        return None, None
    f, w = ([x * n / math.fsum(xs) for x in xs] for xs in (f, w))
    a_f = math.fsum(x * a for x, a in zip(f, advantages, strict=True)) / n
    a_is = math.fsum(x * a for x, a in zip(w, advantages, strict=True)) / n
    spread = math.fsum((x * (a - a_f) - y * (a - a_is)) ** 2 for x, y, a in zip(f, w, advantages, strict=True))
    return (a_f - a_is) / math.sqrt(variance), math.sqrt(spread / variance) / n
