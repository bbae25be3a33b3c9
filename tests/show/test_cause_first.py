"""The likely cause in the first lines of analyze: with advice only where a column could not turn it over."""

from pathlib import Path

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.commands import main
from rlcorr_cli.show.report import to_do

CAUSES = Path(__file__).parents[1] / "diagnosis" / "causes"


def first_lines(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.run(["analyze", str(CAUSES / f"{name}.parquet")]) == 0
    return " ".join(capsys.readouterr().out.split("\n\n")[1].split())


def test_a_cause_that_single_tokens_show_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    told = first_lines("top_p08", capsys)
    assert told.startswith("! top_p Cause: rollout_log_probs was logged after top-p 0.8")
    assert "apply the same top-p in training. `rlcorr diagnose` shows the evidence." in told


@pytest.mark.parametrize("name", ["top_p08", "quant_int8", "stale_hi_4", "softcap30"])
def test_commands_say_one_cause_in_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(CAUSES / f"{name}.parquet")
    headline = analyze(dump).story.headline
    assert headline.startswith(("Cause: ", "Likely cause: "))
    lines = (["analyze", dump], ["diagnose", dump], ["filter", dump, "--preset", "token_is", "--dry-run"])
    for line in lines:
        main.run(line)
        assert headline in " ".join(capsys.readouterr().out.split())


def test_what_to_do_begins_with_the_fault_that_was_named() -> None:
    first, *broken = to_do(analyze(str(CAUSES / "temp07_processed_vs_raw.parquet")))
    assert first == ("fail", "Fix temperature first", "Then measure again: broken limits may only follow from it.")
    assert broken
