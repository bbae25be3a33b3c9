"""What columns of each token tell beside its log-probs: the kept sets of a truncated sampler, and versions of weights.

A sampler with top-p, top-k or min-p keeps a set of tokens and draws from it.  Where the size of that set is recorded,
tokens that were the only one kept tell whether log-probs are over the kept set: they are 0 there.
"""

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import Fact, HeadGap, VersionGap
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.row_sample import RowSample, starts_of

EQUAL_TO_0 = 1e-4
"""A log-prob this near 0 is of a token that nothing else could be drawn beside."""
MOSTLY = 0.99
FACTS = ("kept_sets", "heads")
"""Names of the facts that are made here."""
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


def kept_set_facts(sample: RowSample | None, rollout: str, train: str) -> tuple[Fact, ...]:
    """How many tokens were the only one that their sampler kept, whether each column is over the kept sets, and the gap
    of the other tokens; nothing where the dump has no kept sets or too few such tokens."""
    if sample is None or sample.kept_sizes is None:
        return ()
    tokens = _Tokens.of(sample, sample.kept_sizes)
    alone = tokens.numbers == 1
    if alone.sum() < MIN_SINGLES:
        return ()
    share = percent(float(alone.mean()))
    over = [float((column[alone] > -EQUAL_TO_0).mean()) >= MOSTLY for column in (tokens.rollout, tokens.train)]
    first = f"{share} of the tokens are the only one that their sampler kept"
    others = tokens.train[~alone] - tokens.rollout[~alone]
    mean_k3 = float(k3(others).mean()) if len(others) else 0.0
    if all(over):
        sentence = (
            f"{first}: both columns are over the kept sets, and 0 there. Over the other tokens k3_kl is "
            f"{figures(mean_k3)}, and the sd of log-ratio {figures(float(others.std()) if len(others) else 0.0)}."
        )
    elif not any(over):
        sentence = f"{first}, but neither column is over the kept sets: both are below 0 there."
    else:
        inside, outside = (rollout, train) if over[0] else (train, rollout)
        mean = float((tokens.train if over[0] else tokens.rollout)[alone].mean())
        sentence = (
            f"{first}: {inside} is over the kept sets and 0 there, {outside} is not, and {figures(mean)} on average. "
            f"Subtract from {outside} the log of the kept tokens' probabilities, summed."
        )
    return (Fact("kept_sets", sentence),)


@np.errstate(over="ignore")
def _mean_k3(log_ratio: Floats) -> float | None:
    """None where float64 does not hold it."""
    mean = float(k3(log_ratio).mean())
    return mean if np.isfinite(mean) else None


@np.errstate(over="ignore")
def head_gap(sample: RowSample | None) -> HeadGap | None:
    """Over the heads of a sample's valid tokens; None where no token has any."""
    if sample is None or sample.head_tv is None or sample.head_kl is None:
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
def version_gaps(sample: RowSample | None) -> tuple[VersionGap, ...]:
    """The gap by how many versions behind its row's newest weights each token was sampled, the newest first; nothing
    where the dump does not tell, or no row has tokens of two versions."""
    if sample is None or sample.versions is None:
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
        for at, on in ((at, behind == at) for at in np.unique(behind))
    )
