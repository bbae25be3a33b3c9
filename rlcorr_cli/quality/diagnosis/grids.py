"""The grid of numbers that a column is stored on: always told, and the cause where its steps make the gap."""

from dataclasses import dataclass

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding, Fact
from rlcorr_cli.quality.diagnosis.wording import percent
from rlcorr_cli.totals.gap import GRID_SUMS
from rlcorr_cli.totals.histogram import Floats

MIN_VALUES, ON_GRID = 64, 0.99
VERDICT_SHARE = 0.5
GRIDS = {"bf16": "bf16", "fp16": "fp16", "decimals_3": "3 decimals", "decimals_4": "4 decimals"}
"""In this order: what lies on the coarser grid lies on the finer ones too."""
DECIMAL_STEPS = {"decimals_3": 1e-3, "decimals_4": 1e-4}


@dataclass(frozen=True)
class Grid:
    """A column, its grid (of GRIDS), and the share of the gap that rounding to it makes: a step's square over 12."""

    column: str
    grid: str
    share: float


def grids(case: Case) -> list[Grid]:
    """Of the columns that lie on one."""
    columns = zip((case.context.rollout, case.context.train), case.totals.grids, strict=True)
    return [grid for name, sums in columns if (grid := _grid(case, name, sums)) is not None]


def _grid(case: Case, column: str, sums: Floats) -> Grid | None:
    named: dict[str, float] = dict(zip(GRID_SUMS, map(float, sums), strict=True))
    if named["n"] < MIN_VALUES:
        return None
    grid = next((name for name in GRIDS if named[name] >= ON_GRID * named["n"]), None)
    if grid is None:
        return None
    step2 = named["n"] * DECIMAL_STEPS[grid] ** 2 / 12 if grid in DECIMAL_STEPS else named[f"step2_{grid}"]
    return Grid(column, grid, case.features.share(step2))


def grid_facts(case: Case) -> tuple[Fact, ...]:
    """One sentence a column."""
    return tuple(
        Fact(
            "grid",
            f"{grid.column} is stored in {GRIDS[grid.grid]}: its rounding makes {percent(grid.share)} of the gap.",
        )
        for grid in grids(case)
    )


def grid_cause(case: Case) -> CauseFinding | None:
    """The column whose rounding makes at least VERDICT_SHARE of the gap."""
    grid = max(grids(case), key=lambda grid: grid.share, default=None)
    if grid is None or grid.share < VERDICT_SHARE:
        return None
    return CauseFinding(
        cause="grid",
        share=grid.share,
        parameters={"column": grid.column, "grid": grid.grid},
        headline=f"{grid.column} is rounded to {GRIDS[grid.grid]}",
        evidence=(
            f"At least {percent(ON_GRID)} of its values lie on that grid, whose steps alone (step^2 / 12 a token) make "
            f"{percent(grid.share)} of the gap.",
        ),
        advice=CAUSES["grid"].advice,
    )
