"""A store that takes a connection and is silent is given up in time."""

import socket
from collections.abc import Iterator

import pytest

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import buckets, stores
from rlcorr_cli.places import Uri


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("start", ["s3://anonymous@dumps", "gs://anonymous@dumps", "abfs://account@{}/dumps"])
def test_a_silent_store_does_not_answer(start: str, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "UNANSWERED_S", 0.2)
    monkeypatch.setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")
    azure = start.startswith("abfs:")
    query = "enable_tls=false" if azure else f"scheme=http&endpoint_override={silent}"
    uri = Uri(f"{start.format(silent)}/a.parquet", query)
    for ask in (stores.store(uri).status, stores.store(uri).is_directory, stores.store(uri).names):
        with pytest.raises(DataError, match="the endpoint does not answer"):
            ask(uri)
