"""Plans, rules, configs and reports are read whole, within limits, or refused in words; none of them hangs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.frameworks.read import read_plan
from rlcorr_cli.plans.documents import MOST_BYTES, MOST_DEPTH, MOST_VALUES, read_text
from rlcorr_cli.plans.files import load, parse, plan_from_dict
from rlcorr_cli.plans.plan import MOST_RULES, Plan
from rlcorr_cli.results.policy import read_rules
from rlcorr_cli.results.saved import read_report


def name(value: str) -> str:
    """A case's name: the start of its text."""
    return value[:30]


def aliases(levels: int, line: str = "a{i}: &a{i} [{parts}]") -> str:
    """Nine of the level below on each level."""
    below = [line.format(i=i, parts=",".join([f"*a{i - 1}"] * 9)) for i in range(1, levels)]
    return "\n".join(["a0: &a0 {k: v}", *below])


@pytest.mark.parametrize(
    ("suffix", "text", "reason"),
    [
        (".json", '{"name": "a", "weighting": {}, "name": "b"}', "the key 'name' comes twice"),
        (".json", '{"weighting": {"scope": "token", "scope": "sequence"}}', "the key 'scope' comes twice"),
        (".yaml", "name: a\nrules: []\nname: b", "the key 'name' comes twice in one mapping, again in line 3"),
        (".yaml", "weighting: {scope: token, 'scope': sequence}", "the key 'scope' comes twice"),
        (".yaml", "{1: a, 0x1: b}", "the key 1 comes twice"),
        (".toml", 'name = "a"\nname = "b"', "the key 'name' comes twice in one mapping, again in line 2"),
        (".toml", 'w = {scope = "token", scope = "sequence"}', "'scope'"),
        (".toml", "[weighting]\n[weighting]", "weighting"),
    ],
)
def test_a_key_twice_is_refused_by_its_name(suffix: str, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, suffix)
    assert reason in refused.value.message


def test_a_key_beside_a_merge_of_it_is_no_key_twice() -> None:
    text = "base: &base {low: 1}\nmiddle: &middle {<<: *base, low: 2}\ntop: {<<: *middle, high: 3}"
    assert parse(text, ".yaml").data["top"] == {"low": 2, "high": 3}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!!bool maybe", "'maybe' is no bool in line 1"),
        ('!!int ""', "'' is no int"),
        ('!!float ""', "'' is no float"),
        ("!!timestamp foo", "'foo' is no timestamp"),
        ("!!timestamp 2020-13-01", "month"),
        ("!!null x", "'x' is no null"),
        ("!!binary x", "base64"),
        ("!!python/object:os.system x", "could not determine a constructor"),
        ("!!bool " + "maybe" * 99_999, "(499,995 characters)"),
        ("1_" + "0" * 400, "a number that is too large"),
        ("0x" + "f" * 9_000, "a number that is too large"),
        ("9" * 9_000, "a number that is too large"),
        ("1:" * 400 + "1.5", "a number that is too large"),
        ("*nothing", "undefined alias 'nothing'"),
        ("&a [*a]", "an alias stands inside what it names"),
        ("1\n---\nb: 2", "another document in line 2"),
        ("[1", "line 1"),
    ],
    ids=name,
)
def test_yaml_that_means_nothing_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(f"a: {text}", ".yaml")
    assert reason in refused.value.message
    assert len(refused.value.message) < 700


@pytest.mark.parametrize(
    ("text", "value"), [("!!float 3", 3.0), ("!!int '3'", 3), ("!!bool yes", True), ("!!str 1", "1")]
)
def test_a_tag_that_fits_is_followed(text: str, value: object) -> None:
    assert parse(f"a: {text}", ".yaml").data == {"a": value}


@pytest.mark.parametrize(
    ("suffix", "text", "reason"),
    [
        (".yaml", aliases(12), "more than 20,000 values"),
        (".yaml", aliases(30, "a{i}: &a{i}\n  <<: [{parts}]"), "more than 20,000 values"),
        (".yaml", "[" + "1," * MOST_VALUES + "1]", "more than 20,000 values"),
        (".json", json.dumps({f"k{i}": 1 for i in range(MOST_VALUES)}), "more than 20,000 values"),
        (".yaml", "a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60, "nested more than 64 deep"),
        (".yaml", "a: " + "[" * 90_000 + "]" * 90_000, "nested more than 64 deep"),
        (".json", "[" * 90_000 + "]" * 90_000, "nested more than 64 deep"),
        (".json", "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "nested more than 64 deep"),
        (".toml", "a = " + "[" * 90_000 + "]" * 90_000, "nested more than 64 deep"),
        (".toml", "a." * 90_000 + "a = 1", "line 1 has more than 100 dots"),
        (".toml", "a = {" + "b." * 90_000 + "c = 1}", "line 1 has more than 100 dots"),
        (".toml", "a = 0x" + "f" * 9_000, "a number that is too large"),
        (".json", "9" * 9_000, "a number that is too large"),
    ],
    ids=name,
)
def test_what_comes_to_more_than_the_limits_is_refused(suffix: str, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, suffix)
    assert reason in refused.value.message


def test_a_trainers_config_is_far_from_the_limits() -> None:
    config = {f"block{i}": {f"option{j}": [1.0, "text", None] for j in range(30)} for i in range(50)}
    assert parse(json.dumps(config), ".json").data == config
    assert parse(json.dumps(config), ".yaml").data == config


READERS = {
    "plan file": (lambda path: read_plan(path, None), UsageError),
    "rules file": (read_rules, UsageError),
    "report": (read_report, DataError),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_at_once(reader: str, tmp_path: Path) -> None:
    read, error = READERS[reader]
    os.mkfifo(tmp_path / "f.json")
    with pytest.raises(error, match=rf"{reader}.*is not a regular file|regular file"):
        read(str(tmp_path / "f.json"))


@pytest.mark.parametrize("reader", READERS)
def test_a_directory_and_a_missing_file_are_refused(reader: str, tmp_path: Path) -> None:
    read, error = READERS[reader]
    for path in (tmp_path / "none.json", tmp_path / "d.json"):
        (tmp_path / "d.json").mkdir(exist_ok=True)
        with pytest.raises(error) as refused:
            read(str(path))
        assert str(path) in refused.value.message


def test_a_device_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="cannot tell a plan file's format"):
        load("/dev/zero")
    with pytest.raises(UsageError, match="not a regular file"):
        read_text("/dev/zero")


def test_a_file_beyond_the_limit_is_refused_and_one_at_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(" " * MOST_BYTES)
    assert len(read_text(str(path))) == MOST_BYTES
    path.write_text(" " * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match=r"larger than 1,048,576 bytes"):
        read_text(str(path))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(UsageError, match="byte 8 is not UTF-8"):
        load(str(tmp_path / "plan.toml"))


def rejections(n: int) -> dict[str, Any]:
    record = {"statistic": "ratio", "scope": "token", "low": 0.1}
    return {"rejections": [{**record, "name": f"r{i}"} for i in range(n)]}


def test_a_plan_has_at_most_a_hundred_rejections() -> None:
    assert len(plan_from_dict(rejections(MOST_RULES)).rejections) == MOST_RULES
    with pytest.raises(UsageError, match="at most 100 rejections, not 3,000"):
        plan_from_dict(rejections(3_000))


@pytest.mark.parametrize("defaults", ["[" + "1, " * 19_000 + "1]", '"' + "x" * 500_000 + '"'], ids=("list", "text"))
def test_a_wrong_value_is_shown_by_a_short_piece(defaults: str, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(f'{{"defaults": {defaults}}}')
    with pytest.raises(UsageError, match="defaults must be true or false, got") as refused:
        read_rules(str(tmp_path / "rules.json"))
    assert len(refused.value.message) < 300


def test_many_wrong_keys_are_counted() -> None:
    with pytest.raises(UsageError, match=r"no such key: k0, k1, k2, k3, k4; and 9,995 more\.") as refused:
        plan_from_dict({f"k{i}": 1 for i in range(10_000)})
    assert len(refused.value.message) < 300


WRONG: dict[str, tuple[Any, str]] = {
    "a choice": (
        {"weighting": {"scope": "tok"}},
        "weighting.scope: one of token, sequence, geometric was expected, not 'tok'",
    ),
    "a choice of the plan": ({"mode": "off"}, "mode: one of decoupled, bypass was expected, not 'off'"),
    "a bound of text": (
        {"weighting": {"scope": "token", "high": "2"}},
        r"weighting.high: Expected `float \| null`, got `str`",
    ),
    "a bound of a rejection": (rejections(2)["rejections"] + [{"low": True}], r"rejections\[2\].low: Expected `float"),
    "a key too few": ([{"statistic": "ratio", "low": 1}], r"rejections\[0\]: Object missing required field `scope`"),
    "a key too many": ([{"statistic": "ratio", "low": 1, "hihg": 2}], r"no such key: rejections\[0\].hihg"),
    "bounds": ([{"statistic": "ratio", "bounds": {}}], r"no such key: rejections\[0\].bounds"),
    "a table for a list": ({"rejections": {"low": 1}}, "rejections: Expected `array`, got `object`"),
    "a number for a table": ({"weighting": 5}, r"weighting: Expected `object \| null`, got `int`"),
    "half of a pair": ({"weighting": {"scope": "\ud800"}}, r"'\\ud800' is no text of whole characters"),
    "a number beyond any float": ({"log_ratio_limit": 10**400}, "log_ratio_limit: Number out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_a_plan_is_named_by_its_place(name: str) -> None:
    data, words = WRONG[name]
    with pytest.raises(UsageError, match=f"not a plan: {words}"):
        plan_from_dict({"rejections": data} if isinstance(data, list) else data)


def test_infinity_is_no_limit() -> None:
    assert plan_from_dict({"log_ratio_limit": float("inf")}) == Plan(log_ratio_limit=None)
