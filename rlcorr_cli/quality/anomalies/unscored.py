"""Whether tokens count that no policy scored: padding, prompts, tool output.

A single exact 0.0 is no sign of it: probability 1 rounds to 0, on 14 to 22 % of real tokens, and up to eight of them in
a row in a thousand.  So only a run of N_RUN counts, and one that the other column contradicts.
"""

from typing import TYPE_CHECKING

from rlcorr_cli.quality.anomalies.sample import Pairs, Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

N_RUN = 8
PADDED_ROWS = 0.1
PROMPT_ROWS = 0.5

UNSURE, UNSURE_SHARE = -0.05, 2
SURPRISED, SURPRISED_SHARE = -1.0, 8
"""A run is contradicted where one in UNSURE_SHARE of its tokens lies below UNSURE in the other column, and one in
SURPRISED_SHARE below SURPRISED.  Top-p gives exact zeros, too, but only where the raw log-prob is above log p; a stale
policy is surprised now and then, but not on half of what was certain."""


def unmasked_padding(sample: Sample) -> str | None:
    """All rows are of one length, and PADDED_ROWS of them (two or more) start or end with N_RUN values of padding.

    Padding is one value in both columns and in all such rows, which hold other tokens, too.  Where such runs are as
    common inside rows, they are no padding: a policy that repeats itself is sure of it in both columns.
    """
    import numpy as np

    pairs, lengths = sample.pairs, np.diff(sample.offsets)
    if len(lengths) < 2 or lengths.min() != lengths.max() or not pairs.n:
        return None
    for ends in (True, False):
        pad, rows, inside, mean = _padded(pairs, ends)
        if rows >= max(2, PADDED_ROWS * len(lengths)) and 2 * inside <= rows:
            where = "end" if ends else "start"
            return (
                f"all {len(lengths):,} rows have {lengths[0]:,} tokens, and {rows:,} of them {where} with {pad:g} in "
                f"{sample.columns[0]} and {sample.columns[1]} alike, {mean:.0f} tokens on average"
            )
    return None


def _padded(pairs: Pairs, ends: bool) -> tuple[float, int, int, float]:
    """The commonest value that rows end (start) with in both columns; rows with a long run of it there, runs of it
    inside rows, and the mean length of the former."""
    import numpy as np

    filled = np.diff(pairs.offsets) > 0
    at = (pairs.offsets[1:] - 1 if ends else pairs.offsets[:-1])[filled]
    values, counts = np.unique(pairs.rollout[at][pairs.rollout[at] == pairs.train[at]], return_counts=True)
    if not len(values):
        return 0.0, 0, 0, 0.0
    pad = float(values[counts.argmax()])
    start, end = _long(pairs, (pairs.rollout == pad) & (pairs.train == pad))
    starts, stops = pairs.borders[start], pairs.borders[end]
    outer = stops & ~starts if ends else starts & ~stops
    inside = int((~starts & ~stops).sum())
    return pad, int(outer.sum()), inside, float((end - start)[outer].mean()) if outer.any() else 0.0


def unmasked_prompt(sample: Sample) -> str | None:
    """PROMPT_ROWS of the rows start with N_RUN zeros or more: in the rollout column, which the other contradicts, or in
    both columns, where such runs are less than half as common inside rows."""
    return _prompt_of_one_column(sample) or _prompt_of_both(sample)


def _prompt_of_both(sample: Sample) -> str | None:
    import numpy as np

    n_rows = int(np.count_nonzero(np.diff(sample.pairs.offsets)))
    if not n_rows:
        return None
    pad, rows, inside, mean = _padded(sample.pairs, ends=False)
    if pad or rows < max(2, PROMPT_ROWS * n_rows) or 2 * inside > rows or unmasked_padding(sample):
        return None
    rollout, train = sample.columns
    return f"{rows:,} of {n_rows:,} rows start with 0.0 in {rollout} and {train} alike, {mean:.0f} tokens on average"


def _prompt_of_one_column(sample: Sample) -> str | None:
    import numpy as np

    pairs = sample.pairs
    start, end = _contradicted(pairs, pairs.rollout, pairs.train)
    first = pairs.borders[start]
    start, end = start[first], end[first]
    n_rows = int(np.count_nonzero(np.diff(pairs.offsets)))
    if not len(start) or len(start) < PROMPT_ROWS * n_rows:
        return None
    rollout, train = sample.columns
    return (
        f"{len(start):,} of {n_rows:,} rows start with {rollout} 0.0, {(end - start).mean():.0f} tokens on average, "
        f"where {train} has a mean of {_mean_over(pairs.train, start, end):.2f}"
    )


def unscored_zeros(sample: Sample) -> str | None:
    """Runs of N_RUN zeros or more in one column, which the other contradicts; not those of unmasked_prompt."""
    pairs = sample.pairs
    prompts = _prompt_of_one_column(sample) is not None
    for k, (zeros, other) in enumerate(((pairs.rollout, pairs.train), (pairs.train, pairs.rollout))):
        start, end = _contradicted(pairs, zeros, other)
        if k == 0 and prompts:
            later = ~pairs.borders[start]
            start, end = start[later], end[later]
        if len(start):
            n = int((end - start).sum())
            return (
                f"{sample.columns[k]} is 0.0 on {len(start):,} stretches of {N_RUN} tokens or more, {n:,} of "
                f"{pairs.n:,} tokens, where {sample.columns[1 - k]} has a mean of {_mean_over(other, start, end):.2f}"
            )
    return None


def _long(pairs: Pairs, hit: "NDArray[np.bool_]") -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    start, end = pairs.runs(hit)
    long = end - start >= N_RUN
    return start[long], end[long]


def _contradicted(
    pairs: Pairs, zeros: "NDArray[np.float64]", other: "NDArray[np.float64]"
) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """Runs of N_RUN exact zeros or more on which the other column is unsure and surprised."""
    start, end = _long(pairs, zeros == 0)
    unsure, surprised = _sums(other < UNSURE, start, end), _sums(other < SURPRISED, start, end)
    is_so = (UNSURE_SHARE * unsure >= end - start) & (SURPRISED_SHARE * surprised >= end - start)
    return start[is_so], end[is_so]


def _sums(
    values: "NDArray[np.float64] | NDArray[np.bool_]", start: "NDArray[np.int64]", end: "NDArray[np.int64]"
) -> "NDArray[np.float64]":
    """The sum over each stretch."""
    import numpy as np

    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return total[end] - total[start]


def _mean_over(values: "NDArray[np.float64]", start: "NDArray[np.int64]", end: "NDArray[np.int64]") -> float:
    return float(_sums(values, start, end).sum() / (end - start).sum())
