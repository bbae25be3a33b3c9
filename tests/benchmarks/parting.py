"""How often `diff` says that rows part earlier in longer prompts, or at block boundaries: where they part anywhere, and
where they do.

    python tests/benchmarks/parting.py [--dumps 2000]

Printed: the share of made dumps in which either is said, by how the rows of a dump part, how many prompts and samples
of each there are, and how likely each token is to be the one.
"""

import argparse
from itertools import product
from typing import Any

import numpy as np

from rlcorr_cli.results.bits import LEVEL, block_size, earlier_in_longer_prompts

KINDS = ("constant", "uniform", "shorter", "by prompt", "together", "first", "round")
SIZES = ((64, 1), (16, 8), (10, 1), (300, 4))


def said(
    seed: int, kind: str, size: tuple[int, int], chance: float, *, trend: float = 0.0, block: int = 0
) -> tuple[bool, int | None]:
    """What is said of one dump.

    trend: by how much the log of the chance grows from the shortest prompt to the longest.  block: rows part at the
    next of its multiples.
    """
    draw, (n_prompts, n_samples) = np.random.default_rng(seed), size
    lengths: Any = draw.integers(5, 2000, n_prompts) if kind != "round" else 64 * draw.integers(1, 30, n_prompts)
    prompts = np.repeat(lengths, n_samples)
    n = len(prompts)
    tokens = np.clip(draw.lognormal(4.5, 0.8, n), 4, 2000).astype(int)
    if kind == "shorter":
        tokens = np.clip(tokens * (prompts / 1000) ** -0.5, 4, 4000).astype(int)
    chances = np.full(n, chance) * np.exp(trend * (np.argsort(np.argsort(prompts)) / n - 0.5))
    if kind == "by prompt":
        chances = np.repeat(draw.gamma(1, chance, n_prompts), n_samples)
    first = draw.geometric(np.clip(chances, 1e-9, 1)) - 1
    if kind == "uniform":
        first = np.where(draw.random(n) < 0.4, draw.integers(0, tokens), tokens)
    if kind == "together":
        first = np.repeat(draw.geometric(chance, n_prompts) - 1, n_samples)
    if kind == "first":
        first = np.where(draw.random(n) < 0.8, 0, first)
    if block:
        first = np.where(draw.random(n) < 0.7, -prompts % block + block * draw.integers(0, 3, n), first)
    parted = first < tokens
    p = earlier_in_longer_prompts(prompts, np.where(parted, first, tokens - 1), parted)
    return p is not None and p < LEVEL, block_size((prompts + first)[parted & (first > 0)])


def main() -> None:
    """Print a line for each design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dumps", type=int, default=2000)
    n_dumps = parser.parse_args().dumps
    for kind, size, chance in product(KINDS, SIZES, (0.001, 0.01, 0.1)):
        of_dumps = [said(seed, kind, size, chance) for seed in range(n_dumps)]
        earlier, blocks = (np.mean([bool(of_dump[i]) for of_dump in of_dumps]) for i in (0, 1))
        print(f"{kind:10} {size[0]:4} x {size[1]} {chance:6} earlier {earlier:.2%}, blocks {blocks:.2%}", flush=True)
    for trend, size in product((1.0, 2.0, 4.0), SIZES):
        found = np.mean([said(seed, "constant", size, 0.01, trend=trend)[0] for seed in range(200)])
        print(f"trend {trend} {size[0]:4} x {size[1]} earlier {found:.1%}")
    for block in (16, 64, 256, 512):
        sizes = [said(seed, "constant", SIZES[0], 0.01, block=block)[1] for seed in range(200)]
        print(
            f"block {block}: found {np.mean([size == block for size in sizes]):.1%}, another size "
            f"{np.mean([size not in (block, None) for size in sizes]):.1%}"
        )


if __name__ == "__main__":
    main()
