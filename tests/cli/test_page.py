"""The page and Markdown: what stands first, which tables, and that the page is legible on every screen."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from browsing import Visit, browser as browser
from running import BF16, SAMPLE, STEPS, parquet, row, run, watched
from worded import words

from rlcorr_cli import analyze, check, compare, diagnose, diff, filter, inspect, save, sweep
from rlcorr_cli.results.saved import read_report
from rlcorr_cli.show.correction import plan_tables
from rlcorr_cli.show.report import document, to_do

pytestmark = pytest.mark.xdist_group("pages")
PLAN = ("--preset", "geo_rs", "--is", "token:,2")
LAID_OUT = """() => [...document.querySelectorAll("body *:not(svg *, script, wbr)")].filter(element => {
  if (!element.getClientRects().length) return false;
  const [inner, outer] = [element, element.parentElement].map(one => one.getBoundingClientRect());
  const style = getComputedStyle(element), isText = element.tagName !== "svg";
  return inner.right > outer.right + 1 || inner.left < outer.left - 1 ||
    isText && ["auto", "scroll", "hidden"].includes(style.overflowX) ||
    isText && style.display !== "inline" && element.scrollWidth > element.clientWidth + 1;
}).map(element => `${element.tagName} ${element.className} ${element.textContent.slice(0, 60)}`)"""
FAINT = """() => {
  const paint = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(c => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const below = element => {
    for (; element; element = element.parentElement) {
      const colour = paint(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const faint = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    if (!node.textContent.trim() || element.closest("script, style, defs, metadata")) continue;
    const ink = paint(element.closest("svg") ? style.fill : style.color);
    const [high, low] = [light(ink), light(below(element))].sort((a, b) => b - a);
    if ((high + .05) / (low + .05) < 4.5) faint.push(`${node.textContent.trim()} ${ink} ${below(element)}`);
  }
  return faint;
}"""
CUT = """() => [...document.querySelectorAll("figure svg")].flatMap(drawing => {
  const outer = drawing.getBoundingClientRect();
  return [...drawing.querySelectorAll("text")].filter(text => {
    const inner = text.getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1 ||
      inner.bottom > outer.bottom + 1;
  }).map(text => text.textContent.trim());
})"""
"""Elements wider than what holds them, or that scroll; texts whose contrast is below 4.5 : 1; texts of a drawing that
end beyond it."""
INT8 = BF16.replace("bf16", "int8")
RESULTS: dict[str, Callable[[], Any]] = {
    "diagnose": lambda: diagnose(STEPS, group_by="step"),
    "compare": lambda: compare(STEPS, group_by="step"),
    "sweep": lambda: sweep(BF16, vary="ratio.seq_mean", target_keep=0.9),
    "diff": lambda: diff(BF16, INT8, group_by="group_id"),
    "inspect": lambda: inspect(BF16, worst=3),
    "filter": lambda: filter(BF16, dry_run=True, preset="seq_is_rs"),
    "check": lambda: check(STEPS, group_by="step"),
    "watch": lambda: watched(STEPS),
}
"""Command -> a result of it."""


def written(folder: Path, *args: str) -> tuple[str, str]:
    """The page and the Markdown form of a dump's report, as text."""
    page, markdown = folder / "r.html", folder / "r.md"
    ran = run("analyze", *args, "-o", str(page), "-o", str(markdown))
    assert ran.status == 0, ran.err
    return page.read_text(), markdown.read_text().replace("\\", "")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return written(tmp_path_factory.mktemp("steps"), STEPS, *PLAN, "--group-by", "step")


@pytest.fixture(scope="module")
def none(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return written(tmp_path_factory.mktemp("none"), BF16)


@pytest.fixture(scope="module")
def impossible(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The training policy gives every token about a tenth less probability than it was drawn with: no policy does."""
    scores = ((1.0 + (i * 7 % 40) / 50, 2.0 + (i * 11 % 40) / 30) for i in range(40))
    rows = [row((-a, -b), (-a - 0.1 - i / 1000, -b - 0.1), sample_id=f"s{i}") for i, (a, b) in enumerate(scores)]
    return parquet(tmp_path_factory.mktemp("impossible") / "impossible.parquet", rows)


@pytest.fixture(scope="module")
def pages(
    browser: Any,
    tmp_path_factory: pytest.TempPathFactory,
    steps: tuple[str, str],
    none: tuple[str, str],
    impossible: str,
) -> dict[str, Path]:
    """Pages of a plan over steps, of no plan, of what cannot be, of long names in many columns, of a framework, and of
    every command.

    The browser is asked for first: without one, none of these is drawn in vain.
    """
    folder = tmp_path_factory.mktemp("pages")
    (folder / "trainer.yaml").write_text(
        "rollout_is: token\nrollout_rs: seq_mean_k1\nrollout_rs_threshold: 0.99_1.01\n"
    )
    names = ["z" * 200, "a_rather_long_name/of_a_group and more of it", "\u05d0\u05d1", "<b>"]
    long_names = [row(**{"the_source_of_the_prompt": names[i % 4], "y" * 60: i}) for i in range(8)]
    args = {
        "impossible": (impossible,),
        "names": (parquet(folder / f"{'n' * 150}.parquet", long_names), "--group-by", "the_source_of_the_prompt",
                  "--group-by", "y" * 60, *PLAN),
        "framework": (STEPS, "--profile", "verl-0.9", "--plan", str(folder / "trainer.yaml"), "--group-by", "step"),
    }  # fmt: skip
    texts = {"steps": steps[0], "none": none[0]}
    paths = {name: folder / f"{name}.html" for name in (*args, *texts)}
    for name, arguments in args.items():
        ran = run("analyze", *arguments, "-o", str(paths[name]))
        assert ran.status == 0, ran.err
    for name, text in texts.items():
        paths[name].write_text(text)
    return paths | {name: save(make(), folder / f"{name}.html") for name, make in RESULTS.items()}


@pytest.mark.full
@pytest.mark.parametrize("name", ["steps", "none", "impossible", "names", "framework", *RESULTS])
def test_a_page_fits_every_screen_and_is_legible(name: str, pages: dict[str, Path], browser: Any) -> None:
    visit = Visit(browser, pages[name])
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        assert visit.page.evaluate(FAINT) == []
        for width in (390, 768, 1280):
            visit.page.set_viewport_size({"width": width, "height": 900})
            assert visit.page.evaluate(LAID_OUT) == [], width
            assert visit.page.evaluate(CUT) == [], width
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.is_quiet(pages[name]), (visit.said, visit.asked)


def test_the_checks_of_layout_and_contrast_can_fail(pages: dict[str, Path], browser: Any) -> None:
    visit = Visit(browser, pages["none"], 390)
    visit.page.add_style_tag(
        content="figure svg { min-width: 34rem; } .summary { color: #999; } pre { overflow-x: auto; } "
        "figure svg text { transform: translate(15px); }"
    )
    assert visit.page.evaluate(CUT)
    assert {line.split()[0] for line in visit.page.evaluate(LAID_OUT)} >= {"svg", "PRE"}
    assert visit.page.evaluate(FAINT)


def test_the_contents_lead_to_every_section_and_picture(pages: dict[str, Path], browser: Any) -> None:
    visit = Visit(browser, pages["steps"])
    targets = visit.page.eval_on_selector_all("nav a", "links => links.map(link => link.getAttribute('href'))")
    assert {
        "#figures",
        "#todo",
        "#correction",
        "#all-metrics",
        "#metrics",
        "#surprise",
        "#weights",
        "#by-step",
    } <= set(targets)
    assert all(visit.page.locator(target).count() == 1 for target in targets)
    drawn = visit.page.eval_on_selector_all("section[id]", "all => all.map(one => '#' + one.id)")
    assert set(drawn) <= set(targets)


def test_pictures_stand_in_the_order_of_the_contents(pages: dict[str, Path], browser: Any) -> None:
    visit = Visit(browser, pages["steps"], 1280)
    links = visit.page.eval_on_selector_all("nav a", "links => links.map(link => link.getAttribute('href').slice(1))")
    seen = visit.page.eval_on_selector_all(
        ".gallery section",
        """all => all.map(one => [one.getBoundingClientRect(), one.id])
        .sort(([a], [b]) => a.top - b.top || a.left - b.left).map(([, id]) => id)""",
    )
    assert len(seen) > 5
    assert seen == [link for link in links if link in seen]


def test_a_drawing_has_a_font_where_its_own_is_not_installed(pages: dict[str, Path], browser: Any) -> None:
    visit = Visit(browser, pages["none"])
    fonts = visit.page.eval_on_selector_all(
        "figure svg text", "all => all.map(one => getComputedStyle(one).fontFamily)"
    )
    assert set(fonts) == {'"DejaVu Sans", system-ui, sans-serif'}


@pytest.mark.parametrize("name", ["steps", *RESULTS])
def test_a_page_is_called_by_its_command_and_dump(name: str, pages: dict[str, Path]) -> None:
    command, text = name if name in RESULTS else "analyze", pages[name].read_text()
    (title,) = re.findall("^<title>(.+)</title>", text, re.MULTILINE)
    (head, _), (_, summary) = re.findall('<h1>(.+)</h1>|summary">(.+)</p>', text)
    assert re.fullmatch(rf"{command} - smollm2_\w+\.parquet.*", head)
    assert title == f"{head}, {summary} - rlcorr"
    if name != "watch":  # the files of a job that runs
        assert re.search(r"file last changed \d{4}-\d\d-\d\d \d\d:\d\d UTC", summary)


@pytest.mark.parametrize(("name", "status"), [("none", "ok"), ("steps", "warn"), ("impossible", "fail")])
def test_a_headline_is_green_only_where_nothing_is_wrong(name: str, status: str, pages: dict[str, Path]) -> None:
    assert re.findall('class="verdict ([a-z]*)"', pages[name].read_text()) == [status]


def test_notes_show_commands_as_code(pages: dict[str, Path]) -> None:
    notes = pages["compare"].read_text().partition("<h2>Notes</h2>")[2]
    assert "(<code>rlcorr help intervals</code>)" in notes
    assert "`" not in notes.partition("</ul>")[0]


def test_sections_begin_folded_on_a_phone_and_unfold_where_they_are_asked_for(
    pages: dict[str, Path], browser: Any
) -> None:
    n_sections = Visit(browser, pages["steps"]).page.locator("details[open]").count()
    phone = Visit(browser, pages["steps"], 390).page
    assert phone.locator("details:not(.card details)").count() == n_sections > 10
    assert phone.locator("details[open]").count() == 1
    for target in ("#symbols", "#weights"):
        phone.locator(f"nav a[href='{target}']").click()
        phone.locator(f"{target}, {target} svg").last.wait_for(state="visible")
    assert phone.locator("details[open]").count() == 3
    phone.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert phone.locator("details[open]").count() == n_sections


def test_metrics_sort_and_what_has_no_number_stays_last(pages: dict[str, Path], browser: Any) -> None:
    visit = Visit(browser, pages["none"])
    table = visit.page.locator("table.metrics").first
    button = table.locator("th button", has_text="ideal")
    for sign in (1, -1):
        button.click()
        cells = table.locator("tbody tr td:nth-child(4)").all_text_contents()
        numbers = [float(cell) for cell in cells if cell]
        assert numbers == sorted(numbers, key=lambda number: sign * number)
        assert {0.0, 1.0} <= set(numbers)
        assert not any(cells[len(numbers) :])
        assert len(cells) > len(numbers)


def test_verdict_figures_and_remedies_come_first_in_both_forms(steps: tuple[str, str]) -> None:
    page, markdown = steps
    body = page[page.index("<main>") :]
    heads = ["Key figures", "What to do", "Correction", "Pictures", "Steps", "Metrics", "What was read", "Plan"]
    assert [head for head in re.findall(r"<h2[^>]*>([^<]+)", body) if head in heads] == heads
    assert [head for head in re.findall(r"^## (.+)", markdown, re.MULTILINE) if head in heads] == heads
    assert page.index('class="verdict') < page.index("<main>")
    assert markdown.index("On average over all 5 steps: close ") < markdown.index("## Key figures")
    for text in (body.replace("_<wbr>", "_"), markdown):
        assert text.index("What to do") < text.index("rejected by") < text.index("IS weights") < text.index("k2_kl")


def test_the_plans_tables_are_those_of_the_terminal(steps: tuple[str, str], tmp_path: Path) -> None:
    saved = tmp_path / "r.json"
    terminal = run("analyze", STEPS, *PLAN, "--group-by", "step", "-o", str(saved)).out.splitlines()
    tables = plan_tables(read_report(str(saved)))
    assert [rows.headings[0] for rows in tables] == ["rejected by", "what is kept", "IS weights"]
    page, markdown = steps
    for cells in (cells for rows in tables for cells in rows.rows):
        texts = [cell.marked for cell in cells if cell.text]
        assert any(re.split(r"\s{2,}", line.strip()) == texts for line in terminal), texts
        assert f"| {' | '.join(cell.marked for cell in cells)} |" in unescape(markdown)
        written_row = r"</t[hd]><td[^>]*>".join(re.escape(cell.marked) for cell in cells)
        assert re.search(written_row, unescape(page.replace("<wbr>", ""))), texts


def test_values_that_break_a_rule_are_marked_in_every_table(steps: tuple[str, str]) -> None:
    page, markdown = steps
    lines = markdown.splitlines()
    assert len([line for line in lines if line.startswith("| seq_ess | 0.00313 ! |")]) == 3  # figures, kept, metrics
    assert "| all together |  | 93.2% ! | 93.4% |" in lines
    assert any(re.match(r"\| 4 \| .* \| 0\.0\d+ ! \| 1\.030 ", line) for line in lines)  # of few effective sequences
    assert re.findall(r'<div class="warn"><dt>(.+?)<', page.replace("<wbr>", "")) == [
        "prob_abs_diff_mean",
        "seq_ess",
        "kept tokens",
    ]
    for value in ("93.2% !", "0.00313 !"):
        assert re.search(rf'class="warn"[^>]*>{re.escape(value)}</td>', page)


def test_a_number_that_cannot_be_is_marked_and_mended_first(impossible: str) -> None:
    page, _ = words(impossible)
    assert page.index("Impossible mean ratio: ") < page.index("No verdict") < page.index("Explain ratio_mean first")
    assert re.search(r'<div class="fail"><dt>ratio_<wbr>mean.*?</dt><dd>[\d.]+ !</dd>', page)


def test_what_cannot_be_stands_before_the_verdict_in_every_form(impossible: str) -> None:
    for text in (run("analyze", impossible).out, *words(impossible)):
        assert "it must be 1. Training gives probability to tokens" in " ".join(text.split())
        assert text.index("Impossible mean ratio: ") < text.index("No verdict")


def test_metrics_of_what_is_kept_stand_only_where_something_is_rejected(
    steps: tuple[str, str], none: tuple[str, str]
) -> None:
    assert all("kept_" in text.replace("<wbr>", "") for text in steps)
    assert "kept_" not in none[0].replace("<wbr>", "")
    assert 'id="correction"' not in none[0]


def test_metrics_stand_in_sections(steps: tuple[str, str]) -> None:
    sections = ["Divergence", "Sample size", "Weights", "Rejections", "Kept", "Other"]
    assert re.findall(r"^### (.+)", steps[1], re.MULTILINE) == sections
    assert "\n## Symbols\n" in steps[1].split("### Other")[1]
    rows = steps[1].split("### Weights")[1].split("### Rejections")[0].splitlines()
    names = [line.split(" | ")[0].removeprefix("| ") for line in rows if line.startswith("| ")]
    assert names[0] == "metric"
    assert all(name.startswith("rollout_is_") for name in names[1:])


def test_a_page_tells_nothing_of_what_it_lacks(steps: tuple[str, str], none: tuple[str, str]) -> None:
    for text in (*steps, *none):
        assert not re.search(r"No \w+ picture|needs groups|weights nothing", text)


def test_a_column_that_has_the_name_itself_is_named_once(steps: tuple[str, str]) -> None:
    for text in steps:
        (columns,) = re.findall(
            r"(?:<dt>columns</dt><dd>|^- columns: )(.+?)(?:</dd>|\n)", text.replace("<wbr>", ""), re.MULTILINE
        )
        assert "old_log_probs" in columns
        assert "old_log_probs from" not in columns


def test_nothing_to_do_is_said_in_plain_words(tmp_path: Path) -> None:
    report = replace(analyze(BF16), rules=())
    assert to_do(report) == []
    sections = {section.heading: section for section in document(report).sections}
    assert sections["What to do"].about == ["Nothing needs fixing: every number is within its limit."]
    equal = parquet(tmp_path / "equal.parquet", [row((-1.0,), (-1.0,))] * 3)
    assert all("Nothing: the two columns are equal." in text for text in words(equal))
    few = parquet(tmp_path / "few.parquet", [row((-1.0, -2.0), (-1.001, -1.999))] * 3)
    assert all("Measure more sequences." in text for text in words(few))


@pytest.mark.full
def test_a_row_without_a_prompt_names_none(tmp_path: Path) -> None:
    pages = {}
    for dump in ("collapse", "smollm2_steps"):
        page = tmp_path / f"{dump}.html"
        ran = run("inspect", str(SAMPLE / f"{dump}.parquet"), "--worst", "2", "-o", str(page))
        assert ran.status == 0, ran.err
        pages[dump] = page.read_text(encoding="utf-8").count("Prompt:")
    assert pages == {"collapse": 0, "smollm2_steps": 2}
