"""`watch`: a job that runs is followed: a line a step, and an alarm where its story changes."""

import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rlcorr_cli.commands.answers import check_touched, written
from rlcorr_cli.commands.arguments import WATCHING, Files, HowRead, computing, request
from rlcorr_cli.commands.check import Accept, AtLeast, AtMost, RulesPath, accepted, bounds_texts, refuse_of_logs
from rlcorr_cli.commands.choose import PlanOptions, chosen_plan
from rlcorr_cli.commands.declared import Act, Opt, PythonOnly, changed, takes
from rlcorr_cli.engines import interrupt
from rlcorr_cli.errors import DataError, UsageError, plural
from rlcorr_cli.files.destinations import Destination, is_remote
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import STDIN
from rlcorr_cli.show.stdout import emit_json, has_reader

if TYPE_CHECKING:
    from rlcorr_cli.results.report import Group
    from rlcorr_cli.results.watched import Alarm, Following, StepLine, Watched
    from rlcorr_cli.runs.watch import Job

STATE = "watch.rlcorr"
MOST_STEPS = 1_000
"""Lines that the result holds."""
TOGETHER = 16
"""Dumps after which the state is saved, and lines are told."""
EXEC_SECONDS = 60
LONGEST = 86_400
"""The longest time between two looks: a day."""

Told = Callable[["StepLine | Alarm | str"], None]
"""Takes each step's line and each alarm, and what else is to be said, in a sentence."""


def teller(json: bool) -> Told:
    """What prints them on a terminal."""
    if json:
        return in_the_result
    from rlcorr_cli.show.watch import Teller

    return Teller()


def in_the_result(_: object) -> None:
    """With --json the result tells of steps, and the state keeps them as untold until that is printed."""


@frozen(kw_only=True, eq=False)
class WatchOptions(PlanOptions, HowRead):
    """What `watch` takes."""

    paths: Annotated[
        Files,
        Opt(
            help="The folder, glob or object-store prefix that a job writes to; or files; or a log of metrics.",
            typed=list[str],
            metavar="RUN...",
        ),
    ] = field(kw_only=False)
    once: Annotated[bool, Opt(help="Judge what is there, and end: for cron.", panel=WATCHING)] = False
    every: Annotated[
        float,
        Opt(
            help="Seconds from one look to the next; a file that is older is taken for complete.",
            panel=WATCHING,
            metavar="SECONDS",
            least=0,
            most=LONGEST,
        ),
    ] = 30.0
    state: Annotated[
        str | Path,
        Act(
            help="Where it is kept what was read, so that the next run goes on there.",
            panel=WATCHING,
            metavar="FILE.rlcorr",
        ),
    ] = STATE
    tb: Annotated[
        str | Path | None, Act(help="Also write each step's metrics for TensorBoard.", panel=WATCHING, metavar="DIR")
    ] = None
    exec: Annotated[
        str | None,
        Act(
            help="Run this command of the shell at each alarm, with the alarm as JSON on its standard input.",
            panel=WATCHING,
            metavar="COMMAND",
            should="be a command of the shell",
            such_as="'mail me'",
        ),
    ] = None
    rules: RulesPath = None
    max: AtMost = None
    min: AtLeast = None
    accept: Accept = ()
    told: Annotated[
        Told | None,
        PythonOnly("Called with each step's line, each alarm, and sentences on what goes wrong.", otherwise=teller),
    ] = None


@takes(WatchOptions)
def watch(options: WatchOptions) -> "Watched":
    """Follow a job that runs: a line for each step, an alarm when its story changes.

    Each dump that is complete is read once, and again when it was written again.  It ends at Ctrl-C, or after one look
    with `once`, with what was seen so far and the exit status of `check`.
    """
    from rlcorr_cli.reading.scalars import is_log
    from rlcorr_cli.results.policy import policy, read_rules, refuse_impossible
    from rlcorr_cli.runs.watch import Job, alone

    reading = request(options.paths, options)
    if any(path == STDIN or type(path) is not str for path in reading.paths):
        raise UsageError(
            "Standard input and tables in memory cannot be followed.", "Name the folder that the job writes to."
        )
    if options.quarantine is not None or options.limit is not None:
        raise UsageError("⟦quarantine⟧ and ⟦limit⟧ are for one dump, and many are followed.", "Use ⟦on_bad_row skip⟧.")
    remembered = Destination(path=_state_file(options.state), option="⟦state⟧", overwrite=True)
    places, folder = [remembered], None
    if options.tb is not None:
        from rlcorr_cli.show.forms import tensorboard

        folder = written("⟦tb⟧", options.tb)
        if is_remote(folder):
            raise UsageError(f"⟦tb {folder}⟧: event files grow, which objects in a store cannot.", "Name a folder.")
        places.append(replace(tensorboard.destination(folder), option="⟦tb⟧"))
    notes = check_touched(places, (), options)
    chosen = chosen_plan(options)
    asked = policy(
        file=None if options.rules is None else read_rules(str(options.rules)),
        at_most=bounds_texts(options.max),
        at_least=bounds_texts(options.min),
        accept=accepted(options.accept),
    )
    if is_log(reading.paths):
        refuse_of_logs(reading.paths[0], (*changed(options, PlanOptions), *changed(options, HowRead)))
    else:
        refuse_impossible(asked, chosen.plan, grouped=True)
    with alone(remembered), computing(options) as compute:
        following = _remembered(remembered.path, reading, chosen.plan.id)
        job = Job(reading=reading, chosen=chosen, policy=asked, computing=compute, settled=options.every)
        ran = _Run(
            job=job,
            following=following,
            state=remembered,
            told=options.told or (lambda _: None),
            command=options.exec,
            tb=folder and folder.resolve(),
        )
        ran.follow(once=options.once, every=options.every)
        result = ran.following.watched(reading.paths, ran.steps, notes=notes, state=ran.kept_in)
        if options.told is in_the_result:
            ran.print_json(result)
    return result


def _state_file(state: Any) -> Path:
    path = written("⟦state⟧", state)
    if path.suffix.lower() != ".rlcorr":
        raise UsageError(f"{path}: a state is written as .rlcorr.", f"Name it {STATE} or the like.")
    return path


def _remembered(state: Path, reading: Any, plan: str) -> "Following":
    """What earlier runs remembered of the same job; a UsageError of another one's."""
    from rlcorr_cli.results.watched import Following
    from rlcorr_cli.runs.watch import remembered

    columns = ", ".join(f"{name}={column}" for name, column in sorted(reading.columns.items()))
    asked = f"{' '.join(reading.paths)} ({', '.join(filter(None, (reading.format, columns, plan)))})"
    following = remembered(str(state))
    if following is None:
        return Following(inputs=(), asked=asked)
    if following.asked != asked:
        before, now = (text.rpartition(" (")[0] for text in (following.asked, asked))
        how = " by another plan, or read in another way" if before == now else ""
        raise UsageError(
            f"{state} is of another watch: of {before}{how}.", "Name another file with ⟦state⟧, or delete it."
        )
    return following


@dataclass(kw_only=True)
class _Run:
    """The looks of one run of the command: what is remembered, saved and told."""

    job: "Job"
    following: "Following"
    state: Destination
    told: Told
    command: str | None
    tb: Path | None
    steps: "deque[StepLine]" = field(default_factory=lambda: deque(maxlen=MOST_STEPS))
    _events: Path | None = None
    _steps_to_tell: "list[StepLine]" = field(default_factory=list)
    _alarms_to_tell: "list[Alarm]" = field(default_factory=list)
    _trouble: str = ""
    _has_warned: bool = False

    def __post_init__(self) -> None:
        from rlcorr_cli.reading.listing import Listing
        from rlcorr_cli.runs.watch import StateFile

        self._file = StateFile(self.state, self.following)
        self._listing = Listing(self.job.reading.paths)

    @property
    def kept_in(self) -> str:
        """Where the state is, in words."""
        state = str(self.state.path)
        return state if "/" in state else f"{state}, in the working directory"

    def follow(self, *, once: bool, every: float) -> None:
        """Look once, or until Ctrl-C or until nobody is told any more; first tell the alarms that an earlier run was
        killed over."""
        if not once:
            n = self.following.n_steps
            told = f"{plural(n, 'step')} {'was' if n == 1 else 'were'} told before" if n else "no step was told yet"
            kept = f"What was read is kept in {self.kept_in}."
            self.told(f"Following {' '.join(self.job.reading.paths)}, of which {told}. {kept} Ctrl-C ends it.")
        try:
            self._steps_to_tell += self.following.untold_steps
            self._alarms_to_tell += self.following.untold_alarms
            self._save_and_tell()
            self._look()
            while not once and (has_reader() or self.command is not None or self.tb is not None):
                self._tell_what_waits()
                time.sleep(every)
                try:
                    self._look()
                    self._trouble = ""
                except DataError as error:  # such as of a store that does not answer for a while
                    if self._trouble != error.message:
                        self._trouble = error.message
                        self.told(f"{error.message} {error.hint}")
        except KeyboardInterrupt:
            if once:
                raise
            interrupt.signal_handled()

    def _tell_what_waits(self) -> None:
        """Once, where nothing could be told: why."""
        if self._has_warned or self.following.n_steps:
            return
        if waiting := next((file for file in self.following.files.values() if file.reads == "alone"), None):
            self._has_warned = True
            self.told(f"{waiting.why} It waits for the rest of its step.")

    def _look(self) -> None:
        from rlcorr_cli.measure.arrays import trim
        from rlcorr_cli.reading.scalars import is_log
        from rlcorr_cli.runs.scalars import look_at_log
        from rlcorr_cli.runs.watch import look as look_at_dumps

        look, n_steps = look_at_log if is_log(self.job.reading.paths) else look_at_dumps, 0
        for n, (following, news) in enumerate(look(self.following, self.job, self._listing), 1):
            self.following = following
            self._write_events(news.steps)  # before a state is saved that remembers the steps
            self._steps_to_tell += (line for line, _ in news.steps)
            self._alarms_to_tell += news.alarms
            n_steps += len(news.steps)
            if n % TOGETHER == 0 or news.alarms:
                self._save_and_tell()
        self._save_and_tell()
        if n_steps:  # what reading them took is not needed until the next come
            trim()

    def _save_and_tell(self) -> None:
        """Save what is remembered with what is to be told, which stays in it until then: what is told twice after a
        crash does less harm than what nobody hears."""
        steps, self._steps_to_tell = self._steps_to_tell, []
        alarms, self._alarms_to_tell = self._alarms_to_tell, []
        self._save(steps, alarms)
        ended: KeyboardInterrupt | None = None
        for line in steps:
            self.steps.append(line)
            try:
                self.told(line)
            except KeyboardInterrupt as error:  # no signal's: who was told of this line wants no more
                interrupt.check()
                ended = error
        self._save(alarms=alarms)
        if ended is not None:
            raise ended
        for alarm in alarms:
            self.told(alarm)
            self._run_command(alarm)
        self._save()

    def _save(self, steps: "Sequence[StepLine]" = (), alarms: "Sequence[Alarm]" = ()) -> None:
        """Save what is remembered, and of what nobody was told: these, and steps of a result that is not printed."""
        unprinted = self.steps if self.told is in_the_result else ()
        untold = {"untold_steps": (*unprinted, *steps), "untold_alarms": tuple(alarms)}
        following = replace(self.following, **untold)
        if following != self._file.saved:
            self._file.save(following)

    def print_json(self, result: "Watched") -> None:
        """Print the result, and then save that its steps were told."""
        emit_json(result.to_dict())
        if has_reader():
            self.steps.clear()
            self._save()

    def _run_command(self, alarm: "Alarm") -> None:
        if self.command is None:
            return
        import json

        text = json.dumps(alarm.to_dict()).encode()
        try:
            # Standard output is for what `watch` itself tells, as JSON.
            ended = subprocess.run(self.command, shell=True, input=text, stdout=2, timeout=EXEC_SECONDS, check=False)
            trouble = f"ended with status {ended.returncode}" if ended.returncode else ""
        except subprocess.TimeoutExpired:
            trouble = f"was ended after {EXEC_SECONDS} s"
        if trouble:
            self.told(f"The command of --exec {trouble}.")

    def _write_events(self, steps: "Sequence[tuple[StepLine, Group]]") -> None:
        if self.tb is None or not steps:
            return
        from rlcorr_cli.show.forms import tensorboard

        numbered = {line.step: group for line, group in steps if type(line.step) is int}
        if not numbered:
            return
        self.tb.mkdir(exist_ok=True)
        self._events = self._events or tensorboard.new_file(self.tb)
        tensorboard.append(self._events, numbered)
