"""Shares of causes beside each other, which add: each cause takes its part of what those before it leave.

A rule gives a cause the share of the gap that it would explain alone, and two such shares overlap where the causes sit
on the same tokens.  So the causes are taken in one order, and each in turn explains the same fraction of what is left
of its tokens' gap as it explained of all of it.  What sits on other tokens takes nothing away.  A cause that claims
all that its tokens differ by then has what is left at most.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.features import Case
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.totals.gap import BODY, ODD, PARTS, TOKEN_SUMS

ROWS_THAT_BELONG = tuple(part for part in PARTS if part != PARTS[ODD])
SITS_ON = {
    "grid": PARTS,
    "slipped_rows": PARTS,
    "mispaired_rows": (PARTS[ODD],),
    "first_token": ("first",),
    "last_token": ("last",),
    "mask_boundary": ("gap", "after_gap"),
    "column": ROWS_THAT_BELONG,
    "some_rows": ROWS_THAT_BELONG,
    **dict.fromkeys(("position_onset", "position_grows", "position_decays"), (PARTS[BODY],)),
}
"""Cause -> the parts of the tokens that its share is of; all others are of the body, as Features take it."""
AFTER_CURVES = (
    ("repetition_penalty",),
    ("stale_policy",),
    ("some_rows", "position_grows", "position_decays", "heavy_tail"),
    ("drift", "other_weights"),
)
"""A penalty is measured at equal surprise, so on what a curve leaves; then what says more comes before what says less,
and of equals the larger."""
CLAIM_ALL = ("stale_policy", "drift", "other_weights")
"""What claims the whole gap of its tokens, and so may have less where something else is known to sit on them."""


def side_by_side(case: Case, causes: Iterable[CauseFinding]) -> list[CauseFinding]:
    """The causes with shares that add to 1 at most, in the order in which they were taken."""
    gap = case.totals.tokens[:, :, TOKEN_SUMS.index("l2")].sum(axis=1)
    whole = {part: case.features.share(float(of_part)) for part, of_part in zip(PARTS, gap, strict=True)}
    body = (PARTS[ODD], PARTS[BODY]) if case.features.odd_belong else (PARTS[BODY],)
    left, taken = dict(whole), list[CauseFinding]()
    for cause in sorted(causes, key=lambda cause: (_turn(cause), -cause.share)):
        parts: Sequence[str] = SITS_ON.get(cause.cause, body)
        fraction = min(1.0, ratio(cause.share, sum(whole[part] for part in parts)))
        is_rest = cause.cause in CLAIM_ALL and any(left[part] < whole[part] for part in parts)
        share = fraction * sum(left[part] for part in parts)
        for part in parts:
            left[part] *= 1 - fraction
        interval = cause.share_interval
        if interval is not None:
            times = ratio(share, cause.share)
            interval = (interval[0] * times, interval[1] * times)
        bound = "at_most" if is_rest else cause.bound
        taken.append(replace(cause, share=share, bound=bound, share_interval=interval))
    return taken


def _turn(cause: CauseFinding) -> int:
    return next((i for i, names in enumerate(AFTER_CURVES, start=1) if cause.cause in names), 0)
