"""merge(): saved totals of several runs, added to what one run over all their rows would have.

Parts are added in the order of their files' names, whatever order they are named in, so that the sums are the same to
the last bit.  Each is read twice: its head first, by which parts that hold the same rows are found, then its totals,
one at a time, so that memory is flat.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import filesystem
from rlcorr_cli.reading.bad_rows import BadRowCounts
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.run_totals import RunTotals, summed_anomalies
from rlcorr_cli.results.saved_totals import AGAIN, Head, grouped_totals, read_head, read_totals, report_in
from rlcorr_cli.runs.reading import Progress, Watch
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.provenance import refuse_differing
from rlcorr_cli.totals.row_keys import Keys, KeySample, shared_fraction

SAME_ROWS = 0.1
"""The share of the smaller part's rows that the other may hold, too: some texts are short, and sampled twice."""


def merge(
    paths: Sequence[str],
    *,
    group_by: Sequence[str] = (),
    allow_overlap: bool = False,
    watch: Watch | None = None,
) -> Report:
    """The report of all parts together.

    group_by: some of the columns that they are grouped by; none for all of these.  allow_overlap: whether two parts may
    hold the same rows.  watch: of the bytes that are read.
    """
    started = time.perf_counter()
    _refuse_twice(paths)
    heads = {path: read_head(path) for path in paths}
    if not allow_overlap:
        _refuse_overlap({path: head.contents for path, head in heads.items() if head.contents is not None})
    ordered = sorted(paths, key=lambda path: _order(path, heads[path]))
    sizes = {path: filesystem(path).status(path).n_bytes for path in ordered}
    with watch(sum(sizes.values())) if watch else nullcontext() as progress:
        run = _sum(sizes, group_by, progress)
    report = report_in(ordered[0], run)
    return replace(report, seconds=time.perf_counter() - started)


def _refuse_twice(paths: Sequence[str]) -> None:
    places: set[str] = set()
    for path in paths:
        place = filesystem(path).identity(path)
        if place in places:
            raise UsageError(f"{path} is named twice.", "Name each file once.")
        places.add(place)


def _order(path: str, head: Head) -> tuple[object, ...]:
    """By what a part is of, not by what it is called."""
    contents = head.contents
    return head.paths, (contents.n_rows, contents.key_sum) if contents else (0, 0), path


def _sum(sizes: Mapping[str, int], group_by: Sequence[str], progress: Progress | None) -> RunTotals:
    """sizes: in bytes, by path."""
    gathering = MeasuredSum()
    runs: list[RunTotals] = []
    for run, n_bytes in zip(_parts(list(sizes), group_by), sizes.values(), strict=True):
        gathering.add(run.measured)
        runs.append(replace(run, measured=Measured(provenance=run.provenance)))
        if progress is not None:
            progress(0, n_bytes)
    return replace(
        runs[0],
        measured=gathering.measured,
        inputs=tuple(sorted((source for run in runs for source in run.inputs), key=lambda source: source.path)),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        problems=sum((run.problems for run in runs), BadRowCounts()),
        anomalies=summed_anomalies(finding for run in runs for finding in run.anomalies),
        search_notes=tuple(dict.fromkeys(note for run in runs for note in run.search_notes)),
    )


def _parts(paths: Sequence[str], group_by: Sequence[str]) -> Iterator[RunTotals]:
    """Each part's totals; a UsageError of one that does not add to the first."""
    first: RunTotals | None = None
    names: tuple[Any, ...] = ()
    resampled: dict[str, Any] = {}
    for path in paths:
        run = read_totals(path)
        if group_by:
            run = grouped_totals(path, run, group_by)
        if first is None:
            first, names = replace(run, measured=Measured(provenance=run.provenance)), run.totals.names
        resampled = run.resampled | resampled
        _check_adds(paths[0], first, path, run)
        if run.totals.names != names or any(resampled[mode] != names for mode, names in run.resampled.items()):
            raise UsageError(f"{paths[0]} and {path} hold other totals: they are of two releases.", AGAIN)
        if run.plan.budgets and len(paths) > 1:
            what = f"{path}: the bound of {run.plan.budgets[0].name} is of all rows, so parts of them do not add."
            raise UsageError(what, "Measure the whole dump in one run.")
        yield run


def _check_adds(first_path: str, first: RunTotals, path: str, run: RunTotals) -> None:
    # Paths may be long, and are named once, whatever the number of differences.
    which, sides = f"{first_path} and {path}", ("the first", "the second")
    if first.profile != run.profile:
        what = f"profile is {first.profile} in {sides[0]} and {run.profile} in {sides[1]}"
        raise UsageError(f"{which} do not add: {what}.", "Measure both under one profile.")
    differences = first.provenance.differences(run.provenance, sides)
    if first.plan.id != run.plan.id and first.plan.name != run.plan.name:
        differences.insert(0, f"the plan is {first.plan.name} in {sides[0]} and {run.plan.name} in {sides[1]}")
    refuse_differing(differences, which)


def _refuse_overlap(contents: Mapping[str, KeySample]) -> None:
    """A DataError for two parts that hold the same rows."""
    paths = list(contents)
    for a, b in sorted(_sharing([contents[path].keys for path in paths])):
        share = shared_fraction(contents[paths[a]], contents[paths[b]])
        if share > SAME_ROWS:
            # One dump measured in two ways is no overlap to be allowed: what does not add is said first.
            _check_adds(paths[a], read_totals(paths[a]), paths[b], read_totals(paths[b]))
            raise DataError(
                f"{_overlap(paths[a], paths[b], contents, share)}: they would count twice.",
                "Leave one of them out, or add --allow-overlap.",
            )


def _overlap(a: str, b: str, contents: Mapping[str, KeySample], share: float) -> str:
    """Which rows two parts share, of which the share is the smaller one's."""
    smaller, larger = sorted((a, b), key=lambda path: contents[path].n_rows)
    if share < 1:
        return f"{a} and {b} share some {100 * share:.0f} % of the rows of {smaller}"
    if contents[a].n_rows == contents[b].n_rows:
        return f"{a} and {b} hold the same rows"
    return f"{larger} holds the rows of {smaller}, too"


def _sharing(keys: Sequence[Keys]) -> set[tuple[int, int]]:
    """Pairs of parts that share a key, the next part with it for each: three with the same rows are two pairs."""
    parts = np.repeat(np.arange(len(keys)), [len(of_part) for of_part in keys])
    every = np.concatenate([*keys, np.zeros(0, np.uint64)])
    order = np.argsort(every, kind="stable")
    again = np.flatnonzero(every[order][1:] == every[order][:-1])
    return set(zip(parts[order][again].tolist(), parts[order][again + 1].tolist(), strict=True))
