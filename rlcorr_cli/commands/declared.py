"""One declaration of each argument, from which its option, its value and its documentation follow.

A command is a function that Python calls as it stands, and an option is an argument of the same name: --group-by is
`group_by`, and --is, which is a keyword of Python, `is_`.  Each parameter is annotated by its type and one of the two
records below: `limit: Annotated[int | None, Opt(help="Read only the first N rows.", panel=READING)] = None`.  Arguments
that many commands take stand in a TypedDict, and the command takes `**how: Unpack[How]`.  `declared` lists them all,
`options` those of them that a command line has, and `arguments` makes of what was typed what the function takes.
`app` gives the options to typer; `python` makes signature, documentation and messages for callers from Python.

Nothing here, and nothing that a declaration needs, loads typer or a library for numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, ForwardRef, get_args

from rlcorr_cli.frozen import frozen


@frozen(kw_only=True)
class Opt:
    """An argument that is an option, too.

    panel: the heading of --help that it stands under, '' for what is typed by its place.  flags: its names, where the
    argument's own is not the one.  default: where it is not the parameter's own, as of an argument in a TypedDict.
    typed: the type on the command line, if it differs.  otherwise: makes what a command line takes where nothing is
    typed, of the values of the options that it names.  offers: the names
    that a shell may complete, or a function of `completion` that finds them.  python: more text for help in Python.
    rare: it stands in --help-all alone.
    """

    help: str
    python: str = ""
    panel: str = ""
    flags: tuple[str, ...] = ()
    default: Any = None
    typed: Any = None
    otherwise: Callable[..., Any] | None = None
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    hidden: bool = False
    rare: bool = False
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
        return self.by.flags or (f"--{self.name.rstrip('_').replace('_', '-')}",)

    @property
    def typed(self) -> Any:
        """The type that is typed."""
        return getattr(self.by, "typed", None) or self.type

    @property
    def default(self) -> Any:
        """What a command line takes where nothing is typed; `Parameter.empty` where something must be."""
        own = getattr(self.by, "default", None)
        default = self.parameter.default if own is None else own
        return None if default == () else default


def declared(function: Callable[..., Any]) -> list[Declared]:
    """Every argument of a function in order; those of its TypedDict stand behind what is typed by its place."""
    own: list[Declared] = []
    shared: list[Declared] = []
    n_by_place = 0
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            (how,) = get_args(parameter.annotation)
            for key, hint in how.__annotations__.items():
                marked = getattr(hint, "__metadata__", (None,))[0]
                keyword = Parameter(key, Parameter.KEYWORD_ONLY, default=getattr(marked, "default", None))
                shared.append(_declared(key, hint, keyword))
            continue
        own.append(_declared(name, parameter.annotation, parameter))
        n_by_place += not own[-1].panel and n_by_place == len(own) - 1
    return [*own[:n_by_place], *shared, *own[n_by_place:]]


def filled(arguments: Any, how: Mapping[str, Any]) -> dict[str, Any]:
    """What was named of a TypedDict's arguments, and of the others the defaults that they declare."""
    marks = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in arguments.__annotations__.items()}
    return {name: getattr(mark, "default", None) for name, mark in marks.items()} | dict(how)


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
