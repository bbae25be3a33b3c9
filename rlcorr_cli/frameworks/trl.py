"""TRL 1.16: GRPOConfig's vllm_importance_sampling_* and off_policy_mask_threshold.

The sequence ratio is the product, nothing is limited before the exponential, and both ends of a bound are inclusive.
The off-policy sequence mask compares the current policy with the sampling one.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, contradiction
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, key_of, rejections_by
from rlcorr_cli.plans.plan import Bounds, Outside, Plan, Weighting, WeightScope, opsm

_PREFIX = "vllm_importance_sampling"
MODES: dict[str, tuple[WeightScope, Outside]] = {
    "token_truncate": ("token", "clamp"),
    "token_mask": ("token", "zero"),
    "sequence_truncate": ("sequence", "clamp"),
    "sequence_mask": ("sequence", "zero"),
}


def _trl_plan(config: Config) -> Plan:
    high, low = _high(config), config.number(f"{_PREFIX}_clip_min")
    weighting = None
    if config.flag(f"{_PREFIX}_correction", True):
        mode = config.choice(f"{_PREFIX}_mode", tuple(MODES), "sequence_mask")
        if high is None and low is None:
            raise UsageError(f"{_PREFIX}_clip_max and _clip_min are both off.", "TRL needs one of them.")
        scope, outside = MODES[mode]
        weighting = Weighting(scope, Bounds(low, high), outside)
    threshold = config.number("off_policy_mask_threshold")
    rejections = () if threshold is None else (opsm(threshold, "total"),)
    return Plan("trl", weighting, rejections, log_ratio_limit=None)


def _high(config: Config) -> float | None:
    old, new = f"{_PREFIX}_cap", f"{_PREFIX}_clip_max"
    capped = config.get(old) is not None  # null is its default beside the new name
    if capped and config.get(new, config[old]) != config[old]:
        raise contradiction(old, new, f"{old} is the old name of {new}: keep one.")
    return config.number(old if capped else new, 3.0)


def _trl_config(plan: Plan) -> dict[str, Any]:
    options: dict[str, Any] = {f"{_PREFIX}_correction": plan.weighting is not None}
    if plan.weighting is not None:
        mode = key_of(MODES, (plan.weighting.scope, plan.weighting.outside))
        bounds = plan.weighting.bounds
        options |= {f"{_PREFIX}_mode": mode, f"{_PREFIX}_clip_max": bounds.high}
        options |= {f"{_PREFIX}_clip_min": bounds.low} if bounds.low else {}
    masks = rejections_by(plan).get(("k1", "seq_mean"))
    return options | ({} if masks is None else {"off_policy_mask_threshold": masks.bounds.high})


TRL = Framework(
    name="TRL",
    keys=(
        *(f"{_PREFIX}_{end}" for end in ("correction", "mode", "cap", "clip_max", "clip_min")),
        "off_policy_mask_threshold",
    ),
    switches={
        "loss_type": Switch(
            "grpo dapo dr_grpo bnpo luspo cispo sapo",
            {"vespo": "VESPO takes the ratios into its weight of a sequence, where they multiply no loss"},
        ),
        "importance_sampling_level": Switch("token sequence sequence_token"),
    },
    family="vllm_importance_sampling_|off_policy_|divergence_",
    to_plan=_trl_plan,
    to_config=_trl_config,
)
