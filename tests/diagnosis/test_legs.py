"""A third policy's log-probs: the gap is split over its two legs, and the cause sought on each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS

from rlcorr_cli import analyze, convert, diagnose
from rlcorr_cli.causes.diagnosis import Leg

FAULTY = pq.read_table(DUMPS / "temp09_processed_vs_raw.parquet")


def near(column: str, size: float) -> pa.Array:
    """Log-probs as far from a column's as noise of this size in log-odds leaves them."""
    rng = np.random.default_rng(0)
    rows = []
    for row in FAULTY[column].to_pylist():
        logp = np.minimum(np.array(row), -1e-5)
        odds = logp - np.log(-np.expm1(logp)) + rng.normal(size=logp.size) * size
        rows.append((-np.logaddexp(0, -odds)).tolist())
    return pa.array(rows)


def squares(table: pa.Table, first: str, last: str) -> tuple[float, float]:
    """Of the log-ratio between two columns: its product with that from rollout to old, and its sum of squares."""
    columns = {name: np.concatenate(table[name].to_pylist()) for name in (first, last)}
    whole = np.concatenate(table["old_log_probs"].to_pylist()) - np.concatenate(table["rollout_log_probs"].to_pylist())
    log_ratio = columns[last] - columns[first]
    return float(log_ratio @ whole / (whole @ whole)), float(log_ratio @ log_ratio)


@pytest.fixture(scope="module")
def at_decode() -> pa.Table:
    """A temperature that decode alone has: the engine's own prefill agrees with training."""
    return FAULTY.append_column("prefill_log_probs", near("old_log_probs", 0.03))


def legs(table: Any, **options: Any) -> tuple[Leg, ...]:
    """Of a dump's diagnosis."""
    return diagnose(table, **options).whole.diagnosis.legs


def test_shares_of_legs_add_and_the_cause_is_sought_on_each(at_decode: pa.Table) -> None:
    decode, prefill = legs(at_decode)
    assert (decode.first, decode.last) == ("rollout_log_probs", "prefill_log_probs")
    assert (prefill.first, prefill.last) == ("prefill_log_probs", "old_log_probs")
    for leg in (decode, prefill):
        share, sum_sq = squares(at_decode, leg.first, leg.last)
        assert leg.share == pytest.approx(share, rel=1e-9)
        assert leg.sum_sq == pytest.approx(sum_sq, rel=1e-9)
    assert decode.share + prefill.share == pytest.approx(1)
    assert (decode.verdict, prefill.verdict) == ("temperature", "noise")


def test_a_gap_of_the_prefill_lies_on_the_second_leg() -> None:
    table = FAULTY.append_column("rescored", near("rollout_log_probs", 0.03))
    decode, prefill = legs(table, map={"prefill_log_probs": "rescored"})
    assert prefill.share > 0.95
    assert (decode.verdict, prefill.verdict) == ("noise", "temperature")


def test_an_updated_policy_is_a_leg_after_the_old_one() -> None:
    table = FAULTY.append_column("current_log_probs", near("old_log_probs", 0.1))
    engines, updates = legs(table)
    assert (engines.last, updates.first, updates.last) == ("old_log_probs", "old_log_probs", "current_log_probs")
    assert engines.share + updates.share == pytest.approx(1)
    assert 0.02 < updates.share < 0.3


def test_an_answer_of_trace_replay_joins_as_the_third_policy(tmp_path: Path) -> None:
    dump, replayed, joined = (tmp_path / name for name in ("dump.parquet", "replayed.jsonl", "joined.parquet"))
    names = ["sample_id", "token_ids", "rollout_log_probs"]
    ids = pa.array([f"s{i}" for i in range(len(FAULTY))])
    pq.write_table(FAULTY.drop_columns("sample_id").append_column("sample_id", ids), dump)
    # The engine's decode without what the run did to it: as manual/dumps.md writes it.
    answers = pa.table([ids, FAULTY["token_ids"], near("old_log_probs", 0.03)], names=names).to_pylist()
    replayed.write_text("".join(f"{json.dumps(row)}\n" for row in reversed(answers)))
    convert(str(dump), join=str(replayed), on="sample_id", output=str(joined))
    own, trained = legs(str(joined))
    assert (own.first, own.last, trained.last) == ("rollout_log_probs", "rescored_log_probs", "old_log_probs")
    assert (own.verdict, trained.verdict) == ("temperature", "noise")
    assert own.share > 0.95


def test_a_sentence_says_it_in_analyze_and_saved_totals_keep_it(at_decode: pa.Table, tmp_path: Path) -> None:
    saved = tmp_path / "part.rlcorr"
    report = analyze(at_decode, output=saved)
    start = (
        "Of the gap between rollout_log_probs and old_log_probs, 100% lies between rollout_log_probs and prefill_log"
    )
    assert report.story.legs.startswith(start)
    assert analyze(saved).story.legs == report.story.legs
    assert analyze(FAULTY).story.legs == ""
    assert "legs" not in diagnose(FAULTY).to_dict()


def test_rows_whose_prefill_is_no_log_prob_are_left_out(at_decode: pa.Table) -> None:
    columns = at_decode["prefill_log_probs"].to_pylist()
    columns[0], columns[1] = columns[0][:-1], [float("nan"), *columns[1][1:]]
    place = at_decode.schema.get_field_index("prefill_log_probs")
    damaged = at_decode.set_column(place, "prefill_log_probs", pa.array(columns))
    assert legs(damaged) == legs(at_decode.slice(2))
