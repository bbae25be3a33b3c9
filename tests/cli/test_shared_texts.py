"""Texts that many rows share: small in a file, and never written out for more rows than a portion holds."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import refused, run

from rlcorr_cli.reading.arrow_values import bytes_of_rows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.reading.values import coded, row_keys

N, LENGTH = 300, 1 << 20
TEXT = "x" * LENGTH
ONE = pa.DictionaryArray.from_arrays(pa.array(np.zeros(N, np.int32)), pa.array([TEXT]))
STARTS = pa.array(np.arange(N + 1, dtype=np.int32))
VIEW = np.tile(np.array([LENGTH, int.from_bytes(b"xxxx", "little"), 0, 0], np.int32), N)
LOG_PROBS = pa.ListArray.from_arrays(STARTS, pa.array(np.full(N, -0.5, np.float32)))
FORMS = {
    "parquet": ONE,
    "bytes.parquet": ONE.cast(pa.dictionary(pa.int32(), pa.binary())),
    "lists.parquet": pa.ListArray.from_arrays(STARTS, ONE),
    "objects.parquet": pa.StructArray.from_arrays([ONE], ["text"]),
    "messages.parquet": pa.ListArray.from_arrays(STARTS, pa.StructArray.from_arrays([ONE], ["content"])),
    "arrow": ONE,
    "runs.arrow": pa.RunEndEncodedArray.from_arrays(pa.array([N], pa.int32()), pa.array([TEXT])),
    "view.arrow": pa.Array.from_buffers(pa.string_view(), N, [None, pa.py_buffer(VIEW), pa.py_buffer(TEXT.encode())]),
}


def written(path: Path, column: pa.Array, name: str = "extra") -> str:
    """A dump with the column, of a few hundred kilobytes at most."""
    table = pa.table({"rollout_log_probs": LOG_PROBS, "old_log_probs": LOG_PROBS, name: column})
    if path.suffix == ".parquet":
        pq.write_table(table, path, store_schema=False, compression="zstd")
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    assert path.stat().st_size < 2 * LENGTH
    return str(path)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_share_a_long_text_are_read_a_few_at_a_time(form: str, tmp_path: Path) -> None:
    dump = open_dump(ReadRequest(paths=(written(tmp_path / f"a.{form}", FORMS[form]),)))
    n_rows = 0
    for rows in dump.reader.rows(dump.shards[0], 1 << 18, whole=True):
        table: Any = rows.original.table  # type: ignore[union-attr]
        assert len(table) <= 4
        assert list(rows.places.numbers) == list(range(n_rows, n_rows + len(table)))
        n_rows += len(table)
    assert n_rows == N


@pytest.mark.parametrize("form", ["parquet", "arrow", "runs.arrow"])
def test_a_long_text_that_rows_share_is_a_group_once(form: str, tmp_path: Path) -> None:
    dump = open_dump(ReadRequest(paths=(written(tmp_path / f"a.{form}", FORMS[form], "source"),), group_by=("source",)))
    (rows,) = dump.reader.checked(dump.shards[0], 1 << 18)
    assert rows.batch.group_keys == ((None, TEXT),)  # type: ignore[union-attr]


@pytest.mark.parametrize("values", [["a", "b", None, "a"], [1, 1, 2, None]])
def test_a_dictionary_has_the_keys_of_its_values(values: list[Any]) -> None:
    column, unused = pa.array(values), pa.array([*values, values[1]])
    dictionary = unused.dictionary_encode().slice(0, 4)
    assert (row_keys([dictionary]) == row_keys([column])).all()
    for one in (dictionary, column):
        codes, named = coded(one)
        assert [named[code] for code in codes] == values


def test_what_a_row_takes_is_known_of_every_type() -> None:
    texts = pa.array(["abc", None, "de", "f"])
    lists = pa.array([["abc", "d"], None, [], ["ef"]])
    pairs = pa.array([[("k", "vv")], [], None, [("k", "v"), ("l", "w")]], pa.map_(pa.string(), pa.string()))
    views = pa.ListViewArray.from_arrays(
        pa.array([0, 0, 1, 0], pa.int32()), pa.array([2, 2, 1, 0], pa.int32()), pa.array(["ab", "c"])
    )
    for column, sizes in (
        (texts, [3, 0, 2, 1]),
        (texts.dictionary_encode(), [3, 0, 2, 1]),
        (texts.cast(pa.string_view()), [3, 0, 2, 1]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array(["ab", "c"])), [2, 1, 1, 1]),
        (lists, [4, 0, 0, 2]),
        (pairs, [3, 0, 0, 4]),
        (views, [3, 3, 1, 0]),
        (pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int32(), 2)), [8, 8, 8, 8]),
        (pa.StructArray.from_arrays([texts, as_int8(4)], ["a", "b"]), [4, 1, 3, 2]),
    ):
        assert bytes_of_rows(column).tolist() == sizes, column.type
        assert bytes_of_rows(column.slice(1, 2)).tolist() == sizes[1:3], column.type


def as_int8(n: int) -> pa.Array:
    """Numbers of a byte."""
    return pa.array(range(n), pa.int8())


def test_a_row_that_cannot_be_written_out_is_refused(tmp_path: Path) -> None:
    log_probs = pa.array([[-0.5]], pa.list_(pa.float32()))
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 18, np.int32)), pa.array([TEXT]))
    extra = pa.ListArray.from_arrays(pa.array([0, 1 << 18], pa.int32()), texts)
    table = pa.table({"rollout_log_probs": log_probs, "old_log_probs": log_probs, "extra": extra})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False, compression="zstd")
    refused(
        run("convert", str(tmp_path / "a.parquet"), "-o", str(tmp_path / "c.parquet")),
        3,
        "row 0 (0-based)",
        "274.88 GB",
    )
