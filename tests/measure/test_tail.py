"""Pareto shapes: those of arviz-stats, for any split of the weights."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made import metrics, observed, row, simulated

from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.tail import SAMPLED, Tail, largest

KINDS = ("normal", "student", "truncated", "far")


def log_weights(kind: str, n: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    match kind:
        case "normal":
            return rng.normal(0, 0.5, n)
        case "student":
            return rng.standard_t(2.5, n)
        case "truncated":
            return np.minimum(rng.normal(0, 1, n), 1.5 + rng.random(n) / 100)
        case _:
            return rng.normal(0, 40, n) + 2000


def arviz_shape(log_weights: np.ndarray) -> float:
    from arviz_stats.base.array import array_stats  # takes seconds to load, so one worker alone does it

    return float(array_stats.psislw(-log_weights)[1])


WITH_ARVIZ = pytest.mark.xdist_group("arviz")


@WITH_ARVIZ
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [25, 60, 225, 226, 1000, 20_000])
def test_shape_is_that_of_arviz(kind: str, n: int) -> None:
    values = log_weights(kind, n)
    assert Tail.of([values], 16_384).pareto_k == pytest.approx(arviz_shape(values), abs=1e-9)


@given(cuts=st.lists(st.integers(0, 3000), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_any_split_gives_the_same_shape(cuts: list[int], seed: int) -> None:
    values = log_weights("student", 3000, seed)
    parts = [Tail.of([part], 512) for part in np.split(values, sorted(cuts))]
    assert sum(parts[1:], start=parts[0]).pareto_k == Tail.of([values], 16_384).pareto_k


def test_beyond_its_size_a_tail_uses_what_it_has() -> None:
    values = log_weights("normal", 40_000)
    short, whole = Tail.of([values], 300).pareto_k, Tail.of([values], 16_384).pareto_k
    assert short is not None
    assert short != whole
    assert short == pytest.approx(whole, abs=0.2)


@pytest.mark.parametrize(
    "values",
    [[], [0.5] * 1, list(range(24)), [0.25] * 400, [0.0] * 390 + [1.0] * 10],
    ids=["none", "one", "under_five", "equal", "quarter_at_cutoff"],
)
def test_tails_without_a_shape(values: list[float]) -> None:
    assert Tail.of([np.array(values, np.float64)], 2048).pareto_k is None


@pytest.mark.parametrize(("n", "limit"), [(100, 0.5), (1000, 2 / 3), (10**6, 0.7), (99, None), (1, None), (0, None)])
def test_limit(n: int, limit: float | None) -> None:
    assert Tail(np.zeros(min(n, 2048)), n, 2048).limit == (None if limit is None else pytest.approx(limit, abs=1e-6))


@WITH_ARVIZ
def test_metrics_are_of_ratios_and_of_sequence_weights() -> None:
    rows = simulated(300, seed=4, std=0.2)
    logs = [[a - b for a, b, m in zip(r.train, r.rollout, r.mask, strict=True) if m] for r in rows]
    values = metrics(rows, Plan())
    token = arviz_shape(np.concatenate([np.array(one) for one in logs if one]))
    sequence = arviz_shape(np.array([sum(one) for one in logs if one]))
    assert values["pareto_k_token"] == pytest.approx(token, abs=1e-9)
    assert values["pareto_k_seq"] == pytest.approx(sequence, abs=1e-9)


def test_groups_have_tails_of_their_own() -> None:
    rows = simulated(200, seed=4, std=0.2)
    totals = observed(rows, Plan()).totals
    for at, (key,) in enumerate(totals.keys):
        mine = observed([r for r in rows if r.batch == key], Plan()).totals
        for name in ("token", "sequence", "seq_distance"):
            assert mine.tail(f"diagnostics.decoupled.{name}", 0) == totals.tail(f"diagnostics.decoupled.{name}", at)
        assert mine.tail("diagnostics.decoupled.token", 0).n < sum(len(r.train) for r in rows)


def test_constant_ratios_have_no_shape() -> None:
    assert metrics([row([0.0] * 200)] * 9, Plan())["pareto_k_token"] is None


@pytest.mark.parametrize("order", ["any", "rising", "falling", "sampled_low", "sampled_high", "few_values"])
def test_the_largest_of_many_are_those_of_sorting(order: str) -> None:
    values = np.random.default_rng(3).standard_t(3, 60_000)
    match order:
        case "rising" | "falling":
            values = np.sort(values)[:: 1 if order == "rising" else -1]
        case "sampled_low" | "sampled_high":
            values[::SAMPLED] += 50.0 if order == "sampled_high" else -50.0
        case "few_values":
            values = np.round(values)
        case _:
            pass
    np.testing.assert_array_equal(np.sort(largest([values], 2_048)), np.sort(values)[-2_048:])
    halves = [Tail.of([half], 2_048) for half in np.split(values, [9_000])]
    assert halves[0] + halves[1] == Tail.of([values], 2_048)
