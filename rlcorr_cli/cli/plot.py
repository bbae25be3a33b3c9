"""`rlcorr plot`: pictures of a dump, or of a saved report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions

if TYPE_CHECKING:
    from rlcorr_cli.report.report import Report

SUFFIXES = ("png", "svg", "pdf")


def plot(
    dumps: o.DumpsOrReport,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    output: o.Picture = None,
    kind: o.KindName = None,
    group_by: o.GroupBy = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Draw a dump, or a saved report: one page, or pictures by kind."""
    from rlcorr_cli.cli import shared
    from rlcorr_cli.report.saved import is_report, read_drawable

    kinds = _kinds(kind or [])
    targets = _targets(output, kinds, dumps)
    if is_report(dumps):
        shared.refuse_saved_report_options(read, plan, group_by)
        reports = dict.fromkeys(kinds, read_drawable(dumps[0]))
    else:
        from rlcorr_cli.pipeline import analyze as analysis

        chosen, computing = plan.chosen(), compute.computing()
        dump = analysis.opened(read.request(dumps, group_by), chosen)

        def measured(groups: tuple[str, ...]) -> "Report":
            watch = shared.watch(quiet)
            # Without a seed there are no intervals, which no picture shows.
            return analysis.analyze_dump(
                dump.grouped_by(groups), chosen, computing=computing, seed=None, watch=watch, pictures=True
            )

        # Staleness looks at steps and versions at once, everything else at steps alone; the dump is read twice only
        # where these groupings differ.
        groups = {kind: analysis.step_groups(dump, versions=kind == "staleness") for kind in kinds}
        by_groups = {names: measured(names) for names in dict.fromkeys(groups.values())}
        reports = {kind: by_groups[groups[kind]] for kind in kinds}
    _write(reports, targets, as_json=json)


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds asked for; an overview if none."""
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.present.figures import KINDS

    for name in names:
        if name not in KINDS:
            raise UsageError(f"There is no kind of picture '{name}'.", f"Kinds: {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(names)) or ("overview",)


def _targets(output: str | None, kinds: Sequence[str], dumps: Sequence[str]) -> dict[str, Path]:
    """Kind -> file.  A name without a suffix is a directory for KIND.png; without a name, DUMP.KIND.png right here."""
    import os

    from rlcorr_cli.atomic import check_target

    if output is None:
        name = Path(dumps[0]).name
        is_pattern = bool(set("*?[-") & set(dumps[0][:1] + name))
        stem = "" if is_pattern else name.split(".")[0]
        paths = {kind: Path(f"{stem or 'dump'}.{kind}.png") for kind in kinds}
    else:
        paths = _named(Path(output), kinds)
    for path in paths.values():
        if os.path.exists(path.parent):  # unlike Path.exists, False of a name that is too long
            check_target(path, dumps)
    return paths


def _named(path: Path, kinds: Sequence[str]) -> dict[str, Path]:
    import os

    from rlcorr_cli.errors import OutputError, UsageError, nearest

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


def _write(reports: "Mapping[str, Report]", targets: Mapping[str, Path], as_json: bool) -> None:
    """Each kind's picture of its report to its file; its caption, or why there is none, to stdout."""
    import json

    from rlcorr_cli.atomic import make_directory, replace_file
    from rlcorr_cli.errors import DataError
    from rlcorr_cli.present.figures import draw
    from rlcorr_cli.present.stdout import emit

    pictures: list[dict[str, Any]] = []
    for kind, path in targets.items():
        drawn = draw(kind, reports[kind])
        if drawn.figure is not None:
            make_directory(path.parent)
            replace_file(path, drawn.write(path.suffix.lower().removeprefix(".")))
        pictures.append({"kind": kind, "path": str(path) if drawn.figure else None, "caption": drawn.caption})
    if as_json:
        emit(json.dumps(pictures, indent=2) + "\n")
    else:
        lines = (f"{one['path'] or one['kind'] + ': no picture'}\n    {one['caption']}\n" for one in pictures)
        emit("".join(lines))
    if all(one["path"] is None for one in pictures):
        reason = pictures[0]["caption"]
        raise DataError(f"There is nothing to draw: {reason}", "See `rlcorr plot --help` for other kinds.")
