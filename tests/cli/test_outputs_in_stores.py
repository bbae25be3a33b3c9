"""Outputs in an object store: whole or not at all, never over what is read or what must stay."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import BF16, STEPS, Process, forked_command, refused, row, run, wait_for
from stores import CREDENTIALS, Proxy, get, keys, put, server, store as store, unfinished

from rlcorr_cli.files import stores
from rlcorr_cli.files.destinations import temporary_name

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
    names = ("r.html", "r.json", "r.md", "r.csv", "r.rlcorr")
    outputs = [part for name in names for part in ("-o", f"s3://dumps/reports/{name}")]
    ran = run("analyze", BF16, *outputs)
    assert ran.status == 0, ran.err
    assert json.loads(get(server(), "reports/r.json"))["counts"]["rows"] == 64
    assert get(server(), "reports/r.html").rstrip().endswith(b"</html>")
    assert {f"reports/{name}" for name in names} < set(keys(server(), "reports"))
    refused(run("analyze", STEPS, *outputs[2:]), 4, "r.json exists", "--overwrite")
    assert run("analyze", STEPS, *outputs[2:], "--overwrite").status == 0, "a report replaces an older one"
    assert json.loads(get(server(), "reports/r.json"))["counts"]["rows"] == 320
    assert run("plot", BF16, "--kind", "ratio", "--kind", "weights", "-o", "s3://dumps/pictures").status == 0
    assert keys(server(), "pictures") == ["pictures/ratio.png", "pictures/weights.png"]
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


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dump of which the kept rows are more than one request brings: 64 of 40,000 tokens, one with another policy."""
    offsets = pa.array(np.arange(0, 65 * 40_000, 40_000, dtype=np.int32))
    rollout = -np.random.default_rng(0).random(64 * 40_000, np.float32)
    old = np.where(np.arange(len(rollout)) < 40_000, rollout - 1, rollout)
    columns = [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in (rollout, old)]
    path = tmp_path_factory.mktemp("large") / "in.parquet"
    pq.write_table(pa.table(columns, ["rollout_log_probs", "old_log_probs"]), path)
    return str(path)


def test_a_large_object_is_sent_in_parts_and_is_the_one_on_disk(store: Proxy, large: str, tmp_path: Path) -> None:
    for out in (str(tmp_path / "a.parquet"), "s3://dumps/large/a.parquet"):
        assert run("filter", large, *GEO, "--rejected", "keep", "-o", out).status == 0
    assert get(server(), "large/a.parquet") == (tmp_path / "a.parquet").read_bytes()
    sent = [request.path for request in store.of("large/a.parquet", ["PUT"])]
    assert len(sent) > 1
    assert all("partNumber=" in path for path in sent)
    assert [key for key in unfinished(server()) if key.startswith("large/")] == []


def test_the_keys_of_a_profile_are_taken(store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, section in (("config", "[profile team]\nregion = us-east-1\n"), ("credentials", "[team]\n")):
        keys_of_it = "".join(f"{name.lower()} = {value}\n" for name, value in CREDENTIALS.items())
        (tmp_path / file).write_text(section + keys_of_it * (file == "credentials"))
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    ran = run("analyze", BF16, "-o", "s3://dumps/profile/r.json", "-q")
    assert ran.status == 0, ran.err
    monkeypatch.setenv("AWS_PROFILE", "none-of-that-name")
    refused(run("analyze", BF16, "-o", "s3://dumps/profile/s.json", "-q"), 4, "credentials")


@pytest.mark.parametrize("leads_by", ["sso_session = team", "credential_process"])
@pytest.mark.full
def test_a_profile_that_leads_to_keys_is_followed(
    leads_by: str, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By AWS's own command, or by that which it names; what the command says goes into the message."""
    told = {"AccessKeyId": "tester", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": "2099-01-01T00:00:00Z"}
    command = tmp_path / "aws"
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/told\n')
    command.chmod(0o755)
    (tmp_path / "told").write_text(json.dumps(told))
    line = f"{leads_by} = {command} team" if leads_by == "credential_process" else leads_by
    (tmp_path / "config").write_text(f"[profile team]\nregion = eu-west-3\n{line}\n")
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    out = f"s3://dumps/led/{leads_by[:3]}.json"
    ran = run("analyze", BF16, "-o", out, "-q")
    assert ran.status == 0, ran.err
    by_aws = "configure export-credentials --format process --profile team"
    assert (tmp_path / "asked").read_text().strip() == ("team" if leads_by == "credential_process" else by_aws)
    command.write_text("#!/bin/sh\necho the session has expired >&2\nexit 255\n")
    stores._store.cache_clear()
    refused(
        run("check", out, "--max", "kl=100"), 3, "there are no credentials, or they are not valid", "AWS_PROFILE=team"
    )


@pytest.mark.full
def test_a_large_upload_that_fails_half_way_leaves_nothing(store: Proxy, large: str, tmp_path: Path) -> None:
    """Nor has any other output its name by then."""
    put(server(), "broken/b.parquet", "an older one")
    store.answer = lambda method, path: (403, {}, b"") if method == "PUT" and "partNumber=2&" in path else None
    outputs = ("-o", "s3://dumps/broken/b.parquet", "--rejected-output", str(tmp_path / "no.jsonl"), "--overwrite")
    refused(run("filter", large, *GEO, *outputs), 4, "the credentials are refused")
    assert get(server(), "broken/b.parquet") == b"an older one"
    assert keys(server(), "broken") == ["broken/b.parquet"]
    assert [key for key in unfinished(server()) if key.startswith("broken/")] == []
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


@pytest.mark.full
def test_an_interrupted_upload_leaves_nothing_and_keeps_the_older_object(
    store: Proxy, large: str, temporary: Path
) -> None:
    put(server(), "interrupted/a.parquet", "an older one")
    uploading, interrupted = threading.Event(), threading.Event()

    def answer(method: str, path: str) -> None:
        if method == "PUT":
            uploading.set()
            interrupted.wait(LIMIT_SECONDS)

    store.answer = answer
    args = ["filter", large, *GEO, "--rejected", "keep", "-o", "s3://dumps/interrupted/a.parquet", "--overwrite"]
    env = {**os.environ, "TMPDIR": str(temporary)}
    with Process([forked_command(), *args], env=env, stderr=subprocess.PIPE) as process:
        wait_for(uploading.is_set, process)
        process.send_signal(signal.SIGINT)  # it has the signal before the answer
        interrupted.set()
        process.communicate()
    assert process.returncode == 130
    assert get(server(), "interrupted/a.parquet") == b"an older one"
    assert keys(server(), "interrupted") == ["interrupted/a.parquet"]
    assert [key for key in unfinished(server()) if key.startswith("interrupted/")] == []
    assert not any(temporary.glob(".rlcorr-*"))


def test_what_comes_in_the_last_moment_is_not_replaced(store: Proxy) -> None:
    """The store itself refuses a name that somebody else has taken."""

    def answer(method: str, path: str) -> None:
        if method == "PUT":
            put(server(), "taken/a.parquet", "somebody's")

    store.answer = answer
    ran = run("filter", BF16, *GEO, "-o", "s3://dumps/taken/a.parquet")
    refused(ran, 4, "was written by another run meanwhile")
    assert get(server(), "taken/a.parquet") == b"somebody's"


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


def parts(folder: str) -> dict[str, int]:
    """Key -> rows of a folder's parts."""
    return {
        key.removeprefix(f"{folder}/"): pq.read_table(pa.BufferReader(get(server(), key))).num_rows
        for key in keys(server(), folder)
    }


def test_a_directory_of_parts_is_what_it_is_on_disk(store: Proxy, tmp_path: Path, temporary: Path) -> None:
    by_10 = ("--rows-per-file", "10")
    outputs = ("-o", "s3://dumps/parts/kept/", "--rejected-output", "s3://dumps/parts/dropped", *by_10)
    ran = run("filter", STEPS, *GEO, *outputs)
    assert ran.status == 0, ran.err
    assert run("filter", STEPS, *GEO, "-o", str(tmp_path / "kept"), *by_10).status == 0
    assert len(list((tmp_path / "kept").iterdir())) > 1
    for path in (tmp_path / "kept").iterdir():
        assert get(server(), f"parts/kept/{path.name}") == path.read_bytes()
    n_rows = {name: sum(parts(f"parts/{name}").values()) for name in ("kept", "dropped")}
    assert sum(n_rows.values()) == 320
    assert run("analyze", "s3://dumps/parts/kept/", "--json").json["counts"]["rows"] == n_rows["kept"]
    assert keys(server(), "parts") == [f"parts/dropped/{name}" for name in parts("parts/dropped")] + [
        f"parts/kept/{path.name}" for path in sorted((tmp_path / "kept").iterdir())
    ]
    assert not any(temporary.iterdir())


def test_a_directory_replaces_an_older_one_of_ours_alone(store: Proxy) -> None:
    small, large = ("--rows-per-file", "5"), ("--rows-per-file", "1000")
    assert run("filter", BF16, *GEO, "-o", "s3://dumps/again/d", *small).status == 0
    older = parts("again/d")
    assert len(older) > 1
    refused(run("filter", BF16, *GEO, "-o", "s3://dumps/again/d", *large), 4, "exists", "Add --overwrite")
    assert parts("again/d") == older
    refused(
        run("filter", "s3://dumps/again/d", *GEO, "-o", "s3://dumps/again/d", "--overwrite"), 2, "is part of the dump"
    )
    assert run("filter", BF16, *GEO, "-o", "s3://dumps/again/d", *large, "--overwrite").status == 0
    assert parts("again/d") == {"part-00000.parquet": sum(older.values())}
    put(server(), "again/d/notes.txt", "somebody's")
    ran = run("filter", BF16, *GEO, "-o", "s3://dumps/again/d", "--overwrite")
    refused(ran, 4, "holds other files (notes.txt)", "Name a new or empty directory")
    put(server(), "again/e/part-00000.parquet", "somebody's")
    refused(run("filter", BF16, *GEO, "-o", "s3://dumps/again/e", "--overwrite"), 4, "holds other files (part-00000")
    put(server(), "again/f/part-00000.parquet/x", "somebody's")
    refused(run("filter", BF16, *GEO, "-o", "s3://dumps/again/f", "--overwrite"), 4, "holds other files (part-00000")
    put(server(), "again/g", "somebody's")
    refused(
        run("filter", BF16, *GEO, "-o", "s3://dumps/again/g", "--overwrite"), 4, "is a regular file, not a directory"
    )


@pytest.mark.full
def test_a_new_directory_of_which_a_part_fails_is_not_there(store: Proxy) -> None:
    """Whether its first or its last part."""
    args = ("filter", BF16, *GEO, "-o", "s3://dumps/half/d", "--rows-per-file", "4")
    for wrong in ("/half/d/part-00000.parquet", "/half/d/part-00001.parquet"):
        store.answer = lambda method, path, wrong=wrong: (403, {}, b"") if method == "PUT" and wrong in path else None
        refused(run(*args), 4, "the credentials are refused")
        assert keys(server(), "half") == []
    store.answer = lambda method, path: None
    assert run(*args).status == 0
    assert len(parts("half/d")) == 2


def test_an_older_directory_is_without_its_last_part_while_parts_are_named(store: Proxy) -> None:
    """So whoever looks for that, because it alone tells the counts, is never shown parts of two runs as one."""
    args = ("filter", BF16, *GEO, "-o", "s3://dumps/mixed/d", "--rows-per-file", "3")
    assert run(*args).status == 0
    older = list(parts("mixed/d"))
    assert len(older) > 2
    store.answer = lambda method, path: (
        (403, {}, b"") if method == "PUT" and path.endswith("part-00001.parquet") else None
    )
    refused(run(*args, "--overwrite"), 4, "the credentials are refused")
    assert list(parts("mixed/d")) == older[:-1]
    store.answer = lambda method, path: None
    assert run(*args, "--overwrite").status == 0
    assert list(parts("mixed/d")) == older


@pytest.mark.full
def test_an_older_directory_of_rejected_rows_goes_where_none_are_rejected(store: Proxy) -> None:
    outputs = ("-o", "s3://dumps/none/kept.parquet", "--rejected-output", "s3://dumps/none/dropped", "--overwrite")
    assert run("filter", BF16, *GEO, *outputs).status == 0
    assert parts("none/dropped")
    assert run("filter", BF16, "--preset", "token_is", *outputs).status == 0
    assert keys(server(), "none") == ["none/kept.parquet"]


@pytest.mark.full
def test_scalars_for_tensorboard_are_written_and_replaced(store: Proxy) -> None:
    args = ("analyze", STEPS, "--group-by", "step", "-o", "s3://dumps/scalars/run.tb", "--overwrite")
    for _ in range(2):
        assert run(*args).status == 0
        (key,) = keys(server(), "scalars")
        assert key.startswith("scalars/run.tb/events.out.tfevents.")
        time.sleep(1.1)  # the file's name has the second


@pytest.mark.full
def test_what_killed_workers_left_in_a_store_is_removed_and_told_of(store: Proxy) -> None:
    """A folder with the marker of a process of this host that is gone; one that runs may be writing still, and another
    host's within a day."""
    with Process(["true"]) as gone:
        gone.wait(LIMIT_SECONDS)
    working = temporary_name(Path("x")).name
    left = working.replace(f"-{os.getpid()}-", f"-{gone.pid}-")
    elsewhere = f".rlcorr-00000000-{gone.pid}-0123456789abcdef.part"
    for folder, marker in (("left", left), ("working", working), ("elsewhere", elsewhere)):
        args = ("filter", BF16, *GEO, "-o", f"s3://dumps/litter/{folder}")
        assert run(*args).status == 0
        n_bytes = len(get(server(), f"litter/{folder}/part-00000.parquet"))
        put(server(), f"litter/{folder}/{marker}", "12345")
        if folder != "left":
            refused(run(*args, "--overwrite"), 4, f"holds other files ({marker})")
            continue
        (note,) = [note for note in run(*args, "--json").json["notes"] if "killed" in note]
        told = (
            f"Removed 1 unfinished output that killed runs had left beside this one's ({n_bytes + 5:,} bytes): {left}."
        )
        assert note == told
        assert keys(server(), "litter/left") == ["litter/left/part-00000.parquet"]


@pytest.mark.full
def test_a_folder_that_is_whole_stays_though_its_writer_was_killed_before_it_said_so(store: Proxy) -> None:
    """Between the last file and the marker's end."""
    with Process(["true"]) as gone:
        gone.wait(LIMIT_SECONDS)
    marker = temporary_name(Path("x")).name.replace(f"-{os.getpid()}-", f"-{gone.pid}-")
    args = ("filter", BF16, *GEO, "--engine", "processes", "--workers", "1", "-o", "s3://dumps/late/d")
    assert run(*args).status == 0
    there = keys(server(), "late/d")
    put(server(), f"late/d/{marker}", "12345")
    refused(run(*args), 4, "exists", "Add --overwrite")
    assert keys(server(), "late/d") == there
