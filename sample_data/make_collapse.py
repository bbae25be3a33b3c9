"""Make `collapse.parquet`: a small run that collapses, whose two policies drift apart a little more at every step.

The tokens are drawn from the rollout policy, so every identity of a true dump holds; no model is needed:

    python make_collapse.py collapse.parquet
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS, ROWS, VOCABULARY = 12, 32, 200
SHORTEST, LONGEST = 30, 90
LOGIT_SD = 3.0
"""The spread of the training policy's logits: how peaked its distributions are."""
FIRST_NOISE, GROWTH = 0.02, 1.4
"""The rollout policy's logits differ by noise of this standard deviation at step 0, times GROWTH at each later step."""
SCHEMA = pa.schema(
    {
        "sample_id": pa.string(),
        "step": pa.int64(),
        "token_ids": pa.list_(pa.int16()),
        "response_mask": pa.list_(pa.int8()),
        "rollout_log_probs": pa.list_(pa.float32()),
        "old_log_probs": pa.list_(pa.float32()),
        "advantages": pa.float64(),
    }
)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of logits, by row; they are small enough for exp to be safe."""
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def sequence(rng: np.random.Generator, step: int, number: int) -> dict[str, object]:
    """One response: its tokens, drawn from the rollout policy, and their log-probs under both policies."""
    n = int(rng.integers(SHORTEST, LONGEST))
    logits = rng.normal(0, LOGIT_SD, (n, VOCABULARY))
    rollout = log_softmax(logits + rng.normal(0, FIRST_NOISE * GROWTH**step, logits.shape))
    training = log_softmax(logits)
    # The largest of log-prob plus Gumbel noise is a draw from the distribution.
    tokens = (rollout + rng.gumbel(size=rollout.shape)).argmax(-1)
    positions = np.arange(n)
    return {
        "sample_id": f"{step}-{number}",
        "step": step,
        "token_ids": tokens.tolist(),
        "response_mask": [1] * n,
        "rollout_log_probs": rollout[positions, tokens].tolist(),
        "old_log_probs": training[positions, tokens].tolist(),
        "advantages": float(rng.normal()),
    }


def collapse(seed: int = 0) -> pa.Table:
    """All steps of the run, in one table."""
    rng = np.random.default_rng(seed)
    rows = [sequence(rng, step, number) for step in range(STEPS) for number in range(ROWS)]
    return pa.Table.from_pylist(rows, SCHEMA)


def main() -> None:
    """Write the table where the command line says."""
    if len(sys.argv) != 2:
        sys.exit("usage: python make_collapse.py OUTPUT")
    pq.write_table(
        collapse(),
        Path(sys.argv[1]),
        compression="zstd",
        compression_level=19,
        use_dictionary=["step", "response_mask.list.element"],
        column_encoding=dict.fromkeys(("rollout_log_probs", "old_log_probs"), "BYTE_STREAM_SPLIT"),
    )


if __name__ == "__main__":
    main()
