"""Keys of rows: the same from any file that holds the same ids, 0 of a row without one."""

from pathlib import Path

import pyarrow as pa
import pytest
from dumps import Row, batches as batches_of, jsonl, opened, parquet, plain

from rlcorr_cli.reading.values import row_keys


def keys_in(path: str, batch_tokens: int = 10**6) -> list[int] | None:
    dump = opened(path)
    batches = [batch for shard in dump.shards for batch in batches_of(dump, shard, batch_tokens)]
    if batches[0].row_keys is None:
        return None
    return [key for batch in batches if batch.row_keys is not None for key in batch.row_keys.tolist()]


def with_ids(n: int) -> list[Row]:
    return [{**row, "sample_id": f"sample {i}", "step": i % 2} for i, row in enumerate(plain(n))]


@pytest.mark.parametrize("batch_tokens", [2, 10**6])
def test_parquet_and_json_lines_give_the_same_keys(tmp_path: Path, batch_tokens: int) -> None:
    table = keys_in(parquet(tmp_path / "a.parquet", with_ids(9)), batch_tokens)
    assert table == keys_in(jsonl(tmp_path / "a.jsonl", with_ids(9)))
    assert table is not None
    assert len(set(table)) == 9


def test_step_is_part_of_the_key(tmp_path: Path) -> None:
    rows = [{**row, "sample_id": "a", "step": i} for i, row in enumerate(plain(3))]
    assert len(set(keys_in(jsonl(tmp_path / "a.jsonl", rows)) or [])) == 3


def test_without_ids_there_are_no_keys(tmp_path: Path) -> None:
    assert keys_in(parquet(tmp_path / "a.parquet", plain(3))) is None


def test_keys_hang_on_the_text_of_a_value_alone() -> None:
    text = pa.array(["7", None, "", "7 "])
    expected = row_keys([text]).tolist()
    assert expected[1] == 0
    assert 0 not in (expected[0], *expected[2:])
    assert len(set(expected)) == 4
    assert row_keys([text.dictionary_encode()]).tolist() == expected
    assert row_keys([text.cast(pa.large_string())]).tolist() == expected
    assert row_keys([text[2:]]).tolist() == expected[2:]
    assert row_keys([pa.array([7, None])]).tolist() == expected[:2]
