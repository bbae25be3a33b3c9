"""Policy: everything that `check` compares a dump with, as one value made of plain arguments.

It works on sections of numbers and loads no dump and no report; `checked.py` applies it to a report.  A new way to
ask for a rule becomes a field of `Policy` and a line in `policy`.

Rules files are TOML, YAML or JSON, each record one rule:

    defaults = true             # false: only what stands here

    [[rule]]
    metric = "k3_kl"
    max = 0.02                  # or min, or both; inclusive
    severity = "warn"           # fail unless said otherwise
    over = "groups"             # total, groups; both unless said otherwise
    absolute = false            # judge the value, not its size
    remedy = "Restart the rollout workers."

Several rules on one metric all hold: a warning at one value and a failure at another.

Limits say how far a metric may move from its value in a saved report, the baseline.  A move is one of the absolute
value where the metric's ideal is 0, else of the value.  Groups that both reports have are compared as well; a group
that only one of them has is not.

A move fails where it is larger than the limit and chance does not explain it: the 95% interval of the change excludes
0.  Where either report has no interval of the metric, nobody can tell, and a move beyond the limit warns.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from rlcorr_cli.errors import UsageError, as_flags, nearest, shortened
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import define, ideal, is_two_sided, logged_name, may_have_metric, missing_metric_error
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS, Interval
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.plans.files import load
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.results.rules import (
    EXAMPLES,
    RULES,
    Finding,
    NamedRule,
    Over,
    Rule,
    Section,
    Severity,
    Status,
    finite,
    from_flags,
    judge,
    pairs,
    remedy_of,
    replaced,
    shown,
    unexcused,
    written,
)

RULE_EXAMPLE = 'A rule is [[rule]], then metric = "k3_kl" and max = 0.01 below it.'


@frozen
class RulesFile:
    """A file's rules, whether the default rules hold beside them, and the file's path (empty without a file)."""

    rules: tuple[NamedRule, ...] = ()
    defaults: bool = True
    path: str = ""


@frozen
class RuleKey:
    """What a key of a rules file takes, in words and as a test."""

    takes: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _one_of(allowed: tuple[str, ...]) -> RuleKey:
    return RuleKey(
        " or ".join(f'"{value}"' for value in allowed), lambda value: isinstance(value, str) and value in allowed
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


FLAG = RuleKey("true or false", lambda value: isinstance(value, bool))
NUMBER = RuleKey("a finite number", _is_number)
FILE_KEYS = {"defaults": FLAG, "rule": RuleKey("a list of [[rule]] records", lambda value: isinstance(value, list))}
RULE_KEYS: dict[str, RuleKey] = {
    "metric": RuleKey("a metric's name", _is_text),
    "min": NUMBER,
    "max": NUMBER,
    "absolute": FLAG,
    "severity": _one_of(get_args(Severity)),
    "over": _one_of(get_args(Over)),
    "remedy": RuleKey("a sentence", _is_text),
}
"""RuleKey of a rule -> what it takes."""


def read_rules(path: str) -> RulesFile:
    """The rules in a file; an error names the rule's number and its key."""
    data, _ = load(path, "rules file", RULE_EXAMPLE)
    _check_keys(data, FILE_KEYS, path)
    rules = tuple(_rule(record, f"{path}, rule {i}") for i, record in enumerate(data.get("rule", []), 1))
    return RulesFile(rules, data.get("defaults", True), path)


def _check_keys(data: Mapping[Any, Any], keys: Mapping[str, RuleKey], where: str) -> None:
    for name, value in data.items():
        if name not in keys:
            close = nearest(name, keys, 1) if isinstance(name, str) else ", ".join(keys)
            raise UsageError(f"{where}: there is no key '{name}'.", f"Nearest: {close}. Keys: {', '.join(keys)}.")
        if not keys[name].fits(value):
            raise UsageError(f"{where}: {name} must be {keys[name].takes}, got {shortened(value)}.", RULE_EXAMPLE)


def _rule(data: Any, where: str) -> NamedRule:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where} is {shortened(data)}, not a record.", RULE_EXAMPLE)
    _check_keys(data, RULE_KEYS, where)
    low, high = data.get("min"), data.get("max")
    if "metric" not in data:
        raise UsageError(f"{where} names no metric.", RULE_EXAMPLE)
    if low is None and high is None:
        raise UsageError(f"{where}: {data['metric']} has neither min nor max.", RULE_EXAMPLE)
    if low is not None and high is not None and low > high:
        raise UsageError(f"{where}: min {low:g} is above max {high:g}.", "Nothing lies between them: swap them.")
    more = {key: data[key] for key in ("absolute", "severity", "over", "remedy") if key in data}
    return NamedRule(written(data["metric"].strip(), low, high, **more), where)


ROUNDING = 1e-9
"""Sums of the same numbers in another order differ by far less than this share of them; more is a change."""


@frozen
class Limit:
    """How far a metric may rise above its baseline, or fall below it.  share: whether `amount` is a part of that."""

    metric: str
    rises: bool
    amount: float
    share: bool

    def __str__(self) -> str:
        return f"at most {self.words} {'above' if self.rises else 'below'} the baseline"

    @property
    def words(self) -> str:
        """The amount: '20%', '0.01'."""
        return f"{100 * self.amount:.12g}%" if self.share else f"{self.amount:.12g}"

    @property
    def option(self) -> str:
        """The option that sets such a limit."""
        return "max_increase" if self.rises else "max_decrease"

    def room(self, baseline: float) -> float:
        """How far the metric may move from its baseline."""
        return (self.amount * abs(baseline) if self.share else self.amount) + ROUNDING * abs(baseline)

    @property
    def of_size(self) -> bool:
        """Whether it is on the metric's absolute value."""
        return ideal(self.metric) == 0

    def ends(self, baseline: float) -> tuple[float | None, float | None]:
        """The values between which a metric is within the limit; None of an end that does not bind, and of both where
        no one range holds these values."""
        amount = self.amount * abs(baseline) if self.share else self.amount
        if not self.of_size:
            return (None, baseline + amount) if self.rises else (baseline - amount, None)
        if self.rises:
            high = abs(baseline) + amount
            return (-high if is_two_sided(self.metric) else None), high
        return (None if is_two_sided(self.metric) else abs(baseline) - amount), None


def limits(rises: Sequence[str], falls: Sequence[str]) -> tuple[Limit, ...]:
    """The limits of --max-increase and --max-decrease, each METRIC=AMOUNT or METRIC=PERCENT%."""
    options = [("max_increase", True, rises), ("max_decrease", False, falls)]
    return tuple(
        _limit(option, rising, metric, amount)
        for option, rising, texts in options
        for metric, amount in pairs(option, texts).items()
    )


def _limit(option: str, rises: bool, metric: str, text: str) -> Limit:
    amount = finite(text.removesuffix("%"))
    if amount is None or amount < 0:
        message = f"⟦{option} {metric}={text}⟧: '{text}' is not a number of 0 or more."
        raise UsageError(message, f"For example ⟦{option} {EXAMPLES[option]}⟧.")
    share = text.endswith("%")
    return Limit(metric, rises, amount / 100 if share else amount, share)


DEFAULT_LIMITS = (Limit(GAP, True, 0.5, True),)
"""What is compared with a baseline where nothing is named.

At 20% chance fails one night in 25 whose prompts differ, and one in 15 by kl, which estimates the same divergence with
more noise; three times the k3_kl fails as often at 50% as at 20% (`rlcorr help ci`).
"""


def compare(limits: Iterable[Limit], now: Sequence[Section], baseline: Sequence[Section]) -> tuple[Finding, ...]:
    """A finding for every limit on the whole dump and on each group that both reports have."""
    matched = [(section, old) for section, old in _matched(now, baseline) if old is not None]
    return tuple(_compared(limit, section, old) for limit in limits for section, old in matched)


def _matched(now: Iterable[Section], baseline: Iterable[Section]) -> list[tuple[Section, Section | None]]:
    """The whole dump and its groups, each with what the baseline has of it; nothing without one."""
    if not baseline:
        return []
    before = {frozenset(section.key.items()): section for section in baseline}
    return [(section, before.get(frozenset(section.key.items()))) for section in now if not section.is_followed]


def _compared(limit: Limit, now: Section, baseline: Section) -> Finding:
    value, before = now.values[limit.metric], baseline.values[limit.metric]
    status, predicate = _moved(limit, value, before, (_interval(limit, now), _interval(limit, baseline)))
    low, high = (None, None) if before is None else limit.ends(before)
    return Finding(
        key=now.key,
        metric=limit.metric,
        value=value,
        rule=str(limit),
        low=low,
        high=high,
        severity="fail",
        status=status,
        fix=(_instead(limit, now, baseline) if status == "warn" else remedy_of(limit.metric)) or None,
        message=f"{limit.metric} {predicate}.",
    )


def _interval(limit: Limit, section: Section) -> Interval | None:
    """The 95% interval of what a limit is on.  Equal policies have no chance in them, and so no interval of their
    own."""
    value = section.values[limit.metric]
    equal = None if value is None or section.values.get(GAP) != 0 else (value, value)
    found = section.intervals.get(limit.metric, equal)
    if found is None or not limit.of_size:
        return found
    low, high = found
    return max(0.0, low, -high), max(abs(low), abs(high))


def _moved(
    limit: Limit, now: float | None, baseline: float | None, intervals: tuple[Interval | None, Interval | None]
) -> tuple[Status, str]:
    """What came of a limit, and the predicate of a sentence on it, whose subject is the metric.  intervals: 95%, of
    what is limited."""
    wanted = f"should be {limit}"
    if now is None:
        return "fail", f"has no data, {wanted}"
    if baseline is None:
        return "fail", f"is {shown(now)}, but the baseline has no data, {wanted}"
    new, old = (abs(now), abs(baseline)) if limit.of_size else (now, baseline)
    worse = new - old if limit.rises else old - new
    by = _by(new, old, limit.of_size and (now < 0 or baseline < 0))
    was = f"is {shown(now, baseline)}, the baseline {shown(baseline, now)}{by}"
    if worse <= limit.room(old):
        return "ok", f"{was}, {wanted}"
    if old == 0 and limit.share:
        wanted = f"and any change from 0 is more than {limit.words} of it"
    if intervals[0] is None or intervals[1] is None:
        return "warn", f"{was}, {wanted}; without a 95% interval this may be chance"
    if worse <= _chance(limit, (new, *intervals[0]), (old, *intervals[1])):
        return "ok", f"{was}, {wanted}; this may be chance, because the 95% interval of the change includes 0"
    return "fail", f"{was}, {wanted}"


def _chance(limit: Limit, now: tuple[float, float, float], baseline: tuple[float, float, float]) -> float:
    """How far from 0 the interval of a change reaches back from the change itself.

    Each value with its interval.  The errors of two samples add in squares, each towards the other: Zou and Donner,
    Construction of confidence limits about effect measures (Statistics in Medicine 27, 2008).
    """
    (new, new_low, new_high), (old, old_low, old_high) = now, baseline
    if limit.rises:
        return math.hypot(new - new_low, old_high - old)
    return math.hypot(new_high - new, old - old_low)


def _instead(limit: Limit, now: Section, baseline: Section) -> str:
    """What to do about a move that nobody can tell from chance."""
    if GAP in now.intervals and GAP in baseline.intervals and limit.metric != GAP:
        return f"{limit.metric} has no interval here: limit {GAP} instead."
    if now.intervals:
        return "The baseline has no intervals of these rows: write it again."
    return f"These rows have no intervals, which take {FEWEST_CLUSTERS} prompts and a report without a profile."


TIMES = 10.0
"""Above this multiple of its baseline a value is called so many times as large, not so many percent larger."""


def _by(now: float, baseline: float, size: bool) -> str:
    """' (up 50%)', ' (215 times as large)': how far a value moved from its baseline; size: whether it is one of
    absolute values."""
    if baseline == 0 or now == baseline:
        return ""
    of = "size " if size else ""
    if now > TIMES * baseline > 0:
        return f" ({of}{shown(float(f'{now / baseline:.3g}'))} times as large)"
    change = (now - baseline) / abs(baseline)
    return f" ({of}{'up' if change > 0 else 'down'} {abs(100 * change):.3g}%)"


FailOn = Literal["moved", "far", "outliers"]
"""What `check` may fail on beside its rules, faults and causes: `compare`'s flags of a gap."""
FLAGS: tuple[FailOn, ...] = ("moved", "far", "outliers")
EXAMPLE = "Name a rule, such as ⟦max k3_kl=0.01⟧."


@frozen(kw_only=True)
class Baseline:
    """The numbers of an earlier report, and the name of where they come from; no sections on the first night, when
    there is no report yet."""

    name: str
    sections: tuple[Section, ...]


@frozen(kw_only=True)
class Policy:
    """What `check` compares a dump with: rules, and limits on how far it may be from a baseline.

    fail_on: what fails beside the rules.  strict: whether warnings fail, too.  accept: faults and causes that pass.
    notes: on metrics that were named as a framework does.
    """

    rules: tuple[NamedRule, ...]
    limits: tuple[Limit, ...] = ()
    baseline: Baseline | None = None
    fail_on: frozenset[str] = frozenset()
    strict: bool = False
    accept: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def named(self) -> Iterator[tuple[str, str]]:
        """Each metric that the user names, after the option or file that names it."""
        yield from ((rule.origin, rule.rule.metric) for rule in self.rules if rule.origin is not None)
        yield from ((f"⟦{limit.option}⟧ {limit.metric}", limit.metric) for limit in self.limits)


def policy(
    *,
    defaults: Sequence[Rule] = RULES,
    file: RulesFile | None = None,
    at_most: Sequence[str] = (),
    at_least: Sequence[str] = (),
    max_increase: Sequence[str] = (),
    max_decrease: Sequence[str] = (),
    baseline: Baseline | None = None,
    fail_on: Iterable[str] = (),
    strict: bool = False,
    accept: Iterable[str] = (),
    own_names: bool = True,
) -> Policy:
    """Default rules, replaced by those of a file, replaced by single ones; and the limits on a baseline, DEFAULT_LIMITS
    where none are given.

    at_most, at_least: 'kl=0.1'.  max_increase, max_decrease: 'kl=0.1' or 'kl=20%'.  own_names: whether the report has
    metrics under our names, so that a framework's name of one stands for it.
    """
    file = RulesFile() if file is None else file
    notes: list[str] = []
    if own_names:
        metrics = [_renamed(named.origin or "", named.rule.metric, notes) for named in file.rules]
        renamed = zip(file.rules, metrics, strict=True)
        file = replace(file, rules=tuple(replace(of, rule=replace(of.rule, metric=name)) for of, name in renamed))
        at_most = [_renamed("⟦max⟧", text, notes) for text in at_most]
        at_least = [_renamed("⟦min⟧", text, notes) for text in at_least]
        max_increase = [_renamed("⟦max_increase⟧", text, notes) for text in max_increase]
        max_decrease = [_renamed("⟦max_decrease⟧", text, notes) for text in max_decrease]
    rules = replaced(
        tuple(map(NamedRule, defaults)) if file.defaults else (), file.rules, from_flags(at_most, at_least)
    )
    _refuse_never_held(rules)
    moves = limits(max_increase, max_decrease)
    if baseline is None:
        if moves:
            raise UsageError(
                f"⟦{moves[0].option}⟧ compares with a report, and none is named.", "Add ⟦baseline report.json⟧."
            )
        if not rules:
            raise UsageError(f"{file.path} holds no rule, and switches off the default ones.", EXAMPLE)
    else:
        moves = moves or DEFAULT_LIMITS
        held = baseline.sections[0].values if baseline.sections else {limit.metric: None for limit in moves}
        for limit in moves:
            if limit.metric not in held:
                message = f"⟦{limit.option}⟧ {limit.metric}: {baseline.name} has no {limit.metric}."
                raise UsageError(message, f"Nearest: {nearest(limit.metric, held)}.")
    return Policy(
        rules=rules,
        limits=moves,
        baseline=baseline,
        fail_on=frozenset(fail_on),
        strict=strict,
        accept=frozenset(accept),
        notes=tuple(notes),
    )


def _renamed(origin: str, text: str, notes: list[str]) -> str:
    """'rollout_corr/kl=0.1' as 'kl=0.1', with a note; as it is where the framework's number would be another."""
    metric, equals, amount = text.partition("=")
    logged = logged_name(metric.strip())
    if logged is None or logged.difference:
        return text
    note = f"{origin} {logged.name}: {logged.framework}'s name of {logged.canonical}. {logged.otherwise}"
    notes.append(as_flags(note).rstrip())
    return f"{logged.canonical}{equals}{amount}"


def refuse_impossible(policy: Policy, plan: Plan, *, grouped: bool, objective: str | None = None) -> None:
    """Refuse rules on metrics that no dump under this plan can have, before a dump is read.  objective: its name."""
    for origin, metric in policy.named():
        if not may_have_metric(metric, plan, objective):
            raise missing_metric_error(metric, origin, ())
    _refuse_ungrouped(policy, grouped)


def _refuse_never_held(rules: Iterable[NamedRule]) -> None:
    """Refuse a user's rule that no value of its metric can keep, such as a share of at least 1.5."""
    for named in rules:
        rule, metric = named.rule, define(named.rule.metric)
        if not named.origin or metric is None:
            continue
        too_low = not rule.absolute and rule.high is not None and rule.high < metric.lowest
        if too_low or (rule.low is not None and rule.low > metric.highest):
            ends = "is never below 0" if math.isinf(metric.highest) else "lies between 0 and 1"
            message = f"{named.origin} asks for {rule.metric} {rule}, which it can never be: it {ends}."
            raise UsageError(message, f"Give a limit that it can reach; `rlcorr explain {rule.metric}` defines it.")


def _refuse_ungrouped(policy: Policy, grouped: bool) -> None:
    origin = next((rule.origin for rule in policy.rules if rule.rule.over == "groups"), None)
    if origin and not grouped:
        raise UsageError(
            f"{origin} is over groups, and there are none.", 'Add ⟦group_by COLUMN⟧, or say over = "both".'
        )


@frozen(kw_only=True)
class Judged:
    """The findings of n_rules rules and limits; not_judged: metrics of the rules that could judge nothing; notes: what
    no rule could judge."""

    n_rules: int
    not_judged: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def apply(policy: Policy, sections: Sequence[Section]) -> Judged:
    """Hold sections to a policy.

    A rule that the user named on a metric that is not there is a UsageError, and so is a policy of which no rule
    applies.
    """
    available = sections[0].values
    for origin, metric in policy.named():
        if metric not in available:
            raise missing_metric_error(metric, origin, available)
    _refuse_ungrouped(policy, len(sections) > 1)
    rules = [named.rule for named in policy.rules if named.rule.metric in available]
    if not rules and not policy.limits:
        examples = ", ".join(list(available)[:3])
        raise UsageError(
            "No rule applies: none of the default ones is on a metric of this report.", f"It has {examples}, …"
        )
    before = () if policy.baseline is None else policy.baseline.sections
    findings = (*unexcused(judge(sections, rules)), *compare(policy.limits, sections, before))
    n_rules = len(rules) + (len(policy.limits) if before else 0)
    found = {finding.metric for finding in findings}
    not_judged = tuple(rule.metric for rule in rules if rule.limit and rule.metric not in found)
    notes, n_new = policy.notes, sum(old is None for _, old in _matched(sections, before))
    if policy.baseline is not None and n_new:
        lacks = f"{policy.baseline.name} has nothing to compare {n_new:,} of {len(sections) - 1:,} groups with."
        notes = (*notes, lacks)
    return Judged(n_rules=n_rules, not_judged=not_judged, findings=findings, notes=notes)
