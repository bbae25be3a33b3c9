"""Options of the command line on top of a plan: single knobs (--is, --rs and the like), and the one bound that `sweep`
leaves free, with the plan that it comes to at a threshold.

A threshold is a distance from where everything stays.  Of ratios and log-ratios it is |value| of the log, on both
sides or on one of them; of other statistics the value itself; of weights the log of an upper bound, or of the inverse
of a lower one.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from rlcorr_cli.errors import UsageError, nearest, plain
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import (
    SCOPES,
    STATISTICS,
    Bounds,
    Mode,
    Normalize,
    Plan,
    Rejection,
    Scope,
    Weighting,
    WeightScope,
    veto as veto_rejection,
)

Side = Literal["both", "low", "high"]
FlagOutside = Literal["clamp", "zero"]
"""What --is may ask for outside the bounds; plan files know more."""


@frozen
class WeightFlag:
    """What --is asks for.  bounds, outside: None where those of the plan stay."""

    scope: WeightScope
    bounds: Bounds | None = None
    outside: FlagOutside | None = None


def parse_weights(text: str) -> WeightFlag:
    """'SCOPE', 'SCOPE:LOW,HIGH' or 'SCOPE:LOW,HIGH:zero' -> WeightFlag; either bound may be left empty: 'token:,2'."""
    scope, *rest = (part.strip() for part in text.split(":"))
    ends = rest[0].split(",") if rest else []
    if scope[:1].isdigit() or scope[:1] in (".", ","):
        bounds = scope if "," in scope else f",{scope}"
        raise UsageError(f"The weights '{text}' name no scope.", f"Write ⟦is_ token:{bounds}⟧ to bound token weights.")
    if len(ends) == 1 and len(rest) == 1 and ends[0]:
        hint = f"Write ⟦is_ {scope}:,{ends[0]}⟧ for an upper bound, or {scope}:{ends[0]}, for a lower one."
        raise UsageError(f"The weights '{text}' have one bound, and do not say which.", hint)
    if len(rest) > 2 or len(ends) not in (0, 2):
        raise UsageError(
            f"Cannot read the weights '{text}'.",
            "Write ⟦is_ SCOPE:LOW,HIGH⟧, for example token:,2 or token:0.5,5:zero.",
        )
    for value, choices, what in (
        (scope, get_args(WeightScope), "scope of weights"),
        (rest[1] if len(rest) == 2 else "clamp", get_args(FlagOutside), "way to treat what is outside"),
    ):
        if value not in choices:
            hint = f"Write one of {', '.join(choices)}; nearest: {nearest(value, choices, 1)}."
            raise UsageError(f"There is no {what} '{value}' (⟦is_ {text}⟧).", hint)
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
    is_: str | None = None,
    normalize: Normalize | None = None,
    rs: Sequence[str | Rejection] = (),
    veto: float | None = None,
    mode: Mode | None = None,
) -> Plan:
    """`plan` with single knobs turned (the command line's flags).

    Weighting knobs change the plan's weighting, or start one (which takes `weights`).  A rejection replaces
    the plan's of the same statistic and scope, and keeps its name; else it is added.
    """
    weighting, weights = plan.weighting, None if is_ is None else parse_weights(is_)
    if weights is not None or normalize is not None:
        if weighting is None and weights is None:
            raise UsageError("There is no weighting to change.", "Add ⟦is_ token:,2⟧ (or sequence:,2, geometric:,2).")
        base = weighting or Weighting("token")
        asked = weights or WeightFlag(base.scope)
        weighting = replace(
            base,
            scope=asked.scope,
            bounds=asked.bounds or base.bounds,
            outside=asked.outside or base.outside,
            normalize=normalize or base.normalize,
        )
    rejections = [parse_rejection(each) if isinstance(each, str) else each for each in rs]
    rejections += [] if veto is None else [veto_rejection(veto)]
    all_rejections = _replaced(plan.rejections, rejections)
    changed = replace(plan, weighting=weighting, rejections=all_rejections, mode=mode or plan.mode)
    if changed == plan:
        return plan
    return replace(changed, name="custom" if plan.name in ("custom", "disabled") else f"{plan.name}+flags")


def _replaced(of_plan: tuple[Rejection, ...], of_flags: Sequence[Rejection]) -> tuple[Rejection, ...]:
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


@frozen(kw_only=True)
class Swept:
    """base: the plan without the record whose bound is free (a weighting's other settings stay in it).

    rejection, with placeholders for bounds, or weighting: that record.  side: which of its bounds move.  place: the
    record's among the plan's rejections.  beside: the options of the command line that name the rest of the plan, each
    with its value; None where none do.
    """

    base: Plan
    rejection: Rejection | None = None
    weighting: Weighting | None = None
    side: Side
    place: int = 0
    beside: tuple[str, ...] | None = ()

    def check_unpacked(self) -> None:
        """A ValueError where no bound is free."""
        if (self.rejection is None) == (self.weighting is None):
            raise ValueError("a sweep moves the bounds of one record")

    @property
    def record(self) -> Rejection | Weighting:
        """The record whose bound is free."""
        record = self.rejection or self.weighting
        assert record is not None
        return record

    @property
    def name(self) -> str:
        """The record whose bound is free, in words."""
        record = self.record
        name = f"{record.scope} weights" if isinstance(record, Weighting) else f"{record.statistic}.{record.scope}"
        return name if self.side == "both" else f"{name}, its {self.side} bound"

    @property
    def units(self) -> Literal["tokens", "sequences"]:
        """What the statistic has one value for."""
        return "tokens" if self.record.scope == "token" else "sequences"

    @property
    def is_log(self) -> bool:
        """Whether thresholds are logs of the bounds: of ratios and of weights."""
        return isinstance(self.record, Weighting) or self.record.statistic == "ratio"

    @property
    def farthest(self) -> float:
        """The largest distance that a bound may be at: e^700 is a number that float64 holds, 3e38 one of float32."""
        return 700.0 if self.is_log else 3e38

    def bounds(self, distance: float) -> Bounds:
        """The bounds at a distance."""
        if isinstance(self.record, Weighting):
            fixed = self.record.bounds
            if self.side == "low":
                return replace(fixed, low=math.exp(-distance))
            return replace(fixed, high=math.exp(distance))
        low, high = (None if self.side == end else edge for end, edge in (("high", -distance), ("low", distance)))
        if self.is_log:
            low, high = (None if edge is None else math.exp(edge) for edge in (low, high))
        return Bounds(low, high)

    def plan(self, bounds: Bounds) -> Plan:
        """The whole plan with these bounds."""
        record = replace(self.record, bounds=bounds)
        if isinstance(record, Weighting):
            return replace(self.base, weighting=record)
        others = self.base.rejections
        return replace(self.base, rejections=(*others[: self.place], record, *others[self.place :]))

    def option(self, bounds: Bounds) -> str:
        """The options of the command line that are the whole plan with these bounds, as far as options name it."""
        low, high = ("" if edge is None else plain(edge) for edge in (bounds.low, bounds.high))
        if isinstance(self.record, Weighting):
            named = [each for each in self.beside or () if each.startswith("--is ") and each.count(":") == 2]
            says_outside = named or (self.beside is None and self.record.outside == "zero")
            outside = f":{self.record.outside}" if says_outside else ""
            own = f"--is {self.record.scope}:{low},{high}{outside}"
            replaced: tuple[str, ...] = ("--is ",)
        else:
            kind = f"--rs {self.record.statistic}.{self.record.scope}:"
            own = f"{kind}{low},{high}"
            replaced = (kind, "--veto ") if kind == "--rs ratio.seq_min:" else (kind,)
        return " ".join([*(each for each in self.beside or () if not each.startswith(replaced)), own])


WEIGHTS = "is"
"""What --vary calls a plan's weights."""
VARY = "Write ⟦vary is.high⟧, ⟦vary is.low⟧ or ⟦vary STATISTIC.SCOPE⟧, for example ratio.seq_mean."


def swept(base: Plan, text: str, beside: tuple[str, ...] | None = ()) -> Swept:
    """What 'is.high', 'is.low', 'STATISTIC.SCOPE' or 'STATISTIC.SCOPE.high' (or .low) moves of a plan."""
    head, *rest = text.split(".")
    side = rest.pop() if rest and rest[-1] in ("low", "high") else None
    if head == WEIGHTS:
        if side is None or rest:
            raise UsageError(f"Cannot read what to vary, '{text}'.", VARY)
        return _swept_weighting(base, side, beside)  # pyrefly: ignore[bad-argument-type]  # low or high
    if head not in STATISTICS:
        names = nearest(head, [*STATISTICS, WEIGHTS])
        raise UsageError(f"Cannot read what to vary, '{text}'.", f"{VARY} Nearest: {names}.")
    if len(rest) != 1 or rest[0] not in SCOPES:
        raise UsageError(f"Cannot read what to vary, '{text}'.", f"{VARY} Scopes: {', '.join(SCOPES)}.")
    return _swept_rejection(base, head, rest[0], side=side, beside=beside)  # pyrefly: ignore[bad-argument-type]  # looked up above


def _swept_rejection(
    base: Plan, statistic: str, scope: Scope, *, side: Side | None, beside: tuple[str, ...] | None
) -> Swept:
    """The rejection of a statistic and scope with free bounds, in place of the plan's own of that kind."""
    record = Rejection(statistic, scope, Bounds(None, 1.0))
    two_sided = not STATISTICS[statistic].nonnegative or statistic == "ratio"
    if side is not None and not two_sided:
        raise UsageError(
            f"{statistic} is never negative: only its upper bound moves.", f"Write ⟦vary {statistic}.{scope}⟧."
        )
    # As a flag does: in the place of the plan's own, unless that looks at other policies, or one sign of the advantage.
    own = [rule for rule in base.rejections if target(rule) == target(record)]
    if own and not own[0].applied:
        raise UsageError(
            f"{base.name} measures {statistic}.{scope} alone.", "Its bounds move nothing: vary another rejection."
        )
    others = tuple(rule for rule in base.rejections if rule not in own)
    place = base.rejections.index(own[0]) if own else len(others)
    record = replace(own[0], bounds=record.bounds) if own else record
    return Swept(
        base=replace(base, rejections=others),
        rejection=record,
        side=side or ("both" if two_sided else "high"),
        place=place,
        beside=beside,
    )


def _swept_weighting(base: Plan, side: Literal["low", "high"], beside: tuple[str, ...] | None) -> Swept:
    """The weighting of a plan with one free bound."""
    if base.weighting is None:
        raise UsageError(
            "There are no weights whose bound could move.", "Add ⟦is_ token:,2⟧, or a ⟦preset⟧ with weights."
        )
    if not base.applies_weights:
        raise UsageError("PPO in bypass mode takes no weights.", "Leave out ⟦mode bypass⟧.")
    if base.weighting.outside == "cap" and side == "low":
        raise UsageError("These weights are capped from above alone.", "Write ⟦vary is.high⟧.")
    fixed = replace(base.weighting.bounds, **{side: None})
    if base.weighting.outside == "cap":
        fixed = Bounds()  # a lower bound merely counts there
    return Swept(base=base, weighting=replace(base.weighting, bounds=fixed), side=side, beside=beside)
