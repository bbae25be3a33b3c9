"""Where a case runs: a directory made for it, its command in it, and all that lies there before and after."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from case import Case, Surroundings
from warm import LARGEST_FILE, LIMIT_SECONDS, ONE_THREAD, Ended, Server

INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the attack's own surroundings that a command sees."""
CACHES = (".cache", ".config")
"""What libraries keep in a home."""
SHM = Path("/dev/shm")
Tree = dict[str, str]
"""Path -> what lies there: its kind, mode and content."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What a command did.  here: the directory it ran in.  out, err: its streams; None where they were not caught."""

    case: Case
    here: Path
    ended: Ended
    out: bytes | None
    err: bytes | None
    before: Tree
    after: Tree

    @property
    def changed(self) -> dict[str, str]:
        """Path below `here`, or from the workplace -> made, changed or gone."""
        before, after = self.before, self.after
        changes = {path: "gone" for path in before if path not in after}
        changes |= {path: "made" for path in after if path not in before}
        return changes | {path: "changed" for path in after if path in before and before[path] != after[path]}


def try_case(case: Case, server: Server, folder: Path) -> Tried:
    """Set a case up in an empty directory, run its command, and see what became of it."""
    place, streams = folder / "place", folder / "streams"
    for path in (place / "here", place / "home", place / "tmp", streams):
        path.mkdir(parents=True)
    case.set_up(place / "here")
    for args in case.first:
        earlier = server.run(_request(replace(case, args=args, around=Surroundings()), place, streams))
        assert earlier.status == 0, (args, (streams / "2").read_text())
    if case.then:
        case.then(place / "here")
    for stream in streams.iterdir():
        stream.unlink()
    if case.around.unprivileged:
        _open_to_all(folder)
    before = tree(place)
    ended = server.run(_request(case, place, streams))
    return Tried(
        case=case,
        here=place / "here",
        ended=ended,
        out=_caught(streams / "1"),
        err=_caught(streams / "2"),
        before=before,
        after=tree(place),
    )


def _request(case: Case, place: Path, streams: Path) -> dict[str, object]:
    around = case.around
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), "LANG": "C.UTF-8", **ONE_THREAD}
    for name, value in around.environment:
        environment.pop(name, None)
        if value is not None:
            environment[name] = value.replace("{here}", str(place / "here"))
    opened = [
        caught if asked is None else asked and str(place / "here" / asked)
        for caught, asked in (
            (os.devnull, around.stdin),
            (str(streams / "1"), around.stdout),
            (str(streams / "2"), around.stderr),
        )
    ]
    return {
        "args": [arg.replace("{here}", str(place / "here")) for arg in case.args],
        "here": str(place / "here" / around.here),
        "environment": environment,
        "streams": opened,
        "largest_file": around.largest_file or LARGEST_FILE,
        "unprivileged": around.unprivileged,
        "program": installed() if around.fresh else None,
    }


def installed() -> str:
    """The console script."""
    path = shutil.which("rlcorr", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert path, "rlcorr is not installed"
    return path


def _caught(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _open_to_all(folder: Path) -> None:
    """A command without root's rights can write where nothing forbids it to."""
    for path in (folder.parent, folder, folder / "streams", folder / "place", *(folder / "place").iterdir()):
        path.chmod(path.stat().st_mode | 0o777)


def tree(place: Path) -> Tree:
    """All that lies in the workplace, by its path below `here`, or from `place` elsewhere."""
    found: Tree = {}
    for directory, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = Path(directory, name)
            relative = path.relative_to(place)
            if relative.parts[0] != "home" or not set(CACHES) & set(relative.parts):
                found["/".join(relative.parts[1:]) if relative.parts[0] == "here" else str(relative)] = _state(path)
    found.pop("", None)
    return found


def _state(path: Path) -> str:
    state = path.lstat()
    kind = stat.filemode(state.st_mode)
    if stat.S_ISLNK(state.st_mode):
        return f"{kind} {os.readlink(path)}"
    if stat.S_ISREG(state.st_mode):
        return f"{kind} {state.st_size} {blake2b(path.read_bytes()).hexdigest() if state.st_size < 100 << 20 else ''}"
    return f"{kind} {state.st_rdev}"


@contextmanager
def workplaces() -> Iterator[Path]:
    """A directory for workplaces, in memory where there is such a place; anybody can look into it."""
    folder = Path(tempfile.mkdtemp(prefix="rlcorr-attack-", dir=SHM if SHM.is_dir() else None))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """The workplace, and what is mounted in it."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", line.split()[1]], check=False, timeout=LIMIT_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
