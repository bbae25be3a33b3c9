"""`diagnose`: the cause of a gap in every form, its groups and columns, its gates, and what is refused."""

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from running import BF16, STEPS, parquet, refused, row, run, run_process

from rlcorr_cli import api
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.commands.pictures import KINDS
from rlcorr_cli.errors import UsageError
from rlcorr_cli.show.forms import SHEETS

CAUSES = Path(__file__).parents[1] / "diagnosis" / "causes"
TOP_P, WORKER = str(CAUSES / "top_p08.parquet"), str(CAUSES / "worker_temp09.parquet")


def diagnosed(*args: str) -> dict[str, Any]:
    return run("diagnose", *args, "--json").json


def test_the_terminal_names_the_cause_in_80_columns() -> None:
    ran = run_process("diagnose", TOP_P, "-q", env={"COLUMNS": "80"})
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3].startswith("  Cause: rollout_log_probs was logged after top-p 0.8 (")


def test_json_holds_the_cause_its_parameter_and_where_the_gap_sits() -> None:
    result = diagnosed(TOP_P)
    assert result["verdict"] == "top_p"
    cause = result["causes"][0]
    low, high = cause["intervals"]["top_p"]
    assert low < cause["parameters"]["top_p"] < high
    assert low < 0.8 < high
    assert cause["share_bound"] == "at_least"
    assert result["gap"]["sum_sq"] > 0
    assert {"data_source", "group_id", "length"} <= {column["column"] for column in result["columns"]}
    assert sum(level["token_share"] for level in result["surprise"]) == pytest.approx(1)


def test_a_column_is_looked_at_only_if_it_is_named_or_known(tmp_path: Path) -> None:
    rows = [row([-0.5] * 60, [-0.5 - 0.01 * (i % 3)] * 60, step=1, host=f"h{i % 2}") for i in range(24)]
    path = parquet(tmp_path / "d.parquet", rows)
    assert "host" not in {column["column"] for column in diagnosed(path)["columns"]}
    assert "host" in {column["column"] for column in diagnosed(path, "--by", "host")["columns"]}
    refused(run("diagnose", path, "--by", "hots"), 3, "hots")


def test_each_group_is_diagnosed() -> None:
    result = diagnosed(STEPS, "--group-by", "step")
    assert [group["key"] for group in result["groups"]] == [{"step": step} for step in range(5)]
    assert result["groups"][1]["verdict"] == "noise"
    assert result["groups"][4]["verdict"] == "stale_policy"
    assert sum(group["counts"]["tokens"] for group in result["groups"]) == result["counts"]["tokens"]


@pytest.mark.parametrize("suffix", SHEETS)
def test_every_form_holds_the_cause(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"d{suffix}"
    assert run("diagnose", WORKER, "-o", str(path)).status == 0
    data = path.read_bytes()
    assert len(data) > 400
    if suffix in (".html", ".md"):
        for text in (
            b"Likely cause: worker w3.",
            b"at least 61",
            b"rlcorr explain column",
            b"By worker",
            b"By surprise",
        ):
            assert text.replace(b" ", b"") in data.replace(b" ", b"")
    if suffix == ".md":
        assert (tmp_path / "d-figures" / "d.png").read_bytes().startswith(b"\x89PNG")
    if suffix == ".json":
        assert json.loads(data) == diagnosed(WORKER)


def test_the_table_has_a_line_for_each_parameter_of_every_cause_and_group(tmp_path: Path) -> None:
    assert run("diagnose", STEPS, "--group-by", "step", "-o", str(tmp_path / "d.csv")).status == 0
    lines = list(csv.DictReader((tmp_path / "d.csv").read_text(encoding="utf-8").splitlines()))
    assert {line["scope"] for line in lines} == {"total", "group"}
    assert {line["step"] for line in lines if line["scope"] == "group"} == {"0", "1", "2", "3", "4"}
    core = next(line for line in lines if line["step"] == "1" and line["parameter"] == "core")
    assert core["cause"] == core["verdict"] == "noise"
    assert core["rank"] == "1"
    assert 0.05 < float(core["value"]) < 0.1


def test_too_few_rows_name_nothing_and_a_picture_of_nothing_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [row([-1.0, -0.5], [-1.0, -0.5])])
    ran = run("diagnose", path)
    assert ran.status == 0
    assert "Likely cause" not in ran.out
    refused(run("diagnose", path, "-o", str(tmp_path / "d.png")), 3, "nothing to draw")
    assert not (tmp_path / "d.png").exists()
    for name in ("d.md", "d.html", "d.csv"):
        assert run("diagnose", path, "-o", str(tmp_path / name)).status == 0
        assert "Too little data to tell" in (tmp_path / name).read_text(encoding="utf-8") or name == "d.csv"
    assert not (tmp_path / "d-figures").exists()


FAILING = [
    ((TOP_P, "--fail-on", "top_p"), 1),
    ((TOP_P, "--fail-on", "min_p,top_p"), 1),
    ((TOP_P, "--fail-on", "min_p", "--fail-on", "temperature"), 0),
    ((TOP_P, "--fail-on", "cause"), 1),
    ((BF16, "--fail-on", "cause"), 0),
    ((BF16, "--fail-on", "noise"), 1),
    ((STEPS, "--group-by", "step", "--fail-on", "noise"), 1),
]


@pytest.mark.parametrize(("args", "status"), FAILING)
def test_the_status_says_whether_the_verdict_is_one_of_the_causes(args: tuple[str, ...], status: int) -> None:
    ran = run("diagnose", *args)
    assert (ran.status, ran.err) == (status, "")
    assert "ause: " in ran.out


def test_a_cause_that_is_none_is_refused_before_the_dump_is_read() -> None:
    refused(run("diagnose", "none.parquet", "--fail-on", "topp"), 2, "topp", "top_p")
    refused(run("diagnose", "none.parquet", "--fail-on", ""), 2, "--fail-on is empty")


def test_batches_are_refused() -> None:
    refused(run("diagnose", BF16, "--batch-by", "step"), 2, "--batch-by")


def test_outputs_are_refused_where_they_would_replace_the_dump() -> None:
    refused(run("diagnose", BF16, "-o", BF16), 2, "result.html")


def test_from_python_it_is_a_function_of_the_same_names() -> None:
    result = api.diagnose(TOP_P, by="group_id")
    assert result.verdict == "top_p"
    assert result.causes[0].parameters["top_p"] == pytest.approx(0.8, abs=0.02)
    with pytest.raises(UsageError, match="by holds an empty name"):
        api.diagnose(TOP_P, by=["data_source", ""])


def test_causes_are_offered_to_the_shell_and_the_kind_is_known() -> None:
    from rlcorr_cli.commands import completion

    assert [name for name, _ in completion.causes()] == ["cause", *ALL_CAUSES]
    assert KINDS[-1] == "diagnose"


# check --fail-on cause


def test_check_fails_on_a_cause_that_is_named(tmp_path: Path) -> None:
    ran = run("check", TOP_P, "--fail-on", "cause", "--junit", str(tmp_path / "j.xml"))
    assert ran.status == 1
    shown = " ".join(ran.out.split())
    assert "fail whole dump: Cause: rollout_log_probs was logged after top-p 0.8" in shown
    assert "Return log-probs from before truncation" in shown
    (case,) = [case for case in ET.parse(tmp_path / "j.xml").iter("testcase") if case.get("name") == "top_p absent"]
    failure = case.find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("whole dump: Cause: rollout_log_probs was logged")


# plot --kind diagnose


def test_plot_draws_the_evidence(tmp_path: Path) -> None:
    ran = run("plot", TOP_P, "--kind", "diagnose", "--kind", "ratio", "-o", str(tmp_path / "p"))
    assert ran.status == 0, ran.err
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["diagnose.png", "ratio.png"]
    shown = " ".join(ran.out.split())
    assert "Left of the bound rollout_log_probs is exactly 0 on 1,582 of 1,599 tokens" in shown


def test_plot_of_a_diagnosis_takes_neither_a_plan_nor_a_report(tmp_path: Path) -> None:
    refused(run("plot", BF16, "--kind", "diagnose", "--preset", "token_is"), 2, "takes no plan")
    saved = tmp_path / "report.json"
    assert run("analyze", BF16, "-o", str(saved)).status == 0
    refused(run("plot", str(saved), "--kind", "diagnose"), 2, "Name the dump itself.")


def test_a_column_of_levels_that_is_not_there_is_named_for_what_it_is() -> None:
    refused(run("diagnose", BF16, "--by", "nosuch"), 3, "no column 'nosuch' to look at level by level")


def test_a_sample_is_as_large_as_the_command_line_says(tmp_path: Path) -> None:
    """The cause of all rows, of some, and of too few to tell; what is neither a number nor all is refused."""
    dump = TOP_P
    of = {tokens: run("diagnose", dump, "--sample", tokens, "--json").json for tokens in ("all", "3000", "500")}
    default = run("diagnose", dump, "--json").json
    assert of["all"]["verdict"] == default["verdict"] == of["3000"]["verdict"] == "top_p"
    assert of["all"]["causes"] == default["causes"] != of["3000"]["causes"]
    assert of["500"]["verdict"] == "too_few"
    for wrong in ("0", "-1", "some", "1e3"):
        refused(run("diagnose", dump, f"--sample={wrong}"), 2, "--sample should be a number of tokens or all")
    parts = [str(tmp_path / f"{tokens}.rlcorr") for tokens in ("500", "3000")]
    for part in parts:
        assert run("diagnose", dump, "--sample", Path(part).stem, "-o", part).status == 0
    refused(run("diagnose", *parts), 2, "cannot be added: sample is 500")
