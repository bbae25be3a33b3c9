"""Whether the rows that two dumps share are equal to the bit (`Bits`), where they part, and what that has to do with
their prompts.

A row parts at the first token that is another, or whose log-prob is another number of float32.  Whether rows of longer
prompts part earlier is tested as survival is: a row lives, token by token, until it parts, or is lost sight of at its
end.  Block boundaries are tested by the distinct positions, prompt included, at which rows part.  A row that parts at
its first token is left out there, because that is where its prompt ends, and lengths of prompts are often round.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.interval import t_probability
from rlcorr_cli.records.fields import Form
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.flat import Flags, Ints

NOWHERE = 1 << 30
"""The token at which rows part that do not: behind any."""
LEVEL = 0.005
"""How often either test may say of rows that part anywhere that they do not."""
FEWEST_LENGTHS, FEWEST_AT_BOUNDARIES = 8, 3
"""Lengths of prompts without which longer ones are not told from shorter ones; positions without which there is no
block."""
BLOCK_SIZES = tuple(1 << power for power in range(4, 15))
"""Tokens of a block that are looked for: pages of caches, tiles of attention, chunks of a prefill."""
MOST_LISTED = 1000


@frozen(kw_only=True)
class PartedRow(Record):
    """A row that is not the same in both.

    row: its id, or else its number in A, from 0.  token: the first that differs, from 0 in its response.  differ: how
    many do, all behind another token among them.  tokens: of the longer one.  prompt_tokens: None where not known.
    """

    row: str
    token: int
    differ: int
    tokens: int
    prompt_tokens: int | None


@frozen(kw_only=True)
class Bits(Record):
    """Rows of two dumps to the bit: the ids of valid tokens, and their log-probs as float32.

    equal, differ: rows of both.  tokens: of these, of two the longer's.  tokens_differ: all behind another token among
    them.  columns: by how much the log-probs that both have differ at most, before another token, in nats.
    token: the least, the median and the largest of the first tokens that differ.  prompt_p: of rows that part no
    earlier in longer prompts, below LEVEL where they do; None where too few lengths of prompts are known.  block_size:
    rows part at multiples of it, prompt included; None of no size.  parted: at most MOST_LISTED, that part first.
    """

    equal: int
    differ: int
    tokens: int
    tokens_differ: int
    columns: Annotated[Mapping[str, float], Form(name="largest_differences", about="Log-probs by column, nats.")]
    token: tuple[int, float, int] | None
    prompt_p: float | None
    block_size: int | None
    parted: tuple[PartedRow, ...]


def earlier_in_longer_prompts(prompts: Ints, last: Ints, parted: Flags) -> float | None:
    """The p of rows that part no earlier in longer prompts, of one side; None where too few lengths differ.

    prompts: tokens of each row's prompt.  last: the token at which it parts, or else its last.  With S the share of
    rows that have not parted at some token (Kaplan and Meier), a row scores S before its last token, if it parts there,
    less 1 - S there; the mean is 0 whatever the rows' lengths (Peto and Peto 1972).  Rows whose prompts are equally
    long count as one, because they may be samples of one prompt.  What is tested is the sum of their scores times the
    ranks of the lengths.
    """
    lengths, of_row = np.unique(prompts, return_inverse=True)
    if len(lengths) < FEWEST_LENGTHS or not parted.any():
        return None
    times, at = np.unique(last, return_inverse=True)
    at_risk = len(last) - np.searchsorted(np.sort(last), times)
    alive = np.cumprod(np.append(1.0, 1 - np.bincount(at, parted, len(times)) / at_risk))
    scores = parted * alive[at] + alive[at + 1] - 1
    terms = (np.arange(len(lengths)) - of_row.mean()) * np.bincount(of_row, scores)
    score, spread = float(terms.sum()), math.sqrt(float(terms @ terms))
    two_sided = t_probability(abs(score) / spread, len(lengths)) if spread else 1.0
    return two_sided / 2 if score > 0 else 1 - two_sided / 2


def block_size(positions: Ints) -> int | None:
    """The size of BLOCK_SIZES at whose multiples rows part more often than by chance; None of none.

    positions: of the tokens at which rows part, with their prompts; each counts once.  That a share f of n is at
    multiples of m has a chance of at most e^(-n D), D = f ln(f m) + (1 - f) ln((1 - f) / (1 - 1 / m)) (Chernoff), times
    the sizes that are tried.  Of those beyond chance the least probable is meant.
    """
    positions, chances = np.unique(positions), dict[int, float]()
    n = len(positions)
    for size in BLOCK_SIZES:
        n_hits = int((positions % size == 0).sum())
        f = n_hits / max(n, 1)
        if n_hits >= FEWEST_AT_BOUNDARIES and f > 1 / size:
            rest = (1 - f) * math.log((1 - f) / (1 - 1 / size)) if f < 1 else 0.0
            chances[size] = -n * (f * math.log(f * size) + rest) + math.log(len(BLOCK_SIZES))
    return min((m for m in chances if chances[m] < math.log(LEVEL)), key=chances.__getitem__, default=None)
