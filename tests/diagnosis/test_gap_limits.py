"""What a diagnosis says of little, of nothing, and of values at the ends of their ranges."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from gap_oracle import Row, sample_of

from rlcorr_cli.causes.diagnosis import Diagnosis
from rlcorr_cli.causes.features import Context
from rlcorr_cli.causes.judge import diagnose

RNG = np.random.default_rng(6)
Values = Callable[[int], np.ndarray]


def constant(value: float) -> Values:
    """The same value at every token."""
    return lambda m: np.full(m, value)


def drawn(m: int) -> np.ndarray:
    """Log-probs of any size."""
    return -RNG.gamma(0.3, 1.0, m)


def made(n: int, m: int, rollout: Values, train: Values, **more: object) -> list[Row]:
    """n rows of m tokens."""
    return [Row(rollout=list(rollout(m)), train=list(train(m)), key=i, number=i, **more) for i in range(n)]


def diagnosis(rows: list[Row]) -> Diagnosis:
    """Of rows, with every warning an error."""
    return diagnose(sample_of(rows), Context())


def assert_finite(value: object, at: str = "") -> None:
    """Neither NaN nor infinite, however deep."""
    if isinstance(value, float):
        assert math.isfinite(value), at
    elif isinstance(value, dict):
        for name, inner in value.items():
            assert_finite(inner, f"{at}/{name}")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            assert_finite(inner, f"{at}[{i}]")


CASES = {
    "no row": [],
    "an empty row": [Row(rollout=[], train=[])],
    "a row": made(1, 5, drawn, drawn),
    "a token": made(1, 1, drawn, drawn),
    "rows of a token": made(1100, 1, drawn, drawn),
    "log-probs of 0": made(20, 60, constant(0.0), constant(0.0)),
    "rollout of 0": made(20, 60, constant(0.0), drawn),
    "training of 0": made(20, 60, drawn, constant(0.0)),
    "constants": made(20, 60, constant(-1.0), constant(-2.0)),
    "tiny values": made(20, 60, constant(-1e-12), constant(-2e-12)),
    "huge differences": made(20, 60, constant(-1e-30), constant(-1e30)),
    "far values": made(20, 60, lambda m: -RNG.uniform(0, 1e4, m), lambda m: -RNG.uniform(0, 1e4, m)),
    "a level": made(20, 60, drawn, drawn, levels={"worker": "w0", "lag": 0, "step": 3}),
    "levels of any type": [
        *made(10, 60, drawn, drawn, levels={"n": 1, "t": None, "x": "a", "y": math.pi}),
        *made(10, 60, drawn, drawn, levels={"n": 2, "t": True, "x": 3, "y": math.e}),
    ],
    "one id": made(20, 60, drawn, drawn, ids=[7] * 60),
    "one advantage": made(20, 60, drawn, drawn, advantage=1.0),
    "gaps": made(20, 120, drawn, drawn, mask=[(j // 5) % 2 for j in range(120)]),
}


@pytest.mark.parametrize("name", CASES)
def test_no_number_of_a_diagnosis_is_nan_or_infinite(name: str) -> None:
    assert_finite(diagnosis(CASES[name]).to_dict())


@pytest.mark.parametrize("name", ["rollout of 0", "training of 0", "constants", "huge differences", "far values"])
def test_columns_that_differ_are_not_called_clean(name: str) -> None:
    assert diagnosis(CASES[name]).verdict != "none"


def test_a_column_of_zeros_was_not_cut() -> None:
    assert diagnosis(CASES["rollout of 0"]).verdict == "no_cause"
    assert not [cause for cause in diagnosis(CASES["rollout of 0"]).causes if cause.cause == "top_p"]


def test_where_no_cause_stands_out_the_largest_is_said() -> None:
    rows, rng = [], np.random.default_rng(0)
    for i in range(40):
        u, d = rng.normal(1, 2, 60), rng.normal(0, 0.08, 60)
        if i < 4:  # four tokens of 2,400 hold most of the gap: too few for a tail
            u[20 + i], d[20 + i] = 0.0, 3.0 * (-1) ** i
        rows.append(
            Row(rollout=list(-np.logaddexp(0, -u)), train=list(-np.logaddexp(0, -u - d)), ids=list(range(60)), key=i)
        )
    found = diagnosis(rows)
    assert [(cause.cause, cause.is_minor) for cause in found.causes] == [("noise", True)]
    share = round(100 * found.causes[0].share)
    assert 20 < share < 40
    sentence = f"No cause stands out: the largest is rounding noise, at most {share}% of the gap."
    assert (found.verdict, found.conclusion) == ("no_cause", sentence)


def test_equal_columns_are_clean() -> None:
    rows = made(20, 60, drawn, drawn)
    found = diagnosis([Row(rollout=row.rollout, train=row.rollout, key=row.key) for row in rows])
    assert (found.verdict, found.causes) == ("none", ())
    assert found.conclusion == "Clean: the two policies agree (sd of log-ratio 0)."


def test_under_16_sequences_no_cause_is_named() -> None:
    found = diagnosis(made(12, 100, drawn, drawn))
    assert (found.verdict, found.causes) == ("too_few", ())
    assert found.conclusion == "Too little data to tell: 12 sequences, fewer than 16."
    assert found.features["curve"] is not None


def test_under_1000_tokens_no_cause_is_named() -> None:
    assert diagnosis(made(16, 62, drawn, drawn)).conclusion == "Too little data to tell: 992 tokens, fewer than 1,000."


def test_what_a_dump_lacks_is_said() -> None:
    def lacking(**more: object) -> dict[str, str]:
        found = diagnose(sample_of(made(2, 9, drawn, drawn, **more)), Context(advantage="reward" if more else None))
        return {each.cause: each.needs for each in found.not_looked_for}

    assert lacking() == {
        "repetition_penalty": "token ids",
        "other_weights": "token ids",
        "stale_policy": "advantages or rewards",
    }
    assert lacking(ids=list(range(9)), advantage=1.0) == {}


def test_without_token_ids_noise_and_changed_weights_are_not_told_apart() -> None:
    rows = []
    for i in range(40):
        u = RNG.normal(1, 2, 60)
        d = RNG.normal(0, 0.08, 60)
        rows.append(Row(rollout=list(-np.logaddexp(0, -u)), train=list(-np.logaddexp(0, -u - d)), key=i))
    found = diagnosis(rows)
    assert found.verdict == "noise"
    assert found.causes[0].claim == "rounding noise, or changed weights"
    assert found.causes[0].advice.startswith("A clean dump of the same model (`rlcorr diagnose DUMP --clean-dump")
    assert found.causes[0].evidence[-1] == "Without token ids, changed weights cannot be ruled out."
