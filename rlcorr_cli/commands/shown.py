"""How each type of result is printed and written: the one place that knows.

A function of SHOWN prints a result on standard output.  Its keywords are options that only printing looks at, and, by
their names, others of the command.  It returns the exit status, or nothing for 0.  FORMS has the modules that write
results to files.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.arguments import OUTPUT, RULES, TEXTS
from rlcorr_cli.commands.declared import Opt

if TYPE_CHECKING:
    from rlcorr_cli.commands.pictures import Picture
    from rlcorr_cli.files.outputs import Outputs
    from rlcorr_cli.results.checked import Checked
    from rlcorr_cli.results.compared import Comparison
    from rlcorr_cli.results.diagnosed import DiagnosedDump
    from rlcorr_cli.results.diffed import Diff
    from rlcorr_cli.results.inspected import Inspected, OneRow
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.results.swept import Sweep
    from rlcorr_cli.results.written import Converted, Filtered


def report(result: "Report", *, json: bool) -> None:
    """What `analyze` found."""
    if json:
        from rlcorr_cli.show.forms import document
        from rlcorr_cli.show.stdout import emit_json_pieces

        return emit_json_pieces(document.pieces(result, pictures=False))
    from rlcorr_cli.show.terminal.report import print_report

    return print_report(result)


def comparison(
    result: "Comparison",
    *,
    json: bool,
    sort: Annotated[Literal["worth", "info", "kept", "name"], Opt(help="Order of the plans.", panel=OUTPUT)] = "worth",
) -> None:
    """What `compare` found."""
    from rlcorr_cli.show.terminal.compared import print_comparison

    return _json(result) if json else print_comparison(result, sort)


def _causes(texts: Sequence[str]) -> list[str]:
    """The names in 'top_p,min_p'; one that is none is refused before the dump is read."""
    from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE
    from rlcorr_cli.errors import not_one_of

    names = [name for text in texts for name in text.split(",")]
    for name in names:
        if name != ANY_CAUSE and name not in ALL_CAUSES:
            raise not_one_of("--fail-on", name, (ANY_CAUSE, *ALL_CAUSES))
    return names


def diagnosis(
    result: "DiagnosedDump",
    *,
    json: bool,
    fail_on: Annotated[
        Sequence[str],
        Opt(
            help="Exit with status 1 if the verdict, of the dump or of a group, is one of these causes; cause: any but "
            "noise. `rlcorr explain causes` lists them.",
            panel=RULES,
            typed=TEXTS,
            parse=_causes,
            metavar="CAUSE,...",
            offers=completion.causes,
        ),
    ] = (),
) -> int:
    """What `diagnose` found; status 1 where that is to fail."""
    from rlcorr_cli.show.terminal.diagnosed import print_diagnosis

    if json:
        _json(result)
    else:
        print_diagnosis(result)
    return 1 if result.failing(fail_on) else 0


def checked(result: "Checked", *, json: bool) -> int:
    """What `check` found, which GitHub reads first."""
    from rlcorr_cli.show.ci import github

    if os.environ.get("GITHUB_ACTIONS") == "true":
        github.annotate(result)
    if json:
        from rlcorr_cli.show import streamed
        from rlcorr_cli.show.stdout import emit_json_pieces

        findings = (finding.to_dict() for finding in result.findings)
        emit_json_pieces(streamed.pieces(result.to_dict(without="findings"), "findings", findings))
    else:
        from rlcorr_cli.show.terminal.checked import print_checked

        print_checked(result)
    return 0 if result.passed else 1


def difference(result: "Diff", *, json: bool, fail_on: Sequence[str]) -> int:
    """What `diff` found, which GitHub reads first; status 1 where that is to fail."""
    from rlcorr_cli.results.diffed import checked
    from rlcorr_cli.show.ci import github
    from rlcorr_cli.show.terminal.diffed import print_diff

    if os.environ.get("GITHUB_ACTIONS") == "true":
        github.annotate(checked(result, fails=bool(fail_on)))
    if json:
        _json(result)
    else:
        print_diff(result)
    return 1 if fail_on and result.any_moved else 0


def sweep(result: "Sweep", *, json: bool) -> None:
    """What `sweep` found."""
    from rlcorr_cli.show.terminal.swept import print_sweep

    return _json(result) if json else print_sweep(result)


def filtered(result: "Filtered", *, json: bool) -> None:
    """What `filter` wrote."""
    from rlcorr_cli.show.terminal.filtered import print_filtered

    return _json(result) if json else print_filtered(result)


def converted(result: "Converted", *, json: bool) -> None:
    """What `convert` wrote."""
    from rlcorr_cli.show.terminal.converted import print_converted

    return _json(result) if json else print_converted(result)


def inspected(result: "Inspected", *, json: bool) -> None:
    """What `inspect` found; a dump without a valid token is a DataError after that."""
    from rlcorr_cli.results.groups import refuse_empty
    from rlcorr_cli.show.terminal.inspected import print_inspected

    if json:
        _json(result)
    else:
        print_inspected(result)
    refuse_empty(result.counts, result.inputs)


def row(result: "OneRow", *, json: bool) -> None:
    """One row, token by token."""
    from rlcorr_cli.show.terminal.inspected import print_row

    return _json(result) if json else print_row(result)


def pictures(result: "tuple[Picture, ...]", *, json: bool) -> None:
    """Each picture's file and caption, or why there is none."""
    from rlcorr_cli.errors import DataError
    from rlcorr_cli.show.stdout import clean, disarmed, emit, emit_json, write_stderr

    for note in result[0].notes:
        write_stderr(disarmed(clean(note)) + "\n")
    if json:
        emit_json([picture.to_dict() for picture in result])
    else:
        emit("".join(f"{clean(p.path or p.kind + ': no picture')}\n{_wrapped(p.caption)}\n" for p in result))
    if all(picture.path is None for picture in result):
        reason = result[0].caption
        raise DataError(f"There is nothing to draw: {reason}", "See `rlcorr plot --help` for other kinds.")


def _wrapped(caption: str) -> str:
    """A caption in lines that are indented below its file's name."""
    import shutil
    import textwrap

    from rlcorr_cli.show.stdout import clean

    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    indent = "    "
    joined = clean(caption).replace(" %", "\N{NO-BREAK SPACE}%")  # no percent sign is parted from its number
    lines = textwrap.fill(joined, width, initial_indent=indent, subsequent_indent=indent)
    return lines.replace("\N{NO-BREAK SPACE}%", " %")


def _json(result: Any) -> None:
    from rlcorr_cli.show.stdout import emit_json

    emit_json(result.to_dict())


SHOWN: Mapping[str, Callable[..., int | None]] = {
    "Report": report,
    "DiagnosedDump": diagnosis,
    "Comparison": comparison,
    "Sweep": sweep,
    "Filtered": filtered,
    "tuple": pictures,
    "Checked": checked,
    "Inspected": inspected,
    "OneRow": row,
    "Converted": converted,
    "Diff": difference,
}
"""Type of a result -> what prints it."""

FORMS = {"Report": "", "DiagnosedDump": ".diagnosed", "Comparison": ".compared", "Sweep": ".swept"}
"""Type of a result -> the module of `show.forms` whose `write` writes it to a file."""


def write(result: Any, files: Sequence[Path], staging: "Outputs") -> None:
    """Stage a result's files, each in the form that its suffix names."""
    if not files:
        return
    if type(result).__name__ == "Diff":
        from rlcorr_cli.show.forms import diffed, sheet

        of_diff = diffed.sheet(result)
        for path in files:
            sheet.write(of_diff, path, staging)
        return
    module = import_module(f"rlcorr_cli.show.forms{FORMS[type(result).__name__]}")
    for path in files:
        module.write(result, path, staging)
