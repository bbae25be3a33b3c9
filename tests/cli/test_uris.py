"""Outputs are named by paths or by URIs: those of this machine are paths, those of no store are refused; and no message
shows a secret of one."""

from pathlib import Path

import pytest
from running import BF16, refused, run

from rlcorr_cli.errors import UsageError

COMMANDS = {
    "analyze": ("analyze", BF16, "-o", "{uri}.html"),
    "check": ("check", BF16, "--junit", "{uri}.xml"),
    "filter": ("filter", BF16, "--preset", "token_is", "-o", "{uri}.parquet"),
    "rejected rows": ("filter", BF16, "--preset", "geo_rs", "-o", "k.parquet", "--rejected-output", "{uri}.parquet"),
    "bad rows": ("analyze", BF16, "--quarantine", "{uri}.parquet"),
    "plot": ("plot", BF16, "--kind", "ratio", "-o", "{uri}.png"),
}


@pytest.mark.parametrize("uri", ["https://x/out", "Ftp:/x/out"])
@pytest.mark.parametrize("case", COMMANDS)
def test_of_what_is_no_store_are_refused(case: str, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = [arg.format(uri=uri) for arg in COMMANDS[case]]
    refused(run(*args), 2, "is not a place that rlcorr reads or writes", "s3://")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("start", ["file://", "FILE:"])
@pytest.mark.parametrize("case", [case for case in COMMANDS if case != "bad rows"])
def test_of_this_machine_are_paths(case: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    ran = run(*(arg.format(uri=f"{start}{tmp_path}/there/out") for arg in COMMANDS[case]))
    assert (ran.status, len(list((tmp_path / "there").iterdir()))) == (0, 1), ran.err


def test_look_like_a_name_with_a_colon_that_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("filter", BF16, "--preset", "token_is", "-o", "run:3.parquet").status == 0
    assert (tmp_path / "run:3.parquet").exists()


SECRET = "HUSHHUSH"
WITH_SECRETS = (
    f"https://user:{SECRET}@host/x",
    f"htps://user:{SECRET * 40}@host/x",
    f"https://{SECRET}@host/x",
    f"s3:/KEY:{SECRET}@bucket/x",
    f"s3:KEY:{SECRET}@bucket/x",
    f"s3//KEY:{SECRET}@bucket/x",
    f"S3://KEY:{SECRET}/+/{SECRET}@bucket/x",
    f"s3://KEY%3A{SECRET}@bucket/x",
    f"KEY:{SECRET}@bucket/x",
    f"s3://bucket/x?X-Amz-Signature={SECRET}",
    f"gs://bucket/x?GoogleAccessId=me&sig={SECRET}",
    f"https://host/x?AWSAccessKeyId={SECRET}",
    f"s3://bucket/x?endpoint_override=KEY:{SECRET}@host",
    f"AccountName=a;AccountKey={SECRET}/x",
)


@pytest.mark.parametrize("uri", WITH_SECRETS)
def test_with_a_secret_are_never_shown_whole(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for args in (
        ("analyze", f"{uri}.parquet"),
        ("analyze", BF16, "--clean-dump", f"{uri}.rlcorr"),
        ("analyze", BF16, "-o", f"{uri}.html"),
        ("analyze", BF16, "--plan", f"{uri}.yaml"),
        ("analyze", BF16, "--preset", uri),
        ("check", f"{uri}.json"),
        ("watch", uri, "--once"),
        ("watch", ".", "--once", "--state", f"{uri}.rlcorr"),
        ("inspect", BF16, "--worst", "1", "--tokenizer", uri),
    ):
        for form in ((), ("--json",), ("--debug",)):
            ran = run(*args, *form)
            assert ran.status in (2, 3, 4), args
            assert SECRET not in ran.out + ran.err, args


def test_without_a_secret_are_shown_as_they_are() -> None:
    for uri in (
        "gs://anonymous@bucket/x?retry_limit_seconds=3",
        "abfs://container@account.dfs.core.windows.net/x?credential_kind=anonymous",
        "abfs://account@127.0.0.1:10000/logs/x?blob_storage_authority=127.0.0.1:10000",
        "s3://bucket/time=12:30:00/x@y?endpoint_override=http://127.0.0.1:9000",
    ):
        assert str(UsageError(uri)) == uri
