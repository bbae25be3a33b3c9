"""Measure speed and memory, and compare them with the figures to reach.

    python tests/benchmarks/run.py [P1 P2 ...] [--dir DIR] [--markdown]

Without names, all are measured: half an hour on two cores, 2 GB of dumps in DIR, and verl fetched from the package
index for P2.  Dumps and verl stay in DIR for the next run.  A busy machine disturbs what is timed by the clock; the
load is printed.  Exits with 1 when a figure is missed.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import engine_figures
import figures
import lock
from figures import Bench, Figure, NotHere


@dataclass(frozen=True)
class Target:
    """One row: what is measured, what to reach and to stretch for, and how."""

    what: str
    reach: float
    stretch: float
    unit: str
    measure: Callable[[Bench], Figure]
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Whether a value reaches `reach`."""
        return value >= self.reach if self.at_least else value <= self.reach

    def goal(self, value: float) -> str:
        """A bound as text."""
        return f"{'≥' if self.at_least else '≤'} {value:g}{self.unit}"


NET = "net of start-up"
TARGETS = {
    "P1": Target(f"analyze W1 by two workers, {NET} / decode", 1.9, 1.6, "", figures.p1),
    "P1c": Target(f"CPU of analyze W1 by one worker, {NET} / decode", 3.0, 2.3, "", figures.p1c),
    "P2": Target(f"verl 0.9.1's helper on W1 / analyze, {NET}", 2.8, 4.5, "", figures.p2, at_least=True),
    "P3": Target("peak memory W2 / W1", 1.10, 1.02, "", figures.p3),
    "P4": Target("peak memory W1", 280, 220, " MB", figures.p4),
    "P4r": Target("peak memory of a million rows of one token", 400, 300, " MB", figures.rows),
    "P5d": Target(f"CPU of filter W1h, {NET} / copying it", 1.7, 1.4, "", partial(figures.p5, rejected="drop")),
    "P5k": Target(
        f"CPU of filter W1h keeping all, {NET} / copying", 1.9, 1.6, "", partial(figures.p5, rejected="keep")
    ),
    "P5m": Target("filter's peak memory, W1h, keeping all", 550, 400, " MB", figures.p5m),
    "P6": Target(f"CPU of analyze W3 (JSON lines), {NET} / msgspec", 2.0, 1.6, "", figures.p6),
    "P7": Target(f"CPU of compare 20 presets W1 / analyze one, {NET}", 1.5, 1.3, "", figures.p7),
    "P8": Target("slowest of --help, presets, explain kl / import typer", 1.3, 1.1, "", figures.p8),
    "P9": Target(f"CPU of analyze W2 / W1, {NET}", 10.5, 10, "", figures.p9),
    "P10": Target("analyze W2 as 20 files by two on Ray / by two threads", 1.1, 1.0, "", engine_figures.p10),
    "P11": Target("core compute / copy bandwidth of the GPU", 30, 60, " %", figures.p11, at_least=True),
    "P11b": Target(f"analyze W2 on a GPU / by a process a core, {NET}", 0.5, 0.3, "", engine_figures.on_a_gpu),
    "P12": Target("analyze W2 by two processes / by two threads", 1.15, 1.0, "", engine_figures.p12),
    "P13": Target("a worker's time under the interpreter lock", 10, 5, " %", lock.p13),
    "P14": Target("CPU of analyze, filter on ten rows / their imports", 1.6, 1.4, "", figures.p14),
    "P16": Target(f"CPU of diagnose W1 / analyze W1, {NET}", 0.6, 0.4, "", figures.p16),
    "P17": Target(f"CPU of analyze W1, {NET} / without the cause", 1.08, 1.05, "", figures.p17),
    "P18": Target("analyze W2 by one process / by sixteen", 10, 14, "", engine_figures.p18, at_least=True),
    "P20a": Target("CPU of analyze on 64 rows / ten rows", 1.10, 1.05, "", figures.p20a),
    "P20b": Target("CPU of analyze on 1,000 x 100 tokens / ten rows", 1.25, 1.15, "", figures.p20b),
    "peaks": Target("filter, plot, compare, diagnose: peak memory W2 / W1", 1.12, 1.02, "", figures.peaks),
    "plot": Target("plot W1 / analyze W1", 2.0, 1.5, "", figures.plot),
    "sweep": Target("sweep W1 / analyze W1", 1.3, 1.1, "", figures.sweep),
    "diff": Target("diff W1 W1 / two analyze W1", 1.1, 1.0, "", figures.diff),
    "torch": Target("analyze W1 --device torch / --device cpu, whole", 10, 2, "", figures.by_torch),
}
"""Those with a P are of the table of goals; the others, what the manual tells beside them.  P15: stores.py."""
HEADER = ("#", "figure", "value", "rounds", "reach", "stretch", "")


def main() -> int:
    """Measure what is asked for and print it; 1 when a figure is missed."""
    args = parse()
    args.dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.dir, args.rounds, args.device, args.tokens)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    found = {name: attempt(name, bench) for name in args.names or TARGETS}
    rows = [row(name, result) for name, result in found.items() if isinstance(result, Figure)]
    if rows:
        print(markdown(rows) if args.markdown else aligned(rows))
    print(f"\n{load}, {os.getloadavg()[0]:.1f} at the end")
    for name, result in found.items():
        lines = (f"not measured: {result}",) if isinstance(result, NotHere) else result.details
        print("\n".join(f"{'- ' if args.markdown else ''}{name} {line}" for line in lines))
    missed = [r for name, r in found.items() if isinstance(r, Figure) and not TARGETS[name].met(r.value)]
    return 1 if missed else 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="P", help=f"of {', '.join(TARGETS)}; all when none is named")
    parser.add_argument("--dir", type=Path, default=figures.default_directory(), help="where dumps and verl are kept")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--rounds", type=int, default=5, help="repeats of each measurement (default 5)")
    parser.add_argument("--device", default="cuda", help="P11, P11b: the device; torch tries the code path")
    parser.add_argument("--tokens", type=int, default=50_000_000, help="P11: tokens in its batch")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in TARGETS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    return args


def attempt(name: str, bench: Bench) -> Figure | NotHere:
    """The figure, or why there is none."""
    figures.say(f"{name}: {TARGETS[name].what}")
    try:
        return TARGETS[name].measure(bench)
    except NotHere as reason:
        return reason


def row(name: str, found: Figure) -> tuple[str, ...]:
    """One figure under HEADER."""
    target = TARGETS[name]
    ends = "" if found.ends is None else " to ".join(number(end, "") for end in found.ends)
    verdict = "ok" if target.met(found.value) else "missed"
    goals = target.goal(target.reach), target.goal(target.stretch)
    return name, target.what, number(found.value, target.unit), ends, *goals, verdict


def number(value: float, unit: str) -> str:
    """A value with its unit."""
    return f"{value:.0f}{unit}" if value >= 100 else f"{value:.2f}{unit}"


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Columns padded with spaces."""
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    return "\n".join(map(line, (HEADER, *rows)))


def markdown(rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADER, ("---",) * len(HEADER), *rows))


if __name__ == "__main__":
    sys.exit(main())
