"""What frameworks do at the edges of their configs and data: tiny weights, modes that correct nothing, no token at all.

Each row's log-ratio is old - rollout; numbers are from the frameworks' formulas, worked out beside the test.
"""

import json
from math import exp
from pathlib import Path
from typing import Any

import pytest
from profiled import filtered, report

from rlcorr_cli.api import filter
from rlcorr_cli.commands import main
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frameworks.read import PROFILES, read_plan

VERL = ("verl-0.6", "verl-0.7", "verl-0.8", "verl-0.9")
BYPASS_PG = {"bypass_mode": True, "use_policy_gradient": True}
VETO = {"rollout_token_veto_threshold": 0.5}
THIRTEEN = {
    f"rollout_corr/{name}"
    for name in (
        *("kl", "k3_kl", "training_ppl", "training_log_ppl", "rollout_ppl", "rollout_log_ppl", "chi2_token"),
        *("log_ppl_diff", "log_ppl_abs_diff", "log_ppl_diff_max", "log_ppl_diff_min", "ppl_ratio", "chi2_seq"),
    )
}


def row(old: list[float], rollout: list[float], **more: Any) -> dict[str, Any]:
    return {"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": [1] * len(old), **more}


def bypassed(old: list[float], rollout: list[float]) -> dict[str, Any]:
    """A row whose current policy is what `old` is in decoupled mode."""
    return row(rollout, rollout, current_log_probs=old)


def config_of(path: Path, config: dict[str, Any], profile: str = "") -> ChosenPlan:
    path.write_text(json.dumps(config))
    return read_plan(str(path), PROFILES[profile] if profile else None)


# A product of e^-20.5, limited to e^-20 = 2.06e-9: not above 1e-8, so nothing is divided.
TINY = [row([-30.0], [-9.5])]


@pytest.mark.parametrize("profile", VERL)
def test_verl_leaves_weights_of_a_tiny_mean_alone(profile: str, tmp_path: Path) -> None:
    config = {"rollout_is": "sequence", "rollout_is_batch_normalize": True}
    ((_, weights),) = filtered(tmp_path, profile, config, TINY)
    assert weights == pytest.approx([exp(-20)], rel=1e-6)
    metrics = report(tmp_path, profile, config, TINY)["metrics"]
    assert metrics["rollout_corr/rollout_is_batch_norm_factor"] == 1.0


def test_slime_leaves_weights_of_a_tiny_mean_alone(tmp_path: Path) -> None:
    config = {"tis_level": "sequence", "tis_batch_normalize": True}
    ((_, weights),) = filtered(tmp_path, "slime", config, TINY)
    assert weights == pytest.approx([exp(-20)], rel=1e-6)
    metrics = report(tmp_path, "slime", config, TINY)["metrics"]
    assert metrics["mis_batch_norm_factor"] == 1.0
    assert metrics["mis_is_ratio_mean_final"] == pytest.approx(exp(-20))


def test_verl_0_9_adds_1e_8_to_the_mean_of_its_ess(tmp_path: Path) -> None:
    # Two weights of e^-20: 1 / mean((w / (w + 1e-8))^2) = (1 + 1e-8 e^20)^2.
    rows = [row([-21.0], [-1.0]), row([-21.0], [-1.0])]
    metrics = report(tmp_path, "verl-0.9", {"rollout_is": "sequence"}, rows)["metrics"]
    assert metrics["rollout_corr/rollout_is_eff_sample_size"] == pytest.approx((1 + 1e-8 * exp(20)) ** 2)
    assert metrics["rollout_corr/rollout_is_eff_sample_size"] == pytest.approx(34.24, abs=0.01)


def test_slime_without_weights_rejects_nothing(tmp_path: Path) -> None:
    rows = [row([-1.0, -1.0], [-1.1, -4.0])]
    config = {"use_tis": False, "use_rs": True}
    reported = report(tmp_path, "slime", config, rows)
    assert len(reported["metrics"]) == 11
    assert not any("rs" in name.split("_") for name in reported["metrics"])
    assert reported["plan"]["rejections"] == []
    assert any("slime does nothing with use_rs" in note for note in reported["notes"])


def test_verl_0_6_bypass_with_the_ppo_loss_logs_its_diagnostics_alone(tmp_path: Path) -> None:
    config = {"bypass_mode": True, "rollout_is": "token", "rollout_rs": "token", "rollout_rs_threshold": 2.0, **VETO}
    reported = report(tmp_path, "verl-0.6", config, [bypassed([-1.0, -1.0], [-1.1, -4.0])])
    assert set(reported["metrics"]) == THIRTEEN
    (note,) = (note for note in reported["notes"] if "verl 0.6.1 does nothing with" in note)
    assert "rollout_is and rollout_rs and rollout_token_veto_threshold" in note


# Row 1 has a token of ratio e^-1 < 0.5.
VETOED = [bypassed([-2.0, -1.0], [-1.0, -1.0]), bypassed([-1.0, -1.0], [-1.0, -1.0])]


def test_verl_0_6_bypass_logs_a_veto_that_it_does_not_apply(tmp_path: Path) -> None:
    reported = report(tmp_path, "verl-0.6", {**BYPASS_PG, **VETO}, VETOED)
    assert reported["metrics"]["rollout_corr/rollout_is_veto_fraction"] == 1 / 2
    assert reported["metrics"]["rollout_corr/rollout_is_catastrophic_token_fraction"] == 1 / 4
    assert any("does not apply it" in note for note in reported["notes"])
    rows = filtered(tmp_path, "verl-0.6", {**BYPASS_PG, **VETO}, VETOED)
    assert [mask for mask, _ in rows] == [[1, 1], [1, 1]]


def test_verl_0_6_bypass_applies_a_veto_beside_rollout_rs(tmp_path: Path) -> None:
    config = {**BYPASS_PG, **VETO, "rollout_rs": "token", "rollout_rs_threshold": 100.0}
    assert [mask for mask, _ in filtered(tmp_path, "verl-0.6", config, VETOED)] == [[0, 0], [1, 1]]


def test_verl_0_6_decoupled_applies_a_veto_alone(tmp_path: Path) -> None:
    rows = [row([-2.0, -1.0], [-1.0, -1.0]), row([-1.0, -1.0], [-1.0, -1.0])]
    assert [mask for mask, _ in filtered(tmp_path, "verl-0.6", VETO, rows)] == [[0, 0], [1, 1]]


@pytest.mark.parametrize("applied", [True, False])
def test_a_veto_survives_a_plan_file_applied_or_not(applied: bool, tmp_path: Path) -> None:
    config = VETO if applied else {**BYPASS_PG, **VETO}
    plan = PROFILES["verl-0.6"].read(config)
    assert [rejection.applied for rejection in plan.rejections] == [applied]
    assert config_of(tmp_path / "plan.json", plan.to_dict()).plan == plan


@pytest.mark.parametrize("profile", VERL[1:])
def test_filter_writes_no_weights_that_the_loss_does_not_take(profile: str, tmp_path: Path) -> None:
    # Under PPO in bypass mode the mask counts and weights are for metrics: token_k2 = 2 > 1 takes the second token.
    config = {"bypass_mode": True, "rollout_is": "token", "rollout_rs": "token_k2", "rollout_rs_threshold": 1.0}
    rows = [bypassed([-1.0, -1.0], [-1.5, -3.0])]
    assert filtered(tmp_path, profile, config, rows) == [([1, 0], None)]
    metrics = report(tmp_path, profile, config, rows)["metrics"]
    assert metrics["rollout_corr/rollout_is_max"] == pytest.approx(exp(2) if profile == "verl-0.7" else 2.0)


def test_rows_are_not_drawn_by_weights_that_the_loss_does_not_take(tmp_path: Path) -> None:
    # Of two rows of weight 2 and e^-20 both are drawn about as often, by their masks; by weight only the first is.
    config = {"bypass_mode": True, "rollout_is": "token"}
    rows = [bypassed([-1.0], [-3.0]), bypassed([-21.0], [-1.0])]
    path, plan = tmp_path / "dump.jsonl", PROFILES["verl-0.9"].read(config)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert filter(path, dry_run=True, plan=plan, resample=1000).rows_dropped == 0
    drawn_by_weight = PROFILES["verl-0.9"].read({"rollout_is": "token"})
    decoupled = [{**row, "old_log_probs": row["current_log_probs"]} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in decoupled))
    assert filter(path, dry_run=True, plan=drawn_by_weight, resample=1000).rows_dropped == 1


def test_filter_writes_the_weights_that_reinforce_takes(tmp_path: Path) -> None:
    config = {"bypass_mode": True, "loss_type": "reinforce", "rollout_is": "token"}
    ((_, weights),) = filtered(tmp_path, "verl-0.9", config, [bypassed([-1.0, -1.0], [-1.5, -3.0])])
    assert weights == pytest.approx([exp(0.5), 2.0], rel=1e-6)


def test_icepop_with_every_token_outside_has_ess_0_and_a_note(tmp_path: Path) -> None:
    config = {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"}
    reported = report(tmp_path, "verl-0.9", config, [row([-1.0, -1.0], [-4.0, -5.0])])
    assert reported["metrics"]["rollout_corr/rollout_is_eff_sample_size"] == 0.0
    assert reported["metrics"]["rollout_corr/rollout_is_oob_ratio"] == 1.0
    assert any("verl stops there" in note for note in reported["notes"])


@pytest.mark.parametrize(
    ("more", "noted"),
    [
        ({"tis_ratio_type": "sequence"}, "tis_ratio_type: sequence"),
        ({"sequence_mask_metric": "geometric"}, "sequence_mask_metric: geometric"),
        ({"tis_ratio_type": "token"}, ""),
        ({}, ""),
    ],
)
def test_skyrl_masks_in_turn_are_noted(more: dict[str, str], noted: str, tmp_path: Path) -> None:
    config = {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0, **more}
    block = {"trainer": {"algorithm": {"off_policy_correction": config}}}
    notes = [note for note in config_of(tmp_path / "skyrl.json", block).notes if "SkyRL computes" in note]
    assert len(notes) == bool(noted)
    assert all(noted in note for note in notes)


def test_slime_clip_down_to_0_is_a_clip(tmp_path: Path) -> None:
    config = {"tis_mode": "clip", "tis_lower_bound": 0.0, "tis_upper_bound": 2.0}
    metrics = report(tmp_path, "slime", config, [row([-1.0, -1.0], [-1.0, -4.0])])["metrics"]
    assert metrics["mis_tis_clip_fraction_low"] == 0.0
    assert metrics["mis_tis_clip_fraction_high"] == 0.5
    assert "mis_tis_truncate_fraction" not in metrics


def test_slime_normalises_no_geometric_weights() -> None:
    with pytest.raises(UsageError, match="tis_batch_normalize: true and tis_level: geometric"):
        PROFILES["slime"].read({"tis_level": "geometric", "tis_batch_normalize": True})


def test_empty_rows_count_in_their_own_batch(tmp_path: Path) -> None:
    # Step 1: weights 2 and, of an empty row, 0, so that 1 divides; step 2: the weight e^-1 alone, which becomes 1.
    config = {"rollout_is": "sequence", "rollout_is_batch_normalize": True}
    empty = {**row([-1.0], [-1.0], step=1), "response_mask": [0]}
    rows = [row([-1.0], [-5.0], step=1), empty, row([-2.0], [-1.0], step=2)]
    written = filtered(tmp_path, "verl-0.6", config, rows, "--batch-by", "step")
    assert [weights for _, weights in written] == [[2.0], [0.0], [1.0]]


@pytest.mark.parametrize("profile", VERL)
def test_a_constant_weight_has_no_spread(profile: str, tmp_path: Path) -> None:
    metrics = report(tmp_path, profile, {"rollout_is": "token"}, [row([-1.0, -1.0], [-1.5, -1.5])])["metrics"]
    assert metrics["rollout_corr/rollout_is_std"] == 0.0


NORMALISED = {
    "verl-mismatch": {"rollout_is_threshold": 2.0, "rollout_is_mode": "mask", "rollout_is_veto_threshold": 0.1},
    "verl-0.6": {"rollout_is": "token", "rollout_rs": "sequence", "rollout_is_batch_normalize": True},
    "verl-0.7": {"rollout_is": "sequence", "rollout_rs": "seq_mean_k1", "rollout_rs_threshold": 2.0},
    "verl-0.8": {"rollout_is": "token", "rollout_rs": "token_k1", "rollout_rs_threshold": 2.0},
    "verl-0.9": {"rollout_is": "token", "rollout_rs": "token_k2,seq_max_k3", "rollout_rs_threshold": 2.0},
    "slime": {"tis_batch_normalize": True, "use_rs": True, "rs_veto_threshold": 0.1},
}


@pytest.mark.parametrize("profile", NORMALISED)
def test_a_group_without_a_valid_token_has_no_numbers(profile: str, tmp_path: Path) -> None:
    rows = [
        row([-1.0, -1.0], [-1.5, -3.0], step=1),
        {**row([-1.0], [-1.5], step=2), "response_mask": [0]},
        {**row([-1.0], [-1.5], step=2), "response_mask": [0]},
    ]
    for config in (NORMALISED[profile], {key: NORMALISED[profile][key] for key in list(NORMALISED[profile])[:1]}):
        groups = report(tmp_path, profile, config, rows, "--group-by", "step")["groups"]
        assert set(groups[1]["metrics"].values()) == {None}


@pytest.mark.parametrize(
    ("profile", "config", "noted"),
    [
        ("verl-0.6", {"rollout_is": "token"}, True),
        ("verl-0.7", {"rollout_is": "token"}, True),
        ("verl-0.9", {"rollout_is": "token"}, False),
        ("verl-0.7", {"rollout_is": "token", "bypass_mode": True, "loss_type": "reinforce"}, False),
    ],
)
def test_names_that_the_actor_overwrites_are_noted(
    profile: str, config: dict[str, Any], noted: bool, tmp_path: Path
) -> None:
    notes = report(tmp_path, profile, config, [bypassed([-1.0, -1.0], [-1.5, -3.0])])["notes"]
    assert sum("overwrites kl, k3_kl" in note for note in notes) == noted
    assert sum("of float32" in note for note in notes) == 1


def test_canonical_weights_are_divided_by_any_mean_above_0(tmp_path: Path) -> None:
    sequence = {"weighting": {"scope": "sequence", "high": 2.0, "normalize": "batch"}}
    assert filtered(tmp_path, "canonical", sequence, TINY) == [([1], [1.0])]
    zeroed = {"weighting": {"scope": "token", "low": 0.5, "high": 2.0, "outside": "zero", "normalize": "batch"}}
    assert filtered(tmp_path, "canonical", zeroed, TINY) == [([1], [0.0])]


@pytest.mark.parametrize(
    ("profile", "config", "reason"),
    [
        ("slime", {"use_tis": False, "use_rs": True}, "slime does nothing with use_rs"),
        ("verl-0.6", {"bypass_mode": True, "rollout_is": "token"}, "verl 0.6.1 does nothing with rollout_is"),
    ],
)
def test_filter_says_why_a_config_corrects_nothing(
    profile: str, config: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "dump.jsonl").write_text(json.dumps(row([-1.0], [-3.0])) + "\n")
    plan = ("--profile", profile, "--plan", str(tmp_path / "config.json"))
    assert main.run(["filter", str(tmp_path / "dump.jsonl"), *plan, "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "corrects nothing" in err
    assert reason in err
