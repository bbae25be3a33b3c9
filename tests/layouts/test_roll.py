"""ROLL's step_{N}.pkl of rollout_mock, held to files of its own code."""

from pathlib import Path

import numpy as np
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from tests.layouts import batches
from tests.layouts.native_rows import NATIVE, agree, expected, numbered_by_step, rows_of

FOLDER = NATIVE / "roll"
FILES = (
    "rollout_mock_dumps/train/step_000000.pkl",
    "rollout_mock_dumps/train/step_000001.pkl",
    "rollout_mock_dumps/val/step_000000.pkl",
)
COLUMNS = ("rollout_log_probs", "response_mask", "token_ids", "reward", "step", "group_id", "sample_id", "source")
FORMS = {"consolidated": batches.consolidated, "plain": batches.plain}


@pytest.mark.parametrize("name", FILES)
def test_a_step_gives_the_rows_that_its_batch_held(name: str) -> None:
    agree(rows_of([FOLDER / name]), numbered_by_step(expected("roll/expected.parquet", name)), *COLUMNS)


def test_a_folder_gives_the_rows_of_its_files() -> None:
    agree(rows_of([FOLDER / "rollout_mock_dumps"]), numbered_by_step(expected("roll/expected.parquet")), *COLUMNS)


def test_ids_of_training_and_validation_are_told_apart_by_their_split(tmp_path: Path) -> None:
    tensors = batches.roll_tensors(batches.arrays())
    tensors["old_log_probs"] = tensors["infer_logprobs"] - np.float32(0.25)
    data = batches.roll(batches.plain(tensors), {"env_ids": batches.objects([0, 1, 2])})
    for folder in ("train", "val", "other"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, data)
    folders = [tmp_path / "train", tmp_path / "val"]
    rows = rows_of(folders)
    assert [(row["split"], row["sample_id"]) for row in rows] == [(s, i) for s in ("train", "val") for i in "012"]
    report = analyze(list(map(str, folders)), group_by="split")
    assert [group.key["split"] for group in report.groups] == ["train", "val"]
    (tmp_path / "again" / "val").mkdir(parents=True)
    written(tmp_path / "again" / "val", data)
    with pytest.raises(DataError, match="sample_id 0 is there twice in step 3 and split val"):
        analyze([str(tmp_path / "val"), str(tmp_path / "again")])
    assert "split" not in rows_of([tmp_path / "other"])[0]


def test_without_a_trained_policy_it_says_how_to_get_one() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / FILES[0]))
    assert "save_to_disk" in caught.value.hint


def written(folder: Path, data: bytes) -> Path:
    path = folder / "step_000003.pkl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_log_probs_are_of_the_token_behind_them(tmp_path: Path, form: str) -> None:
    batch = batches.arrays()
    tensors = batches.roll_tensors(batch)
    tensors["old_log_probs"] = tensors["infer_logprobs"] - np.float32(0.25)
    path = written(tmp_path, batches.roll(FORMS[form](tensors)))
    rows = rows_of([path])
    assert [row["rollout_log_probs"] for row in rows] == batch["rollout"][:, :-1].tolist()
    assert [row["token_ids"] for row in rows] == batch["tokens"][:, 2:-1].tolist()
    assert [row["step"] for row in rows] == [3] * 3
    assert analyze(str(path)).whole.counts["sequences"] == 3


def test_tensors_that_are_elsewhere_are_said_to_be(tmp_path: Path) -> None:
    path = written(tmp_path, batches.roll(batches.plain(batches.roll_tensors(batches.arrays())), remote={}))
    with pytest.raises(DataError, match="memory of other processes"):
        rows_of([path])


def test_tensors_of_another_structure_are_a_data_error(tmp_path: Path) -> None:
    for name in ("infer_logprobs", "input_ids", "response_mask"):
        tensors = batches.roll_tensors(batches.arrays())
        for values in (None, np.zeros((3, 4), np.float32), np.zeros(7, np.float32), np.zeros((), np.float32)):
            other = {**tensors, name: values} if values is not None else {k: v for k, v in tensors.items() if k != name}
            with pytest.raises(DataError):
                rows_of([written(tmp_path, batches.roll(batches.plain(other)))])
