"""Training files of slime and miles: per sequence the trainer's log-probs, mask and advantages over the response.

Format 2 of slime has the sequences of a step, put together from all ranks.  Before it, and in miles, every rank writes
its own columns: tensor-parallel ranks are copies of each other, only the last pipeline stage has log-probs, and a
context-parallel rank has a slice of each sequence, two chunks of 2 x cp_size that lie symmetrically.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, PartOfStep
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.tensors import TENSORS, Array
from rlcorr_cli.layouts.torch_files import TorchFile, opened, read_torch
from rlcorr_cli.layouts.values import HINT, as_number, as_text, as_version, as_whole, length, mapping, numbers, sequence


def first_version(values: Any) -> int | None:
    """The policy that a sequence began with, of a list of versions."""
    return as_version(values[0]) if isinstance(values, list) and values else None


def last_version(values: Any) -> int | None:
    """The policy that a sequence ended with, of a list of versions."""
    return as_version(values[-1]) if isinstance(values, list) and values else None


def turn_versions(values: Any) -> list[str | None] | None:
    """The version of each call of the engine, one a turn."""
    return [as_text(value) for value in values] if isinstance(values, list) else None


def token_versions(values: Any, mask: Array) -> Array | None:
    """The version of each token, null between turns.

    None where it is not known: a turn may be several calls, as of one that was aborted and resumed, and their lengths
    stand nowhere.  Where there are as many versions as runs of the mask, each run is one call.
    """
    versions = [as_version(value) for value in values] if isinstance(values, list) else []
    sampled = mask != 0
    starts = np.flatnonzero(sampled & ~np.r_[False, sampled[:-1]])
    if None in versions or not versions or (len(set(versions)) > 1 and len(versions) != len(starts)):
        return None
    if len(versions) != len(starts):
        versions = versions[:1] * len(starts)
    of_tokens = np.full(len(mask), None, object)
    of_tokens[sampled] = np.array(versions, object)[np.searchsorted(starts, np.flatnonzero(sampled), "right") - 1]
    return of_tokens


def kept_set_sizes(
    values: Mapping[Any, Any], numbers_of: Callable[[str], Array], n_tokens: int, what: str
) -> Array | None:
    """How many tokens the sampler chose among, at each token of a response, by where each token's set begins among all
    ids and the last ends; None where a sequence's values do not tell.  numbers_of: a list of it, by its key."""
    if any(values.get(key) is None for key in KEPT):
        return None
    ids, offsets = map(numbers_of, KEPT)
    sizes = np.diff(offsets)
    if len(offsets) != n_tokens + 1 or offsets[0] != 0 or offsets[-1] != len(ids) or np.any(sizes < 0):
        raise DataError(f"{what} has kept sets that do not fit its response of {n_tokens:,} tokens.", HINT)
    return sizes


def cache_fact(key: str) -> Callable[[Any], int | None]:
    """A whole number of a sequence's prefix_cache_info."""
    return lambda info: as_whole(info.get(key)) if isinstance(info, dict) else None


def spec_fact(part: str, whole: str) -> Callable[[Any], float | None]:
    """One count of a sequence's spec_info over another; None where nothing was drafted."""

    def quotient(info: Any) -> float | None:
        above, below = (as_number(info.get(key)) if isinstance(info, dict) else None for key in (part, whole))
        return above / below if above is not None and below else None

    return quotient


ENGINE_FACTS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: ("prefix_cache_info", cache_fact(name)) for name in ("cached_tokens", "total_prompt_tokens")},
    "spec_accept_rate": ("spec_info", spec_fact("spec_accept_token_num", "spec_draft_token_num")),
    "spec_accept_length": ("spec_info", spec_fact("completion_token_num", "spec_verify_ct")),
}
"""Canonical -> theirs, of what the engine saved for a sequence, and what it may hold."""
KEPT = ("rollout_sampling_mask_ids", "rollout_sampling_mask_offsets")
"""Of a sequence, or of a batch a column: the ids of all kept sets, and where each begins."""
PER_TOKEN = {
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "log_probs",
    "ref_log_probs": "ref_log_probs",
    "advantages": "advantages",
}
"""Canonical -> theirs, of what context parallelism slices."""
PER_SEQUENCE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "reward": ("local_raw_reward", as_number),
    "normalized_reward": ("rewards", as_number),
    "sample_id": ("sample_index", as_text),
    "rollout_ids": ("rollout_ids", as_text),
    "policy_version": ("weight_versions", first_version),
    "policy_version_end": ("weight_versions", last_version),
    "weight_versions": ("weight_versions", turn_versions),
    "source": ("source_names", as_text),
    **ENGINE_FACTS,
}
"""Canonical -> theirs, of what is one value a sequence, and what it may hold."""
ALWAYS = ("response_mask", "token_ids", "step", "sample_id", "worker")
TYPES = {
    **{name: pa.list_(pa.float32()) for name in PER_TOKEN},
    "response_mask": pa.list_(pa.int8()),
    "normalized_reward": pa.float64(),
    "kept_set_size": pa.list_(pa.int32()),
    "weight_versions": pa.list_(pa.string()),
    "policy_versions": pa.list_(pa.int64()),
}
COPIES = "ranks of tensor parallelism hold the same sequences; each is read once."
STAGES = "ranks of earlier pipeline stages hold no log-probs and are left out."
SLICES = "slices of context parallelism are put together."
REUSED = (
    "The run took the log-probs from its own loss and wrote none. Train with --get-mismatch-metrics (and the "
    "--custom-tis-function-path that it needs) to have them computed and written; slime since 2026-08-12 "
    "(format_version 2) writes them always."
)
STAGE = "Its rank is not of the last pipeline stage, which alone has log-probs. Name the files of all ranks of a step."
ALL_RANKS = "Name the files of all ranks of a step."


@frozen(kw_only=True)
class TrainRow:
    """One sequence, its tensors unread.  pieces: its values by theirs' names, each with what makes arrays of its
    tensors, by slice of context parallelism."""

    path: str
    number: int
    step: int
    worker: int | None
    pieces: tuple[tuple[Mapping[Any, Any], TorchFile], ...]
    bshd: bool = False

    @property
    def values(self) -> Mapping[Any, Any]:
        """What all slices have alike."""
        return self.pieces[0][0]

    def sample(self) -> dict[str, Any]:
        """The sequence in canonical columns."""
        response = length(self.values, "response_lengths", self._what)
        tokens, mask = self.tokens(), self._numbers_of(0, "loss_masks")
        if response > len(tokens):
            raise DataError(f"{self._what} has {len(tokens):,} tokens and a response of {response:,}.", HINT)
        lists = {name: self._per_token(key, response, len(tokens)) for name, key in PER_TOKEN.items()}
        if len(mask) != response:
            what = f"{self._what} has {len(mask):,} loss_masks for a response of {response:,} tokens."
            raise DataError(what, HINT)
        return {
            **lists,
            "response_mask": mask,
            "kept_set_size": kept_set_sizes(self.values, partial(self._numbers_of, 0), response, self._what),
            "policy_versions": token_versions(self.values.get("weight_versions"), mask),
            "token_ids": tokens[len(tokens) - response :],
            **{name: plain(self.values.get(key)) for name, (key, plain) in PER_SEQUENCE.items()},
            "step": self.step,
            "worker": self.worker,
            "source_file": self.path,
            "source_row": self.number,
        }

    def tokens(self) -> Array:
        """The prompt's and the response's tokens."""
        return self._numbers_of(0, "tokens")

    def _per_token(self, key: str, response: int, total: int) -> Array | None:
        if self.values.get(key) is None:
            return None
        if len(self.pieces) == 1:
            values = self._numbers_of(0, key)
            if len(values) != response:
                what = f"{self._what} has {len(values):,} {key} for a response of {response:,} tokens."
                raise DataError(what, "It may be a slice of context parallelism, whose place its file does not say.")
            return values
        chunked = length(self.values, "max_seq_lens", self._what) if self.bshd else total
        slices = [self._numbers_of(i, key) for i in range(len(self.pieces))]
        assembled = assemble(slices, total, response, chunked)
        if assembled is None:
            raise DataError(f"{self._what} has {key} in slices that do not fit together.", HINT)
        return assembled

    def _numbers_of(self, piece: int, key: str) -> Array:
        values, file = self.pieces[piece]
        return numbers(values.get(key), f"{key} of {self._what}", file)

    @property
    def _what(self) -> str:
        return f"sequence {self.number}"


def assemble(slices: Sequence[Array], total: int, response: int, chunked: int) -> Array | None:
    """The values of a response out of one slice per rank of context parallelism; None where they do not fit.

    The chunks are of the logits, of which the one before a token is the token's.  chunked: the tokens that were cut.
    """
    before = total - response - 1
    size = -(-chunked // (2 * len(slices)))
    values, n_filled = np.empty(response, slices[0].dtype), 0
    for rank, piece in enumerate(slices):
        at = 0
        for chunk in (rank, 2 * len(slices) - 1 - rank):
            first = max(chunk * size, before) - before
            last = max(min((chunk + 1) * size, total - 1) - before, first)
            part = piece[at : at + last - first]
            if len(part) != last - first:
                return None
            values[first:last] = part
            at += len(part)
        n_filled += at
        if at != len(piece):
            return None
    return values if n_filled == response else None


def columns(rows: Sequence[TrainRow]) -> list[str]:
    """Those that some sequence has."""
    keys = {key for row in rows for key, value in row.values.items() if value is not None}
    theirs = {**PER_TOKEN, **{name: key for name, (key, _) in PER_SEQUENCE.items()}}
    theirs |= {"policy_versions": "weight_versions", "kept_set_size": KEPT[1]}
    return list(dict.fromkeys((*ALWAYS, *(name for name, key in theirs.items() if key in keys))))


def read_step(path: str) -> list[TrainRow]:
    """Format 2: the sequences of a step."""
    file = read_torch(opened(path), TENSORS)
    value = mapping(file.value, "its pickle")
    if value.get("format_version") != 2:
        raise DataError("its format_version is not 2.", "Is it of a later slime than rlcorr knows?")
    step = length(value, "rollout_id")
    return [
        TrainRow(
            path=path,
            number=number,
            step=step,
            worker=as_version(mapping(sample, f"sequence {number}").get("data_parallel_rank")),
            pieces=((sample, file),),
        )
        for number, sample in enumerate(sequence(value, "samples"))
    ]


def read_ranks(paths: Sequence[str]) -> tuple[list[TrainRow], tuple[str, ...]]:
    """The sequences of a step by the files of its ranks, each once, and notes on the ranks."""
    alike: dict[object, list[_Rank]] = {}
    for rank in map(_read_rank, paths):
        alike.setdefault(rank.sequences, []).append(rank)
    rows: list[TrainRow] = []
    notes: set[str] = set()
    chosen = [_one_of_each_slice(ranks) for ranks in alike.values()]
    trained = [rank.is_last_stage for slices in chosen for rank in slices]
    if any(trained) and not all(trained):
        raise PartOfStep("some of its sequences are only in files without log-probs.", ALL_RANKS)
    for ranks, slices in zip(alike.values(), chosen, strict=True):
        rows += _train_rows(slices)
        stages = [rank for rank in ranks if rank.is_last_stage != slices[0].is_last_stage]
        notes |= {STAGES} if stages else set()
        notes |= {COPIES} if len(ranks) - len(stages) > len(slices) else set()
        notes |= {SLICES} if len(slices) > 1 else set()
    return rows, tuple(sorted(notes))


@frozen(kw_only=True)
class _Rank:
    """One rank's file.  sequences: what tells whether two hold the same."""

    path: str
    file: TorchFile
    step: int
    rank: int
    cp_rank: int
    cp_size: int
    bshd: bool
    sequences: tuple[tuple[int, ...], ...]

    @property
    def columns(self) -> dict[Any, Any]:
        return self.file.value["rollout_data"]

    @property
    def is_last_stage(self) -> bool:
        return self.columns.get("log_probs") is not None or self.columns.get("advantages") is not None


def _read_rank(path: str) -> _Rank:
    file = read_torch(opened(path), TENSORS)
    value = mapping(file.value, "its pickle")
    data = mapping(value.get("rollout_data"), "its rollout_data")
    indices = sequence(data, "sample_indices")
    lists = (indices, *(sequence(data, key, n_values=len(indices)) for key in ("response_lengths", "total_lengths")))
    if any(type(number) is not int for numbers in lists for number in numbers):
        raise DataError("its sample_indices or lengths are not whole numbers.", HINT)
    sequence(data, "tokens", n_values=len(indices))
    cp_size = length(value, "cp_size") if "cp_size" in value else 1
    cp_rank = length(value, "cp_rank") if "cp_rank" in value else 0
    if not cp_rank < cp_size <= 1 << 16:
        raise DataError(f"its cp_rank is {cp_rank} of {cp_size}.", HINT)
    return _Rank(
        path=path,
        file=file,
        step=length(value, "rollout_id"),
        rank=length(value, "rank"),
        cp_rank=cp_rank,
        cp_size=cp_size,
        bshd=value.get("qkv_format") == "bshd",
        sequences=tuple(tuple(numbers) for numbers in lists),
    )


def _one_of_each_slice(ranks: Sequence[_Rank]) -> list[_Rank]:
    """Of ranks with the same sequences one for each slice, of the last pipeline stage where there is one."""
    by_slice: dict[int, _Rank] = {}
    for rank in sorted(ranks, key=lambda rank: not rank.is_last_stage):
        by_slice.setdefault(rank.cp_rank, rank)
    size = ranks[0].cp_size
    if any(rank.cp_size != size for rank in ranks):
        raise DataError("its ranks are of several sizes of context parallelism.", "Name the files of one run.")
    missing = [number for number in range(size) if number not in by_slice]
    if missing:
        slices = f"slice {ranks[0].cp_rank} of {size} of context parallelism is in it, slice {missing[0]}"
        raise PartOfStep(f"{slices} in no file named.", ALL_RANKS)
    return [by_slice[number] for number in sorted(by_slice)]


def _train_rows(slices: Sequence[_Rank]) -> Iterator[TrainRow]:
    first = slices[0]
    n_rows = len(first.sequences[0])
    for number in range(n_rows):
        yield TrainRow(
            path=first.path,
            number=number,
            step=first.step,
            worker=first.rank,
            pieces=tuple((_values_of_sequence(rank.columns, number, n_rows), rank.file) for rank in slices),
            bshd=first.bshd,
        )


def _values_of_sequence(columns: Mapping[Any, Any], number: int, n_rows: int) -> dict[Any, Any]:
    """One sequence's values; columns that are of the whole batch, such as miles' raw_reward, are of no sequence."""
    theirs = {*PER_TOKEN.values(), *KEPT, *(key for key, _ in PER_SEQUENCE.values())} - {"sample_index"}
    of_sequences = {key: key for key in (*theirs, "tokens", "loss_masks", "response_lengths", "max_seq_lens")}
    return {
        key: values[number]
        for key, column in {**of_sequences, "sample_index": "sample_indices"}.items()
        if isinstance(values := columns.get(column), list) and len(values) == n_rows
    }
