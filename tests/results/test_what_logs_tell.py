"""What a log of metrics tells: since when, how fast, what breaks, and which steps to record."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from few import few
from tensorboardX import SummaryWriter

from rlcorr_cli import api
from rlcorr_cli.metrics.catalog import known_in_log
from rlcorr_cli.metrics.framework_names import LOGGED, VERL_NAMES
from rlcorr_cli.results.scalars import LoggedScalars

SIZES = {
    "flat": lambda n: np.ones(n),
    "rise": lambda n: np.exp(np.maximum(0, np.arange(n) - 24) / 6),
    "spike": lambda n: np.where(np.arange(n) == 20, 6.0, 1.0),
    "step change": lambda n: np.where(np.arange(n) < 22, 1.0, 3.0),
    "collapse": lambda n: np.exp(np.arange(n) / 8),
}
"""A run -> how large its gap is at each step."""


def dump(name: str, seed: int, n: int = 40) -> list[dict[str, Any]]:
    """Steps of 48 sequences of 40 tokens, of 12 prompts."""
    rng, rows = np.random.default_rng(seed), list[dict[str, Any]]()
    for step, size in enumerate(SIZES[name](n)):
        s = 0.04 * np.sqrt(size)
        for row in range(48):
            rollout = -rng.exponential(1.0, 40) - 0.2
            old = np.minimum(rollout + s * rng.standard_normal(40) - s * s / 2, 0.0)
            policies = {"rollout_log_probs": rollout.tolist(), "old_log_probs": old.tolist()}
            rows.append({"step": step, "group_id": row // 4, **policies})
    return rows


def logged(path: Path, **series: Sequence[float]) -> LoggedScalars:
    """The log of some series, from step 0 on."""
    n = max(map(len, series.values()))
    rows = [{"step": s, **{name: v[s] for name, v in series.items() if s < len(v)}} for s in range(n)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return api.scalars(path)


@pytest.mark.parametrize("name", few(SIZES, ["rise"]))
def test_since_when_and_how_fast_are_as_analyze_says_of_the_dump(name: str, tmp_path: Path) -> None:
    for seed in range(3):
        report = api.analyze(dump(name, seed), group_by="step")
        path = tmp_path / "metrics.jsonl"
        rows = (
            {"step": group.key["step"], "data": {f"rollout_corr/{k}": v for k, v in group.values.items()}}
            for group in report.groups
        )
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        course, log = report.course, api.scalars(path)
        assert course is not None
        assert log.of_gap is not None
        assert log.gap == "rollout_corr/k3_kl"
        assert log.of_gap.shift == (course.rise or course.fall)
        assert (log.of_gap.shift is None) == (name in ("flat", "spike"))
        gap = next(metric for metric in course.metrics if metric.metric == "k3_kl")
        assert log.of_gap.course == gap
        assert {rule.metric: rule.groups for rule in log.of_gap.broken} == {
            rule.metric: rule.groups for rule in course.broken if rule.metric == "k3_kl"
        }


def test_every_known_name_is_found_whatever_stands_around_it() -> None:
    for row in LOGGED:
        for name in (row.name, f"train/{row.name}", f"a/b/{row.name}/mean"):
            found = known_in_log(name)
            assert found is not None, name
            assert found.canonical == row.canonical or row.framework == "NeMo-RL", name
    for name in VERL_NAMES:
        for logged_as in (f"rollout_corr/{name}", f"mismatch/mismatch_{name}", f"train/rollout_corr/{name}/mean"):
            found = known_in_log(logged_as)
            assert found is not None
            assert (found.framework, found.canonical) == ("verl", name)


SURVEYED = {
    "NeMo-RL": ("max_seq_mult_prob_error", "mean_seq_mult_prob_error", "num_masked_seqs_by_logprob_error", "masking/x"),
    "open-instruct": ("debug/vllm_vs_local_logprob_diff_mean", "debug/vllm_local_reverse_kl"),
    "miles": ("ess_ratio", "weight_version/mixed_version_ratio"),
    "prime-rl": ("logprob_bit_mismatch", "mismatch_k3_stable", "mismatch_kl/all/mean", "mismatch_kl/math/std"),
    "tunix": ("sampler_is/weight_mean", "sampler_trainer/logp_diff_max"),
    "AReaL": ("rollout_train_k3_kl", "rollout_train_extreme_frac_tau2"),
    "UniRL": ("rollout_replay_logp_absdiff_mean",),
    "verl": ("actor/pg_clipfrac", "training/off_policy/trajectory_staleness", "mismatch/rollout_is_p95"),
    "verl-omni": ("rollout_corr/logprob_abs_diff/ts_3",),
    "ms-swift": ("m2_before",),
}
"""Names as frameworks log them, of which some stand for many."""


def test_a_log_of_all_frameworks_names_has_no_unknown_one(tmp_path: Path) -> None:
    names = {name for of in SURVEYED.values() for name in of} | {row.name for row in LOGGED}
    names |= {f"rollout_corr/{name}" for name in VERL_NAMES}
    with SummaryWriter(str(tmp_path)) as writer:
        for name in names:
            for step in (1, 2):
                writer.add_scalar(f"train/{name}", 0.5, step)
    log = api.scalars(tmp_path)
    assert log.unknown == ()
    assert len(log.metrics) == len(names)
    for framework, of in SURVEYED.items():
        for name in of:
            found = known_in_log(f"train/{name}")
            assert found is not None
            assert found.framework == framework


@pytest.mark.parametrize("name", ["kl", "train/kl", "loss", "train/loss", "reward", "actor/entropy", "actor/kl_loss"])
def test_names_that_trainers_use_for_other_things_are_unknown(name: str) -> None:
    assert known_in_log(name) is None


def test_a_maximum_and_a_count_are_held_to_no_rule(tmp_path: Path) -> None:
    names = {"mismatch_kl/all/mean": [9.0] * 20, "mismatch_kl/all/max": [9.0] * 20, "logp_sq": [9.0] * 20}
    metrics = {metric.name: metric for metric in logged(tmp_path / "log.jsonl", **names).metrics}
    assert [rule.metric for rule in metrics["mismatch_kl/all/mean"].broken] == ["k3_kl"]
    assert metrics["mismatch_kl/all/max"].broken == ()
    assert "no metric here" in metrics["mismatch_kl/all/max"].note


def test_steps_to_record_are_around_the_one_from_which_on_the_gap_rises(tmp_path: Path) -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, 40))
    gap = 0.001 * noise * np.where(np.arange(40) < 25, 1.0, 4.0)
    assert logged(tmp_path / "a.jsonl", k3_kl=gap.tolist()).suspects == (24, 28)


def test_without_a_rise_they_are_around_the_first_that_breaks_a_rule_or_is_no_number(tmp_path: Path) -> None:
    broken = [0.001] * 9 + [0.2] + [0.001] * 10
    assert logged(tmp_path / "a.jsonl", k3_kl=broken).suspects == (8, 12)
    assert logged(tmp_path / "b.jsonl", k3_kl=[*[0.001] * 5, float("nan"), *broken]).suspects == (4, 8)
    flat = logged(tmp_path / "c.jsonl", k3_kl=[0.001] * 20)
    assert flat.suspects == ()
    assert "Nothing stands out" in " ".join(_texts(flat))


def test_a_gap_that_falls_is_told_and_nothing_to_be_recorded(tmp_path: Path) -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, 40))
    falls = logged(tmp_path / "a.jsonl", k3_kl=(0.004 * noise * np.where(np.arange(40) < 25, 1.0, 0.2)).tolist())
    assert falls.of_gap is not None
    assert falls.of_gap.shift is not None
    assert (falls.of_gap.shift.since, falls.suspects) == (25, ())


def test_a_log_of_few_steps_says_that_it_tells_no_rise(tmp_path: Path) -> None:
    few_steps = logged(tmp_path / "a.jsonl", k3_kl=[0.001 * 2.0**step for step in range(15)])
    assert few_steps.metrics[0].shift is None
    assert "Fewer than 16 steps of a log do not tell a rise from chance" in " ".join(_texts(few_steps))
    assert logged(tmp_path / "b.jsonl", k3_kl=[0.001 * 2.0**step for step in range(16)]).metrics[0].shift is not None


def test_values_that_are_no_numbers_are_told_and_have_no_part_in_a_course(tmp_path: Path) -> None:
    nan = logged(tmp_path / "a.jsonl", k3_kl=[0.001, float("nan"), 0.002, float("inf")])
    metric = nan.metrics[0]
    assert metric.no_number == (1, 3)
    assert metric.course is not None
    assert (metric.course.last.value, metric.course.worst.value, metric.course.blank) == (0.002, 0.002, 2)
    assert "k3_kl is NaN or infinite at steps 1 and 3." in _texts(nan)


def test_the_status_is_the_worst_of_any_metric(tmp_path: Path) -> None:
    from rlcorr_cli.show import document_of

    log = logged(tmp_path / "a.jsonl", prob_abs_diff_mean=[0.05] * 9, rollout_is_std=[float("nan")] * 9)
    assert [metric.status for metric in log.metrics] == ["warn", "fail"]
    assert document_of(log).status == "fail"


def test_a_log_without_a_gap_says_so_first_and_tells_each_course_once(tmp_path: Path) -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, 40))
    std = 0.001 * noise * np.where(np.arange(40) < 25, 1.0, 4.0)
    texts = _texts(logged(tmp_path / "a.jsonl", rollout_is_std=std.tolist()))
    assert texts[0] == "None of the names tells the size of the gap, as k3_kl does."
    assert sum("rollout_is_std" in text for text in texts) == 1


def test_two_names_of_one_metric_that_break_its_rule_are_both_told(tmp_path: Path) -> None:
    names = {"k3_kl": [0.001] * 8 + [9.0, 0.001], "rollout_corr/k3_kl": [9.0] + [0.001] * 9}
    texts = " ".join(_texts(logged(tmp_path / "a.jsonl", **names)))
    assert "Step 8 is outside the limit on k3_kl." in texts
    assert "Step 0 is outside the limit on rollout_corr/k3_kl." in texts


def _texts(log: LoggedScalars) -> list[str]:
    from rlcorr_cli.show import document_of

    document = document_of(log)
    return [document.headline, *document.reasons]
