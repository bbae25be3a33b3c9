"""How often `diff` finds a change where there is none: at most 5 % of null pairs are asked.

    python tests/benchmarks/null_pairs.py [--pairs 400]

Half of the pairs hold the same rows, scored twice with noise of one size; half hold other rows of the same kind.  Each
dump has 64 to 256 sequences with lengths and noise of their own, some with heavy tails.  Printed: the share of pairs in
which any metric of the family moved, without a least effect, of each half and of all, and of single tests without Holm.
"""

import argparse
from typing import Any

import numpy as np

from rlcorr_cli.api import diff
from rlcorr_cli.report.diffed import LEVEL, Diff

Rng = np.random.Generator
Dump = dict[str, Any]


def texts(draw: Rng) -> list[np.ndarray]:
    """The rollout log-probs of some sequences, of very different lengths."""
    lengths = np.clip(draw.lognormal(3.5, 0.7, draw.integers(64, 257)), 4, 400).astype(int)
    return [-draw.gamma(0.25, 1.2, n) for n in lengths]


def scored(draw: Rng, rollouts: list[np.ndarray], size: float, freedom: float) -> Dump:
    """A dump of these sequences, each with noise of its own size around the training log-probs."""
    sizes = size * draw.lognormal(0, 0.5, len(rollouts))
    trained = [
        np.minimum(rollout + draw.standard_t(freedom, len(rollout)) * one, 0)
        for rollout, one in zip(rollouts, sizes, strict=True)
    ]
    return {"rollout_log_probs": [list(row) for row in rollouts], "old_log_probs": [list(row) for row in trained]}


def null_pair(number: int) -> Diff:
    """Two dumps between which nothing differs but chance."""
    draw = np.random.default_rng(number)
    size, freedom = draw.choice([0.01, 0.05, 0.2]), draw.choice([3.0, 10.0])
    first = texts(draw)
    second = first if number % 2 else texts(draw)
    return diff(
        scored(draw, first, size, freedom), scored(draw, second, size, freedom), min_effect=0, threads=1, seed=number
    )


def false_alarms(numbers: range) -> list[tuple[bool, bool]]:
    """Of each pair: whether anything moved, and whether any single test would have said so."""
    alarms: list[tuple[bool, bool]] = []
    for number in numbers:
        found = null_pair(number)
        single = any(c.p is not None and c.p < LEVEL for c in found.whole.metrics.values())
        alarms.append((bool(found.moved), single))
    return alarms


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400)
    n = parser.parse_args().pairs
    alarms = false_alarms(range(n))
    for name, some in (("other rows", alarms[::2]), ("the same rows", alarms[1::2]), ("all", alarms)):
        moved, single = (sum(column) / len(some) for column in zip(*some, strict=True))
        print(f"{name}: {100 * moved:.1f} % of {len(some)} null pairs; {100 * single:.1f} % without Holm")


if __name__ == "__main__":
    main()
