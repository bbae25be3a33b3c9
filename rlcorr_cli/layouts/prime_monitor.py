"""prime-rl's file monitor, since September 2026: what a run sampled, and beside it what was learnt of it later.

A run's folder has monitors/file/traces/ with three streams of JSON lines.  `stream` holds every episode as it arrived;
`annotations/trainer` and `annotations/orch` hold records of its traces: the trainer's log-probs and the advantages of
each branch, over all its tokens, null where there is none, and the step that it was shipped in.  A stream is one file
(stream.jsonl) or a folder of chunks, of which those that are full are sealed (00000.jsonl.zst, of several zstd frames
that may end within a line), and the last is written to (00001.jsonl).

The streams of a run are one unit, whichever of its files was named.  Annotations are read first, in their order, so
that of two values of a branch the newer stays.  Their numbers lie in memory up to SPOOLED_BYTES, then in a temporary
file without a name; what is held of each branch is where.  The stream is then read line by line.

A branch is a path from a root to a leaf, numbered in the order of the leaves.
"""

import io
import json
import math
import os
import re
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError, PartOfStep, naming, plural
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.disk import HALF_WRITTEN
from rlcorr_cli.layouts.json_rows import tree_paths
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import SEALED, MonitorFile, monitor_file
from rlcorr_cli.layouts.values import HINT, aligned, span

SPOOLED_BYTES = 1 << 28
"""Bytes of annotations' numbers that are held in memory."""
LINE_LIMIT = 128 << 20
MAX_TOKENS = 1 << 22
"""Of a branch."""
DECIMALS = 4
"""What prime-rl rounds floats to by default."""
ROUNDED_VALUES = 10_000
"""Log-probs that are looked at for that."""
COLUMNS = (
    *("rollout_log_probs", "response_mask", "token_ids", "group_id", "sample_id", "policy_version"),
    *("policy_version_end", "source", "episode_id", "branch", "kind"),
)
TOKEN_NUMBERS = ("advantages", "entropies", "is_masked")
"""Numbers of each token that annotations have beside the log-probs."""
TYPES = {"episode_id": pa.string(), "branch": pa.int64(), "kind": pa.string()}
BRANCHES = (
    "A row is a branch of a trace, from its first to its last token that counts. A token counts if it was sampled and, "
    "where the trainer has a record of the branch, has a log-prob there."
)
ROUNDED = (
    f"Its log-probs are rounded to {DECIMALS} decimals (float_decimals of prime-rl's monitors.file), so log-ratios are "
    "good to 1e-4."
)
NO_RECORDS = (
    "prime-rl's trainer writes its log-probs of each step that it trains to annotations/trainer beside the stream. "
    "Wait for its first step, or copy the whole monitors/ folder of the run."
)
NO_STREAM = "Annotations are of the traces in stream.jsonl, or in the folder stream, which lie beside their folder."
Values = NDArray[np.float64]
Decoded = TypeVar("Decoded")


class _Stream(msgspec.Struct):
    """What a record tells of one branch."""

    index: int
    trainer_logprobs: list[float | None] | None = None
    advantages: list[float | None] | None = None
    entropies: list[float | None] | None = None
    is_masked: list[bool | float | None] | None = None


class _Ship(msgspec.Struct):
    step: int | None = None


class _Info(msgspec.Struct):
    ship: _Ship | None = None


class _Record(msgspec.Struct):
    """A line of annotations."""

    trace_id: str | None = None
    info: _Info | None = None
    branches: list[_Stream] | None = None


class _Node(msgspec.Struct):
    parent: int | None = None
    token_ids: list[int] | None = None
    mask: list[bool | int] | None = None
    logprobs: list[float | None] | None = None


class _Reward(msgspec.Struct):
    score: float | None = None
    weight: float | None = None


class _Trace(msgspec.Struct):
    id: str | None = None
    nodes: list[_Node] | None = None
    rewards: dict[str, _Reward] | None = None


class _Policy(msgspec.Struct):
    start: int | None = None
    end: int | None = None


class _Work(msgspec.Struct):
    type: str | None = None
    policy: _Policy | None = None


class _Run(msgspec.Struct):
    work: _Work | None = None


class _OfARun(msgspec.Struct):
    run: _Run | None = None

    @property
    def work(self) -> _Work:
        """What the episode is for, and the policies that sampled it."""
        return (self.run.work if self.run else None) or _Work()


class _Named(msgspec.Struct):
    id: str | int | None = None
    name: str | None = None


class _Episode(_OfARun):
    """A line of the stream."""

    id: str | None = None
    env: _Named | None = None
    group: _Named | None = None
    traces: list[_Trace] | None = None


class _NodeSketch(msgspec.Struct):
    parent: int | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"[]")


class _TraceSketch(msgspec.Struct):
    id: str | None = None
    rewards: msgspec.Raw = msgspec.Raw(b"{}")
    nodes: list[_NodeSketch] | None = None


class _EpisodeSketch(_OfARun):
    """As much of a line of the stream as tells its branches."""

    traces: list[_TraceSketch] | None = None


@dataclass(kw_only=True)
class Annotations:
    """What the annotations say, the newest of each value.

    places: (trace, branch, name) -> where its numbers lie in `spooled`, and how many.  steps: trace -> the step that it
    was shipped in.  not_finite: (trace, branch) -> tokens that were trained on and have no log-prob.
    """

    spooled: BinaryIO = field(
        default_factory=lambda: cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOLED_BYTES))  # noqa: SIM115
    )
    places: dict[tuple[str, int, str], tuple[int, int]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    not_finite: dict[tuple[str, int], int] = field(default_factory=dict)
    torn: dict[str, list[int]] = field(default_factory=dict)
    rounded: int | None = 0
    _end: int = 0
    _lock: Any = field(default_factory=Lock)

    def __del__(self) -> None:
        self.spooled.close()

    def read(self, path: str, size: int) -> None:
        """Add the records in a file's first bytes."""
        for record, _ in _records(path, size, _Record, self.torn):
            if record.trace_id is None:
                continue
            if record.info and record.info.ship and record.info.ship.step is not None:
                self.steps[record.trace_id] = record.info.ship.step
            for branch in record.branches or ():
                self._add(record.trace_id, branch)

    def _add(self, trace: str, branch: _Stream) -> None:
        if branch.trainer_logprobs:
            values = self._keep((trace, branch.index, "current_log_probs"), branch.trainer_logprobs)
            self._look_for_rounding(values)
            self.not_finite.pop((trace, branch.index), None)
            trained = zip(branch.is_masked or (), values, strict=False)
            if n_lost := sum(flag is not None and value != value for flag, value in trained):
                self.not_finite[trace, branch.index] = n_lost
        for name in TOKEN_NUMBERS:
            if values := getattr(branch, name):
                self._keep((trace, branch.index, name), values)

    def _keep(self, key: tuple[str, int, str], numbers: list[float | None]) -> Values:
        values = np.array(numbers, np.float64)  # null is NaN
        with self._lock, _temporary():
            self.spooled.seek(self._end)
            self.spooled.write(values.tobytes())
        self.places[key] = self._end, len(values)
        self._end += values.nbytes
        return values

    def _look_for_rounding(self, values: Values) -> None:
        if self.rounded is None or self.rounded >= ROUNDED_VALUES:
            return
        scaled = values[~np.isnan(values)] * 10**DECIMALS
        alike = np.all(np.abs(scaled - np.rint(scaled)) < 1e-6)
        self.rounded = self.rounded + len(scaled) if alike else None

    def values(self, trace: str, branch: int, name: str, n_tokens: int) -> Values | None:
        """The numbers of a branch, NaN where there is none; None where there is no record of it.

        A record that ends early knows nothing of the tokens after it.
        """
        place = self.places.get((trace, branch, name))
        if place is None:
            return None
        start, n_values = place
        if n_values > n_tokens:
            what = f"branch {branch} of trace {trace} has {n_tokens:,} tokens, its annotations {n_values:,}"
            raise DataError(f"{what}: they are not of the same run.", HINT)
        with self._lock, _temporary():
            self.spooled.seek(start)
            numbers = np.frombuffer(self.spooled.read(n_values * 8), np.float64)
        return np.concatenate([numbers, np.full(n_tokens - n_values, np.nan)])

    @property
    def traces(self) -> set[str]:
        """Those that the trainer has records of."""
        return {trace for trace, _, name in self.places if name == "current_log_probs"}

    def has(self, name: str) -> bool:
        """Whether any branch has such numbers."""
        return any(key[2] == name for key in self.places)


@contextmanager
def _temporary() -> Generator[None]:
    try:
        yield
    except OSError as error:
        folder = tempfile.gettempdir()
        what = f"its annotations cannot be kept in {folder} while the stream is read: {error.strerror}."
        raise DataError(what, "Set TMPDIR to a folder with more room.") from error


@dataclass(kw_only=True)
class Counts:
    """Branches with sampled tokens, those without log-probs of the trainer, and those of them of evaluation; what
    traces there are, and whether any has a reward; lines that are no records."""

    branches: int = 0
    untrained: int = 0
    evaluation: int = 0
    traces: set[str] = field(default_factory=set[str])
    rewarded: bool = False
    torn: dict[str, list[int]] = field(default_factory=dict[str, list[int]])


def monitor_units(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The streams of each run, in the order of their chunks: of what was sampled, then of what was learnt of it.

    A chunk that is being sealed is there twice; its plain file is the one that may still grow.
    """
    runs: dict[str, dict[tuple[str, int], MonitorFile]] = {}
    for file in filter(None, map(monitor_file, paths)):
        chunks = runs.setdefault(file.folder, {})
        key = file.stream, file.chunk
        if key not in chunks or chunks[key].path.endswith(SEALED):
            chunks[key] = file
    order = ("stream", "orch", "trainer")
    return [
        tuple(chunks[key].path for key in sorted(chunks, key=lambda key: (order.index(key[0]), key[1])))
        for chunks in runs.values()
    ]


def annotations_beside(paths: Sequence[str]) -> list[str]:
    """What is read with these files: the annotations of their runs, and their stream where none of it is named."""
    runs: dict[str, set[str]] = {}
    for file in filter(None, map(monitor_file, paths)):
        runs.setdefault(file.folder, set()).add(file.stream)
    others: list[str] = []
    for folder, named in runs.items():
        of_run = (monitor_file(path) for path in filesystem(folder).below(folder))
        others += [file.path for file in of_run if file and (file.stream != "stream" or "stream" not in named)]
    return [path for path in others if path not in set(paths)]


def open_run(paths: Sequence[str]) -> OpenedDump:
    """The streams of one run."""
    files = [file for path in paths if (file := monitor_file(path))]
    # While a run goes on, they grow.
    sizes = {file.path: filesystem(file.path).status(file.path).n_bytes for file in files}
    stream = [file for file in files if file.stream == "stream"]
    if not stream:
        raise PartOfStep("it holds annotations, and no stream is beside it.", NO_STREAM)
    annotations = Annotations()
    for file in files:
        if file.stream != "stream":
            annotations.read(file.path, sizes[file.path])
    counts = _counted(stream, sizes, annotations)
    optional = [name for name in ("current_log_probs", *TOKEN_NUMBERS) if annotations.has(name)]
    optional += ["step"] * bool(annotations.steps) + ["reward"] * counts.rewarded

    def samples() -> Iterator[Sample]:
        for file in stream:
            n_rows = 0
            for episode, number in _records(file.path, sizes[file.path], _Episode, {}):
                with naming(f"{file.path}: line {number}"):
                    for row in _rows_of_episode(episode, annotations):
                        yield {**row, "source_file": file.path, "source_row": n_rows}
                        n_rows += 1

    return OpenedDump(
        columns=[*COLUMNS, *optional],
        samples=samples,
        notes=tuple(_notes_of_run(annotations, counts)),
        types=TYPES,
        missing_policy_hint=NO_RECORDS,
    )


def _notes_of_run(annotations: Annotations, counts: Counts) -> Iterator[str]:
    yield BRANCHES
    if counts.untrained and annotations.has("current_log_probs"):
        rest = counts.untrained - counts.evaluation
        kinds = [f"{counts.evaluation:,} of evaluation"] if counts.evaluation else []
        kinds += [f"{rest:,} not trained on, or not yet"] if rest else []
        yield (
            f"{counts.untrained:,} of {counts.branches:,} branches have no log-probs of the trainer "
            f"({', '.join(kinds)}). Commands that compare policies leave them out; convert writes them."
        )
    if n_unknown := len(annotations.traces - counts.traces):
        yield f"The trainer has records of {plural(n_unknown, 'trace')} that the files of the stream do not hold."
    if n_lost := sum(annotations.not_finite.values()):
        lost = plural(n_lost, "token")
        yield f"The trainer had no finite log-prob of {lost} that it trained on; the mask is 0 there."
    if annotations.rounded:
        yield ROUNDED
    for path, lines in (annotations.torn | counts.torn).items():
        name = os.path.join(*re.split(r"[\\/]", path)[-2:])
        first = f"Line {lines[0]:,} of {name} is" if len(lines) == 1 else f"{len(lines):,} lines of {name} are"
        yield f"{first} left out: not complete, because a writer was stopped in the middle, or is still writing."


def _counted(stream: Sequence[MonitorFile], sizes: Mapping[str, int], annotations: Annotations) -> Counts:
    """What the stream holds, without its numbers."""
    counts = Counts()
    for file in stream:
        for episode, number in _records(file.path, sizes[file.path], _EpisodeSketch, counts.torn):
            with naming(f"{file.path}: line {number}"):
                for trace in episode.traces or ():
                    counts.traces.add(trace.id or "")
                    counts.rewarded |= not _is_empty(trace.rewards)
                    nodes = trace.nodes or []
                    sampled = [not _is_empty(node.logprobs) for node in nodes]
                    for branch, path in enumerate(tree_paths([node.parent for node in nodes])):
                        if any(sampled[node] for node in path):
                            is_trained = (trace.id or "", branch, "current_log_probs") in annotations.places
                            counts.branches += 1
                            counts.untrained += not is_trained
                            counts.evaluation += not is_trained and episode.work.type == "eval"
    return counts


def _is_empty(value: msgspec.Raw) -> bool:
    return bytes(value) in (b"{}", b"[]", b"null")


def _rows_of_episode(episode: _Episode, annotations: Annotations) -> Iterator[dict[str, Any]]:
    """The branches of an episode's traces that have sampled tokens."""
    policy = episode.work.policy or _Policy()
    about = {
        "group_id": episode.group and episode.group.id,
        "policy_version": policy.start,
        "policy_version_end": policy.end,
        "source": episode.env and episode.env.name,
        "episode_id": episode.id,
        "kind": episode.work.type,
    }
    for trace in episode.traces or ():
        name = trace.id or ""
        rewards = (trace.rewards or {}).values()
        total = sum((reward.score or 0.0) * (reward.weight or 0.0) for reward in rewards) if rewards else None
        nodes = trace.nodes or []
        lists = [_node_arrays(node) for node in nodes]
        about |= {"sample_id": trace.id, "reward": total, "step": annotations.steps.get(name)}
        for branch, path in enumerate(tree_paths([node.parent for node in nodes])):
            if (n_tokens := sum(len(lists[node][0]) for node in path)) > MAX_TOKENS:
                raise DataError(f"a branch has {n_tokens:,} tokens; at most {MAX_TOKENS:,} are read.", HINT)
            if any(lists[node][1].any() for node in path):
                parts = [np.concatenate(columns) for columns in zip(*(lists[node] for node in path), strict=True)]
                row = {**about, "branch": branch, **_row_of_branch(name, branch, parts, annotations)}
                yield row if any(nodes[node].logprobs for node in path) else {**row, "rollout_log_probs": None}


def _row_of_branch(trace: str, branch: int, parts: Sequence[NDArray[Any]], annotations: Annotations) -> dict[str, Any]:
    tokens, sampled, log_probs = parts
    current = annotations.values(trace, branch, "current_log_probs", len(tokens))
    told = {name: annotations.values(trace, branch, name, len(tokens)) for name in TOKEN_NUMBERS}
    mask = sampled if current is None else sampled & ~np.isnan(current)
    cut = span(mask)
    return {
        "rollout_log_probs": _nulled(log_probs[cut]),
        "response_mask": mask[cut],
        "token_ids": tokens[cut],
        "current_log_probs": None if current is None else _nulled(current[cut]),
        **{name: None if values is None else _nulled(values[cut]) for name, values in told.items()},
    }


def _nulled(values: Values) -> NDArray[Any]:
    """NaN as null, which is what it was."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    nulled = values.astype(object)
    nulled[missing] = None
    return nulled


def _node_arrays(node: _Node) -> tuple[NDArray[np.int64], NDArray[np.bool_], Values]:
    """A node's tokens, which of them were sampled, and their log-probs: 0.0 of the others, NaN of what the engine gave
    none of."""
    try:
        tokens = np.array(node.token_ids or [], np.int64)
    except OverflowError as error:
        raise DataError("token_ids are not whole numbers of 64 bits.", HINT) from error
    mask = np.array(node.mask or [], np.bool_) if len(tokens) else np.zeros(0, np.bool_)
    aligned(token_ids=tokens, mask=mask)
    of_sampled = np.array(node.logprobs or [], np.float64)
    n_sampled = np.count_nonzero(mask)
    if len(of_sampled) and len(of_sampled) != n_sampled:
        raise DataError(f"logprobs has {len(of_sampled):,} values for {n_sampled:,} sampled tokens.", HINT)
    log_probs = np.zeros(len(tokens))
    log_probs[mask] = of_sampled if len(of_sampled) else np.nan
    return tokens, mask, log_probs


def _records(path: str, size: int, kind: type[Decoded], torn: dict[str, list[int]]) -> Iterator[tuple[Decoded, int]]:
    """The record of each line in a file's first bytes, and its number from 1.

    A line that is no whole record is passed over, with its number in `torn`: a writer was interrupted in it.  Where it
    is the first of its file, the file is not what its name says: a DataError.
    """
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(_lines_of(path, size), 1):
        if line.isspace():
            continue
        try:
            yield _decoded(decoder, line), number
        except msgspec.ValidationError as error:
            raise DataError(f"{path}: line {number} is not as prime-rl writes it: {error}.", HINT) from error
        except (ValueError, RecursionError) as error:
            if number == 1 and line.endswith(b"\n"):
                raise DataError(f"{path}: line 1 is not JSON.", HALF_WRITTEN) from error
            torn.setdefault(path, []).append(number)


def _decoded(decoder: msgspec.json.Decoder[Decoded], line: bytes) -> Decoded:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # of a line that is cut, and of one with NaN, which no standard has and many write
        return decoder.decode(msgspec.json.encode(json.loads(line)))


def _lines_of(path: str, size: int) -> Iterator[bytes]:
    """Lines with their ends, of a file's first bytes; of a sealed one all."""
    with filesystem(path).open(path) as file:
        if not path.endswith(SEALED):
            yield from _bounded(file, path, size)
            return
        try:
            # It goes on where a frame ends, which need not be at a line's end.
            with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") as text:
                yield from _bounded(io.BufferedReader(text, PIECE_BYTES), path)
        except (pa.ArrowInvalid, OSError) as error:
            explained = filesystem(path).explained(path, error)
            raise explained or DataError(f"{path} cannot be decompressed: {error}.", HALF_WRITTEN) from error


PIECE_BYTES = 1 << 20


def _bounded(stream: Any, path: str, size: float = math.inf) -> Iterator[bytes]:
    """Lines with their ends, of a stream that gives bytes.  size: how many of these are read."""
    while line := stream.readline(int(min(LINE_LIMIT + 1, size))):
        size -= len(line)
        if len(line) > LINE_LIMIT:
            raise DataError(f"{path} has a line of over {LINE_LIMIT >> 20} MiB.", HINT)
        yield line
