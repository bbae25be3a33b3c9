"""Columns of each token: kept sets of a truncated sampler, and versions of weights within rows."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS
from numpy.typing import NDArray

from rlcorr_cli import diagnose
from rlcorr_cli.results.diagnosed import DiagnosedDump

Column = NDArray[np.float64]
ROWS = pq.read_table(DUMPS / "top_p095.parquet").to_pylist()
"""Log-probs of the rollout are over the kept sets of top-p 0.95: exactly 0 where one token was kept."""
MASS = 0.96


def sizes(row: dict[str, Any]) -> list[int]:
    return [1 if b == 0 else 2 + i % 9 for i, b in enumerate(row["rollout_log_probs"])]


def dump(**columns: Any) -> pa.Table:
    """The rows with columns made of each: a function of a row's rollout and training columns and its sizes."""
    table: list[dict[str, Any]] = []
    for row in ROWS:
        b, a = (np.array(row[name]) for name in ("rollout_log_probs", "old_log_probs"))
        made = {name: make(b, a, np.array(sizes(row))) for name, make in columns.items()}
        kept = {name: row[name] for name in ("sample_id", "group_id", "rollout_log_probs", "old_log_probs")}
        table.append({**kept, **made})
    return pa.Table.from_pylist(table)


def over_set(_b: Column, a: Column, size: NDArray[np.int64]) -> list[float]:
    """Training's log-probs, renormalised over the kept set."""
    return np.where(size == 1, 0.0, np.minimum(0, a - np.log(MASS))).tolist()


def kept(_b: Column, _a: Column, size: NDArray[np.int64]) -> list[int]:
    return size.tolist()


def facts(found: DiagnosedDump) -> str:
    return " ".join(fact.sentence for fact in found.diagnosis.facts if fact.name == "kept_sets")


def test_singletons_are_counted_and_the_gap_is_told_without_them() -> None:
    table = dump(old_log_probs=over_set, kept_set_size=kept)
    found = diagnose(table)
    alone = np.concatenate([sizes(row) for row in ROWS]) == 1
    a, b = (np.concatenate(table[name].to_pylist()) for name in ("old_log_probs", "rollout_log_probs"))
    log_ratio = (a - b)[~alone]
    k3 = (np.expm1(log_ratio) - log_ratio).mean()
    said = facts(found)
    assert f"{alone.mean():.0%} of the tokens are the only one that their sampler kept: both columns are over" in said
    assert float(said.split("k3_kl is ")[1].split(",")[0]) == pytest.approx(k3, rel=0.05)
    assert float(said.split("log-ratio ")[1].rstrip(".")) == pytest.approx(log_ratio.std(), rel=0.05)
    # Truncated on both sides alike, it is no cause.
    assert found.verdict == "noise"


def test_a_column_that_is_not_over_the_kept_sets_is_named_with_what_to_subtract() -> None:
    found = diagnose(dump(kept_set_size=kept))
    assert found.verdict == "top_p"
    assert "rollout_log_probs is over the kept sets and 0 there, old_log_probs is not" in facts(found)
    assert "Subtract from old_log_probs the log of the kept tokens' probabilities" in facts(found)
    raw = diagnose(dump(rollout_log_probs=lambda b, a, _: np.minimum(b - 0.01, -1e-3).tolist(), kept_set_size=kept))
    assert "neither column is over the kept sets" in facts(raw)


def test_the_ids_of_kept_tokens_serve_as_well_as_their_number() -> None:
    by_ids = dump(
        old_log_probs=over_set,
        sampling_mask=lambda _b, _a, size: [list(range(n)) for n in size],
    )
    assert facts(diagnose(by_ids)) == facts(diagnose(dump(old_log_probs=over_set, kept_set_size=kept))) != ""


@pytest.mark.parametrize(
    "column",
    [
        lambda _b, _a, size: size.tolist()[:-1],
        lambda _b, _a, size: [None] * len(size),
        lambda _b, _a, size: [2] * len(size),
        lambda _b, _a, _size: None,
        lambda _b, _a, size: [float("nan")] * len(size),
    ],
)
def test_sizes_that_tell_nothing_are_left_aside(column: Any) -> None:
    assert facts(diagnose(dump(kept_set_size=column))) == ""
    assert diagnose(dump(policy_versions=column)).diagnosis.gap.by_version == ()


def test_masked_tokens_count_in_no_share() -> None:
    masked = dump(
        old_log_probs=over_set,
        kept_set_size=kept,
        response_mask=lambda _b, _a, size: [int(n != 1 or i % 2) for i, n in enumerate(size)],
    )
    flags = np.concatenate([[(n == 1, n != 1 or i % 2) for i, n in enumerate(sizes(row))] for row in ROWS])
    share = flags[flags[:, 1] > 0, 0].mean()
    assert f"{share:.0%} of the tokens are the only one" in facts(diagnose(masked))


def test_the_gap_within_rows_is_told_by_version() -> None:
    rng = np.random.default_rng(0)

    def versions(_b: Column, _a: Column, size: NDArray[np.int64]) -> list[int]:
        return [7] * (len(size) // 2) + [9] * (len(size) - len(size) // 2)

    def older_half_moved(_b: Column, a: Column, _size: NDArray[np.int64]) -> list[float]:
        older = np.arange(a.size) < a.size // 2
        return np.minimum(0, a + older * rng.normal(0, 0.5, a.size)).tolist()

    table = dump(policy_versions=versions, old_log_probs=older_half_moved)
    found = diagnose(table)
    newest, older = found.diagnosis.gap.by_version
    assert (newest.behind, older.behind) == (0, 2)
    parts = [(np.array(b), np.array(a)) for b, a in zip(*(table[n].to_pylist() for n in LISTS), strict=True)]
    l_old = np.concatenate([(a - b)[: len(a) // 2] for b, a in parts])
    l_all = np.concatenate([a - b for b, a in parts])
    assert older.tokens == len(l_old)
    assert older.gap == pytest.approx((l_old**2).sum() / (l_all**2).sum())
    assert older.k3 == pytest.approx((np.expm1(l_old) - l_old).mean())
    assert newest.gap + older.gap == pytest.approx(1)
    assert [each["behind"] for each in json.loads(json.dumps(found.to_dict()))["gap"]["by_version"]] == [0, 2]
    # Rows of one version each tell nothing within a row.
    assert diagnose(dump(policy_versions=lambda _b, _a, size: [7] * len(size))).diagnosis.gap.by_version == ()


LISTS = ("rollout_log_probs", "old_log_probs")


def test_a_sample_of_parts_tells_what_the_whole_does(tmp_path: Any) -> None:
    table = dump(old_log_probs=over_set, kept_set_size=kept)
    pq.write_table(table.slice(0, 17), tmp_path / "a.parquet")
    pq.write_table(table.slice(17), tmp_path / "b.parquet")
    assert facts(diagnose(tmp_path)) == facts(diagnose(table))
