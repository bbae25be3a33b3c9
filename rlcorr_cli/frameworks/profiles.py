"""Profiles: one peer release's config keys -> Plan, and our totals -> its metric names and numbers.

`PROFILES[name]` is a Profile; `canonical` has no peer and is not one.  A peer's quirks (inverse k1 bounds, empty
sequences counted, clamped spreads) live in its own module and nowhere else.  A new peer is a module and a row.
"""

from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.frameworks.slime import SLIME
from rlcorr_cli.frameworks.verl import VERL_0_6, VERL_0_7, VERL_0_8, VERL_0_9
from rlcorr_cli.frameworks.verl_mismatch import VERL_MISMATCH

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (VERL_MISMATCH, VERL_0_6, VERL_0_7, VERL_0_8, VERL_0_9, SLIME)
}
