"""What a record declares of its keys: `Key` and `Form` in Annotated, `computed` on a property."""

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from rlcorr_cli.frozen import frozen

F = TypeVar("F", bound=Callable[..., Any])


@frozen(kw_only=True, eq=False)
class Key:
    """What JSON has of a field beside its name and its type.

    about: for readers of the schema.  name: the key, where it is not the field's name.  after: the key that it follows;
    None in the order of the fields, "" before all others.  omit: whether it is left out where it is the
    field's default, or empty.  inline: whether the keys of its value stand in its place.  type: what
    gives the type of a property whose module is loaded late.
    """

    about: str = ""
    name: str = ""
    after: str | None = None
    omit: bool = False
    inline: bool = False
    type: Callable[[], Any] | None = None


@frozen(kw_only=True, eq=False)
class Form:
    """What is asked of a value beside its type.

    name, about: of its definition in the schema.  least: the fewest items, keys or characters.  keys: those that a
    mapping must have; optional: those that it may have, too.  above: what a number must exceed.  pattern: of a text.
    """

    name: str = ""
    about: str | None = None
    least: int | None = None
    keys: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    above: float | None = None
    pattern: str | None = None


HIDDEN = Key()
"""Of a field that JSON has nothing of."""
Plain = Any
"""A value of a row, whatever it is: what JSON has no form for is written as text."""
Scalar = Annotated[Any, Form(name="scalar", about="A date is text, and so is what is not finite.")]
"""A value that rows are grouped by."""
Number = float | None
Interval = tuple[float, float]


def computed(about: str = "", *, after: str, **more: Any) -> Callable[[F], F]:
    """Mark a property's function as a key of its record's JSON.  more: as of a Key."""

    def marked(function: F) -> F:
        function.__dict__["json_key"] = Key(about=about, after=after, **more)
        return function

    return marked


def as_json(value: Any) -> Any:
    """A cell's value as JSON has it: dates and what is not finite as text."""
    has_form = value is None or isinstance(value, (str, int, list, dict))
    return value if has_form or (isinstance(value, float) and math.isfinite(value)) else str(value)
