"""What a file as a whole looks like when it was written wrongly, with the numbers that say so.

An anomaly is a warning with evidence: it changes no number and refuses no file.  Each is sought in the first rows of
a file (`Sample`), and is a sentence where it holds; its thresholds stand here, set so that real clean dumps raise none.
Here b = rollout, a = train, l = a - b, and sums run over the pairs of a sample (`Pairs`).

A single exact 0.0 is no sign of a token that no policy scored: probability 1 rounds to 0, on 14 to 22% of real tokens,
and up to eight of them in a row in a thousand.  So only a run of N_RUN counts, and one that the other column
contradicts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import atanh, isfinite, log

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.causes.table import ANOMALIES
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.bad_rows import ABOVE_ZERO
from rlcorr_cli.reading.peek import Pairs, Sample

UNSURE = -0.05
"""A policy was not sure of a token below this."""

N_COPIED = 16
"""Tokens other than 0.0 that must agree: a true pair differs on all but a few (sampled in bf16, a handful can tie)."""

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
SWAPPED_ERROR = 0.05
LIMIT = 20.0
"""|l| is limited to this before exp, as everywhere in rlcorr."""

N_RUN = 8
PADDED_ROWS = 0.1
PROMPT_ROWS = 0.5

UNSURE_SHARE = 2
SURPRISED, SURPRISED_SHARE = -1.0, 8
"""A run is contradicted where one in UNSURE_SHARE of its tokens lies below UNSURE in the other column, and one in
SURPRISED_SHARE below SURPRISED.  Top-p gives exact zeros, too, but only where the raw log-prob is above log p; a stale
policy is surprised now and then, but not on half of what was certain."""

N_PROBABLE = 8
N_SCALED = 64
SCALED_CORRELATION = 0.99
SCALED_WITHIN = 0.02
"""Noise leaves the slope within 0.4% of 1 on real pairs, four updates within 0.6%; another temperature bends the
line: T = 0.7 gives a correlation of 0.976 and sd(a) / sd(b) = 0.85, T = 1.44 gives 0.990 and 1.31."""

FACTORS = {log(10): ("10", 0), 1 / log(10): ("10", 1), log(2): ("2", 0), 1 / log(2): ("2", 1)}
"""Slope of train on rollout -> the base, and whose it is: 0 rollout's, 1 train's."""


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
    b, a, same = pairs.rollout, pairs.train, pairs.rows[1:] == pairs.rows[:-1]
    r = {0: correlation(b, a), 1: correlation(b[:-1][same], a[1:][same]), -1: correlation(b[1:][same], a[:-1][same])}
    k = 1 if r[1] > r[-1] else -1
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


def correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
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
    pairs = sample.pairs
    if np.count_nonzero(np.diff(pairs.offsets)) < N_SWAPPED_ROWS:
        return None
    log_ratio = np.clip(pairs.train - pairs.rollout, -LIMIT, LIMIT)
    (mean, error), (inverse, inverse_error) = _mean(pairs, log_ratio), _mean(pairs, np.expm1(-log_ratio))
    by_tokens = float(np.expm1(-log_ratio).std()) / pairs.n**0.5
    if mean <= SWAPPED_SIGMAS * error or abs(inverse) > SWAPPED_WITHIN * inverse_error:
        return None
    if inverse_error > min(SWAPPED_DISPERSED * by_tokens, SWAPPED_ERROR * (1 + inverse)):
        return None
    rollout, train = sample.columns
    return (
        f"the mean of {train} - {rollout} is {mean:+.2g} (standard error {error:.1g}) and that of exp({rollout} - "
        f"{train}) is {1 + inverse:.5g} ({inverse_error:.1g}), as if {train} had sampled the {pairs.n:,} tokens"
    )


def _mean(pairs: Pairs, values: NDArray[np.float64]) -> tuple[float, float]:
    """m = sum x / V and its error, rows being independent: sqrt(B / (B-1) * sum_i (X_i - m n_i)^2) / V."""
    lengths = np.diff(pairs.offsets)
    n_rows = int(np.count_nonzero(lengths))
    mean = float(values.mean())
    sums = np.bincount(pairs.rows, values, len(lengths))
    spread = float(np.square(sums - mean * lengths).sum())
    return mean, (n_rows / (n_rows - 1) * spread) ** 0.5 / pairs.n


def unmasked_padding(sample: Sample) -> str | None:
    """All rows are of one length, and PADDED_ROWS of them (two or more) start or end with N_RUN values of padding.

    Padding is one value in both columns and in all such rows, which hold other tokens, too.  Where such runs are as
    common inside rows, they are no padding: a policy that repeats itself is sure of it in both columns.
    """
    pairs, lengths = sample.pairs, np.diff(sample.offsets)
    if len(lengths) < 2 or lengths.min() != lengths.max() or not pairs.n:
        return None
    for ends in (True, False):
        pad, rows, inside, mean = _padded(pairs, ends)
        if rows >= max(2, PADDED_ROWS * len(lengths)) and 2 * inside <= rows:
            where = "end" if ends else "start"
            return (
                f"all {len(lengths):,} rows have {lengths[0]:,} tokens, and {rows:,} of them {where} with {pad:g} in "
                f"{sample.columns[0]} and {sample.columns[1]} alike, {mean:.0f} tokens on average"
            )
    return None


def _padded(pairs: Pairs, ends: bool) -> tuple[float, int, int, float]:
    """The commonest value that rows end (start) with in both columns; rows with a long run of it there, runs of it
    inside rows, and the mean length of the former."""
    filled = np.diff(pairs.offsets) > 0
    at = (pairs.offsets[1:] - 1 if ends else pairs.offsets[:-1])[filled]
    values, counts = np.unique(pairs.rollout[at][pairs.rollout[at] == pairs.train[at]], return_counts=True)
    if not len(values):
        return 0.0, 0, 0, 0.0
    pad = float(values[counts.argmax()])
    start, end = _long(pairs, (pairs.rollout == pad) & (pairs.train == pad))
    starts, stops = pairs.borders[start], pairs.borders[end]
    outer = stops & ~starts if ends else starts & ~stops
    inside = int((~starts & ~stops).sum())
    return pad, int(outer.sum()), inside, float((end - start)[outer].mean()) if outer.any() else 0.0


def unmasked_prompt(sample: Sample) -> str | None:
    """PROMPT_ROWS of the rows start with N_RUN zeros or more: in the rollout column, which the other contradicts, or in
    both columns, where such runs are less than half as common inside rows."""
    of_rollout = _prompt_of_one_column(sample)
    n_rows = int(np.count_nonzero(np.diff(sample.pairs.offsets)))
    if of_rollout or not n_rows:
        return of_rollout
    pad, rows, inside, mean = _padded(sample.pairs, ends=False)
    if pad or rows < max(2, PROMPT_ROWS * n_rows) or 2 * inside > rows or unmasked_padding(sample):
        return None
    rollout, train = sample.columns
    return f"{rows:,} of {n_rows:,} rows start with 0.0 in {rollout} and {train} alike, {mean:.0f} tokens on average"


def _prompt_of_one_column(sample: Sample) -> str | None:
    """Of rows that start with N_RUN exact zeros or more on which the other column is unsure and surprised."""
    pairs = sample.pairs
    start, end = _long(pairs, pairs.rollout == 0)
    n, of_train = end - start, (pairs.train < UNSURE, pairs.train < SURPRISED, pairs.train)
    totals = (np.append(0, np.cumsum(values, dtype=np.float64)) for values in of_train)
    unsure, surprised, total = (of[end] - of[start] for of in totals)
    hit = pairs.borders[start] & (UNSURE_SHARE * unsure >= n) & (SURPRISED_SHARE * surprised >= n)
    n_rows = int(np.count_nonzero(np.diff(pairs.offsets)))
    if not hit.any() or hit.sum() < PROMPT_ROWS * n_rows:
        return None
    rollout, train = sample.columns
    return (
        f"{int(hit.sum()):,} of {n_rows:,} rows start with {rollout} 0.0, {n[hit].mean():.0f} tokens on average, "
        f"where {train} has a mean of {total[hit].sum() / n[hit].sum():.2f}"
    )


def _long(pairs: Pairs, hit: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    start, end = pairs.runs(hit)
    long = end - start >= N_RUN
    return start[long], end[long]


def probabilities(sample: Sample) -> str | None:
    """A column lies in [0, 1], and N_PROBABLE values or more, most of those other than 0.0, lie above ABOVE_ZERO."""
    ranges: list[str] = []
    for name, values in zip(sample.columns, (sample.pairs.rollout, sample.pairs.train), strict=True):
        above = int((values > ABOVE_ZERO).sum())
        if above < max(N_PROBABLE, int((values != 0).sum()) / 2):
            continue
        low, high = float(values.min()), float(values.max())
        if low >= -ABOVE_ZERO and high <= 1 + ABOVE_ZERO:
            ranges.append(f"{name} lies between {low:.3g} and {high:.3g}")
    return f"{' and '.join(ranges)} on all {sample.pairs.n:,} tokens" if ranges else None


def other_base(sample: Sample) -> str | None:
    """train = c rollout, with c within SCALED_WITHIN of ln 10, ln 2 or one over them, and both nearly on that line.

    N_SCALED pairs, r >= SCALED_CORRELATION, and two slopes that agree only on a line through 0: sd(a) / sd(b), which
    noise in either column moves alike, and sum a b / sum b^2.  Both columns in one base look like natural logarithms.
    """
    rollout, train = sample.pairs.rollout, sample.pairs.train
    if len(rollout) < N_SCALED or correlation(rollout, train) < SCALED_CORRELATION:
        return None
    slope, through_zero = float(train.std() / rollout.std()), float((train @ rollout) / (rollout @ rollout))
    for factor, (base, whose) in FACTORS.items():
        if max(abs(slope / factor - 1), abs(through_zero / factor - 1)) <= SCALED_WITHIN:
            slopes = f"{sample.columns[1]} is {slope:.4f} times {sample.columns[0]} over {len(rollout):,} tokens"
            return f"{slopes}, as if {sample.columns[whose]} were in base {base} (factor {factor:.4f})"
    return None


def steps_out_of_order(file: "FileSigns", before: "FileSigns | None") -> str | None:
    """max(steps of this file's sample) < min(steps of the file before); a file without steps is no evidence.

    Ranges that overlap are no evidence (several ranks of one step), nor are steps that fall within a sample: such rows
    were shuffled, and files of shuffled rows have no order.
    """
    if before is None or file.steps is None or before.steps is None or file.steps[1] >= before.steps[0]:
        return None
    return f"its rows start at step {file.steps[0]:.15g}, after step {before.steps[1]:.15g} in {before.path}"


def _range(sample: Sample) -> tuple[float, float] | None:
    first, last = sample.step
    if first is None or last is None or not (isfinite(first) and isfinite(last)) or first > last:
        return None
    return first, last


OF_ONE_FILE: Mapping[str, Callable[[Sample], str | None]] = {
    "bypass_copy": bypass_copy,
    "shifted_columns": shifted_columns,
    "unmasked_padding": unmasked_padding,
    "unmasked_prompt": unmasked_prompt,
    "probabilities": probabilities,
    "other_base": other_base,
    "swapped_columns": swapped_columns,
}
"""Of ANOMALIES, those that a file shows by itself -> their tests: a sentence with the numbers, or None."""


@frozen
class FileSigns:
    """What one file shows by itself.  evidence: anomaly -> a sentence with numbers; steps: the range of its rows."""

    path: str
    evidence: Mapping[str, str]
    steps: tuple[float, float] | None


def signs(sample: Sample) -> FileSigns:
    """Test the sample of a file for every anomaly that a file shows by itself."""
    evidence = {name: sentence for name, test in OF_ONE_FILE.items() if (sentence := test(sample)) is not None}
    return FileSigns(sample.path, evidence, _range(sample))


def find_anomalies(files: Iterable[FileSigns]) -> tuple[AnomalyFinding, ...]:
    """One finding for each anomaly of any file, in the order of ANOMALIES.  files: in the order of the dump."""
    first: dict[str, tuple[str, str]] = {}
    n_files: Counter[str] = Counter()
    before: FileSigns | None = None
    for file in files:
        evidence = dict(file.evidence)
        if (late := steps_out_of_order(file, before)) is not None:
            evidence["steps_out_of_order"] = late
        for name, sentence in evidence.items():
            first.setdefault(name, (file.path, sentence))
            n_files[name] += 1
        before = file
    return tuple(
        AnomalyFinding(name=row.name, path=path, evidence=evidence, fix=row.advice, n_files=n_files[row.name])
        for row in ANOMALIES
        if row.name in first
        for path, evidence in (first[row.name],)
    )
