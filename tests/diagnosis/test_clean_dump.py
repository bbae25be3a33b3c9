"""A clean dump of the same model as the yardstick of another: what is noise, and what is more."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from flat_model import flat_dump
from known_causes import DUMPS

from rlcorr_cli import analyze, check, diagnose
from rlcorr_cli.errors import DataError, UsageError

NOISE = 0.03
"""Of a dump that differs three times as much as a clean one of the flat model."""


@pytest.fixture(scope="module")
def coarse() -> Any:
    """A dump of the flat model whose noise is that of weights of fewer bits, without its token ids."""
    table = flat_dump().drop_columns(["token_ids"])
    rng = np.random.default_rng(3)
    columns = table.to_pydict()
    for row in range(table.num_rows):
        b = np.array(columns["rollout_log_probs"][row], np.float64)
        odds = b - np.log(-np.expm1(b)) + rng.normal(size=b.size) * NOISE
        columns["old_log_probs"][row] = (-np.logaddexp(0, -odds)).tolist()
    return columns


@pytest.mark.parametrize("saved", ["clean.parquet", "clean.json", "clean.rlcorr", "report.json", "report.rlcorr"])
def test_noise_beyond_that_of_a_clean_dump_is_of_other_weights(tmp_path: Path, coarse: Any, saved: str) -> None:
    clean = tmp_path / saved
    if saved.startswith("clean") and saved != "clean.parquet":
        diagnose(flat_dump(), output=clean)
    elif saved != "clean.parquet":
        analyze(flat_dump(), output=clean)
    else:
        pq.write_table(flat_dump(), clean)
    assert diagnose(coarse).verdict == "noise"
    found = diagnose(coarse, clean_dump=clean).whole.diagnosis.cause
    assert found is not None
    assert (found.cause, found.certainty) == ("other_weights", "likely")
    assert found.parameters["times_clean"] == pytest.approx(3, rel=0.1)
    assert f"3.1 times as much as in {saved}, which is clean" in found.evidence[0]
    assert 0.8 < found.share < 8 / 9


def test_noise_as_large_as_a_clean_dump_s_is_noise_for_sure(coarse: Any) -> None:
    without, found = (diagnose(coarse, clean_dump=clean).whole.diagnosis.cause for clean in (None, coarse))
    assert without is not None
    assert found is not None
    assert without.alternatives == ("other_weights",)
    assert (found.cause, found.certainty, found.parameters["times_clean"]) == ("noise", "likely", 1.0)
    assert found.headline == "rounding noise, 1.0 times that of <table in memory>"


def test_analyze_and_check_take_a_clean_dump(coarse: Any) -> None:
    report = analyze(coarse, clean_dump=flat_dump())
    assert report.story.first == "other_weights"
    assert check(coarse, fail_on="cause", clean_dump=flat_dump()).passed is False
    with pytest.raises(UsageError, match="clean_dump needs the dump"):
        check(report, clean_dump=flat_dump())


def test_a_dump_with_a_fault_is_no_yardstick(tmp_path: Path, coarse: Any) -> None:
    faulty, report = DUMPS / "temp09_processed_vs_raw.parquet", tmp_path / "faulty.json"
    diagnose(faulty, output=report)
    for clean in (faulty, report):
        with pytest.raises(DataError, match=f"{clean.name} is no clean dump: its cause is temperature"):
            diagnose(coarse, clean_dump=clean)
    found = json.loads(report.read_text())
    report.write_text(json.dumps(found | {"gap": None, "cause": None, "story": found["story"] | {"first": "noise"}}))
    with pytest.raises(DataError, match="does not tell how far apart"):
        diagnose(coarse, clean_dump=report)
