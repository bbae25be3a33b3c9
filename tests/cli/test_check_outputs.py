"""What `check` writes: text, JSON, JUnit XML, GitHub's annotations and step summary, and that none can be forged."""

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import junitparser
import pytest
from limits import LIMIT_SECONDS
from running import BF16, STEPS, forked_command, parquet, refused, row, run, run_installed

FAILING = (STEPS, "--group-by", "step", "--min", "seq_ess=0.3")
EVIL = (
    "\x1b[31mred\x1b]0;owned\x07",
    "a\n::error title=forged::owned\r\n",
    "<failure/>&amp;\x00\x0b\ufffe",
    "| a | [x](javascript:1) `$x^2$` \n# heading",
    "\u202egnp.exe\u2066",
    "100%,a:b",
    f"{'w' * 12} :::stop-commands::",
    "https://evil.example/ www.evil.example",
    "z" * 1000,
)


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """A dump that fails in every group, groups and file called what they should not be."""
    return parquet(tmp_path / "d\x1b[31m.parquet", [row(group=evil) for evil in EVIL])


def test_failures_come_first_then_warnings_then_one_line_of_counts() -> None:
    ran = run("check", *FAILING)
    last, _, *lines = [line.strip() for line in ran.out.splitlines()]
    assert last == "The last, step 4: apart; it fails seq_ess and warns of prob_abs_diff_mean."
    starts = [line.split(" ", 1)[0] for line in lines if line[:4] in ("fail", "warn") or line.startswith("Failed:")]
    assert starts == [*["fail"] * 2, *["warn"] * 4, "Failed:"]
    assert lines[0] == "fail  whole dump: seq_ess is 0.00313, should be >= 0.3."
    assert lines[1] == "fail  steps 2 to 4: seq_ess is 0.0156 to 0.0458, should be >= 0.3."
    assert lines[4].startswith("warn  whole dump: Likely cause: stale rollouts")
    assert "step 0" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_many_groups_of_one_rule_are_counted(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(group=i) for i in range(30)])
    out = run("check", dump, "--group-by", "group").out
    assert out.count("kl is 0.375, should be between -0.1 and 0.1.") == 8
    assert "and 23 more groups; --json has all." in out
    found = json.loads(run("check", dump, "--group-by", "group", "--json").out)
    assert sum(one["metric"] == "kl" for one in found["findings"]) == 31


def test_a_check_that_fails_is_written_in_every_form(tmp_path: Path) -> None:
    files = {suffix: tmp_path / f"night.{suffix}" for suffix in ("json", "html", "md", "csv")}
    written = [word for path in files.values() for word in ("-o", str(path))]
    ran = run("check", *FAILING, *written)
    assert ran.status == 1
    assert ran.err == "".join(f"Wrote {path}.\n" for path in files.values())
    assert json.loads(files["json"].read_text()) == json.loads(run("check", *FAILING, "--json").out)
    for suffix in ("html", "md"):
        said = re.sub(r"\\|</?wbr>", "", files[suffix].read_text())
        assert "steps 2 to 4: seq_ess is 0.0156 to 0.0458" in said
    head, *rows = files["csv"].read_text().splitlines()
    assert head == "section,metric,value,rule,status,remedy"
    assert any(re.match(r"step 4,seq_ess,0\.0156\d*,>= 0\.3,fail", row) for row in rows)


def test_a_check_replaces_a_file_only_when_asked(tmp_path: Path) -> None:
    page = tmp_path / "night.html"
    page.write_text("before")
    refused(run("check", BF16, "-o", str(page)), 4, "night.html exists", "--overwrite")
    assert page.read_text() == "before"
    assert run("check", BF16, "-o", str(page), "--overwrite").status == 0
    assert page.read_text().startswith("<!doctype html>")
    refused(run("check", BF16, "-o", str(tmp_path / "night.png")), 2, ".json, .html, .md, .csv")


def test_json_is_stable(tmp_path: Path) -> None:
    ran = run("check", *FAILING, "--json")
    assert ran.err == ""
    found = json.loads(ran.out, parse_constant=pytest.fail)
    assert list(found) == ["rlcorr", "inputs", "story", "status", "counts", "last_step", "findings", "notes"]
    assert list(found["counts"]) == ["rules", "failed", "warned", "passed"]
    assert found["inputs"] == json.loads(run("analyze", STEPS, "--group-by", "step", "--json").out)["inputs"]
    (worst,) = [one for one in found["findings"] if one["key"] == {"step": 4} and one["metric"] == "seq_ess"]
    assert worst == {
        "key": {"step": 4},
        "metric": "seq_ess",
        "value": pytest.approx(0.0156, abs=1e-4),
        "rule": ">= 0.3",
        "min": 0.3,
        "max": None,
        "severity": "fail",
        "status": "fail",
        "remedy": "Use token weights (`--preset token_is`), or drop far sequences (`--rs ratio.seq_mean:0.895,1.118` "
        "keeps 90%).",
        "says": "seq_ess is 0.0156, should be >= 0.3.",
    }
    dates = parquet(tmp_path / "d.parquet", [row(t=float("inf")), row(t=None)])
    keys = {str(one["key"]) for one in json.loads(run("check", dates, "--group-by", "t", "--json").out)["findings"]}
    assert keys == {"{}", "{'t': 'inf'}", "{'t': None}"}


def test_junit_has_a_case_for_every_rule_and_section(tmp_path: Path) -> None:
    path = tmp_path / "rlcorr.xml"
    ran = run("check", *FAILING, "--junit", str(path), "--json")
    assert ran.status == 1
    found = json.loads(ran.out)
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    assert (suite.name, suite.tests, suite.failures, suite.errors) == ("rlcorr check", 32, 4, 0)
    cases = {(case.classname, case.name): case for case in suite}
    assert len(cases) == len(found["findings"]) == 32
    failed = [case for case in suite if case.result]
    assert [case.classname for case in failed] == [f"rlcorr.{s}" for s in ("whole dump", "step 2", "step 3", "step 4")]
    one = cases["rlcorr.step 4", "seq_ess >= 0.3"]
    assert one.result[0].message == "step 4: seq_ess is 0.0156, should be >= 0.3."
    assert "Use token weights (`--preset token_is`), or drop far sequences" in one.result[0].text
    warned = cases["rlcorr.step 4", "prob_abs_diff_mean <= 0.01"]
    assert warned.is_passed
    assert warned.system_out.startswith("warning: step 4: prob_abs_diff_mean is 0.0191")
    fine = cases["rlcorr.step 0", "seq_ess >= 0.3"]
    assert (fine.is_passed, fine.system_out) == (True, None)
    root = ET.parse(path).getroot()
    assert (root.tag, len(root), len(root[0])) == ("testsuites", 1, 32)


def test_a_passing_check_writes_its_junit_too(tmp_path: Path) -> None:
    path = tmp_path / "rlcorr.xml"
    path.write_text("old")
    assert run("check", BF16, "--junit", str(path)).status == 0
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures, suite.skipped) == (6, 0, 1)
    (skipped,) = (case for case in suite if case.is_skipped)
    assert (skipped.name, skipped.result[0].message) == ("pareto_k_seq", "too few tail values")
    assert [one.name for one in tmp_path.iterdir()] == ["rlcorr.xml"]


def test_where_junit_cannot_go_is_told_before_the_scan(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.parquet")
    (tmp_path / "folder").mkdir()
    refused(run("check", missing, "--junit", str(tmp_path / "none" / "r.xml")), 4, "there is no directory")
    refused(run("check", missing, "--junit", str(tmp_path / "folder")), 4, "a directory", "--junit")
    dump = parquet(tmp_path / "d.parquet", [row()])
    refused(run("check", dump, "--junit", dump), 2, "part of the dump", "--junit")
    report, rules = str(tmp_path / "r.json"), tmp_path / "rules.toml"
    assert run("analyze", dump, "-o", report).status == 0
    rules.write_text("defaults = true")
    given = ("--baseline", report, "--max-increase", "kl=1")
    refused(run("check", dump, *given, "--junit", report), 2, "--junit and --baseline name the same file")
    refused(run("check", dump, "--rules", str(rules), "--junit", str(rules)), 2, "--junit and --rules name")
    refused(run("check", report, "--junit", report), 2, "part of the dump")
    assert (rules.read_text(), json.loads(Path(report).read_text())["profile"]) == ("defaults = true", "canonical")


def test_a_junit_that_cannot_be_written_outranks_a_finding(tmp_path: Path) -> None:
    refused(run("check", STEPS, "--min", "seq_ess=0.3", "--junit", str(tmp_path / ("x" * 300))), 4, "Cannot write")
    if os.path.exists("/dev/full"):
        line = 'rlcorr=$1; shift; "$rlcorr" check "$@" > /dev/full'
        given = ["bash", "-c", line, "bash", forked_command(), STEPS, "--min", "seq_ess=0.3"]
        assert subprocess.run(given, capture_output=True, timeout=LIMIT_SECONDS).returncode == 4


def test_a_closed_pipe_changes_no_status() -> None:
    line = 'set -o pipefail; rlcorr=$1; shift; "$rlcorr" check "$@" 2>&1 | true'
    given = ["bash", "-c", line, "bash", forked_command(), *FAILING]
    done = subprocess.run(
        given, capture_output=True, timeout=LIMIT_SECONDS, env={**os.environ, "GITHUB_ACTIONS": "true"}
    )
    assert done.returncode == 1


def test_github_gets_annotations_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ran = run("check", *FAILING, "--json")
    assert ran.status == 1
    assert json.loads(ran.out)["status"] == "failed"
    lines = ran.err.splitlines()
    assert len(lines) == 6
    assert lines[1] == (
        "::error title=rlcorr check%3A seq_ess%2C steps 2 to 4::steps 2 to 4: seq_ess is 0.0156 to 0.0458, should "
        "be >= 0.3. Use token weights (`--preset token_is`), or drop far sequences (`--rs ratio.seq_mean:0.895,1.118` "
        "keeps 90%25)."
    )
    assert lines[2].startswith("::warning title=rlcorr check%3A stale_policy%2C whole dump::")
    assert all(line.startswith("::warning title=rlcorr check%3A prob_abs_diff_mean") for line in lines[3:5])
    assert lines[5].startswith("::warning title=rlcorr check%3A pareto_k_seq")
    assert run("check", BF16.replace("bf16", "fp32")).err == ""
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    assert run("check", *FAILING).err == ""


def test_github_shows_ten_annotations_of_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    dump = parquet(tmp_path / "d.parquet", [row(group=i) for i in range(30)])
    lines = run("check", dump, "--group-by", "group").err.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10


def test_a_step_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# Before\n\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert run("check", *FAILING).status == 1
    text = path.read_text()
    assert text.startswith("# Before\n\n### rlcorr check\n\nThe last, step 4: apart; it fails seq\\_ess and warns of ")
    assert "\n\nFailed: 4 of 32 checks, 5 warned;" in text
    rows = re.findall(r"^\| (?:❌ fail|⚠️ warn|✅ pass) \| .* \|$", text, re.MULTILINE)
    assert [row.split(" ")[2] for row in rows] == ["fail"] * 2 + ["warn"] * 4 + ["pass"] * 8
    assert rows[0].startswith(
        "| ❌ fail | whole dump | seq\\_ess | seq\\_ess is 0.00313, should be &gt;= 0.3. | Use token"
    )
    assert rows[1] == "| ❌ fail | steps 2 to 4 | seq\\_ess | seq\\_ess is 0.0156 to 0.0458, should be &gt;= 0.3. |  |"
    assert run("check", BF16).status == 0
    assert path.read_text().startswith(text)
    assert "Passed: 5 of 5 checks; 6 rules" in path.read_text().removeprefix(text)


def test_a_step_summary_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    dump = parquet(tmp_path / "d.parquet", [row(group=i) for i in range(40)])
    assert run("check", dump, "--group-by", "group").status == 1
    text = (tmp_path / "summary.md").read_text()
    broken, folded = text.split("<details>")
    assert broken.count("\n| ") == 101
    assert broken.endswith("\nand 23 more.\n\n")
    assert folded.count("\n| ") <= 101


def test_a_step_summary_that_cannot_be_written_is_status_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path, tmp_path / "none" / "summary.md"):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
        refused(run("check", *FAILING), 4, str(place), "GITHUB_STEP_SUMMARY")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    assert run("check", BF16).status == 0


def test_a_hostile_dump_forges_nothing(hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary, junit = tmp_path / "summary.md", tmp_path / "r.xml"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ran = run("check", hostile, "--group-by", "group", "--junit", str(junit))
    assert ran.status == 1
    markdown, xml = summary.read_text(), junit.read_text()
    for text in (ran.out, ran.err, markdown, xml):
        assert not {"\x1b", "\x07", "\x00", "\x0b", "\u202e", "\u2066", "\ufffe"} & set(text)
    lines = ran.err.splitlines()
    assert len(lines) == 20  # ten errors, ten warnings
    assert all(re.match(r"::(error|warning) title=rlcorr check%3A [a-z0-9_]+%2C [^,:]*::", line) for line in lines)
    assert "%25%2Ca%3Ab::" in ran.err
    assert not [line for line in ran.out.splitlines() if line.lstrip().startswith("::")]
    for part, n_bars in zip(markdown.split("<details>"), (6, 5), strict=True):  # what passes has no remedy
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in part.splitlines() if row.startswith("|")} == {n_bars}
    assert "\n# heading" not in markdown
    assert "https://" not in markdown
    (suite,) = junitparser.JUnitXml.fromfile(str(junit))
    names = {case.classname for case in suite}
    assert len(names) == len(EVIL) + 1
    assert f"rlcorr.group {'z' * 1000}" in names
    assert (
        sum(bool(case.result) and not case.is_skipped for case in suite) == suite.failures == 2 * (len(EVIL) + 1)
    )  # kl and k3_kl


def test_a_remedy_of_several_lines_stays_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remedy = "First.\\n::error::Then | 5%.\\u001b[31m"
    rules, summary, junit = tmp_path / "rules.toml", tmp_path / "summary.md", tmp_path / "r.xml"
    rules.write_text(f'defaults = false\n[[rule]]\nmetric = "kl"\nmin = 1\nremedy = "{remedy}"\n')
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ran = run("check", BF16, "--rules", str(rules), "--junit", str(junit))
    assert ran.status == 1
    (line,) = ran.err.splitlines()
    assert line.startswith(
        "::error title=rlcorr check%3A kl%2C whole dump::whole dump: kl is 0.00103, should be >= 1. "
    )
    assert line.endswith(" First.%0A::error::Then | 5%25.\\x1b[31m")
    assert "First.\\n::error::Then | 5%.\\x1b[31m" in ran.out
    (row,) = [one for one in summary.read_text().splitlines() if "fail" in one and one.startswith("| ")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 6
    (suite,) = junitparser.JUnitXml.fromfile(str(junit))
    (case,) = suite
    assert case.result[0].text.endswith("First.\\n::error::Then | 5%.\\x1b[31m")


def test_the_installed_command_works_where_text_is_ascii(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(group="größer")] * 3)
    ran = run_installed(
        "check", dump, "--group-by", "group", env={"PYTHONIOENCODING": "ascii", "GITHUB_ACTIONS": "true"}
    )
    assert ran.status == 1
    assert "group gr??er: kl is 0.375" in ran.out
    assert "::error title=" in ran.err
