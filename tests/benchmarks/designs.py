"""Designs of dumps whose true metrics can be had: what intervals and tests of two dumps are measured on.

A design draws n prompts of K samples each; K = 1 where sequences are independent.  Log-ratios l are nats, g the
standard deviation of a token's noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.row_keys import mix

Generator = np.random.Generator
Floats = NDArray[np.float64]
SAMPLES = 8
"""Of a prompt, in the clustered designs."""
NOISE, SEQUENCE, MEAN = 0.12, 0.03, -0.004
"""Standard deviations of a token's and a sequence's noise, and the mean, of the clustered designs."""
WORDS, LOGITS = 8, 4.0
"""Of the toy model: its vocabulary, and the standard deviation of its logits."""


@dataclass(frozen=True)
class Rows:
    """log_ratio, rollout: f64[V].  lengths: i64[B].  prompts: i64[B], which rows are samples of one."""

    log_ratio: Floats
    rollout: Floats
    lengths: NDArray[np.int64]
    prompts: NDArray[np.int64]

    def batch(self, first_prompt: int = 0) -> Batch:
        """As it is read of a dump that tells its prompts.  first_prompt: so that dumps have prompts of their own."""
        zeros = np.zeros(len(self.lengths), np.int64)
        return Batch(
            offsets=np.concatenate([[0], np.cumsum(self.lengths)]),
            old_logp=self.rollout + self.log_ratio,
            rollout_logp=self.rollout,
            current_logp=None,
            advantages=None,
            n_masked=zeros,
            reward=None,
            group_index=zeros.astype(np.int32),
            group_keys=((None,),),
            cluster_keys=mix((self.prompts + first_prompt + 1).astype(np.uint64)),
        )


@dataclass(frozen=True)
class Design:
    """rows: of n prompts.  sizes: how many prompts a dump has, one after the other."""

    name: str
    rows: Callable[[Generator, int], Rows]
    sizes: tuple[int, ...] = (200,)


def _lengths(rng: Generator, n: int, shortest: int = 8, longest: int = 40) -> NDArray[np.int64]:
    return rng.integers(shortest, longest, n)


def _of(rng: Generator, log_ratio: Floats, lengths: NDArray[np.int64], samples: int) -> Rows:
    return Rows(log_ratio, -2.5 - 3 * rng.random(len(log_ratio)), lengths, np.arange(len(lengths)) // samples)


def magnitudes(rng: Generator, n: int, spread: float, scale: float = 1.0, samples: int = SAMPLES) -> Rows:
    """Noise of a size of each prompt's own, rho of mean 1: g = .12 scale e^N(0, spread), l = -g^2 / 2 + N(0, g)."""
    lengths = _lengths(rng, n * samples)
    sizes = np.repeat(np.repeat(NOISE * scale * np.exp(rng.normal(0, spread, n)), samples), lengths)
    return _of(rng, -(sizes**2) / 2 + sizes * rng.standard_normal(len(sizes)), lengths, samples)


def noisier_and_longer(rng: Generator, n: int) -> Rows:
    """Hard prompts, z = e^N(0, .5), are noisier and longer: g = .12 z, rho of mean 1, lengths of 10 z e^N(0, .5)."""
    difficulty = np.repeat(np.exp(rng.normal(0, 0.5, n)), SAMPLES)
    lengths = np.maximum(1, np.round(10 * difficulty * np.exp(rng.normal(0, 0.5, n * SAMPLES)))).astype(np.int64)
    sizes = np.repeat(NOISE * difficulty, lengths)
    return _of(rng, -(sizes**2) / 2 + sizes * rng.standard_normal(len(sizes)), lengths, SAMPLES)


def shifted(rng: Generator, n: int, spread: float, scale: float = 1.0) -> Rows:
    """A mean of each prompt's own: l = -.004 + N(0, spread) a prompt + N(0, .03) a sequence + N(0, .12) a token."""
    lengths = _lengths(rng, n * SAMPLES)
    of_rows = np.repeat(rng.normal(0, spread, n), SAMPLES) + rng.normal(0, SEQUENCE * scale, n * SAMPLES)
    noise = rng.normal(0, NOISE * scale, int(lengths.sum()))
    return _of(rng, MEAN + np.repeat(of_rows, lengths) + noise, lengths, SAMPLES)


def toy_model(rng: Generator, n: int) -> Rows:
    """Tokens drawn from a toy model of 8 words: logits of standard deviation 4 and an engine's gap of .12 in them, both
    fixed by the context, so that samples of one prompt that share a prefix share its gap."""
    lengths = _lengths(rng, n * SAMPLES, 8, 24)
    context = mix(np.repeat(rng.integers(0, 1 << 62, n).astype(np.uint64), SAMPLES))
    rollout, trained = (np.zeros((len(lengths), int(lengths.max()))) for _ in range(2))
    words = np.arange(WORDS, dtype=np.uint64)
    for place in range(int(lengths.max())):
        keys = mix(context[:, None] + words)
        logits = LOGITS * _normal(keys)
        p, q = _log_softmax(logits), _log_softmax(logits + NOISE * _normal(mix(keys)))
        drawn = (np.cumsum(np.exp(p), axis=1) < rng.random((len(lengths), 1))).sum(axis=1).clip(max=WORDS - 1)
        rows = np.arange(len(lengths))
        rollout[:, place], trained[:, place] = p[rows, drawn], q[rows, drawn]
        context = keys[rows, drawn]
    inside = np.arange(rollout.shape[1]) < lengths[:, None]
    prompts = np.arange(len(lengths)) // SAMPLES
    return Rows((trained - rollout)[inside], np.minimum(rollout, 0.0)[inside], lengths, prompts)


def _normal(keys: NDArray[np.uint64]) -> Floats:
    """Standard normal numbers that the keys decide (Box and Muller)."""
    first, second = ((mix(keys + np.uint64(i)) >> np.uint64(11)).astype(np.float64) / 2**53 for i in (101, 202))
    return np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)


def _log_softmax(logits: Floats) -> Floats:
    top = logits - logits.max(axis=1, keepdims=True)
    return top - np.log(np.exp(top).sum(axis=1, keepdims=True))


def normal(rng: Generator, n: int, mean: float, sd: float, row_sd: float = 0.0) -> Rows:
    """Independent sequences of normal log-ratios, with an effect of each sequence's own."""
    lengths = _lengths(rng, n, 5, 60)
    effects = np.repeat(rng.normal(0, row_sd, n), lengths)
    return _of(rng, mean + effects + rng.normal(0, sd, int(lengths.sum())), lengths, 1)


def surprise_noise(rng: Generator, n: int) -> Rows:
    """Noise that grows with surprise, as of bf16: most tokens certain, a few not."""
    lengths = _lengths(rng, n, 5, 60)
    size = int(lengths.sum())
    return _of(rng, rng.normal(0, 0.06, size) * rng.random(size) ** 3, lengths, 1)


def outliers(rng: Generator, n: int) -> Rows:
    """A token in 300 at -2."""
    lengths = _lengths(rng, n, 5, 60)
    size = int(lengths.sum())
    return _of(rng, np.where(rng.random(size) < 0.003, -2.0, rng.normal(0, 0.02, size)), lengths, 1)


def one_token(rng: Generator, n: int) -> Rows:
    """One token each."""
    return _of(rng, rng.normal(-0.02, 0.2, n).clip(-0.6, 0.5), np.ones(n, np.int64), 1)


PROMPTS = (5, 8, 12, 20, 32)
CLUSTERED = (
    Design("8 samples a prompt, no effect of prompts", partial(shifted, spread=0.0), PROMPTS),
    Design("noise differs by prompt, e^N(0, .25)", partial(magnitudes, spread=0.25), PROMPTS),
    Design("noise differs by prompt, e^N(0, .5)", partial(magnitudes, spread=0.5), PROMPTS),
    Design("a toy model", toy_model, PROMPTS),
    Design("mean differs by prompt, sd .02", partial(shifted, spread=0.02), PROMPTS),
    Design("mean differs by prompt, sd .05", partial(shifted, spread=0.05), PROMPTS),
)
HARD = (
    Design("hard prompts are noisier and longer", noisier_and_longer, (8, 20, 32, 128)),
    Design("16 samples, noise differs by prompt, e^N(0, 1)", partial(magnitudes, spread=1.0, samples=16), (64,)),
)
"""Where a sample of prompts often lacks those that decide a metric."""
INDEPENDENT = (
    Design("bf16-like noise", surprise_noise),
    Design("drift", partial(normal, mean=-0.08, sd=0.4, row_sd=0.15), (5, 10, 20, 50, 200, 1000)),
    Design("independent tokens", partial(normal, mean=-0.005, sd=0.1)),
    Design("rare outliers, .3% at -2", outliers),
    Design("wide", partial(normal, mean=-0.1, sd=0.5, row_sd=0.5)),
    Design("one-token rows", one_token),
)
