"""Odd dumps, each made from its number alone.

Parquet or JSON lines, from one row of one token to a row of 40,000 and to more than three blocks of tokens, with
log-ratios of noise, +-20, +-400 or none, nulls, masks, empty rows, float32, float64 or bfloat16, and any of the columns
that commands look at.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Rng = np.random.Generator
Table = dict[str, list[Any]]
MODIFIED = 1_767_322_800  # 2026-01-02 03:00 UTC, which reports tell
GAPS = ("noise", "noise", "noise", "small", "heavy", "wide", "same", "shift", "twenty", "four hundred")
SIZES = ("few",) * 4 + ("ones",) * 2 + ("many",) * 8 + ("thousands",) * 4 + ("long row", "blocks")
WIDTHS = ("float32", "float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Dump:
    """A file, its name from the folder where commands run, the columns that it has, and how its bad rows are taken."""

    name: str
    columns: frozenset[str]
    reading: tuple[str, ...]
    n_tokens: int


def lengths(draw: Rng, size: str) -> np.ndarray:
    """The tokens of each row."""
    match size:
        case "few":
            return draw.integers(1, 6, draw.integers(1, 5))
        case "ones":
            return np.ones(draw.choice([1, 2, 40, 2_000]), int)
        case "many":
            return draw.integers(1, draw.choice([4, 30, 120]), draw.integers(5, 70))
        case "thousands":
            return np.clip(draw.lognormal(3.5, 1, draw.integers(40, 200)), 1, 2_000).astype(int)
        case "long row":
            return draw.permutation([40_000, *draw.integers(1, 50, 20)])
        case _:
            return draw.integers(1, 600, draw.integers(350, 500))


def gaps(draw: Rng, kind: str, n: int) -> np.ndarray:
    """Log-ratios of n tokens."""
    noise = draw.normal(0, draw.choice([0.005, 0.05, 0.3]), n)
    match kind:
        case "small":
            return noise * 1e-4
        case "heavy":
            return 0.05 * draw.standard_t(2, n)
        case "wide":
            return draw.normal(0, 3, n)
        case "same":
            return np.zeros(n)
        case "shift":
            return draw.choice([-1, 1]) / 8 + noise * 0.01  # all the same, rounding would order the rows
        case "twenty":
            return np.where(draw.random(n) < 0.1, draw.choice([-20.0, 20.0], n), noise)
        case "four hundred":
            return np.where(draw.random(n) < 0.05, draw.choice([-400.0, 400.0, -20.0, 750.0], n), noise)
        case _:
            return noise


def rounded(values: np.ndarray, width: str) -> np.ndarray:
    """Log-probs as a column of some width holds them; bfloat16 are the upper halves of float32."""
    if width == "float64":
        return values
    narrow = values.astype(np.float32)
    return narrow if width == "float32" else ((narrow.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)


def odd_dump(number: int, folder: Path, *, again: bool = False) -> Dump:
    """Writes a dump of this number; again: the same rollouts, whose training policy differs otherwise."""
    draw, other = np.random.default_rng(number), np.random.default_rng([number, int(again)])
    sizes = lengths(draw, draw.choice(SIZES))
    n, n_rows, width, has = int(sizes.sum()), len(sizes), draw.choice(WIDTHS), draw.random(12)
    ends = np.cumsum(sizes)[:-1]

    def rows(values: np.ndarray) -> list[Any]:
        return np.split(values, ends)

    upper = -draw.gamma(0.25, 1.2, n) if has[0] < 0.9 else -draw.integers(0, 200, n) / 64.0
    gap = gaps(other, other.choice(GAPS), n)
    rollout, old = rounded(upper - np.maximum(gap, 0), width), rounded(upper + np.minimum(gap, 0), width)
    current = rounded(np.minimum(old + gaps(other, other.choice(GAPS[:5]), n), 0), width)
    table: Table = {"rollout_log_probs": rows(rollout)}
    if has[1] < 0.9:
        table["old_log_probs"] = rows(old)
    if has[1] >= 0.9 or has[2] < 0.5:
        table["current_log_probs"] = rows(current)
    if has[3] < 0.5:
        mask = rows((draw.random(n) < 0.85).astype(np.int8))
        table["response_mask"] = [one * (draw.random() > 0.1) for one in mask]
    if has[4] < 0.4:
        table["advantages"] = rows(np.round(draw.normal(0, 1, n), 3))
    elif has[4] < 0.7:
        table["advantages"] = np.round(draw.normal(0, 1, n_rows), 3).tolist()
    if has[5] < 0.6:
        table["reward"] = [None if draw.random() < 0.05 else float(x) for x in draw.choice([0, 1, -0.25], n_rows)]
    if has[6] < 0.6:
        table["step"] = (np.arange(n_rows) * draw.integers(1, 6) // n_rows).tolist()
    if has[7] < 0.5:
        table["group_id"] = [f"p{x}" for x in np.arange(n_rows) // draw.choice([1, 4, 8])]
    if has[8] < 0.7:
        table["sample_id"] = [f"s{i}" for i in range(n_rows)]
    if has[9] < 0.3:
        table["worker"] = draw.integers(0, 3, n_rows).tolist()
        table["policy_version"] = draw.integers(0, 3, n_rows).tolist()
    if has[10] < 0.3:
        table["tokens"] = rows(draw.integers(0, 200, n))
    if has[11] < 0.2:
        table["rollout_ids"] = [f"r{i // 2}" for i in range(n_rows)]
    reading = broken(draw, table)
    name = f"dump_{number}{'_again' * again}" + (".jsonl" if draw.random() < 0.25 else ".parquet")
    write(folder / name, table)
    return Dump(name, frozenset(table), reading, n)


def broken(draw: Rng, table: Table) -> tuple[str, ...]:
    """Empties rows, and makes rows and values null; the options with which such a dump is read."""
    lists = [name for name, values in table.items() if isinstance(values[0], np.ndarray)]
    n_rows = len(table["rollout_log_probs"])
    if draw.random() < 0.3:
        for i in np.flatnonzero(draw.random(n_rows) < 0.1):
            for name in lists:
                table[name][i] = table[name][i][:0]
    options: tuple[str, ...] = ()
    if draw.random() < 0.15:
        for i in np.flatnonzero(draw.random(n_rows) < 0.2):
            table[str(draw.choice(lists))][i] = None
        options = ("--on-bad-row", "skip", "--max-bad-fraction", "1")
    if draw.random() < 0.25:
        policy = str(draw.choice(["error", "mask", "keep", "keep"]))
        column = "rollout_log_probs" if policy == "keep" else str(draw.choice(lists))
        for i in np.flatnonzero(draw.random(n_rows) < 0.3):
            values = table[column][i]
            if values is not None:
                table[column][i] = [None if draw.random() < 0.1 else x for x in values.tolist()]
        options = ("--on-bad-row", "skip", "--max-bad-fraction", "1", "--nonfinite", policy)
    return options


def write(path: Path, table: Table) -> None:
    """As Parquet or JSON lines, always of one age."""
    if path.suffix == ".jsonl":
        plain = {name: [x.tolist() if isinstance(x, np.ndarray) else x for x in rows] for name, rows in table.items()}
        lines = (json.dumps(dict(zip(plain, values, strict=True))) for values in zip(*plain.values(), strict=True))
        path.write_text("".join(line + "\n" for line in lines))
    else:
        arrays = {name: pa.array(rows, arrow_type(rows)) for name, rows in table.items()}
        pq.write_table(pa.table(arrays), path, row_group_size=max(1, len(next(iter(table.values()))) // 3))
    os.utime(path, (MODIFIED, MODIFIED))


def arrow_type(rows: list[Any]) -> pa.DataType | None:
    """Lists of the type of the first that is an array; None where there is none."""
    first = next((one for one in rows if isinstance(one, np.ndarray)), None)
    return None if first is None else pa.list_(pa.from_numpy_dtype(first.dtype))
