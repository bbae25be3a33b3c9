"""`rlcorr explain`: define any name that a report prints, from the tables the code uses; or print a JSON Schema."""

from typing import Annotated

import typer

from rlcorr_cli.cli import completion
from rlcorr_cli.cli import options as o


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A metric, preset, class of bad rows, cause or symbol (seq_ess, geo_rs, top_p), or a topic: causes.",
            autocompletion=completion.explained,
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="The JSON Schema of report, filter, check, inspect, row, diff, diagnose, compare, side_by_side, "
            "sweep, convert, plot, presets, parts (_rlcorr.json), error; or all.",
        ),
    ] = False,
    debug: o.Debug = False,
) -> None:
    """Define any name that a report prints, or print a JSON Schema."""
    from rlcorr_cli.show.explain import print_explanation, print_schema, print_topics

    if schema:
        print_schema(name)
    elif name is None:
        print_topics()
    else:
        print_explanation(name)
