"""Every broken dump and every command that reads one: the documented status, two lines, and nothing left behind."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from broken import BROKEN
from few import few
from running import run, run_process

COMMANDS: dict[str, tuple[str, ...]] = {
    "analyze": ("{dump}",),
    "filter": ("{dump}", "--preset", "token_is", "-o", "{folder}/out.parquet"),
    "check": ("{dump}", "--max", "kl=9", "--junit", "{folder}/junit.xml"),
    "inspect": ("{dump}",),
}
"""Command -> its arguments."""
NARROW = ("analyze", "check", "inspect")
"""Commands that read only the columns they need."""
SHOWS = ("inspect",)
"""Commands that say on stdout what could be read, and count bad rows instead of stopping at them."""


def command_line(command: str, dump: str, folder: Path) -> list[str]:
    return [command, *(part.format(dump=dump, folder=folder) for part in COMMANDS[command])]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Where a broken dump is, by its name: built once, for all commands."""

    @cache
    def build(name: str) -> str:
        return BROKEN[name].build(tmp_path_factory.mktemp("in"))

    return build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where outputs would go, apart from the dump."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("command", few(COMMANDS, ("filter",)))
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_dump_is_refused(name: str, command: str, built: Callable[[str], str], folder: Path) -> None:
    broken, dump = BROKEN[name], built(name)
    if name == "no permission" and os.access(dump, os.R_OK):
        pytest.skip("this user may read everything")
    ran = run(*command_line(command, dump, folder))
    if broken.unneeded and command in NARROW:
        assert ran.status in ((0, 1) if command == "check" else (0,)), ran.err
        return
    if command in SHOWS and ran.status == 0:
        assert "\n  ! " in ran.out, "what is wrong is not told"
        assert ran.err == ""
        return
    assert ran.status == broken.status, ran.err
    assert "Traceback" not in ran.err
    lines = ran.err.split("\n")
    assert len(lines) == 3, ran.err
    assert lines[0].startswith("Error: ")
    assert lines[1], "no hint"
    assert lines[2] == ""
    assert ran.err.replace("\n", "").isprintable() or not os.fsencode(dump).isascii()
    told = ran.err + (" ".join(ran.out.split()) if command in SHOWS else "")
    for part in (*broken.says, *([Path(dump).name] if broken.named else [])):
        assert part in told
    if command not in SHOWS:
        assert ran.out == ""
    assert list(folder.iterdir()) == []


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 40


@pytest.mark.parametrize("name", ["NaN", "Parquet pages of zeros", "link to itself", "name with not UTF-8"])
def test_a_process_of_its_own_refuses_it_too(name: str, tmp_path: Path) -> None:
    ran = run_process("analyze", BROKEN[name].build(tmp_path))
    assert ran.status == 3
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 2
