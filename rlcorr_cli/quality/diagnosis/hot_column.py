"""The cause `column`: one whose levels stand out, and what differs within them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.columns import Attribution
from rlcorr_cli.quality.diagnosis.curves import LINE_R2, MIN_CURVE, is_sloped, temperature_of
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding, LevelGap
from rlcorr_cli.quality.diagnosis.features import curve_of
from rlcorr_cli.quality.diagnosis.lines import Line, line_of_tokens
from rlcorr_cli.quality.diagnosis.wording import figures, roundest
from rlcorr_cli.totals.gap import SURPRISE_EDGES, TOKEN_SUMS
from rlcorr_cli.totals.histogram import Floats

MIN_SHARE = 0.3
LINE_SUMS_OF_TOKENS = ("n_inside", "u", "d", "u2", "d2", "ud")
"""Those of TOKEN_SUMS that are LINE_SUMS with x = u."""
HIGH_BINS = slice(SURPRISE_EDGES.index(1.0), len(SURPRISE_EDGES) - 1)


@dataclass(frozen=True)
class _Within:
    """The lines of d on u on some levels' body."""

    every: Line
    high: Line
    curve: float


def hot_column(case: Case, columns: list[Attribution]) -> CauseFinding | None:
    """The column with the largest share, of those with a hot level or a line."""
    shares = [(case.features.share(column.excess()), column) for column in columns if column.hot or column.grows]
    share, column = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if column is None or share < MIN_SHARE:
        return None
    return _of_levels(case, column, share) if column.hot else _of_line(column, share)


def _of_levels(case: Case, column: Attribution, share: float) -> CauseFinding:
    levels = [column.gaps[i] for i in column.hot]
    names = ", ".join(str(level.level) for level in levels)
    top = max(levels, key=lambda level: level.z or 0.0)
    evidence = [_sizes(levels)]
    within = _within(column.levels.tokens[column.hot].sum(axis=0))
    parameters = {"column": column.name, "levels": names, "size": top.size or 0.0}
    intervals = {}
    if _is_temperature(within):
        value = temperature_of(within.high, raw=False)
        setting = f"{roundest(value.ratio, value.interval):.3g} in rollout over training ({value.ratio:.3f})"
        evidence.append(
            f"Within {'it' if len(levels) == 1 else 'them'}: temperature {setting}, R2 {within.every.r2:.2f}."
        )
        parameters["temperature"], intervals["temperature"] = value.ratio, value.interval
    return CauseFinding(
        cause="column",
        share=share,
        token_share=sum(level.token_share for level in levels),
        parameters=parameters,
        intervals=intervals,
        headline=f"{column.name} {names}",
        evidence=tuple(evidence),
        advice=CAUSES["stale_policy" if column.name == "lag" else "column"].advice,
    )


def _sizes(levels: Sequence[LevelGap]) -> str:
    sizes = " and ".join(figures(level.size or 0.0) for level in levels)
    z = " and ".join(f"{level.z or 0.0:.0f}" for level in levels)
    if len(levels) == 1:
        return f"Its typical token is {sizes} times as far off as the others' (z {z})."
    return f"Their typical tokens are {sizes} times as far off as all others' (z {z})."


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
            f"From the lowest to the highest {column.name} the typical token's distance changes by a factor of "
            f"{figures(factor)} (z {abs(z):.0f}).",
        ),
        advice=CAUSES["stale_policy" if column.name == "lag" else "column"].advice,
    )


def _is_temperature(within: _Within) -> bool:
    line = within.every
    return is_sloped(line) and line.r2 >= LINE_R2 and within.curve >= MIN_CURVE


def _within(body: Floats) -> _Within:
    sums = dict(zip(TOKEN_SUMS, body.T, strict=True))
    high = {name: column[HIGH_BINS] for name, column in sums.items()}
    return _Within(_line(sums), _line(high), curve_of(sums))


def _line(sums: dict[str, Floats]) -> Line:
    """Of d on u; a level has no groups of rows."""
    return line_of_tokens(np.array([sums[name].sum() for name in LINE_SUMS_OF_TOKENS]))
