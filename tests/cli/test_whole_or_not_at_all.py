"""An output is whole or not there: killed processes, full disks, interrupts, and other outputs of the same name."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import BF16, STEPS, Process, command, forked_command, jsonl, parquet, refused, row, run, wait_for

pytestmark = pytest.mark.xdist_group("processes")
OLD = b"the old output"
LINES = (json.dumps(row(text="a" * 2000)) + "\n").encode() * 10_000
"""More than is read from standard input at once, which is 16 MB."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample four times over, which takes a while to write."""
    path = tmp_path_factory.mktemp("dump") / "in.parquet"
    pq.write_table(pa.concat_tables([pq.read_table(STEPS).drop_columns(["sample_id"])] * 4), path, row_group_size=100)
    return str(path)


def started(program: str, dump: str, out: Path) -> Process:
    args = [program, "filter", dump, "--preset", "token_is", "-o", str(out), "--overwrite"]
    return Process(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_writing(out: Path) -> bool:
    """Whether something is in the file that will become the output."""
    return any(part.stat().st_size > 0 for part in out.parent.glob(".*.part"))


@pytest.mark.parametrize(
    ("name", "program"),
    [("out.jsonl", forked_command), ("out.jsonl.gz", forked_command), ("out.parquet", command)],
)
def test_a_kill_in_the_middle_leaves_the_old_output(name: str, program: Callable[[], str], tmp_path: Path) -> None:
    out = tmp_path / name
    out.write_bytes(OLD)
    with started(program(), "-", out) as process:
        assert process.stdin is not None
        # Its standard input stays open, so however long this test is kept waiting, it is in the middle.
        process.stdin.write(LINES)
        process.stdin.flush()
        wait_for(lambda: is_writing(out), process)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert out.read_bytes() == OLD
    (litter,) = tmp_path.glob(".*")
    report = run("filter", BF16, "--preset", "token_is", "-o", str(tmp_path / "other.jsonl"), "--json").json
    (note,) = [note for note in report["notes"] if "killed" in note]
    assert note.startswith("Removed 1 unfinished output")
    assert litter.name in note
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", name]


@pytest.mark.full
def test_a_kill_at_the_end_leaves_the_old_output_or_the_new_one(dump: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with started(forked_command(), dump, out) as process:
        process.communicate()
    whole = out.read_bytes()
    assert len(whole) > 1000
    for share in (0.5, 0.9, 1.0):
        out.write_bytes(OLD)
        with started(forked_command(), dump, out) as process:
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
    limit = 200_000
    done = subprocess.run(
        [forked_command(), "filter", dump, "--preset", "token_is", "-o", str(tmp_path / name)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 4, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2, done.stderr
    assert "File too large" in lines[0]
    assert "MB needed" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_how_much_a_resampling_needs(tmp_path: Path) -> None:
    """Of six times the rows that there are."""
    resampled = ("filter", STEPS, "--preset", "token_is", "--resample", "2000", "--batch-tokens", "4000")
    args = [forked_command(), *resampled, "-o", str(tmp_path / "o.jsonl")]
    assert subprocess.run(args, capture_output=True, timeout=LIMIT_SECONDS).returncode == 0
    n_bytes = (tmp_path / "o.jsonl").stat().st_size
    (tmp_path / "o.jsonl").unlink()
    limit = n_bytes // 4
    done = subprocess.run(
        args,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 4, done
    needed = re.search(r"of about ([\d,.]+) MB needed", done.stderr)
    assert needed, done.stderr
    assert 0.7 < float(needed[1].replace(",", "")) * 1e6 / n_bytes < 1.3
    assert list(tmp_path.iterdir()) == []


REPORTS: dict[str, tuple[str, ...]] = {
    "tensorboard": ("analyze", STEPS, "--group-by", "step", "-o", "r.tb"),
    "markdown": ("analyze", STEPS, "--group-by", "step", "-o", "r.md"),
    "several": ("analyze", STEPS, "--group-by", "step", "-o", "r.csv", "-o", "r.tb", "-o", "r.json"),
    "pictures": ("plot", STEPS, "--kind", "ratio", "--kind", "weights", "-o", "new/pictures"),
    "junit": ("check", STEPS, "--group-by", "step", "--junit", "r.xml"),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_full_disk_leaves_nothing_of_a_report(name: str, tmp_path: Path) -> None:
    limit = 3_000
    done = subprocess.run(
        [forked_command(), *REPORTS[name]],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 4, done
    assert len(done.stderr.strip().splitlines()) == 2, done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


SPELLED: dict[str, Callable[[Path], str]] = {
    "relative": lambda path: path.name,
    "absolute": str,
    "up and down": lambda path: f"../{path.parent.name}/{path.name}",
    "through a linked directory": lambda path: str(path.parent / "here" / path.name),
    "a link": lambda path: str(path.parent / f"link{path.suffix}"),
}
"""A file in the current directory."""
OUTPUTS = ("-o", "--rejected-output", "--quarantine")


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("way", SPELLED)
@pytest.mark.parametrize("pair", list(combinations(OUTPUTS, 2)), ids=" and ".join)
def test_two_outputs_that_are_one_file_are_refused_however_spelled(
    pair: tuple[str, str], way: str, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").symlink_to(tmp_path)
    path = tmp_path / "k.jsonl"
    (tmp_path / "link.jsonl").symlink_to(path)
    if exists:
        path.write_bytes(OLD)
    before = sorted(os.listdir())
    dump = jsonl(tmp_path.parent / f"{tmp_path.name}.jsonl", [row()])
    names = {pair[0]: str(path), pair[1]: SPELLED[way](path)}
    given = [part for option in OUTPUTS for part in (option, names.get(option, "other.jsonl"))]
    refused(run("filter", dump, "--preset", "token_is", *given, "--overwrite"), 2, " and ".join(pair))
    if exists:
        (tmp_path / "hard.jsonl").hardlink_to(path)
        given = [part.replace(names[pair[1]], "hard.jsonl") if part == names[pair[1]] else part for part in given]
        refused(run("filter", dump, "--preset", "token_is", *given, "--overwrite"), 2)
        (tmp_path / "hard.jsonl").unlink()
        assert path.read_bytes() == OLD
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("way", SPELLED)
@pytest.mark.parametrize("read", ["plan", "rules", "baseline", "dump"])
def test_what_a_run_reads_is_not_written_however_spelled(
    read: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").symlink_to(tmp_path)
    path = tmp_path / "k.json"
    (tmp_path / "link.json").symlink_to(path)
    text = json.dumps({"weighting": {"scope": "token", "high": 2.0}} if read != "dump" else row()) + "\n"
    path.write_text(text)
    same = SPELLED[way](path)
    commands = {
        "plan": ("analyze", BF16, "--plan", str(path), "-o", same),
        "rules": ("check", BF16, "--rules", str(path), "--junit", same),
        "baseline": ("check", BF16, "--baseline", str(path), "--max-increase", "kl=1", "--junit", same),
        "dump": ("analyze", str(path), "--format", "jsonl", "-o", same),
    }
    refused(run(*commands[read]), 2, "part of the dump" if read == "dump" else f"and --{read} name the same file")
    assert path.read_text() == text


def test_a_dump_on_standard_input_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(LINES[:2000])
    for stream in ("stdin", "stdout"):
        with path.open("r+b") as file:
            args = [forked_command(), "filter", "-" if stream == "stdin" else BF16, "--preset", "token_is", "-o", path]
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, stream: file}
            done = subprocess.run(
                [*args, "--overwrite"], **streams, stderr=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS
            )
        assert done.returncode == 2, done.stderr
        assert ("part of the dump" if stream == "stdin" else "Standard output goes to") in done.stderr
    assert path.read_bytes() == LINES[:2000]


@pytest.mark.parametrize("option", ["-o", "--rejected-output", "--quarantine", "--junit"])
@pytest.mark.parametrize("name", ["-", ""])
def test_standard_output_and_nothing_are_no_files(
    option: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dump = jsonl(tmp_path / "d.jsonl", [row()])
    commands = {
        "-o": [("analyze", dump), ("plot", dump), ("filter", dump, "--preset", "token_is")],
        "--rejected-output": [("filter", dump, "--preset", "token_is", "-o", "x.jsonl")],
        "--quarantine": [("analyze", dump), ("inspect", dump), ("check", dump), ("plot", dump)],
        "--junit": [("check", dump)],
    }
    for args in commands[option]:
        refused(run(*args, option, name), 2)
    assert os.listdir() == ["d.jsonl"]


def test_a_quarantine_that_exists_is_refused_with_words_of_the_command(tmp_path: Path) -> None:
    old = tmp_path / "bad.parquet"
    old.write_bytes(OLD)
    for name in ("analyze", "inspect", "check", "plot"):
        ran = run(name, BF16, "--quarantine", str(old))
        refused(ran, 4, "bad.parquet exists", "name another file with --quarantine")
        assert "--overwrite" not in ran.err
    refused(run("filter", BF16, "--is", "token", "--dry-run", "--quarantine", str(old)), 4, "Add --overwrite")
    assert old.read_bytes() == OLD


def test_a_picture_that_exists_is_replaced_with_overwrite_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given, path in ((("-o", "p.png"), "p.png"), (("-o", "many"), "many/ratio.png"), ((), "smollm2_bf16.ratio.png")):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(OLD)
        args = ("plot", BF16, "--kind", "ratio", *given)
        refused(run(*args), 4, f"{path} exists", "Add --overwrite")
        assert Path(path).read_bytes() == OLD
        assert run(*args, "--overwrite").status == 0
        assert Path(path).read_bytes().startswith(b"\x89PNG")


def test_a_dump_that_is_read_twice_is_quarantined_once(tmp_path: Path) -> None:
    rows = [row(step=i, policy_version=0) for i in range(4)]
    dump = parquet(tmp_path / "d.parquet", [*rows, row(step=1, policy_version=0, old_log_probs=None)])
    given = ("--kind", "ratio", "--kind", "staleness", "--quarantine", str(tmp_path / "bad.parquet"))
    ran = run("plot", dump, *given, "--max-bad-fraction", "0.5", "-o", str(tmp_path / "pictures"))
    assert ran.status == 0, ran.err
    assert pq.read_table(tmp_path / "bad.parquet").num_rows == 1


IN_CONTAINER = """
import ctypes, os, subprocess, sys
from rlcorr_cli.commands.main import main

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
ctypes.CDLL(None).unshare(CLONE_NEWNS | CLONE_NEWPID)
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
assert os.getpid() == 1
main({args!r})
"""
"""A command in a namespace of process numbers, as by `unshare --pid --fork --mount-proc`."""


@pytest.mark.full
def test_two_containers_with_the_same_process_numbers_write_one_output(dump: str, tmp_path: Path) -> None:
    if subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, timeout=LIMIT_SECONDS
    ).returncode:
        pytest.skip("a namespace of process numbers is not permitted here")
    out = tmp_path / "out.jsonl"
    args = ["filter", dump, "--preset", "token_is", "-o", str(out), "--overwrite", "--limit"]
    rows = ("900", "1200")
    scripts = [IN_CONTAINER.format(args=[*args, n]) for n in rows]
    runs = [
        Process([forked_command(), "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for script in scripts
    ]
    for process in runs:
        _, err = process.communicate()
        assert process.returncode == 0, err
    lines = out.read_text().splitlines()
    assert str(len(lines)) in rows
    assert all(json.loads(line) for line in lines)
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_an_interrupt_cleans_up(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with started(forked_command(), "-", out) as process:
        assert process.stdin is not None
        process.stdin.write(LINES)
        process.stdin.flush()
        wait_for(lambda: is_writing(out), process)
        process.send_signal(number)
        assert process.wait(LIMIT_SECONDS) == 128 + number
        assert process.stderr is not None
        said = {signal.SIGINT: b"Interrupted: nothing was written.\n"}
        assert process.stderr.read() == said.get(number, b"")
    assert list(tmp_path.iterdir()) == []


KINDS_OF_OUTPUT = {
    **{
        f"report{suffix}": ("analyze", STEPS, "--group-by", "step", "-o", f"report{suffix}")
        for suffix in (".json", ".html", ".md", ".csv", ".rlcorr", ".tb")
    },
    "kept.jsonl": ("filter", BF16, "--preset", "geo_rs", "-o", "kept.jsonl"),
    "kept": ("filter", BF16, "--preset", "geo_rs", "--rows-per-file", "10", "-o", "kept"),
    "rejected.parquet": (
        "filter",
        BF16,
        "--preset",
        "geo_rs",
        "-o",
        "k.jsonl",
        "--rejected-output",
        "rejected.parquet",
    ),
    "picture.png": ("plot", BF16, "--kind", "ratio", "-o", "picture.png"),
    "converted.parquet": ("convert", BF16, "-o", "converted.parquet"),
    "checks.xml": ("check", BF16, "--junit", "checks.xml"),
    "base.json": ("check", BF16, "--update-baseline", "--baseline", "base.json"),
    "watch.rlcorr": ("watch", "followed.parquet", "--once", "--every", "0"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS_OF_OUTPUT)
def test_what_is_replaced_keeps_its_mode_and_its_group(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    group = 12 if os.getuid() == 0 else os.getgid()

    def permissions() -> dict[str, tuple[int, int]]:
        """Mode and group of the output and of what it holds."""
        found = [Path(name), *(Path(name).iterdir() if Path(name).is_dir() else ())]
        return {path.name.partition("tfevents")[0]: (path.stat().st_mode & 0o777, path.stat().st_gid) for path in found}

    command = KINDS_OF_OUTPUT[name]
    overwrite = [] if command[0] == "watch" or "--junit" in command or "--baseline" in command else ["--overwrite"]
    shutil.copy(BF16, "followed.parquet")
    assert run(*command).status == 0
    shutil.copy(BF16, "followed.parquet")
    for path in (*(Path(name).iterdir() if Path(name).is_dir() else ()), Path(name)):
        os.chown(path, -1, group)
        path.chmod(0o710 if path.is_dir() else 0o640)
    before, number = permissions(), Path(name).stat().st_ino
    assert run(*command, *overwrite).status == 0
    assert (permissions(), Path(name).stat().st_ino == number) == (before, False)
