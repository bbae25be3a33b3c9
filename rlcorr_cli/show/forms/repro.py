"""DIR of `inspect --repro`: rows that show a gap, requests that score them again, and a letter to the engine's authors.

rows.jsonl is a dump of the cut rows.  Each other .jsonl holds a request for each of them, in the same order, as the
body of its endpoint (ENDPOINTS of `send.py`, which sends them):

* vLLM decodes the response's own tokens by trace replay, as the rollout did, each with its log-prob;
* vLLM and SGLang score prompt and response as one prompt, in one forward pass.

Sources: docs.vllm.ai, "Trace Replay"; GenerateRequest and CompletionRequest of vllm 0.33; GenerateReqInput of sglang
0.5.23.
"""

import json
from pathlib import Path
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs, as_output_error, write_file
from rlcorr_cli.results.inspected import OneRow, TokenRows
from rlcorr_cli.show.numbers import signed

HERE = Path(__file__).parent
SHOWN = 3
"""Far tokens of a row in the table of issue.md."""


def destination(path: Path) -> Destination:
    """The directory, new or empty: what was filled in there is never replaced."""
    return Destination(path=path, option="⟦repro⟧", directory=True, overwrite=None)


def write(result: TokenRows, path: Path, staging: Outputs, *, with_text: bool) -> None:
    """Stage the directory of rows that were cut.  with_text: whether rows.jsonl has their texts, too."""
    if with_text and not any("prompt" in row.texts or row.text for row in result.rows):
        raise UsageError("⟦text True⟧ asks for texts, and the dump has ids alone.", "Add the model's ⟦tokenizer FILE⟧.")
    lines = [_lines(row, with_text=with_text) for row in result.rows]
    files = {f"{name}.jsonl": "".join(json.dumps(each[name]) + "\n" for each in lines) for name in lines[0]}
    files |= {name: (HERE / name).read_text(encoding="utf-8") for name in ("send.py", "issue.md")}
    table = "\n".join(line for i, row in enumerate(result.rows, 1) for line in _table(i, row))
    files["issue.md"] = files["issue.md"].format(about="\n".join(result.about), table=table, version=__version__)
    with as_output_error(place := destination(path)):
        directory = staging.add(place)
        directory.mkdir()
        for name, text in files.items():
            write_file(directory, name, text.encode())


def _lines(row: OneRow, *, with_text: bool) -> dict[str, Any]:
    """What each file has of a row."""
    prompt, response = ([int(i) for i in ids or ()] for ids in (row.prompt_ids, row.tokens))
    texts = {"prompt": row.texts.get("prompt"), "response": row.text and "".join(row.text)} if with_text else {}
    replay = {"max_tokens": len(response), "temperature": 1.0, "logprobs": 1, "trace_decode_token_ids": response}
    return {
        "rows": {
            "sample_id": row.facts.get("sample_id"),
            "prompt_token_ids": prompt,
            "response_token_ids": response,
            "response_mask": [int(counts) for counts in row.valid],
            **row.log_probs,
            "far": list(row.far),
            **{name: text for name, text in texts.items() if text},
        },
        "vllm_decode": {"token_ids": prompt, "sampling_params": replay},
        "vllm_prefill": {"prompt": prompt + response, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0},
        "sglang_prefill": {
            "input_ids": prompt + response,
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": len(prompt) - 1,  # the first of these has no log-prob
        },
    }


def _table(i: int, row: OneRow) -> list[str]:
    """Lines of a table, one for each far token that is shown."""
    tokens = [row.by_token[place] for place in row.far[:SHOWN]]
    far = [(token.place, token.token, *map(signed, (*token.log_probs, token.log_ratio))) for token in tokens]
    return [f"| {' | '.join(map(str, (i, len(row.prompt_ids or ()), row.n_tokens, *cells)))} |" for cells in far]
