"""One definition per metric: every name that any report prints has one, and what it says is true of sample_data."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import metrics, normed, observed, simulated

from rlcorr_cli.api import analyze
from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.metrics.catalog import DEFINITIONS, GROUPS, define, explained_names, ideal, logged_as
from rlcorr_cli.metrics.framework_names import LOGGED, VERL_NAMES, VERL_PREFIXES
from rlcorr_cli.metrics.metric import SYMBOLS, Metric, symbols_in
from rlcorr_cli.plans.files import plan_from_dict
from rlcorr_cli.plans.plan import SCOPES, STATISTICS, Plan, acts_on
from rlcorr_cli.plans.presets import PRESETS, preset
from rlcorr_cli.totals.view import Numbers

SAMPLES = Path(__file__).parents[2] / "sample_data"
ROWS = simulated(12, seed=5)

CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {
    "verl-mismatch": (
        {"rollout_is_threshold": 2.0, "rollout_is_veto_threshold": 1e-4},
        {"rollout_is_threshold": 2.0, "rollout_is_level": "geometric", "rollout_is_mode": "mask"},
    ),
    "verl-0.6": (
        {},
        {"rollout_is": "token", "rollout_is_batch_normalize": True, "rollout_token_veto_threshold": 1e-4},
        {"rollout_is": "sequence", "rollout_rs": "geometric", "rollout_rs_threshold": 1.01},
    ),
    "verl-0.7": ({"rollout_is": "token", "rollout_rs": "token_k1,seq_max_k2", "rollout_rs_threshold": "0.5_2.0,1.0"},),
    "verl-0.8": ({"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},),
    "verl-0.9": (
        {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
        {"rollout_is": "sequence", "rollout_rs": "seq_mean_k1,seq_mean_k3,token_k2", "rollout_rs_threshold": "1.5"},
    ),
    "slime": (
        {"tis_batch_normalize": True, "use_rs": True, "rs_veto_threshold": 1e-4},
        {"tis_mode": "clip", "tis_level": "geometric"},
        {"tis_mode": "mask"},
    ),
}
"""Configs that together have each profile write every metric it has."""


def written(profile: str, config: dict[str, Any]) -> list[str]:
    """The names that a profile writes of a config's plan."""
    plan = PROFILES[profile].read(config)
    totals = normed(observed(ROWS, plan).totals, plan, PROFILES[profile].batch_mean)
    return list(PROFILES[profile].write(Numbers.of_plan(totals.whole, plan, 0), plan))


@pytest.mark.parametrize("name", PRESETS)
def test_every_metric_of_every_preset_is_defined(name: str) -> None:
    printed = metrics(ROWS, preset(name).plan)
    assert [metric for metric in printed if define(metric) is None] == []


def test_the_configs_are_of_every_profile() -> None:
    assert CONFIGS.keys() == PROFILES.keys()


@pytest.mark.parametrize(("profile", "config"), [(name, config) for name in CONFIGS for config in CONFIGS[name]])
def test_every_metric_of_every_profile_is_defined_and_says_what_it_is(profile: str, config: dict[str, Any]) -> None:
    for name in written(profile, config):
        definition = define(name)
        assert definition is not None, name
        assert definition.name == name
        assert definition.formula
        assert profile.split("-")[0] in definition.note, name


def test_a_rejection_of_any_name_is_defined() -> None:
    rejections = [
        {"statistic": "ratio", "scope": "seq_mean", "low": 0.9, "name": "max"},
        {"statistic": "k3", "scope": "token", "high": 1.0, "name": "mean_std"},
    ]
    for name in metrics(ROWS, plan_from_dict({"rejections": rejections})):
        assert define(name) is not None
    definition = define("rollout_rs_mean_std_max")
    assert definition is not None
    assert definition.formula == "max x"
    assert "'mean_std'" in definition.note


@pytest.mark.parametrize(
    "name", ["", "k", "kept_", "kept_nothing", "rollout_rs_", "rollout_rs_x", "mis_", "mis_nothing", "rollout_corr/x"]
)
def test_what_no_report_prints_is_not_defined(name: str) -> None:
    assert define(name) is None


def test_kept_metrics_say_over_what() -> None:
    definition = define("kept_kl")
    assert definition is not None
    assert definition.note == "Over the tokens that the plan's rejections keep."
    assert definition.typical == ""
    assert definition.formula == DEFINITIONS["kl"].formula


def test_a_framework_statistic_that_we_lack_is_told_in_x() -> None:
    definition = define("rollout_corr/rollout_rs_token_k1_seq_max")
    assert definition is not None
    assert "'token_k1'" in definition.note
    assert "rollout_is_seq_max" in definition.meaning


@pytest.mark.parametrize("definition", [row for rows in GROUPS.values() for row in rows], ids=lambda row: row.name)
def test_every_definition_is_whole(definition: Metric) -> None:
    assert definition.meaning.endswith(".")
    assert definition.unit
    assert definition.formula
    assert not definition.formula.endswith(".")
    assert definition.worry == "" or definition.worry.endswith(".")
    assert not definition.source.endswith(".")
    assert not re.search(r"\b[a-zA-Z]\b(?<![aABbcdefgiklLmMnNqSUwxz])", definition.formula), (
        "a letter that is no symbol"
    )


def test_each_name_is_defined_once() -> None:
    every = [row.name for rows in GROUPS.values() for row in rows]
    assert len(every) == len(set(every))
    assert len(explained_names()) == len(set(explained_names()))
    assert all(define(name) is not None for name in explained_names())


def test_symbols_are_whole_words_in_the_tables_order() -> None:
    assert list(symbols_in("seq exp(2 B) - 1")) == ["seq", "B"]
    assert list(symbols_in("tok (b - a)")) == ["tok", "a", "b"]
    assert symbols_in("max x")["x"] == SYMBOLS["x"]


def test_symbols_are_followed_by_those_that_they_are_said_in() -> None:
    assert list(symbols_in("seq exp(2 S) - 1")) == ["seq", "S", "l", "a", "b"]
    assert list(symbols_in("tok rho l")) == ["tok", "l", "rho", "a", "b"]
    assert list(symbols_in("M")) == ["M", "c", "z", "w", "L", "theta", "N", "B"]


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_is_used(symbol: str) -> None:
    formulas = [row.formula for rows in GROUPS.values() for row in rows]
    of_plans = acts_on("mismatch", "positive")
    assert any(symbol in symbols_in(formula) for formula in (*formulas, *SYMBOLS.values(), of_plans))


def test_ideals_hold_under_any_name() -> None:
    assert ideal("kl") == ideal("mis_kl") == ideal("mismatch/mismatch_kl") == ideal("kept_kl") == 0.0
    assert ideal("rollout_is_mean") == ideal("rollout_corr/rollout_is_mean") == 1.0
    assert ideal("training_ppl") is ideal("nothing") is None


def test_ideals_are_those_of_equal_policies() -> None:
    """A dump that is compared with itself has every ideal value, under a plan with weights, a veto and a rejection."""
    rows = simulated(6, seed=1, std=0.0)
    plan = plan_from_dict(
        {
            "weighting": {"scope": "token", "high": 2.0, "outside": "zero", "normalize": "batch"},
            "rejections": [{"statistic": "ratio", "scope": "seq_min", "low": 1e-4, "name": "veto"}],
        }
    )
    drift = GROUPS["From the old to the current policy"]
    for name, value in metrics(rows, plan).items():
        expected = ideal(name)
        if expected is not None and value is not None and name not in {row.name for row in drift}:
            assert value == pytest.approx(expected, abs=1e-12), name


def test_metrics_that_go_below_an_ideal_of_0_are_marked_so_and_no_others() -> None:
    """The sign decides what `--max kl=0.05` bounds, the value or its size; log-ratios lean either way here."""
    plan = plan_from_dict(
        {
            "weighting": {"scope": "token", "high": 1.1, "outside": "zero", "normalize": "batch"},
            "rejections": [{"statistic": "ratio", "scope": "seq_min", "low": 0.5, "name": "veto"}],
        }
    )
    seen = [metrics(simulated(60, seed=1, mean=mean, std=0.1), plan) for mean in (-0.4, 0.4)]
    # The updates of these rows only lower probabilities.
    seen.append(
        {"ppo_kl": metrics([replace(row, train=row.current, current=row.train) for row in ROWS], plan)["ppo_kl"]}
    )
    seen.append(metrics(simulated(60, seed=1, std=0.05), plan, has_advantages=True))
    below = {name for values in seen for name, value in values.items() if value is not None and value < 0}
    centred = {name: definition for name, definition in DEFINITIONS.items() if definition.ideal == 0}
    assert centred.keys() <= {name for values in seen for name, value in values.items() if value is not None}
    assert {name for name, definition in centred.items() if definition.can_be_negative} == below & centred.keys()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_typical_sizes_are_those_of_the_sample_data(place: int) -> None:
    dump = SAMPLES / f"smollm2_{('bf16', 'int8', 'fp32')[place]}.parquet"
    values = analyze(dump, plan=preset("token_is").plan).whole.values
    for definition in DEFINITIONS.values():
        if definition.measured is not None:
            expected = values[definition.name]
            assert definition.measured[place] == pytest.approx(expected, rel=0.006), definition.name


def test_frameworks_names_lead_to_metrics_that_there_are() -> None:
    assert all(define(row.canonical) is not None for row in LOGGED if row.canonical)
    assert set(DEFINITIONS) >= VERL_NAMES
    assert logged_as("k2_kl") == [
        "AReaL's kl_k2",
        "AReaL's rollout_train_logp_sq_diff (differs)",
        "tinker's optim/kl_sample_train_v2",
    ]
    assert logged_as("prob_abs_diff_max") == [
        "verl's training/rollout_probs_diff_max",
        "tunix's sampler_trainer/prob_diff_max",
    ]


def test_differences_are_sentences_and_name_metrics_that_there_are() -> None:
    options = {"reference_policy_kl_type", "sequence_level_importance_ratios", "sequence_mask", "sequence_truncate"}
    options |= {
        "rho_mask_sequence_level",
        "rho_mask_tv_divergence",
        "token_truncate",
        "seq_logprob_error_threshold",
        *STATISTICS,
        *SCOPES,
    }
    for row in LOGGED:
        assert row.note == "" or row.note.endswith("."), row.name
        words = set(re.findall(r"\b[a-z]\w*_\w+\b", row.note)) - options
        assert {word for word in words if define(word) is None} == set(), row.name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sampling/importance_sampling_ratio/mean", "In token modes it is rollout_is_applied_mean"),
        ("gen_kl_error", "With reference_policy_kl_type k1 it is kl, with k2 it is k2_kl"),
        ("sampling_importance_ratio", "times the rows of a micro-batch"),
        ("train_rollout_kl", "miles's name of k3_kl"),
        ("training/rollout_probs_diff_std", "N - 1"),
        ("rollout_corr/rollout_is_seq_fraction_high", "0.8 uses applied weights"),
    ],
)
def test_a_name_says_what_it_is_in_other_modes(name: str, told: str) -> None:
    definition = define(name)
    assert definition is not None
    assert told in definition.note


def test_what_no_framework_logs_is_no_name() -> None:
    """prime-rl's prob_delta is a signed number of each token in its exports, and no metric."""
    assert define("prob_delta") is None


def test_verl_is_named_as_a_logger_only_of_what_its_profile_writes() -> None:
    of_verl = {name for config in CONFIGS["verl-0.6"] + CONFIGS["verl-0.9"] for name in _verl_names(config)}
    assert of_verl == VERL_NAMES


def _verl_names(config: dict[str, Any]) -> set[str]:
    profile = "verl-0.9" if config in CONFIGS["verl-0.9"] else "verl-0.6"
    stems = {name.removeprefix(VERL_PREFIXES[0]) for name in written(profile, config)}
    return {name for name in stems if name in DEFINITIONS}


def test_a_plan_without_correction_prints_the_diagnostics_and_the_drift() -> None:
    drift = GROUPS["From the old to the current policy"]
    assert set(metrics(ROWS, Plan())) == {row.name for row in (*GROUPS["Diagnostics"], *drift)}
