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
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.io.batches import CheckedRows, SetAside
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.find_row import TEXTS, Found, find_row
from rlcorr_cli.io.peek import samples
from rlcorr_cli.io.places import resolved
from rlcorr_cli.io.readers import read_checked
from rlcorr_cli.pipeline.analyze import opened
from rlcorr_cli.pipeline.bad_rows import BadRowLog, bad_row_log, check_quarantine
from rlcorr_cli.pipeline.budget_search import spending
from rlcorr_cli.pipeline.scan import Computing, Device, run_of
from rlcorr_cli.places import Place
from rlcorr_cli.quality.anomalies import suspect
from rlcorr_cli.report.inspected import Inspected, OneRow, Says, Tally, Values, Worst
from rlcorr_cli.requests import ReadRequest

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


def lenient(request: ReadRequest) -> ReadRequest:
    """The same reading past any number of bad rows."""
    policy = request.bad_rows
    action = "skip" if policy.stops else policy.action
    return replace(request, bad_rows=replace(policy, action=action, max_fraction=1.0))


def inspect(
    request: ReadRequest, chosen: ChosenPlan, computing: Computing, *, n_worst: int = 0, by: str = "k3"
) -> Inspected:
    """Read a dump once, in order; n_worst: how many of the worst sequences and tokens to name."""
    request = lenient(request)
    dump = opened(request, chosen)
    check_quarantine(dump)
    suspected = suspect(samples(dump))
    sequences, tokens = _Worst(n_worst), _Worst(n_worst)
    tally, rows = Tally(), Counter[str]()
    with bad_row_log(request.bad_rows) as bad:
        for path, portion, device in _portions(dump, computing, bad):
            tally += _tally(portion, dump)
            rows[path] += portion.batch.n_rows
            if n_worst:
                _offer(portion, dump, by, n_worst, device, sequences, tokens)
        found = Inspected(
            tuple(dump.inputs(rows + bad.rows)),
            {field.name: str(field.type) for field in next(iter(dump.all_columns.values()))},
            {**dump.columns, **dump.marks},
            tally,
            bad.counts.n_rows,
            bad.counts.to_dict(),
            suspected,
            dump.notes,
            by if n_worst else None,
            tuple(Worst(value, *(_named(*what))) for value, _, what in sequences),
            tuple(Worst(value, *_named(*what[:-1]), what[-1]) for value, _, what in tokens),
        )
        bad.finish()
    return found


def _portions(dump: Dump, computing: Computing, bad: BadRowLog) -> Iterator[tuple[str, CheckedRows, Device]]:
    """Sound rows, in order; the others go to the ledger."""
    run = run_of(dump, computing)
    for shard in dump.shards:
        for portion in read_checked(dump, shard, run.batch_tokens, run.state):
            run.engine.check()
            if isinstance(portion, SetAside):
                bad.add(shard, portion)
            else:
                yield shard.path, portion, run.device


def _tally(portion: CheckedRows, dump: Dump) -> Tally:
    batch = portion.batch
    lengths = np.diff(batch.offsets)
    known, counts = np.unique(lengths[lengths > 0], return_counts=True)
    given = {dump.roles.rollout: batch.rollout_logp, dump.roles.train: batch.train_logp}
    if batch.current_logp is not None and dump.roles.current is not None:
        given[dump.roles.current] = batch.current_logp
    values = {
        name: Values(len(x), float(x.min()), float(x.max()), float(x.sum(dtype=np.float64)), int((x == 0).sum()))
        for name, x in given.items()
        if len(x)
    }
    lengths_of = Counter(dict(zip(known.tolist(), counts.tolist(), strict=True)))
    return Tally(int((lengths == 0).sum()), int(batch.n_masked.sum()), lengths_of, values)


def _offer(
    portion: CheckedRows, dump: Dump, by: str, n: int, device: Device, sequences: _Worst, tokens: _Worst
) -> None:
    found = worst(portion.batch, by, n, device)
    lengths = np.diff(portion.batch.offsets)
    for row, value in zip(found.rows.tolist(), found.values.tolist(), strict=True):
        sequences.offer(value, (portion.places[row], _id(portion, dump, row), int(lengths[row])))
    for (row, place), value in zip(found.at.tolist(), found.token_values.tolist(), strict=True):
        tokens.offer(value, (portion.places[row], _id(portion, dump, row), int(lengths[row]), place))


def _id(portion: CheckedRows, dump: Dump, row: int) -> str | None:
    value = portion.data.column(dump.roles.ids[0])[row].as_py() if dump.roles.ids else None
    return None if value is None else str(value)


def _named(place: Place, sample_id: str | None, n_tokens: int) -> tuple[str, str | None, int]:
    return resolved(place).text, sample_id, n_tokens


def one_row(request: ReadRequest, chosen: ChosenPlan, computing: Computing, name: str) -> OneRow:
    """One sequence by its sample_id or number, and what the plan says about it."""
    plan, dump = chosen.plan, opened(lenient(request), chosen)
    found = find_row(dump, name)
    if isinstance(found.read, SetAside):
        return _bad(found, found.read, dump)
    portion = found.read
    device, cuts = run_of(dump, computing).device, spending(dump, plan, computing).cuts
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
        found.place,
        _facts(found.values),
        _texts(found.values),
        _tuple(found.tokens(n)),
        (True,) * n if valid is None else tuple(valid.tolist()),
        {column: tuple(found.values[column]) for column in dump.roles.log_probs},
        tuple((batch.train_logp.astype(np.float64) - batch.rollout_logp).tolist()),
        None if weights is None else tuple(weights.tolist()),
        tuple(says),
    )


def _bad(found: Found, aside: SetAside, dump: Dump) -> OneRow:
    """A row that cannot be compared, as it stands."""
    if not aside.reasons:
        raise DataError(f"{found.place} cannot be shown.", "Look at the file itself.")
    given = {name: found.values.get(name) for name in dump.roles.log_probs}
    log_probs = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    mask = found.values.get(dump.roles.mask) if dump.roles.mask else None
    n = max([len(values) for values in log_probs.values()], default=0)
    valid = tuple(value == 1 for value in mask) if isinstance(mask, list) else (True,) * n
    return OneRow(
        found.place,
        _facts(found.values),
        _texts(found.values),
        _tuple(found.tokens(n)),
        valid,
        log_probs,
        problem=aside.reasons[0],
    )


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in TEXTS and not isinstance(value, list | dict)}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: values[name] for name in TEXTS if isinstance(values.get(name), str)}


def _tuple(given: Any) -> tuple[Any, ...] | None:
    return None if given is None else tuple(given)
