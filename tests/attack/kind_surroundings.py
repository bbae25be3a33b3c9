"""Commands in surroundings that nobody thinks of: streams closed or full, disks full, variables odd."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from case import (
    ANY,
    DATA,
    FAILS,
    OK,
    OUTPUT,
    USAGE,
    Case,
    Cases,
    SetUp,
    Surroundings,
    Unmade,
    made,
    nothing,
    together,
    written,
)
from commands import PLAN, Form, forms
from dumps_of import sample
from kind_paths import FIRST, read_by, suffixes, writes
from values import N
from warm import LIMIT_SECONDS

DUMP = "dump.parquet"
FULL = "/dev/full"
WITHOUT_DUMP = {
    "explain": ("explain", "kl"),
    "explain --schema": ("explain", "--schema"),
    "presets": ("presets",),
    "presets show": ("presets", "show", "geo_rs"),
    "help": ("analyze", "--help"),
    "usage": ("analyze", "--nonsense"),
    "missing dump": ("filter", "--dry-run", "none.parquet", *PLAN),
}
"""Name -> a command that reads no dump."""
BY_PROCESSES = Form(("filter", *PLAN, "--engine", "processes", "--workers", "2", "-o", "out.parquet"), ("out.parquet",))


def tried() -> dict[str, Form]:
    """Name -> a command in a form: each of `forms`, one by processes, and those without a dump."""
    plain = {name: Form(args) for name, args in WITHOUT_DUMP.items()}
    return plain | {form.name: form for form in (*forms(), BY_PROCESSES)}


@dataclass(frozen=True)
class Odd:
    """Odd surroundings.  ends: statuses where they change them.  set_up: what they take."""

    around: Surroundings
    ends: frozenset[int] | None = None
    set_up: SetUp = nothing


def _variables(**values: str | None) -> Surroundings:
    return Surroundings(environment=tuple(values.items()))


def _each(name: str, *values: str | None) -> dict[str, Odd]:
    return {f"{name}={'unset' if value is None else value}": Odd(_variables(**{name: value})) for value in values}


ODD: dict[str, Odd] = {
    "plain": Odd(Surroundings()),
    "stdin closed": Odd(Surroundings(stdin="")),
    "stdout closed": Odd(Surroundings(stdout=""), ANY),
    "stderr closed": Odd(Surroundings(stderr="")),
    "stdout and stderr closed": Odd(Surroundings(stdout="", stderr=""), ANY),
    "all closed": Odd(Surroundings(stdin="", stdout="", stderr=""), ANY),
    "stdout full": Odd(Surroundings(stdout=FULL), frozenset((OUTPUT,))),
    "stderr full": Odd(Surroundings(stderr=FULL)),
    "both full": Odd(Surroundings(stdout=FULL, stderr=FULL), frozenset((OUTPUT,))),
    "both full, all colours": Odd(
        Surroundings(stdout=FULL, stderr=FULL, environment=(("FORCE_COLOR", "1"),)), frozenset((OUTPUT,))
    ),
    **_each("COLUMNS", "", "0", "-1", "1", "2", "10", "100000", "10000000", "999999999999", "abc", "1.5"),
    **_each("LINES", "0", "abc"),
    **_each("TERM", "dumb", "", "xterm-256color", None),
    **_each("LANG", "C", "", "xx_YY.latin1", None),
    **_each("LC_ALL", "C", "POSIX", "de_DE.UTF-8"),
    **_each("NO_COLOR", "", "1"),
    **_each("HOME", None, "/none", "/dev/null", ""),
    **_each("TMPDIR", "/none", "", "/dev/null"),
    **_each("PATH", "", None),
    **_each("OMP_NUM_THREADS", "0", "-1", "abc", "100000"),
    **_each("CUDA_VISIBLE_DEVICES", "", "99", "abc"),
    **_each("POLARS_MAX_THREADS", "1", "0", "abc"),
    **_each("XDG_CONFIG_HOME", "/dev/null"),
    **_each("PYTHONWARNINGS", "ignore", "bogus"),
    **_each("GITHUB_ACTIONS", "true", "false", ""),
    **{
        f"GITHUB_STEP_SUMMARY is {name}": Odd(
            Surroundings(environment=(("GITHUB_ACTIONS", "true"), ("GITHUB_STEP_SUMMARY", path))), ANY
        )
        for name, path in {"missing": "/none/x", "a directory": "{here}", "full": FULL, "empty": ""}.items()
    },
    "an unreadable directory": Odd(
        Surroundings(here="closed", unprivileged=True),
        ANY,
        made(lambda path: (path.mkdir(), path.chmod(0o300)), "closed"),
    ),
    "an unwritable directory": Odd(
        Surroundings(here="closed", unprivileged=True),
        ANY,
        made(lambda path: (path.mkdir(), path.chmod(0o500)), "closed"),
    ),
}
"""Name -> surroundings that a warm server can make."""

FRESH: dict[str, Odd] = {
    "plain": Odd(Surroundings()),
    **_each("MPLBACKEND", "module://matplotlib_inline.backend_inline", "TkAgg", "bogus", ""),
    **_each("MPLCONFIGDIR", "/none/x", "/dev/null"),
    **_each("PYTHONUTF8", "0"),
    **_each("PYTHONIOENCODING", "ascii", "latin-1:replace"),
    "an ASCII locale": Odd(_variables(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")),
    "usetex": Odd(Surroundings(), None, written("matplotlibrc", "text.usetex: True\n")),
    "a broken matplotlibrc": Odd(
        Surroundings(), None, written("matplotlibrc", "font.size: huge\n\udcff: x\nnonsense\n")
    ),
    "a dark matplotlibrc": Odd(
        Surroundings(), None, written("matplotlibrc", "savefig.dpi: 100000\nbackend: TkAgg\nfigure.dpi: 1e9\n")
    ),
    "a module called torch": Odd(Surroundings(), None, written("torch.py", "raise SystemExit('mine')\n")),
    "stdout closed": Odd(Surroundings(stdout=""), ANY),
    "stderr closed": Odd(Surroundings(stderr="")),
    "all closed": Odd(Surroundings(stdin="", stdout="", stderr=""), ANY),
    "stdout full": Odd(Surroundings(stdout=FULL), frozenset((OUTPUT,))),
    "stderr full": Odd(Surroundings(stderr=FULL)),
}
"""Name -> surroundings that matter when Python and its libraries start."""


def cases() -> Cases:
    """All of them."""
    for name, form in tried().items():
        for odd, surroundings in ODD.items():
            yield _case(name, form, odd, surroundings)
        for odd, surroundings in FRESH.items():
            yield _case(name, form, f"fresh, {odd}", surroundings).within(fresh=True)
    yield from _standard_input()
    yield from _disks()


def _case(name: str, form: Form, odd: str, surroundings: Odd) -> Case:
    around = surroundings.around
    dump = f"{{here}}/{DUMP}" if around.here != "." else DUMP
    ends = surroundings.ends or usual(name, form)
    if name in ("usage", "missing dump") and OUTPUT in ends:
        ends = usual(name, form)  # it has nothing to say on stdout
    elif ends == ANY:
        ends |= usual(name, form)
    return Case(
        kind="surroundings",
        factors=(name, odd),
        args=form.args if name in WITHOUT_DUMP else form.on(dump),
        set_up=together(written(DUMP, sample()), surroundings.set_up),
        outputs=tuple(f"{around.here}/{output}".removeprefix("./") for output in form.outputs),
        statuses=frozenset(ends),
        rows=N,
        dump=DUMP if around.here == "." else None,
        around=around,
    )


def usual(name: str, form: Form) -> frozenset[int]:
    """How it ends where nothing is odd."""
    if form.args[0] == "plot" or "--row" in form.args:
        return ANY - {OUTPUT}  # not every kind has something to draw, nor every number a row
    alone = {"usage": USAGE, "missing dump": DATA}.get(name, FAILS if "--max" in form.args else OK)
    return frozenset({alone, FAILS} if form.args[0] in ("check", "watch") else {alone})


TWO_PASSES = ("--resample", "--target-keep", "--target-ess", "--repro")
"""Options with which a dump is read again, which standard input cannot be."""
STDIN: dict[str, tuple[str | None, SetUp]] = {
    "nothing": (None, nothing),
    "closed": ("", nothing),
    "lines": ("in", written("in", sample(".jsonl"))),
    "packed lines": ("in", written("in", sample(".jsonl.gz"))),
    "more packed lines": ("in", written("in", sample(".jsonl.zst"))),
    "Parquet": ("in", written("in", sample())),
    "half a line": ("in", written("in", sample(".jsonl")[:-9])),
    "noise": ("in", written("in", bytes(range(256)) * 40)),
}
"""Name -> what standard input is.  With a directory Python itself does not start."""


def _standard_input() -> Cases:
    for name, form in tried().items():
        if name not in WITHOUT_DUMP:
            for stdin, (path, set_up) in STDIN.items():
                usable = (
                    stdin.endswith("lines") and not form.beside_itself and not {"watch", *TWO_PASSES} & {*form.args}
                )
                yield Case(
                    kind="surroundings",
                    factors=(name, f"standard input is {stdin}"),
                    args=form.on("-"),
                    set_up=set_up,
                    outputs=form.outputs,
                    statuses=usual(name, form)
                    if usable
                    else ANY - ({OUTPUT} if form.args[0] == "inspect" else {OK, OUTPUT}),
                    around=Surroundings(stdin=path),
                )


def full_disk(inodes: bool) -> SetUp:
    """A small disk of its own, full of another's file."""

    def set_up(here: Path) -> None:
        (here / "full").mkdir()
        size = "size=1m,nr_inodes=2" if inodes else "size=16k"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"{size},mode=777", "none", str(here / "full")],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        if done.returncode:
            raise Unmade("no disk can be mounted")
        (here / "full" / "thesis").write_bytes(b"" if inodes else b"x" * 16_384)

    return set_up


def _disks() -> Cases:
    """Nothing of an output stays on a disk that is full, or beyond the largest file."""
    for (command, option), written_as in suffixes().items():
        for suffix in written_as:
            for disk, path, set_up, around in (
                ("a full disk", "full/out", full_disk(False), Surroundings()),
                ("a disk without inodes", "full/out", full_disk(True), Surroundings()),
                ("a largest file of 100 bytes", "out", nothing, Surroundings(largest_file=100, stdout="/dev/null")),
            ):
                yield Case(
                    kind="surroundings",
                    factors=(f"{command} {option} {suffix or 'directory'}", disk),
                    args=writes(command, option, suffix, f"{path}{suffix}", overwrite=False),
                    set_up=together(read_by(command, option), set_up),
                    outputs=FIRST if command == "watch" else (),
                    statuses=frozenset((OUTPUT,)),
                    around=around,
                )
