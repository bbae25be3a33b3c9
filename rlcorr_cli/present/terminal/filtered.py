"""What `filter` did, on a terminal: what is left first, then which rule took what, and what to loosen."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.present.numbers import share
from rlcorr_cli.present.stdout import clean, render
from rlcorr_cli.present.terminal.report import (
    print_anomalies,
    print_headline,
    print_notes,
    print_rejections,
    print_weights,
)
from rlcorr_cli.report.filtered import Filtered
from rlcorr_cli.report.suggest import TARGET, SuggestedBounds


def print_filtered(filtered: Filtered) -> None:
    """Print the summary of a filter run on stdout."""
    render(lambda console: _draw(console, filtered))


def _draw(console: Console, filtered: Filtered) -> None:
    report = filtered.report
    counts, values = report.whole.counts, report.whole.values
    print_headline(console, report)
    tokens = values.get("kept_tokens")
    tokens = counts["tokens"] if tokens is None else int(tokens)
    sequences = int(values.get("kept_sequences", counts["sequences"]) or 0)
    kept = tokens / counts["tokens"]
    line = (
        f"Keeps {sequences:,} of {counts['sequences']:,} sequences ({share(sequences / counts['sequences'])}) and "
        f"{tokens:,} of {counts['tokens']:,} tokens ({share(kept)})."
    )
    print_anomalies(console, report.anomalies)
    console.print(Padding(Text(line, style="bold"), (0, 2)))
    _suggest(console, filtered)
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
    _where(console, filtered)


def _suggest(console: Console, filtered: Filtered) -> None:
    """Looser bounds for each rejection that takes too much: as --rs where that option works, else as numbers."""
    for bounds in filtered.report.suggestions:
        words = Text(
            f"! {clean(bounds.rejection)} takes {share(bounds.lost_fraction)} of the {bounds.units}. ", "yellow"
        )
        words.append(f"To keep {100 * TARGET:g} % of them:", style="default")
        console.print(Padding(words, (0, 2)))
        console.print(Padding(Text(_bounds(bounds, filtered.report.profile)), (0, 4)))


def _bounds(bounds: SuggestedBounds, profile: str) -> str:
    """A profile's plan is written in the framework's own config, which --rs cannot change."""
    low, high = ("" if end is None else f"{end:g}" for end in (bounds.low, bounds.high))
    if profile == "canonical":
        return f"--rs {bounds.statistic}.{bounds.scope}:{low},{high}"
    ends = (f"{name} {end}" for name, end in (("low", low), ("high", high)) if end)
    return f"bounds {', '.join(ends)} on {bounds.statistic} in the framework's config"


def _where(console: Console, filtered: Filtered) -> None:
    target, rows = filtered.target, f"{filtered.rows_in:,} rows in"
    gone = f"{filtered.rows_dropped:,} " + ("never drawn" if target.resample is not None else "dropped")
    bad = f"{filtered.rows_bad:,} {'skipped' if filtered.quarantine is None and filtered.rows_bad else 'quarantined'}"
    accounts = f"{rows} = {filtered.rows_out:,} out + {gone} + {bad}."
    if target.resample is not None:
        left = f", {bad}" if filtered.rows_bad else ""
        accounts = f"{rows}, {filtered.rows_out:,} drawn in proportion to their weights, {gone}{left}."
    if target.path is None:
        text = f"Dry run, nothing written. {accounts}"
    else:
        text = f"Wrote {clean(target.path)} ({filtered.n_bytes / 1e6:,.2f} MB). {accounts}"
    if target.rejected is not None and filtered.rows_dropped:
        text += f" The dropped rows are in {clean(target.rejected)}."
    console.print()
    console.print(Padding(Text(text), (0, 2)))
