"""What `diff` says: what moved from A to each other dump, by how much, and which policy's log-probs did."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rlcorr_cli.causes.wording import listed
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.results.diffed import LEVEL, Change, Diff, DiffSection, ordered
from rlcorr_cli.show.check import section_name
from rlcorr_cli.show.document import (
    BLANK,
    Block,
    Cell,
    Document,
    Note,
    Panel,
    Picture,
    Section,
    Table,
    ending,
    json_text,
)
from rlcorr_cli.show.inputs import last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import NOTHING, amounts, interval, number, plural, signed
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import story_cause, verdict_alone

METHOD = (
    "The 95% intervals and p come from 200 Poisson bootstrap replicates of prompts (of rollouts if the dumps name no "
    "prompts). Prompts that are in both dumps are paired. p is adjusted by Holm over all tested metrics and groups."
)
NO_EVIDENCE = "no evidence"
SIDES = {
    "training": "The training policy's log-probs moved, the rollout's are the same.",
    "rollout": "The rollout policy's log-probs moved, the training's are the same.",
    "both": "Both policies' log-probs moved.",
    "neither": "Neither policy's mean log-prob moved.",
}
MOST_ROWS = 40
"""Groups in a picture."""
SINGLE = "Each interval is for one metric; what moved is judged over all metrics together (Holm)."


def document(diff: Diff) -> Document:
    """What a comparison of dumps says."""
    of_dumps = {
        name: "  ".join((name_of_inputs(report.inputs), *amounts(report.whole.counts, report.clusters)))
        for name, report in diff.dumps.items()
    }
    first, *others = (text.split("  ")[0] for text in of_dumps.values())
    return Document(
        lines=_lines(diff, of_dumps),
        command="diff",
        title=f"{first} against {listed(others)}",
        summary="; ".join(
            with_commas(f"{name}: {', '.join(text.split('  '))}", last_change(diff.dumps[name].inputs))
            for name, text in of_dumps.items()
        ),
        causes=[
            replace(cause, finding=f"{name}: {cause.finding}")
            for name, report in diff.dumps.items()
            if report.story.effect != "none"
            for cause in (story_cause(report.story),)
        ],
        headline=" ".join(dict.fromkeys(sentence for each in diff.comparisons for sentence in _diff_sentences(each))),
        status="warn" if diff.any_moved else "ok",
        reasons=verdicts_of_dumps(diff),
        sections=_sections(diff),
        json=json_text(diff.to_dict),
        records=_records(diff),
    )


def _lines(diff: Diff, of_dumps: Mapping[str, str]) -> Iterator[Block]:
    for name, text in of_dumps.items():
        yield Note(f"{name}  {text}", indent=0)
    yield BLANK
    for each in diff.comparisons:
        yield Note(" ".join(_diff_sentences(each)), "bold")
    yield from map(Note, verdicts_of_dumps(diff))
    for story in diff.stories:
        yield Note(clean(story), "yellow", lead="? ", lead_look="yellow")
    for note in (clean(note) for each in diff.comparisons for note in each.notes):
        yield Note(note, "dim")
    if diff.others:
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
    if diff.others:
        about = "What moved from A, tested together (Holm)."
        yield Section(
            heading="All dumps", about=[about], tables=[replace(_table_of_all(diff.comparisons), n_keys=1)], sorts=True
        )
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
        for name, report in diff.dumps.items()
        for source in report.inputs
    ]
    notes = [clean(note) for each in diff.comparisons for note in each.notes]
    yield from ending(facts, [*notes, METHOD])


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
    n_columns = len(headings) if tested else len(headings) - 1
    return Table(
        headings=headings[:n_columns],
        rows=tuple(row[:n_columns] for row in rows),
        spare=("95%", "A"),
        gap=1,
        is_tight=True,
    )


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
    """Of one other dump: what moved most and by how much; whether rows pair; which policy moved."""
    side = SIDES[diff.side.moved] if diff.side is not None and diff.moved else ""
    return [sentence for sentence in (_what_moved(diff), rows_that_match(diff), side) if sentence]


def verdicts_of_dumps(diff: Diff) -> list[str]:
    """How far apart the policies of dumps are, and which weights are usable there; those of one verdict together."""
    names: dict[str, list[str]] = {}
    for name, report in diff.dumps.items():
        names.setdefault(clean(verdict_alone(report)), []).append(name)
    return [f"{listed(of)}: {sentence}" for sentence, of in names.items()]


def _what_moved(diff: Diff) -> str:
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
    if all(change.a == change.b for change in diff.whole.metrics.values()) and diff.pairs and diff.pairs.both:
        return f"{diff.name} has the same numbers as A."
    if diff.is_too_few:
        a, b = ("none" if report.clusters is None else report.clusters.counted for report in (diff.a, diff.b))
        return f"Too few to tell: A has {a} and {diff.name} {b}, and a test needs {FEWEST_CLUSTERS}."
    if diff.is_rounding:
        return "In both dumps the policies are equal up to rounding: there is nothing to compare."
    smallest = diff.whole.metrics[GAP]
    if smallest.smallest is None or smallest.scale != "ratio":
        return f"No evidence that {diff.name} differs from A."
    share = 100 * (max(smallest.smallest, 1 + diff.min_effect) - 1)
    return f"No evidence that {diff.name} differs from A; a change of {GAP} by {share:.0f}% would have shown."


def rows_that_match(diff: Diff) -> str:
    """Which rows both hold."""
    pairs = diff.pairs
    if pairs is None:
        return ""
    about = "" if pairs.exact else "about "
    if not pairs.both:
        return f"No rows match (by {listed(pairs.by or ['rollout log-probs'])}){_matching_clusters(diff)}."
    if not pairs.only_a and not pairs.only_b:
        text = f"All {pairs.both:,} rows match" if pairs.both > 1 else "The one row matches"
    else:
        rows = f"{plural(pairs.both, 'row')} {'matches' if pairs.both == 1 else 'match'}"
        text = f"{about}{rows} ({pairs.only_a:,} in A alone, {pairs.only_b:,} in {diff.name} alone)"
    if pairs.other_text:
        text += f", {about}{pairs.other_text:,} of them with other tokens"
    return f"{text[0].upper()}{text[1:]}."


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
    """A line for each metric of each section; of several dumps, b is that of the dump it names."""
    columns = {name: None for each in diff.comparisons for section in each.sections for name in section.key}
    for each in diff.comparisons:
        of_dump = {"dump": each.name} if diff.others else {}
        for section in each.sections:
            for name, change in (*section.metrics.items(), *section.not_tested.items()):
                yield {**of_dump, **columns, **section.key, "metric": name, **change.to_dict()}


def _panels(diff: Diff) -> Iterator[Panel]:
    """For each dump but A the family's factors, its differences, and the leading metric in each group."""
    caption = SINGLE
    for each in diff.comparisons:
        yield from _panels_of(each, f"{each.name}: " if diff.others else "", caption)
        caption = ""  # it stands below the first picture alone


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
