"""open-instruct: the rho_* options of grpo_fast (2026-08), in which 0 switches a bound off.

Every log-ratio is limited to +-10 before all else.  A mask at sequence level looks at the geometric mean, and the
weight is then the geometric mean, too.  rho_mask_tv_divergence (VACO) bounds a sequence's mean |rho - 1| instead, and
takes of a sequence outside only the tokens whose update leads further away.
"""

import math
from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, rejections_by
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting

_USE, _SEQUENCE, _TV = "use_rho_correction", "rho_mask_sequence_level", "rho_mask_tv_divergence"
_CLAMP, _MASK = "rho_clamp", "rho_mask"
_OF_DIVERGENCE = f"{_MASK}_upper_bound is then one of a divergence, not of a ratio"
_BOUNDS = tuple(f"{stem}_{end}_bound" for stem in (_CLAMP, _MASK) for end in ("lower", "upper"))


def _open_instruct_plan(config: Config) -> Plan:
    if not config.flag(_USE, True):
        return Plan("open-instruct", **_LIMIT)
    by_divergence, by_sequence = config.flag(_TV), config.flag(_SEQUENCE)
    clamp, mask = (
        _open_instruct_bounds(config, _CLAMP, 2.0),
        _open_instruct_bounds(config, _MASK, 0.0, of_ratio=not by_divergence),
    )
    rejections: tuple[Rejection, ...] = ()
    if (mask.low, mask.high) != (None, None):
        if by_divergence:
            rejections = (Rejection("ratio_gap", "seq_mean", mask, "vaco", gate="onward"),)
        else:
            rejections = (Rejection("ratio", "seq_mean" if by_sequence else "token", mask, "rho"),)
    return Plan("open-instruct", Weighting("geometric" if by_sequence else "token", clamp), rejections, **_LIMIT)


_LIMIT: dict[str, Any] = {"log_ratio_limit": 10.0, "limit_on": "first"}


def _open_instruct_bounds(config: Config, stem: str, high: float, *, of_ratio: bool = True) -> Bounds:
    """Two bounds; those of a ratio lie below and above 1, as open-instruct demands."""
    ends = [config.number(f"{stem}_{end}_bound", default) for end, default in (("lower", 0.0), ("upper", high))]
    for end, value in zip(("lower", "upper"), ends, strict=True):
        if value is not None and value < 0:
            raise UsageError(f"{stem}_{end}_bound must not be negative, got {value:g}.", "0 switches it off.")
    bounds = Bounds(*(value or None for value in ends))
    if of_ratio and ((bounds.low or 0.0) >= 1 or (bounds.high or math.inf) <= 1):
        raise UsageError(
            f"{stem}_lower_bound and {stem}_upper_bound are of a ratio, and must lie below and above 1.",
            "open-instruct refuses others, too; 0 switches a bound off.",
        )
    return bounds


def _open_instruct_config(plan: Plan) -> dict[str, Any]:
    weighting, rejections = plan.weighting, rejections_by(plan)
    options: dict[str, Any] = {_USE: weighting is not None}
    if weighting is None:
        return options
    options |= _ends(_CLAMP, weighting.bounds) | ({_SEQUENCE: True} if weighting.scope == "geometric" else {})
    for key in (("ratio", "token"), ("ratio", "seq_mean"), ("ratio_gap", "seq_mean")):
        if key in rejections:
            options |= ({_TV: True} if key[0] == "ratio_gap" else {}) | _ends(_MASK, rejections[key].bounds)
    return options


def _ends(stem: str, bounds: Bounds) -> dict[str, Any]:
    """Two bounds, of which 0 is none."""
    return {f"{stem}_lower_bound": bounds.low or 0.0, f"{stem}_upper_bound": bounds.high or 0.0}


OPEN_INSTRUCT = Framework(
    name="open-instruct",
    keys=(_USE, *_BOUNDS, _SEQUENCE, _TV),
    switches={
        "rho_divergence_algo": Switch("icepop", dict.fromkeys(("dppo", "vaco"), _OF_DIVERGENCE)),
        "rho_divergence_type": Switch("rho", dict.fromkeys(("tv", "kl"), _OF_DIVERGENCE)),
        "loss_fn": Switch("dapo cispo", {"dppo": "rho_* then bounds the current over the rollout policy"}),
    },
    family="rho_|use_rho|policy_ratio_|rollout_importance_",
    to_plan=_open_instruct_plan,
    to_config=_open_instruct_config,
    flags=True,
)
