"""A DiagnosedDump: why the two policies of a dump differ, of the whole and of each group; as values, for any form."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, Diagnosis
from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE, NOISE
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records import HIDDEN, Key, Output, Record, computed
from rlcorr_cli.results.groups import Counts, GroupKey, Inputs, Suspicions
from rlcorr_cli.totals.gap import GapTotals


@dataclass(frozen=True, kw_only=True)
class DiagnosedGroup(Record):
    """The whole dump, with an empty key, or one group of its rows.  counts: rows, sequences, tokens, masked tokens.
    totals: what the diagnosis was made of, for pictures."""

    key: GroupKey
    counts: Counts
    diagnosis: Annotated[Diagnosis, Key(inline=True)]
    totals: Annotated[GapTotals, HIDDEN]


@dataclass(frozen=True, kw_only=True)
class DiagnosedDump(Output):
    """Causes of a dump's gap; see the module.  anomalies: of whole files; one that voids the numbers comes before every
    cause.  columns: the dump's names of (rollout, training).  problems, notes: as of a Report."""

    inputs: Inputs
    groups: tuple[DiagnosedGroup, ...]
    anomalies: Suspicions
    problems: Problems
    notes: tuple[str, ...]

    columns: Annotated[tuple[str, str], HIDDEN]
    whole: Annotated[DiagnosedGroup, HIDDEN]
    seconds: Annotated[float, HIDDEN] = 0.0

    @property
    @computed(after="inputs")
    def counts(self) -> Counts:
        """Of the whole dump."""
        return self.whole.counts

    @property
    @computed(after="counts", inline=True)
    def diagnosis(self) -> Diagnosis:
        """Of the whole dump."""
        return self.whole.diagnosis

    @property
    @computed(after="diagnosis")
    def verdict(self) -> str:
        """The name of the anomaly that voids the numbers, else of the whole's verdict."""
        return self.whole.diagnosis.verdict if self.voiding is None else self.voiding.name

    @property
    def voiding(self) -> AnomalyFinding | None:
        """The first anomaly that voids the numbers."""
        return next((each for each in self.anomalies if each.voids), None)

    @property
    def causes(self) -> tuple[CauseFinding, ...]:
        """Of the whole dump."""
        return self.whole.diagnosis.causes

    def failing(self, names: Collection[str]) -> str | None:
        """The verdict, of the dump or else of a group, that is one of these names; ANY_CAUSE is all but NOISE."""
        verdicts = (self.verdict, *(group.diagnosis.verdict for group in self.groups))
        return next((verdict for verdict in verdicts if _is_among(verdict, names)), None)


def _is_among(verdict: str, names: Collection[str]) -> bool:
    return verdict in names or (ANY_CAUSE in names and verdict in ALL_CAUSES and verdict != NOISE)
