"""`convert`: a dump in canonical columns."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.api.arguments import Names, Paths, names, refuse_outside, refuse_stdin_twice, request
from rlcorr_cli.api.touched import check_touched, written
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.reading.request import MOST_ROWS
from rlcorr_cli.results.written import ROWS_PER_FILE, Converted

if TYPE_CHECKING:
    from rlcorr_cli.runs.reading import Watch


@speaks_of_arguments
def convert(
    dumps: Paths,
    output: str | Path,
    *,
    join: str | Path | None = None,
    on: Names = ("sample_id",),
    overwrite: bool = False,
    rows_per_file: int = ROWS_PER_FILE,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    watch: "Watch | None" = None,
) -> Converted:
    """Write a dump's rows in canonical columns: what a framework left on disk, as a file that any tool reads.

    output: a file, or a directory of parts.  join: another engine's dump of the same tokens, whose rollout log-probs
    become `old_log_probs`; on: the columns that tell which rows belong together.  The rest as of `analyze`.
    Every row comes through, unchecked, in the order of the files named, with `source_file` and `source_row`; rows
    without a partner are counted.
    """
    from rlcorr_cli.runs import convert as converting

    refuse_outside(1, MOST_ROWS, rows_per_file=rows_per_file)
    path = written("-o", output)
    reading = request(dumps, format=format, columns=columns, limit=limit)
    joined = () if join is None else (str(join),)
    refuse_stdin_twice(reading.paths, joined)
    notes = check_touched([converting.destination(path, overwrite)], (*reading.paths, *joined))
    converted = converting.convert(
        reading,
        path,
        join=None if join is None else str(join),
        on=names("on", on),
        overwrite=overwrite,
        rows_per_file=rows_per_file,
        watch=watch,
    )
    return replace(converted, notes=(*converted.notes, *notes))
