"""What a run has logged: a number a step and name, from the files that trainers and dashboards write.

`form_of` tells a log by how it begins, `read` reads one as rows of a step and its numbers (`Log`), in the order of the
file, and `settled` makes one series a name of all files.  Nested names are joined by `/`; what only wraps the numbers
(WRAPPERS) is no part of a name.  Texts, lists and pictures are passed over.

Files are of one log where they hold the same names at most of their steps.  A step that is logged again there
replaces what it was before, as of a run that went on from a checkpoint; steps beyond the last one of such a run are of
the part that was given up, and left out.  Files of one log that begin at the same step are ranks: each is settled by
itself, then the mean is taken, of a maximum the largest and of a minimum the least.  Logs of other names or steps are
put together in the order of their first steps.
"""

import csv
import io
import json
import math
import os
import re
import struct
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.tfrecords import fields, records
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import STEPS, FileStart, by_metrics, has_lists, has_steps, is_events
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.reading.formats import is_searched

Step = int | float
Row = tuple[Step, dict[str, float]]
Logged = tuple[tuple[Step, str], float]
"""A number, after its step and name."""
RowsAndNote = tuple[list[Row], str]
"""Rows, and what is to be said of those that were not read."""

WRAPPERS = ("data", "metrics", "logs", "scalars")
EVENT_FILE, LINES, DOCUMENT, CSV = "TensorBoard events", "JSON lines of metrics", "JSON of metrics", "CSV of metrics"
HINT = (
    "A log is JSON lines of metrics with a step (verl's file logger), W&B's export of a run as JSON lines or CSV, CSV "
    "with a column of steps, TensorBoard's event files, or trainer_state.json. For a dump, use `⟦analyze(DUMP)⟧`."
)
OF_RANKS = (
    "files log the same steps, as ranks do: each value is the mean over them, of a maximum the largest, of a minimum "
    "the least."
)
EXACT = 2.0**53  # up to which a float tells each whole number from the next
NUMBERS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""TensorFlow's types of a tensor (types.proto) -> how one number of it is packed."""
_OF_PANEL = re.compile(r"(?P<run>.+) - (?P<name>.+?)(?P<end>__M(IN|AX))?")
_END = re.compile(r"(?:^|[/_])(max|min)(?:/(?:mean|avg))?$")


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
    if is_events(path):
        return EVENT_FILE
    if start.text.startswith((b"{", b"[")):
        return "" if has_lists(start) else LINES if start.row and b'"log_history"' not in start.text else DOCUMENT
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
        raise DataError(f"{path} is no log of metrics.", HINT)
    with filesystem(path).open(path) as file:
        data = file.read().removeprefix(BOM_UTF8)
    try:
        rows, note = READERS[form](data)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, csv.Error) as error:
        why = error if type(error) is ValueError else "it is damaged, or holds other things than rows of numbers"
        raise DataError(f"{path} cannot be read as {form}: {why}.", HINT) from error
    about = Input(path=path, format=form, rows=len(rows), n_bytes=status.n_bytes, columns={}, modified=status.modified)
    return Log(input=about, rows=rows, note=note and f"{os.path.basename(path)}: {note}.")


def _events(data: bytes) -> RowsAndNote:
    """Event is {2: step, 5: summary}, a summary {1: value, ...}, a value {1: tag, 2: float32, 8: tensor}; a tensor is
    {1: type, 4: bytes} or {1: type, 5: float32} or {1: type, 6: float64}, and one number where it has that size."""
    rows: list[Row] = []
    for content in records(data):
        event = dict(fields(content))
        numbers = dict[str, float]()
        for _, value in fields(event.get(5, b"")):
            of = dict(fields(value))
            tensor = dict(fields(of.get(8, b"")))
            packed = next((raw for raw in (of.get(2), *map(tensor.get, (4, 5, 6))) if raw is not None), b"")
            layout = "<f" if 2 in of else NUMBERS.get(int.from_bytes(tensor.get(1, b""), "little"), "")
            if layout and len(packed) == struct.calcsize(layout):
                numbers[of[1].decode()] = float(struct.unpack(layout, packed)[0])
        if numbers:
            rows.append((int.from_bytes(event.get(2, b""), "little", signed=True), numbers))
    return rows, ""


def _lines(data: bytes) -> RowsAndNote:
    """An object a line; the last may be cut short, as of a run that goes on."""
    objects, cut_short = list[Any](), ""
    lines = data.decode().split("\n")
    for number, line in enumerate(lines, 1):
        try:
            objects += [json.loads(line)] if line.strip() else []
        except ValueError:
            if number < len(lines):
                raise ValueError(f"line {number:,} is no JSON") from None
            cut_short = "the last line is cut short, and left out"
    rows, note = _rows(objects)
    return rows, "; ".join(filter(None, (cut_short, note)))


def _document(data: bytes) -> RowsAndNote:
    """A list of objects, or one that has it as `log_history`."""
    document = json.loads(data.decode())
    return _rows(document["log_history"] if isinstance(document, dict) else document)


def _csv(data: bytes) -> RowsAndNote:
    """A heading, then a row of numbers a line; a panel of W&B's has the run before each name."""
    table = csv.reader(io.StringIO(data.decode(), newline=""))
    heading = next(table)
    panel = [_OF_PANEL.fullmatch(name) for name in heading[1:]]
    if all(panel):
        runs = {part["run"] for part in panel if part}
        if len(runs) > 1:
            raise ValueError(f"it holds {len(runs)} runs, {', '.join(sorted(runs)[:3])}; export one of them")
        # What a point stands for, from its least to its largest, has no name, and is passed over.
        heading = [heading[0], *("" if part["end"] else part["name"] for part in panel if part)]
    return _rows([dict(zip(heading, line, strict=False)) for line in table if line])


READERS = {EVENT_FILE: _events, LINES: _lines, DOCUMENT: _document, CSV: _csv}
"""Form -> what reads its bytes."""


def _rows(objects: Sequence[Any]) -> RowsAndNote:
    """The rows of objects, by the name of a step that most of those with numbers have; those without it are counted."""
    numbers = [dict(_numbers(of, "")) for of in objects]
    name = max(STEPS, key=lambda name: sum(name in of and len(of) > 1 for of in numbers))
    rows: list[Row] = []
    for of in numbers:
        # Other counts of steps are no metrics; W&B's own columns begin with _, and an index of pandas' has no name.
        values = {key: value for key, value in of.items() if key not in STEPS and key[:1] not in ("", "_")}
        # NaN, of a row without a step, is not less than anything.
        if values and abs(step := of.get(name, math.nan)) <= EXACT:
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
    inputs, full = tuple(log.input for log in logs), [_numbers_of(log) for log in logs if log.rows]
    if not full:
        raise DataError(f"{inputs[0].path} holds no number with a step, as {inputs[0].format} have.", HINT)
    notes = [log.note or f"{log.input.path} holds no number with a step." for log in logs if log.note or not log.rows]
    numbers, again, back = list[Logged](), set[Step](), dict[str, None]()
    for files in _alike(full):
        are_ranks = len(files) > 1 and _step(min(files[0])) == _step(min(files[-1]))
        kept = [_kept(part) for part in (files if are_ranks else [[*chain(*files)]])]
        again.update(*(steps for _, steps, _ in kept))
        back |= {note: None for _, _, note in kept if note}
        notes += [f"{len(files)} {OF_RANKS}"] if are_ranks else []
        values = _values(chain(*(part for part, _, _ in kept)))
        numbers += [(at, _of_ranks(at[1], of)) for at, of in values.items()]
    numbers, between, _ = _kept(sorted(numbers, key=_step))  # no run goes back in this order
    if again := again | between:
        ends = f"Steps {min(again)} to {max(again)} are" if len(again) > 1 else f"Step {min(again)} is"
        notes.append(f"{ends} logged more than once: what comes last counts.")
    series = dict[str, dict[Step, float]]()
    for (step, name), value in numbers:
        series.setdefault(name, {})[step] = value
    return Scalars(inputs=inputs, series=series, notes=(*notes, *back))


def _numbers_of(log: Log) -> list[Logged]:
    return [((step, name), value) for step, numbers in log.rows for name, value in numbers.items()]


def _step(number: Logged) -> Step:
    return number[0][0]


def _alike(files: Iterable[list[Logged]]) -> list[list[list[Logged]]]:
    """The files of each log, in the order of their first steps: of any that have the same names at the same steps for
    more than half of what the shorter one holds."""
    logs: list[tuple[list[list[Logged]], set[tuple[Step, str]]]] = []
    for numbers in sorted(files, key=lambda numbers: min(map(_step, numbers))):
        own = {at for at, _ in numbers}
        near = [log for log in logs if 2 * len(own & log[1]) > min(len(own), len(log[1]))] or [([], set())]
        logs += [] if near[0][0] else near
        near[0][0].append(numbers)
        near[0][1].update(own)
    return [of for of, _ in logs]


def _values(numbers: Iterable[Logged]) -> dict[tuple[Step, str], list[float]]:
    """All that is logged at each step under each name, in order."""
    values = dict[tuple[Step, str], list[float]]()
    for at, value in numbers:
        values.setdefault(at, []).append(value)
    return values


def _kept(numbers: Sequence[Logged]) -> tuple[list[Logged], set[Step], str]:
    """What comes last at each step of a log; the steps at which another number came before; and what is to be said of a
    run that went back, whose later steps are left out as given up."""
    values, last = _values(numbers), _step(numbers[-1])
    again = {step for (step, _), of in values.items() if len({*map(repr, of)}) > 1}  # NaN is like NaN
    went_back = max(again, default=-math.inf) >= last < max(values)[0]
    kept = [(at, of[-1]) for at, of in values.items() if not went_back or at[0] <= last]
    note = f"The run went back, and is at step {last} now: later steps are of what was given up."
    return kept, again, note if went_back else ""


def _of_ranks(name: str, values: Sequence[float]) -> float:
    """The mean, of a maximum the largest and of a minimum the least; NaN where one is NaN."""
    end = _END.search(name)
    if end and not any(map(math.isnan, values)):
        return max(values) if end[1] == "max" else min(values)
    return sum(values) / len(values)
