"""The story of a dump: what is wrong with it and why its policies differ, the same in every command.

`story_of` makes it of what the one search found (causes/search.py) and of the anomalies of files.  What is said first
is, in this order: an anomaly of files that voids the numbers, a cause of the gap that is a fault, a mean ratio that
cannot be, any other cause, and else that none stands out.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from rlcorr_cli.causes.diagnosis import (
    UNCLEAR,
    AnomalyFinding,
    CauseFinding,
    Certainty,
    Diagnosis,
    Impossible,
    legs_words,
    unexplained,
)
from rlcorr_cli.causes.table import ALL_CAUSES, CAUSES, NOISE, Effect
from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import Key
from rlcorr_cli.records.record import Record

MOST_ACTIONS = 3
FIX_RATIO = "Find out which column is wrong: `rlcorr explain ratio_mean` says how."


@frozen(kw_only=True)
class DataFault(Record):
    """What makes numbers or a correction meaningless until it is mended: its name, what it is and what to do."""

    name: str
    certainty: Certainty
    what: str
    do: str


@frozen(kw_only=True)
class Story(Record):
    """What a dump is to be told of first.

    first: the name of the first fault, else of the likely cause, else of a verdict that names none (no_cause, none,
    too_few).  effect: of the worst that was found.  certainty: of `first`.  headline: `first` in a sentence or two.
    faults: all that make numbers meaningless, the first one first.  do: at most three actions, most useful first.
    legs: between which of three policies the gap lies, in a sentence, where the dump has three.
    change: of what the change from the first step to the last is made, in a sentence, where the gap rises or falls.
    """

    first: str = UNCLEAR
    effect: Effect = "none"
    certainty: Certainty = "unclear"
    headline: str = "No cause stands out."
    faults: tuple[DataFault, ...] = ()
    do: tuple[str, ...] = ()
    legs: Annotated[str, Key(omit=True)] = ""
    change: Annotated[str, Key(omit=True)] = ""

    @property
    def fault_names(self) -> tuple[str, ...]:
        """Of all faults."""
        return tuple(fault.name for fault in self.faults)

    @property
    def to_fix(self) -> str:
        """The name of the cause or fault that is to be fixed; empty where none is known."""
        return self.first if self.first in ALL_CAUSES and ALL_CAUSES[self.first].effect != "none" else ""

    @property
    def act(self) -> str:
        """What to do about the gap: 'fix the cause (stale_policy)', 'find the cause'."""
        if self.to_fix == "column":  # whose name says nothing without the column's
            return "fix the cause"
        return f"fix the cause ({self.to_fix})" if self.to_fix else "find the cause"

    @property
    def is_fault(self) -> bool:
        """Whether numbers and corrections mean nothing until it is mended."""
        return self.effect == "fault"

    @property
    def voids(self) -> bool:
        """Whether no number of the dump means what its name says: a wrong file, or a mean ratio that cannot be."""
        return self.is_fault and self.first not in CAUSES


def story_of(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> Story:
    """The story of a dump with these anomalies of files and this diagnosis of its gap."""
    between = diagnosis.between_steps
    change = between.words if between is not None and between.established else ""
    return replace(_first(anomalies, diagnosis), legs=legs_words(diagnosis.legs), change=change)


def _first(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> Story:
    """The story as far as it is of one cause or of faults."""
    left = unexplained(anomalies, diagnosis)
    faults = tuple(_faults(left, diagnosis))
    cause = diagnosis.cause
    warnings = [each.fix for each in left if not each.voids]
    if faults:
        advice = (fault.do for fault in faults)
        return Story(
            first=faults[0].name,
            effect="fault",
            certainty=faults[0].certainty,
            headline=faults[0].what,
            faults=faults,
            do=_actions(advice),
        )
    if cause is None:
        return Story(
            first=diagnosis.verdict,
            effect="warning" if warnings else "none",
            certainty=diagnosis.certainty,
            headline=diagnosis.conclusion,
            do=_actions(warnings),
        )
    effect = ALL_CAUSES[cause.cause].effect
    others = [each for each in diagnosis.causes if not each.is_minor and each.cause != NOISE]
    return Story(
        first=cause.cause,
        effect="warning" if warnings or effect == "warning" else "none",
        certainty=cause.certainty,
        headline=cause_words(cause),
        do=_actions([*(each.advice for each in others or [cause]), *warnings]),
    )


def cause_words(cause: CauseFinding) -> str:
    """'Likely cause: stale rollouts (training moved on after these tokens were sampled). It explains at least 85% of
    the gap (the sum of squared log-ratios).'"""
    lead = "Cause" if cause.certainty == "proven" else "Likely cause"
    return f"{lead}: {cause.claim}. {cause.share_words}."


def impossible_words(impossible: Impossible) -> str:
    """'Impossible mean ratio: 0.992 (95% 0.990 to 0.995); it must be 1.'"""
    low, high = impossible.interval
    return f"Impossible mean ratio: {impossible.value:.3f} (95% {low:.3f} to {high:.3f}); it must be 1."


def _faults(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> Iterator[DataFault]:
    voiding = [each for each in anomalies if each.voids]
    for anomaly in voiding:
        lead = "Cause" if anomaly.certainty == "proven" else "Likely cause"
        shown = f" {os.path.basename(anomaly.path)}: {anomaly.evidence}." if anomaly in diagnosis.exact else ""
        what = f"{lead}: {anomaly.name}. {ALL_CAUSES[anomaly.name].meaning}{shown}"
        yield DataFault(name=anomaly.name, certainty=anomaly.certainty, what=what, do=anomaly.fix)
    # What a wrong file makes the gap look like is no second fault.  What explains a mean ratio that cannot be is one,
    # however little of the gap it makes.
    # What changed weights make of the places of a row is none, where they come first.
    impossible, of_weights = diagnosis.impossible, diagnosis.verdict == "other_weights"
    named = [
        each
        for each in ([] if voiding else diagnosis.causes)
        if ALL_CAUSES[each.cause].effect == "fault"
        and not (of_weights and ALL_CAUSES[each.cause].scope in ("trend", "tokens"))
        and (not each.is_minor or (impossible is not None and impossible.follows_from(each.cause)))
    ]
    for cause in sorted(named, key=lambda each: each.cause != diagnosis.verdict):
        yield DataFault(name=cause.cause, certainty=cause.certainty, what=cause_words(cause), do=cause.advice)
    if impossible is not None and not any(impossible.follows_from(cause.cause) for cause in named):
        what = f"{impossible_words(impossible)} {impossible.proves}"
        yield DataFault(name=impossible.metric, certainty="proven", what=what, do=FIX_RATIO)


def _actions(advice: Iterable[str]) -> tuple[str, ...]:
    """Each once, as many as are to be done at once."""
    return tuple(dict.fromkeys(filter(None, advice)))[:MOST_ACTIONS]
