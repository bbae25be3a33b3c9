"""Peers' presets on the golden input, against slow loops written from the methods' descriptions."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_golden import GOLDEN, MASKS, ROWS, golden_batch, padded

from rlcorr_cli import analyze
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.correct import correct
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.batch import Batch

Sequence = list[tuple[float, float]]
"""One sequence's valid tokens: (training log-prob, rollout log-prob)."""


@dataclass(frozen=True)
class Method:
    """weights: of a sequence's tokens (None: no weighting).  keeps: which of its tokens stay."""

    weights: Callable[[Sequence], list[float]] | None = None
    keeps: Callable[[Sequence], list[bool]] = lambda s: [True] * len(s)


def logs(sequence: Sequence) -> list[float]:
    return [a - b for a, b in sequence]


def ratios(sequence: Sequence) -> list[float]:
    return [math.exp(x) for x in logs(sequence)]


def clamped(low: float, high: float) -> Callable[[Sequence], list[float]]:
    return lambda s: [min(max(w, low), high) for w in ratios(s)]


def zeroed(low: float, high: float) -> Callable[[Sequence], list[float]]:
    return lambda s: [w if low <= w <= high else 0.0 for w in ratios(s)]


def product(sequence: Sequence, limit: float = math.inf) -> float:
    return math.exp(min(max(sum(logs(sequence)), -limit), limit))


def geometric(sequence: Sequence) -> float:
    return math.exp(sum(logs(sequence)) / len(sequence))


def whole(test: Callable[[Sequence], bool]) -> Callable[[Sequence], list[bool]]:
    return lambda s: [test(s)] * len(s)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def limited(sequence: Sequence) -> list[float]:
    return [min(max(x, -20.0), 20.0) for x in logs(sequence)]


def k3(x: float) -> float:
    return math.expm1(x) - x


K1 = whole(lambda s: math.log(0.999) <= -mean(limited(s)) <= math.log(1.001))
K3 = whole(lambda s: mean([k3(x) for x in limited(s)]) <= 0.01)


def capped_2(s: Sequence) -> list[float]:
    return [min(math.exp(x), 2.0) for x in limited(s)]


def sequence_2(s: Sequence) -> list[float]:
    return [min(product(s, 20), 2.0)] * len(s)


METHODS: dict[str, Method] = {
    "slime_tis": Method(clamped(0.0, 2.0)),
    "slime_icepop": Method(zeroed(0.5, 5.0)),
    "slime_cis": Method(clamped(0.5, 2.0)),
    "trl_token_truncate": Method(clamped(0.0, 3.0)),
    "trl_token_mask": Method(zeroed(0.0, 3.0)),
    "trl_sequence_truncate": Method(lambda s: [min(product(s), 3.0)] * len(s)),
    "trl_sequence_mask": Method(lambda s: [product(s) if product(s) <= 3.0 else 0.0] * len(s)),
    "nemo_tis": Method(clamped(0.0, 2.0)),
    "nemo_icepop": Method(zeroed(0.5, 5.0)),
    "nemo_seq_mask_tis": Method(ratios, whole(lambda s: 0.999 <= geometric(s) <= 1.002)),
    "nemo_seq_logprob_error": Method(keeps=whole(lambda s: mean([math.exp(abs(x)) for x in logs(s)]) <= 2.0)),
    "openrlhf_tis": Method(clamped(0.5, 5.0)),
    "openrlhf_icepop": Method(zeroed(0.5, 5.0)),
    "openrlhf_seq_mask_tis": Method(ratios, whole(lambda s: 0.5 <= geometric(s) <= 5.0)),
    "skyrl_tis_token": Method(capped_2),
    "skyrl_tis_sequence": Method(lambda s: [min(product(s, 20), 5.0)] * len(s)),
    "skyrl_geometric": Method(keeps=whole(lambda s: 0.99 <= geometric(s) <= 1.01)),
    "skyrl_product": Method(keeps=whole(lambda s: 0.5 <= product(s, 20) <= 2.0)),
    "skyrl_outlier": Method(keeps=whole(lambda s: min(ratios(s)) >= 1e-4 and max(ratios(s)) <= 100)),
    "areal_ratio_token": Method(ratios, lambda s: [w <= 5.0 for w in ratios(s)]),
    "areal_kl_k1": Method(ratios, whole(lambda s: mean(logs(s)) <= 5.0)),
    "areal_kl_k2": Method(ratios, whole(lambda s: mean([x * x / 2 for x in logs(s)]) <= 5.0)),
    "areal_kl_k3": Method(ratios, whole(lambda s: mean([k3(-x) for x in logs(s)]) <= 5.0)),
    "roll_train_infer": Method(clamped(0.0, 1.2), lambda s: [0.8 <= w <= 1.2 for w in ratios(s)]),
    "prime_ipo": Method(ratios, keeps=lambda s: [abs(math.exp(a) - math.exp(b)) <= 0.1 for a, b in s]),
    "prime_legacy": Method(
        ratios,
        keeps=lambda s: [
            0.125 <= w <= 8.0 and 0.1 <= geometric(s) <= 10.0 and max(ratios(s)) <= 100.0 for w in ratios(s)
        ],
    ),
    "decoupled_token_icepop": Method(zeroed(0.5, 5.0)),
    "decoupled_geo_rs_seq_tis": Method(sequence_2, K1),
    "decoupled_geo_rs_token_tis": Method(capped_2, K1),
    "decoupled_k3_rs": Method(keeps=K3),
    "decoupled_k3_rs_seq_tis": Method(sequence_2, K3),
    "decoupled_k3_rs_token_tis": Method(capped_2, K3),
}


@dataclass(frozen=True)
class Token:
    """Log-probs under training, rollout and current policy, and the advantage."""

    old: float
    rollout: float
    current: float
    advantage: float


Tokens4 = list[Token]


def moved(token: Token) -> float:
    return math.exp(token.old) - math.exp(token.rollout)


def drift(token: Token) -> float:
    return math.exp(token.current - token.old)


def off_policy(sequence: Tokens4) -> bool:
    return sequence[0].advantage < 0 and sum(t.old - t.current for t in sequence) / len(sequence) > 1e-4


def far_from_rollout(sequence: Tokens4) -> bool:
    return sequence[0].advantage < 0 and sum(t.rollout - t.current for t in sequence) / len(sequence) > 1e-4


def sequence_drift(sequence: Tokens4) -> float:
    return math.exp(sum(t.current - t.old for t in sequence) / len(sequence))


LOOKING = {
    "opsm": (None, lambda s: [not off_policy(s)] * len(s)),
    "trl_opsm": (None, lambda s: [not far_from_rollout(s)] * len(s)),
    "prime_dppo": (
        lambda s: [math.exp(t.old - t.rollout) for t in s],
        lambda s: [not ((t.advantage > 0 and moved(t) > 0.2) or (t.advantage <= 0 and moved(t) < -0.2)) for t in s],
    ),
    "roll_topr": (lambda s: [1.0 if t.advantage > 0 else min(drift(t), 1.0) for t in s], None),
    "roll_tis": (lambda s: [min(drift(t), 1.0) for t in s], None),
    "roll_cispo": (lambda s: [min(max(drift(t), 0.9), 1.1) for t in s], None),
    "gspo": (lambda s: [min(max(sequence_drift(s), 1 - 3e-4), 1 + 4e-4)] * len(s), None),
}
"""Methods that look at advantages or at the current policy: (weights, kept tokens) of a sequence."""


def looking_sequences() -> tuple[list[Tokens4], Batch]:
    """The golden input with its advantages, and a current policy made up beside it; and the same as a batch."""
    rng, batch = np.random.default_rng(7), golden_batch()
    a = pq.read_table(Path(GOLDEN) / "input.parquet", columns=["advantage"])["advantage"].to_numpy()
    current = (
        batch.old_logp
        + rng.normal(0, 0.02, batch.n_tokens)
        + np.repeat(rng.normal(0, 0.002, 64), np.diff(batch.offsets))
    )
    advantages = np.repeat(a, np.diff(batch.offsets))
    columns = (batch.old_logp, batch.rollout_logp, current, advantages)
    tokens = [Token(*map(float, one)) for one in zip(*columns, strict=True)]
    rows = [tokens[i:j] for i, j in pairwise(batch.offsets.tolist())]
    return rows, replace(batch, current_logp=current, advantages=advantages)


@pytest.mark.parametrize("name", LOOKING)
def test_methods_that_look_further_are_those_of_a_slow_loop(name: str) -> None:
    (weights, keeps), (rows, batch) = LOOKING[name], looking_sequences()
    tokens = Tokens.of(batch, CPU)
    corrected = correct(tokens, preset(name).plan)
    if keeps is None:
        assert corrected.keep is None
    else:
        expected = [keep for row in rows for keep in keeps(row)]
        assert corrected.keep is not None
        assert corrected.keep.tolist() == expected
        assert 0 < sum(expected) < len(expected)
    if weights is None:
        assert corrected.weighted is None
    else:
        assert corrected.weighted is not None
        applied = corrected.weighted.applied
        found = applied if corrected.weighted.weighting.scope == "token" else tokens.rows.spread(applied)
        assert found.tolist() == pytest.approx([w for row in rows for w in weights(row)], rel=1e-6, abs=1e-12)
        assert len(set(found.tolist())) > 5


def test_m2po_drops_the_largest_until_the_mean_is_below_its_threshold() -> None:
    values = sorted(x * x for s in golden_sequences() for x in logs(s))
    left = list(values)
    while sum(left) / len(left) >= 0.04:
        left.pop()
    report = analyze(Path(GOLDEN) / "input.parquet", preset="m2po", batch_by="none")
    assert len(values) - len(left) > 0
    assert report.whole.values["kept_tokens"] == len(left)


def golden_sequences() -> list[Sequence]:
    pairs = pq.read_table(Path(GOLDEN) / "input.parquet", columns=["old_log_probs", "rollout_log_probs"]).to_pylist()
    return [
        [(a, b) for a, b, m in zip(one["old_log_probs"], one["rollout_log_probs"], mask, strict=True) if m]
        for one, mask in zip(pairs, MASKS, strict=True)
    ]


@pytest.mark.parametrize("name", METHODS)
def test_weights_and_masks_are_those_of_a_slow_loop(name: str) -> None:
    method, tokens = METHODS[name], Tokens.of(golden_batch(), CPU)
    corrected = correct(tokens, preset(name.replace("_", "-")).plan)
    sequences = golden_sequences()

    keeps = [keep for s in sequences for keep in method.keeps(s)]
    assert all(keeps) if corrected.keep is None else corrected.keep.tolist() == keeps
    assert (corrected.weighted is None) == (method.weights is None)
    if corrected.weighted is None or method.weights is None:
        return
    applied = corrected.weighted.applied
    found = applied if corrected.weighted.weighting.scope == "token" else tokens.rows.spread(applied)
    assert found.tolist() == pytest.approx([w for s in sequences for w in method.weights(s)], rel=1e-6, abs=1e-12)


def test_the_golden_input_tells_the_methods_apart() -> None:
    """A method that keeps everything, or nothing, on this input would be no test of its bounds."""
    taking = [name for name in METHODS if not all(k for s in golden_sequences() for k in METHODS[name].keeps(s))]
    rejecting = [name for name in METHODS if preset(name).plan.rejections]
    assert set(taking) <= set(rejecting)
    assert set(rejecting) - set(taking) == {"openrlhf_seq_mask_tis", "areal_kl_k1"}  # wide bounds, by their defaults
    assert len(ROWS) == len(padded(np.zeros(sum(int(m.sum()) for m in MASKS))))
