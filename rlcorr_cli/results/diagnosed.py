"""A DiagnosedDump: why the two policies of a dump differ, of the whole and of each group; as values, for any form.

A DiagnosisRun holds the statistics of one run, or of several together, of which `diagnosis_of` makes the diagnosis.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Annotated, Any, ClassVar

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, Diagnosis, unexplained
from rlcorr_cli.causes.features import Context
from rlcorr_cli.causes.judge import diagnose
from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE, NOISE
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.errors import UsageError
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records.fields import HIDDEN, Key, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.groups import (
    Counts,
    GroupKey,
    Inputs,
    Suspicions,
    amount_words,
    key_order,
    of_inputs,
    refuse_empty,
)
from rlcorr_cli.results.saved_runs import SavedRun, together
from rlcorr_cli.totals.gap import GapTotals
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample

MOST_GROUPS = 100
"""Groups of one dump that are diagnosed each; each takes up to 6 MB."""
COUNTS = ("rows", "sequences", "empty_sequences", "tokens", "masked_tokens")


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
    totals: Annotated["DiagnosisRun | None", HIDDEN] = None
    """What it was made of, where that was asked for."""

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

    def __repr__(self) -> str:
        cause = next((each for each in self.causes if each.cause == self.verdict), None)
        share = "" if cause is None else f" ({cause.bound.replace('_', ' ')} {percent(cause.share)} of the gap)"
        words = f"{amount_words(self.counts)}, verdict {self.verdict}{share}"
        return f"<DiagnosedDump of {of_inputs(self.inputs)}: {words}>"

    def failing(self, names: Collection[str]) -> str | None:
        """The verdict, of the dump or else of a group, that is one of these names; ANY_CAUSE is all but NOISE."""
        verdicts = (self.verdict, *(group.diagnosis.verdict for group in self.groups))
        return next((verdict for verdict in verdicts if _is_among(verdict, names)), None)


def _is_among(verdict: str, names: Collection[str]) -> bool:
    return verdict in names or (ANY_CAUSE in names and verdict in ALL_CAUSES and verdict != NOISE)


@dataclass(frozen=True)
class GroupGaps:
    """A group's counts and statistics.  + adds both."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    totals: GapTotals = field(default_factory=GapTotals)

    def __post_init__(self) -> None:
        if set(self.counts) != set(COUNTS) or min(self.counts.values()) < 0:
            raise ValueError("a group's counts are not those of a diagnosis")

    def check_unpacked(self) -> None:
        """A ValueError of statistics that do not belong together."""
        self.totals.check()

    def __add__(self, other: "GroupGaps") -> "GroupGaps":
        counts = {name: self.counts[name] + other.counts[name] for name in COUNTS}
        return GroupGaps(counts, self.totals + other.totals)


@dataclass(frozen=True, kw_only=True)
class DiagnosisRun(SavedRun):
    """What one run of `diagnose` added up, or several together.

    groups: by their values of the columns of `of.groups`.  of: where the statistics come from.  context: what the dump
    calls its columns.  sample: of the rows by what they hold, where it was asked for.
    """

    command: ClassVar[str] = "diagnose"
    groups: Mapping[tuple[Any, ...], GroupGaps]
    of: Provenance
    context: Context
    sample: KeySample | None = None

    @property
    def provenance(self) -> Provenance:
        """What the statistics are of."""
        return self.of

    @property
    def contents(self) -> KeySample | None:
        """A sample of the rows by what they hold."""
        return self.sample

    def grouped_by(self, columns: Sequence[str]) -> "DiagnosisRun":
        """The same by some of the columns that it is grouped by."""
        places = self.of.places_of(columns)
        groups: dict[tuple[Any, ...], GroupGaps] = {}
        for key, gaps in self.groups.items():
            add_group(groups, tuple(key[place] for place in places), gaps)
        return replace(self, groups=groups, of=replace(self.of, groups=tuple(columns)))

    def unplaced(self) -> "DiagnosisRun":
        """Itself: it knows no shards."""
        return self

    @classmethod
    def added(cls, runs: "Iterable[DiagnosisRun]") -> "DiagnosisRun":
        """The sum of runs, taken one at a time."""
        every: list[DiagnosisRun] = []
        groups: dict[tuple[Any, ...], GroupGaps] = {}
        for run in runs:
            if every:
                every[0].of.check_same(run.of)
            for key, gaps in run.groups.items():
                add_group(groups, key, gaps)
            every.append(replace(run, groups={}))
        samples = [run.sample for run in every if run.sample is not None]
        return replace(every[0], **together(every), groups=groups, sample=reduce(add, samples) if samples else None)


def add_group(groups: dict[tuple[Any, ...], GroupGaps], key: tuple[Any, ...], gaps: GroupGaps) -> None:
    """Add to one of the groups, in place; a UsageError for more groups than are kept."""
    groups[key] = groups[key] + gaps if key in groups else gaps
    if len(groups) > MOST_GROUPS:
        raise UsageError(
            f"There are over {MOST_GROUPS} groups, more than are diagnosed.",
            "Group by a column of fewer values; --by COLUMN looks at its levels within one diagnosis.",
        )


def diagnosis_of(run: DiagnosisRun) -> DiagnosedDump:
    """The diagnosis of a run; a dump without rows or without a valid token is a DataError."""
    whole = sum(run.groups.values(), GroupGaps())
    n_bad_rows = run.problems.n_rows
    counts = {**whole.counts, "rows": whole.counts["rows"] + n_bad_rows, "bad_rows": n_bad_rows}
    refuse_empty(counts, run.inputs)
    diagnosed = DiagnosedGroup(
        key={}, counts=counts, diagnosis=diagnose(whole.totals, run.context), totals=whole.totals
    )
    by = run.of.groups
    groups = [
        DiagnosedGroup(
            key=dict(zip(by, key, strict=True)),
            counts=dict(gaps.counts),
            diagnosis=diagnose(gaps.totals, run.context),
            totals=gaps.totals,
        )
        for key, gaps in sorted(run.groups.items(), key=lambda item: key_order(item[0]))
        if by
    ]
    return DiagnosedDump(
        inputs=run.inputs,
        columns=(run.context.rollout, run.context.train),
        whole=diagnosed,
        groups=tuple(groups),
        anomalies=unexplained(run.anomalies, diagnosed.diagnosis),
        problems=run.problems.by_class(),
        notes=run.notes,
    )
