"""What pictures are drawn from, binned as it is fast, against the same token by token."""

import numpy as np
import pytest

from rlcorr_cli.measure.arrays import Segments
from rlcorr_cli.measure.correct import correct
from rlcorr_cli.measure.decisions import decide
from rlcorr_cli.measure.pictures import draw
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.bins import POSITION, SURPRISE, BinnedTotals, Octaves

LENGTHS = (1, 2, 3, 40, 1, 7, 5_000)


def tokens() -> Tokens:
    """Sequences of those lengths."""
    draw = np.random.default_rng(5)
    n = sum(LENGTHS)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    rollout, log_ratio = -draw.exponential(1.0, n), draw.normal(0.0, 0.1, n)
    return Tokens(rows=Segments(offsets), rollout_logp=rollout, log_ratio=log_ratio)


def drawn() -> BinnedTotals:
    """Their pictures under no correction."""
    return draw(tokens(), decide(tokens(), correct(tokens(), Plan("disabled"))))


def table(axis: np.ndarray, octaves: Octaves) -> dict[int, list[float]]:
    """By bin of the axis how many log-ratios, and their sum and sum of squares."""
    rows: dict[int, list[float]] = {}
    for place, log_ratio in zip(axis, tokens().log_ratio.tolist(), strict=True):
        bin_ = int(np.clip(np.searchsorted(octaves.edges, place, side="right") - 1, 0, octaves.n - 1))
        row = rows.setdefault(bin_, [0, 0.0, 0.0])
        row[:] = [row[0] + 1, row[1] + log_ratio, row[2] + log_ratio**2]
    return rows


@pytest.mark.parametrize("axis", ["position", "surprise"])
def test_every_token_falls_into_the_bin_of_its_place_and_of_its_surprise(axis: str) -> None:
    positions = np.concatenate([np.arange(1, n + 1) for n in LENGTHS])
    surprise = -tokens().rollout_logp.astype(np.float32)
    expected = table(*((positions, POSITION) if axis == "position" else (surprise, SURPRISE)))
    binned = drawn().spread[axis]
    assert binned.bins.tolist() == sorted(expected)
    for i, name in enumerate((binned.counts, binned.sums["sum"], binned.sums["sum_of_squares"])):
        assert name.tolist() == pytest.approx([expected[bin_][i] for bin_ in sorted(expected)], rel=1e-12)
