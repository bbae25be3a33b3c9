"""DIR.tb: scalars per step, under the names of the profile, so that they lie beside the trainer's own curves.

Without a profile the names are rlcorr/METRIC.  An event file is a TFRecord file of Event messages, which are written
here, all at once, because writers of TensorBoard's have a thread that a full disk kills while the caller waits for it.
Source: tensorflow/core/util/event.proto (messages).
"""

import math
import re
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.files.tfrecords import record, varint
from rlcorr_cli.metrics.catalog import OWN
from rlcorr_cli.results.report import Group, Report

VERSION, WRITER = b"brain.Event:2", b"rlcorr"
"""What the first event of a file says: the format's version, and who wrote it."""
HEAD_BYTES = 256
LARGEST_STEP, LARGEST_VALUE = 2**63 - 1, struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]

_NAME = re.compile(r"events\.out\.tfevents\.\d{10}\.rlcorr")


def destination(path: Path) -> Destination:
    """The directory; one with another writer's event files stays."""
    return Destination(path=path, directory=True, overwrite=True, is_own=_is_own)


def write(report: Report, path: Path, staging: Outputs) -> None:
    """Stage a directory of one event file."""
    scalars = _scalars(report)
    now = time.time()
    name = f"events.out.tfevents.{int(now):010d}.rlcorr"
    staging.write(destination(path), events(scalars, now), within=name)


def append(file: Path, groups: Mapping[int, Group]) -> None:
    """Add the scalars of steps to an event file, which begins with the first of them."""
    now, is_new = time.time(), not file.exists()
    scalars = {step: _scalars_of_group(group, OWN) for step, group in groups.items()}
    with file.open("ab") as opened:
        opened.write(events(scalars, now, begins=is_new))


def new_file(directory: Path) -> Path:
    """The name of an event file that is not there yet, behind all that are."""
    seconds = int(time.time())
    while (file := directory / f"events.out.tfevents.{seconds:010d}.rlcorr").exists():
        seconds += 1
    return file


def events(scalars: dict[int, dict[str, float]], wall_time: float, *, begins: bool = True) -> bytes:
    """The event file of step -> name -> value; begins: whether it is the beginning of one."""
    first = _double(1, wall_time) + _bytes(3, VERSION) + _bytes(10, _bytes(1, WRITER))
    records = [first] if begins else []
    for step, values in scalars.items():
        summary = b"".join(_bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in values.items())
        records.append(_double(1, wall_time) + varint(2 << 3) + varint(step % 2**64) + _bytes(5, summary))
    return b"".join(map(record, records))


def _scalars(report: Report) -> dict[int, dict[str, float]]:
    prefix = OWN if report.profile == "canonical" else ""
    scalars: dict[int, dict[str, float]] = {}
    for group in report.groups or report.by_step:
        scalars[_step(group)] = _scalars_of_group(group, prefix)
    if not scalars:
        raise UsageError("TensorBoard needs steps: groups by one column of whole numbers.", "Add ⟦group_by step⟧.")
    return scalars


def _scalars_of_group(group: Group, prefix: str) -> dict[str, float]:
    """The numbers of a step under TensorBoard's names."""
    metrics = {f"{prefix}{name}": value for name, value in group.metrics.items() if value is not None}
    return metrics | {f"{OWN}{name}": value for name, value in group.objective.items() if value is not None}


def _step(group: Group) -> int:
    values = list(group.key.values())
    if len(values) != 1 or not isinstance(values[0], int) or isinstance(values[0], bool):
        raise UsageError("TensorBoard needs steps: groups by one column of whole numbers.", "Add ⟦group_by step⟧.")
    if not -LARGEST_STEP <= values[0] <= LARGEST_STEP:
        raise UsageError(f"TensorBoard has no step {values[0]}: the largest is 2^63 - 1.", "Write .csv or .json.")
    return values[0]


def _is_own(name: str, opened: Callable[[], BinaryIO]) -> bool:
    if not _NAME.fullmatch(name):
        return False
    with opened() as file:
        return WRITER in file.read(HEAD_BYTES).partition(VERSION)[2]


def _bytes(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def _double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    if abs(value) > LARGEST_VALUE:
        value = math.copysign(math.inf, value)
    return varint(field << 3 | 5) + struct.pack("<f", value)
