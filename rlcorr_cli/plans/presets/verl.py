"""verl 0.9.1's own presets, beside those of its guide: IcePop weights, k1 and k3 rejection.

Rejections clamp each token's log-ratio to +-20 before they reduce it, as verl does from 0.7 on.
"""

import math

from rlcorr_cli.plans.plan import Bounds, Loss, Mode, Plan, Rejection, Weighting
from rlcorr_cli.plans.presets.preset import Preset

_TOKEN = Weighting("token", Bounds(None, 2.0))
_SEQUENCE = Weighting("sequence", Bounds(None, 2.0))
_ICEPOP = Weighting("token", Bounds(0.5, 5.0), "zero")
_GEO = Rejection("k1", "seq_mean", Bounds(math.log(0.999), math.log(1.001)), "seq_mean_k1")
_K3 = Rejection("k3", "seq_mean", Bounds(None, 0.01), "seq_mean_k3")
_INVERSE = "verl tests -l: bounds 0.999_1.001 keep geometric ratios from 1/1.001 to 1/0.999. It carries no veto."


def _row(
    name: str,
    weighting: Weighting | None,
    rejection: Rejection | None,
    when: str,
    *,
    mode: Mode = "decoupled",
    loss: Loss = "ppo_clip",
) -> Preset:
    rejections = () if rejection is None else (rejection,)
    plan = Plan(name, weighting, rejections, limit_on="token", mode=mode, loss=loss)
    note = _INVERSE if rejection is _GEO else ""
    return Preset(plan=plan, when=when, source=f"verl 0.9.1, RolloutCorrectionConfig.{name}", note=note)


ROWS: tuple[Preset, ...] = (
    _row("decoupled_token_icepop", _ICEPOP, None, "Token weights, zero for tokens far off policy."),
    _row("decoupled_geo_rs_seq_tis", _SEQUENCE, _GEO, "Geometric rejection, then sequence weights."),
    _row("decoupled_geo_rs_token_tis", _TOKEN, _GEO, "Geometric rejection, then token weights."),
    _row("decoupled_k3_rs", None, _K3, "Drop sequences with a large mean k3."),
    _row("decoupled_k3_rs_seq_tis", _SEQUENCE, _K3, "k3 rejection, then sequence weights."),
    _row("decoupled_k3_rs_token_tis", _TOKEN, _K3, "k3 rejection, then token weights."),
    _row("bypass_ppo_clip_geo_rs", None, _GEO, "Bypass PPO on what geometric rejection keeps.", mode="bypass"),
    _row("bypass_ppo_clip_k3_rs", None, _K3, "Bypass PPO on what k3 rejection keeps.", mode="bypass"),
    _row("bypass_pg_token_icepop", _ICEPOP, None, "REINFORCE with IcePop weights.", mode="bypass", loss="reinforce"),
    _row(
        "bypass_pg_geo_rs_seq_tis", _SEQUENCE, _GEO, "REINFORCE, geometric, sequence.", mode="bypass", loss="reinforce"
    ),
    _row("bypass_pg_geo_rs_token_tis", _TOKEN, _GEO, "REINFORCE, geometric, token.", mode="bypass", loss="reinforce"),
)
