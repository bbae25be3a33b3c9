import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dumps import compressed, opened, read_rows
from hypothesis import given, settings, strategies as st

LOGP = st.floats(-50, 0, width=32)
ANYTHING = st.one_of(st.just(None), st.floats(width=32, allow_nan=True, allow_infinity=True))
TOKEN = st.one_of(st.tuples(LOGP, LOGP, LOGP, st.just(1)), st.tuples(ANYTHING, ANYTHING, ANYTHING, st.just(0)))
ROWS = st.lists(
    st.tuples(
        st.lists(TOKEN, max_size=6),
        st.one_of(st.none(), st.integers(-3, 3)),
        st.one_of(st.none(), st.floats(-5, 5)),
    ),
    min_size=1,
    max_size=12,
)
NAMES = ("rollout_log_probs", "old_log_probs", "current_log_probs", "response_mask")
LISTS: list[Any] = [pa.list_, pa.large_list]
MASKS = [pa.bool_(), pa.int8(), pa.int64(), pa.float32()]


def expected(rows: list[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for tokens, step, reward in rows:
        valid = [t for t in tokens if t[3]]
        rollout, old, current = ([t[i] for t in valid] for i in range(3))
        found.append(
            {
                "rollout": rollout,
                "train": old,
                "current": current,
                "n_masked": len(tokens) - len(valid),
                "reward": reward,
                "key": (step,),
            }
        )
    return found


def columns(rows: list[Any]) -> dict[str, list[Any]]:
    lists = {name: [[t[i] for t in tokens] for tokens, _, _ in rows] for i, name in enumerate(NAMES)}
    return {**lists, "step": [step for _, step, _ in rows], "reward": [reward for _, _, reward in rows]}


def check(path: str, rows: list[Any]) -> None:
    dump = opened(path, group_by=("step",))
    for batch_tokens in (1, 7, 10**6):
        rows_read = read_rows(dump, batch_tokens)
        for r in rows_read:
            r["reward"] = None if np.isnan(r["reward"]) else r["reward"]
        assert rows_read == expected(rows)


@settings(max_examples=2 * settings().max_examples)
@given(ROWS, st.sampled_from(LISTS), st.sampled_from(MASKS), st.sampled_from([pa.float32(), pa.float64()]), st.data())
def test_parquet_rows_come_back_as_written(rows: list[Any], kind: Any, mask: Any, item: Any, data: Any) -> None:
    values = columns(rows)
    values["response_mask"] = [[bool(x) for x in r] if mask == pa.bool_() else r for r in values["response_mask"]]
    types = {name: kind(item) for name in NAMES[:3]} | {"response_mask": kind(mask)}
    types |= {"step": pa.int32(), "reward": pa.float64()}
    table = pa.table({name: pa.array(column, types[name]) for name, column in values.items()})
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/a.parquet"
        pq.write_table(table, path, row_group_size=data.draw(st.integers(1, 5)))
        check(path, rows)


@settings(max_examples=2 * settings().max_examples)
@given(ROWS, st.sampled_from([None, "gzip", "zstd"]), st.booleans())
def test_json_rows_come_back_as_written(rows: list[Any], codec: str | None, booleans: bool) -> None:
    values = columns(rows)
    if booleans:
        values["response_mask"] = [[bool(x) for x in r] for r in values["response_mask"]]
    lines = [json.dumps(dict(zip(values, row, strict=True))) + "\n" for row in zip(*values.values(), strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/a.jsonl"
        if codec:
            compressed(Path(path), "".join(lines), codec)
        else:
            Path(path).write_text("".join(lines))
        check(path, rows)
