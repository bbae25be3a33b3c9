import gzip
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dumps import compressed, jsonl, opened, parquet, plain, read_rows, row
from few import few
from limits import LIMIT_SECONDS

from rlcorr_cli.errors import DataError
from rlcorr_cli.reading import jsonl as reading, streams
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.find import find
from rlcorr_cli.reading.request import PlanColumns

ROOT = Path(__file__).parents[2]


def restamped(dump: Dump) -> Dump:
    """The same shards of a file that was written again."""
    (source,) = find([dump.sources[0].path])
    return replace(dump, shards=tuple(replace(shard, stamp=source.stamp) for shard in dump.shards))


def cut(dump: Dump, range_bytes: int) -> Dump:
    (source,) = dump.sources
    pieces = reading.parts(source, dump.indexes[source.path], dump.roles, range_bytes)
    shards = [replace(dump.shards[0], index=i, part=part, n_bytes=n) for i, (part, n) in enumerate(pieces)]
    assert sum(shard.n_bytes for shard in shards) == source.n_bytes
    return replace(dump, shards=tuple(shards))


def test_the_head_of_a_pipe_is_told_before_more_comes() -> None:
    """So a signal ends a run that waits for its standard input."""
    line = b'{"a": [-0.5]}\n'
    reads, writes = os.pipe()
    found: list[streams.Stdin] = []
    with open(reads, "rb") as source, open(writes, "wb") as sink:
        waiting = threading.Thread(target=lambda: found.append(streams.Stdin(source)), daemon=True)
        waiting.start()
        sink.write(line * (streams.HEAD_BYTES // len(line) + 3))
        sink.flush()
        waiting.join(LIMIT_SECONDS / 10)
        is_told = bool(found)
        sink.close()  # else a thread would wait for ever where it is not
        waiting.join(LIMIT_SECONDS)
    assert is_told
    assert found[0].head.lines[0] == line


def test_typed_decoding_takes_plain_lines_and_leaves_many_short_ones() -> None:
    lists = pa.schema([("a", reading.FLOATS), ("b", reading.FLOATS)])
    masked = lists.append(pa.field("m", reading.FLAGS)).append(pa.field("id", pa.string()))
    for schema, line in (
        (lists, b'{"a": [-0.5, -1], "b": [-0.25, -2.5]}\n'),
        (masked, b'{"a": [-0.5, -1], "b": [-0.25, -2.5], "m": [true, false], "id": "x"}\n'),
    ):
        table = reading._typed([line] * 3, schema, "m" if "m" in schema.names else None)
        assert table is not None
        assert table.column("a").to_pylist() == [[-0.5, -1.0]] * 3
        assert reading._typed([line] * 2000, schema, None) is None


@pytest.mark.parametrize("ending", few(["\n", "\r\n", "\n\n \n"], ["\r\n"]))
@pytest.mark.parametrize("last", [True, False])
def test_byte_ranges_of_any_size_read_every_line_once(tmp_path: Path, ending: str, last: bool) -> None:
    rows = plain(3, uid="é")
    text = ending.join(json.dumps(r, ensure_ascii=False) for r in rows) + (ending if last else "")
    (tmp_path / "a.jsonl").write_bytes(text.encode())
    dump = opened(str(tmp_path / "a.jsonl"))
    whole = read_rows(dump)
    assert len(whole) == 3
    for range_bytes in range(1, len(text.encode()) + 2):
        assert read_rows(cut(dump, range_bytes)) == whole


def test_large_plain_files_have_several_shards_and_compressed_ones_one(tmp_path: Path) -> None:
    text = "".join(json.dumps(row([-1.0], [-1.5], n=i, prompt="long " * 2000)) + "\n" for i in range(1700))
    (tmp_path / "a.jsonl").write_text(text)
    dump = opened(str(tmp_path / "a.jsonl"), group_by=("n",))
    assert len(dump.shards) == 2
    assert all(s.n_bytes <= reading.RANGE_BYTES for s in dump.shards)
    assert [r["key"] for r in read_rows(dump)] == [(i,) for i in range(1700)]
    for codec in ("gzip", "zstd"):
        packed = opened(compressed(tmp_path / "a.packed", text, codec), group_by=("n",))
        assert [s.part for s in packed.shards] == [None]
        assert [r["key"] for r in read_rows(packed)] == [(i,) for i in range(1700)]


def test_a_stream_may_lack_its_last_line_end(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(r) for r in plain(3))
    for codec in ("gzip", "zstd"):
        assert len(read_rows(opened(compressed(tmp_path / "a.packed", text, codec)))) == 3


def test_keys_may_mix_booleans_and_numbers(tmp_path: Path) -> None:
    rows = plain(1, ok=True) + plain(1, ok=0) + plain(1, ok=2.5)
    assert [r["key"] for r in read_rows(opened(jsonl(tmp_path / "a.jsonl", rows), group_by=("ok",)))] == [
        (1,),
        (0,),
        (2.5,),
    ]


def test_members_of_a_gzip_file_are_all_read(tmp_path: Path) -> None:
    lines = [json.dumps(r).encode() + b"\n" for r in plain(4)]
    (tmp_path / "a.jsonl.gz").write_bytes(b"".join(gzip.compress(line) for line in lines))
    assert len(read_rows(opened(str(tmp_path / "a.jsonl.gz")))) == 4


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_truncated_stream_is_an_error_that_names_the_file(tmp_path: Path, codec: str) -> None:
    noise = -np.random.default_rng(0).random(30_000)
    text = "".join(json.dumps(row(noise.tolist(), noise.tolist(), n=i)) + "\n" for i in range(3))
    path = Path(compressed(tmp_path / "a.jsonl.x", text, codec))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a.jsonl.x cannot be read: .*runcated"):
        read_rows(opened(str(path)))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"a.jsonl.x cannot be read: .*runcated"):
        opened(str(path))


def test_bare_nan_and_infinity_are_read_and_null_is_nan(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"rollout_log_probs": [NaN, -1, Infinity, null], "old_log_probs": [-Infinity, -2.5, null, NaN],'
        ' "response_mask": [0, 1, 0, 0], "reward": null}\n'
        '{"rollout_log_probs": [], "old_log_probs": [], "response_mask": [], "reward": NaN}\n'
    )
    first, second = read_rows(opened(str(tmp_path / "a.jsonl")))
    assert (first["rollout"], first["train"], first["n_masked"]) == ([-1.0], [-2.5], 3)
    assert second["rollout"] == []
    assert np.isnan(first["reward"])
    assert np.isnan(second["reward"])


HARD = (
    *("-0", "-0.0", "-0e5", "0", "-1", "-1E+1", "-5e-324", "-2.4703282292062328e-324", "-2.4703282292062327e-324"),
    *("-2.2250738585072011e-308", "-1e-400", "-0.1", "-0.30000000000000004", "-8.41E-1", "-1.5", "-7.038531e-26"),
    *("-1.00000000000000011102230246251565", "-1.000000000000000111022302462515654", "-9.5367431640625e-07"),
    *("-0.500000000000000166533453693773481063544750213623046875", "-12.123456789012345678901234567890"),
)


@pytest.mark.parametrize("masked", ["-1", "null", "NaN", "1" + "0" * 400])
def test_numbers_are_the_nearest_doubles_whoever_parses_them(tmp_path: Path, masked: str) -> None:
    column, ones = ", ".join((*HARD, masked)), ", ".join("1" * len(HARD))
    line = f'{{"rollout_log_probs": [{column}], "old_log_probs": [{column}], "response_mask": [{ones}, 0]}}'
    (tmp_path / "a.jsonl").write_text(line)
    (read,) = read_rows(opened(str(tmp_path / "a.jsonl")))
    assert [value.hex() for value in read["rollout"]] == [float(text).hex() for text in HARD]


@pytest.mark.parametrize("reward", ["-0", "-0.0", "1e400", "123456789012345678901234567890", "null"])
def test_a_number_of_a_row_is_read_as_it_stands(tmp_path: Path, reward: str) -> None:
    lines = [json.dumps(row([-1.0], [-1.0], reward=0.5)).replace("0.5", text) for text in ("0.5", reward)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    _, read = read_rows(opened(str(tmp_path / "a.jsonl")))
    assert str(read["reward"]) == str(float(reward.replace("null", "nan")))


def test_columns_of_any_name_are_read(tmp_path: Path) -> None:
    names = ('say "a"', "a\\b", "a/b", "é\n", "ключ", "class", "c0")
    lines = [json.dumps(row([-1.0], [-1.0], **dict.fromkeys(names, i))) for i in range(3)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in names:
        assert [r["key"] for r in read_rows(opened(str(tmp_path / "a.jsonl"), group_by=(name,)))] == [(0,), (1,), (2,)]


def test_a_key_that_a_line_has_elsewhere_too_is_not_there_twice(tmp_path: Path) -> None:
    rows = [row([-1.0], [-1.0], uid=uid, meta={"uid": 1, "say": '"uid": 2'}) for uid in ("uid", "old_log_probs")]
    read = read_rows(opened(jsonl(tmp_path / "a.jsonl", rows), group_by=("uid",)))
    assert [r["key"] for r in read] == [("uid",), ("old_log_probs",)]


MIXED: list[tuple[Any, Any]] = [
    ([1, 0], [1.0, 0.0]),
    ([1, 0], [True, False]),
    ([True, False], [1, 0]),
    ([1.0, 0.0], [1, False]),
]


@pytest.mark.parametrize(("first", "second"), MIXED)
def test_masks_of_mixed_kinds_are_read(tmp_path: Path, first: Any, second: Any) -> None:
    rows = [row([-1.0, -2.0], [-1.0, -2.0], mask, step=i) for i, mask in enumerate((first, second))]
    assert [r["rollout"] for r in read_rows(opened(jsonl(tmp_path / "a.jsonl", rows)))] == [[-1.0], [-1.0]]


def test_a_lag_is_read_where_the_step_is_part_of_an_id_too(tmp_path: Path) -> None:
    masks = ([1, 1], [True, 1], [1, 0])  # of mixed kinds, so that pyarrow refuses the lines
    rows = [
        row([-1.0, -2.0], [-1.0, -2.0], mask, sample_id=f"r{i}", step=3, policy_version=i)
        for i, mask in enumerate(masks)
    ]
    dump = opened(jsonl(tmp_path / "a.jsonl", rows), group_by=("lag",))
    assert [r["key"] for r in read_rows(dump)] == [(3,), (2,), (1,)]


@pytest.mark.parametrize("mask", [1, True])
def test_a_step_that_a_gap_is_looked_for_in_stays_a_number(tmp_path: Path, mask: Any) -> None:
    """It is part of an id, too, and ids become text where Python reads the lines."""
    rows = [row([-1.0], [-1.0], [value], sample_id=f"r{i}", step=3) for i, value in enumerate((1, mask))]
    dump = opened(jsonl(tmp_path / "a.jsonl", rows), PlanColumns(levels=True))
    (read,) = dump.reader.rows(dump.shards[0], 100)
    assert read.data.column("step").to_pylist() == [3, 3]


def test_kinds_that_change_after_the_first_rows_are_read(tmp_path: Path) -> None:
    n = reading.LOOKED_AT
    rows = [*plain(n, step=None, level=1, reward=0), plain(1, step="s", level=1.5, reward=0.5)[0], *plain(1)]
    dump = opened(jsonl(tmp_path / "a.jsonl", rows), group_by=("step", "level"))
    rows_read = read_rows(dump)
    assert [r["key"] for r in rows_read[-3:]] == [(None, 1), ("s", 1.5), (None, None)]
    assert rows_read[n]["reward"] == 0.5
    assert np.isnan(rows_read[n + 1]["reward"])


LINES: list[tuple[bytes, str]] = [
    (b'{"rollout_log_probs": [-1.0], "old_log', "line 5 is not JSON: "),
    (b'{"rollout_log_probs": ', "line 5 is not JSON: Expecting value at column 23"),
    (b"[1, 2]", "line 5 is an array, not an object"),
    (b"null", "line 5.* is null"),
    (b'{"uid": "\xff\xfe", "rollout_log_probs": [], "old_log_probs": []}', "line 5 is not UTF-8 at byte 9"),
    (b'{"rollout_log_probs": ["-1"], "old_log_probs": [-1]}', "line 5 has a string in rollout_log_probs"),
    (b'{"rollout_log_probs": [false], "old_log_probs": [-1]}', "line 5 has a boolean in rollout_log_probs"),
    (b'{"rollout_log_probs": -1.0, "old_log_probs": [-1]}', "line 5 has a number in rollout_log_probs"),
    (b'{"rollout_log_probs": [-1], "old_log_probs": [-1], "uid": 3}', "line 5 has a number in uid"),
    (b'{"rollout_log_probs": [-1], "old_log_probs": [-1]} {}', "line 5 is not JSON: Extra data"),
    (b'{"rollout_log_probs": [-1],\n "old_log_probs": [-1]}', "line 5 is not JSON"),
    (b'{"rollout_log_probs": [-1, -1], "old_log_probs": [-1]}', "line 5: old_log_probs has 1 token"),
    (b'{"rollout_log_probs": [-1]}', "line 5: old_log_probs is null"),
    (b'{"rollout_log_probs": [-1], "old_log_probs": [1e400]}', r"line 5: old_log_probs\[0\] is inf"),
    (
        b'{"rollout_log_probs": [-1], "old_log_probs": [-1], "old_log_probs": [-2]}',
        "line 5 has the key old_log_probs twice",
    ),
    (
        b'{"rollout_log_probs": [-1], "uid": "x", "old_log_probs": [-1], "\\u0075id": "y"}',
        "line 5 has the key uid twice",
    ),
    (b'{"rollout_log_probs": [-1], "old_log_probs": [null]}', r"line 5: old_log_probs\[0\] is null"),
    (b'{"rollout_log_probs": [0.5], "old_log_probs": [-1]}', r"line 5: rollout_log_probs\[0\] is 0.5"),
]


@pytest.mark.parametrize(("line", "message"), LINES)
@pytest.mark.parametrize("range_bytes", few([100, 10**6], [100]))
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: bytes, message: str, range_bytes: int) -> None:
    good = b'{"uid": "x", "rollout_log_probs": [-1.0], "old_log_probs": [-1]}\n'
    # Blank lines count, and the bad line lies past the rows that are looked at when opening.
    before = good + b"\n" + good + b"  \n"
    path = tmp_path / "a.jsonl"
    path.write_bytes(before + good)
    dump = opened(str(path), group_by=("uid",))
    path.write_bytes(before + line + b"\n" + good)
    dump = restamped(dump)
    with pytest.raises(DataError, match=f"a.jsonl, {message}") as caught:
        read_rows(cut(dump, range_bytes))
    assert caught.value.hint


def test_what_is_not_read_of_a_later_line_may_be_of_any_depth(tmp_path: Path) -> None:
    text = "x" * 3998
    path = Path(jsonl(tmp_path / "a.jsonl", plain(3, meta=text)))
    dump = opened(str(path))
    whole = read_rows(dump)
    path.write_text(path.read_text().replace(f'"{text}"', "[" * 2000 + "]" * 2000))
    assert read_rows(restamped(dump)) == whole


def test_a_bad_first_line_is_named_when_opening(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('\n[{"rollout_log_probs": [-1.0]}]\n')
    with pytest.raises(DataError, match=r"a.jsonl, line 2 is an array, not an object"):
        opened(str(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").write_text("\n \n")
    with pytest.raises(DataError, match=r"a.jsonl has no rows"):
        opened(str(tmp_path / "a.jsonl"))


def test_a_bad_line_of_a_compressed_file_keeps_its_number_in_later_blocks(tmp_path: Path) -> None:
    long = json.dumps(row([-1.0] * 4, [-1.0] * 4, prompt="long " * 5000)) + "\n"
    text = long * 700 + json.dumps(row([-1.0], [0.5])) + "\n"
    path = compressed(tmp_path / "a.jsonl.zst", text, "zstd")
    with pytest.raises(DataError, match=r"line 701: old_log_probs\[0\] is 0.5"):
        read_rows(opened(path))


def test_keys_of_strings_and_numbers_do_not_mix(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", plain(reading.LOOKED_AT) + plain(1, uid=1) + plain(1, uid="1"))
    (tmp_path / "b.jsonl").write_text(json.dumps(plain(1, uid=None)[0]) + "\n" + Path(path).read_text())
    with pytest.raises(DataError, match=r"uid mixes strings and numbers"):
        read_rows(opened(str(tmp_path / "b.jsonl"), group_by=("uid",)))


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = Path(jsonl(tmp_path / "a.jsonl", plain(3)))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_rows(opened(str(path)))) == 3
    packed = compressed(tmp_path / "b.jsonl.gz", path.read_text(), "gzip")
    assert len(read_rows(opened(packed))) == 3


def test_a_first_line_longer_than_the_head_is_read(tmp_path: Path) -> None:
    n = 150_000
    rows = [row([-1.25] * n, [-1.5] * n, [1] * n), *plain(1)]
    for path in (jsonl(tmp_path / "a.jsonl", rows), jsonl(tmp_path / "b.jsonl", rows[:1])):
        assert len(read_rows(cut(opened(path), 1 << 18))[0]["rollout"]) == n


def test_parquet_and_jsonl_make_one_dump(tmp_path: Path) -> None:
    paths = [parquet(tmp_path / "a.parquet", plain(2, step=1)), jsonl(tmp_path / "b.jsonl", plain(3, step=2))]
    assert [r["key"] for r in read_rows(opened(paths, group_by=("step",)))] == [(1,)] * 2 + [(2,)] * 3


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:]
from dumps import opened, read_rows
from rlcorr_cli.errors import UsageError
dump = opened("-", group_by=("n",))
rows = read_rows(dump)
print(len(rows), [r["key"][0] for r in rows] == list(range(len(rows))), dump.sources[0].path)
try:
    read_rows(dump)
except UsageError as error:
    print(error.message)
"""


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_standard_input_is_read_whole_and_only_once(tmp_path: Path, codec: str | None) -> None:
    noise = [round(-0.001 * i, 3) for i in range(1000)]
    text = "".join(json.dumps(row(noise, noise, n=i)) + "\n" for i in range(300))
    path = compressed(tmp_path / "in", text, codec) if codec else str(tmp_path / "in")
    if not codec:
        Path(path).write_text(text)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT), str(Path(__file__).parent)],
        input=Path(path).read_bytes(),
        capture_output=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    assert run.stdout.decode().splitlines() == ["300 True -", "Standard input can be read only once."]


@pytest.mark.parametrize("value", ["0.99999999", "1.00000001", "1e-50"])
def test_a_mask_is_compared_as_it_stands(tmp_path: Path, value: str) -> None:
    lines = [json.dumps(row([-1.0], [-1.0], mask)) for mask in ([1], [1.0], [True])]
    (tmp_path / "a.jsonl").write_text("\n".join(line.replace("[1.0]", f"[{value}]") for line in lines))
    with pytest.raises(DataError, match=r"line 2: response_mask\[0\] is .*; a mask holds 0 and 1"):
        read_rows(opened(str(tmp_path / "a.jsonl")))


def test_a_late_mask_may_be_spelled_with_escapes(tmp_path: Path) -> None:
    unmasked = {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0], "say": "é: response_mask"}
    rows = [unmasked] * reading.LOOKED_AT
    late = json.dumps(row([-1.0], [-1.0], [0])).replace("response_mask", "\\u0072esponse\\u005Fmask")
    path = Path(jsonl(tmp_path / "a.jsonl", rows))
    assert len(read_rows(opened(str(path)))) == len(rows)
    path.write_text(path.read_text() + late + "\n")
    with pytest.raises(DataError, match=rf"line {len(rows) + 1} has response_mask, which"):
        read_rows(opened(str(path)))


def test_a_mask_that_first_appears_late_is_an_error_with_its_line(tmp_path: Path) -> None:
    unmasked = {"rollout_log_probs": [-1.0, -2.0], "old_log_probs": [-1.0, -2.0]}
    rows = [unmasked] * reading.LOOKED_AT + [{**unmasked, "response_mask": [1, 0]}]
    path = jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match=f"line {reading.LOOKED_AT + 1} has response_mask"):
        read_rows(opened(path))


def test_a_nested_key_that_looks_like_a_mask_is_none(tmp_path: Path) -> None:
    nested = {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0], "meta": {"loss_mask": 1}}
    path = jsonl(tmp_path / "a.jsonl", [nested, nested])
    assert len(read_rows(opened(path))) == 2


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a"])
@pytest.mark.parametrize("first", [0x50, 0x5F])
def test_zstd_that_begins_with_a_skippable_frame_is_read(tmp_path: Path, name: str, first: int) -> None:
    rows = plain(3)
    frames = [pa.compress(json.dumps(one).encode() + b"\n", codec="zstd", asbytes=True) for one in rows]
    skipped = bytes([first]) + b"\x2a\x4d\x18\x04\x00\x00\x00size"  # as pzstd has it before each frame
    (tmp_path / name).write_bytes(b"".join(skipped + frame for frame in frames))
    assert len(read_rows(opened(str(tmp_path / name)))) == 3


def test_zstd_of_too_large_a_window_says_what_to_do(tmp_path: Path) -> None:
    window = 31
    header = b"\x28\xb5\x2f\xfd\x00" + bytes([(window - 10) << 3])
    line = json.dumps(plain(1)[0]).encode() + b"\n"
    (tmp_path / "a.jsonl.zst").write_bytes(header + (len(line) << 3 | 1).to_bytes(3, "little") + line)
    with pytest.raises(DataError, match=r"too much memory") as caught:
        opened(str(tmp_path / "a.jsonl.zst"))
    assert (
        caught.value.hint == "Compress it again with a window of 128 MiB at most, as zstd does unless told otherwise."
    )
