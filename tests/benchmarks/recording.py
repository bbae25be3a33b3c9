"""What `Recorder` costs a trainer: 1,024 responses of 4,096 tokens a step, as verl holds them and by canonical names.

    python tests/benchmarks/recording.py --steps 12

Printed are the milliseconds in the caller, by the clock and of CPU (the first step, which takes memory, then the median
and the least of the others), the CPU seconds of the thread for a step, the size of a file, and what the import of
Recorder takes in a process that has NumPy and pyarrow.  The clock tells of a busy machine's other work, too.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlcorr_cli import Recorder

ROWS, TOKENS, PROMPT, SAMPLES = 1024, 4096, 512, 8
IMPORT = """
import sys, time
import numpy, pyarrow, pyarrow.parquet
began, before = time.perf_counter(), time.process_time()
from rlcorr_cli import Recorder
Recorder("/nowhere")
took, cpu = time.perf_counter() - began, time.process_time() - before
print(f"{took:.2f} s, of CPU {cpu:.2f} s; torch: {'torch' in sys.modules}")
"""


def canonical() -> dict[str, torch.Tensor]:
    """Tensors by the names of this package; the shortest response has half the tokens of the longest."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (ROWS, 1), generator=random)
    rollout = -(torch.rand((ROWS, TOKENS), generator=random) ** 2)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": rollout + torch.randn((ROWS, TOKENS), generator=random) / 100,
        "response_mask": (torch.arange(TOKENS) < lengths).long(),
        "advantages": torch.randn((ROWS, 1), generator=random).expand(ROWS, TOKENS).contiguous(),
        "token_ids": (torch.rand((ROWS, TOKENS), generator=random) ** 6 * 150_000).long(),
        "prompt_ids": torch.randint(150_000, (ROWS // SAMPLES, PROMPT)).repeat_interleave(SAMPLES, 0),
    }


def verl() -> dict[str, Any]:
    """The same as a DataProto has it, in its batch."""
    held = canonical()
    prompts, responses, mask = held.pop("prompt_ids"), held.pop("token_ids"), held["response_mask"]
    whole = {"input_ids": torch.cat([prompts, responses], 1), "prompts": prompts, "responses": responses}
    attention = torch.cat([torch.ones_like(prompts), mask], 1)
    return {**held, **whole, "attention_mask": attention, "token_level_scores": torch.zeros(ROWS, TOKENS)}


FORMS: dict[str, Callable[[], dict[str, Any]]] = {"canonical names": canonical, "verl": verl}


def main() -> None:
    """Record, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    asked = parser.parse_args()
    for name, made in FORMS.items():
        held = made()
        with tempfile.TemporaryDirectory() as folder:
            clock, caller, thread = [], [], []
            recorder = Recorder(folder, patience=60, strict=True)
            for step in range(asked.steps):
                before, own, began = time.process_time(), time.thread_time(), time.perf_counter()
                recorder.write(held, step=step)
                clock.append((time.perf_counter() - began) * 1e3)
                caller.append((time.thread_time() - own) * 1e3)
                recorder.close()  # so that the thread's CPU time is this step's
                thread.append(time.process_time() - before - (time.thread_time() - own))
            n_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        for what, values, unit in (("clock", clock, "ms"), ("caller", caller, "ms"), ("thread", thread, "s")):
            first, *others = values
            print(f"{name}, {what}: {first:.3g}, then {statistics.median(others):.3g} ({min(others):.3g}) {unit}")
        print(f"{name}: {n_bytes / asked.steps / 1e6:.0f} MB a step")
    print("import:", subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
