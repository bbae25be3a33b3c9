"""Options that say where a dump is computed, and by how many."""

from typing import Annotated

import typer

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.options import COMPUTING
from rlcorr_cli.reading.request import MOST_ROWS, MOST_WORKERS, EngineName

Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="<auto|cpu|torch|cuda|cuda:N>",
        help="Where to compute; auto: on a GPU where there is one.",
        autocompletion=completion.devices,
        rich_help_panel=COMPUTING,
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        help="Tokens held at once by a worker.",
        rich_help_panel=COMPUTING,
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="What reads the dump: threads, worker processes, tasks on a Ray cluster, or auto: threads or processes.",
        rich_help_panel=COMPUTING,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=MOST_WORKERS,
        metavar="N",
        help="How many threads, processes or tasks at a time; default one a core.",
        rich_help_panel=COMPUTING,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="The cluster of --engine ray, or local for one of this run's own; default RAY_ADDRESS, or one that runs "
        "here, or local.",
        rich_help_panel=COMPUTING,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=MOST_WORKERS,
        metavar="N",
        help="The same as --engine threads --workers N.",
        rich_help_panel=COMPUTING,
    ),
]
