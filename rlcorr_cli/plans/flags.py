"""Single knobs of the command line on top of a plan: --is, --rs and the like."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plans.plan import Bounds, Mode, Normalize, Plan, Rejection, Weighting, WeightScope

FlagOutside = Literal["clamp", "zero"]
"""What --is may ask for outside the bounds; plan files know more."""


@dataclass(frozen=True)
class WeightFlag:
    """What --is asks for.  bounds, outside: None where those of the plan stay."""

    scope: WeightScope
    bounds: Bounds | None = None
    outside: FlagOutside | None = None


def parse_weights(text: str) -> WeightFlag:
    """'SCOPE', 'SCOPE:LOW,HIGH' or 'SCOPE:LOW,HIGH:zero' -> WeightFlag; either bound may be left empty: 'token:,2'."""
    scope, *rest = (part.strip() for part in text.split(":"))
    ends = rest[0].split(",") if rest else []
    if len(rest) > 2 or len(ends) not in (0, 2):
        raise UsageError(
            f"Cannot read the weights '{text}'.",
            "Write --is SCOPE:LOW,HIGH, for example token:,2 or token:0.5,5:zero.",
        )
    for value, choices, what in (
        (scope, get_args(WeightScope), "scope of weights"),
        (rest[1] if len(rest) == 2 else "clamp", get_args(FlagOutside), "way to treat what is outside"),
    ):
        if value not in choices:
            hint = f"Write one of {', '.join(choices)}; nearest: {nearest(value, choices, 1)}."
            raise UsageError(f"There is no {what} '{value}' (--is {text}).", hint)
    bounds = Bounds(*(_bound(end, text) for end in ends)) if ends else None
    return WeightFlag(scope, bounds, rest[1] if len(rest) == 2 else None)  # pyrefly: ignore[bad-argument-type]  # checked above


def parse_rejection(text: str) -> Rejection:
    """'STATISTIC.SCOPE:LOW,HIGH' -> Rejection; either bound may be left empty: 'k3.token:,0.01'."""
    head, colon, tail = text.partition(":")
    statistic, dot, scope = head.partition(".")
    ends = tail.split(",")
    if not colon or not dot or len(ends) != 2:
        raise UsageError(
            f"Cannot read the rejection '{text}'.",
            "Write STATISTIC.SCOPE:LOW,HIGH, for example ratio.seq_mean:0.999,1.001 or k3.token:,0.01.",
        )
    low, high = (_bound(end, text) for end in ends)
    return Rejection(statistic.strip(), scope.strip(), Bounds(low, high))  # pyrefly: ignore[bad-argument-type]  # checked inside


def _bound(text: str, context: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"'{text}' in '{context}' is not a number.", "Bounds are plain numbers: 0.5,2.0.") from None


def override(
    plan: Plan,
    *,
    weights: WeightFlag | None = None,
    normalize: Normalize | None = None,
    rejections: tuple[Rejection, ...] = (),
    mode: Mode | None = None,
) -> Plan:
    """`plan` with single knobs turned (the command line's flags).

    Weighting knobs change the plan's weighting, or start one (which takes `weights`).  A rejection replaces
    the plan's of the same statistic and scope, and keeps its name; else it is added.
    """
    weighting = plan.weighting
    if weights is not None or normalize is not None:
        if weighting is None and weights is None:
            raise UsageError("There is no weighting to change.", "Add --is token:,2 (or sequence:,2, geometric:,2).")
        base = weighting or Weighting("token")
        asked = weights or WeightFlag(base.scope)
        weighting = replace(
            base,
            scope=asked.scope,
            bounds=asked.bounds or base.bounds,
            outside=asked.outside or base.outside,
            normalize=normalize or base.normalize,
        )
    all_rejections = _replaced(plan.rejections, rejections)
    changed = replace(plan, weighting=weighting, rejections=all_rejections, mode=mode or plan.mode)
    if changed == plan:
        return plan
    return replace(changed, name="custom" if plan.name in ("custom", "disabled") else f"{plan.name}+flags")


def _replaced(of_plan: tuple[Rejection, ...], of_flags: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
    """A plan's rejections with the flags' bounds where a flag has the same target, then the flags' others."""
    flag_rejections = {target(rejection): rejection for rejection in of_flags}
    if len(flag_rejections) < len(of_flags):
        raise UsageError("Two rejections share statistic and scope.", "Give both bounds in one: k1.token:-1,1.")
    plan_targets = {target(rejection) for rejection in of_plan}
    rebounded = [
        replace(rejection, bounds=flag_rejections.get(target(rejection), rejection).bounds) for rejection in of_plan
    ]
    added = [rejection for target, rejection in flag_rejections.items() if target not in plan_targets]
    return (*rebounded, *added)


def target(rejection: Rejection) -> tuple[str, ...]:
    """What a flag's rejection must have in common with a plan's to replace its bounds."""
    return rejection.statistic, rejection.scope, rejection.of, rejection.gate
