"""Other frameworks' methods as plans.

Where a peer's option has no default the bound here is its documents' example, and `when` or `source` says so.  TRL,
NeMo-RL, OpenRLHF, AReaL and prime-rl clamp no log-ratio before the exponential; slime's mis.py and SkyRL do, at +-20.
"""

from rlcorr_cli.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.presets.preset import Preset


def _weights(name: str, weighting: Weighting, when: str, source: str, aliases: tuple[str, ...] = ()) -> Preset:
    return Preset(Plan(name, weighting, log_ratio_limit=None), aliases, when, source)


def _keeps(name: str, when: str, source: str, *rejections: Rejection, limit: float | None = None) -> Preset:
    return Preset(Plan(name, None, rejections, log_ratio_limit=limit), (), when, source)


_SLIME = "slime (2026-08)"
_TRL = "TRL GRPOConfig, vllm_importance_sampling_correction, cap 3.0"
_NEMO = "NeMo-RL, loss_fn.use_importance_sampling_correction"
_OPENRLHF = "OpenRLHF, vllm_is_correction_type, thresholds 0.5 and 5.0"
_SKYRL = "SkyRL, trainer.algorithm.off_policy_correction"
_AREAL = "AReaL, actor.behave_imp_weight_cap / rejection_sampling, upper 5.0"
_PRIME = "prime-rl, loss"

ROWS: tuple[Preset, ...] = (
    _weights(
        "slime_tis",
        Weighting("token", Bounds(0.0, 2.0)),
        "slime's own token weights, without its mis.py.",
        f"{_SLIME}, --use-tis, --tis-clip 2.0, --tis-clip-low 0",
    ),
    _weights(
        "slime_icepop",
        Weighting("token", Bounds(0.5, 5.0), "zero"),
        "Token weights, nothing outside the bounds; here IcePop's own 0.5 and 5.0.",
        f"{_SLIME} and miles, icepop function, --tis-clip-low, --tis-clip",
        ("miles_icepop",),
    ),
    Preset(
        Plan(
            "slime_mis",
            Weighting("token", Bounds(None, 2.0), normalize="batch"),
            (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"), veto(1e-4)),
        ),
        (),
        "Token weights of batch mean 1, tokens beyond the cap masked, a veto.",
        f"{_SLIME}, examples/train_infer_mismatch_helper/mis.yaml",
    ),
    _weights(
        "slime_cis",
        Weighting("token", Bounds(0.5, 2.0)),
        "Clipped token weights, from both sides; --is sequence or geometric for its other levels.",
        f"{_SLIME}, mis.py tis_mode=clip",
    ),
    _weights(
        "trl_token_truncate",
        Weighting("token", Bounds(None, 3.0)),
        "Token weights, capped.",
        f"{_TRL}, mode token_truncate",
    ),
    _weights(
        "trl_token_mask",
        Weighting("token", Bounds(None, 3.0), "zero"),
        "Token weights, zero beyond the cap.",
        f"{_TRL}, mode token_mask",
    ),
    _weights(
        "trl_sequence_truncate",
        Weighting("sequence", Bounds(None, 3.0)),
        "Sequence weights (the product), capped.",
        f"{_TRL}, mode sequence_truncate",
    ),
    _weights(
        "trl_sequence_mask",
        Weighting("sequence", Bounds(None, 3.0), "zero"),
        "TRL's default: sequence weights, zero beyond the cap.",
        f"{_TRL}, mode sequence_mask",
    ),
    _weights(
        "nemo_tis",
        Weighting("token", Bounds(None, 2.0)),
        "Capped token weights; NeMo-RL has no default cap.",
        f"{_NEMO}, truncated_importance_sampling_type tis",
    ),
    _weights(
        "nemo_icepop",
        Weighting("token", Bounds(0.5, 5.0), "zero"),
        "Token weights, nothing outside 0.5 to 5.0.",
        f"{_NEMO}, truncated_importance_sampling_type icepop",
    ),
    Preset(
        Plan(
            "nemo_seq_mask_tis",
            Weighting("token"),
            (Rejection("ratio", "seq_mean", Bounds(0.999, 1.002), "geometric"),),
            log_ratio_limit=None,
        ),
        (),
        "Raw token weights on sequences whose geometric ratio is near 1.",
        f"{_NEMO}, truncated_importance_sampling_type seq-mask-tis",
    ),
    _keeps(
        "nemo_seq_logprob_error",
        "Drop sequences whose mean of e^|l| is large; the threshold has no default, here 2.0.",
        "NeMo-RL, grpo.seq_logprob_error_threshold",
        Rejection("exp_abs_log_ratio", "seq_mean", Bounds(None, 2.0)),
    ),
    _weights(
        "openrlhf_tis",
        Weighting("token", Bounds(0.5, 5.0)),
        "Token weights clamped from both sides.",
        f"{_OPENRLHF}, tis",
    ),
    _weights(
        "openrlhf_icepop",
        Weighting("token", Bounds(0.5, 5.0), "zero"),
        "Token weights, nothing outside the bounds.",
        f"{_OPENRLHF}, icepop",
    ),
    Preset(
        Plan(
            "openrlhf_seq_mask_tis",
            Weighting("token"),
            (Rejection("ratio", "seq_mean", Bounds(0.5, 5.0), "geometric"),),
            log_ratio_limit=None,
        ),
        (),
        "Raw token weights on sequences whose geometric ratio is inside the bounds.",
        f"{_OPENRLHF}, seq-mask-tis",
    ),
    Preset(
        Plan("skyrl_tis_token", Weighting("token", Bounds(None, 2.0))),
        (),
        "Capped token weights.",
        f"{_SKYRL}, tis_ratio_type token, cap 2.0",
    ),
    Preset(
        Plan("skyrl_tis_sequence", Weighting("sequence", Bounds(None, 5.0))),
        (),
        "Capped sequence weights (the product).",
        f"{_SKYRL}, tis_ratio_type sequence, cap 5.0",
    ),
    _keeps(
        "skyrl_geometric",
        "Drop sequences whose geometric ratio is off by more than 1 %.",
        f"{_SKYRL}, sequence_mask_metric geometric, 0.99 and 1.01",
        Rejection("ratio", "seq_mean", Bounds(0.99, 1.01), "geometric"),
        limit=20.0,
    ),
    _keeps(
        "skyrl_product",
        "Drop sequences whose product ratio leaves 0.5 to 2.",
        f"{_SKYRL}, sequence_mask_metric product, 0.5 and 2.0",
        Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "product"),
        limit=20.0,
    ),
    _keeps(
        "skyrl_outlier",
        "Drop sequences that hold a token ratio below 1e-4 or above 100.",
        f"{_SKYRL}, outlier_token_is_threshold_low and _high, here 1e-4 and 100",
        Rejection("ratio", "seq_min", Bounds(1e-4, None), "outlier_low"),
        Rejection("ratio", "seq_max", Bounds(None, 100.0), "outlier_high"),
        limit=20.0,
    ),
    _keeps(
        "areal_ratio_token",
        "Mask tokens with a ratio above the bound.",
        f"{_AREAL}, level token, metric ratio, mask",
        Rejection("ratio", "token", Bounds(None, 5.0)),
    ),
    _keeps(
        "areal_kl_k1",
        "Drop sequences by their mean log-ratio (AReaL's k1 is +l).",
        f"{_AREAL}, level sequence, kl_k1, mean",
        Rejection("log_ratio", "seq_mean", Bounds(None, 5.0)),
    ),
    _keeps(
        "areal_kl_k2",
        "Drop sequences by their mean k2.",
        f"{_AREAL}, level sequence, kl_k2, mean",
        Rejection("k2", "seq_mean", Bounds(None, 5.0)),
    ),
    _keeps(
        "areal_kl_k3",
        "Drop sequences by their mean k3 (AReaL's is of the reverse direction).",
        f"{_AREAL}, level sequence, kl_k3, mean",
        Rejection("k3_reverse", "seq_mean", Bounds(None, 5.0)),
    ),
    _keeps(
        "prime_ipo",
        "Mask tokens whose probability moved by more than 0.1.",
        f"{_PRIME} ipo, 0.1",
        Rejection("prob_gap", "token", Bounds(-0.1, 0.1)),
    ),
    _keeps(
        "prime_legacy",
        "Mask tokens with a ratio outside 1/8 to 8, drop sequences with a geometric one outside 0.1 to 10.",
        f"{_PRIME} default before 2026, token 0.125 and 8, geometric 0.1 and 10",
        Rejection("ratio", "token", Bounds(0.125, 8.0), "token"),
        Rejection("ratio", "seq_mean", Bounds(0.1, 10.0), "geometric"),
    ),
)
