"""`rlcorr scalars`, and `check` and `watch` on a log of metrics."""

import json
from pathlib import Path

import pytest
from running import SAMPLE, run

from rlcorr_cli import api

LOG = str(SAMPLE / "metrics.jsonl")


def test_a_log_is_told_in_every_form(tmp_path: Path) -> None:
    files = [tmp_path / f"course{suffix}" for suffix in (".html", ".md", ".csv", ".json", ".png", ".svg", ".pdf")]
    ran = run("scalars", LOG, *(part for file in files for part in ("-o", str(file))))
    assert ran.status == 0
    assert "rollout_corr/k3_kl stays near 0.000797 until step 19, then rises" in " ".join(ran.out.split())
    assert all(file.stat().st_size > 500 for file in files)
    assert json.loads(files[3].read_text()) == run("scalars", LOG, "--json").json
    assert files[2].read_text().startswith("name,metric,framework,first,worst,last,worst_step,since,factor,doubling,")


def test_unknown_names_are_counted_and_listed_on_demand() -> None:
    assert "4 other names (--all)" in run("scalars", LOG).out
    assert "critic/rewards/mean" in run("scalars", LOG, "--all").out


def test_a_notebook_shows_a_picture_of_a_log() -> None:
    shown = api.scalars(LOG)._repr_html_()
    assert shown is not None
    assert "data:image/png" in shown


def test_check_holds_the_steps_of_a_log_to_rules() -> None:
    passed, failed = run("check", LOG, "--max", "k3_kl=0.1"), run("check", LOG, "--max", "k3_kl=0.01")
    assert (passed.status, failed.status) == (0, 1)
    assert "steps 27 to 30: k3_kl is" in failed.out
    by_name = run("check", LOG, "--max", "rollout_corr/k3_kl=0.01", "--max", "actor/entropy=0.1")
    assert by_name.status == 1
    assert "actor/entropy is" in by_name.out


def test_check_fails_on_a_step_that_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "k3_kl": 0.001}\n{"step": 2, "k3_kl": NaN}\n{"step": 3, "grad_norm": 1.0}\n')
    ran = run("check", str(path))
    assert ran.status == 1
    assert "step 2: k3_kl has no data" in ran.out
    assert "step 3" not in ran.out


def test_a_trainer_s_kl_is_held_to_no_default_rule(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "kl": 0.5, "rollout_corr/k3_kl": 0.0001}\n')
    assert run("check", str(path)).status == 0
    assert "kl is 0.5" in run("check", str(path), "--max", "kl=0.4").out
    path.write_text('{"step": 1, "kl": 0.5, "rollout_corr/kl": 0.0001}\n')
    assert run("check", str(path)).status == 0


@pytest.mark.parametrize(
    "options", [("--preset", "token_is"), ("--group-by", "step"), ("--fail-on", "far"), ("--baseline", "base.json")]
)
def test_check_takes_no_options_of_dumps_with_a_log(options: tuple[str, ...]) -> None:
    ran = run("check", LOG, *options)
    assert ran.status == 2
    assert f"{options[0]} takes a dump, and {LOG} is a log of metrics." in ran.err


def test_a_rule_over_the_whole_is_refused_of_a_log(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmetric = "k3_kl"\nmax = 0.01\nover = "total"\n')
    ran = run("check", LOG, "--rules", str(rules))
    assert ran.status == 2
    assert "is over the whole, and a log of metrics has steps alone" in ran.err


def test_check_takes_a_trainer_s_state() -> None:
    state = str(SAMPLE.parent / "tests" / "golden" / "logs" / "trl-1.16.0.json")
    assert run("check", state, "--max", "logprob_abs_diff_mean=0.01").status == 0
    assert run("check", state, "--max", "logprob_abs_diff_mean=0.0001").status == 1


def test_watch_tells_each_step_of_a_growing_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = Path(LOG).read_text().splitlines(keepends=True)
    Path("log.jsonl").write_text("".join(lines[:10]))
    look = ("watch", "log.jsonl", "--once", "--max", "k3_kl=0.02", "--json")
    first = run(*look)
    assert (first.status, [step["step"] for step in first.json["steps"]]) == (0, [*range(1, 10)])  # 10 may be written
    assert run(*look).json["steps"] == []
    Path("log.jsonl").write_text("".join(lines))
    second = run(*look, "--every", "0")
    assert second.status == 1
    told = json.loads(second.out)
    assert [step["step"] for step in told["steps"]] == [*range(10, 31)]
    assert told["failing"] == [29, 30]
    assert [alarm["names"] for alarm in told["alarms"]] == [["k3_kl doubled"], ["k3_kl"]]


def test_an_alarm_of_a_log_sends_to_scalars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("watch", LOG, "--once", "--every", "0").out
    assert "step 23: k3_kl rises" in told
    assert "`rlcorr scalars LOG` says which steps to record" in " ".join(told.split())


def test_watch_holds_a_log_to_rules_on_any_name_and_to_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    look = ("watch", LOG, "--once", "--every", "0", "--json")
    ran = run(*look, "--max", "actor/entropy=0.51", "--max", "rollout_is_std=0.2")
    assert ran.status == 1
    names = {name for alarm in json.loads(ran.out)["alarms"] for name in alarm["names"]}
    assert {"actor/entropy", "rollout_is_std"} <= names
    refused = run(*look, "--preset", "token_is")
    assert refused.status == 2
    assert "--preset takes a dump" in refused.err


def test_scalars_sends_a_dump_to_analyze() -> None:
    ran = run("scalars", str(SAMPLE / "smollm2_bf16.jsonl"))
    assert ran.status == 3
    assert "For a dump, use `rlcorr analyze DUMP`" in ran.err


def test_commands_on_dumps_send_a_log_to_scalars() -> None:
    ran = run("analyze", LOG)
    assert ran.status == 3
    assert f"{LOG} is a log of metrics." in ran.err
    assert "`rlcorr scalars FILE`" in ran.err
