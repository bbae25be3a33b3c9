"""Batches of padded tensors, one row of data for each framework: which tensor is which column, and where a response is.

`pickled_batches` reads a file by the framework's own names.  Here its tensors are named as columns, checked to be of
one shape and of the kinds that they should be, and cut: a sample's lists are views of its row, from where its response
begins to where it ends.  What is one value a row stands beside them.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.pickled_batches import Batch, Jagged, data_proto, training_input, transfer_queue
from rlcorr_cli.layouts.tensors import Array
from rlcorr_cli.layouts.values import HINT, as_number, as_text, as_whole

POLICIES = ("rollout_log_probs", "old_log_probs", "ref_log_probs")
Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Where each row's response begins and ends."""
Tensors = Mapping[str, Array | Jagged]


def from_first_to_last(mask: Array) -> Ends:
    """From the first to the last 1 of each row, a tool's tokens between them among it; a row without one is empty."""
    n_rows, width = mask.shape
    if not width:
        return np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    ones = mask != 0
    rows = ones.any(axis=1)
    return np.where(rows, ones.argmax(axis=1), 0), np.where(rows, width - ones[:, ::-1].argmax(axis=1), 0)


@frozen(kw_only=True)
class PaddedLayout:
    """A framework's batches.

    read: a file, of which these tensors and these values of rows are wanted.  tensors: the framework's name -> column,
    mask and token ids first.  rows: of values of rows, the column and what it may hold.
    rewards: tensors of rewards by token, of which the first that is there is summed.  numbered_by_step: whether groups
    begin anew at each step, so that a group is known by its step, too.
    response: where each row's response is, by the framework's tensors and the mask; None: the rows are no longer.
    looked_at: tensors that tell it, and are no columns.
    step: of a batch, by its path and what is said of it.  split: folders by which a file's rows are told apart.
    shifted: columns of T - 1 tokens, entry t for token t + 1.
    no_rollout: what is wrong without the rollout's log-probs, and what to do.  missing_policy_hint: as in OpenedDump.
    copied: that of a batch whose trained policy is a copy of the rollout's, which then is none.
    """

    read: Callable[[str, tuple[str, ...], tuple[str, ...]], Batch]
    tensors: Mapping[str, str]
    rows: Mapping[str, tuple[str, Callable[[Any], Any]]]
    rewards: tuple[str, ...] = ()
    numbered_by_step: bool = False
    response: Callable[[Mapping[str, Array], Array], Ends] | None
    step: Callable[[str, Mapping[Any, Any]], int | None]
    split: tuple[str, ...] = ()
    shifted: tuple[str, ...] = ()
    no_rollout: tuple[str, str]
    missing_policy_hint: str
    copied: str = ""
    looked_at: tuple[str, ...] = ()

    def open(self, paths: Sequence[str]) -> OpenedDump:
        """One file with a batch."""
        (path,) = paths
        batch = self.read(path, (*self.tensors, *self.rewards, *self.looked_at), tuple(self.rows))
        tokens = {column: batch.tensors[name] for name, column in self.tensors.items() if name in batch.tensors}
        if not {"response_mask", "token_ids"} <= set(tokens):
            mask, ids, *_ = self.tensors
            raise DataError(f"its batch has no {ids} or no {mask}.", HINT)
        if "rollout_log_probs" not in tokens:
            raise DataError(*self.no_rollout)
        tokens |= {name: _lined_up(tokens[name], tokens["response_mask"]) for name in self.shifted if name in tokens}
        _check(tokens)
        mask = tokens["response_mask"]
        hint = "" if "old_log_probs" in tokens else self.missing_policy_hint
        if not hint and self.copied and _is_copy(tokens):
            del tokens["old_log_probs"]
            hint = self.copied
        n_rows = len(mask) if batch.n_rows is None else batch.n_rows
        bounds = None
        if self.response is not None and not isinstance(mask, Jagged):
            dense = {name: values for name, values in batch.tensors.items() if not isinstance(values, Jagged)}
            starts, ends = self.response(dense, mask)
            bounds = starts.tolist(), ends.tolist()
        values = _row_values(self, path, batch, n_rows)

        def samples() -> Iterator[Sample]:
            rows = zip(*tokens.values(), strict=True)
            for row, arrays in zip(range(n_rows), rows, strict=False):
                part = slice(None) if bounds is None else slice(bounds[0][row], bounds[1][row])
                lists = {name: array[part] for name, array in zip(tokens, arrays, strict=True)}
                yield {**lists, **{name: column[row] for name, column in values.items()}}

        flat = {name: _all_values(tokens[name]) for name in (*POLICIES, "advantages") if name in tokens}
        narrow = {name for name, numbers in flat.items() if numbers.dtype.kind == "f" and numbers.itemsize <= 4}
        return OpenedDump(
            columns=(*tokens, *values),
            samples=samples,
            types=dict.fromkeys(narrow, pa.list_(pa.float32())),
            notes=batch.notes,
            missing_policy_hint=hint,
        )


def _lined_up(values: Array | Jagged, mask: Array | Jagged) -> Array | Jagged:
    """T - 1 columns as T, 0.0 for the first token, which nothing predicts."""
    if isinstance(values, Jagged) or isinstance(mask, Jagged):
        return values
    fits = values.ndim == mask.ndim == 2 and values.shape[1] + 1 == mask.shape[1]
    return np.pad(values, ((0, 0), (1, 0))) if fits else values


def _all_values(values: Array | Jagged) -> Array:
    return values.values if isinstance(values, Jagged) else values


def _check(tokens: Tensors) -> None:
    """A DataError where tensors are not all of one shape [B, R], or not all of as many rows of unequal lengths, where
    log-probs are no floats, token ids no whole numbers, or a mask is beyond 0 and 1."""
    mask = tokens["response_mask"]
    for name, values in tokens.items():
        alike = isinstance(mask, Jagged) or values.shape == mask.shape
        if not isinstance(values, Jagged) and (values.ndim != 2 or not alike):
            raise DataError(f"its {name} has the shape {values.shape}, its response_mask {mask.shape}.", HINT)
        if len(values) != len(mask):
            raise DataError(f"its {name} has {len(values):,} rows, its response_mask {len(mask):,}.", HINT)
        flat = _all_values(values)
        if name in POLICIES and flat.dtype.kind != "f":
            raise DataError(f"its {name} holds {flat.dtype}, which log-probs are not.", HINT)
        if name == "token_ids" and flat.dtype.kind not in "iu":
            raise DataError(f"its token ids are of {flat.dtype}, not whole numbers.", HINT)
        if name == "response_mask" and flat.size and (flat.min() < 0 or flat.max() > 1):
            raise DataError(f"its response_mask holds {flat.min()} to {flat.max()}, not 0 and 1.", HINT)


def _is_copy(tokens: Tensors) -> bool:
    """Whether old_log_probs are rollout_log_probs on every token of the mask, of which there is one at least."""
    old, rollout, mask = (_all_values(tokens[name]) for name in ("old_log_probs", "rollout_log_probs", "response_mask"))
    valid = mask != 0
    return bool(valid.any() and not np.any(valid & (old != rollout)))


def _row_values(layout: PaddedLayout, path: str, batch: Batch, n_rows: int) -> dict[str, Sequence[Any]]:
    """What is one value a row."""
    values: dict[str, Sequence[Any]] = {}
    for reward in [batch.tensors[name] for name in layout.rewards if name in batch.tensors][:1]:
        flat = _all_values(reward)
        fits = isinstance(reward, Jagged) or reward.ndim == 2
        if not fits or len(reward) != n_rows or flat.dtype.kind not in "biuf":
            raise DataError(f"its rewards have the shape {reward.shape}, for {n_rows:,} rows.", HINT)
        with np.errstate(invalid="ignore"):  # where infinities of both signs meet
            values["reward"] = [float(np.sum(row, dtype=np.float64)) for row in reward]
    for name, (column, plain) in layout.rows.items():
        if name not in batch.rows:
            continue
        if len(batch.rows[name]) != n_rows:
            raise DataError(f"its {name} has {len(batch.rows[name]):,} values for {n_rows:,} rows.", HINT)
        values[column] = [plain(value) for value in batch.rows[name]]
    step = layout.step(path, batch.facts)
    if step is not None:
        values["step"] = [step] * n_rows
        if layout.numbered_by_step and "group_id" in values:
            values["group_id"] = [group and f"{step}/{group}" for group in values["group_id"]]
    folder = os.path.basename(os.path.dirname(path))
    if folder in layout.split:
        values["split"] = [folder] * n_rows
    return values


def _in_name(pattern: str) -> Callable[[str, Mapping[Any, Any]], int | None]:
    """The step that a file's name tells."""

    def step(path: str, facts: Mapping[Any, Any]) -> int | None:
        match = re.search(pattern, os.path.basename(path))
        return int(match[1]) if match else None

    return step


def _global_steps(path: str, facts: Mapping[Any, Any]) -> int | None:
    return as_whole(facts.get("global_steps"))


def _global_steps_or_folder(path: str, facts: Mapping[Any, Any]) -> int | None:
    step = _global_steps(path, facts)
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    is_number = folder.isdecimal() and len(folder) < 19  # the skip manager's folder of a step
    return int(folder) if step is None and is_number else step


def _behind_the_prompt(tensors: Mapping[str, Array], mask: Array) -> Ends:
    """From the first column to the end of attention_mask behind the prompt, with a tool's tokens."""
    attention = tensors.get("attention_mask")
    starts = np.zeros(len(mask), np.int64)
    if attention is None:
        return starts, from_first_to_last(mask)[1]
    n_rows, width = mask.shape
    fits = attention.ndim == 2 and len(attention) == n_rows and attention.shape[1] >= width
    if not fits or attention.dtype.kind not in "biu":
        raise DataError(f"its attention_mask has the shape {attention.shape}, for {n_rows:,} rows.", HINT)
    return starts, np.count_nonzero(attention[:, attention.shape[1] - width :], axis=1).astype(np.int64)


ROLLOUT_ONLY = (
    "The batch was written before the trainer computed old_log_probs. Call batch.save_to_disk(PATH) in the trainer "
    "after old_log_probs are computed, and name that file."
)
VERL = PaddedLayout(
    read=lambda path, tensors, rows: data_proto(path, "verl.protocol.DataProto", tensors, rows),
    tensors={
        "response_mask": "response_mask",
        "responses": "token_ids",
        "rollout_log_probs": "rollout_log_probs",
        "old_log_probs": "old_log_probs",
        "ref_log_prob": "ref_log_probs",
        "advantages": "advantages",
    },
    rows={
        "uid": ("group_id", as_text),
        "index": ("sample_id", as_text),
        "data_source": ("source", as_text),
        "min_global_steps": ("policy_version", as_whole),
        "max_global_steps": ("policy_version_end", as_whole),
    },
    rewards=("rm_scores", "token_level_scores"),
    looked_at=("attention_mask",),
    response=_behind_the_prompt,
    step=_global_steps_or_folder,
    no_rollout=(
        "its batch has no rollout_log_probs.",
        "Train with actor_rollout_ref.rollout.calculate_log_probs=true to have them kept.",
    ),
    missing_policy_hint=ROLLOUT_ONLY,
    copied="old_log_probs is a copy of rollout_log_probs: in bypass mode the trainer computes none. Train with "
    "algorithm.rollout_correction.bypass_mode=false to have them computed.",
)
"""DataProto of `save_to_disk` or of the skip manager's gen_batch.dp, over the response, padded at its end."""

VERL_TQ = PaddedLayout(
    read=transfer_queue,
    tensors=VERL.tensors,
    rows={
        **{name: VERL.rows[name] for name in ("uid", "data_source", "min_global_steps", "max_global_steps")},
        "keys": ("sample_id", as_text),
    },
    rewards=VERL.rewards,
    response=None,
    step=_global_steps,
    no_rollout=VERL.no_rollout,
    missing_policy_hint=ROLLOUT_ONLY,
)
"""The skip manager's file of TransferQueue, rollout only; keys are {uid}_{session}_{index}."""

ROLL = PaddedLayout(
    read=lambda path, tensors, rows: data_proto(path, "roll.distributed.scheduler.protocol.DataProto", tensors, rows),
    tensors={
        "response_mask": "response_mask",
        "input_ids": "token_ids",
        "infer_logprobs": "rollout_log_probs",
        "old_log_probs": "old_log_probs",
        "ref_log_probs": "ref_log_probs",
        "advantages": "advantages",
    },
    shifted=(*POLICIES, "advantages"),
    rows={
        "episode_scores": ("reward", as_number),
        "group_ids": ("group_id", as_text),
        "env_ids": ("sample_id", as_text),
        "tags": ("source", as_text),
    },
    numbered_by_step=True,
    response=lambda tensors, mask: from_first_to_last(mask),
    step=_in_name(r"step_(\d{1,18})"),
    split=("train", "val"),
    no_rollout=(
        "its batch has no infer_logprobs.",
        "Let the engine return log-probs, so that infer_logprobs is in the batch.",
    ),
    missing_policy_hint="rollout_mock dumps the rollout before the trainer scores it. Call batch.save_to_disk(PATH) in "
    "the pipeline after old_log_probs are computed, and name that file.",
)
"""step_{N}.pkl of rollout_mock: a DataProto of the rollout, before the trainer scored it, over T tokens of prompt and
response.  Environments are numbered in training and in validation, so the folder of a file (train, val) is a column
beside the id."""

SKYRL = PaddedLayout(
    read=training_input,
    tensors={
        "loss_mask": "response_mask",
        "sequences": "token_ids",
        "rollout_logprobs": "rollout_log_probs",
        "action_log_probs": "old_log_probs",
        "base_action_log_probs": "ref_log_probs",
        "advantages": "advantages",
    },
    rows={"prompt": ("group_id", as_text)},
    numbered_by_step=True,
    looked_at=("response_mask",),
    response=lambda tensors, mask: from_first_to_last(tensors["response_mask"]),
    step=_in_name(r"global_step_(\d{1,18})"),
    no_rollout=(
        "its rollout_logprobs are empty: the engine kept none.",
        "Train with generator.sampling_params.logprobs=1 to have them kept.",
    ),
    missing_policy_hint="action_log_probs is empty: no forward pass of the policy ran before the update. Train with "
    "one, and with trainer.dump_data_batch=true.",
)
"""global_step_{N}_training_input.pkl: a TrainingInputBatch of both policies, in R columns.  Responses lie at the right
or, before 2026-03, at the left: response_mask says where, and the mask is loss_mask, 0 on a tool's tokens.  Rows that
only fill the batch up are copies of the first, at the end."""

TRL_COLUMNS = {
    "sampling_per_token_logps": "rollout_log_probs",
    "old_per_token_logps": "old_log_probs",
    "per_token_logps": "current_log_probs",
    "ref_per_token_logps": "ref_log_probs",
    "completion_ids": "token_ids",
}
"""Theirs -> canonical; the rest goes by its own name."""


def trl_columns(batch: Mapping[str, Any]) -> dict[str, Any]:
    """TRL's batch in memory, as GRPOTrainer's `_generate_and_score_completions` returns it and its loss takes it.

    completion_ids and what goes with them are padded on the right, completion_mask tells how far; tool_mask is 0 for
    tokens of tools, and both become one mask.  sampling_per_token_logps are vLLM's, there with
    `vllm_importance_sampling_correction`; old_per_token_logps the trainer's before updates, there wherever the former
    are.  What is neither [B] nor [B, T] is no column: num_items_in_batch, and what a batch of pictures holds.
    """
    if batch.get("sampling_per_token_logps") is None:
        raise DataError(
            "The batch of TRL's has no sampling_per_token_logps.",
            "TRL keeps the engine's with use_vllm and vllm_importance_sampling_correction; without vLLM the trainer "
            "samples itself, and there is nothing to compare.",
        )
    n_rows = len(batch["completion_ids"])
    shapes = {name: tuple(getattr(values, "shape", ())) for name, values in batch.items()}
    present = {name: batch[name] for name, shape in shapes.items() if len(shape) in (1, 2) and shape[0] == n_rows}
    mask, of_tools = present.pop("completion_mask"), present.pop("tool_mask", None)
    named = {TRL_COLUMNS.get(name, name): values for name, values in present.items()}
    return {**named, "response_mask": mask if of_tools is None else mask * of_tools}
