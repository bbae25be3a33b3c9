"""How often `diagnose` is right: on dumps of known cause, on parts of them, and on engine noise alone.

    python tests/benchmarks/causes.py [--draws 5] [--noise 200]

Printed: the confusion matrix of the whole dumps, of their halves, of random 32 and 16 rows of each, and what is named
on dumps that hold nothing but noise, drawn from the real ones: differences in log-odds are shuffled within bins of
surprise and given random signs, rows are drawn anew in several numbers, and random columns are added.  Last, how many
of three random columns, added to each dump, are said to carry the gap.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).parents[1] / "diagnosis"))  # a script sees its own folder alone

from known_causes import DUMPS, VERDICTS

from rlcorr_cli import diagnose
from rlcorr_cli.causes.gap import SURPRISE_EDGES

Confusion = Counter[tuple[str, str]]
QUIET = ("noise_bf16_fp32", "noise_bf16_bf16", "temp07_matched", "top_p09_raw_both", "tool_clean", "grid_bf16_train")
"""Dumps of noise alone, which more of them are drawn from."""
NOISE_ROWS = (16, 24, 32, 64, 128)
NO_FAULT = {"noise", "none", "no_cause", "too_few"}


def verdict(table: pa.Table) -> str:
    """Of a dump in memory."""
    return diagnose(table).verdict


def parts(table: pa.Table, n_rows: int, draws: int) -> Iterator[pa.Table]:
    """Some draws of so many rows, without return; none of a dump that has no more."""
    if table.num_rows > n_rows:
        for seed in range(draws):
            chosen = np.random.default_rng(seed).choice(table.num_rows, n_rows, replace=False)
            yield table.take(np.sort(chosen))


def halves(table: pa.Table) -> Iterator[pa.Table]:
    """Every other row, and the rest."""
    for first in (0, 1):
        yield table.take(np.arange(first, table.num_rows, 2))


def noise_alone(table: pa.Table, draw: np.random.Generator) -> pa.Table:
    """Rows of a dump with its differences in log-odds shuffled within bins of surprise."""
    table = table.take(draw.choice(table.num_rows, int(draw.choice(NOISE_ROWS))))
    rollout = table["rollout_log_probs"].combine_chunks()
    b = np.minimum(rollout.flatten().to_numpy(zero_copy_only=False).astype(np.float64), 0)
    a = np.minimum(table["old_log_probs"].combine_chunks().flatten().to_numpy(zero_copy_only=False), 0)
    known = (b < 0) & (a < 0)
    u, v = (_odds(column[known]) for column in (b, a.astype(np.float64)))
    bins = np.digitize(u, SURPRISE_EDGES)
    d = v - u
    for k in np.unique(bins):
        here = bins == k
        off = d[here] - np.median(d[here])
        d[here] = draw.choice(off, here.sum()) * draw.choice([-1, 1], here.sum())
    trained = b.copy()
    trained[known] = -np.logaddexp(0, -(u + d))
    lists = pa.LargeListArray.from_arrays(rollout.offsets, pa.array(trained.astype(np.float32)))
    n = table.num_rows
    columns = {
        **{name: table[name] for name in ("group_id", "data_source", "token_ids", "response_mask")},
        "rollout_log_probs": rollout,
        "old_log_probs": lists,
        "worker": pa.array([f"w{k}" for k in draw.integers(0, 4, n)]),
        "policy_version": pa.array(draw.integers(0, 8, n)),
        "reward": pa.array(draw.normal(size=n)),
    }
    return pa.table(columns)


def _odds(log_probs: np.ndarray) -> np.ndarray:
    held = np.clip(log_probs, -60, -1e-7)
    return held - np.log(-np.expm1(held))


def convicted(table: pa.Table, seed: int) -> int:
    """How many of three random columns carry the gap of a dump."""
    draw, n = np.random.default_rng(seed), table.num_rows
    random = {
        "created": pa.array(draw.normal(size=n)),
        "bucket": pa.array(draw.integers(0, 10, n)),
        "host": pa.array([f"h{k}" for k in draw.integers(0, 6, n)]),
    }
    for name, values in random.items():
        table = table.append_column(name, values)
    columns = diagnose(table, by=list(random)).whole.diagnosis.columns
    guilty = [column.column for column in columns if column.grows or any(level.is_hot for level in column.levels)]
    return len(set(guilty) & set(random))


def show(title: str, confusion: Confusion) -> None:
    """The share that is right, and each kind of mistake."""
    n = sum(confusion.values())
    right = sum(count for (cause, said), count in confusion.items() if cause == said)
    print(f"\n{title}: {right} of {n} right ({right / max(n, 1):.0%})")
    said = sorted({said for _, said in confusion})
    for cause in sorted({cause for cause, _ in confusion}):
        row = {name: confusion[cause, name] for name in said if confusion[cause, name]}
        wrong = ", ".join(f"{name} {count}" for name, count in row.items() if name != cause)
        print(f"  {cause:28} {row.get(cause, 0):4} of {sum(row.values()):4}   {wrong}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--noise", type=int, default=200)
    options = parser.parse_args()
    tables = {name: pq.read_table(DUMPS / f"{name}.parquet") for name in VERDICTS}
    kinds = {
        "whole dumps": lambda table: iter([table]),
        "halves": halves,
        "random 32 rows": lambda table: parts(table, 32, options.draws),
        "random 16 rows": lambda table: parts(table, 16, options.draws),
    }
    for title, made in kinds.items():
        confusion = Confusion()
        for name, cause in VERDICTS.items():
            confusion.update((cause, verdict(part)) for part in made(tables[name]))
        show(title, confusion)
    drawn = Confusion()
    for seed in range(options.noise):
        draw = np.random.default_rng(seed)
        said = verdict(noise_alone(tables[QUIET[seed % len(QUIET)]], draw))
        drawn["noise", "noise" if said in NO_FAULT else said] += 1
    show("noise alone", drawn)
    guilty = sum(convicted(table, seed) for table in tables.values() for seed in range(3))
    print(f"\nrandom columns: {guilty} of {9 * len(tables)} said to carry the gap")


if __name__ == "__main__":
    main()
