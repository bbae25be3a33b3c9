"""Every name that a report or an error can show is defined by `rlcorr explain`, from the tables the code uses."""

import re

import pytest
from running import STEPS, analyzed, run

from rlcorr_cli.causes.table import ALL_CAUSES, Cause
from rlcorr_cli.errors import as_flags
from rlcorr_cli.metrics.catalog import DEFINITIONS, GROUPS, define, explained_names, logged_name
from rlcorr_cli.metrics.framework_names import LOGGED, RELEASES
from rlcorr_cli.metrics.metric import SYMBOLS
from rlcorr_cli.plans.plan import SCOPES, STATISTICS
from rlcorr_cli.plans.presets import ALIASES as PRESET_ALIASES, PRESETS
from rlcorr_cli.reading.bad_rows import PROBLEMS, Problem
from rlcorr_cli.reading.names import ALIASES, AMBIGUOUS, COLUMNS
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.explain import LISTS, near_misses


def explained(name: str) -> str:
    ran = run("explain", name)
    assert ran.status == 0, ran.err
    return " ".join(ran.out.split())


def test_every_metric_has_formula_meaning_and_unit() -> None:
    assert len(DEFINITIONS) > 60
    for name, definition in DEFINITIONS.items():
        text = explained(name)
        assert definition.formula in text
        assert definition.meaning in text
        assert f"Unit: {definition.unit}." in text
        assert definition.typical in text


def test_a_formula_is_followed_by_its_symbols() -> None:
    text = explained("ppl_ratio")
    legend = " ".join(f"{symbol}: {SYMBOLS[symbol]}" for symbol in ("seq", "d", "a", "b"))
    assert f"seq e^d where {legend} Training" in text


def test_a_metric_says_who_else_logs_it() -> None:
    text = explained("k3_kl")
    for name in ("verl's rollout_corr/k3_kl", "slime's mis_k3_kl", "NeMo-RL's gen_kl_error", "prime-rl's mismatch_kl"):
        assert name in text
    assert "Also logged as" not in explained("length_mean")


def test_a_source_is_claimed_only_where_there_is_one() -> None:
    assert "Source:" not in explained("kept_tokens")
    assert "Source:" not in explained("log_ratio_std")


@pytest.mark.parametrize("name", ["mis_kl", "rollout_rs_geo_mean", "rollout_corr/kl", "kept_k3_kl", "gen_kl_error"])
def test_names_that_hang_on_a_plan_or_a_framework_are_explained(name: str) -> None:
    assert explained(name).startswith(name)


TODAY = {
    "mismatch_kl/all/mean": "prime-rl's name of k3_kl. Until 2026-05-18 it was averaged over each sequence's",
    "mismatch_kl/math-env/mean": "prime-rl's name of k3_kl.",
    "mismatch_kl/all/std": "Its std is no metric here: k3_kl is the mean.",
    "mismatch_k3_stable/all/mean": "prime-rl's name of k3_kl.",
    "logprob_bit_mismatch/all/mean": "prime-rl's name of bit_mismatch.",
    "train/max_seq_mult_prob_error": "--rs exp_abs_log_ratio.seq_mean:,1e9",
    "mean_seq_mult_prob_error_after_mask": "It is of the sequences that stay.",
    "train/num_masked_seqs_by_logprob_error": "NeMo-RL's name of rollout_rs_seq_masked_fraction. It is a count",
    "train/masking/truncated_frac": "NeMo-RL's, and no metric here. NeMo-RL's rows",
    "debug/vllm_vs_local_logprob_diff_mean": "open-instruct's name of logprob_abs_diff_mean.",
    "debug/vllm_vs_local_logprob_diff_std": "open-instruct divides by N - 1.",
    "debug/vllm_local_reverse_kl": "weighted by its rollout probability once more",
    "train/ess_ratio": "miles's, and no metric here. The effective share of a sample under PPO's ratio",
    "rollout/weight_version/mixed_version_ratio": "more than one version of the weights",
    "sampler_is/weight_mean": "tunix's name of rollout_is_applied_mean.",
    "sampler_trainer/train/logp_diff_max": "tunix's name of logprob_abs_diff_max.",
    "compute_logp/r3/rollout_train_k3_kl/avg": "AReaL's name of k3_kl.",
    "compute_logp/r3/rollout_train_extreme_frac_tau2/avg": "--rs ratio.token:0.5,2",
    "train/rollout_replay_logp_absdiff_mean": "UniRL's name of logprob_abs_diff_mean.",
    "actor/pg_clipfrac": "verl's name of objective/ppo/clip_fraction.",
    "training/off_policy/trajectory_staleness/mean": "Of the newest version in a trajectory.",
    "rollout_corr/logprob_abs_diff/ts_800": "a diffusion model's latents at each timestep",
    "actor/rollout_corr/kl/mean": "verl's name of kl.",
    "train/tis_clipfrac": "slime's name of rollout_is_ratio_fraction_high.",
    "train/tis": "slime's name of ratio_mean.",
    "sample_mask/kept_frac": "tunix's name of rollout_rs_seq_masked_fraction. It is 1 - that",
    "m2_before": "The mean square of tokens' log-ratios",
}


@pytest.mark.parametrize("name", TODAY)
def test_a_name_on_a_dashboard_of_today_is_explained_as_its_framework_defines_it(name: str) -> None:
    assert TODAY[name] in explained(name)


@pytest.mark.parametrize("end", ["", "/mean", "/avg", "/all/mean", "/max", "/std"])
@pytest.mark.parametrize("start", ["", "train/", "actor/update/"])
def test_no_name_in_a_log_is_explained_as_its_last_word(start: str, end: str) -> None:
    for name in (row.name for row in LOGGED if row.name not in DEFINITIONS):
        whole = name if name.startswith(("rollout_corr/", "mismatch/")) else f"{start}{name}{end}"
        definition = define(whole)
        assert definition is not None, whole
        row = logged_name(whole)
        assert row is not None, whole
        assert (row.canonical or "no metric here") in f"{definition.meaning} {definition.note}", whole


def test_an_unknown_name_that_ends_in_mean_is_not_the_mean() -> None:
    ran = run("explain", "some/thing/mean")
    assert (ran.status, ran.err.splitlines()[0]) == (2, "Error: Unknown name 'some/thing/mean'.")
    assert explained("train/token_ess/mean").startswith("token_ess")


def test_a_rule_on_a_name_that_is_no_metric_here_says_what_it_is() -> None:
    ran = run("check", STEPS, "--max", "train/ess_ratio=0.5")
    assert ran.status == 2
    assert "train/ess_ratio is miles's, and no metric here: The effective share" in ran.err


def test_every_metric_of_a_report_is_explained() -> None:
    for name in analyzed(STEPS, "--preset", "token_is", "--veto", "1e-4")["metrics"]:
        explained(name)


def test_no_entry_of_another_table_has_the_name_of_a_metric() -> None:
    """So `explain` looks a metric up nowhere else."""
    corrections = (*PRESETS, *PRESET_ALIASES)
    columns = (name for names in (*ALIASES.values(), *AMBIGUOUS.values()) for name in names)
    problems = (row.name for row in PROBLEMS)
    others = (*corrections, *COLUMNS, *columns, *problems, *ALL_CAUSES, *RELEASES)
    assert [name for name in others if define(name) is not None] == []


def test_every_rule_is_told_with_its_remedy() -> None:
    for rule in RULES:
        text = explained(rule.metric)
        limit = f", or {rule.limit} if that is lower" if rule.limit else ""
        assert f"Rule ({rule.severity}): {rule}{limit}. {rule.remedy}" in text


@pytest.mark.parametrize("name", [*STATISTICS, *PRESETS, *SCOPES, *SYMBOLS, "tis", "kpop", "veto", "decoupled"])
def test_every_statistic_preset_term_and_symbol_is_explained(name: str) -> None:
    assert explained(name).startswith(name)


@pytest.mark.parametrize("row", PROBLEMS, ids=lambda row: row.name)
def test_every_class_of_problems_is_told_with_its_fix(row: Problem) -> None:
    text = explained(row.name)
    assert " ".join(row.meaning.split()) in text
    assert f"Fix: {as_flags(row.fix)}" in text


@pytest.mark.parametrize("row", ALL_CAUSES.values(), ids=lambda row: row.name)
def test_every_cause_has_a_page_that_says_how_it_looks_how_sure_that_is_and_what_looks_alike(row: Cause) -> None:
    text = re.sub(r"(?<=\w)- ", "-", explained(row.name))  # lines break at hyphens
    assert text.startswith(f"{row.name} {row.meaning} Cause of ")
    assert f"How it looks: {row.looks} How sure one can be: {row.certainty}" in text
    assert f"What else looks like it: {row.alike} What to do: {row.advice}" in text
    for words in (row.meaning, row.looks, row.certainty, row.alike, row.advice):
        assert words.endswith(".")


def test_explain_alone_says_which_pages_list_names() -> None:
    ran = run("explain")
    assert (ran.status, ran.err) == (
        2,
        f"Error: `rlcorr explain` names nothing.\nWrite `rlcorr explain NAME`; {LISTS}\n",
    )


@pytest.mark.parametrize("name", RELEASES)
def test_a_profile_is_told_with_what_a_report_under_it_holds(name: str) -> None:
    assert explained(name) == f"{name} --profile {name}: {RELEASES[name]}"


def test_no_metric_speaks_of_units_where_tokens_or_sequences_are_meant() -> None:
    rows = [row for rows in GROUPS.values() for row in rows]
    assert [row.name for row in rows if "unit" in f"{row.formula} {row.meaning} {row.note}"] == []
    assert [symbol for symbol, meaning in SYMBOLS.items() if "unit" in meaning] == []


NEAR = {
    "seq_mena": "seq_mean, seq_min",
    "sentinell": "sentinel",
    "k4_kl": "k2_kl, k3_kl",
    "seq_es": "seq_ess, seq_rs, seq_is",
    "geors": "geo_rs",
}


@pytest.mark.parametrize(("name", "near"), NEAR.items())
def test_an_unknown_name_gets_those_that_are_near(name: str, near: str) -> None:
    ran = run("explain", name)
    assert (ran.status, ran.err) == (2, f"Error: Unknown name '{name}'.\nNearest: {near}.\n")


@pytest.mark.parametrize("name", ["Q", "nothing_of_the_kind", "zzzzzz"])
def test_a_name_that_nothing_is_near_gets_pages_that_list_names_and_no_alphabet(name: str) -> None:
    ran = run("explain", name)
    assert (ran.status, ran.err) == (2, f"Error: Unknown name '{name}'.\n{LISTS}\n")


def test_near_misses_are_nearest_first() -> None:
    assert near_misses("k3_kl", ["k3_kl_reverse", "k3_kk", "k3_kl", "seq_ess"]) == ["k3_kl", "k3_kk", "k3_kl_reverse"]
    assert near_misses("rollout_is_meen", explained_names())[0] == "rollout_is_mean"


def test_a_statistic_a_term_and_a_preset_are_followed_by_their_symbols() -> None:
    assert f"where l: {SYMBOLS['l']}" in explained("k3")
    assert f"where g: {SYMBOLS['g']}" in explained("geometric")
    legend = " ".join(f"{symbol}: {SYMBOLS[symbol]}" for symbol in ("l", "rho", "a", "b"))
    assert explained("token").endswith(f"where {legend}")
    assert f"where l: {SYMBOLS['l']}" in explained("m2po")
    assert explained("prime_dppo").endswith(f"where A: {SYMBOLS['A']}")
    assert "where" not in explained("icepop")


def test_a_name_with_an_underscore_is_no_symbol() -> None:
    assert f"seq: {SYMBOLS['seq']}" not in explained("ratio")  # its formula has seq_sum


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_told_with_its_other_names(name: str) -> None:
    text = explained(name)
    assert f"{name} Column of a dump: {COLUMNS[name]}." in text
    assert all(alias in text for alias in (*ALIASES.get(name, ()), *AMBIGUOUS.get(name, ())))


def test_another_name_of_a_column_says_what_it_is_read_as() -> None:
    assert explained("prox_logp") == "prox_logp Column of a dump, read as old_log_probs."
    assert "read as old_log_probs or current_log_probs where --map says so" in explained("log_probs")


def test_at_most_a_few_names_are_near() -> None:
    assert len(near_misses("rollout", explained_names())) == 3


def test_a_key_of_json_is_told_from_the_schema() -> None:
    text = explained("doubling")
    assert "A key of JSON outputs." in text
    assert "In the record rise: Steps in which it doubles, where it rises steadily." in text
    assert "In the record input: One file as it was read" in explained("bytes")
    assert "One of token-mean, token-sum, " in explained("aggregation")
