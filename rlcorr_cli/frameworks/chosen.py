"""The plan of a run, with all that was chosen beside it, and which framework's profile a name means."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plans.plan import Plan

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.profile import Profile

CANONICAL = "canonical"
"""What a profile is called that is none: rlcorr's own names and numbers."""


@dataclass(frozen=True, kw_only=True)
class ChosenPlan:
    """The resolved plan.

    profile: the framework's, None for canonical names.  notes: what the user should know.  file: where it was read.
    options: those of the command line that name it, each with its value; None where none do.
    """

    plan: Plan
    profile: "Profile | None" = None
    notes: tuple[str, ...] = ()
    file: str | None = None
    options: tuple[str, ...] | None = None


def profile_called(name: str) -> "Profile | None":
    """The profile of a name; None for canonical, for which none is loaded."""
    if name == CANONICAL:
        return None
    from rlcorr_cli.frameworks.profiles import PROFILES

    if name not in PROFILES:
        raise UsageError(f"Unknown profile '{name}'.", f"Try one of: {nearest(name, [CANONICAL, *PROFILES])}.")
    return PROFILES[name]
