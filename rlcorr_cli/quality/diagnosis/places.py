"""Faults at one place of each row: its first token, its last one, the tokens after a masked stretch."""

from math import exp

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding
from rlcorr_cli.quality.diagnosis.numbers import ratio, typical
from rlcorr_cli.quality.diagnosis.wording import figures, percent

MIN_SHARE = 0.1
MIN_FAR, FAR_TIMES, FAR_RATE, FAR_CHANCE = 2, 5.0, 0.01, 3e-4
"""Tokens with |l| > ln 2: how many, how many times the body's rate, at what rate, and how rare by chance."""
PLACES = {
    "first_token": (("first",), "the first token of each row"),
    "last_token": (("last",), "the last token of each row"),
    "mask_boundary": (("gap", "after_gap"), "the four tokens after each masked stretch"),
}
ADVICE = {
    "first_token": "Compare prompts token by token: training conditions on another end of the prompt.",
    "last_token": "Check which end token's id is scored; an appended end token has no log-prob in rollout: mask it.",
    "mask_boundary": "Pass token ids, not text, between turns (tokens in, tokens out): tool output is tokenised anew.",
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
    size, usual = (typical(ratio(at["x"], at["n_graded"])) if at["n_graded"] else None for at in (here, body))
    sizes = "" if size is None else f"; the typical relative error is {figures(size)}"
    sizes += "" if size is None or usual is None else f" ({figures(usual)} elsewhere)"
    return CauseFinding(
        cause=cause,
        share=share,
        token_share=ratio(here["n"], case.features.n_tokens),
        parameters={"count": far, **({} if size is None else {"size": size})},
        headline=words,
        evidence=(
            f"{far:,} of {int(here['n']):,} such tokens are off by more than a factor of 2 ({percent(rate)} elsewhere)"
            f"{sizes}.",
        ),
        advice=ADVICE[cause],
    )


def poisson_tail(count: int, mean: float) -> float:
    """P(X >= count) of a Poisson X."""
    term = total = exp(-mean)
    for k in range(1, count):
        term *= mean / k
        total += term
    return max(0.0, 1 - total)
