"""Shares of causes that are named beside each other: they add, and each is near what that fault makes of the gap."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flat_model import flat_dump
from known_causes import DUMPS

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import Diagnosis

LEAN, WORSE, BY_TOKEN, LATE, AT_END = 0.2, 0.2, 0.12, 0.3, -2.0
"""How far odds move: of a row, by its reward; of each token of worker w3; of a token's id; from token 40 on; of the
last token."""


@pytest.fixture(scope="module")
def both() -> dict[str, tuple[Diagnosis, float]]:
    """Dumps of two faults, and the share of the first one: what the gap lacks without it."""
    rng = np.random.default_rng(5)
    cut, plain = pq.read_table(DUMPS / "top_p08.parquet"), flat_dump()
    rewards = np.where(np.arange(cut.num_rows) % 2, 1.0, -1.0)
    cut = cut.append_column("reward", pa.array(rewards))
    stale = with_odds(cut, lambda row, ids: np.full(len(ids), LEAN * rewards[row]))
    of_ids = rng.normal(size=1000) * BY_TOKEN
    moved = with_odds(plain, lambda row, ids: of_ids[ids])
    worse = with_odds(moved, lambda row, ids: rng.normal(size=len(ids)) * WORSE * (row % 4 == 3))
    worse = worse.append_column("worker", pa.array([f"w{row % 4}" for row in range(plain.num_rows)]))
    late = with_odds(plain, lambda row, ids: rng.normal(size=len(ids)) * LATE * (np.arange(len(ids)) >= 40))
    ended = with_odds(late, lambda row, ids: AT_END * (np.arange(len(ids)) == len(ids) - 1))
    return {
        "top_p, stale_policy": (diagnose(stale).whole.diagnosis, squares(cut) / squares(stale)),
        "column, other_weights": (diagnose(worse).whole.diagnosis, 1 - squares(moved) / squares(worse)),
        "last_token, position_onset": (diagnose(ended).whole.diagnosis, 1 - squares(late) / squares(ended)),
    }


@pytest.mark.parametrize("names", ["column, other_weights", "last_token, position_onset"])
def test_each_of_two_faults_has_its_own_share(both: dict[str, tuple[Diagnosis, float]], names: str) -> None:
    found, share = both[names]
    first, second, noise = found.causes
    assert {first.cause, second.cause} == set(names.split(", "))
    first, second = sorted((first, second), key=lambda each: names.index(each.cause))
    assert 0.25 < share < 0.75
    assert (first.share, second.share) == pytest.approx((share, 1 - share), abs=0.04)
    assert noise.share < 0.04


def test_what_claims_all_that_is_left_has_it_at_most(both: dict[str, tuple[Diagnosis, float]]) -> None:
    found, share = both["top_p, stale_policy"]
    first, second, noise = found.causes
    assert (first.cause, first.bound, second.cause, second.bound) == ("top_p", "at_least", "stale_policy", "at_most")
    assert 0.4 < first.share < share
    assert 1 - share < second.share < 0.6
    assert first.share + second.share + noise.share == pytest.approx(1, abs=1e-9)
    assert "at most" in second.share_words
    assert first.share_interval is not None
    low, high = first.share_interval
    assert low < first.share < high


def with_odds(table: pa.Table, change: Any) -> pa.Table:
    """The dump with training's log-odds moved, row by row, by a function of its number and its ids."""
    changed = []
    columns = zip(table["old_log_probs"].to_pylist(), table["token_ids"].to_pylist(), strict=True)
    for row, (values, ids) in enumerate(columns):
        a = np.minimum(np.array(values), -1e-9)
        changed.append((-np.logaddexp(0, -(a - np.log(-np.expm1(a)) + change(row, np.array(ids))))).tolist())
    at = table.schema.get_field_index("old_log_probs")
    return table.set_column(at, "old_log_probs", pa.array(changed, pa.list_(pa.float32())))


def squares(table: pa.Table) -> float:
    """The gap of a dump."""
    a, b = (np.concatenate(table[name].to_pylist()) for name in ("old_log_probs", "rollout_log_probs"))
    return float(((a - b) ** 2).sum())
