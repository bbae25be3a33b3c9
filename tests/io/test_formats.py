from rlcorr_cli.io.formats import CONTAINERS, NAMES, SUFFIXES
from rlcorr_cli.io.readers import READERS


def test_every_container_has_a_reader() -> None:
    assert set(NAMES) == set(READERS)


def test_no_two_containers_are_known_by_the_same_mark() -> None:
    magic = [start for container in CONTAINERS for start in container.magic]
    assert len(set(magic)) == len(magic)
    assert len(set(SUFFIXES)) == len(SUFFIXES)
