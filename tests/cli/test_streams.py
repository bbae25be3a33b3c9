"""Streams that are closed or full: stderr changes no result, a closed stdin or stdout is said; any width of COLUMNS."""

import os
import shlex
import subprocess
from pathlib import Path

import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import BF16, Ran, command, forked_command, run, run_installed

CLOSED, FULL = "2>&-", "2>/dev/full"
ENDS = {
    "a dump that is not there": (("analyze", "none.parquet"), 3),
    "with its traceback": (("analyze", "none.parquet", "--debug"), 3),
    "as JSON": (("analyze", "none.parquet", "--json"), 3),
    "an unknown option": (("analyze", BF16, "--presset", "x"), 2),
    "no such command": (("analyse",), 2),
}


def shell(redirection: str, *args: str, installed: bool = False, **env: str) -> Ran:
    """A command whose streams a shell redirects.  installed: one that is not forked, for each stream once."""
    line = f"{shlex.join([command() if installed else forked_command(), *args])} {redirection}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, env={**os.environ, **env}, timeout=LIMIT_SECONDS
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("stderr", [CLOSED, FULL])
@pytest.mark.parametrize("case", ENDS)
def test_without_stderr_an_error_keeps_its_status_and_stays_off_stdout(case: str, stderr: str) -> None:
    args, status = ENDS[case]
    assert shell(stderr, *args, installed=case == "no such command") == Ran(status, "", "")


@pytest.mark.parametrize("stderr", [CLOSED, FULL])
@pytest.mark.parametrize(("rule", "status"), [("kl=1", 0), ("kl=1e-9", 1)])
def test_without_stderr_a_check_says_the_same(rule: str, status: int, stderr: str) -> None:
    args = ("check", BF16, "--max", rule)
    assert shell(stderr, *args, GITHUB_ACTIONS="true") == Ran(status, run(*args).out, "")


def test_with_stderr_closed_no_output_takes_its_number(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.parquet")
    args = ("filter", BF16, "--preset", "token_is", "-o", kept)
    assert shell(f"{CLOSED} <&-", *args, installed=True).status == 0
    assert pq.read_table(kept).num_rows == 64


def test_a_closed_stdin_is_said() -> None:
    ran = shell("<&-", "analyze", "-", installed=True)
    assert (ran.status, ran.out) == (3, "")
    assert ran.err == "Error: Standard input is closed.\nPipe JSON lines to rlcorr, or name a file.\n"


def test_what_is_piped_is_known_for_what_it_is(tmp_path: Path) -> None:
    feather.write_feather(pq.read_table(BF16), tmp_path / "d.feather")
    for path, title in ((BF16, "Parquet"), (str(tmp_path / "d.feather"), "Arrow IPC")):
        ran = shell(f"<{shlex.quote(path)}", "analyze", "-")
        assert (ran.status, ran.out) == (3, "")
        assert ran.err.startswith(f"Error: standard input holds {title}: only JSON lines are read from it.\n")


@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
@pytest.mark.parametrize("args", [("analyze", BF16), ("check", BF16, "--json"), ("presets",)], ids=lambda args: args[0])
def test_a_closed_or_full_stdout_is_an_output_that_cannot_be_written(args: tuple[str, ...], stdout: str) -> None:
    ran = shell(stdout, *args, installed=args[0] == "presets")
    assert (ran.status, ran.out) == (4, "")
    assert "tandard output" in ran.err


@pytest.mark.parametrize("args", [("--help",), ("analyze", "--help"), ("--version",), ()], ids=" ".join)
def test_help_for_a_closed_stdout_is_an_output_that_cannot_be_written(args: tuple[str, ...]) -> None:
    ended = Ran(4, "", "Error: Standard output is closed.\nRedirect it to a file, or use -o FILE.\n")
    assert shell(">&-", *args, installed=True) == ended
    assert shell(f">&- {FULL}", *args, FORCE_COLOR="1") == Ran(4, "", "")


@pytest.mark.parametrize(("columns", "widest"), [("10000000", 500), ("9" * 5000, 80), ("0", 80), ("-5", 80), ("x", 80)])
def test_any_columns_give_a_width_of_this_world(columns: str, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (("analyze", BF16), ("analyze", "--help"), ("explain", "kl")):
        monkeypatch.setenv("COLUMNS", columns)
        ran = run(*args)
        assert ran.status == 0
        assert 40 < max(map(len, ran.out.splitlines())) <= widest


@pytest.mark.parametrize(("columns", "widest"), [("10000000", 500), ("wide", 80)])
def test_help_is_no_wider_for_what_typer_reads_at_its_start(columns: str, widest: int) -> None:
    ran = run_installed("analyze", "--help", env={"TERMINAL_WIDTH": columns})
    assert ran.status == 0
    assert 40 < max(map(len, ran.out.splitlines())) <= widest


def test_the_narrowest_terminal_still_holds_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    assert "sequences" in run("analyze", BF16).out
