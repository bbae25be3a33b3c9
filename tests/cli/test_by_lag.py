"""What is said of lags: what a lag adds within steps, and up to which one rules hold."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from lags import BY_LAG, BY_STEP, EFFECTS, LAGS, LIMITED, report, rows

from rlcorr_cli import analyze, plot


def written(folder: Path, made: list[dict[str, Any]]) -> str:
    path = folder / "lags.parquet"
    pq.write_table(pa.Table.from_pylist(made), path)
    return str(path)


def made(effect: tuple[float, float], seed: int = 0, *, grows: bool = False) -> list[dict[str, Any]]:
    return [*rows(effect, seed=seed, grows=grows)]


@pytest.mark.parametrize("grows", [False, True], ids=["at random", "with the steps"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_what_a_lag_adds_lies_within_its_interval_and_is_not_given_to_the_step(effect: str, *, grows: bool) -> None:
    by_lag, _ = EFFECTS[effect]
    held, sure = list[bool](), list[bool]()
    for seed in (0, 2):
        found = report(EFFECTS[effect], seed=seed, grows=grows).lags
        assert found is not None
        assert (found.base, [each.lag for each in found.lags]) == (0, [0, 1, 2, 3, 4])
        added = [(each.lag, each.added) for each in found.lags if each.added is not None]
        held += [each.low <= by_lag * lag / 2 <= each.high for lag, each in added]
        sure += [each.sure for _, each in added]
    assert len(held) == 8
    assert sum(held) >= 6
    assert all(sure) if by_lag else not any(sure)


@pytest.mark.parametrize("effect", ["step", "none"])
def test_a_lag_is_not_said_to_add_what_an_unlucky_draw_adds(effect: str) -> None:
    found = report(EFFECTS[effect], seed=1, grows=False).lags  # its intervals miss 0
    assert found is not None
    added = [each.added for each in found.lags if each.added is not None]
    assert any(not each.low <= 0 <= each.high for each in added)
    assert not any(each.sure for each in added)


def test_lags_that_share_no_step_are_not_told_apart_from_the_steps(tmp_path: Path) -> None:
    path = written(tmp_path, of_steps_alone())
    found = analyze(path)
    assert found.lags is not None
    assert found.lags.base is None
    assert found.lag_limit is None
    assert "what lags add cannot be told from what the steps change" in said(path, "--all")


def of_steps_alone() -> list[dict[str, Any]]:
    """Rows of which each step has one lag."""
    return [{**row, "policy_version": row["step"] - (row["step"] - LAGS) // 6} for row in made((0.0, BY_STEP))]


def test_the_lag_of_the_best_throughput_is_named_where_lags_share_no_step(tmp_path: Path) -> None:
    path, file = written(tmp_path, of_steps_alone()), tmp_path / "throughput.csv"
    file.write_text("lag,tokens_per_second\n0,1000\n1,2000\n2,2001\n")
    assert " gives the most effective tokens a second, " in said(path, "--throughput", str(file))


def said(*args: str) -> str:
    return " ".join(run("analyze", *args).out.split())


def test_few_prompts_do_not_tell_what_a_lag_adds(tmp_path: Path) -> None:
    few = [row for row in made((BY_LAG, 0.0)) if row["group_id"] in ("3-1", "3-2", "3-3", "4-1")]
    assert "too few to tell what it adds" in said(written(tmp_path, few))


def test_numbers_of_lags_in_different_steps_set_no_limit(tmp_path: Path) -> None:
    found = analyze(written(tmp_path, made((BY_LAG, 20 * BY_STEP), grows=True)))
    assert found.lags is not None
    assert found.lags.is_mixed
    assert found.lag_limit is None


def test_the_limit_is_the_largest_lag_up_to_which_the_rules_hold(tmp_path: Path) -> None:
    path = written(tmp_path, made((LIMITED, 0.0)))
    found = analyze(path)
    assert found.lag_limit is not None
    by_lag = {each.lag: each.group for each in found.lags.lags} if found.lags else {}
    broken = {lag: {each.metric for each in found.findings(group) if each.broken} for lag, group in by_lag.items()}
    lags = [lag for lag in by_lag if broken[lag] - broken[0]]
    assert (found.lag_limit.safe, found.lag_limit.breaks) == (lags[0] - 1, lags[0])
    assert f"Lags up to {lags[0] - 1} stay within the rules that lag 0 keeps; lag {lags[0]} breaks" in said(path)


def test_the_numbers_of_a_lag_are_those_of_its_rows_alone(tmp_path: Path) -> None:
    of_all = made((BY_LAG, 0.0))
    found, alone = (
        analyze(written(tmp_path, of_all)),
        [row for row in of_all if row["step"] - row["policy_version"] == 3],
    )
    of_three = analyze(written(tmp_path, alone))
    (group,) = [each.group for each in found.lags.lags if each.lag == 3] if found.lags else []
    assert group.counts["tokens"] == of_three.whole.counts["tokens"]
    for name in ("k3_kl", "seq_ess", "token_ess"):
        assert group.values[name] == pytest.approx(of_three.whole.values[name], rel=1e-9)


def test_versions_token_by_token_are_lags_of_parts_of_rows(tmp_path: Path) -> None:
    parts = made((BY_LAG, 0.0))
    for row in parts:
        n = len(row["rollout_log_probs"])
        log_ratio = row["old_log_probs"] - row["rollout_log_probs"]
        log_ratio[n // 2 :] = np.random.default_rng(n).normal(-2e-4, 2e-2, n - n // 2)
        row["old_log_probs"] = row["rollout_log_probs"] + log_ratio
        row["versions"] = [row.pop("policy_version")] * (n // 2) + [row["step"]] * (n - n // 2)
    found = analyze(written(tmp_path, parts)).lags
    assert found is not None
    by_lag = {each.lag: each for each in found.lags}
    assert [*by_lag] == [0, 1, 2, 3, 4]
    assert by_lag[4].added is not None
    assert by_lag[4].added.low <= 4 * BY_LAG / 2 <= by_lag[4].added.high
    n_tokens = sum(len(row["versions"]) for row in parts)
    assert sum(each.group.counts["tokens"] for each in found.lags) == n_tokens


def test_many_lags_stand_in_ranges(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    far = [{**row, "policy_version": row["step"] - int(draw.integers(0, 40))} for row in made((0.0, 0.0))]
    found = analyze(written(tmp_path, far)).lags
    assert found is not None
    assert [each.lag for each in found.lags] == [0, 1, 2, "3 to 4", "5 to 8", "9 to 16", "17 to 32", "33 to 39"]


def test_throughput_tells_which_lag_gives_the_most_effective_tokens(tmp_path: Path) -> None:
    path, file = written(tmp_path, made((BY_LAG, 0.0))), tmp_path / "throughput.csv"
    file.write_text("lag,tokens_per_second\n0,1000\n1,2000\n2,2001\n")
    found = analyze(path, throughput=file)
    assert found.lags is not None
    assert found.lags.best is not None
    assert found.lags.best.lag == 1
    ess = found.lags.best.group.values["token_ess"]
    assert found.lags.best.effective_rate == pytest.approx(2000 * (ess or 0.0))
    assert found.lags.lags[3].effective_rate is None


@pytest.mark.parametrize("line", ["2", "2,x", "2,-1", "2,1,1", "0,5", "nan,5"])
def test_a_throughput_that_is_none_is_refused_by_its_line(line: str, tmp_path: Path) -> None:
    path, file = written(tmp_path, made((BY_LAG, 0.0))), tmp_path / "throughput.csv"
    file.write_text(f"0,1000\n{line}\n")
    ran = run("analyze", path, "--throughput", str(file))
    assert ran.status == 2
    assert f"line 2 is no lag, comma, tokens a second: '{line}'." in ran.err


def test_throughput_without_lags_is_refused(tmp_path: Path) -> None:
    path, file = written(tmp_path, [{**row, "policy_version": row["step"]} for row in made((0.0, 0.0))]), tmp_path / "t"
    file.write_text("0,1000\n")
    ran = run("analyze", path, "--throughput", str(file))
    assert (ran.status, ran.err.splitlines()[0]) == (2, "Error: --throughput is by lag, and no rows here are of two.")


def test_a_saved_report_has_its_lags(tmp_path: Path) -> None:
    found, saved = (
        analyze(written(tmp_path, made((BY_LAG, 0.0))), output=tmp_path / "report.json"),
        tmp_path / "report.json",
    )
    (picture,) = plot(saved, kind="staleness")
    assert found.lags is not None
    assert picture.caption.startswith("Within a step, rows of lag 4 have ")
