"""A folder of many small files takes so much work for each of them, and none for each pair."""

import cProfile
from pathlib import Path

import pytest
from running import parquet, row, run

SIZES = 70, 110, 190
"""Files: more than are looked at for a cause."""
PAIRS = (190**2 - 110**2) - 2 * (110**2 - 70**2)
COMMANDS = {
    "filter": ("--preset", "token_is", "--engine", "threads", "--workers", "1", "-o"),
    "convert": ("-o",),
}


def n_calls(n_files: int, folder: Path, command: str) -> int:
    """Of functions, in the thread that gives out the work and takes the results."""
    (folder / "dump").mkdir(parents=True)
    for i in range(n_files):
        parquet(folder / "dump" / f"{i}.parquet", [row(step=i % 3)])
    with cProfile.Profile() as profile:
        ran = run(command, str(folder / "dump"), *COMMANDS[command], str(folder / "out.parquet"))
    assert ran.status == 0, ran.err
    return sum(one.callcount for one in profile.getstats())


@pytest.mark.parametrize("command", COMMANDS)
def test_work_grows_with_the_files_and_not_with_their_pairs(command: str, tmp_path: Path) -> None:
    n_calls(1, tmp_path / "first", command)  # so that all is imported
    few, some, many = (n_calls(n, tmp_path / str(n), command) for n in SIZES)
    # Twice as many more files, twice as many more calls; what is beyond that is less than one for each pair.
    assert (many - some) - 2 * (some - few) < PAIRS
