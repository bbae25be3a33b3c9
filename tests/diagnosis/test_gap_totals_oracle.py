"""What is added up of a dump equals a slow oracle's sums over its rows."""

from functools import cache

import numpy as np
import pytest
from gap_oracle import grid_of, odd_and_far, rows_of, sample_of, totals_of
from known_causes import DUMPS, diagnosed

from rlcorr_cli.causes.gap import GapTotals
from rlcorr_cli.causes.gap_sums import RowGaps, gap_totals
from rlcorr_cli.causes.weights import grid_sums

NAMES = ("tool_retokenised", "stale_mixed_versions", "combo_temp09_mispaired", "combo_topp09_eos0")
"""Masked stretches; levels, advantages and lags; odd rows; tokens of log-prob 0 at the end."""
PLAIN = ("odd", "tokens", "spread", "places", "indexes", "rows", "sizes", "turns_surprise")
GROUPED = ("turns", "surprise_gap", "moments", "curves", "lines")
"""Whose second axis is the jackknife's groups, which the oracle deals out by another hash."""


@cache
def slow(name: str) -> GapTotals:
    """The oracle's."""
    return totals_of(rows_of(DUMPS / f"{name}.parquet"))


@pytest.mark.parametrize("name", NAMES)
def test_sums_equal_the_oracles(name: str) -> None:
    fast, oracle = diagnosed(name).whole.totals, slow(name)
    assert (fast.n_rows, fast.n_odd) == (oracle.n_rows, oracle.n_odd)
    # Where no token has a log-prob of 0, none is held against those that have.
    certain = oracle.certain * oracle.certain[0].any()
    np.testing.assert_array_equal(fast.certain, certain)
    assert fast.largest_unsure == pytest.approx(oracle.largest_unsure if certain.any() else -np.inf)
    for field in PLAIN:
        np.testing.assert_allclose(getattr(fast, field), getattr(oracle, field), rtol=1e-9, atol=1e-6, err_msg=field)
    for field in GROUPED:
        sums = (getattr(totals, field).sum(axis=1) for totals in (fast, oracle))
        np.testing.assert_allclose(*sums, rtol=1e-9, atol=1e-5, err_msg=field)


@pytest.mark.parametrize("name", NAMES)
def test_grids_equal_the_oracles(name: str) -> None:
    sample = sample_of(rows_of(DUMPS / f"{name}.parquet"))
    for column in (sample.rollout, sample.train):
        stored = column.astype(np.float32)
        np.testing.assert_allclose(grid_sums(stored), grid_of(stored), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_levels_equal_the_oracles(name: str) -> None:
    fast, oracle = diagnosed(name).whole.totals.columns, slow(name).columns
    assert set(fast) == set(oracle)
    for column, levels in fast.items():
        assert levels.keys == oracle[column].keys
        for field in ("rows", "surprise"):
            values = (getattr(each, field) for each in (levels, oracle[column]))
            np.testing.assert_allclose(*values, rtol=1e-9, atol=1e-6, err_msg=f"{column} {field}")


@pytest.mark.parametrize("name", NAMES)
def test_sums_by_token_equal_the_oracles(name: str) -> None:
    fast, oracle = diagnosed(name).whole.totals.vocabulary, slow(name).vocabulary
    assert fast is not None
    assert oracle is not None
    np.testing.assert_allclose(fast.repeats, oracle.repeats, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fast.spread, oracle.spread, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fast.by_id.sum(axis=0), oracle.by_id.sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_what_makes_rows_the_worst_is_the_oracles(name: str) -> None:
    rows = rows_of(DUMPS / f"{name}.parquet")
    fast = gap_totals(sample_of(rows))
    odd, far = np.array([odd_and_far(row) for row in rows]).T
    np.testing.assert_allclose(fast.odd, odd, rtol=1e-9)
    np.testing.assert_allclose(fast.far, far, rtol=1e-9)


def test_turns_are_known_as_rows_of_their_own_would_be() -> None:
    sample = sample_of(rows_of(DUMPS / "tool_retokenised.parquet"))
    turns, rows = gap_totals(sample).turns, gap_totals(sample.by_turn)
    assert len(turns.far) > sample.n_rows
    for field in RowGaps.__annotations__:
        values = (getattr(each, field) for each in (turns, rows))
        np.testing.assert_allclose(*values, rtol=1e-9, err_msg=field)


def test_the_oracles_sums_add() -> None:
    rows = rows_of(DUMPS / "stale_mixed_versions.parquet")[:12]
    whole, halves = totals_of(rows), totals_of(rows[:5]) + totals_of(rows[5:])
    for field in (*PLAIN, *GROUPED):
        np.testing.assert_allclose(getattr(whole, field), getattr(halves, field), err_msg=field)
