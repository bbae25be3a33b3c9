"""How sure a cause is: by how far each of its numbers lies from the limit of its rule, in errors where it has one.

proven: a bound or an identity is broken.  likely: the statistics say so.  one of: another reading is as good, because a
number that parts the two lies near its limit.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf, log

from rlcorr_cli.causes.curves import CAP_FAN, LINE_FAN, MOST_AGAINST, TOP_P_LEFT, is_bent, is_cut, is_sharp
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.features import LEAST_BY_TOKEN, MOST_OVER_NOISE, Case
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.weights import MIN_ETA2, STALE_Z_ALONE
from rlcorr_cli.totals.gap import CERTAIN_LEAST, CERTAIN_STEP

NEAR_BOUND = 2.0
"""A bound of truncation is near the limit between top-p and min-p within this factor."""
MIN_JUDGED = 30
"""Of fewer tokens a share of errors as top-p's says little."""
ERRORS = 2.0
NEAR_SIZE, NEAR_ETA2, NEAR_NOISE = 1.5, 1.5, 1.1
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
        alternatives = tuple(_other_readings(case, cause))
        proven = CAUSES[cause.cause].proven
        is_proven = proven == "always" or (proven == "unless_stale" and not is_stale and _bound_holds(case, cause))
        certainty = "one of" if alternatives else "proven" if is_proven else "likely"
        judged.append(replace(cause, certainty=certainty, alternatives=alternatives))
    return judged


def _bound_holds(case: Case, cause: CauseFinding) -> bool:
    """Whether at most 8% of the tokens contradict a truncation: its bound, or that sure tokens are exactly 0."""
    cut = (case.mirrored if "swapped_columns" in cause.explains else None) or case
    if cause.cause == "top_p" and cut.step is not None:
        return is_sharp(cut.step)
    zero, left = cut.totals.certain[:, :SURE].sum(axis=1)
    return left <= 0.08 * (zero + left)


def _other_readings(case: Case, cause: CauseFinding) -> list[str]:
    """What else a cause may be, where that is as good."""
    features = case.features
    match cause.cause:
        case "top_p" | "min_p" as name:
            # Of the column that was cut: training's where that is what was found.
            mirrored = case.mirrored if "swapped_columns" in cause.explains else None
            step = (mirrored or case).step
            if step is None or (name == "top_p" and not is_cut(step)):  # no token shows the bound
                return ["top_k", *_padding(case)] if name == "top_p" else []
            left = ratio(1 - step.bound, step.least_left * ratio(step.errors, step.judged), inf)
            if name == "min_p":
                blurred = step.errors > MOST_AGAINST * step.judged
                return ["top_p"] if blurred or left > TOP_P_LEFT / NEAR_BOUND else []
            near = step.judged < MIN_JUDGED if is_sharp(step) else left < NEAR_BOUND * TOP_P_LEFT
            return ["min_p"] if near else []
        case "top_k":
            sure = int(case.totals.certain[1][:SURE].sum())
            return [*_padding(case), *([] if sure >= MIN_SURE else ["min_p", "top_p"])]
        case "temperature" | "logit_softcap" as name:
            lines, is_cap = features.lines, name == "logit_softcap"
            if is_cap and features.fan < CAP_FAN and not is_bent(lines["u_low"], lines["u"]):
                return ["temperature"]
            if case.shared_prefixes is not None or not CAP_FAN <= features.fan < LINE_FAN:
                return []
            return ["temperature" if is_cap else "logit_softcap"]
        case "other_weights":
            by_token = case.by_token
            if by_token is None or features.core > case.widest_noise:
                return []
            unsure = by_token.omega2 - ERRORS * by_token.error < case.omega2_of_weights
            near = unsure or case.size_by_token < NEAR_SIZE * LEAST_BY_TOKEN
            return ["noise"] if near or case.context.clean is not None else []
        case "noise":
            weights = ["other_weights"] if case.may_be_weights else []
            return [*weights, "heavy_tail"] if cause.share < QUIET else weights
        case "heavy_tail":
            weights = ["other_weights"] if case.may_be_weights else []
            return ["noise", *weights] if case.over_noise < NEAR_NOISE * MOST_OVER_NOISE else weights
        case "stale_policy":
            return ["drift"] if features.lean.z_correlation < STALE_Z_ALONE else []
        case "repetition_penalty":
            repetition = case.repetition
            return ["other_weights"] if repetition is not None and repetition.eta2 < NEAR_ETA2 * MIN_ETA2 else []
        case _:
            return []


def _padding(case: Case) -> list[str]:
    """Of a leak: padding, where some tokens lose more than a cut takes, or the rows are not at hand."""
    return ["padded_vocabulary"] if case.beyond is None or case.beyond.lost > case.beyond.gained else []
