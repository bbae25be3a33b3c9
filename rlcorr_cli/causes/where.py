"""Where a gap sits: rows that a column names and that stand apart from all others.

A *place* is some levels of a column: a worker, a source, the steps from 7 on, every fourth step, the longest prompts.
Rows are compared by two numbers: y, the mean log size of a row's tokens over what their surprise predicts
(causes/gap.py), to which all tokens count alike, and the log of their root mean square, which a few far tokens decide.
A column is parted in two: its levels are sorted by their means, every cut is tried, and the one whose sides differ by
most standard errors is kept.  So a single level, a range of steps, every nth one and a list of workers are found in one
way, however many they are.

Columns go together: a version with the step, a lag with the steps at which it is long.  So a place is dropped where
less than half of it is left within the levels of another place's column, and not the other way round.  Of those that
are left and hold nearly as much of the gap as any, the one with the fewest tokens is named; a prompt only where nothing
else is, since steps, sources and workers are made of prompts.

Rows whose prompt the engine had in its prefix cache come before all of these (`_stale_place`): where they stand apart
more and more as weights are updated, and so within the levels of the other columns and at equal lengths of prompts, the
cache holds what older weights made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb, exp, log, log10, sqrt
from typing import Any

import numpy as np

from rlcorr_cli.causes.gap import MOST_LEVELS, order_of_keys
from rlcorr_cli.causes.gap_sums import RowGaps
from rlcorr_cli.causes.numbers import once, ratio, ratios
from rlcorr_cli.causes.steps import STEP, shift_of_sample
from rlcorr_cli.causes.table import MIN_SIZE, MIN_Z
from rlcorr_cli.causes.wording import steps_named
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Flags, Floats, Ints, unique_values
from rlcorr_cli.totals.limits import LARGEST_LOG
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

LAG, VERSION, PROMPT, LENGTH, CACHED = "lag", "policy_version", "group_id", "prompt_length", "cached_tokens"
TOKEN_CLASS = "token_class"
TELL_TIME = (LAG, STEP, VERSION)
"""Of columns that part the rows alike the first of these is looked at.  They only tell the time: another column with as
many of the tokens is named before them."""
MIN_LEVEL_ROWS, MIN_LEVEL_PROMPTS = 4, 2
LEAST_Z_EACH = 2.0
"""What each level of a place must reach by itself, where they reach MIN_Z only together."""
CHANCE = 0.8
"""The best cut of L equal levels differs by CHANCE sqrt(L) standard errors by chance: half of them lie on each side, at
0.8 deviations from 0, the mean of half a normal distribution."""
FEW_ROWS = 0.1
"""Numbers are parted at a bound where more than this share of the rows is of numbers of few rows."""
MORE_AT_A_BOUND = 3.0
"""The best bound between numbers that make no difference parts them by so many standard errors by chance."""
MIN_SIZES = {"data_source": 2.0, TOKEN_CLASS: 2.0, PROMPT: 4.0}
"""Others than MIN_SIZE: a data source, a class of tokens and a prompt go with the content, which changes how large
noise is."""
MIN_LINE = 3
"""Levels that a line is drawn through."""
LEAST_DEVIATION = 0.05
LEAST_LEFT, LEAST_SIZE_LEFT = 0.05, 0.5
"""A place is compared within the levels of another column where so much of the comparison is left there; it is a place
of its own where so much of its log size is."""
AS_MUCH = 0.9
"""Of the places that hold so much of what the largest one does, the one with the fewest tokens is taken."""
LEAST_PROMPTS, MOST_PROMPTS = 0.02, 0.2
"""Of the tokens: prompts that hold fewer are rows of a few loud prefixes, which every dump has; more of them are no
prompts of their own, but harder ones."""
SINCE_UPDATE = "number of steps since the last update"
LENGTH_PARTS = 8
"""So many parts, of as many rows, the lengths of prompts are cut into where rows of equal length are compared."""
NEARLY_ALL, BY_CHANCE = 0.95, 1e-4
"""A place that holds so much of some rows, and that not by chance, is what they share."""


@frozen
class Growth:
    """How the gap of some rows grows beside that of all others: along what, by which factor from the lowest value to
    the highest, and that in standard errors."""

    along: str
    factor: float
    z: float


@frozen(kw_only=True, eq=False)
class PlaceOfGap:
    """Rows of some levels of a column: at, bool[R].  levels: in order; every: all levels, in order.  size: the factor
    by which their tokens differ more than all others'; z: that, in standard errors.  share: of the gap, what they hold
    above the others'; token_share: of the tokens.  grows: whether the gap grows along all steps, of which these are
    those whose size is MIN_SIZE times the mean or more; start: the step from which on it is so many times that of the
    first one.  steps: of another column, the place of steps that nearly the same rows are.  is_stale: whether these are
    rows of a stale prefix cache; growth: of their gap, where it was looked for."""

    column: str
    levels: tuple[Any, ...]
    every: tuple[Any, ...]
    at: Flags
    size: float = 1.0
    z: float = 0.0
    share: float = 0.0
    token_share: float = 0.0
    grows: bool = False
    start: Any = None
    steps: "PlaceOfGap | None" = None
    is_stale: bool = False
    growth: Growth | None = None

    @property
    def is_range(self) -> bool:
        """Whether no other level lies between its levels."""
        return self.levels in {self.every[i : i + len(self.levels)] for i in range(len(self.every))}

    @property
    def when(self) -> str:
        """Of steps: 'from step 7 on', 'at steps 3, 7 and 11'."""
        return (
            f"from step {self.since} on" if self.is_to_the_end else f"at {steps_named(self.levels, every=self.every)}"
        )

    @property
    def is_to_the_end(self) -> bool:
        """Whether these are all steps from one on that is not the first."""
        return self.is_range and self.levels[-1] == self.every[-1] and self.since is not None

    @property
    def is_all_but_the_first(self) -> bool:
        """Whether these are all steps after the first."""
        return self.column == STEP and self.levels == self.every[1:]

    @property
    def is_the_largest(self) -> bool:
        """Whether these are prompts of a length or more."""
        return self.column == LENGTH and self.is_range and self.levels[-1] == self.every[-1]

    @property
    def since(self) -> Any:
        """The first of some steps, where others come before it; of a gap that grows, the step from which it has."""
        if self.steps is not None:
            return self.steps.since
        if self.column != STEP or self.grows:
            return self.start
        return self.levels[0] if self.levels[0] != self.every[0] else None


def place_of(sample: RowSample, gaps: RowGaps) -> PlaceOfGap | None:
    """The place that holds most of the gap above what its tokens give; of those that hold as much, the smallest.  gaps:
    of the sample's rows."""
    columns, rows = {**looked_at(sample)}, _Rows(sample=sample, gaps=gaps, scores=np.stack([gaps.far, gaps.rms]))
    prompts = columns.pop(PROMPT, None)
    n_tried = sum(len(column.values) for column in columns.values())
    if (stale := _stale_place(columns, rows)) is not None:
        return stale
    tried = {
        name: _best_place(name, column, rows, n_tried=n_tried, prompts=prompts) for name, column in columns.items()
    }
    found = {name: place for name, place in tried.items() if place is not None}
    places = [place for name, place in found.items() if not _is_other_place(name, found, columns, rows)]
    if not places and prompts is not None:
        beside_their_step = rows.within(columns.get(STEP))
        place = _best_place(PROMPT, prompts, beside_their_step, n_tried=n_tried + len(prompts.values))
        places = [place] if place is not None and LEAST_PROMPTS <= place.token_share <= MOST_PROMPTS else []
    most = max((place.share for place in places), default=0.0)

    def order(place: PlaceOfGap) -> tuple[bool, float, bool]:
        return place.share < AS_MUCH * most, round(place.token_share, 2), place.column in TELL_TIME

    place, steps = min(places, key=order, default=None), found.get(STEP)
    if place is None or steps is None or place.column == STEP or (place.at != steps.at).mean() > 1 - NEARLY_ALL:
        return place
    return replace(place, steps=steps)


def _stale_place(columns: Mapping[str, ColumnOfKeys], rows: "_Rows") -> PlaceOfGap | None:
    """The rows with cached tokens, where a stale prefix cache sets them apart.

    Their gap grows along a column that tells the time.  In its upper half, where most is to be seen, they stand apart
    at equal lengths of prompts, and within the levels of each other column that is looked at and leaves something to
    compare; prompts, and text of more than MOST_LEVELS levels, are not asked.  A dump of one moment has no column that
    tells the time: there all rows are compared, and the lengths must be known.
    """
    levels = rows.sample.levels
    # However many prompts there are: `looked_at` leaves them out beyond MOST_LEVELS.
    cached, prompts, times = levels.get(CACHED), levels.get(PROMPT), _times(levels)
    if cached is None or (hits := _hits(cached)) is None:
        return None
    at, growth, upper = hits.codes == 1, None, rows
    if times:
        growth = max((_growth(times[name], at, rows, prompts, along=name) for name in times), key=lambda of: of.z)
        if growth.factor < MIN_SIZE or growth.z < MIN_Z:
            return None
        time = times[growth.along]
        upper = replace(rows, scores=np.where(time >= (time.min() + time.max()) / 2, rows.scores, np.nan))
    of_units, scores, _ = _units(hits, upper, prompts)
    size, z = _difference(of_units, scores, np.array([1]))  # the code of hits
    if size < log(MIN_SIZE) or z < MIN_Z:
        return None
    codes = unique_values(cached.codes[at])
    place = _place_of_rows(CACHED, cached, codes, rows, size=exp(size), z=z, growth=growth, is_stale=True)
    if any(_is_explained(place, other, upper) for name, other in columns.items() if name not in (CACHED, LENGTH)):
        return None
    holds = _holds_at_equal_lengths(place, levels.get(LENGTH), upper)
    if holds is None:  # lengths are unknown: a gap that grows with updates is not just of longer prompts
        holds = growth is not None
    return place if holds else None


def _hits(cached: ColumnOfKeys) -> ColumnOfKeys | None:
    """Whether each row has cached tokens, null being none, as of vLLM; None where too few rows have or have not."""
    is_hit = np.array([isinstance(value, (int, float)) and value > 0 for value in cached.values], np.int64)
    hits = ColumnOfKeys(codes=is_hit[cached.codes], values=(False, True))
    return hits if min(np.bincount(hits.codes, minlength=2)) >= MIN_LEVEL_ROWS else None


def _holds_at_equal_lengths(place: PlaceOfGap, lengths: ColumnOfKeys | None, rows: "_Rows") -> bool | None:
    """Whether a place stands apart among prompts of about one length, too; None where lengths are unknown.

    Not where its lengths and the others' hardly overlap, because they may be what sets it apart.
    """
    values = _numbers(lengths)
    if values is None:
        return None
    edges = np.quantile(values, np.arange(1, LENGTH_PARTS) / LENGTH_PARTS)
    codes = np.searchsorted(edges, values, side="right")
    left = _size_left(place, ColumnOfKeys(codes=codes, values=tuple(range(LENGTH_PARTS))), rows)
    return left is not None and left >= LEAST_SIZE_LEFT


def _times(levels: Mapping[str, ColumnOfKeys]) -> dict[str, Floats]:
    """Of each row its step, its version, and how many steps after the first one of that version it is, by their names:
    those that are numbers, and in which rows differ."""
    times = {name: values for name in (STEP, VERSION) if (values := _numbers(levels.get(name))) is not None}
    if len(times) == 2:
        codes, first = levels[VERSION].codes, np.full(len(levels[VERSION].values), np.inf)
        np.minimum.at(first, codes, times[STEP])
        times[SINCE_UPDATE] = times[STEP] - first[codes]
    return {name: values for name, values in times.items() if np.ptp(values)}


def _numbers(column: ColumnOfKeys | None) -> Floats | None:
    """A column's value of each row; None where some are no numbers."""
    if column is None or not len(column.codes) or not _are_numbers(column):
        return None
    return column.numbers[column.codes]


def _growth(time: Floats, at: Flags, rows: "_Rows", prompts: ColumnOfKeys | None, *, along: str) -> Growth:
    """How the size of some rows' gap grows with time beside that of all others: by least squares of y on time, with a
    line of these rows and one of the others.  Rows of one prompt, time and side count as one."""
    alike = np.arange(len(at)) if prompts is None else prompts.codes
    units, unit = np.unique(np.stack([time - time.mean(), alike, at]), axis=1, return_inverse=True)
    x, side = units[0], units[2]
    design, found = np.stack([np.ones(len(x)), x, side, x * side], axis=1), list[Growth]()
    for score in rows.scores:
        mean, n, _ = _means(score, ColumnOfKeys(codes=unit.ravel(), values=tuple(range(len(x)))))
        of, y = design[n > 0], mean[n > 0]
        inverse = np.linalg.pinv(of.T @ of)
        line = inverse @ of.T @ y
        variance = float(np.square(y - of @ line).sum()) / max(1, len(y) - len(line))
        z = ratio(line[-1], sqrt(max(0.0, variance * inverse[-1, -1])))  # rounded: below 0 of rows of one time
        found.append(Growth(along, exp(min(LARGEST_LOG, line[-1] * float(np.ptp(time[at])))), z))
    return max(found, key=lambda of_score: of_score.z)


def shared_by(sample: RowSample, at: Flags) -> PlaceOfGap | None:
    """The smallest place that nearly all of some rows stand in, not by chance.

    With shares s of all rows and f of these n rows inside the place, chance is at most e^(-n D), D = f ln(f / s) +
    (1 - f) ln((1 - f) / (1 - s)) (Chernoff), times the places of so many levels that a column has, and the columns.
    """
    columns, n = {**looked_at(sample)} if at.any() else {}, int(at.sum())
    columns.pop(PROMPT, None)
    places: list[PlaceOfGap] = []
    for name, column in columns.items():
        order = _ordered(column)
        here, every = (np.bincount(codes, minlength=len(order))[order] for codes in (column.codes[at], column.codes))
        are_numbers = _are_numbers(column)
        inside = _neighbours(here, every) if are_numbers else _fewest(here, every)
        n_places = len(order) ** 2 if are_numbers else comb(len(order), len(inside))
        f, s = (float(counts[inside].sum() / counts.sum()) for counts in (here, every))
        if not s < f or s >= 1:
            continue
        distance = f * log(f / s) + (0.0 if f == 1 else (1 - f) * log((1 - f) / (1 - s)))
        if log(n_places * len(columns)) - n * distance < log(BY_CHANCE):
            places.append(_place_of_levels(name, column, order[inside], sample))
    return min(places, key=lambda place: place.token_share, default=None)


def _neighbours(here: Ints, every: Ints) -> Ints:
    """The range of levels with the fewest rows that holds NEARLY_ALL of `here`; counts in the order of the levels."""
    sums, of_all = np.append(0, np.cumsum(here)), np.append(0, np.cumsum(every))
    lasts = np.searchsorted(sums, sums[:-1] + NEARLY_ALL * sums[-1])
    firsts = np.flatnonzero(lasts < len(sums))
    size = of_all[lasts[firsts]] - of_all[firsts]
    best = firsts[int(size.argmin())]
    return np.arange(best, lasts[best])


def _fewest(here: Ints, every: Ints) -> Ints:
    """Levels in the order of the share of `here` in them, until they hold NEARLY_ALL of it."""
    order = np.argsort(-ratios(here.astype(np.float64), every.astype(np.float64)), kind="stable")
    enough = int(np.searchsorted(np.cumsum(here[order]), NEARLY_ALL * here.sum())) + 1
    return np.sort(order[:enough])


@once
def looked_at(sample: RowSample) -> dict[str, ColumnOfKeys]:
    """The columns of two levels or more that are looked at by level; of those that part the rows alike the first.

    A version beside the step only tells the time, too: how far it is behind is the lag.
    Of numbers there may be more than MOST_LEVELS, for they have an order; not of prompts, whose numbers have none."""
    kept: dict[str, ColumnOfKeys] = {}
    for name in sorted(sample.levels, key=lambda name: (*TELL_TIME, name).index(name)):
        column = sample.levels[name].rows(np.arange(sample.n_rows))
        is_short = len(column.values) <= MOST_LEVELS or (name != PROMPT and _are_numbers(column))
        tells_time = name == VERSION and STEP in kept
        is_new = not tells_time and not any(_is_same(column, other) for other in kept.values())
        if len(column.values) >= 2 and is_short and is_new:
            kept[name] = column
    return kept


def _are_numbers(column: ColumnOfKeys) -> bool:
    """Whether all its values are, which gives them an order."""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in column.values)


def _level_of_each(prompts: ColumnOfKeys, column: ColumnOfKeys) -> Ints | None:
    """The code of the level of each prompt; None where some have rows of several."""
    level = np.zeros(len(prompts.values), np.int64)
    level[prompts.codes] = column.codes
    return level if (level[prompts.codes] == column.codes).all() else None


def _is_same(column: ColumnOfKeys, other: ColumnOfKeys) -> bool:
    n = len(column.values)
    return n == len(other.values) and len(unique_values(column.codes * n + other.codes)) == n


def _ordered(column: ColumnOfKeys) -> Ints:
    """Its codes in the order of their values."""
    return np.array(sorted(range(len(column.values)), key=lambda code: order_of_keys(column.values[code])), np.int64)


def _place_of_levels(name: str, column: ColumnOfKeys, codes: Ints, sample: RowSample, **of_place: Any) -> PlaceOfGap:
    order, at, wanted = _ordered(column), np.isin(column.codes, codes), set(codes.tolist())
    return PlaceOfGap(
        column=name,
        levels=tuple(column.values[code] for code in order.tolist() if code in wanted),
        every=tuple(column.values[code] for code in order.tolist()),
        at=at,
        token_share=float(sample.n_valid[at].sum() / sample.n_valid_tokens),
        **of_place,
    )


@frozen(kw_only=True, eq=False)
class _Rows:
    """Of R rows of a sample: scores, f64[2, R], y and ln of the root mean square, NaN where a row has none."""

    sample: RowSample
    gaps: RowGaps
    scores: Floats

    def within(self, column: ColumnOfKeys | None) -> "_Rows":
        """The same with scores beside the mean of their level."""
        if column is None:
            return self
        scores = np.stack([score - _means(score, column)[0][column.codes] for score in self.scores])
        return replace(self, scores=scores)

    def share(self, at: Flags) -> float:
        """Of the gap, what some rows hold above the others' l^2 per e^2."""
        gaps = self.gaps
        (l2_in, e2_in), (l2_out, e2_out) = (
            (float(np.nansum(gaps.l2[rows])), float(np.nansum(gaps.e2[rows]))) for rows in (at, ~at)
        )
        gap = float(np.nansum(gaps.l2) + np.nansum(gaps.odd))
        return min(1.0, max(0.0, ratio(l2_in - e2_in * ratio(l2_out, e2_out), gap)))


def _means(score: Floats, column: ColumnOfKeys) -> tuple[Floats, Floats, float]:
    """Of each level, the mean and how many rows it is of; and the deviation within levels."""
    known = np.isfinite(score)
    codes, n_levels = column.codes[known], len(column.values)
    n = np.bincount(codes, minlength=n_levels).astype(np.float64)
    mean = ratios(np.bincount(codes, score[known], n_levels).astype(np.float64), n)
    within = float(np.square(score[known] - mean[codes]).sum())
    return mean, n, max(LEAST_DEVIATION, sqrt(ratio(within, max(1.0, float(n.sum()) - int((n > 0).sum())))))


def _best_place(
    name: str, column: ColumnOfKeys, rows: _Rows, *, n_tried: int, prompts: ColumnOfKeys | None = None
) -> PlaceOfGap | None:
    """The levels of a column that stand apart, by the score that says so with more standard errors; of a column other
    than the step none, where a line through its levels fits better."""
    of_units, scores, fewest = _units(column, rows, prompts)
    least_z, least_size = MIN_Z + log10(max(1, n_tried)), log(MIN_SIZES.get(name, MIN_SIZE))
    found = (_apart(of_units, score, fewest=fewest, least_z=least_z, least_size=least_size) for score in scores)
    parted = [each for each in found if each is not None and (name == STEP or each.slope is None)]
    if not parted:
        return None
    best = max(parted, key=lambda found: found.z)
    codes, size, z, grows = best.codes, best.size, best.z, best.slope is not None and best.slope > 0
    if name == STEP and not grows:
        codes = _to_the_start(codes, of_units, scores, rows.sample)
    if name == STEP:  # the steps that are named need not be those of the cut
        size, z = _difference(of_units, scores, codes)
    start = _start(of_units, scores) if grows else None
    return _place_of_rows(name, column, codes, rows, size=exp(size), z=z, grows=grows, start=start)


def _place_of_rows(name: str, column: ColumnOfKeys, codes: Ints, rows: _Rows, **of_place: Any) -> PlaceOfGap:
    """A place with its share of the gap."""
    place = _place_of_levels(name, column, codes, rows.sample, **of_place)
    return replace(place, share=rows.share(place.at))


def _units(column: ColumnOfKeys, rows: _Rows, prompts: ColumnOfKeys | None) -> tuple[ColumnOfKeys, Floats, int]:
    """What is compared by level, with its scores, f64[2, units], and how many units a level must have: rows; prompts
    where each has one level, as it has one source, because samples of a prompt are alike."""
    levels = None if prompts is None else _level_of_each(prompts, column)
    if prompts is None or levels is None or len(levels) <= len(column.values):
        return column, rows.scores, MIN_LEVEL_ROWS
    of_prompts = [_means(score, prompts) for score in rows.scores]
    scores = np.stack([np.where(n > 0, mean, np.nan) for mean, n, _ in of_prompts])
    return ColumnOfKeys(codes=levels, values=column.values), scores, MIN_LEVEL_PROMPTS


def _difference(column: ColumnOfKeys, scores: Floats, codes: Ints) -> tuple[float, float]:
    """How far these levels lie above the others, and that in standard errors, by the score that has more of them."""
    found: list[tuple[float, float]] = []
    inside = np.isin(np.arange(len(column.values)), codes)
    for mean, n, deviation in (_means(score, column) for score in scores):
        n_in, n_out = float(n[inside].sum()), float(n[~inside].sum())
        off = ratio((n * mean)[inside].sum(), n_in) - ratio((n * mean)[~inside].sum(), n_out)
        found.append((off, off / deviation / sqrt(ratio(1, n_in, 1.0) + ratio(1, n_out, 1.0))))
    return max(found, key=lambda of_score: of_score[1])


def _to_the_start(codes: Ints, column: ColumnOfKeys, scores: Floats, sample: RowSample) -> Ints:
    """Levels, and where they are the last ones those before them from which on all are MIN_SIZE times the median one of
    the others, by either score, or from which on the gap grows: a gap that grows to a level has begun before."""
    order = _ordered(column)
    first = len(order) - len(codes)
    if not first > 0 or set(order[first:].tolist()) != set(codes.tolist()):
        return codes
    began = first
    if np.isfinite(column.numbers).all():
        found = shift_of_sample(sample)
        if found is not None and found.shape == "growth" and found.since and found.after > found.before:
            began = found.since
    return order[min(first, began, _first_above(column, scores, order[:first])) :]


def _start(column: ColumnOfKeys, scores: Floats) -> Any:
    """The first level from which on all are MIN_SIZE times the first one, by either score; None where none is."""
    order = _ordered(column)
    first = _first_above(column, scores, order[:1])
    return column.values[order[first]] if 0 < first < len(order) else None


def _first_above(column: ColumnOfKeys, scores: Floats, others: Ints) -> int:
    """The place in order of the first level from which on all are MIN_SIZE times the median one of others, by either
    score."""
    order, firsts = _ordered(column), list[int]()
    for mean, n, _ in (_means(score, column) for score in scores):
        above = (mean[order] >= np.median(mean[others]) + log(MIN_SIZE)) | (n[order] == 0)
        firsts.append(len(order) - int(np.cumprod(above[::-1]).sum()))
    return min(firsts)


@frozen
class _Apart:
    """Levels that lie higher than all others: size: by how much, z: that in standard errors.  slope: of a line through
    all levels, where that fits better."""

    codes: Ints
    size: float
    z: float
    slope: float | None


def _apart(column: ColumnOfKeys, score: Floats, *, fewest: int, least_z: float, least_size: float) -> _Apart | None:
    """The levels that stand apart by one score, by at least what rows of one level differ by.

    Levels of enough rows are parted in the order of their means.  Numbers of which many have few rows, such as the
    lengths of prompts, are parted at a bound: all above it, or all below.
    """
    mean, n, deviation = _means(score, column)
    least = max(least_size, deviation)
    at_a_bound = _are_numbers(column) and n[n < fewest].sum() > FEW_ROWS * n.sum()
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
    first_is_hot = z[best] > 0
    hot, far = order[: best + 1] if first_is_hot else order[best + 1 :], float(abs(off[best]))
    if at_a_bound:
        stands = abs(z[best]) >= least_z + MORE_AT_A_BOUND and far >= least
    else:
        apart = mean[hot] - sum_out[best] / n_out[best]
        each = apart / deviation / np.sqrt(1 / n[hot] + 1 / n_out[best])
        together = z[best] >= least_z + CHANCE * sqrt(len(order)) and bool((each >= LEAST_Z_EACH).all())
        stands = (together or bool((each >= least_z).all())) and bool((apart >= least).all())
    if not stands:
        return None
    slope = None
    if _are_numbers(column):
        slope = _slope([column.values[code] for code in order], mean[order], n[order], best + 1)
    if slope is not None and slope > 0:
        hot = order[mean[order] > np.average(mean[order], weights=n[order]) + log(MIN_SIZE)]
    return _Apart(hot, far, float(abs(z[best])), slope) if len(hot) else None


def _slope(values: Sequence[float], y: Floats, n: Floats, n_first: int) -> float | None:
    """The slope of a line through the levels' means y, where it fits them better than two constants, one for the first
    levels and one for the rest."""
    if len(values) < MIN_LINE:
        return None
    x = np.array(values, np.float64)
    off = x - np.average(x, weights=n)
    slope = ratio(float((n * off * y).sum()), float((n * off**2).sum()))
    of_line = float((n * (y - np.average(y, weights=n) - slope * off) ** 2).sum())
    of_parts = sum(
        float((n[at] * (y[at] - np.average(y[at], weights=n[at])) ** 2).sum())
        for at in (slice(0, n_first), slice(n_first, None))
    )
    return slope if of_line < of_parts else None


def _is_other_place(
    name: str, found: Mapping[str, PlaceOfGap], columns: Mapping[str, ColumnOfKeys], rows: "_Rows"
) -> bool:
    """Whether the place of a column is another one's, seen from a column that goes together with it: explained by the
    other's column, and not the other way round."""
    return any(
        _is_explained(found[name], columns[other], rows) and not _is_explained(found[other], columns[name], rows)
        for other in found
        if other != name
    )


def _is_explained(place: PlaceOfGap, other: ColumnOfKeys, rows: _Rows) -> bool:
    """Whether a place no longer stands apart within the levels of another column; no, where these leave next to nothing
    to compare."""
    left = _size_left(place, other, rows)
    return left is not None and left < LEAST_SIZE_LEFT


def _size_left(place: PlaceOfGap, other: ColumnOfKeys, rows: _Rows) -> float | None:
    """How much of the log size of a place is left within the levels of another column, by the scores by which it stands
    apart over all; None where next to nothing is left to compare."""
    sizes: list[float] = []
    for score in rows.scores:
        (mean_in, inside, _), (mean_out, outside, _) = (
            _means(np.where(at, score, np.nan), other) for at in (place.at, ~place.at)
        )
        weight = ratios(inside * outside, inside + outside)
        n_in, n_out = inside.sum(), outside.sum()
        if weight.sum() < LEAST_LEFT * ratio(float(n_in * n_out), float(n_in + n_out)) or not n_in or not n_out:
            continue
        left = float((weight * (mean_in - mean_out)).sum() / weight.sum())
        whole = float((inside * mean_in).sum() / n_in - (outside * mean_out).sum() / n_out)
        if whole > log(MIN_SIZE):
            sizes.append(ratio(left, whole))
    return max(sizes, default=None)
