"""Faults of whole rows: log-probs that belong to another row, and rows that no column marks."""

import numpy as np

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding
from rlcorr_cli.quality.diagnosis.numbers import ratio, weighted_quantile
from rlcorr_cli.quality.diagnosis.wording import count_noun, figures
from rlcorr_cli.totals.gap import SIZE_LEAST, SIZE_STEP, SIZE_SUMS, WorstRows

MISPAIRED_SHARE = 0.1
MIN_ROWS, MIN_FAR_ROWS, MOST_FAR_ROWS, FAR_ROWS_SHARE = 16, 3, 0.45, 0.3
FAR_LEAST, FAR_SPREADS = 1.0, 4.0
"""A far row's y lies above the median by this much, and by so many of the rows' own deviations."""
IQR_OF_NORMAL = 1.349
NAMED_ROWS = 4
TOGETHER = 0.8
"""Log-odds that correlate so are of the same tokens: what is wrong with these rows is something else, such as a stretch
of zeros.  Two responses have .03 to .22."""


def mispaired_rows(case: Case) -> CauseFinding | None:
    """1 row to 25 % of them whose two columns do not go together; or more, where they go together not at all."""
    totals, features = case.totals, case.features
    if not totals.n_odd or features.odd_belong or features.odd_correlation >= TOGETHER:
        return None
    share = features.share(float(totals.sums("odd")["l2"].sum()))
    if share < MISPAIRED_SHARE:
        return None
    tokens = float(totals.sums("odd")["n"].sum())
    return CauseFinding(
        cause="mispaired_rows",
        share=share,
        token_share=ratio(tokens, features.n_tokens),
        parameters={"rows": totals.n_odd, "ids": _names(totals.odd_rows), "correlation": features.odd_correlation},
        headline=f"{count_noun(totals.n_odd, 'row')} of {totals.n_rows:,} whose two columns do not belong together",
        evidence=(
            f"The two columns' log-odds correlate at {figures(features.odd_correlation)} within them: "
            f"{_names(totals.odd_rows)}{'' if totals.n_odd <= NAMED_ROWS else ' and others'}.",
        ),
        advice=CAUSES["mispaired_rows"].advice,
    )


def some_rows(case: Case) -> CauseFinding | None:
    """Rows far above the median row, which no column marks."""
    rows, tokens, l2, e2 = (case.totals.sizes[:, SIZE_SUMS.index(name)] for name in SIZE_SUMS)
    if rows.sum() < MIN_ROWS:
        return None
    y = SIZE_LEAST + SIZE_STEP * (np.arange(len(rows), dtype=np.float64) + 0.5)
    low, median, high = (weighted_quantile(y, rows, share) for share in (0.25, 0.5, 0.75))
    far = y > median + max(FAR_LEAST, FAR_SPREADS * (high - low) / IQR_OF_NORMAL)
    n_far = int(rows[far].sum())
    if not MIN_FAR_ROWS <= n_far <= MOST_FAR_ROWS * rows.sum():
        return None
    share = case.features.share(float(l2[far].sum() - e2[far].sum() * ratio(l2[~far].sum(), e2[~far].sum())))
    if share < FAR_ROWS_SHARE:
        return None
    names = _names(case.totals.far_rows)
    times = float(np.exp((y[far] * rows[far]).sum() / n_far - median))
    # Rows' lengths are always levels; other columns only where they were read.
    unmarked = ", which no column marks" if case.totals.columns.keys() - {"length"} else ", far off beside the others"
    return CauseFinding(
        cause="some_rows",
        share=share,
        token_share=ratio(float(tokens[far].sum()), case.features.n_tokens),
        parameters={"rows": n_far, "ids": names},
        headline=f"{n_far:,} of {int(rows.sum()):,} rows{unmarked}",
        evidence=(
            f"Their typical token is {figures(times)} times as far off as the median row's; the farthest are {names}.",
        ),
        advice=CAUSES["some_rows"].advice,
    )


def _names(rows: WorstRows) -> str:
    return ", ".join(row.name for row in rows.rows[:NAMED_ROWS])
