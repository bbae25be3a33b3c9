"""The API: every command as a function, plans of every kind, and errors that speak of arguments."""

import inspect as signatures
import json
import keyword
import math
import os
import pickle
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS

import rlcorr_cli
from rlcorr_cli import (
    Plan,
    Report,
    analyze,
    check,
    choose_plan,
    errors,
    filter,
    inspect as inspect_dump,
    plot,
    save,
    to_html,
)
from rlcorr_cli.commands import app, main
from rlcorr_cli.plans.files import plan_to_toml
from rlcorr_cli.plans.presets import PRESETS, preset

ROOT = Path(__file__).parents[1]
BF16 = ROOT / "sample_data" / "smollm2_bf16.parquet"
VERL = {"algorithm": {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}}


@pytest.fixture(scope="module")
def report() -> Report:
    return analyze(BF16, preset="token_is", pictures=True)


def test_a_plan_is_a_plan_a_preset_a_file_or_a_mapping(tmp_path: Path) -> None:
    plan = preset("token_is").plan
    file = tmp_path / "plan.toml"
    file.write_text(plan_to_toml(plan))
    for source in (plan, file, str(file), plan.to_dict(), choose_plan(preset="token_is")):
        assert choose_plan(plan=source).plan == plan
    assert choose_plan(preset="token-is").plan == plan
    assert choose_plan().plan == Plan("disabled")


def test_a_framework_config_is_known_by_its_keys_or_read_by_its_profile(tmp_path: Path) -> None:
    file = tmp_path / "trainer.yaml"
    file.write_text(json.dumps(VERL))
    for source in (VERL, file, VERL["algorithm"]["rollout_correction"]):
        chosen = choose_plan(plan=source, profile="verl-0.9")
        assert chosen.profile is not None
        assert chosen.plan.weighting is not None
        assert chosen.plan.weighting.bounds.high == 2.0
    trl = choose_plan(
        plan={"vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "token_truncate"}
    )
    assert any("TRL" in note for note in trl.notes)


def test_knobs_turn_as_flags_do() -> None:
    chosen = choose_plan(preset="token_is", is_="token:,3", rs="k3.token:,0.01", veto=1e-4, mode="bypass")
    assert chosen.plan.weighting is not None
    assert (chosen.plan.weighting.bounds.high, chosen.plan.mode) == (3.0, "bypass")
    assert [rejection.statistic for rejection in chosen.plan.rejections] == ["k3", "ratio"]


def test_the_notes_of_a_preset_are_passed_on() -> None:
    noted = next(row for row in PRESETS.values() if row.notes and row.plan.mode == "decoupled")
    assert choose_plan(preset=noted.name).notes == noted.notes
    assert choose_plan(plan=choose_plan(preset=noted.name), mode="decoupled").notes == noted.notes


def json_of(*args: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main.run([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_function_returns_what_its_command_prints(capsys: pytest.CaptureFixture[str], report: Report) -> None:
    dump, plan = str(BF16), ("--preset", "token_is")
    printed = json_of("analyze", dump, *plan, capsys=capsys)
    assert replace(report, pictures=None).to_dict() == printed
    assert check(BF16, preset="token_is", max={"kl": 9.0}).to_dict() == json_of(
        "check", dump, *plan, "--max", "kl=9.0", capsys=capsys
    )
    assert filter(BF16, dry_run=True, preset="token_is").to_dict() == json_of(
        "filter", dump, *plan, "--dry-run", capsys=capsys
    )
    assert inspect_dump(BF16, worst=2).to_dict() == json_of("inspect", dump, "--worst", "2", capsys=capsys)
    assert inspect_dump(BF16, row=3).to_dict() == json_of("inspect", dump, "--row", "3", capsys=capsys)


OF_THE_TERMINAL = {"json", "quiet", "debug", "help"}
NO_OPTIONS = {"watch", "pictures", "totals", "summary", "told"}


@pytest.mark.parametrize("command", app.COMMANDS)
def test_every_option_is_an_argument_of_the_same_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([command, "--help-all"]) == 0
    shown = re.findall(r"^  (?:-\w, )?--([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    options = {f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_") for name in {*shown} - OF_THE_TERMINAL}
    parameters = signatures.signature(getattr(rlcorr_cli, command)).parameters
    assert options <= set(parameters)
    by_name = {name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    assert by_name - options <= NO_OPTIONS | OF_THE_TERMINAL
    helped = pydoc.plain(pydoc.render_doc(getattr(rlcorr_cli, command)))
    assert options <= set(re.findall(r"^ +(\w+): ", helped, re.MULTILINE))


INT8 = BF16.with_name("smollm2_int8.parquet")
SAME: Mapping[str, tuple[Callable[[], Any], str]] = {
    "analyze": (
        lambda: analyze(BF16, preset="token_is", is_="token:,3", rs="k3.token:,0.01", veto=1e-4, map=["step=step"]),
        "--preset token_is --is token:,3 --rs k3.token:,0.01 --veto 1e-4 --map step=step",
    ),
    "diagnose": (
        lambda: rlcorr_cli.diagnose(BF16, by="group_id", limit=40, on_bad_row="skip"),
        "--by group_id --limit 40 --on-bad-row skip",
    ),
    "compare": (
        lambda: rlcorr_cli.compare(BF16, preset=["token_is", "geo_rs"], objective="ppo", clip_high=0.3, sort="name"),
        "--preset token_is --preset geo_rs --objective ppo --clip-high 0.3 --sort name",
    ),
    "sweep": (
        lambda: rlcorr_cli.sweep(BF16, is_="token", vary="is.high", mode="decoupled"),
        "--is token --vary is.high --mode decoupled",
    ),
    "filter": (
        lambda: filter(BF16, dry_run=True, preset="geo_rs", rejected="keep", objective="ppo", coef="raw"),
        "--dry-run --preset geo_rs --rejected keep --objective ppo --coef raw",
    ),
    "check": (
        lambda: check(BF16, max={"kl": 9.0, "k3_kl": 1e-9}, min="seq_ess=0.1", accept="top_p", strict=True),
        "--max kl=9.0 --max k3_kl=1e-9 --min seq_ess=0.1 --accept top_p --strict",
    ),
    "diff": (
        lambda: rlcorr_cli.diff(BF16, INT8, pair_by="sample_id", all=True, limit=40, on_bad_row="skip"),
        f"{INT8} --pair-by sample_id --all --limit 40 --on-bad-row skip",
    ),
    "inspect": (
        lambda: inspect_dump(BF16, worst=2, max_bad_fraction=0.1, on_bad_row="skip"),
        "--worst 2 --max-bad-fraction 0.1 --on-bad-row skip",
    ),
}


@pytest.mark.parametrize("command", SAME)
def test_an_argument_does_what_its_option_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    called, typed = SAME[command]
    found = json.loads(json.dumps(called().to_dict()))
    assert main.run([command, str(BF16), *typed.split(), "--json"]) in (0, 1)
    assert found == json.loads(capsys.readouterr().out)


def test_files_are_written_by_the_same_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rlcorr_cli.convert(BF16, tmp_path / "a.parquet", map={"step": "step"}, limit=5, overwrite=True)
    assert (
        main.run(["convert", str(BF16), "-o", str(tmp_path / "b.parquet"), "--map", "step=step", "--limit", "5"]) == 0
    )
    capsys.readouterr()
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    (drawn,) = plot(BF16, output=tmp_path / "a.png", kind="weights", preset="token_is")
    typed = ["--kind", "weights", "--preset", "token_is"]
    printed = json_of("plot", str(BF16), *typed, "-o", str(tmp_path / "b.png"), capsys=capsys)
    assert printed == [{**drawn.to_dict(), "path": str(tmp_path / "b.png")}]


def test_a_diagnosis_knows_what_it_fails_on() -> None:
    assert rlcorr_cli.diagnose(INT8).failing is None
    failed = rlcorr_cli.diagnose(INT8, fail_on="cause")
    assert failed.failing == failed.verdict != "noise"


def test_a_group_prints_its_own_numbers_and_no_others() -> None:
    groups = analyze(BF16.with_name("smollm2_steps.parquet"), preset="token_is", group_by="step").groups
    assert len(groups) == 5
    for group in groups:
        printed = str(group)
        assert f"key={group.key}" in printed
        shown = [other.key["step"] for other in groups if f"'k3_kl': {other.values['k3_kl']!r}" in printed]
        assert shown == [group.key["step"]]
        assert "array" not in printed


def test_a_saved_report_stands_for_its_dump(tmp_path: Path, report: Report) -> None:
    path = save(report, tmp_path / "report.json")
    checks = [check(source, max={"kl": 9.0}).to_dict() for source in (report, path, str(path))]
    assert checks[0] == checks[1] == checks[2]
    assert [plot(source, kind="ratio")[0].caption for source in (report, path)] == [
        plot(BF16, preset="token_is", kind="ratio")[0].caption
    ] * 2


def test_pictures_are_written_where_they_are_told(tmp_path: Path, report: Report) -> None:
    (alone,) = plot(report)
    assert (alone.kind, alone.path) == ("overview", None)
    assert alone.figure is not None
    written = plot(report, tmp_path / "pictures", kind=("ratio", "weights"))
    assert [picture.path for picture in written] == [
        tmp_path / "pictures" / f"{kind}.png" for kind in ("ratio", "weights")
    ]
    assert all(picture.path and picture.path.read_bytes().startswith(b"\x89PNG") for picture in written)


@pytest.mark.full
def test_the_page_is_text(report: Report, tmp_path: Path) -> None:
    assert to_html(report) == save(report, tmp_path / "report.html").read_text()
    assert "<svg" in to_html(report)


class Table:
    """Something in memory."""


# Values of wrong types on purpose, which the type checker is not to refuse.
WRONG: Mapping[str, tuple[Callable[[], Any], str]] = {
    "a table for a path": (lambda: analyze(Table()), "a Table"),
    "one policy in memory": (lambda: analyze({"rollout_log_probs": [[1.0]]}), "<table in memory>: There is no column"),
    "a table of nothing": (lambda: analyze({}), "no columns"),
    "columns of two lengths": (lambda: analyze({"a": [1], "b": [1, 2]}), "a 1, b 2"),
    "a cube": (lambda: analyze({"rollout_log_probs": np.zeros((1, 2, 3))}), "3 dimensions"),
    "tables in a list": (lambda: analyze([pq.read_table(BF16)]), "a Table"),
    "no dump": (lambda: analyze([]), "empty"),
    "unknown preset": (lambda: analyze(BF16, preset="tokn_is"), "token_is"),
    "missing plan file": (lambda: analyze(BF16, plan="none.toml"), "none.toml"),
    "a wrong plan": (lambda: analyze(BF16, plan=3), "an int"),
    "wrong records": (lambda: analyze(BF16, plan={"weighting": 3}), "weighting"),
    "a config without its profile": (
        lambda: analyze(BF16, plan={"rollout_is": "token", "x": 1}),
        "algorithm.rollout_correction",
    ),
    "a preset of another": (lambda: analyze(BF16, preset="opsm", profile="verl-0.9"), "verl-0.9 has no preset 'opsm'"),
    "a plan beside a profile": (lambda: analyze(BF16, plan=Plan("x"), profile="verl-0.9"), 'profile="verl-0.9" takes'),
    "unknown mode": (lambda: analyze(BF16, mode="bypas"), "mode must be one of"),
    "no weighting": (lambda: choose_plan(normalize="batch"), 'is_="token:,2"'),
    "device": (lambda: analyze(BF16, device="cuda:99"), 'device="cpu"'),
    "unknown format": (lambda: analyze(BF16, format="csv"), "csv"),
    "columns": (lambda: analyze(BF16, map={"old_log_probs": "nothing"}), 'map={"old_log_probs": "nothing"}'),
    "a column alone": (lambda: analyze(BF16, map="old_log_probs"), 'map={"old_log_probs": "log_probs"}'),
    "no columns": (lambda: analyze(BF16, map=3), "map should map"),
    "no rows": (lambda: analyze(BF16, limit=0), "limit"),
    "no workers": (lambda: analyze(BF16, workers=0), "workers"),
    "a ratio below 1": (lambda: analyze(BF16, extreme_ratio=0.5), "extreme_ratio must be above 1"),
    "no end of ratios": (lambda: analyze(BF16, extreme_ratio=math.inf), "extreme_ratio must be above 1 and finite"),
    "an action that is none": (lambda: analyze(BF16, on_bad_row="quarantine"), "must be one of error, skip"),
    "a flag that is none": (lambda: analyze(BF16, pool="yes"), "pool should be True or False, not a str"),
    "a number for a condition": (lambda: inspect_dump(BF16, where=3), "where should be text, not an int"),
    "a row without a name": (lambda: inspect_dump(BF16, row=1.5), "row should be a sample_id or a number"),
    "a column without a name": (lambda: analyze(BF16, group_by=["step", 3]), "or a list of names, not an int"),
    "too large a share": (lambda: analyze(BF16, max_bad_fraction=2), "max_bad_fraction should be a number from 0 to 1"),
    "a preset for a file": (lambda: analyze(BF16, plan="token_is"), 'preset="token_is"'),
    "two plans": (lambda: analyze(BF16, plan=Plan("x"), preset="token_is"), "preset and plan both name a plan"),
    "a plan for a name": (lambda: analyze(BF16, preset=Plan("x")), "preset should be a preset's name, not a Plan"),
    "no output": (lambda: filter(BF16, preset="token_is"), "dry_run=True"),
    "an objective without its coefficients": (
        lambda: filter(BF16, dry_run=True, preset="token_is", objective="ppo"),
        'coef="raw"',
    ),
    "a plan that corrects nothing": (lambda: filter(BF16, dry_run=True, plan=None), 'preset="geo_rs"'),
    "the dump as output": (lambda: filter(BF16, BF16, preset="token_is"), "smollm2_bf16.parquet"),
    "an unknown metric": (lambda: check(BF16, max={"klx": 1.0}), "max klx"),
    "an unknown metric of weights": (lambda: check(BF16, max={"rollout_is_mean": 1}), 'preset="token_is"'),
    "no amount": (lambda: check(BF16, max={"kl": float("nan")}), 'max={"kl": nan}'),
    "a missing baseline": (lambda: check(BF16, baseline="b.json"), "Add update_baseline=True"),
    "a baseline in memory": (lambda: check(BF16, baseline=analyze(BF16), update_baseline=True), "update_baseline"),
    "a limit of no baseline": (lambda: check(BF16, max_increase={"kl": "20%"}), 'baseline="report.json"'),
    "unknown kind": (lambda: plot(BF16, kind="pie"), "pie"),
    "unknown order": (lambda: rlcorr_cli.compare(BF16, sort="size"), "sort must be one of"),
    "unknown row": (lambda: inspect_dump(BF16, row="nobody"), "inspect(dumps, worst=5)"),
    "no report": (lambda: to_html("report.json"), "a str"),
    "unknown form": (lambda: save(analyze(BF16, limit=1), "report.xyz"), "report.xyz"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_speak_of_arguments(case: str) -> None:
    call, part = WRONG[case]
    with pytest.raises(errors.RlcorrError) as caught:
        call()
    said = f"{caught.value.message} {caught.value.hint}"
    assert part in said
    assert not re.search(r"(?<![\w-])--?[a-z]", said), said
    assert caught.value.hint
    assert str(caught.value) == caught.value.message
    assert caught.value.__notes__ == [caught.value.hint]  # what a traceback shows below the message


def test_what_is_asked_beside_a_report_is_refused(report: Report) -> None:
    for extra in ({"plan": "geo_rs"}, {"group_by": "step"}, {"limit": 3}, {"profile": "slime"}, {"mode": "bypass"}):
        with pytest.raises(errors.UsageError, match="another plan or grouping"):
            check(report, **extra)


def test_the_face_has_every_command_and_loads_when_asked() -> None:
    assert all(callable(getattr(rlcorr_cli, name)) for name in ("analyze", "check", "filter", "inspect", "plot"))
    light = "import sys, rlcorr_cli; print([n for n in ('numpy', 'torch', 'pyarrow', 'typer') if n in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, timeout=LIMIT_SECONDS).stdout
        == "[]\n"
    )


def test_the_documentation_of_a_function_tells_each_of_its_arguments() -> None:
    functions = [value for name in rlcorr_cli.__all__ if signatures.isfunction(value := getattr(rlcorr_cli, name))]
    n_told = 0
    for function in functions:
        told = dict(re.findall(r"^    (\w+): (.+)", function.__doc__ or "", re.MULTILINE))
        names = set(signatures.signature(function).parameters)
        assert set(told) == (names if "Arguments:" in (function.__doc__ or "") else set()), function.__name__
        n_told += len(told)
    assert n_told > 150
    assert {"map", "on_bad_row", "objective", "watch"} <= set(signatures.signature(analyze).parameters)
    assert signatures.signature(analyze).parameters["extreme_ratio"].default == 2.0


def test_an_argument_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^analyze\(\) got an unexpected keyword argument 'limt'$"):
        analyze(BF16, limt=3)


def test_a_function_travels_to_another_process_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(rlcorr_cli.correct)) is rlcorr_cli.correct


def test_types_are_shipped() -> None:
    assert (Path(rlcorr_cli.__file__).parent / "py.typed").read_bytes() == b""


def test_the_flow_in_the_docstring_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"^    .*$", rlcorr_cli.__doc__ or "", re.MULTILINE)
    assert 5 < len(code) <= 10
    (tmp_path / "dump.parquet").write_bytes(BF16.read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(compile(signatures.cleandoc("\n".join(code)), "rlcorr_cli", "exec"), {})
    assert {path.name for path in tmp_path.iterdir()} == {
        "dump.parquet", "corrected.parquet", "overview.png", "report.html"
    }  # fmt: skip


def test_the_package_lists_its_names_before_any_is_loaded() -> None:
    script = "import sys, rlcorr_cli; print(*dir(rlcorr_cli)); print('numpy' in sys.modules)"
    listed, loads_numpy = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
    ).stdout.splitlines()
    assert {*app.COMMANDS, "Plan", "save", "__version__"} <= {*listed.split()}
    assert loads_numpy == "False"


def test_every_command_is_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(callable(getattr(rlcorr_cli, command)) for command in app.COMMANDS)
    rlcorr_cli.explain("seq_ess")
    rlcorr_cli.presets("geo_rs")
    rlcorr_cli.help("python")
    called = capsys.readouterr().out
    for line in (["explain", "seq_ess"], ["presets", "geo_rs"], ["help", "python"]):
        assert main.run(line) == 0
    assert called == capsys.readouterr().out


CALLS: dict[str, dict[str, Any]] = {
    **{command: {} for command in ("analyze", "check", "diagnose", "compare", "inspect")},
    "sweep": {"vary": "ratio.seq_mean"},
    "filter": {"preset": "geo_rs", "dry_run": True},
    "correct": {"preset": "geo_rs"},
}
"""Command -> what it cannot do without."""


@pytest.mark.parametrize("command", CALLS)
def test_an_argument_left_out_is_what_its_signature_says(command: str) -> None:
    function, given = getattr(rlcorr_cli, command), CALLS[command]
    parameters = signatures.signature(function).parameters
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not signatures.Parameter.empty and name not in given
    }
    table = pq.read_table(BF16).slice(0, 40)
    left_out, named = function(table, **given), function(table, **given, **defaults)
    if command == "correct":
        assert left_out.equals(named)
        return
    seen, expected = (json.dumps(result.to_dict()) for result in (left_out, named))
    assert re.sub(r"<table in memory[^>]*>", "", seen) == re.sub(r"<table in memory[^>]*>", "", expected)


def test_defaults_are_written_once_where_the_argument_is_declared() -> None:
    every = {name for command in app.COMMANDS for name in signatures.signature(getattr(rlcorr_cli, command)).parameters}
    again = re.compile(r"\.get\(\"(\w+)\", ")
    for file in (ROOT / "rlcorr_cli" / "commands").glob("*.py"):
        assert every.isdisjoint(again.findall(file.read_text())), file.name


@pytest.mark.parametrize("device", ["", ", device='auto'"])
def test_correct_looks_for_no_gpu_unless_asked(device: str) -> None:
    code = f"""
import sys, rlcorr_cli, pyarrow.parquet as pq
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args)) if event == "ctypes.dlopen" else None)
rlcorr_cli.correct(pq.read_table({str(BF16)!r}), preset="token_is"{device})
print(any("cuda" in each for each in opened))
"""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, env=env, check=True
    )
    assert ran.stdout.strip() == "False"
