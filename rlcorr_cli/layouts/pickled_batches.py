"""The files in which trainers pickle a batch of padded tensors, read as a Batch, all by the framework's own names.

DataProto (verl, ROLL) holds its tensors as a file of torch's in the pickle, with a TensorDict in it, or as raw bytes
with type and shape.  TrainingInputBatch (SkyRL) has each field as raw bytes, a NumPy array, or a file of torch's; the
oldest of its four generations hold it twice, and only one is looked at.  The skip manager's file (verl) is torch's own,
of rows of unequal lengths, with one object a row in a shell of tensordict's.

A TensorDict is read without tensordict, in its three ways to be written.  Consolidated: one tensor of bytes, and where
each leaf lies in it.  Plain: the tensors themselves.  Jagged: the values of all rows one after the other, and where
each row begins.

What else lies in such files is people's own and may be objects of any class: these stay unbuilt, and are named.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.pickled import HINT as NOT_RUN, Global, UnbuiltObject, unpickle
from rlcorr_cli.layouts.tensors import NUMPY_GLOBALS, REBUILT, TENSORS, Array, array, of_bytes, past_storage, scalar
from rlcorr_cli.layouts.torch_files import TorchFile, opened, read_torch
from rlcorr_cli.layouts.values import HINT, as_whole

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
    return DataError("it holds something else where its tensors should be.", NOT_RUN)


STARTERS = frozenset(
    ("os", "posix", "nt", "subprocess", "sys", "pty", "runpy", "importlib", "ctypes", "shutil", "pickle")
)
RUNNERS = frozenset(("eval", "exec", "compile", "execfile", "__import__", "breakpoint", "open", "input"))
"""Modules, and functions of `builtins`, that are in no one's data: they start programs or run text."""
SHOWN = 3
"""Classes of people's own objects that a note names."""


@frozen(kw_only=True)
class Batch:
    """A batch as its file has it.

    tensors: by name.  rows: of each array of objects the plain ones, one a row.  facts: what is said of the whole
    batch.  n_rows: how many of the tensors' rows are the batch's, where the others only fill it up.
    notes: on what is not read.
    """

    tensors: Mapping[str, Array | Jagged]
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    facts: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    n_rows: int | None = None
    notes: tuple[str, ...] = ()


class ForeignNames:
    """Counts the classes of people's own objects, and refuses what has no place in data."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, name: str) -> None:
        module, _, function = name.rpartition(".")
        builtin = module in ("builtins", "__builtin__") and function in RUNNERS
        if name.split(".")[0] in STARTERS or builtin:
            raise DataError(f"its pickle names {name[:80]}, which is in no dump of this kind.", NOT_RUN)
        self.names.add(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what was met."""
        if not self.names:
            return ()
        names = sorted(name[:80] for name in self.names)
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        return (f"Objects of other classes in it are not looked at: {', '.join(names[:SHOWN])}{more}.",)


def data_proto(path: str, name: str, wanted: Collection[str], of_rows: Collection[str]) -> Batch:
    """A file with one DataProto, of class `name`.  wanted, of_rows: the tensors and the arrays of objects to read."""
    foreign = ForeignNames()
    value = unpickle(opened(path), frozenset((name, "torch.Size", "_io.BytesIO", *NUMPY_GLOBALS)), foreign)
    state = value.state if isinstance(value, UnbuiltObject) and value.name == name else None
    if not isinstance(state, tuple) or len(state) < 3:
        raise DataError("it holds no DataProto.", HINT)
    others, facts = state[1], state[-1]
    if not isinstance(others, dict) or not isinstance(facts, dict):
        raise DataError("its DataProto has another structure than the framework writes.", HINT)
    if len(state) > 3 and state[2] is not None:
        what = "its tensors are not in it but in the memory of other processes."
        raise DataError(what, "Dump it again without the transfer backend that keeps tensors in other processes.")
    rows = {name: array(others[name]) for name in of_rows if name in others}
    return Batch(
        tensors=_of_data_proto(state[0], wanted),
        rows={name: [*map(scalar, row)] if isinstance(row, list) else row.tolist() for name, row in rows.items()},
        facts=facts,
        notes=foreign.notes,
    )


def _of_data_proto(batch: Any, wanted: Collection[str]) -> Mapping[str, Array]:
    is_stream = isinstance(batch, UnbuiltObject) and batch.name == "_io.BytesIO"
    if is_stream and isinstance(batch.state, tuple) and batch.state:
        batch = batch.state[0]
    if isinstance(batch, memoryview):
        file = read_torch(batch, frozenset(TENSORDICTS))
        read = tensors(file, file.value, wanted) if file.value is not None else {}
        if any(isinstance(values, Jagged) for values in read.values()):
            raise DataError("its tensors are of rows of unequal lengths.", HINT)
        return {name: values for name, values in read.items() if not isinstance(values, Jagged)}
    if not isinstance(batch, tuple) or len(batch) != 3 or not isinstance(batch[2], dict):
        raise DataError("it holds something else where its tensors should be.", HINT)
    return {name: _of_array(batch[2][name], name) for name in wanted if name in batch[2]}


def _of_array(field: Any, name: str) -> Array:
    """One tensor as (type, shape, bytes)."""
    raw = array(field[2]) if isinstance(field, tuple) and len(field) == 3 else []
    if isinstance(raw, list) or raw.dtype != np.uint8:
        raise DataError(f"its {name} is not a tensor.", HINT)
    return of_bytes(raw.data if raw.size else b"", *field[:2])


TRAINING_BATCHES = ("skyrl.backends.skyrl_train.training_batch", "skyrl_train.training_batch")
"""The modules of SkyRL's class, newest first."""
IN_TRAINING_BATCHES = ("_rebuild_tensor_batch", "TrainingInputBatch", "TensorFormat")
OF_TRAINING_BATCHES = frozenset(
    (
        *(f"{module}.{name}" for module in TRAINING_BATCHES for name in IN_TRAINING_BATCHES),
        *("torch.device", "torch.storage._load_from_bytes", *TENSORS, *NUMPY_GLOBALS),
    )
)


def training_input(path: str, wanted: Collection[str], of_rows: Collection[str]) -> Batch:
    """A file with one TrainingInputBatch."""
    value = unpickle(opened(path), OF_TRAINING_BATCHES)
    state = None
    if isinstance(value, UnbuiltObject) and value.name.rpartition(".")[0] in TRAINING_BATCHES:
        # Newer releases call _rebuild_tensor_batch with the class and the state.
        state = value.args[1] if len(value.args) == 2 else value.state
    held = state.get("batch_dict") if isinstance(state, dict) else None
    facts = state.get("metadata") if isinstance(state, dict) else None
    if not isinstance(held, dict):
        raise DataError("it holds no TrainingInputBatch.", HINT)
    read = {name: _field(held, name) for name in wanted}
    found = {name: values for name, values in read.items() if values is not None}
    return training_batch(tensors=found, rows={}, facts=facts if isinstance(facts, dict) else {})


def training_batch(
    *, tensors: Mapping[str, Array | Jagged], rows: Mapping[str, Sequence[Any]], facts: Mapping[Any, Any]
) -> Batch:
    """A TrainingInputBatch; `sequences` cut to its response, which is their last columns.

    Of the values of rows, `prompt` is the number of a row's prompt where its metadata has their boundaries, or else the
    id that its metadata has.
    """
    found = {name: values for name, values in tensors.items() if not isinstance(values, Jagged)}
    where, sequences = found.get("response_mask"), found.get("sequences")
    if where is None or sequences is None or "loss_mask" not in found:
        raise DataError("its batch has no sequences, response_mask or loss_mask.", HINT)
    fits = sequences.ndim == where.ndim == 2 and where.shape[1] <= sequences.shape[1]
    if not fits or where.shape != found["loss_mask"].shape:
        raise DataError(f"its sequences have the shape {sequences.shape}, its response_mask {where.shape}.", HINT)
    found["sequences"] = sequences[:, sequences.shape[1] - where.shape[1] :]
    n_padding = as_whole(facts.get("pad_size")) or 0
    if not 0 <= n_padding <= len(where):
        raise DataError(f"its pad_size is {n_padding:,}, of {len(where):,} rows.", HINT)
    n_rows, ranges, uids = len(where) - n_padding, facts.get("policy_prompt_boundaries"), facts.get("uids")
    prompts = _numbered(ranges, n_rows) if isinstance(ranges, list) else uids
    return Batch(
        tensors=found,
        rows={**rows, **({"prompt": prompts[:n_rows]} if isinstance(prompts, list) else {})},
        n_rows=n_rows,
        notes=("Rows that only fill a batch up to its size (metadata.pad_size) are left out.",) if n_padding else (),
    )


def _field(fields: dict[Any, Any], name: str) -> Array | None:
    """One tensor; None of one that is not there, or empty."""
    value = fields.get(name)
    if value is None or isinstance(value, memoryview):
        return None if value is None else _of_torch(value)
    form = value.get("format") if isinstance(value, dict) else None
    form = form.args[0] if isinstance(form, UnbuiltObject) and form.args else form
    if form == "numpy":
        return of_bytes(value.get("data"), value.get("dtype"), value.get("shape"))
    if form == "torch" and isinstance(value.get("data"), memoryview):
        return _of_torch(value["data"])
    values = array(value.get("data")) if form == "numpy_view" else []
    if isinstance(values, list):
        raise DataError(f"its {name} is not a tensor.", HINT)
    return values


def _of_torch(data: memoryview) -> Array | None:
    file = read_torch(data, TENSORS)
    return None if file.value is None else file.array(file.value)


def _numbered(ranges: list[Any], n_rows: int) -> list[int | None]:
    """For each row the number of the range that it lies in."""
    numbers: list[int | None] = [None] * n_rows
    last = 0
    for number, bounds in enumerate(ranges):
        start, end = bounds if isinstance(bounds, (tuple, list)) and len(bounds) == 2 else (None, None)
        if type(start) is not int or type(end) is not int or not last <= start <= end:
            raise DataError("its policy_prompt_boundaries are not ranges of rows.", HINT)
        last = end
        numbers[start:end] = [number] * (min(end, n_rows) - min(start, n_rows))
    return numbers


STACK = "tensordict.tensorclass.NonTensorStack"
SHELL = "tensordict.tensorclass.NonTensorData"
OF_TRANSFER_QUEUES = frozenset((*TENSORDICTS, *JAGGED_TENSORS, *NUMPY_GLOBALS, STACK, SHELL))


def transfer_queue(path: str, wanted: Collection[str], of_rows: Collection[str]) -> Batch:
    """A file of verl's skip manager for TransferQueue: a TensorDict, tags of each row, and `keys`."""
    foreign = ForeignNames()
    file = read_torch(opened(path), OF_TRANSFER_QUEUES, foreign)
    if not isinstance(file.value, dict) or "tensordict" not in file.value:
        raise DataError("it holds no batch of verl's skip manager.", HINT)
    batch = file.value["tensordict"]
    read, unbuilt = tensors(file, batch, wanted), fields(batch)
    n_rows = max((len(values) for values in read.values() if isinstance(values, Jagged) or values.ndim), default=0)
    rows = {name: _out_of_shells(unbuilt[name], n_rows) for name in of_rows if name in unbuilt}
    tags, keys = file.value.get("tags"), file.value.get("keys")
    for name in of_rows:
        if isinstance(tags, list) and any(isinstance(tag, dict) and name in tag for tag in tags):
            rows[name] = [tag.get(name) if isinstance(tag, dict) else None for tag in tags]
    if isinstance(keys, list) and keys and "keys" in of_rows:
        rows["keys"] = keys
    return Batch(tensors=read, rows=rows, facts=file.value, notes=foreign.notes)


def _out_of_shells(value: Any, n_rows: int) -> list[Any]:
    """One object a row, out of its shell; of a single shell the same for all."""
    state = value.state if isinstance(value, UnbuiltObject) else None
    if isinstance(state, dict) and value.name == STACK:
        shells = state.get("tensordicts")
        return [*map(_out_of_shell, shells)] if isinstance(shells, list) else []
    return [_out_of_shell(value)] * n_rows


def _out_of_shell(shell: Any) -> Any:
    state = shell.state if isinstance(shell, UnbuiltObject) and shell.name == SHELL else None
    held = state.get("non_tensordict") if isinstance(state, dict) else None
    return scalar(held.get("data")) if isinstance(held, dict) else None
