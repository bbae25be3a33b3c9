"""The Poisson bootstrap: draws hang on the row alone, and intervals hold the truth about as often as they say."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made import batch, dumps, metrics, observed, row, simulated
from oracle import Row

from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.bootstrap import REPLICATES, matrix_product, poisson_draws, row_keys
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.diagnostics import metric_intervals
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.row_keys import Keys
from rlcorr_cli.totals.totals import Replicates

INTEGERS = ("sequences", "tokens", "rewarded", "extreme")


def hashes(rows: list[Row]) -> np.ndarray:
    return keys_of(batch(rows))


def keys_of(one: Batch, ids: Keys | None = None) -> Keys:
    tokens = Tokens.of(one, CPU)
    return row_keys(tokens.rollout_logp, tokens.rows, ids)


def replicates(rows: list[Row], seed: int = 0) -> Replicates:
    return observed(rows, Plan(), seed).replicates["decoupled"]


def ends(rows: list[Row]) -> dict[str, tuple[float, float]]:
    return metric_intervals(metrics(rows, Plan()), replicates(rows))


@given(rows=dumps(min_rows=2), cut=st.integers(1, 7))
def test_any_split_gives_bit_equal_sums(rows: list[Row], cut: int) -> None:
    parts = [observed(part, Plan(), seed=4).replicates for part in (rows[:cut], rows[cut:]) if part]
    known = [part["decoupled"] for part in parts if part]
    whole = observed(rows, Plan(), seed=4).replicates.get("decoupled")
    if whole is None:
        assert not known
        return
    together = known[0] if len(known) == 1 else known[0] + known[1]
    for name in INTEGERS:
        assert together.sums[name].tolist() == whole.sums[name].tolist()


def test_draws_do_not_depend_on_order_place_or_masked_tokens() -> None:
    rows = simulated(20, seed=1)
    shuffled = random.Random(2).sample(rows, len(rows))
    assert sorted(hashes(rows)) == sorted(hashes(shuffled))
    plain = [row([0.1, -0.2], probs=[-1.0, -2.0])]
    padded = [row([0.1, 9.0, -0.2], probs=[-1.0, -3.0, -2.0], mask=[1, 0, 1])]
    assert hashes(plain) == hashes(padded)


def test_different_rows_get_different_draws() -> None:
    found = hashes(simulated(2000, seed=1)).tolist()
    assert len(found) > 1900
    assert len(set(found)) == len(found)


def test_draws_are_poisson_of_mean_1() -> None:
    rows = hashes(simulated(3000, seed=1))
    draws = poisson_draws(rows, seed=0)
    assert draws.shape == (len(rows), REPLICATES)
    assert draws.mean() == pytest.approx(1.0, abs=0.01)
    assert draws.var() == pytest.approx(1.0, abs=0.02)
    # e^-1, e^-1, e^-1 / 2, e^-1 / 6
    assert (np.bincount(draws.astype(int).ravel())[:4] / draws.size).tolist() == pytest.approx(
        [0.3679, 0.3679, 0.1839, 0.0613], abs=0.005
    )


def test_draws_of_rows_and_of_replicates_are_uncorrelated() -> None:
    draws = poisson_draws(hashes(simulated(3000, seed=1)), seed=0)
    between = np.corrcoef(draws, rowvar=False) - np.eye(REPLICATES)
    assert np.abs(between).max() < 0.1
    assert draws.mean(axis=1).std() == pytest.approx(REPLICATES**-0.5, rel=0.1)
    assert draws.mean(axis=0).std() == pytest.approx(3000**-0.5, rel=0.2)


def test_another_seed_gives_other_draws_and_the_same_seed_the_same() -> None:
    some = hashes(simulated(200, seed=1))
    assert (poisson_draws(some, 7) == poisson_draws(some, 7)).all()
    assert abs(np.corrcoef(poisson_draws(some, 7).ravel(), poisson_draws(some, 8).ravel())[0, 1]) < 0.02


@pytest.mark.full
def test_interval_of_kl_holds_the_truth_about_95_times_in_100() -> None:
    hits = 0
    for trial in range(100):
        low, high = ends(simulated(60, seed=trial, mean=-0.02, std=0.2))["kl"]
        hits += low <= 0.02 <= high
    assert 85 <= hits <= 100


def peaked(n: int, seed: int) -> list[Row]:
    """n rows of 255 tokens that agree, log-ratio 0, in their first, middle and last token and differ elsewhere."""
    rng, rows = random.Random(seed), list[Row]()
    for _ in range(n):
        rollout = [-rng.random() - 0.5 for _ in range(255)]
        train = [b + rng.gauss(-0.02, 0.1) for b in rollout]
        for place in (0, 127, 254):
            rollout[place] = train[place] = 0.0
        rows.append(Row(train, rollout, [1] * 255, advantages=[0.0] * 255))
    return rows


def test_rows_that_agree_in_three_tokens_get_draws_of_their_own() -> None:
    rows = peaked(200, seed=1)
    assert len(set(hashes(rows).tolist())) == 200
    low, high = ends(rows)["kl"]
    assert low < 0.02 * 252 / 255 < high


def test_keys_are_the_same_of_float32_and_float64_and_of_another_training_policy() -> None:
    rows = simulated(30, seed=3)
    one = batch(rows)
    keys = keys_of(one)
    narrow = replace(one, rollout_logp=one.rollout_logp.astype(np.float32), old_logp=one.old_logp - 0.5)
    assert keys_of(narrow).tolist() == keys.tolist()


def test_keys_tell_the_order_and_the_number_of_tokens() -> None:
    rows = [
        row([0.0] * n, probs=probs) for probs in ([-1.0, -2.0], [-2.0, -1.0], [-1.0, -2.0, 0.0]) for n in [len(probs)]
    ]
    assert len(set(hashes(rows).tolist())) == 3


def test_ids_come_before_values_where_a_row_has_one() -> None:
    rows = simulated(40, seed=3)
    ids = np.arange(len(rows), dtype=np.uint64)
    keys = keys_of(batch(rows), ids)
    assert keys[1:].tolist() == ids[1:].tolist()
    assert keys[0] == keys_of(batch(rows))[0]


def test_a_product_is_the_same_however_its_threads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 40)), rng.normal(size=(40, 7))
    as_in_a_command = matrix_product(a, b)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    assert matrix_product(a, b).tolist() == as_in_a_command.tolist()
    assert matrix_product(a, b) == pytest.approx(np.einsum("ij,jk->ik", a, b), rel=1e-13)


def test_share_of_rows_alike_is_counted_over_any_split() -> None:
    rows = [*simulated(30, seed=1, longest=9), *[row([0.1, 0.2])] * 10]
    parts = [observed(part, Plan(), seed=0).whole for part in (rows[:33], rows[33:])]
    assert parts[0] is not None
    assert parts[1] is not None
    together = (parts[0] + parts[1]).rows
    assert together is not None
    n_rows = int(together.counts.sum())
    assert together.shared_fraction == pytest.approx(10 / n_rows)


def test_more_data_gives_a_narrower_interval() -> None:
    few, many = (ends(simulated(n, seed=9))["kl"] for n in (40, 640))
    # Sixteen times the data: about a quarter of the width.
    assert 2.5 < (few[1] - few[0]) / (many[1] - many[0]) < 6.5


def test_intervals_of_200_rows_hold_their_metric() -> None:
    rows = simulated(200, seed=12)
    values, found = metrics(rows, Plan()), ends(rows)
    assert {"kl", "k3_kl", "token_ess", "chi2_token", "ppl_ratio"} <= found.keys()
    assert found.keys().isdisjoint(("seq_ess", "chi2_seq"))
    outside = {name for name, (low, high) in found.items() if not low <= (values[name] or 0.0) <= high}
    assert outside == set()
