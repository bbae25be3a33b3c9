"""A batch's share in a sweep: every unit's value by bucket, with the sums that any threshold is read from."""

from dataclasses import replace

import numpy as np
import torch

from rlcorr_cli.batch import Batch
from rlcorr_cli.core.comparison import Comparing
from rlcorr_cli.core.correct import MAX_WEIGHT, compared_values, reduce_log_ratio
from rlcorr_cli.core.observe import Observation, Observed, observe
from rlcorr_cli.core.ragged import to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.plans.plan import LEVELS, Weighting
from rlcorr_cli.plans.swept import Swept
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, FloatBits
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.sweep import CAPPED, DEGREES


def sweep(
    batch: Batch, observation: Observation, swept: Swept, device: torch.device
) -> tuple[Observed, Binned[FloatBits] | None]:
    """What an observation of the base plan makes of a batch, and its units by bucket; None without a token."""
    if not batch.n_tokens:
        return observe(batch, observation, device), None
    tokens = Tokens.of(batch, device, swept.base.mode)
    observed = observe(batch, observation, device, tokens={swept.base.mode: tokens})
    return observed, binned(*_units(tokens, swept))


def swept_units(batch: Batch, swept: Swept, device: torch.device) -> tuple[Floats, dict[str, Floats]]:
    """Each unit's value, and its part in every sum, f64[U] by name; as of `_units`.  The batch has a token."""
    return _units(Tokens.of(batch, device, swept.base.mode), swept)


def _units(tokens: Tokens, swept: Swept) -> tuple[Floats, dict[str, Floats]]:
    """Each unit's value, and its part in every sum, f64[U] by name.  A weighting's sums are there twice, as of raw
    weights (what lies inside the bound) and of weight 1 (CAPPED, to be multiplied by the bound)."""
    comparing = Comparing(tokens)
    record = swept.record
    if not isinstance(record, Weighting):
        values = to_numpy(compared_values(tokens.between(record.of), record, swept.base))
        columns = comparing.token_parts(swept.base) if swept.units == "tokens" else comparing.sequence_parts(swept.base)
        return values, columns
    values = to_numpy(reduce_log_ratio(tokens.between(record.of), LEVELS[record.scope]))
    limit = swept.base.log_ratio_limit
    values = values if limit is None else values.clip(-limit, limit)
    # A weight that the fixed bound clamps is that bound's, wherever the free one lies; "cap" has no lower bound.
    low, high = record.bounds.low, record.bounds.high
    values = values.clip(
        -np.inf if low is None or record.outside == "cap" else np.log(low), np.inf if high is None else np.log(high)
    )
    flat = replace(swept.base, weighting=None)
    columns = comparing.token_parts(flat) if swept.units == "tokens" else comparing.sequence_parts(flat)
    columns |= {"weight": np.ones(len(values)), "weight_squared": np.ones(len(values))}
    with np.errstate(over="ignore"):
        weights = np.exp(values)
        if record.infinite == "zero":
            columns = {name: np.where(weights > MAX_WEIGHT, 0.0, column) for name, column in columns.items()}
        raw = {name: column * weights ** DEGREES[name] for name, column in columns.items() if name in DEGREES}
    return values, raw | {f"{CAPPED}{name}": columns[name] for name in raw}


def binned(values: Floats, columns: dict[str, Floats]) -> Binned[FloatBits]:
    """The units of a batch by bucket of their values."""
    return Binned.of_values(FLOAT_BITS, FLOAT_BITS.bins_of(values), columns)
