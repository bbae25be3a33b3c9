"""The typer app: which commands there are, and how one is run.

A command is a function (`declared` says how its arguments are options), in a module that is imported when the command
is asked for and imports what it needs when it runs, so that help and completion load neither numpy nor pyarrow.  To
each command that has a result the app adds --json and --quiet, and to all of them --debug; `shown` prints the result.

Help of the whole app is plain text: drawing it with rich takes as long again as everything else; a command's own help,
with its options in panels, is worth that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from rlcorr_cli import __version__
from rlcorr_cli.commands.arguments import PANELS, Debug, Json, Quiet
from rlcorr_cli.commands.command import Command, Group
from rlcorr_cli.commands.declared import Declared, Opt, arguments, options
from rlcorr_cli.commands.shown import SHOWN
from rlcorr_cli.errors import UsageError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "analyze": ("analyze", "analyze"),
    "diagnose": ("analyze", "diagnose"),
    "compare": ("compare", "compare"),
    "sweep": ("compare", "sweep"),
    "filter": ("filter", "filter_dump"),
    "plot": ("pictures", "plot"),
    "check": ("check", "check"),
    "inspect": ("inspect", "typed_inspect"),
    "convert": ("filter", "convert"),
    "diff": ("diff", "diff"),
    "merge": ("merge", "merge"),
    "presets": ("browse", "presets"),
    "explain": ("browse", "explain"),
    "help": ("browse", "help"),
}
"""Each command, in the order of the list: its module here, and its function there."""

EXAMPLES: Mapping[str, tuple[str, str]] = {
    "analyze": (
        "rlcorr analyze dump.parquet --group-by step",
        "rlcorr analyze dump.parquet --preset token_is --objective ppo -o report.html",
    ),
    "diagnose": (
        "rlcorr diagnose dump.parquet",
        "rlcorr diagnose dump.parquet --by group_id --fail-on top_p -o why.html",
    ),
    "compare": (
        "rlcorr compare dump.parquet",
        "rlcorr compare dump.parquet --preset token_is --preset geo_rs --group-by step",
    ),
    "sweep": (
        "rlcorr sweep dump.parquet --rs ratio.seq_mean --target-keep 0.95",
        "rlcorr sweep dump.parquet --is sequence --bound high --target-ess 0.5",
    ),
    "filter": (
        "rlcorr filter dump.parquet --preset token_is --dry-run",
        "rlcorr filter dump.parquet --preset seq_is_rs -o corrected.parquet",
    ),
    "plot": ("rlcorr plot dump.parquet", "rlcorr plot dump.parquet --kind surprise --kind ratio -o pictures/"),
    "check": (
        "rlcorr check dump.parquet --max k3_kl=0.05 --min token_ess=0.5",
        "rlcorr check dump.parquet --fail-on anomaly --junit rlcorr.xml",
    ),
    "inspect": ("rlcorr inspect dump.parquet", "rlcorr inspect dump.parquet --worst 5 --by abs_log_ratio"),
    "convert": (
        "rlcorr convert dump.parquet -o canonical.parquet",
        "rlcorr convert dump.parquet -o canonical.jsonl --limit 100",
    ),
    "diff": (
        "rlcorr diff old.parquet new.parquet",
        "rlcorr diff bf16.parquet fp8.parquet int8.parquet --fail-on moved -o diff.png",
    ),
    "merge": (
        "rlcorr merge part1.rlcorr part2.rlcorr -o report.html",
        "rlcorr merge run.rlcorr today.rlcorr --group-by step -o new.rlcorr",
    ),
    "presets": ("rlcorr presets trl", "rlcorr presets geo_rs"),
    "explain": ("rlcorr explain seq_ess", "rlcorr explain metrics"),
    "help": ("rlcorr help", "rlcorr help corrections"),
}
"""Two commands that run, with which each command's help ends."""


def function(command: str) -> Callable[..., Any]:
    """A command's function."""
    module, name = COMMANDS[command]
    return getattr(import_module(f"rlcorr_cli.commands.{module}"), name)


def results_of(command: str) -> list[str]:
    """The types of a command's results, of which most have one and some none."""
    types = str(function(command).__annotations__["return"]).split(" | ")
    return [name for name in (each.partition("[")[0] for each in types) if name in SHOWN]


def options_of(command: str) -> dict[str, Declared]:
    """A command's options by name: its function's, those of printing its results, and those that the app adds."""
    run, results = function(command), [SHOWN[name] for name in results_of(command)]
    own, printing, added = ({each.name: each for each, *_ in _options(of)} for of in ((run,), results, (_added,)))
    # What else a result is written to stands behind --json, where a command has nothing else to write.
    late = {"output": own.pop("output")} if list(own)[-1] == "output" else {}
    if not results:
        added = {"debug": added["debug"]}
    json = {"json": added.pop("json")} if results else {}
    every = {**own, **printing, **json, **late, **added}
    return dict(sorted(every.items(), key=lambda item: PANELS.index(item[1].panel)))


def _options(functions: Iterable[Callable[..., Any]]) -> Iterator[Any]:
    return (option for each in functions for option in options(each))


def _added(*, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Options of every command that has a result; --debug of all.  `main` looks for that by itself, because parsing may
    fail before a command begins."""


def typed(command: str) -> Callable[..., int]:
    """A command as typer is to see it, with an option for each parameter."""
    run, every = function(command), options_of(command)

    def started(**values: Any) -> int:
        for option in every.values():
            value = values[option.name]
            if value == "" or (isinstance(value, list) and "" in value):
                # It is a shell variable that was not set: taken for no text, it would change what is done unseen.
                dump = "dump" if option.name in ("dumps", "source") else option.name
                named = option.flags[-1] if option.flags else f"The name of the {dump}"
                raise UsageError(f"{named} is empty: is a variable unset?", "Give it a value, or leave it out.")
        positional, named = arguments(run, values)
        printing = {name: arguments(SHOWN[name], values, without=("result",))[1] for name in results_of(command)}
        if "device" in values:
            from rlcorr_cli.reading.parquet import use_jemalloc

            use_jemalloc(return_memory=command == "filter")
        result = run(*positional, **named)
        if result is None:
            return 0
        name = type(result).__name__
        return SHOWN[name](result, **printing[name]) or 0

    parameters = [_parameter(option) for option in every.values()]
    started.__signature__ = Signature(parameters)  # pyrefly: ignore[missing-attribute]  # what inspect looks for
    started.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return started


def _parameter(option: Declared) -> Parameter:
    """An option in typer's terms."""
    by = option.by
    assert isinstance(by, Opt)
    offers: Any = by.offers if by.offers is None or callable(by.offers) else _offering(by.offers)
    more: Any = {"metavar": by.metavar, "hidden": by.hidden, "min": by.least, "max": by.most, "autocompletion": offers}
    if by.panel:
        info: Any = typer.Option(*option.flags, help=by.help, rich_help_panel=by.panel, **more)
    else:
        info = typer.Argument(help=by.help, show_default=False, **more)
    typed = Annotated[option.typed, info]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=typed)


def _offering(names: Sequence[str]) -> Callable[[], list[str]]:
    return lambda: [*names]


@cache
def built(names: tuple[str, ...] = (*COMMANDS,), rich: bool = True, options: bool = True) -> Any:
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
    app.callback(invoke_without_command=True)(_root)
    for name in names:
        summary = (function(name).__doc__ or "").strip().partition("\n")[0]
        examples = "\n".join(("Examples:", *EXAMPLES[name]))
        run = typed(name) if options else _listed
        app.command(name, cls=Command, help=summary, short_help=summary, epilog=examples)(run)
    return app


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


def run(args: Sequence[str]) -> int:
    """Run a command line; returns its status or raises what went wrong."""
    asks_for_list = bool(args) and args[0] in ("-h", "--help")
    # typer looks at every option of every command that it has, which takes longer than all that `explain` does.
    names = args[:1] if args and args[0] in COMMANDS else (*COMMANDS,)
    # Without arguments it is the same list, or a shell that asks what could come next, which takes the options.
    command = built((*names,), rich=bool(args) and not asks_for_list, options=not asks_for_list)
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
