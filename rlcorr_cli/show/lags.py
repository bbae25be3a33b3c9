"""What a report says of lags: a row for each, what a lag adds, and up to which lag the rules hold."""

from collections.abc import Callable, Iterator

from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.results.course import reliable
from rlcorr_cli.results.lags import AtLag
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.correction import worst_status
from rlcorr_cli.show.document import Cell, Column, Table, number_cell, tabulated
from rlcorr_cli.show.numbers import NOTHING, interval, number, plural, share, signed, thousands
from rlcorr_cli.totals.view import Value


def lag_tables(report: Report) -> list[Table]:
    """A row for each lag of a report that has them; nothing where no step has two, for it would be a table of steps."""
    lags = report.lags
    if lags is None or lags.base is None:
        return []
    known = {name for each in lags.lags for name, value in each.group.values.items() if value is not None}

    def metric(heading: str, name: str, show: Callable[[Value], str], drop: int = 0) -> list[Column]:
        def cell(each: AtLag) -> Cell:
            status = "" if report.lag_limit is None else worst_status(report.findings(each.group)).get(name, "")
            return number_cell(reliable(name, each.group), show, status)

        return [Column(heading=heading, cell=cell, drop=drop)] if name in known else []

    def ends(each: AtLag) -> Cell:
        return Cell(interval(*each.group.intervals[GAP]) if GAP in each.group.intervals else "")

    def added(each: AtLag) -> Cell:
        return Cell(signed(each.added.value) if each.added else "base" if each.lag == lags.base else NOTHING)

    def added_ends(each: AtLag) -> Cell:
        return Cell(interval(each.added.low, each.added.high) if each.added else "")

    def rate(each: AtLag) -> Cell:
        return number_cell(each.effective_rate, lambda value: thousands(round(value or 0.0)))

    columns = [
        Column(heading="lag", cell=lambda each: Cell(str(each.lag))),
        Column(heading="tokens", cell=lambda each: number_cell(each.group.counts["tokens"], thousands), drop=3),
        *metric(GAP, GAP, number),
        Column(heading="95% interval", cell=ends, drop=2),
        Column(heading="lag adds", cell=added),
        Column(heading="95% of it", cell=added_ends, drop=1),
        *metric("seq ESS", "seq_ess", number),
        *metric("token ESS", "token_ess", number, 4),
        *([] if lags.best is None else [Column(heading="effective/s", cell=rate)]),
        *metric("lost", "rollout_rs_masked_fraction", share, 1),
        *metric("adv shift", "advantage_shift", signed, 5),
    ]
    return [tabulated(lags.lags, columns)]


def lag_sentences(report: Report) -> Iterator[str]:
    """What the rows of that table come to."""
    lags, limit = report.lags, report.lag_limit
    assert lags is not None
    if lags.sampled is not None:
        yield f"Of lags a sample of {plural(lags.sampled, 'sequence')} tells."
    sure = [each for each in lags.lags if each.added and each.added.sure]
    if lags.base is None:
        yield "Every step has rows of one lag: what lags add cannot be told from what the steps change."
    elif not any(each.added for each in lags.lags):
        yield f"No lag but {lags.base} has rows of {FEWEST_CLUSTERS} prompts: too few to tell what it adds."
    elif not sure:
        yield f"Within a step no lag changes {GAP} by more than chance does."
    elif (added := sure[-1].added) is not None:
        size = f"{number(abs(added.value))} {'more' if added.value > 0 else 'less'} {GAP}"
        of_base = f"than rows of lag {lags.base} (95% {interval(added.low, added.high)})"
        yield f"Within a step, rows of lag {sure[-1].lag} have {size} {of_base}."
    if lags.base is not None and lags.is_mixed:
        yield "The lags lie in different steps: the other numbers of a lag are those of its steps, too."
    if (best := lags.best) is not None:
        rate = thousands(round(best.effective_rate or 0.0))
        yield f"Lag {best.lag} gives the most effective tokens a second, {rate}: tokens a second times token_ess."
    if limit is None:
        return
    kept = f"the rules that lag {lags.lags[0].lag} keeps"
    if limit.breaks is None:
        yield f"Every lag stays within {kept}."
        return
    broken = ", ".join(f"{rule.metric} ({number(rule.worst_value)}, should be {rule.rule})" for rule in limit.broken)
    yield f"Lags up to {limit.safe} stay within {kept}; lag {limit.breaks} breaks {broken}."
