"""The fixed numbers inside diagnostics, and the two a user may set."""

import math

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen

CHI2_LIMIT = 20.0
"""chi2_token and chi2_seq clamp the log-ratio (the sum, for a sequence) to +-20, as verl does."""


@frozen
class DiagnosticSettings:
    """extreme_ratio: a token is extreme when |l| > log of this (AReaL: 2).  clip_low, clip_high: PPO's clips (0.2)."""

    extreme_ratio: float = 2.0
    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        if not 1 < self.extreme_ratio < math.inf:
            finite = "" if self.extreme_ratio < math.inf else " and finite"
            what = f"⟦extreme_ratio⟧ must be above 1{finite}, got {self.extreme_ratio:g}."
            raise UsageError(what, "2.0 is the default.")
