"""Responses in OpenAI's form, of vLLM, SGLang or OpenAI: chat, completions, and a batch's outcomes, one a line.

A row is a choice.  Chat: logprobs.content and the lists beside it (PARTS), of objects; completions:
logprobs.token_logprobs, before which the prompt's tokens stand where the request said echo.  Token ids: token_ids
beside them, or tokens as "token_id:N".  What an engine scored of a prompt (echo, prompt_logprobs) is a column of its
own: of another engine's tokens it is the second policy.  A response with log-probs elsewhere is left out, and told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.json_layouts import ENGINE_HINT
from rlcorr_cli.layouts.json_rows import MISCOUNTED, made_of_rows, survey
from rlcorr_cli.layouts.layout import LeftOut, OpenedDump, Sample
from rlcorr_cli.layouts.nested import ITEMS, log_probs_in, text_of, unfinished
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import HINT, aligned, floats, inner, integers, objects, text, whole

OBJECTS = ("chat.completion", "text_completion", "chat.completion.chunk")
PARTS = ("reasoning_content", "content", "refusal")
"""Lists of a chat's logprobs, in the order in which the model writes them."""
READ = {("logprobs", "token_logprobs", ITEMS), *(("logprobs", key, ITEMS, "logprob") for key in PARTS)}
PIECES = (
    """jq -cs 'map(select(.choices[0].logprobs)) | group_by([.id, .choices[0].index])[] | """
    r"""{sample_id: (.[0] | "\(.id)/\(.choices[0].index)"), """
    "rollout_log_probs: [.[].choices[0].logprobs | (.reasoning_content, .content, .refusal)[]?.logprob, "
    ".token_logprobs[]?]}' FILE > dump.jsonl"
)
CHUNK = LeftOut(note="left out as chunks of a stream", none="is whole: these are chunks of a stream", hint=PIECES)
UNPLACED = LeftOut(
    note="holds log-probs, too, and where they belong among the tokens is not known",
    none="can be put in order",
    hint="Write the log-probs in the order of the tokens, a list for each response, as rollout_log_probs.",
)
FAILED = LeftOut(
    note="left out: no choice is in them, as of a request that failed",
    none="has a choice",
    hint="Look at their errors.",
)
COLUMNS = ("rollout_log_probs", "response_mask", "group_id", "sample_id", "choice")
OPTIONAL = ("token_ids", "prompt_log_probs", "prompt_token_ids", "cached_tokens", "total_prompt_tokens")
CHOICES = ("response", "body", "choices")
TOKEN_ID = "token_id:"
NOTES = ("A row is a choice; group_id is its request's place in the file.",)


def recognise(start: FileStart) -> str | None:
    """By what the first row says that it is, or by the form of a batch's outcome."""
    if start.row.get("object") in OBJECTS and "choices" in start.row:
        return f"object {start.row['object']}"
    response = start.row.get("response", "")
    is_outcome = "custom_id" in start.row and (response is None or (isinstance(response, dict) and "body" in response))
    if is_outcome and all(path[:3] == CHOICES for path in log_probs_in(start.row)):
        return "keys custom_id, response with body"
    return None


def open_responses(paths: Sequence[str]) -> OpenedDump:
    """One file of responses."""
    import pyarrow as pa

    (path,) = paths
    dump = survey(lambda: made_of_rows(path, _rows_of_request), "response")
    if "rollout_log_probs" not in dump.columns:
        raise DataError(
            "its responses have no choice with log-probs.",
            "Ask the engine for them: logprobs=true for chat, logprobs=0 or more for completions.",
        )
    return replace(
        dump,
        columns=[*COLUMNS, *(name for name in OPTIONAL if name in dump.columns)],
        notes=(*NOTES, *dump.notes),
        types={
            "choice": pa.int64(),
            "prompt_log_probs": pa.list_(pa.float64()),
            "prompt_token_ids": pa.list_(pa.int64()),
        },
        missing_policy_hint=ENGINE_HINT.format(on="group_id,choice"),
    )


def _rows_of_request(row: dict[str, Any], request: int) -> Iterator[Sample | LeftOut]:
    body, name = row, text(row, "id")
    if "custom_id" in row:
        body, name = inner(inner(row, "response"), "body"), text(row, "custom_id")
    choices, usage = objects(body, "choices"), inner(body, "usage")
    parts: list[Sample | LeftOut] = []
    for place, choice in enumerate(choices):
        index = whole(choice, "index")
        number = place if index is None else index
        sample_id = None if name is None else f"{name}/{number}"
        parts.append(_row_of_choice(choice, body, {"group_id": str(request), "sample_id": sample_id, "choice": number}))
    yield from parts or [FAILED]
    lists = [None if isinstance(part, LeftOut) else part["rollout_log_probs"] for part in parts]
    known = [len(values) for values in lists if values is not None]
    n_said = whole(usage, "completion_tokens") or 0
    if usage and len(known) == len(parts) and not 0 <= n_said - sum(known) <= len(parts):
        yield MISCOUNTED  # an engine may list no end token
    if unread := next((path for path in log_probs_in(body) if path[0] != "choices"), ()):
        yield LeftOut(note=f"with log-probs in {text_of(unread)}, too, which are not read")


def _row_of_choice(choice: dict[str, Any], body: dict[str, Any], about: Mapping[str, Any]) -> Sample | LeftOut:
    """A choice's row, with what `about` tells of it, or why there is none."""
    log_probs, tokens = _sampled(choice)
    if "delta" in choice:
        return CHUNK
    if left_out := unfinished(PIECES, about["sample_id"], () if log_probs is None else log_probs, choice, body):
        return left_out
    if unread := next((path for path in log_probs_in(choice) if path not in READ), ()):
        return replace(UNPLACED, note=f"left out: {text_of(unread)} {UNPLACED.note}")
    prompt_tokens = _token_ids(choice, "prompt_token_ids", body)
    prompt = None if prompt_tokens is None else _prompt(choice, body, prompt_tokens)
    if log_probs is not None:
        echoed = _echoed(choice, body, len(log_probs))
        prompt = log_probs[:echoed] if echoed else prompt
        log_probs, tokens = log_probs[echoed:], tokens[echoed:]
    ids = _token_ids(choice, "token_ids")
    ids = _named_ids(tokens) if ids is None else ids
    if log_probs is not None and ids is not None:
        aligned(token_ids=ids, log_probs=log_probs)
    usage = inner(body, "usage")
    n_cached = whole(inner(usage, "prompt_tokens_details"), "cached_tokens")
    return {
        "rollout_log_probs": log_probs,
        "response_mask": None if log_probs is None else np.ones(len(log_probs), np.int8),
        "token_ids": ids,
        **about,
        "prompt_log_probs": prompt,
        "prompt_token_ids": prompt_tokens,
        "cached_tokens": n_cached,
        "total_prompt_tokens": None if n_cached is None else whole(usage, "prompt_tokens"),
    }


def _sampled(choice: Mapping[str, Any]) -> tuple[NDArray[Any] | None, list[Any]]:
    """A choice's log-probs and tokens as text; None of one without."""
    logprobs = inner(choice, "logprobs")
    if logprobs.get("token_logprobs") is not None:
        values, tokens = floats(logprobs, "token_logprobs"), logprobs.get("tokens")
        return values, tokens if isinstance(tokens, list) and len(tokens) == len(values) else []
    if all(logprobs.get(key) is None for key in PARTS):
        return None, []
    entries = [entry for key in PARTS for entry in objects(logprobs, key)]
    values = floats({"logprob": [entry.get("logprob") for entry in entries]}, "logprob")
    return values, [entry.get("token") for entry in entries]


def _echoed(choice: Mapping[str, Any], body: Mapping[str, Any], n_values: int) -> int:
    """How many of a completion's tokens are the prompt's."""
    ids = _token_ids(choice, "token_ids")
    if "token_logprobs" not in inner(choice, "logprobs"):
        return 0
    if ids is not None:
        return max(0, n_values - len(ids))
    usage, choices = inner(body, "usage"), objects(body, "choices")
    n_prompt, n_sampled = whole(usage, "prompt_tokens") or 0, whole(usage, "completion_tokens") or 0
    n_all = sum(len(inner(other, "logprobs").get("token_logprobs") or ()) for other in choices)
    return n_prompt if 0 < n_prompt <= n_values and n_all == n_sampled + n_prompt * len(choices) else 0


def _prompt(choice: Mapping[str, Any], body: Mapping[str, Any], ids: NDArray[np.int64]) -> NDArray[Any] | None:
    """vLLM's prompt_logprobs: for each token an object of token id -> what is known of it, null for the first token."""
    entries = choice.get("prompt_logprobs") or body.get("prompt_logprobs")
    if entries is None:
        return None
    if not isinstance(entries, list) or not all(entry is None or isinstance(entry, dict) for entry in entries):
        raise DataError("prompt_logprobs is not a list of objects.", HINT)
    aligned(prompt_token_ids=ids, prompt_logprobs=entries)
    own = [inner(entry or {}, str(token)) for entry, token in zip(entries, ids.tolist(), strict=True)]
    return floats({"logprob": [entry.get("logprob") for entry in own]}, "logprob")


def _token_ids(choice: Mapping[str, Any], key: str, body: Mapping[str, Any] | None = None) -> NDArray[np.int64] | None:
    """Token ids of a choice, or of the whole response; None where neither has them."""
    holder = next((holder for holder in (choice, body or {}) if holder.get(key) is not None), None)
    return None if holder is None else integers(holder, key)


def _named_ids(tokens: list[Any]) -> NDArray[np.int64] | None:
    """The ids in tokens that are written as token_id:N, with return_tokens_as_token_ids."""
    digits = [token[len(TOKEN_ID) :] for token in tokens if isinstance(token, str) and token.startswith(TOKEN_ID)]
    if not digits or len(digits) < len(tokens) or not all(text.isdecimal() and len(text) < 19 for text in digits):
        return None
    return np.array([int(text) for text in digits], np.int64)
