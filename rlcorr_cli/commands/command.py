"""Command: what every command of ours does beyond typer's, and how its help reads.

typer checks each value by a pydantic adapter made for it, which takes longer than to read a small dump: so values that
need no checking are taken as they are, and typer is asked about all others, whose refusals are then its own.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

from rlcorr_cli.errors import UsageError

_OF_NUMBERS = frozenset("0123456789+-.eE")
"""Of what is typed in these alone, Python and typer make the same number, or none."""


class Command(TyperCommand):
    """A command that refuses an option of one value given twice, where typer would take the last and say nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            _adapt(parameter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; a UsageError where an option of one value is there twice."""
        if not ctx.resilient_parsing:
            _, _, in_order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(in_order)
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """The option --help."""
        option = super().get_help_option(ctx)
        _adapt(option)
        return option

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in a usage line; an argument by its metavar, which says the rest."""
        shown: list[Any] = [each for each in self.params if _is_argument(each)]
        names = [argument.metavar or argument.name for argument in shown if not argument.hidden]
        return [self.options_metavar or "", *names]


class Group(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> Any:
        """The options in front of a command, with those of completion, which typer adds after all else."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            _adapt(parameter)
        return parameters


def _processed(parameter: Any, by_typer: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """A parameter's value as its command takes it."""
    if value is None and not parameter.required:
        taken = () if parameter.multiple or parameter.nargs == -1 else None
        return taken if parameter.callback is None else parameter.callback(ctx, parameter, taken)
    kind, info = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    known = parameter.callback is None and (value or not parameter.required)
    taken = taken_as_typed(kind, value, info.min, info.max) if known else None
    return by_typer(ctx, value) if taken is None else taken


def taken_as_typed(kind: Any, value: Any, low: float | None, high: float | None) -> Any:
    """A value, typed or a default, of an option of that type within those bounds; None where typer is to be asked."""
    if get_args(kind) == (str,):
        texts = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        return list(value) if texts else None
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if kind is str:
        return value if isinstance(value, str) else None
    number = _number(kind, value) if kind in (int, float) else None
    inside = number is not None and (low is None or low <= number) and (high is None or number <= high)
    return number if inside else None


def _number(kind: type[int] | type[float], value: Any) -> int | float | None:
    """A finite number that is one, or is typed plainly."""
    if type(value) is kind:
        return value
    if not isinstance(value, str) or not set(value) <= _OF_NUMBERS:
        return None
    try:
        number = kind(value)
    except ValueError:
        return None
    return None if abs(number) == math.inf else number


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _refuse_repeated(in_order: Sequence[Any]) -> None:
    """in_order: each parameter as often as it is typed.  A flag twice means what it means once."""
    if any(parameter.is_eager for parameter in in_order):
        return  # --help is about to be printed
    times = Counter(map(id, in_order))
    for parameter in in_order:
        takes_one = not _is_argument(parameter) and not (parameter.multiple or parameter.is_flag)
        if takes_one and times[id(parameter)] > 1:
            option = parameter.opts[0]
            raise UsageError(f"{option} is given {_often(times[id(parameter)])}.", f"Give {option} once.")


def _often(times: int) -> str:
    return "twice" if times == 2 else f"{times} times"


def _adapt(parameter: Any) -> None:
    """Have typer asked only about values that take more than a look, and leave out of help what says nothing: the type
    of a flag, of a named argument, and the largest integer."""
    parameter.process_value = partial(_processed, parameter, partial(type(parameter).process_value, parameter))
    if _is_argument(parameter):
        # typer shows the type beside an argument's metavar, though not beside an option's.
        parameter.display_type_rich = lambda ctx: ""
    elif parameter.is_flag:
        parameter.metavar = ""
    if getattr(parameter, "max", None) is not None and parameter.max > 2**20:
        parameter.max = None  # for help alone: values are held to the annotation
