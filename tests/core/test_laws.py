"""One law suite for everything that adds: identity, associativity, commutativity, operands left alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import dumps, observed
from oracle import Row

from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.histogram import Histogram
from rlcorr_cli.totals.measured import Measured
from rlcorr_cli.totals.row_keys import RowSketch
from rlcorr_cli.totals.summary import Layout, Replicates, Summary
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail
from rlcorr_cli.totals.whole import Whole

LAYOUT = Layout(("a", "b"), ("low",), ("high",), ("log", "log2"), ("h",), ("t",))
PLANS = (
    Plan(),
    Plan(weighting=Weighting("token", Bounds(None, 1.02))),
    Plan(
        weighting=Weighting("sequence", Bounds(0.9, 1.1), "zero"),
        rejections=(Rejection("ratio", "token", Bounds(0.95, 1.05)),),
    ),
    Plan(rejections=(Rejection("k3", "seq_mean", Bounds(None, 0.001)), veto(0.9))),
)

whole = st.integers(-(2**40), 2**40).map(float)
logs = st.one_of(st.just((-np.inf, 0.0)), st.tuples(st.floats(-5000, 5000), st.floats(0.5, 1e6)))
histograms = st.dictionaries(st.integers(0, 65535), st.integers(1, 2**40), max_size=6).map(
    lambda counts: Histogram(
        np.array(sorted(counts), np.uint16), np.array([counts[k] for k in sorted(counts)], np.int64)
    )
)

log_weights = st.lists(st.integers(-50, 50).map(float), max_size=12)
tails = log_weights.map(lambda values: Tail.of(np.array(values), GROUP_SIZE))
short_tails = log_weights.map(lambda values: Tail.of(np.array(values), 4))
sketches = st.lists(st.integers(0, 9), max_size=12).map(lambda keys: RowSketch.of(np.array(keys, np.uint64)))


@st.composite
def summaries(draw: st.DrawFn) -> Summary:
    """Totals in whole numbers, so that sums of them are exact in any order."""
    pairs = [draw(logs), draw(logs)]
    return Summary(
        LAYOUT,
        np.array([draw(whole), draw(whole)]),
        np.array([draw(whole)]),
        np.array([draw(whole)]),
        np.array([peak for peak, _ in pairs]),
        np.array([rest for _, rest in pairs]),
        (draw(histograms),),
        (draw(tails),),
    )


@st.composite
def replicates(draw: st.DrawFn) -> Replicates:
    sums = np.array(draw(st.lists(whole, min_size=6, max_size=6))).reshape(2, 3)
    rests = np.array(draw(st.lists(st.floats(0.5, 1e6), min_size=3, max_size=3))).reshape(1, 3)
    return Replicates(("a", "b"), sums, ("log",), np.array([draw(st.floats(-5000, 5000))]), rests)


@st.composite
def measured(draw: st.DrawFn) -> Measured:
    leaves = draw(st.dictionaries(st.tuples(st.integers(0, 2)), summaries(), max_size=3))
    rows = draw(st.dictionaries(st.sampled_from(["a.parquet", "b.parquet"]), st.integers(1, 100)))
    return Measured(leaves, draw(st.one_of(st.none(), replicates())), rows=rows, whole=draw(st.none() | wholes))


wholes = st.builds(lambda a, b, rows: Whole({"token": a, "sequence": b}, rows), short_tails, short_tails, sketches)
ADDERS = [histograms, short_tails, sketches, wholes, summaries(), replicates(), measured()]
IDS = ["Histogram", "Tail", "RowSketch", "Whole", "Summary", "Replicates", "Measured"]


def plain(value: object) -> object:
    """Everything inside as JSON-able values, to compare exactly."""
    if isinstance(value, Summary):
        arrays = value.sums, value.mins, value.maxs, value.log_peaks, value.log_rests
        return [value.layout, *map(plain, (*arrays, *value.histograms, *value.tails))]
    if isinstance(value, Histogram):
        return [value.buckets.tolist(), value.counts.tolist()]
    if isinstance(value, Tail):
        return [sorted(value.largest.tolist()), value.n, value.size]
    if isinstance(value, RowSketch):
        return [value.keys.tolist(), value.counts.tolist()]
    if isinstance(value, Whole):
        return [{name: plain(tail) for name, tail in value.tails.items()}, plain(value.rows)]
    if isinstance(value, Replicates):
        return [value.names, value.logs, *map(plain, (value.sums, value.log_peaks, value.log_rests))]
    if isinstance(value, Measured):
        return [
            {k: plain(v) for k, v in sorted(value.leaves.items())},
            plain(value.replicates),
            dict(value.rows),
            plain(value.whole),
        ]
    return value.tolist() if isinstance(value, np.ndarray) else value


def assert_equal(a: object, b: object) -> None:
    """Exactly, but for the logs' rests: they are the only numbers here that round."""
    if isinstance(a, Measured) and isinstance(b, Measured):
        assert a.leaves.keys() == b.leaves.keys()
        for key in a.leaves:
            assert_equal(a.leaves[key], b.leaves[key])
        assert_equal(a.replicates, b.replicates)
        assert a.rows == b.rows
        assert plain(a.whole) == plain(b.whole)
    elif isinstance(a, Summary | Replicates) and isinstance(b, type(a)):
        np.testing.assert_allclose(a.log_rests, b.log_rests, rtol=1e-12)
        assert plain(a) == plain(replace(b, log_rests=a.log_rests))
    else:
        assert plain(a) == plain(b)


@pytest.mark.parametrize("adders", ADDERS, ids=IDS)
@given(data=st.data())
def test_addition_is_associative(adders: st.SearchStrategy, data: st.DataObject) -> None:
    a, b, c = (data.draw(adders) for _ in range(3))
    assert_equal((a + b) + c, a + (b + c))


@pytest.mark.parametrize("adders", ADDERS, ids=IDS)
@given(data=st.data())
def test_addition_is_commutative(adders: st.SearchStrategy, data: st.DataObject) -> None:
    a, b = data.draw(adders), data.draw(adders)
    assert plain(a + b) == plain(b + a)


@pytest.mark.parametrize("adders", ADDERS, ids=IDS)
@given(data=st.data())
def test_addition_leaves_its_operands_alone(adders: st.SearchStrategy, data: st.DataObject) -> None:
    a, b = data.draw(adders), data.draw(adders)
    before = repr(plain(a)), repr(plain(b))
    a + b
    a + a
    assert (repr(plain(a)), repr(plain(b))) == before


@pytest.mark.parametrize(
    ("adders", "empty"),
    [
        (histograms, Histogram.empty()),
        (short_tails, Tail.empty(4)),
        (summaries(), Summary.empty(LAYOUT)),
        (measured(), Measured()),
    ],
    ids=["Histogram", "Tail", "Summary", "Measured"],
)
@given(data=st.data())
def test_empty_is_the_identity_on_both_sides(adders: st.SearchStrategy, empty: object, data: st.DataObject) -> None:
    a = data.draw(adders)
    assert plain(a + empty) == plain(a)
    assert plain(empty + a) == plain(a)
    assert plain(empty + empty) == plain(empty)


@given(a=summaries(), b=summaries())
def test_logs_add_as_exponentials(a: Summary, b: Summary) -> None:
    def log(s: Summary) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return s.log_peaks + np.log(s.log_rests)

    np.testing.assert_allclose(log(a + b), np.logaddexp(log(a), log(b)), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("end", ["sums", "mins", "maxs", "logs", "histograms", "tails"])
def test_different_layouts_do_not_add(end: str) -> None:
    other = replace(LAYOUT, **{end: (*getattr(LAYOUT, end)[:-1], "other")})
    with pytest.raises(ValueError, match="do not add"):
        Summary.empty(LAYOUT) + Summary.empty(other)


@given(a=replicates(), b=replicates())
def test_replicates_of_different_names_do_not_add(a: Replicates, b: Replicates) -> None:
    with pytest.raises(ValueError, match="do not add"):
        a + replace(b, names=("a", "c"))
    with pytest.raises(ValueError, match="do not add"):
        a + replace(b, logs=("other",))


@given(a=summaries())
def test_summary_survives_json_exactly(a: Summary) -> None:
    assert plain(Summary.from_dict(json.loads(json.dumps(a.to_dict())))) == plain(a)


@pytest.mark.parametrize("plan", PLANS, ids=["diagnostics", "token", "zero_and_token", "two_rejections"])
@given(rows=dumps())
def test_observed_summary_survives_json_exactly(plan: Plan, rows: list[Row]) -> None:
    for summary in observed(rows, plan).groups.values():
        back = Summary.from_dict(json.loads(json.dumps(summary.to_dict(), allow_nan=False)))
        assert plain(back) == plain(summary)


@pytest.mark.parametrize("grouped", [False, True], ids=["whole", "grouped"])
@pytest.mark.parametrize("plan", PLANS, ids=["diagnostics", "token", "zero_and_token", "two_rejections"])
@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
def test_observing_all_equals_observing_parts_and_adding(plan: Plan, grouped: bool, rows: list[Row], cut: int) -> None:
    for row in () if grouped else rows:
        row.batch = 0
    parts = [observed(part, plan, seed=1) for part in (rows[:cut], rows[cut:]) if part]
    together = sum((Measured(p.groups, p.replicates, whole=p.whole) for p in parts), start=Measured())
    everything = observed(rows, plan, seed=1)
    assert together.leaves.keys() == everything.groups.keys()
    for key, expected in everything.groups.items():
        assert_same_totals(together.leaves[key], expected)
    assert plain(together.whole) == plain(everything.whole)
    if everything.replicates is None:
        assert together.replicates is None
    else:
        assert together.replicates is not None
        np.testing.assert_allclose(together.replicates.sums, everything.replicates.sums, rtol=1e-9, atol=1e-9)


def assert_same_totals(found: Summary, expected: Summary) -> None:
    """To rounding: the last digit of an exponential depends on a token's place in its batch."""
    assert found.layout == expected.layout
    assert found.histograms == expected.histograms
    assert found.tails == expected.tails
    np.testing.assert_allclose(found.mins, expected.mins, rtol=1e-14)
    np.testing.assert_allclose(found.maxs, expected.maxs, rtol=1e-14)
    np.testing.assert_array_equal(found.log_peaks, expected.log_peaks)
    np.testing.assert_allclose(found.log_rests, expected.log_rests, rtol=1e-9)
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-9, atol=1e-11)
