"""ReportIndex: saved reports beside each other, each in a row, as values."""

from typing import Annotated

from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import Form, Key
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.groups import Counts, Inputs, of_inputs
from rlcorr_cli.results.story import Story
from rlcorr_cli.results.verdict import Level
from rlcorr_cli.totals.families import Value


@frozen(kw_only=True)
class IndexedReport(Record):
    """One saved report: where it is, what its dump was, and what `check` says of it.

    page: the .html of the same name beside it, if there is one, as a path from the folder that the index is written to.
    k3_kl, seq_ess: of the whole dump.  steps: how many it has; last_k3_kl: of the last.  kept_fraction: the share of
    tokens that the plan's rejections keep; null for a plan that rejects nothing.  failed, warned: the rules and causes
    that `check` fails on, or warns of, in the whole dump or a part.
    """

    report: str
    page: Annotated[str | None, Key(omit=True)]
    inputs: Inputs
    plan: str
    counts: Counts
    steps: int
    level: Level
    story: Story
    k3_kl: Value
    last_k3_kl: Value
    seq_ess: Value
    kept_fraction: float | None
    failed: tuple[str, ...]
    warned: tuple[str, ...]

    @property
    def changed(self) -> str:
        """When the newest file of the dump was last changed, as 2026-11-22T20:21Z; empty where nobody knows."""
        return max((file.modified for file in self.inputs if file.modified is not None), default="")


@frozen(kw_only=True)
class ReportIndex(Output):
    """Saved reports, by the time of their dumps' last change.  notes: on files that were left out."""

    OUTPUT = "index"
    reports: Annotated[tuple[IndexedReport, ...], Form(least=1)]
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> Inputs:
        """The files of all dumps."""
        return tuple(file for each in self.reports for file in each.inputs)

    def __repr__(self) -> str:
        n_failing = sum(bool(each.failed) for each in self.reports)
        return (
            f"<ReportIndex of {of_inputs(self.inputs)}: {plural(len(self.reports), 'report')}, {n_failing:,} failing>"
        )
