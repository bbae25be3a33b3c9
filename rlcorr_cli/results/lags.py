"""Lags: how far apart the policies are at each lag, what a lag adds, and up to which lag rules hold.

Told of the rows in which the cause is sought, where they have two lags at least (`causes/lags.py`).  A lag is a group
like any other, with intervals by prompt.  What it adds is told within steps, where steps have rows of several lags.

Lags of FEWEST_TOKENS and FEWEST_CLUSTERS are held to the rules that the smallest of them keeps: what that one breaks
comes of no lag.  The limit is the largest lag up to which they hold.  There is none where the numbers of lags are those
of steps, too: rows of other lags lie in other steps, and k3_kl differs by more or by less than the lag adds.

A file may tell how many tokens a second training takes at each lag (`read_throughput`): times token_ess these are the
effective tokens a second, what a lag buys.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from rlcorr_cli.causes.lags import AddedByLag, by_lag, lag_totals, within_steps
from rlcorr_cli.causes.steps import sample_clusters
from rlcorr_cli.causes.where import LAG
from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import canonical
from rlcorr_cli.metrics.diagnostics import metric_intervals
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.metrics.table import MetricTable
from rlcorr_cli.plans.documents import read_text
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.fields import Key, Number, Scalar
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.course import BrokenRule, broken_rules, is_judged
from rlcorr_cli.results.groups import Group, counts
from rlcorr_cli.results.rules import Rule
from rlcorr_cli.totals.flat import unique_values
from rlcorr_cli.totals.row_sample import RowSample
from rlcorr_cli.totals.view import Numbers

THROUGHPUT_HEADING = "lag,tokens_per_second"


@frozen(kw_only=True)
class AtLag(Record):
    """The rows of one lag, or of a range of lags.  added: against the base; null of the base, and where it cannot be
    told."""

    group: Group
    added: AddedByLag | None = None
    effective_rate: Annotated[Number, Key(about="Effective tokens a second, where a file tells.", omit=True)] = None

    @property
    def lag(self) -> Scalar:
        """As JSON has it: a number, or '5 to 8'."""
        return self.group.plain_key[LAG]


@frozen(kw_only=True)
class LagLimit(Record):
    """safe: the largest lag up to which the rules hold that the smallest keeps.  breaks: the first lag that breaks
    some, null where all hold.  broken: these rules."""

    safe: Scalar
    breaks: Scalar = None
    broken: tuple[BrokenRule, ...] = ()


@frozen(kw_only=True)
class Lags(Record):
    """The lags of a dump, in order.  base: the lag that the others are compared with, within steps; null where no step
    has rows of two lags.  sampled: how many sequences they are told of, null where it is all of them."""

    lags: Annotated[tuple[AtLag, ...], Key(about="Two at least.")]
    base: Scalar
    sampled: int | None = None

    @property
    def best(self) -> AtLag | None:
        """The lag of the most effective tokens a second, where these are told."""
        rated = [each for each in self.lags if each.effective_rate is not None]
        return max(rated, key=lambda each: each.effective_rate or 0.0, default=None)

    def with_rates(self, throughput: Mapping[Any, float]) -> "Lags":
        """The same with effective tokens a second.  throughput: lag -> tokens a second."""

        def rate(each: AtLag) -> Number:
            tokens, ess = throughput.get(each.lag), each.group.values["token_ess"]
            return None if tokens is None or ess is None else tokens * ess

        return replace(self, lags=tuple(replace(each, effective_rate=rate(each)) for each in self.lags))

    @property
    def is_mixed(self) -> bool:
        """Whether the numbers of lags are those of their steps, too."""
        of_base = next((each.group.values[GAP] for each in self.lags if each.lag == self.base), None)
        if of_base is None:
            return True
        differences = [((each.group.values[GAP] or 0.0) - of_base, each.added) for each in self.lags if each.added]
        return any(not added.low <= of_all <= added.high for of_all, added in differences)

    def limit(self, rules: Iterable[Rule]) -> LagLimit | None:
        """Up to which lag rules hold; None where no lag is large enough, or steps have their share in the numbers."""
        judged = [each for each in self.lags if is_judged(each.group)]
        if len(judged) < 2 or self.is_mixed:
            return None
        first, *others = judged
        kept = [rule for rule in rules if not broken_rules([first.group], [rule])]
        safe = first.lag
        for each in others:
            if broken := broken_rules([each.group], kept):
                return LagLimit(safe=safe, breaks=each.lag, broken=broken)
            safe = each.lag
        return LagLimit(safe=safe)


def read_throughput(path: str) -> dict[float, float]:
    """Lag -> tokens a second, of a file of two columns, lag and tokens_per_second, parted by commas."""
    rates: dict[float, float] = {}
    try:
        lines = read_text(path).splitlines()
    except UsageError as error:
        raise UsageError(f"Cannot read the throughput {path}: {error.what}", error.do) from None
    for number, line in enumerate(lines, 1):
        if (number == 1 and line.replace(" ", "") == THROUGHPUT_HEADING) or not line.strip():
            continue
        try:
            lag, rate = map(float, line.split(","))
        except ValueError:
            lag = rate = math.nan
        if not (math.isfinite(lag) and 0 <= rate < math.inf) or lag in rates:
            raise UsageError(
                f"{path}: line {number} is no lag, comma, tokens a second: {shortened(line)}.",
                f"Write {THROUGHPUT_HEADING} and then a line for each lag, such as 2,15000.",
            )
        rates[lag] = rate
    return rates


def lags_of(sample: RowSample, plan: Plan) -> Lags | None:
    """The lags of a sample's rows; None of fewer than two.  plan: the report's, whose kept share lags have, too."""
    rows = by_lag(sample)
    if rows is None:
        return None
    observed, plan = lag_totals(rows, plan)
    totals, column, clusters = observed.totals, rows.levels[LAG], sample_clusters(rows)
    values = MetricTable.of(canonical(Numbers.of_plan(totals, plan), plan), len(totals))
    within = within_steps(rows, clusters)
    lags: list[AtLag] = []
    for at, (_, lag) in enumerate(totals.keys):
        replicates = (observed.group_replicates or {}).get((lag,), {}).get(plan.mode)
        place = column.values.index(lag)
        group = Group(
            key={LAG: lag},
            counts=counts(totals, plan.mode, at),
            values=values[at],
            intervals=metric_intervals(values[at], replicates),
            clusters=len(unique_values(clusters[column.codes == place])),
        )
        lags.append(AtLag(group=group, added=None if within is None else within.added.get(place)))
    sampled = rows.n_rows if sample.level else None
    return Lags(lags=tuple(lags), base=None if within is None else column.values[within.base], sampled=sampled)
