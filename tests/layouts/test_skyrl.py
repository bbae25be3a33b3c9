"""SkyRL's global_step_{N}_training_input.pkl, held to files of four releases of its own code."""

from pathlib import Path

import numpy as np
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import find_noting
from tests.layouts import batches
from tests.layouts.crafted import Call, dumped, tensor, torch_bytes
from tests.layouts.native_rows import NATIVE, agree, expected, numbered_by_step, rows_of

FOLDER = NATIVE / "skyrl"
FILES = (
    "dumped_data/global_step_2_training_input.pkl",
    "router_replay/dumped_data/global_step_3_training_input.pkl",
    "router_replay/protocol5/dumped_data/global_step_3_training_input.pkl",
    "2026-08/dumped_data/global_step_4_training_input.pkl",
    "2026-03_right_padded/dumped_data/global_step_5_training_input.pkl",
    "skyrl_train_0.3/dumped_data/global_step_6_training_input.pkl",
)
COLUMNS = (
    "rollout_log_probs",
    "old_log_probs",
    "ref_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "step",
    "group_id",
)


@pytest.mark.parametrize("name", FILES)
def test_a_step_of_every_release_gives_the_rows_that_its_batch_held(name: str) -> None:
    agree(rows_of([FOLDER / name]), numbered_by_step(expected("skyrl/expected.parquet", name)), *COLUMNS)


def test_a_folder_gives_the_rows_of_its_files_in_their_order() -> None:
    right = sorted(numbered_by_step(expected("skyrl/expected.parquet")), key=lambda row: row["file"])
    rows = rows_of([FOLDER], "skyrl")
    agree(rows, right, *COLUMNS)
    assert [row["source_file"] for row in rows] == [str(FOLDER / row["file"]) for row in right]


def test_what_tells_a_file_is_said() -> None:
    (source,), notes = find_noting([str(FOLDER / FILES[0])])
    assert source.format == "skyrl"
    assert any("a pickle of skyrl.backends.skyrl_train.training_batch" in note for note in notes)


@pytest.mark.parametrize("name", FILES)
def test_both_policies_are_analyzed(name: str) -> None:
    report = analyze(str(FOLDER / name))
    assert report.whole.counts["sequences"] == sum(
        row["n_valid"] > 0 for row in expected("skyrl/expected.parquet", name)
    )


def written(folder: Path, data: bytes) -> Path:
    path = folder / "global_step_9_training_input.pkl"
    path.write_bytes(data)
    return path


def test_a_file_by_hand_gives_its_arrays(tmp_path: Path) -> None:
    batch = batches.arrays()
    rows = rows_of([written(tmp_path, batches.skyrl(batch, {"policy_prompt_boundaries": [(0, 2), (2, 3)]}))])
    assert [row["group_id"] for row in rows] == ["9/0", "9/0", "9/1"]
    assert [row["rollout_log_probs"] for row in rows] == batch["rollout"].tolist()
    assert [row["response_mask"] for row in rows] == batch["mask"].tolist()
    assert [row["token_ids"] for row in rows] == batch["tokens"][:, 2:].tolist()
    assert rows[0]["step"] == 9


def test_bfloat16_fields_are_files_of_torch(tmp_path: Path) -> None:
    batch = batches.arrays()
    half = (batch["rollout"].view(np.uint32) >> 16).astype(np.uint16)
    data = torch_bytes(dumped(tensor("0", "BFloat16", half.shape), 2), {"0": half.tobytes()})
    (first, *_) = rows_of([written(tmp_path, batches.skyrl(batch, rollout_logprobs={"format": "torch", "data": data}))])
    assert first["rollout_log_probs"] == (half[0].astype(np.uint32) << 16).view(np.float32).tolist()


def test_without_rollout_log_probs_it_says_what_to_switch_on(tmp_path: Path) -> None:
    path = written(tmp_path, batches.skyrl(batches.arrays(), rollout_logprobs=None))
    with pytest.raises(DataError, match="rollout_logprobs are empty") as caught:
        analyze(str(path))
    assert "sampling_params.logprobs=1" in caught.value.hint


def test_without_a_trained_policy_it_says_why(tmp_path: Path) -> None:
    path = written(tmp_path, batches.skyrl(batches.arrays(), action_log_probs=None))
    assert "old_log_probs" not in rows_of([path])[0]
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(path))
    assert "forward pass" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss_mask": None}, "no sequences"),
        ({"sequences": batches.raw(np.zeros((3, 4), np.int64))}, "shape"),
        ({"response_mask": batches.raw(np.ones((2, 5), np.int64))}, "shape"),
        ({"response_mask": batches.raw(np.ones(5, np.int64))}, "shape"),
        (dict.fromkeys(("response_mask", "loss_mask"), batches.raw(np.ones((), np.int64))), "shape"),
        ({"sequences": batches.raw(np.zeros((3, 7), np.float32))}, "whole numbers"),
        ({"advantages": batches.raw(np.ones((3, 4), np.float32))}, "shape"),
        ({"loss_mask": batches.raw(np.full((3, 5), 2, np.int64))}, "not 0 and 1"),
        ({"rollout_logprobs": batches.raw(np.ones((3, 5), np.int64))}, "log-probs"),
        ({"rollout_logprobs": {"format": "tensor_list", "items": []}}, "not a tensor"),
        ({"rollout_logprobs": {"format": "numpy", "data": b"", "shape": (3, 5), "dtype": "float32"}}, "past"),
        ({"rollout_logprobs": {"format": "numpy"}}, "not read"),
        ({"rollout_logprobs": {}}, "not a tensor"),
        ({"rollout_logprobs": 1.5}, "not a tensor"),
        ({"rollout_logprobs": Call("torch.device")}, "not a tensor"),
        ({"metadata": {"pad_size": 4}}, "pad_size"),
        ({"metadata": {"policy_prompt_boundaries": [(0, 2), (1, 3)]}}, "policy_prompt_boundaries"),
        ({"metadata": {"policy_prompt_boundaries": [7]}}, "policy_prompt_boundaries"),
    ],
)
def test_a_batch_of_another_structure_is_a_data_error(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    path = written(tmp_path, batches.skyrl(batches.arrays(), **fields))
    with pytest.raises(DataError, match=message):
        rows_of([path])
