"""verl's batches and the skip manager's files, held to files of its own code."""

import math
from pathlib import Path

import numpy as np
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import find
from rlcorr_cli.reading.native import READER
from tests.layouts import batches
from tests.layouts.crafted import Call, Name, ndarray, tensor
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "verl"
SKIP = "skip/smollm2_demo/GBS8_N4_in64_out160/14/gen_batch.dp"
TQ = "skip_v1/smollm2_demo/GBS8_N4_in64_out160/17/0/tq_batch.pt"
FULL = ("batches/batch_15.dp", "numpy/batch_15.dp")
BYPASS = "bypass/batch_16.dp"
ROLLOUT = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "policy_version",
    "policy_version_end",
    "source",
)
BOTH = (*ROLLOUT, "old_log_probs", "ref_log_probs", "advantages")


@pytest.mark.parametrize("name", FULL)
def test_a_batch_gives_the_rows_that_it_held(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected("verl/expected_full_batch.parquet", name), *BOTH)
    assert analyze(str(FOLDER / name)).whole.counts["sequences"] == 7


def test_log_probs_copied_in_bypass_mode_are_no_policy() -> None:
    rows = rows_of([FOLDER / BYPASS])
    columns = [name for name in BOTH if name != "old_log_probs"]
    agree(rows, expected("verl/expected_full_batch.parquet", BYPASS), *columns)
    assert "old_log_probs" not in rows[0]
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / BYPASS))
    assert "bypass_mode=false" in caught.value.hint


@pytest.mark.parametrize(("name", "table"), [(SKIP, "gen_batch"), (TQ, "tq_batch")])
def test_a_file_of_the_skip_manager_gives_its_rows_and_says_what_it_lacks(name: str, table: str) -> None:
    agree(rows_of([FOLDER / name]), expected(f"verl/expected_{table}.parquet", name), *ROLLOUT)
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / name))
    assert "save_to_disk" in caught.value.hint


def test_a_folder_gives_the_rows_of_its_batches_without_the_texts() -> None:
    right = [*expected("verl/expected_full_batch.parquet"), *expected("verl/expected_gen_batch.parquet")]
    right.sort(key=lambda row: row["file"])
    agree(rows_of([FOLDER], "verl"), right, *ROLLOUT)


def test_rewards_of_both_infinities_are_no_number(tmp_path: Path) -> None:
    scores = np.array([[np.inf, -np.inf, 0, 0, 0]] * 3, np.float32)
    (first, *_) = rows_of([written(tmp_path, batches.verl(batches.consolidated(changed(rm_scores=scores))))])
    assert math.isnan(first["reward"])


FORMS = {"consolidated": batches.consolidated, "plain": batches.plain, "numpy": batches.in_numpy}


def written(folder: Path, data: bytes, name: str = "batch.dp") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_by_hand_gives_its_arrays(tmp_path: Path, form: str) -> None:
    batch = batches.arrays()
    rows = rows_of([written(tmp_path, batches.verl(FORMS[form](batches.verl_tensors(batch))))])
    assert [row["old_log_probs"] for row in rows] == batch["old"].tolist()
    assert [row["response_mask"] for row in rows] == batch["mask"].tolist()
    assert [row["reward"] for row in rows] == [4.0] * 3
    assert [row["step"] for row in rows] == [7] * 3


def test_the_length_of_a_response_is_that_of_its_attention(tmp_path: Path) -> None:
    tensors = batches.verl_tensors(batches.arrays())
    tensors["attention_mask"][1, 3:] = 0
    rows = rows_of([written(tmp_path, batches.verl(batches.consolidated(tensors)))])
    assert [len(row["rollout_log_probs"]) for row in rows] == [5, 1, 5]


def test_the_step_is_the_folders_where_the_batch_has_none(tmp_path: Path) -> None:
    (tmp_path / "21").mkdir()
    tensors = batches.consolidated(batches.verl_tensors(batches.arrays()))
    rows = rows_of([written(tmp_path / "21", batches.verl(tensors, meta={}), "gen_batch.dp")])
    assert [row["step"] for row in rows] == [21] * 3


def test_peoples_own_objects_are_not_looked_at_and_named(tmp_path: Path) -> None:
    tensors = batches.consolidated(batches.verl_tensors(batches.arrays()))
    image = Call("PIL.Image.Image", (), [{}, "RGB", (1, 1), None, b"\0\0\0"])
    own = Call("mine.Tool", (Name("mine.Kind"),), {"name": "x"})
    objects = {"image": batches.objects([image] * 3), "uid": batches.objects([own, "b", 3])}
    path = written(tmp_path, batches.verl(tensors, objects, {"tool": own}))
    assert [row["group_id"] for row in rows_of([path])] == [None, "b", "3"]
    (source,) = find([str(path)])
    notes = READER.index(source, lambda schema: []).notes
    assert notes == ("Objects of other classes in it are not looked at: PIL.Image.Image, mine.Kind, mine.Tool.",)


def test_versions_that_are_no_numbers_are_null(tmp_path: Path) -> None:
    tensors = batches.consolidated(batches.verl_tensors(batches.arrays()))
    objects = {
        "min_global_steps": batches.objects([3, "three", 1 << 70]),
        "max_global_steps": batches.objects([4.0] * 3),
    }
    rows = rows_of([written(tmp_path, batches.verl(tensors, objects))])
    assert [row["policy_version"] for row in rows] == [3, None, None]
    assert [row["policy_version_end"] for row in rows] == [4] * 3


def test_texts_of_a_fixed_length_are_texts(tmp_path: Path) -> None:
    uids = ndarray("abc".encode("utf-32-le"), "U1", (3,))
    data = batches.verl(batches.consolidated(batches.verl_tensors(batches.arrays())), {"uid": uids})
    assert [row["group_id"] for row in rows_of([written(tmp_path, data)])] == ["a", "b", "c"]


def test_text_that_is_no_unicode_is_null(tmp_path: Path) -> None:
    data = batches.verl(
        batches.consolidated(batches.verl_tensors(batches.arrays())), {"uid": batches.objects(["abc"] * 3)}
    )
    broken = data.replace(b"abc", "\ud800".encode("utf-8", "surrogatepass"))
    assert [row["group_id"] for row in rows_of([written(tmp_path, broken)])] == [None] * 3


def changed(**tensors: np.ndarray | None) -> dict[str, np.ndarray]:
    """A batch with other tensors, without those that are None."""
    named = {**batches.verl_tensors(batches.arrays()), **tensors}
    return {name: values for name, values in named.items() if values is not None}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (changed(responses=None), "no responses"),
        (changed(rollout_log_probs=None), "no rollout_log_probs"),
        (changed(old_log_probs=np.zeros((3, 4), np.float32)), "shape"),
        (changed(old_log_probs=np.zeros(15, np.float32)), "shape"),
        (changed(old_log_probs=np.zeros((3, 5), np.int64)), "log-probs"),
        (changed(attention_mask=np.ones((3, 4), np.int64)), "attention_mask"),
        (changed(attention_mask=np.ones(3, np.int64)), "attention_mask"),
        (changed(rm_scores=np.ones((2, 5), np.float32)), "rewards"),
        (changed(response_mask=-np.ones((3, 5), np.int64)), "not 0 and 1"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_tensors_of_another_structure_are_a_data_error(
    tmp_path: Path, form: str, tensors: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        rows_of([written(tmp_path, batches.verl(FORMS[form](tensors)))])


TENSORS = batches.verl_tensors(batches.arrays())
GOOD = batches.consolidated(TENSORS)


@pytest.mark.parametrize(
    "data",
    [
        batches.verl(None),
        batches.verl(b"PK\x03\x04"),
        batches.verl(batches.consolidated({}, responses=7)),
        batches.verl(
            batches.consolidated(batches.verl_tensors(batches.arrays()), responses=("torch.int64", [3, 5], 0, 9**9))
        ),
        batches.verl(
            batches.consolidated(batches.verl_tensors(batches.arrays()), responses=("torch.int64", [3, 5], -240, -120))
        ),
        batches.verl(
            batches.consolidated(batches.verl_tensors(batches.arrays()), responses=("torch.int64", "ab", 0, 8))
        ),
        batches.verl(((3,), None, {"responses": (1, 2)})),
        batches.verl(((3,), None, {"responses": ("int64", (1,), batches.objects([1]))})),
        batches.verl(((3,), None, {"responses": ("int64", (1,), ndarray("ab".encode("utf-32-le"), "U2", (1,)))})),
        batches.verl(GOOD, {"uid": ndarray(b"\xff" * 12, "U1", (3,))}),
        batches.verl(GOOD, {"uid": batches.objects(["a"])}),
        batches.verl(GOOD, {"uid": 7}),
        batches.verl(GOOD, {"uid": ndarray(b"", "f8", (3,))}),
        batches.verl(GOOD, meta=[]),
    ],
)
def test_a_data_proto_of_another_structure_is_a_data_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError):
        rows_of([written(tmp_path, data)])


def test_rows_of_a_tq_batch_by_hand_are_its_arrays(tmp_path: Path) -> None:
    batch = batches.arrays()
    data = batches.verl_tq(
        batches.verl_tensors(batch), uid=batches.stack(["a", "a", "b"]), data_source=batches.stack(["m"] * 3)
    )
    rows = rows_of([written(tmp_path, data, "tq_batch.pt")])
    assert [row["rollout_log_probs"] for row in rows] == batch["rollout"].tolist()
    assert [row["group_id"] for row in rows] == ["a", "a", "b"]
    assert [row["sample_id"] for row in rows] == ["uid_0_0", "uid_1_0", "uid_2_0"]
    assert [(row["policy_version"], row["policy_version_end"], row["step"]) for row in rows] == [(6, 7, 7)] * 3


@pytest.mark.parametrize(
    ("fields", "top"),
    [
        ({"responses": None}, {}),
        ({"responses": 7}, {}),
        ({"responses": tensor("0", "Long", (), n_values=15)}, {}),
        ({"rm_scores": tensor("0", "Long", (), n_values=15)}, {}),
        ({"response_mask": tensor("0", "Long", (3, 5))}, {}),
        ({"responses": Call("torch._tensor._rebuild_from_type_v2", (1,))}, {}),
        ({"uid": batches.stack(["a"])}, {}),
        ({}, {"keys": ["a"]}),
        ({}, {"tags": [{"min_global_steps": 1}]}),
        ({}, {"tensordict": 7}),
        ({}, {"tensordict": None}),
    ],
)
def test_a_tq_batch_of_another_structure_is_a_data_error(
    tmp_path: Path, fields: dict[str, object], top: dict[str, object]
) -> None:
    data = batches.verl_tq(batches.verl_tensors(batches.arrays()), top, **fields)
    with pytest.raises(DataError):
        rows_of([written(tmp_path, data, "tq_batch.pt")], "verl-tq")
