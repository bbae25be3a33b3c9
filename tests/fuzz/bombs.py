"""Small files that grow when they are read: `python tests/fuzz/bombs.py [--only WORD]` says what each one takes."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import footer as thrift
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measured import Took, took

LISTS = ("rollout_log_probs", "old_log_probs")
LINE = b'{"rollout_log_probs": [-0.5, -1.0], "old_log_probs": [-0.25, -2.0]%s}\n'
MB = 1 << 20


@dataclass(frozen=True)
class Bomb:
    """build(path): writes it.  suffix: of its file.  quick: read by the tests, too."""

    build: Callable[[Path], None]
    suffix: str = ".parquet"
    quick: bool = False


def lists(rows: int, length: int) -> dict[str, pa.Array]:
    """Two policies that say -0.5 of every token."""
    items = pa.array(np.full(rows * length, -0.5, np.float32))
    column = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * length), items)
    return dict.fromkeys(LISTS, column)


def many_rows(path: Path, tokens: int) -> None:
    pq.write_table(pa.table(lists(1_000, 1_000)), path, compression="zstd")
    path.write_bytes(again(*thrift.split(path.read_bytes()), tokens // 10**6))


def one_row(path: Path, tokens: int) -> None:
    pq.write_table(pa.table(lists(1, tokens)), path, compression="zstd")


def one_group(path: Path, tokens: int) -> None:
    pq.write_table(pa.table(lists(tokens // 1_000, 1_000)), path, compression="zstd")


def text(path: Path, rows: int, length: int, **options: Any) -> None:
    """A column nobody asked for, all a's, that is 1,000 times as long in memory."""
    texts = pa.array(["a" * length] * rows, pa.large_string())
    pq.write_table(pa.table({**lists(rows, 10), "text": texts}), path, compression="zstd", **options)


def one_text(path: Path, rows: int, length: int) -> None:
    """A dictionary of one string, and rows that all point to it."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["a" * length]))
    plain = pa.schema([*pa.table(lists(1, 1)).schema, ("text", pa.string())])
    table = pa.table({**lists(rows, 1), "text": texts})
    options = {"compression": "zstd", "dictionary_pagesize_limit": 2 * length, "store_schema": False}
    pq.write_table(table, path, **options)
    assert pq.read_schema(path) == plain


def grown(path: Path, change: Callable[[bytes, thrift.Struct], bytes], table: pa.Table | None = None) -> None:
    """A small file whose footer is changed."""
    small = table or pa.table(lists(2, 2))
    pq.write_table(small, path, compression="none", use_dictionary=False, write_statistics=False, store_schema=False)
    path.write_bytes(change(*thrift.split(path.read_bytes())))


def row_groups(path: Path, times: int) -> None:
    grown(path, lambda pages, footer: again(pages, footer, times))


def again(pages: bytes, footer: thrift.Struct, times: int) -> bytes:
    """The first row group's record as many times, all over the same pages."""
    kind, groups = thrift.field(footer, 4)[2]
    once = thrift.encoded(groups[0])
    thrift.field(footer, 3)[2] *= times
    before, after = thrift.encoded(footer).split(thrift.head(kind, 1) + once)
    tail = before + thrift.head(kind, times) + once * times + after
    return pages + tail + len(tail).to_bytes(4, "little") + thrift.MAGIC


def nested(path: Path, levels: int) -> None:
    """An extra column, groups in groups."""

    def change(pages: bytes, footer: thrift.Struct) -> bytes:
        kind, elements = thrift.field(footer, 2)[2]
        i32, binary, repetition = thrift.I32, thrift.BINARY, [3, thrift.I32, 1]
        group = [repetition, [4, binary, b"deep"], [5, i32, 1]]
        leaf = [[1, i32, 1], repetition, [4, binary, b"leaf"]]
        thrift.field(elements[0], 5)[2] += 1
        thrift.field(footer, 2)[2] = (kind, [*elements, *[group] * levels, leaf])
        names = thrift.BINARY, [b"deep"] * levels + [b"leaf"]
        columns = thrift.field(thrift.field(footer, 4)[2][1][0], 1)[2]
        chunk = thrift.decoded(thrift.encoded(columns[1][0]))[0]
        thrift.field(thrift.field(chunk, 3)[2], 1)[2] = 1
        thrift.field(thrift.field(chunk, 3)[2], 3)[2] = names
        columns[1].append(chunk)
        return thrift.joined(pages, footer)

    grown(path, change)


def columns(path: Path, n: int) -> None:
    one = pa.array([1, 2], pa.int8())
    table = pa.table({**lists(2, 2), **{f"c{i}": one for i in range(n)}})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)


def long_line(path: Path) -> None:
    path.write_bytes(LINE % b"" + LINE % (b', "text": "' + b"a" * (100 * MB) + b'"') + LINE % b"")


def first_line_long(path: Path) -> None:
    path.write_bytes(LINE % (b', "text": "' + b"a" * (100 * MB) + b'"'))


def garbage(path: Path) -> None:
    path.write_bytes(b"a" * (100 * MB))


def packed(path: Path, pieces: Iterable[bytes], codec: str) -> None:
    with pa.CompressedOutputStream(str(path), codec) as out:
        for piece in pieces:
            out.write(piece)


def blanks(path: Path, codec: str, megabytes: int) -> None:
    packed(path, [LINE % b"", *[b" " * MB] * megabytes], codec)


def blank_lines(path: Path, codec: str, megabytes: int) -> None:
    packed(path, [LINE % b"", *[b"\n" * MB] * megabytes], codec)


def one_packed_line(path: Path, codec: str, megabytes: int) -> None:
    packed(path, [(LINE % b"")[:-2] + b', "text": "', *[b"a" * MB] * megabytes, b'"}\n'], codec)


def packed_lines(path: Path, codec: str, rows: int) -> None:
    packed(path, [LINE % b"" * 10_000] * (rows // 10_000), codec)


def keys(path: Path, n: int) -> None:
    path.write_bytes(LINE % b"".join(b', "k%d": %d' % (i, i) for i in range(n)))


def extra_list(path: Path, n: int) -> None:
    path.write_bytes(LINE % b"" + LINE % (b', "more": [' + b"1," * (n - 1) + b"1]") + LINE % b"")


def token_list(path: Path, n: int) -> None:
    numbers = b"[" + b"-1," * (n - 1) + b"-1]"
    path.write_bytes(b'{"rollout_log_probs": %s, "old_log_probs": %s}\n' % (numbers, numbers))


def deep(path: Path, levels: int) -> None:
    path.write_bytes(LINE % b"" + LINE % (b', "more": ' + b"[" * levels + b"]" * levels))


def shallow_rows(path: Path, rows: int) -> None:
    path.write_bytes((LINE % b"")[:-1].replace(b"-0.5, -1.0", b"").replace(b"-0.25, -2.0", b"") * 1 + b"\n")
    path.write_bytes(path.read_bytes() * rows)


BOMBS: dict[str, Bomb] = {
    "tokens in many rows": Bomb(lambda path: many_rows(path, 10**8)),
    "tokens in one row group": Bomb(lambda path: one_group(path, 10**8)),
    "tokens in one row": Bomb(lambda path: one_row(path, 10**7), quick=True),
    "100 million tokens in one row": Bomb(lambda path: one_row(path, 10**8)),
    "1 GB of text": Bomb(lambda path: text(path, 1_000, MB, use_dictionary=False)),
    "100 GB of text in a dictionary": Bomb(lambda path: one_text(path, 100_000, MB)),
    "100,000 row groups": Bomb(lambda path: row_groups(path, 100_000)),
    "a million row groups": Bomb(lambda path: row_groups(path, 1_000_000)),
    "nested 100 deep": Bomb(lambda path: nested(path, 100)),
    "nested 5,000 deep": Bomb(lambda path: nested(path, 5_000), quick=True),
    "nested 200,000 deep": Bomb(lambda path: nested(path, 200_000)),
    "10,000 columns": Bomb(lambda path: columns(path, 10_000), quick=True),
    "100,000 columns": Bomb(lambda path: columns(path, 100_000)),
    "a line of 100 MB": Bomb(long_line, ".jsonl"),
    "a first line of 100 MB": Bomb(first_line_long, ".jsonl"),
    "100 MB without an end of line": Bomb(garbage, ".jsonl"),
    "gzip of 500 MB of blanks": Bomb(lambda path: blanks(path, "gzip", 500), ".jsonl.gz"),
    "zstd of 500 MB of blanks": Bomb(lambda path: blanks(path, "zstd", 500), ".jsonl.zst", quick=True),
    "zstd of 3 GB of blanks": Bomb(lambda path: blanks(path, "zstd", 3_000), ".jsonl.zst"),
    "zstd of 500 MB of blank lines": Bomb(lambda path: blank_lines(path, "zstd", 500), ".jsonl.zst"),
    "zstd of a line of 500 MB": Bomb(lambda path: one_packed_line(path, "zstd", 500), ".jsonl.zst"),
    "zstd of a line of 3 GB": Bomb(lambda path: one_packed_line(path, "zstd", 3_000), ".jsonl.zst"),
    "zstd of 5 million rows": Bomb(lambda path: packed_lines(path, "zstd", 5_000_000), ".jsonl.zst"),
    "a million empty rows": Bomb(lambda path: shallow_rows(path, 10**6), ".jsonl"),
    "20,000 keys": Bomb(lambda path: keys(path, 20_000), ".jsonl", quick=True),
    "100,000 keys": Bomb(lambda path: keys(path, 100_000), ".jsonl"),
    "10 million numbers nobody needs": Bomb(lambda path: extra_list(path, 10**7), ".jsonl"),
    "10 million tokens in a line": Bomb(lambda path: token_list(path, 10**7), ".jsonl"),
    "JSON nested 5,000 deep": Bomb(lambda path: deep(path, 5_000), ".jsonl"),
    "JSON nested a million deep": Bomb(lambda path: deep(path, 10**6), ".jsonl", quick=True),
}

COMMANDS: dict[str, tuple[str, ...]] = {
    "analyze": (),
    "filter": ("--preset", "token_is", "-o", "{out}"),
}
"""Command -> its options; {out} is a file to be written."""
LIMIT_MB = 2_000
LIMIT_S = 300


def read(command: str, path: Path, folder: Path, seconds: int = LIMIT_S) -> Took:
    """Run the installed command on a bomb."""
    installed = shutil.which("rlcorr", path=str(Path(sys.executable).parent)) or "rlcorr"
    out = folder / "out.parquet"
    return took([installed, command, str(path), *(part.format(out=out) for part in COMMANDS[command])], seconds)


def wrong(done: Took, limit_mb: float = LIMIT_MB) -> list[str]:
    """What a reading must not do, and did."""
    found = {
        f"status {done.status}": done.status not in (0, 3),
        f"{done.peak_mb:,.0f} MB": done.peak_mb > limit_mb,
        "a traceback": "Traceback" in done.err,
        "a warning": "Warning" in done.err,
        "not two lines": done.status == 3 and len(done.err.splitlines()) != 2,
    }
    return [what for what, so in found.items() if so]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="bombs with this in their name")
    parser.add_argument("--seconds", type=int, default=LIMIT_S, help="of a processor, for one command")
    args = parser.parse_args()
    chosen = [name for name in BOMBS if args.only in name]
    bad = [what for name in chosen for what in told(name, args.seconds)]
    print(f"{len(chosen)} bombs, {len(bad)} things wrong.")
    return 1 if bad else 0


def told(name: str, seconds: int) -> Iterator[str]:
    """Print a line for each command; what goes wrong is yielded."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = folder / f"bomb{BOMBS[name].suffix}"
        started = time.monotonic()
        BOMBS[name].build(path)
        built = time.monotonic() - started
        for command in COMMANDS:
            done = read(command, path, folder, seconds)
            (folder / "out.parquet").unlink(missing_ok=True)
            print(
                f"{name:32} {command:8} status {done.status:3} {done.peak_mb:7,.0f} MB {done.seconds:6.1f} s, "
                f"{path.stat().st_size:12,} bytes built in {built:4.1f} s  {', '.join(wrong(done)).upper()}  "
                f"{' '.join(done.err.split())[-150:]}",
                flush=True,
            )
            yield from wrong(done)


if __name__ == "__main__":
    sys.exit(main())
