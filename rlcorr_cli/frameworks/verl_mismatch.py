"""verl's mismatch_helper of 2025-10 (`mismatch/` metrics), before it was renamed rollout correction.

One ratio at one level (token, sequence, geometric) is either truncated from above or, in mask mode, left raw while
what lies outside [low, high] is masked.  Diagnostics carry `mismatch_` and there is no chi2.
"""

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.empty_rows import counted_empty, with_empty
from rlcorr_cli.frameworks.framework import Config, Framework, checked, choice, number, positive, ratio_level
from rlcorr_cli.frameworks.verl_metrics import off_policy, ratio_family, veto_metrics
from rlcorr_cli.plans.plan import LEVELS, Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.view import Numbers, Values, family_of

KEYS = (
    "rollout_is_level",
    "rollout_is_mode",
    "rollout_is_threshold",
    "rollout_is_threshold_lower",
    "rollout_is_veto_threshold",
)


def _read(config: Config) -> Plan:
    checked(config, KEYS, "verl-mismatch")
    scope = ratio_level(config, "rollout_is_level", "token")
    mode = choice(config, "rollout_is_mode", ("truncate", "mask"), "truncate")
    high = positive(config, "rollout_is_threshold")
    if high is None:
        raise UsageError("verl-mismatch needs rollout_is_threshold.", "For example rollout_is_threshold: 2.0.")
    low = number(config, "rollout_is_threshold_lower")
    bounds = Bounds(1 / high if low is None else low, high)
    threshold = positive(config, "rollout_is_veto_threshold")
    vetoes = () if threshold is None else (veto(threshold),)
    if mode == "truncate":
        return Plan("verl-mismatch", Weighting(scope, bounds, "cap"), vetoes)
    return Plan("verl-mismatch", Weighting(scope), (Rejection("ratio", LEVELS[scope], bounds, "is"), *vetoes))


def _write(numbers: Numbers, plan: Plan) -> Values:
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


def _remarks(numbers: Numbers, plan: Plan) -> tuple[str, ...]:
    return counted_empty(numbers, "verl", "weight 0, ratio 1 and perplexity 1 in its means over sequences")


VERL_MISMATCH = Framework(
    name="verl-mismatch",
    keys=KEYS,
    blocks=(("algorithm",), ("algorithm", "rollout_correction")),
    read=_read,
    write=_write,
    remarks=_remarks,
)
