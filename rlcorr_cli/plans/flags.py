"""Single knobs of the command line on top of a plan: --rs, --is, --is-high and the like."""

from dataclasses import replace

from rlcorr_cli.errors import UsageError
from rlcorr_cli.plans.plan import Bounds, Mode, Normalize, Outside, Plan, Rejection, Weighting, WeightScope


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
        raise UsageError(
            f"'{text}' in '{context}' is not a number.", "Bounds are plain numbers: ratio.token:0.5,2.0."
        ) from None


def override(
    plan: Plan,
    *,
    scope: WeightScope | None = None,
    high: float | None = None,
    low: float | None = None,
    outside: Outside | None = None,
    normalize: Normalize | None = None,
    rejections: tuple[Rejection, ...] = (),
    mode: Mode | None = None,
) -> Plan:
    """`plan` with single knobs turned (the command line's flags).

    Weighting knobs change the plan's weighting, or start one (which needs `scope` to be named).  A rejection replaces
    the plan's of the same statistic and scope, and keeps its name; else it is added.
    """
    knobs = (scope, high, low, outside, normalize)
    weighting = plan.weighting
    if any(knob is not None for knob in knobs):
        if weighting is None and scope is None:
            raise UsageError("There is no weighting to change.", "Add --is token (or sequence, geometric).")
        base = weighting or Weighting(scope or "token")
        weighting = replace(
            base,
            scope=scope or base.scope,
            bounds=Bounds(base.bounds.low if low is None else low, base.bounds.high if high is None else high),
            outside=outside or base.outside,
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
