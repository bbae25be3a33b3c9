"""Frameworks' files that stay open between the readings of a dump."""

import os
import shutil
from pathlib import Path

from rlcorr_cli.layouts.layout import OpenedDump
from rlcorr_cli.reading.native import KEPT_BYTES, OpenUnits, Stamps
from tests.layouts.native_rows import NATIVE, rows_of


def kept(*n_bytes: int) -> list[int]:
    """The numbers of the units that are kept, of units of so many bytes opened one after the other."""
    units = OpenUnits()
    for number, size in enumerate(n_bytes):
        units.keep(_key(number), OpenedDump(columns=(), samples=lambda: iter(())), size)
    return [number for number in range(len(n_bytes)) if units.get(_key(number))]


def _key(number: int) -> tuple[str, Stamps]:
    return "miles", ((f"{number}.pt", (number,)),)


def test_small_units_are_all_kept() -> None:
    assert kept(*[KEPT_BYTES // 8] * 8) == [*range(8)]


def test_the_first_opened_goes_where_units_have_too_many_bytes() -> None:
    assert kept(*[KEPT_BYTES // 4] * 6) == [2, 3, 4, 5]


def test_the_last_two_are_kept_whatever_their_size() -> None:
    assert kept(*[10 * KEPT_BYTES] * 4) == [2, 3]


def test_a_unit_that_is_kept_again_counts_once() -> None:
    units, opened = OpenUnits(), OpenedDump(columns=(), samples=lambda: iter(()))
    for number in (0, 1, 1, 1, 2):
        units.keep(_key(number), opened, KEPT_BYTES // 3)
    assert units.get(_key(0))


def test_small_units_that_are_kept_leave_the_process_its_open_files(tmp_path: Path) -> None:
    file = NATIVE / "miles" / "policy_loss_debug" / "rank_0_call_0.pt"
    paths = [shutil.copy(file, tmp_path / f"rank_0_call_{i}.pt") for i in range(40)]
    before = len(os.listdir("/proc/self/fd"))
    assert len(rows_of(paths)) == 40 * len(rows_of([file]))
    assert len(os.listdir("/proc/self/fd")) - before < 10
