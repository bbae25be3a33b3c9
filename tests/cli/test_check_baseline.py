"""`check --baseline`: a change fails where it is larger than its limit and than chance."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from running import BF16, SAMPLE, STEPS, refused, run

from rlcorr_cli.api import analyze, check
from rlcorr_cli.results.saved import read_report

INT8, FP32 = str(SAMPLE / "smollm2_int8.parquet"), str(SAMPLE / "smollm2_fp32.parquet")


def test_halves_of_one_dump_are_not_worse_than_each_other() -> None:
    """Whatever metric is limited; of 2 in 20 a change is beyond its interval by chance."""
    table, drawn, failed, warned = pq.read_table(BF16), np.random.default_rng(1), Counter[str](), Counter[str]()
    for _ in range(12):
        rows = drawn.permutation(64)
        now, then = (analyze(table.take(sorted(half))) for half in (rows[:32], rows[32:]))
        limits = {name: "10%" for name, value in now.whole.values.items() if value is not None}
        found = check(now, baseline=then, max_increase=limits, max_decrease=limits).findings
        failed.update(one.metric for one in found if one.status == "fail")
        warned.update(one.metric for one in found if one.status == "warn" and "baseline" in one.rule)
    assert max(failed.values(), default=0) <= 1
    assert warned["seq_ess"] > 6
    assert not warned["k3_kl"]


def test_a_change_of_the_rollout_engine_fails() -> None:
    then = analyze(BF16)
    found = check(INT8, baseline=then, max_increase={"k3_kl": "20%", "kl": "20%"}, max_decrease={"token_ess": 0.001})
    # The share of effective tokens has no interval of 8 prompts, so that its change warns.
    assert [one.status for one in found.findings if "baseline" in one.rule] == ["fail", "fail", "warn"]


def test_equal_policies_are_a_baseline_without_chance(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    place = table.column_names.index("old_log_probs")
    equal = analyze(table.set_column(place, "old_log_probs", table["rollout_log_probs"]))
    assert equal.whole.values["k3_kl"] == 0
    (found,) = [
        one for one in check(BF16, baseline=equal, max_increase={"k3_kl": 0.0}).findings if "baseline" in one.rule
    ]
    assert found.status == "fail"


def test_a_metric_without_an_interval_warns_and_names_another(tmp_path: Path) -> None:
    then = tmp_path / "then.json"
    then.write_text(run("analyze", BF16, "--json").out)
    ran = run("check", INT8, "--baseline", str(then), "--max-decrease", "seq_ess=10%", "--json")
    assert ran.status == 0
    (found,) = [one for one in json.loads(ran.out)["findings"] if "baseline" in one["rule"]]
    assert (found["status"], round(found["min"], 4)) == ("warn", 0.6361)
    assert found["remedy"] == "seq_ess has no interval here: limit k3_kl instead."


def test_a_baseline_alone_compares_k3_kl(tmp_path: Path) -> None:
    then = str(tmp_path / "then.json")
    assert run("analyze", BF16, "-o", then).status == 0
    assert run("check", BF16, "--baseline", then).status == 0
    ran = run("check", INT8, "--baseline", then, "--json")
    assert ran.status == 1
    assert run("analyze", FP32, "-o", then, "--overwrite").status == 0
    assert run("check", BF16, "--baseline", then, "--max", "k3_kl=0").out.count("Same remedy as above.") == 1
    compared = [one for one in json.loads(ran.out)["findings"] if "baseline" in one["rule"]]
    assert [(one["metric"], one["status"]) for one in compared] == [("k3_kl", "fail")]


def test_the_first_night_writes_the_baseline(tmp_path: Path) -> None:
    then = tmp_path / "then.json"
    ran = run("check", BF16, "--baseline", str(then))
    assert (ran.status, "Add --update-baseline" in ran.err) == (3, True)
    ran = run("check", BF16, "--baseline", str(then), "--update-baseline", "--json")
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["baseline"] == {"path": str(then), "is_first": True, "written": True}
    assert json.loads(then.read_text()) == run("analyze", BF16, "--json").json
    ran = run("check", BF16, "--baseline", str(then), "--update-baseline")
    assert "was updated: this run is the new baseline." in " ".join(ran.out.split())


def test_a_check_that_fails_leaves_the_baseline(tmp_path: Path) -> None:
    then = tmp_path / "then.json"
    given = ("--baseline", str(then), "--update-baseline")
    ran = run("check", BF16, *given, "--max", "k3_kl=0")
    assert (ran.status, then.exists()) == (1, False)
    assert "was not written, because the check failed." in " ".join(ran.out.split())
    assert run("check", BF16, *given).status == 0
    before = then.read_bytes()
    ran = run("check", INT8, *given)
    assert (ran.status, then.read_bytes() == before) == (1, True)
    assert "was not updated, because the check failed." in " ".join(ran.out.split())


def test_a_new_baseline_holds_its_groups_with_their_intervals(tmp_path: Path) -> None:
    then = str(tmp_path / "then.json")
    given = ("--group-by", "step", "--baseline", then, "--update-baseline", "--accept", "stale_policy", "--json")
    for compared in (0, 6):  # k3_kl of the whole dump and five steps
        ran = run("check", STEPS, *given)
        assert ran.status == 0, ran.err
        assert sum("baseline" in one["rule"] for one in json.loads(ran.out)["findings"]) == compared
    assert all("k3_kl" in group.intervals for group in read_report(then).groups)


def test_a_baseline_is_no_other_output(tmp_path: Path) -> None:
    then = str(tmp_path / "then.json")
    refused(run("check", BF16, "--baseline", then, "--update-baseline", "--junit", then), 2, "cannot be both outputs")
    assert run("analyze", BF16, "-o", then).status == 0
    refused(run("check", then, "--baseline", then, "--update-baseline"), 2, "part of the dump")
    refused(run("check", BF16, "--baseline", str(tmp_path / "no" / "b.json"), "--update-baseline"), 4, "no directory")
