"""How often the range of a forecast holds, and how often one is said of runs that do not pass their limit.

    python tests/benchmarks/forecast.py [RUNS]

Runs are those of rises.py, six designs of steps, times a curve that begins between a tenth and six tenths of the run:
exponential, by equal amounts (linear), in 3 to 7 equal stairs of the logarithm (staircase), to a level (saturating),
none (flat), or a spike of a fiftieth of the run in its last quarter.  At the end of what is seen the curve is at 3 to
30 times its beginning, and the limit at 1.5 to 8 times that.  What is forecast is the first step at which the curve
itself, without noise, is at the limit.

The last lines tell how long before the limit a forecast is first said, where the course is asked after every step.
"""

import math
import sys
from collections.abc import Iterator

import numpy as np
from rises import COURSE, Floats, pool, run_of

from rlcorr_cli.results.course import shifted

DESIGNS = COURSE[:6]
KINDS = ("exponential", "linear", "staircase", "saturating", "flat", "spike")
LENGTHS = (20, 40, 100, 400, 1000)
AHEAD = 3
"""How many times as far as it is seen a run goes on."""


def curve(kind: str, n: int, rng: np.random.Generator) -> Floats:
    """How many times as large as at first each step is, of a run that is seen for n steps and goes on."""
    begins, grows = int(rng.uniform(0.1, 0.6) * n), rng.uniform(3, 30)
    t, lasts = np.maximum(np.arange(AHEAD * n) - begins, 0), n - begins
    if kind == "exponential":
        return grows ** (t / lasts)
    if kind == "linear":
        return 1 + (grows - 1) * t / lasts
    if kind == "staircase":
        stair = max(1, lasts // int(rng.integers(3, 8)))
        return grows ** (t // stair * stair / lasts)
    if kind == "saturating":
        return 1 + (grows - 1) * -np.expm1(-t / lasts * rng.uniform(3, 8))
    steps = np.ones(AHEAD * n)
    if kind == "spike":
        at = n - 1 - int(rng.integers(0, n // 4))
        steps[at : at + max(1, n // 50)] = grows
    return steps


def judged(kind: str, n: int, runs: int) -> Iterator[tuple[bool, float]]:
    """Of each run that a forecast is said of, whether its range holds, and how many times as late as early its ends
    are."""
    rng = np.random.default_rng(n)
    for _ in range(runs):
        design, factors = DESIGNS[int(rng.integers(0, len(DESIGNS)))], curve(kind, n, rng)
        k3 = run_of(rng, design, n).times(np.log(factors[:n]))
        limit = float(pool(design).k3.mean() * factors[n - 1] * rng.uniform(1.5, 8))
        found = shifted([*range(n)], k3.k3.tolist(), k3.levels, limit=limit)
        if found is None or found.forecast is None:
            continue
        passed = np.flatnonzero(pool(design).k3.mean() * factors[n:] >= limit)
        steps = 1 + int(passed[0]) if len(passed) else math.inf
        ends = found.forecast.soonest, found.forecast.latest
        # Of a run that is not seen to pass, a range that ends beyond what was simulated may hold.
        holds = ends[0] <= steps <= ends[1] or (steps == math.inf and kind != "saturating" and ends[1] > 2 * n)
        yield holds, ends[1] / max(ends[0], 1)


def lead(n: int, runs: int) -> Iterator[int]:
    """Of each exponential run, how many steps before it passes its limit at the end the first forecast stands, 0 of a
    run without one."""
    rng = np.random.default_rng(n)
    for _ in range(runs):
        design = DESIGNS[int(rng.integers(0, len(DESIGNS)))]
        factors = curve("exponential", n, rng)[:n]
        limit = float(pool(design).k3.mean() * factors[-1])
        steps = run_of(rng, design, n).times(np.log(factors))
        told = (
            at
            for at in range(6, n)
            if (found := shifted([*range(at)], steps.k3[:at].tolist(), steps.levels[:at], limit=limit))
            and found.forecast
        )
        yield n - next(told, n)


def main() -> None:
    """Print a line for each kind of run."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'said of, and holds in':12} " + " ".join(f"{f'{n:,} steps':>22}" for n in LENGTHS))
    for kind in KINDS:
        cells, holds = list[str](), list[bool]()
        for n in LENGTHS:
            some = runs if n < 1000 else runs // 4
            found = [*judged(kind, n, some)]
            holds += [hold for hold, _ in found]
            times = f", {np.median([times for _, times in found]):.1f}x" if found else ""
            held = f", {np.mean([hold for hold, _ in found]):.0%}" if found else ""
            cells.append(f"{f'{len(found) / some:.0%}{held}{times}':>22}")
        print(f"{kind:21} " + " ".join(cells) + (f"   in all {np.mean(holds):.0%}" if holds else ""), flush=True)
    for n in (20, 40, 100):
        ahead = [*lead(n, runs // 4)]
        told = (
            f"told {np.median(ahead):.0f} steps before the limit (median), never in {np.mean(np.equal(ahead, 0)):.0%}"
        )
        print(f"{n} steps, exponential: {told}")


if __name__ == "__main__":
    main()
