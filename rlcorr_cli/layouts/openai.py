"""Responses in OpenAI's form, of vLLM, SGLang or OpenAI: chat, completions, and a batch's outcomes, one a line, or the
chunks of a stream; of vLLM also those of its token endpoint, and RequestOutput as JSON.

A row is a choice.  Chat: logprobs.content and the lists beside it (PARTS), of objects; completions:
logprobs.token_logprobs, before which the prompt's tokens stand where the request said echo.  A choice of a
RequestOutput has an object for each token, of token id -> what is known of it (`_by_id`).  Token ids: token_ids beside
them, or tokens as "token_id:N".  What an engine scored of a prompt (echo, prompt_logprobs) is a column of its own: of
another engine's tokens it is the second policy.  A response with log-probs elsewhere is left out, and told.

Chunks are put together by id and index (`response_lines`), the log-probs of each in the form of completions, which
takes a tenth of the room.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.json_layouts import ENGINE_HINT
from rlcorr_cli.layouts.json_rows import made_of_rows, miscounted, survey
from rlcorr_cli.layouts.layout import LeftOut, OpenedDump, Sample
from rlcorr_cli.layouts.nested import ITEMS, PIECES, log_probs_in, text_of, unfinished, unplaced
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.response_lines import Row, Stream, joined, updated
from rlcorr_cli.layouts.values import HINT, aligned, floats, inner, integers, objects, text, whole

OBJECTS = ("chat.completion", "text_completion", "chat.completion.chunk", "")
"""The last is of the first chunk of a stream of Azure's."""
PARTS = ("reasoning_content", "content", "refusal")
"""Lists of a chat's logprobs, in the order in which the model writes them."""
READ = {("logprobs", "token_logprobs", ITEMS), *(("logprobs", key, ITEMS, "logprob") for key in PARTS)}
UNNAMED = "stream without ids"
"""A key of a line of such a stream: what stands for the id of its response."""
COUNTED = "key of the count"
"""A key of a response without usage: the key that says how many tokens were sampled."""
UNPAIRED = LeftOut(note="with prompt_logprobs that are not read: no prompt_token_ids say of which tokens they are")
FAILED = LeftOut(
    note="left out: no choice is in them, as of a request that failed",
    none="has a choice",
    hint="Look at their errors.",
)
COLUMNS = ("rollout_log_probs", "response_mask", "group_id", "sample_id", "choice")
OPTIONAL = ("token_ids", "prompt_log_probs", "prompt_token_ids", "cached_tokens", "total_prompt_tokens")
CHOICES = ("response", "body", "choices")
TOKEN_ID = "token_id:"
OF_CHOICES = (
    "A row is a choice; group_id is its request's place in the file. A chat's log-probs are those of "
    "reasoning_content, content and refusal, in this order."
)


def recognise(start: FileStart) -> str | None:
    """By what the first row says that it is, or by the form of vLLM's own responses or of a batch's outcome."""
    row = start.row
    if row.get("object") in OBJECTS and "choices" in row:
        return f"object {row['object']}" if row["object"] else "keys object, choices"
    outputs = row.get("outputs")
    if isinstance(outputs, list) and outputs and isinstance(outputs[0], dict) and "token_ids" in outputs[0]:
        return "keys outputs with token_ids"
    if "request_id" in row and isinstance(row.get("choices"), list):
        return "keys request_id, choices"
    response = row.get("response", "")
    is_outcome = "custom_id" in row and (response is None or (isinstance(response, dict) and "body" in response))
    if is_outcome and all(path[:3] == CHOICES for path in log_probs_in(row)):
        return "keys custom_id, response with body"
    return None


def open_responses(
    paths: Sequence[str], line: Callable[[Row], Row] | None = None, note: str = OF_CHOICES
) -> OpenedDump:
    """One file of responses.  line: what brings one of its lines into OpenAI's form; None: vLLM's own.  note: on what a
    row is."""
    import pyarrow as pa

    (path,) = paths
    stream = Stream(id_of=_id_of, ended=_ended, add=_with_line, line=line or _line)
    dump = survey(lambda: made_of_rows(path, _rows_of_request, stream), "response")
    if "rollout_log_probs" not in dump.columns:
        raise DataError(
            "its responses have no choice with log-probs.",
            "Ask the engine for them: logprobs=true (chat, Ollama), logprobs=0 or more (completions, SamplingParams), "
            "details=true (TGI), n_probs=1 (llama.cpp).",
        )
    return replace(
        dump,
        columns=[*COLUMNS, *(name for name in OPTIONAL if name in dump.columns)],
        notes=(note, *dump.notes),
        types={
            "choice": pa.int64(),
            "prompt_log_probs": pa.list_(pa.float64()),
            "prompt_token_ids": pa.list_(pa.int64()),
        },
        missing_policy_hint=ENGINE_HINT.format(on="group_id,choice"),
    )


def _line(row: Row) -> Row:
    """A line in OpenAI's form.  vLLM's own have no object: its token endpoint's, and RequestOutput, of which a line may
    repeat what came before."""
    if "object" in row or "custom_id" in row:
        return row
    response = {"object": "text_completion", "id": row.get("request_id"), **row}
    if "outputs" not in row:
        return response
    choices = [dict(output) for output in objects(response, "outputs")]
    for choice in choices:
        if choice.get("logprobs") is not None:
            log_probs = _by_id(choice, "logprobs", integers(choice, "token_ids"))
            choice["logprobs"] = {"token_logprobs": log_probs.tolist()}
    ids, details = _token_ids(row, "prompt_token_ids"), {"cached_tokens": row.get("num_cached_tokens")}
    usage = {"prompt_tokens": None if ids is None else len(ids), "prompt_tokens_details": details}
    return {**response, "outputs": None, "object": "chat.completion", "choices": choices, "usage": usage}


def _id_of(row: Row) -> str | None:
    """The id of the response that a line is of; None of a batch's outcome, and of a whole one without an id."""
    choices, name = objects(row, "choices"), row.get("id")
    if "custom_id" in row or UNNAMED in row:
        return row.get(UNNAMED)
    if isinstance(name, str) and name and all("index" in choice for choice in choices):
        return name
    is_piece = row.get("object") != "chat.completion" and any(each.get("finish_reason", "") is None for each in choices)
    if is_piece or row.get("object") == "chat.completion.chunk":
        raise DataError(
            "it is a piece of a stream without an id or index, by which the pieces of one response are known.",
            "Write the lines as the engine sends them, with id and index.",
        )
    return None


def _ended(row: Row) -> bool:
    """Whether a line is a whole response.  A chunk of a completion may end one choice while others go on; a whole one
    has its usage, or at vLLM's token endpoint prompt_logprobs."""
    is_whole = row.get("object") == "chat.completion" or row.get("usage") or {"prompt_logprobs", UNNAMED} & row.keys()
    ended = all(choice.get("finish_reason") is not None for choice in objects(row, "choices"))
    return bool(is_whole and ended) and row.get("object") != "chat.completion.chunk"


def _with_line(before: Row, row: Row) -> Row | None:
    """A response with one more line of it; None where one of its choices has ended, and the line has more of it."""
    choices = {whole(choice, "index"): choice for choice in before.get("choices", ())}
    of_line = {whole(choice, "index"): choice for choice in objects(row, "choices")}
    if any(_is_another(row, choices.get(index, {}), new) for index, new in of_line.items()):
        return None
    whole_response = updated(before, row)
    for index, new in of_line.items():
        choices[index] = _longer(whole_response, choices.get(index, {}), new)
    return {**whole_response, "choices": [*choices.values()]}


def _is_another(row: Row, choice: Row, new: Row) -> bool:
    """Whether a line begins another response: a choice has ended, and the line does more than to repeat it."""
    if choice.get("finish_reason") is None or not (new.get("logprobs") or new.get("finish_reason")):
        return False
    values, known = _sampled(new)[0], inner(choice, "logprobs").get("token_logprobs")
    return row.get("object") != "chat.completion" or values is None or values.tolist() != known


def _longer(response: Row, choice: Row, new: Row) -> Row:
    """A choice with what a line has of it.  Lines of chat.completion may repeat what came before; others never do."""
    values, tokens = _sampled(new)
    before, of_line = inner(choice, "logprobs"), inner(new, "logprobs")
    line = {
        "token_logprobs": [] if values is None else values.tolist(),
        "tokens": tokens,
        "token_ids": integers(new, "token_ids").tolist() if new.get("token_ids") else [],
    }
    is_piece = None if response.get("object") == "chat.completion" else True
    if is_piece and (choice or response.get("object") == "chat.completion.chunk"):
        response[PIECES] = True
    lists = joined(response, {key: before.get(key) or [] for key in line}, line, is_piece)
    if values is None and before.get("token_logprobs") is None:
        lists["token_logprobs"] = None
    others = updated(before, {key: value for key, value in of_line.items() if key not in (*PARTS, *line)})
    delta = {"delta": updated(inner(choice, "delta"), inner(new, "delta"))} if "delta" in new else {}
    return updated(choice, new) | delta | {"logprobs": others | lists, "token_ids": lists["token_ids"] or None}


def _rows_of_request(row: Row, request: int) -> Iterator[Sample | LeftOut]:
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
    yield from parts
    if not parts and not (usage or "prompt_filter_results" in body):  # a line with usage ends a stream
        yield FAILED
    lists = [None if isinstance(part, LeftOut) else part["rollout_log_probs"] for part in parts]
    known = [len(values) for values in lists if values is not None]
    key, n_known = body.get(COUNTED, "completion_tokens"), sum(known)
    n_said = whole(body if COUNTED in body else usage, key)
    if n_said is not None and {UNNAMED, PIECES} <= body.keys() and n_known > n_said:
        raise DataError(
            f"a response that begins there has {n_known:,} tokens, and {key} {n_said:,}: lines of several are mixed.",
            "Write the lines of each response one after the other, or ask the engine for whole responses.",
        )
    if n_said is not None and parts and len(known) == len(parts) and not 0 <= n_said - n_known <= len(parts):
        yield miscounted(key)  # an engine may list no end token
    if unread := next((path for path in log_probs_in(body) if path[0] != "choices"), ()):
        yield LeftOut(note=f"with log-probs in {text_of(unread)}, too, which are not read")
    holders = (body, *choices)
    if any(each.get("prompt_logprobs") for each in holders) and not any(
        each.get("prompt_token_ids") for each in holders
    ):
        yield UNPAIRED


def _row_of_choice(choice: Row, body: Row, about: Mapping[str, Any]) -> Sample | LeftOut:
    """A choice's row, with what `about` tells of it, or why there is none."""
    log_probs, tokens = _sampled(choice)
    if left_out := unfinished(about["sample_id"], body, choice):
        return left_out
    if unread := next((path for path in log_probs_in(choice) if path not in READ), ()):
        return unplaced(unread)
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
    if "token_logprobs" not in inner(choice, "logprobs") or "delta" in choice:
        return 0
    if ids is not None:
        return max(0, n_values - len(ids))
    usage, choices = inner(body, "usage"), objects(body, "choices")
    n_prompt, n_sampled = whole(usage, "prompt_tokens") or 0, whole(usage, "completion_tokens") or 0
    n_all = sum(len(inner(other, "logprobs").get("token_logprobs") or ()) for other in choices)
    return n_prompt if 0 < n_prompt <= n_values and n_all == n_sampled + n_prompt * len(choices) else 0


def _prompt(choice: Mapping[str, Any], body: Mapping[str, Any], ids: NDArray[np.int64]) -> NDArray[Any] | None:
    """vLLM's prompt_logprobs, of the choice or of the response; null for the first token."""
    holder = choice if choice.get("prompt_logprobs") else body
    return _by_id(holder, "prompt_logprobs", ids) if holder.get("prompt_logprobs") else None


def _by_id(holder: Mapping[str, Any], key: str, ids: NDArray[np.int64]) -> NDArray[Any]:
    """The log-probs of tokens of these ids in vLLM's form: for each token an object of token id -> what is known of it,
    or null."""
    entries = holder[key]
    if isinstance(entries, list) and any(isinstance(entry, float) for entry in entries):  # as TensorRT-LLM has it
        return floats(holder, key)
    if not isinstance(entries, list) or not all(entry is None or isinstance(entry, dict) for entry in entries):
        raise DataError(f"{key} is not a list of objects.", HINT)
    aligned(**{f"{key.removesuffix('logprobs')}token_ids": ids, key: entries})
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
