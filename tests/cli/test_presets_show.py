"""Lists of presets, presets in their frameworks' words, and frameworks' configs on the command line."""

import re
from pathlib import Path

import pytest
from running import BF16, refused, run

from rlcorr_cli.plans.files import parse, plan_from_dict
from rlcorr_cli.plans.plan import Bounds, Weighting
from rlcorr_cli.plans.presets import ALIASES, PRESETS, preset

CONFIGS = {name: row.config for name, row in PRESETS.items() if row.config is not None}


def test_the_command_says_whose_config_it_read(tmp_path: Path) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(CONFIGS["trl_token_mask"].text)
    report = run("analyze", BF16, "--plan", str(path), "--json").json
    assert any("read as TRL's config" in note for note in report["notes"])
    assert report["plan"]["weighting"]["outside"] == "zero"


@pytest.mark.parametrize("name", ["geo_rs", "nemo_tis", "opsm", "geo_is"])
def test_presets_show_prints_the_config_and_the_plan(name: str) -> None:
    shown = run("presets", "show", name).out
    config = CONFIGS.get(preset(name).name)
    assert config is None or config.text in shown
    assert "# As a plan file, for --plan:" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_presets_is_a_table_by_framework_and_deed_of_every_name() -> None:
    lines = run("presets").out.splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 80
    framework, deed, deeds = "", "", dict[str, tuple[str, str]]()
    table = lines[lines.index("") + 1 :]
    for line in table[: table.index("")]:
        found = re.fullmatch(r"(\S*) +(?:(look|weigh|reject|both) +)?(.+)", line)
        assert found
        framework, deed = found[1] or framework, found[2] or deed
        deeds |= dict.fromkeys(found[3].split(), (framework, deed))
    assert {ALIASES.get(name, name) for name in deeds} == set(PRESETS)
    assert len(deeds) == len(PRESETS)
    assert deeds["token_is"] == ("verl", "weigh")
    assert deeds["geo_rs"] == ("verl", "reject")
    assert deeds["disabled"] == ("verl", "look")
    assert deeds["bypass_pg_geo_rs_token_tis"] == ("verl_0.9", "both")
    assert deeds["trl_sequence_mask"] == ("trl", "weigh")


def test_presets_list_says_what_each_is_for_and_cuts_nothing() -> None:
    lines = run("presets", "list").out.splitlines()
    assert max(map(len, lines)) <= 80
    rows, name = dict[str, str](), ""
    for line in (line for line in lines if line.startswith("  ")):
        name, when = line.split(maxsplit=1) if line[2] != " " else (name, line.strip())
        rows[name] = f"{rows[name]} {when}" if name in rows else when
    assert {ALIASES.get(name, name): when for name, when in rows.items()} == {
        row.name: row.when for row in PRESETS.values()
    }


def test_a_framework_lists_its_presets() -> None:
    shown = run("presets", "trl").out
    assert shown == run("presets", "TRL").out
    names = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    assert names == [name for name in PRESETS if name.startswith("trl_")]
    assert "verl 0.9" in run("presets", "verl").out


@pytest.mark.parametrize("name", ["geo_rs", "nemo-tis", "opsm"])
def test_a_name_alone_shows_the_preset(name: str) -> None:
    assert run("presets", name).out == run("presets", "show", name).out


def test_a_preset_is_shown_with_its_other_names() -> None:
    assert "Also named token_is, token_tis." in run("presets", "token_is").out


def test_a_config_or_launch_script_is_shown_as_the_plan_that_it_is_read_as(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python3 train.py --use-tis --tis-clip 3.0 --lr 1e-6")
    shown = run("presets", str(path)).out
    head, _, plan = shown.partition("# As a plan file, for --plan:\n")
    notes = " ".join(head.replace("\n# ", " ").split())
    assert "read as slime's config" in notes
    assert "not read: lr." in notes
    assert plan_from_dict(parse(plan, ".toml").data).weighting == Weighting("token", Bounds(0.0, 3.0))
    (row,) = run("presets", str(path), "--json").json
    assert (row["name"], row["weighting"]["high"], row["source"]) == ("slime", 3.0, str(path))


def test_presets_are_listed_for_programs() -> None:
    assert [row["name"] for row in run("presets", "--json").json] == list(PRESETS)
    assert [row["name"] for row in run("presets", "geo-rs", "--json").json] == ["decoupled_geo_rs"]
    assert len(run("presets", "slime", "--json").json) == 4


def test_an_unknown_preset_or_framework_gets_the_nearest() -> None:
    ran = run("presets", "trll_token_mask")
    assert (ran.status, ran.out) == (2, "")
    assert "trl_token_mask" in ran.err


def test_a_preset_under_a_profile_gives_what_its_config_gives(tmp_path: Path) -> None:
    path = tmp_path / "trainer.yaml"
    path.write_text("algorithm:\n  rollout_correction:\n    rollout_is: token\n    rollout_is_threshold: 2.0\n")
    by_preset = run("analyze", BF16, "--profile", "verl-0.9", "--preset", "token_is", "--json").json
    by_config = run("analyze", BF16, "--profile", "verl-0.9", "--plan", str(path), "--json").json
    assert by_preset["metrics"] == by_config["metrics"]
    assert by_preset["plan"] == by_config["plan"]
    note = "decoupled_token_is as verl-0.9 has it: rollout_is: token, rollout_is_threshold: 2.0."
    assert note in by_preset["notes"]
    refused(run("analyze", BF16, "--profile", "verl-0.9", "--preset", "opsm"), 2, "verl-0.9 has no preset 'opsm'")


def test_a_plan_file_of_nemo_says_what_becomes_of_infinite_weights() -> None:
    shown = run("presets", "show", "nemo_tis").out
    assert "token <= 2 (clamp), 0 beyond float32" in shown
    text = shown.split("# As a plan file, for --plan:")[1]
    assert plan_from_dict(parse(text, ".toml").data) == preset("nemo_tis").plan
    assert preset("nemo_tis").plan.id != preset("trl_token_truncate").plan.id
