"""verl's config of a run, read without a profile: its rollout correction and its DPPO losses, by our own numbers.

algorithm.rollout_correction is read as the newest release that knows its options does; `--profile` has each release's
own numbers.  policy_loss.loss_mode dppo_tv and dppo_kl mask tokens whose divergence has passed clip_ratio_low or _high
in their advantage's direction, and weigh the others by current / old, at most clip_ratio_c; other modes are objectives,
or refused.
"""

from dataclasses import replace

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, contradiction, dppo_bounds, positive, under
from rlcorr_cli.frameworks.verl import BLOCKS, KEYS_0_6, VERL_0_6, VERL_0_9
from rlcorr_cli.plans.plan import Bounds, Plan, Weighting, dppo

_STATISTICS = {"dppo_tv": "prob_gap", "dppo_kl": "binary_kl_signed"}
_LOSS = ("loss_mode", *(f"clip_ratio{end}" for end in ("", "_low", "_high", "_c")), "tau_pos", "tau_neg")
_ACTOR = ("actor_rollout_ref", "actor")


def _read(config: Config) -> Plan:
    plan = replace(_release(config).read(_correction(config)), name="verl")
    mode = str(config.get("loss_mode"))
    if mode == "bypass_mode" and plan.mode != "bypass":
        raise contradiction("policy_loss.loss_mode: bypass_mode", "bypass_mode: false", "Set bypass_mode: true.")
    if mode == "sapo" and (config.get("tau_pos") or 1.0, config.get("tau_neg") or 1.05) != (1.0, 1.05):
        raise UsageError("verl's sapo is read with tau_pos: 1.0 and tau_neg: 1.05 alone.", "Leave tau_* out.")
    statistic = _STATISTICS.get(mode)
    if statistic is None:
        return replace(plan, loss="reinforce") if mode == "gpg" else plan
    if plan.weighting is not None:
        raise contradiction(
            "rollout_correction.rollout_is",
            f"policy_loss.loss_mode: {config['loss_mode']}",
            "DPPO's loss has weights of its own, and a plan has one kind: read each in a file of its own.",
        )
    both = positive(config, "clip_ratio", 0.2)
    low, high = (positive(config, f"clip_ratio_{end}", both) for end in ("low", "high"))
    if low is None or high is None:
        raise UsageError("DPPO needs clip_ratio_low and clip_ratio_high.", "For example 0.05 for both.")
    masks = dppo(statistic, low, high, of="drift")
    ratio = Weighting("token", Bounds(None, positive(config, "clip_ratio_c", 3.0)), of="drift")
    return replace(plan, weighting=ratio, rejections=(*plan.rejections, *masks), loss="reinforce")


def _correction(config: Config) -> Config:
    return {key: value for key, value in config.items() if key in KEYS_0_6}


def _release(config: Config) -> Framework:
    """The newest release that knows the options."""
    try:
        VERL_0_9.read(_correction(config))
    except UsageError:
        try:
            VERL_0_6.read(_correction(config))
        except UsageError:
            return VERL_0_9
        return VERL_0_6
    return VERL_0_9


def _config_notes(config: Config) -> tuple[str, ...]:
    correction = _correction(config)
    if not correction:
        return ()
    release = _release(config)
    read = f"read as {release.name} does, with rlcorr's own numbers; --profile {release.name} gives verl's."
    return (read, *release.notes(release.read(correction)), *release.config_notes(correction))


def _to_config(plan: Plan) -> Config | None:
    """DPPO's losses; what the releases have is written by their profiles."""
    for mode, statistic in _STATISTICS.items():
        masks = dppo_bounds(plan, statistic)
        if masks is not None and plan.weighting:
            bounds = {"clip_ratio_low": masks[0], "clip_ratio_high": masks[1]}
            options = {"policy_loss": {"loss_mode": mode}, **bounds, "clip_ratio_c": plan.weighting.bounds.high}
            bypass = under("algorithm.rollout_correction", {"bypass_mode": True}) if plan.mode == "bypass" else {}
            return under(".".join(_ACTOR), options) | bypass
    return None


VERL = Framework(
    name="verl",
    keys=(*KEYS_0_6, *_LOSS),
    blocks=(_ACTOR, (*_ACTOR, "policy_loss")),
    read=_read,
    to_config=_to_config,
    own=BLOCKS,
    switches={
        "loss_mode": Switch(
            "vanilla bypass_mode dppo_tv dppo_kl gspo sapo cispo gpg dro",
            {
                "cppo": "of pull request 6731, it masks tokens by their position and by the tokens before",
                "geo_mean": "GMPO clips each token within a sequence's mean, which no objective here does",
                "clip_cov kl_cov": "it picks tokens by a covariance, which no objective here does",
                "flow_grpo": "it is a loss of diffusion models, not of tokens",
            },
        )
    },
    common=("rollout_is", "rollout_is_threshold", "loss_type", *_LOSS),
    outside=_LOSS,
    others=("kl_loss_type",),
    config_notes=_config_notes,
)
