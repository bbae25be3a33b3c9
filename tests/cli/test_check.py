"""`check`: which rules hold a dump, what replaces what, what is refused, and the exit status."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from limits import LIMIT_SECONDS
from running import BF16, STEPS, forked_command, parquet, refused, row, run, run_process

FP32 = BF16.replace("bf16", "fp32")
SEQUENCE = "Use token weights (`--preset token_is`), or drop far sequences (`--rs"


def checked(status: int, *args: str) -> dict[str, Any]:
    """The JSON result of `rlcorr check ARGS`, which ends with this status."""
    ran = run("check", *args, "--json")
    assert ran.status == status, ran.err
    assert ran.err == ""
    return json.loads(ran.out)


def findings(found: dict[str, Any], metric: str) -> list[tuple[dict[str, Any], str, str]]:
    return [(one["key"], one["rule"], one["status"]) for one in found["findings"] if one["metric"] == metric]


def rules(folder: Path, text: str, name: str = "rules.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture
def small(tmp_path: Path) -> str:
    """kl 0.375 and seq_ess 1: each sequence has log-ratios 0.25 and -1."""
    return parquet(tmp_path / "d.parquet", [row(step=i // 2, group="ab"[i % 2]) for i in range(4)])


def test_a_bound_of_0_on_either_side_is_0(small: str) -> None:
    (finding,) = [one for one in checked(1, small, "--max", "kl=0")["findings"] if one["metric"] == "kl"]
    assert finding["says"] == "kl is 0.375, should be 0."


def test_equal_engines_pass() -> None:
    ran = run("check", FP32)
    assert (ran.status, ran.err) == (0, "")
    lacks = "  Not judged: pareto_k_seq (too few tail values).\n"
    assert ran.out == f"{lacks}  Passed: 5 of 5 checks; 6 rules on smollm2_fp32.parquet.\n"
    assert checked(0, FP32)["not_judged"] == ["pareto_k_seq"]


def test_four_updates_fail_a_floor_under_the_sample_size() -> None:
    given = (STEPS, "--group-by", "step", "--min", "seq_ess=0.3")
    found = checked(1, *given)
    assert found["status"] == "failed"
    assert found["counts"] == {"rules": 6, "failed": 4, "warned": 5, "passed": 23}
    states = {one["key"].get("step"): one["status"] for one in found["findings"] if one["metric"] == "seq_ess"}
    assert states == {None: "fail", 0: "ok", 1: "ok", 2: "fail", 3: "fail", 4: "fail"}
    lines = run("check", *given).out.splitlines()
    assert lines[0].strip() == "The last, step 4: apart; it fails seq_ess and warns of prob_abs_diff_mean."
    assert lines[3].strip() == "fail  steps 2 to 4: seq_ess is 0.0156 to 0.0458, should be >= 0.3."
    assert lines[4].strip() == SEQUENCE
    assert lines[-1] == "  Failed: 4 of 32 checks, 5 warned; 6 rules on smollm2_steps.parquet, 5 steps."
    assert max(map(len, lines)) <= 80


def test_a_pipeline_of_a_shell_sees_the_status() -> None:
    def piped(*args: str) -> subprocess.CompletedProcess[str]:
        line = 'set -o pipefail; rlcorr=$1; python=$2; shift 2; "$rlcorr" check "$@" --json | "$python" -m json.tool'
        given = ["bash", "-c", line, "bash", forked_command(), sys.executable, *args]
        return subprocess.run(given, capture_output=True, text=True, timeout=LIMIT_SECONDS)

    failed = piped(STEPS, "--group-by", "step", "--min", "seq_ess=0.3")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["status"] == "failed"
    assert failed.stderr == ""
    passed = piped(FP32)
    assert (passed.returncode, json.loads(passed.stdout)["status"]) == (0, "passed")


def test_a_file_that_cannot_be_read_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").write_bytes(Path(STEPS).read_bytes()[:5000])
    (tmp_path / "r.json").write_text('{"rlcorr": ')
    for name in ("d.parquet", "r.json", "none.parquet", "none.json"):
        refused(run("check", str(tmp_path / name), "--min", "seq_ess=0.3"), 3, name)
    refused(run_process("check", str(tmp_path / "r.json")), 3, "r.json")


def test_warnings_alone_pass() -> None:
    found = checked(0, STEPS, "--pool")
    assert found["status"] == "passed"
    assert found["counts"] == {"rules": 6, "failed": 0, "warned": 4, "passed": 3}
    out = run("check", STEPS, "--pool").out
    assert "  warn  whole dump: seq_ess is 0.00313, should be >= 0.3.\n" in out
    assert out.splitlines()[-1] == "  Passed: 3 of 7 checks, 4 warned; 6 rules on smollm2_steps.parquet."


def test_default_rules_fail_on_either_side_of_0(tmp_path: Path) -> None:
    for old, kl in (((-0.75, -1.25), "0.25"), ((-0.25, -0.75), "-0.25")):
        dump = parquet(tmp_path / "d.parquet", [row(old=old)] * 3)
        found = checked(1, dump)
        (one,) = [one for one in found["findings"] if one["metric"] == "kl"]
        assert one["says"] == f"kl is {kl}, should be between -0.1 and 0.1."
        assert one["severity"] == one["status"] == "fail"
        assert "what shifts all tokens" in one["remedy"]


def test_rules_on_a_plans_metrics_apply_where_there_is_one() -> None:
    def judged(*args: str) -> set[str]:
        return {one["metric"] for one in checked(0, BF16, *args)["findings"]}

    plain = judged()
    assert judged("--preset", "token_is") - plain == {
        "rollout_is_mean",
        "rollout_is_eff_sample_size",
        "rollout_is_std",
        "rollout_is_seq_max_deviation",
    }
    assert judged("--veto", "1e-4") - plain == {
        "rollout_is_veto_fraction",
        "rollout_is_catastrophic_token_fraction",
        "rollout_rs_masked_fraction",
    }


def test_a_group_of_no_data_fails(tmp_path: Path) -> None:
    equal = row(old=(-0.5, -1.0), response_mask=[1, 1], step=0)
    dump = parquet(tmp_path / "d.parquet", [equal, {**equal, "step": 1, "response_mask": [0, 0]}])
    assert checked(0, dump)["counts"]["failed"] == 0
    found = checked(1, dump, "--group-by", "step")
    assert findings(found, "kl") == [
        ({}, "between -0.1 and 0.1", "ok"),
        ({"step": 0}, "between -0.1 and 0.1", "ok"),
        ({"step": 1}, "between -0.1 and 0.1", "fail"),
    ]
    assert findings(found, "seq_ess")[-1][2] == "warn"
    (says,) = {one["says"] for one in found["findings"] if one["metric"] == "kl" and one["value"] is None}
    assert says == "kl has no data, should be between -0.1 and 0.1."


def test_a_flag_replaces_the_default_rule(small: str) -> None:
    assert findings(checked(1, small), "kl") == [({}, "between -0.1 and 0.1", "fail")]
    wide = ("--max", "k3_kl=9")
    assert findings(checked(0, small, *wide, "--max", "kl=0.5"), "kl") == [({}, "between -0.5 and 0.5", "ok")]
    assert findings(checked(1, small, "--max", "kl=0.3"), "kl") == [({}, "between -0.3 and 0.3", "fail")]
    assert findings(checked(1, small, "--max", "kl=0.5", "--min", "kl=0.4"), "kl") == [
        ({}, "between 0.4 and 0.5", "fail")
    ]
    assert findings(checked(0, small, *wide, "--max", "kl=0.375"), "kl") == [({}, "between -0.375 and 0.375", "ok")]


def test_flags_replace_a_files_rules_and_these_the_default_ones(small: str, tmp_path: Path) -> None:
    path = rules(tmp_path, '[[rule]]\nmetric = "kl"\nmax = 0.2\n[[rule]]\nmetric = "seq_ess"\nmax = 0.5\n')
    found = checked(1, small, "--rules", path)
    assert found["counts"] == {"rules": 6, "failed": 3, "warned": 1, "passed": 1}
    assert findings(found, "kl") == [({}, "between -0.2 and 0.2", "fail")]
    found = checked(1, small, "--rules", path, "--max", "kl=1")
    assert findings(found, "kl") == [({}, "between -1 and 1", "ok")]
    assert findings(found, "seq_ess") == [({}, "<= 0.5", "fail")]


FILE = """
defaults = false

[[rule]]
metric = "kl"
max = 0.1
severity = "warn"
remedy = "Restart the workers."

[[rule]]
metric = "kl"
max = 0.5
over = "total"

[[rule]]
metric = "seq_ess"
min = 0.9
max = 1
over = "groups"

[[rule]]
metric = "log_ratio_mean"
max = 0.1
absolute = false
"""


def test_a_rules_file_says_all_a_rule_can_be(small: str, tmp_path: Path) -> None:
    path = rules(tmp_path, FILE)
    found = checked(0, small, "--rules", path, "--group-by", "step")
    assert found["counts"] == {"rules": 4, "failed": 0, "warned": 3, "passed": 6}
    warns = [
        ({}, "between -0.1 and 0.1", "warn"),
        ({"step": 0}, "between -0.1 and 0.1", "warn"),
        ({"step": 1}, "between -0.1 and 0.1", "warn"),
    ]
    assert findings(found, "kl") == [*warns, ({}, "between -0.5 and 0.5", "ok")]
    assert findings(found, "seq_ess") == [
        ({"step": 0}, "between 0.9 and 1", "ok"),
        ({"step": 1}, "between 0.9 and 1", "ok"),
    ]
    assert findings(found, "log_ratio_mean")[0] == ({}, "<= 0.1", "ok")
    assert found["findings"][0]["remedy"] == "Restart the workers."


def test_rules_files_may_be_json_or_yaml(small: str, tmp_path: Path) -> None:
    same = {"defaults": False, "rule": [{"metric": "kl", "max": 0.2}]}
    given = [rules(tmp_path, json.dumps(same), f"rules.{suffix}") for suffix in ("json", "yaml")]
    for path in (*given, rules(tmp_path, 'defaults = false\n[[rule]]\nmetric = "kl"\nmax = 0.2')):
        assert findings(checked(1, small, "--rules", path), "kl") == [({}, "between -0.2 and 0.2", "fail")]


KL = '[[rule]]\nmetric = "kl"\nmax = 0.1\n'
BAD_RULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "no TOML": ("[[rule]", ("not valid TOML",)),
    "a key that is not there": (f"{KL}maximum = 2", ("rule 1", "'maximum'", "Nearest: max")),
    "the second rule": (f"{KL}{KL}ovr = 'total'", ("rule 2", "'ovr'", "Nearest: over")),
    "a key above all rules": (f"default = true\n{KL}", ("'default'", "Nearest: defaults")),
    "no list of rules": ('[rule]\nmetric = "kl"\nmax = 1', ("rule must be a list of [[rule]]",)),
    "rules that are numbers": ("rule = [1]", ("rule 1 is 1", "[[rule]]")),
    "a severity that is not there": (f"{KL}severity = 'error'", ("rule 1", "severity", '"fail" or "warn"', "'error'")),
    "a list of severities": (f"{KL}severity = ['fail']", ("rule 1", "severity")),
    "an over that is not there": (f"{KL}over = 'step'", ("rule 1", "over", '"groups"')),
    "a number as text": ('[[rule]]\nmetric = "kl"\nmax = "0.1"', ("rule 1", "max must be a finite number", "'0.1'")),
    "true as a number": ('[[rule]]\nmetric = "kl"\nmax = true', ("rule 1", "max must be a finite number")),
    "NaN": ('[[rule]]\nmetric = "kl"\nmax = nan', ("rule 1", "max must be a finite number", "nan")),
    "infinite": ('[[rule]]\nmetric = "kl"\nmin = -inf', ("rule 1", "min must be a finite number")),
    "more than a float": (f'[[rule]]\nmetric = "kl"\nmax = 1{"0" * 400}', ("rule 1", "max must be a finite number")),
    "min above max": (f"{KL}min = 0.2", ("rule 1", "min 0.2 is above max 0.1")),
    "no bound": ('[[rule]]\nmetric = "kl"', ("rule 1", "neither min nor max")),
    "no metric": ("[[rule]]\nmax = 0.1", ("rule 1", "names no metric")),
    "an empty metric": ('[[rule]]\nmetric = " "\nmax = 0.1', ("rule 1", "metric must be")),
    "absolute as a number": (f"{KL}absolute = 1", ("rule 1", "absolute must be true or false")),
    "remedy as a number": (f"{KL}remedy = 1", ("rule 1", "remedy must be")),
    "defaults as text": ('defaults = "no"', ("defaults must be true or false",)),
    "an unknown metric": (KL.replace('"kl"', '"kll"'), ("rule 1", "no metric 'kll'", "Nearest: kl")),
    "a plan's metric": (KL.replace('"kl"', '"rollout_is_mean"'), ("rule 1", "--preset token_is")),
    "nothing at all": ("defaults = false", ("holds no rule", "--max k3_kl=0.01")),
}


@pytest.mark.parametrize("case", BAD_RULES)
def test_a_wrong_rules_file_is_status_2(case: str, tmp_path: Path) -> None:
    text, parts = BAD_RULES[case]
    path = rules(tmp_path, text)
    # Refused before the dump is read: there is none.
    refused(run("check", str(tmp_path / "no.parquet"), "--rules", path), 2, path, *parts)


def test_a_rules_file_that_is_not_there_is_status_2(tmp_path: Path) -> None:
    refused(run("check", BF16, "--rules", "none.toml"), 2, "Cannot read the rules file none.toml")
    refused(run("check", BF16, "--rules", rules(tmp_path, "", "rules.ini")), 2, "a rules file's format", ".toml")
    refused(run("check", BF16, "--rules", rules(tmp_path, "[1]", "r.json")), 2, "no mapping", "[[rule]]")
    deep = rules(tmp_path, "[" * 100_000, "deep.json")
    refused(run("check", BF16, "--rules", deep), 2, "deep.json: it is nested more than 64 deep")


BAD_FLAGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no number": (("--max", "kl"), ("--max kl", "--max METRIC=NUMBER", "k3_kl=0.01")),
    "no metric": (("--min", "=0.3"), ("--min =0.3", "token_ess=0.9")),
    "a word": (("--max", "kl=low"), ("'low' is not a finite number", "--max k3_kl=0.01")),
    "NaN": (("--max", "kl=nan"), ("'nan'",)),
    "infinite": (("--min", "seq_ess=inf"), ("'inf'", "token_ess=0.9")),
    "a percentage": (("--max", "kl=20%"), ("'20%'",)),
    "twice": (("--max", "kl=1", "--max", "kl=2"), ("--max names kl twice",)),
    "min above max": (("--max", "kl=1", "--min", "kl=2"), ("--min kl=2 is above --max kl=1",)),
    "the start of a metric": (("--max", "k3=1"), ("--max k3: there is no metric 'k3'", "Nearest: k3_kl")),
    "more than a share can be": (("--min", "seq_ess=1.5"), ("seq_ess >= 1.5, which it can never be", "0 and 1")),
    "less than a divergence can be": (("--max", "k3_kl=-0.1"), ("k3_kl <= -0.1, which it can never", "below 0")),
    "less than a sum of sizes can be": (
        ("--max", "objective/ppo/coef_abs_sum=-1", "--objective", "ppo"),
        ("objective/ppo/coef_abs_sum <= -1, which it can never", "below 0"),
    ),
    "an unknown metric": (("--max", "kll=1"), ("--max kll: there is no metric 'kll'", "Nearest: kl")),
    "a peer's other number": (
        ("--max", "mis_kl=1"),
        ("--max mis_kl", "slime's, and not quite kl: slime averages", "Name kl"),
    ),
    "a peer's name and ours": (("--max", "kl=1", "--max", "rollout_corr/kl=2"), ("--max names kl twice",)),
    "weights": (("--min", "rollout_is_eff_sample_size=0.3"), ("not in this report", "--preset token_is")),
    "a veto": (("--max", "rollout_is_veto_fraction=0.1", "--rs", "k3.token:,1"), ("--veto 1e-4",)),
    "zeroed weights": (("--max", "rollout_is_oob_ratio=0.1", "--preset", "token_is"), ("--is token:,2:zero",)),
    "a batch mean": (("--max", "rollout_is_batch_norm_factor=2", "--preset", "token_is"), ("--normalize batch",)),
    "what is kept": (("--max", "kept_kl=0.1", "--preset", "token_is"), ("kept_kl is not in", "--preset geo_rs")),
    "all rejections": (("--max", "rollout_rs_masked_fraction=0.1"), ("--preset geo_rs",)),
    "one rejection": (("--max", "rollout_rs_geometric_max=0.1"), ("a rejection of that name", "rlcorr presets")),
    "a limit without a baseline": (("--max-increase", "kl=20%"), ("--max-increase compares", "--baseline")),
    "another": (("--max-decrease", "seq_ess=20%"), ("--max-decrease compares", "--baseline")),
    "an update of no baseline": (("--update-baseline",), ("no baseline is named", "Add --baseline base.json")),
    "a baseline of another form": (("--baseline", "r.csv", "--update-baseline"), ("r.csv", "written as .json")),
    "a limit of no amount": (("--max-increase", "kl=a lot"), ("'a lot'", "--max-increase k3_kl=50%")),
    "a limit below 0": (("--max-decrease", "seq_ess=-10%"), ("'-10%'", "0 or more", "token_ess=1%")),
    "a limit of NaN": (("--max-increase", "kl=nan%"), ("'nan%'",)),
    "a limit twice": (("--max-increase", "kl=1", "--max-increase", "kl=2"), ("names kl twice",)),
}


@pytest.mark.parametrize("case", BAD_FLAGS)
def test_wrong_flags_are_status_2(case: str, tmp_path: Path) -> None:
    args, parts = BAD_FLAGS[case]
    refused(run("check", str(tmp_path / "no.parquet"), *args), 2, *parts)


def test_a_rule_over_groups_is_held_to_the_steps_that_nobody_asked_for(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("defaults = false\n[[rule]]\nmetric = 'k3_kl'\nmax = 0.02\nover = 'groups'\n")
    ran = run("check", STEPS, "--rules", str(rules))
    assert ran.status == 1
    assert "step 4: k3_kl is 0.0317, should be <= 0.02." in ran.out
    # Refused before the dump is read: there is none.
    refused(run("check", str(tmp_path / "no.parquet"), "--rules", str(rules), "--pool"), 2, "over groups", "--group-by")
    refused(run("check", BF16, "--rules", str(rules)), 2, "over groups", "--group-by COLUMN")


def test_what_only_the_dump_can_tell_is_refused_after_it_is_read() -> None:
    drift = "--max", "ppo_kl=0.1"
    refused(run("check", BF16, *drift), 2, "ppo_kl is not in this report", "--map current_log_probs=COLUMN")
    known = "--preset", "geo_rs", "--max"
    refused(run("check", BF16, *known, "rollout_rs_geometric_mx=1"), 2, "Nearest: rollout_rs_geometric_max")


def test_the_drift_to_the_current_policy_can_be_held_to_a_rule(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(current_log_probs=[-0.5, -2.5])] * 2)
    found = checked(1, dump, "--max", "ppo_kl=0.1")
    assert findings(found, "ppo_kl") == [({}, "between -0.1 and 0.1", "fail")]


def test_a_dump_is_judged_on_canonical_values_whatever_the_profile(tmp_path: Path) -> None:
    (tmp_path / "trainer.yaml").write_text("rollout_is: token\nrollout_is_threshold: 2.0\n")
    given = (STEPS, "--profile", "verl-0.9", "--plan", str(tmp_path / "trainer.yaml"))
    found = checked(1, *given, "--max", "k3_kl=0.001", "--max", "rollout_corr/k3_kl=0.02", "--group-by", "step")
    values = {one["metric"]: one["value"] for one in found["findings"] if not one["key"]}
    assert values["k3_kl"] == pytest.approx(values["rollout_corr/k3_kl"], rel=1e-6)
    assert findings(found, "k3_kl")[0] == ({}, "<= 0.001", "fail")
    assert [state for _, _, state in findings(found, "rollout_corr/k3_kl")] == ["ok", "ok", "ok", "ok", "ok", "fail"]
    assert {"kl", "rollout_is_mean", "rollout_is_std"} <= set(values)
    refused(run("check", *given, "--max", "rollout_corr/k3=1"), 2, "rollout_corr/k3_kl")


def test_groups_by_two_columns_are_named_by_both(small: str) -> None:
    ran = run("check", small, "--group-by", "step", "--group-by", "group")
    assert ran.status == 1
    assert "  fail  step 1, group b: kl is 0.375, should be between -0.1 and 0.1.\n" in ran.out


def test_reading_options_are_analyzes(small: str, tmp_path: Path) -> None:
    """--map, --limit and standard input: the same dump under other names, in part, and from a pipe."""
    equal = [{"a": [-1.0], "b": [-1.0]}] * 2 + [{"a": [-1.0], "b": [-3.0]}]
    dump = parquet(tmp_path / "e.parquet", equal)
    named = ("--map", "rollout_log_probs=a", "--map", "old_log_probs=b")
    refused(run("check", dump), 3, "--map")
    assert run("check", dump, *named).status == 1
    assert run("check", dump, *named, "--limit", "2").status == 0
    ran = run_process("check", "-", "--quiet", stdin=json.dumps(row()) + "\n")
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == "  Failed: 2 of 5 checks, 1 warned; 6 rules on stdin."


@pytest.mark.parametrize("name", ["rollout_corr/k3_kl", "mismatch/mismatch_k3_kl", "gen_kl_error"])
def test_a_frameworks_name_of_the_same_number_stands_for_ours(name: str, small: str, tmp_path: Path) -> None:
    failed = checked(1, small, "--max", f"{name}=1e-9")
    assert [finding["metric"] for finding in failed["findings"] if finding["rule"] == "<= 1e-09"] == ["k3_kl"]
    (note,) = (note for note in failed["notes"] if name in note)
    assert note.startswith(f"--max {name}: ")
    assert "'s name of k3_kl." in note
    assert ("With reference_policy_kl_type k1 it is kl" in note) == (name == "gen_kl_error")
    (tmp_path / "rules.toml").write_text(f"defaults = false\n[[rule]]\nmetric = '{name}'\nmax = 1\n")
    held = checked(0, small, "--rules", str(tmp_path / "rules.toml"))
    assert [finding["metric"] for finding in held["findings"]] == ["k3_kl"]


CAUSES = Path(__file__).parents[1] / "diagnosis" / "causes"


def test_a_fault_fails_unless_it_is_accepted() -> None:
    dump = str(CAUSES / "top_p095.parquet")
    failed = run("check", dump)
    assert failed.status == 1
    assert " ".join(failed.out.split()).startswith(
        "fail whole dump: Cause: rollout_log_probs was logged after top-p 0.95"
    )
    for accepted in ("top_p", "grid,top_p"):
        passed = run("check", dump, "--accept", accepted)
        assert passed.status == 0
        assert passed.out.splitlines()[-1].startswith("  Passed: ")
        assert "top_p accepted" in passed.out.splitlines()[-1]
    assert run("check", dump, "--accept", "grid").status == 1
    refused(run("check", dump, "--accept", "top_q"), 2, "--accept", "top_q")


def test_a_cause_that_training_lives_with_warns_and_fails_where_causes_are_to() -> None:
    dump = str(CAUSES / "stale_1.parquet")
    warned = checked(0, dump)
    (cause,) = [finding for finding in warned["findings"] if finding["metric"] == "stale_policy"]
    assert (cause["status"], cause["severity"]) == ("warn", "warn")
    assert warned["story"]["first"] == "stale_policy"
    assert run("check", dump, "--fail-on", "cause").status == 1
    assert run("check", dump, "--fail-on", "cause", "--accept", "stale_policy").status == 0
    strict = checked(1, dump, "--strict")
    assert "stale_policy" in {finding["metric"] for finding in strict["findings"] if finding["status"] == "fail"}


@pytest.mark.parametrize("name", ["noise_bf16_fp32", "clean_fp32", "moe_flips_bf16", "fp32_grid_bf16", "tool_clean"])
def test_a_dump_without_a_fault_passes_and_no_finding_speaks_of_its_cause(name: str) -> None:
    found = checked(0, str(CAUSES / f"{name}.parquet"), "--fail-on", "cause")
    assert "absent" not in {finding["rule"] for finding in found["findings"]}


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("mis_k3_kl", "the tokens of each rollout first", "Name k3_kl, or take --profile for slime's own numbers."),
    ],
)
def test_a_frameworks_name_of_another_number_is_refused_with_what_differs(
    name: str, what: str, hint: str, small: str
) -> None:
    ran = run("check", small, "--max", f"{name}=1")
    refused(ran, 2, what)
    assert ran.err.rstrip().endswith(hint)


def test_a_profile_keeps_its_own_names(small: str) -> None:
    held = checked(1, small, "--profile", "verl-0.9", "--max", "rollout_corr/kl=5")
    assert "rollout_corr/kl" in [finding["metric"] for finding in held["findings"]]
    assert not [note for note in held["notes"] if "name of kl" in note]


def test_files_that_are_not_read_are_noted_as_analyze_notes_them(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(Path(BF16).read_bytes())
    (tmp_path / "part-0.json").write_text("{}")
    note = f"1 file (1 .json) in {tmp_path} is not read."
    assert note in run("analyze", str(tmp_path), "--json").json["notes"]
    assert note in json.loads(run("check", str(tmp_path), "--json").out)["notes"]
    assert "1 file (1 .json)" in run("check", str(tmp_path)).out


def flag_states(flag: str, status: int, *args: str) -> dict[Any, str]:
    """Step -> the status of a flag."""
    result = checked(status, STEPS, "--group-by", "step", "--fail-on", flag, *args)
    return {
        finding["key"].get("step"): finding["status"] for finding in result["findings"] if finding["metric"] == flag
    }


def test_flags_of_compare_fail_where_they_hold() -> None:
    assert flag_states("outliers", 1) == {None: "ok", 0: "ok", 1: "ok", 2: "ok", 3: "ok", 4: "fail"}
    assert flag_states("far", 0) == dict.fromkeys((None, 0, 1, 2, 3, 4), "ok")
    both = checked(1, STEPS, "--group-by", "step", "--fail-on", "far", "--fail-on", "outliers")
    assert both["counts"]["rules"] == checked(0, STEPS, "--group-by", "step")["counts"]["rules"] + 2
    lines = " ".join(run("check", STEPS, "--group-by", "step", "--fail-on", "outliers").out.split())
    assert "fail step 4: outliers: a few tokens carry the gap (token_ess below 0.9 at a token_tv below 0.05)" in lines
    assert "Zero or drop these tokens; `rlcorr inspect DUMP --worst 5` shows them." in lines


def test_far_policies_fail(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(step=i) for i in range(4)])
    result = checked(1, dump, "--fail-on", "far")
    (finding,) = (finding for finding in result["findings"] if finding["metric"] == "far")
    assert finding["status"] == "fail"
    assert finding["says"].startswith("far: too far apart for any correction to be safe")


def stale(path: Path, n: int = 64) -> str:
    """A dump whose training policy makes what earned more likely; its advantages are +-1, its rows of two steps."""
    rows: list[dict[str, Any]] = []
    for i in range(n):
        advantage = 1.0 if i % 2 else -1.0
        old = [-1.0 + 0.1 * advantage + 0.01 * math.sin(7 * i + t) for t in range(4)]
        rows.append(row([-1.0] * 4, old, step=i * 2 // n, advantages=[advantage] * 4))
    return parquet(path, rows)


def test_policies_that_earn_differently_have_moved(tmp_path: Path) -> None:
    dump, report = stale(tmp_path / "d.parquet"), tmp_path / "r.json"
    assert run("analyze", dump, "--group-by", "step", "-o", str(report)).status == 0
    for source in ((dump, "--group-by", "step"), (str(report),)):
        result = checked(1, *source, "--fail-on", "moved")
        findings = [finding for finding in result["findings"] if finding["metric"] == "moved"]
        assert [(finding["key"], finding["status"]) for finding in findings] == [
            ({}, "fail"),
            ({"step": 0}, "fail"),
            ({"step": 1}, "fail"),
        ]
        assert findings[0]["says"].startswith("moved: the policies earn different rewards, which is staleness")
    assert run("compare", dump, "--json").json["recommendation"]["flags"][0] == "moved"
    assert run("check", dump, "--max", "advantage_shift=0.2").status == 1


def test_moved_takes_advantages(tmp_path: Path) -> None:
    without = parquet(tmp_path / "d.parquet", [row(sample_id=i) for i in range(40)])
    refused(run("check", without, "--fail-on", "moved"), 3, "--fail-on moved looks at advantage_shift", "--map advant")
    same = parquet(tmp_path / "s.parquet", [row(sample_id=i, advantages=1.0) for i in range(40)])
    (finding,) = (f for f in checked(1, same, "--fail-on", "moved")["findings"] if f["metric"] == "moved")
    assert (finding["status"], finding["says"]) == ("fail", "moved has no data.")


def test_a_saved_report_is_held_to_flags(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert run("analyze", STEPS, "--group-by", "step", "-o", str(report)).status == 0
    saved = checked(1, str(report), "--fail-on", "outliers")
    assert [f["key"] for f in saved["findings"] if f["metric"] == "outliers" and f["status"] == "fail"] == [{"step": 4}]
    document = json.loads(report.read_text())
    for values in (document["metrics"], *(group["metrics"] for group in document["groups"])):
        values.pop("token_tv")
    report.write_text(json.dumps(document))
    refused(run("check", str(report), "--fail-on", "far"), 3, "--fail-on far looks at token_tv")


def test_a_group_without_a_valid_token_is_not_far_and_does_not_pass(tmp_path: Path) -> None:
    near = [row(old=(-0.5, -1.001), step=0, response_mask=[1, 1])] * 3
    dump = parquet(tmp_path / "d.parquet", [*near, row(response_mask=[0, 0], step=1)])
    result = checked(1, dump, "--group-by", "step", "--fail-on", "far")
    of_flag = [(finding["status"], finding["says"]) for finding in result["findings"] if finding["metric"] == "far"]
    assert [status for status, _ in of_flag] == ["ok", "ok", "fail"]
    assert of_flag[2][1] == "far has no data."


def test_a_fault_that_explains_the_gap_is_said_before_the_rules() -> None:
    ran = run("check", str(CAUSES / "top_p08.parquet"))
    assert ran.out.split()[:4] == ["fail", "whole", "dump:", "Cause:"]
    assert "apply the same top-p in training" in " ".join(ran.out.split())
    assert "top_p" not in run("check", STEPS).out


def test_a_metric_that_a_log_lacks_is_answered_with_those_that_it_has(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,epoch,rollout_corr/kl\n" + "".join(f"{step},0.5,0.001\n" for step in range(20)))
    ran = run("check", str(log), "--max", "k3_kl=0.01")
    assert (ran.status, ran.err.splitlines()[1]) == (2, "This log has kl; `rlcorr scalars LOG --all` lists all names.")


def test_a_watched_log_without_k3_kl_says_that_its_rise_raises_no_alarm(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,rollout_corr/kl\n" + "".join(f"{step},{0.001 * 1.2**step}\n" for step in range(20)))
    ran = run("watch", str(log), "--once", "--state", str(tmp_path / "w.rlcorr"))
    assert "The log has no k3_kl, so its rise raises no alarm" in " ".join(ran.out.split())
    assert "No step was judged" not in ran.out
