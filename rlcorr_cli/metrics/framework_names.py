"""What frameworks call our metrics on their dashboards, and where their arithmetic departs from ours.

LOGGED has names as they are logged; verl's many follow a rule (`VERL_PREFIXES` and our own name), so only its
departures stand here.  slime's mis_* averages over each sequence's tokens first.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoggedName:
    """One framework's name of a metric.  difference: how its number departs from the metric `canonical`."""

    framework: str
    name: str
    canonical: str
    difference: str = ""


VERL_PREFIXES = ("rollout_corr/", "mismatch/")
"""verl's groups of metrics: since 0.6, and in 2025-10."""

_BY_SEQUENCE = "slime averages over each sequence's tokens first, then over sequences."
_EXTREME = "slime takes the extreme of each sequence's applied weights, then averages over sequences."
SLIME_SAME_NAMES = (
    "training_log_ppl",
    "training_ppl",
    "rollout_log_ppl",
    "rollout_ppl",
    "log_ppl_diff",
    "log_ppl_abs_diff",
    "ppl_ratio",
    "chi2_seq",
)
"""Diagnostics that slime logs as they are here."""

SLIME: tuple[LoggedName, ...] = (
    *(LoggedName("slime", f"mis_{name}", name) for name in SLIME_SAME_NAMES),
    LoggedName("slime", "mis_kl", "kl", f"{_BY_SEQUENCE} That makes it log_ppl_diff."),
    LoggedName("slime", "mis_k3_kl", "k3_kl", _BY_SEQUENCE),
    LoggedName("slime", "mis_chi2_token", "chi2_token", _BY_SEQUENCE),
    LoggedName("slime", "mis_tis_weight_before_bound", "rollout_is_seq_mean"),
    LoggedName("slime", "mis_tis_weight_after_bound", "rollout_is_applied_mean", f"{_BY_SEQUENCE} Before batch mean."),
    LoggedName("slime", "mis_is_ratio_mean_after_tis_rs", "rollout_is_applied_mean", f"{_BY_SEQUENCE} No batch mean."),
    LoggedName("slime", "mis_is_ratio_mean_final", "rollout_is_applied_mean", _BY_SEQUENCE),
    LoggedName("slime", "mis_is_ratio_min_final", "rollout_is_min", _EXTREME),
    LoggedName("slime", "mis_is_ratio_max_final", "rollout_is_applied_max", _EXTREME),
    LoggedName("slime", "mis_batch_norm_factor", "rollout_is_batch_norm_factor"),
    *(
        LoggedName("slime", f"mis_tis_{mode}_{end}", f"rollout_is_ratio_{end}", f"{_BY_SEQUENCE} {unit}")
        for mode, unit in (("clip", "Of tokens whose weight is clipped."), ("mask", "Of tokens that are masked."))
        for end in ("fraction_low", "fraction_high")
    ),
    LoggedName("slime", "mis_tis_truncate_fraction", "rollout_is_ratio_fraction_high", _BY_SEQUENCE),
    LoggedName("slime", "mis_rs_mask_fraction_low", "rollout_rs_rs_fraction_low", _BY_SEQUENCE),
    LoggedName("slime", "mis_rs_mask_fraction_high", "rollout_rs_rs_fraction_high", _BY_SEQUENCE),
    LoggedName("slime", "mis_rs_catastrophic_token_fraction", "rollout_is_catastrophic_token_fraction", _BY_SEQUENCE),
    LoggedName("slime", "mis_rs_catastrophic_seq_fraction", "rollout_is_veto_fraction"),
)

LOGGED: tuple[LoggedName, ...] = (
    *SLIME,
    LoggedName("slime", "train_rollout_logprob_abs_diff", "logprob_abs_diff_mean"),
    LoggedName("slime", "train_rollout_kl", "k3_kl", "slime clamps it."),
    LoggedName("slime", "ois", "ois_mean"),
    LoggedName("verl", "training/rollout_probs_diff_mean", "prob_abs_diff_mean"),
    LoggedName("verl", "training/rollout_probs_diff_std", "prob_abs_diff_std"),
    LoggedName("verl", "training/rollout_probs_diff_max", "prob_abs_diff_max"),
    LoggedName("verl", "training/rollout_actor_probs_pearson_corr", "prob_pearson"),
    LoggedName("verl", "actor/ppo_kl", "ppo_kl"),
    LoggedName("TRL", "sampling/sampling_logp_difference/mean", "logprob_abs_diff_mean"),
    LoggedName("TRL", "sampling/sampling_logp_difference/max", "logprob_abs_diff_max"),
    LoggedName("TRL", "sampling/importance_sampling_ratio/mean", "rollout_is_applied_mean"),
    LoggedName("NeMo-RL", "gen_kl_error", "k3_kl"),
    LoggedName("NeMo-RL", "policy_kl_error", "k3_kl_reverse"),
    LoggedName("NeMo-RL", "js_divergence_error", "js_divergence"),
    LoggedName("NeMo-RL", "token_mult_prob_error", "token_mult_prob_error"),
    LoggedName("NeMo-RL", "sampling_importance_ratio", "rollout_is_applied_mean"),
    LoggedName("OpenRLHF", "vllm_kl", "kl"),
    LoggedName("SkyRL", "rollout_train_logprobs_abs_diff_mean", "logprob_abs_diff_mean"),
    LoggedName("SkyRL", "rollout_train_logprobs_abs_diff_std", "logprob_abs_diff_std"),
    LoggedName("prime-rl", "mismatch_kl", "k3_kl"),
    LoggedName("prime-rl", "prob_delta", "prob_abs_diff_mean"),
)

_CLAMPED = "verl takes it over tokens at any scope, of weights clamped to the bounds (0.9: of applied ones)."
_APPLIED = "verl 0.9 takes applied weights, earlier releases raw ones."
_EXTREMES = "verl takes exp(min(max S, 20)) or exp(min S) at sequence scope, and 0.9 applied weights at token scope."
_EMPTY = "verl counts a sequence without valid tokens, too, at "
_AS_WEIGHT_0 = f"{_EMPTY}weight 0, and 0.9 takes applied weights."

VERL_DIFFERENCES: dict[str, str] = {
    "rollout_is_mean": _APPLIED,
    "rollout_is_std": _CLAMPED,
    "rollout_is_eff_sample_size": _CLAMPED,
    "rollout_is_max": _EXTREMES,
    "rollout_is_min": _EXTREMES,
    "rollout_is_ratio_fraction_high": f"{_EMPTY}ratio 1, at sequence scope.",
    "rollout_is_ratio_fraction_low": f"{_EMPTY}ratio 1, at sequence scope.",
    "rollout_is_seq_mean": _AS_WEIGHT_0,
    "rollout_is_seq_std": _AS_WEIGHT_0,
    "rollout_is_seq_min": _AS_WEIGHT_0,
    "rollout_is_seq_max": _AS_WEIGHT_0,
    "rollout_is_seq_max_deviation": _AS_WEIGHT_0,
    "rollout_is_seq_fraction_high": f"{_EMPTY}weight 0.",
    "rollout_is_seq_fraction_low": f"{_EMPTY}weight 0.",
    "rollout_is_batch_norm_factor": "verl 0.6 counts a sequence without valid tokens, too, at weight 0.",
    "rollout_is_veto_fraction": "verl counts sequences without valid tokens, too, and logs 0 without a veto.",
    "rollout_is_catastrophic_token_fraction": "verl logs 0 without a veto.",
    "rollout_rs_seq_masked_fraction": "verl counts sequences without valid tokens, too.",
    "training_ppl": f"{_EMPTY}perplexity 1.",
    "rollout_ppl": f"{_EMPTY}perplexity 1.",
    "training_log_ppl": f"{_EMPTY}0.",
    "rollout_log_ppl": f"{_EMPTY}0.",
    "log_ppl_diff": f"{_EMPTY}0.",
    "log_ppl_abs_diff": f"{_EMPTY}0.",
    "log_ppl_diff_max": f"{_EMPTY}0.",
    "log_ppl_diff_min": f"{_EMPTY}0.",
    "ppl_ratio": f"{_EMPTY}1.",
    "chi2_seq": f"{_EMPTY}0.",
}
"""Metric -> how verl's number of that name departs from ours."""

VERL_NAMES = frozenset(
    {*VERL_DIFFERENCES, "kl", "k3_kl", "chi2_token", "rollout_is_oob_ratio", "rollout_rs_masked_fraction"}
)
"""Our metrics that verl logs under rollout_corr/."""
