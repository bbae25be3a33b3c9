"""A store that refuses in the middle of a file: its client's complaint is the store's, whatever the container."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs
from running import BF16, refused, run

from rlcorr_cli.files import stores
from rlcorr_cli.files.stores import Opened

REFUSAL = "AuthenticationException: GetToken(): the token has expired"


class Expiring(LocalFileSystem):
    """Files of which so many bytes can be read, and then no more: the client of a store has no token left."""

    cachable = False

    def __init__(self, n_bytes: int) -> None:
        super().__init__()
        self.left = n_bytes

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        return _File(path, self)


class _File(io.BytesIO):
    def __init__(self, path: str, files: Expiring) -> None:
        super().__init__(Path(path).read_bytes())
        self._files = files

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._files.left -= len(data)
        if self._files.left < 0:
            raise pa.ArrowException(REFUSAL)
        return data


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

    def opened(scheme: str, place: str, query: str) -> Opened:
        return Opened(fs.PyFileSystem(fs.FSSpecHandler(Expiring(size // 3))), f"{tmp_path}/")

    monkeypatch.setattr(stores, "opened", opened)
    ran = run("analyze", f"gs://{tmp_path.name}/{name}")
    refused(ran, 3, "no credentials, or they are not valid", f"/{name}', endpoint")
