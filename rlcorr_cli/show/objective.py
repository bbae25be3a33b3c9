"""What an objective makes of a dump, as tables and sentences: its numbers, what mistakes make of it, its batches."""

from typing import Any

from rlcorr_cli.metrics.objective import MISTAKES
from rlcorr_cli.results.objective import ObjectiveBatch, ObjectiveReport
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.cells import Cell, Rows
from rlcorr_cli.show.numbers import NOTHING, number
from rlcorr_cli.show.stdout import clean

OF_BATCH = ("loss", "clip_fraction", "effective_sequences", "cos_to_none")
"""Numbers that stand beside each training batch."""
MOST_BATCHES = 24


def objective_tables(report: Report) -> tuple[Rows, ...]:
    """Every table of a report's objective; none without one."""
    made = report.objective
    if made is None:
        return ()
    numbers = tuple((Cell(name), _cell(value)) for name, value in made.metrics.items())
    tables = [Rows(headings=("objective", made.objective.name), rows=numbers), _mistakes(made)]
    tables += [_batches(made)] if len(made.batches) > 1 else []
    return (*tables, *([_groups(report, made)] if _has_groups(report, made) else []))


def objective_sentences(report: Report) -> list[str]:
    """Which objective it is, of which batches, and how to read its tables."""
    made = report.objective
    if made is None:
        return []
    sentences = settings_sentences(made)
    if made.mistakes:
        sentences.append(
            "size and cos hold a mistake's coefficients against the plan's: their length over its, and their "
            "direction, 1 where it is the same. `rlcorr help objectives` says what each mistake is."
        )
    if _has_groups(report, made):
        sentences.append("By group the numbers are those of its rows alone, as though they were the training batch.")
    if _has_groups(report, made) and len(report.groups) > MOST_BATCHES:
        sentences.append(f"The first and the last of {len(report.groups):,} groups are shown; --json has all.")
    if len(made.batches) > MOST_BATCHES:
        sentences.append(f"The first and the last of {len(made.batches):,} batches are shown; --json has all.")
    return sentences


def settings_sentences(made: ObjectiveReport) -> list[str]:
    """Which objective it is, of which batches, and whether anything can be clipped."""
    sentences = [f"{_settings(made)}; {_scope(made)}."]
    if not made.moved and made.objective.name != "reinforce":
        sentences.append(
            "Without current_log_probs every ratio is 1, as on a batch's first minibatch: nothing is clipped."
        )
    return sentences


def _settings(made: ObjectiveReport) -> str:
    """'ppo in decoupled mode, clip 0.2 down and 0.2 up, token-mean over kept tokens'."""
    objective = made.objective
    parts = [f"{objective.name} in {objective.mode} mode"]
    if objective.name != "reinforce":
        parts.append(f"clip {objective.clip_low:g} down and {objective.clip_high:g} up")
    if objective.dual_clip is not None:
        parts.append(f"dual clip {objective.dual_clip:g}")
    constant = "" if objective.loss_constant is None else f" of {objective.loss_constant:g}"
    parts.append(f"{objective.aggregation}{constant} over {objective.divisor}")
    return ", ".join(parts)


def _scope(made: ObjectiveReport) -> str:
    """Of how many batches the numbers are."""
    if made.batch_by is None:
        return "the whole dump as one batch, --batch-by COLUMN makes several"
    if len(made.batches) == 1:
        return f"one batch, by {clean(made.batch_by)}"
    return f"means over {len(made.batches):,} batches by {clean(made.batch_by)}"


def _mistakes(made: ObjectiveReport) -> Rows:
    """The plan's own loss first, then each mistake beside it."""
    labels = {mistake.name: mistake.label for mistake in MISTAKES}
    planned = (Cell("none, as planned"), _cell(made.metrics["loss"]), Cell("1", 1.0), Cell("1", 1.0))
    rows = tuple(
        (Cell(labels[name]), *(_cell(values[column]) for column in ("loss", "size", "cos")))
        for name, values in made.mistakes.items()
    )
    return Rows(headings=("mistake", "loss", "size", "cos"), rows=(planned, *rows))


def _batches(made: ObjectiveReport) -> Rows:
    """A row per training batch."""
    half = MOST_BATCHES // 2
    shown = made.batches if len(made.batches) <= MOST_BATCHES else made.batches[:half] + made.batches[-half:]
    return Rows(headings=(clean(made.batch_by or "batch"), *OF_BATCH), rows=tuple(map(_batch, shown)))


def _has_groups(report: Report, made: ObjectiveReport) -> bool:
    """Whether groups say more than the training batches do."""
    return any(group.objective for group in report.groups) and list(report.groups[0].key) != [made.batch_by]


def _groups(report: Report, made: ObjectiveReport) -> Rows:
    """A row per group, of many the first and the last."""
    half, groups = MOST_BATCHES // 2, report.groups
    shown = groups if len(groups) <= MOST_BATCHES else groups[:half] + groups[-half:]
    names = [f"objective/{made.objective.name}/{name}" for name in OF_BATCH]
    return Rows(
        headings=(*(clean(column) for column in groups[0].key), *OF_BATCH),
        rows=tuple(
            (*map(_key, group.key.values()), *(_cell(group.objective.get(name)) for name in names)) for group in shown
        ),
    )


def _key(key: Any) -> Cell:
    """A batch's or a group's value."""
    return Cell(clean(NOTHING if key is None else key), float(key) if isinstance(key, int | float) else None)


def _batch(batch: ObjectiveBatch) -> tuple[Cell, ...]:
    return _key(batch.batch), *(_cell(batch.metrics[name]) for name in OF_BATCH)


def _cell(value: float | None) -> Cell:
    return Cell(number(value), value)
