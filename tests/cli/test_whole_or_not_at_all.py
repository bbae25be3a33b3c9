"""An output is whole or not there: killed processes, full disks, interrupts."""

import json
import resource
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import STEPS, command, forked_command, row, wait_for

pytestmark = pytest.mark.xdist_group("processes")
OLD = b"the old output"
LINES = (json.dumps(row(text="a" * 2000)) + "\n").encode() * 10_000
"""More than is read from standard input at once, which is 16 MB."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample many times over, which takes a while to write."""
    path = tmp_path_factory.mktemp("dump") / "in.parquet"
    pq.write_table(pa.concat_tables([pq.read_table(STEPS).drop_columns(["sample_id"])] * 16), path, row_group_size=1000)
    return str(path)


def started(program: str, dump: str, out: Path) -> "subprocess.Popen[bytes]":
    args = [program, "filter", dump, "--preset", "token_is", "-o", str(out), "--overwrite"]
    return subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_writing(out: Path) -> bool:
    """Whether something is in the file that will become the output."""
    return any(part.stat().st_size > 0 for part in out.parent.glob(".*.part"))


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_a_kill_in_the_middle_leaves_the_old_output(name: str, tmp_path: Path) -> None:
    out = tmp_path / name
    out.write_bytes(OLD)
    with started(command(), "-", out) as process:
        assert process.stdin is not None
        # Its standard input stays open, so however long this test is kept waiting, it is in the middle.
        process.stdin.write(LINES)
        process.stdin.flush()
        wait_for(lambda: is_writing(out), process)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert out.read_bytes() == OLD


def test_a_kill_at_the_end_leaves_the_old_output_or_the_new_one(dump: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with started(forked_command(), dump, out) as process:
        process.communicate()
    whole = out.read_bytes()
    assert len(whole) > 1000
    for share in (0.9, 1.0):
        out.write_bytes(OLD)
        with started(command(), dump, out) as process:
            while process.poll() is None and out.stat().st_size == len(OLD):
                if any(part.stat().st_size >= share * len(whole) for part in tmp_path.glob(".*.part")):
                    break
                time.sleep(0.002)
            process.kill()
            process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        left = list(tmp_path.glob(".*.part"))
        assert out.read_bytes() == (OLD if left else whole)
        for part in left:
            part.unlink()


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out"])
def test_a_full_disk_leaves_nothing_and_says_how_much_is_needed(name: str, dump: str, tmp_path: Path) -> None:
    limit = 300_000
    done = subprocess.run(
        [forked_command(), "filter", dump, "--preset", "token_is", "-o", str(tmp_path / name)],
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
def test_an_interrupt_cleans_up(number: signal.Signals, status: int, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with started(forked_command(), "-", out) as process:
        assert process.stdin is not None
        process.stdin.write(LINES)
        process.stdin.flush()
        wait_for(lambda: is_writing(out), process)
        process.send_signal(number)
        assert process.wait() == status
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []
