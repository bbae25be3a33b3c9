"""What a result is of, in words."""

import os
from collections.abc import Sequence

from rlcorr_cli import __version__
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.numbers import more, plural
from rlcorr_cli.show.stdout import clean, clean_cut

PICTURED = 40
"""Characters of the name of a dump, or of a plan, below a picture."""
FILES = 20
"""As many files stand in a list of what was read."""


def name_of_inputs(inputs: Sequence[Input], longest: int = 10**9) -> str:
    """The name of the only file, in at most so many characters; of several files of one folder 'run/ (12 files)', else
    'a.parquet and 2 more files'."""
    first, *others = (source.path for source in inputs)
    if not others:
        return "stdin" if first == "-" else clean_cut(os.path.basename(first) or first, longest)
    folder = os.path.basename(os.path.commonpath([os.path.dirname(first), *map(os.path.dirname, others)]))
    if "" in map(os.path.dirname, (first, *others)) or folder in ("", ".", ".."):
        return f"{clean_cut(os.path.basename(first), longest)} {more(len(others), 'file')}"
    return f"{clean_cut(folder, longest)}/ ({plural(len(inputs), 'file')})"


def last_change(inputs: Sequence[Input]) -> str:
    """When the newest of the files was changed: 'file last changed 2026-11-22 20:21 UTC'; empty where nobody knows."""
    moments = [source.modified for source in inputs if source.modified is not None]
    return f"file last changed {clean(max(moments).replace('T', ' ').removesuffix('Z'))} UTC" if moments else ""


def input_facts(inputs: Sequence[Input]) -> list[tuple[str, str]]:
    """A row for each of the first files, with the time of its last change."""
    rows = [("input", with_commas(clean(source.path), last_change([source]))) for source in inputs[:FILES]]
    return rows if len(inputs) <= FILES else [*rows, ("input", f"and {len(inputs) - FILES:,} more")]


def with_commas(*parts: str) -> str:
    """The parts that say something, with commas between them."""
    return ", ".join(filter(None, parts))


def picture_source(report: Report) -> str:
    """What a picture is of: the file, the plan, how much, the file's last change, and who drew it."""
    tokens, sequences = (plural(report.whole.counts[unit], unit[:-1]) for unit in ("tokens", "sequences"))
    parts = (
        name_of_inputs(report.inputs, PICTURED),
        f"plan {clean_cut(report.plan.name, PICTURED)}",
        f"{tokens}, {sequences}",
    )
    return " · ".join(filter(None, (*parts, last_change(report.inputs), f"rlcorr {__version__}")))
