"""Options of the commands that hold plans or dumps against each other."""

from typing import Annotated, Literal

import typer

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.options import OUTPUT, PLAN
from rlcorr_cli.show.forms import SHEETS

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
FreeBound = Annotated[
    Literal["low", "high"] | None,
    typer.Option("--bound", help="Move this bound of the weights, not a rejection's.", rich_help_panel=PLAN),
]
SideName = Annotated[
    Literal["both", "low", "high"] | None,
    typer.Option("--side", help="Of a ratio's rejection: move both bounds (default), or one.", rich_help_panel=PLAN),
]
TargetKeep = Annotated[
    float | None,
    typer.Option(
        "--target-keep",
        metavar="SHARE",
        help="Name the tightest bounds that keep this share of the sequences, or tokens.",
        rich_help_panel=PLAN,
    ),
]
TargetEss = Annotated[
    float | None,
    typer.Option(
        "--target-ess",
        metavar="SHARE",
        help="Name the loosest bounds with this effective sample size.",
        rich_help_panel=PLAN,
    ),
]
Points = Annotated[
    int, typer.Option("--points", min=2, max=1000, metavar="N", help="Points of the curve.", rich_help_panel=OUTPUT)
]
