"""What GitHub Actions shows of a check: annotations from log lines, and a table on the run's page.

Annotations go to stderr, so that stdout holds the result alone; the runner reads both.
"""

import sys
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from rlcorr_cli.errors import OutputError
from rlcorr_cli.present.markup import command_data, command_property, escaped
from rlcorr_cli.present.stdout import clean
from rlcorr_cli.present.terminal.checked import counts, where
from rlcorr_cli.report.checked import Checked
from rlcorr_cli.rules.judge import Finding, worst_first

ANNOTATIONS = 10
"""Of errors, and as many of warnings, are all that GitHub shows of a step."""
ROWS = 100
MARKS = {"fail": "❌ fail", "warn": "⚠️ warn", "ok": "✅ pass"}


def annotations(checked: Checked) -> str:
    """A workflow command for each broken rule and section, and each note, up to what is shown."""
    broken = worst_first(checked.findings)
    errors = (_annotation("error", *_told(one)) for one in broken if one.status == "fail")
    notes = (_annotation("warning", "", note) for note in checked.notes)
    warnings = (_annotation("warning", *_told(one)) for one in broken if one.status == "warn")
    shown = (*islice(errors, ANNOTATIONS), *islice(chain(notes, warnings), ANNOTATIONS))
    return "".join(f"{one}\n" for one in shown)


def _told(finding: Finding) -> tuple[str, str]:
    """What it is of, and what it says."""
    section = where(finding.key)
    return f": {finding.metric}, {section}", f"{section}: {finding.says} {finding.remedy or ''}".rstrip()


def _annotation(command: str, of: str, said: str) -> str:
    return f"::{command} title={command_property(f'rlcorr check{of}')}::{command_data(said)}"


def annotate(checked: Checked) -> None:
    """The annotations on stderr; one that is closed changes no result."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(annotations(checked))
            sys.stderr.flush()


def summary(checked: Checked) -> str:
    """What no rule judged, and a Markdown table, the worst first."""
    ordered = [*worst_first(checked.findings), *(one for one in checked.findings if one.status == "ok")]
    rows = [_row(one) for one in ordered[:ROWS]]
    more = [f"and {len(ordered) - ROWS:,} more.", ""] if len(ordered) > ROWS else []
    notes = [line for note in checked.notes for line in (escaped(clean(note)), "")]
    heads = ["| | section | metric | found | remedy |", "|---|---|---|---|---|"]
    return "\n".join(["### rlcorr check", "", escaped(counts(checked)), "", *notes, *heads, *rows, "", *more])


def _row(finding: Finding) -> str:
    texts = (where(finding.key), finding.metric, finding.says, finding.remedy or "")
    return f"| {MARKS[finding.status]} | " + " | ".join(escaped(clean(text)) for text in texts) + " |"


def append_summary(checked: Checked, path: str) -> None:
    """The table at the end of the step's summary."""
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{summary(checked)}\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"Cannot write the step summary {path}: {reason}."
        raise OutputError(
            message, "GITHUB_STEP_SUMMARY names it; unset it, or name a file that can be written."
        ) from None
