"""`scalars`: what a run has logged of its gap, without a dump."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from rlcorr_cli.commands import answers, arguments
from rlcorr_cli.commands.declared import Opt
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.show.forms import sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.results.scalars import LoggedScalars


def scalars(
    logs: Annotated[
        arguments.Files,
        Opt(
            help="What a run has logged: JSON lines of metrics, W&B's export, CSV, TensorBoard's event files or their "
            "folder, trainer_state.json. Several files are ranks, or parts, of one run.",
            typed=list[str],
            metavar="LOG...",
        ),
    ],
    *,
    all: Annotated[
        bool, Opt(help="Show every metric, and list the names that are unknown.", panel=arguments.LOOKING)
    ] = False,
    output: arguments.SheetOutputs = (),
    overwrite: arguments.Overwrite = False,
) -> "LoggedScalars":
    """Read the metrics that a run has logged: since when, how fast, which steps to record.

    For those who have no dump.  Names of frameworks are known with whatever stands before and after them.
    """
    from rlcorr_cli.reading.scalars import files_of, read, settled
    from rlcorr_cli.results.scalars import logged_scalars

    files, paths = answers.sheet_files(output), files_of(arguments.paths(logs))
    notes = answers.check_touched(sheet_destinations(files, overwrite), paths)
    with Outputs() as staging:
        result = logged_scalars(settled([read(path) for path in paths]))
        return answers.finished(replace(result, everything=all), notes, files, staging)
