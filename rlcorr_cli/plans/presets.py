"""PRESETS: name -> a named plan, one row each, with its source and when to take it.

The rows stand in the order of the list: those of verl's rollout correction guide (2025-10 and 2025-11), which are the
core of what everybody names; verl 0.9.1's own beside them; then other frameworks'.  Sources name framework, version and
option; the records follow its documents or code.  `preset_configs.py` has how frameworks write options.

verl 0.9's rejections clamp each token's log-ratio to +-20 before they reduce it, as verl does from 0.7 on.  Where a
framework's option has no default the bound here is its documents' example, and `when` or `source` says so.  TRL,
NeMo-RL, OpenRLHF, AReaL and prime-rl clamp no log-ratio before the exponential; slime's mis.py and SkyRL do, at +-20.
"""

import math

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans import preset_configs as peer
from rlcorr_cli.plans.plan import Bounds, Budget, Loss, Plan, Rejection, Weighting, dppo, opsm, veto


@frozen(kw_only=True)
class Preset:
    """A named plan.  aliases also name it; when says in one line what it is for; source where it comes from.

    note: what a user should know about the peer's arithmetic, if it departs from its own documents.  config: what a
    user of that framework has in its config; None where no framework has it as an option.
    """

    plan: Plan
    aliases: tuple[str, ...] = ()
    when: str
    source: str
    note: str = ""
    config: peer.PeerConfig | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The note as reports show it."""
        return (f"{self.name}: {self.note}",) if self.note else ()

    @property
    def name(self) -> str:
        """The preset's name in reports."""
        return self.plan.name


_TOKEN = Weighting("token", Bounds(None, 2.0))
_SEQUENCE = Weighting("sequence", Bounds(None, 2.0))
_GEOMETRIC = Rejection("ratio", "seq_mean", Bounds(0.999, 1.001), "geometric")
_VETO = veto(1e-4)
_GUIDE = "verl's rollout correction guide (2025-11)"

_GUIDE_ROWS: tuple[Preset, ...] = (
    Preset(
        plan=Plan("disabled"),
        when="Diagnostics only: look before you correct.",
        source=_GUIDE,
        config=peer.verl("verl-0.6", rollout_is="null"),
    ),
    Preset(
        plan=Plan("decoupled_token_is", _TOKEN),
        aliases=("token_is", "token_tis"),
        when="Small to moderate mismatch: low variance, some bias.",
        source=f"{_GUIDE}, rollout_is=token, threshold 2.0",
        config=peer.verl("verl-0.6", **peer.TOKEN),
    ),
    Preset(
        plan=Plan("decoupled_seq_is", _SEQUENCE),
        aliases=("seq_is", "seq_tis"),
        when="Short sequences: unbiased up to the cap, high variance.",
        source=f"{_GUIDE}, rollout_is=sequence, threshold 2.0",
        config=peer.verl("verl-0.6", **peer.SEQUENCE),
    ),
    Preset(
        plan=Plan("decoupled_seq_is_rs", _SEQUENCE, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "sequence"),)),
        aliases=("seq_is_rs",),
        when="Like seq_is, and drops sequences far off policy.",
        source=f"{_GUIDE}, rollout_is=sequence, rollout_rs=sequence [0.5, 2.0]",
        config=peer.verl("verl-0.6", **peer.SEQUENCE, **peer.sequence_rs("0.5")),
    ),
    Preset(
        plan=Plan("seq_mis", _SEQUENCE, (Rejection("ratio", "seq_sum", Bounds(0.0, 2.0), "sequence"),)),
        when="Masked IS: true sequence weights; drops sequences above the cap.",
        source=f"{_GUIDE}, rollout_is=sequence, rollout_rs=sequence [0, 2.0]",
        config=peer.verl("verl-0.6", **peer.SEQUENCE, **peer.sequence_rs("0")),
    ),
    Preset(
        plan=Plan("decoupled_geo_rs", None, (_GEOMETRIC, _VETO)),
        aliases=("geo_rs",),
        when="Long sequences: length-independent rejection, no weights.",
        source=f"{_GUIDE}, rollout_rs=geometric [0.999, 1.001], veto 1e-4",
        config=peer.verl("verl-0.6", **peer.GEO_VETO),
    ),
    Preset(
        plan=Plan("ppo_is_bypass", None, mode="bypass"),
        aliases=("bypass_ppo_clip",),
        when="No old log-prob pass: PPO's own ratio corrects.",
        source=f"{_GUIDE}, bypass_old_logprob_for_rollout",
        config=peer.verl("verl-0.6", rollout_is="null", bypass_old_logprob_for_rollout="true"),
    ),
    Preset(
        plan=Plan("pg_is", _SEQUENCE, mode="bypass", loss="reinforce"),
        aliases=("pure_is", "bypass_pg_is"),
        when="REINFORCE with sequence weights, no clipping.",
        source=f"{_GUIDE}, use_pure_rollout_correction, rollout_is=sequence 2.0",
        config=peer.verl("verl-0.6", **peer.SEQUENCE, **peer.OLD_GRADIENT),
    ),
    Preset(
        plan=Plan("pg_rs", None, (_GEOMETRIC, _VETO), mode="bypass", loss="reinforce"),
        aliases=("bypass_pg_geo_rs",),
        when="REINFORCE on what geometric rejection keeps.",
        source=f"{_GUIDE}, use_pure_rollout_correction, rollout_rs=geometric, veto 1e-4",
        config=peer.verl("verl-0.6", **peer.GEO_VETO, **peer.OLD_GRADIENT),
    ),
    Preset(
        plan=Plan("token_is_token_rs", _TOKEN, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        when="Token weights; masks tokens above the cap.",
        source="verl's rollout correction guide (2025-10), manual: token IS + token RS",
        config=peer.verl("verl-0.6", **peer.TOKEN, rollout_rs="token", rollout_rs_threshold="2.0"),
    ),
    Preset(
        plan=Plan("token_rs", None, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        when="Mask single tokens far off policy, no weights.",
        source="verl's rollout correction guide (2025-10), manual: token RS",
        config=peer.verl("verl-0.6", rollout_rs="token", rollout_rs_threshold="2.0"),
    ),
    Preset(
        plan=Plan("seq_rs", None, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "sequence"),)),
        when="Drop sequences far off policy, no weights.",
        source="verl's rollout correction guide (2025-10), manual: sequence RS",
        config=peer.verl("verl-0.6", rollout_rs="sequence", rollout_rs_threshold="2.0"),
    ),
    Preset(
        plan=Plan("geo_is", Weighting("geometric", Bounds(None, 2.0))),
        when="Length-normalised sequence weights: low variance, biased.",
        source="verl's rollout-IS documents (2025-10), rollout_is_level=geometric",
    ),
)

_ICEPOP = Weighting("token", Bounds(0.5, 5.0), "zero")
_GEO = Rejection("k1", "seq_mean", Bounds(math.log(0.999), math.log(1.001)), "seq_mean_k1")
_K3 = Rejection("k3", "seq_mean", Bounds(None, 0.01), "seq_mean_k3")
_WRITTEN = {_TOKEN: peer.TOKEN, _SEQUENCE: peer.SEQUENCE, _ICEPOP: peer.ICEPOP, _GEO: peer.GEO, _K3: peer.K3}
"""A record of verl's -> its options that say it."""
_INVERSE = "verl tests -l: bounds 0.999_1.001 keep geometric ratios from 1/1.001 to 1/0.999. It carries no veto."


def _verl(
    name: str, weighting: Weighting | None, rejection: Rejection | None, when: str, *, bypass: Loss | None = None
) -> Preset:
    """bypass: the loss in bypass mode, where the preset is of that."""
    rejections = () if rejection is None else (rejection,)
    mode, loss = ("bypass", bypass) if bypass else ("decoupled", "ppo_clip")
    plan = Plan(name, weighting, rejections, limit_on="token", mode=mode, loss=loss)
    note = _INVERSE if rejection is _GEO else ""
    options = [_WRITTEN[record] for record in (weighting, rejection) if record is not None]
    options += [peer.BYPASS if bypass == "ppo_clip" else peer.GRADIENT] if bypass else []
    config = peer.verl("verl-0.9", **{key: value for each in options for key, value in each.items()})
    source = f"verl 0.9.1, RolloutCorrectionConfig.{name}"
    return Preset(plan=plan, when=when, source=source, note=note, config=config)


_VERL_ROWS: tuple[Preset, ...] = (
    _verl("decoupled_token_icepop", _ICEPOP, None, "Token weights, 0 for tokens far off policy."),
    _verl("decoupled_geo_rs_seq_tis", _SEQUENCE, _GEO, "Geometric rejection, then sequence weights."),
    _verl("decoupled_geo_rs_token_tis", _TOKEN, _GEO, "Geometric rejection, then token weights."),
    _verl("decoupled_k3_rs", None, _K3, "Drop sequences with a large mean k3."),
    _verl("decoupled_k3_rs_seq_tis", _SEQUENCE, _K3, "k3 rejection, then sequence weights."),
    _verl("decoupled_k3_rs_token_tis", _TOKEN, _K3, "k3 rejection, then token weights."),
    _verl("bypass_ppo_clip_geo_rs", None, _GEO, "Bypass PPO on what geometric rejection keeps.", bypass="ppo_clip"),
    _verl("bypass_ppo_clip_k3_rs", None, _K3, "Bypass PPO on what k3 rejection keeps.", bypass="ppo_clip"),
    _verl("bypass_pg_token_icepop", _ICEPOP, None, "REINFORCE with IcePop weights.", bypass="reinforce"),
    _verl(
        "bypass_pg_geo_rs_seq_tis",
        _SEQUENCE,
        _GEO,
        "REINFORCE, geometric rejection, sequence weights.",
        bypass="reinforce",
    ),
    _verl(
        "bypass_pg_geo_rs_token_tis", _TOKEN, _GEO, "REINFORCE, geometric rejection, token weights.", bypass="reinforce"
    ),
)


def _prime(name: str, when: str, source: str, *rejections: Rejection, config: peer.PeerConfig) -> Preset:
    plan = Plan(name, Weighting("token"), rejections, log_ratio_limit=None)
    return Preset(plan=plan, when=when, source=source, note=_TRAINER, config=config)


_NEMO_OVERFLOW = "A weight beyond float32 (a log-ratio above 88.7) is 0 and not the cap: NeMo-RL's nan_to_num."
_TRAINER = (
    "Its loss's own ratio is the weight. "
    "prime-rl has no old policy: where the dump has both, --mode bypass compares the current one, as it does."
)


def _areal(
    name: str, *, when: str, options: str, rejection: Rejection, note: str = "", config: peer.PeerConfig
) -> Preset:
    plan = Plan(name, Weighting("token"), (rejection,), log_ratio_limit=None)
    return Preset(plan=plan, when=when, source=f"{_AREAL}, {options}", note=note, config=config)


_SLIME = "slime (2026-08)"
_TRL = "TRL GRPOConfig, vllm_importance_sampling_correction, cap 3.0"
_NEMO = "NeMo-RL, loss_fn.use_importance_sampling_correction"
_OPENRLHF = "OpenRLHF, is_correction_* (0.11) or vllm_is_correction_type, thresholds 0.5 and 5.0"
_SKYRL = "SkyRL, trainer.algorithm.off_policy_correction"
_AREAL = "AReaL 1.0, actor.rejection_sampling, action mask, upper 5.0"
_PRIME = "prime-rl, loss"
_OPEN_INSTRUCT = "open-instruct (2026-08)"
_ROLL = "ROLL, actor_train.pg_variant"
_DRIFT = "Compares the current policy with the old one: the dump needs current_log_probs, or take --mode bypass."

_FRAMEWORK_ROWS: tuple[Preset, ...] = (
    Preset(
        plan=Plan("slime_tis", Weighting("token", Bounds(0.0, 2.0)), log_ratio_limit=None),
        when="slime's own token weights, without its mis.py.",
        source=f"{_SLIME}, --use-tis, --tis-clip 2.0, --tis-clip-low 0",
        config=peer.block("", use_tis="true", tis_clip="2.0", tis_clip_low="0"),
    ),
    Preset(
        plan=Plan("slime_icepop", Weighting("token", Bounds(0.5, 5.0), "zero"), log_ratio_limit=None),
        when="Token weights, 0 outside IcePop's own bounds 0.5 and 5.",
        source=f"{_SLIME} and miles, icepop function, --tis-clip-low, --tis-clip",
        aliases=("miles_icepop",),
        config=peer.block(
            "",
            use_tis="true",
            tis_clip="5.0",
            tis_clip_low="0.5",
            custom_tis_function_path="slime.backends.megatron_utils.loss.icepop_function",
        ),
    ),
    Preset(
        plan=Plan(
            "slime_mis",
            Weighting("token", Bounds(None, 2.0), normalize="batch"),
            (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"), veto(1e-4)),
        ),
        when="Token weights of batch mean 1; masks tokens above the cap.",
        source=f"{_SLIME}, examples/train_infer_mismatch_helper/mis.yaml",
        config=peer.PeerConfig(
            "use_tis: true\ntis_level: token\ntis_mode: truncate\ntis_upper_bound: 2.0\ntis_lower_bound: 0.5\n"
            "tis_batch_normalize: true\nuse_rs: true\nrs_level: token\nrs_veto_threshold: 1.0e-4",
            "slime",
        ),
    ),
    Preset(
        plan=Plan("slime_cis", Weighting("token", Bounds(0.5, 2.0))),
        when="Token weights clipped from both sides.",
        source=f"{_SLIME}, mis.py tis_mode=clip; --is sequence or geometric for its other levels",
        config=peer.PeerConfig("use_tis: true\ntis_mode: clip\ntis_upper_bound: 2.0\ntis_lower_bound: 0.5", "slime"),
    ),
    *(
        Preset(
            plan=Plan(f"trl_{mode}", Weighting(scope, Bounds(None, 3.0), outside), log_ratio_limit=None),
            when=when,
            source=f"{_TRL}, mode {mode}",
            config=peer.block("", vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_max="3.0"),
        )
        for mode, scope, outside, when in (
            ("token_truncate", "token", "clamp", "Token weights, capped."),
            ("token_mask", "token", "zero", "Token weights, 0 above the cap."),
            ("sequence_truncate", "sequence", "clamp", "Sequence weights (the product), capped."),
            ("sequence_mask", "sequence", "zero", "TRL's default: sequence weights, 0 above the cap."),
        )
    ),
    Preset(
        plan=Plan("nemo_tis", Weighting("token", Bounds(None, 2.0), infinite="zero"), log_ratio_limit=None),
        when="Capped token weights; NeMo-RL has no default cap.",
        source=f"{_NEMO}, truncated_importance_sampling_type tis",
        note=_NEMO_OVERFLOW,
        config=peer.nemo("tis", "2.0"),
    ),
    Preset(
        plan=Plan("nemo_icepop", Weighting("token", Bounds(0.5, 5.0), "zero"), log_ratio_limit=None),
        when="Token weights, 0 outside 0.5 to 5.",
        source=f"{_NEMO}, truncated_importance_sampling_type icepop",
        config=peer.nemo("icepop", "5.0", truncated_importance_sampling_ratio_min="0.5"),
    ),
    Preset(
        plan=Plan(
            "nemo_seq_mask_tis",
            Weighting("token", infinite="zero"),
            (Rejection("ratio", "seq_mean", Bounds(0.999, 1.002), "geometric"),),
            log_ratio_limit=None,
        ),
        when="Raw token weights; keeps sequences with a ratio near 1.",
        source=f"{_NEMO}, truncated_importance_sampling_type seq-mask-tis",
        note=_NEMO_OVERFLOW,
        config=peer.nemo("seq-mask-tis", "1.002", truncated_importance_sampling_ratio_min="0.999"),
    ),
    Preset(
        plan=Plan(
            "nemo_seq_logprob_error",
            None,
            (Rejection("exp_abs_log_ratio", "seq_mean", Bounds(None, 2.0)),),
            log_ratio_limit=None,
        ),
        when="Drop sequences whose mean of e^|l| is large.",
        source="NeMo-RL, grpo.seq_logprob_error_threshold, which has no default; here 2.0",
        config=peer.block("grpo", seq_logprob_error_threshold="2.0"),
    ),
    Preset(
        plan=Plan("openrlhf_tis", Weighting("token", Bounds(0.5, 5.0)), log_ratio_limit=None),
        when="Token weights clamped from both sides.",
        source=f"{_OPENRLHF}, tis",
        config=peer.openrlhf("token", "clip"),
    ),
    Preset(
        plan=Plan("openrlhf_icepop", Weighting("token", Bounds(0.5, 5.0), "zero"), log_ratio_limit=None),
        when="Token weights, 0 outside the bounds.",
        source=f"{_OPENRLHF}, icepop",
        config=peer.openrlhf("token", "mask"),
    ),
    Preset(
        plan=Plan(
            "openrlhf_seq_mask_tis",
            Weighting("token"),
            (Rejection("ratio", "seq_mean", Bounds(0.5, 5.0), "geometric"),),
            log_ratio_limit=None,
        ),
        when="Raw token weights; keeps sequences inside bounds.",
        source=f"{_OPENRLHF}, seq-mask-tis",
        config=peer.openrlhf("seq", "mask"),
    ),
    Preset(
        plan=Plan(
            "openrlhf_flash",
            Weighting("token"),
            (Rejection("binary_kl_forward", "seq_mean", Bounds(None, 5e-3), "binary_kl"),),
            log_ratio_limit=None,
        ),
        aliases=("flash_reinforce",),
        when="Raw token weights; drops sequences by mean binary KL.",
        source="OpenRLHF 0.11.2, is_correction_gating binary_kl, level seq; 5e-3 is FlashREINFORCE's",
        config=peer.block(
            "algo.advantage",
            is_correction_level="seq",
            is_correction_mode="mask",
            is_correction_gating="binary_kl",
            is_correction_threshold="[0.005]",
        ),
    ),
    Preset(
        plan=Plan("skyrl_tis_token", Weighting("token", Bounds(None, 2.0))),
        when="Capped token weights.",
        source=f"{_SKYRL}, tis_ratio_type token, cap 2.0",
        config=peer.skyrl(tis_ratio_type="token", token_tis_ratio_clip_high="2.0"),
    ),
    Preset(
        plan=Plan("skyrl_tis_sequence", Weighting("sequence", Bounds(None, 5.0))),
        when="Capped sequence weights (the product).",
        source=f"{_SKYRL}, tis_ratio_type sequence, cap 5.0",
        config=peer.skyrl(tis_ratio_type="sequence", sequence_tis_ratio_clip_high="5.0"),
    ),
    Preset(
        plan=Plan("skyrl_geometric", None, (Rejection("ratio", "seq_mean", Bounds(0.99, 1.01), "geometric"),)),
        when="Drop sequences whose geometric ratio is over 1% from 1.",
        source=f"{_SKYRL}, sequence_mask_metric geometric, 0.99 and 1.01",
        config=peer.skyrl(sequence_mask_metric="geometric", geo_mask_low="0.99", geo_mask_high="1.01"),
    ),
    Preset(
        plan=Plan("skyrl_product", None, (Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "product"),)),
        when="Drop sequences whose product ratio is outside 0.5 to 2.",
        source=f"{_SKYRL}, sequence_mask_metric product, 0.5 and 2.0",
        config=peer.skyrl(sequence_mask_metric="product", product_mask_low="0.5", product_mask_high="2.0"),
    ),
    Preset(
        plan=Plan(
            "skyrl_outlier",
            None,
            (
                Rejection("ratio", "seq_min", Bounds(1e-4, None), "outlier_low"),
                Rejection("ratio", "seq_max", Bounds(None, 100.0), "outlier_high"),
            ),
        ),
        when="Drop sequences with a token ratio below 1e-4 or above 100.",
        source=f"{_SKYRL}, outlier_token_is_threshold_low and _high, here 1e-4 and 100",
        config=peer.skyrl(outlier_token_is_threshold_low="1.0e-4", outlier_token_is_threshold_high="100.0"),
    ),
    _areal(
        "areal_ratio_token",
        when="Raw token weights; masks tokens above a ratio.",
        options="level token, metric ratio",
        rejection=Rejection("ratio", "token", Bounds(None, 5.0)),
        config=peer.areal(level="token", action="mask", metric="ratio"),
    ),
    *(
        _areal(
            f"areal_{metric}",
            when=f"Raw token weights; drops sequences by mean {mean_of}.",
            options=f"level sequence, metric {metric}, agg mean",
            rejection=Rejection(statistic, "seq_mean", Bounds(None, 5.0)),
            note=note,
            config=peer.areal(level="sequence", action="mask", metric=metric, agg="mean"),
        )
        for metric, mean_of, statistic, note in (
            ("kl_k1", "log-ratio", "log_ratio", "AReaL's k1 is +l."),
            ("kl_k2", "k2", "k2", ""),
            ("kl_k3", "k3", "k3_reverse", "AReaL's k3 is that of the reverse direction, against its own help text."),
        )
    ),
    _areal(
        "areal_kpop",
        when="Raw token weights; masks tokens above a binary KL.",
        options="metric binary_kl (1405), upper 2.0",
        rejection=Rejection("binary_kl_float32", "token", Bounds(None, 2.0)),
        note="In float32 AReaL masks every token whose probability rounds to 1, too.",
        config=peer.areal(level="token", action="mask", metric="binary_kl", upper="2.0"),
    ),
    Preset(
        plan=Plan("m2po", None, log_ratio_limit=None, budgets=(Budget(0.04, name="m2po"),)),
        when="Mask the tokens with the largest l^2 of a batch.",
        source="AReaL, actor.m2_threshold; 0.04 as in the M2PO paper",
        note="The budget is kept in each training batch; AReaL keeps it in each micro-batch.",
        config=peer.block("actor", m2_threshold="0.04"),
    ),
    _prime(
        "prime_dppo",
        "Mask tokens whose probability moved by 0.2 in the direction of their advantage.",
        f"{_PRIME} default, dppo_mask_high 0.2, dppo_mask_low 0.2",
        *dppo("prob_gap", 0.2, 0.2),
        config=peer.block("trainer.loss", type="default", dppo_mask_low="0.2", dppo_mask_high="0.2"),
    ),
    _prime(
        "prime_ipo",
        "Mask tokens whose probability moved by more than 0.1.",
        f"{_PRIME} ipo, 0.1",
        Rejection("prob_gap", "token", Bounds(-0.1, 0.1)),
        config=peer.block("trainer.loss", type="ipo", ipo_threshold="0.1"),
    ),
    _prime(
        "prime_kpop",
        "Mask tokens whose binary KL is above 0.1 either way.",
        f"{_PRIME} kpop (pull request 3283), 0.1",
        Rejection("binary_kl", "token", Bounds(None, 0.1), "kpop"),
        config=peer.block("trainer.loss", type="kpop", kpop_threshold="0.1"),
    ),
    _prime(
        "prime_legacy",
        "Mask tokens off by a factor of 8; drop sequences far off.",
        f"{_PRIME} default until 2026-03, token 0.125 and 8, geometric 0.1 and 10, sequence 0 and 100",
        Rejection("ratio", "token", Bounds(0.125, 8.0), "token"),
        Rejection("ratio", "seq_mean", Bounds(0.1, 10.0), "geometric"),
        Rejection("ratio", "seq_max", Bounds(None, 100.0), "sequence_high"),
        config=peer.block(
            "trainer.loss", token_mask_low="0.125", token_mask_high="8.0", geo_mask_low="0.1", geo_mask_high="10.0"
        ),
    ),
    Preset(
        plan=Plan("opsm", None, (opsm(1e-4, "drift", "token"),), log_ratio_limit=None),
        aliases=("off_policy_sequence_mask",),
        when="Drop sequences of negative advantage that the policy moved away from.",
        source="DeepSeek-V3.2; slime and miles, --use-opsm, --opsm-delta 1e-4",
        note=_DRIFT,
        config=peer.block("", use_opsm="true", opsm_delta="1.0e-4"),
    ),
    Preset(
        plan=Plan("trl_opsm", None, (opsm(1e-4, "total"),), log_ratio_limit=None),
        when="Like opsm, but compares with the policy that sampled.",
        source="TRL 1.16, off_policy_mask_threshold, which has no default; here 1e-4",
        note=_DRIFT.replace("old one", "rollout one"),
        config=peer.block("", vllm_importance_sampling_correction="false", off_policy_mask_threshold="1.0e-4"),
    ),
    Preset(
        plan=Plan("gspo", Weighting("geometric", Bounds(1 - 3e-4, 1 + 4e-4), of="drift"), log_ratio_limit=None),
        when="GSPO's clipped sequence ratio of the current policy over the old one.",
        source="GSPO (2025), section 5.1: clip ranges 3e-4 and 4e-4",
        note=_DRIFT,
    ),
    Preset(
        plan=Plan(
            "roll_topr", Weighting("token", Bounds(0.0, 1.0), of="drift", gate="nonpositive"), log_ratio_limit=None
        ),
        when="Tapered weights where the advantage is not positive.",
        source=f"{_ROLL} topr",
        note=f"{_DRIFT} ROLL looks at an episode's score, the preset at its advantage.",
        config=peer.block("actor_train", pg_variant="topr"),
    ),
    Preset(
        plan=Plan("roll_tis", Weighting("token", Bounds(0.0, 1.0), of="drift"), log_ratio_limit=None),
        when="Token weights of current over old policy, capped at 1.",
        source=f"{_ROLL} tis, tis_upper_bound 1.0",
        note=_DRIFT,
        config=peer.block("actor_train", pg_variant="tis"),
    ),
    Preset(
        plan=Plan("roll_cispo", Weighting("token", Bounds(0.9, 1.1), of="drift"), log_ratio_limit=None),
        when="Clipped token weights of current over old policy.",
        source=f"{_ROLL} cispo, cispo_epsilon_low and _high 0.1",
        note=_DRIFT,
        config=peer.block("actor_train", pg_variant="cispo"),
    ),
    Preset(
        plan=Plan(
            "roll_train_infer",
            Weighting("token", Bounds(0.0, 1.2)),
            (Rejection("ratio", "token", Bounds(0.8, 1.2), "token"),),
            log_ratio_limit=None,
        ),
        when="Capped token weights; masks tokens outside 0.8 to 1.2.",
        source="ROLL, train_infer_correction: is_weight token 1.2, a token filter of its own defaults",
        config=peer.PeerConfig(
            "train_infer_correction:\n  is_weight:\n    enabled: true\n    weight_type: token\n    upper_bound: 1.2\n"
            "  filters:\n  - enabled: true\n    agg_type: token\n    ratio_low: 0.8\n    ratio_high: 1.2"
        ),
    ),
    *(
        Preset(
            plan=Plan(f"ms_swift_{mode}", weighting, rejections, limit_on="first"),
            when=when,
            source=f"ms-swift, rollout_importance_sampling_mode {mode}, threshold 2.0",
            config=peer.block("", rollout_importance_sampling_mode=mode, rollout_importance_sampling_threshold="2.0"),
        )
        for mode, weighting, rejections, when in (
            ("token_truncate", _TOKEN, (), "Capped token weights."),
            ("token_mask", Weighting("token", Bounds(None, 2.0), "zero"), (), "Token weights, 0 above the cap."),
            ("sequence_truncate", Weighting("geometric", Bounds(None, 2.0)), (), "Capped geometric weights."),
            (
                "sequence_mask",
                Weighting("token"),
                (Rejection("ratio", "seq_mean", Bounds(None, 2.0), "geometric"),),
                "Raw token weights; drops sequences by a geometric bound.",
            ),
        )
    ),
    Preset(
        plan=Plan("open_instruct_rho", _TOKEN, log_ratio_limit=10.0, limit_on="first"),
        when="Capped token weights, on by default there.",
        source=f"{_OPEN_INSTRUCT}, use_rho_correction, rho_clamp_upper_bound 2.0",
        config=peer.block("", use_rho_correction="true", rho_clamp_upper_bound="2.0"),
    ),
    Preset(
        plan=Plan(
            "xtuner_both",
            Weighting("token", Bounds(0.0, 5.0)),
            (
                Rejection("ratio", "token", Bounds(0.5, 5.0), "is"),
                Rejection("ratio", "seq_max", Bounds(None, 20.0), "veto_high"),
            ),
        ),
        when="Capped token weights, a token mask, a veto above 20.",
        source="xtuner, rollout_is of its example configs: both, (5, 0), mask (5, 0.5), veto (20, 0)",
        config=peer.block(
            "rollout_is",
            rollout_is_level="token",
            rollout_is_mode="both",
            rollout_is_threshold="[5.0, 0.0]",
            rollout_is_mask_threshold="[5.0, 0.5]",
            rollout_is_veto_threshold="[20.0, 0.0]",
        ),
    ),
    Preset(
        plan=Plan("kpop", None, (Rejection("binary_kl", "token", Bounds(None, 0.1), "kpop"),), limit_on="token"),
        when="Mask tokens whose binary KL is above 0.1 either way.",
        source="KPop (ringtech.notion.site/kpop, 2026-05), phi 0.1; verl pull request 6800, prime-rl 3283, AReaL 1405",
        config=peer.verl("verl-0.9", rollout_rs="binary_kl", rollout_rs_threshold='"0.1"'),
    ),
    Preset(
        plan=Plan(
            "dppo_kl",
            Weighting("token", Bounds(None, 20.0), of="drift"),
            dppo("binary_kl_signed", 0.05, 0.05, of="drift"),
            limit_on="token",
            loss="reinforce",
        ),
        when="Mask tokens whose binary KL is above 0.05 in the direction of their advantage.",
        source="DPPO-Binary-KL (arXiv 2602.04879); verl, policy_loss.loss_mode dppo_kl, here 0.05 and a cap of 20",
        note=_DRIFT,
        config=peer.PeerConfig(
            "actor_rollout_ref:\n  actor:\n    policy_loss:\n      loss_mode: dppo_kl\n    clip_ratio_low: 0.05\n"
            "    clip_ratio_high: 0.05\n    clip_ratio_c: 20.0"
        ),
    ),
    Preset(
        plan=Plan(
            "vaco",
            _TOKEN,
            (Rejection("ratio_gap", "seq_mean", Bounds(None, 2.0), "vaco", gate="onward"),),
            log_ratio_limit=10.0,
            limit_on="first",
        ),
        when="In sequences far off policy, drop tokens that lead farther away.",
        source=f"VACO (arXiv 2603.01365); {_OPEN_INSTRUCT}, rho_mask_tv_divergence, here 2.0",
        config=peer.block("", use_rho_correction="true", rho_mask_tv_divergence="true", rho_mask_upper_bound="2.0"),
    ),
    Preset(
        plan=Plan("trm", None, (Rejection("k3", "seq_max", Bounds(None, 0.5), "trm"),), limit_on="token"),
        when="Drop sequences whose largest token divergence is above 0.5.",
        source="Trust region masking (arXiv 2512.23075); verl, rollout_rs seq_max_k3, here 0.5",
        config=peer.verl("verl-0.9", rollout_rs="seq_max_k3", rollout_rs_threshold='"0.5"'),
    ),
)

_ROWS = (*_GUIDE_ROWS, *_VERL_ROWS, *_FRAMEWORK_ROWS)

PRESETS: dict[str, Preset] = {row.name: row for row in _ROWS}

ALIASES: dict[str, str] = {alias: row.name for row in _ROWS for alias in row.aliases}


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def is_preset(name: str) -> bool:
    """Whether there is a preset of that name or alias."""
    return _key(name) in (*PRESETS, *ALIASES)


def preset(name: str) -> Preset:
    """The preset of a name or alias ('-' and '_' are the same)."""
    key = _key(name)
    row = PRESETS.get(ALIASES.get(key, key))
    if row is None:
        near = nearest(key, [*PRESETS, *ALIASES])
        raise UsageError(f"Unknown preset '{name}'.", f"Nearest: {near}. `rlcorr presets` lists all.")
    return row


_COMPARED = (
    *("decoupled_token_is", "decoupled_seq_is", "decoupled_seq_is_rs", "decoupled_geo_rs", "geo_is", "token_rs"),
    *("decoupled_token_icepop", "decoupled_k3_rs", "disabled"),
    *("slime_tis", "trl_sequence_mask", "nemo_seq_mask_tis", "openrlhf_tis", "skyrl_geometric"),
    *("areal_ratio_token", "prime_ipo", "roll_train_infer"),
    *("ppo_is_bypass", "pg_is", "pg_rs"),
)

COMPARED: tuple[Preset, ...] = tuple(PRESETS[name] for name in _COMPARED)
"""The presets that `compare` takes where none is named: verl's, and one of every other framework.  Among plans that are
worth the same and have equally many records, the first in this order is recommended."""

PRESET_FAMILIES: dict[str, str] = {
    "verl": "verl, rollout correction guide",
    "verl_0.9": "verl 0.9",
    "slime": "slime and miles",
    "trl": "TRL",
    "nemo": "NeMo-RL",
    "openrlhf": "OpenRLHF",
    "skyrl": "SkyRL",
    "areal": "AReaL",
    "prime": "prime-rl",
    "roll": "ROLL",
    "ms_swift": "ms-swift",
    "open_instruct": "open-instruct",
    "xtuner": "xtuner",
    "methods": "Methods of papers, in several frameworks",
}
"""Family -> its heading.  Presets start with their family's name, but for verl's and those of papers."""

_OTHER_NAMES = {"miles": "slime", "nemo_rl": "nemo", "prime_rl": "prime", "swift": "ms_swift"}


def framework_key(name: str) -> str:
    """The key in PRESET_FAMILIES of a framework's name, however it is written; another name as a key would be."""
    return _OTHER_NAMES.get(_key(name), _key(name))


def families(name: str) -> tuple[str, ...]:
    """The families of a framework's name, however it is written; none of any other name."""
    key = framework_key(name)
    return tuple(each for each in PRESET_FAMILIES if each == key or each.startswith(f"{key}_"))


def of_family(key: str) -> tuple[Preset, ...]:
    """A family's presets, in the order of PRESETS."""
    return tuple(row for row in PRESETS.values() if _FAMILY_OF[row.name] == key)


_FAMILY_OF: dict[str, str] = {
    **{row.name: "verl" for row in _GUIDE_ROWS},
    **{row.name: "verl_0.9" for row in _VERL_ROWS},
    **{
        row.name: next((key for key in PRESET_FAMILIES if row.name.startswith(f"{key}_")), "methods")
        for row in _FRAMEWORK_ROWS
    },
}
"""The name of a preset -> its family."""
