"""Frameworks' own configs: read as the plan they mean, refused where the framework or sense would refuse them."""

import json
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest
import yaml
from profiled import filtered, report

from rlcorr_cli.commands.choose import choose_objective
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frameworks.profiles import profile_called
from rlcorr_cli.frameworks.read import FRAMEWORKS, PROFILES, preset_in, presets_of, read_plan
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting
from rlcorr_cli.plans.presets import ALIASES, PRESETS, preset

CONFIGS = {name: row.config for name, row in PRESETS.items() if row.config is not None}

TIS = "truncated_importance_sampling_type: tis"
CAP = "vllm_importance_sampling_cap"
AREAL = "actor:\n  rejection_sampling:"
NEMO_ON = "use_importance_sampling_correction: true"


def read(text: str, tmp_path: Path, reader: str = "") -> ChosenPlan:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return read_plan(str(path), profile_called(reader) if reader else None)


def records(plan: Plan) -> Plan:
    """A plan without what only names it, and with the two ways to write no bound from below made one."""
    rules = tuple(replace(one, name=f"r{i}") for i, one in enumerate(plan.rejections))
    budgets = tuple(replace(one, name="b") for one in plan.budgets)
    weighting = plan.weighting
    if weighting is not None and weighting.outside == "clamp" and not weighting.bounds.low:
        weighting = replace(weighting, bounds=Bounds(None, weighting.bounds.high))
    return replace(plan, name="", weighting=weighting, rejections=rules, budgets=budgets)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_presets_config_means_the_preset(name: str, tmp_path: Path) -> None:
    found = read(CONFIGS[name].text, tmp_path, CONFIGS[name].reader).plan
    assert records(found) == records(PRESETS[name].plan)


def test_every_framework_and_nearly_every_preset_has_a_config(tmp_path: Path) -> None:
    assert set(CONFIGS) <= set(PRESETS)
    assert set(PRESETS) - set(CONFIGS) == {"geo_is", "gspo"}
    named = {note.split("read as ")[1] for name in CONFIGS for note in read_notes(name, tmp_path)[:1]}
    assert named == {f"{each.name}'s config." for each in FRAMEWORKS if not each.is_profile}


def read_notes(name: str, tmp_path: Path) -> tuple[str, ...]:
    return () if CONFIGS[name].reader else read(CONFIGS[name].text, tmp_path).notes


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("vllm_importance_samplng_mode: token_mask\nvllm_importance_sampling_cap: 2.0", "vllm_importance_samplng_mode"),
        ("vllm_importance_sampling_mode: tokens_mask", "sequence_truncate"),
        ("vllm_importance_sampling_cap: 2.0\nvllm_importance_sampling_clip_max: 3.0", "contradict"),
        ("vllm_importance_sampling_clip_max: null", "both off"),
        ("vllm_importance_sampling_cap: nan", "finite"),
        (
            "loss_fn:\n  truncated_importance_sampling_type: tis\n  truncated_importance_sampling_ratio: 2.0",
            "contradict",
        ),
        (
            f"loss_fn:\n  {NEMO_ON}\n  truncated_importance_sampling_type: tis",
            "needs truncated_importance_sampling_ratio",
        ),
        (f"loss_fn:\n  {NEMO_ON}\n  truncated_importance_sampling_ratio: 2.0", "says nothing without"),
        (
            f"loss_fn:\n  {NEMO_ON}\n  truncated_importance_sampling_type: icepop\n"
            "  truncated_importance_sampling_ratio: 5.0",
            "ratio_min",
        ),
        (
            f"loss_fn:\n  {NEMO_ON}\n  truncated_importance_sampling_type: icepop\n"
            "  truncated_importance_sampling_ratio: 0.5\n  truncated_importance_sampling_ratio_min: 5.0",
            "Swap",
        ),
        (
            f"loss_fn:\n  {NEMO_ON}\n  truncated_importance_sampling_type: seq-mask-tis\n"
            "  truncated_importance_sampling_ratio: 1.1\n  truncated_importance_sampling_ratio_min: 0.9\n"
            "  sequence_level_importance_ratios: true",
            "contradict",
        ),
        ("is_correction_level: seq\nis_correction_mode: clip", "contradict"),
        ("is_correction_level: token\nis_correction_gating: tv", "an upper bound alone"),
        ("is_correction_level: seq\nis_correction_gating: tv\nis_correction_mode: clip", "clips ratios only"),
        (f"loss_fn:\n  {NEMO_ON}\n  is_correction_gating: binary_kl", "in no release of NeMo-RL"),
        (f"loss_fn:\n  {NEMO_ON}\n  is_correction_level: seq", "2269 sequence_mean is read"),
        ("loss_fn:\n  is_correction_level: sequence", "2269 sequence_mean is read"),
        (
            f"loss_fn:\n  {NEMO_ON}\n  truncated_importance_sampling_type: seq-mask-tis\n"
            "  truncated_importance_sampling_ratio: 1.1\n  truncated_importance_sampling_ratio_min: 0.9\n"
            "  is_correction_level: sequence_mean",
            "contradict",
        ),
        ("is_correction_level: token\nvllm_is_correction_type: tis", "contradict"),
        ("vllm_is_correction_type: tis", "enable_vllm_is_correction"),
        ("is_correction_level: token\nis_correction_threshold: [0.5, 2.0, 5.0]", "LOW HIGH"),
        ("trainer:\n  algorithm:\n    off_policy_correction:\n      use_tis: true", "use_tis"),
        ("trainer:\n  algorithm:\n    off_policy_correction:\n      policy_loss_type: dppo", "policy_loss_type"),
        (
            "trainer:\n  algorithm:\n    use_tis: true\n    off_policy_correction:\n      tis_ratio_type: sequence",
            "contradict",
        ),
        ("actor:\n  rejection_sampling:\n    m2_threshold: 0.04", "m2_threshold"),
        ("algorithm:\n  rollout_correction:\n    loss_mode: dppo_kl", "loss_mode"),
        ("off_policy_correction:\n  token_mask_is_threshold_high: 2.0", "token_mask_is_threshold_low"),
        ("off_policy_correction:\n  geo_mask_lo: 0.9", "geo_mask_low"),
        ("actor:\n  rejection_sampling:\n    metric: kl_k4", "kl_k1"),
        ("actor:\n  rejection_sampling:\n    metric: kl_k1\n    action: clamp", "contradict"),
        ("actor:\n  rejection_sampling:\n    upper: 0.9", "above 1"),
        ("actor:\n  behave_imp_weight_cap: 5.0\n  rejection_sampling:\n    level: token", "contradict"),
        ("actor:\n  use_decoupled_loss: false\n  rejection_sampling:\n    level: token", "decoupled"),
        ("actor:\n  m2_treshold: 0.04\n  m2_threshold: 0.04", "m2_treshold"),
        ("trainer:\n  loss:\n    type: ipo\n    dppo_mask_low: 0.1", "contradict"),
        ("loss:\n  type: dppo", "default, ipo"),
        ("loss:\n  type: default\n  dppo_mask_low: null", "0 or more"),
        ("loss:\n  type: default\n  dppo_mask_low: -0.2", "0 or more"),
        ("loss:\n  ipo_threshold: 0.3\ntrainer:\n  loss:\n    ipo_threshold: 0.1", "contradict"),
        ("actor:\n  rejection_sampling: mask", "must be a block"),
        ("actor:\n  rejection_sampling:\n    metric: kl_k2\n    level: token\n    upper: 0", "above 0"),
        ("loss:\n  dppo_mask_hihg: 0.1\n  dppo_mask_low: 0.2", "dppo_mask_high"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, tmp_path)
    assert wrong in f"{caught.value.message} {caught.value.hint}"
    assert "config.yaml" in caught.value.message


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (
            "vllm_importance_sampling_cap: null\nvllm_importance_sampling_clip_max: 3.0",
            "vllm_importance_sampling_mode: null",
        ),
        ("grpo.seq_logprob_error_threshold: 2.0", "grpo:\n  seq_logprob_error_threshold: 2.0"),
        (
            "level: info\nactor:\n  rejection_sampling:\n    level: null",
            "actor:\n  rejection_sampling:\n    level: token",
        ),
        ("actor:\n  rejection_sampling: null", "actor:\n  use_decoupled_loss: true"),
        ("is_correction_level: off", "is_correction_level: null"),
    ],
)
def test_ways_to_say_the_same(text: str, same: str, tmp_path: Path) -> None:
    assert read(text, tmp_path).plan == read(same, tmp_path).plan


def test_other_options_of_a_trainers_config_are_left_alone(tmp_path: Path) -> None:
    text = f"loss_fn:\n  ratio_clip_min: 0.2\n  {NEMO_ON}\n  token_level_loss: true\ngrpo:\n  max_num_steps: 5\n"
    assert read(text, tmp_path).plan.weighting == Weighting("token", infinite="zero")


RUNS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent.parent / "golden" / "run_options.json").read_text())


@pytest.mark.parametrize("release", RUNS)
def test_the_options_of_a_whole_run_are_its_frameworks_alone(release: str, tmp_path: Path) -> None:
    found = read(json.dumps(RUNS[release]), tmp_path)
    framework = release.split(" ")[0]
    assert found.notes[0].endswith(f"read as {framework}'s config.")
    assert any("not read: " in note for note in found.notes)


NEMO_RUN = f"loss_fn:\n  {NEMO_ON}\n  {TIS}\n  truncated_importance_sampling_ratio: 2.0\npolicy:\n  precision: bfloat16"


@pytest.mark.parametrize("options", [RUNS["TRL 1.16.0"], yaml.safe_load(NEMO_RUN)])
def test_a_config_that_wandb_wrote_is_read_as_the_runs_own(options: dict[str, Any], tmp_path: Path) -> None:
    written = {name: {"desc": None, "value": value} for name, value in options.items()}
    about = {"wandb_version": 1, "_wandb": {"desc": None, "value": {"python_version": "3.12"}}}
    found, right = (read(json.dumps(each), tmp_path) for each in ({**about, **written}, options))
    assert found.plan.weighting is not None
    assert found == right


def test_of_options_that_are_not_read_those_like_its_own_are_named_first(tmp_path: Path) -> None:
    others = "\n".join(f"option{place}: 1" for place in range(9))
    found = read(f"{others}\nimportance_sampling_level: sequence\n{CAP}: 2.0", tmp_path)
    assert any("not read: importance_sampling_level, option0, " in note for note in found.notes)


def test_nemos_level_of_sequence_means_weighs_by_geometric_means_and_says_that_no_release_has_it(
    tmp_path: Path,
) -> None:
    text = f"loss_fn:\n  sequence_level_importance_ratios: true\n  {NEMO_ON}\n  is_correction_level: sequence_mean\n"
    found = read(text, tmp_path)
    assert found.plan.weighting == Weighting("geometric", infinite="zero")
    assert any("pull request 2269, and in no release yet" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (
            "vllm_importance_sampling_clip_min: 0.5\nlearning_rate: 1.0e-6",
            Plan("trl", Weighting("sequence", Bounds(0.5, 3.0), "zero"), log_ratio_limit=None),
        ),
        (
            "enable_vllm_is_correction: true\nvllm_is_truncated_threshold: 0.5 2.0",
            Plan("openrlhf", Weighting("token", Bounds(0.5, 2.0)), log_ratio_limit=None),
        ),
        (
            "algo.advantage.is_correction_level: token\nalgo.advantage.is_correction_threshold: 2.0",
            Plan("openrlhf", Weighting("token", Bounds(0.0, 2.0), "zero"), log_ratio_limit=None),
        ),
        (
            "actor:\n  rejection_sampling:\n    level: sequence\n    agg: sum\n    upper: 4.0\n    lower: 0.25",
            Plan(
                "areal",
                Weighting("geometric"),
                (Rejection("ratio", "seq_sum", Bounds(0.25, 4.0)),),
                log_ratio_limit=None,
            ),
        ),
        (
            "actor:\n  behave_imp_weight_mode: sequence_truncate\n  behave_imp_weight_cap: 4.0",
            Plan("areal", Weighting("geometric", Bounds(None, 4.0)), log_ratio_limit=None),
        ),
        (
            "trainer:\n  algorithm:\n    use_tis: true\n    tis_imp_ratio_cap: 3.0\n    off_policy_correction:\n"
            "      tis_ratio_type: null\n      token_tis_ratio_clip_high: 2.0",
            Plan("skyrl", Weighting("token", Bounds(None, 3.0))),
        ),
        (
            "off_policy_correction:\n  token_mask_is_threshold_low: 0.5\n  token_mask_is_threshold_high: 2.0",
            Plan("skyrl", None, (Rejection("ratio", "token", Bounds(0.5, 2.0), "token"),)),
        ),
    ],
)
def test_less_usual_options(text: str, plan: Plan, tmp_path: Path) -> None:
    assert read(text, tmp_path).plan == plan


OF_ITS_PROFILE = [(name, config.reader) for name, config in CONFIGS.items() if config.reader]


@pytest.mark.parametrize(("name", "reader"), OF_ITS_PROFILE)
def test_a_profile_has_the_presets_that_its_release_has(name: str, reader: str, tmp_path: Path) -> None:
    assert profile_called(reader) is PROFILES[reader]
    chosen = preset_in(PRESETS[name], PROFILES[reader])
    assert chosen.plan == read(CONFIGS[name].text, tmp_path, reader).plan
    assert chosen.notes[0].startswith(f"{name} as {reader} has it: ")


def test_a_profile_has_another_releases_preset_only_if_it_means_the_same() -> None:
    names = {name: {ALIASES.get(each, each) for each in presets_of(PROFILES[name])} for name in PROFILES}
    assert names["slime"] == {"slime_mis", "slime_cis"}
    assert names["verl-mismatch"] == set()
    assert {"decoupled_token_is", "decoupled_k3_rs", "decoupled_token_icepop"} <= names["verl-0.9"]
    # 0.7 knows no bounds that zero weights and no binary KL; 0.9 has no geometric ratio and no veto.
    assert names["verl-0.9"] - names["verl-0.7"] == {"decoupled_token_icepop", "bypass_pg_token_icepop", "kpop"}
    assert not {"decoupled_geo_rs", "seq_mis", "token_rs"} & names["verl-0.9"]
    for name in ("geo_rs", "trl_opsm", "geo_is"):
        with pytest.raises(UsageError, match=f"verl-0.9 has no preset '{preset(name).name}'") as refused:
            preset_in(preset(name), PROFILES["verl-0.9"])
        assert refused.value.hint.startswith("It has disabled, token_is, ")


ON_POLICY = f"loss_fn:\n  force_on_policy_ratio: true\n  {NEMO_ON}\n  {TIS}\n  truncated_importance_sampling_ratio: 2.0"
THREE_POLICIES = [
    {
        "rollout_log_probs": [-1.0],
        "old_log_probs": [-1.1],
        "current_log_probs": [-1.4],
        "response_mask": [1],
        "advantages": [1.0],
    }
]


def test_a_nemo_loss_forced_on_policy_compares_the_current_policy(tmp_path: Path) -> None:
    found = read(ON_POLICY, tmp_path)
    assert (found.plan.mode, found.plan.loss) == ("bypass", "reinforce")
    assert any("force_on_policy_ratio: true" in note and "bypass" in note for note in found.notes)
    # NeMo-RL's own numbers of these: e^-0.4, and the k3 of it.
    config = yaml.safe_load(ON_POLICY)
    metrics = report(tmp_path, "canonical", config, THREE_POLICIES)["metrics"]
    assert metrics["rollout_is_applied_mean"] == pytest.approx(0.670, abs=5e-4)
    assert metrics["k3_kl"] == pytest.approx(0.070, abs=5e-4)
    assert filtered(tmp_path, "canonical", config, THREE_POLICIES) == [([1], [pytest.approx(exp(-0.4), rel=1e-6)])]


@pytest.mark.parametrize("text", [f"loss_fn:\n  {NEMO_ON}", f"loss_fn:\n  {NEMO_ON}\n  force_on_policy_ratio: false"])
def test_a_nemo_loss_that_is_not_forced_compares_the_previous_policy(text: str, tmp_path: Path) -> None:
    found = read(text, tmp_path)
    assert found.plan.mode == "decoupled"
    assert not any("force_on_policy_ratio" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kind", "named"), [("k1", "is kl, and policy_kl_error kl with its sign turned"), ("k2", "are k2_kl"), ("k3", "")]
)
def test_nemos_kind_of_kl_says_which_metric_its_errors_are(kind: str, named: str, tmp_path: Path) -> None:
    found = read(f"loss_fn:\n  {NEMO_ON}\n  reference_policy_kl_type: {kind}", tmp_path)
    notes = [note for note in found.notes if f"reference_policy_kl_type: {kind}" in note]
    assert [named in note for note in notes] == ([True] if named else [])
    assert found.plan == read(f"loss_fn:\n  {NEMO_ON}", tmp_path).plan


def test_nemos_other_options_of_the_kl_are_left_alone(tmp_path: Path) -> None:
    text = f"loss_fn:\n  reference_policy_kl_penalty: 0.01\n  kl_input_clamp_value: 20.0\n  {NEMO_ON}"
    assert read(text, tmp_path).plan == read(f"loss_fn:\n  {NEMO_ON}", tmp_path).plan
    with pytest.raises(UsageError, match="reference_policy_kl_typ'"):
        read(f"loss_fn:\n  reference_policy_kl_typ: k1\n  {NEMO_ON}", tmp_path)
    with pytest.raises(UsageError, match="k1, k2, k3"):
        read(f"loss_fn:\n  reference_policy_kl_type: k4\n  {NEMO_ON}", tmp_path)


VERL_MODE = "actor_rollout_ref: {{actor: {{policy_loss: {{loss_mode: {}}}}}}}\n"
OPEN_INSTRUCT = "rho_mask_upper_bound: 2.0\n"
SWIFT = "rollout_importance_sampling_mode: token_mask\n"
TRL_ON = "vllm_importance_sampling_mode: token_mask\n"
SKY = "trainer:\n  algorithm:\n    off_policy_correction: {tis_ratio_type: token}\n"


@pytest.mark.parametrize(
    ("text", "wrong", "named"),
    [
        (VERL_MODE.format("foobar"), "verl's loss_mode: foobar is not known here, and may change", "dppo_kl"),
        (VERL_MODE.format("gpso"), "verl's loss_mode: gpso is not known here", "gspo"),
        *(
            (VERL_MODE.format(mode), f"verl's loss_mode: {mode} cannot be read as a plan: ", "--is and --rs")
            for mode in ("clip_cov", "kl_cov", "geo_mean", "cppo", "flow_grpo")
        ),
        (VERL_MODE.format("bypass_mode"), "contradict", "bypass_mode: true"),
        (VERL_MODE.format("sapo") + "actor_rollout_ref.actor.tau_neg: 2.0", "tau_neg: 1.05 alone", "tau_"),
        (
            "loss_fn: dppo\nrho_divergence_algo: dppo\nrho_divergence_type: tv\nrho_mask_upper_bound: 0.2",
            "rho_divergence_algo: dppo cannot be read as a plan: rho_mask_upper_bound is then one of a divergence",
            "Leave rho_divergence_algo out",
        ),
        (f"{OPEN_INSTRUCT}rho_divergence_type: kl", "rho_divergence_type: kl cannot be read", "Leave"),
        (f"{OPEN_INSTRUCT}rho_divergence_type: tvv", "rho_divergence_type: tvv is not known", "Nearest: tv"),
        (f"{OPEN_INSTRUCT}rho_mask_metric: tv", "open-instruct's rho_mask_metric is not known here", "leave it out"),
        (f"{OPEN_INSTRUCT}policy_ratio_denominator: rollout_policy", "policy_ratio_denominator", "leave it out"),
        (f"{OPEN_INSTRUCT}loss_fn: dppo", "loss_fn: dppo cannot be read", "Leave loss_fn out"),
        ("rho_mask_upper_bound: 0.2", "must lie below and above 1", "open-instruct refuses others"),
        ("rho_clamp_upper_bound: 1.0", "must lie below and above 1", "open-instruct refuses others"),
        ("rho_mask_lower_bound: 1.5", "must lie below and above 1", "open-instruct refuses others"),
        ("rlhf_type: grpo\nloss_type: m2po\nm2_threshold: 0.04", "ms-swift's loss_type: m2po cannot be read", "Leave"),
        ("rlhf_type: grpo\nm2_threshold: 0.04", "ms-swift's m2_threshold is not known here", "leave it out"),
        ("loss_type: m2po\nm2_threshold: 0.04", "AReaL's loss_type: m2po is not known here", "Leave"),
        (f"{SWIFT}rlhf_type: gkd", "ms-swift's rlhf_type: gkd cannot be read", "Leave"),
        (f"{SWIFT}loss_type: dapoo", "ms-swift's loss_type: dapoo is not known", "Nearest: dapo"),
        (f"{TRL_ON}loss_type: vespo", "TRL's loss_type: vespo cannot be read", "Leave"),
        (f"{TRL_ON}loss_type: dappo", "TRL's loss_type: dappo is not known", "Nearest: dapo"),
        (f"{TRL_ON}importance_sampling_level: sequnce", "TRL's importance_sampling_level: sequnce", "sequence"),
        (f"{TRL_ON}divergence_type: binary_tv", "TRL's divergence_type is not known here", "leave it out"),
        (
            f"loss_fn:\n  {NEMO_ON}\n  loss_mode: dppo_binary_tv",
            "NeMo-RL's loss_mode: dppo_binary_tv cannot be",
            "Leave",
        ),
        (
            f"loss_fn:\n  {NEMO_ON}\n  loss_mode: dppo_binary_tw",
            "NeMo-RL's loss_mode: dppo_binary_tw",
            "dppo_binary_tv",
        ),
        (
            f"loss_fn:\n  {NEMO_ON}\n  seq_logprob_error_in_loss: true\ngrpo:\n  seq_logprob_error_threshold: 2.0",
            "seq_logprob_error_in_loss: true cannot be read as a plan: seq_logprob_error_threshold is then of",
            "Leave",
        ),
        (f"{SKY}    policy_loss_type: kl_cov", "SkyRL's policy_loss_type: kl_cov cannot be read", "Leave"),
        (f"{SKY}    policy_loss_type: dpo", "SkyRL's policy_loss_type: dpo is not known", "dppo"),
        (f"{SKY}    cispo: {{cispo_anchor: rollout}}", "SkyRL's cispo_anchor: rollout cannot be read", "Leave"),
        ("actor:\n  m2_threshold: 0.04\n  prox_logp_method: loglinear", "AReaL's prox_logp_method: loglinear", "Leave"),
        ("actor:\n  m2_threshold: 0.04\n  use_sapo_loss: true", "AReaL's use_sapo_loss: true cannot be read", "Leave"),
        ("actor:\n  m2_threshold: 0.04\n  m2_source: old", "AReaL's m2_source is not known here", "m2_threshold"),
        ("loss:\n  token_mask_low: 0.2\n  ratio_type: sequence", "prime-rl's ratio_type: sequence cannot", "Leave"),
        (
            "loss:\n  dppo_mask_low: 0.2\n  dppo_tv_clip_low: 0.2",
            "prime-rl's dppo_tv_clip_low is not known",
            "dppo_mask_low",
        ),
        ("loss:\n  type: ipo\n  ipo_threshold: 0.1\n  eps: 0.1", "contradict", "its new name"),
        ("use_tis: true\nloss_type: custom_loss", "slime's loss_type: custom_loss cannot be read", "Leave"),
        ("use_tis: true\npolicy_loss_mode: dppo_binary_tv", "slime's policy_loss_mode: dppo_binary_tv cannot", "Leave"),
        ("use_tis: true\ntis_kind: new", "slime's tis_kind is not known here", "leave it out"),
        ("actor_train:\n  pg_variant: tis\n  importance_sampling: sequence", "ROLL's importance_sampling", "seq"),
        ("is_correction_level: token\nactor.policy_loss_type: gpso", "OpenRLHF's policy_loss_type: gpso", "gspo"),
        ("is_correction_level: token\nis_correction_clip: 2.0", "is_correction_clip", "leave it out"),
        (
            "enable_vllm_is_correction: true\npolicy_loss_type: gspo",
            "enable_vllm_is_correction and policy_loss_type: gspo contradict",
            "corrects ppo alone",
        ),
    ],
)
def test_a_key_that_changes_what_others_mean_is_refused_with_what_to_do(
    text: str, wrong: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, tmp_path)
    assert wrong in caught.value.message
    assert named in caught.value.hint
    assert "config.yaml" in caught.value.message


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        *((VERL_MODE.format(mode), mode) for mode in ("gspo", "sapo", "cispo", "dro")),
        (VERL_MODE.format("gpg"), "reinforce"),
        (f"{TRL_ON}loss_type: cispo", "cispo"),
        (f"{TRL_ON}importance_sampling_level: sequence", "gspo"),
        (f"{SKY}    policy_loss_type: sapo", "sapo"),
        ("actor:\n  m2_threshold: 0.04\n  importance_sampling_level: sequence", "gspo"),
    ],
)
def test_a_loss_that_is_an_objective_here_is_named_and_is_the_files_own(
    text: str, objective: str, tmp_path: Path
) -> None:
    found = read(text, tmp_path)
    assert any(f"--objective {objective}" in note for note in found.notes)
    chosen = choose_objective(plan=str(tmp_path / "config.yaml"))
    assert chosen.name == objective
    assert choose_objective(plan=str(tmp_path / "config.yaml"), objective="ppo").name == "ppo"


@pytest.mark.parametrize("mode", ["vanilla", "null"])
def test_verls_own_loss_is_ppo(mode: str, tmp_path: Path) -> None:
    assert read(VERL_MODE.format(mode), tmp_path).loss is None


def test_options_that_do_not_touch_the_correction_stay_a_note(tmp_path: Path) -> None:
    for text in (TRL_ON, SWIFT, OPEN_INSTRUCT, "use_tis: true\n"):
        plain = read(text, tmp_path)
        more = read(f"{text}learning_rate: 1.0e-6\nbrand_new_option: fast\nloss_agg: mean\n", tmp_path)
        assert more.plan == plain.plan
        assert any("brand_new_option" in note for note in more.notes)


def test_bounds_of_a_correction_that_is_off_are_not_looked_at(tmp_path: Path) -> None:
    found = read("use_rho_correction: false\nrho_mask_upper_bound: 0.2", tmp_path)
    assert (found.plan.weighting, found.plan.rejections) == (None, ())


def test_prime_rls_new_name_of_ipos_threshold_is_read(tmp_path: Path) -> None:
    (found,) = read("trainer:\n  loss:\n    type: ipo\n    eps: 0.05", tmp_path).plan.rejections
    assert found.bounds == Bounds(-0.05, 0.05)
