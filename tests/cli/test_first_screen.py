"""What `analyze` prints first is one screen that a person acts on; `--all` has the rest."""

import re
from pathlib import Path

import pytest
from running import BF16, SAMPLE, STEPS, on_a_terminal, run

from rlcorr_cli import analyze
from rlcorr_cli.metrics.catalog import DEFINITIONS, shown_at
from rlcorr_cli.results.rules import worst_first
from rlcorr_cli.show.numbers import number
from rlcorr_cli.show.words import remedies_said_once

MOST_LINES = 40
CAUSES = Path(__file__).parents[1] / "diagnosis" / "causes"
COLLAPSE, WORKER = str(SAMPLE / "collapse.parquet"), str(CAUSES / "worker_temp09.parquet")
SAMPLES = [*SAMPLE.glob("*.parquet"), *(CAUSES / f"{name}.parquet" for name in ("combo_temp09_mispaired", "quant_fp8"))]


def screen(dump: str, *more: str) -> str:
    ran = run("analyze", dump, *more)
    assert ran.status == 0, ran.err
    return ran.out


def rows(text: str) -> dict[str, str]:
    """Number -> its row in the table of numbers that are judged."""
    (table,) = (block for block in text.split("\n\n") if block.startswith("  number "))
    return {line.split()[0]: line for line in table.splitlines()}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "dumps",
    [
        pytest.param(SAMPLES, id="some"),
        pytest.param([*CAUSES.glob("*.parquet")], id="all causes", marks=pytest.mark.full),
    ],
)
def test_the_first_screen_has_at_most_40_lines(dumps: list[Path], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert len(dumps) > 5
    texts = {dump.stem: screen(str(dump)).splitlines() for dump in dumps}
    assert {name: len(lines) for name, lines in texts.items() if len(lines) > MOST_LINES} == {}
    assert {name for name, lines in texts.items() if max(map(len, lines)) > width} == set()


def test_a_low_terminal_is_told_the_verdict_and_the_likely_cause_again_at_the_end() -> None:
    cause = "stale_policy"
    verdict = "Step 4, the last: apart; sequence-level importance weights are not usable from step 2 on."
    piped = " ".join(screen(STEPS).split())
    low, high = (" ".join(on_a_terminal("analyze", STEPS, lines=lines, NO_COLOR="1").split()) for lines in (24, 60))
    assert low.endswith(f" {verdict} Likely cause: {cause}.")
    assert [text.count(verdict) for text in (low, high, piped)] == [2, 1, 1]
    for text in (high, piped):
        assert text.endswith("explains a number.")


def test_all_prints_the_names_remedies_and_steps_that_the_first_screen_leaves_out() -> None:
    first, everything = screen(STEPS), screen(STEPS, "--all")
    report = analyze(STEPS)
    left_out = {name for name in shown_at("terminal") if name in report.metrics} - set(rows(first))
    assert {"chi2_token", "chi2_seq", "prob_pearson", "extreme_token_fraction"} <= left_out
    names = set(re.findall(r"\w+", everything))
    assert left_out <= names
    assert {name for name in re.findall(r"\w+", first) if name in DEFINITIONS} <= names
    remedies = [fix for fix in remedies_said_once(worst_first(report.health)) if fix]
    assert remedies
    for fix in remedies:
        assert fix in " ".join(everything.split())
        assert fix not in " ".join(first.split())
    step = r"^  4 +64 +5,493 "
    assert re.search(step, everything, re.MULTILINE)
    assert not re.search(step, first, re.MULTILINE)
    assert "log counts" in everything
    assert "log counts" not in first


@pytest.mark.parametrize("plan", [(), ("--preset", "seq_is")])
def test_the_table_names_the_worst_step_of_each_number_outside_its_limit(plan: tuple[str, ...]) -> None:
    shown, report = rows(screen(COLLAPSE, *plan)), analyze(COLLAPSE, preset=plan[-1] if plan else None)
    assert shown["number"].endswith("worst step")
    assert report.course is not None
    assert {broken.metric for broken in report.course.broken} >= {"k3_kl", "kl", "seq_ess", "prob_abs_diff_mean"}
    assert set(report.broken) <= set(shown)
    for broken in report.course.broken:
        (step,) = broken.worst.values()
        assert shown[broken.metric].endswith(f" {number(broken.worst_value)} at {step} !")


def test_without_steps_no_column_names_a_worst_one() -> None:
    assert "worst" not in screen(BF16)


def test_a_cause_that_a_column_shows_is_led_by_the_columns_name_and_any_other_by_its_own() -> None:
    assert "\n  ? worker  Likely cause: worker w3. It explains at least " in screen(WORKER)
    assert "\n  ! stale_policy  Likely cause: stale rollouts " in screen(STEPS)  # which the column lag shows
