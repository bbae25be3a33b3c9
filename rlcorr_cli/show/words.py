"""Conclusions in words: a report's verdict and course, broken rules, suggested bounds, the likely cause, anomalies.

What is concluded is `results/verdict.py`'s; every form (text, page, Markdown) takes its sentences from here.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, ColumnGap, Diagnosis, Impossible
from rlcorr_cli.causes.steps import RISES
from rlcorr_cli.causes.table import NOISE
from rlcorr_cli.causes.wording import and_list, steps_named
from rlcorr_cli.errors import plain
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.reading.names import STEPS
from rlcorr_cli.results.course import BREAKS_AT_END, FEWEST_DOUBLED, AtStep, BrokenRule, Course, MetricCourse, Rise
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import Finding
from rlcorr_cli.results.story import Story, cause_words, impossible_words
from rlcorr_cli.results.suggest import SuggestedBounds
from rlcorr_cli.results.usable import Answer
from rlcorr_cli.results.verdict import CLOSE_K3, FEWEST_SEQUENCES, Verdict, refuses_sequences
from rlcorr_cli.show.document import BLANK, Cause, Note
from rlcorr_cli.show.numbers import more, number, plural, share
from rlcorr_cli.show.stdout import clean

LEVELS = {
    "equal": "Equal on every token: the two columns hold the same numbers, so there is nothing to correct.",
    "same": "The same policy, up to rounding: there is nothing to correct.",
    "far": "{of}: far apart. Importance weights cannot repair this: {act} before you train on this data.",
}
"""Level -> what it means, and what to do next (act); of: of what."""
CLOSENESS = {"close": f"close ({GAP} below {CLOSE_K3:g})", "apart": f"apart ({GAP} {CLOSE_K3:g} or more)"}
"""The levels of two policies that weights may correct, and where one ends and the other begins."""
USABLE: dict[tuple[Answer, Answer], str] = {
    ("yes", "yes"): "Token-level and sequence-level importance weights are both usable.",
    ("yes", "unsure"): "Token-level importance weights are usable; {few} to tell if sequence-level ones are{why}.",
    ("yes", "no"): "Token-level importance weights are usable, sequence-level ones are not{because}.",
    ("unsure", "unsure"): "{few} to tell which importance weights are usable.",
    ("unsure", "no"): "Sequence-level importance weights are not usable; {few} to tell if token-level ones are.",
    ("no", "no"): "The importance weights of this plan are not usable.",
}
"""Whether weights of tokens and of sequences are usable -> what a verdict says."""
OF_STEP: dict[tuple[Answer, Answer], str] = {
    ("yes", "yes"): "token-level and sequence-level importance weights are usable",
    (
        "yes",
        "unsure",
    ): "token-level importance weights are usable, and it has too few sequences to judge sequence-level ones",
    ("yes", "no"): "sequence-level importance weights are not usable",
    ("unsure", "unsure"): "it has too few sequences to tell which importance weights are usable",
    ("unsure", "no"): "sequence-level importance weights are not usable",
    ("no", "no"): "no importance weights are usable",
}
"""The same of the last step, which is told before the verdict on all of them."""
APART = {
    "equal": "equal on every token",
    "same": "the same policy, to rounding",
    "close": "close",
    "apart": "apart",
    "far": "far apart",
    "too few": "too few sequences for a verdict",
    "void": "no verdict, because of a fault of the whole dump",
}
"""Level -> how far apart the policies of a step are."""
LOOK = "Find the cause of the gap; until then,"
BY_TOKEN = "use token weights (`--preset token_is`)."
AT_NO_COST = "A correction is hardly needed; token weights (`--preset token_is`) cost almost nothing."
WITH_FAULT = {"close": "Close, but", "apart": "Apart, and", "far": "Far apart, and", "void": "", "too few": ""}
"""Levels that a dump with a fault may have, and how the sentence on it begins."""
WORDS = {"ratio_mean": "mean ratio"}
"""Metric -> its name in a sentence."""
EVIDENCE = "`rlcorr diagnose` shows the evidence."
UNRELIABLE = "the numbers below are unreliable"
LITTLE_KEPT = 0.5
"""The share of tokens below which it is worth a sentence that rejections keep so few."""


def verdict_sentences(report: Report) -> str:
    """One to five sentences in plain words, of which the second says what to do next."""
    conclusion, fault = report.verdict, _fault(report)
    if fault is None:
        course = report.course
        steps = "" if course is None else f"{course.steps:,} {clean(course.column)}s"
        of = f"On average over all {steps}" if _ends_worse(report) else f"All {steps} together" if steps else "Verdict"
        refusing = [*_refusing(report)]
        because = f" ({and_list(refusing)})" if refusing else ""
        level = level_sentence(conclusion, report.clusters, of=of, act=report.story.act, because=because)
        sentences = [level, "" if _fails_at_end(report) else _next_without_plan(report)]
    else:
        sentences = [_at_fault(report, fault)]
    if conclusion.level not in ("equal", "void"):
        sentences.append(_kept_sentence(conclusion.kept_fraction))
    return " ".join(filter(None, sentences))


def _ends_worse(report: Report) -> bool:
    """Whether the policies of the last step are farther apart than those of all steps together."""
    if report.last_step is None:
        return False
    order = ("equal", "same", "close", "apart", "far")
    whole, last = report.verdict.level, report.last_step.verdict.level
    return whole in order and last in order and order.index(last) > order.index(whole)


def _refusing(report: Report) -> Iterator[str]:
    """'seq_ess 0.145 at step 7': what is outside its limit and refuses weights of sequences, and where it is worst."""
    whole = {finding.metric: finding.value for finding in report.health if finding.broken}
    for broken in report.broken_in_groups:
        if refuses_sequences(broken.metric) and broken.metric not in whole:
            yield broken_group(broken)[0]
    yield from (f"{name} {number(value)}" for name, value in whole.items() if refuses_sequences(name))


def verdict_alone(report: Report) -> str:
    """The same without the next step of a user and without broken rules."""
    fault = _fault(report)
    if fault is not None:
        return _at_fault(report, fault)
    return level_sentence(report.verdict, report.clusters, act=report.story.act)


def _fault(report: Report) -> str | None:
    """The fault that stands above the verdict as the likely cause, where all else is its consequence; else the one that
    the mean ratio follows from."""
    cause, impossible, level = report.cause, report.impossible, report.verdict.level
    if cause is not None and not cause.is_minor and cause.cause in report.faults and level in WITH_FAULT:
        return cause.cause
    return next(
        (each.name for each in report.other_faults if impossible is not None and impossible.follows_from(each.name)),
        None,
    )


def _at_fault(report: Report, fault: str) -> str:
    """What to do about a gap that a fault makes: no weights, which are for two policies that are as they should be."""
    conclusion, impossible = report.verdict, report.impossible
    if conclusion.level == "void":
        if impossible is None or not impossible.follows_from(fault):
            return f"No verdict until {_mended((fault, *conclusion.causes))}: {UNRELIABLE}."
        both = and_list([fault, *(name for name in conclusion.causes if name != impossible.metric)])
        until = f"Until {'it is' if both == fault else f'{both} are'} fixed, {UNRELIABLE}."
        return f"No verdict: {fault} makes {_cause_or_metric(impossible.metric)} impossible. {until}"
    if conclusion.level == "too few":
        return f"{level_sentence(conclusion, report.clusters)} Fix {fault} first in any case."
    level = WITH_FAULT[conclusion.level]
    return f"{level} with a fault: {fault}. Fix it before you train; importance weights would only hide it."


def level_sentence(
    conclusion: Verdict,
    clusters: Clusters | None,
    *,
    of: str = "Verdict",
    act: str = "find the cause",
    because: str = "",
) -> str:
    """How far apart the policies are, and which weights still leave a usable sample.

    of: 'All 12 steps together'.  act: what to do about the gap.  because: why sequence-level weights are not usable.
    """
    if conclusion.level == "too few":
        n = conclusion.n_sequences
        if n >= FEWEST_SEQUENCES and clusters is not None:
            are = "is" if clusters.n == 1 else "are"
            return f"Too few to tell: {clusters.words} {are} measured, and a verdict needs {FEWEST_CLUSTERS}."
        sequences = "1 sequence is" if n == 1 else f"{n} sequences are"
        return f"Too few to tell: {sequences} measured, and a verdict needs {FEWEST_SEQUENCES}."
    if conclusion.level == "void":
        return f"No verdict until {_mended(conclusion.causes)}: {UNRELIABLE}."
    if conclusion.level in ("close", "apart"):
        return f"{of}: {CLOSENESS[conclusion.level]}. {_usable(conclusion, clusters, because)}"
    return LEVELS[conclusion.level].format(of=of, act=act)


def _usable(conclusion: Verdict, clusters: Clusters | None, because: str) -> str:
    """Which weights leave a usable sample; or of how little that is not known."""
    n = conclusion.n_sequences
    counted, why = (plural(n, "sequence"), "") if clusters is None else (clusters.counted, clusters.why_too_few)
    answers = conclusion.usable.token, conclusion.usable.sequence
    return USABLE[answers].format(few=f"{counted} are too few", why=why, because=because)


def _mended(causes: Sequence[str]) -> str:
    """'shifted_columns is fixed', 'top_p and shifted_columns are fixed and the mean ratio explained'."""
    named, ratios = ([name for name in causes if (name in WORDS) == is_ratio] for is_ratio in (False, True))
    if not named:
        return f"{and_list([_cause_or_metric(name) for name in ratios])} is explained"
    explained = f" and {and_list([_cause_or_metric(name) for name in ratios])} explained" if ratios else ""
    return f"{and_list(named)} {'is' if len(named) == 1 else 'are'} fixed{explained}"


def _cause_or_metric(name: str) -> str:
    return f"the {WORDS[name]}" if name in WORDS else name


def opening_sentence(report: Report) -> str:
    """The verdict on the last step, then the course that led there; empty without steps."""
    return " ".join(filter(None, [_last_step(report), course_sentence(report.course, report.story)]))


def _last_step(report: Report) -> str:
    """'Step 59, the last: apart; sequence-level importance weights are not usable from step 47 on.'"""
    last, course = report.last_step, report.course
    if last is None or course is None or last.verdict.level in ("void", "too few"):
        return ""
    column, step, level = clean(course.column), clean(f"{last.step}"), last.verdict.level
    first, _, end = step.partition(" to ")  # of small steps, which are judged together
    both = f"{first} and {end}" if first.isdecimal() and end == f"{int(first) + 1}" else step
    named = f"the last {column}s, {both} together" if end else f"{step_named(column, step)}, the last"
    weights = ""
    if level in ("close", "apart") and _fault(report) is None:
        weights = f"; {OF_STEP[last.verdict.usable.token, last.verdict.usable.sequence]}"
        if last.since not in (None, last.step):
            weights += f" from {step_named(clean(course.column), clean(f'{last.since}'))} on"
    breaks = f" {BREAKS_AT_END.format(step='It breaks', act=report.story.act)}" if _fails_at_end(report) else ""
    return f"{named[0].upper()}{named[1:]}: {APART[level]}{weights}.{breaks}"


def short_verdict(report: Report) -> str:
    """The verdict on the last step, or on the dump where no step has one of its own."""
    return _last_step(report) or verdict_sentences(report)


def _fails_at_end(report: Report) -> bool:
    """Whether the last step breaks a rule that fails, where the verdict on all of them does not say so."""
    course = report.course
    return course is not None and course.failing_end is not None and report.verdict.level in ("close", "apart")


def _next_without_plan(report: Report) -> str:
    """The next step of a user who has not chosen a correction; empty where the level itself says it."""
    if report.plan.weighting or report.plan.rules:
        return ""
    level, usable = report.verdict.level, report.verdict.usable
    if level not in ("close", "apart") or usable.token == "no":
        return ""
    if level == "close":
        return AT_NO_COST if usable.sequence == "yes" else BY_TOKEN[0].upper() + BY_TOKEN[1:]
    return f"{'Until the cause is fixed,' if report.story.to_fix else LOOK} {BY_TOKEN}"


def course_sentence(course: Course | None, story: Story) -> str:
    """How k3_kl goes from step to step, and which steps break a rule that fails; empty without steps."""
    if course is None:
        return ""
    failing = [broken for broken in course.broken if broken.status == "fail"]
    change = "" if story.is_fault or (course.rise is None and course.fall is None) else story.change
    return " ".join(filter(None, [rise_sentence(course), clean(change), steps_that_break(failing, course.column)]))


def rise_sentence(course: Course) -> str:
    """How k3_kl goes from step to step: how much it rises or falls, since when, how fast; else where it is largest."""
    k3 = next((metric for metric in course.metrics if metric.metric == GAP), None)
    if k3 is None:
        return ""
    moved = course.rise or course.fall
    sentence = course_of_metric(k3, moved, GAP, clean(course.column))
    if moved is not None or course.steps < FEWEST_DOUBLED:
        return sentence
    return f"{sentence} No lasting change by a factor of {RISES:g} or more is established."


def course_of_metric(ends: MetricCourse, rise: Rise | None, name: str, column: str) -> str:
    """The same of any metric, under a name."""

    def at(point: AtStep) -> str:
        return f"{number(point.value)} at {column} {clean(point.step)}"

    if rise is not None:
        goes, jumps, less = ("rises", "jumps", "") if rise.factor > 1 else ("falls", "drops", " less")
        times = max(rise.factor, 1 / max(rise.factor, 1e-9))
        factor = (f"{times:.1f}x" if times < 10 else f"{float(f'{times:.2g}'):,.0f}x") + less
        doubling = "" if rise.doubling is None else f", doubling every {_n_steps_in_words(rise.doubling)}"
        ahead = "" if rise.forecast is None else f" {rise.forecast.sentence}"
        if rise.flat is not None and rise.level is not None:
            levels = f"from near {number(rise.flat.value)} to near {number(rise.level)}"
            return f"{name} {jumps} at {column} {clean(rise.since)}, {levels} ({factor})."
        if rise.flat is not None:
            flat = f"{number(rise.flat.value)} until {column} {clean(rise.flat.step)}"
            return f"{name} stays near {flat}, then {goes} to {at(rise.last)} ({factor}{doubling}).{ahead}"
        return f"{name} {goes} from {at(rise.first)} to {at(rise.last)} ({factor}{doubling}).{ahead}"
    worst = f"{number(ends.worst.value)}, at {column} {clean(ends.worst.step)}"
    largest = "" if ends.worst in (ends.first, ends.last) else f"; it is largest, {worst}"
    return f"{name} is {at(ends.first)} and {at(ends.last)}{largest}."


def _n_steps_in_words(n: float) -> str:
    """'step', '1.1 steps', '94 steps'."""
    text = f"{n:.1f}" if n < 10 else f"{n:,.0f}"
    return "step" if text == "1.0" else f"{text} steps"


def steps_that_break(broken: Iterable[BrokenRule], column: str) -> str:
    """'Steps 10 and 11 are outside the limits on kl and k3_kl.'; limits of the same steps are named together."""
    metrics_of: dict[tuple[Any, ...], dict[str, None]] = {}
    for rule in broken:
        steps = tuple(value for key in rule.groups for value in key.values())
        metrics_of.setdefault(steps, {})[rule.metric] = None
    sentences: list[str] = []
    for steps, metrics in metrics_of.items():
        are = "is" if len(steps) == 1 else "are"
        named = clean(steps_named(steps, column))
        limits = "the limit on" if len(metrics) == 1 else "the limits on"
        sentences.append(f"{named[0].upper()}{named[1:]} {are} outside {limits} {and_list(list(metrics))}.")
    return " ".join(sentences)


def step_named(column: str, step: str) -> str:
    """'step 4', 'steps 3 to 8', 'worker a'."""
    return f"{column}{'s' if column in STEPS and ' to ' in step else ''} {step}"


def broken_group(broken: BrokenRule) -> tuple[str, str]:
    """A rule that groups break: the worst of these with its value, and how many there are."""
    worst = ", ".join(step_named(clean(name), clean(value)) for name, value in broken.worst.items())
    n, of = len(broken.groups), f"{broken.of:,}"
    column = next(iter(broken.worst))
    if len(broken.worst) > 1:
        which = f"{n:,} of {of} groups break it"
    else:
        named = clean(steps_named([value for key in broken.groups for value in key.values()], column))
        which = f"{named[0].upper()}{named[1:]} {'breaks' if n == 1 else 'break'} it"
    return f"{broken.metric} {number(broken.worst_value)} at {worst}", f"should be {broken.rule}. {which}."


def _kept_sentence(fraction: float | None) -> str:
    if fraction is None or fraction >= LITTLE_KEPT:
        return ""
    return (
        f"The rejections keep only {100 * fraction:.1f}% of the tokens." if fraction else "The rejections keep nothing."
    )


def impossible_sentence(impossible: Impossible) -> tuple[str, str]:
    """'mean ratio 0.889 (0.878 to 0.902) cannot be': the number with its interval, and what that proves."""
    return impossible_words(impossible), impossible.proves


def remedies_said_once(findings: Sequence[Finding]) -> list[str]:
    """Each finding's fix in words; one that stands above, at another metric, is not said again."""
    first_with: dict[str, str] = {}
    above = [first_with.setdefault(finding.fix or "", finding.metric) for finding in findings]
    return [
        f"Same remedy as {metric}." if finding.fix and metric != finding.metric else finding.fix or ""
        for finding, metric in zip(findings, above, strict=True)
    ]


def bounds_sentences(bounds: SuggestedBounds, profile: str) -> tuple[str, str, str]:
    """A rejection that takes too much: how much that is, what other bounds would do, and these bounds.

    They are --rs where that option works; a profile's plan is written in the framework's own config, which it cannot
    change.  Bounds that let everything pass are not named: no bounds on such a statistic work.
    """
    rejects = f"Rejection {clean(bounds.rejection)} drops {share(bounds.lost_fraction)} of the {bounds.units}."
    at_least = "" if bounds.exact or bounds.kept_fraction == 1 else "at least "
    keeps = f"To keep {at_least}{share(bounds.kept_fraction)} of them:"
    if bounds.is_idle:
        instead = BY_TOKEN if profile == "canonical" else "use token weights in the framework's config."
        return rejects, f"No bounds on {bounds.statistic} {bounds.scope} work here: {instead}", ""
    low, high = ("" if end is None else plain(end) for end in (bounds.low, bounds.high))
    if profile == "canonical":
        return rejects, keeps, f"--rs {bounds.statistic}.{bounds.scope}:{low},{high}"
    ends = (f"{name} {end}" for name, end in (("low", low), ("high", high)) if end)
    return rejects, keeps, f"bounds {', '.join(ends)} on {bounds.statistic} in the framework's config"


def anomaly_sentence(anomaly: AnomalyFinding) -> str:
    """'a.parquet and 2 more files: ...': the first file that shows an anomaly, and the evidence there."""
    others = f" {more(anomaly.n_files - 1, 'file')}" if anomaly.n_files > 1 else ""
    return f"{os.path.basename(anomaly.path)}{others}: {anomaly.evidence.rstrip('.')}."


def anomaly_notes(anomalies: Sequence[AnomalyFinding]) -> Iterator[Note]:
    """Each anomaly of whole files with its evidence and its fix, on a terminal."""
    for anomaly in anomalies:
        text = f"{clean(anomaly_sentence(anomaly))} {anomaly.fix}"
        yield Note(text, lead=f"? {anomaly.name}  ", lead_look="yellow")
    if anomalies:
        yield BLANK


def anomaly_cause(anomaly: AnomalyFinding) -> Cause:
    """An anomaly of files in a file."""
    sentence = f"{anomaly.name}: {clean(anomaly_sentence(anomaly))}"
    return Cause("fail" if anomaly.voids else "warn", sentence, anomaly.fix)


def cause_to_mend(cause: CauseFinding | None) -> CauseFinding | None:
    """The likely cause of the gap, if something is to be done about it: noise is what any two engines differ by."""
    return None if cause is None or cause.cause == NOISE else cause


def next_step(cause: CauseFinding) -> str:
    """What to do, and where the evidence is."""
    return f"{clean(cause.advice)} {EVIDENCE}"


def name_of_cause(cause: CauseFinding) -> str:
    """The name of a cause; of `column`, which says nothing, the column's."""
    return clean(f"{cause.parameters['column']}") if cause.cause == "column" else cause.cause


def cause_notes(finding: CauseFinding | None, *, is_small: bool = False) -> Iterator[Note]:
    """`! top_p  rollout_log_probs was cut at ...: at least 72% of the gap. ...`; nothing without a cause.

    is_small: whether the policies are close, and it is no fault.
    """
    cause = cause_to_mend(finding)
    if cause is not None:
        mark, look = ("?", "yellow") if is_small else ("!", "bold red")
        small = " The gap that it makes is small." if is_small else ""
        text = f"{clean(cause_words(cause))}{small} {next_step(cause)}"
        yield Note(text, lead=f"{mark} {name_of_cause(cause)}  ", lead_look=look)
        yield BLANK


def story_cause(story: Story) -> Cause:
    """What is told of a dump first, in a file."""
    return Cause("fail" if story.is_fault else "warn", clean(story.headline), " ".join(story.do[:1]))


def story_notes(story: Story) -> Iterator[Note]:
    """What is wrong with a dump and what to do about it, where anything is to be done."""
    if story.effect == "none":
        return
    others = [f"Also: {fault.what} {fault.do}" for fault in story.faults[1:]]
    look = "bold red" if story.is_fault else "yellow"
    name = "" if story.first == "column" else f"{story.first}  "  # which says nothing
    yield Note(clean(" ".join((story.headline, *story.do[:1]))), lead=f"! {name}", lead_look=look)
    yield from (Note(clean(other), indent=4) for other in others)
    yield BLANK


def left_out_notes(counts: Mapping[str, int]) -> Iterator[Note]:
    """How many tokens and rows are not looked at, if any."""
    nouns = {"masked_tokens": "masked token", "empty_sequences": "empty sequence", "bad_rows": "bad row"}
    left_out = [plural(counts[name], noun) for name, noun in nouns.items() if counts[name]]
    if left_out:
        yield Note(f"not counted: {', '.join(left_out)}", "dim", indent=0)


def suggestion_notes(suggestions: Sequence[SuggestedBounds], profile: str) -> Iterator[Note]:
    """Each rejection that takes too much, and below it the bounds that would not, in a line to copy."""
    for bounds in suggestions:
        takes, keeps, other_bounds = bounds_sentences(bounds, profile)
        yield Note(keeps, lead=f"! {takes} ", lead_look="yellow")
        if other_bounds:
            yield Note(other_bounds, indent=4)


def column_at_fault(finding: CauseFinding, diagnosis: Diagnosis) -> ColumnGap | None:
    """The column that a finding names."""
    name = finding.parameters.get("column")
    return next((column for column in diagnosis.columns if column.column == name), None)
