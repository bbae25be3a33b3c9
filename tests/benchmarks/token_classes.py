"""How often `diagnose --tokenizer` names the class of tokens that a fault was put into, and one where there is none:
`python tests/benchmarks/token_classes.py`.

Dumps are made: 60 to 200 rows of 80 to 250 tokens of seven classes, each with a share, a surprise and a size of noise
of its own (within a quarter of the others'; noise grows with surprise).  A fault is a shift, five times the noise, or a
few far tokens.  After a tool's output it is in the first three tokens after a masked stretch: what names it needs no
text, and is `mask_boundary` or the class of the first tokens of later turns.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli import diagnose

TEXTS: dict[str, list[str]] = {
    "Latin letters": [f"{a}{b}" for a in "abcdefghijklmnop" for b in ("at", "en", "ing", "or", "us")],
    "digits": [str(i) for i in range(40)],
    "punctuation": [".", ",", "!", "?", ";", ":", "'", "(", ")", "-"],
    "whitespace": [" ", "\n", "\n\n", "\t"],
    "signs of code": ["{", "}", "==", "+=", "=>", "[", "]"],
    "Han letters": [chr(0x4E00 + i) for i in range(60)],
    "special tokens": ["<|im_end|>", "<|tool|>", "<think>", "</think>"],
}
KINDS = ("shift", "noise", "far")


def tokenizer(folder: Path) -> Path:
    """A tokenizer.json of these texts."""
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {text: i for i, text in enumerate(text for texts in TEXTS.values() for text in texts)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="."))
    made.decoder = decoders.Fuse()
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path


def ids_of() -> dict[str, np.ndarray[Any, Any]]:
    """Class -> the ids of its tokens."""
    ends = np.cumsum([0, *map(len, TEXTS.values())])
    return {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(TEXTS)}


def dump(path: Path, seed: int, wrong: str | None, kind: str) -> None:
    """Write a dump with a fault in a class, after a tool's output ('tool'), or nowhere (None)."""
    rng, ids = np.random.default_rng(seed), ids_of()
    names = [*ids]
    shares = rng.dirichlet(np.array([20.0, 4, 4, 4, 3, 3, 1.5]))
    shares = np.maximum(shares, 0.01) / np.maximum(shares, 0.01).sum()
    sure = dict(zip(names, rng.uniform(0.55, 0.9, len(names)), strict=True))
    factor = dict(zip(names, rng.uniform(0.8, 1.25, len(names)), strict=True))
    sigma, rows = rng.uniform(0.02, 0.15), list[dict[str, Any]]()
    for row in range(int(rng.integers(60, 200))):
        n = int(rng.integers(80, 250))
        of = rng.choice(len(names), n, p=shares)
        token = np.array([rng.choice(ids[names[c]]) for c in of])
        p_sure = np.array([sure[names[c]] for c in of])
        b = -np.where(rng.random(n) > p_sure, rng.exponential(1.1, n), rng.exponential(0.02, n)) - 1e-7
        scale = sigma * np.array([factor[names[c]] for c in of])
        off = rng.standard_t(6, n) * (2 / 3) ** 0.5 * scale * (1 - np.exp(b)) ** 0.5
        mask = np.ones(n, np.int8)
        at = np.zeros(n, bool)
        if wrong == "tool":
            for start in rng.choice(np.arange(20, n - 20), 2, replace=False):
                mask[start : start + 6] = 0
                at[start + 6 : start + 9] = True
            at &= mask == 1
        elif wrong is not None:
            at = of == names.index(wrong)
        if kind == "shift":
            off[at] -= rng.uniform(0.3, 0.8)
        elif kind == "noise":
            off[at] *= 5
        else:
            far = at & (rng.random(n) < 0.1)
            off[far] -= rng.uniform(2, 5, int(far.sum()))
        a = np.minimum(b + off, -1e-8)
        rows.append(
            {
                "group_id": row // 4,
                "step": row % 5,
                "worker": f"w{row % 3}",
                "rollout_log_probs": b.astype("f4"),
                "old_log_probs": a.astype("f4"),
                "response_mask": mask,
                "response_token_ids": token,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), path)


def named(path: Path, tokens: Path) -> str:
    """What `diagnose` names: a class, or a cause."""
    found = diagnose(str(path), tokenizer=str(tokens))
    cause = found.whole.diagnosis.cause
    if cause is not None and cause.parameters.get("column") == "token_class":
        return str(cause.parameters["levels"])
    return found.verdict


def main() -> None:
    """Print what was named, by what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--clean", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokens, path = tokenizer(Path(folder)), Path(folder) / "dump.parquet"
        for wrong in ("digits", "special tokens", "Han letters", "whitespace", "tool"):
            for kind in KINDS:
                counts = Counter[str]()
                for seed in range(asked.seeds):
                    dump(path, seed, wrong, kind)
                    counts[named(path, tokens)] += 1
                print(json.dumps({"wrong": wrong, "kind": kind, "named": counts}, ensure_ascii=False), flush=True)
        counts = Counter[str]()
        for seed in range(asked.clean):
            dump(path, 1000 + seed, None, "shift")
            counts[named(path, tokens)] += 1
        print(json.dumps({"wrong": None, "named": counts}, ensure_ascii=False))


if __name__ == "__main__":
    main()
