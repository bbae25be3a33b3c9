"""The first rows of a dump's files, for anomalies of whole files: read before the rest of the dump, and cheap."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rlcorr_cli.batch import Shard
from rlcorr_cli.io import checks
from rlcorr_cli.io.batches import Rows, lists_of
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.formats import container
from rlcorr_cli.io.plain_values import keys
from rlcorr_cli.io.sources import blaming_changes
from rlcorr_cli.quality.sample import Sample

MAX_FILES = 64
"""Of a dump of more files, this many are looked at, from the first to the last."""


def samples(dump: Dump) -> Iterator[Sample]:
    """One per file, in the files' order; none of a file without rows."""
    firsts = list({shard.path: shard for shard in reversed(dump.shards)}.values())[::-1]
    step = dump.step
    roles = replace(dump.roles, batch=None, group_keys=(step,) if step else (), ids=(), drawn_by=(), cluster=None)
    for i in sorted({round(i) for i in np.linspace(0, len(firsts) - 1, MAX_FILES)}) if firsts else []:
        rows = _peeked(dump, firsts[i], roles)
        if rows is not None:
            yield _sample(rows, roles, firsts[i].path)


def _peeked(dump: Dump, shard: Shard, roles: Roles) -> Rows | None:
    index = dump.indexes[shard.path]
    inner = index.partition.without(roles)
    schema = pa.schema([index.schema.field(name) for name in inner.needed])
    with blaming_changes(shard.files):
        rows = container(shard.format).reader.peek(replace(shard, schema=schema), inner, dump.stdin)
    return rows and index.partition.given_to(rows, roles.needed)


def _sample(rows: Rows, roles: Roles, path: str) -> Sample:
    """Rows whose lists differ in length, or are null, are left out."""
    lists = lists_of(rows, roles)
    bad = {fault.row for fault in checks.structural(lists, roles.rollout)}
    if bad:
        rows = rows.take(np.array([i for i in range(rows.data.num_rows) if i not in bad], np.int64))
        lists = lists_of(rows, roles)
    rollout, train = lists[roles.rollout], lists[roles.train]
    valid = None if roles.mask is None else lists[roles.mask].values == 1
    step = (None, None) if not roles.group_keys else _ends(rows.data.column(roles.group_keys[0]))
    return Sample(
        path=path,
        offsets=rollout.offsets,
        rollout=rollout.values,
        train=train.values,
        valid=valid,
        columns=(roles.rollout, roles.train),
        step=step,
    )


def _ends(column: pa.Array) -> tuple[float | None, float | None]:
    """The first and the last value, where they are numbers."""
    if not len(column):
        return None, None
    ends = (*keys(column[:1]), *keys(column[-1:]))
    first, last = (float(end) if isinstance(end, int | float) else None for end in ends)
    return first, last
