"""What a diagnosis says: the likely cause, its evidence and what to do, then where the gap sits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rlcorr_cli.causes.diagnosis import CLEAN, TOO_FEW, UNCLEAR, CauseFinding, ColumnGap, Diagnosis, LevelGap
from rlcorr_cli.causes.gap import SURPRISE_EDGES
from rlcorr_cli.causes.steps import STEP
from rlcorr_cli.causes.table import ALL_CAUSES, NOISE
from rlcorr_cli.causes.weights import LARGER_NOISE
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    MOST_ON_TERMINAL,
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Note,
    Panel,
    Picture,
    Section,
    Table,
    group_table,
    json_text,
    key_cell,
    key_words,
    number_cell,
    scope_of,
    tabulated,
    what_was_read,
)
from rlcorr_cli.show.inputs import last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import NOTHING, amounts, interval, number, plural, thousands
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import (
    anomaly_cause,
    anomaly_notes,
    anomaly_sentence,
    course_sentence,
    left_out_notes,
)

LEVEL_NOTE = (
    "tokens: share of the tokens. gap: share of the gap. expected: the share of the gap that the mix of its tokens "
    "alone predicts. size: typical difference against the others. ! stands out."
)
EXPLAIN_NOTE = "`rlcorr explain {}` says how sure that is, and what else looks like it."
SAMPLE_NOTE = (
    "All but the counts of sequences and tokens is of the sample: --sample all takes every row. `rlcorr analyze` has "
    "the k3_kl of all."
)
UNEXPLAINED = 0.2
"""What is left beside all causes is told from this share of the gap on."""
VOIDED = "The rest is computed from numbers that this makes meaningless: fix it, and diagnose again."
ENDS = {"below": f"below {SURPRISE_EDGES[0]:g}", "certain": "certain: exactly 0"}
"""Levels of surprise that are no numbers, in words."""
TURN, LENGTH = "turn", "length"
"""Headings whose levels are counted otherwise than they are stored."""
ORDERED = ("lag", "step", "policy_version", LENGTH)
LEVELS_ON_TERMINAL, LEVELS_IN_FILE = 8, 64
MOST_PANELS = 2
STATUS_OF_EFFECT = {"fault": "fail", "warning": "warn", "none": "ok"}
SAID_AGAIN = {"shifted_columns": "slipped_rows"}
"""Fault of a whole file -> the cause that single rows of it show, which is the same fault."""
RECORD = ("rank", "cause", "share", "bound", "parameter", "value", "low", "high")
"""Columns of the table form, of a cause."""


def document(dump: DiagnosedDump) -> Document:
    """What a diagnosis says."""
    counts, diagnosis = dump.whole.counts, dump.whole.diagnosis
    return Document(
        lines=_lines(dump),
        command="diagnose",
        title=name_of_inputs(dump.inputs),
        summary=with_commas(
            *amounts(counts, None),
            f"{_of_sample(diagnosis)}k3_kl {number(diagnosis.gap.k3_kl)}",
            f"sd of log-ratio {number(diagnosis.gap.sd)}",
            last_change(dump.inputs),
        ),
        causes=[anomaly_cause(each) for each in dump.anomalies],
        trend=course_sentence(dump.course, dump.story),
        headline=diagnosis_headline(dump),
        status=STATUS_OF_EFFECT[dump.story.effect] if dump.story.first not in (UNCLEAR, TOO_FEW) else "warn",
        reasons=list(_reasons(dump)),
        sections=_sections(dump),
        json=json_text(dump.to_dict),
        records=_records(dump),
    )


def _lines(dump: DiagnosedDump) -> Iterator[Block]:
    counts, diagnosis = dump.whole.counts, dump.whole.diagnosis
    gap = f"{_of_sample(diagnosis)}k3_kl {number(diagnosis.gap.k3_kl)}  sd of log-ratio {number(diagnosis.gap.sd)}"
    yield Facts([name_of_inputs(dump.inputs), *amounts(counts, None), gap])
    yield from left_out_notes(counts)
    yield BLANK
    yield from anomaly_notes([each for each in dump.anomalies if not each.voids])
    if sentence := course_sentence(dump.course, dump.story):
        yield Note(sentence, "bold")
        yield BLANK
    yield Note(diagnosis_headline(dump), "bold")
    yield from (Note(sentence, indent=indent) for sentence, indent in _evidence_and_advice(dump))
    yield BLANK
    guilty = {each.parameters.get("column") for each in diagnosis.causes}
    for column in (column for column in diagnosis.columns if column.column in guilty):
        yield _level_table(column.column, column.levels, most=LEVELS_ON_TERMINAL, in_order=is_ordered(column))
    if diagnosis.legs:
        yield Note(clean(dump.story.legs))
        yield BLANK
        yield tabulated(diagnosis.legs, LEG_COLUMNS)
    if len(diagnosis.turns) > 1:
        yield _level_table(TURN, diagnosis.turns, most=LEVELS_ON_TERMINAL, in_order=True)
    if diagnosis.gap.by_version:
        yield tabulated(diagnosis.gap.by_version, VERSION_COLUMNS)
    if dump.groups:
        yield Note(verdicts_agreement(dump))
        yield _group_table(dump, MOST_ON_TERMINAL)
    if words := " ".join(filter(None, (unexplained_rest(dump), what_was_looked_at(diagnosis)))):
        yield Note(words)
    yield from (Note(clean(fact.sentence)) for fact in diagnosis.facts)
    yield from (Note(clean(note), "dim") for note in dump.notes)
    yield from (Note(note, "dim") for note in _where_to_read_on(dump))


def _of_sample(diagnosis: Diagnosis) -> str:
    """'in a sample of 868 rows, 549,871 tokens: '; empty where all rows were looked at."""
    sample = diagnosis.gap.sample
    return "" if sample is None else f"in a sample of {sample.rows:,} rows, {plural(sample.tokens, 'token')}: "


def _where_to_read_on(dump: DiagnosedDump) -> list[str]:
    """What all is of, and where to read on."""
    first = dump.story.first
    notes = [EXPLAIN_NOTE.format(first)] if first in ALL_CAUSES else []
    return notes if dump.whole.diagnosis.gap.sample is None else [SAMPLE_NOTE, *notes]


def _evidence_and_advice(dump: DiagnosedDump) -> Iterator[tuple[str, int]]:
    """Sentences on the verdict, then on every other cause, and how far each is indented on a terminal."""
    for cause in sorted(causes_in_words(dump), key=lambda each: each.name != dump.story.first):
        if cause.name != dump.story.first:
            yield f"Also: {cause.headline}", 2
        yield from ((words, 4) for words in (cause.evidence, cause.advice) if words and not cause.is_minor)


def _reasons(dump: DiagnosedDump) -> Iterator[str]:
    """Evidence and advice of the verdict, every other cause, what is left, and what was looked at."""
    yield from (sentence for sentence, _ in _evidence_and_advice(dump))
    yield from (words for words in (unexplained_rest(dump), what_was_looked_at(dump.whole.diagnosis)) if words)


def _sections(dump: DiagnosedDump) -> Iterator[Section]:
    """The evidence of the first causes, groups, then where the gap sits: by every column, turn, surprise and place."""
    from rlcorr_cli.show.figures.causes import evidence

    diagnosis = dump.whole.diagnosis
    causes = [cause for cause in dump.causes if not cause.is_minor and cause.cause != NOISE][:MOST_PANELS]
    noise = next((cause for cause in dump.causes if cause.cause == NOISE), None)
    panels = dict(evidence(dump, cause) for cause in reversed(causes or [noise]))
    yield Section(pictures=[Picture(panels=[Panel(*panel) for panel in reversed(panels.items())])])
    if dump.groups:
        table = _group_table(dump, MOST_IN_FILE)
        yield Section(heading="Groups", about=[verdicts_agreement(dump)], tables=[table], sorts=True)
    if diagnosis.legs:
        about = [clean(dump.story.legs), "found: on each leg alone."]
        yield Section(heading="By leg", about=about, tables=[tabulated(diagnosis.legs, LEG_COLUMNS)])
    for i, column in enumerate(column for column in diagnosis.columns if column.levels):
        table = _level_table(column.column, column.levels, most=LEVELS_IN_FILE, in_order=is_ordered(column))
        about = [] if i else [LEVEL_NOTE]
        yield Section(heading=f"By {clean(column.column)}", about=about, tables=[table], sorts=True)
    if len(diagnosis.turns) > 1:
        table = _level_table(TURN, diagnosis.turns, most=LEVELS_IN_FILE, in_order=True)
        yield Section(heading="By turn", about=["Runs of the mask in a response."], tables=[table], sorts=True)
    if diagnosis.gap.by_version:
        about = ["Tokens by how many versions their weights are behind the newest ones of their row."]
        table = tabulated(diagnosis.gap.by_version, VERSION_COLUMNS)
        yield Section(heading="By version within rows", about=about, tables=[table], sorts=True)
    if diagnosis.surprise:
        columns = (
            Column(heading="log-odds from", cell=lambda level: _level_cell(ENDS.get(level.level, level.level))),
            *LEVEL_COLUMNS[:2],
        )
        table, about = tabulated(diagnosis.surprise, columns), ["Log-odds of the token under rollout."]
        yield Section(heading="By surprise", about=about, tables=[table], sorts=True)
    if diagnosis.places:
        table = tabulated([place for place in diagnosis.places if place.tokens], PLACE_COLUMNS)
        about = ["|r|: the gap of a token over its surprise."]
        yield Section(heading="By place in the response", about=about, tables=[table], sorts=True)
    notes = [*(clean(fact.sentence) for fact in diagnosis.facts), *map(clean, dump.notes), *_where_to_read_on(dump)]
    yield from what_was_read(dump.whole.counts, dump.columns, dump.inputs, notes)


@frozen(kw_only=True)
class CauseWords:
    """A cause as it is told: what it is and its share of the gap, the evidence, and what to do."""

    name: str
    headline: str
    evidence: str
    advice: str
    is_minor: bool = False


def causes_in_words(dump: DiagnosedDump) -> list[CauseWords]:
    """Every cause in words, what voids the numbers first, then in order of their weight; not what noise is left."""
    voiding = [each for each in dump.anomalies if each.voids]
    again = {SAID_AGAIN.get(each.name) for each in voiding}
    others = [each for each in dump.causes if each.cause not in again]
    shown = [each for each in others if each.cause != NOISE or dump.whole.diagnosis.verdict == NOISE]
    of_files = [
        CauseWords(
            name=each.name,
            headline=f"{each.name}. {ALL_CAUSES[each.name].meaning}",
            evidence="" if each.evidence in dump.story.headline else clean(anomaly_sentence(each)),
            advice=f"{each.fix} {VOIDED}" if others else each.fix,
        )
        for each in voiding
    ]
    of_ratio = [
        CauseWords(name=fault.name, headline=clean(fault.what), evidence="", advice=fault.do)
        for fault in dump.story.faults
        if fault.name not in ALL_CAUSES
    ]
    return [*of_files, *of_ratio, *map(_cause_in_words, shown)]


def _cause_in_words(finding: CauseFinding) -> CauseWords:
    return CauseWords(
        name=finding.cause,
        headline=f"{clean(finding.headline)}. {replace(finding, sample=None).share_words}.",
        evidence=clean(" ".join(finding.evidence)),
        advice=clean(finding.advice),
        is_minor=finding.is_minor,
    )


def diagnosis_headline(dump: DiagnosedDump) -> str:
    """'Likely cause: ...', or the conclusion where none is named."""
    return clean(dump.story.headline)


def unexplained_rest(dump: DiagnosedDump) -> str:
    """Beside a cause, how much of the gap is rounding noise, and how much no cause explains; empty beside none."""
    if dump.whole.diagnosis.cause is None or dump.whole.diagnosis.verdict == NOISE:
        return ""
    noise = [each for each in dump.causes if each.cause == NOISE and not each.headline.startswith(LARGER_NOISE)]
    others = [each for each in dump.causes if each.cause != NOISE]
    left = 1 - sum(each.share for each in (*others, *noise))
    words = [f"Up to {percent(each.share)} of the gap looks like {clean(each.headline)}." for each in noise]
    words += [f"Up to {percent(left)} of the gap is not explained."] if left >= UNEXPLAINED else []
    return " ".join(words)


def what_was_looked_at(diagnosis: Diagnosis) -> str:
    """Whether columns stand out that are no cause, which were too many levels, and what was not looked for; empty where
    there is too little to say anything."""
    if diagnosis.verdict == TOO_FEW:
        return ""
    return " ".join(_columns_looked_at(diagnosis))


def _columns_looked_at(diagnosis: Diagnosis) -> Iterator[str]:
    named = {each.parameters.get("column") for each in diagnosis.causes}
    tried = [column for column in diagnosis.columns if not column.too_many]
    standing = [column for column in tried if column.grows or any(level.is_hot for level in column.levels)]
    if tried and not standing and not named - {None}:
        yield "No column stands out."
    # Where a column is the cause, the steps at which its gap grows are no other one; nor is what a fact says of them.
    is_told = named - {None, STEP} or any(fact.sentence.startswith("At step") for fact in diagnosis.facts)
    named |= {STEP} if is_told else set()
    others = [clean(column.column) for column in standing if column.column not in named]
    if others:
        stands, is_ = ("stands", "is") if len(others) == 1 else ("stand", "are")
        yield f"{', '.join(others)} {stands} out, too, but {is_} not the cause."
    crowded = [clean(column.column) for column in diagnosis.columns if column.too_many]
    if crowded:
        yield f"Not compared, because of too many values: {', '.join(crowded)}."
    if diagnosis.not_looked_for:
        causes = (f"{each.cause} (needs {clean(each.needs)})" for each in diagnosis.not_looked_for)
        yield f"Not checked: {', '.join(causes)}."


def _level_cell(value: object) -> Cell:
    return Cell(f"{value:g}", value) if isinstance(value, float) else key_cell(value)


def _size_in_words(size: float | None) -> str:
    return NOTHING if size is None else number(size) if size < 0.1 else f"{size:.1f}"


def _percent_or_dash(value: float | None) -> str:
    return NOTHING if value is None else percent(value)


LEVEL_COLUMNS = (
    Column(heading="tokens", cell=lambda level: number_cell(level.token_share, _percent_or_dash)),
    Column(heading="gap", cell=lambda level: number_cell(level.gap, _percent_or_dash)),
    Column(heading="expected", cell=lambda level: number_cell(level.expected, _percent_or_dash)),
    Column(heading="size", cell=lambda level: number_cell(level.size, _size_in_words, "warn" if level.is_hot else "")),
)
LEG_COLUMNS = (
    Column(heading="from", cell=lambda leg: Cell(clean(leg.first)), words=True),
    Column(heading="to", cell=lambda leg: Cell(clean(leg.last)), words=True),
    Column(heading="gap", cell=lambda leg: number_cell(leg.share, _percent_or_dash)),
    Column(heading="k3_kl", cell=lambda leg: number_cell(leg.k3)),
    Column(heading="found", cell=lambda leg: Cell(clean(leg.words)), words=True),
)
PLACE_COLUMNS = (
    Column(heading="from token", cell=lambda place: number_cell(place.first, thousands)),
    Column(heading="tokens", cell=lambda place: number_cell(place.tokens, thousands)),
    Column(heading="typical |r|", cell=lambda place: number_cell(place.size)),
)


VERSION_COLUMNS = (
    Column(heading="versions behind", cell=lambda part: number_cell(part.behind, thousands)),
    *LEVEL_COLUMNS[:2],
    Column(heading="k3_kl", cell=lambda part: number_cell(part.k3)),
)
"""Of tokens by how far their weights are behind the newest ones of their row."""


def is_ordered(column: ColumnGap) -> bool:
    """Whether the levels of a column have an order of their own: lags, steps, versions, lengths, and what grows."""
    return column.grows or column.column in ORDERED


def _level_table(heading: str, levels: Sequence[LevelGap], *, most: int, in_order: bool = False) -> Table:
    """A row per level: shares of tokens, of the gap, what surprise alone gives, and the size; the largest gap first.

    in_order: whether levels stand in their own order: of more than `most` the two ends and the largest gaps between
    them.  Without sizes there is no column of them.
    """
    ordered = sorted(levels, key=lambda level: -level.gap)
    if in_order:
        numbers = all(isinstance(level.level, (int, float)) for level in levels)
        by_value = sorted(levels, key=lambda level: level.level) if numbers else list(levels)
        ends = [by_value[0], by_value[-1]]
        shown = [*ends, *(level for level in ordered if level not in ends)][:most]
        ordered = [level for level in by_value if level in shown] + [level for level in by_value if level not in shown]
    columns = LEVEL_COLUMNS if any(level.size is not None for level in levels) else LEVEL_COLUMNS[:-1]
    name = Column(heading=clean(heading), cell=lambda level: _level_name_cell(heading, level))
    return tabulated(ordered, [name, *columns], most=most, noun="level")


def _level_name_cell(heading: str, level: LevelGap) -> Cell:
    """A level as people count it: turns from 1, octaves of lengths by their ends."""
    if heading == TURN:
        return Cell(f"{level.level + 1}", level.level)
    if heading == LENGTH:
        return Cell(f"{2**level.level:,} to {2 ** (level.level + 1) - 1:,}", level.level)
    return _level_cell(level.level)


def _group_table(dump: DiagnosedDump, most: int) -> Table:
    """A row per group: its verdict, the verdict's parameter and share, and k3; of a sample, how much of it that has."""
    sampled = [] if dump.whole.diagnosis.gap.sample is None else [SAMPLED]
    return group_table(dump.groups, [GROUP_COLUMNS[0], *sampled, *GROUP_COLUMNS[1:]], most)


def verdict_name(verdict: str) -> str:
    """A verdict in a table."""
    return {UNCLEAR: "no cause", CLEAN: "none", TOO_FEW: "too few"}.get(verdict, verdict)


def parameter_in_words(finding: CauseFinding | None) -> str:
    """'0.794 (0.787 to 0.808)', 'core 0.07', 'worker w3': a finding's first parameter by name, unless that is the
    cause's own, with its interval; empty without any."""
    if finding is None or not finding.parameters:
        return ""
    name, value = next(iter(finding.parameters.items()))
    text = clean(value) if isinstance(value, str) else number(value)
    if name == "column":
        text += f" {clean(finding.parameters['levels'])}" if "levels" in finding.parameters else ""
    elif name != finding.cause:
        text = f"{name.replace('_', ' ')} {text}"
    return f"{text} ({interval(*finding.intervals[name])})" if name in finding.intervals else text


def verdicts_agreement(dump: DiagnosedDump) -> str:
    """Whether all groups have the verdict of the whole."""
    verdict = dump.whole.diagnosis.verdict
    able = [group for group in dump.groups if group.diagnosis.verdict != TOO_FEW]
    others = [group for group in able if group.diagnosis.verdict != verdict]
    silent = len(dump.groups) - len(able)
    few = f"{plural(silent, 'group')} {'has' if silent == 1 else 'have'} too little data." if silent else ""
    if silent and dump.whole.diagnosis.gap.sample is not None:
        few = f"{few[:-1]} in the sample: --sample all takes every row."
    if not able:
        return few if "sample" in few else "No group has enough data by itself."
    if not others:
        words = "The one group with enough data agrees." if len(able) == 1 else f"All {len(able)} groups agree."
        words = words.replace("groups", "groups with enough data") if silent else words
        return " ".join(filter(None, (words, few)))
    words = f"{len(others)} of {plural(len(able), 'group')} show another cause: "
    if len(others) == len(able):
        words = "No single group shows this cause: "
    words += f"{verdict_name(others[0].diagnosis.verdict)} at {key_words(others[0].key)}"
    words += ", for example." if len(others) > 1 else "."
    return " ".join(filter(None, (words, few)))


def _share_cell(group: DiagnosedGroup) -> Cell:
    cause = group.diagnosis.cause
    return Cell(NOTHING) if cause is None else number_cell(cause.share, _percent_or_dash)


GROUP_COLUMNS = (
    Column(heading="tokens", cell=lambda group: number_cell(group.counts["tokens"], thousands)),
    Column(heading="k3_kl", cell=lambda group: number_cell(group.diagnosis.gap.k3_kl)),
    Column(heading="verdict", cell=lambda group: Cell(verdict_name(group.diagnosis.verdict)), words=True),
    Column(heading="parameter", cell=lambda group: Cell(parameter_in_words(group.diagnosis.cause)), words=True),
    Column(heading="share", cell=_share_cell),
)
SAMPLED = Column(heading="in sample", cell=lambda group: number_cell(group.diagnosis.gap.sample.tokens, thousands))


def _records(dump: DiagnosedDump) -> Iterator[Mapping[str, object]]:
    """A line for each parameter of every cause, of the whole dump and of each group; one where there is no cause."""
    keys = tuple(dump.groups[0].key) if dump.groups else ()
    for group in (dump.whole, *dump.groups):
        of_group = {**scope_of(group.key, keys), "tokens": group.counts["tokens"], "verdict": group.diagnosis.verdict}
        yield from (of_group | record for record in _cause_records(group))


def _cause_records(group: DiagnosedGroup) -> Iterator[dict[str, object]]:
    for rank, cause in enumerate(group.diagnosis.causes, 1):
        for parameter, value in cause.parameters.items() or (("", None),):
            low, high = cause.intervals.get(parameter, (None, None))
            values = (rank, cause.cause, cause.share, cause.bound, parameter, value, low, high)
            yield dict(zip(RECORD, values, strict=True))
    if not group.diagnosis.causes:
        yield dict(zip(RECORD, (None,) * len(RECORD), strict=True))
