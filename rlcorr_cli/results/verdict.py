"""The verdict on a dump: how close its two policies are, and which weights that leaves usable.

Values only; `show/words.py` puts them into words.  The verdict is made from the same findings that are printed below
it, so it never calls usable what a failing rule refuses; `usable.py` says what a sample of weights can bear, and when
it is too small to tell.  A new level is a row of `Level` and its branch in `_level`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.fields import Scalar
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.results.rules import Finding
from rlcorr_cli.results.usable import TOKEN_ESS, Usable, usable_weights
from rlcorr_cli.totals.view import Value

Level = Literal["equal", "void", "too few", "same", "close", "apart", "far"]

ROUNDING_K3 = 1e-6
"""Below this k3_kl (nats) two policies differ by rounding alone."""
CLOSE_K3 = 0.01
"""Below this k3_kl two policies are close."""
FEWEST_SEQUENCES = 32
"""Fewer sequences do not carry a verdict: one of them decides the effective sample size."""


@frozen(kw_only=True)
class Verdict(Record):
    """A conclusion about a whole dump.

    causes: names of what voids the numbers.  usable: whether weights leave a usable sample.  failing: the metrics
    whose rule fails, in the rules' order.  kept_fraction: the share of tokens that the plan's rejections keep
    (None for a plan that rejects nothing).
    """

    level: Level
    causes: tuple[str, ...]
    usable: Usable
    failing: tuple[str, ...]
    n_sequences: int
    kept_fraction: float | None


@frozen(kw_only=True)
class StepVerdict(Record):
    """The verdict on the last step, or on the range of small steps in which it is judged.

    since: the first of the last steps that all break the rule on the effective share of sequences; null where the last
    one keeps it.
    """

    step: Scalar
    since: Scalar
    verdict: Verdict


def verdict(
    counts: Mapping[str, int],
    values: Mapping[str, Value],
    *,
    health: Iterable[Finding],
    plan: Plan,
    causes: tuple[str, ...] = (),
    clusters: Clusters | None = None,
    broken_in_steps: Collection[str] = (),
) -> Verdict:
    """The verdict on a dump of these counts and canonical metrics, whose findings are `health`.

    causes: names of what was found in the data that voids the numbers.  clusters: as of a Report.  broken_in_steps: the
    metrics whose rule a judged step breaks; those that weights rest on make them unusable for the whole dump.
    """
    findings = {finding.metric: finding for finding in health if finding.broken}
    too_few = counts["sequences"] < FEWEST_SEQUENCES or (clusters is not None and clusters.too_few)
    level = _level(values, findings, causes, too_few=too_few)
    failing = tuple(name for name, finding in findings.items() if finding.status == "fail")
    kept = values.get("kept_tokens")
    return Verdict(
        level=level,
        causes=causes,
        usable=_unrefused(
            usable_weights(values, counts["sequences"], clusters),
            level,
            (*failing, *(name for name in broken_in_steps if refuses_sequences(name))),
            plan,
        ),
        failing=failing,
        n_sequences=counts["sequences"],
        kept_fraction=None if kept is None or not counts["tokens"] else kept / counts["tokens"],
    )


def _level(
    values: Mapping[str, Value], broken: Mapping[str, Finding], causes: tuple[str, ...], *, too_few: bool
) -> Level:
    k3, token_ess = values.get(GAP), values.get("token_ess")
    if values.get("logprob_abs_diff_max") == 0:
        return "equal"
    if causes:
        return "void"
    if too_few:
        return "too few"
    if k3 is None or token_ess is None or token_ess < TOKEN_ESS or "policies" in _refused(broken):
        return "far"
    if k3 < ROUNDING_K3:
        return "same"
    return "close" if k3 < CLOSE_K3 else "apart"


def _unrefused(usable: Usable, level: Level, failing: Collection[str], plan: Plan) -> Usable:
    """Which weights are usable: what the sample says, unless the level or a rule refuses them."""
    if level == "too few":
        return Usable(token="unsure", sequence="unsure")
    refused = _refused(failing)
    of_tokens = plan.weighting is not None and plan.weighting.scope == "token"
    if level in ("far", "void") or ("weights" in refused and of_tokens):
        return Usable(token="no", sequence="no")
    if not refused.isdisjoint(("weights", "sequences")):
        return replace(usable, sequence="no")
    return usable


def _refused(metrics: Iterable[str]) -> set[str]:
    """What the broken rules on these metrics say is not as it should be."""
    return {DEFINITIONS[name].refuses for name in metrics if name in DEFINITIONS}


def refuses_sequences(metric: str) -> bool:
    """Whether a broken rule on a metric says that weights of whole sequences are not usable."""
    return "sequences" in _refused([metric])
