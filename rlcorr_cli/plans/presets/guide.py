"""The presets of verl's rollout correction guide, 2025-10 and 2025-11: the core of what everybody names."""

from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.plans.presets.preset import Preset

_TOKEN = Weighting("token", Bounds(None, 2.0))
_SEQUENCE = Weighting("sequence", Bounds(None, 2.0))
_GEOMETRIC = Rejection("ratio", "seq_mean", Bounds(0.999, 1.001), "geometric")
_VETO = veto(1e-4)
_GUIDE = "verl's rollout correction guide (2025-11)"

ROWS: tuple[Preset, ...] = (
    Preset(Plan("disabled"), (), "Diagnostics only: look before you correct.", _GUIDE),
    Preset(
        Plan("decoupled_token_is", _TOKEN),
        ("token_is", "token_tis"),
        "Small to moderate mismatch: low variance, some bias.",
        f"{_GUIDE}, rollout_is=token, threshold 2.0",
    ),
    Preset(
        Plan("decoupled_seq_is", _SEQUENCE),
        ("seq_is", "seq_tis"),
        "Short sequences: unbiased up to the cap, high variance.",
        f"{_GUIDE}, rollout_is=sequence, threshold 2.0",
    ),
    Preset(
        Plan("decoupled_seq_is_rs", _SEQUENCE, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "sequence"),)),
        ("seq_is_rs",),
        "As seq_is, and sequences far off policy are dropped.",
        f"{_GUIDE}, rollout_is=sequence, rollout_rs=sequence [0.5, 2.0]",
    ),
    Preset(
        Plan("seq_mis", _SEQUENCE, (Rejection("ratio", "seq_sum", Bounds(0.0, 2.0), "sequence"),)),
        (),
        "Masked IS: true sequence weights, capped sequences dropped.",
        f"{_GUIDE}, rollout_is=sequence, rollout_rs=sequence [0, 2.0]",
    ),
    Preset(
        Plan("decoupled_geo_rs", None, (_GEOMETRIC, _VETO)),
        ("geo_rs",),
        "Long sequences: length-independent rejection, no weights.",
        f"{_GUIDE}, rollout_rs=geometric [0.999, 1.001], veto 1e-4",
    ),
    Preset(
        Plan("ppo_is_bypass", None, mode="bypass"),
        ("bypass_ppo_clip",),
        "No old log-prob pass: PPO's own ratio corrects.",
        f"{_GUIDE}, bypass_old_logprob_for_rollout",
    ),
    Preset(
        Plan("pg_is", _SEQUENCE, mode="bypass", loss="reinforce"),
        ("pure_is", "bypass_pg_is"),
        "REINFORCE with sequence weights, no clipping.",
        f"{_GUIDE}, use_pure_rollout_correction, rollout_is=sequence 2.0",
    ),
    Preset(
        Plan("pg_rs", None, (_GEOMETRIC, _VETO), mode="bypass", loss="reinforce"),
        ("bypass_pg_geo_rs",),
        "REINFORCE on what geometric rejection keeps.",
        f"{_GUIDE}, use_pure_rollout_correction, rollout_rs=geometric, veto 1e-4",
    ),
    Preset(
        Plan("token_is_token_rs", _TOKEN, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        (),
        "Token weights, and tokens beyond the cap are masked.",
        "verl's rollout correction guide (2025-10), manual: token IS + token RS",
    ),
    Preset(
        Plan("token_rs", None, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        (),
        "Mask single tokens far off policy, no weights.",
        "verl's rollout correction guide (2025-10), manual: token RS",
    ),
    Preset(
        Plan("seq_rs", None, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "sequence"),)),
        (),
        "Drop sequences far off policy, no weights.",
        "verl's rollout correction guide (2025-10), manual: sequence RS",
    ),
    Preset(
        Plan("geo_is", Weighting("geometric", Bounds(None, 2.0))),
        (),
        "Length-normalised sequence weights: low variance, biased.",
        "verl's rollout-IS documents (2025-10), rollout_is_level=geometric",
    ),
)
