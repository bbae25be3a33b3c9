"""DataProto, the batch that verl and ROLL pickle: its tensors, its arrays of one object a row, and what is said of it.

The tensors are a file of torch's in the pickle, with a TensorDict in it, or raw bytes with type and shape.  The other
arrays are of people's own data and may hold objects of any class: these stay inert records, and are counted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.pickled import HINT as NOT_RUN
from rlcorr_cli.layouts.pickled import Foreign, Inert, unpickle
from rlcorr_cli.layouts.tensordicts import TENSORDICTS, Jagged, tensors
from rlcorr_cli.layouts.tensors import NUMPY_GLOBALS, Array, array, of_bytes, scalar
from rlcorr_cli.layouts.torch_files import opened, read_torch
from rlcorr_cli.layouts.values import HINT

STARTERS = frozenset(
    ("os", "posix", "nt", "subprocess", "sys", "pty", "runpy", "importlib", "ctypes", "shutil", "pickle")
)
RUNNERS = frozenset(("eval", "exec", "compile", "execfile", "__import__", "breakpoint", "open", "input"))
"""Modules, and functions of `builtins`, that are in no one's data: they start programs or run text."""
SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class DataProto:
    """tensors: by name, as in the file; inert: of each other array, as the pickle has it; meta: the batch's own facts.
    state: what the object was made of, for what only one framework has there.  notes: on objects that are not read."""

    tensors: Mapping[str, Array]
    inert: Mapping[str, Any]
    meta: Mapping[Any, Any]
    state: tuple[Any, ...]
    notes: tuple[str, ...]

    def objects(self, name: str, n_rows: int) -> list[Any] | None:
        """The array of that name, one value a row; None of one that is not there."""
        if name not in self.inert:
            return None
        return objects(self.inert[name], name, n_rows)


class ForeignNames:
    """Counts the classes of people's own objects, and refuses what has no place in data."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, name: str) -> None:
        module, _, function = name.rpartition(".")
        builtin = module in ("builtins", "__builtin__") and function in RUNNERS
        if name.split(".")[0] in STARTERS or builtin:
            raise Foreign(f"its pickle names {name[:80]}, which is in no dump of this kind.", NOT_RUN)
        self.names.add(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what was met."""
        if not self.names:
            return ()
        names = sorted(name[:80] for name in self.names)
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        return (f"Objects of other classes in it are not looked at: {', '.join(names[:SHOWN])}{more}.",)


def read_data_proto(path: str, name: str, allowed: Collection[str], names: Collection[str]) -> DataProto:
    """A file with one DataProto.  name: of its class; allowed: what else than arrays and tensors it may name.
    names: of the tensors that are wanted."""
    foreign = ForeignNames()
    value = unpickle(opened(path), frozenset((name, "torch.Size", *allowed, *NUMPY_GLOBALS)), foreign)
    state = value.state if isinstance(value, Inert) and value.name == name else None
    if not isinstance(state, tuple) or len(state) < 3:
        raise DataError("it holds no DataProto.", HINT)
    others, meta = state[1], state[-1]
    if not isinstance(others, dict) or not isinstance(meta, dict):
        raise DataError("its DataProto has another structure than the framework writes.", HINT)
    return DataProto(tensors=_tensors(state[0], names), inert=others, meta=meta, state=state, notes=foreign.notes)


def objects(value: Any, name: str, n_rows: int) -> list[Any]:
    """An array of one value a row."""
    values = array(value)
    plain = [scalar(item) for item in values] if isinstance(values, list) else values.tolist()
    if len(plain) != n_rows:
        raise DataError(f"its {name} has {len(plain):,} values for {n_rows:,} rows.", HINT)
    return plain


def _tensors(batch: Any, names: Collection[str]) -> Mapping[str, Array]:
    if isinstance(batch, Inert) and batch.name == "_io.BytesIO" and isinstance(batch.state, tuple) and batch.state:
        batch = batch.state[0]
    if isinstance(batch, memoryview):
        file = read_torch(batch, frozenset(TENSORDICTS))
        read = tensors(file, file.value, names) if file.value is not None else {}
        if any(isinstance(values, Jagged) for values in read.values()):
            raise DataError("its tensors are of rows of unequal lengths.", HINT)
        return {name: values for name, values in read.items() if not isinstance(values, Jagged)}
    if not isinstance(batch, tuple) or len(batch) != 3 or not isinstance(batch[2], dict):
        raise DataError("it holds something else where its tensors should be.", HINT)
    return {name: _of_array(batch[2][name], name) for name in names if name in batch[2]}


def _of_array(field: Any, name: str) -> Array:
    """One tensor as (type, shape, bytes)."""
    if not isinstance(field, tuple) or len(field) != 3:
        raise DataError(f"its {name} is not a tensor.", HINT)
    dtype, shape, data = field
    raw = array(data)
    if isinstance(raw, list) or raw.dtype != np.uint8:
        raise DataError(f"its {name} is not a tensor.", HINT)
    return of_bytes(raw.data if raw.size else b"", dtype, shape)
