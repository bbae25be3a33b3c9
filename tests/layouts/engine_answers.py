"""Answers of engines in each form that is read, of sizes and orders that a seed draws, with what a right reader gives.

A maker takes a Draw, and gives lines of JSON and, of each row in the order in which responses begin, its log-probs and
token ids (None where the form has none).  The forms are those of the engines' own protocol classes: vLLM's
GenerateResponse, GenerateStreamResponse, RequestOutput, TGI's GenerateResponse and StreamResponse,
llama.cpp's /completion before and after December 2024, Ollama's GenerateResponse and ChatResponse, OpenAI's chunks, and
SGLang's /generate.
"""

import json
import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Right = list[tuple[list[float], list[int] | None]]


class Draw:
    """What a seed draws: how many responses, their tokens, the order of keys and of lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n_responses = self.random.choice([1, 2, 3, 5, 9])
        self.optional = seed % 2 == 0

    def tokens(self) -> tuple[list[float], list[int]]:
        n = self.random.choice([1, 2, 3, 7, 30])
        values = [self.random.choice([0.0, -1.5, -self.random.expovariate(1.0)]) for _ in range(n)]
        return values, [self.random.randrange(50_000) for _ in range(n)]

    def cut(self, n: int) -> list[slice]:
        """Slices of a list of n, of one to four items."""
        ends = [0]
        while ends[-1] < n:
            ends.append(min(n, ends[-1] + self.random.randint(1, 4)))
        return [slice(a, b) for a, b in pairwise(ends)]

    def keys(self, row: Any) -> Any:
        """The same with the keys of its objects in another order."""
        if isinstance(row, list):
            return [self.keys(item) for item in row]
        if not isinstance(row, dict):
            return row
        names = [*row]
        if not any(name.isdecimal() for name in names):
            self.random.shuffle(names)
        return {name: self.keys(row[name]) for name in names}

    def mixed(self, streams: list[list[Row]]) -> list[Row]:
        """The lines of several streams as they come from a server, each in its order, first lines in order."""
        lines, left = [stream[0] for stream in streams], [stream[1:] for stream in streams]
        while any(left):
            lines.append(self.random.choice([stream for stream in left if stream]).pop(0))
        return lines

    def maybe(self, **keys: Any) -> Row:
        """Keys that an engine may leave out."""
        return keys if self.optional else {}


Maker = Callable[[Draw], tuple[list[Row], Right]]


def chat_entries(values: list[float], ids: list[int]) -> list[Row]:
    tops = [{"token": "a", "logprob": -0.125, "bytes": [97]}]
    return [
        {"token": f"token_id:{i}", "logprob": v, "bytes": [1], "top_logprobs": tops}
        for v, i in zip(values, ids, strict=True)
    ]


def vllm_generate(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for k in range(draw.n_responses):
        drawn = [draw.tokens() for _ in range(draw.random.randint(1, 3))]
        right += drawn
        choices = [
            {
                "index": i,
                "logprobs": {"content": chat_entries(*one)},
                "finish_reason": draw.random.choice(["stop", "length"]),
                "token_ids": one[1],
                **draw.maybe(routed_experts=None),
            }
            for i, one in enumerate(drawn)
        ]
        n = sum(len(values) for values, _ in drawn)
        usage = {"prompt_tokens": 3, "completion_tokens": n, "total_tokens": n + 3}
        rows.append({"request_id": f"g{k}", "choices": choices, "prompt_logprobs": None, **draw.maybe(usage=usage)})
    return rows, right


def vllm_generate_stream(draw: Draw) -> tuple[list[Row], Right]:
    streams, right = list[list[Row]](), Right()
    for k in range(draw.n_responses):
        drawn = [draw.tokens() for _ in range(draw.random.randint(1, 2))]
        right += drawn
        of_choices = [
            [
                {
                    "request_id": f"g{k}",
                    "choices": [
                        {
                            "index": i,
                            "logprobs": {"content": chat_entries(values[part], ids[part])},
                            "finish_reason": "stop" if part.stop == len(values) else None,
                            "token_ids": ids[part],
                        }
                    ],
                }
                for part in draw.cut(len(values))
            ]
            for i, (values, ids) in enumerate(drawn)
        ]
        n = sum(len(values) for values, _ in drawn)
        end = {"request_id": f"g{k}", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": n}}
        streams.append([*draw.mixed(of_choices), *([end] if draw.optional else [])])
    return draw.mixed(streams), right


def by_id(draw: Draw, values: list[float], ids: list[int]) -> list[Row]:
    """vLLM's SampleLogprobs: the sampled token, and sometimes a likelier one before or after it."""
    entries = list[Row]()
    for value, token in zip(values, ids, strict=True):
        own = {str(token): {"logprob": value, **draw.maybe(rank=2, decoded_token="x")}}
        other = {str(token + 1): {"logprob": -0.01, **draw.maybe(rank=1, decoded_token="y")}}
        entries.append(draw.random.choice([own, own | other, other | own]))
    return entries


def output(draw: Draw, index: int, logprobs: Any, ids: list[int], finish: str | None = "stop") -> Row:
    about = {"cumulative_logprob": -1.0, "stop_reason": None, "lora_request": None}
    return {"index": index, "text": "", "token_ids": ids, "logprobs": logprobs, "finish_reason": finish} | draw.maybe(
        **about
    )


def request_output(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for k in range(draw.n_responses):
        drawn = [draw.tokens() for _ in range(draw.random.randint(1, 4))]
        right += drawn
        outputs = [output(draw, i, by_id(draw, *one), one[1]) for i, one in enumerate(drawn)]
        prompt = [7, 8, 9]
        scored = [None, {"8": {"logprob": -2.0}}, {"1": {"logprob": -0.5}, "9": {"logprob": -3.0}}]
        about = {"prompt": "x", "prompt_logprobs": scored, "metrics": None, "num_cached_tokens": 1}
        rows.append(
            {"request_id": str(k), "prompt_token_ids": prompt, "outputs": outputs, "finished": True}
            | draw.maybe(**about)
        )
    return rows, right


def request_output_growing(draw: Draw) -> tuple[list[Row], Right]:
    """Lines that repeat all outputs so far, of which one may end before another."""
    streams, right = list[list[Row]](), Right()
    for k in range(draw.n_responses):
        drawn = [draw.tokens() for _ in range(draw.random.randint(1, 2))]
        right += drawn
        entries = [by_id(draw, *one) for one in drawn]
        longest = max(len(values) for values, _ in drawn)
        stream = list[Row]()
        for n in (part.stop for part in draw.cut(longest)):
            outputs = [
                output(draw, i, entries[i][:n], ids[:n], "length" if n >= len(ids) else None)
                for i, (_, ids) in enumerate(drawn)
            ]
            about = {"request_id": str(k), "prompt_token_ids": [1], "finished": n == longest}
            stream.append(about | {"outputs": outputs})
        streams.append(stream)
    return draw.mixed(streams), right


def llama_cpp(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for _ in range(draw.n_responses):
        values, ids = draw.tokens()
        right.append((values, ids))
        tops = [{"id": 3, "token": "a", "logprob": -0.25, "bytes": [97]}]
        probabilities = [
            {"id": i, "token": "x", "bytes": [120], "logprob": v, "top_logprobs": tops}
            for v, i in zip(values, ids, strict=True)
        ]
        about = {"index": 0, "id_slot": 1, "model": "m", "stop_type": "limit", "timings": {}, "tokens_evaluated": 4}
        rows.append(
            {"content": "x", "stop": True, "completion_probabilities": probabilities}
            | draw.maybe(**about, tokens_predicted=len(values))
        )
    return rows, right


def llama_cpp_before_2025(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for _ in range(draw.n_responses):
        values, _ = draw.tokens()
        chances = [math.exp(value) for value in values]
        right.append(([math.log(chance) for chance in chances], None))
        probabilities = list[Row]()
        for chance in chances:
            probs = [{"tok_str": " a", "prob": chance}, {"tok_str": " b", "prob": 0.001}]
            draw.random.shuffle(probs)
            probabilities.append({"content": " a", "probs": probs})
        rows.append(
            {"content": "x", "stop": True, "tokens_predicted": len(values), "completion_probabilities": probabilities}
            | draw.maybe(id_slot=0, stopped_eos=True, truncated=False)
        )
    return rows, right


def llama_cpp_stream(draw: Draw) -> tuple[list[Row], Right]:
    """Of post_sampling_probs, two slots at once."""
    streams, right = list[list[Row]](), Right()
    for slot in range(draw.n_responses):
        values, ids = draw.tokens()
        chances = [math.exp(value) for value in values]
        right.append(([math.log(chance) for chance in chances], ids))
        stream = [
            {
                "index": 0,
                "content": "x",
                "tokens": [i],
                "stop": False,
                "id_slot": slot,
                "tokens_predicted": n + 1,
                "completion_probabilities": [{"id": i, "token": "x", "prob": p, "top_probs": [{"id": 2, "prob": 0.5}]}],
            }
            for n, (p, i) in enumerate(zip(chances, ids, strict=True))
        ]
        end = {"index": 0, "content": "", "tokens": [], "stop": True, "id_slot": slot, "tokens_predicted": len(values)}
        streams.append([*stream, end])
    return draw.mixed(streams), right


def tgi_tokens(values: list[float], ids: list[int]) -> list[Row]:
    return [{"id": i, "text": "x", "logprob": v, "special": False} for v, i in zip(values, ids, strict=True)]


def tgi(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for _ in range(draw.n_responses):
        drawn = [draw.tokens() for _ in range(draw.random.randint(1, 3))]
        right += drawn
        prefill = [{"id": 1, "text": "p", "logprob": None}, {"id": 2, "text": "q", "logprob": -4.0}]
        best, *others = [
            {
                "finish_reason": "length",
                "generated_tokens": len(values),
                "seed": None,
                "tokens": tgi_tokens(values, ids),
                **draw.maybe(prefill=prefill, top_tokens=[[{"id": 5, "logprob": -0.1}]]),
            }
            for values, ids in drawn
        ]
        more = {"best_of_sequences": [{"generated_text": "y", **one} for one in others]} if others else {}
        rows.append({"generated_text": "x", "details": best | more})
    return rows, right


def tgi_stream(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for _ in range(draw.n_responses):
        values, ids = draw.tokens()
        right.append((values, ids))
        tokens = tgi_tokens(values, ids)
        for n, token in enumerate(tokens, 1):
            end = n == len(tokens)
            details = {"finish_reason": "length", "generated_tokens": n, "seed": None} if end else None
            about = {"index": n, "top_tokens": []}
            row = {"token": token, "generated_text": "x" if end else None, "details": details}
            rows.append(row | draw.maybe(**about))
    return rows, right


def ollama(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for k in range(draw.n_responses):
        values, _ = draw.tokens()
        right.append((values, None))
        entries = [{"token": "x", "logprob": v, "bytes": [120], "top_logprobs": []} for v in values]
        answer = {"response": "x"} if k % 2 else {"message": {"role": "assistant", "content": "x", "thinking": "y"}}
        about = {"done_reason": "stop", "total_duration": 1, "prompt_eval_count": 4, "eval_count": len(values) + 1}
        row = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, **answer, "logprobs": entries}
        rows.append(row | draw.maybe(**about))
    return rows, right


def ollama_stream(draw: Draw) -> tuple[list[Row], Right]:
    rows, right = list[Row](), Right()
    for _ in range(draw.n_responses):
        values, _ = draw.tokens()
        right.append((values, None))
        about = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "response": "x"}
        for part in draw.cut(len(values)):
            rows.append(about | {"done": False, "logprobs": [{"token": "x", "logprob": v} for v in values[part]]})
        rows.append(about | {"response": "", "done": True, "done_reason": "stop", "eval_count": len(values)})
    return rows, right


def chat_chunks(draw: Draw) -> tuple[list[Row], Right]:
    streams, right = list[list[Row]](), Right()
    for k in range(draw.n_responses):
        drawn = [draw.tokens() for _ in range(draw.random.randint(1, 3))]
        right += drawn
        of_choices = list[list[Row]]()
        for i, (values, ids) in enumerate(drawn):
            n_thought = draw.random.randint(0, len(values))
            parts = [("reasoning_content", part) for part in draw.cut(n_thought)]
            shifted = [slice(n_thought + p.start, n_thought + p.stop) for p in draw.cut(len(values) - n_thought)]
            parts += [("content", part) for part in shifted]
            pieces: list[Row] = [{"delta": {"role": "assistant", "content": ""}, "logprobs": None}]
            for key, part in parts:
                entries = chat_entries(values[part], ids[part])
                pieces.append({"delta": {key: "x"}, "logprobs": {key: entries, **draw.maybe(refusal=None)}})
            pieces.append({"delta": {}, "logprobs": None, "finish_reason": "stop"})
            of_choices.append([{"index": i, "finish_reason": None, **piece} for piece in pieces])
        about = {"id": f"chatcmpl-{k}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        stream = [about | {"choices": [piece]} for piece in draw.mixed(of_choices)]
        n = sum(len(values) for values, _ in drawn)
        end = about | {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": n}}
        streams.append([*stream, *([end] if draw.optional else [])])
    return draw.mixed(streams), right


def completions_chunks(draw: Draw) -> tuple[list[Row], Right]:
    streams, right = list[list[Row]](), Right()
    for k in range(draw.n_responses):
        values, ids = draw.tokens()
        right.append((values, ids if draw.optional else None))
        streams.append(
            [
                {
                    "id": f"cmpl-{k}",
                    "object": "text_completion",
                    "choices": [
                        {
                            "index": 0,
                            "text": "x",
                            "logprobs": {"token_logprobs": values[part], "tokens": ["x"] * len(values[part])},
                            "finish_reason": "length" if part.stop == len(values) else None,
                            **draw.maybe(token_ids=ids[part]),
                        }
                    ],
                }
                for part in draw.cut(len(values))
            ]
        )
    return draw.mixed(streams), right


def sglang_stream(draw: Draw) -> tuple[list[Row], Right]:
    """Lines that repeat the response so far, or with --incremental-streaming-output hold what is new."""
    streams, right = list[list[Row]](), Right()
    for k in range(draw.n_responses):
        values, ids = draw.tokens()
        right.append((values, ids))
        streams.append(
            [
                {
                    "text": "x",
                    "output_ids": ids[part],
                    "meta_info": {
                        "id": f"r{k}",
                        "finish_reason": {"type": "stop"} if part.stop == len(values) else None,
                        "completion_tokens": part.stop,
                        "output_token_logprobs": [
                            [v, i, None]
                            for v, i in zip(
                                values[part if draw.optional else slice(part.stop)],
                                ids[part if draw.optional else slice(part.stop)],
                                strict=True,
                            )
                        ],
                        "weight_version": "3",
                    },
                }
                for part in draw.cut(len(values))
            ]
        )
    return draw.mixed(streams), right


FORMS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        vllm_generate,
        vllm_generate_stream,
        request_output,
        request_output_growing,
        llama_cpp,
        llama_cpp_before_2025,
        llama_cpp_stream,
        tgi,
        tgi_stream,
        ollama,
        ollama_stream,
        chat_chunks,
        completions_chunks,
        sglang_stream,
    )
}
STREAMS = (
    "vllm_generate_stream",
    "llama_cpp_stream",
    "tgi_stream",
    "chat_chunks",
    "completions_chunks",
    "sglang_stream",
)


def text_of_lines(lines: list[Row]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def events_of(lines: list[Row]) -> str:
    """The same as server-sent events."""
    return (
        ": ping\n\n" + "".join(f"event: message\ndata: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
    )
