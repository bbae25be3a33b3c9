"""From one line of a framework's JSON to the objects that rows are read from, where it is not one row as it stands.

Each function is named by a row of `json_layouts`, and takes a line's object and its number.  What it gives has the keys
that the row's columns are read from, and may have arrays where a line would have lists.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.json_layouts import LAST_CALL, MISCOUNTED, NO_LOG_PROBS, NO_TOKENS, SGLANG_PIECES
from rlcorr_cli.layouts.left_out import LeftOut, unfinished
from rlcorr_cli.layouts.values import (
    HINT,
    aligned,
    floats,
    inner,
    integers,
    mask,
    number,
    objects,
    text,
    version,
    whole,
)

WRAPPED = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs", "advantages")
"""NeMo-RL's lists of tokens, each in a list of one; scalars may be, or not."""


def unwrapped(row: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    """NeMo-RL's row with its values out of their lists of one, and the agent's name in its reference's place."""
    for key in WRAPPED:
        value = row.get(key)
        if key in row and not (isinstance(value, list) and len(value) == 1):
            raise DataError(f"{key} is not in a list of one.", HINT)
    values = {key: value[0] if isinstance(value, list) and value else value for key, value in row.items()}
    agent = values.get("agent_ref")
    yield {**values, "agent_ref": agent.get("name")} if isinstance(agent, dict) else values


def conversation(row: dict[str, Any], place: int) -> Iterator[dict[str, Any] | LeftOut]:
    """NeMo-Gym's calls of the model, one after the other, in one.

    Each call's prompt_token_ids is all that went before, so that what lies between the end of a call and its beginning
    is a tool's answer or the template's words, mask 0.
    """
    answer = inner(row, "response")
    output = objects(answer, "output")
    calls = [item for item in output if item.get("generation_token_ids")]
    if not calls:
        yield NO_TOKENS
        return
    if left_out := unfinished("", None, (), answer):
        yield left_out
        return
    tokens: list[NDArray[np.int64]] = []
    log_probs: list[NDArray[Any]] = []
    masks: list[NDArray[np.bool_]] = []
    before = np.empty(0, np.int64)
    for call in calls:
        generated, values = integers(call, "generation_token_ids"), floats(call, "generation_log_probs")
        n_generated = aligned(generation_token_ids=generated, generation_log_probs=values)
        prompt = integers(call, "prompt_token_ids")
        between = prompt[len(before) :] if tokens and np.array_equal(prompt[: len(before)], before) else prompt[:0]
        tokens += [between, generated]
        log_probs += [np.zeros(len(between)), values]
        masks += [np.zeros(len(between), np.bool_), np.full(n_generated, not row.get("mask_sample"))]
        before = np.concatenate([prompt, generated])
    yield {
        **row,
        "generation_token_ids": np.concatenate(tokens),
        "generation_log_probs": np.concatenate(log_probs),
        "mask": np.concatenate(masks),
    }
    if output[-1] is not calls[-1] and output[-1].get("role") == "assistant":
        yield LAST_CALL


def response(row: dict[str, Any], place: int) -> Iterator[dict[str, Any] | LeftOut]:
    """SGLang's response, with the versions of the weights that sampled its tokens."""
    meta_info = inner(row, "meta_info")
    if meta_info.get("output_token_logprobs") is None:
        yield NO_LOG_PROBS
        return
    log_probs, tokens = _scored(meta_info, "output_token_logprobs")
    if left_out := unfinished(SGLANG_PIECES, text(meta_info, "id"), log_probs, meta_info, row):
        yield left_out
        return
    some = dict[str, Any]()
    if meta_info.get("input_token_logprobs"):
        some["prompt_log_probs"], some["prompt_token_ids"] = _scored(meta_info, "input_token_logprobs")
    versions = _versions(meta_info, len(log_probs))
    if versions is not None:
        some["versions"] = versions
    known = [version(meta_info, "weight_version")] if versions is None or not len(versions) else versions
    yield {
        "id": meta_info.get("id"),
        "request": place,
        "log-prob": log_probs,
        "token id": tokens,
        "first_version": known[0],
        "last_version": known[-1],
        **{key: meta_info[key] for key in ("cached_tokens", "prompt_tokens", "spec_accept_rate") if key in meta_info},
        **some,
    }
    n_said = whole(meta_info, "completion_tokens")
    if n_said is not None and not 0 <= n_said - len(log_probs) <= 1:
        yield MISCOUNTED


def _scored(meta_info: Mapping[str, Any], key: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Log-probs and token ids of [log-prob, id, text] each."""
    entries: Any = meta_info.get(key)
    try:
        log_probs = [entry[0] for entry in entries or ()]
        tokens = [entry[1] for entry in entries or ()]
    except (TypeError, LookupError) as error:
        raise DataError(f"{key} is not a list of [log-prob, token id, text].", HINT) from error
    return floats({"log-prob": log_probs}, "log-prob"), integers({"token id": tokens}, "token id")


def _versions(meta_info: Mapping[str, Any], n_tokens: int) -> NDArray[Any] | None:
    """The weights that sampled each token, null where that is not told or is no number."""
    if meta_info.get("weight_versions") is None:
        return None
    versions = np.full(n_tokens, None, object)
    for part in objects(meta_info, "weight_versions"):
        start, end = whole(part, "start"), whole(part, "end")
        if start is None or end is None or not 0 <= start <= end <= n_tokens:
            raise DataError(f"weight_versions has a part beyond the {n_tokens:,} tokens.", HINT)
        versions[start:end] = version(part, "version")
    return versions


def branches(row: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    """The branches of a prime-rl episode's traces, each with what is its own.

    A trace is a tree of messages.  A node has token ids, and log-probs and advantages of the True positions of its mask
    only.  A branch is a path from the root to a leaf.  A sampled node that several leaves share is trained once, with
    the first leaf: it and all before it are prompt to the others.
    """
    for trace in objects(row, "traces"):
        rewards = inner(trace, "rewards")
        scores = [inner(rewards, name) for name in rewards]
        total = sum((number(score, "score") or 0.0) * (number(score, "weight") or 0.0) for score in scores)
        about = {**row, "trace": trace, "reward": total if scores else None}
        tree = objects(trace, "nodes")
        for branch, path in enumerate(tree_paths([whole(node, "parent") for node in tree], once=True)):
            nodes = [tree[place] for place in path if tree[place].get("token_ids")]
            lists = _lists(nodes) if nodes else None
            if lists and lists["mask"].any():
                yield {**about, "branch": branch, **lists}


def tree_paths(parents: Sequence[int | None], *, once: bool = False) -> Iterator[list[int]]:
    """Of each leaf of a tree of messages, in order, the nodes from its root on.

    once: without those that a leaf before it has.  These are its path's beginning, so that each node is walked over
    once, whatever tree it is.
    """
    if not all(parent is None or 0 <= parent < node for node, parent in enumerate(parents)):
        raise DataError("a node's parent is not one of the nodes before it.", HINT)
    inside, taken = set(parents), set[int]()
    for leaf in range(len(parents)):
        if leaf in inside:
            continue
        path: list[int] = []
        node: int | None = leaf
        while node is not None and node not in taken:
            path.append(node)
            node = parents[node]
        if once:
            taken.update(path)
        yield path[::-1]


def _lists(nodes: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """The lists of a branch, log-probs and advantages with 0.0 where nothing was sampled."""
    masks = [mask(node, "mask") for node in nodes]
    tokens = [integers(node, "token_ids") for node in nodes]
    for node_mask, node_tokens in zip(masks, tokens, strict=True):
        aligned(token_ids=node_tokens, mask=node_mask)
    sampled = np.concatenate(masks)
    lists: dict[str, NDArray[Any]] = {"mask": sampled, "token_ids": np.concatenate(tokens)}
    for key in ("logprobs", "advantages", "reference_logprobs"):
        given = [floats(node, key) for node in nodes if node.get(key)]
        if not given and key != "logprobs":
            continue
        values = np.concatenate(given or [[]])
        if len(values) != (n_sampled := np.count_nonzero(sampled)):
            raise DataError(f"{key} has {len(values):,} values for {n_sampled:,} sampled tokens.", HINT)
        lists[key] = np.zeros(len(sampled), values.dtype)
        lists[key][sampled] = values
    return lists
