"""Rules: the range that a metric should lie in, how bad it is outside, and what to do about it; and how `judge` holds
numbers to them.

First what a rule is, then RULES, the default ones: which values of a metric are a worry, by verl's published guides and
the definitions of the metrics.  A new rule is a row there: reports, `check`, text, pages and the lines in figures all
read that table through `judge` or `rule_on`.  A user's rules come from files or flags (`policy.py`), and replace the
default ones on the same metrics.  A metric without a value has the status "no data", which a report shows and `check`
counts as broken (`unexcused`).

Last the remedies.  A default rule's own text is the general advice, which `explain` shows.  A row of REMEDIES says it
more exactly where the plan or the data tell how: with the plan's own bound, or with bounds that were measured.  A
user's remedy is said as the user wrote it.  Where a cause is known that voids the numbers (shifted columns, say), the
default remedies are left out: each would treat a consequence.  Where the policies are farther apart than weights can
repair, no remedy takes weights.  tests/results/test_remedies.py applies each remedy to data that break its rule, and
sees that it helps.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rlcorr_cli.errors import UsageError, plain
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import is_two_sided
from rlcorr_cli.plans.plan import Bounds, Plan
from rlcorr_cli.records.fields import HIDDEN, Key, Number, Scalar, computed
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.limits import LARGEST_SHAPE, SEQUENCE_ESS

if TYPE_CHECKING:
    from rlcorr_cli.results.usable import Answer

Severity = Literal["fail", "warn"]
Over = Literal["total", "groups", "both"]


@frozen
class Rule:
    """The range [low, high], inclusive, that a metric (absolute: its absolute value) should lie in.

    over: whether `check` judges the whole dump, each of its groups, or both.
    limit, error: metrics with the sample's own limit, which stands in the place of `high`, and with the standard error
    of the value, which is broken only where it is farther off than that; where any has no value there is no finding.
    """

    metric: str
    severity: Severity
    remedy: str
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    absolute: bool = False
    over: Over = "both"
    limit: str = ""
    error: str = ""

    def __str__(self) -> str:
        """The range as it reads after "should be": '<= 0.01', 'between -0.1 and 0.1', '0', '>= 0.1 in size'."""
        least = -self.high if self.absolute and self.low is None and self.high is not None else self.low
        low, high = (None if end is None else f"{end + 0.0:.12g}" for end in (least, self.high))  # -0.0 is 0
        in_size = " in size" if self.absolute and self.low is not None else ""
        if low is None or high is None:
            return f"<= {high}" if low is None else f">= {low}{in_size}"
        return (low if low == high else f"between {low} and {high}") + in_size

    @property
    def limits(self) -> str:
        """The range, with the metric that is its limit if it has one."""
        return f"{self}, or {self.limit} if that is lower" if self.limit else str(self)

    def holds(self, value: float) -> bool:
        """Whether a value lies in the range."""
        return self.excess(value) <= 0

    def excess(self, value: float) -> float:
        """How far a value lies outside the range; 0 or less inside it."""
        size = abs(value) if self.absolute else value
        below = -math.inf if self.low is None else self.low - size
        above = -math.inf if self.high is None else size - self.high
        return max(below, above)


_TAIL = (
    "A few tokens carry the gap: look at them first (`rlcorr inspect DUMP --worst 5`). Only clamped weights are "
    "safe with them (`--preset token_is`)."
)


_SPREAD = (
    "Limit the weights more (`--is token:,2`); if that does not help, the policies differ too much to reuse this data."
)


_RAW_SPREAD = (
    "Use weights of tokens, which spread less than those of sequences (`--is token:,2`); if that does not help, the "
    "policies differ too much to reuse this data."
)


_VETO = "Lower the veto's bound, and look for numerical faults in the log-probs of the vetoed sequences."


_SHIFT = (
    "Check that the right columns are compared and that they are aligned; then look for what shifts all tokens: "
    "temperature, stale weights."
)


_ENGINE = (
    "Compare precision, sampling parameters and chunking of the two engines; large gaps mean stale or misaligned data."
)


_SEQUENCE = "Use token weights (`--preset token_is`), not sequence weights."


RULES: tuple[Rule, ...] = (
    Rule("kl", "fail", _SHIFT, high=0.1, absolute=True),
    Rule("k3_kl", "fail", _ENGINE, high=0.1),
    Rule("chi2_token", "fail", _TAIL, high=1.0),
    Rule("prob_abs_diff_mean", "warn", _ENGINE, high=0.01),
    Rule("seq_ess", "warn", _SEQUENCE, low=SEQUENCE_ESS),
    Rule(
        *("pareto_k_seq", "warn", _SEQUENCE),
        high=LARGEST_SHAPE,
        over="total",
        limit="pareto_k_seq_limit",
        error="pareto_k_seq_se",
    ),
    Rule("rollout_is_mean", "fail", _SHIFT, low=0.5, high=2.0),
    Rule("rollout_is_eff_sample_size", "fail", _SPREAD, low=0.3),
    Rule("rollout_is_std", "fail", _RAW_SPREAD, high=1.0),
    Rule("rollout_is_seq_max_deviation", "warn", _RAW_SPREAD, high=1.0),
    Rule("rollout_is_veto_fraction", "fail", _VETO, high=0.1),
    Rule("rollout_is_catastrophic_token_fraction", "warn", _VETO, high=0.01),
    Rule(
        "rollout_rs_masked_fraction",
        "warn",
        "Widen the bounds until it is near 0.1, or use weights instead of rejection.",
        high=0.3,
    ),
)


def rule_on(metric: str, rules: Iterable[Rule]) -> Rule | None:
    """The first rule on a metric, at whose bounds figures draw their lines; None where no rule is on it."""
    return next((rule for rule in rules if rule.metric == metric), None)


def upper_limit(metric: str, rules: Iterable[Rule]) -> float | None:
    """The most that the first rule on a metric allows; None without one."""
    rule = rule_on(metric, rules)
    return None if rule is None else rule.high


EXAMPLES = {"max": "k3_kl=0.01", "min": "token_ess=0.9", "max_increase": "k3_kl=50%", "max_decrease": "token_ess=1%"}
"""Option -> an example of its value."""


@frozen
class Section:
    """The whole dump (its key is empty) or one of its groups, with every metric that a rule may be on.

    is_followed: whether it is a step that nobody asked for.  It is held to the rules that its data allow, and not to a
    baseline, whose steps are of another run.  intervals: 95%, of the metrics that have one.
    """

    key: Mapping[str, Any]
    values: Mapping[str, Number]
    is_followed: bool = False
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])


Status = Literal["ok", "warn", "fail", "no data"]
BROKEN: tuple[Status, ...] = ("fail", "warn")
"""The statuses of a rule that is broken, the worse first."""


@frozen(kw_only=True)
class Finding(Record):
    """The result of one rule on one metric in one section.

    rule: the range in words.  low, high: its ends, where it has them.  fix: what to do where the rule does not hold;
    None where nothing is known to help.  message: metric, value and rule in one sentence.
    """

    key: Annotated[Mapping[str, Scalar], Key(about="Empty for the whole dump.")]
    metric: str
    value: Number
    rule: str
    low: Annotated[Number, Key(name="min")] = None
    high: Annotated[Number, Key(name="max")] = None
    severity: Severity
    status: Status
    fix: Annotated[str | None, HIDDEN]
    message: Annotated[str, Key(name="says", after="remedy")]

    @property
    def broken(self) -> bool:
        """Whether there is a value, and it is outside the range."""
        return self.status in BROKEN

    @property
    @computed(after="status")
    def remedy(self) -> str | None:
        """The fix of a broken rule; None where the rule holds or cannot be judged."""
        return self.fix if self.broken else None

    @property
    def health(self) -> "Health":
        """As a report has it."""
        return Health(metric=self.metric, value=self.value, rule=self.rule, status=self.status, remedy=self.remedy)


@frozen(kw_only=True)
class Health(Record):
    """A default rule on the whole dump."""

    metric: str
    value: Number
    rule: str
    status: Status
    remedy: str | None


@frozen
class NamedRule:
    """A rule, and where a user wrote it: '--max kl', 'rules.toml, rule 2'; None for a default."""

    rule: Rule
    origin: str | None = None


def judge(sections: Sequence[Section], rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """A finding for each rule on each section that it is over, rule by rule; none where a section lacks the metric."""
    findings: list[Finding] = []
    for rule, section in product(rules, sections):
        if rule.metric not in section.values or rule.over not in ("both", "groups" if section.key else "total"):
            continue
        value = section.values[rule.metric]
        error, wanted = 0.0, str(rule)
        if rule.limit:
            of_sample = section.values.get(rule.limit), section.values.get(rule.error)
            if value is None or of_sample[0] is None or of_sample[1] is None:
                continue
            rule, error = replace(rule, high=of_sample[0]), of_sample[1]
            wanted = str(replace(rule, high=float(f"{of_sample[0]:.3g}")))
        if value is None and section.is_followed:
            continue
        is_value = "has no data" if value is None else f"is {shown(value, rule.low, rule.high)}"
        if error:
            is_value += f" ± {error:.2g}"
        findings.append(
            Finding(
                key=section.key,
                metric=rule.metric,
                value=value,
                rule=wanted,
                low=-rule.high if rule.absolute and rule.low is None and rule.high is not None else rule.low,
                high=rule.high,
                severity=rule.severity,
                status="no data"
                if value is None
                else "ok"
                if rule.holds(value) or rule.holds(value - error)
                else rule.severity,
                fix=rule.remedy or None,
                message=f"{rule.metric} {is_value}, should be {wanted}.",
            )
        )
    return tuple(findings)


def unexcused(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings as `check` counts them: a metric without data breaks its rule."""
    return tuple(
        replace(finding, status=finding.severity) if finding.status == "no data" else finding for finding in findings
    )


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of broken rules: failures, then warnings, each in the order of the rules."""
    broken = (finding for finding in findings if finding.broken)
    return tuple(sorted(broken, key=lambda finding: BROKEN.index(finding.status)))


def shown(value: float, *bounds: float | None) -> str:
    """A value with three digits, and as many more as it takes to differ from a bound that it is not equal to."""
    near = {bound for bound in bounds if bound is not None and abs(value) != abs(bound)}
    whole = len(f"{abs(value):.0f}") if abs(value) < 1e6 else 0  # none of these is cut
    for digits in range(max(3, whole), 18):
        text = f"{value:.{digits}g}"
        if not any(abs(float(text)) == abs(bound) for bound in near):
            return text
    return repr(value)


def remedy_of(metric: str) -> str:
    """What the default rules advise about a metric; empty where none is on it."""
    return next((rule.remedy for rule in RULES if rule.metric == metric), "")


def written(
    metric: str,
    low: float | None,
    high: float | None,
    *,
    absolute: bool | None = None,
    severity: Severity = "fail",
    over: Over = "both",
    remedy: str | None = None,
) -> Rule:
    """A user's rule.

    absolute: by default a high bound alone, on a metric of either sign around an ideal of 0, bounds the absolute value,
    because a kl of -5 is no better than one of 5.
    """
    if absolute is None:
        absolute = low is None and high is not None and high >= 0 and is_two_sided(metric)
    remedy = remedy_of(metric) if remedy is None else remedy
    return Rule(metric, severity, remedy, low=low, high=high, absolute=absolute, over=over)


def replaced(*layers: Sequence[NamedRule]) -> tuple[NamedRule, ...]:
    """The rules of all layers, where each replaces what came before it on the same metrics."""
    rules: tuple[NamedRule, ...] = ()
    for layer in layers:
        metrics = {named.rule.metric for named in layer}
        rules = (*(named for named in rules if named.rule.metric not in metrics), *layer)
    return rules


def from_flags(at_most: Sequence[str], at_least: Sequence[str]) -> tuple[NamedRule, ...]:
    """The rules of --max and --min; a metric that both name has one rule with two bounds."""
    highs = {metric: _finite_amount("max", metric, text) for metric, text in pairs("max", at_most).items()}
    lows = {metric: _finite_amount("min", metric, text) for metric, text in pairs("min", at_least).items()}
    rules: list[NamedRule] = []
    for metric in {**highs, **lows}:
        low, high = lows.get(metric), highs.get(metric)
        if low is not None and high is not None and low > high:
            message = f"⟦min {metric}={low:g}⟧ is above ⟦max {metric}={high:g}⟧."
            raise UsageError(message, "Nothing lies between them: swap them.")
        origin = "min" if high is None else "max"
        rules.append(NamedRule(written(metric, low, high), f"⟦{origin}⟧ {metric}"))
    return tuple(rules)


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """An option's texts METRIC=AMOUNT as metric -> amount; a metric that is named twice is a UsageError."""
    amounts: dict[str, str] = {}
    for text in texts:
        metric, equals, amount = (part.strip() for part in text.partition("="))
        if not (metric and equals and amount):
            raise UsageError(
                f"Cannot read ⟦{option} {text}⟧.", f"Write ⟦{option} METRIC=NUMBER⟧: ⟦{option} {EXAMPLES[option]}⟧."
            )
        if metric in amounts:
            raise UsageError(f"⟦{option}⟧ names {metric} twice.", "Give each metric once.")
        amounts[metric] = amount
    return amounts


def finite(text: str) -> float | None:
    """The finite number that a text says; None of any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _finite_amount(option: str, metric: str, text: str) -> float:
    value = finite(text)
    if value is None:
        message = f"⟦{option} {metric}={text}⟧: '{text}' is not a finite number."
        raise UsageError(message, f"For example ⟦{option} {EXAMPLES[option]}⟧.")
    return value


@frozen(kw_only=True)
class RemedyContext:
    """The plan whose numbers are judged, and what else is known of them.

    causes: names of what voids the numbers.  geometric: bounds on a sequence's geometric mean ratio that keep
    `geometric_kept` of the sequences, at least or (is_exact) just that; None where that is not measured.  told:
    the likely cause that is named, with what to do about it, so that rules on the gap need not guess.  is_far:
    whether no weights repair the gap, and sequence: whether those of sequences are usable, as the verdict has it.
    """

    plan: Plan
    causes: tuple[str, ...] = ()
    geometric: Bounds | None = None
    geometric_kept: float = 0.0
    is_exact: bool = False
    told: str = ""
    is_far: bool = False
    sequence: "Answer" = "no"

    def needs_no(self, metric: str) -> bool:
        """Whether the default remedy of a metric is left out, because it treats or guesses what is known."""
        return bool(self.causes) or (bool(self.told) and remedy_of(metric) in GUESSES and metric not in REMEDIES)

    def remedy(self, metric: str, fix: str | None) -> str | None:
        """The remedy of this situation in the place of a default one; a user's own stays."""
        if fix != remedy_of(metric):
            return fix
        if self.needs_no(metric):
            return None
        if self.is_far and metric in OF_WEIGHTS:
            act = f"fix the cause ({self.told})" if self.told else "find the cause"
            return f"No weights can repair a gap this large: {act} first."
        return (REMEDIES[metric](self) if metric in REMEDIES else "") or fix


def with_remedies(findings: Iterable[Finding], situation: RemedyContext) -> tuple[Finding, ...]:
    """The findings with the remedies of this situation in the place of the default ones."""
    return tuple(replace(finding, fix=situation.remedy(finding.metric, finding.fix)) for finding in findings)


NARROW = 2.0
"""The highest weight that remedies name."""
TOKEN_SCOPE = f"Use token weights (token:,{NARROW:g}), which spread far less than those of sequences"
TOO_FAR = "The policies differ too much to reuse this data: sample again with the current weights."


def _look_first(situation: RemedyContext) -> str:
    """Few tokens with a large ratio: weights that are clamped bear them, but for a gap that none repair."""
    return (
        "A few tokens carry the gap: look at them first (`rlcorr inspect DUMP --worst 5`)." if situation.is_far else ""
    )


def _no_sequence_weights(situation: RemedyContext) -> str:
    """Token weights, or a geometric rejection with bounds that keep a share which is said."""
    weighting = situation.plan.weighting
    if weighting is not None and weighting.scope == "token":
        if situation.sequence == "unsure":
            return "Your plan uses token weights, so it is unaffected."
        return "Sequence weights would be unreliable here. Your plan uses token weights, so it is unaffected."
    bounds = situation.geometric
    if bounds is None or bounds.low is None or bounds.high is None:
        return ""
    reason = "This dump is too small to tell if sequence weights are usable. " if situation.sequence == "unsure" else ""
    return (
        f"{reason}Use token weights (`--preset token_is`), or drop far sequences "
        f"(`--rs ratio.seq_mean:{plain(bounds.low)},{plain(bounds.high)}` keeps "
        f"{'' if situation.is_exact else 'at least '}{100 * situation.geometric_kept:.3g}%)."
    )


def _narrower_weights(situation: RemedyContext) -> str:
    """Weights of smaller scope spread less, and so do weights that are clamped lower, where they are not yet."""
    weighting = situation.plan.weighting
    if weighting is None:
        return ""
    is_wide = weighting.bounds.high is None or weighting.bounds.high > NARROW
    if weighting.scope == "token":
        return "" if is_wide else TOO_FAR
    return f"{TOKEN_SCOPE}{f', or limit these more (sequence:,{NARROW:g})' if is_wide else ''}."


def _smaller_scope(situation: RemedyContext) -> str:
    """Of raw weights, which no bound changes."""
    weighting = situation.plan.weighting
    if weighting is None:
        return ""
    return f"Bounds do not change raw weights. {TOO_FAR if weighting.scope == 'token' else f'{TOKEN_SCOPE}.'}"


def _mean_of_weights(situation: RemedyContext) -> str:
    """The mean weight of long sequences falls below 1 by itself where their weights spread."""
    weighting = situation.plan.weighting
    if weighting is None or weighting.scope != "sequence":
        return ""
    return (
        "The few sequences that would bring the mean back to 1 are not in this dump: use token weights "
        "(token:,2). If their mean is far from 1, too, check that the right columns were compared."
    )


def _lower_veto(situation: RemedyContext) -> str:
    """A veto rejects what lies below its bound, so a lower bound takes less."""
    lowest = [each.bounds for each in situation.plan.rejections if (each.statistic, each.scope) == ("ratio", "seq_min")]
    bound = next((bounds.low for bounds in lowest if bounds.high is None), None)
    if bound is None:
        return ""
    return (
        f"Lower the veto's bound from {bound:g} to {bound / 10:g}, and look for numerical faults in the log-probs of "
        "the vetoed sequences."
    )


REMEDIES: Mapping[str, Callable[[RemedyContext], str]] = {
    "chi2_token": _look_first,
    "seq_ess": _no_sequence_weights,
    "pareto_k_seq": _no_sequence_weights,
    "rollout_is_mean": _mean_of_weights,
    "rollout_is_std": _smaller_scope,
    "rollout_is_eff_sample_size": _narrower_weights,
    "rollout_is_seq_max_deviation": _smaller_scope,
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
GUESSES = (_SHIFT, _ENGINE)
"""Remedies that guess at the cause of the gap, of metrics that have no other in a situation."""
