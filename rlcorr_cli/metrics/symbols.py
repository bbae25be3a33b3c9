"""SYMBOLS: what each letter of a formula means, said once for `explain`, the page and the manual."""

import re

SYMBOLS: dict[str, str] = {
    "tok": "mean over all valid tokens of what follows",
    "seq": "mean over all sequences with a valid token",
    "a": "log-prob of the sampled token under the training policy, in nats",
    "b": "log-prob of the same token under the rollout policy",
    "l": "a - b, the token's log-ratio",
    "rho": "e^l, the token's ratio",
    "S": "sum of l over a sequence's valid tokens",
    "g": "S / n, the mean of l over a sequence",
    "d": "-g, a sequence's mean b less its mean a",
    "n": "a sequence's valid tokens",
    "N": "all valid tokens",
    "B": "all sequences with a valid token",
    "w": "importance weight of a token, or of a sequence, before bounds unless the formula says applied",
    "m": "mean w over a sequence's tokens",
    "U": "number of tokens under token weights or token rejections, else of sequences",
    "x": "the rejection's statistic, of a token or of a sequence",
    "low": "the lower bound; of weights without one, 1 / high",
    "high": "the upper bound",
    "veto": "the veto's bound on the ratio of a token",
    "A": "advantage",
    "f": "a plan's applied weight of a token it keeps, 0 of others; f_i its mean over a sequence",
    "q": "(1 - e^a)^2, the size of the sampled token's own part of a softmax score",
    "A_f": "mean of A over sequences, weighted by f_i",
    "A_IS": "mean of A over sequences, weighted by e^S",
    "theta": "log-prob under the current policy, after updates",
    "old": "log-prob under the policy before the updates (a, where there are three policies)",
    "L": "a token's loss under the objective (`rlcorr help objectives`)",
    "z": "what an average divides a token's loss by, as a factor: 1 / N, 1 / B and the like",
    "c": "a token's coefficient, the derivative of the whole loss by its theta: z w dL / dtheta",
    "M": "sum of |c| over a sequence",
    "eps": "PPO's clip, set by --ppo-clip (0.2)",
}

_RESTS_ON: dict[str, str] = {
    "l": "a b",
    "rho": "l",
    "S": "l",
    "g": "S n",
    "d": "a b",
    "m": "w",
    "q": "a",
    "A_f": "A f",
    "A_IS": "A S",
    "z": "L N B",
    "c": "z w L theta",
    "M": "c",
}
"""Symbol -> those that its meaning is said in, which a search cannot tell from words: "a" is an article, too."""

_WORD = re.compile(r"[A-Za-z_]+")


def symbols_in(formula: str) -> dict[str, str]:
    """The symbols that a formula uses, in the table's order, then those that their meanings are said in."""
    words = set(_WORD.findall(formula))
    symbols = [symbol for symbol in SYMBOLS if symbol in words]
    for symbol in symbols:  # which grows meanwhile
        symbols += [name for name in _RESTS_ON.get(symbol, "").split() if name not in symbols]
    return {symbol: SYMBOLS[symbol] for symbol in symbols}
