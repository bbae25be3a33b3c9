"""JSON made piece by piece is the text that json makes of the whole."""

import json
from typing import Any

import numpy as np
import pytest

from rlcorr_cli.show.forms.texts import json_pieces

RECORDS: list[list[dict[str, Any]]] = [
    [],
    [{"key": {"step": 0}, "metrics": {"kl": 0.1, "k3": None, "big": 1e300}, "says": 'é\n"x"'}],
    [{"key": {}, "value": None, "n": 3}, {"key": {"a\n": "b", "c": True}, "value": 1e-9, "n": 0}],
]


@pytest.mark.parametrize("records", RECORDS, ids=["none", "one", "two"])
def test_pieces_are_the_indented_text(records: list[dict[str, Any]]) -> None:
    document = {"notes": ['\n  "groups": []', "x"], "groups": [], "last": {"a": [1, {"b": 2}]}}
    whole = json.dumps({**document, "groups": records}, indent=2, ensure_ascii=True)
    assert "".join(json_pieces(document, "groups", records)) == whole + "\n"


def test_what_comes_last_stands_in_one_line() -> None:
    text = "".join(json_pieces({"groups": [], "notes": []}, "groups", RECORDS[1], {"pictures": {"a": [1, 2]}}))
    assert text.endswith('\n  "pictures": {"a":[1,2]}\n}\n')
    assert json.loads(text) == {"groups": RECORDS[1], "notes": [], "pictures": {"a": [1, 2]}}


def test_infinity_is_no_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(json_pieces({"groups": []}, "groups", [{"metrics": {"kl": float("inf")}}]))


def test_numbers_are_written_as_python_writes_them() -> None:
    edges = [0.0, -0.0, 1e-4, 9.999e-5, -1e-5, 5e-324, 1e15, 9999999999999998.0, 1e16, 1.7976931348623157e308]
    drawn = np.random.default_rng(12).integers(0, 1 << 63, 4000, np.uint64).view(np.float64)
    values = [*edges, *drawn[np.isfinite(drawn)].tolist(), *np.random.default_rng(1).normal(size=1000).tolist(), None]
    document = {"groups": [{"metrics": {f"100 %{place}": value for place, value in enumerate(values)}}]}
    assert "".join(json_pieces({"groups": []}, "groups", document["groups"])) == json.dumps(document, indent=2) + "\n"
