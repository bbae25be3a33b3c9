"""`rlcorr merge`: saved totals of several runs as one report."""

from typing import Annotated

import typer

from rlcorr_cli.commands import options as o


def merge(
    parts: Annotated[
        list[str], typer.Argument(metavar="PART...", help="Files that analyze -o part.rlcorr or merge wrote.")
    ],
    *,
    group_by: o.GroupBy = None,
    allow_overlap: Annotated[
        bool,
        typer.Option("--allow-overlap", help="Add parts that hold the same rows.", rich_help_panel=o.READING),
    ] = False,
    json: o.Json = False,
    output: o.Outputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Add totals that were saved: the report of one run over all the data."""
    from rlcorr_cli.commands import merging as api
    from rlcorr_cli.commands import shared

    report = api.merge(
        parts,
        output=output or (),
        group_by=group_by or (),
        allow_overlap=allow_overlap,
        watch=shared.watch(quiet),
    )
    shared.show(report, as_json=json)
