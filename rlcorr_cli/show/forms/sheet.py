"""What `diff` and dumps side by side hand to the forms: a document of one table a section."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.show import forms
from rlcorr_cli.show.document import Cause, Document, Panel, Picture, Table, ending, json_text
from rlcorr_cli.show.document import Section as Part

__all__ = ["Panel", "Section", "Sheet", "write"]


@dataclass(frozen=True)
class Section:
    """A table under its heading; about: one sentence on it."""

    heading: str
    about: str
    rows: Table


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What a result says, as of a Document."""

    title: str
    summary: str
    headline: str
    status: str
    sections: Sequence[Section]
    panels: Sequence[Panel]
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str]
    document: Mapping[str, Any]
    records: Sequence[Mapping[str, object]]
    reasons: Sequence[str] = ()
    causes: Sequence[Cause] = ()


def write(sheet: Sheet, path: Path, staging: Outputs) -> None:
    """Stage a sheet in the form of the path's suffix."""
    tables = [Part(heading=each.heading, about=[each.about], tables=[each.rows], sorts=True) for each in sheet.sections]
    facts = [fact for fact in sheet.facts if fact[0] != "rlcorr"]
    document = Document(
        lines=(),
        title=sheet.title,
        summary=sheet.summary,
        causes=sheet.causes,
        headline=sheet.headline,
        status=sheet.status,
        reasons=sheet.reasons,
        sections=[Part(pictures=[Picture(panels=sheet.panels)]), *tables, *ending(facts, sheet.notes)],
        json=json_text(lambda: sheet.document),
        records=sheet.records,
    )
    forms.write_document(document, path, staging)
