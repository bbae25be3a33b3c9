"""prime-rl's micro batches in msgpack, held to files of its own sender, and files that were made to harm."""

import time
from pathlib import Path

import pytest
from msgspec.msgpack import decode, encode

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import find_noting
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "prime-rl"
FORMAT = "prime-rl-batches"
RIGHT = "prime-rl/expected_rank_bin.parquet"
FILES = tuple(f"rollouts/step_{step}/rank_{rank}.bin" for step in (7, 8) for rank in (0, 1))
COLUMNS = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "step",
    "worker",
    "source",
    "micro_batch",
    "sequence",
)
NIL = b"\xc0"
ONE_TOKEN = {0: b"\x91\x05", 1: b"\x91\xc3", 2: b"\x91\xc0", 3: b"\x91\xc0", 5: b"\x91\x01", 7: b"\x91\xa1x"}
"""Fields of a micro batch of one token."""


@pytest.mark.parametrize("name", FILES)
def test_a_rank_gives_the_sequences_that_it_was_sent(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected(RIGHT, name), *COLUMNS)


def test_a_folder_gives_each_rank_of_each_step() -> None:
    agree(rows_of([FOLDER / "rollouts"], FORMAT), expected(RIGHT, *FILES), *COLUMNS)


def test_analyze_says_where_prime_rl_writes_the_trained_policy() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / FILES[0]))
    assert "trainer.enable_token_export" in caught.value.hint


NEW_FILES = ("live/batches/step_5/rank_1.bin", "exact/batches/step_3/rank_1.bin")


@pytest.mark.parametrize("name", NEW_FILES)
def test_a_rank_of_19_fields_gives_traces_branches_and_kept_sets(name: str) -> None:
    rows, right = rows_of([FOLDER / "runs" / name]), expected("prime-rl/expected_batches.parquet", name)
    agree(rows, right, *COLUMNS, "sample_id", "branch")
    assert [row.get("kept_set_size") for row in rows] == [row["kept"] for row in right]


def test_a_run_is_read_by_its_monitor_and_its_batches_are_told_to_be_left_out() -> None:
    rows = rows_of([FOLDER / "runs" / "live"])
    assert {row["source_file"].split("/")[-2] for row in rows} == {"stream"}
    _, notes = find_noting([str(FOLDER / "runs" / "live")])
    assert "rank_1.bin is left out: the run's monitor has the same sequences, with the trainer's log-probs." in notes
    assert len(rows_of([FOLDER / "runs" / "live"], FORMAT)) == 4


def written(path: Path, *micro_batches: bytes) -> Path:
    path.write_bytes(bytes([0x90 + len(micro_batches)]) + b"".join(micro_batches))
    return path


def micro_batch(fields: dict[int, bytes], n_fields: int = 16) -> bytes:
    return b"\xdc\x00" + bytes([n_fields]) + b"".join(fields.get(place, NIL) for place in range(n_fields))


def int32(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little", signed=True) for value in values)


ADDED = {
    "mask at 16, ids after it": (19, {16: encode([int32(5, 6), int32(2), None]), 17: ["t"], 18: [3]}),
    "ids at 16, no mask": (18, {16: ["t"], 17: [3]}),
    "a payload after all": (20, {16: encode([int32(5, 6), int32(2)]), 17: ["t"], 18: [3], 19: {"a": [1]}}),
    "nothing in any": (19, {}),
    "no ids": (19, {16: encode([int32(5, 6), int32(2), bytes(8)])}),
    "whole numbers that follow no ids": (19, {16: [4]}),
    "a branch without a name": (19, {17: [None], 18: [None]}),
}


@pytest.mark.parametrize("what", ADDED)
def test_added_fields_are_told_by_their_type(what: str, tmp_path: Path) -> None:
    n_fields, fields = ADDED[what]
    added = {place: value if isinstance(value, bytes) else encode(value) for place, value in fields.items()}
    (row,) = rows_of([written(tmp_path / "rank_0.bin", micro_batch({**ONE_TOKEN, **added}, n_fields))])
    named = ["t"] in fields.values()
    assert (row.get("sample_id"), row.get("branch")) == (("t", 3) if named else (None, None))
    assert row.get("kept_set_size") == ([2] if isinstance(fields.get(16), bytes) else None)


def test_environments_are_named_of_each_token_or_of_each_sequence(tmp_path: Path) -> None:
    two = {
        0: b"\x93\x05\x06\x07",
        1: b"\x93\xc3\xc3\xc3",
        **dict.fromkeys((2, 3), encode([-0.5] * 3)),
        5: encode([1, 2]),
    }
    for names in (["a", "b", "b"], ["a", "b"]):
        rank = written(tmp_path / "rank_0.bin", micro_batch({**two, 7: encode(names)}))
        assert [row["source"] for row in rows_of([rank])] == ["a", "b"]
    with pytest.raises(DataError, match="env_names has 4 values"):
        rows_of([written(tmp_path / "rank_0.bin", micro_batch({**two, 7: encode(["a"] * 4)}))])


WRONG_ADDED = {
    "sampling_mask has other token ids": {16: encode([int32(5), int32(2), None])},
    "sampling_mask is not": {16: encode([int32(5), b"abc", None])},
    "sampling_mask has 2 values": {16: encode([int32(5, 6), int32(1, 1)])},
    "trace_ids has 2 values": {17: encode(["a", "b"]), 18: encode([0, 0])},
    "branch_indices is not a list of one kind": {17: encode(["a"]), 18: encode([0, "b"])},
}


@pytest.mark.parametrize("what", WRONG_ADDED)
def test_added_fields_that_do_not_fit_are_an_error(what: str, tmp_path: Path) -> None:
    rank = written(tmp_path / "rank_0.bin", micro_batch({**ONE_TOKEN, **WRONG_ADDED[what]}, 19))
    with pytest.raises(DataError, match=what):
        rows_of([rank])


def test_reference_log_probs_are_a_column_where_a_micro_batch_has_them(tmp_path: Path) -> None:
    rank = written(tmp_path / "rank_0.bin", micro_batch(ONE_TOKEN), micro_batch({**ONE_TOKEN, 9: encode([-0.5])}))
    assert [row["ref_log_probs"] for row in rows_of([rank])] == [None, [-0.5]]


def test_numbers_of_any_width_are_read_as_they_are(tmp_path: Path) -> None:
    fields = {
        0: encode([1, 200, 70_000, 2**40]),
        1: encode([True, True, False, True]),
        2: encode([1, 0.5, None, 2]),
        3: b"\x94\xca\xbf\x00\x00\x00" + encode(-1.25) + encode(0) + encode(-3.5),
        5: encode([4]),
        7: encode(["a", "a", "a", "b"]),
    }
    (row,) = rows_of([written(tmp_path / "rank_0.bin", micro_batch(fields))])
    assert row["token_ids"] == [1, 200, 70_000, 2**40]
    assert row["advantages"] == [1.0, 0.5, None, 2.0]
    assert row["rollout_log_probs"] == [-0.5, -1.25, 0.0, -3.5]


def test_whole_numbers_as_wide_as_floats_are_not_taken_for_floats(tmp_path: Path) -> None:
    rank = written(tmp_path / "rank_0.bin", micro_batch({**ONE_TOKEN, 2: encode([2**40])}))
    assert rows_of([rank])[0]["advantages"] == [2.0**40]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    whole = (FOLDER / name).read_bytes()
    for part in range(1, 7):
        path = tmp_path / "rank_0.bin"
        path.unlink(missing_ok=True)
        path.write_bytes(whole[: len(whole) * part // 7])
        with pytest.raises(DataError, match=r"rank_0\.bin: its msgpack ends early or is broken"):
            rows_of([path])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, encode([1.5]), "input_ids is not a list of one kind"),
        (0, encode([2**64 - 1]), "input_ids is not a list of whole numbers"),
        (0, encode({"a": 1}), "input_ids is not a list"),
        (1, encode([1]), "loss_mask is not a list of true and false"),
        (2, b"\x91\xd6\xff\x00\x00\x00\x01", "advantages is not a list of one kind"),
        (3, encode([-1.0, -2.0]), "inference_logprobs has 2 values, input_ids has 1"),
        (5, encode([2, -1]), "sequence_lengths do not add up to its 1 tokens"),
        (5, encode([2]), "sequence_lengths do not add up to its 1 tokens"),
        (7, encode([5]), "env_names is not a list of one kind"),
        (7, b"\x91\xa1\xff", "its msgpack ends early or is broken"),
    ],
)
def test_a_field_of_another_kind_is_named_with_its_micro_batch(
    tmp_path: Path, place: int, value: bytes, message: str
) -> None:
    rank = written(tmp_path / "rank_0.bin", micro_batch(ONE_TOKEN), micro_batch({**ONE_TOKEN, place: value}))
    with pytest.raises(DataError, match=rf"rank_0\.bin: micro batch 1: {message}"):
        rows_of([rank])


HOSTILE = {
    "lists in lists": micro_batch({**ONE_TOKEN, 11: b"\x91" * 3_000_000 + NIL}),
    "maps in maps": micro_batch({**ONE_TOKEN, 11: b"\x81\xc0" * 3_000_000 + NIL}),
    "lists in a list of names": micro_batch({**ONE_TOKEN, 7: b"\x91" * 3_000_000 + NIL}),
    "a list of 2^32 values": micro_batch({**ONE_TOKEN, 0: b"\xdd\xff\xff\xff\xff\x01"}),
    "a map of 2^32 values": micro_batch({**ONE_TOKEN, 11: b"\xdf\xff\xff\xff\xff\x01"}),
    "bytes of 4 GiB": micro_batch({**ONE_TOKEN, 11: b"\xc6\xff\xff\xff\xff"}),
    "fields of fifteen": b"\xdc\x00\x0f" + NIL * 15,
}
"""Micro batches that cost more than they weigh where they are decoded as they say."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_micro_batch_that_was_made_to_harm_is_refused_at_once(tmp_path: Path, name: str) -> None:
    rank = written(tmp_path / "rank_0.bin", micro_batch(ONE_TOKEN), HOSTILE[name])
    start = time.process_time()
    with pytest.raises(DataError, match=r"rank_0\.bin"):
        rows_of([rank])
    assert time.process_time() - start < 30, "hung rather than refused"


def test_a_micro_batch_of_more_tokens_than_are_read_is_refused(tmp_path: Path) -> None:
    fields = {**ONE_TOKEN, 0: b"\xdd\x00\x40\x00\x01" + b"\x05" * 4_194_305}
    with pytest.raises(DataError, match="input_ids has 4,194,305 values; at most 4,194,304 are read"):
        rows_of([written(tmp_path / "rank_0.bin", micro_batch(fields))])


@pytest.mark.parametrize("n", [1_000_000, 2**32 - 1])
def test_a_file_of_more_micro_batches_than_any_has_is_refused(tmp_path: Path, n: int) -> None:
    path = tmp_path / "rank_0.bin"
    path.write_bytes(b"\xdd" + n.to_bytes(4, "big") + micro_batch(ONE_TOKEN) + micro_batch({}) * 1_000_000)
    refused = r"not a msgpack array of micro batches, or is incomplete|1,000,000 micro batches"
    with pytest.raises(DataError, match=refused):
        rows_of([path])


def test_no_other_file_of_that_suffix_is_taken_for_one(tmp_path: Path) -> None:
    others = (b"\x93\x01\x02\x03", b"\x90", encode([[1] * 15]), encode([[[1]] * 17]), bytes(4), b"\x91")
    for i, content in enumerate(others):
        (tmp_path / f"{i}.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"holds no dump, but 6 files \(6 \.bin\)"):
        rows_of([tmp_path])


def test_the_fixture_is_what_its_own_library_reads() -> None:
    micro_batches = decode((FOLDER / FILES[0]).read_bytes())
    assert {len(fields) for fields in micro_batches} == {16}
