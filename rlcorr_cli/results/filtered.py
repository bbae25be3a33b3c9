"""What a filter run is asked for (`Target`), and what it did (`Filtered`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.results.objective import plain
from rlcorr_cli.results.report import Report

ROWS_PER_FILE = 100_000
"""How many rows each file of an output directory holds."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the corrected rows go.

    path: None for a dry run.  keep_rejected: rows without a token left stay in.  rejected: where those rows go
    instead.  resample: how many rows to draw in proportion to their weights (None: no drawing), with `seed`.
    unused_weights: write (and draw by) weights that the plan's loss does not take, too.  objective: whose coefficients
    are written as well; divides_coefs: by each batch's divisor.
    """

    path: Path | None
    keep_rejected: bool = False
    rejected: Path | None = None
    overwrite: bool = False
    rows_per_file: int = ROWS_PER_FILE
    resample: int | None = None
    seed: int = 0
    unused_weights: bool = False
    objective: Objective | None = None
    divides_coefs: bool = False


@dataclass(frozen=True, kw_only=True)
class Filtered:
    """What a run did: the report of the dump under the plan, and where its rows went.

    rows_in = rows_out + rows_dropped + rows_bad; with a resampling, rows_out counts the draws, and rows_dropped the
    rows never drawn.  quarantine: where bad rows went, None if nowhere.
    """

    report: Report
    target: Target
    rows_in: int
    rows_out: int
    rows_dropped: int
    rows_bad: int
    quarantine: Path | None
    n_bytes: int
    rejected_rows: Mapping[str, int]

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows that came in, went out, and were left out, by name."""
        quarantined = 0 if self.quarantine is None else self.rows_bad
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rows_dropped": self.rows_dropped,
            "rows_skipped": self.rows_bad - quarantined,
            "rows_quarantined": quarantined,
        }

    @property
    def coefs(self) -> dict[str, Any] | None:
        """What the coefficients are of, and what each training batch's sums are divided by; None where none are."""
        made = self.report.objective
        if self.target.objective is None or made is None:
            return None
        return {
            "objective": made.objective.to_dict(),
            "divided": self.target.divides_coefs,
            "divisor": made.objective.divisor,
            "batch_by": made.batch_by,
            "batches": [[plain(batch.batch), batch.divisor] for batch in made.batches],
        }

    def __repr__(self) -> str:
        return f"<Filtered: {self.rows_out:,} of {self.rows_in:,} rows out, {self.report!r}>"

    def to_dict(self) -> dict[str, Any]:
        """The report's JSON form with an `output` beside it."""
        target = self.target
        written = None if target.path is None else {"path": str(target.path), "bytes": self.n_bytes}
        output = {
            "written": written,
            "rejected_output": target.rejected and str(target.rejected),
            "quarantine": self.quarantine and str(self.quarantine),
            **self.rows,
            "rejected_rows": dict(self.rejected_rows),
            "coefs": self.coefs,
        }
        return {**self.report.to_dict(), "output": output}
