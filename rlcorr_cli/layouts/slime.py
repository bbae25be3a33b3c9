"""slime's and miles' files of a run: which of them a file is, which belong together, and their rows.

Both save with torch.  A rollout file has `samples` of dicts, the sequences as the engine gave them: tokens are the
prompt's and the response's, everything else is the response's alone.  A training file (`slime_train`) has what the
trainer made of them, of a whole step (slime's format 2) or of one rank (slime's format 1, miles).

Either is read alone, or both of one step joined: then a row is a sequence that was trained on, with reward, versions,
status and group from the rollout file, log-probs, mask and advantages from the training file.  The tokens of both have
to be the same.

miles has two more.  policy_loss_debug/rank_{rank}_call_{call}.pt has three policies of a micro batch as its loss saw
it, over the response, without tokens; its old_log_probs are the trainer's before the update and train_log_probs those
in the loss.  A sequence has no id there but its place in the micro batch, which comes again in every file: sample_id is
rank.call.place.  dashboard_columns/rollout_{id}.parquet has a rollout's columns, which know nothing of remove_sample.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, NoRollouts
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.arrow_files import parquet_file
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts import slime_train
from rlcorr_cli.layouts.layout import KEPT_SETS, OpenedDump, Sample, each_alone
from rlcorr_cli.layouts.recognise import DASHBOARD_COLUMNS, DASHBOARD_NAME, FileStart
from rlcorr_cli.layouts.tensors import NUMPY_GLOBALS, TENSORS, Array, is_tensor
from rlcorr_cli.layouts.torch_files import TorchFile, opened, pickle_of, read_torch
from rlcorr_cli.layouts.values import HINT, as_number, as_text, length, mapping, numbers, rows_of_lists, sequence

ROLLOUT, STEP, RANK, TRAJECTORY = "rollout", "step", "rank", "trajectory"
FIRST_KEYS = {
    ROLLOUT: ("rollout_id", "samples"),
    STEP: ("format_version", "rollout_id"),
    RANK: ("rollout_id", "rank", "rollout_data"),
}
TRAJECTORY_KEYS = ("sample_index", "group_index", "status", "messages")
MILES_MARK = b"qkv_format"
"""What miles' training files end with, and slime's do not have."""


@frozen
class SlimeFile:
    """One of their files, by its beginning."""

    start: FileStart

    @cached_property
    def kind(self) -> str:
        """ROLLOUT, STEP, RANK or TRAJECTORY; '' of another file."""
        words, row = self.start.words, self.start.row
        if words[:2] == ("rollout_id", "metadata") and "samples" in words:
            return ROLLOUT
        if all(key in row for key in TRAJECTORY_KEYS) and not any("log" in key and "prob" in key for key in row):
            return TRAJECTORY
        return next((kind for kind, keys in FIRST_KEYS.items() if words[: len(keys)] == keys), "")

    @property
    def is_whole(self) -> bool:
        """Whether anybody can tell whose it is: half of a rank's file ends before what miles adds."""
        return self.kind != RANK or bool(self.start.tail)

    @cached_property
    def of_miles(self) -> bool:
        """Whether only miles writes it so."""
        if self.kind == ROLLOUT:
            return self.start.words[1] == "metadata"
        return self.kind == TRAJECTORY or (self.kind == RANK and MILES_MARK in self.start.tail)

    @property
    def sign(self) -> str:
        """What it is known by, in words."""
        if self.kind == TRAJECTORY:
            return f"keys {', '.join(TRAJECTORY_KEYS)}"
        mark = {ROLLOUT: ("metadata",), RANK: ("qkv_format",)}[self.kind] if self.of_miles else ()
        return f"torch file, keys {', '.join((*FIRST_KEYS[self.kind], *mark))}"

    @property
    def is_evaluation(self) -> bool:
        """Only its name tells."""
        return self.kind == ROLLOUT and self.start.name.startswith("eval_")

    @property
    def step(self) -> int | None:
        """Its rollout_id."""
        return self.start.numbers.get("rollout_id")

    @property
    def folder(self) -> str:
        """The folder that it is in."""
        return os.path.dirname(filesystem(self.start.path).identity(self.start.path))


def of_slime(start: FileStart) -> str | None:
    """By the first keys of its pickle, where only slime has them so."""
    file = SlimeFile(start)
    return file.sign if file.kind and file.is_whole and not file.of_miles else None


def of_miles(start: FileStart) -> str | None:
    """By the first keys of its pickle and what only miles adds to them, or by a trajectory's keys."""
    file = SlimeFile(start)
    return file.sign if file.kind and file.of_miles else None


def files_of_a_step(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The training files of a step, and the rollout file of the same; evaluations and trajectories only where there
    is nothing else."""
    files = [SlimeFile(FileStart(path)) for path in paths]
    for aside in (lambda file: file.kind == TRAJECTORY, lambda file: file.is_evaluation):
        files = [file for file in files if not aside(file)] or files
    trained: dict[tuple[int | None, str, str], list[SlimeFile]] = {}
    for file in files:
        if file.kind in (STEP, RANK) and file.is_whole:
            trained.setdefault((file.step, file.folder, file.kind), []).append(file)
    generated = [file for file in files if file.kind == ROLLOUT and not file.is_evaluation]
    owner = {id(file): key for key, group in trained.items() for file in group}
    partner = _partners(generated, list(trained))
    units: dict[object, tuple[str, ...]] = {}
    for file in files:
        key = owner.get(id(file)) or partner.get(id(file))
        if key is None:
            units[id(file)] = (file.start.path,)
        elif key not in units:
            joined = [other for other in generated if partner.get(id(other)) == key]
            units[key] = tuple(member.start.path for member in (*trained[key], *joined))
    return list(units.values())


def _partners(
    generated: Sequence[SlimeFile], trained: Sequence[tuple[int | None, str, str]]
) -> dict[int, tuple[int | None, str, str]]:
    """Rollout file -> the training files of its step: the only ones, or those in its folder or beside its folder."""
    partners: dict[int, tuple[int | None, str, str]] = {}
    for file in generated:
        keys = [key for key in trained if key[0] == file.step]
        rivals = [other for other in generated if other.step == file.step]
        near = [key for key in keys if key[1] == file.folder] or [
            key for key in keys if os.path.dirname(key[1]) == os.path.dirname(file.folder)
        ]
        if len(keys) == 1 and len(rivals) == 1:
            partners[id(file)] = keys[0]
        elif len(near) == 1 and near[0] not in partners.values():
            partners[id(file)] = near[0]
    return partners


ALLOWED = (*TENSORS, *NUMPY_GLOBALS, "miles.utils.types.AdapterRef", "miles.utils.types.RewardSpec")
"""What a rollout file's pickle may name."""
SOURCES = "source_name", "data_source"
"""The keys of a sample's metadata that tell where its prompt is from: slime's, miles'."""
FROM_ROLLOUT = (
    *("reward", "group_id", "policy_version", "policy_version_end", "weight_versions"),
    *("source", "status", "remove_sample", *slime_train.ENGINE_FACTS),
)
"""What a joined row has of the rollout file, where the training file has no such column."""
ENGINE = "rollout_log_probs"
ALWAYS = ("response_mask", "token_ids", "step", "sample_id")
TOKEN_FACTS = ("kept_set_size", "policy_versions")
"""What a rollout file may tell of each token beside its log-prob."""
TYPES = {
    "status": pa.string(),
    "remove_sample": pa.bool_(),
    **{name: slime_train.TYPES[name] for name in ("weight_versions", *TOKEN_FACTS)},
}
REMOVED = "sequences with remove_sample were kept from training; their mask is 0 here."
REWARDS = "its rewards are dicts, of which the run's own options choose a key; none is read."
BEFORE_TRAINING = (
    "It is a rollout file, written before training. Name the training file of the same id, too; --dump-details DIR has "
    "both written (in miles unless there is --no-dump-train-data), --save-debug-train-data the latter."
)
UNTRAINED = "sequences of the rollout file that its training files do not hold are left out."
NO_LOG_PROBS = (
    "Name rollout_data/{id}.pt and train_data/{id}_{rank}.pt, which --dump-details has written beside it, instead."
)


@frozen
class RolloutFile:
    """A rollout file, in memory, because its lists lie in one pickle."""

    path: str

    @cached_property
    def file(self) -> TorchFile:
        """The file of torch, whose tensors are read when they are asked for."""
        return read_torch(opened(self.path), ALLOWED)

    @cached_property
    def samples(self) -> list[dict[Any, Any]]:
        """Its sequences."""
        value = mapping(self.file.value, "its pickle")
        return [mapping(sample, f"sample {i}") for i, sample in enumerate(sequence(value, "samples"))]

    @cached_property
    def facts(self) -> list[dict[str, Any]]:
        """What is told of each sequence beside its tokens, by column."""
        samples = self.samples
        step = length(self.file.value, "rollout_id")
        return [{**_sample_facts(sample), "step": step} for sample in samples]

    def tokens(self, number: int) -> Array:
        """The prompt's and the response's tokens of a sequence."""
        return numbers(self.samples[number].get("tokens"), f"tokens of sample {number}", self.file, are_whole=True)

    def log_probs(self, number: int) -> Array | None:
        """The engine's log-probs of a sequence; none where it gave none, as of an empty response."""
        values = self.samples[number].get("rollout_log_probs")
        if values is None:
            return None if self.samples[number].get("response_length") else np.empty(0)
        return numbers(values, f"rollout_log_probs of sample {number}", self.file)

    def mask(self, number: int) -> Array:
        """Which tokens of a response the policy sampled; where that is null, all."""
        n_tokens = length(self.samples[number], "response_length", f"sample {number}")
        mask = self.samples[number].get("loss_mask")
        if mask is None:
            return np.ones(n_tokens, np.int8)
        return numbers(mask, f"loss_mask of sample {number}", self.file, are_whole=True)

    def token_facts(self, number: int) -> dict[str, Array | None]:
        """TOKEN_FACTS of a sequence."""
        sample, mask, what = self.samples[number], self.mask(number), f"sample {number}"

        def numbers_of(key: str) -> Array:
            return numbers(sample[key], f"{key} of {what}", self.file, are_whole=True)

        n_tokens = length(sample, "response_length", what)
        return {
            "kept_set_size": slime_train.kept_set_sizes(sample, numbers_of, n_tokens, what),
            "policy_versions": slime_train.token_versions(sample.get("weight_versions"), mask),
        }

    def rows(self) -> Iterator[Sample]:
        """Its sequences, in order.  A mask that is null counts every token; remove_sample takes a sequence out of
        training only after the file was written, so its mask is 0 here."""
        for number, sample in enumerate(self.samples):
            tokens, what = self.tokens(number), f"sample {number}"
            n_tokens = length(sample, "response_length", what)
            if n_tokens > len(tokens):
                raise DataError(f"{what} has {len(tokens):,} tokens and a response of {n_tokens:,}.", HINT)
            removed = sample.get("remove_sample") is True
            lists = {
                "rollout_log_probs": self.log_probs(number),
                "response_mask": np.zeros(n_tokens, np.int8) if removed else self.mask(number),
                "token_ids": tokens[len(tokens) - n_tokens :],
                **self.token_facts(number),
            }
            yield {**self.facts[number], **lists}

    @property
    def columns(self) -> list[str]:
        """Those that some sequence has."""
        filled = {name for facts in self.facts for name, value in facts.items() if value is not None} | set(ALWAYS)
        theirs = {ENGINE: ENGINE, "kept_set_size": slime_train.KEPT[1], "policy_versions": "weight_versions"}
        filled |= {name for name, key in theirs.items() if any(sample.get(key) is not None for sample in self.samples)}
        named = (ENGINE, *ALWAYS, *TOKEN_FACTS, *_sample_facts({}))
        return [name for name in named if name in filled or not self.samples]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is special about its sequences."""
        removed = any(sample.get("remove_sample") is True for sample in self.samples)
        dicts = any(isinstance(sample.get("reward"), dict) for sample in self.samples)
        kept = "kept_set_size" in self.columns and bool(self.samples)
        return (REMOVED,) * removed + (REWARDS,) * dicts + (KEPT_SETS,) * kept


def _sample_facts(sample: dict[Any, Any]) -> dict[str, Any]:
    metadata = sample.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return {
        "reward": as_number(sample.get("reward")),
        "group_id": as_text(sample.get("group_index")),
        "sample_id": as_text(sample.get("index")),
        "rollout_ids": as_text(sample.get("rollout_id")),
        "policy_version": slime_train.first_version(sample.get("weight_versions")),
        "policy_version_end": slime_train.last_version(sample.get("weight_versions")),
        "weight_versions": slime_train.turn_versions(sample.get("weight_versions")),
        "source": next((metadata[key] for key in SOURCES if isinstance(metadata.get(key), str)), None),
        "status": as_text(sample.get("status")),
        "remove_sample": sample.get("remove_sample") is True,
        **{name: of(sample.get(key)) for name, (key, of) in slime_train.ENGINE_FACTS.items()},
    }


def open_unit(paths: Sequence[str]) -> OpenedDump:
    """A rollout file, the training files of a step, or both."""
    kinds: dict[str, list[str]] = {}
    for path in paths:
        kinds.setdefault(SlimeFile(FileStart(path)).kind, []).append(path)
    if TRAJECTORY in kinds:
        raise NoRollouts("its lines hold texts and rewards, no log-probs: it is a trajectory of miles.", NO_LOG_PROBS)
    if "" in kinds:
        pickle_of(kinds[""][0])  # says what is wrong with a file of torch
        raise DataError("it is neither a rollout file nor a training file of slime or miles.", HINT)
    if STEP not in kinds and RANK not in kinds:
        rollout = RolloutFile(paths[0])
        return OpenedDump(
            columns=rollout.columns,
            samples=rollout.rows,
            notes=rollout.notes,
            types=TYPES,
            missing_policy_hint=BEFORE_TRAINING,
        )
    rows, notes = slime_train.read_ranks(kinds[RANK]) if RANK in kinds else ([], ())
    rows += [row for path in kinds.get(STEP, ()) for row in slime_train.read_step(path)]
    columns, hint = slime_train.columns(rows), ""
    if rows and "old_log_probs" not in columns:
        hint = slime_train.REUSED if "advantages" in columns else slime_train.STAGE
    trained = OpenedDump(
        columns=columns,
        samples=lambda: (row.sample() for row in rows),
        notes=(*notes, *((KEPT_SETS,) if "kept_set_size" in columns else ())),
        types=slime_train.TYPES,
        missing_policy_hint=hint,
    )
    return _joined_dump(trained, rows, RolloutFile(kinds[ROLLOUT][0])) if ROLLOUT in kinds else trained


def _joined_dump(trained: OpenedDump, rows: Sequence[slime_train.TrainRow], rollout: RolloutFile) -> OpenedDump:
    """The trained sequences, each with what the rollout file has of it.  Several may share an index there: the tokens
    tell."""
    generated = rollout.columns
    of_rollout = (*FROM_ROLLOUT, ENGINE, *TOKEN_FACTS)
    added = [name for name in of_rollout if name in generated and name not in trained.columns]
    types = {**TYPES, **{name: type for name, type in trained.types.items() if name not in added}}

    def samples() -> Iterator[Sample]:
        by_index: dict[str | None, list[int]] = {}
        for number, sample in enumerate(rollout.samples):
            by_index.setdefault(as_text(sample.get("index")), []).append(number)
        for row in rows:
            index, tokens = as_text(row.values.get("sample_index")), row.tokens()
            alike = (number for number in by_index.get(index, ()) if np.array_equal(rollout.tokens(number), tokens))
            number = next(alike, None)
            if number is None:
                what = f"its sequence {row.number} (sample_index {index}) is not in {rollout.path}"
                hint = "Are both of one run? Name the training files alone, then."
                raise DataError(f"{what}, or has other tokens there.", hint)
            facts = rollout.facts[number]
            about = {name: facts[name] for name in FROM_ROLLOUT if facts[name] is not None}
            lists = {ENGINE: rollout.log_probs(number), **rollout.token_facts(number)}
            yield {**row.sample(), **about, **{name: lists[name] for name in lists if name in added}}

    untrained = (UNTRAINED,) if len(rollout.samples) > len(rows) else ()
    return replace(
        trained,
        columns=[*trained.columns, *added],
        samples=samples,
        notes=tuple(dict.fromkeys((*trained.notes, *rollout.notes, *untrained))),
        types=types,
    )


IN_LOSS = {
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "current_log_probs": "train_log_probs",
    "advantages": "advantages",
    "response_mask": "local_loss_mask",
}
OF_A_SLICE = "It is a slice of context parallelism, whose place its file does not say; read train_data instead."


def open_policy_loss(paths: Sequence[str]) -> OpenedDump:
    """A micro batch as one rank's loss saw it."""
    (path,) = paths
    file = read_torch(opened(path), TENSORS)
    value = mapping(file.value, "its pickle")
    rank, call = length(value, "rank"), length(value, "call")
    samples = [mapping(sample, f"sample {i}") for i, sample in enumerate(sequence(value, "samples"))]
    columns = [name for name, key in IN_LOSS.items() if any(sample.get(key) is not None for sample in samples)]

    def rows() -> Iterator[Sample]:
        for number, sample in enumerate(samples):
            lists: dict[str, Array] = {}
            n_tokens = length(sample, "response_length", f"sample {number}")
            for name, key in IN_LOSS.items():
                if sample.get(key) is None:
                    continue
                if not is_tensor(sample[key]):
                    raise DataError(f"{key} of sample {number} is not a tensor.", HINT)
                lists[name] = file.array(sample[key])
                if lists[name].shape != (n_tokens,):
                    what = f"sample {number} has {lists[name].size:,} {key} for a response of {n_tokens:,} tokens."
                    raise DataError(what, OF_A_SLICE)
            yield {"worker": rank, "call": call, "sample_id": f"{rank}.{call}.{number}", **lists}

    log_probs = {name: pa.list_(pa.float32()) for name in IN_LOSS if name != "response_mask"}
    return OpenedDump(
        columns=[*columns, "sample_id", "worker", "call"], samples=rows, types={**log_probs, "call": pa.int64()}
    )


LISTS = {"token_ids": "tokens", "response_mask": "loss_mask", "rollout_log_probs": "rollout_log_probs"}
DASHBOARD_TYPES = {"rollout_log_probs": pa.list_(pa.float32()), "token_ids": pa.list_(pa.int32())}
IGNORES_REMOVED = "miles' dashboard does not record remove_sample: sequences that training left out count."
ROLLOUT_ALONE = (
    "The dashboard's columns are of the rollout alone. Name rollout_data/{id}.pt and train_data/{id}_{rank}.pt, which "
    "--dump-details has written beside it, unless there is --no-dump-train-data."
)
DASHBOARD_ROWS = 64
"""Rows of the dashboard's that are read at once."""


def open_dashboard(paths: Sequence[str]) -> OpenedDump:
    """A step's columns for the dashboard."""
    (path,) = paths
    with parquet_file(path) as file:
        absent = [name for name in DASHBOARD_COLUMNS if name not in file.schema_arrow.names]
    if absent:
        raise DataError(f"it has no column {absent[0]}, which miles' dashboard has.", HINT)
    step = DASHBOARD_NAME.search(path)
    columns = ["rollout_log_probs", "response_mask", "token_ids", *(("step",) if step else ()), "sample_id"]

    def rows() -> Iterator[Sample]:
        with parquet_file(path) as file:
            for batch in file.iter_batches(DASHBOARD_ROWS, columns=list(DASHBOARD_COLUMNS), use_threads=False):
                for row in _dashboard_rows(batch):
                    yield {**row, "step": int(step[1]) if step else None}

    return OpenedDump(
        columns=columns,
        samples=rows,
        types=DASHBOARD_TYPES,
        notes=(IGNORES_REMOVED,),
        missing_policy_hint=ROLLOUT_ALONE,
    )


def _dashboard_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    indices, lengths = (batch.column(key).to_pylist() for key in DASHBOARD_COLUMNS[:2])
    for index, n_tokens, lists in zip(indices, lengths, rows_of_lists(batch, LISTS.values()), strict=True):
        row: dict[str, Any] = {"sample_id": index, **{name: lists[key] for name, key in LISTS.items()}}
        tokens = row["token_ids"]
        if not isinstance(n_tokens, int) or tokens is None or not 0 <= n_tokens <= len(tokens):
            raise DataError(f"a response_length is {n_tokens}, and its tokens are fewer, or none.", HINT)
        row["token_ids"] = tokens[len(tokens) - n_tokens :]
        if row["response_mask"] is None:
            row["response_mask"] = np.ones(n_tokens, np.int8)
        yield row


def dashboards(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Each alone; evaluations only where there is nothing else."""
    trained = [path for path in paths if not re.search(r"rollout_eval_[^/]*$", path)]
    return each_alone(trained or paths)
