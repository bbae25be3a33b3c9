"""The options of a policy objective, declared once as a group of `option_groups`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rlcorr_cli.plans.objective import Aggregation, Denominator, ObjectiveChoice

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.plans.objective import Objective

OBJECTIVE = "Policy objective"

ObjectiveName = Annotated[
    ObjectiveChoice | None,
    typer.Option(
        "--objective",
        help="Report its loss and gradient coefficients, too; takes advantages. auto: as the plan's loss.",
        rich_help_panel=OBJECTIVE,
    ),
]
ClipLow = Annotated[
    float | None,
    typer.Option("--clip-low", help="How far below 1 a ratio may lie: 0.2, gspo 3e-4.", rich_help_panel=OBJECTIVE),
]
ClipHigh = Annotated[
    float | None,
    typer.Option("--clip-high", help="How far above 1: 0.2, gspo 4e-4.", rich_help_panel=OBJECTIVE),
]
DualClip = Annotated[
    float | None,
    typer.Option("--dual-clip", help="PPO's second clip, where A < 0; none unless named.", rich_help_panel=OBJECTIVE),
]
LossAgg = Annotated[
    Aggregation | None,
    typer.Option("--loss-agg", help="How token losses become one; the last is Dr.GRPO's.", rich_help_panel=OBJECTIVE),
]
LossConstant = Annotated[
    float | None,
    typer.Option(
        "--loss-constant", help="What seq-mean-token-sum-norm divides a sequence's sum by.", rich_help_panel=OBJECTIVE
    ),
]
LossDenominator = Annotated[
    Denominator,
    typer.Option(
        "--loss-denominator", help="Divide by what is kept, or by all that is valid.", rich_help_panel=OBJECTIVE
    ),
]

Coef = Annotated[
    bool,
    typer.Option(
        "--coef",
        help="Write every token's coefficient in the objective's gradient, before its batch's divisor: rlcorr_coef.",
        rich_help_panel=OBJECTIVE,
    ),
]
CoefNormalized = Annotated[
    bool,
    typer.Option("--coef-normalized", help="The same over the divisor; one more pass.", rich_help_panel=OBJECTIVE),
]


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """Which objective, and the single knobs turned on it."""

    objective: ObjectiveName = None
    clip_low: ClipLow = None
    clip_high: ClipHigh = None
    dual_clip: DualClip = None
    loss_agg: LossAgg = None
    loss_constant: LossConstant = None
    loss_denominator: LossDenominator = "kept"

    def of_plan(self, plan: "ChosenPlan") -> "Objective":
        """The objective under one of several plans."""
        chosen = self.chosen(plan, wanted=True)
        assert chosen is not None
        return chosen

    def chosen(self, plan: "ChosenPlan | None", *, wanted: bool = False) -> "Objective | None":
        """The objective under a plan; None where no option asks for one.  A knob alone asks for the plan's own.

        wanted: whether one is asked for anyhow.
        """
        if self == ObjectiveOptions() and not wanted:
            return None
        from rlcorr_cli.commands.choosing import choose_objective

        return choose_objective(
            plan,
            self.objective or "auto",
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
            aggregation=self.loss_agg,
            loss_constant=self.loss_constant,
            denominator=self.loss_denominator,
        )
