"""Suspicions about whole files, as commands report them: with evidence, and without changing a number."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, SAMPLE, STEPS, analyzed, run, run_process
from worded import words

from rlcorr_cli.reading.scalars import is_log

OLD = "old_log_probs"


def written(path: Path, old: list[list[float]]) -> str:
    table = pq.read_table(BF16)
    pq.write_table(table.set_column(table.schema.get_field_index(OLD), OLD, pa.array(old)), path)
    return str(path)


def columns(*names: str) -> list[list[list[float]]]:
    table = pq.read_table(BF16)
    return [table[name].to_pylist() for name in names]


def names(report: dict[str, Any]) -> list[str]:
    return [one["name"] for one in report["suspicions"]]


def test_clean_dumps_raise_none() -> None:
    dumps = [str(path) for path in (*SAMPLE.glob("*.parquet"), *SAMPLE.glob("*.jsonl")) if not is_log([str(path)])]
    assert len(dumps) == len([*SAMPLE.glob("smollm2_*"), SAMPLE / "collapse.parquet"])
    for path in dumps:
        assert names(analyzed(path)) == []


def test_a_shifted_column_is_suspected_everywhere(tmp_path: Path) -> None:
    (old,) = columns(OLD)
    path = written(tmp_path / "d.parquet", [[*row[1:], -1.0] for row in old])
    report = analyzed(path)
    assert names(report) == ["shifted_columns"]
    (one,) = report["suspicions"]
    assert one["path"] == path
    assert one["n_files"] == 1
    assert "old_log_probs" in one["evidence"]
    stopped = run("filter", path, "--preset", "token_is", "--dry-run", "--json")
    assert stopped.status == 1
    assert names(json.loads(stopped.out)) == ["shifted_columns"]
    assert names(run("inspect", path, "--json").json) == ["shifted_columns"]
    for args in (("analyze",), ("inspect",)):
        assert "? shifted_columns  d.parquet: " in run(*args, path).out
    assert "! shifted_columns  Cause: " in run("filter", "--preset", "token_is", "--dry-run", path).out
    page, markdown = words(path)
    assert "shifted_columns" in page
    assert r"shifted\_columns" in markdown


def test_a_copy_is_suspected_and_counted_over_files(tmp_path: Path) -> None:
    (rollout,) = columns("rollout_log_probs")
    one = written(tmp_path / "a.parquet", rollout)
    two = str(tmp_path / "b.parquet")
    pq.write_table(pq.read_table(one).drop_columns(["sample_id"]), two)
    pq.write_table(pq.read_table(one).drop_columns(["sample_id"]), one)
    report = analyzed(one, two)
    assert [(s["name"], s["path"], s["n_files"]) for s in report["suspicions"]] == [("bypass_copy", one, 2)]
    assert "? bypass_copy  a.parquet and 1 more file: " in run("analyze", one, two).out


def test_files_out_of_order_are_suspected(tmp_path: Path) -> None:
    table = pq.read_table(STEPS)
    paths = [str(tmp_path / f"step{i}.parquet") for i in (10, 2)]
    for path, step in zip(paths, (4, 1), strict=True):
        pq.write_table(table.slice(64 * step, 64), path)
    assert names(analyzed(*paths)) == ["steps_out_of_order"]
    assert names(analyzed(*paths[::-1])) == []


@pytest.mark.parametrize("form", ["gz", "stdin"])
def test_any_way_of_reading_is_looked_at(form: str, tmp_path: Path) -> None:
    rows = [{"rollout_log_probs": row, OLD: row} for row in columns("rollout_log_probs")[0]]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if form == "gz":
        (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        assert names(analyzed(str(tmp_path / "d.jsonl.gz"))) == ["bypass_copy"]
        return
    ran = run_process("analyze", "-", "--json", stdin=text)
    assert names(ran.json) == ["bypass_copy"]
    assert ran.json["counts"]["rows"] == len(rows)


def test_a_saved_report_keeps_them(tmp_path: Path) -> None:
    (rollout,) = columns("rollout_log_probs")
    path, saved = written(tmp_path / "a.parquet", rollout), tmp_path / "report.json"
    assert run("analyze", path, "-o", str(saved)).status == 0
    assert run("plot", str(saved), "-o", str(tmp_path / "p.png")).status == 0


def padded(path: Path) -> str:
    """Rows of one length: 0.0 in the rollout column behind each row's end, where training is surprised."""
    rows = pq.read_table(BF16).select([OLD, "rollout_log_probs"]).to_pylist()
    longest = max(len(row[OLD]) for row in rows)
    padding = {OLD: -11.5, "rollout_log_probs": 0.0}
    table = {
        name: [row[name] + [value] * (longest - len(row[name])) for row in rows] for name, value in padding.items()
    }
    pq.write_table(pa.table(table), path)
    return str(path)


def test_what_voids_the_numbers_is_the_cause_wherever_one_is_named(tmp_path: Path) -> None:
    (old,) = columns(OLD)
    shifted = written(tmp_path / "d.parquet", [[*row[1:], -1.0] for row in old])
    assert run("diagnose", shifted, "--json").json["verdict"] == "shifted_columns"
    for command in ("analyze", "inspect"):
        assert run(command, shifted, "--json").json["cause"] is None
        assert "mispaired_rows" not in run(command, shifted).out


def test_what_a_voiding_anomaly_leaves_is_told_with_that_caveat(tmp_path: Path) -> None:
    caveat = "The rest is computed from numbers that this makes meaningless: fix it, and diagnose again."
    (old,) = columns(OLD)
    shifted = [[*row[1:], -1.0] for row in old]
    words = " ".join(run("diagnose", written(tmp_path / "shifted.parquet", shifted)).out.split())
    assert caveat not in words
    assert "Also:" not in words  # that single rows are shifted is the same fault
    # Rows of two responses are told where they are there, too.
    mispaired = [[*(shifted[i - 3] * 9)[: len(row)]] if i % 4 == 3 else row for i, row in enumerate(shifted)]
    words = " ".join(run("diagnose", written(tmp_path / "both.parquet", mispaired)).out.split())
    assert f"{caveat} Also:" in words
    assert "hold log-probs of two different responses" in words.partition(caveat)[2]


def test_rows_with_a_stretch_of_zeros_are_not_called_mispaired(tmp_path: Path) -> None:
    report = run("diagnose", padded(tmp_path / "d.parquet"), "--json").json
    assert report["verdict"] == "unscored_zeros"
    assert report["features"]["odd_rows"] > 1
    assert "mispaired_rows" not in [cause["cause"] for cause in report["causes"]]
