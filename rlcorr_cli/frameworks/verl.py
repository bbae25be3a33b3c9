"""verl: rollout_corr_helper of 0.6.1, 0.7.1, 0.8.0 and 0.9.1, what was before it, and a run's config without a profile.

First each release's config keys and plans; `verl_metrics.py` has names.  What differs there from the canonical
definitions, all of it verl's own:
* empty sequences are counted in sequence means: as weight 0, perplexity 1, difference 0, product ratio 1;
* std and ESS are of weights clamped into [1/C, C] (0.6, 0.7) and taken over tokens, whatever the scope;
* extremes of sequence ratios are exp(min(max S, 20)) and exp(min S), not limited from below;
* from 0.7 on k1 bounds are read as ratios but act on -l: "0.6_1.4" keeps 1/1.4 <= rho <= 1/0.6;
* from 0.8 on the IS family is of the applied weights, and a "low_high" threshold zeroes outside it (IcePop); the
  shares of sequences beyond a bound are of applied weights in 0.8, of raw ones in 0.9;
* 0.6.1 in bypass mode without use_policy_gradient uses the plain PPO loss: it neither weighs nor rejects and logs the
  13 diagnostics alone; with use_policy_gradient and a veto, but no rollout_rs, it logs the veto and does not apply it;
* in bypass mode with the PPO loss weights are for metrics only.

The numbers are those of verl's helper in float64.  verl runs it in float32, and 0.6.1, and 0.7.1 with its legacy
workers, log other values under the names of the 13 diagnostics: see `_ACTORS`.

Then verl-mismatch, the mismatch_helper of 2025-10 (`mismatch/` metrics), before it was renamed rollout correction.  One
ratio at one level (token, sequence, geometric) is either truncated from above or, in mask mode, left raw while what
lies outside [low, high] is masked.  Diagnostics carry `mismatch_` and there is no chi2.

Last the config of a run, read without a profile: its rollout correction and its DPPO losses, by our own numbers.
algorithm.rollout_correction is read as the newest release that knows its options does.  policy_loss.loss_mode dppo_tv
and dppo_kl mask tokens whose divergence has passed clip_ratio_low or _high in their advantage's direction, and weigh
the others by current / old, at most clip_ratio_c; other modes are objectives, or refused.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from rlcorr_cli.errors import UsageError, contradiction, nearest, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, counted_empty, key_of, scalar, under, with_empty
from rlcorr_cli.frameworks.verl_metrics import Release, batch_mean, off_policy, ratio_family, veto_metrics, write
from rlcorr_cli.plans.plan import LEVELS, Bounds, Outside, Plan, Rejection, Scope, Weighting, WeightScope, dppo
from rlcorr_cli.totals.limits import exp
from rlcorr_cli.totals.view import Numbers, Values, family_of

MODE_KEYS = (
    *("bypass_old_logprob_for_rollout", "use_pure_rollout_correction"),
    *("bypass_mode", "use_policy_gradient", "loss_type"),
)
"""How verl said bypass and loss over its releases; any of them may stand in a block."""

KEYS_0_6 = (
    *("rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold", "rollout_rs_threshold_lower"),
    *("rollout_token_veto_threshold", "rollout_is_batch_normalize", *MODE_KEYS),
)
KEYS_0_7 = tuple(key for key in KEYS_0_6 if key not in ("rollout_rs_threshold_lower", "rollout_token_veto_threshold"))
BLOCKS = (("algorithm", "rollout_correction"), ("rollout_correction",))

_SCOPES: tuple[tuple[Scope, tuple[str, ...]], ...] = (
    ("token", ("k1", "k2", "k3")),
    ("seq_sum", ("k1", "k2", "k3")),
    ("seq_mean", ("k1", "k2", "k3")),
    ("seq_max", ("k2", "k3")),
)
OPTIONS: dict[str, tuple[str, Scope]] = {
    f"{scope}_{statistic}": (statistic, scope) for scope, statistics in _SCOPES for statistic in statistics
}
"""rollout_rs of 0.7 and later: option -> (statistic, scope)."""
KPOP: dict[str, tuple[str, Scope]] = {"binary_kl": ("binary_kl", "token")}
"""The option of verl's pull request 6800, which no release has yet."""


def read_mode(config: Config) -> dict[str, Any]:
    """mode and loss of a plan from whichever release's keys are there."""
    bypass = config.flag("bypass_mode") or config.flag("bypass_old_logprob_for_rollout")
    gradient = config.flag("use_policy_gradient") or config.flag("use_pure_rollout_correction")
    loss = config.choice("loss_type", ("ppo_clip", "reinforce"))
    return {"mode": "bypass" if bypass else "decoupled", "loss": loss or ("reinforce" if gradient else "ppo_clip")}


def _read_ratio(release: Release, config: Config) -> Plan:
    """The plan of a config of 0.6.1: one ratio at one level, and a veto."""
    config.check_keys(KEYS_0_6, release.name)
    weighting, rejections, mode = _weighting(config), _ratio_rejections(config), read_mode(config)
    if mode["mode"] == "bypass" and mode["loss"] == "ppo_clip":
        return Plan(release.name, **mode)
    if mode["mode"] == "bypass" and all(rejection.is_veto for rejection in rejections):
        rejections = tuple(replace(rejection, applied=False) for rejection in rejections)
    return Plan(release.name, weighting, rejections, **mode)


def _ratio_rejections(config: Config) -> tuple[Rejection, ...]:
    rejections: list[Rejection] = []
    scope = config.choice("rollout_rs", tuple(LEVELS))
    if scope:
        bounds = config.around_one("rollout_rs", "rollout_rs_threshold", "rollout_rs_threshold_lower")
        rejections.append(Rejection("ratio", LEVELS[scope], bounds, "rs"))
    return (*rejections, *config.vetoes("rollout_token_veto_threshold"))


def _read_divergences(release: Release, config: Config) -> Plan:
    """The plan of a config of 0.7.1, 0.8.0 or 0.9.1: any of the k1, k2 and k3 options."""
    _check_is_no_older(release, config)
    config.check_keys(KEYS_0_7, release.name)
    weighting = _weighting(config, icepop=release.weights == "applied")
    known = OPTIONS | (KPOP if release.name == "verl-0.9" else {})
    options = _options(config, known)
    bounds = _option_bounds(options, config.get("rollout_rs_threshold")) if options else []
    rejections = tuple(Rejection(*known[option], ends, option) for option, ends in zip(options, bounds, strict=True))
    return Plan(release.name, weighting, rejections, limit_on="token", **read_mode(config))


def _check_is_no_older(release: Release, config: Config) -> None:
    """Refuse what 0.7.1 replaced, and IcePop's two ends before 0.8.0, by the profile that reads it."""
    older = [f"option '{key}'" for key in config if key in KEYS_0_6 and key not in KEYS_0_7]
    if str(config.get("rollout_rs")) in LEVELS:
        older.append(f"rollout_rs: {config['rollout_rs']}")
    if older:
        raise UsageError(
            f"{release.name} has no {older[0]}.", "verl 0.7.0 and earlier have it: ⟦profile verl-0.6⟧ reads it."
        )
    threshold = config.get("rollout_is_threshold")
    if release.weights == "raw" and isinstance(threshold, str) and "_" in threshold:
        raise UsageError(
            f"{release.name} has no rollout_is_threshold of two ends, {shortened(threshold)}.",
            "verl has it from 0.8.0 on: ⟦profile verl-0.8⟧ or verl-0.9 reads it.",
        )


def _weighting(config: Config, icepop: bool = False) -> Weighting | None:
    scope: WeightScope | None = config.choice("rollout_is", ("token", "sequence"))
    spec = config.get("rollout_is_threshold", 2.0)
    if scope is None or spec is None:
        return None
    outside: Outside = "clamp"
    low = None
    if icepop and isinstance(spec, str) and "_" in spec:
        low, high = _pair(spec, "rollout_is_threshold")
        outside = "zero"
    else:
        high = config.positive("rollout_is_threshold", 2.0)
    normalize = "batch" if config.flag("rollout_is_batch_normalize") else "none"
    return Weighting(scope, Bounds(low, high), outside, normalize)


def _options(config: Config, known: dict[str, tuple[str, Scope]]) -> list[str]:
    spec = config.get("rollout_rs")
    options = list(dict.fromkeys(part.strip() for part in str(spec or "").split(",") if part.strip()))
    for option in options:
        if option not in known:
            raise UsageError(f"Unknown rollout_rs option '{option}'.", f"Nearest: {nearest(option, known)}.")
    return options


def _option_bounds(options: list[str], spec: object) -> list[Bounds]:
    """One bound per option, or one shared by all; k1 takes 'low_high' or 'high' (low = 1/high), as ratios."""
    parts = [part.strip() for part in str("" if spec is None else spec).split(",") if part.strip()]
    if len(parts) == 1:
        parts *= len(options)
    if len(parts) != len(options):
        raise UsageError(
            f"rollout_rs_threshold has {len(parts)} values for {len(options)} options.",
            "Give one value for all options, or one each, separated by commas.",
        )
    bounds: list[Bounds] = []
    for option, part in zip(options, parts, strict=True):
        if option.endswith("k1"):
            low, high = _pair(part, option) if "_" in part else (1 / _positive(part, option), _positive(part, option))
            bounds.append(Bounds(math.log(low), math.log(high)))
        else:
            bounds.append(Bounds(None, _positive(part, option)))
    return bounds


def _pair(spec: str, where: str) -> tuple[float, float]:
    parts = spec.split("_")
    if len(parts) != 2:
        # verl reads "0.5_5_0" as (0.5, 50), because Python's float takes "5_0".
        raise UsageError(f"{where}: '{spec}' is not LOW_HIGH.", "Write two numbers and one underscore: 0.5_2.0.")
    low, high = _positive(parts[0], where), _positive(parts[1], where)
    if low > high:
        raise UsageError(f"{where}: low {low:g} is above high {high:g}.", "Write the smaller number first.")
    return low, high


def _positive(text: str, where: str) -> float:
    return Config({where: text}).positive(where) or 0.0


def _verl_config(release: Release, plan: Plan) -> dict[str, Any]:
    weighting = plan.weighting
    options: dict[str, Any] = {"rollout_is": None if weighting is None else weighting.scope}
    if weighting is not None:
        low, high = weighting.bounds.low, weighting.bounds.high
        is_pair = weighting.outside == "zero" and low is not None
        options["rollout_is_threshold"] = f"{scalar(low)}_{scalar(high)}" if is_pair else high
        options |= {"rollout_is_batch_normalize": True} if weighting.normalize == "batch" else {}
    by_ratio = release.rejects_by == "ratio"
    options |= _ratio_options(plan) if by_ratio else _divergence_options(plan)
    if plan.mode == "bypass":
        options["bypass_mode"] = True
    if plan.loss == "reinforce":
        options |= {"use_policy_gradient": True} if by_ratio else {"loss_type": "reinforce"}
    return under("algorithm.rollout_correction", options)


def _ratio_options(plan: Plan) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for each in plan.rejections:
        name = key_of(LEVELS, each.scope)
        if each.is_veto:
            options["rollout_token_veto_threshold"] = each.bounds.low
        elif each.statistic == "ratio" and name:
            options |= {"rollout_rs": name, "rollout_rs_threshold": each.bounds.high}
            options["rollout_rs_threshold_lower"] = each.bounds.low or 0.0
    return options


def _divergence_options(plan: Plan) -> dict[str, Any]:
    names: list[str] = []
    thresholds: list[str] = []
    for each in plan.rejections:
        low, high = each.bounds.low, each.bounds.high
        if each.statistic == "ratio":  # verl's k1 acts on -l
            if not low or high is None:
                return {}
            low, high = -math.log(high), -math.log(low)
        statistic = "k1" if each.statistic == "ratio" else each.statistic
        names.append(statistic if statistic in KPOP else f"{each.scope}_{statistic}")
        is_pair = statistic == "k1" and low is not None and high is not None
        ends = [exp(low), exp(high)] if is_pair else [high]
        if is_pair and not (ends[0] and math.isfinite(exp(high))):
            return {}  # no number of a config says it
        thresholds.append("_".join(scalar(end) for end in ends))
    return {"rollout_rs": ",".join(names), "rollout_rs_threshold": ",".join(thresholds)} if names else {}


_ACTORS: dict[str, str] = {"verl-0.6": "its actor", "verl-0.7": "the actor of its legacy workers (the default)"}
"""Releases whose actor, in decoupled mode, computes the 13 diagnostics again: from the current policy, per micro-batch,
on the mask after rejection.  The trainer's `metrics.update` puts those in place of the helper's."""


_EMPTY_AS = "weight 0, ratio 1 and perplexity 1 in its means over sequences"
"""What rows without a valid token count as."""


def _verl_notes(plan: Plan) -> tuple[str, ...]:
    """What a user of a plan should know about verl."""
    notes = list(inverse_notes(plan))
    if any(not rejection.applied for rejection in plan.rejections):
        notes.append("verl 0.6.1 in bypass mode logs a veto without rollout_rs, and does not apply it; nor is it here.")
    if any(rejection.statistic in KPOP for rejection in plan.rejections):
        notes.append("rollout_rs: binary_kl is of verl's pull request 6800, and in no release yet.")
    if plan.mode == "bypass" and plan.loss == "ppo_clip" and plan.weighting is not None:
        notes.append("In bypass mode with the PPO loss verl's weights are for metrics only.")
    return tuple(notes)


def _verl_config_notes(release: Release, config: Config) -> tuple[str, ...]:
    """What 0.6.1 reads in bypass mode without use_policy_gradient and does nothing with."""
    mode = read_mode(config)
    if release.rejects_by != "ratio" or (mode["mode"], mode["loss"]) != ("bypass", "ppo_clip"):
        return ()
    keys = [key for key in ("rollout_is", "rollout_rs", "rollout_token_veto_threshold") if config.get(key)]
    reason = "in bypass mode without use_policy_gradient it uses the plain PPO loss and logs the 13 diagnostics alone"
    return (f"verl 0.6.1 does nothing with {' and '.join(keys)}: {reason}.",) if keys else ()


def _verl_remarks(numbers: Numbers, plan: Plan) -> tuple[str, ...]:
    """Remarks on verl's numbers of these data, and on how far a run's own may lie from them."""
    remarks = [
        "These are the numbers of verl's helper in float64. A run's own are of float32: some differ by about 1e-5 of "
        "their value, and a small std, the difference of two large numbers, by some per cent."
    ]
    if plan.mode == "decoupled" and plan.name in _ACTORS:
        remarks.append(
            f"On its dashboard {_ACTORS[plan.name]} overwrites kl, k3_kl, chi2_* and the *ppl* metrics with its own, "
            "taken of the current policy, per micro-batch and after rejection."
        )
    remarks += counted_empty(numbers, "verl", _EMPTY_AS)
    zeroed = plan.weighting is not None and plan.weighting.outside == "zero"
    if zeroed and family_of(numbers, "applied.", True, 1.0).mean() == 0:
        remarks.append("Every token's weight is outside its bounds: verl stops there; its ESS is given as 0.")
    return tuple(remarks)


def inverse_notes(plan: Plan) -> tuple[str, ...]:
    """What to tell a user whose k1 bounds are not reciprocal, so that their inversion shows."""
    notes: list[str] = []
    for rejection in plan.rejections:
        low, high = rejection.bounds.low, rejection.bounds.high
        if rejection.statistic == "k1" and low is not None and high is not None and abs(low + high) > 1e-9:
            notes.append(
                f"{rejection.name}: verl tests -l, so bounds {exp(low):g}_{exp(high):g} keep ratios from "
                f"{exp(-high):.4g} to {exp(-low):.4g}, the inverse of what its documents say."
            )
    return tuple(notes)


LOGS = "It needs actor_rollout_ref.rollout.calculate_log_probs: true."


def _profile(release: Release, keys: tuple[str, ...]) -> Framework:
    return Framework(
        name=release.name,
        keys=keys,
        blocks=BLOCKS,
        to_plan=partial(_read_ratio if release.rejects_by == "ratio" else _read_divergences, release),
        write=partial(write, release),
        to_config=partial(_verl_config, release),
        batch_mean=batch_mean(release),
        notes=_verl_notes,
        config_notes=partial(_verl_config_notes, release),
        needs=LOGS,
        remarks=_verl_remarks,
    )


VERL_0_6 = _profile(Release("verl-0.6", "ratio", "raw"), KEYS_0_6)
VERL_0_7 = _profile(Release("verl-0.7", "divergences", "raw"), KEYS_0_7)
VERL_0_8 = _profile(Release("verl-0.8", "divergences", "applied", sequence_fractions="applied"), KEYS_0_7)
VERL_0_9 = _profile(Release("verl-0.9", "divergences", "applied"), KEYS_0_7)


MISMATCH_KEYS = tuple(
    f"rollout_is_{end}" for end in ("level", "mode", "threshold", "threshold_lower", "veto_threshold")
)


def _mismatch_plan(config: Config) -> Plan:
    config.check_keys(MISMATCH_KEYS, "verl-mismatch")
    scope: WeightScope = config.choice("rollout_is_level", tuple(LEVELS), "token")
    mode = config.choice("rollout_is_mode", ("truncate", "mask"), "truncate")
    bounds = config.around_one("verl-mismatch", "rollout_is_threshold", "rollout_is_threshold_lower", None)
    vetoes = config.vetoes("rollout_is_veto_threshold")
    if mode == "truncate":
        return Plan("verl-mismatch", Weighting(scope, bounds, "cap"), vetoes)
    return Plan("verl-mismatch", Weighting(scope), (Rejection("ratio", LEVELS[scope], bounds, "is"), *vetoes))


def _mismatch_metrics(numbers: Numbers, plan: Plan) -> Values:
    masks = [r for r in plan.rejections if r.name == "is"]
    assert plan.weighting is not None
    token_scope = plan.weighting.scope == "token"
    bounds = masks[0].bounds if masks else plan.weighting.bounds
    family = family_of(numbers, "rs.is." if masks else "weight.", token_scope, 1.0)
    values = {f"rollout_is_{name}": value for name, value in ratio_family(family, numbers, bounds).items()}
    if plan.weighting.scope == "geometric":
        # This release counts sequences at the sequence level only; the geometric level falls to tokens.
        values["rollout_is_ratio_fraction_high"] = family.per_token("tok_high")
        values["rollout_is_ratio_fraction_low"] = family.per_token("tok_low")
    if masks:
        values["rollout_is_masked_fraction"] = family.per_token("masked")
        values["rollout_is_seq_masked_fraction"] = with_empty(family.per_sequence("seq_masked"), numbers, 0.0)
    values |= veto_metrics(numbers, plan)
    diagnostics = {f"mismatch_{name}": value for name, value in off_policy(numbers).items() if "chi2" not in name}
    return {f"mismatch/{name}": value for name, value in (values | diagnostics).items()}


VERL_MISMATCH = Framework(
    name="verl-mismatch",
    keys=MISMATCH_KEYS,
    blocks=(("algorithm",), ("algorithm", "rollout_correction")),
    to_plan=_mismatch_plan,
    write=_mismatch_metrics,
    remarks=lambda numbers, plan: counted_empty(numbers, "verl", _EMPTY_AS),
)


_DPPO_STATISTICS = {"dppo_tv": "prob_gap", "dppo_kl": "binary_kl_signed"}
_LOSS = ("loss_mode", *(f"clip_ratio{end}" for end in ("", "_low", "_high", "_c")), "tau_pos", "tau_neg")
_ACTOR = ("actor_rollout_ref", "actor")


def _verl_run_plan(config: Config) -> Plan:
    plan = replace(_run_release(config).read(_correction(config)), name="verl")
    mode = str(config.get("loss_mode"))
    if mode == "bypass_mode" and plan.mode != "bypass":
        raise contradiction("policy_loss.loss_mode: bypass_mode", "bypass_mode: false", "Set bypass_mode: true.")
    if mode == "sapo" and (config.get("tau_pos") or 1.0, config.get("tau_neg") or 1.05) != (1.0, 1.05):
        raise UsageError("verl's sapo is read with tau_pos: 1.0 and tau_neg: 1.05 alone.", "Leave tau_* out.")
    statistic = _DPPO_STATISTICS.get(mode)
    if statistic is None:
        return replace(plan, loss="reinforce") if mode == "gpg" else plan
    if plan.weighting is not None:
        raise contradiction(
            "rollout_correction.rollout_is",
            f"policy_loss.loss_mode: {config['loss_mode']}",
            "DPPO's loss has weights of its own, and a plan has one kind: read each in a file of its own.",
        )
    both = config.positive("clip_ratio", 0.2)
    low, high = (config.positive(f"clip_ratio_{end}", both) for end in ("low", "high"))
    if low is None or high is None:
        raise UsageError("DPPO needs clip_ratio_low and clip_ratio_high.", "For example 0.05 for both.")
    masks = dppo(statistic, low, high, of="drift")
    ratio = Weighting("token", Bounds(None, config.positive("clip_ratio_c", 3.0)), of="drift")
    return replace(plan, weighting=ratio, rejections=(*plan.rejections, *masks), loss="reinforce")


def _correction(config: Config) -> Config:
    return Config({key: value for key, value in config.items() if key in KEYS_0_6})


def _run_release(config: Config) -> Framework:
    """The newest release that knows the options."""
    try:
        VERL_0_9.read(_correction(config))
    except UsageError:
        try:
            VERL_0_6.read(_correction(config))
        except UsageError:
            return VERL_0_9
        return VERL_0_6
    return VERL_0_9


def _run_notes(config: Config) -> tuple[str, ...]:
    correction = _correction(config)
    if not correction:
        return ()
    release = _run_release(config)
    read = f"read as {release.name} does, with rlcorr's own numbers; --profile {release.name} gives verl's."
    return (read, *release.notes(release.read(correction)), *release.config_notes(correction))


def _run_config(plan: Plan) -> dict[str, Any] | None:
    """DPPO's losses; what the releases have is written by their profiles."""
    for mode, statistic in _DPPO_STATISTICS.items():
        masks = plan.dppo_bounds(statistic)
        if masks is not None and plan.weighting:
            bounds = {"clip_ratio_low": masks[0], "clip_ratio_high": masks[1]}
            options = {"policy_loss": {"loss_mode": mode}, **bounds, "clip_ratio_c": plan.weighting.bounds.high}
            bypass = under("algorithm.rollout_correction", {"bypass_mode": True}) if plan.mode == "bypass" else {}
            return under(".".join(_ACTOR), options) | bypass
    return None


VERL = Framework(
    name="verl",
    keys=(*KEYS_0_6, *_LOSS),
    blocks=(_ACTOR, (*_ACTOR, "policy_loss")),
    to_plan=_verl_run_plan,
    to_config=_run_config,
    own=BLOCKS,
    switches={
        "loss_mode": Switch(
            "vanilla bypass_mode dppo_tv dppo_kl gspo sapo cispo gpg dro",
            {
                "cppo": "of pull request 6731, it masks tokens by their position and by the tokens before",
                "geo_mean": "GMPO clips each token within a sequence's mean, which no objective here does",
                "clip_cov kl_cov": "it picks tokens by a covariance, which no objective here does",
                "flow_grpo": "it is a loss of diffusion models, not of tokens",
            },
        )
    },
    common=("rollout_is", "rollout_is_threshold", "loss_type", *_LOSS),
    outside=_LOSS,
    others=("kl_loss_type",),
    config_notes=_run_notes,
    needs=LOGS,
)
