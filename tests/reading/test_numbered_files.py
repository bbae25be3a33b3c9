"""Files whose names tell their steps, and files whose names do not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from few import few

from rlcorr_cli import analyze, check, compare, convert, diagnose, filter, watch
from rlcorr_cli.reading.container import step_of, steps_of
from rlcorr_cli.results.report import Report

STEPS = 14
NOTE = "No column step: the number in each file's name is taken as the step."
RULES = {"k3_kl": 0.01}


def rows_of(step: int) -> list[dict[str, Any]]:
    """Prompts of two rows; the gap grows from step 9 on.  Ids begin anew in each step."""
    rng = np.random.default_rng(step)
    sigma = 0.03 * 1.5 ** max(0, step - 8)
    rows = []
    for i in range(12 if step % 3 else 4):
        rollout = -rng.gamma(0.3, 1.0, 150)
        train = np.minimum(rollout + rng.normal(0, sigma, 150) - sigma**2 / 2, -1e-8)
        row = {"rollout_log_probs": rollout.tolist(), "old_log_probs": train.tolist()}
        rows.append({"sample_id": i, "group_id": i // 2, **row})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def dump(folder: Path, *, column: bool) -> str:
    """A file for each step, with or without a column of it."""
    for step in range(1, STEPS + 1):
        write(folder / f"{step}.jsonl", [{**row, "step": step} if column else row for row in rows_of(step)])
    return str(folder)


@pytest.fixture(scope="module")
def with_column(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dump(tmp_path_factory.mktemp("column"), column=True)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dump(tmp_path_factory.mktemp("numbered"), column=False)


def said(report: Report) -> dict[str, Any]:
    """All but of the files and how they were read."""
    return report.to_dict() | {"inputs": [], "notes": []}


@pytest.mark.parametrize(
    "name",
    [
        *("12.jsonl", "a/000012.jsonl.gz", "step_000012.parquet", "global_step_12/rollout.jsonl", "12/rollout.jsonl"),
        *("step-00000012.rank0.parquet", "train_data_step12.jsonl", "iter_0012.pt", "rollout_12.jsonl", "rank0_12.pt"),
        *("000012.rank3.parquet", "run/global_step_12/rank_0/data.parquet", "Qwen3-8b_Step_12.jsonl", "12-rollouts.pt"),
        *("2026-11-01_step_12.jsonl", "step_12/worker_a.parquet", "step_12/part-00000-of-00008.parquet"),
    ],
)
def test_a_name_tells_the_step(name: str) -> None:
    assert step_of(name) == step_of(f"s3://bucket/run/{name}") == 12


@pytest.mark.parametrize(
    "name",
    [
        *("0001_of_0008.parquet", "part-00000-of-00008.parquet", "rollouts-00001-of-00008.parquet", "3of8.jsonl"),
        *("shard_3.parquet", "rank_2.parquet", "worker3.jsonl", "vllm-3.jsonl", "rollout_worker_3.jsonl", "gpu-7.pt"),
        *("2026-11-01.jsonl", "20261101.jsonl", "rollout_2026-11-01.jsonl", "rollout_20261101_12-30.jsonl", "12_3.pt"),
        *(
            "1732550000.jsonl",
            "2026/data.parquet",
            "runs_of_step_3/data.parquet",
            "epoch_1_step_3.jsonl",
            "epoch_2/3.jsonl",
            "data.parquet",
            "-",
        ),
    ],
)
def test_the_number_of_a_shard_a_worker_a_day_or_an_epoch_is_no_step(name: str) -> None:
    assert step_of(name) is None


@pytest.mark.parametrize("engine", few(["threads", "processes"], ["threads"]))
def test_files_numbered_by_step_are_judged_as_a_column_of_steps_is(
    with_column: str, numbered: str, engine: str
) -> None:
    here, there = (analyze(path, engine=engine, workers=2) for path in (with_column, numbered))
    assert said(here) == said(there)
    assert here.course is not None
    assert (NOTE in here.notes, NOTE in there.notes) == (False, True)
    here, there = (check(path, max=RULES, engine=engine, workers=2) for path in (with_column, numbered))
    assert [each.to_dict() for each in here.findings] == [each.to_dict() for each in there.findings]
    assert not there.passed


@pytest.mark.full
def test_watch_judges_the_same_steps(with_column: str, numbered: str, tmp_path: Path) -> None:
    here, there = (
        watch(path, once=True, every=0, max=RULES, state=tmp_path / f"{i}.rlcorr").to_dict() | {"paths": []}
        for i, path in enumerate((with_column, numbered))
    )
    assert here == there
    assert [step["step"] for step in there["steps"]] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("name", ["step_{}/rank_{}.jsonl", "global_step_{}.rank{}.jsonl", "rank_{1}/{0}.jsonl"])
def test_several_files_of_a_step_are_one_step(name: str, tmp_path: Path) -> None:
    for step in (1, 2, 10):
        for rank in range(2):
            write(tmp_path / name.format(step, rank), rows_of(step)[rank::2])
    groups = analyze(tmp_path, group_by="step").groups
    assert [(group.key, group.counts["rows"]) for group in groups] == [({"step": step}, 12) for step in (1, 2, 10)]


@pytest.mark.full
def test_every_command_groups_by_the_step_and_by_the_file(numbered: str) -> None:
    steps = range(1, STEPS + 1)
    for column, values in {"step": {*steps}, "file": {f"{step}.jsonl" for step in steps}}.items():
        for command in (analyze, compare, diagnose):
            assert {group.key[column] for group in command(numbered, group_by=column).groups} == values
        assert {each.key.get(column) for each in check(numbered, group_by=column).findings} >= values


@pytest.mark.full
def test_saved_totals_of_single_files_add_to_the_same_steps(with_column: str, numbered: str, tmp_path: Path) -> None:
    sums = []
    parts = [tmp_path / f"{step}.rlcorr" for step in range(1, STEPS + 1)]
    for folder in (with_column, numbered):
        for step, part in enumerate(parts, 1):
            analyze(f"{folder}/{step}.jsonl", output=part, overwrite=True)
        sums.append(said(analyze(parts)))
    assert sums[0] == sums[1]
    assert [group["key"] for group in sums[1]["groups"]] == [{"step": step} for step in range(1, STEPS + 1)]


def test_rows_are_written_with_the_step_that_their_file_told(numbered: str, tmp_path: Path) -> None:
    filter(numbered, tmp_path / "kept.parquet", preset="token_is", force=True)
    assert pq.read_table(tmp_path / "kept.parquet").column("step").to_pylist()[:13] == [1] * 12 + [2]
    convert(numbered, tmp_path / "all.parquet")
    checks = [check(path, max=RULES).findings for path in (tmp_path / "all.parquet", numbered)]
    broken = [{str(each.key) for each in some if each.status == "fail"} for some in checks]
    assert broken[0] == broken[1]
    convert(f"{numbered}/3.jsonl", tmp_path / "one.parquet")
    assert "step" not in pq.read_table(tmp_path / "one.parquet").column_names


def test_a_dump_keeps_its_own_steps(tmp_path: Path) -> None:
    for i, step in enumerate((5, 6), 1):
        write(tmp_path / f"{i}.jsonl", [{**row, "global_step": step} for row in rows_of(step)])
    report = analyze(tmp_path, group_by="step")
    assert [group.key for group in report.groups] == [{"step": 5}, {"step": 6}]
    assert NOTE not in report.notes


def test_many_files_without_a_step_say_that_there_is_no_course(tmp_path: Path) -> None:
    for step in range(1, STEPS + 1):
        rows = [{**row, "sample_id": f"{step} {row['sample_id']}"} for row in rows_of(step)]
        write(tmp_path / f"worker_{step}.jsonl", rows)
    report = analyze(tmp_path)
    assert report.course is None
    assert any(note.startswith("14 files and no column step: the time course is not shown.") for note in report.notes)


@pytest.mark.parametrize("name", ["data_{}.parquet", "train{:04}.jsonl", "qwen3-{}-math.jsonl", "7b.{}_kept.parquet"])
def test_names_that_are_the_same_but_for_one_number_tell_steps(name: str) -> None:
    paths = {f"run/{name.format(step)}": step for step in (7, 8, 12)}
    assert steps_of(paths) == paths
    assert steps_of([*paths][:2]) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("a_worker_{}.parquet", "vllm-{}.jsonl", "seed{}.parquet", "rows-{:05}-of-00008.parquet", "run_{}/x.parquet"),
        *("night-2026-11-{:02}.jsonl", "rows_17325500{:02}.jsonl", "epoch_{}_x.jsonl", "llama-v{}.pt", "p{}.pt"),
    ],
)
def test_the_only_number_of_another_thing_is_no_step(name: str) -> None:
    assert steps_of([name.format(number) for number in (7, 8, 12)]) == {}
