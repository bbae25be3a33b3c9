"""Causes on models other than the one that the rules were made on: flat ones, a mixture of experts, characters.

Each of these dumps, and each setting of the flat generator, was once called something else.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from flat_model import flat_dump
from known_causes import shares_add

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import Diagnosis

DUMPS = Path(__file__).parent / "causes_models"
REAL = {
    "glass_pt__clean_bf16_fp32": "noise",
    "charlstm__matched_T07": "noise",
    "charlstm__ckpt_noise15": "other_weights",
    "moe__moe_flips_bf16_bf16_2": "heavy_tail",
    "glass_en__mlp_drop2pct": "heavy_tail",
    "glass_en__softcap": "logit_softcap",
    "charlstm__rep1.1": "repetition_penalty",
    "charlstm__combo_topp09_stale4": "top_p",
    "glass_pt__rows_temp085_nocolumn": "some_rows",
    "smol_chat__padvocab1": "padded_vocabulary",
    "moe__window": "position_onset",
}
"""Dump -> its verdict.  Among them: bf16 weights that go with the token, weights so far off that short rows hardly go
together, a router that flips at the end of a prompt, outliers in all rows and not in some, a cap where no token is
sure, top-p under staleness, a fourth of the rows, padding that moves log-odds by 1, a window that rows of other prompts
reach at other places."""
FLAT: list[tuple[dict[str, Any], str]] = [
    ({}, "noise"),
    ({"top_p": 0.98}, "top_k"),
    ({"top_p": 0.95}, "top_p"),
    ({"top_p": 0.9, "swapped": True}, "top_p"),
    ({"min_p": 0.05}, "min_p"),
    ({"min_p": 0.02}, "top_k"),
    ({"top_k": 20}, "top_k"),
    ({"top_k": 200}, "top_k"),
    ({"padded": True}, "padded_vocabulary"),
    ({"softcap": 5.0}, "logit_softcap"),
    ({"softcap": 8.0}, "logit_softcap"),
    ({"temperature": 0.9}, "temperature"),
    ({"temperature": 1.2}, "temperature"),
    ({"temperature": 0.8, "swapped": True}, "temperature"),
]


@cache
def of_flat(**settings: Any) -> Diagnosis:
    """What is said of a dump of the flat generator."""
    return diagnose(flat_dump(**settings)).whole.diagnosis


@pytest.mark.parametrize("name", REAL)
def test_real_dumps_of_other_models(name: str) -> None:
    result = diagnose(DUMPS / f"{name}.parquet")
    assert result.verdict == REAL[name]
    assert shares_add(result.causes)


@pytest.mark.full
@pytest.mark.parametrize(("settings", "verdict"), FLAT)
def test_a_model_that_is_sure_of_nothing(settings: dict[str, Any], verdict: str) -> None:
    found = of_flat(**settings)
    assert found.verdict == verdict
    assert shares_add(found.causes)


@pytest.mark.parametrize(
    ("name", "causes", "shares"),
    [
        ("moe__combo_temp08_rep11", ("temperature", "repetition_penalty"), (0.4, 0.9)),
        ("glass_en__combo_topp09_stale4", ("top_p", "stale_policy"), (0.8, 1.0)),
        ("charlstm__combo_topp09_stale4", ("top_p", "stale_policy"), (0.8, 1.0)),
    ],
)
def test_two_faults_are_named_beside_each_other_with_shares_that_add(
    name: str, causes: tuple[str, str], shares: tuple[float, float]
) -> None:
    found = [cause for cause in diagnose(DUMPS / f"{name}.parquet").causes if cause.cause != "noise"]
    assert tuple(cause.cause for cause in found) == causes
    assert shares[0] < sum(cause.share for cause in found) <= shares[1]


def test_tokens_that_share_their_prefix_tell_a_temperature_beside_a_penalty() -> None:
    found = diagnose(DUMPS / "moe__combo_temp08_rep11.parquet").causes[0]
    low, high = found.intervals["temperature"]
    assert low < 0.8 < high
    assert high - low < 0.02


def test_rows_joined_wrongly_bend_no_temperature_into_a_cap() -> None:
    """Their first tokens share prefixes with those of the other rows, and lie off the line."""
    table = flat_dump(temperature=0.9)
    trained = table["old_log_probs"].to_pylist()
    for row, other in ((0, 25), (8, 33)):
        trained[row], trained[other] = trained[other], trained[row]
    at = table.schema.get_field_index("old_log_probs")
    table = table.set_column(at, "old_log_probs", pa.array(trained, pa.list_(pa.float32())))
    mispaired, found, _ = diagnose(table).causes
    assert (mispaired.cause, found.cause) == ("mispaired_rows", "temperature")
    low, high = found.intervals["temperature"]
    assert low < 0.9 < high
    assert high - low < 0.02


def test_a_column_that_was_cut_in_training_is_said_to_be_training_s() -> None:
    found = of_flat(top_p=0.9, swapped=True).cause
    assert found is not None
    assert found.headline.startswith("old_log_probs was logged after top-p")
    assert "Tokens were drawn from old_log_probs" in " ".join(found.evidence)
    assert found.advice.startswith("Check that rollout_log_probs and old_log_probs were not exchanged.")


@pytest.mark.parametrize(
    ("ratio", "settings"), [(0.9, {"temperature": 0.9}), (1.25, {"temperature": 0.8, "swapped": True})]
)
def test_tokens_that_share_their_prefix_tell_the_temperature(ratio: float, settings: dict[str, Any]) -> None:
    found = of_flat(**settings).cause
    assert found is not None
    low, high = found.intervals["temperature"]
    assert low < ratio < high
    assert high - low < 0.2 * abs(ratio - 1)


def test_without_prompts_the_interval_is_wide() -> None:
    table = flat_dump(temperature=0.9).drop_columns(["group_id"])
    found = diagnose(table).whole.diagnosis.cause
    assert found is not None
    low, high = found.intervals["temperature"]
    assert low < 0.9 < high
    assert high - low > 0.3 * 0.1


@pytest.mark.parametrize(
    ("settings", "certainty", "alternatives"),
    [
        ({"top_p": 0.7}, "proven", ()),
        ({"temperature": 0.9}, "likely", ()),
        ({"top_p": 0.95}, "one of", ("top_k",)),
        ({"top_p": 0.98}, "one of", ("min_p", "top_p")),
        ({"min_p": 0.02}, "one of", ("min_p", "top_p")),
        ({"padded": True}, "likely", ()),
    ],
)
def test_how_sure_a_cause_is(settings: dict[str, Any], certainty: str, alternatives: tuple[str, ...]) -> None:
    result = diagnose(flat_dump(**settings))
    found = result.whole.diagnosis
    assert (found.certainty, result.story.certainty) == (certainty, certainty)
    assert found.cause is not None
    assert found.cause.alternatives == alternatives
    assert (", or " in result.story.headline) == bool(alternatives)


@pytest.mark.parametrize(
    ("name", "far", "advice"),
    [
        ("moe__moe_flips_bf16_bf16_2", "0.6% of the tokens (25) are far off, each by itself", "replay the rollout's"),
        ("glass_en__mlp_drop2pct", "4% of the tokens (178) are far off, in runs", "where a run begins"),
    ],
)
def test_far_tokens_are_told_as_single_ones_or_runs(name: str, far: str, advice: str) -> None:
    """A router flip leaves one token far off; what it leaves in its row's KV cache, the next ones, too."""
    story = diagnose(DUMPS / f"{name}.parquet").story
    assert far in story.headline
    assert ("router flips" in story.headline) == ("each by itself" in far)
    assert advice in story.do[0]
