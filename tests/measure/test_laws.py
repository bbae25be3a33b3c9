"""One law suite for everything that adds: identity, associativity, commutativity, operands left alone, files exact.

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
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from made import CPU, batch, bounds, dumps, edges, observed_under
from oracle import Row
from plain import assert_same_totals, plain

import rlcorr_cli
from rlcorr_cli.causes.gap import LEVEL_SHAPES, GapTotals, Levels, Vocabulary, order_of_keys
from rlcorr_cli.errors import DataError
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.places import Place
from rlcorr_cli.plans.objective import ObjectiveBlock, ObjectiveName
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.reading.bad_rows import PROBLEMS, BadRowCounts, FirstBadRow
from rlcorr_cli.results.inspected import DumpCounts, Values
from rlcorr_cli.totals.bins import (
    AXES,
    FLOAT_BITS,
    GRIDS,
    HISTOGRAMS,
    SUMS,
    Binned,
    BinnedTotals,
    Grid,
    Histogram,
    Octaves,
)
from rlcorr_cli.totals.earlier_readings import binned_values
from rlcorr_cli.totals.measured import Measured, WholeDump
from rlcorr_cli.totals.packed import pack, unpack
from rlcorr_cli.totals.provenance import Provenance, ShardId
from rlcorr_cli.totals.row_keys import DistinctKeys, GroupRows, KeySample
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample, sample_of
from rlcorr_cli.totals.sweep import UnitTotals
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail
from rlcorr_cli.totals.totals import MOST_LISTED, Merge, Replicates, Sum, Table, Totals

OCTAVES = Octaves(-1, 2, 2)
NAMES: dict[Merge, tuple[str, ...]] = {"sum": ("a", "b"), "min": ("low",), "max": ("high",), "log_sum_exp": ("c", "d")}
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
    plans=Provenance.by_id(PLANS[2]), settings={"extreme_ratio": 2.0}, columns={"step": "iteration"}, seed=3
)
_paths = (f"{number}.parquet" for number in itertools.count())  # no two cover the same rows
keys = st.sampled_from([None, 0, 1.5, -np.inf, True, "math", "2026-01-02"])

whole = st.integers(-(2**40), 2**40).map(float)
histograms = st.dictionaries(st.integers(0, 65535), st.integers(1, 2**40), max_size=6).map(
    lambda counts: Histogram(
        np.array(sorted(counts), np.uint16), np.array([counts[k] for k in sorted(counts)], np.int64)
    )
)

log_weights = st.lists(st.integers(-50, 50), max_size=12).map(lambda values: np.array(values, np.float64))
short_tails = log_weights.map(lambda values: Tail.of([values], 4))
distinct = st.lists(st.integers(0, 19), max_size=12).map(lambda keys: DistinctKeys.of(np.array(keys, np.uint64), 6))
sketches = st.lists(st.integers(0, 9), max_size=12).map(lambda keys: KeySample.of(np.array(keys, np.uint64)))


def rows_of_groups(rows: list[tuple[int, bool]]) -> GroupRows:
    """Of rows, each with its group and whether it stays."""
    keys, stay = np.array([key for key, _ in rows], np.uint64), np.array([stays for _, stays in rows], np.int64)
    return GroupRows.of(keys, np.ones(len(rows), np.int64), stay)


groups_of_rows = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12).map(rows_of_groups)


chances = {n: st.sampled_from([True, *[False] * n]) for n in (3, 5)}
"""n -> true in one of n + 1 cases."""
generators = st.integers(0, 2**32).map(np.random.default_rng)
group_keys = st.lists(st.tuples(keys, st.integers(0, 2)), unique=True, max_size=3)


def drawn_lists(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Of n groups' values, and of those that are kept, which are all of some groups'."""
    every = [rng.integers(-9, 9, size) * 1.0 for size in rng.integers(0, 7, n)]
    kept = [values if rng.random() < 0.5 else values[values > 0] for values in every]
    loses = [len(some) < len(values) for some, values in zip(kept, every, strict=True)]
    histograms, tails = (
        {
            "x": tuple(map(of, every)),
            "kept.x": tuple(of(some) if less else None for some, less in zip(kept, loses, strict=True)),
        }
        for of in (lambda values: Histogram.counting([values]), lambda values: Tail.of([values], 4))
    )
    return {"histograms": histograms, "tails": tails, "shared": {"kept.x": "x"}}


def unlisted(of: Totals) -> Totals:
    """The same as of a total that once had too many groups."""
    return replace(of, histograms=dict.fromkeys(of.histograms), tails=dict.fromkeys(of.tails))


@st.composite
def drawn_totals(draw: st.DrawFn) -> Totals:
    """Whole numbers, so that sums of them are exact in any order; logs from -5000 to 5000, or of nothing."""
    in_order, rng = draw(group_keys), draw(generators)
    n = len(in_order)
    columns = {merge: {name: rng.integers(-(2**40), 2**40, n) * 1.0 for name in NAMES[merge]} for merge in NAMES}
    columns["log_sum_exp"] = {
        name: np.where(rng.random(n) < 0.2, -np.inf, rng.uniform(-5000, 5000, n)) for name in NAMES["log_sum_exp"]
    }
    made = replace(Totals.of_rows(in_order, np.arange(n), columns), **drawn_lists(rng, n))
    return unlisted(made) if draw(chances[5]) else made


totals = drawn_totals()
NOTHING = replace(
    Totals.of_rows((), np.zeros(0, np.int64), {merge: dict.fromkeys(NAMES[merge], np.zeros(0)) for merge in NAMES}),
    **drawn_lists(np.random.default_rng(0), 0),
)
replicates = st.builds(
    lambda rng, clusters: Replicates(
        sums=Table(("a", "b"), rng.integers(-(2**40), 2**40, (2, 3)) * 1.0),
        logs=Table(("log",), rng.uniform(-5000, 5000, (1, 3))),
        clusters=DistinctKeys.of(np.array(clusters, np.uint64), 4),
    ),
    generators,
    st.lists(st.integers(1, 12), max_size=8),
)
group_replicates = st.dictionaries(st.tuples(keys), st.fixed_dictionaries({"decoupled": replicates}), max_size=3)


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
whole_tails = log_weights.map(lambda values: Tail.of([values], WHOLE_SIZE))
wholes = st.builds(
    lambda a, b, rows: WholeDump(
        tails={"token": a, "sequence": b},
        rows=rows,
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
        rows={name: n for name, (n, _) in rows.items()},
        first={name: FirstBadRow(Place("a.parquet", "row", first), name) for name, (_, first) in rows.items()},
        cleared=n_rows,
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
    DumpCounts,
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


@st.composite
def drawn_levels(draw: st.DrawFn) -> Levels:
    """Of any keys that go together."""
    if draw(chances[5]):
        return Levels.none(too_many=True)
    column = sorted(draw(level_keys), key=order_of_keys)
    tables = {name: np.zeros((len(column), *shape)) for name, shape in LEVEL_SHAPES.items()}
    empty = Levels(keys=tuple(column), **tables)
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
)


@st.composite
def drawn_samples(draw: st.DrawFn) -> RowSample:
    """Of up to six rows among many of a dump, most of which are left out as soon as there are some of them."""
    n_rows, rng = draw(st.integers(0, 6)), draw(generators)
    n_valid, n_masked, n_name = (rng.integers(low, 4, n_rows) for low in (1, 0, 0))
    n_tokens, token = n_valid + n_masked, rng.permutation(int((n_valid + n_masked).sum()))
    rows = np.repeat(np.arange(n_rows), n_tokens)
    valid = np.concatenate([np.arange(n) < n_row for n, n_row in zip(n_tokens, n_valid, strict=True)] or [[]])
    has_worker, has_ids = draw(chances[5]), draw(chances[5])
    sample = RowSample(
        most=8,
        keys=rng.integers(1, 1 << 62, n_rows, np.uint64) << rng.integers(0, 3, n_rows).astype(np.uint64),
        n_valid=n_valid,
        n_tokens=n_tokens,
        ids=rng.integers(0, 3, n_rows, np.uint64),
        prompts=rng.integers(0, 3, n_rows, np.uint64),
        advantages=rng.integers(0, 3, n_rows).astype(np.float64),
        n_name=n_name,
        names=np.repeat(rng.integers(97, 99, n_rows), n_name).astype(np.uint8),
        files=rng.integers(0, 2, n_rows),
        paths=tuple(draw(st.permutations(["a.parquet", "b.parquet"]))),
        units=("row", "row"),
        numbers=rng.integers(0, 9, n_rows),
        starts=np.zeros(n_rows, np.int64),
        levels={"worker": ColumnOfKeys.of(rng.integers(0, 3, n_rows), ["w0", None, 2])} if has_worker else {},
        groups={"step": ColumnOfKeys.of(rng.integers(0, 2, n_rows), [0, 1])},
        rollout=-rng.random(int(n_valid.sum()), np.float32),
        train=-rng.random(int(n_valid.sum()), np.float32),
        valid=None if has_ids and not n_masked.any() else valid.astype(np.bool_),
        token_ids=token + rows if has_ids else None,
    )
    return sample_of([sample])


samples_of_rows = drawn_samples()
measured = st.builds(
    lambda stretch, **parts: Measured(
        provenance=PROVENANCE, covered=frozenset({ShardId(next(_paths), stretch)}), **parts
    ),
    none | st.just((0, 3)),
    totals=none | totals,
    replicates=st.dictionaries(st.sampled_from(["decoupled", "bypass"]), replicates),
    group_replicates=none | group_replicates,
    pictures=none | pictures,
    rows=st.dictionaries(st.sampled_from(["a.parquet", "b.parquet"]), st.integers(1, 100)),
    whole=none | wholes,
    sample=none | samples_of_rows,
)


@dataclass(frozen=True)
class Law:
    """cases: how to draw one.  empty: the identity of +.  commutes: or the left one's come first."""

    cases: st.SearchStrategy[Any]
    empty: Any
    commutes: bool = True


LAWS = {
    "Histogram": Law(histograms, Histogram.empty()),
    "Totals": Law(totals, NOTHING),
    "Replicates": Law(
        replicates,
        Replicates(
            sums=Table(("a", "b"), np.zeros((2, 3))),
            logs=Table(("log",), np.full((1, 3), -np.inf)),
            clusters=DistinctKeys.of(np.zeros(0, np.uint64), 4),
        ),
    ),
    "BinnedTotals": Law(pictures, BinnedTotals()),
    "Measured": Law(measured, Measured()),
    "Binned": Law(binned_totals(), no_values(OCTAVES)),
    "UnitTotals": Law(unit_totals, UnitTotals(no_values(FLOAT_BITS), 0, {"a": 0.0, "b": 0.0}, 0)),
    "BadRowCounts": Law(bad_row_counts, BadRowCounts(), commutes=False),
    "Values": Law(values, Values(n=0, min=np.inf, max=-np.inf, total=0.0, zeros=0)),
    "DumpCounts": Law(tallies, DumpCounts()),
    "Tail": Law(short_tails, Tail.empty(4)),
    "DistinctKeys": Law(distinct, DistinctKeys.of(np.zeros(0, np.uint64), 6)),
    "KeySample": Law(sketches, KeySample.of(np.zeros(0, np.uint64))),
    "GroupRows": Law(groups_of_rows, rows_of_groups([])),
    "WholeDump": Law(wholes, WholeDump(tails={})),
    "Levels": Law(levels, Levels.none()),
    "Vocabulary": Law(vocabularies, NO_VOCABULARY),
    "GapTotals": Law(gaps, GapTotals()),
    "RowSample": Law(samples_of_rows, RowSample(most=8)),
}
EACH = pytest.mark.parametrize("name", LAWS)


def assert_equal(a: Any, b: Any) -> None:
    """Exactly, but for logs of sums: they are the only numbers here that round."""
    assert type(a) is type(b)
    if isinstance(a, Totals):
        a, b = (each.at(sorted(range(len(each)), key=lambda at, each=each: str(each.keys[at]))) for each in (a, b))
    if (is_dataclass(a) and not isinstance(a, (Tail, RowSample))) or isinstance(a, Mapping):
        mine, theirs = (
            {part.name: getattr(value, part.name) for part in fields(value)} if is_dataclass(value) else value
            for value in (a, b)
        )
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name in ("log_sum_exp", "logs"):
                assert mine[name].names == theirs[name].names
                np.testing.assert_allclose(mine[name].values, theirs[name].values, rtol=1e-12)
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
        cls: Any = Binned[type(value.binning)] if type(value) is Binned else type(value)
        back = unpack(cls, packed)
        assert plain(back) == plain(value)
        assert pack(back) == packed


@given(parts=st.lists(totals, min_size=1, max_size=5))
def test_a_sum_in_the_making_is_the_sum_of_its_parts(parts: list[Totals]) -> None:
    before, making = plain(parts), Sum()
    for part in parts:
        making.add(part)
    assert_equal(making.totals, sum(parts, start=NOTHING))
    assert len(making.keys) == len(making.totals)
    assert plain(parts) == before


@given(parts=st.lists(totals, min_size=1, max_size=5))
def test_a_sum_that_is_merged_at_every_part_is_the_same(parts: list[Totals]) -> None:
    making = Sum()
    for part in parts:
        making.add(part)
        assert len(making.totals) == len(making.keys)
    assert_equal(making.totals, sum(parts, start=NOTHING))


@given(of=totals)
def test_groups_by_another_key_are_the_sums_of_the_groups_that_have_it(of: Totals) -> None:
    by_last = of.regrouped(lambda key: key[1:])
    parts = [replace(of.at([at]), keys=(key[1:],)) for at, key in enumerate(of.keys)]
    assert_equal(by_last, sum(parts, start=of.at(slice(0, 0))))
    whole = of.whole
    assert whole.keys == ((),)
    assert whole.sum("a").tolist() == [of.sum("a").sum()]
    n_kept = 0 if of.lacks_lists else sum(tail.n for tail in of.tail("kept.x"))
    assert whole.lacks_lists == of.lacks_lists
    assert whole.tail("kept.x", 0).n == whole.histogram("kept.x", 0).n == n_kept


def of_few_values(first: int, n: int) -> Totals:
    """Of n groups, each with a value of its own, which it keeps or not."""
    values, keys = np.arange(first, first + n) * 1.0, [(key,) for key in range(first, first + n)]
    tails = tuple(Tail.of([values[at : at + 1]], 4) for at in range(n))
    kept = tuple(None if at % 2 else Tail.empty(4) for at in range(n))
    numbers = {merge: dict.fromkeys(NAMES[merge], values) for merge in NAMES}
    made = Totals.of_rows(keys, np.arange(n), numbers)
    return replace(made, tails={"x": tails, "kept.x": kept}, shared={"kept.x": "x"})


@pytest.mark.parametrize("n_more", [0, 1])
def test_the_tails_of_2000_groups_are_kept_and_of_more_none_however_they_are_split(n_more: int) -> None:
    parts = [of_few_values(0, 1500), of_few_values(1000, 501), of_few_values(1500, 500 + n_more), of_few_values(7, 3)]
    at_once = parts[0] + parts[2] + (parts[1] + parts[3])
    assert (len(at_once), at_once.lacks_lists) == (MOST_LISTED + n_more, n_more > 0)
    for order in itertools.permutations(parts):
        making, before = Sum(), sum(order[1:], start=order[0])
        for part in order:
            making.add(part)
        assert_equal(before, at_once)
        assert_equal(making.totals, at_once)
    assert at_once.whole.lacks_lists == at_once.at([0, 1]).lacks_lists == (n_more > 0)
    assert at_once.whole.sum("a").tolist() == [sum(part.sum("a").sum() for part in parts)]


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


def test_many_values_are_binned_as_few_are() -> None:
    rng, n = np.random.default_rng(0), FLOAT_BITS.n
    bins, values = rng.integers(0, 900, n).astype(np.uint16), rng.normal(size=n)
    many = Binned.of_values(FLOAT_BITS, bins, {"a": values})
    few = [Binned.of_values(FLOAT_BITS, bins[at::4], {"a": values[at::4]}) for at in range(4)]
    added = few[0] + few[1] + few[2] + few[3]
    assert np.array_equal(many.bins, added.bins)
    assert np.array_equal(many.counts, added.counts)
    np.testing.assert_allclose(many.sums["a"], added.sums["a"], rtol=1e-12, atol=1e-12)


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


@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
def test_pictures_of_all_rows_are_those_of_both_parts(rows: list[Row], cut: int) -> None:
    plan = PLANS[2]
    observation = Observation(plans=(plan,), seed=None, pictures=True)

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


@given(a=totals, b=totals)
def test_logs_add_as_exponentials(a: Totals, b: Totals) -> None:
    found = (a.whole + b.whole).tables["log_sum_exp"].values[:, 0]
    logs = np.concatenate([a.tables["log_sum_exp"].values, b.tables["log_sum_exp"].values], axis=1)
    expected = np.logaddexp.reduce(logs, axis=1, initial=-np.inf)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)


def renamed(of: Totals, kind: str) -> Totals:
    """The same with another name for the last of a kind."""
    if kind in NAMES:
        table = of.tables[kind]  # pyrefly: ignore[bad-index]
        return replace(of, tables={**of.tables, kind: Table((*table.names[:-1], "other"), table.values)})
    lists = dict(getattr(of, kind))
    *_, last = lists
    return replace(of, **{kind: {"other" if name == last else name: each for name, each in lists.items()}})


@pytest.mark.parametrize("kind", [*NAMES, "histograms", "tails"])
def test_totals_of_other_names_do_not_add(kind: str) -> None:
    with pytest.raises(ValueError, match="do not add"):
        NOTHING + renamed(NOTHING, kind)
    with pytest.raises(ValueError, match="do not add"):
        renamed(NOTHING, kind) + NOTHING


def test_tails_of_other_sizes_do_not_add() -> None:
    one = of_few_values(0, 1)
    other = replace(one, tails={name: (Tail.of([np.zeros(1)], 5),) for name in one.tails})
    with pytest.raises(ValueError, match="do not add"):
        one + other


@given(a=totals, b=totals)
def test_numbers_of_other_groups_or_of_one_name_do_not_stand_side_by_side(a: Totals, b: Totals) -> None:
    if a.keys != b.keys:
        with pytest.raises(ValueError, match="side by side"):
            a | b
    with pytest.raises(ValueError, match="have one name"):
        a | a
    both = a | a.named("x")
    assert both.sum("x.a").tolist() == both.sum("a").tolist() == a.sum("a").tolist()


@given(a=replicates, b=replicates)
def test_replicates_of_different_names_do_not_add(a: Replicates, b: Replicates) -> None:
    with pytest.raises(ValueError, match="do not add"):
        a + replace(b, sums=Table(("a", "c"), b.sums.values))
    with pytest.raises(ValueError, match="do not add"):
        a + replace(b, logs=Table(("other",), b.logs.values))


@pytest.mark.parametrize("grouped", [False, True], ids=["whole", "grouped"])
@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
@example(rows=edges(), cut=3)
def test_observing_all_equals_observing_parts_and_adding(grouped: bool, rows: list[Row], cut: int) -> None:
    for row in () if grouped else rows:
        row.batch = 0
    parts = [observed_under(part, PLANS, seed=1) for part in (rows[:cut], rows[cut:]) if part]
    together = sum(
        (Measured(provenance=PROVENANCE, totals=p.totals, replicates=p.replicates, whole=p.whole) for p in parts),
        start=Measured(),
    )
    everything = observed_under(rows, PLANS, seed=1)
    assert_same_totals(together.totals, everything.totals)
    assert plain(together.whole) == plain(everything.whole)
    assert together.replicates.keys() == everything.replicates.keys()
    for mode, replicates in everything.replicates.items():
        found = together.replicates[mode]
        np.testing.assert_allclose(found.sums.values, replicates.sums.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.logs.values, replicates.logs.values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["ppo", "gspo"])
@given(rows=dumps(min_rows=2), cut=st.integers(0, 8))
@example(rows=edges(), cut=3)
def test_an_objective_of_all_rows_is_that_of_both_parts(name: ObjectiveName, rows: list[Row], cut: int) -> None:
    objectives = {plan: ObjectiveBlock(name=name).of(plan) for plan in PLANS}
    observation = Observation(plans=PLANS, seed=None, objectives=objectives)

    def totals(part: list[Row]) -> Measured:
        seen = observe(batch([replace(row, current=None) for row in part]), observation, CPU)
        return Measured(provenance=PROVENANCE, totals=seen.totals, whole=seen.whole)

    together = sum((totals(part) for part in (rows[:cut], rows[cut:]) if part), start=Measured())
    whole = totals(rows)
    assert_same_totals(together.totals, whole.totals)
