"""A picture is the same, and nothing is said, whatever a user set for matplotlib elsewhere."""

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
from running import BF16, parquet, refused, row, run, run_lean

# Together in one process of pytest, which draws `ours` once.
pytestmark = pytest.mark.xdist_group("lean")
WARNED = """\
import sys, warnings
warnings.simplefilter("default")
from rlcorr_cli.commands.main import main
main(sys.argv[1:])
"""
HOSTILE = "text.usetex: True\naxes.facecolor: red\nnonsense: : x\naxes.grid: maybe\nsvg.fonttype: path\n"


def in_the_working_directory(folder: Path) -> dict[str, str]:
    (folder / "matplotlibrc").write_text(HOSTILE)
    return {}


def undecodable(folder: Path) -> dict[str, str]:
    (folder / "matplotlibrc").write_bytes(b"text.usetex: True \xff\xfe")
    return {}


def a_pipe(folder: Path) -> dict[str, str]:
    os.mkfifo(folder / "matplotlibrc")
    return {}


def at_home(folder: Path) -> dict[str, str]:
    settings = folder / "home" / ".config" / "matplotlib"
    (settings / "stylelib").mkdir(parents=True)
    (settings / "matplotlibrc").write_text(HOSTILE)
    (settings / "stylelib" / "x.mplstyle").write_bytes(b"\xff\xfe")
    return {"HOME": str(folder / "home")}


def by_variables(folder: Path) -> dict[str, str]:
    (folder / "elsewhere").write_text(HOSTILE)
    return {
        "MATPLOTLIBRC": str(folder / "elsewhere"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": "/proc/nothing",
        "TMPDIR": str(folder),
    }


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The picture as it is drawn without any settings."""
    path = tmp_path_factory.mktemp("ours") / "ours.svg"
    assert run("plot", BF16, "-o", str(path)).status == 0
    return path.read_bytes()


@pytest.mark.parametrize("settings", [in_the_working_directory, undecodable, a_pipe, at_home, by_variables])
def test_a_picture_knows_no_settings_of_the_users(
    settings: Callable[[Path], dict[str, str]], ours: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_lean(WARNED, "plot", BF16, "-o", "theirs.svg", env=settings(tmp_path))
    assert (ran.status, ran.err) == (0, "")
    assert (tmp_path / "theirs.svg").read_bytes() == ours
    assert not list(tmp_path.glob("matplotlib-*"))


def test_a_page_and_a_sheet_know_none_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = by_variables(tmp_path)
    for command, output in (("analyze", "r.html"), ("compare", "c.svg")):
        ran = run_lean(WARNED, command, BF16, "-o", output, "-q", env=env)
        assert (ran.status, ran.err) == (0, "")
        assert not list(tmp_path.glob("matplotlib-*"))


NOWHERE = """\
import sys, tempfile
from rlcorr_cli.commands.main import run
tempfile.tempdir = "/proc/nothing"
sys.exit(run(sys.argv[1:]))
"""


def test_without_any_place_for_its_fonts_there_are_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLCONFIGDIR", "/proc/nothing")
    refused(run_lean(NOWHERE, "plot", BF16, "-o", str(tmp_path / "x.png")), 4, "list of fonts", "MPLCONFIGDIR")


def test_settings_of_a_caller_are_put_back(ours: bytes, tmp_path: Path) -> None:
    with mpl.rc_context({"axes.facecolor": "red", "text.usetex": True, "svg.fonttype": "path"}):
        before, level = dict(mpl.rcParams), logging.getLogger("matplotlib").level
        assert run("plot", BF16, "-o", str(tmp_path / "inside.svg")).status == 0
        assert dict(mpl.rcParams) == before
        assert logging.getLogger("matplotlib").level == level
    assert (tmp_path / "inside.svg").read_bytes() == ours


def test_letters_that_its_fonts_lack_are_drawn_without_a_word(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(source=f"数学{i % 3}") for i in range(40)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = run("plot", dump, "--group-by", "source", "-o", str(tmp_path / "x.png"))
    assert (ran.status, ran.err) == (0, "")
