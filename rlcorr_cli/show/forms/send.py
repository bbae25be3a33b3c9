"""Ask an engine again for the rows beside this file: python send.py vllm_decode --url http://localhost:8000

It prints what was logged of each token, what training has, and by how much the engine's answer differs from both; *
marks far tokens.  It needs Python 3.10 and nothing else.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ENDPOINTS = {"vllm_decode": "/inference/v1/generate", "vllm_prefill": "/v1/completions", "sglang_prefill": "/generate"}


def log_probs(answer: Any, kind: str, ids: list[int]) -> list[float]:
    """Of the response's tokens, which a prefill has at the end of the prompt."""
    if kind == "sglang_prefill":
        return [token[0] for token in answer["meta_info"]["input_token_logprobs"][-len(ids) :]]
    choice = answer["choices"][0]
    if kind == "vllm_prefill":
        prompt = choice["prompt_logprobs"][-len(ids) :]
        return [of_token[str(i)]["logprob"] for of_token, i in zip(prompt, ids, strict=True)]
    if choice["token_ids"] != ids:
        sys.exit("The engine sampled tokens of its own: is it vLLM, started with --enable-trace-replay?")
    return [token["logprob"] for token in choice["logprobs"]["content"]]


def main() -> None:
    """Send each row's request, and compare its answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*ENDPOINTS])
    parser.add_argument("--url", required=True, help="of the server, such as http://localhost:8000")
    args = parser.parse_args()
    url = args.url.rstrip("/") + ENDPOINTS[args.kind]
    rows, bodies = (Path(__file__).with_name(f"{name}.jsonl").read_text().splitlines() for name in ("rows", args.kind))
    for number, (row, body) in enumerate(zip(map(json.loads, rows), bodies, strict=True), 1):
        try:
            with urlopen(Request(url, body.encode(), {"Content-Type": "application/json"})) as reply:
                answer = json.load(reply)
        except OSError as error:  # an answer that says why the request was refused has a text
            sys.exit(f"{url}: {error}\n{error.read().decode() if hasattr(error, 'read') else ''}")
        print(f"row {number}\n{'#':>9}{'id':>9}{'logged':>10}{'training':>10}{'engine':>10}", end="")
        print(f"{'- logged':>10}{'- training':>12}")
        columns = (row[name] for name in ("response_token_ids", "rollout_log_probs", "old_log_probs"))
        engine = log_probs(answer, args.kind, row["response_token_ids"])
        for place, (token, *known, logp) in enumerate(zip(*columns, engine, strict=True)):
            logged, training = (f"{x:10.4f}" if x is not None else f"{'-':>10}" for x in known)
            since = (f"{logp - x:+.4f}" if x is not None else "-" for x in known)
            mark = "*" if place in row["far"] else " "
            print(f"{mark}{place:>8}{token:>9}{logged}{training}{logp:10.4f}{next(since):>10}{next(since):>12}")


if __name__ == "__main__":
    main()
