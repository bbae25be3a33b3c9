"""How each type of result is printed: the one place that knows.

`plain`, or a function of SHOWN, prints a result.  Its keywords are options that only printing looks at, and, by
their names, others of the command.  It returns the exit status, or nothing for 0.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.commands.pictures import Pictures
    from rlcorr_cli.results.checked import Checked
    from rlcorr_cli.results.diagnosed import DiagnosedDump
    from rlcorr_cli.results.diffed import Diff
    from rlcorr_cli.results.inspected import Inspected
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.results.watched import Watched
    from rlcorr_cli.results.written import Filtered


def plain(result: Any, *, json: bool) -> None:
    """What a command found or wrote, for programs or for people, where nothing else is to be done about it."""
    if json:
        from rlcorr_cli.show.stdout import emit_json

        emit_json(result.to_dict())
    else:
        from rlcorr_cli.show import print_result

        print_result(result)


def report(result: "Report", *, json: bool) -> None:
    """What `analyze` found; of many groups JSON is written group by group."""
    if not json:
        return plain(result, json=False)
    from rlcorr_cli.show.forms.texts import report_json
    from rlcorr_cli.show.stdout import emit_json_pieces

    return emit_json_pieces(report_json(result, pictures=False))


def diagnosis(result: "DiagnosedDump", *, json: bool) -> int:
    """What `diagnose` found; status 1 where that is to fail."""
    plain(result, json=json)
    return 0 if result.failing is None else 1


def checked(result: "Checked", *, json: bool) -> int:
    """What `check` found, which GitHub reads first."""
    from rlcorr_cli.show.check import annotate

    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(result)
    if json:
        from rlcorr_cli.show.forms.texts import json_pieces
        from rlcorr_cli.show.stdout import emit_json_pieces

        findings = (finding.to_dict() for finding in result.findings)
        emit_json_pieces(json_pieces(result.to_dict(without="findings"), "findings", findings))
    else:
        plain(result, json=json)
    return 0 if result.passed else 1


def watched(result: "Watched", *, json: bool) -> int:
    """What `watch` saw, which it prints itself as JSON; status 1 where a step fails, or a file cannot be read."""
    if not json:
        plain(result, json=False)
    return 0 if result.passed else 1


def difference(result: "Diff", *, json: bool, fail_on: Sequence[str]) -> int:
    """What `diff` found, which GitHub reads first; status 1 where that is to fail."""
    from rlcorr_cli.results.diffed import checked
    from rlcorr_cli.show.check import annotate

    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(checked(result, fails=bool(fail_on)))
    plain(result, json=json)
    return 1 if fail_on and result.any_moved else 0


def columns_of_unreadable(dumps: Any, *, format: str, row: Any, json: bool) -> None:
    """The columns of a dump that cannot be read, before the error that ends `inspect`; programs get the error alone."""
    if json or row:
        return
    from rlcorr_cli.errors import RlcorrError
    from rlcorr_cli.reading.dump import schema_of
    from rlcorr_cli.show.inspect import of_schema
    from rlcorr_cli.show.terminal import print_document

    try:
        print_document(of_schema(schema_of(dumps, format)))
    except RlcorrError:
        pass  # the columns cannot be read either: the error that follows says why


def inspected(result: "Inspected", *, json: bool) -> None:
    """What `inspect` found; a dump without a valid token is a DataError after that."""
    from rlcorr_cli.results.groups import refuse_empty

    plain(result, json=json)
    refuse_empty(result.counts, result.inputs)


def pictures(result: "Pictures", *, json: bool) -> None:
    """Each picture's file and caption, or why there is none."""
    import shutil
    import textwrap

    from rlcorr_cli.errors import DataError
    from rlcorr_cli.show.stdout import clean, disarmed, emit, emit_json, write_stderr

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


def filtered(result: "Filtered", *, json: bool) -> int:
    """What `filter` did; status 1 of a dry run on a dump of which nothing would be written."""
    plain(result, json=json)
    return 1 if result.is_stopped else 0


SHOWN: Mapping[str, Callable[..., int | None]] = {
    "Report": report,
    "DiagnosedDump": diagnosis,
    "Pictures": pictures,
    "Checked": checked,
    "Watched": watched,
    "Inspected": inspected,
    "Filtered": filtered,
    "Diff": difference,
}
"""Type of a result -> what prints it, where more is to be done than `plain` does."""

UNREADABLE: Mapping[str, Callable[..., None]] = {"Inspected": columns_of_unreadable}
"""Type of a result -> what is printed where it could not be had because the dump cannot be read."""
