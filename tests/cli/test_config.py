"""Options from rlcorr.toml and pyproject.toml: which hold, what is refused, and that results say so."""

from dataclasses import replace
from pathlib import Path

import pytest
from running import BF16, analyzed, parquet as written, refused, row, run

from rlcorr_cli import analyze
from rlcorr_cli.commands.app import COMMANDS, LIGHT, function
from rlcorr_cli.commands.typed import options_of

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


def test_command_table_then_flags_and_no_variables(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORR_LIMIT", "30")
    (project / "rlcorr.toml").write_text("limit = 50\n[analyze]\nlimit = 40\n[check]\nlimit = 3\n")
    assert analyzed(BF16)["counts"]["rows"] == 40
    report = analyzed(BF16, "--limit", "20")
    assert report["counts"]["rows"] == 20
    assert not [note for note in report["notes"] if note.startswith("Options from")]


def test_several_values_and_flags(project: Path) -> None:
    dump = written(project / "dump.parquet", [row(step=0, worker="a b"), row(step=1, worker="c")])
    (project / "rlcorr.toml").write_text('group-by = ["step", "worker"]\npool = true')
    report = analyzed(dump)
    assert keys(report) == ["step", "worker"]
    assert "Options from rlcorr.toml: group-by, pool." in report["notes"]


def test_typed_preset_replaces_the_plan_of_the_file(project: Path) -> None:
    (project / "rlcorr.toml").write_text('plan = "missing.toml"\nrs = ["k3.token:,0.01"]\n')
    plan = analyzed(BF16, "--preset", "token_is")["plan"]
    assert plan["weighting"]
    assert not plan["rejections"]


def test_option_of_another_command_is_passed_over(project: Path) -> None:
    (project / "rlcorr.toml").write_text('rules = "rules.toml"\n')
    assert run("analyze", BF16).status == 0
    ran = run("check", BF16)
    named, *error = ran.err.splitlines(keepends=True)
    assert named == "Options from rlcorr.toml: rules.\n"
    refused(replace(ran, err="".join(error)), 2, "rules.toml")


FROM_FILES = """
above_zero accept all allow_overlap baseline batch_by batch_tokens by clean_dump clip_high clip_low cluster_by
coef device dpi dry_run every expect extreme_ratio fail_on format group_by is_ join kind limit loss_agg map max
max_bad_fraction max_decrease max_increase min min_effect mode no_caption nonfinite normalize objective on
on_bad_row once pair_by plan pool preset profile quiet rejected resample row rows_per_file rs rules sample seed
sort strict target_ess target_keep throughput tokenizer vary veto where width workers worst
"""
"""Options that neither run, write, replace nor connect, but for a value that is a URI."""


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in LIGHT])
def test_what_runs_writes_replaces_or_connects_is_typed(command: str, project: Path) -> None:
    for option in options_of(function(command)).values():
        if not option.flags or option.name in FROM_FILES.split():
            continue
        key = next(flag for flag in option.flags if flag.startswith("--"))[2:]
        (project / "rlcorr.toml").write_text(f"{key} = true\n")
        for text in (f"{key} = true", f'[{command}]\n{key} = "touch PWNED"'):
            (project / "rlcorr.toml").write_text(text)
            refused(run(command, BF16), 2, f"rlcorr.toml: {key} is only read from the command line", f"type --{key}")
    assert [path.name for path in project.iterdir()] == ["rlcorr.toml"]


def test_a_command_in_a_file_of_any_folder_above_does_not_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pyproject.toml").write_text('[tool.rlcorr.watch]\nexec = "touch PWNED"\nmax = ["k3_kl=1e-7"]\n')
    below = project / "run"
    below.mkdir()
    monkeypatch.chdir(below)
    refused(run("watch", BF16, "--once", "--every", "0"), 2, "../pyproject.toml: exec is only", "type --exec")
    assert not list(below.iterdir())
    (project / "pyproject.toml").write_text('[tool.rlcorr.watch]\nmax = ["k3_kl=1e-7"]\n')
    ran = run("watch", BF16, "--once", "--every", "0", "--json", "--exec", "cat > told.json")
    assert (ran.status, (below / "told.json").exists()) == (1, True)
    assert ran.err.startswith("Options from ../pyproject.toml: max.\n")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("analyze", 'clean-dump = "s3://bucket/clean.parquet"'),
        ("check", 'baseline = "S3://bucket/report.json"'),
        ("check", 'rules = "hf://datasets/a/b/rules.toml"'),
        ("analyze", 'plan = "gs://bucket/plan.yaml"'),
        ("compare", 'plan = ["mine.toml", "abfs://c@a.dfs.core.windows.net/plan.yaml"]'),
        ("convert", 'join = "s3://bucket/dump.parquet"'),
        ("inspect", 'tokenizer = "https://host/tokenizer.json"'),
    ],
)
def test_a_uri_in_a_file_is_refused(command: str, text: str, project: Path) -> None:
    (project / "rlcorr.toml").write_text(text)
    refused(run(command, BF16), 2, "rlcorr.toml: ", "opens no connection", "and type --")


def test_a_tokenizer_in_a_file_is_no_name_on_a_hub(project: Path) -> None:
    (project / "rlcorr.toml").write_text('tokenizer = "owner/name"')
    assert "There is no file ./owner/name." in run("inspect", BF16, "--worst", "1").err


@pytest.mark.parametrize("command", ["analyze", "diagnose", "compare", "check", "inspect", "sweep", "plot", "convert"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_file_is_named_before_anything_else(command: str, form: str, project: Path) -> None:
    (project / "rlcorr.toml").write_text("limit = 40\n[sweep]\nvary = 'ratio.seq_mean'")
    output = ("-o", "out.parquet") if command == "convert" else ()
    ran = run(command, BF16, *output, *(["--json"] if form == "json" else []))
    assert ran.err.startswith("Options from rlcorr.toml: "), ran.err


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
