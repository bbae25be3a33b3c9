"""`filter --coef`: the coefficient of every token, and the divisors that make gradients of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, SAMPLE, STEPS, analyzed, parquet, refused, run, run_process

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "objectives.json").read_text())
WITH_REJECTION = ("--preset", "token_is", "--rs", "ratio.token:0.9,1.1")


def filtered(path: Path, *args: str) -> tuple[pl.DataFrame, Any]:
    """The rows that filter writes, and what it prints as JSON."""
    ran = run("filter", *args, "-o", str(path), "--rejected", "keep", "--json")
    return pl.read_parquet(path), ran.json


def sums(rows: pl.DataFrame) -> list[float]:
    """Of each step's coefficients."""
    of_steps = rows.sort("step").partition_by("step", maintain_order=True)
    return [sum(map(sum, part["rlcorr_coef"].to_list())) for part in of_steps]


def test_coefficients_over_the_divisor_are_those_of_the_report(tmp_path: Path) -> None:
    rows, document = filtered(tmp_path / "c.parquet", STEPS, *WITH_REJECTION, "--coef", "raw")
    batches = analyzed(STEPS, *WITH_REJECTION, "--objective", "ppo")["objective"]["batches"]
    coefs = document["output"]["coefs"]
    assert coefs["batches"] == [[batch["batch"], batch["divisor"]] for batch in batches]
    assert (coefs["divisor"], coefs["batch_by"], coefs["divided"]) == ("kept tokens", "step", False)
    for total, batch in zip(sums(rows), batches, strict=True):
        assert total / batch["divisor"] == pytest.approx(batch["metrics"]["coef_sum"], rel=1e-5)


def test_divided_ones_add_up_to_it_at_once(tmp_path: Path) -> None:
    plain, _ = filtered(tmp_path / "a.parquet", STEPS, *WITH_REJECTION, "--coef", "raw")
    divided, document = filtered(tmp_path / "b.parquet", STEPS, *WITH_REJECTION, "--coef", "normalized")
    assert document["output"]["coefs"]["divided"]
    divisors = [divisor for _, divisor in document["output"]["coefs"]["batches"]]
    assert len(set(divisors)) > 1
    np.testing.assert_allclose(sums(divided), np.array(sums(plain)) / divisors, rtol=1e-5)


def test_masked_and_rejected_tokens_have_none(tmp_path: Path) -> None:
    rows, _ = filtered(tmp_path / "c.parquet", BF16, *WITH_REJECTION, "--coef", "raw")
    keep = np.concatenate(rows["response_mask"].to_list()) > 0
    coefs = np.concatenate(rows["rlcorr_coef"].to_list())
    advantages = np.repeat(rows["advantage"].to_numpy(), rows["response_mask"].list.len().to_numpy())
    assert 0 < keep.sum() < len(keep)
    assert (coefs[~keep] == 0).all()
    assert (np.sign(coefs[keep]) == -np.sign(advantages[keep])).all()


def test_they_are_verls_under_autograd(tmp_path: Path) -> None:
    (case,) = (
        case
        for case in GOLDEN["cases"]
        if (case["name"], case["input"]) == ("decoupled-token-is", "sequence_advantages")
    )
    dump = parquet(tmp_path / "d.parquet", GOLDEN["inputs"]["sequence_advantages"])
    rows, document = filtered(tmp_path / "c.parquet", dump, "--preset", "token_is", "--coef", "normalized")
    assert document["output"]["coefs"]["batches"] == [[None, 42.0]]
    for coefs, expected in zip(rows["rlcorr_coef"].to_list(), case["expected"]["coef"], strict=True):
        np.testing.assert_allclose(coefs, expected, rtol=1e-6, atol=1e-12)


def test_weights_of_batch_mean_1_are_in_them(tmp_path: Path) -> None:
    weights = (BF16, "--is", "token:,2", "--coef", "raw")
    plain, _ = filtered(tmp_path / "a.parquet", *weights)
    normed, document = filtered(tmp_path / "b.parquet", *weights, "--normalize", "batch")
    factor = document["metrics"]["rollout_is_batch_norm_factor"]
    np.testing.assert_allclose(sums(normed), np.array(sums(plain)) / factor, rtol=1e-5)


def test_divisors_are_in_the_files_metadata(tmp_path: Path) -> None:
    _, document = filtered(
        tmp_path / "c.parquet", STEPS, "--preset", "geo_rs", "--coef", "raw", "--loss-agg", "seq-mean-token-sum"
    )
    about = json.loads(pq.read_metadata(tmp_path / "c.parquet").metadata[b"rlcorr"])
    assert about["coefs"] == document["output"]["coefs"]
    assert about["coefs"]["divisor"] == "kept sequences"


def test_coefficients_of_no_correction_can_be_written(tmp_path: Path) -> None:
    rows, _ = filtered(tmp_path / "c.parquet", BF16, "--coef", "raw", "--objective", "reinforce")
    assert "rollout_is_weights" not in rows.columns
    for coefs, advantage in zip(rows["rlcorr_coef"].to_list(), rows["advantage"].to_list(), strict=True):
        np.testing.assert_allclose(coefs, -advantage, rtol=1e-6)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    out = ("-o", str(tmp_path / "c.parquet"))
    plan = ("--preset", "token_is")
    refused(
        run("filter", str(SAMPLE / "smollm2_int8.parquet"), *plan, "--coef", "raw", *out), 3, "no column for advantages"
    )
    refused(run("filter", BF16, *plan, "--objective", "ppo", *out), 2, "Without --coef")
    refused(run("filter", BF16, *plan, "--coef", "raw", "--resample", "5", *out), 2, "--resample", "--coef")
    lines = (SAMPLE / "smollm2_bf16.jsonl").read_text()
    once = run_process("filter", "-", *plan, "--coef", "normalized", *out, stdin=lines)
    refused(once, 2, "standard input can be read only once")
    refused(run("filter", BF16, *out), 2, "corrects nothing")
    assert run("filter", BF16, *plan, "--coef", "raw", *out).status == 0
    refused(
        run("filter", str(tmp_path / "c.parquet"), *plan, "--coef", "raw", "-o", str(tmp_path / "d.parquet")),
        3,
        "rlcorr_coef",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.parquet"]


def test_lines_are_written_as_parquet_with_the_types_of_a_parquet_dump(tmp_path: Path) -> None:
    """Those of which the first rows tell nothing, too: nothing is rejected in them."""
    lines = tmp_path / "d.jsonl"
    rows = pl.read_parquet(BF16).drop("response_mask")
    rows.write_parquet(tmp_path / "d.parquet")
    rows.write_ndjson(lines)
    types = []
    for dump in (lines, tmp_path / "d.parquet"):
        out = tmp_path / f"{dump.suffix[1:]}_out.parquet"
        assert run("filter", str(dump), "--preset", "token_is", "--coef", "raw", "-o", str(out)).status == 0
        schema = pq.read_schema(out)
        types.append({name: schema.field(name).type for name in schema.names if name not in rows.columns})
    assert types[0] == types[1]
    assert types[0]["rlcorr_coef"] == pa.list_(pa.float32())
