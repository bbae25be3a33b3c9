"""Rows, files of them, and what reading gives back; shared by the tests of reading."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.reading.batch import Batch, Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest

Row = dict[str, Any]


def row(rollout: Sequence[Any], old: Sequence[Any], mask: Sequence[Any] | None = None, **more: Any) -> Row:
    masked = {} if mask is None else {"response_mask": list(mask)}
    return {"rollout_log_probs": list(rollout), "old_log_probs": list(old), **masked, **more}


def plain(n: int, **more: Any) -> list[Row]:
    return [row([-0.5 * i - 0.5, -1.0], [-0.25 * i - 0.25, -2.0], [1, i % 2], **more) for i in range(n)]


def jsonl(path: Path, rows: Iterable[Row]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


def parquet(path: Path, rows: Sequence[Row], schema: pa.Schema | None = None, **options: Any) -> str:
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, **options)
    return str(path)


def compressed(path: Path, text: str, codec: str) -> str:
    with pa.CompressedOutputStream(str(path), codec) as out:
        out.write(text.encode())
    return str(path)


def opened(paths: str | Sequence[str], plan_columns: PlanColumns | None = None, **request: Any) -> Dump:
    return open_dump(ReadRequest(paths=(paths,) if isinstance(paths, str) else tuple(paths), **request), plan_columns)


def batches(dump: Dump, shard: Shard, batch_tokens: int) -> list[Batch]:
    """The shard's batches; nothing is set aside."""
    read = list(dump.reader.checked(shard, batch_tokens))
    kept = [rows.batch for rows in read if isinstance(rows, CheckedRows)]
    assert len(kept) == len(read)
    return kept


def read_rows(dump: Dump, batch_tokens: int = 10**6) -> list[Row]:
    """Each row as read: values of valid tokens, count of masked ones, reward, its group's values."""
    rows: list[Row] = []
    for shard in dump.shards:
        for batch in batches(dump, shard, batch_tokens):
            assert batch.offsets[0] == 0
            trained = batch.current_logp if batch.old_logp is None else batch.old_logp
            assert trained is not None
            assert batch.n_tokens == len(batch.rollout_logp) == len(trained)
            for i in range(batch.n_rows):
                at = slice(batch.offsets[i], batch.offsets[i + 1])
                rows.append(
                    {
                        "rollout": batch.rollout_logp[at].tolist(),
                        "train": trained[at].tolist(),
                        "current": None
                        if batch.current_logp is None or batch.old_logp is None
                        else batch.current_logp[at].tolist(),
                        "n_masked": int(batch.n_masked[i]),
                        "reward": None if batch.reward is None else float(batch.reward[i]),
                        "key": batch.group_keys[batch.group_index[i]][1:],
                    }
                )
    return rows
