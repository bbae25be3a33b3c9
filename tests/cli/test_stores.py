"""Dumps in an object store: the commands read them as they read files, and say what is wrong with a store."""

import json
import urllib.request
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import BF16, STEPS, parquet, refused, row, run
from stores import Answer, Proxy, files, put, server, store as store

from rlcorr_cli.files import stores

REGION = {"x-amz-bucket-region": "eu-central-1"}


def told(*args: str) -> dict[str, Any]:
    """What a report says of the numbers, whatever its files are called."""
    report = run("analyze", *args, "--json").json
    return {name: report[name] for name in ("counts", "metrics", "groups", "verdict")}


def lines(path: str) -> str:
    """A Parquet file's rows as JSON lines."""
    return "".join(json.dumps(one) + "\n" for one in pq.read_table(path).to_pylist())


def arrow(path: str, out: Path, stream: bool = False) -> Path:
    """A Parquet file's rows as Arrow IPC."""
    table = pq.read_table(path)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    return out


def test_a_file_of_every_container_gives_the_numbers_of_the_same_file_on_disk(store: Proxy, tmp_path: Path) -> None:
    plain, streamed = tmp_path / "a.jsonl", tmp_path / "stream.arrow"
    plain.write_text(lines(BF16))
    paths = [Path(BF16), plain, arrow(BF16, tmp_path / "a.arrow"), arrow(BF16, streamed, stream=True)]
    for suffix, codec in ((".gz", "gzip"), (".zst", "zstd")):
        paths.append(tmp_path / f"a.jsonl{suffix}")
        with pa.CompressedOutputStream(str(paths[-1]), codec) as out:
            out.write(lines(BF16).encode())
    for path in paths:
        assert told(put(server(), f"every/{path.name}", path)) == told(str(path)), path.name


def test_lines_of_several_ranges_are_all_read_once(store: Proxy, tmp_path: Path) -> None:
    long, text = "long " * 7000, lines(BF16).splitlines()
    copies = (line.replace('"s0', f'"copy{i}-s0') for i in range(8) for line in text)
    many = "".join(f'{{"text": "{long}", {line[1:]}\n' for line in copies)
    assert len(many) > 17 << 20
    (tmp_path / "many.jsonl").write_text(many)
    assert told(put(server(), "ranges/many.jsonl", many)) == told(str(tmp_path / "many.jsonl"))
    assert {r.range for r in store.of("ranges/many.jsonl")} > {f"bytes=0-{(1 << 16) - 1}"}


def test_a_folder_and_globs_name_the_files_that_they_name_on_disk(store: Proxy, tmp_path: Path) -> None:
    names = ("run/step=1/b.parquet", "run/step=10/a.parquet", "run/step=2/a.parquet", "run/_tmp/x.parquet")
    for name in (*names, "run/.hidden.parquet", "run/step=1/_part.parquet", "run/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        parquet(tmp_path / name, [row(), row()])
        put(server(), f"globs/{name}", tmp_path / name)
    patterns = ("run/", "run", "run/*", "run/*/*.parquet", "run/step=[12]*", "run/**/a.parquet", "run/**", "**/b.*")
    for pattern in (*patterns, "run/step=?/*", "run/step=1/[ab].parquet", "run/_tmp/*", "*"):
        here, there = (run("inspect", f"{place}/{pattern}", "--json").json for place in (tmp_path, "s3://dumps/globs"))
        at = [str(Path(one["path"]).relative_to(tmp_path)) for one in here["inputs"]]
        assert [one["path"].removeprefix("s3://dumps/globs/") for one in there["inputs"]] == at, pattern
        assert there["columns"] == here["columns"]
        changed = (files(server()).get_file_info(one["path"].removeprefix("s3://")).mtime for one in there["inputs"])
        assert [one["modified"] for one in there["inputs"]] == [f"{each:%Y-%m-%dT%H:%MZ}" for each in changed]


def test_keys_are_taken_as_they_are_typed(store: Proxy) -> None:
    for key in ("odd/a b.parquet", "odd/a%20b.parquet", "odd/ä+&=#.parquet", "odd/[1].parquet"):
        assert run("analyze", put(server(), key, Path(BF16)), "--quiet").status == 0, key


def test_a_folder_whose_name_looks_like_a_secret_is_a_folder(store: Proxy) -> None:
    assert run("analyze", put(server(), "hive/token_key=3/a.parquet", Path(BF16)), "--quiet").status == 0


def test_what_a_query_says_of_the_store_goes_before_variables(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = put(server(), "query/a.parquet", Path(BF16))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    query = f"?region=us-east-1&scheme=http&endpoint_override={store.endpoint.removeprefix('http://')}"
    for named in (uri, "s3://dumps/query/", "s3://dumps/query/?.parquet"):
        assert told(named + query) == told(BF16)


def test_check_filter_inspect_and_plot_read_a_store(store: Proxy, tmp_path: Path) -> None:
    uri = put(server(), "all/steps.parquet", Path(STEPS))
    assert run("check", uri, "--max", "kl=100").status == run("check", STEPS, "--max", "kl=100").status
    assert "old_log_probs" in run("inspect", uri).out
    assert run("plot", uri, "--kind", "ratio", "-o", str(tmp_path / "p.png")).status == 0
    for name, source in (("there", uri), ("here", STEPS)):
        assert run("filter", source, "--preset", "geo_rs", "-o", str(tmp_path / f"{name}.parquet")).status == 0
    assert pq.read_table(tmp_path / "there.parquet") == pq.read_table(tmp_path / "here.parquet")


def test_only_chunks_of_needed_columns_are_read(store: Proxy, tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    logp = -1.0 / (np.arange(2000)[:, None] + np.arange(1, 201))
    columns = {
        "rollout_log_probs": pa.array(list(logp[:, :-1])),
        "text": pa.array([f"{i:05d}" * 4000 for i in range(2000)]),
        "old_log_probs": pa.array(list(logp[:, 1:])),
    }
    pq.write_table(pa.table(columns), path, row_group_size=250, compression="none", use_dictionary=False)
    uri = put(server(), "wide/wide.parquet", path)
    assert run("analyze", uri, "--quiet").status == 0
    requests = store.of("wide/wide.parquet")
    footer = pq.read_metadata(path)
    sizes = [[footer.row_group(i).column(j).total_compressed_size for j in (0, 2)] for i in range(8)]
    chunks, peeked = sum(map(sum, sizes)), sum(map(sum, sizes[:4]))  # of some 650 rows, and a range has two of them
    assert chunks < sum(one.sent for one in requests) <= chunks + peeked + (3 << 16) < path.stat().st_size / 3
    # The start, the footer and its length; to peek and to read at most two chunks of each row group.
    assert len(requests) <= 3 + 2 * (4 + 8)
    assert len(store.of("wide/wide.parquet", ["HEAD"])) <= 8


def test_columns_of_arrow_files_that_are_not_needed_are_not_read(store: Proxy, tmp_path: Path) -> None:
    table = pq.read_table(BF16).append_column("text", pa.array(["x" * 100_000] * 64))
    with pa.ipc.new_file(tmp_path / "d.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    uri = put(server(), "wide/d.arrow", tmp_path / "d.arrow")
    assert told(uri) == told(str(tmp_path / "d.arrow"))
    assert sum(one.sent for one in store.of("wide/d.arrow")) < 1 << 20 < (tmp_path / "d.arrow").stat().st_size / 6


def test_a_fault_that_passes_is_not_seen(store: Proxy) -> None:
    uri = put(server(), "fault/a.parquet", Path(BF16))
    n = 0

    def answer(method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        nonlocal n
        n += 1
        return (503, {}, b"") if n % 3 == 2 else None

    store.answer = answer
    assert told(uri) == told(BF16)
    assert n > 5


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_small_object_takes_three_requests_and_the_first_fault_is_said(store: Proxy, form: str) -> None:
    first = pq.read_table(BF16).slice(0, 8).to_pylist()
    for i in range(40):
        rows = [{**each, "sample_id": f"{i}-{j}"} for j, each in enumerate(first)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        data = sink.getvalue().to_pybytes() if form == "parquet" else "".join(json.dumps(each) + "\n" for each in rows)
        put(server(), f"many/{form}/{i:02d}.{form}", data)
    report = run("analyze", f"s3://dumps/many/{form}/", "--json").json
    assert [Path(each["path"]).stem for each in report["inputs"]] == [f"{i:02d}" for i in range(40)]
    assert report["counts"]["sequences"] == 320
    assert len(store.of(f"many/{form}/07.{form}", ["GET"])) == 1
    assert len(store.of(f"many/{form}/07.{form}", ["HEAD"])) == 2
    for i in (30, 11, 29):
        put(server(), f"many/{form}/{i}.{form}", "")
    refused(run("analyze", f"s3://dumps/many/{form}/"), 3, f"s3://dumps/many/{form}/11.{form} is empty (0 bytes)")


CAUSES = {
    "missing key": ("s3://dumps/run/b.parquet", "there is no such key", "Similar names beside it: a.parquet."),
    "missing folder": ("s3://dumps/nothing/b.parquet", "there is no such key", "Nothing lies beside it."),
    "missing bucket": ("s3://nobucket/run/a.parquet", "there is no such bucket", "Is its name right?"),
    "bucket of a glob": ("s3://nobucket/run/*", "there is no such bucket", "Is its name right?"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_not_there_is_said_with_where_was_looked(cause: str, store: Proxy) -> None:
    put(server(), "run/a.parquet", Path(BF16))
    uri, what, hint = CAUSES[cause]
    bucket = uri.split("/")[2]
    looked_at = f"Looked at: AWS_ENDPOINT_URL={store.endpoint}, AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is set"
    ran = run("analyze", uri)
    refused(ran, 3, what, f"bucket '{bucket}', key '", f"endpoint {store.endpoint}", hint, looked_at, "AWS_REGION")
    assert "secret-of-the-tester" not in ran.err


ANSWERS = {
    "refused": (403, {}, "the credentials are refused", "Are they there"),
    "another region": (400, REGION, "another region", "Set AWS_REGION to eu-central-1."),
    "no region": (301, REGION, "no region is set", "Set AWS_REGION to eu-central-1."),
    "no store": (405, {}, "answers, but not as a store does", "Is the endpoint right?"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_a_store_refuses_is_said_with_where_was_looked(case: str, store: Proxy) -> None:
    status, headers, what, hint = ANSWERS[case]
    store.answer = lambda method, path: (status, headers, b"")
    parts = (what, "bucket 'dumps', key 'run/a.parquet'", f"endpoint {store.endpoint}", hint, "AWS_PROFILE")
    refused(run("analyze", "s3://dumps/run/a.parquet"), 3, *parts)


def test_credentials_that_the_server_does_not_know_are_said(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    put(server(), "run/a.parquet", Path(BF16))
    _reset_authentication(0)
    try:
        ran = run("analyze", "s3://dumps/run/a.parquet")
        refused(ran, 3, "the credentials are refused", "AWS_ACCESS_KEY_ID is set")
    finally:
        _reset_authentication(1 << 60)


def _reset_authentication(after: int) -> None:
    """Have moto ask for credentials that it gave out, after so many requests."""
    url = f"{server()}/moto-api/reset-auth"
    request = urllib.request.Request(url, str(after).encode(), {"Content-Type": "text/plain"}, method="POST")
    with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
        assert response.status == 200


def test_an_endpoint_that_does_not_answer_is_said(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    refused(
        run("analyze", "s3://dumps/run/a.parquet"), 3, "the endpoint does not answer", "endpoint http://127.0.0.1:1)"
    )


def test_an_object_that_is_written_again_while_it_is_read_is_an_error(store: Proxy) -> None:
    """The other is as long and was written in the same second: only its ETag tells."""
    data, replaced = Path(BF16).read_bytes(), False

    def answer(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        nonlocal replaced
        replaced |= method == "GET"  # its ETag was asked for before
        headers = {"ETag": f'"{replaced}"', "Last-Modified": "Sun, 22 Nov 2026 14:00:00 GMT"}
        if method == "HEAD":
            return 200, {**headers, "Content-Length": str(len(data))}, b""
        return 206, {**headers, "Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"}, data

    store.answer = answer
    refused(run("analyze", "s3://dumps/changing/a.parquet"), 3, "a.parquet was changed while it was read")
    assert replaced


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("http://host/a.parquet", ("is not a place that rlcorr reads or writes", "s3://", "`curl -O URL`")),
        ("s3://user:secret@dumps/a.parquet", ("holds a password or a key", "AWS_SECRET_ACCESS_KEY")),
        ("s3://", ("names no bucket", "s3://BUCKET/PATH")),
        ("file://host/a.parquet", ("names another machine", "file:///path")),
        ("s3://dumps/a.parquet?secret_key=secret@", ("holds a password or a key", "AWS_SECRET_ACCESS_KEY")),
        ("abfs://a@b/c.parquet?sv=1&sig=secret@", ("holds a password or a key", "AZURE_STORAGE_SAS_TOKEN")),
        ("abfs://account.dfs.core.windows.net/a.parquet", ("names no container", "abfs://CONTAINER@ACCOUNT.dfs.")),
    ],
)
def test_uris_that_name_nothing_are_usage_errors(uri: str, parts: tuple[str, ...]) -> None:
    ran = run("analyze", uri)
    refused(ran, 2, *parts)
    assert "secret@" not in ran.err


def test_a_file_of_this_machine_may_be_named_by_a_uri(tmp_path: Path) -> None:
    path = tmp_path / "a b.parquet"
    path.write_bytes(Path(BF16).read_bytes())
    assert told(f"file://{tmp_path}/a%20b.parquet") == told(BF16)


SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@pytest.mark.parametrize(("status", "body"), [(429, b""), (503, SLOW_DOWN)])
def test_a_store_that_is_asked_too_often_is_said_to_be(status: int, body: bytes, store: Proxy, tmp_path: Path) -> None:
    store.answer = lambda method, path: (status, {}, body)
    told = "too many of them" if status == 429 else "the endpoint fails"  # of a HEAD no body says more
    refused(run("analyze", "s3://dumps/a.parquet"), 3, told, "bucket 'dumps'", "endpoint http://127.0.0.1")
    refused(run("convert", BF16, "-o", "s3://dumps/new.parquet"), 4, "too many of them", "run it again")


@pytest.mark.parametrize("keys", [(), ("d/a.parquet",)])
@pytest.mark.parametrize("command", [("analyze",), ("watch", "--once", "--every", "0")])
def test_a_listing_that_brings_no_new_key_ends(
    keys: tuple[str, ...], command: tuple[str, ...], store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "QUIET_S", 1)
    found = "".join(
        f"<Contents><Key>{key}</Key><Size>9</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in keys
    )

    def page(method: str, path: str) -> Answer | None:
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{uuid4().hex}</NextContinuationToken>"
        body = f"<ListBucketResult><Name>dumps</Name><KeyCount>{len(keys)}</KeyCount>{more}{found}</ListBucketResult>"
        return 200, {"Content-Type": "application/xml"}, body.encode()

    store.answer = lambda method, path: page(method, path) if "list-type" in path else None
    args = ("--state", "w.rlcorr") if command[0] == "watch" else ()
    refused(run(command[0], "s3://dumps/d/", *command[1:], *args), 3, "its listing does not end", "bucket 'dumps'")
    store.answer = lambda method, path: (500, {}, b"") if "list-type" in path else None  # so that the client stops
