"""What was tried for the sums of a token and left: float32 arithmetic, and one kernel by torch.compile.

    python tests/benchmarks/arithmetic.py [DUMP...]

Prints how far k3 of float32 tokens, added up in float64, lies from that of float64 ones (relative), for each dump; then
nanoseconds of one core per token (least of twenty) of the quantities of `analyze`: by torch calls, by one compiled
kernel, each with and without adding them up per sequence; and the seconds that compiling took.  Takes a C++ compiler.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

DUMPS = ("sample_data/smollm2_bf16.parquet", "sample_data/smollm2_fp32.parquet", "sample_data/smollm2_int8.parquet")
N_TOKENS, MEAN_LENGTH, ROUNDS = 1 << 19, 1009, 20


def lost_by_float32(dump: str) -> float:
    """|k3 of float32 / k3 of float64 - 1|."""
    table = pq.read_table(dump, columns=["rollout_log_probs", "old_log_probs", "response_mask"])
    rollout, old, mask = (np.concatenate([np.asarray(row) for row in column.to_pylist()]) for column in table.columns)
    log_ratio = (old - rollout)[mask == 1]
    exact, narrow = (np.expm1(ratio) - ratio for ratio in (log_ratio, log_ratio.astype(np.float32)))
    return abs(narrow.astype(np.float64).sum() / exact.sum() - 1)


def quantities(rollout_logp: Tensor, log_ratio: Tensor) -> tuple[Tensor, ...]:
    """Of each token, those that measure/quantities.py adds up for the diagnostics."""
    e = torch.expm1(log_ratio)
    rho = e + 1
    inverse = rho.reciprocal()
    e_over_rho = e * inverse
    p = torch.exp(rollout_logp)
    q, gap = p * rho, p * e
    divergences = log_ratio.square(), log_ratio.abs(), e, e_over_rho, torch.log1p(e * e_over_rho / 4)
    ratios = rho, torch.maximum(rho, inverse), e.clamp_max(0.0), e.square(), rho.square()
    return *divergences, *ratios, p, q, p.square(), q.square(), p * q, gap.abs(), gap.square()


def ns_a_token(work: Callable[[], object]) -> float:
    """Least processor time of some rounds."""
    work()
    seconds: list[float] = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds) / N_TOKENS * 1e9


def main(dumps: list[str]) -> None:
    """Measure and print."""
    for dump in dumps or DUMPS:
        print(f"{dump}: k3 off by {lost_by_float32(dump):.1e} of itself in float32")
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    rollout_logp = -3 * torch.rand(N_TOKENS, generator=generator, dtype=torch.float64)
    log_ratio = 0.02 * torch.randn(N_TOKENS, generator=generator, dtype=torch.float64)
    starts = np.arange(0, N_TOKENS, MEAN_LENGTH)
    compiled = torch.compile(quantities, dynamic=False)
    started = time.process_time()
    compiled(rollout_logp, log_ratio)
    print(f"compiled in {time.process_time() - started:.0f} s of this process")
    for name, kernel in (("torch", quantities), ("compiled", compiled)):

        def added_up(kernel: Callable[[Tensor, Tensor], tuple[Tensor, ...]] = kernel) -> object:
            return [np.add.reduceat(values.numpy(), starts) for values in kernel(rollout_logp, log_ratio)]

        alone = ns_a_token(lambda kernel=kernel: kernel(rollout_logp, log_ratio))
        print(f"{name}: {alone:.1f} ns a token, {ns_a_token(added_up):.1f} added up")


if __name__ == "__main__":
    main(sys.argv[1:])
