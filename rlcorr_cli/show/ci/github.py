"""What GitHub Actions shows of a check: annotations from log lines, and a table on the run's page.

Annotations go to stderr, so that stdout holds the result alone; the runner reads both.
"""

from itertools import chain, islice
from pathlib import Path

from rlcorr_cli.errors import OutputError
from rlcorr_cli.results.checked import Checked
from rlcorr_cli.results.rules import Finding, worst_first
from rlcorr_cli.show.markup import command_data, command_property, escaped
from rlcorr_cli.show.stdout import clean, write_stderr
from rlcorr_cli.show.terminal.checked import counts, where

ANNOTATIONS = 10
"""GitHub shows this many errors of a step, and as many warnings."""
ROWS = 100
MARKS = {"fail": "❌ fail", "warn": "⚠️ warn", "ok": "✅ pass"}


def annotations(checked: Checked) -> str:
    """A workflow command for each broken rule and section, and each note, up to what is shown."""
    broken = worst_first(checked.findings)
    errors = (_finding_annotation(checked, "error", finding) for finding in broken if finding.status == "fail")
    notes = (_annotation(checked, "warning", "", note) for note in checked.notes)
    warnings = (_finding_annotation(checked, "warning", finding) for finding in broken if finding.status == "warn")
    shown = (*islice(errors, ANNOTATIONS), *islice(chain(notes, warnings), ANNOTATIONS))
    return "".join(f"{line}\n" for line in shown)


def _finding_annotation(checked: Checked, command: str, finding: Finding) -> str:
    section = where(finding.key)
    message = f"{section}: {finding.message} {finding.remedy or ''}".rstrip()
    return _annotation(checked, command, f": {finding.metric}, {section}", message)


def _annotation(checked: Checked, command: str, subject: str, message: str) -> str:
    """A workflow command.  subject: what stands in the title after 'rlcorr check'."""
    return f"::{command} title={command_property(f'rlcorr {checked.command}{subject}')}::{command_data(message)}"


def annotate(checked: Checked) -> None:
    """Write the annotations to stderr; a closed stderr changes no result."""
    write_stderr(annotations(checked))


def summary(checked: Checked) -> str:
    """The step's summary in Markdown: counts, notes, and a table of findings, the worst first."""
    ordered = [*worst_first(checked.findings), *(finding for finding in checked.findings if finding.status == "ok")]
    rows = [_row(finding) for finding in ordered[:ROWS]]
    more = [f"and {len(ordered) - ROWS:,} more.", ""] if len(ordered) > ROWS else []
    notes = [line for note in checked.notes for line in (escaped(clean(note)), "")]
    heads = ["| | section | metric | found | remedy |", "|---|---|---|---|---|"]
    return "\n".join(["### rlcorr check", "", escaped(counts(checked)), "", *notes, *heads, *rows, "", *more])


def _row(finding: Finding) -> str:
    texts = (where(finding.key), finding.metric, finding.message, finding.remedy or "")
    return f"| {MARKS[finding.status]} | " + " | ".join(escaped(clean(text)) for text in texts) + " |"


def append_summary(checked: Checked, path: str) -> None:
    """Append the summary to the file that the runner shows as the step's summary."""
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{summary(checked)}\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"Cannot write the step summary {path}: {reason}."
        raise OutputError(
            message, "GITHUB_STEP_SUMMARY names it; unset it, or name a file that can be written."
        ) from None
