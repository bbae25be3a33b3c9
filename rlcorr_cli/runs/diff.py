"""diff(): a dump, or its saved totals, compared with one or more others; none is joined with another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcorr_cli.errors import DataError, NoCurrentPolicy, NoTrainedColumn, NoTrainedPolicy, UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import STDIN
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.names import NO_CLUSTERS, PROMPT_IDS, ROLLOUTS
from rlcorr_cli.reading.request import IDS, PlanColumns, ReadRequest
from rlcorr_cli.results.build import report_of
from rlcorr_cli.results.diffed import BootstrapMetrics, Diff, DiffSide, Pairs, pairs_of, sections, shared_clusters
from rlcorr_cli.results.groups import COUNTED
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved import is_report
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.results.saved_totals import SUFFIX, grouped_totals, holds_totals, read_totals, report_in
from rlcorr_cli.runs.analyze import analysis_totals, opened
from rlcorr_cli.runs.bits import ComparedRows, compared_rows
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import OpenDump, Watch
from rlcorr_cli.totals.totals import MOST_RESAMPLED


@frozen(kw_only=True)
class DiffSettings:
    """seed: of the draws.  min_effect: the smallest change that counts, a share.  everything: whether metrics beyond
    the family are shown."""

    seed: int = 0
    min_effect: float = 0.1
    everything: bool = False


def diff(
    requests: Sequence[ReadRequest],
    settings: DiffSettings,
    *,
    computing: Computing,
    mode: Mode | None = None,
    watch: Watch | None = None,
) -> Diff:
    """Compare the first dump with each of the others; any of them may be a file of saved totals.

    mode: which policies are compared; None for that of saved totals, else for the decoupled one.
    """
    saved = [
        read_totals(request.paths[0]) if is_report(request.paths) and holds_totals(request.paths[0]) else None
        for request in requests
    ]
    modes: list[Mode] = [mode] if mode else [run.plan.mode for run in saved if run]
    chosen = ChosenPlan(plan=Plan("disabled", mode=modes[0]) if modes else Plan("disabled"))
    for request, run in zip(requests, saved, strict=True):
        if run is not None:
            _check_asked(request, run, chosen, settings)
    saved = [run and _grouped(request, run) for request, run in zip(requests, saved, strict=True)]
    totals = next((request.paths[0] for request, run in zip(requests, saved, strict=True) if run), None)
    try:
        opening = [
            None if run else _opened(request, chosen, totals) for request, run in zip(requests, saved, strict=True)
        ]
    except (NoTrainedColumn, NoTrainedPolicy):
        if totals is not None or any(STDIN in request.paths for request in requests):
            raise
        return _by_rows(requests, settings, computing=computing, watch=watch)
    drawn_by = _drawn_by(opening, saved)
    # Every row is drawn by itself where ids tell rows of all, and no column tells clusters of any: ids pair a row with
    # its rescored self, as its rollout log-probs do not, where it was the rollout that was rescored.
    loose = all(dump is None or dump.cluster == ROLLOUTS for dump in opening)
    alone = bool(drawn_by) and loose and all(run is None or _cluster_of(run) == NO_CLUSTERS for run in saved)
    reports: list[Report] = []
    for request, run, dump in zip(requests, saved, opening, strict=True):
        if run is not None:
            reports.append(report_in(request.paths[0], run))
        elif dump is not None:
            cluster_by = NO_CLUSTERS if alone else dump.request.cluster_by
            run = analysis_totals(
                OpenDump(
                    dump=dump.with_request(cluster_by=cluster_by, drawn_by=drawn_by),
                    computing=computing,
                    watch=watch,
                    saved=True,
                ),
                chosen,
                seed=settings.seed,
                refuse_many_groups=bool(dump.request.group_by),
            )
            reports.append(replace(report_of(run), totals=run))
    of_rows = [None if dump is None or dump.is_piped else dump for dump in opening]
    found: list[ComparedRows | None] = []
    for report, dump in zip(reports[1:], of_rows[1:], strict=True):
        found.append(None)
        pairs = _pairs(reports[0], report)
        if of_rows[0] is not None and dump is not None and (pairs is None or pairs.both):
            dumps = [_with_all_policies(each.request, drawn_by, chosen.plan.mode) for each in (of_rows[0], dump)]
            found[-1] = compared_rows(dumps, computing, watch)[0]
    return _compared(reports, found, settings)


def _with_all_policies(request: ReadRequest, drawn_by: tuple[str, ...], mode: Mode) -> Dump:
    """A dump with what is compared row by row, whichever policies it has."""
    columns = PlanColumns(mode=mode, compares=False, levels=True, wanted=(PROMPT_IDS,))
    return open_dump(request, columns).with_request(drawn_by=drawn_by)


def _by_rows(
    requests: Sequence[ReadRequest], settings: DiffSettings, *, computing: Computing, watch: Watch | None
) -> Diff:
    """The same of dumps of which one has but one policy, as an engine's answers have: row by row alone."""
    dumps = [_with_all_policies(request, IDS, "decoupled") for request in requests]
    drawn_by = _drawn_by(dumps, [None] * len(dumps))
    a, *others = [dump.with_request(drawn_by=drawn_by) for dump in dumps]
    compared: list[Diff] = []
    for place, b in enumerate(others, 1):
        found, readings = compared_rows((a, b), computing, watch)
        if not found.pairs.both:
            by = " and ".join(b.roles.drawn_by) or "their rollout log-probs"
            raise DataError(
                f"No row of {b.sources[0].path} is in {a.sources[0].path}: rows are matched by {by}.",
                "Name columns that match them: ⟦pair_by COLUMN⟧. Of engines' answers ⟦pair_by group_id,choice⟧ takes "
                "the places of requests in their files.",
            )
        sides: list[DiffSide] = []
        for reading, counts in zip(readings, found.counts.tolist(), strict=True):
            reading.check()
            named = zip((*COUNTED, "bad_rows"), (*counts, reading.n_bad_rows), strict=True)
            sides.append(DiffSide(inputs=reading.inputs, counts=dict(named)))
        notes = dict.fromkeys((*(a.notes if place == 1 else ()), *b.notes))
        of_two = Diff(
            a=sides[0],
            b=sides[1],
            name=letter(place),
            pairs=replace(found.pairs, by=drawn_by),
            bits=found.bits,
            min_effect=settings.min_effect,
            notes=tuple(notes),
        )
        compared.append(of_two)
    return replace(compared[0], others=tuple(compared[1:]))


def _opened(request: ReadRequest, chosen: ChosenPlan, totals: str | None) -> Dump:
    """totals: the saved ones on the other side, whose mode a dump is to be read in."""
    try:
        return opened(request, chosen, clusters=True)
    except NoCurrentPolicy as error:
        if totals is None:
            raise
        raise UsageError(
            f"{totals} is of bypass mode, and {request.paths[0]} has no current_log_probs to compare that way.",
            "Save totals of decoupled mode, or name the column of the dump: ⟦map current_log_probs=COLUMN⟧.",
        ) from error


def _check_asked(request: ReadRequest, run: RunTotals, chosen: ChosenPlan, settings: DiffSettings) -> None:
    """Refuse totals of another mode or seed than is asked for."""
    path = request.paths[0]
    if run.plan.mode != chosen.plan.mode:
        raise UsageError(
            f"{path} is of {run.plan.mode} mode, and {chosen.plan.mode} mode is compared.",
            f"Compare dumps of one mode: ⟦mode {run.plan.mode}⟧ measures a dump that way.",
        )
    if run.provenance.seed != settings.seed:
        raise UsageError(
            f"{path} was drawn with seed {run.provenance.seed}, not {settings.seed}: its rows would not match.",
            f"Add ⟦seed {run.provenance.seed}⟧.",
        )


def _grouped(request: ReadRequest, run: RunTotals) -> RunTotals:
    """The totals by the columns asked for; a UsageError where they lack one, or the draws of the groups."""
    path = request.paths[0]
    run = grouped_totals(path, run, request.group_by)
    if request.group_by and not run.measured.group_replicates:
        too_many = run.measured.group_replicates is None
        why = f"it has over {MOST_RESAMPLED} groups" if too_many else "another release of rlcorr saved it"
        raise UsageError(
            f"{path} holds no draws by group: {why}.",
            f"Save totals by fewer: `⟦analyze(DUMP)⟧ ⟦group_by {request.group_by[0]}⟧ ⟦output part{SUFFIX}⟧`.",
        )
    return run


def _drawn_by(dumps: Sequence[Dump | None], saved: Sequence[RunTotals | None]) -> tuple[str, ...]:
    """What all know their rows by: sample_id, and step where all have it; nothing where one has no ids."""
    known = [set(dump.marks) if dump is not None and dump.roles.ids else set[str]() for dump in dumps]
    known = [set(run.drawn_by) if run is not None else names for run, names in zip(saved, known, strict=True)]
    shared = set[str].intersection(*known)
    return tuple(name for name in IDS if name in shared) if "sample_id" in shared else ()


def _cluster_of(run: RunTotals) -> str:
    return str(run.provenance.settings["cluster_by"])


def _compared(reports: Sequence[Report], found: Sequence[ComparedRows | None], settings: DiffSettings) -> Diff:
    """The first report's dump compared with each of the others'.  found: of the rows of each of these."""
    a, others = reports[0], {letter(place): report for place, report in enumerate(reports) if place}
    assert a.totals is not None
    drawn, of_groups = _drawn(a), []
    for name, b in others.items():
        assert b.totals is not None
        _check_alike(a.totals, b.totals)
        of_groups.append(_groups(a, b, name))
    of_dumps = sections(
        [[({}, drawn, _drawn(b)), *shared] for b, (shared, _) in zip(others.values(), of_groups, strict=True)],
        min_effect=settings.min_effect,
        everything=settings.everything,
    )
    compared: list[Diff] = []
    for (name, b), rows, changes, (_, notes) in zip(others.items(), found, of_dumps, of_groups, strict=True):
        assert b.totals is not None
        pairs = _pairs(a, b)
        if rows is not None:
            pairs = replace(rows.pairs, by=a.totals.drawn_by, clusters=None if pairs is None else pairs.clusters)
        compared.append(
            Diff(
                a=DiffSide.of(replace(a, totals=None)),
                b=DiffSide.of(replace(b, totals=None)),
                name=name,
                pairs=pairs,
                bits=None if rows is None else rows.bits,
                sections=changes,
                min_effect=settings.min_effect,
                notes=(*_unlike(a.totals, b.totals, name), *notes),
            )
        )
    first, *rest = compared
    few = _few({"A": a, **others})
    return replace(first, notes=(*first.notes, *few), others=tuple(rest))


def _pairs(of_a: Report, of_b: Report) -> Pairs | None:
    """Which rows two dumps share, and which clusters, where those are other than rows."""
    a, b = of_a.totals, of_b.totals
    assert a is not None
    assert b is not None
    pairs = pairs_of(a.measured.whole, b.measured.whole)
    by = _cluster_of(a)
    is_by_column = by == _cluster_of(b) and by not in (NO_CLUSTERS, ROLLOUTS)
    replicates = [run.measured.replicates.get(run.plan.mode) for run in (a, b)]
    return pairs and replace(pairs, by=a.drawn_by, clusters=shared_clusters(*replicates) if is_by_column else None)


def letter(place: int) -> str:
    """What the dump at a place, from 0, is called: A .. Z, AA, AB and so on."""
    above, last = divmod(place, 26)
    return (letter(above - 1) if above else "") + chr(ord("A") + last)


def _check_alike(a: RunTotals, b: RunTotals) -> None:
    """Refuse two whose metrics would not mean the same."""
    names = ("extreme_ratio", "clip_low", "clip_high")
    (here, there) = ({name: run.provenance.settings[name] for name in names} for run in (a, b))
    for name in names:
        if here[name] != there[name]:
            raise UsageError(
                f"{name} is {here[name]:g} in {a.inputs[0].path} and {there[name]:g} in {b.inputs[0].path}.",
                "Save both totals under one setting.",
            )


def _drawn(report: Report) -> BootstrapMetrics:
    assert report.totals is not None
    return BootstrapMetrics(report.whole.values, report.totals.measured.replicates.get(report.plan.mode))


def _groups(
    a: Report, b: Report, name: str
) -> tuple[list[tuple[Mapping[str, Any], BootstrapMetrics, BootstrapMetrics]], list[str]]:
    """The groups that both have, and a note on those of one alone.  name: what b is called."""
    of_a, of_b = _by_key(a), _by_key(b)
    if not of_a or not of_b:
        return [], []
    shared = [(of_a[key][0], of_a[key][1], of_b[key][1]) for key in of_a if key in of_b]
    alone = [
        f"{which} alone has {len(missing):,} of the groups, not compared."
        for which, missing in (("A", of_a.keys() - of_b.keys()), (name, of_b.keys() - of_a.keys()))
        if missing
    ]
    return shared, alone


def _by_key(report: Report) -> dict[tuple[Any, ...], tuple[Mapping[str, Any], BootstrapMetrics]]:
    assert report.totals is not None
    of_groups = report.totals.measured.group_replicates or {}
    return {
        key: (group.plain_key, BootstrapMetrics(group.values, of_groups[key].get(report.plan.mode)))
        for group in report.groups
        if (key := tuple(group.key.values())) in of_groups
    }


def _few(reports: Mapping[str, Report]) -> list[str]:
    """That the clusters of some dumps are few, each note once with the dumps that it is of.  reports: by letter."""
    names_of: dict[str, list[str]] = {}
    for name, report in reports.items():
        for note in () if report.clusters is None else report.clusters.notes:
            names_of.setdefault(note, []).append(name)
    return [
        f"{', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]}: {note}" for note, names in names_of.items()
    ]


def _unlike(a: RunTotals, b: RunTotals, name: str) -> list[str]:
    """What keeps the draws of the two from pairing.  name: what b is called."""
    notes: list[str] = []
    if a.drawn_by != b.drawn_by:
        words = (" and ".join(run.drawn_by) or "what rollout says of them" for run in (a, b))
        notes.append(
            f"Rows cannot be matched: they are identified by {next(words)} in A, and by {next(words)} in {name}."
        )
    by_a, by_b = _cluster_of(a), _cluster_of(b)
    if by_a != by_b:
        notes.append(
            f"Rows are resampled by {by_a} in A and by {by_b} in {name}, so noise that both share does not cancel."
        )
    return notes
