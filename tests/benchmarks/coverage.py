"""How often the 95% intervals hold the truth, and whether their ends depend on the seed:

    python tests/benchmarks/coverage.py [--dumps N] [--design WORD]
    python tests/benchmarks/coverage.py --seeds 8 --dumps 40 [--design WORD]

Each design (`designs.py`) draws dumps whose true metrics are known from a very large one; a dump is measured as
`analyze` measures it, or, with `--compare`, as `compare` does under some plans.  Printed: the share of dumps whose
interval holds the truth, in percent, of every metric that has one, and in a last line which miss 90 to 98% at 20
clusters or more: such a metric is to have no interval.  With `--seeds`: by how much the distance from the value to the
upper end varies over the seeds of one dump, largest by smallest, as the median and the worst of the dumps.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from designs import CLUSTERED, HARD, INDEPENDENT, Design, Generator

from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.observe import Observation, Observed, observe
from rlcorr_cli.metrics.comparison import compared_intervals, compared_values
from rlcorr_cli.metrics.diagnostics import diagnostics, metric_intervals
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.totals.comparison import COMPARISON, ComparedTotals
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import Numbers

Values = Mapping[str, float | None]
TRUTH_CLUSTERS, AT_ONCE = 120_000, 4_000
COMPARED = ("token_is", "seq_is", "geo_rs", "seq_is_rs")
LEAST, MOST, ENOUGH, ROUNDING = 90.0, 98.0, 20, 1e-9


def observed(design: Design, rng: Generator, n: int, observation: Observation, *, by_row: bool = False) -> Observed:
    """One dump of n clusters.  by_row: with every row drawn by itself."""
    batch = design.rows(rng, n).batch()
    return observe(replace(batch, cluster_keys=None) if by_row else batch, observation, CPU)


def values(whole: Totals, plans: tuple[Plan, ...]) -> dict[str, float | None]:
    """The metrics of a dump, or the columns of plans."""
    if not plans:
        return dict(diagnostics(Numbers.of_mode(whole, "decoupled", 0)))
    return {
        f"{plan.name} {name}": value
        for plan in plans
        for name, value in compared_values(ComparedTotals.of(whole, plan, 0)).items()
    }


def ends(observed: Observed, plans: tuple[Plan, ...]) -> dict[str, tuple[float, float]]:
    """The intervals of the same."""
    drawn, whole = observed.replicates["decoupled"], observed.totals
    if not plans:
        return metric_intervals(values(whole, plans), drawn)
    return {
        f"{plan.name} {name}": interval
        for plan in plans
        for name, interval in compared_intervals(
            compared_values(ComparedTotals.of(whole, plan, 0)), observed.replicates[COMPARISON], drawn, plan
        ).items()
    }


def truth(design: Design, plans: tuple[Plan, ...], n_clusters: int = TRUTH_CLUSTERS) -> dict[str, float | None]:
    """The metrics of a very large dump."""
    rng, without = np.random.default_rng(11), Observation(plans=plans or (Plan(),), compares=bool(plans), seed=None)
    parts = (observed(design, rng, AT_ONCE, without).totals for _ in range(n_clusters // AT_ONCE))
    return values(reduce(add, parts), plans)


def coverage(
    design: Design, n: int, n_dumps: int, *, plans: tuple[Plan, ...], true: Values, by_row: bool = False
) -> dict[str, float]:
    """The dumps of n clusters whose interval holds the truth, in percent of those that have one, by metric."""
    rng, hits, seen = np.random.default_rng(7), Counter[str](), Counter[str]()
    for number in range(n_dumps):
        drawn = Observation(plans=plans or (Plan(),), compares=bool(plans), seed=number)
        for name, (low, high) in ends(observed(design, rng, n, drawn, by_row=by_row), plans).items():
            value = true[name]
            assert value is not None
            # An end that lies on the truth but for rounding is no miss.
            hits[name] += low - ROUNDING * abs(value) <= value <= high + ROUNDING * abs(value)
            seen[name] += 1
    return {name: 100 * hits[name] / count for name, count in seen.items()}


def agreement(design: Design, n: int, n_dumps: int, n_seeds: int) -> dict[str, tuple[float, float]]:
    """Largest by smallest distance from the value to the upper end over the seeds of a dump, the median and the worst
    of the dumps, by metric."""
    rng, ratios = np.random.default_rng(5), defaultdict[str, list[float]](list)
    for _ in range(n_dumps):
        batch = design.rows(rng, n).batch()
        seeds = [observe(batch, Observation(plans=(Plan(),), seed=seed), CPU) for seed in range(n_seeds)]
        found, value = [ends(seen, ()) for seen in seeds], values(seeds[0].totals, ())
        for name in set[str].intersection(*map(set, found)):
            reach = [of_seed[name][1] - (value[name] or 0.0) for of_seed in found]
            ratios[name].append(max(reach) / min(reach))
    return {name: (float(np.median(of_dumps)), max(of_dumps)) for name, of_dumps in sorted(ratios.items())}


def print_agreement(designs: list[Design], n_dumps: int, n_seeds: int) -> None:
    """A row for each metric, the median and the worst for each number of clusters."""
    for design in designs:
        print(f"\n{design.name:48}" + "".join(f"{n:>12}" for n in design.sizes))
        of_sizes = [agreement(design, n, n_dumps, n_seeds) for n in design.sizes]
        for name in dict.fromkeys(name for of_size in of_sizes for name in of_size):
            cells = (of_size.get(name, (math.nan, math.nan)) for of_size in of_sizes)
            print(f"  {name:46}" + "".join(f"{median:7.2f}{worst:5.2f}" for median, worst in cells), flush=True)


def main() -> None:
    """Print a table for each design: a row for each metric, a column for each number of clusters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=int, default=1000)
    parser.add_argument("--design", default="", help="designs whose name holds this")
    parser.add_argument("--sizes", type=int, nargs="*", help="numbers of clusters, in place of the designs' own")
    parser.add_argument("--compare", action="store_true", help="measure the columns of compare")
    parser.add_argument("--rows", action="store_true", help="draw every row by itself, as --cluster-by none does")
    parser.add_argument("--seeds", type=int, default=0, help="compare the ends of one dump over so many seeds")
    options = parser.parse_args()
    designs = [design for design in (*CLUSTERED, *HARD, *INDEPENDENT) if options.design in design.name]
    if options.sizes:
        designs = [replace(design, sizes=tuple(options.sizes)) for design in designs]
    if options.seeds:
        print_agreement(designs, options.dumps, options.seeds)
        return
    plans = tuple(preset(name).plan for name in COMPARED) if options.compare else ()
    missing: dict[str, list[str]] = {}
    print(f"{options.dumps} dumps each: +- {196 * math.sqrt(0.0475 / options.dumps):.1f}")
    for design in designs:
        sizes = design.sizes
        true = truth(design, plans)
        shares = {n: coverage(design, n, options.dumps, plans=plans, true=true, by_row=options.rows) for n in sizes}
        print(f"\n{design.name:44}" + "".join(f"{n:>8}" for n in sizes))
        for name in dict.fromkeys(name for of_size in shares.values() for name in of_size):
            print(f"  {name:42}" + "".join(f"{shares[n].get(name, math.nan):8.1f}" for n in sizes), flush=True)
            for n in sizes:
                share = shares[n].get(name)
                if n >= ENOUGH and share is not None and not LEAST <= share <= MOST:
                    missing.setdefault(name, []).append(f"{share:.1f} of {n} ({design.name})")
    print("\nOutside 90 to 98 at 20 clusters or more:", "none" if not missing else "")
    for name, places in missing.items():
        print(f"  {name}: {'; '.join(places)}")


if __name__ == "__main__":
    main()
