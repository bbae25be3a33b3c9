"""From totals to a Report: groups in order, metrics by name, rules judged, notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlcorr_cli.batch import GroupKey, Input
from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.metrics.corrections import canonical
from rlcorr_cli.metrics.diagnostics import Values, intervals
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.quality.bad_rows import BadRowCounts
from rlcorr_cli.report.report import QUANTILE_NOTE, Group, Report
from rlcorr_cli.rules.defaults import judge
from rlcorr_cli.totals.normalize import normalize, normed_layout
from rlcorr_cli.totals.summary import Layout, Replicates, Summary, total
from rlcorr_cli.totals.view import Numbers


@dataclass(frozen=True)
class Grouping:
    """How leaf keys are laid out.  batch: whether their first value is the training batch; columns: the rest."""

    batch: bool
    columns: tuple[str, ...]


def build(
    leaves: Mapping[GroupKey, Summary],
    layout: Layout,
    replicates: Replicates | None,
    grouping: Grouping,
    plan: Plan,
    profile: Profile | None,
    inputs: Sequence[Input],
    notes: Sequence[str],
    problems: BadRowCounts,
    suspicions: tuple[Suspected, ...],
) -> Report:
    """A report of finished totals.  A dump without rows or without a valid token is a DataError."""
    whole_counts = counts(total(leaves.values(), layout))
    whole_counts = {**whole_counts, "rows": whole_counts["rows"] + problems.n_rows, "bad_rows": problems.n_rows}
    refuse_empty(whole_counts, inputs)
    if plan.weighting is not None and plan.weighting.normalize == "batch":
        leaves = normalize(leaves, layout, plan.weighting.scope == "token", grouping.batch)
        layout = normed_layout(layout)
    everything = total(leaves.values(), layout)
    by_key: dict[GroupKey, list[Summary]] = {}
    for key, summary in leaves.items():
        by_key.setdefault(key[1:] if grouping.batch else key, []).append(summary)
    groups = [
        _group(dict(zip(grouping.columns, key, strict=True)), total(summaries, layout), plan, profile)
        for key, summaries in sorted(by_key.items(), key=lambda item: [_order(value) for value in item[0]])
    ]
    whole = replace(_group({}, everything, plan, profile), counts=whole_counts)
    return Report(
        tuple(inputs),
        plan,
        profile.name if profile else "canonical",
        whole,
        intervals(replicates) if profile is None and whole.counts["sequences"] > 1 else {},
        tuple(groups) if grouping.columns else (),
        tuple(judge(whole.values)),
        (*notes, *_notes(whole.values, problems)),
        Numbers(everything).histogram("log_ratio"),
        problems.to_dict(),
        suspicions,
    )


def counts(summary: Summary) -> dict[str, int]:
    """rows, sequences (with a valid token), empty_sequences, tokens (valid), masked_tokens; bad rows are not here."""
    numbers = Numbers(summary)
    return {
        "rows": int(numbers.sum("rows")),
        "sequences": int(numbers.sequences),
        "empty_sequences": int(numbers.sum("empty")),
        "tokens": int(numbers.tokens),
        "masked_tokens": int(numbers.sum("masked_tokens")),
    }


def refuse_empty(found: Mapping[str, int], inputs: Sequence[Input]) -> None:
    """Nothing to measure is never a result."""
    where = inputs[0].path if len(inputs) == 1 else f"{inputs[0].path} and {len(inputs) - 1} more"
    if not found["rows"]:
        raise DataError(f"{where}: no rows.", "Name a dump that holds at least one sequence.")
    bad = found["bad_rows"]
    if bad == found["rows"]:
        raise DataError(f"{where}: all {bad:,} rows are bad.", "`rlcorr inspect DUMP` says what is wrong with them.")
    if not found["tokens"]:
        rows = f"{found['rows'] - bad:,} rows are masked" + (f", and {bad:,} more rows are bad" if bad else "")
        raise DataError(
            f"{where}: no valid token; all {found['masked_tokens']:,} tokens of {rows}.",
            "If another column is the mask, name it: --map response_mask=COLUMN.",
        )


def _group(key: dict[str, Any], summary: Summary, plan: Plan, profile: Profile | None) -> Group:
    numbers = Numbers(summary)
    values = canonical(numbers, plan)
    metrics = values if profile is None else profile.write(numbers, plan)
    return Group(key, counts(summary), metrics, values)


def _notes(values: Values, problems: BadRowCounts) -> list[str]:
    notes = [QUANTILE_NOTE]
    notes += [f"{name}: {one['rows']:,} rows left out; {one['first']}." for name, one in problems.to_dict().items()]
    if problems.cleared:
        notes.append(f"{problems.cleared:,} tokens that are not finite were masked.")
    if (values["logprob_abs_diff_max"] or 0) > 340:
        notes.append("Some log-ratios lie beyond +-340; metrics that float64 cannot hold are null.")
    return notes


def _order(value: Any) -> tuple[int, Any]:
    """Numbers in order, text that is a number among them; then other text, then dates; null last."""
    if value is None:
        return (3, "")
    try:
        return (0, float(value))
    except (TypeError, ValueError):
        return (1, value) if isinstance(value, str) else (2, str(value))
