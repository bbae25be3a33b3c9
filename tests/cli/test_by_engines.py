"""`--engine` and `--workers`: the same numbers wherever they are made, and the same words where something is wrong."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import (
    BF16,
    STEPS,
    Process,
    command,
    forked_command,
    jsonl,
    pid_behind,
    refused,
    row,
    run,
    wait_for,
    warm as warm,
)
from stores import Proxy, put, server, store as store

import rlcorr_cli
from rlcorr_cli.engines.in_order import ThreadEngine
from rlcorr_cli.engines.processes import ProcessEngine
from rlcorr_cli.runs.computing import AutoEngine, processes_pay

sys.path.append(str(Path(__file__).parents[1] / "engines"))
from test_workers import workers_of

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real dump, in three files of two row groups each."""
    folder = tmp_path_factory.mktemp("parts")
    table = pq.read_table(STEPS)
    for i, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        pq.write_table(table.take(part), folder / f"{i}.parquet", row_group_size=len(part) // 2 + 1)
    return str(folder)


COMMANDS = {
    "analyze": ("analyze", "--group-by", "step", "--preset", "geo_rs"),
    "a batch's mean": ("analyze", "--is", "token:,2", "--normalize", "batch"),
    "compare": ("compare",),
    "sweep": ("sweep", "--vary", "k3.token", "--target-keep", "0.99"),
    "diagnose": ("diagnose", "--group-by", "step"),
    "check": ("check", "--preset", "token_is"),
    "inspect": ("inspect", "--worst", "3"),
}


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("command_line", COMMANDS.values(), ids=COMMANDS)
def test_processes_give_the_report_of_threads_byte_for_byte(command_line: tuple[str, ...], dump: str) -> None:
    here, there = (
        run(command_line[0], dump, *command_line[1:], "--json", "--engine", engine, "--workers", "1")
        for engine in ("threads", "processes")
    )
    assert here.out == there.out
    assert (here.status, here.err) == (there.status, there.err)
    assert here.status == 0


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("workers", ["2", "7"])
def test_a_report_is_the_same_for_any_number_of_workers(workers: str, dump: str) -> None:
    first = run("analyze", dump, "--json", "--workers", "1").out
    there = run("analyze", dump, "--json", "--engine", "processes", "--workers", workers)
    assert there.status == 0, there.err
    assert there.out == first


@pytest.mark.usefixtures("warm")
def test_processes_read_a_store_themselves(dump: str, store: Proxy) -> None:
    for path in sorted(Path(dump).iterdir()):
        put(server(), f"engines/{path.name}", path)
    here, there = (
        run("analyze", "s3://dumps/engines/", "--json", "--engine", engine, "--workers", "1")
        for engine in ("threads", "processes")
    )
    assert here.out == there.out
    assert here.status == there.status == 0, there.err


@pytest.mark.usefixtures("warm")
def test_two_dumps_are_compared_by_processes(dump: str) -> None:
    here, there = (
        run("diff", dump, STEPS, "--json", "--engine", engine, "--workers", "1") for engine in ("threads", "processes")
    )
    assert here.status == there.status == 0, here.err
    assert here.out == there.out


@pytest.mark.usefixtures("warm")
def test_processes_write_the_rows_that_threads_write(dump: str, tmp_path: Path) -> None:
    tables = []
    for engine in ("threads", "processes"):
        out = tmp_path / f"{engine}.parquet"
        assert run("filter", dump, "--preset", "geo_rs", "-o", str(out), "--engine", engine).status == 0
        tables.append(pq.read_table(out))
    assert 0 < len(tables[0]) < len(pq.read_table(dump))
    assert tables[0].equals(tables[1])


@pytest.mark.usefixtures("warm")
def test_a_bad_row_is_told_in_the_same_two_lines(tmp_path: Path) -> None:
    good = jsonl(tmp_path / "a.jsonl", [row()])
    bad = jsonl(tmp_path / "b.jsonl", [row(), row(rollout=[0.5, -1.0])])
    here, there = (run("analyze", good, bad, "--engine", engine) for engine in ("threads", "processes"))
    refused(there, 3, "b.jsonl, line 2")
    assert here == there


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("command_line", [("analyze", "--on-bad-row", "skip", "--max-bad-fraction", "1"), ("inspect",)])
def test_rows_whose_id_came_in_another_file_are_left_out(command_line: tuple[str, ...], tmp_path: Path) -> None:
    """Of all rows but the first of an id, whichever file is read first."""
    ids = [["a", "b", "a"], ["c", "d"], ["b", "e", "a", "e"], ["f", "d"]]
    for i, of_file in enumerate(ids):
        rows = [row(rollout=[-0.1 * i - 0.01 * j, -1.0], sample_id=name) for j, name in enumerate(of_file)]
        jsonl(tmp_path / f"part_{i}.jsonl", rows)
    reports = [
        run(command_line[0], str(tmp_path), *command_line[1:], "--json", "--engine", engine, "--workers", workers)
        for engine, workers in (("threads", "1"), ("threads", "4"), ("processes", "2"))
    ]
    assert reports[0].json["problems"]["duplicate_id"]["rows"] == 5
    assert "part_0.jsonl, line 3" in reports[0].json["problems"]["duplicate_id"]["first"]
    assert reports[0] == reports[1] == reports[2]


@pytest.mark.usefixtures("warm")
def test_what_must_be_read_in_this_process_is(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [row(), row()])
    by_processes = ("--engine", "processes", "--debug")
    assert "by 2 processes.\n" in run("analyze", path, *by_processes, "--workers", "2").err
    assert "by 1 thread.\n" in run("analyze", path, *by_processes, "--limit", "1").err
    table = pq.read_table(BF16)
    in_memory = rlcorr_cli.analyze(table, engine="processes", workers=2)
    assert in_memory.whole.counts["rows"] == len(table)


def test_workers_that_cannot_share_the_work_are_told_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = jsonl(tmp_path / "a.jsonl", [row(sample_id=name) for name in "aba"])
    skipping = ("--on-bad-row", "skip", "--max-bad-fraction", "1")

    def told(*command_line: str) -> list[str]:
        caplog.clear()
        ran = run(*command_line)
        assert ran.status == 0, ran.err
        ours = [record.message for record in caplog.records if record.name.startswith("rlcorr_cli")]
        return [message.removeprefix("The workers that were asked for do not ") for message in ours]

    limited = ["share the work: under a limit one thread counts the rows."]
    assert told("analyze", path, *skipping, "--workers", "4", "--limit", "2") == limited
    assert told("analyze", path, *skipping, "--workers", "1", "--limit", "2") == []
    assert told("analyze", path, *skipping, "--workers", "4") == []
    filtering = (
        "filter",
        path,
        *skipping,
        "--engine",
        "threads",
        "--workers",
        "2",
        "--preset",
        "token_is",
        "--normalize",
        "batch",
    )
    skipped = ["share the work: one thread looks for ids that come twice, to leave out their later rows."]
    assert told(*filtering, "-o", str(tmp_path / "kept.jsonl")) == skipped


def test_an_engine_is_named_with_its_workers(dump: str) -> None:
    assert "by 3 threads.\n" in run("analyze", dump, "--engine", "threads", "--workers", "3", "--debug").err
    refused(run("analyze", dump, "--engine", "spark"), 2, "--engine must be one of auto, threads, processes")
    refused(run("analyze", dump, "--workers", "0"), 2, "--workers")


def test_processes_are_chosen_where_they_pay_for_their_start() -> None:
    """Never on so few cores as threads use well; on 64 cores from what takes one of them some seconds."""
    assert not any(processes_pay(n_bytes, 4) for n_bytes in (10**6, 10**9, 10**12))
    assert [processes_pay(n_bytes, 64) for n_bytes in (10**7, 10**8, 10**9)] == [False, False, True]
    engine = AutoEngine(64, lambda: ProcessEngine(64))
    assert isinstance(engine.sized(10**8), ThreadEngine)
    assert isinstance(engine.sized(10**10), ProcessEngine)
    assert engine.sized(10**11) is engine.sized(10**10)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Minutes of work, in batches of a row."""
    offsets = pa.array(np.arange(0, 4_000_001, 100, dtype=np.int32))
    values = pa.array(-np.random.default_rng(0).random(4_000_000, np.float32))
    column = pa.ListArray.from_arrays(offsets, values)
    path = tmp_path_factory.mktemp("long") / "long.parquet"
    pq.write_table(pa.table({"rollout_log_probs": column, "old_log_probs": column}), path, row_group_size=5000)
    return path


@pytest.mark.parametrize(
    ("number", "status", "program"), [(signal.SIGINT, 130, forked_command), (signal.SIGTERM, 143, command)]
)
def test_a_signal_ends_the_workers_too(
    number: int, status: int, program: Callable[[], str], long: Path, tmp_path: Path
) -> None:
    arguments = ["analyze", str(long), "--batch-tokens", "100", "--engine", "processes", "--workers", "2"]
    report = tmp_path / "report.json"
    with Process([program(), *arguments, "-o", str(report)], stderr=subprocess.PIPE) as process:
        workers: list[int] = []

        def reading() -> bool:
            workers[:] = map(pid_behind, workers_of(process.command_pid))
            return len(workers) == 2 and all(_has_open(pid, long) for pid in workers)

        wait_for(reading, process)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == status
    assert err == (b"Interrupted: nothing was written.\n" if number == signal.SIGINT else b"")
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert list(tmp_path.iterdir()) == []


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(link.resolve() == path for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
