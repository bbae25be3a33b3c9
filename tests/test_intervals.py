"""Intervals and tests of dumps are of clusters: samples of one prompt are drawn together, and so are repeated rollouts.

All from outside: by the API and the command line.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from few import few
from scipy import special

from rlcorr_cli import errors
from rlcorr_cli.api import analyze, check, compare, diff, save
from rlcorr_cli.metrics.interval import t_probability, t_quantile

sys.path.append(str(Path(__file__).parent / "cli"))
sys.path.append(str(Path(__file__).parent / "benchmarks"))
from coverage import coverage, truth
from designs import HARD
from running import run

ROOT = Path(__file__).parent.parent
STEPS = ROOT / "sample_data" / "smollm2_steps.parquet"
PROMPTS, SAMPLES, LENGTH = 12, 6, 20
Dump = dict[str, Any]


def dump(seed: int = 0, *, prompts: int = PROMPTS, samples: int = SAMPLES, spread: float = 0.5) -> Dump:
    """Samples whose noise has a size of each prompt's own: e^N(0, spread)."""
    rng = np.random.default_rng(seed)
    n = prompts * samples
    sizes = np.repeat(np.exp(rng.normal(0, spread, prompts)), samples)
    rollout = -2.5 - 3 * rng.random((n, LENGTH))
    trained = rollout - 0.004 + rng.normal(0, 0.12, rollout.shape) * sizes[:, None]
    return {
        "rollout_log_probs": rollout.tolist(),
        "old_log_probs": np.minimum(trained, 0).tolist(),
        "sample_id": [seed * 10**6 + i for i in range(n)],
        "group_id": [f"{seed}-{i // samples}" for i in range(n)],
    }


def without(table: Dump, *names: str) -> Dump:
    return {name: column for name, column in table.items() if name not in names}


def rows(table: Dump, chosen: list[int]) -> Dump:
    return {name: [column[i] for i in chosen] for name, column in table.items()}


def width(ends: tuple[float, float]) -> float:
    return ends[1] - ends[0]


def added(parts: list[Path]) -> Any:
    """The report of parts that were measured apart."""
    return analyze(parts)


def clusters(source: Any, **options: Any) -> tuple[str, int]:
    found = analyze(source, **options).clusters
    assert found is not None
    return found.by, found.n


def test_samples_of_a_prompt_that_are_alike_count_as_one() -> None:
    one_each = dump(samples=1, prompts=30)
    repeated = {name: [value for value in column for _ in range(8)] for name, column in one_each.items()}
    repeated["sample_id"] = list(range(240))
    # The draws hang on the prompt, so that eight equal samples weigh as one: each metric, and each end, is the same.
    once, eightfold = analyze(one_each), analyze(repeated)
    for name in ("kl", "k3_kl", "token_ess", "seq_tv", "prob_abs_diff_mean"):
        assert eightfold.intervals[name] == pytest.approx(once.intervals[name], rel=1e-9)
    assert clusters(repeated) == ("group_id", 30)


def test_intervals_of_prompts_are_wider_where_prompts_differ() -> None:
    table = dump()
    together, apart = analyze(table).intervals, analyze(table, cluster_by="none").intervals
    assert width(together["k3_kl"]) > 1.5 * width(apart["k3_kl"])


@pytest.mark.parametrize(
    ("names", "by"),
    [
        ({"group_id": "group_id", "prompt_id": "prompt_id", "prompt": "prompt"}, "group_id"),
        ({"prompt_id": "prompt_id", "prompt": "prompt", "uid": "uid"}, "prompt_id"),
        ({"prompt": "prompt", "uid": "uid"}, "prompt"),
        ({"uid": "uid"}, "uid"),
        ({}, "rollout"),
    ],
)
def test_the_column_of_prompts_is_found(names: dict[str, str], by: str) -> None:
    table = dump()
    table |= dict.fromkeys(names, table["group_id"]) if "group_id" in names else {}
    table = without(table, "group_id") | dict.fromkeys(names, table["group_id"])
    if "prompt_id" in names and by != "prompt_id":
        table["prompt_id"] = table["sample_id"]
    assert clusters(table) == (by, PROMPTS if names else PROMPTS * SAMPLES)


def test_prompts_are_told_by_text_tokens_or_messages_alike() -> None:
    table, group = without(dump(), "group_id"), dump()["group_id"]
    ids = [[7, int(g.split("-")[1])] for g in group]
    messages = [[{"role": "user", "content": g}] for g in group]
    for prompts in (group, ids, messages):
        assert clusters(pa.table(table | {"prompt": prompts})) == ("prompt", PROMPTS)
    by_text, by_ids = (analyze(pa.table(table | {"prompt": prompts})).intervals["kl"] for prompts in (group, ids))
    assert width(by_text) == pytest.approx(width(by_ids), rel=0.3)


PROMPT_FORMS: dict[str, Any] = {
    "text": lambda i: f"é{i}",
    "tokens": lambda i: [7, i],
    "messages": lambda i: [{"role": "user", "content": f"é{i}"}],
    "object": lambda i: {"text": "x", "parts": [{"n": i}]},
}


def lines(table: Dump) -> list[dict[str, Any]]:
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


@pytest.mark.parametrize("form", PROMPT_FORMS)
def test_json_lines_and_parquet_tell_prompts_alike(form: str, tmp_path: Path) -> None:
    table = without(dump(), "group_id")
    table["prompt"] = [PROMPT_FORMS[form](i // SAMPLES) for i in range(PROMPTS * SAMPLES)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines(table))))
    pq.write_table(pa.Table.from_pylist(lines(table)), tmp_path / "d.parquet")
    twins = [analyze(tmp_path / name) for name in ("d.jsonl", "d.parquet")]
    assert [(report.clusters and (report.clusters.by, report.clusters.n)) for report in twins] == [("prompt", 12)] * 2
    assert twins[0].intervals == twins[1].intervals


@pytest.mark.parametrize("forms", [("text", "messages"), ("tokens", "text")])
def test_prompts_of_several_forms_in_json_lines_void_no_row(forms: tuple[str, str], tmp_path: Path) -> None:
    table = without(dump(), "group_id")
    table["prompt"] = [PROMPT_FORMS[forms[i % 2]](i // SAMPLES) for i in range(PROMPTS * SAMPLES)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines(table))))
    report = analyze(tmp_path / "d.jsonl")
    assert report.whole.counts["rows"] == PROMPTS * SAMPLES
    assert report.clusters is not None
    assert report.clusters.n >= 2 * PROMPTS


def test_the_number_of_a_prompts_tokens_is_no_prompt() -> None:
    table = without(dump(), "group_id") | {"prompt_tokens": [7 + i % 3 for i in range(PROMPTS * SAMPLES)]}
    assert clusters(table) == ("rollout", PROMPTS * SAMPLES)


def test_a_row_without_a_prompt_is_a_cluster_of_its_own() -> None:
    table = dump()
    table["group_id"][:3] = [None] * 3
    assert clusters(pa.table(table)) == ("group_id", PROMPTS + 3)


def test_a_rollout_that_stands_several_times_is_one_cluster() -> None:
    table = pq.read_table(STEPS).drop_columns(["prompt"])
    assert clusters(table) == ("group_id", 8)
    assert clusters(table.drop_columns(["group_id"])) == ("rollout", 64)
    # Without ids, too; and each row by itself where that is asked for.
    assert clusters(table.drop_columns(["group_id", "sample_id"])) == ("rollout", 64)
    assert clusters(table, cluster_by="none") == ("none", 320)


def test_short_rows_alike_by_chance_are_told_apart_by_their_ids() -> None:
    table = {"rollout_log_probs": [[-0.5]] * 40, "old_log_probs": [[-0.5 - i / 100] for i in range(40)]}
    assert clusters(table) == ("rollout", 1)
    assert clusters(table | {"sample_id": list(range(40))}) == ("rollout", 40)


def test_a_column_can_be_named_and_must_be_there(tmp_path: Path) -> None:
    table = dump() | {"worker": [f"w{i % 9}" for i in range(PROMPTS * SAMPLES)]}
    assert clusters(table, cluster_by="worker") == ("worker", 9)
    with pytest.raises(errors.RlcorrError, match="no column 'shard' to cluster by"):
        analyze(table, cluster_by="shard")
    path = tmp_path / "dump.parquet"
    pq.write_table(pa.table(table), path)
    for command in (("analyze",), ("check",), ("compare",)):
        done = run(*command, str(path), "--cluster-by", "shard")
        assert (done.status, "to cluster by" in done.err) == (3, True), command


def test_the_report_says_what_the_clusters_are(tmp_path: Path) -> None:
    path, saved = tmp_path / "dump.parquet", tmp_path / "report.json"
    pq.write_table(pa.table(dump()), path)
    done = run("analyze", str(path), "-o", str(saved))
    assert f"{PROMPTS} prompts" in done.out
    assert f"The intervals come from {PROMPTS} prompts (group_id)." in " ".join(done.out.split())
    told = json.loads(saved.read_text())["clusters"]
    assert {name: told[name] for name in ("by", "n", "exact")} == {"by": "group_id", "n": PROMPTS, "exact": True}
    many = tmp_path / "many.parquet"
    pq.write_table(pa.table(dump(prompts=25, samples=2)), many)
    assert "The intervals come from" not in run("analyze", str(many), "--all").out


def test_under_five_clusters_nothing_is_concluded() -> None:
    table = dump(prompts=4, samples=20)
    report = analyze(table)
    assert report.intervals == {}
    assert report.verdict.level == "too few"
    assert any("4 prompts (group_id): too few for intervals" in note for note in report.notes)
    comparison = compare(table)
    assert comparison.recommendation.plan is None
    assert "4 prompts (group_id) are too few to compare plans" in comparison.recommendation.headline
    assert not diff(table, dump(1, prompts=40, spread=2.0)).moved
    # Five tell something.
    assert analyze(dump(prompts=5, samples=20)).intervals


def test_metrics_whose_intervals_do_not_hold_have_none() -> None:
    report = analyze(dump(prompts=40))
    assert report.intervals.keys().isdisjoint(("seq_ess", "chi2_seq"))
    assert report.whole.values["seq_ess"] is not None


def test_the_interval_of_a_variance_begins_at_0() -> None:
    whole = analyze(ROOT / "sample_data" / "smollm2_bf16.parquet")
    low, high = whole.intervals["chi2_token"]
    assert low == 0 < (whole.whole.values["chi2_token"] or 0.0) < high
    assert whole.intervals["kl"][0] < 0


@pytest.mark.parametrize("by", ["group_id", "none"])
def test_parts_that_are_added_give_the_same_intervals(tmp_path: Path, by: str) -> None:
    table = dump(prompts=30)
    # Samples of a prompt lie in different parts.
    n = len(table["group_id"])
    parts = [tmp_path / f"part{k}.rlcorr" for k in range(3)]
    for k, part in enumerate(parts):
        save(analyze(rows(table, list(range(k, n, 3))), cluster_by=by, totals=True), part)
    whole = analyze(rows(table, [i for k in range(3) for i in range(k, n, 3)]), cluster_by=by)
    together = added(parts)
    assert together.clusters == whole.clusters
    for name, ends in whole.intervals.items():
        assert together.intervals[name] == pytest.approx(ends, rel=1e-12, abs=1e-12), name


def test_totals_of_other_clusters_do_not_add(tmp_path: Path) -> None:
    parts = [tmp_path / "a.rlcorr", tmp_path / "b.rlcorr"]
    for by, part, table in zip(("group_id", "none"), parts, (dump(1), dump(2)), strict=True):
        save(analyze(table, cluster_by=by, totals=True), part)
    with pytest.raises(errors.UsageError, match="cluster_by is none in the first and group_id in the second"):
        added(parts)


@pytest.mark.full
def test_two_dumps_of_one_kind_do_not_differ_by_their_prompts() -> None:
    """Of 20 pairs by chance alone, each with a noise of every prompt's own, row draws take many for moved."""
    pairs = [(dump(seed, prompts=24), dump(seed + 100, prompts=24)) for seed in range(1, 21)]
    alarms = {
        by: sum(bool(diff(a, b, min_effect=0, cluster_by=by).moved) for a, b in pairs) for by in ("group_id", "none")
    }
    assert alarms["group_id"] <= 3
    assert alarms["none"] >= 6


def test_a_larger_noise_is_still_found() -> None:
    quiet, loud = dump(1, prompts=32, spread=0.25), dump(2, prompts=32, spread=0.25)
    louder = loud | {
        "old_log_probs": (
            np.array(loud["rollout_log_probs"])
            + 1.6 * (np.array(loud["old_log_probs"]) - np.array(loud["rollout_log_probs"]))
        ).tolist()
    }
    assert diff(quiet, louder).moved


def test_rescored_rollouts_pair_by_their_prompts_or_ids() -> None:
    a = dump(1, prompts=30)
    shaken = np.random.default_rng(3).normal(0, 0.01, (180, LENGTH))
    # The engine is another: its own log-probs, and so what a rollout is known by, are others.
    b = a | {"rollout_log_probs": (np.array(a["rollout_log_probs"]) + shaken).tolist()}
    unpaired = b | {"sample_id": [f"x{i}" for i in range(180)], "group_id": [f"x{i // 6}" for i in range(180)]}
    for dropped in ((), ("group_id",)):
        paired, apart = (diff(without(a, *dropped), without(other, *dropped)).whole for other in (b, unpaired))
        change, other = paired.metrics["k3_kl"], apart.metrics["k3_kl"]
        assert change.high is not None
        assert change.low is not None
        assert other.high is not None
        assert other.low is not None
        assert change.high / change.low < 0.5 * other.high / other.low + 0.5


def test_check_takes_clusters_too() -> None:
    table = dump(prompts=4, samples=20)
    assert check(table, cluster_by="none").findings
    with pytest.raises(errors.UsageError, match="cluster_by"):
        analyze(table, cluster_by=3)


@pytest.mark.parametrize("n", [5, 6, 8, 12, 20, 33, 200, 10_000])
def test_students_t_is_that_of_the_book(n: int) -> None:
    exact = special.stdtrit(n - 1, 0.975) * math.sqrt(n / (n - 1))
    assert t_quantile(0.975, n) == pytest.approx(exact, rel=0.006 if n < 8 else 0.002)
    for deviations in (0.3, 1.5, 2.5, 4.0):
        p = 2 * (1 - special.stdtr(n - 1, deviations * math.sqrt((n - 1) / n)))
        assert t_probability(deviations, n) == pytest.approx(p, rel=0.1 if n < 8 else 0.04)
    assert t_probability(t_quantile(0.975, n), n) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize(("noise", "known"), [(3e-8, False), (1e-7, False), (1e-6, True)])
def test_what_only_rounding_tells_apart_has_no_interval(noise: float, known: bool) -> None:
    """Below log-ratios of 3e-7 the correlations of all replicates lie within rounding of 1."""
    table = dump(prompts=24)
    log_ratios = np.random.default_rng(1).normal(0, noise, (24 * SAMPLES, LENGTH))
    report = analyze({**table, "old_log_probs": (np.array(table["rollout_log_probs"]) + log_ratios).tolist()})
    assert 0 < width(report.intervals["kl"]) < noise
    assert ("prob_pearson" in report.intervals) == known


def noisy(seed: int, prompts: int = 32) -> Dump:
    """Samples of 40 tokens whose noise has a size of each prompt's own: .12 e^N(0, .5), rho of mean 1."""
    rng = np.random.default_rng(seed)
    sizes = 0.12 * np.repeat(np.exp(rng.normal(0, 0.5, prompts)), 8)[:, None]
    log_ratio = np.minimum(sizes * rng.normal(size=(prompts * 8, 40)) - sizes**2 / 2, 2.4)
    rollout = -2.5 - 3 * rng.random(log_ratio.shape)
    return {
        "group_id": np.repeat(np.arange(prompts), 8).tolist(),
        "sample_id": list(range(prompts * 8)),
        "rollout_log_probs": rollout.tolist(),
        "old_log_probs": (rollout + log_ratio).tolist(),
    }


@pytest.mark.parametrize(
    ("number", "prompts"),
    few([(1, 32), (3, 32), (4, 32), (5, 32), (7, 32), (8, 32), (2, 160), (2, 8)], [(1, 32), (2, 8)]),
)
def test_the_ends_of_a_dump_hardly_depend_on_the_seed(number: int, prompts: int) -> None:
    table = noisy(number, prompts)
    first, *others = (analyze(table, seed=seed) for seed in range(4))
    assert {"kl", "k3_kl", "logprob_abs_diff_mean"} <= first.intervals.keys()
    for name, (low, high) in first.intervals.items():
        value = first.whole.values[name]
        assert value is not None
        for other_low, other_high in (other.intervals[name] for other in others if name in other.intervals):
            assert 1 / 1.5 < (other_high - value) / (high - value) < 1.5, name
            assert 1 / 1.5 < (value - other_low) / (value - low) < 1.5, name


@pytest.mark.parametrize("number", few([1, 3, 4, 5, 7, 8], [1, 8]))
def test_an_upper_end_is_no_multiple_of_what_the_dump_can_tell(number: int) -> None:
    """Standard deviations are 13 to 40% of the value; the upper ends were up to 4.6 times the value."""
    report = analyze(noisy(number))
    value, (_, high) = report.whole.values["k3_kl"], report.intervals["k3_kl"]
    assert value is not None
    assert 1.3 * value < high < 2.8 * value


@pytest.mark.full
def test_intervals_hold_the_truth_where_hard_prompts_are_noisier_and_longer() -> None:
    design = HARD[0]
    shares = coverage(design, 32, 200, plans=(), true=truth(design, (), n_clusters=16_000))
    for name in ("kl", "k3_kl", "logprob_abs_diff_mean"):
        assert 86 < shares[name] <= 98, name


@pytest.mark.parametrize("name", ["log_ratio_std", "prob_pearson", "token_ess"])
def test_what_few_prompts_do_not_tell_has_no_interval(name: str) -> None:
    assert name not in analyze(noisy(1, 19)).intervals
    assert name in analyze(noisy(1, 20)).intervals


def test_a_reward_has_an_interval_as_far_below_as_above() -> None:
    rewards = np.random.default_rng(1).normal(0, 1, 256).tolist()
    report = analyze(noisy(1) | {"reward": rewards})
    value, (low, high) = report.whole.values["reward_mean"], report.intervals["reward_mean"]
    assert value is not None
    assert high - value == pytest.approx(value - low, rel=1e-9)
