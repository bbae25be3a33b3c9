"""Dumps that cannot be used, each broken in one way: name -> how to build it, and what is wrong with it."""

import gzip
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).parent / "fuzz"))
import footer

NUM_ROWS, ROW_GROUPS = 3, 4
"""Fields of a Parquet footer, of a row group and of a column chunk."""
CHUNKS, METADATA = 1, 3
NUM_VALUES, COMPRESSED_SIZE, DATA_PAGE_OFFSET = 5, 7, 9
NAN, INF = float("nan"), float("inf")
ROLLOUT, OLD, MASK = "rollout_log_probs", "old_log_probs", "response_mask"
Row = dict[str, Any]
Build = Callable[[Path], str]


@dataclass(frozen=True)
class Broken:
    """build(folder): makes it there and returns what to type.  says: words of the message; what is wrong if none.

    named: whether the message names the file.  unneeded: it is wrong in a key that analyze does not look at, and that
    only a command that takes whole rows must refuse.  status: how reading it ends.
    """

    build: Build
    says: tuple[str, ...] = ()
    named: bool = True
    unneeded: bool = False
    status: int = 3


def row(rollout: Any = (-0.5, -1.0), old: Any = (-0.25, -2.0), **more: Any) -> Row:
    policies = {ROLLOUT: rollout, OLD: old}
    return {name: list(values) if isinstance(values, tuple) else values for name, values in policies.items()} | more


def masked(mask: Any, **more: Any) -> Row:
    return row(response_mask=mask, **more)


GOOD = masked([1, 1])


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


def jsonl(*rows: Mapping[str, Any]) -> Build:
    """As JSON lines, after two good rows of the same columns."""
    return written(text(rows).encode())


def written(data: bytes, name: str = "d.jsonl") -> Build:
    """Exactly these bytes."""

    def build(folder: Path) -> str:
        (folder / name).write_bytes(data)
        return str(folder / name)

    return build


def parquet(*rows: Row, schema: pa.Schema | None = None, **options: Any) -> Build:
    def build(folder: Path) -> str:
        pq.write_table(pa.Table.from_pylist(list(rows), schema), folder / "d.parquet", **options)
        return str(folder / "d.parquet")

    return build


def columns(names: Sequence[str], arrays: Sequence[Any]) -> Build:
    """Parquet of columns that Python rows cannot say."""

    def build(folder: Path) -> str:
        pq.write_table(pa.Table.from_arrays([pa.array(one) for one in arrays], list(names)), folder / "d.parquet")
        return str(folder / "d.parquet")

    return build


def whole(rows: int = 200, **options: Any) -> bytes:
    """A good Parquet file of several row groups."""
    out = pa.BufferOutputStream()
    given = [masked([1, 1], reward=i / 7) for i in range(rows)]
    pq.write_table(pa.Table.from_pylist(given), out, row_group_size=50, **options)
    return out.getvalue().to_pybytes()


def cut(share: float) -> Build:
    data = whole()
    return written(data[: int(len(data) * share)], "d.parquet")


def scribbled(first: int, last: int, **options: Any) -> Build:
    """Zeros over a range of bytes; negative ones count from the end."""
    data = bytearray(whole(**options))
    first, last = first % len(data), last % len(data)
    data[first:last] = bytes(last - first)
    return written(bytes(data), "d.parquet")


def footer_of_ones() -> bytes:
    data = whole()
    size = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - size] + b"\xff" * size + data[-8:]


def lying(change: Callable[[footer.Struct], None]) -> Build:
    """Parquet whose footer says other numbers than its pages."""
    pages, said = footer.split(whole(use_dictionary=False))
    change(said)
    return written(footer.joined(pages, said), "d.parquet")


def more_rows(of_group: int) -> Callable[[footer.Struct], None]:
    """One more in the file, and so many in its first row group."""

    def change(said: footer.Struct) -> None:
        footer.field(said, NUM_ROWS)[2] += 1
        footer.field(footer.field(said, ROW_GROUPS)[2][1][0], NUM_ROWS)[2] += of_group

    return change


def of_chunks(number: int, value: int) -> Callable[[footer.Struct], None]:
    """A number that every column chunk has."""

    def change(said: footer.Struct) -> None:
        for group in footer.field(said, ROW_GROUPS)[2][1]:
            for chunk in footer.field(group, CHUNKS)[2][1]:
                footer.field(footer.field(chunk, METADATA)[2], number)[2] = value

    return change


def packed(codec: str, change: Callable[[bytes], bytes] = lambda data: data, n: int = 2000) -> Build:
    """Compressed JSON lines, then changed."""
    plain = text([masked([1, 1], step=i) for i in range(n)]).encode()
    if codec == "gz":
        return written(change(gzip.compress(plain, mtime=0)), "d.jsonl.gz")
    return written(change(pa.compress(plain, "zstd", asbytes=True)), "d.jsonl.zst")


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 40]) + data[middle + 40 :]


def empty_folder(folder: Path) -> str:
    (folder / "dump").mkdir()
    (folder / "dump" / "notes.txt").write_text("nothing to read")
    return str(folder / "dump")


def broken_link(folder: Path) -> str:
    (folder / "d.parquet").symlink_to(folder / "gone.parquet")
    return str(folder / "d.parquet")


def link_loop(folder: Path) -> str:
    (folder / "d.jsonl").symlink_to(folder / "e.jsonl")
    (folder / "e.jsonl").symlink_to(folder / "d.jsonl")
    return str(folder / "d.jsonl")


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "d.jsonl")
    return str(folder / "d.jsonl")


def unreadable(folder: Path) -> str:
    path = jsonl(GOOD)(folder)
    Path(path).chmod(0)
    return path


def below_a_file(folder: Path) -> str:
    return written(b"", "d.jsonl")(folder) + "/d.parquet"


def named(name: str) -> Build:
    """An odd name, and rows of different lengths behind it."""

    def build(folder: Path) -> str:
        path = f"{folder}/{name}"
        with open(path, "w") as file:
            file.write(text([row([-1.0], [-1.0, -2.0])]))
        return path

    return build


def several(*builds: Build) -> Build:
    """Files of one dump, in a directory."""

    def build(folder: Path) -> str:
        (folder / "dump").mkdir()
        for i, one in enumerate(builds):
            made = Path(one(folder))
            made.rename(folder / "dump" / f"{i}-{made.name}")
        return str(folder / "dump")

    return build


def late(row: Mapping[str, Any], last: bytes | Mapping[str, Any]) -> Build:
    """Something that first appears after all the rows that types are taken from."""
    return written(text([row] * 1000).encode() + (last if isinstance(last, bytes) else text([last]).encode()))


LIST = pa.list_(pa.float32())
NESTED = pa.list_(LIST)
STRUCTS = pa.list_(pa.struct([("logprob", pa.float32())]))
GOOD_LINE = text([GOOD]).encode()
DEEP = b'{"rollout_log_probs": [-1.0], "old_log_probs": %s-1.0%s}\n' % (b"[" * 2000, b"]" * 2000)
EXTRA = b'{"rollout_log_probs": [-1.0], "old_log_probs": [-1.0], "more": %s}\n'
HALF = b'"\\ud800"'
DEEP_EXTRA = EXTRA % (b"[" * 200000 + b"]" * 200000)
ODD_NAMES = {
    "new line": "a\nb.jsonl",
    "quotes": "a'b\"c.jsonl",
    "shell": "$(touch x);`id`|& *?[a] {b}~!#.jsonl",
    "escape sequence": "\x1b[31mred\x1b[0m.jsonl",
    "rich markup": "[bold]b[red].jsonl",
    "not UTF-8": os.fsdecode(b"\xff\xfe.jsonl"),
    "right to left": "a\u202egnp.jsonl",
    "dashes": "--json.jsonl",
    "percent": "%s{0}%(x)d.jsonl",
}

BROKEN: dict[str, Broken] = {
    # nothing there
    "empty Parquet file": Broken(written(b"", "d.parquet"), ("0 bytes",)),
    "empty JSON lines": Broken(written(b""), ("0 bytes",)),
    "no rows": Broken(parquet(schema=pa.schema([(ROLLOUT, LIST), (OLD, LIST)])), ("no rows",)),
    "no columns": Broken(columns([], [])),
    "blank lines": Broken(written(b"\n \n\r\n\t\n"), ("no rows",)),
    "a byte order mark": Broken(written(b"\xef\xbb\xbf"), ("no rows",)),
    "all masked": Broken(parquet(masked([0, 0]), masked([0, 0])), ("no valid token",)),
    "all masked lines": Broken(jsonl(masked([0, 0]), masked([False, False])), ("no valid token",)),
    "no tokens": Broken(jsonl(row([], []), row([], [])), ("no token, all 2 rows are empty",)),
    "gzip of nothing": Broken(written(gzip.compress(b"", mtime=0), "d.jsonl.gz"), ("no rows",)),
    "empty objects": Broken(written(b"{}\n{}\n"), (ROLLOUT,)),
    # columns
    "no rollout policy": Broken(parquet({OLD: [-1.0]}), (ROLLOUT, "--map")),
    "no trained policy": Broken(jsonl({ROLLOUT: [-1.0]}), (OLD, "--map")),
    "two columns of one name": Broken(columns([ROLLOUT, OLD, OLD], [[[-1.0]]] * 3), (OLD,)),
    "two masks of one name": Broken(columns([ROLLOUT, OLD, MASK, MASK], [[[-1.0]]] * 2 + [[[1]]] * 2), (MASK,)),
    "two masks": Broken(parquet(masked([1, 1], loss_mask=[1, 0])), ("response_mask", "loss_mask")),
    "column of integers": Broken(parquet(row(old=-1)), (OLD, "int64")),
    "column of strings": Broken(parquet(row(old="-1.0")), (OLD, "string")),
    "column of structs": Broken(parquet(row(old={"logprob": -1.0})), (OLD, "struct")),
    "column of maps": Broken(
        columns([ROLLOUT, OLD], [[[-1.0]], pa.array([[("a", -1.0)]], pa.map_(pa.string(), pa.float32()))]), (OLD, "map")
    ),
    "column of bytes": Broken(parquet(row(old=b"\x00\x00\x80\xbf")), (OLD, "binary")),
    "column of nulls": Broken(columns([ROLLOUT, OLD], [[[-1.0]], pa.nulls(1)]), (OLD, "null")),
    "lists of strings": Broken(parquet(row(old=["-1.0", "-2.0"])), (OLD, "string")),
    "lists of structs": Broken(columns([ROLLOUT, OLD], [[[-1.0]], pa.array([[{"logprob": -1.0}]], STRUCTS)]), (OLD,)),
    "lists of lists": Broken(parquet(row([[-1.0]], [[-1.0]])), (ROLLOUT, "list")),
    "lists of decimals": Broken(
        columns([ROLLOUT, OLD], [[[-1.0]], pa.array([["-1.0"]]).cast(pa.list_(pa.decimal128(5, 2)))]), (OLD, "decimal")
    ),
    "mask of strings": Broken(parquet(masked(["1", "1"])), (MASK, "string")),
    "mask of one number": Broken(parquet(masked(1)), (MASK,)),
    # lengths
    "unequal lengths": Broken(parquet(row(), row([-1.0], [-1.0, -2.0])), ("row 1", "has 2", "has 1")),
    "unequal lengths in lines": Broken(jsonl(row(), row([-1.0], [-1.0, -2.0])), ("line 2", "has 2", "has 1")),
    "short mask": Broken(parquet(GOOD, masked([1])), ("row 1", MASK)),
    "short mask in lines": Broken(jsonl(GOOD, GOOD, masked([1])), ("line 3", MASK)),
    "null list": Broken(parquet(row(), row(old=None)), ("row 1", OLD, "null")),
    "null list in lines": Broken(jsonl(row(), row(rollout=None)), ("line 2", ROLLOUT, "null")),
    "missing key": Broken(jsonl(row(), {ROLLOUT: [-1.0]}), ("line 2", OLD)),
    "missing key much later": Broken(late(row(), {ROLLOUT: [-1.0]}), ("line 1001", OLD)),
    "null mask": Broken(parquet(GOOD, masked(None)), ("row 1", MASK)),
    "mask that ends": Broken(late(GOOD, row()), ("line 1001", MASK)),
    "mask that comes late": Broken(late(row(), GOOD), ("line 1001", MASK)),
    # values
    "null token": Broken(parquet(row(), row(old=(-1.0, None))), ("row 1", "old_log_probs[1]", "null")),
    "null token in lines": Broken(jsonl(row(), row((None, -1.0))), ("line 2", "rollout_log_probs[0]", "null")),
    "NaN": Broken(parquet(row(), row(old=(NAN, -1.0))), ("row 1", "old_log_probs[0]", "nan")),
    "NaN in lines": Broken(jsonl(row(old=(-1.0, NAN))), ("line 1", "old_log_probs[1]", "nan")),
    "infinite": Broken(parquet(masked([0, 1], old=(INF, INF))), ("row 0", "old_log_probs[1]", "inf")),
    "minus infinite": Broken(parquet(row((-1.0, -INF))), ("row 0", "rollout_log_probs[1]", "-inf")),
    "minus infinite in lines": Broken(jsonl(row((-1.0, -INF))), ("line 1", "rollout_log_probs[1]", "-inf")),
    "1e999": Broken(written(GOOD_LINE + GOOD_LINE.replace(b"-0.5", b"-1e999")), ("line 2", "inf")),
    "a number of 400 digits": Broken(written(GOOD_LINE + GOOD_LINE.replace(b"-0.5", b"-" + b"9" * 400)), ("line 2",)),
    "a number of 5,000 digits": Broken(
        written(GOOD_LINE + GOOD_LINE.replace(b"-0.5", b"-" + b"9" * 5000)), ("line 2",)
    ),
    "probabilities": Broken(parquet(row(old=(0.5, 0.9))), ("row 0", "old_log_probs[0]", "0.5")),
    "sentinel 1": Broken(parquet(row(), row((1.0, -1.0))), ("row 1", "rollout_log_probs[0]", "1")),
    "sentinel -9999": Broken(parquet(row(), row((-9999.0, -1.0))), ("row 1", "rollout_log_probs[0]", "-9999")),
    "sentinel -9999 in lines": Broken(jsonl(row(), row((-9999.0, -1.0))), ("line 2", "rollout_log_probs[0]", "-9999")),
    "sentinel -9000 itself": Broken(parquet(row((-9000.0, -1.0))), ("row 0", "rollout_log_probs[0]", "-9000")),
    "mask of 2": Broken(parquet(GOOD, masked([1, 2])), ("row 1", "response_mask[1]", "2")),
    "mask of -1": Broken(jsonl(GOOD, masked([-1, 1])), ("line 2", "response_mask[0]", "-1")),
    "mask of 0.5": Broken(parquet(masked([1.0, 0.5])), ("row 0", "response_mask[1]", "0.5")),
    "mask of null": Broken(parquet(GOOD, masked([None, 1])), ("row 1", "response_mask[0]", "null")),
    "mask of NaN": Broken(parquet(masked([1.0, NAN])), ("row 0", "response_mask[1]", "nan")),
    "boolean log-probs": Broken(jsonl(GOOD, row((True, -1.0), response_mask=[1, 1])), ("line 2", "a boolean")),
    "string in a list": Broken(jsonl(GOOD, row(("-0.5", -1.0), response_mask=[1, 1])), ("line 2", "a string")),
    "list in a list": Broken(jsonl(GOOD, row(([-0.5], -1.0), response_mask=[1, 1])), ("line 2", "an array")),
    "object in a list": Broken(jsonl(GOOD, row(({}, -1.0), response_mask=[1, 1])), ("line 2", "an object")),
    "string for a list": Broken(jsonl(GOOD, row("[-1]", response_mask=[1, 1])), ("line 2", "a string")),
    "a sample twice in a step": Broken(parquet(*[row(step=0, sample_id=i) for i in (0, 1, 1)]), ("sample_id", "1")),
    "a sample twice in lines": Broken(jsonl(*[row(step=0, sample_id=i) for i in "aba"]), ("sample_id", "a")),
    # Parquet's bytes
    "Parquet header only": Broken(written(b"PAR1", "d.parquet"), ("Parquet",)),
    "Parquet header and end": Broken(written(b"PAR1PAR1", "d.parquet"), ("Parquet",)),
    "Parquet cut in the first page": Broken(cut(0.02), ("Parquet",)),
    "Parquet cut in the middle": Broken(cut(0.5), ("Parquet",)),
    "Parquet cut in the footer": Broken(cut(0.95), ("Parquet",)),
    "Parquet without its last byte": Broken(written(whole()[:-1], "d.parquet"), ("Parquet",)),
    "Parquet and more": Broken(written(whole() + b"more", "d.parquet"), ("Parquet",)),
    "Parquet footer of ones": Broken(written(footer_of_ones(), "d.parquet"), ("Parquet",)),
    "Parquet footer of zeros": Broken(scribbled(-500, -8), ("Parquet",)),
    "Parquet footer too long": Broken(written(whole()[:-8] + b"\xff\xff\xff\x7fPAR1", "d.parquet"), ("Parquet",)),
    "Parquet of more rows than its groups": Broken(lying(more_rows(0)), ("Parquet", "row groups")),
    "Parquet of more rows than its pages": Broken(lying(more_rows(1)), ("Parquet",)),
    "Parquet of pages past its end": Broken(lying(of_chunks(DATA_PAGE_OFFSET, 1 << 30)), ("Parquet",)),
    "Parquet of chunks past its end": Broken(lying(of_chunks(COMPRESSED_SIZE, 1 << 40)), ("Parquet",)),
    "Parquet of endless rows": Broken(lying(of_chunks(NUM_VALUES, 1 << 31)), ("rows of over",)),
    "Parquet footer of no bytes": Broken(written(whole()[:-8] + bytes(4) + b"PAR1", "d.parquet"), ("Parquet",)),
    "Parquet pages of zeros": Broken(scribbled(4, 400), ("Parquet",)),
    "zstd pages of zeros": Broken(scribbled(60, 300, compression="zstd"), ("Parquet",)),
    "Parquet of another magic": Broken(written(b"PARX" + whole()[4:-4] + b"PARX", "d.parquet"), ("Parquet",)),
    "encrypted Parquet": Broken(written(b"PARE" + whole()[4:-4] + b"PARE", "d.parquet"), ("Parquet",)),
    "JSON lines called Parquet": Broken(written(GOOD_LINE * 9, "d.parquet"), ("Parquet",)),
    "Parquet called JSON lines": Broken(written(whole(), "d.jsonl"), ("line 1",)),
    "text called Parquet": Broken(written(b"hello\n" * 9, "d.parquet"), ("Parquet",)),
    "a file of no known kind": Broken(written(b"\x89PNG\r\n", "d.bin"), ("neither",)),
    # compression
    "gzip cut short": Broken(packed("gz", lambda data: data[: len(data) // 2]), ("cut short",)),
    "gzip without its end": Broken(packed("gz", lambda data: data[:-4]), ("cut short",)),
    "gzip and more": Broken(packed("gz", lambda data: data + b"garbage" * 9)),
    "gzip flipped": Broken(packed("gz", flipped)),
    "gzip of a wrong checksum": Broken(packed("gz", lambda data: data[:-8] + bytes(4) + data[-4:])),
    "gzip header only": Broken(packed("gz", lambda data: data[:10])),
    "zstd cut short": Broken(packed("zst", lambda data: data[: len(data) // 2]), ("cut short",)),
    "zstd and more": Broken(packed("zst", lambda data: data + b"garbage" * 9)),
    "zstd flipped": Broken(packed("zst", flipped)),
    "zstd header only": Broken(packed("zst", lambda data: data[:6])),
    "gzip of gzip": Broken(written(gzip.compress(gzip.compress(GOOD_LINE, mtime=0), mtime=0), "d.jsonl.gz")),
    "gzip of Parquet": Broken(written(gzip.compress(whole(), mtime=0), "d.jsonl.gz")),
    # JSON's bytes
    "line cut short": Broken(written(GOOD_LINE * 3 + GOOD_LINE[:-9]), ("line 4",)),
    "first line cut short": Broken(written(GOOD_LINE[:20]), ("line 1",)),
    "null lines": Broken(written(GOOD_LINE + b"null\n" + GOOD_LINE), ("line 2", "null")),
    "only null": Broken(written(b"null\n"), ("line 1", "null")),
    "a number": Broken(written(GOOD_LINE + b"3\n"), ("line 2", "a number")),
    "an array": Broken(written(b"[" + GOOD_LINE.strip() + b"]\n"), ("line 1", "an array")),
    "an array over lines": Broken(written(b"[\n" + GOOD_LINE.strip() + b",\n" + GOOD_LINE + b"]\n"), ("line 1",)),
    "an object over lines": Broken(written(json.dumps(GOOD, indent=1).encode()), ("line 1",)),
    "two objects in a line": Broken(written(GOOD_LINE + GOOD_LINE.strip() + GOOD_LINE), ("line 2",)),
    "a comma after": Broken(written(GOOD_LINE.replace(b"}", b"},")), ("line 1",)),
    "single quotes": Broken(written(str(GOOD).encode() + b"\n"), ("line 1",)),
    "not UTF-8": Broken(
        written(GOOD_LINE + GOOD_LINE.replace(b"}", b', "a": "\xff"}')), ("line 2", "UTF-8"), unneeded=True
    ),
    "UTF-16": Broken(written(text([GOOD]).encode("utf-16")), ("line 1",)),
    "UTF-32": Broken(written(text([GOOD]).encode("utf-32-le")), ("line 1",)),
    "a NUL byte": Broken(written(GOOD_LINE + b"\x00\n" + GOOD_LINE), ("line 2",)),
    "a NUL byte in a string": Broken(written(GOOD_LINE + GOOD_LINE.replace(b"}", b', "a": "\x00"}')), ("line 2",)),
    "a file of NUL bytes": Broken(written(bytes(5000)), ("line 1",)),
    "a NUL tail": Broken(written(GOOD_LINE * 3 + bytes(4096)), ("line 4",)),
    "byte order mark in the middle": Broken(written(GOOD_LINE + b"\xef\xbb\xbf" + GOOD_LINE), ("line 2",)),
    "carriage returns alone": Broken(written(GOOD_LINE.replace(b"\n", b"\r") * 3), ("line 1",)),
    "nested 2,000 deep": Broken(written(GOOD_LINE + DEEP), ("line 2",)),
    "nested 200,000 deep": Broken(written(GOOD_LINE + DEEP_EXTRA), ("line 2",)),
    "nested 200,000 deep first": Broken(written(DEEP_EXTRA), ("line 1",)),
    "nested 2,000 deep much later": Broken(late(row(), DEEP), ("line 1001",)),
    "nested 200,000 deep much later": Broken(late(row(), DEEP_EXTRA), ("line 1001",), unneeded=True),
    "a key twice": Broken(
        written(GOOD_LINE + GOOD_LINE.replace(b"}", b', "a": 1, "a": 2}')), ("line 2", "the key a twice"), unneeded=True
    ),
    "not UTF-8 much later": Broken(late(row(), EXTRA % b'"\xff"'), ("line 1001",), unneeded=True),
    "a number of 5,000 digits much later": Broken(late(row(), EXTRA % (b"9" * 5000)), ("line 1001",), unneeded=True),
    "half a surrogate pair in an id": Broken(written(EXTRA.replace(b"more", b"sample_id") % HALF), ("line 1",)),
    "half a surrogate pair in a key": Broken(
        written(EXTRA.replace(b"more", b"\\ud800") % b"1"), (".jsonl",), named=False, unneeded=True
    ),
    "half a surrogate pair": Broken(written(EXTRA % HALF), named=False, unneeded=True),
    "an integer of 65 bits": Broken(written(EXTRA % b"36893488147419103232"), (".jsonl",), named=False, unneeded=True),
    "an object without keys": Broken(written(EXTRA % b"{}"), (".jsonl",), named=False, unneeded=True),
    "a key of two kinds": Broken(written(EXTRA % b"1" + EXTRA % b'"a"'), (".jsonl",), named=False, unneeded=True),
    "nested 900 deep": Broken(written(EXTRA % (b"[" * 900 + b"]" * 900)), named=False, unneeded=True),
    "CSV called JSON lines": Broken(written(b"rollout_log_probs,old_log_probs\n-1,-1\n"), ("line 1",)),
    # files
    "directory without a dump": Broken(empty_folder, ("holds no dump",), named=False),
    "no such file": Broken(lambda folder: str(folder / "d.parquet"), ("no such file",)),
    "glob that matches nothing": Broken(lambda folder: str(folder / "*.parquet"), ("matches no file",), named=False),
    "broken link": Broken(broken_link, ("no such file",)),
    "link to itself": Broken(link_loop, ("cannot be read",)),
    "named pipe": Broken(fifo, ("not a regular file",)),
    "device": Broken(lambda folder: os.devnull, ("not a regular file",), named=False),
    "no permission": Broken(unreadable, ("cannot be read",)),
    "path below a file": Broken(below_a_file),
    "name too long": Broken(lambda folder: str(folder / ("a" * 300 + ".parquet")), named=False),
    "files of other columns": Broken(
        several(jsonl(row()), jsonl({"sampling_logprobs": [-1.0], OLD: [-1.0]})), (ROLLOUT,)
    ),
    "files with and without mask": Broken(several(parquet(row()), parquet(GOOD)), (MASK,)),
    "a file of another type": Broken(several(parquet(row()), parquet(row(old="x"))), ("1-d.parquet", "string")),
    "one file broken": Broken(several(parquet(row()), cut(0.5)), ("1-d.parquet",)),
    "one file empty": Broken(several(jsonl(row()), written(b"")), ("1-d.jsonl", "0 bytes")),
    **{f"name with {what}": Broken(named(name), ("has 2", "has 1"), named=False) for what, name in ODD_NAMES.items()},
}
