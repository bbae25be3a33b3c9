"""What the levels of a column hold of the gap, and the cause `column`.

A level has its share of the gap beside what the surprise of its tokens alone would give.  The levels of the place at
which the gap sits (`where`) are hot; where there is none, a line through the levels of numbers may stand out: an error
that grows with the lag.  Turns and bins of surprise have the same shares, and are never a cause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import exp, log10, sqrt
from typing import Any

import numpy as np

from rlcorr_cli.causes.diagnosis import CauseFinding, ColumnGap, Interval, LevelGap
from rlcorr_cli.causes.features import Case, Rule
from rlcorr_cli.causes.gap import SURPRISE_EDGES, GapTotals, Levels
from rlcorr_cli.causes.numbers import jackknife_error, once, ratio, ratios, without_each
from rlcorr_cli.causes.steps import STEP
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.token_classes import TURN_STARTS
from rlcorr_cli.causes.where import (
    CACHED,
    LAG,
    LEAST_DEVIATION,
    MIN_LEVEL_ROWS,
    MIN_SIZE,
    MIN_Z,
    PROMPT,
    TOKEN_CLASS,
    PlaceOfGap,
    looked_at,
)
from rlcorr_cli.causes.wording import figures, levels_named, steps_named
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.row_sample import TURN

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
    place: PlaceOfGap | None = None

    @cached_property
    def deviation(self) -> float:
        """Of y within levels; along the line, where most levels have a single row."""
        n, y, y2, *_ = self.levels.rows.T
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
        n, y, *_ = self.levels.rows.T
        judged: list[LevelGap] = []
        plain = level_gaps(self.levels.keys, self.levels.gap, self.levels.surprise, self.totals)
        for i, gap in enumerate(plain):
            here, others = float(n[i]), float(n.sum() - n[i])
            size = z = None
            if here and others:
                difference = float(y[i]) / here - float(y.sum() - y[i]) / others
                size, z = exp(difference), difference / self.deviation / sqrt(1 / here + 1 / others)
            hot = self.place is not None and gap.level in self.place.levels
            judged.append(replace(gap, rows=int(here), size=size, z=z, is_hot=hot))
        return tuple(judged)

    @cached_property
    def trend(self) -> tuple[float, float] | None:
        """The factor by which |r| changes from the lowest value to the highest, and its z."""
        n, y, *_ = self.levels.rows.T
        if self.values is None or (n > 0).sum() < MIN_TREND_LEVELS:
            return None
        x, n, y = self.values[n > 0], n[n > 0], y[n > 0]
        slope, _, at = _weighted_line(n, x, y / n)
        spread = sqrt(float((n * (x - at) ** 2).sum()))
        return exp(slope * float(np.ptp(x))), slope * spread / self.deviation

    @property
    def grows(self) -> bool:
        """Whether a line through the levels stands out, where no single one does."""
        if self.trend is None or self.place is not None or not self.may_be_hot or self.name == PROMPT:
            return False
        if self.levels.rows[:, 0].sum() < 2 * MIN_LEVEL_ROWS:
            return False
        factor, z = self.trend
        return abs(z) >= self.least_z and max(factor, 1 / factor) >= MIN_SIZE

    @property
    def least_z(self) -> float:
        """The z that a level or a line must reach."""
        return MIN_Z + log10(max(1, self.tried))

    def excess(self) -> float:
        """Sum of l^2 that all levels above the lowest of a line hold above that one's per e^2."""
        *_, l2, e2 = self.levels.rows.T
        assert self.values is not None
        assert self.trend is not None
        hot = self.values != (self.values.min() if self.trend[0] > 1 else self.values.max())
        return float(l2[hot].sum() - e2[hot].sum() * ratio(l2[~hot].sum(), e2[~hot].sum()))

    def gap_of_column(self) -> ColumnGap:
        """As a conclusion."""
        factor, z = self.trend or (None, None)
        return ColumnGap(
            column=self.name, levels=self.gaps, trend=factor, trend_z=z, grows=self.grows, too_many=self.levels.too_many
        )


@once
def attributions(case: Case) -> list[Attribution]:
    """Of each column of levels.  Of columns that part the rows alike only the first can be a cause."""
    totals, place, looked = case.totals, case.place, looked_at(case.sample).keys()
    counts = {name: len(levels.keys) for name, levels in totals.columns.items() if name in looked}
    # Prompts are many, and would hide what another column shows.
    tried = sum(n for name, n in counts.items() if name != PROMPT)
    return [
        Attribution(
            name=name,
            levels=levels,
            totals=totals,
            tried=tried + counts.get(PROMPT, 0) if name == PROMPT else tried,
            may_be_hot=name in looked,
            place=place if place is not None and place.column == name else None,
        )
        for name, levels in totals.columns.items()
    ]


def level_gaps(keys: Sequence[Any], groups: Floats, surprise: Floats, totals: GapTotals) -> tuple[LevelGap, ...]:
    """Shares of each level. groups: f64[L, GROUPS, GAP_SUMS]; surprise: f64[L, N_SURPRISE], its tokens."""
    by_surprise = totals.surprise_gap.sum(axis=1)
    expected = surprise @ ratios(by_surprise[:, 1], by_surprise[:, 0])
    # Of the levels themselves, so that a single one has a share of exactly 1.
    whole, of_levels = groups.sum(axis=0), groups.sum(axis=1)
    n, q, k3 = whole.sum(axis=0)
    of_gap, of_k3 = (_share_intervals(groups[:, :, column], whole[:, [0, column]]) for column in (1, 2))
    return tuple(
        LevelGap(
            level=key,
            rows=0,
            tokens=int(of_levels[i, 0]),
            token_share=ratio(float(of_levels[i, 0]), n),
            k3=ratio(float(of_levels[i, 2]), k3),
            k3_interval=of_k3[i],
            gap=ratio(float(of_levels[i, 1]), q),
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


SAME_BEFORE = "the tool's output, images and the chat template must be the same tokens on both sides."
ADVICE = {
    STEP: "Find out what {what}: a restart, the weights, settings of the engine, the data.",
    CACHED: "Look at the engine's prefix cache: sample the same prompts without it, and empty it with every update of "
    "the weights.",
    "worker": "Compare settings and weights of {names} with those of the other workers, then restart {names}.",
    TURN_STARTS: f"Look at what stands before them: {SAME_BEFORE}",
    TOKEN_CLASS: "Look at what such tokens have of their own: how each side makes ids of them and text of ids, rows of "
    "the embedding that were added or resized, a grammar or a logits processor on one side.",
    "prompt_length": "Look at what depends on the length of the context: prompts that one side cuts, the precision of "
    "the KV cache, RoPE's scaling, the attention kernel.",
    TURN: f"Look at what stands before turn {{names}}: {SAME_BEFORE}",
}
"""What to do about a column, or a class of tokens, that names itself what its rows have of their own."""
COLUMN_SHARE = 0.3
"""A column that holds less of the gap above what its tokens give is no cause."""


@once
def trending_column(case: Case) -> CauseFinding | None:
    """The column with the largest share of those whose levels a line goes through.  Steps only tell the time."""
    shares = [
        (case.features.share(column.excess()), column)
        for column in attributions(case)
        if column.name != STEP and column.grows
    ]
    share, column = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if column is None or share < COLUMN_SHARE:
        return None
    return _cause_of_trend(column, share)


def column_of(place: PlaceOfGap) -> CauseFinding:
    """That a place carries the gap, as a cause: rows of a longer lag are stale, all others are of a column."""
    names, cause = levels_named(place.levels, place.every), "stale_cache" if place.is_stale else _cause_of(place.column)
    began = place.since is not None and place.is_range
    what = f"changed at step {place.since}" if began else "these steps have of their own"
    about = names if names in ADVICE else "" if place.is_stale else place.column
    advice = ADVICE.get(about, CAUSES[cause].advice).format(names=names, what=what)
    clean = [level for level in place.every if level not in place.levels]
    if place.column == LAG and len(clean) > 1 and place.levels == place.every[len(clean) :]:
        bound = f"{clean[-1]:g}"
        advice = f"Drop the rows of a lag above {bound}, or cap it there: up to {bound} the gap is level. {advice}"
    its, others = ("Its", "the others'") if len(place.levels) == 1 else ("Their", "all others'")
    evidence = [f"{its} tokens differ {figures(place.size)} times as much as {others} (z = {place.z:.0f})."]
    if place.steps is not None:
        same = f"Nearly the same rows are of {steps_named(place.steps.levels, every=place.steps.every)}"
        evidence.append(f"{same}: what changed there may be the reason, too.")
    if place.growth is not None:
        growth = place.growth
        grows = f"From the lowest to the highest {growth.along} this difference grows by a factor of"
        evidence[0] = f"Where the {growth.along} is in its upper half, {evidence[0][0].lower()}{evidence[0][1:]}"
        evidence.append(f"{grows} {figures(growth.factor)} (z = {growth.z:.0f}).")
    elif place.is_stale:
        evidence.append(
            "At equal lengths of prompts they do so, too. In a dump of one step no growth with updates is seen."
        )
    return CauseFinding(
        cause=cause,
        share=place.share,
        token_share=place.token_share,
        parameters={"column": place.column, "levels": names, "size": place.size},
        headline=_headline(place, names),
        evidence=tuple(evidence),
        advice=advice,
    )


def _cause_of(column: str) -> str:
    return "stale_policy" if column == LAG else "column"


def _headline(place: PlaceOfGap, names: str) -> str:
    if place.is_stale:
        return "a stale prefix cache, in rows with cached tokens"
    if place.column == STEP:
        if place.is_to_the_end:
            return f"something that began at step {place.since}"
        has = "has of its own" if len(place.levels) == 1 else "have of their own"
        return f"something that {steps_named(place.levels, every=place.every)} {has}"
    if place.column == LAG:
        return f"stale rollouts, at lag {names} (updates between sampling and training)"
    if place.column == TOKEN_CLASS:
        return f"something that is wrong with {names}"
    if place.is_the_largest:
        return f"something that depends on the prompt's length, from {place.levels[0]:,} tokens on"
    return f"{place.column} {names}"


def _cause_of_trend(column: Attribution, share: float) -> CauseFinding:
    assert column.trend is not None
    assert column.values is not None
    factor, z = column.trend
    low, high = column.values.min(), column.values.max()
    direction = "grows" if factor > 1 else "falls"
    what = "stale rollouts: an error" if column.name == LAG else "an error"
    return CauseFinding(
        cause=_cause_of(column.name),
        share=share,
        parameters={"column": column.name, "factor": max(factor, 1 / factor), "direction": direction},
        headline=f"{what} that {direction} with {column.name}",
        evidence=(
            f"A typical token differs {figures(factor)} times as much at {column.name} {high:,g} as at {low:,g} "
            f"(z = {abs(z):.0f}).",
        ),
        advice=ADVICE.get(column.name, CAUSES[_cause_of(column.name)].advice).format(names=column.name),
    )


RULES: Mapping[str, Rule] = dict.fromkeys(("column", "stale_cache"), trending_column)
"""A stale cache is a place, which comes before all rules (`where.place_of`): no trend is called so."""
