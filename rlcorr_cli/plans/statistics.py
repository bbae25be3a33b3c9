"""STATISTICS: the numbers of a token that a rejection or a budget can bound, one row each.

A new statistic is a row here, and its function with its row in `core/statistics.py`; the tests then say what they lack.
Symbols as in `plan.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """A number of each token that a rejection bounds, as it is or reduced over the sequence.

    nonnegative: whether no value is below 0, so that a negative bound is a mistake.  budgetable: whether a budget may
    bound its mean over a batch: it must be a number of one token alone, and 0 where the policies agree.
    """

    name: str
    formula: str
    nonnegative: bool = False
    budgetable: bool = False


_ROWS: tuple[Statistic, ...] = (
    Statistic(
        "ratio",
        "rho = e^l; seq_sum the product e^S, seq_mean the geometric mean e^g, seq_min/seq_max the extreme token",
        nonnegative=True,
    ),
    Statistic("log_ratio", "l (AReaL's k1)"),
    Statistic("k1", "-l, the k1 estimate of KL(rollout || training)"),
    Statistic("k2", "l^2 / 2", nonnegative=True, budgetable=True),
    Statistic("k3", "e^l - 1 - l", nonnegative=True, budgetable=True),
    Statistic("k3_reverse", "e^-l - 1 + l", nonnegative=True, budgetable=True),
    Statistic("abs_log_ratio", "|l|", nonnegative=True, budgetable=True),
    Statistic("exp_abs_log_ratio", "e^|l|", nonnegative=True),
    Statistic("prob_gap", "e^a - e^b"),
    Statistic("log_ratio_squared", "l^2", nonnegative=True, budgetable=True),
)

STATISTICS: dict[str, Statistic] = {row.name: row for row in _ROWS}

BUDGETABLE: tuple[str, ...] = tuple(row.name for row in _ROWS if row.budgetable)
"""Names of the statistics that a budget may be kept on."""
