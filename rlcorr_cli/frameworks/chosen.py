"""The plan of a run, with all that was chosen beside it."""

from typing import TYPE_CHECKING

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.objective import ObjectiveBlock, ObjectiveName
from rlcorr_cli.plans.plan import Plan

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework


@frozen(kw_only=True)
class ChosenPlan:
    """The resolved plan.

    profile: the framework's, None for canonical names.  notes: what the user should know.  file: where it was read.
    options: those of the command line that name it, each with its value; None where none do.  objective: the block of
    its file, if there is one.  loss: the objective of a trainer's config, where it is another than the plan's.
    """

    plan: Plan
    profile: "Framework | None" = None
    notes: tuple[str, ...] = ()
    file: str | None = None
    options: tuple[str, ...] | None = None
    objective: ObjectiveBlock | None = None
    loss: ObjectiveName | None = None
