"""A case of the attack: a workplace to set up, one command in surroundings of its own, and what is promised of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

SetUp = Callable[[Path], None]
"""Makes what the command is pointed at, in the directory that the command runs in."""


class Unmade(Exception):
    """This machine, or this user, cannot have what a case needs: a device, a disk of its own."""


OK, FAILS, USAGE, DATA, OUTPUT = 0, 1, 2, 3, 4
INTERRUPTED = (130, 143)
REFUSED = frozenset((USAGE, DATA, OUTPUT))
ANY = REFUSED | {OK}
"""Every status that a command but `check` may end with."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is around a command.

    environment: variables set, or (None) taken away.  stdin, stdout, stderr: a file to open; "" means closed, None an
    empty stdin, and streams that are caught.  largest_file: of what it writes, in bytes.  here: the directory that it
    runs in, below the workplace's.  unprivileged: without root's rights, where the attack has them.  fresh: as a
    process of Python's own, for what is read when Python or a library starts.
    """

    environment: tuple[tuple[str, str | None], ...] = ()
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    largest_file: int | None = None
    here: str = "."
    unprivileged: bool = False
    fresh: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command.

    set_up: makes what the command is pointed at; an Unmade from it means that this machine cannot have it.  first:
    commands that run before it, which must succeed; then: what is set up after them.
    factors: what tells the case from others of its kind, each a value of one dimension; they make its name.
    outputs: what the command may make or change, below its directory; all else must stay.  statuses: those it may end
    with.  rows: how many the dump holds, bad ones among them.  dump: the file whose columns `filter` carries through.
    says, unsaid: what the command's streams must and must not hold.  renewed: outputs that may not stay as they were.
    """

    kind: str
    factors: tuple[str, ...]
    args: tuple[str, ...]
    set_up: SetUp
    first: tuple[tuple[str, ...], ...] = ()
    then: SetUp | None = None
    outputs: tuple[str, ...] = ()
    statuses: frozenset[int] = ANY
    rows: int | None = None
    dump: str | None = None
    says: str = ""
    unsaid: str = ""
    renewed: tuple[str, ...] = ()
    around: Surroundings = field(default_factory=Surroundings)

    @property
    def name(self) -> str:
        """Its kind and factors, unique among all cases."""
        return " / ".join((self.kind, *self.factors))

    def within(self, **around: object) -> "Case":
        """The same in other surroundings."""
        return replace(self, around=replace(self.around, **around))


Cases = Iterator[Case]


def together(*parts: SetUp) -> SetUp:
    """One set-up after another."""

    def set_up(here: Path) -> None:
        for part in parts:
            part(here)

    return set_up


def written(name: str, content: bytes | str) -> SetUp:
    """A file of this content."""
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content

    def set_up(here: Path) -> None:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(data)

    return set_up


def made(make: Callable[[Path], object], name: str) -> SetUp:
    """Something else than a file, by a function of its path."""

    def set_up(here: Path) -> None:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            make(here / name)
        except PermissionError as error:
            raise Unmade(str(error)) from error

    return set_up


def nothing(here: Path) -> None:
    """Leaves the workplace empty."""
