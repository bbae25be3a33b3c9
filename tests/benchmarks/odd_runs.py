"""Put random odd dumps through analyze, check, compare and filter: none may end with 70, a fault of ours.

    python tests/benchmarks/odd_runs.py [--n 10000] [--seed 0] [--workers 2] [--keep FOLDER]

Dump number i of a seed is made of both numbers alone, so `--n 1 --first i` repeats it, and `--keep` leaves its file
there.  Every command runs in this process, under a random plan, preset and limits.  Prints how many ended with each
status, and for each 70 the command and the end of its traceback.  Exits with 1 where there was one, or a warning.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from same_numbers import needs

from rlcorr_cli.commands import main as command_line
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.plans.presets import PRESETS

Rng = np.random.Generator
FAULT = 70
FLOATS = (np.float16, np.float32, np.float64)
MASKS = (np.bool_, np.int8, np.int32, np.int64, np.uint8, np.uint64, np.float16, np.float32, np.float64)
UNDER_THE_MASK = (-np.inf, np.nan, np.inf, -9999.0, 0.0, 1.0, -1e300)
FAR = (20.0, 88.0, 400.0, 690.0, 708.0, 709.5, 720.0, 1_000.0, 11_000.0, 1e5, 1e30, 1e200)
SCOPES = ("token", "seq_sum", "seq_mean", "seq_max", "seq_min")
LIMITS = ("0", "1e-9", "0.001", "0.9", "1", "1.001", "2", "10", "340", "1e6", "1e300")


def lengths(draw: Rng) -> np.ndarray:
    """Tokens of each row: few rows or many, some empty or of one token, sometimes all of them."""
    n_rows = int(draw.choice([1, 2, 3, 8, 20, 64, 200], p=[0.1, 0.1, 0.15, 0.2, 0.2, 0.2, 0.05]))
    match draw.choice(["one", "short", "mixed", "mixed", "long", "empty"], p=[0.15, 0.25, 0.2, 0.2, 0.15, 0.05]):
        case "one":
            return np.ones(n_rows, int)
        case "short":
            return draw.integers(0, 6, n_rows)
        case "long":
            return draw.integers(1, 400, n_rows)
        case "empty":
            return draw.integers(0, 2, n_rows)
        case _:
            return np.where(draw.random(n_rows) < 0.2, draw.integers(0, 2, n_rows), draw.integers(1, 40, n_rows))


def gaps(draw: Rng, sizes: np.ndarray) -> np.ndarray:
    """Log-ratios: noise of any size, and beyond it far tokens or far rows."""
    n = int(sizes.sum())
    gap = draw.normal(0, draw.choice([0, 1e-12, 1e-6, 0.01, 0.1, 1, 30]), n)
    match draw.choice(["none", "tokens", "rows", "one row", "all"], p=[0.45, 0.2, 0.15, 0.1, 0.1]):
        case "tokens":
            return np.where(draw.random(n) < 0.1, draw.choice([-1, 1], n) * draw.choice(FAR, n), gap)
        case "rows":
            return np.where(
                np.repeat(draw.random(len(sizes)) < 0.3, sizes), draw.choice([-1, 1]) * draw.choice(FAR), gap
            )
        case "one row":
            return np.where(np.repeat(np.arange(len(sizes)) == 0, sizes), draw.choice([-1, 1]) * draw.choice(FAR), gap)
        case "all":
            return np.full(n, draw.choice([-1, 1]) * draw.choice(FAR))
        case _:
            return gap


def columns_of(draw: Rng) -> dict[str, Any]:
    """The columns of a dump: list columns as flat values, cut by `lengths`, others as values of rows."""
    sizes = lengths(draw)
    n, n_rows = int(sizes.sum()), len(sizes)
    upper = -draw.gamma(0.25, 1.2, n) if draw.random() < 0.8 else np.zeros(n)
    gap = gaps(draw, sizes)
    policies = {"rollout_log_probs": upper - np.maximum(gap, 0), "old_log_probs": upper + np.minimum(gap, 0)}
    if draw.random() < 0.3:
        policies["current_log_probs"] = np.minimum(policies["old_log_probs"] + gaps(draw, sizes), 0)
    if draw.random() < 0.1:
        policies = {"current_log_probs" if name == "old_log_probs" else name: v for name, v in policies.items()}
    # Flags beyond a type's range would be infinite, which float16 does beyond 65,504.
    widths = [draw.choice(FLOATS, p=[0.1, 0.5, 0.4])] * 3 if draw.random() < 0.6 else draw.choice(FLOATS, 3)
    ends = np.cumsum(sizes)[:-1]
    columns: dict[str, Any] = {}
    mask = draw.random(n) < draw.choice([0.0, 0.05, 0.5, 0.9, 1.0], p=[0.03, 0.07, 0.2, 0.5, 0.2])
    if draw.random() < 0.2:
        mask &= np.repeat(draw.random(n_rows) < 0.7, sizes)  # whole rows
    masked = draw.random() < 0.7
    with np.errstate(over="ignore"):
        for (name, values), width in zip(policies.items(), widths, strict=False):
            held = values.astype(width)
            if masked and draw.random() < 0.5:
                held = np.where(
                    ~mask & (draw.random(n) < 0.5), np.array(draw.choice(UNDER_THE_MASK)).astype(width), held
                )
            if draw.random() < 0.08:
                held = np.where(draw.random(n) < 0.05, np.array(np.nan, width), held)  # on valid tokens, too
            columns[name] = np.split(held, ends)
    if masked:
        columns["response_mask"] = np.split(mask.astype(draw.choice(MASKS)), ends)
    if draw.random() < 0.3:
        width = draw.choice(FLOATS)
        columns["advantages"] = np.split(draw.normal(0, 1, n).astype(width), ends)
    elif draw.random() < 0.4:
        columns["advantages"] = draw.choice([0.0, 1.0, -1.5, 1e30], n_rows)
    if draw.random() < 0.4:
        columns["token_ids"] = np.split(draw.integers(0, draw.choice([2, 50_000]), n), ends)
    rows: dict[str, Any] = {
        "reward": draw.choice([0.0, 1.0, np.nan, -3.0, 1e200], n_rows),
        "step": np.sort(draw.integers(0, draw.choice([1, 2, 5, 40]), n_rows)),
        "group_id": draw.integers(0, max(1, n_rows // int(draw.choice([1, 4, 8]))), n_rows).astype(str),
        "prompt": [str(draw.choice(["a", "b", "", "é"])) for _ in range(n_rows)],
        "sample_id": [f"s{i}" for i in range(n_rows)],
        "worker": draw.choice(["w0", "w1", ""], n_rows),
        "policy_version": draw.integers(-2, 4, n_rows),
        "finish_reason": draw.choice(["stop", "length"], n_rows),
    }
    return columns | {name: values for name, values in rows.items() if draw.random() < 0.4}


def written(draw: Rng, columns: dict[str, Any], path: Path) -> None:
    """As Parquet, of lists that may be null or have holes, in row groups of any size."""
    arrays = {}
    for name, values in columns.items():
        if not (len(values) and isinstance(values[0], np.ndarray)):
            arrays[name] = pa.array([None if draw.random() < 0.02 else x for x in list(values)], from_pandas=False)
            continue
        kind = pa.list_(pa.from_numpy_dtype(values[0].dtype))
        if draw.random() < 0.04:
            values = [None if draw.random() < 0.2 else one for one in values]
        elif draw.random() < 0.04:
            values = [[None if draw.random() < 0.1 else x for x in one.tolist()] for one in values]
        arrays[name] = pa.array([one.tolist() if isinstance(one, np.ndarray) else one for one in values], kind)
    n_rows = len(next(iter(columns.values())))
    pq.write_table(pa.table(arrays), path, row_group_size=max(1, n_rows // int(draw.integers(1, 4))))


def commands(draw: Rng, columns: dict[str, Any], dump: str, out: str) -> list[list[str]]:
    """The four commands, each with its plan and its limits."""

    def one_of(values: Any) -> str:
        return str(draw.choice(list(values)))

    def sometimes(share: float, *options: str) -> list[str]:
        return list(options) if draw.random() < share else []

    def plan() -> list[str]:
        if draw.random() < 0.6:
            return ["--preset", one_of(presets)]
        options: list[str] = []
        for statistic in draw.choice(list(STATISTICS), draw.integers(0, 3), replace=False):
            low, high = sorted(draw.choice(LIMITS, 2), key=float)
            options += ["--rs", f"{statistic}.{one_of(SCOPES)}:{low if draw.random() < 0.3 else ''},{high}"]
        if draw.random() < 0.7 or not options:
            low = one_of(("", "", "0", "0.5", "1e-9"))
            ending = one_of(("", "", ":zero"))
            options += ["--is", f"{one_of(('token', 'sequence', 'geometric'))}:{low},{one_of(LIMITS[4:])}{ending}"]
            options += sometimes(0.3, "--normalize", "batch")
        return [*options, *sometimes(0.2, "--veto", one_of(("1e-4", "1e-30", "0.5")))]

    # A plan that asks for a column which is not there is refused at once: that is seldom of use here.
    presets = [name for name, row in PRESETS.items() if set(needs(row.plan)) <= {*columns} or draw.random() < 0.02]
    there = [name for name in ("step", "group_id", "worker", "policy_version", "finish_reason") if name in columns]
    read = [dump]
    read += ["--on-bad-row", "skip", "--max-bad-fraction", "1"] if draw.random() < 0.7 else []
    read += sometimes(0.3, "--nonfinite", one_of(("mask", "keep")))
    read += sometimes(0.1, "--limit", one_of((1, 3, 50)))
    grouped = sometimes(0.4, "--group-by", one_of(there)) if there else []
    objective = sometimes(0.3, "--objective", "auto") if "advantages" in columns else []
    names = [metric.name for metric in METRICS]
    limits = [word for _ in range(3) for word in (one_of(("--max", "--min")), f"{one_of(names)}={one_of(LIMITS)}")]
    return [
        ["analyze", *read, *plan(), *grouped, *objective, *sometimes(0.3, "--json")],
        ["check", *read, *plan(), *grouped, *limits],
        ["compare", *read, *[w for _ in range(3) for w in ("--preset", one_of(presets))], *grouped, *objective],
        ["filter", *read, *plan(), "-o", out, "--overwrite", "--force", "--rejected", one_of(("drop", "keep"))],
    ]


def run_one(number: int, *, seed: int, keep: Path | None = None) -> list[tuple[int, str]]:
    """The status of each command of one dump, and for 70 and for warnings what was printed last."""
    draw = np.random.default_rng([seed, number])
    ended = []
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) if keep is None else keep
        columns = columns_of(draw)
        dump, out = here / f"odd_{seed}_{number}.parquet", here / f"out_{seed}_{number}.parquet"
        written(draw, columns, dump)
        for line in commands(draw, columns, str(dump), str(out)):
            streams = io.StringIO()
            with (
                warnings.catch_warnings(record=True) as warned,
                contextlib.redirect_stdout(streams),
                contextlib.redirect_stderr(streams),
            ):
                warnings.simplefilter("always")
                # In this process: how many cores there are changes nothing.
                status = command_line.run([*line, "--engine", "threads", "--workers", "1", "--quiet"])
            last = " / ".join(streams.getvalue().strip().splitlines()[-6:-1]) if status == FAULT else ""
            what = last or "; ".join(f"warning: {one.message}" for one in warned)
            ended.append((status, f"{number}: rlcorr {' '.join(line)}\n  {what}" if what else ""))
    return ended


def main() -> int:
    """Print the counts and what went wrong; 1 where anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000, help="dumps")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--keep", type=Path, help="a folder in which the dumps stay")
    args = parser.parse_args()
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    counts: Counter[int] = Counter()
    wrong: list[str] = []
    work = partial(run_one, seed=args.seed, keep=args.keep)
    with ProcessPoolExecutor(args.workers) as pool:
        for done, ended in enumerate(pool.map(work, range(args.first, args.first + args.n), chunksize=8), 1):
            counts.update(status for status, _ in ended)
            wrong += [what for _, what in ended if what]
            if done % 500 == 0:
                print(
                    f"{done:,} dumps: {dict(sorted(counts.items()))}, {len(wrong)} wrong", file=sys.stderr, flush=True
                )
    print("\n".join(wrong))
    print(f"{args.n:,} dumps, {counts.total():,} commands, by status: {dict(sorted(counts.items()))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
