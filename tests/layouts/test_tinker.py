"""tinker-cookbook's capture, held to files of its own store and sinks, and to made ones in all its forms."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rlcorr_cli
from rlcorr_cli import analyze, convert
from rlcorr_cli.errors import DataError, NoTrainedPolicy
from rlcorr_cli.reading.find import find_noting
from tests.layouts.native_rows import NATIVE, agree, expected, numbered_by_step, rows_of

FOLDER = NATIVE / "tinker-cookbook"
FILES = ("capture.sqlite", "capture/sample.jsonl", "wire_rows.arrow", "wire_rows.jsonl", "wire_rows.parquet")
COLUMNS = (
    *("rollout_log_probs", "response_mask", "token_ids", "step", "group_id", "run_id", "run_attempt", "split"),
    *("purpose", "traj_idx", "sample_idx", "prompt_length", "policy_version"),
)
Row = dict[str, Any]


@pytest.mark.parametrize("name", FILES)
def test_each_form_gives_the_sequences_that_were_sampled(name: str) -> None:
    right = numbered_by_step([{**row, "n_valid": row["n_valid"] or 0} for row in expected_of(name)])
    agree(rows_of([FOLDER / name]), right, *COLUMNS)


def expected_of(name: str) -> list[Row]:
    return expected("tinker-cookbook/expected.parquet", name)


def test_forms_of_one_capture_are_read_once_and_the_others_are_told(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(FOLDER / name, tmp_path / Path(name).name)
    assert len(rows_of([tmp_path])) == len(expected_of("capture.sqlite"))
    _, notes = find_noting([str(tmp_path)])
    told = "sample.jsonl and 3 more are left out: it is another form of the same capture."
    assert [note for note in notes if "left out" in note] == [told]


def wire_rows(n: int, seed: int) -> list[Row]:
    """Rows as the store has them: of any length, without log-probs, without a group, of two attempts."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for i in range(n):
        length = int(rng.integers(0, 9)) if i else 3_000
        log_probs = np.float32(-rng.exponential(1, length)).tolist()
        rows.append(
            {
                "cursor": 3 * i + 1,
                "run_id": "run é",
                "run_attempt": i % 2,
                "split": "train" if i % 3 else None,
                "iteration": i // 4,
                "group_idx": None if i % 5 == 4 else i % 3,
                "traj_idx": None if i % 2 else i,
                "purpose": "rollout",
                "sampling_session_id": f"s{i}",
                "seq_id": 2**62 + i,
                "sample_idx": i % 2,
                "policy_version": f"tinker://x/{i}",
                "created_at": 1.5,
                "prompt_tokens": rng.integers(0, 99, i % 4).tolist(),
                "sampled_tokens": rng.integers(0, 99, length).tolist(),
                "logprobs": None if i % 7 == 6 else log_probs,
                "metadata": {"stop_reason": "stop"} if i % 2 else None,
            }
        )
    return rows


def as_lines(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_database(path: Path, rows: list[Row]) -> Path:
    texts = ("prompt_tokens", "sampled_tokens", "logprobs", "metadata")
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"CREATE TABLE wire_rows ({', '.join(rows[0])}, PRIMARY KEY (cursor))")
    for row in reversed(rows):
        values = [json.dumps(value) if name in texts and value is not None else value for name, value in row.items()]
        database.execute(f"INSERT INTO wire_rows VALUES ({', '.join('?' * len(row))})", values)
    database.commit()
    database.close()
    return path


def as_table(rows: list[Row]) -> pa.Table:
    metadata = [None if row["metadata"] is None else json.dumps(row["metadata"]) for row in rows]
    table = pa.Table.from_pylist([{**row, "metadata": text} for row, text in zip(rows, metadata, strict=True)])
    return table.set_column(
        table.column_names.index("logprobs"), "logprobs", table["logprobs"].cast(pa.list_(pa.float32()))
    )


def as_arrow(path: Path, rows: list[Row], new: Callable[..., Any] = pa.ipc.new_file) -> Path:
    table = as_table(rows)
    with pa.OSFile(str(path), "wb") as out, new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


def as_stream(path: Path, rows: list[Row]) -> Path:
    return as_arrow(path, rows, pa.ipc.new_stream)


def as_parquet(path: Path, rows: list[Row]) -> Path:
    pq.write_table(as_table(rows), path, row_group_size=5)
    return path


def as_requests(path: Path, rows: list[Row]) -> Path:
    """A record a request, of one sequence or two; before, after and between them some that failed."""
    failed = {
        "kind": "sample",
        "scope": {"run_id": "x"},
        "prompt_tokens": [1],
        "sampling_params": {},
        "status": "error",
    }
    lines = [failed]
    scoped = ("run_id", "run_attempt", "split", "iteration", "group_idx", "traj_idx", "purpose")
    for row in rows:
        sample = {"tokens": row["sampled_tokens"], "logprobs": row["logprobs"]} | (row["metadata"] or {})
        before = {"tokens": [7], "logprobs": [-0.5], "stop_reason": "length"}
        lines.append(
            {
                "kind": "sample",
                "scope": {name: row[name] for name in scoped if row[name] is not None} | {"turn": 0},
                "sampling_session_id": row["sampling_session_id"],
                "seq_id": row["seq_id"],
                "model_path": row["policy_version"],
                "prompt_tokens": row["prompt_tokens"],
                "sampling_params": {"temperature": 1.0},
                "samples": [before] * row["sample_idx"] + [sample],
                "status": "ok",
            }
        )
    return as_lines(path, [*lines, failed])


FORMS = {
    "wire_rows.jsonl": as_lines,
    "capture.sqlite": as_database,
    "a #1%.sqlite": as_database,
    "rows.arrow": as_arrow,
    "stream.arrow": as_stream,
    "my_wire_rows.parquet": as_parquet,
    "sample.jsonl": as_requests,
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_gives_every_value_as_it_was_written(name: str, tmp_path: Path) -> None:
    made = wire_rows(23, 1)
    read = rows_of([FORMS[name](tmp_path / name, made)])
    if name == "sample.jsonl":  # less the sequence before those of two
        read = [row for row in read if row["token_ids"] != [7]]
    assert len(read) == len(made)
    for row, right in zip(read, made, strict=True):
        assert row["rollout_log_probs"] == right["logprobs"]
        assert row["token_ids"] == right["sampled_tokens"]
        assert row["response_mask"] == (None if right["logprobs"] is None else [1] * len(right["logprobs"]))
        assert (row["prompt_token_ids"], row["prompt_length"]) == (right["prompt_tokens"], len(right["prompt_tokens"]))
        group = right["group_idx"]
        assert row["group_id"] == (None if group is None else f"{right['iteration']}/{group}")
        assert row["sample_id"] == f"{right['sampling_session_id']}/{right['seq_id']}/{right['sample_idx']}"
        assert row["finish_reason"] == (right["metadata"] and "stop")
        assert row["step"] == right["iteration"]
        for column in ("run_id", "run_attempt", "split", "traj_idx", "purpose", "sample_idx", "policy_version"):
            assert row[column] == right[column], column


def test_a_database_that_is_written_to_is_read_with_what_is_not_in_it_yet(tmp_path: Path) -> None:
    path = as_database(tmp_path / "capture.sqlite", wire_rows(3, 1))
    writer = sqlite3.connect(path)
    (row,) = wire_rows(1, 2)
    values = [
        json.dumps(value) if isinstance(value, list | dict) else value for value in {**row, "cursor": 99}.values()
    ]
    writer.execute(f"INSERT INTO wire_rows VALUES ({', '.join('?' * len(values))})", values)
    writer.commit()
    assert os.path.getsize(f"{path}-wal") > 0
    assert len(rows_of([path])) == 4
    writer.close()
    before = sorted(tmp_path.iterdir())
    assert len(rows_of([path])) == 4
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["wire_rows.parquet", "rows.arrow"])
def test_a_table_may_have_fewer_columns_and_not_without_its_lists(name: str, tmp_path: Path) -> None:
    made = wire_rows(5, 1)
    for gone in ("metadata", "prompt_tokens"):
        table = as_table(made).drop_columns([gone])
        if name.endswith(".parquet"):
            pq.write_table(table, tmp_path / name)
        else:
            with pa.OSFile(str(tmp_path / name), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
        if gone == "metadata":
            assert [row["finish_reason"] for row in rows_of([tmp_path / name])] == [None] * 5
        else:
            with pytest.raises(DataError, match="it has no column prompt_tokens"):
                rows_of([tmp_path / name], "tinker")


def database_of(path: Path, sql: str) -> None:
    database = sqlite3.connect(path)
    database.executescript(sql)
    database.close()


WRONG = {
    "has no table wire_rows": "CREATE TABLE real (a); CREATE VIEW wire_rows AS SELECT 1 AS run_id FROM real;",
    "no such column": "CREATE TABLE wire_rows (cursor INTEGER PRIMARY KEY, run_id TEXT);",
}


@pytest.mark.parametrize("what", WRONG)
def test_another_database_is_refused(what: str, tmp_path: Path) -> None:
    database_of(tmp_path / "d.sqlite", WRONG[what])
    with pytest.raises(DataError, match=what):
        rows_of([tmp_path / "d.sqlite"])


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("logprobs", "[-1.0, null, 'a']", "logprobs is not JSON"),
        ("logprobs", '["a"]', "logprobs is not a list of numbers"),
        ("logprobs", "[-1.0]", "logprobs has 1 values, sampled_tokens has 3,000"),
        ("sampled_tokens", "[1.5]", "sampled_tokens is not a list of whole numbers"),
        ("sampled_tokens", b"\xff\xfe", "sampled_tokens is not a list"),
        ("iteration", "one", "iteration is not a whole number"),
        ("metadata", "[]", "metadata is not an object"),
    ],
)
def test_a_value_of_another_kind_is_an_error_that_names_the_row(
    column: str, value: Any, what: str, tmp_path: Path
) -> None:
    path = as_database(tmp_path / "capture.sqlite", wire_rows(1, 1))
    database = sqlite3.connect(path)
    database.execute(f"UPDATE wire_rows SET {column} = ?", (value,))
    database.commit()
    database.close()
    with pytest.raises(DataError, match=f"row 0 of wire_rows: {what}"):
        rows_of([path])


@pytest.mark.parametrize("keep", [50, 5_000, 9_000])
def test_a_database_that_is_damaged_is_an_error(keep: int, tmp_path: Path) -> None:
    content = as_database(tmp_path / "capture.sqlite", wire_rows(40, 1)).read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(content[:keep])
    with pytest.raises(DataError):
        rows_of([tmp_path / "cut.sqlite"])


def test_the_lines_of_the_manual_write_both_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (Path(rlcorr_cli.__file__).parent / "manual" / "dumps.md").read_text().split("```python\n")[1:]
    (lines,) = (block.split("```")[0] for block in blocks if "loss_fn_outputs" in block)

    def datum(**lists: list[float]) -> SimpleNamespace:
        return SimpleNamespace(loss_fn_inputs={name: SimpleNamespace(data=values) for name, values in lists.items()})

    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump").mkdir()
    data = [datum(logprobs=[0.0, -1.0, -2.0], mask=[0.0, 1.0, 1.0], advantages=[0.0, 1.0, 1.0])]
    outputs = [{"logprobs": SimpleNamespace(data=[-9.0, -1.5, -2.5])}]
    exec(lines, {"data": data, "result": SimpleNamespace(loss_fn_outputs=outputs), "step": 3})
    report = analyze("dump/000003.parquet")
    assert (report.counts["tokens"], report.whole.values["kl"]) == (2, pytest.approx(0.5))


def test_a_capture_and_scores_of_the_same_tokens_make_a_dump(tmp_path: Path) -> None:
    made = [row for row in wire_rows(40, 3) if row["logprobs"] is not None]
    capture = as_database(tmp_path / "capture.sqlite", made)
    with pytest.raises(NoTrainedPolicy) as caught:
        analyze(str(capture))
    assert "sample_id" in caught.value.hint
    scored = [
        {
            "sample_id": f"{row['sampling_session_id']}/{row['seq_id']}/{row['sample_idx']}",
            "rollout_log_probs": [value - 0.25 for value in row["logprobs"]],
        }
        for row in made
    ]
    as_lines(tmp_path / "scored.jsonl", scored)
    convert(str(capture), join=str(tmp_path / "scored.jsonl"), on="sample_id", output=str(tmp_path / "dump.parquet"))
    assert analyze(str(tmp_path / "dump.parquet")).whole.values["kl"] == pytest.approx(0.25)
