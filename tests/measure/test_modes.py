"""Which policies a mode compares is settled in core, from the policies as a dump has them."""

from dataclasses import replace

import numpy as np
import pytest
from made import CPU, batch, simulated

from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.view import diagnostics_block

THREE = batch(simulated(20, 5))


def log_ratio(of: Batch, mode: Mode) -> np.ndarray:
    return Tokens.of(of, CPU, mode).log_ratio


def test_decoupled_compares_old_with_rollout_and_bypass_current_with_rollout() -> None:
    assert THREE.old_logp is not None
    assert THREE.current_logp is not None
    np.testing.assert_array_equal(log_ratio(THREE, "decoupled"), THREE.old_logp - THREE.rollout_logp)
    np.testing.assert_array_equal(log_ratio(THREE, "bypass"), THREE.current_logp - THREE.rollout_logp)


def test_one_batch_of_three_policies_serves_both_modes_as_one_of_two_does() -> None:
    assert THREE.current_logp is not None
    pairs: dict[Mode, Batch] = {
        "decoupled": replace(THREE, current_logp=None),
        "bypass": replace(THREE, old_logp=None),
    }
    for mode, pair in pairs.items():
        np.testing.assert_array_equal(log_ratio(THREE, mode), log_ratio(pair, mode))


def test_only_decoupled_looks_at_a_policy_after_the_one_compared() -> None:
    assert Tokens.of(THREE, CPU, "decoupled").current_change is not None
    assert Tokens.of(THREE, CPU, "bypass").current_change is None
    names: dict[Mode, set[str]] = {}
    for mode in ("decoupled", "bypass"):
        totals = observe(THREE, Observation(plans=(Plan(mode=mode),), seed=None), CPU).totals
        names[mode] = {name.removeprefix(diagnostics_block(mode)) for name in totals.tables["sum"].names}
    assert names["bypass"] < names["decoupled"]


@pytest.mark.parametrize("mode", ["decoupled", "bypass"])
def test_a_lone_trained_policy_serves_either_mode(mode: Mode) -> None:
    assert THREE.old_logp is not None
    alone = [replace(THREE, current_logp=None), replace(THREE, old_logp=None, current_logp=THREE.old_logp)]
    for one in alone:
        np.testing.assert_array_equal(log_ratio(one, mode), THREE.old_logp - THREE.rollout_logp)
