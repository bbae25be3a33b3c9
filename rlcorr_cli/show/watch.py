"""What `watch` says: a line a step and alarms as they come (`Teller`), and at the end what came of it (`document`)."""

import os
from collections.abc import Iterator

from rlcorr_cli.causes.wording import and_list, steps_named
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.results.course import FEWEST_TOKENS
from rlcorr_cli.results.watched import UNREADABLE, Alarm, StepLine, Watched
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    Block,
    Cell,
    Column,
    Document,
    Note,
    Section,
    json_text,
    key_cell,
    number_cell,
    tabulated,
)
from rlcorr_cli.show.numbers import NOTHING, number, plural, share, sparkline, thousands
from rlcorr_cli.show.stdout import clean, is_unicode, render
from rlcorr_cli.show.terminal import print_blocks

SPARKS = 10
"""Steps whose k3_kl a line draws."""
LOOKS = {"fail": "bold red", "warn": "yellow"}
LEVELS = {"far": "far apart", "same": "the same policy", "void": "no verdict", "too few": "too few rows"}
"""Level -> its words, where it is not its own."""
HEAD = f"{'step':>8}  {'tokens':>10}  {'k3_kl':>8}  {'seq_ess':>7}  {'kept':>6}  {'':{SPARKS}}  verdict"


class Teller:
    """Prints each line and alarm as it comes, the first line below its heading."""

    def __init__(self) -> None:
        self._has_heading = False

    def __call__(self, what: StepLine | Alarm | str) -> None:
        """Print one."""
        if isinstance(what, StepLine):
            heading = [] if self._has_heading else [Note(HEAD, "dim", indent=0)]
            self._has_heading = True
            return render(lambda console: print_blocks(console, (*heading, *step_line(what, console.width))))
        blocks = list(alarm_notes(what)) if isinstance(what, Alarm) else [Note(clean(what))]
        return render(lambda console: print_blocks(console, blocks))


def step_line(line: StepLine, width: int) -> Iterator[Block]:
    """'4  5,493  0.0123  0.045  –  ▁▂▃▄▅▆▇█  apart; fails seq_ess'; what breaks stands below where there is no room."""
    drawn = sparkline(line.recent_k3[-SPARKS:], is_unicode(), low=0.0)
    kept = NOTHING if line.kept is None else share(line.kept)
    numbers = f"{thousands(line.tokens or None):>10}  {number(line.k3_kl):>8}  {number(line.seq_ess):>7}  {kept:>6}"
    lead, look = f"{clean(line.step):>8}  {numbers}  {drawn:{SPARKS}}  ", LOOKS.get(line.status, "")
    whole = verdict_of_step(line)
    if len(lead) + len(whole) > width and not line.breaks:
        whole = verdict_of_step(line, brief=True)
    first, rest = whole, ""
    if len(lead) + len(whole) > width:
        first, _, rest = whole.partition("; " if "; " in whole or not line.of_steps else " ")
    yield Note(first, look, lead=lead, indent=0)
    if rest:
        yield Note(rest, look, indent=10)


def verdict_of_step(line: StepLine, *, brief: bool = False) -> str:
    """'apart; fails seq_ess', 'close; passes with steps 3 and 4'; in brief 'close', or 'passes with others'."""
    others = [step for step in line.of_steps if step != line.step]
    level = "" if others and line.level == "too few" else LEVELS.get(line.level, line.level)
    together = "" if not others or (brief and level) else f" with {'others' if brief else clean(steps_named(others))}"
    fails = f"fails {and_list([clean(name) for name in line.breaks])}{together}" if line.breaks else ""
    named = f" of {and_list([clean(name) for name in line.warns])}" if line.warns and not brief else ""
    warns = f"warns{named}{'' if fails else together}" if line.status == "warn" else ""
    passes = f"passes{together}" if together and line.status == "ok" else ""
    small = "too small for rules" if line.status == "too few" and line.level != "too few" else ""
    return "; ".join(filter(None, (level, small, fails, warns, passes))) + (" (read again)" if line.again else "")


def alarm_notes(raised: Alarm) -> Iterator[Block]:
    """Each reason with its remedy."""
    where = "" if raised.step is None else f"step {clean(raised.step)}: "
    for n, reason in enumerate(raised.reasons):
        text = f"{where}{clean(reason.what)} {clean(reason.do)}".rstrip()
        yield Note(text, lead="  and  " if n else "ALARM  ", lead_look="bold red")


def document(watched: Watched) -> Document:
    """What came of it so far."""
    return Document(
        lines=_lines(watched),
        command="watch",
        title=clean(", ".join(os.path.basename(path.rstrip("/")) or path for path in watched.paths)),
        summary=plural(watched.n_steps, "step"),
        headline=_last_line(watched),
        status="ok" if watched.passed else "fail",
        reasons=[clean(note) for note in watched.notes],
        marks="! marks a step that fails or warns.",
        sections=_sections(watched),
        json=json_text(watched.to_dict),
        records=(
            {**line.to_dict(), "breaks": ", ".join(line.breaks), "warns": ", ".join(line.warns)}
            for line in watched.steps
        ),
    )


def _sections(watched: Watched) -> Iterator[Section]:
    columns = (
        Column(heading="step", cell=lambda line: key_cell(line.step)),
        Column(heading="tokens", cell=lambda line: number_cell(line.tokens or None, thousands)),
        Column(heading="k3_kl", cell=lambda line: number_cell(line.k3_kl)),
        Column(heading="seq_ess", cell=lambda line: number_cell(line.seq_ess)),
        Column(heading="kept", cell=lambda line: number_cell(line.kept, share)),
        Column(
            heading="verdict",
            cell=lambda line: Cell(verdict_of_step(line), status=line.status if line.status in LOOKS else ""),
            words=True,
        ),
    )
    table = tabulated(watched.steps, columns, most=MOST_IN_FILE, noun="step")
    yield Section(heading="Steps", about=[*_story_so_far(watched)], tables=[table], sorts=True)


def _story_so_far(watched: Watched) -> Iterator[str]:
    """k3_kl, the steps that fail, the last alarms, and the story of the last step."""
    if watched.first_k3 is not None and watched.last_k3 is not None and watched.n_steps > 1:
        yield f"k3_kl began at {number(watched.first_k3)} and is {number(watched.last_k3)} now."
    if watched.n_steps and watched.first_k3 is None and not any(line.tokens for line in watched.steps):
        yield f"The log has no {GAP}, so its rise raises no alarm: rules alone do (`--max kl=0.01`)."
    elif watched.n_steps and watched.first_k3 is None:
        yield (
            f"No step was judged: it takes {FEWEST_TOKENS:,} tokens and {FEWEST_CLUSTERS} prompts, of one step or of "
            "small ones that follow each other."
        )
    if watched.failing:
        named = clean(steps_named(watched.failing, "step"))
        yield f"{named[0].upper()}{named[1:]} {'fails' if len(watched.failing) == 1 else 'fail'}."
    for past in watched.alarms[-SPARKS:]:
        what = and_list(["a file that cannot be read" if name == UNREADABLE else clean(name) for name in past.names])
        yield f"Alarm{'' if past.step is None else f' at step {clean(past.step)}'}: {what}."
    if watched.story.effect != "none":
        yield clean(" ".join((watched.story.headline, *watched.story.do[:1])))


def _lines(watched: Watched) -> Iterator[Block]:
    for note in watched.notes:
        yield Note(clean(note), "dim")
    for text in _story_so_far(watched):
        yield Note(text)
    for file in watched.unread:
        yield Note(clean(file.why if file.path in file.why else f"{file.path}: {file.why}"), lead="Not read: ")
    if watched.alone:
        first, *others = watched.alone
        rest = (
            f" {plural(len(others), 'more file')} {'waits' if len(others) == 1 else 'wait'} likewise." if others else ""
        )
        yield Note(clean(f"{first.why} It waits for the rest of its step.{rest}"))
    if watched.waiting:
        first, *others = watched.waiting
        named = f"{first} and {plural(len(others), 'more file')}" if others else first
        yield Note(clean(f"Not read yet, because {'they' if others else 'it'} may still grow: {named}."))
    yield Note(clean(f"What was read is kept in {watched.state}."), "dim")
    yield BLANK
    yield Note(clean(_last_line(watched)), "bold" if watched.passed else LOOKS["fail"], lead="  ", indent=0)


def _last_line(watched: Watched) -> str:
    steps = plural(watched.n_steps, "step")
    if not watched.n_steps and watched.passed:
        return f"No step of {', '.join(watched.paths)} is complete yet."
    if watched.passed:
        return f"Passed: {steps} of {', '.join(watched.paths)}."
    unread = f", {plural(len(watched.unread), 'file')} not read" if watched.unread else ""
    return f"Failed: {len(watched.failing):,} of {steps} of {', '.join(watched.paths)}{unread}."
