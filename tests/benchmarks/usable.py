"""How often sequence weights are called usable, and wrongly: `python tests/benchmarks/usable.py [--dumps N]
[--design WORD]`.

A dump is m prompts of k samples, whose log-weights are S ~ N(-v / 2, v); v is (factor sd)^2 in a share of the prompts,
the hard ones, and sd^2 in the others.  So the true effective share of the sequences is 1 / mean e^v.  Of each design:
how many of its dumps were called usable, unsure and not usable, in percent, and how many of those that hold a hard
prompt were called usable.  `lengths`: v of a prompt is also times one of (1 - lengths, 1 + lengths), as where responses
are of other lengths; `together`: the samples of a prompt have one S.

Dumps are made as sums of sequences, resampled and judged as `analyze` judges them, but for its rules.
"""

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from rlcorr_cli.measure.bootstrap import resample
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.results.usable import Answer, usable_weights
from rlcorr_cli.totals.row_keys import mix
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail

DRAWN = 1_000_000
"""Prompts from which the true effective share is taken where lengths differ."""


@dataclass(frozen=True)
class Design:
    """m prompts of k samples; see the module."""

    m: int
    k: int
    sd: float
    share: float = 0.0
    factor: float = 1.0
    lengths: float = 0.0
    together: bool = False

    @property
    def name(self) -> str:
        """'32 x 8, sd 0.5, 5% x4'."""
        hard = f", {100 * self.share:g}% x{self.factor:g}" if self.share else ""
        more = f", lengths {self.lengths:g}" if self.lengths else ", together" if self.together else ""
        return f"{self.m} x {self.k}, sd {self.sd:g}{hard}{more}"

    def prompts(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The standard deviation of n prompts, and which are hard."""
        hard = rng.random(n) < self.share
        lengths = rng.uniform(1 - self.lengths, 1 + self.lengths, n)
        return self.sd * np.where(hard, self.factor, 1.0) * np.sqrt(lengths), hard

    @property
    def true_ess(self) -> float:
        """1 / mean e^v."""
        if not self.lengths:
            easy, hard = self.sd**2, (self.sd * self.factor) ** 2
            return 1 / ((1 - self.share) * math.exp(easy) + self.share * math.exp(hard))
        return float(1 / np.exp(self.prompts(np.random.default_rng(0), DRAWN)[0] ** 2).mean())

    def answer(self, rng: np.random.Generator) -> tuple[Answer, bool]:
        """What is said of one dump, and whether it holds a hard prompt."""
        sds, hard = self.prompts(rng, self.m)
        of_rows = np.repeat(np.arange(self.m), self.k)
        noise = rng.standard_normal(self.m)[of_rows] if self.together else rng.standard_normal(len(of_rows))
        s = sds[of_rows] * noise - sds[of_rows] ** 2 / 2
        sums = {"sequence_log_ratio_sq": s**2, "sequences": np.ones(len(s))}
        drawn = resample(mix(of_rows.astype(np.uint64) + 1), int(rng.integers(1 << 31)), Columns(sums=sums))
        tail = Tail.of([s], WHOLE_SIZE)
        values = {
            "token_ess": 0.999,
            "seq_ess": float(np.exp(s).sum() ** 2 / np.exp(2 * s).sum() / len(s)),
            "pareto_k_seq": tail.pareto_k,
            "pareto_k_seq_se": tail.pareto_k_error,
            "pareto_k_seq_limit": tail.limit,
        }
        return usable_weights(values, len(s), Clusters.of("group_id", drawn)).sequence, bool(hard.any())


DESIGNS = {
    "Reported: a true share below 0.3": (
        Design(256, 1, 1.3),
        Design(32, 8, 1.3),
        Design(32, 8, 0.5, 0.05, 4),
        Design(64, 8, 0.5, 0.05, 4),
        Design(32, 8, 0.6, 0.10, 3),
    ),
    "Others below 0.3": (
        Design(16, 16, 0.31, 0.10, 6),
        Design(32, 1, 0.28, 0.20, 6),
        Design(32, 8, 0.36, 0.03, 6),
        Design(32, 8, 0.55, 0.20, 3),
        Design(64, 1, 0.47, 0.10, 4),
        Design(64, 4, 0.8, 0.20, 2),
        Design(64, 8, 0.36, 0.03, 6),
        Design(128, 8, 0.53, 0.03, 4),
        Design(128, 16, 0.44, 0.03, 5),
        Design(160, 8, 0.53, 0.03, 4),
        Design(160, 8, 0.36, 0.03, 6),
        Design(160, 8, 0.5, 0.05, 4, 0.5),
        Design(160, 16, 0.57, 0.10, 3, 0.5),
        Design(256, 1, 0.5, 0.05, 4),
        Design(256, 4, 0.36, 0.03, 6),
        Design(256, 4, 0.53, 0.03, 4),
        Design(256, 4, 0.41, 0.05, 5, 0.5),
        Design(256, 8, 0.8, 0.20, 2),
        Design(256, 16, 0.55, 0.20, 3),
        Design(1000, 1, 0.53, 0.03, 4),
        Design(1000, 8, 0.36, 0.03, 6),
    ),
    "Just below 0.3": (
        *(Design(m, k, 1.1) for m, k in ((32, 8), (160, 8), (256, 4), (1000, 1), (1000, 8))),
        Design(256, 8, 0.485, 0.05, 4),
        Design(256, 8, 0.585, 0.10, 3),
    ),
    "Usable: 0.45 or more": (
        *(Design(m, 8, sd) for m in (8, 32, 64, 128) for sd in (0.1, 0.2, 0.25, 0.32, 0.5)),
        *(Design(m, k, sd) for m, k in ((160, 8), (256, 4), (1000, 1)) for sd in (0.5, 0.715, 0.9)),
        Design(256, 1, 0.5),
        Design(256, 8, 0.3, 0.05, 4),
        Design(256, 8, 0.4, 0.10, 3),
        Design(256, 8, 0.5, 0.20, 2),
        Design(256, 8, 0.5, lengths=0.5),
        Design(160, 8, 0.5, together=True),
        Design(160, 8, 0.6, together=True),
        Design(256, 8, 0.715, together=True),
    ),
}


def main() -> None:
    """Print a line for each design."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--dumps", type=int, default=400)
    options.add_argument("--design", default="")
    asked = options.parse_args()
    for title, designs in DESIGNS.items():
        print(f"\n{title:38}  true ESS    yes  unsure     no   yes where a prompt is hard")
        for design in designs:
            if asked.design not in design.name:
                continue
            rng = np.random.default_rng(11)
            answers = [design.answer(rng) for _ in range(asked.dumps)]
            counts, n = Counter(answer for answer, _ in answers), asked.dumps / 100
            hard = [answer == "yes" for answer, is_hard in answers if is_hard]
            of_hard = f"{100 * np.mean(hard):6.1f} of {len(hard)}" if hard else "     -"
            numbers = "  ".join(f"{counts[answer] / n:5.1f}" for answer in ("yes", "unsure", "no"))
            print(f"{design.name:38}  {design.true_ess:8.3f}  {numbers}   {of_hard}", flush=True)


if __name__ == "__main__":
    main()
