"""Results in a notebook: short in a console, one small display of each, every form by `save`, a notebook that runs."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from rlcorr_cli import (
    analyze,
    check,
    compare,
    convert,
    diagnose,
    diff,
    filter,
    inspect,
    plot,
    save,
    sweep,
    to_html,
    watch,
)
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.show.document import Cause, Document

# Together in one process of pytest, which makes the results once.
pytestmark = pytest.mark.xdist_group("notebook")
SAMPLES = Path(__file__).parents[2] / "sample_data"
BF16, INT8, STEPS = (str(SAMPLES / f"smollm2_{name}.parquet") for name in ("bf16", "int8", "steps"))
NOTEBOOK = SAMPLES / "notebook.ipynb"
RESULTS: dict[str, Callable[[Path], Any]] = {
    "analyze": lambda _: analyze(STEPS, group_by="step", pictures=True),
    "diagnose": lambda _: diagnose(STEPS),
    "compare": lambda _: compare(STEPS, group_by="step"),
    "sweep": lambda _: sweep(BF16, vary="ratio.seq_mean", target_keep=0.9),
    "diff": lambda _: diff(BF16, INT8, group_by="group_id"),
    "inspect": lambda _: inspect(BF16),
    "inspect row": lambda _: inspect(BF16, row="s003"),
    "filter": lambda _: filter(BF16, dry_run=True, preset="seq_is_rs"),
    "check": lambda _: check(STEPS, group_by="step"),
    "convert": lambda folder: convert(BF16, folder / "converted.parquet"),
    "watch": lambda folder: watch(STEPS, once=True, every=0, state=folder / "watch.rlcorr"),
}
"""Command -> a result of it, of many groups or rows where it can have them."""
HEADLINES = {
    "analyze": "Likely cause: stale rollouts",
    "diagnose": "Likely cause: ",
    "compare": "Use decoupled_token_is",
    "sweep": "To keep 90.0% of the sequences",
    "diff": "B is farther apart",
    "inspect": "No bad rows, and nothing suspicious.",
    "inspect row": "1 row. The furthest token is #",
    "filter": "Keeps 57 of 64 sequences",
    "check": "6 rules on smollm2_steps.parquet",
    "convert": "Wrote 64 rows to ",
    "watch": "Passed: 5 steps of ",
}
WITH_PICTURE = ("analyze", "diagnose", "compare", "sweep", "diff", "filter")
MOST_WORDS, MOST_BYTES = 300, 250_000
"""A screen of words; a picture of six panels is 120 kB."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("converted")
    return {name: make(folder) for name, make in RESULTS.items()}


def words(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", html)).split())


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_line_in_a_console(results: dict[str, Any], name: str) -> None:
    text = repr(results[name])
    assert len(text) < 400
    assert "\n" not in text
    assert ".parquet" in text


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_small_display_in_a_notebook(results: dict[str, Any], name: str) -> None:
    html = results[name]._repr_html_()
    shown = words(html)
    assert HEADLINES[name] in shown
    assert f"{name.split()[0]} - " in shown
    assert 20 < len(shown.split()) < MOST_WORDS
    assert len(html) < MOST_BYTES
    assert html.count("<img") == (name in WITH_PICTURE)
    assert "<script" not in html
    assert "<style" not in html


def test_a_display_ends_where_a_screen_does(results: dict[str, Any]) -> None:
    html = results["compare"]._repr_html_()
    assert html.count("<tr>") == 1 + 8
    assert "and 9 more rows" in html


def test_a_table_in_a_display_scrolls_by_itself_and_breaks_no_value(results: dict[str, Any]) -> None:
    html = results["analyze"]._repr_html_()
    assert '<div style="overflow-x:auto"><table>' in html
    assert re.findall(r"text-align:right(?!;white-space:nowrap)", html) == []


def test_names_from_a_dump_are_text_in_a_display(results: dict[str, Any]) -> None:
    report = results["analyze"]
    named = replace(report, plan=replace(report.plan, name="<script>x</script>"))
    assert "&lt;script&gt;" in named._repr_html_()
    assert "<script" not in named._repr_html_()


def test_a_cause_is_never_beside_a_green_headline(results: dict[str, Any]) -> None:
    green = "#00875a"
    assert green not in results["analyze"]._repr_html_()
    assert green in results["inspect"]._repr_html_()
    assert green in analyze(BF16)._repr_html_()
    close = Document(lines=(), headline="Close.", status="ok")
    caused = replace(close, causes=[Cause("warn", "stale_policy", "")])
    assert (close.shown_status, caused.shown_status) == ("ok", "warn")


@pytest.mark.full
@pytest.mark.parametrize("name", RESULTS)
def test_save_writes_every_result_in_every_form(results: dict[str, Any], name: str, tmp_path: Path) -> None:
    result = results[name]
    page = save(result, tmp_path / "page.html").read_text()
    assert page == to_html(result)
    assert HEADLINES[name] in words(page)
    assert json.loads(save(result, tmp_path / "result.json").read_text()).keys() == result.to_dict().keys() | (
        {"pictures"} if name == "analyze" else set()
    )
    text = save(result, tmp_path / "result.md").read_text()
    assert text.startswith(f"# {name.split()[0]} ")
    with save(result, tmp_path / "result.csv").open() as file:
        lines = list(csv.reader(file))
    assert len({len(line) for line in lines}) == 1
    assert len(lines) > 1


@pytest.mark.parametrize("name", RESULTS)
def test_save_draws_what_has_a_picture(results: dict[str, Any], name: str, tmp_path: Path) -> None:
    if name == "analyze":
        with pytest.raises(UsageError, match="a report is written as"):
            save(results[name], tmp_path / "result.png")
    elif name in WITH_PICTURE:
        assert save(results[name], tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    else:
        with pytest.raises(DataError, match="there is nothing to draw"):
            save(results[name], tmp_path / "result.png")


def test_save_never_writes_over_the_dump(results: dict[str, Any], tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"rollout_log_probs": [-1.0], "old_log_probs": [-1.0]}))
    for result in (inspect(dump, format="jsonl"), filter(dump, dry_run=True, preset="token_is", format="jsonl")):
        with pytest.raises(UsageError, match="is part of the dump"):
            save(result, dump)


def test_pictures_of_plot_are_shown_and_saved(tmp_path: Path) -> None:
    rows = [[-1.0] * 8] * 8
    pictures = plot({"rollout_log_probs": rows, "old_log_probs": rows}, kind=("scatter", "ratio"))
    html = pictures._repr_html_()
    assert html.count("<img") == 1
    assert "All 64 log-ratios are 0" in html
    assert [picture._repr_html_().count("<img") for picture in pictures] == [1, 0]
    assert repr(pictures[0]).startswith("<Picture scatter: ")
    assert save(pictures[0], tmp_path / "scatter.svg").read_text().startswith("<?xml")
    with pytest.raises(DataError, match="nothing to draw"):
        save(pictures[1], tmp_path / "ratio.svg")


def test_a_report_without_counts_says_how_to_get_them() -> None:
    with pytest.raises(DataError, match="holds no counts") as error:
        plot(analyze(BF16))
    assert error.value.hint == "Take one of analyze(dumps, pictures=True)."


def test_what_is_no_result_is_refused() -> None:
    with pytest.raises(UsageError, match="not a result, but a dict"):
        save({}, "page.html")  # pyrefly: ignore[bad-argument-type]


@pytest.mark.full
def test_the_notebook_of_the_samples_runs() -> None:
    """Its cells are run in a kernel; each ends in a result, which is shown in a display of its size."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(SAMPLES)}}).execute()
    shown = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    headings = ["analyze - smollm2_steps.parquet", "diagnose - ", "compare - <table in memory>", "", "filter - "]
    assert len(shown) == len(headings)
    for html, heading in zip(shown, headings, strict=True):
        assert words(html).startswith(heading)
        assert len(html) < MOST_BYTES
        assert len(words(html).split()) < MOST_WORDS
