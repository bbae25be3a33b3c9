"""miles' files with sampling support and a version for each turn, held to its own writers' and to made ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from tests.layouts.crafted import dumped, tensor, torch_bytes
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of
from tests.layouts.slime_made import file, rank, rollout

FOLDER = NATIVE / "miles3"
TOKENS = ("rollout_log_probs", "response_mask", "token_ids", "step", "sample_id", "policy_version", "weight_versions")
GENERATED = (*TOKENS, "reward", "group_id", "source", "policy_version_end", "status", "remove_sample")
TRAINED = (*TOKENS, "old_log_probs", "advantages", "normalized_reward", "worker")
Row = dict[str, Any]


def test_a_rollout_file_gives_the_size_of_each_tokens_kept_set_and_the_versions() -> None:
    rows, right = rows_of([FOLDER / "rollout_data"]), expected("miles3/expected_rollout.parquet")
    agree(rows, right, *GENERATED)
    assert [row["kept_set_size"] for row in rows] == [row["kept"] for row in right]


def test_training_files_give_the_same_alone_and_joined() -> None:
    right = expected("miles3/expected_train.parquet")
    for paths, columns in (((FOLDER / "train_data",), TRAINED), ((FOLDER,), (*TRAINED, "reward"))):
        rows = rows_of(paths, "miles")
        agree(rows, right, *columns)
        assert [row["kept_set_size"] for row in rows] == [row["kept"] for row in right]
    report = analyze(str(FOLDER), format="miles")
    assert sum("which tokens these were is not taken over" in note for note in report.notes) == 1
    assert report.counts["sequences"] == sum(row["n_valid"] > 0 for row in right)


def made(n: int, seed: int) -> list[Row]:
    """Samples of one to four turns with observation tokens between them, and what is right of each."""
    rng = np.random.default_rng(seed)
    samples: list[Row] = []
    for i in range(n):
        runs = [int(rng.integers(1, 6)) for _ in range(int(rng.integers(1, 5)))]
        gaps = [int(rng.integers(1, 4)) for _ in runs[1:]] + [0]
        versions = [str(3 + place * (i % 3)) for place in range(len(runs))]
        mask: list[int] = []
        by_token: list[int | None] = []
        for run, gap, version in zip(runs, gaps, versions, strict=True):
            mask += [1] * run + [0] * gap
            by_token += [int(version)] * run + [None] * gap
        kept = [int(rng.integers(1, 9)) if flag else 1 for flag in mask]
        samples.append(
            {
                "index": i,
                "tokens": rng.integers(0, 99, len(mask) + 2).tolist(),
                "response_length": len(mask),
                "reward": 0.5,
                "loss_mask": None if len(runs) == 1 else mask,
                "rollout_log_probs": [-0.5 * flag for flag in mask],
                "weight_versions": versions,
                "rollout_sampling_mask_ids": rng.integers(0, 99, sum(kept)).tolist(),
                "rollout_sampling_mask_offsets": [0, *np.cumsum(kept).tolist()],
                "remove_sample": i % 7 == 5,
                "status": "completed",
                "metadata": {},
                "kept": kept,
                "by_token": by_token,
                "mask": mask,
            }
        )
    return samples


def test_rows_of_made_rollouts_are_exact(tmp_path: Path) -> None:
    samples = made(29, 3)
    written = [
        {key: value for key, value in sample.items() if key not in ("kept", "by_token", "mask")} for sample in samples
    ]
    (tmp_path / "2.pt").write_bytes(file({"rollout_id": 2, "metadata": {}, "samples": written}))
    rows = rows_of([tmp_path / "2.pt"])
    for row, sample in zip(rows, samples, strict=True):
        assert row["kept_set_size"] == sample["kept"]
        assert row["policy_versions"] == sample["by_token"]
        assert row["weight_versions"] == sample["weight_versions"]
        assert row["response_mask"] == [flag * (not sample["remove_sample"]) for flag in sample["mask"]]
        assert row["token_ids"] == sample["tokens"][2:]


def test_rows_of_made_training_files_are_exact(tmp_path: Path) -> None:
    samples = made(5, 4)
    storages: dict[str, bytes] = {}

    def stored(values: list[Any], kind: str, dtype: Any) -> Any:
        key = str(len(storages))
        storages[key] = np.array(values, dtype).tobytes()
        return tensor(key, kind, (len(values),))

    def floats(sample: Row) -> Any:
        return stored(sample["rollout_log_probs"], "Float", np.float32)

    data = {
        "tokens": [stored(sample["tokens"], "Long", np.int64) for sample in samples],
        "loss_masks": [stored(sample["mask"], "Int", np.int32) for sample in samples],
        **{key: [floats(sample) for sample in samples] for key in ("rollout_log_probs", "log_probs", "advantages")},
        "response_lengths": [sample["response_length"] for sample in samples],
        "total_lengths": [len(sample["tokens"]) for sample in samples],
        "rewards": [0.5] * len(samples),
        "sample_indices": [sample["index"] for sample in samples],
        **{
            key: [sample[key] for sample in samples]
            for key in ("weight_versions", "rollout_sampling_mask_ids", "rollout_sampling_mask_offsets")
        },
    }
    value = {"rollout_id": 2, "rank": 0, "rollout_data": data, "cp_rank": 0, "cp_size": 1, "qkv_format": "thd"}
    (tmp_path / "2_0.pt").write_bytes(torch_bytes(dumped(value, 2), storages))
    rows = rows_of([tmp_path / "2_0.pt"])
    for row, sample in zip(rows, samples, strict=True):
        told = (row["kept_set_size"], row["policy_versions"], row["weight_versions"], row["old_log_probs"])
        right = (sample["kept"], sample["by_token"], sample["weight_versions"], sample["rollout_log_probs"])
        assert told == right


@pytest.mark.parametrize(
    ("versions", "mask", "right"),
    [
        (["1", "2"], [1, 1, 1], None),
        (["2", "2"], [1, 1, 1], [2, 2, 2]),
        (["1", "2"], [1, 0, 1], [1, None, 2]),
        (["1", "2", "3"], [1, 0, 1], None),
        (["1"], [0, 1, 0], [None, 1, None]),
        (["a", "b"], [1, 0, 1], None),
        ([], [1, 1, 1], None),
    ],
)
def test_a_token_has_a_version_where_it_is_known(
    versions: list[str], mask: list[int], right: list[int | None] | None, tmp_path: Path
) -> None:
    (tmp_path / "2.pt").write_bytes(rollout(weight_versions=versions, loss_mask=mask))
    (row,) = rows_of([tmp_path / "2.pt"])
    assert (row["policy_versions"], row["weight_versions"]) == (right, versions)


@pytest.mark.parametrize("offsets", [[0, 1, 2], [0, 1, 2, 4], [1, 1, 2, 3], [0, 2, 1, 3]])
def test_kept_sets_that_do_not_fit_are_an_error(offsets: list[int], tmp_path: Path) -> None:
    kept = {"rollout_sampling_mask_ids": [1, 2, 3], "rollout_sampling_mask_offsets": offsets}
    (tmp_path / "2.pt").write_bytes(rollout(**kept))
    (tmp_path / "3_0.pt").write_bytes(rank(**kept))
    for name, what in (("2.pt", "sample 0"), ("3_0.pt", "sequence 0")):
        with pytest.raises(DataError, match=f"{what} has kept sets that do not fit its response of 3 tokens"):
            rows_of([tmp_path / name])
