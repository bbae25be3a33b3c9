"""A framework's JSON lines as one row of data: what each part of a row does, on a made format."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.canonical import record_batch, schema
from rlcorr_cli.layouts.json_layouts import From, JsonLines
from rlcorr_cli.layouts.recognise import FileStart, by_keys

MADE = JsonLines(
    columns={
        "rollout_log_probs": From("floats", "engine"),
        "old_log_probs": From("floats", "trainer"),
        "reward": From("number", "best|reward"),
        "group_id": From("joined", "{step}/{prompt}"),
        "source": From("text", "about.data"),
        "attempt": From("whole", "attempt"),
    },
    from_path={"step": r"made_(\d+)"},
)
LINE = {"engine": [-0.5, -1.0, -2.0], "trainer": [-0.25, None, -2.0], "reward": 1, "step": 7, "prompt": 3}


def rows(folder: Path, layout: JsonLines, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    path = folder / "made_7.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    opened = layout([str(path)])
    return record_batch([*opened.samples()], schema(opened.columns, opened.types)).to_pylist()


def test_a_row_of_data_is_all_that_a_format_takes(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, MADE, {**LINE, "about": {"data": "math"}, "attempt": 2})
    assert row["rollout_log_probs"] == [-0.5, -1.0, -2.0]
    assert row["old_log_probs"] == [-0.25, None, -2.0]
    assert row["response_mask"] == [1, 1, 1]
    assert (row["reward"], row["step"], row["group_id"], row["source"], row["attempt"]) == (1.0, 7, "7/3", "math", 2)


def test_a_file_is_known_by_the_keys_of_its_first_line(tmp_path: Path) -> None:
    for keys, sign in ((LINE, "keys engine, trainer"), ({"engine": []}, None)):
        path = tmp_path / "made.jsonl"
        path.write_text(json.dumps(keys))
        assert by_keys("engine", "trainer")(FileStart(str(path))) == sign


def test_of_two_keys_the_first_that_is_there_is_read(tmp_path: Path) -> None:
    assert [row["reward"] for row in rows(tmp_path, MADE, LINE, {**LINE, "best": 2})] == [1.0, 2.0]


def test_a_text_of_numbers_is_null_where_one_is(tmp_path: Path) -> None:
    assert [row["group_id"] for row in rows(tmp_path, MADE, LINE, {**LINE, "step": None})] == ["7/3", None]


def test_a_column_that_only_some_files_have_is_looked_for(tmp_path: Path) -> None:
    layout = replace(MADE, only_with={"old_log_probs": ("trainer", rb"\[-")})
    assert "old_log_probs" in rows(tmp_path, layout, LINE)[0]
    assert "old_log_probs" not in rows(tmp_path, layout, {**LINE, "trainer": []})[0]


def test_rows_are_cut_to_their_mask_and_zeroed_by_a_key(tmp_path: Path) -> None:
    columns = {"response_mask": From("mask", "mask"), **MADE.columns}
    layout = replace(MADE, columns=columns, span=True, zeroed_by="weight")
    line = {**LINE, "mask": [0, 1, 1]}
    first, second = rows(tmp_path, layout, {**line, "weight": 1}, {**line, "weight": 0})
    assert (first["response_mask"], second["response_mask"]) == ([1, 1], [0, 0])
    assert first["rollout_log_probs"] == second["rollout_log_probs"] == [-1.0, -2.0]


def test_a_line_may_be_several_rows_and_its_lists_arrays(tmp_path: Path) -> None:
    def halves(row: dict[str, Any], number: int) -> list[dict[str, Any]]:
        return [{"engine": np.array(row["engine"][part])} for part in (slice(1), slice(1, 3))]

    layout = replace(MADE, parts=halves, columns={"rollout_log_probs": From("floats", "engine")}, from_path={})
    assert [row["rollout_log_probs"] for row in rows(tmp_path, layout, LINE)] == [[-0.5], [-1.0, -2.0]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**LINE, "engine": [-0.5, "x", -1.0]}, "line 2: engine is not a list of numbers."),
        ({**LINE, "trainer": [-0.5]}, "line 2: trainer has 1 values, engine has 3."),
        ({**LINE, "about": "math"}, "line 2: about is not an object."),
        ({**LINE, "attempt": 1.5}, "line 2: attempt is not a whole number."),
        ({**LINE, "prompt": "x"}, "line 2: prompt is not a whole number."),
        ({**LINE, "reward": {}}, "line 2: reward is not a number."),
    ],
)
def test_what_is_of_another_kind_is_named(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        rows(tmp_path, MADE, LINE, line)
    assert caught.value.message == message


def test_columns_have_the_type_of_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "made_7.jsonl"
    path.write_text(json.dumps(LINE))
    types = MADE([str(path)]).types
    assert types["attempt"] == pa.int64()
    assert types["rollout_log_probs"] == pa.list_(pa.float64())
