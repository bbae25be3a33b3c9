"""Outputs in an object store: whole or not at all, never over what is read or what must stay."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, forked_command, refused, row, run, wait_for
from stores import Proxy, get, keys, put, server, unfinished
from stores import store as store

GEO = ("--preset", "geo_rs")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what is meant for a store is written first."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_filter_writes_what_it_writes_on_disk(store: Proxy, tmp_path: Path, temporary: Path) -> None:
    for name in ("a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst"):
        assert run("filter", BF16, *GEO, "-o", str(tmp_path / name), "-q").status == 0
        ran = run("filter", BF16, *GEO, "-o", f"s3://dumps/filtered/{name}")
        assert ran.status == 0, ran.err
        assert f"s3://dumps/filtered/{name}" in ran.out
        assert get(server(), f"filtered/{name}") == (tmp_path / name).read_bytes()
    assert keys(server(), "filtered") == [
        f"filtered/{name}" for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet")
    ]
    assert not any(temporary.iterdir())


def test_rejected_and_bad_rows_are_written(store: Proxy) -> None:
    rows = [row(old=(-0.5, -1.0)), row(old=(-0.25, float("nan"))), row(rollout=(-0.5, -9.0), old=(-0.25, -0.1))] * 3
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    uri = put(server(), "apart/in.parquet", sink.getvalue().to_pybytes())
    apart = ("--rejected-output", "s3://dumps/apart/rejected.parquet", "--quarantine", "s3://dumps/apart/bad.parquet")
    ran = run("filter", uri, *GEO, "-o", "s3://dumps/apart/kept.parquet", *apart, "--max-bad-fraction", "1")
    assert ran.status == 0, ran.err
    tables = [
        pq.read_table(pa.BufferReader(get(server(), f"apart/{name}.parquet"))) for name in ("kept", "rejected", "bad")
    ]
    assert sum(table.num_rows for table in tables) == 9
    assert tables[2].num_rows == 3


def test_reports_and_pictures_are_written(store: Proxy) -> None:
    names = ("r.json", "r.html", "r.md", "r.csv", "r.rlcorr")
    outputs = [part for name in names for part in ("-o", f"s3://dumps/reports/{name}")]
    ran = run("analyze", BF16, *outputs)
    assert ran.status == 0, ran.err
    assert json.loads(get(server(), "reports/r.json"))["counts"]["rows"] == 64
    assert get(server(), "reports/r.html").rstrip().endswith(b"</html>")
    assert {f"reports/{name}" for name in names} < set(keys(server(), "reports"))
    assert run("analyze", BF16, *outputs).status == 0, "a report replaces an older one"
    assert run("plot", BF16, "--kind", "ratio", "--kind", "scatter", "-o", "s3://dumps/pictures").status == 0
    assert keys(server(), "pictures") == ["pictures/ratio.png", "pictures/scatter.png"]
    assert run("check", BF16, "--junit", "s3://dumps/reports/junit.xml").status in (0, 1)
    assert b"<testsuite" in get(server(), "reports/junit.xml")


def test_what_is_there_stays_without_overwrite(store: Proxy) -> None:
    put(server(), "there/a.parquet", "somebody's")
    for name, reason in (("a.parquet", "exists"), ("a.parquet/b.parquet", "")):
        ran = run("filter", BF16, *GEO, "-o", f"s3://dumps/there/{name}")
        if reason:
            refused(ran, 4, reason, "Add --overwrite")
    assert get(server(), "there/a.parquet") == b"somebody's"
    assert run("filter", BF16, *GEO, "-o", "s3://dumps/there/a.parquet", "--overwrite").status == 0
    assert get(server(), "there/a.parquet")[:4] == b"PAR1"


def test_a_folder_is_not_replaced_by_a_file(store: Proxy) -> None:
    put(server(), "folder.parquet/a.txt", "a")
    ran = run("filter", BF16, *GEO, "-o", "s3://dumps/folder.parquet", "--overwrite")
    refused(ran, 4, "s3://dumps/folder.parquet is a directory, not a regular file")


def test_the_input_is_never_the_output(store: Proxy) -> None:
    uri = put(server(), "same/a.parquet", Path(BF16))
    for dump in (uri, "s3://dumps/same", "s3://dumps/same/*.parquet", "S3://dumps/same/a.parquet"):
        refused(run("filter", dump, *GEO, "-o", uri, "--overwrite"), 2, f"{uri} is part of the dump")
    out = "s3://dumps/same/out.parquet"
    refused(run("filter", uri, *GEO, "-o", out, "--rejected-output", out), 2, "cannot be both outputs")
    assert get(server(), "same/a.parquet") == Path(BF16).read_bytes()


def test_a_failing_upload_leaves_nothing_and_keeps_the_older_object(store: Proxy, temporary: Path) -> None:
    put(server(), "failing/a.parquet", "an older one")
    store.answer = lambda method, path: (403, {}, b"") if method == "PUT" else None
    ran = run("filter", BF16, *GEO, "-o", "s3://dumps/failing/a.parquet", "--overwrite")
    refused(ran, 4, "the credentials are refused", "bucket 'dumps'")
    store.answer = lambda method, path: (403, {}, b"") if method == "PUT" and "part" not in path else None
    ran = run("filter", BF16, *GEO, "-o", "s3://dumps/failing/a.parquet", "--overwrite")
    refused(ran, 4, "the credentials are refused")
    assert keys(server(), "failing") == ["failing/a.parquet"]
    assert get(server(), "failing/a.parquet") == b"an older one"
    assert not any(temporary.iterdir())


def test_an_interrupted_upload_leaves_nothing_and_keeps_the_older_object(
    store: Proxy, tmp_path: Path, temporary: Path
) -> None:
    put(server(), "interrupted/a.parquet", "an older one")
    uploading = threading.Event()

    def answer(method: str, path: str) -> None:
        if method == "PUT":
            uploading.set()
            time.sleep(0.5)

    store.answer = answer
    args = [forked_command(), "filter", BF16, *GEO, "-o", "s3://dumps/interrupted/a.parquet", "--overwrite"]
    with subprocess.Popen(args, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE) as process:
        wait_for(uploading.is_set, process)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert get(server(), "interrupted/a.parquet") == b"an older one"
    assert keys(server(), "interrupted") == ["interrupted/a.parquet"]
    assert [key for key in unfinished(server()) if key.startswith("interrupted/")] == []
    assert not any(temporary.glob(".rlcorr-*"))


def test_a_failing_run_leaves_nothing(store: Proxy, temporary: Path) -> None:
    rows = [row()] * 50 + [row(old=(float("nan"), -1.0))]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    uri = put(server(), "bad/a.parquet", sink.getvalue().to_pybytes())
    refused(run("filter", uri, "--preset", "token_is", "-o", "s3://dumps/bad/out.parquet"), 3, "row 50")
    assert keys(server(), "bad") == ["bad/a.parquet"]
    assert not any(temporary.iterdir())


def test_a_bucket_that_is_not_there_is_said_before_the_dump_is_read(store: Proxy) -> None:
    refused(run("analyze", STEPS, "-o", "s3://nobucket/r.html"), 4, "there is no such bucket", "bucket 'nobucket'")
    refused(run("analyze", STEPS, "-o", "s3://r.html"), 2, "-o names no file in s3://r.html")
    refused(run("analyze", STEPS, "-o", "s3://dumps/r.html?region=us-east-1"), 2, "without a query", "AWS_REGION")
    refused(run("filter", STEPS, *GEO, "-o", "s3://dumps/folder"), 4, "would be a directory in a store")
