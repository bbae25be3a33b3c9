import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.find import Source, find, find_noting
from rlcorr_cli.results.saved import is_report


def touch(path: Path, content: bytes = b"{}\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def names(sources: list[Source]) -> list[str]:
    return [Path(source.path).name for source in sources]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("mode", "part"), [(0o600, "Permission denied"), (0o333, "no such file")])
def test_a_file_in_a_directory_that_may_not_be_looked_at_is_no_fault(tmp_path: Path, mode: int, part: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    for above in (tmp_path, *tmp_path.parents):
        above.chmod(above.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        assert not is_report([str(folder / "r.json")])
        with pytest.raises(DataError, match=part):
            find([str(folder / "none.parquet")])
    finally:
        os.seteuid(0)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.jsonl", "a.parquet", "sub/c.jsonl.gz", "sub/d.jsonl.zst", "sub/deep/e.ndjson"):
        touch(tmp_path / name)
    for name in ("README.md", ".hidden.jsonl", "_tmp.jsonl", "_logs/x.jsonl", ".git/y.jsonl", "f.pt", "g.json"):
        touch(tmp_path / name)
    return tmp_path


def test_a_directory_gives_its_dumps_sorted_and_nothing_hidden(tree: Path) -> None:
    assert names(find([str(tree)])) == ["a.parquet", "b.jsonl", "c.jsonl.gz", "d.jsonl.zst", "e.ndjson"]


def test_a_directory_gives_its_dumps_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("step_10", "step_9", "step_9²5", "step_9a", "step"):
        touch(tmp_path / f"{name}.jsonl")
    (tmp_path / "step_8.jsonl").symlink_to(tmp_path / "step_9.jsonl")
    found = names(find([str(tmp_path)]))
    assert found == ["step.jsonl", "step_9.jsonl", "step_9a.jsonl", "step_9²5.jsonl", "step_10.jsonl"]


def test_a_double_star_reaches_below(tree: Path) -> None:
    assert names(find([f"{tree}/**/*.ndjson"])) == ["e.ndjson"]
    assert names(find([f"{tree}/**"])) == ["a.parquet", "b.jsonl", "c.jsonl.gz", "d.jsonl.zst", "e.ndjson"]


def test_a_glob_over_directories_searches_them(tree: Path) -> None:
    assert names(find([f"{tree}/s*"])) == ["c.jsonl.gz", "d.jsonl.zst", "e.ndjson"]


def notes(typed: Path | str) -> tuple[str, ...]:
    return find_noting([str(typed)])[1]


def test_files_of_a_directory_that_are_not_read_are_counted_by_suffix(tree: Path) -> None:
    for name in ("x.json.gz", "y.jsonl.bz2", "sub/z.jsonl.xz", "part-00000", "h.json"):
        touch(tree / name)
    touch(tree / "i.yaml")
    # A framework may have written f.pt; it is looked into, and is none of theirs.
    listed = "9 files (2 .json, 1 .json.gz, 1 .jsonl.bz2, 1 .jsonl.xz, 1 .md, 1 .pt, …)"
    assert notes(tree) == (f"{listed} in {tree} are not read.",)
    assert notes(tree / "sub" / "deep") == ()


def test_a_directory_of_other_files_says_which(tmp_path: Path) -> None:
    touch(tmp_path / "a.json")
    with pytest.raises(DataError, match=r"holds no dump, but 1 file \(1 .json\)"):
        find([str(tmp_path)])


@pytest.mark.parametrize("suffix", [".pq", ".parq", ".PARQUET"])
def test_other_suffixes_of_parquet_are_read(tmp_path: Path, suffix: str) -> None:
    path = touch(tmp_path / f"a{suffix}", b"PAR1")
    assert [(source.path, source.format) for source in find([str(tmp_path)])] == [(path, "parquet")]


def test_a_linked_folder_is_read_once(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    touch(outside / "far.jsonl")
    (tree / "a-link").symlink_to(outside)
    (tree / "a-second-link").symlink_to(outside)
    (tree / "a-sub-link").symlink_to(tree / "sub")
    (tree / "sub" / "up").symlink_to(tree)
    (tree / "latest.parquet").symlink_to(tree / "a.parquet")
    paths = [str(Path(source.path).relative_to(tree)) for source in find([str(tree)])]
    assert paths == [
        "a-link/far.jsonl",
        "a.parquet",
        "b.jsonl",
        "sub/c.jsonl.gz",
        "sub/d.jsonl.zst",
        "sub/deep/e.ndjson",
    ]


@pytest.mark.parametrize("pattern", ["**/*.parquet", "**", "*/**/a.parquet", "**/**/a.parquet", "**/l1/**/*.parquet"])
def test_a_glob_through_links_to_folders_above_finds_each_file_once(tmp_path: Path, pattern: str) -> None:
    touch(tmp_path / "sub" / "a.parquet", b"PAR1")
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "l1").symlink_to(tmp_path)
        (folder / "l2").symlink_to(".")
    assert names(find([f"{tmp_path}/{pattern}"])) == ["a.parquet"]


def test_a_glob_finds_files_by_the_name_of_a_link_to_their_folder_too(tmp_path: Path) -> None:
    """As `runs/**/latest/*.parquet`, where the folder itself comes first and does not fit."""
    touch(tmp_path / "a" / "step_2" / "x.parquet", b"PAR1")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "latest").symlink_to(tmp_path / "a" / "step_2")
    assert [source.path for source in find([f"{tmp_path}/**/latest/*.parquet"])] == [
        str(tmp_path / "b" / "latest" / "x.parquet")
    ]
    assert [source.path for source in find([f"{tmp_path}/**/*.parquet"])] == [
        str(tmp_path / "a" / "step_2" / "x.parquet")
    ]


def test_a_glob_that_hits_files_and_directories_reads_both(tree: Path) -> None:
    touch(tree / "spark.parquet" / "part-0.parquet", b"PAR1")
    touch(tree / "spark.parquet" / "schema.json")
    assert names(find([f"{tree}/*.parquet"])) == ["a.parquet", "part-0.parquet"]
    assert notes(f"{tree}/*.parquet") == (f"1 file (1 .json) in {tree}/*.parquet is not read.",)
    with pytest.raises(DataError, match=r"matches no dump, but 1 file \(1 .txt\)"):
        find([str(Path(touch(tree / "texts" / "x.txt")).parent.with_name("text*"))])


def test_a_file_whose_name_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    touch(tmp_path / "a1.jsonl")
    assert names(find([touch(tmp_path / "a[1].jsonl")])) == ["a[1].jsonl"]


def test_arguments_keep_their_order_and_sources_their_size(tree: Path) -> None:
    sources = find([str(tree / "b.jsonl"), str(tree / "a.parquet"), "-"])
    assert [replace(source, stamp=None, modified=None) for source in sources] == [
        Source(path=str(tree / "b.jsonl"), format="jsonl", n_bytes=3),
        Source(path=str(tree / "a.parquet"), format="parquet", n_bytes=3),
        Source(path="-", format="jsonl", n_bytes=0),
    ]


@pytest.mark.parametrize(
    ("content", "format"),
    [(b"PAR1....", "parquet"), (b'  {"a": 1}\n', "jsonl"), (b"\x1f\x8b\x08\x00", "jsonl"), (b"(\xb5/\xfd", "jsonl")],
)
def test_the_first_bytes_tell_a_format_where_the_suffix_does_not(tmp_path: Path, content: bytes, format: str) -> None:
    assert find([touch(tmp_path / "dump.bin", content)])[0].format == format


def test_format_can_be_forced(tmp_path: Path) -> None:
    path = touch(tmp_path / "a.jsonl")
    assert find([path], "parquet")[0].format == "parquet"
    assert find([touch(tmp_path / "x.bin", b"????")], "jsonl")[0].format == "jsonl"


def test_a_missing_file_names_its_neighbours(tree: Path) -> None:
    with pytest.raises(DataError, match=r"a.parqet: no such file") as caught:
        find([str(tree / "a.parqet")])
    assert "a.parquet" in caught.value.hint
    with pytest.raises(DataError, match=r"no such file"):
        find([str(tree / "nowhere" / "a.parquet")])


def test_sources_that_hold_nothing_are_data_errors(tree: Path) -> None:
    (tree / "void").mkdir()
    with pytest.raises(DataError, match=r"void holds no dump"):
        find([str(tree / "void")])
    with pytest.raises(DataError, match=r"matches no file"):
        find([str(tree / "*.csv")])
    with pytest.raises(DataError, match=r"is empty \(0 bytes\)"):
        find([touch(tree / "zero.jsonl", b"")])


def test_what_cannot_be_opened_is_a_data_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    with pytest.raises(DataError, match=r"cannot be read"):
        find([str(loop)])
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match=r"not a regular file"):
        find([str(tmp_path / "pipe.jsonl")])
    with pytest.raises(DataError, match=r"neither Parquet nor JSON lines"):
        find([touch(tmp_path / "x.bin", b"????")])


def test_a_file_reached_twice_is_a_usage_error(tree: Path) -> None:
    (tree / "link.jsonl").symlink_to(tree / "b.jsonl")
    for again in (str(tree), str(tree / "sub" / ".." / "b.jsonl"), str(tree / "link.jsonl")):
        with pytest.raises(UsageError, match=r"named twice"):
            find([str(tree / "b.jsonl"), again])
    with pytest.raises(UsageError, match=r"named twice"):
        find(["-", "-"])


def test_urls_unknown_formats_and_no_paths_are_usage_errors(tree: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a place that") as caught:
        find(["https://host/dump.parquet"])
    assert "s3://" in caught.value.hint
    with pytest.raises(UsageError, match=r"Unknown format"):
        find([str(tree)], "slyme")
    with pytest.raises(UsageError, match=r"No dump"):
        find([])
    with pytest.raises(UsageError, match=r"not as Parquet"):
        find(["-"], "parquet")
