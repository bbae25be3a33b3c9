"""Batches of padded tensors, one row of data for each framework: which tensor is which column, and where a response is.

`pickled_batches` reads a file by the framework's own names, `memory` takes a trainer's batch apart.  Here its tensors
are named as columns, checked to be of one shape and of the kinds that they should be, and cut: a sample's lists are
views of its row, from where its response begins to where it ends.  What is one value a row stands beside them.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.layout import Held, OpenedDump, Sample
from rlcorr_cli.layouts.memory import as_array, as_rows
from rlcorr_cli.layouts.pickled_batches import (
    Batch,
    Jagged,
    data_proto,
    training_batch,
    training_input,
    transfer_queue,
)
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
    prompt: in memory, the tensors of the prompt's ids and of where these are 1; of ids of prompt and response those
    before the response.  whole: makes a Batch of what a batch in memory holds.
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
    prompt: tuple[str, str] = ("", "")
    whole: Callable[..., Batch] = Batch

    def open(self, paths: Sequence[str]) -> OpenedDump:
        """One file with a batch."""
        (path,) = paths
        batch = self.read(path, (*self.tensors, *self.rewards, *self.looked_at), tuple(self.rows))
        folder = os.path.basename(os.path.dirname(path))
        cut = self._cut(batch, self.step(path, batch.facts), folder if folder in self.split else None)
        lists, values = cut.lists, cut.values

        def samples() -> Iterator[Sample]:
            names = (*lists, *values)
            return (dict(zip(names, row, strict=True)) for row in zip(*lists.values(), *values.values(), strict=True))

        return OpenedDump(
            columns=(*lists, *values),
            samples=samples,
            types=dict.fromkeys(cut.narrow, pa.list_(pa.float32())),
            notes=batch.notes,
            missing_policy_hint=cut.missing_policy_hint,
        )

    def names(self) -> tuple[str, ...]:
        """Of the tensors and the values of rows that are looked at in a batch in memory."""
        return (*self.tensors, *self.rewards, *self.looked_at, *filter(None, self.prompt), *self.rows)

    def columns(self, held: Held) -> Mapping[str, Any]:
        """A batch in memory, as its file would be read."""
        there = {name: value for name in self.names() if (value := held.values.get(name)) is not None}
        tensors = {name: _tensor(name, there.pop(name)) for name in [*there] if name not in self.rows}
        n_rows = max((len(values) for values in tensors.values()), default=0)
        rows = {name: [value] * n_rows if (row := as_rows(value)) is None else row for name, value in there.items()}
        prompts = self._prompts(tensors)
        batch = self.whole(tensors=tensors, rows=rows, facts=held.facts)
        cut = self._cut(batch, self.step("", held.facts) if held.step is None else held.step, None)
        n_rows = len(cut.lists["response_mask"])
        return {**cut.lists, **cut.values, **({} if prompts is None else {"prompt_token_ids": prompts[:n_rows]})}

    def _prompts(self, tensors: Tensors) -> list[Array] | None:
        """The ids of each row's prompt; None where they are not at hand."""
        (name, of_mask), response = self.prompt, tensors.get("response_mask")
        ids, mask = tensors.get(name), tensors.get(of_mask)
        if not isinstance(ids, np.ndarray) or not isinstance(mask, np.ndarray) or not isinstance(response, np.ndarray):
            return [*ids] if isinstance(ids, Jagged) and name not in self.tensors else None
        before = ids.shape[1] - response.shape[1] if name in self.tensors else 0
        width = before or ids.shape[1]
        if len(mask) != len(ids) or mask.shape[1] < width:
            raise DataError(f"its {of_mask} has the shape {mask.shape}, its {name} {ids.shape}.", HINT)
        return [row[valid != 0] for row, valid in zip(ids[:, :width], mask[:, :width], strict=True)]

    def _cut(self, batch: Batch, step: int | None, split: str | None) -> "_Cut":
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
        parts = [slice(None)] * n_rows
        if self.response is not None and not isinstance(mask, Jagged):
            dense = {name: values for name, values in batch.tensors.items() if not isinstance(values, Jagged)}
            parts = [slice(*ends) for ends in zip(*map(np.ndarray.tolist, self.response(dense, mask)), strict=True)]
        lists = {
            name: [row[part] for row, part in zip(rows, parts[:n_rows], strict=False)] for name, rows in tokens.items()
        }
        flat = {name: _all_values(tokens[name]) for name in (*POLICIES, "advantages") if name in tokens}
        narrow = {name for name, numbers in flat.items() if numbers.dtype.kind == "f" and numbers.itemsize <= 4}
        values = _row_values(self, batch, n_rows, step)
        values |= {} if split is None else {"split": [split] * n_rows}
        return _Cut(lists, values, narrow, hint)


@frozen
class _Cut:
    """A batch's rows without padding: lists of a value for each token, and values; narrow: lists of 32-bit floats."""

    lists: dict[str, list[Array]]
    values: dict[str, Sequence[Any]]
    narrow: Collection[str]
    missing_policy_hint: str


def _tensor(name: str, value: Any) -> Array | Jagged:
    """A tensor of a batch in memory, or a list of one for each row."""
    array = as_array(value)
    rows = None if array is not None else as_rows(value)
    if rows is not None and all(isinstance(row, (np.ndarray, list)) for row in rows):
        arrays = [np.asarray(row) for row in rows]
        ends = np.cumsum([0, *map(len, arrays)])
        return Jagged(np.concatenate(arrays) if arrays else np.empty(0), ends[:-1], ends[1:])
    if array is None or array.ndim != 2:
        raise DataError(f"its {name} is not a tensor of rows and tokens.", HINT)
    return array


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


def _row_values(layout: PaddedLayout, batch: Batch, n_rows: int, step: int | None) -> dict[str, Sequence[Any]]:
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
    if step is not None:
        values["step"] = [step] * n_rows
        if layout.numbered_by_step and "group_id" in values:
            values["group_id"] = [group and f"{step}/{group}" for group in values["group_id"]]
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
    prompt=("prompts", "attention_mask"),
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
    prompt=("input_ids", "prompt_mask"),
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
    prompt=("sequences", "attention_mask"),
    whole=training_batch,
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


def trl_names() -> tuple[str, ...]:
    """Of the tensors that `trl_columns` looks at."""
    return (*TRL_COLUMNS, "completion_mask", "tool_mask", "prompt_ids", "prompt_mask", "advantages")


def trl_columns(held: Held) -> Mapping[str, Any]:
    """TRL's batch in memory, as GRPOTrainer's `_generate_and_score_completions` returns it and its loss takes it.

    completion_ids and what goes with them are padded on the right, completion_mask tells how far; tool_mask is 0 for
    tokens of tools, and both become one mask.  sampling_per_token_logps are vLLM's, there with
    `vllm_importance_sampling_correction`; old_per_token_logps the trainer's before updates, there wherever the former
    are.  What is neither [B] nor [B, T] is no column: num_items_in_batch, and what a batch of pictures holds.
    """
    batch = held.values
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
