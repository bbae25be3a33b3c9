"""Where a gap sits: the steps, workers, sources, lags and prompts whose rows stand apart, and the step it began at."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rlcorr_cli import analyze, diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding, Diagnosis

STEPS, SAMPLES, PROMPTS, TOKENS = 12, 4, 8, 40
QUIET, LOUD = 0.03, 0.3


def run(size: Callable[[dict[str, Any]], float], *, seed: int = 0, lag: Callable[[int], int] | None = None) -> pa.Table:
    """A run of 12 steps of 8 prompts x 4 samples, each by one of 4 workers, whose log-odds differ by noise of a size
    that depends on the row.  lag: of a row's number within its step, else 0 in all."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for step in range(STEPS):
        for number in range(PROMPTS * SAMPLES):
            behind = 0 if lag is None else lag(number)
            row = {
                "step": step,
                "policy_version": step - behind,
                "group_id": f"{step}-{number // SAMPLES}",
                "worker": f"w{rng.integers(4)}",
                "data_source": f"s{number % 3}",
                "prompt_length": int(rng.integers(10, 400)),
            }
            u = rng.normal(1.0, 2.0, TOKENS)
            v = u + rng.normal(0.0, size({**row, "lag": behind, "number": number}), TOKENS)
            row |= {"rollout_log_probs": -np.logaddexp(0, -u), "old_log_probs": -np.logaddexp(0, -v)}
            rows.append(row)
    return pa.Table.from_pylist(rows)


def of(table: pa.Table) -> Diagnosis:
    return diagnose(table).whole.diagnosis


def first(table: pa.Table) -> CauseFinding:
    cause = of(table).cause
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    ("is_bad", "levels", "since"),
    [
        (lambda step: step >= 7, "7 to 11", 7),
        (lambda step: 4 <= step < 7, "4 to 6", 4),
        (lambda step: step % 4 == 3, "3, 7 and 11", 3),
        (lambda step: step == 9, "9", 9),
        (lambda step: step >= 1, "1 to 11", 1),
        (lambda step: step < 5, "0 to 4", None),
    ],
)
def test_a_run_says_at_which_steps_its_gap_sits_and_since_when(
    is_bad: Callable[[int], bool], levels: str, since: int | None
) -> None:
    cause = first(run(lambda row: LOUD if is_bad(row["step"]) else QUIET))
    assert (cause.parameters["column"], cause.parameters["levels"]) == ("step", levels)
    assert cause.parameters.get("since") == since


def test_a_gap_of_a_worker_is_the_workers_and_says_since_when() -> None:
    cause = first(run(lambda row: LOUD if row["worker"] == "w2" and row["step"] >= 6 else QUIET))
    assert (cause.cause, cause.parameters["column"], cause.parameters["levels"]) == ("column", "worker", "w2")
    assert cause.parameters["since"] == 6


@pytest.mark.parametrize(
    ("size", "column", "levels"),
    [
        (lambda row: LOUD if row["data_source"] == "s1" else QUIET, "data_source", "s1"),
        (lambda row: LOUD if row["worker"] in ("w0", "w3") else QUIET, "worker", "w0 and w3"),
    ],
)
def test_levels_that_stand_apart_together_are_named_together(
    size: Callable[[dict[str, Any]], float], column: str, levels: str
) -> None:
    cause = first(run(size))
    assert (cause.parameters["column"], cause.parameters["levels"]) == (column, levels)


def test_long_prompts_are_a_place_without_being_asked_for() -> None:
    cause = first(run(lambda row: LOUD if row["prompt_length"] > 300 else QUIET))
    assert cause.parameters["column"] == "prompt_length"
    assert str(cause.parameters["levels"]).endswith("to 399")


def test_a_lag_that_makes_the_gap_is_named_and_not_the_steps() -> None:
    cause = first(run(lambda row: LOUD if row["lag"] >= 3 else QUIET, lag=lambda number: number % 5))
    assert (cause.parameters["column"], cause.parameters["levels"]) == ("lag", "3 and 4")


def test_steps_that_make_the_gap_are_named_and_not_the_lag() -> None:
    cause = first(run(lambda row: LOUD if row["step"] >= 8 else QUIET, lag=lambda number: number % 5))
    assert (cause.parameters["column"], cause.parameters["since"]) == ("step", 8)


@pytest.mark.parametrize("seed", range(3))
def test_steps_of_a_gap_that_grows_slowly_begin_where_the_growth_does(seed: int) -> None:
    report = analyze(run(lambda row: QUIET * 1.4 ** max(0, row["step"] - 6), seed=seed))
    assert report.cause is not None
    assert report.course is not None
    assert report.course.rise is not None
    assert report.cause.cause == "column"
    assert report.cause.parameters["since"] == report.course.rise.since == 7


def test_loud_prompts_of_bad_steps_are_not_named_before_the_steps() -> None:
    def size(row: dict[str, Any]) -> float:
        return (4 * LOUD if row["number"] < SAMPLES else LOUD) if row["step"] in (3, 7) else QUIET

    assert first(run(size)).parameters["column"] == "step"


@pytest.mark.parametrize("seed", range(6))
def test_rows_alike_stand_apart_nowhere(seed: int) -> None:
    found = of(run(lambda row: QUIET, seed=seed, lag=lambda number: number % 3))
    assert "column" not in [cause.cause for cause in found.causes]
    assert not any(level.is_hot for column in found.columns for level in column.levels)


def test_a_temperature_at_some_steps_is_read_from_these_alone() -> None:
    rng = np.random.default_rng(3)
    table = run(lambda row: QUIET).to_pylist()
    for row in table:
        if row["step"] >= 8:
            u = rng.normal(1.0, 2.0, TOKENS)
            row["rollout_log_probs"] = -np.logaddexp(0, -u / 0.8)
            row["old_log_probs"] = -np.logaddexp(0, -u - rng.normal(0, QUIET, TOKENS))
    cause = first(pa.Table.from_pylist(table))
    assert (cause.parameters["column"], cause.parameters["since"]) == ("step", 8)
    assert cause.evidence[0].startswith("Steps 8 to 11 hold ")


def test_rows_of_a_fault_say_what_they_share() -> None:
    table = run(lambda row: QUIET).to_pylist()
    late = [row for row in table if row["step"] >= 10]
    for one, other in zip(late[::4], late[1::4], strict=True):
        one["old_log_probs"], other["old_log_probs"] = other["old_log_probs"], one["old_log_probs"]
    cause = first(pa.Table.from_pylist(table))
    assert (cause.cause, cause.parameters["levels"], cause.parameters["since"]) == ("mispaired_rows", "10 and 11", 10)
    assert cause.evidence[-1] == "Nearly all of these rows are of steps 10 and 11."


def test_rows_of_a_fault_that_stand_anywhere_share_nothing() -> None:
    table = run(lambda row: QUIET).to_pylist()
    for i in range(0, len(table) - 40, 40):
        table[i]["old_log_probs"], table[i + 21]["old_log_probs"] = (
            table[i + 21]["old_log_probs"],
            table[i]["old_log_probs"],
        )
    cause = first(pa.Table.from_pylist(table))
    assert cause.cause == "mispaired_rows"
    assert "column" not in cause.parameters


def test_a_column_rounded_from_a_step_on_is_told_with_its_steps() -> None:
    table = run(lambda row: QUIET / 10).to_pylist()
    for row in table:
        if row["step"] >= 6:
            row["rollout_log_probs"] = np.round(row["rollout_log_probs"], 2)
    found = of(pa.Table.from_pylist(table))
    assert (found.verdict, found.causes[0].parameters["since"]) == ("grid", 6)
    assert [fact.sentence for fact in found.facts if fact.sentence.startswith("At steps 6 to 11 rollout_log_probs is")]


def test_steps_that_are_the_rows_of_a_lag_are_said_beside_it() -> None:
    table = run(lambda row: LOUD if row["step"] >= 5 else QUIET).to_pylist()
    for row in table:
        row["policy_version"] -= 3 if row["step"] >= 5 else 0
    cause = first(pa.Table.from_pylist(table))
    assert (cause.cause, cause.parameters["levels"], cause.parameters["since"]) == ("stale_policy", "3", 5)
    assert "Nearly the same rows are of steps 5 to 11: " in " ".join(cause.evidence)


def test_rows_of_a_fault_do_not_hide_a_worker() -> None:
    table = run(lambda row: LOUD if row["worker"] == "w2" else QUIET).to_pylist()
    for one, other in zip(table[7::60], table[9::60], strict=True):
        one["old_log_probs"], other["old_log_probs"] = other["old_log_probs"], one["old_log_probs"]
    found = of(pa.Table.from_pylist(table))
    assert [(cause.cause, cause.parameters.get("levels")) for cause in found.causes[:2]] == [
        ("mispaired_rows", None),
        ("column", "w2"),
    ]
    assert sum(cause.share for cause in found.causes) <= 1


def turns(size: Callable[[int], float], *, seed: int = 0, divisor: int = 1) -> pa.Table:
    """64 rows of five turns of 12 to 24 tokens with tool output between them, whose log-odds differ by noise of a size
    that depends on the turn.  divisor: of the length of the first turn."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for i in range(64):
        columns: dict[str, list[Any]] = {"rollout_log_probs": [], "old_log_probs": [], "response_mask": []}
        for turn in range(1, 6):
            n, masked = int(rng.integers(12, 24)) // (divisor if turn == 1 else 1), int(rng.integers(3, 8))
            u = rng.normal(1.0, 2.0, n)
            v = u + rng.normal(0.0, size(turn), n)
            columns["rollout_log_probs"] += [*-np.logaddexp(0, -u), *[0.0] * masked]
            columns["old_log_probs"] += [*-np.logaddexp(0, -v), *[0.0] * masked]
            columns["response_mask"] += [1] * n + [0] * masked
        rows.append({"group_id": f"g{i // 8}", "worker": f"w{i % 4}", **columns})
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize(("is_bad", "levels"), [(lambda turn: turn == 3, "3"), (lambda turn: turn >= 4, "4 and 5")])
def test_a_turn_that_holds_the_gap_is_named(is_bad: Callable[[int], bool], levels: str) -> None:
    cause = first(turns(lambda turn: LOUD if is_bad(turn) else QUIET))
    assert (cause.cause, cause.parameters["column"], cause.parameters["levels"]) == ("column", "turn", levels)
    assert cause.share > 0.8
    assert f"Look at what stands before turn {levels}" in cause.advice


def test_a_turn_that_the_gap_leaves_out_is_seen_where_all_others_hold_it() -> None:
    cause = first(turns(lambda turn: QUIET if turn == 1 else LOUD, divisor=3))
    assert (cause.cause, cause.parameters["column"], cause.parameters["levels"]) == ("column", "turn", "2 to 5")


def test_turns_alike_stand_apart_nowhere() -> None:
    assert "column" not in [cause.cause for seed in range(4) for cause in of(turns(lambda _: QUIET, seed=seed)).causes]


def test_a_temperature_is_told_where_what_is_called_a_prompt_is_none() -> None:
    rng = np.random.default_rng(1)
    table = run(lambda row: QUIET).to_pylist()
    for row in table:
        u = rng.normal(3.0, 3.0, TOKENS)
        u *= np.where(rng.random(TOKENS) < 1 / (1 + np.exp(-u / 0.8)), 1, -1)  # the token that was sampled
        row |= {
            "token_ids": rng.integers(0, 50, TOKENS),
            "rollout_log_probs": -np.logaddexp(0, -u / 0.8),
            "old_log_probs": -np.logaddexp(0, -u - rng.normal(0, QUIET, TOKENS)),
        }
    cause = first(pa.Table.from_pylist(table))
    assert cause.cause == "temperature"
    assert cause.parameters["temperature"] == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("noise_of", "words"), [("row", "depends on more than"), ("prompt", "one side runs other")])
def test_log_probs_that_differ_between_rows_of_one_prefix_are_of_no_other_weights(noise_of: str, words: str) -> None:
    """As dropout where log-probs are taken makes them; other weights give one value to one prefix."""
    rng = np.random.default_rng(2)
    rows: list[dict[str, Any]] = []
    for prompt in range(24):
        u, of_prompt = rng.normal(1.0, 2.0, TOKENS), rng.normal(0.0, 0.6, TOKENS)
        for _ in range(SAMPLES):
            noise = rng.normal(0.0, 0.6, TOKENS) if noise_of == "row" else of_prompt
            row = {"group_id": f"g{prompt}", "token_ids": np.arange(TOKENS)}
            rows.append(
                row | {"rollout_log_probs": -np.logaddexp(0, -u), "old_log_probs": -np.logaddexp(0, -u - noise)}
            )
    cause = first(pa.Table.from_pylist(rows))
    assert cause.cause == "other_weights"
    assert words in cause.headline
