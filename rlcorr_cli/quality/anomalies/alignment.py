"""Whether the two columns belong to each other: copies, shifted by a token, or swapped.

b = rollout, a = train, l = a - b; sums over the pairs of a sample (see Pairs).
"""

from math import atanh
from typing import TYPE_CHECKING

from rlcorr_cli.quality.anomalies.sample import Pairs, Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

N_COPIED = 16
"""Tokens other than 0.0 that must agree: a true pair differs on all but a few (sampled in bf16, a handful can tie)."""

UNSURE = -0.05
N_UNSURE = 16
"""How many values of each column must lie below UNSURE: surprise is what can be aligned, and one does not do."""

SHIFTED_LEAST = 0.5
SHIFTED_BETTER = 0.3
SHIFTED_SIGMAS = 5.0
"""Real pairs correlate 1.00 in place and 0.06 to 0.18 a token off; another temperature and
top-p (0.7, 0.8) leave 0.95 in place."""

N_SWAPPED_ROWS = 20
SWAPPED_SIGMAS = 5.0
SWAPPED_WITHIN = 2.0
SWAPPED_DISPERSED = 1.5
LIMIT = 20.0
"""|l| is limited to this before exp, as everywhere in rlcorr."""


def bypass_copy(sample: Sample) -> str | None:
    """b = a on every pair, N_COPIED of them other than 0.0."""
    pairs = sample.pairs
    if int((pairs.rollout != 0).sum()) < N_COPIED or bool((pairs.rollout != pairs.train).any()):
        return None
    rollout, train = sample.columns
    return f"{train} equals {rollout} to the last digit on all {pairs.n:,} tokens"


def shifted_columns(sample: Sample) -> str | None:
    """r_k = Pearson correlation of b_t with a_{t+k} within rows; the better of k = -1, +1 against k = 0.

    It must be SHIFTED_LEAST at least, better by SHIFTED_BETTER, and by SHIFTED_SIGMAS of Fisher's z = atanh r, whose
    variance is 1 / (n - 3) and which both correlations carry.
    """
    pairs = sample.pairs
    if min(int((x < UNSURE).sum()) for x in (pairs.rollout, pairs.train)) < N_UNSURE:
        return None
    r = {k: _correlation(pairs, k) for k in (-1, 0, 1)}
    k = max((-1, 1), key=lambda k: r[k])
    if r[k] < SHIFTED_LEAST or r[k] - r[0] < SHIFTED_BETTER:
        return None
    if _fisher(r[k]) - _fisher(r[0]) < SHIFTED_SIGMAS * (2 / (pairs.n - 3)) ** 0.5:
        return None
    rollout, train = sample.columns
    lies = "later" if k == 1 else "earlier"
    return (
        f"{train} lies one token {lies} than {rollout}: their correlation is {r[k]:.2f} there and {r[0]:.2f} in place, "
        f"over {pairs.n:,} tokens"
    )


def _fisher(r: float) -> float:
    """atanh r, kept finite."""
    return atanh(max(-0.999999, min(r, 0.999999)))


def _correlation(pairs: Pairs, k: int) -> float:
    """Pearson's r of b_t and a_{t+k}, both of one row; 0 of a constant."""
    b, a = pairs.rollout, pairs.train
    if k:
        rows = pairs.rows
        same = rows[1:] == rows[:-1]
        b, a = (b[:-1][same], a[1:][same]) if k == 1 else (b[1:][same], a[:-1][same])
    return correlation(b, a)


def correlation(x: "NDArray[np.float64]", y: "NDArray[np.float64]") -> float:
    """Pearson's r; 0 where either has no spread beyond rounding (1e-6 nats), or there are no values."""
    if not len(x) or min(float(x.std()), float(y.std())) < 1e-6:
        return 0.0
    return float(((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std()))


def swapped_columns(sample: Sample) -> str | None:
    """Tokens were drawn from what is named training: mean l > 0, and mean e^-l = 1 within error.

    Drawn from b, E[e^l] = 1 and E[l] = -KL <= 0; drawn from a, E[e^-l] = 1 and E[l] = +KL, so that E[e^l] > 1, for
    e^l - 1 >= l.  Mean l must pass SWAPPED_SIGMAS errors, mean e^-l lie within SWAPPED_WITHIN of 1 (errors: _mean).
    A policy trained on its own samples has E[l] > 0, too, but mostly E[e^-l] < 1.  Where that is 1 by chance, rows
    differ: above 1 where it unlearned, below where it learned.  Drawn from a, E[e^-l] = 1 at every token, whatever came
    before, so tokens scatter as if independent: the error by rows is at most SWAPPED_DISPERSED times that by tokens.

    What it can see: with noise of deviation s on V tokens, E[l] = s^2 / 2 is s sqrt(V) / 2 errors, so V > 100 / s^2:
    40,000 tokens at s = 0.05 (bf16), 10,000 at 0.1 (int8), 1,600 at 0.25; below that it says nothing.  Nor does it see
    columns swapped where one is cut by top-p: no token lies outside, so E[e^-l] < 1.
    """
    import numpy as np

    pairs = sample.pairs
    if np.count_nonzero(np.diff(pairs.offsets)) < N_SWAPPED_ROWS:
        return None
    log_ratio = np.clip(pairs.train - pairs.rollout, -LIMIT, LIMIT)
    (mean, error), (inverse, inverse_error) = _mean(pairs, log_ratio), _mean(pairs, np.expm1(-log_ratio))
    by_tokens = float(np.expm1(-log_ratio).std()) / pairs.n**0.5
    if mean <= SWAPPED_SIGMAS * error or abs(inverse) > SWAPPED_WITHIN * inverse_error:
        return None
    if inverse_error > SWAPPED_DISPERSED * by_tokens:
        return None
    rollout, train = sample.columns
    return (
        f"the mean of {train} - {rollout} is {mean:+.2g} (standard error {error:.1g}) and that of exp({rollout} - "
        f"{train}) is {1 + inverse:.5g} ({inverse_error:.1g}), as if {train} had sampled the {pairs.n:,} tokens"
    )


def _mean(pairs: Pairs, values: "NDArray[np.float64]") -> tuple[float, float]:
    """m = sum x / V and its error, rows being independent: sqrt(B / (B-1) * sum_i (X_i - m n_i)^2) / V."""
    import numpy as np

    lengths = np.diff(pairs.offsets)
    n_rows = int(np.count_nonzero(lengths))
    mean = float(values.mean())
    sums = np.bincount(pairs.rows, values, len(lengths))
    spread = float(np.square(sums - mean * lengths).sum())
    return mean, (n_rows / (n_rows - 1) * spread) ** 0.5 / pairs.n
