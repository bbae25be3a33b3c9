"""The plan of a run, with all that was chosen beside it."""

from dataclasses import dataclass

from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.plans.plan import Plan


@dataclass(frozen=True, kw_only=True)
class ChosenPlan:
    """The resolved plan.

    profile: the framework's, None for canonical names.  notes: what the user should know.  file: where it was read.
    options: those of the command line that name it, each with its value; None where none do.
    """

    plan: Plan
    profile: Profile | None = None
    notes: tuple[str, ...] = ()
    file: str | None = None
    options: tuple[str, ...] | None = None
