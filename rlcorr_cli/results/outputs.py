"""outputs(): every JSON output by its name; `python -m rlcorr_cli.results.outputs` writes their schema anew.

Results name themselves (`Result.OUTPUT`); what is no result of a command of its own is declared here.

`rlcorr explain --schema` prints the file, because it loads nothing that it can do without; a test holds it equal to
what the records say.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records.fields import Form, Key
from rlcorr_cli.records.record import Output, Record, Result
from rlcorr_cli.records.structs import schema
from rlcorr_cli.results.groups import Counts
from rlcorr_cli.results.written import Coefs

SCHEMA_FILE = Path(__file__).parent / "schema.json"


@frozen(kw_only=True)
class Picture(Record):
    """A picture: where it was written (null where it was shown), and what it shows."""

    kind: str
    path: str | None
    caption: str


@frozen(kw_only=True)
class PresetPlan(Record):
    """A plan with its other names, when to take it and whose it is."""

    plan: Annotated[Plan, Key(inline=True)]
    aliases: tuple[str, ...]
    when: str
    source: str


@frozen
class Part(Record):
    """One file of a directory."""

    name: str
    rows: int


@frozen(kw_only=True)
class Parts(Record):
    """_rlcorr.json of a directory of parts, written last: of filter with plan, counts and rows, of convert without."""

    version: str
    plan: Annotated[Plan | None, Key(omit=True)] = None
    counts: Annotated[Counts | None, Key(omit=True)] = None
    rows_in: Annotated[int | None, Key(omit=True)] = None
    rows_out: Annotated[int | None, Key(omit=True)] = None
    rows_dropped: Annotated[int | None, Key(omit=True)] = None
    rows_skipped: Annotated[int | None, Key(omit=True)] = None
    rows_quarantined: Annotated[int | None, Key(omit=True)] = None
    coefs: Annotated[Coefs | None, Key(omit=True)] = None
    problems: Annotated[Problems | None, Key(omit=True)] = None
    parts: Annotated[tuple[Part, ...], Form(least=1)]


@frozen(kw_only=True)
class ErrorMessage(Record):
    """What went wrong, what to do about it, and the status that the command ends with."""

    message: str
    hint: str
    exit_status: Annotated[int, Form(above=0)]


@frozen
class Error(Record):
    """What any command with --json writes to stderr when it fails."""

    error: ErrorMessage


OTHERS: Mapping[str, Any] = {
    "plot": Annotated[tuple[Picture, ...], Form(name="plot", least=1)],
    "presets": Annotated[tuple[PresetPlan, ...], Form(name="presets", least=1)],
    "parts": Parts,
    "error": Error,
}
"""Outputs that are no Result, by name."""


def outputs() -> dict[str, Any]:
    """The name of each output -> what it is made of, a record or a list of them; results first, by name."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f"rlcorr_cli.results.{module.name}")
    results = (*Result.__subclasses__(), *Output.__subclasses__())
    named = {each.OUTPUT: each for each in sorted(results, key=lambda each: each.OUTPUT) if each.OUTPUT}
    return {**named, **OTHERS}


def schema_text() -> str:
    """The JSON Schema of every output, a definition a line."""
    document = schema("JSON outputs of rlcorr", tuple(outputs().values()))
    definitions = document.pop("$defs")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(definition)}" for name, definition in definitions.items())
    return f'{json.dumps(document)[:-1]}, "$defs": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
