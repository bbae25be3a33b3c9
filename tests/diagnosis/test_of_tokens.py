"""Columns of each token: kept sets of a truncated sampler, and versions of weights within rows."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS
from numpy.typing import NDArray

from rlcorr_cli import analyze, diagnose
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


def softmax(logits: Column) -> Column:
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def heads(k: int, *, both_ids: bool = True, seed: int = 0) -> tuple[pa.Table, float, float, float]:
    """Rows of two policies over 12 tokens, their heads of k, and the distances over head and tail by slow loops, and
    the whole TV."""
    rng = np.random.default_rng(seed)
    table: list[dict[str, Any]] = []
    tvs, kls, wholes = list[float](), list[float](), list[float]()
    for i in range(40):
        q = softmax(rng.normal(0, 2, (25, 12)))
        p = softmax(np.log(q) + rng.normal(0, 0.2, q.shape))
        ids = np.argsort(-q, -1)[:, :k]
        theirs = np.argsort(-p, -1)[:, :k] if both_ids else ids
        drawn = [int(rng.choice(12, p=each)) for each in q]
        for t in range(25):
            shared = [int(v) for v in ids[t] if v in theirs[t]]
            tail_q, tail_p = (max(1 - sum(x[t, v] for v in shared), 1e-6) for x in (q, p))
            tvs.append((sum(abs(q[t, v] - p[t, v]) for v in shared) + abs(tail_q - tail_p)) / 2)
            kl = sum(q[t, v] * np.log(q[t, v] / p[t, v]) for v in shared)
            kls.append(kl + tail_q * np.log(tail_q / tail_p))
            wholes.append(abs(q[t] - p[t]).sum() / 2)
        row = {
            "sample_id": f"s{i}",
            "rollout_log_probs": [float(np.log(q[t, v])) for t, v in enumerate(drawn)],
            "old_log_probs": [float(np.log(p[t, v])) for t, v in enumerate(drawn)],
            "rollout_topk_token_ids": ids.tolist(),
            "rollout_topk_log_probs": np.log(np.take_along_axis(q, ids, -1)).tolist(),
            "old_topk_log_probs": np.log(np.take_along_axis(p, theirs, -1)).tolist(),
        }
        table.append(row | ({"old_topk_token_ids": theirs.tolist()} if both_ids else {}))
    return pa.Table.from_pylist(table), float(np.mean(tvs)), float(np.mean(kls)), float(np.mean(wholes))


@pytest.mark.parametrize(("k", "both_ids"), [(4, True), (4, False), (12, True)])
def test_heads_give_distances_without_sampling_noise(k: int, both_ids: bool) -> None:
    table, tv, kl, whole = heads(k, both_ids=both_ids)
    found = diagnose(table).diagnosis
    assert found.gap.head is not None
    assert found.gap.head.tokens == 1000
    assert found.gap.head.tv == pytest.approx(tv, rel=1e-9)
    assert found.gap.head.kl == pytest.approx(kl, rel=1e-6)
    assert found.gap.head.tv <= whole * (1 + 1e-9)
    assert (k < 12) == (found.gap.head.tv < whole * 0.999)
    (sentence,) = [fact.sentence for fact in found.facts if fact.name == "heads"]
    assert f"the total variation is {found.gap.head.tv:.2g}" in sentence
    assert "(1,000 tokens; the k3" in sentence
    assert sentence in analyze(table).notes


@pytest.mark.parametrize("wrong", ["short", "null", "mass", "none"])
def test_heads_that_do_not_fit_are_left_aside(wrong: str) -> None:
    table, *_ = heads(4)
    rows = table.to_pylist()
    for row in rows:
        values = row["old_topk_log_probs"]
        row["old_topk_log_probs"] = {
            "short": values[:-1],
            "null": [None] * len(values),
            "mass": [[0.0] * 4] * len(values),
            "none": None,
        }[wrong]
    found = diagnose(pa.Table.from_pylist(rows, schema=table.schema))
    assert found.diagnosis.gap.head is None
    assert "head" not in found.to_dict()["gap"]


def test_padding_of_heads_is_in_the_tail() -> None:
    table, *_ = heads(4)
    rows = table.to_pylist()
    for row in rows:
        for side in ("rollout", "old"):
            row[f"{side}_topk_token_ids"] = [[*ids, -1] for ids in row[f"{side}_topk_token_ids"]]
            row[f"{side}_topk_log_probs"] = [[*logps, 0.0] for logps in row[f"{side}_topk_log_probs"]]
    assert diagnose(pa.Table.from_pylist(rows)).diagnosis.gap.head == diagnose(table).diagnosis.gap.head
