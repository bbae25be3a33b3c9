"""verl's rollout_corr_helper of 0.6.1, 0.7.1, 0.8.0 and 0.9.1: our totals -> its metrics.  Quirks: see `verl.py`."""

import math
from typing import Literal

from rlcorr_cli.frameworks.framework import extreme, std_with_empty, with_empty
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.diagnostics import diagnostics
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting
from rlcorr_cli.totals.limits import LARGEST_LOG
from rlcorr_cli.totals.view import BatchMean, Numbers, StatisticFamily, Value, Values, family_of

PREFIX = "rollout_corr/"
LIMIT = 20.0


ADDED = 1e-8
"""What verl adds to a denominator, and the largest mean weight that it does not divide by."""


@frozen
class Release:
    """What changed between releases.

    rejects_by: "ratio", one level and a veto, or "divergences", any of the k1, k2 and k3 options.  weights: whether
    weight metrics are of the raw weights or, with IcePop, of the applied ones.  sequence_fractions: the same of the
    shares of sequences whose mean weight lies beyond a bound.
    """

    name: str
    rejects_by: Literal["ratio", "divergences"]
    weights: Literal["raw", "applied"]
    sequence_fractions: Literal["raw", "applied"] = "raw"


def write(release: Release, numbers: Numbers, plan: Plan) -> Values:
    """Every metric that release logs for a plan, with its prefix."""
    values = _corrections(release, numbers, plan) | off_policy(numbers)
    return {PREFIX + name: value for name, value in values.items()}


def _corrections(release: Release, numbers: Numbers, plan: Plan) -> Values:
    if release.rejects_by == "ratio" and plan.mode == "bypass" and plan.loss == "ppo_clip":
        return {}
    values: Values = {}
    if plan.weighting is not None:
        token_scope = plan.weighting.scope == "token"
        if release.weights == "applied":
            of_weights = _is_applied(release, numbers, plan.weighting)
        else:
            raw = family_of(numbers, "weight.", token_scope, 1.0)
            of_weights = ratio_family(raw, numbers, plan.weighting.bounds)
        values |= {f"rollout_is_{name}": value for name, value in of_weights.items()}
        if plan.weighting.normalize == "batch":
            factor = batch_mean(release).factor(numbers, token_scope) if numbers.tokens else None
            values["rollout_is_batch_norm_factor"] = factor
    if release.rejects_by == "ratio":
        return values | _rs_ratio(numbers, plan) | veto_metrics(numbers, plan)
    return values | _rs_divergences(numbers, plan)


def batch_mean(release: Release) -> BatchMean:
    """What a release divides weights by: 0.6.1 counts a row without a valid token as weight 0, later ones do not."""
    return BatchMean(counts_empty=release.rejects_by == "ratio", smallest=ADDED)


def off_policy(numbers: Numbers) -> Values:
    """verl's always-on diagnostics, empty sequences counted at perplexity 1."""
    plain = diagnostics(numbers)
    at_empty = {
        "training_ppl": 1.0,
        "training_log_ppl": 0.0,
        "rollout_ppl": 1.0,
        "rollout_log_ppl": 0.0,
        "log_ppl_diff": 0.0,
        "log_ppl_abs_diff": 0.0,
        "ppl_ratio": 1.0,
        "chi2_seq": 0.0,
    }
    values = {name: plain[name] for name in ("kl", "k3_kl", "chi2_token")}
    values |= {name: with_empty(plain[name], numbers, value) for name, value in at_empty.items()}
    values["log_ppl_diff_max"] = extreme(plain["log_ppl_diff_max"], numbers, 0.0, max)
    values["log_ppl_diff_min"] = extreme(plain["log_ppl_diff_min"], numbers, 0.0, min)
    return values


def veto_metrics(numbers: Numbers, plan: Plan) -> Values:
    """Shares of sequences vetoed and of tokens below the veto; 0 when there is no veto, None of no tokens."""
    names = ("rollout_is_veto_fraction", "rollout_is_catastrophic_token_fraction")
    for rejection in (r for r in plan.rejections if r.is_veto):
        family = family_of(numbers, f"rs.{rejection.name}.", False, 1.0)
        share = with_empty(family.per_sequence("seq_masked"), numbers, 0.0)
        return dict(zip(names, (share, family.per_token("catastrophic")), strict=True))
    return dict.fromkeys(names, 0.0 if numbers.tokens else None)


def ratio_family(family: StatisticFamily, numbers: Numbers, bounds: Bounds) -> Values:
    """verl's statistics of one ratio, raw: over tokens, with spread of the clamped ratio."""
    values: Values = {
        "mean": family.mean(),
        "std": masked_std(family, "trim"),
        "eff_sample_size": family.token_ess("trim"),
        **_range(family, numbers),
        **_unit_fractions(family, numbers, bounds),
        **_sequence_means(family, numbers),
    }
    return values | _sequence_fractions(family, numbers, bounds)


def masked_std(family: StatisticFamily, moment: str) -> Value:
    """verl's spread over tokens: mean(x^2) - mean(x)^2, each mean divided by N + 1e-8; 0.0 of one token.

    With e = N / (N + 1e-8) that is e var + e (1 - e) mean^2, as verl's helper gives it in float64.  In production its
    masks are int64 or float32, where N + 1e-8 is N and the second term is gone: there a constant has spread 0.0, and so
    it has here.  Elsewhere the term is at most 1e-4 mean / sqrt(N), below what float32 leaves of such a difference.
    """
    n, mean, std = family.numbers.tokens, family.mean(moment), family.std(moment)
    if mean is None or std is None:
        return None
    if n == 1 or std == 0:
        return 0.0
    e = n / (n + ADDED)
    return math.sqrt(e * std * std + e * (ADDED / (n + ADDED)) * mean * mean)


def _is_applied(release: Release, numbers: Numbers, weighting: Weighting) -> Values:
    token_scope = weighting.scope == "token"
    raw, applied = (family_of(numbers, stage, token_scope, 1.0) for stage in ("weight.", "applied."))
    values: Values = {
        "mean": applied.mean(),
        "std": masked_std(applied, "tok"),
        "eff_sample_size": _applied_ess(applied),
        **({"max": applied.max(), "min": applied.min()} if token_scope else _range(raw, numbers)),
        **_unit_fractions(raw, numbers, weighting.bounds),
        **_sequence_means(applied, numbers),
        **_sequence_fractions(applied if release.sequence_fractions == "applied" else raw, numbers, weighting.bounds),
    }
    if weighting.outside == "zero":
        values["oob_ratio"] = applied.per_token("outside")
    return values


def _applied_ess(applied: StatisticFamily) -> Value:
    """1 / tok((w / (tok w + 1e-8))^2), which the 1e-8 rules where weights are tiny; 0 where every weight is 0.

    With every token outside IcePop's bounds verl itself stops at a division by zero.
    """
    ess, mean = applied.token_ess(), applied.mean()
    if mean == 0:
        return 0.0
    return None if ess is None or mean is None else ess * ((mean + ADDED) / mean) ** 2


def _range(family: StatisticFamily, numbers: Numbers) -> Values:
    if family.token_scope:
        return {"max": family.max(), "min": family.min()}
    high = extreme(family.max("log"), numbers, 0.0, max)
    low = extreme(family.min("log"), numbers, 0.0, min)
    return {
        "max": None if high is None else math.exp(min(high, LIMIT)),
        "min": None if low is None or low > LARGEST_LOG else math.exp(low),
    }


def _unit_fractions(family: StatisticFamily, numbers: Numbers, bounds: Bounds) -> Values:
    high, low = family.fraction("high"), family.fraction("low")
    if not family.token_scope:
        # An empty sequence has product 1.
        high = with_empty(high, numbers, float(bounds.high is not None and bounds.high < 1))
        low = with_empty(low, numbers, float(_low(bounds) > 1))
    return {"ratio_fraction_high": high, "ratio_fraction_low": low}


def _sequence_means(family: StatisticFamily, numbers: Numbers) -> Values:
    return {
        "seq_mean": with_empty(family.seq_mean(), numbers, 0.0),
        "seq_std": std_with_empty(family, numbers, 0.0),
        "seq_max": extreme(family.max("seq"), numbers, 0.0, max),
        "seq_min": extreme(family.min("seq"), numbers, 0.0, min),
        "seq_max_deviation": extreme(family.seq_max_deviation(), numbers, 1.0, max),
    }


def _sequence_fractions(family: StatisticFamily, numbers: Numbers, bounds: Bounds) -> Values:
    # An empty sequence has a mean weight of 0, which is below any low.
    return {
        "seq_fraction_high": with_empty(family.seq_fraction("high"), numbers, 0.0),
        "seq_fraction_low": with_empty(family.seq_fraction("low"), numbers, float(_low(bounds) > 0)),
    }


def _rs_ratio(numbers: Numbers, plan: Plan) -> Values:
    for rejection in (r for r in plan.rejections if r.name == "rs"):
        token_scope = rejection.scope == "token"
        family = family_of(numbers, "rs.rs.", token_scope, 1.0)
        values = ratio_family(family, numbers, rejection.bounds)
        at_one = not token_scope and not (rejection.bounds.low or 0) <= 1 <= (rejection.bounds.high or math.inf)
        values["masked_fraction"] = family.per_token("masked")
        values["seq_masked_fraction"] = with_empty(family.per_sequence("seq_masked"), numbers, float(at_one))
        return {f"rollout_rs_{name}": value for name, value in values.items()}
    return {}


def _rs_divergences(numbers: Numbers, plan: Plan) -> Values:
    values: Values = {}
    for rejection in plan.rejections:
        option = _rs_option(family_of(numbers, f"rs.{rejection.name}.", rejection.scope == "token", 0.0), rejection)
        values |= {f"rollout_rs_{rejection.name}_{name}": value for name, value in option.items()}
    if plan.rejections:
        lost = family_of(numbers, "rs.", True, 0.0)
        values["rollout_rs_masked_fraction"] = lost.per_token("masked")
        values["rollout_rs_seq_masked_fraction"] = with_empty(lost.per_sequence("seq_masked"), numbers, 0.0)
    return values


def _rs_option(family: StatisticFamily, rejection: Rejection) -> Values:
    values: Values = {
        "mean": family.mean(),
        "max": family.max(),
        "min": family.min(),
        "fraction_high": family.fraction("high"),
        "fraction_low": family.fraction("low"),
        "std": masked_std(family, "trim"),
        "seq_mean": family.seq_mean(),
        "seq_std": 0.0 if family.numbers.sequences == 1 else family.seq_std(),
        "seq_max": family.max("seq"),
        "seq_min": family.min("seq"),
        "seq_max_deviation": family.seq_max_deviation(),
        "seq_fraction_high": family.seq_fraction("high"),
        "masked_fraction": family.per_token("masked"),
        "seq_masked_fraction": family.per_sequence("seq_masked"),
    }
    if rejection.statistic == "k1":
        values["seq_fraction_low"] = family.seq_fraction("low")
    return values


def _low(bounds: Bounds) -> float:
    return 1 / bounds.high if bounds.low is None and bounds.high else bounds.low or 0.0
