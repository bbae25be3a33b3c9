"""`filter` writes no training set from a dump whose rows or columns are wrong, unless it is told to."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import Ran, run

from rlcorr_cli.engines.processes import ProcessEngine

CAUSES = Path(__file__).parent.parent / "diagnosis" / "causes"


def filtered(name: str, *options: str) -> Ran:
    return run("filter", str(CAUSES / f"{name}.parquet"), "--preset", "token_is", *options)


@pytest.mark.parametrize("output", ["out.parquet", "parts/", "out.jsonl"])
def test_nothing_is_written_of_a_dump_with_a_fault(output: str, tmp_path: Path) -> None:
    ran = filtered("mispaired_5pct", "-o", str(tmp_path / output))
    assert ran.status == 1
    what, do = ran.err.splitlines()
    assert what.startswith("Error: Likely cause: 4 rows of 64 hold log-probs of two different responses.")
    assert do.endswith("Nothing was written; --force writes all the same.")
    assert list(tmp_path.iterdir()) == []


def test_workers_write_no_parts_of_a_dump_with_a_fault(tmp_path: Path) -> None:
    assert ProcessEngine(2).shares_memory is False
    ran = filtered("mispaired_5pct", "-o", f"{tmp_path}/parts/", "--engine", "processes", "--workers", "2")
    assert ran.status == 1
    assert list(tmp_path.iterdir()) == []


def test_a_forced_output_says_over_which_fault(tmp_path: Path) -> None:
    assert filtered("mispaired_5pct", "-o", str(tmp_path / "out.parquet"), "--force").status == 0
    about = json.loads(pq.read_metadata(tmp_path / "out.parquet").metadata[b"rlcorr"])
    assert about["forced_over"] == ["mispaired_rows"]


def test_a_dry_run_tells_the_fault_and_ends_alike() -> None:
    ran = filtered("mispaired_5pct", "--dry-run")
    assert ran.status == 1
    assert "! mispaired_rows  Likely cause: 4 rows of 64" in ran.out
    assert "Without --force nothing is written of a dump with a fault." in ran.out
    story = json.loads(filtered("mispaired_5pct", "--dry-run", "--json").out)["story"]
    assert (story["first"], story["effect"]) == ("mispaired_rows", "fault")


@pytest.mark.parametrize("name", ["noise_bf16_fp32", "moe_flips_bf16", "stale_4", "quant_int8"])
def test_a_dump_that_training_can_live_with_is_written(name: str, tmp_path: Path) -> None:
    ran = filtered(name, "-o", str(tmp_path / "out.parquet"))
    assert ran.status == 0, ran.err
    assert b"forced_over" not in pq.read_metadata(tmp_path / "out.parquet").metadata[b"rlcorr"]
