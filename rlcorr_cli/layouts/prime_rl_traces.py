"""prime-rl's rollouts/step_{N}/{train,eval}/{all,effective}/traces.jsonl: an episode a line, its messages as a tree.

A node has token ids, and log-probs and advantages of the True positions of its mask only.  A sample is a path from the
root to a leaf.  A sampled node that several leaves share is trained once, with the first leaf: it and all before it
are prompt to the others.  `effective` has the episodes that were trained on, with advantages; `all` has them, too.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.json_rows import has_key, made_of_rows
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import (
    HINT,
    aligned,
    floats,
    inner,
    integers,
    mask,
    number,
    objects,
    span,
    text,
    version,
    whole,
)

KEYS = ("id", "env", "task", "traces")
EXPORT = (
    "prime-rl writes the trainer's log-probs in its token export only. Train with trainer.enable_token_export = true, "
    "and name token_exports/."
)
COLUMNS = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "policy_version",
    "policy_version_end",
    "source",
    "episode_id",
    "branch",
)
OPTIONAL = {"advantages": "advantages", "ref_log_probs": "reference_logprobs"}
"""Columns that only some files have, and the key that such a file has somewhere."""
NOTES = (
    "A row is a branch of an episode's messages, from its first to its last sampled token; what branches share is in "
    "the first of them only, as in training.",
    "Episodes without a sampled token give no row.",
)


def recognise(start: FileStart) -> str | None:
    """By the keys of the first row."""
    is_episode = all(key in start.row for key in KEYS) and isinstance(start.row["traces"], list)
    return f"keys {', '.join(KEYS)}" if is_episode else None


def unite(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Every episode once: `effective` rather than `all` of one step, and training rather than evaluation."""
    trained = [path for path in paths if _folders(path)[-2:-1] != ["eval"]] or paths
    folders = {os.path.dirname(path) for path in trained}
    return [
        (path,)
        for path in trained
        if _folders(path)[-1:] != ["all"] or os.path.join(_above(path), "effective") not in folders
    ]


def open_traces(paths: Sequence[str]) -> OpenedDump:
    """One file of episodes."""
    import pyarrow as pa

    (path,) = paths
    columns = [*COLUMNS, *(name for name, key in OPTIONAL.items() if has_key(path, key, rb"\[[^\]]"))]

    def samples() -> Iterator[Sample]:
        return made_of_rows(path, _samples)

    return OpenedDump(
        columns=columns,
        samples=samples,
        notes=NOTES,
        types={"episode_id": pa.string(), "branch": pa.int64()},
        missing_policy_hint=EXPORT,
    )


def _folders(path: str) -> list[str]:
    return re.split(r"[\\/]", os.path.dirname(path))


def _above(path: str) -> str:
    return os.path.dirname(os.path.dirname(path))


def _samples(row: dict[str, Any], number: int) -> Iterator[Sample]:
    work = inner(inner(row, "run"), "work")
    policy = inner(work, "policy")
    of_episode = {
        "step": whole(work, "step"),
        "group_id": text(inner(row, "group"), "id"),
        "policy_version": version(policy, "start"),
        "policy_version_end": version(policy, "end"),
        "source": text(inner(row, "env"), "name"),
        "episode_id": text(row, "id"),
    }
    for trace in objects(row, "traces"):
        of_trace = {"reward": _reward(trace), "sample_id": text(trace, "id")}
        for branch, path in enumerate(_branches(objects(trace, "nodes"))):
            lists = _lists(path)
            if len(lists["response_mask"]):
                yield {**of_episode, **of_trace, "branch": branch, **lists}


def _reward(trace: Mapping[str, Any]) -> float | None:
    rewards = inner(trace, "rewards")
    parts = [inner(rewards, name) for name in rewards]
    return sum((number(part, "score") or 0.0) * (number(part, "weight") or 0.0) for part in parts) if parts else None


def _branches(nodes: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Of each leaf, the nodes of its path that no leaf before it has, from the root on.

    What a leaf before it has is the path's beginning, so that each node is walked over once, whatever tree it is.
    """
    parents = [whole(node, "parent") for node in nodes]
    if not all(parent is None or 0 <= parent < i for i, parent in enumerate(parents)):
        raise DataError("a node's parent is not one of the nodes before it.", HINT)
    taken = [False] * len(nodes)
    inside = set(parents)
    for leaf in range(len(nodes)):
        if leaf in inside:
            continue
        path: list[int] = []
        place: int | None = leaf
        while place is not None and not taken[place]:
            taken[place] = True
            path.append(place)
            place = parents[place]
        yield [nodes[i] for i in reversed(path)]


def _lists(path: list[dict[str, Any]]) -> dict[str, Any]:
    """The lists of a branch, cut to its sampled tokens."""
    path = [node for node in path if node.get("token_ids")]
    if not path:
        return {"response_mask": ()}
    masks = [mask(node, "mask") for node in path]
    tokens = [integers(node, "token_ids") for node in path]
    for node_mask, node_tokens in zip(masks, tokens, strict=True):
        aligned(token_ids=node_tokens, mask=node_mask)
    sampled = np.concatenate(masks)
    cut = span(sampled)

    def values(key: str) -> NDArray[Any]:
        """The values of the sampled tokens, at their places; 0.0 at the others."""
        given = np.concatenate([floats(node, key) for node in path if node.get(key)] or [[]])
        if len(given) != int(np.count_nonzero(sampled)):
            what = f"{key} has {len(given):,} values for {np.count_nonzero(sampled):,} sampled tokens."
            raise DataError(what, HINT)
        spread = np.zeros(len(sampled), given.dtype)
        spread[sampled] = given
        return spread[cut]

    def where_there(key: str) -> NDArray[Any] | None:
        return values(key) if any(node.get(key) for node in path) else None

    return {
        "rollout_log_probs": values("logprobs"),
        "response_mask": sampled[cut],
        "token_ids": np.concatenate(tokens)[cut],
        "advantages": where_there("advantages"),
        "ref_log_probs": where_there("reference_logprobs"),
    }
