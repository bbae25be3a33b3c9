"""Pickles as data: what is broken, huge or harmful is a DataError, and nothing in it runs."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rlcorr_cli import inspect
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.layouts.pickled import LIMIT, UnbuiltObject, unpickle
from rlcorr_cli.layouts.tensors import array, of_bytes, scalar
from rlcorr_cli.layouts.torch_files import read_torch
from tests.layouts.crafted import Call, Name, Storage, bombs, commands, dumped, ndarray, opcodes, tensor, torch_bytes


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", ["os.system", "posix.system", "eval"])
def test_a_call_is_refused_by_its_name_and_is_inert_where_any_name_is_allowed(
    tmp_path: Path, name: str, protocol: int
) -> None:
    trap = tmp_path / "trap"
    pickled = commands(trap, protocol)[name]
    with pytest.raises(DataError, match=name):
        unpickle(pickled, ())
    assert isinstance(unpickle(pickled), UnbuiltObject)
    assert not trap.exists()


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_comes_to_an_end(name: str) -> None:
    with suppress(DataError):
        unpickle(bombs()[name])


@pytest.mark.parametrize("name", ["a long integer", "an odd dict", "a name without an end"])
def test_a_pickle_that_makes_no_sense_is_a_data_error(name: str) -> None:
    with pytest.raises(DataError):
        unpickle(bombs()[name])


@pytest.mark.parametrize("part", range(7))
def test_a_pickle_that_is_cut_short_is_a_data_error(part: int) -> None:
    whole = dumped({"names": ["a", 1, 2.0, b"bytes"], "array": ndarray(b"\0" * 8, "f8", (1,))})
    with pytest.raises(DataError):
        unpickle(whole[: len(whole) * part // 7])


HARMFUL = {
    "past its storage": tensor("0", "Float", (3,), n_values=2),
    "past its storage by its offset": tensor("0", "Float", (2,), n_values=2, offset=1),
    "before its storage": tensor("0", "Float", (2,), n_values=2, offset=-1),
    "longer than its storage is": tensor("0", "Float", (3,)),
    "half a value": tensor("half", "Float", (1,)),
    "a storage that is not there": tensor("9", "Float", (2,)),
    "a storage without a text as key": Call("torch._utils._rebuild_tensor_v2", (Storage(7, "Float", 2), 0, (2,), (1,))),
    "a count that is a text": Call("torch._utils._rebuild_tensor_v2", (Storage("0", "Float", "2"), 0, (2,), (1,))),
    "an offset that is a text": Call("torch._utils._rebuild_tensor_v2", (Storage("0", "Float", 2), "0", (2,), (1,))),
    "two arguments": Call("torch._utils._rebuild_tensor_v2", (Storage("0", "Float", 2), 0)),
    "repeated": Call("torch._utils._rebuild_tensor_v2", (Storage("0", "Float", 2), 0, (10**9,), (0,))),
    "empty and larger than an array can be": tensor("none", "Float", (0, 10**12, 10**12)),
    "of nine dimensions": tensor("0", "Float", (1,) * 8 + (2,)),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_tensor_that_its_bytes_do_not_hold_is_a_data_error(name: str) -> None:
    file = read_torch(
        memoryview(torch_bytes(dumped(HARMFUL[name], 2), {"0": b"\0" * 8, "half": b"\0" * 3, "none": b""}))
    )
    with pytest.raises(DataError):
        file.array(file.value)


def test_a_stride_over_one_value_is_of_no_matter() -> None:
    made = Call("torch._utils._rebuild_tensor_v2", (Storage("0", "Float", 2), 0, (1, 2), (10**30, 1)))
    file = read_torch(memoryview(torch_bytes(dumped(made, 2), {"0": b"\0" * 8})))
    assert file.array(file.value).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    "made",
    [
        ndarray(b"\0" * 7, "f8", (1,)),
        ndarray(b"\0" * 8, "f8", (2,)),
        ndarray("text", "f8", (1,)),
        ndarray(b"\0" * 8, "O8", (1,)),
        ndarray(Call("_codecs.encode", ("\u4e00", "latin1")), "u1", (1,)),
        ndarray(Call("_codecs.encode", (((),), "latin1")), "u1", (1,)),
        Call("numpy._core.multiarray._reconstruct", (), (1, (1,), Call("numpy.dtype"), False, b"\0" * 8)),
        Call("numpy._core.numeric._frombuffer", (b"\0" * 8,)),
        Name("numpy.ndarray"),
    ],
)
def test_an_array_that_its_bytes_do_not_hold_is_a_data_error(made: Call | Name) -> None:
    with pytest.raises(DataError):
        array(unpickle(dumped(made)))


def test_numpy_scalars_are_numbers() -> None:
    kind = Call("numpy.dtype", ("f8", False, True), (3, "<", None, None, None, -1, -1, 0))
    made = Call("numpy._core.multiarray.scalar", (kind, b"\0\0\0\0\0\0\xe0?"))
    assert scalar(unpickle(dumped(made))) == 0.5


def test_raw_bytes_of_no_type_are_a_data_error() -> None:
    for dtype in ("float1", None, ("f4",)):
        with pytest.raises(DataError, match="not read"):
            of_bytes(b"\0" * 8, dtype)


def test_a_compressed_member_is_refused() -> None:
    with pytest.raises(DataError, match="is compressed, which"):
        read_torch(memoryview(torch_bytes(dumped([0] * 1000), method=8)))


@pytest.mark.parametrize("part", range(7))
def test_a_file_of_torch_that_is_cut_short_is_a_data_error(part: int) -> None:
    whole = torch_bytes(dumped(tensor("0", "Float", (2,))), {"0": b"\0" * 8})
    with pytest.raises(DataError):
        read_torch(memoryview(whole[: len(whole) * part // 7]))


def test_the_opcodes_are_those_of_pickle() -> None:
    import pickle

    value = {"a": [1, -300, 2.5, None, True, ("b", b"c")], 3: {}}
    assert pickle.loads(dumped(value)) == value
    assert opcodes(None) == b"N"


NATIVE = Path(__file__).parents[1] / "golden" / "native"


@pytest.mark.parametrize(
    "name",
    [
        "skyrl/2026-08/dumped_data/global_step_4_training_input.pkl",
        "verl/batches/batch_15.dp",
        "roll/rollout_mock_dumps/train/step_000000.pkl",
        "slime/train_data/0.pt",
    ],
)
def test_a_pickle_above_the_limit_is_refused_with_the_way_to_set_another(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LIMIT, "0.000001")
    path = shutil.copy(NATIVE / name, tmp_path)  # another file is read, and none that is still open
    with pytest.raises(DataError, match=r"its pickle has .* GB, over 1e-06") as caught:
        inspect(path)
    assert path in caught.value.message
    assert f"Set {LIMIT}=1 " in caught.value.hint
    monkeypatch.setenv(LIMIT, "1")
    inspect(path)


def test_a_limit_that_is_no_number_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "4GB")
    with pytest.raises(UsageError, match=f"{LIMIT}=4GB is not a number"):
        unpickle(dumped(1))
