"""What frameworks call our metrics on their dashboards, and where their arithmetic departs from ours.

RELEASES are the profiles: the releases whose own numbers a report can give.  LOGGED has names as they are logged;
verl's many follow a rule (`VERL_PREFIXES` and our own name), so only its departures stand here.
"""

from rlcorr_cli.frozen import frozen


@frozen(kw_only=True)
class LoggedName:
    """One framework's name of a metric.

    canonical: the metric that it is by default.  difference: how its number departs from that.  otherwise: which number
    it is under other options of the framework.  Both are whole sentences, "" where there is nothing to say.
    """

    framework: str
    name: str
    canonical: str
    difference: str = ""
    otherwise: str = ""

    @property
    def note(self) -> str:
        """All that there is to say."""
        return f"{self.difference} {self.otherwise}".strip()


_XTUNER = "rollout_is/mismatch/"
"""What stands before xtuner's numbers of its weights."""

PROFILED = ("verl", "slime")
"""Frameworks whose own numbers a profile gives."""

CANONICAL = "canonical"
"""What a profile is called that is none: rlcorr's own names and numbers."""

RELEASES: dict[str, str] = {
    CANONICAL: "our own arithmetic and names, those of `rlcorr explain metrics`.",
    "verl-mismatch": "config keys and arithmetic of verl in 2025-10, its names under mismatch/.",
    "verl-0.6": "config keys and arithmetic of verl 0.6.x and 0.7.0, its names under rollout_corr/.",
    "verl-0.7": "config keys and arithmetic of verl 0.7.1, its names under rollout_corr/.",
    "verl-0.8": "config keys and arithmetic of verl 0.8.0, its names under rollout_corr/.",
    "verl-0.9": "config keys and arithmetic of verl 0.9.x, its names under rollout_corr/.",
    "slime": "options and arithmetic of slime's mis.py (2026-08), its names mis_....",
}
"""Profile -> what a report under it holds."""

VERL_PREFIXES = ("rollout_corr/", "mismatch/")
"""verl's groups of metrics: since 0.6, and in 2025-10."""

_AT_0 = "one without a loss token as 0"
_ROLLOUTS = f"slime weights the samples of one rollout by their tokens, and counts every rollout ({_AT_0})."
_BY_ROLLOUT = f"slime averages over the tokens of each rollout first, then over rollouts ({_AT_0})."
_EXTREME = f"slime takes the extreme applied weight of each sequence, then averages over rollouts ({_AT_0})."
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
"""Diagnostics that slime logs as they are here, but for how it averages over sequences."""

SLIME: tuple[LoggedName, ...] = (
    *(
        LoggedName(framework="slime", name=f"mis_{name}", canonical=name, difference=_ROLLOUTS)
        for name in SLIME_SAME_NAMES
    ),
    LoggedName(
        framework="slime",
        name="mis_kl",
        canonical="kl",
        difference=f"{_BY_ROLLOUT} It is the same as mis_log_ppl_diff.",
    ),
    LoggedName(framework="slime", name="mis_k3_kl", canonical="k3_kl", difference=_BY_ROLLOUT),
    LoggedName(framework="slime", name="mis_chi2_token", canonical="chi2_token", difference=_BY_ROLLOUT),
    LoggedName(
        framework="slime", name="mis_tis_weight_before_bound", canonical="rollout_is_seq_mean", difference=_ROLLOUTS
    ),
    LoggedName(
        framework="slime",
        name="mis_tis_weight_after_bound",
        canonical="rollout_is_applied_seq_mean",
        difference=f"{_ROLLOUTS} Before any batch mean.",
    ),
    LoggedName(
        framework="slime",
        name="mis_is_ratio_mean_after_tis_rs",
        canonical="rollout_is_applied_seq_mean",
        difference=f"{_ROLLOUTS} Before any batch mean.",
    ),
    LoggedName(
        framework="slime", name="mis_is_ratio_mean_final", canonical="rollout_is_applied_seq_mean", difference=_ROLLOUTS
    ),
    LoggedName(
        framework="slime", name="mis_is_ratio_min_final", canonical="rollout_is_applied_min", difference=_EXTREME
    ),
    LoggedName(
        framework="slime", name="mis_is_ratio_max_final", canonical="rollout_is_applied_max", difference=_EXTREME
    ),
    LoggedName(
        framework="slime", name="mis_batch_norm_factor", canonical="rollout_is_batch_norm_factor", difference=_ROLLOUTS
    ),
    *(
        LoggedName(
            framework="slime",
            name=f"mis_tis_{mode}_{end}",
            canonical=f"rollout_is_ratio_{end}",
            difference=f"{_BY_ROLLOUT} {unit}",
        )
        for mode, unit in (("clip", "Of tokens whose weight is clipped."), ("mask", "Of tokens that are masked."))
        for end in ("fraction_low", "fraction_high")
    ),
    LoggedName(
        framework="slime",
        name="mis_tis_truncate_fraction",
        canonical="rollout_is_ratio_fraction_high",
        difference=_BY_ROLLOUT,
    ),
    LoggedName(
        framework="slime",
        name="mis_rs_mask_fraction_low",
        canonical="rollout_rs_rs_fraction_low",
        difference=_BY_ROLLOUT,
    ),
    LoggedName(
        framework="slime",
        name="mis_rs_mask_fraction_high",
        canonical="rollout_rs_rs_fraction_high",
        difference=_BY_ROLLOUT,
    ),
    LoggedName(
        framework="slime",
        name="mis_rs_catastrophic_token_fraction",
        canonical="rollout_is_catastrophic_token_fraction",
        difference=_BY_ROLLOUT,
    ),
    LoggedName(
        framework="slime",
        name="mis_rs_catastrophic_seq_fraction",
        canonical="rollout_is_veto_fraction",
        difference=_ROLLOUTS,
    ),
)

_BY_SEQUENCE = "prime-rl averages over each sequence's tokens first, then over sequences."
_OF_ALL = f"{_BY_SEQUENCE} A sequence with no token to average over counts as 0."
_UNSCORED = "TRL leaves out tokens that vLLM could not score; --nonfinite keep counts them as 0."
_NO_ZERO = "Tokens of advantage 0 are masked as those below 0, and not counted here."
_OF_MASKED = "It is a share of the masked tokens: that over rollout_rs_masked_fraction."
_BY_UNIT = "With rho_mask_sequence_level or rho_mask_tv_divergence it is of tokens, where ours is of sequences."
_AS_1 = "In sequence modes a sequence without a loss token counts as 1."

LOGGED: tuple[LoggedName, ...] = (
    *SLIME,
    LoggedName(
        framework="slime",
        name="train_rollout_logprob_abs_diff",
        canonical="logprob_abs_diff_mean",
        difference=f"{_BY_ROLLOUT} With TIS a rejected token counts as 0.",
    ),
    LoggedName(framework="slime", name="ois", canonical="ois_mean", difference=_BY_ROLLOUT),
    LoggedName(
        framework="slime",
        name="opsm_clipfrac",
        canonical="rollout_rs_masked_fraction",
        difference="slime sums each sequence's share and divides by the samples of the step. It also counts tokens "
        "in holes of the mask.",
    ),
    LoggedName(
        framework="miles",
        name="train_rollout_kl",
        canonical="k3_kl",
        difference="miles averages over each sequence's tokens first, then over sequences, and limits each value.",
    ),
    LoggedName(framework="verl", name="training/rollout_probs_diff_mean", canonical="prob_abs_diff_mean"),
    LoggedName(
        framework="verl",
        name="training/rollout_probs_diff_std",
        canonical="prob_abs_diff_std",
        difference="verl divides by N - 1.",
    ),
    LoggedName(framework="verl", name="training/rollout_probs_diff_max", canonical="prob_abs_diff_max"),
    LoggedName(framework="verl", name="training/rollout_actor_probs_pearson_corr", canonical="prob_pearson"),
    LoggedName(framework="verl", name="actor/ppo_kl", canonical="ppo_kl"),
    LoggedName(
        framework="TRL",
        name="sampling/sampling_logp_difference/mean",
        canonical="logprob_abs_diff_mean",
        otherwise=_UNSCORED,
    ),
    LoggedName(
        framework="TRL",
        name="sampling/sampling_logp_difference/max",
        canonical="logprob_abs_diff_max",
    ),
    LoggedName(
        framework="TRL",
        name="sampling/importance_sampling_ratio/mean",
        canonical="rollout_is_applied_seq_mean",
        difference=_AS_1,
        otherwise="In token modes it is rollout_is_applied_mean; TRL's default is sequence_mask.",
    ),
    LoggedName(
        framework="TRL",
        name="sampling/importance_sampling_ratio/min",
        canonical="rollout_is_applied_min",
        difference=_AS_1,
    ),
    LoggedName(
        framework="TRL",
        name="sampling/importance_sampling_ratio/max",
        canonical="rollout_is_applied_max",
        difference=_AS_1,
    ),
    LoggedName(
        framework="NeMo-RL",
        name="gen_kl_error",
        canonical="k3_kl",
        otherwise="With reference_policy_kl_type k1 it is kl, with k2 it is k2_kl; k3 is the default.",
    ),
    LoggedName(
        framework="NeMo-RL",
        name="policy_kl_error",
        canonical="k3_kl_reverse",
        otherwise="With reference_policy_kl_type k1 it is minus kl, with k2 it is k2_kl; k3 is the default.",
    ),
    LoggedName(framework="NeMo-RL", name="js_divergence_error", canonical="js_divergence"),
    LoggedName(framework="NeMo-RL", name="token_mult_prob_error", canonical="token_mult_prob_error"),
    LoggedName(
        framework="NeMo-RL",
        name="sampling_importance_ratio",
        canonical="rollout_is_applied_mean",
        otherwise="With sequence_level_importance_ratios it is rollout_is_applied_seq_mean times the rows of a "
        "micro-batch, where a sequence without a loss token counts as 1. Without a correction it is that of "
        "raw weights. With seq-mask-tis rejected sequences count as 0: it is kept_ratio_mean times 1 - "
        "rollout_rs_masked_fraction.",
    ),
    LoggedName(
        framework="NeMo-RL",
        name="is_oob_ratio",
        canonical="rollout_is_oob_ratio",
        otherwise="With tis, which clamps, it is the rollout_is_oob_ratio of weights that are set to 0 outside the "
        "same bounds. With seq-mask-tis it is rollout_rs_seq_masked_fraction, which then also counts "
        "sequences without a loss token.",
    ),
    *(
        LoggedName(
            framework="NeMo-RL",
            name=name,
            canonical=canonical,
            otherwise="With sequence_level_importance_ratios it is of sequences' ratios.",
        )
        for name, canonical in (("probs_ratio", "ois_mean"), ("probs_ratio_max", "ois_max"))
    ),
    LoggedName(framework="OpenRLHF", name="vllm_kl", canonical="kl"),
    LoggedName(framework="SkyRL", name="rollout_train_logprobs_abs_diff_mean", canonical="logprob_abs_diff_mean"),
    LoggedName(
        framework="SkyRL",
        name="rollout_train_logprobs_abs_diff_std",
        canonical="logprob_abs_diff_std",
        difference="SkyRL divides by N - 1.",
    ),
    LoggedName(
        framework="prime-rl",
        name="mismatch_kl",
        canonical="k3_kl",
        difference=_BY_SEQUENCE,
    ),
    LoggedName(framework="prime-rl", name="unmasked_mismatch_kl", canonical="kept_k3_kl", difference=_OF_ALL),
    LoggedName(framework="prime-rl", name="is_masked", canonical="rollout_rs_masked_fraction", difference=_OF_ALL),
    LoggedName(
        framework="prime-rl",
        name="masked_mismatch_kl",
        canonical="k3_kl",
        difference="It is of the masked tokens alone: (k3_kl - kept_k3_kl (1 - m)) / m, where m is "
        f"rollout_rs_masked_fraction. {_OF_ALL}",
    ),
    *(
        LoggedName(
            framework="prime-rl",
            name=f"is_masked_{end}",
            canonical=f"rollout_rs_dppo_{end}_masked_fraction",
            difference=f"{_OF_ALL} {note}".rstrip(),
        )
        for end, note in (("high", ""), ("low", _NO_ZERO))
    ),
    *(
        LoggedName(
            framework="prime-rl",
            name=f"masked_advantage_{sign}",
            canonical=f"rollout_rs_dppo_{end}_masked_fraction",
            difference=f"{_OF_MASKED} {_OF_ALL} {note}".rstrip(),
        )
        for sign, end, note in (("positive", "high", ""), ("negative", "low", _NO_ZERO))
    ),
    LoggedName(framework="AReaL", name="behave_imp_weight", canonical="kept_ratio_mean"),
    LoggedName(framework="AReaL", name="behave_approx_kl", canonical="kept_log_ratio_mean"),
    LoggedName(framework="AReaL", name="behave_filtered_ratio", canonical="rollout_rs_masked_fraction"),
    LoggedName(framework="AReaL", name="logp_diff/avg", canonical="log_ratio_mean"),
    LoggedName(framework="AReaL", name="logp_abs_diff", canonical="logprob_abs_diff_mean"),
    LoggedName(framework="AReaL", name="logp_abs_diff/avg", canonical="logprob_abs_diff_mean"),
    LoggedName(framework="AReaL", name="logp_abs_diff/max", canonical="logprob_abs_diff_max"),
    *(
        LoggedName(framework="AReaL", name=name, canonical=canonical)
        for name, canonical in (("kl_k1", "kl"), ("kl_k2", "k2_kl"), ("kl_k3", "k3_kl"))
    ),
    LoggedName(framework="tinker", name="optim/kl_sample_train_v1", canonical="kl"),
    LoggedName(framework="tinker", name="optim/kl_sample_train_v2", canonical="k2_kl"),
    LoggedName(
        framework="open-instruct",
        name="val/rho_weight",
        canonical="rollout_is_applied_mean",
        otherwise="Where a mask is on, dropped tokens count as 0.",
    ),
    LoggedName(
        framework="open-instruct",
        name="val/rho_clipfrac",
        canonical="rollout_is_ratio_fraction_high",
        otherwise="With a lower bound it counts the tokens below it, too. With rho_mask_sequence_level it is of "
        "tokens, where ours is of sequences.",
    ),
    LoggedName(framework="open-instruct", name="val/rho_drop_frac", canonical="rollout_rs_masked_fraction"),
    *(
        LoggedName(
            framework="open-instruct",
            name=f"val/rho_drop_{end}_frac",
            canonical=f"rollout_rs_rho_fraction_{end}",
            otherwise=f"{_BY_UNIT} With one bound alone it is rollout_rs_masked_fraction.",
        )
        for end in ("low", "high")
    ),
    *(
        LoggedName(framework="ms-swift", name=f"rollout_correction/{name}", canonical=name)
        for name in ("kl", "chi2_token", "log_ppl_diff_max", "log_ppl_diff_min")
    ),
    *(
        LoggedName(framework="ms-swift", name=f"rollout_correction/{name}", canonical=name, difference=difference)
        for names, difference in (
            (("training_ppl", "rollout_ppl", "ppl_ratio"), "ms-swift counts a sequence without a loss token at 1."),
            (
                ("training_log_ppl", "rollout_log_ppl", "log_ppl_diff", "log_ppl_abs_diff"),
                "ms-swift counts a sequence without a loss token at 0.",
            ),
            (("k3_kl",), "ms-swift limits each token's value to 10."),
            (
                ("chi2_seq",),
                "It is another number under the same name: mean(e^2g) - 1, of the geometric ratio e^g, where verl's "
                "and this one are of the product e^S.",
            ),
        )
        for name in names
    ),
    LoggedName(
        framework="ms-swift",
        name="rollout_correction/is_weight_mean",
        canonical="rollout_is_applied_mean",
        otherwise="In sequence_truncate it is of geometric weights. In sequence_mask masked tokens count as 0.",
    ),
    LoggedName(
        framework="ms-swift",
        name="rollout_correction/clipped_frac",
        canonical="rollout_is_ratio_fraction_high",
        otherwise="In the sequence modes it is of sequences, one without a loss token counting, too.",
    ),
    LoggedName(
        framework="ms-swift",
        name="rollout_correction/ess",
        canonical="rollout_is_eff_sample_size",
        difference="In token_truncate, with a threshold C, it is of weights within 1/C and C: --is token:0.5,2. In "
        "other modes it is of weights that no plan here has.",
    ),
    LoggedName(framework="xtuner", name="mismatch/mismatch_logprob_abs_diff", canonical="logprob_abs_diff_mean"),
    *(
        LoggedName(framework="xtuner", name=f"{_XTUNER}rollout_is_{name}", canonical=f"rollout_is_{name}")
        for name in (
            *("mean", "max", "min", "seq_mean", "seq_std", "seq_max", "seq_min", "seq_max_deviation"),
            *("seq_fraction_high", "seq_fraction_low"),
        )
    ),
    *(
        LoggedName(
            framework="xtuner",
            name=f"{_XTUNER}rollout_is_ratio_fraction_{end}",
            canonical=f"rollout_is_ratio_fraction_{end}",
            otherwise=f"In mask mode it is rollout_rs_is_fraction_{end}. At sequence level a sequence without a loss "
            "token counts, too; at geometric level it is of tokens, where ours is of sequences.",
        )
        for end in ("high", "low")
    ),
    LoggedName(
        framework="xtuner", name=f"{_XTUNER}rollout_is_masked_fraction", canonical="rollout_rs_is_masked_fraction"
    ),
    LoggedName(
        framework="xtuner",
        name=f"{_XTUNER}rollout_is_seq_masked_fraction",
        canonical="rollout_rs_is_seq_masked_fraction",
        difference="xtuner also counts sequences without a loss token.",
    ),
    *(
        LoggedName(
            framework="ROLL",
            name=f"actor/train_infer_ratio_{level}_mean@sum",
            canonical="rollout_is_seq_mean",
            difference=f"It is that of {level} weights: --is {level}.",
        )
        for level in ("token", "geometric", "sequence")
    ),
    *(
        LoggedName(
            framework="ROLL",
            name=f"actor/train_infer_diff_{level}_mean@sum",
            canonical=f"rollout_rs_{scope}_prob_gap_mean",
            otherwise=f"Have it counted by a rejection that keeps everything: --rs prob_gap.{scope}:-1e9,1e9.",
        )
        for level, scope in (("token", "seq_mean"), ("geometric", "seq_mean"), ("sequence", "seq_sum"))
    ),
    LoggedName(
        framework="ROLL",
        name="actor/train_infer_final_mask_mean",
        canonical="rollout_rs_masked_fraction",
        difference="It is 1 - that: the share of loss tokens that stay.",
    ),
    LoggedName(
        framework="ROLL",
        name="actor/is_weight_clipfrac@sum",
        canonical="rollout_is_ratio_fraction_high",
        otherwise="With sequence and geometric weights it also counts positions outside the mask.",
    ),
)

_CLAMPED = "verl computes it over tokens at every scope, of clamped weights (from 0.8 on: of applied weights)."
_APPLIED = "verl uses applied weights from 0.8 on, raw ones before."
_EXTREMES = "verl uses exp(min(max S, 20)) or exp(min S) at sequence scope, and from 0.8 on applied token weights."
_EMPTY = "verl also counts a sequence without valid tokens, as "
_UNIT_SHARE = (
    f"{_EMPTY}ratio 1, at sequence scope. In 2025-10 (mismatch/) it also counts what mask mode drops, and "
    "counts tokens at geometric level."
)
_AS_WEIGHT_0 = f"{_EMPTY}weight 0, and from 0.8 on uses applied weights."
_NO_VETO = "verl 0.6 leaves out what only its veto drops."
_SEQUENCE_SHARE = f"{_EMPTY}weight 0, and 0.8 uses applied weights."

VERL_DIFFERENCES: dict[str, str] = {
    "rollout_is_mean": _APPLIED,
    "rollout_is_std": _CLAMPED,
    "rollout_is_eff_sample_size": _CLAMPED,
    "rollout_is_max": _EXTREMES,
    "rollout_is_min": _EXTREMES,
    "rollout_is_ratio_fraction_high": _UNIT_SHARE,
    "rollout_is_ratio_fraction_low": _UNIT_SHARE,
    "rollout_is_seq_mean": _AS_WEIGHT_0,
    "rollout_is_seq_std": _AS_WEIGHT_0,
    "rollout_is_seq_min": _AS_WEIGHT_0,
    "rollout_is_seq_max": _AS_WEIGHT_0,
    "rollout_is_seq_max_deviation": _AS_WEIGHT_0,
    "rollout_is_seq_fraction_high": _SEQUENCE_SHARE,
    "rollout_is_seq_fraction_low": _SEQUENCE_SHARE,
    "rollout_is_batch_norm_factor": "verl 0.6 also counts a sequence without valid tokens, as weight 0.",
    "rollout_is_veto_fraction": "verl also counts sequences without valid tokens, and logs 0 without a veto.",
    "rollout_is_catastrophic_token_fraction": "verl logs 0 without a veto.",
    "rollout_rs_masked_fraction": _NO_VETO,
    "rollout_rs_seq_masked_fraction": f"verl also counts sequences without valid tokens. {_NO_VETO}",
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

XTUNER_DIFFERENCE = "xtuner's number of that name is over a micro-batch's tokens as one sequence."
"""Of VERL_DIFFERENCES' log_ppl and ppl metrics under mismatch/, which xtuner logs, too."""

VERL_NAMES = frozenset({*VERL_DIFFERENCES, "kl", "k3_kl", "chi2_token", "rollout_is_oob_ratio"})
"""Our metrics that verl logs under rollout_corr/."""


def verl_difference(name: str, prefix: str) -> str:
    """How the number that is logged under prefix + name departs from our metric; "" where it does not."""
    of_verl = VERL_DIFFERENCES.get(name, "")
    return f"{of_verl} {XTUNER_DIFFERENCE}" if prefix == VERL_PREFIXES[1] and "ppl" in name else of_verl
