"""Features of small cases by hand, and of made rows with one known change."""

from math import exp, log, sqrt

import numpy as np
import pytest
from gap_oracle import Row, sample_of, totals_of

from rlcorr_cli.causes.columns import attributions, level_gaps
from rlcorr_cli.causes.features import Case, Context, Features, curve_of, features_of, spread_of, step_of
from rlcorr_cli.causes.gap import (
    GROUPS,
    ID_BUCKETS,
    N_SPREAD,
    N_SURPRISE,
    PROMPT_BUCKETS,
    SPREAD_STEPS,
    Vocabulary,
)
from rlcorr_cli.causes.numbers import jackknife, line_of, weighted_quantile
from rlcorr_cli.causes.of_tokens import by_token, repetition
from rlcorr_cli.causes.positions import poisson_tail
from rlcorr_cli.causes.wording import figures, percent, roundest

RNG = np.random.default_rng(16)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Each test draws from the start, whichever ran before it."""
    RNG.bit_generator.state = START


def log_p(odds: np.ndarray) -> np.ndarray:
    """The log-probability of log-odds."""
    return -np.logaddexp(0, -odds)


def row(u: np.ndarray, d: np.ndarray, number: int = 0, **more: object) -> Row:
    """A row of log-odds u in rollout and u + d in training."""
    return Row(rollout=list(log_p(u)), train=list(log_p(u + d)), key=number, number=number, **more)


def rows(n: int = 20, m: int = 40, size: float = 0.1) -> list[tuple[np.ndarray, np.ndarray]]:
    """u and d of n rows of m tokens, d of one size at all levels of u."""
    return [(RNG.normal(1.0, 2.0, m), RNG.normal(0.0, size, m)) for _ in range(n)]


def features(pairs: list[tuple[np.ndarray, np.ndarray]], **more: object) -> Features:
    """Of such rows."""
    return features_of(totals_of([row(u, d, i, **more) for i, (u, d) in enumerate(pairs)]))


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    groups = np.stack([np.ones(4), values], axis=1)
    assert jackknife(lambda sums: sums[1] / sums[0], groups) == pytest.approx(values.std(ddof=1) / 2)


def test_the_jackknife_leaves_empty_groups_out() -> None:
    groups = np.array([[1.0, 3.0], [0.0, 0.0], [1.0, 5.0]])
    assert jackknife(lambda sums: sums[1] / sums[0], groups) == pytest.approx(1.0)
    assert jackknife(lambda sums: sums[1] / sums[0], groups[:2]) == 0.0


def test_the_interval_of_a_share_is_two_jackknife_errors_on_each_side() -> None:
    totals = totals_of([row(u, d, i) for i, (u, d) in enumerate(rows())])
    middle = N_SURPRISE // 2
    parts = np.stack([totals.surprise_gap[:middle].sum(axis=0), totals.surprise_gap[middle:].sum(axis=0)])
    of_part, of_all = parts[0, :, 1], parts[:, :, 1].sum(axis=0)
    (half, _) = level_gaps("ab", parts, np.zeros((2, N_SURPRISE)), totals)
    counted = np.stack([parts[:, :, 0].sum(axis=0), of_part, of_all], axis=1)
    error = jackknife(lambda sums: sums[1] / sums[2], counted)
    assert half.gap == pytest.approx(of_part.sum() / of_all.sum())
    assert 0.0 < half.gap - 2 * error < half.gap + 2 * error < 1.0
    assert half.gap_interval == pytest.approx((half.gap - 2 * error, half.gap + 2 * error))


def test_a_weighted_quantile_is_the_first_value_that_reaches_the_share() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    assert [weighted_quantile(values, weights, share) for share in (0.25, 0.5, 0.75, 1.0)] == [1.0, 2.0, 2.0, 3.0]


def test_the_curve_explains_the_means_of_bins_and_nothing_of_their_variance() -> None:
    def bins(*of_tokens: list[float]) -> dict[str, np.ndarray]:
        columns = {"n": len, "l": sum, "l2": lambda values: sum(value * value for value in values)}
        return {name: np.array([total(values) for values in of_tokens], float) for name, total in columns.items()}

    assert curve_of(bins([0.5] * 10, [-0.2] * 10)) == pytest.approx(1.0)
    # A bin's mean is 0: n mu^2 - sigma^2 < 0, and no share is below 0.
    assert curve_of(bins([0.3, -0.3])) == 0.0
    # n mu^2 = 4 x .25, sigma^2 = 4 x .25 / 3, of a sum of 2.
    assert curve_of(bins([1.0, 1.0, 0.0, 0.0])) == pytest.approx((1.0 - 1 / 3) / 2)


def test_the_core_is_the_root_mean_square_of_d_and_the_tail_is_over_its_middle() -> None:
    counts = np.zeros((N_SURPRISE, N_SPREAD))
    counts[12, [SPREAD_STEPS - 20, SPREAD_STEPS, SPREAD_STEPS + 20]] = [25, 50, 25]
    spread = spread_of(counts)
    assert spread is not None
    assert spread.core == pytest.approx(1e-3 * 1.15**19.5 * sqrt(0.5), rel=0.002)  # of 0, half a bin
    assert spread.tail == pytest.approx(sqrt(0.5))
    assert (spread.n, spread.n_far, spread.fan) == (100, 0, 1.0)


def test_an_outlier_lies_three_times_as_far_off_as_the_loud_tokens_of_its_bin() -> None:
    counts = np.zeros((N_SURPRISE, N_SPREAD))
    counts[12, [SPREAD_STEPS - 20, SPREAD_STEPS, SPREAD_STEPS + 20]] = [25, 50, 25]
    counts[12, [SPREAD_STEPS - 28, SPREAD_STEPS + 27]] = [2, 1]  # 1.15^8 is 3.1, 1.15^7 is 2.7
    spread = spread_of(counts)
    assert spread is not None
    assert (spread.n_far, spread.n_below) == (2, 2)


def test_policies_that_agree_have_outliers_and_a_tail() -> None:
    counts = np.zeros((N_SURPRISE, N_SPREAD))
    counts[12, [SPREAD_STEPS, SPREAD_STEPS + 50]] = [990, 10]
    spread = spread_of(counts)
    assert spread is not None
    assert (spread.core, spread.n_far) == (0.001, 10)
    assert min(spread.tail, spread.over_noise) > 10


def test_bins_of_few_tokens_have_no_spread() -> None:
    counts = np.zeros((N_SURPRISE, N_SPREAD))
    counts[12, SPREAD_STEPS + 20] = 14
    assert spread_of(counts) is None


def test_the_fan_compares_sure_tokens_with_even_ones() -> None:
    counts = np.zeros((N_SURPRISE, N_SPREAD))
    even, sure = 12, 20
    counts[even, [SPREAD_STEPS - 20, SPREAD_STEPS, SPREAD_STEPS + 20]] = [25, 50, 25]
    counts[sure, [SPREAD_STEPS - 25, SPREAD_STEPS, SPREAD_STEPS + 25]] = [25, 50, 25]
    spread = spread_of(counts)
    assert spread is not None
    assert spread.fan == pytest.approx(1.15**5)


def test_a_line_through_points_on_it_has_its_slope() -> None:
    u = np.linspace(-2, 4, 60)
    d = 0.5 + 0.25 * u
    groups = np.zeros((GROUPS, 6))
    for g, part in enumerate(np.split(np.arange(60), 6)):
        x, y = u[part], d[part]
        groups[g] = [len(part), x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()]
    line = line_of(groups)
    assert (line.slope, line.r2, line.match) == pytest.approx((0.25, 1.0, 1.0))
    assert line.error == pytest.approx(0.0, abs=1e-9)


def test_a_temperature_is_the_slope_above_log_odds_of_1() -> None:
    pairs = [(u, (0.8 - 1) * u + d) for u, d in rows()]
    line = features(pairs).lines["u_high"]
    assert line.slope == pytest.approx(-0.2, abs=3 * line.error)
    assert 0 < line.error < 0.02


def test_the_mean_of_rho_is_1_where_tokens_are_drawn_from_rollout() -> None:
    # Two tokens of a vocabulary of two, drawn as often as rollout has it.
    p, q = 0.75, 0.6
    b, a = [log(p)] * 30 + [log(1 - p)] * 10, [log(q)] * 30 + [log(1 - q)] * 10
    order = RNG.permutation(40)
    found = features_of(
        totals_of([Row(rollout=[b[i] for i in order], train=[a[i] for i in order], key=k) for k in range(4)])
    )
    ratio = np.exp(np.array(a) - np.array(b))[order][4:-1]
    assert found.forward.value == pytest.approx(ratio.mean() - 1)
    assert found.inverse.value == pytest.approx((1 / ratio).mean() - 1)
    assert found.positive == pytest.approx((ratio > 1).mean())


def test_a_bound_is_found_where_rollout_turns_to_zero() -> None:
    a = np.log(RNG.uniform(0.02, 0.98, 3000))
    b = np.where(a > log(0.8), 0.0, a - log(0.8))
    step = step_of(totals_of([Row(rollout=list(b[i::20]), train=list(a[i::20])) for i in range(20)]))
    assert step is not None
    assert (step.cut, step.n, step.errors) == ((a > log(0.8)).sum(), 3000, pytest.approx(0, abs=30))
    assert step.interval[0] <= 0.8 <= step.interval[1]
    assert step.interval[1] - step.interval[0] < 0.02
    assert step.least_left == pytest.approx(exp(-b[b < 0].max()) - 1)


def test_no_bound_is_sought_without_a_token_of_zero() -> None:
    assert step_of(totals_of([row(*pair) for pair in rows(2)])) is None


def test_rows_that_gain_or_lose_as_wholes_lean() -> None:
    level = features(rows(40)).lean
    assert level.tau < 0.1
    leaning = features([(u, np.abs(d) * (1 if i % 2 else -1)) for i, (u, d) in enumerate(rows(40))]).lean
    # P / V is 0 or 1 on 35 body tokens: chi = V.
    assert leaning.tau == pytest.approx(sqrt((35 - 1) / (4 * 35)))
    assert leaning.z_tau == pytest.approx((35 - 1) * sqrt(20))


def test_rows_that_gain_with_their_advantage_correlate_with_it() -> None:
    made = [
        row(u, np.abs(d) * (1 if i % 2 else -1), i, advantage=1.0 if i % 2 else -1.0)
        for i, (u, d) in enumerate(rows(40))
    ]
    lean = features_of(totals_of(made)).lean
    assert (lean.correlation, lean.n) == (pytest.approx(1.0), 40)


def test_changed_weights_go_with_the_token_and_rounding_does_not() -> None:
    of_id = RNG.normal(0, 0.1, 50)
    changed, rounded = [], []
    for i, (u, d) in enumerate(rows(32, 60)):
        ids = RNG.integers(0, 50, 60)
        changed.append(row(u, of_id[ids] + d, i, ids=list(ids)))
        rounded.append(row(u, d, i, ids=list(ids)))
    weights, noise = (by_token(totals_of(made).vocabulary) for made in (changed, rounded))
    assert weights.omega2 == pytest.approx(of_id.var() / (of_id.var() + 0.1**2), abs=0.07)
    assert weights.holds
    assert noise.omega2 == pytest.approx(0.0, abs=4 * noise.error)
    assert not noise.holds


def test_two_prompts_alone_do_not_make_a_change_of_weights() -> None:
    of_id = RNG.normal(0, 0.2, 50)
    made = []
    for i, (u, d) in enumerate(rows(48, 60)):
        ids = RNG.integers(0, 50, 60)
        prompt = i % 6
        made.append(row(u, d + of_id[ids] * (prompt < 2), i, ids=list(ids), prompt=prompt))
    found = by_token(totals_of(made).vocabulary)
    assert found.omega2 > max(0.03, 4 * found.error)
    assert found.least < 0.01
    assert not found.holds


def test_an_id_that_is_louder_than_others_makes_no_change_of_weights_by_itself() -> None:
    """Its mean of d is as far from 0 as chance takes it, and holds most of d's variance."""
    found = []
    for _ in range(30):
        n = RNG.multinomial(9600, [0.05, *[0.95 / 99] * 99], size=PROMPT_BUCKETS).astype(float)
        loud = np.array([20.0, *[1.0] * 99])
        sums = RNG.normal(size=n.shape) * np.sqrt(n) * loud
        by_id = np.zeros((PROMPT_BUCKETS, ID_BUCKETS, 2))
        by_id[:, :100] = np.stack([n, sums], axis=-1)
        spread = np.array([n.sum(), sums.sum(), (n * loud**2).sum()])
        found.append(by_token(Vocabulary(by_id=by_id, spread=spread)))
    assert max(each.omega2 / each.error for each in found) > 4
    assert max(each.omega2 / each.loud_error for each in found) < 4
    assert not any(each.holds for each in found)


def test_repeated_tokens_stand_apart_under_a_penalty() -> None:
    made = []
    for i, (u, d) in enumerate(rows(30, 60)):
        ids = list(RNG.integers(0, 40, 60))
        again = np.array([token in ids[:place] for place, token in enumerate(ids)])
        made.append(row(u, d + 0.3 * again, i, ids=ids))
    found = repetition(totals_of(made).vocabulary)
    assert found is not None
    assert found.difference == pytest.approx(0.3, abs=0.02)
    assert found.eta2 > 0.5


def test_the_poisson_tail_by_hand() -> None:
    assert poisson_tail(1, 0.5) == pytest.approx(1 - exp(-0.5))
    assert poisson_tail(3, 2.0) == pytest.approx(1 - exp(-2) * (1 + 2 + 2))


def test_the_levels_of_a_column_hold_all_of_the_gap() -> None:
    made = [row(u, d, i, levels={"worker": f"w{i % 4}"}) for i, (u, d) in enumerate(rows(48))]
    column = next(
        each for each in attributions(Case(sample=sample_of(made), context=Context())) if each.name == "worker"
    )
    assert sum(level.gap for level in column.gaps) == pytest.approx(1)
    assert sum(level.expected for level in column.gaps) == pytest.approx(1)


def test_an_error_that_grows_with_a_number_is_a_line() -> None:
    made = [row(u, d * exp(0.08 * (i % 8)), i, levels={"lag": i % 8}) for i, (u, d) in enumerate(rows(64))]
    column = next(each for each in attributions(Case(sample=sample_of(made), context=Context())) if each.name == "lag")
    assert column.grows
    assert column.trend is not None
    assert column.trend[0] == pytest.approx(exp(0.56), rel=0.15)


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (0.794, (0.787, 0.808), 0.8),
        (0.953, (0.949, 0.957), 0.95),
        (0.97, (0.965, 0.972), 0.97),
        (0.0153, (0.0151, 0.0155), 0.0153),
    ],
)
def test_a_setting_is_the_roundest_number_in_its_interval(value: float, interval: tuple, text: float) -> None:
    assert roundest(value, interval) == pytest.approx(text)


def test_numbers_are_short() -> None:
    assert [percent(share) for share in (0.726, 0.0041, 0.0, 1.0, -0.0)] == ["73%", "0.4%", "0%", "100%", "0%"]
    assert [figures(value) for value in (0.0717, 5.156, 1234.5, 0.0)] == ["0.072", "5.2", "1,234", "0"]
