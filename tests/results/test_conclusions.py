"""One judge: a changed rule changes text, tables, pages, pictures and `check`; suggestions, trends, short forms."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reported import analyze as measure

from rlcorr_cli import Plan, analyze, check, filter
from rlcorr_cli.causes.diagnosis import Impossible
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.plans.plan import Bounds, Rejection, Weighting
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.records.fields import computed
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import RULES, Rule, with_remedies
from rlcorr_cli.results.story import Story
from rlcorr_cli.results.suggest import Distances, suggestions
from rlcorr_cli.results.trends import Profile, length_trend, position_trend, surprise_trend
from rlcorr_cli.results.written import Target
from rlcorr_cli.runs.filter import filter_dump as filter_with
from rlcorr_cli.show import print_result
from rlcorr_cli.show.figures import draw
from rlcorr_cli.show.numbers import share
from rlcorr_cli.show.report import to_do
from rlcorr_cli.totals.bins import FLOAT_BITS, Histogram

STEPS = Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet"
STRICT = tuple(replace(rule, high=0.002, severity="fail") if rule.metric == "k3_kl" else rule for rule in RULES)


def request(group_by: tuple[str, ...] = ()) -> ReadRequest:
    return ReadRequest(paths=(str(STEPS),), group_by=group_by)


@pytest.fixture(scope="module")
def report() -> Report:
    return measure(request(group_by=("step",)), ChosenPlan(plan=Plan("disabled")), pictures=True)


class Counted(Report):
    @property
    @computed("How many groups there are.", after="groups")
    def n_groups(self) -> int:
        return len(self.groups)


def test_a_conclusion_is_declared_once(report: Report) -> None:
    saved = Counted.from_json(json.dumps({**report.to_dict(), "n_groups": 5}))
    assert saved.to_dict()["n_groups"] == len(report.groups) == 5


def printed(report: Report, capsys: pytest.CaptureFixture[str]) -> str:
    print_result(report)
    return capsys.readouterr().out


def test_a_changed_rule_changes_text_cells_verdict_page_and_health(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    before, strict = printed(report, capsys), replace(report, rules=STRICT)
    after = printed(strict, capsys)
    assert re.search(r"k3_kl +0\.00940 ! .* <= 0\.002 +0\.0317 at 4 !\n", after)
    assert "0.00940 !" not in before
    assert "0.0317 at 4 !" not in before
    before, after = (printed(replace(each, everything=True), capsys) for each in (report, strict))
    assert "k3_kl 0.00940  should be <= 0.002" in after
    assert "k3_kl 0.00940" not in before
    assert "0.0317 !" in after  # the cell of step 4
    assert "0.0317 !" not in before
    assert (report.verdict.level, strict.verdict.level) == ("close", "far")
    assert "All 5 steps together: far apart." in after
    assert strict.verdict.failing == ("k3_kl",)
    assert ("fail", "k3_kl is 0.00940, should be <= 0.002") in [row[:2] for row in to_do(strict)]
    assert {one.metric: one.status for one in strict.health}["k3_kl"] == "fail"


def test_a_changed_rule_changes_check(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nmetric = "k3_kl"\nmax = 0.002\nabsolute = false\n')
    assert check(report).passed
    checked = check(report, rules=path)
    broken = [finding.key for finding in checked.findings if finding.metric == "k3_kl" and finding.broken]
    assert broken == [{}, {"step": 2}, {"step": 3}, {"step": 4}]
    strict = replace(report, rules=STRICT)
    raw = [finding for group in (report.whole, *report.groups) for finding in strict.findings(group)]
    by_table = with_remedies(raw, strict.situation)
    of_rules = [finding for finding in check(strict).findings if finding.metric != report.story.first]
    assert set(map(str, of_rules)) == set(map(str, by_table))
    found = {finding.message for finding in checked.findings if finding.metric == "k3_kl"}
    assert found == {finding.message for finding in by_table if finding.metric == "k3_kl"}


def test_lines_in_pictures_are_those_of_the_rules(report: Report) -> None:
    other = (Rule("seq_ess", "warn", "", low=0.25), Rule("chi2_token", "fail", "", high=7.0))
    drawing = draw("metrics", replace(report, rules=other)).write("svg").decode()
    assert "limit 0.25" in drawing
    assert "limit 7" in drawing
    assert "limit" not in draw("metrics", replace(report, rules=())).write("svg").decode()


def test_the_python_check_takes_bounds_and_a_baseline(report: Report, tmp_path: Path) -> None:
    assert not check(report, max={"kl": 1e-9}).passed
    assert not check(report, min={"seq_ess": 0.3}).passed
    saved = tmp_path / "report.json"
    saved.write_text(json.dumps(report.to_dict()))
    assert check(saved, baseline=report, max_increase={"kl": "0%"}, max_decrease={"seq_ess": 0.0}).passed
    assert check(report, baseline=saved, max_increase={"k3_kl": 0.0}).passed
    with pytest.raises(UsageError, match="compares with a report"):
        check(report, max_increase={"kl": 0.1})
    assert repr(check(report)).startswith(f"<Checked of {str(STEPS)!r}: passed, 6 rules, 0 failed")


GEOMETRIC = Rejection("ratio", "seq_mean", Bounds(0.9999, 1.0001), "tight")


def test_a_rejection_that_takes_too_much_gets_bounds_that_keep_the_target() -> None:
    filtered = filter(STEPS, dry_run=True, plan=Plan("tight", rejections=(GEOMETRIC,)))
    (bounds,) = filtered.report.suggestions
    assert (bounds.rejection, bounds.units) == ("tight", "sequences")
    assert bounds.lost_fraction > 0.5
    assert (bounds.kept_fraction, bounds.exact) == (0.9, True)
    loosened = Plan("loose", rejections=(replace(GEOMETRIC, bounds=Bounds(bounds.low, bounds.high)),))
    again = filter(STEPS, dry_run=True, plan=loosened)
    lost = again.report.whole.values["rollout_rs_tight_seq_masked_fraction"]
    assert lost is not None
    assert 1 - lost == 0.9
    assert again.report.suggestions == ()
    assert filtered.to_dict()["suggestions"] == [bounds.to_dict()]


@pytest.mark.parametrize("group_by", [(), ("step",), ("group_id", "step")], ids=["whole", "step", "mixed"])
def test_analyze_suggests_what_filter_does(group_by: tuple[str, ...]) -> None:
    tokens = Rejection("k3", "token", Bounds(None, 1e-5), "tokens")
    plan = Plan("tight", rejections=(GEOMETRIC, tokens), weighting=Weighting("token", normalize="batch"))
    report = analyze(STEPS, plan=plan, group_by=group_by)
    assert [bounds.rejection for bounds in report.suggestions] == ["tight", "tokens"]
    assert report.suggestions == filter(STEPS, dry_run=True, plan=plan).report.suggestions
    assert report.to_dict()["suggestions"] == [bounds.to_dict() for bounds in report.suggestions]
    assert analyze(STEPS, plan=Plan("disabled")).suggestions == ()


def test_no_bound_is_suggested_where_none_can_be() -> None:
    far = Distances(Histogram(FLOAT_BITS.bins_of(np.array([1000.0], np.float32)), np.array([10], np.int64)))
    lost = {"rollout_rs_tight_seq_masked_fraction": 1.0}
    assert list(suggestions([GEOMETRIC], lost, {"tight": far})) == []
    assert list(suggestions([GEOMETRIC], lost, {})) == []
    near = Distances(Histogram(FLOAT_BITS.bins_of(np.array([0.5], np.float32)), np.array([10], np.int64)))
    (bounds,) = suggestions([GEOMETRIC], lost, {"tight": near})
    assert bounds.high is not None
    assert bounds.high >= math.exp(0.5 * (1 + 2**-7))  # the far edge of the bucket that 0.5 begins
    n_suggested = [
        len(list(suggestions([GEOMETRIC], {"rollout_rs_tight_seq_masked_fraction": share}, {"tight": near})))
        for share in (0.1, 1 / 10 + 1e-9)  # just what may be lost, which is not quite 1 - 0.9, and more
    ]
    assert n_suggested == [0, 1]
    assert list(suggestions([replace(GEOMETRIC, gate="advantage_negative")], lost, {"tight": near})) == []


def test_suggested_bounds_stand_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    report = measure(request(), ChosenPlan(plan=Plan("tight", rejections=(GEOMETRIC,))))
    (bounds,) = report.suggestions
    flag = f"--rs ratio.seq_mean:{bounds.low},{bounds.high}"
    rejects = f"Rejection tight drops {share(bounds.lost_fraction)} of the sequences."
    assert f"  ! {rejects} To keep 90.0% of them:\n    {flag}\n\n" in printed(report, capsys)
    assert to_do(report)[-1] == ("warn", rejects, f"To keep 90.0% of them: {flag}")
    at_least = replace(report, suggestions=(replace(bounds, exact=False),))
    assert f"! {rejects} To keep at least 90.0% of them: {flag} " in " ".join(printed(at_least, capsys).split())
    all_of_them = replace(report, suggestions=(replace(bounds, exact=False, kept_fraction=1.0),))
    assert f"  ! {rejects} To keep 100% of them:\n    {flag}\n\n" in printed(all_of_them, capsys)
    looser = replace(report, suggestions=())
    assert "To keep" not in printed(looser, capsys)
    assert to_do(looser) == to_do(report)[:-1]


def test_bounds_too_wide_to_correct_anything_are_not_advised(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ChosenPlan(plan=Plan("tight", rejections=(replace(GEOMETRIC, scope="seq_sum"),)))
    report = measure(request(), chosen)
    (bounds,) = (replace(bounds, exact=True) for bounds in report.suggestions)
    wide, narrow = (
        " ".join(printed(replace(report, suggestions=(replace(bounds, high=high),)), capsys).split())
        for high in (10.1, 10.0)
    )
    keeps = share(bounds.kept_fraction)
    assert "No bounds on ratio seq_sum work here: use token weights (`--preset token_is`)." in wide
    assert "of them: --rs" not in wide
    assert f"To keep {keeps} of them: --rs" in narrow


def test_bounds_are_no_advice_where_the_numbers_are_void(capsys: pytest.CaptureFixture[str]) -> None:
    report = measure(request(), ChosenPlan(plan=Plan("tight", rejections=(GEOMETRIC,))))
    proof = Impossible(metric="ratio_mean", value=0.9, interval=(0.8, 0.95), proves="The columns are shifted")
    void = replace(report, impossible=proof)
    assert void.causes == ("ratio_mean",)
    assert void.suggestions == report.suggestions
    assert "To keep" not in printed(void, capsys)
    assert not [row for row in to_do(void) if "To keep" in row[2]]


def test_the_last_line_counts_what_stands_above(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    (bounds,) = measure(request(), ChosenPlan(plan=Plan("tight", rejections=(GEOMETRIC,)))).suggestions
    fine = replace(report, rules=(), cause=None, story=Story())
    for passing in (fine, replace(fine, suggestions=(bounds,))):
        assert "`rlcorr check` passes: every number is within its limit." in " ".join(printed(passing, capsys).split())
    one = printed(replace(fine, rules=(Rule("token_ess", "warn", "", low=1.0),)), capsys)
    assert "  `rlcorr check` passes, and warns of token_ess; with --strict it fails." in one
    of_cause = " ".join(printed(replace(report, rules=()), capsys).split())
    assert "`rlcorr check` passes, and warns of the likely cause; with --strict it fails." in of_cause


def test_a_profile_is_not_told_of_an_option_that_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan("tight", rejections=(GEOMETRIC,))
    for chosen, is_told in (
        (ChosenPlan(plan=plan), True),
        (ChosenPlan(plan=plan, profile=PROFILES["verl-0.9"]), False),
    ):
        print_result(filter_with(request(), chosen, Target(path=None)))
        print_result(measure(request(), chosen))
        text = capsys.readouterr().out
        assert text.count("--rs ratio.seq_mean:") == 2 * is_told
        assert text.count("on ratio in the framework's config") == 2 * (not is_told)
        assert is_told or "--rs" not in text


def bins(*std: float, count: tuple[float, ...] = (), mean: float = 0.0) -> Profile:
    n = len(std)
    return Profile(
        bins=np.arange(n, dtype=np.uint16),
        centre=np.arange(n) + 1.0,
        count=np.array(count or (100.0,) * n),
        mean=np.full(n, mean),
        std=np.array(std),
    )


def test_the_spread_depends_on_surprise_beyond_a_factor_of_two() -> None:
    changes = {ends: surprise_trend(bins(ends[0], 9.0, ends[1])) for ends in ((1.0, 2.0), (1.0, 2.01), (2.01, 1.0))}
    assert [trend and trend.change for trend in changes.values()] == ["level", "grows", "shrinks"]
    assert surprise_trend(bins(1.0)) is None


def test_the_gap_widens_along_the_sequence_beyond_a_fifth() -> None:
    changes = [position_trend(bins(*ends)) for ends in ((1.0, 1.2), (1.0, 1.21), (1.21, 1.0), (1.2, 1.0))]
    assert [trend and trend.change for trend in changes] == ["level", "widens", "narrows", "level"]
    weighted = position_trend(bins(1.0, 1.0, 5.0, count=(9.0, 99.0, 1.0)))
    assert weighted is not None
    assert (weighted.early_std, weighted.late_std) == (1.0, pytest.approx(1.24**0.5))
    assert position_trend(bins(1.0)) is None


def test_length_is_a_trap_where_long_ratios_leave_a_factor_of_two() -> None:
    log2 = math.log(2)
    traps = [length_trend(bins(*ends)) for ends in ((0.1, log2), (0.1, log2 + 0.01), (0.5, 1.0), (0.5, 1.01))]
    assert [trend and trend.trap for trend in traps] == [False, True, False, True]
    assert length_trend(bins()) is None
    sized = length_trend(bins(3.0, mean=4.0))
    assert sized is not None
    assert (sized.shortest, sized.longest, sized.trap) == (5.0, 5.0, False)


def test_trends_stand_in_the_report_where_bins_were_counted(report: Report) -> None:
    assert report.trends is not None
    assert report.trends.surprise is not None
    assert report.trends.surprise.change == "grows"
    assert report.trends.concentration is not None
    assert report.trends.to_dict() == report.to_dict()["trends"]
    assert analyze(STEPS).trends is None
    normalized = Plan("normed", Weighting("token", Bounds(None, 2.0), normalize="batch"))
    counted = measure(request(), ChosenPlan(plan=normalized), pictures=True).trends
    assert counted is not None
    assert counted.concentration is None
