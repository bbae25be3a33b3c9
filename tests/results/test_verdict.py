"""The verdict: each threshold at its edge, and no contradiction with the rules printed below them."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.plans.plan import Bounds, Plan, Weighting
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import RULES, Section, judge
from rlcorr_cli.results.usable import Usable
from rlcorr_cli.results.verdict import Verdict, verdict
from rlcorr_cli.show.words import verdict_sentences as words

STEPS = Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet"
NOTHING = Plan("disabled")
TOKEN = Plan("token", Weighting("token", Bounds(None, 2.0)))
SEQUENCE = Plan("sequence", Weighting("sequence", Bounds(None, 2.0)))
BOTH, NEITHER = Usable(token="yes", sequence="yes"), Usable(token="no", sequence="no")
OF_TOKENS, UNSURE = Usable(token="yes", sequence="no"), Usable(token="unsure", sequence="unsure")
FINE = {"logprob_abs_diff_max": 0.5, "k3_kl": 0.005, "kl": 0.0, "token_ess": 0.9, "seq_ess": 0.9, "chi2_token": 0.1}


def concluded(plan: Plan = NOTHING, n_sequences: int = 100, **changes: float | None) -> Verdict:
    values = {**FINE, **changes}
    counts = {"sequences": n_sequences, "tokens": 1000}
    return verdict(counts, values, health=judge([Section({}, values)], RULES), plan=plan)


@pytest.fixture(scope="module")
def report() -> Report:
    return analyze(STEPS, group_by="step")


@pytest.mark.parametrize(
    ("metric", "value", "level"),
    [
        ("k3_kl", 9.99e-7, "same"),
        ("k3_kl", 1e-6, "close"),
        ("k3_kl", 0.00999, "close"),
        ("k3_kl", 0.01, "apart"),
        ("k3_kl", 0.1, "apart"),
        ("k3_kl", 0.1001, "far"),
        ("k3_kl", None, "far"),
        ("token_ess", 0.5, "close"),
        ("token_ess", 0.499, "far"),
        ("token_ess", None, "far"),
        ("kl", -0.1, "close"),
        ("kl", -0.1001, "far"),
        ("chi2_token", 1.0, "close"),
        ("chi2_token", 1.001, "far"),
        ("logprob_abs_diff_max", 0.0, "equal"),
    ],
)
def test_the_level_changes_at_its_thresholds(metric: str, value: float | None, level: str) -> None:
    assert concluded(**{metric: value}).level == level


def test_policies_that_are_far_apart_leave_no_usable_weights() -> None:
    assert concluded(k3_kl=0.2).usable == NEITHER


def test_fewer_than_32_sequences_are_too_few_to_tell(report: Report) -> None:
    assert (concluded(n_sequences=31).level, concluded(n_sequences=31).usable) == ("too few", UNSURE)
    assert concluded(n_sequences=32).level == "close"
    assert concluded(n_sequences=31, logprob_abs_diff_max=0.0).level == "equal"
    few = replace(report, whole=replace(report.whole, counts={**report.whole.counts, "sequences": 3}), groups=())
    assert words(few).startswith("Too few to tell: 3 sequences are measured")


@pytest.mark.parametrize(
    ("plan", "metric", "value", "usable"),
    [
        (SEQUENCE, "rollout_is_mean", 0.05, OF_TOKENS),
        (TOKEN, "rollout_is_mean", 0.05, NEITHER),
        (TOKEN, "rollout_is_std", 1.5, NEITHER),
        (TOKEN, "rollout_is_eff_sample_size", 0.2, NEITHER),
        (TOKEN, "rollout_is_mean", 0.5, BOTH),
        (TOKEN, "rollout_is_veto_fraction", 0.2, BOTH),
        (TOKEN, "rollout_is_seq_max_deviation", 5.0, BOTH),
    ],
)
def test_weights_that_a_failing_rule_refuses_are_not_called_usable(
    plan: Plan, metric: str, value: float, usable: Usable
) -> None:
    conclusion = concluded(plan, **{metric: value})
    assert conclusion.usable == usable
    fails = metric != "rollout_is_seq_max_deviation" and value != 0.5
    assert conclusion.failing == ((metric,) if fails else ())


def test_the_share_that_rejections_keep_is_told_below_one_half(report: Report) -> None:
    def told(kept: float) -> str:
        values, tokens = report.whole.values, report.whole.counts["tokens"]
        return words(replace(report, whole=replace(report.whole, values={**values, "kept_tokens": kept * tokens})))

    assert "The rejections keep only 49.9% of the tokens." in told(0.499)
    assert "The rejections keep nothing." in told(0.0)
    assert "rejections" not in told(0.5)
    assert concluded(kept_tokens=250.0).kept_fraction == 0.25
