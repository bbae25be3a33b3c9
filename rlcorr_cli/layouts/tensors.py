"""Tensors and arrays that a pickle describes, as NumPy arrays over the bytes that hold them.

Every shape, stride and offset is checked against its storage: `as_strided` is not, and a crafted file would show the
memory of this process.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.pickled import HINT, Global, Persistent, UnbuiltObject

Array = NDArray[Any]
TORCH_TYPES = {
    "float32": ("Float", "<f4"),
    "float64": ("Double", "<f8"),
    "float16": ("Half", "<f2"),
    "bfloat16": ("BFloat16", "<u2"),
    "int64": ("Long", "<i8"),
    "int32": ("Int", "<i4"),
    "int16": ("Short", "<i2"),
    "int8": ("Char", "<i1"),
    "uint8": ("Byte", "<u1"),
    "bool": ("Bool", "?"),
}
"""torch's types -> its storages, and NumPy's types; a bfloat16 is the upper half of a float32."""
DTYPES = {kind: np.dtype(code) for kind, code in TORCH_TYPES.values()}
"""By storage."""
TEXTS = re.compile(r"U([1-9]\d{0,3})")
"""NumPy's texts of a fixed length, in characters."""
NUMPY_DTYPES = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))
MAX_DIMENSIONS = 8
MAX_VALUES = 1 << 48
"""Of a shape, zeros left out: a tensor of none may be told to be of any size, which NumPy does not take."""
REBUILT = "torch._utils._rebuild_tensor_v2"
TENSORS = (REBUILT, "collections.OrderedDict", *(f"torch.{name}Storage" for name in DTYPES))
"""What a pickle with tensors names."""
NUMPY_GLOBALS = (
    *(
        f"{module}.{function}"
        for module in ("numpy.core", "numpy._core")
        for function in ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer")
    ),
    *("numpy.ndarray", "numpy.dtype", "_codecs.encode"),
)
"""What a pickle with NumPy's arrays names."""
Storage = Callable[[str], memoryview]
"""The bytes of a storage by its key."""


def of_bytes(data: Any, dtype: Any, shape: Any = None) -> Array:
    """An array over raw little-endian bytes.  dtype: torch's name, with or without 'torch.' before it."""
    kind, _ = TORCH_TYPES.get(dtype.removeprefix("torch."), ("", "")) if isinstance(dtype, str) else ("", "")
    if not kind:
        raise DataError(f"its tensors are of {_word(dtype)}, which is not read.", HINT)
    values = _widened(_values_of_bytes(data, DTYPES[kind]), kind)
    return values if shape is None else _shaped(values, _shape(shape))


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor that `tensor` makes."""
    return isinstance(value, UnbuiltObject) and value.name == REBUILT


def tensor(value: Any, storage: Storage) -> Array:
    """The array of a torch tensor, a copy only where it is bfloat16."""
    if not is_tensor(value) or len(value.args) < 4:
        raise DataError("its pickle holds something else where a tensor should be.", HINT)
    persistent, offset, size, stride = value.args[:4]
    kind, key, numel = _storage_of(persistent)
    flat = _values_of_bytes(storage(key), DTYPES[kind])
    if len(flat) != numel:
        raise DataError(
            f"its storage {key} holds {len(flat):,} values instead of {numel:,}.", "It may be half-written."
        )
    size, stride = _shape(size), _sizes(stride)
    if len(size) != len(stride) or type(offset) is not int or offset < 0:
        raise past_storage()
    if stride == (1,) and offset + size[0] <= len(flat):  # as nearly all are
        return _widened(flat[offset : offset + size[0]], kind)
    if math.prod(size) == 0:
        return np.zeros(size, flat.dtype if kind != "BFloat16" else np.float32)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(flat):
        raise past_storage()
    bytes_of_step = tuple(step * flat.itemsize if n > 1 else 0 for n, step in zip(size, stride, strict=True))
    view = np.lib.stride_tricks.as_strided(flat[offset:], size, bytes_of_step, writeable=False)
    if view.size > len(flat):
        raise DataError("its tensors repeat their storage.", HINT)  # a few bytes would become any number of values
    return _widened(view, kind)


def array(value: Any) -> Array | list[Any]:
    """The array of a NumPy ndarray; of one of objects or of texts the list of them."""
    if isinstance(value, UnbuiltObject) and value.name.endswith("._frombuffer") and len(value.args) == 4:
        buffer, dtype, shape, order = value.args
        return _shaped(_values_of_bytes(_raw(buffer), _dtype(dtype)), _shape(shape), fortran=order == "F")
    if not isinstance(value, UnbuiltObject) or not isinstance(value.state, tuple) or len(value.state) != 5:
        raise DataError("its pickle holds something else where an array should be.", HINT)
    _, shape, dtype, fortran, data = value.state
    if isinstance(data, list):
        return data
    width = TEXTS.fullmatch(_name(dtype))
    if width:
        return _texts(_raw(data), 4 * int(width[1]))
    return _shaped(_values_of_bytes(_raw(data), _dtype(dtype)), _shape(shape), fortran=fortran is True)


def scalar(value: Any) -> Any:
    """The number of a NumPy scalar, as Python has it; anything else as it is."""
    if not isinstance(value, UnbuiltObject) or not value.name.endswith(".multiarray.scalar") or len(value.args) != 2:
        return value
    dtype, data = value.args
    values = _values_of_bytes(_raw(data), _dtype(dtype))
    return values[0].item() if len(values) == 1 else None


def _raw(data: Any) -> Any:
    """Bytes as they are, or as protocol 2 writes them: text of which every character is one."""
    if not isinstance(data, UnbuiltObject) or not data.args:
        return data
    first = data.args[0]
    if data.name != "_codecs.encode" or not isinstance(first, str):
        return first if data.name.endswith("bytearray") else None
    try:
        return first.encode("latin1")
    except UnicodeEncodeError:
        return None


def _values_of_bytes(data: Any, dtype: np.dtype[Any]) -> Array:
    """The values of raw bytes."""
    if not isinstance(data, bytes | bytearray | memoryview) or len(data) % dtype.itemsize:
        raise DataError("its pickle holds something else where the bytes of an array should be.", HINT)
    return np.frombuffer(data, dtype)


def _texts(data: Any, width: int) -> list[Any]:
    """Texts of a fixed length, filled up with NULs, four bytes a character."""
    flat = _values_of_bytes(data, np.dtype(np.uint8)).tobytes()
    try:
        texts = [flat[at : at + width].decode("utf-32-le") for at in range(0, len(flat), width)]
    except UnicodeDecodeError as error:
        raise DataError("its pickle holds strings that are not valid.", HINT) from error
    return [text.rstrip("\0") for text in texts]


def _name(dtype: Any) -> str:
    name = dtype.args[0] if isinstance(dtype, UnbuiltObject) and dtype.name == "numpy.dtype" and dtype.args else ""
    return name if isinstance(name, str) else ""


def _dtype(value: Any) -> np.dtype[Any]:
    name = _name(value)
    if name not in NUMPY_DTYPES:
        raise DataError(f"its arrays are of type {_word(name)}, which is not read.", HINT)
    byte_order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "<"
    return np.dtype(name).newbyteorder(byte_order if byte_order in ("<", ">") else "<")


def _storage_of(persistent: Any) -> tuple[str, str, int]:
    what = persistent.id if isinstance(persistent, Persistent) else ()
    if not isinstance(what, tuple) or len(what) < 5 or what[0] != "storage" or not isinstance(what[1], Global):
        raise DataError("its pickle holds a tensor without a storage.", HINT)
    kind = what[1].name.removeprefix("torch.").removesuffix("Storage")
    if kind not in DTYPES:
        raise DataError(f"its tensors are of {_word(what[1].name)}, which is not read.", HINT)
    if not isinstance(what[2], str) or type(what[4]) is not int:
        raise DataError("its pickle holds a tensor without a storage.", HINT)
    return kind, what[2], what[4]


def _sizes(value: Any) -> tuple[int, ...]:
    """A shape or strides: at most MAX_DIMENSIONS whole numbers from 0 up."""
    if isinstance(value, UnbuiltObject):  # torch.Size
        value = value.args[0] if value.args else ()
    are_whole = isinstance(value, (tuple, list)) and len(value) <= MAX_DIMENSIONS and set(map(type, value)) <= {int}
    if not are_whole or min(value, default=0) < 0:
        raise DataError("its pickle holds a tensor of no shape.", HINT)
    return tuple(value)


def _shape(value: Any) -> tuple[int, ...]:
    sizes = _sizes(value)
    if math.prod(n for n in sizes if n) > MAX_VALUES:
        raise past_storage()
    return sizes


def _word(name: Any) -> str:
    """A type's name as messages have it; what is no text is not shown, it may be of any size."""
    return repr(name[:40]) if isinstance(name, str) else "no name"


def _shaped(values: Array, shape: tuple[int, ...], *, fortran: bool = False) -> Array:
    if math.prod(shape) != values.size:
        raise past_storage()
    return values.reshape(shape, order="F" if fortran else "C")


def _widened(values: Array, kind: str) -> Array:
    """A bfloat16 as the float32 that it is the upper half of."""
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BFloat16" else values


def past_storage() -> DataError:
    """The error of a tensor that is larger than what holds it."""
    return DataError("its tensors reach past the bytes that hold them.", "It may be half-written, or crafted.")
