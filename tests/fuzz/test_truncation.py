"""A dump that is cut short while the command reads it: few tries, so that the script that makes many stays whole."""

from pathlib import Path

import pytest
from truncation import CONTAINERS, Ended, tried

from rlcorr_cli.reading.formats import CONTAINERS as READ

pytestmark = pytest.mark.xdist_group("processes")


def test_a_dump_that_is_cut_short_is_read_whole_or_refused(tmp_path: Path) -> None:
    found = tried("d.arrow", 3, 0, tmp_path)
    assert found.outcomes.total() == 3
    assert found.wrong == []


def test_every_container_is_tried() -> None:
    suffixes = {container.removeprefix("d") for container in CONTAINERS if container.startswith("d.")}
    assert all(suffixes & {*container.suffixes} for container in READ)


WHOLE = Ended(0, "", [3], ("out.json",), 1.0)


@pytest.mark.parametrize(
    ("ended", "harm"),
    [
        (Ended(-7, "", [], (), 1.0), "status -7"),
        (Ended(0, "", [2], ("out.json",), 1.0), "other numbers"),
        (Ended(3, "Error: \n\n", [], ("out.json",), 1.0), "something left behind"),
        (Ended(3, "Traceback\n", [], (), 1.0), "a traceback"),
        (Ended(3, "Error: \n", [], (), 1.0), "not two lines"),
    ],
)
def test_harm_would_be_seen(ended: Ended, harm: str) -> None:
    assert harm in ended.wrong(WHOLE)
