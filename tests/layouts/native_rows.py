"""What is read of a framework's files, and what the makers of these files say is right."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rlcorr_cli.layouts.layout import Layout
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest

NATIVE = Path(__file__).parents[1] / "golden" / "native"
"""Small files by the frameworks' own writers; expected*.parquet beside them has what a right reader gives."""
PORTION_TOKENS = 1_000
"""So few that a file is read in several portions."""
SUMS = {
    "sum_rollout": ("rollout_log_probs",),
    "sum_old": ("old_log_probs",),
    "sum_current": ("current_log_probs",),
    "sum_advantages": ("advantages",),
}


def folder_of(layout: Layout) -> str:
    """The folder of NATIVE that a layout's files are in, among others of its framework."""
    return {"vLLM and OpenAI": "engines", "SGLang": "engines"}.get(layout.framework, layout.framework.lower())


def rows_of(paths: Sequence[Path], format: str = "auto") -> list[dict[str, Any]]:
    """Every row of the files, in canonical columns."""
    request = ReadRequest(paths=tuple(str(path) for path in paths), format=format)
    dump = open_dump(request, PlanColumns(compares=False))
    portions = (rows.original for shard in dump.shards for rows in dump.reader.rows(shard, PORTION_TOKENS, whole=True))
    return [row for rows in portions if rows is not None for row in rows.as_objects()]


def expected(path: str, *files: str) -> list[dict[str, Any]]:
    """The rows of an expected*.parquet, of all files or of these."""
    rows = pq.read_table(NATIVE / path).to_pylist()
    return [row for row in rows if not files or row["file"] in files]


def numbered_by_step(right: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose files number groups anew at each step, as their reader writes them: step and group."""

    def named(row: dict[str, Any]) -> str | None:
        return None if row["group_id"] is None else f"{row['step']}/{row['group_id']}"

    return [{**row, "group_id": named(row)} for row in right]


def agree(rows: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]], *columns: str) -> None:
    """Every row in order: these columns exactly (text of a number as the number's), and sums over the mask to 1e-9."""
    assert len(rows) == len(right)
    for i, (row, true) in enumerate(zip(rows, right, strict=True)):
        for name in columns:
            assert same(row.get(name), true[name]), (i, name, row.get(name), true[name])
        mask = row["response_mask"] or []
        assert sum(mask) == true["n_valid"], (i, mask)
        for name, (column,) in SUMS.items():
            values = row.get(column)
            if name in true and true[name] is not None and isinstance(values, list):
                numbers = [math.nan if value is None else value for value in values]
                total = math.fsum(value for value, valid in zip(numbers, mask, strict=True) if valid)
                assert same(total, true[name], 1e-9), (i, name, total, true[name])


def same(value: Any, true: Any, tolerance: float = 0.0) -> bool:
    """Equal, NaN to NaN, lists value by value; a number and its text are the same."""
    if isinstance(value, list) and isinstance(true, list):
        return len(value) == len(true) and all(same(a, b, tolerance) for a, b in zip(value, true, strict=True))
    if isinstance(value, float) and isinstance(true, float | int):
        return value == true or (math.isnan(value) and math.isnan(true)) or abs(value - true) <= tolerance
    return str(value) == str(true) if isinstance(true, str) else value == true
