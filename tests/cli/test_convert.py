"""`convert`: every row as it is, in canonical columns, and two engines' log-probs of the same tokens joined."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import BF16, parquet, refused, row, run

from tests.layouts.native_rows import NATIVE, agree, expected

STEPS = [f"train_data_step{n}.jsonl" for n in (1, 2, 3, 10)]
ONE_POLICY = NATIVE / "nemo-rl" / "on_policy"


@pytest.mark.parametrize("form", ["parquet", "jsonl", "jsonl.gz"])
def test_a_folder_becomes_canonical_rows_in_the_order_of_its_steps(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in STEPS:
        (folder / name).write_bytes((NATIVE / "nemo-rl" / name).read_bytes())
    output = tmp_path / f"out.{form}"
    ran = run("convert", str(folder), "-o", str(output), "--json")
    assert (ran.status, ran.json["rows"], ran.json["unmatched"]) == (0, 22, None)
    again = tmp_path / "again.parquet"
    assert run("convert", str(output), "-o", str(again)).status == 0
    rows = pq.read_table(again).to_pylist()
    right = [true for name in STEPS for true in expected("nemo-rl/expected.parquet", name)]
    agree(rows, right, "rollout_log_probs", "old_log_probs", "token_ids", "reward", "step", "sample_id")
    assert [row["source_row"] for row in rows] == [true["row"] for true in right]


@pytest.mark.parametrize(
    "folder",
    [
        "miles/cp2",
        "miles/policy_loss_debug",
        "miles/train_data",
        "prime-rl/token_exports",
        "skyrl/2026-08",
        "skyrl/dumped_data",
        "skyrl/router_replay",
        "slime/train_data",
        "slime/v1",
        "verl/batches",
        "verl/numpy",
    ],
)
def test_a_converted_folder_is_analyzed_as_it_was_before(tmp_path: Path, folder: str) -> None:
    converted = str(tmp_path / "d.parquet")
    assert run("convert", str(NATIVE / folder), "-o", converted).status == 0
    before, after = (run("analyze", dump, "--json").json for dump in (str(NATIVE / folder), converted))
    assert after["counts"] == before["counts"]
    was, now = ({k: v for k, v in report["metrics"].items() if v is not None} for report in (before, after))
    assert now == pytest.approx(was, rel=1e-12, abs=1e-15)
    assert after["verdict"] == before["verdict"]


def test_a_current_policy_alone_is_not_written_as_the_old_one(tmp_path: Path) -> None:
    converted = tmp_path / "d.parquet"
    ran = run("convert", str(NATIVE / "prime-rl/token_exports"), "-o", str(converted))
    assert ran.status == 0
    assert "Using column" not in ran.out
    right = [row for row in expected("prime-rl/expected_token_exports.parquet") if "nonfinite" not in row["file"]]
    rows = pq.read_table(converted).to_pylist()
    agree(rows, right, "rollout_log_probs", "current_log_probs", "sample_id")
    assert "old_log_probs" not in rows[0]
    # A name of the current policy's in any dump; who maps it by hand says what it is.
    dump = parquet(tmp_path / "dump.parquet", [{"rollout_log_probs": [-1.0], "trainer_logprobs": [-1.5]}])
    for options, name in (((), "current_log_probs"), (("--map", "old_log_probs=trainer_logprobs"), "old_log_probs")):
        assert run("convert", dump, "-o", str(converted), "--overwrite", *options).status == 0
        assert pq.read_table(converted).to_pylist()[0][name] == [-1.5]


def test_a_folder_without_rows_is_said_to_have_none(tmp_path: Path) -> None:
    ran = run("convert", str(NATIVE / "prime-rl/rollouts/step_7/eval"), "-o", str(tmp_path / "d.parquet"))
    refused(ran, 3, "traces.jsonl: there are no rows to write", "`rlcorr inspect`")


def test_a_plain_dump_gets_canonical_names_and_keeps_its_other_columns(tmp_path: Path) -> None:
    dump = parquet(
        tmp_path / "d.parquet",
        [{"prev_logprobs": [-1.0], "generation_logprobs": [-2.0], "loss_mask": [1], "mine": "x"}],
    )
    ran = run("convert", dump, "-o", str(tmp_path / "o.jsonl"))
    assert ran.status == 0
    assert json.loads((tmp_path / "o.jsonl").read_text()) == {
        "old_log_probs": [-1.0],
        "rollout_log_probs": [-2.0],
        "response_mask": [1],
        "mine": "x",
        "source_file": dump,
        "source_row": 0,
    }


def test_a_file_whose_name_is_no_text_is_named_in_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a\udcff.parquet"
    path.write_bytes(Path(BF16).read_bytes())
    ran = run("convert", str(path), "-o", str(tmp_path / "b.parquet"), "--limit", "2")
    assert ran.status == 0, ran.err
    assert (
        pq.read_table(tmp_path / "b.parquet").column("source_file").to_pylist() == [f"{tmp_path}/a\\udcff.parquet"] * 2
    )


def test_two_engines_of_the_same_tokens_pair_into_a_dump(tmp_path: Path) -> None:
    scored = tmp_path / "scored.jsonl"
    run("convert", str(ONE_POLICY), "-o", str(scored))
    rows = [json.loads(line) for line in scored.read_text().splitlines()][::-1]
    for one_row in rows:
        one_row["rollout_log_probs"] = [x - 0.25 for x in one_row["rollout_log_probs"]]
    scored.write_text("".join(f"{json.dumps(one_row)}\n" for one_row in rows))
    paired = tmp_path / "paired.parquet"
    ran = run("convert", str(ONE_POLICY), "--join", str(scored), "-o", str(paired))
    assert ran.status == 0
    report = run("analyze", str(paired), "--json").json
    assert report["metrics"]["log_ratio_mean"] == pytest.approx(-0.25, abs=1e-12)


def test_tokens_that_another_engine_scored_as_a_prompt_pair_with_them(tmp_path: Path) -> None:
    sampled = {"rollout_log_probs": [-1.0, -2.0], "token_ids": [5, 6], "group_id": "0"}
    scored = {"rollout_log_probs": [-9.0], "token_ids": [8], "group_id": "0"}
    prompt = {"prompt_token_ids": [3, 4, 5, 6], "prompt_log_probs": [None, -0.5, -1.25, -2.25]}
    left, right = (
        parquet(tmp_path / f"{name}.parquet", [row]) for name, row in (("l", sampled), ("r", scored | prompt))
    )
    ran = run("convert", left, "--join", right, "--on", "group_id", "-o", str(tmp_path / "o.parquet"))
    assert ran.status == 0, ran.err
    assert pq.read_table(tmp_path / "o.parquet").column("old_log_probs").to_pylist() == [[-1.25, -2.25]]
    other = parquet(tmp_path / "other.parquet", [scored | prompt | {"prompt_token_ids": [3, 4, 5, 7]}])
    ran = run("convert", left, "--join", other, "--on", "group_id", "-o", str(tmp_path / "p.parquet"))
    assert (ran.status, "holds other tokens" in ran.err) == (3, True), ran.err


def test_rows_without_a_partner_are_left_out_and_counted(tmp_path: Path) -> None:
    ones = [{**row([-1.0], [-2.0]), "sample_id": f"s{i}"} for i in range(4)]
    for one_row in ones:
        del one_row["old_log_probs"]
    left, right = parquet(tmp_path / "l.parquet", ones[:3]), parquet(tmp_path / "r.parquet", ones[2:])
    ran = run("convert", left, "--join", right, "-o", str(tmp_path / "o.parquet"))
    assert ran.status == 0
    assert "Left out, because no row matches: 2 rows of the dump, 1 of the joined one." in " ".join(ran.out.split())
    ran = run("convert", left, "--join", right, "-o", str(tmp_path / "p.parquet"), "--limit", "1")
    assert (ran.status, "No row matches a row of" in ran.err) == (3, True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rollout_log_probs": [-1.0]}, "these are not the same tokens"),
        ({"token_ids": [7, 7, 7]}, "holds other tokens"),
        ({"sample_id": "s1"}, "two rows of sample_id s1"),
    ],
)
def test_what_is_not_of_the_same_tokens_is_not_joined(tmp_path: Path, change: dict[str, object], says: str) -> None:
    ones = [{"rollout_log_probs": [-1.0, -2.0, -3.0], "token_ids": [1, 2, 3], "sample_id": f"s{i}"} for i in range(2)]
    left = parquet(tmp_path / "l.parquet", ones)
    right = parquet(tmp_path / "r.parquet", [{**ones[0], **change}, ones[1]])
    ran = run("convert", left, "--join", right, "-o", str(tmp_path / "o.parquet"))
    assert (ran.status, says in ran.err) == (3, True), ran.err


def test_beside_a_trained_policy_the_joined_one_is_the_third(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [{**row([-1.0], [-2.0]), "sample_id": "a"}])
    other = parquet(tmp_path / "o.parquet", [{"rollout_log_probs": [-1.25], "sample_id": "a"}])
    joined = str(tmp_path / "j.parquet")
    assert run("convert", dump, "--join", other, "-o", joined).status == 0
    (made,) = pq.read_table(joined).to_pylist()
    assert (made["old_log_probs"], made["rescored_log_probs"]) == ([-2.0], [-1.25])
    ran = run("convert", joined, "--join", other, "-o", str(tmp_path / "k.parquet"))
    refused(ran, 2, "The dump holds a trained policy and rescored_log_probs already.", "Leave --join out.")


def test_inspect_shows_a_dump_of_one_policy_and_says_what_it_lacks() -> None:
    ran = run("inspect", str(ONE_POLICY), "--json")
    assert ran.status == 0
    assert "force_on_policy_ratio" in ran.json["notes"][0]
    assert run("inspect", str(ONE_POLICY), "--worst", "3").status == 3
