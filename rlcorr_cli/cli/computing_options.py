"""Options that say where a dump is computed, and by how many."""

from typing import Annotated

import typer

from rlcorr_cli.cli import completion
from rlcorr_cli.cli.options import COMPUTING
from rlcorr_cli.requests import MOST_ROWS, MOST_WORKERS, EngineName

Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="<auto|cpu|cuda|cuda:N>",
        help="Where to compute.",
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
        help="What reads the dump: threads, worker processes, or auto: the faster of them.",
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
        help="How many threads or processes; default one a core.",
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
