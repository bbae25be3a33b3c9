"""`index`: saved reports in one table, from the command line and on a page."""

import json
import re
from pathlib import Path

import pytest
from running import BF16, SAMPLE, STEPS, refused, run

COLLAPSE = str(SAMPLE / "collapse.parquet")


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three reports: two with a page, one of totals alone; and what is no report."""
    folder = tmp_path_factory.mktemp("nights")
    for name, dump, forms in (
        ("good one", BF16, ("json", "html", "rlcorr")),
        ("stale", STEPS, ("rlcorr",)),
        ("collapse", COLLAPSE, ("json", "html")),
    ):
        written = [word for form in forms for word in ("-o", str(folder / f"{name}.{form}"))]
        assert run("analyze", dump, *written).status == 0
    assert run("check", BF16, "-o", str(folder / "check.json")).status == 0
    return folder


def test_the_headline_counts_and_names_the_reports_that_fail_a_check(nights: Path) -> None:
    ran = run("index", str(nights))
    assert ran.status == 0
    assert ran.out.strip().startswith("1 of 3 reports fails `rlcorr check`: collapse.")
    assert re.search(r"collapse +0\.0430 .*fails: kl, k3_kl !", ran.out)
    assert re.search(r"good one +0\.00114 .*passes", ran.out)
    assert re.search(r"stale +0\.00940 .*warns: stale_policy, prob_abs_diff_mean \+2 !", ran.out)
    assert "check.json is the result of a check, not a report of a dump." in " ".join(ran.out.split())


def test_each_row_says_what_check_says(nights: Path) -> None:
    rows = run("index", str(nights), "--json").json["reports"]
    for row in rows:
        checked = json.loads(run("check", row["report"], "--json").out)
        for status, key in (("fail", "failed"), ("warn", "warned")):
            metrics = {each["metric"] for each in checked["findings"] if each["status"] == status}
            assert set(row[key]) == (metrics if key == "failed" else metrics - set(row["failed"]))
        assert row["story"] == checked["story"]


def test_a_row_has_the_numbers_of_its_report(nights: Path) -> None:
    (row,) = (each for each in run("index", str(nights), "--json").json["reports"] if "collapse" in each["report"])
    report = json.loads((nights / "collapse.json").read_text())
    assert row["k3_kl"] == report["metrics"]["k3_kl"]
    assert row["seq_ess"] == report["metrics"]["seq_ess"]
    assert row["last_k3_kl"] == report["groups"][-1]["metrics"]["k3_kl"]
    assert row["steps"] == len(report["groups"]) == 12
    assert row["page"] == str(nights / "collapse.html") or row["page"].endswith("collapse.html")


def test_a_page_links_to_the_page_of_each_report_from_where_it_lies(nights: Path, tmp_path: Path) -> None:
    inside, outside = nights / "index.html", tmp_path / "index.md"
    assert run("index", str(nights), "-o", str(inside)).status == 0
    inside_links = re.findall(r'<a href="([^"#]+)">', inside.read_text())
    inside.unlink()
    assert sorted(inside_links) == ["collapse.html", "good%20one.html"]
    assert run("index", str(nights), "-o", str(outside)).status == 0
    (link,) = re.findall(r"\[collapse\]\(([^)]+)\)", outside.read_text())
    assert (tmp_path / link).resolve() == (nights / "collapse.html").resolve()


def test_a_named_file_that_is_no_report_ends_it(nights: Path) -> None:
    refused(run("index", str(nights / "check.json")), 3, "check.json is the result of a check, not a report of a dump")
    refused(run("index", str(nights / "none.json")), 3, "none.json")


def test_a_folder_without_reports_is_an_error(tmp_path: Path) -> None:
    refused(run("index", str(tmp_path)), 3, "holds no report", "`rlcorr analyze DUMP -o report.json`")
