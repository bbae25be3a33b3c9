"""Arrow's numbers as NumPy's are those that pyarrow gives, whatever was sliced off before."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from rlcorr_cli.reading.arrow_values import as_arrow, as_lists, as_numpy, as_texts

TYPES = (pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.float16(), pa.float32(), pa.float64())
SLICES = ((0, 40), (3, 20), (8, 1), (17, 23), (5, 0))


@pytest.mark.parametrize(("first", "n"), SLICES)
@pytest.mark.parametrize("type", TYPES, ids=str)
def test_it_is_what_pyarrow_gives(type: pa.DataType, first: int, n: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 2 if type == pa.bool_() else 100, 40)
    values = pa.array(numbers).cast(pa.float32()).cast(type) if type == pa.float16() else pa.array(numbers).cast(type)
    values = values.slice(first, n)
    expected = values.to_numpy(zero_copy_only=False)
    for same in (values, pa.chunked_array([values[: n // 2], values[n // 2 :]])):
        assert as_numpy(same).tolist() == expected.tolist()
        assert as_numpy(same).dtype == expected.dtype


def test_of_no_chunks_there_is_nothing() -> None:
    assert as_numpy(pa.chunked_array([], pa.int64())).shape == (0,)


def test_a_null_is_refused() -> None:
    with pytest.raises(ValueError, match="null"):
        as_numpy(pa.array([1.0, None]))


@pytest.mark.parametrize("values", [[1.0, None, 3.0], [None, None], [2.0]])
def test_something_may_stand_for_a_null(values: list[float | None]) -> None:
    expected = [-1.0 if value is None else value for value in [*values, *values]]
    assert as_numpy(pa.chunked_array([values, values], pa.float32()), null=-1).tolist() == expected


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("type", TYPES, ids=str)
def test_numbers_come_back(type: pa.DataType, step: int) -> None:
    numbers = (np.arange(40) % 2).astype(type.to_pandas_dtype())[::step]
    column = as_arrow(numbers)
    column.validate(full=True)
    assert column.type == type
    assert column.to_pylist() == numbers.tolist()
    valid = np.arange(len(numbers)) % 3 != 1
    column = as_arrow(numbers, valid)
    column.validate(full=True)
    assert column.to_pylist() == [n if known else None for n, known in zip(numbers.tolist(), valid, strict=True)]
    assert as_arrow(numbers[:0]).to_pylist() == []


@pytest.mark.parametrize("texts", [[], [""], ["k3", "", "é\n", "veto"]])
def test_texts_are_strings(texts: list[str]) -> None:
    column = as_texts(texts)
    column.validate(full=True)
    assert column.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("item", TYPES, ids=str)
@pytest.mark.parametrize(
    "of", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)], ids=["list", "large", "fixed"]
)
def test_flags_become_lists_of_their_columns_type(of: Callable[[pa.DataType], pa.DataType], item: pa.DataType) -> None:
    column = as_lists(of(item), np.array([0, 2, 4]), np.array([True, False, False, True]))
    column.validate(full=True)
    assert column.type == of(item)
    assert column.to_pylist() == [[1, 0], [0, 1]]
