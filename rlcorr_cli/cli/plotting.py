"""What `plot` does around the drawing: which kinds, into which files, from which report."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcorr_cli.atomic import check_target, make_directory, replace_file
from rlcorr_cli.errors import DataError, OutputError, UsageError, nearest
from rlcorr_cli.present.figures import KINDS, draw
from rlcorr_cli.present.stdout import emit
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.saved import AGAIN, load

SUFFIXES = ("png", "svg", "pdf")


def kinds(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds asked for; an overview if none."""
    for name in names:
        if name not in KINDS:
            raise UsageError(f"There is no kind of picture '{name}'.", f"Kinds: {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(names)) or ("overview",)


def targets(output: str | None, wanted: Sequence[str], dumps: Sequence[str]) -> dict[str, Path]:
    """Kind -> file.  A name without a suffix is a directory for KIND.png; none at all stands beside one's work."""
    if output is None:
        stem = Path(dumps[0]).name.split(".")[0] if not set("*?[-") & set(dumps[0][:1] + Path(dumps[0]).name) else ""
        found = {kind: Path(f"{stem or 'dump'}.{kind}.png") for kind in wanted}
    else:
        found = _named(Path(output), wanted)
    for path in found.values():
        if os.path.exists(path.parent):
            check_target(path, dumps)
    return found


def _named(path: Path, wanted: Sequence[str]) -> dict[str, Path]:
    suffix = path.suffix.lower().removeprefix(".")
    if not suffix or os.path.isdir(path):
        if os.path.exists(path) and not os.path.isdir(path):
            raise OutputError(f"{path} is no directory.", "Name a picture .png, .svg or .pdf, or another directory.")
        return {kind: path / f"{kind}.png" for kind in wanted}
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: a picture is a .png, .svg or .pdf.", f"Nearest: {nearest(suffix, SUFFIXES, 1)}.")
    if len(wanted) > 1:
        raise UsageError(f"{path} can hold one picture, not {len(wanted)}.", "Name a directory with -o.")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: there is no directory {path.parent}.", "Make it first.")
    return {wanted[0]: path}


def saved(path: str) -> Report:
    """The report in a file that `analyze -o` wrote."""
    data = load(path)
    if "pictures" not in data:
        raise DataError(f"{path} holds no counts to draw pictures from.", AGAIN)
    try:
        return Report.from_dict(data)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{path} is not a whole report: {type(error).__name__} {error}.", AGAIN) from None


def write(reports: Mapping[str, Report], wanted: Mapping[str, Path], as_json: bool) -> None:
    """Each kind's picture of its report to its file; its caption, or why there is none, to stdout."""
    told: list[dict[str, Any]] = []
    for kind, path in wanted.items():
        drawn = draw(kind, reports[kind])
        if drawn.figure is not None:
            make_directory(path.parent)
            replace_file(path, drawn.write(path.suffix.lower().removeprefix(".")))
        told.append({"kind": kind, "path": str(path) if drawn.figure else None, "caption": drawn.caption})
    if as_json:
        emit(json.dumps(told, indent=2) + "\n")
    else:
        emit("".join(f"{one['path'] or one['kind'] + ': no picture'}\n    {one['caption']}\n" for one in told))
    if all(one["path"] is None for one in told):
        raise DataError(f"There is nothing to draw: {told[0]['caption']}", "See `rlcorr plot --help` for other kinds.")
