"""Whole rows, whatever their container: each kind does the same with the same rows, and leaves its own as they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rlcorr_cli.reading import arrow_values, whole_rows
from rlcorr_cli.reading.whole_rows import ArrowRows, JsonRows, OriginalRows

Row = dict[str, Any]
ROWS: list[Row] = [
    {"id": "a", "mask": [1, 1, 0], "reward": 0.5},
    {"id": "b", "mask": [], "reward": -1.0},
    {"id": "c", "mask": [1], "reward": 2.0},
]
KEEP, OFFSETS = np.array([True, False, False, True]), np.array([0, 3, 3, 4])
MASKED = [[1, 0, 0], [], [1]]

KINDS: dict[str, Callable[[list[Row]], OriginalRows]] = {
    "arrow": lambda rows: ArrowRows(pa.Table.from_pylist(rows)),
    "objects": lambda rows: JsonRows(held=rows),
    "lines": lambda rows: JsonRows([json.dumps(row).encode() for row in rows]),
}


@pytest.fixture(params=KINDS)
def rows(request: pytest.FixtureRequest) -> OriginalRows:
    return KINDS[request.param](ROWS)


def listed(rows: OriginalRows) -> list[str]:
    """Rows as text: the order of their columns counts."""
    return [json.dumps(row) for row in rows.as_objects()]


def test_parts_and_chosen_rows_are_those_of_a_list(rows: OriginalRows) -> None:
    assert len(rows) == 3
    assert listed(rows) == list(map(json.dumps, ROWS))
    assert listed(rows.part(1, 3)) == list(map(json.dumps, ROWS[1:3]))
    assert len(rows.part(2, 2)) == 0
    taken = rows.take(np.array([2, 0, 2]))
    assert listed(taken) == [json.dumps(ROWS[i]) for i in (2, 0, 2)]
    assert len(rows.take(np.array([], np.int64))) == 0
    assert [rows.values(i) for i in range(3)] == ROWS
    assert rows.unreadable() == {}
    assert listed(rows.read()) == listed(rows)


def test_runs_of_long_rows_are_those_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = pa.array([[i] * (i % 4) if i % 5 else None for i in range(20)], pa.list_(pa.float32()))
    texts = pa.array([str(i) if i % 3 else None for i in range(20)])
    table = pa.table({"lists": lists, "texts": texts, "words": texts.dictionary_encode()}).slice(2)
    monkeypatch.setattr(arrow_values, "SLICE_BYTES", 1)
    for at in ([0, 1, 2, 7, 8, 17], [*range(18)], [3], [5, 4, 4], [17, 0, 1]):
        taken = ArrowRows(table).take(np.array(at))
        assert taken.table.equals(table.take(at))
        assert taken.table.column(0).num_chunks == 1


def test_columns_come_after_those_of_the_dump(rows: OriginalRows) -> None:
    added = {
        "weights": pa.array([[0.1, 0.2, 0.3], [], [3e38]], pa.list_(pa.float32())),
        "row_weight": pa.array([0.1, 1.0, 2.0]),
        "kept": pa.array([0.5, None, 1.0]),
        "names": pa.array([["k3", "veto"], [], ["k3"]]),
        "draw": pa.array([0, 1, 2], pa.int32()),
    }
    wanted = [{**row, **{name: column[i].as_py() for name, column in added.items()}} for i, row in enumerate(ROWS)]
    assert listed(rows.with_columns(added)) == list(map(json.dumps, wanted))
    assert listed(rows.with_columns({})) == listed(rows) == list(map(json.dumps, ROWS))


def test_columns_of_a_slice_are_the_slices(rows: OriginalRows) -> None:
    column = pa.array([[9], [1, 2], [], [3], [9]], pa.list_(pa.int8())).slice(1, 3)
    assert [row["new"] for row in rows.with_columns({"new": column}).as_objects()] == [[1, 2], [], [3]]


def test_copies_of_a_row_get_values_of_their_own(rows: OriginalRows) -> None:
    twice = rows.take(np.array([1, 1])).with_columns({"draw": pa.array([0, 1])})
    assert [(row["id"], row["draw"]) for row in twice.as_objects()] == [("b", 0), ("b", 1)]


def test_a_mask_changes_in_its_place_and_stands_as_it_was_at_the_end(rows: OriginalRows) -> None:
    masked = rows.masked("mask", KEEP, OFFSETS, before="before")
    wanted = [{**row, "mask": mask, "before": row["mask"]} for row, mask in zip(ROWS, MASKED, strict=True)]
    assert listed(masked) == list(map(json.dumps, wanted))
    assert listed(rows) == list(map(json.dumps, ROWS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_keeps_its_kind_of_numbers(kind: str) -> None:
    made = KINDS[kind]([{"mask": [True, True, False]}, {"mask": []}, {"mask": [True]}])
    assert [row["mask"] for row in made.masked("mask", KEEP, OFFSETS, before="before").as_objects()] == MASKED
    assert '"mask": [true, false, false]' in listed(made.masked("mask", KEEP, OFFSETS, before="before"))[0]


def test_a_column_takes_the_place_of_its_namesake(rows: OriginalRows) -> None:
    replaced = rows.with_columns({"reward": pa.array(["x", "y", "z"])})
    assert listed(replaced) == [json.dumps({**row, "reward": x}) for row, x in zip(ROWS, "xyz", strict=True)]
    assert [row["new"] for row in rows.with_columns({"new": pa.array([1, 2, 3])}).as_objects()] == [1, 2, 3]


def test_rows_are_tables_of_the_columns_that_the_first_have(rows: OriginalRows) -> None:
    table = rows.as_table(None)
    assert table.to_pylist() == ROWS
    assert rows.part(1, 2).as_table(table.schema).schema == table.schema  # an empty list alone says nothing of its type


def test_a_line_that_is_no_object_is_told_and_stands_as_it_is() -> None:
    rows = JsonRows([b'{"id": "a"}', b"[1]", b"\xff{"])
    assert rows.unreadable() == {1: "is an array, not an object", 2: "is not UTF-8 at byte 0"}
    assert rows.values(1) == {"line": "[1]"}
    assert rows.values(2) == {"line": "\\xff{"}
    reasons = rows.with_columns({"why": pa.array(["x", "y", "z"])}).as_objects()
    assert reasons == [
        {"id": "a", "why": "x"},
        {"rlcorr_line": "[1]", "why": "y"},
        {"rlcorr_line_base64": "/3s=", "why": "z"},
    ]


def test_only_containers_know_what_kind_of_rows_they_read() -> None:
    package = Path(whole_rows.__file__).parent.parent
    kinds = {"ArrowRows", "JsonRows"}
    naming = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(kind in path.read_text(encoding="utf-8") for kind in kinds)
    }
    readers = {"reading/batches.py", "reading/jsonl.py"}  # of columns (`Rows.of`), and of lines
    makers = {"reading/convert.py", "reading/whole_rows.py", "reading/recorded.py"}  # of whatever kind it had
    chooser = {"runs/token_rows.py"}  # of rows by an expression over columns, which Arrow has
    assert naming == readers | makers | chooser
