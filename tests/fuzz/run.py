"""Fuzz readers, one after another: `python tests/fuzz/run.py parquet jsonl --seconds 600`.

Needs atheris (`pip install '.[fuzz]'`).  What is fuzzed is loaded once, and each run is forked from there.  A reader's
run goes on after a finding, in a fresh process, until its time is over; the inputs of findings are kept under
--findings, and the status is then 1.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr
from hashlib import sha1
from io import StringIO
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
MEMORY_MB = 4096
LONGEST_S = 20
"""For one input."""
TOLD_LINES = 40
KINDS = (
    "jsonl",
    "compressed",
    "parquet",
    "arrow",
    "pickle",
    "torch",
    "msgpack",
    "monitor",
    "sealed",
    "sqlite",
    "totals",
)


def main() -> int:
    args = _arguments()
    load()
    statuses = []
    for kind in args.readers:
        with tempfile.TemporaryDirectory() as corpus:
            statuses.append(fuzzed(kind, corpus, args.seconds, args.findings))
    return max(statuses)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="+", choices=KINDS, metavar="reader", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for inputs that fail")
    return parser.parse_args()


def load() -> None:
    """Import what is fuzzed, so that libFuzzer sees which of its branches are taken."""
    import atheris

    # It tells of every module.
    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["rlcorr_cli"]):
        import harness
    harness.folder()  # made here, because libFuzzer leaves a process without cleaning up


def fuzzed(kind: str, corpus: str, seconds: int, findings: Path) -> int:
    """Processes one after another until the time is over; 1 where one of them found something."""
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    executions, failed, end = 0, 0, time.monotonic() + seconds
    while (left := round(end - time.monotonic())) > 0:
        status, text = _forked(kind, corpus, left, findings)
        counts = re.findall(r"^(?:Done|#)\s*(\d+)", text, re.MULTILINE)
        counts += re.findall(r"number_of_executed_units: (\d+)", text)
        executions += max(map(int, counts), default=0)
        if status:
            failed += 1
            print(_told(text), flush=True)
            if not counts or not max(map(int, counts)):
                break  # it cannot even start, or a seed fails at once: the next process would do the same
    found = sorted(set(findings.iterdir()) - before)
    print(f"{kind}: {executions:,} executions, {failed} findings.", *found, sep="\n  ")
    return 1 if failed else 0


def _told(text: str) -> str:
    """What libFuzzer says about a finding, without its progress."""
    start = max(text.rfind("\n#"), 0)
    return "\n".join(text[start:].splitlines()[2:][-TOLD_LINES:])


def _forked(kind: str, corpus: str, seconds: int, findings: Path) -> tuple[int, str]:
    """Status and output of libFuzzer in a process of its own."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        pid = os.fork()
        if not pid:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                if not os.listdir(corpus):
                    _write_seeds(kind, Path(corpus))
                fuzz(kind, corpus, seconds, findings)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        log.seek(0)
        return os.waitstatus_to_exitcode(status), log.read()


def fuzz(kind: str, corpus: str, seconds: int, findings: Path) -> None:
    """Run libFuzzer in this process; it ends the process."""
    import atheris
    import harness
    import mutate

    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/{kind}-",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={LONGEST_S}",
        "-max_len=20000",
        "-print_final_stats=1",
        f"-dict={_dictionary(harness.folder())}",
    ]
    changed = mutate.MUTATORS.get(kind)

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        assert changed
        return changed(data, most, seed, atheris.Mutate)[:most]

    def kept(data: bytes) -> None:
        try:
            harness.HARNESSES[kind](data)
        except Exception:  # libFuzzer keeps the inputs of crashes alone
            (findings / f"{kind}-{sha1(data).hexdigest()}").write_bytes(data)
            raise

    with_mutator = {"custom_mutator": mutator} if changed else {}
    atheris.Setup([sys.argv[0], *options, corpus], kept, **with_mutator)
    atheris.Fuzz()


def _write_seeds(kind: str, corpus: Path) -> None:
    from seeds import SEEDS

    for name, data in SEEDS[kind]():
        (corpus / name.replace(" ", "-")).write_bytes(data)
    for path in (HERE / "regressions" / kind).glob("*"):
        shutil.copy(path, corpus)


def _dictionary(folder: Path) -> Path:
    from seeds import TOKENS

    path = folder / "tokens.dict"
    entries = ("".join(f"\\x{byte:02x}" for byte in token.encode()) for token in TOKENS)
    path.write_text("".join(f'"{entry}"\n' for entry in entries))
    return path


if __name__ == "__main__":
    sys.exit(main())
