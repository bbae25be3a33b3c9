"""What shows a result: `plot` draws pictures, `to_html` makes the page, `save` writes it in the form of a suffix."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rlcorr_cli.commands import arguments
from rlcorr_cli.commands.answers import check_touched, quarantines, report_files, sheet_files, written
from rlcorr_cli.commands.check import refuse_beside_report, source_of
from rlcorr_cli.commands.choose import HowPlanned, asks_for_plan, chosen_plan
from rlcorr_cli.commands.compare import default_plans
from rlcorr_cli.commands.declared import Act, Opt, kind_of, takes
from rlcorr_cli.errors import DataError, OutputError, UsageError, nearest
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.destinations import DUMP, Destination, check_run
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.commands.arguments import Paths
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.reading.dump import Dump
    from rlcorr_cli.records.record import Result
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.runs.reading import OpenDump
    from rlcorr_cli.show.figures import Drawn, Sheet

SUFFIXES = ("png", "svg", "pdf", "csv")
COMPARE, DIAGNOSE = "compare", "diagnose"
KINDS = (
    *("overview", "course", "metrics", "ratio", "surprise", "scatter", "position", "length", "weights", "staleness"),
    *(COMPARE, DIAGNOSE),
)
"""Kinds of pictures, named here because their table loads matplotlib."""
NO_REPORT = {
    COMPARE: (
        "A report is of one plan: there are no plans in it to compare.",
        "The picture `compare` is of many plans, and takes no plan.",
        "Choose plans with `⟦compare(DUMP)⟧ ⟦preset NAME⟧ ⟦preset NAME⟧ ⟦output plans.png⟧`.",
    ),
    DIAGNOSE: (
        "A report does not hold what causes are found from.",
        "The picture `diagnose` is of the two policies, and takes no plan.",
        "Leave the plan out.",
    ),
}
"""Kinds of pictures that are of no report -> why one will not do, why a plan will not, and what to do instead of it."""


@frozen(kw_only=True)
class Picture:
    """A picture of one kind.

    figure: matplotlib's, None where the dump has nothing to draw, which the caption says.  path: where it was written.
    notes: on what killed runs had left there.
    """

    kind: str
    figure: Any
    caption: str
    path: Path | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        where = "" if self.path is None else f" in {str(self.path)!r}"
        return f"<Picture {self.kind}{where}: {self.caption}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return in_notebook((self,))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": self.kind, "path": None if self.path is None else str(self.path), "caption": self.caption}


class Pictures(tuple[Picture, ...]):
    """The pictures of one `plot`, which a notebook shows below one another."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return in_notebook(self)


def in_notebook(pictures: Iterable[Picture]) -> str:
    """The HTML of pictures."""
    from rlcorr_cli.show import notebook

    return "".join(notebook.html_of_picture(each.figure, each.caption) for each in pictures)


def beside_the_shell(source: Sequence[str], kind: Sequence[str] | None) -> dict[str, Path]:
    """Where a command line's pictures go that names no output: to DUMP.KIND.png right here."""
    name = Path(source[0]).name
    is_pattern = bool(set("*?[-") & set(source[0][:1] + name))
    stem = "" if is_pattern else name.split(".")[0]
    return {each: Path(f"{stem or 'dump'}.{each}.png") for each in kind or KINDS[:1]}


@frozen(kw_only=True, eq=False)
class PlotOptions(HowPlanned):
    """What `plot` takes."""

    source: Annotated["Report | Paths", arguments.DUMPS_OR_REPORT] = field(kw_only=False)
    output: Annotated[
        str | Path | Mapping[str, Path] | None,
        Act(
            help="The picture (.png, .svg, .pdf; .csv for what it shows), or a directory for several.",
            python="Or a mapping of kinds to files; None writes nothing.",
            panel=arguments.OUTPUT,
            flags=("--output", "-o"),
            otherwise=beside_the_shell,
            metavar="PATH",
        ),
    ] = field(default=None, kw_only=False)
    kind: Annotated[
        arguments.Names,
        Opt(
            help=f"{KINDS[0]} (the default), {', '.join(KINDS[1:-1])} or {KINDS[-1]}. Repeatable.",
            panel=arguments.OUTPUT,
            metavar="KIND",
            offers=KINDS,
        ),
    ] = ()
    group_by: arguments.GroupBy = ()
    width: Annotated[
        float | None,
        Opt(
            help="Inches of the picture, such as 3.3 for a column of a paper; panels stand below one another where it "
            "is small (default: the kind's own).",
            panel=arguments.OUTPUT,
            least=2.6,
            most=60,
        ),
    ] = None
    dpi: Annotated[int, Opt(help="Dots per inch of a PNG.", panel=arguments.OUTPUT, least=20, most=1200)] = 150
    no_caption: Annotated[bool, Opt(help="Leave out what stands below the panels.", panel=arguments.OUTPUT)] = False
    overwrite: arguments.Overwrite = False


@takes(PlotOptions)
def plot(options: PlotOptions) -> "Pictures":
    """Plot a dump or a saved report: one page, or pictures by kind.

    `source` may be a Report of `analyze(..., pictures=True)`, too.  The kind `compare` draws what `compare` says of the
    plans that it takes by itself, `diagnose` the evidence of the likely cause; a report has no such pictures.
    """
    from rlcorr_cli.results.saved import refuse_undrawable
    from rlcorr_cli.show import figures

    wanted = tuple(dict.fromkeys(arguments.names("kind", options.kind))) or KINDS[:1]
    for name in wanted:
        if name not in KINDS:
            raise UsageError(f"There is no kind of picture '{name}'.", f"Kinds: {', '.join(KINDS)}.")
    report, reading, inputs = source_of(options)
    targets = {
        each: replace(place, overwrite=options.overwrite) for each, place in _targets(options.output, wanted).items()
    }
    notes = check_touched((*targets.values(), *quarantines(reading)), inputs, options)
    for each in wanted:
        if each in NO_REPORT and report is not None:
            raise UsageError(NO_REPORT[each][0], "Name the dump itself.")
        if each in NO_REPORT and asks_for_plan(options) and NO_REPORT.keys() >= {*wanted}:
            raise UsageError(*NO_REPORT[each][1:])
    if asks_for_plan(options):
        notes += tuple(NO_REPORT[each][1] for each in wanted if each in NO_REPORT)
    sheet = figures.Sheet(options.width, captioned=not options.no_caption)
    with Outputs() as staging:
        if report is not None:
            refuse_beside_report(reading, options)
            if inputs:
                refuse_undrawable(report, inputs[0])
            else:
                refuse_undrawable(report, "The report", "Take one of analyze(dumps, pictures=True).")
            drawn = {each: figures.draw(each, report, sheet) for each in wanted}
        else:
            chosen = chosen_plan(options)
            from rlcorr_cli.runs.reading import OpenDump

            with arguments.computing(options) as compute:
                drawn = _pictures_of_dump(
                    wanted,
                    reading,
                    chosen,
                    lambda dump: OpenDump(dump=dump, computing=compute, watch=options.watch, staging=staging),
                    sheet=sheet,
                )
        pictures = Pictures(
            _staged_picture(drawn[each], targets.get(each), notes, staging, dpi=options.dpi) for each in wanted
        )
        staging.publish()
    return pictures


def to_html(result: "Result") -> str:
    """A result as one page that needs nothing else; a report of `analyze(..., pictures=True)` has all its pictures."""
    from rlcorr_cli.show import document_of
    from rlcorr_cli.show.forms import page

    _refuse_other(result)
    return page.page_html(document_of(result))


def save(result: "Result | Picture", path: str | Path) -> Path:
    """Write what a command returned, whole or not at all; returns the path.

    The path's suffix says the form, as after -o: `rlcorr help pictures` lists those of a report, and those of other
    results.  What has kept its totals is written as .rlcorr.
    """
    if isinstance(result, Picture):
        return _save_picture(result, path)
    from rlcorr_cli.results.report import Report

    _refuse_other(result)
    if isinstance(result, Report):
        columns = len(result.groups[0].key) if result.groups else 0
        (place,) = report_files(path, n_group_columns=columns)
        places = forms.destinations((place,), overwrite=True)
    else:
        keeps_totals = getattr(result, "totals", None) is not None
        (place,) = sheet_files(path, forms.TOTALLED_SHEETS if keeps_totals else forms.SHEETS)
        places = forms.sheet_destinations((place,), overwrite=True)
    check_run(places, [(DUMP, path) for path in _inputs_of(result)])
    with Outputs() as staging:
        forms.write(result, place, staging)
        staging.publish()
    return place


def _save_picture(picture: Picture, path: str | Path) -> Path:
    from rlcorr_cli.show.figures import DPI, Drawn

    if picture.figure is None:
        raise DataError(f"There is nothing to draw: {picture.caption}", "Draw another kind.")
    (target,) = _destinations_named(written("⟦output⟧", path), (picture.kind,)).values()
    target = replace(target, overwrite=True)
    check_run((target,), ())
    with Outputs() as staging:
        staged = _staged_picture(Drawn(picture.kind, picture.figure, picture.caption), target, (), staging, dpi=DPI)
        staging.publish()
    assert staged.path is not None
    return staged.path


def _refuse_other(result: Any) -> None:
    """A UsageError of what is no result."""
    from rlcorr_cli.show import DOCUMENTS

    if type(result).__name__ not in DOCUMENTS:
        raise UsageError(f"That is not a result, but {kind_of(result)}.", "Take what `analyze` or `diff` returned.")


def _inputs_of(result: Any) -> Iterator[str]:
    """The files that a result is of, which it is not written over."""
    from rlcorr_cli.results.diffed import Diff
    from rlcorr_cli.results.watched import Watched
    from rlcorr_cli.results.written import Filtered

    if isinstance(result, Watched):  # a folder holds what is written, too
        yield from (path for path in result.paths if filesystem(located(path)).is_file(located(path)))
    elif isinstance(result, Diff):
        yield from (file.path for report in result.dumps.values() for file in report.inputs)
    else:
        report = result.report if isinstance(result, Filtered) else result
        yield from (file.path for file in report.inputs)


def _pictures_of_dump(
    kinds: Sequence[str],
    reading: ReadRequest,
    chosen: "ChosenPlan",
    as_read: "Callable[[Dump], OpenDump]",
    *,
    sheet: "Sheet",
) -> "dict[str, Drawn]":
    """The pictures of a dump, those of its report first; each of the others reads it once more."""
    from rlcorr_cli.reading.dump import open_dump
    from rlcorr_cli.show import document_of, figures

    drawn: dict[str, Drawn] = {}
    if of_plan := [kind for kind in kinds if kind not in NO_REPORT]:
        from rlcorr_cli.results.build import report_of
        from rlcorr_cli.runs import analyze as analysis

        # Which sequences carry the gradient is told of weights times advantages.
        wanted = ("advantages",) if "weights" in of_plan else ()
        dump = analysis.opened(reading, chosen, wanted=wanted, clusters=True)
        grouping = analysis.step_groups(dump)
        # Intervals, which take a seed, are drawn of groups alone.
        run = analysis.analysis_totals(
            as_read(dump.with_request(group_by=grouping)), chosen, seed=0 if grouping else None, pictures=True
        )
        report = report_of(run)
        drawn = {kind: figures.draw(kind, report, sheet) for kind in of_plan}
    if COMPARE in kinds:
        from rlcorr_cli.results.compared import comparison_of
        from rlcorr_cli.runs.compare import comparison_columns, comparison_totals

        plans, whole = default_plans(), replace(_read_again(reading) if drawn else reading, group_by=())
        dump = open_dump(whole, comparison_columns(whole, [each.plan for each in plans]))
        compared = comparison_totals(as_read(dump), plans, named=False)
        drawn[COMPARE] = forms.whole_picture(document_of(comparison_of(compared)), COMPARE, sheet)
    if DIAGNOSE in kinds:
        from rlcorr_cli.results.diagnosed import diagnosis_of
        from rlcorr_cli.runs.diagnose import DIAGNOSIS_COLUMNS, diagnosis_totals

        dump = open_dump(replace(_read_again(reading) if drawn else reading, group_by=()), DIAGNOSIS_COLUMNS)
        found = document_of(diagnosis_of(diagnosis_totals(as_read(dump))))
        drawn[DIAGNOSE] = forms.whole_picture(found, DIAGNOSE, sheet)
    return drawn


def _read_again(reading: ReadRequest) -> ReadRequest:
    """The request of a second reading: the first has written the bad rows apart."""
    return replace(reading, bad_rows=replace(reading.bad_rows, quarantine=None))


def _targets(output: Any, kinds: Sequence[str]) -> dict[str, Destination]:
    """Kind -> where its picture goes."""
    if output is None:
        return {}
    if isinstance(output, Mapping):
        return {kind: Destination(path=written("⟦output⟧", path)) for kind, path in output.items()}
    return _destinations_named(written("⟦output⟧", output), kinds)


def _destinations_named(path: Path, kinds: Sequence[str]) -> dict[str, Destination]:
    """A name without a suffix is a directory for KIND.png."""
    suffix = path.suffix.lower().removeprefix(".")
    if not suffix or os.path.isdir(path):
        if os.path.exists(path) and not os.path.isdir(path):
            raise OutputError(f"{path} is not a directory.", "Name a picture .png, .svg or .pdf, or another directory.")
        return {kind: Destination(path=path / f"{kind}.png", makes_parents=True) for kind in kinds}
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{path}: a picture is a .png, .svg or .pdf, or what it shows a .csv.",
            f"Nearest: {nearest(suffix, SUFFIXES, 1)}.",
        )
    if len(kinds) > 1:
        raise UsageError(f"{path} can hold one picture, not {len(kinds)}.", "Name a directory with ⟦output⟧.")
    return {kinds[0]: Destination(path=path)}


def _staged_picture(
    drawn: "Drawn", place: Destination | None, notes: tuple[str, ...], staging: Outputs, *, dpi: int
) -> Picture:
    """The picture, staged for its file if it has one."""
    if drawn.figure is None or place is None:
        return Picture(kind=drawn.kind, figure=drawn.figure, caption=drawn.caption, notes=notes)
    staging.write(place, drawn.write(place.path.suffix.lower().removeprefix("."), dpi))
    return Picture(kind=drawn.kind, figure=drawn.figure, caption=drawn.caption, path=place.path, notes=notes)
