"""A dump's files are looked for once: outputs are held against them, and all of a result is of them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import run
from stores import Proxy, put, server, store as store

import rlcorr_cli
from rlcorr_cli import Report

ROWS = [{"rollout_log_probs": [-0.5, -1.0 - i / 64], "old_log_probs": [-0.6, -1.0], "step": 1} for i in range(16)]
FAR = [{"rollout_log_probs": [-30.0], "old_log_probs": [-0.1], "step": 1}]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(f"{row}\n".replace("'", '"') for row in rows))
    return str(path)


def test_the_worst_rows_of_a_report_are_of_the_files_that_it_is_of(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", ROWS)

    @contextmanager
    def while_a_job_writes(_: int) -> Generator[Callable[[int, int], None]]:
        jsonl(tmp_path / "b.jsonl", FAR)
        yield lambda n_tokens, n_bytes: None

    report = rlcorr_cli.analyze(str(tmp_path), output=str(tmp_path / "r.html"), watch=while_a_job_writes)
    assert isinstance(report, Report)
    assert report.worst_rows is not None
    assert [file.path for file in report.worst_rows.inputs] == [str(tmp_path / "a.jsonl")]


@pytest.mark.parametrize(
    "args",
    [
        ("analyze", "-o", "r.html"),
        ("diagnose", "-o", "r.md"),
        ("compare", "-o", "r.json"),
        ("sweep", "--vary", "ratio.seq_mean", "-o", "r.csv"),
        ("check", "--junit", "r.xml"),
        ("plot", "--kind", "ratio", "--kind", "diagnose", "-o", "pictures"),
        ("inspect", "--worst", "1", "-o", "r.json"),
        ("filter", "--preset", "token_is", "-o", "r.jsonl"),
        ("convert", "-o", "r.jsonl"),
    ],
    ids=lambda args: args[0],
)
def test_a_folder_of_a_store_is_listed_once(
    args: tuple[str, ...], store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(server(), "listed/a.jsonl", Path(jsonl(tmp_path / "a.jsonl", ROWS)))
    monkeypatch.chdir(tmp_path)
    store.requests.clear()
    ran = run(args[0], "s3://dumps/listed/", *args[1:])
    assert ran.status in (0, 1), ran.err
    listings = [request for request in store.requests.values() if "prefix=listed" in request.path]
    assert len(listings) == 2, "whether it is a folder, and what it holds"
