"""The manual's page `record`: its loop runs, and its dump says what the page shows."""

import re
import runpy
from pathlib import Path

import pytest

from rlcorr_cli import diagnose
from rlcorr_cli.commands import main

PAGE = (Path(__file__).parents[2] / "rlcorr_cli" / "manual" / "record.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def test_the_toy_loop_is_recorded_and_its_fault_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(block("python"), encoding="utf-8")
    runpy.run_path("loop.py")
    assert len(list((tmp_path / "toy").iterdir())) == 4
    cause = diagnose("toy/").causes[0]
    assert cause.cause == "temperature"
    assert cause.parameters["temperature"] == pytest.approx(0.7, abs=0.005)
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["diagnose", "toy/"]) == 0
    assert block("text") in capsys.readouterr().out
