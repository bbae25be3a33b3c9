"""A store that takes a connection and is silent is given up in time; any other is asked as ever."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from rlcorr_cli.files.services import StoreRequest, refused
from rlcorr_cli.files.stores import Impatient


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_store_does_not_answer(silent: str) -> None:
    google = fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=silent)
    for call in (Impatient(google, 0.2).get_file_info, Impatient(google, 0.2).open_input_file):
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s") as caught:
            call("dumps/a.parquet")
        message = refused(StoreRequest("gs://dumps/a.parquet", "dumps", "a.parquet", ""), caught.value).message
        assert "the endpoint does not answer" in message


def test_what_a_store_answers_comes_through(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    files = Impatient(fs.LocalFileSystem())
    assert files.get_file_info(str(tmp_path / "a")).size == 3
    assert [info.base_name for info in files.get_file_info(fs.FileSelector(str(tmp_path)))] == ["a"]
    assert files.open_input_file(str(tmp_path / "a")).read() == b"abc"
    files.delete_file(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        files.open_input_file(str(tmp_path / "a"))
