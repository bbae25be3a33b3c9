"""What an index of reports says: how many of them fail a check, and a row for each."""

from collections.abc import Iterator
from pathlib import PureWindowsPath
from urllib.parse import quote

from rlcorr_cli.causes.wording import listed
from rlcorr_cli.results.indexed import IndexedReport, ReportIndex
from rlcorr_cli.show.check import APART
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    MOST_ON_TERMINAL,
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
from rlcorr_cli.show.inputs import joined, minute, named
from rlcorr_cli.show.numbers import NOTHING, plural, share
from rlcorr_cli.show.stdout import clean

SHOWN = 5
"""How many reports that fail the headline names."""
NAMED = 2
"""How many broken rules of a report are named."""


def document(index: ReportIndex) -> Document:
    """What an index says."""
    return Document(
        lines=_lines(index),
        command="index",
        title=plural(len(index.reports), "report"),
        summary=joined(*_span(index)),
        headline=headline(index),
        status="fail" if any(each.failed for each in index.reports) else "ok",
        sections=_sections(index),
        marks="! marks a report that fails or warns.",
        json=json_text(index.to_dict),
        records=map(_record, index.reports),
    )


def headline(index: ReportIndex) -> str:
    """How many reports fail a check, and which."""
    failing = [_name(each) for each in index.reports if each.failed]
    of = plural(len(index.reports), "report")
    if not failing:
        return f"All of {of} pass `rlcorr check`." if len(index.reports) > 1 else "The report passes `rlcorr check`."
    others = len(failing) - SHOWN
    names = [*failing[:SHOWN], *([f"{others:,} more"] if others > 0 else [])]
    return f"{len(failing):,} of {of} {'fails' if len(failing) == 1 else 'fail'} `rlcorr check`: {listed(names)}."


def _span(index: ReportIndex) -> list[str]:
    """When the dumps were last changed."""
    moments = [minute(each.changed) for each in index.reports if each.changed]
    ends = dict.fromkeys((min(moments), max(moments))) if moments else {}
    return [f"dumps last changed {' to '.join(ends)} UTC"] if ends else []


def _lines(index: ReportIndex) -> Iterator[Block]:
    yield Note(headline(index), "bold")
    yield BLANK
    yield tabulated(index.reports, COLUMNS, most=MOST_ON_TERMINAL, noun="report")
    for note in index.notes:
        yield Note(clean(note), "dim")
    yield Note("`rlcorr check REPORT` says why one fails; `rlcorr explain k3_kl` defines a column.", "dim")


def _sections(index: ReportIndex) -> Iterator[Section]:
    links = tuple("" if each.page is None else quote(each.page) for each in index.reports)
    table = tabulated(index.reports, COLUMNS, most=MOST_IN_FILE, noun="report", links=links)
    yield Section(heading="Reports", about=["The oldest dump comes first."], tables=[table], sorts=True)
    told = [
        ("fail" if each.failed else "warn", f"{_name(each)}: {clean(each.story.headline)}", " ".join(each.story.do))
        for each in index.reports
        if each.story.effect != "none"
    ]
    if told:
        yield Section(heading="Causes", todo=told)
    yield from ending([], list(map(clean, index.notes)))


def _name(each: IndexedReport) -> str:
    """The report's file, without what says its form."""
    return clean(PureWindowsPath(each.report).stem)


def _broken(each: IndexedReport) -> Cell:
    """The first rules and causes that `check` fails on, or else those that it warns of."""
    verb, names = ("fails", each.failed) if each.failed else ("warns", each.warned)
    if not names:
        return Cell("passes")
    others = f" +{len(names) - NAMED}" if len(names) > NAMED else ""
    shown = ", ".join(clean(name) for name in names[:NAMED])
    return Cell(f"{verb}: {shown}{others}", status="fail" if each.failed else "warn")


COLUMNS = (
    Column(heading="report", cell=lambda each: Cell(_name(each))),
    Column(heading="dump changed", cell=lambda each: Cell(minute(each.changed) or NOTHING), words=True, drop=3),
    Column(heading="dump", cell=lambda each: Cell(named(each.inputs)), words=True, drop=5),
    Column(heading="plan", cell=lambda each: Cell(clean(each.plan)), words=True, drop=8),
    Column(heading="tokens", cell=lambda each: number_cell(each.counts["tokens"], whole_number), drop=6),
    Column(heading="steps", cell=lambda each: number_cell(each.steps or None, whole_number), drop=4),
    Column(heading="k3_kl", cell=lambda each: number_cell(each.k3_kl)),
    Column(heading="last k3_kl", cell=lambda each: number_cell(each.last_k3_kl), drop=2),
    Column(heading="seq_ess", cell=lambda each: number_cell(each.seq_ess), drop=1),
    Column(heading="kept", cell=lambda each: number_cell(each.kept_fraction, share), drop=7),
    Column(heading="verdict", cell=lambda each: Cell(APART[each.level]), words=True, drop=9),
    Column(heading="check", cell=_broken, words=True),
)


def whole_number(value: float | None) -> str:
    """A count; nothing where there is none."""
    return NOTHING if value is None else f"{value:,.0f}"


def _record(each: IndexedReport) -> dict[str, object]:
    """A line of the table form."""
    return {
        "report": each.report,
        "changed": each.changed,
        "dump": named(each.inputs),
        "plan": each.plan,
        "tokens": each.counts["tokens"],
        "steps": each.steps,
        "k3_kl": each.k3_kl,
        "last_k3_kl": each.last_k3_kl,
        "seq_ess": each.seq_ess,
        "kept_fraction": each.kept_fraction,
        "level": each.level,
        "cause": each.story.first,
        "failed": " ".join(each.failed),
        "warned": " ".join(each.warned),
    }
