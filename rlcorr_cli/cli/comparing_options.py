"""Options of the commands that hold plans or dumps against each other."""

from typing import Annotated, Literal

import typer

from rlcorr_cli.cli import completion
from rlcorr_cli.cli.options import OUTPUT, PLAN
from rlcorr_cli.present.forms import SHEETS

PresetNames = Annotated[
    list[str] | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="A named plan to compare; `rlcorr presets` lists all. Repeatable. Default: verl's, and one of every other "
        "framework.",
        autocompletion=completion.presets,
        rich_help_panel=PLAN,
    ),
]
PlanPaths = Annotated[
    list[str] | None,
    typer.Option(
        "--plan", metavar="FILE", help="A plan to compare (TOML, YAML, JSON). Repeatable.", rich_help_panel=PLAN
    ),
]
AllPresets = Annotated[bool, typer.Option("--all", help="Compare every preset.", rich_help_panel=PLAN)]
SortBy = Annotated[
    Literal["worth", "info", "kept", "name"], typer.Option("--sort", help="Order of the plans.", rich_help_panel=OUTPUT)
]
SheetOutputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help=f"Also write it to FILE: {', '.join(SHEETS)}. Repeatable.",
        rich_help_panel=OUTPUT,
    ),
]
