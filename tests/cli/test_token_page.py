"""The page of `inspect -o tokens.html` in a browser: sorting, filtering, keys, links, hover, drag, hostile tokens."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from browsing import Visit, browser as browser
from hostile_tokens import HOSTILE
from running import STEPS, parquet, row, run
from test_page import CUT, FAINT, LAID_OUT

pytestmark = pytest.mark.xdist_group("pages")
TOKENIZER = str(Path(STEPS).with_name("tokenizer.json"))
PLAN = ("--is", "token:,2", "--rs", "k3.token:,0.05")
SHOWN = ".card:not([hidden])"


def written(path: Path, *args: str) -> Path:
    ran = run("inspect", *args, "-o", str(path))
    assert ran.status == 0, ran.err
    return path


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last step's rows of four prompts with a plan."""
    path = tmp_path_factory.mktemp("page") / "tokens.html"
    where = "step = 4 and group_id in ('g0', 'g3', 'g5', 'g7')"
    return written(path, STEPS, "--worst", "25", "--where", where, "--tokenizer", TOKENIZER, *PLAN)


@pytest.fixture
def visit(browser: Any, page: Path) -> Visit:
    return Visit(browser, page)


def names(visit: Visit, of: str = SHOWN) -> list[str]:
    return visit.page.locator(f"{of} h3 a").all_text_contents()


def values(visit: Visit, key: str) -> list[float]:
    return [float(x) for x in visit.page.eval_on_selector_all(SHOWN, f"all => all.map(c => c.dataset.{key})")]


def test_it_fits_every_screen_and_is_legible(browser: Any, page: Path) -> None:
    visit = Visit(browser, page)
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        for colour in ("l", "r", "w"):
            visit.page.select_option("[name=colour]", colour)
            assert visit.page.evaluate(FAINT) == [], (scheme, colour)
        for width in (400, 768, 1280):
            visit.page.set_viewport_size({"width": width, "height": 900})
            assert visit.page.evaluate(LAID_OUT) == [], width
            assert visit.page.evaluate(CUT) == [], width
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.is_quiet(page), (visit.said, visit.asked)


def test_the_policy_lets_only_its_own_style_and_script_run(page: Path) -> None:
    (policy,) = [line for line in page.read_text().splitlines() if "Content-Security-Policy" in line]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


def test_rows_are_sorted(visit: Visit) -> None:
    listed = names(visit)
    assert len(listed) == 25
    for key, falls in (("gap", True), ("n", True), ("reward", False), ("kept", False)):
        visit.page.select_option("[name=sort]", key)
        found = values(visit, key)
        assert found == sorted(found, reverse=falls), key
    assert names(visit) != listed
    visit.page.select_option("[name=sort]", "")
    assert names(visit) == listed


def test_rows_are_found_by_their_text_and_by_what_is_kept(visit: Visit) -> None:
    visit.page.fill("[name=find]", "REVERSE")
    found = visit.page.locator(SHOWN)
    assert 0 < found.count() < 25
    assert all("reverse" in text.lower() for text in found.all_text_contents())
    assert visit.page.locator(".count").text_content() == f"{found.count()} of 25 rows"
    visit.page.fill("[name=find]", "Think step by step")
    assert 0 < visit.page.locator(SHOWN).count() < 25, "by their prompt, which is not folded where it is one line"
    visit.page.fill("[name=find]", "")
    visit.page.select_option("[name=kept]", "whole")
    whole = names(visit)
    assert all(kept == 1 for kept in values(visit, "kept"))
    visit.page.select_option("[name=kept]", "part")
    assert all(kept < 1 for kept in values(visit, "kept"))
    assert len(whole) + len(names(visit)) == 25


def test_keys_go_from_row_to_row_and_from_token_to_token(visit: Visit) -> None:
    listed, page = names(visit), visit.page
    focused = "document.activeElement.querySelector('h3').textContent"
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        assert page.evaluate(focused) == listed[at]
        assert page.evaluate("location.hash") == f"#row={listed[at]}"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").text_content().startswith("#1 ")
    page.keyboard.press("End")
    n = page.locator(".card").nth(1).locator(".tokens b").count()
    assert page.locator(".tip").text_content().startswith(f"#{n - 1} ")
    page.keyboard.press("/")
    page.keyboard.type("jk")
    assert page.input_value("[name=find]") == "jk"
    page.keyboard.press("Escape")


def test_a_link_leads_to_its_row(browser: Any, page: Path) -> None:
    visit = Visit(browser, page)
    name = names(visit)[20]
    page_of_link = browser.new_page(viewport={"width": 1100, "height": 900})
    page_of_link.goto(f"{page.as_uri()}#row={name}")
    card = page_of_link.locator(f"[id='row={name}']")
    page_of_link.wait_for_function(f"document.activeElement.id === 'row={name}'")
    page_of_link.wait_for_timeout(300)
    assert abs(card.bounding_box()["y"]) < 60
    assert card.locator(".tokens b").count() > 10


def test_hovering_tells_all_values_of_a_token(visit: Visit) -> None:
    (found,) = run("inspect", STEPS, "--row", "s4-s005", "--tokenizer", TOKENIZER, *PLAN, "--json").json["rows"]
    visit.page.locator("[id='row=s4-s005'] .tokens b").nth(11).hover()
    told = visit.page.locator(".tip").text_content().split("  ·  ")
    assert told[0] == "#11 “<|im_end|>” id 2"
    numbers = {part.rsplit(" ", 1)[0]: float(part.rsplit(" ", 1)[1]) for part in told[1:] if part != "rejected"}
    logs = [found["log_probs"][name][11] for name in ("rollout_log_probs", "old_log_probs")]
    named = {"rollout logp": logs[0], "rollout p": math.exp(logs[0]), "train logp": logs[1]}
    expected = {**named, "log-ratio": logs[1] - logs[0], "weight": found["weights"][11]}
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert told[-1] == "rejected"


def test_the_text_is_the_response_and_colours_are_of_the_log_ratio(visit: Visit) -> None:
    (found,) = run("inspect", STEPS, "--row", "s4-s025", "--tokenizer", TOKENIZER, "--json").json["rows"]
    tokens = visit.page.locator("[id='row=s4-s025'] .tokens b")
    assert [text.replace("↵", "") for text in tokens.all_text_contents()] == found["text"]
    looks = tokens.evaluate_all("all => all.map(token => token.className)")
    for look, ratio in zip(looks, found["log_ratios"], strict=True):
        shade = next((part for part in look.split() if part[0] in "ab" and part[1:].isdigit()), None)
        part = min(1.0, abs(ratio))
        assert shade == (None if part < 0.04 else f"{'a' if ratio > 0 else 'b'}{min(8, -int(-part * 8 // 1))}")


def test_a_drag_over_the_histogram_picks_tokens(visit: Visit) -> None:
    page = visit.page
    box = page.locator(".histogram svg").bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.up()
    assert page.input_value("[name=low]") == ""
    high = float(page.input_value("[name=high]"))
    assert high < 0
    n = len(names(visit))
    assert 0 < n < 25
    assert page.locator(".count").text_content().startswith(f"{n} of 25 rows, ")
    first = page.locator(SHOWN).first.locator(".tokens b")
    off = first.evaluate_all("all => all.map(token => token.classList.contains('off'))")
    assert True in off
    assert False in off
    page.click("[name=clear]")
    assert len(names(visit)) == 25
    page.fill("[name=low]", "0.5")
    page.keyboard.press("Tab")
    assert 0 < len(names(visit)) < 25


def test_samples_of_one_prompt_stand_side_by_side(visit: Visit) -> None:
    visit.page.check("[name=together]")
    groups = visit.page.eval_on_selector_all(SHOWN, "all => all.map(card => card.dataset.group)")
    assert groups == sorted(groups)
    assert visit.page.locator("h3.group").all_text_contents() == sorted(set(groups))
    tops = visit.page.eval_on_selector_all(SHOWN, "all => all.map(card => card.getBoundingClientRect().top)")
    assert len(set(tops)) < len(tops)
    visit.page.uncheck("[name=together]")
    assert visit.page.locator("h3.group").count() == 0


def test_turns_are_set_apart_and_masked_tokens_are_blank(browser: Any, tmp_path: Path) -> None:
    n = 6
    one = row(
        sample_id="a",
        rollout_log_probs=[-1.0] * n,
        old_log_probs=[-2.0, -1.0, -9.0, -1.0, -1.0, 0.0],
        response_mask=[1, 1, 0, 0, 1, 1],
        entropy=[0.5] * n,
        tokens=["Call", " it", "tool", " says", " so", "."],
    )
    visit = Visit(browser, written(tmp_path / "t.html", parquet(tmp_path / "d.parquet", [one]), "--row", "a"))
    runs = visit.page.locator(".tokens .run")
    assert runs.all_text_contents() == ["Call it", "tool says", " so."]
    assert runs.evaluate_all("all => all.map(run => run.className)") == ["run", "run masked", "run"]
    assert runs.nth(1).locator("b").evaluate_all("all => all.map(token => token.className)") == ["", ""]
    visit.page.locator(".tokens b").nth(2).hover()
    assert "masked" in visit.page.locator(".tip").text_content()
    assert "log-ratio" not in visit.page.locator(".tip").text_content()
    visit.page.select_option("[name=colour]", "e")
    assert visit.page.locator(".tokens b").first.get_attribute("class").split()[0] == "s1"


def test_one_outlier_sets_no_scale(browser: Any, tmp_path: Path) -> None:
    n = 400
    train = [-1.0 - 0.1 * (i % 2) for i in range(n)]
    rows = [row(sample_id="a", rollout_log_probs=[-1.0] * n, old_log_probs=[-50.0, *train[1:]])]
    path = written(tmp_path / "t.html", parquet(tmp_path / "d.parquet", rows), "--row", "a")
    visit = Visit(browser, path)
    assert float(visit.page.get_attribute(".viewer", "data-end")) < 0.2
    assert visit.page.locator(".tokens b.b1").count() == n // 2


@pytest.mark.full
def test_the_page_of_a_report_ends_with_its_five_worst_rows(browser: Any, tmp_path: Path) -> None:
    page, markdown, bad = tmp_path / "r.html", tmp_path / "r.md", tmp_path / "bad.parquet"
    args = (
        "--preset",
        "geo_rs",
        "--tokenizer",
        TOKENIZER,
        "-o",
        str(page),
        "-o",
        str(markdown),
        "--quarantine",
        str(bad),
    )
    ran = run("analyze", STEPS, *args)
    assert ran.status == 0, ran.err
    worst = [one["facts"]["sample_id"] for one in run("inspect", STEPS, "--worst", "5", "--json").json["rows"]]
    visit = Visit(browser, page)
    assert names(visit) == worst
    card = visit.page.locator(".card").first
    card.scroll_into_view_if_needed()
    card.locator(".tokens b").first.wait_for()
    assert card.locator(".tokens").text_content() == "17 * 24 = 380<|im_end|>"
    assert visit.is_quiet(page), (visit.said, visit.asked)
    assert [line for line in markdown.read_text().splitlines() if line.startswith("## Row ")] == [
        f"## Row {name}".replace("-", "\\-") for name in worst
    ]


UNSEEN = (
    "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\u061c\\ufeff"
)
OBEYED = f"""() => [
  document.title.endsWith("rlcorr") ? "" : document.title,
  ...[...document.querySelectorAll("img, iframe, object, base, [onerror], [onmouseover]")].map(e => e.outerHTML),
  ...[...document.scripts].filter(s => s.type !== "application/json").slice(1).map(s => s.outerHTML),
  ...(document.body.textContent.match(/[{UNSEEN}]/g) ?? []).map(c => c.codePointAt(0).toString(16)),
].filter(Boolean)"""
"""What a page did, or holds, that its tokens told it to."""


@pytest.mark.full
def test_nothing_in_a_token_escapes_in_a_browser(browser: Any, tmp_path: Path) -> None:
    assert len(HOSTILE) >= 60
    n = len(HOSTILE)
    numbers = {"rollout_log_probs": [-1.0] * n, "old_log_probs": [-1.0 - 0.01 * i for i in range(n)]}
    rows = [
        row(sample_id=f"s{i}", tokens=[*HOSTILE], prompt=name, note=name, **numbers) for i, name in enumerate(HOSTILE)
    ]
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    visit = Visit(browser, written(tmp_path / "t.html", str(path), "--worst", "100"))
    found = visit.page.locator(".card").first.locator(".tokens b")
    found.first.wait_for()
    assert found.count() == n
    assert visit.page.locator(".card").count() == n
    found.nth(n - 1).hover()
    visit.page.fill("[name=find]", "script")
    visit.page.keyboard.press("Escape")
    assert visit.page.evaluate(OBEYED) == []
    assert visit.is_quiet(tmp_path / "t.html"), visit.said
