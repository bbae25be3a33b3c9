"""What a check says: on a terminal, as JUnit XML, and as GitHub's annotations and step summary.

On a terminal what fails comes first, then warnings, each with its fix, then one line of counts; what is fine is only
counted, and every line names its section, metric, value and rule, so that `grep` finds it whole; the steps that break
one rule are one line.  JUnit has one suite,
one case for each rule and section: a case that warns passes, and says so in its output, and what no rule judged is the
suite's output.  GitHub's annotations go to stderr, so that stdout holds the result alone; the runner reads both.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from rlcorr_cli.causes.wording import and_list, steps_named
from rlcorr_cli.errors import OutputError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.results.checked import Checked
from rlcorr_cli.results.rules import Finding, shown, worst_first
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
from rlcorr_cli.show.forms.texts import md_escaped
from rlcorr_cli.show.inputs import input_facts, last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import NOTHING, more, plural
from rlcorr_cli.show.stdout import clean, clean_cut, disarmed, write_stderr
from rlcorr_cli.show.words import APART, step_named

SHOWN = 8
"""How many sections of a broken rule are shown; the others are counted."""
LONGEST, WHOLE = 24, 10**9
"""Characters of a section's name on a terminal, and in JUnit XML: systems tell cases apart by them."""
LOOKS = {"fail": "bold red", "warn": "yellow"}
RESULTS = {"fail": "fails", "warn": "warns", "ok": "passes", "no data": "no data"}


def document(checked: Checked) -> Document:
    """What a check says."""
    measurements = checked.measurements
    is_clean = checked.passed and not checked.counts["warned"] and not checked.accepted
    return Document(
        lines=_lines(checked),
        command=checked.command,
        title=name_of_inputs(measurements.inputs),
        summary=with_commas(plural(checked.n_rules, "rule"), last_change(checked.inputs)),
        trend=last_step_words(checked),
        headline=counts_line(checked),
        status="fail" if not checked.passed else "ok" if is_clean else "warn",
        reasons=[clean(text) for text in (*checked.notes, baseline_update(checked), rules_words(checked)) if text],
        sections=_sections(checked),
        json=json_text(checked.to_dict),
        records=(_finding_record(finding) for finding in checked.findings),
    )


def _sections(checked: Checked) -> Iterator[Section]:
    """What to do about the broken rules, every finding, the worst first, and what was read."""
    todo = [
        (line.status, f"{line.where}: {clean(line.message)}", " ".join(rest) if line is lines[-1] else "")
        for lines, rest in _broken_rules(checked)
        for line in lines
    ]
    if todo:
        yield Section(heading="What to do", todo=todo)
    broken, others = worst_first(checked.findings), [finding for finding in checked.findings if not finding.broken]
    columns = (
        Column(heading="section", cell=lambda finding: Cell(clean(section_name(finding.key, WHOLE)))),
        Column(heading="metric", cell=lambda finding: Cell(clean(finding.metric)), words=True),
        Column(heading="value", cell=lambda each: number_cell(each.value, status=each.status if each.broken else "")),
        Column(heading="rule", cell=lambda finding: Cell(finding.rule), words=True),
        Column(heading="result", cell=lambda finding: Cell(RESULTS[finding.status]), words=True),
    )
    for heading, findings in (("Checks that fail or warn", broken), ("Other checks" if broken else "Checks", others)):
        if findings:
            table = tabulated(findings, columns, most=MOST_IN_FILE, noun="check")
            yield Section(heading=heading, tables=[table], sorts=True, folds=findings is others)
    yield from ending(input_facts(checked.inputs), [])


def _broken_rules(checked: Checked) -> "Iterator[tuple[list[Line], list[str]]]":
    """The broken rules, the worst first: the first lines of each, and what follows them: how many more there are, and
    the remedy, which is not said twice."""
    said: dict[str, str] = {}
    worst = finding_lines(checked, worst_first(checked.findings))
    for _, same in groupby(worst, key=lambda line: (line.metric, line.rule, line.status)):
        lines = list(same)
        first = lines[0]
        rest = [f"{more(len(lines) - SHOWN, 'group')}; --json has all."] if len(lines) > SHOWN else []
        if first.remedy in said:
            above = said[first.remedy]
            rest.append(f"Same remedy as {'above' if above == first.metric else above}.")
        elif first.remedy:
            said[first.remedy] = first.metric
            rest.append(first.remedy)
        yield lines[:SHOWN], [clean(text) for text in rest]


def _finding_record(finding: Finding) -> dict[str, object]:
    """A line of the table form."""
    names = ("metric", "value", "rule", "status", "remedy")
    return {"section": section_name(finding.key, WHOLE), **{name: getattr(finding, name) for name in names}}


def _lines(checked: Checked) -> Iterator[Block]:
    if last := last_step_words(checked):
        yield Note(last, "bold")
        yield BLANK
    for note in checked.notes:
        yield Note(clean(note), "dim")
    if checked.notes:
        yield BLANK
    for lines, rest in _broken_rules(checked):
        for line in lines:
            said_of = f"{line.where}: {clean(line.message)}"
            yield Note(said_of, lead=f"{line.status:5}", lead_look=LOOKS[line.status], aside=True)
        for text in rest:
            yield Note(text, indent=8)
    if any(finding.broken for finding in checked.findings):
        yield BLANK
    if updated := baseline_update(checked):
        yield Note(updated)
    if rules := rules_words(checked):
        yield Note(clean(rules))
    yield Note(clean(counts_line(checked)), "bold" if checked.passed else LOOKS["fail"], lead="  ", indent=0)


@frozen(kw_only=True)
class Line:
    """A finding, or those of one rule on several steps, in words.

    message, remedy: as the finding has them, since a file of rules may write lines; each form cleans them in its way.
    """

    status: str
    where: str
    metric: str
    rule: str
    message: str
    remedy: str


def finding_lines(checked: Checked, findings: Iterable[Finding]) -> Iterator[Line]:
    """The findings in their order, but those of one rule on steps in one line."""
    column = checked.measurements.column
    for _, same in groupby(findings, key=lambda finding: (finding.metric, finding.rule, finding.status)):
        of_rule = list(same)
        of_steps = [each for each in of_rule if list(each.key) == [column] and each.value is not None]
        if len(of_steps) == 1 and of_steps[0].key[column] not in checked.measurements.ranges:
            of_steps = []
        together = set(map(id, of_steps))  # to compare findings takes their square
        yield from (_finding_line(finding) for finding in of_rule if id(finding) not in together)
        if of_steps:
            first, values = of_steps[0], sorted(each.value for each in of_steps if each.value is not None)
            ranges = checked.measurements.ranges
            steps = [step for each in of_steps for step in ranges.get(each.key[column], (each.key[column],))]
            named = clean(steps_named(steps, column))
            ends = dict.fromkeys(shown(value, first.low, first.high) for value in (values[0], values[-1]))
            message = f"{first.metric} is {' to '.join(ends)}, should be {first.rule}."
            yield replace(_finding_line(first), where=named, message=message)


def _finding_line(finding: Finding) -> Line:
    return Line(
        status=finding.status,
        where=section_name(finding.key),
        metric=clean(finding.metric),
        rule=finding.rule,
        message=finding.message,
        remedy=finding.remedy or "",
    )


def last_step_words(checked: Checked) -> str:
    """The verdict on the last step; empty where there is none."""
    last = checked.last_step
    if last is None:
        return ""
    it, s = ("they", "") if last.step in checked.measurements.ranges else ("it", "s")
    verbs = (f"fail{s}", last.failed), (f"warn{s} of", last.warned)
    breaks = [f"{verb} {and_list(metrics)}" for verb, metrics in verbs if metrics]
    column = checked.measurements.column
    if not breaks and any(finding.key == {column: last.step} for finding in checked.findings):
        breaks = [f"pass{s and 'es'} every rule"]
    name = step_named(clean(column), clean(last.step))
    return f"The last, {name}: {APART[last.level]}{f'; {it} ' if breaks else ''}{' and '.join(breaks)}."


def baseline_update(checked: Checked) -> str:
    """What became of the baseline; empty where it was not to be updated."""
    update = checked.baseline
    if update is None:
        return ""
    path = clean(update.path)
    if not update.written:
        return f"{path} was not {'written' if update.is_first else 'updated'}, because the check failed."
    if update.is_first:
        return f"There was no baseline to compare with: {path} was written from this run."
    return f"{path} was updated: this run is the new baseline."


def section_name(key: Mapping[str, Any], longest: int = LONGEST) -> str:
    """A section's name: 'whole dump', 'steps 3 to 8', or 'step 4, source math'."""
    values = ((name, NOTHING if value is None else value) for name, value in key.items())
    parts = (step_named(clean_cut(name, longest), clean_cut(value, longest)) for name, value in values)
    return ", ".join(parts) or "whole dump"


def counts_line(checked: Checked) -> str:
    """The last line: how many checks passed or failed, of how many rules and groups."""
    n, sections = checked.counts, checked.measurements.sections[1:]
    column = checked.measurements.column
    of_steps = [section.key[column] for section in sections if list(section.key) == [column]]
    steps = sum(len(checked.measurements.ranges.get(step, (step,))) for step in of_steps)
    parts = ((len(sections) - len(of_steps), "group"), (steps, "step"))
    head = f"Passed: {n['passed']:,}" if checked.passed else f"Failed: {n['failed']:,}"
    warned = f", {n['warned']:,} warned" if n["warned"] else ""
    rules = "1 rule" if n["rules"] == 1 else f"{n['rules']:,} rules"
    inside = "".join(f", {plural(n_of, noun)}" for n_of, noun in parts if n_of)
    accepted = f", {' and '.join(checked.accepted)} accepted" if checked.accepted else ""
    name = name_of_inputs(checked.inputs)
    return f"{head} of {len(checked.findings):,} checks{warned}{accepted}; {rules} on {name}{inside}."


NOT_JUDGED = "too few tail values"
"""Why a rule judges nothing."""


def rules_words(checked: Checked) -> str:
    """How many of the rules are broken, wherever that is, and which judge nothing; empty where all is well."""
    n, of = checked.n_rules, list(checked.broken.values())
    verbs = [(of.count(status), status) for status in ("fail", "warn") if of.count(status)]
    does = " and ".join(f"{n_of} {verb}{'s' if n_of == 1 else ''}" for n_of, verb in verbs)
    broken = f"Of {n:,} rules {does}." if does and n > 1 and len(checked.measurements.sections) > 1 else ""
    lacking = [f"Not judged: {metric} ({NOT_JUDGED})." for metric in checked.not_judged]
    return " ".join([*([broken] if broken else []), *lacking])


# JUnit XML


def junit(checked: Checked) -> bytes:
    """The JUnit XML of a check's findings.  What XML cannot hold is written as an escape."""
    n_skipped, n_failed = len(checked.not_judged), checked.counts["failed"]
    numbers = {"tests": str(len(checked.findings) + n_skipped), "failures": str(n_failed), "errors": "0"}
    root = ET.Element("testsuites", {"name": "rlcorr", **numbers})
    suite = ET.SubElement(
        root, "testsuite", {"name": f"rlcorr {checked.command}", **numbers, "skipped": str(n_skipped)}
    )
    for finding in checked.findings:
        _add_test_case(suite, finding)
    for metric in checked.not_judged:
        case = ET.SubElement(suite, "testcase", classname="rlcorr.whole dump", name=metric)
        ET.SubElement(case, "skipped", message=NOT_JUDGED)
    if outside := [clean(text) for text in (*checked.notes, baseline_update(checked)) if text]:
        ET.SubElement(suite, "system-out").text = "\n".join(outside)
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _add_test_case(suite: ET.Element, finding: Finding) -> None:
    section, message = section_name(finding.key, WHOLE), clean(finding.message)
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
    broken = list(finding_lines(checked, worst_first(checked.findings)))
    errors = (_line_annotation(checked, "error", line) for line in broken if line.status == "fail")
    notes = (_annotation(checked, "warning", "", note) for note in checked.notes)
    warnings = (_line_annotation(checked, "warning", line) for line in broken if line.status == "warn")
    shown = (*islice(errors, ANNOTATIONS), *islice(chain(notes, warnings), ANNOTATIONS))
    return "".join(f"{line}\n" for line in shown)


def _line_annotation(checked: Checked, command: str, line: Line) -> str:
    message = f"{line.where}: {line.message} {line.remedy}".rstrip()
    return _annotation(checked, command, f": {line.metric}, {line.where}", message)


def _annotation(checked: Checked, command: str, subject: str, message: str) -> str:
    """A workflow command.  subject: what stands in the title after 'rlcorr check'."""
    title = _command_text(f"rlcorr {checked.command}{subject}").replace(":", "%3A").replace(",", "%2C")
    return f"::{command} title={title}::{_command_text(message)}"


def annotate(checked: Checked) -> None:
    """Write the annotations to stderr; a closed stderr changes no result."""
    write_stderr(annotations(checked))


def step_summary(checked: Checked) -> str:
    """The step's summary in Markdown: counts, notes, a table of what is broken, the worst first, each remedy once, and
    what passes, folded."""
    broken = list(finding_lines(checked, worst_first(checked.findings)))
    passed = list(finding_lines(checked, (finding for finding in checked.findings if finding.status == "ok")))
    sentences = (words(checked) for words in (last_step_words, counts_line, baseline_update, rules_words))
    lines = ["### rlcorr check", ""]
    lines += [line for text in (*sentences, *checked.notes) if text for line in (md_escaped(clean(text)), "")]
    if broken:
        lines += [*_summary_rows(broken, with_remedy=True), ""]
    if passed:
        head = f"<details><summary>{plural(checked.counts['passed'], 'check')} passed</summary>"
        lines += [head, "", *_summary_rows(passed), "", "</details>", ""]
    return "\n".join(lines)


def _summary_rows(lines: Sequence[Line], *, with_remedy: bool = False) -> Iterator[str]:
    """A table of the first ROWS of them."""
    yield f"| | section | metric | found |{' remedy |' if with_remedy else ''}"
    yield f"|---|---|---|---|{'---|' if with_remedy else ''}"
    remedies = {""}
    for line in lines[:ROWS]:
        texts = [line.where, line.metric, line.message]
        if with_remedy:
            texts.append("" if line.remedy in remedies else line.remedy)
            remedies.add(line.remedy)
        yield f"| {MARKS[line.status]} | " + " | ".join(md_escaped(clean(text)) for text in texts) + " |"
    if len(lines) > ROWS:
        yield ""
        yield f"and {len(lines) - ROWS:,} more."


def append_summary(checked: Checked, path: str) -> None:
    """Append the summary to the file that the runner shows as the step's summary."""
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{step_summary(checked)}\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"Cannot write the step summary {path}: {reason}."
        raise OutputError(
            message, "GITHUB_STEP_SUMMARY names it; unset it, or name a file that can be written."
        ) from None


def _command_text(value: object) -> str:
    """What stands behind the :: of a workflow command."""
    return disarmed(clean(str(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")))
