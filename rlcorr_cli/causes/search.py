"""The search for the cause of a gap: from a sample of a dump's rows to a diagnosis.

Every command searches the same sample of the same dump by these functions, so all of them name the same cause.
"""

import os
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import Diagnosis
from rlcorr_cli.causes.features import Context
from rlcorr_cli.causes.judge import diagnose
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.gap import gap_totals
from rlcorr_cli.measure.row_sampling import batch_of
from rlcorr_cli.measure.worst import largest
from rlcorr_cli.reading.row_places import all_resolved
from rlcorr_cli.totals.gap import WORST, GapTotals, WorstRow, WorstRows
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

FILE = "file"
"""The column of levels that a dump's files are."""


@dataclass(frozen=True)
class Search:
    """What a search came to, and the sums over the sample that it was made of, for pictures."""

    diagnosis: Diagnosis
    totals: GapTotals


def search(sample: RowSample, rows: NDArray[np.int64] | None = None) -> Search:
    """Search a sample, or some of its rows, for the cause of their gap."""
    if rows is not None:
        sample = sample.rows(rows)
    totals = totals_of(sample.ordered)
    return Search(diagnose(totals, Context(*sample.columns)), totals)


def totals_of(sample: RowSample) -> GapTotals:
    """The sums over a sample's rows; where these are of several files, the file is a column of levels, too."""
    names = [os.path.basename(path) for path in sample.paths]
    if len(np.unique(sample.files)) > 1 and FILE not in sample.levels:
        sample = replace(sample, levels={**sample.levels, FILE: ColumnOfKeys.of(sample.files, names)})
    batch, around = batch_of(sample)
    sums = gap_totals(batch, around, np.arange(sample.n_rows), device=CPU)
    odd, far = (_worst(sample, values) for values in (sums.odd, sums.far))
    return replace(sums.totals, odd_rows=odd, far_rows=far)


def _worst(sample: RowSample, values: NDArray[np.float64]) -> WorstRows:
    """The rows of the largest values that are known, with their places counted from the start of each file."""
    known = np.flatnonzero(~np.isnan(values))
    rows = known[largest(values[known], WORST)].tolist()
    places = all_resolved([sample.place(row) for row in rows])
    return WorstRows.of(
        WorstRow(float(values[row]), place, sample.name(row), int(sample.n_valid[row]))
        for row, place in zip(rows, places, strict=True)
    )
