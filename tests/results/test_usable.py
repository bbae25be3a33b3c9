"""Which weights are usable: never more of the worse dump, and known where there are enough rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.results.usable import ANSWERS, Usable, usable_weights

SAMPLES = Path(__file__).parents[2] / "sample_data"
BETTER, WORSE = (pq.read_table(SAMPLES / f"smollm2_{kind}.parquet") for kind in ("bf16", "int8"))
KNOWN = {"token_ess": 0.99, "seq_ess": 0.9, "pareto_k_seq": 0.3, "pareto_k_seq_se": 0.1, "pareto_k_seq_limit": 0.6}


def usable(table: pa.Table, **options: Any) -> Usable:
    return analyze(table, **options).verdict.usable


def resampled(table: pa.Table, n: int, seed: int, length: int = 85) -> pa.Table:
    """Rows whose tokens are drawn from all tokens of a dump."""
    draw = np.random.default_rng(seed)
    rollout, train = (np.concatenate(table[name].to_pylist()) for name in ("rollout_log_probs", "old_log_probs"))
    places = [draw.integers(0, len(rollout), length) for _ in range(n)]
    return pa.table(
        {
            "sample_id": [str(row) for row in range(n)],
            "rollout_log_probs": [rollout[each] for each in places],
            "old_log_probs": [train[each] for each in places],
        }
    )


@pytest.mark.parametrize("cluster_by", [None, "none"])
def test_the_worse_dump_is_never_more_usable_than_the_better(cluster_by: str | None) -> None:
    draw = np.random.default_rng(2)
    answers: list[tuple[Usable, Usable]] = []
    for _ in range(40):
        rows = pa.array(np.sort(draw.choice(64, 48, replace=False)))
        worse, better = (usable(table.take(rows), cluster_by=cluster_by) for table in (WORSE, BETTER))
        answers.append((worse, better))
    ranks = [[ANSWERS.index(each.sequence) for each in pair] for pair in answers]
    assert [pair for pair in ranks if pair[0] > pair[1]] == []
    assert {each.token for pair in answers for each in pair} == {"yes"}


@pytest.mark.parametrize("seed", range(4))
def test_with_1000_rows_the_answer_is_known(seed: int) -> None:
    assert usable(resampled(BETTER, 1000, seed)) == usable(resampled(WORSE, 1000, seed)) == answer("yes")


def test_with_1000_long_rows_sequence_weights_are_known_to_be_unusable() -> None:
    assert usable(resampled(WORSE, 1000, 0, length=400)) == answer("no")


def answer(sequence: Any, token: Any = "yes") -> Usable:
    return Usable(token=token, sequence=sequence)


@pytest.mark.parametrize(
    ("changes", "n_clusters", "says"),
    [
        ({}, 1000, answer("yes")),
        ({"pareto_k_seq": 0.49}, 1000, answer("yes")),
        ({"seq_ess": 0.45, "pareto_k_seq": 0.49}, 1000, answer("yes")),
        ({"seq_ess": 0.45, "pareto_k_seq": 0.51}, 1000, answer("unsure")),
        ({"pareto_k_seq": 0.69}, 1000, answer("yes")),
        ({"pareto_k_seq": 0.71}, 1000, answer("no")),
        ({"pareto_k_seq_limit": None}, 64, answer("yes")),
        ({"seq_ess": 0.45, "pareto_k_seq_limit": None}, 64, answer("unsure")),
        ({"seq_ess": 0.332}, 1000, answer("yes")),
        ({"seq_ess": 0.32}, 1000, answer("unsure")),
        ({"seq_ess": 0.25}, 1000, answer("no")),
        ({"seq_ess": 0.27}, 8, answer("unsure")),
        ({"seq_ess": None}, 1000, answer("no")),
        ({"token_ess": 0.51}, 1000, answer("unsure", "unsure")),
        ({"token_ess": 0.55}, 1000, answer("yes")),
        ({"token_ess": 0.4}, 1000, answer("no", "no")),
    ],
)
def test_an_answer_is_known_beyond_what_its_errors_allow(
    changes: dict[str, Any], n_clusters: int, says: Usable
) -> None:
    assert usable_weights({**KNOWN, **changes}, n_clusters) == says
