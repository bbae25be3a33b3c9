"""JUnit XML, which every CI system reads: one suite, one case for each rule and section.

A case that warns passes, and says so in its output; what no rule judged is the suite's output.  What XML cannot hold is
written as an escape.
"""

import xml.etree.ElementTree as ET

from rlcorr_cli.results.checked import Checked
from rlcorr_cli.results.rules import Finding
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.terminal.checked import where

WHOLE = 10**9
"""Names are not cut here: systems tell cases apart by them."""


def document(checked: Checked) -> bytes:
    """The JUnit XML of a check's findings."""
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
