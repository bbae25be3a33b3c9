"""What a check says: on a terminal, as JUnit XML, and as GitHub's annotations and step summary.

On a terminal what fails comes first, then warnings, each with its fix, then one line of counts; what is fine is only
counted, and every line names its section, metric, value and rule, so that `grep` finds it whole.  JUnit has one suite,
one case for each rule and section: a case that warns passes, and says so in its output, and what no rule judged is the
suite's output.  GitHub's annotations go to stderr, so that stdout holds the result alone; the runner reads both.
"""

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import OutputError
from rlcorr_cli.results.checked import Checked, Measurements
from rlcorr_cli.results.rules import Finding, worst_first
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    Block,
    Cell,
    Column,
    Document,
    Note,
    Section,
    ending,
    json_text,
    number_cell,
    tabulated,
)
from rlcorr_cli.show.inputs import input_facts, joined, last_change
from rlcorr_cli.show.numbers import NOTHING, more, plural
from rlcorr_cli.show.stdout import clean, disarmed, write_stderr

SHOWN = 8
"""How many sections of a broken rule are shown; the others are counted."""
LONGEST, WHOLE = 24, 10**9
"""Characters of a section's name on a terminal, and in JUnit XML: systems tell cases apart by them."""
LOOKS = {"fail": "bold red", "warn": "yellow"}
RESULTS = {"fail": "fails", "warn": "warns", "ok": "passes", "no data": "no data"}


def document(checked: Checked) -> Document:
    """What a check says."""
    measurements, suspects = checked.measurements, any(note.startswith("?") for note in checked.notes)
    is_clean = checked.passed and not checked.counts["warned"] and not suspects
    return Document(
        lines=_lines(checked),
        command=checked.command,
        title=_dump_name(measurements),
        summary=joined(plural(checked.n_rules, "rule"), last_change(checked.inputs)),
        headline=counts(checked),
        status="fail" if not checked.passed else "ok" if is_clean else "warn",
        reasons=[clean(note) for note in checked.notes],
        sections=_sections(checked),
        json=json_text(checked.to_dict),
        records=(_record(finding) for finding in checked.findings),
    )


def _sections(checked: Checked) -> Iterator[Section]:
    """Every finding, the worst first, then what was read."""
    ordered = [*worst_first(checked.findings), *(finding for finding in checked.findings if not finding.broken)]
    columns = (
        Column(heading="section", cell=lambda finding: Cell(clean(where(finding.key, WHOLE)))),
        Column(heading="metric", cell=lambda finding: Cell(clean(finding.metric)), words=True),
        Column(heading="value", cell=lambda finding: number_cell(finding.value, status=_status(finding))),
        Column(heading="rule", cell=lambda finding: Cell(finding.rule), words=True),
        Column(heading="result", cell=lambda finding: Cell(RESULTS[finding.status]), words=True),
        Column(heading="remedy", cell=lambda finding: Cell(clean(finding.remedy or "")), words=True),
    )
    table = tabulated(ordered, columns, most=MOST_IN_FILE, noun="check")
    yield Section(heading="Checks", tables=[table], sorts=True)
    yield from ending(input_facts(checked.inputs), [])


def _status(finding: Finding) -> str:
    return finding.status if finding.broken else ""


def _record(finding: Finding) -> dict[str, object]:
    """A line of the table form."""
    values = (where(finding.key, WHOLE), finding.metric, finding.value, finding.rule, finding.status, finding.remedy)
    return dict(zip(("section", "metric", "value", "rule", "status", "remedy"), values, strict=True))


def _lines(checked: Checked) -> Iterator[Block]:
    broken = worst_first(checked.findings)
    for note in checked.notes:
        yield Note(clean(note), "yellow" if note.startswith("?") else "dim")
    if checked.unjudged:
        flags = " and ".join(f"--fail-on {flag}" for flag in checked.unjudged)
        yield Note(f"No rule judges what ? shows: {flags} would fail on it.")
    if checked.notes:
        yield BLANK
    for _, same in groupby(broken, key=lambda finding: (finding.metric, finding.rule, finding.status)):
        findings = list(same)
        first = findings[0]
        for finding in findings[:SHOWN]:
            text = clean(f"{where(finding.key)}: {finding.message}")
            yield Note(text, lead=f"{first.status:4}  ", lead_look=LOOKS[first.status])
        rest = [f"{more(len(findings) - SHOWN, 'group')}; --json has all."] if len(findings) > SHOWN else []
        for text in (*rest, *([first.remedy] if first.remedy else [])):
            yield Note(clean(text), indent=8)
    if broken:
        yield BLANK
    yield Note(clean(counts(checked)), "bold" if checked.passed else LOOKS["fail"], lead="  ", indent=0)


def where(key: Mapping[str, Any], longest: int = LONGEST) -> str:
    """A section's name: 'whole dump', or 'step 4, source math'."""
    parts = (
        f"{_short(name, longest)} {_short(NOTHING if value is None else value, longest)}" for name, value in key.items()
    )
    return ", ".join(parts) or "whole dump"


def _short(value: object, longest: int) -> str:
    text = clean(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def counts(checked: Checked) -> str:
    """The last line: how many checks passed or failed, of how many rules and groups."""
    n, groups = checked.counts, len(checked.measurements.sections) - 1
    head = f"Passed: {n['passed']:,}" if checked.passed else f"Failed: {n['failed']:,}"
    warned = f", {n['warned']:,} warned" if n["warned"] else ""
    rules = "1 rule" if n["rules"] == 1 else f"{n['rules']:,} rules"
    inside = {0: "", 1: ", 1 group"}.get(groups, f", {groups:,} groups")
    return f"{head} of {len(checked.findings):,} checks{warned}; {rules} on {_dump_name(checked.measurements)}{inside}."


def _dump_name(measurements: Measurements) -> str:
    """The name of the dump, also where its saved report is checked."""
    first = measurements.inputs[0].path
    name = "stdin" if first == "-" else clean(os.path.basename(first))
    return name if len(measurements.inputs) == 1 else f"{name} {more(len(measurements.inputs) - 1, 'file')}"


# JUnit XML


def junit(checked: Checked) -> bytes:
    """The JUnit XML of a check's findings.  What XML cannot hold is written as an escape."""
    numbers = {"tests": str(len(checked.findings)), "failures": str(checked.counts["failed"]), "errors": "0"}
    root = ET.Element("testsuites", {"name": "rlcorr", **numbers})
    suite = ET.SubElement(root, "testsuite", {"name": f"rlcorr {checked.command}", **numbers, "skipped": "0"})
    for finding in checked.findings:
        _add(suite, finding)
    if checked.notes:
        ET.SubElement(suite, "system-out").text = "\n".join(clean(note) for note in checked.notes)
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _add(suite: ET.Element, finding: Finding) -> None:
    section, message = where(finding.key, WHOLE), clean(finding.message)
    name = clean(f"{finding.metric} {finding.rule}")
    case = ET.SubElement(suite, "testcase", classname=f"rlcorr.{section}", name=name)
    text = f"{section}: {message} {clean(finding.remedy or '')}".rstrip()
    if finding.status == "fail":
        ET.SubElement(case, "failure", message=f"{section}: {message}", type="fail").text = text
    elif finding.status == "warn":
        ET.SubElement(case, "system-out").text = f"warning: {text}"


# GitHub Actions

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
    return f"::{command} title={_property(f'rlcorr {checked.command}{subject}')}::{_data(message)}"


def annotate(checked: Checked) -> None:
    """Write the annotations to stderr; a closed stderr changes no result."""
    write_stderr(annotations(checked))


def summary(checked: Checked) -> str:
    """The step's summary in Markdown: counts, notes, and a table of findings, the worst first."""
    from rlcorr_cli.show.forms.texts import escaped

    ordered = [*worst_first(checked.findings), *(finding for finding in checked.findings if finding.status == "ok")]
    rows = [_row(finding) for finding in ordered[:ROWS]]
    rest = [f"and {len(ordered) - ROWS:,} more.", ""] if len(ordered) > ROWS else []
    notes = [line for note in checked.notes for line in (escaped(clean(note)), "")]
    heads = ["| | section | metric | found | remedy |", "|---|---|---|---|---|"]
    return "\n".join(["### rlcorr check", "", escaped(counts(checked)), "", *notes, *heads, *rows, "", *rest])


def _row(finding: Finding) -> str:
    from rlcorr_cli.show.forms.texts import escaped

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


def _data(value: object) -> str:
    """What stands behind the :: of a workflow command."""
    return disarmed(clean(str(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")))


def _property(value: object) -> str:
    """A property of a workflow command, such as its title."""
    return _data(value).replace(":", "%3A").replace(",", "%2C")
