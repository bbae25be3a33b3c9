"""Frameworks' JSON lines as samples: each line's object becomes parts, each part a row, by the layout's JsonLines.

A file is opened by looking for the keys that only some files have, which settles its columns; then it is read line by
line as often as is asked.  Files of responses are read once as they are opened (`survey`): what was left out is counted
in notes.

Where a line is not one row as it stands, `parts` of its JsonLines names one of the functions at the end, which takes a
line's object and its number.  What that gives has the keys that the columns are read from, and may have arrays where a
line would have lists.
"""

import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError, naming, plural
from rlcorr_cli.files import filesystem
from rlcorr_cli.layouts import values
from rlcorr_cli.layouts.canonical import TYPES
from rlcorr_cli.layouts.json_layouts import From, JsonLines
from rlcorr_cli.layouts.layout import LeftOut, OpenedDump, Sample
from rlcorr_cli.layouts.nested import unfinished
from rlcorr_cli.layouts.response_lines import EACH_LINE, Stream, whole_responses

SHOWN = 3
"""Responses that a note names."""
MOST_KEPT = 1 << 23
"""Values of rows that are kept for the readings that follow; the rows of a file of more are made again."""
SCORED = "What the engine scored of a prompt is prompt_log_probs, and no part of the response."
CUT = "Wait until it is written, or copy it again."
EVENT = re.compile(rb"\s*(?:data: ?(?:\[DONE\])?|(?:event|id|retry|):.*)", re.DOTALL)
"""What a line of server-sent events begins with, or all of a line without data."""
Made = TypeVar("Made")


def _text_of_numbers(row: Mapping[str, Any], template: str) -> str | None:
    """A text of whole numbers; None where one is null or absent."""
    numbers = {key: values.whole(row, key) for key in re.findall(r"{(\w+)}", template)}
    return None if None in numbers.values() else template.format(**numbers)


KINDS: Mapping[str, tuple[Callable[[Mapping[str, Any], str], Any], pa.DataType]] = {
    "floats": (values.floats, pa.list_(pa.float64())),
    "integers": (values.integers, pa.list_(pa.int64())),
    "mask": (values.mask, pa.list_(pa.int8())),
    "number": (values.number, pa.float64()),
    "whole": (values.whole, pa.int64()),
    "version": (values.version, pa.int64()),
    "text": (values.text, pa.string()),
    "joined": (_text_of_numbers, pa.string()),
}
"""How each kind of value is read, and the type of its column."""


def opened_lines(layout: JsonLines, path: str) -> OpenedDump:
    """One file."""
    notes = (*layout.notes, *layout.check(path))
    signs = {*layout.only_with.values(), *layout.notes_with.values()}
    found = {sign for sign in signs if has_key(path, *sign)}
    in_path = {name: re.search(pattern, path) for name, pattern in layout.from_path.items()}
    fixed = {name: int(match[1]) for name, match in in_path.items() if match}
    columns = {name: of for name, of in layout.columns.items() if layout.only_with.get(name) in (None, *found)}

    def read() -> Iterator[Any]:
        return made_of_rows(path, lambda row, number: map(row_of, layout.parts(row, number)), layout.stream)

    def row_of(part: Mapping[str, Any] | LeftOut) -> Sample | LeftOut:
        return part if isinstance(part, LeftOut) else {**_json_sample(layout, columns, part), **fixed}

    dump = survey(read, layout.surveyed) if layout.surveyed else OpenedDump(columns=[*columns], samples=read)
    columns = {name: of for name, of in columns.items() if not of.optional or name in dump.columns}
    return replace(
        dump,
        columns=("response_mask", *(name for name in columns if name != "response_mask"), *fixed),
        notes=(*notes, *dump.notes, *(note for note, sign in layout.notes_with.items() if sign in found)),
        types={name: KINDS[of.kind][1] for name, of in columns.items()},
        missing_policy_hint=layout.missing_policy_hint,
    )


def _json_sample(layout: JsonLines, columns: Mapping[str, From], part: Mapping[str, Any]) -> dict[str, Any]:
    """One part's canonical columns."""
    sample = {name: _value_of(part, of) for name, of in columns.items()}
    of_tokens = [name for name, value in sample.items() if isinstance(value, np.ndarray) and name in TYPES]
    n_tokens = values.aligned(**{columns[name].key: sample[name] for name in of_tokens})
    mask = sample.setdefault("response_mask", np.ones(n_tokens, np.int8))
    if layout.span:
        trained = values.span(mask)
        sample |= {name: sample[name][trained] for name in of_tokens}
    if layout.zeroed_by and values.number(part, layout.zeroed_by) == 0:
        sample["response_mask"] = np.zeros_like(sample["response_mask"])
    return sample


def _value_of(part: Mapping[str, Any], of: From) -> Any:
    """The value of one column; an array is one that `parts` has made."""
    if of.kind == "joined":
        return _text_of_numbers(part, of.key)
    *objects, names = of.key.split(".")
    for name in objects:
        part = values.inner(part, name)
    choices = names.split("|")
    key = next((name for name in choices if name in part), choices[-1])
    if isinstance(part.get(key), np.ndarray):
        return part[key]
    return None if of.optional and key not in part else KINDS[of.kind][0](part, key)


def survey(read: Callable[[], Iterator[Sample | LeftOut]], what: str) -> OpenedDump:
    """A file's rows, the columns of which some row has a value, and a note on each reason; a DataError where no row is
    left.  what: a part of the file, such as a response."""
    reasons, unfinished_ids, columns = Counter[LeftOut](), list[str](), set[str]()
    kept, n_rows, n_values = list[Sample](), 0, 0
    for part in read():
        if isinstance(part, LeftOut):
            reasons[part] += 1
            if part.response is not None:
                unfinished_ids.append(part.response)
            continue
        n_rows += 1
        n_values += sum(len(value) if isinstance(value, Sized) else 1 for value in part.values())
        if n_values <= MOST_KEPT:
            kept.append(part)
        columns.update(name for name, value in part.items() if value is not None)
    n = n_rows + sum(count for reason, count in reasons.items() if reason.none)
    if reasons and not n_rows:
        reason = reasons.most_common(1)[0][0]
        if len(reasons) > 1:
            counts = "; ".join(f"{count:,} {left_out.note}" for left_out, count in reasons.items())
            raise DataError(f"none of its {n:,} {what}s can be read: {counts}.", reason.hint)
        raise DataError(f"none of its {f'{n:,} ' if n > 1 else ''}{what}s {reason.none}.", reason.hint)
    losses = [f"{count:,} of {plural(n, what)} {reason.note}." for reason, count in reasons.items()]
    if unfinished_ids:
        losses.append(f"Unfinished: {', '.join(unfinished_ids[:SHOWN])}{', …' * (len(unfinished_ids) > SHOWN)}.")
    return OpenedDump(
        columns=[*columns],
        samples=lambda: (part for part in (kept if n_values <= MOST_KEPT else read()) if not isinstance(part, LeftOut)),
        losses=tuple(losses),
        notes=(SCORED,) if "prompt_log_probs" in columns else (),
    )


def made_of_rows(
    path: str, make: Callable[[dict[str, Any], int], Iterable[Made]], stream: Stream = EACH_LINE
) -> Iterator[Made]:
    """What `make` makes of each line's object and its number among them, in order; blank lines are passed over, and of
    server-sent events all but their data.  stream: how lines become one object.

    A line that is no object is a DataError that names it, and so are the DataErrors of `make`.
    """
    for number, place, row in whole_responses(_objects(path), stream):
        with naming(f"line {number}"):
            yield from make(row, place)
        del row


def _objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with filesystem(path).open(path) as file:
        for number, line in enumerate(file, 1):
            if event := EVENT.match(line):
                line = line[event.end() :]
            if not line or line.isspace():
                continue
            try:
                row = _parsed(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"line {number} is not JSON: is the file still being written?", CUT) from error
            if not isinstance(row, dict):
                hint = "A line for each object: `jq -c '.[]?' FILE > dump.jsonl`." if isinstance(row, list) else CUT
                raise DataError(f"line {number} is not an object.", hint)
            yield number, row


def _parsed(line: bytes) -> Any:
    """By msgspec; where that refuses a line, as one with NaN, by Python's parser, which takes twice as long.

    No garbage is looked for meanwhile: a response has an object for each token, and to go through those that are made
    already, again and again, took longer than all else.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return msgspec.json.decode(line)
        return json.loads(line)
    finally:
        if was_enabled:
            gc.enable()


def has_key(path: str, key: str, value: bytes = b"") -> bool:
    """Whether a JSON object of the file has that key, with a value that begins so, a pattern, in the same line.

    Found without parsing: no text in JSON holds these bytes, because its quotes are escaped.
    """
    pattern = re.compile(rb'"%s":\s?%s' % (key.encode(), value))
    with filesystem(path).open(path) as file:
        return any(pattern.search(line) for line in file)


NO_TOKENS = LeftOut(
    note="left out: no call has token ids and log-probs",
    none="has token ids and log-probs",
    hint="Serve the model with them (return_token_ids, logprobs): NeMo-Gym keeps what the server returns.",
)
LAST_CALL = LeftOut(note="with a last call that has no token ids, and is not in the row")
NO_LOG_PROBS = LeftOut(
    note="left out: they have no output_token_logprobs, as of a request that failed or did not ask for them",
    none="has output_token_logprobs",
    hint="Ask SGLang for them: return_logprob=true.",
)
SGLANG_FACTS = ("cached_tokens", "prompt_tokens", "spec_accept_rate", "spec_accept_length")
"""Of meta_info, what a column has as it stands."""
WRAPPED = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs", "advantages")
"""NeMo-RL's lists of tokens, each in a list of one; scalars may be, or not."""


def miscounted(key: str) -> LeftOut:
    """A response that says to have another number of tokens than it has log-probs."""
    return LeftOut(note=f"with fewer or more log-probs than {key}: some tokens, such as reasoning, have none")


def nemo_rl_row(row: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    """NeMo-RL's row with its values out of their lists of one, and the agent's name in its reference's place."""
    for key in WRAPPED:
        value = row.get(key)
        if key in row and not (isinstance(value, list) and len(value) == 1):
            raise DataError(f"{key} is not in a list of one.", values.HINT)
    scalars = {key: value[0] if isinstance(value, list) and value else value for key, value in row.items()}
    agent = scalars.get("agent_ref")
    yield {**scalars, "agent_ref": agent.get("name")} if isinstance(agent, dict) else scalars


def nemo_gym_conversation(row: dict[str, Any], place: int) -> Iterator[dict[str, Any] | LeftOut]:
    """NeMo-Gym's calls of the model, one after the other, in one.

    Each call's prompt_token_ids is all that went before, so that what lies between the end of a call and its beginning
    is a tool's answer or the template's words, mask 0.
    """
    answer = values.inner(row, "response")
    output = values.objects(answer, "output")
    calls = [item for item in output if item.get("generation_token_ids")]
    if not calls:
        yield NO_TOKENS
        return
    if left_out := unfinished(None, answer):
        yield left_out
        return
    tokens: list[NDArray[np.int64]] = []
    log_probs: list[NDArray[Any]] = []
    masks: list[NDArray[np.bool_]] = []
    before = np.empty(0, np.int64)
    for call in calls:
        generated, of_call = values.integers(call, "generation_token_ids"), values.floats(call, "generation_log_probs")
        n_generated = values.aligned(generation_token_ids=generated, generation_log_probs=of_call)
        prompt = values.integers(call, "prompt_token_ids")
        between = prompt[len(before) :] if tokens and np.array_equal(prompt[: len(before)], before) else prompt[:0]
        tokens += [between, generated]
        log_probs += [np.zeros(len(between)), of_call]
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


def sglang_response(row: dict[str, Any], place: int) -> Iterator[dict[str, Any] | LeftOut]:
    """SGLang's response, with the versions of the weights that sampled its tokens."""
    meta_info = values.inner(row, "meta_info")
    if meta_info.get("output_token_logprobs") is None:
        yield NO_LOG_PROBS
        return
    log_probs, tokens = _sglang_log_probs(meta_info, "output_token_logprobs")
    if left_out := unfinished(values.text(meta_info, "id"), row, meta_info):
        yield left_out
        return
    some = dict[str, Any]()
    if meta_info.get("input_token_logprobs"):
        some["prompt_log_probs"], some["prompt_token_ids"] = _sglang_log_probs(meta_info, "input_token_logprobs")
    versions = _token_versions(meta_info, len(log_probs))
    if versions is not None:
        some["versions"] = versions
    known = [values.version(meta_info, "weight_version")] if versions is None or not len(versions) else versions
    yield {
        "id": meta_info.get("id"),
        "request": place,
        "log-prob": log_probs,
        "token id": tokens,
        "first_version": known[0],
        "last_version": known[-1],
        **{key: meta_info[key] for key in SGLANG_FACTS if key in meta_info},
        **some,
    }
    n_said = values.whole(meta_info, "completion_tokens")
    if n_said is not None and not 0 <= n_said - len(log_probs) <= 1:
        yield miscounted("completion_tokens")


def _sglang_log_probs(meta_info: Mapping[str, Any], key: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Log-probs and token ids of [log-prob, id, text] each."""
    entries: Any = meta_info.get(key)
    try:
        log_probs = [entry[0] for entry in entries or ()]
        tokens = [entry[1] for entry in entries or ()]
    except (TypeError, LookupError) as error:
        raise DataError(f"{key} is not a list of [log-prob, token id, text].", values.HINT) from error
    return values.floats({"log-prob": log_probs}, "log-prob"), values.integers({"token id": tokens}, "token id")


def _token_versions(meta_info: Mapping[str, Any], n_tokens: int) -> NDArray[Any] | None:
    """The weights that sampled each token, null where that is not told or is no number."""
    if meta_info.get("weight_versions") is None:
        return None
    versions = np.full(n_tokens, None, object)
    for part in values.objects(meta_info, "weight_versions"):
        start, end = values.whole(part, "start"), values.whole(part, "end")
        if start is None or end is None or not 0 <= start <= end <= n_tokens:
            raise DataError(f"weight_versions has a part beyond the {n_tokens:,} tokens.", values.HINT)
        versions[start:end] = values.version(part, "version")
    return versions


def prime_rl_branches(row: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    """The branches of a prime-rl episode's traces, each with what is its own.

    A trace is a tree of messages.  A node has token ids, and log-probs and advantages of the True positions of its mask
    only.  A branch is a path from the root to a leaf.  A sampled node that several leaves share is trained once, with
    the first leaf: it and all before it are prompt to the others.
    """
    for trace in values.objects(row, "traces"):
        rewards = values.inner(trace, "rewards")
        scores = [values.inner(rewards, name) for name in rewards]
        total = sum(
            (values.number(score, "score") or 0.0) * (values.number(score, "weight") or 0.0) for score in scores
        )
        about = {**row, "trace": trace, "reward": total if scores else None}
        tree = values.objects(trace, "nodes")
        parents = [values.whole(node, "parent") for node in tree]
        if len(parents) > 1 and set(parents) == {None}:
            raise DataError("no node of a trace has a parent, by which messages follow each other.", values.HINT)
        for branch, path in enumerate(tree_paths(parents, once=True)):
            nodes = [tree[place] for place in path if tree[place].get("token_ids")]
            lists = _branch_lists(nodes) if nodes else None
            if lists and lists["mask"].any():
                yield {**about, "branch": branch, **lists}


def tree_paths(parents: Sequence[int | None], *, once: bool = False) -> Iterator[list[int]]:
    """Of each leaf of a tree of messages, in order, the nodes from its root on.

    once: without those that a leaf before it has.  These are its path's beginning, so that each node is walked over
    once, whatever tree it is.
    """
    if not all(parent is None or 0 <= parent < node for node, parent in enumerate(parents)):
        raise DataError("a node's parent is not one of the nodes before it.", values.HINT)
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


def _branch_lists(nodes: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """The lists of a branch, log-probs and advantages with 0.0 where nothing was sampled."""
    masks = [values.mask(node, "mask") for node in nodes]
    tokens = [values.integers(node, "token_ids") for node in nodes]
    for node_mask, node_tokens in zip(masks, tokens, strict=True):
        values.aligned(token_ids=node_tokens, mask=node_mask)
    sampled = np.concatenate(masks)
    lists: dict[str, NDArray[Any]] = {"mask": sampled, "token_ids": np.concatenate(tokens)}
    for key in ("logprobs", "advantages", "reference_logprobs"):
        given = [values.floats(node, key) for node in nodes if node.get(key)]
        if not given and key != "logprobs":
            continue
        numbers = np.concatenate(given or [[]])
        if len(numbers) != (n_sampled := np.count_nonzero(sampled)):
            raise DataError(f"{key} has {len(numbers):,} values for {n_sampled:,} sampled tokens.", values.HINT)
        lists[key] = np.zeros(len(sampled), numbers.dtype)
        lists[key][sampled] = numbers
    return lists
