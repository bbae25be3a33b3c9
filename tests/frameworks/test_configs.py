"""Peers' config blocks and our own plan files: what they are read as, and what is refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from made import observed, row

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.profiles import profile_called
from rlcorr_cli.frameworks.read import PROFILES, read_plan
from rlcorr_cli.plans.files import load, plan_to_toml
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.totals.view import Numbers

VERL = PROFILES["verl-0.9"]


FORMS: dict[str, Callable[[Plan], str]] = {
    "toml": plan_to_toml,
    "yaml": lambda plan: yaml.safe_dump(plan.to_dict()),
    "json": lambda plan: json.dumps(plan.to_dict()),
}


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_a_plan_file(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"plan.{suffix}"
    path.write_text(FORMS[suffix](PRESETS[name].plan))
    found = read_plan(str(path), None)
    assert found.plan == PRESETS[name].plan
    assert found.notes == ()


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_plan_without_limit_survives_a_plan_file(suffix: str, tmp_path: Path) -> None:
    weighting = Weighting("geometric", Bounds(0.5), "zero", "batch")
    plan = Plan("mine", weighting, log_ratio_limit=None, limit_on="token", mode="bypass", loss="reinforce")
    path = tmp_path / f"plan.{suffix}"
    path.write_text(FORMS[suffix](plan))
    assert read_plan(str(path), None).plan == plan


def test_a_plan_file_names_every_wrong_key(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    rejection = '[[rejections]]\nstatistic = "k3"\nscope = "token"\nhihg = 1\n'
    path.write_text('nam = "x"\n[weighting]\nscope = "tokens"\n' + rejection)
    with pytest.raises(UsageError, match=r"plan\.toml.* nam, rejections\[0\]\.hihg\."):
        read_plan(str(path), None)
    path.write_text('[weighting]\nscope = "tokens"\n')
    with pytest.raises(UsageError, match=r"plan\.toml.*weighting\.scope"):
        read_plan(str(path), None)


@pytest.mark.parametrize("name", PROFILES)
def test_an_unknown_key_is_refused_with_the_nearest(name: str) -> None:
    known = PROFILES[name].keys[0]
    with pytest.raises(UsageError) as caught:
        PROFILES[name].read({known + "x": 1})
    assert f"has no option '{known}x'" in caught.value.message
    assert known in caught.value.hint


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"Unknown profile 'verl-0\.5'") as caught:
        profile_called("verl-0.5")
    assert "verl-0.9" in caught.value.hint


@pytest.mark.parametrize(
    "config",
    [
        {"rollout_rs": "geometric", "rollout_rs_threshold": 1.01},
        {"rollout_rs_threshold_lower": 0.5},
        {"rollout_token_veto_threshold": 1e-4},
    ],
)
@pytest.mark.parametrize("name", ["verl-0.7", "verl-0.8", "verl-0.9"])
def test_options_of_verl_up_to_0_7_0_are_refused_with_the_profile_that_has_them(
    name: str, config: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as caught:
        PROFILES[name].read(config)
    assert caught.value.hint == "verl 0.7.0 and earlier have it: --profile verl-0.6 reads it."
    PROFILES["verl-0.6"].read(config)


def test_a_threshold_of_icepop_is_refused_by_0_7_with_the_profiles_that_have_it() -> None:
    config = {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}
    with pytest.raises(UsageError, match=r"verl-0\.7 has no rollout_is_threshold of two ends") as caught:
        PROFILES["verl-0.7"].read(config)
    assert caught.value.hint == "verl has it from 0.8.0 on: --profile verl-0.8 or verl-0.9 reads it."


@pytest.mark.parametrize("text", ["0.5_5_0", "nan", "nan_2", "0.5_nan", "inf", "2_0.5", "-1", "0_2", "high", "0.5_"])
def test_verl_thresholds_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        VERL.read({"rollout_is": "token", "rollout_is_threshold": text})
    with pytest.raises(UsageError):
        VERL.read({"rollout_rs": "token_k1", "rollout_rs_threshold": text})


def test_verl_low_high_threshold_zeroes_outside() -> None:
    found = VERL.read({"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"})
    assert found.weighting == Weighting("token", Bounds(0.5, 5.0), "zero")


def test_verl_k1_bounds_are_logs_of_ratios_on_minus_l() -> None:
    (found,) = VERL.read({"rollout_rs": "token_k1", "rollout_rs_threshold": "0.6_1.4"}).rejections
    assert found == Rejection("k1", "token", Bounds(math.log(0.6), math.log(1.4)), "token_k1")


def test_verl_0_6_low_is_1_over_high_unless_given() -> None:
    (found,) = PROFILES["verl-0.6"].read({"rollout_rs": "geometric", "rollout_rs_threshold": 1.25}).rejections
    assert found.bounds == Bounds(0.8, 1.25)


@pytest.mark.parametrize(
    ("threshold", "noted"), [("0.6_1.4", True), ("0.5_2.0", False), ("2.0", False), ("0.99_1.011", True)]
)
def test_k1_bounds_that_are_not_reciprocal_are_noted(threshold: str, noted: bool) -> None:
    plan = VERL.read({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": threshold})
    assert bool(VERL.notes(plan)) == noted


def test_the_note_says_which_ratios_are_kept() -> None:
    plan = VERL.read({"rollout_rs": "token_k1", "rollout_rs_threshold": "0.6_1.4"})
    (note,) = VERL.notes(plan)
    assert "0.7143 to 1.667" in note


def test_unquoted_low_high_in_yaml_is_a_number_and_noted_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text("rollout_is: token\nrollout_is_threshold: 0.5_2\n")
    found = read_plan(str(path), VERL)
    assert found.plan.weighting == Weighting("token", Bounds(None, 0.52))
    (note,) = found.notes
    assert "line 2" in note
    assert "0.52" in note


def test_quoted_low_high_in_yaml_is_two_bounds_and_not_noted(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text("rollout_is: token\nrollout_is_threshold: '0.5_2'\n")
    found = read_plan(str(path), VERL)
    assert found.plan.weighting == Weighting("token", Bounds(0.5, 2.0), "zero")
    assert found.notes == ()


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "0.0001", "1.0e-4"])
def test_yaml_exponents_are_numbers(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"high: {text}\n")
    assert load(str(path)) == ({"high": 1e-4}, ())


@pytest.mark.parametrize("above", [("algorithm", "rollout_correction"), ("rollout_correction",), ()])
def test_a_verl_block_is_found_where_it_stands(above: tuple[str, ...], tmp_path: Path) -> None:
    config: Any = {"rollout_is": "sequence", "rollout_is_threshold": 3.0}
    for key in reversed(above):
        config = {key: config, "other_option": 1}
    path = tmp_path / "trainer.yaml"
    path.write_text(yaml.safe_dump(config))
    assert read_plan(str(path), VERL).plan.weighting == Weighting("sequence", Bounds(None, 3.0))


def test_a_wrong_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trainer.yaml"
    path.write_text("algorithm: {rollout_correction: {rollout_is: token, rollout_iz: 3}}\n")
    with pytest.raises(UsageError, match=r"trainer\.yaml: verl-0\.9 has no option 'rollout_iz'"):
        read_plan(str(path), VERL)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("plan.ini", "", "cannot tell"),
        ("plan.json", "{", "not valid JSON"),
        ("plan.toml", "x = ", "not valid TOML"),
        ("plan.yaml", "a: [", "not valid YAML"),
        ("plan.yaml", "- 1", "no mapping"),
    ],
)
def test_unreadable_plan_files_are_usage_errors(name: str, text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        read_plan(str(path), None)


def test_a_missing_plan_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot read the plan file"):
        read_plan(str(tmp_path / "none.toml"), None)


def test_verl_counts_empty_sequences_and_canonical_does_not() -> None:
    # One token of ratio 2 at a = -ln 2, b = -2 ln 2, and one sequence of no valid token.
    ln2 = math.log(2.0)
    rows = [row([ln2], probs=[-ln2]), row([0.0], mask=[0])]
    plan = PROFILES["verl-0.6"].read({"rollout_is": "token", "rollout_is_threshold": 5.0})
    found = PROFILES["verl-0.6"].write(Numbers.of_plan(observed(rows, plan).totals, plan, 0), plan)
    expected = {
        "rollout_is_mean": 2.0,
        "rollout_is_seq_mean": (2 + 0) / 2,
        "rollout_is_seq_std": math.sqrt(2.0),
        "rollout_is_seq_min": 0.0,
        "rollout_is_seq_fraction_low": 0.5,
        "training_ppl": (2 + 1) / 2,
        "rollout_ppl": (4 + 1) / 2,
        "training_log_ppl": ln2 / 2,
        "log_ppl_diff": -ln2 / 2,
        "log_ppl_diff_max": 0.0,
        "ppl_ratio": (0.5 + 1) / 2,
        "chi2_seq": (4 - 1 + 0) / 2,
        "kl": -ln2,
    }
    assert {name: found[f"rollout_corr/{name}"] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-15)
