"""What `check` judges: the numbers of a dump just measured, or of a saved report; and what came of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from os.path import basename
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.report.report import SCHEMA, Report
from rlcorr_cli.rules.judge import Finding, Section


@dataclass(frozen=True)
class Subject:
    """inputs: as the JSON report has them.  sections: the whole dump, then its groups.  notes: see `doubts`."""

    inputs: tuple[Mapping[str, Any], ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """A subject held to n_rules rules.  notes: what no rule judged."""

    subject: Subject
    n_rules: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no rule that fails is broken."""
        return not self.counts["failed"]

    @property
    def counts(self) -> dict[str, int]:
        """rules, and how many findings failed, warned and passed."""
        states = [finding.status for finding in self.findings]
        found = {
            name: states.count(status) for name, status in (("failed", "fail"), ("warned", "warn"), ("passed", "ok"))
        }
        return {"rules": self.n_rules, **found}

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "inputs": [dict(one) for one in self.subject.inputs],
            "status": "passed" if self.passed else "failed",
            "counts": self.counts,
            "findings": [finding.to_dict() for finding in self.findings],
            "notes": list(self.notes),
        }


def subject_of(report: Report) -> Subject:
    """A report's subject; under a profile it has the peer's names beside the canonical ones."""
    data = replace(report, pictures=None).to_dict()
    keys = [{}, *(group["key"] for group in data["groups"])]
    groups = (report.whole, *report.groups)
    sections = [Section(key, {**one.metrics, **one.values}) for key, one in zip(keys, groups, strict=True)]
    return Subject(tuple(data["inputs"]), tuple(sections), doubts(report.suspicions))


def doubts(suspicions: Iterable[Suspected]) -> tuple[str, ...]:
    """Why numbers that pass may yet mean nothing, to be told and not judged: a copied column passes every rule."""
    return tuple(f"? {one.name}  {basename(one.path)}: {one.evidence}. {one.cure}" for one in suspicions)
