"""Files of a cluster's file system, which obstore does not know: seen when they are whole, by pyarrow's local one."""

from pathlib import Path

from pyarrow import fs

from rlcorr_cli.files.uploads import OtherStore, RenamedStream, Upload


def store() -> OtherStore:
    return OtherStore(lambda name: RenamedStream(fs.LocalFileSystem(), f"{name}.hidden", name))


def begun(path: Path) -> Upload:
    upload = store().upload(str(path), None)
    upload.write(b"new")
    assert path.read_bytes() == b"old"
    return upload


def test_a_file_has_its_name_when_it_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    upload = begun(path)
    upload.complete()
    assert (upload.tell(), path.read_bytes()) == (3, b"new")
    store().put(str(tmp_path / "b"), b"small", new=True)
    assert (tmp_path / "b").read_bytes() == b"small"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


def test_nothing_is_left_of_one_that_is_aborted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    begun(path).abort()
    upload = begun(path)
    del upload  # forgotten, it is not completed
    assert path.read_bytes() == b"old"
