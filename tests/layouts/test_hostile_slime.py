"""Files of slime and miles that mean harm or are damaged: a DataError, nothing run, and an end."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli.errors import DataError
from tests.layouts import slime_made as made
from tests.layouts.crafted import Call, bombs, commands, doubled_lists, opcodes, tensor, torch_bytes
from tests.layouts.native_rows import NATIVE, rows_of

FILES: dict[str, tuple[str, Callable[..., bytes]]] = {
    "rollout": ("slime", made.rollout),
    "step": ("slime", made.step),
    "rank": ("slime", made.rank),
    "policy loss": ("miles-policy-loss", made.policy_loss),
}
READ = {
    "rollout": ("tokens", "rollout_log_probs", "loss_mask", "response_length"),
    "step": ("tokens", "log_probs", "loss_masks", "response_lengths"),
    "rank": ("tokens", "log_probs", "loss_masks", "response_lengths"),
    "policy loss": ("train_log_probs", "local_loss_mask", "response_length"),
}
"""Values without which a file is none of theirs."""
ABOUT = {
    "rollout": ("group_index", "index", "reward", "weight_versions", "status", "metadata", "remove_sample"),
    "step": ("rewards", "sample_index", "data_parallel_rank", "source_names", "weight_versions", "local_raw_reward"),
    "rank": ("rewards", "source_names", "weight_versions", "local_raw_reward"),
    "policy loss": ("index", "total_length"),
}
"""Values that may be anything, and are null where they are not what they are to be."""
PLACES = [(file, key) for file in FILES for key in READ[file]]


def written(folder: Path, data: bytes) -> Path:
    path = folder / "file.pt"
    path.write_bytes(data)
    return path


def read(folder: Path, file: str, data: bytes) -> list[dict[str, Any]]:
    return rows_of([written(folder, data)], FILES[file][0])


@pytest.mark.parametrize("file", FILES)
def test_what_is_put_together_here_is_read(tmp_path: Path, file: str) -> None:
    (row,) = read(tmp_path, file, FILES[file][1]())
    assert row["rollout_log_probs"] == [-0.5, -0.5, -0.5]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("call", ["os.system", "posix.system", "subprocess.Popen", "builtins.eval", "mine.Thing"])
def test_a_name_that_is_in_no_dump_is_refused_wherever_it_is(tmp_path: Path, file: str, call: str) -> None:
    trap = tmp_path / "trap"
    harm = Call(call, (f"touch '{trap}'",))
    for key in ("metadata", "anything", *READ[file]):
        with pytest.raises(DataError, match=call):
            read(tmp_path, file, FILES[file][1](**{key: harm}))
    with pytest.raises(DataError, match=call):
        read(tmp_path, file, FILES[file][1]({"beside": harm}))
    assert not trap.exists()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_is_a_call_is_refused(tmp_path: Path, file: str, protocol: int) -> None:
    trap = tmp_path / "trap"
    for pickled in commands(trap, protocol).values():
        with pytest.raises(DataError):
            read(tmp_path, file, torch_bytes(pickled))
    nested = torch_bytes(commands(trap, protocol)["os.system"])
    with pytest.raises(DataError):
        read(tmp_path, file, FILES[file][1]({"samples": [nested], "rollout_data": nested}))
    assert not trap.exists()


WRONG = {
    "a text": "three",
    "bytes": b"three",
    "a dict": {"a": 1},
    "a list of texts": ["a", "b", "c"],
    "a list of lists": [[1], [2, 3], [4]],
    "a negative": -1,
    "a huge number": 1 << 400,
    "a flag": True,
    "past its storage": tensor("3", "Float", (4,), n_values=3),
    "no storage of it": tensor("9", "Float", (3,)),
    "of two dimensions": tensor("3", "Float", (1, 3)),
    "of another length": tensor("3", "Float", (2,), n_values=3),
    "of no type": tensor("3", "Quint8", (3,)),
}

WRONG_PLACES = [(file, key, wrong) for file, key in PLACES for wrong in WRONG]
BAD_ROWS = [("rollout", key, "of another length") for key in ("rollout_log_probs", "loss_mask")]
"""Rows of unequal lengths, which are for the reader of any dump to tell of."""


@pytest.mark.parametrize(("file", "key", "wrong"), [place for place in WRONG_PLACES if place not in BAD_ROWS])
def test_values_of_another_kind_are_refused(tmp_path: Path, file: str, key: str, wrong: str) -> None:
    with pytest.raises(DataError):
        read(tmp_path, file, FILES[file][1](**{key: WRONG[wrong]}))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("wrong", [name for name in WRONG if not name.startswith(("past", "no storage", "of "))])
def test_what_is_told_of_a_sequence_is_null_where_it_is_of_another_kind(tmp_path: Path, file: str, wrong: str) -> None:
    (row,) = read(tmp_path, file, FILES[file][1](**dict.fromkeys(ABOUT[file], WRONG[wrong])))
    assert row["rollout_log_probs"] == [-0.5, -0.5, -0.5]


@pytest.mark.parametrize("wrong", [0.5, 256, float("nan"), float("inf"), -129])
def test_a_mask_that_its_column_would_not_hold_as_it_is_is_refused(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(DataError, match=r"a list of whole numbers \(int8\) holds"):
        read(tmp_path, "rollout", made.rollout(loss_mask=[1, wrong, 1]))


STRUCTURE = {
    "rollout": ("rollout_id", "samples"),
    "step": ("format_version", "rollout_id", "samples"),
    "rank": ("rollout_id", "rank", "rollout_data"),
    "policy loss": ("rank", "call", "samples"),
}


@pytest.mark.parametrize(("file", "key"), [(file, key) for file, keys in STRUCTURE.items() for key in keys])
@pytest.mark.parametrize("wrong", ["a text", "a dict", "a list of texts", "a negative", "a huge number", "a flag"])
def test_a_file_of_another_structure_is_refused(tmp_path: Path, file: str, key: str, wrong: str) -> None:
    with pytest.raises(DataError):
        read(tmp_path, file, FILES[file][1]({key: WRONG[wrong]}))


@pytest.mark.parametrize(("file", "key"), [*PLACES, *((file, key) for file in FILES for key in ABOUT[file])])
def test_lists_that_hold_each_other_twice_come_to_an_end(tmp_path: Path, file: str, key: str) -> None:
    pickled = _pickle(FILES[file][1](**{key: "bomb"}))
    data = torch_bytes(pickled.replace(opcodes("bomb"), doubled_lists(60)), made.STORAGES)
    assert opcodes("bomb") in pickled
    if key in ABOUT[file]:
        read(tmp_path, file, data)
    else:
        with pytest.raises(DataError):
            read(tmp_path, file, data)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("bomb", bombs())
def test_a_pickle_that_is_a_bomb_comes_to_an_end(tmp_path: Path, file: str, bomb: str) -> None:
    with pytest.raises(DataError):
        read(tmp_path, file, torch_bytes(bombs()[bomb]))


@pytest.mark.parametrize("file", FILES)
def test_a_compressed_member_is_refused(tmp_path: Path, file: str) -> None:
    data = torch_bytes(_pickle(FILES[file][1]()), made.STORAGES, method=8)
    with pytest.raises(DataError, match="is compressed, which"):
        read(tmp_path, file, data)


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("slime", "slime/rollout_data/1.pt"),
        ("slime", "slime/train_data/1.pt"),
        ("slime", "slime/v1/train_data/1_0.pt"),
        ("miles", "miles/rollout_data/4.pt"),
        ("miles", "miles/train_data/3_0.pt"),
        ("miles-policy-loss", "miles/policy_loss_debug/rank_0_call_0.pt"),
        ("miles-dashboard", "miles/dashboard_columns/rollout_4.parquet"),
    ],
)
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, format: str, name: str) -> None:
    whole = (NATIVE / name).read_bytes()
    for part in range(7):
        with pytest.raises(DataError):
            rows_of([written(tmp_path, whole[: len(whole) * part // 7])], format)


def _pickle(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read("archive/data.pkl")
