"""Without being asked, no run loads torch or looks for a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
from limits import LIMIT_SECONDS

SMOLLM = Path(__file__).parents[2] / "sample_data/smollm2_steps.parquet"


@pytest.mark.parametrize("device", [(), ("cpu",), ("auto",)])
def test_a_gpu_is_left_alone_unless_it_is_asked_for(device: tuple[str, ...]) -> None:
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
    )
    assert done.stdout.split() == ["False"]
