"""Dumps that change while a command reads them: `python tests/fuzz/truncation.py [CONTAINER...] [--tries 100]`.

At a random moment one of the dump's files is cut short at a random byte, emptied, or cut and written again.  Whatever
the moment is, the command ends with the numbers of the whole dump, or with status 3 and two lines; never by a signal,
with a traceback, or with half an output.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).parents[1] / "cli"))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import native
from forked import forked_command

from rlcorr_cli.layouts.table import layout

ROWS, LENGTH = 2_000, 500
"""Of a dump that is no framework's."""
SEQUENCES = {"prime-rl": 24, "nemo-rl": 24}
"""Of 8,192 tokens, where a file of as many as N_SEQUENCES takes long to read."""
N_SEQUENCES = 96
LONGEST_S = 120
"""A command that takes longer hangs."""
NATIVE = tuple(native.CASES)
ONE_POLICY = {name for name in NATIVE if name == "slime:rollout" or not layout(name.partition(":")[0]).trained}
"""Files of the rollout policy alone, which are only converted."""


def table() -> pa.Table:
    draw = np.random.default_rng(0)
    values = -draw.exponential(0.5, ROWS * LENGTH).astype(np.float32)
    offsets = pa.array(np.arange(ROWS + 1, dtype=np.int32) * LENGTH)
    noisy = np.minimum(values + draw.normal(0, 0.01, len(values)).astype(np.float32), 0)
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(numbers))
        for name, numbers in (("rollout_log_probs", values), ("old_log_probs", noisy))
    }
    return pa.table({**lists, "text": ["a" * 1_000] * ROWS})


def _lines() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table().to_pylist())


def _packed(path: Path, codec: str) -> None:
    with pa.CompressedOutputStream(str(path), codec) as out:
        out.write(_lines())


def _ipc(path: Path, new: Callable[..., Any]) -> None:
    with pa.OSFile(str(path), "wb") as out, new(out, table().schema) as writer:
        writer.write_table(table(), max_chunksize=50)


PLAIN: dict[str, Callable[[Path], Any]] = {
    "d.parquet": lambda path: pq.write_table(table(), path, row_group_size=100),
    "d.jsonl": lambda path: path.write_bytes(_lines()),
    "d.jsonl.gz": lambda path: _packed(path, "gzip"),
    "d.jsonl.zst": lambda path: _packed(path, "zstd"),
    "d.arrow": lambda path: _ipc(path, pa.ipc.new_file),
    "d.ipc": lambda path: _ipc(path, pa.ipc.new_stream),
}
"""File -> how it is written."""
CONTAINERS = (*PLAIN, *NATIVE)


def written(container: str, folder: Path) -> None:
    """A dump of some ten MB or more, in files of this folder."""
    if container in PLAIN:
        PLAIN[container](folder / container)
    else:
        native.CASES[container]().write(folder, _step(SEQUENCES.get(container, N_SEQUENCES)))


def _step(n: int) -> list[native.Sequence]:
    """A step's sequences, no log-prob of which is above 0."""
    return [replace(one, trained=np.minimum(one.trained, 0).tolist()) for one in native.step(n)]


def commands(container: str) -> dict[str, tuple[str, ...]]:
    """Command -> its options; {out} is the file to be written."""
    output = "{out}.jsonl" if "json" in container else "{out}.parquet"
    convert = {"convert": ("-o", output)}
    if container in ONE_POLICY:
        return convert
    both = {"analyze": ("-o", "{out}.json"), "filter": ("--preset", "token_is", "-o", output)}
    return both if container in PLAIN else {**both, **convert}


@dataclass(frozen=True)
class Ended:
    """How a command ended.  told: its numbers, or its output's rows; left: files where the output goes."""

    status: int
    err: str
    told: Any
    left: tuple[str, ...]
    seconds: float

    def wrong(self, whole: "Ended") -> list[str]:
        """What it must not do, and did.  whole: how it ends where nothing changes."""
        lines = self.err.splitlines()
        found = {
            f"status {self.status}": self.status not in (0, 3),
            "other numbers": self.status == 0 and self.told != whole.told,
            "something left behind": self.left != (whole.left if self.status == 0 else ()),
            "a traceback": "Traceback" in self.err,
            "not two lines": self.status == 3 and (len(lines) != 2 or not lines[0].startswith("Error: ")),
        }
        return [what for what, so in found.items() if so]


def run(command: str, options: Sequence[str], dump: Path, out: Path, harm: Callable[[], None] | None = None) -> Ended:
    """The command on the dump; harm: done while it runs."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    started = time.monotonic()
    line = [forked_command(), command, str(dump), *(part.format(out=out / "out") for part in options)]
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        if harm:
            harm()
        status = process.wait(LONGEST_S)
        err.seek(0)
        files = sorted(out.iterdir())
        numbers = [_numbers(file) for file in files] if not status else []
        return Ended(status, err.read(), numbers, tuple(file.name for file in files), time.monotonic() - started)


def _numbers(file: Path) -> Any:
    """What an output says: all metrics of a report, the number of rows of a dump."""
    if file.suffix == ".json":
        return json.loads(file.read_bytes())["metrics"]
    return pq.read_metadata(file).num_rows if file.suffix == ".parquet" else file.read_bytes().count(b"\n")


def harmed(path: Path, chance: random.Random, seconds: float) -> None:
    """Wait for a moment of so many seconds, then cut the file short in one of the ways."""
    time.sleep(chance.uniform(0, seconds))
    data = path.read_bytes()
    size = chance.choice((0, 4096 * chance.choice((1, 5, 50)), chance.randrange(len(data)), len(data) - 1))
    os.truncate(path, min(size, len(data)))
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0, 0.05))
        path.write_bytes(data)


@dataclass
class Tried:
    """What came of the tries of one container."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


def tried(container: str, tries: int, seed: int, folder: Path) -> Tried:
    """Try it so often, in a folder of its own."""
    original, dump, out = (folder / name for name in ("original", "dump", "out"))
    original.mkdir()
    written(container, original)
    whole: dict[str, Ended] = {}
    for command, options in commands(container).items():
        for _ in range(2):  # the second one tells the time that it takes
            whole[command] = run(command, options, original, out)
        assert whole[command].status == 0, whole[command].err
    found, chance = Tried(), random.Random(f"{seed} {container}")
    for number in range(tries):
        command, options = chance.choice([*commands(container).items()])
        shutil.rmtree(dump, ignore_errors=True)
        shutil.copytree(original, dump)
        for path in dump.iterdir():  # a clock of files may not tell two writes within milliseconds apart
            os.utime(path, (10**9, 10**9))
        path = chance.choice(sorted(dump.iterdir()))
        seconds = whole[command].seconds
        ended = run(command, options, dump, out, lambda path=path, s=seconds: harmed(path, chance, s))
        told = ended.err.splitlines()[:1] or [""]
        is_told = "was changed while it was read" in told[0]
        found.outcomes[f"{ended.status}{', changed' if is_told else ''}"] += 1
        if wrong := ended.wrong(whole[command]):
            found.wrong.append(f"try {number}, {command}: {', '.join(wrong)}: {ended.err[-2000:]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("containers", nargs="*", metavar="container", help=", ".join(CONTAINERS))
    parser.add_argument("--tries", type=int, default=100, help="of each container")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    bad = 0
    for container in args.containers or CONTAINERS:
        with tempfile.TemporaryDirectory(prefix="rlcorr-cut-") as folder:
            found = tried(container, args.tries, args.seed, Path(folder))
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(found.outcomes.items()))
        print(f"{container}: {outcomes}; {len(found.wrong)} wrong", *found.wrong, sep="\n  ", flush=True)
        bad += len(found.wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
