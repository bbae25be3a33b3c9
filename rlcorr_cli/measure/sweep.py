"""A batch's share in a sweep: every unit's value by bucket, with the sums that any threshold is read from."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Device, concatenated, host, product, row_blocks
from rlcorr_cli.measure.comparison import Comparing
from rlcorr_cli.measure.correct import MAX_WEIGHT, compared_values, pair, reduce_log_ratio, weigh
from rlcorr_cli.measure.observe import Observation, Observed, observe
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.flags import Swept
from rlcorr_cli.plans.plan import LEVELS, Plan, Rejection, Weighting
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.sweep import CAPPED, DEGREES, UnitTotals, distances
from rlcorr_cli.totals.totals import add_each

LOG_NOTHING = -700.0
"""For the log of a weight of 0."""


@frozen(kw_only=True, eq=False)
class Units:
    """values: f64[U], what the bound is held against.  columns: f64[U], each unit's part in every sum, by name; a
    weighting's are there twice, as of raw weights (what lies inside the bound) and of weight 1 (CAPPED, to be
    multiplied by the bound).  stays, out: bool[U], inside and outside whatever the bound."""

    values: Floats
    columns: dict[str, Floats]
    stays: NDArray[np.bool_]
    out: NDArray[np.bool_]

    def of(self, mask: NDArray[np.bool_]) -> "Units":
        """Some of them."""
        columns = {name: column[mask] for name, column in self.columns.items()}
        return Units(values=self.values[mask], columns=columns, stays=self.stays[mask], out=self.out[mask])

    @property
    def moving(self) -> "Units":
        """Those that the bound may reach."""
        fixed = self.stays | self.out
        return self.of(~fixed) if fixed.any() else self

    @property
    def totals(self) -> UnitTotals:
        """Added up."""
        moving, staying = self.moving, self.of(self.stays)
        return UnitTotals(
            moving=Binned.of_values(FLOAT_BITS, FLOAT_BITS.bins_of(moving.values), moving.columns),
            n_always=len(staying.values),
            always={name: float(column.sum()) for name, column in staying.columns.items()},
            n_never=int(self.out.sum()),
        )


@np.errstate(all="ignore")
def sweep(
    batch: Batch, observation: Observation, swept: Swept, device: Device
) -> tuple[Observed, dict[Any, UnitTotals]]:
    """What an observation of the base plan makes of a batch, and its units, by training batch."""
    totals = dict[Any, UnitTotals]()
    # Tokens are many: what they come to is added up block by block.
    blocks = row_blocks(batch.offsets, device) if swept.units == "tokens" else [(0, batch.n_rows)]
    for rows in blocks:
        units = swept_units(batch.between(*rows), swept, device)
        add_each(totals, {key: of_batch.totals for key, of_batch in units.items()})
    return observe(batch, observation, device), totals


@np.errstate(all="ignore")
def swept_units(batch: Batch, swept: Swept, device: Device) -> dict[Any, Units]:
    """The units of a batch, by training batch."""
    of_record = _weight_units if isinstance(swept.record, Weighting) else _rejection_units
    blocks = [block for rows in row_blocks(batch.offsets, device) if (block := batch.between(*rows)).n_tokens]
    if not blocks:
        return {}
    units = concatenated([of_record(Tokens.of(block, device, swept.base.mode), swept) for block in blocks])
    keys = {key: number for number, key in enumerate(dict.fromkeys(key for key, *_ in batch.group_keys))}
    if len(keys) == 1:
        return dict.fromkeys(keys, units)
    filled = batch.filled
    of_group = np.array([keys[key] for key, *_ in batch.group_keys])
    of_unit = of_group[batch.group_index[filled]]
    of_unit = np.repeat(of_unit, batch.lengths[filled]) if swept.units == "tokens" else of_unit
    return {key: units.of(of_unit == number) for key, number in keys.items() if (of_unit == number).any()}


def _rejection_units(tokens: Tokens, swept: Swept) -> Units:
    record = swept.record
    assert isinstance(record, Rejection)
    values = host(compared_values(pair(tokens, record, swept.base), record, swept.base))
    out = distances(values, swept.side) > swept.farthest
    return Units(
        values=values, columns=_parts(tokens, swept, swept.base), stays=np.zeros(len(values), np.bool_), out=out
    )


def _weight_units(tokens: Tokens, swept: Swept) -> Units:
    """Weights by their logs, with the free bound open.  One that another bound clamps is that bound's, wherever the
    free one lies; one that it zeroes, or that float32 cannot hold, is out."""
    record = swept.record
    assert isinstance(record, Weighting)
    opened = weigh(pair(tokens, record, swept.base), record, swept.base.log_ratio_limit)
    weights = host(opened.applied)
    none = np.zeros(len(weights), np.bool_)
    stays = none if opened.gate_mask is None else host(~opened.gate_mask).astype(np.bool_)
    # A floor that moves lifts even what is 0 without it.
    lifted = record.outside == "clamp" and swept.side == "low"
    columns = _parts(tokens, swept, replace(swept.base, weighting=None))
    columns |= {"weight": np.ones(len(weights)), "weight_squared": np.ones(len(weights))}
    with np.errstate(over="ignore", invalid="ignore"):
        raw = {name: product(column, weights ** DEGREES[name]) for name, column in columns.items() if name in DEGREES}
    # Zeroed weights are never capped.
    capped = {f"{CAPPED}{name}": columns[name] for name in raw if record.outside != "zero"}
    values = _log_weights(tokens, swept, record)
    out = none if lifted else ~stays & (weights == 0)
    if record.outside == "zero":
        out |= ~stays & (distances(values, swept.side) > swept.farthest)
    values = values.clip(-swept.farthest, swept.farthest)
    return Units(values=values, columns=raw | capped, stays=stays, out=out)


def _log_weights(tokens: Tokens, swept: Swept, record: Weighting) -> Floats:
    """The logs of the weights within what they are clamped to."""
    values = host(reduce_log_ratio(pair(tokens, record, swept.base), LEVELS[record.scope]))
    limit = swept.base.log_ratio_limit
    values = values if limit is None else values.clip(-limit, limit)
    if record.infinite == "zero":
        values = np.where(values > math.log(MAX_WEIGHT), LOG_NOTHING, values)
    low, high = record.bounds.low, record.bounds.high
    if record.outside != "clamp" or (low is None and high is None):
        return values
    return values.clip(math.log(low) if low else -math.inf, math.inf if high is None else math.log(high))


def _parts(tokens: Tokens, swept: Swept, plan: Plan) -> dict[str, Floats]:
    """Each unit's part in the sums of a plan."""
    comparing = Comparing(tokens=tokens)
    return comparing.token_parts(plan) if swept.units == "tokens" else comparing.sequence_parts(plan)
