"""NeMo-RL's train_data_step{N}.jsonl, held to files of its own logger."""

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from tests.io.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "nemo-rl"
FILES = ("train_data_step1.jsonl", "train_data_step2.jsonl", "train_data_step3.jsonl", "train_data_step10.jsonl")
COLUMNS = (
    "rollout_log_probs",
    "old_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "sample_id",
    "source",
)


@pytest.mark.parametrize("name", [*FILES, "nan/train_data_step4.jsonl"])
def test_a_step_gives_the_rows_that_its_batch_held(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected("nemo-rl/expected.parquet", name), *COLUMNS)


def test_files_come_in_the_order_named_with_the_row_of_each() -> None:
    rows = rows_of([FOLDER / name for name in FILES])
    right = [row for name in FILES for row in expected("nemo-rl/expected.parquet", name)]
    agree(rows, right, *COLUMNS)
    assert [(row["source_file"], row["source_row"]) for row in rows] == [
        (str(FOLDER / row["file"]), row["row"]) for row in right
    ]


def test_log_probs_that_are_all_zero_are_no_policy() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / "on_policy" / "train_data_step5.jsonl"))
    assert "force_on_policy_ratio" in caught.value.hint


def test_values_that_are_not_finite_stop_analyze_and_name_their_row() -> None:
    with pytest.raises(DataError, match=r"train_data_step4\.jsonl, row"):
        analyze(str(FOLDER / "nan" / "train_data_step4.jsonl"))
