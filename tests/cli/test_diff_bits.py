"""`diff` row by row: equal to the bit, or parting at some token; of dumps, and of two runs of an engine."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import BF16, parquet, refused, run

import rlcorr_cli
from rlcorr_cli.results.bits import LEVEL, block_size, earlier_in_longer_prompts
from rlcorr_cli.runs import bits as joining

Row = dict[str, Any]


def diffed(*args: str) -> dict[str, Any]:
    return run("diff", *args, "--json").json


def made(n: int = 40, seed: int = 0) -> list[Row]:
    """Rows of 20 to 99 tokens, with prompts of 5 to 800."""
    draw = np.random.default_rng(seed)
    rows: list[Row] = []
    for i in range(n):
        size = int(draw.integers(20, 100))
        log_probs = np.float32(-draw.gamma(0.3, 1.5, size)).tolist()
        rows.append(
            {
                "sample_id": f"s{i}",
                "rollout_log_probs": log_probs,
                "old_log_probs": log_probs,
                "response_token_ids": draw.integers(0, 1000, size).tolist(),
                "prompt_token_ids": [1] * int(draw.integers(5, 800)),
            }
        )
    return rows


def moved(values: list[float], token: int) -> list[float]:
    """The values with the next smaller float32 at one token."""
    return [float(np.nextafter(np.float32(x), np.float32(-9))) if i == token else x for i, x in enumerate(values)]


def parting(row: Row, token: int, *, ids: bool = False, column: str = "rollout_log_probs") -> Row:
    """The row with another log-prob at one token, or with that and other tokens from there on."""
    row = {**row, column: moved(row[column], token)}
    if not ids:
        return row
    return {**row, "response_token_ids": [n + 1000 * (i >= token) for i, n in enumerate(row["response_token_ids"])]}


def answers(path: Path, rows: Iterable[Row], *, run_of: str = "", choices: int = 1) -> str:
    """A file of an engine's answers: a batch's outcomes, or (run_of) responses with ids of their own."""
    lines: list[str] = []
    group: list[Row] = []
    for row in rows:
        group.append(row)
        if len(group) < choices:
            continue
        body = {
            "id": f"cmpl-{run_of}{len(lines)}",
            "object": "text_completion",
            "choices": [
                {
                    "index": index,
                    "token_ids": of["response_token_ids"],
                    "prompt_token_ids": of["prompt_token_ids"],
                    "logprobs": {
                        "token_logprobs": of["rollout_log_probs"],
                        "tokens": ["t"] * len(of["rollout_log_probs"]),
                    },
                }
                for index, of in enumerate(group)
            ],
        }
        lines.append(json.dumps(body if run_of else {"custom_id": f"c{len(lines)}", "response": {"body": body}}))
        group = []
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """run1 and run2: the sample's rows, every fifteenth one ulp off from token 21 on; answers of the same."""
    folder = tmp_path_factory.mktemp("runs")
    full = pq.read_table(BF16).to_pylist()
    keep = ("sample_id", "group_id", "response_mask", "response_token_ids", "old_log_probs")
    for name, differs in (("1", False), ("2", True)):
        rows: list[Row] = []
        for i, row in enumerate(full):
            b = np.float32(row["rollout_log_probs"])
            off = np.nextafter(b, np.float32(-9)) if differs and i % 15 == 0 else b
            b = np.where(np.arange(b.size) > 20, off, b)
            rows.append({**{key: row[key] for key in keep}, "rollout_log_probs": b.tolist(), "prompt_token_ids": [1]})
        parquet(folder / f"run{name}.parquet", [{k: v for k, v in r.items() if k != "prompt_token_ids"} for r in rows])
        answers(folder / f"answers{name}.jsonl", rows)
    return folder


@pytest.mark.parametrize("name", ["run{}.parquet", "answers{}.jsonl"])
def test_two_runs_of_an_engine_are_counted_to_the_bit(runs: Path, name: str) -> None:
    a, b = (str(runs / name.format(i)) for i in (1, 2))
    bits = diffed(a, b)["bits"]
    assert (bits["equal"], bits["differ"], bits["tokens"], bits["tokens_differ"]) == (59, 5, 5493, 321)
    assert bits["token"] == [21, 21.0, 21]
    of = "s{:03}" if name.startswith("run") else "c{}/0"
    assert [(row["row"], row["token"]) for row in bits["parted"]] == sorted(
        (of.format(i), 21) for i in range(0, 64, 15)
    )
    said = " ".join(run("diff", a, b).out.split())
    assert "B differs from A to the bit in 5 of 64 rows, in 321 of 5,493 tokens: rows part at token 21" in said
    assert "rollout_log_probs differs by at most 9.54e-07" in said
    assert said.index("to the bit") < said.find("k3_kl") or "k3_kl" not in said
    assert "B is equal to A to the bit, in 64 rows and 5,493 tokens." in " ".join(run("diff", a, a).out.split())


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_part_at_known_tokens_are_told_exactly(tmp_path: Path, seed: int) -> None:
    draw, rows = np.random.default_rng(seed), made(seed=seed)
    others, told, n_other = list(rows), dict[str, tuple[int, int]](), 0
    for i in draw.permutation(len(rows))[: 3 + 4 * seed].tolist():
        size = len(rows[i]["rollout_log_probs"])
        token, ids = int(draw.integers(size)), bool(draw.integers(2))
        others[i] = parting(rows[i], token, ids=ids, column="old_log_probs" if seed == 1 else "rollout_log_probs")
        told[f"s{i}"] = token, size - token if ids else 1
        n_other += ids
        if i % 3 == 0 and ids and token:  # numbers part before the tokens do
            others[i] = parting(others[i], token // 2)
            told[f"s{i}"] = token // 2, size - token + 1
    a, b = parquet(tmp_path / "a.parquet", rows), parquet(tmp_path / "b.parquet", others[::-1] if seed else others)
    found = diffed(a, b)
    bits = found["bits"]
    assert {row["row"]: (row["token"], row["differ"]) for row in bits["parted"]} == told
    assert [row["token"] for row in bits["parted"]] == sorted(token for token, _ in told.values())
    assert (bits["equal"], bits["differ"]) == (len(rows) - len(told), len(told))
    assert bits["tokens_differ"] == sum(n for _, n in told.values())
    assert found["pairs"]["other_text"] == n_other


def test_a_row_that_ends_earlier_parts_where_it_ends(tmp_path: Path) -> None:
    rows = made(3)
    lists = ("rollout_log_probs", "old_log_probs", "response_token_ids")
    shorter = {**rows[1], **{name: rows[1][name][:7] for name in lists}}
    a = parquet(tmp_path / "a.parquet", rows)
    b = parquet(tmp_path / "b.parquet", [rows[0], shorter, rows[2]])
    for dumps in ((a, b), (b, a)):
        (row,) = diffed(*dumps)["bits"]["parted"]
        assert (row["token"], row["differ"]) == (7, row["tokens"] - 7)


def test_a_token_is_counted_with_masked_ones_before_it_which_do_not_differ(tmp_path: Path) -> None:
    rows = [{**row, "response_mask": [int(i % 3 > 0) for i in range(len(row["rollout_log_probs"]))]} for row in made(4)]
    other = parting(parting(rows[2], 9), 11)  # token 9 is masked
    a, b = parquet(tmp_path / "a.parquet", rows), parquet(tmp_path / "b.parquet", [*rows[:2], other, rows[3]])
    (row,) = diffed(a, b)["bits"]["parted"]
    assert (row["row"], row["token"], row["differ"]) == ("s2", 11, 1)


def test_float32_and_float64_of_the_same_numbers_are_equal(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = made(5)
    a = parquet(tmp_path / "a.parquet", rows)
    table, narrow = pq.read_table(a), pa.list_(pa.float32())
    for name in ("rollout_log_probs", "old_log_probs"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(narrow))
    pq.write_table(table, tmp_path / "b.parquet")
    assert diffed(a, str(tmp_path / "b.parquet"))["bits"]["differ"] == 0


def test_rows_of_one_side_are_counted(tmp_path: Path) -> None:
    rows = made(20)
    a, b = answers(tmp_path / "a.jsonl", rows[:15]), answers(tmp_path / "b.jsonl", rows)
    found = diffed(a, b)
    assert found["pairs"] == {"both": 15, "only_a": 0, "only_b": 5, "other_text": 0, "exact": True}
    assert "15 rows of both (5 in B alone)" in " ".join(run("diff", a, b).out.split())


def test_answers_are_joined_by_id_and_choice_and_prompts_are_those_of_a(tmp_path: Path) -> None:
    rows = made(24)
    others = [{**(parting(row, 3) if i == 10 else row), "prompt_token_ids": [7]} for i, row in enumerate(rows)]
    a, b = (answers(tmp_path / f"{name}.jsonl", of, choices=4) for name, of in (("a", rows), ("b", others)))
    lines = Path(b).read_text().splitlines()
    Path(b).write_text("\n".join(reversed(lines)) + "\n")
    (row,) = diffed(a, b)["bits"]["parted"]
    assert (row["row"], row["token"], row["prompt_tokens"]) == ("c2/2", 3, len(rows[10]["prompt_token_ids"]))


def test_answers_with_ids_of_their_own_are_joined_by_the_places_of_requests(tmp_path: Path) -> None:
    rows = made(24)
    others = [parting(row, 3) if i == 10 else row for i, row in enumerate(rows)]
    a = answers(tmp_path / "a.jsonl", rows, run_of="a", choices=4)
    b = answers(tmp_path / "b.jsonl", others, run_of="b", choices=4)
    refused(run("diff", a, b), 3, "No row of", "matched by sample_id", "--pair-by group_id,choice")
    bits = diffed(a, b, "--pair-by", "group_id,choice")["bits"]
    assert (bits["equal"], [row["row"] for row in bits["parted"]]) == (23, ["2, 2"])
    refused(run("diff", a, b, "--pair-by", "group_id,chioce"), 2, "There is no column 'chioce'", "choice")


def test_a_dump_is_compared_with_answers_by_the_rollout_alone(tmp_path: Path) -> None:
    rows = made(10)
    a = parquet(tmp_path / "a.parquet", [{**row, "sample_id": f"c{i}/0"} for i, row in enumerate(rows)])
    b = answers(tmp_path / "b.jsonl", [parting(row, 5) if i == 4 else row for i, row in enumerate(rows)])
    found = diffed(a, b)
    assert list(found["bits"]["columns"]) == ["rollout_log_probs"]
    assert (found["bits"]["differ"], found["metrics"], found["a"]["story"]) == (1, {}, None)


def test_prompts_may_be_known_by_their_lengths_alone(tmp_path: Path) -> None:
    rows = [
        {**{key: row[key] for key in row if key != "prompt_token_ids"}, "prompt_length": len(row["prompt_token_ids"])}
        for row in made(20)
    ]
    others = [parting(row, 3) if i == 10 else row for i, row in enumerate(rows)]
    a, b = parquet(tmp_path / "a.parquet", rows), parquet(tmp_path / "b.parquet", others)
    bits = diffed(a, b)["bits"]
    assert [row["prompt_tokens"] for row in bits["parted"]] == [rows[10]["prompt_length"]]
    assert bits["prompt_p"] is not None


def test_a_row_without_an_id_is_named_by_its_number(tmp_path: Path) -> None:
    rows = [{**row, "sample_id": None if i % 2 else row["sample_id"]} for i, row in enumerate(made(8))]
    others = [parting(row, 3, column="old_log_probs") if i in (4, 5) else row for i, row in enumerate(rows)]
    a, b = parquet(tmp_path / "a.parquet", rows), parquet(tmp_path / "b.parquet", others)
    assert sorted(row["row"] for row in diffed(a, b)["bits"]["parted"]) == ["5", "s4"]


def test_rows_wait_in_little_memory_whatever_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made(200)
    others = [parting(row, i % 20) if i % 7 == 0 else row for i, row in enumerate(rows)]
    a, b = parquet(tmp_path / "a.parquet", rows[3:]), parquet(tmp_path / "b.parquet", others[::-1][2:])
    at_once = diffed(a, b)
    assert at_once["bits"]["differ"] == 28
    monkeypatch.setattr(joining, "MOST_WAITING", 40_000)
    assert diffed(a, b) == at_once


def test_copies_of_one_row_wait_however_many_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{name: value for name, value in row.items() if name != "sample_id"} for row in made(3)]
    a, b = parquet(tmp_path / "a.parquet", [*rows, *rows[:1] * 40]), parquet(tmp_path / "b.parquet", rows)
    monkeypatch.setattr(joining, "MOST_WAITING", 1_000)
    pairs = diffed(a, b)["pairs"]
    assert (pairs["both"], pairs["only_a"]) == (3, 40)


def test_rows_in_one_order_wait_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made(300)
    a, b = (
        parquet(tmp_path / "a.parquet", rows),
        parquet(tmp_path / "b.parquet", [r for r in rows if r["sample_id"] != "s9"]),
    )
    monkeypatch.setattr(joining, "MORE_PARTS", 0)  # another reading would end in an error
    monkeypatch.setattr(joining, "MOST_WAITING", 100_000)
    assert diffed(a, b, "--batch-tokens", "2000")["pairs"]["only_a"] == 1


def test_bad_rows_that_are_left_out_are_of_one_side(tmp_path: Path) -> None:
    rows = made(8)
    broken = [{**rows[0], "rollout_log_probs": [float("nan")] * len(rows[0]["rollout_log_probs"])}, *rows[1:]]
    a, b = parquet(tmp_path / "a.parquet", rows), parquet(tmp_path / "b.parquet", broken)
    assert diffed(a, b, "--on-bad-row", "skip")["pairs"]["only_a"] == 1
    for path in (a, b):
        table = pq.read_table(path).drop_columns(["old_log_probs"])
        pq.write_table(table, path)
    found = diffed(a, b, "--on-bad-row", "skip")
    assert (found["pairs"]["only_a"], found["b"]["counts"]["bad_rows"]) == (1, 1)
    refused(run("diff", a, b), 3, "b.parquet", "rollout_log_probs")


def test_every_form_lists_the_rows_that_part(runs: Path, tmp_path: Path) -> None:
    a, b = (str(runs / f"answers{i}.jsonl") for i in (1, 2))
    forms = [str(tmp_path / f"d{suffix}") for suffix in (".json", ".md", ".html", ".csv")]
    assert run("diff", a, b, *(part for form in forms for part in ("-o", form))).status == 0
    for form in forms:
        assert "c45/0" in Path(form).read_text()
    assert Path(forms[3]).read_text().splitlines()[0] == "row,token,differ,tokens,prompt_tokens"
    assert rlcorr_cli.diff(a, b).bits.parted[0].token == 21


def parted_rows(seed: int, n: int = 64, hazard: float = 0.01, by_length: float = 0.0) -> tuple[Any, Any, Any]:
    """Prompts of rows, the token at which each parts or its last, and whether it parts; anywhere, or the earlier the
    longer its prompt is."""
    draw = np.random.default_rng(seed)
    prompts, sizes = draw.integers(5, 2000, n), np.clip(draw.lognormal(4.5, 0.8, n), 4, 2000).astype(int)
    first = draw.geometric(np.minimum(hazard * np.exp(by_length * (prompts / 2000 - 0.5)), 1)) - 1
    return prompts, np.where(first < sizes, first, sizes - 1), first < sizes


def test_of_rows_that_part_anywhere_hardly_anything_is_said() -> None:
    said = 0
    for seed in range(200):
        prompts, last, parted = parted_rows(seed)
        p = earlier_in_longer_prompts(prompts, last, parted)
        assert p is not None
        said += p < LEVEL or block_size((prompts + last)[parted]) is not None
    assert said <= 4


def test_rows_that_part_earlier_in_longer_prompts_are_told(tmp_path: Path) -> None:
    for by_length, told in ((4.0, True), (-4.0, False)):
        found = [earlier_in_longer_prompts(*parted_rows(seed, by_length=by_length)) for seed in range(20)]
        assert [p is not None and p < LEVEL for p in found] == [told] * 20
    rows = made(60)
    others = [
        parting(row, 40 - len(row["prompt_token_ids"]) // 40) if len(row["response_token_ids"]) > 40 else row
        for row in rows
    ]
    a, b = answers(tmp_path / "a.jsonl", rows), answers(tmp_path / "b.jsonl", others)
    assert "Rows part earlier in longer prompts (p " in " ".join(run("diff", a, b).out.split())
    anywhere = answers(tmp_path / "c.jsonl", [parting(row, 5) for row in rows])
    assert "No evidence that rows part earlier in longer prompts." in " ".join(run("diff", a, anywhere).out.split())


@pytest.mark.parametrize("size", [16, 64, 256])
def test_block_boundaries_are_told_by_their_size(tmp_path: Path, size: int) -> None:
    rows = made(60, seed=size)
    others: list[Row] = []
    for row in rows:
        token = -len(row["prompt_token_ids"]) % size
        others.append(parting(row, token) if 0 < token < len(row["rollout_log_probs"]) else row)
    a, b = answers(tmp_path / "a.jsonl", rows), answers(tmp_path / "b.jsonl", others)
    assert diffed(a, b)["bits"]["block_size"] == size
    assert f"Rows part at multiples of {size} tokens, prompt included" in " ".join(run("diff", a, b).out.split())


def test_rows_that_part_at_their_first_token_tell_no_boundary(tmp_path: Path) -> None:
    """Prompts of round lengths end at boundaries, and rows of one prompt may part at one place."""
    rows = [{**row, "prompt_token_ids": [1] * (64 * (1 + i % 20))} for i, row in enumerate(made(40))]
    a = answers(tmp_path / "a.jsonl", rows)
    b = answers(tmp_path / "b.jsonl", [parting(row, 0) for row in rows])
    found = diffed(a, b)["bits"]
    assert (found["token"], found["block_size"]) == ([0, 0.0, 0], None)
    assert block_size(np.array([128] * 50 + [256] * 50)) is None
