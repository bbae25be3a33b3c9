"""The Pareto shape of sequence weights is told of any dump, and judged from 20 tail values on: a fifth of 100."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
from running import parquet, row, run

TOKENS = 20


def dump_of(path: Path, sums: list[float]) -> str:
    """A row for each S, spread evenly over its tokens."""
    draw, rows = random.Random(5), list[dict[str, Any]]()
    for i, total in enumerate(sums):
        rollout = [-1 - 2 * draw.random() for _ in range(TOKENS)]
        rows.append(row(rollout, [b + total / TOKENS for b in rollout], sample_id=i, advantages=draw.gauss(0, 1)))
    return parquet(path / f"{len(sums)}.parquet", rows)


def heavy(n: int) -> list[float]:
    """e^S has a tail of shape 0.9, and a few sequences have most of it whatever n is."""
    draw = random.Random(3)
    return [0.9 * (draw.expovariate(1) - 1) / 2 + 0.02 * draw.gauss(0, 1) for _ in range(n - 6)] + [2.0, 2.2, 2.5] * 2


def test_a_shape_of_19_tail_values_is_told_with_its_error_and_judged_by_nothing(tmp_path: Path) -> None:
    dump = dump_of(tmp_path, heavy(99))
    report = run("analyze", dump, "--json").json
    shape = report["metrics"]["pareto_k_seq"]
    assert shape > 0.7
    assert report["metrics"]["pareto_k_seq_se"] == pytest.approx((1 + shape) / math.sqrt(19))
    assert report["metrics"]["pareto_k_seq_limit"] is None
    assert "pareto_k_seq" not in [finding["metric"] for finding in report["health"]]
    assert report["verdict"]["usable"] == {"token": "yes", "sequence": "unsure"}
    few = "the 19 largest sequence weights are too few to judge it"
    told = f"pareto_k_seq is {shape:.3g} ± {(1 + shape) / math.sqrt(19):.2f}: {few}."
    assert told in report["notes"]
    assert told.replace("±", "+-") in " ".join(run("analyze", dump).out.split())
    assert "  Not judged: pareto_k_seq (too few tail values)." in run("check", dump).out.splitlines()
    assert [reason["code"] for reason in reasons(dump) if "pareto_k_seq" in reason["text"]] == []


def finding_on_shape(report: dict[str, Any]) -> dict[str, Any]:
    (finding,) = [finding for finding in report["health"] if finding["metric"] == "pareto_k_seq"]
    return finding


def test_a_shape_of_20_tail_values_is_judged_beyond_its_standard_error(tmp_path: Path) -> None:
    report = run("analyze", dump_of(tmp_path, heavy(100)), "--json").json
    shape, error = (report["metrics"][f"pareto_k_seq{end}"] for end in ("", "_se"))
    assert report["metrics"]["pareto_k_seq_limit"] == pytest.approx(0.5)
    assert 0.5 < shape < 0.5 + error
    assert finding_on_shape(report)["status"] == "ok"


def test_all_commands_hold_a_shape_to_the_same_limit(tmp_path: Path) -> None:
    draw = random.Random(3)
    dump = dump_of(tmp_path, [1.3 * (draw.expovariate(1) - 1) for _ in range(1000)])
    report = run("analyze", dump, "--json").json
    assert report["metrics"]["pareto_k_seq"] - report["metrics"]["pareto_k_seq_se"] > 2 / 3
    finding = finding_on_shape(report)
    assert (finding["rule"], finding["status"]) == ("<= 0.667", "warn")
    assert report["verdict"]["usable"] == {"token": "yes", "sequence": "no"}
    assert run("compare", dump, "--json").json["recommendation"]["usable"] == report["verdict"]["usable"]
    assert not [note for note in report["notes"] if "tail values" in note]
    assert "pareto_k_seq" in run("check", dump).out
    assert [reason["code"] for reason in reasons(dump) if "pareto_k_seq" in reason["text"]] == ["heavy_tail"]


def test_a_rule_of_ones_own_holds_a_shape_of_any_size(tmp_path: Path) -> None:
    ran = run("check", dump_of(tmp_path, heavy(99)), "--max", "pareto_k_seq=0.7")
    assert ran.status == 1
    assert "pareto_k_seq" in ran.out


@pytest.mark.parametrize("n", [1, 2, 24])
def test_of_too_few_sequences_there_is_neither_shape_nor_limit(n: int, tmp_path: Path) -> None:
    metrics = run("analyze", dump_of(tmp_path, heavy(30)[:n]), "--json").json["metrics"]
    assert [metrics[f"pareto_k_seq{end}"] for end in ("", "_se", "_limit")] == [None, None, None]


def reasons(dump: str) -> list[dict[str, Any]]:
    """Why `compare` takes what it takes."""
    return run("compare", dump, "--json").json["recommendation"]["reasons"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pareto_k_seq", "Null with fewer than 25 sequences. With fewer than 100, no rule"),
        ("pareto_k_seq_se", "(1 + pareto_k_seq) / sqrt(min(B / 5, 3 sqrt B))"),
        ("pareto_k_seq_limit", "Null with fewer than 100 sequences"),
    ],
)
def test_explain_says_what_it_takes(name: str, says: str) -> None:
    assert says in " ".join(run("explain", name).out.split())
