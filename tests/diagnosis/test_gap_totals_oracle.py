"""What is added up of a dump equals a slow oracle's sums over its rows."""

from functools import cache

import numpy as np
import pytest
from gap_oracle import rows_of, totals_of
from known_causes import DUMPS, diagnosed

from rlcorr_cli.causes.gap import GapTotals

NAMES = ("tool_retokenised", "stale_mixed_versions", "combo_temp09_mispaired", "combo_topp09_eos0")
"""Masked stretches; levels, advantages and lags; odd rows; tokens of log-prob 0 at the end."""
PLAIN = ("odd", "tokens", "spread", "places", "indexes", "certain", "grids", "rows", "sizes", "turns_surprise")
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
    assert fast.largest_unsure == pytest.approx(oracle.largest_unsure)
    for field in PLAIN:
        np.testing.assert_allclose(getattr(fast, field), getattr(oracle, field), rtol=1e-9, atol=1e-6, err_msg=field)
    for field in GROUPED:
        sums = (getattr(totals, field).sum(axis=1) for totals in (fast, oracle))
        np.testing.assert_allclose(*sums, rtol=1e-9, atol=1e-5, err_msg=field)


@pytest.mark.parametrize("name", NAMES)
def test_levels_equal_the_oracles(name: str) -> None:
    fast, oracle = diagnosed(name).whole.totals.columns, slow(name).columns
    assert set(fast) == set(oracle)
    for column, levels in fast.items():
        assert levels.keys == oracle[column].keys
        for field in ("rows", "tokens", "surprise"):
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
def test_the_worst_rows_are_the_oracles(name: str) -> None:
    fast, oracle = diagnosed(name).whole.totals, slow(name)
    for field in ("odd_rows", "far_rows"):
        names = [[row.sample_id for row in getattr(totals, field).rows] for totals in (fast, oracle)]
        assert names[0] == names[1]
        assert None not in names[0]


def test_the_oracles_sums_add() -> None:
    rows = rows_of(DUMPS / "stale_mixed_versions.parquet")[:12]
    whole, halves = totals_of(rows), totals_of(rows[:5]) + totals_of(rows[5:])
    for field in (*PLAIN, *GROUPED):
        np.testing.assert_allclose(getattr(whole, field), getattr(halves, field), err_msg=field)
