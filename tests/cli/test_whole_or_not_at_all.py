"""An output is whole or not there: killed processes, full disks, interrupts."""

import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import STEPS, command

OLD = b"the old output"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample many times over, which takes a while to write."""
    path = tmp_path_factory.mktemp("dump") / "in.parquet"
    pq.write_table(pa.concat_tables([pq.read_table(STEPS).drop_columns(["sample_id"])] * 16), path, row_group_size=1000)
    return str(path)


def started(dump: str, out: Path) -> "subprocess.Popen[bytes]":
    args = [command(), "filter", dump, "--preset", "token_is", "-o", str(out), "--overwrite"]
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_kill_leaves_the_old_output_or_the_new_one(dump: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    running = started(dump, out)
    began = time.perf_counter()
    while not list(tmp_path.glob(".*.part")):
        assert running.poll() is None
        time.sleep(0.01)
    first = time.perf_counter() - began
    running.communicate()
    assert running.returncode == 0
    took, whole = time.perf_counter() - began, out.read_bytes()
    chance = random.Random(0)
    seen: set[bool] = set()
    for _ in range(5):
        out.write_bytes(OLD)
        running = started(dump, out)
        time.sleep(chance.uniform(first * 0.8, took))
        running.kill()
        running.communicate()
        seen.add(out.read_bytes() == OLD)
        assert out.read_bytes() in (OLD, whole)
        assert out.read_bytes() == OLD or running.returncode in (0, -signal.SIGKILL)
    assert True in seen


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out"])
def test_a_full_disk_leaves_nothing_and_says_how_much_is_needed(name: str, dump: str, tmp_path: Path) -> None:
    limit = 300_000
    done = subprocess.run(
        [command(), "filter", dump, "--preset", "token_is", "-o", str(tmp_path / name)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 4, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2, done.stderr
    assert "File too large" in lines[0]
    assert "MB needed" in lines[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_cleans_up(number: signal.Signals, status: int, dump: str, tmp_path: Path) -> None:
    running = started(dump, tmp_path / "out.jsonl")
    while not list(tmp_path.glob(".*.part")):
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(number)
    _, said = running.communicate(timeout=20)
    assert running.returncode == status
    assert said == b""
    assert list(tmp_path.iterdir()) == []
