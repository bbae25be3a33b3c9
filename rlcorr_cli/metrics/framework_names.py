"""What frameworks call our metrics on their dashboards, and where their arithmetic departs from ours.

RELEASES are the profiles: the releases whose own numbers a report can give.  LOGGED has names as they are logged;
verl's many follow a rule (`VERL_PREFIXES` and our own name), so only its departures stand here.
"""

from rlcorr_cli.frozen import frozen


@frozen(kw_only=True)
class LoggedName:
    """One framework's name of a metric.

    canonical: the metric that it is by default, "" where none here is.  difference: how its number departs from that,
    or what it is where there is none.  otherwise: which number it is under other options of the framework.  Both are
    whole sentences, "" where there is nothing to say.
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

    @property
    def has_its_size(self) -> bool:
        """Whether its number is of the size of the metric, so that a rule on that judges it: it may average otherwise,
        and is no count, no other end, and not the rest to 1."""
        return bool(self.canonical) and not self.difference.startswith(OF_ANOTHER_SIZE)


_XTUNER = "rollout_is/mismatch/"
"""What stands before xtuner's numbers of its weights."""

PROFILED = ("verl", "slime")
"""Frameworks whose own numbers a profile gives."""

CANONICAL = "canonical"
"""What a profile is called that is none: rlcorr's own names and numbers."""

RELEASES: dict[str, str] = {
    CANONICAL: "our own arithmetic and names, those of `rlcorr help metrics`.",
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
    *("training_log_ppl", "training_ppl", "rollout_log_ppl", "rollout_ppl"),
    *("log_ppl_diff", "log_ppl_abs_diff", "ppl_ratio", "chi2_seq"),
)
"""Diagnostics that slime logs as they are here, but for how it averages over sequences."""

_BEFORE = "Until 2026-05-18 it was averaged over each sequence's tokens first, then over sequences."
_BY_SEQUENCE = "prime-rl averages over each sequence's tokens first, then over sequences."
_OF_ALL = f"{_BY_SEQUENCE} A sequence with no token to average over counts as 0."
_UNSCORED = "TRL leaves out tokens that vLLM could not score; --nonfinite keep counts them as 0."
_NO_ZERO = "Tokens of advantage 0 are masked as those below 0, and not counted here."
_OF_MASKED = "It is a share of the masked tokens: that over rollout_rs_masked_fraction."
_BY_UNIT = (
    "With rho_mask_sequence_level or rho_mask_tv_divergence it is of tokens, where ours is of sequences. With one "
    "bound alone it is rollout_rs_masked_fraction."
)
_AS_1 = "In sequence modes a sequence without a loss token counts as 1."

_LEVELS = "With sequence_level_importance_ratios it is of sequences' ratios."
_BEFORE_NORM = f"{_ROLLOUTS} Before any batch mean."
_SWIFT_1, _SWIFT_0 = (f"ms-swift counts a sequence without a loss token at {value}." for value in (1, 0))
_XTUNER_SHARE = "At sequence level it counts a sequence without a loss token, too; at geometric level it is of tokens."
_ERROR_OF_SEQUENCES = "rollout_rs_seq_mean_exp_abs_log_ratio"
_HOW_ERROR = "Have it counted by a rejection that keeps everything: --rs exp_abs_log_ratio.seq_mean:,1e9."
_LAG = "Trainer steps since the version of the weights that sampled; a column of it splits a report: --group-by."
_DIFFUSION = "verl-omni's is of a diffusion model's latents at each timestep, not of tokens."
_OF_OPSM = "slime sums sequences' shares and divides by the step's samples. It counts tokens in holes of the mask, too."
_WITH_TIS = "With TIS a rejected token counts as 0."
_BELOW_TOO = "With a lower bound it counts the tokens below it, too."
_OF_MILES = "miles averages over each sequence's tokens first, then over sequences, and limits each value."
_OF_DRIFT = "The effective share of a sample under PPO's ratio of the current over the old policy."
_MIXED = "The share of samples that were sampled by more than one version of the weights."
_CLIPPED = "With another loss mode it is the share of what that loss clips or masks."
_TOKEN_MODES = "In token modes it is rollout_is_applied_mean; TRL's default is sequence_mask."
_K1_K2 = "With reference_policy_kl_type k1 it is {}kl, with k2 it is k2_kl; k3 is the default."
_COUNT = "It is a count: that share times the sequences of the step."
_LAST = "It is a count: of the rows that no other mask took, those that seq_logprob_error_threshold masks."
_WHY = "NeMo-RL's rows, rollouts and groups of a step, and why they were masked."
_CORRECT = "The share with reward 1 of the sequences that seq_logprob_error_threshold masks."
_NONFINITE = "The share of tokens with a log-prob that is not finite; `rlcorr inspect` counts such rows."
_MASKED_ALONE = "It is of masked tokens: (k3_kl - kept_k3_kl (1 - m)) / m, where m is rollout_rs_masked_fraction."
_BEYOND = "The share of tokens with a ratio outside {}: --rs ratio.token:{} gives it as rollout_rs_masked_fraction."
_BELOW = f"{_BELOW_TOO} With rho_mask_sequence_level it is of tokens."
_TWICE = "In most releases each log-ratio is weighted by its rollout probability once more: the number is smaller."
_GEOMETRIC = "It is another number under the same name: mean(e^2g) - 1, of the geometric ratio e^g, not of e^S."
_SWIFT_MODES = "In sequence_truncate it is of geometric weights. In sequence_mask masked tokens count as 0."
_SWIFT_CLIPS = "In the sequence modes it is of sequences, one without a loss token counting, too."
_SWIFT_ESS = (
    "In token_truncate it is of weights within 1/C and C: --is token:0.5,2. In others no plan here has its weights."
)
_M2 = "The mean square of tokens' log-ratios at M2PO's mask (pull request 9965); k2_kl is half such a mean."
_OUTSIDE = "With sequence and geometric weights it also counts positions outside the mask."
_HOW_GAP = "Have it counted by a rejection that keeps everything: --rs prob_gap.{}:-1e9,1e9."

_STAYS, _NO_METRIC = "It is 1 - that: the share that stays.", "Its "
OF_ANOTHER_SIZE = (
    *(_STAYS, _COUNT, _LAST, "It is twice that.", _GEOMETRIC, _TWICE, _OF_MASKED, _MASKED_ALONE, _DIFFUSION),
    *(_OF_OPSM, _NO_METRIC),
)
"""How what is said of a name begins where its number is no such metric's."""

_ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "slime": (
        *((f"mis_{name}", name, _ROLLOUTS) for name in SLIME_SAME_NAMES),
        ("mis_kl", "kl", f"{_BY_ROLLOUT} It is the same as mis_log_ppl_diff."),
        ("mis_k3_kl", "k3_kl", _BY_ROLLOUT),
        ("mis_chi2_token", "chi2_token", _BY_ROLLOUT),
        ("mis_tis_weight_before_bound", "rollout_is_seq_mean", _ROLLOUTS),
        ("mis_tis_weight_after_bound", "rollout_is_applied_seq_mean", _BEFORE_NORM),
        ("mis_is_ratio_mean_after_tis_rs", "rollout_is_applied_seq_mean", _BEFORE_NORM),
        ("mis_is_ratio_mean_final", "rollout_is_applied_seq_mean", _ROLLOUTS),
        ("mis_is_ratio_min_final", "rollout_is_applied_min", _EXTREME),
        ("mis_is_ratio_max_final", "rollout_is_applied_max", _EXTREME),
        ("mis_batch_norm_factor", "rollout_is_batch_norm_factor", _ROLLOUTS),
        *(
            (f"mis_tis_{mode}_{end}", f"rollout_is_ratio_{end}", f"{_BY_ROLLOUT} {unit}")
            for mode, unit in (("clip", "Of tokens whose weight is clipped."), ("mask", "Of tokens that are masked."))
            for end in ("fraction_low", "fraction_high")
        ),
        ("mis_tis_truncate_fraction", "rollout_is_ratio_fraction_high", _BY_ROLLOUT),
        ("mis_rs_mask_fraction_low", "rollout_rs_rs_fraction_low", _BY_ROLLOUT),
        ("mis_rs_mask_fraction_high", "rollout_rs_rs_fraction_high", _BY_ROLLOUT),
        ("mis_rs_catastrophic_token_fraction", "rollout_is_catastrophic_token_fraction", _BY_ROLLOUT),
        ("mis_rs_catastrophic_seq_fraction", "rollout_is_veto_fraction", _ROLLOUTS),
        ("train_rollout_logprob_abs_diff", "logprob_abs_diff_mean", f"{_BY_ROLLOUT} {_WITH_TIS}"),
        ("ois", "ois_mean", _BY_ROLLOUT),
        ("train/tis", "ratio_mean", _BY_ROLLOUT),
        ("tis_abs", "rollout_rs_token_ratio_gap_mean", _BY_ROLLOUT, "Have it counted by --rs ratio_gap.token:,1e9."),
        ("tis_clipfrac", "rollout_is_ratio_fraction_high", _BY_ROLLOUT, _BELOW_TOO),
        ("opsm_clipfrac", "rollout_rs_masked_fraction", _OF_OPSM),
    ),
    "miles": (
        ("train_rollout_kl", "k3_kl", _OF_MILES),
        ("ess_ratio", "", _OF_DRIFT),
        ("weight_version/mixed_version_ratio", "", _MIXED),
    ),
    "verl": (
        ("training/rollout_probs_diff_mean", "prob_abs_diff_mean"),
        ("training/rollout_probs_diff_std", "prob_abs_diff_std", "verl divides by N - 1."),
        ("training/rollout_probs_diff_max", "prob_abs_diff_max"),
        ("training/rollout_actor_probs_pearson_corr", "prob_pearson"),
        ("actor/ppo_kl", "ppo_kl"),
        ("actor/pg_clipfrac", "objective/ppo/clip_fraction", "", _CLIPPED),
        ("actor/pg_clipfrac_lower", "objective/ppo/dual_clip_fraction"),
        ("training/rollout_probs_diff_valid", "", "1 where a step has tokens to compare, else 0."),
        *((f"mismatch/rollout_is_p{n}", "", f"Percentile {n} of raw weights.") for n in (25, 50, 75, 95, 99)),
        ("training/off_policy/trajectory_staleness", "", f"{_LAG} Of the newest version in a trajectory."),
        ("training/off_policy/trajectory_staleness_worst", "", f"{_LAG} Of the oldest version in a trajectory."),
        ("training/off_policy/trajectory_spans", "", "How many versions of the weights sampled one trajectory."),
    ),
    "verl-omni": (
        ("rollout_corr/logprob_abs_diff", "", _DIFFUSION),
        ("rollout_corr/logprob_abs_diff_mean", "logprob_abs_diff_mean", _DIFFUSION),
        ("rollout_corr/logprob_abs_diff_max", "logprob_abs_diff_max", _DIFFUSION),
    ),
    "TRL": (
        ("sampling/sampling_logp_difference/mean", "logprob_abs_diff_mean", "", _UNSCORED),
        ("sampling/sampling_logp_difference/max", "logprob_abs_diff_max"),
        ("sampling/importance_sampling_ratio/mean", "rollout_is_applied_seq_mean", _AS_1, _TOKEN_MODES),
        ("sampling/importance_sampling_ratio/min", "rollout_is_applied_min", _AS_1),
        ("sampling/importance_sampling_ratio/max", "rollout_is_applied_max", _AS_1),
    ),
    "NeMo-RL": (
        ("gen_kl_error", "k3_kl", "", _K1_K2.format("")),
        ("policy_kl_error", "k3_kl_reverse", "", _K1_K2.format("minus ")),
        ("js_divergence_error", "js_divergence"),
        ("token_mult_prob_error", "token_mult_prob_error"),
        *(
            (f"{end}_seq_mult_prob_error{after}", f"{_ERROR_OF_SEQUENCES}_{end}", difference, _HOW_ERROR)
            for after, difference in (("", ""), ("_after_mask", "It is of the sequences that stay."))
            for end in ("max", "mean", "min")
        ),
        ("num_masked_seqs_by_logprob_error", "rollout_rs_seq_masked_fraction", _COUNT),
        ("masked_correct_pct", "", _CORRECT),
        ("masking/seq_logprob_error_rows", "rollout_rs_seq_masked_fraction", _LAST),
        ("masking", "", _WHY),
        (
            "sampling_importance_ratio",
            "rollout_is_applied_mean",
            "",
            "With sequence_level_importance_ratios it is rollout_is_applied_seq_mean times the rows of a micro-batch, "
            "where a sequence without a loss token counts as 1. Without a correction it is that of raw weights. With "
            "seq-mask-tis rejected sequences count as 0: it is kept_ratio_mean times 1 - rollout_rs_masked_fraction.",
        ),
        (
            "is_oob_ratio",
            "rollout_is_oob_ratio",
            "",
            "With tis, which clamps, it is the rollout_is_oob_ratio of weights that are set to 0 outside the same "
            "bounds. With seq-mask-tis it is rollout_rs_seq_masked_fraction, which then also counts sequences without "
            "a loss token.",
        ),
        ("probs_ratio", "ois_mean", "", _LEVELS),
        ("probs_ratio_max", "ois_max", "", _LEVELS),
    ),
    "OpenRLHF": (("vllm_kl", "kl"),),
    "SkyRL": (
        ("rollout_train_logprobs_abs_diff_mean", "logprob_abs_diff_mean"),
        ("rollout_train_logprobs_abs_diff_std", "logprob_abs_diff_std", "SkyRL divides by N - 1."),
    ),
    "prime-rl": (
        ("mismatch_kl", "k3_kl", "", _BEFORE),
        ("mismatch_k3_stable", "k3_kl"),
        ("logprob_abs_error", "logprob_abs_diff_mean"),
        ("logprob_bit_mismatch", "bit_mismatch"),
        ("logprob_nonfinite", "", _NONFINITE),
        ("unmasked_mismatch_kl", "kept_k3_kl", _OF_ALL),
        ("is_masked", "rollout_rs_masked_fraction", _OF_ALL),
        ("masked_mismatch_kl", "k3_kl", f"{_MASKED_ALONE} {_OF_ALL}"),
        *(
            (f"is_masked_{end}", f"rollout_rs_dppo_{end}_masked_fraction", f"{_OF_ALL} {note}".rstrip())
            for end, note in (("high", ""), ("low", _NO_ZERO))
        ),
        *(
            (
                f"masked_advantage_{sign}",
                f"rollout_rs_dppo_{end}_masked_fraction",
                f"{_OF_MASKED} {_OF_ALL} {note}".rstrip(),
            )
            for sign, end, note in (("positive", "high", ""), ("negative", "low", _NO_ZERO))
        ),
    ),
    "AReaL": (
        ("behave_imp_weight", "kept_ratio_mean"),
        ("behave_approx_kl", "kept_log_ratio_mean"),
        ("behave_filtered_ratio", "rollout_rs_masked_fraction"),
        ("logp_diff/avg", "log_ratio_mean"),
        ("logp_abs_diff", "logprob_abs_diff_mean"),
        ("logp_abs_diff/avg", "logprob_abs_diff_mean"),
        ("logp_abs_diff/max", "logprob_abs_diff_max"),
        ("kl_k1", "kl"),
        ("kl_k2", "k2_kl"),
        ("kl_k3", "k3_kl"),
        ("rollout_train_k3_kl", "k3_kl"),
        ("rollout_train_logp_abs_diff", "logprob_abs_diff_mean"),
        ("rollout_train_logp_abs_diff/max", "logprob_abs_diff_max"),
        ("rollout_train_logp_sq_diff", "k2_kl", "It is twice that."),
        ("rollout_train_extreme_frac_tau2", "", _BEYOND.format("1/2 and 2", "0.5,2")),
        ("rollout_train_extreme_frac_tau5", "", _BEYOND.format("1/5 and 5", "0.2,5")),
    ),
    "tinker": (("optim/kl_sample_train_v1", "kl"), ("optim/kl_sample_train_v2", "k2_kl")),
    "tunix": (
        ("sampler_trainer/logp_diff_mean", "logprob_abs_diff_mean"),
        ("sampler_trainer/logp_diff_max", "logprob_abs_diff_max"),
        ("sampler_trainer/prob_diff_mean", "prob_abs_diff_mean"),
        ("sampler_trainer/prob_diff_max", "prob_abs_diff_max"),
        ("sampler_trainer/mult_prob_error_mean", f"{_ERROR_OF_SEQUENCES}_mean", "", _HOW_ERROR),
        ("sampler_trainer/mult_prob_error_max", f"{_ERROR_OF_SEQUENCES}_max", "", _HOW_ERROR),
        ("sampler_is/weight_mean", "rollout_is_applied_mean"),
        ("sampler_is/weight_min", "rollout_is_applied_min"),
        ("sampler_is/weight_max", "rollout_is_applied_max"),
        ("sampler_is/frac_clipped_at_threshold", "rollout_is_ratio_fraction_high"),
        ("sampler_is/token_logdiff_absmean", "logprob_abs_diff_mean"),
        ("sampler_is/token_logdiff_absmax", "logprob_abs_diff_max"),
        ("sampler_is/token_logdiff_mean", "log_ratio_mean"),
        ("sampler_is/token_weight_mean", "ratio_mean"),
        ("sample_mask/mult_prob_error_mean", f"{_ERROR_OF_SEQUENCES}_mean", "", _HOW_ERROR),
        ("sample_mask/mult_prob_error_max", f"{_ERROR_OF_SEQUENCES}_max", "", _HOW_ERROR),
        ("sample_mask/kept_frac", "rollout_rs_seq_masked_fraction", _STAYS),
        ("tis/is_oob_ratio", "rollout_is_oob_ratio"),
        ("sampler_rs/rejected_fraction", "rollout_rs_masked_fraction"),
    ),
    "UniRL": (
        ("rollout_replay_logp_absdiff_mean", "logprob_abs_diff_mean"),
        ("rollout_replay_logp_absdiff_max", "logprob_abs_diff_max"),
    ),
    "open-instruct": (
        ("val/rho_weight", "rollout_is_applied_mean", "", "Where a mask is on, dropped tokens count as 0."),
        ("val/rho_clipfrac", "rollout_is_ratio_fraction_high", "", _BELOW),
        ("val/rho_drop_frac", "rollout_rs_masked_fraction"),
        ("val/rho_drop_low_frac", "rollout_rs_rho_fraction_low", "", _BY_UNIT),
        ("val/rho_drop_high_frac", "rollout_rs_rho_fraction_high", "", _BY_UNIT),
        ("debug/vllm_vs_local_logprob_diff_mean", "logprob_abs_diff_mean"),
        ("debug/vllm_vs_local_logprob_diff_max", "logprob_abs_diff_max"),
        ("debug/vllm_vs_local_logprob_diff_std", "logprob_abs_diff_std", "open-instruct divides by N - 1."),
        ("debug/vllm_local_reverse_kl", "kl", _TWICE, "Later ones leave it out: it is kl."),
    ),
    "ms-swift": (
        *(
            (f"rollout_correction/{name}", name)
            for name in ("kl", "chi2_token", "log_ppl_diff_max", "log_ppl_diff_min")
        ),
        *((f"rollout_correction/{name}", name, _SWIFT_1) for name in ("training_ppl", "rollout_ppl", "ppl_ratio")),
        *(
            (f"rollout_correction/{name}", name, _SWIFT_0)
            for name in ("training_log_ppl", "rollout_log_ppl", "log_ppl_diff", "log_ppl_abs_diff")
        ),
        ("rollout_correction/k3_kl", "k3_kl", "ms-swift limits each token's value to 10."),
        ("rollout_correction/chi2_seq", "chi2_seq", _GEOMETRIC),
        ("rollout_correction/is_weight_mean", "rollout_is_applied_mean", "", _SWIFT_MODES),
        ("rollout_correction/clipped_frac", "rollout_is_ratio_fraction_high", "", _SWIFT_CLIPS),
        ("rollout_correction/ess", "rollout_is_eff_sample_size", _SWIFT_ESS),
        ("m2_before", "", _M2),
        ("m2_after", "", _M2),
    ),
    "xtuner": (
        ("mismatch/mismatch_logprob_abs_diff", "logprob_abs_diff_mean"),
        *(
            (f"{_XTUNER}rollout_is_{name}", f"rollout_is_{name}")
            for name in (
                *("mean", "max", "min", "seq_mean", "seq_std", "seq_max", "seq_min", "seq_max_deviation"),
                *("seq_fraction_high", "seq_fraction_low"),
            )
        ),
        *(
            (
                f"{_XTUNER}rollout_is_ratio_fraction_{end}",
                f"rollout_is_ratio_fraction_{end}",
                "",
                f"In mask mode it is rollout_rs_is_fraction_{end}. {_XTUNER_SHARE}",
            )
            for end in ("high", "low")
        ),
        (f"{_XTUNER}rollout_is_masked_fraction", "rollout_rs_is_masked_fraction"),
        (
            f"{_XTUNER}rollout_is_seq_masked_fraction",
            "rollout_rs_is_seq_masked_fraction",
            "xtuner also counts sequences without a loss token.",
        ),
    ),
    "ROLL": (
        *(
            (f"actor/train_infer_ratio_{level}_mean@sum", "rollout_is_seq_mean", f"It is of weights of --is {level}.")
            for level in ("token", "geometric", "sequence")
        ),
        *(
            (
                f"actor/train_infer_diff_{level}_mean@sum",
                f"rollout_rs_{scope}_prob_gap_mean",
                "",
                _HOW_GAP.format(scope),
            )
            for level, scope in (("token", "seq_mean"), ("geometric", "seq_mean"), ("sequence", "seq_sum"))
        ),
        ("actor/train_infer_final_mask_mean", "rollout_rs_masked_fraction", _STAYS),
        ("actor/is_weight_clipfrac@sum", "rollout_is_ratio_fraction_high", "", _OUTSIDE),
    ),
}
"""Framework -> its rows: name, canonical, difference and otherwise, of which the last two may be left out."""

LOGGED = tuple(
    LoggedName(framework=framework, **dict(zip(("name", "canonical", "difference", "otherwise"), row, strict=False)))
    for framework, rows in _ROWS.items()
    for row in rows
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
    **dict.fromkeys((f"rollout_is_seq_{end}" for end in ("mean", "std", "min", "max", "max_deviation")), _AS_WEIGHT_0),
    **dict.fromkeys(("rollout_is_seq_fraction_high", "rollout_is_seq_fraction_low"), _SEQUENCE_SHARE),
    "rollout_is_batch_norm_factor": "verl 0.6 also counts a sequence without valid tokens, as weight 0.",
    "rollout_is_veto_fraction": "verl also counts sequences without valid tokens, and logs 0 without a veto.",
    "rollout_is_catastrophic_token_fraction": "verl logs 0 without a veto.",
    "rollout_rs_masked_fraction": _NO_VETO,
    "rollout_rs_seq_masked_fraction": f"verl also counts sequences without valid tokens. {_NO_VETO}",
    **dict.fromkeys(("training_ppl", "rollout_ppl"), f"{_EMPTY}perplexity 1."),
    **dict.fromkeys(("training_log_ppl", "rollout_log_ppl"), f"{_EMPTY}0."),
    **dict.fromkeys((f"log_ppl_{end}" for end in ("diff", "abs_diff", "diff_max", "diff_min")), f"{_EMPTY}0."),
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
