"""What `filter` did, on a terminal: what is left first, then which rule took what, and what to loosen."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.results.written import Filtered
from rlcorr_cli.show.numbers import plural, share
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.terminal.report import (
    print_anomalies,
    print_headline,
    print_notes,
    print_rejections,
    print_suggestions,
    print_weights,
)


def print_filtered(filtered: Filtered) -> None:
    """Print the summary of a filter run on stdout."""
    render(lambda console: _draw(console, filtered))


def _draw(console: Console, filtered: Filtered) -> None:
    report = filtered.report
    counts, values = report.whole.counts, report.whole.values
    print_headline(console, report)
    print_anomalies(console, report.anomalies)
    kept_tokens = values.get("kept_tokens")
    tokens = counts["tokens"] if kept_tokens is None else int(kept_tokens)
    sequences = int(values.get("kept_sequences", counts["sequences"]) or 0)
    kept = tokens / counts["tokens"]
    line = (
        f"Keeps {sequences:,} of {plural(counts['sequences'], 'sequence')} "
        f"({share(sequences / counts['sequences'])}) and {tokens:,} of {plural(counts['tokens'], 'token')} "
        f"({share(kept)})."
    )
    console.print(Padding(Text(line, style="bold"), (0, 2)))
    print_suggestions(console, report.suggestions, report.profile)
    console.print()
    print_weights(console, report)
    print_rejections(console, report)
    if tokens < counts["tokens"]:
        words = (
            f"A token-mean loss divides by {counts['tokens']:,} tokens where the count is taken before rejection, by "
            f"{tokens:,} where after (verl up to 0.8): a factor of {kept:.3g} on its gradient."
        )
        console.print(Padding(Text(words), (0, 2)))
    print_notes(console, report)
    _print_written(console, filtered)


def _print_written(console: Console, filtered: Filtered) -> None:
    """What was written where, and where every row of the dump went."""
    target, rows = filtered.target, f"{plural(filtered.rows_in, 'row')} in"
    dropped = f"{filtered.rows_dropped:,} " + ("never drawn" if target.resample is not None else "dropped")
    bad = f"{filtered.rows_bad:,} {'skipped' if filtered.quarantine is None and filtered.rows_bad else 'quarantined'}"
    accounts = f"{rows} = {filtered.rows_out:,} out + {dropped} + {bad}."
    if target.resample is not None:
        skipped = f", {bad}" if filtered.rows_bad else ""
        accounts = f"{rows}, {filtered.rows_out:,} drawn in proportion to their weights, {dropped}{skipped}."
    if target.path is None:
        text = f"Dry run, nothing written. {accounts}"
    else:
        text = f"Wrote {clean(target.path)} ({filtered.n_bytes / 1e6:,.2f} MB). {accounts}"
    if target.rejected is not None and filtered.rows_dropped:
        text += f" The dropped rows are in {clean(target.rejected)}."
    console.print()
    console.print(Padding(Text(text), (0, 2)))
