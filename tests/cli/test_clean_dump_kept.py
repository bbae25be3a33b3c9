"""A clean dump to compare with is read, and never replaced."""

import shutil
from pathlib import Path

import pytest
from running import BF16, run

INT8 = BF16.replace("bf16", "int8")


@pytest.mark.parametrize("command", ["analyze", "diagnose"])
def test_a_clean_dump_is_not_written_over(command: str, tmp_path: Path) -> None:
    clean = tmp_path / "clean.json"
    assert run("analyze", BF16, "-o", str(clean)).status == 0
    kept = shutil.copy(clean, tmp_path / "kept.json")
    ran = run(command, INT8, "--clean-dump", str(clean), "-o", str(clean), "--overwrite")
    assert ran.status == 2
    assert "--clean-dump" in ran.err
    assert clean.read_bytes() == Path(kept).read_bytes()
