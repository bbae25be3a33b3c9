"""A diagnosis in words: the text on a terminal is that of the sketches, and every form says the same."""

import contextlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from diagnoses import (
    ALL_NOISE,
    NOISE,
    NOISE_DUMP,
    SHIFTED,
    SOURCES,
    TOP_P,
    TOP_P_DUMP,
    WORKER,
    WORKER_DUMP,
    WORKERS,
    diagnosis,
    dump,
    group,
    level,
)

from rlcorr_cli.causes.diagnosis import CauseFinding, ColumnGap, Fact, NotLookedFor
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.show import print_result
from rlcorr_cli.show.diagnose import diagnosis_headline, parameter_in_words, verdicts_agreement


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def printed(of: DiagnosedDump, columns: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(out):
            print_result(of)
        out.seek(0)
        shown = out.read()
        assert max(map(len, shown.splitlines())) <= columns
        return shown

    return printed


Printed = Callable[..., str]

TOP_P_TEXT = """\
top_p08.parquet  48 sequences  4,340 tokens  k3_kl 0.0113  sd of log-ratio 0.156

  Likely cause: rollout_log_probs was logged after top-p 0.8 (0.787 to 0.808),
  old_log_probs was not. It explains at least 72% of the gap (the sum of
  squared log-ratios).
    rollout_log_probs is exactly 0 where old_log_probs is above log 0.794, and
    nowhere else: 1,605 tokens; 39 of 1,967 tokens contradict it. The mean
    ratio is 0.889 ± 0.014: training gives 11% of its probability to tokens
    that the rollout never samples.
    Return log-probs before truncation, or apply the same top-p in training.

  Up to 17% of the gap looks like rounding noise. No column stands out. Not
  checked: stale_policy (needs advantages or rewards).
  `rlcorr explain top_p` says how sure that is, and what else looks like it.
"""
WORKER_TEXT = """\
worker_temp09.parquet  48 sequences  4,340 tokens
k3_kl 0.00459  sd of log-ratio 0.0912

  Likely cause: worker w3. It explains at least 61% of the gap (the sum of
  squared log-ratios), on 23% of the tokens.
    Its tokens differ 5.2 times as much as the others' (z = 32). Inside it,
    the rollout used 0.9 times training's temperature (fit 0.897, R² 0.83).

  worker  tokens  gap  expected   size
  w3         23%  69%       17%  5.2 !
  w1         25%  11%       29%    0.6
  w0         26%  10%       28%    0.6
  w2         26%  10%       26%    0.5

  Up to 39% of the gap is not explained. Not checked: stale_policy (needs
  advantages or rewards).
  `rlcorr explain column` says how sure that is, and what else looks like it.
"""
NOISE_TEXT = """\
noise_bf16_fp32.parquet  48 sequences  4,340 tokens
k3_kl 0.00118  sd of log-ratio 0.0486

  Likely cause: rounding noise. It explains at most 89% of the gap (the sum of
  squared log-ratios).
    The log-odds differ by 0.072, equally at all levels of surprise (slope
    0.0003 ± 0.0008); 0% of it depends on the token (changed weights: 3% or
    more); no rows gain or lose as a whole; the mean ratio is 0.9999 ± 0.0012,
    so the tokens were drawn from rollout_log_probs.

  No column stands out.
  `rlcorr explain noise` says how sure that is, and what else looks like it.
"""


@pytest.mark.parametrize(
    ("of", "expected"),
    [(TOP_P_DUMP, TOP_P_TEXT), (WORKER_DUMP, WORKER_TEXT), (NOISE_DUMP, NOISE_TEXT)],
    ids=["top_p", "column", "noise"],
)
def test_the_terminal_names_the_cause_its_share_evidence_and_advice(of: DiagnosedDump, expected: str, text: Printed):
    assert text(of) == expected


def test_a_wide_terminal_has_longer_lines(text: Printed) -> None:
    assert (
        "  Likely cause: rollout_log_probs was logged after top-p 0.8 (0.787 to 0.808), old_log_probs was not. It"
        in text(TOP_P_DUMP, 120)
    )


def test_an_anomaly_that_voids_the_numbers_is_the_likely_cause_and_others_stand_below_it(text: Printed) -> None:
    shown = text(replace(TOP_P_DUMP, anomalies=(SHIFTED,)))
    assert "  Cause: shifted_columns. One column lies a token earlier or later than the\n  other.\n" in shown
    assert "    top_p08.parquet: old_log_probs lies one token later than" in shown
    assert "\n  Also: rollout_log_probs was logged after top-p 0.8" in shown
    assert "`rlcorr explain shifted_columns`" in shown


def test_an_order_of_files_is_told_first_and_leaves_the_verdict(text: Printed) -> None:
    shown = text(replace(TOP_P_DUMP, anomalies=(replace(SHIFTED, name="steps_out_of_order"),)))
    assert shown.index("? steps_out_of_order") < shown.index("Likely cause: rollout_log_probs was logged")


def test_further_causes_follow_with_their_evidence_and_minor_ones_in_one_line(text: Printed) -> None:
    first = text(dump(diagnosis("top_p", TOP_P, WORKER, columns=(WORKERS,))))
    share = "It explains at least 61% of the gap (the sum of squared\n  log-ratios), on 23% of the tokens.\n"
    also = f"  Also: worker w3. {share}"
    assert f"{also}    Its tokens differ" in first
    minor = text(dump(diagnosis("top_p", TOP_P, replace(WORKER, is_minor=True), columns=(WORKERS,))))
    assert also in minor
    assert "Its typical" not in minor


@pytest.mark.parametrize(
    ("verdict", "conclusion"),
    [
        ("no_cause", "No cause stands out: the largest is rounding noise, at most 46% of the gap."),
        ("none", "The two policies are equal but for rounding."),
        ("too_few", "Too little data to tell: 12 sequences, and a diagnosis takes 16."),
    ],
)
def test_without_a_cause_the_conclusion_says_so(verdict: str, conclusion: str, text: Printed) -> None:
    of = dump(diagnosis(verdict, conclusion=conclusion))
    assert diagnosis_headline(of) == conclusion
    shown = " ".join(text(of).split())
    assert conclusion in shown
    assert "Likely cause" not in shown
    assert "rlcorr explain" not in shown


def test_columns_that_stand_out_without_being_the_cause_are_named(text: Printed) -> None:
    of = dump(diagnosis("top_p", TOP_P, columns=(WORKERS, SOURCES)))
    assert "worker stands out, too, but is not the cause." in " ".join(text(of).split())
    crowded = dump(diagnosis("top_p", TOP_P, columns=(ColumnGap(column="group_id", levels=(), too_many=True),)))
    shown = " ".join(text(crowded).split())
    assert "Not compared, because of too many values: group_id." in shown
    assert "No column stands out" not in shown


def test_facts_and_what_was_not_looked_for_are_told(text: Printed) -> None:
    fact = Fact("grid", "old_log_probs lies on the grid of bf16.")
    lacking = (NotLookedFor("stale_policy", "rewards"), NotLookedFor("repetition_penalty", "token ids"))
    shown = " ".join(text(dump(diagnosis("top_p", TOP_P, facts=(fact,), not_looked_for=lacking))).split())
    assert (
        "Not checked: stale_policy (needs rewards), repetition_penalty (needs token ids). old_log_probs lies" in shown
    )


def test_turns_have_a_table_where_there_are_several(text: Printed) -> None:
    turns = tuple(level(turn, 0.3, 0.2 + 0.2 * turn, 0.3, None) for turn in range(3))
    shown = text(dump(diagnosis("top_p", TOP_P, turns=turns)))
    assert "  turn  tokens  gap  expected\n  1        30%  20%       30%\n" in shown
    assert "  turn " not in text(dump(diagnosis("top_p", TOP_P, turns=turns[:1])))


def test_of_many_levels_the_largest_gaps_are_shown(text: Printed) -> None:
    levels = tuple(level(f"w{i}", 0.05, 0.01 * i, 0.05, 1.0, hot=i == 11) for i in range(12))
    shown = text(dump(diagnosis("column", WORKER, columns=(ColumnGap(column="worker", levels=levels),))))
    lines = [line.split()[0] for line in shown.splitlines() if line.startswith("  w")]
    assert lines == ["worker", "w11", "w10", "w9", "w8", "w7", "w6", "w5", "w4"]
    assert "and 4 more levels" in shown


def steps(*verdicts: str) -> DiagnosedDump:
    causes: dict[str, tuple[CauseFinding, ...]] = {"top_p": (TOP_P, NOISE), "noise": (ALL_NOISE,)}
    groups = (group(diagnosis(v, *causes.get(v, ())), {"step": i}) for i, v in enumerate(verdicts))
    return dump(diagnosis("top_p", TOP_P, NOISE), *groups)


def test_each_group_has_a_line(text: Printed) -> None:
    shown = text(steps("top_p", "noise", "too_few"))
    assert "  step  tokens   k3_kl  verdict  parameter               share\n" in shown
    assert "  0      4,340  0.0113  top_p    0.794 (0.787 to 0.808)    72%\n" in shown
    assert "  2      4,340  0.0113  too few                              –\n" in shown


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("top_p", "top_p"), "All 2 groups agree."),
        (("top_p", "too_few"), "The one group with enough data agrees. 1 group has too little data."),
        (("top_p", "top_p", "too_few"), "All 2 groups with enough data agree. 1 group has too little data."),
        (("top_p", "noise", "no_cause"), "2 of 3 groups show another cause: noise at step 1, for example."),
        (("noise", "noise"), "No single group shows this cause: noise at step 0, for example."),
        (("too_few", "too_few"), "No group has enough data by itself."),
    ],
)
def test_whether_the_groups_agree_is_said(verdicts: tuple[str, ...], expected: str) -> None:
    assert verdicts_agreement(steps(*verdicts)) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "0%"), (0.004, "0.4%"), (0.015, "2%"), (0.724, "72%"), (1, "100%"), (1e-5, "< 0.01%")],
)
def test_shares_are_whole_percents(share: float, expected: str) -> None:
    assert percent(share) == expected


def test_no_share_is_said_to_be_at_least_all() -> None:
    assert replace(TOP_P, share=0.61, token_share=None).share_words == (
        "It explains at least 61% of the gap (the sum of squared log-ratios)"
    )
    assert replace(TOP_P, share=0.998, token_share=0.02).share_words == (
        "It explains 100% of the gap (the sum of squared log-ratios), on 2% of the tokens"
    )


def test_a_parameter_has_its_interval_if_it_has_one() -> None:
    assert parameter_in_words(TOP_P) == "0.794 (0.787 to 0.808)"
    assert parameter_in_words(WORKER) == "worker w3"
    assert parameter_in_words(NOISE) == "core 0.120"
    assert parameter_in_words(ALL_NOISE) == ""


@pytest.mark.parametrize(
    ("names", "verdict"),
    [(("cause",), "top_p"), (("min_p", "top_p"), "top_p"), (("noise",), "noise"), (("min_p",), None), ((), None)],
)
def test_a_run_fails_on_the_verdict_of_the_dump_or_of_a_group(names: tuple[str, ...], verdict: Any) -> None:
    assert replace(steps("top_p", "noise"), fail_on=names).failing == verdict
    assert replace(NOISE_DUMP, fail_on=("cause",)).failing is None
    assert replace(NOISE_DUMP, anomalies=(SHIFTED,), fail_on=("cause",)).failing == "shifted_columns"


def test_what_is_left_out_of_a_dump_is_said(text: Printed) -> None:
    counts = {**TOP_P_DUMP.whole.counts, "masked_tokens": 7, "bad_rows": 1}
    shown = text(replace(TOP_P_DUMP, whole=replace(TOP_P_DUMP.whole, counts=counts)))
    assert shown.splitlines()[1] == "not counted: 7 masked tokens, 1 bad row"


def test_of_too_little_nothing_else_is_said(text: Printed) -> None:
    assert "No column stands out" not in text(dump(diagnosis("too_few", conclusion="Too little data to tell.")))


def test_text_from_a_dump_sends_nothing_to_the_terminal(text: Printed) -> None:
    of = replace(WORKER, headline="worker \x1b[31mw3")
    assert "\x1b" not in text(dump(diagnosis("column", of, columns=(WORKERS,))))
