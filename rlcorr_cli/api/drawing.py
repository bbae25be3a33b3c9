"""What shows a report: `plot` draws pictures, `to_html` makes the page, `save` writes it in the form of a suffix."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcorr_cli.api.arguments import Names, Paths, computing, kind_of, names, paths, request
from rlcorr_cli.api.choosing import PlanLike, choose_plan
from rlcorr_cli.api.judging import refuse_beside_report, saved
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.atomic import check_target, make_directory, replace_file
from rlcorr_cli.errors import OutputError, UsageError, nearest
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.present.forms import FORMS
from rlcorr_cli.quality.bad_rows import BadRowPolicy
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.saved import refuse_undrawable
from rlcorr_cli.requests import ReadRequest

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.pipeline.analyze import Watch
    from rlcorr_cli.pipeline.scan import Computing

SUFFIXES = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Picture:
    """A picture of one kind.

    figure: matplotlib's, None where the dump has nothing to draw, which the caption says.  path: where it was written.
    """

    kind: str
    figure: Any
    caption: str
    path: Path | None = None

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
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    watch: "Watch | None" = None,
) -> tuple[Picture, ...]:
    """Draw a dump, or a report of `analyze(..., pictures=True)`: one picture of each kind.

    output: a .png, .svg or .pdf, a directory for KIND.png, or kind -> file; None writes nothing.  The rest as of
    `analyze`.
    """
    wanted = _kinds(names("kinds", kinds))
    inputs = () if isinstance(source, Report) else paths(source)
    targets = _targets(output, wanted, inputs)
    report = saved(source)
    reading = request(
        inputs or "",
        group_by=group_by,
        format=format,
        columns=columns,
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows,
    )
    if report is not None:
        refuse_beside_report(reading, plan, mode=mode)
        refuse_undrawable(report, inputs[0] if inputs else "The report")
        reports = dict.fromkeys(wanted, report)
    else:
        chosen = choose_plan(plan, mode=mode)
        reports = _measured(wanted, reading, chosen, computing(device, threads, batch_tokens), watch)
    return tuple(_drawn(kind, reports[kind], targets.get(kind)) for kind in wanted)


@speaks_of_arguments
def to_html(report: Report) -> str:
    """The report as one page that needs nothing else; with pictures, if it was measured with `pictures=True`."""
    from rlcorr_cli.present.forms import page

    return page.text(_a_report(report))


@speaks_of_arguments
def save(report: Report, path: str | Path) -> Path:
    """Write a report as .json, .html, .md, .csv or .tb (TensorBoard), whole or not at all; returns the path."""
    from rlcorr_cli.present.forms import write

    columns = len(_a_report(report).groups[0].key) if report.groups else 0
    refuse_form(Path(path), [source.path for source in report.inputs], n_group_columns=columns)
    write(report, Path(path))
    return Path(path)


def refuse_form(path: Path, inputs: Sequence[str], *, n_group_columns: int) -> None:
    """Refuse a file that no report can be written to; before a scan, rather than after it."""
    suffix = path.suffix.lower()
    if suffix not in FORMS:
        raise UsageError(f"{path}: a report is written as {', '.join(FORMS)}.", "Name it report.html or the like.")
    check_target(path, inputs, directory=suffix == ".tb")
    if suffix == ".tb":
        if n_group_columns != 1:
            raise UsageError("TensorBoard needs groups by one column of steps.", "Add --group-by step.")
        if find_spec("tensorboardX") is None:
            raise UsageError(f"{path}: tensorboardX is not installed.", "pip install 'rlcorr[tensorboard]'")


def _a_report(report: Any) -> Report:
    if not isinstance(report, Report):
        raise UsageError(f"report should be a Report, not {kind_of(report)}.", "Take what `analyze` returns.")
    return report


def _measured(
    kinds: Sequence[str], reading: ReadRequest, chosen: "ChosenPlan", computing: "Computing", watch: "Watch | None"
) -> dict[str, Report]:
    """Each kind's report.  Staleness looks at steps and versions at once, everything else at steps alone; the dump is
    read twice only where these groupings differ."""
    from rlcorr_cli.pipeline import analyze as analysis

    dump = analysis.opened(reading, chosen)

    def measured(groups: tuple[str, ...]) -> Report:
        # Without a seed there are no intervals, which no picture shows.
        return analysis.analyze_dump(
            dump.grouped_by(groups), chosen, computing=computing, seed=None, watch=watch, pictures=True
        )

    groups = {kind: analysis.step_groups(dump, versions=kind == "staleness") for kind in kinds}
    by_groups = {grouping: measured(grouping) for grouping in dict.fromkeys(groups.values())}
    return {kind: by_groups[groups[kind]] for kind in kinds}


def _kinds(wanted: Sequence[str]) -> tuple[str, ...]:
    """The kinds asked for, each once; an overview if none."""
    from rlcorr_cli.present.figures import KINDS

    for name in wanted:
        if name not in KINDS:
            raise UsageError(f"There is no kind of picture '{name}'.", f"Kinds: {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(wanted)) or ("overview",)


def _targets(output: Any, kinds: Sequence[str], inputs: Sequence[str]) -> Mapping[str, Path]:
    """Kind -> file, none of which is part of the dump."""
    if output is None:
        return {}
    if not isinstance(output, str | Path | Mapping):
        raise UsageError(f"output should be a path, not {kind_of(output)}.", "Name a .png, or a directory.")
    targets = output if isinstance(output, Mapping) else _named(Path(output), kinds)
    for path in targets.values():
        if os.path.exists(path.parent):  # unlike Path.exists, False of a name that is too long
            check_target(path, inputs)
    return targets


def _named(path: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """A name without a suffix is a directory for KIND.png."""
    suffix = path.suffix.lower().removeprefix(".")
    if not suffix or os.path.isdir(path):
        if os.path.exists(path) and not os.path.isdir(path):
            raise OutputError(f"{path} is no directory.", "Name a picture .png, .svg or .pdf, or another directory.")
        return {kind: path / f"{kind}.png" for kind in kinds}
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: a picture is a .png, .svg or .pdf.", f"Nearest: {nearest(suffix, SUFFIXES, 1)}.")
    if len(kinds) > 1:
        raise UsageError(f"{path} can hold one picture, not {len(kinds)}.", "Name a directory with -o.")
    if not os.path.isdir(path.parent):
        raise OutputError(f"{path}: there is no directory {path.parent}.", "Make it first.")
    return {kinds[0]: path}


def _drawn(kind: str, report: Report, path: Path | None) -> Picture:
    """The picture, written to its file if it has one."""
    from rlcorr_cli.present.figures import draw

    drawn = draw(kind, report)
    if drawn.figure is None or path is None:
        return Picture(kind, drawn.figure, drawn.caption)
    make_directory(path.parent)
    replace_file(path, drawn.write(path.suffix.lower().removeprefix(".")))
    return Picture(kind, drawn.figure, drawn.caption, path)
