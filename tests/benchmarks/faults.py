"""How often a fault is said of dumps that have none, and found in dumps that have one; both kinds are made here.

    python tests/benchmarks/faults.py [--draws 20] [--kind WORDS] [--dumps FILE...]

Clean dumps: tokens drawn from the softmax of random logits; training's logits are the same with noise whose size
differs by prompt, row, place or token, or has heavy tails; or one column was computed on a coarse grid.  Faulty ones:
rows whose training columns were swapped, rows that slip, rollouts cut by top-p, min-p or top-k.  A fault is said where
any cause, the verdict or not, or any anomaly has that effect (`causes/table.py`), or a mean ratio is impossible.
--dumps: files without a fault, which are judged as well.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli import diagnose
from rlcorr_cli.causes.table import ALL_CAUSES

Floats = NDArray[np.float64]
Draw = np.random.Generator
Made = Callable[[Draw], pa.Table]
IMPOSSIBLE = "impossible mean ratio"


def log_softmax(logits: Floats) -> Floats:
    """Over the last axis."""
    held = logits - logits.max(-1, keepdims=True)
    return held - np.log(np.exp(held).sum(-1, keepdims=True))


def rounded(values: Floats, bits: int) -> Floats:
    """To so many bits of significand: 8 of bf16, 11 of fp16, 4 of fp8 (e4m3)."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(fraction, bits)), exponent - bits)


def flat(draw: Draw, shape: tuple[int, int, int]) -> Floats:
    """Logits of a policy that is sure of nothing: rows, tokens, words."""
    return draw.normal(0, 3, shape)


def sure(draw: Draw, shape: tuple[int, int, int]) -> Floats:
    """Logits of a policy that is sure of some tokens, as language models are."""
    logits = draw.normal(0, 1, shape) * draw.choice([1, 3, 6], (*shape[:2], 1))
    logits[..., 0] += draw.choice([0, 8, 14], shape[:2])
    return logits


def sampled(draw: Draw, log_probs: Floats) -> NDArray[np.int64]:
    """A word of each token, drawn by its log-probs."""
    return (log_probs + draw.gumbel(size=log_probs.shape)).argmax(-1)


def at(log_probs: Floats, words: NDArray[np.int64]) -> Floats:
    """The log-probs of the words that were drawn."""
    return np.minimum(np.take_along_axis(log_probs, words[..., None], -1)[..., 0], 0)


def as_lists(log_probs: Floats) -> pa.Array:
    """Of float32, as engines write them."""
    return pa.array(log_probs.astype(np.float32).tolist(), pa.list_(pa.float32()))


def table(rollout: Floats, train: Floats, words: NDArray[np.int64], samples: int, *, ids: bool = True) -> pa.Table:
    """Rows of equal length, `samples` of a prompt one after the other."""
    columns: dict[str, Any] = {
        "group_id": [f"g{row // samples}" for row in range(len(rollout))],
        "sample_id": [f"s{row}" for row in range(len(rollout))],
        "rollout_log_probs": as_lists(rollout),
        "old_log_probs": as_lists(train),
    }
    return pa.table(columns | ({"token_ids": words.tolist()} if ids else {}))


def noisy(
    draw: Draw,
    prompts: int,
    samples: int,
    tokens: int = 40,
    words: int = 50,
    *,
    size: float,
    by_prompt: float = 0.0,
    by_row: float = 0.0,
    by_place: float = 0.0,
    by_word: float = 0.0,
    tail: bool = False,
    one_prompt: float = 1.0,
    temperature: float = 1.0,
    logits: Callable[[Draw, tuple[int, int, int]], Floats] = flat,
) -> pa.Table:
    """Clean: noise of a size times e^N(0, ...) by prompt, row, place and word, on training's logits.  temperature: what
    tokens are sampled at, while both columns are raw."""
    rows = prompts * samples
    clean = logits(draw, (rows, tokens, words))
    z = np.repeat(np.exp(draw.normal(0, by_prompt, prompts)), samples)[:, None, None] * size
    z = z * np.exp(draw.normal(0, by_row, (rows, 1, 1))) * np.exp(draw.normal(0, by_place, (1, tokens, 1)))
    z[:samples] *= one_prompt
    noise = draw.standard_t(3, clean.shape) if tail else draw.normal(size=clean.shape)
    noise *= z * np.exp(draw.normal(0, by_word, (1, 1, words)))
    drawn = sampled(draw, log_softmax(clean / temperature))
    columns = (at(log_softmax(of), drawn) for of in (clean, clean + noise))
    return table(*columns, drawn, samples, ids=draw.random() < 0.5)


def by_prompt(draw: Draw) -> pa.Table:
    """Noise by prompt: the sizes and spreads of a hard prompt."""
    prompts, samples = int(draw.choice([8, 16, 32, 64])), int(draw.choice([1, 2, 4, 8, 16]))
    samples = min(max(samples, 16 // prompts), 512 // prompts)
    size, spread = draw.choice([0.5, 0.7, 1.0]), draw.choice([0.5, 0.7, 1.0])
    return noisy(draw, prompts, samples, size=size, by_prompt=spread, logits=flat if draw.random() < 0.7 else sure)


def many_words(draw: Draw) -> pa.Table:
    """The same of 2,000 words."""
    prompts, samples = ((8, 8), (16, 4), (64, 1), (4, 16))[draw.integers(4)]
    logits = flat if draw.random() < 0.5 else sure
    size, spread = draw.choice([0.5, 0.7, 1.0]), draw.choice([0.5, 0.7, 1.0])
    return noisy(draw, prompts, samples, words=2000, size=size, by_prompt=spread, logits=logits)


def few_rows(draw: Draw) -> pa.Table:
    """5 rows of 20 tokens, or barely enough to judge."""
    rows, tokens = ((5, 20), (16, 64), (20, 50))[draw.integers(3)]
    return noisy(draw, rows, 1, tokens, size=draw.choice([0.5, 1.0]), by_prompt=draw.choice([0.5, 1.0]))


def long_rows(draw: Draw) -> pa.Table:
    """16 to 24 rows of 400 tokens."""
    return noisy(draw, int(draw.integers(16, 25)), 1, 400, size=draw.choice([0.5, 1.0]), by_row=draw.choice([0.5, 1.0]))


def short_rows(draw: Draw) -> pa.Table:
    """512 rows of 24 tokens, of which 19 are of the body."""
    return noisy(draw, 128, 4, 24, size=draw.choice([0.5, 1.0]), by_prompt=draw.choice([0.5, 1.0]))


Rounding = Callable[[Floats], Floats]
NUMBERS: dict[str, int] = {"bf16": 8, "fp16": 11, "fp8": 4}
"""Bits of significand."""


def softmax_in(bits: int) -> Rounding:
    """Log-probs of an engine that takes both terms of the log-softmax in that format."""

    def of(logits: Floats) -> Floats:
        held = logits.max(-1, keepdims=True)
        total = held + np.log(np.exp(logits - held).sum(-1, keepdims=True))
        return np.minimum(rounded(logits, bits) - rounded(total, bits), 0)

    return of


def probabilities_in(bits: int) -> Rounding:
    """The logarithm of probabilities in that format."""
    return lambda logits: np.log(np.maximum(rounded(np.exp(log_softmax(logits)), bits), 1e-30))


def stored_in(bits: int) -> Rounding:
    """Log-probs rounded to that format."""
    return lambda logits: rounded(log_softmax(logits), bits)


def decimals(places: int) -> Rounding:
    """Log-probs rounded to so many decimals."""
    return lambda logits: np.round(log_softmax(logits), places)


def on_grid(rounding: Rounding, *, by_row: bool = True) -> Made:
    """Clean: noise of .003 to .1 on training's logits, and either column by an engine that rounds.  by_row: whether
    rows may have logits of other sizes, and so steps of other widths."""

    def made(draw: Draw) -> pa.Table:
        rows, tokens, words, temperature = 64, 60, int(draw.choice([80, 80, 1000])), draw.choice([0.7, 1.0, 1.3])
        logits = sure(draw, (rows, tokens, words)) / temperature
        if by_row and draw.random() < 0.5:
            logits += draw.uniform(-10, 20, (rows, 1, 1))
        other = logits + draw.choice([0.003, 0.03, 0.1]) * draw.normal(size=logits.shape)
        drawn = sampled(draw, log_softmax(logits))
        sides = (
            (rounding(logits), log_softmax(other)) if draw.random() < 0.6 else (log_softmax(logits), rounding(other))
        )
        return table(*(at(side, drawn) for side in sides), drawn, 8)

    return made


CLEAN: dict[str, Made] = {
    "noise by prompt": by_prompt,
    "noise by prompt, 2,000 words": many_words,
    "noise by row": lambda g: noisy(g, 16, 4, size=g.choice([0.5, 1.0]), by_row=g.choice([0.5, 0.7, 1.0])),
    "noise by place": lambda g: noisy(g, 16, 8, size=g.choice([0.3, 1.0]), by_place=0.5),
    "noise by word": lambda g: noisy(g, 16, 4, size=g.choice([0.3, 1.0]), by_word=g.choice([0.7, 1.0])),
    "noise with heavy tails": lambda g: noisy(g, 16, 4, size=g.choice([0.1, 0.3, 0.7]), by_prompt=0.7, tail=True),
    "one noisy prompt": lambda g: noisy(g, 16, int(g.choice([2, 8])), size=g.choice([0.1, 0.3, 1]), one_prompt=6.0),
    "both raw, sampled hotter": lambda g: noisy(
        g, 16, 4, size=g.choice([0.5, 1.0]), by_prompt=g.choice([0.5, 1.0]), temperature=g.choice([1.2, 1.5])
    ),
    "both raw, sampled colder": lambda g: noisy(
        g, 16, 4, size=g.choice([0.5, 1.0]), by_prompt=g.choice([0.5, 1.0]), temperature=0.7
    ),
    "huge noise": lambda g: noisy(g, 16, 4, size=g.choice([2.0, 4.0, 8.0]), by_prompt=g.choice([0.0, 0.5])),
    "few rows": few_rows,
    "long rows": long_rows,
    "short rows": short_rows,
    "bf16 log-softmax": on_grid(softmax_in(NUMBERS["bf16"])),
    "fp16 log-softmax": on_grid(softmax_in(NUMBERS["fp16"])),
    "fp8 log-softmax": on_grid(softmax_in(NUMBERS["fp8"]), by_row=False),
    "log of a bf16 softmax": on_grid(probabilities_in(NUMBERS["bf16"])),
    "log of an fp8 softmax": on_grid(probabilities_in(NUMBERS["fp8"])),
    "stored in bf16": on_grid(stored_in(NUMBERS["bf16"])),
    "1 decimal": on_grid(decimals(1)),
    "2 decimals": on_grid(decimals(2)),
    "3 decimals": on_grid(decimals(3)),
}
"""What is made -> how; a fault said of any is false."""


def mispaired(share: float, *, of_prompt: bool, logits: Any = sure, words: int = 200) -> Made:
    """Faulty: the training columns of some rows are swapped, with those of another sample of the prompt or of another
    prompt.  Samples of a prompt begin alike, and share how sure the policy is at each place."""

    def made(draw: Draw) -> pa.Table:
        prompts, samples, tokens = 16, 8, int(draw.choice([40, 100]))
        rows = prompts * samples
        clean = logits(draw, (rows, tokens, words))
        structure = np.repeat(draw.choice([0.0, 0.0, 10.0], (prompts, tokens)), samples, axis=0)
        structure[:, :4] = 14.0
        clean[..., 1] += structure
        noise = draw.choice([0.02, 0.2, 0.5]) * draw.normal(size=clean.shape)
        rollout = log_softmax(clean)
        drawn = sampled(draw, rollout)
        rollout, train = at(rollout, drawn), at(log_softmax(clean + noise), drawn)
        n = max(2, round(share * rows) // 2 * 2)
        if of_prompt:  # neighbours: two rows of one prompt
            pairs = 2 * draw.permutation(rows // 2)[: n // 2]
            moved, there = np.r_[pairs, pairs + 1], np.r_[pairs + 1, pairs]
        else:
            moved = draw.permutation(rows)[:n]
            there = np.roll(moved, 1)
        train[moved] = train[there]
        return table(rollout, train, drawn, samples, ids=draw.random() < 0.5)

    return made


def slipped(draw: Draw) -> pa.Table:
    """Faulty: in a tenth of the rows the rollout's column lies two tokens later from the middle on."""
    clean = sure(draw, (64, 80, 200))
    rollout = log_softmax(clean)
    drawn = sampled(draw, rollout)
    rollout, train = at(rollout, drawn), at(log_softmax(clean + 0.05 * draw.normal(size=clean.shape)), drawn)
    for row in draw.permutation(64)[:6]:
        rollout[row, 42:] = rollout[row, 40:-2].copy()
    return table(rollout, train, drawn, 8)


def cut(top_p: float = 1.0, min_p: float = 0.0, top_k: int = 0, stored: Rounding | None = None) -> Made:
    """Faulty: the rollout was cut, and training was not.  stored: how the rollout's column is rounded."""

    def made(draw: Draw) -> pa.Table:
        logits = sure(draw, (64, 60, 200))
        whole = log_softmax(logits)
        order = np.sort(whole, -1)[..., ::-1]
        least = order[..., :1] + np.log(min_p) if min_p else np.full_like(order[..., :1], -np.inf)
        if top_k:
            least = order[..., top_k - 1, None]
        if top_p < 1:
            mass = np.cumsum(np.exp(order), -1) - np.exp(order)
            least = np.where(mass < top_p, order, 0.0).min(-1, keepdims=True)
        rollout = log_softmax(np.where(whole >= least, whole, -1e9))
        drawn = sampled(draw, rollout)
        train = log_softmax(logits + draw.choice([0.01, 0.05]) * draw.normal(size=logits.shape))
        rollout = at(rollout, drawn)
        return table(rollout if stored is None else stored(rollout), at(train, drawn), drawn, 8)

    return made


def in_bf16(values: Floats) -> Floats:
    """Rounded."""
    return rounded(values, NUMBERS["bf16"])


FAULTY: dict[str, tuple[str, Made]] = {
    **{
        f"{share:.0%} of the rows swapped {'within a prompt' if of_prompt else 'between prompts'}, {kind.__name__}": (
            "mispaired_rows",
            mispaired(share, of_prompt=of_prompt, logits=kind),
        )
        for kind in (sure, flat)
        for of_prompt in (False, True)
        for share in (0.01, 0.05, 0.25, 1.0)
    },
    "rows that slip": ("slipped_rows", slipped),
    "top-p 0.9": ("top_p", cut(top_p=0.9)),
    "top-p 0.9 in bf16": ("top_p", cut(top_p=0.9, stored=in_bf16)),
    "top-p 0.99 in bf16": ("top_p", cut(top_p=0.99, stored=in_bf16)),
    "min-p 0.05": ("min_p", cut(min_p=0.05)),
    "min-p 0.05 in bf16": ("min_p", cut(min_p=0.05, stored=in_bf16)),
    "min-p 0.01 in bf16": ("min_p", cut(min_p=0.01, stored=in_bf16)),
    "top-k 10": ("top_k", cut(top_k=10)),
    "top-k 10 in bf16": ("top_k", cut(top_k=10, stored=in_bf16)),
}
"""What is made -> the cause that must be named, and how."""


def said(dump: Any) -> tuple[str, list[str]]:
    """The verdict of a dump, and the faults that are said of it."""
    result = diagnose(dump)
    found = result.whole.diagnosis
    names = [*(cause.cause for cause in found.causes), *(each.name for each in result.anomalies)]
    impossible = [] if found.impossible is None else [IMPOSSIBLE]
    return result.verdict, [name for name in names if ALL_CAUSES[name].is_fault] + impossible


def drawn(made: dict[str, Made], kind: str, n: int) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """What is said of n dumps of each kind whose name holds the words."""
    for name, make in made.items():
        if kind in name:
            yield name, [said(make(np.random.default_rng((sum(name.encode()), seed)))) for seed in range(n)]


def counted(names: Iterator[str]) -> str:
    """'mispaired_rows 3, min_p 1'."""
    return ", ".join(f"{name} {n}" for name, n in Counter(names).most_common())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--kind", default="")
    parser.add_argument("--dumps", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    print("| without a fault | dumps | with a false one | which | verdicts |\n|---|---|---|---|---|")
    total = Counter[bool]()
    clean = list(drawn(CLEAN, options.kind, options.draws))
    clean += [("files", [said(path) for path in options.dumps])] if options.dumps else []
    for name, results in clean:
        wrong = [faults for _, faults in results if faults]
        total.update(bool(faults) for _, faults in results)
        which = counted(fault for faults in wrong for fault in faults)
        print(f"| {name} | {len(results)} | {len(wrong)} | {which} | {counted(verdict for verdict, _ in results)} |")
    print(f"| all | {total.total()} | {total[True]} | | |")
    print("\n| with a fault | dumps | it is the verdict | it is named | verdicts |\n|---|---|---|---|---|")
    for name, results in drawn({name: made for name, (_, made) in FAULTY.items()}, options.kind, options.draws):
        cause = FAULTY[name][0]
        first, named = sum(v == cause for v, _ in results), sum(cause in faults for _, faults in results)
        print(f"| {name} | {len(results)} | {first} | {named} | {counted(verdict for verdict, _ in results)} |")


if __name__ == "__main__":
    main()
