"""What a plan makes of a dump, as tables: who rejects what, the batch before and after, weights raw and as applied."""

from rlcorr_cli.plans.plan import Bounds, Weighting, acts_on
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.cells import Cell, Rows, marks, share_cell, value_cell
from rlcorr_cli.show.numbers import NOTHING
from rlcorr_cli.show.stdout import clean

BEFORE_AND_AFTER = ("length_mean", "reward_mean", "kl", "k3_kl", "seq_ess")
"""Metrics that stand beside the counts of what is kept."""
EMPTY = Cell("")


def correction(report: Report) -> tuple[Rows, ...]:
    """Every table of a report's plan; none for a plan that neither weights nor rejects."""
    return (*rejections(report), *weights(report))


def rejections(report: Report) -> tuple[Rows, ...]:
    """What each rejection takes, then the batch before and after; nothing without rejections."""
    if not report.plan.rules:
        return ()
    values, status_of = report.whole.values, marks(report)
    for rejection in report.plan.rules:
        if rejection.is_veto:  # the rule on its share has another name of the same number
            name = f"rollout_rs_{rejection.name}_seq_masked_fraction"
            status_of.setdefault(name, status_of.get("rollout_is_veto_fraction", ""))
    taken = [
        (
            Cell(clean(rejection.name)),
            Cell(rejection.rule),
            share_cell(f"rollout_rs_{rejection.name}_masked_fraction", values, status_of),
            share_cell(f"rollout_rs_{rejection.name}_seq_masked_fraction", values, status_of),
        )
        for rejection in report.plan.rules
    ]
    together = (
        Cell("all together"),
        EMPTY,
        share_cell("rollout_rs_masked_fraction", values, status_of),
        share_cell("rollout_rs_seq_masked_fraction", values, status_of),
    )
    headings = ("rejected by", "keeps", "tokens lost", "sequences hit")
    return Rows(headings=headings, rows=(*taken, together), words=("keeps",), has_total=True), _kept(report)


def _kept(report: Report) -> Rows:
    """The batch before and after all rejections."""
    values, status_of = report.whole.values, marks(report)
    counts = [
        (Cell(name), _count(report.whole.counts[name]), _count(values[f"kept_{name}"] or 0))
        for name in ("tokens", "sequences")
    ]
    metrics = [
        (Cell(name), value_cell(name, values, status_of), value_cell(f"kept_{name}", values, status_of))
        for name in BEFORE_AND_AFTER
        if values[name] is not None
    ]
    return Rows(headings=("what is kept", "before", "after"), rows=(*counts, *metrics))


def _count(count: float) -> Cell:
    return Cell(f"{count:,.0f}", float(count))


def weights(report: Report) -> tuple[Rows, ...]:
    """The plan's weights, raw and as applied; nothing without weights."""
    weighting = report.plan.weighting
    if weighting is None:
        return ()
    values, status_of = report.whole.values, marks(report)
    units = Cell(f"of {'tokens' if weighting.scope == 'token' else 'sequences'}")
    bound = Cell(_bound_words(weighting))

    def numbers(label: str, raw: str, applied: str, remark: Cell = EMPTY) -> tuple[Cell, ...]:
        cells = [value_cell(name, values, status_of) if name else EMPTY for name in (raw, applied)]
        return Cell(label), *cells, remark

    def shares(label: str, raw: str) -> tuple[Cell, ...]:
        return Cell(label), share_cell(raw, values, status_of), EMPTY, units

    rows = (
        numbers("mean", "rollout_is_mean", "rollout_is_applied_mean"),
        numbers("std", "rollout_is_std", "rollout_is_applied_std"),
        numbers("max", "rollout_is_max", "rollout_is_applied_max", bound),
        numbers("eff_sample_size", "", "rollout_is_eff_sample_size", units),
        numbers("after rejection", "", "rollout_is_kept_eff_sample_size", units),
        shares("above high", "rollout_is_ratio_fraction_high"),
        # Without a low bound it is the reciprocal of the high one, as verl counts it.
        shares("below 1 / high" if weighting.bounds.low is None else "below low", "rollout_is_ratio_fraction_low"),
        numbers("divided by", "", "rollout_is_batch_norm_factor", Cell("the batch's mean weight")),
    )
    shown = tuple(row for row in rows if {row[1].text, row[2].text} - {"", NOTHING})
    return (Rows(headings=("IS weights", "raw", "applied", ""), rows=shown, words=("",)),)


def _bound_words(weighting: Weighting) -> str:
    acts = acts_on(weighting.of, weighting.gate)
    if weighting.bounds == Bounds():
        return f"{weighting.scope}, unbounded{acts}{weighting.beyond}"
    outside = {"clamp": "clamped to", "zero": "zero outside", "cap": "capped in"}[weighting.outside]
    return f"{weighting.scope}, {outside} {weighting.bounds}{acts}{weighting.beyond}"
