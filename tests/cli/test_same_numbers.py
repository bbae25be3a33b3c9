"""A few of the odd dumps give the same numbers by NumPy and by torch; `tests/benchmarks/same_numbers.py` plays 300."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from same_numbers import Counts, differences, played


@pytest.mark.full
@pytest.mark.parametrize("number", [1, 12, 24, 28])
def test_an_odd_dump_gives_the_same_numbers_by_numpy_and_by_torch(number: int) -> None:
    counts = Counts()
    for line, (by_numpy, by_torch) in played(range(number, number + 1), ["cpu", "torch"], None):
        counts.add(line, by_numpy)
        assert by_numpy["warnings"] == by_torch["warnings"] == []
        assert list(differences((by_numpy, by_torch), counts)) == [], line
    assert counts.commands.total() >= 14
    assert counts.refused < 5
    assert counts.numbers > 3_000


@pytest.mark.parametrize(
    ("other", "n"),
    [
        ({"metrics": {"kl": 0.5 * (1 + 1e-10), "log_ratio_mean": 0.125, "log_ratio_std": 5e-6 * (1 + 1e-8)}}, 0),
        ({"metrics": {"kl": 0.5 * (1 + 1e-8), "log_ratio_mean": 0.125, "log_ratio_std": 5e-6 * (1 + 1e-4)}}, 2),
        ({"metrics": {"kl": None, "log_ratio_mean": 0.125}}, 2),
        ({"metrics": {"kl": float("inf"), "log_ratio_mean": float("nan"), "log_ratio_std": 5e-6}}, 2),
    ],
)
def test_a_difference_is_noticed(other: Any, n: int) -> None:
    whole = {"metrics": {"kl": 0.5, "log_ratio_mean": 0.125, "log_ratio_std": 5e-6}}
    assert len(list(differences((whole, other), Counts()))) == n
