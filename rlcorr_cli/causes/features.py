"""A Case: everything that the rules of a diagnosis look at, worked out once from a dump's GapTotals.

Features are numbers of all tokens: how far d, the difference in log-odds, spreads at each level of surprise (Spread),
what a curve or a straight line explains of the gap, whether the means of e^l and e^-l are 1, and how rows lean (Lean).
A Step is what a truncated rollout leaves.  `listed_features` has all of them by name, for the JSON form.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from math import exp, expm1, gamma, inf, log, sqrt

import numpy as np

from rlcorr_cli.causes import gap
from rlcorr_cli.causes.diagnosis import CauseFinding, Interval
from rlcorr_cli.causes.gap import BODY, FIELDS, LINES, N_SURPRISE, ODD, PARTS, PLACE_SUMS, GapTotals
from rlcorr_cli.causes.gap_sums import TokenGaps, gap_totals
from rlcorr_cli.causes.numbers import Line, first_step, jackknife, line_of, ratio, ratios, weighted_quantile
from rlcorr_cli.causes.of_tokens import ByToken, Repetition, by_token, repetition
from rlcorr_cli.causes.where import PlaceOfGap
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.limits import LARGEST_LOG
from rlcorr_cli.totals.row_sample import RowSample

MIDDLE = 0.6827
"""The share of a normal distribution within one standard deviation."""
MIN_BIN = 15
"""A bin of fewer tokens has no spread."""
LOUD = 0.9
"""How much noise a bin of u has is read from the |d| that this share of its tokens keep to."""
HALF, MOST = 0.5, 0.95
"""The shape of noise is read from the |d| that these shares of all tokens keep to, each over its bin's."""
MOST_OVER_NOISE = 1.28
"""Measured on 36 clean dumps of nine models, in bf16 or fp32 on either side: the rms of d is at most 1.18 times what
noise of its shape makes; router flips of three models make it 1.38 to 3.2 times, lost MLPs 1.5 and more."""
LARGEST_SHAPE = 2.0
"""Normal noise has a shape of 1.4; measured on clean dumps: .38 to 1.6."""
FIRST_TOKENS, MIN_KIND = 1 << 17, 20
"""Single tokens are looked at in the first so many of a sample; an id of fewer tokens does not tell how loud it is."""
FAR_LOUD = 3.0
"""An outlier lies so many times farther off its bin's median than LOUD of the bin: 4.9 deviations of normal noise."""
HIGH, NEAR = 3.75, 2.0
"""The fan compares bins of u from HIGH up with bins centred within NEAR of 0."""
MIN_FAN = 40
N_BINS = len(gap.SURPRISE_EDGES) - 1


_SIZES = gap.SPREAD_LEAST * gap.SPREAD_FACTOR ** (np.arange(gap.SPREAD_STEPS) + 0.5)
MIDDLES = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
"""Of the bins of d."""


@frozen(kw_only=True)
class Spread:
    """core: the rms of d - bin median that noise makes.  over_noise: how many times larger the rms is than noise of its
    shape makes it.  n_far: outliers, n_below of them negative.  tail: the rms over the typical d, the token-weighted
    median over bins of half the middle 68% of d.  fan: how much wider d is among sure tokens than among even ones.

    Of each bin of u, f64[N_SURPRISE] (of one with few tokens that of all): noise, the core there, and loud, the |d|
    that LOUD of its tokens keep to.
    """

    n: int
    core: float
    tail: float
    fan: float
    noise: Floats
    loud: Floats
    over_noise: float
    n_far: int
    n_below: int

    @property
    def far(self) -> float:
        """The share of tokens that are outliers."""
        return ratio(self.n_far, self.n)

    @property
    def below(self) -> float:
        """The share of outliers that are negative."""
        return ratio(self.n_below, self.n_far)


def spread_of(counts: Floats) -> Spread | None:
    """Of counts of tokens by bin of u and of d, f64[N_SURPRISE, N_SPREAD]; None if no bin has MIN_BIN tokens."""
    counts = counts[:N_BINS]
    n = counts.sum(axis=1)
    enough = np.flatnonzero(n >= MIN_BIN)
    if not len(enough):
        return None
    half = np.zeros(N_BINS)
    for i in enough:
        low = weighted_quantile(MIDDLES, counts[i], 0.5 - MIDDLE / 2)
        high = weighted_quantile(MIDDLES, counts[i], 0.5 + MIDDLE / 2)
        half[i] = (high - low) / 2
    typical = weighted_quantile(half[enough], n[enough], 0.5)
    median = np.array([weighted_quantile(MIDDLES, row, 0.5) if row.any() else 0.0 for row in counts])
    off = MIDDLES[None, :] - median[:, None]
    rms = sqrt(float((counts * off**2).sum()) / float(n.sum()))
    of_bins, loud_of_bins, over_noise = _noise(counts[enough], np.maximum(np.abs(off[enough]), gap.SPREAD_LEAST / 2))
    core = sqrt(float((n[enough] * of_bins**2).sum() / n[enough].sum()))
    noise, loud = (np.full(N_SURPRISE, of_all) for of_all in (core, weighted_quantile(loud_of_bins, n[enough], 0.5)))
    noise[enough], loud[enough] = of_bins, loud_of_bins
    far = counts * (np.abs(off) > FAR_LOUD * loud[:N_BINS, None])
    lower, upper = np.array(gap.SURPRISE_EDGES[:-1]), np.array(gap.SURPRISE_EDGES[1:])
    sure = (lower >= HIGH) & (n >= MIN_BIN)
    even = (np.abs((lower + upper) / 2) < NEAR) & (n >= MIN_BIN)
    fan = 1.0
    if n[sure].sum() >= MIN_FAN and n[even].sum() >= MIN_FAN:
        fan = ratio(weighted_quantile(half[sure], n[sure], 0.5), weighted_quantile(half[even], n[even], 0.5), 1.0)
    return Spread(
        n=int(n.sum()),
        core=core,
        # A typical d below the least bin stands for 0, and any tail would be endless beside it.
        tail=rms / max(typical, gap.SPREAD_LEAST),
        fan=fan,
        noise=noise,
        loud=loud,
        over_noise=over_noise,
        n_far=int(far.sum()),
        n_below=int((far * (off < 0)).sum()),
    )


AGAINST_TOP_P, OFF, MOST_OFF = 0.08, 0.2, 0.01
"""A top-p bound is sharp where its errors are at most the first of the judged tokens, and those farther off than OFF in
ln(-a), which noise does not carry, at most MOST_OFF of the tokens near it: sure tokens are 0 under any cut, so they
say nothing for a bound.  Measured: top-p alone under rounding noise at most .0055 far errors (14 dumps), min-p .024 to
.64 (14; on two peaked models its errors are .007 and .02 of the judged tokens), top-p beside staleness .075 to .53."""
FIRST_STEPS, NEAR_BOUND, MOST_HIGHER = 2.0, 4.0, 0.12
"""A bound within so many first steps of a grid is the grid's.  So is one that is not sharp where, of the tokens below 0
by up to NEAR_BOUND times the bound, training gives this share more, by half the bound: rounding moves both ways, a cut
one.  Measured: coarse grids of any size .18 or more, cuts at most .05, under staleness, too."""


def _noise(counts: Floats, off: Floats) -> tuple[Floats, Floats, float]:
    """`noise` and `loud` of K bins, and `over_noise`, of Spread: by the shape of each token's |d| over its bin's loud.

    Below MOST_OVER_NOISE all is noise.  A bin where LOUD of the tokens agree, as on a grid, tells no shape: all that it
    has is noise.
    counts, off: f64[K, N_SPREAD], tokens and their |d|, at least half of gap.SPREAD_LEAST.
    """
    rms = np.sqrt((counts * off**2).sum(axis=1) / counts.sum(axis=1))
    loud = np.array([weighted_quantile(*of_bin, LOUD) for of_bin in zip(off, counts, strict=True)])
    on, loud = loud > gap.SPREAD_LEAST, np.maximum(loud, gap.SPREAD_LEAST)
    if not on.any():  # the policies agree, but for a few tokens
        return np.minimum(rms, loud), loud, sqrt(float((counts * off**2).sum() / counts.sum())) / gap.SPREAD_LEAST
    z, weights = (off[on] / loud[on, None]).ravel(), counts[on].ravel()
    square = noise_square(z, weights)
    over_noise = sqrt(float((weights * z**2).sum() / weights.sum()) / square)
    return np.where(on & (over_noise >= MOST_OVER_NOISE), np.minimum(rms, loud * sqrt(square)), rms), loud, over_noise


def noise_square(z: Floats, weights: Floats) -> float:
    """The mean square of noise of the shape of z, the |d| of tokens over a scale of their like.

    Engines that compute in bf16 often agree, and differ by a step of a rounding where they do not, more for one kind of
    token than for another.  So d is not normal, and the quiet tokens do not tell how far the loud ones go.  Noise of
    any such shape keeps to

        P(z > x) = exp(-(x / s)^k),    E z^2 = s^2 gamma(1 + 2 / k),

    with the k and s that the HALF and MOST of z give.  Rare tokens that are far off move neither.
    """
    half, most = (weighted_quantile(z, weights, share) for share in (HALF, MOST))
    k = min(LARGEST_SHAPE, ratio(log(log(1 - MOST) / log(1 - HALF)), log(most / half), LARGEST_SHAPE))
    return most**2 * (-log(1 - MOST)) ** (-2 / k) * gamma(1 + 2 / k)


WIDE, NEAR_STEP, STRAY = 1.82, 1.0, 2.5
"""Tokens that speak for or against a bound c have a > 1.82 c: up to 0.6 in ln(-a) beyond it.  Near it are those up to
NEAR_STEP on either side, and errors are counted over twice the fewer of the zeros and the others there: on either side
any cut has many that say nothing.  No cut makes zeros farther than STRAY beyond: measured, none of min-p, on peaked
models beside staleness 8 and 9."""
SURE = round(log(0.01 / exp(gap.CERTAIN_LEAST)) / gap.CERTAIN_STEP)
"""Tokens of probability .99 or more, which top-p and min-p set to exactly 0: bins of ln(-a) up to this one."""


@frozen(kw_only=True)
class Step:
    """cut: tokens with b = 0 and a < -.001, of n, unsure of which have b < 0.  bound: P = e^c with its interval, errors
    E at it, judged tokens.  near_errors, far_errors: those near the bound, and those farther off than OFF, over the
    number of tokens near it.  left: the share of the sure tokens, of a < -.001, with b < 0.  stray: zeros beyond STRAY.
    least_left: m, what the surest token of b < 0 leaves to all others, over its own probability."""

    cut: int
    n: int
    unsure: int
    bound: float
    interval: tuple[float, float]
    errors: int
    judged: int
    near_errors: float
    far_errors: float
    left: float
    stray: int
    least_left: float

    @property
    def is_sharp(self) -> bool:
        """Whether one bound parts the tokens that were set to 0 from the others."""
        return self.errors <= AGAINST_TOP_P * self.judged and self.far_errors <= MOST_OFF

    @property
    def ratio_left(self) -> float:
        """(1 - P) / m over the share of errors near the bound: large under top-p, see curves.TOP_P_LEFT."""
        return ratio(1 - self.bound, self.least_left * self.near_errors, inf)


def step_of(totals: GapTotals) -> Step | None:
    """None where no token has b = 0 and a < -.001."""
    certain, unsure = totals.certain
    cut = int(certain[1:].sum())
    if not cut:
        return None
    # ln(-a) at the lower ends of bins 1, 2, ...: a bound there has the bins before it above it.
    edges = gap.CERTAIN_LEAST + gap.CERTAIN_STEP * np.arange(gap.N_CERTAIN - 1)
    errors = np.cumsum(unsure)[:-1] + certain[::-1].cumsum()[::-1][1:]
    least = errors.min()
    good = np.flatnonzero(errors <= least + 2 * sqrt(least + 1))
    best = np.flatnonzero(errors == least)
    middle = edges[best[len(best) // 2]]
    wide = int(np.searchsorted(edges, middle + np.log(WIDE)))
    # Of bins 1, 2, ...; errors are zeros beyond the bound, others before.
    distance = edges + gap.CERTAIN_STEP / 2 - middle
    wrong, far = np.where(distance > 0, certain[1:], unsure[1:]), np.abs(distance) > OFF
    near = np.abs(distance) < NEAR_STEP
    n_near = max(1.0, 2 * float(totals.certain[:, 1:][:, near].sum(axis=1).min()))
    return Step(
        cut=cut,
        n=int(totals.certain.sum()),
        unsure=int(unsure.sum()),
        bound=exp(-exp(middle)),
        # A bound may lie anywhere up to the next edges.
        interval=(exp(-exp(edges[good[-1]] + gap.CERTAIN_STEP)), exp(-exp(edges[good[0]] - gap.CERTAIN_STEP))),
        errors=int(least),
        judged=cut + int(unsure[1:wide].sum()),
        near_errors=float(wrong[near].sum()) / n_near,
        far_errors=float(wrong[far].sum()) / n_near,
        stray=int(certain[1:][distance > STRAY].sum()),
        left=ratio(float(unsure[1:SURE].sum()), float(totals.certain[:, 1:SURE].sum())),
        least_left=expm1(min(-totals.largest_unsure, LARGEST_LOG)) if np.isfinite(totals.largest_unsure) else 0.0,
    )


OTHER_CORE, CLEAN_TIMES = 0.45, 1.5
"""8-bit formats give no core above the first; measured: fp8 .40, 4-bit weights .37 to 1.5.  Two clean dumps of one
model, at one temperature, are within the second of each other; measured: at most 1.4 times."""
LEAST_BY_TOKEN = 2.0**-9
"""Rounding to bf16 changes a weight by this share of it at most.  Measured beyond chance on ten models: bf16 at most
.0015, real changes at least .0022, but for 8-bit integers, which leave .0006 to .0013 on four of six."""

UNPAIRED_ERRORS = 2.0
"""Tokens drawn from rollout have a mean of rho of 1, however far off training is, tokens drawn from training one of
1 / rho, and less where large ratios are held to a limit.  So odd rows whose means of min(rho, e^2) and of
min(1 / rho, e^2) both lie above 1 by so many errors hold log-probs of different tokens; others belong to the body.
Measured: noise 1.7 at most in 2,300 draws, two swapped rows of 40 tokens 2.7 or more in 95 of 100."""


@frozen(kw_only=True)
class Lean:
    """How rows differ in the share of tokens with l > 0: tau (lean) with its z, and its correlation with the advantage,
    with that one's z; 0.0 where there is nothing to go by, and n = 0 rows with an advantage."""

    tau: float
    z_tau: float
    correlation: float
    z_correlation: float
    n: int


@frozen
class Excess:
    """What the mean of e^l, or of e^-l, has above 1, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, groups: Floats) -> "Excess":
        """Of f64[GROUPS, 2], tokens and the sum of e^l - 1."""
        return cls(_mean(groups.sum(axis=0)), jackknife(_mean, groups))

    @property
    def mean(self) -> tuple[float, Interval]:
        """The mean with its interval."""
        return 1 + self.value, (1 + self.value - 2 * self.error, 1 + self.value + 2 * self.error)

    def words(self, digits: int = 3) -> str:
        """'1.023 ± 0.004'."""
        return f"{1 + self.value:.{digits}f} ± {2 * self.error:.{digits}f}"

    def is_above(self, least: float, errors: float) -> bool:
        """Whether it lies above, in effect and by so many errors from 0."""
        return self.value > least and self.value > errors * self.error

    def is_below(self, most: float, errors: float) -> bool:
        """The same below."""
        return self.value < most and self.value < -errors * self.error


@frozen(kw_only=True)
class Features:
    """Of a dump's body.

    odd_correlation: of the log-odds in odd rows, and odd_belong: whether these rows are part of the body.
    gap, body_gap: sums of l^2, of all tokens and of the body; noise_gap, body_noise_gap: what noise makes of them, the
    sum over bins of u of its mean square times the sum of e^2.  curve: the share of body_gap that any function of b
    explains, with its error.  core, over_noise, fan, tail: see Spread; 0 or 1 without one.  forward, inverse: of the
    means of e^l and of e^-l.  positive: share of tokens with l > 0.  unevenness: the deviation of l over its mean.
    lines: by LINES.
    """

    n_tokens: int
    odd_belong: bool
    odd_correlation: float
    gap: float
    body_gap: float
    noise_gap: float
    body_noise_gap: float
    k3: float | None
    deviation: float | None
    curve: float
    curve_error: float
    spread: Spread | None
    core: float
    over_noise: float
    fan: float
    tail: float
    forward: Excess
    inverse: Excess
    positive: float
    unevenness: float
    lines: dict[str, Line]
    lean: Lean

    def share(self, sum_squares: float) -> float:
        """A part of the gap, between 0 and 1."""
        return min(1.0, max(0.0, ratio(sum_squares, self.gap)))

    @property
    def curve_interval(self) -> Interval:
        """Of curve_share."""
        low, high = (self.share((self.curve + side * 2 * self.curve_error) * self.body_gap) for side in (-1, 1))
        return low, high

    @property
    def curve_share(self) -> float:
        """What the curve explains of the whole gap."""
        return self.share(self.curve * self.body_gap)


def features_of(totals: GapTotals) -> Features:
    """Of any totals, empty ones included."""
    n_odd = max(1.0, float(totals.odd[0]))
    means, squares = totals.odd[1:].reshape(2, 2).T / n_odd
    above = (means - 1) / np.sqrt(np.maximum(1e-12, squares - means**2) / n_odd)
    odd_belong = bool(above.min() < UNPAIRED_ERRORS)
    named = FIELDS if odd_belong else ("body",)
    fields, parts = ([each.index(name) for name in named] for each in (FIELDS, PARTS))
    body, of_all = totals.sums(*named), totals.sums()
    every = {name: float(column.sum()) for name, column in of_all.items()}
    spread = spread_of(totals.spread[fields].sum(axis=0))
    noise2 = 0.0 if spread is None else spread.noise**2
    n, n_body = every["n"], float(body["n"].sum())
    # By group of the jackknife: n, and sums of e^l - 1 and of e^-l - 1.
    counts = totals.curves[fields].sum(axis=(0, 2))[:, :1]
    means = np.concatenate([counts, totals.moments[fields].sum(axis=0)], axis=1)
    lines = totals.lines[fields].sum(axis=0)
    return Features(
        n_tokens=int(n),
        odd_belong=odd_belong,
        odd_correlation=sqrt(line_of(totals.lines[FIELDS.index("odd")][:, LINES.index("u")]).match),
        gap=every["l2"],
        body_gap=float(body["l2"].sum()),
        noise_gap=float((noise2 * of_all["e2"]).sum()),
        body_noise_gap=float((noise2 * body["e2"]).sum()),
        k3=every["k3"] / n if n else None,
        deviation=sqrt(max(0.0, every["l2"] / n - (every["l"] / n) ** 2)) if n else None,
        curve=curve_of(body),
        curve_error=jackknife(_curve, totals.curves[fields].sum(axis=0)),
        spread=spread,
        core=0.0 if spread is None else spread.core,
        **{name: 1.0 if spread is None else getattr(spread, name) for name in ("over_noise", "fan", "tail")},
        forward=Excess.of(means[:, [0, 1]]),
        inverse=Excess.of(means[:, [0, 2]]),
        positive=ratio(float(totals.places[parts, PLACE_SUMS.index("n_positive")].sum()), n_body),
        unevenness=sqrt(max(0.0, ratio(n_body * float(body["l2"].sum()), float(body["l"].sum()) ** 2, inf) - 1)),
        lines={name: line_of(lines[:, i], on_train=name[0] == "v") for i, name in enumerate(LINES)},
        lean=_lean(totals.rows),
    )


def curve_of(body: Mapping[str, Floats]) -> float:
    """Sum of n mu^2 - sigma^2 over bins of u with n > 1 (mean and variance of l), over the sum of l^2.

    A bin's n mu^2 is sigma^2 on average where its true mean is 0, which the difference takes away.
    """
    return _curve(np.stack([body[name] for name in ("n", "l", "l2")], axis=-1))


def _curve(bins: Floats) -> float:
    """Of f64[N_SURPRISE, 3], sums of 1, l and l^2."""
    n, sums, l2 = bins[bins[:, 0] > 1].T
    mean = ratios(sums, n)
    variance = np.maximum(0.0, l2 - n * mean**2) / np.maximum(n - 1, 1)
    return max(0.0, ratio(float((n * mean**2 - variance).sum()), float(bins[:, 2].sum())))


def _mean(sums: Floats) -> float:
    return ratio(float(sums[1]), float(sums[0]))


def _lean(sums: Floats) -> Lean:
    named = dict(zip(gap.ROW_SUMS, map(float, sums), strict=True))
    rows, positive, differing = named["rows"], named["positive"], named["differing"]
    pi = ratio(positive, differing)
    # (P - pi V)^2 / V summed over rows: P^2 / V - 2 pi P + pi^2 V.
    spread = named["positive2_by_differing"] - 2 * pi * positive + pi * pi * differing
    chi = ratio(spread, pi * (1 - pi) * rows, 1.0)
    # The correlation of (P - pi V) / sqrt V = s - pi t with A, over rows with an advantage.
    n, correlation = named["n"], 0.0
    if n >= 3:
        mean_w, mean_a = (named["s"] - pi * named["t"]) / n, named["a"] / n
        w2 = (named["s2"] - 2 * pi * named["st"] + pi * pi * named["t2"]) / n - mean_w**2
        a2 = named["a2"] / n - mean_a**2
        cov = (named["as"] - pi * named["at"]) / n - mean_w * mean_a
        if w2 > 1e-12 and a2 > 1e-12 * max(1.0, named["a2"] / n):
            correlation = max(-1.0, min(1.0, cov / sqrt(w2 * a2)))
    return Lean(
        tau=sqrt(max(0.0, chi - 1) * ratio(rows, 4 * differing)),
        z_tau=(chi - 1) * sqrt(rows / 2),
        correlation=correlation,
        z_correlation=correlation * sqrt(max(0.0, n - 2) / max(1e-9, 1 - correlation**2)),
        n=int(n),
    )


@frozen
class Yardstick:
    """How far apart two engines of this model are where nothing is wrong: the core of a clean dump's log-odds, and the
    dump's name."""

    core: float
    name: str


@frozen
class Context:
    """What a dump calls its columns: of rollout's log-probs and training's, and of the advantages, else rewards, that
    went into the totals (None without either).  clean: what a clean dump of the same model shows, if there is one."""

    rollout: str = "rollout_log_probs"
    train: str = "old_log_probs"
    advantage: str | None = None
    clean: Yardstick | None = None


SITS_ON = {
    "all": PARTS,
    "paired": PARTS[ODD + 1 :],
    "odd": (PARTS[ODD],),
    "first": ("first",),
    "last": ("last",),
    "seams": ("gap", "after_gap"),
    "inner": (PARTS[BODY],),
}
"""What a cause's row says that it sits on -> the parts of the tokens; others sit on the body, as Features take it."""


@frozen(kw_only=True)
class Case:
    """A sample of a dump's rows with their context, and what follows from them.

    place: at which the gap sits.  is_part: whether these are the rows of such a place, or all others.
    """

    sample: RowSample
    context: Context
    place: PlaceOfGap | None = None
    is_part: bool = False

    @property
    def totals(self) -> GapTotals:
        """The sums over the rows."""
        return gap_totals(self.sample).totals

    @cached_property
    def features(self) -> Features:
        """See Features."""
        return features_of(self.totals)

    @cached_property
    def step(self) -> Step | None:
        """See Step; None as well where the bound is that of a grid."""
        step, sample = step_of(self.totals), self.sample
        if step is None:
            return None
        bound = -log(step.bound)
        near = (sample.scored < 0) & (sample.scored >= -NEAR_BOUND * bound)
        higher = sample.train[near] - sample.scored[near] > bound / 2
        is_moved = higher.sum() > MOST_HIGHER * near.sum() and step.errors > AGAINST_TOP_P * step.judged
        return None if is_moved or FIRST_STEPS * first_step(sample.rollout) >= bound else step

    @cached_property
    def by_token(self) -> ByToken | None:
        """None without token ids."""
        return None if self.totals.vocabulary is None else by_token(self.totals.vocabulary)

    @cached_property
    def repetition(self) -> Repetition | None:
        """None without token ids, or with too few repeated tokens."""
        return None if self.totals.vocabulary is None else repetition(self.totals.vocabulary)

    @cached_property
    def mirrored(self) -> "Case":
        """The same rows with their two columns exchanged."""
        context = replace(self.context, rollout=self.context.train, train=self.context.rollout)
        sample = replace(self.sample, rollout=self.sample.train, train=self.sample.rollout)
        return Case(sample=sample, context=context)

    @property
    def widest_noise(self) -> float:
        """The largest core that rounding leaves, of this model where a clean dump tells."""
        clean = self.context.clean
        return OTHER_CORE if clean is None else CLEAN_TIMES * clean.core

    @property
    def goes_with_token(self) -> bool:
        """Whether d goes with the token, as it does where weights differ.

        The rounding of weights to bf16 goes with the token too, but moves log-odds by a smaller share.
        """
        return self.by_token is not None and self.by_token.holds and self.size_by_token >= LEAST_BY_TOKEN

    @property
    def size_by_token(self) -> float:
        """How far log-odds differ by token, typically, as a share of how far they spread: the root of omega^2, of the
        core, over the deviation of u."""
        return 0.0 if self.by_token is None else self._size(self.by_token.omega2)

    @property
    def may_be_weights(self) -> bool:
        """Whether a spread of d may be of changed weights: no clean dump tells, and of ids there are none, or so few
        that as much as LEAST_BY_TOKEN may go with them, or half of it does beyond chance."""
        if self.context.clean is not None or self.by_token is None:
            return self.context.clean is None
        beyond_chance = self.by_token.holds * self.size_by_token
        return max(self._size(self.by_token.most), 2 * beyond_chance) >= LEAST_BY_TOKEN

    @cached_property
    def distances(self) -> Floats | None:
        """How far tokens are off: |d| over the `loud` of their bin of u, 0.0 outside; None where no bin has a spread.

        Of the FIRST_TOKENS of the sample, whose rows are in the order of their keys.  f64[V].
        """
        sample, spread = self.sample, self.features.spread
        if spread is None:
            return None
        gaps = TokenGaps.of(*(each[:FIRST_TOKENS].astype(np.float64) for each in (sample.rollout, sample.train)))
        return np.abs(gaps.d) / spread.loud[gaps.surprise] * gaps.inside

    @cached_property
    def over_noise(self) -> float:
        """That of Spread; where it is above MOST_OVER_NOISE, no more than if a token may be as far off as its kind is:
        over the LOUD of its id, too, where the id has MIN_KIND tokens and is louder than their bins."""
        most, sample = self.features.over_noise, self.sample
        if most < MOST_OVER_NOISE or sample.token_ids is None or self.distances is None:
            return most
        off = self.distances
        ids = (sample.token_ids if sample.valid is None else sample.token_ids[sample.valid])[: len(off)]
        off, ids = off[off > 0], ids[off > 0]
        _, kind, counts = np.unique(ids, return_inverse=True, return_counts=True)
        loud = off[np.lexsort((off, kind))][np.cumsum(counts) - 1 - ((1 - LOUD) * counts).astype(np.int64)]
        z = off / np.maximum(1.0, np.where(counts >= MIN_KIND, loud, 1.0))[kind]
        return min(most, max(1.0, sqrt(float((z**2).mean()) / noise_square(z, np.ones_like(z)))))

    def noise_share(self, noise_gap: float) -> float:
        """What noise makes of the gap, loud kinds of tokens included.  noise_gap: of Features."""
        return self.features.share(noise_gap * ratio(self.features.over_noise, self.over_noise, 1.0) ** 2)

    @property
    def omega2_of_weights(self) -> float:
        """The omega^2 from which on size_by_token is LEAST_BY_TOKEN, of 1 at most."""
        return min(1.0, ratio(LEAST_BY_TOKEN * self.features.lines["u"].spread, self.features.core, 1.0) ** 2)

    def _size(self, omega2: float) -> float:
        return ratio(sqrt(max(0.0, omega2)) * self.features.core, self.features.lines["u"].spread)

    def tokens_at(self, *parts: str) -> dict[str, float]:
        """gap.PLACE_SUMS by name over some parts."""
        sums = self.totals.places[[PARTS.index(part) for part in parts]].sum(axis=0)
        return dict(zip(gap.PLACE_SUMS, map(float, sums), strict=True))


Rule = Callable[[Case], CauseFinding | None]
"""What seeks a cause, or a few that the same numbers tell apart; they stand in RULES of their modules by its name."""


def listed_features(case: Case) -> dict[str, float | None]:
    """Every number that a rule looks at; None where a dump has too little for it."""

    def of(found: object, names: dict[str, str]) -> dict[str, float | None]:
        return {name: None if found is None else float(getattr(found, field)) for name, field in names.items()}

    f = case.features
    listed: dict[str, float | None] = {
        "curve": f.curve,
        "mean_rho": 1 + f.forward.value,
        "mean_rho_error": f.forward.error,
        "mean_inverse_rho": 1 + f.inverse.value,
        "mean_inverse_rho_error": f.inverse.error,
        "positive_fraction": f.positive,
        **of(f.spread, {f"d_{name}": name for name in ("core", "tail", "over_noise", "n_far", "below", "fan")}),
    }
    for name, line in f.lines.items():
        known = line if line.n >= 3 else None
        listed |= of(known, {f"line_{name}_{field}": field for field in ("slope", "error", "r2", "match")})
    return {
        **listed,
        "lean": f.lean.tau,
        "lean_z": f.lean.z_tau,
        "advantage_correlation": f.lean.correlation if f.lean.n else None,
        "advantage_z": f.lean.z_correlation if f.lean.n else None,
        **of(case.step, {f"step_{name}": name for name in ("cut", "bound", "errors", "judged", "least_left")}),
        **of(case.by_token, {"by_token": "omega2", "by_token_error": "error", "by_token_least": "least"}),
        **of(case.repetition, {"repeated_difference": "difference", "repeated_share": "eta2"}),
        "odd_rows": float(case.totals.n_odd),
    }
