"""Stores other than S3: read and written as files are, and with the same words for what is wrong.

Each test runs against every store of `clouds`.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clouds import Cloud, cloud as cloud, server as server
from filling import CLOSE, FAR, dump
from running import BF16, STEPS, parquet, refused, row, run, run_process

pytestmark = pytest.mark.full
GEO = ("--preset", "geo_rs")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what is meant for a store is written first."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def told(*args: str) -> dict[str, Any]:
    """What a report says of the numbers, whatever its files are called."""
    report = run("analyze", *args, "--json").json
    return {name: report[name] for name in ("counts", "metrics", "groups", "verdict")}


def test_parquet_and_lines_give_the_numbers_of_the_same_files_on_disk(cloud: Cloud, tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps(each) + "\n" for each in pq.read_table(BF16).to_pylist()))
    for path in (Path(BF16), lines):
        assert told(cloud.put(f"numbers/{path.name}", path)) == told(str(path))


def test_a_large_file_is_read_in_pieces_of_the_columns_that_are_needed(cloud: Cloud, tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    table = pa.Table.from_pylist([row([-1.0 / i] * 50, [-2.0 / i] * 50) for i in range(1, 401)])
    table = table.append_column("text", pa.array([f"{i:05d}" * 2000 for i in range(400)]))
    pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False)
    cloud.sent()
    assert told(cloud.put("wide/wide.parquet", path)) == told(str(path))
    assert 0 < cloud.sent() < path.stat().st_size / 3


def test_a_folder_and_globs_name_the_files_that_they_name_on_disk(cloud: Cloud, tmp_path: Path) -> None:
    for name in ("step=1/b.parquet", "step=10/a.parquet", "step=2/a.parquet", "_tmp/x.parquet", "step=1/notes.txt"):
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet(path, [row(), row()])
        cloud.put(f"globs/run/{name}", path)
    for pattern in ("run/", "run/step=[12]*/*", "**/b.*"):
        here, there = (
            run("inspect", f"{start}/{pattern}", "--json").json for start in (tmp_path, f"{cloud.kind.start}/globs")
        )
        at = [str(Path(one["path"]).relative_to(tmp_path)) for one in here["inputs"]]
        assert [one["path"].removeprefix(f"{cloud.kind.start}/globs/") for one in there["inputs"]] == at, pattern
        assert there["columns"] == here["columns"]
        assert all(one["modified"] == cloud.modified(one["path"]) for one in there["inputs"])


def test_a_job_is_followed(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def looked() -> list[tuple[int, bool]]:
        ran = run("watch", f"{cloud.kind.start}/followed/", "--once", "--json", "--max", "k3_kl=0.005")
        assert ran.err == ""
        return [(line["step"], line["again"]) for line in json.loads(ran.out)["steps"]]

    assert looked() == []
    for step in (1, 2):
        cloud.put(f"followed/step_{step}.parquet", dump(step, CLOSE))
    assert looked() == [(1, False), (2, False)]
    assert looked() == []
    time.sleep(1.1)  # times count seconds
    assert len(dump(1, FAR)) == len(dump(1, CLOSE))
    cloud.put("followed/step_1.parquet", dump(1, FAR))
    assert looked() == [(1, True)]


def test_keys_are_taken_as_they_are_typed(cloud: Cloud) -> None:
    for key in ("odd/a b.parquet", "odd/ä+&=#.parquet"):
        assert run("inspect", cloud.put(key, Path(BF16)), "--quiet").status == 0, key


def test_reports_and_kept_rows_are_written_as_on_disk(cloud: Cloud, tmp_path: Path, temporary: Path) -> None:
    out = f"{cloud.kind.start}/written"
    assert run("analyze", BF16, "-o", f"{out}/r.json", "-q").status == 0
    assert json.loads(cloud.files.read("written/r.json"))["counts"]["rows"] == 64
    for name in ("a.parquet", "a.jsonl"):
        assert run("filter", BF16, *GEO, "-o", str(tmp_path / name), "-q").status == 0
        ran = run("filter", BF16, *GEO, "-o", f"{out}/{name}", "-q")
        assert ran.status == 0, ran.err
        assert cloud.files.read(f"written/{name}") == (tmp_path / name).read_bytes()
    refused(run("filter", BF16, *GEO, "-o", f"{out}/a.parquet"), 4, "exists", "Add --overwrite")
    assert run("filter", BF16, *GEO, "-o", f"{out}/a.parquet", "--overwrite").status == 0
    uri = f"{out}/a.parquet"
    refused(run("filter", uri, *GEO, "-o", uri, "--overwrite"), 2, f"{uri} is part of the dump")
    assert cloud.keys("written") == ["written/a.jsonl", "written/a.parquet", "written/r.json"]
    assert not any(temporary.iterdir())


def test_a_directory_of_parts_is_what_it_is_on_disk_and_replaces_an_older_one(cloud: Cloud, tmp_path: Path) -> None:
    for n_rows in ("5", "20"):
        args = ("filter", BF16, *GEO, "--rows-per-file", n_rows, "--overwrite", "-q")
        for out in (str(tmp_path / "parts"), f"{cloud.kind.start}/parts"):
            ran = run(*args, "-o", out)
            assert ran.status == 0, ran.err
        names = sorted(path.name for path in (tmp_path / "parts").iterdir())
        assert cloud.keys("parts") == [f"parts/{name}" for name in names]
        assert all(cloud.files.read(f"parts/{name}") == (tmp_path / "parts" / name).read_bytes() for name in names)
    refused(run("filter", BF16, *GEO, "-o", f"{cloud.kind.start}/parts"), 4, "exists", "Add --overwrite")


@pytest.mark.xdist_group("processes")
def test_workers_write_a_folder_and_replace_an_older_one(cloud: Cloud) -> None:
    """What is not among the new parts goes, and nothing else is left."""
    out = f"{cloud.kind.start}/workers"
    args = ("filter", STEPS, *GEO, "--engine", "processes", "--workers", "1", "-o", out, "-q")
    for more, n_parts in ((("--rows-per-file", "4"), 6), ((), 1)):
        ran = run(*args, *more, "--overwrite")
        assert ran.status == 0, ran.err
        told = json.loads(cloud.files.read("workers/_rlcorr.json"))
        assert len(told["parts"]) == n_parts
        assert cloud.keys("workers") == [
            "workers/_rlcorr.json",
            *(f"workers/{part['name']}" for part in told["parts"]),
        ]
    refused(run(*args), 4, "exists", "Add --overwrite")


def test_an_object_that_is_written_again_while_it_is_read_is_an_error(cloud: Cloud, tmp_path: Path) -> None:
    cloud.put("changing/a.parquet", Path(parquet(tmp_path / "a.parquet", [row()] * 3)))
    other = parquet(tmp_path / "b.parquet", [row(), row(), row(old=(-0.5, -0.125))])
    cloud.change("changing/a.parquet", Path(other).read_bytes())
    ran = run("analyze", f"{cloud.kind.start}/changing/a.parquet")
    refused(ran, 3, "a.parquet was changed while it was read")


def test_a_key_that_is_not_there_is_told_from_a_place_that_is_not_there(cloud: Cloud) -> None:
    cloud.put("run/a.parquet", Path(BF16))
    looked_at = f"{cloud.kind.variable}={cloud.before}"
    at = f"endpoint {cloud.before}"
    key = ("there is no such key", "key 'run/b.parquet'", at, "Similar names beside it: a.parquet.", looked_at)
    refused(run("analyze", f"{cloud.kind.start}/run/b.parquet"), 3, *key)
    refused(
        run("analyze", f"{cloud.kind.start}/nothing/b.parquet"), 3, "there is no such key", "Nothing lies beside it."
    )
    place = (f"there is no such {cloud.kind.place}", f"({cloud.kind.place} '", at, "Is its name right?", looked_at)
    for path in ("run/a.parquet", "run/*"):
        refused(run("analyze", f"{cloud.kind.elsewhere}/{path}"), 3, *place)
    refused(run("analyze", BF16, "-o", f"{cloud.kind.elsewhere}/r.html"), 4, *place)


def test_what_a_store_refuses_is_said_with_where_was_looked(cloud: Cloud) -> None:
    parts = (
        f"{cloud.kind.start}/run/a.parquet",
        "key 'run/a.parquet'",
        f"endpoint {cloud.before}",
        cloud.kind.variable,
    )
    for status, what in ((403, "the credentials are refused"), (405, "answers, but not as a store does")):
        cloud.answer(status)
        refused(run("analyze", f"{cloud.kind.start}/run/a.parquet"), 3, what, *parts)
        refused(run("analyze", BF16, "-o", f"{cloud.kind.start}/run/r.html"), 4, what)


def test_credentials_that_are_missing_or_wrong_are_said(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.kind.wrong.items():
        monkeypatch.setenv(name, value)
        ran = run("analyze", f"{cloud.kind.start}/run/a.parquet".replace("anonymous@", ""))
        refused(ran, 3, "credentials", name, f"({cloud.kind.place} '")


def test_an_endpoint_that_does_not_answer_is_said(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cloud.kind.variable, "http://127.0.0.1:1")
    query = "?retry_limit_seconds=1" if cloud.kind.start.startswith("gs:") else ""
    ran = run("analyze", f"{cloud.kind.start}/run/a.parquet{query}")
    refused(ran, 3, "the endpoint does not answer", "endpoint http://127.0.0.1:1)", "key 'run/a.parquet'")


NOTHING_SET = dict.fromkeys(
    ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"), ""
)
UNREACHED = {
    "no token of Azure's": (
        "abfs://dumps@account.dfs.core.windows.net/run/a.parquet",
        {"AZURE_STORAGE_SERVICE_ENDPOINT": "https://127.0.0.1:1"},
        ("there are no credentials", "container 'dumps', key 'run/a.parquet'", "?credential_kind=anonymous"),
    ),
    "an account key that is none": (
        "abfs://dumps@account.dfs.core.windows.net/run/a.parquet",
        {"AZURE_STORAGE_KEY": "a", "AZURE_STORAGE_SERVICE_ENDPOINT": "http://127.0.0.1:1"},
        ("there are no credentials, or they are not valid", "AZURE_STORAGE_KEY is set"),
    ),
    "no account of Azure's": ("abfs://dumps/a.parquet", {}, ("it names no account", "abfs://CONTAINER@ACCOUNT.dfs.")),
}


@pytest.mark.parametrize("case", UNREACHED)
def test_what_keeps_a_store_from_being_asked_is_said(case: str) -> None:
    """In a process of its own, which a library would end, or where it looks for a library once."""
    uri, variables, parts = UNREACHED[case]
    refused(run_process("analyze", uri, env={**os.environ, **NOTHING_SET, **variables}), 3, *parts)


def test_a_token_that_is_not_to_be_had_does_not_end_the_process() -> None:
    """As it would where the first thing asked of Azure's client is to open a file."""
    env = {**os.environ, **NOTHING_SET, **UNREACHED["no token of Azure's"][1]}
    ran = run_process("check", BF16, "--rules", "abfs://dumps@account.dfs.core.windows.net/r.toml", env=env)
    refused(ran, 2, "there are no credentials", "container 'dumps', key 'r.toml'")
