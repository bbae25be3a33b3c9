"""Every default remedy, applied to data that break its rule, moves the value towards the bound."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import analyze, check
from rlcorr_cli.causes.table import ANOMALIES
from rlcorr_cli.plans.plan import Bounds, Plan, Weighting, veto
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import REMEDIES, RULES, Finding, RemedyContext, Section, judge, with_remedies, written
from rlcorr_cli.results.usable import Usable

STEPS = Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet"
PLAIN = Plan("disabled")
TOKEN = Plan("token", Weighting("token", Bounds(None, 2.0)))
SEQUENCE = Plan("sequence", Weighting("sequence", Bounds(None, 2.0)))
WIDE = Plan("wide", Weighting("sequence", Bounds(None, 5.0)))


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows whose sequence ratios spread widely, with a few tokens far below the rest."""
    rng = np.random.default_rng(7)
    rollout = [-rng.exponential(1.0, 80) - 0.05 for _ in range(64)]
    train = [np.minimum(row + rng.normal(-0.01, 0.15, 80), -1e-6) for row in rollout]
    for row in train[:20]:
        row[3] -= 8.0  # a ratio of 3e-4
    path = tmp_path_factory.mktemp("remedies") / "spread.parquet"
    pq.write_table(pa.table({"rollout_log_probs": rollout, "old_log_probs": train}), path)
    return str(path)


def value(dump: str, metric: str, **knobs: Any) -> float:
    found = analyze(dump, **knobs).whole.values[metric]
    assert found is not None
    return found


def remedy(metric: str, plan: Plan = PLAIN, **situation: Any) -> str | None:
    """What is said of a broken default rule."""
    (rule,) = (rule for rule in RULES if rule.metric == metric)
    bad = -1e9 if rule.high is None else 1e9
    values = {metric: bad, rule.limit: 0.6, rule.error: 0.1}
    (finding,) = with_remedies(judge([Section({}, values)], [rule]), RemedyContext(plan=plan, **situation))
    return finding.remedy


def test_token_weights_leave_a_larger_sample_than_sequence_weights(spread: str) -> None:
    assert "token weights (`--preset token_is`)" in (remedy("seq_ess") or "")
    assert value(spread, "rollout_is_eff_sample_size", preset="token_is") > value(spread, "seq_ess")


def test_the_bounds_named_for_geometric_rejection_keep_the_share_that_is_said(spread: str) -> None:
    report = analyze(spread)
    (finding,) = (finding for finding in report.health if finding.metric == "seq_ess")
    assert finding.remedy is not None
    bounds, share = finding.remedy.split("(`--rs ratio.seq_mean:")[1].split("` keeps ")
    kept = value(spread, "kept_sequences", rs=f"ratio.seq_mean:{bounds}") / report.whole.counts["sequences"]
    assert 0.9 <= kept < 0.9 + 1 / report.whole.counts["sequences"]
    assert kept == report.situation.geometric_kept
    assert share.startswith(f"{100 * kept:.3g}%")


def test_narrower_scopes_and_lower_bounds_raise_the_sample_and_lower_the_spread(spread: str) -> None:
    for metric in ("rollout_is_std", "rollout_is_eff_sample_size", "rollout_is_seq_max_deviation"):
        assert "token:,2)" in (remedy(metric, SEQUENCE) or "")
        assert "token:" not in (remedy(metric, TOKEN) or "")
        assert "sequence:" not in (remedy(metric, SEQUENCE) or "")  # the plan has that bound already
    assert "sequence:,2)" in (remedy("rollout_is_eff_sample_size", WIDE) or "")
    assert "sequence:" not in (remedy("rollout_is_std", WIDE) or "")  # of raw weights
    std = {value(spread, "rollout_is_std", is_=f"sequence:,{high}") for high in (2, 5)}
    assert len(std) == 1
    of_sequences = value(spread, "rollout_is_eff_sample_size", is_="sequence:,5")
    assert value(spread, "rollout_is_eff_sample_size", is_="token:,5") > of_sequences
    assert value(spread, "rollout_is_eff_sample_size", is_="sequence:,1.5") > of_sequences
    token, sequence = (value(spread, "rollout_is_std", is_=scope) for scope in ("token", "sequence"))
    assert token < sequence


def test_a_lower_veto_takes_fewer_sequences(spread: str) -> None:
    plan = Plan("vetoed", rejections=(veto(1e-3),))
    said = remedy("rollout_is_veto_fraction", plan)
    assert said is not None
    assert said.startswith("Lower the veto's bound from 0.001 to 0.0001,")
    taken = [value(spread, "rollout_is_veto_fraction", veto=bound) for bound in (1e-3, 1e-4)]
    assert taken[0] > 0.1 > taken[1]


def test_a_mean_weight_far_below_1_comes_back_with_token_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rollout = [-rng.exponential(1.0, 400) - 0.3 for _ in range(40)]
    train = [np.minimum(row + rng.normal(-0.02, 0.2, 400), -1e-6) for row in rollout]
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"rollout_log_probs": rollout, "old_log_probs": train}), path)
    assert "token:,2)" in (remedy("rollout_is_mean", SEQUENCE) or "")
    assert value(str(path), "rollout_is_mean", is_="sequence") < 0.5
    assert value(str(path), "rollout_is_mean", is_="token") == pytest.approx(1, abs=0.1)


def test_a_plan_of_token_weights_is_not_told_to_take_them() -> None:
    assert "preset" not in (remedy("seq_ess", TOKEN) or "")


@pytest.mark.parametrize("metric", [rule.metric for rule in RULES])
@pytest.mark.parametrize("plan", [PLAIN, TOKEN, SEQUENCE])
def test_every_rule_has_a_remedy_in_every_situation_and_none_beside_a_cause(metric: str, plan: Plan) -> None:
    assert remedy(metric, plan)
    assert remedy(metric, plan, causes=("shifted_columns",)) is None


@pytest.mark.parametrize("metric", [rule.metric for rule in RULES])
@pytest.mark.parametrize("plan", [PLAIN, TOKEN, SEQUENCE])
def test_a_remedy_is_in_words_for_the_command_line_and_for_python(metric: str, plan: Plan) -> None:
    assert not re.search(r"(?<![\w-])--[a-z]", re.sub("`[^`]*`", "", remedy(metric, plan) or ""))


@pytest.mark.parametrize("metric", [rule.metric for rule in RULES])
@pytest.mark.parametrize("plan", [PLAIN, TOKEN, SEQUENCE])
def test_no_remedy_takes_weights_where_none_repair_the_gap(metric: str, plan: Plan) -> None:
    advice = remedy(metric, plan, is_far=True) or ""
    assert advice
    assert not any(weights in advice for weights in ("token:", "sequence:", "preset", "ratio.", "take weights"))


def test_a_report_whose_policies_are_far_apart_says_nothing_of_weights_below_that(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rollout = [-rng.exponential(1.0, 40) - 6 for _ in range(40)]
    train = [row + rng.normal(-0.6, np.sqrt(1.2), 40) for row in rollout]
    pq.write_table(pa.table({"rollout_log_probs": rollout, "old_log_probs": train}), tmp_path / "far.parquet")
    for plan in ("disabled", "decoupled_seq_is_rs"):
        report = analyze(str(tmp_path / "far.parquet"), preset=plan)
        assert report.verdict.level == "far"
        said = [finding.remedy or "" for finding in report.health if finding.broken]
        assert not any("token:," in remedy or "preset" in remedy for remedy in said)
        assert "No weights can repair a gap this large: fix the cause (other_weights) first." in said


def test_every_specific_remedy_is_of_a_metric_with_a_default_rule() -> None:
    assert set(REMEDIES) <= {rule.metric for rule in RULES}


def test_a_users_remedy_is_said_as_written_whatever_the_cause() -> None:
    rule = written("kl", None, 0.01, remedy="Restart the workers.")
    finding: tuple[Finding, ...] = judge([Section({}, {"kl": 1.0})], [rule])
    assert with_remedies(finding, RemedyContext(plan=PLAIN, causes=("shifted_columns",))) == finding


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The sample with one column moved by a token: an anomaly that voids every number."""
    table = pq.read_table(STEPS)
    moved = [row[1:] + row[:1] for row in table["old_log_probs"].to_pylist()]
    index = table.schema.get_field_index("old_log_probs")
    path = tmp_path_factory.mktemp("shifted") / "shifted.parquet"
    pq.write_table(table.set_column(index, "old_log_probs", pa.array(moved, table.schema.field(index).type)), path)
    return analyze(path)


def test_beside_a_cause_generic_remedies_are_left_out_and_no_weights_are_called_usable(shifted: Report) -> None:
    assert shifted.causes == ("shifted_columns",)
    assert (shifted.verdict.level, shifted.verdict.usable) == ("void", Usable(token="no", sequence="no"))
    assert any(finding.broken for finding in shifted.health)
    assert all(finding.remedy is None for finding in shifted.health)


def test_check_names_the_fault_first_and_fails_on_it_unless_it_is_accepted(shifted: Report) -> None:
    failing = check(replace(shifted, rules=()), max={"token_ess": 1.0})
    assert not failing.passed
    assert failing.findings[0].metric == "shifted_columns"
    lenient = check(replace(shifted, rules=()), max={"token_ess": 1.0}, accept="shifted_columns")
    assert lenient.passed
    assert lenient.accepted == ("shifted_columns",)


def test_with_strict_warnings_fail(shifted: Report) -> None:
    report = analyze(STEPS)
    assert check(report).passed
    assert {finding.status for finding in check(report).findings} == {"ok", "warn"}
    assert {finding.status for finding in check(report, strict=True).findings} == {"ok", "fail"}
    assert not check(report, strict=True).passed


def test_only_the_order_of_files_leaves_numbers_what_they_are() -> None:
    assert {anomaly.name for anomaly in ANOMALIES if not anomaly.voids} == {"steps_out_of_order"}
