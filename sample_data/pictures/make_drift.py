"""Draw the picture of the drifting run that README shows: `python make_drift.py`."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
subprocess.run(
    ["rlcorr", "plot", str(HERE.parent / "collapse.parquet"), "--kind", "course", "-o", str(HERE / "drift.png"), "-q"],
    check=True,
)
