"""Batches of the released classes of trainers that install on a CPU; one that is not installed is skipped.

Releases: verl 0.9.1 with tensordict 0.10.0, OpenRLHF 0.11.2, SkyRL 0.3.0, AReaL 1.0.4, ms-swift 4.6.0, tinker 0.38.0
with tinker-cookbook 0.6.1, miles 0.0.2 (`miles-rl`).  Install each with `pip install --no-deps`, and what its import
then asks for: all dependencies of one are GBs, and no two agree on a transformers.
"""

import importlib
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcorr_cli.reading.tables import in_memory
from tests.layouts.native_rows import NATIVE, agree, expected
from tests.trainers import held

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
ROWS = held.rows()
COMMON = ("token_ids", "rollout_log_probs", "old_log_probs")


def released(module: str) -> Any:
    """The module, where its trainer is installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{module} does not import: {error}")


def rows_of(batch: Any) -> list[dict[str, Any]]:
    name = in_memory(batch)
    assert name is not None
    return name.table.to_pylist()


def same_rows(read: list[dict[str, Any]], trained: str = "old_log_probs", *, prompts_from: int = 0) -> None:
    """Those of ROWS."""
    assert len(read) == len(ROWS)
    for row, made in zip(read, ROWS, strict=True):
        right = made.canonical
        right[trained] = right.pop("old_log_probs")
        right["prompt_token_ids"] = right["prompt_token_ids"][prompts_from:]
        for name, values in right.items():
            assert np.array_equal(np.array(row[name], np.float32), np.array(values, np.float32)), name


def test_a_data_proto_of_verl_gives_the_rows_of_its_file() -> None:
    proto = released("verl.protocol").DataProto.load_from_disk(str(NATIVE / "verl/batches/batch_15.dp"))
    right = expected("verl/expected_full_batch.parquet", "batches/batch_15.dp")
    agree(rows_of(proto), right, *COMMON, "advantages", "group_id", "reward", "step")


def test_a_jagged_tensordict_of_verls_v1_trainer_gives_the_same_rows() -> None:
    released("verl")
    tensordict = released("tensordict")
    proto = released("verl.protocol").DataProto.load_from_disk(str(NATIVE / "verl/batches/batch_15.dp"))
    names = ("responses", "response_mask", "rollout_log_probs", "old_log_probs", "advantages", "rm_scores")
    attention, width = proto.batch["attention_mask"].bool(), proto.batch["responses"].shape[1]
    valid = dict.fromkeys(names, attention[:, -width:]) | dict.fromkeys(("input_ids", "attention_mask"), attention)
    fields: dict[str, Any] = {
        name: torch.nested.as_nested_tensor(
            [row[keep] for row, keep in zip(proto.batch[name], of, strict=True)], layout=torch.jagged
        )
        for name, of in valid.items()
    }
    fields["uid"] = tensordict.NonTensorStack(*map(str, proto.non_tensor_batch["uid"]))
    batch = tensordict.TensorDict(fields, batch_size=len(proto))
    whole = rows_of(proto)
    for row, true in zip(rows_of(batch), whole, strict=True):
        for name in (*COMMON, "advantages", "group_id", "prompt_token_ids", "response_mask"):
            assert row[name] == true[name], name


def test_an_experience_of_openrlhf_gives_its_rows() -> None:
    module = released("openrlhf.trainer.ppo_utils.experience")
    experience = held.openrlhf(ROWS, module.Experience)
    same_rows(rows_of(experience))
    parts = [held.openrlhf(ROWS[:6], module.Experience), held.openrlhf(ROWS[6:], module.Experience)]
    same_rows(rows_of(parts))
    same_rows(rows_of(module.Experience.concat_experiences(parts, pad_token_id=0)))


def test_a_training_input_batch_of_skyrl_gives_its_rows() -> None:
    released("jaxtyping")
    package = find_spec("skyrl")
    if package is None or package.origin is None:
        pytest.skip("skyrl is not installed")
    path = Path(package.origin).parent / "backends" / "skyrl_train" / "training_batch.py"
    spec = spec_from_file_location("skyrl_training_batch", path)  # the package itself takes Python 3.12
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    width = max(len(row.whole("tokens")) for row in ROWS)

    def left_padded(name: str) -> torch.Tensor:
        return torch.tensor([[0] * (width - len(row.whole(name))) + row.whole(name) for row in ROWS])

    n_response = max(len(row.tokens) for row in ROWS)
    names = {"loss_mask": "mask", "rollout_logprobs": "rollout", "action_log_probs": "old", "advantages": "advantages"}
    tensors = {name: left_padded(ours)[:, -n_response:] for name, ours in names.items()}
    lengths = torch.tensor([[len(row.tokens), len(row.whole("tokens"))] for row in ROWS])
    place = torch.arange(width, 0, -1)
    batch = module.TrainingInputBatch(
        tensors
        | {
            "sequences": left_padded("tokens"),
            "attention_mask": (place <= lengths[:, 1:]).long(),
            "response_mask": (place[-n_response:] <= lengths[:, :1]).long(),
        }
    )
    batch.metadata = {"uids": [str(row.prompt[0]) for row in ROWS], "response_length": n_response}
    read = rows_of(batch)
    same_rows(read)
    assert [row["group_id"] for row in read] == batch.metadata["uids"]


def test_what_areal_makes_of_a_batch_gives_its_rows() -> None:
    actor, options = released("areal.trainer.ppo.actor"), released("areal.api.cli_args")
    config = options.PPOActorConfig(experiment_name="e", trial_name="t", path="p", use_decoupled_loss=True)
    before = held.areal(ROWS, advantages=False)
    same_rows(rows_of(before))
    after = actor.PPOActor(config, engine=None)._compute_advantages(dict(before))
    read = rows_of(after)
    for row, made in zip(read, ROWS, strict=True):
        valid = np.array(made.canonical["response_mask"]) == 1  # it sets the rollout's log-probs of others to 0
        for name in ("response_mask", *COMMON):
            values = np.array(made.canonical[name], np.float32)
            assert np.array_equal(np.array(row[name], np.float32)[valid], values[valid]), name
    assert {(row["policy_version"], row["policy_version_end"]) for row in read} == {(5, 5)}
    assert all(np.isfinite(row["advantages"]).all() for row in read)


def test_a_grpo_batch_of_ms_swift_gives_its_rows() -> None:
    data = released("swift.rl_core.data")
    same_rows(rows_of(held.ms_swift(ROWS, data.GRPOBatch)))


def test_datums_of_tinker_give_their_rows() -> None:
    tinker = released("tinker")
    rows = held.tinker(ROWS, lambda values: tinker.TensorData.from_torch(torch.tensor(values)))
    datums = [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints(row.whole("tokens")[:-1]),
            loss_fn_inputs={name: value for name, value in inputs.items() if name != "training_logprobs"},
        )
        for row, inputs in zip(ROWS, rows, strict=True)
    ]
    log_probs = [inputs["training_logprobs"] for inputs in rows]
    batch = [{**datum.loss_fn_inputs, "training_logprobs": of} for datum, of in zip(datums, log_probs, strict=True)]
    same_rows(rows_of(batch), "current_log_probs", prompts_from=1)


def test_what_tinker_cookbook_makes_of_trajectories_gives_their_rows() -> None:
    tinker, make = released("tinker"), released("tinker_cookbook.rl.data_processing").trajectory_to_data
    types, completers = released("tinker_cookbook.rl.types"), released("tinker_cookbook.completers")
    batch = []
    for row in ROWS:
        action = completers.TokensWithLogprobs(tokens=row.tokens, maybe_logprobs=row.rollout)
        prompt = tinker.ModelInput.from_ints(row.prompt)
        transition = types.Transition(ob=prompt, ac=action, reward=1.0, episode_done=True)
        trajectory = types.Trajectory(transitions=[transition], final_ob=tinker.ModelInput.empty())
        (datum,) = make(trajectory, row.advantage, include_provenance=False)
        batch.append({**datum.loss_fn_inputs, "training_logprobs": torch.tensor(row.whole("old")[1:])})
    for row, made in zip(rows_of(batch), ROWS, strict=True):
        assert row["token_ids"] == made.tokens
        assert row["prompt_token_ids"] == made.prompt[1:]
        for name, values in (("rollout_log_probs", made.rollout), ("current_log_probs", made.old)):
            assert np.array_equal(np.array(row[name], np.float32), np.array(values, np.float32)), name
        assert set(row["advantages"]) == {np.float32(made.advantage)}


def test_samples_of_miles_give_their_rows() -> None:
    sample = released("miles.utils.types").Sample
    made = [
        sample(
            group_index=i // 4,
            index=i,
            tokens=row.whole("tokens"),
            response_length=len(row.tokens),
            reward=row.advantage,
            loss_mask=row.mask,
            rollout_log_probs=row.rollout,
            weight_versions=["3"],
            status=sample.Status.TRUNCATED,
        )
        for i, row in enumerate(ROWS)
    ]
    read = rows_of(made)
    assert [row["rollout_log_probs"] for row in read] == [row.rollout for row in ROWS]
    assert [row["token_ids"] for row in read] == [row.tokens for row in ROWS]
    assert [row["prompt_token_ids"] for row in read] == [row.prompt for row in ROWS]
    assert {row["status"] for row in read} == {"truncated"}
    assert [row["group_id"] for row in read] == [str(i // 4) for i in range(len(ROWS))]
    assert {row["policy_version"] for row in read} == {3}
