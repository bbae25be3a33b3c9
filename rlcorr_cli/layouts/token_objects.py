"""Responses of TGI, llama.cpp and Ollama, whose tokens are a list of objects.

An Answer says where the list is and which key counts it, and makes what ANSWER of `json_layouts` reads.  llama.cpp may
have probabilities in place of log-probs; before December 2024 it had those of several candidates, and the text of the
one that was sampled.
"""

import math
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.json_rows import miscounted
from rlcorr_cli.layouts.layout import LeftOut
from rlcorr_cli.layouts.nested import ABSENT, ITEMS, PIECES, log_probs_in, unfinished, unplaced
from rlcorr_cli.layouts.values import floats, inner, integers, number, objects, whole

Row = dict[str, Any]
Parts = Iterator[Row | LeftOut]


@frozen
class Answer:
    """An engine's answer.  tokens: the key of its list of tokens, and n_tokens of how many there are.  ask: what to ask
    the engine for.  read: places of the log-probs that are read, their first two keys."""

    tokens: str
    n_tokens: str
    ask: str
    read: frozenset[tuple[str, str]]

    def rows(self, sequence: Row, about: Row) -> Parts:
        """A sequence's row, with what `about` tells of it, or why there is none."""
        if sequence.get(self.tokens) is None:
            hint = f"Ask the engine for them: {self.ask}."
            yield LeftOut(note=f"left out: they have no {self.tokens}", none=f"has {self.tokens}", hint=hint)
            return
        if left_out := unfinished(None, sequence):
            yield left_out
            return
        entries, n_said = objects(sequence, self.tokens), whole(sequence, self.n_tokens)
        if PIECES in sequence and n_said is not None and len(entries) > n_said:
            raise DataError(
                f"a response that begins there has {len(entries):,} tokens, and {self.n_tokens} {n_said:,}: lines of "
                "several responses are mixed.",
                "Write the lines of each response one after the other, or ask the engine for whole responses.",
            )
        yield {**about, "log_probs": _log_probs(entries), **_ids("token_ids", entries)}
        if n_said is not None and not 0 <= n_said - len(entries) <= 1:  # an engine may list no end token
            yield miscounted(self.n_tokens)

    def unread(self, row: Row) -> LeftOut | None:
        """A response with log-probs in other places."""
        unread = next((path for path in log_probs_in(row) if path[:2] not in self.read), None)
        return None if unread is None else unplaced(unread)


TGI = Answer(
    tokens="tokens",
    n_tokens="generated_tokens",
    ask="details=true",
    read=frozenset({("details", "tokens"), ("details", "best_of_sequences"), ("tokens", ITEMS)}),
)
LLAMA_CPP = Answer(
    tokens="completion_probabilities",
    n_tokens="tokens_predicted",
    ask="n_probs of 1 or more",
    read=frozenset({("completion_probabilities", ITEMS)}),
)
OLLAMA = Answer(tokens="logprobs", n_tokens="eval_count", ask="logprobs=true", read=frozenset({("logprobs", ITEMS)}))


def tgi_response(row: Row, place: int) -> Parts:
    """The sequence of details, then those of best_of_sequences, of which it is the best; of a stream, its tokens."""
    details = inner(row, "details")
    if "tokens" in row:
        details = {"finish_reason": ABSENT, **details, "tokens": row["tokens"], PIECES: True}
    if unread := TGI.unread(row):
        yield unread
        return
    for choice, sequence in enumerate([details, *objects(details, "best_of_sequences")]):
        about = {"request": place, "choice": choice}
        if prompt := objects(sequence, "prefill"):
            about |= {"prompt_log_probs": _log_probs(prompt), **_ids("prompt_token_ids", prompt)}
        yield from TGI.rows(sequence, about)


def llama_cpp_response(row: Row, place: int) -> Parts:
    """One completion.  All lines of llama.cpp's say `stop`, and how many tokens were predicted."""
    row = {"stop": ABSENT, **row} if "tokens_predicted" in row else row
    unread = LLAMA_CPP.unread(row)
    yield from [unread] if unread else LLAMA_CPP.rows(row, {"request": place})


def ollama_response(row: Row, place: int) -> Parts:
    """One answer of /api/generate or /api/chat."""
    unread = OLLAMA.unread(row)
    yield from [unread] if unread else OLLAMA.rows(row, {"request": place})


def _log_probs(entries: list[Row]) -> NDArray[Any]:
    return floats({"logprob": [_log_prob(entry) for entry in entries]}, "logprob")


def _log_prob(entry: Row) -> Any:
    """As it is written, or the logarithm of a probability; None where the sampled token is not among the candidates, or
    several have its text."""
    if "logprob" in entry or not {"prob", "probs"} & entry.keys():
        return entry.get("logprob")
    own = [other for other in objects(entry, "probs") if other.get("tok_str") == entry.get("content")]
    probability = number(own[0] if len(own) == 1 else entry, "prob")
    return math.log(probability) if probability and probability > 0 else None


def _ids(name: str, entries: list[Row]) -> Row:
    ids = [entry["id"] for entry in entries if "id" in entry]
    return {name: integers({"id": ids}, "id")} if len(ids) == len(entries) else {}
