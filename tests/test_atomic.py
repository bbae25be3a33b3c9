"""Outputs appear whole or not at all, under one name each, and only in the place of what may be replaced."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from limits import LIMIT_SECONDS, LimitedProcess

from rlcorr_cli.errors import OutputError, UsageError
from rlcorr_cli.files import destinations
from rlcorr_cli.files.destinations import DUMP, Destination, check_run, sweep, temporary_name
from rlcorr_cli.files.outputs import Outputs

WAYS = ("links", "renames")
"""How a new file is given its name, and how where a file system has no links."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    leave_only(request.param, monkeypatch.setattr)
    return request.param


def leave_only(way: str, set_attribute: Callable[[object, str, object], None]) -> None:
    """Take the way away that is tried before this one."""

    def refused(*names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if way == "renames":
        set_attribute(os, "link", refused)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def holding(*names: str) -> Callable[[str, object], bool]:
    """A directory's own files."""
    return lambda name, opened: name in names


def publish(*contents: tuple[Destination, bytes]) -> None:
    with Outputs() as staging:
        for destination, content in contents:
            staging.write(destination, content, within="part" if destination.directory else "")
        staging.publish()


def test_a_temporary_is_hidden_short_and_never_the_same(tmp_path: Path) -> None:
    target = tmp_path / f"{'a' * 247}.parquet"
    names = {temporary_name(target) for _ in range(100)}
    assert len(names) == 100
    assert all(name.parent == tmp_path and name.name.startswith(".") and len(name.name) < 60 for name in names)
    publish((Destination(path=target), b"a"))
    assert left(tmp_path) == [target.name]


def test_a_new_file_is_published_where_nothing_is(tmp_path: Path, way: str) -> None:
    publish((Destination(path=tmp_path / "a"), b"ours"))
    assert (left(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"ours")


@pytest.mark.parametrize("directory", [False, True])
def test_what_came_meanwhile_is_replaced_with_overwrite_alone(tmp_path: Path, way: str, directory: bool) -> None:
    path = tmp_path / "a"
    file = path / "part" if directory else path
    for overwrite in (False, None, True):
        place = Destination(path=path, directory=directory, overwrite=overwrite, is_own=holding("part"))
        with Outputs() as ours:
            ours.write(place, b"ours", within="part" if directory else "")
            publish((Destination(path=path, directory=directory, overwrite=True, is_own=holding("part")), b"theirs"))
            if overwrite:
                ours.publish()
            else:
                with pytest.raises(OutputError, match="meanwhile"):
                    ours.publish()
        assert file.read_bytes() == (b"ours" if overwrite else b"theirs")
        assert left(tmp_path) == ["a"]


@pytest.mark.parametrize("directory", [False, True])
def test_what_comes_in_the_last_moment_is_not_replaced(
    tmp_path: Path, way: str, directory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    file = path / "part" if directory else path
    place = Destination(path=path, directory=directory, is_own=holding("part"))
    # After it was looked whether something is there, and before the name is given.
    call = "rename" if directory else "link"
    give = getattr(os, call)

    def late(temporary: Path, to: Path) -> None:
        monkeypatch.setattr(os, call, give)
        publish((Destination(path=path, directory=directory, overwrite=True, is_own=holding("part")), b"theirs"))
        give(temporary, to)

    with Outputs() as ours:
        ours.write(place, b"ours", within="part" if directory else "")
        monkeypatch.setattr(os, call, late)
        with pytest.raises(OutputError, match="meanwhile"):
            ours.publish()
    assert (file.read_bytes(), left(tmp_path)) == (b"theirs", ["a"])


def test_a_directory_whose_foreign_file_came_in_the_last_moment_is_put_back(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Destination(path=tmp_path / "a", directory=True, overwrite=True, is_own=holding("part"))
    publish((place, b"old"))
    rename = os.rename

    def late(old: Path, new: Path) -> None:
        if old == tmp_path / "a":
            (tmp_path / "a" / "thesis").touch()
        rename(old, new)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(OutputError, match=r"holds other files \(thesis\)"):
        publish((place, b"new"))
    assert (left(tmp_path), left(tmp_path / "a")) == (["a"], ["part", "thesis"])
    assert (tmp_path / "a" / "part").read_bytes() == b"old"


def test_outputs_of_one_run_appear_together_or_not_at_all(tmp_path: Path) -> None:
    first, second = Destination(path=tmp_path / "a"), Destination(path=tmp_path / "b")
    with Outputs() as staging:
        staging.write(first, b"ours")
        staging.write(second, b"ours")
        (tmp_path / "b").write_bytes(b"theirs")
        with pytest.raises(OutputError, match="b was written by another run meanwhile"):
            staging.publish()
    assert left(tmp_path) == ["b"]


def test_what_was_not_published_leaves_nothing(tmp_path: Path) -> None:
    with Outputs() as staging:
        staging.write(Destination(path=tmp_path / "a"), b"a")
        staging.write(Destination(path=tmp_path / "b", directory=True), b"b", within="part")
        staging.write(Destination(path=tmp_path / "c" / "d" / "e", makes_parents=True), b"e")
        assert len(left(tmp_path)) == 3
    assert left(tmp_path) == []


def test_a_new_directory_appears_with_all_that_is_in_it(tmp_path: Path) -> None:
    places = [Destination(path=tmp_path / "new" / "below" / name, makes_parents=True) for name in "ab"]
    with Outputs() as staging:
        for place in places:
            staging.write(place, b"x")
        assert not (tmp_path / "new").exists()
        staging.publish()
    assert (left(tmp_path), left(tmp_path / "new" / "below")) == (["new"], ["a", "b"])
    publish((Destination(path=tmp_path / "new" / "below" / "a", makes_parents=True, overwrite=True), b"y"))
    assert left(tmp_path / "new" / "below") == ["a", "b"]


def test_what_is_removed_goes_with_the_other_outputs(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    with Outputs() as staging:
        staging.write(Destination(path=tmp_path / "new"), b"new")
        staging.remove(Destination(path=tmp_path / "old", overwrite=True))
        staging.remove(Destination(path=tmp_path / "none", overwrite=True))
        assert left(tmp_path)[-1] == "old"
        staging.publish()
    assert left(tmp_path) == ["new"]


def test_a_temporary_that_was_taken_away_takes_no_older_output_with_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with Outputs() as staging:
        staging.write(Destination(path=tmp_path / "a", overwrite=True), b"new")
        (temporary,) = tmp_path.glob(".*")
        temporary.unlink()
        with pytest.raises(OutputError, match="No such file"):
            staging.publish()
    assert (tmp_path / "a").read_bytes() == b"old"


def test_what_has_a_temporarys_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    other = tmp_path / "other"
    other.write_bytes(b"other")
    temporary_name(tmp_path / "a").symlink_to(other)
    with pytest.raises(OutputError, match="File exists"):
        publish((Destination(path=tmp_path / "a"), b"ours"))
    assert other.read_bytes() == b"other"


def test_a_link_to_a_file_stays_and_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "real")
    publish((Destination(path=tmp_path / "link", overwrite=True), b"new"))
    assert (tmp_path / "link").is_symlink()
    assert (left(tmp_path / "there"), (tmp_path / "link").read_bytes()) == (["real"], b"new")


def killed_before_step(n: int, act: Callable[[], None]) -> bool:
    """Whether a process that does this was killed before its n-th step on files; False where it has fewer."""
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    steps = 0

    def count(event: str, arguments: object) -> None:
        nonlocal steps
        steps += event == "open" or event.startswith("os.")
        if steps == n:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        act()
    finally:
        os._exit(0)


def holdings(folder: Path) -> dict[str, bytes]:
    """The files below a folder but temporaries, by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {str(path.relative_to(folder)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".")}


OLDER = {"a": b"old", "gone": b"old", "d/part": b"old", "d/part 2": b"old"}
NEWER = {"a": b"new", "b": b"new", "d/part": b"new", "new/c": b"new"}


def publish_newer(folder: Path) -> None:
    own = holding("part", "part 2")
    with Outputs() as staging:
        staging.write(Destination(path=folder / "a", overwrite=True), b"new")
        staging.write(Destination(path=folder / "b"), b"new")
        staging.write(Destination(path=folder / "d", directory=True, overwrite=True, is_own=own), b"new", within="part")
        staging.write(Destination(path=folder / "new" / "c", makes_parents=True), b"new")
        staging.remove(Destination(path=folder / "gone", overwrite=True))
        staging.publish()


def kill_before_each_step(way: str, place: Path) -> None:
    """Publish, killed before step N, in place/N for every N; print the first that is not killed any more."""
    leave_only(way, setattr)
    for n in range(1000):
        folder = place / str(n)
        (folder / "d").mkdir(parents=True)
        for name, content in OLDER.items():
            (folder / name).write_bytes(content)
        if n == 0:
            publish_newer(folder)  # so that every module is loaded, which takes steps, too
        elif not killed_before_step(n, partial(publish_newer, folder)):
            print(n)
            return


def test_a_kill_at_any_step_leaves_old_or_new_and_the_next_run_no_litter(tmp_path: Path, way: str) -> None:
    # A process of its own, because a fork of one as large as this takes a tenth of a second.
    script = f"from test_atomic import *; kill_before_each_step({way!r}, Path({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.stdout, done.stderr or "it takes more steps than were tried"
    old, new, last, stepped_aside = OLDER, NEWER, int(done.stdout), 0
    assert last > 30
    for n in range(1, last + 1):
        folder = tmp_path / str(n)
        notes = sweep([folder])
        files = holdings(folder)
        for name in ("a", "b", "new/c", "gone"):
            assert files.get(name) in (old.get(name), new.get(name)), (n, name)
        parts = {name: content for name, content in files.items() if name.startswith("d/")}
        assert parts in [{name: one[name] for name in one if name.startswith("d/")} for one in (old, new)] or not parts
        # The older parts step aside for two renames; killed there, they stay and are named.
        aside = list(folder.glob(".*"))
        assert parts or aside
        for path in aside:
            assert (path.suffix, left(path)) == (".old", ["part", "part 2"]), n
            assert str(path) in notes[-1]
        stepped_aside += bool(aside)
    assert files == new
    assert stepped_aside


def spelled(folder: Path, name: str) -> dict[str, Path]:
    """One file in `folder`, which is the current directory, in several ways."""
    (folder.parent / "aside").symlink_to(folder)
    return {
        "relative": Path(name),
        "absolute": folder / name,
        "up and down": Path(f"../{folder.name}/{name}"),
        "through a linked directory": folder.parent / "aside" / name,
        "a link": folder / "link",
    }


@pytest.mark.parametrize("exists", [False, True])
def test_one_place_is_known_under_any_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ways = spelled(folder, "k.jsonl")
    (folder / "link").symlink_to(folder / "k.jsonl")
    if exists:
        (folder / "k.jsonl").touch()
        os.link(folder / "k.jsonl", folder / "hard")
        ways["a hard link"] = folder / "hard"
    for one in ways.values():
        for other in ways.values():
            outputs = (Destination(path=one), Destination(path=other, option="--quarantine"))
            with pytest.raises(UsageError, match="both outputs, -o and --quarantine"):
                check_run(outputs)
            with pytest.raises(UsageError, match="-o and --plan name the same file"):
                check_run(outputs[:1], [("--plan", other)])
            with pytest.raises(UsageError, match="is part of the dump"):
                check_run(outputs[:1], [(DUMP, str(other))])
    with pytest.raises(UsageError, match="both outputs"):
        check_run((Destination(path=Path("k.jsonl")), Destination(path=folder, directory=True)))
    check_run((Destination(path=Path("other.jsonl")),), [("--plan", "k.jsonl"), (DUMP, "l.jsonl")])


def test_a_directory_that_holds_what_is_read_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "d" / "below").mkdir(parents=True)
    (tmp_path / "d" / "below" / "in.parquet").touch()
    (tmp_path / "link").symlink_to(tmp_path / "d" / "below")
    with pytest.raises(UsageError, match="part of the dump"):
        check_run((Destination(path=tmp_path / "d", directory=True),), [(DUMP, str(tmp_path / "link" / "in.parquet"))])


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may have but 108 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


FOUND: dict[str, Callable[[Path], None]] = {
    "a FIFO": fifo,
    "a socket": listening,
    "a device": lambda path: path.symlink_to("/dev/null"),
    "a link to a directory": lambda path: path.symlink_to(path.parent),
    "a link that leads nowhere": lambda path: path.symlink_to(path.parent / "nowhere"),
    "a directory": Path.mkdir,
    "a regular file": Path.touch,
}


@pytest.mark.parametrize("directory", [False, True])
@pytest.mark.parametrize("kind", FOUND)
def test_what_is_found_is_named_and_only_the_same_kind_replaced(tmp_path: Path, kind: str, directory: bool) -> None:
    path = tmp_path / "out"
    FOUND[kind](path)
    before = os.lstat(path)
    place = Destination(path=path, directory=directory, overwrite=True)
    if kind == ("a directory" if directory else "a regular file"):
        check_run((place,))
        return
    with pytest.raises(OutputError, match=f"out is {kind}, (not a|and a link is not)"):
        check_run((place,))
    if not path.is_symlink():  # a link is followed when it is written, and was refused by then
        with pytest.raises(OutputError, match=f"out is {kind}, not a"):
            publish((place, b"ours"))
    assert (os.lstat(path).st_ino, os.lstat(path).st_mode, left(tmp_path)) == (before.st_ino, before.st_mode, ["out"])


def test_the_current_directory_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", "..", "/", str(tmp_path)):
        with pytest.raises(OutputError, match="current directory"):
            check_run((Destination(path=Path(name), directory=True, overwrite=True),))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_what_may_not_be_looked_at_is_an_error_of_two_lines(tmp_path: Path) -> None:
    closed, unlisted = tmp_path / "closed", tmp_path / "unlisted"
    for folder, mode in ((closed, 0o600), (unlisted, 0o333)):
        folder.mkdir()
        folder.chmod(mode)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        for place in (
            Destination(path=closed / "a"),
            Destination(path=closed / "below" / "a"),
            Destination(path=unlisted, directory=True, overwrite=True),
            Destination(path=tmp_path / "a"),
        ):
            with pytest.raises(OutputError, match="Cannot write") as refusal:
                check_run((place,))
            assert refusal.value.hint == "Name another place with -o."
        publish((Destination(path=unlisted / "a"), b"ours"))
    finally:
        os.seteuid(0)
    assert left(unlisted) == ["a"]


def gone() -> int:
    """The number of a process that is no more."""
    process = LimitedProcess([sys.executable, "-c", ""])
    process.wait(LIMIT_SECONDS)
    return process.pid


def named(folder: Path, *, host: str | None = None, pid: int | None = None, state: str = "part") -> Path:
    """A temporary as another process would call it."""
    pid = gone() if pid is None else pid
    return folder / f".rlcorr-{host or destinations._host()}-{pid}-{os.urandom(8).hex()}.{state}"


def test_litter_of_a_process_that_is_gone_is_removed_and_told_of(tmp_path: Path) -> None:
    named(tmp_path).write_bytes(b"12345")
    folder = named(tmp_path)
    folder.mkdir()
    (folder / "part-00000.parquet").write_bytes(b"678")
    (tmp_path / "a").touch()
    (note,) = check_run((Destination(path=tmp_path / "a", overwrite=True),))
    assert note.startswith(
        "Removed 2 unfinished outputs that killed runs had left beside this one's (8 bytes): .rlcorr"
    )
    assert left(tmp_path) == ["a"]
    assert check_run((Destination(path=tmp_path / "b"),)) == ()


def test_litter_of_a_directory_that_was_to_be_new_is_removed(tmp_path: Path) -> None:
    (named(tmp_path) / "below").mkdir(parents=True)
    assert check_run((Destination(path=tmp_path / "new" / "below" / "a", makes_parents=True),))
    assert left(tmp_path) == []


def test_litter_of_another_host_is_removed_after_a_day(tmp_path: Path) -> None:
    young, old, working = (named(tmp_path, host="00000000", pid=1) for _ in range(3))
    young.touch()
    old.touch()
    working.mkdir()
    (working / "part-00000.parquet").touch()
    long_ago = time.time() - destinations.OLD_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    os.utime(working, (long_ago, long_ago))  # its part is new
    (note,) = sweep([tmp_path])
    assert old.name in note
    assert left(tmp_path) == sorted((young.name, working.name))


def test_what_is_no_litter_is_not_touched(tmp_path: Path) -> None:
    dead = gone()
    named(tmp_path, pid=os.getpid()).touch()
    named(tmp_path, pid=1).touch()
    named(tmp_path).symlink_to(tmp_path)
    os.mkfifo(named(tmp_path))
    alike = named(tmp_path, pid=dead).name
    for name in (f"{alike}.gz", f"a{alike}", alike.replace(".part", ".csv"), alike.replace("rlcorr", "other")):
        (tmp_path / name).touch()
    (tmp_path / alike.replace(f"-{dead}-", f"-0{dead}-")).touch()
    before = left(tmp_path)
    long_ago = time.time() - destinations.OLD_SECONDS - 60
    for name in before:
        os.utime(tmp_path / name, (long_ago, long_ago), follow_symlinks=False)
    assert sweep([tmp_path]) == ()
    assert left(tmp_path) == before
    assert len(before) == 9


def test_an_older_output_that_stepped_aside_is_named_and_kept(tmp_path: Path) -> None:
    aside = named(tmp_path, state="old")
    aside.mkdir()
    (note,) = sweep([tmp_path])
    assert note == f"{aside} is an older output that a killed run had moved away; give it its name again, or delete it."
    assert aside.is_dir()


def test_a_process_that_nobody_has_reaped_is_gone(tmp_path: Path) -> None:
    process = LimitedProcess([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    named(tmp_path, pid=process.pid).touch()
    assert sweep([tmp_path])
    process.wait(LIMIT_SECONDS)
    assert left(tmp_path) == []
