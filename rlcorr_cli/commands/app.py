"""The typer app: which commands there are, and how one is run.

A command is a function, in a module that is imported when the command is asked for and imports what it needs when it
runs, so that help and completion load neither numpy nor pyarrow.  `typed` makes of it what typer takes.

Help is plain text (`help_text`): drawing it with rich takes as long again as everything else.  `--help` has what people
use, `--help-all` every option; which of the two one stands in, its `Opt` says.  Nothing is boxed, and no choice is
broken inside a word.

typer checks each value by a pydantic adapter made for it, which takes longer than to read a small dump: so it is left
out, and the declaration of an option checks its value.
"""

import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from rlcorr_cli import __version__
from rlcorr_cli.commands import config
from rlcorr_cli.commands.declared import Declared, Opt
from rlcorr_cli.errors import UsageError

NARROWEST, WIDEST = 40, 120
"""Columns between which help takes the width of the terminal."""
GAP = 2
LONGEST_LEFT = 34
"""Characters of an option with its value; what is said of a longer one begins on the next line."""
HELP = ("-h, --help", "Show this help.")
HELP_ALL = "--help-all"


def help_text(command: str, about: str, options: Mapping[str, Declared], examples: Sequence[str], *, full: bool) -> str:
    """What `rlcorr COMMAND --help` prints, or with `full` what `--help-all` does."""
    width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    shown = [(option, option.by) for option in options.values() if isinstance(option.by, Opt) and not option.by.hidden]
    arguments = [(by.metavar or option.name.upper(), by.help) for option, by in shown if not option.panel]
    usage = f"Usage: rlcorr {command} [OPTIONS] {' '.join(name for name, _ in arguments)}"
    panels: dict[str, list[tuple[str, str]]] = {}
    n_left_out = 0
    for option, by in shown:
        if option.panel and (full or not by.rare):
            panels.setdefault(option.panel, []).append((_option_as_typed(option, by), _help_of_option(option, by)))
        n_left_out += bool(option.panel) and not full and by.rare
    panels.setdefault(next(reversed(panels), "Options"), []).append(HELP)
    # Where the right column begins.
    longest = min(LONGEST_LEFT, width // 2 - 2 * GAP)
    every = (*arguments, *(row for rows in panels.values() for row in rows))
    left = GAP + max(len(name) for name, _ in every if len(name) <= longest) + GAP
    lines = [
        usage.rstrip(),
        "",
        *textwrap.wrap(about, width),
        "",
        *_help_rows(arguments, left, width),
        *([""] if arguments else []),
    ]
    for panel, rows in panels.items():
        lines += [panel, *_help_rows(rows, left, width), ""]
    if n_left_out:
        lines += [f"`rlcorr {command} {HELP_ALL}` has {n_left_out} more options.", ""]
    return "\n".join([*lines, *examples])


def _option_as_typed(option: Declared, by: Opt) -> str:
    """An option as it is typed: '--mode <decoupled|bypass>'."""
    flags = ", ".join(sorted(option.flags, key=len))
    if option.typed is bool:
        return flags
    kinds = (option.typed, *get_args(option.typed))
    choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    plain = "NUMBER" if {int, float} & {*kinds} else "TEXT"
    value = by.metavar or (f"<{'|'.join(choices)}>" if choices else plain)
    return f"{flags} {value}"


def _help_of_option(option: Declared, by: Opt) -> str:
    """What is said of an option, with its default where that is a value of one's own."""
    default = option.default
    tells = default is None or default is False or default == [] or "default" in by.help
    return by.help if tells else f"{by.help} [default: {default}]"


def _help_rows(rows: Sequence[tuple[str, str]], left: int, width: int) -> list[str]:
    lines: list[str] = []
    for name, about in rows:
        head = " " * GAP + name
        text = textwrap.wrap(about, width - left, break_on_hyphens=False, break_long_words=False)
        if len(head) + GAP > left:
            lines += [head, *(" " * left + line for line in text)]
        else:
            lines += [head.ljust(left) + (text[0] if text else ""), *(" " * left + line for line in text[1:])]
    return [line.rstrip() for line in lines]


COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "analyze": (
        "analyze",
        "rlcorr analyze dump.parquet --group-by step",
        "rlcorr analyze dump.parquet --preset token_is --objective ppo -o report.html",
    ),
    "diagnose": (
        "analyze",
        "rlcorr diagnose dump.parquet",
        "rlcorr diagnose dump.parquet --by group_id --fail-on top_p -o why.html",
    ),
    "compare": (
        "compare",
        "rlcorr compare dump.parquet",
        "rlcorr compare dump.parquet --preset token_is --preset geo_rs --group-by step",
    ),
    "sweep": (
        "compare",
        "rlcorr sweep dump.parquet --vary ratio.seq_mean --target-keep 0.95",
        "rlcorr sweep dump.parquet --is sequence --vary is.high --target-ess 0.5",
    ),
    "filter": (
        "filter",
        "rlcorr filter dump.parquet --preset token_is --dry-run",
        "rlcorr filter dump.parquet --preset seq_is_rs -o corrected.parquet",
    ),
    "plot": (
        "pictures",
        "rlcorr plot dump.parquet",
        "rlcorr plot dump.parquet --kind surprise --kind ratio -o pictures/",
    ),
    "check": (
        "check",
        "rlcorr check dump/ --baseline last.json --update-baseline --max k3_kl=0.01",
        "rlcorr check dump/ --baseline good.json --accept top_p --junit rlcorr.xml",
    ),
    "watch": (
        "watch",
        "rlcorr watch run/ --tb curves.tb",
        "rlcorr watch run/ --once --every 0 --exec 'cat > alarm.json'",
    ),
    "scalars": (
        "scalars",
        "rlcorr scalars metrics.jsonl",
        "rlcorr scalars metrics.jsonl --all -o course.html",
    ),
    "inspect": (
        "analyze",
        "rlcorr inspect dump.parquet",
        "rlcorr inspect dump.parquet --worst 5 --tokenizer tokenizer.json",
    ),
    "convert": (
        "filter",
        "rlcorr convert dump.parquet -o canonical.parquet",
        "rlcorr convert dump.parquet -o canonical.jsonl --limit 100",
    ),
    "diff": (
        "compare",
        "rlcorr diff old.parquet new.parquet",
        "rlcorr diff bf16.parquet fp8.parquet int8.parquet --fail-on moved -o diff.png",
    ),
    "presets": ("browse", "rlcorr presets geo_rs", "rlcorr presets token_is --for trl"),
    "explain": ("browse", "rlcorr explain seq_ess", "rlcorr explain top_p"),
    "help": ("browse", "rlcorr help", "rlcorr help corrections"),
}
"""Each command, in the order of the list: the module here that has its function, and two commands that run, with which
its help ends."""

GROUPS: Mapping[str, Sequence[str]] = {
    "Look": ("analyze", "diagnose", "inspect", "plot", "scalars"),
    "Decide": ("compare", "sweep", "presets"),
    "Act": ("filter", "convert"),
    "Guard": ("check", "watch", "diff"),
    "Read": ("explain", "help"),
}
"""What the commands are for, in the order in which they are used."""
START = "Start with `rlcorr analyze DUMP`. Without a dump: `rlcorr scalars LOG`, or `rlcorr help record` to make one."

LIGHT = ("presets", "explain", "help")
"""Commands that read no dump: they load no library for numbers, and take no defaults from files."""


def function(command: str) -> Callable[..., Any]:
    """A command's function."""
    return getattr(import_module(f"rlcorr_cli.commands.{COMMANDS[command][0]}"), command)


def examples(command: str) -> tuple[str, ...]:
    """Commands that run, with which a command's help ends."""
    return COMMANDS[command][1:]


def summary(command: str) -> str:
    """The first line of what a command's function says of itself, from the text of its module.

    To import all modules for the list of commands takes as long as typer.
    """
    spec = find_spec(f"rlcorr_cli.commands.{COMMANDS[command][0]}")
    # To ask for the type that has this method, importlib.abc's, would load random and tempfile.
    source = spec.loader.get_source(spec.name) if spec and hasattr(spec.loader, "get_source") else None
    said = re.search(rf'^def {command}\(.*?"""(.+?)$', source or "", re.DOTALL | re.MULTILINE)
    return (said[1] if said else (function(command).__doc__ or "")).strip().removesuffix('"""').partition("\n")[0]


@cache
def built(names: tuple[str, ...] = (*COMMANDS,), options: bool = True) -> Any:
    """The app with those commands, as typer runs it.  options: whether commands have theirs, which a list of commands
    needs not.  Kept, because looking at all options takes a third of a run on a small dump."""
    app = typer.Typer(
        name="rlcorr",
        cls=Group,
        help="Offline log-prob analysis for LLM reinforcement learning: how far apart the rollout and the training "
        "policy were, since which step, why, and what each correction would do to the batch.",
        epilog=START,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name in names:
        said, run = summary(name), _listed
        if options:
            from rlcorr_cli.commands.typed import typed

            run = typed(function(name))
        app.command(name, cls=Command, help=said, short_help=said, epilog="\n".join(("Examples:", *examples(name))))(
            run
        )
    return typer.main.get_command(app)


def _listed() -> None:
    """A command that is listed, and not run."""


def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Print the version or the help when no command is named."""
    if version:
        typer.echo(f"rlcorr {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def typed_options(args: Sequence[str]) -> set[str]:
    """The options among the arguments of a command line, without what only looks like one: the value of an option
    (`-o --json` names a file), and names behind `--`."""
    group: Any = built()
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


def help_of(command: str, *, full: bool) -> str:
    """What `--help`, or with `full` `--help-all`, prints of a command."""
    from rlcorr_cli.commands.typed import options_of

    run = function(command)
    return help_text(
        command,
        summary(command),
        options_of(run),
        ("Examples:", *(f"  {line}" for line in examples(command))),
        full=full,
    )


class Command(TyperCommand):
    """A command that refuses an option of one value given twice, where typer would take the last and say nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            _adapt(parameter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; a UsageError where an option of one value is there twice."""
        if HELP_ALL in args and not ctx.resilient_parsing:
            typer.echo(help_of(self.name or "", full=True))
            ctx.exit()
        if not ctx.resilient_parsing:
            _, _, in_order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(in_order)
            if self.name not in LIGHT and not any(parameter.is_eager for parameter in in_order):
                config.apply(ctx, self, in_order, COMMANDS, every=lambda: built().commands.values())
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """The option --help."""
        option = super().get_help_option(ctx)
        _adapt(option)
        return option

    def get_help(self, ctx: Any) -> str:
        """The help as `help_text` lays it out."""
        return help_of(self.name or "", full=False)


class Group(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> Any:
        """The options in front of a command, with those of completion, which typer adds after all else."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            _adapt(parameter)
        return parameters

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what they are for."""
        for heading, names in GROUPS.items():
            listed = [(name, self.commands[name].get_short_help_str(limit=200)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(max(map(len, COMMANDS))), about) for name, about in listed])


def _processed(parameter: Any, by_typer: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """A parameter's value as it is typed; its command checks it.  typer is asked where one is missing, or does more."""
    if parameter.callback is None and (value or not parameter.required):
        return list(value) if isinstance(value, tuple) else value
    return parameter.callback(ctx, parameter, None) if value is None and parameter.callback else by_typer(ctx, value)


def _refuse_repeated(in_order: Sequence[Any]) -> None:
    """in_order: each parameter as often as it is typed.  A flag twice means what it means once."""
    if any(parameter.is_eager for parameter in in_order):
        return  # --help is about to be printed
    times = Counter(map(id, in_order))
    for parameter in in_order:
        takes_one = parameter.param_type_name == "option" and not (parameter.multiple or parameter.is_flag)
        if takes_one and times[id(parameter)] > 1:
            option = parameter.opts[0]
            often = "twice" if times[id(parameter)] == 2 else f"{times[id(parameter)]} times"
            raise UsageError(f"{option} is given {often}.", f"Give {option} once.")


def _adapt(parameter: Any) -> None:
    """Take values as they are typed, and leave the type of a flag out of help."""
    parameter.process_value = partial(_processed, parameter, partial(type(parameter).process_value, parameter))
    if parameter.param_type_name == "option" and parameter.is_flag:
        parameter.metavar = ""
