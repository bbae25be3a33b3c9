"""RULES: which values of a metric are a worry by default, and what to do about them.

Thresholds are those of verl's published guides and of the metric definitions.  A new rule is a row here: reports,
`check`, text, pages and the lines in figures all read this table through `judge` or `rule_on`.
"""

from collections.abc import Iterable

from rlcorr_cli.results.rule import Rule
from rlcorr_cli.totals.limits import LARGEST_SHAPE

_TAIL = (
    "A few tokens carry the gap: look at them first (`rlcorr inspect DUMP --worst 5`). Only clamped weights bear them "
    "(--preset token_is)."
)


_SPREAD = "Take a lower --is-high; if that does not help, the policies differ too much to reuse this data."


_VETO = "Lower the veto's bound, and look for numerical faults in the log-probs of the vetoed sequences."


_SHIFT = (
    "Check that the right columns are compared and that they are aligned; then look for what shifts all tokens alike: "
    "temperature, stale weights."
)


_ENGINE = (
    "Compare precision, sampling parameters and chunking of the two engines; large gaps mean stale or misaligned data."
)


_SEQUENCE = "Do not weight whole sequences on this data: take token weights (--preset token_is)."


RULES: tuple[Rule, ...] = (
    Rule("kl", "fail", _SHIFT, high=0.1, absolute=True),
    Rule("k3_kl", "fail", _ENGINE, high=0.1),
    Rule("chi2_token", "fail", _TAIL, high=1.0),
    Rule("prob_abs_diff_mean", "warn", _ENGINE, high=0.01),
    Rule("seq_ess", "warn", _SEQUENCE, low=0.3),
    # The stricter limit of small samples stands beside it, and has no value where they are too small to judge by.
    Rule("pareto_k_seq", "warn", _SEQUENCE, high=LARGEST_SHAPE, over="total", needs="pareto_k_seq_limit"),
    Rule("rollout_is_mean", "fail", _SHIFT, low=0.5, high=2.0),
    Rule("rollout_is_eff_sample_size", "fail", _SPREAD, low=0.3),
    Rule("rollout_is_std", "fail", _SPREAD, high=1.0),
    Rule("rollout_is_seq_max_deviation", "warn", _SPREAD, high=1.0),
    Rule("rollout_is_veto_fraction", "fail", _VETO, high=0.1),
    Rule("rollout_is_catastrophic_token_fraction", "warn", _VETO, high=0.01),
    Rule(
        "rollout_rs_masked_fraction",
        "warn",
        "Below 0.1 is ideal. Widen the bounds, or take weights instead of rejection.",
        high=0.3,
    ),
)


def rule_on(metric: str, rules: Iterable[Rule]) -> Rule | None:
    """The first rule on a metric, at whose bounds figures draw their lines; None where no rule is on it."""
    return next((rule for rule in rules if rule.metric == metric), None)
