"""Steps that nobody asked for: in reports, in the gate, in totals that are added, and without them (--pool)."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import SAMPLE, parquet, refused, row, run

from rlcorr_cli import analyze, compare, diagnose

COLLAPSE = str(SAMPLE / "collapse.parquet")
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
    assert lines[0].startswith(f"{folder.name}/ (8 files)")
    assert "8 steps" in lines[0]
    assert lines[1].startswith("  k3_kl rises from ")
    assert " at step 0 to " in " ".join(lines[1].split())
    assert "are outside the limit on k3_kl." in " ".join(lines[1].split())


def test_files_of_one_folder_are_named_by_it_and_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = f"{folder.name}/ (8 files)"
    for command in ("analyze", "compare", "diagnose"):
        assert run(command, str(folder / "*.parquet")).out.startswith(named)
    assert f" rules on {named}, 8 steps." in run("check", str(folder)).out
    monkeypatch.chdir(folder)
    assert run("analyze", "0.parquet", "1.parquet").out.startswith("0.parquet and 1 more file")


@pytest.mark.full
def test_counts_of_kept_tokens_have_no_decimals(tmp_path: Path) -> None:
    page = tmp_path / "r.md"
    run("analyze", COLLAPSE, "--preset", "geo_rs", "-o", str(page))
    kept = [
        line.split("|")[2].strip()
        for line in page.read_text().splitlines()
        if line.startswith(("| kept\\_tokens ", "| kept\\_sequences "))
    ]
    assert len(kept) == 2
    assert all(text.replace(",", "").isdigit() for text in kept)


def test_the_worst_ppl_ratio_is_the_farthest_from_1_on_either_side(tmp_path: Path) -> None:
    for step, moved in enumerate((0.002, -0.06, 0.001)):
        rows = rows_of(0)
        for each in rows:
            each |= {"step": step, "old_log_probs": [value - moved for value in each["rollout_log_probs"]]}
        parquet(tmp_path / f"{step}.parquet", rows)
    lines = run("analyze", str(tmp_path)).out.splitlines()
    (line,) = (line for line in lines if line.strip().startswith("ppl_ratio ") and " at " in line)
    assert line.endswith("0.942 at 1")
    metrics = json.loads(run("analyze", str(tmp_path), "--json").out)["course"]["metrics"]
    assert {each["metric"]: each["worst"]["step"] for each in metrics}["ppl_ratio"] == 1


def test_steps_that_differ_by_chance_alone_are_drawn_flat(tmp_path: Path) -> None:
    for step in range(4):
        parquet(tmp_path / f"{step}.parquet", [each | {"step": step} for each in rows_of(0)[step:]])
    ran = run("analyze", str(tmp_path))
    (drawn,) = re.findall(r"^  k3_kl +(\S{4}) +\S+ at", ran.out, re.MULTILINE)
    assert set(drawn) <= {"_", "."}  # the lowest two of eight
    assert "\n\n\n" not in ran.out


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


def test_every_command_counts_the_rules_that_steps_break() -> None:
    out = run("analyze", COLLAPSE, "--all").out
    assert "  ! seq_ess 0.0626 at step 11  should be >= 0.3. Steps 8 to 11 break it." in out.splitlines()
    warns = "the likely cause, prob_abs_diff_mean, pareto_k_seq and seq_ess"
    counted = f"`rlcorr check` fails because of kl and k3_kl, and warns of {warns}."
    assert counted in " ".join(out.split())
    assert counted in " ".join(run("analyze", COLLAPSE).out.split())
    ran = run("check", COLLAPSE).out
    assert "  Of 6 rules 2 fail and 3 warn." in ran.splitlines()
    assert len(set(re.findall("^  (?:fail|warn) .*: ([a-z0-9_]+) is", ran, re.MULTILINE))) == 5


def test_the_rules_that_groups_break_are_named_and_counted(tmp_path: Path) -> None:
    rows = [
        {**each, "sample_id": f"{copy}-{i}", "step": 0, "worker": step}
        for copy, step in enumerate((0, 0, 0, 4))
        for i, each in enumerate(rows_of(step))
    ]
    dump = parquet(tmp_path / "d.parquet", rows)
    whole = run("analyze", dump, "--all")
    assert (whole.status, "! prob_abs_diff_mean" in whole.out) == (0, False)
    out = run("analyze", dump, "--group-by", "worker", "--all").out
    assert "at worker 4  should be <= 0.01. Worker 4 breaks" in out[: out.index("divergence")]
    counted = "passes, and warns of the likely cause, seq_ess and prob_abs_diff_mean; with --strict it fails."
    assert counted in " ".join(out.split())


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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """16 steps of 4 rows, of which 3 are large enough for rules together; the policies part from step 10 on."""
    rows = [
        {**each, "step": step, "sample_id": f"{step}-{i}"}
        for step in range(16)
        for i, each in enumerate(rows_of(N_STEPS - 2 if step >= 10 else 0)[:4])
    ]
    for n, each in enumerate(rows):  # no two rows are one rollout
        each["rollout_log_probs"][0] = -2 - n / 100
        each["old_log_probs"][0] = -2 - n / 100
    return parquet(tmp_path_factory.mktemp("small") / "d.parquet", rows)


def test_small_steps_are_judged_with_their_neighbours(small: str) -> None:
    ran = run("check", small)
    said = " ".join(ran.out.split())
    assert ran.status == 1
    few = "All 16 steps have fewer than 1,000 tokens or 5 rollouts: rules judge neighbours together, until they have"
    assert f"{few} as many." in said
    assert "fail steps 10 to 15: k3_kl is 0.1" in said
    assert "The last, steps 14 to 15: " in said
    assert "; they fail k3_kl and warn of " in said
    assert said.endswith("6 rules on d.parquet, 16 steps.")
    found = json.loads(run("check", small, "--json").out)
    assert found["last_step"]["step"] == "14 to 15"
    judged = [one["key"].get("step") for one in found["findings"] if one["metric"] == "k3_kl"]
    assert judged == [None, *(f"{first} to {first + 1}" for first in range(0, 16, 2))]
    pooled = json.loads(run("check", small, "--pool", "--json").out)
    assert not [one for one in pooled["findings"] if one["key"]]


def _row_of(step: int, out: str) -> str:
    """The line of a step in the table of steps."""
    (line,) = (line for line in out.splitlines() if line.startswith(f"  {step} ") and line.split()[1].isdigit())
    return line


def test_small_steps_are_marked_where_their_range_breaks_a_rule(small: str) -> None:
    out = run("analyze", small, "--all").out
    assert "Steps 10 to 15 are outside the limit" in " ".join(out.split())
    marked = [step for step in (0, 10, 11, 15) if "!" in _row_of(step, out)]
    assert marked == [10, 11, 15]
    assert "! marks all steps of a range that breaks a rule together." in out
    assert "range that breaks" not in run("analyze", COLLAPSE, "--all").out


def test_every_command_names_the_same_steps(small: str) -> None:
    for dump in (small, COLLAPSE):
        course, diagnosed = analyze(dump).course, diagnose(dump).course
        assert course is not None
        assert diagnosed is not None
        assert diagnosed.rise == course.rise
        assert [(each.metric, each.groups) for each in diagnosed.broken] == [
            (each.metric, each.groups) for each in course.broken
        ]
    assert compare(COLLAPSE).recommendation.far_end == "step 11"
    said = " ".join(run("diagnose", COLLAPSE).out.split())
    assert "Steps 10 and 11 are outside the limits on kl and k3_kl. Likely cause: " in said
    assert diagnose(COLLAPSE, sample=5_000).course is None  # a part of the rows has other numbers


def test_steps_that_are_asked_for_are_judged_one_by_one_and_all_shown(small: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmetric = "k3_kl"\nmax = 0.05\nover = "groups"\n')
    out = run("analyze", small, "--group-by", "step", "--all").out
    assert [("!" in _row_of(step, out)) for step in range(16)] == [False] * 10 + [True] * 6
    assert "together" not in out
    said = " ".join(run("check", small, "--group-by", "step", "--rules", str(rules)).out.split())
    assert "fail steps 10 to 15: k3_kl is" in said
    assert re.search("The last, step 15: [^;]*; it fails k3_kl and warns of", said)
    rules.write_text('defaults = false\n[[rule]]\nmetric = "k3_kl"\nmax = 0.5\nover = "total"\n')
    said = " ".join(run("check", small, "--rules", str(rules)).out.split())
    assert re.search("The last, steps 14 to 15: [^;.]*[.]", said)  # no rule judges it, so it passes none


def test_a_range_has_the_numbers_of_its_rows(small: str) -> None:
    report = analyze(small)
    table = pq.read_table(small)
    (course, some) = report.course, report.ranges[5]
    assert course is not None
    assert (some.key, some.of_steps) == ({"step": "10 to 11"}, (10, 11))
    rows = table.filter([step in some.of_steps for step in table["step"].to_pylist()])
    assert dict(some.values) == pytest.approx(dict(analyze(rows).whole.values), rel=1e-9)
    (broken,) = (rule for rule in course.broken if rule.metric == "k3_kl")
    assert [key["step"] for key in broken.groups] == list(range(10, 16))
    assert course.judged == 16
    assert "Steps 10 to 15 are outside " in " ".join(run("analyze", small).out.split())


def test_ranges_are_those_of_parts_and_of_saved_reports(small: str, tmp_path: Path) -> None:
    table, parts = pq.read_table(small), list[str]()
    for n, half in enumerate((table.slice(0, 30), table.slice(30))):  # a step is in both
        parts.append(str(tmp_path / f"{n}.rlcorr"))
        pq.write_table(half, tmp_path / f"{n}.parquet")
        assert run("analyze", str(tmp_path / f"{n}.parquet"), "-o", parts[-1]).status == 0
    whole = run("check", small).out.splitlines()
    saved = str(tmp_path / "r.json")
    for given in ([small], parts):
        assert run("analyze", *given, "-o", saved, "--overwrite").status == 0
        assert run("check", saved).out.splitlines()[:4] == whole[:4]


def test_a_small_step_between_large_ones_is_not_judged(tmp_path: Path) -> None:
    rows = [each for step in (0, 1, 2) for each in rows_of(step)[: 4 if step == 1 else N_ROWS]]
    ran = run("check", parquet(tmp_path / "d.parquet", rows))
    said = " ".join(ran.out.split())
    assert "1 of 3 steps has fewer than 1,000 tokens or 5 rollouts: no rule judges it." in said
    rows += [{**each, "step": 3, "sample_id": f"3-{i}"} for i, each in enumerate(rows_of(9)[:4])]
    rows += [{**each, "step": 4, "sample_id": f"4-{i}"} for i, each in enumerate(rows_of(10)[:4])]
    rows += [{**each, "step": 5, "sample_id": "5-0"} for each in rows_of(11)[:1]]
    report = analyze(parquet(tmp_path / "e.parquet", rows))
    assert [group.of_steps for group in report.ranges] == [(3, 4, 5)]  # what is left over goes with those before it
