"""Runs of prime-rl's file monitor, made by the folder's README, and the rows that a right reader gives of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

Row = dict[str, Any]
SEEK_TABLE = b"\x5e\x2a\x4d\x18" + (9).to_bytes(4, "little") + bytes(9)
"""A frame that readers skip, which ends a seekable file of zstd."""


@dataclass
class Run:
    """Records by stream, in the order of writing, and the rows."""

    stream: list[Row]
    orch: list[Row]
    trainer: list[Row]
    rows: list[Row]


def made_run(n_episodes: int, seed: int, decimals: int | None = None) -> Run:
    """Episodes of trees of messages: some of evaluation, some failed, some shipped and not trained on yet.  The trainer
    has records of most branches, some of them twice, and of a trace that nobody else knows."""
    rng = np.random.default_rng(seed)
    run = Run([], [], [], [])

    def floats(n: int) -> list[float]:
        values = -rng.exponential(1.0, n)
        return [float(value) if decimals is None else round(float(value), decimals) for value in values]

    older: list[Row] = []
    newer: list[Row] = []
    for number in range(n_episodes):
        kind = "eval" if number % 7 == 3 else "train"
        live = number >= n_episodes - 2
        policy = {"start": number // 3 - 1, "end": number // 3}
        work = {"type": kind, "step": number // 3, "policy": policy}
        episode: Row = {
            "id": f"e{number}",
            "env": {"id": "x", "name": f"env{number % 2}"},
            "task": {"text": 'a "traces": of\n'},
        }
        episode |= {"group": {"id": f"g{number // 2}"}, "run": {"type": "train", "work": work}, "traces": []}
        for place in range(0 if number % 5 == 4 else 1 + number % 2):
            name = f"t{number}.{place}"
            nodes = [_node(rng, floats, parent) for parent in _parents(rng)]
            rewards = {"a": {"score": 0.25 * place, "weight": 1.0}, "b": {"score": 0.5, "weight": 0.1}}
            episode["traces"].append({"version": 1, "id": name, "nodes": nodes, "rewards": rewards, "info": {}})
            shipped = kind == "train" and number % 6 != 5
            step = 10 + number // 3 if shipped else None
            about = {
                "step": step,
                "group_id": f"g{number // 2}",
                "sample_id": name,
                "policy_version": policy["start"],
                "policy_version_end": policy["end"],
                "source": f"env{number % 2}",
                "episode_id": f"e{number}",
                "kind": kind,
                "reward": 0.25 * place * 1.0 + 0.5 * 0.1,
            }
            taken: set[int] = set()
            credit: list[Row] = []
            for branch, path in enumerate(paths([node.get("parent") for node in nodes])):
                tokens = [token for node in path for token in nodes[node]["token_ids"]]
                sampled = [flag for node in path for flag in nodes[node]["mask"]]
                values = iter([value for node in path for value in nodes[node]["logprobs"]])
                rollout = [next(values) if flag else 0.0 for flag in sampled]
                own = [node not in taken for node in path for _ in nodes[node]["token_ids"]]
                taken |= {node for node in path if any(nodes[node]["mask"])}
                current: list[float | None] | None = None
                if shipped and not live and any(sampled):
                    fresh = floats(len(tokens))
                    current = [
                        value if flag and mine else None for value, flag, mine in zip(fresh, sampled, own, strict=True)
                    ]
                    flags = [value is not None and value < -2 for value in current]
                    streams: Row = {
                        "trainer_logprobs": current,
                        "is_masked": [
                            None if value is None else flag for value, flag in zip(current, flags, strict=True)
                        ],
                    }
                    if number % 4 == 0 and any(value is not None for value in current):
                        lost = next(i for i, value in enumerate(current) if value is not None)
                        current[lost] = None  # was not finite, which `is_masked` alone tells
                    if number % 3 == 1:
                        wrong = [None if value is None else value - 0.5 for value in current]
                        older.append(_record(name, {"index": branch, "trainer_logprobs": wrong}))
                    newer.append(_record(name, {"index": branch, **streams}))
                advantages = [float(flag) * 0.125 for flag in sampled] if shipped else None
                if advantages:
                    credit.append({"index": branch, "advantages": advantages})
                if any(sampled):
                    mask = [
                        bool(flag) and (current is None or current[i] is not None) for i, flag in enumerate(sampled)
                    ]
                    where = [i for i, flag in enumerate(mask) if flag]
                    cut = slice(where[0], where[-1] + 1) if where else slice(0, 0)
                    run.rows.append(
                        {
                            **about,
                            "branch": branch,
                            "rollout_log_probs": rollout[cut],
                            "current_log_probs": None if current is None else current[cut],
                            "response_mask": [int(flag) for flag in mask[cut]],
                            "token_ids": tokens[cut],
                            "advantages": None if advantages is None else advantages[cut],
                            "n_valid": len(where),
                        }
                    )
            if shipped:
                run.orch.append(
                    {
                        "version": 1,
                        "trace_id": name,
                        "info": {"effective": True, "ship": {"step": step, "time": 1.5}},
                        "branches": credit,
                    }
                )
        run.stream.append(episode)
    unknown = _record("nobody's", {"index": 0, "trainer_logprobs": [None, -1.0]})
    run.trainer = [*older, unknown, *(newer[i] for i in rng.permutation(len(newer)))]
    return run


def _record(trace: str, branch: Row) -> Row:
    return {"version": 1, "trace_id": trace, "info": {}, "branches": [branch]}


def _parents(rng: np.random.Generator) -> list[int | None]:
    """Of some nodes: a chain, a fork or two roots, as they come."""
    n = int(rng.integers(1, 7))
    return [None if node == 0 or rng.random() < 0.1 else int(rng.integers(max(node - 2, 0), node)) for node in range(n)]


def _node(rng: np.random.Generator, floats: Any, parent: int | None) -> Row:
    n, is_sampled = int(rng.integers(1, 9)), rng.random() < 0.6
    mask = [bool(is_sampled and (i >= n // 3)) for i in range(n)]
    node = {
        "message": {"role": "x", "content": "é\\"},
        "token_ids": rng.integers(0, 50_000, n).tolist(),
        "mask": mask,
        "logprobs": floats(sum(mask)),
    }
    return node if parent is None else {"parent": parent, **node}


def paths(parents: Sequence[int | None]) -> list[list[int]]:
    """Of each leaf in order the nodes from its root on."""
    found = []
    for leaf in range(len(parents)):
        if leaf not in parents:
            path = [leaf]
            while (parent := parents[path[0]]) is not None:
                path.insert(0, parent)
            found.append(path)
    return found


def write_run(folder: Path, run: Run, *, chunk_bytes: int = 0, frame_bytes: int = 0, finished: bool = True) -> Path:
    """The run's folder.  chunk_bytes: 0 for one file a stream; frame_bytes: of a sealed chunk, before it is packed."""
    traces = folder / "monitors" / "file" / "traces"
    (traces / "annotations").mkdir(parents=True)
    for name, records in (
        ("stream", run.stream),
        ("annotations/orch", run.orch),
        ("annotations/trainer", run.trainer),
    ):
        lines = [json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records]
        if not chunk_bytes:
            (traces / f"{name}.jsonl").write_bytes(b"".join(lines))
        else:
            write_chunks(traces / name, lines, chunk_bytes, frame_bytes, finished=finished)
        index = [json.dumps({"trace_id": "x", "offset": 0, "info": {}}) + "\n" for _ in records]
        (traces / f"{name}.index.jsonl").write_text("".join(index))
    (traces / "stream.lock").touch()
    metrics = {"step": 1, "time": 1.5, "loss/mean": 0.5, "producer": "trainer"}
    (traces.parent / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    (traces / "live").mkdir()
    (traces / "live" / "t9.jsonl").write_text(json.dumps({"trace": "t9", "open": {}, "dispatch": {}}) + "\n")
    return folder


def write_chunks(folder: Path, lines: Iterable[bytes], chunk_bytes: int, frame_bytes: int, *, finished: bool) -> None:
    """Chunks of at least so many bytes, all but the last of a run that goes on sealed."""
    chunks: list[bytes] = [b""]
    for line in lines:
        if len(chunks[-1]) >= chunk_bytes:
            chunks.append(b"")
        chunks[-1] += line
    folder.mkdir()
    for number, chunk in enumerate(chunks if chunks[0] else []):
        if finished or number < len(chunks) - 1:
            (folder / f"{number:05d}.jsonl.zst").write_bytes(sealed(chunk, frame_bytes))
        else:
            (folder / f"{number:05d}.jsonl").write_bytes(chunk)


def sealed(data: bytes, frame_bytes: int) -> bytes:
    """Frames that end wherever they are full, and the table of their places."""
    pieces = (data[start : start + frame_bytes] for start in range(0, len(data), frame_bytes))
    return b"".join(pa.compress(piece, "zstd", asbytes=True) for piece in pieces) + SEEK_TABLE
