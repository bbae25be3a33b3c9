"""What `filter` did, on a terminal: what is left first, then which rule took what, and what to loosen."""

import math

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.plans.plan import Rejection
from rlcorr_cli.plans.statistics import STATISTICS
from rlcorr_cli.present.numbers import share
from rlcorr_cli.present.stdout import clean, render
from rlcorr_cli.present.terminal.report import (
    print_headline,
    print_notes,
    print_rejections,
    print_suspicions,
    print_weights,
)
from rlcorr_cli.report.filtered import Filtered
from rlcorr_cli.totals.histogram import HISTOGRAM_RELATIVE_ERROR

TARGET = 0.9
"""The share of its units that a suggested threshold keeps."""


def print_filtered(filtered: Filtered) -> None:
    """The summary on stdout."""
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
    console.print(Padding(Text(line, style="bold"), (0, 2)))
    if report.plan.rules:
        _suggest(console, filtered)
    print_suspicions(console, report.suspicions)
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
    """For each rejection that keeps less than TARGET of its units: the bounds that would keep that."""
    for rejection in filtered.report.plan.rejections:
        lost = filtered.report.whole.values.get(f"rollout_rs_{rejection.name}_{_unit(rejection)}")
        bounds = suggested(rejection, filtered)
        if lost is None or lost <= 1 - TARGET or bounds is None:
            continue
        words = Text(f"! {clean(rejection.name)} takes {share(lost)} of the {_units(rejection)}. ", style="yellow")
        words.append(f"To keep {100 * TARGET:g} % of them:", style="default")
        console.print(Padding(words, (0, 2)))
        console.print(Padding(Text(f"--rs {rejection.statistic}.{rejection.scope}:{bounds}"), (0, 4)))


def suggested(rejection: Rejection, filtered: Filtered) -> str | None:
    """Bounds that keep TARGET of the units, as --rs takes them; None where no single number does."""
    plain = rejection.of == "mismatch" and rejection.gate == "any"
    if not plain or not STATISTICS[rejection.statistic].nonnegative or rejection.name not in filtered.distances:
        return None
    reach = filtered.distances[rejection.name].quantile(TARGET)
    if reach is None:
        return None
    reach = abs(reach) * (1 + 3 * HISTOGRAM_RELATIVE_ERROR)
    if rejection.statistic != "ratio":
        return f",{_up(reach)}"
    low = "" if rejection.bounds.low is None else _down(math.exp(-reach))
    high = "" if rejection.bounds.high is None else _up(math.exp(reach))
    return f"{low},{high}"


def _up(value: float) -> str:
    """Four digits after the leading ones of |value - 1|, rounded outwards."""
    return f"{math.ceil(value * _scale(value)) / _scale(value):g}"


def _down(value: float) -> str:
    return f"{math.floor(value * _scale(value)) / _scale(value):g}"


def _scale(value: float) -> float:
    distance = min(abs(value - 1) or 1.0, abs(value) or 1.0)
    return 10.0 ** (2 - math.floor(math.log10(distance)))


def _unit(rejection: Rejection) -> str:
    return "masked_fraction" if rejection.scope == "token" else "seq_masked_fraction"


def _units(rejection: Rejection) -> str:
    return "tokens" if rejection.scope == "token" else "sequences"


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
