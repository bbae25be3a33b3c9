"""Records: dataclasses whose JSON, the way back from it, and its JSON schema follow from their own fields.

A key of a JSON output is declared once: as a field of a Record, or as a property marked `computed`, which follows
from the fields: it is written, and when it is read its type is checked and its value left.  What JSON has of a key
beside its name and its type stands in Annotated[..., Key(...)]; what is asked of a value, in Annotated[...,
Form(...)].  The description of a record for readers of the schema is its docstring, that of a key `Key.about`.

msgspec reads and describes their JSON (`structs.py`).  They are no classes of its own, because a command that writes no
JSON should not load it, some keys are computed, and some fields are views of the arrays of 100,000 groups.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

from rlcorr_cli import __version__
from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import computed

SCHEMA = 1
"""The version of the schema of every JSON output; it goes up when a key changes meaning."""


class Record:
    """A dataclass with a JSON form."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self, *, without: str = "") -> dict[str, Any]:
        """The JSON form.  without: the key of a list that is left empty, because the caller writes its items one by
        one."""
        from rlcorr_cli.records.forms import write_keys

        return write_keys(self, without)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What was written as JSON; a ValueError says what is wrong, and where.  Keys of later releases are ignored."""
        from rlcorr_cli.records.structs import read_json

        return read_json(cls, text)

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """The record of values that were read and checked already, by attribute."""
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


@frozen
class Head(Record):
    """The release that wrote it; schema changes when a key changes meaning."""

    DEFINITION = "rlcorr"
    version: str = __version__
    schema: Literal[1] = SCHEMA


class Result(Record):
    """What a command returns."""

    __slots__ = ()
    OUTPUT: ClassVar[str] = ""
    """Its name among the JSON outputs (`results/outputs.py`)."""
    in_notebook: "ClassVar[Callable[[Result], str] | None]" = None
    """What makes the HTML that a notebook shows of a result; `api` sets it.  Without it a notebook shows the repr."""

    def _repr_html_(self) -> str | None:
        """What a notebook shows."""
        return None if Result.in_notebook is None else Result.in_notebook(self)


class Output(Result):
    """A result that is a whole JSON document."""

    __slots__ = ()

    @property
    @computed(after="")
    def rlcorr(self) -> Head:
        """Which release wrote it."""
        return Head()
