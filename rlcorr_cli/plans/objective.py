"""A policy objective as data: which loss a trainer takes of a corrected batch, and how it is averaged.

Notation as in `plan.py`, and: A advantage, theta the log-prob under the current policy, old the one under the policy
before the updates; in bypass mode old is the rollout's.  d = theta - old, r = e^d.  eps_low and eps_high are the clips.

A token's loss is z w L where it is kept, its coefficient z w D, with D = dL / d theta; w is the plan's weight, and z
what the aggregation divides by.  A gradient step moves theta of a token in proportion to its coefficient.
"""

import math
from dataclasses import replace
from typing import Annotated, Literal, get_args

from rlcorr_cli.errors import UsageError, not_one_of
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.records.fields import Key
from rlcorr_cli.records.record import Record

ObjectiveName = Literal["ppo", "reinforce", "gspo", "cispo", "dppo", "sapo", "vespo", "dro"]
ObjectiveChoice = Literal["auto", ObjectiveName]
"""A name, or `auto`: that which a plan's mode and loss ask for."""
Aggregation = Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
"""How a batch's token losses become one number, by verl's names; seq-mean-token-sum-norm is Dr.GRPO's."""
Denominator = Literal["kept", "all"]
"""Which tokens or sequences a mean divides by: those the plan keeps, or all valid ones."""
Divisor = Literal["kept tokens", "kept sequences", "valid tokens", "valid sequences", "nothing"]

DEFAULT_CLIPS: dict[ObjectiveName, tuple[float, float]] = {
    "ppo": (0.2, 0.2),
    "reinforce": (0.0, 0.0),
    "gspo": (3e-4, 4e-4),
    "cispo": (0.2, 0.2),
    "dppo": (0.2, 0.2),
    "sapo": (0.0, 0.0),
    "vespo": (0.0, 0.0),
    "dro": (0.0, 0.0),
}
"""eps_low, eps_high.  A geometric mean of ratios moves far less than one token's; these are the paper's of GSPO."""
CLIPPED: tuple[ObjectiveName, ...] = ("ppo", "gspo", "cispo", "dppo")
"""Objectives with bounds on their ratio, or on the change of a token's probability."""
DRO_BETA = 0.05
"""tinker's; verl asks for one."""


@frozen(kw_only=True)
class Objective(Record):
    """One objective, complete.

    name: ppo     L = max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high)), d within +-20
          reinforce  L = -A theta, r and so the clips have no part in it
          gspo    as ppo, with s = e^(mean of d over the sequence's kept tokens, at most 10) for r
          cispo   L = -clip(r) A theta, clip(r) a constant; a clip_low of 1 clips on one side only
          dppo    L = -min(r, 20) A theta, the ratio a constant; 0 where e^theta - e^old has passed clip_high (A > 0)
                  or -clip_low (A <= 0)
          sapo    L = -A (4 / tau) sigmoid(tau (r - 1)), tau 1 where A > 0 and 1.05 elsewhere
          vespo   L = -phi A theta, phi = e^lambda W^k e^(-lambda W) a constant, W = e^(sum of d over the sequence's
                  kept tokens, within 1e-8 and e^20); k, lambda = 2, 3 where A >= 0 and 3, 2 elsewhere
          dro     L = -(A theta - beta d^2 / 2), d unlimited
    dual_clip: ppo alone, C > 1: where A < 0 the loss is at most -A C; None without.
    beta: dro alone, > 0.
    loss_constant: what a sequence's sum is divided by in seq-mean-token-sum-norm; None elsewhere.
    Sources: PPO arXiv 1707.06347, dual clip 1912.09729, GSPO 2507.18071, CISPO 2506.13585, DPPO 2602.04879
    (Binary-TV), SAPO 2511.20347, VESPO 2602.10693 and TRL's constants, DRO 2405.19107, Dr.GRPO 2503.20783.
    """

    name: ObjectiveName
    mode: Mode
    clip_low: float
    clip_high: float
    dual_clip: float | None = None
    aggregation: Aggregation = "token-mean"
    loss_constant: float | None = None
    denominator: Denominator = "kept"
    beta: Annotated[float | None, Key(omit=True)] = None

    def __post_init__(self) -> None:
        for option, value, choices in (
            ("⟦objective⟧", self.name, ObjectiveName),
            ("⟦loss_agg⟧", self.aggregation, Aggregation),
            ("denominator", self.denominator, Denominator),
        ):
            if value not in get_args(choices):
                raise not_one_of(option, value, get_args(choices))
        if not 0 <= self.clip_low <= 1:
            raise UsageError(f"⟦clip_low⟧ should lie in [0, 1], not at {self.clip_low:g}.", "PPO's is 0.2.")
        if not 0 <= self.clip_high < math.inf:
            raise UsageError(f"⟦clip_high⟧ should be a number from 0 on, not {self.clip_high:g}.", "PPO's is 0.2.")
        if self.dual_clip is not None and self.name != "ppo":
            raise UsageError(f"dual_clip is PPO's; {self.name} has none.", "Leave it out, or take ⟦objective ppo⟧.")
        if self.dual_clip is not None and not 1 < self.dual_clip < math.inf:
            raise UsageError(f"dual_clip should be above 1, not {self.dual_clip:g}.", "3 is usual.")
        divides = self.aggregation == "seq-mean-token-sum-norm"
        if divides and self.loss_constant is None:
            hint = "Add loss_constant = 8192, the longest response of the run, to the objective block of a plan file."
            raise UsageError(f"⟦loss_agg {self.aggregation}⟧ divides by a constant, and there is none.", hint)
        if not divides and self.loss_constant is not None:
            hint = "Leave it out, or add ⟦loss_agg seq-mean-token-sum-norm⟧."
            raise UsageError(f"⟦loss_agg {self.aggregation}⟧ divides by no constant.", hint)
        if self.loss_constant is not None and not 0 < self.loss_constant < math.inf:
            raise UsageError(f"loss_constant should be above 0, not {self.loss_constant:g}.", "Such as 8192.")
        if (self.beta is not None) != (self.name == "dro"):
            raise UsageError(
                f"beta is dro's, and dro needs it; {self.name} {'has none' if self.beta else 'is without'}.",
                "Leave it out, or take ⟦objective dro⟧.",
            )
        if self.beta is not None and not 0 < self.beta < math.inf:
            raise UsageError(f"beta should be above 0, not {self.beta:g}.", "Such as 0.05.")

    @property
    def clips(self) -> bool:
        """Whether its clips have a part in it."""
        return self.name in CLIPPED

    @property
    def takes_weights(self) -> bool:
        """Whether the plan's weights multiply the loss: in bypass mode a ratio current / rollout is the weight."""
        return self.mode == "decoupled" or self.name == "reinforce"

    @property
    def divides_by_tokens(self) -> bool:
        """Whether a batch's sum is divided by its tokens; else by its sequences."""
        return self.aggregation == "token-mean"

    @property
    def is_sum(self) -> bool:
        """Whether a batch's sum is divided by nothing."""
        return self.aggregation == "token-sum"

    @property
    def divisor(self) -> Divisor:
        """What a batch's sum is divided by, in words."""
        if self.is_sum:
            return "nothing"
        kept = self.denominator == "kept"
        if self.divides_by_tokens:
            return "kept tokens" if kept else "valid tokens"
        return "kept sequences" if kept else "valid sequences"


@frozen(kw_only=True)
class ObjectiveBlock:
    """What is asked of an objective; None leaves a key to the plan, or to the method's paper.

    In a plan file it is the block `objective`, whose keys are those of a report's `objective`.
    """

    name: ObjectiveChoice | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    dual_clip: float | None = None
    aggregation: Aggregation | None = None
    loss_constant: float | None = None
    denominator: Denominator | None = None
    beta: float | None = None

    def over(self, other: "ObjectiveBlock | None") -> "ObjectiveBlock":
        """What is asked for here, and where nothing is, what another asks for."""
        asked = {key: value for key, value in vars(self).items() if value is not None}
        return replace(other or ObjectiveBlock(), **asked)

    def of(self, plan: Plan) -> Objective:
        """The objective of a plan: of its loss and in its mode, where nothing else is asked for."""
        name = self.name
        if name is None or name == "auto":
            name = "reinforce" if plan.loss == "reinforce" else "ppo"
        if name not in DEFAULT_CLIPS:
            raise not_one_of("⟦objective⟧", name, get_args(ObjectiveName))
        if name not in CLIPPED and not (self.clip_low is None and self.clip_high is None):
            raise UsageError(f"{name} has no ratio to clip.", "Leave ⟦clip_low⟧ and ⟦clip_high⟧ out, or take ppo.")
        low, high = DEFAULT_CLIPS[name]
        return Objective(
            name=name,
            mode=plan.mode,
            clip_low=low if self.clip_low is None else self.clip_low,
            clip_high=high if self.clip_high is None else self.clip_high,
            dual_clip=self.dual_clip,
            aggregation=self.aggregation or ("seq-mean-token-mean" if name == "gspo" else "token-mean"),
            loss_constant=self.loss_constant,
            denominator=self.denominator or "kept",
            beta=DRO_BETA if name == "dro" and self.beta is None else self.beta,
        )
