"""Saved totals: parts of a dump come to the result of one run over all of it, and what does not add is refused."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from few import few
from running import BF16, SAMPLE, STEPS, analyzed, parquet, refused, row, run

from rlcorr_cli.api import analyze, save
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.metrics.diagnostics import QUANTILES
from rlcorr_cli.results.saved import read_report
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.results.saved_totals import VERSION, content, read_head, read_totals
from rlcorr_cli.totals.row_keys import SKETCH_SIZE, KeySample, shared_fraction
from rlcorr_cli.totals.totals import MOST_LISTED

CUTS = (0, 20, 90, 100, 180, 222, 300, 320)
"""Where the five steps of 64 rows are cut into seven shards, so that no step is in one alone."""
PLANS = {
    "rejections": ("--preset", "seq_is_rs", "--group-by", "step"),
    "batches": ("--is", "token:,2", "--normalize", "batch", "--seed", "3"),
    "profile": ("--profile", "verl-0.9", "--preset", "token_is", "--group-by", "step", "--group-by", "sample_id"),
    "bypass": ("--map", "current_log_probs=old_log_probs", "--mode", "bypass", "--extreme-ratio", "1.5"),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a dump's seven shards."""
    folder = tmp_path_factory.mktemp("shards")
    table = pq.read_table(STEPS)
    for i, (first, last) in enumerate(pairwise(CUTS)):
        pq.write_table(table.slice(first, last - first), folder / f"s{i}.parquet")
    return folder


def saved(dump: "str | Path", path: "str | Path", *args: str) -> str:
    """The totals that `rlcorr analyze DUMP ARGS -o PATH` writes."""
    ran = run("analyze", str(dump), *args, "-o", str(path))
    assert ran.status == 0, ran.err
    return str(path)


def parts_of(shards: Path, folder: Path, *args: str) -> list[str]:
    """The totals of each shard."""
    return [saved(shard, folder / f"{shard.stem}.rlcorr", *args) for shard in sorted(shards.iterdir())]


def merged(*args: str) -> dict[str, Any]:
    return run("analyze", *args, "--json").json


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The totals of each of the five steps, with groups of samples, too."""
    folder = tmp_path_factory.mktemp("steps")
    table = pq.read_table(STEPS)
    for step in range(5):
        pq.write_table(table.filter(pc.field("step") == step), folder / f"{step}.parquet")
    by = ("--group-by", "step", "--group-by", "group_id")
    return [saved(folder / f"{step}.parquet", folder / f"{step}.rlcorr", *by) for step in range(5)]


@pytest.mark.parametrize("plan", few(PLANS, ("rejections", "batches")))
def test_seven_shards_in_any_order_merge_to_the_report_of_one_run(plan: str, shards: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.json", parts_of(shards, tmp_path, *PLANS[plan])
    assert run("analyze", str(shards), *PLANS[plan], "-o", str(whole)).status == 0
    for seed in range(3):
        random.Random(seed).shuffle(parts)
        path = tmp_path / f"{seed}.json"
        assert run("analyze", *parts, "-o", str(path)).status == 0
        assert path.read_bytes() == whole.read_bytes()


def test_a_sum_of_sums_is_the_sum(shards: Path, tmp_path: Path) -> None:
    parts = parts_of(shards, tmp_path, "--preset", "geo_rs")
    for name, some in (("a", parts[:3]), ("b", parts[3:])):
        assert run("analyze", *some, "-o", str(tmp_path / f"{name}.rlcorr")).status == 0
    found = merged(str(tmp_path / "b.rlcorr"), str(tmp_path / "a.rlcorr"))
    whole = json.loads(Path(saved(shards, tmp_path / "whole.json", "--preset", "geo_rs")).read_bytes())
    assert found["counts"] == whole["counts"]
    for name, value in whole["metrics"].items():
        assert found["metrics"][name] == (value if value is None else pytest.approx(value, rel=1e-12, abs=1e-15)), name
    for name, ends in whole["intervals"].items():
        assert found["intervals"][name] == pytest.approx(ends, rel=1e-12, abs=1e-15), name
    for part in ("inputs", "notes", "suggestions", "geometric", "plan"):
        assert found[part] == whole[part]


def test_the_totals_of_one_run_are_its_report(tmp_path: Path) -> None:
    path, report = str(tmp_path / "part.rlcorr"), str(tmp_path / "report.json")
    assert run("analyze", STEPS, *GROUPED, "-o", path, "-o", report).status == 0
    assert run("analyze", path, "-o", str(tmp_path / "again.json"), "-o", str(tmp_path / "again.rlcorr")).status == 0
    assert path_bytes(str(tmp_path / "again.json")) == path_bytes(report)
    assert path_bytes(str(tmp_path / "again.rlcorr")) == path_bytes(path)
    assert path_bytes(path).startswith(b"rlcorr totals 3\n")


def test_totals_of_a_table_in_memory_are_saved(tmp_path: Path) -> None:
    report = analyze(pq.read_table(BF16), totals=True)
    save(report, tmp_path / "part.rlcorr")
    assert read_report(str(tmp_path / "part.rlcorr")).to_dict()["metrics"] == report.to_dict()["metrics"]
    with pytest.raises(UsageError, match="has not kept its totals"):
        save(analyze(BF16), tmp_path / "other.rlcorr")


GROUPED = ("--group-by", "step", "--preset", "token_is")


def path_bytes(path: str) -> bytes:
    return Path(path).read_bytes()


@pytest.mark.parametrize("seed", few(range(6), (0,)))
def test_equal_policies_shift_no_advantage_in_one_pass_or_merged(seed: int, tmp_path: Path) -> None:
    """Where every sequence has the same ratio, no rounding is left for a standard error."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for i in range(100):
        rollout, shift = [-2 - draw.random() for _ in range(draw.randint(1, 9))], (seed % 2) / 64
        old = [a + shift / len(rollout) for a in rollout]
        rows.append(row(rollout, old, sample_id=i, advantages=draw.gauss(100 * (seed % 3), 1)))
    folder = tmp_path / "shards"
    folder.mkdir()
    for i, cut in enumerate((rows[:13], rows[13:41], rows[41:])):
        parquet(folder / f"{i}.parquet", cut)
    found = merged(*parts_of(folder, tmp_path)), analyzed(str(folder)), analyzed(str(folder), "--batch-tokens", "40")
    assert [report["metrics"]["advantage_shift_se"] for report in found] == [0.0, 0.0, 0.0]
    whole = run("compare", str(folder), "--json").json
    assert {
        plan["values"]["shift_se"] for plan in whole["plans"] if plan["name"] in ("disabled", "decoupled_seq_is")
    } == {0.0}


def test_groups_are_merged_by_fewer_columns(steps: list[str]) -> None:
    by_step = merged(*steps, "--group-by", "step")
    whole = analyzed(STEPS, "--group-by", "step")
    assert [group["key"] for group in by_step["groups"]] == [{"step": step} for step in range(5)]
    for found, expected in zip(by_step["groups"], whole["groups"], strict=True):
        assert found["counts"] == expected["counts"]
        for name, value in expected["metrics"].items():
            of_parts = found["metrics"][name]
            assert of_parts == (None if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), name
    by_both = merged(*steps, "--group-by", "group_id", "--group-by", "step")["groups"]
    assert list(by_both[0]["key"]) == ["group_id", "step"]
    refused(run("analyze", *steps, "--group-by", "source"), 2, "0.rlcorr: --group-by source", "step, group_id alone")


def test_tensorboard_takes_groups_by_one_column(steps: list[str], tmp_path: Path) -> None:
    refused(run("analyze", *steps, "-o", str(tmp_path / "run.tb")), 2, "one column of steps")
    assert run("analyze", *steps, "--group-by", "step", "-o", str(tmp_path / "run.tb")).status == 0


def assert_close(found: Any, expected: Any, where: str = "") -> None:
    """The same documents but for the last digits of sums."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_close(found[name], value, f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_close(found[place], value, f"{where}[{place}]")
    else:
        is_number = isinstance(expected, float)
        assert found == (pytest.approx(expected, rel=1e-9, abs=1e-12) if is_number else expected), where


OTHERS = {
    "plan": (
        ("--preset", "token_is"),
        "the plan is disabled in A and decoupled_token_is in B; weighting is in B",
    ),
    "seed": (("--seed", "1"), "seed is 0 in A and 1 in B"),
    "thresholds": (("--extreme-ratio", "3"), "extreme_ratio is 2.0 in A and 3.0 in B"),
    "columns": (("--map", "old_log_probs=other"), "columns.old_log_probs is old_log_probs in A and other in B"),
    "groups": (("--group-by", "group_id"), "groups is step in A and group_id, step in B"),
    "mode": (("--mode", "bypass", "--map", "current_log_probs=other"), "mode is decoupled in A and bypass in B"),
    "objective": (
        ("--objective", "ppo", "--batch-by", "none"),
        "objective is in B alone.",
    ),
    "profile": (("--profile", "verl-0.9"), "profile is canonical in A and verl-0.9 in B"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_totals_of_another_kind_are_refused_with_both_names(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = pq.read_table(STEPS)
    half = len(table) // 2
    options, words = OTHERS[what]
    for name, rows in (("a", table.slice(0, half)), ("b", table.slice(half))):
        pq.write_table(rows.append_column("other", rows["old_log_probs"]), f"{name}.parquet")
    a = saved("a.parquet", "a.rlcorr")
    b = saved("b.parquet", "b.rlcorr", *options)
    says = words.replace(" A", " the first").replace(" B", " the second")
    refused(run("analyze", b, a), 2, f"{a} and {b} cannot be added: ", says)


def test_parts_of_a_budget_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("budgets: [{statistic: k2, mean_below: 0.001}]")
    paths = [
        saved(dump, tmp_path / f"{i}.rlcorr", "--plan", str(tmp_path / "plan.yaml"))
        for i, dump in enumerate((BF16, STEPS))
    ]
    assert merged(paths[0])["metrics"] == analyzed(BF16, "--plan", str(tmp_path / "plan.yaml"))["metrics"]
    refused(run("analyze", *paths), 2, "parts cannot be added", "in one run")


def test_the_same_rows_are_refused_unless_they_are_allowed(steps: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.rlcorr"
    copy.write_bytes(Path(steps[0]).read_bytes())
    refused(run("analyze", *steps, str(copy)), 3, "0.rlcorr", "copy.rlcorr", "hold the same rows", "--allow-overlap")
    twice = merged(*steps, str(copy), "--allow-overlap")
    assert twice["counts"]["rows"] == 6 * 64
    refused(run("analyze", steps[0], steps[0]), 2, "is named twice")
    # A part of a sum is found again, too.
    for name, some in (("a", steps[:3]), ("b", steps[2:])):
        assert run("analyze", *some, "-o", str(tmp_path / f"{name}.rlcorr")).status == 0
    refused(run("analyze", str(tmp_path / "a.rlcorr"), steps[1]), 3, "a.rlcorr holds the rows of", "1.rlcorr, too:")
    part, other = (str(tmp_path / f"{name}.rlcorr") for name in "ab")
    refused(run("analyze", part, other), 3, f"{part} and {other} share some 33% of the rows of {part}")


def test_one_dump_under_two_plans_is_told_for_its_plans(tmp_path: Path) -> None:
    plain, tight = saved(BF16, tmp_path / "a.rlcorr"), saved(BF16, tmp_path / "b.rlcorr", "--preset", "geo_rs")
    names = (
        "the plan is disabled in the first and decoupled_geo_rs in the second; rejections.geometric is in the second"
    )
    refused(run("analyze", plain, tight), 2, f"cannot be added: {names} alone; rejections.veto is in the second alone.")
    long = tmp_path / ("x" * 200)
    long.mkdir()
    far = saved(BF16, long / "c.rlcorr", "--preset", "prime_ipo", "--seed", "3")
    told = run("analyze", plain, far)
    refused(told, 2, "seed is 0 in the first and 3 in the second")
    assert told.err.count(far) == told.err.count(plain) == 1
    assert run("analyze", plain, "-q").status == 0


def test_one_text_scored_by_two_policies_is_two_rows(steps: list[str]) -> None:
    heads = [read_head(path, RunTotals).contents for path in steps[:2]]
    assert heads[0] is not None
    assert heads[1] is not None
    assert shared_fraction(heads[0], heads[1]) == 0.0
    rows = [read_totals(path).measured.whole for path in steps[:2]]
    assert all(whole is not None and whole.rows is not None and whole.rows.n_rows == 64 for whole in rows)


def test_the_shared_fraction_is_estimated_as_far_as_both_sketches_reach() -> None:
    import numpy as np

    keys = np.random.default_rng(0).integers(0, 2**63, 60_000).astype(np.uint64)
    whole, part = KeySample.of(keys), KeySample.of(keys[:3000])
    assert len(whole.keys) == SKETCH_SIZE
    assert shared_fraction(whole, part) == 1.0
    assert shared_fraction(KeySample.of(keys[1000:4000]), part) == pytest.approx(2 / 3, abs=0.06)
    assert shared_fraction(KeySample.of(keys[3000:]), part) == 0.0
    often = KeySample.of(np.repeat(keys[:5], 2))
    assert shared_fraction(often, KeySample.of(np.concatenate([np.repeat(keys[:5], 2), keys[9:10]]))) == 0.0


def test_bad_rows_and_notes_of_parts_add(tmp_path: Path) -> None:
    bad = {**row(), "old_log_probs": [float("nan"), -1.0]}
    good = [row([-0.1 * i, -1.0]) for i in range(1, 4)]
    paths = [
        saved(parquet(tmp_path / f"{i}.parquet", rows), tmp_path / f"{i}.rlcorr", "--on-bad-row", "skip")
        for i, rows in enumerate(([*good[:2], bad], [bad, *good[2:]]))
    ]
    found = merged(*paths[::-1])
    assert found["counts"]["bad_rows"] == 2
    assert found["problems"]["not_finite"]["rows"] == 2
    assert "0.parquet, row 2" in found["problems"]["not_finite"]["first"]
    assert [source["rows"] for source in found["inputs"]] == [3, 2]


@pytest.mark.full
def test_check_and_plot_take_totals_for_a_report(steps: list[str], tmp_path: Path) -> None:
    path, report = str(tmp_path / "run.rlcorr"), str(tmp_path / "run.json")
    assert run("analyze", *steps, "--group-by", "step", "-o", path, "-o", report).status == 0
    limits = ("--max", "k3_kl=0.01", "--json")
    assert run("check", path, *limits).out == run("check", report, *limits).out
    against = ("--baseline", path, "--max-increase", "kl=20%")
    assert run("check", STEPS, "--group-by", "step", *against).status == 0
    draw = ("--kind", "metrics", "-o", str(tmp_path / "p.svg"), "--overwrite")
    pictures = [run("plot", source, *draw) for source in (path, report)]
    assert pictures[0].out == pictures[1].out
    assert pictures[0].status == 0


def test_only_saved_totals_are_merged(tmp_path: Path) -> None:
    path, report = saved(BF16, tmp_path / "part.rlcorr"), saved(BF16, tmp_path / "report.json")
    refused(run("analyze", path, report), 2, "part.rlcorr holds saved totals", "report.json is a dump")
    refused(run("analyze", str(tmp_path / "none.rlcorr")), 3, "none.rlcorr cannot be read", "No such file")
    (tmp_path / "folder.rlcorr").mkdir()
    refused(run("analyze", str(tmp_path / "folder.rlcorr")), 3, "not a regular file")
    refused(run("inspect", path), 3, "is saved totals of rlcorr's", "analyze, compare")
    refused(run("analyze", path, "-o", path), 2, "part.rlcorr")


OTHER_COMMANDS = {
    "compare": ("--group-by", "step"),
    "compare with objectives": ("--objective", "ppo", "--preset", "token_is", "--preset", "seq_is_rs"),
    "diagnose": ("--group-by", "step", "--by", "group_id"),
    "sweep": ("--vary", "ratio.seq_mean"),
    "sweep by batches": ("--is", "token:,2", "--normalize", "batch", "--vary", "k3.token"),
}
"""Command -> options that its totals are made with."""


@pytest.mark.parametrize("case", few(OTHER_COMMANDS, list(OTHER_COMMANDS)[:1]))
def test_other_commands_add_their_own_totals_to_the_result_of_one_run(case: str, shards: Path, tmp_path: Path) -> None:
    command, whole = case.split()[0], run(case.split()[0], str(shards), *OTHER_COMMANDS[case], "--json").json
    parts = [str(tmp_path / f"{shard.stem}.rlcorr") for shard in sorted(shards.iterdir())]
    for shard, part in zip(sorted(shards.iterdir()), parts, strict=True):
        assert run(command, str(shard), *OTHER_COMMANDS[case], "-o", part).status == 0
    for name, some in (("a", parts[:3]), ("b", parts[3:])):
        assert run(command, *some, "-o", str(tmp_path / f"{name}.rlcorr")).status == 0
    for named in (parts[::-1], [str(tmp_path / "b.rlcorr"), str(tmp_path / "a.rlcorr")]):
        assert_close(run(command, *named, "--json").json, whole)
    copy = tmp_path / "copy.rlcorr"
    copy.write_bytes(Path(parts[0]).read_bytes())
    refused(run(command, *parts, str(copy)), 3, "hold the same rows", "--allow-overlap")
    assert run(command, *parts, str(copy), "--allow-overlap").status == 0


def test_a_clean_dump_in_memory_stands_beside_totals(shards: Path, tmp_path: Path) -> None:
    shard = sorted(shards.iterdir())[0]
    analyzed(str(shard), "-o", str(tmp_path / "a.rlcorr"))
    clean = pq.read_table(shard).to_pandas()
    assert analyze(tmp_path / "a.rlcorr", clean_dump=clean).whole.counts["sequences"] == len(clean)


def test_totals_are_added_by_their_own_command_alone(tmp_path: Path) -> None:
    totals = {command: str(tmp_path / f"{command}.rlcorr") for command in ("analyze", "compare", "diagnose", "sweep")}
    for command, path in totals.items():
        more = ("--vary", "ratio.seq_mean") if command == "sweep" else ()
        assert run(command, BF16, *more, "-o", path).status == 0
    for command, path in totals.items():
        for other, others in totals.items():
            ran = run(command, others)
            if other == command:
                assert ran.status == 0, ran.err
            else:
                refused(ran, 2, f"holds totals of `rlcorr {other}`, not of `rlcorr {command}`", f"rlcorr {other} ")
        refused(run(command, path, BF16), 2, f"{path} holds saved totals", "smollm2_bf16.parquet is a dump")
        refused(run(command, path, "--limit", "3"), 2, "--limit applies to reading a dump", path)
        refused(run(command, BF16, "--allow-overlap"), 2, "--allow-overlap applies to saved totals alone")
    refused(run("check", totals["compare"]), 2, "totals of `rlcorr compare`")


WITH_OTHER_OPTIONS = {
    ("analyze", "--preset", "geo_rs"): "The plan: decoupled_geo_rs is asked for",
    ("analyze", "--preset", "token_is", "--is", "token:,9"): "The plan: ",
    ("analyze", "--seed", "3"): "--seed: 3 is asked for",
    ("analyze", "--nonfinite", "mask"): "--nonfinite applies to reading a dump",
    ("analyze", "--cluster-by", "none"): "--cluster-by: none is asked for",
    ("analyze", "--extreme-ratio", "3"): "--extreme-ratio: 3.0 is asked for",
    ("analyze", "--objective", "ppo"): "--objective: ppo is asked for",
    ("analyze", "--profile", "verl-0.9"): "--profile: verl-0.9 is asked for",
    ("compare", "--preset", "geo_rs"): "The plans: decoupled_geo_rs is asked for",
    ("compare", "--objective", "ppo"): "--objective: ppo is asked for",
    ("diagnose", "--by", "group_id"): "--by: group_id is asked for",
    ("sweep", "--vary", "k3.token"): "The free bound: k3.token, its high bound is asked for",
    ("sweep", "--target-keep", "0.9"): "To find a target the dump is read again",
}
"""Command and options -> what is said where its totals were made with others."""


@pytest.fixture(scope="module")
def under_token_is(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Command -> its totals, made with token_is where it takes a plan."""
    folder, made = tmp_path_factory.mktemp("under"), {}
    for command in ("analyze", "compare", "diagnose", "sweep"):
        made[command] = str(folder / f"{command}.rlcorr")
        plan = () if command == "diagnose" else ("--preset", "token_is")
        free = ("--vary", "ratio.seq_mean") if command == "sweep" else ()
        assert run(command, BF16, *plan, *free, "-o", made[command]).status == 0
    return made


@pytest.mark.parametrize("line", WITH_OTHER_OPTIONS, ids=" ".join)
def test_an_option_that_says_otherwise_than_the_totals_is_refused_by_name(
    line: tuple[str, ...], under_token_is: dict[str, str]
) -> None:
    command, *options = line
    refused(run(command, under_token_is[command], *options), 2, WITH_OTHER_OPTIONS[line])


def test_an_option_that_says_what_the_totals_say_is_taken(under_token_is: dict[str, str]) -> None:
    for command in ("analyze", "compare", "sweep"):
        free = ("--vary", "ratio.seq_mean") if command == "sweep" else ()
        ran = run(command, under_token_is[command], "--preset", "token_is", *free)
        assert ran.status == 0, ran.err


FOREIGN = {
    "empty": b"",
    "a report": b'{"rlcorr": {"version": "0.1.0", "schema": 1}}',
    "parquet": (SAMPLE / "smollm2_bf16.parquet").read_bytes()[:5000],
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94",
    "of no version": b"rlcorr totals x\n" + bytes(100),
    "without an end": b"rlcorr totals 3",
    "of nothing": b"rlcorr totals 3\n",
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("command", few(["analyze", "check", "plot"], ["check"]))
def test_another_file_of_that_name_is_refused(what: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / "part.rlcorr"
    path.write_bytes(FOREIGN[what])
    refused(run(command, str(path)), 3, "part.rlcorr")


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = Path(saved(BF16, tmp_path / "part.rlcorr"))
    head, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(head[:-1] + b"%d\n" % (VERSION + 1) + rest)
    refused(run("analyze", str(path)), 3, "another version of rlcorr", f"its form is {VERSION + 1}")


def test_damage_anywhere_is_found(tmp_path: Path) -> None:
    path, chance = Path(saved(BF16, tmp_path / "part.rlcorr")), random.Random(0)
    data = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged if chance.random() < 0.5 else data[: chance.randrange(len(data))])
        with pytest.raises(DataError, match=r"part\.rlcorr"):
            read_totals(str(path))


def test_totals_of_a_release_with_other_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcorr_cli.metrics.diagnostics import METRICS

    path = saved(BF16, tmp_path / "part.rlcorr")
    newer = (*METRICS, METRICS[0].__class__(**{**vars(METRICS[0]), "name": "x", "value": lambda n: n.sum("novel")}))
    monkeypatch.setattr("rlcorr_cli.metrics.diagnostics.METRICS", newer)
    refused(run("analyze", path), 3, "part.rlcorr was written by another release", "novel")


def test_totals_that_once_meant_something_else_are_refused(tmp_path: Path) -> None:
    path = Path(saved(BF16, tmp_path / "part.rlcorr"))
    run_totals = read_totals(str(path))
    measured = run_totals.measured
    assert measured.provenance is not None
    earlier = replace(measured.provenance, schema=measured.provenance.schema - 1)
    path.write_bytes(b"".join(content(replace(run_totals, measured=replace(measured, provenance=earlier)))))
    for command in ("analyze", "check", "plot"):
        refused(run(command, str(path)), 3, "part.rlcorr was written by another release", "mean something else")


def test_of_over_2000_groups_each_has_its_sums_alone_however_they_are_split(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(2), MOST_LISTED + 1
    rollout = np.round(-rng.exponential(1.0, (n, 8)), 3) - 0.001
    columns = {"rollout_log_probs": rollout, "old_log_probs": rollout + rng.normal(0, 0.0005, (n, 8))}
    table = pa.table({"sample_id": np.arange(n)} | {name: each.tolist() for name, each in columns.items()})
    for name, part in (("a", table.slice(0, 1500)), ("b", table.slice(1500))):
        pq.write_table(part, tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    parts = [saved(path, path.replace("parquet", "rlcorr"), "--group-by", "sample_id", "--pool") for path in paths]
    few, whole = merged(parts[0]), merged(*paths, "--group-by", "sample_id", "--pool")
    noted = [any("over 2,000 groups" in note for note in report["notes"]) for report in (few, whole)]
    assert noted == [False, True]
    assert whole["metrics"] == pytest.approx(merged(*paths, "--pool")["metrics"], rel=1e-12, nan_ok=True)
    for mine, alone in zip(whole["groups"], few["groups"], strict=False):
        lacking = {name for name, value in alone["metrics"].items() if mine["metrics"][name] != value}
        assert lacking == {f"log_ratio_{name}" for name in QUANTILES}
        assert {mine["metrics"][name] for name in lacking} == {None}
    for order in (parts, parts[::-1]):
        found = merged(*order)
        assert (found["groups"], found["metrics"]) == (whole["groups"], whole["metrics"])
    compared = run("compare", *paths, "--preset", "decoupled_token_is", "--group-by", "sample_id", "--json").json
    assert any("over 2,000 groups" in note for note in compared["notes"])
    (plan,), (of_group,) = compared["plans"], compared["groups"][0]["plans"]
    assert (plan["values"]["top_1pct"] is None, of_group["values"]["top_1pct"]) == (False, None)
