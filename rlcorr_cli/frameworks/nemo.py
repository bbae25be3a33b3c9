"""NeMo-RL: the importance sampling keys of loss_fn, and grpo.seq_logprob_error_threshold.

Weights are e^(prev - generation), not limited; at sequence level the product.  Its nan_to_num makes those that are
infinite in float32 0 before they are bounded.  What its loss refuses at construction is refused here.

With force_on_policy_ratio the loss takes the current policy for the previous one: weights are e^(current - generation),
and PPO's own ratio is 1, which is bypass mode without a clip.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, contradiction, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, rejections_by, under
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting

_CORRECTION = "use_importance_sampling_correction"
_TYPE = "truncated_importance_sampling_type"
_RATIO = "truncated_importance_sampling_ratio"
_MIN = "truncated_importance_sampling_ratio_min"
_SEQUENCE = "sequence_level_importance_ratios"
_BY_TOKEN = "token_level_loss"
"""NeMo-RL takes weights of sequences only where it is false."""
_GATING = "is_correction_gating"
_LEVEL = "is_correction_level"
"""Of pull request 2269, in no release yet: sequence_mean takes the geometric mean of a sequence's ratios."""
_ERROR = "seq_logprob_error_threshold"
_ON_POLICY = "force_on_policy_ratio"
_KL = "reference_policy_kl_type"


def _nemo_plan(config: Config) -> Plan:
    kind = config.choice(_TYPE, ("tis", "icepop", "seq-mask-tis"))
    high, low = config.positive(_RATIO), config.positive(_MIN)
    _check_nemo(config, kind, high, low)
    rejections: list[Rejection] = []
    weighting = None
    if config.flag(_CORRECTION):
        scope = "geometric" if config.get(_LEVEL) else "sequence" if config.flag(_SEQUENCE) else "token"
        bounds = Bounds(low, high)
        weighting = {
            None: Weighting(scope, infinite="zero"),
            "tis": Weighting(scope, bounds, infinite="zero"),
            "icepop": Weighting(scope, bounds, "zero"),
            "seq-mask-tis": Weighting(scope, infinite="zero"),
        }[kind]
        if kind == "seq-mask-tis":
            rejections.append(Rejection("ratio", "seq_mean", bounds, "geometric"))
    threshold = config.positive(_ERROR)
    if threshold is not None:
        rejections.append(Rejection("exp_abs_log_ratio", "seq_mean", Bounds(None, threshold)))
    kept = tuple(rejections)
    if config.flag(_ON_POLICY):
        return Plan("nemo-rl", weighting, kept, log_ratio_limit=None, mode="bypass", loss="reinforce")
    return Plan("nemo-rl", weighting, kept, log_ratio_limit=None)


_KL_ERRORS = {
    "k1": "gen_kl_error is kl, and policy_kl_error kl with its sign turned",
    "k2": "gen_kl_error and policy_kl_error are k2_kl",
    "k3": "",
}
"""reference_policy_kl_type -> what two of its metrics then are of ours, where the names table has others."""


def _nemo_notes(plan: Plan) -> tuple[str, ...]:
    """What one may not expect of bypass mode."""
    if plan.mode != "bypass":
        return ()
    return (
        f"{_ON_POLICY}: true makes NeMo-RL take the current policy for the previous one, so the plan is in bypass "
        "mode: current_log_probs are compared with the rollout's.",
    )


def _nemo_config_notes(config: Config) -> tuple[str, ...]:
    """What the kind of KL changes, which shows in no plan, and what is in no release."""
    kind = config.choice(_KL, tuple(_KL_ERRORS))
    notes = (f"{_LEVEL} is of NeMo-RL's pull request 2269, and in no release yet.",) * bool(config.get(_LEVEL))
    if kind is None or not _KL_ERRORS[kind]:
        return notes
    return (*notes, f"{_KL}: {kind} changes no weight; NeMo-RL's {_KL_ERRORS[kind]}.")


def _check_nemo(config: Config, kind: str | None, high: float | None, low: float | None) -> None:
    config.choice(_KL, tuple(_KL_ERRORS))
    gating, level = config.get(_GATING, "ratio"), config.get(_LEVEL)
    if gating != "ratio":
        raise UsageError(
            f"{_GATING}: {shortened(gating)} is in no release of NeMo-RL, and cannot be read as a plan.",
            "Write its bound as ⟦rs⟧ instead: binary_kl_forward.seq_mean:,0.005 or abs_prob_gap.seq_mean:,0.1, say.",
        )
    if level not in (None, "sequence_mean"):
        raise UsageError(
            f"{_LEVEL}: {shortened(level)} cannot be read as a plan.",
            f"Of NeMo-RL's pull request 2269 sequence_mean is read; {_SEQUENCE} says whether weights are of tokens.",
        )
    if kind is None:
        for key, value in ((_RATIO, high), (_MIN, low)):
            if value is not None:
                raise UsageError(f"{key} says nothing without {_TYPE}.", f"Set {_TYPE}: tis, icepop or seq-mask-tis.")
        return
    if not config.flag(_CORRECTION):
        raise contradiction(f"{_TYPE}: {kind}", f"{_CORRECTION}: false", f"Set {_CORRECTION}: true.")
    if high is None:
        raise UsageError(f"{_TYPE}: {kind} needs {_RATIO}.", f"For example {_RATIO}: 2.0.")
    if low is None and kind != "tis":
        raise UsageError(f"{_TYPE}: {kind} needs {_MIN}.", f"For example {_MIN}: 0.5.")
    for option, is_on in ((f"{_SEQUENCE}: true", config.flag(_SEQUENCE)), (f"{_LEVEL}: {level}", level is not None)):
        if kind == "seq-mask-tis" and is_on:
            raise contradiction(f"{_TYPE}: {kind}", option, "seq-mask-tis weighs tokens.")


def _nemo_config(plan: Plan) -> dict[str, Any]:
    options: dict[str, Any] = {_CORRECTION: plan.weighting is not None}
    rejections, weighting = rejections_by(plan), plan.weighting
    if weighting is not None:
        geometric = rejections.get(("ratio", "seq_mean"))
        kind = "icepop" if weighting.outside == "zero" else None if weighting.bounds == Bounds() else "tis"
        kind = "seq-mask-tis" if geometric is not None else kind
        bounds = weighting.bounds if geometric is None else geometric.bounds
        options |= {_SEQUENCE: True, _BY_TOKEN: False} if weighting.scope == "sequence" else {}
        options |= {} if kind is None else {_TYPE: kind, _RATIO: bounds.high}
        options |= {_MIN: bounds.low} if kind is not None and bounds.low else {}
    if plan.mode == "bypass":
        options[_ON_POLICY] = True
    error = rejections.get(("exp_abs_log_ratio", "seq_mean"))
    return under("loss_fn", options) | ({} if error is None else under("grpo", {_ERROR: error.bounds.high}))


NEMO = Framework(
    name="NeMo-RL",
    keys=(_CORRECTION, _TYPE, _RATIO, _MIN, _SEQUENCE, _ERROR, _ON_POLICY, _KL, _GATING, _LEVEL),
    blocks=(("loss_fn",), ("grpo",)),
    switches={
        "loss_mode": Switch("", {"dppo_binary_tv": "of pull request 4069, it masks tokens by their divergence"}),
        "seq_logprob_error_in_loss": Switch("false", {"true": f"{_ERROR} is then of the current policy"}),
    },
    family="truncated_importance_|importance_sampling_|seq_logprob_error_|dppo_",
    to_plan=_nemo_plan,
    to_config=_nemo_config,
    common=(_GATING, _LEVEL),
    others=("reference_policy_kl_penalty", _BY_TOKEN),
    notes=_nemo_notes,
    config_notes=_nemo_config_notes,
)
