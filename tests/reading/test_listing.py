"""A listing that goes on from look to look finds what a search finds that begins anew."""

import os
import random
import shutil
from pathlib import Path

import pytest

from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import files
from rlcorr_cli.reading.listing import IN_TURN, YOUNG, Listing

NAMES = ("a.parquet", "b.jsonl", "c.txt", "_d.parquet", ".e.parquet", "state.json", "cache-1.arrow")
DEEDS, LINKS = ("write", "write", "replace", "remove", "folder", "move", "drop"), ("link", "link to folder")
FOLDERS = ("run", "run/x", "run/x/y", "run/_z", "run/w", "elsewhere")


def change(chance: random.Random, links: float) -> None:
    """A file or folder that comes, goes, is moved, or linked to."""
    places = [folder for folder in FOLDERS if os.path.isdir(folder)]
    path = Path(chance.choice(places)) / chance.choice(NAMES)
    what = chance.choice((*DEEDS, *(LINKS if chance.random() < links else ())))
    if what == "write" and not path.is_symlink():
        path.write_text("1")
    elif what == "replace":
        Path("new").write_text("2")
        os.replace("new", path)
    elif what == "remove":
        path.unlink(missing_ok=True)
    elif what == "link":
        path.unlink(missing_ok=True)
        path.symlink_to(Path(chance.choice(places)).resolve() / chance.choice(NAMES))
    elif what == "folder":
        Path(chance.choice(FOLDERS)).mkdir(parents=True, exist_ok=True)
    elif what == "link to folder":
        link = Path(chance.choice(places)) / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(chance.choice(places)).resolve())
    elif what == "move" and os.path.isdir("run/x") and not os.path.exists("run/w"):
        os.rename("run/x", "run/w")
    elif what == "drop" and os.path.isdir("run/w"):
        for top, folders, names in os.walk("run/w", topdown=False):
            for name in (*names, *folders):
                below = Path(top, name)
                below.rmdir() if below.is_dir() and not below.is_symlink() else below.unlink()
        os.rmdir("run/w")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["run", "./run/*.parquet", "run/*/*.parquet"])
def test_a_listing_finds_what_a_search_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in FOLDERS[::5]:
        Path(folder).mkdir()
    chance = random.Random(seed)
    listing = Listing([name])
    for _ in range(60):
        for _ in range(chance.randrange(1, 4)):
            change(chance, 0.2 if seed % 2 else 0)
        asked = listing.look()
        try:
            found = {path for path in files((name,)) if os.path.exists(path)}
        except DataError:
            found = set[str]()
        assert set(asked) == found
        assert all(path in listing and os.stat(path).st_mtime_ns == asked[path][-1] for path in asked)


def test_a_file_of_long_ago_that_is_written_again_is_found_at_once_or_in_its_turn(tmp_path: Path) -> None:
    n_others = 2 * IN_TURN + 3
    paths = [tmp_path / f"{n}.jsonl" for n in range(YOUNG + n_others)]
    for path in paths:
        path.touch()
    listing = Listing([str(tmp_path)])
    first = list(listing.look())
    assert len(first) == len(paths)
    late = first[IN_TURN + 9]
    shutil.move(shutil.copy(late, tmp_path / "moved"), late)
    assert late in listing.look()
    looks = [listing.look() for _ in range(3)]
    assert [len(asked) for asked in looks] == [YOUNG + IN_TURN] * 3
    assert {path for asked in looks for path in asked} == set(map(str, paths))
