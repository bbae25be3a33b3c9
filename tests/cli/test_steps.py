"""Steps that nobody asked for: in reports, in the gate, in totals that are added, and without them (--pool)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import parquet, refused, row, run

from rlcorr_cli import analyze

N_STEPS, N_ROWS, N_TOKENS = 8, 8, 150


def rows_of(step: int, worker: int | None = None) -> list[dict[str, Any]]:
    """Rows whose log-ratios are twice as wide at each step."""
    rng = np.random.default_rng(step)
    rows: list[dict[str, Any]] = []
    for i in range(N_ROWS):
        rollout = rng.uniform(-3, -1, N_TOKENS)
        old = rollout + np.clip(rng.normal(0, 0.01 * 2**step, N_TOKENS), -0.9, 0.9)
        more = {} if worker is None else {"worker": worker}
        rows.append(
            row(
                sample_id=f"{step}-{i}",
                step=step,
                rollout_log_probs=rollout.tolist(),
                old_log_probs=old.tolist(),
                response_mask=[1] * N_TOKENS,
                **more,
            )
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    for step in range(N_STEPS):
        parquet(folder / f"{step}.parquet", rows_of(step))
    return folder


def test_the_course_stands_among_the_first_lines(folder: Path) -> None:
    lines = run("analyze", str(folder)).out.split("\n\n")
    assert lines[0].startswith("0.parquet and 7 more files")
    assert "8 steps" in lines[0]
    assert lines[1].startswith("  k3_kl rises from ")
    assert " at step 0 to " in " ".join(lines[1].split())
    assert "break k3_kl." in " ".join(lines[1].split())


def test_the_gate_fails_at_the_steps_that_break_a_rule(folder: Path) -> None:
    assert run("check", str(folder), "--pool").status == 0
    ran = run("check", str(folder))
    assert ran.status == 1
    assert "fail  steps 6 and 7: k3_kl is " in ran.out
    assert "The last, step 7: too few sequences for a verdict; it fails k3_kl" in " ".join(ran.out.split())
    found = json.loads(run("check", str(folder), "--json").out)
    assert found["last_step"]["step"] == 7
    assert "k3_kl" in found["last_step"]["failed"]
    (failed,) = (each for each in found["findings"] if each["key"] == {"step": 7} and each["metric"] == "k3_kl")
    assert (failed["min"], failed["max"], failed["status"]) == (None, 0.1, "fail")


def test_steps_in_parts_are_the_course_of_the_whole(folder: Path, tmp_path: Path) -> None:
    parts = [str(tmp_path / f"{step}.rlcorr") for step in range(N_STEPS)]
    for step, part in enumerate(parts):
        run("analyze", str(folder / f"{step}.parquet"), "-o", part)
    assert json.loads(run("analyze", parts[0], "--json").out)["course"] is None
    whole = json.loads(run("analyze", str(folder), "--json").out)["course"]
    added = json.loads(run("analyze", *parts, "--json").out)["course"]
    assert whole["steps"] == N_STEPS
    assert [each["metric"] for each in added["broken"]] == [each["metric"] for each in whole["broken"]]
    assert added["rise"]["factor"] == pytest.approx(whole["rise"]["factor"], rel=1e-9)
    assert json.loads(run("analyze", *parts, "--pool", "--json").out)["course"] is None
    assert run("check", str(folder)).out.splitlines()[:3] == run("check", _added(parts, tmp_path)).out.splitlines()[:3]


def _added(parts: list[str], tmp_path: Path) -> str:
    path = str(tmp_path / "sum.rlcorr")
    assert run("analyze", *parts, "-o", path).status == 0
    return path


def test_groups_of_another_column_stand_beside_the_course(tmp_path: Path) -> None:
    rows = [each for step in range(N_STEPS) for each in rows_of(step, worker=step % 2)]
    dump = parquet(tmp_path / "d.parquet", rows)
    report, by_step = analyze(dump, group_by="worker"), analyze(dump)
    assert [dict(group.key) for group in report.groups] == [{"worker": 0}, {"worker": 1}]
    assert report.course == by_step.course
    saved = tmp_path / "r.json"
    out = run("analyze", dump, "--group-by", "worker", "-o", str(saved)).out
    assert run("check", str(saved)).status == run("check", dump, "--group-by", "worker").status == 1
    assert "8 steps  2 groups" in " ".join(out.split("\n")[:2]).replace("  ", "  ")
    assert json.loads(saved.read_text())["course"]["steps"] == N_STEPS


def test_too_many_steps_are_taken_together_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled = analyze(str(folder), pool=True)
    monkeypatch.setattr("rlcorr_cli.totals.measured.MOST_STEPS", N_STEPS)
    assert analyze(str(folder)).course is not None
    monkeypatch.setattr("rlcorr_cli.totals.measured.MOST_STEPS", N_STEPS - 1)
    for workers in (1, 2):
        report = analyze(str(folder), workers=workers)
        assert (report.course, report.groups) == (None, ())
        assert any("all are taken together" in note for note in report.notes)
        assert report.metrics["k3_kl"] == pytest.approx(pooled.metrics["k3_kl"], rel=1e-12)
    assert "all are taken together" in " ".join(run("check", str(folder)).out.split())
    assert len(analyze(str(folder), group_by="step").groups) == N_STEPS


def test_one_step_is_no_course(folder: Path) -> None:
    report = analyze(str(folder / "3.parquet"))
    assert (report.course, report.groups) == (None, ())


def test_a_baseline_is_compared_with_the_whole_dump_alone(folder: Path, tmp_path: Path) -> None:
    saved = str(tmp_path / "base.json")
    run("analyze", str(folder), "-o", saved)
    limits = ("--baseline", saved, "--max-increase", "kl=1%", "--max", "k3_kl=1", "--json")
    found = json.loads(run("check", str(folder), *limits).out)
    compared = [each["key"] for each in found["findings"] if "baseline" in each["rule"]]
    assert compared == [{}]
    refused(run("analyze", saved.replace(".json", ".rlcorr"), "--pool"), 3, "base.rlcorr")
