"""inspect(): how a dump is read, what is wrong with it, and where it is worst.  Bad rows are counted, never an end."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlcorr_cli.core.decisions import opinions, verdict
from rlcorr_cli.core.observe import Observation, observe
from rlcorr_cli.core.worst import worst
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.batches import Aside, Portion
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.find_row import TEXTS, Found, find_row
from rlcorr_cli.io.readers import read_portions
from rlcorr_cli.pipeline.analyze import Reading, opened
from rlcorr_cli.pipeline.bad_rows import Ledger, check_quarantine, ledger
from rlcorr_cli.pipeline.budget_search import spending
from rlcorr_cli.pipeline.scan import Computing, Device, run_of
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.report.inspected import Inspected, OneRow, Says, Tally, Values, Worst

Entry = tuple[float, int, Any]
"""Value, minus its rank in the dump (the earlier is worse among equals), and what is needed to say what it is."""


class _Worst:
    """The n largest values of a stream, in a heap."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._heap: list[Entry] = []
        self._count = 0

    def offer(self, value: float, what: Any) -> None:
        """One more."""
        self._count += 1
        push = heapq.heappushpop if len(self._heap) == self._n else heapq.heappush
        push(self._heap, (value, -self._count, what))

    def __iter__(self) -> Iterator[Entry]:
        return iter(sorted(self._heap, reverse=True))


def lenient(reading: Reading) -> Reading:
    """The same reading past any number of bad rows."""
    bad = reading.bad
    return replace(reading, bad=replace(bad, policy="skip" if bad.stops else bad.policy, max_fraction=1.0))


def inspect(reading: Reading, plan: Plan, computing: Computing, n_worst: int = 0, by: str = "k3") -> Inspected:
    """Read a dump once, in order; n_worst: how many of the worst sequences and tokens to name."""
    reading = lenient(reading)
    dump, _ = opened(reading, plan, None)
    check_quarantine(dump, reading.bad)
    sequences, tokens = _Worst(n_worst), _Worst(n_worst)
    tally, rows = Tally(), Counter[str]()
    with ledger(dump, reading.bad) as bad:
        for path, portion, device in _portions(dump, computing, bad):
            tally += _tally(portion, dump)
            rows[path] += portion.batch.n_rows
            if n_worst:
                _offer(portion, dump, by, n_worst, device, sequences, tokens)
        found = Inspected(
            inputs=tuple(dump.inputs(rows + bad.rows)),
            schema={field.name: str(field.type) for field in next(iter(dump.all_columns.values()))},
            columns={**dump.columns, **dump.marks},
            tally=tally,
            bad_rows=bad.problems.n_rows,
            problems=bad.problems.to_dict(),
            suspicions=bad.suspected,
            notes=dump.notes,
            by=by if n_worst else None,
            worst_sequences=tuple(_worst_of(value, *what) for value, _, what in sequences),
            worst_tokens=tuple(_worst_of(value, *what) for value, _, what in tokens),
        )
        bad.finish()
    return found


def _portions(dump: Dump, computing: Computing, bad: Ledger) -> Iterator[tuple[str, Portion, Device]]:
    """Sound rows, in order; the others go to the ledger."""
    run = run_of(dump, computing)
    for shard in dump.shards:
        for portion in read_portions(dump, shard, run.batch_tokens, run.intake):
            run.engine.check()
            if isinstance(portion, Aside):
                bad.add(shard, portion)
            else:
                yield shard.path, portion, run.device


def _tally(portion: Portion, dump: Dump) -> Tally:
    batch = portion.batch
    lengths = np.diff(batch.offsets)
    known, counts = np.unique(lengths[lengths > 0], return_counts=True)
    given = {dump.roles.rollout: batch.rollout_logp, dump.roles.train: batch.train_logp}
    if batch.current_logp is not None and dump.roles.current is not None:
        given[dump.roles.current] = batch.current_logp
    values = {
        name: Values(
            n=len(x),
            min=float(x.min()),
            max=float(x.max()),
            total=float(x.sum(dtype=np.float64)),
            zeros=int((x == 0).sum()),
        )
        for name, x in given.items()
        if len(x)
    }
    lengths_of = Counter(dict(zip(known.tolist(), counts.tolist(), strict=True)))
    return Tally(int((lengths == 0).sum()), int(batch.n_masked.sum()), lengths_of, values)


def _offer(portion: Portion, dump: Dump, by: str, n: int, device: Device, sequences: _Worst, tokens: _Worst) -> None:
    found = worst(portion.batch, by, n, device)
    lengths = np.diff(portion.batch.offsets)
    for row, value in zip(found.rows.tolist(), found.values.tolist(), strict=True):
        sequences.offer(value, (portion.where(row), _id(portion, dump, row), int(lengths[row])))
    for (row, place), value in zip(found.at.tolist(), found.token_values.tolist(), strict=True):
        tokens.offer(value, (portion.where(row), _id(portion, dump, row), int(lengths[row]), place))


def _id(portion: Portion, dump: Dump, row: int) -> str | None:
    value = portion.data.column(dump.roles.ids[0])[row].as_py() if dump.roles.ids else None
    return None if value is None else str(value)


def _worst_of(value: float, place: Any, sample_id: str | None, n_tokens: int, token: int | None = None) -> Worst:
    return Worst(value=value, place=place(), sample_id=sample_id, n_tokens=n_tokens, token=token)


def one_row(reading: Reading, plan: Plan, computing: Computing, name: str) -> OneRow:
    """One sequence by its sample_id or number, and what the plan says about it."""
    reading = lenient(reading)
    dump, by_batch = opened(reading, plan, None)
    found = find_row(dump, name)
    if isinstance(found.read, Aside):
        return _bad(found, found.read, dump)
    portion = found.read
    device, cuts = run_of(dump, computing).device, spending(dump, plan, computing, by_batch).cuts
    batch, valid = portion.batch, portion.valid
    seen = observe(batch, Observation(plan, has_current=dump.roles.current is not None, seed=None), device, cuts)
    weighted = plan.weighting is not None
    weights = verdict(batch, seen, weighted).weights if weighted else None
    says = [
        Says(rule.name, rule.rule, None if rule.scope == "token" else float(values[0]), tuple(keep.tolist()))
        for rule, values, keep in opinions(seen)
    ]
    n = int(portion.offsets[-1])
    return OneRow(
        place=found.place,
        facts=_facts(found.values),
        texts=_texts(found.values),
        tokens=_tuple(found.tokens(n)),
        valid=(True,) * n if valid is None else tuple(valid.tolist()),
        log_probs={column: tuple(found.values[column]) for column in dump.roles.log_probs},
        log_ratios=tuple((batch.train_logp.astype(np.float64) - batch.rollout_logp).tolist()),
        weights=None if weights is None else tuple(weights.tolist()),
        says=tuple(says),
    )


def _bad(found: Found, aside: Aside, dump: Dump) -> OneRow:
    """A row that cannot be compared, as it stands."""
    if not aside.reasons:
        raise DataError(f"{found.place} cannot be shown.", "Look at the file itself.")
    given = {name: found.values.get(name) for name in dump.roles.log_probs}
    log_probs = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    mask = found.values.get(dump.roles.mask) if dump.roles.mask else None
    n = max([len(values) for values in log_probs.values()], default=0)
    valid = tuple(value == 1 for value in mask) if isinstance(mask, list) else (True,) * n
    return OneRow(
        place=found.place,
        facts=_facts(found.values),
        texts=_texts(found.values),
        tokens=_tuple(found.tokens(n)),
        valid=valid,
        log_probs=log_probs,
        problem=aside.reasons[0],
    )


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in TEXTS and not isinstance(value, list | dict)}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: values[name] for name in TEXTS if isinstance(values.get(name), str)}


def _tuple(given: Any) -> tuple[Any, ...] | None:
    return None if given is None else tuple(given)
