"""xtuner: rollout_is of its RL loss, whose bounds are pairs [upper, lower].

truncate clamps weights from both sides; mask leaves them raw and drops what lies outside; both does both, the mask by
rollout_is_mask_threshold and by weights before they are clamped.  A veto drops sequences with a single token's ratio
outside, on either side.  Log-ratios are limited at +-20.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, outliers, rejections_by, under
from rlcorr_cli.plans.plan import LEVELS, Bounds, Plan, Rejection, Weighting, WeightScope

_KEYS = tuple(f"rollout_is_{end}" for end in ("level", "mode", "threshold", "mask_threshold", "veto_threshold"))
_LEVEL, _MODE, _THRESHOLD, _MASK, _VETO = _KEYS


def _xtuner_plan(config: Config) -> Plan:
    scope: WeightScope = config.choice(_LEVEL, tuple(LEVELS), "token")
    mode = config.choice(_MODE, ("truncate", "mask", "both"), "truncate")
    bounds, mask, veto = (_xtuner_bounds(config, key) for key in (_THRESHOLD, _MASK, _VETO))
    weighting, rejections = None, []
    if bounds is not None:
        weighting = Weighting(scope, Bounds() if mode == "mask" else bounds)
        if mode != "truncate":
            kept = bounds if mode == "mask" or mask is None else mask
            rejections.append(Rejection("ratio", LEVELS[scope], kept, "is"))
    if veto is not None:
        rejections += outliers(veto.low, veto.high, ("veto", "veto_high"))
    return Plan("xtuner", weighting, tuple(rejections))


def _xtuner_bounds(config: Config, key: str) -> Bounds | None:
    """A pair [upper, lower]."""
    pair = config.get(key)
    if pair is None:
        return None
    is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
    if not is_pair or not all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in pair):
        raise UsageError(f"{key} must be [UPPER, LOWER], got {shortened(pair)}.", f"For example {key}: [5.0, 0.5].")
    high, low = map(float, pair)
    if low > high:
        raise UsageError(f"{key} is [UPPER, LOWER], got {shortened(pair)}.", f"Swap them: {key}: [{low:g}, {high:g}].")
    return Bounds(low, high)


def _xtuner_config(plan: Plan) -> dict[str, Any]:
    weighting, rejections = plan.weighting, rejections_by(plan)
    options: dict[str, Any] = {_THRESHOLD: None}
    if weighting is not None:
        level = LEVELS[weighting.scope]
        mask = rejections.get(("ratio", level))
        is_open = weighting.bounds == Bounds()
        mode = "truncate" if mask is None else "mask" if is_open else "both"
        bounds = mask.bounds if mask is not None and is_open else weighting.bounds
        options = {_LEVEL: weighting.scope, _MODE: mode, _THRESHOLD: _pair(bounds)}
        options |= {_MASK: _pair(mask.bounds)} if mask is not None and not is_open else {}
    low, high = (rejections.get(("ratio", scope)) for scope in ("seq_min", "seq_max"))
    if high is not None:
        most, least = high.bounds.high, 0.0 if low is None else low.bounds.low or 0.0
        if most is None or least <= most:
            options[_VETO] = [most, least]
    return under("rollout_is", options)


def _pair(bounds: Bounds) -> list[float | None]:
    return [bounds.high, bounds.low or 0.0]


XTUNER = Framework(
    name="xtuner",
    keys=_KEYS,
    to_plan=_xtuner_plan,
    to_config=_xtuner_config,
    own=(("rollout_is",),),
    common=_KEYS,
    shared=(("rollout_is",),),
)
