"""ROLL: train_infer_correction, its weights and its filters; and pg_variant of actor_train.

Ratios are of training over inference and not limited.  A filter keeps what lies inside its bounds: of ratios, on by
itself (0.8 to 1.2), and of the difference of probabilities, off by itself (-0.2 to 0.2).  A variant weighs by the
current policy over the old one.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from rlcorr_cli.errors import UsageError, contradiction, nearest, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, key_of
from rlcorr_cli.plans.plan import LEVELS, Bounds, Plan, Rejection, Weighting, WeightScope

_Level = Literal["token", "geometric", "sequence", "segment"]
"""Segment takes each run of loss tokens by itself, which no plan here does."""
_WEIGHT_KEYS = ("enabled", "weight_type", "upper_bound", "detach")
_FILTER_KEYS = (
    *("enabled", "agg_type"),
    *("ratio_enabled", "ratio_low", "ratio_high", "diff_enabled", "diff_low", "diff_high"),
)
_VARIANTS = {
    "tis": Weighting("token", Bounds(0.0, 1.0), of="drift"),
    "topr": Weighting("token", Bounds(0.0, 1.0), of="drift", gate="nonpositive"),
    "cispo": Weighting("token", Bounds(0.9, 1.1), of="drift"),
}
_PLAIN = ("vanilla", "ppo", "reinforce")


def _roll_plan(config: Config) -> Plan:
    weighting, rejections = _weighting(config), _rejections(config)
    variant = config.choice("pg_variant", (*_VARIANTS, *_PLAIN))
    if variant in _VARIANTS:
        if weighting is not None:
            raise contradiction("is_weight", f"pg_variant: {variant}", "A plan has one kind of weights: read one.")
        weighting = _VARIANTS[variant]
    return Plan("roll", weighting, rejections, log_ratio_limit=None)


def _weighting(config: Config) -> Weighting | None:
    block = _block(config.get("is_weight") or {}, "is_weight", _WEIGHT_KEYS)
    if not block.flag("enabled"):
        return None
    scope, high = _level(block, "weight_type"), block.positive("upper_bound", 1.2)
    return Weighting(scope, Bounds() if high is None else Bounds(0.0, high))


def _rejections(config: Config) -> tuple[Rejection, ...]:
    filters = config.get("filters") or []
    if not isinstance(filters, (list, tuple)):
        raise UsageError(f"filters must be a list, got {shortened(filters)}.", "Leave it out for none.")
    rejections: list[Rejection] = []
    for place, each in enumerate(filters):
        block = _block(each, f"filters[{place}]", _FILTER_KEYS)
        if not block.flag("enabled"):
            continue
        level = _level(block, "agg_type")
        for kind, statistic, low, high, is_on in (
            ("ratio", "ratio", 0.8, 1.2, True),
            ("diff", "prob_gap", -0.2, 0.2, False),
        ):
            if block.flag(f"{kind}_enabled", is_on):
                bounds = Bounds(block.number(f"{kind}_low", low), block.number(f"{kind}_high", high))
                name = f"{level}_{kind}"
                taken = {rejection.name for rejection in rejections}
                rejections.append(
                    Rejection(statistic, LEVELS[level], bounds, f"{name}_{place}" if name in taken else name)
                )
    return tuple(rejections)


def _level(block: Config, key: str) -> WeightScope:
    level: _Level = block.choice(key, get_args(_Level), "token")
    if level == "segment":
        raise UsageError(
            f"{key}: segment cannot be read as a plan: it takes each run of loss tokens by itself.",
            f"{key}: geometric is the same where a row has one run.",
        )
    return level


def _block(block: Any, where: str, keys: tuple[str, ...]) -> Config:
    if not isinstance(block, Mapping):
        raise UsageError(f"{where} must be a block of options, got {shortened(block)}.", "Leave it out for none.")
    for key in block:
        if key not in keys:
            raise UsageError(f"ROLL has no option '{key}' under {where}.", f"Nearest: {nearest(str(key), keys)}.")
    return Config(block)


def _roll_config(plan: Plan) -> dict[str, Any]:
    options: dict[str, Any] = {"is_weight": {"enabled": False}}
    weighting = plan.weighting
    if weighting is not None and weighting.of == "drift":
        return {"actor_train": {"pg_variant": key_of(_VARIANTS, weighting)}}
    if weighting is not None:
        block = {"enabled": True, "weight_type": weighting.scope, "upper_bound": weighting.bounds.high}
        options["is_weight"] = block
    filters: list[dict[str, Any]] = []
    for each in plan.rejections:
        level = key_of(LEVELS, each.scope) or ""
        kind = "diff" if each.statistic == "prob_gap" else "ratio"
        ends = {f"{kind}_low": each.bounds.low, f"{kind}_high": each.bounds.high}
        own = {"ratio_enabled": False, "diff_enabled": True} if kind == "diff" else {}
        filters.append({"enabled": True, "agg_type": level, **own, **ends})
    return {"train_infer_correction": options | ({"filters": filters} if filters else {})}


ROLL = Framework(
    name="ROLL",
    keys=("is_weight", "filters", "pg_variant"),
    blocks=(("actor_train",),),
    to_plan=_roll_plan,
    to_config=_roll_config,
    own=(("train_infer_correction",),),
    common=("filters",),
    switches={"importance_sampling": Switch("token seq")},
    family="train_infer_|infer_correction",
)
