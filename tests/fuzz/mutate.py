"""Mutations that keep an input readable far enough to matter: inside the compression, in pages, or in the footer."""

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from footer import BINARY, DOUBLE, I16, I32, I64, LIST, STRUCT, Struct, joined, split
from seeds import packed

Mutate = Callable[[bytes, int], bytes]
"""libFuzzer's own: bytes and the most there may be of them."""

NUMBERS = (0, 1, -1, 2, 3, 4, 7, 8, 100, 127, 255, 65535, 2**20, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
LIMIT = 1 << 20
"""Bytes that are taken out of a compressed input."""


def compressed(data: bytes, most: int, seed: int, mutate: Mutate) -> bytes:
    """Change what is inside, half the time; what comes out is a whole gzip or zstd file again."""
    choose = random.Random(seed)
    inside = unpacked(data) if choose.random() < 0.5 else None
    if inside is None:
        return mutate(data, most)
    return packed(mutate(inside, most), choose.choice(("gzip", "zstd")))[:most]


def unpacked(data: bytes) -> bytes | None:
    """What a small gzip or zstd file holds; None where it is neither or damaged."""
    try:
        if data.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(31).decompress(data, LIMIT)
        if data.startswith(b"\x28\xb5\x2f\xfd"):
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return stream.read(LIMIT)
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile):
        pass
    return None


def parquet(data: bytes, most: int, seed: int, mutate: Mutate) -> bytes:
    """Change the pages under a footer that stays, or numbers, names and items of the footer, or any bytes."""
    choose = random.Random(seed)
    try:
        pages, footer = split(data)
    except ValueError:
        return mutate(data, most)
    kind = choose.random()
    if kind < 0.4 and len(pages) > 4:
        changed = mutate(pages[4:], max(len(pages) - 4, 1))[: len(pages) - 4]
        return joined(pages[:4] + changed.ljust(len(pages) - 4, b"\0"), footer)
    if kind < 0.5 and len(pages) > 4:
        at = choose.randrange(4, len(pages))
        spot = bytes([pages[at] ^ 1 << choose.randrange(8)])
        return joined(pages[:at] + spot + pages[at + 1 :], footer)
    if kind < 0.95:
        for _ in range(choose.choice((1, 1, 1, 2, 4))):
            footer_changed(footer, choose)
        return joined(pages, footer)[-most:]
    return mutate(data, most)


def arrow(data: bytes, most: int, seed: int, mutate: Mutate) -> bytes:
    """Change numbers where they lie, as headers and offsets do, or any bytes."""
    choose = random.Random(seed)
    if choose.random() < 0.4 or len(data) < 16:
        return mutate(data, most)
    changed = bytearray(data)
    for _ in range(choose.choice((1, 1, 1, 2, 4))):
        width = choose.choice((2, 4, 8))
        at = choose.randrange(0, len(data) - width + 1, width)
        value = int.from_bytes(changed[at : at + width], "little")
        value = value + choose.choice((-8, -1, 1, 8)) if choose.random() < 0.5 else choose.choice(NUMBERS)
        changed[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed[:most])


def footer_changed(footer: Struct, choose: random.Random) -> None:
    """One change to one value of the tree, in place."""
    places = list(_places(footer))
    if not places:
        return
    holder, key, kind = choose.choice(places)
    value = holder[key]
    if kind in (I16, I32, I64):
        holder[key] = value + choose.choice((-1, 1)) if choose.random() < 0.4 else choose.choice(NUMBERS)
        if choose.random() < 0.6:
            others = [place[0][place[1]] for place in places if place[2] == kind]
            holder[key] = choose.choice(others)
    elif kind == BINARY:
        others = [place[0][place[1]] for place in places if place[2] == BINARY]
        holder[key] = choose.choice((value[:-1], value + b"\xff", b"", choose.choice(others)))
    elif kind == DOUBLE:
        holder[key] = bytes(choose.randrange(256) for _ in range(8))
    elif kind == STRUCT and value:
        at = choose.randrange(len(value))
        if choose.random() < 0.7:
            del value[at]
        else:
            value[at][0] = max(1, value[at][0] + choose.choice((-1, 1)))
    elif kind == LIST and value[1]:
        at = choose.randrange(len(value[1]))
        if choose.random() < 0.5:
            del value[1][at]
        else:
            value[1].insert(at, choose.choice(value[1]))


def _places(struct: Struct) -> Iterator[tuple[Any, Any, int]]:
    """Everything that can be changed: what holds it, under which key, and its type."""
    for one in struct:
        yield one, 2, one[1]
        yield from _below(one[2], one[1])


def _below(value: Any, kind: int) -> Iterator[tuple[Any, Any, int]]:
    if kind == STRUCT:
        yield from _places(value)
    elif kind == LIST:
        inner, items = value
        for i, item in enumerate(items):
            yield items, i, inner
            yield from _below(item, inner)


MUTATORS: dict[str, Callable[[bytes, int, int, Mutate], bytes]] = {
    "compressed": compressed,
    "parquet": parquet,
    "arrow": arrow,
}
