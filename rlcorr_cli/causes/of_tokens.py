"""What columns of each token tell beside its log-probs: its id, the kept set of a sampler, the version of the weights.

A sampler with top-p, top-k or min-p keeps a set of tokens and draws from it.  Where the size of that set is recorded,
tokens that were the only one kept tell whether log-probs are over the kept set: they are 0 there.  Where the log-probs
of all kept tokens are recorded, the gap over the sets follows.

By token ids changed weights move d alike in all prompts, a penalty moves repeated tokens, what a token loses beyond V
times its own probability was not cut from a vocabulary of V tokens, and tokens that share their whole prefix give the
ratio of two temperatures without any unknown.  Samples of a prompt begin alike, and where two of them part, both tokens
were drawn from one distribution.  The normaliser falls out of the difference of their log-probs: a1 - a2 = T (b1 - b2),
with T the temperature of rollout over that of training.  That takes prompts, too.
"""

from collections.abc import Iterator
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import Fact, HeadGap, KeptGap, VersionGap
from rlcorr_cli.causes.gap import Vocabulary
from rlcorr_cli.causes.gap_sums import ID_LIMIT
from rlcorr_cli.causes.numbers import once, ratio, ratios
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.totals.flat import Floats, Ints, starts_of, unique_values
from rlcorr_cli.totals.row_sample import RowSample

EQUAL_TO_0 = 1e-4
"""A log-prob this near 0 is of a token that nothing else could be drawn beside."""
MOSTLY = 0.99
COPIES = "copies"
FACTS = ("kept_sets", "heads", COPIES)
"""Names of the facts that `analyze` shows."""
MIN_SINGLES = 20
MOST_VERSIONS = 16


@frozen
class _Tokens:
    """Of the valid tokens of a sample: log-probs under both policies, and a number of each, -1 where it is unknown."""

    rollout: NDArray[np.float64]
    train: NDArray[np.float64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, sample: RowSample, numbers: NDArray[np.int64]) -> "_Tokens":
        """Those whose number is known and that the rollout scored."""
        valid = numbers if sample.valid is None else numbers[sample.valid]
        known = valid >= 0
        if sample.unscored is not None:
            known &= ~sample.unscored
        b, a = (column[known].astype(np.float64) for column in (sample.rollout, sample.train))
        return cls(b, a, valid[known])

    @property
    def over_sets(self) -> tuple[bool, bool]:
        """Whether each column is over the kept sets, whose sizes the numbers are: 0 where a set has one token."""
        alone = self.numbers == 1
        if alone.sum() < MIN_SINGLES:
            return False, False
        rollout, train = (float((each[alone] > -EQUAL_TO_0).mean()) >= MOSTLY for each in (self.rollout, self.train))
        return rollout, train


def kept_set_facts(sample: RowSample, rollout: str, train: str, kept: KeptGap | None) -> tuple[Fact, ...]:
    """How many tokens were the only one that their sampler kept, whether each column is over the kept sets, and the gap
    of the other tokens; then the gap over the kept sets.  Nothing of what the dump does not tell, or of too few."""
    tokens = None if sample.kept_sizes is None else _Tokens.of(sample, sample.kept_sizes)
    sentences = [] if tokens is None else _single_sentences(tokens, rollout, train, has_sets=kept is not None)
    if kept is not None:
        of_k3 = "" if kept.k3 is None else f"k3_kl is {figures(kept.k3)} and "
        sentences.append(
            f"In the kept sets {rollout} has {percent(kept.rollout_mass)} of its probability and {train} "
            f"{percent(kept.train_mass)}, on average; renormalised over them, {of_k3}the sd of log-ratio is "
            f"{figures(kept.sd)} ({count_noun(kept.tokens, 'token')})."
        )
    return (Fact("kept_sets", " ".join(sentences)),) if sentences else ()


def _single_sentences(tokens: _Tokens, rollout: str, train: str, *, has_sets: bool) -> list[str]:
    """What tokens tell that were the only one kept.  has_sets: whether the gap over the sets is known, too."""
    alone = tokens.numbers == 1
    if alone.sum() < MIN_SINGLES:
        return []
    over = tokens.over_sets
    first = f"{percent(float(alone.mean()))} of the tokens are the only one that their sampler kept"
    others = tokens.train[~alone] - tokens.rollout[~alone]
    mean_k3 = float(k3(others).mean()) if len(others) else 0.0
    if all(over):
        return [
            f"{first}: both columns are over the kept sets, and 0 there. Over the other tokens k3_kl is "
            f"{figures(mean_k3)}, and the sd of log-ratio {figures(float(others.std()) if len(others) else 0.0)}."
        ]
    if not any(over):
        return [f"{first}, but neither column is over the kept sets: both are below 0 there."]
    inside, outside = (rollout, train) if over[0] else (train, rollout)
    mean = float((tokens.train if over[0] else tokens.rollout)[alone].mean())
    sentence = f"{first}: {inside} is over the kept sets and 0 there, {outside} is not, and {figures(mean)} on average."
    remedy = f"Subtract from {outside} the log of the kept tokens' probabilities, summed."
    return [sentence] if has_sets else [sentence, remedy]


@np.errstate(over="ignore", invalid="ignore")
def kept_gap(sample: RowSample) -> KeptGap | None:
    """The gap over the kept sets: a - ln sum_K p and b - ln sum_K q of each token; None where no token's set is known
    on both sides, or both columns are over the sets already.

    A column that is over the sets, as its tokens of sets of one tell, is taken as it is.  A token that has more
    probability than its set is in no such set, and left out.
    """
    if sample.kept_sizes is None:
        return None
    over = _Tokens.of(sample, sample.kept_sizes).over_sets
    if all(over):
        return None
    kept = np.ones(int(sample.n_valid.sum()), np.bool_) if sample.unscored is None else ~sample.unscored
    columns, masses = list[Floats](), list[Floats]()
    for column, of_set, is_over in zip(
        (sample.rollout, sample.train), (sample.kept_by_rollout, sample.kept_by_train), over, strict=True
    ):
        values = column.astype(np.float64)
        if is_over:
            log_mass = np.zeros_like(values)
        elif of_set is None:
            return None
        else:
            log_mass = of_set if sample.valid is None else of_set[sample.valid]
        kept &= np.isfinite(log_mass) & (values <= log_mass + EQUAL_TO_0)
        columns.append(np.minimum(values - log_mass, 0.0))
        masses.append(log_mass)
    if not kept.any():
        return None
    rollout, train = (values[kept] for values in columns)
    in_rollout, in_train = (float(np.exp(each[kept]).mean()) for each in masses)
    return KeptGap(
        tokens=int(kept.sum()),
        k3=_mean_k3(train - rollout),
        sd=float((train - rollout).std()),
        rollout_mass=in_rollout,
        train_mass=in_train,
    )


@np.errstate(over="ignore")
def _mean_k3(log_ratio: Floats) -> float | None:
    """None where float64 does not hold it."""
    mean = float(k3(log_ratio).mean())
    return mean if np.isfinite(mean) else None


@np.errstate(over="ignore")
def head_gap(sample: RowSample) -> HeadGap | None:
    """Over the heads of a sample's valid tokens; None where no token has any."""
    if sample.head_tv is None or sample.head_kl is None:
        return None
    tv, kl = (each if sample.valid is None else each[sample.valid] for each in (sample.head_tv, sample.head_kl))
    known = np.isfinite(tv) & np.isfinite(kl)
    if sample.unscored is not None:
        known &= ~sample.unscored
    if not known.any():
        return None
    log_ratio = sample.train[known].astype(np.float64) - sample.rollout[known]
    return HeadGap(int(known.sum()), float(tv[known].mean()), float(kl[known].mean()), _mean_k3(log_ratio))


def head_facts(head: HeadGap | None) -> tuple[Fact, ...]:
    """The distances in a sentence."""
    if head is None:
        return ()
    of_sampled = "" if head.k3 is None else f"; the k3 of the tokens sampled there is {figures(head.k3)}"
    sentence = (
        f"Over the top-k heads that both sides recorded, and all other tokens as one, the total variation is "
        f"{figures(head.tv)} and KL(rollout || training) {figures(head.kl)} nats a token, without sampling noise "
        f"({count_noun(head.tokens, 'token')}{of_sampled})."
    )
    return (Fact("heads", sentence),)


@np.errstate(over="ignore")
def version_gaps(sample: RowSample) -> tuple[VersionGap, ...]:
    """The gap by how many versions behind its row's newest weights each token was sampled, the newest first; nothing
    where the dump does not tell, or no row has tokens of two versions."""
    if sample.versions is None:
        return ()
    versions = np.where(sample.versions >= 0, sample.versions, -1)
    if not len(versions):
        return ()
    newest = np.repeat(np.maximum.reduceat(versions, starts_of(sample.n_tokens)), sample.n_tokens)
    tokens = _Tokens.of(sample, np.where(versions >= 0, newest - versions, -1))
    behind = np.minimum(tokens.numbers, MOST_VERSIONS)
    if not behind.any():
        return ()
    log_ratio = tokens.train - tokens.rollout
    squares, whole = log_ratio**2, float((log_ratio**2).sum())
    return tuple(
        VersionGap(
            behind=int(at),
            tokens=int(on.sum()),
            token_share=float(on.mean()),
            k3=_mean_k3(log_ratio[on]),
            gap=float(squares[on].sum()) / whole if whole else 0.0,
        )
        for at, on in ((at, behind == at) for at in unique_values(behind))
    )


MIN_PAIRS = 30
"""An id counts from this many pairs of its tokens in different buckets of prompts."""
MIN_BUCKETS, MIN_TOKENS = 4, 300
BY_TOKEN, BY_TOKEN_ERRORS = 0.03, 4.0
"""From the first on omega^2 is judged by its error; less of it by that of ids that are louder than others, too.
Measured: fp8 caches, packed rows, dropout and 4-bit weights 8 of these and more."""
WITHOUT_ONE, WITHOUT_ONE_SHARE = 0.01, 1 / 3
"""What omega^2 must keep without any one bucket, or which share of it where that is less.  The error above takes tokens
for independent; on random rows of dumps of noise, 16 to 32 of them, it convicts one in 40, and nearly always because of
a single prompt."""
MOST_ERRORS = 2.0
MIN_REPEATS, MIN_BINS = 10, 3

LARGEST_VOCABULARY = 1 << 18
"""V where a dump has no ids: no model in use has more tokens."""
MIN_BEYOND, BEYOND_SHARE, BEYOND_GAINED = 10, 0.001, 2.0
"""Measured on six models: padding 12 tokens or more, .0025 of all, twice as many as gain so much; cuts alone at most 3,
.0006 of all."""

LONGEST = 64
"""Prefixes are compared up to this many tokens."""
MIN_SHARING, MIN_PREFIXES = 20, 5
ROUNDING, MOST_OVER = 0.05, 0.1
"""Of the probability that a prefix's tokens have together, and the share of tokens whose prefixes may exceed 1 by more:
rows whose columns do not belong together make some."""
FAR_OFF = 5.0
"""A difference so many typical ones off the line is of a row whose columns do not belong together, or of a flip."""
MAD_OF_NORMAL = 0.6745
ROUNDS = 6
"""Such tokens bend the line that they are measured from, so it is drawn again without them until none is left."""


@frozen(kw_only=True)
class Beyond:
    """Tokens of a vocabulary of V that lose (a < b) or gain more than V times their own probability, of n.

    A cut rules out V tokens at most, each of them less likely in training than one that it keeps, so a kept token loses
    1 - e^l <= V e^a.  Rows of padding have a mass that no token bounds, and noise loses and gains alike.
    """

    lost: int
    gained: int
    n: int

    @property
    def holds(self) -> bool:
        """Whether more is lost than a cut can take."""
        return self.lost >= max(MIN_BEYOND, BEYOND_SHARE * self.n, BEYOND_GAINED * self.gained)


@once
def beyond_vocabulary(sample: RowSample) -> Beyond:
    """See Beyond; V is the largest id and one."""
    b, a = sample.rollout.astype(np.float64), sample.train.astype(np.float64)
    ids = sample.token_ids
    size = LARGEST_VOCABULARY if ids is None or not len(ids) else int(ids.max()) + 1
    drawn = (b < 0) & (a < 0)
    if sample.unscored is not None:
        drawn &= ~sample.unscored
    b, a = b[drawn], a[drawn]
    far = np.abs(np.expm1(np.minimum(a - b, 1.0))) > size * np.exp(a)
    lost = int((far & (a < b)).sum())
    return Beyond(lost=lost, gained=int(far.sum()) - lost, n=len(a))


@frozen(kw_only=True)
class ByToken:
    """omega2: the share of d's variance that goes with the token; error: its own, if ids did not matter, and
    loud_error: if they mattered by how loud they are alone, so that a bucket's sum of d has either sign.
    least: the smallest omega2 without one of the buckets."""

    omega2: float
    error: float
    loud_error: float
    least: float
    buckets: int
    tokens: int

    @property
    def holds(self) -> bool:
        """Whether d goes with the token beyond chance."""
        enough = self.buckets >= MIN_BUCKETS and self.tokens >= MIN_TOKENS
        clear = self.omega2 >= BY_TOKEN_ERRORS * (self.error if self.omega2 >= BY_TOKEN else self.loud_error)
        return enough and clear and self.least >= min(WITHOUT_ONE, WITHOUT_ONE_SHARE * self.omega2)

    @property
    def most(self) -> float:
        """The largest omega2 that the tokens leave room for, MOST_ERRORS errors up; all of it with few prompts."""
        return max(0.0, self.omega2 + MOST_ERRORS * self.error) if self.buckets >= MIN_BUCKETS else 1.0


@frozen
class Repetition:
    """difference: mean d of repeated tokens less that of first ones; eta2: its share of d's variance within bins."""

    difference: float
    eta2: float


def by_token(vocabulary: Vocabulary) -> ByToken:
    """omega^2 from products across buckets of prompts only, because samples of one prompt share prefixes."""
    n, d = vocabulary.by_id[:, :, 0], vocabulary.by_id[:, :, 1]
    n_all, sum_d, sum_d2 = map(float, vocabulary.spread)
    mean = ratio(sum_d, n_all)
    variance = max(0.0, ratio(sum_d2, n_all) - mean**2)
    used = n.sum(axis=1) > 0
    # Few ids count, and without a bucket none more does.
    on = _pairs(n) >= MIN_PAIRS
    n, d = n[:, on], d[:, on]
    shifted = d - n * mean
    weight, pairs = _weights(n)
    tokens = float(weight.sum())
    squares = shifted**2
    products = squares.sum(axis=0) ** 2 - (squares**2).sum(axis=0)
    return ByToken(
        omega2=_omega2(n, shifted, variance),
        error=ratio(sqrt(2 * float((weight**2 / pairs).sum())), tokens),
        loud_error=ratio(sqrt(2 * float(((weight / pairs) ** 2 * products).sum())), tokens * variance, inf),
        least=min(
            (_omega2(np.delete(n, k, 0), np.delete(shifted, k, 0), variance) for k in np.flatnonzero(used)), default=0.0
        ),
        buckets=int(used.sum()),
        tokens=int(tokens),
    )


def _omega2(n: Floats, shifted: Floats, variance: float) -> float:
    weight, pairs = _weights(n)
    products = (shifted.sum(axis=0) ** 2 - (shifted**2).sum(axis=0))[_pairs(n) >= MIN_PAIRS]
    return ratio(float((weight * products / pairs).sum()), float(weight.sum()) * variance)


def _weights(n: Floats) -> tuple[Floats, Floats]:
    """Of ids with MIN_PAIRS: their tokens, and their pairs of tokens in different buckets."""
    pairs = _pairs(n)
    on = pairs >= MIN_PAIRS
    return n.sum(axis=0)[on], pairs[on]


def _pairs(n: Floats) -> Floats:
    return n.sum(axis=0) ** 2 - (n**2).sum(axis=0)


def repetition(vocabulary: Vocabulary) -> Repetition | None:
    """None where fewer than MIN_BINS bins of u have MIN_REPEATS of both kinds."""
    repeats = vocabulary.repeats
    on = (repeats[:, :, 0] >= MIN_REPEATS).all(axis=1)
    if on.sum() < MIN_BINS:
        return None
    n, d, d2 = np.moveaxis(repeats[on], 2, 0)
    first, again = n.T
    weight = first * again / (first + again)
    means = ratios(d, n)
    difference = float((weight * (means[:, 1] - means[:, 0])).sum() / weight.sum())
    bins, sums = n.sum(axis=1), d.sum(axis=1)
    within = float((d2.sum(axis=1) - sums**2 / bins).sum())
    return Repetition(difference, min(1.0, ratio(difference**2 * float(weight.sum()), within)))


@frozen(kw_only=True)
class SharedPrefixes:
    """ratio: T of rollout over that of training, with its error; of so many tokens that differ.  r2: what it explains
    of the differences between the two columns, which a curve explains less of."""

    ratio: float
    error: float
    r2: float
    tokens: int


@once
def shared_prefixes(sample: RowSample) -> SharedPrefixes | None:
    """None where too few tokens share their prefix, or a dump has no token ids or no prompts; and where different
    tokens of a prefix have probabilities that sum to more than 1, so that what is called a prompt is none."""
    pairs = [_differences(*group) for group in _sharing(sample)]
    if not pairs:
        return None
    b, a, prefix, mass = (np.concatenate(column) for column in zip(*pairs, strict=True))
    if (mass > 1 + ROUNDING).mean() > MOST_OVER:
        return None
    kept = np.ones(len(b), np.bool_)
    slope = error = r2 = 0.0
    n_prefixes = 0
    for _ in range(ROUNDS):
        b, a, prefix = b[kept], a[kept], prefix[kept]
        n_prefixes = len(unique_values(prefix))
        squares = float((b * b).sum())
        if len(b) < MIN_SHARING or n_prefixes < MIN_PREFIXES or squares == 0:
            return None
        slope = float((a * b).sum()) / squares
        off = a - slope * b
        error = sqrt(float((off * off).sum()) / max(1, len(b) - n_prefixes - 1) / squares)
        r2 = 1 - float((off * off).sum()) / max(1e-30, float(((a - b) ** 2).sum()))
        kept = np.abs(off) <= FAR_OFF * max(1e-9, float(np.median(np.abs(off))) / MAD_OF_NORMAL)
    return SharedPrefixes(ratio=slope, error=error, r2=r2, tokens=len(b))


def scored_again(sample: RowSample) -> tuple[float, float] | None:
    """How far the log-odds of a token lie, typically, from those of the same token after the same prefix in another
    row, in the rollout's column and in training's: what a column depends on beside the prefix.  sqrt(mean(x^2) / 2), x
    held to ID_LIMIT; None of fewer than MIN_SHARING such pairs."""
    off = [np.zeros((2, 0))]
    for b, a, ids, prefix in _sharing(sample):
        order = np.lexsort((ids, prefix))
        same = (prefix[order][1:] == prefix[order][:-1]) & (ids[order][1:] == ids[order][:-1])
        log_odds = np.stack([b, a])[:, order] - np.log(-np.expm1([b, a]))[:, order]
        off.append(np.diff(log_odds)[:, same])
    x = np.concatenate(off, axis=1).clip(-ID_LIMIT, ID_LIMIT)
    if x.shape[1] < MIN_SHARING:
        return None
    rollout, train = np.sqrt(np.square(x).mean(axis=1) / 2).tolist()
    return rollout, train


def _sharing(sample: RowSample) -> Iterator[tuple[Floats, Floats, Ints, NDArray[np.uint64]]]:
    """Tokens at each place of the rows that still share a prefix with others: b, a, their ids and their prefixes."""
    if sample.token_ids is None:
        return
    starts = np.cumsum(sample.n_tokens) - sample.n_tokens
    rows = np.flatnonzero(sample.prompts != 0)
    prefix = sample.prompts[rows]
    # Of every token, its place among the valid ones.
    valid = sample.is_valid
    at_valid = np.cumsum(valid) - 1
    for place in range(LONGEST):
        _, group, counts = np.unique(prefix, return_inverse=True, return_counts=True)
        on = (counts[group] > 1) & (sample.n_tokens[rows] > place)
        rows, prefix = rows[on], prefix[on]
        if len(rows) < 2:
            return
        at = starts[rows] + place
        ids = sample.token_ids[at]
        known = valid[at] & (ids >= 0)
        if sample.unscored is not None:
            known[known] = ~sample.unscored[at_valid[at[known]]]
        tokens = at_valid[at[known]]
        b, a = (column[tokens].astype(np.float64) for column in (sample.rollout, sample.train))
        drawn = (b < 0) & (a < 0)
        yield b[drawn], a[drawn], ids[known][drawn], prefix[known][drawn]
        prefix = (prefix ^ ids.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        prefix ^= prefix >> np.uint64(29)


def _differences(
    b: Floats, a: Floats, ids: Ints, prefix: NDArray[np.uint64]
) -> tuple[Floats, Floats, NDArray[np.uint64], Floats]:
    """Each different token's b and a less the mean of its prefix's tokens, the prefix, and the probability that these
    have in b together; no token that is alone after its prefix."""
    order = np.lexsort((ids, prefix))
    b, a, ids, prefix = b[order], a[order], ids[order], prefix[order]
    new = np.concatenate([[True], (prefix[1:] != prefix[:-1]) | (ids[1:] != ids[:-1])]) if len(b) else np.zeros(0, bool)
    b, a, prefix = b[new], a[new], prefix[new]
    distinct, group, counts = np.unique(prefix, return_inverse=True, return_counts=True)
    less = [column - (np.bincount(group, column, len(distinct)) / np.maximum(counts, 1))[group] for column in (b, a)]
    on = counts[group] > 1
    mass = np.bincount(group, np.exp(b), len(distinct)).astype(np.float64)
    return less[0][on], less[1][on], prefix[on], mass[group][on]
