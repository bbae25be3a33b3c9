"""The manual's table of symptoms: a command on a dump in the question's likeness says what the table quotes."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from symptoms import MAKERS

from rlcorr_cli.commands import main

PAGE = Path(__file__).parent.parent / "rlcorr_cli" / "manual" / "symptoms.md"
TABLE = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)


def said(command: str) -> str:
    """What a command prints, in one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main.run(shlex.split(command)[1:])
    return " ".join(f"{out.getvalue()} {err.getvalue()}".split())


def test_every_question_has_its_row_and_its_dump() -> None:
    assert [int(number) for number, *_ in TABLE] == list(range(1, 25)) == sorted(MAKERS)


@pytest.mark.parametrize(("number", "commands", "says"), [(int(row[0]), row[2], row[3]) for row in TABLE])
def test_a_command_says_of_its_symptom_what_the_table_quotes(
    number: int, commands: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKERS[number](tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = " ".join(said(command) for command in re.findall(r"`(rlcorr [^`]+)`", commands))
    quotes = re.findall(r'"([^"]+)"', says)
    assert quotes
    for quote in quotes:
        assert quote in shown, shown
