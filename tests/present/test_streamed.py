"""JSON made piece by piece is the text that json makes of the whole."""

import json
from typing import Any

import pytest

from rlcorr_cli.present.streamed import pieces

RECORDS: list[list[dict[str, Any]]] = [
    [],
    [{"key": {"step": 0}, "metrics": {"kl": 0.1, "k3": None, "big": 1e300}, "says": 'é\n"x"'}],
    [{"key": {}, "value": None, "n": 3}, {"key": {"a\n": "b", "c": True}, "value": 1e-9, "n": 0}],
]


@pytest.mark.parametrize("records", RECORDS, ids=["none", "one", "two"])
def test_pieces_are_the_indented_text(records: list[dict[str, Any]]) -> None:
    document = {"notes": ['\n  "groups": []', "x"], "groups": [], "last": {"a": [1, {"b": 2}]}}
    whole = json.dumps({**document, "groups": records}, indent=2, ensure_ascii=True)
    assert "".join(pieces(document, "groups", records)) == whole + "\n"


def test_what_comes_last_stands_in_one_line() -> None:
    text = "".join(pieces({"groups": [], "notes": []}, "groups", RECORDS[1], {"pictures": {"a": [1, 2]}}))
    assert text.endswith('\n  "pictures": {"a":[1,2]}\n}\n')
    assert json.loads(text) == {"groups": RECORDS[1], "notes": [], "pictures": {"a": [1, 2]}}


def test_infinity_is_no_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(pieces({"groups": []}, "groups", [{"metrics": {"kl": float("inf")}}]))
