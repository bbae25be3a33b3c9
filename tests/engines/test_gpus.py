"""GPUs are counted by CUDA's driver: a made one, the one that is here, and none."""

import os
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

import pytest
import torch
from limits import LIMIT_SECONDS

from rlcorr_cli.measure.arrays import DRIVER, visible_gpu_count

SOURCE = """
#include <stdlib.h>
static int begun = 0;
int cuInit(unsigned flags) { begun = 1; return INIT; }
int cuDeviceGetCount(int *count) { if (!begun) return 3; *count = atoi(getenv("MADE_GPUS")); return 0; }
"""
NO_DEVICE = 100
HAS_GPU = bool(glob("/dev/nvidia[0-9]*"))
SMOLLM = Path(__file__).parents[2] / "sample_data/smollm2_steps.parquet"
COMPILER = shutil.which("cc")


@pytest.fixture(autouse=True)
def none_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def made_driver(directory: Path, init: int = 0) -> str:
    """A library with the driver's two functions.  init: what its cuInit returns."""
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    source, library = directory / "driver.c", directory / "libcuda.so.1"
    source.write_text(SOURCE)
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", f"-DINIT={init}", "-o", library, source], check=True, timeout=LIMIT_SECONDS
    )
    return str(library)


def test_the_driver_says_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = made_driver(tmp_path)
    for n in (0, 1, 8):
        monkeypatch.setenv("MADE_GPUS", str(n))
        assert visible_gpu_count(driver) == n
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8d1c5ac2,MIG-0f9c2a1e")
    assert visible_gpu_count(driver) == 8, "the driver itself looks at these names"


def test_a_driver_that_finds_no_device_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_GPUS", "1")
    assert visible_gpu_count(made_driver(tmp_path, init=NO_DEVICE)) == 0


@pytest.mark.parametrize("hidden", ["", " ", "-1"])
def test_hidden_gpus_are_none(hidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_GPUS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert visible_gpu_count(made_driver(tmp_path)) == 0


def test_without_a_driver_there_is_none(tmp_path: Path) -> None:
    assert visible_gpu_count(str(tmp_path / DRIVER)) == 0
    (tmp_path / DRIVER).write_text("no library")
    assert visible_gpu_count(str(tmp_path / DRIVER)) == 0
    assert visible_gpu_count("libc.so.6") == 0


def test_torch_sees_as_many() -> None:
    assert visible_gpu_count() == torch.cuda.device_count() or not torch.backends.cuda.is_built()


@pytest.mark.parametrize(
    ("device", "loads_torch"),
    [
        ((), False),
        pytest.param(("cpu",), False, marks=pytest.mark.full),
        pytest.param(
            ("auto",),
            True,
            marks=[pytest.mark.full, pytest.mark.skipif(HAS_GPU, reason="torch would use the made driver")],
        ),
    ],
)
def test_a_gpu_is_left_alone_unless_it_is_asked_for(device: tuple[str, ...], loads_torch: bool, tmp_path: Path) -> None:
    made_driver(tmp_path)
    measuring = (
        "import sys; from rlcorr_cli.api import analyze; dump, *device = sys.argv[1:]; "
        "analyze(dump, **dict(zip(['device'], device))); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measuring, SMOLLM, *device],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "MADE_GPUS": "1"},
    )
    assert done.stdout.split() == [str(loads_torch)]


def test_counting_loads_no_torch() -> None:
    counting = "import sys; from rlcorr_cli.measure.arrays import visible_gpu_count as n; n(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", counting], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
    )
    assert {"torch", "rlcorr_cli.measure.arrays"} & {*done.stdout.split()} == {"rlcorr_cli.measure.arrays"}
