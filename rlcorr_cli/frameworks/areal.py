"""AReaL 1.0: actor.rejection_sampling and actor.m2_threshold; behave_imp_weight_* of the releases before.

Weights are of the proximal over the behaviour policy and not limited; a mask leaves those of the survivors raw.  At
sequence level a ratio's weight is geometric, whatever the aggregation that decides; KL metrics keep token weights.
Its k1 is +l, its k3 that of the reverse direction.  binary_kl is KPop; in float32 it rejects what rounds to
probability 1.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, contradiction
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, key_of
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Scope, Weighting, WeightScope

_METRICS = {
    "ratio": "ratio",
    "kl_k1": "log_ratio",
    "kl_k2": "k2",
    "kl_k3": "k3_reverse",
    "binary_kl": "binary_kl_float32",
}
_SCOPES: dict[str, Scope] = {"sum": "seq_sum", "mean": "seq_mean", "max": "seq_max"}
_CAP, _MODE = "behave_imp_weight_cap", "behave_imp_weight_mode"
_MODES = ("token_mask", "token_truncate", "sequence_mask", "sequence_truncate", "disabled")
_NEW = ("level", "action", "metric", "agg", "upper", "lower")


def _areal_plan(config: Config) -> Plan:
    old, new = config.first_key((_MODE, _CAP)), config.first_key(_NEW)
    if old and new:
        raise contradiction(old, f"rejection_sampling.{new}", f"{old} is of an older release: keep one kind.")
    if config.get("use_decoupled_loss") is not None and not config.flag("use_decoupled_loss") and (old or new):
        key = old or f"rejection_sampling.{new}"
        raise contradiction(key, "use_decoupled_loss: false", "AReaL corrects the decoupled loss only.")
    weighting, rejections = _of_old_options(config) if old else _of_rejection_sampling(config) if new else (None, ())
    threshold = config.positive("m2_threshold")
    budgets = () if threshold is None else (Budget(threshold, name="m2po"),)
    return Plan("areal", weighting, rejections, log_ratio_limit=None, budgets=budgets)


def _of_rejection_sampling(config: Config) -> tuple[Weighting, tuple[Rejection, ...]]:
    level = config.choice("level", ("token", "sequence"), "token")
    action = config.choice("action", ("mask", "clamp"), "mask")
    metric = config.choice("metric", tuple(_METRICS), "ratio")
    agg = config.choice("agg", tuple(_SCOPES), "mean")
    bounds = _areal_bounds(config, metric)
    scope: WeightScope = "geometric" if level == "sequence" and metric == "ratio" else "token"
    if action == "clamp":
        if metric != "ratio":
            raise contradiction("action: clamp", f"metric: {metric}", "AReaL clamps ratios only.")
        if level == "sequence" and agg != "mean":
            raise UsageError(f"action: clamp with agg: {agg} cannot be read as a plan.", "Only agg: mean can.")
        return Weighting(scope, Bounds(bounds.low or 0.0, bounds.high)), ()
    reduce: Scope = "token" if level == "token" else _SCOPES[agg]
    return Weighting(scope), (Rejection(_METRICS[metric], reduce, bounds),)


def _areal_bounds(config: Config, metric: str) -> Bounds:
    upper, lower = config.number("upper", 5.0), config.number("lower")
    if metric == "ratio" and ((upper is not None and upper <= 1) or (lower is not None and lower <= 0)):
        raise UsageError("A ratio's upper must be above 1 and its lower above 0.", "AReaL's default is upper: 5.0.")
    if metric in ("kl_k2", "kl_k3", "binary_kl") and upper is not None and upper <= 0:
        raise UsageError(f"The upper bound of {metric} must be above 0.", "AReaL's default is upper: 5.0.")
    return Bounds(lower, upper)


def _of_old_options(config: Config) -> tuple[Weighting | None, tuple[Rejection, ...]]:
    mode, cap = config.choice(_MODE, _MODES, "token_mask"), config.positive(_CAP, 5.0)
    if mode == "disabled":
        return None, ()
    level, _, how = mode.partition("_")
    scope: WeightScope = "token" if level == "token" else "geometric"
    return Weighting(scope, Bounds(None, cap), "zero" if how == "mask" else "clamp"), ()


def _areal_config(plan: Plan) -> dict[str, Any]:
    actor: dict[str, Any] = {}
    weighting, rejections = plan.weighting, plan.rejections
    if plan.budgets:
        actor["m2_threshold"] = plan.budgets[0].mean_below
    if weighting is not None and weighting.bounds != Bounds():
        level = "token" if weighting.scope == "token" else "sequence"
        options: dict[str, Any] = {"level": level, "action": "clamp", "metric": "ratio", "upper": weighting.bounds.high}
        actor["rejection_sampling"] = options | ({"lower": weighting.bounds.low} if weighting.bounds.low else {})
    elif len(rejections) == 1:
        (only,) = rejections
        metric, agg = key_of(_METRICS, only.statistic) or "", key_of(_SCOPES, only.scope)
        options = {"level": "token" if agg is None else "sequence", "action": "mask", "metric": metric}
        options |= ({} if agg is None else {"agg": agg}) | {"upper": only.bounds.high}
        actor["rejection_sampling"] = options | ({"lower": only.bounds.low} if only.bounds.low else {})
    return {"actor": actor}


AREAL = Framework(
    name="AReaL",
    keys=(*_NEW, "m2_threshold", "use_decoupled_loss", _CAP, _MODE),
    blocks=(("actor",),),
    to_plan=_areal_plan,
    to_config=_areal_config,
    own=(("actor", "rejection_sampling"), ("rejection_sampling",)),
    common=(*_NEW, "use_decoupled_loss"),
    switches={
        "importance_sampling_level": Switch("token sequence"),
        "prox_logp_method": Switch(
            "recompute metrics", {"loglinear": "it interpolates the proximal policy, of which the weights then are"}
        ),
        "use_sapo_loss": Switch("false", {"true": "AReaL's SAPO has no decoupled loss to correct"}),
        "loss_type": Switch(),
    },
    family="behave_|m2_|dppo_|divergence",
    outside=("m2_threshold", "use_decoupled_loss", _CAP, _MODE),
)
