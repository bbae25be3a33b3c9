"""ms-swift 3: rollout_importance_sampling_* and off_policy_sequence_mask_delta of its GRPO trainer.

Ratios are old over rollout, each log limited to +-20 before all else.  sequence_truncate weighs a sequence by its
geometric mean; sequence_mask drops sequences by it and weighs the tokens of the others by their own ratios.  The
off-policy sequence mask compares current with rollout policy, where a sequence's mean advantage is negative.
"""

from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, rejections_by
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, opsm

_MODE, _THRESHOLD = "rollout_importance_sampling_mode", "rollout_importance_sampling_threshold"
_DELTA, _LOG = "off_policy_sequence_mask_delta", "log_rollout_offpolicy_metrics"
_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def _ms_swift_plan(config: Config) -> Plan:
    mode = config.choice(_MODE, _MODES)
    high = config.positive(_THRESHOLD, 2.0)
    weighting, rejections = None, ()
    if mode is not None:
        if high is None:
            raise UsageError(f"{_MODE}: {mode} needs {_THRESHOLD}.", f"ms-swift's own is {_THRESHOLD}: 2.0.")
        bounds = Bounds(None, high)
        weighting = {
            "token_truncate": Weighting("token", bounds),
            "token_mask": Weighting("token", bounds, "zero"),
            "sequence_truncate": Weighting("geometric", bounds),
            "sequence_mask": Weighting("token"),
        }[mode]
        if mode == "sequence_mask":
            rejections = (Rejection("ratio", "seq_mean", bounds, "geometric"),)
    delta = config.number(_DELTA)
    if delta is not None:
        rejections += (opsm(delta, "total"),)
    return Plan("ms-swift", weighting, rejections, limit_on="first")


def _ms_swift_config(plan: Plan) -> dict[str, Any]:
    rejections, weighting = rejections_by(plan), plan.weighting
    options: dict[str, Any] = {_MODE: None}
    if weighting is not None:
        geometric = rejections.get(("ratio", "seq_mean"))
        how = "mask" if weighting.outside == "zero" or geometric is not None else "truncate"
        level = "sequence" if weighting.scope == "geometric" or geometric is not None else "token"
        bounds = weighting.bounds if geometric is None else geometric.bounds
        options = {_MODE: f"{level}_{how}", _THRESHOLD: bounds.high}
    masks = rejections.get(("k1", "seq_mean"))
    return options | ({} if masks is None else {_DELTA: masks.bounds.high})


MS_SWIFT = Framework(
    name="ms-swift",
    keys=(_MODE, _THRESHOLD, _DELTA, _LOG),
    switches={
        "rlhf_type": Switch("grpo", {"dpo orpo simpo kto cpo rm ppo gkd": "the correction is of its GRPO alone"}),
        "loss_type": Switch(
            "grpo bnpo dr_grpo dapo real fipo cispo sapo",
            {"m2po": "of pull request 9965, it masks tokens until their second moment is below m2_threshold"},
        ),
        "importance_sampling_level": Switch("token sequence sequence_token"),
    },
    family="rollout_importance_|off_policy_|m2_",
    signs=("rlhf_type",),
    to_plan=_ms_swift_plan,
    to_config=_ms_swift_config,
    flags=True,
)
