"""Where each valid token of a batch stands in its row: its part, its place, the run of the mask that it is in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.batch import Surroundings
from rlcorr_cli.totals.gap import PARTS

Index = NDArray[np.int64]
EARLY, AFTER_GAP = 3, 3
"""How many tokens after a row's first are early, and how many after a gap's first stand after the gap."""


@dataclass(frozen=True)
class TokenPlaces:
    """Of the valid tokens, i64[V]: their part, odd rows unknown; their index, from their row's first valid token on,
    masked ones counted; and their turn, how many masked stretches their row has before them."""

    part: Index
    index: Index
    turn: Index


def token_places(around: Surroundings) -> TokenPlaces:
    """Of all valid tokens of a batch."""
    n = int(around.offsets[-1])
    at = np.arange(n) if around.valid is None else np.flatnonzero(around.valid)
    ends = np.searchsorted(at, around.offsets)
    lengths = np.diff(ends)
    firsts = np.repeat(ends[:-1], lengths)  # of each token's row, among the valid ones
    after_gap = np.zeros(len(at), np.bool_)
    after_gap[1:] = np.diff(at) > 1
    place = np.arange(len(at)) - firsts
    after_gap &= place > 0
    gaps = np.cumsum(after_gap)
    part = np.full(len(at), PARTS.index("body"))
    part[(place >= 1) & (place <= EARLY)] = PARTS.index("early")
    for later in range(1, AFTER_GAP + 1):
        part[later:][after_gap[:-later] & (place[later:] >= later)] = PARTS.index("after_gap")
    part[after_gap] = PARTS.index("gap")
    filled = lengths > 0
    part[ends[1:][filled] - 1] = PARTS.index("last")
    part[ends[:-1][filled]] = PARTS.index("first")
    return TokenPlaces(part, at - at[firsts] if len(at) else at, gaps - gaps[firsts] if len(at) else at)
