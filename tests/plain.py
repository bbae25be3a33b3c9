"""Values that add, held against each other: exactly, or to the rounding that another order of adding up makes."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rlcorr_cli.totals.row_sample import ARRAYS, RowSample
from rlcorr_cli.totals.tail import Tail
from rlcorr_cli.totals.totals import Totals


def plain(value: Any) -> Any:
    """Everything inside as JSON-able values, to compare exactly."""
    if isinstance(value, Totals):  # groups are in no order
        order = sorted(range(len(value)), key=lambda place: str(value.keys[place]))
        value = value.at(order)
    if isinstance(value, Tail):  # kept in no order
        return [sorted(value.largest.tolist()), value.n, value.size]
    if isinstance(value, RowSample):  # rows are in no order, and so are its files and the values of its columns
        return value.most, value.level, sorted((_row(value.rows(np.array([i]))) for i in range(value.n_rows)), key=str)
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if callable(value):
        return value()
    if isinstance(value, np.ndarray):
        # Thousands of sums as lists would take most of the time; counts are in whatever type they fit.
        return (value.shape, value.tobytes()) if value.size > 100 and value.dtype == float else value.tolist()
    return value


def _row(sample: RowSample) -> tuple[Any, ...]:
    """Everything of a sample of one row; what no row of a sample has is as what this one has not."""
    n_tokens = int(sample.n_tokens[0])
    arrays = {name: getattr(sample, name) for name in ARRAYS if name not in ("files", "names")}
    lacking = {"valid": [True] * n_tokens, "token_ids": [-1] * n_tokens}
    values = lacking | {name: array.tolist() for name, array in arrays.items() if array is not None}
    columns = {name: column.values[column.codes[0]] for name, column in {**sample.levels, **sample.groups}.items()}
    of_columns = [(name, value) for name, value in sorted(columns.items()) if value is not None]
    return sample.place(0), sample.name(0), values, of_columns


def assert_same_totals(found: Totals | None, expected: Totals | None, rtol: float = 1e-9) -> None:
    """To rounding: the last digit of an exponential depends on a token's place in its batch."""
    if found is None or expected is None:
        assert found is expected
        return
    assert set(found.keys) == set(expected.keys)
    assert found.names == expected.names
    found = found.at([found.keys.index(key) for key in expected.keys])
    for merge, table in expected.tables.items():
        numbers = found.tables[merge].values
        exact = merge != "sum" and merge != "log_sum_exp"
        np.testing.assert_allclose(numbers, table.values, rtol=min(rtol, 1e-14) if exact else rtol, atol=1e-11)
    assert plain(found.histograms) == plain(expected.histograms)
    for name, tails in expected.tails.items():
        if "mass" in name:  # sums of exponentials; the others are logs as they come
            mine, theirs = plain(found.tails[name]) or [], plain(tails) or []
            for (values, *about), (others, *about_others) in zip(mine, theirs, strict=True):
                assert about == about_others
                np.testing.assert_allclose(values, others, rtol=1e-12)
        else:
            assert plain(found.tails[name]) == plain(tails)
