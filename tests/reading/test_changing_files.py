"""A file that changes while it is read is an error that names it, never fewer or other rows."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from dumps import compressed, jsonl, opened, parquet, row
from few import few

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.torch_files import WHOLE_BYTES
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.convert import canonical_rows
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.request import ReadRequest
from tests.layouts.crafted import dumped, tensor, torch_bytes
from tests.layouts.native_rows import NATIVE

N = 600
RANGE_BYTES = 1 << 12
ROWS = [row([-0.5, -1.0, i / -7], [-0.25, -2.0, i / -9], [1, i % 2, 1]) for i in range(N)]


def aged(path: str) -> str:
    """The file, last written long ago: a clock of files may not tell two writes within milliseconds apart."""
    os.utime(path, (10**9, 10**9))
    return path


def dump_of(form: str, folder: Path) -> Dump:
    """The same rows, in many shards each."""
    if form == "parquet":
        dump = opened(aged(parquet(folder / "d.parquet", ROWS, row_group_size=20)))
        groups = tuple(replace(dump.shards[0], index=i, part=(i, i + 1), n_bytes=1) for i in range(N // 20))
        return replace(dump, shards=groups)
    dump = opened(aged(jsonl(folder / "d.jsonl", ROWS)))
    size = dump.sources[0].n_bytes
    ranges = [(start, min(start + RANGE_BYTES, size)) for start in range(0, size, RANGE_BYTES)]
    cut = tuple(replace(dump.shards[0], index=i, part=part, n_bytes=1) for i, part in enumerate(ranges))
    return replace(dump, shards=cut)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def truncated_at_a_line(path: Path) -> None:
    data = path.read_bytes()
    os.truncate(path, data.index(b"\n", len(data) // 2) + 1 if b"\n" in data else len(data) // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def deleted(path: Path) -> None:
    path.unlink()


def replaced_by_fewer_rows(path: Path) -> None:
    other = path.with_name("other")
    (parquet if path.suffix == ".parquet" else jsonl)(other, ROWS[: N // 4])
    os.replace(other, path)


def replaced_by_other_rows(path: Path) -> None:
    """As many bytes of JSON lines, or as many row groups, of other rows."""
    other = path.with_name("other")
    if path.suffix == ".parquet":
        parquet(other, ROWS[: N // 2], row_group_size=10)
    else:
        other.write_bytes(path.read_bytes().replace(b"-0.5", b"-0.7"))
    os.replace(other, path)


def overwritten(path: Path) -> None:
    """With as many bytes that are no dump."""
    path.write_bytes(b"x" * path.stat().st_size)


CHANGES = (
    truncated,
    truncated_at_a_line,
    emptied,
    deleted,
    replaced_by_fewer_rows,
    replaced_by_other_rows,
    overwritten,
)


def counts(dump: Dump, whole: bool) -> Iterator[int]:
    """Rows of each shard."""
    for shard in dump.shards:
        portions = dump.reader.checked(shard, 10, whole=whole)
        yield sum(portion.batch.n_rows for portion in portions if isinstance(portion, CheckedRows))


@pytest.mark.parametrize("whole", [False, True], ids=["narrow", "whole"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", few(["jsonl", "parquet"], ["parquet"]))
def test_a_file_that_changes_between_shards_is_an_error(
    form: str, change: Callable[[Path], None], whole: bool, tmp_path: Path
) -> None:
    dump = dump_of(form, tmp_path)
    assert len(dump.shards) > 5
    counted = counts(dump, whole)
    before = [next(counted), next(counted)]
    change(tmp_path / f"d.{form}")
    with pytest.raises(DataError) as raised:
        before.extend(counted)
    assert f"d.{form}" in raised.value.message
    assert sum(before) < N


@pytest.mark.parametrize("whole", [False, True], ids=["narrow", "whole"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_that_stays_is_read_to_its_end(form: str, whole: bool, tmp_path: Path) -> None:
    assert sum(counts(dump_of(form, tmp_path), whole)) == N


@pytest.mark.parametrize("change", [truncated, emptied, deleted, overwritten])
@pytest.mark.parametrize("form", ["jsonl", "parquet", "jsonl.gz"])
def test_a_file_that_changes_after_it_was_opened_is_an_error(
    form: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / f"d.{form}"
    if form == "jsonl.gz":
        jsonl(tmp_path / "plain", ROWS)
        compressed(path, (tmp_path / "plain").read_text(), "gzip")
    else:
        dump_of(form, tmp_path)
    dump = opened(aged(str(path)))
    change(path)
    with pytest.raises(DataError, match=path.name):
        list(counts(dump, whole=False))


@pytest.mark.parametrize("change", [truncated, emptied, deleted, overwritten])
@pytest.mark.parametrize("form", ["jsonl", "parquet", "pt"])
def test_a_file_that_changes_after_it_was_opened_is_not_converted(
    form: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / f"d.{form}"
    if form == "pt":  # whose unit is kept open, with its bytes
        path.write_bytes((NATIVE / "miles" / "policy_loss_debug" / "rank_0_call_0.pt").read_bytes())
    else:
        dump_of(form, tmp_path)
    dump = open_dump(ReadRequest(paths=(aged(str(path)),)))
    change(path)
    with pytest.raises(DataError, match=path.name):
        list(canonical_rows(dump))


def arrow(path: Path) -> None:
    """In a file or a stream, by the suffix; more than is read ahead."""
    table = pa.Table.from_pylist(ROWS).append_column("text", pa.array(["a" * 10_000] * N))
    new = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as out, new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=20)


LENGTH, N_SEQUENCES = 200_000, 6
KINDS = {"tokens": ("Long", 8), "loss_masks": ("Int", 4), "log_probs": ("Float", 4), "rollout_log_probs": ("Float", 4)}


def torch_file(path: Path) -> None:
    """slime's, longer than what is read whole."""
    storages = {f"{name}{i}": b"\0" * LENGTH * size for i in range(N_SEQUENCES) for name, (_, size) in KINDS.items()}
    samples = [
        {
            "sample_index": i,
            "response_lengths": LENGTH,
            **{name: tensor(f"{name}{i}", kind, (LENGTH,)) for name, (kind, _) in KINDS.items()},
        }
        for i in range(N_SEQUENCES)
    ]
    value = {"format_version": 2, "rollout_id": 1, "rank": 0, "samples": samples}
    path.write_bytes(torch_bytes(dumped(value, 2), storages))
    assert path.stat().st_size > WHOLE_BYTES


WRITTEN: dict[str, Callable[[Path], object]] = {
    "arrow": arrow,
    "ipc": arrow,
    "pt": torch_file,
    "parquet": lambda path: parquet(path, ROWS, row_group_size=20),
}


@pytest.mark.parametrize("kept", [0, 4096, 0.5], ids=["nothing", "a page", "half"])
@pytest.mark.parametrize("form", WRITTEN)
def test_a_file_that_is_cut_short_between_two_portions_is_an_error(form: str, kept: float, tmp_path: Path) -> None:
    path = tmp_path / f"d.{form}"
    WRITTEN[form](path)
    portions = canonical_rows(open_dump(ReadRequest(paths=(aged(str(path)),))))
    assert 0 < len(next(portions)[1]) < N
    os.truncate(path, kept if isinstance(kept, int) else int(path.stat().st_size * kept))
    with pytest.raises(DataError, match="was changed while it was read"):
        list(portions)


OPENINGS = """
import os, sys
from pathlib import Path
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.convert import canonical_rows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest

path, whole, opened, half_at = sys.argv[1], Path(sys.argv[1]).read_bytes(), 0, 0

def opening(event, args):
    global opened, half_at
    if event != "open" or not half_at or args[0] != path:
        return
    opened, at, half_at = opened + 1, half_at, 0
    if opened == at:
        os.truncate(path, len(whole) // 2)
    elif opened == at + 1:
        Path(path).write_bytes(whole)
    half_at = at

def n_rows():
    request = ReadRequest(paths=(os.path.dirname(path),))
    return sum(len(rows) for _, rows in canonical_rows(open_dump(request, PlanColumns(compares=False))))

expected = n_rows()
sys.addaudithook(opening)
for half_at in range(1, 9):
    opened = 0
    os.utime(path, (10**9, 10**9))
    try:
        found = n_rows()
    except DataError as error:
        found = expected if "was changed while it was read" in error.message else error.message
    assert found == expected, (half_at, opened, found, expected)
    Path(path).write_bytes(whole)
"""


@pytest.mark.parametrize(
    "name",
    few(
        ["miles/train_data/3_0.pt", "slime/train_data/0.pt", "roll/rollout_mock_dumps/val/step_000000.pkl"],
        ["slime/train_data/0.pt"],
    ),
)
def test_a_file_that_is_half_written_whenever_it_is_opened_is_never_passed_over(name: str, tmp_path: Path) -> None:
    """It is half as long from one opening to the next, and then as before."""
    shutil.copytree((NATIVE / name).parent, tmp_path / "dump")
    path = tmp_path / "dump" / Path(name).name
    done = subprocess.run([sys.executable, "-c", OPENINGS, path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
