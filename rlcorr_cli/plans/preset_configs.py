"""Presets in their peers' own words: what a user of that framework has in its config.

Each is held to be read back as the preset's plan by a test.
"""

from rlcorr_cli.frozen import frozen


@frozen
class PeerConfig:
    """A framework's own config of a preset.

    reader: the profile to read it with, "" where its keys tell the framework.
    """

    text: str
    reader: str = ""


def _verl(release: str, **options: str) -> PeerConfig:
    lines = [f"    {key}: {value}" for key, value in options.items()]
    return PeerConfig("\n".join(["algorithm:", "  rollout_correction:", *lines]), release)


def _block(path: str, **options: str) -> PeerConfig:
    """Options under a dotted path, as YAML."""
    heads = path.split(".") if path else []
    lines = [f"{'  ' * depth}{head}:" for depth, head in enumerate(heads)]
    lines += [f"{'  ' * len(heads)}{key}: {value}" for key, value in options.items()]
    return PeerConfig("\n".join(lines))


def _trl(mode: str) -> PeerConfig:
    return _block("", vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_max="3.0")


def _nemo(kind: str, high: str, **more: str) -> PeerConfig:
    return _block(
        "loss_fn",
        use_importance_sampling_correction="true",
        truncated_importance_sampling_type=kind,
        truncated_importance_sampling_ratio=high,
        **more,
    )


def _openrlhf(level: str, mode: str) -> PeerConfig:
    return _block(
        "algo.advantage", is_correction_level=level, is_correction_mode=mode, is_correction_threshold="[0.5, 5.0]"
    )


def _skyrl(**options: str) -> PeerConfig:
    return _block("trainer.algorithm.off_policy_correction", **options)


def _areal(upper: str = "5.0", **options: str) -> PeerConfig:
    return _block("actor.rejection_sampling", **options, upper=upper)


_TOKEN = {"rollout_is": "token", "rollout_is_threshold": "2.0"}
_SEQUENCE = {"rollout_is": "sequence", "rollout_is_threshold": "2.0"}
_GEO_VETO = {
    "rollout_rs": "geometric",
    "rollout_rs_threshold": "1.001",
    "rollout_rs_threshold_lower": "0.999",
    "rollout_token_veto_threshold": "1.0e-4",
}
_GEO = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": '"0.999_1.001"'}
_K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": '"0.01"'}
_ICEPOP = {"rollout_is": "token", "rollout_is_threshold": '"0.5_5.0"'}
_BYPASS = {"bypass_mode": "true"}
_GRADIENT = {"bypass_mode": "true", "loss_type": "reinforce"}
_OLD_GRADIENT = {"bypass_old_logprob_for_rollout": "true", "use_pure_rollout_correction": "true"}


def _sequence_rs(low: str) -> dict[str, str]:
    return {"rollout_rs": "sequence", "rollout_rs_threshold": "2.0", "rollout_rs_threshold_lower": low}


CONFIGS: dict[str, PeerConfig] = {
    "disabled": _verl("verl-0.6", rollout_is="null"),
    "decoupled_token_is": _verl("verl-0.6", **_TOKEN),
    "decoupled_seq_is": _verl("verl-0.6", **_SEQUENCE),
    "decoupled_seq_is_rs": _verl("verl-0.6", **_SEQUENCE, **_sequence_rs("0.5")),
    "seq_mis": _verl("verl-0.6", **_SEQUENCE, **_sequence_rs("0")),
    "decoupled_geo_rs": _verl("verl-0.6", **_GEO_VETO),
    "ppo_is_bypass": _verl("verl-0.6", rollout_is="null", bypass_old_logprob_for_rollout="true"),
    "pg_is": _verl("verl-0.6", **_SEQUENCE, **_OLD_GRADIENT),
    "pg_rs": _verl("verl-0.6", **_GEO_VETO, **_OLD_GRADIENT),
    "token_is_token_rs": _verl("verl-0.6", **_TOKEN, rollout_rs="token", rollout_rs_threshold="2.0"),
    "token_rs": _verl("verl-0.6", rollout_rs="token", rollout_rs_threshold="2.0"),
    "seq_rs": _verl("verl-0.6", rollout_rs="sequence", rollout_rs_threshold="2.0"),
    "decoupled_token_icepop": _verl("verl-0.9", **_ICEPOP),
    "decoupled_geo_rs_seq_tis": _verl("verl-0.9", **_SEQUENCE, **_GEO),
    "decoupled_geo_rs_token_tis": _verl("verl-0.9", **_TOKEN, **_GEO),
    "decoupled_k3_rs": _verl("verl-0.9", **_K3),
    "decoupled_k3_rs_seq_tis": _verl("verl-0.9", **_SEQUENCE, **_K3),
    "decoupled_k3_rs_token_tis": _verl("verl-0.9", **_TOKEN, **_K3),
    "bypass_ppo_clip_geo_rs": _verl("verl-0.9", **_GEO, **_BYPASS),
    "bypass_ppo_clip_k3_rs": _verl("verl-0.9", **_K3, **_BYPASS),
    "bypass_pg_token_icepop": _verl("verl-0.9", **_ICEPOP, **_GRADIENT),
    "bypass_pg_geo_rs_seq_tis": _verl("verl-0.9", **_SEQUENCE, **_GEO, **_GRADIENT),
    "bypass_pg_geo_rs_token_tis": _verl("verl-0.9", **_TOKEN, **_GEO, **_GRADIENT),
    "slime_tis": _block("", use_tis="true", tis_clip="2.0", tis_clip_low="0"),
    "slime_icepop": _block(
        "",
        use_tis="true",
        tis_clip="5.0",
        tis_clip_low="0.5",
        custom_tis_function_path="slime.backends.megatron_utils.loss.icepop_function",
    ),
    "slime_mis": PeerConfig(
        "use_tis: true\ntis_level: token\ntis_mode: truncate\ntis_upper_bound: 2.0\ntis_lower_bound: 0.5\n"
        "tis_batch_normalize: true\nuse_rs: true\nrs_level: token\nrs_veto_threshold: 1.0e-4",
        "slime",
    ),
    "slime_cis": PeerConfig("use_tis: true\ntis_mode: clip\ntis_upper_bound: 2.0\ntis_lower_bound: 0.5", "slime"),
    "opsm": _block("", use_opsm="true", opsm_delta="1.0e-4"),
    "trl_token_truncate": _trl("token_truncate"),
    "trl_token_mask": _trl("token_mask"),
    "trl_sequence_truncate": _trl("sequence_truncate"),
    "trl_sequence_mask": _trl("sequence_mask"),
    "trl_opsm": _block("", vllm_importance_sampling_correction="false", off_policy_mask_threshold="1.0e-4"),
    "nemo_tis": _nemo("tis", "2.0"),
    "nemo_icepop": _nemo("icepop", "5.0", truncated_importance_sampling_ratio_min="0.5"),
    "nemo_seq_mask_tis": _nemo("seq-mask-tis", "1.002", truncated_importance_sampling_ratio_min="0.999"),
    "nemo_seq_logprob_error": _block("grpo", seq_logprob_error_threshold="2.0"),
    "openrlhf_tis": _openrlhf("token", "clip"),
    "openrlhf_icepop": _openrlhf("token", "mask"),
    "openrlhf_seq_mask_tis": _openrlhf("seq", "mask"),
    "openrlhf_flash": _block(
        "algo.advantage",
        is_correction_level="seq",
        is_correction_mode="mask",
        is_correction_gating="binary_kl",
        is_correction_threshold="[0.005]",
    ),
    "skyrl_tis_token": _skyrl(tis_ratio_type="token", token_tis_ratio_clip_high="2.0"),
    "skyrl_tis_sequence": _skyrl(tis_ratio_type="sequence", sequence_tis_ratio_clip_high="5.0"),
    "skyrl_geometric": _skyrl(sequence_mask_metric="geometric", geo_mask_low="0.99", geo_mask_high="1.01"),
    "skyrl_product": _skyrl(sequence_mask_metric="product", product_mask_low="0.5", product_mask_high="2.0"),
    "skyrl_outlier": _skyrl(outlier_token_is_threshold_low="1.0e-4", outlier_token_is_threshold_high="100.0"),
    "areal_ratio_token": _areal(level="token", action="mask", metric="ratio"),
    "areal_kl_k1": _areal(level="sequence", action="mask", metric="kl_k1", agg="mean"),
    "areal_kl_k2": _areal(level="sequence", action="mask", metric="kl_k2", agg="mean"),
    "areal_kl_k3": _areal(level="sequence", action="mask", metric="kl_k3", agg="mean"),
    "areal_kpop": _areal(level="token", action="mask", metric="binary_kl", upper="2.0"),
    "m2po": _block("actor", m2_threshold="0.04"),
    "prime_dppo": _block("trainer.loss", type="default", dppo_mask_low="0.2", dppo_mask_high="0.2"),
    "prime_ipo": _block("trainer.loss", type="ipo", ipo_threshold="0.1"),
    "prime_kpop": _block("trainer.loss", type="kpop", kpop_threshold="0.1"),
    "prime_legacy": _block(
        "trainer.loss", token_mask_low="0.125", token_mask_high="8.0", geo_mask_low="0.1", geo_mask_high="10.0"
    ),
    "roll_topr": _block("actor_train", pg_variant="topr"),
    "roll_tis": _block("actor_train", pg_variant="tis"),
    "roll_cispo": _block("actor_train", pg_variant="cispo"),
    "roll_train_infer": PeerConfig(
        "train_infer_correction:\n  is_weight:\n    enabled: true\n    weight_type: token\n    upper_bound: 1.2\n"
        "  filters:\n  - enabled: true\n    agg_type: token\n    ratio_low: 0.8\n    ratio_high: 1.2"
    ),
    **{
        f"ms_swift_{mode}": _block(
            "", rollout_importance_sampling_mode=mode, rollout_importance_sampling_threshold="2.0"
        )
        for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
    },
    "open_instruct_rho": _block("", use_rho_correction="true", rho_clamp_upper_bound="2.0"),
    "xtuner_both": _block(
        "rollout_is",
        rollout_is_level="token",
        rollout_is_mode="both",
        rollout_is_threshold="[5.0, 0.0]",
        rollout_is_mask_threshold="[5.0, 0.5]",
        rollout_is_veto_threshold="[20.0, 0.0]",
    ),
    "kpop": _verl("verl-0.9", rollout_rs="binary_kl", rollout_rs_threshold='"0.1"'),
    "dppo_kl": PeerConfig(
        "actor_rollout_ref:\n  actor:\n    policy_loss:\n      loss_mode: dppo_kl\n    clip_ratio_low: 0.05\n"
        "    clip_ratio_high: 0.05\n    clip_ratio_c: 20.0"
    ),
    "vaco": _block("", use_rho_correction="true", rho_mask_tv_divergence="true", rho_mask_upper_bound="2.0"),
    "trm": _verl("verl-0.9", rollout_rs="seq_max_k3", rollout_rs_threshold='"0.5"'),
}
"""Preset -> its peer's config; without one where no framework has it as an option."""
