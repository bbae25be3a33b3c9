"""`check` of saved reports and against a baseline; and that no broken report passes for a bad policy."""

import json
import xml.etree.ElementTree as ET
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st
from running import BF16, STEPS, Ran, parquet, refused, row, run

from rlcorr_cli.errors import DataError
from rlcorr_cli.results.saved import read_report

SCHEMA = json.loads(run("explain", "--schema", "report").out)
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
TRAINER = "rollout_is: token\nrollout_is_threshold: 2.0\n"


def checked(status: int, *args: str) -> dict[str, Any]:
    ran = run("check", *args, "--json")
    assert ran.status == status, ran.err
    return json.loads(ran.out)


def saved(path: Path, *args: str) -> str:
    """The report of `rlcorr analyze ARGS -o PATH`."""
    ran = run("analyze", *args, "-o", str(path))
    assert ran.status == 0, ran.err
    return str(path)


def says(found: dict[str, Any], rule: str) -> list[tuple[dict[str, Any], str, str]]:
    return [(one["key"], one["status"], one["says"]) for one in found["findings"] if rule in one["rule"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """steps.json, of five steps; plain.json, the same without pictures, as --json prints it; peer.json, of verl's."""
    folder = tmp_path_factory.mktemp("saved")
    saved(folder / "steps.json", STEPS, "--group-by", "step", "--preset", "token_is")
    ran = run("analyze", STEPS, "--group-by", "step", "--preset", "token_is", "--json")
    (folder / "plain.json").write_text(ran.out)
    (folder / "objective.json").write_text(
        run("analyze", STEPS, "--preset", "token_is", "--clip-low", "0.1", "--json").out
    )
    (folder / "trainer.yaml").write_text(TRAINER)
    peer = ("--profile", "verl-0.9", "--plan", str(folder / "trainer.yaml"))
    saved(folder / "peer.json", STEPS, *peer, "--group-by", "step")
    (folder / "peer_plain.json").write_text(run("analyze", STEPS, *peer, "--json").out)
    return folder


def test_a_saved_report_is_judged_like_its_dump(folder: Path) -> None:
    rules = ("--min", "seq_ess=0.3", "--max", "rollout_is_std=0.1")
    dump = checked(1, STEPS, "--group-by", "step", "--preset", "token_is", *rules)
    for name in ("steps.json", "plain.json"):
        assert checked(1, str(folder / name), *rules) == dump
    assert checked(0, str(folder / "steps.json"))["counts"]["failed"] == 0


def test_a_peers_report_has_the_peers_names(folder: Path) -> None:
    plain = str(folder / "peer_plain.json")
    found = checked(1, plain, "--max", "rollout_corr/k3_kl=0.001")
    assert {one["metric"] for one in found["findings"]} == {"stale_policy", "rollout_corr/k3_kl"}
    assert [one["key"].get("step") for one in found["findings"][1:]] == [None, 0, 1, 2, 3, 4]
    refused(run("check", plain), 2, "No rule applies", "rollout_corr/")
    refused(run("check", plain, "--max", "k3_kl=1"), 2, "k3_kl", "rollout_corr/k3_kl")
    refused(run("check", plain, "--max", "rollout_is_mean=1"), 2, "no metric", "rollout_corr/rollout_is_mean")


def test_a_peers_report_with_pictures_has_canonical_values_as_well(folder: Path) -> None:
    found = checked(0, str(folder / "peer.json"), "--max", "rollout_corr/k3_kl=1")
    metrics = {one["metric"] for one in found["findings"]}
    assert {"kl", "seq_ess", "rollout_is_mean", "rollout_corr/k3_kl"} <= metrics
    assert (
        len(found["findings"]) == (found["counts"]["rules"] - 1) * 6 + 2
    )  # pareto_k_seq and the cause: of the whole dump


@pytest.mark.parametrize(
    "args",
    [
        ("--group-by", "step"),
        ("--preset", "token_is"),
        ("--rs", "k3.token:,1"),
        ("--limit", "3"),
        ("--map", "a=b"),
        ("--format", "jsonl"),
        ("--profile", "verl-0.9"),
    ],
)
def test_a_saved_report_has_its_plan_and_groups_already(args: tuple[str, ...], folder: Path) -> None:
    refused(run("check", str(folder / "steps.json"), *args), 2, "saved report", "Name the dump itself")


def test_a_fault_fails_a_dump_and_its_saved_report_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, junit = tmp_path / "summary.md", tmp_path / "r.xml"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    dump = parquet(tmp_path / "d.parquet", [row((-1.0, -2.5, -0.3), (-1.0, -2.5, -0.3))] * 40)
    report = saved(tmp_path / "r.json", dump)
    for subject in (dump, report):
        summary.write_text("")
        ran = run("check", subject, "--junit", str(junit))
        assert ran.status == 1
        assert ran.out.startswith("  fail  whole dump: Cause: bypass_copy. The training column is a copy of the")
        assert ran.out.splitlines()[-1] == "  Failed: 1 of 6 checks; 6 rules on d.parquet."
        title = "rlcorr check%3A bypass_copy%2C whole dump"
        assert ran.err.startswith(f"::error title={title}::whole dump: Cause: bypass_copy.")
        assert r"bypass\_copy" in summary.read_text()
        (failure,) = ET.parse(junit).iter("failure")
        assert "bypass_copy" in str(failure.get("message"))
        assert run("check", subject, "--accept", "bypass_copy").status == 0


def test_a_saved_report_has_its_suggestions_and_an_older_one_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.json", STEPS, "--rs", "ratio.seq_mean:0.9999,1.0001")
    data = json.loads(Path(path).read_text())
    (bounds,) = read_report(path).suggestions
    assert [bounds.to_dict()] == data.pop("suggestions")
    Path(path).write_text(json.dumps(data))
    refused(run("check", path), 3, "not a complete report", "missing required field `suggestions`")


def test_two_reports_are_no_dump(folder: Path) -> None:
    assert run("check", str(folder / "steps.json"), str(folder / "plain.json")).status == 3


BROKEN: dict[str, tuple[str, str]] = {
    "cut short": ('{"rlcorr": {"version": "0.1.0"', "cannot be read as a report"),
    "empty": ("", "cannot be read as a report"),
    "JSON lines": ('{"a": 1}\n{"a": 2}\n', "cannot be read as a report"),
    "a list": ("[1]", "not a report"),
    "another's": ('{"metrics": {"kl": 1}}', "not a report"),
    "no head": ('{"rlcorr": null}', "another version"),
    "a list for a head": ('{"rlcorr": [["schema", 1]]}', "another version"),
    "another schema": ('{"rlcorr": {"version": "9", "schema": 2}}', "another version"),
    "true for a schema": ('{"rlcorr": {"version": "9", "schema": true}}', "another version"),
    "a result of check": ('{"rlcorr": {"version": "0", "schema": 1}, "findings": []}', "not a complete report"),
    "deep": ('{"rlcorr": ' + "[" * 100_000, "cannot be read as a report"),
    "a long number": ('{"rlcorr": 1' + "0" * 5000 + "}", "cannot be read as a report"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_report_is_status_3(case: str, tmp_path: Path, folder: Path) -> None:
    text, part = BROKEN[case]
    path = tmp_path / "r.json"
    path.write_text(text)
    refused(run("check", str(path)), 3, "r.json", part)
    against = ("--baseline", str(path), "--max-increase", "kl=20%")
    refused(run("check", str(folder / "plain.json"), *against), 3, "r.json", part)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("compare", BF16, "--preset", "token_is"), "a comparison of plans"),
        (("sweep", BF16, "--vary", "ratio.seq_mean"), "a sweep"),
        (("diff", BF16, STEPS), "a comparison of dumps"),
    ],
    ids=["compare", "sweep", "diff"],
)
def test_results_of_other_commands_are_named_with_how_to_draw_them(
    command: tuple[str, ...], what: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.json"
    assert run(*command, "-o", str(path)).status == 0
    for reader in ("plot", "check"):
        refused(run(reader, str(path)), 3, f"{what}, not a report of a dump", f"`rlcorr {command[0]} ")


@pytest.mark.parametrize(
    ("command", "what"),
    [("diagnose", "a diagnosis"), ("check", "the result of a check"), ("inspect", "what `rlcorr inspect` found")],
)
def test_other_results_of_a_dump_are_named(command: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    assert run(command, BF16, "-o", str(path)).status == 0
    refused(run("check", str(path)), 3, f"{what}, not a report of a dump", "`rlcorr analyze DUMP -o report.json`")


def test_bytes_that_are_no_text_are_status_3(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"\xff\xfe{}")
    refused(run("check", str(tmp_path / "r.json")), 3, "cannot be read as a report")


CHANGES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "a metric as text": (("metrics", "kl"), "0.1", "`$.metrics[...]`"),
    "NaN": (("metrics", "kl"), float("nan"), "NaN"),
    "infinite": (("metrics", "kl"), float("inf"), "Infinity"),
    "true": (("groups", 1, "metrics", "kl"), True, "`$.groups[1].metrics[...]`"),
    "more than a float": (("metrics", "kl"), 10**400, "too large"),
    "no metrics": (("metrics",), {}, "metrics"),
    "other metrics": (("groups", 0, "metrics"), {"kl": 0.1}, "other metrics"),
    "no inputs": (("inputs",), [], "inputs"),
    "tokens below 0": (("counts", "tokens"), -1, "counts.tokens"),
    "no key": (("groups", 0, "key"), {}, "`$.groups[0].key`"),
    "a list for a key": (("groups", 0, "key"), {"step": [1]}, "`$.groups[0].key[...]`"),
    "a suspicion of nothing": (("suspicions",), [{"name": "bypass_copy"}], "`$.suspicions[0]`"),
    "a suggestion of nothing": (("suggestions",), [{"rejection": "tight"}], "`$.suggestions[0]`"),
    "bounds of half an end": (("geometric",), {"low": 0.9}, "`high` - at `$.geometric`"),
    "bad rows of no number": (("problems",), {"sentinel": {"rows": "3", "first": "row 1"}}, "`$.problems[...].rows`"),
    "another plan": (("plan",), {"nome": 1}, "`$.plan`"),
    "counts of nothing": (("counts",), {}, "`rows` - at `$.counts`"),
    "no pictures at all": (("pictures",), None, "pictures"),
    "pictures of nothing": (("pictures",), {}, "`counts` - at `$.pictures`"),
    "half an interval": (("intervals", "kl"), [0.1], "`$.intervals[...]`"),
    "one table of values": (("pictures", "values"), [{"kl": 0.1}], "pictures.values"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_report_that_is_not_whole_is_status_3(case: str, folder: Path, tmp_path: Path) -> None:
    path, value, part = CHANGES[case]
    data = json.loads((folder / "steps.json").read_text())
    put(data, path, value)
    (tmp_path / "r.json").write_text(json.dumps(data))
    refused(run("check", str(tmp_path / "r.json")), 3, "r.json", part)


SMALL = ("plain", "peer", "objective")


class Reports(dict[str, dict[str, Any]]):
    def __repr__(self) -> str:
        """Short, for what hypothesis tells of a failure."""
        return "reports"


@pytest.fixture(scope="module")
def reports(folder: Path) -> Reports:
    """A plain report, a profile's and one with an objective, all with few metrics and groups."""
    found = Reports({name: small(json.loads((folder / f"{name}.json").read_text())) for name in SMALL})
    assert all(VALIDATOR.is_valid(data) for data in found.values())
    return found


def test_a_number_beyond_a_float_is_status_3(folder: Path, tmp_path: Path) -> None:
    text = json.dumps(json.loads((folder / "plain.json").read_text()))
    for whole, broken in (('"key": {"step": 0}', '"key": {"step": 1e999}'), ('"kl": 0.', '"kl": 1e999, "x": 0.')):
        assert whole in text
        (tmp_path / "r.json").write_text(text.replace(whole, broken, 1))
        refused(run("check", str(tmp_path / "r.json")), 3, "Number out of range")


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    for step in path[:-1]:
        data = data[step]
    data[path[-1]] = value


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, but inside of a plan and of counts for pictures, which other tests look at."""
    found = [path] if path else []
    if path[:1] in (("plan",), ("pictures",)) and path[:2] != ("pictures", "values"):
        return (
            found + places(data["values"], (*path, "values")) if isinstance(data, dict) and "values" in data else found
        )
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return found + [place for key, value in inside for place in places(value, (*path, key))]


def small(data: dict[str, Any]) -> dict[str, Any]:
    """A report with two groups and few metrics, so that every place is tried often."""
    few = ("kl", "seq_ess", "rollout_corr/kl", "rollout_corr/k3_kl")
    cut = deepcopy(data)
    cut["groups"], cut["health"] = cut["groups"][:2], cut["health"][:1]
    if cut["objective"] is not None:
        cut["objective"]["batches"] = cut["objective"]["batches"][:1]
    cut["intervals"] = {name: ends for name, ends in cut["intervals"].items() if name in few}
    for one in (cut, *cut["groups"]):
        one["metrics"] = {name: value for name, value in one["metrics"].items() if name in few}
    if "values" in cut.get("pictures", {}):
        values = cut["pictures"]["values"][:3]
        cut["pictures"]["values"] = [{name: one[name] for name in few[:2]} for one in values]
    return cut


VALUES = st.sampled_from(
    [None, True, False, 0, 1, -1, 0.5, 1e300, 10**400, "", "x", "\ud800", [], [[]], {}, {"a": None}, {"": [1]}]
)


@given(name=st.sampled_from(SMALL), where=st.integers(0, 10**6), value=VALUES)
def test_a_value_of_a_wrong_type_anywhere_is_status_3(
    reports: Reports, folder: Path, name: str, where: int, value: Any
) -> None:
    data = deepcopy(reports[name])
    found = places(data)
    place = found[where % len(found)]
    put(data, place, value)
    ran = run_on(folder, json.dumps(data))
    # The validator knows no half of a surrogate pair.
    fine = (
        value == "\ud800" or VALIDATOR.is_valid(data) or (place == ("plan",) and value == {})
    )  # a plan is read with its defaults
    assert ran.status in ((0, 1, 3) if fine else (3,)), (place, value, ran)
    assert ran.status == 3 or ran.err == ""
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("part", ["story", "cause", "impossible"])
def test_a_report_without_its_faults_is_not_complete(folder: Path, tmp_path: Path, part: str) -> None:
    data = json.loads((folder / "plain.json").read_text())
    del data[part]
    (tmp_path / "r.json").write_text(json.dumps(data))
    refused(run("check", str(tmp_path / "r.json")), 3, "not a complete report", part)


@given(name=st.sampled_from(SMALL), where=st.integers(0, 10**6))
def test_a_missing_part_is_status_3(reports: Reports, folder: Path, name: str, where: int) -> None:
    data = deepcopy(reports[name])
    found = [place for place in places(data) if isinstance(place[-1], str)]
    place = found[where % len(found)]
    inner: Any = data
    for step in place[:-1]:
        inner = inner[step]
    del inner[place[-1]]
    optional = VALIDATOR.is_valid(data)
    ran = run_on(folder, json.dumps(data))
    assert ran.status == 3 or optional, (place, ran)
    assert ran.status in (0, 1, 2, 3)
    assert "Traceback" not in ran.err


@given(where=st.floats(0, 1), what=st.binary(max_size=3), keep=st.booleans())
def test_a_report_of_broken_bytes_never_raises(
    reports: Reports, folder: Path, where: float, what: bytes, keep: bool
) -> None:
    text = json.dumps(reports["plain"]).encode()
    at = int(where * len(text))
    (folder / "bytes.json").write_bytes(text[:at] + what + (text[at + len(what) :] if keep else b""))
    try:
        report = read_report(str(folder / "bytes.json"))
    except DataError:
        return
    assert len(report.groups) == 2


def run_on(folder: Path, text: str) -> Ran:
    (folder / "mutated.json").write_text(text)
    return run("check", str(folder / "mutated.json"))


def test_not_worse_than_last_time(folder: Path, tmp_path: Path) -> None:
    """Each step's own report as the baseline of the next ladder's rung."""
    steps = str(folder / "plain.json")
    same = checked(0, steps, "--baseline", steps, "--max-increase", "kl=0%", "--max-decrease", "seq_ess=0%")
    assert len(says(same, "the baseline")) == 12
    assert {status for _, status, _ in says(same, "the baseline")} == {"ok"}

    first = saved(tmp_path / "first.json", STEPS, "--limit", "64")
    found = checked(1, steps, "--baseline", first, "--max-increase", "k3_kl=20%", "--max-decrease", "seq_ess=10%")
    assert says(found, "at most 20% above the baseline") == [
        ({}, "fail", "k3_kl is 0.0094, the baseline 0.00166 (up 466%), should be at most 20% above the baseline.")
    ]
    (fell,) = says(found, "at most 10% below the baseline")
    assert fell[1:] == (
        "warn",
        "seq_ess is 0.00313, the baseline 0.676 (down 99.5%), should be at most 10% below the baseline; without a 95% "
        "interval this may be chance.",
    )
    assert found["counts"] == {"rules": 12, "failed": 1, "warned": 10, "passed": 47}
    assert run("check", steps, "--baseline", first, "--max-increase", "k3_kl=0.01").status == 0
    ran = run("check", steps, "--baseline", first, "--max-increase", "k3_kl=20%")
    # Without blanks: a long folder of temporary files is folded anywhere.
    assert "first.jsonhasnothingtocompare5of5groupswith." in "".join(ran.out.split())


def test_groups_are_compared_with_their_own_key(tmp_path: Path) -> None:
    def dump(name: str, last: float) -> str:
        gaps = (0.1, last)
        rows = [
            row((-1.0 - i / 32, -2.0), (-1.0 - i / 32, -2.0 - gaps[step] - i / 999), step=step)
            for step in (0, 1)
            for i in range(20)
        ]
        return parquet(tmp_path / name, rows)

    baseline = saved(tmp_path / "b.json", dump("b.parquet", 0.1), "--group-by", "step")
    given = ("--group-by", "step", "--baseline", baseline, "--max-increase", "kl=50%", "--max", "kl=9")
    found = checked(1, dump("d.parquet", 0.18), *given)
    assert [(key, status) for key, status, _ in says(found, "baseline")] == [
        ({}, "ok"),
        ({"step": 0}, "ok"),
        ({"step": 1}, "fail"),
    ]
    without = tmp_path / "plain.json"  # --json counts no pictures, so that groups have no intervals
    without.write_text(run("analyze", dump("b.parquet", 0.1), "--group-by", "step", "--json").out)
    found = checked(1, str(tmp_path / "d.parquet"), *given[:3], str(without), *given[4:])
    assert [status for _, status, _ in says(found, "baseline")] == ["ok", "ok", "warn"]
    assert found["findings"][-1]["remedy"].startswith("The baseline has no intervals of these rows")


def test_a_baseline_without_the_metric_is_status_2(folder: Path, tmp_path: Path) -> None:
    bare = saved(tmp_path / "bare.json", STEPS)
    given = (str(folder / "plain.json"), "--baseline", bare, "--max-increase")
    refused(run("check", *given, "rollout_is_std=20%"), 2, "bare.json has no rollout_is_std", "Nearest: ")
    refused(run("check", *given, "k3_lk=20%"), 2, "bare.json has no k3_lk", "k3_kl")
    given = (bare, "--baseline", str(folder / "plain.json"), "--max-increase", "rollout_is_std=20%")
    refused(run("check", *given), 2, "--max-increase rollout_is_std", "not in this report", "--preset token_is")


def test_a_baseline_is_read_before_the_dump(tmp_path: Path, folder: Path) -> None:
    missing = str(tmp_path / "no.parquet")
    given = ("--max-increase", "kl=20%", "--baseline")
    refused(run("check", missing, *given, str(tmp_path / "no.json")), 3, "no.json", "No such file")
    refused(run("check", missing, *given, STEPS), 3, "smollm2_steps.parquet cannot be read as a report")
    refused(run("check", missing, *given, str(folder / "plain.json")), 3, "no.parquet")


def test_a_baseline_of_no_data_fails(tmp_path: Path) -> None:
    bare = parquet(tmp_path / "d.parquet", [row((-1.0,), (-1.0,))] * 2)
    baseline = saved(tmp_path / "b.json", bare)
    rewarded = parquet(tmp_path / "e.parquet", [row((-1.0,), (-1.0,), reward=1.0)] * 2)
    found = checked(1, rewarded, "--baseline", baseline, "--max-decrease", "reward_mean=10%")
    ((_, status, said),) = says(found, "baseline")
    assert (status, "the baseline has no data" in said) == ("fail", True)
    found = checked(1, bare, "--baseline", saved(tmp_path / "r.json", rewarded), "--max-decrease", "reward_mean=10%")
    assert "reward_mean has no data" in says(found, "baseline")[0][2]
