"""What is said of lags: where the gap begins, what a clean lag leaves, lags by design, columns that do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding, Impossible
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.show import print_result

N_ROWS, N_TOKENS = 100, 100
NOISE = 0.05


def dump(
    folder: Path, lag_of: Callable[[int], int], size_of: Callable[[int], float], leaning: float = 0.0
) -> DiagnosedDump:
    """Of rows whose log-odds differ by noise of a size that depends on their lag.  leaning: how far a row's log-odds
    move with its advantage."""
    draw = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for i in range(N_ROWS):
        lag, advantage, step = lag_of(i), draw.normal(), 2 + i // 10
        u = draw.normal(1.0, 2.0, N_TOKENS)
        v = u + draw.normal(0.0, 1.0, N_TOKENS) * size_of(lag) + leaning * advantage
        row = {"step": step, "policy_version": step - lag, "advantage": advantage, "group_id": f"g{i // 4}"}
        logps = {"rollout_log_probs": -np.logaddexp(0, -u), "old_log_probs": -np.logaddexp(0, -v)}
        rows.append({**row, **logps, "token_ids": draw.integers(0, 1000, N_TOKENS)})
    pq.write_table(pa.Table.from_pylist(rows), folder / "lags.parquet")
    return diagnose(str(folder / "lags.parquet"))


def first(found: DiagnosedDump) -> CauseFinding:
    return found.whole.diagnosis.causes[0]


def test_a_lag_from_which_on_the_gap_is_larger_is_a_bound(tmp_path: Path) -> None:
    cause = first(dump(tmp_path, lambda i: i % 5, lambda lag: 0.4 if lag > 2 else NOISE))
    assert (cause.cause, cause.parameters["levels"]) == ("stale_policy", "3 and 4")
    assert cause.advice.startswith("Drop the rows of a lag above 2, or cap it there: up to 2 the gap is level.")


def test_a_gap_that_grows_with_every_lag_has_no_bound_and_leaves_the_least_lag_out(tmp_path: Path) -> None:
    found = dump(tmp_path, lambda i: i % 5, lambda lag: NOISE * 1.35**lag)
    cause, noise = found.whole.diagnosis.causes
    assert cause.parameters["direction"] == "grows"
    assert "cap" not in cause.advice
    # A gap as lag 0 has it on all tokens is noise.
    squares = 1.35 ** (2 * np.arange(5))
    assert noise.share == pytest.approx(5 / squares.sum(), abs=0.05)
    assert cause.share == pytest.approx(1 - 5 / squares.sum(), abs=0.05)


def test_staleness_takes_no_more_than_lags_add_to_a_clean_one() -> None:
    diagnosis = diagnose(str(DUMPS / "stale_mixed_versions.parquet")).whole.diagnosis
    lags = next(column for column in diagnosis.columns if column.column == "lag")
    clean = next(level for level in lags.levels if level.level == 0)
    assert diagnosis.verdict == "stale_policy"
    # A gap as lag 0 has it on all tokens, at their surprise, is no staleness.
    assert diagnosis.causes[0].share == pytest.approx(1 - clean.gap / clean.expected, abs=0.05)


def test_a_bound_is_not_proven_beside_staleness_which_moves_it() -> None:
    causes = diagnose(
        str(DUMPS.parent / "causes_models" / "charlstm__combo_topp09_stale4.parquet")
    ).whole.diagnosis.causes
    assert {"top_p": "likely", "stale_policy": "likely"}.items() <= {
        each.cause: each.certainty for each in causes
    }.items()


def test_a_lag_of_one_everywhere_is_asynchronous_training(tmp_path: Path) -> None:
    cause = first(dump(tmp_path, lambda i: 1, lambda lag: NOISE, leaning=0.1))
    assert cause.cause == "stale_policy"
    assert cause.parameters["lag"] == 1
    assert cause.advice.startswith("Every row is 1 update behind, as asynchronous training makes it")


def test_versions_beyond_the_step_are_told_with_their_share(tmp_path: Path) -> None:
    facts = dump(tmp_path, lambda i: i % 5 - 1, lambda lag: NOISE).whole.diagnosis.facts
    told = next(fact.sentence for fact in facts if fact.name == "lag")
    assert told.startswith("In 20% of the rows the version of the policy is greater than the step")
    assert not dump(tmp_path, lambda i: i % 5, lambda lag: NOISE).whole.diagnosis.facts


def test_levels_that_are_numbers_stand_by_value(tmp_path: Path) -> None:
    columns = dump(tmp_path, lambda i: i % 5, lambda lag: NOISE).whole.diagnosis.columns
    steps = next(column for column in columns if column.column == "step")
    assert [level.level for level in steps.levels] == list(range(2, 12))


def test_a_table_of_lags_has_both_ends_by_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_result(dump(tmp_path, lambda i: i % 20, lambda lag: 0.6 if lag == 11 else 0.4 if lag > 9 else NOISE))
    lines = capsys.readouterr().out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.split()[:2] == ["lag", "tokens"])
    lags = [int(line.split()[0]) for line in lines[heading + 1 : heading + 9]]
    assert lags == sorted(lags)
    assert {0, 11, 19} <= set(lags)


@pytest.mark.parametrize("cause", ["last_token", "unnormalised"])
def test_a_mean_ratio_that_the_named_cause_moves_is_no_second_fault(cause: str) -> None:
    for value in (0.9, 1.1):
        assert Impossible("ratio_mean", value, (value - 0.01, value + 0.01), "").follows_from(cause)
    assert not Impossible("ratio_mean", 1.1, (1.05, 1.15), "").follows_from("padded_vocabulary")
    assert not Impossible("ratio_mean", 0.9, (0.85, 0.95), "").follows_from("temperature")
