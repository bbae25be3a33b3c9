"""Pickles and files of torch's put together opcode by opcode, so that nothing has to exist of what they name."""

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

END = b"."
N_LEVELS = 50_000
"""Far beyond what C's stack holds; reading them takes a time that grows with their number alone."""


@dataclass(frozen=True)
class Name:
    """A class or a function, 'module.name'."""

    name: str


@dataclass(frozen=True)
class Call:
    """What a call gives, and the state that it is then given."""

    name: str
    args: tuple[Any, ...] = ()
    state: Any = None


@dataclass(frozen=True)
class Storage:
    """torch's id of a storage of so many values, such as ("0", "Float", 8)."""

    key: Any
    kind: str
    n_values: Any


def dumped(value: Any, protocol: int = 4) -> bytes:
    """A pickle of plain values and of the above."""
    return bytes([0x80, protocol]) + opcodes(value, protocol) + END


def opcodes(value: Any, protocol: int = 4) -> bytes:
    """What puts a value on the stack."""
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        n = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
        return b"\x8a" + bytes([len(n)]) + n
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return b"\x8e" + struct.pack("<Q", len(value)) + value
    if isinstance(value, tuple | list):
        values = b"".join(opcodes(item, protocol) for item in value)
        return b"(" + values + (b"t" if isinstance(value, tuple) else b"l")
    if isinstance(value, dict):
        return b"(" + b"".join(opcodes(item, protocol) for pair in value.items() for item in pair) + b"d"
    return _named(value, protocol)


def _named(value: Any, protocol: int) -> bytes:
    if isinstance(value, Storage):
        kind = Name(f"torch.{value.kind}Storage")
        return opcodes(("storage", kind, value.key, "cpu", value.n_values), protocol) + b"Q"
    module, _, name = value.name.rpartition(".")
    made = f"c{module}\n{name}\n".encode()
    if protocol >= 4:
        made = opcodes(module) + opcodes(name) + b"\x93"
    if isinstance(value, Name):
        return made
    return made + opcodes(value.args, protocol) + b"R" + (opcodes(value.state, protocol) + b"b" if value.state else b"")


def tensor(key: str, kind: str, shape: tuple[int, ...], n_values: int | None = None, offset: int = 0) -> Call:
    """A tensor in torch's words, its values one after the other."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    storage = Storage(key, kind, step if n_values is None else n_values)
    hooks = Call("collections.OrderedDict")
    return Call("torch._utils._rebuild_tensor_v2", (storage, offset, shape, tuple(reversed(steps)), False, hooks))


def ndarray(data: Any, dtype: str, shape: tuple[int, ...]) -> Call:
    """An array in NumPy's words; a list as data is one of objects."""
    kind = Call("numpy.dtype", (dtype, False, True), (3, "<", None, None, None, -1, -1, 0))
    made = (Name("numpy.ndarray"), (0,), b"b")
    return Call("numpy._core.multiarray._reconstruct", made, (1, shape, kind, False, data))


def torch_bytes(pickled: bytes, storages: Mapping[str, bytes] | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    """A file of torch's around a pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
    return buffer.getvalue()


def commands(trap: Path, protocol: int) -> dict[str, bytes]:
    """Pickles that make a file where they are believed, by what they call."""
    touch = f"touch '{trap}'"
    calls = {
        "os.system": Call("os.system", (touch,)),
        "posix.system": Call("posix.system", (touch,)),
        "eval": Call("builtins.eval", (f"open({str(trap)!r}, 'w')",)),
    }
    return {name: dumped(call, protocol) for name, call in calls.items()}


def doubled_lists(n_levels: int) -> bytes:
    """Opcodes of a list that holds a list twice that holds a list twice ..."""
    places = [struct.pack("<I", 1000 + level) for level in range(n_levels + 1)]
    levels = (b"0(j" + below + b"j" + below + b"lr" + place for below, place in pairwise(places))
    return b"]r" + places[0] + b"".join(levels)


def bombs() -> dict[str, bytes]:
    """Pickles of a few bytes or of little sense that take a naive reader for ever, or all memory."""
    n = 100_000
    keys = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60))
    return {
        "lists that hold lists twice": b"\x80\x02" + doubled_lists(60) + b".",
        "tuples that are keys": b"\x80\x02)q\x00" + keys + b"0}h\x3cNs.",
        "a list of very many levels": b"\x80\x02" + b"]" * N_LEVELS + b"a" * (N_LEVELS - 1) + b".",
        "a tuple of very many levels": b"\x80\x02)" + b"\x85" * N_LEVELS + b".",
        "very many empty tensors": b"\x80\x02"
        + opcodes(tensor("0", "Float", (0,)), 2)
        + b"q\x00("
        + b"h\x00" * N_LEVELS
        + b"l.",
        "a long integer": b"\x80\x02\x8b" + struct.pack("<i", n) + b"\x7f" * n + b".",
        "an odd dict": b"\x80\x02}(X\x01\x00\x00\x00au.",
        "a name without an end": b"\x80\x02c" + b"a" * n,
    }
