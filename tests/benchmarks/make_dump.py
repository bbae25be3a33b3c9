"""Write a synthetic dump of N sequences, or build the same tokens in memory.

    python tests/benchmarks/make_dump.py N OUT.parquet [--honest]

Lengths are log-normal (mean about 1,009 tokens, from 8 to 8,192); the training log-prob is the rollout's plus Student
t(3) noise x 0.02, at most 0; 2% of the tokens are masked; 10 steps; row groups of 2,000 rows, zstd.  The seed is
fixed, and numbers are drawn row group by row group, so a dump of N sequences is always the same one.

--honest: the log-ratio is N(-s^2/2, s) instead, with s = 0.08 (1 - p) and nothing clipped, so that the mean ratio is 1,
as it is of samples of a model, and `filter` takes the dump.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROWS_PER_GROUP = 2_000
STEPS = 10
MEAN_LOG_LENGTH = 6.6
SEED = 0

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """One row group: first row's number, lengths i64[B], flat f32[T] log-probs, i8[T] mask, f32[B] rewards."""

    first: int
    lengths: NDArray[np.int64]
    rollout: Array
    train: Array
    mask: NDArray[np.int8]
    reward: Array

    @property
    def offsets(self) -> NDArray[np.int64]:
        """i64[B+1]."""
        return np.concatenate([[0], np.cumsum(self.lengths)])


def row_groups(n: int, *, honest: bool = False) -> Iterator[Rows]:
    """The n sequences, ROWS_PER_GROUP at a time."""
    rng = np.random.default_rng(SEED)
    lengths = np.clip(rng.lognormal(MEAN_LOG_LENGTH, 0.8, n).astype(np.int64), 8, 8192)
    for first in range(0, n, ROWS_PER_GROUP):
        yield _rows(rng, first, lengths[first : first + ROWS_PER_GROUP], honest=honest)


def write(n: int, path: Path, *, honest: bool = False) -> None:
    """The dump as a file, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    groups = row_groups(n, honest=honest)
    table = _table(next(groups), n)
    with pq.ParquetWriter(temporary, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        for rows in groups:
            writer.write_table(_table(rows, n))
    os.replace(temporary, path)


def _rows(rng: np.random.Generator, first: int, lengths: NDArray[np.int64], *, honest: bool) -> Rows:
    total = int(lengths.sum())
    rollout = -rng.gamma(0.25, 1.2, total)
    if honest:
        spread = -0.08 * np.expm1(rollout)
        train = rollout + rng.standard_normal(total) * spread - spread**2 / 2
    else:
        train = np.minimum(rollout + rng.standard_t(3, total) * 0.02, 0)
    mask = (rng.random(total) > 0.02).astype(np.int8)
    reward = rng.random(len(lengths)).astype(np.float32)
    return Rows(first, lengths, rollout.astype(np.float32), train.astype(np.float32), mask, reward)


def _table(rows: Rows, n: int) -> pa.Table:
    offsets = pa.array(rows.offsets.astype(np.int32))
    numbers = rows.first + np.arange(len(rows.lengths))
    lists = {"rollout_log_probs": rows.rollout, "old_log_probs": rows.train, "response_mask": rows.mask}
    return pa.table(
        {"sample_id": numbers, "step": numbers * STEPS // n}
        | {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in lists.items()}
        | {"reward": rows.reward}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, help="sequences")
    parser.add_argument("out", type=Path, help="a .parquet file")
    parser.add_argument("--honest", action="store_true", help="a mean ratio of 1")
    args = parser.parse_args()
    write(args.n, args.out, honest=args.honest)
