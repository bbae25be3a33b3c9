"""Arrow's files and streams, and Hugging Face datasets."""

from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from few import few

from rlcorr_cli import analyze, filter
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import find_noting

SAMPLE = Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet"
TABLE = pq.read_table(SAMPLE)
RIGHT = analyze(str(SAMPLE)).whole.values


def written(folder: Path, form: str) -> Path:
    path = folder / f"dump.{form}"
    if form == "feather":
        pyarrow.feather.write_feather(TABLE, path, compression="lz4", chunksize=7)
        return path
    make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, make(file, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=7)
    return path


@pytest.mark.parametrize("form", ["arrow", "ipc", "feather"])
@pytest.mark.parametrize("workers", few([1, 2], [2]))
def test_every_form_gives_the_numbers_of_parquet(tmp_path: Path, form: str, workers: int) -> None:
    report = analyze(str(written(tmp_path, form)), engine="threads", workers=workers)
    assert report.whole.counts["sequences"] == TABLE.num_rows
    assert report.whole.values == pytest.approx(RIGHT, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("form", ["arrow", "ipc", "feather"])
def test_filter_takes_every_column_and_row(tmp_path: Path, form: str) -> None:
    output = tmp_path / "out.parquet"
    done = filter(str(written(tmp_path, form)), output, preset="token_is")
    assert pq.read_table(output).select(TABLE.column_names).equals(TABLE)
    assert done.rows_out == TABLE.num_rows


def test_a_hugging_face_folder_is_read_without_its_housekeeping(tmp_path: Path) -> None:
    dataset = datasets.Dataset(pa.Table.from_batches(TABLE.to_batches()))
    dataset.save_to_disk(str(tmp_path / "hf"), num_shards=3)
    (tmp_path / "hf" / "cache-0123.arrow").write_bytes(b"half")
    sources, notes = find_noting([str(tmp_path / "hf")])
    assert ([source.format for source in sources], notes) == (["arrow"] * 3, ())
    assert analyze(str(tmp_path / "hf")).whole.values == pytest.approx(RIGHT, rel=1e-12, nan_ok=True)


def test_texts_in_a_dictionary_are_groups(tmp_path: Path) -> None:
    source = pa.array(["a", "b"] * (TABLE.num_rows // 2)).dictionary_encode()
    table = TABLE.append_column("source", source)
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert [group.key["source"] for group in analyze(str(tmp_path / "d.arrow"), group_by="source").groups] == ["a", "b"]


@pytest.mark.parametrize("form", ["arrow", "ipc"])
def test_a_file_that_is_cut_short_is_said_to_be(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form)
    for size in (9, 1000, path.stat().st_size // 2):
        short = tmp_path / f"short{size}.{form}"
        short.write_bytes(path.read_bytes()[:size])
        with pytest.raises(DataError, match="cannot be read as Arrow IPC"):
            analyze(str(short))


@pytest.mark.parametrize("form", ["arrow", "legacy.arrow", "feather", "ipc"])
def test_an_error_names_the_row_by_its_number_in_the_whole_file(tmp_path: Path, form: str) -> None:
    """In record batches of several lengths, with a dictionary before them."""
    n, bad = 400, 377
    lists = [[-0.5]] * bad + [[0.5]] + [[-0.5]] * (n - bad - 1)
    source = pa.array(["a", "b"] * (n // 2)).dictionary_encode()
    table = pa.table({"rollout_log_probs": lists, "old_log_probs": [[-0.5]] * n, "source": source})
    path = tmp_path / f"dump.{form}"
    options = pa.ipc.IpcWriteOptions(
        use_legacy_format=form.startswith("legacy"), compression="lz4" if form == "feather" else None
    )
    make = pa.ipc.new_stream if form == "ipc" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, make(file, table.schema, options=options) as writer:
        for first in range(0, n, 10):
            writer.write_batch(table.slice(first, 3).combine_chunks().to_batches()[0])
            writer.write_batch(table.slice(first + 3, 7).combine_chunks().to_batches()[0])
    with pytest.raises(DataError, match=rf"dump.{form}, row {bad} \(0-based\): rollout_log_probs\[0\] is 0.5"):
        analyze(str(path))
