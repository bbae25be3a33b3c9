"""Command: what every command of ours does beyond typer's, and how its help reads."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from rlcorr_cli.errors import UsageError


class Command(TyperCommand):
    """A command that refuses an option of one value given twice, where typer would take the last and say nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            _tidy(parameter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; a UsageError where an option of one value is there twice."""
        if not ctx.resilient_parsing:
            _, _, in_order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(in_order)
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """The option --help."""
        option = super().get_help_option(ctx)
        _tidy(option)
        return option

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in a usage line; an argument by its metavar, which says the rest."""
        shown: list[Any] = [each for each in self.params if _is_argument(each)]
        names = [argument.metavar or argument.name for argument in shown if not argument.hidden]
        return [self.options_metavar or "", *names]


class Group(TyperGroup):
    """All commands."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for parameter in self.params:
            _tidy(parameter)


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


def _tidy(parameter: Any) -> None:
    """Leave out of help what says nothing: the type of a flag, of a named argument, and the largest integer."""
    if _is_argument(parameter):
        # typer shows the type beside an argument's metavar, though not beside an option's.
        parameter.display_type_rich = lambda ctx: ""
    elif parameter.is_flag:
        parameter.metavar = ""
    if getattr(parameter, "max", None) is not None and parameter.max > 2**20:
        parameter.max = None  # for help alone: values are held to the annotation
