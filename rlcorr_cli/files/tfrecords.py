"""TFRecord files, as TensorBoard's event files are: messages of Protocol Buffers, each with its length before it and a
checksum of either.

Source: tensorflow.org/tutorials/load_data/tfrecord (records), protobuf.dev/programming-guides/encoding (messages).
"""

import struct
from collections.abc import Iterator
from functools import cache

_HEAD, _TAIL = 12, 4
"""Bytes around what a record holds: its length and a checksum of that, and a checksum of what it holds."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first, the eighth set where more follow."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def record(content: bytes) -> bytes:
    """A record of a file."""
    length = struct.pack("<Q", len(content))
    return length + checksum(length) + content + checksum(content)


def records(data: bytes) -> Iterator[bytes]:
    """What each whole record holds; a ValueError at a wrong checksum.  A last one that is cut short is left out."""
    start = 0
    while start + _HEAD <= len(data):
        length = data[start : start + 8]
        end = start + _HEAD + int.from_bytes(length, "little")
        if data[start + 8 : start + _HEAD] != checksum(length):
            raise ValueError(f"the checksum at byte {start:,} is wrong")
        if end + _TAIL > len(data):
            return
        content = data[start + _HEAD : end]
        if data[end : end + _TAIL] != checksum(content):
            raise ValueError(f"the checksum at byte {end:,} is wrong")
        yield content
        start = end + _TAIL


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and value of each field of a message, a whole number as its 8 bytes; an error of LookupError or ValueError
    where it is none."""
    at = 0

    def number() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value % 2**64

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number().to_bytes(8, "little")
        else:
            size = number() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            yield key >> 3, message[at : at + size]
            at += size


def checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the format asks, so that a checksum of checksums is no special case."""
    table, remainder = _crc_table(), 0xFFFFFFFF
    for byte in content:
        remainder = table[(remainder ^ byte) & 0xFF] ^ (remainder >> 8)
    crc = remainder ^ 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


@cache
def _crc_table() -> tuple[int, ...]:
    table: list[int] = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)
