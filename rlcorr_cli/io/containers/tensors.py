"""Tensors and arrays that a pickle describes, as NumPy arrays over the bytes that hold them.

Every shape, stride and offset is checked against its storage: `as_strided` is not, and a crafted file would show the
memory of this process.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.containers.pickled import HINT, Global, Inert, Persistent

Array = NDArray[Any]
DTYPES = {
    "Float": "<f4",
    "Double": "<f8",
    "Half": "<f2",
    "BFloat16": "<u2",
    "Long": "<i8",
    "Int": "<i4",
    "Short": "<i2",
    "Char": "<i1",
    "Byte": "<u1",
    "Bool": "?",
}
"""torch's storages -> NumPy's names; a bfloat16 is the upper half of a float32."""
TORCH_DTYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}
NUMPY_DTYPES = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))
MAX_DIMENSIONS = 8
REBUILT = "torch._utils._rebuild_tensor_v2"
TENSORS = (REBUILT, "collections.OrderedDict", *(f"torch.{name}Storage" for name in DTYPES))
"""What a pickle with tensors names."""
NUMPY_GLOBALS = (
    *(f"{module}.multiarray._reconstruct" for module in ("numpy.core", "numpy._core")),
    *(f"{module}.numeric._frombuffer" for module in ("numpy.core", "numpy._core")),
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
)
"""What a pickle with NumPy's arrays names."""
Storage = Callable[[str], memoryview]
"""The bytes of a storage by its key."""


def of_bytes(data: Any, dtype: str, shape: tuple[int, ...] | None = None) -> Array:
    """An array over raw little-endian bytes.  dtype: torch's name, with or without 'torch.' before it."""
    kind = TORCH_DTYPES.get(dtype.removeprefix("torch."))
    if kind is None:
        raise DataError(f"its tensors are of {dtype}, which is not read.", HINT)
    view = np.frombuffer(data, DTYPES[kind])
    values = _widened(view, kind)
    return values if shape is None else _shaped(values, shape)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor that `tensor` makes."""
    return isinstance(value, Inert) and value.name == REBUILT


def tensor(value: Any, storage: Storage) -> Array:
    """The array of a torch tensor, a copy only where it is bfloat16."""
    if not is_tensor(value):
        raise DataError("its pickle holds something else where a tensor is to be.", HINT)
    persistent, offset, size, stride = value.args[:4]
    kind, key, numel = _storage_of(persistent)
    flat = np.frombuffer(storage(key), DTYPES[kind])
    if len(flat) != numel:
        raise DataError(
            f"its storage {key} holds {len(flat):,} values instead of {numel:,}.", "It may be half-written."
        )
    size, stride = _sizes(size), _sizes(stride)
    if len(size) != len(stride) or offset < 0:
        raise _past_storage()
    if math.prod(size) == 0:
        return np.zeros(size, flat.dtype if kind != "BFloat16" else np.float32)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(flat):
        raise _past_storage()
    bytes_of_step = tuple(step * flat.itemsize for step in stride)
    view = np.lib.stride_tricks.as_strided(flat[offset:], size, bytes_of_step, writeable=False)
    if view.size > len(flat):
        raise DataError("its tensors repeat their storage.", HINT)  # a few bytes would become any number of values
    return _widened(view, kind)


def array(value: Any) -> Array | list[Any]:
    """The array of a NumPy ndarray; of one of objects the list of them."""
    if isinstance(value, Inert) and value.name.endswith("._frombuffer"):
        buffer, dtype, shape, order = value.args[:4]
        return _shaped(np.frombuffer(_raw(buffer), _dtype(dtype)), _sizes(shape), str(order))
    if not isinstance(value, Inert) or not isinstance(value.state, tuple) or len(value.state) != 5:
        raise DataError("its pickle holds something else where an array is to be.", HINT)
    _, shape, dtype, fortran, data = value.state
    if isinstance(data, list):
        return data
    return _shaped(np.frombuffer(_raw(data), _dtype(dtype)), _sizes(shape), "F" if fortran else "C")


def _raw(data: Any) -> Any:
    """Bytes as they are, or as protocol 2 writes them: text of which every character is one."""
    if isinstance(data, Inert) and data.name == "_codecs.encode":
        return str(data.args[0]).encode("latin1")
    if isinstance(data, Inert) and data.name.endswith("bytearray"):
        return data.args[0]
    return data


def _dtype(value: Any) -> np.dtype[Any]:
    name = str(value.args[0]) if isinstance(value, Inert) and value.name == "numpy.dtype" else ""
    if name not in NUMPY_DTYPES:
        raise DataError(f"its arrays are of {name or 'no'} type, which is not read.", HINT)
    byte_order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "<"
    return np.dtype(name).newbyteorder(byte_order if byte_order in ("<", ">") else "<")


def _storage_of(persistent: Any) -> tuple[str, str, int]:
    what = persistent.id if isinstance(persistent, Persistent) else ()
    if not isinstance(what, tuple) or len(what) < 5 or what[0] != "storage" or not isinstance(what[1], Global):
        raise DataError("its pickle holds a tensor without a storage.", HINT)
    kind = what[1].name.removeprefix("torch.").removesuffix("Storage")
    if kind not in DTYPES:
        raise DataError(f"its tensors are of {what[1].name}, which is not read.", HINT)
    return kind, str(what[2]), int(what[4])


def _sizes(value: Any) -> tuple[int, ...]:
    """A shape or strides: at most MAX_DIMENSIONS whole numbers from 0 up."""
    if isinstance(value, Inert):  # torch.Size
        value = value.args[0] if value.args else ()
    if (
        not isinstance(value, tuple | list)
        or len(value) > MAX_DIMENSIONS
        or not all(type(n) is int and n >= 0 for n in value)
    ):
        raise DataError("its pickle holds a tensor of no shape.", HINT)
    return tuple(value)


def _shaped(values: Array, shape: tuple[int, ...], order: str = "C") -> Array:
    if math.prod(shape) != values.size:
        raise _past_storage()
    return values.reshape(shape, order="F" if order == "F" else "C")


def _widened(values: Array, kind: str) -> Array:
    """A bfloat16 as the float32 that it is the upper half of."""
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BFloat16" else values


def _past_storage() -> DataError:
    return DataError("its tensors reach past the bytes that hold them.", "It may be half-written, or crafted.")
