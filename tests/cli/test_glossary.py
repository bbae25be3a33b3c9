"""`explain` knows every name that results of the sample data show, and the manual's glossary says the same."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import SAMPLE, run, watched

import rlcorr_cli as rlcorr
from rlcorr_cli.metrics.catalog import define
from rlcorr_cli.results.recommend import FLAGS
from rlcorr_cli.show import document_of
from rlcorr_cli.show.document import Table
from rlcorr_cli.show.glossary import BY_KEY, GLOSSARY, key_of
from rlcorr_cli.show.manual import GLOSSARY_PAGE, glossary_page

BF16, INT8, STEPS, COLLAPSE = (
    str(SAMPLE / f"{name}.parquet") for name in ("smollm2_bf16", "smollm2_int8", "smollm2_steps", "collapse")
)
RESULTS: dict[str, Callable[[], Any]] = {
    "analyze": lambda: rlcorr.analyze(BF16, preset="seq_is_rs", objective="ppo"),
    "analyze of steps": lambda: rlcorr.analyze(STEPS, preset="token_is", group_by=["step"]),
    "analyze of a collapse": lambda: rlcorr.analyze(COLLAPSE),
    "diagnose": lambda: rlcorr.diagnose(STEPS),
    "diagnose a collapse": lambda: rlcorr.diagnose(COLLAPSE),
    "compare": lambda: rlcorr.compare(BF16),
    "compare steps": lambda: rlcorr.compare(STEPS, group_by=["step"]),
    "compare with an objective": lambda: rlcorr.compare(BF16, objective="ppo"),
    "sweep of a rejection": lambda: rlcorr.sweep(BF16, vary="ratio.seq_mean"),
    "sweep of weights": lambda: rlcorr.sweep(BF16, preset="token_is", vary="is.high"),
    "diff": lambda: rlcorr.diff(BF16, INT8),
    "check": lambda: rlcorr.check(STEPS),
    "inspect": lambda: rlcorr.inspect(BF16),
    "watch": lambda: watched(STEPS),
}
_NUMBERS = re.compile(r"[\d.]+ ?%|\d+ (\.\.|to) \d+")


def headings(result: Any) -> Iterator[str]:
    """Every heading of a table, on a terminal or in a file, but quantiles and ranges of steps."""
    document = document_of(result)
    tables = [block for block in document.lines if isinstance(block, Table)]
    tables += [table for section in document.sections for table in section.tables]
    for table in tables:
        yield from (heading for heading in table.headings if heading and not _NUMBERS.fullmatch(heading))


def unknown(names: set[str]) -> list[str]:
    return sorted(name for name in names if run("explain", name).status != 0)


@pytest.mark.parametrize("name", RESULTS)
def test_every_heading_is_explained(name: str) -> None:
    shown = set(headings(RESULTS[name]()))
    assert shown
    assert unknown(shown) == []


def test_every_heading_of_a_filtered_dump_is_explained(tmp_path: Path) -> None:
    assert unknown(set(headings(rlcorr.filter(BF16, tmp_path / "kept.parquet", preset="seq_is_rs")))) == []


def test_the_search_for_headings_can_fail() -> None:
    assert unknown({"seq ESS", "no such heading"}) == ["no such heading"]


@pytest.mark.parametrize("dump", [BF16, STEPS, COLLAPSE])
def test_every_key_and_word_of_a_story_is_explained(dump: str) -> None:
    diagnosed = json.loads(run("diagnose", dump, "--json").out)
    story = diagnosed["story"]
    names = {*story, story["first"], story["effect"], story["certainty"]}
    for cause in diagnosed["causes"]:
        names |= {*cause, cause["cause"], cause["certainty"]}
    names |= {*diagnosed["gap"], *(key for column in diagnosed["columns"] for key in column["levels"][0])}
    assert unknown(names) == []


def test_every_flag_and_every_level_of_a_verdict_is_explained() -> None:
    levels = {"equal", "same", "close", "apart", "far", "void", "too few"}
    assert unknown({*FLAGS, *levels}) == []


@pytest.mark.parametrize(
    "name",
    ["importance sampling", "IS", "RS", "no evidence", "log counts", "below 1 / high", "nats", "Pareto k", "core"],
)
def test_words_of_reports_are_explained(name: str) -> None:
    ran = run("explain", name)
    assert ran.status == 0
    assert BY_KEY[key_of(name)].meaning in " ".join(ran.out.split())


def test_a_heading_of_a_metric_is_followed_by_its_definition() -> None:
    text = run("explain", "IS ESS").out
    definition = define("rollout_is_eff_sample_size")
    assert definition is not None
    assert definition.formula in text


def test_no_word_has_two_meanings_and_each_metric_exists() -> None:
    terms = [term for rows in GLOSSARY.values() for term in rows]
    keys = [key_of(name) for term in terms for name in term.names]
    assert sorted(keys) == sorted(set(keys))
    assert [term.name for term in terms if term.metric and define(term.metric) is None] == []
    assert [term.name for term in terms if not term.meaning.endswith(".")] == []


def test_one_letter_is_looked_up_in_its_case() -> None:
    assert "the first dump" in run("explain", "A").out
    assert "the first dump" not in run("explain", "a").out


def test_the_manuals_glossary_is_up_to_date() -> None:
    written = GLOSSARY_PAGE.read_text(encoding="utf-8")
    assert written == glossary_page(), "write it again: python -m rlcorr_cli.show.manual"
