"""What `diff` says: what moved from A to each other dump, by how much, and which policy's log-probs did."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rlcorr_cli.causes.wording import and_list
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.results.bits import LEVEL as PARTING_LEVEL, Bits
from rlcorr_cli.results.diffed import LEVEL, Change, Diff, DiffSection, Pairs, ordered
from rlcorr_cli.show.check import section_name
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    Block,
    Cell,
    Column,
    Document,
    Note,
    Panel,
    Picture,
    Section,
    Table,
    ending,
    json_text,
    tabulated,
)
from rlcorr_cli.show.inputs import last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import NOTHING, amounts, interval, number, plural, signed, thousands
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import story_cause, verdict_alone

METHOD = (
    "The 95% intervals and p come from 200 Poisson bootstrap replicates of prompts (of rollouts if the dumps name no "
    "prompts). Prompts that are in both dumps are paired. p is adjusted by Holm over all tested metrics and groups."
)
NO_EVIDENCE = "no evidence"
MOST_ROWS, MOST_PARTED = 40, 10
"""Groups in a picture; rows that part, on a terminal."""
SINGLE = "Each interval is for one metric; what moved is judged over all metrics together (Holm)."


def document(diff: Diff) -> Document:
    """What a comparison of dumps says."""
    of_dumps = {
        name: (name_of_inputs(side.inputs), *amounts(side.counts, side.clusters)) for name, side in diff.dumps.items()
    }
    first, *others = (inputs for inputs, *_ in of_dumps.values())
    return Document(
        lines=_lines(diff, of_dumps),
        command="diff",
        title=f"{first} against {and_list(others)}",
        summary="; ".join(
            with_commas(f"{name}: {', '.join(texts)}", last_change(diff.dumps[name].inputs))
            for name, texts in of_dumps.items()
        ),
        causes=[
            replace(cause, finding=f"{name}: {cause.finding}")
            for name, side in diff.dumps.items()
            if side.story is not None and side.story.effect != "none"
            for cause in (story_cause(side.story),)
        ],
        headline=" ".join(dict.fromkeys(text for each in diff.comparisons for text in _diff_sentences(each))),
        status="warn" if diff.any_moved else "ok",
        reasons=verdicts_of_dumps(diff),
        sections=_sections(diff),
        json=json_text(diff.to_dict),
        records=_records(diff),
    )


def _lines(diff: Diff, of_dumps: Mapping[str, Sequence[str]]) -> Iterator[Block]:
    """of_dumps: of each its inputs and amounts."""
    for name, texts in of_dumps.items():
        yield Note("  ".join((name, *texts)), indent=0)
    yield BLANK
    for each in diff.comparisons:
        yield Note(" ".join(_diff_sentences(each)), "bold")
    yield from map(Note, verdicts_of_dumps(diff))
    for story in diff.stories:
        yield Note(clean(story), "yellow", lead="? ", lead_look="yellow")
    for note in (clean(note) for each in diff.comparisons for note in each.notes):
        yield Note(note, "dim")
    for heading, table in filter(None, (_parted(each, MOST_PARTED) for each in diff.comparisons)):
        yield from (BLANK, Note(heading, "bold"), table)
    if diff.others and diff.sections:
        yield BLANK
        yield _table_of_all(diff.comparisons)
    for each in diff.comparisons:
        for section in each.sections:
            if diff.others and section is each.whole and not section.not_tested:
                continue  # it stands in the table of all dumps
            yield BLANK
            if section.key or diff.others:
                parts = (each.name if diff.others else "", section_name(section.key) if section.key else "")
                yield Note(clean(with_commas(*parts)), "bold")
            explained = {name for name, change in section.metrics.items() if _is_off_alone(change)}
            yield _on_terminal(_changes_table(each, section), explained)
            if words := detectable(section, each.min_effect):
                yield Note(words, "dim")
            if explained:
                yield Note(SINGLE, "dim")
            if section.not_tested:
                yield BLANK
                yield Note("not tested", "bold")
                yield _on_terminal(_changes_table(each, section, tested=False))


def _sections(diff: Diff) -> Iterator[Section]:
    yield Section(pictures=[Picture(panels=list(_panels(diff)))])
    for heading, table in filter(None, (_parted(each, MOST_IN_FILE) for each in diff.comparisons)):
        yield Section(heading=heading, tables=[table], sorts=True)
    if diff.others and diff.sections:
        about = "What moved from A, tested together (Holm)."
        table = replace(_table_of_all(diff.comparisons), n_keys=1)
        yield Section(heading="All dumps", about=[about], tables=[table], sorts=True)
    for each in diff.comparisons:
        for section in each.sections:
            name = f"{each.name} and A, " * bool(diff.others) + section_name(section.key, 100)
            about = [words] if (words := detectable(section, each.min_effect)) else []
            heading = f"{name[0].upper()}{name[1:]}"
            yield Section(heading=heading, about=about, tables=[_changes_table(each, section)], sorts=True)
            if section.not_tested:
                untested = _changes_table(each, section, tested=False)
                yield Section(heading=f"Not tested: {name}", tables=[untested], sorts=True)
    facts = [
        (f"{name}, {clean(source.path)}", with_commas(plural(source.rows, "row"), last_change([source])))
        for name, side in diff.dumps.items()
        for source in side.inputs
    ]
    notes = [clean(note) for each in diff.comparisons for note in each.notes]
    yield from ending(facts, [*notes, *([METHOD] if diff.sections else [])])


def _changes_table(diff: Diff, section: DiffSection, *, tested: bool = True) -> Table:
    """The changes of a section: of the family, what moved first, or of the other metrics, which have no p."""
    changes = ordered(section.metrics) if tested else list(section.not_tested.items())
    rows = [
        (
            Cell(name),
            Cell(number(change.a), change.a),
            Cell(number(change.b), change.b),
            Cell(_change_in_words(change), change.change),
            Cell(change_interval(change), change.low),
            Cell(_evidence(change), change.p_holm, "warn" if change.moved else ""),
        )
        for name, change in changes
    ]
    headings = ("metric", "A", diff.name, "change", "95%", "p Holm")
    shown = slice(None if tested else -1)
    rows = tuple(row[shown] for row in rows)
    return Table(headings=headings[shown], rows=rows, spare=("95%", "A"), gap=1, is_tight=True)


def _on_terminal(table: Table, explained: Container[str] = ()) -> Table:
    """The same with rows that moved in bold.  explained: the metrics without evidence whose interval is shown all the
    same; what would have been seen of them stands below."""
    rows = [
        (*row[:-2], Cell(""), row[-1]) if row[-1].text == NO_EVIDENCE and row[0].text not in explained else row
        for row in table.rows
    ]
    looks = tuple("bold" if any(cell.status for cell in row) else "" for row in rows)
    plain = tuple(tuple(replace(cell, status="") for cell in row) for row in rows)
    return replace(table, rows=plain, looks=looks)


def _table_of_all(comparisons: Sequence[Diff]) -> Table:
    """A row for each metric of the family, of whole dumps; for each dump but A its value, and how it moved from A's."""
    rows: list[tuple[Cell, ...]] = []
    for name, first in comparisons[0].whole.metrics.items():
        cells = [Cell(name), Cell(number(first.a), first.a)]
        for each in comparisons:
            change = each.whole.metrics[name]
            text = _change_in_words(change) if change.moved else NO_EVIDENCE if change.p_holm is not None else NOTHING
            cells += [Cell(number(change.b), change.b), Cell(text, change.change)]
        rows.append(tuple(cells))
    headings = ("metric", "A", *(text for each in comparisons for text in (each.name, f"{each.name} moved")))
    return Table(headings=headings, rows=tuple(rows), n_keys=2, splits=True, together=2, gap=1, is_tight=True)


def _diff_sentences(diff: Diff) -> list[str]:
    """Of one other dump: which rows are equal to the bit, or of dumps that are not compared so, which match; what moved
    most and by how much, where not all are equal."""
    bits, pairs = diff.bits, diff.pairs
    if bits is None or pairs is None:
        return list(filter(None, (_what_moved(diff), rows_that_match(diff))))
    is_same = not (bits.differ or pairs.only_a or pairs.only_b)
    return list(filter(None, (_bits_in_words(diff, bits, pairs), "" if is_same else _what_moved(diff))))


def _bits_in_words(diff: Diff, bits: Bits, pairs: Pairs) -> str:
    """How many rows and tokens of both differ to the bit and where, and the rows of one alone."""
    rows, tokens = plural(pairs.both, "row"), plural(bits.tokens, "token")
    alone = " and ".join(f"{k:,} in {name} alone" for name, k in (("A", pairs.only_a), (diff.name, pairs.only_b)) if k)
    rows = f"{rows} of both ({alone})" if alone else rows
    if bits.token is None:
        return f"{diff.name} is equal to A to the bit, in {rows} and {tokens}."
    low, median, high = bits.token
    where = f"token {low:,} (0-based)" if low == high else f"tokens {low:,} to {high:,} (0-based; median {median:,.0f})"
    part = "rows part" if bits.differ > 1 else "it parts"
    return (
        f"{diff.name} differs from A to the bit in {bits.differ:,} of {rows}, in {bits.tokens_differ:,} of {tokens}: "
        f"{part} at {where}."
    )


def _about_rows(diff: Diff) -> list[str]:
    """Which columns differ, and what the place at which rows part has to do with prompts, as far as tests tell."""
    bits, pairs = diff.bits, diff.pairs
    if bits is None or pairs is None or not bits.differ:
        return []
    columns = [
        f"{name} differs by at most {number(gap)}" if gap else f"{name} is the same"
        for name, gap in bits.columns.items()
    ]
    others = [f"{plural(pairs.other_text, 'row')} with other tokens from some place on"] if pairs.other_text else []
    told = f"{'; '.join((*columns, *others))}."
    if bits.prompt_p is not None and bits.prompt_p < PARTING_LEVEL:
        told += f" Rows part earlier in longer prompts (p {bits.prompt_p:.1g})."
    elif bits.prompt_p is not None:
        told += " No evidence that rows part earlier in longer prompts."
    if bits.block_size is not None:
        told += f" Rows part at multiples of {bits.block_size:,} tokens, prompt included: boundaries of blocks."
    return [f"{diff.name}: {told}"]


PARTED = (
    Column(heading="row", cell=lambda row: Cell(clean(row.row)), words=True),
    Column(heading="parts at", cell=lambda row: Cell(f"{row.token:,}", row.token)),
    Column(heading="tokens", cell=lambda row: Cell(f"{row.tokens:,}", row.tokens)),
    Column(heading="differ", cell=lambda row: Cell(f"{row.differ:,}", row.differ)),
    Column(heading="prompt", cell=lambda row: Cell(thousands(row.prompt_tokens), row.prompt_tokens)),
)
"""What is listed of a row that parts."""


def _parted(diff: Diff, most: int) -> tuple[str, Table] | None:
    """The rows that part first, under a heading; None where all are equal."""
    if diff.bits is None or not diff.bits.differ:
        return None
    rows, name = diff.bits.parted[:most], diff.name
    first = "" if len(rows) == diff.bits.differ else f", the first {len(rows):,} of {diff.bits.differ:,}"
    return f"Rows in which {name} differs from A{first}", tabulated(rows, PARTED, is_tight=True)


def verdicts_of_dumps(diff: Diff) -> list[str]:
    """What is known of rows that differ; how far apart the policies of dumps are, and which weights are usable there,
    those of one verdict together."""
    names: dict[str, list[str]] = {}
    for name, side in diff.dumps.items():
        if side.report is not None:
            names.setdefault(clean(verdict_alone(side.report).removeprefix("Verdict: ")), []).append(name)
    of_rows = (clean(text) for each in diff.comparisons for text in _about_rows(each))
    return [*of_rows, *(f"{and_list(of)}: {sentence.removeprefix('Verdict: ')}" for sentence, of in names.items())]


def _what_moved(diff: Diff) -> str:
    """'' of dumps of one policy, which have no metrics."""
    if not diff.sections:
        return ""
    whole = ordered(diff.whole.metrics)
    name, change = whole[0]
    if not change.moved:
        groups = len({tuple(key.items()) for key, _, _ in diff.moved})
        return f"Moved in {plural(groups, 'group')}, not as a whole." if groups else _nothing_moved(diff)
    is_farther = {abs(change.b or 0.0) > abs(change.a or 0.0) for _, change in whole if change.moved}
    what = "differs from A" if len(is_farther) > 1 else "is farther apart" if is_farther.pop() else "is closer"
    if change.scale == "ratio" and not change.is_vast:
        return f"{diff.name} {what}: {name} is {_factor(change.change)} times A's ({change_interval(change)})."
    by = "" if change.scale == "ratio" else f" (change {change_interval(change)})"
    return f"{diff.name} {what}: {name} is {number(change.b)}, A's is {number(change.a)}{by}."


def _nothing_moved(diff: Diff) -> str:
    if diff.is_too_few:
        a, b = ("none" if side.clusters is None else side.clusters.counted for side in (diff.a, diff.b))
        return f"Too few to tell: A has {a} and {diff.name} {b}, and a test needs {FEWEST_CLUSTERS}."
    if diff.is_rounding:
        return "In both dumps the policies are equal up to rounding: there is nothing to compare."
    smallest = diff.whole.metrics[GAP]
    if smallest.smallest is None or smallest.scale != "ratio":
        return f"No evidence that metrics of {diff.name} differ from A's."
    share = 100 * (max(smallest.smallest, 1 + diff.min_effect) - 1)
    return (
        f"No evidence that metrics of {diff.name} differ from A's; a change of {GAP} by {share:.0f}% would have shown."
    )


def rows_that_match(diff: Diff) -> str:
    """Which rows both hold."""
    pairs = diff.pairs
    if pairs is None:
        return ""
    if not pairs.both:
        return f"No rows match (by {and_list(pairs.by or ['rollout log-probs'])}){_matching_clusters(diff)}."
    about = "" if pairs.exact else "About "
    match = "matches" if pairs.both == 1 else "match"
    alone = f"{pairs.only_a:,} in A alone, {pairs.only_b:,} in {diff.name} alone"
    return f"{about}{plural(pairs.both, 'row')} {match} ({alone})."


def _matching_clusters(diff: Diff) -> str:
    """', but all 8 prompts do', ', but 5 of A's 8 prompts do'; nothing where there are none."""
    shared, of_a, of_b = diff.pairs and diff.pairs.clusters, diff.a.clusters, diff.b.clusters
    if not shared or of_a is None or of_b is None:
        return ""
    do = "does" if shared == 1 else "do"
    if shared == of_a.n == of_b.n:
        return f", but {'the one ' + of_a.unit if shared == 1 else f'all {of_a.counted}'} {do}"
    return f", but {shared:,} of A's {of_a.counted} {do}"


def change_interval(change: Change) -> str:
    """Its 95% interval."""
    if change.low is None or change.high is None:
        return NOTHING
    if change.scale == "ratio":
        return f"{_factor(change.low)} to {_factor(change.high)}"
    return interval(change.low, change.high)


def _change_in_words(change: Change) -> str:
    if change.change is None:
        return NOTHING
    return f"x {_factor(change.change)}" if change.scale == "ratio" else signed(change.change)


def _factor(factor: float | None) -> str:
    """Three digits are what a factor is known to, zeros at their end among them."""
    return NOTHING if factor is None else f"{factor:#.3g}".rstrip(".")


def _evidence(change: Change) -> str:
    if change.p_holm is None:
        return NOTHING
    if change.moved:
        return "< 1e-9" if change.p_holm < 1e-9 else f"{change.p_holm:.2g}"
    return NO_EVIDENCE if change.p_holm >= LEVEL else "too small"


def _is_off_alone(change: Change) -> bool:
    """Whether there is no evidence of a change whose own interval excludes that there is none."""
    if change.low is None or change.high is None or _evidence(change) != NO_EVIDENCE:
        return False
    return not change.low <= (1.0 if change.scale == "ratio" else 0.0) <= change.high


def detectable(section: DiffSection, min_effect: float) -> str:
    """What would have been seen of the metrics without evidence."""
    unseen = [
        f"{name} {_smallest_change(change, min_effect)}"
        for name, change in section.metrics.items()
        if change.p_holm is not None and change.p_holm >= LEVEL
    ]
    return f"Smallest detectable changes: {', '.join(unseen)}." if unseen else ""


def _smallest_change(change: Change, min_effect: float) -> str:
    """The smallest change that would have been taken for one."""
    smallest = change.smallest or 0.0
    if change.scale == "ratio":
        return f"x {_factor(max(smallest, 1 + min_effect))}"
    return f"±{number(max(smallest, min_effect * max(abs(change.a or 0.0), abs(change.b or 0.0))))}"


def _records(diff: Diff) -> Iterator[Mapping[str, object]]:
    """A line for each metric of each section; of several dumps, b is that of the dump it names.  Of dumps of one policy
    a line for each row that parts."""
    columns = {name: None for each in diff.comparisons for section in each.sections for name in section.key}
    for each in diff.comparisons:
        of_dump = {"dump": each.name} if diff.others else {}
        if not each.sections and each.bits is not None:
            yield from ({**of_dump, **row.to_dict()} for row in each.bits.parted)
        for section in each.sections:
            for name, change in (*section.metrics.items(), *section.not_tested.items()):
                yield {**of_dump, **columns, **section.key, "metric": name, **change.to_dict()}


def _panels(diff: Diff) -> Iterator[Panel]:
    """For each dump but A the family's factors, its differences, and the leading metric in each group."""
    for each in diff.comparisons:  # the caption stands below the first picture alone
        yield from _panels_of(each, f"{each.name}: " if diff.others else "", SINGLE if each is diff else "")


def _panels_of(diff: Diff, of_dump: str, caption: str) -> Iterator[Panel]:
    from rlcorr_cli.show.figures import comparisons

    known = [(name, change) for name, change in ordered(diff.whole.metrics) if change.low is not None]
    for scale, heading in (("ratio", f"Ratio ({diff.name} / A)"), ("difference", f"Change ({diff.name} - A)")):
        if of_scale := [(name, change) for name, change in known if change.scale == scale]:
            yield Panel(heading, partial(comparisons.forest, of_scale, caption if scale == known[0][1].scale else ""))
    if not known:
        return
    leading, of_whole = known[0]
    of_groups = [
        (section_name(section.key), section.metrics[leading])
        for section in diff.sections[1:]
        if section.metrics[leading].low is not None and section.metrics[leading].scale == of_whole.scale
    ]
    if of_groups:
        left_out = f"{len(of_groups) - MOST_ROWS:,} groups are left out." if len(of_groups) > MOST_ROWS else ""
        yield Panel(f"{of_dump}{leading} by group", partial(comparisons.forest, of_groups[:MOST_ROWS], left_out))
