"""`rlcorr explain`: define a metric or a preset, from the tables the code uses."""

from typing import Annotated

import typer

from rlcorr_cli.cli import options as o


def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A metric or a preset, such as seq_ess or geo_rs.")],
    debug: o.Debug = False,
) -> None:
    """Define a metric, statistic or preset."""
    from rlcorr_cli.present.listing import print_explanation

    print_explanation(name)
