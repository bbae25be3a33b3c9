"""Cases of which a few are tried at each change, and all by .ci/full."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """The cases for `parametrize`: all but the quick ones are marked `full`; one of several arguments is a tuple."""
    cases = list(cases)
    assert all(case in cases for case in quick), "a quick case is none"
    return [case if case in quick else _in_full(case) for case in cases]


def _in_full(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full)
