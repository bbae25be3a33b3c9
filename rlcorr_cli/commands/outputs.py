"""What a run reads and writes, compared before it starts; the one place that every command goes through for that.

A dump's files are looked for once: outputs are held against those that were found, and no others are read.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcorr_cli.commands import config
from rlcorr_cli.commands.arguments import several
from rlcorr_cli.errors import RlcorrError, UsageError, shortened
from rlcorr_cli.files import located, output_path
from rlcorr_cli.files.destinations import DUMP, Destination, check_run
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.places import STDIN
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.show.forms import FORMS, SHEETS, TOTALLED

READ = ("plan", "rules", "baseline", "tokenizer", "clean_dump")
"""Options that name files to be read, among other things."""


def written(option: str, path: Any) -> Path:
    """The path that an option names for an output."""
    if not isinstance(path, str | Path):
        raise UsageError(f"{option} should be a path, not {shortened(path)}.", "Name a file.")
    if str(path) == "" or "\0" in str(path):
        raise UsageError(f"{option} names no file: {shortened(str(path))}.", "Is a variable of the shell empty?")
    if str(path) == STDIN:
        what = f"{option} takes no '{STDIN}': nothing but text goes to standard output."
        raise UsageError(what, "Name a file, or a directory.")
    return output_path(option, path)


def report_files(paths: Any, *, n_group_columns: int) -> tuple[Path, ...]:
    """Files that reports are written to, if their names tell a form that such a report has."""
    files = tuple(written("⟦output⟧", path) for path in several(paths))
    for path in files:
        suffix = path.suffix.lower()
        if suffix not in FORMS:
            known = ", ".join(FORMS)
            raise UsageError(f"{path}: a report is written as {known}.", "Name it report.html or the like.")
        if suffix == ".tb" and n_group_columns > 1:
            raise UsageError("TensorBoard needs groups by one column of steps.", "Add ⟦group_by step⟧.")
    return files


def sheet_files(paths: Any, known: Sequence[str] = SHEETS) -> tuple[Path, ...]:
    """Files that a result other than a report is written to, if their suffixes are among its forms."""
    files = tuple(written("⟦output⟧", path) for path in several(paths))
    for path in files:
        if path.suffix.lower() not in known:
            raise UsageError(f"{path}: it is written as {', '.join(known)}.", "Name it result.html or the like.")
    return files


def keep_totals(files: Iterable[Path]) -> bool:
    """Whether a file of these holds what the result is made of."""
    return any(path.suffix.lower() in TOTALLED for path in files)


def junit_file(path: str | Path) -> Destination:
    """Where JUnit XML goes."""
    return Destination(path=written("⟦junit⟧", path), option="⟦junit⟧", overwrite=True)


def with_files(reading: ReadRequest) -> ReadRequest:
    """The same of the files that the dump's names stand for now; what is wrong with them is said where it is opened."""
    from rlcorr_cli.reading.find import find_noting

    with suppress(RlcorrError):
        return replace(reading, found=find_noting(reading.paths, reading.format))
    return reading


def check_touched(destinations: Sequence[Destination], dumps: Sequence[str], options: Any = None) -> tuple[str, ...]:
    """Refuse an output that cannot be written, or is what the run reads; notes on which options were not typed, and
    on what killed runs had left there.

    dumps: the files of dumps.  options: of the command, of which those of READ name files.
    """
    left = check_run(destinations, _reads(dumps, options)) if destinations else ()
    return (*config.NOTES.get(), *left)


def quarantines(reading: ReadRequest) -> tuple[Destination, ...]:
    """Where bad rows go, for a command that replaces no older ones."""
    if reading.bad_rows.quarantine is None:
        return ()
    from rlcorr_cli.runs.reading import quarantine

    destination = quarantine(reading.bad_rows)
    return () if destination is None else (destination,)


def finished(result: Any, notes: tuple[str, ...], files: Sequence[Path], staging: Outputs) -> Any:
    """A result with more notes, which is written to its files, each in the form that its suffix names."""
    from rlcorr_cli.show.forms import write

    result = replace(result, notes=notes + result.notes)
    for path in files:
        write(result, path, staging)
    staging.publish()
    return result


def _reads(dumps: Sequence[str], options: Any) -> Iterator[tuple[str, str | Path]]:
    for name in READ:
        for named in several(getattr(options, name, None)):
            path = named.file if isinstance(named, ChosenPlan) else named
            if isinstance(path, str | Path):
                yield f"⟦{name}⟧", located(path) if isinstance(path, str) else path
    yield from ((DUMP, path) for path in dumps)
