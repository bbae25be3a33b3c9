"""Limits that several parts go by."""

LARGEST_SHAPE = 0.7
"""The Pareto shape above which no mean of weights is to be trusted, however many there are (Vehtari et al. 2024).

A sample of n bears less: `Tail.limit`, which `compare` goes by, because it names a plan on this dump.  The default rule
on pareto_k_seq goes by this one, so that a threshold in CI does not move with a dump's size.
"""
