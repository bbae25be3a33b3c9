"""What was recorded wrongly, as single tokens show it: the likeliest token's log-prob, and rows that slip.

Both read the rows of the sample, not sums over them.
"""

from collections import Counter

import numpy as np

from rlcorr_cli.causes.curves import is_cut
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.features import Case
from rlcorr_cli.causes.wording import count_noun, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.histogram import Floats

FAR_TOKENS, FAR_LOG_RATIO, FAR_SHARE = 30, 1.0, 0.01
NEARLY_ALL, SLACK = 0.995, 0.02
AT_ENDS = 0.5
LIKELY = 0.25
"""The likeliest token's probability, typically, where another one was sampled; top-k leaves .05 to rare tokens."""

FARTHEST_SLIP = 8
MIN_SLIPPED, MIN_TAIL = 3, 8
HELD = 2.0
"""What |a - b| is held to, so that no single token decides where a row slips."""
MATCHED, LEVEL_BEFORE = 0.7, 0.3
"""A slip explains this share of the differences after it; before it they are this share of those after it at most."""
CANDIDATES, CANDIDATE_SHARE = 256, 0.05
"""Rows in which a share of the tokens is far off are tried, so many of them."""
SLIPPED_SHARE = 0.1


def top1_recorded(case: Case) -> CauseFinding | None:
    """The rollout column has the likeliest token's log-prob where another token was sampled.

    Two tokens of one distribution: the recorded one is always the likelier, and their probabilities sum to 1 at most.
    """
    if case.sample is None or (case.step is not None and is_cut(case.step)):
        return None
    b, a = (column.astype(np.float64) for column in (case.sample.rollout, case.sample.train))
    far = np.abs(a - b) > FAR_LOG_RATIO
    n = int(far.sum())
    if n < max(FAR_TOKENS, FAR_SHARE * len(b)):
        return None
    ends = np.cumsum(case.sample.n_valid)
    if far[ends - 1].sum() + far[ends - case.sample.n_valid].sum() > AT_ENDS * n:
        return None  # something else is wrong with first or last tokens
    p, q = np.exp(b[far]), np.exp(a[far])
    higher, fits = float((p > q).mean()), float((p + q <= 1 + SLACK).mean())
    if min(higher, fits) < NEARLY_ALL or float(np.median(p)) < LIKELY:
        return None
    rollout = case.context.rollout
    return CauseFinding(
        cause="top1_recorded",
        share=case.features.share(float(((a - b)[far] ** 2).sum())),
        token_share=n / len(b),
        parameters={"tokens": n},
        headline=f"{rollout} holds the log-prob of the likeliest token, not of the sampled one",
        evidence=(
            f"On {n:,} tokens the columns differ by more than {FAR_LOG_RATIO:g}. {rollout} is the higher one on "
            f"{percent(higher)} of them, and on {percent(fits)} the two probabilities sum to 1 at most, as those of "
            "two different tokens do.",
        ),
    )


@frozen
class _Slip:
    """A row whose rollout column stands `by` places later from a token on; squares: the sum of l^2 from there."""

    row: int
    token: int
    by: int
    squares: float


def slipped_rows(case: Case) -> CauseFinding | None:
    """Rows whose columns belong together, but for one that slips by some tokens on the way."""
    if case.sample is None:
        return None
    slips = _slips(case)
    share = case.features.share(sum(slip.squares for slip in slips))
    if len(slips) < MIN_SLIPPED or share < SLIPPED_SHARE:
        return None
    by, n_by = Counter(slip.by for slip in slips).most_common(1)[0]
    first = slips[0]
    names = ", ".join(case.sample.name(slip.row) or f"row {slip.row}" for slip in slips[:4])
    rollout, train = case.context.rollout, case.context.train
    direction = "later" if by > 0 else "earlier"
    return CauseFinding(
        cause="slipped_rows",
        share=share,
        token_share=None,
        parameters={"rows": len(slips), "by": by, "token": first.token, "ids": names},
        headline=f"{rollout} slips by {count_noun(abs(by), 'token')} inside {count_noun(len(slips), 'row')} of "
        f"{case.sample.n_rows:,}",
        evidence=(
            f"These rows agree at their start. From some token on (token {first.token} of the first one), {rollout} "
            f"agrees with {train} again {count_noun(abs(by), 'place')} {direction}: {n_by:,} of {len(slips):,} rows. "
            f"Rows: {names}{'' if len(slips) <= 4 else ' and others'}.",
        ),
    )


def _slips(case: Case) -> list[_Slip]:
    assert case.sample is not None
    sample = case.sample
    ends = np.cumsum(sample.n_valid)
    starts = ends - sample.n_valid
    off = np.abs(sample.train.astype(np.float64) - sample.rollout)
    share = np.add.reduceat((off > FAR_LOG_RATIO).astype(np.float64), starts) / sample.n_valid if len(ends) else ends
    rows = np.flatnonzero((share >= CANDIDATE_SHARE) & (sample.n_valid >= 2 * MIN_TAIL))[:CANDIDATES]
    found: list[_Slip] = []
    for row in rows.tolist():
        here = slice(int(starts[row]), int(ends[row]))
        slip = _slip_of(row, sample.rollout[here].astype(np.float64), sample.train[here].astype(np.float64))
        if slip is not None:
            found.append(slip)
    return found


def _slip_of(row: int, b: Floats, a: Floats) -> _Slip | None:
    """The slip that explains most of a row's differences, if it explains nearly all of those after it."""
    n, in_place = len(b), np.minimum(np.abs(a - b), HELD)
    best: tuple[float, int, int] = (0.0, 0, 0)
    for by in (*range(-FARTHEST_SLIP, 0), *range(1, FARTHEST_SLIP + 1)):
        gain = np.zeros(n)
        at = np.arange(max(0, -by), min(n, n - by))
        gain[at] = in_place[at] - np.minimum(np.abs(a[at] - b[at + by]), HELD)
        after = gain[::-1].cumsum()[::-1]
        token = int(after.argmax())
        best = max(best, (float(after[token]), token, by))
    explained, token, by = best
    after = float(in_place[token:].sum())
    if not MIN_TAIL <= token <= n - MIN_TAIL or explained < MATCHED * after:
        return None
    if in_place[:token].mean() > LEVEL_BEFORE * in_place[token:].mean():
        return None
    return _Slip(row, token, by, float(((a - b)[token:] ** 2).sum()))
