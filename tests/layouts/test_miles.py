"""miles' dumps, held to files of its own writers."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.find import find, find_noting
from rlcorr_cli.reading.request import ReadRequest
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "miles"
TOKENS = ("rollout_log_probs", "response_mask", "token_ids")
GENERATED = (*TOKENS, "reward", "step", "group_id", "sample_id", "policy_version", "policy_version_end", "source")
TRAINED = (
    *TOKENS,
    *("old_log_probs", "ref_log_probs", "advantages", "normalized_reward", "step", "sample_id", "worker"),
    "policy_version",
)
IN_LOSS = (
    *("rollout_log_probs", "old_log_probs", "current_log_probs", "response_mask", "advantages"),
    *("worker", "call"),
)


@pytest.mark.parametrize("name", ["rollout_data/3.pt", "rollout_data/4.pt"])
def test_a_rollout_file_gives_the_sequences_that_were_sampled(name: str) -> None:
    right = expected("miles/expected_rollout.parquet", name)
    agree(rows_of([FOLDER / name]), right, *GENERATED, "status", "remove_sample")


@pytest.mark.parametrize("name", ["train_data/3_0.pt", "train_data/3_1.pt", "train_data/4_2.pt"])
def test_a_rank_gives_its_own_sequences(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected("miles/expected_train.parquet", name), *TRAINED)


def test_copies_are_read_once_and_stages_without_log_probs_left_out() -> None:
    agree(rows_of([FOLDER / "train_data"]), expected("miles/expected_train.parquet"), *TRAINED)
    notes = notes_of("train_data")
    assert any(note.startswith("4_0.pt: ranks of tensor parallelism hold the same sequences") for note in notes)
    assert any(note.startswith("4_0.pt: ranks of earlier pipeline stages") for note in notes)


def test_slices_of_context_parallelism_are_put_together() -> None:
    agree(rows_of([FOLDER / "cp2"]), expected("miles/expected_train_cp2.parquet"), *TRAINED)
    assert any("slices of context parallelism are put together" in note for note in notes_of("cp2"))


def test_one_slice_of_context_parallelism_is_refused() -> None:
    with pytest.raises(DataError, match=r"3_1\.pt: slice 1 of 2 of context parallelism is in it, slice 0 in no file"):
        rows_of([FOLDER / "cp2" / "train_data" / "3_1.pt"])


def test_a_stage_without_log_probs_says_which_files_to_name() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / "train_data" / "4_0.pt"))
    assert "pipeline stage" in caught.value.hint


def test_sequences_that_only_a_stage_without_log_probs_has_are_refused(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "train_data" / "4_0.pt", tmp_path / "3_2.pt")
    whole = (tmp_path / "3_2.pt").read_bytes()
    # The step of 4_0.pt becomes 3, as if it were a rank of that step whose last stage is not there.
    assert whole.count(b"rollout_idq\x01K\x04") == 1
    (tmp_path / "3_2.pt").write_bytes(whole.replace(b"rollout_idq\x01K\x04", b"rollout_idq\x01K\x03"))
    shutil.copy(FOLDER / "train_data" / "3_0.pt", tmp_path)
    with pytest.raises(DataError, match="some of its sequences are only in files without log-probs"):
        rows_of([tmp_path])


def test_a_folder_joins_rollouts_with_what_was_trained_of_them() -> None:
    rows = rows_of([FOLDER], "miles")
    slices = expected("miles/expected_train_cp2.parquet")
    trained = expected("miles/expected_train.parquet")
    generated = {row["sample_id"]: row for row in expected("miles/expected_rollout.parquet")}
    agree(rows, [*slices, *trained], *TRAINED)
    for row in rows[len(slices) :]:
        about = generated[row["sample_id"]]
        names = ("reward", "group_id", "source", "policy_version_end", "status", "remove_sample")
        assert [row[name] for name in names] == [about[name] for name in names]


def test_the_loss_tells_three_policies() -> None:
    right = expected("miles/expected_policy_loss_debug.parquet")
    rows = rows_of([FOLDER / "policy_loss_debug"])
    agree(rows, right, *IN_LOSS)
    # What the file has is the place in its micro batch, which comes again in the next file.
    assert [row["sample_id"] for row in rows] == [f"{row['worker']}.{row['call']}.{row['sample_id']}" for row in right]


@pytest.mark.parametrize("name", ["rollout_3.parquet", "rollout_4.parquet"])
def test_the_dashboard_gives_the_response_with_a_mask_where_it_has_none(name: str) -> None:
    right = expected("miles/expected_dashboard.parquet", f"dashboard_columns/{name}")
    agree(rows_of([FOLDER / "dashboard_columns" / name]), right, *TOKENS, "step", "sample_id")


def test_another_parquet_file_is_no_dashboard(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sample_index": [1]}), tmp_path / "rollout_1.parquet")
    with pytest.raises(DataError, match="it has no column response_length"):
        rows_of([tmp_path / "rollout_1.parquet"], "miles-dashboard")


def test_evaluations_of_the_dashboard_are_left_out_beside_others(tmp_path: Path) -> None:
    for name in ("rollout_3.parquet", "rollout_eval_3.parquet"):
        shutil.copy(FOLDER / "dashboard_columns" / "rollout_3.parquet", tmp_path / name)
    sources, notes = find_noting([str(tmp_path)])
    assert [Path(source.path).name for source in sources] == ["rollout_3.parquet"]
    assert any(note.startswith("rollout_eval_3.parquet is left out") for note in notes)


def test_a_trajectory_says_what_it_is_and_what_holds_the_log_probs() -> None:
    with pytest.raises(DataError, match="no log-probs: it is a trajectory of miles") as caught:
        analyze(str(FOLDER / "trajectory" / "4.jsonl"))
    assert "train_data/{id}_{rank}.pt" in caught.value.hint


def test_a_trajectory_beside_other_files_is_left_out() -> None:
    sources, notes = find_noting([str(FOLDER / "trajectory"), str(FOLDER / "rollout_data")])
    assert [Path(source.path).name for source in sources] == ["3.pt", "4.pt"]
    assert any(note.startswith("4.jsonl is left out") for note in notes)


def test_kinds_that_hold_the_same_sequences_are_not_read_together() -> None:
    with pytest.raises(DataError, match="dumps of several kinds"):
        find([str(FOLDER / "policy_loss_debug"), str(FOLDER / "train_data")])


@pytest.mark.parametrize("name", ["train_data", "cp2", "policy_loss_debug"])
def test_analyze_reads_the_folders_as_they_lie(name: str) -> None:
    assert analyze(str(FOLDER / name)).inputs[0].rows


def notes_of(name: str) -> tuple[str, ...]:
    return open_dump(ReadRequest(paths=(str(FOLDER / name),))).notes
