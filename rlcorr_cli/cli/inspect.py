"""`rlcorr inspect`: what a dump is, how it would be read, and where it is worst."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions
from rlcorr_cli.reading.request import MOST_ROWS

if TYPE_CHECKING:
    from rlcorr_cli.results.inspected import Inspected, OneRow

LOOKING = "What to look at"


def inspect(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    row: Annotated[
        str | None,
        typer.Option(
            "--row",
            metavar="ID",
            help="Show one sequence token by token: its sample_id, or its number as errors give it.",
            rich_help_panel=LOOKING,
        ),
    ] = None,
    worst: Annotated[
        int,
        typer.Option(
            "--worst",
            min=0,
            max=MOST_ROWS,
            metavar="N",
            help="Name the N worst sequences and tokens.",
            rich_help_panel=LOOKING,
        ),
    ] = 0,
    by: Annotated[
        Literal["k3", "abs_log_ratio", "seq_log_ratio"] | None,
        typer.Option("--by", help="The measure of the worst: k3 unless named.", rich_help_panel=LOOKING),
    ] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """See how a dump is read, what is wrong with it, and where."""
    from rlcorr_cli import api
    from rlcorr_cli.errors import UsageError

    chosen = plan.chosen()
    if row is not None and worst:
        raise UsageError("--row shows one row, --worst names several.", "Use one of the two.")
    if by is not None and not worst:
        raise UsageError("--by is the measure of the worst, and none are asked for.", "Add --worst 5.")
    if row is not None:
        _show_row(api.inspect_row(dumps, row, chosen, **read.arguments(), **compute.arguments()), as_json=json)
        return
    with _columns_before_errors(dumps, read.format, as_json=json):
        inspected = api.inspect(dumps, chosen, worst=worst, by=by or "k3", **read.arguments(), **compute.arguments())
    _show(inspected, as_json=json)


@contextmanager
def _columns_before_errors(dumps: Sequence[str], format: str, as_json: bool) -> Generator[None]:
    """Where the dump cannot be read, print its columns, then the error; programs get the error alone."""
    from rlcorr_cli.errors import DataError, RlcorrError
    from rlcorr_cli.reading.dump import schema_of
    from rlcorr_cli.show.inspect import of_schema
    from rlcorr_cli.show.terminal import print_document

    try:
        yield
    except DataError:
        if not as_json:
            try:
                print_document(of_schema(schema_of(dumps, format)))
            except RlcorrError:
                pass  # the columns cannot be read either: the error that follows says why
        raise


def _show(inspected: "Inspected", as_json: bool) -> None:
    """Print the inspection; a dump without a valid token is a DataError after that."""
    from rlcorr_cli.results.build import refuse_empty
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.stdout import emit_json

    if as_json:
        emit_json(inspected.to_dict())
    else:
        print_result(inspected)
    refuse_empty(inspected.counts, inspected.inputs)


def _show_row(row: "OneRow", as_json: bool) -> None:
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.stdout import emit_json

    if as_json:
        emit_json(row.to_dict())
    else:
        print_result(row)
