"""Where log-probs lie in an object of JSON whose form is not known, and the line of jq that makes rows of it.

A place is a path of keys, ITEMS for each item of a list, 0 for the log-prob of a token that is written as [log-prob,
token id, text], and TOKEN or TEXT for an object whose keys are token ids or texts.  Only the first items of long lists
are looked at.

`unfinished` tells a response that has not ended by what its object says.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from rlcorr_cli.layouts.layout import LeftOut

PIECES = "put together"
"""A key of a response that was put together of lines: whether they hold what is new in each."""
ROLLOUT, OLD = "rollout_log_probs", "old_log_probs"
ITEMS, TOKEN, TEXT = "[]", "{token id}", "{token}"
Path = tuple[str | int, ...]

NAME = re.compile(r"log_?-?prob|logps?$|logp_|transition_?scores|likelihood", re.IGNORECASE)
"""What a key of log-probs is called."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
OTHERS = {
    *("top", "prompt", "prefill", "input", "ref", "reference", "teacher"),
    *("avg", "average", "mean", "cum", "cumulative", "sum", "total", "min", "max"),
}
"""Words of keys that hold something else than the log-probs of the tokens that were sampled."""
TRAINED = {"train", "trainer", "trained", "training", "old", "prev", "actor", "learner", "prox"}
"""Words of keys that hold a trained policy's."""
PARTS = "hold parts of a response: put them together, or leave them out where its last line repeats them."
"""Goes on after 'Lines with KEY VALUE '."""
MOST_ITEMS, MOST_KEYS, DEEPEST = 16, 256, 12
"""How many items of a list and keys of an object are looked at, and how deep."""
ABSENT = "absent"
"""What stands for a key that no line of a response of several lines has."""
UNFINISHED = {
    "finish_reason": (None, ABSENT),
    **dict.fromkeys(("finished", "done", "stop"), (False, ABSENT)),
    "status": ("queued", "in_progress", "incomplete"),
}
"""A response's key -> its values before the response has ended."""


def log_probs_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places of numbers under a key that is called as log-probs of the tokens that were sampled are."""
    if isinstance(value, float) and NAME.search(_keys_of_place(path)[-1]):
        yield path
    elif isinstance(value, dict) and len(path) < DEEPEST:
        keys = [key for key in islice(value, MOST_KEYS) if not OTHERS & words_of(key)]
        token = _token_of(value, keys) if keys and path[-1:] == (ITEMS,) else None
        for key in keys[:1] if token else keys:
            yield from log_probs_in(value[key], (*path, token or key))
    elif isinstance(value, list) and len(path) < DEEPEST:
        # [log-prob, token id, text], as SGLang writes each token
        is_token = path[-1:] == (ITEMS,) and [isinstance(item, float) for item in value[:2]] == [True, False]
        step = 0 if is_token else ITEMS
        found = ([*log_probs_in(item, (*path, step))] for item in value[:MOST_ITEMS])
        yield from next(filter(None, found), ())


def _token_of(value: Mapping[str, Any], keys: list[str]) -> str | None:
    """What an object's keys stand for: tokens, if they are numbers, or have but log-probs."""
    if all(key.isdecimal() for key in keys):
        return TOKEN
    are_texts = all(type(value[key]) is float and not re.search("prob|likelihood|score", key.lower()) for key in keys)
    return TEXT if are_texts else None


def words_of(key: str) -> set[str]:
    """The words of a key, in small letters."""
    return {word.lower() for word in WORD.findall(key)}


def text_of(path: Path) -> str:
    """A place as jq writes it, and people."""
    steps = (f"[{step}]" if isinstance(step, int) else step if step == ITEMS else f".{_quoted(step)}" for step in path)
    return "".join(steps).removeprefix(".")


def hint(rows: Iterable[Mapping[str, Any]], name: str, *, of_json: bool) -> str | None:
    """What to type where a dump has no column of that policy, and its rows hold log-probs elsewhere; None where no
    row holds any.  of_json: whether jq can read the file."""
    for row in rows:
        places = [
            path
            for path in log_probs_in(row)
            if path[1:] != (ITEMS,)
            and any(words_of(key) & TRAINED for key in _keys_of_place(path)) == (name != ROLLOUT)
        ]
        if places:
            path = max(places, key=lambda path: path.count(ITEMS))
            amount = "numbers" if ITEMS in path else "one number a line"
            others = "".join(f", {text_of(other)} too" for other in places if other != path and ITEMS in other)
            can_use_jq = (
                of_json
                and "'" not in text_of(path)
                and TEXT not in path
                and (TOKEN not in path or path[-1] == "logprob")
            )
            how = _jq(path, name) if can_use_jq else f": write them as {name}, a list of numbers for each response."
            pieces = f"Lines with {' '.join(sign)} {PARTS} " if (sign := sign_of_unfinished(row)) else ""
            return f"{pieces}{text_of(path)} holds {amount}{others}{how}"
    return None


def _jq(path: Path, name: str) -> str:
    """The line that gives a row for each list of tokens: the innermost list outside of what is called log-probs."""
    if ITEMS not in path:
        return f". Of a file of one response: jq -cs '{{{name}: [.[] | .{text_of(path)} | numbers]}}' FILE > dump.jsonl"
    *outer, _ = (i for i, step in enumerate(path) if step == ITEMS)
    first = next(i for i, step in enumerate(path) if NAME.search(str(step)))
    cut = max((i + 1 for i in outer if i < first or path[i + 1 :] == (ITEMS,)), default=0)
    head, tail = path[:cut], path[cut:]
    values = f"[.{text_of(tail)}]".replace(ITEMS, f"{ITEMS}?")
    if TOKEN in tail:
        lists = text_of(tail[: tail.index(ITEMS)])
        values = f"([.token_ids, .{lists}] | transpose | map(.[1][.[0] | tostring].logprob))"
    row = f"{{{name}: {values}}}" if tail == (ITEMS,) else f". + {{{name}: {values}}}"
    rows = f".{text_of(head)} | ".replace(ITEMS, f"{ITEMS}?") if head else ""
    rows += f"select(.{text_of(tail[:1])}?) | " if head and tail[0] != ITEMS else ""  # messages have none of the users'
    each_item = f". A row for each item of {text_of(head)}" if head else ""
    return f"{each_item}: jq -c '{rows}{row}' FILE > dump.jsonl"


def _keys_of_place(path: Path) -> list[str]:
    """The keys of a place, "" before them."""
    return ["", *(step for step in path if isinstance(step, str) and step not in (ITEMS, TOKEN, TEXT))]


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) or key in (TOKEN, TEXT) else json.dumps(key)


def sign_of_unfinished(*objects: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key and the value, as JSON has it, by which one of these says that it has not ended.  A response that is
    incomplete for a reason, such as its length, has."""
    signs = (
        (key, json.dumps(part[key]).strip('"'))
        for part in objects
        for key, values in UNFINISHED.items()
        if key in part and part[key] in values and not part.get("incomplete_details")
    )
    return next(signs, None)


def unfinished(response: str | None, *objects: Mapping[str, Any]) -> LeftOut | None:
    """A response of that id, one of whose objects says that it has not ended; None of one that has.  One that was put
    together has not without a finish_reason in the last object."""
    is_put_together = any(PIECES in part for part in objects)
    last = {"finish_reason": ABSENT, **objects[-1]} if is_put_together else objects[-1]
    if (sign := sign_of_unfinished(*objects[:-1], last)) is None:
        return None
    note, none = f"left out as unfinished: {' is '.join(sign)}", f"is finished: {' is '.join(sign)} in all"
    hint = f"Name the finished ones. If this engine never sets it: jq -c 'del(.. | .{sign[0]}?)' FILE > dump.jsonl"
    if is_put_together:
        hint = f"Only a line with {sign[0]} ends a response: name files that have the last lines of theirs."
    return LeftOut(note=note, none=none, hint=hint, response=response)


def unplaced(path: Path) -> LeftOut:
    """A response with log-probs that are not read, at a place."""
    return LeftOut(
        note=f"left out: {text_of(path)} holds log-probs, too, and where they belong among the tokens is not known",
        none=f"can be put in order: {text_of(path)} holds log-probs",
        hint="Write the log-probs in the order of the tokens, a list for each response, as rollout_log_probs.",
    )
