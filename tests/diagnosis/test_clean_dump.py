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

MODELS = Path(__file__).parent / "causes_models"
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
    assert f"2.9 times as much as in {saved}, which is clean" in found.evidence[0]
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


def test_fp8_weights_without_a_clean_dump_are_not_ruled_out() -> None:
    """Of characters: 40 ids say little of what goes with the token, and fp8 spreads wide on this model."""
    dump = MODELS / "charlstm__quant_fp8.parquet"
    result = diagnose(dump)
    assert (result.verdict, result.story.certainty) == ("noise", "one of")
    assert "rounding noise, or changed weights" in result.story.headline
    assert "--clean-dump FILE" in result.story.do[0]
    assert "Nothing in the data is wrong" not in str(result)
    with_clean = diagnose(dump, clean_dump=MODELS / "charlstm__clean_bf16_bf16.parquet")
    assert (with_clean.verdict, with_clean.story.certainty) == ("other_weights", "likely")


def test_weights_are_ruled_out_where_ids_tell() -> None:
    """On a flat model whose noise is that of bf16, what goes with the token is below what rounding of weights makes."""
    found = diagnose(flat_dump()).whole.diagnosis.cause
    assert found is not None
    assert (found.cause, found.certainty, found.alternatives) == ("noise", "likely", ())
    assert found.advice.startswith("Nothing in the data is wrong.")


def test_wider_weights_of_a_model_with_far_tokens_are_named_with_a_clean_dump() -> None:
    """fp8 leaves a few tokens far off, too; a spread beyond a clean dump's comes before them."""
    rng = np.random.default_rng(4)
    columns = flat_dump().to_pydict()
    for row, b in enumerate(columns["rollout_log_probs"]):
        b = np.array(b)
        far = np.where(rng.random(b.size) < 0.01, 0.6, NOISE)
        odds = b - np.log(-np.expm1(b)) + rng.normal(size=b.size) * far
        columns["old_log_probs"][row] = (-np.logaddexp(0, -odds)).tolist()
    found, with_clean = (diagnose(columns, clean_dump=clean).whole.diagnosis for clean in (None, flat_dump()))
    assert found.cause is not None
    assert (found.verdict, found.certainty, found.cause.alternatives) == ("heavy_tail", "one of", ("other_weights",))
    assert (with_clean.verdict, with_clean.certainty) == ("other_weights", "likely")
