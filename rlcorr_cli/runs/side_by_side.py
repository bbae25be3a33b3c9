"""compare_dumps(): several dumps held against each other under one plan, each in one reading."""

import time
from collections.abc import Sequence
from dataclasses import replace

from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.side_by_side import SideBySide, side_by_side
from rlcorr_cli.runs.analyze import Watch
from rlcorr_cli.runs.compare import compare_dump, lacking, opened
from rlcorr_cli.runs.scan import Computing


def compare_dumps(
    requests: Sequence[ReadRequest],
    chosen: ChosenPlan | None,
    others: Sequence[ChosenPlan],
    *,
    computing: Computing | None = None,
    seed: int | None = 0,
    watch: Watch | None = None,
) -> SideBySide:
    """Compare dumps under a plan, if there is one.  others: the plans that one is recommended of, beside it.

    The plan comes first, so that its mode is that of every number, and it is preferred to one that does as well.
    """
    started = time.perf_counter()
    plans = [*(() if chosen is None else (chosen,)), *others]
    # All are opened before the first is read, so that what is missing is told at once.
    dumps = [opened(request, plans) for request in requests]
    if chosen is not None:
        _refuse_lacking(dumps, chosen.plan)
    comparisons = [
        compare_dump(dump, plans, named=False, computing=computing, seed=seed, watch=watch) for dump in dumps
    ]
    result = side_by_side(comparisons, None if chosen is None else chosen.plan)
    notes = (*(chosen.notes if chosen is not None else ()), *result.notes)
    return replace(result, notes=notes, seconds=time.perf_counter() - started)


def _refuse_lacking(dumps: Sequence[Dump], plan: Plan) -> None:
    """A plan that one dump has not the columns for leaves nothing to stand beside the others."""
    for dump in dumps:
        if why := lacking(dump, plan):
            raise DataError(
                f"{dump.sources[0].path}: {plan.name} cannot be applied: {why}.",
                "Name another with --preset, or the column with --map.",
            )
