from pathlib import Path

import pytest

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.container import Reader, reader
from rlcorr_cli.reading.find import find
from rlcorr_cli.reading.formats import CONTAINERS, NAMES, SUFFIXES, WRITTEN, Container, container, holding


@pytest.mark.parametrize("row", CONTAINERS, ids=lambda row: row.name)
def test_every_container_has_a_reader(row: Container) -> None:
    assert isinstance(reader(row.name), Reader)
    assert container(row.name) is row


def test_no_two_containers_are_known_by_the_same_mark() -> None:
    for marks in ([start for row in CONTAINERS for start in row.magic], SUFFIXES, NAMES, WRITTEN):
        assert len(set(marks)) == len(marks)


def test_what_a_container_is_written_to_is_known_as_a_containers() -> None:
    known = {suffix for row in CONTAINERS for suffix in row.suffixes}
    assert all(suffix in known for row in CONTAINERS for suffix in row.written)
    assert container("parquet").written == container("arrow").written == (".parquet", ".arrow")


def test_rows_of_two_containers_go_where_rows_may_differ() -> None:
    assert holding({"parquet"}) == (".parquet", ".arrow")
    assert holding({"parquet", "jsonl"}) == holding({"jsonl"}) == (".jsonl", ".jsonl.gz", ".jsonl.zst")


def test_messages_name_every_container(tmp_path: Path) -> None:
    titles = [row.title for row in CONTAINERS]
    path = tmp_path / "x.bin"
    path.write_bytes(b"????")
    with pytest.raises(DataError) as caught:
        find([str(path)])
    assert all(title in caught.value.message for title in titles)
    assert "`rlcorr help dumps`" in caught.value.hint
    for row in CONTAINERS:
        if not row.streams:
            with pytest.raises(UsageError, match=f"not as {row.title}"):
                find(["-"], row.name)
