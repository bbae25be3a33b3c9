"""The numbers that frameworks log under methods of their newest releases, from rlcorr's metrics of the same batch.

tests/golden/methods3/README.md says what agreement is asked.  `SAME` has the names that are a metric of ours as it is,
by the table of logged names where that has them; `MADE` those that are made of ours as the table's note says.  verl's
rejection has a profile, which gives its numbers by its names.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from profiled import report
from test_methods import CASES, READ, ROWS, without_rollout

from rlcorr_cli.metrics.catalog import logged_name

Numbers = dict[str, float]
SAME: dict[str, dict[str, str]] = {
    "areal-kpop": {
        "behave_imp_weight/avg": "kept_ratio_mean",
        "behave_approx_kl/avg": "kept_log_ratio_mean",
        "behave_filtered_ratio/avg": "rollout_rs_masked_fraction",
        "rs_filtered_fraction": "rollout_rs_masked_fraction",
    },
    "verl-dppo-kl": {"actor/pg_clipfrac": "rollout_rs_masked_fraction"},
    "verl-dppo-tv": {"actor/pg_clipfrac": "rollout_rs_masked_fraction"},
    "skyrl-dppo": {"clip_ratio": "rollout_rs_masked_fraction"},
    "open-instruct-rho": {"val/rho_drop_frac": "rollout_rs_masked_fraction"},
    "open-instruct-vaco": {"val/rho_drop_frac": "rollout_rs_masked_fraction"},
    "ms-swift": {
        f"rollout_correction/{name}": name for name in ("kl", "chi2_token", "log_ppl_diff_max", "log_ppl_diff_min")
    },
    "xtuner": {
        "mismatch/mismatch_kl": "kl",
        "mismatch/mismatch_k3_kl": "k3_kl",
        "mismatch/mismatch_logprob_abs_diff": "logprob_abs_diff_mean",
        **{
            f"rollout_is/mismatch/rollout_is_{name}": f"rollout_is_{name}"
            for name in ("mean", "max", "min", "seq_mean", "seq_std", "seq_max", "seq_min", "seq_max_deviation")
        },
        "rollout_is/mismatch/rollout_is_masked_fraction": "rollout_rs_is_masked_fraction",
    },
    "trl-sampling": {f"sampling/sampling_logp_difference/{end}": f"logprob_abs_diff_{end}" for end in ("mean", "max")},
    "nemo": {"token_mult_prob_error": "token_mult_prob_error", "js_divergence_error": "js_divergence"},
}
"""By group of cases: a framework's name -> ours."""
OUR_NAMES = {"rs_filtered_fraction", "actor/pg_clipfrac", "clip_ratio", "token_mult_prob_error"}
"""Names of one loss, which the table of logged names has not, and one that is our own name."""


def with_empty(name: str, value: float) -> Callable[[Numbers, int, int], float]:
    """A mean over sequences in which one without a loss token counts, too."""
    return lambda numbers, n_filled, n_empty: (numbers[name] * n_filled + value * n_empty) / (n_filled + n_empty)


MADE: dict[str, dict[str, Callable[[Numbers, int, int], float]]] = {
    "ms-swift": {
        f"rollout_correction/{name}": with_empty(name, value)
        for names, value in (
            (("training_ppl", "rollout_ppl", "ppl_ratio"), 1.0),
            (("training_log_ppl", "rollout_log_ppl", "log_ppl_diff", "log_ppl_abs_diff"), 0.0),
        )
        for name in names
    },
    "open-instruct-rho": {"val/rho_weight": lambda n, *_: n.get("kept_weight_sum", n["rollout_is_applied_mean"])},
}
TYPE = "truncated_importance_sampling_type"
UNMASKED = ("open-instruct-rho/0", "open-instruct-rho/1", "open-instruct-rho/5")
"""Cases of open-instruct whose weights count as they are: no mask is on."""


def columns_of(case: str) -> dict[str, str]:
    """Our columns -> those that the case's function was given."""
    given = set(map(str, CASES[case]["policies"].values()))
    rollout = "old_log_probs" if without_rollout(case) else "rollout_log_probs"
    columns = {"rollout_log_probs": rollout, **{name: name for name in ("sample_id", "step", "response_mask")}}
    present = [name for name in ("old_log_probs", "current_log_probs") if any(name in each for each in given)]
    return columns | {name: name for name in (*present, "advantages")}


@cache
def reported(case: str, folder: Path, instead: str = "") -> dict[int, Numbers]:
    """rlcorr's metrics of each batch, measured on its own; `instead` is another type of NeMo-RL's corrections."""
    columns, config = columns_of(case), CASES[case]["config"]
    if instead:
        # The lower bound of a tis that has none: no ratio here is as small.
        config = {"loss_fn": {f"{TYPE[:-4]}ratio_min": 1e-30} | config["loss_fn"] | {TYPE: instead}}
    rows = [{name: row[column] for name, column in columns.items()} for row in ROWS]
    groups = report(folder, "canonical", config, rows, "--group-by", "step")["groups"]
    return {group["key"]["step"]: group["metrics"] for group in groups}


def expected(case: str, name: str) -> Iterator[tuple[int, float, float]]:
    """The batches that count, with the numbers of the float64 run and of the framework's own float32 one.

    Where the float64 run masks other tokens only the float32 one counts, and stands in its place.
    """
    for step, batch in CASES[case]["batches"].items():
        value, own = batch["metrics_float64"].get(name), batch["metrics"].get(name)
        if value is None or own is None or name in batch.get("rounding", []):
            continue
        yield int(step), own if batch.get("mask_differs_in_float64") else value, own


def agrees(found: float | None, value: float, own: float) -> bool:
    return found is not None and (
        abs(found - value) <= 1e-6 * abs(value) + 1e-9 or abs(found - own) <= 1e-5 * abs(own) + 1e-6
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("methods")


def trl(case: str, name: str, ours: Numbers, n_filled: int, n_empty: int) -> float | None:
    """In sequence modes one without a loss token counts as 1."""
    end = name.rpartition("/")[2]
    if "token" in CASES[case]["config"].get("vllm_importance_sampling_mode", "sequence_mask"):
        return ours[f"rollout_is_applied_{end}"]
    if end == "mean":
        return with_empty("rollout_is_applied_seq_mean", 1.0)(ours, n_filled, n_empty)
    ones = [1.0] * (n_empty > 0)
    return {"min": min, "max": max}[end]([ours[f"rollout_is_applied_{end}"], *ones])


def nemo(case: str, name: str, ours: Numbers, n_filled: int, n_empty: int) -> float | None:
    options = CASES[case]["config"]["loss_fn"]
    method = options.get("truncated_importance_sampling_type")
    kind = options.get("reference_policy_kl_type", "k3")
    if name == "gen_kl_error":
        return ours[{"k1": "kl", "k2": "k2_kl", "k3": "k3_kl"}[kind]]
    if name == "policy_kl_error":
        return -ours["kl"] if kind == "k1" else ours[{"k2": "k2_kl", "k3": "k3_kl_reverse"}[kind]]
    if name == "is_oob_ratio":
        if method == "seq-mask-tis":
            return with_empty("rollout_rs_seq_masked_fraction", 0.0)(ours, n_filled, n_empty)
        return ours["rollout_is_oob_ratio"]
    if "use_importance_sampling_correction" not in options:
        return None
    if options.get("sequence_level_importance_ratios"):
        return with_empty("rollout_is_applied_seq_mean", 1.0)(ours, n_filled, n_empty) * (n_filled + n_empty)
    return kept(ours) if method == "seq-mask-tis" else ours["rollout_is_applied_mean"]


def kept(ours: Numbers) -> float:
    """The mean of raw ratios in which a rejected token counts as 0."""
    return (ours["kept_ratio_mean"] or 0.0) * (1 - ours["rollout_rs_masked_fraction"])


def ms_swift(case: str, name: str, ours: Numbers, n_filled: int, n_empty: int) -> float | None:
    mode = CASES[case]["config"].get("rollout_importance_sampling_mode", "")
    if name.endswith("is_weight_mean"):
        # Beside another mask, what is kept is less than what ms-swift's weights keep.
        both = "off_policy_sequence_mask_delta" in CASES[case]["config"]
        return ours["rollout_is_applied_mean"] if mode != "sequence_mask" else None if both else kept(ours)
    if mode.startswith("token"):
        return ours["rollout_is_ratio_fraction_high"]
    unit = "rollout_rs_geometric_fraction_high" if mode == "sequence_mask" else "rollout_is_ratio_fraction_high"
    return with_empty(unit, 0.0)(ours, n_filled, n_empty)


def open_instruct(case: str, name: str, ours: Numbers, n_filled: int, n_empty: int) -> float | None:
    options = CASES[case]["config"]
    # Without a clamp nothing is clipped; shares of tokens cannot be had from ours, of sequences.
    if options.get("rho_mask_sequence_level") or options.get("rho_clamp_upper_bound") == 0:
        return None
    low = ours["rollout_is_ratio_fraction_low"] if "rho_clamp_lower_bound" in options else 0.0
    return ours["rollout_is_ratio_fraction_high"] + low


def roll(case: str, name: str, ours: Numbers, n_filled: int, n_empty: int) -> float | None:
    padded = name in (CASES[case].get("padding_dependent") or ())
    return None if padded else ours["rollout_is_ratio_fraction_high"]


Made = Callable[[str, str, Numbers, int, int], float | None]
OPTIONAL: dict[str, tuple[Made, tuple[str, ...], int]] = {
    "trl-sampling": (trl, tuple(f"sampling/importance_sampling_ratio/{end}" for end in ("min", "mean", "max")), 105),
    "nemo": (nemo, ("gen_kl_error", "policy_kl_error", "sampling_importance_ratio", "is_oob_ratio"), 240),
    "ms-swift": (ms_swift, ("rollout_correction/is_weight_mean", "rollout_correction/clipped_frac"), 75),
    "open-instruct-rho": (open_instruct, ("val/rho_clipfrac",), 15),
    "open-instruct-vaco": (open_instruct, ("val/rho_clipfrac",), 15),
    "roll-train-infer": (roll, ("actor/is_weight_clipfrac@sum",), 10),
}
"""By group: how its numbers follow from ours, as the table's notes say; of which names; how many at least.

None is what ours cannot say: NeMo-RL's mean of raw sequence ratios where nothing is corrected, open-instruct's shares
of tokens by sequence ratios and those without a clamp, ROLL's shares that count the padding, and ms-swift's mean of
weights beside a second mask.
"""


@pytest.mark.parametrize("group", OPTIONAL)
def test_a_number_that_depends_on_options_is_ours_as_the_tables_note_says(group: str, folder: Path) -> None:
    made, names, least = OPTIONAL[group]
    compared = 0
    for case in (case for case in READ if case.startswith(f"{group}/")):
        for name in names:
            row = logged_name(name)
            assert row is not None, name
            assert row.note or row.canonical == "rollout_is_ratio_fraction_high", name
            for step, value, own in expected(case, name):
                zeroes = name == "is_oob_ratio" and CASES[case]["config"]["loss_fn"][TYPE] == "tis"
                ours = reported(case, folder, "icepop" if zeroes else "")[step]
                filled = [any(row["response_mask"]) for row in ROWS if row["step"] == step]
                found = made(case, name, ours, sum(filled), len(filled) - sum(filled))
                assert found is None or agrees(found, value, own), (case, step, name, found, value, own)
                compared += found is not None
    assert compared >= least, compared


BY_SEQUENCE: dict[str, dict[str, str]] = {
    "prime-kpop": {"is_masked/mean": "rollout_rs_masked_fraction", "unmasked_mismatch_kl/mean": "kept_k3_kl"},
    "prime-dppo": {"is_masked/mean": "rollout_rs_masked_fraction", "unmasked_mismatch_kl/mean": "kept_k3_kl"},
    "roll-train-infer": {"actor/train_infer_ratio_token_mean@sum": "ratio_mean"},
    "slime-opsm": {"opsm_clipfrac": "rollout_rs_masked_fraction"},
}
"""Means over sequences of ours, each sequence measured alone; slime's is their sum."""
WITH_HOLES = (1, 4)
"""Batches whose masks have holes: slime's numerator counts what is in them, too, which no number of ours does."""


@pytest.mark.parametrize("group", BY_SEQUENCE)
def test_a_mean_over_sequences_is_that_of_ours_of_each_sequence(group: str, folder: Path) -> None:
    compared = 0
    for case in (case for case in READ if case.startswith(f"{group}/")):
        rows = [{name: row[column] for name, column in columns_of(case).items()} for row in ROWS]
        config = CASES[case]["config"]
        groups = report(folder, "canonical", config, rows, "--group-by", "sample_id")["groups"]
        alone = {group["key"]["sample_id"]: group["metrics"] for group in groups}
        for name, ours in BY_SEQUENCE[group].items():
            for step, value, own in expected(case, name):
                if group == "slime-opsm" and step in WITH_HOLES:
                    continue
                found = [alone[row["sample_id"]].get(ours) for row in ROWS if row["step"] == step]
                total = sum(each for each in found if each is not None)
                n = len(found) if group.startswith("prime") else sum(each is not None for each in found)
                mean = total if group == "slime-opsm" else total / n
                assert agrees(mean, value, own), (case, step, name, mean, value, own)
                compared += 1
    assert compared >= 15


@pytest.mark.parametrize("group", sorted({*SAME, *MADE}))
def test_a_logged_number_is_the_metric_of_ours_that_the_table_names(group: str, folder: Path) -> None:
    compared = 0
    for case in (case for case in CASES if case.startswith(f"{group}/")):
        for name, ours in SAME.get(group, {}).items():
            if name not in OUR_NAMES and not name.startswith("rollout_is/"):
                row = logged_name(name)
                assert row is not None
                assert (row.canonical, row.difference) == (ours, ""), name
            for step, value, own in expected(case, name):
                # What a plan has not, ours does not count: nothing is masked there.
                found = reported(case, folder)[step].get(ours, 0.0 if ours.startswith("rollout_rs") else None)
                assert agrees(found, value, own), (case, step, name, found, value, own)
                compared += 1
        for name, formula in MADE.get(group, {}).items():
            if group.startswith("open-instruct") and case not in UNMASKED:
                continue
            for step, value, own in expected(case, name):
                of_step = [any(row["response_mask"]) for row in ROWS if row["step"] == step]
                n_filled = sum(of_step)
                found = formula(reported(case, folder)[step], n_filled, len(of_step) - n_filled)
                assert agrees(found, value, own), (case, step, name, found, value, own)
                compared += 1
    assert compared > 10


def test_ms_swifts_chi2_seq_is_not_verls(folder: Path) -> None:
    row = logged_name("rollout_correction/chi2_seq")
    assert row is not None
    assert "another number" in row.difference
    theirs = CASES["ms-swift/0"]["batches"]["0"]["metrics_float64"]["rollout_correction/chi2_seq"]
    assert theirs < 0 < reported("ms-swift/0", folder)[0]["chi2_seq"]


BEYOND = {("verl-kpop/3", 2, "rollout_corr/rollout_is_seq_fraction_high")}
"""The pull request of KPop counts applied weights there, as verl 0.8 did; 0.9 counts raw ones."""


@pytest.mark.parametrize("group", ["verl-kpop", "verl-trm"])
def test_verls_profile_gives_its_numbers_of_rejection_by_divergence(group: str, folder: Path) -> None:
    # verl takes the divergence in float32 in both runs: near probability 1 its fourth digit is of rounding.
    compared, all_of = 0, 0
    for case in (case for case in CASES if case.startswith(f"{group}/")):
        config: dict[str, Any] = CASES[case]["config"]
        for step, batch in CASES[case]["batches"].items():
            columns = ("sample_id", "rollout_log_probs", "old_log_probs", "response_mask")
            rows = [{name: row[name] for name in columns} for row in ROWS if row["step"] == int(step)]
            numbers = report(folder, "verl-0.9", config, rows)["metrics"]
            for name in batch["metrics"]:
                all_of += 1
                for at, value, own in expected(case, name):
                    if at == int(step) and (case, at, name) not in BEYOND:
                        found = numbers.get(name, numbers.get(name.removeprefix("rollout_corr/")))
                        near = "binary_kl" in name and found == pytest.approx(value, rel=3e-4, abs=1e-6)
                        assert near or agrees(found, value, own), (case, step, name, found, value, own)
                        compared += 1
    assert compared > 0.9 * all_of > 300


def test_names_of_logs_are_known_with_what_stands_before_them() -> None:
    for name, canonical in (
        ("ppo_actor/update/behave_imp_weight/avg", "kept_ratio_mean"),
        ("optim/kl_sample_train_v1", "kl"),
        ("optim/kl_sample_train_v2", "k2_kl"),
        ("logp_abs_diff/max", "logprob_abs_diff_max"),
        ("train/val/rho_drop_frac", "rollout_rs_masked_fraction"),
        ("unmasked_mismatch_kl/mean", "kept_k3_kl"),
    ):
        row = logged_name(name)
        assert row is not None, name
        assert row.canonical == canonical
    assert logged_name("other/kl") is None
