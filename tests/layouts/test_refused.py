"""Files without log-probs are known for what they are, alone and among others."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.find import find, find_noting
from tests.layouts.native_rows import NATIVE

LOGS = {
    "no-log-probs/areal/rollout/3/101.jsonl": ("AReaL's log", "logprobs and prox_logp"),
    "no-log-probs/trl/completions/completions_00025.parquet": ("TRL's table", "sampling_per_token_logps"),
    "verl/rollout_data/14.jsonl": ("verl's log", "save_to_disk"),
}
MADE = {
    "x.csv": (b"a,b\n1,2\n", "a table of text"),
    "x.safetensors": (b"\x10\x00\x00\x00", "a file of safetensors"),
    "rows.json": (b'[{"a": 1}]', "a JSON array"),
    "rows.txt": (b'[{"a": 1}]', "a JSON array"),
    "document.json": (b'{\n "a": 1\n}', "a JSON document"),
    "report.html": (b"<!doctype html>\n<html>", "a page of HTML"),
    "report.png": (b"\x89PNG\r\n\x1a\n", "a picture"),
    "report.json": (b'{"rlcorr": {"version": "0.1.0"}}', "a report of rlcorr's"),
    "x.pkl": (pickle.dumps({"a": 1}), "a pickle"),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_frameworks_log_is_named_with_what_would_give_log_probs(name: str) -> None:
    what, hint = LOGS[name]
    with pytest.raises(DataError, match=f" is {what}") as caught:
        find([str(NATIVE / name)])
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", LOGS)
def test_a_folder_of_such_logs_alone_is_named_like_one_of_them(name: str) -> None:
    what, hint = LOGS[name]
    folder = NATIVE / Path(name).parts[0] / Path(name).parts[1]
    with pytest.raises(DataError, match=f"holds no dump, but .*; {Path(name).name} is {what}") as caught:
        find([str(folder)])
    assert hint in caught.value.hint


def test_a_folder_of_files_that_are_nothing_known_says_how_to_look_at_one(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.pkl").write_bytes(b"nothing known")
    with pytest.raises(DataError, match=r"holds no dump, but 3 files \(3 .pkl\)\.$") as caught:
        find([str(tmp_path)])
    assert "rlcorr inspect FILE" in caught.value.hint


def test_a_folder_without_any_dump_is_named_for_what_lies_in_it(tmp_path: Path) -> None:
    for folder, n in (("run-1", 1), ("run-2", 2)):
        (tmp_path / folder).mkdir()
        for i in range(n):
            (tmp_path / folder / f"{i}.safetensors").write_bytes(MADE["x.safetensors"][0])
    # What describes the weights is not what the folder is of; a FIFO would be waited for.
    (tmp_path / "run-1" / "a.json").write_bytes(b"{}")
    os.mkfifo(tmp_path / "run-1" / "a.csv")
    weights = "0.safetensors is a file of safetensors, which are weights"
    for place in ("run-1", "run-*"):
        with pytest.raises(DataError, match=f"(holds|matches) no dump, but .*; {weights}") as caught:
            find([str(tmp_path / place)])
        assert "lines that write a dump" in caught.value.hint


@pytest.mark.parametrize("name", MADE)
def test_another_kind_of_file_is_named(tmp_path: Path, name: str) -> None:
    content, what = MADE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f" is {what}"):
        find([str(tmp_path / name)])


def test_json_lines_are_read_under_the_name_of_a_document(tmp_path: Path) -> None:
    row = {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0]}
    (tmp_path / "dump.json").write_text(f"{json.dumps(row)}\n" * 2)
    assert find([str(tmp_path / "dump.json")])[0].format == "jsonl"


def test_a_file_of_nothing_known_is_told_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(DataError, match="is neither Parquet nor JSON lines nor Arrow IPC") as caught:
        find([str(tmp_path / "notes.txt")])
    assert "`rlcorr help dumps`" in caught.value.hint


def test_a_checkpoint_is_no_dump(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    with pytest.raises(DataError, match="a file of torch, and no framework's dump"):
        find([str(tmp_path / "model.pt")])


def test_an_array_of_numpys_is_no_dump(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2))
    np.savez(tmp_path / "x.npz", a=np.zeros(2))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(DataError, match="an archive of NumPy's"):
            find([str(tmp_path / name)])


def test_beside_a_dump_they_are_counted_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "14.jsonl").write_bytes((NATIVE / "verl/rollout_data/14.jsonl").read_bytes())
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    dump = tmp_path / "dump.parquet"
    pq.write_table(pa.table({"rollout_log_probs": [[-1.0]], "old_log_probs": [[-1.0]]}), dump)
    sources, notes = find_noting([str(tmp_path)])
    assert [source.path for source in sources] == [str(dump)]
    assert notes == (f"2 files (1 .jsonl, 1 .pt) in {tmp_path} are not read.",)


@pytest.mark.parametrize("name", [name for name in LOGS if name.endswith(".jsonl")])
def test_rows_with_log_probs_beside_a_logs_keys_are_read(tmp_path: Path, name: str) -> None:
    row = json.loads((NATIVE / name).read_text().splitlines()[0])
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({**row, "rollout_log_probs": [-1.0], "old_log_probs": [-1.0]}))
    assert find([str(path)])[0].format == "jsonl"
