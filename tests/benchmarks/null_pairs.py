"""How often `diff` finds a change: where there is none, and where the noise is larger.

    python tests/benchmarks/null_pairs.py [--pairs 400] [--prompts 32 20 12 8 5]

Half of the first pairs hold the same rows, scored twice with noise of one size; half hold other rows of the same kind.
Each dump has 64 to 256 sequences with lengths and noise of their own, some with heavy tails.  Then come the designs of
`designs.py` in which 8 samples share a prompt: pairs of dumps of one design, and pairs whose second has 1.6 times the
noise.  Printed: the share of pairs in which any metric of the family moved, without a least effect.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from designs import CLUSTERED, Design, Rows, magnitudes, shifted

from rlcorr_cli.api import diff
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.metrics.diagnostics import diagnostics
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.results.diffed import LEVEL, BootstrapMetrics, Diff, sections
from rlcorr_cli.totals.view import Numbers

Rng = np.random.Generator
Dump = dict[str, Any]
LOUDER = 1.6
APART = 1 << 40
"""From the first prompt of one dump to that of the other: no prompt is in both."""


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
        scored(draw, first, size, freedom), scored(draw, second, size, freedom), min_effect=0, workers=1, seed=number
    )


def false_alarms(numbers: range) -> list[tuple[bool, bool]]:
    """Of each pair: whether anything moved, and whether any single test would have said so."""
    alarms: list[tuple[bool, bool]] = []
    for number in numbers:
        found = null_pair(number)
        single = any(c.p is not None and c.p < LEVEL for c in found.whole.metrics.values())
        alarms.append((bool(found.moved), single))
    return alarms


def drawn(rows: Rows, first_prompt: int, seed: int) -> BootstrapMetrics:
    """One side of a pair, as `diff` has it."""
    seen = observe(rows.batch(first_prompt), Observation(plans=(Plan(),), seed=seed), CPU)
    return BootstrapMetrics(diagnostics(Numbers.of_mode(seen.totals, "decoupled", 0)), seen.replicates["decoupled"])


def moved(first: Design, second: Design, prompts: int, n_pairs: int) -> float:
    """The share of pairs, in percent, in which a metric of the family moved."""
    rng, found = np.random.default_rng(13), 0
    for seed in range(n_pairs):
        a, b = drawn(first.rows(rng, prompts), 0, seed), drawn(second.rows(rng, prompts), APART, seed)
        ((whole,),) = sections([[({}, a, b)]], min_effect=0.0, everything=False)
        found += any(change.moved for change in whole.metrics.values())
    return 100 * found / n_pairs


LOUDER_ROWS = {
    CLUSTERED[0].name: partial(shifted, spread=0.0, scale=LOUDER),
    CLUSTERED[1].name: partial(magnitudes, spread=0.25, scale=LOUDER),
    CLUSTERED[2].name: partial(magnitudes, spread=0.5, scale=LOUDER),
}
"""Design -> the same with more noise."""


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--prompts", type=int, nargs="*", default=[32, 20, 12, 8, 5])
    options = parser.parse_args()
    alarms = false_alarms(range(options.pairs))
    for name, some in (("other rows", alarms[::2]), ("the same rows", alarms[1::2]), ("all", alarms)):
        any_moved, single = (sum(column) / len(some) for column in zip(*some, strict=True))
        print(f"{name}: {100 * any_moved:.1f}% of {len(some)} null pairs; {100 * single:.1f}% without Holm", flush=True)
    print(f"\n{'prompts':44}" + "".join(f"{n:>8}" for n in options.prompts))
    for design in CLUSTERED:
        shares = [moved(design, design, n, options.pairs) for n in options.prompts]
        print(f"{design.name:44}" + "".join(f"{share:8.1f}" for share in shares), flush=True)
        louder = LOUDER_ROWS.get(design.name)
        if louder is not None:
            shares = [moved(design, Design("louder", louder), n, options.pairs) for n in options.prompts]
            print(f"{f'  noise x {LOUDER:g} found':44}" + "".join(f"{share:8.1f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
