"""What columns of each token tell beside its log-probs: the kept sets of a truncated sampler, and versions of weights.

A sampler with top-p, top-k or min-p keeps a set of tokens and draws from it.  Where the size of that set is recorded,
tokens that were the only one kept tell whether log-probs are over the kept set: they are 0 there.  Where the log-probs
of all kept tokens are recorded, the gap over the sets follows.
"""

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import Fact, HeadGap, KeptGap, VersionGap
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.totals.flat import Floats, starts_of
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
    sentences = [] if tokens is None else _of_singles(tokens, rollout, train, has_sets=kept is not None)
    if kept is not None:
        of_k3 = "" if kept.k3 is None else f"k3_kl is {figures(kept.k3)} and "
        sentences.append(
            f"In the kept sets {rollout} has {percent(kept.rollout_mass)} of its probability and {train} "
            f"{percent(kept.train_mass)}, on average; renormalised over them, {of_k3}the sd of log-ratio is "
            f"{figures(kept.sd)} ({count_noun(kept.tokens, 'token')})."
        )
    return (Fact("kept_sets", " ".join(sentences)),) if sentences else ()


def _of_singles(tokens: _Tokens, rollout: str, train: str, *, has_sets: bool) -> list[str]:
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
        for at, on in ((at, behind == at) for at in np.unique(behind))
    )
