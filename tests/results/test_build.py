"""A report's groups stand in their own order, and its notes say when intervals are not what they seem."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.results.report import Report


def reported(rows: list[dict[str, Any]], tmp_path: Path, **options: Any) -> Report:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    return analyze(tmp_path / "d.parquet", **options)


def row(i: int, **more: Any) -> dict[str, Any]:
    return {"rollout_log_probs": [-1.0, -1.0 - i / 64], "old_log_probs": [-1.25, -1.0 - i / 32], **more}


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ([10, 9, None, -1], [-1, 9, 10, None]),
        (["10", "b", "9", None, "a"], ["9", "10", "a", "b", None]),
        (["10", "nan", "9", "a"], ["9", "10", "a", "nan"]),
    ],
)
def test_groups_stand_by_number_then_by_text_and_null_last(values: list[Any], order: list[Any], tmp_path: Path) -> None:
    report = reported([row(i, source=value) for i, value in enumerate(values)], tmp_path, group_by="source")
    assert [group.key["source"] for group in report.groups] == order


def test_more_than_a_tenth_of_rows_alike_are_noted(tmp_path: Path) -> None:
    def notes(n_alike: int) -> list[str]:
        rows = [row(max(i, n_alike - 1)) for i in range(20)]
        return [note for note in reported(rows, tmp_path).notes if "have equal rollout log-probs" in note]

    assert notes(2) == []
    (note,) = notes(3)
    assert note.startswith("15% of the rows have equal rollout log-probs: they are resampled together")


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (1, "1 rollout: too few for intervals, which need 5"),
        (4, "4 rollouts: too few for intervals, which need 5"),
        (5, "The intervals come from 5 rollouts. With fewer than 20 they are often too narrow"),
        (19, "The intervals come from 19 rollouts. With fewer than 20 they are often too narrow"),
        (20, None),
    ],
)
def test_intervals_of_few_sequences_are_noted(n: int, says: str | None, tmp_path: Path) -> None:
    report = reported([row(i) for i in range(n)], tmp_path)
    assert bool(report.intervals) == (n >= 5)
    notes = [note for note in report.notes if "rlcorr help intervals" in note]
    assert notes == ([] if says is None else [f"{says} (`rlcorr help intervals`)."])


def test_one_row_many_times_has_no_intervals(tmp_path: Path) -> None:
    report = reported([row(1)] * 30, tmp_path)
    assert report.intervals == {}
    assert [note for note in report.notes if "have equal rollout log-probs" in note] == [
        "All rows have equal rollout log-probs, so there are no intervals; a column sample_id would tell them apart."
    ]
    assert "kl" in reported([row(1)] * 26 + [row(i) for i in range(2, 6)], tmp_path).intervals
