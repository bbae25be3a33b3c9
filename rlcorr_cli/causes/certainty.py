"""How sure a cause is: by how far each of its numbers lies from the limit of its rule, in errors where it has one.

proven: a bound or an identity is broken.  likely: the statistics say so.  one of: another reading is as good, because a
number that parts the two lies near its limit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, log

from rlcorr_cli.causes.curves import CAP_FAN, LINE_FAN, MOST_AGAINST, TOP_P_LEFT, is_bent, is_cut, is_sharp
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.features import LEAST_BY_TOKEN, Case, Step
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.causes.vocabulary import BY_TOKEN
from rlcorr_cli.causes.weights import HEAVY_TAIL, MIN_ETA2, STALE_Z_ALONE
from rlcorr_cli.totals.gap import CERTAIN_LEAST, CERTAIN_STEP

PROVEN = frozenset({"top_p", "min_p", "temperature_and_truncation", "unnormalised", "top1_recorded"})
"""What breaks a bound or an identity: a log-prob of exactly 0 beyond a bound, two means that no policy gives, or two
tokens of one distribution."""
MOVED_BY_STALENESS = frozenset({"top_p", "min_p", "temperature_and_truncation"})
NEAR_BOUND = 2.0
"""A bound of truncation is near the limit between top-p and min-p within this factor."""
MIN_JUDGED = 30
"""Of fewer tokens a share of errors as top-p's says little."""
ERRORS = 2.0
NEAR_SIZE, NEAR_ETA2 = 1.5, 1.5
SURE, MIN_SURE = round(log(0.01 / exp(CERTAIN_LEAST)) / CERTAIN_STEP), 10
"""Tokens of probability .99 or more, which top-p and min-p set to exactly 0: bins of ln(-a) up to this one."""
QUIET = 0.6
"""Noise that makes less of a gap may be noise and a few tokens far off."""


def certain(case: Case, causes: Sequence[CauseFinding]) -> list[CauseFinding]:
    """The causes with how sure each is, and the other readings of one that is one of several.

    A bound is not proven beside staleness, which moves the tokens that it is read from.
    """
    is_stale = any(cause.cause == "stale_policy" for cause in causes)
    judged: list[CauseFinding] = []
    for cause in causes:
        doubt = DOUBTS.get(cause.cause)
        alternatives = () if doubt is None else tuple(doubt(case, cause))
        is_proven = cause.cause in PROVEN and not (is_stale and cause.cause in MOVED_BY_STALENESS)
        certainty = "one of" if alternatives else "proven" if is_proven else "likely"
        judged.append(replace(cause, certainty=certainty, alternatives=alternatives))
    return judged


def _step(case: Case, cause: CauseFinding) -> Step | None:
    """Of the column that was cut: training's where that is what was found."""
    mirrored = case.mirrored if "swapped_columns" in cause.explains else None
    return (mirrored or case).step


def _of_top_p(case: Case, cause: CauseFinding) -> list[str]:
    step = _step(case, cause)
    if step is None or not is_cut(step):
        return ["top_k", *_of_leak(case)]  # no token shows the bound
    if is_sharp(step):
        return ["min_p"] if step.judged < MIN_JUDGED else []
    return ["min_p"] if _left(step) < NEAR_BOUND * TOP_P_LEFT else []


def _of_min_p(case: Case, cause: CauseFinding) -> list[str]:
    step = _step(case, cause)
    if step is None:
        return []
    blurred = step.errors > MOST_AGAINST * step.judged
    return ["top_p"] if blurred or _left(step) > TOP_P_LEFT / NEAR_BOUND else []


def _left(step: Step) -> float:
    return ratio(1 - step.bound, step.least_left * ratio(step.errors, step.judged), float("inf"))


def _of_leak(case: Case) -> list[str]:
    """Padding, where some tokens lose more than a cut takes, or the rows are not at hand."""
    return ["padded_vocabulary"] if case.beyond is None or case.beyond.lost > case.beyond.gained else []


def _of_top_k(case: Case, cause: CauseFinding) -> list[str]:
    readings = _of_leak(case)
    sure = int(case.totals.certain[1][:SURE].sum())
    return readings if sure >= MIN_SURE else [*readings, "min_p", "top_p"]


def _of_line(case: Case, cause: CauseFinding) -> list[str]:
    lines, is_cap = case.features.lines, cause.cause == "logit_softcap"
    if is_cap and case.features.fan < CAP_FAN and not is_bent(lines["u_low"], lines["u"]):
        return ["temperature"]
    if case.shared_prefixes is not None or not CAP_FAN <= case.features.fan < LINE_FAN:
        return []
    return ["logit_softcap" if cause.cause == "temperature" else "temperature"]


def _of_weights(case: Case, cause: CauseFinding) -> list[str]:
    by_token = case.by_token
    if by_token is None or case.features.core > case.widest_noise:
        return []
    near = by_token.omega2 - ERRORS * by_token.error < BY_TOKEN or case.size_by_token < NEAR_SIZE * LEAST_BY_TOKEN
    return ["noise"] if near or case.context.clean is not None else []


def _of_noise(case: Case, cause: CauseFinding) -> list[str]:
    return [*_of_spread(case), *(["heavy_tail"] if cause.share < QUIET else [])]


def _of_spread(case: Case) -> list[str]:
    return ["other_weights"] if case.may_be_weights else []


def _of_tail(case: Case, cause: CauseFinding) -> list[str]:
    return [*(["noise"] if case.features.tail < HEAVY_TAIL else []), *_of_spread(case)]


def _of_staleness(case: Case, cause: CauseFinding) -> list[str]:
    return ["drift"] if case.features.lean.z_correlation < STALE_Z_ALONE else []


def _of_repetition(case: Case, cause: CauseFinding) -> list[str]:
    repetition = case.repetition
    return ["other_weights"] if repetition is not None and repetition.eta2 < NEAR_ETA2 * MIN_ETA2 else []


DOUBTS: Mapping[str, Callable[[Case, CauseFinding], list[str]]] = {
    "top_p": _of_top_p,
    "min_p": _of_min_p,
    "top_k": _of_top_k,
    "temperature": _of_line,
    "logit_softcap": _of_line,
    "other_weights": _of_weights,
    "noise": _of_noise,
    "heavy_tail": _of_tail,
    "stale_policy": _of_staleness,
    "repetition_penalty": _of_repetition,
}
"""Cause -> what else it may be, where that is as good."""
