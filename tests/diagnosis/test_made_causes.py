"""Causes that no dump of known cause has: made of a model of them, or of such a dump without some of its columns."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gap_oracle import Row, sample_of
from known_causes import DUMPS

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import Diagnosis
from rlcorr_cli.causes.features import Context
from rlcorr_cli.causes.judge import diagnose as diagnose_sample

N_ROWS, N_TOKENS = 48, 100


def made(sizes: np.ndarray, seed: int = 0) -> Diagnosis:
    """Of rows whose log-odds differ by noise of these sizes, f64[N_ROWS, N_TOKENS]."""
    draw = np.random.default_rng(seed)
    rows = []
    for i, size in enumerate(sizes):
        u = draw.normal(1.0, 2.0, N_TOKENS)
        v = u + draw.normal(0.0, 1.0, N_TOKENS) * size
        ids = draw.integers(0, 1000, N_TOKENS).tolist()
        b, a = (list(-np.logaddexp(0, -odds)) for odds in (u, v))
        rows.append(Row(rollout=b, train=a, ids=ids, key=i, number=i, prompt=i % 8, name=f"s{i:02}"))
    return diagnose_sample(sample_of(rows), Context())


def test_an_error_that_grows_along_the_row_is_named() -> None:
    along = 0.03 * (1 + np.arange(N_TOKENS)) ** 0.4
    found = made(np.tile(along, (N_ROWS, 1)))
    assert found.verdict == "position_grows"
    assert found.causes[0].parameters["size_after"] > 2 * found.causes[0].parameters["size_before"]
    sizes = [place.size for place in found.places if place.size is not None]
    assert sizes == sorted(sizes)


def test_an_error_that_fades_along_the_row_is_named() -> None:
    along = 0.3 * (1 + np.arange(N_TOKENS)) ** -0.4
    assert made(np.tile(along, (N_ROWS, 1))).verdict == "position_decays"


@pytest.mark.parametrize("onset", [12, 40, 60])
def test_an_onset_lies_in_its_interval(onset: int) -> None:
    along = np.where(np.arange(N_TOKENS) < onset, 0.05, 0.4)
    found = made(np.tile(along, (N_ROWS, 1)))
    assert found.verdict == "position_onset"
    low, high = found.causes[0].intervals["index"]
    assert low <= onset <= high
    assert high - low < onset
    assert found.causes[0].parameters["index"] == pytest.approx(onset, abs=4)


def test_far_rows_that_no_column_marks_are_named() -> None:
    of_rows = np.where(np.arange(N_ROWS) % 8 == 3, 0.5, 0.06)
    found = made(np.tile(of_rows[:, None], (1, N_TOKENS)))
    assert found.verdict == "some_rows"
    assert found.causes[0].parameters["rows"] == 6
    assert set(found.causes[0].parameters["ids"].split(", ")) <= {"s03", "s11", "s19", "s27", "s35", "s43"}
    # Their share is what they add to the others' noise: 6 x (.25 - .0036) of 42 x .0036 + 6 x .25.
    assert found.causes[0].share == pytest.approx(0.9, abs=0.05)


def test_noise_of_one_size_has_no_other_cause() -> None:
    for seed in range(3):
        assert [cause.cause for cause in made(np.full((N_ROWS, N_TOKENS), 0.08), seed).causes] == ["noise"]


@pytest.mark.parametrize("name", ["stale_1", "stale_4"])
def test_staleness_without_advantages_is_drift(name: str) -> None:
    table = pq.read_table(DUMPS / f"{name}.parquet").drop_columns(["reward", "advantage"])
    result = diagnose(table)
    assert result.verdict == "drift"
    assert "stale_policy" in [each.cause for each in result.whole.diagnosis.not_looked_for]


@pytest.mark.parametrize("name", ["rep11", "rep103"])
def test_without_token_ids_no_repetition_is_named(name: str) -> None:
    result = diagnose(pq.read_table(DUMPS / f"{name}.parquet").drop_columns(["token_ids"]))
    assert "repetition_penalty" not in [cause.cause for cause in result.causes]
    assert "repetition_penalty" in [each.cause for each in result.whole.diagnosis.not_looked_for]


def test_a_lag_that_no_column_holds_is_staleness() -> None:
    table = pq.read_table(DUMPS / "stale_mixed_versions.parquet").drop_columns(["step", "policy_version"])
    assert diagnose(table).verdict == "stale_policy"


def test_a_bad_worker_that_no_column_holds_leaves_its_rows() -> None:
    result = diagnose(pq.read_table(DUMPS / "worker_temp09.parquet").drop_columns(["worker"]))
    assert result.verdict == "some_rows"
    assert result.causes[0].parameters["rows"] >= 10


def test_one_noisy_level_makes_no_heavy_tail_beside_itself() -> None:
    draw = np.random.default_rng(0)
    columns: dict[str, list[object]] = {"worker": [], "rollout_log_probs": [], "old_log_probs": []}
    for i in range(N_ROWS):
        u = draw.normal(1.0, 2.0, N_TOKENS)
        v = u + draw.normal(0.0, 0.5 if i % 4 == 2 else 0.06, N_TOKENS)
        row = {"worker": f"w{i % 4}", "rollout_log_probs": -np.logaddexp(0, -u), "old_log_probs": -np.logaddexp(0, -v)}
        for name, value in row.items():
            columns[name].append(value)
    found = diagnose(pa.table(columns)).whole.diagnosis
    assert found.verdict == "column"
    assert "heavy_tail" not in [cause.cause for cause in found.causes]


def test_rounding_makes_no_heavy_tail_beside_itself() -> None:
    table = pq.read_table(DUMPS / "clean_fp32.parquet")
    rounded = [[round(value, 3) for value in row] for row in table["rollout_log_probs"].to_pylist()]
    result = diagnose(with_rollout(table, rounded))
    assert result.verdict == "grid"
    assert "heavy_tail" not in [cause.cause for cause in result.causes]


@pytest.mark.parametrize("name", ["tool_clean", "noise_bf16_fp32"])
def test_scaled_log_probs_are_those_of_no_distribution(name: str) -> None:
    table = pq.read_table(DUMPS / f"{name}.parquet")
    scaled = [[value / 0.8 for value in row] for row in table["rollout_log_probs"].to_pylist()]
    assert diagnose(with_rollout(table, scaled)).verdict == "unnormalised"


def with_rollout(table: pa.Table, values: list[list[float]]) -> pa.Table:
    """The same dump with another rollout column."""
    at = table.schema.get_field_index("rollout_log_probs")
    return table.set_column(at, "rollout_log_probs", pa.array(values))


def test_a_cut_of_some_rows_is_not_said_to_hold_everywhere() -> None:
    columns = ["rollout_log_probs", "old_log_probs", "response_mask"]
    both = [pq.read_table(DUMPS / f"{name}.parquet", columns=columns) for name in ("top_p08", "noise_bf16_fp32")]
    result = diagnose(pa.concat_tables(both))
    assert result.verdict == "top_p"
    words = " ".join(result.causes[0].evidence)
    assert "nowhere else" not in words
    assert "1,605 in 48 rows, as a cut makes them, and on none in the other 48" in words
    assert "a cut on some rows (48 of 96)" in result.causes[0].headline
    assert (result.causes[0].certainty, result.causes[0].parameters) == ("likely", {"rows": 48})
