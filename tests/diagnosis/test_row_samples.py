"""The sample that a cause is sought in is the same rows, however a dump is split, ordered, read and saved."""

import gzip
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reported import analyze, diagnose

from rlcorr_cli.engines.in_order import ThreadEngine
from rlcorr_cli.engines.processes import ProcessEngine
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.totals.packed import pack, unpack
from rlcorr_cli.totals.row_sample import RowSample, highest_levels

MOST = 4000
N_ROWS = 400


@cache
def table() -> pa.Table:
    """Rows of 2 to 200 tokens of noise, some of them masked, some rows twice, with ids and workers."""
    rng = np.random.default_rng(5)
    rows = []
    for i in range(N_ROWS):
        n = int(rng.integers(2, 200))
        rollout = -rng.gamma(0.3, 1.0, n).astype(np.float32)
        row = {
            "sample_id": f"s{i}",
            "worker": f"w{i % 3}",
            "rollout_log_probs": rollout,
            "old_log_probs": np.minimum(rollout + rng.normal(0, 0.05, n).astype(np.float32), 0),
            "response_mask": (rng.random(n) > 0.1).astype(np.int8),
        }
        row["response_mask"][0] = 1
        rows += [row] if i % 50 else [row, {**row, "sample_id": f"again {i}"}]
    return pa.Table.from_pylist(rows)


def samples_of(path: str, computing: Computing | None = None) -> list[RowSample]:
    """Of `analyze` and of `diagnose`."""
    request = ReadRequest(paths=(path,), sample=MOST)
    plan = ChosenPlan(plan=preset("disabled").plan)
    report = analyze(request, plan, totals=True, computing=computing)
    diagnosed = diagnose(request, totals=True, computing=computing)
    assert report.totals is not None
    assert diagnosed.totals is not None
    assert report.totals.measured.sample is not None
    return [report.totals.measured.sample, diagnosed.totals.sample]


def whole(folder: Path) -> str:
    pq.write_table(table(), folder / "whole.parquet", row_group_size=len(table()))
    return str(folder / "whole.parquet")


def backwards_in_parts(folder: Path) -> str:
    for i in range(7):
        part = table().take(list(range(i, len(table()), 7))[::-1])
        pq.write_table(part, folder / f"part_{i}.parquet", row_group_size=9)
    return str(folder)


def json_lines(folder: Path) -> str:
    lines = [json.dumps(row) for row in table().to_pylist()]
    (folder / "twin.jsonl").write_text("\n".join(lines[::-1]))
    return str(folder / "twin.jsonl")


def ids(sample: RowSample) -> list[str]:
    return sorted(str(sample.name(row)) for row in range(sample.n_rows))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> RowSample:
    sample, of_diagnosis = samples_of(whole(tmp_path_factory.mktemp("whole")))
    assert ids(sample) == ids(of_diagnosis)
    return sample


def test_a_sample_is_some_of_the_rows_whole(expected: RowSample) -> None:
    assert 0.9 * MOST < expected.n_valid_tokens <= MOST
    assert expected.level > 0
    rows = {row["sample_id"]: row for row in table().to_pylist()}
    for row in range(expected.n_rows):
        one = expected.rows(np.array([row]))
        stored = rows[str(one.name(0))]
        valid = np.array(stored["response_mask"], bool)
        np.testing.assert_array_equal(one.rollout, np.array(stored["rollout_log_probs"], np.float32)[valid])
        np.testing.assert_array_equal(one.train, np.array(stored["old_log_probs"], np.float32)[valid])
        assert one.levels["worker"].values[one.levels["worker"].codes[0]] == stored["worker"]


def test_a_sample_has_a_level_no_higher_than_it_needs(expected: RowSample, tmp_path: Path) -> None:
    request = ReadRequest(paths=(whole(tmp_path),), sample=1 << 40)
    every = diagnose(request, totals=True).totals
    assert every is not None
    lower = highest_levels(every.sample.keys) >= expected.level - 1
    assert every.sample.n_valid[lower].sum() > MOST


def test_a_row_of_one_token_counts_for_four(tmp_path: Path) -> None:
    n_rows = MOST // 2
    values = pa.array([[-1 - i / n_rows] for i in range(n_rows)], pa.list_(pa.float32()))
    pq.write_table(pa.table({"rollout_log_probs": values, "old_log_probs": values}), tmp_path / "short.parquet")

    for sample in samples_of(str(tmp_path / "short.parquet")):
        assert MOST / 5 < 4 * sample.n_rows <= MOST


@pytest.mark.parametrize("split", [backwards_in_parts, json_lines])
def test_splits_and_orders_give_the_same_rows(
    split: Callable[[Path], str], expected: RowSample, tmp_path: Path
) -> None:
    for sample in samples_of(split(tmp_path)):
        assert ids(sample) == ids(expected)


@pytest.mark.parametrize(
    "computing",
    [Computing(batch_tokens=500, engine=ThreadEngine(3)), Computing(engine=ProcessEngine(2))],
    ids=["threads", "processes"],
)
def test_engines_and_batches_give_the_same_rows(computing: Computing, expected: RowSample, tmp_path: Path) -> None:
    for sample in samples_of(backwards_in_parts(tmp_path), computing):
        assert ids(sample) == ids(expected)


def encoded(rows: pa.Table, form: str, folder: Path) -> Path:
    """The same values in another encoding, compression, type or split."""
    if "json" in form:
        lines = "\n".join(json.dumps(row) for row in rows.to_pylist()).encode()
        path = folder / form
        path.write_bytes(gzip.compress(lines) if form.endswith(".gz") else lines)
        return path
    if form == "wide":
        logp = pa.list_(pa.float64())
        fields = [field.with_type(logp) if "log_probs" in field.name else field for field in rows.schema]
        pq.write_table(rows.cast(pa.schema(fields)), folder / "w.parquet", compression="none", use_dictionary=False)
    elif form == "zstd":
        pq.write_table(rows, folder / "z.parquet", compression="zstd", row_group_size=150)
    else:
        for part in range(5):
            pq.write_table(rows.slice(part * 200, 200), folder / f"worker_{'abcde'[part]}.parquet", row_group_size=90)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("valid", [0.01, 0.05, 1.0])
def test_the_same_values_in_another_encoding_give_the_same_diagnosis(valid: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = []
    for i in range(1000):
        rollout = -rng.gamma(0.3, 1.0, 120).astype(np.float32)
        mask = (rng.random(120) < valid).astype(np.int8)
        train = np.minimum(rollout + rng.normal(0, 0.05, 120).astype(np.float32), 0)
        columns = {"rollout_log_probs": rollout, "old_log_probs": train, "response_mask": mask}
        rows.append({"worker": f"w{i % 3}", **columns})
    table = pa.Table.from_pylist(rows)
    found = set()
    for form in ("wide", "zstd", "parts", "lines.jsonl", "lines.jsonl.gz"):
        (folder := tmp_path / form).mkdir()
        path = str(encoded(table, form, folder))
        engines = (ThreadEngine(1), ThreadEngine(3), *([ProcessEngine(2)] if form == "parts" else []))
        for engine in engines:
            with closing(engine):
                computing = Computing(engine=engine)
                result = diagnose(ReadRequest(paths=(path,), sample=1000), computing=computing, totals=True)
            assert result.totals is not None
            assert 850 * (valid > 0.03) < result.totals.sample.n_valid_tokens <= 1000
            as_json = result.to_dict()
            found.add(json.dumps([as_json[name] for name in ("counts", "gap", "verdict", "surprise", "features")]))
    assert len(found) == 1


def test_standard_input_gives_the_same_rows(
    expected: RowSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Path(json_lines(tmp_path)).read_bytes()
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(content)))
    report = analyze(ReadRequest(paths=("-",), sample=MOST), ChosenPlan(plan=preset("disabled").plan), totals=True)
    assert report.totals is not None
    assert report.totals.measured.sample is not None
    assert ids(report.totals.measured.sample) == ids(expected)


def test_saved_parts_add_to_the_same_rows(expected: RowSample, tmp_path: Path) -> None:
    parts: list[RunTotals] = []
    for i in range(5):
        pq.write_table(table().slice(i * 100, 100), tmp_path / f"part_{i}.parquet")
        request = ReadRequest(paths=(str(tmp_path / f"part_{i}.parquet"),), sample=MOST)
        run = analyze(request, ChosenPlan(plan=preset("disabled").plan), totals=True).totals
        assert run is not None
        parts.append(unpack(RunTotals, pack(replace(run))))
    together = RunTotals.added(parts).measured.sample
    assert together is not None
    assert ids(together) == ids(expected)
