"""A diagnosis in words and rows, which every form shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlcorr_cli.causes.diagnosis import CLEAN, TOO_FEW, UNCLEAR, CauseFinding, ColumnGap, Diagnosis, LevelGap, PlaceGap
from rlcorr_cli.causes.table import ALL_CAUSES, NOISE
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup
from rlcorr_cli.show.cells import Cell, Rows, number_of
from rlcorr_cli.show.numbers import NOTHING, interval, more, number, plural
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.terminal.verdict import anomaly_sentence
from rlcorr_cli.totals.gap import SURPRISE_EDGES

BOUNDS = {"at_least": "At least", "at_most": "At most"}
WHOLE = "100 %"
LEVEL_HEADINGS = ("tokens", "gap", "expected", "size")
LEVEL_NOTE = (
    "tokens, gap: shares of all; expected: the share of the gap that the surprise of a level's tokens alone gives; "
    "size: how far off its typical token is over the others'; ! stands out."
)
EXPLAIN_NOTE = "`rlcorr explain {}`: how sure that is, and what else looks like it."
VOIDED = "What follows is read from numbers that this voids: fix it, and diagnose again."
ENDS = {"below": f"below {SURPRISE_EDGES[0]:g}", "certain": "certain: exactly 0"}
"""Levels of surprise that are no numbers, in words."""
TURN, LENGTH = "turn", "length"
"""Headings whose levels are counted otherwise than they are stored."""


@dataclass(frozen=True, kw_only=True)
class CauseWords:
    """A cause as it is told: what it is and its share of the gap, the evidence, and what to do."""

    name: str
    headline: str
    evidence: str
    advice: str
    is_minor: bool = False


def told(dump: DiagnosedDump) -> list[CauseWords]:
    """Every cause in words, what voids the numbers first, then in order of their weight; not what noise is left."""
    of_files = [
        CauseWords(
            name=each.name,
            headline=f"{each.name}. {ALL_CAUSES[each.name].meaning}",
            evidence=clean(anomaly_sentence(each)),
            advice=f"{each.fix} {VOIDED}" if dump.causes else each.fix,
        )
        for each in dump.anomalies
        if each.voids
    ]
    return of_files + [_words(each) for each in dump.causes if not _is_rest(each, dump)]


def _is_rest(finding: CauseFinding, dump: DiagnosedDump) -> bool:
    return finding.cause == NOISE and dump.verdict != NOISE


def _words(finding: CauseFinding) -> CauseWords:
    return CauseWords(
        name=finding.cause,
        headline=f"{clean(finding.headline)}. {share_words(finding)}.",
        evidence=clean(" ".join(finding.evidence)),
        advice=clean(finding.advice),
        is_minor=finding.is_minor,
    )


def share_words(finding: CauseFinding) -> str:
    """'At least 61 % of the gap, on 23 % of the tokens'; no more than all of it."""
    share = percent(finding.share)
    words = f"{share} of the gap" if share == WHOLE else f"{BOUNDS[finding.bound]} {share} of the gap"
    return words if finding.token_share is None else f"{words}, on {percent(finding.token_share)} of the tokens"


def guilty(finding: CauseFinding, diagnosis: Diagnosis) -> ColumnGap | None:
    """The column that a finding names."""
    name = finding.parameters.get("column")
    return next((column for column in diagnosis.columns if column.column == name), None)


def headline(dump: DiagnosedDump) -> str:
    """'Likely cause: ...', or the conclusion where none is named."""
    causes = [cause for cause in told(dump) if cause.name == dump.verdict]
    return f"Likely cause: {causes[0].headline}" if causes else clean(dump.whole.diagnosis.conclusion)


def rest(dump: DiagnosedDump) -> str:
    """How much of the gap is noise, beside another cause; empty where noise is the verdict, or none was found."""
    diagnosis = dump.whole.diagnosis
    noise = next((each for each in dump.causes if _is_rest(each, dump)), None)
    if noise is None:
        return ""
    size = "" if diagnosis.core is None else f" ({diagnosis.core:.2g} in log-odds)"
    return f"What is left: at most {percent(noise.share)} of the gap is {clean(noise.headline)}{size}."


def looked_at(diagnosis: Diagnosis) -> str:
    """Whether columns stand out that are no cause, which were too many levels, and what was not looked for; empty where
    there is too little to say anything."""
    if diagnosis.verdict == TOO_FEW:
        return ""
    return " ".join((*_columns(diagnosis), *_not_looked_for(diagnosis)))


def _columns(diagnosis: Diagnosis) -> Iterator[str]:
    named = {each.parameters.get("column") for each in diagnosis.causes}
    tried = [column for column in diagnosis.columns if not column.too_many]
    standing = [column for column in tried if column.grows or any(level.is_hot for level in column.levels)]
    if tried and not standing:
        yield "No column stands out."
    others = [clean(column.column) for column in standing if column.column not in named]
    if others:
        yield f"{', '.join(others)} {'stands' if len(others) == 1 else 'stand'} out, too, without being the cause."
    crowded = [clean(column.column) for column in diagnosis.columns if column.too_many]
    if crowded:
        yield f"Of too many levels to be looked at: {', '.join(crowded)}."


def _not_looked_for(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.not_looked_for:
        causes = (f"{each.cause} (takes {clean(each.needs)})" for each in diagnosis.not_looked_for)
        yield f"Not looked for: {', '.join(causes)}."


def column_tables(diagnosis: Diagnosis) -> list[ColumnGap]:
    """The columns that causes name."""
    columns = (guilty(each, diagnosis) for each in diagnosis.causes)
    return [column for column in columns if column is not None]


def level_rows(heading: str, levels: Sequence[LevelGap], *, most: int, in_order: bool = False) -> Rows:
    """A row per level: shares of tokens, of the gap, what surprise alone gives, and the size; the largest gap first.

    Without sizes there is no column of them.
    """
    ordered = list(levels) if in_order else sorted(levels, key=lambda level: -level.gap)
    headings = LEVEL_HEADINGS if any(level.size is not None for level in levels) else LEVEL_HEADINGS[:-1]
    rows = [(_level_name(heading, level), *_level(level)[: len(headings)]) for level in ordered[:most]]
    left = len(ordered) - most
    if left > 0:
        rows.append((Cell(more(left, "level")), *(Cell("") for _ in headings)))
    return Rows(headings=(clean(heading), *headings), rows=tuple(rows))


def _level_name(heading: str, level: LevelGap) -> Cell:
    """A level as people count it: turns from 1, octaves of lengths by their ends."""
    if heading == TURN:
        return Cell(f"{level.level + 1}", level.level)
    if heading == LENGTH:
        return Cell(f"{2**level.level:,} .. {2 ** (level.level + 1) - 1:,}", level.level)
    return _key(level.level)


def _level(level: LevelGap) -> tuple[Cell, ...]:
    size = NOTHING if level.size is None else number(level.size) if level.size < 0.1 else f"{level.size:.1f}"
    return (
        Cell(percent(level.token_share), level.token_share),
        Cell(percent(level.gap), level.gap),
        Cell(percent(level.expected), level.expected),
        Cell(size, level.size, "warn" if level.is_hot else ""),
    )


def surprise_rows(levels: Sequence[LevelGap]) -> Rows:
    """A row per level of surprise, from the least likely tokens on; what is expected is what they hold."""
    rows = [(_key(ENDS.get(level.level, level.level)), *_level(level)[:2]) for level in levels]
    return Rows(headings=("log-odds from", *LEVEL_HEADINGS[:2]), rows=tuple(rows))


def place_rows(places: Sequence[PlaceGap]) -> Rows:
    """A row per stretch of places in the response."""
    rows = [
        (
            Cell(f"{place.first:,}", place.first),
            Cell(f"{place.tokens:,}", place.tokens),
            Cell(number(place.size), place.size),
        )
        for place in places
        if place.tokens
    ]
    return Rows(headings=("from token", "tokens", "typical |r|"), rows=tuple(rows))


def group_rows(dump: DiagnosedDump, most: int) -> Rows:
    """A row per group, the first `most` of them: its verdict, the verdict's parameter and share, and k3."""
    keys = tuple(clean(name) for name in dump.groups[0].key)
    rows = [(*map(_key, group.key.values()), *_group(group)) for group in dump.groups[:most]]
    left = len(dump.groups) - most
    if left > 0:
        rows.append((Cell(more(left, "group")), *(Cell("") for _ in range(len(keys) + 4))))
    headings = (*keys, "tokens", "k3_kl", "verdict", "parameter", "share")
    return Rows(headings=headings, rows=tuple(rows), n_keys=len(keys), words=("verdict", "parameter"))


def _group(group: DiagnosedGroup) -> tuple[Cell, ...]:
    diagnosis = group.diagnosis
    cause = diagnosis.cause
    return (
        Cell(f"{group.counts['tokens']:,}", group.counts["tokens"]),
        Cell(number(diagnosis.k3), diagnosis.k3),
        Cell(verdict_name(diagnosis.verdict)),
        Cell("" if cause is None else parameter(cause)),
        Cell(NOTHING if cause is None else percent(cause.share), None if cause is None else cause.share),
    )


def verdict_name(verdict: str) -> str:
    """A verdict in a table."""
    return {UNCLEAR: "unclear", CLEAN: "none", TOO_FEW: "too few"}.get(verdict, verdict)


def parameter(finding: CauseFinding) -> str:
    """'0.794 (0.787 .. 0.808)', 'core 0.07', 'worker w3': a finding's first parameter by name, unless that is the
    cause's own, with its interval; empty without any."""
    if not finding.parameters:
        return ""
    name, value = next(iter(finding.parameters.items()))
    text = clean(value) if isinstance(value, str) else number(value)
    if name == "column":
        text += f" {clean(finding.parameters['levels'])}" if "levels" in finding.parameters else ""
    elif name != finding.cause:
        text = f"{name.replace('_', ' ')} {text}"
    return f"{text} ({interval(*finding.intervals[name])})" if name in finding.intervals else text


def agreement(dump: DiagnosedDump) -> str:
    """Whether all groups have the verdict of the whole."""
    verdict = dump.whole.diagnosis.verdict
    able = [group for group in dump.groups if group.diagnosis.verdict != TOO_FEW]
    others = [group for group in able if group.diagnosis.verdict != verdict]
    silent = len(dump.groups) - len(able)
    few = f"{plural(silent, 'group')} {'has' if silent == 1 else 'have'} too little to say." if silent else ""
    if not able:
        return "No group has enough to say by itself."
    if not others:
        words = "The one group that can tell agrees." if len(able) == 1 else f"All {len(able)} groups agree."
        return " ".join(filter(None, (words if not silent else words.replace("groups", "groups that can tell"), few)))
    first = others[0]
    key = ", ".join(f"{clean(name)} {clean(value)}" for name, value in first.key.items())
    words = f"In {len(others)} of {plural(len(able), 'group')} the verdict is another: "
    if len(others) == len(able):
        words = "No group has this verdict by itself: "
    words += f"{verdict_name(first.diagnosis.verdict)} at {key}{', for example' if len(others) > 1 else ''}."
    return " ".join(filter(None, (words, few)))


def _key(value: object) -> Cell:
    text = f"{value:g}" if isinstance(value, float) else clean(NOTHING if value is None else value)
    return Cell(text, number_of(value))
