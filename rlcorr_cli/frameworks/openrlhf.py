"""OpenRLHF: algo.advantage.is_correction_* (0.11), and vllm_is_* of the releases before.

Nothing is limited before the exponential.  A clip works from both sides; a mask keeps raw token weights, at sequence
level where the geometric ratio is inside.  is_correction_gating: binary_kl and tv mask by the divergence of the sampled
token between rollout and training, at sequence level by its mean, and have an upper bound alone.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, contradiction, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, key_of, rejections_by, under
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Scope, Weighting

_NEW = tuple(f"is_correction_{end}" for end in ("level", "mode", "gating", "threshold"))
_OLD = ("enable_vllm_is_correction", "vllm_is_correction_type", "vllm_is_truncated_threshold")
_LOSS = "policy_loss_type"
_DIVERGENCES = {"binary_kl": "binary_kl_forward", "tv": "abs_prob_gap"}
_TYPES = {"tis": ("token", "clip"), "icepop": ("token", "mask"), "seq-mask-tis": ("seq", "mask")}


def _openrlhf_plan(config: Config) -> Plan:
    new, old = config.first_key(_NEW), config.first_key(_OLD)
    if new and old:
        raise contradiction(new, old, f"{old} is of an older release: keep one kind.")
    if old:
        kind = config.choice(_OLD[1], tuple(_TYPES), "tis")
        if not config.flag(_OLD[0]) and old != _OLD[0]:
            raise contradiction(old, f"{_OLD[0]}: false", f"Set {_OLD[0]}: true, or leave {old} out.")
        level, mode = _TYPES[kind] if config.flag(_OLD[0]) else ("off", "mask")
        bounds = _openrlhf_bounds(config, _OLD[2])
        if level != "off" and config.get(_LOSS) not in (None, "ppo"):
            raise contradiction(old, f"{_LOSS}: {config[_LOSS]}", "That release corrects ppo alone.")
    else:
        # YAML takes a bare `off` for false.
        level = Config({_NEW[0]: config.get(_NEW[0]) or "off"}).choice(_NEW[0], ("off", "token", "seq"), "off")
        mode = config.choice(_NEW[1], ("mask", "clip"), "mask")
        gating = config.choice(_NEW[2], ("ratio", *_DIVERGENCES), "ratio")
        bounds = _openrlhf_bounds(config, _NEW[3])
        if gating != "ratio" and level != "off":
            return _by_divergence(gating, level, mode, bounds)
    if level == "off":
        return Plan("openrlhf", log_ratio_limit=None)
    if level == "token":
        return Plan("openrlhf", Weighting("token", bounds, "clamp" if mode == "clip" else "zero"), log_ratio_limit=None)
    if mode == "clip":
        raise contradiction("is_correction_level: seq", "is_correction_mode: clip", "OpenRLHF clips tokens only.")
    rejection = Rejection("ratio", "seq_mean", bounds, "geometric")
    return Plan("openrlhf", Weighting("token"), (rejection,), log_ratio_limit=None)


def _by_divergence(gating: str, level: str, mode: str, bounds: Bounds) -> Plan:
    if mode == "clip":
        raise contradiction(f"{_NEW[2]}: {gating}", f"{_NEW[1]}: clip", "OpenRLHF clips ratios only.")
    if bounds.low:
        raise UsageError(f"{_NEW[3]} of {gating} is an upper bound alone.", f"For example {_NEW[3]}: [0.005].")
    scope: Scope = "token" if level == "token" else "seq_mean"
    rejection = Rejection(_DIVERGENCES[gating], scope, Bounds(None, bounds.high), gating)
    return Plan("openrlhf", Weighting("token"), (rejection,), log_ratio_limit=None)


def _openrlhf_bounds(config: Config, key: str) -> Bounds:
    """Two numbers, or a high one alone: as a list, or as the command line has them."""
    threshold: Any = config.get(key, [0.5, 5.0])
    parts: list[Any] = list(threshold) if isinstance(threshold, (list, tuple)) else str(threshold).split()
    ends = [Config({key: part}).positive(key) for part in parts]
    if len(ends) not in (1, 2) or None in ends:
        raise UsageError(f"{key} must be LOW HIGH, got {shortened(threshold)}.", f"For example {key}: [0.5, 5.0].")
    return Bounds(ends[0] if len(ends) == 2 else 0.0, ends[-1])


def _openrlhf_config(plan: Plan) -> dict[str, Any]:
    weighting, geometric = plan.weighting, rejections_by(plan).get(("ratio", "seq_mean"))
    if weighting is None:
        return under("algo.advantage", {_NEW[0]: "off"})
    gated = next((each for each in plan.rejections if each.statistic in _DIVERGENCES.values()), None)
    if gated is not None:
        level, gating = "token" if gated.scope == "token" else "seq", key_of(_DIVERGENCES, gated.statistic)
        options = {_NEW[0]: level, _NEW[1]: "mask", _NEW[2]: gating, _NEW[3]: [gated.bounds.high]}
        return under("algo.advantage", options)
    bounds = weighting.bounds if geometric is None else geometric.bounds
    level = "token" if geometric is None else "seq"
    mode = "mask" if geometric is not None or weighting.outside == "zero" else "clip"
    options = {_NEW[0]: level, _NEW[1]: mode, _NEW[3]: [bounds.low, bounds.high] if bounds.low else [bounds.high]}
    return under("algo.advantage", options)


OPENRLHF = Framework(
    name="OpenRLHF",
    keys=(*_NEW, *_OLD, _LOSS),
    blocks=(("algo", "advantage"), ("actor",)),
    common=(_LOSS,),
    switches={_LOSS: Switch("ppo gspo cispo reinforce")},
    family="is_correction_|vllm_is_|use_mispo|mispo_",
    to_plan=_openrlhf_plan,
    to_config=_openrlhf_config,
    flags=True,
)
