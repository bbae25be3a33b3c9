"""How a preset's config is written in its framework's own words; the rows of `presets.py` are made of these.

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


def verl(release: str, **options: str) -> PeerConfig:
    """Options of verl's rollout correction, which a release's profile reads."""
    lines = [f"    {key}: {value}" for key, value in options.items()]
    return PeerConfig("\n".join(["algorithm:", "  rollout_correction:", *lines]), release)


def block(path: str, **options: str) -> PeerConfig:
    """Options under a dotted path, as YAML."""
    heads = path.split(".") if path else []
    lines = [f"{'  ' * depth}{head}:" for depth, head in enumerate(heads)]
    lines += [f"{'  ' * len(heads)}{key}: {value}" for key, value in options.items()]
    return PeerConfig("\n".join(lines))


def nemo(kind: str, high: str, **more: str) -> PeerConfig:
    """NeMo-RL's weights of a kind."""
    return block(
        "loss_fn",
        use_importance_sampling_correction="true",
        truncated_importance_sampling_type=kind,
        truncated_importance_sampling_ratio=high,
        **more,
    )


def openrlhf(level: str, mode: str) -> PeerConfig:
    """OpenRLHF's correction of a level and a mode."""
    return block(
        "algo.advantage", is_correction_level=level, is_correction_mode=mode, is_correction_threshold="[0.5, 5.0]"
    )


def skyrl(**options: str) -> PeerConfig:
    """Options of SkyRL's off-policy correction."""
    return block("trainer.algorithm.off_policy_correction", **options)


def areal(upper: str = "5.0", **options: str) -> PeerConfig:
    """Options of AReaL's rejection."""
    return block("actor.rejection_sampling", **options, upper=upper)


TOKEN = {"rollout_is": "token", "rollout_is_threshold": "2.0"}
SEQUENCE = {"rollout_is": "sequence", "rollout_is_threshold": "2.0"}
GEO_VETO = {
    "rollout_rs": "geometric",
    "rollout_rs_threshold": "1.001",
    "rollout_rs_threshold_lower": "0.999",
    "rollout_token_veto_threshold": "1.0e-4",
}
GEO = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": '"0.999_1.001"'}
K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": '"0.01"'}
ICEPOP = {"rollout_is": "token", "rollout_is_threshold": '"0.5_5.0"'}
BYPASS = {"bypass_mode": "true"}
GRADIENT = {"bypass_mode": "true", "loss_type": "reinforce"}
OLD_GRADIENT = {"bypass_old_logprob_for_rollout": "true", "use_pure_rollout_correction": "true"}


def sequence_rs(low: str) -> dict[str, str]:
    """Options of verl's rejection of whole sequences."""
    return {"rollout_rs": "sequence", "rollout_rs_threshold": "2.0", "rollout_rs_threshold_lower": low}
