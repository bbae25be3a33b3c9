"""The nightly jobs of the manual, run over nights of made dumps: their baseline is kept where a night passes."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from few import few
from limits import LIMIT_SECONDS
from test_readme import CI, README, YAML, block

from rlcorr_cli.commands import main
from rlcorr_cli.results.saved import read_report

GITHUB, GITLAB = (yaml.load(block(YAML, start), yaml.BaseLoader) for start in CI.values())
"""The jobs; BaseLoader, because GitHub's `on` is no truth value."""
K3_KL = 0.0018


def write_night(path: Path, seed: int, *, times: float = 1, mean_length: int = 100, prompts: int = 12) -> None:
    """A dump of new prompts of 4 samples each, of lognormal lengths; k3_kl is about `times` K3_KL."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(mean_length) - 0.18, 0.6, prompts * 4).astype(int) + 8
    size, offsets = int(lengths.sum()), pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    rollout = -rng.exponential(1.0, size) - 0.2
    spread = np.sqrt(2 * times * K3_KL)
    trained = np.minimum(rollout + rng.normal(-(spread**2) / 2, spread, size), -1e-6)
    columns = (pa.ListArray.from_arrays(offsets, pa.array(column, pa.float32())) for column in (rollout, trained))
    uid = np.repeat(rng.integers(1 << 60, size=prompts), 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([uid, *columns], ["uid", "rollout_log_probs", "old_log_probs"]), path)


def status_of(line: str, folder: Path, variables: Mapping[str, str]) -> int:
    """The exit status of a line of a job's script: rlcorr in this process, all else but what is not here in bash."""
    if line.startswith(("pip install ", "./nightly.sh")):
        return 0
    with chdir(folder):
        if line.startswith("rlcorr "):
            return main.run(shlex.split(line)[1:])
        surroundings = {"PATH": "/usr/bin:/bin", **variables}
        return subprocess.run(["bash", "-ec", line], env=surroundings, timeout=LIMIT_SECONDS).returncode


@dataclass
class Github:
    """GitHub's runner, as far as the job needs it: steps until one fails, and caches that are never overwritten."""

    caches: dict[str, bytes] = field(default_factory=dict[str, bytes])
    runs: int = 0

    def night(self, folder: Path, *, accept: bool) -> int:
        """Run the job in a new folder that holds the night's dump; its exit status."""
        self.runs += 1
        for step in GITHUB["jobs"]["check"]["steps"]:
            action, _, _ = step.get("uses", "").partition("@")
            if "if" in step:
                assert step["if"] == "${{ !inputs.accept }}"
                if accept:
                    continue
            if "run" in step:
                status = status_of(step["run"], folder, {})
                if status:
                    return status
            elif action.startswith("actions/cache"):
                self.cache(action, step["with"], folder / step["with"]["path"])
        return 0

    def cache(self, action: str, given: Mapping[str, str], path: Path) -> None:
        """Restore the cache of the key, else the newest whose key begins with restore-keys; or save one."""
        key = given["key"].replace("${{ github.run_id }}", str(self.runs)).replace("${{ github.run_attempt }}", "1")
        assert "$" not in key
        if action == "actions/cache/save":
            self.caches.setdefault(key, path.read_bytes())
            return
        assert action == "actions/cache/restore"
        near = [name for name in self.caches if name.startswith(given["restore-keys"])]
        found = key if key in self.caches else next(reversed(near), None)
        if found is not None:
            path.write_bytes(self.caches[found])

    def kept(self) -> bytes | None:
        return next(reversed(self.caches.values()), None)


@dataclass
class Gitlab:
    """GitLab's runner, as far as the job needs it: a cache of one key, which a job that passed overwrites."""

    cached: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def night(self, folder: Path, *, accept: bool) -> int:
        """Run the job in a new folder that holds the night's dump; its exit status."""
        (job,) = (part for part in GITLAB.values() if "script" in part)
        cache, (path,) = job["cache"], job["cache"]["paths"]
        if cache["key"] in self.cached:
            (folder / path).write_bytes(self.cached[cache["key"]])
        variables = {"ACCEPT": "yes"} if accept else {}
        status = next(filter(None, (status_of(line, folder, variables) for line in job["script"])), 0)
        assert cache["when"] == "on_success"
        if not status:
            self.cached[cache["key"]] = (folder / path).read_bytes()
        return status

    def kept(self) -> bytes | None:
        return next(iter(self.cached.values()), None)


@pytest.mark.parametrize("runner", few([Github, Gitlab], [Gitlab]))
def test_a_nightly_job_fails_where_k3_kl_rose_and_keeps_the_baseline_of_a_night_that_passed(
    runner: type[Github | Gitlab], tmp_path: Path
) -> None:
    ci = runner()

    def night(number: int, times: float = 1, *, accept: bool = False) -> tuple[int, Any]:
        """The status, and the k3_kl of the baseline that is kept then."""
        folder = tmp_path / f"{number}{accept}"
        write_night(folder / "dump" / "0.parquet", number, times=times)
        status, kept = ci.night(folder, accept=accept), ci.kept()
        if kept is None:
            return status, None
        (tmp_path / "kept.json").write_bytes(kept)
        return status, read_report(str(tmp_path / "kept.json")).whole.values["k3_kl"]

    assert night(0, 10) == (1, None)  # the first night has no baseline, and a fixed limit
    status, first = night(1)
    assert (status, first) == (0, pytest.approx(K3_KL, rel=0.2))
    status, second = night(2)
    assert (status, second) == (0, pytest.approx(K3_KL, rel=0.2))
    assert second != first
    assert night(3, 3) == (1, second)
    status, accepted = night(3, 3, accept=True)
    assert (status, accepted) == (0, pytest.approx(3 * K3_KL, rel=0.2))
    assert night(4, 3)[0] == 0


@pytest.mark.full
def test_readmes_gate_passes_null_nights_of_long_responses_and_fails_ten_times_the_k3_kl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on seq_ess fails them all."""
    (gate,) = re.findall(r"^rlcorr (check [^#]*)", README, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    statuses: list[tuple[int, int]] = []
    for seed, times in ((1, 1), (2, 1), (3, 10)):
        write_night(Path("dump/0.parquet"), seed, times=times, mean_length=8000, prompts=8)
        of_gate = main.run(shlex.split(gate))
        statuses.append((of_gate, main.run(["check", "dump/", "--min", "seq_ess=0.3"])))
    assert statuses == [(0, 1), (0, 1), (1, 1)]
