"""Frameworks' JSON lines as samples: each line's object becomes parts, each part a row, by the layout's row of data.

A file is opened by looking for the keys that only some files have, which settles its columns; then it is read line by
line as often as is asked.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, naming
from rlcorr_cli.files import filesystem
from rlcorr_cli.layouts import values
from rlcorr_cli.layouts.canonical import TYPES
from rlcorr_cli.layouts.json_layouts import From, JsonLayout
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.left_out import LeftOut, survey
from rlcorr_cli.layouts.values import aligned, inner, span, whole

CUT = "Wait until it is written, or copy it again."
Made = TypeVar("Made")


def _joined(row: Mapping[str, Any], template: str) -> str | None:
    """A text of whole numbers; None where one is null or absent."""
    numbers = {key: whole(row, key) for key in re.findall(r"{(\w+)}", template)}
    return None if None in numbers.values() else template.format(**numbers)


KINDS: Mapping[str, tuple[Callable[[Mapping[str, Any], str], Any], pa.DataType]] = {
    "floats": (values.floats, pa.list_(pa.float64())),
    "integers": (values.integers, pa.list_(pa.int64())),
    "mask": (values.mask, pa.list_(pa.int8())),
    "number": (values.number, pa.float64()),
    "whole": (values.whole, pa.int64()),
    "version": (values.version, pa.int64()),
    "text": (values.text, pa.string()),
    "joined": (_joined, pa.string()),
}
"""How each kind of value is read, and the type of its column."""


def opened(layout: JsonLayout, path: str) -> OpenedDump:
    """One file of a layout."""
    notes = (*layout.notes, *layout.check(path))
    signs = {*layout.only_with.values(), *layout.notes_with.values()}
    found = {sign for sign in signs if has_key(path, *sign)}
    in_path = {name: re.search(pattern, path) for name, pattern in layout.from_path.items()}
    fixed = {name: int(match[1]) for name, match in in_path.items() if match}
    columns = {name: of for name, of in layout.columns.items() if layout.only_with.get(name) in (None, *found)}

    def read() -> Iterator[Any]:
        return made_of_rows(path, lambda row, number: map(row_of, layout.parts(row, number)))

    def row_of(part: Mapping[str, Any] | LeftOut) -> Sample | LeftOut:
        return part if isinstance(part, LeftOut) else {**_sample(layout, columns, part), **fixed}

    dump = survey(read, layout.surveyed) if layout.surveyed else OpenedDump(columns=[*columns], samples=read)
    columns = {name: of for name, of in columns.items() if not of.optional or name in dump.columns}
    return replace(
        dump,
        columns=("response_mask", *(name for name in columns if name != "response_mask"), *fixed),
        notes=(*notes, *dump.notes, *(note for note, sign in layout.notes_with.items() if sign in found)),
        types={name: KINDS[of.kind][1] for name, of in columns.items()},
        missing_policy_hint=layout.missing_policy_hint,
    )


def _sample(layout: JsonLayout, columns: Mapping[str, From], part: Mapping[str, Any]) -> dict[str, Any]:
    """One part's canonical columns."""
    sample = {name: _read(part, of) for name, of in columns.items()}
    of_tokens = [name for name, value in sample.items() if isinstance(value, np.ndarray) and name in TYPES]
    n_tokens = aligned(**{columns[name].key: sample[name] for name in of_tokens})
    mask = sample.setdefault("response_mask", np.ones(n_tokens, np.int8))
    if layout.span:
        trained = span(mask)
        sample |= {name: sample[name][trained] for name in of_tokens}
    if layout.zeroed_by and values.number(part, layout.zeroed_by) == 0:
        sample["response_mask"] = np.zeros_like(sample["response_mask"])
    return sample


def _read(part: Mapping[str, Any], of: From) -> Any:
    """The value of one column; an array is one that `parts` has made."""
    if of.kind == "joined":
        return _joined(part, of.key)
    *objects, names = of.key.split(".")
    for name in objects:
        part = inner(part, name)
    choices = names.split("|")
    key = next((name for name in choices if name in part), choices[-1])
    if isinstance(part.get(key), np.ndarray):
        return part[key]
    return None if of.optional and key not in part else KINDS[of.kind][0](part, key)


def made_of_rows(path: str, make: Callable[[dict[str, Any], int], Iterable[Made]]) -> Iterator[Made]:
    """What `make` makes of each line's object and its number among them, in order; blank lines are passed over.

    A line that is no object is a DataError that names it, and so are the DataErrors of `make`.
    """
    n_objects = 0
    with filesystem(path).open(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"line {number} is not JSON: is the file still being written?", CUT) from error
            if not isinstance(row, dict):
                hint = "A line for each object: `jq -c '.[]?' FILE > dump.jsonl`." if isinstance(row, list) else CUT
                raise DataError(f"line {number} is not an object.", hint)
            with naming(f"line {number}"):
                yield from make(row, n_objects)
            n_objects += 1


def has_key(path: str, key: str, value: bytes = b"") -> bool:
    """Whether a JSON object of the file has that key, with a value that begins so, a pattern, in the same line.

    Found without parsing: no text in JSON holds these bytes, because its quotes are escaped.
    """
    pattern = re.compile(rb'"%s":\s?%s' % (key.encode(), value))
    with filesystem(path).open(path) as file:
        return any(pattern.search(line) for line in file)
