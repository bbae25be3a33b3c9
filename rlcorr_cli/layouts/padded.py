"""Batches of padded tensors as samples: from [B, R] arrays to each row's own tokens, which are views of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import Sample
from rlcorr_cli.layouts.tensors import Array
from rlcorr_cli.layouts.values import HINT

POLICIES = ("rollout_log_probs", "old_log_probs", "ref_log_probs")
TYPE_32 = pa.list_(pa.float32())
Ends = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Padded:
    """A batch.

    tokens: canonical column -> [B, R], all of one shape.  starts, ends: of each row's response in them.
    values: canonical column -> one value a row.
    """

    tokens: Mapping[str, Array]
    starts: Ends
    ends: Ends
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it fills."""
        return (*self.tokens, *self.values)

    @property
    def types(self) -> dict[str, Any]:
        """Columns that are narrower than canonical ones."""
        return types_of(self.tokens)

    def samples(self) -> Iterator[Sample]:
        """Its rows."""
        for row, (start, end) in enumerate(zip(self.starts.tolist(), self.ends.tolist(), strict=True)):
            tokens = {name: values[row, start:end] for name, values in self.tokens.items()}
            yield {**tokens, **{name: values[row] for name, values in self.values.items()}}


def checked(tokens: Mapping[str, Array]) -> Mapping[str, Array]:
    """The tensors, if all are [B, R] and numbers, log-probs floats, and the mask holds nothing but 0 and 1."""
    shape = tokens["response_mask"].shape
    for name, values in tokens.items():
        if values.ndim != 2 or values.shape != shape:
            raise DataError(f"its {name} has the shape {values.shape}, its response_mask {shape}.", HINT)
        check_kind(name, values)
    return tokens


def types_of(tokens: Mapping[str, Array]) -> dict[str, Any]:
    """Log-probs and advantages of 32 bits where they have no more; other columns are as canonical."""
    narrow = (name for name in (*POLICIES, "advantages") if name in tokens)
    return {name: TYPE_32 for name in narrow if tokens[name].dtype.kind == "f" and tokens[name].itemsize <= 4}


def check_kind(name: str, values: Array) -> None:
    """A DataError where log-probs are no floats, token ids no whole numbers, or a mask is beyond 0 and 1."""
    if name in POLICIES and values.dtype.kind != "f":
        raise DataError(f"its {name} holds {values.dtype}, which log-probs are not.", HINT)
    if name == "token_ids" and values.dtype.kind not in "iu":
        raise DataError(f"its token ids are of {values.dtype}, not whole numbers.", HINT)
    if name == "response_mask" and values.size and (values.min() < 0 or values.max() > 1):
        raise DataError(f"its response_mask holds {values.min()} to {values.max()}, not 0 and 1.", HINT)


def totals(rows: Iterable[Array]) -> list[float]:
    """The sum of each row, such as of rewards by token; NaN where infinities of both signs meet."""
    with np.errstate(invalid="ignore"):
        return [float(np.sum(row, dtype=np.float64)) for row in rows]


def spans(mask: Array) -> tuple[Ends, Ends]:
    """From the first to the last 1 of each row; an empty span of a row without one."""
    n_rows, width = mask.shape
    if not width:
        return np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    ones = mask != 0
    rows = ones.any(axis=1)
    return np.where(rows, ones.argmax(axis=1), 0), np.where(rows, width - ones[:, ::-1].argmax(axis=1), 0)


def is_copy(tokens: Mapping[str, Array]) -> bool:
    """Whether old_log_probs are rollout_log_probs on every token of the mask, of which there is one at least."""
    valid = tokens["response_mask"] != 0
    same = tokens["old_log_probs"] == tokens["rollout_log_probs"]
    return bool(valid.any() and not np.any(valid & ~same))
