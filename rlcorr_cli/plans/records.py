"""The records of a plan file, as pydantic checks them; `files.plan_from_dict` imports this when a file is read.

pydantic takes longer to load than `rlcorr presets` takes to run, so nothing else may import this module.
"""

import math

from pydantic import BaseModel, ConfigDict

from rlcorr_cli.plans.plan import (
    Bounds,
    Budget,
    Gate,
    GateOn,
    Infinite,
    LimitOn,
    Loss,
    Mode,
    Normalize,
    Of,
    Outside,
    Plan,
    Rejection,
    Scope,
    Weighting,
    WeightScope,
)


class Record(BaseModel):
    """A table of a plan file: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=False)


class WeightingRecord(Record):
    """[weighting]."""

    scope: WeightScope
    low: float | None = None
    high: float | None = None
    outside: Outside = "clamp"
    normalize: Normalize = "none"
    of: Of = "mismatch"
    gate: Gate = "any"
    infinite: Infinite = "clamp"

    def weighting(self) -> Weighting:
        """The weighting that it describes."""
        bounds = Bounds(self.low, self.high)
        return Weighting(
            self.scope, bounds, self.outside, self.normalize, of=self.of, gate=self.gate, infinite=self.infinite
        )


class RejectionRecord(Record):
    """One of [[rejections]]."""

    statistic: str
    scope: Scope
    low: float | None = None
    high: float | None = None
    name: str = ""
    of: Of = "mismatch"
    gate: Gate = "any"
    gate_on: GateOn = "unit"
    applied: bool = True

    def rejection(self) -> Rejection:
        """The rejection that it describes."""
        bounds = Bounds(self.low, self.high)
        return Rejection(
            self.statistic,
            self.scope,
            bounds,
            self.name,
            of=self.of,
            gate=self.gate,
            gate_on=self.gate_on,
            applied=self.applied,
        )


class BudgetRecord(Record):
    """One of [[budgets]]."""

    mean_below: float
    statistic: str = "log_ratio_squared"
    name: str = "budget"
    of: Of = "mismatch"

    def budget(self) -> Budget:
        """The budget that it describes."""
        return Budget(self.mean_below, self.statistic, self.name, self.of)


class PlanRecord(Record):
    """A whole plan file."""

    name: str = "custom"
    mode: Mode = "decoupled"
    loss: Loss = "ppo_clip"
    log_ratio_limit: float | None = 20.0
    limit_on: LimitOn = "reduced"
    weighting: WeightingRecord | None = None
    rejections: tuple[RejectionRecord, ...] = ()
    budgets: tuple[BudgetRecord, ...] = ()

    def plan(self) -> Plan:
        """The plan that it describes."""
        return Plan(
            self.name,
            None if self.weighting is None else self.weighting.weighting(),
            tuple(record.rejection() for record in self.rejections),
            # TOML has no null, so there infinity stands for "no limit".
            log_ratio_limit=None if self.log_ratio_limit == math.inf else self.log_ratio_limit,
            limit_on=self.limit_on,
            mode=self.mode,
            loss=self.loss,
            budgets=tuple(record.budget() for record in self.budgets),
        )
