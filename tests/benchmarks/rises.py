"""How often a flat run is said to rise or fall, or raises an alarm of `watch`, and how soon a rise is told.

    python tests/benchmarks/rises.py course      # what `analyze` says, 2 minutes
    python tests/benchmarks/rises.py watch       # the alarm of `watch`, 4 minutes
    python tests/benchmarks/rises.py watch 100  # of so many flat runs
    python tests/benchmarks/rises.py scalars    # what `scalars` says of each logged metric, 2 minutes

Of each design 2,000 steps are simulated from tokens; runs draw theirs from these, so that all steps of a flat run are
alike.  Log-ratios are l = -s^2 / 2 + N(0, s), s = 0.1 of a row, times e^N(0, spread) of its prompt; far tokens are at
-3 +- 0.5, beside s = 0.05.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.steps import LEAST_K3, StepLevel
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.results.course import shift_of, shifted
from rlcorr_cli.runs.watch import FIRST, RECENT, doubled

Floats = NDArray[np.float64]
POOL, AT_ONCE = 2_000, 200


@dataclass(frozen=True)
class Design:
    """A step: so many prompts, rows of each and tokens of each row.  heavy: degrees of freedom of Student's t that
    tokens have in the place of normal noise.  saw: the standard deviation of a step's own factor, of which the next
    step has 30%."""

    name: str
    prompts: int
    rows: int
    tokens: int
    spread: float = 0.0
    far: float = 0.0
    heavy: int = 0
    saw: float = 0.0


COURSE = (
    Design("8 prompts x 8 x 60, e^N(0, .5)", 8, 8, 60, 0.5),
    Design("64 x 60, 0.2% far", 64, 1, 60, 0.0, 0.002),
    Design("32 x 40, 0.2% far", 32, 1, 40, 0.0, 0.002),
    Design("256 x 60, 0.05% far", 256, 1, 60, 0.0, 0.0005),
    Design("8 x 100, e^N(0, 1)", 8, 1, 100, 1.0),
    Design("64 x 60, independent", 64, 1, 60),
    Design("8 x 100, 0.2% far", 8, 1, 100, 0.0, 0.002),
    Design("64 x 60, 0.01% far", 64, 1, 60, 0.0, 0.0001),
    Design("5 x 8 x 30, e^N(0, 1)", 5, 8, 30, 1.0),
    Design("16 x 8 x 30, Student's t of 3", 16, 8, 30, 0.25, heavy=3),
    Design("8 x 8 x 60, e^N(0, .5), steps alike by 0.3", 8, 8, 60, 0.5, saw=0.4),
)
UNEQUAL = "8 or 64 prompts x 8 x 60, e^N(0, .5), a step"
WATCH = (
    (Design("5 x 8 x 30, e^N(0, .5)", 5, 8, 30, 0.5), 20),
    (Design("32 x 8 x 20, e^N(0, .5)", 32, 8, 20, 0.5), 3),
    (Design("8 prompts x 8 x 60, e^N(0, .5)", 8, 8, 60, 0.5), 10),
    (Design("8 x 8 x 60, e^N(0, .25), 0.2% far", 8, 8, 60, 0.25, 0.002), 10),
    (Design("64 x 60, 0.01% far", 64, 1, 60, 0.0, 0.0001), 3),
    (Design("8 x 8 x 60, e^N(0, .5), steps alike by 0.3", 8, 8, 60, 0.5, saw=0.4), 10),
)


@dataclass(frozen=True)
class Steps:
    """k3_kl of steps, and the mean of the logarithms of their clusters' with its error: f64[n] each."""

    k3: Floats
    means: Floats
    errors: Floats
    clusters: NDArray[np.int64]

    def at(self, places: NDArray[np.int64]) -> "Steps":
        """Those at some places."""
        return Steps(*(of[places] for of in (self.k3, self.means, self.errors, self.clusters)))

    def times(self, log_factors: Floats) -> "Steps":
        """The same with k3_kl so much larger."""
        return Steps(self.k3 * np.exp(log_factors), self.means + log_factors, self.errors, self.clusters)

    @property
    def levels(self) -> list[StepLevel]:
        """As a report has them."""
        numbers = zip(self.clusters.tolist(), self.means.tolist(), self.errors.tolist(), strict=True)
        return [StepLevel(clusters=n, mean_log=mean, error=error) for n, mean, error in numbers]


def simulated(design: Design, seed: int) -> Iterator[Floats]:
    """The log-ratios of POOL steps of a design, f64[steps, prompts, rows, tokens], AT_ONCE steps at a time."""
    rng = np.random.default_rng(seed)
    for first in range(0, POOL, AT_ONCE):
        shape = min(AT_ONCE, POOL - first), design.prompts, design.rows, design.tokens
        s = (0.05 if design.far else 0.1) * np.exp(rng.normal(0, design.spread, (*shape[:2], 1, 1)))
        noise = rng.standard_t(design.heavy, shape).clip(-30, 30) if design.heavy else rng.standard_normal(shape)
        log_ratios = s * noise - s**2 / 2
        if design.far:
            far = rng.random(shape) < design.far
            log_ratios[far] = rng.normal(-3, 0.5, int(far.sum()))
        yield log_ratios


@cache
def pool(design: Design) -> Steps:
    """Steps of a design, simulated from tokens."""
    clusters = np.concatenate([k3(log_ratios).mean((2, 3)) for log_ratios in simulated(design, seed=49)])
    logs, n = np.log(np.maximum(clusters, LEAST_K3)), np.full(POOL, design.prompts)
    return Steps(clusters.mean(1), logs.mean(1), logs.std(1, ddof=1) / np.sqrt(n), n)


def logged(design: Design) -> dict[str, Floats]:
    """Other metrics of steps of a design, as a trainer logs them: f64[POOL] each."""
    parts = list[dict[str, Floats]]()
    for log_ratios in simulated(design, seed=50):
        tokens, of_rows = (of.reshape(len(of), -1) for of in (log_ratios, np.exp(log_ratios.sum(3))))
        parts.append(
            {
                "kl": -tokens.mean(1),
                "logprob_abs_diff_mean": np.abs(tokens).mean(1),
                "logprob_abs_diff_max": np.abs(tokens).max(1),
                "chi2_token": np.exp(2 * tokens).mean(1) - 1,
                "seq_ess": of_rows.sum(1) ** 2 / (of_rows.shape[1] * (of_rows**2).sum(1)),
                "share beyond 0.3": (np.abs(tokens) > 0.3).mean(1),
                "share beyond 0.5": (np.abs(tokens) > 0.5).mean(1),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def scalars() -> Iterator[str]:
    """Flat runs by design and metric: how many of 300 are said to rise or fall."""
    lengths = (16, 20, 40, 100, 300)
    yield f"{'rises + falls of 300 flat runs':48} {'':22} " + " ".join(f"{n:>8}" for n in lengths)
    total = 0
    for design in COURSE[:-1]:
        for name, values in logged(design).items():
            rng, cells = np.random.default_rng(1), list[str]()
            for n in lengths:
                runs = (shifted(range(n), rng.choice(values, n).tolist()) for _ in range(300))
                factors = [found.factor for found in runs if found is not None]
                cells.append(f"{f'{sum(f > 1 for f in factors)} + {sum(f < 1 for f in factors)}':>8}")
                total += len(factors)
            yield f"  {design.name:46} {name:22} " + " ".join(cells)
    yield f"{total} of {300 * len(lengths) * 7 * len(COURSE[:-1]):,}"


def run_of(rng: np.random.Generator, design: Design | None, n: int) -> Steps:
    """A flat run of n steps; of None, steps of two sizes."""
    if design is None:
        small, large = (pool(Design("", prompts, 8, 60, 0.5)) for prompts in (8, 64))
        pairs = zip(small.__dict__.values(), large.__dict__.values(), strict=True)
        both, is_large = Steps(*(np.concatenate(pair) for pair in pairs)), rng.integers(0, 2, n)
        return both.at(rng.integers(0, POOL, n) + POOL * is_large)
    steps = pool(design).at(rng.integers(0, POOL, n))
    if not design.saw:
        return steps
    own = rng.normal(0, design.saw * np.sqrt(1 - 0.3**2), n)
    for place in range(1, n):
        own[place] += 0.3 * own[place - 1]
    return steps.times(own)


def course() -> Iterator[str]:
    """Flat runs by design, and what is found of runs that rise."""
    lengths = ((3, 500), (5, 500), (10, 500), (20, 500), (100, 300), (1000, 50))
    yield f"{'rises + falls of flat runs':48} " + " ".join(f"{f'{n:,} ({runs:,})':>12}" for n, runs in lengths)
    for with_clusters in (True, False):
        yield "with clusters" if with_clusters else "values alone"
        for design in (*COURSE, None):
            rng, cells = np.random.default_rng(1), list[str]()
            for n, runs in lengths:
                up = down = 0
                for _ in range(runs):
                    steps = run_of(rng, design, n)
                    found = shift_of(range(n), steps.k3.tolist(), steps.levels if with_clusters else [])
                    up += found is not None and found.after > found.before
                    down += found is not None and found.after < found.before
                cells.append(f"{f'{up} + {down}':>12}")
            yield f"  {UNEQUAL if design is None else design.name:46} " + " ".join(cells)
    large = Design("32 x 8 x 60, e^N(0, .5)", 32, 8, 60, 0.5)
    cases = (
        ("tenfold over the last 10 of 40, 32 prompts", large, 40, 30, 10.0, False),
        ("tenfold over the last 10 of 40, 8 prompts", COURSE[0], 40, 30, 10.0, False),
        ("threefold at once, the last 20 of 40, 32 prompts", large, 40, 20, 3.0, True),
        ("threefold at once, the last 20 of 40, 8 prompts", COURSE[0], 40, 20, 3.0, True),
        ("20-fold over 5 steps, 32 prompts", large, 5, 1, 20.0, False),
        ("20-fold over 5 steps, 8 prompts", COURSE[0], 5, 1, 20.0, False),
    )
    yield f"{'of 300 runs':50} {'named':>12} {'since when within 2 steps':>26} {'as a jump':>10}"
    for with_clusters in (True, False):
        yield "with clusters" if with_clusters else "values alone"
        for name, design, n, since, factor, is_jump in cases:
            rng, found = np.random.default_rng(2), list[tuple[bool, bool]]()
            grown = np.minimum(1.0, np.maximum(0.0, np.arange(n) - since + 1) / (1 if is_jump else n - since))
            for _ in range(300):
                steps = run_of(rng, design, n).times(np.log(factor) * grown)
                shift = shift_of(range(n), steps.k3.tolist(), steps.levels if with_clusters else [])
                if shift is not None and shift.after > shift.before:
                    found.append((abs(shift.since - since) <= 2, shift.shape == "jump"))
            near, jumps = (100 * np.mean(of) if found else 0 for of in zip(*found, strict=True)) if found else (0, 0)
            yield f"  {name:48} {f'{len(found) / 3:.1f}%':>12} {f'{near:.0f}% of these':>26} {f'{jumps:.0f}%':>10}"


def alarm_at(steps: Steps, first: int) -> int | None:
    """The first step from `first` on at which `watch` raises its alarm."""
    known = list(zip(range(len(steps.k3)), steps.k3.tolist(), steps.levels, strict=True))
    for n in range(first + 1, len(known) + 1):
        if any(doubled(known[: min(n, FIRST)], known[max(0, n - RECENT) : n], n)):
            return n - 1
    return None


def watch(runs: int) -> Iterator[str]:
    """Flat runs of 400 steps that raise an alarm; how many of 200 doublings, after so many steps, are found in time;
    and the median step at which a growth from step 40 on, by a factor of e in 100 steps, is found."""
    afters = 10, 40, 100, 200
    heads = " ".join(f"{f'after {after}':>9}" for after in afters)
    yield f"{'':44} {'flat':>8}  {'within':>6} {heads}  {'growth':>6}"
    for design, within in WATCH:
        rng, found = np.random.default_rng(3), list[str]()
        n_alarms = sum(alarm_at(run_of(rng, design, 400), 0) is not None for _ in range(runs))
        for after in afters:
            n = after + within
            doubling = np.log(2) * (np.arange(n) >= after)
            in_time = sum(alarm_at(run_of(rng, design, n).times(doubling), after) is not None for _ in range(200))
            found.append(f"{in_time / 2:.0f}%")
        growth = np.maximum(0.0, np.arange(240) - 40) / 100
        slow = [alarm_at(run_of(rng, design, 240).times(growth), 40) or 999 for _ in range(20)]
        in_time = " ".join(f"{share:>9}" for share in found)
        yield f"{design.name:44} {f'{n_alarms}/{runs}':>8}  {within:>6} {in_time}  {np.median(slow):>6.0f}"


if __name__ == "__main__":
    asked = sys.argv[1:]
    modes = {"course": course, "scalars": scalars, "watch": lambda: watch(int(asked[1]) if len(asked) > 1 else 200)}
    for line in modes[asked[0]]():
        print(line, flush=True)
