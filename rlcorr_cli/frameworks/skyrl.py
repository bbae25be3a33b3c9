"""SkyRL 0.4: trainer.algorithm.off_policy_correction, and the loss dppo.

Log-ratios are limited to +-20 after reducing, a cap works from above only, bounds are inclusive.  SkyRL applies its
masks in turn, and sequence weights after its token mask, each on the tokens that are left; here each is computed on the
original mask.  That differs where token mask thresholds stand beside sequence weights or a sequence mask, and a note
then says so.

use_tis, as it was before there was off_policy_correction, is a token weight with the cap tis_imp_ratio_cap.

policy_loss_type dppo masks tokens whose divergence between rollout and current policy has passed delta_low or
delta_high in their advantage's direction; its ratio is current / rollout.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, contradiction
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, outlier_options, outliers, rejections_by, under
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Scope, Weighting, WeightScope, dppo

_HIGH: dict[WeightScope, tuple[str, float]] = {
    "token": ("token_tis_ratio_clip_high", 2.0),
    "sequence": ("sequence_tis_ratio_clip_high", 5.0),
}
_MASKS: dict[str, tuple[Scope, str, float, float]] = {
    "product": ("seq_sum", "product", 0.5, 2.0),
    "geometric": ("seq_mean", "geo", 0.99, 1.01),
}
_DIVERGENCES = {"binary_tv": "prob_gap", "binary_kl": "binary_kl_signed"}
_LOSS = "policy_loss_type"
_OLD, _CAP = "use_tis", "tis_imp_ratio_cap"
_OUTSIDE = (_OLD, _CAP, _LOSS, "dppo_type", "delta_low", "delta_high")
_OUTLIER, _TOKEN = "outlier_token_is_threshold", "token_mask_is_threshold"


def _skyrl_plan(config: Config) -> Plan:
    weighting = None
    kind: WeightScope | None = config.choice("tis_ratio_type", ("token", "sequence"))
    if config.flag(_OLD):
        if kind == "sequence":
            raise contradiction(
                f"{_OLD}: true", "tis_ratio_type: sequence", f"{_OLD} is of an older release: leave it out."
            )
        weighting = Weighting("token", Bounds(None, config.positive(_CAP)))
    elif kind:
        weighting = Weighting(kind, Bounds(None, config.positive(*_HIGH[kind])))
    low, high = (config.positive(f"{_OUTLIER}_{end}") for end in ("low", "high"))
    rejections = [*outliers(low, high, ("outlier_low", "outlier_high"))]
    low, high = (config.positive(f"{_TOKEN}_{end}") for end in ("low", "high"))
    if (low is None) != (high is None):
        present = "high" if low is None else "low"
        raise UsageError(f"SkyRL ignores {_TOKEN}_{present} alone.", f"Set {_TOKEN}_low and {_TOKEN}_high.")
    if low is not None:
        rejections.append(Rejection("ratio", "token", Bounds(low, high), "token"))
    metric = config.choice("sequence_mask_metric", tuple(_MASKS))
    if metric:
        scope, short, low, high = _MASKS[metric]
        bounds = Bounds(config.positive(f"{short}_mask_low", low), config.positive(f"{short}_mask_high", high))
        rejections.append(Rejection("ratio", scope, bounds, metric))
    if config.get(_LOSS) != "dppo":
        return Plan("skyrl", weighting, tuple(rejections))
    if weighting is not None:
        raise contradiction(
            f"tis_ratio_type: {kind}", "policy_loss_type: dppo", "A plan has one kind of weights: read one of the two."
        )
    ratio = Weighting("token", of="total")
    return Plan("skyrl", ratio, (*rejections, *_dppo(config)), loss="reinforce")


def _dppo(config: Config) -> tuple[Rejection, ...]:
    kind = config.choice("dppo_type", tuple(_DIVERGENCES), "binary_tv")
    low, high = (config.positive(f"delta_{end}", 0.2) for end in ("low", "high"))
    if low is None or high is None:
        raise UsageError("SkyRL's dppo needs delta_low and delta_high.", "For example 0.2 for both.")
    return dppo(_DIVERGENCES[kind], low, high, of="total", losing="negative")


def _skyrl_config(plan: Plan) -> dict[str, Any]:
    rejections, weighting = rejections_by(plan), plan.weighting
    options: dict[str, Any] = {"tis_ratio_type": None}
    if weighting is not None and weighting.of == "mismatch" and weighting.scope in _HIGH:
        options |= {"tis_ratio_type": weighting.scope, _HIGH[weighting.scope][0]: weighting.bounds.high}
    options |= outlier_options(plan, _OUTLIER)
    token = rejections.get(("ratio", "token"))
    if token is not None:
        options |= {f"{_TOKEN}_low": token.bounds.low, f"{_TOKEN}_high": token.bounds.high}
    for metric, (scope, short, _, _) in _MASKS.items():
        if ("ratio", scope) in rejections:
            bounds = rejections["ratio", scope].bounds
            options["sequence_mask_metric"] = metric
            options |= {f"{short}_mask_low": bounds.low, f"{short}_mask_high": bounds.high}
    algorithm: dict[str, Any] = {"off_policy_correction": options}
    for kind, statistic in _DIVERGENCES.items():
        masks = plan.dppo_bounds(statistic, "negative")
        if masks is not None:
            deltas = {"delta_low": masks[0], "delta_high": masks[1]}
            algorithm = {"policy_loss_type": "dppo", "dppo": {"dppo_type": kind, **deltas}}
    return under("trainer.algorithm", algorithm)


def _skyrl_notes(plan: Plan) -> tuple[str, ...]:
    """What differs where a token mask stands beside what SkyRL computes on the tokens that it leaves."""
    if all(rejection.name != "token" for rejection in plan.rejections):
        return ()
    after = [f"sequence_mask_metric: {rejection.name}" for rejection in plan.rejections if rejection.name in _MASKS]
    if plan.weighting is not None and plan.weighting.scope == "sequence":
        after.append("tis_ratio_type: sequence")
    if not after:
        return ()
    keys = " and ".join(after)
    return (f"SkyRL computes {keys} on the tokens that {_TOKEN}_* leaves; here it is computed on all valid tokens.",)


SKYRL = Framework(
    name="SkyRL",
    keys=(
        "tis_ratio_type",
        *(key for key, _ in _HIGH.values()),
        "sequence_mask_metric",
        *(f"{stem}_{end}" for stem in ("geo_mask", "product_mask", _OUTLIER, _TOKEN) for end in ("low", "high")),
        *_OUTSIDE,
    ),
    blocks=(*(("trainer", "algorithm", *block) for block in ((), ("dppo",), ("cispo",))), ("dppo",)),
    switches={
        _LOSS: Switch(
            "regular dual_clip dppo gspo cispo sapo",
            {
                "clip_cov kl_cov": "it picks tokens by a covariance, which no objective here does",
                "rollout_is importance_sampling behavior_clip": "its ratio is of the current over the rollout policy",
                "cross_entropy": "it has no ratio to correct",
            },
        ),
        "cispo_anchor": Switch("old", {"rollout": "its ratio is that of ⟦objective cispo⟧ ⟦mode bypass⟧"}),
    },
    to_plan=_skyrl_plan,
    to_config=_skyrl_config,
    own=(("trainer", "algorithm", "off_policy_correction"), ("off_policy_correction",)),
    common=("geo_mask_low", "geo_mask_high", _OLD, _LOSS, "delta_low", "delta_high"),
    outside=_OUTSIDE,
    notes=_skyrl_notes,
)
