"""A diagnosis's Sheet: what it says in every form, and the panels that show its evidence."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rlcorr_cli import __version__
from rlcorr_cli.causes.diagnosis import CLEAN, CauseFinding
from rlcorr_cli.causes.table import ALL_CAUSES, NOISE
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show.diagnosed import (
    EXPLAIN_NOTE,
    LEVEL_NOTE,
    TURN,
    agreement,
    group_rows,
    headline,
    level_rows,
    looked_at,
    place_rows,
    rest,
    surprise_rows,
    told,
)
from rlcorr_cli.show.figures import Drawn, style
from rlcorr_cli.show.figures.gaps import evidence
from rlcorr_cli.show.forms import sheet as sheets
from rlcorr_cli.show.forms.content import anomaly_cause
from rlcorr_cli.show.forms.sheet import Panel, Section, Sheet
from rlcorr_cli.show.inputs import input_facts, joined, last_change, named
from rlcorr_cli.show.numbers import number, plural
from rlcorr_cli.show.stdout import clean

KIND = "diagnose"
"""What `plot` calls the picture."""
MOST_GROUPS = 1000
MOST_LEVELS = 64
MOST_PANELS = 2
RECORD = ("rank", "cause", "share", "bound", "parameter", "value", "low", "high")
"""Columns of the table form, of a cause."""


def write(dump: DiagnosedDump, path: Path, staging: Outputs) -> None:
    """Stage a diagnosis in the form of the path's suffix."""
    sheets.write(sheet(dump), path, staging)


def drawn(dump: DiagnosedDump) -> Drawn:
    """The picture of a diagnosis."""
    of_dump = sheet(dump)
    return sheets.drawn(of_dump, KIND) if of_dump.panels else Drawn(KIND, None, of_dump.headline)


def sheet(dump: DiagnosedDump) -> Sheet:
    """What a diagnosis says."""
    counts, diagnosis = dump.whole.counts, dump.whole.diagnosis
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name]]
    facts += [("columns", ", ".join(map(clean, dump.columns)))]
    facts += input_facts(dump.inputs)
    explained = [EXPLAIN_NOTE.format(dump.verdict)] if dump.verdict in ALL_CAUSES else []
    return Sheet(
        title=named(dump.inputs),
        summary=joined(
            plural(counts["sequences"], "sequence"),
            plural(counts["tokens"], "token"),
            f"k3_kl {number(diagnosis.k3)}",
            f"sd of log-ratio {number(diagnosis.deviation)}",
            last_change(dump.inputs),
        ),
        headline=headline(dump),
        status=_status(dump),
        sections=list(_sections(dump)),
        panels=list(_panels(dump)),
        facts=[*facts, ("rlcorr", __version__)],
        notes=[*(clean(fact.sentence) for fact in diagnosis.facts), *map(clean, dump.notes), *explained],
        document=dump.to_dict(),
        records=list(_records(dump)),
        reasons=list(_reasons(dump)),
        causes=[anomaly_cause(each) for each in dump.anomalies],
    )


def _status(dump: DiagnosedDump) -> str:
    if dump.verdict in (NOISE, CLEAN):
        return "ok"
    return "fail" if dump.verdict in ALL_CAUSES else "warn"


def _reasons(dump: DiagnosedDump) -> Iterator[str]:
    """Evidence and advice of the verdict, every other cause, what is left, and what was looked at."""
    causes = told(dump)
    for cause in sorted(causes, key=lambda each: each.name != dump.verdict):
        if cause.name != dump.verdict:
            yield f"Also: {cause.headline}"
        yield from (words for words in (cause.evidence, cause.advice) if words and not cause.is_minor)
    yield from (words for words in (rest(dump), looked_at(dump.whole.diagnosis)) if words)


def _sections(dump: DiagnosedDump) -> Iterator[Section]:
    """Groups, then where the gap sits: by every column, turn, surprise and place."""
    diagnosis = dump.whole.diagnosis
    if dump.groups:
        yield Section("Groups", agreement(dump), group_rows(dump, MOST_GROUPS))
    for place, column in enumerate(column for column in diagnosis.columns if column.levels):
        rows = level_rows(column.column, column.levels, most=MOST_LEVELS, in_order=column.grows)
        yield Section(f"By {clean(column.column)}", "" if place else LEVEL_NOTE, rows)
    if len(diagnosis.turns) > 1:
        rows = level_rows(TURN, diagnosis.turns, most=MOST_LEVELS, in_order=True)
        yield Section("By turn", "Runs of the mask in a response.", rows)
    if diagnosis.surprise:
        yield Section("By surprise", "Log-odds of the token under rollout.", surprise_rows(diagnosis.surprise))
    if diagnosis.places:
        yield Section(
            "By place in the response", "|r|: the gap of a token over its surprise.", place_rows(diagnosis.places)
        )


def _panels(dump: DiagnosedDump) -> Iterator[Panel]:
    """The evidence of the first causes, as far as there is something to draw."""
    causes = [cause for cause in dump.causes if not cause.is_minor and cause.cause != NOISE][:MOST_PANELS]
    shown: set[str] = set()
    for cause in causes or [_noise(dump)]:
        title, draw = evidence(dump, cause)
        try:
            with style.styled():
                draw(style.blank(5, 4).add_subplot())
        except Missing:
            continue
        if title not in shown:
            shown.add(title)
            yield Panel(title, draw)


def _noise(dump: DiagnosedDump) -> CauseFinding | None:
    return next((cause for cause in dump.causes if cause.cause == NOISE), None)


def _records(dump: DiagnosedDump) -> Iterator[Mapping[str, object]]:
    """A line for each parameter of every cause, of the whole dump and of each group; one where there is no cause."""
    keys = tuple(dump.groups[0].key) if dump.groups else ()
    for scope, group in (("total", dump.whole), *(("group", group) for group in dump.groups)):
        of_group = {"scope": scope, **{name: group.key.get(name) for name in keys}}
        of_group |= {"tokens": group.counts["tokens"], "verdict": group.diagnosis.verdict}
        yield from (of_group | record for record in _of_group(group))


def _of_group(group: DiagnosedGroup) -> Iterator[dict[str, object]]:
    for rank, cause in enumerate(group.diagnosis.causes, 1):
        for parameter, value in cause.parameters.items() or (("", None),):
            low, high = cause.intervals.get(parameter, (None, None))
            values = (rank, cause.cause, cause.share, cause.bound, parameter, value, low, high)
            yield dict(zip(RECORD, values, strict=True))
    if not group.diagnosis.causes:
        yield dict(zip(RECORD, (None,) * len(RECORD), strict=True))
