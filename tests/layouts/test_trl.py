"""TRL's batch in memory, held to the same numbers in columns of the canonical names."""

from math import exp
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from rlcorr_cli import analyze, correct, inspect
from rlcorr_cli.errors import DataError

TABLE = pq.read_table(Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet").slice(0, 32)
LENGTHS = [len(row) for row in TABLE.column("response_mask").to_pylist()]
WIDTH = max(LENGTHS)


def padded(name: str) -> torch.Tensor:
    return torch.tensor([row + [0] * (WIDTH - len(row)) for row in TABLE.column(name).to_pylist()])


def batch(**more: Any) -> dict[str, Any]:
    """As the trainer's own method returns it, prompts padded on the left."""
    return {
        "prompt_ids": torch.arange(32 * 5).reshape(32, 5),
        "prompt_mask": torch.ones(32, 5, dtype=torch.long),
        "completion_ids": torch.arange(32 * WIDTH).reshape(32, WIDTH),
        "completion_mask": padded("response_mask"),
        "sampling_per_token_logps": padded("rollout_log_probs"),
        "old_per_token_logps": padded("old_log_probs"),
        "ref_per_token_logps": None,
        "advantages": torch.linspace(-1, 1, 32),
        "num_items_in_batch": torch.tensor(512),
        "pixel_values": torch.zeros(32, 3, 4, 4),
        **more,
    }


def of_tools() -> torch.Tensor:
    """0 for every fifth token."""
    return (torch.arange(32 * WIDTH) % 5 != 0).reshape(32, WIDTH).long()


def canonical(mask: torch.Tensor) -> dict[str, Any]:
    return {
        "rollout_log_probs": padded("rollout_log_probs"),
        "old_log_probs": padded("old_log_probs"),
        "response_mask": mask,
        "advantages": torch.linspace(-1, 1, 32),
    }


def test_a_batch_gives_the_numbers_of_its_columns() -> None:
    right = analyze(canonical(padded("response_mask"))).whole.values
    assert analyze(batch()).whole.values == pytest.approx(right, nan_ok=True)


def test_tokens_of_tools_do_not_count() -> None:
    right = analyze(canonical(padded("response_mask") * of_tools()))
    report = analyze(batch(tool_mask=of_tools()))
    assert report.whole.values == pytest.approx(right.whole.values, nan_ok=True)
    assert report.whole.counts == right.whole.counts
    assert report.whole.counts["masked_tokens"] > right.whole.counts["sequences"]


def test_correct_gives_the_batch_with_its_weights() -> None:
    corrected = correct(batch(tool_mask=of_tools()), preset="token_is")
    right = correct(canonical(padded("response_mask") * of_tools()), preset="token_is")
    assert corrected.column("rollout_is_weights").to_pylist() == right.column("rollout_is_weights").to_pylist()
    assert corrected.column("prompt_ids").to_pylist() == batch()["prompt_ids"].tolist()
    assert {"token_ids", "advantages"} < set(corrected.column_names)
    assert not {"num_items_in_batch", "pixel_values", "ref_log_probs"} & set(corrected.column_names)


OPSM = """
vllm_importance_sampling_mode: token_truncate
off_policy_mask_threshold: 0.15
"""


def unscored(current: list[float] | None = None) -> dict[str, Any]:
    """A batch of one completion, whose second token vLLM could not score."""
    more = {} if current is None else {"per_token_logps": torch.tensor([current])}
    return {
        "prompt_ids": torch.ones(1, 2, dtype=torch.long),
        "completion_ids": torch.ones(1, 3, dtype=torch.long),
        "completion_mask": torch.ones(1, 3, dtype=torch.long),
        "sampling_per_token_logps": torch.tensor([[-1.0, torch.nan, -1.0]]),
        "old_per_token_logps": torch.tensor([[-1.2, -0.5, -1.2]]),
        "advantages": torch.tensor([-1.0]),
        **more,
    }


@pytest.mark.parametrize("current", [[-1.2, -0.5, -1.2], [-1.2, -0.9, -1.2]])
def test_tokens_that_vllm_could_not_score_stay_in_trls_loss(current: list[float], tmp_path: Path) -> None:
    """Ratio 1, counted in n and as 0 in the mean of the off-policy mask: (0.2 + 0 + 0.2) / 3 = 0.133 is below 0.15."""
    (tmp_path / "trl.yaml").write_text(OPSM)
    plan, table = str(tmp_path / "trl.yaml"), unscored(current)
    with pytest.raises(DataError, match=r"\[1\] is nan on a valid token") as caught:
        analyze(table, plan=plan)
    assert 'nonfinite="keep"' in caught.value.hint
    kept = analyze(table, plan=plan, nonfinite="keep").whole.values
    assert kept["rollout_rs_opsm_mean"] == pytest.approx(0.4 / 3)
    assert kept["rollout_rs_masked_fraction"] == 0
    weights = [exp(-0.2), 1, exp(-0.2)]
    assert kept["rollout_is_applied_mean"] == pytest.approx(sum(weights) / 3)
    corrected = correct(table, plan=plan, nonfinite="keep")
    assert corrected.column("rollout_is_weights").to_pylist() == [pytest.approx(weights)]
    assert corrected.column("response_mask").to_pylist() == [[1, 1, 1]]
    masked = analyze(table, plan=plan, nonfinite="mask").whole.values
    assert masked["rollout_rs_opsm_mean"] == pytest.approx(0.2)
    assert masked["rollout_rs_masked_fraction"] == 1


def test_correct_leaves_out_no_row() -> None:
    leaving_out: Any = {"on_bad_row": "skip"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'on_bad_row'"):
        correct(unscored(), preset="token_is", **leaving_out)
    with pytest.raises(DataError) as caught:
        correct(unscored(), preset="token_is")
    assert 'nonfinite="keep"' in caught.value.hint
    assert "on_bad_row" not in caught.value.hint


def test_a_batch_is_said_to_be_trls() -> None:
    (note,) = (note for note in inspect(batch()).notes if "trl" in note)
    assert note == (
        "<table in memory>: read as trl, a batch of GRPOTrainer (keys prompt_ids, completion_ids, completion_mask)."
    )


def test_the_current_policy_is_compared_where_a_loss_adds_it(tmp_path: Path) -> None:
    current = padded("old_log_probs") * 0.5
    report = analyze(batch(per_token_logps=current), mode="bypass")
    right = analyze({**canonical(padded("response_mask")), "old_log_probs": current}).whole.values
    assert report.whole.values["kl"] == pytest.approx(right["kl"])


@pytest.mark.parametrize("missing", [None, "no key"])
def test_a_batch_without_the_engines_log_probs_says_how_to_keep_them(missing: str | None) -> None:
    without = batch(sampling_per_token_logps=None)
    if missing:
        del without["sampling_per_token_logps"]
    with pytest.raises(DataError, match="no sampling_per_token_logps") as caught:
        analyze(without)
    assert "vllm_importance_sampling_correction" in caught.value.hint
