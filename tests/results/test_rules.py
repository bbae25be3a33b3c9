"""Rules and limits on plain numbers: what holds, what replaces what, and how a value is told from its bound."""

from pathlib import Path

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.metrics.catalog import FAMILIES, ideal, may_have_metric
from rlcorr_cli.metrics.divergence import DRIFT
from rlcorr_cli.plans.files import plan_from_dict
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.results.policy import DEFAULT_LIMITS, compare, limits, read_rules
from rlcorr_cli.results.rules import (
    RULES,
    NamedRule,
    Rule,
    Section,
    from_flags,
    judge,
    replaced,
    shown,
    unexcused,
    written,
)

BF16 = Path(__file__).parents[2] / "sample_data" / "smollm2_bf16.parquet"
WHOLE = Section({}, {"kl": -0.2, "seq_ess": 0.5, "reward_mean": None})
GROUP = Section({"step": 4}, {"kl": 0.05, "seq_ess": 0.1, "reward_mean": 1.0})


def statuses(*rules: Rule, sections: tuple[Section, ...] = (WHOLE, GROUP)) -> list[str]:
    return [finding.status for finding in judge(sections, rules)]


def test_bounds_are_inclusive() -> None:
    assert statuses(Rule("seq_ess", "fail", "", low=0.5, high=0.5), sections=(WHOLE,)) == ["ok"]
    assert statuses(Rule("seq_ess", "fail", "", low=0.5000001), sections=(WHOLE,)) == ["fail"]
    assert statuses(Rule("seq_ess", "fail", "", high=0.4999999), sections=(WHOLE,)) == ["fail"]


def test_an_absolute_rule_looks_at_the_size() -> None:
    assert statuses(Rule("kl", "fail", "", high=0.1)) == ["ok", "ok"]
    assert statuses(Rule("kl", "fail", "", high=0.1, absolute=True)) == ["fail", "ok"]
    assert str(Rule("kl", "fail", "", low=0.01, high=0.1, absolute=True)) == "between 0.01 and 0.1 in size"


def test_a_rule_looks_at_the_whole_dump_at_groups_or_at_both() -> None:
    low = {"low": 0.3}
    found = {over: statuses(Rule("seq_ess", "warn", "", over=over, **low)) for over in ("total", "groups", "both")}
    assert found == {"total": ["ok"], "groups": ["warn"], "both": ["ok", "warn"]}


def test_no_data_is_a_status_of_its_own_that_a_check_counts_at_the_rules_severity() -> None:
    for severity in ("fail", "warn"):
        findings = judge((WHOLE,), [Rule("reward_mean", severity, "Do this.", low=0.0)])
        assert (findings[0].status, findings[0].value, findings[0].remedy) == ("no data", None, None)
        (found,) = unexcused(findings)
        assert (found.status, found.value, found.remedy) == (severity, None, "Do this.")
        assert found.message == "reward_mean has no data, should be >= 0."


def test_a_finding_says_what_should_be_what_and_keeps_its_remedy_for_when_it_is_needed() -> None:
    fine, broken = judge((WHOLE, GROUP), [Rule("seq_ess", "fail", "Do this.", low=0.3)])
    assert (fine.message, fine.remedy) == ("seq_ess is 0.5, should be >= 0.3.", None)
    assert (broken.message, broken.remedy, broken.key) == ("seq_ess is 0.1, should be >= 0.3.", "Do this.", {"step": 4})


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (0.0156123, (0.3,), "0.0156"),
        (0.30004, (0.3,), "0.30004"),
        (-0.10000002, (0.1,), "-0.10000002"),
        (0.3, (0.3,), "0.3"),
        (5493.0, (), "5493"),
        (27465.4, (27465.0,), "27465.4"),
        (1e-9, (0.0,), "1e-09"),
        (2.5e7, (), "2.5e+07"),
        (1.9999999999999998, (2.0,), "1.9999999999999998"),
    ],
)
def test_a_value_never_looks_like_a_bound_it_is_not(value: float, bounds: tuple[float, ...], text: str) -> None:
    assert shown(value, *bounds) == text


def test_users_rules_replace_those_before_on_the_same_metric() -> None:
    file = (
        NamedRule(written("kl", None, 0.5), "f, rule 1"),
        NamedRule(written("kl", None, 0.2, severity="warn"), "f, rule 2"),
    )
    found = replaced(tuple(map(NamedRule, RULES)), file)
    assert [one.origin for one in found if one.rule.metric == "kl"] == ["f, rule 1", "f, rule 2"]
    assert len(found) == len(RULES) + 1
    found = replaced(tuple(map(NamedRule, RULES)), file, from_flags(["kl=0.3"], []))
    assert [(one.origin, one.rule.high) for one in found if one.rule.metric == "kl"] == [("⟦max⟧ kl", 0.3)]
    assert {one.rule.metric for one in found} == {rule.metric for rule in RULES}


def test_a_default_rule_on_a_share_can_be_broken() -> None:
    shares = [rule for rule in RULES if rule.metric.endswith(("_fraction", "_ess", "_sample_size"))]
    assert len(shares) == 5
    assert all(0 < bound < 1 for rule in shares for bound in (rule.low, rule.high) if bound is not None)


def test_both_flags_on_a_metric_make_one_rule() -> None:
    first, second = from_flags(["kl=0.1", "chi2_token = 2"], ["kl=-0.05"])
    assert (first.rule.low, first.rule.high, first.rule.absolute) == (-0.05, 0.1, False)
    assert (second.rule.low, second.rule.high) == (None, 2.0)
    (exact,) = from_flags(["kl=0.1"], ["kl=0.1"])
    assert (exact.rule.low, exact.rule.high) == (0.1, 0.1)


def test_a_file_may_name_one_value_as_min_and_max(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\nmetric = "kl"\nmin = 0.1\nmax = 0.1\n')
    (exact,) = read_rules(str(tmp_path / "rules.toml")).rules
    assert (exact.rule.low, exact.rule.high) == (0.1, 0.1)


def test_a_high_bound_alone_is_of_the_size_where_the_ideal_is_0() -> None:
    assert written("kl", None, 0.1).absolute
    assert written("kl", None, 0.0).absolute
    assert written("rollout_corr/kl", None, 0.1).absolute
    assert written("kept_log_ratio_mean", None, 0.1).absolute
    assert not written("kl", None, 0.1, absolute=False).absolute
    assert not written("kl", -1.0, None).absolute
    assert not written("log_ratio_p01", None, -0.1).absolute
    assert not written("seq_ess", None, 0.9).absolute
    assert not written("rollout_is_mean", None, 2.0).absolute


@pytest.mark.parametrize("metric", ["rollout_is_std", "k3_kl", "kept_token_tv", "rollout_rs_mine_masked_fraction"])
def test_a_high_bound_is_one_of_the_value_where_it_is_never_negative(metric: str) -> None:
    assert str(written(metric, None, 1.0)) == "<= 1"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule("kl", "fail", "", high=0.1, absolute=True), "between -0.1 and 0.1"),
        (Rule("kl", "fail", "", high=0.0, absolute=True), "0"),
        (Rule("kl", "fail", "", high=-0.0, absolute=True), "0"),
        (Rule("ratio_mean", "fail", "", low=1.0, high=1.0), "1"),
        (Rule("kl", "fail", "", low=-0.0), ">= 0"),
        (Rule("kl", "fail", "", low=0.1, absolute=True), ">= 0.1 in size"),
        (Rule("rollout_is_mean", "fail", "", low=0.5, high=2.0), "between 0.5 and 2"),
        (Rule("seq_ess", "fail", "", low=0.3), ">= 0.3"),
    ],
)
def test_a_rule_reads_well_after_should_be(rule: Rule, words: str) -> None:
    assert str(rule) == words
    assert (ideal("mismatch/mismatch_kl"), ideal("mis_kl"), ideal("ppo_kl"), ideal("nothing")) == (0.0, 0.0, 0.0, None)


def test_users_rules_take_the_default_remedy_of_their_metric() -> None:
    default = next(rule for rule in RULES if rule.metric == "seq_ess")
    assert written("seq_ess", 0.9, None).remedy == default.remedy
    assert written("seq_ess", 0.9, None, remedy="Ask.").remedy == "Ask."
    assert written("token_ess", 0.9, None).remedy == ""


@pytest.mark.parametrize("name", ["token_is", "geo_rs", "disabled", "seq_is_rs", "token_tis", "m2po"])
def test_what_a_plan_brings_is_known_before_a_dump_is_read(name: str) -> None:
    """The metrics of a real run are those that `possible` allows, but for the columns only a dump knows of."""
    plan = Plan("disabled") if name == "disabled" else preset(name).plan
    there = set(analyze(BF16, plan=plan).whole.values)
    named = {metric for family in FAMILIES for metric in family.names}
    drift = {metric.name for metric in DRIFT}
    assert all(may_have_metric(metric, plan) for metric in there)
    assert {metric for metric in named - drift if may_have_metric(metric, plan)} <= there


def test_what_zeroed_normalized_and_vetoing_plans_bring() -> None:
    weighting = {"scope": "token", "high": 2.0, "outside": "zero", "normalize": "batch"}
    veto = {"statistic": "ratio", "scope": "seq_min", "low": 1e-4, "name": "veto"}
    plan = plan_from_dict({"weighting": weighting, "rejections": [veto]})
    names = ("oob_ratio", "batch_norm_factor", "veto_fraction")
    assert all(may_have_metric(f"rollout_is_{name}", plan) for name in names)
    assert not any(may_have_metric(f"rollout_is_{name}", preset("token_is").plan) for name in names)
    assert may_have_metric("rollout_rs_veto_max", plan)
    assert not may_have_metric("rollout_rs_geometric_max", plan)


def exactly(value: float | None, metric: str = "kl", **key: int) -> Section:
    """A section of which chance moves nothing."""
    return Section(key, {metric: value}, intervals={} if value is None else {metric: (value, value)})


def moved(option: str, text: str, now: float | None, then: float | None, metric: str = "kl") -> tuple[str, str]:
    given = limits([text], []) if option == "--max-increase" else limits([], [text])
    (found,) = compare(given, [exactly(now, metric)], [exactly(then, metric)])
    return found.status, found.message


@pytest.mark.parametrize(("now", "status"), [(0.0015, "ok"), (0.00151, "fail")])
def test_k3_kl_may_be_half_as_large_again_as_its_baseline(now: float, status: str) -> None:
    (found,) = compare(DEFAULT_LIMITS, [exactly(now, "k3_kl")], [exactly(0.001, "k3_kl")])
    assert found.status == status


@pytest.mark.parametrize(
    ("text", "now", "then", "status"),
    [
        ("kl=20%", 0.12, 0.1, "ok"),
        ("kl=20%", 0.1201, 0.1, "fail"),
        ("kl=20%", -0.1201, 0.1, "fail"),
        ("kl=20%", -0.11, -0.1, "ok"),
        ("kl=20%", 0.0, 0.1, "ok"),
        ("kl=0.01", 0.11, 0.1, "ok"),
        ("kl=0.01", 0.1101, 0.1, "fail"),
        ("kl=0%", 0.1, 0.1, "ok"),
        ("kl=0%", 0.1 * (1 + 1e-12), 0.1, "ok"),
        ("kl=0", 0.1 * (1 + 1e-6), 0.1, "fail"),
        ("kl=20%", 1e-12, 0.0, "fail"),
        ("kl=20%", 0.0, 0.0, "ok"),
        ("kl=0.01", 0.009, 0.0, "ok"),
        ("kl=20%", None, 0.1, "fail"),
        ("kl=20%", 0.1, None, "fail"),
    ],
)
def test_an_increase_is_one_of_the_size_where_the_ideal_is_0(
    text: str, now: float | None, then: float | None, status: str
) -> None:
    assert moved("--max-increase", text, now, then)[0] == status


@pytest.mark.parametrize(
    ("text", "now", "then", "status"),
    [
        ("seq_ess=10%", 0.9, 1.0, "ok"),
        ("seq_ess=10%", 0.89, 1.0, "fail"),
        ("seq_ess=0.05", 0.94, 1.0, "fail"),
        ("seq_ess=10%", 2.0, 1.0, "ok"),
        ("prob_pearson=10%", -0.3, -0.2, "fail"),
        ("prob_pearson=10%", -0.21, -0.2, "ok"),
        ("prob_pearson=10%", 0.2, -0.2, "ok"),
    ],
)
def test_a_decrease_is_one_of_the_value_elsewhere(text: str, now: float, then: float, status: str) -> None:
    assert moved("--max-decrease", text, now, then, text.split("=")[0])[0] == status


def test_a_move_is_told_with_both_values() -> None:
    _, says = moved("--max-increase", "kl=20%", -0.15, 0.1)
    assert says == "kl is -0.15, the baseline 0.1 (size up 50%), should be at most 20% above the baseline."
    _, says = moved("--max-decrease", "seq_ess=0.1", 0.45, 0.6, "seq_ess")
    assert says == "seq_ess is 0.45, the baseline 0.6 (down 25%), should be at most 0.1 below the baseline."
    _, says = moved("--max-increase", "kl=20%", 0.01, 0.0)
    assert says == "kl is 0.01, the baseline 0, and any change from 0 is more than 20% of it."
    _, says = moved("--max-increase", "kl=20%", 0.01, None)
    assert "the baseline has no data" in says
    _, says = moved("--max-increase", "kl=20%", None, 0.01)
    assert says.startswith("kl has no data, should be")


@pytest.mark.parametrize(
    ("now", "then", "status"),
    [
        ((0.149, 0.109, 0.3), (0.1, 0.0, 0.13), "ok"),  # 0.05 is the root of 0.04^2 + 0.03^2
        ((0.151, 0.111, 0.3), (0.1, 0.0, 0.13), "fail"),
        ((-0.149, -0.3, -0.109), (0.1, 0.0, 0.13), "ok"),
        ((-0.151, -0.3, -0.111), (-0.1, -0.13, 0.0), "fail"),
        ((0.119, 0.119, 0.119), (0.1, 0.1, 0.1), "ok"),  # within the limit, though it is no chance
    ],
)
def test_an_increase_within_the_interval_of_the_change_is_chance(
    now: tuple[float, float, float], then: tuple[float, float, float], status: str
) -> None:
    sections = [Section({}, {"kl": value}, intervals={"kl": ends}) for value, *ends in (now, then)]
    (found,) = compare(limits(["kl=20%"], []), sections[:1], sections[1:])
    assert found.status == status
    assert ("may be chance" in found.message) == (status == "ok" and abs(now[0]) > 0.12)


def test_a_decrease_looks_at_the_other_ends() -> None:
    then = Section({}, {"token_ess": 0.9}, intervals={"token_ess": (0.87, 0.9)})
    for now, status in ((0.851, "ok"), (0.849, "fail")):
        section = Section({}, {"token_ess": now}, intervals={"token_ess": (now, now + 0.04)})
        assert compare(limits([], ["token_ess=1%"]), [section], [then])[0].status == status


def test_a_large_rise_is_told_as_a_multiple() -> None:
    assert "(215 times as large)" in moved("--max-increase", "k3_kl=20%", 0.215, 0.001, "k3_kl")[1]
    assert "(up 900%)" in moved("--max-increase", "k3_kl=20%", 0.01, 0.001, "k3_kl")[1]


def test_limits_have_their_ends_in_numbers() -> None:
    def ends(option: str, text: str, then: float) -> tuple[float | None, float | None]:
        metric = text.split("=")[0]
        given = limits([text], []) if option == "--max-increase" else limits([], [text])
        (found,) = compare(given, [exactly(then, metric)], [exactly(then, metric)])
        return found.low, found.high

    assert ends("--max-increase", "kl=50%", -0.1) == pytest.approx((-0.15, 0.15))
    assert ends("--max-increase", "k3_kl=0.01", 0.1) == (None, pytest.approx(0.11))
    assert ends("--max-decrease", "k3_kl=0.01", 0.1) == (pytest.approx(0.09), None)
    assert ends("--max-decrease", "kl=50%", -0.1) == (None, None)
    assert ends("--max-decrease", "token_ess=10%", 0.8) == (pytest.approx(0.72), None)
    assert ends("--max-increase", "token_ess=10%", 0.8) == (None, pytest.approx(0.88))


def test_groups_of_the_same_key_are_compared_and_others_are_not() -> None:
    now = [exactly(0.1), exactly(0.1, step=0), exactly(0.3, step=1)]
    then = [exactly(0.1), exactly(0.1, step=1), exactly(0.1, step=2)]
    found = compare(limits(["kl=20%"], []), now, then)
    assert [(one.key, one.status) for one in found] == [({}, "ok"), ({"step": 1}, "fail")]
