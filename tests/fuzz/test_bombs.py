"""Bombs that are quick to build and to read, each by the installed command: it stays small, and says what it did."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bombs import BOMBS, COMMANDS, read, wrong
from few import few
from measured import took

QUICK = [name for name, bomb in BOMBS.items() if bomb.quick]
QUICKEST = ("nested 5,000 deep", "tokens in one row", "JSON nested a million deep")
SECONDS = 60
"""Of a processor: ten times what any takes, on however busy a machine."""

pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.parametrize("name", few(QUICK, QUICKEST))
def test_a_bomb_does_no_harm(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"bomb{BOMBS[name].suffix}"
    BOMBS[name].build(path)
    for command in COMMANDS:
        done = read(command, path, tmp_path, SECONDS)
        assert wrong(done) == [], done
        assert (tmp_path / "out.parquet").exists() is (done.status == 0 and command == "filter")


@pytest.mark.full
def test_memory_is_bounded_in_rows_too(tmp_path: Path) -> None:
    """Rows of one token, as large lists in one row group, took over a gigabyte while only the tokens of a batch were
    bounded: 300,000 are less than one batch."""
    n_rows, rng, path = 300_000, np.random.default_rng(0), tmp_path / "ones.parquet"
    rollout = -rng.exponential(0.5, n_rows).astype(np.float32)
    old = np.minimum(rollout + rng.normal(0, 0.01, n_rows).astype(np.float32), 0)
    offsets = pa.array(np.arange(n_rows + 1))
    lists = {
        name: pa.LargeListArray.from_arrays(offsets, pa.array(values))
        for name, values in (("rollout_log_probs", rollout), ("old_log_probs", old))
    }
    pq.write_table(pa.table(lists), path)
    done = read("analyze", path, tmp_path, SECONDS)
    assert "300,000 sequences" in done.out, done.err
    assert wrong(done, limit_mb=750) == []


def test_there_are_bombs_of_both_forms() -> None:
    assert {BOMBS[name].suffix for name in QUICK} >= {".parquet", ".jsonl", ".jsonl.zst"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "harm", "seconds"),
    [
        ("b'x' * (200 << 20)", "MB", SECONDS),
        ("raise ValueError", "a traceback", SECONDS),
        ("import os; os.abort()", "status", SECONDS),
        ("while True: pass", "status -9", 1),
        ("import time; time.sleep(600)", "status -9", 0.1),
        ("import sys; sys.exit(3)", "not two lines", SECONDS),
    ],
)
def test_harm_would_be_seen(script: str, harm: str, seconds: float) -> None:
    assert any(harm in what for what in wrong(took([sys.executable, "-c", script], seconds), limit_mb=150))
