"""Each dump of known cause gets that cause's verdict, and the numbers that it was made with."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import ALSO, COLUMNS, DUMPS, VERDICTS, diagnosed, shares_add

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding

NO_FAULT = [name for name, cause in VERDICTS.items() if cause in ("noise", "none") and name not in ALSO]


def found(name: str, cause: str) -> CauseFinding:
    """What the diagnosis of a dump says of a cause."""
    return next(each for each in diagnosed(name).causes if each.cause == cause)


@pytest.mark.parametrize("name", VERDICTS)
def test_a_dump_of_known_cause_gets_its_verdict(name: str) -> None:
    result = diagnosed(name)
    assert result.verdict == VERDICTS[name]
    assert shares_add(result.causes)
    if name in ALSO:
        assert ALSO[name] in [cause.cause for cause in result.causes]
    if name in COLUMNS:
        assert result.causes[0].parameters["column"] == COLUMNS[name]


@pytest.mark.parametrize("name", NO_FAULT)
def test_a_dump_without_a_fault_has_no_cause_but_noise(name: str) -> None:
    assert {cause.cause for cause in diagnosed(name).causes} <= {"noise"}


@pytest.mark.parametrize(
    ("name", "cause", "parameter", "true"),
    [
        ("top_p095", "top_p", "top_p", 0.95),
        ("top_p08", "top_p", "top_p", 0.8),
        ("top_p099", "top_p", "top_p", 0.99),
        ("temp07_topp09_vs_temp", "top_p", "top_p", 0.9),
        ("combo_topp09_eos0", "top_p", "top_p", 0.9),
        ("min_p005", "min_p", "min_p", 0.05),
        ("min_p002", "min_p", "min_p", 0.02),
        ("temp07_processed_vs_raw", "temperature", "temperature", 0.7),
        ("temp08_processed_vs_raw", "temperature", "temperature", 0.8),
        ("temp09_processed_vs_raw", "temperature", "temperature", 0.9),
        ("temp097_processed_vs_raw", "temperature", "temperature", 0.97),
        ("temp12_processed_vs_raw", "temperature", "temperature", 1.2),
        ("temp07_raw_vs_processed", "temperature", "temperature", 1 / 0.7),
        ("combo_temp09_mispaired", "temperature", "temperature", 0.9),
        ("worker_temp09", "column", "temperature", 0.9),
    ],
)
def test_the_interval_of_a_parameter_holds_the_true_one(name: str, cause: str, parameter: str, true: float) -> None:
    finding = found(name, cause)
    low, high = finding.intervals[parameter]
    # The bound of top-p 0.99 lies in a bin of ln(-a) whose middle is 0.9903: 1 in 1,000.
    assert low - 1e-3 <= true <= high + 1e-3
    assert low <= finding.parameters[parameter] <= high


@pytest.mark.parametrize(
    ("name", "cause", "text"),
    [
        ("top_p08", "top_p", "top-p 0.8 (0.783 to 0.812)"),
        ("top_p099", "top_p", "top-p 0.99 "),
        ("min_p005", "min_p", "min-p 0.05 "),
        ("temp09_processed_vs_raw", "temperature", "is 0.9 (0.89 to 0.93) times that of"),
        ("temp097_processed_vs_raw", "temperature", "is 0.97 (0.96 to 0.98) times that of"),
    ],
)
def test_the_headline_says_the_roundest_number_of_the_interval(name: str, cause: str, text: str) -> None:
    assert text in found(name, cause).headline


@pytest.mark.parametrize(
    ("name", "percent"), [("top_p08", 72), ("worker_temp09", 61), ("noise_bf16_fp32", 100), ("fp32_grid_bf16", 96)]
)
def test_the_first_cause_explains_its_share_of_the_gap(name: str, percent: int) -> None:
    assert round(100 * diagnosed(name).causes[0].share) == percent


def test_what_a_bound_leaves_is_noise_at_most() -> None:
    noise = found("top_p08", "noise")
    assert (noise.bound, noise.is_minor, round(100 * noise.share)) == ("at_most", True, 17)
    assert noise.headline == "rounding noise"


@pytest.mark.parametrize("name", ["quant_int8", "stale_4", "window64", "temp07_divided"])
def test_noise_is_at_most_what_the_first_cause_leaves(name: str) -> None:
    first, *_, noise = diagnosed(name).causes
    assert noise.cause == "noise"
    assert noise.share <= 1 - first.share + 1e-9


def test_the_evidence_of_top_p_counts_the_tokens_for_and_against_it() -> None:
    bound, mass = found("top_p08", "top_p").evidence
    assert bound == (
        "rollout_log_probs is exactly 0 where old_log_probs is above log 0.794, and nowhere else: 1,605 tokens; 39 "
        "of 1,967 tokens contradict it."
    )
    assert "training gives 11% of its probability to tokens that the rollout never samples" in mass


def test_the_evidence_of_a_worker_names_what_differs_within_it() -> None:
    finding = found("worker_temp09", "column")
    assert finding.headline == "worker w3"
    assert finding.evidence == (
        "Its tokens differ 5.2 times as much as the others' (z = 32).",
        "Alone, its rows show: the temperature of rollout_log_probs is 0.9 (0.87 to 0.92) times that of old_log_probs, "
        "or a soft-cap.",
    )
    levels = {level.level: level for level in columns_of("worker_temp09")["worker"].levels}
    assert [name for name, level in levels.items() if level.is_hot] == ["w3"]
    assert (round(100 * levels["w3"].gap), round(100 * levels["w3"].expected)) == (69, 17)


def columns_of(name: str) -> dict:
    """The columns that the gap of a dump was looked at by."""
    return {column.column: column for column in diagnosed(name).whole.diagnosis.columns}


@pytest.mark.parametrize("name", ["noise_bf16_fp32", "source_code_stale", "temp08_processed_vs_raw", "quant_fp8"])
def test_a_random_worker_is_not_hot(name: str) -> None:
    assert not any(level.is_hot for level in columns_of(name)["worker"].levels)


def test_a_raw_rollout_column_is_not_taken_for_swapped_columns() -> None:
    result = diagnosed("temp07_raw_vs_processed")
    assert result.voiding is None
    assert result.causes[0].explains == ("swapped_columns",)
    assert "Swapped columns" in result.causes[0].evidence[-1]


def test_a_window_of_64_tokens_is_seen_from_about_token_40_on() -> None:
    finding = found("window64", "position_onset")
    low, high = finding.intervals["index"]
    assert low <= 40 <= finding.parameters["index"] <= high < 60


def test_a_grid_is_told_where_it_is_no_cause() -> None:
    (fact,) = diagnosed("grid_bf16_train").whole.diagnosis.facts
    assert fact.sentence.startswith("old_log_probs is stored in bf16: ")


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_rows_joined_wrongly_are_named_however_many_they_are(share: float) -> None:
    table = pq.read_table(DUMPS / "noise_bf16_fp32.parquet").to_pydict()
    trained = table["old_log_probs"]
    moved = range(int(share * len(trained)))
    joined = [trained[(i + 1) % len(moved)] if i in moved else row for i, row in enumerate(trained)]
    lengths = [min(len(a), len(b)) for a, b in zip(joined, table["rollout_log_probs"], strict=True)]
    table["old_log_probs"] = joined
    for name in ("rollout_log_probs", "old_log_probs", "token_ids", "response_mask"):
        table[name] = [row[:n] for row, n in zip(table[name], lengths, strict=True)]
    result = diagnose(pa.table(table))
    assert result.verdict == "mispaired_rows"
    assert result.causes[0].parameters["rows"] >= 0.9 * len(moved)
    # Wrongly joined rows say nothing about weights.
    assert not {cause.cause for cause in result.causes if not cause.is_minor} - {"mispaired_rows"}
