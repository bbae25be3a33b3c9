"""What filtering is held against: read a dump and write it again, all columns, zstd; prints the seconds it took."""

import json
import sys
import time

import pyarrow.parquet as pq


def copy(source: str, target: str) -> float:
    """Seconds, one row group after the other."""
    started = time.perf_counter()
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer:
        for i in range(file.num_row_groups):
            writer.write_table(file.read_row_group(i))
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps({"seconds": copy(sys.argv[1], sys.argv[2])}))
