"""`rlcorr analyze` and `rlcorr filter` under a framework's profile and config, on rows made up in a test."""

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcorr_cli.commands import main

Rows = Sequence[Mapping[str, Any]]
Config = Mapping[str, Any]


def report(folder: Path, profile: str, config: Config, rows: Rows, *options: str) -> dict[str, Any]:
    """The report of `rlcorr analyze`."""
    return json.loads(_run(folder, "analyze", profile, config, rows, "--json", *options))


def filtered(folder: Path, profile: str, config: Config, rows: Rows, *options: str) -> list[tuple[Any, Any]]:
    """(mask, weights) of every row that `rlcorr filter` writes, rejected ones too; weights None where none are."""
    out = folder / "out.jsonl"
    _run(folder, "filter", profile, config, rows, "--rejected", "keep", "-o", str(out), "--overwrite", *options)
    written = map(json.loads, out.read_text().splitlines())
    return [(row["response_mask"], row.get("rollout_is_weights")) for row in written]


def _run(folder: Path, command: str, profile: str, config: Config, rows: Rows, *options: str) -> str:
    (folder / "dump.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.yaml").write_text(json.dumps(config))
    out, err = io.StringIO(), io.StringIO()
    plan = ("--profile", profile, "--plan", str(folder / "config.yaml"))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.run([command, str(folder / "dump.jsonl"), *plan, *options])
    assert status == 0, err.getvalue()
    return out.getvalue()
