"""Reports as files and `plot`: what is written, what is refused, and that a hostile dump does nothing."""

import csv
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow.parquet as pq
import pytest
from browsing import Visit, browser as browser
from few import few
from running import BF16, STEPS, analyzed, jsonl, parquet, refused, row, run
from worded import words

from rlcorr_cli import analyze
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show import document_of
from rlcorr_cli.show.forms import page, texts

IN_BROWSER = pytest.mark.xdist_group("pages")
"""One after another, so that their browser starts once."""
EVIL = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=document.title='owned'>",
    "\x1b[31mred\x1b]0;owned\x07",
    "\u202egnp.exe\u2066",
    "=HYPERLINK(1)",
    "| a | [x](javascript:1) ` $x^2$ \n# heading",
    "z" * 10_000,
    "{{ 7 * 7 }}",
    "https://evil.example/ www.evil.example",
)


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    rows = [row(group=evil, step=i, sample_id=evil) for i, evil in enumerate(EVIL)]
    folder = tmp_path / "<b>&$x$"
    folder.mkdir()
    return parquet(folder / "<i>dump.parquet", rows)


@pytest.mark.full
@IN_BROWSER
def test_a_page_needs_nothing_and_sorts(tmp_path: Path, browser: Any) -> None:
    path = tmp_path / "report.html"
    given = ["--preset", "token_is", "--rs", "ratio.token:0.8,1.25", "--group-by", "step"]
    assert run("analyze", STEPS, *given, "-o", str(path)).status == 0
    for width, scheme in ((1100, "light"), (1100, "dark"), (390, "light")):
        visit = Visit(browser, path, width, scheme)
        assert visit.column(0) == ["0", "1", "2", "3", "4"]
        button = visit.page.locator("#by-step ~ table th button", has_text="k3_kl")
        button.click()
        ascending = visit.column(0)
        button.click()
        assert ascending == visit.column(0)[::-1] == ["1", "0", "2", "3", "4"]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        assert visit.page.locator("figure svg").count() == 17
        assert visit.is_quiet(path), (visit.said, visit.asked)


@IN_BROWSER
def test_a_hostile_dump_does_nothing_to_a_page(hostile: str, tmp_path: Path, browser: Any) -> None:
    path = tmp_path / "report.html"
    assert run("analyze", hostile, "--group-by", "group", "-o", str(path)).status == 0
    visit = Visit(browser, path)
    assert re.fullmatch(r"analyze - <i>dump\.parquet, .+ UTC - rlcorr", visit.page.title())
    evil = "main img, main i, main b.x, main a:not([href^='#']), header a:not([href^='#'])"
    assert visit.page.locator(evil).count() == 0
    assert sorted(visit.column(0)) == sorted(clean(evil) for evil in EVIL)
    kinds = visit.page.evaluate("[...document.scripts].map(script => script.type)")
    assert (kinds.count(""), {*kinds}) == (1, {"", "application/json"})
    assert visit.is_quiet(path), (visit.said, visit.asked)


def clean(text: str) -> str:
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown if len(shown) <= 120 else shown[:119] + "…"


def test_a_hostile_dump_does_nothing_elsewhere(hostile: str, tmp_path: Path) -> None:
    given = ["--group-by", "group", "-o", str(tmp_path / "r.md"), "-o", str(tmp_path / "r.csv")]
    ran = run("analyze", hostile, *given)
    assert ran.status == 0
    markdown = (tmp_path / "r.md").read_text()
    table = (tmp_path / "r.csv").read_text()
    for text in (ran.out, markdown, table):
        assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(text)
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert "\n# heading" not in markdown
    assert "https://" not in markdown
    assert "www.evil" not in markdown
    tables = re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE)
    assert len(tables) == 11  # five of them of the worst rows
    for lines in map(str.splitlines, tables):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    cells = [one[1] for one in csv.reader(io.StringIO(table))]
    assert "'=HYPERLINK(1)" in cells
    assert not any(cell.startswith(("=", "@")) for cell in cells)
    assert run("plot", hostile, "--group-by", "group", "-o", str(tmp_path / "p"), "--kind", "ratio").status == 0


@pytest.mark.full
def test_the_name_of_a_group_column_is_cleaned_in_every_form(tmp_path: Path) -> None:
    table = pq.read_table(STEPS)
    names = ["st\x1b[31mep" if name == "step" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names), tmp_path / "in.parquet")
    page, markdown = tmp_path / "r.html", tmp_path / "r.md"
    ran = run(
        "analyze", str(tmp_path / "in.parquet"), "--group-by", "st\x1b[31mep", "-o", str(page), "-o", str(markdown)
    )
    assert ran.status == 0, ran.err
    assert "5 groups" in ran.out
    assert not any("\x1b" in text for text in (ran.out, page.read_text(), markdown.read_text()))


@pytest.mark.full
def test_markdown_has_its_pictures_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "my report.md"
    assert run("analyze", STEPS, "--preset", "token_is", "--group-by", "step", "-o", str(path)).status == 0
    text = path.read_text()
    links = re.findall(r"\]\((.+?)\)", text)
    assert links[0] == "my%20report-figures/course.png"
    assert len(links) == 8
    for link in links:
        assert (tmp_path / link.replace("%20", " ")).read_bytes().startswith(b"\x89PNG")
    assert "On average over all 5 steps: close" in text
    assert '```toml\nname = "decoupled_token_is"' in text


@pytest.mark.parametrize("command", few(["analyze", "compare"], ["compare"]))
def test_markdown_links_to_pictures_whatever_its_file_is_called(command: str, tmp_path: Path) -> None:
    document = tmp_path / os.fsdecode(b"a (b)\xff.md")
    ran = run(command, BF16, "-o", str(document), "-q")
    assert (ran.status, ran.err) == (0, "")
    links = re.findall(r"!\[[^]]*]\((.*?)\)", document.read_text())
    assert links
    assert all((tmp_path / os.fsdecode(unquote_to_bytes(link))).is_file() for link in links)


@pytest.mark.full
def test_of_very_many_groups_the_worst_are_shown_and_all_are_saved(tmp_path: Path) -> None:
    rows = [row(sample_id=i, old_log_probs=[-0.5 - i / 1e4, -0.25]) for i in range(1100)]
    dump = jsonl(tmp_path / "in.jsonl", rows)
    files = {suffix: tmp_path / f"r.{suffix}" for suffix in ("csv", "json")}
    outputs = [word for path in files.values() for word in ("-o", str(path))]
    ran = run("analyze", dump, "--group-by", "sample_id", *outputs)
    assert ran.status == 0, ran.err
    assert "first, last and the 20 groups with the largest k3_kl, of 1,100" in ran.out
    page, markdown = words(dump, group_by="sample_id")
    shown = "first, last and the 1,000 groups with the largest k3_kl, of 1,100. -o report.csv and"
    assert shown in page
    assert shown in markdown.replace("\\", "")
    body = page[page.index('id="by-group"') :]
    assert body[: body.index("</table>")].count("<tr>") == 1 + 1001
    numbers = [int(line.split("|")[1]) for line in markdown.splitlines() if re.match(r"\| \d+ \|", line)]
    assert numbers == [0, *range(100, 1100)]
    assert len(json.loads(files["json"].read_text())["groups"]) == 1100
    assert files["csv"].read_text().count(",k3_kl,") == 1 + 1100


def test_csv_holds_every_metric_of_every_group(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    report = run("analyze", STEPS, "--group-by", "step", "-o", str(path), "--json").json
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(rows) == 6 * len(report["metrics"])
    assert [one["scope"] for one in rows].count("total") == len(report["metrics"])
    found = {(one["step"], one["metric"]): one["value"] for one in rows if one["scope"] == "group"}
    for group in report["groups"]:
        for name, value in group["metrics"].items():
            assert found[str(group["key"]["step"]), name] == ("" if value is None else repr(value))


@pytest.mark.full
def test_tensorboard_has_the_peers_names_at_their_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto import event_pb2

    (tmp_path / "plan.yaml").write_text("rollout_is: token\n")
    given = ["--profile", "verl-0.9", "--plan", str(tmp_path / "plan.yaml"), "--group-by", "step"]
    report = run("analyze", STEPS, *given, "-o", str(tmp_path / "run.tb"), "--json").json
    (file,) = (tmp_path / "run.tb").iterdir()
    found, data = {}, file.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        event = event_pb2.Event.FromString(data[12 : 12 + size])
        found |= {(one.tag, event.step): one.simple_value for one in event.summary.value}
        data = data[16 + size :]
    assert len(found) == sum(value is not None for group in report["groups"] for value in group["metrics"].values())
    for group in report["groups"]:
        wanted = group["metrics"]["rollout_corr/k3_kl"]
        assert found["rollout_corr/k3_kl", group["key"]["step"]] == pytest.approx(wanted, rel=1e-6)
    assert run("analyze", STEPS, *given[:-2], "-o", str(tmp_path / "steps.tb")).status == 0
    (of_steps,) = (tmp_path / "steps.tb").iterdir()
    assert len(of_steps.read_bytes()) == len(file.read_bytes())
    refused(run("analyze", STEPS, "--pool", "-o", str(tmp_path / "none.tb")), 2, "--group-by step")


@pytest.mark.full
def test_a_saved_report_is_plotted_like_its_dump(tmp_path: Path) -> None:
    plan = ["--preset", "token_is"]
    saved, kinds = str(tmp_path / "r.json"), ["--kind", "ratio", "--kind", "metrics"]
    assert run("analyze", STEPS, *plan, "--group-by", "step", "-o", saved).status == 0
    assert len(Path(saved).read_bytes()) < 300_000
    one = run("plot", STEPS, *plan, *kinds, "-o", str(tmp_path / "a"), "--json").json
    other = run("plot", saved, *kinds, "-o", str(tmp_path / "b"), "--json").json
    assert [each["caption"] for each in one] == [each["caption"] for each in other]
    for each in ("ratio.png", "metrics.png"):
        assert (tmp_path / "a" / each).read_bytes() == (tmp_path / "b" / each).read_bytes()


def test_pictures_change_nothing_of_the_json_report_but_the_trends(tmp_path: Path) -> None:
    plain = analyzed(BF16, "--preset", "token_is")
    assert "pictures" not in plain
    assert plain["trends"] is None
    counted = analyzed(BF16, "--preset", "token_is", "-o", str(tmp_path / "r.json"))
    assert {**counted, "trends": None} == plain
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["metrics"] == plain["metrics"]
    assert written["trends"] == counted["trends"]
    assert written["trends"]["surprise"]["change"] == "grows"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot_writes_a_picture_by_suffix(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{suffix}"
    ran = run("plot", BF16, "-o", str(path), "--kind", "surprise")
    assert ran.status == 0
    assert str(path) in ran.out
    assert "The spread grows with surprise" in ran.out
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_staleness_beside_other_kinds(tmp_path: Path) -> None:
    rows = [
        row((-1.0, -2 - i / 99), (-1.1 - 0.1 * (i % 2), -2 - i / 98), step=i // 4, policy_version=i // 4 - i % 2)
        for i in range(16)
    ]
    dump = parquet(tmp_path / "d.parquet", rows)
    told = run("plot", dump, "-o", str(tmp_path / "p"), "--kind", "staleness", "--kind", "metrics", "--json").json
    assert told[0]["caption"].startswith("Within a step, rows of lag 1 have ")
    assert told[1]["caption"].startswith("The effective sample size ")
    assert (tmp_path / "p" / "metrics.png").exists()


def test_plot_names_its_picture_after_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("plot", BF16).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2_bf16.overview.png"]


def test_plot_takes_json_lines_from_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(json.dumps(row()) + "\n" for _ in range(30)).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    (piped,) = run("plot", "-", "--kind", "scatter", "-o", str(tmp_path / "in.svg"), "--json").json
    dump = jsonl(tmp_path / "d.jsonl", [row()] * 30)
    (drawn,) = run("plot", dump, "--kind", "scatter", "-o", str(tmp_path / "d.svg"), "--json").json
    assert piped["caption"] == drawn["caption"]
    of_file = re.sub(" · file last changed [^·]+ UTC", "", (tmp_path / "d.svg").read_text())
    words, places = _taken_apart(of_file)
    piped_words, piped_places = _taken_apart((tmp_path / "in.svg").read_text().replace("stdin", "d.jsonl"))
    assert words == piped_words
    assert places == pytest.approx(piped_places, abs=1e-4)


def _taken_apart(svg: str) -> tuple[list[str], list[float]]:
    """A picture's words and its places: captions of two widths move these by the last digit, and ids hang on them."""
    unnamed = re.sub(r'(#|id=")[pm][0-9a-f]{10}', r"\1", svg)
    return re.split(r"-?\d+\.\d{4,}", unnamed), [float(place) for place in re.findall(r"-?\d+\.\d{4,}", unnamed)]


def test_what_plot_refuses(tmp_path: Path) -> None:
    out = str(tmp_path / "x.png")
    refused(run("plot", BF16, "--kind", "histogram"), 2, "histogram", "ratio")
    refused(run("plot", BF16, "-o", str(tmp_path / "x.gif")), 2, ".png, .svg or .pdf")
    refused(run("plot", BF16, "-o", out, "--kind", "ratio", "--kind", "length"), 2, "one picture", "directory")
    refused(run("plot", BF16, "-o", str(tmp_path / "no" / "x.png")), 4, "no directory")
    refused(run("analyze", BF16, "-o", str(tmp_path / "x.xlsx")), 2, ".html")
    refused(run("plot", str(tmp_path / "no.parquet"), "-o", out), 3, "no.parquet")
    report = tmp_path / "r.json"
    assert run("analyze", BF16, "-o", str(report)).status == 0
    refused(run("plot", str(report), "-o", out, "--preset", "geo_rs"), 2, "another plan")
    whole = json.loads(report.read_text())
    for broken, part in (
        ({**whole, "plan": {"nome": 1}}, "`name` - at `$.plan`"),
        ({key: value for key, value in whole.items() if key != "pictures"}, "no counts"),
        ({key: value for key, value in whole.items() if key != "counts"}, "not a complete report"),
        ({**whole, "rlcorr": {"version": "9", "schema": 9}}, "another version"),
        ({"a": 1}, "not a report"),
        ([1], "not a report"),
    ):
        report.write_text(json.dumps(broken))
        ran = run("plot", str(report), "-o", out)
        refused(ran, 3, part)
    report.write_text("{")
    refused(run("plot", str(report), "-o", out), 3, "cannot be read as a report")
    assert not Path(out).exists()


def test_no_output_takes_the_place_of_the_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    text = "".join(json.dumps(row()) + "\n" for _ in range(3))
    dump.write_text(text)
    picture = tmp_path / "in.png"
    picture.write_bytes(Path(BF16).read_bytes())
    refused(run("analyze", str(dump), "--format", "jsonl", "-o", str(dump)), 2, "part of the dump")
    refused(run("analyze", str(tmp_path / "*.json"), "--format", "jsonl", "-o", str(dump)), 2, "part of the dump")
    refused(run("plot", str(picture), "--format", "parquet", "-o", str(picture)), 2, "part of the dump")
    assert dump.read_text() == text


def test_outputs_are_checked_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dir.html").mkdir()
    first = tmp_path / "first.json"
    for bad, status, part in (
        ("dir.html", 4, "a directory"),
        ("x.tb", 2, "--group-by"),
        ("y" * 300 + ".md", 4, "write"),
    ):
        refused(run("analyze", BF16, "-o", str(first), "-o", str(tmp_path / bad)), status, part)
    assert not first.exists()
    refused(run("plot", "no.parquet", "-o", str(tmp_path / "new")), 3, "no.parquet")
    assert not (tmp_path / "new").exists()
    refused(run("plot", BF16, "-o", str(tmp_path / ("z" * 300))), 4, "Cannot")
    assert run("plot", BF16, "--kind", "ratio", "-o", str(tmp_path / ("x" * 246 + ".png"))).status == 0
    monkeypatch.chdir(tmp_path)
    assert run("plot", BF16.replace("bf16", "bf1?"), "--kind", "ratio").status == 0
    assert (tmp_path / "dump.ratio.png").exists()


def test_infinite_group_keys_are_text_in_json(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row(temperature=t) for t in (1.0, float("inf"))])
    groups = analyzed(dump, "--group-by", "temperature")["groups"]
    assert [group["key"]["temperature"] for group in groups] == [1.0, "inf"]


@pytest.mark.full
@IN_BROWSER
def test_dates_sort_in_the_page(tmp_path: Path, browser: Any) -> None:
    days = ["2026-01-20", "2026-01-03", "2026-01-11"]
    dump = parquet(tmp_path / "d.parquet", [row(day=day) for day in days])
    assert run("analyze", dump, "--group-by", "day", "-o", str(tmp_path / "r.html")).status == 0
    visit = Visit(browser, tmp_path / "r.html")
    button = visit.page.locator("#by-group ~ table th button", has_text="day")
    button.click()
    button.click()
    assert visit.column(0) == sorted(days, reverse=True)
    assert visit.page.locator("figure svg").first.get_attribute("aria-label")


def test_a_picture_of_nothing_says_so_and_is_no_file(tmp_path: Path) -> None:
    ran = run(
        "plot",
        parquet(tmp_path / "d.parquet", [row((-1.0,), (-1.0,))]),
        "-o",
        str(tmp_path / "x.png"),
        "--kind",
        "ratio",
    )
    assert ran.status == 3
    assert "All 1 log-ratios are 0" in ran.err
    assert not (tmp_path / "x.png").exists()
    assert pq.read_table(tmp_path / "d.parquet").num_rows == 1


def test_formulas_stand_with_their_symbols() -> None:
    page, document = words(BF16)
    assert "<dt>S</dt><dd>sum of l over a sequence" in page
    assert (
        document.index("## Metrics")
        < document.index("- S: sum of l over a sequence")
        < document.index("## What was read")
    )
    assert "- theta:" not in document
    assert "<dt>theta</dt>" not in page


def test_a_group_that_breaks_a_rule_is_marked() -> None:
    strict = tuple(replace(rule, high=0.008) if rule.metric == "k3_kl" else rule for rule in RULES)
    report = replace(analyze(STEPS, group_by="step"), rules=strict)
    text = page.page_html(document_of(report))
    marked = re.findall(r'<td class="fail" data-value="[^"]*" data-label="k3_kl">(0\.\d+) !</td>', text)
    assert marked == ["0.00889", "0.0317"]
    rows = [line for line in texts.markdown(document_of(report), {}).splitlines() if re.match(r"\| \d", line)]
    assert [line.count(r" \!") for line in rows] == [0, 0, 1, 2, 2]  # of seq_ess, and of k3_kl


@pytest.mark.full
def test_a_report_does_not_replace_another_file_of_its_run(tmp_path: Path) -> None:
    plan, report = tmp_path / "plan.json", tmp_path / "r.json"
    plan.write_text(json.dumps(analyzed(BF16, "--preset", "geo_rs")["plan"]))
    content = plan.read_bytes()
    respelled = str(tmp_path / ".." / tmp_path.name / "plan.json")
    refused(run("analyze", BF16, "--plan", str(plan), "-o", respelled), 2, "-o and --plan name the same file")
    assert plan.read_bytes() == content
    refused(run("analyze", BF16, "-o", str(report), "-o", str(report)), 2, "both outputs, -o twice")
    bad = str(tmp_path / "x.json")
    refused(run("analyze", BF16, "-o", bad, "--quarantine", bad), 2, "both outputs, -o and --quarantine")
