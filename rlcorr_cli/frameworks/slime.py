"""slime's mis.py (2026-08): config keys, arithmetic and metric names.

Every metric is a mean over a rollout's loss tokens, then over rollouts: a sample's sum over its tokens is divided by
the loss tokens of all samples of its rollout (`rollout_ids`), and the sum of that by the rollouts of the step.  Without
such a column each sample is a rollout.  A rollout without a loss token counts as 0 in every metric, the logged factor
included; the batch mean of sequence weights is over all samples, one without a loss token at 0, and knows no rollouts.

`mask` mode leaves the weights raw and clears tokens (IcePop); rejection bounds that are not given are the weights'
bounds, a low that is not given is 1 / high; weights are divided by the batch mean after rejection, unless that is 1e-8
or less.  Limits act after reducing.  With use_tis off slime returns before it rejects anything.
"""

from dataclasses import replace
from typing import Any

from rlcorr_cli.errors import UsageError, contradiction, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, counted_empty, key_of, rejections_by, with_empty
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.metrics.framework_names import SLIME_SAME_NAMES
from rlcorr_cli.metrics.metric import evaluated
from rlcorr_cli.plans.plan import LEVELS, Bounds, Plan, Rejection, Weighting, WeightScope, opsm
from rlcorr_cli.totals.earlier_readings import EMPTY, ROLLOUT
from rlcorr_cli.totals.view import BatchMean, Numbers, Values, family_of

KEYS = (
    *("use_tis", "use_rs", "tis_level", "rs_level", "tis_mode"),
    *("tis_lower_bound", "tis_upper_bound", "rs_lower_bound", "rs_upper_bound"),
    *("rs_veto_threshold", "tis_batch_normalize"),
)

_BATCH_MEAN = BatchMean(counts_empty=True, smallest=1e-8)


def _slime_plan(config: Config) -> Plan:
    config.check_keys(KEYS, "slime")
    bounds = config.around_one("slime", "tis_upper_bound", "tis_lower_bound")
    rejections = _rejected(config, bounds) if config.flag("use_rs") else ()
    if not config.flag("use_tis", True):
        return Plan("slime")
    scope: WeightScope = config.choice("tis_level", tuple(LEVELS), "token")
    mode = config.choice("tis_mode", ("truncate", "clip", "mask"), "truncate")
    kept = {"truncate": Bounds(None, bounds.high), "clip": bounds, "mask": Bounds()}[mode]
    normalize = "batch" if config.flag("tis_batch_normalize") else "none"
    if normalize == "batch" and scope == "geometric":
        raise contradiction(
            "tis_batch_normalize: true", "tis_level: geometric", "slime normalises token and sequence weights only."
        )
    if mode == "mask":
        rejections = (Rejection("ratio", LEVELS[scope], bounds, "tis"), *rejections)
    return Plan("slime", Weighting(scope, kept, normalize=normalize), rejections)


def _rejected(config: Config, bounds: Bounds) -> tuple[Rejection, ...]:
    low, high = config.number("rs_lower_bound"), config.positive("rs_upper_bound")
    own = Bounds(bounds.low if low is None else low, bounds.high if high is None else high)
    scope: WeightScope = config.choice("rs_level", tuple(LEVELS), "token")
    return (Rejection("ratio", LEVELS[scope], own, "rs"), *config.vetoes("rs_veto_threshold"))


def _slime_metrics(numbers: Numbers, plan: Plan) -> Values:
    over = numbers.under(f"{ROLLOUT}.") if numbers.has(f"{ROLLOUT}.{EMPTY}") else numbers
    values = evaluated((metric for metric in METRICS if metric.name in SLIME_SAME_NAMES), over)
    # Averaged over each sequence's tokens, b - a is the log-perplexity difference.
    averaged = family_of(over, "seq.", True, 0.0)
    values |= {"kl": values["log_ppl_diff"]}
    values |= {"k3_kl": averaged.per_sequence("k3"), "chi2_token": averaged.per_sequence("chi2")}
    values |= _weights(numbers, over, plan) | _rejections(over, plan)
    return {f"mis_{name}": with_empty(value, over, 0.0) for name, value in values.items()}


def _weights(numbers: Numbers, over: Numbers, plan: Plan) -> Values:
    """over: the totals that averages are of."""
    if plan.weighting is None:
        return {}
    token_scope = plan.weighting.scope == "token"
    raw, applied = (family_of(over, stage, token_scope, 1.0) for stage in ("weight.", "applied."))
    values = {
        "tis_weight_before_bound": raw.seq_mean(),
        "tis_weight_after_bound": applied.seq_mean(),
        "is_ratio_mean_after_tis_rs": applied.seq_mean(),
    }
    final = applied
    if plan.weighting.normalize == "batch":
        final = family_of(over, "normed.", token_scope, 1.0)
        values["batch_norm_factor"] = _BATCH_MEAN.factor(numbers, token_scope) if numbers.tokens else None
    values["is_ratio_mean_final"] = final.seq_mean()
    values["is_ratio_min_final"] = final.per_sequence("row_low")
    values["is_ratio_max_final"] = final.per_sequence("row_high")
    return values | _bound_shares(over, plan)


def _bound_shares(numbers: Numbers, plan: Plan) -> Values:
    """Shares of tokens beyond the weights' bounds, under the name of the mode."""
    masks = any(rejection.name == "tis" for rejection in plan.rejections)
    family = family_of(numbers, "rs.tis." if masks else "weight.", True, 1.0)
    high, low = family.per_sequence("high_share"), family.per_sequence("low_share")
    if masks:
        return {"tis_mask_fraction_low": low, "tis_mask_fraction_high": high}
    if plan.weighting is not None and plan.weighting.bounds.low is not None:
        return {"tis_clip_fraction_low": low, "tis_clip_fraction_high": high}
    return {"tis_truncate_fraction": high}


def _rejections(numbers: Numbers, plan: Plan) -> Values:
    values: Values = {}
    for rejection in plan.rejections:
        family = family_of(numbers, f"rs.{rejection.name}.", True, 1.0)
        if rejection.name == "rs":
            values["rs_mask_fraction_low"] = family.per_sequence("low_share")
            values["rs_mask_fraction_high"] = family.per_sequence("high_share")
        elif rejection.is_veto:
            values["rs_catastrophic_token_fraction"] = family.per_sequence("catastrophic_share")
            values["rs_catastrophic_seq_fraction"] = family.per_sequence("seq_masked")
    return values


def _slime_config_notes(config: Config) -> tuple[str, ...]:
    if config.flag("use_tis", True) or not config.flag("use_rs"):
        return ()
    return ("slime does nothing with use_rs where use_tis is false: it rejects nothing and logs no mis_rs_*.",)


def _slime_remarks(numbers: Numbers, plan: Plan) -> tuple[str, ...]:
    """Remarks on what the averages are over."""
    of_samples = counted_empty(numbers, "slime", "0 in the mean over samples of every mis_*")
    if not numbers.has(f"{ROLLOUT}.{EMPTY}"):
        return of_samples
    over = numbers.under(f"{ROLLOUT}.")
    rows, rollouts = int(numbers.sum("rows")), round(over.sequences + over.sum(EMPTY))
    if rollouts == rows:
        return of_samples
    empty = f", {round(over.sum(EMPTY)):,} of them without a valid token, which count as 0" if over.sum(EMPTY) else ""
    return (
        f"{rows:,} samples of {rollouts:,} rollouts (rollout_ids){empty}: every mis_* is a mean over rollouts, whose "
        "samples share their loss tokens as divisor.",
    )


_FLAGS = ("tis_clip", "tis_clip_low", "custom_tis_function_path", "use_opsm", "opsm_delta", "use_rollout_logprobs")


def _slime_run_plan(config: Config) -> Plan:
    """The plan of a run's flags, with the options of mis.py where they stand beside."""
    own = Config({key: value for key, value in config.items() if key in KEYS})
    plan = Plan("slime", log_ratio_limit=None)
    if any(key != "use_tis" for key in own):
        plan = _slime_plan(own)
    elif own.flag("use_tis"):
        low, high = config.number("tis_clip_low", 0.0), config.positive("tis_clip", 2.0)
        function = config.get("custom_tis_function_path")
        if function is not None and "icepop" not in str(function):
            raise UsageError(
                f"custom_tis_function_path: {shortened(function)} cannot be read as a plan.",
                "Of mis.py's function name the file of custom_config_path, which holds tis_mode and the like.",
            )
        outside = "clamp" if function is None else "zero"
        plan = replace(plan, weighting=Weighting("token", Bounds(low, high), outside))
    delta = config.number("opsm_delta", 1e-4)
    if config.flag("use_opsm") and delta is not None:
        plan = replace(plan, rejections=(*plan.rejections, opsm(delta, "drift", "token")))
    return replace(plan, mode="bypass") if config.flag("use_rollout_logprobs") else plan


def _slime_config(plan: Plan) -> dict[str, Any]:
    weighting, rejections = plan.weighting, rejections_by(plan)
    options: dict[str, Any] = {"use_tis": weighting is not None}
    masks = rejections.get(("k1", "seq_mean"))
    if masks is not None:
        options |= {"use_opsm": True, "opsm_delta": masks.bounds.high}
    if weighting is not None and weighting.outside == "zero":
        options |= {"tis_clip": weighting.bounds.high, "tis_clip_low": weighting.bounds.low or 0.0}
        options["custom_tis_function_path"] = "slime.backends.megatron_utils.loss.icepop_function"
    elif weighting is not None:
        bounds = weighting.bounds
        options |= {"tis_level": weighting.scope, "tis_mode": "clip" if bounds.low else "truncate"}
        options |= {"tis_upper_bound": bounds.high} | ({"tis_lower_bound": bounds.low} if bounds.low else {})
        options |= {"tis_batch_normalize": True} if weighting.normalize == "batch" else {}
        own = next((each for each in plan.rejections if each.statistic == "ratio" and key_of(LEVELS, each.scope)), None)
        low = next((each.bounds.low for each in plan.rejections if each.is_veto), None)
        if own is not None:
            options |= {"use_rs": True, "rs_level": key_of(LEVELS, own.scope)}
            options |= {"rs_lower_bound": own.bounds.low or 0.0, "rs_upper_bound": own.bounds.high}
            options |= {} if low is None else {"rs_veto_threshold": low}
            if bounds == Bounds():
                options |= {"tis_mode": "mask", "tis_upper_bound": own.bounds.high}
                options |= {"tis_lower_bound": own.bounds.low or 0.0, "use_rs": False}
    return options | ({"use_rollout_logprobs": True} if plan.mode == "bypass" else {})


SLIME_RUN = Framework(
    name="slime",
    keys=(*KEYS, *_FLAGS),
    blocks=(("custom_config",), ("mis",)),
    to_plan=_slime_run_plan,
    to_config=_slime_config,
    config_notes=lambda config: _slime_config_notes(config) if "use_rs" in config else (),
    switches={
        "loss_type": Switch(
            "policy_loss",
            {
                "custom_loss": "a function of one's own decides what is corrected",
                "sft_loss value_loss": "it has no ratio to correct",
            },
        ),
        "policy_loss_mode": Switch(
            "ppo vanilla", {"dppo_binary_tv dppo_binary_kl": "it masks tokens by the current policy's divergence"}
        ),
    },
    family="tis_|rs_|opsm_|use_tis|use_rs|use_opsm|custom_tis|m2_|dppo_",
)
"""A run's own flags, which need no profile.  OPSM looks at each token's own advantage."""

SLIME = Framework(
    name="slime",
    keys=KEYS,
    blocks=(("custom_config",), ("mis",)),
    to_plan=_slime_plan,
    write=_slime_metrics,
    batch_mean=_BATCH_MEAN,
    by_rollout=True,
    config_notes=_slime_config_notes,
    remarks=_slime_remarks,
)
