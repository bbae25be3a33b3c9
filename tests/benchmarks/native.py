"""What reading frameworks' own files costs, over decoding them by their own library: at most 1.5 is asked.

    python tests/benchmarks/native.py [FORMAT...] [--sequences N]

Each format writes a step of N sequences (512) of 8,192 response tokens into a temporary folder.  Printed: megabytes,
ours from file to canonical Arrow columns in seconds of processor time, and what each library takes, with the ratio; the
least of seven, taken in turn.  Files of torch's have two: `zipfile` and `pickle` with stubs, which make no tensors, and
`torch.load`.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import native_batches
import native_slime
import numpy as np

from rlcorr_cli.reading.convert import canonical_rows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest

N_TOKENS = 8_192
N_PROMPT = 64
N_DIFFERENT = 8
"""Sequences that are drawn; a step repeats them."""
REPEATS = 7


@dataclass(frozen=True)
class Sequence:
    """What a framework has of one sequence."""

    prompt: list[int]
    tokens: list[int]
    rollout: list[float]
    trained: list[float]


@dataclass(frozen=True)
class Case:
    """write: the step's files into a folder.  decode: one file by the format's own library, and nothing else; further:
    by another."""

    write: Callable[[Path, list[Sequence]], None]
    decode: Callable[[Path], None]
    further: Callable[[Path], None] | None = None


def step(n: int) -> list[Sequence]:
    """The sequences of a step."""
    draw = np.random.default_rng(7)
    different: list[Sequence] = []
    for _ in range(N_DIFFERENT):
        rollout = -draw.exponential(0.7, N_TOKENS).astype(np.float32)
        trained = rollout + draw.normal(0, 0.02, N_TOKENS).astype(np.float32)
        ids = draw.integers(0, 150_000, N_PROMPT + N_TOKENS).tolist()
        different.append(Sequence(ids[:N_PROMPT], ids[N_PROMPT:], rollout.tolist(), trained.tolist()))
    return [different[i % N_DIFFERENT] for i in range(n)]


def as_lines(path: Path, row: Callable[[Sequence, int], dict[str, Any]], sequences: list[Sequence]) -> None:
    """A JSON line for each sequence."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.writelines(json.dumps(row(sequence, i)) + "\n" for i, sequence in enumerate(sequences))


def decode_lines(path: Path) -> None:
    """By `json`, line by line."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def _lines(name: str, row: Callable[[Sequence, int], dict[str, Any]]) -> Case:
    return Case(lambda folder, sequences: as_lines(folder / name, row, sequences), decode_lines)


def _nemo_rl(sequence: Sequence, i: int) -> dict[str, Any]:
    zeros = [0.0] * N_PROMPT
    return {
        "content": [""],
        "rewards": [1.0],
        "input_lengths": [N_PROMPT + N_TOKENS],
        "token_ids": [sequence.prompt + sequence.tokens],
        "token_loss_mask": [[0] * N_PROMPT + [1] * N_TOKENS],
        "sample_loss_mask": [1.0],
        "advantages": [[0.5] * (N_PROMPT + N_TOKENS)],
        "generation_logprobs": [zeros + sequence.rollout],
        "prev_logprobs": [zeros + sequence.trained],
        "idx": i,
    }


def _prime_rl(sequence: Sequence, i: int) -> dict[str, Any]:
    n = N_PROMPT + N_TOKENS
    values = [0.0] * N_PROMPT + sequence.trained
    others = ("entropy", "mismatch_kl", "log_importance_ratio", "importance_ratio", "prob_delta")
    return {
        "schema_version": 1,
        "step": 7,
        "rank": 0,
        "micro_step": 0,
        "micro_sequence_idx": 0,
        "export_sequence_idx": i,
        "env_name": "math",
        "token_ids": sequence.prompt + sequence.tokens,
        "position_ids": list(range(n)),
        "loss_mask": [False] * N_PROMPT + [True] * N_TOKENS,
        "advantages": [0.5] * n,
        "inference_logprobs": [0.0] * N_PROMPT + sequence.rollout,
        "trainer_logprobs": values,
        **dict.fromkeys(others, values),
        **dict.fromkeys(("is_masked", "is_masked_high", "is_masked_low"), [False] * n),
        **dict.fromkeys(("rl_weights", "ce_weights", "ref_kl_weights"), [None] * n),
    }


def _prime_rl_traces(sequence: Sequence, i: int) -> dict[str, Any]:
    prompt = {"token_ids": sequence.prompt, "mask": [False] * N_PROMPT, "logprobs": [], "sampled": False}
    answer = {
        "parent": 0,
        "token_ids": sequence.tokens,
        "mask": [True] * N_TOKENS,
        "logprobs": sequence.rollout,
        "advantages": [0.5] * N_TOKENS,
        "sampled": True,
    }
    work = {"step": 7, "policy": {"start": 6, "end": 7}}
    rewards = {"correct": {"score": 1.0, "weight": 1.0}}
    return {
        "id": str(i),
        "env": {"name": "math"},
        "task": {},
        "group": {"id": str(i // 8)},
        "run": {"work": work},
        "traces": [{"id": str(i), "nodes": [prompt, answer], "rewards": rewards}],
    }


def _prime_rl_batches() -> Case:
    from msgspec.msgpack import decode, encode

    def write(folder: Path, sequences: list[Sequence]) -> None:
        n = N_PROMPT + N_TOKENS
        micro_batches = [
            [
                sequence.prompt + sequence.tokens,
                [False] * N_PROMPT + [True] * N_TOKENS,
                [0.5] * n,
                [0.0] * N_PROMPT + sequence.rollout,
                list(range(n)),
                [n],
                [1.0] * n,
                ["math"] * n,
                [n],
                *[None] * 7,
            ]
            for sequence in sequences
        ]
        (folder / "rank_0.bin").write_bytes(encode(micro_batches))

    return Case(write, lambda path: decode(path.read_bytes()))


def _open_instruct(sequence: Sequence, i: int) -> dict[str, Any]:
    return {
        "step": 1,
        "sample_idx": i,
        "prompt_idx": i // 8,
        "prompt_tokens": sequence.prompt,
        "response_tokens": sequence.tokens,
        "reward": 1.0,
        "advantage": 0.5,
        "dataset": "math",
        "logprobs": sequence.rollout,
    }


def _nemo_gym(sequence: Sequence, i: int) -> dict[str, Any]:
    call = {
        "prompt_token_ids": sequence.prompt,
        "generation_token_ids": sequence.tokens,
        "generation_log_probs": sequence.rollout,
    }
    return {
        "responses_create_params": {},
        "response": {"output": [call]},
        "reward": 1.0,
        "_ng_task_index": i // 8,
        "_ng_rollout_index": i % 8,
    }


def _openai(sequence: Sequence, i: int) -> dict[str, Any]:
    content = [{"token": "word", "logprob": value, "bytes": [119], "top_logprobs": []} for value in sequence.rollout]
    choice = {"index": 0, "logprobs": {"content": content}, "token_ids": sequence.tokens}
    return {"id": str(i), "object": "chat.completion", "choices": [choice]}


def _sglang(sequence: Sequence, i: int) -> dict[str, Any]:
    entries = [[value, token, None] for value, token in zip(sequence.rollout, sequence.tokens, strict=True)]
    versions = [{"version": "1", "start": 0, "end": N_TOKENS}]
    meta_info = {"id": str(i), "output_token_logprobs": entries, "weight_version": "1", "weight_versions": versions}
    return {"text": "", "output_ids": sequence.tokens, "meta_info": meta_info}


CASES: dict[str, Callable[[], Case]] = {
    **{name: partial(Case, *case) for name, case in native_batches.CASES.items()},
    "nemo-gym": lambda: _lines("rollouts.jsonl", _nemo_gym),
    "nemo-rl": lambda: _lines("train_data_step1.jsonl", _nemo_rl),
    "open-instruct": lambda: _lines("a_rollouts_000000.jsonl", _open_instruct),
    "openai": lambda: _lines("chat.jsonl", _openai),
    "prime-rl": lambda: _lines("rank_0.jsonl", _prime_rl),
    "prime-rl-batches": _prime_rl_batches,
    "prime-rl-traces": lambda: _lines("traces.jsonl", _prime_rl_traces),
    "sglang": lambda: _lines("generate.jsonl", _sglang),
    **{name: partial(Case, *case) for name, case in native_slime.CASES.items()},
}
"""Format -> its case; after a colon, which of its files."""


def read(folder: Path, format: str) -> int:
    """Every sample of a folder into Arrow, as `analyze` and `convert` have it; the number of rows."""
    request = ReadRequest(paths=(str(folder),), format=format)
    return sum(len(rows) for _, rows in canonical_rows(open_dump(request, PlanColumns(compares=False))))


def seconds(do: Callable[[], Any]) -> float:
    """Of all threads' processor time."""
    started = time.process_time()
    do()
    return time.process_time() - started


def measured(format: str, n: int) -> tuple[float, float, list[float]]:
    """Megabytes, our seconds, those of each library."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        case = CASES[format]()
        case.write(folder, step(n))
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        decoders = [decode for decode in (case.decode, case.further) if decode]
        libraries = [math.inf] * len(decoders)
        ours = math.inf
        for _ in range(REPEATS):
            for i, decode in enumerate(decoders):
                taken = sum(seconds(lambda path=path, decode=decode: decode(path)) for path in files)
                libraries[i] = min(libraries[i], taken)
            for path in files:  # a unit is kept open for a moment, and must not be in the next repeat
                path.touch()
            ours = min(ours, seconds(lambda: _whole(folder, format.partition(":")[0], n)))
        megabytes = sum(path.stat().st_size for path in files) / 1e6
    return megabytes, ours, libraries


def _whole(folder: Path, format: str, n: int) -> None:
    n_rows = read(folder, format)
    assert n_rows == n, f"{format}: {n_rows} rows of {n}"


def main(formats: list[str], n: int) -> Iterator[str]:
    """A line for each format."""
    for format in formats or CASES:
        megabytes, ours, libraries = measured(format, n)
        over = "".join(f"  library {library:6.3f} s {ours / library:5.2f}" for library in libraries)
        yield f"{format:18} {megabytes:7.1f} MB  ours {ours:6.3f} s{over}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("formats", nargs="*", metavar="FORMAT")
    parser.add_argument("--sequences", type=int, default=512)
    arguments = parser.parse_args()
    for line in main(arguments.formats, arguments.sequences):
        print(line, flush=True)
