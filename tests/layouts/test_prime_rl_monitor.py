"""prime-rl's file monitor: streams and annotations of a run, held to its own writer's files and to made ones."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import analyze, convert, inspect, watch
from rlcorr_cli.errors import DataError, NoTrainedPolicy
from rlcorr_cli.layouts import prime_monitor
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.find import find_noting
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from tests.layouts.monitor_made import Run, made_run, sealed, write_run
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

RUNS = NATIVE / "prime-rl" / "runs"
TRACES = "monitors/file/traces"
COLUMNS = (
    "rollout_log_probs",
    "current_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "policy_version",
    "policy_version_end",
    "source",
    "episode_id",
    "branch",
    "kind",
)


@pytest.mark.parametrize("run", ["live", "exact"])
@pytest.mark.parametrize("place", ["", "monitors", TRACES, f"{TRACES}/stream", f"{TRACES}/annotations"])
def test_each_name_of_a_run_gives_its_branches(run: str, place: str) -> None:
    right = expected("prime-rl/expected_monitor.parquet", run)
    agree(rows_of([RUNS / run / place]), right, *COLUMNS)


@pytest.mark.parametrize(
    ("seed", "chunk_bytes", "frame_bytes", "finished"),
    [(0, 0, 0, True), (1, 3_000, 700, False), (2, 9_000, 1_000_000, True), (3, 1, 37, False)],
)
def test_rows_are_the_same_whatever_the_sizes_of_chunks_and_frames(
    seed: int, chunk_bytes: int, frame_bytes: int, finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_run(17, seed)
    write_run(tmp_path / "run", made, chunk_bytes=chunk_bytes, frame_bytes=frame_bytes, finished=finished)
    monkeypatch.setattr(prime_monitor, "SPOOLED_BYTES", 1_000)  # the numbers go to a file
    agree(rows_of([tmp_path / "run"]), made.rows, *COLUMNS)
    name = "stream" if chunk_bytes else "stream.jsonl"
    monkeypatch.chdir(tmp_path / "run" / TRACES)
    agree(rows_of([Path(name)]), made.rows, *COLUMNS)


def test_two_runs_are_two_dumps_in_one(tmp_path: Path) -> None:
    first, second = made_run(5, 1), made_run(5, 2)
    write_run(tmp_path / "a", first, chunk_bytes=2_000, frame_bytes=500)
    write_run(tmp_path / "b", second)
    agree(rows_of([tmp_path]), [*first.rows, *second.rows], *COLUMNS)


def trained(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.rows if row["current_log_probs"] is not None]


def test_what_is_compared_is_what_the_trainer_has_records_of_and_the_rest_is_told(tmp_path: Path) -> None:
    made = made_run(17, 4, decimals=4)
    write_run(tmp_path, made)
    report = analyze(str(tmp_path))
    valid = [
        current - rollout
        for row in trained(made)
        for current, rollout, mask in zip(
            row["current_log_probs"], row["rollout_log_probs"], row["response_mask"], strict=True
        )
        if mask
    ]
    assert report.counts["sequences"] == sum(row["n_valid"] > 0 for row in trained(made))
    assert report.counts["tokens"] == len(valid)
    assert report.whole.values["kl"] == pytest.approx(-sum(valid) / len(valid), rel=1e-12)
    evaluated = sum(row["kind"] == "eval" for row in made.rows)
    rest = len(made.rows) - len(trained(made)) - evaluated
    notes = " ".join(report.notes)
    assert f"{len(made.rows) - len(trained(made))} of {len(made.rows)} branches have no log-probs" in notes
    assert f"({evaluated} of evaluation, {rest} not trained on, or not yet)" in notes
    assert "The trainer has records of 1 trace that the files of the stream do not hold." in notes
    assert "rounded to 4 decimals" in notes
    lost = sum(
        flag is not None and value is None
        for record in made.trainer
        for branch in record["branches"]
        for value, flag in zip(branch["trainer_logprobs"], branch.get("is_masked", ()), strict=False)
    )
    assert lost
    assert f"no finite log-prob of {lost} tokens that it trained on" in notes
    assert inspect(str(tmp_path)).bad_rows == 0


def test_no_note_says_rounded_where_one_value_is_not(tmp_path: Path) -> None:
    write_run(tmp_path, made_run(5, 4))
    assert "decimals" not in " ".join(analyze(str(tmp_path)).notes)


def test_branches_of_a_trace_are_no_duplicates_and_a_trace_that_came_twice_is(tmp_path: Path) -> None:
    made = made_run(17, 4)
    write_run(tmp_path, made)
    analyze(str(tmp_path))
    stream = tmp_path / TRACES / "stream.jsonl"
    stream.write_bytes(stream.read_bytes() * 2)
    with pytest.raises(DataError, match="there twice in step"):
        analyze(str(tmp_path))


def test_metrics_indices_and_live_traces_are_no_dumps(tmp_path: Path) -> None:
    write_run(tmp_path, made_run(3, 0))
    for name in ("metrics.jsonl", "traces/stream.index.jsonl", "traces/live/t9.jsonl"):
        with pytest.raises(DataError, match="prime-rl") as caught:
            analyze(str(tmp_path / "monitors/file" / name))
        assert "Name the run's folder" in caught.value.hint
    _, notes = find_noting([str(tmp_path)])
    assert any("6 files (5 .jsonl, 1 .lock)" in note for note in notes), notes


@pytest.mark.parametrize("n_bytes", [0, 9])
def test_what_lies_beside_the_streams_may_be_cut_short_while_a_run_goes_on(n_bytes: int, tmp_path: Path) -> None:
    made = made_run(9, 5)
    write_run(tmp_path, made)
    for name in ("metrics.jsonl", "traces/stream.index.jsonl", "traces/live/t9.jsonl"):
        path = tmp_path / "monitors/file" / name
        path.write_bytes(path.read_bytes()[:n_bytes])
    agree(rows_of([tmp_path]), made.rows, *COLUMNS)


def test_a_chunk_that_is_being_sealed_is_read_once_and_one_without_a_record_yet_is_passed(tmp_path: Path) -> None:
    made = made_run(9, 5)
    write_run(tmp_path, made, chunk_bytes=2_000, frame_bytes=500, finished=False)
    stream = tmp_path / TRACES / "stream"
    (plain,) = (path for path in stream.iterdir() if path.suffix == ".jsonl")
    (stream / f"{plain.name}.zst").write_bytes(sealed(plain.read_bytes()[:-300], 100))
    (stream / f"{int(plain.stem) + 1:05d}.jsonl").touch()
    agree(rows_of([tmp_path]), made.rows, *COLUMNS)
    _, notes = find_noting([str(tmp_path)])
    assert f"{plain.name}.zst is left out: the chunk that it was sealed from is beside it." in notes


def test_a_line_that_a_killed_writer_left_is_told_wherever_it_is(tmp_path: Path) -> None:
    made = made_run(9, 5)
    write_run(tmp_path, made)
    trainer = tmp_path / TRACES / "annotations" / "trainer.jsonl"
    trainer.write_bytes(trainer.read_bytes() + b'{"version":1,"trace_id":"t0.0","info":{},"bra')
    lines = (tmp_path / TRACES / "stream.jsonl").read_bytes().splitlines(keepends=True)
    lines[2:2] = [lines[2][:50] + lines[3]]
    (tmp_path / TRACES / "stream.jsonl").write_bytes(b"".join(lines))
    agree(rows_of([tmp_path]), made.rows, *COLUMNS)
    told = [note for note in analyze(str(tmp_path)).notes if "left out: not complete" in note]
    assert len(told) == 2
    assert "Line 3 of traces/stream.jsonl" in " ".join(told)


def test_without_records_of_the_trainer_it_is_said_where_they_come_from(tmp_path: Path) -> None:
    write_run(tmp_path, made_run(5, 0))
    shutil.rmtree(tmp_path / TRACES / "annotations")
    with pytest.raises(NoTrainedPolicy) as caught:
        analyze(str(tmp_path))
    assert "annotations/trainer beside the stream" in caught.value.hint
    (tmp_path / TRACES / "annotations").mkdir()
    (tmp_path / TRACES / "annotations/trainer.jsonl").write_text('{"version":1,"trace_id":"x"}\n')
    (tmp_path / TRACES / "stream.jsonl").unlink()
    with pytest.raises(DataError, match="no stream is beside it"):
        analyze(str(tmp_path))


def small_run(folder: Path, *records: list[float | None]) -> Path:
    """A trace of a prompt's token and three that were sampled, and the trainer's records of it."""
    traces = folder / TRACES
    (traces / "annotations").mkdir(parents=True)
    node = {"token_ids": [1, 2, 3, 4], "mask": [False, True, True, True], "logprobs": [-1.0, -2.0, -3.0]}
    (traces / "stream.jsonl").write_text(json.dumps({"id": "e", "traces": [{"id": "t", "nodes": [node]}]}) + "\n")
    branches = [{"index": 0, "trainer_logprobs": record, "is_masked": [None, *[False] * 3]} for record in records]
    lines = [json.dumps({"version": 1, "trace_id": "t", "branches": [branch]}) + "\n" for branch in branches]
    (traces / "annotations" / "trainer.jsonl").write_text("".join(lines))
    return folder


def test_a_record_that_ends_early_knows_nothing_of_the_rest(tmp_path: Path) -> None:
    (row,) = rows_of([small_run(tmp_path, [None, -1.5, -2.5])])
    assert (row["token_ids"], row["current_log_probs"], row["response_mask"]) == ([2, 3], [-1.5, -2.5], [1, 1])


def test_a_value_that_was_not_finite_is_told_unless_a_newer_record_has_it(tmp_path: Path) -> None:
    lost, whole = [None, -1.5, None, -3.5], [None, -1.5, -2.5, -3.5]
    for name, records, told in (("lost", (whole, lost), True), ("found", (lost, whole), False)):
        notes = open_dump(ReadRequest(paths=(str(small_run(tmp_path / name, *records)),))).notes
        assert any("no finite log-prob of 1 token that it trained on" in note for note in notes) is told


BROKEN = {
    "a node's parent is not one of the nodes before it": {"nodes": [{"parent": 0, "token_ids": [1], "mask": [True]}]},
    "logprobs has 1 values for 2 sampled tokens": {
        "nodes": [{"token_ids": [1, 2], "mask": [True, True], "logprobs": [-1.0]}]
    },
    "mask has 1 values, token_ids has 2": {"nodes": [{"token_ids": [1, 2], "mask": [True], "logprobs": [-1.0]}]},
    "is not as prime-rl writes it": {"nodes": [{"token_ids": ["a"], "mask": [True], "logprobs": [-1.0]}]},
    "has 1 tokens, its annotations 2": {"nodes": [{"token_ids": [1], "mask": [True], "logprobs": [-1.0]}]},
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_no_writer_writes_is_an_error_that_names_the_line(what: str, tmp_path: Path) -> None:
    traces = tmp_path / TRACES
    (traces / "annotations").mkdir(parents=True)
    stream, trainer = traces / "stream.jsonl", traces / "annotations" / "trainer.jsonl"
    trace = {"id": "t", **BROKEN[what]}
    stream.write_text('{"id":"e","env":{},"traces":[]}\n' + json.dumps({"id": "e", "traces": [trace]}) + "\n")
    branch = {"index": 0, "trainer_logprobs": [-1.0, -1.0]}
    trainer.write_text(json.dumps({"version": 1, "trace_id": "t", "branches": [branch]}) + "\n")
    with pytest.raises(DataError, match=what) as caught:
        rows_of([tmp_path])
    assert caught.value.message.startswith(f"{stream}: line 2")


def test_a_sealed_chunk_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    write_run(tmp_path, made_run(9, 5), chunk_bytes=2_000, frame_bytes=500)
    chunk = tmp_path / TRACES / "stream" / "00001.jsonl.zst"
    chunk.write_bytes(chunk.read_bytes()[:300])
    with pytest.raises(DataError, match=r"00001\.jsonl\.zst cannot be decompressed"):
        rows_of([tmp_path])


def test_a_run_that_goes_on_is_read_as_far_as_it_was_when_it_was_opened(tmp_path: Path) -> None:
    made = made_run(12, 8)
    made.stream.append(made.stream.pop(0))  # a trained one is the last
    write_run(tmp_path, made)
    stream = tmp_path / TRACES / "stream.jsonl"
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    dump = open_dump(ReadRequest(paths=(str(tmp_path),)), PlanColumns())
    with stream.open("ab") as file:
        file.write(lines[-1][40:])
    checked = [batch for shard in dump.shards for batch in dump.reader.checked(shard, 1_000)]
    known = [row for row in trained(made) if row["episode_id"] != made.stream[-1]["id"]]
    assert len(known) < len(trained(made))
    assert sum(batch.data.num_rows for batch in checked if isinstance(batch, CheckedRows)) == len(known)
    stream.write_bytes(b"".join(lines[:3]))
    with pytest.raises(DataError, match=r"stream\.jsonl was changed while it was read"):
        list(dump.reader.checked(dump.shards[0], 1_000))


def test_convert_writes_all_branches_and_their_places(tmp_path: Path) -> None:
    made = made_run(9, 6)
    write_run(tmp_path / "run", made, chunk_bytes=4_000, frame_bytes=500)
    converted = convert(str(tmp_path / "run"), output=str(tmp_path / "all.parquet"))
    assert converted.rows == len(made.rows)
    rows = rows_of([tmp_path / "all.parquet"])
    files = [os.path.relpath(row["source_file"], tmp_path / "run" / TRACES) for row in rows]
    assert files == sorted(files)
    assert [row["source_row"] for row in rows if row["source_file"] == rows[0]["source_file"]] == [
        *range(files.count(files[0]))
    ]


def test_watch_tells_each_step_as_the_trainer_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = made_run(24, 7)
    folder = write_run(tmp_path / "run", Run(made.stream, made.orch, [], []), chunk_bytes=6_000, frame_bytes=500)

    def told() -> list[Any]:
        for path in folder.rglob("*.jsonl*"):
            os.utime(path, (1_700_000_000, path.stat().st_mtime if path.stat().st_size == 0 else 1_700_000_000))
        return [line.step for line in watch("run/", once=True).steps]

    assert told() == []
    assert watch(f"run/{TRACES}/stream", once=True, state="stream.rlcorr").steps == ()
    steps = sorted({row["step"] for row in trained(made)})
    trainer = folder / TRACES / "annotations" / "trainer"
    early = {row["sample_id"] for row in made.rows if row["step"] in steps[:2]}
    lines = [json.dumps(record).encode() + b"\n" for record in made.trainer]
    first = [line for line, record in zip(lines, made.trainer, strict=True) if record["trace_id"] in early]
    (trainer / "00000.jsonl.zst").write_bytes(sealed(b"".join(first), 300))
    assert told() == steps[:2]
    (trainer / "00001.jsonl").write_bytes(b"".join(line for line in lines if line not in first))
    assert set(steps[2:]) <= set(told())
