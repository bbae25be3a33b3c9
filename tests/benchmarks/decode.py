"""The yardstick: read columns of a Parquet file and do nothing.

    python tests/benchmarks/decode.py FILE COLUMN...

Prints the seconds, imports excluded, as JSON.
"""

import json
import sys
import time

import pyarrow.parquet as pq

BATCH_ROWS = 2_000
"""A row group.  pyarrow's default, 65,536 rows, would be all of W1 in one batch and takes five times as long: 1.7 to
2.5 s against 0.35 to 0.45 s (two idle cores).  A yardstick must be the fast way."""


def decode(path: str, columns: list[str]) -> float:
    """Seconds, on all cores."""
    started = time.perf_counter()
    for _ in pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=columns):
        pass
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps({"seconds": decode(sys.argv[1], sys.argv[2:])}))
