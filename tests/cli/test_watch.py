"""`rlcorr watch` on folders and stores that fill while it looks."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from few import few
from filling import RULE, Filling
from limits import LimitedProcess
from pyarrow import fs
from running import LIMIT_SECONDS, STEPS, forked_command, parquet, refused, row, run, wait_for
from stores import Proxy, files, put, server, store as store
from test_schema import assert_is

import rlcorr_cli
from rlcorr_cli.errors import UsageError
from rlcorr_cli.results.watched import Alarm, StepLine
from rlcorr_cli.runs import watch as watch_run

CLOSE, FAR = 0.02, 0.5
OLD = 1_700_000_000
"""When files were written that have long been complete."""


def step_file(path: Path, step: int | None, std: float = CLOSE, *, part: int = 0, is_old: bool = True) -> Path:
    """A dump of 20 sequences of 60 tokens, whose log-ratios spread so far."""
    random = np.random.default_rng([0 if step is None else step, part])
    log_ratios = random.normal(-std * std / 2, std, (20, 60))
    rollout = random.normal(-2, 0.3, (20, 60))
    old = np.minimum(rollout + log_ratios, -0.001)
    names = {} if step is None else {"step": step}
    rows = [row(rollout[i].tolist(), old[i].tolist(), sample_id=f"{step}/{part}/{i}", **names) for i in range(20)]
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet(path, rows)
    if is_old:
        os.utime(path, (OLD, OLD))
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "run").mkdir()
    return tmp_path


def looked(*args: str, status: int = 0, paths: str = "run/") -> dict[str, Any]:
    """What one look tells."""
    ran = run("watch", paths, "--once", "--json", *args)
    assert ran.status == status, (ran.out, ran.err)
    return json.loads(ran.out)


def steps(result: dict[str, Any]) -> list[Any]:
    return [line["step"] for line in result["steps"]]


def test_every_step_is_told_once_and_a_restart_goes_on(here: Path) -> None:
    for step in range(3):
        step_file(here / f"run/step_{step}.parquet", step)
    assert steps(looked()) == [0, 1, 2]
    assert steps(looked()) == []
    for step in range(9, 12):
        step_file(here / f"run/step_{step}.parquet", step)
    found = looked()
    assert_is("watch", found)
    assert (steps(found), found["n_steps"], found["status"]) == ([9, 10, 11], 6, "passed")


@pytest.mark.parametrize(
    ("state", "place"),
    [("watch.rlcorr", "watch.rlcorr, in the working directory"), ("states/a.rlcorr", "states/a.rlcorr")],
)
def test_it_is_said_where_is_kept_what_was_read(here: Path, state: str, place: str) -> None:
    (here / "states").mkdir()
    told: list[Any] = []

    def tell(what: Any) -> None:
        """Until the first step."""
        told.append(what)
        if isinstance(what, StepLine):
            raise KeyboardInterrupt

    for step, before in ((1, "no step was"), (2, "1 step was")):
        step_file(here / f"run/step_{step}.parquet", step)
        rlcorr_cli.watch("run/", every=0, state=state, told=tell)
        first = told[-2]
        assert first.startswith(f"Following run/, of which {before} told")
        assert f"What was read is kept in {place}." in first
    text = " ".join(run("watch", "run/", "--once", "--state", state).out.split())
    assert f"What was read is kept in {place}." in text
    assert (here / state).is_file()


def test_a_line_says_what_analyze_says_of_the_step(here: Path) -> None:
    path = step_file(here / "run/step_4.parquet", 4)
    (line,) = looked("--preset", "geo_rs")["steps"]
    report = run("analyze", str(path), "--preset", "geo_rs", "--json").json
    assert line["tokens"] == report["counts"]["tokens"]
    for name in ("k3_kl", "seq_ess"):
        assert line[name] == pytest.approx(report["metrics"][name], rel=1e-12)
    assert line["kept"] == pytest.approx(report["verdict"]["kept_fraction"])


def test_a_file_that_grows_waits_until_two_looks_see_the_same(here: Path) -> None:
    whole = step_file(here / "whole.parquet", 1).read_bytes()
    growing = here / "run/step_1.parquet"
    for n_bytes in (100, 2000):
        growing.write_bytes(whole[:n_bytes])
        found = looked("--every", "3600")
        assert (steps(found), found["waiting"]) == ([], [str(growing.relative_to(here))])
    growing.write_bytes(whole)
    assert steps(looked("--every", "3600")) == []
    assert steps(looked("--every", "3600")) == [1]


@pytest.mark.parametrize("marker", ["step_1.parquet.done", "_SUCCESS", "_rlcorr.json"])
def test_a_marker_says_that_a_file_is_complete(here: Path, marker: str) -> None:
    written = step_file(here / "run/step_1.parquet", 1, is_old=False).stat().st_mtime_ns
    (here / "run" / marker).touch()
    os.utime(here / "run" / marker, ns=(written - 9, written - 9))
    assert steps(looked("--every", "3600", "--state", "early.rlcorr")) == []
    os.utime(here / "run" / marker, ns=(written, written))
    assert steps(looked("--every", "3600", "--state", "late.rlcorr")) == [1]


def test_a_file_that_is_written_again_is_read_again(here: Path) -> None:
    for step in (1, 2):
        step_file(here / f"run/step_{step}.parquet", step)
    before = looked()
    step_file(here / "run/step_1.parquet", 1, 0.1)
    os.utime(here / "run/step_1.parquet", (OLD + 1, OLD + 1))
    after = looked()
    assert [(line["step"], line["again"]) for line in after["steps"]] == [(1, True)]
    assert after["steps"][0]["k3_kl"] > 10 * before["steps"][0]["k3_kl"]
    assert after["n_steps"] == 2


@pytest.mark.parametrize("later", [0, 5])
def test_files_of_one_step_add_also_where_its_totals_are_no_longer_kept(here: Path, later: int) -> None:
    step_file(here / "run/step_1_rank_0.parquet", 1)
    looked()
    for step in range(2, 2 + later):
        step_file(here / f"run/step_{step}.parquet", step)
    looked()
    step_file(here / "run/step_1_rank_1.parquet", 1, part=1)
    found = looked()
    assert [(line["step"], line["tokens"], line["again"]) for line in found["steps"]] == [(1, 2400, True)]
    report = run("analyze", "run/step_1_rank_0.parquet", "run/step_1_rank_1.parquet", "--json").json
    assert found["steps"][0]["k3_kl"] == pytest.approx(report["metrics"]["k3_kl"], rel=1e-12)
    shutil.copy(step_file(here / "other.parquet", 1, 0.1, part=2), here / "run/step_1_rank_0.parquet")
    os.utime(here / "run/step_1_rank_0.parquet", (OLD + 2, OLD + 2))
    (line,) = looked()["steps"]
    report = run("analyze", "run/step_1_rank_0.parquet", "run/step_1_rank_1.parquet", "--json").json
    assert (line["tokens"], line["k3_kl"]) == (2400, pytest.approx(report["metrics"]["k3_kl"], rel=1e-12))


def test_files_of_one_step_that_come_together_are_told_in_one_line(here: Path) -> None:
    for step in (1, 2):
        for rank in range(3):
            step_file(here / f"run/step_{step}_rank_{rank}.parquet", step, part=rank)
    found = looked()
    assert [(line["step"], line["tokens"], line["again"]) for line in found["steps"]] == [
        (1, 3600, False),
        (2, 3600, False),
    ]
    groups = run("analyze", "run/", "--group-by", "step", "--json").json["groups"]
    assert [line["k3_kl"] for line in found["steps"]] == pytest.approx([each["metrics"]["k3_kl"] for each in groups])


def test_one_alarm_is_raised_at_the_step_that_breaks_a_rule(here: Path) -> None:
    for step in range(12):
        step_file(here / f"run/step_{step}.parquet", step, FAR if step >= 7 else CLOSE)
    ran = run("watch", "run/", "--once", "--max", "k3_kl=0.05", "--exec", "cat >> alarms.json; echo >> alarms.json")
    assert ran.status == 1
    raised = [json.loads(line) for line in (here / "alarms.json").read_text().splitlines()]
    assert raised[0]["step"] == 7
    reasons = {reason["name"]: reason["what"] for reason in raised[0]["reasons"]}
    assert reasons["k3_kl"].startswith("k3_kl is 0.1")
    assert sum(reason["name"] == "k3_kl" for alarm in raised for reason in alarm["reasons"]) == 1
    assert {"first", "effect", "headline"} <= set(raised[0]["story"])
    assert_is("alarm", raised[0])
    assert ran.out.count("ALARM  step 7:") == ran.out.count("step 7: k3_kl is") == 1
    assert "Steps 7 to 11 fail." in ran.out
    step_file(here / "run/step_12.parquet", 12, FAR)
    again = looked("--max", "k3_kl=0.05", status=1)
    assert [past["step"] for past in again["alarms"]] == [alarm["step"] for alarm in raised]


def test_an_alarm_tells_that_k3_has_doubled(here: Path) -> None:
    for step in range(12):
        step_file(here / f"run/step_{step}.parquet", step, 0.02 if step < 8 else 0.04)
    found = looked()
    assert found["alarms"] == [{"step": 8, "names": ["k3_kl doubled"]}]
    assert found["status"] == "passed"


def test_a_rise_that_comes_with_another_alarm_is_told_when_that_is_over(here: Path) -> None:
    for step in range(24):
        step_file(here / f"run/step_{step}.parquet", step, 0.1 if step == 8 else 0.02 if step < 8 else 0.05)
    found = looked("--max", "k3_kl=0.002", status=1)
    assert found["failing"] == [8]
    assert found["alarms"] == [{"step": 8, "names": ["k3_kl"]}, {"step": 19, "names": ["k3_kl doubled"]}]


def test_an_alarm_tells_of_a_fault(here: Path) -> None:
    for step in range(3):
        path = step_file(here / f"run/step_{step}.parquet", step)
    rows = pq.read_table(path).to_pylist()
    shifted = [[*each["old_log_probs"][1:], each["old_log_probs"][0]] for each in rows]
    parquet(path, [{**each, "old_log_probs": values} for each, values in zip(rows, shifted, strict=True)])
    os.utime(path, (OLD, OLD))
    found = looked(status=1)
    assert found["failing"] == [2]
    assert [past["step"] for past in found["alarms"]] == [2]
    assert found["story"]["effect"] == "fault"
    assert found["alarms"][0]["names"][0] == found["story"]["first"]
    assert looked("--accept", found["story"]["first"], "--state", "b.rlcorr", status=1)["alarms"] != found["alarms"]


def test_a_file_that_cannot_be_read_is_told_and_does_not_end_the_watch(here: Path) -> None:
    step_file(here / "run/step_1.parquet", 1)
    (here / "run/step_2.parquet").write_bytes(step_file(here / "whole.parquet", 2).read_bytes()[:3000])
    os.utime(here / "run/step_2.parquet", (OLD, OLD))
    step_file(here / "run/step_3.parquet", 3)
    found = looked(status=1)
    assert sorted(steps(found)) == [1, 3]
    assert [file["path"] for file in found["unread"]] == ["run/step_2.parquet"]
    assert [past["names"] for past in found["alarms"]] == [["unreadable"]]
    again = looked(status=1)
    assert again["alarms"] == found["alarms"]
    shutil.copy(here / "whole.parquet", here / "run/step_2.parquet")
    os.utime(here / "run/step_2.parquet", (OLD + 1, OLD + 1))
    assert (steps(looked()), looked()["unread"]) == ([2], [])


NATIVE = Path(__file__).parents[1] / "golden" / "native"
MILES, MILES_CP, EXPORTS = "miles/train_data/3_{}.pt", "miles/cp2/train_data/3_{}.pt", "prime-rl/token_exports/step_7/"
OPEN_INSTRUCT = "open-instruct/grpo_smollm2__1__1786000000_"


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ([["miles/rollout_data/3.pt"], [MILES.format(0), MILES.format(1)]], [[], [3]]),
        ([[MILES.format(0), MILES.format(1)], ["miles/rollout_data/3.pt"]], [[3], []]),
        ([[MILES_CP.format(0)], [MILES_CP.format(1)]], [[], [3]]),
        ([["slime/rollout_data/eval_0.pt"], ["slime/train_data/0.pt"], ["slime/rollout_data/0.pt"]], [[], [0], []]),
        ([[f"{EXPORTS}rank_0.jsonl", f"{EXPORTS}rank_1.jsonl"], [f"{EXPORTS}STABLE"]], [[], [7]]),
        ([[f"nemo-rl/train_data_step{step}.jsonl"] for step in (2, 3)], [[2], [3]]),
        ([["verl/batches/batch_15.dp"]], [[15]]),
    ],
)
def test_frameworks_files_are_read_when_all_of_a_step_are_there(
    here: Path, stages: list[list[str]], told: list[list[int]]
) -> None:
    found: list[dict[str, Any]] = []
    for stage in stages:
        for name in stage:
            copied = here / "run" / Path(*Path(name).parts[1:])
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(NATIVE / name, copied)
            os.utime(copied, (OLD, OLD))
        found.append(looked())
    assert [steps(each) for each in found] == told
    assert all(each["status"] == "passed" and not each["alarms"] for each in found)
    assert all(bool(each["alone"] or each["waiting"]) == (each["n_steps"] == 0) for each in found)
    (line,) = next(each["steps"] for each in reversed(found) if each["steps"])
    groups = run("analyze", "run/", "--group-by", "step", "--json").json["groups"]
    counted = {group["key"]["step"]: group["counts"]["tokens"] for group in groups}
    assert line["tokens"] == counted[line["step"]]


def test_a_frameworks_file_without_log_probs_is_passed_over(here: Path) -> None:
    for name, alone in (("metadata", 0), ("rollouts_000000", 1)):
        shutil.copy(NATIVE / f"{OPEN_INSTRUCT}{name}.jsonl", here / "run")
        os.utime(here / f"run/grpo_smollm2__1__1786000000_{name}.jsonl", (OLD, OLD))
        found = looked()
        assert (len(found["alone"]), found["unread"], found["alarms"], found["waiting"]) == (alone, [], [], [])
    assert "rlcorr convert DUMP --join SCORED" in found["alone"][0]["why"]


def test_a_frameworks_file_that_is_damaged_raises_an_alarm(here: Path) -> None:
    for rank in (0, 1):
        copied = here / f"run/3_{rank}.pt"
        copied.write_bytes((NATIVE / MILES.format(rank)).read_bytes()[: None if rank == 0 else 3000])
        os.utime(copied, (OLD, OLD))
    found = looked(status=1)
    assert ([file["path"] for file in found["unread"]], steps(found)) == (["run/3_1.pt"], [3])
    shutil.copy(NATIVE / MILES.format(1), here / "run/3_1.pt")
    os.utime(here / "run/3_1.pt", (OLD, OLD))
    found = looked()
    assert [(line["step"], line["tokens"], line["again"]) for line in found["steps"]] == [(3, 240, True)]


def test_files_that_are_taken_away_or_written_again_during_a_look_raise_no_alarm(here: Path) -> None:
    paths = [
        step_file(here / f"run/step_{step}.parquet", step, FAR if step == 1 else CLOSE).relative_to(here)
        for step in (1, 2, 3, 4)
    ]
    whole = paths[3].read_bytes()

    def tell(what: Any) -> None:
        if isinstance(what, Alarm):  # of step 1, before steps 3 and 4 are read
            paths[2].unlink()
            paths[3].write_bytes(whole[:3000])

    first = rlcorr_cli.watch("run/", once=True, max={"k3_kl": 0.05}, told=tell)
    assert [line.step for line in first.steps] == [1, 2]
    assert (first.unread, first.waiting, len(first.alarms)) == ((), tuple(map(str, paths[2:])), 1)
    paths[3].write_bytes(whole)
    found = [looked("--every", "3600", "--max", "k3_kl=0.05", status=1) for _ in range(2)]
    assert [(steps(each), each["waiting"]) for each in found] == [([], [str(paths[3])]), ([4], [])]


def test_files_without_steps_are_steps_by_their_names(here: Path) -> None:
    for name in ("rollout_2", "rollout_10", "of_a_night"):
        step_file(here / f"run/{name}.parquet", None)
    assert steps(looked()) == ["of_a_night", 2, 10]


def test_of_a_file_that_grows_by_a_step_that_step_is_told_alone(here: Path) -> None:
    table = pq.read_table(STEPS)
    for n, n_steps in enumerate((3, 4, 4)):
        pq.write_table(table.filter(pc.field("step") < n_steps), here / "run/steps.parquet")
        os.utime(here / "run/steps.parquet", (OLD + n, OLD + n))
        assert steps(looked()) == [[0, 1, 2], [3], []][n]


def test_one_file_may_hold_many_steps(here: Path) -> None:
    shutil.copy(STEPS, here / "run/steps.parquet")
    os.utime(here / "run/steps.parquet", (OLD, OLD))
    found = looked()
    assert steps(found) == [0, 1, 2, 3, 4]
    by_step = run("analyze", STEPS, "--group-by", "step", "--json").json["groups"]
    assert [line["k3_kl"] for line in found["steps"]] == [group["metrics"]["k3_kl"] for group in by_step]
    assert [line["warns"] for line in found["steps"]][:3] == [[], [], ["seq_ess"]]


def steps_of_curves(folder: Path) -> list[int]:
    """The steps of k3_kl in TensorBoard's files."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found: list[int] = []
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            found += [event.step for one in event.summary.value if one.tag == "rlcorr/k3_kl"]
    return found


@pytest.mark.full
def test_tensorboard_has_each_step_once(here: Path) -> None:
    for first in (0, 3):
        for step in range(first, first + 3):
            step_file(here / f"run/step_{step}.parquet", step)
        looked("--tb", "curves")
    assert steps_of_curves(here / "curves") == list(range(6))


def test_steps_are_in_lines_and_curves_though_a_watch_is_ended_as_it_tells_them(here: Path) -> None:
    for step in range(4):
        step_file(here / f"run/step_{step}.parquet", step, FAR if step == 3 else CLOSE)
    rule: dict[str, Any] = {"max": {"k3_kl": 0.05}, "once": True}
    told: list[Any] = []
    with contextlib.suppress(SystemExit):
        rlcorr_cli.watch("run/", tb=here / "curves", told=lambda what: told.append(what) or sys.exit(), **rule)
    again = rlcorr_cli.watch("run/", tb=here / "curves", told=told.append, **rule)
    assert [what.step for what in told] == [0, 0, 1, 2, 3, 3]
    assert isinstance(told[-1], Alarm)
    assert ([line.step for line in again.steps], again.n_steps) == ([0, 1, 2, 3], 4)
    assert set(steps_of_curves(here / "curves")) == {0, 1, 2, 3}
    assert rlcorr_cli.watch("run/", **rule).steps == ()


@pytest.mark.parametrize("ending", ["> /dev/full", "| true"])
def test_steps_of_a_result_that_nobody_read_are_told_by_the_next(here: Path, ending: str) -> None:
    for step in range(18):
        step_file(here / f"run/step_{step}.parquet", step, FAR if step == 17 else CLOSE)
    rule = ("--max", "k3_kl=0.05", "--exec", "echo >> alarms")
    line = f"{shlex.join([forked_command(), 'watch', 'run/', '--once', '--json', *rule])} {ending}"
    subprocess.run(["bash", "-c", line], cwd=here, stderr=subprocess.DEVNULL, timeout=LIMIT_SECONDS)
    for expected in (list(range(18)), []):
        assert steps(looked(*rule, status=1)) == expected
    assert (here / "alarms").read_text() == "\n"


def test_an_empty_folder_waits_and_a_missing_one_is_an_error(here: Path) -> None:
    assert "No step of run/ is complete yet." in run("watch", "run/", "--once").out
    refused(run("watch", "nowhere/", "--once"), 3, "nowhere/: no such file")
    refused(run("watch", "-", "--once"), 2, "cannot be followed")
    refused(run("watch", "run/", "--once", "--limit", "3"), 2, "--limit")
    refused(run("watch", "run/", "--once", "--state", "state.json"), 2, "a state is written as .rlcorr")


def test_the_state_of_another_watch_is_refused(here: Path) -> None:
    step_file(here / "run/step_1.parquet", 1)
    looked()
    refused(
        run("watch", "run/", "--once", "--preset", "token_is"),
        2,
        "watch.rlcorr is of another watch: of run/ by another plan",
    )
    refused(run("watch", "run", "--once"), 2, "watch.rlcorr is of another watch: of run/.")
    refused(run("analyze", "watch.rlcorr"), 2, "watch.rlcorr holds totals of `rlcorr watch`")


def test_python_has_the_look_as_a_value(here: Path) -> None:
    step_file(here / "run/step_1.parquet", 1)
    told: list[Any] = []
    watched = rlcorr_cli.watch("run/", once=True, told=told.append)
    assert [line.step for line in watched.steps] == [line.step for line in told] == [1]
    assert watched.passed
    with pytest.raises(UsageError, match="every"):
        rlcorr_cli.watch("run/", once=True, every=-1)


class Watching:
    """`rlcorr watch` as a process, whose lines go to a file."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.lines = folder / "lines.txt"
        with self.lines.open("ab") as out:
            self.process = LimitedProcess(
                [forked_command(), "watch", *args, "--every", "0.05"], stdout=out, stderr=out, cwd=folder
            )

    def sees(self, text: str) -> None:
        wait_for(lambda: text in self.lines.read_text(), self.process)


@pytest.fixture
def watching(here: Path) -> Iterator[Callable[..., Watching]]:
    begun: list[Watching] = []

    def begin(*args: str) -> Watching:
        begun.append(Watching(here, *args))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(LIMIT_SECONDS)


def has_told(state: Path, step: int) -> bool:
    """Whether a watch remembers of a step, and of all before it, that they were told: what it is killed over before
    that, the next one tells again."""
    following = watch_run.remembered(str(state))
    return (
        following is not None
        and not following.untold_steps
        and any(step in file.steps for file in following.files.values())
    )


def filling(where: str, request: pytest.FixtureRequest) -> tuple[str, Filling]:
    """What is watched, and what fills it: a folder, or a prefix of a store."""
    if where == "folder":
        return "run/", Filling(fs.LocalFileSystem(), "run", far_from=14)
    request.getfixturevalue("store")
    prefix = f"run_{uuid4().hex}"
    return f"s3://dumps/{prefix}/", Filling(files(server()), f"dumps/{prefix}", far_from=14)


@pytest.mark.parametrize("where", few(["folder", "store"], ["folder"]))
def test_a_job_is_followed_over_a_kill_and_ctrl_c_ends_with_the_story(
    here: Path, watching: Callable[..., Watching], where: str, request: pytest.FixtureRequest
) -> None:
    paths, job = filling(where, request)
    job.alike = 100  # under its name at once
    first = watching(paths, "--max", RULE)
    for step in range(8):
        job.write(step)
    wait_for(lambda: has_told(here / "watch.rlcorr", 7), first.process)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(LIMIT_SECONDS)
    for step in range(8, 17):
        job.write(step)
    second = watching(paths, "--max", RULE)
    wait_for(lambda: not job.wrong(second.lines.read_text().splitlines(), 17), second.process)
    second.process.send_signal(signal.SIGINT)
    assert second.process.wait(LIMIT_SECONDS) == 1
    text = second.lines.read_text()
    assert job.wrong(text.splitlines(), 17) == []
    assert text.rstrip().endswith(f"Failed: 3 of 17 steps of {paths}.")


@pytest.mark.full
@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_job_is_followed_however_it_writes(here: Path, where: str, request: pytest.FixtureRequest) -> None:
    paths, job = filling(where, request)
    lines: list[str] = []
    for step in range(20):
        job.write(step)
        if step % 2:
            lines += run("watch", paths, "--once", "--every", "3600", "--max", RULE).out.splitlines()
    last = run("watch", paths, "--once", "--every", "3600", "--max", RULE)
    assert last.status == 1
    lines += last.out.splitlines()
    assert job.wrong(lines, 20) == []
    assert sum("(read again)" in line for line in lines) == len(job.again) == 2


def test_what_a_kill_cut_short_in_the_state_is_found_again(here: Path) -> None:
    state, files = here / "watch.rlcorr", list[int]()

    def tell(what: Any) -> None:
        """Write the next step, until what is new was added to the state twice in a row."""
        if isinstance(what, StepLine):
            files.append(state.stat().st_ino)
            assert what.step < 40
            if what.step > 5 and len(set(files[-3:])) == 1:
                raise KeyboardInterrupt
            step_file(here / f"run/step_{what.step + 1}.parquet", what.step + 1, FAR if what.step == 4 else CLOSE)

    step_file(here / "run/step_0.parquet", 0)
    before = rlcorr_cli.watch("run/", every=0, max={"k3_kl": 0.05}, told=tell)
    n_steps, whole = before.n_steps, state.read_bytes()
    for n_bytes, n_lost in ((0, 0), (1, 1), (100_000, 1), (250_000, 2)):
        state.write_bytes(whole[: len(whole) - n_bytes])
        again = rlcorr_cli.watch("run/", once=True, max={"k3_kl": 0.05})
        assert [line.step for line in again.steps] == list(range(n_steps - n_lost, n_steps))
        assert (again.n_steps, again.failing, again.alarms) == (n_steps, (5,), before.alarms)
    state.write_bytes(whole[:100_000])
    refused(run("watch", "run/", "--once", "--max", "k3_kl=0.05"), 3, "watch.rlcorr is damaged or cut short")


@pytest.mark.full
def test_a_watch_ends_when_who_reads_it_has_gone(here: Path) -> None:
    arguments = [forked_command(), "watch", "run/", "--every", "0.05"]
    with LimitedProcess(arguments, stdout=subprocess.PIPE, cwd=here) as process:
        assert b"Following run/" in process.first_line()
        assert process.stdout is not None
        process.stdout.close()
        step_file(here / "run/step_1.parquet", 1)
        assert process.wait(LIMIT_SECONDS) == 0


@pytest.mark.full
def test_steps_that_a_killed_watch_was_to_print_as_json_are_told_by_the_next(
    here: Path, watching: Callable[..., Watching]
) -> None:
    for step in range(2):
        step_file(here / f"run/step_{step}.parquet", step)
    first = watching("run/", "--json")
    state = here / "watch.rlcorr"
    wait_for(lambda: state.exists() and b"step_1" in state.read_bytes(), first.process)
    first.process.kill()
    first.process.wait(LIMIT_SECONDS)
    step_file(here / "run/step_2.parquet", 2)
    assert (steps(looked()), steps(looked())) == ([0, 1, 2], [])


@pytest.mark.full
def test_an_alarm_is_raised_again_whose_command_was_killed_with_the_watch(
    here: Path, watching: Callable[..., Watching]
) -> None:
    for step in range(2):
        step_file(here / f"run/step_{step}.parquet", step, FAR if step else CLOSE)
    rule = ("--max", "k3_kl=0.05")
    first = watching("run/", *rule, "--exec", "kill -9 $PPID")
    assert first.process.wait(LIMIT_SECONDS) == -signal.SIGKILL
    for _ in range(2):
        found = looked(*rule, "--exec", "cat >> alarms.json; echo >> alarms.json", status=1)
        assert (steps(found), [past["step"] for past in found["alarms"]]) == ([], [1])
    (alarm,) = map(json.loads, (here / "alarms.json").read_text().splitlines())
    assert (alarm["step"], alarm["reasons"][0]["name"]) == (1, "kl")
    assert_is("alarm", alarm)


def test_a_prefix_of_a_store_is_followed(here: Path, store: Proxy) -> None:
    def put_step(name: str, step: int, std: float = CLOSE, part: int = 0) -> None:
        put(server(), f"watched/{name}.parquet", step_file(here / "one.parquet", step, std, part=part))

    for step in (1, 2):
        put_step(f"step_{step}", step)
    uri = "s3://dumps/watched/"
    state = ("--state", "s3://dumps/state.rlcorr", "--every", "3600")
    assert steps(looked(*state, paths=uri)) == [1, 2]
    store.requests.clear()
    assert steps(looked(*state, paths=uri)) == []
    assert not [each for each in store.requests.values() if "step_" in each.path and "list-type" not in each.path]
    assert sum("list-type=2&prefix=watched" in each.path for each in store.requests.values()) == 1
    put_step("step_3", 3, FAR)
    put_step("step_1", 1, 0.1, part=1)
    found = looked(*state, "--max", "k3_kl=0.05", paths=uri, status=1)
    assert sorted(steps(found)) == [1, 3]
    assert [past["step"] for past in found["alarms"]] == [3]


def small_step(
    folder: Path, step: int, std: float = CLOSE, *, prompts: int = 4, rows: int = 20, tokens: int = 60
) -> Path:
    """A dump of a step of so few prompts, whose names are of this step alone."""
    random = np.random.default_rng([step, prompts])
    rollout = random.normal(-2, 0.3, (rows, tokens))
    old = np.minimum(rollout + random.normal(-std * std / 2, std, (rows, tokens)), -0.001)
    path = folder / f"step_{step}.parquet"
    names = [{"step": step, "sample_id": f"{step}/{i}", "group_id": f"{step}/{i % prompts}"} for i in range(rows)]
    parquet(path, [row(rollout[i].tolist(), old[i].tolist(), **names[i]) for i in range(rows)])
    os.utime(path, (OLD, OLD))
    return path


def failing_of_analyze(*args: str) -> list[Any]:
    """The steps that fail a rule, by a check of all that is there."""
    course = run("analyze", "run/", "--json", *args).json["course"] or {"broken": []}
    return sorted({key["step"] for rule in course["broken"] if rule["status"] == "fail" for key in rule["groups"]})


@pytest.mark.parametrize("at_once", [False, True])
def test_steps_of_few_prompts_are_judged_together_as_analyze_does(here: Path, at_once: bool) -> None:
    for step in range(11):
        small_step(here / "run", step, FAR if step >= 6 else CLOSE)
        if not at_once:
            found = looked("--exec", "cat >> alarms.json; echo >> alarms.json", status=int(step >= 7))
            (line,) = found["steps"]
            together = line.get("of_steps", [])
            assert together in ([], [step - 1, step], [step - 2, step - 1, step])
            assert together or step in (0,)
            assert (line["status"] == "too few", line["status"] == "fail") == (not step, step >= 7)
            assert found["failing"] == failing_of_analyze()
    if at_once:
        found = looked("--exec", "cat >> alarms.json; echo >> alarms.json", status=1)
    assert found["failing"] == failing_of_analyze() == [6, 7, 8, 9, 10]
    raised = [json.loads(line) for line in (here / "alarms.json").read_text().splitlines()]
    assert [alarm["step"] for alarm in raised] == [7]
    assert raised[0]["reasons"][0]["what"].startswith("steps 6 and 7 together: k")


def test_of_small_steps_no_more_are_kept_than_the_next_ones_need(here: Path) -> None:
    sizes: list[int] = []
    for step in range(14):
        small_step(here / "run", step, prompts=3)
        looked()
        sizes.append((here / "watch.rlcorr").stat().st_size)
    assert max(sizes[8:]) < 2.2 * max(sizes[2:5])
    text = run("watch", "run/", "--once").out
    assert "Passed: 14 steps" in text


def test_steps_that_never_have_enough_prompts_are_said_not_to_be_judged(here: Path) -> None:
    for step in range(3):
        path = small_step(here / "run", step, FAR, prompts=1)
        table = pq.read_table(path)
        pq.write_table(
            table.set_column(table.column_names.index("group_id"), "group_id", [["same"] * len(table)]), path
        )
        os.utime(path, (OLD, OLD))
    text = " ".join(run("watch", "run/", "--once").out.split())
    assert "No step was judged: it takes 1,000 tokens and 5 prompts" in text


def test_a_fault_of_steps_of_few_rows_is_found_in_several(here: Path) -> None:
    for step in range(6):
        path = small_step(here / "run", step, rows=6, prompts=6, tokens=120)
        table = pq.read_table(path)
        rollout = np.array(table["rollout_log_probs"].to_pylist())
        values = 0.8 * (rollout + np.where(rollout < -2, 0.0, 0.4))  # no policy's: scaled after the softmax
        pq.write_table(
            table.set_column(table.column_names.index("old_log_probs"), "old_log_probs", [values.tolist()]), path
        )
        os.utime(path, (OLD, OLD))
        assert run("analyze", str(path), "--json").json["story"]["first"] == "too_few"
    fault = run("analyze", "run/", "--json").json["story"]
    found = looked(status=1)
    assert (found["story"]["first"], found["story"]["effect"]) == (fault["first"], "fault")
    assert any(fault["first"] in past["names"] for past in found["alarms"])


@pytest.mark.parametrize("width", [80, 120])
def test_a_line_of_steps_judged_together_has_room_and_names_them(
    here: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for step in range(6):
        small_step(here / "run", step, FAR if step >= 4 else CLOSE)
    lines = run("watch", "run/", "--once").out.splitlines()
    assert max(map(len, lines)) <= width
    of_steps = lines[1 : next(i for i, line in enumerate(lines) if line.startswith("  ALARM"))]
    assert all(line.strip() for line in of_steps)
    told = " ".join(" ".join(of_steps).split())
    assert "with step 4" in told.partition(" 5 1,200 ")[2]
    assert ("passes with step" in told) == (width == 120)


@pytest.mark.full
def test_curves_have_no_holes_where_a_signal_ends_the_command_of_an_alarm(
    here: Path, watching: Callable[..., Watching]
) -> None:
    for step in range(3):
        step_file(here / f"run/step_{step}.parquet", step, FAR if step == 2 else CLOSE)
    first = watching("run/", "--max", "k3_kl=0.05", "--tb", "curves", "--exec", "kill -TERM $PPID; sleep 1")
    assert first.process.wait(LIMIT_SECONDS) == 128 + signal.SIGTERM
    assert steps_of_curves(here / "curves") == [0, 1, 2]
    found = looked("--max", "k3_kl=0.05", "--tb", "curves", status=1)
    assert (steps(found), found["n_steps"], steps_of_curves(here / "curves")) == ([], 3, [0, 1, 2])


def test_json_stays_json_beside_a_command_that_prints(here: Path) -> None:
    step_file(here / "run/step_1.parquet", 1, FAR)
    command = "echo printed; echo of an error >&2; cat"
    arguments = [forked_command(), "watch", "run/", "--once", "--json", "--max", "k3_kl=0.05", "--exec", command]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=here, timeout=LIMIT_SECONDS)
    assert (done.returncode, json.loads(done.stdout)["n_steps"]) == (1, 1)
    assert done.stderr.startswith("printed\nof an error\n{")


@pytest.mark.full
def test_two_looks_at_once_raise_each_alarm_once(here: Path) -> None:
    for step in range(3):
        step_file(here / f"run/step_{step}.parquet", step, FAR if step == 2 else CLOSE)
    command = [forked_command(), "watch", "run/", "--once", "--max", "k3_kl=0.05", "--exec", "echo >> told; sleep 0.5"]
    looks = [LimitedProcess(command, cwd=here, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait(LIMIT_SECONDS) for each in looks] == [1, 1]
    assert (here / "told").read_text() == "\n"
    assert sorted(path.name for path in here.iterdir()) == ["run", "told", "watch.rlcorr"]


def test_a_state_in_use_is_said_to_be_and_one_of_a_killed_watch_is_not(
    here: Path, monkeypatch: pytest.MonkeyPatch, watching: Callable[..., Watching]
) -> None:
    monkeypatch.setattr(watch_run, "WAITS_S", 0)
    first = watching("run/")
    first.sees("Following run/")
    refused(run("watch", "run/", "--once"), 4, "watch.rlcorr is in use by another", "--state")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(LIMIT_SECONDS)
    monkeypatch.setattr(watch_run, "WAITS_S", LIMIT_SECONDS)  # the process may be behind another
    assert run("watch", "run/", "--once").status == 0


@pytest.mark.parametrize("damage", ["empty", "zeros", "flipped", "cut", "parquet", "text", "other totals"])
def test_a_state_that_is_damaged_is_to_be_deleted(here: Path, damage: str) -> None:
    path, state = step_file(here / "run/step_1.parquet", 1), here / "watch.rlcorr"
    looked()
    whole = state.read_bytes()
    half = len(whole) // 2
    if damage == "other totals":
        assert run("analyze", str(path), "-o", str(state), "--overwrite").status == 0
    else:
        state.write_bytes(
            {
                "empty": b"",
                "zeros": bytes(4096),
                "flipped": whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :],
                "cut": whole[:half],
                "parquet": path.read_bytes(),
                "text": b"a\nb\n",
            }[damage]
        )
    refused(run("watch", "run/", "--once"), 3, "watch.rlcorr", "Delete it, or name another with --state.")
    assert run("watch", "run/", "--once", "--state", "other.rlcorr").status == 0
