"""Rows without a valid token, and batches with tiny weights, under every profile: `analyze` and `filter` by hand.

Four rows; L = ln 2, log-ratio l = old - rollout, rho = e^l:

    row 1  old -1, -1        rollout -1 - L, -1 - 2 L    l = L, 2 L    rho 2, 4     product 8, geometric 2^1.5
    row 2  old -1 - L        rollout -1                  l = -L        rho 1/2      product 1/2
    row 3  two tokens, both masked
    row 4  no token at all

so N = 3 tokens in B = 2 sequences, of 4 rows.
"""

from math import e, log, sqrt
from pathlib import Path
from typing import Any

import pytest
from profiled import filtered, report

L = log(2)
ROWS = [
    {"old_log_probs": [-1, -1], "rollout_log_probs": [-1 - L, -1 - 2 * L], "response_mask": [1, 1]},
    {"old_log_probs": [-1 - L], "rollout_log_probs": [-1], "response_mask": [1]},
    {"old_log_probs": [-1, -3], "rollout_log_probs": [-2, -1], "response_mask": [0, 0]},
    {"old_log_probs": [], "rollout_log_probs": [], "response_mask": []},
]

VERL_DIAGNOSTICS = {
    # Means over N = 3 tokens: of -l, of rho - 1 - l, of rho^2 - 1.
    "kl": -2 * L / 3,
    "k3_kl": ((1 - L) + (3 - 2 * L) + (-0.5 + L)) / 3,
    "chi2_token": (4 + 16 + 0.25) / 3 - 1,
    # Means over 4 rows: an empty one has mean log-prob 0, so perplexity 1 and no difference, and product 1.
    "training_ppl": (e + 2 * e + 1 + 1) / 4,
    "training_log_ppl": (1 + (1 + L)) / 4,
    "rollout_ppl": (e * 2**1.5 + e + 1 + 1) / 4,
    "rollout_log_ppl": ((1 + 1.5 * L) + 1) / 4,
    "log_ppl_diff": (-1.5 * L + L) / 4,
    "log_ppl_abs_diff": (1.5 * L + L) / 4,
    "log_ppl_diff_max": L,
    "log_ppl_diff_min": -1.5 * L,
    "ppl_ratio": (2**-1.5 + 2 + 1 + 1) / 4,
    "chi2_seq": (64 + 0.25 + 1 + 1) / 4 - 1,
}
SLIME_DIAGNOSTICS = {
    # Per-token values averaged over each sequence, then divided by all 4 samples; an empty one adds 0.
    "kl": (-1.5 * L + L) / 4,
    "k3_kl": ((4 - 3 * L) / 2 + (-0.5 + L)) / 4,
    "chi2_token": ((3 + 15) / 2 - 0.75) / 4,
    "chi2_seq": (63 - 0.75) / 4,
    "training_ppl": (e + 2 * e) / 4,
    "training_log_ppl": (1 + (1 + L)) / 4,
    "rollout_ppl": (e * 2**1.5 + e) / 4,
    "rollout_log_ppl": ((1 + 1.5 * L) + 1) / 4,
    "log_ppl_diff": (-1.5 * L + L) / 4,
    "log_ppl_abs_diff": (1.5 * L + L) / 4,
    "ppl_ratio": (2**-1.5 + 2) / 4,
}

TOKEN_SEQ = {
    # Token weights' means per row: 3, 0.5, 0, 0, of mean 0.875.
    "seq_mean": 3.5 / 4,
    "seq_std": sqrt((2.125**2 + 0.375**2 + 2 * 0.875**2) / 3),
    "seq_max": 3.0,
    "seq_min": 0.0,
    "seq_max_deviation": 2.0,
}
PRODUCT_SEQ = {
    # Product weights' means per row: 8, 0.5, 0, 0, of mean 2.125.
    "seq_mean": 8.5 / 4,
    "seq_std": sqrt((5.875**2 + 1.625**2 + 2 * 2.125**2) / 3),
    "seq_max": 8.0,
    "seq_min": 0.0,
    "seq_max_deviation": 7.0,
}
PRODUCTS = {
    # exp of the largest and of the smallest sum over 4 rows; the mean over tokens of 8, 8, 0.5.
    "max": 8.0,
    "min": 0.5,
    "mean": 5.5,
}


def named(prefix: str, *tables: dict[str, float]) -> dict[str, float]:
    return {prefix + name: value for table in tables for name, value in table.items()}


CASES: dict[str, tuple[str, dict[str, Any], dict[str, float], list[tuple[list[int], list[float] | None]]]] = {
    # Capped at 5 the tokens have 5, 5, 0.5: mean 3.5, mean square 16.75, for std and ESS.  No fraction is over
    # tokens: row 1's sum is above log 5; of the means 8 is above 5, the two empty rows' 0 below 1/5.
    "verl-mismatch, sequence": (
        "verl-mismatch",
        {"rollout_is_level": "sequence", "rollout_is_mode": "truncate", "rollout_is_threshold": 5.0},
        named("mismatch/rollout_is_", PRODUCTS, PRODUCT_SEQ)
        | named("mismatch/mismatch_", {name: x for name, x in VERL_DIAGNOSTICS.items() if "chi2" not in name})
        | {
            "mismatch/rollout_is_std": sqrt(16.75 - 3.5**2),
            "mismatch/rollout_is_eff_sample_size": 3.5**2 / 16.75,
            "mismatch/rollout_is_ratio_fraction_high": 1 / 4,
            "mismatch/rollout_is_ratio_fraction_low": 0.0,
            "mismatch/rollout_is_seq_fraction_high": 1 / 4,
            "mismatch/rollout_is_seq_fraction_low": 2 / 4,
            "mismatch/rollout_is_veto_fraction": 0.0,
            "mismatch/rollout_is_catastrophic_token_fraction": 0.0,
        },
        [([1, 1], [5, 5]), ([1], [0.5]), ([0, 0], [0, 0]), ([], [])],
    ),
    # Clamped into [0.4, 2.5] the tokens have 2, 2.5, 0.5: mean 5 / 3, mean square 10.5 / 3.  That mean divides.
    # Of the means 3, 0.5, 0, 0 one is above 2.5, two are below 0.4.
    "verl-0.6, token": (
        "verl-0.6",
        {"rollout_is": "token", "rollout_is_threshold": 2.5, "rollout_is_batch_normalize": True},
        named("rollout_corr/rollout_is_", TOKEN_SEQ)
        | named("rollout_corr/", VERL_DIAGNOSTICS)
        | {
            "rollout_corr/rollout_is_mean": 6.5 / 3,
            "rollout_corr/rollout_is_max": 4.0,
            "rollout_corr/rollout_is_min": 0.5,
            "rollout_corr/rollout_is_std": sqrt(10.5 / 3 - (5 / 3) ** 2),
            "rollout_corr/rollout_is_eff_sample_size": (5 / 3) ** 2 / (10.5 / 3),
            "rollout_corr/rollout_is_ratio_fraction_high": 1 / 3,
            "rollout_corr/rollout_is_ratio_fraction_low": 0.0,
            "rollout_corr/rollout_is_seq_fraction_high": 1 / 4,
            "rollout_corr/rollout_is_seq_fraction_low": 2 / 4,
            "rollout_corr/rollout_is_batch_norm_factor": 5 / 3,
            "rollout_corr/rollout_is_veto_fraction": 0.0,
            "rollout_corr/rollout_is_catastrophic_token_fraction": 0.0,
        },
        [([1, 1], [1.2, 1.5]), ([1], [0.3]), ([0, 0], [0, 0]), ([], [])],
    ),
    # 0.6.1 counts empty rows as weight 0 in the mean that divides: (8 + 0.5 + 0 + 0) / 4.  Rejection at [1/4, 4]:
    # clamped tokens 4, 4, 0.5; row 1 goes, empty rows have product 1 and stay, their mean 0 is below 1/4.  The veto
    # at 0.6 takes row 2.
    "verl-0.6, sequence": (
        "verl-0.6",
        {
            "rollout_is": "sequence",
            "rollout_is_threshold": 10.0,
            "rollout_is_batch_normalize": True,
            "rollout_rs": "sequence",
            "rollout_rs_threshold": 4.0,
            "rollout_token_veto_threshold": 0.6,
        },
        named("rollout_corr/rollout_is_", PRODUCTS, PRODUCT_SEQ)
        | named("rollout_corr/rollout_rs_", PRODUCTS, PRODUCT_SEQ)
        | named("rollout_corr/", VERL_DIAGNOSTICS)
        | {
            "rollout_corr/rollout_is_std": sqrt(128.25 / 3 - 5.5**2),
            "rollout_corr/rollout_is_eff_sample_size": 5.5**2 / (128.25 / 3),
            "rollout_corr/rollout_is_ratio_fraction_high": 0.0,
            "rollout_corr/rollout_is_ratio_fraction_low": 0.0,
            "rollout_corr/rollout_is_seq_fraction_high": 0.0,
            "rollout_corr/rollout_is_seq_fraction_low": 2 / 4,
            "rollout_corr/rollout_is_batch_norm_factor": 2.125,
            "rollout_corr/rollout_rs_std": sqrt(32.25 / 3 - (8.5 / 3) ** 2),
            "rollout_corr/rollout_rs_eff_sample_size": (8.5 / 3) ** 2 / (32.25 / 3),
            "rollout_corr/rollout_rs_ratio_fraction_high": 1 / 4,
            "rollout_corr/rollout_rs_ratio_fraction_low": 0.0,
            "rollout_corr/rollout_rs_seq_fraction_high": 1 / 4,
            "rollout_corr/rollout_rs_seq_fraction_low": 2 / 4,
            "rollout_corr/rollout_rs_masked_fraction": 2 / 3,
            "rollout_corr/rollout_rs_seq_masked_fraction": 1 / 4,
            "rollout_corr/rollout_is_veto_fraction": 1 / 4,
            "rollout_corr/rollout_is_catastrophic_token_fraction": 1 / 3,
        },
        [([0, 0], [8 / 2.125, 8 / 2.125]), ([0], [0.5 / 2.125]), ([0, 0], [0, 0]), ([], [])],
    ),
    # From 0.7.1 on empty rows do not count in the mean that divides: (8 + 0.5) / 2.  seq_sum_k1 is -3 L and L,
    # inside [log 0.2, log 4] the latter only; clamped tokens log 0.2 twice and L, log 10 apart.  Its own shares are of
    # the 2 sequences, that of all options together of the 4 rows.
    "verl-0.7, sequence": (
        "verl-0.7",
        {
            "rollout_is": "sequence",
            "rollout_is_threshold": 10.0,
            "rollout_is_batch_normalize": True,
            "rollout_rs": "seq_sum_k1",
            "rollout_rs_threshold": "0.2_4.0",
        },
        named("rollout_corr/rollout_is_", PRODUCTS, PRODUCT_SEQ)
        | named("rollout_corr/", VERL_DIAGNOSTICS)
        | {
            "rollout_corr/rollout_is_std": sqrt(128.25 / 3 - 5.5**2),
            "rollout_corr/rollout_is_eff_sample_size": 5.5**2 / (128.25 / 3),
            "rollout_corr/rollout_is_ratio_fraction_high": 0.0,
            "rollout_corr/rollout_is_ratio_fraction_low": 0.0,
            "rollout_corr/rollout_is_seq_fraction_high": 0.0,
            "rollout_corr/rollout_is_seq_fraction_low": 2 / 4,
            "rollout_corr/rollout_is_batch_norm_factor": 4.25,
            "rollout_corr/rollout_rs_seq_sum_k1_mean": -5 * L / 3,
            "rollout_corr/rollout_rs_seq_sum_k1_max": L,
            "rollout_corr/rollout_rs_seq_sum_k1_min": -3 * L,
            "rollout_corr/rollout_rs_seq_sum_k1_std": log(10) * sqrt(2) / 3,
            "rollout_corr/rollout_rs_seq_sum_k1_fraction_high": 0.0,
            "rollout_corr/rollout_rs_seq_sum_k1_fraction_low": 1 / 2,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_mean": -L,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_std": sqrt(8) * L,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_max": L,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_min": -3 * L,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_max_deviation": 3 * L,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_fraction_high": 0.0,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_fraction_low": 1 / 2,
            "rollout_corr/rollout_rs_seq_sum_k1_masked_fraction": 2 / 3,
            "rollout_corr/rollout_rs_seq_sum_k1_seq_masked_fraction": 1 / 2,
            "rollout_corr/rollout_rs_masked_fraction": 2 / 3,
            "rollout_corr/rollout_rs_seq_masked_fraction": 1 / 4,
        },
        [([0, 0], [8 / 4.25, 8 / 4.25]), ([1], [0.5 / 4.25]), ([0, 0], [0, 0]), ([], [])],
    ),
    # IcePop at [0.4, 2.5]: applied 2, 0, 0.5 of mean 2.5 / 3 and mean square 4.25 / 3; their means per row are 1, 0.5,
    # 0, 0.  Fractions are of the raw weights; of the raw means 3, 0.5, 0, 0 one is above 2.5, two are below 0.4.
    "verl-0.9, IcePop": (
        "verl-0.9",
        {"rollout_is": "token", "rollout_is_threshold": "0.4_2.5"},
        named("rollout_corr/", VERL_DIAGNOSTICS)
        | {
            "rollout_corr/rollout_is_mean": 2.5 / 3,
            "rollout_corr/rollout_is_max": 2.0,
            "rollout_corr/rollout_is_min": 0.0,
            "rollout_corr/rollout_is_std": sqrt(4.25 / 3 - (2.5 / 3) ** 2),
            "rollout_corr/rollout_is_eff_sample_size": (2.5 / 3) ** 2 / (4.25 / 3),
            "rollout_corr/rollout_is_oob_ratio": 1 / 3,
            "rollout_corr/rollout_is_ratio_fraction_high": 1 / 3,
            "rollout_corr/rollout_is_ratio_fraction_low": 0.0,
            "rollout_corr/rollout_is_seq_mean": 1.5 / 4,
            "rollout_corr/rollout_is_seq_std": sqrt((0.625**2 + 0.125**2 + 2 * 0.375**2) / 3),
            "rollout_corr/rollout_is_seq_max": 1.0,
            "rollout_corr/rollout_is_seq_min": 0.0,
            "rollout_corr/rollout_is_seq_max_deviation": 1.0,
            "rollout_corr/rollout_is_seq_fraction_high": 1 / 4,
            "rollout_corr/rollout_is_seq_fraction_low": 2 / 4,
        },
        [([1, 1], [2, 0]), ([1], [0.5]), ([0, 0], [0, 0]), ([], [])],
    ),
    # 0.8.0, IcePop at [1.5, 2.5]: applied 2, 0, 0 of mean 2 / 3 and mean square 4 / 3; their means per row are 1, 0, 0,
    # 0.  Shares of tokens are of the raw weights; of the applied means none is above 2.5, all are below 1.5.
    "verl-0.8, IcePop": (
        "verl-0.8",
        {"rollout_is": "token", "rollout_is_threshold": "1.5_2.5"},
        named("rollout_corr/", VERL_DIAGNOSTICS)
        | {
            "rollout_corr/rollout_is_mean": 2 / 3,
            "rollout_corr/rollout_is_max": 2.0,
            "rollout_corr/rollout_is_min": 0.0,
            "rollout_corr/rollout_is_std": sqrt(4 / 3 - (2 / 3) ** 2),
            "rollout_corr/rollout_is_eff_sample_size": (2 / 3 + 1e-8) ** 2 / (4 / 3),
            "rollout_corr/rollout_is_oob_ratio": 2 / 3,
            "rollout_corr/rollout_is_ratio_fraction_high": 1 / 3,
            "rollout_corr/rollout_is_ratio_fraction_low": 1 / 3,
            "rollout_corr/rollout_is_seq_mean": 1 / 4,
            "rollout_corr/rollout_is_seq_std": sqrt((0.75**2 + 3 * 0.25**2) / 3),
            "rollout_corr/rollout_is_seq_max": 1.0,
            "rollout_corr/rollout_is_seq_min": 0.0,
            "rollout_corr/rollout_is_seq_max_deviation": 1.0,
            "rollout_corr/rollout_is_seq_fraction_high": 0.0,
            "rollout_corr/rollout_is_seq_fraction_low": 1.0,
        },
        [([1, 1], [2, 0]), ([1], [0]), ([0, 0], [0, 0]), ([], [])],
    ),
    # As 0.7.1: the mean that divides is (8 + 0.5) / 2.
    "verl-0.9, sequence": (
        "verl-0.9",
        {"rollout_is": "sequence", "rollout_is_threshold": 10.0, "rollout_is_batch_normalize": True},
        named("rollout_corr/rollout_is_", PRODUCTS, PRODUCT_SEQ)
        | named("rollout_corr/", VERL_DIAGNOSTICS)
        | {
            "rollout_corr/rollout_is_std": sqrt(128.25 / 3 - 5.5**2),
            "rollout_corr/rollout_is_eff_sample_size": 5.5**2 / (128.25 / 3),
            "rollout_corr/rollout_is_ratio_fraction_high": 0.0,
            "rollout_corr/rollout_is_ratio_fraction_low": 0.0,
            "rollout_corr/rollout_is_seq_fraction_high": 0.0,
            "rollout_corr/rollout_is_seq_fraction_low": 2 / 4,
            "rollout_corr/rollout_is_batch_norm_factor": 4.25,
        },
        [([1, 1], [8 / 4.25, 8 / 4.25]), ([1], [0.5 / 4.25]), ([0, 0], [0, 0]), ([], [])],
    ),
    # Token weights 2, 3, 0.5 after the bound are divided by their mean over tokens, f = 11 / 6; in every metric, f's
    # own too, the 2 empty samples add 0 to the mean over 4.
    "slime, token": (
        "slime",
        {"tis_level": "token", "tis_mode": "truncate", "tis_upper_bound": 3.0, "tis_batch_normalize": True},
        named("mis_", SLIME_DIAGNOSTICS)
        | {
            "mis_tis_weight_before_bound": (3 + 0.5) / 4,
            "mis_tis_weight_after_bound": (2.5 + 0.5) / 4,
            "mis_tis_truncate_fraction": 0.5 / 4,
            "mis_is_ratio_mean_after_tis_rs": (2.5 + 0.5) / 4,
            "mis_batch_norm_factor": 2 * (11 / 6) / 4,
            "mis_is_ratio_mean_final": (2.5 + 0.5) / 4 * 6 / 11,
            "mis_is_ratio_min_final": (2 + 0.5) / 4 * 6 / 11,
            "mis_is_ratio_max_final": (3 + 0.5) / 4 * 6 / 11,
        },
        [([1, 1], [12 / 11, 18 / 11]), ([1], [3 / 11]), ([0, 0], [0, 0]), ([], [])],
    ),
    # The mean over sequences is over all 4 samples: (8 + 0.5 + 0 + 0) / 4.  Rejection at [0.4, 3] takes row 1's second
    # token, its share 1/2 of that row.
    "slime, sequence": (
        "slime",
        {
            "tis_level": "sequence",
            "tis_mode": "truncate",
            "tis_upper_bound": 10.0,
            "tis_batch_normalize": True,
            "use_rs": True,
            "rs_level": "token",
            "rs_lower_bound": 0.4,
            "rs_upper_bound": 3.0,
        },
        named("mis_", SLIME_DIAGNOSTICS)
        | {
            "mis_tis_weight_before_bound": 8.5 / 4,
            "mis_tis_weight_after_bound": 8.5 / 4,
            "mis_tis_truncate_fraction": 0.0,
            "mis_is_ratio_mean_after_tis_rs": 8.5 / 4,
            "mis_rs_mask_fraction_low": 0.0,
            "mis_rs_mask_fraction_high": 0.5 / 4,
            "mis_batch_norm_factor": 2 * 2.125 / 4,
            "mis_is_ratio_mean_final": 1.0,
            "mis_is_ratio_min_final": 1.0,
            "mis_is_ratio_max_final": 1.0,
        },
        [([1, 0], [8 / 2.125, 8 / 2.125]), ([1], [0.5 / 2.125]), ([0, 0], [0, 0]), ([], [])],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_metrics_count_empty_rows_as_the_framework_does(case: str, tmp_path: Path) -> None:
    profile, config, metrics, _ = CASES[case]
    reported = report(tmp_path, profile, config, ROWS)
    assert set(reported["metrics"]) == set(metrics)
    # verl's own 1e-8 in some denominators is left out of the numbers by hand.
    assert reported["metrics"] == pytest.approx(metrics, rel=3e-8, abs=1e-12)
    assert any(note.startswith("Rows without a valid token: 2;") for note in reported["notes"])


@pytest.mark.parametrize("case", CASES)
def test_filter_writes_the_frameworks_masks_and_weights(case: str, tmp_path: Path) -> None:
    profile, config, _, rows = CASES[case]
    for (mask, weights), (expected_mask, expected_weights) in zip(
        filtered(tmp_path, profile, config, ROWS), rows, strict=True
    ):
        assert mask == expected_mask
        assert weights == pytest.approx(expected_weights, rel=1e-6)
