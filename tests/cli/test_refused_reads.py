"""A store that refuses in the middle of a file: its client's complaint is the store's, whatever the container."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, refused, run

from rlcorr_cli.files import stores
from rlcorr_cli.files.buckets import Found

REFUSAL = "AuthenticationException: GetToken(): the token has expired"


class Expiring:
    """A file of which so many bytes can be read, and then no more: the client of a store has no token left."""

    lists_by_page = True

    def __init__(self, path: Path, n_bytes: int) -> None:
        self._path, self._left = path, n_bytes

    def found(self, key: str) -> Found:
        return Found(key, self._path.stat().st_size, (), None)

    def reader(self, found: Found) -> Callable[[int, int], bytes]:
        def read(start: int, n: int) -> bytes:
            self._left -= n
            if self._left < 0:
                raise OSError(REFUSAL)
            return self._path.read_bytes()[start : start + n]

        return read


def _written(path: Path) -> None:
    """Larger than what is read of an object in one request."""
    table = pa.concat_tables([pq.read_table(BF16).drop_columns(["sample_id"])] * 60)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=500, compression="none", use_dictionary=False)
    elif path.suffix in (".arrow", ".ipc"):
        new = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as out, new(out, table.schema) as writer:
            writer.write_table(table, 500)
    else:
        import polars as pl

        pl.DataFrame(table).write_ndjson(path)
    assert path.stat().st_size > 3 << 20


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.ipc", "a.jsonl"])
def test_a_token_that_fails_while_a_file_is_read_is_the_stores_refusal(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path / name)
    size = (tmp_path / name).stat().st_size

    monkeypatch.setattr(stores, "opened", lambda *place: Expiring(tmp_path / name, size // 3))
    ran = run("analyze", f"gs://{tmp_path.name}/{name}")
    refused(ran, 3, "no credentials, or they are not valid", f"key '{name}', endpoint")
