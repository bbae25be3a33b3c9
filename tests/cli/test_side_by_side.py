"""`compare --side-by-side`: several dumps against each other under one plan, in every form; and what is refused."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from running import BF16, SAMPLE, STEPS, parquet, refused, row, run, run_process

from rlcorr_cli import api
from rlcorr_cli.errors import UsageError
from rlcorr_cli.show.forms import SHEETS

FP32, INT8 = str(SAMPLE / "smollm2_fp32.parquet"), str(SAMPLE / "smollm2_int8.parquet")
THREE = (FP32, BF16, INT8)


def beside(*args: str) -> dict[str, Any]:
    return run("compare", *args, "--side-by-side", "--json").json


def test_a_dump_has_the_numbers_that_compare_gives_it_alone() -> None:
    for dump, column in zip(THREE, beside(*THREE, "--preset", "geo_rs")["dumps"], strict=True):
        alone = run("compare", dump, "--preset", "geo_rs", "--json").json
        for part in ("inputs", "counts", "metrics", "intervals", "suspicions", "problems"):
            assert column[part] == alone[part], part
        assert column["plan"]["values"] == alone["plans"][0]["values"]
        assert column["plan"]["intervals"] == alone["plans"][0]["intervals"]


def test_a_dump_is_recommended_what_compare_would_take() -> None:
    columns = beside(*THREE)["dumps"]
    for dump, column in zip(THREE, columns, strict=True):
        assert column["recommendation"] == run("compare", dump, "--json").json["recommendation"]
    assert [column["plan"] for column in columns] == [None] * 3


def test_the_terminal_says_what_differs_most_then_a_column_for_each_dump() -> None:
    ran = run_process("compare", *THREE, "--side-by-side", "--preset", "geo_rs", "-q", env={"COLUMNS": "80"})
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[:3] == [
        "A  smollm2_fp32.parquet  64 sequences  5,386 tokens  8 prompts",
        "B  smollm2_bf16.parquet  64 sequences  5,493 tokens  8 prompts",
        "C  smollm2_int8.parquet  64 sequences  5,004 tokens  8 prompts",
    ]
    assert "  k3_kl differs most: 0.00395 in C, over 1,000 times the 6.85e-12 in A." in lines
    assert "  decoupled_geo_rs leaves 8.50 % of C, 100 % of A." in lines
    assert "  * Take decoupled_token_is on each." in lines
    assert "  k3_kl                   6.85e-12  0.00114  0.00395" in lines
    assert "  flag                        near   weight   weight" in lines
    assert "  info                 1.000        0.098    0.085" in lines


@pytest.mark.parametrize(("width", "tables"), [(80, 2), (120, 1)])
def test_dumps_that_a_line_has_no_room_for_stand_below(width: int, tables: int) -> None:
    ran = run_process("compare", *THREE, STEPS, BF16, "--side-by-side", "-q", env={"COLUMNS": str(width)})
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("  k3_kl  ") for line in lines) == tables


def test_dumps_are_told_apart_by_a_factor_beyond_chance() -> None:
    largest = beside(BF16, INT8)["largest"]
    assert (largest["metric"], largest["least"], largest["most"]) == ("k3_kl", "A", "B")
    assert round(largest["factor"], 2) == 3.45
    assert (
        "k3_kl differs most: 0.00395 in B, 3.45 times the 0.00114 in A."
        in run("compare", BF16, INT8, "--side-by-side").out
    )


def test_dumps_whose_intervals_overlap_are_not_told_apart(tmp_path: Path) -> None:
    half = str(tmp_path / "half.parquet")
    pq.write_table(pq.read_table(BF16).take(list(range(0, 64, 2))), half)
    assert beside(BF16, half)["largest"] is None
    text = run("compare", BF16, half, "--side-by-side").out
    assert "  No metric tells these dumps apart: 95 % intervals overlap in all." in text


def test_too_few_sequences_tell_nothing_apart_and_take_nothing(tmp_path: Path) -> None:
    few = [row([-1.0] * 9, [-1.0 - i / 10] * 9) for i in range(4)]
    result = beside(parquet(tmp_path / "few.parquet", few), BF16)
    assert result["largest"] is None
    text = run("compare", str(tmp_path / "few.parquet"), BF16, "--side-by-side").out
    assert "  Too few to tell these dumps apart: A has 1 rollout, and it takes 5." in text
    assert "  * Take decoupled_token_is on B." in text
    assert "  * A: 4 sequences cannot tell plans apart" in text


def test_dumps_of_too_few_sequences_are_left_out_of_what_tells_the_others_apart(tmp_path: Path) -> None:
    few, half = str(tmp_path / "few.parquet"), str(tmp_path / "half.parquet")
    parquet(tmp_path / "few.parquet", [row([-1.0] * 9, [-1.0 - i / 10] * 9) for i in range(4)])
    pq.write_table(pq.read_table(BF16).take(list(range(0, 64, 2))), half)
    text = " ".join(run("compare", BF16, half, few, "--side-by-side").out.split())
    assert "No metric tells A and B apart: 95 % intervals overlap in all. C has too few to tell: 1 rollout." in text


def test_dumps_equal_but_for_rounding_are_not_told_apart_by_intervals() -> None:
    text = " ".join(run("compare", FP32, FP32, "--side-by-side").out.split())
    assert " The policies are equal but for rounding in all dumps: nothing tells them apart." in text


def test_every_form_holds_the_dumps(tmp_path: Path) -> None:
    outputs = [part for suffix in SHEETS for part in ("-o", str(tmp_path / f"s{suffix}"))]
    assert run("compare", *THREE, "--side-by-side", "--preset", "geo_rs", *outputs).status == 0
    result = beside(*THREE, "--preset", "geo_rs")
    assert json.loads((tmp_path / "s.json").read_text()) == result
    assert result["plan"]["name"] == "decoupled_geo_rs"
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert list(rows[0]) == ["dump", "path", "plan", "name", "value", "low", "high"]
    (info,) = (line for line in rows if (line["dump"], line["name"]) == ("C", "info"))
    assert (info["plan"], info["path"]) == ("decoupled_geo_rs", INT8)
    assert float(info["value"]) == result["dumps"][2]["plan"]["values"]["info"]
    markdown, page = (tmp_path / "s.md").read_text(), (tmp_path / "s.html").read_text()
    assert "| info | 1.000 | 0.098 | 0.085 |" in markdown
    assert "What decoupled\\_geo\\_rs leaves." in markdown
    assert page.count("<svg") == 2
    for name, head in {"s.png": b"\x89PNG", "s.pdf": b"%PDF", "s.svg": b"<?xml"}.items():
        assert (tmp_path / name).read_bytes().startswith(head)


def test_a_note_names_the_dumps_that_it_is_on() -> None:
    text = " ".join(run("compare", *THREE, "--side-by-side").out.split())
    assert "A, C: The dump has no advantages" in text
    assert "B: advantages is read from advantage." in text


def test_other_columns_are_told(tmp_path: Path) -> None:
    rows = [{"rollout_log_probs": [-1.0, -0.5 - i / 99], "current_log_probs": [-1.1, -0.5]} for i in range(40)]
    result = beside(BF16, parquet(tmp_path / "current.parquet", rows))
    assert result["notes"] == [
        "Not the same columns: old_log_probs against rollout_log_probs in A, "
        "current_log_probs against rollout_log_probs in B."
    ]


def test_options_of_many_plans_are_refused() -> None:
    two = ("compare", BF16, INT8, "--side-by-side")
    for option in (("--group-by", "step"), ("--objective", "ppo"), ("--sort", "info"), ("--all",)):
        refused(run(*two, *option), 2, f"{option[0]} is of plans on one dump")
    refused(run(*two, "--preset", "token_is", "--preset", "geo_rs"), 2, "under one plan, and more than one is named")
    refused(run(*two, "--quarantine", "bad.parquet"), 2, "--quarantine takes the rows of one dump.")
    refused(run("compare", BF16, "--side-by-side"), 2, "One dump has nothing to stand beside.")


def test_standard_input_is_one_dump_whatever_reads_two() -> None:
    for line in (
        ("compare", "-", "-", "--side-by-side"),
        ("diff", "-", "-"),
        ("convert", "-", "--join", "-", "-o", "x"),
    ):
        refused(run(*line), 2, "Standard input holds one dump.")


def test_a_plan_that_one_dump_has_not_the_columns_for_is_refused_before_reading() -> None:
    ran = run("compare", BF16, INT8, "--side-by-side", "--preset", "pg_is")
    refused(ran, 3, "smollm2_bf16.parquet: pg_is cannot be applied: bypass mode compares current_log_probs")
    refused(run("compare", BF16, "none.parquet", "--side-by-side"), 3, "none.parquet")


def test_the_function_takes_dumps_and_tables_in_memory() -> None:
    sides = api.compare_dumps([BF16, pq.read_table(INT8)], "token_is")
    assert [dump.name for dump in sides.dumps] == ["A", "B"]
    assert sides.dumps[1].plan is not None
    assert sides.dumps[1].plan.name == "decoupled_token_is"
    with pytest.raises(UsageError, match="One dump has nothing to stand beside"):
        api.compare_dumps([BF16])
