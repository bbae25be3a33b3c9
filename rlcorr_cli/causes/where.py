"""Where a gap sits: rows that a column names and that stand apart from all others.

A *place* is some levels of a column: a worker, a source, the steps from 7 on, every fourth step, the longest prompts.
Rows are compared by two numbers, each a logarithm, so that no single token decides: y, the mean size of a row's tokens
beside what their surprise gives (totals/gap.py), which all tokens make, and the root mean square of the same, which far
tokens make.  A column is parted in two: of all ways to part its levels in the order of their means, the one whose sides
differ by most standard errors.  So a single level, a range of steps, every nth one and a list of workers are found by
one rule, however many they are.

Columns go together: a version with the step, a lag with the steps at which it is long.  So a place is dropped where it
no longer stands apart within the levels of another one.  Of those that are left the one that holds most of the gap is
named; a prompt only where nothing else is, since steps, sources and workers are made of prompts.
"""

from collections.abc import Mapping, Sequence
from math import exp, log, log10, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.numbers import ratio, ratios
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.gap import RowGaps
from rlcorr_cli.totals.gap import MOST_LEVELS, order_of_keys
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
STEP, LAG, VERSION, PROMPT = "step", "lag", "policy_version", "group_id"
FIRST_NAMED = (LAG, STEP, VERSION)
"""Of columns that part the rows alike the first of these is looked at; they only tell the time, so that of places that
hold as much of the gap another column is named before them."""
MIN_LEVEL_ROWS, MIN_LEVEL_PROMPTS = 4, 2
MIN_Z = 4.0
"""Plus log10 of the levels tried in all columns, which holds the chance of any false one."""
LEAST_Z = 2.0
"""Of each level of a place by itself, where they stand apart together."""
CHANCE = 0.8
"""Of L equal levels the best parting differs by CHANCE sqrt(L) standard errors by chance: half of them, at the mean of
half a normal distribution."""
AT_A_BOUND = 3.0
"""Of all bounds between equal levels the best parts them by so many standard errors by chance."""
MIN_SIZE, MIN_SIZES = 1.5, {"data_source": 2.0, PROMPT: 4.0}
"""A data source and a prompt go with the content, and content with the size of noise."""
MIN_LINE = 3
"""Levels that a line is drawn through."""
LEAST_DEVIATION = 0.05
LEAST_LEFT, LEAST_SIZE_LEFT = 0.05, 0.5
"""A place is asked within the levels of another column where so much of the comparison is left; it stands apart there
where so much of its size (of its logarithm) is."""
AS_MUCH = 0.9
"""Places that hold as much of the gap as the first, but for this, are told by how few tokens they have."""
LEAST_PROMPTS = 0.02
"""Of the tokens: prompts that hold fewer are rows of a few loud prefixes, which every dump has."""
ALL_OF_THEM, BY_CHANCE = 0.95, 1e-4
"""A place that holds so much of some rows, and that not by chance, is what they share."""


@frozen(kw_only=True, eq=False)
class Place:
    """Rows of some levels of a column: at, bool[R].  levels: in order; every: all levels, in order.  size: the factor
    by which their tokens differ more than all others'; z: that, in standard errors.  share: of the gap, what they hold
    above the others'; token_share: of the tokens.  grows: whether the gap grows along all levels, of which these are
    those that are larger than their mean."""

    column: str
    levels: tuple[Any, ...]
    every: tuple[Any, ...]
    at: Mask
    size: float = 1.0
    z: float = 0.0
    share: float = 0.0
    token_share: float = 0.0
    grows: bool = False

    @property
    def since(self) -> Any:
        """The first of some steps, where others come before it and the gap does not grow from the start."""
        is_later = self.column == STEP and self.levels[0] != self.every[0]
        return self.levels[0] if is_later and not self.grows else None


def place_of(sample: RowSample, sums: RowGaps) -> Place | None:
    """The place that holds most of the gap above what its tokens give; of those that hold as much, the smallest."""
    columns, rows = looked_at(sample), _Rows.of(sample, sums)
    prompts = columns.pop(PROMPT, None)
    n_tried = sum(len(column.values) for column in columns.values())
    tried = {name: _place(name, column, rows, n_tried=n_tried, prompts=prompts) for name, column in columns.items()}
    found = {name: place for name, place in tried.items() if place is not None}
    places = [place for name, place in found.items() if not _is_other_place(name, found, columns, rows)]
    if not places and prompts is not None:
        beside_their_step = rows.within(columns.get(STEP))
        place = _place(PROMPT, prompts, beside_their_step, n_tried=n_tried + len(prompts.values))
        places = [place] if place is not None and place.token_share >= LEAST_PROMPTS else []
    most = max((place.share for place in places), default=0.0)

    def order(place: Place) -> tuple[bool, float, bool]:
        return place.share < AS_MUCH * most, round(place.token_share, 2), place.column in FIRST_NAMED

    return min(places, key=order, default=None)


def shared_by(sample: RowSample, at: Mask) -> Place | None:
    """The smallest place that nearly all of some rows stand in, not by chance.

    With a share s of all rows in the place, and 1 - f of these n rows outside, chance is at most e^(-n D), D = f ln(f /
    s) + (1 - f) ln((1 - f) / (1 - s)) (Chernoff).
    """
    columns, n = looked_at(sample) if at.any() else {}, int(at.sum())
    n_tried = sum(len(column.values) for column in columns.values())
    places: list[Place] = []
    for name, column in columns.items():
        order = _ordered(column)
        here, every = (np.bincount(codes, minlength=len(order))[order] for codes in (column.codes[at], column.codes))
        inside = _neighbours(here, every) if _is_ordered(column) else _fewest(here, every)
        found, share = (float(counts[inside].sum() / counts.sum()) for counts in (here, every))
        if name == PROMPT or not found > share or share >= 1:
            continue
        distance = found * log(found / share) + (0.0 if found == 1 else (1 - found) * log((1 - found) / (1 - share)))
        if n_tried**2 * exp(-n * distance) < BY_CHANCE:
            places.append(_named(name, column, order[inside], token_share=share))
    return min(places, key=lambda place: place.token_share, default=None)


def _neighbours(here: Index, every: Index) -> Index:
    """The range of levels with the fewest rows that holds ALL_OF_THEM of `here`; counts in the order of the levels."""
    sums, of_all = np.append(0, np.cumsum(here)), np.append(0, np.cumsum(every))
    lasts = np.searchsorted(sums, sums[:-1] + ALL_OF_THEM * sums[-1])
    firsts = np.flatnonzero(lasts < len(sums))
    size = of_all[lasts[firsts]] - of_all[firsts]
    best = firsts[int(size.argmin())]
    return np.arange(best, lasts[best])


def _fewest(here: Index, every: Index) -> Index:
    """The levels that hold ALL_OF_THEM of `here`, those first of which it makes the largest share."""
    order = np.argsort(-ratios(here.astype(np.float64), every.astype(np.float64)), kind="stable")
    enough = int(np.searchsorted(np.cumsum(here[order]), ALL_OF_THEM * here.sum())) + 1
    return np.sort(order[:enough])


def looked_at(sample: RowSample) -> dict[str, ColumnOfKeys]:
    """The columns of two levels or more that are looked at by level; of those that part the rows alike the first.

    Of numbers there may be more than MOST_LEVELS, for they have an order; not of prompts, whose numbers have none."""
    kept: dict[str, ColumnOfKeys] = {}
    for name in sorted(sample.levels, key=lambda name: (*FIRST_NAMED, name).index(name)):
        column = sample.levels[name].rows(np.arange(sample.n_rows))
        is_short = len(column.values) <= MOST_LEVELS or (name != PROMPT and _is_ordered(column))
        if len(column.values) >= 2 and is_short and not any(_is_same(column, other) for other in kept.values()):
            kept[name] = column
    return kept


def _is_ordered(column: ColumnOfKeys) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in column.values)


def _level_of_each(prompts: ColumnOfKeys, column: ColumnOfKeys) -> Index | None:
    """The code of the level of each prompt; None where some have rows of several."""
    level = np.zeros(len(prompts.values), np.int64)
    level[prompts.codes] = column.codes
    return level if (level[prompts.codes] == column.codes).all() else None


def _is_same(column: ColumnOfKeys, other: ColumnOfKeys) -> bool:
    n = len(column.values)
    return n == len(other.values) and len(np.unique(column.codes * n + other.codes)) == n


def _ordered(column: ColumnOfKeys) -> Index:
    """Its codes in the order of their values."""
    return np.array(sorted(range(len(column.values)), key=lambda code: order_of_keys(column.values[code])), np.int64)


def _named(name: str, column: ColumnOfKeys, codes: Index, **of_place: Any) -> Place:
    order = _ordered(column)
    wanted = set(codes.tolist())
    return Place(
        column=name,
        levels=tuple(column.values[code] for code in order.tolist() if code in wanted),
        every=tuple(column.values[code] for code in order.tolist()),
        at=np.isin(column.codes, codes),
        **of_place,
    )


@frozen(kw_only=True, eq=False)
class _Rows:
    """Of R rows: scores, f64[2, R], y and ln of the root mean square, NaN where a row has none; l2, e2, n, f64[R], sums
    of l^2 and of e^2, and tokens.  gap: the sum of l^2 of all rows."""

    scores: Floats
    l2: Floats
    e2: Floats
    n: Floats
    gap: float

    @classmethod
    def of(cls, sample: RowSample, sums: RowGaps) -> "_Rows":
        return cls(
            scores=np.stack([sums.far, sums.rms]),
            l2=sums.l2,
            e2=sums.e2,
            n=sample.n_valid.astype(np.float64),
            gap=float(sums.totals.sums()["l2"].sum()),
        )

    def within(self, column: ColumnOfKeys | None) -> "_Rows":
        """The same with scores beside the mean of their level."""
        if column is None:
            return self
        scores = np.stack([score - _means(score, column)[0][column.codes] for score in self.scores])
        return _Rows(scores=scores, l2=self.l2, e2=self.e2, n=self.n, gap=self.gap)

    def share(self, at: Mask) -> float:
        """Of the gap, what some rows hold above the others' l^2 per e^2."""
        (l2_in, e2_in), (l2_out, e2_out) = (
            (float(np.nansum(self.l2[rows])), float(np.nansum(self.e2[rows]))) for rows in (at, ~at)
        )
        return min(1.0, max(0.0, ratio(l2_in - e2_in * ratio(l2_out, e2_out), self.gap)))


def _means(score: Floats, column: ColumnOfKeys) -> tuple[Floats, Floats, float]:
    """Of each level, the mean and how many rows it is of; and the deviation within levels."""
    known = np.isfinite(score)
    codes, n_levels = column.codes[known], len(column.values)
    n = np.bincount(codes, minlength=n_levels).astype(np.float64)
    mean = ratios(np.bincount(codes, score[known], n_levels).astype(np.float64), n)
    within = float(np.square(score[known] - mean[codes]).sum())
    return mean, n, max(LEAST_DEVIATION, sqrt(ratio(within, max(1.0, float(n.sum()) - int((n > 0).sum())))))


def _place(
    name: str, column: ColumnOfKeys, rows: _Rows, *, n_tried: int, prompts: ColumnOfKeys | None = None
) -> Place | None:
    """The levels of a column that stand apart, by the score that says so with more standard errors.

    Samples of a prompt are alike.  So where each prompt has one level, as it has one source, prompts are compared.
    """
    scores, of_units, fewest = rows.scores, column, MIN_LEVEL_ROWS
    levels = None if prompts is None else _level_of_each(prompts, column)
    if prompts is not None and levels is not None and len(levels) > len(column.values):
        of_prompts = [_means(score, prompts) for score in scores]
        scores = np.stack([np.where(n > 0, mean, np.nan) for mean, n, _ in of_prompts])
        of_units, fewest = ColumnOfKeys(codes=levels, values=column.values), MIN_LEVEL_PROMPTS
    least_z, least_size = MIN_Z + log10(max(1, n_tried)), log(MIN_SIZES.get(name, MIN_SIZE))
    found = (_apart(of_units, score, fewest=fewest, least_z=least_z, least_size=least_size) for score in scores)
    parted = [each for each in found if each is not None and (name == STEP or not each[3])]
    if not parted:
        return None
    codes, size, z, grows = max(parted, key=lambda found: found[2])
    at = np.isin(column.codes, codes)
    return _named(
        name,
        column,
        codes,
        size=exp(size),
        z=z,
        share=rows.share(at),
        token_share=float(rows.n[at].sum() / rows.n.sum()),
        grows=grows,
    )


def _apart(
    column: ColumnOfKeys, score: Floats, *, fewest: int, least_z: float, least_size: float
) -> tuple[Index, float, float, bool] | None:
    """The levels that stand apart by one score, with how far, that in standard errors, and whether a line through all
    levels tells more.

    Levels of enough rows are parted in the order of their means.  Numbers of few rows each, such as the lengths of
    prompts, are parted at a bound: all above it, or all below.
    """
    mean, n, deviation = _means(score, column)
    least = max(least_size, deviation)
    at_a_bound = _is_ordered(column) and n.sum() < fewest * (n > 0).sum()
    if at_a_bound:
        order = _ordered(column)
        order = order[n[order] > 0]
    else:
        order = np.flatnonzero(n >= fewest)
        order = order[np.argsort(-mean[order], kind="stable")]
    if len(order) < 2:
        return None
    n_in, sum_in = np.cumsum(n[order])[:-1], np.cumsum((n * mean)[order])[:-1]
    n_out, sum_out = n[order].sum() - n_in, (n * mean)[order].sum() - sum_in
    off = sum_in / n_in - sum_out / n_out
    z = off / deviation / np.sqrt(1 / n_in + 1 / n_out)
    best = int(np.abs(z).argmax())
    is_below = z[best] > 0
    hot, far = order[: best + 1] if is_below else order[best + 1 :], float(abs(off[best]))
    if at_a_bound:
        stands = abs(z[best]) >= least_z + AT_A_BOUND and far >= least
    else:
        apart = mean[hot] - sum_out[best] / n_out[best]
        each = apart / deviation / np.sqrt(1 / n[hot] + 1 / n_out[best])
        together = z[best] >= least_z + CHANCE * sqrt(len(order)) and bool((each >= LEAST_Z).all())
        stands = (together or bool((each >= least_z).all())) and bool((apart >= least).all())
    if not stands:
        return None
    if _is_ordered(column) and _is_line([column.values[code] for code in order], mean[order], n[order], best + 1):
        grown = order[mean[order] > np.average(mean[order], weights=n[order]) + log(MIN_SIZE)]
        return (grown, far, float(abs(z[best])), True) if len(grown) else None
    return hot, far, float(abs(z[best])), False


def _is_line(values: Sequence[float], y: Floats, n: Floats, n_hot: int) -> bool:
    """Whether a line through the levels' means y leaves less of them than their mean in the first n_hot, and in the
    others."""
    if len(values) < MIN_LINE:
        return False
    x = np.array(values, np.float64)
    off = x - np.average(x, weights=n)
    slope = ratio(float((n * off * y).sum()), float((n * off**2).sum()))
    of_line = float((n * (y - np.average(y, weights=n) - slope * off) ** 2).sum())
    of_parts = sum(
        float((n[at] * (y[at] - np.average(y[at], weights=n[at])) ** 2).sum())
        for at in (slice(0, n_hot), slice(n_hot, None))
    )
    return of_line < of_parts


def _is_other_place(name: str, found: Mapping[str, Place], columns: Mapping[str, ColumnOfKeys], rows: "_Rows") -> bool:
    """Whether the place of a column is that of another one, seen from a column that goes together with it."""
    return any(
        _is_explained(found[name], columns[other], rows) and not _is_explained(found[other], columns[name], rows)
        for other in found
        if other != name
    )


def _is_explained(place: Place, other: ColumnOfKeys, rows: _Rows) -> bool:
    """Whether a place no longer stands apart within the levels of another column; no, where these leave next to nothing
    to compare."""
    sizes: list[float] = []
    for score in rows.scores:
        known = np.isfinite(score)
        inside, outside = (
            np.bincount(other.codes[known & at], minlength=len(other.values)).astype(np.float64)
            for at in (place.at, ~place.at)
        )
        weight = ratios(inside * outside, inside + outside)
        n_in, n_out = inside.sum(), outside.sum()
        if weight.sum() < LEAST_LEFT * ratio(float(n_in * n_out), float(n_in + n_out)) or not n_in or not n_out:
            continue
        mean_in, mean_out = (
            ratios(np.bincount(other.codes[known & at], score[known & at], len(other.values)).astype(np.float64), n)
            for at, n in ((place.at, inside), (~place.at, outside))
        )
        left = float((weight * (mean_in - mean_out)).sum() / weight.sum())
        whole = float(score[known & place.at].mean() - score[known & ~place.at].mean())
        sizes.append(ratio(left, whole) if whole > log(MIN_SIZE) else 1.0)
    return bool(sizes) and max(sizes) < LEAST_SIZE_LEFT
