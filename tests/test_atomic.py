"""Files appear whole or not at all, under one name each, and only in the place of what may be replaced."""

import os
from pathlib import Path

import pytest

from rlcorr_cli.atomic import check_apart, check_target, publish, replace_file, same_place, temporary_name
from rlcorr_cli.errors import OutputError, UsageError


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_temporary_is_hidden_beside_its_target_and_never_the_same(tmp_path: Path) -> None:
    names = {temporary_name(tmp_path / "a.jsonl") for _ in range(100)}
    assert len(names) == 100
    assert all(name.parent == tmp_path and name.name.startswith(".") for name in names)


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    ours, theirs = tmp_path / ".part", tmp_path / "a.jsonl"
    ours.write_text("ours")
    theirs.write_text("theirs")
    with pytest.raises(OutputError, match="meanwhile"):
        publish(ours, theirs, replace=False)
    assert theirs.read_text() == "theirs"
    publish(ours, theirs)
    assert (theirs.read_text(), left(tmp_path)) == ("ours", ["a.jsonl"])


def test_a_new_file_is_published_where_nothing_is(tmp_path: Path) -> None:
    ours = tmp_path / ".part"
    ours.write_text("ours")
    publish(ours, tmp_path / "a.jsonl", replace=False)
    assert left(tmp_path) == ["a.jsonl"]


def test_a_file_is_published_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    ours = tmp_path / ".part"
    ours.write_text("ours")
    publish(ours, tmp_path / "a.jsonl", replace=False)
    assert left(tmp_path) == ["a.jsonl"]
    ours.write_text("later")
    with pytest.raises(OutputError, match="meanwhile"):
        publish(ours, tmp_path / "a.jsonl", replace=False)


def test_a_directory_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    ours, theirs = tmp_path / ".part", tmp_path / "out"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / folder.name.strip(".")).touch()
    with pytest.raises(OutputError, match="meanwhile"):
        publish(ours, theirs, replace=False)
    assert left(theirs) == ["out"]
    publish(ours, theirs)
    assert (left(theirs), left(tmp_path)) == (["part"], ["out"])


def test_a_report_does_not_follow_what_has_its_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.write_text("other")
    (tmp_path / ".rlcorr.0.part").symlink_to(other)
    monkeypatch.setattr("rlcorr_cli.atomic.secrets.token_hex", lambda n: "0")
    with pytest.raises(OutputError):
        replace_file(tmp_path / "r.json", b"report")
    assert other.read_text() == "other"


def test_one_place_is_known_under_any_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d")
    monkeypatch.chdir(tmp_path)
    for other in ("d/k.jsonl", "d/../d/k.jsonl", "link/k.jsonl", str(tmp_path / "d" / "k.jsonl"), "d"):
        assert same_place(Path("d/k.jsonl"), Path(other)), other
    assert not same_place(Path("d/k.jsonl"), Path("d/l.jsonl"))
    (tmp_path / "d" / "k.jsonl").touch()
    os.link("d/k.jsonl", "hard.jsonl")
    assert same_place(Path("d/k.jsonl"), Path("hard.jsonl"))
    with pytest.raises(UsageError, match=r"both outputs, -o and --quarantine"):
        check_apart((("-o", Path("d")), ("--rejected-output", None), ("--quarantine", Path("link/k.jsonl"))))


def test_what_is_no_regular_file_is_no_target(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(OutputError, match="not a regular file"):
        check_target(tmp_path / "pipe.jsonl", [])
