"""The plan of a run, with all that was chosen beside it, and what profiles are called: without their arithmetic."""

from typing import TYPE_CHECKING

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.objective import ObjectiveBlock
from rlcorr_cli.plans.plan import Plan

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework

CANONICAL = "canonical"
"""What a profile is called that is none: rlcorr's own names and numbers."""

RELEASES: dict[str, str] = {
    CANONICAL: "our own arithmetic and names, those of `rlcorr explain metrics`.",
    "verl-mismatch": "config keys and arithmetic of verl in 2025-10, its names under mismatch/.",
    "verl-0.6": "config keys and arithmetic of verl 0.6.x and 0.7.0, its names under rollout_corr/.",
    "verl-0.7": "config keys and arithmetic of verl 0.7.1, its names under rollout_corr/.",
    "verl-0.8": "config keys and arithmetic of verl 0.8.0, its names under rollout_corr/.",
    "verl-0.9": "config keys and arithmetic of verl 0.9.x, its names under rollout_corr/.",
    "slime": "options and arithmetic of slime's mis.py (2026-08), its names mis_....",
}
"""Profile -> what a report under it holds."""


@frozen(kw_only=True)
class ChosenPlan:
    """The resolved plan.

    profile: the framework's, None for canonical names.  notes: what the user should know.  file: where it was read.
    options: those of the command line that name it, each with its value; None where none do.  objective: the block of
    its file, if there is one.
    """

    plan: Plan
    profile: "Framework | None" = None
    notes: tuple[str, ...] = ()
    file: str | None = None
    options: tuple[str, ...] | None = None
    objective: ObjectiveBlock | None = None


def profile_called(name: str) -> "Framework | None":
    """The profile of a name; None for canonical, for which none is loaded."""
    if name == CANONICAL:
        return None
    from rlcorr_cli.frameworks.read import PROFILES

    if name not in PROFILES:
        raise UsageError(f"Unknown profile '{name}'.", f"Try one of: {nearest(name, [CANONICAL, *PROFILES])}.")
    return PROFILES[name]
