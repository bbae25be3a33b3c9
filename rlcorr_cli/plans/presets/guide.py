"""The presets of verl's rollout correction guide, 2025-10 and 2025-11: the core of what everybody names."""

from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.plans.presets.preset import Preset

_TOKEN = Weighting("token", Bounds(None, 2.0))
_SEQUENCE = Weighting("sequence", Bounds(None, 2.0))
_GEOMETRIC = Rejection("ratio", "seq_mean", Bounds(0.999, 1.001), "geometric")
_VETO = veto(1e-4)
_GUIDE = "verl's rollout correction guide (2025-11)"

ROWS: tuple[Preset, ...] = (
    Preset(plan=Plan("disabled"), when="Diagnostics only: look before you correct.", source=_GUIDE),
    Preset(
        plan=Plan("decoupled_token_is", _TOKEN),
        aliases=("token_is", "token_tis"),
        when="Small to moderate mismatch: low variance, some bias.",
        source=f"{_GUIDE}, rollout_is=token, threshold 2.0",
    ),
    Preset(
        plan=Plan("decoupled_seq_is", _SEQUENCE),
        aliases=("seq_is", "seq_tis"),
        when="Short sequences: unbiased up to the cap, high variance.",
        source=f"{_GUIDE}, rollout_is=sequence, threshold 2.0",
    ),
    Preset(
        plan=Plan("decoupled_seq_is_rs", _SEQUENCE, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "sequence"),)),
        aliases=("seq_is_rs",),
        when="As seq_is, and sequences far off policy are dropped.",
        source=f"{_GUIDE}, rollout_is=sequence, rollout_rs=sequence [0.5, 2.0]",
    ),
    Preset(
        plan=Plan("seq_mis", _SEQUENCE, (Rejection("ratio", "seq_sum", Bounds(0.0, 2.0), "sequence"),)),
        when="Masked IS: true sequence weights, capped sequences dropped.",
        source=f"{_GUIDE}, rollout_is=sequence, rollout_rs=sequence [0, 2.0]",
    ),
    Preset(
        plan=Plan("decoupled_geo_rs", None, (_GEOMETRIC, _VETO)),
        aliases=("geo_rs",),
        when="Long sequences: length-independent rejection, no weights.",
        source=f"{_GUIDE}, rollout_rs=geometric [0.999, 1.001], veto 1e-4",
    ),
    Preset(
        plan=Plan("ppo_is_bypass", None, mode="bypass"),
        aliases=("bypass_ppo_clip",),
        when="No old log-prob pass: PPO's own ratio corrects.",
        source=f"{_GUIDE}, bypass_old_logprob_for_rollout",
    ),
    Preset(
        plan=Plan("pg_is", _SEQUENCE, mode="bypass", loss="reinforce"),
        aliases=("pure_is", "bypass_pg_is"),
        when="REINFORCE with sequence weights, no clipping.",
        source=f"{_GUIDE}, use_pure_rollout_correction, rollout_is=sequence 2.0",
    ),
    Preset(
        plan=Plan("pg_rs", None, (_GEOMETRIC, _VETO), mode="bypass", loss="reinforce"),
        aliases=("bypass_pg_geo_rs",),
        when="REINFORCE on what geometric rejection keeps.",
        source=f"{_GUIDE}, use_pure_rollout_correction, rollout_rs=geometric, veto 1e-4",
    ),
    Preset(
        plan=Plan("token_is_token_rs", _TOKEN, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        when="Token weights, and tokens beyond the cap are masked.",
        source="verl's rollout correction guide (2025-10), manual: token IS + token RS",
    ),
    Preset(
        plan=Plan("token_rs", None, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        when="Mask single tokens far off policy, no weights.",
        source="verl's rollout correction guide (2025-10), manual: token RS",
    ),
    Preset(
        plan=Plan("seq_rs", None, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "sequence"),)),
        when="Drop sequences far off policy, no weights.",
        source="verl's rollout correction guide (2025-10), manual: sequence RS",
    ),
    Preset(
        plan=Plan("geo_is", Weighting("geometric", Bounds(None, 2.0))),
        when="Length-normalised sequence weights: low variance, biased.",
        source="verl's rollout-IS documents (2025-10), rollout_is_level=geometric",
    ),
)
