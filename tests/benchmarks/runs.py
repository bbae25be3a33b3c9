"""How often `diagnose` is right about runs of many steps: `python tests/benchmarks/runs.py FOLDER [--only WORD] [-v]`.

FOLDER holds dumps and `_truth.json`, whose `files` tell of each dump, by its name without `.parquet`:

* accept: the verdicts that are true; kind, and for a clean dump one that begins with `clean`;
* since_step: the step at which the fault begins, and where: its column and levels ('long': the longer prompts);
* also: the causes of which all are true, of two faults; share: of the gap that the fault makes;
* parameters: of a cut or a temperature, its true value.

Printed: the shares of dumps whose verdict is right, whose onset is named within one step, whose place is named, and of
which both faults are; of clean ones that are called clean, and those with an alarm; how often each certainty is right,
and intervals hold the truth.  With -v, a line for each dump.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding, Diagnosis
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.results.diagnosed import DiagnosedDump

CLEAN = {"noise", "none", "no_cause"}
QUIET_SHARE = 0.5
"""A fault that makes less of the gap may be called noise."""
OF_WEIGHTS = {"stale_policy", "drift", "other_weights"}
"""What stale weights may be told as: the truths accept each of these where they accept one."""
SCALAR = ("temperature", "top_p", "min_p", "top_k")


def levels_of(cause: CauseFinding | None) -> set[str]:
    """The levels that a cause names."""
    named = "" if cause is None else str(cause.parameters.get("levels", ""))
    return {level for level in named.replace(" and ", ", ").split(", ") if level}


def is_placed(truth: dict[str, Any], found: Diagnosis) -> bool | None:
    """Whether a cause names the true column and levels; None where the fault has none."""
    where = truth["where"]
    if where is None:
        return None
    is_quiet = truth.get("share", 1.0) < QUIET_SHARE  # then a minor cause may name it
    for cause in found.causes:
        if cause.parameters.get("column") != where["column"] or (cause.is_minor and not is_quiet):
            continue
        if where["levels"] == ["long"] or where["column"] == "step":
            return True  # how well the steps are met is what `since` says
        if levels_of(cause) == set(where["levels"]):
            return True
    return False


def onset(truth: dict[str, Any], found: Diagnosis) -> bool | None:
    """Whether the first step of the fault is named within one; None of a fault of all steps."""
    if truth["since_step"] is None:
        return None
    is_quiet = truth.get("share", 1.0) < QUIET_SHARE  # then a minor cause may name it
    of_causes = [cause for cause in found.causes if is_quiet or not cause.is_minor]
    named = [cause.parameters["since"] for cause in of_causes if "since" in cause.parameters]
    return any(abs(float(step) - truth["since_step"]) <= 1 for step in named)


def is_right(truth: dict[str, Any], found: Diagnosis) -> bool:
    """Whether the verdict is one of the true ones; of a column, the true column."""
    accepted = set(truth["accept"])
    if truth.get("share", 1.0) < QUIET_SHARE or "noise" in accepted:
        accepted |= CLEAN
    if accepted & {each.name for each in found.exact}:
        return True
    if found.verdict not in accepted:
        return False
    where = truth["where"]
    return found.verdict != "column" or where is None or found.causes[0].parameters.get("column") == where["column"]


def are_both_named(truth: dict[str, Any], dump: DiagnosedDump) -> bool:
    """Whether all of several faults are told, stale weights by any name that the truths accept for them."""
    named = {cause.cause for cause in dump.whole.diagnosis.causes if not cause.is_minor}
    named |= {fault.name for fault in dump.story.faults}
    return set(truth["also"]) <= {*named, *(OF_WEIGHTS if OF_WEIGHTS & named else ())}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="dumps whose name holds this")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each dump")
    options = parser.parse_args()
    truths = json.loads((options.folder / "_truth.json").read_text())["files"]
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for name, truth in truths.items():
        if options.only not in name:
            continue
        dump = diagnose(options.folder / f"{name}.parquet")
        found = dump.whole.diagnosis
        is_clean = truth["kind"].startswith("clean")
        right = is_right(truth, found)
        counts["verdict right, clean" if is_clean else "verdict right, faults"][right] += 1
        first = found.causes[0] if found.causes else None
        stops = any(CAUSES[cause.cause].effect == "fault" and not cause.is_minor for cause in found.causes)
        named = [cause.cause for cause in found.causes if not cause.is_minor]
        if is_clean:
            counts["clean, with an alarm"][stops or "column" in named] += 1
        placed, began = is_placed(truth, found), onset(truth, found)
        for row, value in (("place named", placed), ("onset within one step", began)):
            if value is not None:
                counts[row][value] += 1
        if "also" in truth:
            counts["both of two faults"][are_both_named(truth, dump)] += 1
        if first is not None and not first.is_minor:
            counts[f"certainty: {first.certainty}"][right] += 1
        for cause in found.causes:
            for parameter, (low, high) in cause.intervals.items():
                if parameter in SCALAR and parameter in truth["parameters"]:
                    counts["interval holds the truth"][low <= truth["parameters"][parameter] <= high] += 1
        if options.verbose:
            marks = "".join("-" if value is None else "+" if value else "x" for value in (right, began, placed))
            said = "; ".join(
                f"{cause.cause}{'*' if cause.is_minor else ''} {cause.share:.2f} {cause.certainty}"
                f" {cause.parameters.get('column', '')} {cause.parameters.get('levels', '')}".rstrip()
                for cause in found.causes
            )
            print(f"{marks} {name:36} {found.verdict}: {said}", flush=True)
    for row in sorted(counts):
        hits, n = counts[row][True], counts[row].total()
        print(f"{row:28} {hits:4} of {n:4}  {hits / n:5.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
