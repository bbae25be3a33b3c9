"""look(): one look at what a job has written so far; each dump that is complete and new is read, and judged.

A file is complete where a marker says so (NAME.done beside it, or one of MARKERS in its folder, not older than the
file), where neither its size nor its time has changed since the last look, or since `settled` seconds; an object of a
store is complete as soon as it is seen.  A file of a Recorder's appears whole, and is complete when those of all ranks
of its step are there, or since `settled` seconds.  Complete files are read one by one, in the order of the numbers in
their names, those that a framework's layout reads together as one, when all are there; where one is of a step that
others have begun, the totals are added while these are kept (OPEN), and else all files of the step are read together.
So are those of a step of which a file was written again.  A step is judged and told when what a look finds of it is
read.

A step that is too small for rules is held to them together with the small steps before it, in the same ranges as
`analyze` has (results/course.py); so is one of too few rows for a cause searched with them.  Their totals are kept for
that, of as few dumps as it takes, and of MOST_TOGETHER steps at most.

`look` yields what remembers all that was read up to there with each step's line and alarm, so that its caller can save
the one before it tells the other.  It is kept in a file that grows by what changed, and is written anew when it has
doubled, so that what a look saves does not grow with the steps past.  The first time in a run of the command, and
wherever the file is not as it was left, all is written, under another name first; an object of a store is always
written whole.  Of what a kill cut short while it was added, the next run knows nothing, and finds it again.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from math import isclose
from typing import Any

from rlcorr_cli.causes.diagnosis import TOO_FEW
from rlcorr_cli.causes.exact import RATIO_MEAN
from rlcorr_cli.causes.judge import MIN_SEQUENCES, MIN_TOKENS
from rlcorr_cli.causes.steps import step_levels
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.causes.wording import steps_named
from rlcorr_cli.errors import DataError, NoRollouts, OutputError, PartOfStep, UnfinishedStep, UsageError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.destinations import Destination, is_remote
from rlcorr_cli.files.outputs import Outputs, as_output_error
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.json_layouts import STABLE
from rlcorr_cli.layouts.table import NAMES as LAYOUTS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.places import Stamp
from rlcorr_cli.reading.find import Source, complete_sources, in_number_order
from rlcorr_cli.reading.listing import Listing
from rlcorr_cli.reading.names import STEPS
from rlcorr_cli.reading.recorded import has_all_ranks
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.records.fields import as_json
from rlcorr_cli.results.build import report_of
from rlcorr_cli.results.checked import ABSENT, Checked, check, measurements_of
from rlcorr_cli.results.course import is_judged, shift_of
from rlcorr_cli.results.forecast import forecast
from rlcorr_cli.results.policy import Policy
from rlcorr_cli.results.report import Group, Report
from rlcorr_cli.results.rules import RULES, Finding, upper_limit
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.results.saved_totals import AGAIN, content, read_grown, record
from rlcorr_cli.results.watched import (
    DOUBLED,
    UNREADABLE,
    Alarm,
    AlarmReason,
    Change,
    Following,
    OpenSteps,
    Reads,
    SeenFile,
    StepK3,
    StepLine,
    StepStatus,
)
from rlcorr_cli.runs.analyze import analysis_totals, opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import OpenDump

OPEN = 3
"""How many dumps' totals are kept for files that may add to them."""
MOST_TOGETHER = 40
"""Small steps whose totals are kept for those that come after them."""
FIRST, RECENT, FEWEST = 160, 40, 8
"""Steps that k3_kl began with, and the last ones, that a rise is told from; and how many these must be."""
RECOVERED = 10
"""Steps in a row after which what holds again may raise an alarm again."""
PAST = 20
"""Alarms that are remembered."""
FAULTS = {*ALL_CAUSES, RATIO_MEAN}
"""What fails and is no rule's metric."""
NEVER_READ = ("waits", "alone")
MARKERS = "_SUCCESS", "_rlcorr.json", STABLE
"""Files beside those that are complete: Hadoop's and Spark's, ours, prime-rl's."""
MOST_ALONE = 64
"""Files of the rollout policy alone that are looked at again with each that comes."""


@frozen(kw_only=True)
class Job:
    """What is followed, and how it is judged.  settled: as above."""

    reading: ReadRequest
    chosen: ChosenPlan
    policy: Policy
    computing: Computing = field(default_factory=Computing)
    settled: float = 30.0


@frozen(kw_only=True)
class News:
    """What one dump told: its steps, in order, with the groups that they are of, and the alarms that it raised."""

    steps: tuple[tuple[StepLine, Group], ...] = ()
    alarms: tuple[Alarm, ...] = ()


def look(following: Following, job: Job, listing: Listing) -> Iterator[tuple[Following, News]]:
    """Each new dump, read; what remembers it comes with it, and at the end once more, with the files that wait.
    listing: of the job's paths, from the look before."""
    complete, following = _complete(following, job, listing)
    # A framework's file is read with those that came before it, or is left out beside them.
    alone = [path for path, file in following.files.items() if file.reads == "alone" and path in listing][-MOST_ALONE:]
    lately = [path for each in following.open for path in each.files if path in listing]
    beside = {path for path in (*alone, *lately) if path not in complete} if complete else ()
    sources, wrong = complete_sources(complete, job.reading.format, job.reading.paths, beside)
    united = {path for source in sources for path, _ in source.files}
    for path in complete:
        if path in wrong:
            following, news = _unread(following, job, {path: listing[path]}, wrong[path])
            yield following, news
        elif path not in united:
            following = _marked(following, {path: listing[path]}, "no dump")
    if any(source.format in LAYOUTS for source in sources):
        following = _marked(following, {path: listing[path] for path in alone if path not in united}, "no dump")
    begun: _ReadDump | None = None  # told when all that adds to it is read
    for source in sources:
        paths = tuple(path for path, _ in source.files)
        if set(complete).isdisjoint(paths):
            continue
        try:
            read, error = _read_dump(following, job, source, listing), None
        except DataError as failure:
            read, error = None, failure
        if begun is not None and (read is None or not set(begun.steps) <= set(read.steps)):
            following, news = _judged(following, job, begun)
            yield following, news
            begun = None
        if read is not None:
            if begun is not None:
                known = read.known - set(begun.steps) | begun.known
                read = replace(read, known=known, numbers=begun.numbers)
            following, begun = _remembered(following, read, listing), read
        elif error is not None:
            following, news = _unread(following, job, {path: listing[path] for path in paths if path in listing}, error)
            yield following, news
    yield (following, News()) if begun is None else _judged(following, job, begun)


def _complete(following: Following, job: Job, listing: Listing) -> tuple[list[str], Following]:
    """The files that are new, or written again, and complete, in order; and what remembers those that wait, and forgets
    those that went away unread."""
    seen = following.files
    never_read = [(path, file) for path, file in seen.items() if file.reads in NEVER_READ]
    asked = listing.look([path for path, file in never_read if file.reads == "waits"])
    forgotten = {path for path, file in never_read if not file.steps and path not in listing}
    complete: list[str] = []
    long_ago = time.time() - job.settled
    waiting: dict[str, SeenFile] = {}
    for path in sorted((path for path, stamp in asked.items() if _is_news(seen.get(path), stamp)), key=in_number_order):
        before, stamp = seen.get(path), asked[path]
        is_same = before is not None and before.stamp == stamp
        in_store = filesystem(path).remote
        has_ranks = None if in_store else has_all_ranks(path)
        is_whole = (is_same or in_store) if has_ranks is None else has_ranks
        if is_whole or _is_settled(path, stamp, long_ago):
            complete.append(path)
        elif before is None or before.reads == "waits":
            waiting[path] = SeenFile(stamp=stamp)
        else:  # it is written again: what was read of it stays until that is done
            waiting[path] = replace(before, stamp=stamp, reads="waits")
    if not forgotten and not waiting:
        return complete, following
    kept = {path: file for path, file in seen.items() if path not in forgotten}
    return complete, replace(following, files={**kept, **waiting})


def _is_news(before: SeenFile | None, stamp: Stamp) -> bool:
    """Whether a file is new, written again, or waits."""
    return before is None or before.stamp != stamp or before.reads == "waits"


def _are_others(stamps: Mapping[str, Stamp]) -> bool:
    """Whether files were written again, or taken away, since they were listed."""
    try:
        return any(filesystem(path).stamps((path,)) != {path: stamp} for path, stamp in stamps.items())
    except DataError:
        return True


def _is_settled(path: str, stamp: Stamp, before: float) -> bool:
    """Whether a file of the disk was last written before a moment, or has a marker."""
    written = stamp[-1]
    if not isinstance(written, int):
        return False
    folder = os.path.dirname(path)
    for marker in (f"{path}.done", *(os.path.join(folder, name) for name in MARKERS)):
        try:
            if os.stat(marker).st_mtime_ns >= written:
                return True
        except OSError:
            continue
    return written <= before * 1e9


def _marked(following: Following, stamps: Mapping[str, Stamp], reads: Reads, why: str = "") -> Following:
    """What came of some files; the steps that they held before stay known."""
    held = {path: following.files[path].steps if path in following.files else () for path in stamps}
    marked = {path: SeenFile(stamp=stamp, reads=reads, steps=held[path], why=why) for path, stamp in stamps.items()}
    return replace(following, files={**following.files, **marked})


def _unread(following: Following, job: Job, stamps: Mapping[str, Stamp], error: DataError) -> tuple[Following, News]:
    """What came of files that gave an error; an alarm tells of those that cannot be read, whatever is still to come."""
    if isinstance(error, UnfinishedStep) or _are_others(stamps):  # they are looked at again
        return _marked(following, stamps, "waits"), News()
    if isinstance(error, NoRollouts):
        return _marked(following, stamps, "no dump"), News()
    if isinstance(error, PartOfStep):
        return _marked(following, stamps, "alone", f"{error.message} {error.hint}".rstrip()), News()
    following = _marked(following, stamps, "failed", error.message)
    reasons = (AlarmReason(name=UNREADABLE, what=error.message, do=error.hint),)
    following = replace(following, past=(*following.past, (None, (UNREADABLE,)))[-PAST:])
    alarm = Alarm(paths=job.reading.paths, step=None, reasons=reasons, story=following.story)
    return following, News(alarms=(alarm,))


_Numbers = tuple[int, float | None]
"""Tokens and k3_kl of a step."""


@frozen(kw_only=True)
class _ReadDump:
    """A dump that was read, with others of its steps where they must be.

    others: the open dumps that it adds nothing to.  known: those of its steps that were told of before; numbers: what
    was told of them, if it is kept.
    """

    paths: tuple[str, ...]
    steps: tuple[Any, ...]
    report: Report
    others: tuple[OpenSteps, ...]
    known: frozenset[Any]
    numbers: Mapping[Any, _Numbers]


def _read_dump(following: Following, job: Job, source: Source, listing: Listing) -> _ReadDump:
    paths = tuple(path for path, _ in source.files)
    kept = [each for each in following.open if not set(each.files) & set(paths)]
    report = _measured(job, paths)
    steps = _steps_of(report, paths)
    others = {
        path
        for path, file in _holding(following, steps)
        if path not in paths and path in listing and file.reads in ("read", "waits")
    }
    begun = [each for each in kept if set(each.steps) & set(steps)]
    if others:
        held = {path for each in begun for path in each.files}
        every = (*paths, *sorted(path for path in others | held if path in listing))
        run = report.totals
        adds = others <= held and not job.chosen.plan.budgets
        summed = _added([*(each.run for each in begun), run]) if adds and run is not None else None
        report = _measured(job, every) if summed is None else summed
        paths, steps = tuple(dict.fromkeys((*every, *held) if summed else every)), _steps_of(report, every)
    known = frozenset(step for _, file in _holding(following, steps) for step in file.steps)
    still_open = tuple(each for each in kept if each not in begun)
    numbers = {step: told for each in following.open for step, told in zip(each.steps, each.numbers, strict=True)}
    return _ReadDump(paths=paths, steps=steps, report=report, others=still_open, known=known, numbers=numbers)


def _holding(following: Following, steps: Iterable[Any]) -> list[tuple[str, SeenFile]]:
    """The files that hold one of the steps, or did."""
    wanted = set(steps)
    return [(path, file) for path, file in following.files.items() if not wanted.isdisjoint(file.steps)]


def _remembered(following: Following, read: _ReadDump, listing: Listing) -> Following:
    """The same with the files of a dump, and its totals, to which others may add."""
    assert read.report.totals is not None
    files = {
        path: SeenFile(stamp=listing[path], reads="read", steps=read.steps) for path in read.paths if path in listing
    }
    numbers = tuple(_numbers_of(group) for group in _groups_of(read.report))
    run = read.report.totals.unplaced()
    latest = OpenSteps(files=read.paths, steps=read.steps, numbers=numbers, run=run)
    return replace(
        following,
        files={**following.files, **files},
        open=_kept((*read.others, latest), following.small),
        story=read.report.story,
    )


def _kept(each: tuple[OpenSteps, ...], small: Iterable[Any]) -> tuple[OpenSteps, ...]:
    """The dumps that more files may add to, or whose small steps the next ones are judged with."""
    wanted = set(small)
    return tuple(one for place, one in enumerate(each, OPEN - len(each)) if place >= 0 or wanted & set(one.steps))


def _measured(job: Job, paths: Sequence[str]) -> Report:
    """The report of some files, by step where they have any."""
    try:
        dump = opened(replace(job.reading, paths=tuple(paths), found=None), job.chosen, clusters=True)
        if dump.step is not None:
            dump = dump.with_request(group_by=STEPS[:1])
        return _with_totals(analysis_totals(OpenDump(dump=dump, computing=job.computing, saved=True), job.chosen))
    finally:
        for path in paths:
            filesystem(path).forget(path)


def _added(runs: Sequence[Any]) -> Report | None:
    """The report of a sum; None of totals that do not add, as of files with other columns."""
    try:
        run = type(runs[0]).added(runs)
    except (ValueError, UsageError):
        return None
    return _with_totals(run)


def _with_totals(run: RunTotals) -> Report:
    """The report of totals, which it keeps."""
    return replace(report_of(run), totals=run)


def _steps_of(report: Report, paths: Sequence[str]) -> tuple[Any, ...]:
    """The steps of a dump; one without any is a step, which is called as its file is."""
    return tuple(as_json(value) for group in report.groups for value in group.key.values()) or (step_of_name(paths[0]),)


def step_of_name(path: str) -> str:
    """What a file is called without its suffixes: 'step_12' of 'run/step_12.jsonl.gz'."""
    return re.sub(r"(\.[A-Za-z]\w*)+$", "", os.path.basename(path)) or os.path.basename(path)


def _groups_of(report: Report) -> tuple[Group, ...]:
    return tuple(report.groups) or (report.whole,)


def _numbers_of(group: Group) -> _Numbers:
    return group.counts["tokens"], group.values[GAP]


def _alike(told: _Numbers | None, now: _Numbers) -> bool:
    """Whether a step is as it was told, but for the order in which its rows were added."""
    if told is None or told[0] != now[0] or (told[1] is None) != (now[1] is None):
        return False
    return told[1] is None or now[1] is None or isclose(told[1], now[1], rel_tol=1e-9, abs_tol=1e-15)


@frozen(kw_only=True)
class _Together:
    """A dump's steps and the small ones before them, taken together.

    checked: their story, and each range of small steps held to the rules.
    """

    report: Report
    checked: Checked

    def range_of(self, step: Any, steps: Iterable[Any]) -> Group | None:
        """The range that is judged at a step: the one whose last step it is among some; None at any other."""
        of_dump = set(steps)
        return next(
            (some for some in self.report.ranges if [at for at in some.of_steps if at in of_dump][-1:] == [step]), None
        )

    def broken(self, some: Group, status: str = "fail") -> list[Finding]:
        """The rules that a range breaks."""
        return [each for each in self.checked.findings if each.key == some.plain_key and each.status == status]


def _together(following: Following, job: Job, read: _ReadDump) -> _Together | None:
    """A dump with the small steps before it; None where it needs none, or its steps are read again long after them."""
    report = read.report
    if not report.groups or (all(map(is_judged, _sized(report))) and report.story.first != TOO_FEW):
        return None
    small, (*earlier, latest) = set(following.small), following.open
    if read.known.issuperset(read.steps) and small.isdisjoint(read.steps):
        return None
    before = [each.run for each in earlier if small & set(each.steps)]
    report = (_added([*before, latest.run]) if before else None) or report
    measurements = measurements_of(replace(report, follows_steps=True))
    return _Together(report=report, checked=check(measurements, job.policy))


def _sized(report: Report) -> tuple[Group, ...]:
    """The steps of a report with their clusters; a report of a single step has these of all its rows."""
    groups = _groups_of(report)
    if len(report.groups) != 1 or report.clusters is None:
        return groups
    return (replace(groups[0], clusters=report.clusters.n),)


def _needed(together: _Together | None, read: _ReadDump) -> tuple[Any, ...]:
    """The steps that the next small ones are judged with: the last range, for it may grow by them, or those that are
    not enough for one; and where causes were sought in all of them, as many as that takes."""
    if together is None:
        return ()
    steps, report = _sized(together.report), together.report
    names = [as_json(value) for step in steps for value in step.key.values()]
    start_of = {step: names.index(some.of_steps[0]) for some in report.ranges for step in some.of_steps}
    first = len(steps)
    while first and not is_judged(steps[first - 1]):
        first = start_of.get(names[first - 1], first - 1)
        if names[first] in start_of:
            break
    if read.report.story.first == TOO_FEW:
        tokens = rows = 0
        for place in range(len(steps) - 1, -1, -1):
            tokens, rows = tokens + steps[place].counts["tokens"], rows + steps[place].counts["sequences"]
            first = min(first, start_of.get(names[place], place))
            if tokens >= MIN_TOKENS and rows >= MIN_SEQUENCES:
                break
    return tuple(names[max(first, len(names) - MOST_TOGETHER) :])


def _judged(following: Following, job: Job, read: _ReadDump) -> tuple[Following, News]:
    """Each step of a dump held to the rules; its line is told where it is new, or has other numbers."""
    report = read.report
    checked = check(measurements_of(report), job.policy)
    together = _together(following, job, read)
    if together is not None and report.story.first == TOO_FEW:
        report = replace(report, story=together.report.story)
        checked = replace(checked, findings=(*_of_story(together.checked), *_of_rules(checked)))
    groups = _sized(report)
    told: list[tuple[StepLine, Group]] = []
    alarms: list[Alarm] = []
    for step, group in zip(read.steps, groups, strict=True):
        is_last = group is groups[-1]
        some = None if together is None or is_judged(group) else together.range_of(step, read.steps)
        of_rules = [] if some is None or together is None else [*together.broken(some), *together.broken(some, "warn")]
        if is_judged(group):
            of_rules = [f for f in _of_rules(checked) if f.key == group.plain_key or (len(groups) == 1 and not f.key)]
        findings = [*(_of_story(checked) if is_last else ()), *of_rules]
        line = _step_line(report, group, step, findings, again=step in read.known)
        if some is not None and together is not None:
            level = together.report.verdict_on(some).level
            line = replace(line, level=level, of_steps=some.of_steps, status=status_of(findings))
        fails = next((names for at, names in following.failing if at == step), ())
        if line.again and line.breaks == fails and _alike(read.numbers.get(step), _numbers_of(group)):
            continue
        judged = is_judged(group) or some is not None
        sample = None if len(groups) > 1 or report.totals is None else report.totals.measured.sample
        only, *others = step_levels(sample).values() or [group.level]  # of several steps each has its own
        line = replace(line, of_clusters=None if others else only)
        following, line, new = with_alarms(following, line, reasons_of(line, findings), together, judged=judged)
        told.append((line, group))
        if new:
            alarms.append(Alarm(paths=job.reading.paths, step=step, reasons=new, story=report.story))
    if together is not None or not read.known.issuperset(read.steps):
        following = replace(following, small=_needed(together, read))
    return replace(following, story=report.story), News(steps=tuple(told), alarms=tuple(alarms))


def _of_story(checked: Checked) -> list[Finding]:
    return [each for each in checked.findings if each.rule == ABSENT]


def _of_rules(checked: Checked) -> list[Finding]:
    return [each for each in checked.findings if each.rule != ABSENT]


def status_of(findings: Iterable[Finding]) -> StepStatus:
    """The worst of what is found."""
    statuses = {each.status for each in findings}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"


def _step_line(report: Report, group: Group, step: Any, findings: Sequence[Finding], *, again: bool) -> StepLine:
    """A step's line by itself.  findings: what rules and the story say of it; the story of several steps is told of the
    last."""
    verdict, status = report.verdict_on(group), status_of(findings)
    return StepLine(
        step=step,
        tokens=group.counts["tokens"],
        k3_kl=group.values[GAP],
        seq_ess=group.values["seq_ess"],
        kept=verdict.kept_fraction,
        level=verdict.level,
        status="too few" if status == "ok" and not is_judged(group) else status,
        breaks=tuple(dict.fromkeys(each.metric for each in findings if each.status == "fail")),
        warns=tuple(dict.fromkeys(each.metric for each in findings if each.status == "warn")),
        again=again,
    )


def reasons_of(line: StepLine, findings: Iterable[Finding]) -> list[AlarmReason]:
    """What fails, in sentences."""
    named = f"{steps_named(line.of_steps)} together: " if line.of_steps else ""
    return [
        AlarmReason(
            name=each.metric,
            what=each.message if each.rule == ABSENT else f"{named}{each.message}",
            do=each.remedy or "",
        )
        for each in {each.metric: each for each in findings if each.status == "fail"}.values()
    ]


def with_alarms(
    following: Following, line: StepLine, reasons: list[AlarmReason], together: _Together | None, *, judged: bool
) -> tuple[Following, StepLine, tuple[AlarmReason, ...]]:
    """What of a step's faults and broken rules is new; and its line, which draws the steps before it.  judged: whether
    rules were applied to it."""
    step = line.step
    first, recent = following.first, following.recent
    values = [(step, line.k3_kl, line.of_clusters)] if judged and not line.of_steps else []
    if line.of_steps and together is not None:
        values = [(some.of_steps[0], some.values[GAP], some.level) for some in together.report.ranges]
    for at, k3, of_clusters in values:
        if k3 is None:
            continue
        now = at, k3, of_clusters
        first, recent = (tuple(now if known[0] == at else known for known in some) for some in (first, recent))
        if at not in [known[0] for known in recent] and not line.again:
            first, recent = (*first, now)[:FIRST], (*recent, now)[-RECENT:]
    if values and not line.again:
        reasons = [*reasons, *doubled(first, recent, following.n_steps + 1)]
    quiet = following.quiet
    # What has raised an alarm raises k3_kl, too, which is no other story.
    is_told = len(quiet) > 0 or any(reason.name != DOUBLED for reason in reasons)
    if is_told and DOUBLED not in quiet:  # it is told when that is over, if it still holds
        reasons = [each for each in reasons if each.name != DOUBLED]
    new = tuple(each for each in reasons if each.name not in quiet)
    if judged:
        held = {name: n + 1 for name, n in quiet.items() if n + 1 < RECOVERED}
        quiet = {**held, **{reason.name: 0 for reason in reasons}}
    line = replace(line, recent_k3=tuple(value for _, value, _ in recent))
    past = (*following.past, (step, tuple(reason.name for reason in new))) if new else following.past
    following = replace(
        following,
        n_steps=following.n_steps + (not line.again),
        first=first,
        recent=recent,
        quiet=quiet,
        failing=_failing(following, line, together, judged=judged),
        past=past[-PAST:],
    )
    return following, line, new


def _failing(
    following: Following, line: StepLine, together: _Together | None, *, judged: bool
) -> tuple[tuple[Any, tuple[str, ...]], ...]:
    """The steps that fail, and what they break.  A range that breaks a rule is all its steps; a small step that is in
    no range now is what it was in one."""
    failing = dict(following.failing)
    of_ranges: dict[Any, tuple[str, ...]] = {}
    for some in together.report.ranges if together is not None and line.of_steps else ():
        assert together is not None
        of_ranges |= dict.fromkeys(some.of_steps, tuple(each.metric for each in together.broken(some)))
    for step in (line.step, *(step for step in of_ranges if step != line.step)):
        faults = [name for name in (line.breaks if step == line.step else failing.get(step, ())) if name in FAULTS]
        rules = tuple(name for name in failing.get(step, ()) if name not in FAULTS)
        if step in of_ranges:
            rules = of_ranges[step]
        elif judged or not line.again:
            rules = tuple(name for name in line.breaks if name not in FAULTS)
        failing[step] = tuple(dict.fromkeys((*faults, *rules)))
    return tuple((step, names) for step, names in failing.items() if names)


def doubled(first: Sequence[StepK3], recent: Sequence[StepK3], n_steps: int) -> Iterator[AlarmReason]:
    """That k3_kl has risen to twice what it was.  n_steps: of the whole run."""
    known = {step: (k3, level) for step, k3, level in (*first, *recent)}
    if len(known) < FEWEST:
        return
    k3, levels = zip(*known.values(), strict=True)
    found = shift_of(range(len(known)), k3, levels, n_steps=n_steps)
    if found is None or found.after < found.before:
        return
    steps, now = [*known], f"{found.after:.3g} {'since' if found.shape == 'jump' else 'now'}"
    before = f"its median was {found.before:.3g} before step {steps[found.since]} and is {now}"
    before = before if found.since else f"it was {found.before:.3g} at step {steps[0]} and is {now}"
    start, limit, ahead = max(0, found.since - 1), upper_limit(GAP, RULES), None
    if found.shape == "growth" and limit and all(isinstance(step, int | float) for step in steps):
        ahead = forecast(steps[start:], k3[start:], limit)
    yield AlarmReason(
        name=DOUBLED,
        what=f"k3_kl rises: {before}.{f' {ahead.sentence}' if ahead else ''}",
        do="Find out what changed: `rlcorr diagnose DUMP` shows the evidence.",
    )


WAITS_S = 10
"""For how long a watch waits for another one on the same state, as where a look of cron takes longer than its turn."""


def remembered(place: str) -> Following | None:
    """What was saved at a path or URI; None where nothing is."""
    place = located(place)
    if not filesystem(place).is_there(place):
        return None
    try:
        following, changes = read_grown(place, Following, Change)
    except (DataError, UsageError) as error:
        if error.do != AGAIN and isinstance(error, DataError):  # as of a store that does not answer
            raise
        raise DataError(error.what, "Delete it, or name another with ⟦state⟧.") from error
    for change in changes:
        following = following.then(change)
    return following


@contextmanager
def alone(state: Destination) -> Generator[None]:
    """Let one watch at a time have a state of the disk: another waits, and gives up with an OutputError.

    A file beside the state is locked, for the state itself may be another file after each save.  The lock goes with the
    process, however that ends.
    """
    path, until = state.place.with_name(f".{state.place.name}.lock"), time.monotonic() + WAITS_S
    if is_remote(state.place):
        yield
        return
    while True:
        with as_output_error(state):
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            has_lock = os.fstat(number).st_nlink > 0  # who had it removes the file
        except OSError as error:
            has_lock = error.errno != errno.EWOULDBLOCK  # where a file system has no locks, nothing is locked
        if has_lock:
            break
        os.close(number)
        if time.monotonic() > until:
            in_use = f"{state.path} is in use by another `rlcorr watch`."
            raise OutputError(in_use, "Wait until that ends, or name another file with ⟦state⟧.")
        time.sleep(0.05)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(number)


class StateFile:
    """The file of one run of the command."""

    def __init__(self, destination: Destination, following: Following) -> None:
        """following: what was remembered when it began."""
        self._destination = destination
        self.saved = following
        self._whole = self._size = 0

    def save(self, following: Following) -> None:
        """Have all that is remembered on the disk, or in the store; an OutputError where that cannot be."""
        change = record(following.since(self.saved))
        if self._is_as_left() and self._size + len(change) <= 2 * self._whole:
            with as_output_error(self._destination), self._destination.place.open("ab") as file:
                file.write(change)
                file.flush()
                os.fsync(file.fileno())
            self._size += len(change)
        else:
            pieces = content(following, grows=True)
            with Outputs() as staging:
                staging.write(self._destination, pieces)
                staging.publish()
            self._whole = self._size = sum(map(len, pieces))
        self.saved = following

    def _is_as_left(self) -> bool:
        """Whether the file is there, as long as this run left it."""
        place = self._destination.place
        try:
            return self._size > 0 and not is_remote(place) and place.stat().st_size == self._size
        except OSError:
            return False
