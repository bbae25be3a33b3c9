"""Launch scripts: a trainer's flags and overrides as a shell would hand them over, and the plans that they mean."""

import random
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.profiles import profile_called
from rlcorr_cli.frameworks.read import read_plan
from rlcorr_cli.plans.plan import Bounds, Rejection, Weighting
from rlcorr_cli.plans.yaml_files import parse_script

VERL = r"""#!/usr/bin/env bash
set -xeuo pipefail
# Rollout correction: don't touch
rollout_is=token              # token or sequence
rollout_rs="seq_mean_k3"
python3 -m verl.trainer.main_ppo --config-name=ppo \
    algorithm.adv_estimator=grpo \
    algorithm.rollout_correction.rollout_is=${rollout_is} \
    algorithm.rollout_correction.rollout_is_threshold=${THRESHOLD:-"2.5"} \
    +algorithm.rollout_correction.rollout_rs=$rollout_rs \
    algorithm.rollout_correction.rollout_rs_threshold='0.01' \
    trainer.logger='["console","wandb"]' "$@" 2>&1 | tee log-$(date +%s).txt
"""
SLIME = r"""
pkill -9 sglang; SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
GRPO_ARGS=(
   --eps-clip 0.2   # it's the usual
   --use-tis
   --tis-clip 4
   --tis-clip-low 0.5
   --tis-clip 5.0
   --custom-tis-function-path slime.backends.megatron_utils.loss.icepop_function
   # --use-opsm
)
ray job submit --runtime-env-json="{\"env_vars\": {}}" -- python3 train.py ${GRPO_ARGS[@]} --colocate -n 3
echo done
"""
OPENRLHF = r"""
python3 -m openrlhf.cli.train_ppo_ray --algo.advantage.is_correction_level seq \
   --algo.advantage.is_correction_threshold 0.99 1.01 --actor.bf16
"""
SWIFT = "CUDA_VISIBLE_DEVICES=0 swift rlhf --loss_type grpo --rollout_importance_sampling_mode token_truncate\nls x"


def written(text: str, folder: Path) -> str:
    path = folder / "run.sh"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "weighting", "rejections"),
    [
        (VERL, Weighting("token", Bounds(None, 2.5)), (Rejection("k3", "seq_mean", Bounds(None, 0.01)),)),
        (SLIME, Weighting("token", Bounds(0.5, 5.0), "zero"), ()),
        (OPENRLHF, Weighting("token"), (Rejection("ratio", "seq_mean", Bounds(0.99, 1.01), "geometric"),)),
        (SWIFT, Weighting("token", Bounds(None, 2.0)), ()),
    ],
)
def test_a_launch_script_is_read_as_the_trainer_would(
    text: str, weighting: Weighting, rejections: tuple[Rejection, ...], tmp_path: Path
) -> None:
    plan = read_plan(written(text, tmp_path), None).plan
    assert plan.weighting == weighting
    assert plan.rejections == rejections


MIS = "--custom-config-path mis.yaml --custom-tis-function-path examples.train_infer_mismatch_helper.mis.compute"


def test_a_weight_function_of_another_file_is_refused_without_its_options(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"custom_tis_function_path: .* cannot be read as a plan") as refused:
        read_plan(written(f"python3 train.py --use-tis {MIS}", tmp_path), None)
    assert "the file of custom_config_path" in refused.value.hint
    plan = read_plan(written(f"python3 train.py --use-tis --tis-mode clip {MIS}", tmp_path), None).plan
    assert plan.weighting == Weighting("token", Bounds(0.5, 2.0))


def test_a_launch_script_is_read_by_a_profile_too(tmp_path: Path) -> None:
    plan = read_plan(written(VERL, tmp_path), profile_called("verl-0.9")).plan
    assert plan.name == "verl-0.9"
    assert plan.weighting == Weighting("token", Bounds(None, 2.5))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("x --a-b", {"a_b": True}),
        ("x --a 1 --b=2 --c 3 4", {"a": 1, "b": 2, "c": [3, 4]}),
        ("x --a 1\ny --b", {"a": 1, "b": True}),
        ("x --a && y 2", {"a": True}),
        ("(x --a) 2", {"a": True}),
        ("x --a \\\n 1", {"a": 1}),
        ("x --a 'b c' --d \"e $f\" --g h\\ i", {"a": "b c", "d": "e $f", "g": "h i"}),
        ("x --a -1 -v 2", {"a": -1}),
        ("x --a ${MORE[@]} --b", {"a": True, "b": True}),
        ("v=1; w=$v; x --a ${w} --b ${u:-2} --c ${u}", {"a": 1, "b": 2, "c": "${u}"}),
        ("x a.b=1 ++a.c=null --a.d True", {"a": {"b": 1, "c": None, "d": True}}),
        ("x --a 1 a.b=2 --a 3", {"a": {"b": 2}}),
        ("x --a '{'", {"a": "{"}),
        ("x --a#b 1 # --c", {}),
        ("x --a 1#2", {"a": "1#2"}),
    ],
)
def test_words_of_a_script_are_options(text: str, options: dict[str, Any]) -> None:
    assert (parse_script(text).data or {}) == options


def test_a_number_that_may_be_two_bounds_is_noted_by_its_option() -> None:
    (note,) = parse_script("x algorithm.rollout_rs_threshold=0.5_2").notes
    assert note.startswith("algorithm.rollout_rs_threshold: 0.5_2 without quotes is the number 0.52")


def test_a_script_without_options_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no mapping of options"):
        read_plan(written("echo done", tmp_path), None)


def test_any_text_is_cut_into_words_without_a_fault() -> None:
    rng = random.Random(1)
    pieces = ["--a", "=", " ", "\n", "\\", '"', "'", "$", "{", "}", "(", ")", "a.b=", "#", ":-", "[@]", "x", "\0", "é"]
    for _ in range(3000):
        parse_script("".join(rng.choices(pieces, k=30)))


def test_variables_that_double_do_not_grow_without_end() -> None:
    data = parse_script("a=xx\n" + "a=$a$a\n" * 60 + "y --a $a").data
    assert set(data["a"]) == {"x"}
    assert len(data["a"]) < 1000
