"""Batches that trainers hold and write to no file in this form: rows of data as in `padded`, which names their columns.

Where a trainer packs sequences, or tells of a token at another place than the token's own, a function lays its batch
out first: a row for each sequence, each value at its token.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import Held
from rlcorr_cli.layouts.memory import as_array
from rlcorr_cli.layouts.packed_batches import COLUMNS
from rlcorr_cli.layouts.padded import POLICIES, PaddedLayout, in_response
from rlcorr_cli.layouts.tensors import Array
from rlcorr_cli.layouts.values import HINT, as_number

OF_TOKENS = ("response_mask", "token_ids", *POLICIES, "advantages")


def _tensors(names: str) -> dict[str, str]:
    """A trainer's names for OF_TOKENS, in its order, and what each is."""
    return dict(zip(names.split(), OF_TOKENS, strict=False))


def _arrays(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Array]:
    """Those of these tensors that are there."""
    arrays = {name: as_array(values.get(name)) for name in names}
    return {name: array for name, array in arrays.items() if array is not None}


def _with(held: Held, values: Mapping[str, Any]) -> Held:
    return replace(held, values={**held.values, **values})


def _without_left_out(held: Held) -> Held:
    """NeMo-RL's rows, those that sample_mask leaves out without a token that counts."""
    arrays = _arrays(held.values, ("token_mask", "sample_mask"))
    kept = arrays.get("sample_mask", np.ones(len(arrays["token_mask"]))) != 0
    return _with(held, {"counted": arrays["token_mask"] * kept[:, None]})


NEMO_RL = PaddedLayout(
    tensors=_tensors("counted input_ids generation_logprobs prev_logprobs reference_policy_logprobs advantages"),
    looked_at=("token_mask",),
    laid_out=_without_left_out,
    sources=("sample_mask",),
    response=lambda tensors, mask: in_response(tensors, tensors["token_mask"]),
    prompt=("input_ids", ""),
    skipped="prev_logprobs are 0: train with loss_fn.force_on_policy_ratio=false.",
)
"""BatchedDataDict of grpo_train and async_grpo_train, over T tokens of prompt and response."""

OPENRLHF = PaddedLayout(
    tensors=_tensors("action_mask sequences rollout_log_probs action_log_probs base_action_log_probs advantages"),
    shifted=("response_mask", *POLICIES, "advantages"),
    rows={"rewards": ("reward", as_number)},
    response=in_response,
    prompt=("sequences", "attention_mask"),
    no_rollout=("its rollout_log_probs are None.", "Train with --algo.advantage.is_correction_level token."),
)
"""Experience, whose lists have T - 1 values for the T tokens of prompt and response."""


def _at_their_tokens(held: Held) -> Held:
    """AReaL's, of which prox_logp and ref_logp stand one before their tokens, and all do after compute_advantages; and
    the first and the last version that sampled a row."""
    values = _arrays(held.values, (*AREAL.tensors, "versions"))
    before = {"prox_logp", "ref_logp", "advantages"}
    if "tot_rewards" in held.values:
        before |= {"logprobs", "loss_mask"}
    moved = {name: np.roll(array, 1, axis=1) if name in before else array for name, array in values.items()}
    versions, valid = moved.pop("versions", None), moved["loss_mask"] != 0
    if versions is None:
        return _with(held, moved)
    first, last = (np.where(valid, versions, other) for other in (np.iinfo(versions.dtype).max, -1))
    return _with(held, {**moved, "policy_version": first.min(axis=1), "policy_version_end": last.max(axis=1)})


AREAL = PaddedLayout(
    tensors=_tensors("loss_mask input_ids logprobs prox_logp ref_logp advantages"),
    rows={"rewards": ("reward", as_number)},
    laid_out=_at_their_tokens,
    sources=("versions", "tot_rewards"),
    response=in_response,
    prompt=("input_ids", "attention_mask"),
    copied="prox_logp is a copy of logprobs: AReaL keeps both with actor.use_decoupled_loss=true.",
)
"""The dict of `PPOActor._compute_advantages`, over T tokens of prompt and response."""


def _of_completions(held: Held) -> Held:
    """ms-swift's, with the ids of the completions, which are the last of input_ids."""
    arrays = _arrays(held.values, ("input_ids", "completion_mask"))
    n_before = arrays["input_ids"].shape[1] - arrays["completion_mask"].shape[1]
    return _with(held, {"completion_ids": arrays["input_ids"][:, n_before:]})


MS_SWIFT = PaddedLayout(
    tensors=_tensors(
        "completion_mask completion_ids rollout_per_token_logps old_per_token_logps ref_per_token_logps advantages"
    ),
    laid_out=_of_completions,
    response=in_response,
    prompt=("input_ids", "attention_mask"),
    no_rollout=("its rollout_per_token_logps are None.", "Let vLLM sample: --use_vllm true."),
)
"""GRPOBatch with the model's inputs beside it, over the completions."""


def _packed(held: Held, layout: PaddedLayout) -> Held:
    """The sequences of packs as rows: position_ids begin anew with each.  What is one token short lacks its first; a
    sequence without a token that counts only fills up."""
    names = [name for name in (*layout.tensors, "position_ids") if held.values.get(name) is not None]
    rows: dict[str, list[Array]] = {name: [] for name in names}
    for of_pack in zip(*(held.values[name] for name in names), strict=True):
        arrays = _arrays(dict(zip(names, of_pack, strict=True)), names)
        pack = {name: array.reshape(-1) for name, array in arrays.items()}
        starts, n_tokens = np.flatnonzero(pack["position_ids"] == 0), len(pack["position_ids"])
        if not len(starts) or starts[0]:
            raise DataError("its position_ids do not begin at 0, so that nothing tells its sequences apart.", HINT)
        counted = np.add.reduceat(pack[names[0]] != 0, starts) > 0
        parts = [slice(*ends) for ends in zip(starts[counted], np.append(starts[1:], n_tokens)[counted], strict=True)]
        for name, array in pack.items():
            rows[name] += [np.pad(array, (n_tokens - len(array), 0))[part] for part in parts]
    return replace(held, values={**held.values, **rows})


PRIME_RL = PaddedLayout(
    tensors={name: COLUMNS[name] for name in ("loss_mask", "input_ids", "inference_logprobs", "advantages")}
    | {"ref_logprobs": COLUMNS["ref_logprobs"], "trainer_logprobs": "current_log_probs"},
    laid_out=lambda held: _packed(held, PRIME_RL),
    sources=("position_ids",),
    response=in_response,
    prompt=("input_ids", ""),
)
"""TensorMicroBatch, a pack of sequences, to which the trainer's log-probs are added."""

OPEN_INSTRUCT = PaddedLayout(
    tensors=_tensors("response_masks query_responses vllm_logprobs old_logprobs ref_logprobs advantages"),
    laid_out=lambda held: _packed(held, OPEN_INSTRUCT),
    sources=("position_ids",),
    response=in_response,
    prompt=("query_responses", ""),
)
"""CollatedBatchData, lists of packs, to which the trainer's log-probs are added."""

TINKER = PaddedLayout(
    tensors=_tensors("mask target_tokens logprobs")
    | {"advantages": "advantages", "training_logprobs": "current_log_probs"},
    response=in_response,
    prompt=("target_tokens", ""),
)
"""loss_fn_inputs of each Datum, over all tokens but the first, with what forward_backward returned for it."""
