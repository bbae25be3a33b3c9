"""`rlcorr inspect --repro`: the rows that show a fault, cut, and requests that engines take."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import BF16, Ran, refused, run

from rlcorr_cli.runs.repro import FIRST_FAR, MOST_ROWS

Row = dict[str, Any]
N = 80
"""Tokens of each row, so that faults of a kind are equal."""
KEPT = ("sample_id", "group_id", "prompt", "response")
TOKENIZER = str(Path(BF16).with_name("tokenizer.json"))


def clean() -> list[Row]:
    """Real rows of one length, with ids of their prompts."""
    rows = [row for row in pq.read_table(BF16).to_pylist() if len(row["response_token_ids"]) >= N]
    lists = ("response_token_ids", "response_mask", "rollout_log_probs", "old_log_probs")
    return [
        {
            **{name: row[name] for name in KEPT},
            **{name: list(row[name][:N]) for name in lists},
            "prompt_token_ids": [100 + i, *range(7, 7 + i % 5)],
        }
        for i, row in enumerate(rows)
    ]


def lower(row: Row, at: list[int], by: float) -> list[int]:
    for i in at:
        row["rollout_log_probs"][i] -= by
    return at


def glitch(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """Two tokens of each row, anywhere."""
    return [lower(row, sorted(rng.choice(N, 2, replace=False).tolist()), 6.0) for row in rows]


def first_token(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    return [lower(row, [0], 8.0) for row in rows]


def last_token(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    return [lower(row, [N - 1], 8.0) for row in rows]


def after_tool(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """The token after a tool's output, which is masked."""
    for row in rows:
        row["response_mask"][30:40] = [0] * 10
    return [lower(row, [40], 8.0) for row in rows]


def cache(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """Twelve tokens in a row, as a block of a KV cache would make it."""
    return [lower(row, [*range(start, start + 12)], 3.0) for row in rows for start in [int(rng.integers(5, 60))]]


def mispaired(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """Each row has the rollout's log-probs of the next one."""
    columns = [row["rollout_log_probs"] for row in rows]
    for row, column in zip(rows, [*columns[1:], columns[0]], strict=True):
        row["rollout_log_probs"] = column
    return [[*range(N)] for _ in rows]


def slipped(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """The rollout's log-probs stand a token later from some token on."""
    for row in rows:
        row["rollout_log_probs"] = [*row["rollout_log_probs"][:20], *row["rollout_log_probs"][19:-1]]
    return [[*range(20, N)] for _ in rows]


Fault = Callable[[list[Row], np.random.Generator], list[list[int]]]
FAULTS: list[tuple[Fault, int]] = [
    *((glitch, n) for n in (1, 2, 5, 9, 10)),
    *((last_token, n) for n in (4, 10)),
    *((first_token, n) for n in (6, 10)),
    *((after_tool, n) for n in (3, 5, 10)),
    *((cache, n) for n in (1, 5, 10)),
    *((mispaired, n) for n in (3, 6, 10)),
    *((slipped, n) for n in (4, 10)),
]
"""Twenty dumps: a fault, and in how many rows it is."""


@dataclass(frozen=True)
class Planted:
    """A dump with a fault: its file, its rows, and the faulty tokens by sample_id."""

    path: str
    rows: list[Row]
    at: dict[str, list[int]]

    def gap(self, tokens: dict[str, list[int]] | None = None) -> float:
        """The sum of squared log-ratios, of all valid tokens or of some."""
        total = 0.0
        for row in self.rows:
            squares = (np.array(row["old_log_probs"]) - row["rollout_log_probs"]) ** 2 * row["response_mask"]
            total += float(squares.sum() if tokens is None else squares[tokens.get(row["sample_id"], [])].sum())
        return total


def planted(fault: Fault, n: int, folder: Path) -> Planted:
    rng, rows = np.random.default_rng(n), clean()
    faulty = [rows[i] for i in rng.choice(len(rows), n, replace=False).tolist()]
    at = dict(zip([row["sample_id"] for row in faulty], fault(faulty, rng), strict=True))
    path = folder / "dump.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return Planted(str(path), rows, at)


def written(dump: str, place: Path, *args: str) -> list[Row]:
    """rows.jsonl of a repro."""
    ran = run("inspect", dump, "--repro", str(place), *args)
    assert ran.status == 0, ran.err
    return lines_of(place / "rows.jsonl")


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("fault", "n"), FAULTS, ids=[f"{fault.__name__}-{n}" for fault, n in FAULTS])
def test_a_few_cut_rows_show_a_planted_fault_alone(fault: Fault, n: int, tmp_path: Path) -> None:
    dump = planted(fault, n, tmp_path)
    rows = written(dump.path, tmp_path / "report")
    names = [row["sample_id"] for row in rows]
    assert 1 <= len(rows) <= MOST_ROWS
    assert {*names} <= dump.at.keys()
    whole, faulty = {name: [*range(N)] for name in names}, {name: dump.at[name] for name in names}
    assert dump.gap(faulty) >= dump.gap(dump.at) / 2  # of ten equal rows, five carry half
    assert n == 10 or dump.gap(whole) >= dump.gap() / 2
    squares = dict[bool, float]()
    for row in rows:
        at = dump.at[row["sample_id"]]
        assert {*row["far"]} <= {*at}, "a far token is a faulty one"
        assert row["far"][-1] == len(row["response_token_ids"]) - 1, "the cut is after the last of them"
        assert len(row["far"]) <= FIRST_FAR
        for i, (logged, training) in enumerate(zip(row["rollout_log_probs"], row["old_log_probs"], strict=True)):
            if logged is not None:
                squares[i in at] = squares.get(i in at, 0.0) + (training - logged) ** 2
    assert squares[True] >= 0.95 * sum(squares.values()), "nothing else is seen in what is left"
