"""`rlcorr inspect`: what a dump is, how it would be read, and where it is worst."""

from typing import Annotated

import typer

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions

LOOKING = "What to look at"


def inspect(
    dumps: o.Dumps,
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
            "--worst", min=0, metavar="N", help="Name the N worst sequences and tokens.", rich_help_panel=LOOKING
        ),
    ] = 0,
    by: Annotated[
        str,
        typer.Option("--by", help="Worst by k3, abs_log_ratio, or seq_log_ratio.", rich_help_panel=LOOKING),
    ] = "k3",
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """See how a dump is read, what is wrong with it, and its worst rows."""
    from rlcorr_cli.cli import inspecting
    from rlcorr_cli.cli.plans import choice
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.pipeline import inspect as inspection

    request, chosen, computing = read.request(dumps), plan.chosen(), compute.computing()
    by = choice("--by", by, inspecting.MEASURES)
    if row is not None and worst:
        raise UsageError("--row shows one row, --worst names several.", "Use one of the two.")
    if row is not None:
        inspecting.show_row(inspection.one_row(request, chosen, computing, row), as_json=json)
        return
    with inspecting.telling(dumps, read.format, as_json=json):
        found = inspection.inspect(request, chosen, computing, n_worst=worst, by=by)
    inspecting.show(found, as_json=json)
