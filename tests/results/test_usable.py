"""Which weights are usable: never more of the worse dump, and known where there are enough rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import analyze, compare
from rlcorr_cli.measure.bootstrap import resample
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.results.usable import ANSWERS, Usable, usable_weights
from rlcorr_cli.show.words import verdict_sentences as words
from rlcorr_cli.totals.row_keys import mix

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
@pytest.mark.full
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


def log_weights(m: int, k: int, sd: float, *, share: float = 0.0, factor: float = 1.0, seed: int = 3) -> Any:
    """S ~ N(-v / 2, v) of k samples of each of m prompts, f64[m, k]; sqrt v is factor times sd in the last of them."""
    sds = np.where(np.arange(m) >= m * (1 - share), factor * sd, sd)[:, None]
    return sds * np.random.default_rng(seed).standard_normal((m, k)) - sds**2 / 2


def prompts(s: Any, seed: int = 1) -> pa.Table:
    """Rows of 4 tokens, each a fourth of its S."""
    b = -2 - np.random.default_rng(seed).random((s.size, 4))
    return pa.table(
        {
            "group_id": np.repeat(np.arange(len(s)), s.shape[1]),
            "sample_id": [str(row) for row in range(s.size)],
            "rollout_log_probs": list(b),
            "old_log_probs": list(b + s.reshape(-1, 1) / 4),
        }
    )


def clusters_of(s: Any, sizes: Any) -> Clusters:
    """What is told of clusters of these sizes, f64[sum of sizes]."""
    of_rows = np.repeat(np.arange(len(sizes)), sizes)
    columns = Columns(sums={"sequence_log_ratio_sq": s**2, "sequences": np.ones(len(s))})
    found = Clusters.of("group_id", resample(mix(of_rows.astype(np.uint64) + 1), 0, columns))
    assert found is not None
    return found


def test_sequence_weights_are_unsure_where_few_prompts_carry_their_variance() -> None:
    dump = prompts(log_weights(200, 5, 0.3, share=0.03, factor=6, seed=5))
    report = analyze(dump)
    assert report.metrics["seq_ess"] > 0.85
    assert report.verdict.usable == compare(dump).recommendation.usable == answer("unsure")
    assert words(report).startswith(
        "Verdict: close (k3_kl below 0.01). Token-level importance weights are usable; 200 prompts are too few to tell "
        "if sequence-level ones are, because few of them carry most of the variance."
    )
    reasons = [reason.text for reason in compare(dump, preset=["seq_is"]).recommendation.reasons]
    assert (
        "decoupled_seq_is weights whole sequences; 200 prompts are too few to tell if such weights are usable, because "
        "few of them carry most of the variance."
    ) in reasons
    alike = analyze(prompts(log_weights(200, 5, 0.5)))
    assert alike.metrics["seq_ess"] < 0.85
    assert alike.verdict.usable == answer("yes")


def test_few_prompts_leave_sequence_weights_unsure_because_hard_ones_may_be_missing() -> None:
    report = analyze(prompts(log_weights(32, 8, 0.5)))
    assert report.metrics["seq_ess"] > 0.7
    assert report.verdict.usable == answer("unsure")
    assert "32 prompts are too few to tell if sequence-level ones are." in words(report)
    assert analyze(prompts(log_weights(32, 8, 0.15))).verdict.usable == answer("yes")


@pytest.mark.parametrize(
    ("n_sequences", "n_prompts", "seq_ess", "says"),
    [
        (1000, 160, 0.7, "yes"),
        (1000, 159, 0.7, "unsure"),
        (999, 160, 0.7, "unsure"),
        (999, 159, 0.9, "yes"),
        (256, 32, 0.92, "yes"),
        (256, 32, 0.89, "unsure"),
        (256, 32, 0.05, "no"),
    ],
)
def test_few_prompts_take_a_larger_effective_share(n_sequences: int, n_prompts: int, seq_ess: float, says: Any) -> None:
    clusters = Clusters(by="group_id", n=n_prompts)
    assert usable_weights({**KNOWN, "seq_ess": seq_ess}, n_sequences, clusters) == answer(says)


@pytest.mark.parametrize("sizes", [[1] * 2000, [8] * 500, [1, 2, 5, 40] * 100])
def test_alike_clusters_are_not_overdispersed_whatever_their_sizes(sizes: list[int]) -> None:
    s = log_weights(sum(sizes), 1, 0.5)[:, 0]
    told = clusters_of(s, sizes)
    assert told.overdispersion == pytest.approx(1, abs=0.25)
    assert told.mixed_seq_ess == pytest.approx(np.exp(-(s**2).mean()), abs=0.05)


def test_overdispersion_is_the_relative_second_moment_of_the_variance() -> None:
    s = log_weights(4000, 1, 0.3, share=0.1, factor=3)[:, 0]
    # 0.9 and 0.1 of v = 0.09 and 0.81: mean v^2 / (mean v)^2 is 2.8.
    assert clusters_of(s, [1] * 4000).overdispersion == pytest.approx(2.8, rel=0.3)


@pytest.mark.parametrize("s", [0.0, 1e200])
def test_equal_policies_and_weights_beyond_float64_have_no_spread(s: float) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        told = clusters_of(np.full(40, s), [8] * 5)
    assert (told.overdispersion, told.mixed_seq_ess) == (None, None)
