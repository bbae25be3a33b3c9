"""Limits that several parts go by: of float64, of tails of weights and of sample sizes; read without NumPy."""

import math
import sys

LARGEST_LOG = math.log(sys.float_info.max)
"""709.78: beyond it float64 has no exponential."""


def exp(exponent: float) -> float:
    """e^exponent, inf beyond LARGEST_LOG, where `math.exp` raises."""
    return math.exp(exponent) if exponent <= LARGEST_LOG else math.inf


def log(value: float) -> float:
    """ln value, -inf of 0 or less, where `math.log` raises."""
    return math.log(value) if value > 0 else -math.inf


LARGEST_SHAPE = 0.7
"""The Pareto shape above which no mean of weights is to be trusted, however many there are (Vehtari et al. 2024).

A sample of n bears less: `Tail.limit`, which every verdict, recommendation and default rule goes by.
"""

SEQUENCE_ESS = 0.3
"""At a smaller effective share of the sequences their weights cost more than they correct (`results/usable.py`)."""

FEWEST_IN_TAIL = 20
"""Weights of a tail that it takes to judge its Pareto shape: of 100 sequences a fifth, the largest.

Of fewer the shape's own noise is as large as what it is held against: harmless weights (e^S of standard deviation 0.1,
200 dumps each) were above `Tail.limit` in 62% of dumps of 25 sequences, in 36% of 32 and in 8% of 64, and in 1% of
128.
"""
