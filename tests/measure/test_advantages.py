"""`advantage_shift` against slow loops: of a whole dump, of groups at once, and beside rows without advantages."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from made import CPU, batch, row, simulated
from oracle import Row

from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.metrics.catalog import canonical
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.view import Numbers, Values

NAMES = ("advantage_shift", "advantage_shift_se")


def in_loops(rows: Sequence[Row]) -> tuple[float, float]:
    """(A_IS - mean A) / sd A and its standard error, sequence by sequence."""
    advantages: list[float] = []
    sums: list[float] = []
    for one in rows:
        valid = [t for t, m in enumerate(one.mask) if m]
        if valid:
            advantages.append(sum(one.advantages[t] for t in valid) / len(valid))
            sums.append(sum(one.train[t] - one.rollout[t] for t in valid))
    n, largest = len(advantages), max(sums)
    raw = [math.exp(s - largest) for s in sums]
    weights = [w / sum(raw) for w in raw]
    mean = sum(advantages) / n
    variance = sum((a - mean) ** 2 for a in advantages) / n
    weighted = sum(w * a for w, a in zip(weights, advantages, strict=True))
    parts = [w * (a - weighted) - (a - mean) / n for w, a in zip(weights, advantages, strict=True)]
    return (weighted - mean) / math.sqrt(variance), math.sqrt(sum(part**2 for part in parts) / variance)


def measured(one: Batch, *, mode: Mode = "decoupled") -> Values:
    plan = Plan(mode=mode)
    observation = Observation(plans=(plan,), seed=None, has_advantages=True)
    return canonical(Numbers.of_plan(observe(one, observation, CPU).totals.whole, plan, 0), plan)


def means_alone(one: Batch, rows: Sequence[Row], *, without: Sequence[int] = ()) -> Batch:
    """The batch with nothing of the advantages but each row's mean; NaN of some rows."""
    means = [
        math.nan if i in without or not any(r.mask) else float(np.mean(np.array(r.advantages)[np.array(r.mask) > 0]))
        for i, r in enumerate(rows)
    ]
    return replace(one, advantages=None, row_advantage=np.array(means))


@pytest.mark.parametrize("mode", ["decoupled", "bypass"])
def test_the_shift_is_that_of_the_formula(mode: Mode) -> None:
    rows = simulated(60, seed=3, std=0.2)
    one = batch(rows, mode)
    values = measured(one, mode=mode)
    assert tuple(values[name] for name in NAMES) == pytest.approx(in_loops(rows), rel=1e-9)
    means = measured(means_alone(one, rows), mode=mode)
    assert [means[name] for name in NAMES] == pytest.approx([values[name] for name in NAMES], rel=1e-12)


def test_a_row_without_an_advantage_counts_for_nothing_in_the_shift() -> None:
    rows = simulated(60, seed=3, std=0.2)
    left = [one for i, one in enumerate(rows) if i not in (4, 17)]
    values = measured(means_alone(batch(rows), rows, without=(4, 17)))
    assert tuple(values[name] for name in NAMES) == pytest.approx(in_loops(left), rel=1e-9)
    assert values["k3_kl"] == pytest.approx(measured(batch(rows))["k3_kl"])


def test_many_groups_at_once_have_each_its_own_shift() -> None:
    rows = simulated(80, seed=5, std=0.1)
    for one in rows[:3]:
        one.batch = 7  # too few for true sequence weights to tell
    plan = Plan()
    observation = Observation(plans=(plan,), seed=None, has_advantages=True)
    totals = observe(batch(rows), observation, CPU).totals
    columns = canonical(Numbers.of_plan(totals, plan), plan)
    shifts, errors = (columns[name] for name in NAMES)
    for (key,), shift, error in zip(totals.keys, np.asarray(shifts), np.asarray(errors), strict=True):
        expected = in_loops([one for one in rows if one.batch == key]) if key != 7 else (math.nan, math.nan)
        assert (shift, error) == pytest.approx(expected, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([row([0.1], advantages=[0.5]) for _ in range(40)], id="equal advantages"),
        pytest.param([row([5.0 * i], advantages=[float(i)]) for i in range(40)], id="one sequence has all the weight"),
        pytest.param([row([0.1], advantages=[float(i)]) for i in range(9)], id="nine sequences"),
    ],
)
def test_the_shift_is_null_where_nobody_can_tell_it(rows: list[Row]) -> None:
    values = measured(batch(rows))
    assert [values[name] for name in NAMES] == [None, None]
