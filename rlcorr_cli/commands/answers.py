"""How `analyze`, `compare`, `diagnose` and `sweep` come to their results: `answered`.

A dump is opened, and its totals are measured; or files of saved totals (.rlcorr) stand in its place, and are added.  Of
the totals the command makes its result, which is written to its files.  `saved_parts` tells totals from dumps, `added`
adds them, and `refuse_conflicting` refuses an option that conflicts with what they were measured with.  Options that
say where to compute then concern a clean dump alone, because nothing else is computed.

Then what a run reads and writes, compared before it starts: every command that writes goes through here.  The files of
its dump are looked for once; outputs are held against those that were found, and no others are read.
"""

import glob
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from rlcorr_cli.commands import config
from rlcorr_cli.commands.arguments import READING, How, Read, computing, groups, paths, request
from rlcorr_cli.commands.declared import Opt, changed, options as declared_options, several
from rlcorr_cli.errors import DataError, RlcorrError, UsageError, shortened
from rlcorr_cli.files import located, output_path
from rlcorr_cli.files.destinations import DUMP, Destination, check_run
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.places import STDIN
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.show.forms import FORMS, SHEETS, TOTALLED, TOTALLED_SHEETS, sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.causes.features import Yardstick
    from rlcorr_cli.commands.analyze import AnalyzeOptions, DiagnoseOptions
    from rlcorr_cli.commands.compare import CompareOptions, SweepOptions
    from rlcorr_cli.reading.request import PlanColumns
    from rlcorr_cli.results.saved_runs import SavedRun
    from rlcorr_cli.runs.reading import OpenDump

    Asking = AnalyzeOptions | CompareOptions | DiagnoseOptions | SweepOptions


AllowOverlap = Annotated[
    bool, Opt(help="Saved totals only: add files even if they share rows.", panel=READING, rare=True)
]
S = TypeVar("S", bound="SavedRun")
R = TypeVar("R")


def answered(
    options: "Asking",
    kind: type[S],
    *,
    columns: "Callable[[ReadRequest], PlanColumns]",
    measured: "Callable[[OpenDump], S]",
    answer: "Callable[[S, OpenDump | None, Yardstick | None], Any]",
    conflicts: Callable[[S], Mapping[str, tuple[Any, Any]]] = lambda run: {},
    files: tuple[Path, ...] | None = None,
    destinations: Callable[[Collection[Path], bool], Sequence[Destination]] = sheet_destinations,
    saved: bool = False,
) -> Any:
    """What a command answers: its totals are measured, or added from saved ones, its result is made of them, and
    written to its files.

    kind: its totals.  columns: what is read of a dump.  measured: the totals of one.  answer: the result of totals; of
    the dump, where they were measured; and of what a clean dump shows.  conflicts: `more` of `refuse_conflicting`, of
    the sum.  files: where it is written, if not as a sheet is.  destinations: all that may be written for them.  saved:
    whether the result keeps the totals though no file does.
    """
    files = sheet_files(options.output, TOTALLED_SHEETS) if files is None else files
    places = destinations(files, options.overwrite)
    saved = saved or any(path.suffix.lower() in TOTALLED for path in files)
    with Outputs() as staging:
        if parts := saved_parts(options.dumps, allow_overlap=options.allow_overlap):
            notes = check_touched(places, parts, options)
            first, run = added(parts, kind, options)
            refuse_conflicting(first, run, options, conflicts(run))
            clean = yardstick(options)
            result = result_of(first, run, lambda run: answer(run, None, clean))
            return finished(replace(result, totals=result.totals or run), notes, files, staging)
        from rlcorr_cli.reading.dump import open_dump
        from rlcorr_cli.runs.reading import OpenDump

        started = time.perf_counter()
        reading = with_found(request(options.dumps, options))
        notes = check_touched((*places, *quarantines(reading)), reading.files, options)
        dump = open_dump(reading, columns(reading))
        clean = yardstick(options)
        with computing(options) as compute:
            read = OpenDump(dump=dump, computing=compute, watch=options.watch, staging=staging, saved=saved)
            run = measured(read)
            result = answer(run, read, clean)
            result = replace(result, seconds=time.perf_counter() - started, totals=run if saved else None)
            return finished(result, notes, files, staging)


def saved_parts(dumps: Any, *, allow_overlap: bool = False) -> tuple[str, ...]:
    """The files of saved totals that stand in the place of a dump, globs among them; none where a dump is named."""
    named = several(dumps)
    texts = [str(each) for each in named if isinstance(each, str | Path)]
    totals = [text for text in texts if located(text).lower().endswith(TOTALLED)]
    if not totals:
        if allow_overlap:
            what = "⟦allow_overlap True⟧ applies to saved totals alone, and a dump is named."
            raise UsageError(what, "Leave it out.")
        return ()
    if len(totals) < len(named):
        other = next(text for text in texts if text not in totals) if len(texts) == len(named) else "a table"
        raise UsageError(
            f"{totals[0]} holds saved totals and {other} is a dump: they cannot be added.",
            "Name files of totals alone; save those of the dump with ⟦output⟧ first.",
        )
    parts: list[str] = []
    for text in totals:
        if glob.has_magic(text):
            from rlcorr_cli.reading.find import files  # here, because it loads pyarrow

            parts += files([text])
        else:
            parts.append(located(text))
    return tuple(parts)


def added(parts: Sequence[str], kind: type[S], how: "Asking") -> tuple[str, S]:
    """The file that comes first, and the sum of all parts.

    kind: the command's totals.  how: its options; one of reading a dump that is set is refused, because totals are read
    already.
    """
    from rlcorr_cli.runs.saved import added as add

    for name in changed(how, Read):
        raise UsageError(f"⟦{name}⟧ applies to reading a dump, and {parts[0]} holds saved totals.", "Leave it out.")
    return add(parts, kind, group_by=groups(how), allow_overlap=how.allow_overlap, watch=how.watch)


def result_of(path: str, run: S, make: Callable[[S], R]) -> R:
    """The result of a run that was added from saved totals; a DataError where none can be made, which is taken for the
    fault of an edited file."""
    from rlcorr_cli.results.saved_totals import AGAIN
    from rlcorr_cli.totals.view import UnknownTotalError

    try:
        return make(run)
    except UnknownTotalError as error:
        raise DataError(f"{path} was written by another release of rlcorr: it has no {error.args[0]}.", AGAIN) from None
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        why = f"{error}" or type(error).__name__
        raise DataError(f"{path} holds totals that do not belong together: {why}.", AGAIN) from error


def yardstick(how: How) -> "Yardstick | None":
    """What the clean dump among a command's options shows, or what was saved of it; None where none is named."""
    clean = getattr(how, "clean_dump", None)
    if clean is None:
        return None
    from rlcorr_cli.results.saved import is_report, yardstick_in, yardstick_of

    named = paths(clean)
    if is_report(named):
        return yardstick_in(named[0])
    from rlcorr_cli.reading.dump import open_dump
    from rlcorr_cli.results.diagnosed import diagnosis_of
    from rlcorr_cli.runs.diagnose import DIAGNOSIS_COLUMNS, diagnosis_totals
    from rlcorr_cli.runs.reading import OpenDump

    reading = request(clean, Read(map=how.map, nonfinite=how.nonfinite, above_zero=how.above_zero))
    with computing(how) as compute:
        clean_dump = diagnosis_of(
            diagnosis_totals(OpenDump(dump=open_dump(reading, DIAGNOSIS_COLUMNS), computing=compute, watch=how.watch))
        )
    return yardstick_of(
        named[0], clean_dump.whole.diagnosis, None if clean_dump.voiding is None else clean_dump.verdict
    )


def other_plan(asked: Plan, held: Plan) -> str | None:
    """What to call the plan that is asked for; None where it is the one that is held, whatever that is called."""
    if asked.id == held.id:
        return None
    return asked.name if asked.name != held.name else f"another {asked.name}"


def refuse_conflicting(path: str, run: "SavedRun", options: How, more: Mapping[str, tuple[Any, Any]]) -> None:
    """A UsageError of the first option that conflicts with what totals were measured with: the settings among the
    options are compared with those in the totals.

    more: option -> (what it says, None where it was not named; what the totals were measured with).
    """
    held = {**run.provenance.settings, "seed": run.provenance.seed}
    asked = dict(more)
    for each in declared_options(type(options)):
        value = getattr(options, each.name) if each.setting else None
        if value not in (None, (), [], each.parameter.default):
            asked[f"⟦{each.name}⟧"] = (
                ", ".join(value) if isinstance(value, (list, tuple)) else value,
                held.get(each.setting),
            )
    for option, (wanted, had) in asked.items():
        if wanted is not None and wanted != had:
            says = "was measured without" if had in (None, "") else f"was measured with {had}"
            raise UsageError(
                f"{option}: {wanted} is asked for, and {path} {says}.", "Leave it out, or measure the dump again."
            )


FILE_OPTIONS = ("plan", "rules", "baseline", "tokenizer", "clean_dump", "throughput")
"""Options whose value may be the path of a file that is read."""


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
    """The paths that reports are written to; a UsageError of a suffix that such a report has not."""
    files = tuple(written("⟦output⟧", path) for path in several(paths))
    for path in files:
        suffix = path.suffix.lower()
        if suffix not in FORMS:
            known = ", ".join(FORMS)
            raise UsageError(f"{path}: a report is written as {known}.", "Name it report.html or the like.")
        if suffix == ".tb" and n_group_columns > 1:
            raise UsageError("TensorBoard needs groups by one column of steps.", "Group by ⟦group_by step⟧ alone.")
    return files


def sheet_files(paths: Any, known: Sequence[str] = SHEETS) -> tuple[Path, ...]:
    """The paths that a result other than a report is written to; a UsageError of a suffix that is none of its forms."""
    files = tuple(written("⟦output⟧", path) for path in several(paths))
    for path in files:
        if path.suffix.lower() not in known:
            raise UsageError(f"{path}: it is written as {', '.join(known)}.", "Name it result.html or the like.")
    return files


def junit_file(path: str | Path) -> Destination:
    """Where JUnit XML goes."""
    return Destination(path=written("⟦junit⟧", path), option="⟦junit⟧", overwrite=True)


def with_found(reading: ReadRequest) -> ReadRequest:
    """The request with the files that its paths stand for now; opening them says what is wrong with them."""
    from rlcorr_cli.reading.find import find_noting

    with suppress(RlcorrError):
        return replace(reading, found=find_noting(reading.paths, reading.format))
    return reading


def check_touched(destinations: Sequence[Destination], dumps: Sequence[str], options: Any = None) -> tuple[str, ...]:
    """Refuse an output that cannot be written, or is what the run reads; notes on which options were not typed, and
    on what killed runs had left there.

    dumps: the files of dumps.  options: of the command, of which those of FILE_OPTIONS name files.
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
    """A result with more notes, written to its files, each in the form that its suffix names; then all that was staged
    is published."""
    from rlcorr_cli.show.forms import write

    result = replace(result, notes=notes + result.notes)
    for path in files:
        write(result, path, staging)
    staging.publish()
    return result


def _reads(dumps: Sequence[str], options: Any) -> Iterator[tuple[str, str | Path]]:
    for name in FILE_OPTIONS:
        for named in several(getattr(options, name, None)):
            path = named.file if isinstance(named, ChosenPlan) else named
            if isinstance(path, str | Path):
                yield f"⟦{name}⟧", located(path) if isinstance(path, str) else path
    yield from ((DUMP, path) for path in dumps)
