"""What trainers and dashboards log, in every form that is read, and what is settled of files that say things twice."""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from rlcorr_cli import api
from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.scalars import Scalars, files_of, is_log, read, settled
from rlcorr_cli.show.forms.tensorboard import events

GOLDEN, SAMPLE = Path(__file__).parents[1] / "golden" / "logs", Path(__file__).parents[2] / "sample_data"
GAP, OTHER = "rollout_corr/k3_kl", "actor/entropy"
STEPS = {step: {GAP: 0.001 * 1.5**step, OTHER: 1 / 3} for step in range(1, 20)}
Run = Mapping[int, Mapping[str, float]]


def of(*paths: Path) -> Scalars:
    """What files hold together."""
    return settled([read(path) for path in files_of(map(str, paths))])


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def nested(path: Path, run: Run) -> Path:
    """As verl's file logger."""
    return lines(path.with_suffix(".jsonl"), [{"step": step, "data": values} for step, values in run.items()])


def flat(path: Path, run: Run) -> Path:
    return lines(path.with_suffix(".jsonl"), [{"step": step, **values} for step, values in run.items()])


def deep(path: Path, run: Run) -> Path:
    """Names that are parts of a tree."""
    rows = [
        {"global_step": step, "rollout_corr": {"k3_kl": of_step[GAP]}, "actor": {"entropy": of_step[OTHER]}}
        for step, of_step in run.items()
    ]
    return lines(path.with_suffix(".jsonl"), rows)


def history(path: Path, run: Run) -> Path:
    """A history of W&B's as JSON lines: its own step counts calls, and pictures are objects."""
    rows = [
        {"_step": 3 * step, "_runtime": 1.5, "_timestamp": 1.7e9, "training/global_step": step, **values}
        | {"samples": {"_type": "table-file", "path": "x"}}
        for step, values in run.items()
    ]
    return lines(path.with_suffix(".jsonl"), rows)


def rows_of_json(path: Path, run: Run) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps([{"_step": step, **values} for step, values in run.items()], indent=1))
    return path


def state(path: Path, run: Run) -> Path:
    """The state of transformers' Trainer."""
    path = path.with_suffix(".json")
    rows = [{**values, "epoch": 0.1, "step": step} for step, values in run.items()]
    path.write_text(json.dumps({"best_metric": None, "global_step": 19, "log_history": rows}, indent=2))
    return path


def table(path: Path, run: Run) -> Path:
    """A CSV as of a history of W&B's in pandas, in which cells are empty."""
    path = path.with_suffix(".csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "_step", "_runtime", GAP, OTHER, "note"])
        for step, values in run.items():
            writer.writerow([step, step, 1.5, repr(values[GAP]), "", "a, b"])
            writer.writerow([step, step, 1.5, "", repr(values[OTHER]), "two\nlines"])
    return path


def panel(path: Path, run: Run) -> Path:
    """The CSV of a panel of W&B's: the run before each name, and the ends of what a point stands for."""
    path, run_name = path.with_suffix(".csv"), "grpo - lr 1e-6"
    names = [f"{run_name} - {name}{end}" for name in (GAP, OTHER) for end in ("", "__MIN", "__MAX")]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["Step", *names])
        for step, values in run.items():
            writer.writerow([step, *(repr(values[name] * by) for name in (GAP, OTHER) for by in (1, 0.5, 2))])
    return path


def event_file(path: Path, run: Run) -> Path:
    """Event files by tensorboardX."""
    with SummaryWriter(str(path)) as writer:
        for step, values in run.items():
            for name, value in values.items():
                writer.add_scalar(name, value, step, walltime=1.7e9)
        writer.add_text("args", "{}", 0)
        writer.add_histogram("h", [1.0, 2.0], 1)
    return path


def own_events(path: Path, run: Run) -> Path:
    """Our own event file."""
    path = path.with_name("events.out.tfevents.1700000000.rlcorr")
    path.write_bytes(events({step: dict(values) for step, values in run.items()}, 1.7e9))
    return path


FORMS = (nested, flat, deep, history, rows_of_json, state, table, panel, event_file, own_events)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_holds_the_same_steps(form: Callable[[Path, Run], Path], tmp_path: Path) -> None:
    path = form(tmp_path / "log", STEPS)
    series = of(path).series
    digits = 1e-7 if form in (event_file, own_events) else 0.0
    for name in (GAP, OTHER):
        assert list(series[name]) == list(STEPS)
        assert list(series[name].values()) == pytest.approx([values[name] for values in STEPS.values()], rel=digits)
    assert not of(path).notes
    assert is_log([str(path)]) or form is rows_of_json


def test_a_tensor_of_one_number_is_a_scalar(tmp_path: Path) -> None:
    """As TensorFlow's and JAX's writers have it."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto

    from rlcorr_cli.files.tfrecords import record

    packed = (
        TensorProto(dtype=1, float_val=[0.25]),
        TensorProto(dtype=1, tensor_content=b"\0\0\0\x3f"),
        TensorProto(dtype=1, tensor_content=bytes(8)),  # two numbers are no scalar
        TensorProto(dtype=9, tensor_content=b"\3" + bytes(7)),
    )
    content = b""
    for step, tensor in enumerate(packed):
        value = Summary.Value(tag=GAP, tensor=tensor)
        content += record(Event(step=step, summary=Summary(value=[value])).SerializeToString())
    path = tmp_path / "events.out.tfevents.1.tf"
    path.write_bytes(content)
    assert of(path).series == {GAP: {0: 0.25, 1: 0.5, 3: 3.0}}


def test_verl_s_own_logger_is_read_whole() -> None:
    for path in (GOLDEN / "verl-0.6.0.jsonl", SAMPLE / "metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        series = of(path).series
        for row in rows:
            values = {name: value for name, value in row["data"].items() if name != "training/global_step"}
            assert values == {name: series[name][row["step"]] for name in series if row["step"] in series[name]}


def test_trl_s_own_state_is_read_whole() -> None:
    rows = json.loads((GOLDEN / "trl-1.16.0.json").read_text())["log_history"]
    name = "sampling/sampling_logp_difference/mean"
    assert of(GOLDEN / "trl-1.16.0.json").series[name] == {row["step"]: row[name] for row in rows if name in row}


def test_what_is_no_number_is_kept_as_nan(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "k3_kl": NaN}\n{"step": 2, "k3_kl": "NaN"}\n{"step": 3, "k3_kl": "Infinity"}\n')
    first, second, third = of(path).series["k3_kl"].values()
    assert math.isnan(first)
    assert math.isnan(second)
    assert third == math.inf


def test_a_resumed_run_counts_from_where_it_went_on(tmp_path: Path) -> None:
    again = {step: {GAP: 9.0, OTHER: 9.0} for step in range(11, 26)}
    path = tmp_path / "log.jsonl"
    lines(path, [{"step": step, **values} for run in (STEPS, again) for step, values in run.items()])
    assert list(of(path).series[GAP].values())[9:] == [STEPS[10][GAP]] + [9.0] * 15
    assert of(path).notes == ("Steps 11 to 19 are logged more than once: what comes last counts.",)


def test_steps_of_a_part_that_was_given_up_are_left_out(tmp_path: Path) -> None:
    again = {step: {GAP: 9.0, OTHER: 9.0} for step in range(11, 14)}
    path = tmp_path / "log.jsonl"
    lines(path, [{"step": step, **values} for run in (STEPS, again) for step, values in run.items()])
    assert list(of(path).series[GAP]) == list(range(1, 14))
    assert "The run went back, and is at step 13 now: later steps are of what was given up." in of(path).notes


def test_a_nan_that_is_logged_once_is_not_logged_again(tmp_path: Path) -> None:
    log = of(lines(tmp_path / "log.jsonl", [{"step": n, GAP: float("nan") if n == 6 else 1.0} for n in (*range(8), 6)]))
    assert list(log.series[GAP]) == [*range(8)]
    assert log.notes == ()


def test_a_step_that_is_logged_again_is_named(tmp_path: Path) -> None:
    steps = (*range(1, 6), 5, *range(6, 31))
    path = lines(tmp_path / "log.jsonl", [{"step": step, GAP: float(n)} for n, step in enumerate(steps)])
    assert of(path).notes == ("Step 5 is logged more than once: what comes last counts.",)


def test_a_part_in_a_file_of_its_own_that_went_back_ends_the_run(tmp_path: Path) -> None:
    first = flat(tmp_path / "a", STEPS)
    again = flat(tmp_path / "b", {step: {GAP: 9.0, OTHER: 9.0} for step in range(11, 14)})
    assert list(of(again, first).series[GAP]) == list(range(1, 14))


def test_logs_that_share_one_name_do_not_send_each_other_back(tmp_path: Path) -> None:
    train = flat(tmp_path / "train", {step: {**values, "epoch": step / 10} for step, values in STEPS.items()})
    scores = flat(tmp_path / "eval", {step: {"eval/score": 1.0, "epoch": step / 9} for step in (2, 8)})
    assert list(of(train, scores).series[GAP]) == list(STEPS)
    assert list(of(train, scores).series["epoch"]) == list(STEPS)
    assert of(train, scores).notes == ("Steps 2 to 8 are logged more than once: what comes last counts.",)


def test_what_ranks_log_again_is_replaced_before_their_mean_is_taken(tmp_path: Path) -> None:
    first, again = range(1, 11), range(8, 10)
    ranks = [
        lines(
            tmp_path / f"{n}.jsonl",
            [*({"step": step, GAP: n + 0.5} for step in first), *({"step": step, GAP: n + 5.0} for step in again)],
        )
        for n in range(2)
    ]
    log = of(*ranks)
    assert list(log.series[GAP]) == list(range(1, 10))
    assert (log.series[GAP][7], log.series[GAP][8]) == (1.0, 5.5)
    assert log.notes[1:] == (
        "Steps 8 to 9 are logged more than once: what comes last counts.",
        "The run went back, and is at step 9 now: later steps are of what was given up.",
    )


@pytest.mark.parametrize("name", ["gap/max", "gap_min", GAP])
def test_nan_of_one_rank_stays_in_any_order(name: str, tmp_path: Path) -> None:
    ranks = [
        flat(tmp_path / f"{n}", {step: {name: n if step != 4 else float("nan")} for step in range(8)}) for n in (1, 2)
    ]
    ranks.append(flat(tmp_path / "3", {step: {name: 3.0} for step in range(8)}))
    for order in (ranks, ranks[::-1]):
        assert math.isnan(of(*order).series[name][4])
        assert of(*order).series[name][5] == {"x": 3.0, "n": 1.0, "l": 2.0}[name[-1]]


def test_a_maximum_that_is_averaged_over_batches_is_one(tmp_path: Path) -> None:
    name = "rollout_corr/rollout_is_max/mean"
    ranks = [flat(tmp_path / f"{n}", {step: {name: n} for step in range(8)}) for n in range(3)]
    assert of(*ranks).series[name][4] == 2.0


def test_a_time_of_log_probs_makes_no_dump_of_a_log(tmp_path: Path) -> None:
    path = flat(tmp_path / "log", {step: {GAP: 1.0, "timing_s/old_log_prob": 2.0} for step in range(3)})
    assert is_log([str(path)])
    assert list(of(path).series) == [GAP, "timing_s/old_log_prob"]


def test_lines_after_a_byte_order_mark_are_lines(tmp_path: Path) -> None:
    path = flat(tmp_path / "log", STEPS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert is_log([str(path)])
    assert list(of(path).series[GAP]) == list(STEPS)


@pytest.mark.parametrize("name", ["global_steps", "gen_step"])
def test_a_step_may_be_called_as_in_a_dump(name: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "log.jsonl", [{name: step, GAP: 1.0} for step in range(3)])
    assert list(of(path).series[GAP]) == [0, 1, 2]


def test_parts_of_a_run_are_one_series_in_any_order(tmp_path: Path) -> None:
    first = flat(tmp_path / "a", {step: values for step, values in STEPS.items() if step < 12})
    second = flat(tmp_path / "b", {step: {GAP: 9.0, OTHER: 1.0} for step in range(10, 30)})
    assert of(first, second) == of(second, first) or of(first, second).series == of(second, first).series
    assert [of(second, first).series[GAP][step] for step in (9, 10, 29)] == [STEPS[9][GAP], 9.0, 9.0]


def test_ranks_are_averaged_but_for_their_ends(tmp_path: Path) -> None:
    ranks = [
        flat(tmp_path / f"rank{n}", {step: {GAP: n + 1.0, "gap/max": n, "gap_min": n} for step in range(8)})
        for n in range(3)
    ]
    series = of(*ranks).series
    assert (series[GAP][4], series["gap/max"][4], series["gap_min"][4]) == (2.0, 2.0, 0.0)
    assert "3 files log the same steps, as ranks do" in of(*ranks).notes[0]


def test_files_of_other_names_are_no_ranks(tmp_path: Path) -> None:
    one = flat(tmp_path / "train", {step: {GAP: 1.0} for step in range(8)})
    two = flat(tmp_path / "eval", {step: {OTHER: 2.0} for step in range(8)})
    assert of(one, two).series == {GAP: dict.fromkeys(range(8), 1.0), OTHER: dict.fromkeys(range(8), 2.0)}
    assert not of(one, two).notes


def test_a_last_line_that_is_still_written_waits(tmp_path: Path) -> None:
    path = flat(tmp_path / "log", STEPS)
    path.write_text(path.read_text() + '{"step": 20, "rollout_co')
    assert list(of(path).series[GAP]) == list(STEPS)
    assert of(path).notes == ("log.jsonl: the last line is cut short, and left out.",)


def test_rows_without_a_step_are_counted(tmp_path: Path) -> None:
    path = lines(tmp_path / "log.jsonl", [{"config": {"lr": 1e-6}}, *({"step": n, GAP: 1.0} for n in range(4))])
    assert of(path).notes == ("log.jsonl: 1 of 5 rows have no step or no number.",)


def test_a_step_that_no_float_holds_is_none(tmp_path: Path) -> None:
    rows = [{"step": step, GAP: 1.0} for step in (1, 2, 10**30, float("inf"), None, True)]
    assert list(of(lines(tmp_path / "log.jsonl", [*rows, {"step": 3, "train/step": 3}])).series[GAP]) == [1, 2]


def test_ranks_of_unlike_values_have_a_mean(tmp_path: Path) -> None:
    ranks = [flat(tmp_path / f"{n}", {step: {GAP: n} for step in range(8)}) for n in (1e308, 1.7e308, math.inf)]
    assert set(of(*ranks).series[GAP].values()) == {math.inf}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"step": 1, "a": 1}\nnonsense\n{"step": 2, "a": 1}\n', "line 2 is no JSON"),
        ("a.jsonl", b'{"a": 1}\n{"a": 2}\n', "holds no number with a step"),
        ("a.txt", b"hello\nworld\n", "is no log of metrics"),
        ("a.csv", b"a,b\n1,2\n", "is no log of metrics"),
        ("a.csv", b"Step,x - k,y - k\n1,2,3\n", "holds 2 runs, x, y"),
        ("a.json", b'{"a": 1,\n "b": 2}', "cannot be read as JSON of metrics: it is damaged, or holds other things"),
        ("a.json", b"[1, 2]", "cannot be read as JSON of metrics: it is damaged, or holds other things"),
        ("events.out.tfevents.1", b"\x10" + bytes(40), "the checksum at byte 0 is wrong"),
        ("a.jsonl", b"\xff\xfe", "is no log of metrics"),
    ],
)
def test_what_is_no_log_is_refused_with_what_is_read(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        api.scalars(path)
    assert says in error.value.message
    assert error.value.hint.startswith("A log is JSON lines of metrics with a step")


def test_event_files_of_two_runs_are_not_one(tmp_path: Path) -> None:
    for name in "ab":
        event_file(tmp_path / name, STEPS)
    with pytest.raises(DataError, match="holds event files of 2 runs"):
        api.scalars(tmp_path)
    assert api.scalars(tmp_path / "a").steps == 19


def test_dumps_and_logs_of_texts_are_no_logs(tmp_path: Path) -> None:
    dump = lines(tmp_path / "dump.jsonl", [{"step": 1, "rollout_log_probs": [-0.1], "old_log_probs": [-0.1]}])
    texts = lines(tmp_path / "texts.jsonl", [{"input": "a", "output": "b", "score": 1.0, "step": 1, "gts": "c"}])
    report = tmp_path / "report.json"
    report.write_text('{"rlcorr": {"version": "0.1.0", "schema": 1}}')
    assert not any(is_log([str(path)]) for path in (dump, texts, report, tmp_path, SAMPLE / "collapse.parquet"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_damaged_log_is_refused_or_read(form: Callable[[Path, Run], Path], tmp_path: Path) -> None:
    whole = form(tmp_path / "log", STEPS)
    (path,) = map(Path, files_of([str(whole)]))
    content, random = path.read_bytes(), np.random.default_rng(0)
    for n in range(60):
        damaged = bytearray(content[: random.integers(1, len(content))] if n % 2 else content)
        for place in random.integers(0, len(damaged), 3):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(damaged)
        with suppress(DataError):
            api.scalars(path)
