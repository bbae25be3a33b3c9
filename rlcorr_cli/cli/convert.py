"""`rlcorr convert`: a dump in canonical columns."""

from typing import Annotated

import typer

from rlcorr_cli.cli import options as o

JOINING = "Two engines"


def convert(
    dumps: o.Dumps,
    *,
    output: o.Dataset = None,
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            metavar="DUMP",
            help="Another engine's log-probs of the same tokens: they become old_log_probs.",
            rich_help_panel=JOINING,
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="A,B,...",
            help="Columns that tell which rows belong together.",
            rich_help_panel=JOINING,
        ),
    ] = "sample_id",
    format: o.FormatName = "auto",
    map: o.Map = None,
    limit: o.Limit = None,
    rows_per_file: o.RowsPerFile = 100_000,
    overwrite: o.Overwrite = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write a dump, a framework's own files most of all, in canonical columns."""
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared
    from rlcorr_cli.cli.option_groups import mapping
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.stdout import emit_json

    if output is None:
        raise UsageError("No output is named.", "Use -o PATH: a .parquet or .jsonl file, or a directory.")
    converted = api.convert(
        dumps,
        output,
        join=join,
        on=[name.strip() for name in on.split(",")],
        overwrite=overwrite,
        rows_per_file=rows_per_file,
        format=format,
        columns=mapping(map),
        limit=limit,
        watch=shared.watch(quiet),
    )
    if json:
        emit_json(converted.to_dict())
    else:
        print_result(converted)
