"""`rlcorr watch` on a job of 2,000 steps: whether each step is told once, and what a look costs at its end.

    python tests/benchmarks/watched_run.py                                # a folder
    python tests/benchmarks/watched_run.py --store --pace 0.3 --every 1   # a store, which is moto's: 15 minutes

Dumps come as tests/filling.py writes them: in pieces, with markers, some again.  The watch is killed (SIGKILL) at a
quarter of the steps and started again.  Printed are, for each tenth of the steps, the CPU time of the watch for a step
and its memory; and at the end the CPU time of a look with nothing new.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # before its own folder, which has a stores.py, too
from filling import RULE, Filling, cpu_and_memory
from pyarrow import fs

IDLE = 10
"""Seconds for which looks with nothing new are measured."""
LAG = 600
"""Seconds that the watch has to come to the end, once all is written."""
ALIKE, BACK = 100, 60
"""Steps after which a dump may be written again: not before it was read."""
SERVER = "import stores, time; print(stores.server(), flush=True); time.sleep(1e6)"


def command(*args: str) -> list[str]:
    """`rlcorr watch ARGS`."""
    return [sys.executable, "-m", "rlcorr_cli", "watch", *args]


def idle_look(watching: "subprocess.Popen[bytes]", every: float) -> float:
    """The CPU milliseconds of a look with nothing new, of a watch that has told all."""
    before = cpu_ns(watching.pid)
    time.sleep(IDLE)
    return (cpu_ns(watching.pid) - before) / 1e6 / (IDLE / every)


def cpu_ns(pid: int) -> int:
    """CPU nanoseconds of all threads of a process so far."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def main() -> None:
    """Fill, follow, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", default="0.5")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two steps")
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    started = time.perf_counter()
    server = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            if asked.store:
                server = subprocess.Popen(
                    [sys.executable, "-c", SERVER],
                    cwd=Path(__file__).parents[1],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                assert server.stdout is not None
                endpoint = server.stdout.readline().strip()
            os.chdir(folder)
            os.mkdir("run")
            os.environ["COLUMNS"] = "120"
            if server is None:
                place, filling = (
                    "run/",
                    Filling(fs.LocalFileSystem(), "run", asked.steps * 5 // 8, ALIKE, BACK, asked.pace / 8),
                )
            else:
                from stores import environment, files

                os.environ |= environment(endpoint)
                place, filling = (
                    "s3://dumps/run/",
                    Filling(files(endpoint), "dumps/run", asked.steps * 5 // 8, ALIKE, BACK),
                )
                filling.write(0)
            follow(filling, place, asked)
            print(f"state: {Path('watch.rlcorr').stat().st_size / 1e3:,.0f} kB")
        finally:
            if server is not None:
                server.kill()
                server.wait()
    print(f"in all {time.perf_counter() - started:.0f} s")


def follow(filling: Filling, place: str, asked: argparse.Namespace) -> None:
    """Write all steps while they are followed."""
    lines = Path("lines.txt")
    execute = "cat >> alarms.jsonl; echo >> alarms.jsonl"
    args = command(place, "--every", asked.every, "--max", RULE, "--exec", execute, "--tb", "curves")
    with lines.open("ab") as out:
        watching = subprocess.Popen(args, stdout=out, stderr=out)
        try:
            before, since, began = (0.0, 0.0), 0, time.perf_counter()
            for step in range(asked.steps):
                filling.write(step)
                time.sleep(asked.pace)
                if step == asked.steps // 4:
                    watching.kill()
                    watching.wait()
                    watching = subprocess.Popen(args, stdout=out, stderr=out)
                    before, since = (0.0, 0.0), step
                if (step + 1) % (asked.steps // 10) == 0:
                    now = cpu_and_memory(watching.pid)
                    each = 1e3 * (now[0] - before[0]) / (step + 1 - since)
                    told = sum(line[:8].strip().isdigit() for line in lines.read_text().splitlines())
                    after = f"{each:.1f} ms of CPU a step, {now[1]:.0f} MB, {told:,} lines told"
                    print(f"{step + 1:>6,} steps, {time.perf_counter() - began:.0f} s: {after}", flush=True)
                    before, since = now, step + 1
            deadline = time.monotonic() + LAG
            while filling.wrong(lines.read_text().splitlines(), asked.steps) and time.monotonic() < deadline:
                time.sleep(0.5)
            time.sleep(2)
            print(f"a look with nothing new: {idle_look(watching, float(asked.every)):.1f} ms of CPU")
            watching.send_signal(signal.SIGINT)
            status = watching.wait(30)
        finally:
            watching.kill()
    text = lines.read_text()
    for wrong in filling.wrong(text.splitlines(), asked.steps)[:10]:
        print(f"WRONG: {wrong}")
    n_alarms = len(Path("alarms.jsonl").read_text().splitlines())
    print(f"exit status {status}, {n_alarms} alarm by --exec, {text.count('(read again)')} steps read again")
    print(*text.splitlines()[-4:], sep="\n")
    print(f"event files: {sum(file.stat().st_size for file in Path('curves').iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
