"""Files of SkyRL, verl and ROLL that mean harm or are damaged: a DataError, nothing run, and an end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli.errors import DataError
from tests.layouts import batches
from tests.layouts.crafted import Call, bombs, commands, doubled_lists, dumped, opcodes, tensor, torch_bytes
from tests.layouts.native_rows import NATIVE, rows_of

BATCH = batches.arrays()
VERL = batches.verl_tensors(BATCH)
ROLL = batches.roll_tensors(BATCH)
TENSORS = batches.consolidated(VERL)
PAST = tensor("0", "Float", (3, 5), n_values=14)

PLACES: dict[str, tuple[str, Callable[[Any], bytes]]] = {
    "SkyRL's whole pickle": ("skyrl", dumped),
    "SkyRL's metadata": ("skyrl", lambda value: batches.skyrl(BATCH, {"metrics": value})),
    "SkyRL's tensors": ("skyrl", lambda value: batches.skyrl(BATCH, rollout_logprobs=value)),
    "the bytes of a tensor of SkyRL's": (
        "skyrl",
        lambda value: batches.skyrl(BATCH, rollout_logprobs={"format": "numpy", "data": value}),
    ),
    "a zip in SkyRL's pickle": (
        "skyrl",
        lambda value: batches.skyrl(BATCH, action_log_probs=torch_bytes(dumped(value, 2))),
    ),
    "verl's whole pickle": ("verl", dumped),
    "verl's objects": (
        "verl",
        lambda value: batches.verl(TENSORS, {"uid": batches.objects([value] * 3)}),
    ),
    "verl's meta_info": ("verl", lambda value: batches.verl(TENSORS, meta={"metrics": value})),
    "the zip in verl's pickle": ("verl", lambda value: batches.verl(torch_bytes(dumped(value, 2)))),
    "a leaf of verl's tensors": ("verl", lambda value: batches.verl(batches.consolidated(VERL, responses=value))),
    "verl's arrays": ("verl", lambda value: batches.verl(((3,), None, {"responses": ("int64", (3, 5), value)}))),
    "ROLL's whole pickle": ("roll", dumped),
    "ROLL's objects": ("roll", lambda value: batches.roll(batches.plain(ROLL), {"tags": batches.objects([value] * 3)})),
    "ROLL's meta_info": ("roll", lambda value: batches.roll(batches.plain(ROLL), meta={"metrics": value})),
    "the zip in ROLL's pickle": ("roll", lambda value: batches.roll(torch_bytes(dumped(value, 2)))),
    "a tensor of ROLL's": ("roll", lambda value: batches.roll(batches.plain(ROLL, input_ids=value))),
    "verl's tq_batch.pt": ("verl-tq", lambda value: torch_bytes(dumped(value, 2))),
    "a tensor of verl's tq_batch.pt": ("verl-tq", lambda value: batches.verl_tq(VERL, responses=value)),
    "an object of verl's tq_batch.pt": ("verl-tq", lambda value: batches.verl_tq(VERL, uid=batches.stack([value] * 3))),
}
OBJECTS = ("objects", "meta_info", "an object")
"""Where people's own classes may be."""


def written(folder: Path, data: bytes) -> Path:
    path = folder / "batch.pkl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", ["os.system", "posix.system", "subprocess.Popen", "builtins.eval", "__builtin__.eval"])
def test_a_call_that_starts_programs_is_refused_wherever_it_is(tmp_path: Path, place: str, call: str) -> None:
    format, made = PLACES[place]
    trap = tmp_path / "trap"
    path = written(tmp_path, made(Call(call, (f"touch '{trap}'",))))
    with pytest.raises(DataError):
        rows_of([path], format)
    assert not trap.exists()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("format", ["skyrl", "verl", "roll", "verl-tq"])
def test_a_pickle_that_is_a_call_is_refused_in_every_protocol(tmp_path: Path, format: str, protocol: int) -> None:
    trap = tmp_path / "trap"
    for pickled in commands(trap, protocol).values():
        data = torch_bytes(pickled) if format == "verl-tq" else pickled
        with pytest.raises(DataError):
            rows_of([written(tmp_path, data)], format)
    assert not trap.exists()


@pytest.mark.parametrize("place", [place for place in PLACES if not any(word in place for word in OBJECTS)])
def test_a_class_that_is_in_no_dump_is_refused(tmp_path: Path, place: str) -> None:
    format, made = PLACES[place]
    with pytest.raises(DataError):
        rows_of([written(tmp_path, made(Call("mine.Thing", (1,))))], format)


@pytest.mark.parametrize("place", ["a zip in SkyRL's pickle", "a tensor of ROLL's", "a tensor of verl's tq_batch.pt"])
def test_a_tensor_past_its_storage_is_refused(tmp_path: Path, place: str) -> None:
    format, made = PLACES[place]
    with pytest.raises(DataError):
        rows_of([written(tmp_path, made(PAST))], format)


ZIPS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "SkyRL": ("skyrl", lambda data: batches.skyrl(BATCH, rollout_logprobs=data)),
    "verl": ("verl", batches.verl),
    "ROLL": ("roll", batches.roll),
    "tq_batch.pt": ("verl-tq", lambda data: data),
}


@pytest.mark.parametrize("framework", ZIPS)
def test_a_compressed_member_is_refused(tmp_path: Path, framework: str) -> None:
    format, made = ZIPS[framework]
    with pytest.raises(DataError, match="is compressed, which"):
        rows_of([written(tmp_path, made(torch_bytes(dumped([0] * 1000, 2), method=8)))], format)


@pytest.mark.parametrize("framework", ZIPS)
@pytest.mark.parametrize("bomb", bombs())
def test_a_bomb_in_a_nested_file_comes_to_an_end(tmp_path: Path, framework: str, bomb: str) -> None:
    format, made = ZIPS[framework]
    with pytest.raises(DataError):
        rows_of([written(tmp_path, made(torch_bytes(bombs()[bomb])))], format)


@pytest.mark.parametrize("format", ["skyrl", "verl", "roll"])
@pytest.mark.parametrize("bomb", bombs())
def test_a_pickle_that_is_a_bomb_comes_to_an_end(tmp_path: Path, format: str, bomb: str) -> None:
    with pytest.raises(DataError):
        rows_of([written(tmp_path, bombs()[bomb])], format)


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("skyrl", "skyrl/dumped_data/global_step_2_training_input.pkl"),
        ("skyrl", "skyrl/skyrl_train_0.3/dumped_data/global_step_6_training_input.pkl"),
        ("verl", "verl/batches/batch_15.dp"),
        ("verl", "verl/numpy/batch_15.dp"),
        ("verl-tq", "verl/skip_v1/smollm2_demo/GBS8_N4_in64_out160/17/0/tq_batch.pt"),
        ("roll", "roll/rollout_mock_dumps/train/step_000000.pkl"),
    ],
)
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, format: str, name: str) -> None:
    whole = (NATIVE / name).read_bytes()
    for part in range(7):
        with pytest.raises(DataError):
            rows_of([written(tmp_path, whole[: len(whole) * part // 7])], format)


def test_objects_that_hold_each_other_twice_are_null(tmp_path: Path) -> None:
    data = batches.verl(TENSORS, {"uid": batches.objects(["bomb", "a", "b"])})
    path = written(tmp_path, data.replace(opcodes("bomb"), doubled_lists(60)))
    assert [row["group_id"] for row in rows_of([path], "verl")] == [None, "a", "b"]
