"""`rlcorr analyze` on the sample data: its JSON, its groups, its batches, its files."""

import json
import math
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from running import BF16, SAMPLE, STEPS, analyzed, parquet, refused, row, run, run_process

TOP = [
    "rlcorr",
    "inputs",
    "plan",
    "profile",
    "last_step",
    "verdict",
    "story",
    "cause",
    "course",
    "counts",
    "clusters",
    "metrics",
    "intervals",
    "groups",
    "health",
    "trends",
    "problems",
    "suspicions",
    "impossible",
    "suggestions",
    "geometric",
    "notes",
    "objective",
]
COUNTS = ["rows", "sequences", "empty_sequences", "tokens", "masked_tokens", "bad_rows"]
STEP = ("--group-by", "step")
NORMALIZED = ("--is", "token:,1.1", "--normalize", "batch")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The rows of each step, in a file of their own."""
    folder, table = tmp_path_factory.mktemp("steps"), pq.read_table(STEPS)
    paths = [folder / f"step{step}.parquet" for step in range(5)]
    for step, path in enumerate(paths):
        pq.write_table(table.filter(pc.equal(table["step"], step)), path)
    return [str(path) for path in paths]


def whole(report: dict[str, Any]) -> dict[str, int]:
    """A report's counts as a group has them: a bad row may not even say which group it is in."""
    return {name: n for name, n in report["counts"].items() if name != "bad_rows"}


def same(found: dict[str, Any], expected: dict[str, Any], rel: float = 1e-9) -> bool:
    """Equal numbers under equal names, null for null."""
    missing = {name for name, value in expected.items() if value is None}
    assert found.keys() == expected.keys()
    assert {name for name, value in found.items() if value is None} == missing
    numbers = {name: value for name, value in expected.items() if value is not None}
    return {name: found[name] for name in numbers} == pytest.approx(numbers, rel=rel, abs=1e-12)


def test_json_has_the_keys_of_the_specification() -> None:
    report = analyzed(STEPS, "--preset", "seq_is_rs", *STEP)
    assert list(report) == [*TOP, "lags"]
    assert list(report["rlcorr"]) == ["version", "schema"]
    assert report["rlcorr"]["schema"] == 1
    assert list(report["inputs"][0]) == ["path", "format", "rows", "bytes", "modified", "columns"]
    assert {"name", "mode", "weighting", "rejections"} <= report["plan"].keys()
    assert list(report["counts"]) == COUNTS
    assert list(report["groups"][0]) == ["key", "counts", "metrics", "clusters", "level"]
    assert list(report["health"][0]) == ["metric", "value", "rule", "status", "remedy"]
    assert {finding["status"] for finding in report["health"]} <= {"ok", "warn", "fail", "no data"}
    assert all(low <= high for low, high in report["intervals"].values())


def test_json_describes_its_input() -> None:
    report = analyzed(BF16)
    (given,) = report["inputs"]
    assert given == {
        "modified": f"{datetime.fromtimestamp(Path(BF16).stat().st_mtime, UTC):%Y-%m-%dT%H:%MZ}",
        "path": BF16,
        "format": "parquet",
        "rows": 64,
        "bytes": Path(BF16).stat().st_size,
        "columns": {name: name for name in ("rollout_log_probs", "old_log_probs", "response_mask", "reward")}
        | {"advantages": "advantage", "step": "step"},
    }
    assert report["counts"] == {
        "rows": 64,
        "sequences": 64,
        "empty_sequences": 0,
        "tokens": 5493,
        "masked_tokens": 0,
        "bad_rows": 0,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bf16", {"kl": 0.00103, "log_ratio_std": 0.0479, "k3_kl": 0.00114, "seq_ess": 0.707}),
        ("fp32", {"log_ratio_std": 3.7e-6, "k3_kl": 6.85e-12}),
        ("int8", {"log_ratio_mean": -0.00439, "log_ratio_std": 0.0905, "k3_kl": 0.00395, "seq_ess": 0.44}),
    ],
)
def test_numbers_of_the_sample_data(name: str, expected: dict[str, float]) -> None:
    metrics = analyzed(str(SAMPLE / f"smollm2_{name}.parquet"))["metrics"]
    assert {key: metrics[key] for key in expected} == pytest.approx(expected, rel=6e-3)


def test_json_lines_give_what_parquet_gives() -> None:
    lines, columns = (analyzed(path, "--preset", "geo_rs") for path in (str(SAMPLE / "smollm2_bf16.jsonl"), BF16))
    assert lines["counts"] == columns["counts"]
    assert same(lines["metrics"], columns["metrics"], rel=1e-12)
    assert lines["intervals"].keys() == columns["intervals"].keys()
    for name, ends in lines["intervals"].items():
        assert ends == pytest.approx(columns["intervals"][name], rel=1e-9, abs=1e-12)


def test_counts_of_groups_add_up_to_the_total() -> None:
    report = analyzed(STEPS, "--preset", "geo_rs", *STEP)
    groups = report["groups"]
    assert [group["key"] for group in groups] == [{"step": step} for step in range(5)]
    assert {name: sum(g["counts"][name] for g in groups) for name in COUNTS[:-1]} == whole(report)
    for name in ("kept_tokens", "kept_sequences"):
        assert sum(g["metrics"][name] for g in groups) == report["metrics"][name]


@pytest.mark.parametrize("plan", [("--preset", "geo_rs"), ("--preset", "token_is_token_rs"), NORMALIZED])
def test_a_group_has_the_numbers_of_its_rows_alone(plan: tuple[str, ...], steps: list[str]) -> None:
    groups = analyzed(STEPS, *plan, *STEP)["groups"]
    for path, group in zip(steps, groups, strict=True):
        alone = analyzed(path, *plan)
        assert same(group["metrics"], alone["metrics"])
        assert group["counts"] == whole(alone)


def test_a_profiles_group_has_the_peers_numbers_of_its_rows_alone(steps: list[str], tmp_path: Path) -> None:
    config = tmp_path / "verl.yaml"
    config.write_text("rollout_is: token\nrollout_is_threshold: 1.1\nrollout_is_batch_normalize: true\n")
    plan = ("--profile", "verl-0.6", "--plan", str(config), "--batch-by", "step")
    report = analyzed(STEPS, *plan, *STEP)
    assert report["profile"] == "verl-0.6"
    assert report["intervals"] == {}
    assert report["metrics"].keys() == report["groups"][0]["metrics"].keys()
    assert all(name.startswith("rollout_corr/") for name in report["metrics"])
    for path, group in zip(steps, report["groups"], strict=True):
        assert same(group["metrics"], analyzed(path, *plan)["metrics"])


def test_groups_by_two_columns() -> None:
    report = analyzed(STEPS, *STEP, "--group-by", "group_id")
    assert len(report["groups"]) == 40
    assert list(report["groups"][0]["key"]) == ["step", "group_id"]
    assert sum(g["counts"]["tokens"] for g in report["groups"]) == report["counts"]["tokens"]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_lag_is_the_step_less_the_version_where_no_column_holds_it(engine: str, tmp_path: Path) -> None:
    rows = [row(step=step, policy_version=version) for step, version in ((5, 5), (5, 3), (6, 6), (7, 5), (7, None))]
    dumps = [parquet(tmp_path / f"{i}.parquet", part) for i, part in enumerate((rows[:3], rows[3:]))]
    found = run("analyze", *dumps, "--group-by", "lag", "--engine", engine, "--workers", "2", "--json").json
    counted = [(group["key"]["lag"], group["counts"]["rows"]) for group in found["groups"]]
    assert counted == [(0, 2), (2, 2), (None, 1)]
    assert all(lag is None or type(lag) is int for lag, _ in counted)
    assert "Using step - policy_version as lag." in found["notes"]
    assert found["inputs"][0]["columns"]["lag"] == "step - policy_version"


def test_a_column_of_lags_is_taken_before_any_difference(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(step=5, policy_version=5, policy_version_lag=3)])
    (group,) = run("analyze", dump, "--group-by", "lag", "--json").json["groups"]
    assert group["key"] == {"lag": 3}


def test_a_dump_without_versions_says_what_lag_needs() -> None:
    refused(run("analyze", BF16, "--group-by", "lag"), 3, "There is no lag to group by", "--map policy_version=COLUMN")


def test_a_batch_is_a_step_unless_told_otherwise() -> None:
    report = analyzed(STEPS, *NORMALIZED, *STEP)
    means = [group["metrics"]["rollout_is_applied_mean"] for group in report["groups"]]
    assert means == pytest.approx([1.0] * 5, rel=1e-12)
    assert any("5 values of step" in note for note in report["notes"])


def test_batch_by_none_makes_the_dump_one_batch() -> None:
    report = analyzed(STEPS, *NORMALIZED, *STEP, "--batch-by", "none")
    assert report["metrics"]["rollout_is_applied_mean"] == pytest.approx(1.0, rel=1e-12)
    means = [group["metrics"]["rollout_is_applied_mean"] for group in report["groups"]]
    assert max(abs(mean - 1.0) for mean in means) > 1e-3
    assert any("over the whole dump" in note for note in report["notes"])


def test_batch_by_another_column_makes_batches_of_its_values() -> None:
    report = analyzed(STEPS, *NORMALIZED, "--batch-by", "group_id", "--group-by", "group_id")
    means = [group["metrics"]["rollout_is_applied_mean"] for group in report["groups"]]
    assert means == pytest.approx([1.0] * 8, rel=1e-12)


def test_grouping_does_not_change_the_whole() -> None:
    for plan in ((), ("--preset", "geo_rs"), NORMALIZED):
        assert same(analyzed(STEPS, *plan, *STEP)["metrics"], analyzed(STEPS, *plan)["metrics"])


@pytest.mark.parametrize(
    ("dump", "computing"),
    [
        (STEPS, ("--engine", "threads", "--workers", "1")),
        (STEPS, ("--engine", "threads", "--workers", "5")),
        (BF16, ("--batch-tokens", "1")),
        (STEPS, ("--device", "cpu")),
    ],
)
def test_how_it_is_computed_changes_no_number(dump: str, computing: tuple[str, ...]) -> None:
    found, expected = (analyzed(dump, "--preset", "geo_rs", *more) for more in (computing, ()))
    assert same(found["metrics"], expected["metrics"])
    for name, ends in expected["intervals"].items():
        assert found["intervals"][name] == pytest.approx(ends, rel=1e-9, abs=1e-12)


def test_seed_changes_intervals_and_nothing_else() -> None:
    first, second = (analyzed(BF16, "--seed", seed) for seed in ("0", "1"))
    assert first["metrics"] == second["metrics"]
    assert first["intervals"]["kl"] != second["intervals"]["kl"]


def test_thresholds_change_what_they_name() -> None:
    plain, strict = analyzed(BF16), analyzed(BF16, "--extreme-ratio", "1.05")
    changed = {name for name in plain["metrics"] if plain["metrics"][name] != strict["metrics"][name]}
    assert changed == {"extreme_token_fraction"}


def test_flags_change_a_preset_in_the_reported_plan() -> None:
    plan = analyzed(BF16, "--preset", "geo_rs", "--veto", "0.01", "--is", "token:,3")["plan"]
    assert plan["name"] == "decoupled_geo_rs+flags"
    ours = {"scope": "token", "low": None, "high": 3.0, "outside": "clamp", "normalize": "none"}
    assert plan["weighting"] == {**ours, "of": "mismatch", "gate": "any"}
    assert [(r["name"], r["low"], r["high"]) for r in plan["rejections"]] == [
        ("geometric", 0.999, 1.001),
        ("veto", 0.01, None),
    ]


@pytest.mark.parametrize("name", ["token_is", "token-tis", "Decoupled_Token_IS"])
def test_a_preset_has_aliases(name: str) -> None:
    assert analyzed(BF16, "--preset", name)["plan"]["name"] == "decoupled_token_is"


def test_current_policy_adds_drift_and_bypass_takes_it(tmp_path: Path) -> None:
    rows = [row([-0.5, -1.0], [-0.25, -2.0], current_log_probs=[-0.5, -1.0])] * 10
    path = parquet(tmp_path / "three.parquet", rows)
    decoupled, bypass = analyzed(path), analyzed(path, "--mode", "bypass")
    assert decoupled["metrics"]["kl"] == pytest.approx(0.375)
    assert decoupled["metrics"]["ppo_kl"] == pytest.approx((0.25 - 1.0) / 2)
    assert bypass["metrics"]["kl"] == 0.0
    assert [one["name"] for one in bypass["suspicions"]] == ["bypass_copy"]
    assert decoupled["suspicions"] == []


def test_no_data_is_null_in_json(tmp_path: Path) -> None:
    report = analyzed(parquet(tmp_path / "one.parquet", [row([-1.0], [-1.5])]))
    assert report["metrics"]["prob_pearson"] is None
    assert report["metrics"]["reward_mean"] is None


def test_output_file_holds_what_json_prints(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("an earlier report")
    refused(run("analyze", BF16, "-o", str(path)), 4, "report.json exists", "--overwrite")
    assert path.read_text() == "an earlier report"
    printed = run("analyze", BF16, "--json", "-o", str(path), "--overwrite")
    assert (printed.status, printed.err) == (0, f"Wrote {path}.\n")
    written = json.loads(path.read_text())
    assert written.pop("pictures")["counts"]
    assert written == json.loads(printed.out)
    assert path.read_text().startswith(printed.out.rstrip("\n}"))
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_output_goes_to_every_file_beside_the_text(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    ran = run("analyze", BF16, "-o", str(paths[0]), "-o", str(paths[1]))
    assert "Verdict: close (k3_kl below 0.01)." in ran.out
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert list(json.loads(paths[0].read_text())) == [*TOP, "pictures"]


def test_trends_are_told_where_pictures_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run("analyze", STEPS, "-o", str(path))
    assert json.loads(path.read_text())["trends"]["surprise"]["change"] == "grows"
    assert analyzed(STEPS)["trends"] is None


def test_a_failed_run_leaves_an_earlier_report_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("an earlier report")
    bad = parquet(tmp_path / "bad.parquet", [row(), row([-0.5, float("nan")])])
    assert run("analyze", bad, "-o", str(path), "--overwrite").status == 3
    assert path.read_text() == "an earlier report"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.parquet", "report.json"]


def test_more_groups_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcorr_cli.totals.measured.MOST_GROUPS", 5)
    assert run("analyze", STEPS, "--group-by", "step").status == 0
    monkeypatch.setattr("rlcorr_cli.totals.measured.MOST_GROUPS", 4)
    ran = run("analyze", STEPS, "--group-by", "step")
    assert ran.status == 2
    assert "over 4 groups by step" in ran.err
    assert "Group by a column of fewer values" in ran.err
    assert run("analyze", STEPS).status == 0


def test_the_shift_of_advantages_is_that_of_compare(tmp_path: Path) -> None:
    draw = random.Random(5)
    rows: list[dict[str, Any]] = []
    for i in range(80):
        rollout = [-2 * draw.random() - 0.2 for _ in range(5)]
        old = [a + draw.gauss(0, 0.05) for a in rollout]
        mask = [int(draw.random() > 0.2) for _ in rollout]
        rows.append(row(rollout, old, step=i % 2, response_mask=mask, advantages=[draw.gauss(0, 1) for _ in rollout]))
    dump = parquet(tmp_path / "d.parquet", rows)
    report, plans = (run(name, dump, "--group-by", "step", "--json").json for name in ("analyze", "compare"))
    for name in ("advantage_shift", "advantage_shift_se"):
        assert report["metrics"][name] == pytest.approx(plans["metrics"][name], rel=1e-9)
        for here, there in zip(report["groups"], plans["groups"], strict=True):
            assert here["metrics"][name] == pytest.approx(there["metrics"][name], rel=1e-9)
    shift, error = (report["metrics"][name] for name in ("advantage_shift", "advantage_shift_se"))
    line = next(line for line in run("analyze", dump, "--all").out.splitlines() if "advantage_shift" in line)
    low, high = (float(end) for end in line.split()[-3::2])
    assert (low, high) == pytest.approx((shift - 1.96 * error, shift + 1.96 * error), rel=0.1)


def test_advantages_that_are_no_numbers_make_no_row_bad(tmp_path: Path) -> None:
    """`analyze` reads them for one metric alone; only what needs them holds rows to them."""
    rows = [row(old=(-0.5, -1 - i / 80), sample_id=i, advantages=[float(i % 3), 1.0]) for i in range(40)]
    rows[3]["advantages"], rows[5]["advantages"], rows[7]["advantages"] = None, [1.0], [math.nan, math.nan]
    dump = parquet(tmp_path / "d.parquet", rows)
    report = run("analyze", dump, "--json").json
    assert (report["counts"]["rows"], report["counts"]["bad_rows"]) == (40, 0)
    assert "3 of 40 sequences have no finite advantage: advantage_shift is of the others." in report["notes"]
    sound = parquet(tmp_path / "e.parquet", [one for i, one in enumerate(rows) if i not in (3, 5, 7)])
    assert report["metrics"]["advantage_shift"] == pytest.approx(
        run("compare", sound, "--json").json["metrics"]["advantage_shift"], abs=1e-12
    )
    refused(run("compare", dump), 3, "advantages")


def test_a_dump_without_advantages_has_no_shift_of_them(tmp_path: Path) -> None:
    report = analyzed(parquet(tmp_path / "d.parquet", [row()]))
    assert not [name for name in report["metrics"] if name.startswith("advantage_shift")]


def test_sequence_weights_that_rest_on_few_sequences_are_said_to() -> None:
    note = "One sequence outweighs the other 319: chi2_seq and seq_ess are not reliable."
    assert note in analyzed(STEPS)["notes"]
    assert not [note for note in analyzed(BF16)["notes"] if "outweigh" in note]


@pytest.mark.parametrize(("n", "words"), [(1, "the only row is empty"), (5, "all 5 rows are empty")])
def test_rows_that_are_all_empty_are_not_called_masked(tmp_path: Path, n: int, words: str) -> None:
    typed = pa.schema([(name, pa.list_(pa.float64())) for name in ("rollout_log_probs", "old_log_probs")])
    pq.write_table(pa.Table.from_pylist([row([], [])] * n, schema=typed), tmp_path / "d.parquet")
    refused(run("analyze", str(tmp_path / "d.parquet")), 3, f"no token, {words}.", "Name a dump")


def test_what_doubles_every_step_rises_evenly_in_the_line_that_is_drawn_of_it() -> None:
    ran = run_process("analyze", str(SAMPLE / "collapse.parquet"), env={"PYTHONIOENCODING": "utf-8"})
    lines = ran.out.splitlines()
    (k3,) = (line for line in lines if line.startswith("  k3_kl ") and "log scale" in line)
    drawn = [" ▁▂▃▄▅▆▇█".index(block) for block in k3.split()[1]]
    assert len(drawn) == 12
    assert max(later - earlier for earlier, later in pairwise(drawn)) <= 1
    assert not [line for line in lines if line.startswith("  seq_ess ") and "log scale" in line]
