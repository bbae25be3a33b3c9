"""Which device, and that all array libraries give the same numbers."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from made import DEVICES, batch, library, simulated
from plain import plain

from rlcorr_cli.errors import UsageError
from rlcorr_cli.measure import arrays
from rlcorr_cli.measure.arrays import CPU, Device, Segments, resolve, row_blocks
from rlcorr_cli.measure.bootstrap import poisson_draws
from rlcorr_cli.measure.observe import Observation, Observed, observe
from rlcorr_cli.measure.quantities import js, token_columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.diagnostics import DiagnosticSettings
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.tail import Tail

HAS_CUDA = torch.cuda.is_available()
PLAN = Plan(
    weighting=Weighting("sequence", Bounds(0.8, 1.2)),
    rejections=(
        Rejection("k3", "token", Bounds(None, 0.001)),
        Rejection("ratio", "seq_mean", Bounds(0.99, 1.01)),
        veto(0.9),
    ),
)
OFFSETS = np.array([0, 1, 3, 10, 11, 40])


@pytest.mark.parametrize("name", ["tpu", "gpu", "cpu0", "", "xpu", "meta", "cuda:", "cuda:x", "torch:1", "cpu:0"])
def test_unknown_device_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="Unknown device"):
        resolve(name)


def test_mps_is_refused_for_want_of_float64() -> None:
    with pytest.raises(UsageError, match="float64"):
        resolve("mps")


@pytest.mark.skipif(HAS_CUDA, reason="a machine without CUDA is needed")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_without_a_gpu_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="torch sees 0 CUDA devices"):
        resolve(name)


def test_auto_takes_the_cpu_until_a_gpu_is_measured() -> None:
    assert resolve("auto") == resolve("cpu") == CPU


@pytest.mark.parametrize("device", DEVICES)
def test_segments_reduce_as_a_loop_does(device: Device) -> None:
    rows, values = Segments(OFFSETS, device), np.random.default_rng(5).normal(0.0, 2.0, OFFSETS[-1])
    parts, here = [values[a:b] for a, b in pairwise(OFFSETS)], device.floats(values)
    assert rows.sum(here) == pytest.approx([part.sum() for part in parts], rel=1e-14)
    assert rows.min(here).tolist() == [part.min() for part in parts]
    assert rows.max(here).tolist() == [part.max() for part in parts]
    assert rows.mean(here) == pytest.approx([part.mean() for part in parts], rel=1e-14)
    assert rows.count(here > 0.5).tolist() == [(part > 0.5).sum() for part in parts]
    assert rows.log_sum_exp(here + 800) == pytest.approx([800 + np.log(np.exp(part).sum()) for part in parts])
    assert arrays.host(rows.spread(np.arange(5))).tolist() == np.repeat(np.arange(5), np.diff(OFFSETS)).tolist()
    some, at = rows.select_rows(np.array([False, True, False, False, True]))
    assert some.offsets.tolist() == [0, 2, 31]
    assert arrays.host(here[at]).tolist() == [*values[1:3], *values[11:]]


@pytest.mark.parametrize("device", DEVICES)
def test_values_are_counted_in_bins(device: Device) -> None:
    values = np.array([-0.5, 1e-30, 3.0, 1e39, 3.0])
    at = device.put(np.array([0, 2, 2, 4, 2]))
    assert arrays.bin_counts(at, 6).tolist() == [1, 0, 3, 0, 1, 0]
    assert arrays.bin_sums(at, 6, device.floats(values[[0, 2, 4, 2, 4]])).tolist() == [-0.5, 0.0, 9.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("mean_length", [2, 900])
def test_keys_draws_histograms_and_tails_are_bit_for_bit_those_of_numpy(mean_length: int, device: Device) -> None:
    rng = np.random.default_rng(mean_length)
    lengths = rng.integers(1, 2 * mean_length, 60_000 // mean_length)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = rng.normal(0.0, 2.0, offsets[-1]).astype(np.float32).astype(np.float64)
    values[::7] = -0.0
    here = device.floats(values)
    keys = Segments(offsets).keys(values)
    assert keys.tolist() == Segments(offsets, device).keys(here).tolist()
    for seed in (0, 1 << 31):
        draws = poisson_draws(keys[:100], seed)
        assert arrays.host(poisson_draws(keys[:100], seed, device)).tolist() == draws.tolist()
    assert arrays.histogram([here]) == arrays.histogram([values[:1000], values[1000:]])
    for size in (100, 2_048, 1 << 20):
        assert Tail.of([here], size) == Tail.of([values[:30_000], values[30_000:]], size)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_of_a_batch_of_several_groups_each_library_tells_the_same(device: Device) -> None:
    one = batch(simulated(300, seed=6))
    index = (np.arange(one.n_rows) * 7 % 5).astype(np.int32)
    one = dataclasses.replace(one, group_index=index, group_keys=tuple((None, i) for i in range(5)))
    observation = Observation(plans=(PLAN,), seed=3)
    found, expected = (observe(one, observation, of).totals for of in (device, CPU))
    assert plain(found.histograms) == plain(expected.histograms)
    for name, tails in expected.tails.items():
        for mine, theirs in zip(found.tails[name] or (), tails or (), strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                np.testing.assert_allclose(np.sort(mine.largest), np.sort(theirs.largest), rtol=1e-12)


def test_blocks_are_whole_rows_one_after_another() -> None:
    lengths = np.random.default_rng(3).integers(0, 900, 400)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    blocks = list(row_blocks(offsets, CPU, 1000))
    assert [first for first, _ in blocks[1:]] == [last for _, last in blocks[:-1]]
    assert (blocks[0][0], blocks[-1][1]) == (0, 400)
    assert max(offsets[last] - offsets[first] for first, last in blocks) < 1000 + 900
    assert len(blocks) > offsets[-1] / 2000
    assert list(row_blocks(offsets, Device("torch"), 1000)) == [(0, 400)]


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_every_library_observes_the_same(width: type, device: Device) -> None:
    one = batch(simulated(200, seed=5))
    assert one.current_logp is not None
    one = dataclasses.replace(
        one,
        old_logp=one.old_logp.astype(width),
        rollout_logp=one.rollout_logp.astype(width),
        current_logp=one.current_logp.astype(width),
    )
    observation = Observation(plans=(PLAN,), seed=3)
    assert_same(observe(one, observation, device), observe(one, observation, CPU), 1e-6 if HAS_CUDA else 1e-9)


def test_blocks_of_any_size_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    one, observation = batch(simulated(200, seed=5)), Observation(plans=(PLAN,), seed=3)
    at_once = observe(one, observation, CPU, decides=True)
    monkeypatch.setattr("rlcorr_cli.measure.observe.BLOCK_TOKENS", 7)
    in_blocks = observe(one, observation, CPU, decides=True)
    assert_same(in_blocks, at_once, 1e-9)
    assert in_blocks.decision is not None
    assert at_once.decision is not None
    assert in_blocks.decision.keep.tolist() == at_once.decision.keep.tolist()
    assert in_blocks.decision.row_weights == pytest.approx(at_once.decision.row_weights, rel=1e-12)


def assert_same(found: Observed, expected: Observed, rel: float) -> None:
    assert (found.totals.keys, found.totals.names) == (expected.totals.keys, expected.totals.names)
    assert plain(found.totals.histograms) == plain(expected.totals.histograms)
    for merge, table in expected.totals.tables.items():
        np.testing.assert_allclose(found.totals.tables[merge].values, table.values, rtol=rel, atol=rel / 1000)
    sums, expected_sums = (seen.replicates["decoupled"].sums.values for seen in (found, expected))
    np.testing.assert_allclose(sums, expected_sums, rtol=rel, atol=rel / 1000)


def test_formulas_run_by_the_library_of_the_device() -> None:
    """Without this, tests under torch could pass without it."""
    one = batch(simulated(5, seed=5))
    for device, kind in ((CPU, np.ndarray), (Device("torch"), torch.Tensor)):
        tokens = Tokens.of(one, device)
        assert {type(values) for values in (tokens.log_ratio, tokens.rho, tokens.prob_gap, js(tokens))} == {kind}
        assert {type(values) for values in token_columns(tokens, DiagnosticSettings()).sums.values()} == {np.ndarray}


@pytest.mark.usefixtures("every_library")
def test_what_is_made_is_measured_by_each_library_in_turn(request: pytest.FixtureRequest) -> None:
    assert library().name in request.node.name
