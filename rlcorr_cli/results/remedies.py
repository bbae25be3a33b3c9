"""What to do where a rule is broken, said for the plan and the data at hand.

A default rule's own text (`defaults.py`) is the general advice, which `explain` shows.  A row of REMEDIES says it more
exactly where the plan or the data tell how: with the plan's own bound, or with bounds that were measured.  A user's
remedy is said as the user wrote it.  Where a cause is known that voids the numbers (shifted columns, say), the default
remedies are left out: each would treat a consequence.  Where the policies are farther apart than weights can repair, no
remedy takes weights.

tests/results/test_remedies.py applies each remedy to data that break its rule, and sees that it helps.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rlcorr_cli.plans.plan import Bounds, Plan, Rejection
from rlcorr_cli.plans.swept import plain
from rlcorr_cli.results.judge import Finding, remedy_of


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The plan whose numbers are judged, and what else is known of them.

    causes: names of what voids the numbers.  geometric: bounds on a sequence's geometric mean ratio that keep
    `geometric_kept` of the sequences, at least or (is_exact) just that; None where that is not measured.  is_far:
    whether no weights repair the gap, as the verdict has it.
    """

    plan: Plan
    causes: tuple[str, ...] = ()
    geometric: Bounds | None = None
    geometric_kept: float = 0.0
    is_exact: bool = False
    is_far: bool = False


def advised(findings: Iterable[Finding], situation: Situation) -> tuple[Finding, ...]:
    """The findings with the remedies of this situation in the place of the default ones."""
    return tuple(
        replace(finding, fix=_remedy(finding, situation)) if finding.fix == remedy_of(finding.metric) else finding
        for finding in findings
    )


def _remedy(finding: Finding, situation: Situation) -> str | None:
    if situation.causes:
        return None
    if situation.is_far and finding.metric in OF_WEIGHTS:
        return "No weights repair a gap as wide as this: find its cause first."
    specific = REMEDIES.get(finding.metric)
    return (None if specific is None else specific(situation)) or finding.fix


def _look_first(situation: Situation) -> str:
    """Few tokens with a large ratio: weights that are clamped bear them, but for a gap that none repair."""
    return (
        "A few tokens carry the gap: look at them first (`rlcorr inspect DUMP --worst 5`)." if situation.is_far else ""
    )


def _no_sequence_weights(situation: Situation) -> str:
    """Token weights, or a geometric rejection with bounds that keep a share which is said."""
    weighting = situation.plan.weighting
    if weighting is not None and weighting.scope == "token":
        return "Weights of whole sequences would not bear this data; the plan's token weights do not depend on it."
    bounds = situation.geometric
    if bounds is None or bounds.low is None or bounds.high is None:
        return ""
    return (
        "Do not weight whole sequences on this data: take token weights (--preset token_is), or geometric rejection "
        f"with --rs ratio.seq_mean:{plain(bounds.low)},{plain(bounds.high)}, which keeps "
        f"{'' if situation.is_exact else 'at least '}{100 * situation.geometric_kept:.3g} % of the dump's sequences."
    )


def _narrower_weights(situation: Situation) -> str:
    """Weights of smaller scope spread less, and so do weights that are clamped lower."""
    weighting = situation.plan.weighting
    if weighting is None or weighting.scope == "token":
        return ""
    return "Take token weights (--is token), which spread far less than those of sequences, or a lower --is-high."


def _mean_of_weights(situation: Situation) -> str:
    """The mean weight of long sequences falls below 1 by itself where their weights spread."""
    weighting = situation.plan.weighting
    if weighting is None or weighting.scope != "sequence":
        return ""
    return (
        "The few sequences that would bring the mean back to 1 are not in this dump: take token weights (--is token). "
        "If their mean is far from 1, too, check that the right columns were compared."
    )


def _lower_veto(situation: Situation) -> str:
    """A veto rejects what lies below its bound, so a lower bound takes less."""
    vetoes = [rejection for rejection in situation.plan.rejections if _is_veto(rejection)]
    if not vetoes or vetoes[0].bounds.low is None:
        return ""
    bound = vetoes[0].bounds.low
    return (
        f"Lower the veto's bound from {bound:g} to {bound / 10:g}, and look for numerical faults in the log-probs of "
        "the vetoed sequences."
    )


def _is_veto(rejection: Rejection) -> bool:
    return rejection.statistic == "ratio" and rejection.scope == "seq_min" and rejection.bounds.high is None


REMEDIES: Mapping[str, Callable[[Situation], str]] = {
    "chi2_token": _look_first,
    "seq_ess": _no_sequence_weights,
    "pareto_k_seq": _no_sequence_weights,
    "rollout_is_mean": _mean_of_weights,
    "rollout_is_std": _narrower_weights,
    "rollout_is_eff_sample_size": _narrower_weights,
    "rollout_is_seq_max_deviation": _narrower_weights,
    "rollout_is_veto_fraction": _lower_veto,
    "rollout_is_catastrophic_token_fraction": _lower_veto,
}
"""Metric -> its default remedy in a situation; empty where the general one says all there is."""
OF_WEIGHTS = (
    *("seq_ess", "pareto_k_seq"),
    *("rollout_is_mean", "rollout_is_std", "rollout_is_eff_sample_size", "rollout_is_seq_max_deviation"),
    "rollout_rs_masked_fraction",
)
"""Metrics whose remedies take other weights, or weights at all."""
