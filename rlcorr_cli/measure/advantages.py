"""Sums over sequences that tell whether the training policy earns other rewards: A, A^2, and each under e^S, e^2S."""

import numpy as np

from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.advantages import PREFIX
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.comparison import PARTS
from rlcorr_cli.totals.flat import Floats


def advantage_columns(advantages: Floats, log_ratio_sum: Floats) -> Columns:
    """Of the sequences with a finite advantage; the others count for nothing.  advantages: f64[B]."""
    known = np.isfinite(advantages)
    columns = weighted_advantages(np.where(known, advantages, 0.0), log_ratio_sum)
    logs = {name: np.where(known, values, -np.inf) for name, values in columns.logs.items()}
    sums = columns.sums | {"rows": known.astype(np.float64)}
    return Columns(sums=sums, logs=logs).prefixed(PREFIX)


def weighted_advantages(advantage: Floats, log_ratio_sum: Floats) -> Columns:
    """A and A^2, and the logs of e^S and e^2S times 1, A+, A- and A^2; each f64[B]."""
    parts = advantage_parts(advantage)
    logs = {f"ratio{part}": values + log_ratio_sum for part, values in parts.items()}
    logs |= {f"ratio_squared{part}": values + 2 * log_ratio_sum for part, values in parts.items()}
    return Columns(sums={"advantage": advantage, "advantage_squared": advantage**2}, logs=logs)


def advantage_parts(advantage: Floats) -> dict[str, Floats]:
    """Logs of 1, A+, A- and A^2, by what their names end in; -inf of 0."""
    parts = np.ones(len(advantage)), np.maximum(advantage, 0.0), np.maximum(-advantage, 0.0), advantage**2
    with np.errstate(divide="ignore"):
        return {name: np.log(values) for name, values in zip(PARTS, parts, strict=True)}


def mean_advantages(batch: Batch, tokens: Tokens) -> Floats:
    """A of each sequence, the mean over its tokens; NaN of one that has none."""
    if tokens.advantages is not None:
        return tokens.rows.mean(tokens.advantages)
    if batch.row_advantage is not None:
        return batch.row_advantage[batch.filled]
    return np.full(tokens.rows.n_rows, np.nan)
