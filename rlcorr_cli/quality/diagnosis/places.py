"""Faults at one place of each row: its first token, its last one, the tokens after a masked stretch."""

from math import exp

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding
from rlcorr_cli.quality.diagnosis.numbers import ratio, typical
from rlcorr_cli.quality.diagnosis.wording import percent
from rlcorr_cli.totals.gap import CERTAIN

MIN_SHARE = 0.1
MIN_FAR, FAR_TIMES, FAR_RATE, FAR_CHANCE = 2, 5.0, 0.01, 3e-4
"""Tokens with |l| > ln 2: how many, how many times the body's rate, at what rate, and how rare by chance."""
CERTAIN_TIMES = 5.0
"""Tokens of log-prob 0 are told from this many times the body's rate on."""
PLACES = {
    "first_token": (("first",), "the first token of each row"),
    "last_token": (("last",), "the last token of each row"),
    "mask_boundary": (("gap", "after_gap"), "the four tokens after each masked stretch"),
}


def place_faults(case: Case) -> list[CauseFinding]:
    """Those of PLACES that hold."""
    return [finding for cause in PLACES if (finding := _fault(case, cause)) is not None]


def _fault(case: Case, cause: str) -> CauseFinding | None:
    parts, words = PLACES[cause]
    here, body = case.place(*parts), case.place("body")
    share = case.features.share(here["l2"] - case.features.core**2 * here["n"])
    rate = ratio(body["n_far"], body["n"])
    far = int(here["n_far"])
    if share < MIN_SHARE or far < max(MIN_FAR, FAR_RATE * here["n"], FAR_TIMES * rate * here["n"]):
        return None
    if poisson_tail(far, here["n"] * ratio(body["n_far"] + 1, body["n"], 1.0)) >= FAR_CHANCE:
        return None
    size = typical(ratio(here["x"], here["n_graded"])) if here["n_graded"] else None
    return CauseFinding(
        cause=cause,
        share=share,
        token_share=ratio(here["n"], case.features.n_tokens),
        parameters={"count": far, **({} if size is None else {"size": size})},
        # Whoever takes these tokens for drawn ones may find that training's policy drew them.
        explains=("swapped_columns",),
        headline=words,
        evidence=(
            f"{far:,} of {int(here['n']):,} such tokens are off by more than a factor of 2 ({percent(rate)} of the "
            "others).",
            *_certain(case, parts),
        ),
        advice=CAUSES[cause].advice,
    )


def _certain(case: Case, parts: tuple[str, ...]) -> list[str]:
    """What tokens of log-prob 0 say: nobody sampled them."""
    n, body = (case.totals.sums(*names)["n"] for names in (parts, ("body",)))
    if n[CERTAIN] < CERTAIN_TIMES * n.sum() * ratio(float(body[CERTAIN]), float(body.sum())) or n[CERTAIN] < MIN_FAR:
        return []
    return [f"{case.context.rollout} is exactly 0 on {int(n[CERTAIN]):,} of them, as where a framework appended them."]


def poisson_tail(count: int, mean: float) -> float:
    """P(X >= count) of a Poisson X."""
    term = total = exp(-mean)
    for k in range(1, count):
        term *= mean / k
        total += term
    return max(0.0, 1 - total)
