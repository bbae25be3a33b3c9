"""The warm server, started once for all tests of the attack."""

from collections.abc import Iterator

import pytest
from warm import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
