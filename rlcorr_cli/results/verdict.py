"""The verdict on a dump: how close its two policies are, which weights that leaves usable, where a drift begins; and
what cannot be, which voids the numbers.

Values only; `show/terminal/verdict.py` puts them into words.  The verdict is made from the same findings that are
printed below it, so it never calls usable what a failing rule refuses.  A new level is a row of `Level` and its branch
in `_level`.

What cannot be is a mean ratio away from 1.  Under the policy that drew the tokens the mean of rho = e^l is 1, whatever
the other policy; and so the mean of rho^2 is at least 1, a chi-square at least 0.  A sample's mean differs by its
sampling error only, unless a few unseen tokens carry the rest of it.  So nothing is concluded on a mean alone: below 1,
the mean of rho^2 must be below 1, too, as it never is where large ratios are about; above 1, the tail of the ratios
must be one whose mean can be trusted.  That the mean is 1 holds within every prompt, so rollouts are what is
independent here, not prompts: the errors come from buckets of rollouts, and not from the bootstrap's draws of
prompts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.fields import Interval
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.results.rules import Finding
from rlcorr_cli.totals.families import Value
from rlcorr_cli.totals.whole import WholeDump

LOWERED_BY = ("top_p", "min_p", "top_k", "temperature_and_truncation", "padded_vocabulary")
"""Causes of a gap that put the mean ratio below 1: what is named as one of them explains it."""
STANDARD_ERRORS = 5.0
"""How many standard errors a mean must lie away.  Dumps without such a fault reach 3.6, with one 5 to 31."""
LEAST = 0.001
"""What the storage of log-probs may move a mean by."""
FEWEST = 20
"""Distinct sequences that it takes to know a standard error."""
ROUNDING = 1e-12
"""A standard error below this share of its mean is rounding."""


@dataclass(frozen=True)
class Impossible(Record):
    """A metric that cannot have its value, its 95 % interval, and the sentence of what that proves."""

    metric: str
    value: float
    interval: Interval
    proves: str

    def follows_from(self, cause: str) -> bool:
        """Whether the cause of a gap explains the value, so that there is nothing else to look for."""
        return self.value < 1 and cause in LOWERED_BY


TOO_LOW = (
    "the training policy gives probability to tokens that the rollout column rules out: it holds processed log-probs "
    "(after top-p, top-k or min-p), or the training column sums over more than the vocabulary that was drawn from"
)
TOO_HIGH = (
    "the rollout column is not the distribution that the tokens were drawn from: a wrong or swapped column, log-probs "
    "scaled after the softmax, or truncated storage"
)


def impossible_in(values: Mapping[str, Value], whole_totals: WholeDump | None) -> Impossible | None:
    """`impossible_ratio` of what is kept of a whole dump; nothing where its errors are not known.

    The intervals are of Student's t, with the standard error of sum x / sum n over m buckets of rollouts that hold any:
    sqrt(m / (m - 1) sum (x_g - mean n_g)^2) / sum n.  Sums whose squares float64 does not hold have none.
    """
    if whole_totals is None or whole_totals.rows is None or whole_totals.ratios is None:
        return None
    import numpy as np

    filled = whole_totals.ratios[whole_totals.ratios[:, 0] > 0]
    n_buckets, n = len(filled), filled[:, 0]
    if n_buckets < 2:
        return None
    ends: dict[str, tuple[float, float]] = {}
    for name, one, x in (("ratio_mean", 1.0, filled[:, 1]), ("chi2_token", 0.0, filled[:, 2])):
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(x.sum() / n.sum())
            reach = t_quantile(0.975, n_buckets) * math.sqrt(((x - mean * n) ** 2).sum()) / float(n.sum())
        if math.isfinite(reach):
            ends[name] = one + mean - reach, one + mean + reach
    return impossible_ratio(values, ends, whole_totals.rows.n_distinct)


def impossible_ratio(
    values: Mapping[str, Value], intervals: Mapping[str, tuple[float, float]], n_distinct: int
) -> Impossible | None:
    """The mean ratio of a dump, where it proves that a column is not what it is taken for; values: canonical.

    intervals: of ratio_mean and chi2_token over independent rollouts.
    """
    mean, interval = values.get("ratio_mean"), intervals.get("ratio_mean")
    if mean is None or interval is None or n_distinct < FEWEST or abs(mean - 1) < LEAST:
        return None
    away = _errors_away(mean, 1.0, interval)
    if away < -STANDARD_ERRORS and _is_negative(values.get("chi2_token"), intervals.get("chi2_token")):
        return Impossible("ratio_mean", mean, interval, TOO_LOW)
    shape, limit = values.get("pareto_k_token"), values.get("pareto_k_token_limit")
    healthy = shape is not None and limit is not None and shape <= limit
    if away > STANDARD_ERRORS and healthy:
        return Impossible("ratio_mean", mean, interval, TOO_HIGH)
    return None


def _is_negative(value: Value, interval: tuple[float, float] | None) -> bool:
    return value is not None and interval is not None and _errors_away(value, 0.0, interval) < -STANDARD_ERRORS


def _errors_away(value: float, true: float, interval: tuple[float, float]) -> float:
    """Distance in standard errors, of which a 95 % interval is 3.92 wide.

    0 where the error is 0 but for rounding, as of ratios that are all the same.
    """
    error = (interval[1] - interval[0]) / 3.92
    return (value - true) / error if error > ROUNDING * max(abs(value), abs(true)) else 0.0


Level = Literal["equal", "void", "too few", "same", "close", "apart", "far"]
Weights = Literal["token", "sequence"]

ROUNDING_K3 = 1e-6
"""Below this k3_kl (nats) two policies differ by rounding alone."""
CLOSE_K3 = 0.01
"""Below this k3_kl two policies are close."""
USABLE_TOKEN_ESS = 0.5
"""At a smaller effective share of the tokens no weight repairs the sample."""
FEWEST_SEQUENCES = 32
"""Fewer sequences do not carry a verdict: one of them decides the effective sample size."""
ONSET_FACTOR = 2.0
"""A drift has set in where k3_kl stays above this multiple of its first value."""
POLICIES = ("kl", "k3_kl", "chi2_token")
"""Metrics whose failing rule says that the policies themselves are too far apart."""
WEIGHTS = ("rollout_is_mean", "rollout_is_std", "rollout_is_eff_sample_size")
"""Metrics whose failing rule says that the plan's own weights are not usable."""
OF_SEQUENCES = ("seq_ess", "pareto_k_seq")
"""Metrics whose broken rule says that weights of whole sequences are not usable."""


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """A conclusion about a whole dump.

    causes: names of what voids the numbers.  usable: the scopes whose weights leave a usable sample.  failing: the
    metrics whose rule fails, in the rules' order.  kept_fraction: the share of tokens that the plan's rejections keep
    (None for a plan that rejects nothing).
    """

    level: Level
    causes: tuple[str, ...]
    usable: tuple[Weights, ...]
    failing: tuple[str, ...]
    n_sequences: int
    kept_fraction: float | None


@dataclass(frozen=True, kw_only=True)
class Onset(Record):
    """From `place` on, k3_kl stays at least `factor` times its value at `reference`, along a column of groups."""

    column: str
    place: float
    reference: float
    factor: float


def verdict(
    counts: Mapping[str, int],
    values: Mapping[str, Value],
    *,
    health: Iterable[Finding],
    plan: Plan,
    causes: tuple[str, ...] = (),
    clusters: Clusters | None = None,
) -> Verdict:
    """The verdict on a dump of these counts and canonical metrics, whose findings are `health`.

    causes: names of what was found in the data that voids the numbers.  clusters: as of a Report.
    """
    findings = {finding.metric: finding for finding in health if finding.broken}
    too_few = counts["sequences"] < FEWEST_SEQUENCES or (clusters is not None and clusters.too_few)
    level = _level(values, findings, causes, too_few=too_few)
    kept = values.get("kept_tokens")
    return Verdict(
        level=level,
        causes=causes,
        usable=_usable(level, values, findings, plan),
        failing=tuple(name for name, finding in findings.items() if finding.status == "fail"),
        n_sequences=counts["sequences"],
        kept_fraction=None if kept is None or not counts["tokens"] else kept / counts["tokens"],
    )


def _level(
    values: Mapping[str, Value], broken: Mapping[str, Finding], causes: tuple[str, ...], *, too_few: bool
) -> Level:
    k3, token_ess = values.get("k3_kl"), values.get("token_ess")
    if values.get("logprob_abs_diff_max") == 0:
        return "equal"
    if causes:
        return "void"
    if too_few:
        return "too few"
    if k3 is None or token_ess is None or token_ess < USABLE_TOKEN_ESS or not broken.keys().isdisjoint(POLICIES):
        return "far"
    if k3 < ROUNDING_K3:
        return "same"
    return "close" if k3 < CLOSE_K3 else "apart"


def _usable(
    level: Level, values: Mapping[str, Value], broken: Mapping[str, Finding], plan: Plan
) -> tuple[Weights, ...]:
    """Which weights are usable: those of sequences only where those of tokens are, of which they are products."""
    if level in ("far", "too few", "void"):
        return ()
    refused = any(name in broken and broken[name].status == "fail" for name in WEIGHTS)
    if refused and plan.weighting is not None and plan.weighting.scope == "token":
        return ()
    if refused or values.get("seq_ess") is None or not broken.keys().isdisjoint(OF_SEQUENCES):
        return ("token",)
    return ("token", "sequence")


def onset(keys: Sequence[Mapping[str, Any]], k3: Sequence[float | None]) -> Onset | None:
    """Where along one ordered column of numbers k3_kl begins to stay above ONSET_FACTOR times its first value.

    None without three groups by one numeric column, where a group has no k3_kl, and where nothing drifts.
    """
    if len(keys) < 3 or any(len(key) != 1 for key in keys):
        return None
    column = next(iter(keys[0]))
    places = [key[column] for key in keys]
    known = [value for value in k3 if value is not None]
    if len(known) < len(k3) or not known[0]:
        return None
    is_number = (isinstance(p, int | float) and not isinstance(p, bool) and math.isfinite(p) for p in places)
    if not all(is_number):
        return None
    lowest_on = list(accumulate(reversed(known), min))[::-1]  # the lowest from each group to the last
    for place, lowest in zip(places[1:], lowest_on[1:], strict=True):
        if lowest > ONSET_FACTOR * known[0] and lowest > ROUNDING_K3:
            return Onset(column=column, place=place, reference=places[0], factor=lowest / known[0])
    return None
