"""A DiagnosedDump: why the two policies of a dump differ, of the whole and of each group; as values, for any form.

A DiagnosisRun holds the statistics of one run, or of several together, of which `diagnosis_of` makes the diagnosis.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Annotated, Any, ClassVar

import numpy as np

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, Diagnosis, unexplained
from rlcorr_cli.causes.features import Yardstick
from rlcorr_cli.causes.gap import GapTotals
from rlcorr_cli.causes.search import Search, search
from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE, NOISE
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records.fields import HIDDEN, Key, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.build import course_of_sample
from rlcorr_cli.results.course import Course
from rlcorr_cli.results.groups import (
    Counts,
    GroupKey,
    Inputs,
    Suspicions,
    amount_words,
    key_order,
    of_inputs,
    with_bad_rows,
)
from rlcorr_cli.results.saved_runs import SavedRun, together
from rlcorr_cli.results.story import Story, story_of
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.row_sample import RowSample

MOST_GROUPS = 100
"""Groups of one dump that are diagnosed each; each takes a search of its rows of the sample."""
COUNTS = ("rows", "sequences", "empty_sequences", "tokens", "masked_tokens")


@frozen(kw_only=True)
class DiagnosedGroup(Record):
    """The whole dump, with an empty key, or one group of its rows.  counts: rows, sequences, tokens, masked tokens.
    totals: what the diagnosis was made of, for pictures."""

    key: GroupKey
    counts: Counts
    diagnosis: Annotated[Diagnosis, Key(inline=True)]
    totals: Annotated[GapTotals, HIDDEN]


@frozen(kw_only=True)
class DiagnosedDump(Output):
    """Causes of a dump's gap; see the module.  anomalies: of whole files; one that voids the numbers comes before every
    cause.  columns: the dump's names of (rollout, training).  course: as of a Report, where all rows were looked at.
    problems, notes: as of a Report."""

    OUTPUT = "diagnose"
    inputs: Inputs
    groups: tuple[DiagnosedGroup, ...]
    course: Annotated[Course | None, Key(about="Null where rows were left out of the sample.", omit=True)] = None
    anomalies: Suspicions
    problems: Problems
    notes: tuple[str, ...]

    columns: Annotated[tuple[str, str], HIDDEN]
    whole: Annotated[DiagnosedGroup, HIDDEN]
    seconds: Annotated[float, HIDDEN] = 0.0
    totals: Annotated["DiagnosisRun | None", HIDDEN] = None
    """What it was made of, where that was asked for."""
    fail_on: Annotated[tuple[str, ...], HIDDEN] = ()
    """Names of causes that fail; ANY_CAUSE is all but NOISE."""

    @property
    @computed(after="inputs")
    def counts(self) -> Counts:
        """Of the whole dump."""
        return self.whole.counts

    @property
    @computed(after="counts")
    def story(self) -> Story:
        """What is to be told of the dump first."""
        return story_of(self.anomalies, self.whole.diagnosis)

    @property
    @computed(after="story", inline=True)
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

    @property
    def failing(self) -> str | None:
        """The verdict, of the dump or else of a group, that is one of `fail_on`."""
        verdicts = (self.verdict, *(group.diagnosis.verdict for group in self.groups))
        any_cause = {*ALL_CAUSES} - {NOISE} if ANY_CAUSE in self.fail_on else set[str]()
        return next((verdict for verdict in verdicts if verdict in any_cause.union(self.fail_on)), None)


GroupCounts = dict[str, int]
"""COUNTS of a group, by name."""


@frozen(kw_only=True)
class DiagnosisRun(SavedRun):
    """What one run of `diagnose` read, or several together.

    counts: of each group, by its values of the columns of `of.groups`.  sample: of the rows.  of: where both come from.
    row_contents: a sample of the rows by what they hold, where it was asked for.
    """

    command: ClassVar[str] = "diagnose"
    counts: Mapping[tuple[Any, ...], GroupCounts]
    sample: RowSample
    of: Provenance
    row_contents: KeySample | None = None

    def __post_init__(self) -> None:
        if any(set(of_group) != set(COUNTS) or min(of_group.values()) < 0 for of_group in self.counts.values()):
            raise ValueError("a group's counts are not those of a diagnosis")
        if any(len(key) != len(self.of.groups) for key in self.counts):
            raise ValueError("a group has another key than its columns")
        if set(self.of.groups) - set(self.sample.groups) and self.sample.n_rows:
            raise ValueError("the sample of rows does not tell its groups")

    @property
    def provenance(self) -> Provenance:
        """Where counts and sample come from."""
        return self.of

    @property
    def contents(self) -> KeySample | None:
        """A sample of the rows by what they hold."""
        return self.row_contents

    def grouped_by(self, columns: Sequence[str]) -> "DiagnosisRun":
        """The same by some of the columns that it is grouped by."""
        places = self.of.places_of(columns)
        counts: dict[tuple[Any, ...], GroupCounts] = {}
        for key, of_group in self.counts.items():
            add_counts(counts, tuple(key[place] for place in places), of_group)
        return replace(self, counts=counts, of=replace(self.of, groups=tuple(columns)))

    @classmethod
    def added(cls, runs: "Iterable[DiagnosisRun]") -> "DiagnosisRun":
        """The sum of runs, taken one at a time."""
        every: list[DiagnosisRun] = []
        counts: dict[tuple[Any, ...], GroupCounts] = {}
        samples: list[RowSample] = []
        for run in runs:
            if every:
                every[0].of.check_same(run.of)
            for key, of_group in run.counts.items():
                add_counts(counts, key, of_group)
            samples = [reduce(add, (*samples, run.sample))]
            every.append(replace(run, counts={}, sample=RowSample()))
        contents = [run.row_contents for run in every if run.row_contents is not None]
        return replace(
            every[0],
            **together(every),
            counts=counts,
            sample=samples[0],
            row_contents=reduce(add, contents) if contents else None,
        )


def add_counts(groups: dict[tuple[Any, ...], GroupCounts], key: tuple[Any, ...], counts: GroupCounts) -> None:
    """Add to the counts of one group, in place; a UsageError for more groups than are diagnosed."""
    known = groups.get(key)
    groups[key] = counts if known is None else {name: known[name] + counts[name] for name in COUNTS}
    if len(groups) > MOST_GROUPS:
        raise UsageError(
            f"There are over {MOST_GROUPS} groups, more than are diagnosed.",
            "Group by a column of fewer values; ⟦by COLUMN⟧ looks at its levels within one diagnosis.",
        )


def diagnosis_of(
    run: DiagnosisRun, clean: Yardstick | None = None, classes: Mapping[int, str] | None = None
) -> DiagnosedDump:
    """The diagnosis of a run; a dump without rows or without a valid token is a DataError.  clean, classes: as of
    `search`."""
    of_groups = run.counts.values()
    good = {name: sum(of_group[name] for of_group in of_groups) for name in COUNTS}
    counts = with_bad_rows(good, run.problems.n_rows, run.inputs)
    whole = search(run.sample, clean=clean, classes=classes)
    by, sampled = run.of.groups, run.sample.groups_of(run.of.groups) if run.of.groups else {}
    groups = [
        _diagnosed_group(
            dict(zip(by, key, strict=True)),
            of_group,
            search(run.sample, sampled.get(key, np.zeros(0, np.int64)), clean, classes),
        )
        for key, of_group in sorted(run.counts.items(), key=lambda item: key_order(item[0]))
        if by
    ]
    rollout, train, _ = run.sample.columns
    return DiagnosedDump(
        inputs=run.inputs,
        columns=(rollout, train),
        whole=_diagnosed_group({}, counts, whole),
        groups=tuple(groups),
        course=None if run.sample.level else course_of_sample(run.sample),
        anomalies=unexplained(run.anomalies, whole.diagnosis),
        problems=run.problems.by_class(),
        notes=(*run.notes, *run.problems.changed_notes),
    )


def _diagnosed_group(key: Mapping[str, Any], counts: GroupCounts, found: Search) -> DiagnosedGroup:
    return DiagnosedGroup(key=key, counts=dict(counts), diagnosis=found.diagnosis, totals=found.totals)
