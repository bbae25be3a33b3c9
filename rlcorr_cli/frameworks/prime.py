"""prime-rl: trainer.loss (or loss): the default DPPO mask, ipo, kpop, and the ratio masks of before 2026-03.

The masks compare the trainer's policy with the inference one, and so does the loss's own ratio, which is the weight.
Bounds are strict there and so inclusive for what stays.
"""

from typing import Any

from rlcorr_cli.errors import UsageError, contradiction, shortened
from rlcorr_cli.frameworks.framework import Config, Framework, Switch, outlier_options, outliers, rejections_by, under
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, dppo

_DPPO = ("dppo_mask_low", "dppo_mask_high")
_IPO = ("ipo_threshold", "eps")
"""The old name, and that of since 2026-08-27."""
_KPOP = ("kpop_threshold",)
_PAIRS = {"token": (0.125, 8.0), "geo": (0.1, 10.0), "sequence": (0.0, 100.0)}
_LEGACY = tuple(f"{stem}_mask_{end}" for stem in _PAIRS for end in ("low", "high"))


def _prime_plan(config: Config) -> Plan:
    first_keys = {keys: config.first_key(keys) for keys in (_DPPO, _IPO, _KPOP, _LEGACY)}
    kind = config.choice("type", ("default", "ipo", "kpop"))
    own = ((_IPO, "ipo"), (_KPOP, "kpop"), (_LEGACY, "legacy"))
    meant = kind or next((name for keys, name in own if first_keys[keys]), "default")
    for keys, name in ((_DPPO, "default"), *own):
        if first_keys[keys] and name != meant:
            raise contradiction(
                f"loss.{first_keys[keys]}", f"loss type {meant}", "Options of one type at a time: default, ipo, kpop."
            )
    if meant == "default":
        low, high = (_gap(config, key, 0.2) for key in _DPPO)
        rejections = dppo("prob_gap", low, high)
    elif meant == "ipo":
        if set(_IPO) <= set(config):
            raise contradiction("loss.ipo_threshold", "loss.eps", "eps is its new name: keep one.")
        threshold = _gap(config, first_keys[_IPO] or "eps", 0.1)
        rejections = (Rejection("prob_gap", "token", Bounds(-threshold, threshold)),)
    elif meant == "kpop":
        rejections = (Rejection("binary_kl", "token", Bounds(None, _gap(config, "kpop_threshold", 0.1)), "kpop"),)
    else:
        rejections = _legacy(config)
    return Plan("prime-rl", Weighting("token"), rejections, log_ratio_limit=None)


def _gap(config: Config, key: str, default: float) -> float:
    value = config.number(key, default)
    if value is None or value < 0:
        raise UsageError(
            f"{key} must be a number of 0 or more, got {shortened(config[key])}.", f"prime-rl's own is {default:g}."
        )
    return value


def _legacy(config: Config) -> tuple[Rejection, ...]:
    ends = {
        stem: [config.number(f"{stem}_mask_{end}", default) for end, default in zip(("low", "high"), pair, strict=True)]
        for stem, pair in _PAIRS.items()
    }
    rejections = [
        Rejection("ratio", "token", Bounds(*ends["token"]), "token"),
        Rejection("ratio", "seq_mean", Bounds(*ends["geo"]), "geometric"),
    ]
    low, high = ends["sequence"]
    return (*rejections, *outliers(low, high, ("sequence_low", "sequence_high")))


def _prime_config(plan: Plan) -> dict[str, Any]:
    rejections = rejections_by(plan)
    masks, gap = plan.dppo_bounds("prob_gap"), rejections.get(("prob_gap", "token"))
    options: dict[str, Any] = {"type": "default"}
    if ("binary_kl", "token") in rejections:
        options = {"type": "kpop", "kpop_threshold": rejections["binary_kl", "token"].bounds.high}
    elif masks is not None:
        options |= dict(zip(_DPPO, masks, strict=True))
    elif gap is not None:
        options = {"type": "ipo", "ipo_threshold": gap.bounds.high}
    elif ("ratio", "token") in rejections:
        options = {}
        for stem, scope in (("token", "token"), ("geo", "seq_mean")):
            bounds = rejections["ratio", scope].bounds if ("ratio", scope) in rejections else Bounds()
            options |= {f"{stem}_mask_low": bounds.low, f"{stem}_mask_high": bounds.high}
        options |= outlier_options(plan, "sequence_mask")
    return under("trainer.loss", options)


PRIME = Framework(
    name="prime-rl",
    keys=("type", *_DPPO, *_IPO, *_KPOP, *_LEGACY),
    blocks=(("trainer", "loss"), ("loss",)),
    to_plan=_prime_plan,
    to_config=_prime_config,
    toml=True,
    common=("type", "eps", "geo_mask_low", "geo_mask_high"),
    switches={"ratio_type": Switch("token", {"sequence": "the masks are then of sequences' ratios"})},
    family=r"dppo_|ipo_|kpop_|\w+_mask_|mask_",
)
