"""Exponentials and logarithms, whichever library computes them."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rlcorr_cli.core import elementwise

# Torch's logarithm takes a denormal number for 0: a digit is given at most to the smallest number there is.
SMALLEST = 5e-324
VALUES = [-700.0, -36.7, -10.0, -1.0 + 1e-9, -0.25, -1e-9, -1e-300, 0.0, SMALLEST, 1e-12, 0.02, 1.0, 20.5, 699.9]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [(elementwise.exp, math.exp), (elementwise.expm1, math.expm1), (elementwise.log1p, math.log1p)],
    ids=["exp", "expm1", "log1p"],
)
def test_every_digit_is_that_of_the_c_library(
    formula: Callable[..., Tensor], expected: Callable[[float], float]
) -> None:
    values = [value for value in VALUES if formula is not elementwise.log1p or value > -1]
    known = [expected(value) for value in values]
    out = torch.empty(len(values), dtype=torch.float64)
    assert formula(torch.tensor(values, dtype=torch.float64)).tolist() == pytest.approx(known, rel=5e-16, abs=SMALLEST)
    assert formula(torch.tensor(values, dtype=torch.float64), out=out) is out
    assert out.tolist() == pytest.approx(known, rel=5e-16, abs=SMALLEST)


@pytest.mark.filterwarnings("error")
def test_beyond_float64_there_is_infinity_without_a_warning() -> None:
    beyond = torch.tensor([710.0, math.inf, -math.inf], dtype=torch.float64)
    assert elementwise.exp(beyond).tolist() == [math.inf, math.inf, 0.0]
    assert elementwise.expm1(beyond).tolist() == [math.inf, math.inf, -1.0]
    assert elementwise.log1p(torch.tensor([-1.0, math.inf], dtype=torch.float64)).tolist() == [-math.inf, math.inf]
