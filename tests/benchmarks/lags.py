"""How often the intervals of what a lag adds hold the truth, and how far off the limit of lag is.

    python tests/benchmarks/lags.py [--seeds 20]

Dumps of 30 steps, 16 prompts a step, 4 responses of 20 to 120 tokens, prompts unequally noisy.  The log-ratio of a
token is normal with mean -v / 2 and variance v, so that its k3 has the mean v / 2; v = noise + lag * by_lag + step *
by_step.  Lags of 0 to 4 are drawn at random, or grow with the steps but for one up or down.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.api import analyze
from rlcorr_cli.results.report import Report

STEPS, PROMPTS, SAMPLES, LAGS = 30, 16, 4, 5
NOISE, BY_LAG, BY_STEP = 4e-4, 2e-3, 1e-4
EFFECTS = {"lag": (BY_LAG, 0.0), "step": (0.0, BY_STEP), "both": (BY_LAG, BY_STEP), "none": (0.0, 0.0)}
"""Effect -> what each lag and each step add to v."""
LIMITED = 6e-3
"""What each lag adds to v where rules are to break."""


def rows(effect: tuple[float, float], *, seed: int, grows: bool, prompts: int = PROMPTS) -> Iterator[dict[str, object]]:
    """The rows of a dump.  grows: whether lags grow with the steps."""
    rng = np.random.default_rng(seed)
    by_lag, by_step = effect
    for step in range(STEPS):
        for prompt in range(prompts):
            loud = rng.lognormal(-0.08, 0.4)
            for sample in range(SAMPLES):
                n, at_random = int(rng.integers(20, 120)), int(rng.integers(LAGS))
                lag = (
                    int(np.clip(step * (LAGS - 1) // STEPS + rng.integers(-1, 2), 0, LAGS - 1)) if grows else at_random
                )
                v = (NOISE + lag * by_lag + step * by_step) * loud
                rollout = -2 - rng.gamma(0.4, 1.2, n)
                yield {
                    "sample_id": f"{step}-{prompt}-{sample}",
                    "group_id": f"{step}-{prompt}",
                    "step": LAGS + step,
                    "policy_version": LAGS + step - lag,
                    "rollout_log_probs": rollout,
                    "old_log_probs": rollout + rng.normal(-v / 2, np.sqrt(v), n),
                }


def report(effect: tuple[float, float], *, seed: int, grows: bool, prompts: int = PROMPTS) -> Report:
    """What `analyze` says of such a dump."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lags.parquet")
        pq.write_table(pa.Table.from_pylist([*rows(effect, seed=seed, grows=grows, prompts=prompts)]), path)
        return analyze(path)


def main() -> None:
    """Print a line for each effect and design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    for grows in (False, True):
        for name, effect in EFFECTS.items():
            held, sure = list[bool](), list[bool]()
            for seed in seeds:
                lags = report(effect, seed=seed, grows=grows).lags
                added = {} if lags is None else {each.lag: each.added for each in lags.lags if each.added}
                held += [each.low <= effect[0] * float(lag) / 2 <= each.high for lag, each in added.items()]
                sure.append(any(each.sure for each in added.values()))
            about = f"effect of {name}, lags {'grow with the steps' if grows else 'at random'}"
            print(f"{about}: {np.mean(held):.0%} of {len(held)} intervals hold; said to add {np.mean(sure):.0%}")
    whole = report((LIMITED, 0.0), seed=1000, grows=False, prompts=20 * PROMPTS).lag_limit
    limits = [report((LIMITED, 0.0), seed=seed, grows=False).lag_limit for seed in seeds]
    told = [limit.safe for limit in limits if limit is not None]
    print(f"limit of lag: {whole and whole.safe} of a dump 20 times as large, {told} of {len(limits)}")


if __name__ == "__main__":
    main()
