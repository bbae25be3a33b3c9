"""`rlcorr diff`: two dumps, or their saved totals, compared."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlcorr_cli.cli import comparing_options as c
from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions

if TYPE_CHECKING:
    from rlcorr_cli.results.diffed import Diff

COMPARING = "Comparing"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A dump, as for analyze, or one part.rlcorr.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What it is compared with, likewise.")],
    *,
    compute: ComputingOptions,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="What tells rows apart: default sample_id, with step where both have it.",
            rich_help_panel=COMPARING,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the other metrics, too, untested.", rich_help_panel=COMPARING)
    ] = False,
    min_effect: Annotated[
        float,
        typer.Option(
            "--min-effect",
            min=0,
            metavar="SHARE",
            help="The smallest change that counts as moved.",
            rich_help_panel=COMPARING,
        ),
    ] = 0.1,
    seed: o.Seed = 0,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="NAME",
            help="moved: exit with status 1 if a metric moved.",
            rich_help_panel=COMPARING,
        ),
    ] = None,
    mode: o.ModeName = None,
    group_by: o.GroupBy = None,
    cluster_by: o.ClusterBy = None,
    format: o.FormatName = "auto",
    map: o.Map = None,
    limit: o.Limit = None,
    on_bad_row: Annotated[
        Literal["error", "skip"],
        typer.Option("--on-bad-row", help="Stop at the first, or leave them out.", rich_help_panel=o.READING),
    ] = "error",
    junit: o.Junit = None,
    json: o.Json = False,
    output: c.SheetOutputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> int:
    """Compare two dumps: what moved, by how much, and which side."""
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared
    from rlcorr_cli.cli.option_groups import mapping
    from rlcorr_cli.reading.bad_rows import BadRowPolicy

    difference = api.diff(
        a,
        b,
        by=by,
        everything=everything,
        min_effect=min_effect,
        seed=seed,
        mode=mode,
        group_by=group_by or (),
        cluster_by=cluster_by,
        output=output or (),
        junit=junit,
        fail_on=fail_on or (),
        format=format,
        columns=mapping(map),
        limit=limit,
        bad_rows=BadRowPolicy(on_bad_row),
        watch=shared.watch(quiet),
        **compute.arguments(),
    )
    return _show(difference, fails=bool(fail_on), as_json=json)


def _show(difference: "Diff", *, fails: bool, as_json: bool) -> int:
    """What GitHub reads first, then stdout.  Returns the exit status."""
    import os

    from rlcorr_cli.results.diffed import checked
    from rlcorr_cli.show import check as github
    from rlcorr_cli.show.stdout import emit_json
    from rlcorr_cli.show.terminal.diffed import print_diff

    if os.environ.get("GITHUB_ACTIONS") == "true":
        github.annotate(checked(difference, fails=fails))
    if as_json:
        emit_json(difference.to_dict())
    else:
        print_diff(difference)
    return 1 if fails and difference.moved else 0
