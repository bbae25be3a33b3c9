"""Fuzz one reader: `python tests/fuzz/run.py parquet --seconds 600`.

Needs atheris (`pip install '.[fuzz]'`).  A run goes on after a finding, in a fresh process, until its time is over; the
inputs of findings are kept under --findings, and the status is then 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
MEMORY_MB = 4096
LONGEST_S = 20
"""For one input."""
TOLD_LINES = 40
KINDS = ("jsonl", "compressed", "parquet", "pickle", "torch", "msgpack")


def main() -> int:
    args = _arguments()
    if args.child:
        return child(args.reader, args.child, args.seconds, args.findings)
    with tempfile.TemporaryDirectory() as corpus:
        _write_seeds(args.reader, Path(corpus))
        return supervise(args.reader, Path(corpus), args.seconds, args.findings)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=KINDS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for inputs that fail")
    parser.add_argument("--child", metavar="CORPUS", help=argparse.SUPPRESS)
    return parser.parse_args()


def supervise(kind: str, corpus: Path, seconds: int, findings: Path) -> int:
    """Processes one after another until the time is over; 1 where one of them found something."""
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    executions, failed, end = 0, 0, time.monotonic() + seconds
    while (left := round(end - time.monotonic())) > 0:
        command = [sys.executable, __file__, kind, "--seconds", str(left), "--findings", str(findings)]
        done = subprocess.run([*command, "--child", str(corpus)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        counts = re.findall(r"^(?:Done|#)\s*(\d+)", text, re.MULTILINE)
        counts += re.findall(r"number_of_executed_units: (\d+)", text)
        executions += max(map(int, counts), default=0)
        if done.returncode:
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


def child(kind: str, corpus: str, seconds: int, findings: Path) -> int:
    """Run libFuzzer in this process; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=["rlcorr_cli"]):
        import harness
    import mutate

    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/{kind}-",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={LONGEST_S}",
        "-max_len=20000",
        "-print_final_stats=1",
        f"-dict={_dictionary(corpus)}",
    ]
    changed = mutate.MUTATORS.get(kind)

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        assert changed
        return changed(data, most, seed, atheris.Mutate)[:most]

    with_mutator = {"custom_mutator": mutator} if changed else {}
    atheris.Setup([sys.argv[0], *options, corpus], harness.HARNESSES[kind], **with_mutator)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(harness.folder(), ignore_errors=True)
    return 0


def _write_seeds(kind: str, corpus: Path) -> None:
    from seeds import SEEDS

    for name, data in SEEDS[kind]():
        (corpus / name.replace(" ", "-")).write_bytes(data)
    for path in (HERE / "regressions" / kind).glob("*"):
        shutil.copy(path, corpus)


def _dictionary(corpus: str) -> Path:
    from seeds import TOKENS

    path = Path(f"{corpus}.dict")
    entries = ("".join(f"\\x{byte:02x}" for byte in token.encode()) for token in TOKENS)
    path.write_text("".join(f'"{entry}"\n' for entry in entries))
    return path


if __name__ == "__main__":
    sys.exit(main())
