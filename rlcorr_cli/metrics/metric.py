"""What a metric is: one record with its words and its computation, from which reports, rules, `explain`, the page, the
schema and the manual speak.

Formulas are Python on totals that were added up before, so the same row serves a whole dump, a group, what a plan
keeps, and, for intervals, all bootstrap replicates at once.  NumPy is imported where formulas run, so that `explain`
and `--help` can read the tables without it.  SYMBOLS are the letters that formulas are written in.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rlcorr_cli.frozen import frozen

if TYPE_CHECKING:
    from rlcorr_cli.totals.flat import Floats
    from rlcorr_cli.totals.view import Numbers, Values

MEASURED_ON = ("bf16 engine", "int8 weights", "fp32")
"""The three dumps of sample_data that `measured` is of: one model, sampled by engines of these precisions, and scored
again in fp32.  Metrics of weights are those of the preset token_is."""

GAP = "k3_kl"
"""The metric by which a gap is ranked, followed over steps and held against a baseline."""

Place = Literal["terminal", "figures", "course", "groups", "kept", "diff"]
"""Where a few of many metrics stand: the terminal's table of the divergence, the key figures of a page, the course over
steps, a page's columns of groups, what is kept before and after rejection, and what `diff` tests."""


@frozen(kw_only=True)
class Metric:
    """A metric's definition and its computation.

    formula: in the letters of SYMBOLS.  ideal: its value where the policies are equal; None where there is no such
    value.  meaning: what it tells, in one sentence.  worry: when to look closer, beyond what a default rule on it says.
    can_be_negative: whether it can lie below 0: kl and a reward can, a share cannot.
    is_positive_in_truth: whether the true value cannot, though an estimate can: chi squared is a variance.
    measured: its value in the dumps of MEASURED_ON.  source: whose definition it is; "" where it is plain counting.
    note: how this name departs from the metric of that definition: another's arithmetic, or a part of the tokens.
    value: of totals, in the form that the module of the row says.
    resampled: whether the bootstrap draws it, which takes that it is made of sums alone.
    has_interval: whether, if it is drawn, its interval holds the truth 90 to 98 times in 100 in the designs of prompts
    of tests/benchmarks/coverage.py.  fewest_clusters: from how many clusters on it does so; 0 of all that
    FEWEST_CLUSTERS of `interval` allow.
    shown: the places where it stands -> at which number there, from 1 on.  figure: what it is as a key figure, in a few
    words.
    refuses: what a rule on it says, where it fails: that the policies are too far apart, that the plan's weights are
    not usable, or that no weights of whole sequences are; "" of others.
    """

    name: str
    formula: str
    unit: str
    meaning: str
    value: Callable[[Any], Any]
    ideal: float | None = None
    can_be_negative: bool = False
    is_positive_in_truth: bool = False
    worry: str = ""
    measured: tuple[float, float, float] | None = None
    source: str = ""
    note: str = ""
    resampled: bool = True
    has_interval: bool = True
    fewest_clusters: int = 0
    shown: Mapping[Place, int] = field(default_factory=dict[Place, int])
    figure: str = ""
    refuses: Literal["", "policies", "weights", "sequences"] = ""

    def badness(self, value: float) -> float:
        """What is larger at the worse of two values: the distance from the ideal, of a ratio on a scale of logs."""
        if self.ideal != 1:
            return abs(value)
        if self.highest == 1:
            return -value
        return abs(math.log(value)) if value > 0 else math.inf

    @property
    def lowest(self) -> float:
        """The least value that it can have."""
        return -math.inf if self.can_be_negative else 0.0

    @property
    def highest(self) -> float:
        """The largest value that it can have."""
        is_share = self.unit in ("share", "probability") or (self.unit == "none" and self.ideal == 1)
        return 1.0 if is_share else math.inf

    @property
    def typical(self) -> str:
        """Typical sizes in words: 'bf16 engine 0.0011, int8 weights 0.0039, fp32 6.9e-12'."""
        if self.measured is None:
            return ""
        return ", ".join(f"{engine} {value:.2g}" for engine, value in zip(MEASURED_ON, self.measured, strict=True))


zero_nats = partial(Metric, unit="nats", ideal=0.0)
unit_ratio = partial(Metric, unit="ratio", ideal=1.0)
zero_share = partial(Metric, unit="share", ideal=0.0)
full_share = partial(Metric, unit="share", ideal=1.0)
"""Metrics of nats or a share that are 0 where the policies are equal, and of a ratio or a share that are 1."""


def evaluated(metrics: Iterable[Metric], totals: Any) -> "Values":
    """The metrics' values by name; None where there is nothing to take one of and where float64 does not hold it."""
    from rlcorr_cli.totals.view import finite

    return {metric.name: finite(partial(metric.value, totals)) for metric in metrics}


def draws(metrics: Iterable[Metric], totals: Any) -> "dict[str, Floats]":
    """The metrics made of sums in every replicate, f64[R] by name; not finite where there is no value.

    totals: of all replicates at once.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        return {
            metric.name: np.asarray(metric.value(totals), dtype=np.float64) for metric in metrics if metric.resampled
        }


def std_over_tokens(numbers: "Numbers", first: str, second: str) -> Any:
    """Population standard deviation over tokens from a sum and a sum of squares."""
    from rlcorr_cli.totals.view import variance

    return variance(numbers.per_token(first), numbers.per_token(second)) ** 0.5


SYMBOLS: dict[str, str] = {
    "tok": "mean over all valid tokens of what follows",
    "seq": "mean over all sequences with a valid token",
    "a": "log-prob of the sampled token under the training policy, in nats",
    "b": "log-prob of the same token under the rollout policy",
    "l": "a - b, the token's log-ratio",
    "rho": "e^l, the token's ratio",
    "S": "sum of l over a sequence's valid tokens",
    "g": "S / n, the mean of l over a sequence",
    "d": "-g, which is a sequence's mean b minus its mean a",
    "n": "a sequence's valid tokens",
    "N": "all valid tokens",
    "B": "all sequences with a valid token",
    "w": "importance weight of a token, or of a sequence, before bounds unless the formula says applied",
    "m": "mean w over a sequence's tokens",
    "U": "number of tokens under token weights or token rejections, else of sequences",
    "x": "the rejection's statistic, of a token or of a sequence",
    "low": "the lower bound; for weights without one, 1 / high",
    "high": "the upper bound",
    "veto": "the veto's bound on the ratio of a token",
    "A": "advantage",
    "f": "a plan's applied weight of a token that it keeps, 0 for the others; f_i is its mean over a sequence",
    "q": "(1 - e^a)^2, the size of the sampled token's own part of a softmax score",
    "A_f": "mean of A over sequences, weighted by f_i",
    "A_IS": "mean of A over sequences, weighted by e^S",
    "theta": "log-prob under the current policy, after updates",
    "old": "log-prob under the policy before the updates (a, where there are three policies)",
    "L": "a token's loss under the objective (`rlcorr help objectives`)",
    "z": "the factor of a token's loss in the average: 1 / N, 1 / B or similar",
    "c": "a token's coefficient, the derivative of the whole loss by its theta: z w dL / dtheta",
    "M": "sum of |c| over a sequence",
    "eps_low": "PPO's lower clip, set by --clip-low (0.2)",
    "eps_high": "PPO's upper clip, set by --clip-high (0.2)",
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
