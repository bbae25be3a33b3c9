"""The tensors of a TensorDict in a file of torch's, by name, without tensordict: its three ways to be written.

Consolidated: one tensor of bytes, and where each leaf lies in it.  Plain: the tensors themselves.  Jagged: the values
of all rows one after the other, and where each row begins.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.pickled import HINT, Global, UnbuiltObject
from rlcorr_cli.layouts.tensors import REBUILT, TENSORS, Array, of_bytes, past_storage
from rlcorr_cli.layouts.torch_files import TorchFile

CONSOLIDATED = "tensordict._reductions._rebuild_tensordict_files_consolidated"
PLAIN = "tensordict._reductions._make_td"
TYPED = "torch._tensor._rebuild_from_type_v2"
JAGGED = "torch.nested._internal.nested_tensor._rebuild_njt"
TENSORDICTS = (*TENSORS, CONSOLIDATED, PLAIN, "tensordict._td.TensorDict", "torch.Size", "torch.device")
"""What a pickle of a TensorDict names, jagged tensors left out."""
JAGGED_TENSORS = (
    *(TYPED, JAGGED, "torch.nested._internal.nested_tensor.NestedTensor", "torch.Tensor"),
    *("__builtin__.set", "torch._dynamo.decorators._DimRange"),
)


@frozen
class Jagged:
    """Rows of unequal lengths: values[starts[i]:ends[i]] is row i."""

    values: Array
    starts: Array
    ends: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """How many rows there are, which is all that they have alike."""
        return (len(self.starts),)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Array]:
        return (self.values[start:end] for start, end in zip(self.starts, self.ends, strict=True))


def tensors(file: TorchFile, value: Any, names: Collection[str]) -> Mapping[str, Array | Jagged]:
    """The tensors of these names in a file's TensorDict, those that are there; others are not looked at."""
    if isinstance(value, UnbuiltObject) and value.name == CONSOLIDATED and len(value.args) == 2:
        meta, flat = value.args[0], file.array(value.args[1])
        leaves = meta.get("leaves") if isinstance(meta, dict) else None
        if not isinstance(leaves, dict) or flat.ndim != 1 or flat.dtype != np.uint8:
            raise _broken()
        return {name: _leaf(leaves[name], flat) for name in names if name in leaves}
    named = fields(value)
    return {name: _tensor(file, named[name]) for name in names if named.get(name) is not None}


def fields(value: Any) -> Mapping[str, Any]:
    """The fields of a TensorDict that is not consolidated, unbuilt."""
    args = value.args if isinstance(value, UnbuiltObject) and value.name == PLAIN else ()
    if len(args) == 2 and isinstance(args[1], dict):
        named = args[1].get("_tensordict")
        if isinstance(named, dict):
            return {name: field for name, field in named.items() if isinstance(name, str)}
    raise _broken()


def _leaf(leaf: Any, flat: Array) -> Array:
    """One tensor: its type, its shape, from which byte to which it lies."""
    if not isinstance(leaf, (tuple, list)) or len(leaf) < 4 or not all(type(n) is int for n in leaf[2:4]):
        raise _broken()
    dtype, shape, start, stop = leaf[:4]
    if not 0 <= start <= stop <= len(flat):
        raise past_storage()
    return of_bytes(flat[start:stop].data, dtype, shape)


def _tensor(file: TorchFile, field: Any) -> Array | Jagged:
    function, arguments = _typed(field)
    if function != JAGGED:
        return _dense(file, field)
    parts = arguments[0] if arguments else None
    if not isinstance(parts, dict) or "values" not in parts or "offsets" not in parts:
        raise _broken()
    values, offsets = _dense(file, parts["values"]), _dense(file, parts["offsets"])
    lengths = None if parts.get("lengths") is None else _dense(file, parts["lengths"])
    if offsets.ndim != 1 or offsets.dtype.kind != "i" or not len(offsets):
        raise _broken()
    starts, ends = offsets[:-1], offsets[1:]
    if lengths is not None:
        if lengths.shape != starts.shape or lengths.dtype.kind != "i":
            raise _broken()
        ends = starts + lengths
    if values.ndim != 1 or np.any(starts < 0) or np.any(ends < starts) or np.any(ends > len(values)):
        raise DataError("its rows reach past the values that hold them.", "It may be half-written, or crafted.")
    return Jagged(values, starts, ends)


def _dense(file: TorchFile, field: Any) -> Array:
    """A tensor that is not jagged, of torch's class or of one of its own."""
    function, arguments = _typed(field)
    return file.array(UnbuiltObject(REBUILT, arguments) if function == REBUILT else field)


def _typed(field: Any) -> tuple[str, tuple[Any, ...]]:
    """What a tensor with a class or attributes of its own is made by, and of what; of another tensor nothing."""
    if not isinstance(field, UnbuiltObject) or field.name != TYPED:
        return "", ()
    if len(field.args) < 3 or not isinstance(field.args[0], Global) or not isinstance(field.args[2], tuple):
        raise _broken()
    return field.args[0].name, field.args[2]


def _broken() -> DataError:
    return DataError("it holds something else where its tensors should be.", HINT)
