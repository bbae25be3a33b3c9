"""What a run has logged: a number a step and name, from the files that trainers and dashboards write.

`form_of` tells a log by how it begins, `read` reads one as rows of a step and its numbers (`Log`), in the order of the
file, and `settled` makes one series a name of all files.  Nested names are joined by `/`; what only wraps the numbers
(WRAPPERS) is no part of a name.  Texts, lists and pictures are passed over.

Files that begin at the same step and share most of their steps are ranks: of these the mean is taken, of a maximum the
largest and of a minimum the least.  Others are parts of one run, in the order of their first steps.  A step that is
logged again replaces what it was before, as of a run that went on from a checkpoint; steps beyond the last one of such
a run are of the part that was given up, and left out.
"""

import csv
import io
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.tfrecords import fields, records
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import STEPS, FileStart, by_metrics, has_steps, is_events
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.reading.formats import is_searched

Step = int | float
Row = tuple[Step, dict[str, float]]
Made = tuple[list[Row], str]
"""Rows, and what is to be said of those that were not read."""

WRAPPERS = ("data", "metrics", "logs", "scalars")
EVENTS, LINES, DOCUMENT, CSV = "TensorBoard events", "JSON lines of metrics", "JSON of metrics", "CSV of metrics"
READ = (
    "Read are JSON lines of metrics with a step, as of verl's file logger; W&B's export of a run, JSON lines or CSV; "
    "CSV with a column of steps; TensorBoard's event files; trainer_state.json. `⟦analyze(DUMP)⟧` reads a dump."
)
LARGEST_STEP = 2.0**53
_OF_PANEL = re.compile(r"(?P<run>.+) - (?P<name>.+?)(?P<end>__M(IN|AX))?")
_ENDS = {"max": max, "min": min}


@frozen(kw_only=True)
class Log:
    """One file.  rows: a step and its numbers by name, in the order of the file.  note: on what was not read."""

    input: Input
    rows: list[Row]
    note: str


@frozen(kw_only=True)
class Scalars:
    """What all files of a run have logged.  series: name -> step -> value, NaN where what is logged is no number; steps
    in order.  notes: on how it was settled what holds, and on what was not read."""

    inputs: tuple[Input, ...]
    series: Mapping[str, Mapping[Step, float]]
    notes: tuple[str, ...]

    @property
    def steps(self) -> list[Step]:
        """All of them, in order."""
        return sorted({step for values in self.series.values() for step in values})


def form_of(path: str) -> str:
    """Which of the forms a file has; "" of none."""
    start = FileStart(path)
    text = start.first_bytes.removeprefix(b"\xef\xbb\xbf").lstrip()
    if is_events(path):
        return EVENTS
    if text.startswith((b"{", b"[")):
        is_dump = any("log_prob" in key for key in start.row)
        return "" if is_dump else LINES if start.row and b'"log_history"' not in text else DOCUMENT
    return CSV if has_steps(start) else ""


def is_log(paths: Iterable[str]) -> bool:
    """Whether all of these are logs of metrics, and no dumps: events, their folder, or rows of numbers with a step."""
    return all(map(_is_log, map(located, paths)))


def _is_log(place: str) -> bool:
    disk = filesystem(place)
    if not disk.remote and disk.is_directory(place):  # to ask a store takes a listing
        names = os.listdir(place)
        return any(map(is_events, names)) and not any(map(is_searched, names))
    is_text = place.lower().endswith((".jsonl", ".json", ".csv")) and disk.is_file(place)
    return by_metrics(FileStart(place)) if is_text else is_events(place)


def files_of(paths: Iterable[str]) -> list[str]:
    """The files that paths name; of a folder its event files, which must be of one run."""
    found: list[str] = []
    for place in map(located, paths):
        is_folder = filesystem(place).is_directory(place)
        files = sorted(filter(is_events, filesystem(place).below(place))) if is_folder else [place]
        if not files:
            raise DataError(f"{place} holds no event file of TensorBoard's.", "Name the files of a log themselves.")
        if len(folders := sorted(set(map(os.path.dirname, files)))) > 1:
            raise DataError(f"{place} holds event files of {len(folders)} runs.", f"Name one, such as {folders[0]}.")
        found += files
    return found


def read(path: str) -> Log:
    """A file's rows, which may be none; a DataError of a file that is no log, and of one that is damaged."""
    status = filesystem(path).status(path)
    form = form_of(path)
    if not form:
        raise DataError(f"{path} is no log of metrics.", READ)
    with filesystem(path).open(path) as file:
        data = file.read()
    try:
        rows, note = READERS[form](data)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as {form}: {error}.", READ) from error
    about = Input(path=path, format=form, rows=len(rows), n_bytes=status.n_bytes, columns={}, modified=status.modified)
    return Log(input=about, rows=rows, note=note and f"{os.path.basename(path)}: {note}.")


def _events(data: bytes) -> Made:
    """Event is {2: step, 5: summary}, a summary {1: value, ...}, a value {1: tag, 2: number, 8: tensor}; a tensor of
    one number is {4: bytes} or {5: float32} or {6: float64}."""
    rows: list[Row] = []
    for content in records(data):
        event = dict(fields(content))
        numbers = dict[str, float]()
        for _, value in fields(event.get(5, b"")):
            of = dict(fields(value))
            tensor = dict(fields(of.get(8, b"")))
            packed = next((raw for raw in (of.get(2), *map(tensor.get, (4, 5, 6))) if raw is not None), b"")
            if len(packed) in (4, 8):
                numbers[of[1].decode()] = struct.unpack("<f" if len(packed) == 4 else "<d", packed)[0]
        if numbers:
            rows.append((int.from_bytes(event.get(2, b""), "little", signed=True), numbers))
    return rows, ""


def _lines(data: bytes) -> Made:
    """An object a line; the last may be cut short, as of a run that goes on."""
    objects, cut_short = list[Any](), ""
    lines = data.decode("utf-8-sig").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            objects += [json.loads(line)] if line.strip() else []
        except ValueError:
            if number < len(lines):
                raise ValueError(f"line {number:,} is no JSON") from None
            cut_short = "the last line is cut short, and left out"
    rows, note = _rows(objects)
    return rows, "; ".join(filter(None, (cut_short, note)))


def _document(data: bytes) -> Made:
    """A list of objects, or one that has it as `log_history`."""
    document = json.loads(data.decode("utf-8-sig"))
    return _rows(document["log_history"] if isinstance(document, dict) else document)


def _csv(data: bytes) -> Made:
    """A heading, then a row of numbers a line; a panel of W&B's has the run before each name."""
    table = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    heading = next(table)
    panel = [_OF_PANEL.fullmatch(name) for name in heading[1:]]
    if runs := {part["run"] for part in panel if part} if all(panel) else set[str]():
        if len(runs) > 1:
            raise ValueError(f"it holds {len(runs)} runs, {', '.join(sorted(runs)[:3])}; export one of them")
        heading = [heading[0], *("" if part["end"] else part["name"] for part in panel if part)]
    return _rows([dict(zip(heading, line, strict=False)) for line in table if line])


READERS: Mapping[str, Callable[[bytes], Made]] = {EVENTS: _events, LINES: _lines, DOCUMENT: _document, CSV: _csv}
"""Form -> what reads its bytes."""


def _rows(objects: Sequence[Any]) -> Made:
    """The rows of objects, by the name of a step that most of those with numbers have; those without it are counted."""
    numbers = [dict(_numbers(of, "")) for of in objects]
    name = max(STEPS, key=lambda name: sum(name in of and len(of) > 1 for of in numbers))
    rows: list[Row] = []
    for of in numbers:
        values = {key: value for key, value in of.items() if key not in STEPS and key[:1] not in ("", "_")}
        if values and abs(step := of.get(name, math.nan)) <= LARGEST_STEP:
            rows.append((int(step) if step.is_integer() else step, values))
    left_out = len(objects) - len(rows)
    return rows, f"{left_out:,} of {len(objects):,} rows have no {name} or no number" if left_out and rows else ""


def _numbers(of: Any, prefix: str) -> Iterator[tuple[str, float]]:
    """Each number below an object, or text of one, under its joined name."""
    for name, value in of.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, prefix if not prefix and name in WRAPPERS else f"{prefix}{name}/")
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError):
                yield f"{prefix}{name}", float(value)


def settled(logs: Sequence[Log]) -> Scalars:
    """One series a name, of all files; a DataError where none has a number with a step."""
    inputs, full = tuple(log.input for log in logs), [log for log in logs if log.rows]
    if not full:
        raise DataError(f"{inputs[0].path} holds no number with a step, as {inputs[0].format} have.", READ)
    notes = [log.note or f"{log.input.path} holds no number with a step." for log in logs if log.note or not log.rows]
    rows = [row for log in sorted(full, key=lambda log: min(step for step, _ in log.rows)) for row in log.rows]
    if len(full) > 1 and _are_ranks(full):
        rows = _of_ranks(rows)
        notes.append(
            f"{len(full)} files log the same steps, as ranks do: each value is the mean over them, of a maximum the "
            "largest, of a minimum the least."
        )
    series, again, last = dict[str, dict[Step, float]](), set[Step](), rows[-1][0]
    for step, numbers in rows:
        for name, value in numbers.items():
            again |= {step} if series.setdefault(name, {}).get(step, value) != value else set()
            series[name][step] = value
    went_back = bool(again) and max(again) >= last
    if again:
        ends = f"Steps {min(again)} to {max(again)} are" if len(again) > 1 else f"Step {last} is"
        notes.append(f"{ends} logged more than once: what comes last counts.")
    if went_back and any(step > last for values in series.values() for step in values):
        notes.append(f"The run went back, and is at step {last} now: later steps are of what was given up.")
    kept = {
        name: {step: value for step, value in sorted(values.items()) if step <= last or not went_back}
        for name, values in series.items()
    }
    return Scalars(inputs=inputs, series={name: of for name, of in kept.items() if of}, notes=tuple(notes))


def _are_ranks(logs: Sequence[Log]) -> bool:
    """Whether files begin at the same step, and have the same names at most of their steps."""
    first, *others = [{(step, name) for step, numbers in log.rows for name in numbers} for log in logs]
    return all(min(first)[0] == min(of)[0] and 2 * len(of & first) > min(len(of), len(first)) for of in others)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _of_ranks(rows: Iterable[Row]) -> list[Row]:
    """A row a step of what ranks have logged."""
    steps = dict[Step, dict[str, list[float]]]()
    for step, numbers in rows:
        for name, value in numbers.items():
            steps.setdefault(step, {}).setdefault(name, []).append(value)
    return [
        (step, {name: _ENDS.get(re.split("[/_]", name)[-1], _mean)(values) for name, values in steps[step].items()})
        for step in sorted(steps)
    ]
