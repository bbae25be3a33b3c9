"""Whether weights leave a usable sample: yes, no, or unsure, where the dump is too small to tell.

Every command asks here.  Two numbers speak of a sample of weights:

* the effective share of the sample, ESS = (mean w)^2 / mean w^2.  Of log-normal weights it is e^(-v), v the variance of
  log w, which m independent clusters know to a factor: t is the 97.5% quantile of Student's t with m - 1 degrees of
  freedom, sqrt(2 / (m - 1)) the relative standard error of a variance, and so the ESS lies

      between ESS^f and ESS^(1/f),    f = exp(t sqrt(2 / (m - 1)));

* the Pareto shape k of the tail of weights of whole sequences, which says whether the sample holds the large weights
  that its ESS hangs on.  It is known to its standard error, (1 + k) / sqrt(tail values), and held to the limit of the
  sample's own size, min(1 - 1 / log10 n, 0.7); under 100 sequences neither side of the limit is known.

Sequence weights: `no` where the ESS lies below SEQUENCE_ESS with all of its interval, or k above its limit by more than
its standard error; `yes` where the ESS lies above with all of its interval, and k below its limit by its standard
error, or the ESS above SURE_ESS and k not known to be above; else `unsure`.  Token weights go by token_ess alone: no
token is a large part of a sample.  Sequence weights are products of token weights, and never more usable.

That takes all prompts as alike.  Some may be far noisier, and their weights are near 0 but for one in thousands, which
is very large: a sample hardly ever holds it, so that neither its ESS nor k shows them.  So there is no `yes`

* where the spread of S^2 over the clusters leaves an effective share below SEQUENCE_ESS (`Clusters.mixed_seq_ess`, of
  dumps that were resampled; steps, groups and runs without intervals are taken as alike);
* with fewer than ENOUGH_CLUSTERS or ENOUGH_SEQUENCES, which may hold too few noisy prompts or none, unless the ESS lies
  above FEW_ESS with all of its interval: m prompts without a noisy one leave 3 / m of them possible, and six times the
  others' standard deviation then leaves a share of about SEQUENCE_ESS.

Measured with `python tests/benchmarks/usable.py` on 2026-11-26, 400 dumps of each design: of 33 designs with a true ESS
below SEQUENCE_ESS, 16 to 1,000 prompts, of which none or 3 to 20% have 2 to 6 times the others' standard deviation, at
most 4.5% of the dumps were called usable, the dumps without a noisy prompt among them.  Of log-normal weights of 160
prompts x 8, 256 x 4 and 1,000 x 1 with a true ESS of 0.45 or more 95% or more were, and at most 0.5% unusable.  Under
ENOUGH_CLUSTERS it takes a larger one: of 8 prompts x 8 100% with 0.99, 69% with 0.96; of 32 x 8 100% with 0.94, 28%
with 0.90, none with 0.78.  Noisy prompts that are fewer than 3%, or noisier, are not looked for.

Sources: Kong 1992, "A note on importance sampling using standardized weights", for the ESS; Vehtari, Simpson, Gelman,
Yao, Gabry 2024, "Pareto smoothed importance sampling", for k and its limit; Smith 1987, "Estimating tails of
probability distributions", for the standard error of k.
"""

import math
from collections.abc import Mapping
from typing import Literal

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.reading.names import NO_CLUSTERS
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.totals.limits import SEQUENCE_ESS
from rlcorr_cli.totals.view import Value

Answer = Literal["no", "unsure", "yes"]
ANSWERS: tuple[Answer, ...] = ("no", "unsure", "yes")
"""From the least usable to the most."""

TOKEN_ESS = 0.5
"""At a smaller effective share of the tokens no weight repairs the sample."""
SURE_ESS = 0.5
"""At a larger effective share of the sequences no few of them carry the sample, whatever their tail looks like."""
ENOUGH_CLUSTERS, ENOUGH_SEQUENCES, FEW_ESS = 160, 1000, 0.85
"""Of fewer clusters or sequences a smaller effective share may hide noisy ones of which none were drawn."""


@frozen(kw_only=True)
class Usable(Record):
    """Whether weights of tokens, and of whole sequences, leave a usable sample."""

    token: Answer
    sequence: Answer


def usable_weights(values: Mapping[str, Value], n_sequences: int, clusters: Clusters | None = None) -> Usable:
    """What a dump's canonical metrics say of raw weights.  clusters: of rows that are independent; None for rows."""
    clusters = clusters or Clusters(by=NO_CLUSTERS, n=n_sequences)
    token = _held(_interval(values.get("token_ess"), clusters.n), TOKEN_ESS)
    return Usable(token=token, sequence=least(token, _sequence(values, n_sequences, clusters)))


def least(*answers: Answer) -> Answer:
    """The least usable of some."""
    return min(answers, key=ANSWERS.index)


def tail_answer(values: Mapping[str, Value], scope: str) -> Answer:
    """Whether the Pareto shape at a scope is below its limit by its standard error, above by that, or neither."""
    shape, error, limit = (values.get(f"pareto_k_{scope}{end}") for end in ("", "_se", "_limit"))
    if shape is None or error is None or limit is None or abs(shape - limit) <= error:
        return "unsure"
    return "yes" if shape < limit else "no"


def _sequence(values: Mapping[str, Value], n_sequences: int, clusters: Clusters) -> Answer:
    ends = _interval(values.get("seq_ess"), clusters.n)
    sample, tail = _held(ends, SEQUENCE_ESS), tail_answer(values, "seq")
    if tail == "unsure" and ends[0] >= SURE_ESS:
        tail = sample
    is_small, mixed = clusters.n < ENOUGH_CLUSTERS or n_sequences < ENOUGH_SEQUENCES, clusters.mixed_seq_ess
    hides_noise = (is_small and ends[0] < FEW_ESS) or (mixed is not None and mixed < SEQUENCE_ESS)
    return least(sample, tail, "unsure" if hides_noise else "yes")


def _held(ends: tuple[float, float], limit: float) -> Answer:
    return "yes" if ends[0] >= limit else "no" if ends[1] < limit else "unsure"


def _interval(share: Value, n_clusters: int) -> tuple[float, float]:
    """Where an effective share lies; nowhere above 0 if float64 does not hold it."""
    if share is None or share <= 0:
        return 0.0, 0.0
    if n_clusters < 2:
        return 0.0, 1.0
    factor = math.exp(t_quantile(0.975, n_clusters) * math.sqrt(2 / (n_clusters - 1)))
    return share**factor, share ** (1 / factor)
