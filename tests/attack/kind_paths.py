"""Every output of every command at every kind of place, under every spelling; and every kind of place as the dump."""

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

from case import ANY, DATA, FAILS, OK, OUTPUT, USAGE, Case, Cases, SetUp, Surroundings, made, nothing, together, written
from commands import DUMPS, PLAN, READ_FILES, SWEPT, forms, forms_of_logs, output_options, parameters
from dumps_of import bad, log, part, sample
from values import N

DUMP, LOG = "dump.parquet", "log.jsonl"
DONE, REFUSED, EITHER = {OK}, {USAGE, OUTPUT}, {OK, USAGE, OUTPUT}
THESIS = "a thesis\n"


@dataclass(frozen=True)
class Place:
    """Where an output is to go.

    argument: what is typed for it, {name} being the output's own name.  ends: statuses.  make: what is there before,
    by the output's path.  at: where the output then is, if elsewhere.  unprivileged: see Surroundings.
    """

    argument: str
    ends: set[int]
    make: Callable[[Path], object] | None = None
    at: tuple[str, ...] = ()
    unprivileged: bool = False


def _directory(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def _in_linked(path: Path) -> None:
    _directory(path.parent.parent / "real")
    path.parent.rmdir()
    path.parent.symlink_to("real")


def _to_real(path: Path) -> None:
    (path.parent / "real").write_text(THESIS)
    path.symlink_to("real")


def to_directory(path: Path) -> None:
    holding(path.parent / "real")
    path.symlink_to("real")


def _hard(path: Path) -> None:
    (path.parent / "real").write_text(THESIS)
    path.hardlink_to(path.parent / "real")


def _closed(mode: int) -> Callable[[Path], None]:
    return lambda path: path.parent.chmod(mode)


def device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its address may not be long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def holding(path: Path) -> None:
    """A directory of somebody's own files, one of them with the name of a part."""
    _directory(path / "part-mine")
    (path / "part-mine" / "thesis.tex").write_text(THESIS)
    (path / "part-00000.parquet").write_bytes(b"another tool's")


def _thesis(path: Path) -> None:
    path.write_text(THESIS)


PLACES: dict[str, Place] = {
    "relative": Place("{name}", DONE),
    "absolute": Place("{here}/{name}", DONE),
    "dotted": Place("./{name}", DONE),
    "up and down": Place("a/../{name}", DONE, lambda path: _directory(path.parent / "a")),
    "up and down where nothing is": Place("none/../{name}", EITHER),
    "in a linked directory": Place("link/{name}", DONE, _in_linked, at=("real/{name}",)),
    "a linked file": Place("{name}", EITHER, _to_real, at=("{name}", "real")),
    "a linked directory": Place("{name}", EITHER, to_directory, at=()),
    "a link to nothing": Place("{name}", EITHER, lambda path: path.symlink_to("gone"), at=("{name}", "gone")),
    "a link to itself": Place("{name}", EITHER, lambda path: path.symlink_to(path.name)),
    "a second name": Place("{name}", EITHER, _hard),
    "no parent": Place("none/{name}", REFUSED),
    "in a file": Place("file/{name}", REFUSED, lambda path: (path.parent.rmdir(), path.parent.write_text(THESIS))),
    "in a directory to read": Place("a/{name}", {OUTPUT}, _closed(0o555), unprivileged=True),
    "in a closed directory": Place("a/{name}", {OUTPUT}, _closed(0), unprivileged=True),
    "a closed file": Place("{name}", EITHER, lambda path: (_thesis(path), path.chmod(0)), unprivileged=True),
    "300 characters": Place("x" * 300 + "{name}", REFUSED),
    "255 characters": Place("{long}", DONE, at=("{long}",)),
    "5000 characters": Place("y/" * 2_500 + "{name}", REFUSED),
    "empty": Place("", REFUSED),
    "-": Place("-", EITHER, at=()),
    ".": Place(".", REFUSED, at=()),
    "..": Place("..", REFUSED, at=()),
    "a device": Place("{name}", REFUSED, device),
    "a FIFO": Place("{name}", REFUSED, os.mkfifo),
    "a socket": Place("{name}", REFUSED, _socket),
    "an empty directory": Place("{name}", EITHER, _directory),
    "a directory of others' files": Place("{name}", EITHER, holding, at=()),
    "another's file": Place("{name}", EITHER, _thesis),
    "a slash behind": Place("{name}/", EITHER),
    "a new line": Place("a\nb{name}", EITHER, at=("a\nb{name}",)),
    "a command to GitHub": Place("##[error]x{name}", EITHER, at=("##[error]x{name}",)),
    "another command": Place("::error::x{name}", EITHER, at=("::error::x{name}",)),
    "an escape": Place("\x1b[31mx{name}", EITHER, at=("\x1b[31mx{name}",)),
    "no UTF-8": Place("\udcff{name}", EITHER, at=("\udcff{name}",)),
    "brackets": Place("[a]*{name}", DONE, at=("[a]*{name}",)),
    "a URI": Place("file://{here}/{name}", EITHER),
    "a URI of no store": Place("ftp://x/{name}", REFUSED),
}
"""Kinds of place."""

QUARANTINES, OTHERS = (".parquet",), ("", ".json", ".parquet")
DIRECTORIES = ("", ".tb")
SPELLINGS: dict[str, Callable[[str], tuple[SetUp, str]]] = {
    "alike": lambda name: (nothing, name),
    "dotted": lambda name: (nothing, f"./{name}"),
    "absolute": lambda name: (nothing, f"{{here}}/{name}"),
    "up and down": lambda name: (made(_directory, "a"), f"a/../{name}"),
    "by a linked directory": lambda name: (made(lambda path: path.symlink_to("."), "link"), f"link/{name}"),
    "by a link": lambda name: (made(lambda path: path.symlink_to(name), "linked-" + name), "linked-" + name),
}
"""How else one file can be called: what to make for it, and what to type."""


def cases() -> Cases:
    """All of them."""
    for (command, option), written_as in suffixes().items():
        for suffix in written_as:
            for overwrite in (False, True) if _has(command, "--overwrite") else (False,):
                for name, place in PLACES.items():
                    if command == "plot" and option == "--output" and name in (".", ".."):
                        continue  # pictures may go into a directory
                    yield _at(command, option, suffix, overwrite, name, place)
                yield _again(command, option, suffix, overwrite)
            yield from _over_what_is_read(command, option, suffix)
    yield from _twice()
    yield from _as_dump()


@cache
def suffixes() -> dict[tuple[str, str], tuple[str, ...]]:
    """Command and option -> suffixes of what it writes: those of its forms, else OTHERS."""
    found = {
        output: QUARANTINES if output[1] == "--quarantine" else OTHERS
        for output in output_options()
        if output != ("watch", "--quarantine")  # which it refuses
    }
    for output in found:
        options = {output[1], output[1].replace("--output", "-o")}
        tried = (
            "".join(path.partition(".")[1:])
            for form in (*forms(), *forms_of_logs())
            for option, path in pairwise(form.args)
            if form.args[0] == output[0] and option in options
        )
        found[output] = tuple(dict.fromkeys(tried)) or found[output]
    return found


def _has(command: str, option: str) -> bool:
    return any(name == command and option in parameter.opts for name, parameter in parameters())


def writes(command: str, option: str, suffix: str, argument: str, overwrite: bool) -> tuple[str, ...]:
    """A command that writes there, and nowhere else where it can be helped."""
    more: list[str] = [*{"filter": PLAN, "sweep": SWEPT}.get(command, ())]
    more += ["--max-bad-fraction", "1"] if option == "--quarantine" else []
    more += ["--group-by", "step"] if suffix == ".tb" else []
    more += ["-o", "first.parquet"] if command == "filter" and option != "--output" else []
    more += ["-o", "first.svg"] if command == "plot" and option != "--output" else []
    more += ["--kind", "ratio"] if command == "plot" else []
    more += ["--once", "--every", "0", "--state", "first.rlcorr"] if command == "watch" else []
    reads = {"diff": (DUMP, DUMP), "scalars": (LOG,)}.get(command, (DUMP,))
    return (command, *reads, *more, option, argument, *["--overwrite"] * overwrite)


FIRST = ("first.parquet", "first.svg", "first.rlcorr")
"""Outputs that `writes` has beside the one that is tried."""


def read_by(command: str, option: str) -> SetUp:
    """What the command reads."""
    return (
        written(LOG, log())
        if command == "scalars"
        else written(DUMP, (bad if option == "--quarantine" else sample)(".parquet"))
    )


def _at(command: str, option: str, suffix: str, overwrite: bool, name: str, place: Place) -> Case:
    own = f"out{suffix}"
    words = {"name": own, "long": "n" * (255 - len(suffix)) + suffix, "here": "{here}"}
    argument = place.argument.format(**words)
    typed = argument.replace("{here}/", "")
    path = typed if place.at or (place.make and "/" in typed and "a/.." not in typed) else own
    parent = made(_directory, os.path.dirname(path)) if os.path.dirname(path) else nothing
    at = tuple(where.format(**words) for where in place.at) if place.at or name in NOWHERE else (own,)
    if name in ("300 characters", "5000 characters", "no parent", "empty"):
        parent = nothing
    return Case(
        kind="paths",
        factors=(f"{command} {option}", suffix or "directory", "--overwrite" if overwrite else "new", name),
        args=writes(command, option, suffix, argument, overwrite),
        set_up=together(read_by(command, option), parent, made(place.make, path) if place.make else nothing),
        outputs=(*at, *FIRST),
        statuses=frozenset(_ends(command, place, name, suffix, overwrite)),
        rows=N,
        dump=DUMP,
        around=Surroundings(unprivileged=place.unprivileged),
    )


NOWHERE = ("-", ".", "..", "a directory of others' files", "a linked directory")
"""Places where nothing may come of the output, nor anything change."""


def _ends(command: str, place: Place, name: str, suffix: str, overwrite: bool) -> set[int]:
    ends = set(place.ends)
    if name == "an empty directory" and suffix not in DIRECTORIES:
        ends = REFUSED
    if name == "another's file" and suffix in DIRECTORIES:
        ends = REFUSED
    if name == "another's file" and command == "filter" and not overwrite:
        ends = REFUSED
    if name == "255 characters" and suffix == ".md":
        ends = EITHER  # its pictures have a longer name
    return ends | ({FAILS} if command == "check" and OK in ends else set())


def _again(command: str, option: str, suffix: str, overwrite: bool) -> Case:
    """The same command a second time."""
    args = writes(command, option, suffix, f"out{suffix}", overwrite)
    ends = {OK, OUTPUT} | ({FAILS} if command == "check" else set())
    if command == "filter":
        ends = {OK} if overwrite else {OUTPUT}
    return Case(
        kind="paths",
        factors=(f"{command} {option}", suffix or "directory", "--overwrite" if overwrite else "new", "its own output"),
        args=args,
        first=(args,),
        set_up=read_by(command, option),
        outputs=(f"out{suffix}", *FIRST),
        statuses=frozenset(ends),
        rows=N,
        dump=DUMP,
    )


def _over_what_is_read(command: str, option: str, suffix: str) -> Iterator[Case]:
    """An output that is the dump, a plan, rules or a baseline under another spelling."""
    reads = ["dump", *(read for read in READ_FILES if _has(command, read))]
    for read in reads:
        for spelling, spell in SPELLINGS.items():
            name = f"read{suffix or '.parquet'}" if read == "dump" else f"read{suffix or '.json'}"
            make, argument = spell(name)
            line = list(writes(command, option, suffix, argument, _has(command, "--overwrite")))
            if read == "dump":
                line[1] = name
                dump = bad if option == "--quarantine" else sample
                is_totals, is_log = (command, suffix) == ("analyze", ".rlcorr"), command == "scalars"
                files = written(name, part() if is_totals else log() if is_log else dump(".parquet"))
                line += [] if is_totals or is_log else ["--format", "parquet"]
            else:
                line += [read, name]
                files = together(read_by(command, option), written(name, READ_TEXTS[read]))
            yield Case(
                kind="paths",
                factors=(f"{command} {option}", suffix or "directory", f"over the {read}", spelling),
                args=tuple(line),
                set_up=together(files, make),
                statuses=frozenset((USAGE, OUTPUT, DATA)),
            )


READ_TEXTS = {
    "--plan": '{"name": "mine", "rejections": [{"statistic": "ratio", "scope": "seq_mean", "low": 0.5, "high": 2.0}]}',
    "--rules": '{"rule": [{"metric": "kl", "max": 1.0}]}',
    "--baseline": "{}",
    "--clean-dump": "{}",
    "--join": '{"rollout_log_probs": [-0.5], "sample_id": 1}',
    "--tokenizer": '{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}}',
    "--throughput": "lag,tokens_per_second\n0,15000\n",
}


def _twice() -> Iterator[Case]:
    """Two outputs of one run that are one file."""
    for command in (*DUMPS, "diff"):
        options = [option for name, option in output_options() if name == command]
        pairs = list(combinations(options, 2)) + [(option, option) for option in options if option == "--output"]
        for first, second in pairs:
            for spelling, spell in SPELLINGS.items():
                for suffix in (".parquet", ".jsonl", "") if command == "filter" else (suffixes()[command, first][0],):
                    yield _both(command, first, second, suffix, spelling, *spell(f"same{suffix}"))


def _both(command: str, first: str, second: str, suffix: str, spelling: str, make: SetUp, argument: str) -> Case:
    more = [] if "--output" in (first, second) or command == "check" else ["-o", "first.parquet"]
    args = (
        command,
        DUMP,
        *{"filter": PLAN, "sweep": SWEPT}.get(command, ()),
        first,
        f"same{suffix}",
        second,
        argument,
        *more,
    )
    several = first == second and command in ("plot", "filter")  # the last one holds
    return Case(
        kind="paths",
        factors=(f"{command} {first} {second}", suffix or "directory", "the same", spelling),
        args=(*args, "--max-bad-fraction", "1"),
        set_up=together(written(DUMP, bad(".parquet")), make),
        outputs=(f"same{suffix}", f"linked-same{suffix}") if several else (),
        statuses=frozenset({OK, USAGE, OUTPUT} if several else {USAGE, OUTPUT}),
    )


AS_DUMP: dict[str, tuple[Callable[[Path], object] | None, str]] = {
    "nothing": (None, "gone.parquet"),
    "empty name": (None, ""),
    "an empty directory": (_directory, "in"),
    "a directory of unknown files": (lambda path: (_directory(path), (path / "x.csv").write_text("a")), "in"),
    "a FIFO": (os.mkfifo, "in.parquet"),
    "a FIFO of lines": (os.mkfifo, "in.jsonl"),
    "a FIFO in a directory": (lambda path: (_directory(path), os.mkfifo(path / "in.parquet")), "in"),
    "a socket": (_socket, "in.jsonl"),
    "a device": (device, "in.jsonl"),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), "in.jsonl"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "in.parquet"),
    "a directory linked into itself": (
        lambda path: (_directory(path), (path / "loop").symlink_to("."), shutil.copy(path.parent / DUMP, path)),
        "in",
    ),
    "a closed file": (lambda path: (path.write_bytes(sample()), path.chmod(0)), "in.parquet"),
    "a closed directory": (lambda path: (_directory(path), path.chmod(0)), "in"),
    "in a closed directory": (lambda path: (path.write_bytes(sample()), path.parent.chmod(0)), "in/in.parquet"),
    "an empty file": (lambda path: path.write_bytes(b""), "in.parquet"),
    "an empty file of lines": (lambda path: path.write_bytes(b""), "in.jsonl"),
    "half a file": (lambda path: path.write_bytes(sample()[:-50]), "in.parquet"),
    "the other container": (lambda path: path.write_bytes(sample(".jsonl")), "in.parquet"),
    "5000 characters": (None, "y/" * 2_500 + "in.parquet"),
    "a new line": (lambda path: path.write_bytes(sample()), "a\nb.parquet"),
    "a command to GitHub": (lambda path: path.write_bytes(sample()), "##[error]x.parquet"),
    "another command": (lambda path: path.write_bytes(sample()), "::error::x.parquet"),
    "an escape": (lambda path: path.write_bytes(sample()), "\x1b[31mx.parquet"),
    "no UTF-8": (lambda path: path.write_bytes(sample()), "\udcff.parquet"),
    "no UTF-8, and missing": (None, "\udcff\x1b##[error].parquet"),
    "no pattern": (None, "none*.parquet"),
    "a broken pattern": (None, "[*.parquet"),
    "a URI": (None, "file:///none.parquet"),
    "a URI of a store": (None, "s3:///none/x"),
    "NUL": (None, "a%00b.parquet"),
}
"""What a dump may turn out to be -> how it is made, and its name."""
READ = ("a new line", "a command to GitHub", "another command", "an escape", "no UTF-8")


def _as_dump() -> Iterator[Case]:
    lines = {
        "analyze": (),
        "filter": (*PLAN, "-o", "out.jsonl"),
        "inspect": ("--worst", "1"),
        "convert": ("-o", "out.jsonl"),
        "check": ("--json",),
        "plot": ("--kind", "ratio"),
        "compare": ("--json",),
        "sweep": SWEPT,
        "diagnose": ("--json",),
        "diff": (DUMP, "--json"),
    }
    for command, more in lines.items():
        for name, (make, path) in AS_DUMP.items():
            yield Case(
                kind="paths",
                factors=(command, "as the dump", name),
                args=(command, path, *more),
                set_up=together(written(DUMP, sample()), made(make, path) if make else nothing),
                outputs=("out.jsonl", f"{Path(path).name.split('.')[0]}.ratio.png", "dump.ratio.png"),
                statuses=frozenset(
                    ANY | ({FAILS} if command == "check" else set()) if name not in READ else {OK, FAILS}
                ),
                around=Surroundings(unprivileged="closed" in name),
            )
