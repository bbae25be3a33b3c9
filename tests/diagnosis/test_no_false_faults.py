"""Clean dumps of which a fault was said once, and dumps with one; `tests/benchmarks/faults.py` makes more of them."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from faults import (
    NUMBERS,
    at,
    decimals,
    log_softmax,
    mispaired,
    noisy,
    on_grid,
    probabilities_in,
    rounded,
    said,
    sampled,
    softmax_in,
    sure,
    table,
)

from rlcorr_cli import diagnose

ENGINES = {
    "bf16": softmax_in(NUMBERS["bf16"]),
    "fp16": softmax_in(NUMBERS["fp16"]),
    "log of bf16": probabilities_in(NUMBERS["bf16"]),
    "log of fp8": probabilities_in(NUMBERS["fp8"]),
    "1 decimal": decimals(1),
    "2 decimals": decimals(2),
}


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_noisy_prompt_are_not_of_two_responses(seed: int, samples: int) -> None:
    dump = noisy(np.random.default_rng(seed), 32, samples, size=1.0, by_prompt=0.7)
    verdict, faults = said(dump)
    assert (faults, verdict) == ([], "other_weights")


@pytest.mark.parametrize("of_prompt", [False, True])
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_swapped_rows_are_of_two_responses_within_a_prompt_too(share: float, of_prompt: bool) -> None:
    verdict, _ = said(mispaired(share, of_prompt=of_prompt)(np.random.default_rng(0)))
    assert verdict == "mispaired_rows"


def test_the_evidence_of_swapped_rows_is_that_no_policy_drew_them() -> None:
    found = diagnose(DUMPS / "mispaired_5pct.parquet").causes[0]
    assert found.evidence[1].startswith("Neither policy can have drawn their tokens: the mean ratio is ")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.full
def test_a_grid_as_wide_as_the_gap_next_to_0_is_no_truncation(engine: str) -> None:
    for seed in range(2):
        assert said(on_grid(ENGINES[engine])(np.random.default_rng(seed)))[1] == []


def test_a_log_softmax_in_bf16_is_a_grid_that_makes_the_gap() -> None:
    draw = np.random.default_rng(0)
    logits = sure(draw, (64, 60, 80))
    drawn = sampled(draw, log_softmax(logits))
    other = logits + 0.003 * draw.normal(size=logits.shape)
    found = diagnose(table(at(ENGINES["bf16"](logits), drawn), at(log_softmax(other), drawn), drawn, 8))
    (fact,) = found.whole.diagnosis.facts
    assert fact.sentence.startswith("rollout_log_probs is stored in steps of 0.0312: its rounding makes ")
    assert found.verdict == "grid"
    assert found.causes[0].share > 0.6


@pytest.mark.parametrize(("name", "cause"), [("min_p005", "min_p"), ("top_p08", "top_p"), ("top_p095", "top_p")])
def test_a_truncation_stored_in_bf16_stays_proven(name: str, cause: str) -> None:
    dump = pq.read_table(DUMPS / f"{name}.parquet")
    place = dump.schema.get_field_index("rollout_log_probs")
    stored = [rounded(np.array(row), NUMBERS["bf16"]).tolist() for row in dump["rollout_log_probs"].to_pylist()]
    dump = dump.set_column(place, "rollout_log_probs", pa.array(stored, pa.list_(pa.float32())))
    found = diagnose(dump).whole.diagnosis
    assert (found.verdict, found.certainty) == (cause, "proven")
