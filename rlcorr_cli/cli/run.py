"""What commands that read a dump do with it: open, measure with progress, report, write."""

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rlcorr_cli.batch import Input
from rlcorr_cli.cli.plans import Chosen
from rlcorr_cli.core.observe import Observation
from rlcorr_cli.errors import OutputError, UsageError
from rlcorr_cli.io.dump import Dump, Request, open_dump
from rlcorr_cli.pipeline import Computing, Measured, measure
from rlcorr_cli.report import Grouping, Report, build
from rlcorr_cli.summary import Layout
from rlcorr_cli.thresholds import Thresholds

NO_COLUMN = "none"


@dataclass(frozen=True)
class Reading:
    """Which dump, and how it is read."""

    paths: tuple[str, ...]
    format: str
    columns: dict[str, str]
    group_by: tuple[str, ...]
    batch_by: str | None


def mapping(pairs: Sequence[str]) -> dict[str, str]:
    """['canonical=column', ...] -> dict."""
    columns: dict[str, str] = {}
    for pair in pairs:
        canonical, equals, column = pair.partition("=")
        if not equals or not canonical or not column:
            raise UsageError(
                f"Cannot read --map {pair}.", "Write --map CANONICAL=COLUMN, e.g. old_log_probs=log_probs."
            )
        if canonical in columns:
            raise UsageError(f"--map names {canonical} twice.", "Map each canonical name once.")
        columns[canonical] = column
    return columns


def computing(device: str, threads: int | None, batch_tokens: int | None) -> Computing:
    """Defaults: a thread for each core this process may use."""
    return Computing(device, threads or len(os.sched_getaffinity(0)), batch_tokens)


def outputs(paths: Sequence[str]) -> tuple[Path, ...]:
    """Report files, checked before the long scan rather than after it."""
    for path in map(Path, paths):
        if path.suffix.lower() != ".json":
            raise UsageError(f"{path}: a report is written as .json.", "Name it report.json.")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no directory {path.parent}.", "Make it first.")
    return tuple(map(Path, paths))


def report(
    reading: Reading, chosen: Chosen, thresholds: Thresholds, where: Computing, seed: int, show_progress: bool
) -> Report:
    """Measure a dump and build its report."""
    started = time.perf_counter()
    batch, lead = _batch_key(reading, chosen)
    keys = (*batch, *reading.group_by)
    dump = open_dump(reading.paths, Request(reading.format, reading.columns, chosen.plan.mode, keys, lead))
    grouped = len(dump.roles.keys) > len(reading.group_by)
    observation = Observation(chosen.plan, thresholds, dump.roles.current is not None, seed)
    measured, layout = _measure(dump, observation, where, show_progress)
    notes = (*dump.notes, *chosen.notes, *_batch_notes(chosen, dump, measured, grouped))
    found = build(
        measured.leaves,
        layout,
        measured.replicates,
        Grouping(grouped, reading.group_by),
        chosen.plan,
        chosen.profile,
        _inputs(dump, measured),
        notes,
    )
    return replace(found, seconds=time.perf_counter() - started)


def write(report: Report, paths: Sequence[Path], as_json: bool) -> None:
    """The report to its files, then to stdout."""
    document = json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    for path in paths:
        _replace(path, document)
    if as_json:
        from rlcorr_cli.present.sink import emit

        emit(document)
    else:
        from rlcorr_cli.present.text import print_report

        print_report(report)


def _batch_key(reading: Reading, chosen: Chosen) -> tuple[tuple[str, ...], str | None]:
    """The batch column to read before the groups': the one asked for, or `step` where there is one.

    A peer's function knows no steps, so with a profile the whole dump is one batch unless a column is named.
    """
    weighting = chosen.plan.weighting
    if weighting is None or weighting.normalize != "batch" or reading.batch_by == NO_COLUMN:
        return (), None
    if reading.batch_by is not None:
        return (reading.batch_by,), None
    return (), None if chosen.profile else "step"


def _batch_notes(chosen: Chosen, dump: Dump, measured: Measured, grouped: bool) -> list[str]:
    weighting = chosen.plan.weighting
    if weighting is None or weighting.normalize != "batch":
        return []
    if grouped:
        batches = len({key[0] for key in measured.leaves})
        found = "one value" if batches == 1 else f"{batches:,} values"
        return [f"Weights are divided by the mean of their own batch: {found} of {dump.roles.keys[0]}."]
    return ["Weights are divided by the mean over the whole dump, as one batch; --batch-by COLUMN makes batches."]


def _measure(dump: Dump, observation: Observation, where: Computing, show_progress: bool) -> tuple[Measured, Layout]:
    bar = None
    if show_progress and sys.stderr.isatty():
        from rlcorr_cli.present.progress import Bar

        bar = Bar(sum(shard.n_bytes for shard in dump.shards))
    with bar or nullcontext():
        return measure(dump, observation, where, bar.advance if bar else None)


def _inputs(dump: Dump, measured: Measured) -> list[Input]:
    return [
        Input(source.path, source.format, measured.rows.get(source.path, 0), source.n_bytes, dump.columns)
        for source in dump.sources
    ]


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name another place with -o.") from None
