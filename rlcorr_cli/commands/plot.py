"""`rlcorr plot`: pictures of a dump, or of a saved report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.commands import options as o
from rlcorr_cli.commands.option_groups import ComputingOptions, PlanOptions, ReadingOptions

if TYPE_CHECKING:
    from rlcorr_cli.commands.drawing import Picture


def plot(
    dumps: o.DumpsOrReport,
    *,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    output: o.Picture = None,
    kind: o.KindName = None,
    group_by: o.GroupBy = None,
    by_step: o.ByStep = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Draw a dump, or a saved report: one page, or pictures by kind."""
    from rlcorr_cli.commands import drawing as api
    from rlcorr_cli.commands import shared

    kinds = tuple(dict.fromkeys(kind or ())) or ("overview",)
    pictures = api.plot(
        dumps,
        _beside(dumps[0], kinds) if output is None else output,
        plan.chosen(),
        kinds=kinds,
        group_by=group_by or (),
        by_step=by_step,
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    _show(pictures, as_json=json)


def _beside(dump: str, kinds: Sequence[str]) -> dict[str, Path]:
    """Where pictures go without a name: to DUMP.KIND.png right here."""
    name = Path(dump).name
    is_pattern = bool(set("*?[-") & set(dump[:1] + name))
    stem = "" if is_pattern else name.split(".")[0]
    return {kind: Path(f"{stem or 'dump'}.{kind}.png") for kind in kinds}


def _show(pictures: "Sequence[Picture]", as_json: bool) -> None:
    """Each picture's file and caption, or why there is none, on stdout."""
    from rlcorr_cli.errors import DataError
    from rlcorr_cli.show.stdout import clean, disarmed, emit, emit_json, write_stderr

    for note in pictures[0].notes:
        write_stderr(disarmed(clean(note)) + "\n")
    if as_json:
        emit_json([picture.to_dict() for picture in pictures])
    else:
        emit("".join(f"{clean(p.path or p.kind + ': no picture')}\n{_wrapped(p.caption)}\n" for p in pictures))
    if all(picture.path is None for picture in pictures):
        reason = pictures[0].caption
        raise DataError(f"There is nothing to draw: {reason}", "See `rlcorr plot --help` for other kinds.")


def _wrapped(caption: str) -> str:
    """A caption in lines that are indented below its file's name."""
    import shutil
    import textwrap

    from rlcorr_cli.show.stdout import clean

    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    indent = "    "
    joined = clean(caption).replace(" %", "\N{NO-BREAK SPACE}%")  # no percent sign is parted from its number
    lines = textwrap.fill(joined, width, initial_indent=indent, subsequent_indent=indent)
    return lines.replace("\N{NO-BREAK SPACE}%", " %")
