"""Batches of padded tensors, one row of data for each framework: which tensor is which column, and where a response is.

`pickled_batches` reads a file by the framework's own names, `memory` takes a trainer's batch apart.  Here its tensors
are named as columns, checked to be of one shape and of the kinds that they should be, and cut: a sample's lists are
views of its row, from where its response begins to where it ends.  What is one value a row stands beside them.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.layout import Held, OpenedDump, Sample
from rlcorr_cli.layouts.memory import as_array_or_rows, as_rows
from rlcorr_cli.layouts.pickled_batches import (
    Batch,
    Jagged,
    data_proto,
    training_batch,
    training_input,
    transfer_queue,
)
from rlcorr_cli.layouts.tensors import Array
from rlcorr_cli.layouts.values import HINT, as_number, as_text, as_whole, span

POLICIES = ("rollout_log_probs", "old_log_probs", "ref_log_probs")
Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Where each row's response begins and ends."""
Tensors = Mapping[str, Array | Jagged]
OF_ROWS = ("reward", "group_id", "sample_id", "policy_version", "policy_version_end", "source", "finish_reason")
"""Columns of one value a row, which a batch in memory may have under these names, whatever trainer it is of."""


def from_first_to_last(mask: Array | Jagged) -> Ends:
    """From the first to the last 1 of each row, a tool's tokens between them among it; a row without one is empty."""
    if isinstance(mask, Jagged):
        parts = [span(row != 0) for row in mask]
        return np.array([part.start for part in parts], np.int64), np.array([part.stop for part in parts], np.int64)
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
    copied: that of a batch whose trained policy is a copy of the rollout's, which then is none; skipped: that of one
    whose trained policy is 0 everywhere.
    prompt: in memory, the tensors of the ids of prompt and response and of where these are no padding ('': everywhere),
    of which those before the response are the prompt's.  laid_out: puts what a batch in memory holds into this form,
    sources: of these values, too.  whole: makes a Batch of what it holds.
    """

    read: Callable[..., Batch] = Batch
    tensors: Mapping[str, str]
    rows: Mapping[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    rewards: tuple[str, ...] = ()
    numbered_by_step: bool = False
    response: Callable[[Mapping[str, Array], Array | Jagged], Ends] | None
    step: Callable[[str, Mapping[Any, Any]], int | None] = lambda path, facts: None
    split: tuple[str, ...] = ()
    shifted: tuple[str, ...] = ()
    no_rollout: tuple[str, str] = ("its batch has no log-probs of the rollout.", HINT)
    missing_policy_hint: str = ""
    copied: str = ""
    skipped: str = ""
    looked_at: tuple[str, ...] = ()
    prompt: tuple[str, str] = ("", "")
    laid_out: Callable[[Held], Held] = lambda held: held
    sources: tuple[str, ...] = ()
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
        return (*self._tensors, *self.rows, *self.sources, *OF_ROWS)

    @property
    def _tensors(self) -> tuple[str, ...]:
        return (*self.tensors, *self.rewards, *self.looked_at, *filter(None, self.prompt))

    def columns(self, held: Held) -> Mapping[str, Any]:
        """A batch in memory, as its file would be read; what has a column's own name and is one value a row, too."""
        try:
            held = self.laid_out(held)
        except (LookupError, ValueError) as error:  # NumPy's, of other shapes
            raise DataError("its tensors have other shapes than its trainer's.", HINT) from error
        there = {name: value for name, value in held.values.items() if value is not None}
        tensors = {name: _tensor(name, there[name]) for name in self._tensors if name in there}
        n_rows = max((len(values) for values in tensors.values()), default=0)
        of_rows = {name: there[name] for name in (*self.rows, *OF_ROWS) if name in there}
        rows = {name: [value] * n_rows if (row := as_rows(value)) is None else row for name, value in of_rows.items()}
        batch = self.whole(tensors=tensors, rows=rows, facts=held.facts)
        cut = self._cut(batch, self.step("", held.facts) if held.step is None else held.step, None)
        ids, valid = map(tensors.get, self.prompt)
        prompts = {} if ids is None else {"prompt_token_ids": _prompts(ids, valid, cut.before_end)}
        return {**{name: rows[name] for name in OF_ROWS if name in rows}, **cut.lists, **cut.values, **prompts}

    def _cut(self, batch: Batch, step: int | None, split: str | None) -> "_Cut":
        tokens = {column: batch.tensors[name] for name, column in self.tensors.items() if name in batch.tensors}
        if not {"response_mask", "token_ids"} <= set(tokens):
            mask, ids, *_ = self.tensors
            raise DataError(f"its batch has no {ids} or no {mask}.", HINT)
        if "rollout_log_probs" not in tokens:
            raise DataError(*self.no_rollout)
        tokens |= {name: _lined_up(tokens[name], tokens["token_ids"]) for name in self.shifted if name in tokens}
        hint = "" if "old_log_probs" in tokens else self.missing_policy_hint
        if self.skipped and _is_placeholder(tokens):
            del tokens["old_log_probs"]
            hint = self.skipped
        _check(tokens)
        mask = tokens["response_mask"]
        if not hint and self.copied and _is_copy(tokens):
            del tokens["old_log_probs"]
            hint = self.copied
        n_rows = len(mask) if batch.n_rows is None else batch.n_rows
        parts = [slice(0, None)] * n_rows
        if self.response is not None:
            dense = {name: values for name, values in batch.tensors.items() if not isinstance(values, Jagged)}
            parts = [slice(*ends) for ends in zip(*map(np.ndarray.tolist, self.response(dense, mask)), strict=True)]
        lists = {
            name: [row[part] for row, part in zip(rows, parts[:n_rows], strict=False)] for name, rows in tokens.items()
        }
        flat = {name: _all_values(tokens[name]) for name in (*POLICIES, "advantages") if name in tokens}
        narrow = {name for name, numbers in flat.items() if numbers.dtype.kind == "f" and numbers.itemsize <= 4}
        values = _row_values(self, batch, n_rows, step)
        values |= {} if split is None else {"split": [split] * n_rows}
        before_end = [len(row) - part.start for row, part in zip(mask, parts[:n_rows], strict=False)]
        return _Cut(lists=lists, values=values, narrow=narrow, missing_policy_hint=hint, before_end=before_end)


@frozen(kw_only=True)
class _Cut:
    """A batch's rows without padding: lists of a value for each token, and values; narrow: lists of 32-bit floats.

    before_end: how many places before the end of its tensors each response begins.
    """

    lists: dict[str, list[Array]]
    values: dict[str, Sequence[Any]]
    narrow: Collection[str]
    missing_policy_hint: str
    before_end: Sequence[int]


def _prompts(ids: Array | Jagged, valid: Array | Jagged | None, before_end: Sequence[int]) -> list[Array]:
    """What is before each row's response, without padding."""
    if valid is not None and valid.shape != ids.shape:
        raise DataError(f"the mask of its prompts has the shape {valid.shape}, their ids {ids.shape}.", HINT)
    prompts = [row[: len(row) - n] for row, n in zip(ids, before_end, strict=False)]
    if valid is None:
        return prompts
    return [prompt[keep[: len(prompt)] != 0] for prompt, keep in zip(prompts, valid, strict=False)]


def _tensor(name: str, value: Any) -> Array | Jagged:
    """A tensor of a batch in memory, or a list of one for each row."""
    array = as_array_or_rows(value)
    if isinstance(array, list) and all(isinstance(row, (np.ndarray, list)) for row in array):
        arrays = [np.asarray(row) for row in array]
        ends = np.cumsum([0, *map(len, arrays)])
        return Jagged(np.concatenate(arrays) if arrays else np.empty(0), ends[:-1], ends[1:])
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        raise DataError(f"its {name} is not a tensor of rows and tokens.", HINT)
    return array


def _lined_up(values: Array | Jagged, ids: Array | Jagged) -> Array | Jagged:
    """T - 1 columns as T, 0.0 for the first token, which nothing predicts."""
    if isinstance(values, Jagged) or isinstance(ids, Jagged):
        return values
    fits = values.ndim == ids.ndim == 2 and values.shape[1] + 1 == ids.shape[1]
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


def _is_placeholder(tokens: Tensors) -> bool:
    """Whether old_log_probs are 0 everywhere, as where a trainer skips their forward pass."""
    old = tokens.get("old_log_probs")
    return old is not None and old.shape == tokens["response_mask"].shape and not np.any(_all_values(old))


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


def in_response(tensors: Mapping[str, Array], mask: Array | Jagged) -> Ends:
    """From the first to the last token that the mask counts."""
    return from_first_to_last(mask)


def _behind_the_prompt(tensors: Mapping[str, Array], mask: Array | Jagged) -> Ends:
    """From the first column to the end of attention_mask behind the prompt, with a tool's tokens."""
    attention = tensors.get("attention_mask")
    starts = np.zeros(len(mask), np.int64)
    if isinstance(mask, Jagged):
        return starts, mask.ends - mask.starts
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
    prompt=("input_ids", "attention_mask"),
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
    response=in_response,
    step=_in_name(r"step_(\d{1,18})"),
    split=("train", "val"),
    no_rollout=(
        "its batch has no infer_logprobs.",
        "Let the engine return log-probs, so that infer_logprobs is in the batch.",
    ),
    skipped="old_log_probs are 0: the run did not compute them. Train with enable_old_logprobs_recompute: true.",
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
