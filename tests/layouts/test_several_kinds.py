"""Folders as runs leave them, with files of several kinds or of the rollout alone: what is said of them."""

import shutil
from pathlib import Path

import pytest

from rlcorr_cli import analyze, plot
from rlcorr_cli.errors import DataError, NoTrainedPolicy
from rlcorr_cli.reading.find import find
from tests.layouts.native_rows import NATIVE

ALONE = "the rollout policy alone, as a rule."
KINDS = {
    ("prime-rl/token_exports", "prime-rl/rollouts"): (
        f"with --format prime-rl; prime-rl-traces and prime-rl-batches hold {ALONE}"
    ),
    ("verl/skip_v1", "verl/batches"): f"with --format verl; verl-tq holds {ALONE}",
    ("miles/dashboard_columns", "miles/train_data", "miles/policy_loss_debug"): (
        f"with --format miles or --format miles-policy-loss; miles-dashboard holds {ALONE}"
    ),
    ("prime-rl/rollouts",): "with --format prime-rl-traces or --format prime-rl-batches.",
}


@pytest.mark.parametrize("folders", KINDS)
def test_the_kinds_with_a_trained_policy_are_named(folders: tuple[str, ...]) -> None:
    paths = [str(NATIVE / folder) for folder in folders]
    with pytest.raises(DataError, match="dumps of several kinds") as caught:
        find(paths)
    assert caught.value.hint == f"They may hold the same sequences; read one kind {KINDS[folders]}"


def test_a_kind_is_read_out_of_a_runs_folder(tmp_path: Path) -> None:
    for folder in ("token_exports", "rollouts"):
        shutil.copytree(NATIVE / "prime-rl" / folder, tmp_path / folder)
    report = analyze(str(tmp_path), format="prime-rl")
    assert report.whole.values == analyze(str(tmp_path / "token_exports")).whole.values


@pytest.mark.parametrize("kind", ["length", "overview"])
def test_plot_says_of_a_rollout_what_analyze_says(kind: str) -> None:
    path = str(NATIVE / "slime" / "rollout_data")
    with pytest.raises(NoTrainedPolicy) as of_analyze:
        analyze(path)
    with pytest.raises(NoTrainedPolicy) as of_plot:
        plot(path, kind=kind)
    assert (of_plot.value.message, of_plot.value.hint) == (of_analyze.value.message, of_analyze.value.hint)
    assert of_plot.value.exit_status == 3
