"""What every file of saved totals says of its run beside the totals, and how several such runs are one.

`analyze`, `compare`, `diagnose` and `sweep` each make their result of a SavedRun of their own (RunTotals,
ComparisonRun, DiagnosisRun, SweepRun), which `-o NAME.rlcorr` writes.  Runs of one command add: `added` of its class
takes them one at a time, and the result of the sum is that of one run over all their rows.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Self

from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.bad_rows import BadRowCounts
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample


@frozen(kw_only=True)
class SavedRun(ABC):
    """One run, or several together.  inputs, problems, anomalies: as a Report has them.  notes: on how the dump was
    read and what was chosen."""

    command: ClassVar[str]
    inputs: tuple[Input, ...]
    notes: tuple[str, ...] = ()
    problems: BadRowCounts = field(default_factory=BadRowCounts)
    anomalies: tuple[AnomalyFinding, ...] = ()

    @property
    @abstractmethod
    def provenance(self) -> Provenance:
        """By which plan, settings and columns the totals were measured."""

    @property
    @abstractmethod
    def contents(self) -> KeySample | None:
        """A sample of the rows by what they hold; None where none was taken."""

    @abstractmethod
    def grouped_by(self, columns: Sequence[str]) -> Self:
        """The same grouped by some of its columns; a UsageError where it lacks one."""

    @abstractmethod
    def unplaced(self) -> Self:
        """Without the shards that it covers, whose paths mean nothing on another machine."""

    @classmethod
    @abstractmethod
    def added(cls, runs: Iterable[Self]) -> Self:
        """The sum of runs of equal provenance, taken one at a time."""

    @property
    def n_budgets(self) -> int:
        """How many bounds are found from the data (budgets): runs with any do not add."""
        return 0


@frozen(kw_only=True)
class MeasuredRun(SavedRun):
    """A SavedRun that holds a Measured."""

    measured: Measured

    @property
    def provenance(self) -> Provenance:
        """By which plan, settings and columns the totals were measured."""
        assert self.measured.provenance is not None
        return self.measured.provenance

    @property
    def contents(self) -> KeySample | None:
        """A sample of the rows by what they hold; None without a bootstrap."""
        return None if self.measured.whole is None else self.measured.whole.contents

    @classmethod
    def added(cls, runs: Iterable[Self]) -> Self:
        """The sum of runs, taken one at a time."""
        gathering, every = MeasuredSum(), list[Self]()
        for run in runs:
            gathering.add(run.measured)
            every.append(replace(run, measured=Measured(provenance=run.measured.provenance)))
        return replace(every[0], **together(every), measured=gathering.measured)

    def unplaced(self) -> Self:
        """Without the shards that it covers, whose paths mean nothing on another machine."""
        return replace(self, measured=replace(self.measured, covered=frozenset(), rows={}))


def together(runs: Iterable[SavedRun]) -> dict[str, Any]:
    """The fields of a SavedRun, of all these runs as one."""
    runs = list(runs)
    return {
        "inputs": tuple(sorted((source for run in runs for source in run.inputs), key=lambda source: source.path)),
        "notes": tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        "problems": sum((run.problems for run in runs), BadRowCounts()),
        "anomalies": summed_anomalies(finding for run in runs for finding in run.anomalies),
    }


def summed_anomalies(findings: Iterable[AnomalyFinding]) -> tuple[AnomalyFinding, ...]:
    """Each anomaly once, with the first file that shows it and the number of all of them."""
    files: Counter[str] = Counter()
    first: dict[str, AnomalyFinding] = {}
    for finding in findings:
        files[finding.name] += finding.n_files
        first.setdefault(finding.name, finding)
    return tuple(replace(finding, n_files=files[name]) for name, finding in first.items())
