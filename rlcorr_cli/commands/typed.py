"""A command's function as typer is to see it: its options, those of printing its result, and those that all have.

`declared` says how a function's arguments are options, and checks their values: for typer each is text, several texts,
or a flag.  To each command that has a result --json and --quiet are added, and to all of them --debug; `shown` prints
the result.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from rlcorr_cli.commands import config
from rlcorr_cli.commands.arguments import PANELS, TEXT, TEXTS, Debug, Json, Quiet
from rlcorr_cli.commands.declared import Act, Declared, Opt, arguments, options, refuse_wrong
from rlcorr_cli.commands.shown import SHOWN, UNREADABLE, plain
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.show import DOCUMENTS
from rlcorr_cli.show.stdout import clean, disarmed, write_stderr


def results_of(run: Callable[..., Any]) -> list[str]:
    """The types of a command's results, of which most have one and some none."""
    types = str(run.__annotations__["return"]).split(" | ")
    return [name for name in (each.partition("[")[0] for each in types) if name in DOCUMENTS or name in SHOWN]


def options_of(run: Callable[..., Any]) -> dict[str, Declared]:
    """A command's options by name: its function's, those of printing its results, and those that the app adds."""
    every = {each.name: each for each in options(run)}
    # Files that a result is written to, too, stand behind --json.
    late = {name: every.pop(name) for name in ("output", "overwrite")} if [*every][-2:-1] == ["output"] else {}
    results = results_of(run)
    for name in results:
        every.update((each.name, each) for each in options(SHOWN.get(name, plain)))
    added = {each.name: each for each in options(_added) if results or each.name == "debug"}
    if results:
        every["json"] = added.pop("json")
    every |= late | added
    return dict(sorted(every.items(), key=lambda item: PANELS.index(item[1].panel)))


def _added(*, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Options of every command that has a result; --debug of all.  `main` looks for that by itself, because parsing may
    fail before a command begins."""


def typed(command: str, run: Callable[..., Any]) -> Callable[..., int]:
    """A command as typer is to see it, with an option for each parameter.  run: its function."""
    results, every = results_of(run), options_of(run)
    printers = {name: SHOWN.get(name, plain) for name in results}

    def started(**values: Any) -> int:
        for option in every.values():
            value = values[option.name]
            if value == "" or (isinstance(value, list) and "" in value):
                # It is a shell variable that was not set: taken for no text, it would change what is done unseen.
                dump = "dump" if option.name in ("dumps", "source") else option.name
                named = option.flags[-1] if option.flags else f"The name of the {dump}"
                raise UsageError(f"{named} is empty: is a variable unset?", "Give it a value, or leave it out.")
            values[option.name] = option.parsed(value)
        refuse_wrong(every.values(), {name: value for name, value in values.items() if value is not None})
        write_stderr(disarmed("".join(f"{clean(note)}\n" for note in config.NOTES.get())))
        positional, named = arguments(run, values)
        printing = {name: arguments(shows, values, without=("result",))[1] for name, shows in printers.items()}
        if "device" in values:
            from rlcorr_cli.reading.parquet import use_jemalloc

            use_jemalloc(return_memory=command == "filter")
        try:
            result = run(*positional, **named)
        except DataError:
            for name in results:
                if name in UNREADABLE:
                    UNREADABLE[name](**arguments(UNREADABLE[name], values)[1])
            raise
        if result is None:
            return 0
        name = type(result).__name__
        status = printers[name](result, **printing[name]) or 0
        if isinstance(values.get("output"), list) and not values.get("quiet"):
            write_stderr(disarmed("".join(f"Wrote {clean(file)}.\n" for file in values["output"])))
        return status

    parameters = [_parameter(option) for option in every.values()]
    started.__signature__ = Signature(parameters)  # pyrefly: ignore[missing-attribute]  # what inspect looks for
    started.acting = {n for n, o in every.items() if isinstance(o.by, Act)}  # pyrefly: ignore[missing-attribute]
    started.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return started


def _parameter(option: Declared) -> Parameter:
    """An option in typer's terms."""
    by = option.by
    assert isinstance(by, Opt)
    names = by.offers or option.choices
    offers: Any = (names if callable(names) else lambda: [*names]) if names else None
    more: Any = {"metavar": by.metavar, "hidden": by.hidden, "autocompletion": offers}
    if by.panel:
        info: Any = typer.Option(*option.flags, help=by.help, rich_help_panel=by.panel, **more)
    else:
        info = typer.Argument(help=by.help, show_default=False, **more)
    typed = Annotated[option.typed if option.typed in (bool, list[str], TEXTS) else TEXT, info]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=typed)
