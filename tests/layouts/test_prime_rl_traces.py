"""prime-rl's episodes, held to files of its own monitor."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.table import layout
from rlcorr_cli.reading.find import find_noting
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "prime-rl"
FORMAT = "prime-rl-traces"
RIGHT = "prime-rl/expected_traces.parquet"
EFFECTIVE, ALL = (
    tuple(f"rollouts/step_{step}/train/{subset}/traces.jsonl" for step in (7, 8)) for subset in ("effective", "all")
)
COLUMNS = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "policy_version",
    "policy_version_end",
    "source",
    "episode_id",
    "branch",
)


@pytest.mark.parametrize("name", [*EFFECTIVE, *ALL])
def test_a_file_gives_the_branches_of_its_episodes(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected(RIGHT, name), *COLUMNS)


def test_a_folder_gives_each_episode_that_was_trained_on_once_and_says_what_it_leaves_out() -> None:
    agree(rows_of([FOLDER / "rollouts"], FORMAT), expected(RIGHT, *EFFECTIVE), *COLUMNS)
    _, notes = find_noting([str(FOLDER / "rollouts")], FORMAT)
    left_out = [note for note in notes if "left out" in note]
    assert left_out == [f"traces.jsonl and 3 more are left out: {layout('prime-rl-traces').left_out}"]


def test_all_is_read_where_effective_is_not_named() -> None:
    assert len(rows_of([FOLDER / ALL[0], FOLDER / EFFECTIVE[1]])) == 6 + 3


def test_evaluation_is_read_where_no_training_is_named_and_has_no_rows_without_tokens() -> None:
    assert rows_of([FOLDER / "rollouts/step_7/eval/all/traces.jsonl"]) == []


def test_advantages_are_a_column_only_where_episodes_have_them() -> None:
    assert "advantages" in rows_of([FOLDER / EFFECTIVE[0]])[0]
    assert "advantages" not in rows_of([FOLDER / ALL[0]])[0]


def test_analyze_says_where_prime_rl_writes_the_trained_policy() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / EFFECTIVE[0]))
    assert "trainer.enable_token_export" in caught.value.hint


def trace(path: Path, nodes: list[dict[str, Any]], **others: Any) -> Path:
    episode = {"id": "e", "env": {}, "task": {}, "traces": [{"id": "t", "nodes": nodes, **others}]}
    path.write_text(json.dumps(episode))
    return path


def node(tokens: list[int], parent: int | None = None, *, sampled: bool = True, **others: Any) -> dict[str, Any]:
    log_probs = [-float(token) for token in tokens] if sampled else []
    parents = {} if parent is None else {"parent": parent}
    return {"token_ids": tokens, "mask": [sampled] * len(tokens), "logprobs": log_probs, **parents, **others}


def test_a_branch_runs_from_what_no_branch_before_it_has(tmp_path: Path) -> None:
    nodes = [
        node([1], sampled=False),
        node([2, 3], 0),
        node([4], 1, sampled=False),
        node([5], 2),
        node([6], 1, sampled=False),
        node([7], 4),
        node([8], 1, sampled=False),
    ]
    rows = rows_of([trace(tmp_path / "traces.jsonl", nodes)])
    assert [(row["branch"], row["token_ids"], row["response_mask"]) for row in rows] == [
        (0, [2, 3, 4, 5], [1, 1, 0, 1]),
        (1, [7], [1]),
    ]
    assert rows[0]["rollout_log_probs"] == [-2.0, -3.0, 0.0, -5.0]


def test_values_of_the_reference_policy_are_a_column(tmp_path: Path) -> None:
    nodes = [node([1], sampled=False), node([2, 3], 0, reference_logprobs=[-0.5, None])]
    (row,) = rows_of([trace(tmp_path / "traces.jsonl", nodes)])
    assert row["ref_log_probs"] == [-0.5, None]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node([1], 0)], "a node's parent is not one of the nodes before it"),
        ([node([1], 1), node([2], 0)], "a node's parent is not one of the nodes before it"),
        ([node([1]), node([2], -1)], "a node's parent is not one of the nodes before it"),
        ([node([1, 2], logprobs=[-1.0])], "logprobs has 1 values for 2 sampled tokens"),
        ([node([1, 2], mask=[True])], "mask has 1 values, token_ids has 2"),
        ([node([1], parent=None, logprobs=[{}])], "logprobs is not a list of numbers"),
        ([5], "nodes is not a list of objects"),
    ],
)
def test_a_tree_that_is_none_is_refused(tmp_path: Path, nodes: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=f"line 1: {message}"):
        rows_of([trace(tmp_path / "traces.jsonl", nodes)])


def test_a_long_trunk_with_a_leaf_on_each_node_is_walked_over_once(tmp_path: Path) -> None:
    n = 5_000
    trunk = [node([1], i - 1 if i else None) for i in range(n)]
    leaves = [node([2], n - 1) for _ in range(n)]
    rows = rows_of([trace(tmp_path / "traces.jsonl", trunk + leaves)])
    assert [len(row["token_ids"]) for row in rows] == [n + 1] + [1] * (n - 1)
