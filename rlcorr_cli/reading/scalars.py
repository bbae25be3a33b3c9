"""What a run has logged: a number a step and name, from the files that trainers and dashboards write.

`form_of` tells a log by how it begins, `read` reads one as rows of a step and its numbers (`Log`), in the order of the
file, and `settled` makes one series a name of all files.  Nested names are joined by `/`; what only wraps the numbers
(WRAPPERS) is no part of a name.  Texts, lists and pictures are passed over.

A step that is logged again replaces what it was before, as of a run that went on from a checkpoint; steps beyond the
last one of such a run are of the part that was given up, and left out.  Files that begin at the same step and share
most of their steps are ranks: of these the mean is taken, of a maximum the largest and of a minimum the least.  Others
are parts of one run, in the order of their first steps.
"""

import csv
import io
import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.tfrecords import fields, records
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.reading.batch import Input

Step = int | float
Row = tuple[Step, dict[str, float]]

STEPS = (
    *("step", "Step", "global_step", "train/global_step", "trainer/global_step", "training/global_step"),
    *("train/step", "rollout/step", "train_step", "training_step", "iteration", "_step"),
)
"""What a row's step is called; the first that every row has.  W&B's own `_step` counts calls, so it is the last."""
WRAPPERS = ("data", "metrics", "logs", "scalars")
EVENTS, STATE, LINES, ROWS, CSV = (
    *("TensorBoard events", "trainer_state.json", "JSON lines of metrics"),
    *("JSON rows of metrics", "CSV of metrics"),
)
READ = (
    "Read are JSON lines of metrics, as of verl's file logger, with a step in each; W&B's export of a run as JSON lines "
    "or CSV; CSV with a column of steps; TensorBoard's event files; trainer_state.json."
)
_NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "inf": math.inf, "-inf": -math.inf}
_OF_PANEL = re.compile(r"(?P<run>.+) - (?P<name>.+?)(?P<end>__M(IN|AX))?")
_ENDS = {"max": max, "min": min}


@frozen(kw_only=True)
class Log:
    """One file.  rows: a step and its numbers by name, in the order of the file.  notes: on what was not read."""

    input: Input
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


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
    if "tfevents" in start.name:
        return EVENTS
    if text.startswith(b"{"):
        return STATE if b'"log_history"' in text else LINES if start.row else ""
    if text.startswith(b"["):
        return ROWS
    heading = next(csv.reader([text.partition(b"\n")[0].decode(errors="replace")]), [])
    return CSV if len(heading) > 1 and not set(STEPS).isdisjoint(heading) else ""


def is_log(paths: Iterable[str]) -> bool:
    """Whether files are logs of metrics, and no dumps: events, or rows of numbers with a step."""
    places = [located(path) for path in paths]
    return bool(places) and all(_is_log(place) for place in places)


def _is_log(place: str) -> bool:
    if filesystem(place).is_directory(place):
        return any(map(_is_events, filesystem(place).below(place)))
    if not filesystem(place).is_file(place):
        return False
    form = form_of(place)
    if form != LINES:
        return form in (EVENTS, STATE, CSV)
    row = FileStart(place).row
    n_numbers = sum(isinstance(value, int | float | Mapping | None) for value in row.values())
    has_lists = any(isinstance(value, list) for value in row.values())
    return not set(STEPS).isdisjoint(row) and not has_lists and n_numbers > len(row) / 2


def _is_events(path: str) -> bool:
    return "tfevents" in os.path.basename(path)


def files_of(paths: Sequence[str]) -> list[str]:
    """The files that paths name; of a folder its event files, which must be of one run."""
    found: list[str] = []
    for place in map(located, paths):
        if not filesystem(place).is_directory(place):
            found.append(place)
            continue
        events = sorted(filter(_is_events, filesystem(place).below(place)))
        if not events:
            raise DataError(f"{place} holds no event file of TensorBoard's.", "Name the files of a log themselves.")
        folders = sorted({os.path.dirname(path) for path in events})
        if len(folders) > 1:
            raise DataError(f"{place} holds event files of {len(folders)} runs.", f"Name one, such as {folders[0]}.")
        found += events
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
        rows, notes = READERS[form](data)
    except (ValueError, TypeError, AttributeError, RecursionError, csv.Error, struct.error) as error:
        raise DataError(f"{path} cannot be read as {form}: {error}.", READ) from error
    source = Input(
        path=path, format=form, rows=len(rows), n_bytes=status.n_bytes, columns={}, modified=status.modified
    )
    return Log(input=source, rows=rows, notes=tuple(f"{os.path.basename(path)}: {note}." for note in notes))


Made = tuple[tuple[Row, ...], list[str]]


def _events(data: bytes) -> Made:
    """Event is {2: step, 5: summary}, a summary {1: value, ...}, a value {1: tag, 2: number, 8: tensor}; a tensor of
    one number is {4: bytes} or {5: float32} or {6: float64}."""
    rows: list[Row] = []
    for content in records(data):
        event = dict(fields(content))
        step, numbers = event.get(2, 0), dict[str, float]()
        for number, value in fields(_bytes_of(event.get(5))):
            of = dict(fields(_bytes_of(value))) if number == 1 else {}
            tensor = dict(fields(_bytes_of(of.get(8))))
            packed = next((_bytes_of(raw) for raw in (of.get(2), *map(tensor.get, (4, 5, 6))) if raw is not None), b"")
            if len(packed) in (4, 8):
                numbers[_bytes_of(of.get(1)).decode()] = struct.unpack("<f" if len(packed) == 4 else "<d", packed)[0]
        if numbers and isinstance(step, int):
            rows.append((step - (step >> 63 << 64), numbers))
    return tuple(rows), []


def _bytes_of(value: int | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _lines(data: bytes) -> Made:
    """An object a line; the last may be cut short, as of a run that goes on."""
    objects, notes = list[Any](), list[str]()
    lines = data.decode("utf-8-sig").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            objects += [json.loads(line)] if line.strip() else []
        except ValueError:
            if number < len(lines):
                raise ValueError(f"line {number:,} is no JSON") from None
            notes.append("the last line is cut short, and left out")
    rows, more = _rows(objects)
    return rows, notes + more


def _document(data: bytes) -> Made:
    """A list of objects, or one that has it as `log_history`."""
    document = json.loads(data.decode("utf-8-sig"))
    return _rows(document["log_history"] if isinstance(document, dict) else document)


def _csv(data: bytes) -> Made:
    """A heading, then a row of numbers a line; a panel of W&B's has the run before each name."""
    table = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    heading = next(table)
    if len(panel := [part for name in heading[1:] if (part := _OF_PANEL.fullmatch(name))]) == len(heading) - 1:
        if len(runs := dict.fromkeys(part["run"] for part in panel)) > 1:
            raise ValueError(f"it holds {len(runs)} runs, {', '.join([*runs][:3])}; export one of them")
        heading = [heading[0], *("" if part["end"] else part["name"] for part in panel)]
    rows = [dict(zip(heading, line, strict=False)) for line in table if line]
    return _rows([{name: cell for name, cell in row.items() if name} for row in rows])


READERS: Mapping[str, Callable[[bytes], Made]] = {
    EVENTS: _events,
    STATE: _document,
    LINES: _lines,
    ROWS: _document,
    CSV: _csv,
}
"""Form -> what reads its bytes."""


def _rows(objects: Sequence[Any]) -> Made:
    """The rows of objects, by the first name of a step that all with numbers have; those without one are counted."""
    numbers = [dict(_numbers(of, "")) for of in objects]
    numbers = [of for of in numbers if len(of) > 1]
    name = max(STEPS, key=lambda name: sum(name in of for of in numbers))
    known = [of for of in numbers if name in of and math.isfinite(of[name])]
    missing = len(objects) - len(known)
    rows = tuple(
        (int(step) if step.is_integer() else step, {key: value for key, value in of.items() if key not in STEPS})
        for of in known
        for step in (of[name],)
    )
    return rows, [f"{missing:,} of {len(objects):,} rows have no {name} or no number, and are left out"] if (
        missing and known
    ) else []


def _numbers(of: Any, prefix: str) -> Iterator[tuple[str, float]]:
    """Each number below an object, under its joined name."""
    for name, value in of.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, prefix if not prefix and name in WRAPPERS else f"{prefix}{name}/")
        elif (number := _number(value)) is not None:
            yield f"{prefix}{name}", number


def _number(value: Any) -> float | None:
    """A number, or the text of one; None of anything else, as of an empty cell."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return _NOT_FINITE.get(str(value).lower())


def settled(logs: Sequence[Log]) -> Scalars:
    """One series a name, of all files; a DataError where none has a number with a step."""
    empty = [log for log in logs if not log.rows]
    if len(empty) == len(logs):
        first = logs[0].input
        raise DataError(f"{first.path} holds no number with a step, as {first.format} have.", READ)
    logs = sorted((log for log in logs if log.rows), key=lambda log: min(step for step, _ in log.rows))
    each = [_of_file(log) for log in logs]
    steps = [{step for values in series.values() for step in values} for series, _ in each]
    names = Counter(name for series, _ in each for name in series)
    notes = [f"{os.path.basename(log.input.path)} holds no number with a step." for log in empty]
    notes += [note for log, (_, more) in zip(logs, each, strict=True) for note in (*log.notes, *more)]
    is_alike = (min(of) == min(steps[0]) and 2 * len(of & steps[0]) > min(len(of), len(steps[0])) for of in steps)
    if max(names.values()) > 1 and all(is_alike):
        series = {name: _of_ranks(name, [of[name] for of, _ in each if name in of]) for name in names}
        notes.append(
            f"{len(logs)} files log the same steps, as ranks do: each value is the mean over them, of a maximum the "
            "largest, of a minimum the least."
        )
        return Scalars(inputs=tuple(log.input for log in logs), series=series, notes=tuple(notes))
    whole = dict[str, dict[Step, float]]()
    for of, _ in each:
        for name, values in of.items():
            whole.setdefault(name, {}).update(values)
    times = Counter(step for of in steps for step in of)
    if max(names.values()) > 1 and (twice := sorted(step for step, n in times.items() if n > 1)):
        ends = f"Steps {twice[0]:g} to {twice[-1]:g} are" if len(twice) > 1 else f"Step {twice[0]:g} is"
        notes.append(f"{ends} in more than one file: the one that begins later counts.")
    whole = {name: dict(sorted(values.items())) for name, values in whole.items()}
    return Scalars(inputs=tuple(log.input for log in logs), series=whole, notes=tuple(notes))


def _of_file(log: Log) -> tuple[dict[str, dict[Step, float]], list[str]]:
    """The series of a file, and how steps were settled that it has more than once."""
    series, again, given_up = dict[str, dict[Step, float]](), set[Step](), set[Step]()
    last = log.rows[-1][0]
    for step, numbers in log.rows:
        for name, value in numbers.items():
            values = series.setdefault(name, {})
            again |= {step} if step in values else set()
            values[step] = value
    if again and max(again) >= last:  # it went back, and has not come as far as before
        given_up = {step for values in series.values() for step in values if step > last}
    kept = {
        name: {step: value for step, value in sorted(values.items()) if step not in given_up}
        for name, values in series.items()
    }
    where, notes = os.path.basename(log.input.path), list[str]()
    if again:
        ends = f"steps {min(again):g} to {max(again):g}" if len(again) > 1 else f"step {min(again):g}"
        notes.append(f"{where}: {ends} {'are' if len(again) > 1 else 'is'} logged again: what comes last counts.")
    if given_up:
        notes.append(f"{where}: the run went back and is at step {last:g} now; later ones are of what was given up.")
    return {name: values for name, values in kept.items() if values}, notes


def _of_ranks(name: str, files: Sequence[Mapping[Step, float]]) -> dict[Step, float]:
    """A series of what ranks have logged."""
    together: Callable[[list[float]], float] = _ENDS.get(re.split(r"[/_]", name)[-1], fmean)
    steps = sorted({step for values in files for step in values})
    return {step: together([values[step] for values in files if step in values]) for step in steps}
