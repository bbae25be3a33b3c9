"""The numbers that frameworks log under methods of their newest releases, from rlcorr's metrics of the same batch.

tests/golden/methods3/README.md says what agreement is asked, which `agrees` is; no number may be further off but those
of EXPLAINED.  Every name that a framework logs there is in `OURS`, with what it is of ours, or in `NOT_OURS`, with the
reason why it cannot be had.  verl's rejection has a profile, which gives its numbers by its names.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from profiled import report
from test_methods import CASES, OF_RUNS, READ, ROWS, without_rollout

from rlcorr_cli.metrics.catalog import logged_name
from rlcorr_cli.metrics.framework_names import XTUNER_DIFFERENCE

Numbers = dict[str, float]
TYPE = "truncated_importance_sampling_type"


def columns_of(case: str) -> dict[str, str]:
    """Our columns -> those that the case's function was given."""
    given = set(map(str, CASES[case]["policies"].values()))
    rollout = "old_log_probs" if without_rollout(case) else "rollout_log_probs"
    columns = {"rollout_log_probs": rollout, **{name: name for name in ("sample_id", "step", "response_mask")}}
    present = [name for name in ("old_log_probs", "current_log_probs") if any(name in each for each in given)]
    return columns | {name: name for name in (*present, "advantages")}


@cache
def measured(case: str, folder: Path, by: str, options: tuple[str, ...] = (), kind: str = "") -> dict[Any, Numbers]:
    """rlcorr's metrics of each batch, or each sequence, on its own; `kind` is another type of NeMo-RL's corrections."""
    columns, config = columns_of(case), CASES[case]["config"]
    if kind:
        # The lower bound of a tis that has none: no ratio here is as small.
        config = {"loss_fn": {f"{TYPE[:-4]}ratio_min": 1e-30} | config["loss_fn"] | {TYPE: kind}}
    rows = [{name: row[column] for name, column in columns.items()} for row in ROWS]
    groups = report(folder, "canonical", config, rows, "--group-by", by, *options)["groups"]
    return {group["key"][by]: group["metrics"] for group in groups}


@dataclass
class Batch:
    """One batch under a case's config: rlcorr's metrics of it, and of each of its sequences measured alone."""

    case: str
    step: int
    folder: Path

    @cached_property
    def options(self) -> dict[str, Any]:
        """The config, or its only block."""
        config = CASES[self.case]["config"]
        return config.get("loss_fn", config.get("rollout_is", config))

    @cached_property
    def filled(self) -> list[str]:
        return [row["sample_id"] for row in ROWS if row["step"] == self.step and any(row["response_mask"])]

    @property
    def n_empty(self) -> int:
        return sum(row["step"] == self.step for row in ROWS) - len(self.filled)

    def ours(self, name: str, *options: str, kind: str = "") -> float | None:
        # What a plan has not, ours does not count: nothing is masked there.
        numbers = measured(self.case, self.folder, "step", options, kind)[self.step]
        return numbers.get(name, 0.0 if name.startswith("rollout_rs") else None)

    def alone(self, name: str, *options: str) -> list[float]:
        """The metric of each sequence with a loss token; 0 of one that has none to average over."""
        of = measured(self.case, self.folder, "sample_id", options)
        return [of[sample].get(name) or 0.0 for sample in self.filled]

    def number_of_tokens(self) -> list[int]:
        rows = {row["sample_id"]: row for row in ROWS}
        return [sum(map(bool, rows[sample]["response_mask"])) for sample in self.filled]


Made = Callable[[Batch], float | None]
"""A framework's number of a batch, made of ours; None where ours cannot say it under this config."""


def with_empty(name: str, value: float) -> Made:
    """A mean over sequences in which one without a loss token counts, too."""

    def made(batch: Batch) -> float | None:
        of_filled, n = batch.ours(name), len(batch.filled)
        return None if of_filled is None else (of_filled * n + value * batch.n_empty) / (n + batch.n_empty)

    return made


def of_all_sequences(value: Callable[[Batch], list[float]]) -> dict[str, Made]:
    """prime-rl's mean and max over all sequences; one with no token to average over counts as 0."""

    def mean(batch: Batch) -> float:
        return sum(value(batch)) / (len(batch.filled) + batch.n_empty)

    return {"mean": mean, "max": lambda batch: max([*value(batch), *[0.0] * batch.n_empty])}


def over_all(name: str) -> dict[str, Made]:
    return of_all_sequences(lambda batch: batch.alone(name))


def masked_k3(batch: Batch) -> list[float]:
    """k3 over the tokens that are masked: what is left of all tokens' sum without those that stay."""
    numbers = zip(*map(batch.alone, ("k3_kl", "kept_k3_kl", "rollout_rs_masked_fraction")), strict=True)
    return [(every - kept * (1 - masked)) / masked if masked else 0.0 for every, kept, masked in numbers]


def without_zeroes(ends: dict[str, Made]) -> dict[str, Made]:
    """prime-rl masks a token of advantage 0 as one below 0, and counts it as neither: batches 0 and 4 have some."""
    return {end: lambda batch, made=made: None if batch.step in (0, 4) else made(batch) for end, made in ends.items()}


def masked_side(end: str) -> dict[str, Made]:
    """The share of masked tokens whose advantage is above 0, or below."""

    def shares(batch: Batch) -> list[float]:
        of_end, every = map(batch.alone, (f"rollout_rs_dppo_{end}_masked_fraction", "rollout_rs_masked_fraction"))
        return [part / whole if whole else 0.0 for part, whole in zip(of_end, every, strict=True)]

    return of_all_sequences(shares)


def prime(names: dict[str, dict[str, Made]]) -> dict[str, Made | str]:
    return {f"{name}/{end}": made for name, ends in names.items() for end, made in ends.items()}


PRIME = {
    "is_masked": over_all("rollout_rs_masked_fraction"),
    "unmasked_mismatch_kl": over_all("kept_k3_kl"),
    "masked_mismatch_kl": of_all_sequences(masked_k3),
}


def kept(batch: Batch) -> float:
    """The mean of raw ratios in which a rejected token counts as 0."""
    return (batch.ours("kept_ratio_mean") or 0.0) * (1 - (batch.ours("rollout_rs_masked_fraction") or 0.0))


def trl(end: str) -> Made:
    """In sequence modes one without a loss token counts as 1."""

    def made(batch: Batch) -> float | None:
        if "token" in batch.options.get("vllm_importance_sampling_mode", "sequence_mask"):
            return batch.ours(f"rollout_is_applied_{end}")
        if end == "mean":
            return with_empty("rollout_is_applied_seq_mean", 1.0)(batch)
        extreme = batch.ours(f"rollout_is_applied_{end}")
        return None if extreme is None else {"min": min, "max": max}[end]([extreme, *[1.0] * (batch.n_empty > 0)])

    return made


def nemo_kl(names: dict[str, str]) -> Made:
    return lambda batch: batch.ours(names[batch.options.get("reference_policy_kl_type", "k3")])


def nemo_importance(batch: Batch) -> float | None:
    if "use_importance_sampling_correction" not in batch.options:
        return None
    if batch.options.get("sequence_level_importance_ratios"):
        mean = with_empty("rollout_is_applied_seq_mean", 1.0)(batch)
        return None if mean is None else mean * (len(batch.filled) + batch.n_empty)
    return kept(batch) if batch.options.get(TYPE) == "seq-mask-tis" else batch.ours("rollout_is_applied_mean")


def nemo_outside(batch: Batch) -> float | None:
    if batch.options[TYPE] == "seq-mask-tis":
        return with_empty("rollout_rs_seq_masked_fraction", 0.0)(batch)
    return batch.ours("rollout_is_oob_ratio", kind="icepop" if batch.options[TYPE] == "tis" else "")


def nemo_drift(name: str) -> Made:
    """Of the ratio current / previous: by token, but of sequences where the ratios are."""
    return lambda batch: None if batch.options.get("sequence_level_importance_ratios") else batch.ours(name)


def ms_swift_weight(batch: Batch) -> float | None:
    if batch.options.get("rollout_importance_sampling_mode") != "sequence_mask":
        return batch.ours("rollout_is_applied_mean")
    # Beside another mask, what is kept is less than what ms-swift's weights keep.
    return None if "off_policy_sequence_mask_delta" in batch.options else kept(batch)


def ms_swift_clipped(batch: Batch) -> float | None:
    mode = batch.options.get("rollout_importance_sampling_mode", "")
    if mode.startswith("token"):
        return batch.ours("rollout_is_ratio_fraction_high")
    rule = "rollout_rs_geometric_fraction_high" if mode == "sequence_mask" else "rollout_is_ratio_fraction_high"
    return with_empty(rule, 0.0)(batch)


def ms_swift_chi2_seq(batch: Batch) -> float:
    squares = [math.exp(2 * mean) for mean in batch.alone("log_ratio_mean")]
    return (sum(squares) + batch.n_empty) / (len(squares) + batch.n_empty) - 1


def ms_swift_ess(batch: Batch) -> float | None:
    if batch.options.get("rollout_importance_sampling_mode") != "token_truncate":
        return None
    high = batch.options.get("rollout_importance_sampling_threshold", 2.0)
    return batch.ours("rollout_is_eff_sample_size", "--is", f"token:{1 / high!r},{high!r}")


def rho_clipped(batch: Batch) -> float | None:
    # Without a clamp nothing is clipped; shares of tokens cannot be had from ours, of sequences.
    if not batch.options["use_rho_correction"] or batch.options.get("rho_clamp_upper_bound") == 0:
        return 0.0
    if batch.options.get("rho_mask_sequence_level"):
        return None
    low = batch.ours("rollout_is_ratio_fraction_low") if "rho_clamp_lower_bound" in batch.options else 0.0
    high = batch.ours("rollout_is_ratio_fraction_high")
    return None if high is None or low is None else high + low


def rho_weight(batch: Batch) -> float | None:
    if not batch.options["use_rho_correction"]:
        return None
    masks = [name for name in ("rho_mask_lower_bound", "rho_mask_upper_bound") if name in batch.options]
    clamps = batch.options.get("rho_clamp_upper_bound") != 0
    return None if masks and clamps else kept(batch) if masks else batch.ours("rollout_is_applied_mean")


def rho_dropped(end: str) -> Made:
    """By a token's own ratio; where its sequence's counts ours are of sequences, and know both bounds together."""

    def made(batch: Batch) -> float | None:
        own, other = ("lower", "upper") if end == "low" else ("upper", "lower")
        if f"rho_mask_{own}_bound" not in batch.options:
            return 0.0
        if f"rho_mask_{other}_bound" not in batch.options:
            return batch.ours("rollout_rs_masked_fraction")
        by_sequence = batch.options.get("rho_mask_sequence_level") or batch.options.get("rho_mask_tv_divergence")
        return None if by_sequence else batch.ours(f"rollout_rs_rho_fraction_{end}")

    return made


def roll_clipped(batch: Batch) -> float | None:
    padded = "actor/is_weight_clipfrac@sum" in (CASES[batch.case].get("padding_dependent") or ())
    return None if padded else batch.ours("rollout_is_ratio_fraction_high")


def roll_ratio(level: str) -> Made:
    return lambda batch: batch.ours("rollout_is_seq_mean", "--is", level)


def roll_gap(scope: str) -> Made:
    """By a rejection that keeps everything, as the names table has it."""
    rules = ("--rs", "prob_gap.seq_mean:-1e9,1e9", "--rs", "prob_gap.seq_sum:-1e9,1e9")
    return lambda batch: batch.ours(f"rollout_rs_{scope}_prob_gap_mean", *rules)


def packed(name: str) -> Made:
    """xtuner packs a micro-batch: its means over sequences are over all tokens, as of one."""

    def made(batch: Batch) -> float:
        sums = zip(batch.alone(name), batch.number_of_tokens(), strict=True)
        return sum(mean * n for mean, n in sums) / sum(batch.number_of_tokens())

    return made


def exponential(made: Made) -> Made:
    return lambda batch: math.exp(made(batch) or 0.0)


def absolute(name: str) -> Made:
    return lambda batch: abs(batch.ours(name) or 0.0)


def xtuner_share(end: str) -> Made:
    """Beyond a bound of the weights or, in mask mode, of the mask; of sequences one without a token counts as 1."""

    def made(batch: Batch) -> float | None:
        # Bounds of 2.0 and 0.5 where it has none.
        options = {"rollout_is_mode": "truncate"} | batch.options
        rule = f"rollout_is_ratio_fraction_{end}"
        if options["rollout_is_mode"] == "mask":
            rule = f"rollout_rs_is_fraction_{end}"
        match options.get("rollout_is_level", "token"):
            case "token":
                return batch.ours(rule)
            case "sequence":
                return with_empty(rule, 0.0)(batch)
            case _:  # of tokens, where ours is of sequences
                return None

    return made


def dppo_kl(batch: Batch) -> float | None:
    """verl's PPO KL, of current over old; in bypass mode that is training over rollout."""
    if not batch.case.endswith("bypass"):
        return batch.ours("ppo_kl")
    # verl's limit of 20 acts on the large gaps of batch 2.
    return None if batch.step == 2 else batch.ours("kl")


def slime_clipped(batch: Batch) -> float | None:
    # slime's numerator counts what is in holes of masks, too, which no number of ours does.
    return None if batch.step in (1, 4) else sum(batch.alone("rollout_rs_masked_fraction"))


DPPO: dict[str, Made | str] = {
    "actor/pg_clipfrac": "rollout_rs_masked_fraction",
    "actor/ppo_kl": dppo_kl,
}
RHO: dict[str, Made | str] = {
    "val/rho_drop_frac": "rollout_rs_masked_fraction",
    "val/rho_weight": rho_weight,
    "val/rho_clipfrac": rho_clipped,
    **{f"val/rho_drop_{end}_frac": rho_dropped(end) for end in ("low", "high")},
}
OURS: dict[str, dict[str, Made | str]] = {
    "areal-kpop": {
        "behave_imp_weight/avg": "kept_ratio_mean",
        "behave_approx_kl/avg": "kept_log_ratio_mean",
        "behave_filtered_ratio/avg": "rollout_rs_masked_fraction",
        "rs_filtered_fraction": "rollout_rs_masked_fraction",
    },
    "verl-dppo-kl": DPPO,
    "verl-dppo-tv": DPPO,
    "skyrl-dppo": {"clip_ratio": "rollout_rs_masked_fraction"},
    "prime-kpop": prime(PRIME),
    "prime-dppo": prime(
        PRIME
        | {
            "is_masked_high": over_all("rollout_rs_dppo_high_masked_fraction"),
            "is_masked_low": without_zeroes(over_all("rollout_rs_dppo_low_masked_fraction")),
            "masked_advantage_positive": masked_side("high"),
            "masked_advantage_negative": without_zeroes(masked_side("low")),
        }
    ),
    "open-instruct-rho": RHO,
    "open-instruct-vaco": RHO,
    "ms-swift": {
        **{f"rollout_correction/{name}": name for name in ("kl", "chi2_token", "log_ppl_diff_max", "log_ppl_diff_min")},
        **{
            f"rollout_correction/{name}": with_empty(name, value)
            for names, value in (
                (("training_ppl", "rollout_ppl", "ppl_ratio"), 1.0),
                (("training_log_ppl", "rollout_log_ppl", "log_ppl_diff", "log_ppl_abs_diff"), 0.0),
            )
            for name in names
        },
        # Its limit of 10 a token acts on the large gaps of batch 2.
        "rollout_correction/k3_kl": lambda batch: None if batch.step == 2 else batch.ours("k3_kl"),
        "rollout_correction/chi2_seq": ms_swift_chi2_seq,
        "rollout_correction/is_weight_mean": ms_swift_weight,
        "rollout_correction/clipped_frac": ms_swift_clipped,
        "rollout_correction/ess": ms_swift_ess,
    },
    "slime-opsm": {"opsm_clipfrac": slime_clipped},
    "roll-train-infer": {
        **{
            f"actor/train_infer_ratio_{level}_mean@sum": roll_ratio(level)
            for level in ("token", "geometric", "sequence")
        },
        "actor/train_infer_diff_token_mean@sum": roll_gap("seq_mean"),
        "actor/train_infer_diff_geometric_mean@sum": roll_gap("seq_mean"),
        "actor/train_infer_diff_sequence_mean@sum": roll_gap("seq_sum"),
        "actor/is_weight_clipfrac@sum": roll_clipped,
        "actor/train_infer_final_mask_mean": lambda batch: 1 - (batch.ours("rollout_rs_masked_fraction") or 0.0),
    },
    "xtuner": {
        "mismatch/mismatch_kl": "kl",
        "mismatch/mismatch_k3_kl": "k3_kl",
        "mismatch/mismatch_logprob_abs_diff": "logprob_abs_diff_mean",
        **{f"mismatch/mismatch_log_ppl_diff{end}": "kl" for end in ("", "_max", "_min")},
        "mismatch/mismatch_log_ppl_abs_diff": absolute("kl"),
        "mismatch/mismatch_ppl_ratio": exponential(lambda batch: batch.ours("kl")),
        **{
            f"mismatch/mismatch_{side}_{name}": made
            for side in ("training", "rollout")
            for name, made in (
                ("log_ppl", packed(f"{side}_log_ppl")),
                ("ppl", exponential(packed(f"{side}_log_ppl"))),
            )
        },
        **{
            f"rollout_is/mismatch/rollout_is_{name}": f"rollout_is_{name}"
            for name in (
                *("mean", "max", "min", "seq_mean", "seq_std", "seq_max", "seq_min", "seq_max_deviation"),
                *("seq_fraction_low", "seq_fraction_high"),
            )
        },
        **{f"rollout_is/mismatch/rollout_is_ratio_fraction_{end}": xtuner_share(end) for end in ("low", "high")},
        "rollout_is/mismatch/rollout_is_masked_fraction": "rollout_rs_is_masked_fraction",
        "rollout_is/mismatch/rollout_is_seq_masked_fraction": with_empty("rollout_rs_is_seq_masked_fraction", 0.0),
    },
    "trl-sampling": {
        **{f"sampling/sampling_logp_difference/{end}": f"logprob_abs_diff_{end}" for end in ("mean", "max")},
        **{f"sampling/importance_sampling_ratio/{end}": trl(end) for end in ("min", "mean", "max")},
    },
    "nemo": {
        "token_mult_prob_error": "token_mult_prob_error",
        "js_divergence_error": "js_divergence",
        "gen_kl_error": nemo_kl({"k1": "kl", "k2": "k2_kl", "k3": "k3_kl"}),
        "policy_kl_error": nemo_kl({"k1": "log_ratio_mean", "k2": "k2_kl", "k3": "k3_kl_reverse"}),
        "sampling_importance_ratio": nemo_importance,
        "is_oob_ratio": nemo_outside,
        "probs_ratio": nemo_drift("ois_mean"),
        "probs_ratio_max": nemo_drift("ois_max"),
        "num_valid_samples": lambda batch: float(len(batch.filled) + batch.n_empty),
    },
}
"""By group of cases: a framework's name -> the metric of ours that it is, or how it is made of ours."""

NOT_OURS: dict[str, dict[str, str]] = {
    **{
        group: {"actor/pg_clipfrac_lower": "counts the loss that clip_ratio_c bounds"}
        for group in ("verl-dppo-kl", "verl-dppo-tv")
    },
    "roll-train-infer": {
        **{
            f"actor/train_infer_{kind}_mask_mean@sum": "counts positions outside the mask: it moves with padding"
            for kind in ("token_ratio", "geometric_ratio", "sequence_ratio", "token_diff")
        },
        **{f"actor/train_infer_{kind}_segment_mean@sum": "is over runs of loss tokens" for kind in ("ratio", "diff")},
    },
    "xtuner": {
        **dict.fromkeys(("mismatch/valid", "rollout_is/mismatch/valid"), "says that there is a loss token"),
        **{
            f"rollout_is/mismatch/rollout_is_{name}": "counts both sides of the veto together, ours each side"
            for name in ("veto_fraction", "catastrophic_token_fraction")
        },
        **{
            f"rollout_is/mismatch/rollout_is_{name}": "is of raw weights, clamped to the bounds of the mask"
            for name in ("std", "eff_sample_size")
        },
    },
    "nemo": {
        **{
            f"probs_ratio_{name}": "is of ratios that the loss clips, by bounds of the loss alone"
            for name in ("clamped", "clamped_min", "clamped_max")
        },
        "probs_ratio_min": "is the least ratio of current / previous, of which ours has the largest alone",
        "approx_entropy": "weighs log-probs by current / rollout, which is no gap",
    },
}
"""By group: a name that ours cannot say, and why."""

EXPLAINED = {
    ("verl-kpop/3", 2, "rollout_corr/rollout_is_seq_fraction_high"): "KPop's pull request counts applied weights "
    "there, as verl 0.8 did; 0.9 counts raw ones",
}
"""Numbers that are ours by no rule: (case, batch, name) -> why."""

PROFILED = ("verl-kpop", "verl-trm")
COMPARED = {
    "areal-kpop": 116,
    "verl-kpop": 862,
    "verl-trm": 711,
    "verl-dppo-kl": 57,
    "verl-dppo-tv": 57,
    "skyrl-dppo": 30,
    "prime-kpop": 90,
    "prime-dppo": 154,
    "open-instruct-rho": 120,
    "open-instruct-vaco": 65,
    "ms-swift": 735,
    "slime-opsm": 15,
    "roll-train-infer": 335,
    "xtuner": 1270,
    "trl-sampling": 175,
    "nemo": 545,
}
"""How many numbers of a group are compared."""


def expected(case: str, name: str, only: int | None = None) -> Iterator[tuple[int, float, float]]:
    """The batches that count, with the numbers of the float64 run and of the framework's own float32 one.

    Where the float64 run masks other tokens only the float32 one counts, and stands in its place.
    """
    for step, batch in CASES[case]["batches"].items():
        value, own = batch["metrics_float64"].get(name), batch["metrics"].get(name)
        if value is None or own is None or name in batch.get("rounding", []) or only not in (None, int(step)):
            continue
        yield int(step), own if batch.get("mask_differs_in_float64") else value, own


def agrees(found: float | None, value: float, own: float) -> bool:
    return found is not None and (
        abs(found - value) <= 1e-6 * abs(value) + 1e-9 or abs(found - own) <= 1e-5 * abs(own) + 1e-6
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("methods")


def names_of(group: str) -> set[str]:
    cases = (case for case in READ if case.startswith(f"{group}/"))
    return {name for case in cases for batch in CASES[case]["batches"].values() for name in batch["metrics"]}


@pytest.mark.parametrize("group", OURS)
def test_a_logged_number_is_made_of_ours(group: str, folder: Path) -> None:
    assert {*OURS[group], *NOT_OURS.get(group, {})} == names_of(group)
    compared = 0
    for case in (case for case in READ if case.startswith(f"{group}/")):
        for name, rule in OURS[group].items():
            for step, value, own in expected(case, name):
                batch = Batch(case, step, folder)
                found = batch.ours(rule) if isinstance(rule, str) else rule(batch)
                assert found is None or agrees(found, value, own), (case, step, name, found, value, own)
                compared += found is not None
    assert compared == COMPARED[group]


@pytest.mark.parametrize("group", PROFILED)
def test_verls_profile_gives_its_numbers_of_rejection_by_divergence(group: str, folder: Path) -> None:
    compared = 0
    for case in (case for case in CASES if case.startswith(f"{group}/")):
        config: dict[str, Any] = CASES[case]["config"]
        for batch in map(int, CASES[case]["batches"]):
            columns = ("sample_id", "rollout_log_probs", "old_log_probs", "response_mask")
            rows = [{name: row[name] for name in columns} for row in ROWS if row["step"] == batch]
            numbers = report(folder, "verl-0.9", config, rows)["metrics"]
            for name in names_of(group):
                for _, value, own in expected(case, name, batch):
                    found = numbers.get(name, numbers.get(name.removeprefix("rollout_corr/")))
                    right = agrees(found, value, own)
                    assert right != ((case, batch, name) in EXPLAINED), (case, batch, name, found, value, own)
                    compared += right
    assert compared == COMPARED[group]


def test_of_111_cases_105_agree_in_every_number_that_is_compared() -> None:
    assert len(CASES) == 111
    assert {*OURS, *PROFILED} == {case.split("/")[0] for case in CASES} == set(COMPARED)
    apart = {*OF_RUNS, *(case for case, *_ in EXPLAINED)}
    assert len(CASES) - len(apart) >= 105
    assert sum(COMPARED.values()) > 5000


UNLISTED = {"rs_filtered_fraction", "actor/pg_clipfrac", "clip_ratio", "token_mult_prob_error", "num_valid_samples"}
"""Names of one loss, one that is our own name, and a number of rows."""


@pytest.mark.parametrize("group", OURS)
def test_the_names_table_says_the_same(group: str) -> None:
    """Names that are a metric of ours as it is, and a note where they are more than that."""
    for name, rule in OURS[group].items():
        # prime-rl's maxima are over sequences, which no report of a whole dump has.
        if name in UNLISTED or (group.startswith("prime") and name.endswith("/max")):
            continue
        row = logged_name(name)
        assert row is not None, name
        if isinstance(rule, str):
            assert (row.canonical, row.difference) == (rule, "") or XTUNER_DIFFERENCE in row.difference, name
        else:
            assert row.note or row.canonical in ("ppo_kl", "rollout_is_ratio_fraction_high"), name


def test_ms_swifts_chi2_seq_is_not_verls(folder: Path) -> None:
    row = logged_name("rollout_correction/chi2_seq")
    assert row is not None
    assert "another number" in row.difference
    theirs = CASES["ms-swift/0"]["batches"]["0"]["metrics_float64"]["rollout_correction/chi2_seq"]
    ours = Batch("ms-swift/0", 0, folder).ours("chi2_seq")
    assert ours is not None
    assert theirs < 0 < ours


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
