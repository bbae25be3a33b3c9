"""Which column carries the gap: a worker, a source, a version whose rows are farther off than all others.

A level of a column is judged against what the surprise of its tokens alone would give of the gap; one that stands out
beyond chance among all levels that were tried is hot, and the column whose hot levels hold most is the cause `column`,
with what differs within them.  Turns and bins of surprise have the same shares, and are never a cause.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import exp, log10, sqrt
from typing import Any

import numpy as np

from rlcorr_cli.causes.curves import LINE_R2, MIN_CURVE, is_sloped, temperature_of
from rlcorr_cli.causes.diagnosis import CauseFinding, ColumnGap, Interval, LevelGap
from rlcorr_cli.causes.features import Case, curve_of
from rlcorr_cli.causes.numbers import Line, jackknife_error, line_of_tokens, ratio, ratios, without_each
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.wording import figures, levels_named, roundest
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.gap import SURPRISE_EDGES, TOKEN_SUMS, GapTotals, Levels, order_of_keys
from rlcorr_cli.totals.histogram import Floats

MIN_LEVEL_ROWS = 4
MIN_Z = 4.0
"""Plus log10 of the levels tried in all columns, which holds the chance of any false one."""
PROMPT = "group_id"
MIN_SIZE, MIN_SIZES = 1.5, {"data_source": 2.0, PROMPT: 4.0}
"""A data source and a prompt go with the content, and content with the size of noise."""
MIN_EXCESS, EXCESS_RATIO = 0.1, 1.4
LEAST_DEVIATION = 0.05
NEVER_HOT = ("length",)
LAG = "lag"
STEP = "step"
"""It only tells the time: what grows along steps has a cause of its own."""
REPLACED_BY_LAG = (STEP, "policy_version")
MIN_TREND_LEVELS = 3
"""Two levels are compared, not drawn a line through."""


@frozen(kw_only=True, eq=False)
class Attribution:
    """The levels of one column, beside the whole dump's gap by surprise.

    may_be_hot: whether it can be a cause.  tried: how many levels of all such columns there are.
    """

    name: str
    levels: Levels
    totals: GapTotals
    tried: int
    may_be_hot: bool

    @cached_property
    def deviation(self) -> float:
        """Of y within levels; along the line, where most levels have a single row."""
        n, y, y2 = self.levels.rows.T
        degrees = float(n.sum()) - int((n > 0).sum())
        within = float((y2 - ratios(y**2, n)).sum())
        if degrees >= n.sum() / 2 or self.values is None:
            return max(LEAST_DEVIATION, sqrt(max(0.0, ratio(within, degrees))))
        mean, x = ratios(y, n), self.values
        slope, middle, at = _weighted_line(n, x, mean)
        off = float((n * (mean - middle - slope * (x - at)) ** 2).sum()) + within
        return max(LEAST_DEVIATION, sqrt(max(0.0, ratio(off, float(n.sum()) - 2))))

    @cached_property
    def values(self) -> Floats | None:
        """The levels as numbers, None where some are none."""
        keys = self.levels.keys
        if not all(isinstance(key, (int, float)) and not isinstance(key, bool) for key in keys):
            return None
        values = np.array(keys, np.float64)
        return values if np.isfinite(values).all() else None

    @cached_property
    def gaps(self) -> tuple[LevelGap, ...]:
        """Of each level, judged: how far its rows lie from all others', and whether it is hot."""
        n, y, _ = self.levels.rows.T
        judged: list[LevelGap] = []
        plain = level_gaps(self.levels.keys, self.levels.gap, self.levels.surprise, self.totals)
        for i, gap in enumerate(plain):
            here, others = float(n[i]), float(n.sum() - n[i])
            size = z = None
            if here and others:
                difference = float(y[i]) / here - float(y.sum() - y[i]) / others
                size, z = exp(difference), difference / self.deviation / sqrt(1 / here + 1 / others)
            hot = self.may_be_hot and here >= MIN_LEVEL_ROWS
            hot = hot and (z or 0.0) >= self.least_z and (size or 0.0) >= MIN_SIZES.get(self.name, MIN_SIZE)
            hot = hot and gap.gap - gap.expected >= MIN_EXCESS and gap.gap >= EXCESS_RATIO * gap.expected
            judged.append(replace(gap, rows=int(here), size=size, z=z, is_hot=hot))
        return tuple(judged)

    @cached_property
    def hot(self) -> list[int]:
        """Which levels stand out."""
        return [i for i, gap in enumerate(self.gaps) if gap.is_hot]

    @cached_property
    def trend(self) -> tuple[float, float] | None:
        """The factor by which |r| changes from the lowest value to the highest, and its z."""
        n, y, _ = self.levels.rows.T
        if self.values is None or (n > 0).sum() < MIN_TREND_LEVELS:
            return None
        x, n, y = self.values[n > 0], n[n > 0], y[n > 0]
        slope, _, at = _weighted_line(n, x, y / n)
        spread = sqrt(float((n * (x - at) ** 2).sum()))
        return exp(slope * float(np.ptp(x))), slope * spread / self.deviation

    @property
    def grows(self) -> bool:
        """Whether a line through the levels stands out, where no single one does."""
        if self.trend is None or self.hot or not self.may_be_hot or self.name == PROMPT:
            return False
        if self.levels.rows[:, 0].sum() < 2 * MIN_LEVEL_ROWS:
            return False
        factor, z = self.trend
        return abs(z) >= self.least_z and max(factor, 1 / factor) >= MIN_SIZE

    @cached_property
    def first_hot(self) -> int | None:
        """Where hot levels are all those from one on and the gap is level below it, the place of the first of them
        among the values in order; None of any other levels."""
        if self.values is None or not self.hot:
            return None
        order, n_hot = np.argsort(self.values), len(self.hot)
        first = len(order) - n_hot
        if not first or set(order[first:].tolist()) != set(self.hot):
            return None
        n, y, _ = self.levels.rows[order[:first]].T
        means = ratios(y, n)[n >= MIN_LEVEL_ROWS]
        return first if len(means) and exp(float(np.ptp(means))) < MIN_SIZE else None

    @property
    def along_line(self) -> bool:
        """Whether the column is told by the line through its levels: no level stands out, or its lag has no bound from
        which on the gap is larger."""
        if self.name != LAG or not self.hot or self.first_hot is not None or self.trend is None:
            return self.grows
        factor, z = self.trend
        return z >= self.least_z and factor >= MIN_SIZE

    @property
    def least_z(self) -> float:
        """The z that a level or a line must reach."""
        return MIN_Z + log10(max(1, self.tried))

    def excess(self) -> float:
        """Sum of l^2 that hot levels hold above the others' per e^2; of a line, all levels above its lowest."""
        sums = dict(zip(TOKEN_SUMS, self.levels.tokens.sum(axis=1).T, strict=True))
        l2, e2 = sums["l2"], sums["e2"]
        if self.hot and not self.along_line:
            hot = np.isin(np.arange(len(l2)), self.hot)
        else:
            assert self.values is not None
            assert self.trend is not None
            lowest = self.values.min() if self.trend[0] > 1 else self.values.max()
            hot = self.values != lowest
        return float(l2[hot].sum() - e2[hot].sum() * ratio(l2[~hot].sum(), e2[~hot].sum()))

    def gap_of_column(self) -> ColumnGap:
        """As a conclusion."""
        factor, z = self.trend or (None, None)
        return ColumnGap(
            column=self.name,
            levels=self.gaps,
            trend=factor,
            trend_z=z,
            grows=self.grows,
            too_many=self.levels.too_many,
        )


def attributions(totals: GapTotals) -> list[Attribution]:
    """Of each column of levels."""
    # A column that `lag` stands for can be no cause.
    never = (*NEVER_HOT, *(REPLACED_BY_LAG if LAG in totals.columns else ()))
    counts = {name: len(levels.keys) for name, levels in totals.columns.items() if name not in never}
    # Prompts are many, and would hide what another column shows.
    tried = sum(n for name, n in counts.items() if name != PROMPT)
    return [
        Attribution(
            name=name,
            levels=levels,
            totals=totals,
            tried=tried + counts[PROMPT] if name == PROMPT else tried,
            may_be_hot=name not in never,
        )
        for name, levels in totals.columns.items()
    ]


def level_gaps(keys: Sequence[Any], groups: Floats, surprise: Floats, totals: GapTotals) -> tuple[LevelGap, ...]:
    """Shares of each level. groups: f64[L, GROUPS, GAP_SUMS]; surprise: f64[L, N_SURPRISE], its tokens."""
    by_surprise = totals.surprise_gap.sum(axis=1)
    expected = surprise @ ratios(by_surprise[:, 1], by_surprise[:, 0])
    whole = totals.surprise_gap.sum(axis=0)
    n, q, k3 = whole.sum(axis=0)
    of_gap, of_k3 = (_share_intervals(groups[:, :, column], whole[:, [0, column]]) for column in (1, 2))
    return tuple(
        LevelGap(
            level=key,
            rows=0,
            tokens=int(groups[i, :, 0].sum()),
            token_share=ratio(float(groups[i, :, 0].sum()), n),
            k3=ratio(float(groups[i, :, 2].sum()), k3),
            k3_interval=of_k3[i],
            gap=ratio(float(groups[i, :, 1].sum()), q),
            gap_interval=of_gap[i],
            expected=ratio(float(expected[i]), q),
        )
        for i, key in enumerate(keys)
    )


def turn_gaps(totals: GapTotals) -> tuple[LevelGap, ...]:
    """By run of the mask, where some row has a second one."""
    on = np.flatnonzero(totals.turns[:, :, 0].sum(axis=1))
    if len(on) < 2:
        return ()
    return level_gaps([int(i) for i in on], totals.turns[on], totals.turns_surprise[on], totals)


def surprise_gaps(totals: GapTotals) -> tuple[LevelGap, ...]:
    """By bin of u, from the least sure tokens to b = 0; a level is the bin's lower end."""
    n_bins = len(SURPRISE_EDGES) - 1
    lower = {
        n_bins: "below",
        **dict(enumerate(SURPRISE_EDGES[:-1])),
        n_bins + 1: SURPRISE_EDGES[-1],
        n_bins + 2: "certain",
    }
    on = [i for i in lower if totals.surprise_gap[i, :, 0].any()]
    surprise = np.eye(len(totals.surprise_gap))[on] * totals.surprise_gap[on].sum(axis=1)[:, :1]
    return level_gaps([lower[i] for i in on], totals.surprise_gap[on], surprise, totals)


def _share_intervals(parts: Floats, whole: Floats) -> list[Interval | None]:
    """+- 2 jackknife errors of each level's share, within 0 and 1.  parts: f64[L, GROUPS], a sum of each level; whole:
    f64[GROUPS, 2], the tokens and the sum of all."""
    sums = np.concatenate([whole, parts.T], axis=1)
    if (whole[:, 0] > 0).sum() < 2 or not whole[:, 1].sum():
        return [None] * len(parts)
    # Of the whole first, then without one group each: [1 + k, 2 + L], of which each level's share of all, [1 + k, L].
    sums = np.concatenate([sums.sum(axis=0)[None], without_each(sums)])
    share, *without = ratios(sums[:, 2:], np.broadcast_to(sums[:, 1:2], sums[:, 2:].shape))
    errors = jackknife_error(np.stack(without))
    low, high = np.maximum(0.0, share - 2 * errors), np.minimum(1.0, share + 2 * errors)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _weighted_line(n: Floats, x: Floats, mean: Floats) -> tuple[float, float, float]:
    """The weighted line's slope, its height at the middle, and the middle."""
    at = ratio(float((n * x).sum()), float(n.sum()))
    middle = ratio(float((n * mean).sum()), float(n.sum()))
    return ratio(float((n * (x - at) * mean).sum()), float((n * (x - at) ** 2).sum())), middle, at


COLUMN_SHARE = 0.3
LINE_SUMS_OF_TOKENS = ("n_inside", "u", "d", "u2", "d2", "ud")
"""Those of TOKEN_SUMS that are LINE_SUMS with x = u."""
HIGH_BINS = slice(SURPRISE_EDGES.index(1.0), len(SURPRISE_EDGES) - 1)


def hot_column(case: Case, columns: list[Attribution]) -> CauseFinding | None:
    """The column with the largest share, of those with a hot level or a line; none that only tells the time."""
    shares = [
        (case.features.share(column.excess()), column)
        for column in columns
        if column.name != STEP and (column.hot or column.grows) and not _tells_steps(case, column)
    ]
    share, column = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if column is None or share < COLUMN_SHARE:
        return None
    return _of_line(column, share) if column.along_line else _of_levels(column, share)


def _tells_steps(case: Case, column: Attribution) -> bool:
    """Whether the hot prompts of a dump are most prompts of the steps that they stand in, and so tell only the time."""
    levels = {} if case.sample is None else case.sample.levels
    if column.name != PROMPT or STEP not in levels or len(np.unique(levels[STEP].codes)) < 2:
        return False
    prompts, steps = levels[PROMPT].codes, levels[STEP].codes
    hot_prompts = {column.levels.keys[i] for i in column.hot}
    is_hot = np.isin(prompts, [code for code, value in enumerate(levels[PROMPT].values) if value in hot_prompts])
    there = np.isin(steps, steps[is_hot])
    return 2 * len(np.unique(prompts[is_hot])) > len(np.unique(prompts[there]))


def hot_steps(case: Case, columns: list[Attribution]) -> tuple[Any, ...]:
    """The steps that hold the gap, in order; none where they hold little of it, and where another column tells why.

    Where no single step stands out and all together grow along a line, these are the steps of a larger gap than the
    others' and than their tokens give.
    """
    step = next((column for column in columns if column.name == STEP and (column.hot or column.grows)), None)
    if step is None or case.features.share(step.excess()) < COLUMN_SHARE:
        return ()
    hot = step.hot or [
        i for i, gap in enumerate(step.gaps) if (gap.size or 0.0) >= MIN_SIZE and gap.gap >= EXCESS_RATIO * gap.expected
    ]
    return tuple(sorted((step.levels.keys[i] for i in hot), key=order_of_keys))


def _of_levels(column: Attribution, share: float) -> CauseFinding:
    levels = [column.gaps[i] for i in column.hot]
    names = levels_named(sorted((level.level for level in levels), key=order_of_keys))
    advice = CAUSES["stale_policy" if column.name == LAG else "column"].advice
    if column.name == LAG and column.first_hot is not None:
        assert column.values is not None
        clean = np.sort(column.values)[column.first_hot - 1]
        advice = f"Drop the rows of a lag above {clean:g}, or cap it there: up to {clean:g} the gap is level. {advice}"
    top = max(levels, key=lambda level: level.z or 0.0)
    sizes = _ends([figures(size) for size in sorted(level.size or 0.0 for level in levels)])
    z = _ends([f"{each:.0f}" for each in sorted(level.z or 0.0 for level in levels)])
    its, others, inside = ("Its", "the others'", "it") if len(levels) == 1 else ("Their", "all others'", "them")
    evidence = [f"{its} tokens differ {sizes} times as much as {others} (z = {z})."]
    parameters = {"column": column.name, "levels": names, "size": top.size or 0.0}
    intervals = {}
    sums = dict(zip(TOKEN_SUMS, column.levels.tokens[column.hot].sum(axis=0).T, strict=True))
    line = _line(sums)
    if is_sloped(line) and line.r2 >= LINE_R2 and curve_of(sums) >= MIN_CURVE:
        value = temperature_of(_line({name: of_bins[HIGH_BINS] for name, of_bins in sums.items()}), raw=False)
        setting = f"{roundest(value.ratio, value.interval):.3g} times training's temperature (fit {value.ratio:.3f}"
        evidence.append(f"Inside {inside}, the rollout used {setting}, R² {line.r2:.2f}).")
        parameters["temperature"], intervals["temperature"] = value.ratio, value.interval
    return CauseFinding(
        cause="column",
        share=share,
        token_share=sum(level.token_share for level in levels),
        parameters=parameters,
        intervals=intervals,
        headline=f"{column.name} {names}",
        evidence=tuple(evidence),
        advice=advice,
    )


def _ends(numbers: Sequence[str]) -> str:
    """'3', '3 and 5', '3 to 9' of more."""
    return numbers[0] if len(numbers) == 1 else f"{numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]}"


def _of_line(column: Attribution, share: float) -> CauseFinding:
    assert column.trend is not None
    factor, z = column.trend
    direction = "grows" if factor > 1 else "falls"
    return CauseFinding(
        cause="column",
        share=share,
        parameters={"column": column.name, "factor": max(factor, 1 / factor), "direction": direction},
        headline=f"an error that {direction} with {column.name}",
        evidence=(
            f"From the lowest to the highest {column.name}, the typical difference of a token changes by a factor of "
            f"{figures(factor)} (z = {abs(z):.0f}).",
        ),
        advice=CAUSES["stale_policy" if column.name == LAG else "column"].advice,
    )


def _line(sums: dict[str, Floats]) -> Line:
    """Of d on u within some levels, which have no groups of rows."""
    return line_of_tokens(np.array([sums[name].sum() for name in LINE_SUMS_OF_TOKENS]))
