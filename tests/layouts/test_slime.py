"""slime's rollout and training files, held to files of its own writers."""

import os
from pathlib import Path

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.slime import open_unit
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.find import find, find_noting
from rlcorr_cli.reading.request import ReadRequest
from tests.layouts import slime_made as made
from tests.layouts.crafted import tensor
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "slime"
TOKENS = ("rollout_log_probs", "response_mask", "token_ids")
GENERATED = (*TOKENS, "reward", "step", "group_id", "sample_id", "policy_version", "policy_version_end", "source")
ONLY_GENERATED = ("group_id", "policy_version", "policy_version_end", "status", "remove_sample")
TRAINED = (
    *TOKENS,
    *("old_log_probs", "ref_log_probs", "advantages", "reward", "normalized_reward"),
    *("step", "sample_id", "source", "worker"),
)


@pytest.mark.parametrize("name", ["rollout_data/0.pt", "rollout_data/1.pt", "rollout_data/eval_0.pt"])
def test_a_rollout_file_gives_the_sequences_that_were_sampled(name: str) -> None:
    right = expected("slime/expected_rollout.parquet", name)
    agree(rows_of([FOLDER / name]), right, *GENERATED, "status", "remove_sample")


@pytest.mark.parametrize("name", ["train_data/0.pt", "train_data/1.pt"])
def test_a_step_gives_the_sequences_of_all_its_ranks(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected("slime/expected_train_v2.parquet", name), *TRAINED)


@pytest.mark.parametrize("name", ["v1/train_data/0_0.pt", "v1/train_data/0_1.pt", "v1/train_data/1_0.pt"])
def test_a_rank_gives_its_own_sequences(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected("slime/expected_train_v1.parquet", name), *TRAINED)


def test_ranks_of_a_step_are_read_together_and_say_where_each_row_is_from() -> None:
    rows = rows_of([FOLDER / "v1"])
    right = expected("slime/expected_train_v1.parquet")
    agree(rows, right, *TRAINED)
    assert [(row["source_file"], row["source_row"]) for row in rows] == [
        (str(FOLDER / row["file"]), row["row"]) for row in right
    ]


def test_a_folder_joins_rollouts_with_what_was_trained_of_them_and_keeps_runs_apart() -> None:
    rows = rows_of([FOLDER], "slime")
    trained = [*expected("slime/expected_train_v2.parquet"), *expected("slime/expected_train_v1.parquet")]
    generated = {(row["step"], row["sample_id"]): row for row in expected("slime/expected_rollout.parquet")[:12]}
    agree(rows, trained, *TRAINED)
    for row in rows[:12]:
        about = generated[row["step"], row["sample_id"]]
        assert [row[name] for name in ONLY_GENERATED] == [about[name] for name in ONLY_GENERATED]
    assert all(row.get("group_id") is None for row in rows[12:])


def test_evaluations_are_left_out_beside_rollouts_and_a_note_says_so() -> None:
    sources, notes = find_noting([str(FOLDER / "rollout_data")])
    assert [Path(source.path).name for source in sources] == ["0.pt", "1.pt"]
    assert any(note.startswith("eval_0.pt is left out: evaluations") for note in notes)


def test_a_rollout_file_and_the_training_file_of_its_step_are_one_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "c").mkdir(parents=True)
    generated, trained = tmp_path / "a" / "r.pt", tmp_path / "b" / "c" / "t.pt"
    generated.write_bytes((FOLDER / "rollout_data" / "0.pt").read_bytes())
    trained.write_bytes((FOLDER / "train_data" / "0.pt").read_bytes())
    for path, seconds in ((generated, 1234567890), (trained, 1e9)):
        os.utime(path, (seconds, seconds))
    (source,) = find([str(generated), str(trained)])
    assert (source.path, [path for path, _ in source.companions]) == (str(trained), [str(generated)])
    assert source.modified == "2009-02-13T23:31Z", "the newest of them"


def test_files_of_one_id_and_of_two_runs_are_not_joined(tmp_path: Path) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "rollout.pt").write_bytes((FOLDER / "rollout_data" / "0.pt").read_bytes())
        (tmp_path / run / "train.pt").write_bytes((FOLDER / "train_data" / "0.pt").read_bytes())
    units = [[source.path, *(path for path, _ in source.companions)] for source in find([str(tmp_path)])]
    assert units == [[str(tmp_path / run / name) for name in ("train.pt", "rollout.pt")] for run in ("a", "b")]


@pytest.mark.parametrize("typed", [".", "0.pt"])
@pytest.mark.parametrize("name", ["train_data/0.pt", "v1/train_data/0_0.pt"])
def test_a_file_that_is_half_written_is_an_error_that_says_so(tmp_path: Path, typed: str, name: str) -> None:
    whole = (FOLDER / name).read_bytes()
    (tmp_path / "0.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "1.pt").write_bytes((FOLDER / "train_data" / "1.pt").read_bytes())
    with pytest.raises(DataError, match=r"0\.pt: it begins as a file of torch") as caught:
        rows_of([tmp_path / typed])
    assert "still being written" in caught.value.hint


def test_half_of_a_ranks_file_among_whole_ones_is_the_one_that_an_error_names(tmp_path: Path) -> None:
    whole = (FOLDER / "v1" / "train_data" / "0_0.pt").read_bytes()
    for name, data in (("0_0.pt", whole), ("0_1.pt", whole[: len(whole) // 2])):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=r"0_1\.pt: it begins as a file of torch"):
        rows_of([tmp_path / "0_0.pt", tmp_path / "0_1.pt"], format="slime")


def test_a_rollout_file_of_another_run_is_refused() -> None:
    opened = open_unit([str(FOLDER / "train_data" / "0.pt"), str(FOLDER / "rollout_data" / "1.pt")])
    with pytest.raises(DataError, match=r"sequence 0 \(sample_index 0\) is not in .*1\.pt"):
        list(opened.samples())


def test_sequences_that_share_an_index_are_told_apart_by_their_tokens(tmp_path: Path) -> None:
    same = {"index": 7, "tokens": [1, 1, 1, 1, 1], "response_length": 3, "status": "truncated", "group_index": 4}
    write(tmp_path, rollout=made.rollout(more=[same]), train=made.step())
    assert [(row["status"], row["group_id"]) for row in rows_of([tmp_path])] == [("truncated", "4")]


def test_a_rollout_file_with_other_tokens_is_refused(tmp_path: Path) -> None:
    write(tmp_path, rollout=made.rollout(), train=made.step())
    with pytest.raises(DataError, match=r"sequence 0 \(sample_index 7\) is not in .*, or has other tokens there"):
        rows_of([tmp_path])


def test_sequences_that_were_not_trained_on_are_left_out_and_a_note_says_so(tmp_path: Path) -> None:
    write(tmp_path, rollout=made.rollout(more=[{"index": 8}], tokens=[1, 1, 1, 1, 1]), train=made.step())
    assert [row["sample_id"] for row in rows_of([tmp_path])] == ["7"]
    notes = open_dump(ReadRequest(paths=(str(tmp_path),))).notes
    assert any("that its training files do not hold are left out" in note for note in notes)


def test_a_run_that_took_the_log_probs_from_its_loss_says_what_to_switch_on(tmp_path: Path) -> None:
    write(tmp_path, train=made.rank(log_probs=None))
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(tmp_path))
    assert "--get-mismatch-metrics" in caught.value.hint


def test_a_slice_of_context_parallelism_whose_place_is_not_told_is_refused(tmp_path: Path) -> None:
    write(tmp_path, train=made.rank(log_probs=tensor("3", "Float", (2,), n_values=3)))
    with pytest.raises(DataError, match="2 log_probs for a response of 3 tokens") as caught:
        rows_of([tmp_path])
    assert "context parallelism" in caught.value.hint


def write(folder: Path, **files: bytes) -> None:
    for name, data in files.items():
        (folder / f"{name}.pt").write_bytes(data)


@pytest.mark.parametrize("paths", [["train_data"], ["v1"], ["train_data/0.pt", "rollout_data/0.pt"]])
def test_analyze_reads_training_files_as_they_lie(paths: list[str]) -> None:
    report = analyze([str(FOLDER / path) for path in paths])
    assert report.inputs[0].rows


def test_a_rollout_file_alone_says_what_to_name_with_it() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / "rollout_data" / "0.pt"))
    assert "--dump-details" in caught.value.hint
