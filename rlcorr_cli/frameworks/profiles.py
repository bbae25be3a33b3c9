"""Profiles by name, of which none is loaded for canonical names."""

from typing import TYPE_CHECKING

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.framework_names import CANONICAL

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework


def profile_called(name: str) -> "Framework | None":
    """The profile of a name; None for canonical, for which none is loaded."""
    if name == CANONICAL:
        return None
    from rlcorr_cli.frameworks.read import PROFILES

    if name not in PROFILES:
        raise UsageError(f"Unknown profile '{name}'.", f"Try one of: {nearest(name, [CANONICAL, *PROFILES])}.")
    return PROFILES[name]
