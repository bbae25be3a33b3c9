"""Rows and columns that were recorded wrongly: made of real noise by one mistake each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS
from numpy.typing import NDArray

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding, Diagnosis

Column = NDArray[np.float64]
ROWS = pq.read_table(DUMPS / "noise_bf16_fp32.parquet").to_pylist()
PROMPT = ROWS[len(ROWS) // 2]["group_id"]


def judged(change: Callable[[int, dict[str, Any], Column, Column], tuple[Column, Column]]) -> Diagnosis:
    """Of the rows with their rollout and training columns changed."""
    table: list[dict[str, Any]] = []
    for i, row in enumerate(ROWS):
        b, a = change(i, row, *(np.array(row[name]) for name in ("rollout_log_probs", "old_log_probs")))
        table.append(
            {
                **{name: row[name] for name in ("sample_id", "group_id", "token_ids")},
                "rollout_log_probs": b.tolist(),
                "old_log_probs": a.tolist(),
            }
        )
    return diagnose(pa.Table.from_pylist(table)).whole.diagnosis


def cause(found: Diagnosis, name: str) -> CauseFinding:
    """The verdict's, which must be this one."""
    assert found.verdict == name
    assert found.cause is not None
    return found.cause


def test_the_likeliest_token_s_log_prob_is_told_from_the_sampled_one_s() -> None:
    rng = np.random.default_rng(0)

    def top1(_i: int, _row: dict[str, Any], b: Column, a: Column) -> tuple[Column, Column]:
        p = np.exp(b)
        low = np.maximum(p, 0.3)
        top = np.log(low + rng.random(b.size) * np.maximum(0, 1 - p - low))
        return np.where((p < 0.5) & (rng.random(b.size) < 0.6), top, b), a

    diagnosed = judged(top1)
    found = cause(diagnosed, "top1_recorded")
    assert found.share > 0.9
    assert diagnosed.impossible is not None
    assert diagnosed.impossible.follows_from("top1_recorded")
    assert found.headline == "rollout_log_probs holds the log-prob of the likeliest token, not of the sampled one"


@pytest.mark.parametrize("wrong", ["old_log_probs", "rollout_log_probs"])
@pytest.mark.parametrize(("start", "since"), [(0.5, ", from about 5"), (0.0, "")])
def test_a_column_of_other_labels_is_told_from_one_of_likeliest_tokens(wrong: str, start: float, since: str) -> None:
    rng = np.random.default_rng(5)

    def labels(_i: int, _row: dict[str, Any], b: Column, a: Column) -> tuple[Column, Column]:
        right = a if wrong == "rollout_log_probs" else b
        other = np.minimum(np.log1p(-np.exp(np.minimum(right, -1e-6))), rng.normal(-10, 3, right.size))
        at = np.arange(right.size) >= start * right.size
        return (np.where(at, other, b), a) if wrong == "rollout_log_probs" else (b, np.where(at, other, a))

    found = cause(judged(labels), "wrong_labels")
    assert found.parameters["side"] == wrong
    assert found.headline.startswith(f"{wrong} is not of the sampled tokens{since}")
    assert found.certainty == "likely"


def test_rows_that_do_not_belong_together_are_no_rounding() -> None:
    """One column is on steps of 1/64 next to 0, and three rows hold those of others."""

    def rounded(i: int, _row: dict[str, Any], b: Column, a: Column) -> tuple[Column, Column]:
        of_row = np.resize(np.array(ROWS[i + 5]["old_log_probs"]), a.size) if i in (3, 17, 30) else a
        return b, np.minimum(-1 / 64, np.round(of_row * 64) / 64)

    found = judged(rounded)
    assert cause(found, "mispaired_rows").share > 0.95
    assert found.facts[0].sentence.endswith("is stored in steps of 0.0156: its rounding makes 0.03% of the gap.")


@pytest.mark.parametrize(("lost", "by"), [(2, -2), (-1, 1)])
def test_rows_that_slip_are_named_with_the_token_where_they_do(lost: int, by: int) -> None:
    def slip(i: int, _row: dict[str, Any], b: Column, a: Column) -> tuple[Column, Column]:
        half = b.size // 2
        if i % 3 or b.size < 40:
            return b, a
        slipped = np.r_[b[:half], b[half + lost :], np.zeros(lost)] if lost > 0 else np.r_[b[:half], -1.0, b[half:-1]]
        return slipped, a

    found = cause(judged(slip), "slipped_rows")
    assert found.parameters["by"] == by
    rows = {row["sample_id"]: len(row["token_ids"]) for row in ROWS}
    first = str(found.parameters["ids"]).split(", ")[0]
    assert abs(float(found.parameters["token"]) - rows[first] // 2) <= 3
    assert found.share > 0.9


@pytest.mark.parametrize("has_mispaired", [False, True])
def test_rows_that_are_shifted_from_their_start_are_called_so_and_others_mispaired(has_mispaired: bool) -> None:
    def shifted(i: int, _row: dict[str, Any], b: Column, a: Column) -> tuple[Column, Column]:
        if has_mispaired and i % 6 == 1:
            return b, np.resize(ROWS[(i + 12) % len(ROWS)]["old_log_probs"], b.size)
        return (b, np.r_[a[1:], a[0]]) if i % 6 == 0 else (b, a)

    found = judged(shifted)
    slipped = next(each for each in found.causes if each.cause == "slipped_rows")
    assert slipped.parameters["by"] == 1
    n_rows = len(range(0, len(ROWS), 6))
    assert 0.8 * n_rows <= float(slipped.parameters["rows"]) <= n_rows
    assert slipped.headline.startswith("rollout_log_probs lies 1 token later than old_log_probs in ")
    mispaired = [each for each in found.causes if each.cause == "mispaired_rows"]
    assert len(mispaired) == has_mispaired
    for each in mispaired:
        names = str(each.parameters["ids"]).split(", ")
        assert {ROWS.index(row) % 6 for row in ROWS if row["sample_id"] in names} == {1}


def test_rows_of_two_responses_do_not_slip() -> None:
    assert diagnose(DUMPS / "mispaired_5pct.parquet").verdict == "mispaired_rows"


def test_a_prompt_that_carries_the_gap_is_named() -> None:
    rng = np.random.default_rng(0)

    def of_prompt(_i: int, row: dict[str, Any], b: Column, a: Column) -> tuple[Column, Column]:
        off = (np.arange(a.size) >= 20) & (row["group_id"] == PROMPT)
        return b, np.where(off, np.minimum(0, a - np.abs(rng.normal(4, 2, a.size))), a)

    found = cause(judged(of_prompt), "column")
    assert found.parameters["column"] == "group_id"
    assert found.parameters["levels"] == PROMPT


def test_first_tokens_that_are_off_by_little_are_named_where_all_others_agree() -> None:
    rng = np.random.default_rng(0)

    def first(_i: int, _row: dict[str, Any], b: Column, _a: Column) -> tuple[Column, Column]:
        a = np.minimum(0, b + rng.normal(0, 1e-6, b.size))
        a[0] = min(0, b[0] + rng.choice([-0.25, -0.125, 0.125, 0.25]))
        return b, a

    found = cause(judged(first), "first_token")
    assert found.share > 0.9
    assert found.evidence[0].startswith("The typical relative error of such tokens is 0.")
