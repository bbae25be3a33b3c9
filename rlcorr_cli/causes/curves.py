"""Causes that move every token by a function of its log-prob: truncation, temperature, soft-cap, and the like.

Each rule reads the same curve of d over log-odds, and the first that holds is taken.  Letters are those of causes/gap:
a = log p_train, b = log p_rollout, l = a - b, u and v their log-odds.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import exp, sqrt

import numpy as np

from rlcorr_cli.causes.columns import trending_column
from rlcorr_cli.causes.diagnosis import CauseFinding, Interval, Parameter
from rlcorr_cli.causes.features import OTHER_CORE, SURE, Case, Rule, Step
from rlcorr_cli.causes.gap import CERTAIN_LEAST, CERTAIN_STEP
from rlcorr_cli.causes.gap_sums import gap_totals
from rlcorr_cli.causes.numbers import Line, ratio
from rlcorr_cli.causes.of_tokens import SharedPrefixes, beyond_vocabulary, shared_prefixes
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.weights import leak
from rlcorr_cli.causes.wording import interval_text, percent, roundest

LOST_MASS, LOST_ERRORS = -0.005, 4.0
"""The mean of e^l - 1 must be below LOST_MASS, and below -LOST_ERRORS standard errors."""
MIN_CUT, MIN_CUT_SHARP = 10, 3
"""A truncation takes this many tokens with b = 0 and a < -.001; fewer, where a sharp bound parts them from the rest."""
MIN_UNSURE = 10
"""A column of zeros was not cut: some tokens must have b < 0."""
TEMPERATURE_SLOPE, TEMPERATURE_ERRORS = 0.08, 6.0
"""The slope of d on u where u < -1 (lines["u_low"]), which a truncation alone leaves near 0."""
TOP_P_LEFT = 32.0
"""(1 - step.bound) / step.least_left over the share of errors near the bound, from which one that is not sharp is
top-p's.  Measured on ten models: top-p beside another fault at least 40 (beside staleness on a peaked model 13 and 20,
with stray zeros), min-p 4 to 21.  Noise as of 4 bits (.25 in log-odds and more) blurs the two."""
NEAR_BOUND, SAME_BOUND = 2.0, 1.25
"""A bound that is not sharp proves min-p where it lies beyond the first factor from the limit between top-p and min-p,
and may be either's within the second; measured: see TOP_P_LEFT."""
MIN_JUDGED = 30
"""Of fewer tokens a share of errors as top-p's says little."""
MIN_SURE = 10
"""Tokens of probability .99 or more that a truncation would have set to 0."""
MIN_STRAY = 3
"""With so many zeros that no cut makes, errors are another fault's, and do not speak against top-p."""
MOST_LEFT, MIN_ROWS = 0.05, 16
"""Either cut sets sure tokens to 0.  Where it left more of them and no bound is sharp, it was made on a part: on some
rows, where so many have zeros, so many none, and of the former's sure tokens no more are left.  Measured: a cut on all
rows leaves at most .005 (top-p .99 .035, and is sharp), one on 40% of the steps .41 and more."""
MOST_AGAINST = 0.35
"""Errors of the bound, of judged tokens: of min-p alone .12 to .29, of top-p under staleness .1 to .2; where end tokens
are 0 instead, .8 and more."""
LEVEL_LOSS = 0.3
"""The deviation of l over its mean, below which all tokens lose alike; measured: padding at least .84, min-p and top-k
at least .38, top-p on flat models .1 to .3."""
MIN_P_HIGH = 0.1
"""step.least_left overstates min-p by up to this share."""

MIN_CURVE = 0.1
MIN_SLOPE, SLOPE_ERRORS = 0.015, 4.0
LINE_R2, LINE_MATCH = 0.4, 0.85
MIN_HIGH = 100
LINE_FAN, CLEAR_R2 = 1.7, 0.9
"""Temperature leaves noise alike at all u; measured: at most 1.4, soft-caps at least 1.9, unless there is hardly any
noise: then what is left of a clear line that does not bend is no fan."""
LINE_OF_PREFIXES, PREFIX_ERRORS, CURVED, STRAIGHT = (0.6, 1.5), 3.0, 0.1, 0.98
"""The slope of the line over the one that shared prefixes give: temperatures .8 to 1.1, soft-caps up to 2.6.  Three
errors and not two, because few prefixes make most of them.  Where the prefixes' line explains less than that of all
tokens by more than CURVED, it is a curve: soft-caps .12 to .35 less, temperatures at most .07.  Where it explains
more, noise bends the other.  From STRAIGHT on it is a line, however tokens fan out: soft-caps explain .18 to .96."""
BEND = (0.79, 1.25)
"""The slope among unlikely tokens over that of all: temperatures .8 to 1.07, soft-caps .5 to .78."""
BESIDE_R2, BESIDE_ERRORS = 0.5, 6.0
"""Measured: R² beside a penalty .6 and more, of a penalty alone .2 at most."""
CAP_R2, CAP_CURVE, CAP_FAN, ONE_SIDED = 0.25, 0.35, 1.4, 0.95
GAINED, GAINED_ERRORS = 0.003, 4.0
"""The mean of e^l - 1 must exceed both, the second in standard errors: rollout's log-probs are not those it sampled."""
LOST = -0.005
"""The mean of e^l - 1, or of e^-l - 1, where mass was lost; it must be below -GAINED_ERRORS standard errors, too."""
ZERO_ERRORS, ZERO, ZERO_RATIO, ZERO_MOST = 3.0, 0.002, 0.2, 0.1
"""A mean of e^l - 1 or e^-l - 1 counts as 0 within ZERO_ERRORS standard errors plus ZERO, or if it is smaller than
ZERO_MOST and than ZERO_RATIO times the other mean, whose tail may be heavy."""
UNEVEN = 0.9
LEAK_ERRORS = 12.0
"""As LOST_ERRORS, of a leak: weights that differ much leave a mean of e^l too low by up to 11, because its tail is
rare; padding by 14 or more."""
TOP_K_POSITIVE, TOP_K_TAIL = 0.4, 2.5
"""Top-k: a smaller share of tokens speaks against the cut (of wider noise than number formats make, by so much smaller
a share), and spread.tail stays below TOP_K_TAIL."""
SPREAD_OF_T = 0.25
"""Added to the interval of a T that no shared prefixes tell, as a share of |T - 1|: where few tokens have high
log-odds, a T of 1.3 is estimated as 1.23, and one of .9 as .88."""


def loses_mass(case: Case) -> bool:
    """Whether the mean of e^l lies below 1, in effect and beyond chance."""
    return case.features.forward.is_below(LOST_MASS, LOST_ERRORS)


def has_slope(case: Case) -> bool:
    """Whether the log-odds of unlikely tokens lie on a line, as a temperature's do; min-p alone may leave one, too,
    since it takes more where no token is likely."""
    low = case.features.lines["u_low"]
    return abs(low.slope) > max(TEMPERATURE_SLOPE, TEMPERATURE_ERRORS * low.error)


def truncation(case: Case) -> CauseFinding | None:
    """top_p, min_p or temperature_and_truncation, of rollout's column, else of training's; only of rollout's, which
    single tokens show, beside an error that grows along a column."""
    found = _truncation_of_rollout(case) or (None if trending_column(case) else _truncation_of_training(case))
    return None if found is None else replace(found, alternatives=tuple(_other_cuts(case, found)))


def _other_cuts(case: Case, found: CauseFinding) -> list[str]:
    """Which other cut it may be as well."""
    # Of the column that was cut: training's where that is what was found.
    name, step = found.cause, (case.mirrored if "swapped_columns" in found.explains else case).step
    if name == "temperature_and_truncation":
        return []
    if step is None or (name == "top_p" and not is_cut(step)):  # no token shows the bound
        return ["top_k", *_or_padding(case)] if name == "top_p" else []
    if is_in_part(step):  # of rows it is known what their zeros keep to
        return [] if "rows" in found.parameters else [{"top_p": "min_p", "min_p": "top_p"}[name]]
    if name == "min_p":
        with_temperature = ["temperature_and_truncation"] if has_slope(case) else []
        return ["top_p"] if step.ratio_left * SAME_BOUND > TOP_P_LEFT else with_temperature
    near = step.judged < MIN_JUDGED if step.is_sharp else step.ratio_left < SAME_BOUND * TOP_P_LEFT
    return ["min_p"] if near else []


def _or_padding(case: Case) -> list[str]:
    """Of a leak: padding, where some tokens lose more than a cut takes."""
    beyond = beyond_vocabulary(case.sample)
    return ["padded_vocabulary"] if beyond.lost > beyond.gained else []


def bound_holds(case: Case, found: CauseFinding) -> bool:
    """Whether the tokens keep what a truncation says: sure ones are exactly 0, and no more of those near a top-p bound
    are on its wrong side than noise carries there; a min-p's are, and it leaves too little to be top-p's."""
    step = (case.mirrored if "swapped_columns" in found.explains else case).step
    if step is None or found.cause == "top_p":
        return step is not None and step.is_sharp
    return step.left <= MOST_LEFT and (found.cause != "min_p" or step.ratio_left * NEAR_BOUND <= TOP_P_LEFT)


def _truncation_of_rollout(case: Case) -> CauseFinding | None:
    step = case.step
    loses = loses_mass(case)
    if is_in_part(step) and (found := _on_some_rows(case)) is not None:
        return found
    # What other weights add to the mean of e^l hides the loss, and not the step.
    if step is None or not is_cut(step) or not (loses or step.errors <= MOST_AGAINST * step.judged):
        return _level_top_p(case) if loses and case.features.unevenness < LEVEL_LOSS else None
    is_top_p = step.is_sharp or step.ratio_left >= TOP_P_LEFT or step.stray >= MIN_STRAY
    if is_top_p and has_slope(case):
        return _with_temperature(case, step)
    found = (_top_p if is_top_p else _min_p)(case, step)
    if not is_in_part(step):
        return found
    zeros = (
        f"{step.cut:,} tokens are 0, but {percent(step.left)} of those that {case.context.train} is sure of are not."
    )
    return _without_number(case, found, "some tokens", zeros)


def is_cut(step: Step) -> bool:
    """Whether enough tokens were set to 0, and not all."""
    return step.unsure >= MIN_UNSURE and step.cut >= (MIN_CUT_SHARP if step.is_sharp else MIN_CUT)


def is_in_part(step: Step | None) -> bool:
    """Whether too many sure tokens were left other than 0 for a cut of all rows."""
    return step is not None and step.left > MOST_LEFT and not step.is_sharp


def _on_some_rows(case: Case) -> CauseFinding | None:
    """The cut of those rows in which a token has b = 0 and a < -.001, if it is one of all of them."""
    sample = case.sample
    zero = (sample.scored == 0) & (sample.train < -0.001)
    cut = np.unique(np.repeat(np.arange(sample.n_rows), sample.n_valid)[zero])
    if min(len(cut), n_other := sample.n_rows - len(cut)) < MIN_ROWS:
        return None
    within = Case(sample=sample.rows(cut), context=case.context)
    found = _truncation_of_rollout(within)
    if found is None or is_in_part(within.step):
        return None
    rollout, train = case.context.rollout, case.context.train
    zeros = (
        f"Of the tokens that {train} puts below -0.001, {rollout} is exactly 0 on {zero.sum():,} in {len(cut):,} rows, "
        f"as a cut makes them, and on none in the other {n_other:,}."
    )
    found = replace(found, share=case.features.share(found.share * within.features.gap), share_interval=None)
    return _without_number(case, found, f"some rows ({len(cut):,} of {sample.n_rows:,})", zeros, rows=len(cut))


def _without_number(case: Case, found: CauseFinding, where: str, evidence: str, **rows: int) -> CauseFinding:
    """A cut of a part, of which no more is known than that it was made."""
    headline = f"{case.context.rollout} was logged after a cut on {where}, {case.context.train} was not"
    return replace(found, parameters=rows, intervals={}, headline=headline, evidence=(evidence, _lost(case)))


def _truncation_of_training(case: Case) -> CauseFinding | None:
    """The same of training's column, where tokens were drawn from it: a cut column where the raw one should stand."""
    f = case.features
    is_gain = f.forward.value > GAINED and f.inverse.is_below(LOST, GAINED_ERRORS)
    found = _truncation_of_rollout(case.mirrored) if is_gain else None
    if found is None:
        return None
    rollout, train = case.context.rollout, case.context.train
    lost = (
        f"The mean inverse ratio is {f.inverse.words()}: {rollout} gives "
        f"{percent(-f.inverse.value)} of its probability to tokens that {train} rules out."
    )
    drawn = f"Tokens were drawn from {train}: the two columns were exchanged, or {train} is the sampler's."
    advice = f"Check that {rollout} and {train} were not exchanged. {CAUSES[found.cause].advice}"
    return replace(found, evidence=(*found.evidence[:-1], lost, drawn), advice=advice, explains=("swapped_columns",))


def _top_p(case: Case, step: Step) -> CauseFinding:
    rollout, train = case.context.rollout, case.context.train
    elsewhere = "nowhere" if step.is_sharp else "seldom"
    bound = (
        f"{rollout} is exactly 0 where {train} is above log {step.bound:.3f}, and {elsewhere} else: {step.cut:,} "
        f"tokens; {step.errors:,} of {step.judged:,} tokens contradict it."
    )
    setting = f"top-p {roundest(step.bound, step.interval):.3g} ({interval_text(step.interval)})"
    headline = f"{rollout} was logged after {setting}, {train} was not"
    return _cut(case, "top_p", headline, bound, top_p=(step.bound, step.interval))


def _level_top_p(case: Case) -> CauseFinding:
    """Of a policy that gives no token more than p: all of them gain alike."""
    rollout, train, f = case.context.rollout, case.context.train, case.features
    alike = (
        f"{rollout} is higher by the same amount on nearly all tokens: the log-ratios vary by "
        f"{percent(f.unevenness)} of their mean (top-k, min-p, padding: {percent(LEVEL_LOSS)} or more)."
    )
    headline = f"{rollout} was logged after top-p, {f.forward.mean[0]:.3f} or a little less; {train} was not"
    return _cut(case, "top_p", headline, alike)


def _min_p(case: Case, step: Step) -> CauseFinding:
    rollout, train, m = case.context.rollout, case.context.train, step.least_left
    zeros = (
        f"{rollout} is exactly 0 on {step.cut:,} tokens ({percent(step.cut / step.n)}), at no single level of "
        f"{train}. On all other tokens it leaves at least {m:.3g} of a token's own probability to the others."
    )
    interval = (m / (1 + MIN_P_HIGH), m)
    headline = (
        f"{rollout} was logged after min-p {roundest(m, interval):.3g} ({interval_text(interval)}), {train} was not"
    )
    return _cut(case, "min_p", headline, zeros, min_p=(m, interval))


def _with_temperature(case: Case, step: Step) -> CauseFinding:
    rollout, train, low = case.context.rollout, case.context.train, case.features.lines["u_low"]
    zeros = (
        f"{rollout} is exactly 0 on {step.cut:,} tokens ({percent(step.cut / step.n)}), and among uncertain "
        f"tokens the log-odds differ along a line (slope {low.slope:.3f} ± {2 * low.error:.3f}), as a "
        f"temperature {'below' if low.slope < 0 else 'above'} training's does."
    )
    headline = f"{rollout} was logged after a temperature and a cut (top-p, top-k or min-p), {train} before both"
    return _cut(case, "temperature_and_truncation", headline, zeros)


def _cut(case: Case, cause: str, headline: str, evidence: str, **known: tuple[float, Interval]) -> CauseFinding:
    """known: what is known of it by name, a value with its interval, beside the mass that it kept."""
    known["kept_mass"] = case.features.forward.mean
    return replace(_cause_of_curve(case, cause, known, headline), evidence=(evidence, _lost(case)))


def _lost(case: Case) -> str:
    forward = case.features.forward
    return (
        f"The mean ratio is {forward.words()}: training gives {percent(-forward.value)} of its probability to tokens "
        "that the rollout never samples."
    )


Known = tuple[float, Interval]
"""A number with its interval."""


def _cause_of_curve(
    case: Case, cause: str, known: Mapping[str, Known | Parameter], headline: str, *evidence: str
) -> CauseFinding:
    """A cause that makes what the curve explains of the gap.  known: what it comes to, with intervals where there are
    some."""
    return CauseFinding(
        cause=cause,
        share=case.features.curve_share,
        share_interval=case.features.curve_interval,
        parameters={name: each[0] if isinstance(each, tuple) else each for name, each in known.items()},
        intervals={name: each[1] for name, each in known.items() if isinstance(each, tuple)},
        headline=headline,
        evidence=evidence,
    )


def temperature(case: Case) -> CauseFinding | None:
    """A straight line of d on log-odds, with tokens drawn from one of the two."""
    features = case.features
    if features.curve < MIN_CURVE:
        return None
    side = drawn_from(case)
    which = "v" if side == "training" else "u"
    line, high, low = (features.lines[name] for name in (which, f"{which}_high", f"{which}_low"))
    # Where hardly a token is likely, all of them make the line.
    high = high if high.n >= MIN_HIGH else line
    if not is_sloped(line) or line.r2 < LINE_R2:
        return None
    shared = shared_prefixes(case.sample)
    alike = shared is not None and _is_of_prefixes(line, shared, raw=side == "training")
    r2_of_prefixes = shared.r2 if alike and shared is not None else 0.0
    if r2_of_prefixes < STRAIGHT:
        is_curve = is_bent(low, line) and r2_of_prefixes < line.r2
        if is_curve or high.match < LINE_MATCH or (features.fan >= LINE_FAN and line.r2 < CLEAR_R2):
            return None
        if shared is not None and not alike:
            return None
    if side is None:
        return None if loses_mass(case) else _unnormalised_finding(case)
    raw, rollout, train = side == "training", case.context.rollout, case.context.train
    value = _ratio_of_line(high, raw=raw)
    if shared is not None:
        # Among tokens that are sure the line is the more exact of the two.
        value = min(value, _ratio_of_prefixes(shared), key=lambda known: known[1][1] - known[1][0])
    drawn = f"The mean ratio is {features.forward.words()}: the tokens were drawn from {rollout}."
    if raw:
        drawn = (
            f"The mean inverse ratio is {features.inverse.words()}: the tokens were drawn from {train}. Swapped "
            "columns would look the same."
        )
    straight = (
        f"The log-odds differ along a straight line: slope {line.slope:.3f} ± {2 * line.error:.3f} on "
        f"{train if raw else rollout}'s, R² {line.r2:.2f}."
    )
    may_be_cap = shared is None and features.fan >= CAP_FAN
    found = _temperature(case, side, value, straight, drawn)
    return replace(found, alternatives=("logit_softcap",)) if may_be_cap else found


def temperature_beside(case: Case) -> CauseFinding | None:
    """Beside a penalty, which blurs the line: only tokens that share their prefix tell, because a penalty moves those
    that the response had before, and few stand so early."""
    shared, side = shared_prefixes(case.sample), drawn_from(case)
    if shared is None or side is None or case.features.curve < MIN_CURVE or shared.r2 < BESIDE_R2:
        return None
    if abs(shared.ratio - 1) < max(MIN_SLOPE, BESIDE_ERRORS * shared.error):
        return None
    on_a_line = (
        f"{shared.tokens} tokens that share their prefix with others lie on a line (R² {shared.r2:.2f}); "
        "a penalty alone leaves none (0.2 at most)."
    )
    return _temperature(case, side, _ratio_of_prefixes(shared), on_a_line)


LOG_AFTER = (
    "Have the rollout log its log-probs after the temperature (vLLM: logprobs_mode=processed_logprobs). Training "
    "divides by it already."
)


def _temperature(case: Case, side: str, known: Known, *evidence: str) -> CauseFinding:
    """side: the column that tokens were drawn from.  known: T_rollout / T_training."""
    rollout, train, (value, interval) = case.context.rollout, case.context.train, known
    text = f"{roundest(value, interval):.3g} ({interval_text(interval, 2)})"
    headline = f"the temperature of {rollout} is {text} times that of {train}"
    raw = side == "training"  # rollout's column is from before the temperature, though tokens were sampled at it
    if raw:
        interval = 1 / interval[1], 1 / max(1e-3, interval[0])
        text = f"{roundest(1 / value, interval):.3g} ({interval_text(interval)})"
        headline = f"{rollout} is raw, while {train} is at the sampling temperature, {text}"
    found = _cause_of_curve(case, "temperature", {"temperature": known, "drawn_from": side}, headline, *evidence)
    # The anomaly swapped_columns is known by this same sign, so this finding accounts for it.
    return replace(found, explains=("swapped_columns",), advice=LOG_AFTER) if raw else found


def drawn_from(case: Case) -> str | None:
    """Which of the two columns tokens were drawn from: rollout, training, or neither (None)."""
    f = case.features
    m, w = f.forward.value, f.inverse.value
    inverse_is_zero = abs(w) <= ZERO_ERRORS * f.inverse.error + ZERO or abs(w) < min(ZERO_RATIO * m, ZERO_MOST)
    if f.forward.is_above(GAINED, GAINED_ERRORS) and inverse_is_zero:
        return "training"
    if abs(m) <= ZERO_ERRORS * f.forward.error + ZERO or abs(m) < min(ZERO_RATIO * abs(w), ZERO_MOST):
        return "rollout"
    return None


def _ratio_of_line(high: Line, *, raw: bool) -> Known:
    """From the line where log-odds exceed 1: on u 1 + slope; where raw, on v, 1 / (1 - slope)."""
    if raw:
        value = 1 / max(1e-3, 1 - high.slope)
        error = high.error * value**2
    else:
        value, error = 1 + high.slope, high.error
    half = sqrt((2 * error) ** 2 + (SPREAD_OF_T * (value - 1)) ** 2)
    return value, (value - half, value + half)


def _ratio_of_prefixes(shared: SharedPrefixes) -> Known:
    half = PREFIX_ERRORS * shared.error
    return shared.ratio, (shared.ratio - half, shared.ratio + half)


def _is_of_prefixes(line: Line, shared: SharedPrefixes, *, raw: bool) -> bool:
    """Whether the line's slope is the one of tokens that share their prefix; a soft-cap's is steeper."""
    slope = 1 - 1 / shared.ratio if raw else shared.ratio - 1
    low, high = LINE_OF_PREFIXES
    alike = abs(line.slope - slope) <= PREFIX_ERRORS * shared.error or low <= ratio(line.slope, slope) <= high
    return alike and shared.r2 >= line.r2 - CURVED


def softcap(case: Case) -> CauseFinding | None:
    """A sloped line around which sure tokens scatter more than even ones."""
    features, line = case.features, case.features.lines["u"]
    if not is_sloped(line) or line.r2 < CAP_R2 or features.curve < CAP_CURVE:
        return None
    # Of two distributions each is the higher one on some tokens; one that was cut is higher on nearly all.
    if max(features.positive, 1 - features.positive) > ONE_SIDED:
        return None
    rollout, train = case.context.rollout, case.context.train
    capped, free = (train, rollout) if line.slope < 0 else (rollout, train)
    fans = features.fan >= CAP_FAN
    shared, low = shared_prefixes(case.sample), features.lines["u_low"]
    may_be_line = shared is None and features.fan < LINE_FAN if fans else not is_bent(low, line)
    how = "along which they bend more than a temperature makes them."
    if fans:
        how = (
            f"and spread {features.fan:.1f} times as wide among near-certain tokens as among tokens of probability "
            f"0.5 (temperature: at most {CAP_FAN:g})."
        )
    headline = f"the logits of {capped} have a soft-cap that those of {free} lack, or another one"
    evidence = (
        f"The log-odds differ along a line (slope {line.slope:.3f} ± {2 * line.error:.3f}, R² {line.r2:.2f}), {how}"
    )
    found = _cause_of_curve(case, "logit_softcap", {"side": capped}, headline, evidence)
    return replace(found, alternatives=("temperature",)) if may_be_line else found


def unnormalised(case: Case) -> CauseFinding | None:
    """The mean of e^l above 1, that of e^-l below 1, and over 90% of l of one sign: no two distributions give that."""
    f = case.features
    gained, lost = f.forward.is_above(GAINED, GAINED_ERRORS), f.inverse.is_below(LOST, GAINED_ERRORS)
    if gained and lost and f.curve >= MIN_CURVE and max(f.positive, 1 - f.positive) > UNEVEN:
        return _unnormalised_finding(case)
    return None


def lost_mass(case: Case) -> CauseFinding | None:
    """top_k, or padded_vocabulary where some tokens lose more than a cut can take."""
    return _padded_vocabulary(case) or _top_k(case)


def _top_k(case: Case) -> CauseFinding | None:
    """Mass lost over many tokens, by rollout or by training, without tokens at b = 0."""
    f, step = case.features, case.step
    if f.curve < MIN_CURVE or f.tail >= TOP_K_TAIL or (step is not None and step.unsure < MIN_UNSURE):
        return None
    if beyond_vocabulary(case.sample).holds:
        return None
    most_against = TOP_K_POSITIVE / max(1.0, f.core / OTHER_CORE)
    for mean_of, excess, share_against, cut, whole in (
        ("ratio", f.forward, f.positive, case.context.rollout, case.context.train),
        ("inverse ratio", f.inverse, 1 - f.positive, case.context.train, case.context.rollout),
    ):
        if not (excess.is_below(LOST, GAINED_ERRORS) and share_against < most_against):
            continue
        is_any_cut = _n_sure(case) < MIN_SURE
        kept = interval_text(excess.mean[1])
        found = _cause_of_curve(
            case,
            "top_k",
            {"kept_mass": excess.mean, "side": cut},
            f"{cut} was logged after top-k (which kept {kept} of the probability), {whole} was not",
            f"The mean {mean_of} is {excess.words()}: {percent(-excess.value)} of the probability under {whole} goes "
            f"to tokens that {cut} rules out.",
            f"{cut} is the higher one on {percent(max(f.positive, 1 - f.positive))} of the tokens, without the sharp "
            "limit that top-p has.",
        )
        return replace(found, alternatives=(*_or_padding(case), *(("min_p", "top_p") if is_any_cut else ())))
    return None


def _n_sure(case: Case) -> int:
    """Tokens that training is sure of and the rollout's column has below 0, in rows that are not odd."""
    sample, bound = case.sample, exp(CERTAIN_LEAST + CERTAIN_STEP * (SURE - 1))
    even = np.repeat(np.isnan(gap_totals(sample).odd), sample.n_valid)
    return int(((sample.scored < 0) & (sample.train > -bound) & even).sum())


def _padded_vocabulary(case: Case) -> CauseFinding | None:
    """Mass that leaks from everywhere: rows of the output layer that no token has take it in training."""
    f, step = case.features, case.step
    if not f.forward.is_below(LOST_MASS, LEAK_ERRORS) or f.positive >= TOP_K_POSITIVE:
        return None
    if step is not None and step.cut >= MIN_CUT_SHARP:
        return None
    beyond = beyond_vocabulary(case.sample)
    if not beyond.holds:
        return None
    return leak(
        case,
        max(f.curve_share, f.share(f.body_gap - f.body_noise_gap)),
        (
            f"The mean ratio is {f.forward.words(4)}: training gives probability to tokens that rollout never samples.",
            f"{beyond.lost:,} tokens lose more than all tokens that are less likely can hold (V times their own "
            f"probability; {beyond.gained:,} gain as much): no cut of the vocabulary does that.",
        ),
    )


def _unnormalised_finding(case: Case) -> CauseFinding:
    f = case.features
    rollout, train = case.context.rollout, case.context.train
    return _cause_of_curve(
        case,
        "unnormalised",
        {"mean_rho": f.forward.mean, "mean_inverse_rho": f.inverse.mean},
        f"{rollout} or {train} is not normalised: log-probs were scaled, not logits",
        f"The mean ratio is {f.forward.words()}, and the mean inverse ratio {f.inverse.words()}: the tokens were drawn "
        "from neither column.",
        f"{train} is the higher one on {percent(f.positive)} of the tokens, along a curve that explains "
        f"{percent(f.curve_share)} of the gap.",
    )


def is_bent(low: Line, line: Line) -> bool:
    """Whether unlikely tokens have another slope than all of them."""
    return not BEND[0] <= ratio(low.slope, line.slope, 1.0) <= BEND[1]


def is_sloped(line: Line) -> bool:
    """Whether a line has a slope, in effect and beyond chance."""
    return abs(line.slope) >= MIN_SLOPE and abs(line.slope) >= SLOPE_ERRORS * line.error


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("temperature_and_truncation", "top_p", "min_p"), truncation),
    "temperature": temperature,
    "logit_softcap": softcap,
    "unnormalised": unnormalised,
    "top_k": lost_mass,
}
