"""Which device, and that the devices agree."""

import dataclasses

import numpy as np
import pytest
import torch
from made import batch, simulated

from rlcorr_cli.core import device as devices
from rlcorr_cli.core.observe import Observation, observe
from rlcorr_cli.errors import UsageError
from rlcorr_cli.pipeline.scan import Computing
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto

HAS_CUDA = torch.cuda.is_available()


@pytest.mark.parametrize("name", ["tpu", "gpu", "cpu0", "", "xpu", "meta"])
def test_unknown_device_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="Unknown device"):
        devices.resolve(name)


def test_mps_is_refused_for_want_of_float64() -> None:
    with pytest.raises(UsageError, match="float64"):
        devices.resolve("mps")


@pytest.mark.skipif(HAS_CUDA, reason="a machine without CUDA is needed")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_without_a_gpu_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="torch sees 0 CUDA devices"):
        devices.resolve(name)


def test_auto_takes_a_gpu_if_there_is_one() -> None:
    assert devices.resolve("auto").type == ("cuda" if HAS_CUDA else "cpu")


@pytest.mark.skipif(not HAS_CUDA, reason="needs CUDA")
@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_cpu_and_gpu_observe_the_same(width: type) -> None:
    plan = Plan(
        weighting=Weighting("sequence", Bounds(0.8, 1.2)),
        rejections=(
            Rejection("k3", "token", Bounds(None, 0.001)),
            Rejection("ratio", "seq_mean", Bounds(0.99, 1.01)),
            veto(0.9),
        ),
    )
    one = batch(simulated(200, seed=5))
    assert one.current_logp is not None
    one = dataclasses.replace(
        one,
        old_logp=one.old_logp.astype(width),
        rollout_logp=one.rollout_logp.astype(width),
        current_logp=one.current_logp.astype(width),
    )
    observation = Observation(plans=(plan,), has_current=True, seed=3)
    on_cpu, on_gpu = (observe(one, observation, torch.device(name)) for name in ("cpu", "cuda"))
    assert on_cpu.groups.keys() == on_gpu.groups.keys()
    for key, expected in on_cpu.groups.items():
        assert on_gpu.groups[key].counts == expected.counts
        assert on_gpu.groups[key].layouts == expected.layouts
        for block, of_block in expected.blocks.items():
            found = on_gpu.groups[key].blocks[block]
            assert found.histograms == of_block.histograms
            for name in ("sums", "mins", "maxs", "log_peaks", "log_rests"):
                np.testing.assert_allclose(getattr(found, name), getattr(of_block, name), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        on_gpu.replicates["decoupled"].sums, on_cpu.replicates["decoupled"].sums, rtol=1e-6, atol=1e-9
    )


def test_many_plans_take_smaller_batches_unless_a_size_is_asked_for() -> None:
    default = devices.DEFAULT_BATCH_TOKENS["cpu"]
    for smaller in (devices.COMPARING_TOKENS, devices.DIAGNOSING_TOKENS):
        assert Computing("cpu").in_portions(smaller).batch_tokens == smaller["cpu"] < default
        assert Computing("cpu", 1000).in_portions(smaller).batch_tokens == 1000
