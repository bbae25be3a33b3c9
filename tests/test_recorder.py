"""Recorder: what it writes of each form of batch, and that nothing that goes wrong harms the loop that trains."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from limits import LIMIT_SECONDS, LimitedProcess
from recording_loop import ROWS, batch, train

from rlcorr_cli import Recorder, analyze, inspect, watch
from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.layouts.memory import HostMemory
from rlcorr_cli.reading.recorded import rows_of, snapshot
from tests.layouts import trainers
from tests.layouts.trainers import ARRAYS, LENGTHS, PROMPT

LOOP = Path(__file__).with_name("recording_loop.py")


def recorded(folder: Path, held: Any, step: int = 41, **options: Any) -> list[dict[str, Any]]:
    """The rows of the one file that a batch makes."""
    with Recorder(folder, strict=True, **options) as recorder:
        recorder.write(held, step=step)
    (path,) = files_of(folder)
    return pq.read_table(path).to_pylist()


def files_of(folder: Path) -> list[Path]:
    """Whole files, by their names; nothing else is in the folder."""
    paths = sorted(folder.iterdir())
    assert all(path.name.startswith("step-") for path in paths), paths
    return paths


def steps_in(folder: Path) -> list[int]:
    """The steps that are recorded, each file read from its first to its last byte."""
    tables = [pq.read_table(path) for path in folder.glob("step-*.parquet")]
    assert all(table.num_rows == ROWS and table.validate(full=True) is None for table in tables)
    return sorted(table["step"][0].as_py() for table in tables)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rlcorr"]


FORMS: dict[str, Callable[[], Any]] = {
    "verl": trainers.verl,
    "skyrl": lambda: trainers.skyrl(uids=["x", "x", "y"]),
    "roll": trainers.roll,
    "trl": trainers.trl,
    "ragged": trainers.ragged,
    "packed": trainers.packed,
    "samples": trainers.samples,
    "padded": lambda: batch(3),
    "tensors": lambda: {name: torch.tensor(values) for name, values in batch(3).items()},
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_recorded_is_what_analyze_makes_of_the_batch(form: str, tmp_path: Path) -> None:
    right = analyze(FORMS[form]()).whole
    rows = recorded(tmp_path / "dump", FORMS[form]())
    report = analyze(tmp_path / "dump").whole
    assert report.values == pytest.approx(right.values, rel=1e-6, abs=1e-9, nan_ok=True)
    assert (report.counts["tokens"], report.counts["sequences"]) == (right.counts["tokens"], right.counts["sequences"])
    assert {row["step"] for row in rows} == {41}
    assert inspect(tmp_path / "dump").counts["bad_rows"] == 0
    for row in rows:
        lists = [len(value) for value in row.values() if isinstance(value, list)]
        assert set(lists) == {len(row["response_mask"])}


def test_lists_run_from_the_first_to_the_last_token_that_counts(tmp_path: Path) -> None:
    first, second, _ = recorded(tmp_path, trainers.verl(), step=7)
    assert first == {
        "response_mask": [1, 1, 1, 1],
        "token_ids": ARRAYS["tokens"][0, PROMPT:-1].tolist(),
        "rollout_log_probs": ARRAYS["rollout"][0, :-1].tolist(),
        "old_log_probs": ARRAYS["old"][0, :-1].tolist(),
        "ref_log_probs": ARRAYS["ref"][0, :-1].tolist(),
        "advantages": [1.0] * 4,
        "reward": 4.0,
        "group_id": "a",
        "sample_id": "7",
        "source": "math",
        "step": 7,
        "prompt_id": first["prompt_id"],
        "prompt_length": 1,
    }
    assert len(second["rollout_log_probs"]) == 3
    types = pq.read_schema(files_of(tmp_path)[0])
    kinds = {name: str(types.field(name).type.value_type) for name in ("rollout_log_probs", "response_mask")}
    assert kinds == {"rollout_log_probs": "float", "response_mask": "int8"}


def test_ids_before_the_response_are_its_prompt(tmp_path: Path) -> None:
    whole = {name: np.pad(ARRAYS[of], ((0, 0), (PROMPT, 0))) for name, of in trainers.CANONICAL.items()}
    held = {**whole, "token_ids": ARRAYS["tokens"], "attention_mask": ARRAYS["attention"]}
    rows = recorded(tmp_path / "whole", held)
    assert [row["prompt_id"] for row in rows] == [
        row["prompt_id"] for row in recorded(tmp_path / "roll", trainers.roll())
    ]
    assert [row["token_ids"] for row in rows] == ARRAYS["tokens"][:, PROMPT:-1].tolist()


def test_a_prompt_has_one_hash_however_it_is_padded(tmp_path: Path) -> None:
    held = trainers.trl()
    first, second, third = (row["prompt_id"] for row in recorded(tmp_path / "a", held))
    assert first == second != third
    alone = {name: values[:1] for name, values in held.items() if values.ndim}
    alone["prompt_ids"], alone["prompt_mask"] = torch.tensor([[0, 0, 0, 5]]), torch.tensor([[0, 0, 0, 1]])
    assert recorded(tmp_path / "b", alone)[0]["prompt_id"] == first


def test_texts_are_written_where_they_are_wanted(tmp_path: Path) -> None:
    without, with_texts = (recorded(tmp_path / str(text), trainers.samples(), text=text) for text in (False, True))
    assert "prompt" not in without[0]
    assert [row["prompt"] for row in with_texts] == ["Why?"] * 3


def groups(n: int, seed: int) -> dict[str, Any]:
    """Four rows of each of n prompts, in some order, with ids of groups that are new in every run."""
    order = np.random.default_rng(seed).permutation(4 * n)
    prompts = np.repeat(np.arange(n), 4)[order]
    flat = np.full((4 * n, 3), -1.0, np.float32)
    return {
        **dict.fromkeys(("rollout_log_probs", "old_log_probs"), flat),
        "prompt_ids": np.stack([prompts, prompts + 1], axis=1),
        "group_id": [f"{seed}/{prompt}" for prompt in prompts],
    }


def test_a_share_is_of_whole_groups_and_of_the_same_prompts_in_every_run(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / str(seed), groups(200, seed), share=0.3) for seed in (1, 2)]
    prompts = [sorted(row["prompt_id"] for row in rows) for rows in runs]
    assert prompts[0] == prompts[1]
    assert 40 < len(set(prompts[0])) < 80
    assert all(prompts[0].count(prompt) == 4 for prompt in prompts[0])
    without_ids = {name: values for name, values in groups(200, 1).items() if name != "prompt_ids"}
    assert len({row["group_id"] for row in recorded(tmp_path / "groups", without_ids, share=0.3)}) < 80
    with pytest.raises(DataError, match="neither groups nor prompts"):
        recorded(
            tmp_path / "none", {name: without_ids[name] for name in ("rollout_log_probs", "old_log_probs")}, share=0.3
        )


def test_every_so_many_steps_one_is_recorded(tmp_path: Path) -> None:
    with Recorder(tmp_path, every=3) as recorder:
        train(recorder, 1, 10)
    assert steps_in(tmp_path) == [3, 6, 9]
    assert recorder.lost == []


def test_a_batch_may_be_overwritten_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with Recorder(tmp_path, patience=60) as recorder:
        train(recorder, 0, 6)
    report = analyze(tmp_path, group_by="step")
    for step, group in enumerate(report.groups):
        assert group.values["k3_kl"] == pytest.approx(analyze(batch(step)).whole.values["k3_kl"], rel=1e-6)


def test_a_second_batch_of_a_step_makes_a_second_file(tmp_path: Path) -> None:
    with Recorder(tmp_path, strict=True) as recorder:
        for rank in (0, 1):
            recorder.write(batch(5, rank), step=5)
    assert [path.name for path in files_of(tmp_path)] == [
        "step-00000005.rank0.2.parquet",
        "step-00000005.rank0.parquet",
    ]
    assert steps_in(tmp_path) == [5, 5]


def test_a_run_that_goes_on_replaces_what_an_earlier_one_wrote_of_a_step(tmp_path: Path) -> None:
    for rank in (0, 1):
        with Recorder(tmp_path, strict=True) as recorder:
            recorder.write(batch(5, rank), step=5)
    assert analyze(tmp_path).whole.values["k3_kl"] == pytest.approx(analyze(batch(5, 1)).whole.values["k3_kl"])
    assert len(files_of(tmp_path)) == 1


def test_no_file_of_another_tool_or_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "step-00000041.rank0.parquet"
    pq.write_table(pq.read_table(Path(__file__).parents[1] / "sample_data" / "smollm2_bf16.parquet"), path)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="is there, and no Recorder wrote it"):
        recorded(tmp_path, batch(41))
    assert path.read_bytes() == before
    path.unlink()
    first, second = Recorder(tmp_path, strict=True), Recorder(tmp_path, strict=True)
    first.write(batch(41), step=41)
    first.close()
    second.write(batch(41, 1), step=41)
    with pytest.raises(OutputError, match="was written by another process meanwhile") as caught:
        second.close()
    assert "rank=" in caught.value.hint


@pytest.mark.parametrize("options", [{"every": 0}, {"every": 2.5}, {"share": 0}, {"share": 1.5}, {"patience": -1}])
def test_options_that_mean_nothing_are_refused_at_once(options: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Recorder takes no every="):
        Recorder(tmp_path, **options)
    with pytest.raises(UsageError, match="writes to a disk"):
        Recorder("s3://bucket/dump")


UNKNOWN: dict[str, tuple[Any, str]] = {
    "a mapping": ({"logits": torch.ones(2, 3)}, "There is no column for rollout_log_probs; the columns are logits."),
    "an object": (trainers.DataProto({"logits": torch.ones(2, 3)}, {}), "it holds logits"),
    "nothing": (None, "not of type NoneType"),
    "other lengths": ({**batch(1), "reward": np.ones(3)}, "columns of different lengths"),
    "one policy": ({"rollout_log_probs": np.ones((2, 3), np.float32)}, "There is no column for old_log_probs"),
    "no step": (batch(1), "None is no step. Give write the number of the trainer's step."),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_batch_that_cannot_be_read_is_told_once_and_never_raised(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held, what = UNKNOWN[name]
    recorder = Recorder(tmp_path)
    for step in range(1, 4):
        recorder.write(batch(step), step=step)
        recorder.write(held, step=step if name != "no step" else None)  # type: ignore[arg-type]
    recorder.close()
    assert steps_in(tmp_path) == [1, 2, 3]
    first, last = told(caplog)
    assert what in first
    assert "Training goes on" in first
    assert last == f"3 steps are not recorded in {tmp_path}."
    assert len(recorder.lost) == 3
    with pytest.raises((DataError, UsageError)), Recorder(tmp_path, strict=True) as strict:
        strict.write(held, step=1 if name != "no step" else None)  # type: ignore[arg-type]


def loop(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LOOP), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, **options)


@pytest.mark.parametrize("way", ["exit", "close"])
def test_what_is_left_is_written_at_the_end_of_the_process(way: str, tmp_path: Path) -> None:
    done = loop(tmp_path / "dump", 0, 6, way)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" False 0\n"), "torch was loaded, or a step was lost"
    assert steps_in(tmp_path / "dump") == [*range(6)]
    assert len(files_of(tmp_path / "dump")) == 6


def test_a_full_disk_costs_steps_and_no_training(tmp_path: Path) -> None:
    limit = 40_000
    done = loop(tmp_path / "dump", 0, 4, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 0
    assert "trained to" in done.stdout
    first, last = done.stderr.splitlines()
    assert "Step 0 is not recorded" in first
    assert "File too large" in first
    assert "Training goes on" in first
    assert last.startswith("4 steps are not recorded")
    assert files_of(tmp_path / "dump") == []


def test_what_is_on_disk_when_a_process_is_killed_is_whole(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    for first in (0, 1000):
        with LimitedProcess([sys.executable, str(LOOP), str(dump), str(first), "100000"]) as process:
            while len(list(dump.glob(f"step-{first // 1000:05d}*"))) < 4 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            assert process.wait(LIMIT_SECONDS) == -signal.SIGKILL
        assert steps_in(dump)[-3:] > [first]
        assert analyze(dump).whole.counts["bad_rows"] == 0


def test_what_a_killed_process_left_unfinished_is_removed(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from rlcorr_cli.files.destinations import temporary_name\n"
    code += "temporary_name(Path(sys.argv[1])).write_bytes(b'half')"
    command = [sys.executable, "-c", code, str(tmp_path / "step-00000041.rank0.parquet")]
    subprocess.run(command, check=True, timeout=LIMIT_SECONDS)
    assert len([*tmp_path.iterdir()]) == 1
    assert len(recorded(tmp_path, batch(41))) == ROWS


def by_two(dump: Path, way: str) -> None:
    ranks = [[sys.executable, str(LOOP), str(dump), "0", "3", way, str(rank), "2"] for rank in (0, 1)]
    running = [LimitedProcess(command, stderr=subprocess.PIPE, text=True) for command in ranks]
    for process in running:
        assert process.communicate()[1] == ""
        assert process.returncode == 0


@pytest.mark.parametrize("way", ["exit", pytest.param("torch", marks=pytest.mark.full)])
def test_two_ranks_write_files_of_their_own(way: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    by_two(dump, way)
    assert steps_in(dump) == [0, 0, 1, 1, 2, 2]
    names = [f"step-{step:08d}.rank{rank}.parquet" for step in range(3) for rank in (0, 1)]
    assert [path.name for path in files_of(dump)] == names
    workers = [pq.read_table(path)["worker"][0].as_py() for path in files_of(dump)]
    assert workers == [0, 1, 0, 1, 0, 1]
    assert analyze(dump, group_by="step").whole.counts["rows"] == 6 * ROWS


@pytest.mark.full
def test_of_ranks_that_hold_copies_the_first_writes(tmp_path: Path) -> None:
    code = (
        "import sys, torch.distributed as d\n"
        f"sys.path[:0] = [{str(LOOP.parent)!r}]\n"
        "from recording_loop import batch\nfrom rlcorr_cli import Recorder\n"
        f"folder, rank = {str(tmp_path / 'dump')!r}, int(sys.argv[1])\n"
        "recorder = Recorder(folder, rank=None)  # known by then, not yet here\n"
        "d.init_process_group('gloo', store=d.FileStore(folder + '.store', 2), rank=rank, world_size=2)\n"
        "recorder.write(batch(4), step=4)\n"
    )
    running = [LimitedProcess([sys.executable, "-c", code, rank], stderr=subprocess.PIPE, text=True) for rank in "01"]
    assert [process.communicate()[1] for process in running] == ["", ""]
    (path,) = files_of(tmp_path / "dump")
    assert path.name == "step-00000004.rank0.parquet"


def test_a_forked_process_writes_with_a_thread_of_its_own(tmp_path: Path) -> None:
    done = loop(tmp_path / "dump", 0, 6, "fork")
    assert (done.returncode, done.stderr) == (0, "")
    assert steps_in(tmp_path / "dump") == [*range(8)]


def test_a_slow_disk_makes_the_loop_wait_no_longer_than_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slowed, whole = os.fsync, []

    def slow(file: Any) -> None:
        time.sleep(0.4)
        slowed(file)
        whole.append(file)

    monkeypatch.setattr(os, "fsync", slow)
    recorder = Recorder(tmp_path, patience=0.05)
    began = time.monotonic()
    train(recorder, 0, 8)
    waited = time.monotonic() - began
    recorder.close()
    assert waited < 8 * 0.4 <= len(whole) * 0.4 + waited + 8
    kept = steps_in(tmp_path)
    assert 2 <= len(kept) < 8
    assert sorted([*kept, *recorder.lost]) == [*range(8)]
    first, _ = told(caplog)
    assert f"Step {recorder.lost[0]} is not recorded" in first
    assert "2 steps before it are still being written" in first


def test_after_it_is_closed_a_recorder_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, strict=True)
    for step in (1, 2):
        recorder.write(batch(step), step=step)
        recorder.close()
        recorder.close()
    assert steps_in(tmp_path) == [1, 2]


def test_watch_tells_a_step_when_the_files_of_all_ranks_are_there(tmp_path: Path) -> None:
    dump = tmp_path / "dump"

    def looked() -> list[tuple[Any, int]]:
        watched = watch(str(dump), once=True, state=str(tmp_path / "state.rlcorr"))
        return [(line.step, line.tokens) for line in watched.steps]

    def n_tokens(step: int, *ranks: int) -> int:
        return sum(int(batch(step, rank)["response_mask"].sum()) for rank in ranks)

    first, second = (Recorder(dump, rank=rank, world=2, strict=True) for rank in (0, 1))
    first.write(batch(1), step=1)
    first.close()
    (dump / ".rlcorr-00000000-1-0000000000000000.part").write_bytes(b"half")
    assert looked() == []
    assert looked() == []
    second.write(batch(1, 1), step=1)
    second.close()
    assert looked() == [(1, n_tokens(1, 0, 1))]
    first.write(batch(2), step=2)
    first.close()
    assert looked() == []
    os.utime(dump / "step-00000002.rank0.parquet", (1, 1))  # the other rank's is lost
    assert looked() == [(2, n_tokens(2, 0))]


def test_watch_does_not_wait_where_nobody_knows_how_many_ranks_there_are(tmp_path: Path) -> None:
    recorded(tmp_path / "dump", batch(1), rank=3)
    watched = watch(str(tmp_path / "dump"), once=True, state=str(tmp_path / "state.rlcorr"))
    assert [line.step for line in watched.steps] == [41]


def test_what_explains_a_gap_is_recorded_and_nothing_else(tmp_path: Path) -> None:
    more = {
        "cached_tokens": [0, 4, 4],
        "spec_accept_rate": [0.5, 0.5, 1.0],
        "finish_reason": ["stop", "length", "stop"],
        "policy_version": [6, 7, 7],
        "worker": ["w0", "w1", "w1"],
        "entropies": [np.ones(n, np.float32) for n in LENGTHS],
    }
    held = {**trainers.ragged(), **more, "hidden_states": [np.ones(n) for n in LENGTHS], "loss": 0.5}
    rows = recorded(tmp_path, held)
    assert set(rows[0]) == {*trainers.ragged(), *more, "step"}
    assert [row["finish_reason"] for row in rows] == more["finish_reason"]


def test_columns_have_the_same_types_whatever_a_step_holds(tmp_path: Path) -> None:
    held = trainers.verl()
    held.non_tensor_batch["data_source"] = trainers.as_objects([None, None, None])
    recorded(tmp_path / "nulls", held)
    recorded(tmp_path / "texts", trainers.verl())
    first, second = (pq.read_schema(files_of(tmp_path / name)[0]) for name in ("nulls", "texts"))
    assert first == second


@pytest.mark.parametrize("flag", [bool, np.float32])
def test_masks_of_any_kind_and_rows_without_a_token_are_recorded(flag: Any, tmp_path: Path) -> None:
    held = batch(3)
    held["response_mask"][:4] = 0
    held["response_mask"] = held["response_mask"].astype(flag)
    rows = recorded(tmp_path, held)
    assert [len(row["old_log_probs"]) for row in rows[:5]] == [0, 0, 0, 0, held["response_mask"][4].sum()]
    assert analyze(tmp_path).whole.values["k3_kl"] == pytest.approx(analyze(held).whole.values["k3_kl"], rel=1e-6)
    recorded(tmp_path / "half", {**held, "response_mask": held["response_mask"] / 2})
    with pytest.raises(DataError, match=r"response_mask\[0\] is 0\.5; a mask holds 0 and 1"):
        analyze(tmp_path / "half")


def test_of_a_batch_without_rows_there_is_a_file_without_rows(tmp_path: Path) -> None:
    empty = np.zeros((0, 5), np.float32)
    dump = tmp_path / "dump"
    with Recorder(dump, strict=True, share=0.5) as recorder:
        recorder.write(
            dict.fromkeys(("rollout_log_probs", "old_log_probs", "response_mask", "prompt_ids"), empty), step=1
        )
        recorder.write({**trainers.ragged(), "group_id": [3, 3, 3]}, step=2)
        recorder.write({**trainers.ragged(), "group_id": [2, 2, 2]}, step=3)
    assert [pq.read_metadata(path).num_rows for path in files_of(dump)] == [0, 0, 3]
    assert recorder.lost == []
    assert analyze(dump).whole.counts["rows"] == 3
    with Recorder(dump, strict=True, share=0.5, rank=0, world=2) as first:
        first.write({**trainers.ragged(), "group_id": [3, 3, 3]}, step=4)
    with Recorder(dump, strict=True, share=0.5, rank=1, world=2) as second:
        second.write({**trainers.ragged(), "group_id": [2, 2, 2]}, step=4)
    watched = watch(str(dump), once=True, state=str(tmp_path / "state.rlcorr"))
    n_tokens = sum(map(sum, trainers.ragged()["response_mask"]))
    assert [(line.step, line.tokens) for line in watched.steps if line.tokens] == [(3, n_tokens), (4, n_tokens)]


def test_a_batch_of_a_framework_without_its_trained_policy_is_told(tmp_path: Path) -> None:
    held = trainers.verl()
    held.batch._values["old_log_probs"] = None
    with pytest.raises(DataError, match="There is no column for old_log_probs"):
        recorded(tmp_path, held)


def test_numbers_of_64_bits_stay_what_they_are(tmp_path: Path) -> None:
    held = {
        **trainers.ragged(),
        "token_ids": [np.full(n, 1 << 40) for n in LENGTHS],
        "sample_id": np.array([1 << 40] * 3),
    }
    rows = recorded(tmp_path, held)
    assert rows[1]["token_ids"] == [1 << 40] * 4
    assert rows[1]["sample_id"] == 1 << 40


def test_a_list_of_packs_is_cut_at_the_ends_of_each(tmp_path: Path) -> None:
    first, second = trainers.packed(), trainers.packed()
    rows = recorded(tmp_path, [first, second])
    assert [len(row["old_log_probs"]) for row in rows] == [len(row["old_log_probs"]) for row in rows[:3]] * 2
    assert len(rows) == 2 * len(LENGTHS)


def test_rows_with_a_matrix_in_each_are_no_batches(tmp_path: Path) -> None:
    columns = trainers.ragged()
    made = [{name: column[i] for name, column in columns.items()} for i in range(3)]
    rows = recorded(tmp_path / "b", [{**row, "hidden": torch.ones(n, 5)} for row, n in zip(made, LENGTHS, strict=True)])
    assert [row["response_mask"] for row in rows] == [row["response_mask"] for row in recorded(tmp_path / "a", columns)]


def test_lists_and_rows_of_which_one_lacks_a_value_are_copied() -> None:
    lists = [[-1.0] * 3 for _ in range(3)]
    tensors = [torch.full((3,), -1.0), None, torch.full((3,), -1.0)]
    held = {"rollout_log_probs": lists, "old_log_probs": lists, "prefill_log_probs": tensors}
    taken = snapshot(held, HostMemory(), 1)
    lists[2][:] = [-9.0] * 3
    tensors[2].fill_(-9.0)  # type: ignore[union-attr]
    row = rows_of(taken).to_pylist()[2]
    assert row["rollout_log_probs"] == row["prefill_log_probs"] == [-1.0] * 3


def test_response_ids_before_the_first_token_that_counts_are_no_prompt(tmp_path: Path) -> None:
    held = batch(3)
    held["response_mask"][:, 0] = 0
    held["response_token_ids"] = held.pop("completion_ids")
    held["response_token_ids"][:, 0] = 7  # <think>, forced
    del held["prompt_ids"], held["prompt_mask"]
    assert "prompt_id" not in recorded(tmp_path, held)[0]


def test_texts_of_prompts_are_hashed_where_there_are_no_ids(tmp_path: Path) -> None:
    prompts = [[{"role": "user", "content": text}] for text in ("Why?", "Why?", "How?")]
    for name, values in (("texts", ["Why?", "Why?", "How?"]), ("messages", prompts)):
        first, second, third = recorded(tmp_path / name, {**trainers.ragged(), "prompt": values})
        assert first["prompt_id"] == second["prompt_id"] != third["prompt_id"]
        assert {"prompt", "prompt_length"}.isdisjoint(first)
        assert len(recorded(tmp_path / f"{name} shared", {**trainers.ragged(), "prompt": values}, share=0.999)) == 3


def test_a_mask_of_prompt_and_response_tells_the_padding_of_prompts(tmp_path: Path) -> None:
    ones = np.ones((3, 4), np.float32)
    held = {"rollout_log_probs": -ones, "old_log_probs": -ones, "response_mask": ones}
    prompts, padding = np.array([[5, 6, 7], [0, 6, 7], [9, 6, 7]]), np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1]])
    rows = recorded(tmp_path, {**held, "prompts": prompts, "attention_mask": np.concatenate([padding, ones], axis=1)})
    assert [row["prompt_length"] for row in rows] == [3, 2, 2]
    first, second, third = (row["prompt_id"] for row in rows)
    assert first != second == third


def test_a_share_without_prompts_is_by_the_first_name_of_groups(tmp_path: Path) -> None:
    columns = {name: values for name, values in groups(100, 1).items() if name != "prompt_ids"}
    chosen = []
    for run in "ab":
        held = {**columns, "uid": [f"{run}/{group}" for group in columns["group_id"]]}
        chosen.append([row["group_id"] for row in recorded(tmp_path / run, held, share=0.3)])
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("lacking", ["rollout_log_probs", "old_log_probs"])
def test_the_policy_that_lacks_is_asked_for(lacking: str, tmp_path: Path) -> None:
    held = trainers.ragged()
    del held[lacking]
    with pytest.raises(DataError) as caught:
        recorded(tmp_path, held)
    assert caught.value.hint == f'Give a mapping of what it holds, and "{lacking}" beside it.'


def test_a_file_that_another_process_put_in_the_place_of_an_older_one_stays(tmp_path: Path) -> None:
    recorded(tmp_path, batch(41))
    first, second = Recorder(tmp_path, strict=True), Recorder(tmp_path, strict=True)
    first.write(batch(41, 1), step=41)
    first.close()
    second.write(batch(41, 2), step=41)
    with pytest.raises(OutputError, match="was written by another process meanwhile"):
        second.close()
    assert analyze(tmp_path).whole.values["k3_kl"] == pytest.approx(analyze(batch(41, 1)).whole.values["k3_kl"])


def test_a_run_that_goes_on_with_fewer_ranks_and_batches_leaves_no_rows_of_the_earlier_one(tmp_path: Path) -> None:
    for rank in range(3):
        with Recorder(tmp_path, strict=True, rank=rank, world=3) as recorder:
            for step in (5, 5, 6):
                recorder.write(batch(step, rank), step=step)
    for rank in range(2):
        with Recorder(tmp_path, strict=True, rank=rank, world=2) as recorder:
            recorder.write(batch(5, rank), step=5)
    assert [path.name for path in files_of(tmp_path)] == [
        *(f"step-00000005.rank{rank}.parquet" for rank in range(2)),
        *(f"step-00000006.rank{rank}.parquet" for rank in range(3)),
    ]


def test_a_thread_that_cannot_be_started_costs_its_step_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    recorder = Recorder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        recorder.write(batch(1), step=1)
        recorder.close()
    recorder.write(batch(2), step=2)
    recorder.close()
    assert steps_in(tmp_path) == [2]
    assert recorder.lost == [1]


def test_files_go_where_the_folder_was_when_the_recorder_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    recorder = Recorder("dump", strict=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    recorder.write(batch(1), step=1)
    recorder.close()
    assert steps_in(tmp_path / "dump") == [1]


def test_how_much_is_lost_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(tmp_path)
    recorder.write(None, step=1)
    recorder.write(None, step=2)
    for step in (3, 4):
        recorder.write(batch(step), step=step)
        recorder.close()
    assert told(caplog)[1:] == [f"2 steps are not recorded in {tmp_path}."]


def test_a_step_that_is_lost_after_an_error_was_raised_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path, strict=True)
    with pytest.raises(DataError):
        recorder.write(None, step=1)
    recorder.write({**batch(2), "reward": np.ones(3)}, step=2)
    with pytest.raises(DataError):
        recorder.close()
    assert told(caplog)[0].startswith("Step 2 is not recorded")


def test_a_forked_process_has_lost_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.write(None, step=1)

    def lose_another() -> None:
        recorder.write(None, step=2)
        sys.exit(len(recorder.lost))

    child = multiprocessing.get_context("fork").Process(target=lose_another)
    child.start()
    child.join(LIMIT_SECONDS)
    assert child.exitcode == 1
    assert recorder.lost == [1]
