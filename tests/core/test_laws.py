"""One law suite for everything that adds: identity, associativity, commutativity, operands left alone, JSON exact.

A class with `__add__` needs a row of LAWS: how to draw one, and what adds nothing to it.  Drawing takes most of the
time, so what is drawn once is held against every law, and every strategy is built once.
"""

import ast
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made import CPU, batch, bounds, dumps, edges, observed, observed_under, simulated
from oracle import Row

import rlcorr_cli
from rlcorr_cli.core.observe import Observation, observe
from rlcorr_cli.errors import DataError
from rlcorr_cli.pipeline.diagnose import COUNTS as GAP_COUNTS
from rlcorr_cli.pipeline.diagnose import GroupGaps
from rlcorr_cli.places import Place
from rlcorr_cli.plans.objective import Objective, ObjectiveName
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.quality.bad_rows import PROBLEMS, BadRowCounts, FirstBadRow
from rlcorr_cli.report.inspected import Tally, Values
from rlcorr_cli.totals.binned import AXES, GRIDS, HISTOGRAMS, SUMS, BinnedTotals
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, Grid, Octaves
from rlcorr_cli.totals.block import Block, Layout
from rlcorr_cli.totals.budget_search import binned_values
from rlcorr_cli.totals.gap import LEVEL_SHAPES, GapTotals, Levels, Vocabulary, WorstRow, WorstRows
from rlcorr_cli.totals.histogram import Histogram
from rlcorr_cli.totals.measured import Measured
from rlcorr_cli.totals.packed import pack, unpack
from rlcorr_cli.totals.provenance import Provenance, ShardId
from rlcorr_cli.totals.row_keys import DistinctKeys, RowSketch
from rlcorr_cli.totals.summary import COUNTS, Replicates, Summary, total
from rlcorr_cli.totals.sweep import UnitTotals
from rlcorr_cli.totals.tail import GROUP_SIZE, WHOLE_SIZE, Tail
from rlcorr_cli.totals.whole import RATIO_BUCKETS, RATIO_SUMS, Whole

OCTAVES = Octaves(-1, 2, 2)
LAYOUT = Layout(sums=("a", "b"), mins=("low",), maxs=("high",), logs=("log", "log2"), histograms=("h",), tails=("t",))
LAYOUTS = {"diagnostics.decoupled": LAYOUT, "plan.0": LAYOUT}
PLANS = (
    Plan(),
    Plan(weighting=Weighting("token", Bounds(None, 1.02))),
    Plan(
        weighting=Weighting("sequence", Bounds(0.9, 1.1), "zero"),
        rejections=(Rejection("ratio", "token", Bounds(0.95, 1.05)),),
    ),
    Plan(rejections=(Rejection("k3", "seq_mean", Bounds(None, 0.001)), veto(0.9))),
)

PROVENANCE = Provenance(
    plans=Provenance.records(PLANS[2]), settings={"extreme_ratio": 2.0}, columns={"step": "iteration"}, seed=3
)
_paths = (f"{number}.parquet" for number in itertools.count())  # no two cover the same rows
keys = st.sampled_from([None, 0, 1.5, -np.inf, True, "math", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, UTC)])

whole = st.integers(-(2**40), 2**40).map(float)
logs = st.one_of(st.just((-np.inf, 0.0)), st.tuples(st.floats(-5000, 5000), st.floats(0.5, 1e6)))
histograms = st.dictionaries(st.integers(0, 65535), st.integers(1, 2**40), max_size=6).map(
    lambda counts: Histogram(
        np.array(sorted(counts), np.uint16), np.array([counts[k] for k in sorted(counts)], np.int64)
    )
)

log_weights = st.lists(st.integers(-50, 50), max_size=12).map(lambda values: np.array(values, np.float64))
tails = log_weights.map(lambda values: Tail.of(values, GROUP_SIZE))
short_tails = log_weights.map(lambda values: Tail.of(values, 4))
distinct = st.lists(st.integers(0, 19), max_size=12).map(lambda keys: DistinctKeys.of(np.array(keys, np.uint64), 6))
sketches = st.lists(st.integers(0, 9), max_size=12).map(lambda keys: RowSketch.of(np.array(keys, np.uint64)))


@st.composite
def drawn_block(draw: st.DrawFn) -> Block:
    """Totals in whole numbers, so that sums of them are exact in any order."""
    pairs = [draw(logs), draw(logs)]
    return Block(
        layout=LAYOUT,
        sums=np.array([draw(whole), draw(whole)]),
        mins=np.array([draw(whole)]),
        maxs=np.array([draw(whole)]),
        log_peaks=np.array([peak for peak, _ in pairs]),
        log_rests=np.array([rest for _, rest in pairs]),
        histograms=(draw(histograms),),
        tails=(draw(tails),),
    )


blocks = drawn_block()
counts = st.integers(0, 2**40)
summaries = st.builds(
    lambda counts, blocks: Summary(dict(zip(COUNTS, counts, strict=True)), dict(zip(LAYOUTS, blocks, strict=True))),
    st.tuples(*[counts for _ in COUNTS]),
    st.tuples(*[blocks for _ in LAYOUTS]),
)
replicates = st.builds(
    lambda sums, peak, rests, clusters: Replicates(
        names=("a", "b"),
        sums=np.array(sums).reshape(2, 3),
        logs=("log",),
        log_peaks=np.array([peak]),
        log_rests=np.array([rests]),
        clusters=DistinctKeys.of(np.array(clusters, np.uint64), 4),
    ),
    st.lists(whole, min_size=6, max_size=6),
    st.floats(-5000, 5000),
    st.lists(st.floats(0.5, 1e6), min_size=3, max_size=3),
    st.lists(st.integers(1, 12), max_size=8),
)
group_replicates = st.dictionaries(st.tuples(keys), st.fixed_dictionaries({"decoupled": replicates}), max_size=3)
generators = st.integers(0, 2**32).map(np.random.default_rng)
chances = {n: st.sampled_from([True, *[False] * n]) for n in (3, 5)}
"""n -> true in one of n + 1 cases."""


@st.composite
def drawn_pictures(draw: st.DrawFn) -> BinnedTotals:
    """Whole numbers in a few bins, or nothing at all."""
    if draw(chances[3]):
        return BinnedTotals()
    rng = draw(generators)

    def spread(axis: str) -> Binned[Octaves]:
        sums = {name: rng.integers(-(2**40), 2**40, AXES[axis].n).astype(float) for name in SUMS[axis]}
        return Binned.of_table(AXES[axis], rng.poisson(0.5, AXES[axis].n), sums)

    return BinnedTotals(
        {name: Binned.of_table(grid, rng.poisson(0.01, grid.n)) for name, grid in GRIDS.items()},
        {axis: spread(axis) for axis in AXES},
        {name: draw(histograms) for name in HISTOGRAMS},
    )


pictures = drawn_pictures()
whole_tails = log_weights.map(lambda values: Tail.of(values, WHOLE_SIZE))
wholes = st.builds(
    lambda a, b, rows: Whole(
        tails={"token": a, "sequence": b},
        rows=rows,
        ratios=np.full((RATIO_BUCKETS, len(RATIO_SUMS)), float(rows.n_rows)),
    ),
    *(whole_tails, whole_tails, sketches),
)


def binned_totals(binning: Any = OCTAVES) -> st.SearchStrategy[Binned[Any]]:
    """Sums of whole numbers, so that they are exact."""

    def of(values: list[tuple[int, float, float]]) -> Binned[Any]:
        bins, *sums = zip(*values, strict=True) if values else ((), (), ())
        return Binned.of_values(binning, np.array(bins, np.uint16), dict(zip("ab", map(np.array, sums), strict=True)))

    return st.lists(st.tuples(st.integers(0, OCTAVES.n - 1), whole, whole), max_size=8).map(of)


def no_values(binning: Any) -> Binned[Any]:
    return Binned.of_values(binning, np.zeros(0, np.uint16), {"a": np.zeros(0), "b": np.zeros(0)})


unit_totals = st.builds(
    lambda moving, n, a, b: UnitTotals(moving, n, {"a": a, "b": b}, n + 1),
    binned_totals(FLOAT_BITS),
    st.integers(0, 99),
    whole,
    whole,
)


bad_row_counts = st.builds(
    lambda rows, n_rows: BadRowCounts(
        {name: n for name, (n, _) in rows.items()},
        {name: FirstBadRow(Place("a.parquet", "row", first), name) for name, (_, first) in rows.items()},
        n_rows,
    ),
    st.dictionaries(
        st.sampled_from([problem.name for problem in PROBLEMS]), st.tuples(st.integers(1, 99), st.integers(0, 999))
    ),
    st.integers(0, 99),
)
values = st.lists(st.integers(-(2**40), 0).map(float), min_size=1, max_size=8).map(
    lambda xs: Values(n=len(xs), min=min(xs), max=max(xs), total=sum(xs), zeros=xs.count(0.0))
)
tallies = st.builds(
    Tally,
    st.integers(0, 9),
    st.integers(0, 9),
    st.lists(st.integers(1, 9)).map(Counter),
    st.dictionaries(st.sampled_from(["rollout", "train", "current"]), values),
)


def drawn_arrays(value: Any, rng: np.random.Generator) -> Any:
    """The same with whole numbers in its arrays, most of them 0."""
    arrays = {part.name: getattr(value, part.name) for part in fields(value)}
    return replace(
        value,
        **{
            name: rng.integers(0, 2**20, array.shape) * (rng.random(array.shape) < 0.05) * 1.0
            for name, array in arrays.items()
            if isinstance(array, np.ndarray)
        },
    )


NO_VOCABULARY = Vocabulary(by_id=np.zeros((2, 3, 2)))
vocabularies = generators.map(lambda rng: drawn_arrays(NO_VOCABULARY, rng))
worst_rows = st.lists(
    st.builds(
        WorstRow,
        st.integers(0, 3).map(float),
        st.builds(Place, st.sampled_from(["a.parquet", "b.jsonl"]), st.just("row"), st.integers(0, 9)),
        st.sampled_from([None, "x"]),
        st.integers(1, 3),
    ),
    max_size=12,
).map(WorstRows.of)


@st.composite
def drawn_levels(draw: st.DrawFn) -> Levels:
    """Of any keys that go together."""
    if draw(chances[5]):
        return Levels.none(too_many=True)
    column = sorted(draw(level_keys), key=lambda key: (type(key).__name__, str(key)))
    rows, tokens, gap, surprise = (np.zeros((len(column), *shape)) for shape in LEVEL_SHAPES.values())
    empty = Levels(keys=tuple(column), rows=rows, tokens=tokens, gap=gap, surprise=surprise)
    return drawn_arrays(empty, draw(generators))


level_keys = st.lists(st.sampled_from([None, 0, 1.5, "math", "w3"]), unique=True, max_size=4)
levels = drawn_levels()
none = st.none()
gaps = st.builds(
    lambda rng, **parts: replace(drawn_arrays(GapTotals(), rng), **parts),
    generators,
    n_rows=st.integers(0, 99),
    largest_unsure=st.sampled_from([-np.inf, -1.0, -1e-7]),
    columns=st.dictionaries(st.sampled_from(["step", "length"]), levels),
    vocabulary=none | vocabularies,
    odd_rows=worst_rows,
)
group_gaps = st.builds(GroupGaps, st.fixed_dictionaries(dict.fromkeys(GAP_COUNTS, st.integers(0, 99))), gaps)
measured = st.builds(
    lambda stretch, **parts: Measured(
        provenance=PROVENANCE, covered=frozenset({ShardId(next(_paths), stretch)}), **parts
    ),
    none | st.just((0, 3)),
    groups=st.dictionaries(st.tuples(keys, st.integers(0, 2)), summaries, max_size=3),
    replicates=st.dictionaries(st.sampled_from(["decoupled", "bypass"]), replicates),
    group_replicates=none | group_replicates,
    pictures=none | pictures,
    rows=st.dictionaries(st.sampled_from(["a.parquet", "b.parquet"]), st.integers(1, 100)),
    whole=none | wholes,
    gap=none | gaps,
)


@dataclass(frozen=True)
class Law:
    """cases: how to draw one.  empty: the identity of +.  commutes: or the left one's come first."""

    cases: st.SearchStrategy[Any]
    empty: Any
    commutes: bool = True


LAWS = {
    "Histogram": Law(histograms, Histogram.empty()),
    "Block": Law(blocks, Block.empty(LAYOUT)),
    "Summary": Law(summaries, Summary.empty(LAYOUTS)),
    "Replicates": Law(
        replicates,
        Replicates(
            names=("a", "b"),
            sums=np.zeros((2, 3)),
            logs=("log",),
            log_peaks=np.array([-np.inf]),
            log_rests=np.zeros((1, 3)),
            clusters=DistinctKeys.of(np.zeros(0, np.uint64), 4),
        ),
    ),
    "BinnedTotals": Law(pictures, BinnedTotals()),
    "Measured": Law(measured, Measured()),
    "Binned": Law(binned_totals(), no_values(OCTAVES)),
    "UnitTotals": Law(unit_totals, UnitTotals(no_values(FLOAT_BITS), 0, {"a": 0.0, "b": 0.0}, 0)),
    "BadRowCounts": Law(bad_row_counts, BadRowCounts(), commutes=False),
    "Values": Law(values, Values(n=0, min=np.inf, max=-np.inf, total=0.0, zeros=0)),
    "Tally": Law(tallies, Tally()),
    "Tail": Law(short_tails, Tail.empty(4)),
    "DistinctKeys": Law(distinct, DistinctKeys.of(np.zeros(0, np.uint64), 6)),
    "RowSketch": Law(sketches, RowSketch.of(np.zeros(0, np.uint64))),
    "Whole": Law(wholes, Whole(tails={})),
    "WorstRows": Law(worst_rows, WorstRows()),
    "Levels": Law(levels, Levels.none()),
    "Vocabulary": Law(vocabularies, NO_VOCABULARY),
    "GapTotals": Law(gaps, GapTotals()),
    "GroupGaps": Law(group_gaps, GroupGaps()),
}
EACH = pytest.mark.parametrize("name", LAWS)


def plain(value: Any) -> Any:
    """Everything inside as JSON-able values, to compare exactly."""
    if isinstance(value, Tail):  # kept in no order
        return [sorted(value.largest.tolist()), value.n, value.size]
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if callable(value):
        return value()
    if isinstance(value, np.ndarray):
        # Thousands of sums as lists would take most of the time; counts are in whatever type they fit.
        return (value.shape, value.tobytes()) if value.size > 100 and value.dtype == float else value.tolist()
    return value


def assert_equal(a: Any, b: Any) -> None:
    """Exactly, but for the logs' rests: they are the only numbers here that round."""
    assert type(a) is type(b)
    if is_dataclass(a) or isinstance(a, Mapping):
        mine, theirs = (
            {part.name: getattr(value, part.name) for part in fields(value)} if is_dataclass(value) else value
            for value in (a, b)
        )
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name == "log_rests":
                np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-12)
            else:
                assert_equal(mine[name], theirs[name])
    else:
        assert plain(a) == plain(b)


def test_every_class_that_adds_has_a_law() -> None:
    # To parse every module takes a second: those that add, or have a class that a class with a law is a base of.
    adds = re.compile(rf"__r?add__|class [^:]*\W({'|'.join(LAWS)})\b")
    classes = [
        node
        for path in Path(rlcorr_cli.__path__[0]).rglob("*.py")
        if adds.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    adding = {
        node.name
        for node in classes
        if any(isinstance(part, ast.FunctionDef) and part.name in ("__add__", "__radd__") for part in node.body)
    }
    adding |= {node.name for node in classes for base in node.bases if ast.unparse(base).partition("[")[0] in adding}
    assert adding == set(LAWS)


@EACH
@given(data=st.data())
def test_every_law_holds(name: str, data: st.DataObject) -> None:
    law = LAWS[name]
    a, b, c = (data.draw(law.cases) for _ in range(3))
    before = plain(a), plain(b), plain(c)
    addition_leaves_its_operands_alone(a, b)
    addition_is_associative(a, b, c)
    if law.commutes:
        addition_is_commutative(a, b)
    empty_is_the_identity_on_both_sides(a, law.empty)
    if hasattr(law.empty, "from_dict"):
        json_keeps_it_exactly(a, b, law.empty)
    if ".totals." in type(law.empty).__module__:
        packing_keeps_it_exactly(a, b)
    assert (plain(a), plain(b), plain(c)) == before


def addition_leaves_its_operands_alone(a: Any, b: Any) -> None:
    before = plain(a), plain(b)
    a + b
    with suppress(DataError):  # what says which rows it covers does not add to itself
        a + a
    assert (plain(a), plain(b)) == before


def addition_is_associative(a: Any, b: Any, c: Any) -> None:
    assert_equal((a + b) + c, a + (b + c))


def addition_is_commutative(a: Any, b: Any) -> None:
    assert plain(a + b) == plain(b + a)


def empty_is_the_identity_on_both_sides(a: Any, empty: Any) -> None:
    assert plain(a + empty) == plain(a)
    assert plain(empty + a) == plain(a)
    assert plain(empty + empty) == plain(empty)


def json_keeps_it_exactly(*values: Any) -> None:
    for value in values:
        assert plain(value.from_dict(json.loads(json.dumps(value.to_dict(), allow_nan=False)))) == plain(value)


def packing_keeps_it_exactly(*values: Any) -> None:
    for value in values:
        packed = pack(value)
        assert plain(unpack(type(value), packed)) == plain(value)
        assert pack(unpack(type(value), packed)) == packed


@given(parts=st.lists(summaries, max_size=5))
def test_the_total_of_many_is_their_sum(parts: list[Summary]) -> None:
    assert_equal(total(parts, LAYOUTS), sum(parts, start=Summary.empty(LAYOUTS)))


def test_the_total_of_more_than_one_step_is_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcorr_cli.totals.summary.GROUPS_AT_ONCE", 2)
    parts = [next(iter(observed(simulated(5, seed=i), PLANS[2]).groups.values())) for i in range(5)]
    layouts = parts[0].layouts
    together, one_by_one = total(parts, layouts), sum(parts, start=Summary.empty(layouts))
    assert together.counts == one_by_one.counts
    for name, block in together.blocks.items():
        np.testing.assert_allclose(block.sums, one_by_one.blocks[name].sums, rtol=1e-12, atol=1e-12)
        assert plain(block.histograms) == plain(one_by_one.blocks[name].histograms)
        assert plain(block.tails) == plain(one_by_one.blocks[name].tails)


@given(left=bad_row_counts, right=bad_row_counts)
def test_of_two_first_bad_rows_the_left_ones_is_first(left: BadRowCounts, right: BadRowCounts) -> None:
    together = left + right
    assert together.n_rows == left.n_rows + right.n_rows
    for name, where in together.first.items():
        assert where == (left if name in left.first else right).first[name]


numbers = st.lists(st.floats(0, 1e6), max_size=20).map(lambda xs: np.array(xs, np.float64))


@given(a=numbers, b=numbers)
def test_bins_of_all_values_are_those_of_both_parts(a: np.ndarray, b: np.ndarray) -> None:
    together, whole = binned_values(a) + binned_values(b), binned_values(np.concatenate([a, b]))
    assert (together.bins.tolist(), together.counts.tolist()) == (whole.bins.tolist(), whole.counts.tolist())
    np.testing.assert_allclose(together.sums["sum"], whole.sums["sum"], rtol=1e-12)
    assert whole.counts.sum() == len(a) + len(b)


@given(a=numbers)
def test_a_bin_holds_the_values_between_its_ends(a: np.ndarray) -> None:
    near, far = FLOAT_BITS.ends(FLOAT_BITS.bins_of(a))
    assert ((near <= a.astype(np.float32)) & (a.astype(np.float32) < far)).all()


@pytest.mark.parametrize(
    "other",
    [
        Binned.of_values(Octaves(-1, 3, 2), np.zeros(1, np.uint16), {"a": np.ones(1)}),
        Binned.of_values(Grid(0.0, 1.0, 2), np.zeros(1, np.uint16), {"a": np.ones(1)}),
        Binned.of_values(OCTAVES, np.zeros(1, np.uint16), {"b": np.ones(1)}),
        Binned.of_values(OCTAVES, np.zeros(0, np.uint16), {}),
    ],
    ids=["other octaves", "a grid", "another sum", "no sum"],
)
def test_different_bins_do_not_add(other: Binned[Any]) -> None:
    binned: Binned[Any] = Binned.of_values(OCTAVES, np.zeros(1, np.uint16), {"a": np.ones(1)})
    with pytest.raises(ValueError, match="do not add"):
        binned + other
    with pytest.raises(ValueError, match="do not add"):
        other + binned


def test_every_bin_has_a_count_and_sums() -> None:
    for counts, sums in ((np.ones(1, np.int64), {}), (np.ones(2, np.int64), {"a": np.ones(3)})):
        with pytest.raises(ValueError, match="for each bin"):
            Binned(OCTAVES, np.arange(2, dtype=np.uint16), counts, sums)


@pytest.mark.parametrize("binning", [FLOAT_BITS, OCTAVES, GRIDS["probability"]])
def test_totals_over_any_bins_survive_json(binning: Any) -> None:
    binned = Binned.of_values(binning, np.array([2, 0, 2], np.uint16), {"a": np.array([1.5, np.inf, 0.1])})
    assert Binned.from_dict(json.loads(json.dumps(binned.to_dict(), allow_nan=False))) == binned


@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
def test_pictures_of_all_rows_are_those_of_both_parts(rows: list[Row], cut: int) -> None:
    plan = PLANS[2]
    observation = Observation(plans=(plan,), has_current=False, seed=None, pictures=True)

    def drawn(part: list[Row]) -> BinnedTotals:
        made = batch([replace(row, current=None) for row in part])
        return observe(made, observation, CPU, bounds(made, plan)).pictures or BinnedTotals()

    together = sum((drawn(part) for part in (rows[:cut], rows[cut:]) if part), start=BinnedTotals())
    whole = drawn(rows)
    assert plain(together.counts) == plain(whole.counts)
    assert plain(together.histograms) == plain(whole.histograms)
    assert together.spread.keys() == whole.spread.keys()
    for axis, binned in whole.spread.items():
        assert together.spread[axis].bins.tolist() == binned.bins.tolist()
        assert together.spread[axis].counts.tolist() == binned.counts.tolist()
        for name, column in binned.sums.items():
            np.testing.assert_allclose(together.spread[axis].sums[name], column, rtol=1e-9, atol=1e-9)


@given(a=blocks, b=blocks)
def test_logs_add_as_exponentials(a: Block, b: Block) -> None:
    def log(s: Block) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return s.log_peaks + np.log(s.log_rests)

    np.testing.assert_allclose(log(a + b), np.logaddexp(log(a), log(b)), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("end", ["sums", "mins", "maxs", "logs", "histograms", "tails"])
def test_different_layouts_do_not_add(end: str) -> None:
    other = replace(LAYOUT, **{end: (*getattr(LAYOUT, end)[:-1], "other")})
    with pytest.raises(ValueError, match="do not add"):
        Block.empty(LAYOUT) + Block.empty(other)


def test_summaries_of_different_blocks_do_not_add() -> None:
    with pytest.raises(ValueError, match="do not add"):
        Summary.empty(LAYOUTS) + Summary.empty({"plan.0": LAYOUT})
    with pytest.raises(ValueError, match="do not add"):
        Summary.empty({"plan.0": LAYOUT}) + Summary.empty(LAYOUTS)


@given(a=replicates, b=replicates)
def test_replicates_of_different_names_do_not_add(a: Replicates, b: Replicates) -> None:
    with pytest.raises(ValueError, match="do not add"):
        a + replace(b, names=("a", "c"))
    with pytest.raises(ValueError, match="do not add"):
        a + replace(b, logs=("other",))


@given(rows=dumps())
@example(rows=edges())
def test_observed_summary_survives_json_exactly(rows: list[Row]) -> None:
    for summary in observed_under(rows, PLANS).groups.values():
        back = Summary.from_dict(json.loads(json.dumps(summary.to_dict(), allow_nan=False)))
        assert plain(back) == plain(summary)


@pytest.mark.parametrize("grouped", [False, True], ids=["whole", "grouped"])
@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
@example(rows=edges(), cut=3)
def test_observing_all_equals_observing_parts_and_adding(grouped: bool, rows: list[Row], cut: int) -> None:
    for row in () if grouped else rows:
        row.batch = 0
    parts = [observed_under(part, PLANS, seed=1) for part in (rows[:cut], rows[cut:]) if part]
    together = sum(
        (Measured(provenance=PROVENANCE, groups=p.groups, replicates=p.replicates, whole=p.whole) for p in parts),
        start=Measured(),
    )
    everything = observed_under(rows, PLANS, seed=1)
    assert together.groups.keys() == everything.groups.keys()
    for key, expected in everything.groups.items():
        assert_same_totals(together.groups[key], expected)
    assert plain(together.whole) == plain(everything.whole)
    assert together.replicates.keys() == everything.replicates.keys()
    for mode, replicates in everything.replicates.items():
        np.testing.assert_allclose(together.replicates[mode].sums, replicates.sums, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["ppo", "gspo"])
@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
@example(rows=edges(), cut=3)
def test_an_objective_of_all_rows_is_that_of_both_parts(name: ObjectiveName, rows: list[Row], cut: int) -> None:
    objectives = {plan: Objective.of(plan, name) for plan in PLANS}
    observation = Observation(plans=PLANS, seed=None, objectives=objectives)

    def totals(part: list[Row]) -> Measured:
        seen = observe(batch([replace(row, current=None) for row in part]), observation, CPU)
        return Measured(provenance=PROVENANCE, groups=seen.groups, whole=seen.whole)

    together = sum((totals(part) for part in (rows[:cut], rows[cut:]) if part), start=Measured())
    whole = totals(rows)
    assert together.groups.keys() == whole.groups.keys()
    for key, expected in whole.groups.items():
        assert_same_totals(together.groups[key], expected)


def assert_same_totals(found: Summary, expected: Summary) -> None:
    """To rounding: the last digit of an exponential depends on a token's place in its batch."""
    assert found.counts == expected.counts
    assert found.blocks.keys() == expected.blocks.keys()
    for name, block in expected.blocks.items():
        assert_same_block(found.blocks[name], block)


def assert_same_block(found: Block, expected: Block) -> None:
    assert found.layout == expected.layout
    assert found.histograms == expected.histograms
    for name, mine, theirs in zip(found.layout.tails, found.tails, expected.tails, strict=True):
        if name == "objective.mass":  # sums of exponentials; the others are logs as they come
            assert (mine.n, mine.size) == (theirs.n, theirs.size)
            np.testing.assert_allclose(np.sort(mine.largest), np.sort(theirs.largest), rtol=1e-12)
        else:
            assert mine == theirs
    np.testing.assert_allclose(found.mins, expected.mins, rtol=1e-14)
    np.testing.assert_allclose(found.maxs, expected.maxs, rtol=1e-14)
    np.testing.assert_array_equal(found.log_peaks, expected.log_peaks)
    np.testing.assert_allclose(found.log_rests, expected.log_rests, rtol=1e-9)
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-9, atol=1e-11)
