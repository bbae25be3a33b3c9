"""Batches of every trainer, in memory: their rows are those of the golden files, or those that they were made of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from rlcorr_cli import Recorder, analyze, correct, inspect
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.tables import in_memory
from tests.layouts.native_rows import agree, expected
from tests.trainers import held

ROWS = held.rows()


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """As a batch is read."""
    name = in_memory(batch)
    assert name is not None
    return name.table.to_pylist()


FORMS: dict[str, tuple[str, Callable[[], Any]]] = {
    "openrlhf": ("old_log_probs", lambda: held.openrlhf(ROWS)),
    "openrlhf, a list of experiences": ("old_log_probs", lambda: [held.openrlhf(ROWS[:5]), held.openrlhf(ROWS[5:])]),
    "nemo-rl": ("old_log_probs", lambda: held.nemo_rl(ROWS)),
    "areal, before compute_advantages": ("old_log_probs", lambda: held.areal(ROWS, advantages=False)),
    "areal, after compute_advantages": ("old_log_probs", lambda: held.areal(ROWS, advantages=True)),
    "areal, a list of trajectories": ("old_log_probs", lambda: [held.areal([row], advantages=True) for row in ROWS]),
    "ms-swift": ("old_log_probs", lambda: held.ms_swift(ROWS)),
    "prime-rl": ("current_log_probs", lambda: held.prime_rl(ROWS)),
    "prime-rl, micro batches": ("current_log_probs", lambda: [held.prime_rl(ROWS[:7]), held.prime_rl(ROWS[7:])]),
    "open-instruct": ("old_log_probs", lambda: held.open_instruct(ROWS)),
    "tinker": ("current_log_probs", lambda: held.tinker(ROWS)),
}
"""A trainer's batch of ROWS, and what its trained policy is."""


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_holds_the_rows_that_it_was_made_of(form: str) -> None:
    trained, make = FORMS[form]
    read = rows_of(make())
    assert len(read) == len(ROWS)
    for row, made in zip(read, ROWS, strict=True):
        right = made.canonical
        right[trained] = right.pop("old_log_probs")
        if form == "tinker":
            right["prompt_token_ids"] = right["prompt_token_ids"][1:]  # a Datum's targets begin at the second token
        for name, values in right.items():
            assert np.array_equal(np.array(row[name], np.float32), np.array(values, np.float32)), name
        if "advantages" in row:
            assert set(row["advantages"]) == {np.float32(made.advantage)}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_gives_the_numbers_of_its_columns(form: str) -> None:
    columns = [row.canonical for row in ROWS]
    right = analyze({name: [row[name] for row in columns] for name in columns[0]}).whole.values["k3_kl"]
    batch = FORMS[form][1]()
    assert analyze(batch).whole.values["k3_kl"] == pytest.approx(right, rel=1e-5)
    weights = correct(batch, preset="token_is").column("rollout_is_weights").to_pylist()
    for of_row, made in zip(weights, columns, strict=True):
        ratios = np.exp(np.subtract(made["old_log_probs"], made["rollout_log_probs"]))
        valid = np.array(made["response_mask"]) == 1
        assert np.array(of_row)[valid] == pytest.approx(np.minimum(ratios, 2.0)[valid], rel=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_a_recorded_batch_is_a_dump_of_its_rows(tmp_path: Path, form: str) -> None:
    trained, make = FORMS[form]
    with Recorder(tmp_path, strict=True) as recorder:
        recorder.write(make(), step=7)
    read = pq.read_table(tmp_path).to_pylist()
    for row, made in zip(read, ROWS, strict=True):
        right = made.canonical
        for name, ours in (("token_ids", "token_ids"), ("rollout_log_probs",) * 2, (trained, "old_log_probs")):
            assert np.array_equal(np.array(row[name], np.float32), np.array(right[ours], np.float32)), name
        assert row["response_mask"] == right["response_mask"]
    assert [len({row["prompt_id"] for row in read[i : i + 4]}) for i in range(0, len(read), 4)] == [1, 1, 1]
    assert len({row["prompt_id"] for row in read}) == len(ROWS) // 4
    assert {row["step"] for row in read} == {7}
    found = inspect(str(tmp_path))
    assert found.bad_rows == 0
    assert {"rollout_log_probs", "old_log_probs"} <= set(found.columns)


def test_rows_that_nemo_rl_leaves_out_have_no_token_that_counts() -> None:
    read = rows_of(held.nemo_rl(ROWS, left_out=3))
    assert [sum(row["response_mask"]) == 0 for row in read] == [i == 3 for i in range(len(ROWS))]
    assert len(read[3]["token_ids"]) == len(ROWS[3].canonical["token_ids"])


def test_a_recorded_batch_may_be_overwritten_at_once(tmp_path: Path) -> None:
    batch = held.open_instruct(ROWS)
    with Recorder(tmp_path, strict=True) as recorder:
        recorder.write(batch, step=0)
        for packs in batch.values():
            for pack in packs:
                pack.zero_()
    read = pq.read_table(tmp_path)["rollout_log_probs"].to_pylist()
    assert read == [[float(np.float32(value)) for value in row.canonical["rollout_log_probs"]] for row in ROWS]


BROKEN = {
    "areal": {**held.areal(ROWS, advantages=False), "loss_mask": np.ones(3)},
    "ms-swift": {**held.ms_swift(ROWS), "completion_mask": np.ones(3)},
    "nemo-rl": {**held.nemo_rl(ROWS), "sample_mask": np.ones(3)},
    "open-instruct": {**held.open_instruct(ROWS), "position_ids": [np.ones(3)]},
    "openrlhf": {**vars(held.openrlhf(ROWS)), "attention_mask": np.ones((2, 2))},
    "prime-rl": {**held.prime_rl(ROWS), "position_ids": held.positions(ROWS).roll(-1)},
    "prime-rl, of no sequence": {**held.prime_rl(ROWS), "position_ids": held.positions(ROWS) + 1},
    "slime": {**held.slime_train("slime/v1/train_data/0_0.pt"), "loss_masks": [np.ones(3)] * 4},
    "tinker": [{**row, "mask": np.ones((3, 3))} for row in held.tinker(ROWS)],
}


@pytest.mark.parametrize("form", BROKEN)
def test_tensors_that_do_not_fit_are_a_data_error(form: str) -> None:
    with pytest.raises(DataError):
        rows_of(BROKEN[form])


@pytest.mark.parametrize("form", ["nemo-rl", "areal"])
def test_a_policy_that_was_not_computed_is_none(form: str) -> None:
    batch = held.nemo_rl(ROWS) if form == "nemo-rl" else held.areal(ROWS, advantages=True)
    if form == "nemo-rl":
        batch["prev_logprobs"] = batch["prev_logprobs"] * 0
    else:
        batch["prox_logp"] = batch["logprobs"].clone()
    assert "old_log_probs" not in rows_of(batch)[0]


def test_versions_of_areal_are_those_of_sampled_tokens() -> None:
    batch = held.areal(ROWS, advantages=True)
    batch["versions"][2, len(ROWS[2].prompt)] = 3
    read = rows_of(batch)
    assert [(row["policy_version"], row["policy_version_end"]) for row in read[1:4]] == [(5, 5), (3, 5), (5, 5)]


def test_what_is_given_under_a_columns_own_name_is_read() -> None:
    groups = [f"g{i // 4}" for i in range(len(ROWS))]
    read = rows_of({**vars(held.openrlhf(ROWS)), "group_id": groups, "finish_reason": "stop"})
    assert [row["group_id"] for row in read] == groups
    assert {row["finish_reason"] for row in read} == {"stop"}


COMMON = ("token_ids", "rollout_log_probs", "old_log_probs")


TRAIN_DATA = {
    "slime/v1": ("slime/expected_train_v1.parquet", "0_0.pt", "0_1.pt", "1_0.pt"),
    "miles": ("miles/expected_train.parquet", "3_0.pt", "3_1.pt"),
    "miles3": ("miles3/expected_train.parquet", "4_0.pt", "4_1.pt"),
}


@pytest.mark.parametrize("folder", TRAIN_DATA)
def test_train_data_of_slime_and_miles_in_memory_is_that_of_its_file(folder: str) -> None:
    right, *files = TRAIN_DATA[folder]
    for file in files:
        path = f"{folder}/train_data/{file}"
        true = expected(right, path.partition("/")[2])
        batch = held.slime_train(path)
        read = rows_of(batch)
        agree(read, true, *COMMON, "advantages", "sample_id")
        whole = [row["prompt_token_ids"] + row["token_ids"] for row in read]
        assert whole == [tokens.tolist() for tokens in batch["tokens"]]
        assert len(true) > 3


def test_a_slice_of_context_parallelism_is_refused() -> None:
    with pytest.raises(DataError, match="rollout_log_probs for a response"):
        rows_of(held.slime_train("miles/cp2/train_data/3_0.pt"))


def test_a_list_of_samples_is_a_rollout_file_of_slime() -> None:
    for file in ("rollout_data/0.pt", "rollout_data/1.pt"):
        samples = [*held.slime_samples(f"slime/{file}")]
        read = rows_of(samples)
        assert [row["prompt_token_ids"] + row["token_ids"] for row in read] == [sample.tokens for sample in samples]
        columns = ("token_ids", "reward", "group_id", "sample_id", "policy_version", "status", "remove_sample")
        agree(read, expected("slime/expected_rollout.parquet", file), "rollout_log_probs", *columns)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_batch_of_nemo_rl_is_that_of_its_file(step: int) -> None:
    file = f"train_data_step{step}.jsonl"
    agree(rows_of(held.nemo_rl_file(f"nemo-rl/{file}")), expected("nemo-rl/expected.parquet", file), *COMMON)


@pytest.mark.parametrize("file", ["step_7/rank_0.jsonl", "step_7/rank_1.jsonl", "step_8/rank_0.jsonl"])
def test_micro_batches_of_prime_rl_are_those_of_its_file(file: str) -> None:
    read = rows_of(held.prime_rl_file(f"prime-rl/token_exports/{file}"))
    true = expected("prime-rl/expected_token_exports.parquet", f"token_exports/{file}")
    agree(read, [row for row in true if row["n_valid"]], "token_ids", "rollout_log_probs", "current_log_probs")


def test_micro_batches_of_other_widths_keep_their_prompts_and_ids() -> None:
    wide = held.ms_swift(ROWS[5:])
    for name, columns in (("input_ids", 9), ("attention_mask", 9)):
        wide[name] = np.pad(wide[name], ((0, 0), (columns, 0)))  # padded on the left, too
    read = rows_of([held.ms_swift(ROWS[:5]), wide])
    for row, made in zip(read, ROWS, strict=True):
        right = made.canonical
        assert (row["token_ids"], row["prompt_token_ids"]) == (right["token_ids"], right["prompt_token_ids"])


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_rewards_in_a_column_are_those_of_rows(kind: Callable[..., Any]) -> None:
    batch = held.openrlhf(ROWS)
    batch.rewards = kind([[float(i)] for i in range(len(ROWS))])
    assert [row["reward"] for row in rows_of(batch)] == [*range(len(ROWS))]
