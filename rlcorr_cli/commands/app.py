"""The typer app: which commands there are.

A command's module is imported when it is asked for, and imports what it needs when it runs, so that help and completion
load neither torch nor pyarrow.  Help of the whole app is plain text: drawing it with rich takes as long again as
everything else; a command's own help, with its options in panels, is worth that.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from rlcorr_cli import __version__
from rlcorr_cli.commands.command import Command, Group
from rlcorr_cli.commands.examples import epilog
from rlcorr_cli.commands.option_groups import flat

COMMANDS = (
    *("analyze", "diagnose", "compare", "sweep", "filter", "plot", "check", "inspect", "convert", "diff", "merge"),
    *("presets", "explain", "help"),
)
"""Each is a function in a module of its name, in the order of the list."""


def function(command: str) -> Callable[..., Any]:
    """A command's function."""
    return getattr(import_module(f"rlcorr_cli.commands.{command}"), command)


@cache
def built(names: tuple[str, ...] = COMMANDS, rich: bool = True, options: bool = True) -> Any:
    """The commands as typer runs them.  Kept, because looking at all options takes a third of a run on a small dump."""
    return typer.main.get_command(build(names, rich=rich, options=options))


def build(names: Iterable[str] = COMMANDS, *, rich: bool = True, options: bool = True) -> typer.Typer:
    """The app with those commands.  rich: whether help is drawn in panels; options: whether commands have theirs, which
    a list of commands needs not."""
    app = typer.Typer(
        name="rlcorr",
        cls=Group,
        help="Offline log-prob analysis for LLM reinforcement learning: how far apart were the rollout and the "
        "training policy, and what would each correction do to the batch?",
        rich_markup_mode="rich" if rich else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        command = function(name)
        summary = (command.__doc__ or "").strip()
        app.command(name, cls=Command, short_help=summary, epilog=epilog(name))(flat(command) if options else _listed)
    return app


def _listed() -> None:
    """A command that is listed, and not run."""


def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version or the help when no command is named."""
    if version:
        typer.echo(f"rlcorr {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(args: Sequence[str]) -> int:
    """Run a command line; returns its status or raises what went wrong."""
    asks_for_list = bool(args) and args[0] in ("-h", "--help")
    # typer looks at every option of every command that it has, which takes longer than all that `explain` does.
    names = args[:1] if args and args[0] in COMMANDS else COMMANDS
    # Without arguments it is the same list, or a shell that asks what could come next, which takes the options.
    command = built(tuple(names), rich=bool(args) and not asks_for_list, options=not asks_for_list)
    return command(args=list(args), prog_name="rlcorr", standalone_mode=False) or 0


def typed_options(args: Sequence[str]) -> set[str]:
    """The options among the arguments of a command line, without what only looks like one: the value of an option
    (`-o --json` names a file), and names behind `--`."""
    group: Any = built(rich=False)
    takes_value = {
        name
        for command in group.commands.values()
        for option in command.params
        if option.param_type_name == "option" and not option.is_flag
        for name in option.opts
    }
    options: set[str] = set()
    previous = ""
    for arg in args:
        if previous in takes_value:
            previous = ""
            continue
        if arg == "--":
            break
        options.add(arg)
        previous = arg
    return options
