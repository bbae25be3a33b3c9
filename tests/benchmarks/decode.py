"""The yardstick: read columns of a Parquet file and do nothing.

    python tests/benchmarks/decode.py FILE COLUMN...

Prints the seconds, imports excluded, as JSON.
"""

import json
import sys
import time

import pyarrow.parquet as pq


def decode(path: str, columns: list[str]) -> float:
    """Seconds, with pyarrow's defaults (all cores, 65,536 rows a batch)."""
    started = time.perf_counter()
    for _ in pq.ParquetFile(path).iter_batches(columns=columns):
        pass
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps({"seconds": decode(sys.argv[1], sys.argv[2:])}))
