"""The yardstick: read columns of a Parquet file and do nothing.

    python tests/benchmarks/decode.py FILE COLUMN... [--one-thread]

Prints the seconds and the CPU seconds, imports excluded, as JSON.
"""

import json
import sys
import time

import pyarrow.parquet as pq

BATCH_ROWS = 2_000
"""A row group.  pyarrow's default, 65,536 rows, would be all of W1 in one batch and takes five times as long: 1.7 to
2.5 s against 0.35 to 0.45 s (two idle cores).  A yardstick must be the fast way."""


def decode(path: str, columns: list[str], *, one_thread: bool = False) -> dict[str, float]:
    """Seconds by the clock and of CPU, on all cores or by one thread, which is fastest without read-ahead."""
    wall, cpu = time.perf_counter(), time.process_time()
    file = pq.ParquetFile(path, pre_buffer=not one_thread)
    for _ in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=not one_thread):
        pass
    return {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    file, *columns = (word for word in sys.argv[1:] if word != "--one-thread")
    print(json.dumps(decode(file, columns, one_thread="--one-thread" in sys.argv)))
