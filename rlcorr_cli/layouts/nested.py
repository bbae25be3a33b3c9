"""Where log-probs lie in an object of JSON whose form is not known, and the line of jq that makes rows of it.

A place is a path of keys, ITEMS for each item of a list, a number for one item of a short list, and TOKEN for an object
whose keys are token ids.  Only the first items of long lists are looked at.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

ROLLOUT, OLD = "rollout_log_probs", "old_log_probs"
ITEMS, TOKEN = "[]", "{token id}"
Path = tuple[str | int, ...]

NAME = re.compile(r"log_?-?prob|logps?$|logp_|transition_?scores|log_?likelihood", re.IGNORECASE)
"""What a key of log-probs is called."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
OTHERS = {
    *("top", "prompt", "prefill", "input", "ref", "reference", "teacher"),
    *("avg", "average", "mean", "cum", "cumulative", "sum", "total", "min", "max"),
}
"""Words of keys that hold something else than the log-probs of the tokens that were sampled."""
TRAINED = {"train", "trainer", "trained", "training", "old", "prev", "actor", "learner", "prox"}
"""Words of keys that hold a trained policy's."""
MOST_ITEMS, MOST_KEYS, DEEPEST = 16, 256, 12


def log_probs_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places of numbers under a key that is called as log-probs are, each once."""
    if len(path) > DEEPEST:
        return
    if isinstance(value, float):
        keys = [step for step in path if isinstance(step, str) and step not in (ITEMS, TOKEN)]
        if keys and NAME.search(keys[-1]):
            yield path
    elif isinstance(value, dict):
        items = list(islice(value.items(), MOST_KEYS))
        if items and path[-1:] == (ITEMS,) and all(key.isdecimal() for key, _ in items):
            items = [(TOKEN, items[0][1])]
        for key, item in items:
            if not OTHERS & words_of(key):
                yield from log_probs_in(item, (*path, key))
    elif isinstance(value, list) and [isinstance(item, float) for item in value[:2]] == [True, False] and path:
        # [log-prob, token id, text], as SGLang writes each token
        yield from log_probs_in(value[0], (*path, 0) if path[-1] == ITEMS else (*path, ITEMS))
    elif isinstance(value, list):
        found = (list(log_probs_in(item, (*path, ITEMS))) for item in islice(value, MOST_ITEMS))
        yield from next(filter(None, found), ())


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
        places = dict.fromkeys(log_probs_in(row))
        places = [
            path
            for path in places
            if path[1:] != (ITEMS,) and any(words_of(str(key)) & TRAINED for key in path) == (name != ROLLOUT)
        ]
        if not places:
            continue
        path = max(places, key=lambda path: ITEMS in path)
        if ITEMS not in path:
            return f"{text_of(path)} holds one number a line: put those of a response into one list, as {name}."
        part = next((key for key in ("done", "finished") if row.get(key) is False), None)
        told = f"Lines with {part} false hold parts of a response: put them together. " if part else ""
        too = "".join(f", {text_of(other)} too" for other in places if other != path and ITEMS in other)
        how = (
            _jq(path, name)
            if of_json and "'" not in text_of(path)
            else f"write them as {name}, a list of numbers a row."
        )
        return f"{told}{text_of(path)} holds numbers{too}: {how}"
    return None


def _jq(path: Path, name: str) -> str:
    """The line that gives a row for each list of tokens."""
    *before, last = (i for i, step in enumerate(path) if step == ITEMS)
    head, tail = path[: before[-1] + 1] if before else (), path[before[-1] + 1 if before else 0 :]
    rows = f".{text_of(head)} | ".replace(ITEMS, f"{ITEMS}?") if head else ""
    if TOKEN in tail:
        values = f"([.token_ids, .{text_of(path[len(head) : last])}] | transpose | map(.[1][.[0] | tostring].logprob))"
    elif tail[-1] == ITEMS:
        values = f".{text_of(tail[:-1])}"
    else:
        values = f"[.{text_of(tail)}]".replace(ITEMS, f"{ITEMS}?", 1)
    made = f"{{{name}: {values}}}"
    line = f"{rows}{made if tail == (ITEMS,) else f'. + {made}'}"
    if head and tail == (name, ITEMS):
        line = rows.removesuffix(" | ")
    return f"jq -c '{line}' FILE > dump.jsonl"


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) or key == TOKEN else json.dumps(key)
