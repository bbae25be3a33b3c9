"""Methods of the frameworks' newest releases, as their users configure them, against their own functions.

tests/golden/methods3/README.md says how these were run and what agreement means: masks are equal, weights differ by
5e-6 of their size at most.  A config is read as `--plan` reads it, with no profile named.
"""

import contextlib
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rlcorr_cli.commands import main

GOLDEN = Path(__file__).parent.parent / "golden" / "methods3"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
ROWS: list[dict[str, Any]] = pq.read_table(GOLDEN / "input.parquet").to_pylist()
OF_RUNS = {"roll-train-infer/4": "weight_type: segment", "roll-train-infer/9": "agg_type: segment"}
"""Cases that no plan of ours is: ROLL's segments are runs of loss tokens."""
READ = [case for case in CASES if case not in OF_RUNS]


def run(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.run(list(argv))
    return status, out.getvalue(), err.getvalue()


def without_rollout(case: str) -> bool:
    """Whether the function was given no rollout log-probs and took the old ones in their place."""
    return None in CASES[case]["policies"].values()


def dump(case: str, folder: Path) -> Path:
    """The rows with the columns that the case's function was given, by the names of ours that they stand for."""
    given = set(map(str, CASES[case]["policies"].values()))
    rollout = "old_log_probs" if without_rollout(case) else "rollout_log_probs"
    taken = {
        "rollout_log_probs": rollout,
        **{name: name for name in ("old_log_probs", "current_log_probs") if any(name in each for each in given)},
        **{name: name for name in ("sample_id", "step", "response_mask", "advantages")},
    }
    path = folder / "dump.jsonl"
    lines = [json.dumps({name: row[column] for name, column in taken.items()}) for row in ROWS]
    path.write_text("\n".join(lines))
    return path


def config(case: str, folder: Path) -> Path:
    path = folder / "config.yaml"
    given = CASES[case]["config"]
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    return path


@cache
def expected(case: str) -> dict[str, tuple[list[int] | None, list[float | None] | None]]:
    """Mask and weights of every row."""
    found = {}
    for batch in CASES[case]["batches"].values():
        for name in {**batch.get("mask", {}), **batch.get("weights", {})}:
            found[name] = (batch.get("mask", {}).get(name), batch.get("weights", {}).get(name))
    return found


@pytest.mark.parametrize("case", READ)
def test_a_config_masks_and_weighs_as_the_framework_does(case: str, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    given = (str(dump(case, tmp_path)), "--plan", str(config(case, tmp_path)), "--rejected", "keep", "-o", str(out))
    # Two columns that are the same are a fault of a dump.
    status, _, err = run("filter", *given, *["--force"] * without_rollout(case))
    if status == 2 and "corrects nothing" in err:
        for row in ROWS:
            mask, weights = expected(case).get(row["sample_id"], (None, None))
            assert mask is None or mask == row["response_mask"]
            assert weights is None or {1.0, None} >= set(weights)
        return
    assert status == 0, err
    written = {row["sample_id"]: row for row in pq.read_table(out).to_pylist()}
    assert set(written) == {row["sample_id"] for row in ROWS}
    for row in ROWS:
        mask, weights = expected(case).get(row["sample_id"], (None, None))
        found = written[row["sample_id"]]
        n = len(row["response_mask"])
        # A framework without a mask of its own drops a token by a weight of 0; with one it may do both.
        wanted = [
            int(bool(valid) and (mask is None or bool(mask[t])) and (weights is None or weights[t] != 0))
            for t, valid in enumerate(row["response_mask"])
        ]
        ours = found.get("rollout_is_weights") or [1.0] * n
        left = [int(bool(m) and w != 0) for m, w in zip(found["response_mask"], ours, strict=True)]
        assert left == wanted, row["sample_id"]
        if weights is not None:
            kept = [t for t in range(n) if wanted[t]]
            assert [ours[t] for t in kept] == pytest.approx([weights[t] for t in kept], rel=5e-6), row["sample_id"]


@pytest.mark.parametrize("case", OF_RUNS)
def test_what_no_plan_can_be_is_refused_by_name(case: str, tmp_path: Path) -> None:
    status, _, err = run("analyze", str(dump(case, tmp_path)), "--plan", str(config(case, tmp_path)))
    assert status == 2
    assert f"{OF_RUNS[case]} cannot be read as a plan" in err
    assert "geometric is the same where a row has one run" in err


def test_the_dppo_objective_has_the_gradient_of_verls_dppo_tv(tmp_path: Path) -> None:
    case, out = "verl-dppo-tv/1-drift", tmp_path / "out.parquet"
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: none")
    asked = ("--objective", "dppo", "--clip-low", "0.02", "--clip-high", "0.05", "--coef", "raw")
    status, _, err = run("filter", str(dump(case, tmp_path)), "--plan", str(plan), *asked, "-o", str(out))
    assert status == 0, err
    written = {row["sample_id"]: row for row in pq.read_table(out).to_pylist()}
    n_masked = 0
    for row in ROWS:
        mask, weights = expected(case)[row["sample_id"]]
        assert mask is not None
        assert weights is not None
        kept = [t for t, valid in enumerate(row["response_mask"]) if valid]
        n_masked += sum(not mask[t] for t in kept)
        if kept:
            gradient = [-row["advantages"][t] * (weights[t] or 0.0) * mask[t] for t in kept]
            coefs = written[row["sample_id"]]["rlcorr_coef"]
            assert [coefs[t] for t in kept] == pytest.approx(gradient, rel=1e-5, abs=1e-9), row["sample_id"]
    assert n_masked > 10


def analyzed(text: str, folder: Path) -> tuple[int, str, str]:
    path = folder / "config.yaml"
    path.write_text(text)
    return run("analyze", str(dump("verl-kpop/0", folder)), "--plan", str(path), "--json")


def test_options_beside_those_that_are_read_are_named(tmp_path: Path) -> None:
    text = (
        "loss_fn: {use_importance_sampling_correction: true, truncated_importance_sampling_type: tis, "
        "truncated_importance_sampling_ratio: 2.0, frobnicate: 1}\ncluster: {nodes: 2}"
    )
    status, out, _ = analyzed(text, tmp_path)
    assert status == 0
    assert any(note.endswith("not read: loss_fn.frobnicate.") for note in json.loads(out)["notes"])
    status, out, _ = analyzed("use_rho_correction: true\n" + "\n".join(f"k{i}: {i}" for i in range(9)), tmp_path)
    assert any("not read: k0, k1, k2, k3, k4, k5 and 3 more." in note for note in json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("rollout_importance_sampling_mode: token_truncate", "ms-swift"),
        ("use_rho_correction: true", "open-instruct"),
        ("rollout_is: {rollout_is_mode: truncate, rollout_is_threshold: [5.0, 0.5]}", "xtuner"),
        ("train_infer_correction: {is_weight: {enabled: true, weight_type: token}}", "ROLL"),
        ("use_opsm: true", "slime"),
        ("actor: {use_decoupled_loss: true, rejection_sampling: {metric: binary_kl, upper: 0.1}}", "AReaL"),
    ],
)
def test_a_frameworks_own_option_alone_is_read(text: str, framework: str, tmp_path: Path) -> None:
    status, out, err = analyzed(text, tmp_path)
    # OPSM compares the current policy, which this dump has not.
    assert (status == 0 and f"read as {framework}'s config" in out) or (framework == "slime" and "current" in err), err


def test_a_value_that_is_no_number_is_told_to_be_none(tmp_path: Path) -> None:
    status, _, err = analyzed("algorithm: {rollout_correction: {rollout_is: .nan, rollout_is_threshold: 2}}", tmp_path)
    assert status == 2
    assert "rollout_is must be one of token, sequence, got nan." in err


def test_what_is_no_config_is_refused_with_the_frameworks_whose_configs_are_read(tmp_path: Path) -> None:
    status, _, err = analyzed("frobnicate: true", tmp_path)
    assert status == 2
    for name in ("verl", "slime", "TRL", "NeMo-RL", "ROLL", "ms-swift", "open-instruct", "xtuner"):
        assert name in err


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("rollout_is_mode: truncate", "Write them under rollout_is for xtuner."),
        ("level: token\nmetric: binary_kl", "Write them under actor.rejection_sampling or actor for AReaL."),
        (
            "algorithm: {rollout_is_mode: truncate, rollout_is_threshold: 2.0}",
            "--profile verl-mismatch reads them as they are.",
        ),
        ("rollout_is: token\nrollout_is_threshold: 2.0", "for verl. --profile verl-0.9 reads them as they are."),
    ],
)
def test_options_that_tell_no_framework_are_refused_with_where_they_are_read(
    text: str, advice: str, tmp_path: Path
) -> None:
    status, _, err = analyzed(text, tmp_path)
    error = json.loads(err)["error"]
    assert status == 2
    assert error["message"].endswith("it does not tell whose options it holds.")
    assert error["hint"].endswith(advice)


def test_options_of_two_frameworks_are_refused_by_their_names(tmp_path: Path) -> None:
    status, _, err = analyzed("use_rho_correction: true\nvllm_importance_sampling_mode: token_mask", tmp_path)
    assert status == 2
    assert "it holds options of TRL and open-instruct" in err


def test_verls_config_is_read_as_the_newest_release_that_knows_it_does(tmp_path: Path) -> None:
    block = "algorithm:\n  rollout_correction:\n"
    _, out, _ = analyzed(f"{block}    rollout_rs: seq_mean_k3\n    rollout_rs_threshold: 0.01", tmp_path)
    assert any("read as verl-0.9 does" in note for note in json.loads(out)["notes"])
    _, out, _ = analyzed(f"{block}    rollout_is: token\n    rollout_token_veto_threshold: 1.0e-4", tmp_path)
    assert any("--profile verl-0.6 gives verl's" in note for note in json.loads(out)["notes"])
    # xtuner's block has the name of verl's option.
    _, out, _ = analyzed("rollout_is: {rollout_is_threshold: [2.0, 0.5]}", tmp_path)
    assert any("read as xtuner's config" in note for note in json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("rollout_is: {rollout_is_threshold: [0.5, 2.0]}", "[UPPER, LOWER]"),
        ("rollout_is: {rollout_is_threshold: 2.0}", "[UPPER, LOWER]"),
        ("rollout_is: {rollout_is_treshold: [2.0, 0.5]}", "xtuner has no option 'rollout_is_treshold'"),
        ("train_infer_correction: {is_weight: {enabled: yes, uper_bound: 2.0}}", "'uper_bound' under is_weight"),
        ("train_infer_correction: {filters: {enabled: true}}", "filters must be a list"),
        ("train_infer_correction: {filters: [token]}", "filters[0] must be a block"),
        (
            "train_infer_correction: {is_weight: {enabled: true}}\nactor_train: {pg_variant: tis}",
            "contradict",
        ),
        ("rollout_importance_sampling_mode: token", "token_truncate"),
        ("rollout_importance_sampling_mode: token_mask\nrollout_importance_sampling_threshold: null", "needs"),
        ("use_rho_correction: true\nrho_clamp_upper_bound: -1", "must not be negative"),
        ("use_opsm: 1", "use_opsm must be true or false"),
        ("actor: {rejection_sampling: {metric: binary_kl, upper: 0}}", "must be above 0"),
        ("trainer: {loss: {type: kpop, ipo_threshold: 0.1}}", "contradict"),
        (
            "trainer: {algorithm: {policy_loss_type: dppo, off_policy_correction: {tis_ratio_type: token}}}",
            "contradict",
        ),
        (
            "actor_rollout_ref: {actor: {policy_loss: {loss_mode: dppo_kl}}}\n"
            "algorithm: {rollout_correction: {rollout_is: token}}",
            "contradict",
        ),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    status, _, err = analyzed(text, tmp_path)
    assert status == 2, err
    assert wrong in err
