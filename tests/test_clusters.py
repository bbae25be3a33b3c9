"""The manual's page on clusters: its job scripts run as their schedulers would run them, task by task."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import stores
import yaml
from few import few
from limits import LIMIT_SECONDS
from stores import Proxy, store as store

sys.path.append(str(Path(__file__).parent / "cli"))
from running import STEPS, forked_command, run

PAGE = (Path(__file__).parents[1] / "rlcorr_cli" / "manual" / "clusters.md").read_text(encoding="utf-8")
N_STEPS = 5


def of_page(language: str, start: str) -> str:
    """The page's only block of a language that starts so."""
    (text,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if text.startswith(start))
    return text


def in_shell(script: str, folder: Path, **variables: str) -> None:
    """Run a script with `rlcorr` on its path."""
    path = f"{Path(forked_command()).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **variables, "PATH": path}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr


def steps(folder: Path, name: str) -> list[Path]:
    """A real dump, a file for each step.  name: of such a file, with {} for the step."""
    rows = pq.read_table(STEPS)
    paths = [folder / name.format(step) for step in range(N_STEPS)]
    for step, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.filter(pc.field("step") == step), path)
    return paths


def counts(*args: str) -> dict[str, int]:
    """What a report of all has."""
    return run(*args, "--group-by", "step", "--json").json["counts"]


@pytest.mark.parametrize("n_tasks", few([3, 7], [3]))
def test_the_array_job_reads_every_file_once(n_tasks: int, tmp_path: Path) -> None:
    files = steps(tmp_path, "dump/{}.parquet")
    script = of_page("bash", "#!/bin/bash")
    for task in range(n_tasks):
        variables = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(n_tasks)}
        in_shell(script, tmp_path, SLURM_CPUS_PER_TASK="1", **variables)
    assert len(list((tmp_path / "totals").iterdir())) == min(n_tasks, len(files))
    (merging,) = re.findall(r'--wrap "(.*)"', of_page("text", "job="))
    in_shell(merging, tmp_path)
    assert (tmp_path / "report.html").exists()
    parts = sorted(map(str, (tmp_path / "totals").iterdir()))
    assert counts("analyze", *parts) == counts("analyze", *map(str, files), "--preset", "token_is")


def test_the_job_of_kubernetes_reads_a_step_in_each_pod(store: Proxy, tmp_path: Path) -> None:
    job = yaml.safe_load(of_page("yaml", "# job.yaml"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["command"], job["spec"]["completions"]) == (["bash", "-c"], N_STEPS)
    files = steps(tmp_path, "step={}/0.parquet")
    place = f"s3://{stores.BUCKET}/clusters"
    for path in files:
        stores.put(store.endpoint, f"clusters/run/{path.parent.name}/0.parquet", path)
    (args,) = container["args"]
    for index in range(N_STEPS):
        in_shell(args.replace("s3://logs", place), tmp_path, JOB_COMPLETION_INDEX=str(index))
    in_shell(of_page("text", "rlcorr analyze 's3").replace("s3://logs", place), tmp_path)
    assert stores.get(store.endpoint, "clusters/report.html").startswith(b"<!")
    assert counts("analyze", f"{place}/totals/*.rlcorr") == counts("analyze", *map(str, files))
