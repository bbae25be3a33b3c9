"""What `filter` and `convert` say of what they wrote: which rows went where, and what took them."""

from collections.abc import Iterator

from rlcorr_cli.results.written import Converted, Filtered
from rlcorr_cli.show.correction import rejections, weights
from rlcorr_cli.show.document import BLANK, Block, Document, Note
from rlcorr_cli.show.numbers import more, plural, share
from rlcorr_cli.show.report import notes, opening
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import anomaly_notes, suggestion_notes

FILES = 8


def document(result: Filtered | Converted) -> Document:
    """What was written."""
    return Document(lines=_filtered(result) if isinstance(result, Filtered) else _converted(result))


def _filtered(filtered: Filtered) -> Iterator[Block]:
    """What is left first, then which rule took what, what to loosen, and where every row of the dump went."""
    report = filtered.report
    counts, values = report.whole.counts, report.whole.values
    yield from opening(report)
    yield from anomaly_notes(report.anomalies)
    kept_tokens = values.get("kept_tokens")
    tokens = counts["tokens"] if kept_tokens is None else int(kept_tokens)
    sequences = int(values.get("kept_sequences", counts["sequences"]) or 0)
    kept = tokens / counts["tokens"]
    yield Note(
        f"Keeps {sequences:,} of {plural(counts['sequences'], 'sequence')} "
        f"({share(sequences / counts['sequences'])}) and {tokens:,} of {plural(counts['tokens'], 'token')} "
        f"({share(kept)}).",
        "bold",
    )
    yield from suggestion_notes(report.suggestions, report.profile)
    yield BLANK
    yield from (*weights(report), *rejections(report))
    if tokens < counts["tokens"]:
        yield Note(
            f"A token-mean loss divides by {counts['tokens']:,} tokens where the count is taken before rejection, by "
            f"{tokens:,} where after (verl up to 0.8): a factor of {kept:.3g} on its gradient."
        )
    yield from notes(report)
    yield BLANK
    target, rows = filtered.target, f"{plural(filtered.rows_in, 'row')} in"
    dropped = f"{filtered.rows_dropped:,} " + ("never drawn" if target.resample is not None else "dropped")
    bad = f"{filtered.rows_bad:,} {'skipped' if filtered.quarantine is None and filtered.rows_bad else 'quarantined'}"
    accounts = f"{rows} = {filtered.rows_out:,} out + {dropped} + {bad}."
    if target.resample is not None:
        skipped = f", {bad}" if filtered.rows_bad else ""
        accounts = f"{rows}, {filtered.rows_out:,} drawn in proportion to their weights, {dropped}{skipped}."
    text = f"Dry run, nothing written. {accounts}"
    if target.path is not None:
        text = f"Wrote {clean(target.path)} ({filtered.n_bytes / 1e6:,.2f} MB). {accounts}"
    if target.rejected is not None and filtered.rows_dropped:
        text += f" The dropped rows are in {clean(target.rejected)}."
    yield Note(text)


def _converted(converted: Converted) -> Iterator[Block]:
    """What was read, the columns that came of it, and where they are."""
    for source in converted.inputs[:FILES]:
        yield Note(f"{clean(source.path)}  {source.format}  {plural(source.rows, 'row')}", indent=0)
    if len(converted.inputs) > FILES:
        yield Note(more(len(converted.inputs) - FILES, "file"), indent=0)
    yield BLANK
    yield from (Note(clean(note), "dim") for note in converted.notes)
    yield Note(f"Columns: {', '.join(clean(name) for name in converted.columns)}.")
    if converted.unmatched is not None and any(converted.unmatched):
        here, there = converted.unmatched
        rows = f"{plural(here, 'row')} of the dump, {there:,} of the joined one"
        yield Note(f"Left out, for having no partner: {rows}.", "yellow")
    size = f"{converted.n_bytes / 1e6:,.2f} MB"
    yield Note(f"Wrote {plural(converted.rows, 'row')} to {clean(converted.path)} ({size}).", "bold")
