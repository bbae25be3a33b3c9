"""Outputs are named by paths or by URIs: those of this machine are paths, those of no store are refused."""

from pathlib import Path

import pytest
from running import BF16, refused, run

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
