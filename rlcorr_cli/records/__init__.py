"""Records: dataclasses whose JSON, the way back from it, and its JSON schema follow from their own fields.

A key of a JSON output is declared once: as a field of a Record, or as a property marked `computed`, which is written
and, as it follows from the fields, only checked when it is read.  What JSON has of a key beside its name and its type
stands in Annotated[..., Key(...)]; what is asked of a value, in Annotated[..., Form(...)].  The description of a record
for readers of the schema is its docstring, that of a key `Key.about`.

Dataclasses, not classes of a library: no command pays for them before it writes JSON (`forms.py`), fields may be views
of arrays of 100,000 groups, and a fault is told with its whole place (groups.3.metrics.kl).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from rlcorr_cli import __version__

SCHEMA = 1
"""Of every JSON output; it changes when a key changes meaning."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Key:
    """What JSON has of a field beside its name and its type.

    about: for readers of the schema.  name: the key, where it is not the field's name.  after: the key that it follows,
    where that is not the field before; empty for the first of all.  omit: whether it is left out where it is the
    field's default, or empty.  optional: whether a document that is read may lack it.  inline: whether the keys of its
    value stand in its place.  hidden: whether JSON has nothing of it.  type: what makes
    the type of a property whose module is loaded when it is asked for.
    """

    about: str = ""
    name: str = ""
    after: str | None = None
    omit: bool = False
    optional: bool = False
    inline: bool = False
    hidden: bool = False
    type: Callable[[], Any] | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Form:
    """What is asked of a value beside its type.

    name, about: of its definition in the schema.  least: items or keys.  keys: what a mapping has and, optional, may
    have.  above: what a number must exceed.  pattern: of a text.  check: raises a ValueError of a value that has the
    type, and may not be.  read: what makes the value of JSON's.  plain: whether a value that JSON has no type for is
    written as text, as is infinity.  types: those that JSON has of it, where the type does not say.
    """

    name: str = ""
    about: str = ""
    least: int = 0
    keys: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    above: float | None = None
    pattern: str = ""
    check: Callable[[Any], None] | None = None
    read: Callable[[Any], Any] | None = None
    plain: bool = False
    types: tuple[str, ...] = ()


HIDDEN = Key(hidden=True)
Plain = Annotated[Any, Form(plain=True)]
"""A value of a row, whatever it is: what JSON has no form for is written as text."""
Scalar = Annotated[Any, Form(plain=True, types=("string", "number", "boolean", "null"))]
"""A value that rows are grouped by: a date is written as text, and so is what is not finite."""
Number = float | None
Interval = tuple[float, float]


def computed(about: str = "", *, after: str, **more: Any) -> Callable[[F], F]:
    """Mark a property's function as a key of its record's JSON.  more: as of a Key."""

    def marked(function: F) -> F:
        function.__dict__["json_key"] = Key(about=about, after=after, **more)
        return function

    return marked


class Fault(ValueError):
    """A value in JSON that is not as its record has it; at: the keys and places that lead to it, the last one first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.at: list[Any] = []

    def __str__(self) -> str:
        return ": ".join(filter(None, (".".join(map(str, reversed(self.at))), self.args[0])))


class Record:
    """A dataclass with a JSON form."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self, *, without: str = "") -> dict[str, Any]:
        """The JSON form.  without: a key of a list that is left empty, because it may be long: its records have their
        own forms."""
        from rlcorr_cli.records.forms import write_keys

        return write_keys(self, without)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; a Fault names what is wrong, keys of a later release are ignored."""
        from rlcorr_cli.records.forms import read_keys

        return cls.of_keys(read_keys(cls, data))

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """The record of what JSON has, by attribute, each of the right type."""
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Head(Record):
    """The release that wrote it; schema changes when a key changes meaning."""

    DEFINITION = "rlcorr"
    version: str = __version__
    schema: Literal[1] = SCHEMA


class Output(Record):
    """A whole JSON document."""

    __slots__ = ()

    @property
    @computed(after="")
    def rlcorr(self) -> Head:
        """Which release wrote it."""
        return Head()


def plain(value: Any) -> Any:
    """A cell's value as JSON has it: dates and what is not finite as text."""
    has_form = value is None or isinstance(value, (str, int, list, dict))
    return value if has_form or (isinstance(value, float) and math.isfinite(value)) else str(value)
