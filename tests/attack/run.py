"""Attack the command line: `python tests/attack/run.py --minutes 10`.

Tries cases by lot until the time is over, or all of them (--all), or one by its name (--case), whose workplace then
stays (--keep).  Prints what was wrong by class, each with the command, and how many cases there were; the status is 1
where something was wrong.  Every case can be looked at again: `run.py --case NAME --keep DIR`.
"""

import argparse
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from case import Case, Unmade
from cases import KINDS, all_of, spread
from judge import wrong
from warm import Server
from workplace import Tried, remove, try_case, workplaces

TOLD_SECONDS = 20
"""How often --report is written anew."""
SHOWN = 4
"""Cases of one class that are printed."""


@dataclass
class Figures:
    """What came of the cases.  faults: class -> (fault, case)."""

    cases: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    unmade: Counter[str] = field(default_factory=Counter)
    faults: dict[str, list[tuple[str, Case]]] = field(default_factory=lambda: defaultdict(list))
    slowest: list[tuple[float, str]] = field(default_factory=list)
    largest: list[tuple[float, str]] = field(default_factory=list)

    def add(self, tried: Tried, faults: list[str]) -> None:
        """One more case."""
        case = tried.case
        self.cases[case.kind] += 1
        self.wrong[case.kind] += bool(faults)
        self.slowest = sorted([*self.slowest, (tried.ended.seconds, case.name)])[-5:]
        self.largest = sorted([*self.largest, (tried.ended.peak_mb, case.name)])[-5:]
        for fault in faults:
            kind = fault.split(":")[0]
            place = ":".join(fault.split(" ")[1:2]) if kind == "traceback" else case.args[0]
            self.faults[f"{kind} {place}"].append((fault, case))

    def text(self) -> str:
        """Figures and faults, the commonest class first."""
        total, bad = self.cases.total(), self.wrong.total()
        count = {
            name: sum(len(f) for kind, f in self.faults.items() if kind.startswith(name)) for name in ("trace", "hang")
        }
        lines = [f"{total:,} cases, {bad:,} wrong, {count['trace']:,} tracebacks, {count['hang']:,} hangs."]
        lines += [f"  {kind}: {n:,} cases, {self.wrong[kind]:,} wrong" for kind, n in self.cases.items()]
        lines += [f"  not made, {reason}: {n:,}" for reason, n in self.unmade.items()]
        lines += ["slowest (CPU s):", *(f"  {seconds:6.1f}  {name}" for seconds, name in self.slowest)]
        lines += ["largest (MB):", *(f"  {mb:6.0f}  {name}" for mb, name in self.largest)]
        for kind, faults in sorted(self.faults.items(), key=lambda item: -len(item[1])):
            lines += ["", f"## {kind}: {len(faults):,}"]
            for fault, case in faults[:SHOWN]:
                lines += [f"- {fault[:400]}", f"    {shown(case)[:300]}", f"    --case {shlex.quote(case.name)}"]
        return "\n".join(lines) + "\n"


def shown(case: Case) -> str:
    """The command line, with what is around it."""
    around = case.around
    words = [f"{name}={shlex.quote(value)}" for name, value in around.environment if value is not None]
    streams = [
        f"{sign}{path or '&-'}"
        for sign, path in zip("<>", (around.stdin, around.stdout), strict=True)
        if path is not None
    ]
    streams += [f"2>{around.stderr or '&-'}"] if around.stderr is not None else []
    return " ".join([*words, "rlcorr", *map(shlex.quote, case.args), *streams])[:500]


def main() -> int:
    args = _arguments()
    figures, server = Figures(), Server()
    end = time.monotonic() + 60 * args.minutes if args.minutes else None
    told = time.monotonic()
    with workplaces() as folder:
        for i, case in enumerate(_chosen(args)):
            if end is not None and time.monotonic() > end:
                break
            _try(case, server, args.keep or folder / str(i), figures, args)
            if args.report and time.monotonic() > told + TOLD_SECONDS:
                told = time.monotonic()
                _write(args.report, figures)
    server.close()
    _write(args.report, figures)
    return 1 if figures.faults else 0


def _try(case: Case, server: Server, place: Path, figures: Figures, args: argparse.Namespace) -> None:
    """One case; all that it printed where it was asked for by its name."""
    try:
        tried = try_case(case, server, place)
        faults = wrong(tried)
        figures.add(tried, faults)
        if args.case:
            _tell(tried, faults)
    except Unmade as reason:
        figures.unmade[str(reason)] += 1
    if not args.keep:
        remove(place)


def _write(report: Path | None, figures: Figures) -> None:
    text = figures.text().encode(errors="backslashreplace")
    if report:
        report.write_bytes(text)
    else:
        sys.stdout.buffer.write(text)


def _chosen(args: argparse.Namespace) -> Iterator[Case]:
    """The cases that were asked for."""
    kinds = args.only or list(KINDS)
    if args.case:
        kind = args.case.split(" / ")[0]
        yield from (case for case in all_of(kind) if case.name == args.case)
        return
    if not args.all:
        yield from (case for case in all_of("findings") if "findings" in kinds)
    cases = [case for kind in kinds for case in all_of(kind) if args.all or kind != "findings"]
    cases = [case for case in cases if args.match in case.name]
    Random(args.seed).shuffle(cases)
    yield from spread(cases)


def _tell(tried: Tried, faults: list[str]) -> None:
    print(
        shown(tried.case),
        f"status {tried.ended.status}, {tried.ended.seconds:.2f} s, {tried.ended.peak_mb:.0f} MB",
        sep="\n",
    )
    for name, stream in (("stdout", tried.out), ("stderr", tried.err)):
        print(f"--- {name}", (stream or b"").decode(errors="backslashreplace")[:6_000], sep="\n")
    print("--- changed", tried.changed, "--- wrong", *faults, sep="\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every case, however long it takes")
    parser.add_argument("--minutes", type=float, help="end after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the cases")
    parser.add_argument("--only", action="append", choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--match", default="", metavar="TEXT", help="only cases whose name holds this")
    parser.add_argument("--case", metavar="NAME", help="one case by its name, with all that it printed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="with --case: leave its workplace there")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was found there as it goes")
    args = parser.parse_args()
    if not (args.all or args.minutes or args.case):
        args.minutes = 3
    return args


if __name__ == "__main__":
    sys.exit(main())
