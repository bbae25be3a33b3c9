"""Reports, pages and pictures say when what they are of was last changed, and which release made them."""

import html
import math
import os
import re
import shutil
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import BF16, jsonl, row, run

from rlcorr_cli import __version__, analyze
from rlcorr_cli.files.disk import utc_minute

INT8 = str(Path(BF16).with_name("smollm2_int8.parquet"))
OLD, NEW = "file last changed 2001-09-09 01:46 UTC", "file last changed 2009-02-13 23:31 UTC"


def copied(source: str, path: Path, seconds: float) -> str:
    """A copy of a file, last changed so long after 1970 began."""
    shutil.copyfile(source, path)
    os.utime(path, (seconds, seconds))
    return str(path)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return copied(BF16, tmp_path / "dump.parquet", 1e9)


@pytest.fixture
def newer(tmp_path: Path) -> str:
    return copied(INT8, tmp_path / "newer.parquet", 1234567890)


def words(path: Path) -> str:
    """What stands in a picture or a page."""
    return " ".join(" ".join(html.unescape(text) for text in re.findall(r">([^<>]+)<", path.read_text())).split())


PICTURES = {
    "plot": ("plot", "DUMP", "--kind", "ratio"),
    "plot of plans": ("plot", "DUMP", "--kind", "compare"),
    "compare of objectives": ("compare", "DUMP", "--preset", "token_is", "--objective", "ppo"),
    "sweep": ("sweep", "DUMP", "--vary", "ratio.seq_mean"),
    "diagnose": ("diagnose", "DUMP"),
}


@pytest.mark.parametrize("case", PICTURES)
def test_every_picture_says_when_its_dump_was_changed_and_who_drew_it(case: str, dump: str, tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    ran = run(*(dump if word == "DUMP" else word for word in PICTURES[case]), "-o", str(out))
    assert ran.status == 0, ran.err
    assert f"{OLD} · rlcorr {__version__}" in words(out)
    assert "64 sequences" in words(out)


def test_a_picture_of_two_dumps_says_when_each_was_changed(dump: str, newer: str, tmp_path: Path) -> None:
    for name in ("out.svg", "out.html"):
        assert run("diff", dump, newer, "-o", str(tmp_path / name)).status == 0
        text = words(tmp_path / name)
        assert text.index(OLD) < text.index(NEW)
        assert f"rlcorr {__version__}" in text


def test_json_has_the_time_of_each_file_and_the_page_that_of_the_newest(dump: str, newer: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    report = run("analyze", dump, newer, "--json", "-o", str(page)).json
    assert [source["modified"] for source in report["inputs"]] == ["2001-09-09T01:46Z", "2009-02-13T23:31Z"]
    header, _, rest = words(page).partition("Key figures")
    assert NEW in header
    assert OLD not in header
    assert OLD in rest


def test_saved_totals_and_reports_keep_the_time(tmp_path: Path) -> None:
    table, parts = pq.read_table(BF16), [str(tmp_path / f"{i}.rlcorr") for i in range(2)]
    for i, (name, seconds) in enumerate({"dump": 1e9, "newer": 1234567890}.items()):
        pq.write_table(table.slice(32 * i, 32), tmp_path / "half.parquet")
        path = copied(str(tmp_path / "half.parquet"), tmp_path / f"{name}.parquet", seconds)
        assert run("analyze", path, "-o", parts[i], "-q").status == 0
    assert run("analyze", *parts, "-o", str(tmp_path / "both.json"), "-q").status == 0
    assert run("plot", str(tmp_path / "both.json"), "--kind", "ratio", "-o", str(tmp_path / "both.svg")).status == 0
    assert f"{tmp_path.name}/ (2 files) · plan disabled · 5,493 tokens, 64 sequences · {NEW}" in words(
        tmp_path / "both.svg"
    )


def test_where_nobody_knows_the_time_nothing_is_said_of_it(
    dump: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = analyze({"rollout_log_probs": [[-1.0, -2.0]], "old_log_probs": [[-1.0, -2.0]]})
    assert "modified" not in report.to_dict()["inputs"][0]
    lines = jsonl(tmp_path / "dump.jsonl", [row()])
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(Path(lines).read_bytes())))
    page = tmp_path / "piped.html"
    assert "modified" not in run("analyze", "-", "--json", "-o", str(page)).json["inputs"][0]
    assert "last changed" not in words(page)


@pytest.mark.parametrize(
    ("seconds", "minute"),
    [(0, "1970-01-01T00:00Z"), (-1e10, "1653-02-10T06:13Z"), (1e18, None), (-1e18, None), (math.nan, None)],
)
def test_a_time_that_no_calendar_holds_is_none(seconds: float, minute: str | None) -> None:
    assert utc_minute(seconds) == minute
