"""What `filter` and `convert` say of what they wrote: which rows went where, and what took them."""

from collections.abc import Iterator

from rlcorr_cli.causes.wording import steps_named
from rlcorr_cli.results.written import Converted, Filtered
from rlcorr_cli.show.correction import rejection_tables, weight_tables
from rlcorr_cli.show.document import (
    BLANK,
    Block,
    Cause,
    Cell,
    Document,
    Note,
    Section,
    Table,
    json_text,
    sections_of,
    what_was_read,
)
from rlcorr_cli.show.inputs import last_change, name_of_inputs, picture_source, with_commas
from rlcorr_cli.show.numbers import amounts, more, plural, share
from rlcorr_cli.show.report import report_notes, report_opening
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import anomaly_cause, anomaly_notes, story_cause, story_notes, suggestion_notes

FILES = 8


def document(result: Filtered | Converted) -> Document:
    """What was written."""
    return _of_filtered(result) if isinstance(result, Filtered) else _of_converted(result)


def _of_filtered(filtered: Filtered) -> Document:
    report = filtered.report
    faults = [Cause("fail", clean(fault.what), fault.do) for fault in report.story.faults]
    others = [each for each in report.anomalies if each.name not in report.story.fault_names]
    warning = [story_cause(report.story)] if report.story.effect == "warning" else []
    causes = [*faults, *warning, *map(anomaly_cause, others)]
    return Document(
        lines=_filtered_lines(filtered),
        command="filter",
        title=name_of_inputs(report.inputs),
        summary=with_commas(
            *amounts(report.whole.counts, report.clusters),
            f"plan {clean(report.plan.name)}",
            last_change(report.inputs),
        ),
        causes=causes,
        headline=_kept_in_words(filtered),
        status="warn" if causes or report.suggestions or filtered.empty_steps else "ok",
        reasons=[text for text in (_accounts(filtered), _incomplete(filtered), _emptied(filtered)) if text],
        sections=_sections(filtered),
        source=picture_source(report),
        json=json_text(filtered.to_dict),
        records=({"rows": name, "count": count} for name, count in _row_counts(filtered).items()),
    )


def _row_counts(filtered: Filtered) -> dict[str, int]:
    prompts = {} if filtered.prompts is None else filtered.prompts.to_dict()
    return {
        **filtered.rows,
        **{f"prompts_{name}": n for name, n in prompts.items() if name != "exact"},
        **{f"rejected_by_{name}": n for name, n in filtered.rejected_rows.items()},
    }


def _sections(filtered: Filtered) -> Iterator[Section]:
    from rlcorr_cli.show.figures import picture

    report = filtered.report
    tables = [*weight_tables(report), *rejection_tables(report)]
    yield Section(heading="Correction", about=list(_division(filtered)), tables=tables)
    yield Section(pictures=[picture("ratio", report)])
    yield from sections_of(suggestion_notes(report.suggestions, report.profile), "Looser bounds")
    columns = report.inputs[0].columns.values()
    yield from what_was_read(report.whole.counts, columns, report.inputs, [note.text for note in report_notes(report)])


def _filtered_lines(filtered: Filtered) -> Iterator[Block]:
    """What is left first, then which rule took what, what to loosen, and where every row of the dump went."""
    report = filtered.report
    yield from report_opening(report)
    yield from story_notes(report.story)
    yield from anomaly_notes([each for each in report.anomalies if each.name not in report.story.fault_names])
    if filtered.target.path is None and filtered.is_stopped:
        yield Note("Without --force nothing is written of a dump with a fault.", "bold")
    yield Note(_kept_in_words(filtered), "bold")
    yield from suggestion_notes(report.suggestions, report.profile)
    yield BLANK
    yield from (*weight_tables(report), *rejection_tables(report))
    yield from map(Note, _division(filtered))
    yield from report_notes(report)
    yield BLANK
    yield Note(_accounts(filtered))
    if incomplete := _incomplete(filtered):
        yield Note(incomplete, "yellow" if filtered.prompts is not None and filtered.prompts.incomplete else "")
    if emptied := _emptied(filtered):
        yield Note(emptied, "yellow")


def _incomplete(filtered: Filtered) -> str:
    """How many prompts lose rows, and what that does to advantages; empty where the dump has no groups of rows."""
    prompts = filtered.prompts
    if prompts is None:
        return ""
    about, n = "" if prompts.exact else "about ", f"{prompts.before:,}"
    if prompts.before == prompts.after and not prompts.incomplete:
        return f"All {about}{n} prompts keep all their rows."
    are = "is" if prompts.incomplete == 1 else "are"
    counts = f"Prompts: {about}{n} -> {prompts.after:,}, of which {prompts.incomplete:,} {are} incomplete."
    if not prompts.incomplete:
        return counts
    return (
        f"{counts} Advantages that were computed over whole groups no longer fit these: compute them again from the "
        "rewards that are left, or keep all rows (--rejected keep)."
    )


def _emptied(filtered: Filtered) -> str:
    """Which steps have no row left; empty where all have some."""
    if not filtered.empty_steps:
        return ""
    named, n = clean(steps_named(filtered.empty_steps)), len(filtered.empty_steps)
    return f"No row is left of {named}: {n:,} of {plural(filtered.n_steps, 'step')}."


def _kept_tokens(filtered: Filtered) -> int:
    kept = filtered.report.whole.values.get("kept_tokens")
    return filtered.report.whole.counts["tokens"] if kept is None else int(kept)


def _kept_in_words(filtered: Filtered) -> str:
    """How many sequences and tokens are left."""
    counts, values, tokens = filtered.report.whole.counts, filtered.report.whole.values, _kept_tokens(filtered)
    sequences = int(values.get("kept_sequences", counts["sequences"]) or 0)
    return (
        f"Keeps {sequences:,} of {plural(counts['sequences'], 'sequence')} "
        f"({share(sequences / counts['sequences'])}) and {tokens:,} of {plural(counts['tokens'], 'token')} "
        f"({share(tokens / counts['tokens'])})."
    )


def _division(filtered: Filtered) -> Iterator[str]:
    """What a loss that divides by tokens makes of the rejected ones; nothing where all are kept."""
    all_tokens, tokens = filtered.report.whole.counts["tokens"], _kept_tokens(filtered)
    if tokens < all_tokens:
        yield (
            f"A token-mean loss divides by {all_tokens:,} tokens if they are counted before rejection, and by "
            f"{tokens:,} if after it (verl up to 0.8). Counted before, the gradient is "
            f"{tokens / all_tokens:.3g} times as long."
        )


def _accounts(filtered: Filtered) -> str:
    """Where every row of the dump went."""
    target, rows = filtered.target, f"{plural(filtered.rows_in, 'row')} in"
    dropped = f"{filtered.rows_dropped:,} " + ("never drawn" if target.resample is not None else "dropped")
    bad = f"{filtered.rows_bad:,} {'skipped' if filtered.quarantine is None and filtered.rows_bad else 'quarantined'}"
    accounts = f"{rows} = {filtered.rows_out:,} out + {dropped} + {bad}."
    if target.resample is not None:
        skipped = f", {bad}" if filtered.rows_bad else ""
        accounts = f"{rows}, {filtered.rows_out:,} drawn in proportion to their weights, {dropped}{skipped}."
    text = f"Dry run: nothing was written. {accounts}"
    if target.path is not None:
        text = f"Wrote {clean(target.path)} ({filtered.n_bytes / 1e6:,.2f} MB). {accounts}"
    if target.rejected is not None and filtered.rows_dropped:
        text += f" The dropped rows are in {clean(target.rejected)}."
    return text


def _of_converted(converted: Converted) -> Document:
    partnerless = _partnerless(converted)
    columns = [(Cell(clean(name)), Cell(clean(type_of))) for name, type_of in converted.columns.items()]
    table = Table(headings=("column", "type"), rows=tuple(columns), words=("type",))
    notes_of = [clean(note) for note in converted.notes]
    return Document(
        lines=_converted_lines(converted),
        command="convert",
        title=name_of_inputs(converted.inputs),
        summary=with_commas(plural(converted.rows, "row"), last_change(converted.inputs)),
        headline=_wrote(converted),
        status="warn" if partnerless else "ok",
        reasons=[partnerless] if partnerless else [],
        sections=[
            Section(heading="Columns", tables=[table]),
            *what_was_read({"rows": converted.rows}, (), converted.inputs, notes_of),
        ],
        json=json_text(converted.to_dict),
        records=({"column": name, "type": type_of} for name, type_of in converted.columns.items()),
    )


def _wrote(converted: Converted) -> str:
    size = f"{converted.n_bytes / 1e6:,.2f} MB"
    return f"Wrote {plural(converted.rows, 'row')} to {clean(converted.path)} ({size})."


def _partnerless(converted: Converted) -> str:
    """How many rows were left out of a join; empty where none was."""
    if converted.unmatched is None or not any(converted.unmatched):
        return ""
    here, there = converted.unmatched
    return f"Left out, because no row matches: {plural(here, 'row')} of the dump, {there:,} of the joined one."


def _converted_lines(converted: Converted) -> Iterator[Block]:
    """What was read, the columns that came of it, and where they are."""
    for file in converted.inputs[:FILES]:
        yield Note(f"{clean(file.path)}  {file.format}  {plural(file.rows, 'row')}", indent=0)
    if len(converted.inputs) > FILES:
        yield Note(more(len(converted.inputs) - FILES, "file"), indent=0)
    yield BLANK
    yield from (Note(clean(note), "dim") for note in converted.notes)
    yield Note(f"Columns: {', '.join(clean(name) for name in converted.columns)}.")
    if partnerless := _partnerless(converted):
        yield Note(partnerless, "yellow")
    yield Note(_wrote(converted), "bold")
