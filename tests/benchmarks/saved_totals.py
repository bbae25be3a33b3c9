"""What adding saved totals costs: under 30 s and 1 GB for 1,000 files is asked.

    python tests/benchmarks/saved_totals.py [--parts 1000]

Each part is of 64 sequences in one of 100 steps, with pictures and a rejection, as `analyze -o part.rlcorr` writes it;
a fifth of the distinct log-ratios lie so far apart that histograms and tails are of the size that real dumps give.
Printed: megabytes on disk, seconds and peak memory of adding, in two orders, and whether both reports are the same.
"""

import argparse
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from child import cost

N_STEPS = 100
N_SEQUENCES, N_TOKENS = 64, 300


def write_part(number: int, folder: Path) -> None:
    """One part's totals."""
    import numpy as np

    from rlcorr_cli.api import analyze, save

    draw = np.random.default_rng(number)
    rollout = -draw.gamma(0.25, 1.2, (N_SEQUENCES, N_TOKENS))
    batch = {
        "rollout_log_probs": rollout,
        "old_log_probs": np.minimum(rollout + draw.standard_t(3, rollout.shape) * 0.02, 0),
        "response_mask": draw.random(rollout.shape) > 0.02,
        "step": np.full(N_SEQUENCES, number % N_STEPS),
    }
    report = analyze(batch, preset="seq_is_rs", group_by="step", pictures=True, totals=True, workers=1)
    save(report, folder / f"{number:05}.rlcorr")


def main() -> None:
    """Make the parts, add them twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=1000)
    n_parts = parser.parse_args().parts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ProcessPoolExecutor(1) as pool:  # apart, because a child's peak memory starts from its parent's
            list(pool.map(write_part, range(n_parts), [folder] * n_parts))
        parts = sorted(folder.glob("*.rlcorr"))
        size = sum(part.stat().st_size for part in parts) / 1e6
        shuffled = random.Random(0).sample(parts, len(parts))
        command = [Path(sys.executable).parent / "rlcorr", "analyze"]
        costs = [
            cost([*command, *paths, "-o", folder / f"{order}.json"])
            for order, paths in (("sorted", parts), ("shuffled", shuffled))
        ]
        same = (folder / "sorted.json").read_bytes() == (folder / "shuffled.json").read_bytes()
    for taken in costs:
        print(f"{n_parts} parts, {size:.0f} MB: {taken.wall:.1f} s, {taken.cpu:.1f} s of CPU, {taken.peak:.0f} MB")
    print("the same report in both orders" if same else "another report in another order")


if __name__ == "__main__":
    main()
