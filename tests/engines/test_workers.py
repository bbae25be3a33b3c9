"""Worker processes that fail, are killed, or are left behind: every shard counts once, and nothing stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlcorr_cli.engines.processes import ProcessEngine, WorkerFault
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.batch import Shard

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import LIMIT_SECONDS, forked_command, until, warm as warm

pytestmark = pytest.mark.xdist_group("processes")


def shards(n: int) -> list[Shard]:
    return [Shard(index=i, path=f"part-{i}.jsonl", format="jsonl", part=None, n_bytes=1) for i in range(n)]


@pytest.fixture
def engine(warm: None) -> Iterator[ProcessEngine]:
    with closing(ProcessEngine(2)) as engine:
        yield engine
    assert workers_of(os.getpid()) == []


def workers_of(driver: int) -> list[int]:
    """Worker processes that a process started, and that are there."""
    return [pid for pid in _running() if _is_worker(pid) and _parent(pid) == driver]


def _running() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _is_worker(pid: int) -> bool:
    try:
        return b"rlcorr_cli.engines.processes import worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


@dataclass(frozen=True)
class Killed:
    """Work that gives three results a shard, and whose process is killed before the second, `times` times in all."""

    folder: Path
    shard: int
    times: int

    def __call__(self, shard: Shard) -> Iterator[str]:
        yield f"{shard.index} first"
        if shard.index == self.shard and (n := len(list(self.folder.iterdir()))) < self.times:
            (self.folder / str(n)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield f"{shard.index} second"
        yield f"{shard.index} third"


EXPECTED = [[f"{i} {place}" for place in ("first", "second", "third")] for i in range(8)]


@pytest.mark.parametrize(("shard", "times"), [(0, 1), (3, 2), (7, 2)])
def test_the_shard_of_a_killed_worker_runs_again_and_counts_once(
    engine: ProcessEngine, tmp_path: Path, shard: int, times: int
) -> None:
    work = Killed(tmp_path, shard, times)
    assert [list(results) for results in engine.stream(shards(8), work)] == EXPECTED
    assert len(list(tmp_path.iterdir())) == times


def test_the_shard_of_a_killed_worker_that_is_no_fork_runs_again(tmp_path: Path) -> None:
    with closing(ProcessEngine(2)) as engine:
        assert [list(results) for results in engine.stream(shards(8), Killed(tmp_path, 3, 1))] == EXPECTED
    assert workers_of(os.getpid()) == []


def test_a_shard_that_is_the_end_of_three_workers_is_named(engine: ProcessEngine, tmp_path: Path) -> None:
    results: list[list[str]] = []
    with pytest.raises(DataError, match=r"part-3.jsonl: 3 workers were lost .*; the last one was killed by SIGKILL"):
        results.extend(map(list, engine.stream(shards(8), Killed(tmp_path, 3, 9))))
    assert len(list(tmp_path.iterdir())) == 3
    assert results == EXPECTED[:3]
    assert [list(again) for again in engine.stream(shards(8), Killed(tmp_path, 3, 0))] == EXPECTED


@dataclass(frozen=True)
class Raising:
    """Work that fails on one shard."""

    error: Exception

    def __call__(self, shard: Shard) -> int:
        if shard.index == 2:
            raise self.error
        return shard.index


def test_an_error_for_a_user_comes_back_as_it_was_raised(engine: ProcessEngine) -> None:
    with pytest.raises(DataError) as caught:
        list(engine.map(shards(6), Raising(DataError("part-2.jsonl, line 3: x is NaN.", "Look at it."))))
    assert (caught.value.message, caught.value.hint) == ("part-2.jsonl, line 3: x is NaN.", "Look at it.")
    assert "test_workers.py" in str(caught.value.__cause__)  # what --debug shows


def test_a_fault_of_ours_comes_back_with_its_traceback(engine: ProcessEngine) -> None:
    with pytest.raises(WorkerFault, match=r"(?s)in a worker:.*test_workers.py.*ZeroDivisionError: by zero"):
        list(engine.map(shards(6), Raising(ZeroDivisionError("by zero"))))


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")])
def test_what_the_command_line_explains_comes_back_as_what_it_is(engine: ProcessEngine, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        list(engine.map(shards(6), Raising(error)))
    assert caught.value.args == error.args


def unsendable(shard: Shard) -> object:
    return lambda: shard


def test_a_result_that_cannot_be_sent_is_a_fault_and_no_hang(engine: ProcessEngine) -> None:
    with pytest.raises(WorkerFault, match="pickle"):
        list(engine.map(shards(2), unsendable))


@dataclass(frozen=True)
class Large:
    """Work of large results, which says in a file how many it has made."""

    folder: Path

    def __call__(self, shard: Shard) -> Iterator[bytes]:
        for i in range(20):
            (self.folder / f"{shard.index}-{i}").touch()
            yield bytes(1 << 20)


def test_a_worker_that_is_ahead_waits_with_large_results(engine: ProcessEngine, tmp_path: Path) -> None:
    streams = engine.stream(shards(1), Large(tmp_path))
    assert len(next(next(streams))) == 1 << 20
    # What is held here, one that is being sent, and one that is made meanwhile.
    assert len(list(tmp_path.iterdir())) <= 5
    del streams  # nobody takes the others: their worker is ended
    assert workers_of(os.getpid()) == []


@dataclass(frozen=True)
class OnGpus:
    """Work that tells the GPU that it sees once as many shards are at work as there are; the first is killed once."""

    folder: Path

    def __call__(self, shard: Shard) -> str:
        (self.folder / f"{shard.index} begun").touch()
        until(lambda: len(list(self.folder.glob("* begun"))) >= 3)
        if shard.index == 0 and not (self.folder / "killed").exists():
            (self.folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (self.folder / f"{shard.index} done").touch()
        until(lambda: len(list(self.folder.glob("* done"))) >= 3)
        return os.environ["CUDA_VISIBLE_DEVICES"]


def test_who_takes_the_place_of_a_killed_worker_has_its_gpu(warm: None, tmp_path: Path) -> None:
    environments = [{"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(3)]
    with closing(ProcessEngine(3, None, environments)) as engine:
        assert sorted(engine.map(shards(3), OnGpus(tmp_path))) == ["0", "1", "2"]


def process_id(shard: Shard) -> int:
    return os.getpid()


def test_workers_are_kept_from_one_reading_to_the_next(engine: ProcessEngine) -> None:
    first, second = (set(engine.map(shards(20), process_id)) for _ in range(2))
    assert len(first | second) <= 2
    assert os.getpid() not in first


SCRIPT = """
import sys
import rlcorr_cli
print("begins")
report = rlcorr_cli.analyze(sys.argv[1], engine="processes", workers=2)
print(report.whole.counts["rows"])
"""


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    script, dump = tmp_path / "script.py", Path(__file__).parents[2] / "sample_data" / "smollm2_bf16.parquet"
    script.write_text(SCRIPT)
    done = _python(str(script), str(dump))
    assert (done.stdout.splitlines(), done.stderr) == (["begins", "64"], "")


DRIVER = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_workers import sleeping, shards, workers_of
from rlcorr_cli.engines.processes import ProcessEngine
results = ProcessEngine(2).map(shards(4), sleeping)
next(results)
print(*workers_of(os.getpid()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def sleeping(shard: Shard) -> int:
    """Work that takes for ever, but on the first shard."""
    if shard.index:
        signal.pause()
    return shard.index


def test_workers_end_with_a_driver_that_is_killed() -> None:
    done = _python("-c", DRIVER.format(tests=str(Path(__file__).parent)))
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    until(lambda: not any(map(_is_worker, pids)))


SIGNALLED = """
import os, signal, sys, time
from contextlib import closing
sys.path.insert(0, {tests!r})
from test_workers import sleeping, shards, workers_of
from rlcorr_cli.engines import interrupt
from rlcorr_cli.engines.processes import ProcessEngine

def take(pids):
    with closing(ProcessEngine(2)) as engine:  # as a run has it
        for _ in engine.map(shards(4), sleeping):
            while len(workers := workers_of(os.getpid())) < 2:  # each starts in its own time
                time.sleep(0.01)
            pids += workers
            os.kill(os.getpid(), signal.SIGTERM)

interrupt.install()
interrupt.AGAIN_SECONDS = 0.001  # the signal comes again while workers are ended
pids = []
try:
    take(pids)
except interrupt.Terminated:
    interrupt.signal_handled()
    print(len(pids), *[pid for pid in pids if os.path.exists(f"/proc/{{pid}}")])
"""


def test_a_signal_that_comes_again_leaves_no_worker() -> None:
    script = SIGNALLED.format(tests=str(Path(__file__).parent))
    done = subprocess.run([forked_command(), "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (done.stdout, done.stderr) == ("2\n", "")


def _python(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=LIMIT_SECONDS)
