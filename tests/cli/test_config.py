"""Options from rlcorr.toml, pyproject.toml and variables: which hold, what is refused, and that results say so."""

from pathlib import Path

import pytest
from running import BF16, analyzed, refused, row, run
from running import parquet as written

from rlcorr_cli import analyze

ROWS = [{"rollout_log_probs": [-0.5, -1.0], "logp": [-0.25, -2.0], "step": step} for step in (0, 1)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(report: dict[str, object]) -> list[object]:
    """The columns of a report's groups."""
    groups: list[dict[str, dict[str, object]]] = report["groups"]  # pyrefly: ignore[bad-assignment]
    return sorted({name for group in groups for name in group["key"]})


def test_file_sets_options_and_the_result_says_so(project: Path) -> None:
    dump = written(project / "dump.parquet", ROWS)
    (project / "rlcorr.toml").write_text('map = { old_log_probs = "logp" }\ngroup-by = "step"\n')
    report = analyzed(dump)
    assert keys(report) == ["step"]
    assert "Options from rlcorr.toml: map, group-by." in report["notes"]


@pytest.mark.parametrize("command", ["analyze", "diagnose", "compare", "check", "inspect", "sweep"])
def test_terminal_and_files_say_where_options_come_from(command: str, project: Path) -> None:
    (project / "rlcorr.toml").write_text("limit = 40\n[sweep]\nvary = 'ratio.seq_mean'")
    ran = run(command, BF16)
    assert " ".join(ran.out.split()).count("Options from rlcorr.toml: ") == 1, ran.out + ran.err


def test_nearest_file_upward_holds_and_its_paths_start_at_its_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text('[tool.rlcorr]\nplan = "mine.toml"\n')
    (project / "mine.toml").write_text('name = "mine"\n[weighting]\nscope = "token"\nhigh = 2.0\n')
    below = project / "runs" / "today"
    below.mkdir(parents=True)
    (project / "runs" / "pyproject.toml").write_text('[project]\nname = "rlcorr"\n')
    monkeypatch.chdir(below)
    report = analyzed(BF16)
    assert report["plan"]["name"] == "mine"
    assert "Options from ../../pyproject.toml: plan." in report["notes"]
    (below / "rlcorr.toml").write_text('preset = "geo_rs"')
    assert analyzed(BF16)["plan"]["name"] != "mine"


def test_command_table_then_variables_then_flags(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "rlcorr.toml").write_text("limit = 50\n[analyze]\nlimit = 40\n[check]\nlimit = 3\n")
    assert analyzed(BF16)["counts"]["rows"] == 40
    monkeypatch.setenv("RLCORR_LIMIT", "30")
    report = analyzed(BF16)
    assert report["counts"]["rows"] == 30
    assert "Options from the environment: RLCORR_LIMIT." in report["notes"]
    report = analyzed(BF16, "--limit", "20")
    assert report["counts"]["rows"] == 20
    assert not [note for note in report["notes"] if note.startswith("Options from")]


def test_variable_holds_several_values_and_flags(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = written(project / "dump.parquet", [row(step=0, worker="a b"), row(step=1, worker="c")])
    monkeypatch.setenv("RLCORR_GROUP_BY", "step worker")
    assert keys(analyzed(dump)) == ["step", "worker"]
    (project / "rlcorr.toml").write_text("pool = true")
    assert "Options from rlcorr.toml: pool." in analyzed(dump)["notes"]
    monkeypatch.setenv("RLCORR_POOL", "perhaps")
    refused(run("analyze", dump), 2, "RLCORR_POOL should be 1 or 0")


def test_typed_preset_replaces_the_plan_of_the_file(project: Path) -> None:
    (project / "rlcorr.toml").write_text('plan = "missing.toml"\nrs = ["k3.token:,0.01"]\n')
    plan = analyzed(BF16, "--preset", "token_is")["plan"]
    assert plan["weighting"]
    assert not plan["rejections"]


def test_option_of_another_command_is_passed_over(project: Path) -> None:
    (project / "rlcorr.toml").write_text('rules = "rules.toml"\n')
    assert run("analyze", BF16).status == 0
    refused(run("check", BF16), 2, "rules.toml")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('group_by = "step"', ("rlcorr.toml: there is no option group_by.", "Try group-by.")),
        ('[chek]\nrules = "r.toml"', ("rlcorr.toml: there is no option chek.",)),
        ('[analyze]\nrules = "r.toml"', ("rlcorr.toml: analyze has no option rules.",)),
        ("json = true", ("rlcorr.toml: json is only read from the command line.", "type --json")),
        ("limit = [1]", ("rlcorr.toml: limit should be text or a number",)),
        ("pool = 1", ("rlcorr.toml: pool should be true or false",)),
        ("map = { old_log_probs = [1] }", ("map should be",)),
        ("analyze = 1", ("rlcorr.toml: analyze is no table.",)),
        ("limit = ", ("rlcorr.toml",)),
        ('mode = "bypas"', ("--mode", "Options from rlcorr.toml: mode.")),
        ('limit = "many"', ("--limit", "Options from rlcorr.toml: limit.")),
    ],
)
def test_what_cannot_be_is_refused(text: str, parts: tuple[str, ...], project: Path) -> None:
    (project / "rlcorr.toml").write_text(text)
    refused(run("analyze", BF16), 2, *parts)


def test_help_light_commands_and_python_read_no_file(project: Path) -> None:
    (project / "rlcorr.toml").write_text("nonsense = 1")
    for args in (("analyze", "--help"), ("analyze", "--help-all"), ("presets",), ("presets", "--help"), ("help", "ci")):
        assert run(*args).status == 0
    assert not [note for note in analyze(BF16).notes if "Options from" in note]
