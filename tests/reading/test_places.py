"""Places in ranges of files: the lines before them are counted once, and rightly in any order."""

from pathlib import Path

import pytest

from rlcorr_cli.places import Place
from rlcorr_cli.reading import batches as places
from rlcorr_cli.reading.batches import LineCounter, Places, all_resolved


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name, lines in (("a.jsonl", 40), ("b.jsonl", 7)):
        (tmp_path / name).write_bytes(b"".join(b"x" * i + b"\n" for i in range(lines)))
    return sorted(tmp_path.iterdir())


def test_places_are_counted_from_the_start_of_their_files(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PIECE_BYTES", 64)
    wanted = [Place(str(path), "line", 2, start) for path in files for start in (700, 0, 27, 5, 27) if start < 800]
    places_resolved = all_resolved(wanted)
    for place, there in zip(wanted, places_resolved, strict=True):
        before = Path(place.path).read_bytes()[: place.start].count(b"\n")
        assert there == Place(place.path, "line", 2 + before)


def test_a_counter_goes_back(files: list[Path]) -> None:
    counter, data = LineCounter(), files[0].read_bytes()
    for end in (300, 310, 20, 0, 500):
        assert counter.before(str(files[0]), end) == data[:end].count(b"\n")


def test_a_row_is_found_by_its_number_in_the_file(files: list[Path]) -> None:
    rows = Places(str(files[0]), "line", [1, 2, 4], start=10)
    before = files[0].read_bytes()[:10].count(b"\n")
    assert [rows.row_of(before + n, LineCounter()) for n in (1, 2, 3, 4)] == [0, 1, None, 2]
