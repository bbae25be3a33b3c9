"""Records: JSON, the way back and the schema of a small one, by its fields alone."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jsonschema_rs
import pytest

from rlcorr_cli.records.fields import HIDDEN, Form, Key, Number, Scalar, computed
from rlcorr_cli.records.record import Record
from rlcorr_cli.records.structs import schema


@dataclass(frozen=True)
class Ends(Record):
    """An interval."""

    low: float
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    """A part with everything that a field may be."""

    name: str
    ends: Annotated[Ends, Key(inline=True)]
    key: Annotated[Mapping[str, Scalar], Form(least=1)]
    values: Mapping[str, Number]
    pairs: tuple[tuple[int, bool], ...] = ()
    note: Annotated[str | None, Key(name="remark", omit=True)] = None
    seconds: Annotated[float, HIDDEN] = 0.0

    @property
    @computed("How many pairs there are.", after="name")
    def n_pairs(self) -> int:
        """The number of pairs."""
        return len(self.pairs)


PART = Part(name="a", ends=Ends(1.0), key={"x": float("inf"), "y": 2}, values={"kl": None}, pairs=((1, True),))
WRITTEN = {
    "name": "a",
    "n_pairs": 1,
    "low": 1.0,
    "high": None,
    "key": {"x": "inf", "y": 2},
    "values": {"kl": None},
    "pairs": [[1, True]],
}


def test_a_record_is_written_key_by_key_in_order() -> None:
    assert list(PART.to_dict().items()) == list(WRITTEN.items())
    assert Part(**{**vars(PART), "note": "b"}).to_dict() == {**WRITTEN, "remark": "b"}
    assert PART.to_dict(without="pairs")["pairs"] == []


def test_what_was_written_comes_back_and_later_keys_are_ignored() -> None:
    found = Part.from_json(json.dumps({**WRITTEN, "of a later release": 1}))
    assert found == Part(**{**vars(PART), "key": {"x": "inf", "y": 2}})
    assert found.to_dict() == WRITTEN


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": {"kl": "0.1"}}, "Expected `float | null`, got `str` - at `$.values[...]`"),
        ({"values": {"kl": float("nan")}}, "JSON is malformed: invalid character"),
        ({"pairs": [[1, True], [1]]}, "Expected `array` of length 2 - at `$.pairs[1]`"),
        ({"pairs": [[-1, True]]}, "Expected `int` >= 0 - at `$.pairs[0][0]`"),
        ({"low": True}, "Expected `float`, got `bool` - at `$.low`"),
        ({"key": {}}, "Expected `object` of length >= 1 - at `$.key`"),
        ({"key": {"x": [1]}}, "got `array` - at `$.key[...]`"),
        ({"name": "\ud800"}, "JSON is malformed: unexpected end of escaped utf-16 surrogate pair"),
        ({"n_pairs": None}, "Expected `int`, got `null` - at `$.n_pairs`"),
    ],
    ids=str,
)
def test_a_fault_is_told_with_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Part.from_json(json.dumps({**WRITTEN, **changes}))


@pytest.mark.parametrize("name", WRITTEN)
def test_every_key_must_be_there(name: str) -> None:
    with pytest.raises(ValueError, match=f"missing required field `{name}`"):
        Part.from_json(json.dumps({key: value for key, value in WRITTEN.items() if key != name}))


def test_the_schema_says_what_the_fields_do() -> None:
    document = schema("a title", [Part])
    jsonschema_rs.meta.validate(document)
    validator = jsonschema_rs.Draft202012Validator(document)
    assert validator.is_valid(WRITTEN)
    assert not validator.is_valid({**WRITTEN, "more": 1})
    assert not validator.is_valid({**WRITTEN, "key": {}})
    part = document["$defs"]["part"]
    assert part["description"] == "A part with everything that a field may be."
    assert part["properties"]["n_pairs"] == {
        "description": "How many pairs there are.",
        "type": "integer",
        "minimum": 0,
    }
    assert part["required"] == list(WRITTEN)
