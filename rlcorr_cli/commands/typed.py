"""A command's function as typer is to see it: its options, those of printing its result, and those that all have.

First how each type of result is printed: `print_any`, or a function of PRINTERS, prints one.  Its keywords are options
that only printing looks at, and, by their names, others of the command.  It returns the exit status, or nothing for 0.

`declared` says how a function's arguments are options, and checks their values: for typer each is text, several texts,
or a flag.  To each command that has a result --json and --quiet are added, and to all of them --debug.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlcorr_cli.commands import config
from rlcorr_cli.commands.arguments import PANELS, Debug, Json, Quiet
from rlcorr_cli.commands.declared import TEXT, TEXTS, Act, Declared, Opt, arguments, options, refuse_wrong
from rlcorr_cli.errors import DataError, RlcorrError, UsageError
from rlcorr_cli.show import DOCUMENTS
from rlcorr_cli.show.stdout import clean, disarmed, emit, emit_json, emit_json_pieces, write_stderr

if TYPE_CHECKING:
    from rlcorr_cli.commands.pictures import Pictures
    from rlcorr_cli.results.checked import Checked
    from rlcorr_cli.results.diagnosed import DiagnosedDump
    from rlcorr_cli.results.diffed import Diff
    from rlcorr_cli.results.inspected import Inspected
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.results.watched import Watched
    from rlcorr_cli.results.written import Filtered


def print_any(result: Any, *, json: bool) -> None:
    """What a command found or wrote, for programs or for people, where nothing else is to be done about it."""
    if json:
        emit_json(result.to_dict())
    else:
        from rlcorr_cli.show import print_result

        print_result(result)


def print_report(result: "Report", *, json: bool) -> None:
    """What `analyze` found; of many groups JSON is written group by group."""
    if not json:
        return print_any(result, json=False)
    from rlcorr_cli.show.forms.texts import report_json

    return emit_json_pieces(report_json(result, pictures=False))


def print_diagnosis(result: "DiagnosedDump", *, json: bool) -> int:
    """What `diagnose` found; status 1 where that is to fail."""
    print_any(result, json=json)
    return 0 if result.failing is None else 1


def print_checked(result: "Checked", *, json: bool) -> int:
    """What `check` found, which GitHub reads first."""
    from rlcorr_cli.show.check import annotate

    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(result)
    if json:
        from rlcorr_cli.show.forms.texts import json_pieces

        findings = (finding.to_dict() for finding in result.findings)
        emit_json_pieces(json_pieces(result.to_dict(without="findings"), "findings", findings))
    else:
        print_any(result, json=json)
    return 0 if result.passed else 1


def print_watched(result: "Watched", *, json: bool) -> int:
    """What `watch` saw, which it prints itself as JSON; status 1 where a step fails, or a file cannot be read."""
    if not json:
        print_any(result, json=False)
    return 0 if result.passed else 1


def print_difference(result: "Diff", *, json: bool, fail_on: Sequence[str]) -> int:
    """What `diff` found, which GitHub reads first; status 1 where that is to fail."""
    from rlcorr_cli.results.diffed import checked
    from rlcorr_cli.show.check import annotate

    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(checked(result, fails=bool(fail_on)))
    print_any(result, json=json)
    return 1 if fail_on and result.any_moved else 0


def columns_of_unreadable(dumps: Any, *, format: str, row: Any, json: bool) -> None:
    """The columns of a dump that cannot be read, before the error that ends `inspect`; programs get the error alone."""
    if json or row:
        return
    from rlcorr_cli.reading.dump import schema_of
    from rlcorr_cli.show.inspect import of_schema
    from rlcorr_cli.show.terminal import print_document

    try:
        print_document(of_schema(schema_of(dumps, format)))
    except RlcorrError:
        pass  # the columns cannot be read either: the error that follows says why


def print_inspected(result: "Inspected", *, json: bool) -> None:
    """What `inspect` found; a dump without a valid token is a DataError after that."""
    from rlcorr_cli.results.groups import refuse_empty

    print_any(result, json=json)
    refuse_empty(result.counts, result.inputs)


def print_pictures(result: "Pictures", *, json: bool) -> None:
    """Each picture's file and caption, or why there is none."""
    import shutil
    import textwrap

    for note in result[0].notes:
        write_stderr(disarmed(clean(note)) + "\n")
    if json:
        emit_json([picture.to_dict() for picture in result])
    else:
        width, indent = min(max(shutil.get_terminal_size().columns, 40), 100), "    "
        for p in result:
            caption = textwrap.fill(clean(p.caption), width, initial_indent=indent, subsequent_indent=indent)
            emit(f"{clean(p.path or p.kind + ': no picture')}\n{caption}\n")
    if all(picture.path is None for picture in result):
        reason = result[0].caption
        raise DataError(f"There is nothing to draw: {reason}", "See `rlcorr plot --help` for other kinds.")


def print_filtered(result: "Filtered", *, json: bool) -> int:
    """What `filter` did; status 1 of a dry run on a dump of which nothing would be written."""
    print_any(result, json=json)
    return 1 if result.is_stopped else 0


PRINTERS: Mapping[str, Callable[..., int | None]] = {
    "Report": print_report,
    "DiagnosedDump": print_diagnosis,
    "Pictures": print_pictures,
    "Checked": print_checked,
    "Watched": print_watched,
    "Inspected": print_inspected,
    "Filtered": print_filtered,
    "Diff": print_difference,
}
"""Type of a result -> what prints it, where more is to be done than `print_any` does."""

UNREADABLE: Mapping[str, Callable[..., None]] = {"Inspected": columns_of_unreadable}
"""Type of a result -> what is printed where it could not be had because the dump cannot be read."""


def results_of(run: Callable[..., Any]) -> list[str]:
    """The types of a command's results, of which most have one and some none."""
    types = str(run.__annotations__["return"]).split(" | ")
    return [name for name in (each.partition("[")[0] for each in types) if name in DOCUMENTS or name in PRINTERS]


def options_of(run: Callable[..., Any]) -> dict[str, Declared]:
    """A command's options by name: its function's, those of printing its results, and those that the app adds."""
    every = {each.name: each for each in options(run)}
    # Files that a result is written to, too, stand behind --json.
    late = {name: every.pop(name) for name in ("output", "overwrite")} if [*every][-2:-1] == ["output"] else {}
    results = results_of(run)
    for name in results:
        every.update((each.name, each) for each in options(PRINTERS.get(name, print_any)))
    added = {each.name: each for each in options(_added) if results or each.name == "debug"}
    if results:
        every["json"] = added.pop("json")
    every |= late | added
    return dict(sorted(every.items(), key=lambda item: PANELS.index(item[1].panel)))


def _added(*, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Options of every command that has a result; --debug of all.  `main` looks for that by itself, because parsing may
    fail before a command begins."""


def typed(run: Callable[..., Any]) -> Callable[..., int]:
    """A command as typer is to see it, with an option for each parameter.  run: its function."""
    results, every = results_of(run), options_of(run)
    printers = {name: PRINTERS.get(name, print_any) for name in results}

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
            from rlcorr_cli.measure.arrays import keep_freed_memory
            from rlcorr_cli.reading.parquet import use_jemalloc

            keep_freed_memory()
            use_jemalloc()
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
        sheets = values.get("output")
        files = [*(sheets if isinstance(sheets, list) else ()), *filter(None, [values.get("repro")])]
        if not values.get("quiet"):
            write_stderr(disarmed("".join(f"Wrote {clean(file)}.\n" for file in files)))
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
