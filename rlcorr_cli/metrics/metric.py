"""A diagnostic: its definition, and how to read it from totals.

Formulas are Python on `Numbers`, so the same row serves a whole dump, a group, what a plan keeps, and, for
intervals, all bootstrap replicates at once.  NumPy is imported where formulas run, so that `explain` and `--help` can
read the tables without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcorr_cli.metrics.definition import Definition
from rlcorr_cli.totals.families import variance

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers


@dataclass(frozen=True, kw_only=True)
class Metric(Definition):
    """A definition with its computation.

    value: of totals.  resampled: whether the bootstrap draws it, which takes that it is made of sums alone.
    has_interval: whether, if it is drawn, its interval holds the truth 90 to 98 times in 100 from 20 prompts on, in the
    designs of prompts of tests/benchmarks/coverage.py.
    """

    value: Callable[["Numbers"], Any]
    resampled: bool = True
    has_interval: bool = True


def std(numbers: "Numbers", first: str, second: str) -> Any:
    """Population standard deviation over tokens from a sum and a sum of squares."""
    return variance(numbers.per_token(first), numbers.per_token(second)) ** 0.5
