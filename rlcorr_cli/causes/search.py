"""The search for the cause of a gap: from a sample of a dump's rows to a diagnosis.

Every command searches the same sample of the same dump by these functions, so all of them name the same cause.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import Diagnosis
from rlcorr_cli.causes.features import Context
from rlcorr_cli.causes.judge import diagnose
from rlcorr_cli.causes.mean_ratio import impossible_ratio
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.gap import gap_totals
from rlcorr_cli.measure.row_sampling import batch_of
from rlcorr_cli.measure.worst import largest
from rlcorr_cli.reading.row_places import all_resolved
from rlcorr_cli.totals.gap import WORST, GapTotals, WorstRow, WorstRows
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

FILE, STEP = "file", "step"
"""The column of levels that a dump's files are, and that of its steps."""


@dataclass(frozen=True)
class Search:
    """What a search came to, and the sums over the sample that it was made of, for pictures."""

    diagnosis: Diagnosis
    totals: GapTotals


def search(sample: RowSample, rows: NDArray[np.int64] | None = None) -> Search:
    """Search a sample, or some of its rows, for the cause of their gap."""
    if rows is not None:
        sample = sample.rows(rows)
    sample = sample.ordered
    totals, context = totals_of(sample), Context(*sample.columns)
    diagnosis = diagnose(totals, context)
    if diagnosis.hot_steps:
        diagnosis = _within(sample, diagnosis)
    return Search(replace(diagnosis, impossible=impossible_ratio(batch_of(sample)[0])), totals)


def _within(sample: RowSample, whole: Diagnosis) -> Diagnosis:
    """The diagnosis of a dump whose gap sits in some steps: what the rows of these steps show."""
    step = sample.levels[STEP]
    hot = [code for code, value in enumerate(step.values) if value in whole.hot_steps]
    rows = sample.rows(np.flatnonzero(np.isin(step.codes, hot)))
    within = diagnose(totals_of(rows), Context(*sample.columns))
    portion = within.sum_squares / whole.sum_squares if whole.sum_squares else 0.0
    if within.cause is None or within.cause.cause == "column":
        return whole
    grows = f"It grows with the step: {steps_words(whole.hot_steps)} {percent(portion)} of the gap."
    first, *others = (replace(each, share=each.share * portion, share_interval=None) for each in within.causes)
    at_steps = {"column": STEP, "levels": ", ".join(map(str, whole.hot_steps))}
    first = replace(first, parameters={**first.parameters, **at_steps}, evidence=(*first.evidence, grows))
    return replace(whole, verdict=within.verdict, conclusion="", causes=(first, *others))


def steps_words(steps: tuple[Any, ...]) -> str:
    """'step 11 holds', 'steps 10 and 11 hold'."""
    if len(steps) == 1:
        return f"step {steps[0]} holds"
    return f"steps {', '.join(map(str, steps[:-1]))} and {steps[-1]} hold"


def totals_of(sample: RowSample) -> GapTotals:
    """The sums over a sample's rows; where these are of several files, the file is a column of levels, too."""
    names = [os.path.basename(path) for path in sample.paths]
    if len(np.unique(sample.files)) > 1 and FILE not in sample.levels and not _files_are_of_steps(sample):
        sample = replace(sample, levels={**sample.levels, FILE: ColumnOfKeys.of(sample.files, names)})
    batch, around = batch_of(sample)
    sums = gap_totals(batch, around, np.arange(sample.n_rows), device=CPU)
    odd, far = (_worst(sample, values) for values in (sums.odd, sums.far))
    return replace(sums.totals, odd_rows=odd, far_rows=far)


def _files_are_of_steps(sample: RowSample) -> bool:
    """Whether every file holds rows of one step, so that the file tells no more than the step does."""
    step = sample.levels.get(STEP)
    return step is not None and len(np.unique(sample.files * len(step.values) + step.codes)) == len(
        np.unique(sample.files)
    )


def _worst(sample: RowSample, values: NDArray[np.float64]) -> WorstRows:
    """The rows of the largest values that are known, with their places counted from the start of each file."""
    known = np.flatnonzero(~np.isnan(values))
    rows = known[largest(values[known], WORST)].tolist()
    places = all_resolved([sample.place(row) for row in rows])
    return WorstRows.of(
        WorstRow(float(values[row]), place, sample.name(row), int(sample.n_valid[row]))
        for row, place in zip(rows, places, strict=True)
    )
