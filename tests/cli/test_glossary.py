"""`explain` knows every name that results of the sample data show, and the manual's glossary says the same."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import SAMPLE, run, watched

import rlcorr_cli as rlcorr
from rlcorr_cli.metrics.catalog import define
from rlcorr_cli.results.recommend import FLAGS
from rlcorr_cli.show import document_of
from rlcorr_cli.show.document import Block, Facts, Note, Table
from rlcorr_cli.show.explain import BY_KEY, GLOSSARY, key_of, read_glossary

BF16, INT8, STEPS, COLLAPSE = (
    str(SAMPLE / f"{name}.parquet") for name in ("smollm2_bf16", "smollm2_int8", "smollm2_steps", "collapse")
)
TOKENIZER = str(SAMPLE / "tokenizer.json")
MISPAIRED = str(SAMPLE.parent / "tests" / "diagnosis" / "causes" / "mispaired_5pct.parquet")


RESULTS: dict[str, Callable[[], Any]] = {
    "analyze": lambda: rlcorr.analyze(BF16, preset="seq_is_rs", objective="ppo"),
    "analyze of steps": lambda: rlcorr.analyze(STEPS, preset="token_is", group_by=["step"]),
    "analyze, all of it": lambda: replace(rlcorr.analyze(STEPS, preset="seq_is_rs"), everything=True),
    "analyze of a collapse": lambda: rlcorr.analyze(COLLAPSE),
    "analyze in a framework's names": lambda: rlcorr.analyze(BF16, preset="token_is", profile="verl-0.9"),
    "analyze of a fault": lambda: rlcorr.analyze(MISPAIRED),
    "diagnose": lambda: rlcorr.diagnose(STEPS),
    "diagnose a fault": lambda: rlcorr.diagnose(MISPAIRED),
    "diagnose a collapse": lambda: rlcorr.diagnose(COLLAPSE),
    "compare": lambda: rlcorr.compare(BF16),
    "compare steps": lambda: rlcorr.compare(STEPS, group_by=["step"]),
    "compare with an objective": lambda: rlcorr.compare(BF16, objective="ppo"),
    "sweep of a rejection": lambda: rlcorr.sweep(BF16, vary="ratio.seq_mean"),
    "sweep of weights": lambda: rlcorr.sweep(BF16, preset="token_is", vary="is.high"),
    "diff": lambda: rlcorr.diff(BF16, INT8),
    "diff of three": lambda: rlcorr.diff(BF16, INT8, STEPS),
    "check": lambda: rlcorr.check(STEPS),
    "inspect": lambda: rlcorr.inspect(BF16),
    "inspect rows": lambda: rlcorr.inspect(BF16, worst=2, preset="seq_is_rs", tokenizer=TOKENIZER),
    "inspect rows of a rejection": lambda: rlcorr.inspect(STEPS, worst=2, preset="token_rs"),
    "watch": lambda: watched(STEPS),
}
_NUMBER = re.compile(r"[-+±<>=x ]*[\d.,]+ ?%?(e-?\d+)?|[\d.]+ ?%?( \.\.| to |,).*")
_IDENTIFIER = re.compile(r"(?<![\w/.-])[a-z]\w*_[\w.]*\w(?![\w/*-])")
OF_THE_DUMP = {
    "column",
    "on valid tokens",
    "#",
    "step",
    "group_id",
    "lag",
    "worker",
    "data_source",
    "keeps",
    "weights",
    "length",
    "at",
    "row",
    "valid tokens a sequence",
}
"""Headings of columns whose cells are the dump's own names and values."""
OF_THE_DUMP_IN_JSON = {"columns", "schema", "key", "facts", "texts", "log_probs", "values", "parameters", "lengths"}
"""Keys of JSON whose own keys are the dump's names and values, or numbers."""


def shown(result: Any) -> Iterator[str]:
    """Every name that a result shows: on a terminal, in a file, in JSON and in CSV."""
    document = document_of(result)
    for block in document.lines:
        yield from _named_in_block(block)
    for section in document.sections:
        yield section.heading
        yield from (figure.name for figure in section.figures)
        yield from (name for name, _ in section.facts if not re.match(r"[A-Z], ", name))
        yield from (picture.name for picture in section.pictures)
        for text in (*section.about, *section.items, *(part for row in section.todo for part in row)):
            yield from _IDENTIFIER.findall(text)
        for table in section.tables:
            yield from (table.heading, *_named_in_block(table))
    yield from _keys(json.loads("".join(document.json)))
    first = next(iter(document.records))
    yield from first if not isinstance(first, str) else first.strip().split(",")


def _named_in_block(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield from block.headings
            for row in () if block.headings[0] in OF_THE_DUMP else block.rows:
                yield row[0].text
            for i, heading in enumerate(block.headings):
                if heading in ("flag", "take"):
                    yield from (row[i].text for row in block.rows)
        case Note():
            yield from _IDENTIFIER.findall(f"{block.lead} {block.text}")
        case Facts(parts):
            yield from _IDENTIFIER.findall(" ".join(parts[1:]))
        case _:
            pass


def _keys(value: Any) -> Iterator[str]:
    """Every key of JSON but those that the dump names."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key
        yield from () if key in OF_THE_DUMP_IN_JSON and isinstance(inner, dict) else _keys(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _keys(inner)


def unknown(names: Iterable[str]) -> list[str]:
    """The names that `explain` does not know, but numbers, ranges, and what hangs on the dump: files, rows, columns."""
    left = {re.sub(r"^By |^as | logs it$", "", name) for name in names if name and not _NUMBER.fullmatch(name)}
    left = {name for name in left if not re.search(r"\.(parquet|json|rlcorr)$|^(Row|below|step) |^[A-Z] and A\b", name)}
    return sorted(name for name in left - {"train_precision"} if run("explain", name).status != 0)


@pytest.mark.parametrize("name", RESULTS)
def test_every_name_that_a_result_shows_is_explained(name: str) -> None:
    names = set(shown(RESULTS[name]()))
    assert len(names) > 10
    assert unknown(names) == []


def test_every_name_that_a_filtered_dump_shows_is_explained(tmp_path: Path) -> None:
    assert unknown(shown(rlcorr.filter(BF16, tmp_path / "kept.parquet", preset="seq_is_rs"))) == []


def test_every_name_of_a_token_page_is_explained(tmp_path: Path) -> None:
    rlcorr.save(rlcorr.inspect(BF16, worst=2, preset="seq_is_rs", tokenizer=TOKENIZER), tmp_path / "tokens.html")
    page = (tmp_path / "tokens.html").read_text(encoding="utf-8")
    sorts_and_colours = re.findall(r'<select name="(?:sort|colour)">(.*?)</select>', page)
    names = set(re.findall(r'<option value="\w+">([^<]+)', "".join(sorts_and_colours)))
    told = set(re.findall(r"`([a-z][a-z -]+) \$\{", page))
    assert {"log-ratio", "reward"} < names
    assert {"entropy", "weight"} < told
    assert unknown(names | told) == []


def test_every_heading_of_watch_is_explained(tmp_path: Path) -> None:
    ran = run("watch", STEPS, "--once", "--every", "0", "--state", str(tmp_path / "watch.rlcorr"))
    assert unknown(set(ran.out.splitlines()[0].split())) == []


def test_every_key_of_a_preset_is_explained() -> None:
    shown = [run("presets", name).out for name in ("token_is", "prime_dppo", "m2po", "geo_rs", "roll_topr")]
    assert unknown(set(re.findall(r"^\[*(\w+)(?: = |\]+$)", "\n".join(shown), re.MULTILINE))) == []
    assert unknown(set(re.findall(r"(\w+): ", run("presets").out))) == []


def test_the_search_for_names_can_fail() -> None:
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


def test_the_page_is_read_item_by_item() -> None:
    page = "# Glossary\n\n## Words\n\n- **a** (also: b, c d): One\n  word.\n- **e**: The metric kl.\n"
    a, e = read_glossary(page)["Words"]
    assert (a.name, a.also, a.meaning, a.metric) == ("a", ("b", "c d"), "One word.", "")
    assert (e.names, e.metric) == (("e",), "kl")


def test_a_line_that_is_no_term_is_refused() -> None:
    with pytest.raises(ValueError, match="no term of the glossary: a: One word"):
        read_glossary("# Glossary\n\n## Words\n\n- a: One word.\n")
