"""`explain --schema`: what our JSON outputs look like is true of real ones, and says no to others."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema_rs
import pytest
from running import BF16, STEPS, jsonl, parquet, row, run

from rlcorr_cli.metrics.catalog import define
from rlcorr_cli.reading.datasets import OutputFile, seal
from rlcorr_cli.records.record import SCHEMA
from rlcorr_cli.results.outputs import SCHEMA_FILE, schema_text

NAMES = (
    *("alarm", "check", "compare", "convert", "diagnose", "diff", "filter", "inspect", "report", "rows"),
    *("scalars", "sweep", "watch", "plot", "presets", "parts", "error"),
)
INT8 = str(Path(BF16).with_name("smollm2_int8.parquet"))


@cache
def document_of(*name: str) -> dict[str, Any]:
    """The schema of an output, or of all, as `rlcorr explain --schema` prints it."""
    ran = run("explain", "--schema", *name)
    assert (ran.status, ran.err) == (0, "")
    document = json.loads(ran.out)
    jsonschema_rs.meta.validate(document)
    return document


@cache
def schema(*name: str) -> jsonschema_rs.Draft202012Validator:
    """What holds an output to its schema."""
    return jsonschema_rs.Draft202012Validator(document_of(*name))


def assert_is(name: str, document: Any) -> None:
    """It is this output, and no other."""
    fault = next(schema(name).iter_errors(document), None)
    assert fault is None, f"{fault.instance_path}: {fault.message}"
    assert schema().is_valid(document)
    assert [other for other in NAMES if schema(other).is_valid(document)] == [name]


WEIGHTED = ("--is", "token:,2:zero", "--normalize", "batch")
ANALYSES: dict[str, tuple[str, ...]] = {
    "plain": (BF16,),
    "grouped": (STEPS, "--group-by", "step", "--group-by", "train_precision"),
    "many": (BF16, STEPS, "--limit", "100", "--seed", "3"),
    "one sequence": (BF16, "--limit", "1"),
    "weights": (BF16, *WEIGHTED, "--rs", "ratio.seq_mean:0.9,", "--veto", "1e-4"),
    "budget": (BF16, "--preset", "m2po"),
    "tight": (BF16, "--rs", "ratio.seq_mean:0.9999,1.0001", "--rs", "k3.token:,0.00001"),
    "objective": (STEPS, "--preset", "token_is", "--objective", "ppo", "--clip-high", "0.28"),
    "objective by group": (STEPS, "--objective", "gspo", "--group-by", "group_id"),
    "bypass": (BF16, "--mode", "bypass", "--map", "current_log_probs=old_log_probs"),
}


@pytest.mark.parametrize("case", ANALYSES)
def test_reports_are_as_the_schema_says(case: str, tmp_path: Path) -> None:
    ran = run("analyze", *ANALYSES[case], "--json", "-o", str(tmp_path / "r.json"))
    assert_is("report", ran.json)
    assert [bounds["units"] for bounds in ran.json["suggestions"]] == ["sequences", "tokens"] * (case == "tight")
    with_pictures = json.loads((tmp_path / "r.json").read_text())
    assert "pictures" in with_pictures
    assert_is("report", with_pictures)


def test_a_profiles_report_is_as_the_schema_says(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("rollout_is: token\nrollout_rs: seq_mean_k3\nrollout_rs_threshold: 0.01\n")
    given = (STEPS, "--profile", "verl-0.9", "--plan", str(tmp_path / "t.yaml"), "--group-by", "step")
    assert_is("report", run("analyze", *given, "--json", "-o", str(tmp_path / "r.json")).json)
    assert "values" in json.loads((tmp_path / "r.json").read_text())["pictures"]
    assert_is("report", json.loads((tmp_path / "r.json").read_text()))


@pytest.mark.parametrize("values", [(1, None), (True, False), (0.5, float("inf")), ("a", "1")], ids=str)
def test_groups_of_any_type_are_as_the_schema_says(values: tuple[Any, ...], tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(x=value) for value in values])
    assert_is("report", run("analyze", dump, "--group-by", "x", "--json").json)
    assert_is("check", json.loads(run("check", dump, "--group-by", "x", "--json").out))


def test_what_filter_prints_is_as_the_schema_says(tmp_path: Path) -> None:
    given = (BF16, "--preset", "geo_rs", "--json")
    assert_is("filter", run("filter", *given, "--dry-run").json)
    tight = run("filter", BF16, "--rs", "ratio.seq_mean:0.9999,1.0001", "--json", "--dry-run").json
    assert [bounds["units"] for bounds in tight["suggestions"]] == ["sequences"]
    assert_is("filter", tight)
    written = ("-o", str(tmp_path / "out.parquet"), "--rejected-output", str(tmp_path / "no.parquet"))
    assert_is("filter", run("filter", *given, *written).json)
    assert_is("filter", run("filter", *given, "--coef", "normalized", "--dry-run").json)


def test_what_inspect_prints_is_as_the_schema_says(tmp_path: Path) -> None:
    assert_is("inspect", run("inspect", STEPS, "--json").json)
    assert_is("rows", run("inspect", BF16, "--worst", "2", "--json").json)
    broken = [row(), row([float("nan"), -1.0]), row([-1.0]), {**row(), "x": float("inf")}]
    for path in (parquet(tmp_path / "d.parquet", broken), jsonl(tmp_path / "d.jsonl", broken)):
        assert_is("inspect", run("inspect", path, "--json").json)
        for number in ("1", "2", "3"):
            assert_is("rows", run("inspect", path, "--row", number, "--json").json)
    assert_is("rows", run("inspect", BF16, "--row", "s001", "--preset", "seq_is_rs", "--json").json)


def test_what_check_prints_is_as_the_schema_says() -> None:
    for args in ((BF16,), (STEPS, "--group-by", "step", "--min", "seq_ess=0.3", "--preset", "token_is")):
        assert_is("check", json.loads(run("check", *args, "--json").out))


def test_what_diagnose_prints_is_as_the_schema_says() -> None:
    for args in ((BF16,), (STEPS, "--group-by", "step", "--by", "group_id"), (BF16, "--limit", "3")):
        assert_is("diagnose", run("diagnose", *args, "--json").json)


def test_an_error_is_as_the_schema_says(tmp_path: Path) -> None:
    for args in (("analyze", "none.parquet"), ("check", BF16, "--max", "kl"), ("plot", BF16, "-o", "none/x.png")):
        ran = run(*args, "--json")
        assert ran.status in (2, 3, 4)
        assert_is("error", json.loads(ran.err))


def test_every_metric_of_a_report_is_described() -> None:
    report = run("analyze", *ANALYSES["weights"], "--json").json
    described = document_of("report")["$defs"]["metrics"]["properties"]
    of_the_plan = ("rollout_rs_veto_", "rollout_rs_seq_mean_ratio_", "kept_")
    for name in report["metrics"]:
        assert name in described or name.startswith(of_the_plan), name
    for name, entry in described.items():
        definition = define(name)
        assert definition is not None
        assert entry["description"].startswith(f"{definition.meaning} {definition.formula}")
        assert entry["type"] == ["number", "null"]


def test_the_schema_is_of_this_release() -> None:
    assert document_of("report")["$defs"]["rlcorr"]["properties"]["schema"] == {"enum": [SCHEMA]}
    assert [one["$ref"] for one in document_of()["anyOf"]] == [f"#/$defs/{name}" for name in NAMES]


def test_the_file_is_what_the_records_say() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        "write it again: python -m rlcorr_cli.results.outputs"
    )


def test_other_outputs_have_no_schema() -> None:
    ran = run("explain", "--schema", "chek")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[1] == "Nearest: check."
    assert ", report, " in run("explain", "--schema", "analyze").err
    # Also where the options are parsed.
    assert run("explain", "check", "--schema").out == run("explain", "--schema", "check").out
    assert run("explain", "--schema", "--debug").out == run("explain", "--schema").out


def drop(*path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        del data[path[-1]]

    return change


def put(value: Any, *path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return change


WRONG: dict[str, dict[str, Callable[[Any], None]]] = {
    "report": {
        "a key more": put(1, "more"),
        "a key less": drop("metrics"),
        "another schema": put(2, "rlcorr", "schema"),
        "a metric as text": put("0.1", "metrics", "kl"),
        "a metric that is true": put(True, "groups", 0, "metrics", "kl"),
        "no metrics": put({}, "metrics"),
        "no inputs": put([], "inputs"),
        "a count below 0": put(-1, "counts", "tokens"),
        "half a count": put(0.5, "groups", 0, "counts", "tokens"),
        "a count less": drop("counts", "rows"),
        "an interval of one end": put([0.1], "intervals", "kl"),
        "a key that is a list": put([1], "groups", 0, "key", "step"),
        "a group without a key": put({}, "groups", 0, "key"),
        "a group with more": put(1, "groups", 0, "more"),
        "a note that is none": put(1, "notes", 0),
        "a status of its own": put("broken", "health", 0, "status"),
        "a level of its own": put("near", "verdict", "level"),
        "a course of nothing": put({}, "course"),
        "trends of nothing": put({}, "trends"),
        "a plan with more": put(1, "plan", "more"),
        "another mode": put("both", "plan", "mode"),
        "another scope": put("batch", "plan", "weighting", "scope"),
        "weights without bounds": drop("plan", "weighting", "high"),
        "a rejection of nothing": put([{}], "plan", "rejections"),
        "half the pictures": put({"counts": {}}, "pictures"),
        "an input without bytes": drop("inputs", 0, "bytes"),
    },
    "filter": {
        "no output": drop("output"),
        "an output with more": put(1, "output", "more"),
        "a row less": drop("output", "rows_in"),
        "half a row": put(0.5, "output", "rows_dropped"),
        "a key more": put(1, "more"),
    },
    "check": {
        "another status": put("ok", "status"),
        "a count less": drop("counts", "failed"),
        "a finding with more": put(1, "findings", 0, "more"),
        "a finding without words": drop("findings", 0, "says"),
        "a severity of ok": put("ok", "findings", 0, "severity"),
        "a remedy that is none": put(False, "findings", 0, "remedy"),
        "a key more": put(1, "more"),
    },
    "compare": {
        "a key more": put(1, "more"),
        "another schema": put(2, "rlcorr", "schema"),
        "no plans": put([], "plans"),
        "a plan without its records": drop("plans", 0, "plan"),
        "a column less": drop("plans", 0, "values", "worth"),
        "a column more": put(1, "groups", 0, "plans", 0, "values", "more"),
        "a flag of its own": put(["close"], "recommendation", "flags"),
        "a reason without words": drop("recommendation", "reasons", 0, "text"),
        "a group without a key": put({}, "groups", 0, "key"),
        "an objective of nothing": put({}, "plans", 0, "objective"),
    },
    "sweep": {
        "no points": put([], "points"),
        "a point with more": put(1, "points", 0, "more"),
        "half a unit": put(0.5, "points", 0, "n_inside"),
        "units of rows": put("rows", "units"),
        "another target": put("worth", "target", "kind"),
        "a threshold of one end": drop("target", "threshold", "low"),
        "a key less": drop("swept"),
    },
    "convert": {"rows below 0": put(-1, "rows"), "one unmatched": put([1], "unmatched"), "a key more": put(1, "more")},
    "plot": {
        "no pictures": lambda data: data.clear(),
        "a picture without words": drop(0, "caption"),
        "a picture with more": put(1, 0, "more"),
    },
    "presets": {
        "no presets": lambda data: data.clear(),
        "a preset without its records": drop(0, "rejections"),
        "a preset with more": put(1, 0, "more"),
        "aliases as text": put("token_is", 0, "aliases"),
    },
    "parts": {
        "no parts": put([], "parts"),
        "half a row": put(0.5, "parts", 0, "rows"),
        "a plan of nothing": put({}, "plan"),
        "a key more": put(1, "more"),
    },
    "error": {
        "no hint": drop("error", "hint"),
        "a status of success": put(0, "error", "exit_status"),
        "a key more": put(1, "error", "more"),
        "a key beside": put(1, "more"),
    },
}


@cache
def right(name: str) -> Any:
    if name == "convert":
        with TemporaryDirectory() as folder:
            return run("convert", BF16, "-o", f"{folder}/dump.parquet", "--json").json
    if name == "parts":
        return json.loads(seal('{"version": "0.1.0"}', [OutputFile("part-00000.parquet", 1, 100)]))
    if name == "plot":
        with TemporaryDirectory() as folder:
            return run("plot", BF16, "--kind", "ratio", "-o", f"{folder}/p.png", "--json").json
    given = {
        "presets": ("presets", "token_is"),
        "report": ("analyze", STEPS, "--group-by", "step", "--preset", "token_is"),
        "filter": ("filter", BF16, "--preset", "geo_rs", "--dry-run"),
        "check": ("check", BF16),
        "compare": ("compare", STEPS, "--group-by", "step", "--preset", "token_is", "--objective", "ppo"),
        "sweep": ("sweep", BF16, "--vary", "ratio.seq_mean", "--target-keep", "0.95"),
        "error": ("analyze", "none.parquet"),
    }[name]
    ran = run(*given, "--json")
    return json.loads(ran.out or ran.err)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in WRONG for case in WRONG[name]])
def test_the_schema_says_no_to_other_documents(name: str, case: str) -> None:
    data = deepcopy(right(name))
    assert schema(name).is_valid(data)
    WRONG[name][case](data)
    assert not schema(name).is_valid(data)
    assert not schema().is_valid(data) or (name, case) == ("filter", "no output")


@pytest.mark.parametrize("document", [None, [], {}, 1, "x", {"error": {}}, {"rlcorr": {"version": "1", "schema": 1}}])
def test_the_schema_says_no_to_anything_else(document: Any) -> None:
    assert not schema().is_valid(document)
    assert not any(schema(name).is_valid(document) for name in NAMES)


def test_what_a_run_has_logged_is_as_the_schema_says() -> None:
    assert_is("scalars", run("scalars", str(Path(BF16).with_name("metrics.jsonl")), "--json").json)


@pytest.mark.parametrize("more", [(), ("--all",), ("--group-by", "group_id")], ids=["whole", "all", "groups"])
def test_comparisons_are_as_the_schema_says(more: tuple[str, ...]) -> None:
    assert_is("diff", run("diff", BF16, INT8, *more, "--json").json)
    assert_is("diff", run("diff", BF16, BF16, *more, "--json").json)
    assert_is("diff", run("diff", BF16, INT8, BF16, *more, "--json").json)


@pytest.mark.parametrize(
    "more",
    [
        (BF16, "--all", "--limit", "1"),
        (STEPS, "--group-by", "step", "--preset", "m2po", "--objective", "cispo"),
    ],
    ids=["all on one row", "groups"],
)
def test_plans_compared_are_as_the_schema_says(more: tuple[str, ...]) -> None:
    assert_is("compare", run("compare", *more, "--json").json)


@pytest.mark.parametrize(
    "more",
    [
        ("--vary", "k3.token"),
        ("--is", "sequence", "--vary", "is.low", "--target-ess", "0.99"),
        ("--vary", "k3.seq_mean", "--target-ess", "0.99"),
        ("--is", "token", "--vary", "is.high", "--target-ess", "0.1", "--limit", "1"),
    ],
    ids=["no target", "no floor", "out of reach", "none needed"],
)
def test_sweeps_are_as_the_schema_says(more: tuple[str, ...]) -> None:
    assert_is("sweep", run("sweep", BF16, *more, "--json").json)


@pytest.mark.parametrize("name", ["convert", "plot", "parts"])
def test_what_is_said_of_files_written_is_as_the_schema_says(name: str) -> None:
    assert_is(name, right(name))


def test_presets_are_as_the_schema_says() -> None:
    assert_is("presets", json.loads(run("presets", "--json").out))
