"""Arrow's values as plain ones, whatever their type."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from columns_of_every_type import EVERY_TYPE

from rlcorr_cli.reading.arrow_values import holds_key
from rlcorr_cli.reading.values import base64, coded, group_values, plain_values, row_keys, texts

NAMES = sorted(EVERY_TYPE)


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_any_type_has_a_json_form(name: str) -> None:
    column = EVERY_TYPE[name]
    values = plain_values(column, base64)
    json.dumps(values)
    assert [value is None for value in values] == column.is_null().to_pylist()
    assert str(plain_values(column[1:], base64)) == str(values[1:])
    assert plain_values(column[:0], base64) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_id_of_any_type_is_text_that_tells_rows_apart(name: str) -> None:
    column = EVERY_TYPE[name]
    ids = texts(column)
    assert ids.type == pa.large_string()
    assert ids.is_null().to_pylist() == column.is_null().to_pylist()
    assert texts(column[1:]).to_pylist() == ids.to_pylist()[1:]
    assert len(set(row_keys([column]).tolist())) == len(set(ids.to_pylist()))


@pytest.mark.parametrize("name", [name for name in NAMES if holds_key(EVERY_TYPE[name].type)])
def test_a_key_is_a_boolean_a_number_or_text(name: str) -> None:
    column = EVERY_TYPE[name]
    codes, values = coded(column)
    assert [values[code] for code in codes.tolist()] == group_values(column)
    assert all(value is None or isinstance(value, bool | int | float | str) for value in group_values(column))


VALUES: list[tuple[str, list[Any]]] = [
    ("string_view", ["a", "b", None]),
    ("not UTF-8", ["a\\xff", "b", "\\xfe"]),
    ("binary", ["abc", None, "\\xff\x00a"]),
    ("decimal32(7, 2)", ["1.50", None, "-3.00"]),
    ("date32", ["1970-01-01", "2024-10-04", "10183-09-21"]),
    ("date64", ["1970-01-01", "1970-01-02", "29349-01-26"]),
    ("date before the year 1", ["1970-01-01", "1970-01-02", "-3506-03-09"]),
    ("time32[s]", ["00:00:00", "00:00:01", "25:00:00"]),
    ("time64[ns]", ["00:00:00", "00:00:00.000000001", "00:00:00.00009"]),
    ("duration[s]", [0.0, 1.0, 2.0**50]),
    ("duration[ns]", ["0.000000000", "0.000000001", "4611686018.427387904"]),
    ("timestamp[s] in None", ["1970-01-01T00:00:00", "1970-01-01T00:00:01", "35680317-09-25T18:57:04"]),
    ("timestamp[ms] in UTC", ["1970-01-01T00:00:00+00:00", "1970-01-01T00:00:00.001000+00:00"]),
    ("timestamp[us] in Mars/Olympus", ["1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000001Z"]),
    ("timestamp[ns] in UTC", ["1970-01-01 00:00:00Z", "1970-01-01 00:00:00.000000001Z"]),
    ("UUID", ["00000000-0000-0000-0000-000000000001"]),
    ("struct", [{"a": 1.5, "b": "x"}, None, {"a": None, "b": "\\xff"}]),
    ("struct of one name twice", [[("a", 1), ("a", 1)]]),
    ("map", [[[5, "a"]], None, []]),
    ("list of not UTF-8", [["a\\xff"], ["b"], ["\\xfe"]]),
]


@pytest.mark.parametrize(("name", "values"), VALUES)
def test_plain_values(name: str, values: list[Any]) -> None:
    assert plain_values(EVERY_TYPE[name])[: len(values)] == values


def test_binary_values_can_be_had_back_from_json() -> None:
    assert plain_values(EVERY_TYPE["binary"], base64) == ["YWJj", None, "/wBh"]


def test_nan_is_a_key_of_its_own() -> None:
    assert group_values(EVERY_TYPE["float of NaN and inf"]) == ["NaN", np.inf, 1.0]


def test_a_value_has_one_text_in_whatever_encoding() -> None:
    numbers, words = pa.array([0.5, None, 1.0]), pa.array(["a", "b", None])
    assert texts(numbers.dictionary_encode()) == texts(numbers)
    assert texts(words.dictionary_encode()) == texts(words) == texts(words.cast(pa.binary()))
