"""Where in its rows the gap sits: at one place of each, from some token on, or steadily up or down.

A place is the first token of a row, its last one, or the tokens after a masked stretch.
"""

from collections.abc import Mapping
from functools import partial
from math import ceil, exp, floor, sqrt

import numpy as np

from rlcorr_cli.causes.diagnosis import CauseFinding, Interval, PlaceGap
from rlcorr_cli.causes.features import SITS_ON, Case, Rule
from rlcorr_cli.causes.gap import INDEX_EDGES, PLACE_SUMS, GapTotals
from rlcorr_cli.causes.numbers import ratio, ratios, typical
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.wording import figures, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats

MIN_TOKENS = 40
ERROR_FACTOR = 1.5
"""Tokens of a row are not independent: errors of the mean x are this many times those of independent ones."""
ONSET_JUMP, ONSET_Z, ONSET_BEFORE, ONSET_SIDE = 1.2, 6.0, 0.4, 0.05
"""The jump of mean x, its z, the range before it over the jump, and the least share of tokens on each side."""
PART_ERROR = 0.35
"""How well a bin's mean tells which part of it lies after the onset: where prompts count, it differs by row, and what a
window cuts off matters little at first."""
GROWS, GROWS_Z, DECAYS, DECAYS_Z = 0.4, 4.0, -0.6, -5.0
"""A line on log2(index + 1): the change of mean x from end to end, with its z.  Early tokens follow the prompt's noise,
which makes a weak decay commoner than a weak growth."""
MIN_SHARE = 0.1
"""Beside a curve more is asked (judge.LEAST_ALONG): surprise drifts along a row."""

MIN_FAR, FAR_TIMES, FAR_RATE, FAR_CHANCE = 2, 5.0, 0.01, 3e-4
"""Tokens with |l| > ln 2: how many, how many times the body's rate, at what rate, and how rare by chance."""
SIZE_SHARE, SIZE_TIMES, SIZE_Z = 0.5, 1.1, 4.0
"""Tokens of a place whose mean x lies higher, by this much (a factor of 3) and so many errors, where they hold most of
the gap."""
FEW_PROMPTS = 64
"""So many prompts are told apart by their buckets."""
CERTAIN_TIMES = 5.0
"""Tokens of log-prob 0 are told from this many times the body's rate on."""
PLACES = {
    "first_token": "the first token of each row",
    "last_token": "the last token of each row",
    "mask_boundary": "the four tokens after each masked stretch",
}


def _place_fault(case: Case, *, cause: str) -> CauseFinding | None:
    """One of PLACES."""
    parts = SITS_ON[CAUSES[cause].sits_on]
    here, body = case.tokens_at(*parts), case.tokens_at("body")
    share, far = case.features.share(here["l2"] - case.features.core**2 * here["n"]), int(here["n_far"])
    by_size = share >= SIZE_SHARE and _is_larger(case, cause, here, body)
    if share < MIN_SHARE or not (by_size or _is_far(case, cause, here, body)):
        return None
    size = {"size": typical(ratio(here["x"], here["n_graded"]))} if here["n_graded"] else {}
    found = f"{far:,} of {int(here['n']):,} such tokens differ by more than a factor of 2"
    if by_size:
        sizes = [figures(typical(ratio(part["x"], part["n_graded"]))) for part in (here, body)]
        found = f"The typical relative error of such tokens is {sizes[0]}, that of the others {sizes[1]}; {found}"
    return CauseFinding(
        cause=cause,
        share=share,
        token_share=ratio(here["n"], case.features.n_tokens),
        parameters={"count": far, **size},
        # Whoever takes these tokens for drawn ones may find that training's policy drew them.
        explains=("swapped_columns",),
        headline=PLACES[cause],
        evidence=(f"{found} ({percent(ratio(body['n_far'], body['n']))} of the other tokens).", *_certain(case, parts)),
    )


def _is_far(case: Case, cause: str, here: Mapping[str, float], body: Mapping[str, float]) -> bool:
    """Whether more of these tokens are off by more than a factor of 2 than elsewhere, beyond chance."""
    rate, far = ratio(body["n_far"], body["n"]), int(here["n_far"])
    if far < max(MIN_FAR, FAR_RATE * here["n"], FAR_TIMES * rate * here["n"]):
        return False
    if cause == "first_token":
        # The samples of a prompt have one first distribution, so what switches it (an expert of a mixture) is one event
        # for all of them: it must be off in more prompts than chance gives.  Many prompts share buckets: there it is
        # the rows that tell.
        n_prompts, n_far = (int((count > 0).sum()) for count in case.totals.firsts.T)
        if n_far < MIN_FAR or (n_prompts <= FEW_PROMPTS and poisson_tail(n_far, n_prompts * rate) >= FAR_CHANCE):
            return False
    return poisson_tail(far, here["n"] * ratio(body["n_far"] + 1, body["n"], 1.0)) < FAR_CHANCE


def _is_larger(case: Case, cause: str, here: Mapping[str, float], body: Mapping[str, float]) -> bool:
    """Whether the typical one of these tokens is farther off than elsewhere, however near both are."""
    if min(here["n_graded"], body["n_graded"]) < MIN_TOKENS:
        return False
    means = [ratio(part["x"], part["n_graded"]) for part in (here, body)]
    variance = max(0.0, ratio(here["x2"], here["n_graded"]) - means[0] ** 2)
    # Samples of a prompt have one first distribution.
    n = here["n_graded"]
    n = min(n, float((case.totals.firsts[:, 0] > 0).sum())) if cause == "first_token" else n
    return means[0] - means[1] >= max(SIZE_TIMES, SIZE_Z * sqrt(max(variance, 1e-4) / n))


def _certain(case: Case, parts: tuple[str, ...]) -> list[str]:
    """What tokens of log-prob 0 say: nobody sampled them."""
    here, body = case.tokens_at(*parts), case.tokens_at("body")
    n = here["n_certain"]
    if n < max(MIN_FAR, CERTAIN_TIMES * here["n"] * ratio(body["n_certain"], body["n"])):
        return []
    return [f"{case.context.rollout} is exactly 0 on {int(n):,} of them, as where a framework appended them."]


def poisson_tail(count: int, mean: float) -> float:
    """P(X >= count) of a Poisson X."""
    term = total = exp(-mean)
    for k in range(1, count):
        term *= mean / k
        total += term
    return max(0.0, 1 - total)


@frozen(kw_only=True)
class _Along:
    """Bins of the index with MIN_TOKENS graded tokens: their first index, counts, sums and means of x with errors."""

    first: Floats
    n: Floats
    graded: Floats
    l2: Floats
    mean: Floats
    error: Floats


def places_of(totals: GapTotals) -> tuple[PlaceGap, ...]:
    """The typical |r| by place, of bins with a token."""
    sums = dict(zip(PLACE_SUMS, totals.indexes.T, strict=True))
    return tuple(
        PlaceGap(
            first,
            int(sums["n"][i]),
            typical(float(sums["x"][i] / sums["n_graded"][i])) if sums["n_graded"][i] >= MIN_TOKENS else None,
        )
        for i, first in enumerate(INDEX_EDGES)
        if sums["n"][i] > 0
    )


def position_fault(case: Case) -> CauseFinding | None:
    """position_onset, position_grows or position_decays."""
    sums = dict(zip(PLACE_SUMS, case.totals.indexes.T, strict=True))
    on = sums["n_graded"] >= MIN_TOKENS
    if on.sum() < 2:
        return None
    n, graded, l2, x, x2 = (sums[name][on] for name in ("n", "n_graded", "l2", "x", "x2"))
    mean = ratios(x, graded)
    # Equal values leave no variance: an error of 0 would make any change certain.
    variance = np.maximum(ratios(x2, graded) - mean**2, 1e-4)
    error = ERROR_FACTOR * np.sqrt(ratios(variance, graded))
    along = _Along(first=np.array(INDEX_EDGES, np.float64)[on], n=n, graded=graded, l2=l2, mean=mean, error=error)
    finding = _onset(case, along) or _trend(case, along)
    return finding if finding is not None and finding.share >= MIN_SHARE else None


def _onset(case: Case, along: _Along) -> CauseFinding | None:
    share_before = np.cumsum(along.n) / along.n.sum()
    wide = [k for k in range(1, len(along.n)) if ONSET_SIDE <= share_before[k - 1] <= 1 - ONSET_SIDE]
    if not wide:
        return None
    # z of the jump before each bin k, with the means of x before and after it.
    jumps: list[tuple[float, int, float, float]] = []
    for k in wide:
        means, variances = [], []
        for side in (slice(0, k), slice(k, None)):
            weight = along.graded[side] / along.graded[side].sum()
            means.append(float((weight * along.mean[side]).sum()))
            variances.append(float((weight**2 * along.error[side] ** 2).sum()))
        jump = means[1] - means[0]
        # Where prompts count, rows meet the onset at several places: only jumps after a level stretch are tried.
        if jump >= ONSET_JUMP and np.ptp(along.mean[:k]) <= ONSET_BEFORE * jump:
            jumps.append((jump / sqrt(sum(variances)), k, means[0], means[1]))
    z, k, before, after = max(jumps, default=(0.0, 0, 0.0, 0.0))
    if z < ONSET_Z:
        return None
    index, (early, late) = _onset_index(along, k)
    excess = along.l2[k:].sum() - along.n[k:].sum() * ratio(along.l2[:k].sum(), along.n[:k].sum())
    return CauseFinding(
        cause="position_onset",
        share=case.features.share(float(excess)),
        token_share=ratio(float(along.n[k:].sum()), case.features.n_tokens),
        parameters={"index": index, "size_before": typical(before), "size_after": typical(after)},
        intervals={"index": (early, late)},
        headline=f"everything after about token {index} of a row ({early:.0f} to {late:.0f})",
        evidence=(
            f"The typical relative error is {figures(typical(before))} before it and {figures(typical(after))} after "
            f"it (z = {z:.0f}).",
        ),
    )


def _onset_index(along: _Along, k: int) -> tuple[int, Interval]:
    """Where the jump before bin k stands, with an interval: inside the bin before it or after it, if that one's mean
    lies between the two sides'."""
    ends = [*along.first[1:], next((edge for edge in INDEX_EDGES if edge > along.first[-1]), 2 * along.first[-1])]
    quiet = along.mean[: max(1, k - 1)].mean()
    loud = along.mean[min(k + 1, len(along.mean) - 1) :].mean()
    part = np.clip((along.mean - quiet) / (loud - quiet), 0, 1)
    border = along.first[k]
    before, after = (part[k - 1], border - along.first[k - 1]), (1 - part[k], ends[k] - border)
    early = border - min(1.0, before[0] + PART_ERROR) * before[1]
    late = border + min(1.0, after[0] + PART_ERROR) * after[1]
    return round(border - before[0] * before[1] + after[0] * after[1]), (float(floor(early)), float(ceil(late)))


def _trend(case: Case, along: _Along) -> CauseFinding | None:
    at, weight = np.log2(along.first + 1), along.error**-2
    at = at - (weight * at).sum() / weight.sum()
    sxx = float((weight * at**2).sum())
    slope = ratio(float((weight * at * along.mean).sum()), sxx)
    change, z = slope * float(np.ptp(at)), slope * sqrt(sxx)
    grows, decays = change >= GROWS and z >= GROWS_Z, change <= DECAYS and z <= DECAYS_Z
    if not (grows or decays):
        return None
    middle = float((weight * along.mean).sum() / weight.sum())
    start, end = typical(middle + slope * float(at[0])), typical(middle + slope * float(at[-1]))
    # The mean of l^2 over the quiet third of the tokens, at the row's end or at its start.
    n, l2 = (along.n[::-1], along.l2[::-1]) if decays else (along.n, along.l2)
    last = int(np.searchsorted(np.cumsum(n), n.sum() / 3)) + 1
    quiet = ratio(float(l2[:last].sum()), float(n[:last].sum()))
    excess = float((along.l2 - quiet * along.n).sum())
    return CauseFinding(
        cause="position_grows" if grows else "position_decays",
        share=case.features.share(excess),
        parameters={"size_before": start, "size_after": end},
        headline="an error that grows along the row" if grows else "an error that fades along the row",
        evidence=(
            f"The typical relative error goes from {figures(start)} at the first tokens to {figures(end)} at the last "
            f"(z {abs(z):.0f}).",
        ),
    )


RULES: Mapping[str, Rule] = {
    **{cause: partial(_place_fault, cause=cause) for cause in PLACES},
    **dict.fromkeys(("position_onset", "position_grows", "position_decays"), position_fault),
}
