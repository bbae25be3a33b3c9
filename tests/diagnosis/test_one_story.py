"""Every command tells the same story of a dump: its JSON names the same first cause or fault."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from few import few
from known_causes import DUMPS, VERDICTS

from rlcorr_cli import analyze, check, compare, diagnose, filter as filter_rows
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.results.report import Report
from rlcorr_cli.show import document_of
from rlcorr_cli.show.document import Note

OFTEN = sorted(VERDICTS)[::6]
PROVE_A_FAULT = {"top_p099": "top_p"}
"""Dumps whose mean ratio cannot be, however little of their gap its cause makes."""


def story(result: Any) -> dict[str, Any]:
    """As the JSON form has it."""
    return json.loads(json.dumps(result.to_dict()))["story"]


@pytest.mark.parametrize("name", few(VERDICTS, OFTEN))
def test_every_command_names_the_same_first(name: str) -> None:
    path = str(DUMPS / f"{name}.parquet")
    told = story(diagnose(path))
    assert story(analyze(path)) == told
    assert story(compare(path)) == told
    checked = check(path)
    assert story(checked) == told
    filtered = filter_rows(path, dry_run=True, preset="token_is")
    assert story(filtered) == told
    assert filtered.is_stopped == (told["effect"] == "fault")
    absent = [finding.status for finding in checked.findings if finding.rule == "absent"]
    assert absent == {"fault": ["fail"] * len(told["faults"]), "warning": ["warn"], "none": []}[told["effect"]]
    assert told["first"] == PROVE_A_FAULT.get(name, VERDICTS[name])
    assert len(told["do"]) <= 3
    shown = [line.lead.split() for line in document_of(analyze(path)).lines if isinstance(line, Note) and line.lead]
    named = [fault["name"] for fault in told["faults"] if fault["name"] != "ratio_mean"]
    assert [fault for fault in named if ["!", fault] not in shown] == []


@pytest.mark.parametrize("name", few(VERDICTS, OFTEN))
def test_a_fault_has_the_effect_that_the_table_says(name: str) -> None:
    told = story(diagnose(str(DUMPS / f"{name}.parquet")))
    first = told["first"]
    expected = ALL_CAUSES[first].effect if first in ALL_CAUSES else "none"
    assert told["effect"] == ("fault" if told["faults"] else expected)
    named = [fault["name"] for fault in told["faults"] if fault["name"] != "ratio_mean"]
    assert all(ALL_CAUSES[name].effect == "fault" for name in named)


def test_a_mean_ratio_that_tokens_drawn_from_training_s_column_make_is_no_second_fault(tmp_path: Path) -> None:
    assert [each["name"] for each in story(diagnose(str(DUMPS / "temp07_raw_vs_processed.parquet")))["faults"]] == [
        "temperature"
    ]
    table = pq.read_table(DUMPS / "top_p08.parquet")
    names = {"rollout_log_probs": "old_log_probs", "old_log_probs": "rollout_log_probs"}
    pq.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), tmp_path / "s.parquet")
    diagnosed = diagnose(str(tmp_path / "s.parquet"))
    assert diagnosed.whole.diagnosis.impossible is not None
    assert [each["name"] for each in story(diagnosed)["faults"]] == ["top_p"]
    cause = diagnosed.whole.diagnosis.cause
    assert cause is not None
    assert (
        "rollout_log_probs gives 11% of its probability to tokens that old_log_probs rules out." in cause.evidence[-2]
    )


def test_no_plan_is_recommended_over_a_fault_as_if_nothing_were_wrong() -> None:
    faulty = compare(str(DUMPS / "mispaired_5pct.parquet"))
    headline = faulty.recommendation.headline
    assert headline.startswith("Likely cause: 4 rows of 64 hold log-probs of two different responses.")
    assert "Fix this first. Least harmful meanwhile: " in headline
    assert "Fix this first" not in compare(str(DUMPS / "noise_bf16_fp32.parquet")).recommendation.headline


def test_a_story_is_kept_in_a_saved_report(tmp_path: Path) -> None:
    report = analyze(str(DUMPS / "top_p08.parquet"))
    assert Report.from_json(json.dumps(report.to_dict())).story == report.story


def growing(folder: Path, n_steps: int, rows: int, n_files: int) -> str:
    """Rows whose gap grows a thousandfold over the steps, without another cause."""
    rng = np.random.default_rng(2)
    table: list[dict[str, Any]] = []
    for step in range(n_steps):
        for row in range(rows):
            logits = rng.normal(0, 2, (60, 30))
            rollout, train = (
                z - np.log(np.exp(z).sum(-1, keepdims=True))
                for z in (logits + rng.normal(0, 0.03 * 30 ** (step / (n_steps - 1)), logits.shape), logits)
            )
            tokens = [int(rng.choice(30, p=np.exp(each))) for each in rollout]
            at = np.arange(60)
            table.append(
                {
                    "sample_id": f"{step}-{row}",
                    "step": step,
                    "rollout_log_probs": rollout[at, tokens].astype(np.float32),
                    "old_log_probs": train[at, tokens].astype(np.float32),
                }
            )
    per_file = len(table) // n_files
    for i in range(n_files):
        part = pa.Table.from_pylist(table[i * per_file : (i + 1) * per_file])
        pq.write_table(part, folder / f"{i:03d}.parquet")
    return str(folder)


@pytest.mark.parametrize(("n_steps", "rows", "n_files"), [(12, 20, 12), (12, 20, 4), (400, 2, 10)])
def test_a_gap_that_grows_with_the_steps_has_the_cause_of_the_last_ones(
    n_steps: int, rows: int, n_files: int, tmp_path: Path
) -> None:
    diagnosed = diagnose(growing(tmp_path, n_steps, rows, n_files))
    assert diagnosed.verdict == "other_weights"
    cause = diagnosed.whole.diagnosis.cause
    assert cause is not None
    assert cause.parameters["column"] == "step"
    assert cause.evidence[0].startswith("It grows with the step from step ")
    assert "file" not in {column.column for column in diagnosed.whole.diagnosis.columns}


def test_prompts_that_only_tell_the_step_are_no_cause(tmp_path: Path) -> None:
    """Each step has prompts of its own, and those of steps 1 and 2 are all worse."""
    table = pq.read_table(growing(tmp_path, 4, 32, 1)).sort_by("sample_id")
    moved = pa.array([(3, 0, 1, 2)[step] for step in table["step"].to_pylist()])
    prompts = pa.array([f"{step}_g{i % 4}" for i, step in enumerate(moved.to_pylist())])
    dump = table.set_column(table.column_names.index("step"), "step", moved).append_column("group_id", prompts)
    cause = diagnose(dump).whole.diagnosis.cause
    assert cause is not None
    assert (cause.cause, cause.parameters["column"], cause.parameters["levels"]) == ("other_weights", "step", "1 and 2")
    assert cause.evidence[0].startswith("Steps 1 and 2 hold ")
    assert "every update" not in cause.advice
