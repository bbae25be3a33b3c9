import gc
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dumps import batches, opened, parquet, plain, read_rows, row

from rlcorr_cli.errors import DataError
from rlcorr_cli.reading import parquet as reading
from rlcorr_cli.reading.batches import ROW_TOKENS, CheckedRows, Places, Rows, checked_batches
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.request import PlanColumns

PAIR = Roles(rollout="r", old="o", mask="m")


def in_memory(rollout: pa.Array, old: pa.Array, mask: pa.Array) -> list[tuple[list[float], list[float]]]:
    data = pa.record_batch([rollout, old, mask], ["r", "o", "m"])
    rows = Rows(data=data, places=Places("d.parquet", "row", range(data.num_rows)))
    pairs: list[tuple[list[float], list[float]]] = []
    for batch in (checked.batch for checked in checked_batches(rows, PAIR, 2) if isinstance(checked, CheckedRows)):
        for i in range(batch.n_rows):
            at = slice(batch.offsets[i], batch.offsets[i + 1])
            pairs.append((batch.rollout_logp[at].tolist(), batch.old_logp[at].tolist()))
    return pairs


LISTS: list[Any] = [pa.list_, pa.large_list, lambda t: pa.list_(t, 2), pa.list_view, pa.large_list_view]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("item", [pa.float16(), pa.float32(), pa.float64()])
def test_sliced_lists_keep_their_own_values(kind: Any, item: pa.DataType) -> None:
    numbers = [[-float(i), -float(i) - 0.5] for i in range(6)]
    lists = pa.array([[np.float16(x) for x in r] if item == pa.float16() else r for r in numbers], kind(item))
    mask = pa.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 1], [1, 1]], pa.list_(pa.int8()))
    pairs = in_memory(lists.slice(2, 3), lists.slice(1, 3), mask.slice(2, 3))
    assert pairs == [([-2.5], [-1.5]), ([], []), ([-4.0, -4.5], [-3.0, -3.5])]


@pytest.mark.parametrize("item", [pa.bool_(), pa.int8(), pa.uint8(), pa.int64(), pa.float32(), pa.float16()])
def test_masks_of_any_kind_drop_the_same_tokens(tmp_path: Path, item: pa.DataType) -> None:
    lists = [[True, False], [False, True], [True, True]]
    numbers = [[np.float16(x) for x in r] if item == pa.float16() else r for r in lists]
    values = pa.array(
        numbers
        if pa.types.is_floating(item)
        else [[int(x) for x in r] for r in lists]
        if item != pa.bool_()
        else lists,
        pa.list_(item),
    )
    logp = pa.array([[-1.0, -2.0]] * 3, pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"rollout_log_probs": logp, "old_log_probs": logp, "response_mask": values}), tmp_path / "a.parquet"
    )
    rows = read_rows(opened(str(tmp_path / "a.parquet")))
    assert [(r["rollout"], r["n_masked"]) for r in rows] == [([-1.0], 1), ([-2.0], 1), ([-1.0, -2.0], 0)]


def test_a_masked_token_may_hold_anything(tmp_path: Path) -> None:
    rows = [row([float("nan"), -1.0, None, 3.0], [float("inf"), -2.0, float("-inf"), None], [0, 1, 0, 0])]
    assert read_rows(opened(parquet(tmp_path / "a.parquet", rows)))[0]["train"] == [-2.0]


BAD: list[tuple[Any, str]] = [
    (row([-1.0, -1.0], [-1.0], [1, 1]), r"old_log_probs has 1 token, rollout_log_probs has 2\."),
    (row([-1.0], [-1.0], [1, 1]), r"response_mask has 2 tokens, rollout_log_probs has 1\."),
    (row([-1.0, -1.0], [-1.0, float("nan")], [1, 1]), r"old_log_probs\[1\] is nan on a valid token"),
    (row([-1.0, None], [-1.0, -1.0], [1, 1]), r"rollout_log_probs\[1\] is null on a valid token"),
    (row([-1.0, -1.0], [-1.0, float("-inf")], [1, 1]), r"old_log_probs\[1\] is -inf on a valid token"),
    (row([-1.0, float("inf")], [-1.0, -1.0], [0, 1]), r"rollout_log_probs\[1\] is inf on a valid token"),
    (row([float("nan"), 0.0, 0.5], [-1.0] * 3, [0, 1, 1]), r"rollout_log_probs\[2\] is 0.5 on a valid token"),
    (row([-1.0, -1.0], [-1.0, 0.25], [0, 1]), r"old_log_probs\[1\] is 0.25 on a valid token; .* above 0"),
    (row([-1.0, -1.0], [-1.0, -1.0], [1, 2]), r"response_mask\[1\] is 2; a mask holds 0 and 1"),
    (row([-1.0, -1.0], [-1.0, -1.0], [1, -1]), r"response_mask\[1\] is -1; a mask holds 0 and 1"),
    (row([-1.0, -1.0], [-1.0, -1.0], [1, None]), r"response_mask\[1\] is null; a mask holds 0 and 1"),
    (row([-1.0], [-1.0]) | {"response_mask": None}, r"response_mask is null"),
    (row([-1.0], [-1.0], [1]) | {"old_log_probs": None}, r"old_log_probs is null"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
@pytest.mark.parametrize("batch_tokens", [1, 7, 10**6])
def test_a_bad_row_is_named_by_file_and_row(tmp_path: Path, bad: Any, message: str, batch_tokens: int) -> None:
    path = parquet(tmp_path / "a.parquet", [*plain(9), bad, *plain(3)], row_group_size=4)
    with pytest.raises(DataError, match=rf"a.parquet, row 9 \(0-based\): {message}") as caught:
        read_rows(opened(path), batch_tokens)
    assert caught.value.hint


def test_lengths_must_agree_row_by_row_and_not_only_in_total(tmp_path: Path) -> None:
    rows = [row([-1.0], [-1.0]), row([-1.0, -1.0], [-1.0]), row([-1.0], [-1.0, -1.0])]
    with pytest.raises(DataError, match=r"row 1 \(0-based\): old_log_probs has 1 token, rollout_log_probs has 2"):
        read_rows(opened(parquet(tmp_path / "a.parquet", rows)))


def test_row_numbers_count_from_the_start_of_the_file(tmp_path: Path) -> None:
    for n, length in ((40, 60_000), (200, 50_000)):  # row groups of their own; one that is read in steps
        values = np.zeros(n * length, np.float32)
        values[-1] = 0.5
        offsets = np.arange(0, n * length + 1, length, dtype=np.int32)
        lists = pa.ListArray.from_arrays(offsets, pa.array(values))
        table = pa.table({"rollout_log_probs": lists, "old_log_probs": lists})
        pq.write_table(
            table,
            tmp_path / "a.parquet",
            row_group_size=20 if n == 40 else n,
            use_dictionary=n == 200,
            compression="none",
        )
        dump = opened(str(tmp_path / "a.parquet"))
        assert len(dump.shards) == (2 if n == 40 else 1)
        with pytest.raises(DataError, match=rf"row {n - 1} \(0-based\): rollout_log_probs\[{length - 1}\] is 0.5"):
            list(dump.reader.checked(dump.shards[-1], 10**6))


@pytest.mark.parametrize("value", [0.5, float("nan")])
def test_a_float_mask_holds_only_0_and_1(tmp_path: Path, value: float) -> None:
    path = parquet(tmp_path / "a.parquet", [row([-1.0, -1.0], [-1.0, -1.0], [1.0, value])])
    with pytest.raises(DataError, match=rf"response_mask\[1\] is {value:g}; a mask"):
        read_rows(opened(path))


def test_a_null_in_a_boolean_mask_is_an_error(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [row([-1.0, -1.0], [-1.0, -1.0], [True, None])])
    with pytest.raises(DataError, match=r"response_mask\[1\] is null"):
        read_rows(opened(path))


def test_rounding_just_above_zero_is_no_error(tmp_path: Path) -> None:
    assert read_rows(opened(parquet(tmp_path / "a.parquet", [row([1e-7], [0.0])])))[0]["rollout"] == [1e-7]


KEYS: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([3, None, 3], pa.int32()), [3, None, 3]),
    (pa.array(["a", "b", None]), ["a", "b", None]),
    (pa.array(["a", "b", None], pa.large_string()), ["a", "b", None]),
    (pa.array([True, False, None]), [True, False, None]),
    (pa.array([0.5, float("nan"), None]), [0.5, "NaN", None]),
    (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
    (pa.array([None, None, None], pa.null()), [None, None, None]),
    (pa.array([date(2026, 1, 2), None, date(2026, 1, 2)]), ["2026-01-02", None, "2026-01-02"]),
    (pa.array([1500, 1501, None], pa.timestamp("ns")), [f"1970-01-01 00:00:00.00000150{i}" for i in (0, 1)] + [None]),
    (pa.array([7, None, 7]).cast(pa.decimal128(38, 0)), [7, None, 7]),
    (pa.array([b"one", None, b"\xff"]), ["one", None, "\\xff"]),
    (pa.array(["a", None, "b"], pa.string_view()), ["a", None, "b"]),
    (pa.array([UUID(int=7).bytes, None, UUID(int=7).bytes], pa.uuid()), [str(UUID(int=7)), None, str(UUID(int=7))]),
]


@pytest.mark.parametrize(("column", "values"), KEYS)
def test_keys_are_plain_values_and_missing_ones_none(tmp_path: Path, column: pa.Array, values: list[Any]) -> None:
    table = pa.Table.from_pylist(plain(3)).append_column("key", column)
    pq.write_table(table, tmp_path / "a.parquet")
    dump = opened(str(tmp_path / "a.parquet"), group_by=("key",))
    for batch_tokens in (1, 4, 100):
        assert [r["key"][0] for r in read_rows(dump, batch_tokens)] == values


def test_several_keys_group_by_their_combination(tmp_path: Path) -> None:
    rows = [plain(1, step=s, env=e)[0] for s, e in [(1, "a"), (2, "a"), (1, "b"), (1, "a"), (None, "b")]]
    dump = opened(parquet(tmp_path / "a.parquet", rows), group_by=("step", "env"))
    assert [r["key"] for r in read_rows(dump)] == [(1, "a"), (2, "a"), (1, "b"), (1, "a"), (None, "b")]
    (batch,) = batches(dump, dump.shards[0], 100)
    assert len(batch.group_keys) == len(set(batch.group_keys)) == 4
    assert batch.group_index.dtype == np.int32


def test_a_key_begins_with_the_training_batch_where_rows_have_one(tmp_path: Path) -> None:
    rows = [plain(1, step=s, env=e)[0] for s, e in [(1, "a"), (2, "a"), (1, "b"), (None, "b")]]
    path, batched = parquet(tmp_path / "a.parquet", rows), PlanColumns(batch="step")
    for group_by in ((), ("env",), ("env", "step")):
        by_batch, as_one = opened(path, batched, group_by=group_by), opened(path, group_by=group_by)
        assert (by_batch.roles.batch, as_one.roles.batch) == ("step", None)
        for dump, expected in ((by_batch, {1, 2, None}), (as_one, {None})):
            (batch,) = batches(dump, dump.shards[0], 100)
            assert {key[0] for key in batch.group_keys} == expected
            assert {key[1:] for key in batch.group_keys} == {tuple(row[name] for name in group_by) for row in rows}


def test_without_keys_all_rows_are_one_group(tmp_path: Path) -> None:
    dump = opened(parquet(tmp_path / "a.parquet", plain(3)))
    (batch,) = batches(dump, dump.shards[0], 100)
    assert batch.group_keys == ((None,),)
    assert batch.group_index.tolist() == [0, 0, 0]


@pytest.mark.parametrize("type", [pa.bool_(), pa.int64(), pa.float32()])
def test_rewards_are_floats_and_missing_ones_nan(tmp_path: Path, type: pa.DataType) -> None:
    table = pa.Table.from_pylist(plain(2)).append_column("reward", pa.array([True, None]).cast(type))
    pq.write_table(table, tmp_path / "a.parquet")
    first, second = read_rows(opened(str(tmp_path / "a.parquet")))
    assert first["reward"] == 1.0
    assert np.isnan(second["reward"])


def test_a_batch_closes_before_it_would_pass_its_tokens(tmp_path: Path) -> None:
    lengths = [3, 0, 2, 9, 0, 1, 1, 5]
    dump = opened(parquet(tmp_path / "a.parquet", [row([-1.0] * n, [-1.0] * n, [0] * n) for n in lengths]))
    rows = [batch.n_masked.tolist() for batch in batches(dump, dump.shards[0], 5)]
    assert rows == [[3, 0, 2], [9], [0, 1, 1], [5]]


def test_float32_stays_float32_and_float16_becomes_it(tmp_path: Path) -> None:
    for item in (pa.float16(), pa.float32()):
        value = [np.float16(-1.5), None] if item == pa.float16() else [-1.5, None]
        lists = pa.array([value], pa.list_(item))
        table = pa.table({"rollout_log_probs": lists, "old_log_probs": lists, "response_mask": pa.array([[1, 0]])})
        pq.write_table(table, tmp_path / "a.parquet")
        dump = opened(str(tmp_path / "a.parquet"))
        (batch,) = batches(dump, dump.shards[0], 10)
        assert batch.old_logp.dtype == np.float32
        assert batch.old_logp.tolist() == [-1.5]


def test_tiny_row_groups_share_a_shard_and_large_ones_do_not(tmp_path: Path) -> None:
    noise = -np.random.default_rng(0).random((40, 60_000)).astype(np.float32)
    lists = pa.array(list(noise), pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"rollout_log_probs": lists, "old_log_probs": lists}),
        tmp_path / "a.parquet",
        row_group_size=2,
        compression="none",
        use_dictionary=False,
    )
    dump = opened(str(tmp_path / "a.parquet"))
    assert [shard.part for shard in dump.shards] == [(i, i + 4) for i in range(0, 20, 4)]
    assert all(shard.n_bytes <= reading.MERGE_BYTES for shard in dump.shards)
    assert sum(len(r["rollout"]) for r in read_rows(dump)) == noise.size
    pq.write_table(
        pa.table({"rollout_log_probs": lists, "old_log_probs": lists}),
        tmp_path / "a.parquet",
        row_group_size=20,
        compression="none",
        use_dictionary=False,
    )
    assert [shard.part for shard in opened(str(tmp_path / "a.parquet")).shards] == [(0, 1), (1, 2)]


def test_a_row_group_that_swells_is_read_in_steps(tmp_path: Path) -> None:
    rows, length = 200, 50_000
    lists = pa.ListArray.from_arrays(
        np.arange(0, rows * length + 1, length, dtype=np.int32), pa.array(np.zeros(rows * length, np.float32))
    )
    step = pa.array(range(rows))
    pq.write_table(
        pa.table({"rollout_log_probs": lists, "old_log_probs": lists, "step": step}),
        tmp_path / "a.parquet",
        row_group_size=rows,
    )
    dump = opened(str(tmp_path / "a.parquet"), group_by=("step",))
    (shard,) = dump.shards
    assert shard.n_bytes < 1 << 20
    tables = list(reading.read(shard, dump.roles, 10**9))
    assert len(tables) > 2
    assert max(t.data.nbytes for t in tables) <= 2 * 4 * reading.STEP_TOKENS[1]
    assert [key for b in batches(dump, shard, 10**9) for (_, key) in b.group_keys] == list(range(rows))


def test_rowless_files_open_and_yield_nothing(tmp_path: Path) -> None:
    schema = pa.schema({"rollout_log_probs": pa.list_(pa.float32()), "old_log_probs": pa.list_(pa.float32())})
    assert read_rows(opened(parquet(tmp_path / "a.parquet", [], schema))) == []
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        writer.write_table(schema.empty_table())
    assert read_rows(opened(str(tmp_path / "b.parquet"))) == []


def test_dots_in_names_are_no_paths(tmp_path: Path) -> None:
    rows = [{"a.b": [-1.0], "a": [-2.0], "a.c": 1}]
    dump = opened(
        parquet(tmp_path / "a.parquet", rows),
        group_by=("a.c",),
        columns={"rollout_log_probs": "a.b", "old_log_probs": "a"},
    )
    (found,) = read_rows(dump)
    assert (found["rollout"], found["train"], found["key"]) == ([-1.0], [-2.0], (1,))


@pytest.mark.parametrize("damage", [lambda b: b"x" * len(b), lambda b: b[:-9], lambda b: b[:40]])
def test_a_damaged_footer_is_an_error_that_names_the_file(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "a.parquet"
    parquet(path, plain(50))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"a.parquet cannot be read as Parquet"):
        opened(str(path))


def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet(path, plain(500), compression="zstd")
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.parquet cannot be read as Parquet"):
        read_rows(opened(str(path)))


def test_a_file_that_vanishes_is_an_error_that_names_it(tmp_path: Path) -> None:
    dump = opened(parquet(tmp_path / "a.parquet", plain(3)))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DataError, match=r"a.parquet cannot be read"):
        read_rows(dump)


def test_keys_that_are_not_utf8_stand_escaped(tmp_path: Path) -> None:
    broken = pa.StringArray.from_buffers(1, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe"))
    pq.write_table(pa.Table.from_pylist(plain(1)).append_column("uid", broken), tmp_path / "a.parquet")
    assert read_rows(opened(str(tmp_path / "a.parquet"), group_by=("uid",)))[0]["key"] == ("\\xff\\xfe",)


@pytest.mark.parametrize("others", [0, 1])
def test_a_row_of_millions_of_tokens_is_refused(others: int, tmp_path: Path) -> None:
    n = ROW_TOKENS + 1
    offsets = pa.array([0, *[n] * (1 + others)], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(np.full(n, -0.5, np.float32)))
    pq.write_table(pa.table({"rollout_log_probs": lists, "old_log_probs": lists}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet.* has .*tokens"):
        read_rows(opened(str(tmp_path / "a.parquet")))


def test_an_encrypted_file_says_so(tmp_path: Path) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes

    factory = encryption.CryptoFactory(lambda _: Keys())
    table = pa.Table.from_pylist(plain(1))
    for plaintext_footer in (True, False):
        columns = {"key": ["old_log_probs.list.element"]}
        how = encryption.EncryptionConfiguration("key", column_keys=columns, plaintext_footer=plaintext_footer)
        properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
        pq.write_table(table, tmp_path / "a.parquet", encryption_properties=properties)
        with pytest.raises(DataError, match=r"a.parquet cannot be read as Parquet") as caught:
            read_rows(opened(str(tmp_path / "a.parquet")))
        assert caught.value.hint == "It is encrypted: decrypt it first."


def test_a_type_that_arrow_does_not_read_is_no_damage(tmp_path: Path) -> None:
    frame = polars.DataFrame(plain(1)).with_columns(n=polars.lit(1, polars.Int128))
    frame.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"64 bits not implemented") as caught:
        read_rows(opened(str(tmp_path / "a.parquet")))
    assert caught.value.hint == "Write it again in types that Arrow reads."


def test_a_footer_is_let_go_of_with_its_shard(tmp_path: Path) -> None:
    # Parsed it takes sixty times its bytes, and a dump may have thousands of shards: what waits for the garbage
    # collector makes memory grow along the dump.
    paths = [parquet(tmp_path / f"{i}.parquet", plain(4)) for i in range(3)]
    gc.collect()
    gc.disable()
    try:
        before = _footers()
        assert len(read_rows(opened(paths))) == 12
        assert _footers() == before
    finally:
        gc.enable()


def _footers() -> int:
    return sum(type(held) is pq.FileMetaData for held in gc.get_objects())
