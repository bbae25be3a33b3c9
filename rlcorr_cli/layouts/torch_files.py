"""torch's files: a zip whose members are one pickle and raw storages, uncompressed, each read when it is asked for.

`torch.load` is not used: with `weights_only=False` it runs what a file says, and otherwise needs the frameworks'
classes and the machine's own kind of GPU.
"""

import struct
import zipfile
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.disk import HALF_WRITTEN, AnyBytes, Placed
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.pickled import HINT, unpickle
from rlcorr_cli.layouts.tensors import Array, tensor

MAX_MEMBERS = 2_000_000
WHOLE_BYTES = 1 << 24
"""A file of no more is read whole."""
LOCAL_HEADER = struct.Struct("<4s22xHH")


@frozen
class TorchFile:
    """One file of torch.  value: of its pickle, with unbuilt tensors; array: of such a tensor.

    data: all its bytes, in memory or not; members: by key of a storage, where its member begins in them, and its size.
    """

    value: Any
    data: AnyBytes
    members: Mapping[str, tuple[int, int]]

    def array(self, value: Any) -> Array:
        """The array of an unbuilt tensor."""
        return tensor(value, self.storage)

    def storage(self, key: str) -> memoryview:
        """A storage's raw bytes."""
        if key not in self.members:
            raise DataError(f"its storage {key[:40]} is not there.", HALF_WRITTEN)
        return _stored(self.data, *self.members[key])


def opened(path: str) -> AnyBytes:
    """A file's bytes: those of a small file in memory, of a larger one what is looked at.

    So many small files may be kept open, which would each take one of the files that a process may have open.
    """
    contents = filesystem(path).contents(path)
    return contents[:] if len(contents) <= WHOLE_BYTES else contents


def is_torch(data: AnyBytes) -> bool:
    """Whether these bytes begin as a zip does."""
    return bytes(data[:4]) == b"PK\x03\x04"


def read_torch(
    data: AnyBytes, allowed: Collection[str] | None = None, foreign: Callable[[str], None] | None = None
) -> TorchFile:
    """A file of torch's from its bytes; as `unpickle` on what it may name."""
    pickled, members = _members(data)
    return TorchFile(unpickle(pickled, allowed, foreign), data, members)


def pickle_of(path: str) -> memoryview:
    """The pickle of a file of torch's, not looked at; nothing else of the file is read."""
    return _members(filesystem(path).contents(path))[0]


def _members(data: AnyBytes) -> tuple[memoryview, dict[str, tuple[int, int]]]:
    """The pickle, and by key where a storage's member begins, and its size: many are of columns that nobody reads.

    What torch would have stored uncompressed, and is not, may be of any size: a DataError.
    """
    if not is_torch(data):
        raise DataError("it is not a torch file.", HINT)
    try:
        with zipfile.ZipFile(_Bytes(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OverflowError) as error:
        raise DataError("it begins as a file of torch, and its directory cannot be read.", HALF_WRITTEN) from error
    if len(entries) > MAX_MEMBERS:
        raise DataError(f"it has {len(entries):,} members, over {MAX_MEMBERS:,}.", HINT)
    pickled, members = None, dict[str, tuple[int, int]]()
    for entry in entries:
        _, _, inner = entry.filename.partition("/")
        place = (entry.header_offset, entry.file_size)
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise DataError(f"its member {entry.filename[:80]!r} is compressed, which torch never does.", HINT)
        if inner.startswith("data/"):
            members[inner[5:]] = place
        elif inner == "data.pkl":
            pickled = _stored(data, *place)
        elif inner == "byteorder" and bytes(_stored(data, *place)[:6]) != b"little":
            raise DataError("its tensors are big-endian.", HINT)
    if pickled is None:
        raise DataError("it is a zip without the pickle of torch.", HINT)
    return pickled, members


def _stored(data: AnyBytes, start: int, size: int) -> memoryview:
    """A member's bytes.  start: of its header."""
    if not 0 <= start <= len(data) - LOCAL_HEADER.size:
        raise DataError("its directory points past its end.", HALF_WRITTEN)
    magic, name, extra = LOCAL_HEADER.unpack(data[start : start + LOCAL_HEADER.size])
    first = start + LOCAL_HEADER.size + name + extra
    if magic != b"PK\x03\x04" or first + size > len(data):
        raise DataError("its directory points past its end.", HALF_WRITTEN)
    return data[first : first + size]


class _Bytes(Placed):
    """Bytes as a file, not copied as `BytesIO` would."""

    def __init__(self, data: AnyBytes) -> None:
        super().__init__(len(data))
        self.data = data

    def readinto(self, buffer: Any, /) -> int:
        part = self.data[self.at : self.at + len(buffer)]
        buffer[: len(part)] = part
        self.at += len(part)
        return len(part)
