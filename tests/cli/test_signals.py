"""Interrupted, terminated, or with nobody reading: the status says so, and nothing else is said."""

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, command

ROWS, LENGTH = 40_000, 100


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 M tokens in 200 row groups; in batches of one row, minutes of work."""
    rng = np.random.default_rng(0)
    offsets = pa.array(np.arange(0, ROWS * LENGTH + 1, LENGTH, dtype=np.int32))
    columns = {
        name: pa.ListArray.from_arrays(offsets, pa.array(-rng.random(ROWS * LENGTH, np.float32)))
        for name in ("rollout_log_probs", "old_log_probs")
    }
    path = tmp_path_factory.mktemp("big") / "big.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=200, compression="none", use_dictionary=False)
    return path


def is_reading(process: subprocess.Popen[str], path: Path) -> bool:
    """Whether the process has the file open (or ended, which the caller will see)."""
    if process.poll() is not None:
        return True
    folder = Path(f"/proc/{process.pid}/fd")
    try:
        return any(os.path.realpath(fd) == str(path) for fd in folder.iterdir())
    except OSError:
        return False


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_of_a_dump_ends_it_at_once(number: int, status: int, big: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    args = [command(), "analyze", str(big), "--batch-tokens", "100", "--threads", "2", "-o", str(report)]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not is_reading(process, big) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    assert process.poll() is None, "it was done before the signal"
    process.send_signal(number)
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 3
    assert process.returncode == status
    assert (out, err) == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_waiting_for_standard_input_ends_it_at_once(number: int) -> None:
    process = subprocess.Popen(
        [command(), "analyze", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    # Far more than a pipe holds, so this returns when nearly all of it has been read.
    process.stdin.write('{"rollout_log_probs": [-1.0], "old_log_probs": [-1.5]}\n' * 20_000)
    process.stdin.flush()
    time.sleep(0.5)
    process.send_signal(number)
    sent = time.monotonic()
    status = process.wait(60)
    assert time.monotonic() - sent < 3
    assert status == 128 + number
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stdin.close()
    process.stdout.close()  # type: ignore[union-attr]
    process.stderr.close()


@pytest.mark.parametrize("reader", ["head -1", "true"])
@pytest.mark.parametrize(
    "args",
    [
        ("analyze", BF16, "--json"),
        ("analyze", STEPS, "--group-by", "sample_id"),
        ("presets",),
        ("explain", "kl"),
        ("--help",),
    ],
)
def test_a_reader_that_goes_away_is_no_error(args: tuple[str, ...], reader: str) -> None:
    line = f"{shlex.join([command(), *args])} | {reader}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr == ""
