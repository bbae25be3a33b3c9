"""Columns of every type, in every part that a column may play: they work, or are refused with two lines."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columns_of_every_type import IN_PARQUET, LISTS
from few import few
from running import BF16, analyzed, parquet, refused, row, run

from rlcorr_cli.api import analyze
from rlcorr_cli.reading.arrow_values import holds_key
from rlcorr_cli.reading.values import base64, plain_values, texts

FILTER = ("--rs", "ratio.seq_mean:0.995,1.005")
"""Keeps the first row and the last."""


def dump(path: Path, columns: Mapping[str, pa.Array], rollout: Any = None) -> str:
    rollout = rollout or [[-0.5, -1.0], [-0.5, -2.0], [-0.1, -0.2]]
    old = [[-0.501, -1.0], [-0.1, -1.0], [-0.1, -0.2]]
    policies = {"rollout_log_probs": pa.array(rollout), "old_log_probs": pa.array(old)}
    pq.write_table(pa.table({**policies, **columns}), path)
    return str(path)


@pytest.fixture
def all_types(tmp_path: Path) -> str:
    return dump(tmp_path / "all.parquet", IN_PARQUET)


def test_every_type_comes_through_filter_as_it_was(tmp_path: Path, all_types: str) -> None:
    kept, dropped = tmp_path / "kept.parquet", tmp_path / "dropped.parquet"
    assert run("filter", all_types, *FILTER, "-o", str(kept), "--rejected-output", str(dropped)).status == 0
    source = pq.read_table(all_types)
    for path, rows in ((kept, (0, 2)), (dropped, (1,))):
        written = pq.read_table(path)
        for name in IN_PARQUET:
            assert written.schema.field(name).type == source.schema.field(name).type, name
            values = plain_values(source.column(name).combine_chunks())
            assert str(plain_values(written.column(name).combine_chunks())) == str([values[i] for i in rows]), name


def test_every_type_is_written_as_json(tmp_path: Path, all_types: str) -> None:
    out = tmp_path / "kept.jsonl"
    names = [name for name in IN_PARQUET if "NaN" not in name]
    assert run("filter", all_types, *FILTER, "-o", str(out)).status == 0
    first, last = (json.loads(line) for line in out.read_text().splitlines())
    for name in names:
        values = plain_values(pq.read_table(all_types).column(name).combine_chunks(), base64)
        assert [first[name], last[name]] == json.loads(json.dumps([values[0], values[2]])), name


def test_every_type_is_shown_of_one_row(all_types: str) -> None:
    ran = run("inspect", all_types, "--row", "0")
    assert ran.status == 0, ran.err
    assert "UUID 00000000-0000-0000-0000-000000000001" in " ".join(ran.out.split())
    assert run("inspect", all_types, "--row", "2", "--json").json["rows"][0]["facts"]["not UTF-8"] == "\\xfe"


def test_rows_of_every_type_are_quarantined_as_they_were(tmp_path: Path) -> None:
    bad, out = [[-0.5, -1.0], [-0.5, float("nan")], [-0.1, -0.2]], tmp_path / "bad.parquet"
    source = dump(tmp_path / "all.parquet", IN_PARQUET, bad)
    assert run("inspect", source, "--quarantine", str(out)).status == 0
    assert pq.read_table(out).schema.types[:-1] == pq.read_table(source).schema.types


OFTEN = ("string", "not UTF-8", "int64", "double", "timestamp[us] in UTC", "UUID")
"""Types that are tried at each change."""
KEYS = [name for name, column in IN_PARQUET.items() if holds_key(column.type)]


@pytest.mark.parametrize("name", few(KEYS, OFTEN))
def test_a_step_of_any_type_groups_rows(tmp_path: Path, name: str) -> None:
    source = dump(tmp_path / "a.parquet", {"step": IN_PARQUET[name]})
    groups = run("analyze", source, "--group-by", "step", "--json").json["groups"]
    keys = [str(value) for value in plain_values(IN_PARQUET[name])]
    assert len(groups) == len({"None" if key == "nan" else key for key in keys})
    assert run("check", source, "--group-by", "step").status in (0, 1)


def test_groups_of_every_type_are_in_every_report(tmp_path: Path, all_types: str) -> None:
    columns = [part for name in KEYS for part in ("--group-by", name)]
    for form in ("csv", "html", "md", "json"):
        ran = run("analyze", all_types, *columns, "-o", str(tmp_path / f"report.{form}"))
        assert ran.status == 0, ran.err
    assert "10183-09-21" in (tmp_path / "report.csv").read_text()


NESTED = [name for name in IN_PARQUET if name not in KEYS]


def test_a_group_key_of_lists_or_objects_is_refused(tmp_path: Path) -> None:
    for name in NESTED:
        source = dump(tmp_path / "a.parquet", {"key": IN_PARQUET[name]})
        refused(run("analyze", source, "--group-by", "key"), 3, "a.parquet: key holds", "one value per row")


def test_a_number_that_may_be_the_policys_version_is_said_to_be_unused_with_what_to_type(tmp_path: Path) -> None:
    def told(*names: str, columns: tuple[str, ...] = ()) -> list[str]:
        rows = [row([-1.0, -0.5], [-1.0, -0.4], **dict.fromkeys(names, 3), **dict.fromkeys(columns, "v")) for _ in "ab"]
        source = parquet(tmp_path / "a.parquet", rows)
        return [text for text in run("analyze", source, "--json").json["notes"] if "not used" in text]

    for name in ("actor_ver", "weightsVersion", "ckpt_step"):
        (note,) = told("step", name)
        assert note.startswith(f'Column "{name}" is not used.')
        assert f"--map policy_version={name}" in note
        source = str(tmp_path / "a.parquet")
        assert run("analyze", source, "--json", "--map", f"policy_version={name}").status == 0
    assert told("step", "policy_version", "actor_ver") == told("prompt_version", "global_step") == []
    assert told("step", columns=("model_version_name", "actor_ver")) == []


def test_a_step_of_lists_or_objects_is_not_used_and_said(tmp_path: Path) -> None:
    for name in NESTED:
        source = dump(tmp_path / "a.parquet", {"step": IN_PARQUET[name]})
        (note,) = [text for text in run("analyze", source, "--json").json["notes"] if "step" in text]
        assert note.startswith("step is not used as step: it holds ")


@pytest.mark.parametrize("name", few(IN_PARQUET, OFTEN))
def test_an_id_of_any_type_tells_rows_apart_and_finds_them(tmp_path: Path, name: str) -> None:
    source = dump(tmp_path / "a.parquet", {"sample_id": IN_PARQUET[name]})
    ids = texts(pq.read_table(source).column("sample_id").combine_chunks()).to_pylist()
    for number, text in enumerate(ids):
        if text is not None and ids.count(text) == 1:
            (found,) = run("inspect", source, "--row", text, "--json").json["rows"]
            assert found["place"].endswith(f"row {number} (0-based)")
    if ids[0] is not None:
        twice = pa.concat_arrays([IN_PARQUET[name][:1]] * 3)
        refused(run("analyze", dump(tmp_path / "b.parquet", {"sample_id": twice})), 3, "is there twice")


def test_files_that_differ_in_their_ids_are_said(tmp_path: Path) -> None:
    sources = [
        dump(tmp_path / "a.parquet", {"sample_id": pa.array(["a", "b", "c"])}),
        dump(tmp_path / "b.parquet", {"other": pa.array(["a", "b", "c"])}),
    ]
    notes = run("analyze", *sources, "--json").json["notes"]
    assert any(note.startswith("sample_id is not in every file") for note in notes)


@pytest.mark.parametrize("name", IN_PARQUET)
@pytest.mark.parametrize("role", few(["response_mask", "reward", "advantages"], ["response_mask"]))
def test_a_mask_reward_or_advantage_of_any_type_works_or_is_said(tmp_path: Path, role: str, name: str) -> None:
    source = dump(tmp_path / "a.parquet", {role: IN_PARQUET[name]})
    plan = tmp_path / "plan.json"
    gate = {"statistic": "ratio", "scope": "seq_mean", "high": 1.5, "gate": "positive"}
    plan.write_text(json.dumps({"name": "gated", "rejections": [gate]}))
    more = ("--plan", str(plan)) if role == "advantages" else ()
    ran = run("analyze", source, *more)
    if ran.status:
        refused(ran, 3, "a.parquet", role)
    elif role == "reward":
        report = run("analyze", source, "--json").json
        assert "reward" in report["inputs"][0]["columns"] or any("reward" in note for note in report["notes"])


@pytest.mark.parametrize("of", [*LISTS, lambda item: pa.list_(item, 2)])
@pytest.mark.parametrize(("item", "flag"), [(pa.int64(), int), (pa.bool_(), bool), (pa.float16(), np.float16)])
def test_a_mask_of_any_layout_is_written_in_its_own(tmp_path: Path, of: Any, item: pa.DataType, flag: Any) -> None:
    mask = pa.array([[flag(value) for value in row] for row in ([1, 0], [1, 1], [0, 1])], of(item))
    source, out = dump(tmp_path / "a.parquet", {"response_mask": mask}), tmp_path / "out.parquet"
    ran = run("filter", source, *FILTER, "--rejected", "keep", "-o", str(out))
    assert ran.status == 0, ran.err
    written = pq.read_table(out).column("response_mask").combine_chunks()
    assert written.type == mask.type
    assert written.to_pylist() == [[1, 0], [0, 0], [0, 1]]


def test_numbers_that_json_has_not_become_null_are_counted_and_read_back(tmp_path: Path) -> None:
    masked = pa.array([[-0.5, float("nan")], [-0.5, -1.0], [float("-inf"), -0.25]])
    columns = {
        "response_mask": pa.array([[1, 0], [1, 1], [0, 1]]),
        "reward": pa.array([1.0, float("nan"), 2.0]),
        "say": pa.array(["NaN", "Infinity", "x"]),
    }
    source, out = dump(tmp_path / "a.parquet", columns, masked), tmp_path / "out.jsonl"
    plan = ("--is", "token:,2")
    ran = run("filter", source, *plan, "-o", str(out), "--json")
    assert "Numbers that are NaN or infinite, which JSON lacks, are written as null: 3." in ran.json["notes"]
    rows = [json.loads(line, parse_constant=pytest.fail) for line in out.read_text().splitlines()]
    assert [row["rollout_log_probs"] for row in rows] == [[-0.5, None], [-0.5, -1.0], [None, -0.25]]
    assert [(row["reward"], row["say"]) for row in rows] == [(1.0, "NaN"), (None, "Infinity"), (2.0, "x")]
    assert run("analyze", str(out), "--json").json["metrics"] == run("analyze", source, "--json").json["metrics"]
    again = tmp_path / "again.jsonl"
    out.write_text(out.read_text().replace('"rollout_is_weights"', '"w"').replace("null", "NaN"))
    for name in ("rollout_is_seq_weight", "response_mask_before", "rlcorr_kept", "rlcorr_rejected_by"):
        out.write_text(out.read_text().replace(f'"{name}"', f'"old_{name}"'))
    assert run("filter", str(out), *plan, "-o", str(again)).status == 0
    assert [json.loads(line, parse_constant=pytest.fail)["reward"] for line in again.read_text().splitlines()] == [
        1,
        None,
        2,
    ]


def test_texts_that_are_not_utf8_are_escaped_in_json_and_counted(tmp_path: Path) -> None:
    source = dump(tmp_path / "a.parquet", {"prompt": IN_PARQUET["not UTF-8"]})
    ran = run("filter", source, "--is", "token", "-o", str(tmp_path / "out.jsonl"), "--json")
    (note,) = [note for note in ran.json["notes"] if "UTF-8" in note]
    assert note == "Strings that are not UTF-8 are written with their other bytes as \\x..: 2; .parquet keeps them."


def test_a_row_with_values_that_are_not_finite_is_shown(tmp_path: Path) -> None:
    columns = {
        "reward": pa.array([float("nan"), float("inf"), 1.0]),
        "response_mask": pa.array([[1, 0], [1, 1], [1, 1]]),
    }
    source = dump(tmp_path / "a.parquet", columns, [[-0.5, float("nan")], [-0.5, float("nan")], [-0.1, -0.2]])
    for number, shown in (("0", "reward nan"), ("1", "reward inf")):
        ran = run("inspect", source, "--row", number)
        assert ran.status == 0, ran.err
        assert shown in ran.out
        (found,) = run("inspect", source, "--row", number, "--json").json["rows"]
        assert found["log_probs"]["rollout_log_probs"][1] == "nan"


def test_rewards_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    rewards = pa.array([float("nan"), float("-inf"), 1.0])
    report = run("analyze", dump(tmp_path / "a.parquet", {"reward": rewards}), "--json").json
    assert report["metrics"]["reward_mean"] == 1.0
    note = "2 of 3 sequences have no finite reward (null, NaN or infinite): reward_mean is of the others."
    assert note in report["notes"]
    large = run("analyze", dump(tmp_path / "b.parquet", {"reward": pa.array([1e308] * 3)}), "--json").json
    assert large["metrics"]["reward_mean"] is None
    assert "The rewards' sum is too large for float64: reward_mean is null." in large["notes"]
    assert not any("reward" in note for note in run("analyze", BF16, "--json").json["notes"])


def test_nan_and_null_are_two_groups(tmp_path: Path) -> None:
    """Whatever adds them up: parts, too, whose NaNs are not equal."""
    values = [math.nan, None, 1.5, math.inf, math.nan]
    parts: list[str] = []
    for i in range(2):
        path = parquet(tmp_path / f"{i}.parquet", [row(sample_id=10 * i + j, score=v) for j, v in enumerate(values)])
        parts.append(str(tmp_path / f"{i}.rlcorr"))
        assert run("analyze", path, "--group-by", "score", "-o", parts[-1]).status == 0
    for report in (run("analyze", *parts, "--json").json, analyzed(str(tmp_path / "*.parquet"), "--group-by", "score")):
        sizes = [(group["key"]["score"], group["counts"]["rows"]) for group in report["groups"]]
        assert sizes == [(1.5, 2), ("inf", 2), ("NaN", 4), (None, 2)]
    table = analyze(str(tmp_path / "*.parquet"), group_by="score").to_polars()
    assert str(table["score"].to_list()) == "[1.5, inf, nan, None]"
