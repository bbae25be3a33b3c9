"""The names table against the frameworks' own functions: what each logged name is, mode by mode.

`tests/golden/logged_names.json` has what TRL, NeMo-RL and verl log of five batches, by functions of their own
(tests/golden/README.md); here each number is made again of what `rlcorr analyze` reports of the same batch, as the
table says.  Names of verl and slime, which have profiles, are held there and in `test_golden.py`.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from profiled import report

from rlcorr_cli.metrics.framework_names import LOGGED

GOLDEN = Path(__file__).parent.parent / "golden"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "logged_names.json").read_text())
ROWS: list[dict[str, Any]] = pq.read_table(GOLDEN / "logged_names.parquet").to_pylist()
STEPS = sorted({row["step"] for row in ROWS})
N_ROWS = {step: sum(row["step"] == step for row in ROWS) for step in STEPS}
N_EMPTY = {step: sum(row["step"] == step and not any(row["response_mask"]) for row in ROWS) for step in STEPS}

Numbers = dict[str, float]
Formula = Callable[[Numbers, int], float]
"""What a logged number is, of the metrics of a step."""


def is_of_sequences(config: dict[str, Any]) -> bool:
    """Whether weights are one for each sequence."""
    mode = config.get("vllm_importance_sampling_mode", "sequence_mask")
    loss_fn = config.get("loss_fn")
    return mode.startswith("sequence") if loss_fn is None else loss_fn.get("sequence_level_importance_ratios", False)


def own(name: str) -> Formula:
    return lambda numbers, step: numbers[name]


def sequence_mean(numbers: Numbers, step: int) -> float:
    """The mean applied weight over all sequences, one without a loss token counting as 1."""
    filled = N_ROWS[step] - N_EMPTY[step]
    return (numbers["rollout_is_applied_seq_mean"] * filled + N_EMPTY[step]) / N_ROWS[step]


def with_empty(pick: Callable[..., float], name: str) -> Formula:
    return lambda numbers, step: pick([numbers[name], *[1.0] * N_EMPTY[step]])


def kept_mean(numbers: Numbers, step: int) -> float:
    return (numbers["kept_ratio_mean"] or 0.0) * (1 - numbers["rollout_rs_masked_fraction"])


def rejected_rows(numbers: Numbers, step: int) -> float:
    """The share of sequences rejected, of all of them: one without a loss token is rejected by no bounds around 1."""
    return numbers["rollout_rs_seq_masked_fraction"] * (N_ROWS[step] - N_EMPTY[step]) / N_ROWS[step]


KL: dict[str, dict[str, Formula]] = {
    "gen_kl_error": {"k1": own("kl"), "k2": own("k2_kl"), "k3": own("k3_kl")},
    "policy_kl_error": {
        "k1": lambda numbers, step: -numbers["kl"],
        "k2": own("k2_kl"),
        "k3": own("k3_kl_reverse"),
    },
}
TRL_RATIO: dict[str, tuple[Formula, Formula]] = {
    "mean": (own("rollout_is_applied_mean"), sequence_mean),
    "min": (own("rollout_is_applied_min"), with_empty(min, "rollout_is_applied_min")),
    "max": (own("rollout_is_applied_max"), with_empty(max, "rollout_is_applied_max")),
}


def formula_of(name: str, config: dict[str, Any]) -> Formula:
    """What the table says that a name is in the mode of a config."""
    loss_fn = config.get("loss_fn", {})
    kind = loss_fn.get("truncated_importance_sampling_type")
    if name.startswith("sampling/importance_sampling_ratio/"):
        return TRL_RATIO[name.rsplit("/", 1)[1]][is_of_sequences(config)]
    if name in KL:
        return KL[name][loss_fn.get("reference_policy_kl_type", "k3")]
    if name == "sampling_importance_ratio":
        if is_of_sequences(config):
            return lambda numbers, step: N_ROWS[step] * sequence_mean(numbers, step)
        return kept_mean if kind == "seq-mask-tis" else own("rollout_is_applied_mean")
    if name == "is_oob_ratio":
        return rejected_rows if kind == "seq-mask-tis" else own("rollout_is_oob_ratio")
    (row,) = (row for row in LOGGED if row.name == name)
    assert row.difference == ""
    return own(row.canonical)


def looked_at(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The plan whose metrics a name is said to be of: the config's, with weights where NeMo-RL logs them of a
    correction that is off, and with tis' weights zeroed in place of clamped for what lies outside."""
    loss_fn = config.get("loss_fn")
    if loss_fn is None:
        return config
    if name != "is_oob_ratio" or loss_fn["truncated_importance_sampling_type"] != "tis":
        return {"loss_fn": {**loss_fn, "use_importance_sampling_correction": True}}
    scope = "sequence" if is_of_sequences(config) else "token"
    low = loss_fn.get("truncated_importance_sampling_ratio_min")
    high = loss_fn["truncated_importance_sampling_ratio"]
    return {"weighting": {"scope": scope, "low": low, "high": high, "outside": "zero"}, "log_ratio_limit": None}


@cache
def reported(folder: Path, config: str) -> dict[int, Numbers]:
    """rlcorr's metrics of each step under a framework's config."""
    groups = report(folder, "canonical", json.loads(config), ROWS, "--group-by", "step")["groups"]
    return {group["key"]["step"]: group["metrics"] for group in groups}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logged")


@pytest.mark.parametrize(("case", "name"), [(case, name) for case in CASES for name in CASES[case]["metrics"]])
def test_a_logged_number_is_what_the_table_says(case: str, name: str, folder: Path) -> None:
    config = CASES[case]["config"]
    formula = formula_of(name, config)
    numbers = reported(folder, json.dumps(looked_at(name, config)))
    found = [formula(numbers[step], step) for step in STEPS]
    assert found == pytest.approx(CASES[case]["metrics"][name], rel=1e-6, abs=1e-9)


def test_the_cases_tell_the_modes_apart() -> None:
    """Each formula of a mode is another number than the default's, in some batch."""
    default = {name: CASES["nemo/0"]["metrics"][name] for name in KL}
    for case, name in (("nemo/1", "gen_kl_error"), ("nemo/2", "gen_kl_error"), ("nemo/1", "policy_kl_error")):
        assert CASES[case]["metrics"][name] != pytest.approx(default[name], rel=1e-3)
    assert any(N_EMPTY.values())
