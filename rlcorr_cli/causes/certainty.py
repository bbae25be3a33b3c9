"""How sure a cause is: by how far each of its numbers lies from the limit of its rule, in errors where it has one.

proven: a bound or an identity is broken.  likely: the statistics say so.  one of: another reading is as good, because a
number that parts the two lies near its limit.
"""

from collections.abc import Sequence
from dataclasses import replace

from rlcorr_cli.causes.curves import CAP_FAN, LINE_FAN, MOST_LEFT, TOP_P_LEFT, has_slope, is_bent, is_cut, is_in_part
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.features import LEAST_BY_TOKEN, MOST_OVER_NOISE, SURE, Case
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.weights import MIN_ETA2, STALE_Z_ALONE

NEAR_BOUND, SAME_BOUND = 2.0, 1.25
"""A bound that is not sharp proves min-p where it lies beyond the first factor from the limit between top-p and min-p,
and may be either's within the second; measured: see TOP_P_LEFT."""
MIN_JUDGED = 30
"""Of fewer tokens a share of errors as top-p's says little."""
ERRORS = 2.0
NEAR_SIZE, NEAR_ETA2, NEAR_NOISE = 1.5, 1.5, 1.1
MIN_SURE = 10
"""Tokens of probability .99 or more that a truncation would have set to 0."""
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
    """Whether the tokens keep what a truncation says: sure ones are exactly 0, and no more of those near a top-p bound
    are on its wrong side than noise carries there; a min-p's are, and it leaves too little to be top-p's."""
    step = (("swapped_columns" in cause.explains and case.mirrored) or case).step
    if step is None or cause.cause == "top_p":
        return step is not None and step.is_sharp
    return step.left <= MOST_LEFT and (cause.cause != "min_p" or step.ratio_left * NEAR_BOUND <= TOP_P_LEFT)


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
            if is_in_part(step):  # of rows it is known what their zeros keep to
                return [] if "rows" in cause.parameters else [{"top_p": "min_p", "min_p": "top_p"}[name]]
            if name == "min_p":
                with_temperature = ["temperature_and_truncation"] if has_slope(case) else []
                return ["top_p"] if step.ratio_left * SAME_BOUND > TOP_P_LEFT else with_temperature
            near = step.judged < MIN_JUDGED if step.is_sharp else step.ratio_left < SAME_BOUND * TOP_P_LEFT
            return ["min_p"] if near else []
        case "top_k":
            sure = int(case.totals.certain[1][:SURE].sum())
            return [*_padding(case), *([] if sure >= MIN_SURE else ["min_p", "top_p"])]
        case "temperature" | "logit_softcap" as name:
            lines, is_cap = features.lines, name == "logit_softcap"
            if is_cap and features.fan < CAP_FAN and not is_bent(lines["u_low"], lines["u"]):
                return ["temperature"]
            if case.shared_prefixes is not None or features.fan < CAP_FAN or (is_cap and features.fan >= LINE_FAN):
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
        case "stale_policy" if "column" not in cause.parameters:
            return ["drift"] if features.lean.z_correlation < STALE_Z_ALONE else []
        case "repetition_penalty":
            repetition = case.repetition
            return ["other_weights"] if repetition is not None and repetition.eta2 < NEAR_ETA2 * MIN_ETA2 else []
        case _:
            return []


def _padding(case: Case) -> list[str]:
    """Of a leak: padding, where some tokens lose more than a cut takes, or the rows are not at hand."""
    return ["padded_vocabulary"] if case.beyond is None or case.beyond.lost > case.beyond.gained else []
