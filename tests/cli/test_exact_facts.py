"""Exact facts of a column: each is a fault of a dump that is made wrong in its way, whatever its size, and of no clean
one."""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from running import BF16, run

import rlcorr_cli

Values = NDArray[np.float64]
EXACT = {"floor_value", "unscored_zeros", "repeated_values", "derived_values"}
ROWS: list[dict[str, Any]] = pq.read_table(BF16).to_pylist()
ROLLOUT, TRAIN = "rollout_log_probs", "old_log_probs"


def made(change: Callable[[int, Values], Any], column: str = ROLLOUT, rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    """The rows with one column changed: by the number of the row and its values."""
    keep = ("sample_id", "group_id", "response_token_ids", ROLLOUT, TRAIN)
    changed = (
        {**{name: row[name] for name in keep}, column: np.asarray(change(i, np.array(row[column])), float).tolist()}
        for i, row in enumerate(rows)
    )
    return pa.Table.from_pylist(list(changed))


def faults(table: Any) -> dict[str, str]:
    """Fault or suspicion -> its evidence."""
    found = rlcorr_cli.diagnose(table).to_dict()
    return dict.fromkeys((fault["name"] for fault in found["story"]["faults"]), "") | {
        each["name"]: each["evidence"] for each in found["suspicions"]
    }


def some(value: float, share: float) -> Callable[[int, Values], Values]:
    """That value on a share of the tokens, and on all rows the same ones."""
    return lambda i, x: np.where(np.random.default_rng(i).random(x.size) < share, value, x)


def rounded(x: Values) -> Values:
    """To bf16."""
    return (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)


def drafted(i: int, x: Values) -> Values:
    """A drafted token is accepted with probability about p, in runs of at most 5, and has 0.0."""
    rng, x, t = np.random.default_rng(i), x.copy(), 0
    while t < x.size:
        k = 0
        while k < 5 and t + k < x.size and rng.random() < min(1, 1.3 * np.exp(x[t + k])):
            k += 1
        x[t : t + k] = 0
        t += k + 1
    return x


WRONG: dict[str, tuple[str, str, Callable[[int, Values], Any]]] = {
    "1% at -100": ("floor_value", "all exactly -100 (", some(-100, 0.01)),
    "5 tokens at -30": (
        "floor_value",
        "5 of 5,493 tokens in 5 of 64 rows, first in row 0, token 20",
        lambda i, x: np.where((np.arange(x.size) == 20) & (i < 5), -30, x),
    ),
    "log 1e-10 in bf16": ("floor_value", "all exactly -23", lambda i, x: rounded(some(np.log(1e-10), 0.01)(i, x))),
    "limited at -6": ("floor_value", "all exactly -6 (the next one is -5.99", lambda _, x: np.maximum(x, -6)),
    "drafts": ("unscored_zeros", "holds no value (0.0) on 4", drafted),
    "scattered zeros": ("unscored_zeros", "also where", some(0, 0.01)),
    "prefixes": (
        "unscored_zeros",
        "first in row 0",
        lambda i, x: np.where(np.arange(x.size) < 6 * (i % 4 == 0), 0, x),
    ),
    "means": (
        "repeated_values",
        "in 64 of 64 rows",
        lambda _, x: np.full(x.size, x.mean()),
    ),
    "sums in 3 rows": (
        "repeated_values",
        "in 3 of 64 rows",
        lambda i, x: np.full(x.size, x.sum()) if i < 3 else x,
    ),
    "a mean in one row": (
        "repeated_values",
        "in 1 of 64 rows",
        lambda i, x: np.full(x.size, x.mean()) if i == 0 else x,
    ),
    "a cycle in one row": (
        "repeated_values",
        "in 1 of 64 rows",
        lambda i, x: np.resize(x[:4], x.size) if i == 0 else x,
    ),
    "a total in one row": ("derived_values", "in 1 of 64 rows", lambda i, x: np.cumsum(x) if i == 0 else x),
    "limited in bf16": ("floor_value", "all exactly -6 (", lambda _, x: rounded(np.maximum(x, -6))),
    "a running mean in bf16": (
        "derived_values",
        "a running total or a running mean",
        lambda _, x: rounded(np.cumsum(x) / np.arange(1, x.size + 1)),
    ),
    "a constant": ("repeated_values", "has one value", lambda _, x: np.full(x.size, -1.5)),
    "a cycle": ("repeated_values", "again and again", lambda _, x: np.resize(x[:4], x.size)),
    "one list": ("repeated_values", "the values of another row", lambda _, x: np.resize(ROWS[1][ROLLOUT], x.size)),
    "every other value": ("repeated_values", "repeats the value before", lambda _, x: np.repeat(x[::2], 2)[: x.size]),
    "few values": ("repeated_values", "different values", lambda _, x: np.round(x / 3) * 3 - 0.5),
    "by token id": (
        "repeated_values",
        "one value for each token id",
        lambda i, _: -np.log(2.0 + np.array(ROWS[i]["response_token_ids"])),
    ),
    "a running total": ("derived_values", "a running total", lambda _, x: np.cumsum(x)),
    "sums from the end": ("derived_values", "a running total", lambda _, x: np.cumsum(x[::-1])[::-1]),
    "a running mean": (
        "derived_values",
        "a running total or a running mean",
        lambda _, x: np.cumsum(x) / np.arange(1, x.size + 1),
    ),
    "smoothed": ("derived_values", "follows from", lambda _, x: np.convolve(x, np.ones(3) / 3, "same")),
    "smoothed along": (
        "derived_values",
        "follows from",
        lambda _, x: [*accumulate(x, lambda s, v: 0.7 * s + 0.3 * v)],
    ),
    "divided by the length": ("derived_values", "one factor of the row", lambda _, x: x / x.size),
    "ranks": ("derived_values", "ranks", lambda i, x: -np.log(np.random.default_rng(i).integers(1, 40, x.size))),
}


@pytest.mark.parametrize("column", [ROLLOUT, TRAIN])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_column_shows_exactly_is_its_only_fault(wrong: str, column: str) -> None:
    name, words, change = WRONG[wrong]
    found = faults(made(change, column))
    assert list(found) == [name]
    assert words in found[name]
    assert column in found[name]


@pytest.mark.parametrize(
    ("slope", "shift", "words"), [(1.3, 0, "1.3 * old_log_probs:"), (1, -0.5, "old_log_probs - 0.5:")]
)
def test_a_column_that_is_a_line_of_the_other_is_a_fault(slope: float, shift: float, words: str) -> None:
    table = made(lambda i, _: slope * np.array(ROWS[i][TRAIN]) + shift)
    assert f"rollout_log_probs is exactly {words}" in faults(table)["derived_values"]


@pytest.mark.parametrize(("wrong", "certainty"), [("smoothed", "likely"), ("a running total", "proven")])
def test_what_a_fit_shows_is_likely_and_what_an_identity_shows_is_proven(wrong: str, certainty: str) -> None:
    story = rlcorr_cli.diagnose(made(WRONG[wrong][2])).story
    assert story.certainty == certainty
    assert story.headline.startswith("Likely cause: " if certainty == "likely" else "Cause: ")


def test_a_floor_of_a_third_policy_is_named() -> None:
    table = made(lambda _, x: x)
    third = [some(-100, 0.01)(i, np.array(row[TRAIN])).tolist() for i, row in enumerate(ROWS)]
    assert (
        "of prefill_log_probs are" in faults(table.append_column("prefill_log_probs", pa.array(third)))["floor_value"]
    )


def test_filter_stops_check_fails_and_inspect_names_the_first_token(tmp_path: Path) -> None:
    pq.write_table(made(some(-100, 0.01)), dump := str(tmp_path / "floor.parquet"))
    assert run("filter", dump, "--preset", "token_is", "-o", str(tmp_path / "out.parquet")).status == 1
    assert run("check", dump).status == 1
    for command in (("check", dump), ("filter", dump, "--preset", "token_is", "-o", str(tmp_path / "out.parquet"))):
        ran = run(*command)
        said = " ".join((ran.out + ran.err).split())
        assert "all exactly -100 (the next one is -19.39): 48 of 5,493 tokens in " in said
        assert " of 64 rows, first in row 0, token 11." in said
    assert "first in row 0" in " ".join(run("inspect", dump).out.split())
    for command in (("analyze", dump), ("compare", dump), ("diagnose", dump)):
        said = run(*command).out
        assert "floor_value" in said
        assert "Impossible" not in said
    assert run("analyze", dump, "--json").json["story"]["certainty"] == "proven"


GRIDS: dict[str, Callable[[Values], Values]] = {
    "float32": lambda x: x.astype(np.float32).astype(float),
    "float16": lambda x: x.astype(np.float16).astype(float),
    "bf16": rounded,
    "2 decimals": lambda x: np.round(x, 2),
    "1 decimal": lambda x: np.round(x, 1),
}


def of_vocabulary(size: int, rows: int, tokens: int, noise: float = 0.03, scale: float = 3) -> list[dict[str, Any]]:
    """Rows of a chain of few tokens, in which every context comes again, and its log-prob with it."""
    rng = np.random.default_rng(size)
    logits = rng.normal(0, scale, (size, size))
    made_rows: list[dict[str, Any]] = []
    for i in range(rows):
        ids, rollout, train = [int(rng.integers(size))], [], []
        for _ in range(int(rng.integers(1, tokens))):
            p = logits[ids[-1]] - np.log(np.exp(logits[ids[-1]]).sum())
            z = logits[ids[-1]] + rng.normal(0, noise, size)
            ids.append(int(rng.choice(size, p=np.exp(p))))
            rollout.append(p[ids[-1]])
            train.append(z[ids[-1]] - np.log(np.exp(z).sum()))
        row = {"sample_id": f"s{i}", "group_id": f"g{i // 8}", "response_token_ids": ids[1:]}
        made_rows.append(row | {ROLLOUT: rollout, TRAIN: train})
    return made_rows


CLEAN: dict[str, list[dict[str, Any]]] = {
    "real": ROWS,
    "4 rows": ROWS[:4],
    "copies": [{**row, "sample_id": f"{row['sample_id']} {k}"} for row in ROWS[:12] for k in range(6)],
    "next to uniform": of_vocabulary(200, 40, 60, noise=0.001, scale=0.02),
    "two tokens": of_vocabulary(2, 40, 60),
    "three tokens, short": of_vocabulary(3, 300, 8),
    "eight tokens": of_vocabulary(8, 64, 60),
}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("clean", CLEAN)
def test_no_clean_dump_has_an_exact_fault(clean: str, grid: str) -> None:
    table = made(lambda _, x: GRIDS[grid](x), rows=CLEAN[clean])
    assert not faults(table).keys() & EXACT


def test_values_that_hardly_change_in_a_few_rows_are_no_running_mean() -> None:
    """Training is far off on the loops of four rows, by nearly the same on every token."""

    def looped(i: int, x: Values) -> Values:
        return -15 + np.random.default_rng(i).normal(0, 0.1, x.size) if i < 4 else x

    assert "derived_values" not in faults(made(looped, TRAIN))


def test_copies_of_rows_without_ids_are_counted_in_a_note(tmp_path: Path) -> None:
    table = made(lambda _, x: x).drop_columns(["sample_id"])
    pq.write_table(pa.concat_tables([table, *[table.slice(0, 16)] * 3]), dump := str(tmp_path / "copies.parquet"))
    for command in ("inspect", "analyze", "diagnose"):
        assert "48 of 112 rows are copies of others" in " ".join(run(command, dump).out.split())


def test_a_top_p_that_many_tokens_contradict_is_not_proven() -> None:
    """Half of the rows are not truncated."""
    rng = np.random.default_rng(0)

    def cut(i: int, x: Values) -> Values:
        return np.where(x > np.log(0.6), 0.0, x - np.log(0.9)) if rng.random() < 0.7 else x

    (cause, *_) = rlcorr_cli.diagnose(made(lambda i, x: np.minimum(cut(i, x), 0))).to_dict()["causes"]
    assert cause["cause"] in {"top_p", "min_p"}
    assert cause["certainty"] != "proven"
