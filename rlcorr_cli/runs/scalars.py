"""look_at_log(): one look at a log of metrics that grows: the steps that are new, held to rules.

A log is read anew when it has changed.  Its last step may still be written, and is told when another follows it, or
when no file has changed for `settled` seconds.  What is remembered is that of `watch`, with the last step that was
told.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rlcorr_cli.causes.steps import STEP
from rlcorr_cli.files import filesystem
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.reading.listing import Listing
from rlcorr_cli.reading.scalars import files_of, read, settled
from rlcorr_cli.results.checked import check
from rlcorr_cli.results.groups import Group
from rlcorr_cli.results.rules import Finding
from rlcorr_cli.results.scalars import measurements_of_log
from rlcorr_cli.results.verdict import CLOSE_K3
from rlcorr_cli.results.watched import DOUBLED, Alarm, Following, SeenFile, StepLine
from rlcorr_cli.runs.watch import Job, News, reasons_of, status_of, with_alarms

FIND = "`rlcorr scalars LOG` says which steps to record, to find the cause."


def look_at_log(following: Following, job: Job, _: Listing) -> Iterator[tuple[Following, News]]:
    """What remembers the log as it is now, with the lines and alarms of the steps that are new."""
    stamps = {path: filesystem(path).stamp(path) for path in files_of(job.reading.paths)}
    is_settled = all(isinstance(of[-1], int) and of[-1] <= (time.time() - job.settled) * 1e9 for of in stamps.values())
    seen = following.files
    if stamps.keys() == seen.keys() and not is_settled and all(seen[path].stamp == of for path, of in stamps.items()):
        return
    measurements = measurements_of_log(settled([read(path) for path in stamps]))
    found = dict[Any, list[Finding]]()
    for finding in check(measurements, job.policy).findings:
        found.setdefault(finding.key.get(STEP), []).append(finding)
    told = max((file.steps[0] for file in seen.values() if file.steps), default=None)
    lines, alarms = list[tuple[StepLine, Group]](), list[Alarm]()
    sections = measurements.sections[1:] if is_settled else measurements.sections[1:-1]
    for section in sections:
        step, k3 = section.key[STEP], section.values.get(GAP)
        if told is not None and step <= told:
            continue
        findings = found.get(step, [])
        line = StepLine(
            step=step,
            tokens=0,
            k3_kl=k3,
            seq_ess=section.values.get("seq_ess"),
            kept=None,
            level="" if k3 is None else "close" if k3 < CLOSE_K3 else "apart",
            status=status_of(findings),
            breaks=tuple(dict.fromkeys(each.metric for each in findings if each.status == "fail")),
            warns=tuple(dict.fromkeys(each.metric for each in findings if each.status == "warn")),
            again=False,
        )
        following, line, new = with_alarms(following, line, reasons_of(line, findings), None, judged=True)
        new = tuple(replace(reason, do=FIND) if reason.name == DOUBLED else reason for reason in new)
        lines.append((line, Group(key=section.key, counts={}, values=dict(section.values))))
        if new:
            alarms.append(Alarm(paths=job.reading.paths, step=step, reasons=new, story=following.story))
    last = tuple(section.key[STEP] for section in sections[-1:]) or (() if told is None else (told,))
    files = {path: SeenFile(stamp=stamp, reads="read", steps=last) for path, stamp in stamps.items()}
    yield replace(following, files=files), News(steps=tuple(lines), alarms=tuple(alarms))
