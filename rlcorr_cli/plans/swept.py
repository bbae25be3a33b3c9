"""One bound of a plan left free: what `sweep` moves, and the plan that it comes to at a threshold.

A threshold is a distance from where everything stays.  Of ratios and log-ratios it is |value| of the log, on both
sides or on one of them; of other statistics the value itself; of weights the log of an upper bound, or of the inverse
of a lower one.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plans.flags import target
from rlcorr_cli.plans.plan import SCOPES, Bounds, Plan, Rejection, Weighting
from rlcorr_cli.plans.statistics import STATISTICS

Side = Literal["both", "low", "high"]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """base: the plan without the record whose bound is free (a weighting's other settings stay in it).

    record: a rejection whose bounds are placeholders, or the weighting.  side: which of its bounds move.  place: the
    record's among the plan's rejections.  beside: the options of the command line that name the rest of the plan, each
    with its value; None where none do.
    """

    base: Plan
    record: Rejection | Weighting
    side: Side
    place: int = 0
    beside: tuple[str, ...] | None = ()

    @property
    def told(self) -> str:
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
            own = f"--is-{self.side} {low if self.side == 'low' else high}"
            own = f"--is {self.record.scope} {own}" if self.beside is None else own
            replaced: tuple[str, ...] = (f"--is-{self.side} ",)
        else:
            kind = f"--rs {self.record.statistic}.{self.record.scope}:"
            own = f"{kind}{low},{high}"
            replaced = (kind, "--veto ") if kind == "--rs ratio.seq_min:" else (kind,)
        return " ".join([*(each for each in self.beside or () if not each.startswith(replaced)), own])


def swept_rejection(base: Plan, text: str, side: Side | None, beside: tuple[str, ...] | None = ()) -> Swept:
    """The rejection of 'STATISTIC.SCOPE' with free bounds, in place of the plan's own of that kind."""
    statistic, dot, scope = text.partition(".")
    if not dot or statistic not in STATISTICS or scope not in SCOPES:
        what, names = ("Scopes", ", ".join(SCOPES))
        if statistic not in STATISTICS:
            what, names = "Statistics", nearest(statistic, STATISTICS)
        raise UsageError(
            f"Cannot read what to sweep, '{text}'.",
            f"Write --rs STATISTIC.SCOPE without bounds, for example ratio.seq_mean. {what}: {names}.",
        )
    record = Rejection(statistic, scope, Bounds(None, 1.0))
    two_sided = not STATISTICS[statistic].nonnegative or statistic == "ratio"
    if side is not None and not two_sided:
        raise UsageError(f"{statistic} is never negative: it has no low side.", "Leave --side out.")
    # As a flag does: in the place of the plan's own, unless that looks at other policies, or one sign of the advantage.
    own = [rule for rule in base.rejections if target(rule) == target(record)]
    if own and not own[0].applied:
        raise UsageError(f"{base.name} measures {text} alone.", "Its bounds move nothing: sweep another rejection.")
    others = tuple(rule for rule in base.rejections if rule not in own)
    place = base.rejections.index(own[0]) if own else len(others)
    record = replace(own[0], bounds=record.bounds) if own else record
    return Swept(
        base=replace(base, rejections=others),
        record=record,
        side=side or ("both" if two_sided else "high"),
        place=place,
        beside=beside,
    )


def swept_weighting(base: Plan, side: Literal["low", "high"], beside: tuple[str, ...] | None = None) -> Swept:
    """The weighting of a plan with one free bound."""
    assert base.weighting is not None
    fixed = replace(base.weighting.bounds, **{side: None})
    if base.weighting.outside == "cap":
        fixed = Bounds()  # a lower bound merely counts there
    return Swept(base=base, record=replace(base.weighting, bounds=fixed), side=side, beside=beside)


def plain(value: float) -> str:
    """The shortest digits that are this number."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)
