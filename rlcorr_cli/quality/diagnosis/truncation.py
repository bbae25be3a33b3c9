"""Rollout's log-probs taken after top-p, min-p or a temperature with top-p, training's before."""

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding
from rlcorr_cli.quality.diagnosis.step import Step
from rlcorr_cli.quality.diagnosis.wording import interval_text, percent, roundest

LOST_MASS, LOST_ERRORS = -0.005, 4.0
"""M+ below both: training has mass that rollout never samples."""
MIN_CUT, MIN_CUT_SHARE = 10, 0.02
MIN_UNSURE = 10
"""A column of zeros was not cut: some tokens must have b < 0."""
TEMPERATURE_SLOPE, TEMPERATURE_ERRORS = 0.08, 6.0
"""|lo|, the slope of d below u = -1, where a truncation alone leaves nearly none."""
AGAINST_TOP_P = 0.08
"""E / judged; measured: top-p at most .03, min-p at least .13."""
TOP_P_LEFT = 3.3
"""(1 - P) / m; measured: top-p at least 4.3, min-p at most 2.2."""
MIN_P_HIGH = 0.1
"""m lies up to 10 % above min-p."""


def loses_mass(case: Case) -> bool:
    """Whether the mean of e^l lies below 1, in effect and beyond chance."""
    features = case.features
    return features.forward < LOST_MASS and features.forward < -LOST_ERRORS * features.forward_error


def truncation(case: Case) -> CauseFinding | None:
    """top_p, min_p or temperature_and_truncation."""
    step = case.step
    if step is None or not loses_mass(case) or step.cut < MIN_CUT or step.cut < MIN_CUT_SHARE * step.n:
        return None
    if step.unsure < MIN_UNSURE:
        return None
    low = case.features.lines["u_low"]
    if abs(low.slope) > TEMPERATURE_SLOPE and abs(low.slope) > TEMPERATURE_ERRORS * low.error:
        return _with_temperature(case, step)
    if step.errors <= AGAINST_TOP_P * step.judged or 1 - step.bound >= TOP_P_LEFT * step.least_left:
        return _top_p(case, step)
    return _min_p(case, step)


def _top_p(case: Case, step: Step) -> CauseFinding:
    rollout, train = case.context.rollout, case.context.train
    setting = f"top-p {roundest(step.bound, step.interval):.3g}"
    return CauseFinding(
        cause="top_p",
        share=case.features.curve_share,
        share_interval=case.features.curve_interval,
        parameters={"top_p": step.bound, "kept_mass": 1 + case.features.forward},
        intervals={"top_p": step.interval, "kept_mass": _kept(case)},
        headline=f"{rollout} was cut at {setting} ({interval_text(step.interval)}); {train} was not",
        evidence=(
            _bound_sentence(case, step),
            _lost(case),
        ),
        advice=CAUSES["top_p"].advice,
    )


def _bound_sentence(case: Case, step: Step) -> str:
    rollout, train = case.context.rollout, case.context.train
    against = f"{step.errors:,} of {step.judged:,} against it"
    if step.errors <= AGAINST_TOP_P * step.judged:
        return (
            f"{rollout} is exactly 0 where {train} lies above log {step.bound:.3f}, and nowhere else: {step.cut:,} "
            f"tokens, {against}."
        )
    return (
        f"{rollout} is exactly 0 on {step.cut:,} tokens, best explained by whether {train} lies above log "
        f"{step.bound:.3f}, with {against}: some rows may be uncut."
    )


def _min_p(case: Case, step: Step) -> CauseFinding:
    rollout, train, m = case.context.rollout, case.context.train, step.least_left
    interval = (m / (1 + MIN_P_HIGH), m)
    return CauseFinding(
        cause="min_p",
        share=case.features.curve_share,
        share_interval=case.features.curve_interval,
        parameters={"min_p": m, "kept_mass": 1 + case.features.forward},
        intervals={"min_p": interval, "kept_mass": _kept(case)},
        headline=f"{rollout} was cut at min-p {roundest(m, interval):.3g} ({interval_text(interval)}); {train} was not",
        evidence=(
            f"{rollout} is exactly 0 on {step.cut:,} tokens ({percent(step.cut / step.n)}) at no one level of {train}, "
            f"and leaves at least {m:.3g} of a token's own probability to others elsewhere.",
            _lost(case),
        ),
        advice=CAUSES["min_p"].advice,
    )


def _with_temperature(case: Case, step: Step) -> CauseFinding:
    rollout, train, low = case.context.rollout, case.context.train, case.features.lines["u_low"]
    return CauseFinding(
        cause="temperature_and_truncation",
        share=case.features.curve_share,
        share_interval=case.features.curve_interval,
        parameters={"kept_mass": 1 + case.features.forward},
        intervals={"kept_mass": _kept(case)},
        headline=f"{rollout} is after a temperature and a truncation (top-p, top-k or min-p); {train} is before both",
        evidence=(
            f"{rollout} is exactly 0 on {step.cut:,} tokens ({percent(step.cut / step.n)}), and among unsure tokens "
            f"log-odds differ along a line (slope {low.slope:.3f} +- {2 * low.error:.3f}), as temperature "
            f"{'below' if low.slope < 0 else 'above'} training's makes it.",
            _lost(case),
        ),
        advice=CAUSES["temperature_and_truncation"].advice,
    )


def _kept(case: Case) -> tuple[float, float]:
    features = case.features
    return (1 + features.forward - 2 * features.forward_error, 1 + features.forward + 2 * features.forward_error)


def _lost(case: Case) -> str:
    features = case.features
    return (
        f"The mean of e^l is {1 + features.forward:.3f} +- {2 * features.forward_error:.3f}: training gives "
        f"{percent(-features.forward)} of its mass to tokens that rollout never samples."
    )
