"""Rows of the wrong kind anywhere: reading them gives rows or an RlcorrError, and all ways of reading JSON agree."""

import json
from pathlib import Path
from typing import Any

import harness
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from seeds import parquet

from rlcorr_cli.errors import RlcorrError
from rlcorr_cli.reading import jsonl
from rlcorr_cli.reading.jsonl import parsed
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.streams import blocks

POLICIES = ("rollout_log_probs", "old_log_probs")
NUMBERS = st.one_of(
    st.floats(-50, 0),
    st.sampled_from([0, -1, 1, -1.0, 0.0, -0.0, 1e-7, 0.5, 2, 1e300, -1e308, 2**53 + 1, -(2**63), 2**64, 10**400]),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
)
WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["", "-1", "\ud800", "a\x00b", "\ufeff", "é", "NaN", [], {}, [[]], [[-1.0]], {"a": [1]}, [None]]),
)
SEVERAL = st.integers(0, 3)


@st.composite
def lists(draw: st.DrawFn, length: int) -> Any:
    """As a rule log-probs of the length asked for; now and then another thing."""
    kind = draw(st.sampled_from(["good"] * 6 + ["numbers", "mixed", "longer", "wrong"]))
    if kind == "good":
        return draw(st.lists(st.floats(-50, 0), min_size=length, max_size=length))
    if kind == "numbers":
        return draw(st.lists(NUMBERS, min_size=length, max_size=length))
    if kind == "mixed":
        return draw(st.lists(st.one_of(NUMBERS, WRONG), min_size=length, max_size=length))
    return draw(st.lists(NUMBERS, max_size=4)) if kind == "longer" else draw(st.one_of(WRONG, NUMBERS))


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """A row that is nearly right."""
    length = draw(SEVERAL)
    flags = st.lists(st.sampled_from([0, 1, 1, 1.0, True]), min_size=length, max_size=length)
    scalar = st.one_of(NUMBERS, WRONG)
    made = {name: draw(lists(length)) for name in (*POLICIES, "current_log_probs")}
    made["response_mask"] = draw(st.one_of(flags, flags, flags, lists(length)))
    made |= {name: draw(scalar) for name in ("reward", "step", "sample_id")}
    left_out = draw(st.sets(st.sampled_from(sorted(made)), max_size=2)) if draw(SEVERAL) == 0 else set()
    return {name: value for name, value in made.items() if name not in left_out}


DUMPS = st.lists(rows(), min_size=1, max_size=4)


def lines(given: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in given).encode()


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs become files here; every example writes the same ones anew."""
    monkeypatch.setattr(harness, "folder", lambda: tmp_path)


@given(DUMPS)
def test_json_lines_of_any_kind_are_read_or_refused(given: list[dict[str, Any]]) -> None:
    for request in harness.REQUESTS:
        harness.taken("jsonl", lines(given), request)


@given(DUMPS)
def test_compressed_lines_are_taken_as_plain_ones_are(given: list[dict[str, Any]]) -> None:
    plain, packed = (harness.taken(kind, lines(given)) for kind in ("jsonl", "compressed"))
    assert isinstance(plain, RlcorrError) is isinstance(packed, RlcorrError)
    if not isinstance(plain, RlcorrError):
        assert plain == packed


@given(DUMPS)
def test_parquet_of_any_kind_is_read_or_refused(given: list[dict[str, Any]]) -> None:
    try:
        data = parquet(pa.Table.from_pylist(given))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return  # no such Parquet file can be
    for request in harness.REQUESTS:
        harness.taken("parquet", data, request)


@given(DUMPS)
def test_a_good_row_is_read_whatever_comes_with_it(given: list[dict[str, Any]]) -> None:
    """What has no part to play may be of any kind."""
    extra = {f"more {name}": value for row in given for name, value in row.items()}
    good = {name: [-0.5, -1.0] for name in POLICIES}
    assert harness.taken("jsonl", lines([good, good | extra, good])) == (3, 6)


@given(DUMPS, st.sampled_from(harness.REQUESTS))
def test_all_ways_of_reading_lines_give_the_same_rows(
    given: list[dict[str, Any]], request: tuple[ReadRequest, PlanColumns]
) -> None:
    path = harness.folder() / "d.jsonl"
    path.write_bytes(lines(given))
    try:
        dump = harness.opened(path, request)
        schema = jsonl._declared(dump.shards[0].schema, dump.roles)
        found = [line for block in blocks(str(path), None) for line in block.numbered.values()]
        slow, unread = parsed(found, schema, str(path))
    except RlcorrError:
        return
    for quick in (jsonl._typed(found, schema, dump.roles.mask), jsonl._fast(b"".join(found), schema, len(found))):
        if quick is not None and not unread:
            assert as_numbers(quick) == as_numbers(slow)


def as_numbers(table: pa.Table) -> str:
    """Rows as text, in which NaN is itself; a boolean is a number, as it is in a mask."""
    return repr([{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()])


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, int | float) else value
