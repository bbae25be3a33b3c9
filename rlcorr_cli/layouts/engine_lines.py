"""Lines of TGI, llama.cpp and Ollama in OpenAI's form, which `openai` reads: tokens are a list of objects in each.

DJL has TGI's form, and calls a token's log-prob log_prob.

A line of a stream has no id: those of a response follow each other, of llama.cpp within its slot.  llama.cpp may have
probabilities in place of log-probs; before December 2024 it had those of several candidates, and the text of the one
that was sampled.
"""

import math
from functools import partial
from typing import Any

from rlcorr_cli.layouts.nested import ABSENT
from rlcorr_cli.layouts.openai import COUNTED, UNNAMED, open_responses
from rlcorr_cli.layouts.response_lines import Row
from rlcorr_cli.layouts.values import inner, number, objects, whole


def _tgi(row: Row) -> Row:
    """The sequence of details, then those of best_of_sequences, of which it is the best.  A line of a stream has one
    token."""
    details = inner(row, "details")
    if "token" in row:
        details = {"finish_reason": None, **details, "tokens": [row["token"]]}
    sequences = [details, *objects(details, "best_of_sequences")]
    counts = [whole(sequence, "generated_tokens") for sequence in sequences]
    count = {COUNTED: "generated_tokens", "generated_tokens": None if None in counts else sum(filter(None, counts))}
    kind = {"object": "text_completion", UNNAMED: ""} if "token" in row else {"object": "chat.completion"}
    choices = [_choice(sequence, "tokens") for sequence in sequences]
    return {**row, "details": None, "token": None, "choices": choices, **count, **kind}


def _llama_cpp(row: Row) -> Row:
    """One completion.  Each line of llama.cpp's has `stop`, true in the last, and tokens_predicted.

    Where only `stop` is missing the line may be any of a stream, and is told as unfinished.  Where both are, somebody
    kept the log-probs of a whole completion alone.
    """
    key = "completion_probabilities"
    row = {"stop": ABSENT if "tokens_predicted" in row else True, **row}
    if row.get(key) is not None:
        row[key] = [{**entry, "logprob": _log_prob(entry)} for entry in objects(row, key)]
    return _answer(row, key, "tokens_predicted", is_done=row["stop"] is True, stream=str(row.get("id_slot", "")))


def _ollama(row: Row) -> Row:
    """One answer of /api/generate or /api/chat."""
    return _answer(row, "logprobs", "eval_count", is_done=row.get("done") is True, stream="")


def _answer(row: Row, tokens: str, counted: str, *, is_done: bool, stream: str) -> Row:
    """A response of one choice.  tokens, counted: the keys of its tokens, and of how many there are."""
    choice = {"finish_reason": "stop" if is_done else None, **_choice({tokens: row.get(tokens)}, tokens)}
    return {**row, tokens: None, "object": "text_completion", "choices": [choice], UNNAMED: stream, COUNTED: counted}


def _choice(sequence: Row, tokens: str) -> Row:
    """A sequence as a choice, with its tokens and the prompt's, if they were scored."""
    entries, prefill = objects(sequence, tokens), objects(sequence, "prefill")
    entries = [{"logprob" if key == "log_prob" else key: value for key, value in entry.items()} for entry in entries]
    choice = {key: value for key, value in sequence.items() if key not in (tokens, "best_of_sequences")}
    choice["logprobs"] = None if sequence.get(tokens) is None else {"content": entries}
    if (scored := [*entries, *prefill]) and all("id" in entry for entry in scored):
        choice["token_ids"] = [entry["id"] for entry in entries]
        choice["prompt_token_ids"] = [entry["id"] for entry in prefill] or None
        choice["prompt_logprobs"] = [{str(entry["id"]): entry} for entry in prefill]
    return choice


def _log_prob(entry: Row) -> Any:
    """A token's log-prob as written, or the logarithm of its probability; None where the sampled token is not among the
    candidates, or several have its text."""
    if "logprob" in entry:
        return entry["logprob"]
    own = [other for other in objects(entry, "probs") if other.get("tok_str") == entry.get("content")]
    probability = number(own[0] if len(own) == 1 else entry, "prob")  # its own since December 2024
    return math.log(probability) if probability and probability > 0 else None


OF_ROWS = "A row is a {}; group_id is its {}place in the file."
OF_RESPONSES = OF_ROWS.format("response", "")
OF_SEQUENCES = OF_ROWS.format("sequence, of details or of best_of_sequences", "response's ")
OF_PROBABILITIES = " Of probabilities the logarithms are taken; they may be those after top-k, top-p and temperature."
open_llama_cpp = partial(open_responses, line=_llama_cpp, note=OF_RESPONSES + OF_PROBABILITIES)
open_ollama = partial(open_responses, line=_ollama, note=OF_RESPONSES)
open_tgi = partial(open_responses, line=_tgi, note=OF_SEQUENCES)
