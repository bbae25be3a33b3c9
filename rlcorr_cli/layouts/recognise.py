"""By what a file is known: its beginning, as far as it tells what kind of file it is, and the usual signs in it.

Each view of a beginning is made once, when it is asked for.
"""

import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any, BinaryIO

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Uri, scheme

LOOKED_AT = 1 << 16
LONGEST_LINE = 32 << 20
"""Bytes of a first JSON line that is parsed; one of 100,000 tokens has a quarter of it."""
N_VALUES = 64
"""Texts, names and numbers of a pickle that are looked at."""
FIRST_MEMBER = re.compile(rb"PK\x03\x04.{4}\0\0.{16}..(?P<extra>..)[^/\0]{1,4096}/data\.pkl", re.DOTALL)
"""How a file of torch's begins: a member that is not compressed, its name, and the length of what follows that."""
WHOLE = ("BININT", "BININT1", "BININT2", "LONG1")
"""Opcodes of whole numbers."""


EVENTS = re.compile(rb"(?:(?:event|id|retry|):[^\n]*\s+)*data: ?")
"""What server-sent events begin with, up to the first data."""


class FileStart:
    """What recognising may look at.  path: as it was found, so that names and folders can be taken from it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path)

    def _open(self) -> BinaryIO:
        from rlcorr_cli.files import filesystem  # not at the top: options name layouts, and need no file

        return filesystem(self.path).open(self.path)

    @cached_property
    def first_bytes(self) -> bytes:
        """The first bytes."""
        with self._open() as file:
            return file.read(LOOKED_AT)

    @cached_property
    def text(self) -> bytes:
        """These without a mark of their encoding, and without blanks before what they hold."""
        return self.first_bytes.removeprefix(BOM_UTF8).lstrip()

    @cached_property
    def row(self) -> dict[str, Any]:
        """The object in the first line of JSON lines, or of server-sent events; empty of another file."""
        text = self.text
        if event := EVENTS.match(text):
            text = text[event.end() :]
        if not text.startswith(b"{"):
            return {}
        line, end, _ = text.partition(b"\n")
        if not end and len(self.first_bytes) == LOOKED_AT:
            with self._open() as file:
                file.seek(len(self.first_bytes) - len(text))
                line = file.readline(LONGEST_LINE)
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return row if isinstance(row, dict) else {}

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Names and texts at the start of a pickle, or of the pickle in a file of torch: 'module name' of what it
        calls, then or before them the keys of its dicts, in their order."""
        return tuple(value for value in self._values if isinstance(value, str))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Whole numbers that come right after a text there, the first of each: what keys of a dict hold."""
        pairs = reversed([*pairwise(self._values)])
        return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, int)}

    @cached_property
    def tail(self) -> bytes:
        """The last bytes of the same pickle."""
        if self.first_bytes[:1] == b"\x80":
            with self._open() as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 512, 0))
                return file.read()
        return bytes(self._pickle[-512:])

    @cached_property
    def _values(self) -> list[str | int]:
        # torch writes the pickle first, so that it need not be looked up among thousands of members.
        header = FIRST_MEMBER.match(self.first_bytes)
        if self.first_bytes[:1] == b"\x80":
            return _first_values(self.first_bytes)
        if header is not None:
            return _first_values(self.first_bytes[header.end() + int.from_bytes(header["extra"], "little") :])
        return _first_values(bytes(self._pickle[:LOOKED_AT]))

    @cached_property
    def _pickle(self) -> memoryview:
        from rlcorr_cli.layouts.torch_files import is_torch, pickle_of

        if not is_torch(memoryview(self.first_bytes)):
            return memoryview(b"")
        try:
            return pickle_of(self.path)
        except DataError:  # another zip, or half of one; who opens it says so
            return memoryview(b"")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a Parquet file, or of one of Arrow; none of another."""
        if self.first_bytes[:6] == b"ARROW1" or self.first_bytes[:4] == b"\xff\xff\xff\xff":
            return _arrow_columns(self.first_bytes)
        if self.first_bytes[:4] != b"PAR1":
            return ()
        from rlcorr_cli.files.arrow_files import parquet_file

        try:
            with parquet_file(self.path) as file:
                return tuple(file.schema_arrow.names)
        except DataError:  # a damaged one; who opens it says so
            return ()


def _arrow_columns(start: bytes) -> tuple[str, ...]:
    """By the schema, which comes first; none where that is cut off, or damaged."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(start[8:] if start.startswith(b"ARROW1") else start) as reader:
            return tuple(reader.schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, MemoryError):
        return ()


def _first_values(pickled: bytes) -> list[str | int]:
    """The first texts, names and whole numbers of a pickle, without the numbers of its own bookkeeping."""
    import pickletools

    values: list[str | int] = []
    try:
        for opcode, value, _ in pickletools.genops(pickled):
            if len(values) == N_VALUES:
                break
            if (isinstance(value, str) and opcode.name != "PUT") or (isinstance(value, int) and opcode.name in WHOLE):
                values.append(value)
    except ValueError:  # where the start is cut off, or is no pickle
        pass
    return values


def by_torch_keys(*keys: str) -> Callable[[FileStart], str | None]:
    """A file of torch's whose pickle names these keys first."""
    return lambda start: f"torch file, keys {', '.join(keys)}" if start.words[: len(keys)] == keys else None


SQLITE = b"SQLite format 3\0"
WIRE_COLUMNS = ("run_id", "sampling_session_id", "seq_id", "sample_idx", "prompt_tokens", "sampled_tokens", "logprobs")
"""By which a row of tinker-cookbook's capture is known."""
DASHBOARD_NAME = re.compile(r"rollout_(?:eval_)?(\d{1,18})\.[^/]*$")
DASHBOARD_COLUMNS = ("sample_index", "response_length", "total_length", "tokens", "loss_mask", "rollout_log_probs")


def by_dashboard(start: FileStart) -> str | None:
    """miles' dashboard, by its columns in order; only a file that is named as miles names it is opened for them."""
    is_dashboard = DASHBOARD_NAME.search(start.path) and start.columns == DASHBOARD_COLUMNS
    return f"columns {', '.join(DASHBOARD_COLUMNS)}" if is_dashboard else None


def by_keys(*keys: str) -> Callable[[FileStart], str | None]:
    """A first line of JSON that has these keys; of 'a|b' one is enough."""

    def sign(start: FileStart) -> str | None:
        found = [next((name for name in key.split("|") if name in start.row), None) for key in keys]
        return None if None in found else f"keys {', '.join(filter(None, found))}"

    return sign


def by_capture(start: FileStart) -> str | None:
    """tinker-cookbook's capture, by the table in a database, by columns, or by the keys of a first line."""
    if start.first_bytes.startswith(SQLITE):
        return "an SQLite table wire_rows" if b"wire_rows" in start.first_bytes else None
    if start.name.endswith((".arrow", ".parquet")):
        # A Parquet file's columns are at its end: only one that is called so is opened for them.
        is_named = start.name.endswith(".arrow") or "wire_rows" in start.name
        return "columns of wire_rows" if is_named and set(WIRE_COLUMNS) <= set(start.columns) else None
    if start.row.get("kind") == "sample":
        return by_keys("scope", "prompt_tokens", "sampling_params")(start)
    return by_keys(*WIRE_COLUMNS)(start)


SEALED = ".zst"
MONITOR_STREAM = re.compile(r"stream(?:\.jsonl|/(?P<chunk>\d{1,9})\.jsonl(?:\.zst)?)")
ANNOTATIONS = re.compile(r"annotations/(?P<kind>trainer|orch)(?:\.jsonl|/(?P<chunk>\d{1,9})\.jsonl(?:\.zst)?)")
STARTS = {"stream": rb'\s*\{"id":', "trainer": rb'\s*\{"version":', "orch": rb'\s*\{"version":'}
"""What the first record of each stream begins with."""
ZSTD = re.escape(b"\x28\xb5\x2f\xfd")


@frozen
class MonitorFile:
    """A file of a monitor.  folder: of its run's traces.  stream: 'stream', 'trainer' or 'orch'."""

    path: str
    folder: str
    stream: str
    chunk: int


def monitor_file(path: str) -> MonitorFile | None:
    """What a file is by its name and folders; None of a file that lies elsewhere."""
    full = path if scheme(path) else os.path.abspath(path)
    parts = re.split(r"[\\/]", full)
    for depth in (1, 2, 3):
        name = "/".join(parts[-depth:])
        match = MONITOR_STREAM.fullmatch(name) or ANNOTATIONS.fullmatch(name)
        if match:
            kind = match.groupdict().get("kind") or "stream"
            folder = "/".join(parts[:-depth])
            if len(re.split(r"[\\/]", path)) > depth:  # as it was named, where that names the folder
                folder = path[: len(path) - len(name) - 1] or "/"
            if isinstance(path, Uri):
                folder = path.beside(folder)
            return MonitorFile(path, folder, kind, int(match["chunk"] or 0))
    return None


def by_monitor(start: FileStart) -> str | None:
    """By its place, and by how its first record begins; a file that waits for its first record has none."""
    file = monitor_file(start.path)
    if file is None:
        return None
    begins, right = start.first_bytes, ZSTD if start.path.endswith(SEALED) else STARTS[file.stream]
    if begins and not re.match(right, begins):
        return None
    return "its place in the folder of prime-rl's file monitor"


def by_pickle(*firsts: str) -> Callable[[FileStart], str | None]:
    """A pickle whose first name, 'module name', begins so."""

    def sign(start: FileStart) -> str | None:
        first = " ".join(start.words[:2]) if start.first_bytes[:1] == b"\x80" else ""
        known = next((name for name in firsts if first.startswith(name)), None)
        return f"a pickle of {known.strip().replace(' ', '.')}" if known else None

    return sign


STEP_COLUMNS = ("step", "global_step", "global_steps", "training_step", "gen_step", "iteration")
"""What the column of steps of a dump is called; the first is canonical."""
STEPS = (
    *STEP_COLUMNS,
    *("Step", "train/global_step", "trainer/global_step", "training/global_step", "train/step", "rollout/step"),
    *("train_step", "_step"),
)
"""What a row's step is called in a log; the first that most rows have.  W&B's own `_step` counts calls, so it is the
last."""


def is_events(path: str) -> bool:
    """Whether a file is called as TensorBoard's event files are."""
    return "tfevents" in os.path.basename(path)


def has_steps(start: FileStart) -> bool:
    """Whether the first line is the heading of a CSV with a column of steps."""
    heading = start.text.partition(b"\n")[0].decode(errors="replace").split(",")
    return len(heading) > 1 and not {name.strip('"\r ') for name in heading}.isdisjoint(STEPS)


def has_lists(start: FileStart) -> bool:
    """Whether the first line has a list, as log-probs of tokens are in a dump, and no number of a log is."""
    return any(isinstance(value, list) for value in start.row.values())


def by_metrics(start: FileStart) -> bool:
    """A log of metrics: events, a trainer's state, or rows of numbers, most of them, with a step."""
    row = start.row
    if not row:
        return is_events(start.path) or b'"log_history"' in start.first_bytes or has_steps(start)
    numbers = [v for v in row.values() if v is None or isinstance(v, int | float) or hasattr(v, "items")]
    return not set(STEPS).isdisjoint(row) and not has_lists(start) and len(numbers) > len(row) / 2
