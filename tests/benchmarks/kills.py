"""Kill runs at random moments, over every kind of output: old or new, and whole, and no litter after the next run.

    python tests/benchmarks/kills.py --kills 50

A run is killed a moment after it began to write, over older outputs and over none in turn.  Old is what comes of the
first 100 rows, new what comes of all; runs of the same rows write the same bytes, but for the time in event files.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from running import STEPS, forked_command

Contents = dict[str, bytes]
"""Output, or file of one that is a directory -> what it holds."""
MOMENTS = (0.0, 0.002, 0.01, 0.05, 0.2)
"""Seconds within which a run is killed once it began to write."""


@dataclass(frozen=True)
class Case:
    """A command and its outputs.  overwrite: what it is told in order to replace older ones."""

    args: tuple[str, ...]
    outputs: tuple[str, ...]
    overwrite: tuple[str, ...] = ()


def filtering(*args: str, outputs: tuple[str, ...]) -> Case:
    """A case of filter, with a plan that keeps some rows and rejects others."""
    return Case(("filter", "DUMP", "--rs", "ratio.seq_mean:0.999,1.001", *args), outputs, ("--overwrite",))


SKIP = ("--on-bad-row", "skip", "--max-bad-fraction", "0.5")
ASIDE = ("--quarantine", "bad.jsonl", "--max-bad-fraction", "0.5")
WORKERS = ("--engine", "processes", "--workers", "2")
GROUPED = ("analyze", "DUMP", *SKIP, "--group-by", "step")
DIFFED = ("diff", "DUMP", "DUMP", "--on-bad-row", "skip", "--group-by", "step")
FILES = ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet")
CASES = (
    *(filtering("-o", name, *SKIP, outputs=(name,)) for name in FILES),
    filtering("-o", "parts", "--rows-per-file", "50", *SKIP, outputs=("parts",)),
    filtering("-o", "a.jsonl", "--rejected-output", "no.jsonl", *ASIDE, outputs=("a.jsonl", "no.jsonl", "bad.jsonl")),
    Case((*GROUPED, "-o", "r.html", "-o", "r.csv"), ("r.html", "r.csv")),
    Case((*GROUPED, "-o", "r.md"), ("r.md", "r-figures")),
    Case((*GROUPED, "-o", "r.tb", "-o", "r.json"), ("r.tb", "r.json")),
    Case(("plot", "DUMP", *SKIP, "--kind", "ratio", "--kind", "weights", "-o", "pictures"), ("pictures",)),
    Case(("check", "DUMP", *SKIP, "--group-by", "step", "--junit", "r.xml"), ("r.xml",)),
    filtering("-o", "parts", "--rows-per-file", "50", *SKIP, *WORKERS, outputs=("parts",)),
    filtering("-o", "a.parquet", *SKIP, *WORKERS, outputs=("a.parquet",)),
    Case((*GROUPED, "-o", "r.rlcorr", "-o", "r.json"), ("r.rlcorr", "r.json")),
    Case(("compare", "DUMP", *SKIP, "--group-by", "step", "-o", "c.html", "-o", "c.json"), ("c.html", "c.json")),
    Case(("sweep", "DUMP", *SKIP, "--vary", "ratio.seq_mean", "-o", "s.csv", "-o", "s.svg"), ("s.csv", "s.svg")),
    Case((*DIFFED, "-o", "d.html", "--junit", "d.xml"), ("d.html", "d.xml")),
    Case(("diagnose", "DUMP", *SKIP, "-o", "y.html", "-o", "y.json"), ("y.html", "y.json")),
    Case(("convert", "DUMP", "-o", "v.parquet"), ("v.parquet",), ("--overwrite",)),
)


def contents(case: Case, folder: Path) -> dict[str, Contents]:
    """Each output, and what it holds; those that are not there hold nothing."""
    return {name: _contents(folder / name) for name in case.outputs}


def _contents(path: Path) -> Contents:
    if path.suffix == ".tb" and path.is_dir():
        (file,) = path.iterdir()
        return {"events": b"".join(_events(file.read_bytes()))}
    files = sorted(path.iterdir()) if path.is_dir() else [path] * path.exists()
    return {file.name: file.read_bytes() for file in files if not file.name.startswith(".")}


def _events(data: bytes) -> list[bytes]:
    """The records of an event file, without their first field, the time, and without their checksums."""
    records: list[bytes] = []
    while data:
        size = int.from_bytes(data[:8], "little")
        assert len(data) >= 16 + size, "half a record"
        records.append(data[12 + 9 : 12 + size])
        data = data[16 + size :]
    return records


def arguments(case: Case, dump: Path, *more: str) -> list[str]:
    """What follows `rlcorr`."""
    return [*(str(dump) if part == "DUMP" else part for part in case.args), *case.overwrite, *more]


def completed(case: Case, dump: Path, folder: Path, *more: str) -> dict[str, Contents]:
    """What a run writes that is not killed."""
    line = [forked_command(), *arguments(case, dump, *more)]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return contents(case, folder)


def killed(case: Case, dump: Path, folder: Path, choice: random.Random) -> bool:
    """Whether a run was killed before its end.  Which process it is, its temporaries tell."""
    line = [forked_command(), *arguments(case, dump)]
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        temporary = next(folder.rglob(".rlcorr-*"), None)
        if temporary is not None:
            time.sleep(choice.choice(MOMENTS) * choice.random())
            with suppress(ProcessLookupError):
                os.kill(int(temporary.name.split("-")[2]), signal.SIGKILL)
            break
    return process.wait() == -signal.SIGKILL


def kill_one(case: Case, dump: Path, folder: Path, choice: random.Random, *, over: bool) -> str:
    """Kill one run, look at what is there, and run it again.  Returns what the kill left, in words."""
    new = completed(case, dump, folder)
    for path in folder.iterdir():
        path.rename(folder.with_name(f"{folder.name}-{path.name}"))
    old = completed(case, dump, folder, "--limit", "100") if over else contents(case, folder)
    was_killed = killed(case, dump, folder, choice)
    after, litter = contents(case, folder), list(folder.rglob(".*"))
    aside = [path for path in litter if path.suffix == ".old"]
    for path in aside:  # an older directory, which a kill between two renames left under this name alone
        for name in [name for name, held in after.items() if not held][:1]:
            after[name] = _contents(path)
        shutil.rmtree(path)
    for name in case.outputs:
        # A directory of pictures is replaced picture by picture, and any other whole.
        pieces = after[name] if name in ("pictures", "r-figures") else {name: after[name]}
        for piece, held in pieces.items():
            either = [state[name].get(piece) if pieces is after[name] else state[name] for state in (old, new)]
            assert held in either, f"{name}, {piece}: neither old nor new"
    completed(case, dump, folder)
    assert not list(folder.rglob(".*")), "litter stays"
    assert completed(case, dump, folder) == new  # the run before says in its report what it removed
    state = "new" if after == new else "old" if after == old else "some old, some new"
    return f"{'killed' if was_killed else 'ended before'}, {state}, {len(litter)} temporaries left and removed"


def made(path: Path) -> Path:
    """The sample's rows as JSON lines, every eleventh of them bad."""
    rows = pq.read_table(STEPS).drop_columns(["sample_id"]).to_pylist()
    for row in rows[::11]:
        row["old_log_probs"] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def main() -> None:
    """Kill as many runs as are asked for; the first output that is neither old nor new ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as top:
        dump = made(Path(top) / "in.jsonl")
        for n in range(options.kills):
            case, over = CASES[n % len(CASES)], n // len(CASES) % 2 == 0
            folder = Path(top) / str(n)
            folder.mkdir()
            came = kill_one(case, dump, folder, choice, over=over)
            print(
                f"{n + 1:3d}  {case.args[0]} {', '.join(case.outputs)}, {'' if over else 'not '}there: {came}",
                flush=True,
            )
    print(f"{options.kills} kills: every output old or new and whole, no litter after the next run.")


if __name__ == "__main__":
    main()
