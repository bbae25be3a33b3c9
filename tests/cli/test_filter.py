"""`rlcorr filter` from the command line: what is written, and that nothing else changes."""

import datetime
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from few import few
from running import BF16, STEPS, analyzed, jsonl, parquet, refused, row, run, run_process, warm as warm

from rlcorr_cli.reading.rows_out import ADDED

GOLDEN = Path(__file__).parent.parent / "golden"
CASES: dict[str, Any] = json.loads((GOLDEN / "expected_metrics.json").read_text())
JSONL = BF16.replace(".parquet", ".jsonl")


def filtered(*args: str) -> dict[str, Any]:
    return run("filter", *args, "--json").json


def output(path: Path, *args: str) -> list[dict[str, Any]]:
    """Rows written to `path` by `rlcorr filter ARGS`."""
    ran = run("filter", *args, "-o", str(path))
    assert ran.status == 0, ran.err
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("case", few(CASES, list(CASES)[::5]))
def test_golden_weights_and_masks(case: str, tmp_path: Path) -> None:
    expected = {
        one["sample_id"]: one
        for one in pq.read_table(GOLDEN / "expected_tokens.parquet").to_pylist()
        if one["case"] == case
    }
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps(CASES[case]["config"]))
    given = [str(GOLDEN / "input.parquet"), "--profile", case.split("/")[0], "--plan", str(plan)]
    ran = run("filter", *given, "--rejected", "keep", "-o", str(tmp_path / "out.parquet"))
    config = CASES[case]["config"]
    if config.get("rollout_is", 0) is None and config.get("rollout_rs", 0) is None:
        refused(ran, 2, "corrects nothing")
        return
    assert ran.status == 0, ran.err
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert len(rows) == len(expected) == 64
    for one in rows:
        wanted = expected[one["sample_id"]]
        assert one["response_mask"] == wanted["response_mask"]
        if wanted["weights"] is None:
            assert "rollout_is_weights" not in one
        else:
            assert one["rollout_is_weights"] == pytest.approx(wanted["weights"], rel=1e-6, abs=1e-12)


def test_every_other_column_comes_through(tmp_path: Path) -> None:
    logp = pa.array([[-0.5, -1.0], [-0.1, -0.2], [-2.0, -3.0]], pa.list_(pa.float32()))
    table = pa.table(
        {
            "nested": pa.array([{"a": [1, None], "b": {"c": "x"}}, None, {"a": [], "b": {"c": None}}]),
            "rollout_log_probs": logp,
            "word": pa.array(["a", "b", "a"]).dictionary_encode(),
            "when": pa.array([1, 2, None], pa.timestamp("ns", "Europe/Zurich")),
            "old_log_probs": logp.cast(pa.large_list(pa.float64())),
            "bytes": pa.array([b"\x00\xff", None, b""]),
            "response_mask": pa.array([[1, 1], [0, 1], [1, 0]], pa.list_(pa.int32(), 2)),
            "price": pa.array(["1.10", None, "3.33"]).cast(pa.decimal128(5, 2)),
            "id": pa.array([b"0123456789abcdef"] * 3, pa.uuid()),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    ).replace_schema_metadata({"huggingface": '{"info": {}}', "mine": "kept"})
    pq.write_table(table, tmp_path / "in.parquet")
    source = pq.read_table(tmp_path / "in.parquet")
    ran = run("filter", str(tmp_path / "in.parquet"), "--preset", "token_is", "-o", str(tmp_path / "out.parquet"))
    assert ran.status == 0, ran.err
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == [*source.column_names, *ADDED]
    for name in source.column_names:
        assert found.schema.field(name) == source.schema.field(name)
        assert found.column(name).combine_chunks().equals(source.column(name).combine_chunks())
    metadata = found.schema.metadata
    assert (metadata[b"huggingface"], metadata[b"mine"]) == (b'{"info": {}}', b"kept")
    written = json.loads(pq.read_metadata(tmp_path / "out.parquet").metadata[b"rlcorr"])
    assert json.loads(pl.read_parquet_metadata(tmp_path / "out.parquet")["rlcorr"]) == written
    assert written["plan"]["name"] == "decoupled_token_is"
    assert written["rows_in"] == written["rows_out"] == 3


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_json_lines_keep_their_keys_and_values(suffix: str, tmp_path: Path) -> None:
    rows = [
        row(response_mask=[1, 0], big=2**70, deep={"x": [1, {"y": None}], "1": 0.1}, text="naïve \ud800 ☃", z=[]),
        row([-0.5], [-0.25], response_mask=[True], other="only here"),
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps(one) for one in rows) + "\n")
    out = tmp_path / f"out{suffix}"
    assert run("filter", str(source), "--preset", "token_is", "-o", str(out)).status == 0
    raw = pa.OSFile(str(out)).read()
    if suffix == ".jsonl.gz":
        raw = gzip.decompress(raw)
    elif suffix == ".jsonl.zst":
        raw = pa.CompressedInputStream(pa.BufferReader(raw), "zstd").read()
    found = [json.loads(line) for line in raw.splitlines()]
    for before, after in zip(rows, found, strict=True):
        assert list(after)[: len(before)] == list(before)
        assert {name: after[name] for name in before} == before
    assert found[0]["rollout_is_weights"] == pytest.approx([math.exp(0.25), 0.0])
    assert found[1]["response_mask"][0] is True


def test_added_columns_have_their_types_whatever_the_first_json_lines_hold(tmp_path: Path) -> None:
    """No row of the first batch is rejected, so its lists of what rejects are all empty."""
    dump = jsonl(tmp_path / "in.jsonl", [row()] * 20 + [row(old=(-0.25, -9.0))] * 20)
    given = ("--is", "token", "--rs", "ratio.token:0.1,10", "--batch-tokens", "20")
    rows = output(tmp_path / "out.parquet", dump, *given)
    assert [one["rlcorr_rejected_by"] for one in rows] == [[]] * 20 + [["token_ratio"]] * 20
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert schema.field("rlcorr_rejected_by").type == pa.list_(pa.string())
    assert schema.field("rollout_is_weights").type == pa.list_(pa.float32())


def test_parquet_and_json_lines_agree_whatever_the_batch_and_threads(tmp_path: Path) -> None:
    plan = ["--is", "sequence:,1.5", "--normalize", "batch", "--rs", "ratio.token:0.9,1.1"]
    wanted = output(tmp_path / "a.parquet", BF16, *plan)
    assert any(0 in one["response_mask"] for one in wanted)
    for i, given in enumerate(([BF16, "--batch-tokens", "64"], [BF16, "--engine", "threads", "--workers", "1"])):
        assert output(tmp_path / f"{i}.parquet", *given, *plan) == wanted
    twin = output(tmp_path / "twin.parquet", JSONL, "--batch-tokens", "500", *plan)
    assert len(twin[0]) > 10
    for one, other in zip(twin, wanted, strict=True):
        assert one.pop("rollout_is_seq_weight") == pytest.approx(other["rollout_is_seq_weight"], rel=1e-12)
        assert one == {name: other[name] for name in one}
    assert run("filter", BF16, *plan, "-o", str(tmp_path / "b.jsonl")).status == 0
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert lines == wanted


def test_analysing_the_output_gives_the_kept_metrics(tmp_path: Path) -> None:
    plan = ["--rs", "ratio.seq_mean:0.995,1.005", "--rs", "ratio.token:0.9,1.1"]
    report = filtered(BF16, *plan, "-o", str(tmp_path / "out.parquet"))
    again = analyzed(str(tmp_path / "out.parquet"))
    names = [name for name in again["metrics"] if f"kept_{name}" in report["metrics"]]
    assert len(names) > 30
    kept = {name: report["metrics"][f"kept_{name}"] for name in names}
    assert {name: again["metrics"][name] for name in names} == pytest.approx(kept, rel=1e-12, nan_ok=True)
    assert again["counts"]["tokens"] == report["metrics"]["kept_tokens"] < report["counts"]["tokens"]


def test_rows_in_are_rows_out_and_rows_dropped(tmp_path: Path) -> None:
    apart = tmp_path / "rejected.parquet"
    out = filtered(BF16, "--preset", "seq_is_rs", "-o", str(tmp_path / "out.parquet"), "--rejected-output", str(apart))[
        "output"
    ]
    left, gone = (pq.read_table(path) for path in (tmp_path / "out.parquet", apart))
    assert (out["rows_in"], out["rows_out"], out["rows_dropped"]) == (64, left.num_rows, gone.num_rows)
    assert out["rejected_rows"] == {"sequence": gone.num_rows} != {"sequence": 0}
    assert set(left["rlcorr_kept"].to_pylist()) == {1.0}
    assert all(names == ["sequence"] for names in gone["rlcorr_rejected_by"].to_pylist())
    assert all(sum(mask) == 0 for mask in gone["response_mask"].to_pylist())
    assert set(gone["rollout_is_seq_weight"].to_pylist()) == {0.0}
    ids = pq.read_table(BF16)["sample_id"].to_pylist()
    assert sorted(left["sample_id"].to_pylist() + gone["sample_id"].to_pylist()) == sorted(ids)


@pytest.mark.parametrize(
    "engine",
    [("--workers", "1"), pytest.param(("--engine", "processes", "--workers", "2"), marks=pytest.mark.full)],
)
def test_steps_that_lose_all_rows_are_named(engine: tuple[str, ...], tmp_path: Path) -> None:
    far = {1: -0.1, 2: -0.1, 4: -0.1}
    rows = [row(step=step, old=(-0.5 + far.get(step, 0.0), -1.0)) for step in range(6) for _ in range(3)]
    rows += [row(step=4, old=(-0.5, -1.0))]
    dump, plan = parquet(tmp_path / "d.parquet", rows), ("--rs", "ratio.seq_sum:0.99,1.01", "--force")
    found = filtered(dump, *plan, "-o", str(tmp_path / "o.parquet"), *engine)
    assert found["output"]["empty_steps"] == [1, 2]
    said = "No row is left of steps 1 and 2: 2 of 6 steps."
    assert run("filter", dump, *plan, "--dry-run", *engine).out.endswith(f"  {said}\n")
    assert "No row" not in run("filter", dump, *plan, "--dry-run", "--rejected", "keep", *engine).out


def test_rejected_keep_keeps_rows_in_order(tmp_path: Path) -> None:
    rows = output(tmp_path / "out.parquet", BF16, "--preset", "geo_rs", "--rejected", "keep")
    assert [one["sample_id"] for one in rows] == pq.read_table(BF16)["sample_id"].to_pylist()
    assert {tuple(one["rlcorr_rejected_by"]) for one in rows} == {(), ("geometric",)}


@pytest.mark.parametrize("batch_tokens", ["1", "100"])
def test_a_row_without_valid_tokens_is_dropped_and_has_no_share(batch_tokens: str, tmp_path: Path) -> None:
    source = parquet(tmp_path / "in.parquet", [row(response_mask=[0, 0]), row(response_mask=[1, 1])])
    given = [source, "--preset", "token_is", "--batch-tokens", batch_tokens]
    assert len(output(tmp_path / "a.parquet", *given)) == 1
    both = output(tmp_path / "b.parquet", *given, "--rejected", "keep")
    assert [one["rlcorr_kept"] for one in both] == [None, 1.0]
    assert both[0]["rollout_is_weights"] == [0.0, 0.0]


def test_a_dump_without_a_mask_gets_one(tmp_path: Path) -> None:
    source = parquet(tmp_path / "in.parquet", [row([-0.5, -1.0], [-0.5, -3.0])])
    (one,) = output(tmp_path / "out.parquet", source, "--rs", "ratio.token:0.5,2")
    assert one["response_mask"] == [1, 0]
    assert one["response_mask_before"] == [1, 1]
    assert (one["rlcorr_kept"], one["rlcorr_rejected_by"]) == (0.5, ["token_ratio"])


def test_normalised_weights_have_mean_one_in_every_batch(tmp_path: Path) -> None:
    rows = output(tmp_path / "out.parquet", STEPS, "--preset", "token_is", "--normalize", "batch")
    for step in range(5):
        weights = [w for one in rows if one["step"] == step for w in one["rollout_is_weights"]]
        assert np.mean(weights) == pytest.approx(1, rel=1e-6)
    whole = output(tmp_path / "b.parquet", STEPS, "--preset", "token_is", "--normalize", "batch", "--batch-by", "none")
    assert np.mean([w for one in whole for w in one["rollout_is_weights"]]) == pytest.approx(1, rel=1e-6)
    assert [w for one in whole for w in one["rollout_is_weights"]] != [
        w for one in rows for w in one["rollout_is_weights"]
    ]


def test_weights_are_not_changed_by_a_rejection(tmp_path: Path) -> None:
    alone = output(tmp_path / "a.parquet", BF16, "--preset", "token_is")
    both = output(tmp_path / "b.parquet", BF16, "--preset", "token_is", "--rs", "ratio.token:0.9,1.1")
    assert [one["rollout_is_weights"] for one in alone] == [one["rollout_is_weights"] for one in both]
    assert any(0 < one["rlcorr_kept"] < 1 for one in both)


def test_a_directory_is_cut_into_parts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("filter", STEPS, "--preset", "token_is", "-o", str(out), "--rows-per-file", "100").status == 0
    parts = sorted(out.iterdir())
    assert [(part.name, pq.read_metadata(part).num_rows) for part in parts] == [
        (f"part-{i:05d}.parquet", n) for i, n in enumerate((100, 100, 100, 20))
    ]
    plans = [json.loads(pq.read_metadata(part).metadata[b"rlcorr"])["plan"]["name"] for part in parts]
    assert plans == ["decoupled_token_is"] * 4
    single = output(tmp_path / "one.parquet", STEPS, "--preset", "token_is")
    assert [one for part in parts for one in pq.read_table(part).to_pylist()] == single


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("engine", [(), ("--engine", "processes", "--workers", "1")], ids=["threads", "processes"])
def test_parts_of_json_lines_have_the_columns_of_all_first_rows(engine: tuple[str, ...], tmp_path: Path) -> None:
    dump = jsonl(
        tmp_path / "d.jsonl", [row(reward=1 if i < 4 else 1.5, **({"note": "a"} if i < 2 else {})) for i in range(7)]
    )
    rows = output(tmp_path / "one.parquet", dump, "--preset", "token_is")
    given = ("--preset", "token_is", "--rows-per-file", "3", "-o", str(tmp_path / "out"))
    ran = run("filter", dump, *given, *engine)
    assert ran.status == 0, ran.err
    parts = [pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert [len(part) for part in parts] == [3, 3, 1]
    whole = pq.read_table(tmp_path / "one.parquet").schema
    assert all(part.schema.remove_metadata().equals(whole.remove_metadata()) for part in parts)
    assert [one for part in parts for one in part.to_pylist()] == rows


def test_several_files_make_one_output(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    for i in range(3):
        pq.write_table(table.slice(i * 22, 22), tmp_path / f"in{i}.parquet", row_group_size=5)
    rows = output(tmp_path / "out.parquet", str(tmp_path / "in*.parquet"), "--preset", "token_is")
    assert rows == output(tmp_path / "one.parquet", BF16, "--preset", "token_is")


@pytest.mark.full
@pytest.mark.parametrize("command", [("filter", "--preset", "seq_is_rs"), ("convert",)], ids=lambda command: command[0])
def test_output_opens_elsewhere(command: tuple[str, ...], tmp_path: Path) -> None:
    datasets, duckdb = pytest.importorskip("datasets"), pytest.importorskip("duckdb")
    pandas, out = pytest.importorskip("pandas"), tmp_path / "out.parquet"
    assert run(command[0], STEPS, *command[1:], "-o", str(out)).status == 0
    assert {"BYTE_STREAM_SPLIT"} < {encoding for of_column in encodings(out).values() for encoding in of_column}
    rows = pq.read_table(out).to_pylist()
    found = pandas.read_parquet(out)
    assert list(found) == list(rows[0])
    loaded = datasets.load_dataset("parquet", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    names = [name for name in rows[0] if name.endswith(("log_probs", "weights", "mask"))]
    assert len(names) >= 3
    for name in names:
        values = [row[name] for row in rows]
        assert pl.read_parquet(out)[name].to_list() == values
        assert [list(row) for row in found[name]] == values
        assert [row for (row,) in duckdb.sql(f"select {name} from '{out}'").fetchall()] == values
        assert loaded[name][:] == values


def encodings(path: Path) -> dict[str, set[str]]:
    """Column of a Parquet file -> how its first values are encoded."""
    group = pq.read_metadata(path).row_group(0)
    return {(column := group.column(i)).path_in_schema: {*column.encodings} for i in range(group.num_columns)}


def test_columns_of_a_file_are_encoded_by_what_they_hold(tmp_path: Path) -> None:
    given = {"rollout_log_probs": [-1.5, -0.25], "old_log_probs": [-1.25, -0.5], "reward": 0.5, "token_ids": [3, 4]}
    table = pa.Table.from_pylist([given])
    names = ["entropies", "halves", "twice", "twice", "flat.list.element", "flat", "nested"]
    columns = [[[0.5, None]], pa.array([[0.5]], pa.list_(pa.float16())), [[0.5]], [["a"]], ["b"], [[0.5]], [[[0.5]]]]
    for name, column in zip(names, columns, strict=True):
        table = table.append_column(name, pa.array(column) if isinstance(column, list) else column)
    pq.write_table(table, tmp_path / "d.parquet")
    assert (
        run("filter", str(tmp_path / "d.parquet"), "--preset", "token_is", "-o", str(tmp_path / "o.parquet")).status
        == 0
    )
    found = encodings(tmp_path / "o.parquet")
    split = {name.partition(".")[0] for name, of_column in found.items() if "BYTE_STREAM_SPLIT" in of_column}
    assert split == {"rollout_log_probs", "old_log_probs", "entropies", "nested", "rollout_is_weights"}
    plain = {name.partition(".")[0] for name, of_column in found.items() if "RLE_DICTIONARY" not in of_column} - split
    assert plain == {"response_mask", "response_mask_before"}
    group = pq.read_metadata(tmp_path / "o.parquet").row_group(0)
    counted = {column.path_in_schema for i in range(group.num_columns) if (column := group.column(i)).is_stats_set}
    assert counted == {"reward", "flat.list.element", "rollout_is_seq_weight", "rlcorr_kept"}
    written = pq.ParquetFile(tmp_path / "o.parquet").read()
    assert written.select(range(4, 11)).equals(table.select(range(4, 11)))


@pytest.mark.parametrize("source", [STEPS, JSONL])
def test_an_arrow_file_is_what_datasets_reads(source: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = output(tmp_path / "out.parquet", source, "--preset", "seq_is_rs")
    out = tmp_path / "out.arrow"
    assert run("filter", source, "--preset", "seq_is_rs", "-o", str(out)).status == 0
    assert datasets.Dataset.from_file(str(out)).to_list() == rows
    loaded = datasets.load_dataset("arrow", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.to_list() == rows
    assert run("analyze", str(out), "--json").json["counts"]["rows"] == len(rows)


@pytest.mark.full
def test_a_directory_hf_is_what_load_from_disk_opens(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = output(tmp_path / "out.parquet", STEPS, "--preset", "seq_is_rs")
    out = tmp_path / "kept.hf"
    made = ("filter", STEPS, "--preset", "seq_is_rs", "--rows-per-file", "100", "-o", str(out))
    assert run(*made).status == 0
    assert sorted(path.name for path in out.glob("*.arrow")) == ["part-00000.arrow", "part-00001.arrow"]
    assert datasets.load_from_disk(str(out)).to_list() == rows
    assert run("analyze", str(out), "--json").json["counts"]["rows"] == len(rows)
    refused(run(*made), 4, "kept.hf exists")
    assert run(*made, "--overwrite", "--engine", "processes").status == 0
    assert datasets.load_from_disk(str(out)).to_list() == rows
    (out / "state.json").write_text("{}")
    refused(run(*made, "--overwrite"), 4, "state.json")


def test_a_suggested_threshold_keeps_what_it_says(tmp_path: Path) -> None:
    text = run("filter", BF16, "--preset", "geo_rs", "--dry-run").out
    (flag,) = (line.split()[1] for line in text.splitlines() if line.strip().startswith("--rs"))
    again = run("filter", BF16, "--preset", "geo_rs", "--rs", flag, "-o", str(tmp_path / "o.parquet"), "--json").json
    assert again["output"]["rows_out"] / 64 == pytest.approx(0.9, abs=1.5 / 64)
    assert again["output"]["rows_out"] / 64 >= 0.9
    assert "--rs" not in run("filter", BF16, "--preset", "geo_rs", "--rs", flag, "--dry-run").out


@pytest.mark.parametrize("suffix", few([".parquet", ".jsonl"], [".jsonl"]))
def test_rows_drawn_in_pieces_are_those_drawn_at_once(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(name: str) -> list[dict[str, Any]]:
        given = (JSONL if suffix == ".jsonl" else BF16, "--preset", "seq_is_rs", "--resample", "1000")
        ran = run("filter", *given, "-o", str(tmp_path / (name + suffix)))
        assert ran.status == 0, ran.err
        return (pl.read_parquet if suffix == ".parquet" else pl.read_ndjson)(tmp_path / (name + suffix)).to_dicts()

    whole = drawn("whole")
    monkeypatch.setattr("rlcorr_cli.reading.rows_out.COPIED_TOKENS", 1)
    assert drawn("pieces") == whole
    monkeypatch.setattr("rlcorr_cli.reading.rows_out.COPIED_TOKENS", 2000)
    assert drawn("some") == whole
    copies: dict[str, list[int]] = {}
    for one in whole:
        copies.setdefault(one["sample_id"], []).append(one["rlcorr_draw"])
    assert all(numbers == list(range(len(numbers))) for numbers in copies.values())
    assert max(map(len, copies.values())) > 10


def test_copies_of_a_drawn_row_stand_apart(tmp_path: Path) -> None:
    rows = output(tmp_path / "out.parquet", BF16, "--preset", "seq_is", "--resample", "150")
    last: dict[str, int] = {}
    apart: list[int] = []
    for i, one in enumerate(rows):
        apart += [i - last[one["sample_id"]]] if one["sample_id"] in last else []
        last[one["sample_id"]] = i
    assert len(rows) == 150
    assert len(apart) > 64
    assert min(apart) > 4
    assert {one["sample_id"] for one in rows[: len(last)]} == set(last)


def test_a_resampling_says_what_rows_are_drawn_by_and_in_which_order() -> None:
    def notes(preset: str, *more: str) -> str:
        return " ".join(run("filter", BF16, "--preset", preset, "--dry-run", "--json", *more).json["notes"])

    by_tokens, apart = "drawn by the mean weight of their tokens", "Copies of a row are spread over the output"
    drawn = ("--resample", "20")
    assert by_tokens in notes("token_is", *drawn)
    assert apart in notes("token_is", *drawn)
    assert by_tokens not in notes("seq_is", *drawn)
    assert apart in notes("seq_is", *drawn)
    assert apart not in notes("token_is")


@pytest.mark.full
def test_resampling_follows_the_weights(tmp_path: Path) -> None:
    def drawn(name: str, seed: str) -> list[dict[str, Any]]:
        return output(tmp_path / name, STEPS, "--preset", "seq_is_rs", "--resample", "10000", "--seed", seed)

    rows = drawn("a.parquet", "1")
    assert len(rows) == 10_000
    assert rows == drawn("b.parquet", "1")
    assert rows != drawn("c.parquet", "2")
    assert "rollout_is_weights" not in rows[0]
    weighted = output(tmp_path / "w.parquet", STEPS, "--preset", "seq_is_rs")
    weights = {(one["step"], one["sample_id"]): one["rollout_is_seq_weight"] for one in weighted}
    counts = dict.fromkeys(weights, 0)
    for one in rows:
        counts[one["step"], one["sample_id"]] += 1
    expected = np.array(list(weights.values())) / sum(weights.values()) * 10_000
    chi2 = float((((np.array(list(counts.values())) - expected) ** 2) / expected).sum())
    freedom = len(weights) - 1
    assert abs(chi2 - freedom) < 4 * math.sqrt(2 * freedom)


def test_standard_input_is_filtered_in_one_pass(tmp_path: Path) -> None:
    out, text = tmp_path / "out.jsonl", Path(JSONL).read_text()
    ran = run_process("filter", "-", "--preset", "seq_is_rs", "-o", str(out), stdin=text)
    assert ran.status == 0, ran.err
    assert run("filter", JSONL, "--preset", "seq_is_rs", "-o", str(tmp_path / "b.jsonl")).status == 0
    assert out.read_text() == (tmp_path / "b.jsonl").read_text()
    given = ["filter", "-", "--is", "token", "--normalize", "batch", "-o", str(tmp_path / "c.jsonl")]
    refused(run_process(*given, stdin=text), 2, "read only once")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    ran = run("filter", BF16, "--preset", "geo_rs", "--dry-run", "-o", str(tmp_path / "out.parquet"))
    assert ran.status == 0
    assert "nothing was written" in ran.out
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(tmp_path: Path) -> None:
    source, out = parquet(tmp_path / "in.parquet", [row(), row()]), str(tmp_path / "out.parquet")
    plan = ["--preset", "token_is"]
    refused(run("filter", source, "-o", out), 2, "corrects nothing")
    refused(run("filter", source, *plan), 2, "-o PATH")
    refused(run("filter", source, *plan, "-o", source, "--overwrite"), 2, "part of the dump")
    refused(run("filter", source, *plan, "-o", str(tmp_path / "x.csv")), 2, ".csv")
    refused(run("filter", source, *plan, "-o", str(tmp_path / "no" / "x.parquet")), 4, "no directory")
    refused(run("filter", source, *plan, "-o", out, "--rejected", "maybe"), 2, "drop")
    refused(run("filter", source, *plan, "-o", out, "--rejected-output", out), 2, "both outputs")
    for second in ("--rejected-output", "--quarantine"):
        again = str(tmp_path / ".." / tmp_path.name / "out.parquet")
        refused(run("filter", source, *plan, "-o", out, second, again), 2, "both outputs", f"-o and {second}")
    refused(run("filter", source, *plan, "-o", "-"), 2, "standard output")
    refused(run("filter", source, "--rs", "ratio.seq_sum:5,6", "-o", out), 3, "Nothing is left")
    assert run("filter", source, *plan, "-o", out).status == 0
    refused(run("filter", source, *plan, "-o", out), 4, "--overwrite")
    assert run("filter", source, *plan, "-o", out, "--overwrite").status == 0
    refused(run("filter", out, *plan, "-o", str(tmp_path / "b.parquet")), 3, "rollout_is_weights", "filter adds")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    refused(run("filter", source, *plan, "-o", str(folder), "--overwrite"), 4, "thesis.txt")
    assert (folder / "thesis.txt").read_text() == "mine"
    assert not [name for name in tmp_path.iterdir() if name.name.startswith(".")]


def test_files_of_different_columns_do_not_share_a_parquet_file(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", [row(x=1)])
    parquet(tmp_path / "b.parquet", [row(x="one")])
    given = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet"), "--preset", "token_is"]
    refused(run("filter", *given, "-o", str(tmp_path / "out.parquet")), 3, "different columns")
    assert run("filter", *given, "-o", str(tmp_path / "out.jsonl")).status == 0


def test_different_columns_are_named_before_the_scan(tmp_path: Path) -> None:
    first = parquet(tmp_path / "a.parquet", [row(x=1), row(old=(math.nan, -1.0), x=1)])
    second, options = str(tmp_path / "b.parquet"), ("--preset", "token_is", "--quarantine", str(tmp_path / "q.parquet"))
    others = {
        f": x is int64 in {first}, string in {second}.": row(x="one"),
        f": {first} has x, {second} has not.": row(),
        f": {second} has y, {first} has not.": row(x=1, y=1),
    }
    for says, other in others.items():
        parquet(tmp_path / "b.parquet", [other])
        for command in (("filter", "-o", str(tmp_path / "out.parquet")), ("filter", "--dry-run"), ("analyze",)):
            ran = run(command[0], first, second, *command[1:], *options)
            refused(ran, 3, f"The files have different columns, which one Parquet file cannot hold{says}")


def test_columns_in_another_order_or_that_allow_null_share_a_parquet_file(tmp_path: Path) -> None:
    policies = [pa.field(name, pa.list_(pa.float64()), nullable=False) for name in row()]
    fields = [*policies, pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.list_(pa.string()))]
    strict = pa.schema(fields)
    item = pa.field("item", pa.string(), nullable=False)
    loose = pa.schema([fields[-1].with_type(pa.list_(item)), fields[2].with_nullable(True), *policies])
    rows = [row(x=1, y=["a"]), row(x=None, y=["b"])]
    for name, schema, one in (("a", strict, rows[0]), ("b", loose, rows[1])):
        pq.write_table(pa.Table.from_pylist([one], schema=schema), tmp_path / f"{name}.parquet")
    for order in ("ab", "ba"):
        out = tmp_path / f"{order}.parquet"
        sources = [str(tmp_path / f"{name}.parquet") for name in order]
        assert run("filter", *sources, "--preset", "token_is", "-o", str(out)).status == 0
        table = pq.read_table(out)
        assert table.column_names[: len(fields)] == (strict if order == "ab" else loose).names
        assert table.schema.field("x").nullable
        assert not table.schema.field("old_log_probs").nullable
        written = [{name: line[name] for name in rows[0]} for line in table.to_pylist()]
        assert written == [rows["ab".index(name)] for name in order]


def test_rows_of_lines_and_of_parquet_that_share_no_table_are_refused(tmp_path: Path) -> None:
    first = jsonl(tmp_path / "a.jsonl", [row(x=1)])
    second = parquet(tmp_path / "b.parquet", [row(x="one")])
    ran = run("filter", first, second, "--preset", "token_is", "-o", str(tmp_path / "out.parquet"))
    refused(ran, 3, "different columns", "x is int64 in the first rows, string in later ones")


def test_json_lines_that_fit_no_table(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", [row(x=1), row(x={"y": 2})])
    refused(run("filter", source, "--preset", "token_is", "-o", str(tmp_path / "out.parquet")), 3, ".jsonl")


def test_values_that_json_lacks(tmp_path: Path) -> None:
    table = pa.table(
        {
            **{name: pa.array([[-0.5]]) for name in ("rollout_log_probs", "old_log_probs")},
            "day": pa.array([datetime.date(2026, 11, 21)]),
            "nano": pa.array([1], pa.timestamp("ns", "UTC")),
            "raw": pa.array([b"\x00\x01"]),
            "price": pa.array(["1.10"]).cast(pa.decimal128(5, 2)),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    ran = run("filter", str(tmp_path / "in.parquet"), "--preset", "token_is", "-o", str(tmp_path / "out.jsonl"))
    assert ran.status == 0, ran.err
    one = json.loads((tmp_path / "out.jsonl").read_text())
    assert one["nano"] == "1970-01-01 00:00:00.000000001Z"
    assert (one["day"], one["raw"], one["price"]) == ("2026-11-21", "AAE=", "1.10")
