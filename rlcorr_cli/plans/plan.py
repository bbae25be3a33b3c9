"""A correction as data: at most one weighting and a list of rejections.

Notation (fixed for the whole project): a = log-prob of the sampled token under the training policy, b = under the
rollout policy, log_ratio l = a - b, rho = exp(l); S = sum of l over a sequence's valid tokens, g = S / n.

A weighting never changes the mask and a rejection never changes a weight.  All rejections are ANDed and each is
computed on the original mask.  A veto is a rejection like any other: ratio, seq_min, low = 1e-4.  A budget is a
rejection whose bound the data set, batch by batch.

Every record looks at one pair of policies (`of`) and may look at advantages A (`gate`): OPSM is k1 of the drift where
A < 0, prime-rl's DPPO mask is two gated prob_gap rejections, TOPR a gated weighting, GSPO a weighting of the drift.

Records are positional in the order in which they are spoken of (statistic, scope, bounds, name); what a record rarely
has is named.  Plans are read from files in `files.py`; named plans are `presets/`; trainers' configs, `frameworks/`.
"""

import math
import re
from dataclasses import KW_ONLY, astuple, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from rlcorr_cli.errors import UsageError, nearest, shortened
from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import Form, Key
from rlcorr_cli.records.record import Record

Scope = Literal["token", "seq_sum", "seq_mean", "seq_max", "seq_min"]
WeightScope = Literal["token", "sequence", "geometric"]
Mode = Literal["decoupled", "bypass"]
Loss = Literal["ppo_clip", "reinforce"]
LimitOn = Literal["reduced", "token", "first"]
Outside = Literal["clamp", "zero", "cap"]
Infinite = Literal["clamp", "zero"]
Normalize = Literal["none", "batch"]
Of = Literal["mismatch", "drift", "total"]
"""The policies of a record's l: training over rollout (a - b), current over old (theta - old), or current over rollout
(theta - b).  In bypass mode old is the rollout policy, and training the current one: all three are the same."""
Gate = Literal["any", "positive", "negative", "nonpositive", "nonnegative", "onward"]
"""The sign of the advantage that a record acts on; `onward`: of tokens with l A > 0, whose update takes the policies
further apart (VACO).  A sequence's advantage is the mean over its valid tokens."""
GateOn = Literal["unit", "token"]
"""Whose advantage a gate looks at: that of what the statistic is of, or that of each token."""

SCOPES: tuple[Scope, ...] = ("token", "seq_sum", "seq_mean", "seq_max", "seq_min")
LEVELS: dict[WeightScope, Scope] = {"token": "token", "sequence": "seq_sum", "geometric": "seq_mean"}
"""How a weight of each scope reduces l; verl and slime name a ratio's level so, too."""
SIGNS: dict[Gate, str] = {"positive": ">", "negative": "<", "nonpositive": "<=", "nonnegative": ">="}
MOST_RULES = 100
RESERVED = ("seq",)
"""Rejection names whose metrics would collide with those of all rejections together."""


@frozen(kw_only=True)
class Statistic:
    """A number of each token that a rejection bounds, as it is or reduced over the sequence.

    where_equal: its value where the policies agree, about which spreads are taken.  nonnegative: whether no value is
    below 0, so that a negative bound is a mistake.  budgetable: whether a budget may bound its mean over a batch: it
    must be a number of one token alone, and 0 where the policies agree.
    """

    name: str
    formula: str
    where_equal: float = 0.0
    nonnegative: bool = False
    budgetable: bool = False


_STATISTICS: tuple[Statistic, ...] = (
    Statistic(
        name="ratio",
        formula="rho = e^l; seq_sum the product e^S, seq_mean the geometric mean e^g, seq_min/seq_max the extreme "
        "token",
        where_equal=1.0,
        nonnegative=True,
    ),
    Statistic(name="log_ratio", formula="l (AReaL's k1)"),
    Statistic(name="k1", formula="-l, the k1 estimate of KL(rollout || training)"),
    Statistic(name="k2", formula="l^2 / 2", nonnegative=True, budgetable=True),
    Statistic(name="k3", formula="e^l - 1 - l", nonnegative=True, budgetable=True),
    Statistic(name="k3_reverse", formula="e^-l - 1 + l", nonnegative=True, budgetable=True),
    Statistic(name="abs_log_ratio", formula="|l|", nonnegative=True, budgetable=True),
    Statistic(name="exp_abs_log_ratio", formula="e^|l|", where_equal=1.0, nonnegative=True),
    Statistic(name="prob_gap", formula="e^a - e^b"),
    Statistic(name="abs_prob_gap", formula="|e^a - e^b|", nonnegative=True),
    Statistic(name="log_ratio_squared", formula="l^2", nonnegative=True, budgetable=True),
    Statistic(name="ratio_gap", formula="|rho - 1| (VACO)", nonnegative=True, budgetable=True),
    Statistic(
        name="binary_kl",
        formula="the larger of KL(training || rollout) and KL(rollout || training) of the sampled token against all "
        "others, in float32; the first is e^a (a - b) + (1 - e^a) ln((1 - e^a) / (1 - e^b)) (KPop)",
        nonnegative=True,
    ),
    Statistic(
        name="binary_kl_forward",
        formula="KL(rollout || training) of the sampled token against all others (FlashREINFORCE)",
        nonnegative=True,
    ),
    Statistic(
        name="binary_kl_signed",
        formula="KL(rollout || training) of the sampled token against all others, with the sign of l (DPPO)",
    ),
    Statistic(
        name="binary_kl_float32",
        formula="like binary_kl, but infinite if float32 rounds either probability to 1 (AReaL)",
        nonnegative=True,
    ),
)

STATISTICS: dict[str, Statistic] = {row.name: row for row in _STATISTICS}
"""A new statistic is a row here, and its function with its row in `measure/statistics.py`."""

BUDGETABLE: tuple[str, ...] = tuple(row.name for row in _STATISTICS if row.budgetable)
"""Names of the statistics that a budget may be kept on."""


@frozen
class Bounds(Record):
    """An inclusive interval in the statistic's own unit; either end may be open (None)."""

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for end, value in (("low", self.low), ("high", self.high)):
            if value is not None and not math.isfinite(value):
                raise UsageError(f"The {end} bound must be a finite number, got {value}.", "Leave it out for no bound.")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise UsageError(f"The low bound {self.low:g} is above the high bound {self.high:g}.", "Swap them.")

    def __str__(self) -> str:
        if self.low is None:
            return "unbounded" if self.high is None else f"<= {self.high:g}"
        return f">= {self.low:g}" if self.high is None else f"[{self.low:g}, {self.high:g}]"


@frozen
class Weighting(Record):
    """IS weights: reduce l by scope, clamp to the limit, exp, then clamp to the bounds or zero outside them.

    scope: token e^l; sequence e^S; geometric e^g, the last two spread over the sequence's tokens.
    outside: "clamp" moves a weight to the nearer bound, "zero" makes it 0, "cap" clamps from above only and merely
    counts what lies below (verl's 2025-10 truncation with a lower threshold).
    infinite: of a weight that float32 cannot hold, before the bounds.  "clamp" takes it as it is, far above any high
    bound; "zero" makes it 0, as NeMo-RL's nan_to_num does.
    normalize: "batch" divides by the mean weight of the training batch (token scope: over valid tokens; else over
    non-empty sequences).  gate: where it is shut the weight is 1.
    """

    scope: WeightScope
    bounds: Annotated[Bounds, Key(inline=True)] = field(default_factory=Bounds)
    outside: Outside = "clamp"
    normalize: Normalize = "none"
    _: KW_ONLY
    of: Of = "mismatch"
    gate: Gate = "any"
    infinite: Annotated[Infinite, Key(omit=True)] = "clamp"

    def __post_init__(self) -> None:
        for end, value in (("low", self.bounds.low), ("high", self.bounds.high)):
            if value is not None and (value < 0 or (end == "high" and value == 0)):
                raise UsageError(
                    f"An IS weight's {end} bound must be positive, got {value:g}.",
                    "Weights are ratios: 2.0 is a usual high, 0.5 a usual low.",
                )
        if self.gate == "onward" and self.scope != "token":
            raise UsageError(f"A {self.scope} weight has no single l for the gate onward.", "Give it scope token.")

    @property
    def rule(self) -> str:
        """One line that says which weights these are, for reports."""
        divided = ", batch mean 1" if self.normalize == "batch" else ""
        return f"{self.scope} {self.bounds} ({self.outside}){acts_on(self.of, self.gate)}{self.beyond}{divided}"

    @property
    def beyond(self) -> str:
        """What becomes of infinite weights in words; nothing where they are bounded like others."""
        return ", 0 beyond float32" if self.infinite == "zero" else ""


@frozen
class Rejection(Record):
    """Keep what lies inside the bounds: one token each at token scope, else the whole sequence.

    `name` is what reports and metrics call it; `{scope}_{statistic}` unless given.  gate: where it is shut everything
    is kept.  gate_on: "token" looks at each token's own advantage, so that a sequence that is outside its bounds loses
    only the tokens for which the gate is open; it is so of any `onward` gate.  applied: whether it changes the mask;
    else it is measured and reported, and the mask is left alone.
    """

    statistic: str
    scope: Scope
    bounds: Annotated[Bounds, Key(inline=True)]
    name: Annotated[str, Key(after="")] = ""
    _: KW_ONLY
    of: Of = "mismatch"
    gate: Gate = "any"
    gate_on: Annotated[GateOn, Key(omit=True)] = "unit"
    applied: Annotated[bool, Key(omit=True)] = True

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            raise UsageError(
                f"Unknown statistic '{self.statistic}'.", f"Try one of: {nearest(self.statistic, STATISTICS)}."
            )
        if self.scope not in SCOPES:
            raise UsageError(f"Unknown scope '{self.scope}'.", f"Try one of: {', '.join(SCOPES)}.")
        if self.bounds.low is None and self.bounds.high is None:
            raise UsageError("A rejection needs a low or a high bound.", "For example ratio.seq_mean:0.999,1.001.")
        if STATISTICS[self.statistic].nonnegative:
            for end, value in (("low", self.bounds.low), ("high", self.bounds.high)):
                if value is not None and value < 0:
                    raise UsageError(
                        f"{self.statistic} is never negative; its {end} bound is {value:g}.",
                        f"It is {STATISTICS[self.statistic].formula}.",
                    )
        if not self.name:
            object.__setattr__(self, "name", f"{self.scope}_{self.statistic}")
        _check_name(self.name)

    @property
    def rule(self) -> str:
        """One line that says what is kept, for reports."""
        unapplied = "" if self.applied else ", measured only"
        acts = acts_on(self.of, self.gate)
        whose = " of the token" if self.gates_tokens and self.gate in SIGNS else ""
        return f"{self.statistic} {self.scope} {self.bounds}{acts}{whose}{unapplied}"

    @property
    def gates_tokens(self) -> bool:
        """Whether its sequences lose single tokens: those for which its gate is open."""
        return self.scope != "token" and self.gate != "any" and (self.gate == "onward" or self.gate_on == "token")

    @property
    def takes_tokens(self) -> bool:
        """Whether it takes single tokens; else whole sequences."""
        return self.scope == "token" or self.gates_tokens

    @property
    def by_distance(self) -> bool:
        """Whether a unit stays or goes by its distance alone from where the statistic keeps everything."""
        plain = self.of == "mismatch" and self.gate == "any"
        return plain and self.applied and STATISTICS[self.statistic].nonnegative

    @property
    def is_veto(self) -> bool:
        """Whether this is the veto of the literature: a floor under the smallest token ratio."""
        plain = self.of == "mismatch" and self.gate == "any"
        return plain and self.statistic == "ratio" and self.scope == "seq_min" and bool(self.bounds.low)


@frozen
class Budget(Record):
    """Reject the tokens with the largest statistic until the mean of those left in their batch is below mean_below.

    Equal values stay or go together, so the result knows no order; the smallest stay even where they are too large.  A
    batch as for `normalize`.  Takes two readings of the dump before the one that applies it.
    """

    mean_below: Annotated[float, Form(above=0)]
    statistic: str = "log_ratio_squared"
    name: str = "budget"
    of: Of = "mismatch"
    scope: ClassVar[Scope] = "token"
    bounds: ClassVar[Bounds] = Bounds()
    gate: ClassVar[Gate] = "any"
    gates_tokens: ClassVar[bool] = False
    takes_tokens: ClassVar[bool] = True
    applied: ClassVar[bool] = True
    by_distance: ClassVar[bool] = False
    is_veto: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.statistic not in BUDGETABLE:
            raise UsageError(
                f"A budget cannot be kept on '{self.statistic}'.", f"Try one of: {nearest(self.statistic, BUDGETABLE)}."
            )
        if not 0 < self.mean_below < math.inf:
            raise UsageError(f"A budget must be a positive number, got {self.mean_below:g}.", "M2PO's is 0.04.")
        _check_name(self.name)

    @property
    def rule(self) -> str:
        """One line that says what is kept, for reports."""
        return f"the smallest {self.statistic} of a batch, mean < {self.mean_below:g}{acts_on(self.of, self.gate)}"


def acts_on(of: Of, gate: Gate) -> str:
    """The policies and the sign of the advantage in words; nothing for training over rollout and any sign."""
    pair = {"mismatch": "", "drift": " of current / old", "total": " of current / rollout"}[of]
    if gate == "onward":
        return f"{pair} where l A > 0"
    return pair + (f" where A {SIGNS[gate]} 0" if gate in SIGNS else "")


def _with_floats(value: Any) -> Any:
    """A value, or a list of some within lists, with floats for integers: 2 and 2.0 are one bound."""
    if isinstance(value, (list, tuple)):
        return [_with_floats(each) for each in value]
    return float(value) if type(value) is int else value


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in RESERVED:
        raise UsageError(
            f"A rejection cannot be called {shortened(name)}.",
            "Names are lower-case letters, digits and _, for example geometric.",
        )


@frozen
class Plan(Record):
    """One correction, complete.

    log_ratio_limit: log-ratios are clamped to +-limit before they are exponentiated for weights and rejections
    (None: no limit); a veto and seq_max ratios look at unlimited tokens.  limit_on: whether `ratio` and `k1` clamp
    the reduced value (canonical) or each token before reducing (verl >= 0.7); other statistics are always limited per
    token.  "first": every token's log-ratio is limited before all else, for weights and extremes, too (open-instruct).
    """

    name: str = "custom"
    weighting: Annotated[Weighting | None, Key(after="limit_on")] = None
    rejections: Annotated[tuple[Rejection, ...], Key(after="weighting")] = ()
    _: KW_ONLY
    log_ratio_limit: float | None = 20.0
    limit_on: LimitOn = "reduced"
    mode: Annotated[Mode, Key(after="name")] = "decoupled"
    loss: Annotated[Loss, Key(after="mode")] = "ppo_clip"
    budgets: tuple[Budget, ...] = ()

    def __post_init__(self) -> None:
        if self.log_ratio_limit is not None and not 0 < self.log_ratio_limit <= 340:
            raise UsageError(
                f"log_ratio_limit must lie in (0, 340], got {self.log_ratio_limit:g}.",
                "20 is what verl and slime use; null (inf in TOML) switches it off.",
            )
        if len(self.rules) > MOST_RULES:
            raise UsageError(f"A plan has at most {MOST_RULES} rejections, not {len(self.rules):,}.", "Leave some out.")
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"Two rejections are called '{name}'.", "Give each its own name in a plan file.")

    @cached_property
    def id(self) -> str:
        """16 hex digits of all its records, its name left out: equal plans have equal ones, others do not."""
        import hashlib

        _, *records = astuple(self)
        return hashlib.sha256(repr(_with_floats(records)).encode()).hexdigest()[:16]

    @property
    def normalizes(self) -> bool:
        """Whether weights are divided by their batch's mean, which takes knowing it first."""
        return self.weighting is not None and self.weighting.normalize == "batch"

    @property
    def applies_weights(self) -> bool:
        """Whether the loss takes the weights.

        Not PPO's in bypass mode: its ratio current / rollout carries the correction, and a weight on top of it would
        count it twice, so weights are for metrics only.
        """
        return self.weighting is not None and not self._ratio_corrects

    @property
    def applied_weighting(self) -> Weighting | None:
        """The weights that the loss takes: in bypass PPO its own ratio, whatever weights the plan has for metrics."""
        return Weighting("token") if self._ratio_corrects else self.weighting

    @property
    def corrects_mismatch(self) -> bool:
        """Whether every token gets a weight of the mismatch: one of token or sequence scope, without a gate."""
        weighting = self.applied_weighting
        if weighting is None or weighting.gate != "any" or weighting.scope == "geometric":
            return False
        return weighting.of != "drift" or self.mode == "bypass"

    @property
    def _ratio_corrects(self) -> bool:
        """Whether the loss is PPO's in bypass mode."""
        return (self.mode, self.loss) == ("bypass", "ppo_clip")

    @property
    def batched(self) -> bool:
        """Whether what happens to a token depends on its training batch."""
        return self.normalizes or bool(self.budgets)

    @property
    def rules(self) -> "tuple[Rejection | Budget, ...]":
        """Every record that can change the mask."""
        return (*self.rejections, *self.budgets)

    @property
    def needs(self) -> tuple[str, ...]:
        """Canonical columns it takes beside the two policies of its mode."""
        records = (*self.rules, *((self.weighting,) if self.weighting else ()))
        drifts = any(record.of != "mismatch" for record in records) and self.mode == "decoupled"
        gated = any(record.gate != "any" for record in records)
        return ("current_log_probs",) * drifts + ("advantages",) * gated

    def dppo_bounds(self, statistic: str, losing: Gate = "nonpositive") -> tuple[float, float | None] | None:
        """How far down and up its DPPO mask lets a statistic go; None where it has no such mask.

        losing: the gate of its lower end.
        """
        bounds = {each.gate: each.bounds for each in self.rejections if each.statistic == statistic}
        low = bounds[losing].low if bounds.keys() == {"positive", losing} else None
        return None if low is None else (-low, bounds["positive"].high)


def veto(low: float) -> Rejection:
    """Reject a sequence that holds any token with rho < low (unlimited log-ratio)."""
    if not 0 < low < 1:
        raise UsageError(f"A veto threshold must lie between 0 and 1, got {low:g}.", "verl's default is 1e-4.")
    return Rejection("ratio", "seq_min", Bounds(low, None), "veto")


def opsm(delta: float, of: Of, gate_on: GateOn = "unit") -> Rejection:
    """Reject a sequence of negative advantage whose mean of -l is above delta: off-policy sequence masking.

    Source: DeepSeek-V3.2.
    """
    return Rejection("k1", "seq_mean", Bounds(None, delta), "opsm", of=of, gate="negative", gate_on=gate_on)


def dppo(
    statistic: str, low: float, high: float, *, of: Of = "mismatch", losing: Gate = "nonpositive"
) -> tuple[Rejection, Rejection]:
    """Reject a token whose statistic is above `high` where A > 0, and below -`low` where A <= 0, or as `losing` says.

    The statistic has the sign of l, so a token goes that has moved too far in the direction of its advantage.  Source:
    DPPO, arXiv 2602.04879.
    """
    return (
        Rejection(statistic, "token", Bounds(None, high), "dppo_high", of=of, gate="positive"),
        Rejection(statistic, "token", Bounds(-low, None), "dppo_low", of=of, gate=losing),
    )
