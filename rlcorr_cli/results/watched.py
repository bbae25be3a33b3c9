"""What `watch` tells of a run that goes on: a line a step, an alarm where its story changes, and what came of it.

`Following` is what is kept between looks, and on the disk between runs (`.rlcorr`): which files were read, in which
state, the totals of the steps that came last, and what alarms are told from.  Of the steps past it keeps no more than
their files, and which of them fail.  `Change` is what is new in one since another, and all that need be saved of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from rlcorr_cli.causes.steps import StepLevel
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import HIDDEN, Key, Number, Scalar, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.groups import order
from rlcorr_cli.results.saved_runs import RunTotals, SavedRun
from rlcorr_cli.results.story import Story
from rlcorr_cli.totals.provenance import Provenance

DOUBLED, UNREADABLE = "k3_kl doubled", "unreadable"
"""Reasons of an alarm beside rules and faults."""
StepK3 = tuple[Any, float, StepLevel | None]
"""A step, its k3_kl and its clusters' level."""
StepStatus = Literal["ok", "warn", "fail", "too few"]
Reads = Literal["waits", "read", "no dump", "alone", "failed"]


@frozen(kw_only=True)
class StepLine(Record):
    """A step in a line.  tokens: valid ones.  kept: the share of them that the plan's rejections keep, if any.
    level: how far apart its policies are.  status: the worst that rules and faults say of it; 'too few' of a step that
    is too small to be judged.  breaks: the rules and faults that fail; warns: those that warn.  of_steps: those that it
    is judged together with, itself among them, where it is small; level and status are of all of these.  again: whether
    it was told of before, and has other rows now.
    recent_k3: k3_kl of the steps that came last, to be drawn.  of_clusters: the level of its clusters.
    """

    step: Scalar
    tokens: int
    k3_kl: Number
    seq_ess: Number
    kept: Number
    level: str
    status: StepStatus
    breaks: tuple[str, ...]
    warns: tuple[str, ...] = ()
    of_steps: Annotated[tuple[Scalar, ...], Key(omit=True)] = ()
    again: bool
    recent_k3: Annotated[tuple[float, ...], HIDDEN] = ()
    of_clusters: Annotated[StepLevel | None, HIDDEN] = None


@frozen(kw_only=True)
class AlarmReason(Record):
    """Why an alarm is raised: the name of a rule's metric or of a fault, what is so, and what to do."""

    name: str
    what: str
    do: str


@frozen(kw_only=True)
class Alarm(Output):
    """That the story of a run has changed: what --exec has on its standard input.

    paths: what is followed.  step: where it changed; null of a file that cannot be read.  story: of that step.
    """

    OUTPUT = "alarm"
    paths: tuple[str, ...]
    step: Scalar
    reasons: tuple[AlarmReason, ...]
    story: Story


@frozen(kw_only=True)
class PastAlarm(Record):
    """An alarm of this run or of an earlier one."""

    step: Annotated[Any, Key()]
    names: tuple[str, ...]


@frozen(kw_only=True)
class UnreadFile(Record):
    """A file that is complete, and cannot be read."""

    path: str
    why: str


@frozen(kw_only=True)
class Watched(Output):
    """What was followed so far, as `check` would say it of each step.

    steps: those of this run of the command, the last 1,000.  n_steps: of all runs that the state file tells of.
    failing: the steps that break a rule or have a fault.  waiting: files that are not complete yet.  alone: files
    that hold a part of a step, as of the rollout policy alone, and wait for the rest.  story: of the last
    step.  first_k3, last_k3: k3_kl of the first steps and of the last.
    """

    OUTPUT = "watch"
    paths: tuple[str, ...]
    n_steps: int
    failing: tuple[Scalar, ...]
    first_k3: Number
    last_k3: Number
    story: Story
    alarms: tuple[PastAlarm, ...]
    steps: tuple[StepLine, ...]
    waiting: tuple[str, ...]
    alone: tuple[UnreadFile, ...]
    unread: tuple[UnreadFile, ...]
    notes: tuple[str, ...] = ()
    state: Annotated[str, HIDDEN] = ""

    @property
    @computed("The exit status in a word: failed where a step fails, or a file cannot be read.", after="paths")
    def status(self) -> Literal["passed", "failed"]:
        """What the exit status says."""
        return "passed" if self.passed else "failed"

    @property
    def passed(self) -> bool:
        """Whether every step passes, and every file was read."""
        return not self.failing and not self.unread

    def __repr__(self) -> str:
        return f"<Watched {', '.join(self.paths)}: {self.status}, {self.n_steps:,} steps>"


@frozen(kw_only=True)
class SeenFile:
    """A file as it was seen last.  reads: what came of it: not yet read, read, no dump, a part of a step whose rest may
    come, or not to be read; for `why`.  steps: that it holds."""

    stamp: tuple[int | str | None, ...]
    reads: Reads = "waits"
    steps: tuple[Any, ...] = ()
    why: str = ""


@frozen(kw_only=True)
class OpenSteps:
    """Totals that more files may add to: those of the steps that came last, and the files that they are of.  numbers:
    tokens and k3_kl of each step."""

    files: tuple[str, ...]
    steps: tuple[Any, ...]
    numbers: tuple[tuple[int, Number], ...]
    run: RunTotals


@frozen(kw_only=True)
class Following(SavedRun):
    """All that `watch` remembers.

    asked: what is followed and how it is read, in words; only that goes on with it.  files: by path.  open: as of
    OpenSteps, the latest last.  n_steps: told of so far.  failing: steps that fail, and what they break.  first,
    recent: the k3_kl of the first steps and of the last, of small ones that of their ranges.  small: the steps that the
    next small ones are judged with.  quiet: what an alarm was raised for -> how many steps have
    passed without it.  past: the last alarms.  untold_steps, untold_alarms: what was about to be told when this was
    saved.
    """

    command: ClassVar[str] = "watch"
    asked: str
    of: Provenance = field(default_factory=lambda: Provenance(plans={}, settings={}, columns={}))
    files: Mapping[str, SeenFile] = field(default_factory=dict[str, SeenFile])
    open: tuple[OpenSteps, ...] = ()
    n_steps: int = 0
    failing: tuple[tuple[Any, tuple[str, ...]], ...] = ()
    first: tuple[StepK3, ...] = ()
    recent: tuple[StepK3, ...] = ()
    small: tuple[Any, ...] = ()
    quiet: Mapping[str, int] = field(default_factory=dict[str, int])
    past: tuple[tuple[Any, tuple[str, ...]], ...] = ()
    story: Story = field(default_factory=Story)
    untold_steps: tuple[StepLine, ...] = ()
    untold_alarms: tuple[Alarm, ...] = ()

    def since(self, before: "Following") -> "Change":
        """What has changed: `before.then(now.since(before))` is `now`, but for the order of its files."""
        earlier, fails = before.files, dict(before.failing)
        return Change(
            files={path: file for path, file in self.files.items() if earlier.get(path) is not file},
            forgotten=tuple(path for path in earlier if path not in self.files),
            open=tuple(each for each in self.open if id(each) not in map(id, before.open)),
            still_open=tuple(n for n, each in enumerate(before.open) if id(each) in map(id, self.open)),
            failing=tuple((step, names) for step, names in self.failing if fails.get(step) != names),
            passing=tuple(fails.keys() - dict(self.failing).keys()),
            rest=replace(self, files={}, open=(), failing=()),
        )

    def then(self, change: "Change") -> "Following":
        """The same with what has changed since."""
        gone, failing = frozenset(change.forgotten), dict(self.failing)
        for step in (*change.passing, *(step for step, _ in change.failing)):
            failing.pop(step, None)
        return replace(
            change.rest,
            files={**{path: file for path, file in self.files.items() if path not in gone}, **change.files},
            open=(*(self.open[n] for n in change.still_open), *change.open),
            failing=(*failing.items(), *change.failing),
        )

    @property
    def provenance(self) -> Provenance:
        """Of no totals: those that it holds have their own."""
        return self.of

    @classmethod
    def added(cls, runs: Iterable[Self]) -> Self:
        """A UsageError: two runs that are followed are two."""
        raise UsageError("What `watch` remembers of two runs does not add.", "Follow each with a ⟦state⟧ of its own.")

    def watched(
        self, paths: tuple[str, ...], steps: Iterable[StepLine] = (), *, notes: tuple[str, ...] = (), state: str = ""
    ) -> Watched:
        """What came of it so far."""
        return Watched(
            paths=paths,
            n_steps=self.n_steps,
            failing=tuple(sorted((step for step, _ in self.failing), key=order)),
            first_k3=next((value for _, value, _ in self.first), None),
            last_k3=next((value for _, value, _ in reversed(self.recent)), None),
            story=self.story,
            alarms=tuple(PastAlarm(step=step, names=names) for step, names in self.past),
            steps=tuple(steps),
            waiting=tuple(path for path, file in self.files.items() if file.reads == "waits"),
            alone=self._of_files("alone"),
            unread=self._of_files("failed"),
            notes=notes,
            state=state,
        )

    def _of_files(self, reads: Reads) -> tuple[UnreadFile, ...]:
        return tuple(UnreadFile(path=path, why=file.why) for path, file in self.files.items() if file.reads == reads)


@frozen(kw_only=True)
class Change:
    """What has changed in a Following since another: files that are new or other, those that are forgotten, totals that
    are new and the places of those that stay, steps that fail now or by other names and those that pass, and of `rest`
    all but these."""

    files: Mapping[str, SeenFile]
    forgotten: tuple[str, ...]
    open: tuple[OpenSteps, ...]
    still_open: tuple[int, ...]
    failing: tuple[tuple[Any, tuple[str, ...]], ...]
    passing: tuple[Any, ...]
    rest: Following
