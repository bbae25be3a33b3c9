"""One declaration of each argument, from which its option, its value and its documentation follow.

A command is a function that Python calls as it stands, and an option is an argument of the same name: --group-by is
`group_by`, and --is, which is a keyword of Python, `is_`.  Each is annotated by its type and one of the two records
below: `limit: Annotated[int | None, Opt(help="Read only the first N rows.", panel=READING)] = None`.  Most commands
take the fields of a frozen dataclass, those that many take from its bases: `takes` makes arguments of them.  `declared`
lists them all, `options` those of them that a command line has; `refuse_wrong` holds values against what is declared,
and `arguments` makes of what was typed what the function takes.
`typed` gives the options to typer; `for_python` makes signature, documentation and messages for callers from Python.

Nothing here, and nothing that a declaration needs, loads typer or a library for numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import Any, ForwardRef, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from rlcorr_cli.errors import RlcorrError, UsageError, as_arguments, as_flags, not_one_of, shortened
from rlcorr_cli.frozen import frozen

TEXT = str | None
TEXTS = list[str] | None


@frozen(kw_only=True)
class Opt:
    """An argument that is an option, too.

    panel: the heading of --help that it stands under, '' for what is typed by its place.  flags: its names, where the
    argument's own is not the one.  typed: the type on the command line, if that does not follow from
    the argument's.  otherwise: makes what a command
    line takes where nothing is typed, of the values of the options that it names.  least, most: the smallest and the
    largest number allowed.  should: what errors say of a value of the right type, 'be text', where the type does not
    tell; such_as: one of them.
    offers: the names that a shell may complete, or a function of `completion` that finds them; those of choices are
    known.  python: more text for help in Python.  rare: it stands in --help-all alone.  setting: of an option that
    totals depend on, the name by which their provenance holds it.
    """

    help: str
    python: str = ""
    panel: str = ""
    flags: tuple[str, ...] = ()
    typed: Any = None
    otherwise: Callable[..., Any] | None = None
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    should: str = ""
    such_as: str = ""
    hidden: bool = False
    rare: bool = False
    setting: str = ""
    offers: Sequence[str] | Callable[..., Any] | None = None


class Act(Opt):
    """An option that may run a command, write or replace a file, or open a connection: no file of options sets it."""


@frozen
class PythonOnly:
    """An argument that is no option.  otherwise: makes what a command line takes for it, as of an Opt."""

    help: str
    otherwise: Callable[..., Any] | None = None


@frozen(kw_only=True)
class Declared:
    """An argument of a function: its type, and what was declared of it.  by: None where the function prints a result,
    and looks at the command's own option of that name."""

    name: str
    type: Any
    by: Opt | PythonOnly | None
    parameter: Parameter

    @property
    def panel(self) -> str:
        """The heading that an option stands under."""
        return self.by.panel if isinstance(self.by, Opt) else ""

    @property
    def flags(self) -> tuple[str, ...]:
        """What is typed for an option; nothing for what is typed by its place."""
        if not isinstance(self.by, Opt) or not self.panel:
            return ()
        return self.by.flags or (as_flags(f"⟦{self.name}⟧"),)

    @property
    def setting(self) -> str:
        """The name by which the provenance of totals holds it; nothing of what these do not depend on."""
        return self.by.setting if isinstance(self.by, Opt) else ""

    @property
    def typed(self) -> Any:
        """The type that is typed: texts where there may be several values, a text where one may be of several types."""
        kinds = _kinds(self.type)
        of_type = (
            TEXTS if Sequence in map(get_origin, kinds) else TEXT if str in kinds and len(kinds) > 1 else self.type
        )
        return getattr(self.by, "typed", None) or of_type

    @property
    def default(self) -> Any:
        """What a command line takes where nothing is typed; `Parameter.empty` where something must be."""
        return None if self.parameter.default == () else self.parameter.default

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that there are, where they are few."""
        return next((get_args(kind) for kind in _kinds(self.type) if get_origin(kind) is Literal), ())

    def parsed(self, text: Any) -> Any:
        """A number of what is typed for one; all else, and what is none, as it is."""
        number = next((kind for kind in (int, float) if _kinds(self.type) == {kind}), None)
        if number is None or not isinstance(text, str):
            return text
        try:
            return number(text)
        except ValueError:
            return text

    def refuse_wrong(self, value: Any) -> None:
        """A UsageError of a value that the argument's type, its choices or its bounds do not allow."""
        by, kinds = self.by if isinstance(self.by, Opt) else Opt(help=""), _kinds(self.type)
        if self.by is None or (_fits(value, self.type) and (str in kinds or _is_inside(value, by))):
            return
        called = f"⟦{self.name}⟧" if self.flags and bool not in kinds else self.name
        wrong = next((item for item in several(value) if not _fits(item, self.type)), value)
        if self.choices:
            raise not_one_of(called, wrong, self.choices)
        should, is_number = by.should or _should(kinds, by), not {int, float}.isdisjoint(kinds)
        message = f"{called} should {should}, not {shortened(wrong) if is_number else kind_of(wrong)}."
        raise UsageError(message, f"Write ⟦{self.name} {by.such_as}⟧." if by.such_as else "Leave it out.")


def several(values: Any) -> list[Any]:
    """What a list or a tuple holds, or else the one value."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def kind_of(value: Any) -> str:
    """A value's type, to be read in a sentence: 'a DataFrame', 'an int'."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _kinds(kind: Any) -> set[Any]:
    """The types that a value may have, but for None."""
    return {*(get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,))} - {NoneType}


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, as far as one can tell without loading anything."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Sequence:
        return all(_fits(item, inner[0]) for item in several(value))
    if origin is Mapping:
        return isinstance(value, Mapping)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _is_inside(value: Any, by: Opt) -> bool:
    """Whether a number is between the ends declared, both allowed; None stands for a default."""
    if value is None:
        return True
    return (by.least is None or by.least <= value) and (by.most is None or value <= by.most)


def _should(kinds: set[Any], by: Opt) -> str:
    """What is said of a value of those types."""
    ends = "" if by.least is None else f" from {by.least} on" if by.most is None else f" from {by.least} to {by.most}"
    words = {
        bool: "be True or False",
        int: f"be a whole number{ends}",
        float: f"be a number{ends}",
        Sequence[str]: "be a name, or a list of names",
        Path: "be a path",
    }
    return next((words[kind] for kind in words if kind in kinds), "be text")


def refuse_wrong(every: Iterable[Declared], values: Mapping[str, Any]) -> None:
    """A UsageError of the first value that its declaration does not allow."""
    for each in every:
        if each.name in values:
            each.refuse_wrong(values[each.name])


def declared(function: Callable[..., Any]) -> list[Declared]:
    """Every argument of a function in order."""
    return [
        _declared(name, parameter.annotation, parameter) for name, parameter in signature(function).parameters.items()
    ]


P = ParamSpec("P")
Options = TypeVar("Options")
R = TypeVar("R")


def takes(options: Callable[P, Options]) -> Callable[[Callable[[Options], R]], Callable[P, R]]:
    """Have a function of options called with each of them as an argument.  options: their class."""

    def taking(function: Callable[[Options], R]) -> Callable[P, R]:
        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(options(*args, **kwargs))

        called.__signature__ = signature(options)  # pyrefly: ignore[missing-attribute]  # what inspect looks for
        return called

    return taking


def changed(options: Any, kind: Any) -> list[str]:
    """The arguments of a class of options that say anything else than when they are left out."""
    values = ((each, getattr(options, each.name, each.default)) for each in fields(kind))
    return [each.name for each, value in values if value not in (None, (), [], {}, each.default)]


def _declared(name: str, hint: Any, parameter: Parameter) -> Declared:
    marks = (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Opt | PythonOnly))
    kind = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint
    kind = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
    return Declared(name=name, type=kind, by=next(marks, None), parameter=parameter)


def options(function: Callable[..., Any]) -> list[Declared]:
    """Every option of a function."""
    return [each for each in declared(function) if isinstance(each.by, Opt)]


def arguments(
    function: Callable[..., Any], typed: Mapping[str, Any], without: Sequence[str] = ()
) -> tuple[list[Any], dict[str, Any]]:
    """A function's arguments, those of `*args` and those by name.  typed: values of options by their names."""
    several: list[Any] = []
    made: dict[str, Any] = {}
    for each in declared(function):
        otherwise = None if each.by is None else each.by.otherwise
        if each.name in without or (isinstance(each.by, PythonOnly) and otherwise is None):
            continue
        value: Any = typed.get(each.name)
        if value is None and otherwise is not None:
            value = otherwise(**{name: typed[name] for name in signature(otherwise).parameters})
        elif value is None and each.parameter.default is not Parameter.empty:
            value = each.parameter.default
        if each.parameter.kind is Parameter.VAR_POSITIONAL:
            several += value
        else:
            made[each.name] = value
    return several, made


def for_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with every argument in its signature and its documentation, and errors that speak of arguments."""
    every = [each for each in declared(function) if not (isinstance(each.by, Opt) and each.by.hidden)]
    every.sort(key=lambda each: each.parameter.kind)
    signature = Signature([each.parameter.replace(annotation=each.type) for each in every])

    @wraps(function)
    def speaking(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        try:
            refuse_wrong(every, given)
            return function(*args, **kwargs)
        except RlcorrError as error:
            error.word(as_arguments)
            if error.hint:
                error.add_note(error.hint)  # tracebacks show it below the message
            raise

    text = cleandoc(function.__doc__ or "")
    documented = [_documented(each) for each in every if each.by is not None]
    speaking.__doc__ = "\n".join((text, "", "Arguments:", *documented) if documented else (text,))
    speaking.__module__ = "rlcorr_cli.api"
    speaking.__signature__ = signature  # pyrefly: ignore[missing-attribute]  # what inspect looks for
    return speaking


def _documented(each: Declared) -> str:
    """An argument's lines in the documentation."""
    text = getattr(each.by, "help", "").removesuffix(" Repeatable.")
    if isinstance(each.by, Opt):
        text += f" {each.by.python}" if each.by.python else ""
    return fill(f"{each.name}: {text}", 100, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False)
