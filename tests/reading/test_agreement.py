from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from dumps import Row, jsonl, opened, parquet, plain, read_rows, row

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.request import PlanColumns


def test_columns_are_reported_in_order_with_what_was_chosen(tmp_path: Path) -> None:
    rows = [{"inference_logprobs": [-1.0], "trainer_logprobs": [-2.0], "loss_mask": [True], "score": 1, "step": 3}]
    dump = opened(jsonl(tmp_path / "a.jsonl", rows), group_by=("step", "score"))
    assert list(dump.columns.items()) == [
        ("rollout_log_probs", "inference_logprobs"),
        ("old_log_probs", "trainer_logprobs"),
        ("response_mask", "loss_mask"),
        ("reward", "score"),
        ("step", "step"),
        ("score", "score"),
    ]
    assert 'Using column "trainer_logprobs" as old_log_probs.' in dump.notes
    assert "No mask column: every token counts as valid." not in dump.notes
    assert read_rows(dump)[0]["key"] == (3, 1.0)


def test_a_dump_says_which_columns_it_has(tmp_path: Path) -> None:
    one = parquet(tmp_path / "a.parquet", plain(1, global_steps=1, uid="x"))
    two = parquet(tmp_path / "b.parquet", plain(1, global_steps=1))
    dump = opened([one, two])
    assert dump.has("step")
    assert dump.has("global_steps")
    assert dump.has("response_mask")
    assert not dump.has("uid")
    assert not dump.has("sample_id")
    assert opened(one).has("uid")
    both = parquet(tmp_path / "c.parquet", plain(1, global_steps=1, iteration=2))
    assert not opened(both).has("step")
    assert opened(both, columns={"step": "iteration"}).has("step")


def test_no_mask_and_a_second_mask_are_said(tmp_path: Path) -> None:
    assert "No mask column" in opened(parquet(tmp_path / "a.parquet", [row([-1.0], [-1.0])])).notes[0]
    rows = [row([-1.0], [-1.0], completion_mask=[1], tool_mask=[0])]
    assert any("tool_mask is not applied" in n for n in opened(parquet(tmp_path / "b.parquet", rows)).notes)


def test_every_file_must_have_the_same_policies_and_mask(tmp_path: Path) -> None:
    first = jsonl(tmp_path / "a.jsonl", plain(1))
    other = jsonl(tmp_path / "b.jsonl", [{"rollout_log_probs": [-1.0], "prev_logprobs": [-1.0], "response_mask": [1]}])
    with pytest.raises(DataError, match=r"b.jsonl has prev_logprobs for old_log_probs, .*a.jsonl has old_log_probs"):
        opened([first, other])
    bare = parquet(tmp_path / "c.parquet", [row([-1.0], [-1.0])])
    with pytest.raises(DataError, match=r"c.parquet has no column for response_mask, .*a.jsonl has response_mask"):
        opened([first, bare])
    with pytest.raises(DataError, match=r"a.jsonl has response_mask for response_mask, .*c.parquet has none"):
        opened([bare, first])
    lacking = jsonl(tmp_path / "d.jsonl", [{"rollout_log_probs": [-1.0]}])
    with pytest.raises(DataError, match=r"d.jsonl: There is no column for old_log_probs"):
        opened([first, lacking])


def test_a_reward_that_only_some_files_have_is_left_out(tmp_path: Path) -> None:
    one, two = parquet(tmp_path / "a.parquet", plain(1, reward=1.0)), jsonl(tmp_path / "b.jsonl", plain(1))
    for paths in ([one, two], [two, one]):
        dump = opened(paths)
        assert "reward" not in dump.columns
        assert any("reward is not in every file" in n for n in dump.notes)
        assert [r["reward"] for r in read_rows(dump)] == [None, None]


def test_a_reward_per_token_is_left_out_unless_it_was_asked_for(tmp_path: Path) -> None:
    for write in (jsonl, parquet):
        path = write(tmp_path / "a.dump", plain(2, reward=[0.5, 1.0]))
        dump = opened(path)
        assert "reward" not in dump.columns
        assert "reward is not used" in " ".join(dump.notes)
        with pytest.raises(DataError, match=r"one number per row"):
            opened(path, columns={"reward": "reward"})


def test_a_column_of_another_type_is_named_with_its_type(tmp_path: Path) -> None:
    wrapped = [{"rollout_log_probs": [[-1.0]], "old_log_probs": [[-1.0]]}]
    for write in (jsonl, parquet):
        path = write(tmp_path / "a.dump", wrapped)
        with pytest.raises(
            DataError, match=r"rollout_log_probs holds list<.*list<.*must be a list of floats"
        ) as caught:
            opened(path)
        assert "flat" in caught.value.hint
    with pytest.raises(DataError, match=r"response_mask holds list<.*string.*0/1"):
        opened(jsonl(tmp_path / "b.jsonl", [row([-1.0], [-1.0], ["x"])]))


def test_keys_must_be_scalars_that_every_file_has(tmp_path: Path) -> None:
    one = parquet(tmp_path / "a.parquet", plain(1, uid="x", tags=["t"]))
    with pytest.raises(DataError, match=r"tags holds list"):
        opened(one, group_by=("tags",))
    with pytest.raises(DataError, match=r"old_log_probs holds list"):
        opened(one, group_by=("old_log_probs",))
    with pytest.raises(DataError, match=r"b.parquet: There is no column 'uid'"):
        opened([one, parquet(tmp_path / "b.parquet", plain(1))], group_by=("uid",))


@pytest.mark.parametrize("write", [parquet, jsonl])
def test_a_column_is_taken_that_every_file_has(tmp_path: Path, write: Callable[[Path, list[Row]], str]) -> None:
    """Not the first of its kind that one of them has."""
    both, one = {"worker": 1, "worker_id": 2, "uid": "u", "prompt": "p"}, {"worker_id": 3, "uid": "v"}
    paths = [write(tmp_path / f"{i}.x", plain(2, **more)) for i, more in enumerate((both, one))]
    format = "jsonl" if write is jsonl else "parquet"
    dump = opened(paths, PlanColumns(levels=True, clusters=True), format=format)
    assert dict(dump.roles.levels)["worker"] == "worker_id"
    assert dump.cluster == "uid"
    assert len(read_rows(dump)) == 4


def test_a_column_name_used_twice_is_an_error(tmp_path: Path) -> None:
    lists = pa.array([[-1.0]])
    table = pa.Table.from_arrays([lists, lists, lists], ["rollout_log_probs", "old_log_probs", "old_log_probs"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"Two columns are called old_log_probs"):
        opened(str(tmp_path / "a.parquet"))


def test_a_bad_override_is_a_usage_error_naming_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a.parquet: --map reward=rew: there is no column 'rew'"):
        opened(parquet(tmp_path / "a.parquet", plain(1)), columns={"reward": "rew"})
