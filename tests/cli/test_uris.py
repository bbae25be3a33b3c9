"""Outputs are named by paths: a URI makes no directories called 'file:'."""

from pathlib import Path

import pytest
from running import BF16, refused, run

COMMANDS = {
    "analyze": ("analyze", BF16, "-o", "{uri}.html"),
    "check": ("check", BF16, "--junit", "{uri}.xml"),
    "filter": ("filter", BF16, "--preset", "token_is", "-o", "{uri}"),
    "rejected rows": ("filter", BF16, "--preset", "geo_rs", "-o", "k.parquet", "--rejected-output", "{uri}.parquet"),
    "bad rows": ("analyze", BF16, "--quarantine", "{uri}.parquet"),
    "plot": ("plot", BF16, "--kind", "ratio", "-o", "{uri}"),
}


@pytest.mark.parametrize("uri", ["file:///x/out", "FILE:/x/out", "s3://x/out"])
@pytest.mark.parametrize("case", COMMANDS)
def test_for_an_output_are_refused(case: str, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = [arg.format(uri=uri) for arg in COMMANDS[case]]
    refused(run(*args), 2, "takes a path, not the URI", "Write to a file" if uri[0] == "s" else "Write /x/out")
    assert not any(tmp_path.iterdir())


def test_look_like_a_name_with_a_colon_that_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("filter", BF16, "--preset", "token_is", "-o", "run:3.parquet").status == 0
    assert (tmp_path / "run:3.parquet").exists()
