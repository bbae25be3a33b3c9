"""Tables in memory are dumps, and `correct` is filter's work on one of them: in other libraries' pipelines, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from few import few

from rlcorr_cli import analyze, check, correct, filter
from rlcorr_cli.errors import DataError, UsageError

SAMPLE = Path(__file__).parent.parent / "sample_data" / "smollm2_steps.parquet"
TABLE = pq.read_table(SAMPLE)
RIGHT = analyze(str(SAMPLE)).whole.values
FORMS: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: TABLE,
    "polars": lambda: pl.from_arrow(TABLE),
    "lazy polars": lambda: pl.from_arrow(TABLE).lazy(),
    "pandas": TABLE.to_pandas,
    "duckdb": lambda: duckdb.sql(f"select * from '{SAMPLE}'"),
    "a reader of batches": lambda: TABLE.to_reader(max_chunksize=7),
    "an Arrow batch of datasets": lambda: dataset().with_format("arrow")[:],
    "datasets": lambda: dataset(),
    "datasets in another format": lambda: dataset().with_format("numpy"),
    "datasets in another order": lambda: dataset().select(range(TABLE.num_rows - 1, -1, -1)),
    "rows": TABLE.to_pylist,
    "a dict of lists": TABLE.to_pydict,
}


def dataset() -> datasets.Dataset:
    return datasets.Dataset(pa.Table.from_batches(TABLE.to_batches()))


def padded(kind: Callable[[Any], Any]) -> dict[str, Any]:
    """What a trainer holds: [B, T], 0 behind each response."""
    longest = max(len(row) for row in TABLE.column("response_mask").to_pylist())

    def column(name: str) -> Any:
        return kind([row + [0] * (longest - len(row)) for row in TABLE.column(name).to_pylist()])

    return {name: column(name) for name in ("rollout_log_probs", "old_log_probs", "response_mask")}


@pytest.mark.parametrize(
    "form", few(FORMS, ("pyarrow", "lazy polars", "pandas", "datasets", "rows", "a dict of lists"))
)
def test_a_table_of_any_library_gives_the_numbers_of_its_file(form: str) -> None:
    assert analyze(FORMS[form]()).whole.values == pytest.approx(RIGHT, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_padded_arrays_give_the_numbers_of_ragged_rows(kind: Callable[[Any], Any]) -> None:
    of_rows = {name: kind(TABLE.column(name).to_pylist()) for name in ("reward", "advantage")}
    values = analyze({**padded(kind), **of_rows}).whole.values
    # float32 arrays, as a trainer's are; the file has float32, too.
    assert {name: values[name] for name in RIGHT} == pytest.approx(RIGHT, rel=1e-6, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_a_list_of_arrays_is_a_ragged_column(kind: Callable[[Any], Any]) -> None:
    columns = ("rollout_log_probs", "old_log_probs", "response_mask")
    batch = {name: [kind(row) for row in TABLE.column(name).to_pylist()] for name in columns}
    values = analyze(batch).whole.values
    assert values["k3_kl"] == pytest.approx(RIGHT["k3_kl"], rel=1e-6)
    assert analyze({name: tuple(column) for name, column in batch.items()}).whole.values == values


def test_bfloat16_on_its_way_from_a_card_is_read() -> None:
    batch = padded(torch.tensor)
    batch["old_log_probs"] = batch["old_log_probs"].bfloat16().requires_grad_()
    assert analyze(batch).whole.counts["sequences"] == TABLE.num_rows


def test_filter_and_check_take_tables(tmp_path: Path) -> None:
    assert check(TABLE, max={"kl": 0.1}).passed
    filter(TABLE, tmp_path / "table.parquet", preset="geo_rs")
    filter(str(SAMPLE), tmp_path / "file.parquet", preset="geo_rs")
    assert pq.read_table(tmp_path / "table.parquet").equals(pq.read_table(tmp_path / "file.parquet"))


@pytest.mark.parametrize("preset", ["token_is", "geo_rs", "seq_is_rs"])
def test_correct_gives_what_filter_writes(tmp_path: Path, preset: str) -> None:
    filter(str(SAMPLE), tmp_path / "file.parquet", preset=preset, rejected="keep")
    assert correct(TABLE, preset=preset).equals(pq.read_table(tmp_path / "file.parquet"))


def test_some_rows_of_a_data_set_are_those_rows_alone() -> None:
    some = analyze(dataset().select(range(64)))
    assert some.whole.counts["sequences"] == 64
    assert some.whole.values == pytest.approx(analyze(TABLE.slice(0, 64)).whole.values, rel=1e-12, nan_ok=True)


def test_rows_may_hold_tensors_and_lack_keys() -> None:
    rows = [
        {name: torch.tensor(row[name]) for name in ("rollout_log_probs", "old_log_probs", "response_mask")}
        for row in TABLE.to_pylist()
    ]
    rewarded = [rows[0], *({**row, "reward": 1.0} for row in rows[1:])]
    assert analyze(rows).whole.values["k3_kl"] == pytest.approx(RIGHT["k3_kl"], rel=1e-6)
    assert analyze(rewarded).whole.values["reward_mean"] == 1.0


def test_the_splits_of_a_data_set_are_not_one_table() -> None:
    with pytest.raises(UsageError, match="has 2 splits: train, test") as error:
        analyze(datasets.DatasetDict({"train": dataset(), "test": dataset()}))
    assert error.value.hint == 'Take one, such as dataset["train"].'


def test_a_bad_row_is_named_by_its_number() -> None:
    table = {"rollout_log_probs": [[-1.0], [-1.0, -2.0]], "old_log_probs": [[-1.0], [-1.0]]}
    with pytest.raises(DataError, match="<table in memory>, row 1"):
        analyze(table)


def test_correct_in_a_map_of_hugging_faces() -> None:
    mapped = (
        dataset().with_format("arrow").map(lambda batch: correct(batch, preset="token_is"), batched=True, batch_size=64)
    )
    assert mapped.data.column("rollout_is_weights").to_pylist() == weights(correct(TABLE, preset="token_is"))


def test_correct_in_a_map_of_polars() -> None:
    frame = pl.from_arrow(TABLE)
    assert isinstance(frame, pl.DataFrame)
    mapped = frame.lazy().map_batches(
        lambda batch: pl.DataFrame(correct(batch, preset="token_is")), validate_output_schema=False
    )
    assert mapped.collect().get_column("rollout_is_weights").to_list() == weights(correct(TABLE, preset="token_is"))


def test_correct_in_a_training_loop() -> None:
    batch = padded(torch.tensor)
    corrected = correct(batch, preset="token_is")
    weighted = torch.tensor(np.array(corrected.column("rollout_is_weights").to_pylist()))
    rho = (batch["old_log_probs"] - batch["rollout_log_probs"]).double().exp().clamp(max=2) * batch["response_mask"]
    assert torch.allclose(weighted, rho, rtol=1e-6)


def test_a_table_is_one_training_batch_to_correct() -> None:
    whole = correct(TABLE, plan={"weighting": {"scope": "token", "normalize": "batch"}})
    flat = np.concatenate([np.array(row)[np.array(mask) == 1] for row, mask in rows(whole)])
    assert flat.mean() == pytest.approx(1, abs=1e-6)


def rows(table: pa.Table) -> list[tuple[Any, Any]]:
    return list(zip(weights(table), table.column("response_mask").to_pylist(), strict=True))


def weights(table: pa.Table) -> list[Any]:
    return table.column("rollout_is_weights").to_pylist()
