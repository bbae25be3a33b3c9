"""Profiles: one peer release's config keys -> Plan, and our totals -> its metric names and numbers.

`PROFILES[name]` is a Profile; `canonical` has no peer and is not one.  A peer's quirks (inverse k1 bounds, empty
sequences counted, clamped spreads) live in its own module and nowhere else.  A new peer is a module and a row.
"""

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.frameworks.slime import SLIME
from rlcorr_cli.frameworks.verl import VERL_0_6, VERL_0_7, VERL_0_8, VERL_0_9
from rlcorr_cli.frameworks.verl_mismatch import VERL_MISMATCH

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (VERL_MISMATCH, VERL_0_6, VERL_0_7, VERL_0_8, VERL_0_9, SLIME)
}

CANONICAL = "canonical"


def profile(name: str) -> Profile | None:
    """The profile of a name; None for canonical."""
    if name == CANONICAL:
        return None
    if name not in PROFILES:
        raise UsageError(f"Unknown profile '{name}'.", f"Try one of: {nearest(name, [CANONICAL, *PROFILES])}.")
    return PROFILES[name]
