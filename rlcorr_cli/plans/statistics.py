"""STATISTICS: the numbers of a token that a rejection or a budget can bound, one row each.

A new statistic is a row here, and its function with its row in `measure/statistics.py`; the tests then say what they
lack.
Symbols as in `plan.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A number of each token that a rejection bounds, as it is or reduced over the sequence.

    where_equal: its value where the policies agree, about which spreads are taken.  nonnegative: whether no value is
    below 0, so that a negative bound is a mistake.  budgetable: whether a budget may bound its mean over a batch: it
    must be a number of one token alone, and 0 where the policies agree.
    """

    name: str
    formula: str
    where_equal: float = 0.0
    nonnegative: bool = False
    budgetable: bool = False


_ROWS: tuple[Statistic, ...] = (
    Statistic(
        name="ratio",
        formula="rho = e^l; seq_sum the product e^S, seq_mean the geometric mean e^g, seq_min/seq_max the extreme "
        "token",
        where_equal=1.0,
        nonnegative=True,
    ),
    Statistic(name="log_ratio", formula="l (AReaL's k1)"),
    Statistic(name="k1", formula="-l, the k1 estimate of KL(rollout || training)"),
    Statistic(name="k2", formula="l^2 / 2", nonnegative=True, budgetable=True),
    Statistic(name="k3", formula="e^l - 1 - l", nonnegative=True, budgetable=True),
    Statistic(name="k3_reverse", formula="e^-l - 1 + l", nonnegative=True, budgetable=True),
    Statistic(name="abs_log_ratio", formula="|l|", nonnegative=True, budgetable=True),
    Statistic(name="exp_abs_log_ratio", formula="e^|l|", where_equal=1.0, nonnegative=True),
    Statistic(name="prob_gap", formula="e^a - e^b"),
    Statistic(name="log_ratio_squared", formula="l^2", nonnegative=True, budgetable=True),
)

STATISTICS: dict[str, Statistic] = {row.name: row for row in _ROWS}

BUDGETABLE: tuple[str, ...] = tuple(row.name for row in _ROWS if row.budgetable)
"""Names of the statistics that a budget may be kept on."""
