"""Parts written by the workers that read the rows: what one process writes, each shard under its own name."""

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from few import few

from rlcorr_cli.engines.in_order import ThreadEngine
from rlcorr_cli.engines.processes import ProcessEngine
from rlcorr_cli.errors import DataError, OutputError
from rlcorr_cli.files.destinations import check_run
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.datasets import SEAL, PartsPlace, ShardParts, dataset
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.reading.whole_rows import ArrowRows
from rlcorr_cli.results.written import Filtered, Target
from rlcorr_cli.runs.analyze import opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.filter import WriteParts, filter_dump
from rlcorr_cli.runs.filter_passes import FilteredRows, FilterShard, filter_work
from rlcorr_cli.runs.reading import RetriedSmaller, ShardReading
from rlcorr_cli.totals.provenance import Provenance

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import row, warm as warm

ROOT = Path(__file__).parents[2]
STEPS, GOLDEN = ROOT / "sample_data" / "smollm2_steps.parquet", ROOT / "tests" / "golden" / "input.parquet"
BATCH_TOKENS = 1000
GEO = preset("geo_rs").plan
TOKEN = preset("token_is").plan


@dataclass(frozen=True)
class KilledInTheMiddle:
    """Filtering whose process is killed after some batches of one shard, as often as there are files left to take."""

    reading: ShardReading
    filtering: FilterShard
    kills: str
    shard: int

    @property
    def provenance(self) -> Provenance:
        return self.filtering.provenance

    def __call__(self, shard: Shard) -> Generator[Any]:
        for i, rows in enumerate(replace(self.filtering, reading=self.reading)(shard)):
            yield rows
            if (shard.index, i) == (self.shard, 1) and (left := os.listdir(self.kills)):
                assert isinstance(rows, FilteredRows)
                os.unlink(Path(self.kills, left[0]))
                os.kill(os.getpid(), signal.SIGKILL)


class KillingEngine(ProcessEngine):
    """Processes, of which some are killed while they write a part, where there is a folder of `kills`."""

    kills = ""

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], Any]) -> Iterator[Any]:
        if self.kills and isinstance(work, RetriedSmaller) and isinstance(work.work, WriteParts):
            filtering = KilledInTheMiddle(work.work.reading, work.work.filtering, self.kills, 1)
            work = RetriedSmaller(replace(work.work, filtering=filtering))
        return super().map(shards, work)


@pytest.fixture(scope="module")
def engine() -> Iterator[KillingEngine]:
    with closing(KillingEngine(2)) as engine:
        yield engine


@pytest.fixture
def processes(engine: KillingEngine, warm: None) -> KillingEngine:
    return engine


def cut(source: Path, folder: Path, n_files: int = 5) -> str:
    """A dump's rows in several files, each a shard."""
    table = pq.read_table(source)
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(table.num_rows), n_files)):
        pq.write_table(table.take(rows), folder / f"{i}.parquet")
    return str(folder)


@dataclass(frozen=True)
class Case:
    """A plan, and how a run with it is asked for."""

    plan: Plan
    target: dict[str, Any]
    request: dict[str, Any]


assert TOKEN.weighting is not None
NORMALIZED = replace(TOKEN, weighting=replace(TOKEN.weighting, scope="sequence", normalize="batch"))
PPO = Objective(name="ppo", mode="decoupled", clip_low=0.2, clip_high=0.2)
CASES = {
    "rejected rows apart": Case(GEO, {"rejected": True}, {}),
    "rejected rows kept": Case(GEO, {"keep_rejected": True}, {}),
    "weights over their batch's mean": Case(NORMALIZED, {}, {}),
    "a budget in each batch": Case(preset("m2po").plan, {}, {}),
    "coefficients over their batch's divisor": Case(TOKEN, {"objective": PPO, "divides_coefs": True}, {}),
    "parts of few rows": Case(TOKEN, {"rows_per_file": 7}, {}),
    "ids that count": Case(GEO, {}, {"drawn_by": ("sample_id",)}),
}


def filtered(dump: str, out: Path, computing: Computing, case: Case) -> Filtered:
    options = dict(case.target)
    if options.pop("rejected", False):
        options["rejected"] = out.with_name(f"{out.name}-rejected")
    request = ReadRequest(paths=(dump,), **case.request)
    return filter_dump(
        request, ChosenPlan(plan=case.plan), Target(path=out, force=True, **options), computing=computing
    )


def here() -> Computing:
    return Computing("cpu", BATCH_TOKENS, ThreadEngine(2))


def apart(engine: ProcessEngine) -> Computing:
    return Computing("cpu", BATCH_TOKENS, engine)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def rows(folder: Path) -> pa.Table:
    """A directory's rows in the order of its parts' names."""
    tables = [pq.read_table(part) for part in parts(folder)]
    assert len({str(table.schema) for table in tables}) == 1
    return pa.concat_tables(table.replace_schema_metadata() for table in tables)


def sealed(folder: Path) -> dict[str, Any]:
    return json.loads((folder / SEAL).read_text())


@pytest.mark.parametrize("source", few([STEPS, GOLDEN], [GOLDEN]), ids=lambda path: path.stem)
@pytest.mark.parametrize("name", CASES)
def test_workers_write_the_rows_that_one_process_writes(
    name: str, source: Path, tmp_path: Path, processes: KillingEngine
) -> None:
    dump, case = cut(source, tmp_path / "dump"), CASES[name]
    one = filtered(dump, tmp_path / "one", here(), case)
    many = filtered(dump, tmp_path / "many", apart(processes), case)
    folders = [("one", "many"), *([("one-rejected", "many-rejected")] if case.target.get("rejected") else [])]
    for mine, theirs in folders:
        assert rows(tmp_path / theirs).equals(rows(tmp_path / mine))
        assert len(rows(tmp_path / mine)) > 0
        told = sealed(tmp_path / theirs)
        assert {part["name"]: part["rows"] for part in told["parts"]} == {
            part.name: pq.read_metadata(part).num_rows for part in parts(tmp_path / theirs)
        }
        (*_, last) = parts(tmp_path / mine)
        assert {**told, "parts": None} == {**json.loads(pq.read_metadata(last).metadata[b"rlcorr"]), "parts": None}
        assert not (tmp_path / mine / SEAL).exists()
    assert many.rows == one.rows
    assert many.rejected_rows == one.rejected_rows
    assert many.n_bytes == sum(part.stat().st_size for part in parts(tmp_path / "many"))
    assert_same_numbers(many, one)


def assert_same_numbers(many: Filtered, one: Filtered) -> None:
    """All that is counted exactly, all that is summed to its last digits."""
    there, wanted = many.report.to_dict()["metrics"], one.report.to_dict()["metrics"]
    assert there.keys() == wanted.keys()
    for name, value in wanted.items():
        assert there[name] == (value and pytest.approx(value, rel=1e-12, abs=0)), name


def made(folder: Path, gaps: Sequence[float], suffix: str = "parquet", **more: Any) -> str:
    """A file of thirty rows for each gap between the policies; geo_rs takes rows of a large one."""
    folder.mkdir()
    for i, gap in enumerate(gaps):
        drawn = [
            row([-1.0, -1.5], [-1.0 - gap * (j % 2), -1.5], row=30 * i + j, text=f"{j}", **more) for j in range(30)
        ]
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist(drawn), folder / f"{i:02d}.parquet")
        else:
            (folder / f"{i:02d}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in drawn))
    return str(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_part_is_called_by_its_shard_and_one_without_rows_is_not_there(
    tmp_path: Path, processes: KillingEngine
) -> None:
    dump = made(tmp_path / "dump", [0.0, 0.5, 0.0])
    for path in (tmp_path / "dump").glob("01*"):
        pq.write_table(pq.read_table(path).take(list(range(1, 30, 2))), path)  # all are rejected
    case = Case(GEO, {"rejected": True}, {})
    filtered(dump, tmp_path / "out", apart(processes), case)
    assert names(tmp_path / "out") == [SEAL, "part-00000.parquet", "part-00002.parquet"]
    assert names(tmp_path / "out-rejected") == [SEAL, "part-00001.parquet"]
    assert sealed(tmp_path / "out")["parts"] == [
        {"name": "part-00000.parquet", "rows": 30},
        {"name": "part-00002.parquet", "rows": 30},
    ]


def test_a_shard_of_many_rows_has_parts_in_the_order_of_its_rows(tmp_path: Path, processes: KillingEngine) -> None:
    dump = made(tmp_path / "dump", [0.0, 0.0])
    filtered(dump, tmp_path / "out", apart(processes), Case(TOKEN, {"rows_per_file": 13}, {}))
    ends = ("", "_00001", "_00002")
    assert [part.name for part in parts(tmp_path / "out")] == [
        f"part-0000{i}{end}.parquet" for i in (0, 1) for end in ends
    ]
    assert [pq.read_metadata(part).num_rows for part in parts(tmp_path / "out")] == [13, 13, 4] * 2
    assert rows(tmp_path / "out")["row"].to_pylist() == list(range(60))
    assert ds.dataset(tmp_path / "out").to_table()["row"].to_pylist() == list(range(60))
    assert pl.read_parquet(tmp_path / "out" / "*.parquet")["row"].to_list() == list(range(60))
    sources = opened(ReadRequest(paths=(str(tmp_path / "out"),)), ChosenPlan(plan=GEO)).sources
    assert [source.path for source in sources] == [str(part) for part in parts(tmp_path / "out")]


def test_an_older_directory_of_ours_is_replaced_and_no_other(tmp_path: Path, processes: KillingEngine) -> None:
    dump, out, case = made(tmp_path / "dump", [0.0, 0.0]), tmp_path / "out", Case(TOKEN, {"overwrite": True}, {})
    for computing, kept in ((here(), 1), (apart(processes), 3), (apart(processes), 3), (here(), 1)):
        check_run([dataset(out, "-o", True)])
        filtered(dump, out, computing, case)
        assert len(names(out)) == kept
        with pytest.raises(OutputError, match="exists"):
            check_run([dataset(out, "-o", False)])
    filtered(dump, out, apart(processes), case)
    for foreign in ("{}", "[]", "no JSON", '{"version": 1, "plan": {}}'):
        (out / SEAL).write_text(foreign)
        with pytest.raises(OutputError, match=f"holds other files \\({SEAL}\\)"):
            check_run([dataset(out, "-o", True)])
    assert names(tmp_path) == ["dump", "out"]


def test_no_directory_is_left_where_nothing_stays(tmp_path: Path, processes: KillingEngine) -> None:
    dump = made(tmp_path / "dump", [0.5, 0.5])
    for path in (tmp_path / "dump").iterdir():
        pq.write_table(pq.read_table(path).take(list(range(1, 30, 2))), path)
    with pytest.raises(DataError, match="Nothing is left to write"):
        filtered(dump, tmp_path / "out", apart(processes), Case(GEO, {"rejected": True}, {}))
    assert names(tmp_path) == ["dump"]


def test_an_older_directory_of_rejected_rows_goes_where_none_are(tmp_path: Path, processes: KillingEngine) -> None:
    case = Case(GEO, {"rejected": True, "overwrite": True}, {})
    filtered(made(tmp_path / "some", [0.5]), tmp_path / "out", apart(processes), case)
    assert names(tmp_path) == ["out", "out-rejected", "some"]
    filtered(made(tmp_path / "none", [0.0]), tmp_path / "out", apart(processes), case)
    assert names(tmp_path) == ["none", "out", "some"]


def test_json_lines_have_the_columns_that_the_first_rows_fix(tmp_path: Path, processes: KillingEngine) -> None:
    """A column is null in all of one file: that it is text, only the first tells."""
    dump = made(tmp_path / "dump", [0.0, 0.5, 0.0], "jsonl", note="a")
    second = tmp_path / "dump" / "01.jsonl"
    second.write_text(second.read_text().replace('"note": "a"', '"note": null'))
    for name, computing in (("one", here()), ("many", apart(processes))):
        filtered(dump, tmp_path / name, computing, Case(GEO, {"rejected": True}, {}))
    assert rows(tmp_path / "many").equals(rows(tmp_path / "one"))
    assert rows(tmp_path / "many-rejected")["note"].type == pa.string()
    second.write_text(second.read_text().replace('"note"', '"remark"'))
    for name, computing in (("one", here()), ("many", apart(processes))):
        with pytest.raises(DataError, match="The key remark is not in the first rows"):
            filtered(dump, tmp_path / f"{name} more", computing, Case(GEO, {}, {}))
    assert names(tmp_path) == ["dump", "many", "many-rejected", "one", "one-rejected"]


def test_a_draw_is_written_in_order_and_sealed(tmp_path: Path, processes: KillingEngine) -> None:
    dump = made(tmp_path / "dump", [0.1, 0.2, 0.3])
    case = Case(TOKEN, {"resample": 50, "seed": 3, "rows_per_file": 20}, {})
    for name, computing in (("one", here()), ("many", apart(processes))):
        filtered(dump, tmp_path / name, computing, case)
    assert rows(tmp_path / "many").equals(rows(tmp_path / "one"))
    assert {*names(tmp_path / "many")} == {SEAL, *names(tmp_path / "one")}
    assert [part["rows"] for part in sealed(tmp_path / "many")["parts"]] == [20, 20, 10]


@pytest.mark.full
def test_one_file_holds_what_it_holds_from_one_process(tmp_path: Path, processes: KillingEngine) -> None:
    dump = cut(STEPS, tmp_path / "dump")
    for suffix in ("parquet", "jsonl"):
        outs = [tmp_path / f"{name}.{suffix}" for name in ("one", "many")]
        for out, computing in zip(outs, (here(), apart(processes)), strict=True):
            filtered(dump, out, computing, Case(TOKEN, {}, {}))
        if suffix == "parquet":
            one, many = map(pq.read_table, outs)
            assert many.equals(one)
        else:
            assert outs[0].read_bytes() == outs[1].read_bytes()


def test_rows_set_aside_come_back_from_the_workers(tmp_path: Path, processes: KillingEngine) -> None:
    dump = made(tmp_path / "dump", [0.0, 0.1, 0.2], "jsonl")
    for path in (tmp_path / "dump").iterdir():
        path.write_text(path.read_text().replace("-1.5]", "7.0]", 1))
    for name, computing in (("one", here()), ("many", apart(processes))):
        policy = BadRowPolicy(action="quarantine", quarantine=tmp_path / f"{name}.jsonl", max_fraction=0.5)
        result = filtered(dump, tmp_path / name, computing, Case(TOKEN, {}, {"bad_rows": policy}))
        assert (result.rows_in, result.rows_bad, result.rows_out) == (90, 3, 87)
    assert (tmp_path / "many.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert rows(tmp_path / "many").equals(rows(tmp_path / "one"))


def test_rows_whose_id_came_before_are_left_out_by_workers_too(tmp_path: Path, processes: KillingEngine) -> None:
    """A shard that is written again without them has its parts again, and no more of them."""
    dump = cut(GOLDEN, tmp_path / "dump")
    again = pa.concat_tables(pq.read_table(tmp_path / "dump" / f"{i}.parquet") for i in (3, 0, 4))
    pq.write_table(again, tmp_path / "dump" / "4.parquet")
    policy = BadRowPolicy(action="skip", max_fraction=1.0)
    for name, computing in (("one", here()), ("many", apart(processes))):
        case = Case(TOKEN, {"rows_per_file": 10}, {"bad_rows": policy})
        result = filtered(dump, tmp_path / name, computing, case)
        assert (result.rows_out, result.rows_bad) == (64, 26)
    assert rows(tmp_path / "many").equals(rows(tmp_path / "one"))
    assert {SEAL, *(part["name"] for part in sealed(tmp_path / "many")["parts"])} == {*names(tmp_path / "many")}


def test_an_id_in_two_files_ends_a_run_of_workers_too(tmp_path: Path, processes: KillingEngine) -> None:
    dump = cut(GOLDEN, tmp_path / "dump")
    (tmp_path / "dump" / "7.parquet").write_bytes((tmp_path / "dump" / "3.parquet").read_bytes())
    said: list[str] = []
    for name, computing in (("one", Computing("cpu", BATCH_TOKENS, ThreadEngine(1))), ("many", apart(processes))):
        for out in (tmp_path / name, tmp_path / f"{name}.jsonl"):
            with pytest.raises(DataError, match=r"7\.parquet, row 0.* is there twice") as error:
                filtered(dump, out, computing, Case(TOKEN, {}, {}))
            said.append(error.value.message)
    assert len(set(said)) == 1
    assert names(tmp_path) == ["dump"]


@pytest.mark.parametrize("n_kills", [2, 3])
def test_a_worker_killed_in_the_middle_of_its_part_leaves_no_trace(
    n_kills: int, tmp_path: Path, processes: KillingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, kills = cut(STEPS, tmp_path / "dump"), tmp_path / "kills"
    kills.mkdir()
    for i in range(n_kills):
        (kills / f"{i}").touch()
    monkeypatch.setattr(processes, "kills", str(kills))
    case = Case(TOKEN, {"rows_per_file": 7}, {})
    if n_kills == 3:
        with pytest.raises(DataError, match=r"1\.parquet: 3 workers were lost while they read it"):
            filtered(dump, tmp_path / "many", apart(processes), case)
        assert names(tmp_path) == ["dump", "kills"]
    else:
        filtered(dump, tmp_path / "one", here(), case)
        assert filtered(dump, tmp_path / "many", apart(processes), case).rows_out == 320
        assert rows(tmp_path / "many").equals(rows(tmp_path / "one"))
        assert {SEAL, *(part["name"] for part in sealed(tmp_path / "many")["parts"])} == {*names(tmp_path / "many")}
        assert names(tmp_path) == ["dump", "kills", "many", "one"]
    assert os.listdir(kills) == []


def test_what_a_worker_is_sent_and_sends_back_is_small(tmp_path: Path) -> None:
    dump = opened(ReadRequest(paths=(cut(STEPS, tmp_path / "dump"),), sample=500), ChosenPlan(plan=TOKEN))
    computing = Computing("cpu", BATCH_TOKENS)
    filtering = filter_work(
        dump, ChosenPlan(plan=TOKEN), Target(path=tmp_path / "out"), computing=computing, budget_bounds={}, writes=True
    )
    place = PartsPlace(path=tmp_path / "out", option="-o", directory=tmp_path, digits=5, rows_per_file=100, about="{}")
    work = pickle.loads(pickle.dumps(WriteParts(reading=filtering.reading, filtering=filtering, places=(place, None))))
    result = work(dump.shards[0])
    assert sum(part.rows for part in result.value.parts[0]) == 64
    assert len(pickle.dumps(work)) < 10_000
    assert len(pickle.dumps(result)) < 100_000


def test_a_worker_that_does_not_see_the_output_says_who_it_is(tmp_path: Path) -> None:
    place = PartsPlace(
        path=Path("kept"), option="-o", directory=tmp_path / "gone" / ".x", digits=5, rows_per_file=9, about="{}"
    )
    with ShardParts(place, 3) as shard_parts, pytest.raises(OutputError) as error:
        shard_parts.write(ArrowRows(pa.table({"a": [1]})))
    assert (
        error.value.message
        == f"Cannot write kept: {os.uname().nodename}, where a part is written, does not see {tmp_path / 'gone'}."
    )
    assert "shared storage" in error.value.hint
