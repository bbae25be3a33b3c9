"""How often the 95 % intervals hold the truth: `python tests/benchmarks/coverage.py [--dumps N] [--design NAME]`.

Each design draws dumps of sequences whose true metrics are known; a dump is measured as `analyze` does.  The target is
95 % +- 3 at 200 sequences.  A percentile interval of a skewed metric misses mostly low.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from rlcorr_cli.batch import Batch
from rlcorr_cli.core.observe import Observation, observe
from rlcorr_cli.metrics.diagnostics import intervals
from rlcorr_cli.plans.plan import Plan

Generator = np.random.Generator
Rows = list[np.ndarray]
METRICS = ("kl", "k3_kl", "ppl_ratio")
TRUTH_SEQUENCES = 400_000


@dataclass(frozen=True)
class Design:
    """rows: log-ratios of n sequences.  n: sequences of a dump."""

    name: str
    rows: Callable[[Generator, int], Rows]
    n: int = 200


def normal(rng: Generator, n: int, mean: float, sd: float, row_sd: float = 0.0, longest: int = 60) -> Rows:
    """Normal log-ratios with an effect of each row's own."""
    effects = rng.normal(0, row_sd, n) if row_sd else np.zeros(n)
    return [mean + effect + rng.normal(0, sd, rng.integers(5, longest)) for effect in effects]


def surprise_noise(rng: Generator, n: int) -> Rows:
    """Noise that grows with surprise, as of bf16: most tokens certain, a few not."""
    return [rng.normal(0, 0.06, k) * rng.random(k) ** 3 for k in rng.integers(5, 60, n)]


def outliers(rng: Generator, n: int) -> Rows:
    """A token in 300 at -2."""
    rows = normal(rng, n, 0.0, 0.02)
    return [np.where(rng.random(len(row)) < 0.003, -2.0, row) for row in rows]


def one_token(rng: Generator, n: int, distinct: bool) -> Rows:
    """One token each, continuous or of 12 values."""
    values = rng.normal(-0.02, 0.2, n)
    return list((values if distinct else np.round(values * 10) / 10).clip(-0.6, 0.5)[:, None])


DESIGNS = (
    Design("bf16-like noise", surprise_noise),
    Design("drift, row effect .15, sd .4", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15)),
    Design("iid sd .1", partial(normal, mean=-0.005, sd=0.1)),
    Design("rare outliers (.3 % at -2)", outliers),
    Design("wide, row effect .5", partial(normal, mean=-0.1, sd=0.5, row_sd=0.5)),
    Design("one-token rows, continuous", partial(one_token, distinct=True)),
    Design("one-token rows, 12 values", partial(one_token, distinct=False)),
    Design("2 sequences", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), 2),
    Design("5 sequences", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), 5),
    Design("10 sequences", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), 10),
    Design("20 sequences", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), 20),
    Design("50 sequences", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), 50),
    Design("1,000 sequences", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), 1000),
)


def truth(design: Design, rng: Generator) -> dict[str, float]:
    """The metrics of a very large dump."""
    rows = design.rows(rng, TRUTH_SEQUENCES)
    flat, lengths = np.concatenate(rows), np.array([len(row) for row in rows])
    means = np.add.reduceat(flat, np.cumsum(lengths) - lengths) / lengths
    k3 = float((np.expm1(flat) - flat).mean())
    return {"kl": -float(flat.mean()), "k3_kl": k3, "ppl_ratio": float(np.exp(-means).mean())}


def measured(design: Design, rng: Generator) -> dict[str, tuple[float, float]]:
    """The intervals of one dump; its rollout log-probs are as good as an id for each row."""
    rows = design.rows(rng, design.n)
    flat, offsets = np.concatenate(rows), np.cumsum([0, *map(len, rows)]).astype(np.int64)
    rollout = -3 - rng.random(len(flat))
    zeros = np.zeros(design.n, np.int64)
    batch = Batch(
        offsets=offsets,
        old_logp=rollout + flat,
        rollout_logp=rollout,
        current_logp=None,
        advantages=None,
        n_masked=zeros,
        reward=None,
        group_index=zeros.astype(np.int32),
        group_keys=((None,),),
    )
    return intervals(observe(batch, Observation(plans=(Plan(),)), torch.device("cpu")).replicates["decoupled"])


def coverage(design: Design, n_dumps: int) -> dict[str, float]:
    """Share of the dumps whose interval holds the truth, by metric."""
    rng = np.random.default_rng(7)
    true = truth(design, rng)
    hits = dict.fromkeys(METRICS, 0)
    for _ in range(n_dumps):
        found = measured(design, rng)
        for name in METRICS:
            hits[name] += found[name][0] <= true[name] <= found[name][1]
    return {name: count / n_dumps for name, count in hits.items()}


def main() -> None:
    """Print a row for each design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dumps", type=int, default=400)
    parser.add_argument("--design", choices=[design.name for design in DESIGNS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'':32}" + "".join(f"{name:>12}" for name in METRICS) + f"   +- {196 * math.sqrt(0.0475 / options.dumps):.1f}"
    )
    for design in (one for one in DESIGNS if options.design in (None, one.name)):
        shares = coverage(design, options.dumps)
        print(f"{design.name:32}" + "".join(f"{100 * shares[name]:12.1f}" for name in METRICS), flush=True)


if __name__ == "__main__":
    main()
