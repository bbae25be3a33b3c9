"""What `check` found, on a terminal: what fails first, then warnings, each with its fix, then one line of counts.

What is fine is only counted.  Every line names its section, metric, value and rule, so that `grep` finds it whole.
"""

import os
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.results.checked import Checked, Measurements
from rlcorr_cli.results.rules import Finding, worst_first
from rlcorr_cli.show.numbers import NOTHING, more
from rlcorr_cli.show.stdout import clean, render

SHOWN = 8
"""How many sections of a broken rule are shown; the others are counted."""
LONGEST = 24
STYLES = {"fail": "bold red", "warn": "yellow"}


def print_checked(checked: Checked) -> None:
    """Print the findings on stdout."""
    render(lambda console: _draw(console, checked))


def _draw(console: Console, checked: Checked) -> None:
    broken = worst_first(checked.findings)
    for note in checked.notes:
        console.print(Padding(Text(clean(note), style="yellow" if note.startswith("?") else "dim"), (0, 2)))
    if checked.unjudged:
        flags = " and ".join(f"--fail-on {flag}" for flag in checked.unjudged)
        console.print(Padding(Text(f"No rule judges what ? shows: {flags} would fail on it."), (0, 2)))
    if checked.notes:
        console.print()
    for _, same in groupby(broken, key=lambda finding: (finding.metric, finding.rule, finding.status)):
        _print_rule(console, list(same))
    if broken:
        console.print()
    style = "bold" if checked.passed else STYLES["fail"]
    console.print(Padding(Text(clean(counts(checked)), style=style), (0, 0, 0, 2)))


def _print_rule(console: Console, findings: list[Finding]) -> None:
    """One rule's sections, a line each, and its fix."""
    first = findings[0]
    for finding in findings[:SHOWN]:
        line = Text(f"{first.status:4}  ", style=STYLES[first.status])
        line.append(clean(f"{where(finding.key)}: {finding.message}"), style="default")
        console.print(Padding(line, (0, 2)))
    rest = [f"{more(len(findings) - SHOWN, 'group')}; --json has all."] if len(findings) > SHOWN else []
    for text in (*rest, *([first.remedy] if first.remedy else [])):
        console.print(Padding(Text(clean(text)), (0, 2, 0, 8)))


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
