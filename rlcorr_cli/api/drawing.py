"""What shows a report: `plot` draws pictures, `to_html` makes the page, `save` writes it in the form of a suffix."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcorr_cli.api.arguments import Names, Paths, computing, kind_of, names, paths, request
from rlcorr_cli.api.choosing import PlanLike, choose_plan
from rlcorr_cli.api.comparing import default_plans
from rlcorr_cli.api.judging import refuse_beside_report, saved
from rlcorr_cli.api.touched import check_touched, quarantines, report_files, written
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import DataError, OutputError, UsageError, nearest
from rlcorr_cli.files.destinations import DUMP, Destination, check_run
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import EngineName, ReadRequest
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved import refuse_undrawable
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.runs.analyze import Watch
    from rlcorr_cli.runs.scan import Computing
    from rlcorr_cli.show.figures import Drawn

SUFFIXES = ("png", "svg", "pdf")
COMPARE, DIAGNOSE = "compare", "diagnose"
NO_STEPS = "Name a column with --group-by COLUMN, or leave --by-step out."
NO_REPORT = {
    COMPARE: (
        "A report is of one plan: there are no plans in it to compare.",
        "The picture `compare` is of many plans, and takes no plan.",
        "Choose plans with `rlcorr compare DUMP --preset NAME --preset NAME -o plans.png`.",
    ),
    DIAGNOSE: (
        "A report does not hold what causes are found from.",
        "The picture `diagnose` is of the two policies, and takes no plan.",
        "Leave the plan out.",
    ),
}
"""Kinds of pictures that are of no report -> why one will not do, why a plan will not, and what to do instead of it."""


@dataclass(frozen=True, kw_only=True)
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

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": self.kind, "path": None if self.path is None else str(self.path), "caption": self.caption}


@speaks_of_arguments
def plot(
    source: Report | Paths,
    output: str | Path | Mapping[str, Path] | None = None,
    plan: PlanLike | None = None,
    *,
    kinds: Names = ("overview",),
    mode: Mode | None = None,
    group_by: Names = (),
    by_step: bool = False,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    watch: "Watch | None" = None,
) -> tuple[Picture, ...]:
    """Draw a dump, or a report of `analyze(..., pictures=True)`: one picture of each kind.

    The kind `compare` draws what `compare` says of the plans that it takes by itself, `diagnose` the evidence of the
    likely cause; a report has no such pictures.
    by_step: a curve for each step, or group, in the pictures of the log-ratio, which hold all rows together without.
    output: a .png, .svg or .pdf, a directory for KIND.png, or kind -> file; None writes nothing.  The rest as of
    `analyze`.
    """
    wanted = _kinds(names("kinds", kinds))
    if by_step:
        _refuse_by_step(wanted)
    inputs = () if isinstance(source, Report) else paths(source)
    targets = _targets(output, wanted)
    notes = check_touched((*targets.values(), *quarantines(bad_rows)), inputs, plan=plan)
    report = saved(source)
    _refuse_without_report(wanted, plan, has_report=report is not None)
    reading = request(
        inputs or "",
        group_by=group_by,
        format=format,
        columns=columns,
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows,
    )
    with Outputs() as staging:
        if report is not None:
            refuse_beside_report(reading, plan, mode=mode)
            refuse_undrawable(report, inputs[0] if inputs else "The report")
            if by_step:
                _refuse_pooled(report)
            drawn = _drawn(dict.fromkeys(wanted, report))
        else:
            with computing(
                device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
            ) as compute:
                drawn = _read(
                    wanted,
                    reading,
                    choose_plan(plan, mode=mode),
                    computing=compute,
                    watch=watch,
                    staging=staging,
                    by_step=by_step,
                )
        pictures = tuple(_picture(drawn[kind], targets.get(kind), notes, staging) for kind in wanted)
        staging.publish()
    return pictures


@speaks_of_arguments
def to_html(report: Report) -> str:
    """The report as one page that needs nothing else; with pictures, if it was measured with `pictures=True`."""
    from rlcorr_cli.show import document_of
    from rlcorr_cli.show.forms import page

    return page.text(document_of(_a_report(report)))


@speaks_of_arguments
def save(report: Report, path: str | Path) -> Path:
    """Write a report as .json, .html, .md, .csv, .tb (TensorBoard) or .rlcorr, whole or not at all; returns the path.

    .rlcorr takes a report that has kept its totals.
    """
    columns = len(_a_report(report).groups[0].key) if report.groups else 0
    (place,) = report_files(path, n_group_columns=columns)
    check_run(forms.destinations(place), [(DUMP, source.path) for source in report.inputs])
    with Outputs() as staging:
        forms.write(report, place, staging)
        staging.publish()
    return place


def _a_report(report: Any) -> Report:
    if not isinstance(report, Report):
        raise UsageError(f"report should be a Report, not {kind_of(report)}.", "Take what `analyze` returns.")
    return report


def _measured(
    kinds: Sequence[str],
    reading: ReadRequest,
    chosen: "ChosenPlan",
    *,
    computing: "Computing",
    watch: "Watch | None",
    staging: Outputs,
    by_step: bool,
) -> dict[str, Report]:
    """Each kind's report.  Staleness looks at steps and versions at once, everything else at steps alone; the dump is
    read twice only where these groupings differ."""
    from rlcorr_cli.runs import analyze as analysis

    # Which sequences carry the gradient is told of weights times advantages.
    dump = analysis.opened(reading, chosen, wanted=("advantages",) if "weights" in kinds else (), clusters=True)
    groups = {kind: analysis.step_groups(dump, versions=kind == "staleness") for kind in kinds}
    if by_step and not any(groups.values()):
        raise UsageError("There are no steps to draw a curve each of.", NO_STEPS)
    by_groups: dict[tuple[str, ...], Report] = {}
    for grouping in dict.fromkeys(groups.values()):
        # Intervals, which take a seed, are drawn of groups alone.
        by_groups[grouping] = analysis.analyze_dump(
            dump.grouped_by(grouping),
            chosen,
            computing=computing,
            seed=0 if grouping else None,
            watch=watch,
            pictures=True,
            by_step=by_step,
            staging=staging,
        )
        dump = replace(dump, request=_without_quarantine(dump.request))
    return {kind: by_groups[groups[kind]] for kind in kinds}


def _refuse_by_step(kinds: Sequence[str]) -> None:
    from rlcorr_cli.show.figures import BY_STEP

    if not set(kinds) & set(BY_STEP):
        raise UsageError(f"--by-step changes nothing in {', '.join(kinds)}.", f"It is of {', '.join(BY_STEP)}.")


def _refuse_pooled(report: Report) -> None:
    """A DataError where a report does not hold what curves of each group are drawn from."""
    if not any(group.curves for group in report.groups):
        raise DataError("The report holds no curves of each step.", "Name the dump itself.")


def _without_quarantine(reading: ReadRequest) -> ReadRequest:
    """The request of a second reading: the first has written the bad rows apart."""
    return replace(reading, bad_rows=replace(reading.bad_rows, quarantine=None))


def _refuse_without_report(kinds: Sequence[str], plan: PlanLike | None, *, has_report: bool) -> None:
    for kind in kinds:
        if kind in NO_REPORT and has_report:
            raise UsageError(NO_REPORT[kind][0], "Name the dump itself.")
        if kind in NO_REPORT and plan is not None:
            raise UsageError(*NO_REPORT[kind][1:])


def _read(
    kinds: Sequence[str],
    reading: ReadRequest,
    chosen: "ChosenPlan",
    *,
    computing: "Computing",
    watch: "Watch | None",
    staging: Outputs,
    by_step: bool,
) -> "dict[str, Drawn]":
    """The pictures of a dump, those of its reports first; each of the others reads it once more."""
    of_plan = [kind for kind in kinds if kind not in NO_REPORT]
    drawn: dict[str, Drawn] = {}
    if of_plan:
        drawn = _drawn(
            _measured(of_plan, reading, chosen, computing=computing, watch=watch, staging=staging, by_step=by_step)
        )
    for kind, draw in ((COMPARE, _compared), (DIAGNOSE, _diagnosed)):
        if kind in kinds:
            drawn[kind] = draw(_without_quarantine(reading) if drawn else reading, computing, watch, staging)
    return drawn


def _compared(reading: ReadRequest, computing: "Computing", watch: "Watch | None", staging: Outputs) -> "Drawn":
    """The picture of the plans that `compare` takes by itself."""
    from rlcorr_cli.runs.compare import compare
    from rlcorr_cli.show import document_of

    comparison = compare(
        replace(reading, group_by=()),
        default_plans(),
        named=False,
        computing=computing,
        watch=watch,
        staging=staging,
    )
    return forms.picture(document_of(comparison), COMPARE)


def _diagnosed(reading: ReadRequest, computing: "Computing", watch: "Watch | None", staging: Outputs) -> "Drawn":
    """The picture of the likely cause."""
    from rlcorr_cli.runs.diagnose import diagnose
    from rlcorr_cli.show import document_of

    diagnosed = diagnose(replace(reading, group_by=()), computing=computing, watch=watch, staging=staging)
    return forms.picture(document_of(diagnosed), DIAGNOSE)


def _kinds(wanted: Sequence[str]) -> tuple[str, ...]:
    """The kinds asked for, each once; an overview if none."""
    from rlcorr_cli.show.figures import KINDS

    for name in wanted:
        if name not in (*KINDS, *NO_REPORT):
            raise UsageError(f"There is no kind of picture '{name}'.", f"Kinds: {', '.join((*KINDS, *NO_REPORT))}.")
    return tuple(dict.fromkeys(wanted)) or ("overview",)


def _targets(output: Any, kinds: Sequence[str]) -> dict[str, Destination]:
    """Kind -> where its picture goes."""
    if output is None:
        return {}
    if not isinstance(output, (str, Path, Mapping)):
        raise UsageError(f"output should be a path, not {kind_of(output)}.", "Name a .png, or a directory.")
    if isinstance(output, Mapping):
        return {kind: Destination(path=written("-o", path), overwrite=True) for kind, path in output.items()}
    return _named(written("-o", output), kinds)


def _named(path: Path, kinds: Sequence[str]) -> dict[str, Destination]:
    """A name without a suffix is a directory for KIND.png."""
    suffix = path.suffix.lower().removeprefix(".")
    if not suffix or os.path.isdir(path):
        if os.path.exists(path) and not os.path.isdir(path):
            raise OutputError(f"{path} is not a directory.", "Name a picture .png, .svg or .pdf, or another directory.")
        return {kind: Destination(path=path / f"{kind}.png", overwrite=True, makes_parents=True) for kind in kinds}
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: a picture is a .png, .svg or .pdf.", f"Nearest: {nearest(suffix, SUFFIXES, 1)}.")
    if len(kinds) > 1:
        raise UsageError(f"{path} can hold one picture, not {len(kinds)}.", "Name a directory with -o.")
    return {kinds[0]: Destination(path=path, overwrite=True)}


def _drawn(by_kind: Mapping[str, Report]) -> "dict[str, Drawn]":
    from rlcorr_cli.show.figures import draw

    return {kind: draw(kind, report) for kind, report in by_kind.items()}


def _picture(drawn: "Drawn", place: Destination | None, notes: tuple[str, ...], staging: Outputs) -> Picture:
    """The picture, staged for its file if it has one."""
    if drawn.figure is None or place is None:
        return Picture(kind=drawn.kind, figure=drawn.figure, caption=drawn.caption, notes=notes)
    staging.write(place, drawn.write(place.path.suffix.lower().removeprefix(".")))
    return Picture(kind=drawn.kind, figure=drawn.figure, caption=drawn.caption, path=place.path, notes=notes)
