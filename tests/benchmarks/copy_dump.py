"""What filtering is held against: read a dump and write it again, all columns, zstd, by one thread.

    python tests/benchmarks/copy_dump.py SOURCE TARGET

Prints the CPU seconds that it took, imports excluded, as JSON.
"""

import json
import sys
import time

import pyarrow.parquet as pq


def copy(source: str, target: str) -> float:
    """CPU seconds, one row group after the other."""
    started = time.process_time()
    with (
        pq.ParquetFile(source, pre_buffer=False) as file,
        pq.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer,
    ):
        for i in range(file.num_row_groups):
            writer.write_table(file.read_row_group(i, use_threads=False))
    return time.process_time() - started


if __name__ == "__main__":
    print(json.dumps({"cpu": copy(sys.argv[1], sys.argv[2])}))
