"""`compare`: which plan to take and what each costs, in every form; what is left out, and what is refused."""

import csv
import json
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from running import BF16, SAMPLE, STEPS, Ran, analyzed, parquet, refused, row, run, run_process

from rlcorr_cli import api
from rlcorr_cli.errors import UsageError
from rlcorr_cli.show.forms import SHEETS
from rlcorr_cli.totals.measured import MOST_COMPARED

COLUMNS = [
    "kept",
    "kept_sequence_fraction",
    "info",
    "worth",
    "shift",
    "shift_se",
    "length",
    "k3_left",
    "ess",
    "top_1pct",
]
TOP = ["rlcorr", "inputs", "counts", "clusters", "metrics", "intervals", "plans", "recommendation", "groups", "skipped"]
COLLAPSE = str(SAMPLE / "collapse.parquet")
LOSSY = ("--preset", "token_is", "--preset", "geo_rs")


def compared(*args: str) -> dict[str, Any]:
    return run("compare", *args, "--json").json


def names(result: dict[str, Any]) -> list[str]:
    return [plan["name"] for plan in result["plans"]]


def made(path: Path, n: int, *, std: float = 0.05, **columns: list[Any]) -> str:
    """A dump of n sequences of 20 tokens, with a small gap; columns: more of them, one value for each row."""
    draw = random.Random(7)
    rows: list[dict[str, Any]] = []
    for i in range(n):
        rollout = [-2 * draw.random() for _ in range(20)]
        old = [min(a + draw.gauss(0, std), 0.0) for a in rollout]
        rows.append(row(rollout, old, **{name: values[i] for name, values in columns.items()}))
    return parquet(path, rows)


def test_the_terminal_shows_the_choice_its_reasons_and_every_plan_in_80_columns() -> None:
    ran = run_process("compare", BF16, "-q", env={"COLUMNS": "80"})
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"smollm2_bf16.parquet  64 sequences  5,493 tokens  8 prompts  17 plans  [\d.]+ s", lines[0])
    assert lines[2] == "  Use decoupled_token_is: it weights every token; 99.7% of the batch counts."
    assert "  * The two policies differ by 18% on whole sequences and by 1.6% on single" in lines
    loses = "* Under decoupled_geo_rs only 9.8% of the batch counts. To keep 95.3% of the sequences:"
    assert loses in " ".join(ran.out.split())
    assert "  decoupled_geo_rs         12.1%  0.098  0.080      +0.46 ±0.54   21.3%" in lines
    (option,) = (line.strip() for line in lines if line.strip().startswith("--rs"))
    flags = option.split()
    assert analyzed(BF16, *flags)["metrics"]["kept_sequences"] >= 0.95 * 64


@pytest.mark.parametrize("how", [(), ("--group-by", "step")])
def test_a_plan_is_not_recommended_as_if_the_last_step_were_as_good_as_the_others(how: tuple[str, ...]) -> None:
    is_outside = (
        "breaks limits that make `rlcorr check` fail: fix the cause (other_weights) before you continue training."
    )
    best = compared(COLLAPSE, *how)["recommendation"]
    assert best["headline"].startswith(f"Step 11, the last, {is_outside} Use decoupled_token_is")
    assert best["far_end"] == "step 11"
    assert "noise" not in {reason["code"] for reason in best["reasons"]}  # the cause is named
    for plan in ("disabled", "token_is"):
        assert f"It {is_outside}" in " ".join(run("analyze", COLLAPSE, "--preset", plan).out.split())
    assert "far_end" not in compared(STEPS)["recommendation"]  # apart, and within the rules that fail


def test_a_wide_terminal_shows_every_column() -> None:
    wide = run_process("compare", BF16, "-q", env={"COLUMNS": "120"}).out
    assert "plan                      kept   info  worth  advantage error  top 1%  length  k3 left   ESS" in wide


def test_json_holds_every_column_of_every_plan_and_what_it_was_compared_on() -> None:
    result = compared(BF16)
    assert list(result)[: len(TOP)] == TOP
    assert all(list(plan) == ["name", "also", "plan", "values", "intervals", "objective"] for plan in result["plans"])
    assert all(list(plan["values"]) == COLUMNS for plan in result["plans"])
    assert result["counts"]["sequences"] == 64
    assert result["recommendation"]["plan"] == "decoupled_token_is"
    assert result["recommendation"]["flags"] == ["weight"]
    assert set(result["recommendation"]["ties"]) > {"slime_tis", "decoupled_token_icepop"}
    assert [reason["code"] for reason in result["recommendation"]["reasons"]] == [
        "weight",
        "noise",
        "loses",
    ]
    token = result["plans"][0]
    low, high = token["intervals"]["info"]
    assert low < token["values"]["info"] < high
    assert "shift" not in token["intervals"]


def test_columns_are_those_of_single_analyses() -> None:
    geometric = next(plan for plan in compared(BF16)["plans"] if plan["name"] == "decoupled_geo_rs")["values"]
    alone = analyzed(BF16, "--preset", "geo_rs")["metrics"]
    assert math.isclose(geometric["kept"], 1 - alone["rollout_rs_masked_fraction"], rel_tol=1e-12)
    assert geometric["kept_sequence_fraction"] == alone["kept_sequences"] / 64
    assert math.isclose(geometric["k3_left"], alone["kept_k3_kl"], rel_tol=1e-9)


def test_plans_by_name_stand_once_however_often_they_are_named(tmp_path: Path) -> None:
    assert names(compared(BF16, *LOSSY, "--preset", "token_is")) == ["decoupled_token_is", "decoupled_geo_rs"]
    plan = tmp_path / "mine.toml"
    plan.write_text('name = "mine"\n[weighting]\nscope = "token"\nhigh = 2.0\n')
    both = compared(BF16, "--preset", "token_is", "--plan", str(plan))
    assert [(each["name"], each["also"]) for each in both["plans"]] == [("decoupled_token_is", ["mine"])]
    assert "  decoupled_token_is, mine  100%" in run("compare", BF16, "--preset", "token_is", "--plan", str(plan)).out
    alone = compared(BF16, "--plan", str(plan))
    assert alone["recommendation"]["plan"] == "mine"


def test_all_compares_every_preset_that_the_dump_has_columns_for() -> None:
    result = compared(BF16, "--all")
    assert len(names(result)) > 30
    reasons = {skipped["name"]: skipped["why"] for skipped in result["skipped"]}
    assert reasons["ppo_is_bypass"] == "bypass mode compares current_log_probs, which the dump lacks"


@pytest.mark.parametrize(("sort", "first"), [("name", "decoupled_geo_rs"), ("info", "disabled"), ("worth", "token")])
def test_plans_are_sorted_as_asked(sort: str, first: str) -> None:
    lines = run("compare", BF16, *LOSSY, "--preset", "disabled", "--sort", sort).out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("  plan "))
    assert first in lines[heading + 1].split()[0]


def test_groups_say_where_another_plan_is_better_and_which_cannot_tell() -> None:
    result = compared(STEPS, "--group-by", "step")
    assert [group["key"] for group in result["groups"]] == [{"step": step} for step in range(5)]
    assert all(group["counts"]["sequences"] == 64 for group in result["groups"])
    taken = [group["recommendation"]["plan"] for group in result["groups"]]
    assert taken == ["decoupled_token_is"] * 4 + ["areal_ratio_token"]
    lines = run("compare", STEPS, "--group-by", "step").out.splitlines()
    assert "  * In 1 of 5 groups another plan is better: areal_ratio_token at step 4." in lines
    lines = run("compare", STEPS, *LOSSY, "--group-by", "step").out.splitlines()
    assert "  * The same plan is best in all 5 groups." in lines
    single = run("compare", STEPS, *LOSSY, "--group-by", "sample_id").out
    assert "  * No group has enough data by itself." in single.splitlines()
    assert "and 280 more groups" in single


def test_both_modes_are_compared_in_one_reading(tmp_path: Path) -> None:
    draw = random.Random(5)
    current = [[-2 * draw.random() for _ in range(20)] for _ in range(40)]
    dump = made(tmp_path / "d.parquet", 40, current_log_probs=current)
    result = compared(dump)
    assert result["skipped"] == []
    assert {"decoupled_token_is", "ppo_is_bypass", "pg_is"} < set(names(result))
    values = {plan["name"]: plan["values"] for plan in result["plans"]}
    # The current policy is an unrelated one, which bypass plans alone look at.
    assert values["ppo_is_bypass"]["k3_left"] > 100 * values["disabled"]["k3_left"]
    for name in ("pg_is", "pg_rs", "decoupled_seq_is_rs"):
        alone = compared(dump, "--preset", name)["plans"][0]["values"]
        assert alone == {column: value and pytest.approx(value, rel=1e-9) for column, value in values[name].items()}


def test_a_bypass_plan_alone_takes_a_dump_that_holds_the_current_policy_alone(tmp_path: Path) -> None:
    rows = [{"rollout_log_probs": [-1.0, -0.5 - i / 99], "current_log_probs": [-1.1, -0.5]} for i in range(40)]
    dump = parquet(tmp_path / "d.parquet", rows)
    assert names(compared(dump, "--preset", "pg_is")) == ["pg_is"]


def test_plans_that_need_more_than_the_dump_has_are_left_out_or_refused() -> None:
    lines = " ".join(run("compare", BF16, *LOSSY, "--preset", "pg_is").out.split())
    assert "Left out: pg_is; bypass mode compares current_log_probs, which the dump lacks." in lines
    refused(run("compare", BF16, "--preset", "pg_is"), 3, "No plan is left to compare. pg_is: bypass mode")


def test_a_dump_without_advantages_counts_each_as_1_and_says_so(tmp_path: Path) -> None:
    result = compared(made(tmp_path / "d.parquet", 40))
    assert result["metrics"]["advantage_shift"] is None
    assert all(plan["values"]["shift"] is None for plan in result["plans"])
    assert any(note.startswith("The dump has no advantages: each counts as 1") for note in result["notes"])
    assert "advantage error" not in run("compare", made(tmp_path / "d.parquet", 40)).out


def test_equal_advantages_shift_nothing_and_say_so(tmp_path: Path) -> None:
    result = compared(made(tmp_path / "d.parquet", 40, advantage=[1.0] * 40))
    assert result["metrics"]["advantage_shift"] is None
    assert any(
        note.startswith("Advantage shift not computed: the advantages are all equal") for note in result["notes"]
    )


def test_far_policies_are_told_only_with_advantages(tmp_path: Path) -> None:
    far = made(tmp_path / "d.parquet", 40, std=0.6)
    without = compared(far, *LOSSY)["recommendation"]
    assert (without["plan"], without["flags"]) == (None, ["far"])
    assert "map advantages=COLUMN" in without["headline"]
    # Advantages that differ are enough, though their shift rests on too few effective sequences.
    known = compared(made(tmp_path / "d.parquet", 40, std=0.6, advantage=[float(i % 7) for i in range(40)]), *LOSSY)
    assert known["metrics"]["advantage_shift"] is None
    assert (known["recommendation"]["plan"], known["recommendation"]["flags"]) == ("decoupled_token_is", ["far"])


def test_one_sequence_cannot_tell(tmp_path: Path) -> None:
    dump = made(tmp_path / "d.parquet", 1)
    result = compared(dump)
    assert result["recommendation"]["plan"] is None
    assert result["intervals"] == {}
    assert "  One sequence is too few to compare plans" in run("compare", dump).out


def test_plans_that_keep_nothing_have_no_info_and_no_other_column(tmp_path: Path) -> None:
    plan = tmp_path / "none.toml"
    plan.write_text('name = "none"\n[[rejections]]\nstatistic = "ratio"\nscope = "token"\nlow = 90.0\nhigh = 99.0\n')
    result = compared(made(tmp_path / "d.parquet", 40), "--plan", str(plan))
    values = result["plans"][0]["values"]
    assert [name for name, value in values.items() if value is not None] == [
        "kept",
        "kept_sequence_fraction",
        "info",
        "worth",
    ]
    assert {values[name] for name in ("kept", "kept_sequence_fraction", "info", "worth")} == {0}
    assert result["recommendation"]["headline"].startswith("None of these plans helps: the best is worth 0%")
    picture = tmp_path / "p.png"
    assert run("compare", made(tmp_path / "d.parquet", 40), "--plan", str(plan), "-o", str(picture)).status == 0


def written(folder: Path, *args: str, suffixes: Sequence[str] = tuple(SHEETS)) -> Ran:
    outputs = [part for suffix in suffixes for part in ("-o", str(folder / f"c{suffix}"))]
    ran = run("compare", *args, *outputs)
    assert ran.status == 0, ran.err
    return ran


def test_every_form_holds_the_comparison(tmp_path: Path) -> None:
    written(tmp_path, STEPS, "--group-by", "step")
    result = compared(STEPS, "--group-by", "step")
    saved = json.loads((tmp_path / "c.json").read_text())
    assert saved == result
    rows = list(csv.DictReader((tmp_path / "c.csv").read_text().splitlines()))
    assert list(rows[0]) == ["scope", "step", "plan", "column", "value", "low", "high"]
    assert len(rows) == 6 * len(result["plans"]) * len(COLUMNS)
    of_total = {(line["plan"], line["column"]): line["value"] for line in rows if line["scope"] == "total"}
    assert (
        float(of_total["disabled", "worth"])
        == next(p for p in result["plans"] if p["name"] == "disabled")["values"]["worth"]
    )
    markdown, page = (tmp_path / "c.md").read_text(), (tmp_path / "c.html").read_text()
    assert "![Worth of each plan](c-figures/c.png)" in markdown
    assert "`--rs ratio.seq_mean:" in markdown
    assert '<code><span class="nowrap">--rs</span> ratio.seq_mean:' in page
    assert page.count("<svg") == 2
    for text in (markdown.replace("\\", ""), page.replace("<wbr>", "")):
        assert "Use decoupled_token_is: it weights every token; 96.9% of the batch counts." in text
        assert "In 1 of 5 groups another plan is better: areal_ratio_token at step 4." in text
    for name, head in {"c.png": b"\x89PNG", "c.pdf": b"%PDF", "c.svg": b"<?xml", "c-figures/c.png": b"\x89PNG"}.items():
        assert (tmp_path / name).read_bytes().startswith(head)


def test_a_dump_cannot_write_markup_into_a_page(tmp_path: Path) -> None:
    dump = made(tmp_path / "d.parquet", 40, engine=["<script>`x`</script>"] * 40)
    written(tmp_path, dump, *LOSSY, "--group-by", "engine", suffixes=(".html", ".md"))
    assert "<script>`" not in (tmp_path / "c.html").read_text()
    assert "<script>" not in (tmp_path / "c.md").read_text()


def test_outputs_that_cannot_be_are_refused_before_reading(tmp_path: Path) -> None:
    dump = made(tmp_path / "d.json", 40)
    plan = tmp_path / "plan.json"
    plan.write_text('{"name": "mine"}')
    refused(run("compare", dump, "-o", dump), 2, "d.json is part of the dump")
    refused(run("compare", BF16, "--plan", str(plan), "-o", str(plan)), 2, "plan.json")
    refused(run("compare", BF16, "-o", "plans.txt"), 2, "plans.txt", ", ".join(SHEETS))
    refused(run("compare", BF16, "-o", str(tmp_path / "none" / "c.html")), 4, "none")
    refused(run("compare", BF16, "--preset", "nope"), 2, "Unknown preset 'nope'")
    refused(run("compare", BF16, "--plan", str(tmp_path / "none.toml")), 2, "none.toml")


def test_dumps_without_data_are_refused(tmp_path: Path) -> None:
    refused(run("compare", parquet(tmp_path / "d.parquet", [row(response_mask=[0, 0])])), 3, "no valid token")
    refused(run("compare", str(tmp_path / "none.parquet")), 3, "none.parquet")


def test_plot_draws_what_compare_draws(tmp_path: Path) -> None:
    by_plot, by_compare = tmp_path / "plot.svg", tmp_path / "compare.svg"
    ran = run("plot", BF16, "--kind", "compare", "-o", str(by_plot))
    assert "Use decoupled_token_is (orange): it is worth the most, 0.997." in " ".join(ran.out.split())
    assert run("compare", BF16, "-o", str(by_compare)).status == 0
    assert by_plot.read_bytes() == by_compare.read_bytes()
    shown = run("plot", BF16, "--kind", "ratio", "--kind", "compare", "-o", str(tmp_path / "both"), "--json").json
    assert [picture["kind"] for picture in shown] == ["ratio", "compare"]


def test_the_picture_of_plans_takes_neither_a_plan_nor_a_report(tmp_path: Path) -> None:
    refused(run("plot", BF16, "--kind", "compare", "--preset", "token_is"), 2, "takes no plan", "rlcorr compare DUMP")
    report = tmp_path / "r.json"
    assert run("analyze", BF16, "-o", str(report)).status == 0
    refused(run("plot", str(report), "--kind", "compare"), 2, "A report is of one plan")


def test_the_function_names_what_the_command_shows() -> None:
    comparison = api.compare(BF16, preset=["token_is", "geo_rs"])
    assert comparison.recommendation.plan == "decoupled_token_is"
    assert [plan.name for plan in comparison.whole.plans] == ["decoupled_token_is", "decoupled_geo_rs"]
    assert [plan.name for plan in api.compare(BF16, preset="token_is").whole.plans] == ["decoupled_token_is"]
    with pytest.raises(UsageError, match="Unknown preset"):
        api.compare(BF16, preset="nope")


def test_no_number_is_cut_beside_plans_of_several_names() -> None:
    ran = run("compare", BF16, "--all")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "…" not in ran.out
    assert "decoupled_token_is is the same as skyrl_tis_token;" in ran.out
    assert "advantage error" in ran.out


def test_a_fault_is_said_before_any_plan() -> None:
    ran = run("compare", str(Path(__file__).parents[1] / "diagnosis" / "causes" / "top_p095.parquet"))
    shown = " ".join(ran.out.split())
    assert "Cause: rollout_log_probs was logged after top-p 0.95" in shown
    assert "Fix this first. Least harmful meanwhile: " in shown


def test_the_headline_breaks_between_facts_alone() -> None:
    for width in (34, 43, 62, 70):
        out = run_process("compare", BF16, "--preset", "token_is", "-q", env={"COLUMNS": str(width)}).out
        head = out.split("\n\n")[0].splitlines()
        assert max(map(len, head)) <= width
        assert re.fullmatch(r"[\d.]+ s", head[-1].split("  ")[-1]), head
        assert not [line for line in head if line.startswith(" ") or re.fullmatch(r"\w+", line)]


def test_where_nothing_weighs_no_plan_is_said_to_do_the_same(tmp_path: Path) -> None:
    dump = made(tmp_path / "d.parquet", 40, std=0.002, advantages=[0.0] * 40)
    recommendation = compared(dump)["recommendation"]
    assert recommendation["flags"] == ["near"]
    assert "info" not in " ".join(reason["text"] for reason in recommendation["reasons"])
    weighed = compared(made(tmp_path / "e.parquet", 40, std=0.002))["recommendation"]
    assert weighed["reasons"][0]["text"].endswith("Every plan with info of at least 0.99 is as good.")


def test_more_groups_than_are_compared_are_refused(tmp_path: Path) -> None:
    rows = [row([-0.5], [-0.4], step=i) for i in range(MOST_COMPARED + 1)]
    dump = parquet(tmp_path / "d.parquet", rows)
    says = "There are over 10,000 groups by step, more than are compared."
    refused(run("compare", dump, "--group-by", "step"), 2, says, "fewer values")
    assert run("analyze", dump, "--group-by", "step", "-q").status == 0


def test_a_group_without_a_token_is_compared_beside_advantages(tmp_path: Path) -> None:
    filled = [row(step=0, advantages=[1.0, -1.0]), row(step=0, advantages=[0.5, 0.5])]
    path = parquet(tmp_path / "dump.parquet", [*filled, row([], [], step=1, advantages=[])])
    of_step = {group["key"]["step"]: group for group in compared(path, "--group-by", "step")["groups"]}
    assert [of_step[step]["counts"]["sequences"] for step in (0, 1)] == [2, 0]
    assert of_step[1]["metrics"]["kl"] is None
