"""open-instruct's rollouts, held to files of its own writer."""

import math
from pathlib import Path

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import find_noting
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "open-instruct"
RUN = "grpo_smollm2__1__1786000000"
FILES = tuple(f"{RUN}_rollouts_00000{shard}.jsonl" for shard in (0, 1))
METADATA = f"{RUN}_metadata.jsonl"
RIGHT = "open-instruct/expected.parquet"
COLUMNS = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "source",
)


@pytest.mark.parametrize("name", FILES)
def test_a_shard_gives_the_responses_that_were_saved(name: str) -> None:
    rows, right = rows_of([FOLDER / name]), expected(RIGHT, name)
    agree(rows, right, *COLUMNS)
    assert [row["advantages"] for row in rows] == [row["advantage"] for row in right]


def test_a_run_gives_its_shards_in_order_and_leaves_out_what_describes_it(tmp_path: Path) -> None:
    for name in (*FILES, METADATA):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    agree(rows_of([tmp_path]), expected(RIGHT, *FILES), *COLUMNS)
    _, notes = find_noting([str(tmp_path)])
    assert f"{METADATA} is left out: it describes the run." in notes


def test_the_description_of_a_run_alone_holds_no_rollouts() -> None:
    with pytest.raises(DataError, match="it describes a run of open-instruct, and holds no rollouts"):
        rows_of([FOLDER / METADATA])


def test_the_token_of_an_empty_response_stays_nan() -> None:
    lone = [row["rollout_log_probs"] for row in rows_of([FOLDER / FILES[0]]) if len(row["token_ids"]) == 1]
    assert len(lone) == 1
    assert math.isnan(lone[0][0])


def test_analyze_says_that_the_trained_policy_is_not_saved() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / FILES[0]))
    assert "has no option for the trainer's" in caught.value.hint
