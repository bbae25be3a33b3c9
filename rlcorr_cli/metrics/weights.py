"""WEIGHTS: rollout_is_*, of a plan's importance weights, raw and as applied.

Formulas read `Weights` of `totals/view.py`.
"""

from functools import partial

from rlcorr_cli.metrics.metric import Metric, full_share, unit_ratio, zero_share
from rlcorr_cli.plans.plan import Bounds

_GUIDE = "verl's rollout correction metrics"
_APPLIED = "verl logs it without `applied_` from 0.8 on"
_raw_weight, _applied_weight = (partial(unit_ratio, source=source) for source in (_GUIDE, _APPLIED))

WEIGHTS: tuple[Metric, ...] = (
    _raw_weight(
        name="rollout_is_mean",
        formula="tok w",
        meaning="The mean raw weight. Of tokens and sequences its expectation is 1 for any two policies, if the sample "
        "covers both; of the geometric mean (--is geometric) it is smaller.",
        measured=(1.0, 1.0, 1.0),
        value=lambda w: w.raw.mean(),
        shown={"groups": 6},
        refuses="weights",
    ),
    Metric(
        name="rollout_is_std",
        formula="population std of w over tokens",
        unit="ratio",
        ideal=0.0,
        meaning="How unequal raw weights are. The larger it is, the noisier is the gradient.",
        measured=(0.0479, 0.0871, 3.7e-06),
        source=_GUIDE,
        value=lambda w: w.raw.std(),
        refuses="weights",
    ),
    _raw_weight(
        name="rollout_is_min",
        formula="min w",
        meaning="The smallest raw weight.",
        measured=(0.717, 0.192, 1.0),
        value=lambda w: w.raw.min(),
    ),
    _raw_weight(
        name="rollout_is_max",
        formula="max w",
        meaning="The largest raw weight.",
        worry="Many times the high bound: the bound sets this weight, not the policies.",
        measured=(1.38, 1.7, 1.0),
        value=lambda w: w.raw.max(),
    ),
    zero_share(
        name="rollout_is_ratio_fraction_high",
        formula="share of weights with w > high",
        meaning="How many weights the high bound cuts.",
        worry="Above a few percent: truncation biases the estimate noticeably.",
        measured=(0.0, 0.0, 0.0),
        source=_GUIDE,
        value=lambda w: w.raw.fraction("high") if w.raw.bounds.high is not None else None,
    ),
    zero_share(
        name="rollout_is_ratio_fraction_low",
        formula="share of weights with w < low",
        meaning="How many weights are below the low bound.",
        measured=(0.0, 0.0002, 0.0),
        source=_GUIDE,
        value=lambda w: w.raw.fraction("low") if w.raw.bounds != Bounds() else None,
    ),
    full_share(
        name="rollout_is_eff_sample_size",
        formula="(sum w)^2 / (U sum w^2), of applied weights",
        meaning="The share of the tokens, or of the weighted sequences, that is effective under the applied weights.",
        measured=(0.998, 0.992, 1.0),
        source=f"Kish's effective sample size; {_GUIDE}",
        value=lambda w: w.applied.ess(),
        shown={"figures": 9, "course": 5, "groups": 7},
        figure="effective share under weights",
        refuses="weights",
    ),
    _raw_weight(
        name="rollout_is_seq_mean",
        formula="seq m",
        meaning="The mean raw weight, where every sequence counts once.",
        measured=(1.0, 0.999, 1.0),
        value=lambda w: w.raw.seq_mean(),
    ),
    Metric(
        name="rollout_is_seq_std",
        formula="sample std of m over sequences",
        unit="ratio",
        ideal=0.0,
        meaning="How unequal the sequences' mean weights are.",
        measured=(0.00643, 0.0107, 4.13e-07),
        source=_GUIDE,
        value=lambda w: w.raw.seq_std(),
    ),
    _raw_weight(
        name="rollout_is_seq_min",
        formula="min m",
        meaning="The smallest mean weight of a sequence.",
        measured=(0.992, 0.969, 1.0),
        value=lambda w: w.raw.min("seq"),
    ),
    _raw_weight(
        name="rollout_is_seq_max",
        formula="max m",
        meaning="The largest mean weight of a sequence.",
        measured=(1.03, 1.03, 1.0),
        value=lambda w: w.raw.max("seq"),
    ),
    Metric(
        name="rollout_is_seq_max_deviation",
        formula="max |m - 1|",
        unit="ratio",
        ideal=0.0,
        meaning="How far from 1 the mean weight of a sequence is at most, above or below.",
        measured=(0.0285, 0.0309, 1.18e-06),
        source=_GUIDE,
        value=lambda w: w.raw.seq_max_deviation(),
    ),
    zero_share(
        name="rollout_is_seq_fraction_high",
        formula="share of sequences with m > high",
        meaning="How many sequences have a mean weight above the high bound.",
        measured=(0.0, 0.0, 0.0),
        source=_GUIDE,
        value=lambda w: w.raw.seq_fraction("high") if w.raw.bounds.high is not None else None,
    ),
    zero_share(
        name="rollout_is_seq_fraction_low",
        formula="share of sequences with m < low",
        meaning="How many sequences have a mean weight below the low bound.",
        measured=(0.0, 0.0, 0.0),
        source=_GUIDE,
        value=lambda w: w.raw.seq_fraction("low") if w.raw.bounds != Bounds() else None,
    ),
    _applied_weight(
        name="rollout_is_applied_mean",
        formula="tok w, of weights after bounds and batch mean",
        meaning="The mean weight that the loss is multiplied by. Below 1, the bounds act like a smaller learning rate.",
        measured=(1.0, 1.0, 1.0),
        value=lambda w: w.applied.mean(),
        shown={"figures": 8},
        figure="mean of applied weights",
    ),
    Metric(
        name="rollout_is_applied_std",
        formula="population std over tokens of w after bounds and batch mean",
        unit="ratio",
        ideal=0.0,
        meaning="How unequal the applied weights are.",
        measured=(0.0479, 0.0871, 3.7e-06),
        source=_APPLIED,
        value=lambda w: w.applied.std(),
    ),
    _applied_weight(
        name="rollout_is_applied_min",
        formula="min w after bounds and batch mean",
        meaning="The smallest applied weight: 0 if any weight is set to 0.",
        measured=(0.717, 0.192, 1.0),
        value=lambda w: w.applied.min(),
    ),
    _applied_weight(
        name="rollout_is_applied_max",
        formula="max w after bounds and batch mean",
        meaning="The largest applied weight.",
        measured=(1.38, 1.7, 1.0),
        value=lambda w: w.applied.max(),
    ),
    unit_ratio(
        name="rollout_is_applied_seq_mean",
        formula="seq m, of weights after bounds and batch mean",
        meaning="The mean applied weight, where every sequence counts once; one whose weight is set to 0 counts as 0.",
        measured=(1.0, 0.999, 1.0),
        source="TRL's sampling/importance_sampling_ratio/mean in sequence modes",
        value=lambda w: w.applied.seq_mean(),
    ),
)
"""Those of every weighting, in the order reports show them."""

KEPT_SIZE = full_share(
    name="rollout_is_kept_eff_sample_size",
    formula="(sum w)^2 / (U sum w^2), of applied weights, 0 for what is rejected",
    meaning="The share of the tokens, or of the weighted sequences, that is effective after weights and rejections.",
    worry="Far below rollout_is_eff_sample_size: the rejections make the batch small.",
    source="Kish's effective sample size",
    value=lambda w: w.bounded.kept_ess(),
)
"""Of weights beside rejections; not of weights divided by batch means, which no sum over batches is known of."""

OOB = zero_share(
    name="rollout_is_oob_ratio",
    formula="share of tokens whose w is zeroed",
    meaning="How many tokens get weight 0 because their ratio is outside the bounds.",
    worry="Above a few percent: the batch shrinks by this share, and the mask does not show it.",
    source="verl's IcePop metrics, from 0.8 on",
    value=lambda w: w.bounded.per_token("outside"),
)
"""Of weights that are zeroed outside their bounds."""

FACTOR = unit_ratio(
    name="rollout_is_batch_norm_factor",
    formula="mean w of the batch, after bounds",
    meaning="The number that the weights were divided by; null if batches have different ones.",
    worry="Far from 1: normalising hides a shift that rollout_is_mean shows.",
    source=_GUIDE,
    value=lambda w: w.applied.only("factor"),
)
"""Of weights that are divided by their batch's mean."""
