"""What reading JSON lines is held against: parse them to arrays by msgspec, and do nothing.

    python tests/benchmarks/json_arrays.py FILE.jsonl

Prints the CPU seconds, imports excluded, as JSON.
"""

import json
import sys
import time

import msgspec
import numpy as np


class Row(msgspec.Struct):
    """The columns that `analyze` reads of such a line."""

    rollout_log_probs: list[float]
    old_log_probs: list[float]
    response_mask: list[int]


def parse(path: str) -> float:
    """CPU seconds."""
    started = time.process_time()
    decoder = msgspec.json.Decoder(Row)
    with open(path, "rb") as lines:
        for line in lines:
            row = decoder.decode(line)
            np.array(row.rollout_log_probs), np.array(row.old_log_probs), np.array(row.response_mask, np.int8)
    return time.process_time() - started


if __name__ == "__main__":
    print(json.dumps({"cpu": parse(sys.argv[1])}))
