"""A job that fills a folder, or a prefix of a store, as jobs do: what `rlcorr watch` is to follow.

`Filling.write(step)` writes a dump under its name at once, in pieces, or with a marker beside it, in turn; some steps
are followed by an earlier one's dump, written again with other numbers.  From the step `far_from` on, the policies are
far apart.
"""

import io
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

CLOSE, FAR = 0.02, 0.15
RULE = "k3_kl=0.005"
"""Which the far steps alone break."""
ROWS, TOKENS = 20, 60
PIECES = 4
WAYS = "renamed", "in pieces", "marked"
EVERY_AGAIN = 8
"""After each so many steps, an earlier one's dump is written again."""


def dump(step: int, std: float, version: int = 0) -> bytes:
    """One of 20 sequences of 60 tokens as Parquet, whose log-ratios spread so far; a version is also another size."""
    random = np.random.default_rng([step, version])
    rollout = random.normal(-2, 0.3, (ROWS, TOKENS))
    train = np.minimum(rollout + random.normal(-std * std / 2, std, (ROWS, TOKENS)), -0.001)
    names = [f"{step}/{version}/{'again' * version}{i}" for i in range(ROWS)]
    columns = {"step": [step] * ROWS, "sample_id": names, "rollout_log_probs": [*rollout], "old_log_probs": [*train]}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@dataclass
class Filling:
    """root: below which the dumps lie in `files`.  alike: how many in a row are written in one way.
    back: how many steps before that is which is written again.  pause: seconds between two pieces.  again: the steps
    that were written again so far."""

    files: fs.FileSystem
    root: str
    far_from: int
    alike: int = 4
    back: int = 5
    pause: float = 0.0
    again: list[int] = field(default_factory=list[int])

    def write(self, step: int) -> None:
        """The dump of one step; and maybe an earlier one's again."""
        self._write(step, dump(step, self._std(step)), WAYS[step // self.alike % len(WAYS)])
        if step % EVERY_AGAIN == EVERY_AGAIN - 1:
            earlier = max(0, step - self.back)
            self._write(earlier, dump(earlier, self._std(earlier), version=1), "renamed")
            self.again.append(earlier)

    def _std(self, step: int) -> float:
        return FAR if step >= self.far_from else CLOSE

    def _write(self, step: int, content: bytes, way: str) -> None:
        path = f"{self.root}/step_{step}.parquet"
        if not isinstance(self.files, fs.LocalFileSystem):
            with self.files.open_output_stream(path, compression=None) as out:
                out.write(content)
        elif way == "in pieces":
            with Path(path).open("wb", buffering=0) as file:
                for start in range(0, len(content), -(-len(content) // PIECES)):
                    file.write(content[start : start + -(-len(content) // PIECES)])
                    time.sleep(self.pause)
        else:
            hidden = Path(self.root) / f".step_{step}"
            hidden.write_bytes(content)
            hidden.rename(path)
            if way == "marked":
                Path(f"{path}.done").touch()

    def wrong(self, lines: Iterable[str], n_steps: int) -> list[str]:
        """What is not as it should be in the lines that were printed: each step told once, each that was written again
        once more at most, and what is there now told at last; one alarm, at `far_from`."""
        told, again = Counter[int](), Counter[int]()
        alarms: list[str] = []
        for line in lines:
            if found := re.match(r" *(\d+)  +[\d,]+ ", line):
                (again if line.rstrip().endswith("(read again)") else told)[int(found[1])] += 1
            elif line.lstrip().startswith("ALARM"):
                alarms.append(line.strip())
        wrong = [f"step {step} was told {told[step]} times" for step in range(n_steps) if told[step] != 1]
        wrong += [f"step {step} was told again {n} times" for step, n in again.items() if n > self.again.count(step)]
        if len(alarms) != 1 or not alarms[0].startswith(f"ALARM  step {self.far_from}: k3_kl is"):
            wrong.append(f"alarms: {alarms}")
        return wrong


def cpu_and_memory(pid: int) -> tuple[float, float]:
    """CPU seconds of a process so far, and the MB that it has in memory."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
