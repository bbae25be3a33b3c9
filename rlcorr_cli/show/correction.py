"""What a plan makes of a dump, as tables and sentences: who rejects what, the batch before and after, its weights.

And what an objective makes of it: its numbers, what mistakes make of them, its batches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import shown_at
from rlcorr_cli.plans.plan import Bounds, Weighting, acts_on
from rlcorr_cli.results.objective import MISTAKES, ObjectiveReport
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import Finding, worst_first
from rlcorr_cli.show.document import EMPTY, Cell, Column, Table, group_table, key_cell, number_cell, tabulated
from rlcorr_cli.show.numbers import NOTHING, number, share
from rlcorr_cli.show.stdout import clean

T = TypeVar("T")
OF_BATCH = ("loss", "clip_fraction", "effective_sequences", "cos_to_none")
"""Numbers of an objective that stand beside each training batch."""
MOST_BATCHES = 24


def worst_status(findings: Iterable[Finding]) -> dict[str, str]:
    """Metric -> the status of the worst rule that it breaks."""
    return {finding.metric: finding.status for finding in reversed(worst_first(findings))}


@frozen
class MarkedValues:
    """The numbers of the whole dump.  status_of: metric -> the status of the worst rule that it breaks."""

    values: Mapping[str, float | None]
    status_of: Mapping[str, str]

    def cell(self, name: str, show: Callable[[float | None], str] = number, status: str = "") -> Cell:
        """A metric's number, marked where a rule on it is broken, or with another's status."""
        return number_cell(self.values.get(name), show, self.status_of.get(name, status))


def marked_values(report: Report) -> MarkedValues:
    """What is marked in a report: what breaks a rule, and a value that cannot be, which fails, too."""
    impossible = {} if report.impossible is None else {report.impossible.metric: "fail"}
    return MarkedValues(report.whole.values, {**worst_status(report.health), **impossible})


def plan_tables(report: Report) -> tuple[Table, ...]:
    """Every table of a report's plan; none for a plan that neither weights nor rejects."""
    return (*rejection_tables(report), *weight_tables(report))


def rejection_tables(report: Report) -> tuple[Table, ...]:
    """What each rejection takes, then the batch before and after; nothing without rejections."""
    if not report.plan.rules:
        return ()
    whole, counts = marked_values(report), report.whole.counts
    # The rule on the share of a veto has another name of the same number.
    of_veto = whole.status_of.get("rollout_is_veto_fraction", "")
    taken = [
        (
            Cell(clean(rejection.name)),
            Cell(rejection.rule),
            whole.cell(f"rollout_rs_{rejection.name}_masked_fraction", share),
            whole.cell(f"rollout_rs_{rejection.name}_seq_masked_fraction", share, of_veto if rejection.is_veto else ""),
        )
        for rejection in report.plan.rules
    ]
    lost = (whole.cell(f"rollout_rs_{of}masked_fraction", share) for of in ("", "seq_"))
    kept = [
        (Cell(name), *(number_cell(n, "{:,.0f}".format) for n in (counts[name], whole.values[f"kept_{name}"] or 0)))
        for name in ("tokens", "sequences")
    ]
    kept += [
        (Cell(name), whole.cell(name), whole.cell(f"kept_{name}"))
        for name in shown_at("kept")
        if whole.values[name] is not None
    ]
    return (
        Table(
            headings=("rejected by", "keeps", "tokens lost", "sequences hit"),
            rows=(*taken, (Cell("all together"), EMPTY, *lost)),
            words=("keeps",),
            has_total=True,
        ),
        Table(headings=("what is kept", "before", "after"), rows=tuple(kept)),
    )


def weight_tables(report: Report) -> tuple[Table, ...]:
    """The plan's weights, raw and as applied; nothing without weights."""
    weighting = report.plan.weighting
    if weighting is None:
        return ()
    whole = marked_values(report)
    units = Cell(f"of {'tokens' if weighting.scope == 'token' else 'sequences'}")
    bound = Cell(_bound_words(weighting))

    def numbers(label: str, raw: str, applied: str, remark: Cell = EMPTY) -> tuple[Cell, ...]:
        return Cell(label), *(whole.cell(name) if name else EMPTY for name in (raw, applied)), remark

    def shares(label: str, raw: str) -> tuple[Cell, ...]:
        return Cell(label), whole.cell(raw, share), EMPTY, units

    rows = (
        numbers("mean", "rollout_is_mean", "rollout_is_applied_mean"),
        numbers("std", "rollout_is_std", "rollout_is_applied_std"),
        numbers("max", "rollout_is_max", "rollout_is_applied_max", bound),
        numbers("eff_sample_size", "", "rollout_is_eff_sample_size", units),
        numbers("after rejection", "", "rollout_is_kept_eff_sample_size", units),
        shares("above high", "rollout_is_ratio_fraction_high"),
        # Without a low bound it is the reciprocal of the high one, as verl counts it.
        shares("below 1 / high" if weighting.bounds.low is None else "below low", "rollout_is_ratio_fraction_low"),
        numbers("divided by", "", "rollout_is_batch_norm_factor", Cell("the mean weight of the batch")),
    )
    shown = tuple(row for row in rows if {row[1].text, row[2].text} - {"", NOTHING})
    return (Table(headings=("IS weights", "raw", "applied", ""), rows=shown, words=("",)),)


def _bound_words(weighting: Weighting) -> str:
    acts = acts_on(weighting.of, weighting.gate)
    if weighting.bounds == Bounds():
        return f"{weighting.scope}, unbounded{acts}{weighting.beyond}"
    outside = {"clamp": "clamped to", "zero": "zero outside", "cap": "capped in"}[weighting.outside]
    return f"{weighting.scope}, {outside} {weighting.bounds}{acts}{weighting.beyond}"


def objective_tables(report: Report) -> tuple[Table, ...]:
    """Every table of a report's objective; none without one."""
    made = report.objective
    if made is None:
        return ()
    numbers = tuple((Cell(name), number_cell(value)) for name, value in made.metrics.items())
    tables = [Table(headings=("objective", made.objective.name), rows=numbers), _mistakes_table(made)]
    if len(made.batches) > 1:
        of_batch = [
            Column(heading=name, cell=lambda batch, name=name: number_cell(batch.metrics[name])) for name in OF_BATCH
        ]
        batch = Column(heading=clean(made.batch_by or "batch"), cell=lambda batch: key_cell(batch.batch))
        tables.append(tabulated(_first_and_last(made.batches), [batch, *of_batch]))
    if _has_other_groups(report, made):
        of_group = [_group_objective_column(name, made.objective.name) for name in OF_BATCH]
        tables.append(group_table(_first_and_last(report.groups), of_group))
    return tuple(tables)


def objective_sentences(report: Report) -> list[str]:
    """Which objective it is, of which batches, and how to read its tables."""
    made = report.objective
    if made is None:
        return []
    sentences = settings_sentences(made)
    if made.mistakes:
        sentences.append(
            "size: gradient length relative to the plan's. cos: cosine with the plan's gradient. `rlcorr help "
            "objectives` explains each mistake."
        )
    if _has_other_groups(report, made):
        sentences.append("Numbers of a group use its rows alone, as if they were the training batch.")
    if _has_other_groups(report, made) and len(report.groups) > MOST_BATCHES:
        sentences.append(f"The first and the last of {len(report.groups):,} groups are shown; --json has all.")
    if len(made.batches) > MOST_BATCHES:
        sentences.append(f"The first and the last of {len(made.batches):,} batches are shown; --json has all.")
    return sentences


def settings_sentences(made: ObjectiveReport) -> list[str]:
    """Which objective it is, of which batches, and whether anything can be clipped."""
    sentences = [f"{_objective_in_words(made)}; {_batches_in_words(made)}."]
    if not made.moved and made.objective.name != "reinforce":
        sentences.append(
            "Without current_log_probs every ratio is 1, as in the first minibatch of a batch: nothing is clipped."
        )
    return sentences


def _objective_in_words(made: ObjectiveReport) -> str:
    """'ppo in decoupled mode, clip 0.2 down and 0.2 up, token-mean over kept tokens'."""
    objective = made.objective
    parts = [f"{objective.name} in {objective.mode} mode"]
    if objective.beta is not None:
        parts.append(f"beta {objective.beta:g}")
    if objective.clips:
        parts.append(f"clip {objective.clip_low:g} down and {objective.clip_high:g} up")
    if objective.dual_clip is not None:
        parts.append(f"dual clip {objective.dual_clip:g}")
    constant = "" if objective.loss_constant is None else f" of {objective.loss_constant:g}"
    over = "" if objective.is_sum else f" over {objective.divisor}"
    parts.append(f"{objective.aggregation}{constant}{over}")
    return ", ".join(parts)


def _batches_in_words(made: ObjectiveReport) -> str:
    """Of how many batches the numbers are."""
    if made.batch_by is None:
        return "the whole dump as one batch, --batch-by COLUMN makes several"
    if len(made.batches) == 1:
        return f"one batch, by {clean(made.batch_by)}"
    return f"means over {len(made.batches):,} batches by {clean(made.batch_by)}"


def _mistakes_table(made: ObjectiveReport) -> Table:
    """The plan's own loss first, then each mistake beside it."""
    labels = {mistake.name: mistake.label for mistake in MISTAKES}
    planned = (Cell("none, as the plan says"), number_cell(made.metrics["loss"]), Cell("1", 1.0), Cell("1", 1.0))
    rows = tuple(
        (Cell(labels[name]), *(number_cell(values[column]) for column in ("loss", "size", "cos")))
        for name, values in made.mistakes.items()
    )
    return Table(headings=("mistake", "loss", "size", "cos"), rows=(planned, *rows))


def _first_and_last(rows: Sequence[T]) -> Sequence[T]:
    """All of them, of many the first and the last."""
    half = MOST_BATCHES // 2
    return rows if len(rows) <= MOST_BATCHES else [*rows[:half], *rows[-half:]]


def _has_other_groups(report: Report, made: ObjectiveReport) -> bool:
    """Whether groups say more than the training batches do."""
    return any(group.objective for group in report.groups) and list(report.groups[0].key) != [made.batch_by]


def _group_objective_column(name: str, objective: str) -> Column:
    return Column(heading=name, cell=lambda group: number_cell(group.objective.get(f"objective/{objective}/{name}")))
