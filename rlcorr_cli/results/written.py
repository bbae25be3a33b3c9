"""What `convert` did; what a filter run is asked for (`Target`), and what it did (`Filtered`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.objective import Divisor, Objective
from rlcorr_cli.records.fields import HIDDEN, Form, Key, Scalar, computed
from rlcorr_cli.records.record import Output, Record, Result
from rlcorr_cli.results.groups import Inputs, of_inputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.totals.row_keys import GroupRows


@frozen(kw_only=True)
class Converted(Output):
    """Rows in canonical columns.

    columns: of the output, name -> type.  unmatched: rows of the dump and of the joined one without a partner in the
    other; null where none was joined.
    """

    OUTPUT = "convert"
    inputs: Inputs
    path: Annotated[Path, Key(name="output")]
    columns: dict[str, str]
    rows: int
    n_bytes: Annotated[int, Key(name="bytes")]
    unmatched: tuple[int, int] | None = None
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        rows = plural(self.rows, "row")
        return f"<Converted {rows} of {of_inputs(self.inputs)}, written to {str(self.path)!r}>"


ROWS_PER_FILE = 100_000
"""How many rows each file of an output directory holds."""


@frozen(kw_only=True)
class Target:
    """Where the corrected rows go.

    path: None for a dry run.  keep_rejected: rows without a token left stay in.  rejected: where those rows go
    instead.  resample: how many rows to draw in proportion to their weights (None: no drawing), with `seed`.
    objective: whose coefficients are written as well; divides_coefs: by each batch's divisor.  force: whether rows are
    written of a dump that has a fault, too.
    """

    path: Path | None
    keep_rejected: bool = False
    rejected: Path | None = None
    overwrite: bool = False
    rows_per_file: int = ROWS_PER_FILE
    resample: int | None = None
    seed: int = 0
    objective: Objective | None = None
    divides_coefs: bool = False
    force: bool = False


RowsIn = Annotated[
    Mapping[str, int], Form(keys=("rows_in", "rows_out", "rows_dropped", "rows_skipped", "rows_quarantined"))
]


@frozen
class Written(Record):
    """A file or directory of rows."""

    path: Path
    n_bytes: Annotated[int, Key(name="bytes")]


@frozen(kw_only=True)
class Coefs(Record):
    """What rlcorr_coef is of, and what each training batch's sums are divided by."""

    objective: Objective
    divided: bool
    divisor: Divisor
    batch_by: str | None
    batches: tuple[tuple[Scalar, float], ...]


@frozen(kw_only=True)
class PromptCounts(Record):
    """Prompts that several rows share: how many there were, how many have a row left, and how many of these lost one.

    exact: whether they were counted; of more than 262,144 a sample tells.
    """

    before: int
    after: int
    incomplete: int
    exact: bool = True

    @classmethod
    def of(cls, groups: GroupRows | None) -> "PromptCounts | None":
        """None where no prompt has several rows."""
        if groups is None or groups.before.max(initial=0) < 2:
            return None
        left = groups.after > 0
        counts = (len(left), int(left.sum()), int((left & (groups.after < groups.before)).sum()))
        before, after, incomplete = (round(n / groups.share) for n in counts)
        return cls(before=before, after=after, incomplete=incomplete, exact=groups.share == 1)


@frozen(kw_only=True)
class FilterOutput(Record):
    """Where the rows went.  rejected_rows: by the rejection that took them."""

    written: Written | None
    rejected_output: Path | None
    quarantine: Path | None
    rows: Annotated[RowsIn, Key(inline=True)]
    rejected_rows: Mapping[str, int]
    empty_steps: Annotated[tuple[Scalar, ...], Key(about="Steps of which no row went out.", omit=True)]
    prompts: Annotated[PromptCounts | None, Key(about="Null where no prompt has several rows.")]
    coefs: Coefs | None


@frozen(kw_only=True)
class Filtered(Result):
    """What a run did: the report of the dump under the plan, and where its rows went.

    rows_in = rows_out + rows_dropped + rows_bad; with a resampling, rows_out counts the draws, and rows_dropped the
    rows never drawn.  quarantine: where bad rows went, None if nowhere.  empty_steps: of n_steps, those of which no row
    went out.  prompts: None with a resampling, too.
    """

    OUTPUT = "filter"
    report: Annotated[Report, Key(inline=True)]
    target: Annotated[Target, HIDDEN]
    rows_in: Annotated[int, HIDDEN]
    rows_out: Annotated[int, HIDDEN]
    rows_dropped: Annotated[int, HIDDEN]
    rows_bad: Annotated[int, HIDDEN]
    quarantine: Annotated[Path | None, HIDDEN]
    n_bytes: Annotated[int, HIDDEN]
    rejected_rows: Annotated[Mapping[str, int], HIDDEN]
    n_steps: Annotated[int, HIDDEN] = 0
    empty_steps: Annotated[tuple[Scalar, ...], HIDDEN] = ()
    prompts: Annotated[PromptCounts | None, HIDDEN] = None

    @property
    def rows(self) -> RowsIn:
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
    def coefs(self) -> "Coefs | None":
        """What the coefficients are of; None where none are written."""
        made = self.report.objective
        if self.target.objective is None or made is None:
            return None
        return Coefs(
            objective=made.objective,
            divided=self.target.divides_coefs,
            divisor=made.objective.divisor,
            batch_by=made.batch_by,
            batches=tuple((batch.batch, batch.divisor) for batch in made.batches),
        )

    @property
    def is_stopped(self) -> bool:
        """Whether a fault of the dump stops a run that writes."""
        return self.report.story.is_fault and not self.target.force

    @property
    @computed(after="report")
    def output(self) -> FilterOutput:
        """Where the rows went."""
        path, rejected = self.target.path, self.target.rejected
        return FilterOutput(
            written=None if path is None else Written(path, self.n_bytes),
            rejected_output=rejected,
            quarantine=self.quarantine,
            rows=self.rows,
            rejected_rows=self.rejected_rows,
            empty_steps=self.empty_steps,
            prompts=self.prompts,
            coefs=self.coefs,
        )

    def __repr__(self) -> str:
        where = "nothing written" if self.target.path is None else f"written to {str(self.target.path)!r}"
        return f"<Filtered {self.rows_out:,} of {self.rows_in:,} rows, {where}, {self.report!r}>"
