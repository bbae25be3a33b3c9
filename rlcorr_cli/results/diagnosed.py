"""A DiagnosedDump: why the two policies of a dump differ, of the whole and of each group; as values, for any form."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, Diagnosis
from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE, NOISE
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.results.report import SCHEMA, plain_key
from rlcorr_cli.totals.gap import GapTotals


@dataclass(frozen=True, kw_only=True)
class DiagnosedGroup:
    """The whole dump, with an empty key, or one group of its rows.  counts: rows, sequences, tokens, masked tokens.
    totals: what the diagnosis was made of, for pictures."""

    key: Mapping[str, Any]
    counts: Mapping[str, int]
    diagnosis: Diagnosis
    totals: GapTotals

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of a group."""
        return {"key": plain_key(self.key), "counts": dict(self.counts), **self.diagnosis.to_dict()}


@dataclass(frozen=True, kw_only=True)
class DiagnosedDump:
    """Causes of a dump's gap; see the module.  anomalies: of whole files; one that voids the numbers comes before every
    cause.  columns: the dump's names of (rollout, training).  problems, notes: as of a Report."""

    inputs: tuple[Input, ...]
    columns: tuple[str, str]
    whole: DiagnosedGroup
    groups: tuple[DiagnosedGroup, ...]
    anomalies: tuple[AnomalyFinding, ...]
    problems: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]
    seconds: float = 0.0

    @property
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

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "inputs": [source.to_dict() for source in self.inputs],
            "counts": dict(self.whole.counts),
            **self.whole.diagnosis.to_dict(),
            "verdict": self.verdict,
            "groups": [group.to_dict() for group in self.groups],
            "suspicions": [anomaly.to_dict() for anomaly in self.anomalies],
            "problems": {name: dict(problem) for name, problem in self.problems.items()},
            "notes": list(self.notes),
        }


def _is_among(verdict: str, names: Collection[str]) -> bool:
    return verdict in names or (ANY_CAUSE in names and verdict in ALL_CAUSES and verdict != NOISE)
