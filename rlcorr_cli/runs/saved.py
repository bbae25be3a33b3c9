"""added(): saved totals of several runs of one command, as one run over all their rows would have them.

Parts are added in the order of their files' names, whatever order they are named in, so that the sums are the same to
the last bit.  Each is read twice: its head first, by which totals of another command and parts that hold the same rows
are found, then its totals, one at a time, so that memory is flat.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TypeVar

import numpy as np

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import filesystem
from rlcorr_cli.results.saved_runs import RunTotals, SavedRun
from rlcorr_cli.results.saved_totals import AGAIN, Head, grouped_totals, read_head, read_saved
from rlcorr_cli.runs.reading import Watch
from rlcorr_cli.totals.provenance import refuse_differing
from rlcorr_cli.totals.row_keys import Keys, KeySample, shared_fraction

SAME_ROWS = 0.1
"""The share of the smaller part's rows that the other may hold, too: some texts are short, and sampled twice."""
S = TypeVar("S", bound=SavedRun)


def added(
    paths: Sequence[str],
    kind: type[S],
    *,
    group_by: Sequence[str] = (),
    allow_overlap: bool = False,
    watch: Watch | None = None,
) -> tuple[str, S]:
    """The sum of all parts, and the file that comes first.

    kind: which command's.  group_by: some of the columns that they are grouped by; none for all of these.
    allow_overlap: whether two parts may hold the same rows.  watch: of the bytes that are read.
    """
    places: set[str] = set()
    for path in paths:
        place = filesystem(path).identity(path)
        if place in places:
            raise UsageError(f"{path} is named twice.", "Name each file once.")
        places.add(place)
    heads = {path: read_head(path, kind) for path in paths}
    if not allow_overlap:
        _refuse_overlap({path: head.contents for path, head in heads.items() if head.contents is not None}, kind)
    ordered = sorted(paths, key=lambda path: _order(path, heads[path]))
    sizes = {path: filesystem(path).status(path).n_bytes for path in ordered}
    latest = [ordered[0]]

    def parts() -> Iterator[S]:
        """Each part's totals; a UsageError of one that does not add to the first."""
        first: S | None = None
        for path in ordered:
            latest[0] = path
            run = read_saved(path, kind)
            if group_by:
                run = _asked_by(path, run, group_by)
            first = first or run
            _check_adds(ordered[0], first, path, run)
            if run.n_budgets and len(paths) > 1:
                what = f"{path}: the bound of a budget depends on all rows, so parts cannot be added."
                raise UsageError(what, "Measure the whole dump in one run.")
            yield run
            if progress is not None:
                progress(0, sizes[path])

    with watch(sum(sizes.values())) if watch else nullcontext() as progress:
        try:
            return ordered[0], kind.added(parts())
        except ValueError:
            both = f"{ordered[0]} and {latest[0]} hold other totals: they are of two releases."
            raise UsageError(both, AGAIN) from None


def _asked_by(path: str, run: S, columns: Sequence[str]) -> S:
    """The totals by some of their columns; a step that was added to these stays."""
    provenance = run.provenance
    if not provenance.adds_step or provenance.groups[-1] in columns:
        return grouped_totals(path, run, columns)
    return grouped_totals(path, run, (*columns, provenance.groups[-1]))


def _order(path: str, head: Head) -> tuple[object, ...]:
    """By what a part is of, not by what it is called."""
    contents = head.contents
    return head.paths, (contents.n_rows, contents.key_sum) if contents else (0, 0), path


def _check_adds(first_path: str, first: SavedRun, path: str, run: SavedRun) -> None:
    # Paths may be long, and are named once, whatever the number of differences.
    which, sides = f"{first_path} and {path}", ("the first", "the second")
    differences = first.provenance.differences(run.provenance, sides)
    if isinstance(first, RunTotals) and isinstance(run, RunTotals):
        if first.profile != run.profile:
            what = f"profile is {first.profile} in {sides[0]} and {run.profile} in {sides[1]}"
            raise UsageError(f"{which} cannot be added: {what}.", "Measure both under one profile.")
        if first.plan.id != run.plan.id and first.plan.name != run.plan.name:
            differences.insert(0, f"the plan is {first.plan.name} in {sides[0]} and {run.plan.name} in {sides[1]}")
    refuse_differing(differences, which)


def _refuse_overlap(contents: Mapping[str, KeySample], kind: type[SavedRun]) -> None:
    """A DataError for two parts that hold the same rows."""
    paths = list(contents)
    for a, b in sorted(_sharing([contents[path].keys for path in paths])):
        share = shared_fraction(contents[paths[a]], contents[paths[b]])
        if share > SAME_ROWS:
            # One dump measured in two ways is no overlap to be allowed: what does not add is said first.
            _check_adds(paths[a], read_saved(paths[a], kind), paths[b], read_saved(paths[b], kind))
            raise DataError(
                f"{_overlap(paths[a], paths[b], contents, share)}: they would count twice.",
                "Leave one of them out, or add ⟦allow_overlap True⟧.",
            )


def _overlap(a: str, b: str, contents: Mapping[str, KeySample], share: float) -> str:
    """Which rows two parts share, of which the share is the smaller one's."""
    smaller, larger = sorted((a, b), key=lambda path: contents[path].n_rows)
    if share < 1:
        return f"{a} and {b} share some {100 * share:.0f}% of the rows of {smaller}"
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
